"""Graphs with symbolic extents as plain data, for a process that has not traced them: operators, what they are given,
and of each value its type and where it lies, with symbols as SymPy's expressions."""
from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch import fx

from symplex.torch._weights import MARK, is_marked


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat, sympy.Basic))


def expression(value: Any) -> Any:
    """A number, or a symbolic one as an expression."""
    return value.node.expr if is_symbolic(value) and not isinstance(value, sympy.Basic) else value


@dataclasses.dataclass(frozen=True)
class Described:
    """A tensor of a graph, without the mode that traced it; the names are those of torch.Tensor."""

    dtype: torch.dtype
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    negative: bool
    device: torch.device
    layout: torch.layout = torch.strided
    is_quantized: bool = False

    def stride(self) -> tuple[Any, ...]:
        return self.strides

    def is_neg(self) -> bool:
        return self.negative


def is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, Described))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Described(value.dtype, tuple(map(expression, value.shape)), tuple(map(expression, value.stride())),
                         value.is_neg(), value.device, value.layout, value.is_quantized)
    if isinstance(value, (list, tuple)):
        return [_described(v) for v in value]
    return expression(value)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Of a node among those of its graph."""

    index: int


@dataclasses.dataclass(frozen=True)
class _Operator:
    """One of torch.ops, by its names."""

    space: str
    name: str
    overload: str

    def found(self) -> Any:
        return getattr(getattr(getattr(torch.ops, self.space), self.name), self.overload)


# Of a node: what it is, its name, what it calls, arguments, keywords, what its value is, and whether it is a weight.
Row = tuple[str, str, Any, tuple[Any, ...], dict[str, Any], Any, bool]


def _named(target: Any) -> Any:
    if not isinstance(target, torch._ops.OpOverload):
        return target
    space, name = target._schema.name.split("::")
    return _Operator(space, name, target._overloadname)


def rows_of(graph: fx.Graph) -> list[Row]:
    place = {node: _Place(i) for i, node in enumerate(graph.nodes)}
    rows = []
    for node in graph.nodes:
        args, keywords = fx.node.map_arg((node.args, node.kwargs), place.__getitem__)
        rows.append((node.op, node.name, _named(node.target), args, dict(keywords), _described(node.meta.get("val")),
                     is_marked(node)))
    return rows


def graph_of(rows: list[Row]) -> fx.Graph:
    """What `rows_of` was given, as far as it is lowered."""
    graph, nodes = fx.Graph(), []

    def node_at(x: Any) -> Any:
        return nodes[x.index] if isinstance(x, _Place) else x

    for op, name, target, args, keywords, value, weight in rows:
        args, keywords = fx.node.map_aggregate((args, keywords), node_at)
        target = target.found() if isinstance(target, _Operator) else target
        node = graph.create_node(op, target, args, keywords, name)
        if value is not None:
            node.meta["val"] = value
        node.meta[MARK] = weight
        nodes.append(node)
    return graph
