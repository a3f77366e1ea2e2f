"""Random bits: JAX's own generator (Threefry-2x32 with 20 rounds; Salmon et al., Parallel random numbers: as easy as
1, 2, 3, 2011), so that a key has the same bits here and there. What JAX makes of them is made of its own jaxprs."""
from __future__ import annotations

import math
from typing import Any, Callable

import jax
import numpy as np
from jax.extend import core
from jax.extend.random import threefry_prng_impl as _impl

from symplex._trace.tracer import Tracer, broadcast_to, concatenate, convert, emit, expand_dims, full, value
from symplex.jax._emit import Emitter, Unsupported, Value
from symplex.jax._functions import written
from symplex.jax._lower import HANDLERS, UNSIGNED, handles, inside

_BITS = 32
_MANTISSA = 23  # bits of float32
_ONE = 0x3F800000  # the bits of 1.0 in float32


# ---- shifts of uint32 ----
def _places(eqn: Any) -> int | None:
    """A number of places that is known."""
    places = eqn.invars[1]
    return int(places.val) if isinstance(places, core.Literal) and np.ndim(places.val) == 0 else None


def _of_table(e: Emitter, places: Value, left: bool) -> Value:
    """2^places, or 2^-places as float64; 0 from 32 places on."""
    powers = [1 << k for k in range(_BITS)] if left else [2.0 ** -k for k in range(_BITS)]
    table = e.constant(np.array([*powers, 0], np.uint32 if left else np.float64), np.uint32 if left else np.float64)
    clamped = e.like("minimum", places, e.constant(_BITS, np.uint32, places.shape))
    return e.emit("gather", (table, e.convert(clamped, np.int64)), "axis = 0", table.dtype, places.shape)


def _shifted(left: bool) -> Callable[..., Value]:
    before = HANDLERS["shift_left" if left else "shift_right_logical"]

    def handler(e: Emitter, eqn: Any, x: Value, places: Value) -> Value:
        if x.dtype != np.uint32:
            return before(e, eqn, x, places)
        known, shape = _places(eqn), eqn.outvars[0].aval.shape
        x, places = (e.broadcast(v, shape, range(len(v.shape))) for v in (x, places))
        if left:
            power = _of_table(e, places, True) if known is None else e.constant(
                1 << known if known < _BITS else 0, np.uint32, shape)
            return e.wrapped(e.like("multiply", x, power))
        if known is not None and known >= _BITS:
            return e.constant(0, np.uint32, shape)
        power = _of_table(e, places, False) if known is None else e.constant(2.0 ** -known, np.float64, shape)
        made = _quotient(e, x, power)
        e.below[made.name] = 1 << (_BITS - (known or 0))
        return made
    return handler


def _quotient(e: Emitter, x: Value, power: Value) -> Value:
    """Exact: float64 has 53 bits."""
    made = e.like("floor", e.like("multiply", e.convert(x, np.float64), power))
    return e.emit("convert", (made,), "", np.uint32, x.shape)


HANDLERS["shift_left"], HANDLERS["shift_right_logical"] = _shifted(True), _shifted(False)


# ---- numbers of which the bits are drawn ----
_or = HANDLERS["or"]


