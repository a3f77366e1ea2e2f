"""NumPy's functions of samples: derivatives, integrals, convolutions, interpolation, polynomials."""
from __future__ import annotations

import math
import operator
from typing import Any, Callable

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace.elements import composed, number
from symplex._trace.functions import diff, pad, searchsorted
from symplex._trace.index import gather, iota
from symplex._trace.size import Size, place
from symplex._trace.tracer import (FUNCTIONS, REFUSED, UFUNCS, Tracer, broadcast_to, compare, concatenate, convert,
                                   emit, full, one_axis, real, reshape, result_type, select,
                                   size_value, stack, total, value)

_SHIFTS_MAX = 64  # parts that are added one by one; more are a convolution


def _along(x: Tracer, axis: int, cut: Any) -> Tracer:
    return x[(*[slice(None)] * axis, cut)]


# ---- derivatives and integrals ----
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Of second order inside, of first or second at the edges, as NumPy has it."""
    x = real(f)
    axes = [one_axis(x, d) for d in (range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else
                                     (axis,))]
    steps = list(varargs) if len(varargs) != 1 else [varargs[0]] * len(axes)
    steps = steps or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"numpy.gradient: {len(steps)} spacings for {len(axes)} axes ({place()})")
    if edge_order not in (1, 2):
        raise ValueError(f"numpy.gradient: edge_order {edge_order}, 1 or 2 ({place()})")
    made = []
    for d, step in zip(axes, steps):
        n = x.shape[d]
        if isinstance(n, int) and n < edge_order + 1:
            raise ValueError(f"numpy.gradient: {n} elements along axis {d}, at least {edge_order + 1} ({place()})")
        made.append(_slopes(x, d, step, edge_order))
    return made[0] if len(made) == 1 else tuple(made)


def _slopes(x: Tracer, d: int, step: Any, edge_order: int) -> Tracer:
    def at(cut: Any) -> Tracer:
        return _along(x, d, cut)

    def wide(v: Tracer) -> Tracer:
        return reshape(v, tuple(v.shape[0] if k == d else 1 for k in range(x.ndim)))
    before, here, behind = at(slice(None, -2)), at(slice(1, -1)), at(slice(2, None))
    if np.ndim(step) == 0:
        h = step
        inner = (behind - before) / (2.0 * h)
        if edge_order == 1:
            first = (at(slice(1, 2)) - at(slice(0, 1))) / h
            last = (at(slice(-1, None)) - at(slice(-2, -1))) / h
        else:
            first = -1.5 / h * at(slice(0, 1)) + 2.0 / h * at(slice(1, 2)) - 0.5 / h * at(slice(2, 3))
            last = 0.5 / h * at(slice(-3, -2)) - 2.0 / h * at(slice(-2, -1)) + 1.5 / h * at(slice(-1, None))
    else:
        h = diff(value(step))
        if h.ndim != 1 or h.shape[0] + 1 != x.shape[d]:
            raise ValueError(f"numpy.gradient: places of shape {np.shape(step)} for {x.shape[d]} elements ({place()})")
        left, right = wide(h[:-1]), wide(h[1:])
        inner = (-right / (left * (left + right)) * before + (right - left) / (left * right) * here
                 + left / (right * (left + right)) * behind)
        if edge_order == 1:
            first = (at(slice(1, 2)) - at(slice(0, 1))) / h[0]
            last = (at(slice(-1, None)) - at(slice(-2, -1))) / h[-1]
        else:
            a, b = h[0], h[1]
            first = (-(2.0 * a + b) / (a * (a + b)) * at(slice(0, 1)) + (a + b) / (a * b) * at(slice(1, 2))
                     - a / (b * (a + b)) * at(slice(2, 3)))
            a, b = h[-2], h[-1]
            last = (b / (a * (a + b)) * at(slice(-3, -2)) - (b + a) / (a * b) * at(slice(-2, -1))
                    + (2.0 * b + a) / (b * (a + b)) * at(slice(-1, None)))
    return concatenate([convert(v, x.dtype) for v in (first, inner, last)], d)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tracer:
    y = value(y)
    d = one_axis(y, axis)
    step = dx
    if x is not None:
        x = value(x)
        step = diff(x, axis=d if x.ndim > 1 else 0)
        step = step if x.ndim > 1 else reshape(step, tuple(-1 if k == d else 1 for k in range(y.ndim)))
    return total(step * (_along(y, d, slice(1, None)) + _along(y, d, slice(None, -1))) / 2.0, d)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tracer:
    x = diff(reshape(ary, -1))
    ends = [None if v is None else value(v, x.dtype if not isinstance(v, Tracer) else None) for v in (to_begin, to_end)]
    parts = [ends[0], x, ends[1]]
    return concatenate([reshape(v, -1) for v in parts if v is not None]) if any(v is not None for v in ends) else x


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * math.pi) -> Tracer:
    x = real(p)
    d = one_axis(x, axis)
    step, half = diff(x, axis=d), period / 2
    near = np.mod(step + half, period) - half
    near = select(compare(near, "eq", -half) & compare(step, "gt", 0), value(half, x.dtype), near)
    turn = select(compare(abs(step), "lt", half if discont is None else max(discont, half)), value(0, x.dtype),
                  near - step)
    rest = _along(x, d, slice(1, None)) + FUNCTIONS["cumsum"](turn, d)
    return concatenate([_along(x, d, slice(0, 1)), rest], d)


# ---- convolutions ----
def _slid(x: Tracer, v: Tracer, mode: Any) -> Tracer:
    """Sums of x and v, which is not longer, at each place: all that lie inside, as many as x has, or all that touch."""
    n, k = x.shape[0], v.shape[0]
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode '{mode}', known are 'full', 'same', 'valid' ({place()})")
    low, high = {"valid": (0, 0), "same": (k // 2, k - 1 - k // 2), "full": (k - 1, k - 1)}[mode]
    x = pad(x, [(low, high)])
    places = n + low + high - k + 1
    if k > _SHIFTS_MAX:
        if x.dtype.kind != "f" or isinstance(n, Size):
            raise Unimplemented(f"a convolution of {n} elements of {x.dtype.name} with {k}, at most {_SHIFTS_MAX} "
                                f"({place()})")
        one = {"stride": [1], "low": [0], "high": [0], "dilation": [1], "groups": 1}
        return reshape(emit("convolution", (reshape(x, (1, 1, -1)), reshape(v, (1, 1, -1))), one, x.dtype,
                            (1, 1, places)), (places,))
    made: Any = None
    for j in range(k):
        part = x[j:j + places] * v[j]
        made = part if made is None else made + part
    return made


def _two(a: Any, v: Any, what: str) -> tuple[Tracer, Tracer, bool]:
    """The longer one, the other one, and whether they changed places."""
    dtype = result_type(value(a), value(v))
    x, y = (FUNCTIONS["atleast_1d"](convert(value(t), dtype)) for t in (a, v))
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"numpy.{what} of {x.ndim} and {y.ndim} dimensions ({place()})")
    if 0 in (x.shape[0], y.shape[0]):
        raise ValueError(f"numpy.{what}: an array is empty ({place()})")
    swapped = y.shape[0] > x.shape[0]
    x, y = (y, x) if swapped else (x, y)
    if isinstance(y.shape[0], Size):
        raise Unimplemented(f"numpy.{what} of two symbolic dimensions ({place()})")
    return x, y, swapped


def convolve(a: Any, v: Any, mode: Any = "full") -> Tracer:
    x, y, _ = _two(a, v, "convolve")
    return _slid(x, y[::-1], mode)


def correlate(a: Any, v: Any, mode: Any = "valid") -> Tracer:
    x, y, swapped = _two(a, v, "correlate")
    made = _slid(x, y, mode)
    return made[::-1] if swapped else made


# ---- values between ----
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tracer:
    if period is not None:
        raise Unimplemented(f"numpy.interp with a period ({place()})")
    x, xp, fp = (convert(value(v), np.float64) for v in (x, xp, fp))
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError(f"numpy.interp: points of shapes {xp.shape} and {fp.shape} ({place()})")
    if xp.shape[0] == 0:
        raise ValueError(f"numpy.interp: no points ({place()})")
    n = size_value(xp.shape[0])
    at = np.minimum(np.maximum(searchsorted(xp, x, "right") - 1, 0), np.maximum(n - 2, 0))
    behind = np.minimum(at + 1, n - 1)
    x0, x1, y0, y1 = gather(xp, at, 0), gather(xp, behind, 0), gather(fp, at, 0), gather(fp, behind, 0)
    made = (y1 - y0) / (x1 - x0) * (x - x0) + y0
    made = select(np.equal(x, x0), y0, made)
    made = select(np.isnan(made) & np.equal(y0, y1), y0, made)
    low, high = (fp[k] if v is None else value(v, np.float64) for v, k in ((left, 0), (right, -1)))
    made = select(np.greater(x, xp[-1]), high, select(np.equal(x, xp[-1]), fp[-1], made))
    made = select(np.less(x, xp[0]), low, made)
    return select(np.isnan(x), x, made)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:
    n = operator.index(num)
    if n < 0:
        raise ValueError(f"numpy.linspace: {n} samples ({place()})")
    kind = result_type(start, stop)
    kind = kind if kind.kind == "f" else np.dtype(np.float64)
    first, last = value(start, kind), value(stop, kind)
    parts = n - 1 if endpoint else n
    step = (last - first) / value(max(parts, 1), kind)
    at = convert(iota((n,), 0), kind)
    at = reshape(at, (n, *[1] * max(first.ndim, last.ndim)))
    made = at * step + first
    if endpoint and n > 1:
        made = concatenate([made[:-1], broadcast_to(last, (1, *made.shape[1:]))], 0)
    made = FUNCTIONS["moveaxis"](made, 0, axis) if axis % made.ndim else made
    dtype = dtype and np.dtype(dtype)
    made = convert(np.floor(made), dtype) if dtype and dtype.kind in "iu" else convert(made, dtype or kind)
    return (made, step) if retstep else made


# ---- polynomials ----
def polyval(p: Any, x: Any) -> Tracer:
    """Horner's rule, the highest power first."""
    p, x = value(p), value(x)
    if isinstance(p.shape[0], Size):
        raise Unimplemented(f"numpy.polyval of the symbolic dimension {p.shape[0]} ({place()})")
    made: Any = full(x.shape, 0, x.dtype)
    for k in range(p.shape[0]):
        made = made * x + p[k]
    return made


