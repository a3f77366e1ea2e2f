"""Operators that work element by element."""
from __future__ import annotations

import math
from typing import Any

from symplex.torch._emit import Emitter, Unsupported, Value, wide
from symplex.torch._table import Handler, HANDLERS, Operand, Type, handles, operand


def _is_whole(dtype: str) -> bool:
    return "f" not in dtype


# ---- of one operand ----
def _unary(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value) -> Value:
        return e.convert(e.like(operation, operand(e, x, wide(out.dtype), out.shape)), out.dtype)
    return handler


for _name, _operation in {
        "exp": "exponential", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
        "sigmoid": "logistic", "sin": "sine", "cos": "cosine"}.items():
    HANDLERS[_name] = _unary(_operation)
for _name, _operation in {"neg": "negate", "relu": "relu", "bitwise_not": "not"}.items():
    HANDLERS[_name] = _unary(_operation)


def _sign_like(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value) -> Value:
        if x.dtype in ("u8", "bool"):
            return x if operation == "abs" or x.dtype == "bool" else e.convert(e.compare(x, "gt", 0), out.dtype)
        made = e.like(operation, x)
        if operation == "sign" and x.is_float:  # PyTorch has 0 for NaN
            made = e.select(e.compare(x, "ne", x), 0.0, made)
        return made
    return handler


HANDLERS["abs"], HANDLERS["sign"], HANDLERS["sgn"] = _sign_like("abs"), _sign_like("sign"), _sign_like("sign")


def _rounding(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value, *, decimals: int = 0) -> Value:
        if decimals:
            raise Unsupported(f"{decimals} decimals")
        return e.like(operation, x) if x.is_float else x
    return handler


for _name, _operation in {"floor": "floor", "ceil": "ceil", "round": "round_nearest_even"}.items():
    HANDLERS[_name] = _rounding(_operation)


def truncated(e: Emitter, x: Value) -> Value:
    if not x.is_float:
        return x
    return e.select(e.compare(x, "lt", 0), e.like("ceil", x), e.like("floor", x))


@handles("trunc", "fix")
def _trunc(e: Emitter, out: Type, x: Value) -> Value:
    return truncated(e, x)


@handles("reciprocal")
def _reciprocal(e: Emitter, out: Type, x: Value) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.like("divide", e.constant(1, x.dtype, x.shape), x), out.dtype)


@handles("tan")
def _tan(e: Emitter, out: Type, x: Value) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.like("divide", e.like("sine", x), e.like("cosine", x)), out.dtype)


@handles("exp2")
def _exp2(e: Emitter, out: Type, x: Value) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.like("power", e.constant(2, x.dtype, x.shape), x), out.dtype)


@handles("log2")
def _log2(e: Emitter, out: Type, x: Value) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.with_number("multiply", e.like("log", x), 1 / math.log(2)), out.dtype)


@handles("log10")
def _log10(e: Emitter, out: Type, x: Value) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.with_number("multiply", e.like("log", x), 1 / math.log(10)), out.dtype)


def expm1(e: Emitter, x: Value) -> Value:
    """Near zero 2 t / (1 - t) of t = tanh(x / 2), where e^x - 1 would cancel."""
    t = e.like("tanh", e.with_number("multiply", x, 0.5))
    near = e.like("divide", e.like("add", t, t), e.like("subtract", e.constant(1, x.dtype, x.shape), t))
    return e.select(e.compare(e.like("abs", x), "lt", 1), near, e.with_number("subtract", e.like("exponential", x), 1))


@handles("expm1")
def _expm1(e: Emitter, out: Type, x: Value) -> Value:
    return e.convert(expm1(e, operand(e, x, wide(out.dtype), out.shape)), out.dtype)


@handles("log1p")
def _log1p(e: Emitter, out: Type, x: Value) -> Value:
    """log(u) x / (u - 1) of u = 1 + x: what is lost in u is lost in both (Goldberg 1991, theorem 4)."""
    x = operand(e, x, wide(out.dtype), out.shape)
    u = e.with_number("add", x, 1)
    below = e.with_number("subtract", u, 1)
    log = e.like("log", u)
    made = e.like("divide", e.like("multiply", log, x), below)
    made = e.select(e.compare(e.like("abs", below), "lt", math.inf), made, log)
    return e.convert(e.select(e.compare(below, "eq", 0), x, made), out.dtype)


