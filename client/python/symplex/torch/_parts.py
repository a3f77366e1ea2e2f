"""What of a graph is compiled, and what PyTorch runs."""
from __future__ import annotations

import operator
import types
from typing import Any, Callable, Mapping, NamedTuple

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from symplex._errors import Unimplemented
from symplex.torch._device import check_device, device_of
from symplex.torch._emit import Undescribed, Unsupported
from symplex.torch._graph import expression, is_symbolic
from symplex.torch._lower import arguments_of, check, is_view
from symplex.torch._run import REFUSED, Part, unknown_symbols, warn

_NAMES_MAX = 6


class Options(NamedTuple):
    strict: bool
    warm: bool
    compiling: dict[str, Any]


def _refused(graph: fx.Graph) -> dict[fx.Node, str]:
    """The operators that PyTorch runs, and why."""
    refused: dict[fx.Node, str] = {}
    device = device_of(graph)
    for node in graph.nodes:
        if node.op != "call_function" or is_symbolic(node.meta.get("val")):
            continue
        if node.target is operator.getitem:
            if node.args[0] in refused:
                refused[node] = ""
            continue
        try:
            check_device(node, device)
            check(node)
        except Unsupported as error:
            refused[node] = str(error)
    return refused


def _told(reasons: list[str], strict: bool) -> str:
    names = list(dict.fromkeys(r for r in reasons if r))
    text = "; ".join(names[:_NAMES_MAX]) + (f"; and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else "")
    if strict:
        raise Unimplemented(f"symplex.torch: what cannot be compiled (strict): {text}")
    warn(text)
    return text


class _Support(OperatorSupportBase):
    def __init__(self, refused: dict[fx.Node, str]) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node.op == "call_function" and node not in self.refused


class _Call(torch.nn.Module):
    """A part that stands in a graph of PyTorch's."""

    def __init__(self, part: Part, single: bool) -> None:
        super().__init__()
        self.part, self.single = part, single

    def forward(self, *args: Any) -> Any:
        results = self.part.run(args)
        return results[0] if self.single else results


def _computes(nodes: Any) -> bool:
    return any(not (is_view(n) or n.target is operator.getitem or is_symbolic(n.meta.get("val"))) for n in nodes)


class Whole:
    """A graph that PyTorch runs, with parts in it that are compiled."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.run: Callable[[list[Any]], Any] = lambda args: module.forward(*args)
        self.calls = [child for child in module.children() if isinstance(child, _Call)]

    def parts(self) -> list[Part]:
        return [call.part for call in self.calls]

    def __getstate__(self) -> tuple[Any, ...]:
        """Its Python, and what that reads of the graph module."""
        code = self.module.graph.python_code("self")
        names = {str(n.target) for n in self.module.graph.nodes if n.op in ("get_attr", "call_module")}
        parts = {name: getattr(self.module, name, None) for name in names}
        for name, value in parts.items():
            if not isinstance(value, _Call) and type(value) is not torch.Tensor:
                raise Undescribed(f"{name}, which is no plain tensor")
        return code.src, dict(code.globals), parts

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        source, known, parts = state
        owner = types.SimpleNamespace(**parts)
        self.calls = [part for part in parts.values() if isinstance(part, _Call)]
        exec(compile(source, "<symplex>", "exec"), known)
        forward = known["forward"]
        self.run = lambda args: forward(owner, *args)


def _hand_down(whole: fx.GraphModule, name: str, child: fx.GraphModule) -> None:
    """A part that is given tensors whose extents are products of symbols alone is given the symbols, too."""
    given = {expression(n.meta["val"]): n for n in arguments_of(whole.graph) if is_symbolic(n.meta.get("val"))}
    call = next(n for n in whole.graph.nodes if n.op == "call_module" and n.target == name)
    for symbol in unknown_symbols(child.graph):
        last = arguments_of(child.graph)[-1]
        if symbol in given:
            with child.graph.inserting_after(last):
                child.graph.create_node(last.op, f"extent_{symbol}").meta["val"] = given[symbol].meta["val"]
            call.args = (*call.args, given[symbol])
    child.recompile()


def _split(module: fx.GraphModule, refused: dict[fx.Node, str], options: Options) -> tuple[Whole, str]:
    partitioner = CapabilityBasedPartitioner(module, _Support(refused), allows_single_node_partition=True)
    parts = [p for p in partitioner.propose_partitions() if _computes(p.nodes)]
    whole = partitioner.fuse_partitions(parts)
    text = _told(list(refused.values()), options.strict)
    problems: list[str] = []
    for name, child in list(whole.named_children()):
        if not name.startswith("fused_") or not isinstance(child, fx.GraphModule):
            continue
        single = not isinstance(next(n for n in child.graph.nodes if n.op == "output").args[0], (list, tuple))
        try:
            _hand_down(whole, name, child)
            setattr(whole, name, _Call(Part(child, options.compiling, options.strict), single))
        except REFUSED as error:
            problems.append(str(error))
    if problems:
        text = f"{text}; {_told(problems, options.strict)}"
    whole.recompile()
    return Whole(whole), text


class Built(NamedTuple):
    """What runs a graph of ATen operators, and what was said about parts that PyTorch runs."""

    whole: Part | Whole
    told: str

    def boxed(self) -> Callable[[list[Any]], Any]:
        """Takes its arguments as one list and empties it, so that they may die before the results are read."""
        run = (self.whole.only if isinstance(self.whole, Part) else None) or self.whole.run

        def call(args: list[Any]) -> Any:
            results = run(args)
            args.clear()
            return results

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def build(module: fx.GraphModule, options: Options) -> Built:
    """All of a graph compiled, or parts of it."""
    refused = _refused(module.graph)
    if refused:
        return Built(*_split(module, refused, options))
    if _computes(n for n in module.graph.nodes if n.op == "call_function"):
        try:
            return Built(Part(module, options.compiling, options.strict), "")
        except REFUSED as error:
            return Built(Whole(module), _told([str(error)], options.strict))
    return Built(Whole(module), "")
