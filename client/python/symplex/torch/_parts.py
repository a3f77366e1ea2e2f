"""What of a graph is compiled, and what PyTorch runs."""
from __future__ import annotations

import operator
import warnings
from typing import Any, Callable, Mapping, NamedTuple

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from symplex._errors import CompileError, InputError, LimitExceeded, Unimplemented
from symplex.torch._emit import Unsupported
from symplex.torch._lower import check, is_symbolic, is_view
from symplex.torch._run import Part

_NAMES_MAX = 6


class Options(NamedTuple):
    strict: bool
    compiling: dict[str, Any]


def _refused(graph: fx.Graph) -> dict[fx.Node, str]:
    """The operators that PyTorch runs, and why."""
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_symbolic(node.meta.get("val")):
            continue
        if node.target is operator.getitem:
            if node.args[0] in refused:
                refused[node] = ""
            continue
        try:
            check(node)
        except Unsupported as error:
            refused[node] = str(error)
    return refused


def _told(reasons: list[str], strict: bool) -> None:
    names = list(dict.fromkeys(r for r in reasons if r))
    text = "; ".join(names[:_NAMES_MAX]) + (f"; and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else "")
    if strict:
        raise Unimplemented(f"symplex.torch: what cannot be compiled (strict): {text}")
    warnings.warn(f"symplex: PyTorch runs a part of the model: {text}", RuntimeWarning, stacklevel=2)


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


def _split(module: fx.GraphModule, refused: dict[fx.Node, str], options: Options) -> Callable[..., Any]:
    partitioner = CapabilityBasedPartitioner(module, _Support(refused), allows_single_node_partition=True)
    parts = [p for p in partitioner.propose_partitions() if _computes(p.nodes)]
    whole = partitioner.fuse_partitions(parts)
    problems: list[str] = []
    for name, child in list(whole.named_children()):
        if not name.startswith("fused_") or not isinstance(child, fx.GraphModule):
            continue
        single = not isinstance(next(n for n in child.graph.nodes if n.op == "output").args[0], (list, tuple))
        try:
            setattr(whole, name, _Call(Part(child, options.compiling), single))
        except (Unsupported, Unimplemented, LimitExceeded, CompileError, InputError) as error:
            problems.append(str(error))
    if problems:
        _told(problems, options.strict)
    whole.recompile()
    return whole.forward


def boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Takes its arguments as one list and empties it, so that they may die before the results are read."""
    def call(args: list[Any]) -> Any:
        results = run(args)
        args.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def build(module: fx.GraphModule, options: Options) -> Callable[[list[Any]], Any]:
    """What runs a graph of ATen operators: all of it compiled, or parts of it."""
    refused = _refused(module.graph)
    if refused:
        _told(list(refused.values()), options.strict)
    elif _computes(n for n in module.graph.nodes if n.op == "call_function"):
        try:
            part = Part(module, options.compiling)
            return boxed(part.only or part.run)
        except (Unsupported, Unimplemented, LimitExceeded, CompileError, InputError) as error:
            _told([str(error)], options.strict)
            return boxed(lambda args: module.forward(*args))
    if not refused:
        return boxed(lambda args: module.forward(*args))
    run = _split(module, refused, options)
    return boxed(lambda args: run(*args))
