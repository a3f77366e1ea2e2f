"""Compiled graphs: a module for each set of extents, called with PyTorch's tensors where they lie."""
from __future__ import annotations

import weakref
from typing import Any, Sequence

import torch
from torch import fx

from symplex._compile import compile
from symplex._errors import LayoutError
from symplex._module import Module
from symplex.torch._lower import Output, Program, is_symbolic, lower

_modules: "weakref.WeakValueDictionary[Any, Module]" = weakref.WeakValueDictionary()


def compiled(text: str, options: dict[str, Any]) -> Module:
    """Equal programs, as equal layers are, are one module."""
    key = text, tuple(sorted((k, repr(v)) for k, v in options.items()))
    module = _modules.get(key)
    if module is None:
        module = compile(text, **{"threads": torch.get_num_threads(), **options})
        _modules[key] = module
    return module


class Entry:
    """A program for some extents, and its module."""

    def __init__(self, program: Program, options: dict[str, Any]) -> None:
        self.program = program
        self.module = None if program.text is None else compiled(program.text, options)
        if self.module is None:
            return
        used = [program.inputs[int(t.name[len("x"):])] for t in self.module.inputs]
        self.places = [i.at for i in used]
        self.turned = [(k, i.perm) for k, i in enumerate(used) if i.perm is not None]
        self.order = [int(t.name[len("out"):]) for t in self.module.outputs]  # a module has an order of its own
        self.single = len(program.results) == 1

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        made = self._computed(args) if self.module is not None else []
        results = []
        for kind, at, views in self.program.results:
            x = at if kind == "number" else args[at] if kind == "input" else made[at]
            for operator, further, keywords in views:
                x = operator(x, *further, **keywords)
            results.append(x)
        return results

    def _computed(self, args: Sequence[Any]) -> list[torch.Tensor]:
        given = [args[i] for i in self.places]
        for k, perm in self.turned:
            given[k] = given[k].permute(perm)
        made, lying = [], []
        for output in self.program.outputs:
            whole, memory = _memory(output)
            made.append(whole)
            lying.append(memory)
        out = tuple([lying[i] for i in self.order])
        try:
            self.module(*given, out=out)  # type: ignore[misc]
        except LayoutError:  # with gaps, or turned in another way than those that were compiled for
            self.module(*[x.contiguous() for x in given], out=out)  # type: ignore[misc]
        for output, whole, memory in zip(self.program.outputs, made, lying):
            if output.plain:
                whole.copy_(memory)
        return made


def _memory(output: Output) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor with the strides that were promised, and what the module writes."""
    whole = torch.empty_strided(output.shape, output.stride, dtype=output.dtype, device="cpu")
    if output.plain:
        return whole, torch.empty(output.shape, dtype=output.dtype, device="cpu")
    return whole, whole if output.perm is None else whole.permute(output.perm)


class Part:
    """A graph all of whose operators are in the table. Extents that are symbols are numbers at each call: each set of
    them has a program."""

    def __init__(self, graph_module: fx.GraphModule, options: dict[str, Any]) -> None:
        self.graph, self.options = graph_module.graph, options
        arguments = [n for n in self.graph.nodes if n.op in ("placeholder", "get_attr")]
        self.constants: list[tuple[int, torch.Tensor]] = []
        for i, node in enumerate(arguments):
            if node.op == "get_attr":
                tensor = _attribute(graph_module, node.target)
                node.meta.setdefault("val", tensor)
                self.constants.append((i, tensor))
        self.symbols = _sources(arguments)
        self.entries: dict[tuple[int, ...], Entry] = {}
        if not self.symbols:
            self._add(())

    def _add(self, key: tuple[int, ...]) -> Entry:
        known = {symbol: value for (symbol, _, _), value in zip(self.symbols, key)}

        def resolve(extent: Any) -> Any:
            return int(extent.node.expr.subs(known)) if is_symbolic(extent) else extent

        entry = Entry(lower(self.graph, resolve), self.options)
        self.entries[key] = entry
        return entry

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.constants:
            args = list(args)
            for at, tensor in self.constants:
                args.insert(at, tensor)
        key = tuple([int(args[i]) if d is None else args[i].shape[d] for _, i, d in self.symbols])
        entry = self.entries.get(key)
        return (entry or self._add(key))(args)


def _attribute(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


def _sources(arguments: Sequence[fx.Node]) -> list[tuple[Any, int, int | None]]:
    """Where each symbol is read from: an argument that is a number, or an extent of a tensor."""
    found: dict[Any, tuple[int, int | None]] = {}
    for i, node in enumerate(arguments):
        value = node.meta.get("val")
        if is_symbolic(value) and value.node.expr.is_symbol:
            found[value.node.expr] = i, None
    for i, node in enumerate(arguments):
        value = node.meta.get("val")
        for d, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if is_symbolic(n) and n.node.expr.is_symbol:
                found.setdefault(n.node.expr, (i, d))
    return [(symbol, i, d) for symbol, (i, d) in found.items()]