def vander(x: Any, N: Any = None, increasing: bool = False) -> Tracer:
    x = value(x)
    n = x.shape[0] if N is None else operator.index(N)
    if x.ndim != 1 or isinstance(n, Size):
        raise ValueError(f"numpy.vander of {x.ndim} dimensions and {n} columns ({place()})")
    wide = np.promote_types(x.dtype, int)
    columns = [full(x.shape, 1, wide)] if n else []
    while len(columns) < n:
        columns.append(columns[-1] * convert(x, wide))
    return stack(columns if increasing else columns[::-1], 1)


# ---- elements ----
def _sinc(x: Any) -> Tracer:
    x = real(x)
    y = value(math.pi, x.dtype) * select(compare(x, "eq", 0), value(1e-20, x.dtype), x)
    return np.sin(y) / y


def cbrt(x: Tracer) -> Tracer:
    """A power, then one step of Newton's method; what has no cube root but itself stays."""
    size = abs(x)
    y = emit("power", (size, number(x, 1 / 3)), {}, x.dtype, x.shape)
    y = y - (y - size / (y * y)) / number(x, 3)
    whole = compare(size, "gt", 0) & compare(size, "lt", math.inf)
    return select(whole, select(compare(x, "lt", 0), -y, y), x)


def _chosen(name: str) -> Callable[..., Tracer]:
    """maximum or minimum, of a number and NaN the number."""
    def build(ufunc: Any, a: Any, b: Any) -> Tracer:
        made = UFUNCS[name](getattr(np, name), a, b)
        if made.dtype.kind != "f":
            return made
        a, b = value(a, made.dtype), value(b, made.dtype)
        return select(np.isnan(a), b, select(np.isnan(b), a, made))
    return build


