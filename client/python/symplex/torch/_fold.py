"""What a graph computes of numbers alone, at the time it is compiled: places and weights of an image that is scaled are
a few numbers, which a kernel would compute anew for each element. Only operators that every processor rounds alike, so
that the program is the same on each."""
from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

_ELEMENTS_MAX = 4096
_MOVES = ("arange", "iota", "full", "ones", "zeros", "scalar_tensor", "view", "reshape", "unsqueeze", "squeeze",
          "expand", "permute", "alias", "clone", "_to_copy", "convert_element_type", "_unsafe_view")
_ROUNDED = ("add", "sub", "mul", "div", "neg", "abs", "floor", "ceil", "round", "trunc", "clamp", "clamp_min",
            "clamp_max", "minimum", "maximum", "where", "ge", "gt", "le", "lt", "eq", "ne")


def _name(node: fx.Node) -> str:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return ""
    return node.target._schema.name.split("::")[1]


def _is_small(value: object) -> bool:
    return (isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape)
            and value.numel() <= _ELEMENTS_MAX and not value.dtype.is_complex)


def folded(graph: fx.Graph) -> dict[fx.Node, list[Any]]:
    """The elements of what is known and took a sum, product or the like of fractions. A mask by whole places alone is
    left as it is: kernels of attention know it."""
    known: dict[fx.Node, torch.Tensor] = {}
    worth: set[fx.Node] = set()
    with _disable_current_modes(), torch._C._DisableAutocast(), torch.no_grad():
        for node in graph.nodes:
            name = _name(node)
            if (name not in _MOVES and name not in _ROUNDED) or not _is_small(node.meta.get("val")):
                continue
            if node.kwargs.get("alpha", 1) != 1 or any(x not in known for x in node.all_input_nodes):
                continue  # a product that is added may be rounded once or twice
            args, keywords = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **keywords)  # type: ignore[operator]
            fraction = name in _ROUNDED and known[node].is_floating_point()
            if fraction or any(x in worth for x in node.all_input_nodes):
                worth.add(node)
        return {node: (x.double() if x.is_floating_point() else x).flatten().tolist()
                for node, x in known.items() if node in worth}