@handles("or")
def _or_one(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    made = _or(e, eqn, x, y)
    if _places(eqn) == _ONE and e.below.get(x.name, math.inf) <= 1 << _MANTISSA:
        e.fraction[made.name] = x
    return made


def _float_of(e: Emitter, x: Value) -> Value:
    """The float32 of these bits; of a NaN not which one it is."""
    def number(given: float, dtype: Any = np.float32) -> Value:
        return e.constant(given, dtype, x.shape)

    def is_(value: Value, direction: str, given: int) -> Value:
        return e.like("compare", value, number(given, np.uint32), attributes=f"direction = {direction}", dtype=bool)

    def select(which: Value, yes: Value, no: Value) -> Value:
        return e.emit("select", (which, yes, no), "", yes.dtype, x.shape)

    fraction = e.like("and", x, number((1 << _MANTISSA) - 1, np.uint32))
    exponent = e.like("and", _quotient(e, x, number(2.0 ** -_MANTISSA, np.float64)), number(255, np.uint32))
    table = e.constant(np.array([2.0 ** (max(k, 1) - 150) for k in range(255)] + [0], np.float32), np.float32)
    power = e.emit("gather", (table, e.convert(exponent, np.int64)), "axis = 0", np.float32, x.shape)
    leading = select(is_(exponent, "eq", 0), number(0), number(2.0 ** _MANTISSA))
    size = e.like("multiply", e.like("add", leading, e.convert(fraction, np.float32)), power)
    far = select(is_(fraction, "eq", 0), number(math.inf), number(math.nan))
    size = select(is_(exponent, "eq", 255), far, size)
    return select(is_(x, "ge", 1 << (_BITS - 1)), e.like("negate", size), size)


@handles("bitcast_convert_type")
def _bitcast(e: Emitter, eqn: Any, x: Value) -> Value:
    """Between whole numbers of 32 bits, and from them to float32: from 1 to 2, where the fraction is known."""
    dtype = np.dtype(eqn.params["new_dtype"])
    words = {np.dtype(np.int32), np.dtype(np.uint32)}
    if x.name in e.fraction and dtype == np.float32:
        part = e.convert(e.fraction[x.name], dtype)
        return e.like("add", e.constant(1, dtype, x.shape),
                      e.like("multiply", part, e.constant(2.0 ** -_MANTISSA, dtype, x.shape)))
    if x.dtype in words and dtype == np.float32:
        return _float_of(e, e.convert(x, np.uint32))
    if dtype != x.dtype and not {dtype, x.dtype} <= words:
        raise Unsupported(f"bits of {x.dtype} as {dtype}")
    return e.convert(x, dtype)


# ---- the generator: five times four rounds, each of which turns the second word around ----
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_STEPS = 5
_PARITY = 0x1BD11BDA
_MIDDLE = 0xFFFF0000


def _halves(column: int) -> bool:
    """Is there a rotation whose bits that come round are more than the 24 that float32 has?"""
    return any(row[column] > 24 for row in _ROTATIONS)


def _int32(number: int) -> int:
    return (number & 0xFFFFFFFF) - ((number & 0x80000000) << 1)


def _binary(operation: str, x: Tracer, y: Tracer) -> Tracer:
    return emit(operation, (x, broadcast_to(y, x.shape)), {}, x.dtype, x.shape)


def _constants() -> list[np.ndarray]:
    """For each step: what is multiplied to move to the left, and to the right (of float32, as numbers of 32 bits have
    no shift, and a kernel has elements of one size); which bits come round; as which they arrive."""
    made: list[np.ndarray] = []
    for column in range(4):
        places = [_ROTATIONS[i % 2][column] for i in range(_STEPS)]
        tops = [0xFFFFFFFF ^ ((1 << (_BITS - k)) - 1) for k in places]
        masks = [[m & _MIDDLE for m in tops], [m & ~_MIDDLE for m in tops]] if _halves(column) else [tops]
        made += [np.array([_int32(1 << k) for k in places], np.int32),
                 np.array([2.0 ** (k - _BITS) for k in places], np.float32),
                 np.array([_int32((1 << k) - 1) for k in places], np.int32)]
        made += [np.array([_int32(m) for m in mask], np.int32) for mask in masks]
    return made


def _step(x0: Tracer, x1: Tracer, k0: Tracer, k1: Tracer, *constants: Tracer) -> tuple[Tracer, Tracer]:
    """Four rounds of int32, which has the sums and products of uint32."""
    given = iter(constants)
    for column in range(4):
        left, right, kept = next(given), next(given), next(given)
        x0 = x0 + x1
        come = None
        for _ in range(2 if _halves(column) else 1):  # a quotient without a rest
            bits = convert(_binary("and", x1, next(given)), np.float32)
            part = convert(_binary("multiply", bits, right), np.int32)
            come = part if come is None else _binary("or", come, part)
        turned = _binary("or", _binary("multiply", x1, left), _binary("and", come, kept))
        x1 = _binary("xor", x0, turned)
    return _binary("add", x0, k0), _binary("add", x1, k1)


def _schedule(k0: Tracer, k1: Tracer) -> tuple[Tracer, Tracer]:
    """What is added to both words behind each step."""
    k2 = _binary("xor", _binary("xor", k0, k1), full(k0.shape, _PARITY, k0.dtype))
    keys = [expand_dims(k, 0) for k in (k0, k1, k2)]
    first = concatenate([keys[(i + 1) % 3] for i in range(_STEPS)])
    count = broadcast_to(value(np.arange(1, _STEPS + 1, dtype=np.int32)).reshape(_STEPS, *[1] * k0.ndim), first.shape)
    return first, concatenate([keys[(i + 2) % 3] for i in range(_STEPS)]) + count


@handles("threefry2x32")
def _threefry2x32(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    shape = eqn.outvars[0].aval.shape
    k0, k1, *counter = (e.convert(v, np.int32) for v in x)
    if k0.shape != k1.shape:
        k0, k1 = (e.broadcast(k, shape, range(len(k.shape))) for k in (k0, k1))
    first, second = written(e, _schedule, k0, k1)
    carried = [e.like("add", e.broadcast(v, shape, range(len(v.shape))), e.broadcast(k, shape, range(len(k.shape))))
               for v, k in zip(counter, (k0, k1))]
    slices = [first, second, *(e.constant(c, c.dtype) for c in _constants())]
    inner = Emitter(e)
    mine = [inner.parameter(f"c{i}", v.dtype, v.shape) for i, v in enumerate(carried)]
    mine += [inner.parameter(f"s{i}", v.dtype, v.shape[1:]) for i, v in enumerate(slices)]
    step = inner.body(written(inner, _step, *mine))
    made = e.emit_many("scan", (*carried, *slices), f"carried = 2, sliced = {len(slices)}, step = {step}",
                       [(v.dtype, v.shape) for v in carried])
    return [e.convert(v, np.uint32) for v in made]


@handles("iota_2x32_shape")
def _iota_2x32(e: Emitter, eqn: Any) -> list[Value]:
    """The numbers of elements in row-major order: high words, low words."""
    shape = tuple(eqn.params["shape"])
    count = math.prod(shape)
    if count >> _BITS:
        raise Unsupported(f"{count} elements")
    low = e.reshape(e.emit("iota", (), "axis = 0", np.uint32, (count,)), shape)
    return [e.constant(0, np.uint32, shape), low]


# ---- JAX's primitives of keys ----
def _made_by(e: Emitter, function: Callable[..., Any], ranks: int, *x: Value) -> list[Value]:
    """The function of JAX, for each of arrays of so many dimensions."""
    for _ in range(ranks):
        function = jax.vmap(function)
    return inside(e, jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(v.shape, v.dtype) for v in x]), x)