def _hyperbolic(sign: int) -> Handler:
    """(e^x + sign e^-x) / 2, the halves before the sum so that it overflows where the result does; sinh near zero by
    what expm1 gives, m = e^x - 1: (m + m / (m + 1)) / 2."""
    def handler(e: Emitter, out: Type, x: Value) -> Value:
        x = operand(e, x, wide(out.dtype), out.shape)
        half = e.like("exponential", e.with_number("multiply", x, 0.5))
        back = e.like("exponential", e.with_number("multiply", x, -0.5))
        parts = [e.like("multiply", e.with_number("multiply", v, 0.5), v) for v in (half, back)]
        made = e.like("add" if sign > 0 else "subtract", *parts)
        if sign < 0:
            m = expm1(e, x)
            near = e.like("add", m, e.like("divide", m, e.with_number("add", m, 1)))
            made = e.select(e.compare(e.like("abs", x), "lt", 1), e.with_number("multiply", near, 0.5), made)
        return e.convert(made, out.dtype)
    return handler


HANDLERS["cosh"], HANDLERS["sinh"] = _hyperbolic(1), _hyperbolic(-1)


@handles("isnan")
def _isnan(e: Emitter, out: Type, x: Value) -> Value:
    return e.compare(x, "ne", x) if x.is_float else e.constant(False, "bool", x.shape)


@handles("isinf")
def _isinf(e: Emitter, out: Type, x: Value) -> Value:
    return e.compare(e.like("abs", x), "eq", math.inf) if x.is_float else e.constant(False, "bool", x.shape)


@handles("gelu")
def _gelu(e: Emitter, out: Type, x: Value, *, approximate: str = "none") -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    return e.convert(e.like("gelu_tanh" if approximate == "tanh" else "gelu", x), out.dtype)


@handles("silu")
def _silu(e: Emitter, out: Type, x: Value) -> Value:
    return e.convert(e.like("silu", operand(e, x, wide(out.dtype), out.shape)), out.dtype)


@handles("leaky_relu")
def _leaky_relu(e: Emitter, out: Type, x: Value, slope: float = 0.01) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    made = e.select(e.compare(x, "gt", 0), x, e.with_number("multiply", x, slope))
    return e.convert(made, out.dtype)


