"""NumPy's functions that put arrays together and take them apart, and choices among several."""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace.functions import argsort, flip, pad as _pad_by_one, sort, split
from symplex._trace.index import gather
from symplex._trace.size import Size, place
from symplex._trace.tracer import (FUNCTIONS, Tracer, broadcast_to, concatenate, convert, expand_dims, full, one_axis,
                                   reshape, result_type, select, swapaxes, value)


# ---- apart ----
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    x = value(ary)
    n = x.shape[one_axis(x, axis)]
    if np.ndim(indices_or_sections) or isinstance(n, Size):
        return split(x, indices_or_sections, axis)
    k = operator.index(indices_or_sections)
    if k < 1:
        raise ValueError(f"numpy.array_split: {k} parts ({place()})")
    return split(x, np.cumsum([n // k + (i < n % k) for i in range(k)])[:-1].tolist(), axis)


def _split_along(axis: int, what: str) -> Callable[..., list[Tracer]]:
    def build(ary: Any, indices_or_sections: Any) -> list[Tracer]:
        x = value(ary)
        if x.ndim < (1 if axis == 1 else axis + 1):
            raise ValueError(f"numpy.{what} of {x.ndim} dimensions ({place()})")
        return split(x, indices_or_sections, 0 if x.ndim == 1 else axis)
    return build


def delete(arr: Any, obj: Any, axis: Any = None) -> Tracer:
    """What is deleted is known."""
    x, at = (reshape(arr, -1), 0) if axis is None else (value(arr), one_axis(value(arr), axis))
    if isinstance(obj, Tracer) or isinstance(x.shape[at], Size):
        raise Unimplemented(f"numpy.delete of places that are not known: the shape of the result would depend on them "
                            f"({place()})")
    return gather(x, value(np.delete(np.arange(x.shape[at]), obj)), at)


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Tracer:
    """In front of one place, which is known."""
    x, at = (reshape(arr, -1), 0) if axis is None else (value(arr), one_axis(value(arr), axis))
    if np.ndim(obj) or isinstance(obj, (Tracer, slice)):
        raise Unimplemented(f"numpy.insert in front of several places, or one that is traced ({place()})")
    i, n = operator.index(obj), x.shape[at]
    if not isinstance(n, Size) and not -n <= i <= n:
        raise IndexError(f"numpy.insert: index {i} of a dimension of {n} ({place()})")
    new = convert(value(values), x.dtype)
    rest = (*x.shape[:at], *x.shape[at + 1:])
    if new.ndim == x.ndim or x.ndim == 1:
        new = broadcast_to(reshape(new, -1) if x.ndim == 1 else new,
                           (*x.shape[:at], new.shape[at] if new.ndim else 1, *x.shape[at + 1:]))
    else:
        new = expand_dims(broadcast_to(new, rest), at)
    cut = (slice(None),) * at
    return concatenate([x[(*cut, slice(None, i))], new, x[(*cut, slice(i, None))]], at)


# ---- together ----
def append(arr: Any, values: Any, axis: Any = None) -> Tracer:
    a, b = value(arr), value(values)
    return concatenate([reshape(a, -1), reshape(b, -1)]) if axis is None else concatenate([a, b], axis)


def _columns(tup: Sequence[Any]) -> Tracer:
    values = [value(x) for x in tup]
    return concatenate([reshape(x, (-1, 1)) if x.ndim < 2 else x for x in values], 1)


def _depths(tup: Sequence[Any]) -> Tracer:
    return concatenate([FUNCTIONS["atleast_3d"](x) for x in tup], 2)


def block(arrays: Any) -> Tracer:
    """Innermost lists along the last axis, those around them along the one before."""
    def depth(part: Any) -> int:
        return 1 + max(map(depth, part)) if isinstance(part, list) else 0

    def rank(part: Any) -> int:
        return max(map(rank, part)) if isinstance(part, list) else value(part).ndim
    levels = depth(arrays)
    wide = max(levels, rank(arrays))

    def build(part: Any, level: int) -> Tracer:
        if not isinstance(part, list):
            x = value(part)
            return reshape(x, (1,) * (wide - x.ndim) + x.shape)
        if not part:
            raise ValueError(f"numpy.block of an empty list ({place()})")
        return concatenate([build(p, level + 1) for p in part], wide - levels + level)
    return build(arrays, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Tracer:
    x, k = value(m), operator.index(k) % 4
    a, b = (one_axis(x, d) for d in axes)
    if a == b:
        raise ValueError(f"numpy.rot90: axes {axes} ({place()})")
    if k == 2:
        return flip(x, (a, b))
    return swapaxes(flip(x, b), a, b) if k == 1 else flip(swapaxes(x, a, b), b) if k == 3 else x


# ---- borders ----
def _border(x: Tracer, d: int, before: bool, width: int, mode: str) -> Tracer:
    """What stands in front of dimension d, or behind it."""
    cut = (slice(None),) * d
    if mode == "edge":
        one = x[(*cut, slice(0, 1) if before else slice(-1, None))]
        return broadcast_to(one, (*x.shape[:d], width, *x.shape[d + 1:]))
    inner = 1 if mode == "reflect" else 0
    if mode == "wrap":
        part = slice(-width, None) if before else slice(0, width)
    else:
        part = slice(inner, inner + width) if before else slice(-width - inner, -inner or None)
    made = x[(*cut, part)]
    return made if mode == "wrap" else flip(made, d)


def pad(array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Tracer:
    x = value(array)
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(d, pad_width.get(d - x.ndim, 0)) for d in range(x.ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    if any(operator.index(w) < 0 for pair in widths for w in pair):
        raise ValueError(f"numpy.pad: widths {pad_width} ({place()})")
    if mode == "constant":
        if np.ndim(constant_values) == 0:
            return _pad_by_one(x, widths, constant_values=constant_values)
        fills: Any = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2))
        for d, pair in enumerate(widths):
            edges = [full((*x.shape[:d], w, *x.shape[d + 1:]), fills[d][k].item(), x.dtype)
                     for k, w in enumerate(pair)]
            x = concatenate([edges[0], x, edges[1]], d)
        return x
    if mode not in ("edge", "wrap", "reflect", "symmetric"):
        raise Unimplemented(f"numpy.pad with mode '{mode}' ({place()})")
    for d, (low, high) in enumerate(widths):
        n = x.shape[d]
        if not isinstance(n, Size):
            if n == 0 and low + high:
                raise ValueError(f"numpy.pad: axis {d} without elements has no borders of mode '{mode}' ({place()})")
            x = gather(x, value(np.pad(np.arange(n), (low, high), mode)), d) if low + high else x
            continue
        parts = [_border(x, d, True, low, mode)] if low else []
        parts += [x] + ([_border(x, d, False, high, mode)] if high else [])
        x = concatenate(parts, d)
    return x


# ---- choices ----
def select_of(condlist: Any, choicelist: Any, default: Any = 0) -> Tracer:
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ValueError(f"numpy.select: {len(condlist)} conditions, {len(choicelist)} choices ({place()})")
    dtype = result_type(*choicelist, default)
    made = value(default, dtype)
    for condition, choice in zip(condlist[::-1], choicelist[::-1]):
        which = value(condition)
        if which.dtype != bool:
            raise TypeError(f"numpy.select: a condition of {which.dtype.name}, bool is needed ({place()})")
        made = select(which, value(choice, dtype), made)
    return made


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **keywords: Any) -> Tracer:
    """Each function sees all elements; the last condition that holds counts."""
    x = value(x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    conditions = [convert(value(c), bool) for c in conditions]
    if len(funclist) == len(conditions) + 1:
        some: Any = conditions[0]
        for c in conditions[1:]:
            some = some | c
        conditions.append(~some)
    if len(funclist) != len(conditions):
        raise ValueError(f"numpy.piecewise: {len(conditions)} conditions, {len(funclist)} functions ({place()})")
    made = full(x.shape, 0, x.dtype)
    for condition, function in zip(conditions, funclist):
        part = function(x, *args, **keywords) if callable(function) else function
        made = select(condition, convert(value(part), x.dtype), made)
    return made


def lexsort(keys: Any, axis: int = -1) -> Tracer:
    """By the last key, of equals by the one before, and so on: stable orders from the first key on."""
    order: Any = None
    for key in keys:
        key = value(key)
        if order is None:
            order = argsort(key, axis)
        else:
            again = argsort(FUNCTIONS["take_along_axis"](key, order, axis), axis)
            order = FUNCTIONS["take_along_axis"](order, again, axis)
    if order is None:
        raise TypeError(f"numpy.lexsort without keys ({place()})")
    return order


FUNCTIONS.update({
    "array_split": array_split, "hsplit": _split_along(1, "hsplit"), "vsplit": _split_along(0, "vsplit"),
    "dsplit": _split_along(2, "dsplit"), "delete": delete, "insert": insert, "append": append,
    "column_stack": _columns, "dstack": _depths, "block": block, "rot90": rot90, "pad": pad, "select": select_of,
    "piecewise": piecewise, "lexsort": lexsort, "diagflat": lambda v, k=0: FUNCTIONS["diag"](reshape(v, -1), k),
    "partition": lambda a, kth, axis=-1, kind=None, order=None: sort(a, axis),
    "argpartition": lambda a, kth, axis=-1, kind=None, order=None: argsort(a, axis)})
