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


# ---- what is known of bits ----
def _known(eqn: Any) -> int | None:
    """The second operand, where it is a number that is known."""
    places = eqn.invars[1]
    return int(places.val) if isinstance(places, core.Literal) and np.ndim(places.val) == 0 else None


_right = HANDLERS["shift_right_logical"]


@handles("shift_right_logical")
def _shift_right(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    made, places = _right(e, eqn, x, y), _known(eqn)
    if x.dtype == np.uint32 and places is not None and places < _BITS:
        e.below[made.name] = 1 << (_BITS - places)
    return made


_or = HANDLERS["or"]


@handles("or")
def _or_one(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    made = _or(e, eqn, x, y)
    if _known(eqn) == _ONE and e.below.get(x.name, math.inf) <= 1 << _MANTISSA:
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
    shifted = e.like("shift_right_logical", x, number(_MANTISSA, np.uint32))
    exponent = e.like("and", shifted, number(255, np.uint32))
    e.below[fraction.name], e.below[exponent.name] = 1 << _MANTISSA, 256
    table = e.constant(np.array([2.0 ** (max(k, 1) - 150) for k in range(255)] + [0], np.float32), np.float32)
    power = e.emit("gather", (table, e.convert(exponent, np.int64)), "axis = 0", np.float32, x.shape)
    leading = select(is_(exponent, "eq", 0), number(0), number(2.0 ** _MANTISSA))
    size = e.like("multiply", e.like("add", leading, e.convert(fraction, np.float32)), power)
    far = select(is_(fraction, "eq", 0), number(math.inf), number(math.nan))
    size = select(is_(exponent, "eq", 255), far, size)
    sign = e.like("and", x, number(1 << (_BITS - 1), np.uint32))
    return select(is_(sign, "ne", 0), e.like("negate", size), size)


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
# Of so many words the steps are written out, and kernels keep what is between them in registers: half the time of a
# loop, whose steps leave all words in memory, but a text, and a compilation, of five times the length.
_WRITTEN_OUT = 1 << 16


def _binary(operation: str, x: Tracer, y: Tracer) -> Tracer:
    return emit(operation, (x, broadcast_to(y, x.shape)), {}, x.dtype, x.shape)


def _places() -> list[np.ndarray]:
    """By how many places each of the four rounds of a step turns to the left, and what goes out to the right."""
    left = np.array([[_ROTATIONS[i % 2][column] for i in range(_STEPS)] for column in range(4)], np.int32)
    return [row for pair in zip(left, _BITS - left) for row in pair]


def _step(x0: Tracer, x1: Tracer, k0: Tracer, k1: Tracer, *places: Tracer) -> tuple[Tracer, Tracer]:
    """Four rounds of int32, which has the sums of uint32."""
    for left, right in zip(places[::2], places[1::2]):
        x0 = x0 + x1
        turned = _binary("or", _binary("shift_left", x1, left), _binary("shift_right_logical", x1, right))
        x1 = _binary("xor", x0, turned)
    return _binary("add", x0, k0), _binary("add", x1, k1)


def _keys(k0: Tracer, k1: Tracer) -> tuple[list[Tracer], list[Tracer]]:
    """What is added to each word behind each step."""
    keys = k0, k1, _binary("xor", _binary("xor", k0, k1), full(k0.shape, _PARITY, k0.dtype))
    return ([keys[(i + 1) % 3] for i in range(_STEPS)],
            [keys[(i + 2) % 3] + full(k0.shape, i + 1, k0.dtype) for i in range(_STEPS)])


def _stacked(k0: Tracer, k1: Tracer) -> list[Tracer]:
    return [concatenate([expand_dims(k, 0) for k in keys]) for keys in _keys(k0, k1)]


def _written_out(x0: Tracer, x1: Tracer, k0: Tracer, k1: Tracer) -> tuple[Tracer, Tracer]:
    for i, keys in enumerate(zip(*_keys(k0, k1))):
        x0, x1 = _step(x0, x1, *keys, *(value(row[i]) for row in _places()))
    return x0, x1


def _in_a_loop(e: Emitter, x0: Value, x1: Value, k0: Value, k1: Value) -> list[Value]:
    slices = [*written(e, _stacked, k0, k1), *(e.constant(row, row.dtype) for row in _places())]
    inner = Emitter(e)
    mine = [inner.parameter(f"c{i}", v.dtype, v.shape) for i, v in enumerate((x0, x1))]
    mine += [inner.parameter(f"s{i}", v.dtype, v.shape[1:]) for i, v in enumerate(slices)]
    step = inner.body(written(inner, _step, *mine))
    return e.emit_many("scan", (x0, x1, *slices), f"carried = 2, sliced = {len(slices)}, step = {step}",
                       [(v.dtype, v.shape) for v in (x0, x1)])


@handles("threefry2x32")
def _threefry2x32(e: Emitter, eqn: Any, *x: Value) -> list[Value]:
    shape = eqn.outvars[0].aval.shape
    k0, k1, *counter = (e.convert(v, np.int32) for v in x)
    if k0.shape != k1.shape:
        k0, k1 = (e.broadcast(k, shape, range(len(k.shape))) for k in (k0, k1))
    words = [e.like("add", e.broadcast(v, shape, range(len(v.shape))), e.broadcast(k, shape, range(len(k.shape))))
             for v, k in zip(counter, (k0, k1))]
    if math.prod(shape) > _WRITTEN_OUT:
        made = written(e, _written_out, *words, k0, k1)
    else:
        made = _in_a_loop(e, *words, k0, k1)
    return [e.convert(v, np.uint32) for v in made]


@handles("iota_2x32_shape")
def _iota_2x32(e: Emitter, eqn: Any) -> list[Value]:
    """The numbers of elements in row-major order: high words, low words."""
    shape = tuple(eqn.params["shape"])
    count = math.prod(shape)
    if count >> (_BITS - 1):
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


UNSIGNED.update({"shift_left", "shift_right_logical", "shift_right_arithmetic", "or", "bitcast_convert_type",
                 "threefry2x32", "iota_2x32_shape", "random_bits", "random_split", "random_fold_in", "random_seed",
                 "random_wrap", "random_unwrap", "random_clone"})
