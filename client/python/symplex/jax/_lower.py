"""A jaxpr as the text of a program: a table from JAX's primitives to operations of docs/IR.md. Regions (scan, while,
cond) become programs inside of the program; calls are written out where they stand."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import jax
import numpy as np
from jax.extend import core

from symplex.jax import _functions, _index, _keys
from symplex.jax._emit import Emitter, Unsupported, Value, ints

_ROUNDS_MAX = (1 << 31) - 1
Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    def add(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function
    return add


# ---- programs ----
def lower(jaxpr: core.ClosedJaxpr) -> str:
    """The program: parameters x0, x1, ... are the inputs of the jaxpr, out0, out1, ... its results. Raises Unsupported,
    with the primitive's name."""
    e = Emitter()
    types = [_keys.words(v.aval) for v in jaxpr.jaxpr.invars]
    inputs = [e.parameter(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
    constants = [e.constant(np.asarray(c), c.dtype) for c in jaxpr.consts]
    made = _walk(e, jaxpr.jaxpr, constants, inputs)
    return e.program(made)


def _walk(e: Emitter, jaxpr: Any, constants: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    values: dict[Any, Value] = dict(zip(jaxpr.constvars, constants))
    values.update(zip(jaxpr.invars, inputs))

    def read(atom: Any) -> Value:
        if isinstance(atom, core.Literal):
            return e.constant(atom.val, atom.aval.dtype)
        return values[atom]

    for eqn in needed(jaxpr):
        name = eqn.primitive.name
        handler = HANDLERS.get(name)
        if handler is None:
            raise Unsupported(f"the primitive {name}")
        outvars, eqn = eqn.outvars, _keys.of_words(eqn, _CALLS)
        if name not in UNSIGNED and any(v.aval.dtype == np.uint32 for v in (*eqn.invars, *eqn.outvars)):
            raise Unsupported(f"{name}: elements of uint32")
        inputs = [read(atom) for atom in eqn.invars]
        if name in ORDERED:
            inputs = [e.convert(v, np.int64) if v.dtype == np.uint32 else v for v in inputs]
        try:
            results = handler(e, eqn, *inputs)
        except Unsupported as error:
            raise error if name in _CALLS else Unsupported(f"{name}: {error}") from None
        results = results if isinstance(results, list) else [results]
        if name in ORDERED:
            results = [e.convert(v, np.uint32) if out.aval.dtype == np.uint32 else v
                       for v, out in zip(results, outvars)]
        values.update(zip(outvars, results))
    return [read(atom) for atom in jaxpr.outvars]


def needed(jaxpr: Any) -> list[Any]:
    """The equations on which results depend, and those with effects: what differentiation leaves behind may have no
    type of ours."""
    wanted = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            kept.append(eqn)
            wanted.update(v for v in eqn.invars if not isinstance(v, core.Literal))
    return kept[::-1]


def _closed(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, core.ClosedJaxpr) else (jaxpr, ())


def inside(e: Emitter, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
    inner, consts = _closed(jaxpr)
    return _walk(e, inner, [e.constant(np.asarray(c), c.dtype) for c in consts], inputs)


# ---- calls: written out ----
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat": "jaxpr",
          "checkpoint": "jaxpr", "remat2": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
          "custom_vjp_call_jaxpr": "fun_jaxpr", "custom_lin": "jaxpr"}


def closed_call(eqn: Any) -> core.ClosedJaxpr | None:
    """What is called, if the equation is a call."""
    jaxpr = eqn.params.get(_CALLS.get(eqn.primitive.name, ""))
    return None if jaxpr is None else core.ClosedJaxpr(*_closed(jaxpr))


@handles(*_CALLS)
def _call(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    jaxpr = closed_call(eqn)
    if jaxpr is None:
        raise Unsupported("a call without a program")
    return inside(e, jaxpr, x)


@handles("symplex")
def _own(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    return inside(e, eqn.params["program"].jaxpr, x)


@handles("stop_gradient", "copy", "copy_p", "name", "optimization_barrier", "device_put", "sharding_constraint",
          "pvary")
def _same(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    return list(x)


# Of uint32 computed as i64 (`_emit._TYPES`): a bit pattern alone does not say which number is larger.
ORDERED = {"div", "rem", "max", "min", "lt", "le", "gt", "ge", "le_to", "lt_to", "clamp", "sort", "argmax", "argmin",
           "reduce_max", "reduce_min"}
# With elements of uint32.
UNSIGNED = {*_CALLS, "symplex", "add", "sub", "mul", "div", "rem", "max", "min", "neg", "and", "or", "xor", "not", "eq",
            "ne", "lt", "le", "gt", "ge", "le_to", "lt_to", "convert_element_type", "select_n", "clamp",
            "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "split", "rev", "pad",
            "concatenate", "stack", "tile", "iota", "gather", "sort", "argmax", "argmin", "dynamic_slice",
            "dynamic_update_slice", "reduce_sum", "reduce_max", "reduce_min", "stop_gradient", "copy", "copy_p",
            "device_put", "optimization_barrier", "scan", "while", "cond"}


# ---- element by element ----
def _alike(e: Emitter, eqn: Any, x: Sequence[Value]) -> list[Value]:
    """Operands of rank 0, and extents of 1, stand for all elements."""
    return [e.broadcast(v, eqn.outvars[0].aval.shape, range(len(v.shape))) for v in x]


def _elementwise(operation: str, attributes: str = "") -> Handler:
    def handler(e: Emitter, eqn: Any, *x: Value) -> Value:
        return e.like(operation, *_alike(e, eqn, x), attributes=attributes, dtype=bool if attributes else None)
    return handler


for _name, _operation in {
        "neg": "negate", "abs": "abs", "exp": "exponential", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt",
        "tanh": "tanh", "erf": "erf", "logistic": "logistic", "sin": "sine", "cos": "cosine", "floor": "floor",
        "ceil": "ceil", "sign": "sign", "not": "not", "add": "add", "add_any": "add", "sub": "subtract",
        "mul": "multiply", "div": "divide", "rem": "remainder", "max": "maximum", "min": "minimum", "and": "and",
        "or": "or", "xor": "xor", "shift_left": "shift_left", "shift_right_arithmetic": "shift_right_arithmetic",
        "shift_right_logical": "shift_right_logical"}.items():
    HANDLERS[_name] = _elementwise(_operation)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    HANDLERS[_name] = _elementwise("compare", f"direction = {_name}")


@handles("square")
def _square(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.like("multiply", x, x)


@handles("integer_pow")
def _integer_pow(e: Emitter, eqn: Any, x: Value) -> Value:
    """By squaring, as XLA does."""
    power = abs(eqn.params["y"])
    made, square = None, x
    while power:
        if power & 1:
            made = square if made is None else e.like("multiply", made, square)
        power >>= 1
        square = e.like("multiply", square, square) if power else square
    one = e.constant(1, x.dtype, x.shape)
    made = one if made is None else made
    return e.like("divide", one, made) if eqn.params["y"] < 0 else made


@handles("pow")
def _pow(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    if x.dtype.kind in "iub":
        raise Unsupported(f"powers of {x.dtype}")
    return e.like("power", *_alike(e, eqn, (x, e.convert(y, x.dtype))))


@handles("exp2")
def _exp2(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.like("power", e.constant(2, x.dtype, x.shape), x)


@handles("tan")
def _tan(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.like("divide", e.like("sine", x), e.like("cosine", x))


def _select(e: Emitter, which: Value, yes: Value, no: Value) -> Value:
    return e.emit("select", (which, yes, no), "", yes.dtype, yes.shape)


def _compare(e: Emitter, x: Value, direction: str, y: Value) -> Value:
    return e.like("compare", x, y, attributes=f"direction = {direction}", dtype=bool)


@handles("le_to", "lt_to")
def _in_total_order(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    """-0 is before 0, NaN behind all numbers; the sign of a NaN is not seen."""
    direction = eqn.primitive.name.removesuffix("_to")
    x, y = _alike(e, eqn, (x, y))
    made = _compare(e, x, direction, y)
    if x.dtype.kind in "iub":
        return made
    one, zero = e.constant(1, x.dtype, x.shape), e.constant(0, x.dtype, x.shape)
    zeros = e.like("and", _compare(e, x, "eq", zero), _compare(e, y, "eq", zero))
    made = _select(e, zeros, _compare(e, e.like("divide", one, x), direction, e.like("divide", one, y)), made)
    last = _compare(e, y, "ne", y)
    if direction == "lt":
        last = e.like("and", last, _compare(e, x, "eq", x))
    return e.like("or", made, last)


@handles("expm1")
def _expm1(e: Emitter, eqn: Any, x: Value) -> Value:
    """Near zero 2 t / (1 - t) of t = tanh(x / 2), where e^x - 1 would cancel."""
    def number(value: float) -> Value:
        return e.constant(value, x.dtype, x.shape)
    t = e.like("tanh", e.like("multiply", x, number(0.5)))
    near = e.like("divide", e.like("add", t, t), e.like("subtract", number(1), t))
    return _select(e, _compare(e, e.like("abs", x), "lt", number(1)), near,
                   e.like("subtract", e.like("exponential", x), number(1)))


@handles("log1p")
def _log1p(e: Emitter, eqn: Any, x: Value) -> Value:
    """log(u) x / (u - 1) of u = 1 + x: what is lost in u is lost in both (Kahan; Goldberg 1991, theorem 4)."""
    one = e.constant(1, x.dtype, x.shape)
    u = e.like("add", one, x)
    below = e.like("subtract", u, one)
    log = e.like("log", u)
    whole = _compare(e, e.like("abs", below), "lt", e.constant(math.inf, x.dtype, x.shape))
    made = _select(e, whole, e.like("divide", e.like("multiply", log, x), below), log)
    return _select(e, _compare(e, below, "eq", e.constant(0, x.dtype, x.shape)), x, made)


# erfc(x) = t e^(-x^2 + polynomial in t), t = 2 / (2 + x), off by 1.2e-7 of the result at most (Press et al.,
# Numerical Recipes, 2nd edition, section 6.2).
_ERFC = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
         0.17087277)


@handles("erfc")
def _erfc(e: Emitter, eqn: Any, x: Value) -> Value:
    """1 - erf below one half, where nothing cancels."""
    if x.dtype == np.float64:
        return _functions.written(e, _functions.erfc_f64, x)
    if x.dtype.itemsize < 4:
        return e.convert(_erfc(e, eqn, e.convert(x, np.float32)), x.dtype)

    def number(value: float) -> Value:
        return e.constant(value, x.dtype, x.shape)
    t = e.like("divide", number(2), e.like("add", number(2), e.like("abs", x)))
    power = number(_ERFC[-1])
    for factor in reversed(_ERFC[:-1]):
        power = e.like("add", e.like("multiply", power, t), number(factor))
    power = e.like("subtract", power, e.like("multiply", x, x))
    tail = e.like("multiply", t, e.like("exponential", power))
    return _select(e, _compare(e, x, "lt", number(0.5)), e.like("subtract", number(1), e.like("erf", x)), tail)


def _composed(build: _functions.Build) -> Handler:
    def handler(e: Emitter, eqn: Any, *x: Value) -> Value:
        dtype = eqn.outvars[0].aval.dtype
        narrow = np.dtype(dtype).itemsize < 4
        x = tuple(e.convert(v, np.float32) if narrow else v for v in _alike(e, eqn, x))
        return e.convert(_functions.written(e, build, *x), dtype)
    return handler


HANDLERS.update({name: _composed(build) for name, build in _functions.REAL.items()})


@handles("round")
def _round(e: Emitter, eqn: Any, x: Value) -> Value:
    if int(eqn.params["rounding_method"]) == 1:
        return e.like("round_nearest_even", x)
    size = e.like("abs", x)  # halves away from zero
    below = e.like("floor", size)
    half = _compare(e, e.like("subtract", size, below), "ge", e.constant(0.5, x.dtype, x.shape))
    made = _select(e, half, e.like("add", below, e.constant(1, x.dtype, x.shape)), below)
    return _select(e, _compare(e, x, "lt", e.constant(0, x.dtype, x.shape)), e.like("negate", made), made)


@handles("is_finite")
def _is_finite(e: Emitter, eqn: Any, x: Value) -> Value:
    return _compare(e, e.like("abs", x), "lt", e.constant(math.inf, x.dtype, x.shape))


@handles("convert_element_type")
def _convert(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.convert(x, eqn.outvars[0].aval.dtype)


@handles("select_n")
def _select_n(e: Emitter, eqn: Any, which: Value, *cases: Value) -> Value:
    if len(cases) != 2:
        raise Unsupported(f"a choice of {len(cases)}")
    which, no, yes = _alike(e, eqn, (e.convert(which, bool), *cases))
    return _select(e, which, yes, no)


@handles("clamp")
def _clamp(e: Emitter, eqn: Any, low: Value, x: Value, high: Value) -> Value:
    low, x, high = _alike(e, eqn, (low, x, high))
    return e.like("minimum", e.like("maximum", x, low), high)


# ---- shapes ----
@handles("broadcast_in_dim")
def _broadcast(e: Emitter, eqn: Any, x: Value, *dynamic: Value) -> Value:
    return e.broadcast(x, eqn.params["shape"], eqn.params["broadcast_dimensions"])


@handles("reshape", "squeeze", "expand_dims")
def _reshape(e: Emitter, eqn: Any, x: Value, *dynamic: Value) -> Value:
    return e.reshape(x, eqn.outvars[0].aval.shape)


@handles("transpose")
def _transpose(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.transpose(x, eqn.params["permutation"])


@handles("slice")
def _slice(e: Emitter, eqn: Any, x: Value) -> Value:
    p = eqn.params
    return e.slice(x, p["start_indices"], p["limit_indices"], p["strides"] or (1,) * len(x.shape))


@handles("split")
def _split(e: Emitter, eqn: Any, x: Value) -> list[Value]:
    axis, at, parts = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        start = [at if d == axis else 0 for d in range(len(x.shape))]
        limit = [at + size if d == axis else n for d, n in enumerate(x.shape)]
        parts.append(e.slice(x, start, limit, (1,) * len(x.shape)))
        at += size
    return parts


@handles("concatenate")
def _concatenate(e: Emitter, eqn: Any, *x: Value) -> Value:
    aval = eqn.outvars[0].aval
    if len(x) > 64:
        raise Unsupported(f"{len(x)} parts, at most 64")
    return e.emit("concatenate", x, f"axis = {eqn.params['dimension']}", aval.dtype, aval.shape)


@handles("stack")
def _stack(e: Emitter, eqn: Any, *x: Value) -> Value:
    axis, aval = eqn.params["axis"], eqn.outvars[0].aval
    if len(x) > 64:
        raise Unsupported(f"{len(x)} parts, at most 64")
    one = [1 if d == axis else n for d, n in enumerate(aval.shape)]
    return e.emit("concatenate", [e.reshape(v, one) for v in x], f"axis = {axis}", aval.dtype, aval.shape)


@handles("tile")
def _tile(e: Emitter, eqn: Any, x: Value) -> Value:
    """Each dimension behind one of the repetitions."""
    shape = eqn.outvars[0].aval.shape
    reps = [m // n if n else 1 for m, n in zip(shape, x.shape)]
    wide = [n for pair in zip(reps, x.shape) for n in pair]
    if len(wide) > 8:
        raise Unsupported(f"{len(x.shape)} dimensions, at most 4")
    return e.reshape(e.broadcast(x, wide, range(1, len(wide), 2)), shape)


@handles("pad")
def _pad(e: Emitter, eqn: Any, x: Value, value: Value) -> Value:
    low, high, interior = zip(*eqn.params["padding_config"]) if x.shape else ((), (), ())
    if not x.shape:
        return x
    return e.emit("pad", (x, value), f"low = {ints(low)}, high = {ints(high)}, interior = {ints(interior)}", x.dtype,
                  eqn.outvars[0].aval.shape)


@handles("rev")
def _rev(e: Emitter, eqn: Any, x: Value) -> Value:
    dims = sorted(eqn.params["dimensions"])
    return e.emit("reverse", (x,), f"dims = {ints(dims)}", x.dtype, x.shape) if dims else x


@handles("empty", "empty2")
def _empty(e: Emitter, eqn: Any, *dynamic: Value) -> Value:
    """Nobody reads it before it is written; zeros."""
    aval = eqn.outvars[0].aval
    return e.constant(0, aval.dtype, aval.shape)


@handles("iota")
def _iota(e: Emitter, eqn: Any, *dynamic: Value) -> Value:
    p = eqn.params
    return e.emit("iota", (), f"axis = {p['dimension']}", p["dtype"], p["shape"])


# ---- reductions ----
def _reduction(reducer: str) -> Handler:
    def handler(e: Emitter, eqn: Any, x: Value) -> Value:
        axes = sorted(eqn.params["axes"])
        shape = [n for d, n in enumerate(x.shape) if d not in axes]
        return e.emit("reduce", (x,), f"dims = {ints(axes)}, reducer = {reducer}", x.dtype, shape) if axes else x
    return handler


for _name, _operation in {"reduce_sum": "add", "reduce_prod": "multiply", "reduce_max": "maximum",
                          "reduce_min": "minimum", "reduce_or": "add", "reduce_and": "multiply"}.items():
    HANDLERS[_name] = _reduction(_operation)


@handles("argmax", "argmin")
def _arg(e: Emitter, eqn: Any, x: Value) -> Value:
    """A sort with one place. NaN comes first, and that is where a sort from the largest on has it."""
    (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
    whole = x.dtype.kind in "iub"
    smallest = eqn.primitive.name == "argmin"
    if smallest and not whole:
        x = e.like("negate", x)
    if x.dtype == np.dtype(bool):
        x = e.convert(x, np.uint8)
    shape = [1 if d == axis else n for d, n in enumerate(x.shape)]
    direction = "lt" if smallest and whole else "gt"
    index = e.emit("sort", (x,), f"axis = {axis}, direction = {direction}, count = 1, result = 1", np.int64, shape)
    return e.convert(e.reshape(index, [n for d, n in enumerate(x.shape) if d != axis]), dtype)


@handles("sort")
def _sort(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    p = eqn.params
    axis = p["dimension"]
    order = f"axis = {axis}, direction = lt, count = -1"
    index = None
    for key in x[p["num_keys"] - 1::-1]:  # the last key first: later orders are stable
        turned = key if index is None else _index.along(e, key, index, axis)
        turned = e.convert(turned, np.uint8) if key.dtype == np.dtype(bool) else turned
        made, again = e.emit_many("sort", (turned,), order, [(turned.dtype, key.shape), (np.int64, key.shape)])
        index = again if index is None else _index.along(e, index, again, axis)
    first = e.convert(made, x[0].dtype)
    return [first] + [_index.along(e, v, index, axis) for v in x[1:]]


@handles("top_k")
def _top_k(e: Emitter, eqn: Any, x: Value) -> list[Value]:
    axis = eqn.params.get("axis", len(x.shape) - 1) % len(x.shape)
    k = eqn.params["k"]
    shape = [k if d == axis else n for d, n in enumerate(x.shape)]
    value, index = e.emit_many("sort", (x,), f"axis = {axis}, direction = gt, count = {k}",
                               [(x.dtype, shape), (np.int64, shape)])
    return [value, e.convert(index, eqn.outvars[1].aval.dtype)]


def _cumulative(operation: str) -> Handler:
    """A scan along the axis: one after the other, in order."""
    def handler(e: Emitter, eqn: Any, x: Value) -> Value:
        axis = eqn.params["axis"]
        perm = [axis] + [d for d in range(len(x.shape)) if d != axis]
        rows = e.transpose(x, perm)
        backward = eqn.params["reverse"]
        rows = e.emit("reverse", (rows,), "dims = [0]", rows.dtype, rows.shape) if backward else rows
        if rows.shape[0] < 2:
            return x
        inner = Emitter(e)
        carry = inner.parameter("carry", x.dtype, rows.shape[1:])
        row = inner.parameter("row", x.dtype, rows.shape[1:])
        made = inner.like(operation, carry, row)
        first = e.reshape(e.slice(rows, [0] * len(perm), (1, *rows.shape[1:]), [1] * len(perm)), rows.shape[1:])
        rest = e.slice(rows, [1] + [0] * (len(perm) - 1), rows.shape, [1] * len(perm))
        _, sums = e.emit_many("scan", (first, rest), f"carried = 1, sliced = 1, step = {inner.body([made, made])}",
                              [(x.dtype, first.shape), (x.dtype, rest.shape)])
        head = e.reshape(first, (1, *first.shape))
        whole = e.emit("concatenate", (head, sums), "axis = 0", x.dtype, rows.shape)
        whole = e.emit("reverse", (whole,), "dims = [0]", x.dtype, rows.shape) if backward else whole
        return e.transpose(whole, [perm.index(d) for d in range(len(perm))])
    return handler


for _name, _operation in {"cumsum": "add", "cumprod": "multiply", "cummax": "maximum", "cummin": "minimum"}.items():
    HANDLERS[_name] = _cumulative(_operation)


# ---- products ----
@handles("dot_general")
def _dot_general(e: Emitter, eqn: Any, a: Value, b: Value) -> Value:
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    dtype = np.dtype(eqn.params["preferred_element_type"] or eqn.outvars[0].aval.dtype)
    a, b = e.convert(a, dtype), e.convert(b, dtype)
    attributes = f"lhs_contract = {ints(left)}, rhs_contract = {ints(right)}"
    if left_batch:
        attributes = f"lhs_batch = {ints(left_batch)}, rhs_batch = {ints(right_batch)}, {attributes}"
    made = e.emit("dot_general", (a, b), attributes, dtype, eqn.outvars[0].aval.shape)
    return e.convert(made, eqn.outvars[0].aval.dtype)


@handles("conv_general_dilated")
def _convolution(e: Emitter, eqn: Any, x: Value, w: Value) -> Value:
    p = eqn.params
    if p["batch_group_count"] != 1:
        raise Unsupported("groups of the batch")
    numbers = p["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype
    x = e.transpose(e.convert(x, dtype), numbers.lhs_spec)
    w = e.transpose(e.convert(w, dtype), numbers.rhs_spec)
    if any(n != 1 for n in p["lhs_dilation"]):
        interior = [0, 0] + [n - 1 for n in p["lhs_dilation"]]
        shape = [n + (n - 1) * i if n else 0 for n, i in zip(x.shape, interior)]
        zeros = [0] * len(shape)
        x = e.emit("pad", (x, e.constant(0, x.dtype)), f"low = {zeros}, high = {zeros}, interior = {ints(interior)}",
                   x.dtype, shape)
    low, high = zip(*p["padding"]) if p["padding"] else ((), ())
    attributes = (f"stride = {ints(p['window_strides'])}, low = {ints(low)}, high = {ints(high)}, "
                  f"dilation = {ints(p['rhs_dilation'])}, groups = {p['feature_group_count']}")
    out = eqn.outvars[0].aval.shape
    made = e.emit("convolution", (x, w), attributes, dtype, [out[d] for d in numbers.out_spec])
    return e.transpose(made, [numbers.out_spec.index(d) for d in range(len(out))])


def _windows(reducer: str) -> Handler:
    def handler(e: Emitter, eqn: Any, x: Value) -> Value:
        p = eqn.params
        if any(n != 1 for n in p["base_dilation"]):
            raise Unsupported("a dilated operand")
        low, high = zip(*p["padding"])
        attributes = (f"stride = {ints(p['window_strides'])}, low = {ints(low)}, high = {ints(high)}, "
                      f"window = {ints(p['window_dimensions'])}, dilation = {ints(p['window_dilation'])}, "
                      f"reducer = {reducer}")
        return e.emit("reduce_window", (x,), attributes, x.dtype, eqn.outvars[0].aval.shape)
    return handler


for _name, _operation in {"reduce_window_sum": "add", "reduce_window_max": "maximum",
                          "reduce_window_min": "minimum"}.items():
    HANDLERS[_name] = _windows(_operation)


@handles("select_and_scatter_add")
def _select_and_scatter_add(e: Emitter, eqn: Any, source: Value, x: Value) -> Value:
    """Each place of the window in turn: where it holds the extreme, and none before it did, it gets the source."""
    p = eqn.params
    window, strides, padding = p["window_dimensions"], p["window_strides"], p["padding"]
    largest = p["select_prim"].name == "ge"
    if math.prod(window) > 64 or any(n < 0 for pair in padding for n in pair):
        raise Unsupported(f"a window of {ints(window)}")
    low, high = zip(*padding)
    edge = e.constant(-math.inf if largest else math.inf, x.dtype)
    wide = [n + a + b for n, a, b in zip(x.shape, low, high)]
    rank, none = len(x.shape), [0] * len(x.shape)
    x_wide = e.emit("pad", (x, edge), f"low = {ints(low)}, high = {ints(high)}, interior = {none}", x.dtype, wide)
    best = e.emit("reduce_window", (x_wide,), f"stride = {ints(strides)}, low = {none}, high = {none}, window = "
                  f"{ints(window)}, dilation = {[1] * rank}, reducer = {'maximum' if largest else 'minimum'}", x.dtype,
                  source.shape)
    zero, free, total = e.constant(0, x.dtype), None, None
    for at in np.ndindex(*window):
        limit = [a + (n - 1) * s + 1 for a, n, s in zip(at, source.shape, strides)]
        here = _compare(e, e.slice(x_wide, at, limit, strides), "eq", best)
        mine = here if free is None else e.like("and", here, free)
        left = e.like("not", here)
        free = left if free is None else e.like("and", free, left)
        given = _select(e, mine, source, e.broadcast(zero, source.shape, ()))
        placed = e.emit("pad", (given, zero), f"low = {ints(at)}, high = "
                        f"{ints(w - n for w, n in zip(wide, limit))}, interior = {ints(s - 1 for s in strides)}",
                        x.dtype, wide)
        total = placed if total is None else e.like("add", total, placed)
    return e.slice(total, low, [a + n for a, n in zip(low, x.shape)], [1] * rank)


# ---- places that are operands ----
@handles("gather")
def _gather(e: Emitter, eqn: Any, x: Value, indices: Value) -> Value:
    return _index.gather(e, eqn.params, eqn.outvars[0].aval, x, indices)


@handles("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "scatter-min", "scatter_min",
          "scatter-max", "scatter_max")
def _scatter(e: Emitter, eqn: Any, x: Value, indices: Value, updates: Value) -> Value:
    reducer = {"scatter": "set", "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}[
        eqn.primitive.name.replace("_", "-").split("-")[-1]]
    return _index.scatter(e, eqn.params, reducer, x, indices, updates)


def _numbers(e: Emitter, starts: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(e.convert(v, np.int64) if v.dtype == np.uint32 else v for v in starts)


@handles("dynamic_slice")
def _dynamic_slice(e: Emitter, eqn: Any, x: Value, *starts: Value) -> Value:
    sizes = eqn.params["slice_sizes"]
    if not sizes:
        return x
    starts = _numbers(e, starts)
    return e.emit("dynamic_slice", (x, *starts), f"dims = {ints(range(len(sizes)))}, sizes = {ints(sizes)}", x.dtype,
                  eqn.outvars[0].aval.shape)


@handles("dynamic_update_slice")
def _dynamic_update_slice(e: Emitter, eqn: Any, x: Value, update: Value, *starts: Value) -> Value:
    if not starts:
        return update
    starts = _numbers(e, starts)
    return e.emit("dynamic_update_slice", (x, update, *starts), f"dims = {ints(range(len(starts)))}", x.dtype, x.shape)


# ---- regions ----
def _types(avals: Sequence[Any]) -> list[tuple[Any, tuple[int, ...]]]:
    return [(aval.dtype, aval.shape) for aval in avals]


@handles("scan")
def _scan(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    p = eqn.params
    jaxpr, consts = _closed(p["jaxpr"])
    first, last = p["num_consts"], p["num_consts"] + p["num_carry"]
    whole, carried, slices = list(x[:first]), list(x[first:last]), list(x[last:])

    def turned(value: Value) -> Value:
        return e.emit("reverse", (value,), "dims = [0]", value.dtype, value.shape) if p["reverse"] else value

    slices = [turned(v) for v in slices]
    counted = not slices
    if counted:
        slices = [e.emit("iota", (), "axis = 0", np.int64, (p["length"],))]
    inner = Emitter(e)
    of_carried = [inner.parameter(f"c{i}", v.dtype, v.shape) for i, v in enumerate(carried)]
    of_slices = [inner.parameter(f"s{i}", v.dtype, v.shape[1:]) for i, v in enumerate(slices)]
    of_whole = [inner.parameter(f"w{i}", v.dtype, v.shape) for i, v in enumerate(whole)]
    constants = [inner.constant(np.asarray(c), c.dtype) for c in consts]
    made = _walk(inner, jaxpr, constants, [*of_whole, *of_carried, *([] if counted else of_slices)])
    types = _types([v.aval for v in eqn.outvars])
    results = e.emit_many("scan", (*carried, *slices, *whole),
                          f"carried = {len(carried)}, sliced = {len(slices)}, step = {inner.body(made)}", types)
    return results[:len(carried)] + [turned(v) for v in results[len(carried):]]


@handles("while")
def _while(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    p = eqn.params
    of_condition, of_step = p["cond_nconsts"], p["body_nconsts"]
    whole, carried = list(x[:of_condition + of_step]), list(x[of_condition + of_step:])

    def body(jaxpr: Any, begin: int, end: int) -> str:
        inner = Emitter(e)
        mine = [inner.parameter(f"c{i}", v.dtype, v.shape) for i, v in enumerate(carried)]
        seen = [inner.parameter(f"w{i}", v.dtype, v.shape) for i, v in enumerate(whole)]
        return inner.body(inside(inner, jaxpr, [*seen[begin:end], *mine]))

    condition = body(p["cond_jaxpr"], 0, of_condition)
    step = body(p["body_jaxpr"], of_condition, of_condition + of_step)
    return e.emit_many("while", (*carried, *whole),
                       f"carried = {len(carried)}, rounds = {_ROUNDS_MAX}, condition = {condition}, step = {step}",
                       [(v.dtype, v.shape) for v in carried])


@handles("cond")
def _cond(e: Emitter, eqn: Any, which: Value, *x: Value) -> list[Value]:
    """Of more than two branches the first is chosen at 0 and below, the others by a choice inside of it."""
    types = _types([v.aval for v in eqn.outvars])

    def choose(e: Emitter, branches: Sequence[Any], which: Value, x: Sequence[Value], skipped: int) -> list[Value]:
        if len(branches) == 1:
            return inside(e, branches[0], x)
        later = e.like("compare", e.convert(which, np.int32), e.constant(skipped, np.int32),
                       attributes="direction = gt", dtype=bool)
        first, others = Emitter(e), Emitter(e)
        seen = [first.parameter(f"p{i}", v.dtype, v.shape) for i, v in enumerate((which, *x))]
        no = first.body(inside(first, branches[0], seen[1:]))
        seen = [others.parameter(f"p{i}", v.dtype, v.shape) for i, v in enumerate((which, *x))]
        yes = others.body(choose(others, branches[1:], seen[0], seen[1:], skipped + 1))
        return e.emit_many("cond", (later, which, *x), f"then = {yes}, otherwise = {no}", types)

    return choose(e, eqn.params["branches"], which, x, 0)
