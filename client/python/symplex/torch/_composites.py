"""Operators that PyTorch keeps whole for fast paths of its own, written with others that can be compiled."""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch
from torch._decomp import decomposition_table
from torch.nn import functional as F

from symplex.torch._functions import FUNCTIONS

_aten = torch.ops.aten


def _encoder_layer(x: torch.Tensor, width: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
                   proj_weight: torch.Tensor, proj_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
                   norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor,
                   norm_bias_2: torch.Tensor, ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor,
                   ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor, mask: torch.Tensor | None = None,
                   mask_type: int | None = None) -> Any:
    """nn.TransformerEncoderLayer in inference, of [batch, length, width]. A mask says what is not seen: which keys by
    which queries (`mask_type` 0), which keys of a batch (1), or which of each head by itself (2)."""
    if x.dim() != 3:
        return NotImplemented
    batch, length, _ = x.shape
    seen = None
    if mask is not None:
        shape = {0: (1, 1, length, length), 1: (batch, 1, 1, length)}.get(mask_type, (batch, -1, length, length))
        seen = mask.to(torch.bool).logical_not().reshape(shape)

    def norm_1(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (width,), norm_weight_1, norm_bias_1, eps)

    def norm_2(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (width,), norm_weight_2, norm_bias_2, eps)

    def attention(y: torch.Tensor) -> torch.Tensor:
        qkv = F.linear(y, qkv_weight, qkv_bias).reshape(batch, length, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(batch, length, width)
        return F.linear(made, proj_weight, proj_bias)

    def feed_forward(y: torch.Tensor) -> torch.Tensor:
        inner = F.linear(y, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attention(norm_1(x))
        return x + feed_forward(norm_2(x))
    x = norm_1(x + attention(x))
    return norm_2(x + feed_forward(x))


def _apart(x: torch.Tensor, y: torch.Tensor, p: float) -> Any:
    """All differences of rows, [.., rows of x, rows of y, width]; None where the distance is not Euclid's."""
    return x.unsqueeze(-2) - y.unsqueeze(-3) if p == 2 and x.shape[:-2] == y.shape[:-2] else None


def _distances(x: torch.Tensor, y: torch.Tensor, p: float, mode: int | None) -> Any:
    apart = _apart(x, y, p)
    return NotImplemented if apart is None else (apart * apart).sum(-1).sqrt()


def _distances_backward(slope: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: float, made: torch.Tensor) -> Any:
    """Of x; rows that meet have none."""
    apart = _apart(x, y, p)
    if apart is None:
        return NotImplemented
    share = torch.where(made == 0, torch.zeros_like(slope), slope / made)
    return (share.unsqueeze(-1) * apart).sum(-2)


def _trilinear(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, new_a: Sequence[int], new_b: Sequence[int],
               new_c: Sequence[int], summed: Sequence[int], unroll_dim: int = 1) -> torch.Tensor:
    """The sum of products of three tensors, each with new dimensions along which it is repeated."""
    made = [functools.reduce(torch.unsqueeze, sorted(new), x) for x, new in ((a, new_a), (b, new_b), (c, new_c))]
    return (made[0] * made[1] * made[2]).sum(list(summed))


def _weight_norm_backward(slope: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norm: torch.Tensor,
                          dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of w = v g / norm, with the norm over all dimensions but one: of v and of g."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (slope * v).sum(others, keepdim=True) / norm
    return g / norm * (slope - v * (along / norm)), along


# Operators on lists of tensors, as optimizers have them, whose name with one tensor is another one.
_ALONE = {"norm": "linalg_vector_norm", "maximum.Scalar": "clamp_min", "maximum.ScalarList": "clamp_min",
          "minimum.Scalar": "clamp_max", "minimum.ScalarList": "clamp_max", "zero": "zeros_like"}


def _for_each(overload: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """An operator on lists of tensors, one tensor after the other; None where no operator on one is known."""
    name = overload._schema.name.split("::")[1].removeprefix("_foreach_")
    alone = getattr(_aten, _ALONE.get(f"{name}.{overload._overloadname}") or _ALONE.get(name) or name, None)
    arguments = {a.name: isinstance(a.type, torch.ListType) for a in overload._schema.arguments}
    if alone is None or arguments.get("scalars") is False:  # numbers that are elements of a tensor
        return None
    by_name = {"alpha": "alpha", "value": "value", "dtype": "dtype", "memory_format": "memory_format"}
    if name in ("addcmul", "addcdiv"):
        by_name["scalars"] = "value"

    def decomposed(*given: Any, **words: Any) -> list[torch.Tensor]:
        named = {**dict(zip(arguments, given)), **words}

        def one(i: int) -> torch.Tensor:
            mine = {n: v[i] if arguments[n] else v for n, v in named.items()}
            keywords = {by_name[n]: mine.pop(n) for n in list(mine) if n in by_name}
            return alone(*mine.values(), **keywords)
        return [one(i) for i in range(len(next(v for n, v in named.items() if arguments[n])))]
    return decomposed


def _lists() -> dict[Any, Callable[..., Any]]:
    made = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::_foreach_") and schema.returns and not schema.is_mutable:
            overload = getattr(getattr(_aten, schema.name.split("::")[1]), schema.overload_name or "default")
            made[overload] = _for_each(overload)
    return {overload: function for overload, function in made.items() if function is not None}


# Of PyTorch's own decompositions those that are not among its core ones, for operators that a program does not have.
_THEIRS = (_aten.dist.default, _aten.grid_sampler_2d.default, _aten.ldexp.Tensor,
           _aten.narrow_copy.default, _aten.permute_copy.default, _aten.round.decimals, _aten.view_copy.default)

COMPOSITES: dict[Any, Callable[..., Any]] = {
    **{overload: decomposition_table[overload] for overload in _THEIRS},
    **FUNCTIONS,
    _aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    _aten._cdist_forward.default: _distances,
    _aten._cdist_backward.default: _distances_backward,
    _aten._trilinear.default: _trilinear,
    _aten._weight_norm_interface_backward.default: _weight_norm_backward,
    **_lists(),
}
