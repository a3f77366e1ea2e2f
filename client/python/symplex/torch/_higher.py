"""Operators that carry graphs: what of them is written with others before AOT autograd sees it, and torch.cond, which
becomes a `cond` of the program."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx

from symplex.torch._graph import graph_of, rows_of

_higher = torch.ops.higher_order


# ---- written with other operators ----
def flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., Any],
                   block_mask: tuple[Any, ...], scale: float, kernel_options: dict[str, Any],
                   score_mod_other_buffers: tuple[Any, ...] = (),
                   mask_mod_other_buffers: tuple[Any, ...] = ()) -> tuple[torch.Tensor, ...]:
    """By PyTorch's own definition of it: all scores, each modified by its places, of which the mask sees some; a row
    that sees none is zeros. The blocks of a mask say nothing that its function does not."""
    from torch._higher_order_ops.flex_attention import math_attention
    return math_attention(query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers,
                          mask_mod_other_buffers)


def invoke_subgraph(graph: Callable[..., Any], identifier: str | None, *operands: Any) -> Any:
    """A region that is compiled once for all its calls: here equal parts are found by what they compute."""
    return graph(*operands)


def _replacements() -> dict[Any, Callable[..., Any]]:
    return {getattr(_higher, f.__name__): f for f in (flex_attention, invoke_subgraph) if hasattr(_higher, f.__name__)}


# Nodes of a graph of Dynamo's whose meaning is that of the graphs that they are given.
CARRIERS = frozenset([flex_attention, invoke_subgraph, getattr(_higher, "cond", None)])


def written_out(module: fx.GraphModule) -> None:
    """A graph of Dynamo's, with all that it carries."""
    replacements = _replacements()
    for part in module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [n for n in part.graph.nodes if n.op == "call_function" and n.target in replacements]
        for node in found:
            node.target = replacements[node.target]
        if found:
            part.recompile()


# ---- torch.cond in a graph of ATen's operators ----
class Cond:
    """What calls one of two graphs, as the target of a node; the graphs have the node's operands behind the first."""

    __name__ = "cond"

    def __init__(self, branches: Sequence[fx.GraphModule]) -> None:
        self.graphs = [b.graph for b in branches]
        self.modules = list(branches)

    def __repr__(self) -> str:
        return "torch.cond"

    def __call__(self, which: torch.Tensor, *operands: Any) -> Any:
        """Where PyTorch runs a graph."""
        return self.modules[0 if bool(which) else 1](*operands)

    def __getstate__(self) -> Any:
        return [rows_of(g) for g in self.graphs]

    def __setstate__(self, state: Any) -> None:
        self.graphs = [graph_of(rows) for rows in state]
        self.modules = [fx.GraphModule(torch.nn.Module(), g) for g in self.graphs]


def with_branches(module: fx.GraphModule) -> None:
    """Nodes of torch.cond own their graphs; those that no node names any more are no part of the module."""
    found = [n for n in module.graph.nodes if n.op == "call_function" and n.target is getattr(_higher, "cond", None)]
    for node in found:
        which, yes, no, operands = node.args
        branches = [getattr(module, x.target) for x in (yes, no)]
        for branch in branches:
            with_branches(branch)
        node.target, node.args = Cond(branches), (which, *operands)
        for x in (yes, no):
            if not x.users:
                module.graph.erase_node(x)
    if found:
        module.recompile()
