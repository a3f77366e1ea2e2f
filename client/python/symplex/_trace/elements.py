"""NumPy's functions of elements: one operation each where there is one, else a few, good to 8 units in the last
place and with the special cases of the array API standard. Where `logaddexp` is near zero its arguments count."""
from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace.size import broadcast, place
from symplex._trace.tracer import (UFUNCS, Tracer, broadcast_to, compare, convert, elementwise, emit, full, kind_of,
                                   select, unary, value)

Build = Callable[..., Tracer]


def number(x: Tracer, given: float) -> Tracer:
    return full(x.shape, given, x.dtype)


def composed(build: Build) -> Build:
    """Operands cast and broadcast as NumPy has it, the result of NumPy's type."""
    def call(ufunc: Any, *inputs: Any) -> Tracer:
        loop = ufunc.resolve_dtypes((*(kind_of(x) for x in inputs), None))
        values = [value(x, loop[i]) for i, x in enumerate(inputs)]
        shape = broadcast([x.shape for x in values], f"numpy.{ufunc.__name__}")
        values = [broadcast_to(x, shape) for x in values]
        half = loop[-1] == np.float16 and values[0].dtype == np.float16
        made = build(*(convert(x, np.float32) if half else x for x in values))
        return convert(made, loop[-1])
    return call


# ---- exponentials and logarithms ----
def expm1(x: Tracer) -> Tracer:
    """Near zero 2 t / (1 - t) of t = tanh(x / 2), where e^x - 1 would cancel. Zeros keep their sign."""
    t = unary("tanh", x * number(x, 0.5))
    made = select(compare(abs(x), "lt", 1), (t + t) / (number(x, 1) - t), unary("exponential", x) - number(x, 1))
    return select(compare(x, "eq", 0), x, made)


def log1p(x: Tracer) -> Tracer:
    """log(u) x / (u - 1) of u = 1 + x: what is lost in u is lost in both (Kahan; Goldberg 1991, theorem 4)."""
    u = number(x, 1) + x
    below = u - number(x, 1)
    log = unary("log", u)
    made = select(compare(abs(below), "lt", math.inf), log * x / below, log)
    return select(compare(below, "eq", 0), x, made)


def _log_of(base: float) -> Build:
    """Powers of the base have whole logarithms: a result that is one ulp beside a whole number is that."""
    def build(x: Tracer) -> Tracer:
        made = unary("log", x) * number(x, 1 / math.log(base))
        whole = unary("round_nearest_even", made)
        back = emit("power", (number(x, base), whole), {}, x.dtype, x.shape)
        return select(compare(back, "eq", x), whole, made)
    return build


def _exp2(x: Tracer) -> Tracer:
    return emit("power", (number(x, 2), x), {}, x.dtype, x.shape)


def _logaddexp(a: Tracer, b: Tracer) -> Tracer:
    most = np.maximum(a, b)
    return select(compare(a, "eq", b), a + number(a, math.log(2)), most + log1p(unary("exponential", -abs(a - b))))


# ---- trigonometry ----
def _atan_small(x: Tracer) -> Tracer:
    """Of 0 <= x <= 1: a first value that is good to 0.004 (x (pi/4 + 0.273 (1 - x))), then Newton's method for
    tan y = x, each step y + cos y (x cos y - sin y); the error is squared twice, thrice in f64."""
    y = x * (number(x, math.pi / 4) + number(x, 0.273) * (number(x, 1) - x))
    for _ in range(3 if x.dtype == np.float64 else 2):
        cosine, sine = unary("cosine", y), unary("sine", y)
        y = y + cosine * (x * cosine - sine)
    return y


def atan(x: Tracer) -> Tracer:
    size = abs(x)
    far = compare(size, "gt", 1)
    y = _atan_small(select(far, number(x, 1) / size, size))
    y = select(far, number(x, math.pi / 2) - y, y)
    y = select(compare(size, "ne", size), size, y)
    return _signed(select(compare(size, "lt", 1e-4), size - size * size * size / number(x, 3), y), x)


def _signed(size: Tracer, sign: Tracer) -> Tracer:
    return select(negative(sign), -size, size)


def negative(x: Tracer) -> Tracer:
    """Below zero, or the zero of that side. The sign of a NaN cannot be seen."""
    if x.dtype.kind != "f":
        return compare(x, "lt", 0)
    return compare(x, "lt", 0) | (compare(x, "eq", 0) & compare(number(x, 1) / x, "lt", 0))


def atan2(y: Tracer, x: Tracer) -> Tracer:
    above, right = abs(y), abs(x)
    both = compare(above, "eq", math.inf) & compare(right, "eq", math.inf)
    origin = compare(above, "eq", 0) & compare(right, "eq", 0)
    ratio = select(both, number(x, 1), select(origin, number(x, 0), above / right))
    angle = atan(ratio)
    angle = select(negative(x), number(x, math.pi) - angle, angle)
    return _signed(select(compare(x, "ne", x), x, angle), y)