@handles("random_bits")
def _random_bits(e: Emitter, eqn: Any, keys: Value) -> list[Value]:
    p = eqn.params
    count = math.prod(eqn.outvars[0].aval.shape)
    if count > e.random_max:
        raise Unsupported(f"{count} numbers at once")
    return _made_by(e, lambda key: _impl.random_bits(key, bit_width=p["bit_width"], shape=tuple(p["shape"])),
                    len(keys.shape) - 1, keys)


@handles("random_split")
def _random_split(e: Emitter, eqn: Any, keys: Value) -> list[Value]:
    return _made_by(e, lambda key: _impl.split(key, shape=tuple(eqn.params["shape"])), len(keys.shape) - 1, keys)


@handles("random_fold_in")
def _random_fold_in(e: Emitter, eqn: Any, keys: Value, data: Value) -> list[Value]:
    shape = eqn.outvars[0].aval.shape[:-1]
    data = e.broadcast(data, shape, range(len(data.shape)))
    rank = len(keys.shape) - 1
    keys = e.broadcast(keys, (*shape, keys.shape[-1]), [*range(rank), len(shape)])
    return _made_by(e, _impl.fold_in, len(shape), keys, data)


@handles("random_seed")
def _random_seed(e: Emitter, eqn: Any, seeds: Value) -> list[Value]:
    return _made_by(e, _impl.seed, len(seeds.shape), seeds)


@handles("random_wrap", "random_unwrap", "random_clone")
def _same_words(e: Emitter, eqn: Any, x: Value) -> Value:
    return x


UNSIGNED.update({"shift_left", "shift_right_logical", "or", "bitcast_convert_type", "threefry2x32", "iota_2x32_shape",
                 "random_bits", "random_split", "random_fold_in", "random_seed", "random_wrap", "random_unwrap",
                 "random_clone"})
