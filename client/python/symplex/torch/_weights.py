"""Weights that are bound once: which arguments of a graph they are, and a module for each set of them.

In inference, parameters and buffers are the same tensors from call to call. With options={"freeze": "auto"} they are
parameters of the program with `weight = 1`, so that what is made of them alone (other layouts, products of constants)
is made once and not in each call. Each call asks whether those that such work reads are still as they were:

    object, address and strides     replaced parameters, load_state_dict(assign=True), `p.data = other`
    PyTorch's counter               changes in place: p.mul_(2), optimizers, load_state_dict
    a word of each row and column   what PyTorch does not count: p.data.mul_(2), a NumPy array of the same memory

All others are read where they lie. Not seen is a change that PyTorch does not count and that leaves these words as
they are, or is of a tensor with gaps, which is copied: `torch.autograd.graph.increment_version(p)` tells of it. With
False, which is the default, parameters are arguments of each call. Of tensors that were made in PyTorch's inference
mode no changes are counted: work on them is done in each call. options={"freeze": True} looks for other tensors and
other memory alone, so that it is done once for these, too."""
from __future__ import annotations

import threading
import weakref
from typing import Any, Sequence

import torch
from torch import fx

from symplex._errors import UsageError
from symplex._module import Module

MODES = ("auto", True, False)
MARK = "symplex_weight"


def mode_of(given: Any) -> Any:
    if not any(given is mode for mode in MODES) and given != "auto":
        raise UsageError(f"symplex.torch, options: freeze = {given!r}, known are 'auto', True and False")
    return given


def mark(nodes: Sequence[fx.Node], places: Sequence[int], mode: Any) -> None:
    """Arguments of a graph that are bound once: all but those with symbolic extents, and those on a GPU, which are used
    where they lie."""
    for i in places if mode is not False else ():
        value = nodes[i].meta.get("val")
        plain = isinstance(value, torch.Tensor) and value.device.type == "cpu"
        if plain and all(isinstance(n, int) for n in (*value.shape, *value.stride())):
            nodes[i].meta[MARK] = True


def is_marked(node: fx.Node) -> bool:
    return bool(node.meta.get(MARK))


def mark_static(nodes: Sequence[fx.Node], mode: Any) -> None:
    """Of the arguments of a graph, what AOT autograd says are parameters and buffers, but those that the graph itself
    changes."""
    context = torch._guards.TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    if meta is not None:
        changed = set(meta.mutated_inp_runtime_indices)
        mark(nodes, [i for i in meta.static_input_indices if i < len(nodes) and i not in changed], mode)


class Sets:
    """The module of a program, shared once for each set of weights that it is called with: equal layers, and copies of
    a model, are one module. A set goes when one of its tensors does."""

    def __init__(self, module: Module, perms: Sequence[list[int] | None], mode: Any) -> None:
        self._module, self._perms, self._content = module, perms, mode is not True
        self._known: dict[tuple[int, ...], tuple[Module, list[Any]]] = {}
        self._last: Module | None = None
        self._lock = threading.Lock()

    def of(self, weights: tuple[torch.Tensor, ...]) -> Module:
        """The module that is bound to these tensors as they are now."""
        last = self._last
        if last is not None and last._holds(weights, self._content):
            return last
        return self._find(weights)

    def _find(self, weights: tuple[torch.Tensor, ...]) -> Module:
        key = tuple(map(id, weights))
        with self._lock:
            known = self._known.get(key)
            module = known[0] if known is not None else self._module.share()
            if known is None or not module._holds(weights, self._content):
                module._bind_weights(tuple(map(self._lying, weights, self._perms)), weights)
            if known is None:
                known_of, me = weakref.ref(self), key
                self._known[key] = module, [weakref.ref(w, lambda _: _forget(known_of, me)) for w in weights]
            self._last = module
        return module

    @staticmethod
    def _lying(weight: torch.Tensor, perm: list[int] | None) -> torch.Tensor:
        """In the order in which its elements lie, and without its gradient; its memory lives as long as this does."""
        made = weight.detach()
        made = made if perm is None else made.permute(perm)
        return made if made.is_contiguous() else made.contiguous()

    def forget(self, key: tuple[int, ...]) -> None:
        known = self._known.pop(key, None)
        if known is not None and self._last is known[0]:
            self._last = None


def _forget(of: "weakref.ref[Sets]", key: tuple[int, ...]) -> None:
    sets = of()
    if sets is not None:
        sets.forget(key)