def _logaddexp2(a: Tracer, b: Tracer) -> Tracer:
    most = np.maximum(a, b)
    rest = np.log1p(np.exp2(-abs(a - b))) * number(a, 1 / math.log(2))
    return select(compare(a, "eq", b), a + number(a, 1), most + rest)


def _heaviside(x: Tracer, half: Tracer) -> Tracer:
    made = select(compare(x, "lt", 0), number(x, 0), select(compare(x, "eq", 0), half, number(x, 1)))
    return select(np.isnan(x), x, made)


def _modf(ufunc: Any, x: Any) -> tuple[Tracer, Tracer]:
    x = real(x)
    whole = np.trunc(x)
    part = select(np.isinf(x), number(x, 0), x - whole)
    return np.copysign(part, x), whole


_LEAST_SQUARES = "\nHow many residuals it gives depends on elements: numpy.linalg.pinv(a) @ b is the solution."
REFUSED.update({"lstsq": _LEAST_SQUARES, "polyfit": _LEAST_SQUARES})
UFUNCS.update({"cbrt": composed(cbrt), "fmax": _chosen("maximum"), "fmin": _chosen("minimum"),
               "logaddexp2": composed(_logaddexp2), "heaviside": composed(_heaviside), "modf": _modf})
FUNCTIONS.update({
    "gradient": gradient, "trapezoid": trapezoid, "ediff1d": ediff1d, "unwrap": unwrap, "convolve": convolve,
    "correlate": correlate, "interp": interp, "linspace": linspace, "polyval": polyval, "vander": vander, "sinc": _sinc,
    "fix": lambda x: np.trunc(value(x)), "angle": lambda z, deg=False: select(
        compare(real(z), "lt", 0), value(180.0 if deg else math.pi, real(z).dtype), real(z) * 0)})
