"""Random numbers by explicit keys: the same key and shape always give the same numbers, on every machine, in every
program; nothing is kept. Bits are those of Philox4x32-10 (Salmon et al., SC 2011), docs/IR.md.

    key = symplex.random.key(7)
    first, second = symplex.random.split(key)
    x = symplex.random.normal(first, (1024, 3))
    rows = symplex.random.fold_in(second, step)       a key for each step

A key is a number, int64[]; inside of traced functions it may be traced. Who draws twice splits the key first. Counters
below 2^61 are for bits, 2^61 and more for fold_in, 2^62 and more for split, so that none of them meets another."""
from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from symplex._jit import jit
from symplex._trace.graph import current
from symplex._trace.index import iota
from symplex._trace.size import count, place
from symplex._trace.tracer import Tracer, convert, emit, full, reshape, shape_of, value

__all__ = ["bernoulli", "bits", "fold_in", "key", "normal", "split", "uniform"]
_FOLD, _SPLIT = 1 << 61, 1 << 62


def key(seed: Any) -> Any:
    """The key of a seed, a whole number."""
    if isinstance(seed, Tracer):
        return convert(seed, np.int64)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed: a whole number is needed, not {type(seed).__name__}")
    return np.int64((int(seed) + (1 << 63)) % (1 << 64) - (1 << 63))


def _key(given: Any) -> Tracer:
    made = value(given)
    if made.dtype != np.int64 or made.shape != ():
        raise TypeError(f"key: int64[] is needed, not {made.dtype.name}{list(made.shape)} ({place()})")
    return made


def _draw(given: Any, shape: Any, first: int, step: int = 1) -> Tracer:
    shape = shape_of(shape)
    n = count(shape)
    at = iota((n,), 0)
    at = at * step if step != 1 else at
    at = at + first if first else at
    made = emit("random_bits", (at, full((n,), _key(given))), {}, np.int64, (n,))
    return reshape(made, shape)


def _eager(function: Any) -> Any:
    """With arrays alone it is a program of its own."""
    fixed = {"shape", "dtype", "num"} & set(inspect.signature(function).parameters)
    compiled = jit(function, static_argnames=tuple(fixed))

    def call(*args: Any, **keywords: Any) -> Any:
        if current() is not None:
            return function(*args, **keywords)
        words = {k: tuple(v) if isinstance(v, list) else v for k, v in keywords.items()}
        return compiled(*(tuple(v) if isinstance(v, list) else np.asarray(v, np.int64) if i == 0 else v
                          for i, v in enumerate(args)), **words)
    call.__name__, call.__doc__, call.__wrapped__ = function.__name__, function.__doc__, function  # type: ignore
    return call


@_eager
def split(key: Any, num: int = 2) -> Any:
    """`num` new keys, int64[num]."""
    return _draw(key, (num,), _SPLIT)


@_eager
def fold_in(key: Any, data: Any) -> Any:
    """A key for a number, such as that of a step or of a layer: from 0 to 2^61 - 1."""
    at = np.bitwise_and(value(data, np.int64), _FOLD - 1) + _FOLD
    return emit("random_bits", (at, _key(key)), {}, np.int64, ())


@_eager
def bits(key: Any, shape: Any = ()) -> Any:
    """64 random bits in each place, int64."""
    return _draw(key, shape, 0)


def _unit(drawn: Tracer, dtype: Any, high: bool = False) -> Tracer:
    """From 0 to 1, without 1: 24 bits for f32 and narrower types, 53 for f64; `high`: other bits, for 24."""
    if np.dtype(dtype) == np.float64:
        return convert(np.bitwise_and(drawn, (1 << 53) - 1), np.float64) * 2.0 ** -53
    taken = np.bitwise_and(drawn, ((1 << 24) - 1) << (32 if high else 0))
    return convert(taken, np.float32) * np.float32(2.0 ** (-56 if high else -24))


def _real(dtype: Any) -> np.dtype:
    made = np.dtype(dtype)
    if made.kind != "f" and made.name != "bfloat16":
        raise TypeError(f"dtype: a type of real numbers is needed, not {made.name} ({place()})")
    return made


@_eager
def uniform(key: Any, shape: Any = (), dtype: Any = np.float32, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Equally likely from `minval` on to `maxval`, which is not reached but by rounding."""
    made = _unit(_draw(key, shape, 0), _real(dtype))
    low = value(minval, made.dtype)
    return convert(made * (value(maxval, made.dtype) - low) + low, dtype)


@_eager
def normal(key: Any, shape: Any = (), dtype: Any = np.float32) -> Any:
    """Normally distributed, with mean 0 and variance 1 (Box and Muller 1958)."""
    wide = _real(dtype) == np.float64
    first = _draw(key, shape, 0, 2 if wide else 1)
    second = _draw(key, shape, 1, 2) if wide else first
    radius = 1 - _unit(first, dtype)
    angle = _unit(second, dtype, high=not wide) * value(2 * math.pi, radius.dtype)
    return convert(np.sqrt(np.log(radius) * value(-2, radius.dtype)) * np.cos(angle), dtype)


@_eager
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability `p`; the shape is that of p, if it is not given."""
    chance = value(p, None if isinstance(p, (Tracer, np.ndarray)) else np.float32)
    drawn = _unit(_draw(key, chance.shape if shape is None else shape, 0), chance.dtype)
    return np.less(drawn, chance)