@handles("elu")
def _elu(e: Emitter, out: Type, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    x = operand(e, x, wide(out.dtype), out.shape)
    low = e.with_number("multiply", expm1(e, e.with_number("multiply", x, input_scale)), alpha * scale)
    made = e.select(e.compare(x, "le", 0), low, e.with_number("multiply", x, scale))
    return e.convert(made, out.dtype)


# ---- of two ----
def _arithmetic(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, a: Operand, b: Operand, *, alpha: float = 1) -> Value:
        dtype = wide(out.dtype)
        a, b = operand(e, a, dtype, out.shape), operand(e, b, dtype, out.shape)
        if alpha != 1:
            b = e.with_number("multiply", b, alpha)
        return e.convert(e.like(operation, a, b), out.dtype)
    return handler


for _name, _operation in {"add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum",
                          "minimum": "minimum"}.items():
    HANDLERS[_name] = _arithmetic(_operation)


def _passing_nan(operation: str) -> Handler:
    """The other one where one is NaN."""
    def handler(e: Emitter, out: Type, a: Value, b: Value) -> Value:
        a, b = operand(e, a, out.dtype, out.shape), operand(e, b, out.dtype, out.shape)
        made = e.like(operation, a, b)
        return e.select(e.compare(a, "ne", a), b, e.select(e.compare(b, "ne", b), a, made)) if a.is_float else made
    return handler


HANDLERS["fmax"], HANDLERS["fmin"] = _passing_nan("maximum"), _passing_nan("minimum")

@handles("rsub")
def _rsub(e: Emitter, out: Type, a: Operand, b: Operand, alpha: float = 1) -> Value:
    return HANDLERS["sub"](e, out, b, a, alpha=alpha)


def _bitwise(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
        return e.like(operation, operand(e, a, out.dtype, out.shape), operand(e, b, out.dtype, out.shape))
    return handler


def _logical(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, a: Value, b: Value) -> Value:
        return e.like(operation, operand(e, a, "bool", out.shape), operand(e, b, "bool", out.shape))
    return handler


for _name in ("and", "or", "xor"):
    HANDLERS[f"bitwise_{_name}"], HANDLERS[f"logical_{_name}"] = _bitwise(_name), _logical(_name)


def _shift(left: bool) -> Handler:
    def handler(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
        right = "shift_right_logical" if out.dtype == "u8" else "shift_right_arithmetic"
        return _bitwise("shift_left" if left else right)(e, out, a, b)
    return handler


for _name in ("bitwise_left_shift", "__lshift__"):
    HANDLERS[_name] = _shift(True)
for _name in ("bitwise_right_shift", "__rshift__"):
    HANDLERS[_name] = _shift(False)


@handles("logical_not")
def _logical_not(e: Emitter, out: Type, x: Value) -> Value:
    return e.like("not", e.convert(x, "bool"))


def floor_remainder(e: Emitter, a: Value, b: Value) -> Value:
    """With the sign of the divisor."""
    rest = e.like("remainder", a, b)
    if a.dtype in ("u8", "bool"):
        return rest
    differ = e.like("xor", e.compare(rest, "lt", 0), e.compare(b, "lt", 0))
    return e.select(e.like("and", e.compare(rest, "ne", 0), differ), e.like("add", rest, b), rest)


def _floor_divided(e: Emitter, a: Value, b: Value) -> Value:
    """The quotient that goes with that remainder. As PyTorch has it for floats: the exact one, rounded to a whole."""
    if a.dtype == "u8":
        return e.like("divide", a, b)
    if not a.is_float:
        rest, down = e.like("remainder", a, b), e.like("divide", a, b)
        differ = e.like("xor", e.compare(rest, "lt", 0), e.compare(b, "lt", 0))
        return e.select(e.like("and", e.compare(rest, "ne", 0), differ), e.with_number("subtract", down, 1), down)
    rest = e.like("remainder", a, b)
    whole = e.like("divide", e.like("subtract", a, rest), b)
    differ = e.like("xor", e.compare(rest, "lt", 0), e.compare(b, "lt", 0))
    whole = e.select(e.like("and", e.compare(rest, "ne", 0), differ), e.with_number("subtract", whole, 1), whole)
    down = e.like("floor", whole)
    made = e.select(e.compare(e.like("subtract", whole, down), "gt", 0.5), e.with_number("add", down, 1), down)
    quotient = e.like("divide", a, b)
    made = e.select(e.compare(whole, "eq", 0), e.with_number("multiply", quotient, 0), made)
    return e.select(e.compare(b, "eq", 0), quotient, made)


@handles("div", "true_divide")
def _div(e: Emitter, out: Type, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Value:
    dtype = wide(out.dtype)
    if dtype == "bool":
        raise Unsupported("a quotient of bools")
    a, b = operand(e, a, dtype, out.shape), operand(e, b, dtype, out.shape)
    if rounding_mode == "floor":
        return e.convert(_floor_divided(e, a, b), out.dtype)
    made = e.like("divide", a, b)
    return e.convert(truncated(e, made) if rounding_mode == "trunc" else made, out.dtype)


@handles("floor_divide")
def _floor_divide(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
    return _div(e, out, a, b, rounding_mode="floor")


def _remainder(floored: bool) -> Handler:
    def handler(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
        dtype = wide(out.dtype)
        if dtype == "bool":
            raise Unsupported("a remainder of bools")
        a, b = operand(e, a, dtype, out.shape), operand(e, b, dtype, out.shape)
        return e.convert(floor_remainder(e, a, b) if floored else e.like("remainder", a, b), out.dtype)
    return handler


HANDLERS["remainder"], HANDLERS["fmod"] = _remainder(True), _remainder(False)


def _power_of_whole(e: Emitter, x: Value, power: int) -> Value:
    made, square = None, x
    while power:
        if power & 1:
            made = square if made is None else e.like("multiply", made, square)
        power >>= 1
        square = e.like("multiply", square, square) if power else square
    return e.constant(1, x.dtype, x.shape) if made is None else made


@handles("pow")
def _pow(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
    dtype = wide(out.dtype)
    x = operand(e, a, dtype, out.shape)
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if b == int(b) and 0 <= b <= (64 if _is_whole(dtype) else 3):
            return e.convert(_power_of_whole(e, x, int(b)), out.dtype)
        if b == 0.5:
            return e.convert(e.like("sqrt", x), out.dtype)
        if b == -1 and not _is_whole(dtype):
            return e.convert(e.like("divide", e.constant(1, dtype, out.shape), x), out.dtype)
    if _is_whole(dtype):
        raise Unsupported(f"a power of {dtype} by what is not known to be small")
    return e.convert(e.like("power", x, operand(e, b, dtype, out.shape)), out.dtype)


def _is_negative(e: Emitter, x: Value) -> Value:
    """By the sign, which zeros have, too: -0 tells itself by its infinity."""
    below = e.compare(x, "lt", 0)
    if not x.is_float:
        return below
    return e.like("or", below, e.compare(e.like("divide", e.constant(1, x.dtype, x.shape), x), "lt", 0))


@handles("signbit")
def _signbit(e: Emitter, out: Type, x: Value) -> Value:
    """The sign of a NaN is not seen."""
    return e.constant(False, "bool", x.shape) if x.dtype in ("u8", "bool") else _is_negative(e, x)


@handles("copysign")
def _copysign(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
    dtype = wide(out.dtype)
    x, y = operand(e, a, dtype, out.shape), operand(e, b, dtype, out.shape)
    size = e.like("abs", x)
    return e.convert(e.select(_is_negative(e, y), e.like("negate", size), size), out.dtype)


def comparison(e: Emitter, dtype: str, shape: Any, a: Operand, direction: str, b: Operand) -> Value:
    return e.compare(operand(e, a, dtype, shape), direction, operand(e, b, dtype, shape))


def _promoted(a: Operand, b: Operand) -> str:
    """The type in which two operands are compared. A number only has a kind: whole, or with a point."""
    def rank(x: Operand) -> int:
        dtype = x.dtype if isinstance(x, Value) else "bool" if isinstance(x, bool) else \
            "i64" if isinstance(x, int) else "f32"
        return 0 if dtype == "bool" else 2 if "f" in dtype else 1
    if not isinstance(b, Value) or not isinstance(a, Value):
        x, y = (a, b) if isinstance(a, Value) else (b, a)
        assert isinstance(x, Value)
        return wide(x.dtype) if rank(x) >= rank(y) else "f32" if rank(y) == 2 else "i64"
    if a.dtype == b.dtype:
        return a.dtype
    by_rank = sorted((a, b), key=lambda v: (rank(v), len(v.shape) > 0))
    if rank(a) != rank(b):
        return wide(by_rank[1].dtype)
    if (len(a.shape) == 0) != (len(b.shape) == 0):  # a tensor of rank 0 yields to one of the same kind
        return wide(by_rank[1].dtype)
    if rank(a) == 2:
        return "f64" if "f64" in (a.dtype, b.dtype) else "f32"
    return "i16" if {a.dtype, b.dtype} == {"u8", "i8"} else max(
        (a.dtype, b.dtype), key=lambda t: (8 if t == "u8" else int(t[1:]), t == "i8"))


def _compared(direction: str) -> Handler:
    def handler(e: Emitter, out: Type, a: Operand, b: Operand) -> Value:
        return comparison(e, _promoted(a, b), out.shape, a, direction, b)
    return handler


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    HANDLERS[_name] = _compared(_name)


# ---- of three ----
@handles("fma")
def _fma(e: Emitter, out: Type, a: Operand, b: Operand, c: Operand) -> Value:
    """a b + c, the product rounded, too, as PyTorch does where it runs this operator itself."""
    dtype = wide(out.dtype)
    a, b, c = (operand(e, x, dtype, out.shape) for x in (a, b, c))
    return e.convert(e.like("add", e.like("multiply", a, b), c), out.dtype)


@handles("where")
def _where(e: Emitter, out: Type, which: Value, a: Operand, b: Operand) -> Value:
    return e.select(operand(e, which, "bool", out.shape), operand(e, a, out.dtype, out.shape),
                    operand(e, b, out.dtype, out.shape))


@handles("clamp", "clamp_min")
def _clamp(e: Emitter, out: Type, x: Value, low: Any = None, high: Any = None, **bounds: Any) -> Value:
    low, high = bounds.get("min", low), bounds.get("max", high)
    dtype = wide(out.dtype)
    x = operand(e, x, dtype, out.shape)
    x = x if low is None else e.like("maximum", x, operand(e, low, dtype, out.shape))
    x = x if high is None else e.like("minimum", x, operand(e, high, dtype, out.shape))
    return e.convert(x, out.dtype)


@handles("clamp_max")
def _clamp_max(e: Emitter, out: Type, x: Value, high: Any) -> Value:
    return _clamp(e, out, x, None, high)


@handles("hardtanh")
def _hardtanh(e: Emitter, out: Type, x: Value, low: Any = -1, high: Any = 1) -> Value:
    return _clamp(e, out, x, low, high)