def asin(x: Tracer) -> Tracer:
    return atan2(x, unary("sqrt", (number(x, 1) - x) * (number(x, 1) + x)))


def acos(x: Tracer) -> Tracer:
    return number(x, 2) * atan2(unary("sqrt", number(x, 1) - x), unary("sqrt", number(x, 1) + x))


def _sin(x: Tracer) -> Tracer:
    """Zeros keep their sign."""
    return select(compare(x, "eq", 0), x, unary("sine", x))


def _tan(x: Tracer) -> Tracer:
    return _sin(x) / unary("cosine", x)


def sinh(x: Tracer) -> Tracer:
    """From e^|x| - 1; e^(|x|/2) twice where e^|x| is out of range."""
    size = abs(x)
    e = expm1(size)
    half = unary("exponential", size * number(x, 0.5))
    made = select(compare(e, "lt", math.inf), (e + e / (e + number(x, 1))) * number(x, 0.5),
                  half * number(x, 0.5) * half)
    return select(compare(x, "eq", 0), x, _signed(made, x))


def cosh(x: Tracer) -> Tracer:
    half = unary("exponential", abs(x) * number(x, 0.5))
    return half * number(x, 0.5) * half + number(x, 0.5) / half / half


def asinh(x: Tracer) -> Tracer:
    size = abs(x)
    square = size * size
    near = log1p(size + square / (number(x, 1) + unary("sqrt", number(x, 1) + square)))
    far = unary("log", size) + number(x, math.log(2))
    made = select(compare(size, "lt", 1e9), near, far)
    return select(compare(x, "eq", 0), x, _signed(made, x))


def acosh(x: Tracer) -> Tracer:
    t = x - number(x, 1)
    near = log1p(t + unary("sqrt", number(x, 2) * t + t * t))
    return select(compare(x, "lt", 1e9), near, unary("log", x) + number(x, math.log(2)))


def atanh(x: Tracer) -> Tracer:
    size = abs(x)
    made = log1p((size + size) / (number(x, 1) - size)) * number(x, 0.5)
    return select(compare(x, "eq", 0), x, _signed(made, x))


def _hypot(a: Tracer, b: Tracer) -> Tracer:
    most, least = np.maximum(abs(a), abs(b)), np.minimum(abs(a), abs(b))
    ratio = select(compare(most, "gt", 0), least / most, number(a, 0))
    made = most * unary("sqrt", number(a, 1) + ratio * ratio)
    infinite = compare(abs(a), "eq", math.inf) | compare(abs(b), "eq", math.inf)
    return select(infinite, number(a, math.inf), made)


# ---- division and rounding ----
def _remainder(a: Tracer, b: Tracer) -> Tracer:
    """Of the sign of the divisor; of whole numbers 0 where that is 0."""
    rest = emit("remainder", (a, b), {}, a.dtype, a.shape)
    if a.dtype.kind == "u":
        return select(compare(b, "eq", 0), number(a, 0), rest)
    other = compare(rest, "ne", 0) & (compare(rest, "lt", 0) ^ compare(b, "lt", 0))
    made = select(other, rest + b, rest)
    if a.dtype.kind == "f":
        return select(compare(rest, "eq", 0), _signed(number(a, 0), b), made)
    return select(compare(b, "eq", 0), number(a, 0), made)


def _floor_divide(a: Tracer, b: Tracer) -> Tracer:
    if a.dtype.kind == "f":
        rest = emit("remainder", (a, b), {}, a.dtype, a.shape)
        ratio = (a - rest) / b
        other = compare(rest, "ne", 0) & (compare(rest, "lt", 0) ^ compare(b, "lt", 0))
        ratio = select(other, ratio - number(a, 1), ratio)
        floor = unary("floor", ratio)
        floor = select(compare(ratio - floor, "gt", 0.5), floor + number(a, 1), floor)
        floor = select(compare(ratio, "eq", 0), _signed(number(a, 0), a / b), floor)
        return select(compare(b, "eq", 0), a / b, floor)
    ratio = emit("divide", (a, b), {}, a.dtype, a.shape)
    if a.dtype.kind != "u":
        rest = a - ratio * b
        other = compare(rest, "ne", 0) & (compare(rest, "lt", 0) ^ compare(b, "lt", 0))
        ratio = select(other, ratio - number(a, 1), ratio)
    return select(compare(b, "eq", 0), number(a, 0), ratio)


def _trunc(x: Tracer) -> Tracer:
    if x.dtype.kind != "f":
        return x
    return select(negative(x), unary("ceil", x), unary("floor", x))


def _rounding(operation: str) -> Build:
    def build(ufunc: Any, x: Any) -> Tracer:
        x = value(x)
        return x if x.dtype.kind in "iub" else elementwise(operation)(ufunc, x)
    return build


