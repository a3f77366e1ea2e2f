"""Functions of elements that a program has no operation for, written with those that it has; in f32 where elements are
narrower, and rounded once. Good to 4 units in the last place."""
from __future__ import annotations

import functools
import math
from typing import Any, Callable, Sequence

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

Build = Callable[..., torch.Tensor]


def _in_floats(build: Build) -> Build:
    """Whole numbers become floats, as PyTorch has it."""
    @functools.wraps(build)
    def decomposed(*args: Any) -> Any:
        computed, result = elementwise_dtypes(*args, type_promotion_kind=KIND.INT_TO_FLOAT)
        if computed.is_complex:
            return NotImplemented
        return build(*(x.to(computed) for x in args)).to(result)
    return decomposed


def _polynomial(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    """Of the highest power first."""
    made = x * factors[0] + factors[1]
    for factor in factors[2:]:
        made = made * x + factor
    return made


_ATAN_F32 = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ATAN_ABOVE = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
               -1.228866684490136173410e2, -6.485021904942025371773e1)
_ATAN_BELOW = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
               4.853903996359136964868e2, 1.945506571482613964425e2)


def atan(x: torch.Tensor) -> torch.Tensor:
    """Moshier, Cephes: atan x is pi/2 - atan 1/x, and pi/4 + atan (x - 1) / (x + 1); near zero a polynomial in f32, a
    quotient of two in f64, where pi is more than one number."""
    size, double = x.abs(), x.dtype == torch.float64
    far, middle = size > 2.414213562373095, size > (0.66 if double else 0.4142135623730950)
    t = torch.where(far, -1 / size, torch.where(middle, (size - 1) / (size + 1), size))
    zero = torch.zeros_like(x)
    base = torch.where(far, math.pi / 2, torch.where(middle, math.pi / 4, zero))
    square = t * t
    if double:
        made = square * _polynomial(square, _ATAN_ABOVE) / _polynomial(square, _ATAN_BELOW) * t + t
        rest = 6.123233995736765886e-17  # what pi / 2 is more than the double
        made = made + torch.where(far, rest, torch.where(middle, rest / 2, zero))
    else:
        made = _polynomial(square, _ATAN_F32) * square * t + t
    return torch.copysign(base + made, x)


def atan2(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    above, right = y.abs(), x.abs()
    ratio = torch.where((above == math.inf) & (right == math.inf), 1.0, above / right)
    angle = atan(torch.where((above == 0) & (right == 0), 0.0, ratio))
    angle = torch.where(torch.signbit(x), math.pi - angle, angle)
    return torch.copysign(angle, y)


def asin(x: torch.Tensor) -> torch.Tensor:
    return atan(x / torch.sqrt((1 - x) * (1 + x)))


def acos(x: torch.Tensor) -> torch.Tensor:
    return 2 * atan(torch.sqrt((1 - x) / (1 + x)))


def asinh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    square = size * size
    near = torch.log1p(size + square / (1 + torch.sqrt(1 + square)))
    return torch.copysign(torch.where(size < 1e9, near, torch.log(size) + math.log(2)), x)


def acosh(x: torch.Tensor) -> torch.Tensor:
    above = x - 1
    near = torch.log1p(above + torch.sqrt(2 * above + above * above))
    return torch.where(x < 1e9, near, torch.log(x) + math.log(2))


def atanh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    return torch.copysign(0.5 * torch.log1p((size + size) / (1 - size)), x)


FUNCTIONS: dict[Any, Build] = {getattr(torch.ops.aten, f.__name__).default: _in_floats(f)
                               for f in (atan, atan2, asin, acos, asinh, acosh, atanh)}