# ---- whole numbers ----
def _shift(left: bool) -> Build:
    """From the number of bits on, and by a negative number of places, 0, or -1 of negative numbers to the right."""
    def build(x: Tracer, places: Tracer) -> Tracer:
        right = "shift_right_logical" if x.dtype.kind == "u" else "shift_right_arithmetic"
        return emit("shift_left" if left else right, (x, places), {}, x.dtype, x.shape)
    return build


def _power(ufunc: Any, x: Any, y: Any) -> Tracer:
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool) and isinstance(x, Tracer) and (
            0 <= y < 5 or x.dtype.kind in "iu"):
        loop = ufunc.resolve_dtypes((x.dtype, kind_of(y), None))
        if y < 0:
            raise ValueError(f"whole numbers to the power of a negative one ({place()})")
        base, made, left = convert(x, loop[-1]), None, int(y)
        while left:
            made = (base if made is None else made * base) if left & 1 else made
            left >>= 1
            base = base * base if left else base
        return full(x.shape, 1, loop[-1]) if made is None else made
    loop = ufunc.resolve_dtypes((kind_of(x), kind_of(y), None))
    if loop[-1].kind != "f":
        raise Unimplemented(f"numpy.power of {loop[-1].name} with an exponent that is traced ({place()})")
    return elementwise("power")(ufunc, x, y)


def _logical(operation: str) -> Build:
    def build(ufunc: Any, *inputs: Any) -> Tracer:
        return elementwise(operation)(ufunc, *(convert(value(x), bool) for x in inputs))
    return build


def _flag(test: Build, of_whole: bool) -> Build:
    def build(ufunc: Any, x: Any) -> Tracer:
        x = value(x)
        return test(x) if x.dtype.kind == "f" else full(x.shape, of_whole, bool)
    return build


def _sign(ufunc: Any, x: Any) -> Tracer:
    x = value(x)
    if x.dtype.kind == "u":
        return convert(compare(x, "gt", 0), x.dtype)
    made = elementwise("sign")(ufunc, x)
    return made + number(made, 0) if made.dtype.kind == "f" else made  # zero has no sign


_COMPOSED: dict[str, Build] = {
    "expm1": expm1, "log1p": log1p, "log2": _log_of(2), "log10": _log_of(10), "exp2": _exp2,
    "logaddexp": _logaddexp, "sin": _sin, "tan": _tan, "arctan": atan, "arctan2": atan2, "arcsin": asin,
    "arccos": acos, "sinh": sinh, "cosh": cosh, "arcsinh": asinh, "arccosh": acosh,
    "arctanh": atanh, "hypot": _hypot,
    "remainder": _remainder, "floor_divide": _floor_divide, "trunc": _trunc, "copysign": lambda x, y: select(
        negative(y), -abs(x), abs(x)), "left_shift": _shift(True), "right_shift": _shift(False),
    "deg2rad": lambda x: x * number(x, math.pi / 180), "rad2deg": lambda x: x * number(x, 180 / math.pi)}
UFUNCS.update({
    **{name: elementwise(operation) for name, operation in (
        ("add", "add"), ("subtract", "subtract"), ("multiply", "multiply"), ("divide", "divide"),
        ("maximum", "maximum"), ("minimum", "minimum"), ("fmod", "remainder"), ("negative", "negate"),
        ("absolute", "abs"), ("fabs", "abs"), ("exp", "exponential"), ("log", "log"), ("sqrt", "sqrt"),
        ("tanh", "tanh"), ("cos", "cosine"), ("rint", "round_nearest_even"), ("bitwise_and", "and"),
        ("bitwise_or", "or"), ("bitwise_xor", "xor"), ("invert", "not"))},
    **{name: _rounding(name) for name in ("floor", "ceil")},
    **{name: composed(build) for name, build in _COMPOSED.items()},
    "radians": composed(lambda x: x * number(x, math.pi / 180)),
    "degrees": composed(lambda x: x * number(x, 180 / math.pi)),
    "isnan": _flag(lambda x: compare(x, "ne", x), False), "sign": _sign, "power": _power,
    "float_power": elementwise("power"),
    "isinf": _flag(lambda x: compare(abs(x), "eq", math.inf), False),
    "isfinite": _flag(lambda x: compare(abs(x), "lt", math.inf), True),
    "signbit": lambda ufunc, x: negative(value(x)),
    "positive": lambda ufunc, x: value(x), "conjugate": lambda ufunc, x: value(x),
    "square": lambda ufunc, x: x * x, "reciprocal": lambda ufunc, x: np.true_divide(np.ones((), x.dtype), x)
    if x.dtype.kind == "f" else np.floor_divide(np.ones((), x.dtype), x),
    "logical_and": _logical("and"), "logical_or": _logical("or"), "logical_xor": _logical("xor"),
    "logical_not": _logical("not"), "divmod": lambda ufunc, x, y: (x // y, x % y),
    **{name: elementwise("compare", {"direction": direction}, bool) for name, direction in (
        ("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
        ("greater_equal", "ge"))}})
