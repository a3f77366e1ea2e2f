"""x[...]: numbers, slices, arrays of whole numbers. Traced indices have no elements yet: those outside of the array
are clamped to it. Arrays that are known are checked."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace.size import Extent, Size, broadcast, count, place, quotient
from symplex._trace.tracer import (Tracer, broadcast_to, concatenate, convert, emit, full, one_axis, reshape, select,
                                   size_value, transpose, value)


_PLAIN = frozenset((int, slice, type(None), type(Ellipsis)))
"""What names places by numbers alone."""


def _is_array(entry: Any) -> bool:
    return isinstance(entry, (Tracer, np.ndarray, list)) or (isinstance(entry, tuple) and not entry)


def _entries(x: Tracer, key: Any) -> list[Any]:
    """One entry for each dimension, and None for each new one."""
    entries = list(key) if isinstance(key, tuple) else [key]
    masked: dict[int, int] = {}
    plain = _PLAIN.issuperset(map(type, entries))
    for i, entry in () if plain else reversed(list(enumerate(entries))):
        known = np.asarray(entry) if _is_array(entry) and not isinstance(entry, Tracer) else np.zeros(())
        if known.dtype == bool and known.ndim:  # a mask that is known is the places where it is true
            entries[i:i + 1] = places = known.nonzero()
            masked.update((id(p), n) for p, n in zip(places, known.shape))
    for entry in entries:
        if type(entry) in _PLAIN:
            continue
        if _is_array(entry):
            dtype = entry.dtype if isinstance(entry, (Tracer, np.ndarray)) else np.asarray(entry).dtype
            if dtype == bool:
                raise Unimplemented(f"an index of bool: the shape of the result would depend on its elements "
                                    f"({place()})\nnumpy.where(condition, x, other) keeps the shape.")
            if dtype.kind not in "iu" and np.size(entry):
                raise IndexError(f"an index of {dtype.name}: whole numbers are needed ({place()})")
        elif not (entry is None or entry is Ellipsis or isinstance(entry, slice)
                  or (hasattr(entry, "__index__") and not isinstance(entry, (bool, np.bool_)))):
            raise Unimplemented(f"an index of type {type(entry).__name__} ({place()})")
    taken = sum([entry is not None and entry is not Ellipsis for entry in entries])
    rest = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if taken > x.ndim or len(rest) > 1:
        raise IndexError(f"{taken} indices of {x.ndim} dimensions ({place()})")
    at = rest[0] if rest else len(entries)
    entries = entries[:at] + [slice(None)] * (x.ndim - taken) + entries[at + 1:]
    for n, entry in zip(x.shape, [entry for entry in entries if entry is not None]) if masked else ():
        if masked.get(id(entry), n) != n:
            raise IndexError(f"a mask of {masked[id(entry)]} places of a dimension of {n} ({place()})")
    return entries


def index(x: Tracer, key: Any) -> Tracer:
    x = value(x)
    entries = _entries(x, key)
    if _PLAIN.issuperset(map(type, entries)):
        return _plain(x, entries)
    arrays = [i for i, entry in enumerate(entries) if _is_array(entry)]
    if arrays and not any(np.ndim(entries[i]) for i in arrays):  # numbers that are traced
        return _numbers(x, entries)
    # numbers beside arrays are arrays of no dimensions
    arrays = [i for i, entry in enumerate(entries) if arrays and not isinstance(entry, slice) and entry is not None]
    kept = [slice(None) if i in arrays else entry for i, entry in enumerate(entries)]
    y = _plain(x, kept)
    if not arrays:
        return y
    return _arrays(y, {i: entries[i] for i in arrays}, len(entries))


def _numbers(x: Tracer, entries: list[Any]) -> Tracer:
    """Each traced number is a dynamic slice of one place."""
    d = 0
    plain: list[Any] = []
    for entry in entries:
        if entry is None:
            plain.append(None)
            continue
        if _is_array(entry):
            x = _at(x, d, value(entry))
        plain.append(0 if _is_array(entry) else entry)
        d += 1
    return _plain(x, plain)


def _at(x: Tracer, axis: int, number: Tracer) -> Tracer:
    """One place of an axis, which stays with extent 1."""
    number = convert(number, np.int64)
    start = select(number < 0, number + size_value(x.shape[axis]), number)
    shape = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
    return emit("dynamic_slice", (x, start), {"dims": [axis], "sizes": [1]}, x.dtype, shape)


def _plain(x: Tracer, entries: list[Any]) -> Tracer:
    start: list[Any] = []
    limit: list[Any] = []
    stride: list[int] = []
    backward, shape, cut, d = [], [], [], 0
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        n = x.shape[d]
        if isinstance(n, Size) or _of_sizes(entry):
            x, row = _symbolic(x, d, entry)
        elif isinstance(entry, slice):
            r = range(n)[entry]
            back, r = r.step < 0, r if r.step > 0 else r[::-1]
            kept = n if len(r) == n else len(r)
            row = (r.start, r[-1] + 1, r.step, kept, back, True) if len(r) else (0, 0, 1, 0, False, True)
        else:
            i = operator.index(entry)
            if not -n <= i < n:
                raise IndexError(f"index {i} of a dimension of {n} ({place()})")
            row = (i % n, i % n + 1, 1, 1, False, False)
        start.append(row[0])
        limit.append(row[1])
        stride.append(row[2])
        cut.append(row[3])
        backward += [d] if row[4] else []
        shape += [row[3]] if row[5] else []
        d += 1
    if tuple(cut) != x.shape:
        x = emit("slice", (x,), {"start": start, "limit": limit, "stride": stride}, x.dtype, cut)
    if backward:
        x = emit("reverse", (x,), {"dims": backward}, x.dtype, x.shape)
    return reshape(x, tuple(shape))


def _of_sizes(entry: Any) -> bool:
    """A place that is an extent, or a slice that begins or ends at one."""
    if isinstance(entry, slice):
        return isinstance(entry.start, Size) or isinstance(entry.stop, Size)
    return isinstance(entry, Size)


def _least(n: Extent) -> int:
    return n.range()[0] if isinstance(n, Size) else n


def _crop(x: Tracer, d: int, origin: Extent, length: Extent) -> Tracer:
    """The part of dimension d that begins at `origin`. An origin is a number or an extent, which is never 0: where it
    may be, it is counted from the end; where that may be 0 too, the places are gathered."""
    shape = (*x.shape[:d], length, *x.shape[d + 1:])
    if shape == x.shape:
        return x
    behind, back = x.shape[d] - origin - length, []
    if isinstance(origin, Size) and _least(origin) < 1:
        if isinstance(behind, Size) and _least(behind) < 1:
            return gather(x, iota((length,), 0) + size_value(origin), d)
        origin, back = behind, [d]
    return emit("crop", (x,), {"dims": back, "origin": [origin if k == d else 0 for k in range(x.ndim)]}, x.dtype,
                shape)


def _clipped(end: Any, n: Extent, low: int, high: Extent) -> Extent | None:
    """An end of a slice between `low` and `high`, negative ones from n on; None: that depends on values of symbols."""
    end = end if isinstance(end, Size) else operator.index(end)
    if _least(-end) > 0:
        end = n + end
    elif _least(end) < 0:
        return None
    for bound, sign in ((low, 1), (high, -1)):
        if _least((end - bound) * sign) < 0:
            if _least((bound - end) * sign) < 0:
                return None
            end = bound
    return end


def _span(n: Extent, entry: slice, step: int) -> tuple[Extent | None, Extent | None]:
    """The first place of a slice, and the one behind its last, in rising order."""
    if step > 0:
        return (0 if entry.start is None else _clipped(entry.start, n, 0, n),
                n if entry.stop is None else _clipped(entry.stop, n, 0, n))
    last = n - 1 if entry.start is None else _clipped(entry.start, n, -1, n - 1)
    before = -1 if entry.stop is None else _clipped(entry.stop, n, -1, n - 1)
    return None if before is None else before + 1, None if last is None else last + 1


def _symbolic(x: Tracer, d: int, entry: Any) -> tuple[Tracer, tuple[Any, ...]]:
    """Where the dimension or an end of the slice is an extent: a part that lies inside for all values of symbols."""
    n = x.shape[d]
    if not isinstance(entry, slice):
        i = entry if isinstance(entry, Size) else operator.index(entry)
        at = n + i if _least(-i) > 0 else i
        if _least(at) < 0 or _least(n - 1 - at) < 0:
            raise IndexError(f"index {i} of the dimension {n}, which may be {_least(n)} ({place()})")
        return _crop(x, d, at, 1), (0, 1, 1, 1, False, False)
    step = 1 if entry.step is None else operator.index(entry.step)
    if step == 0:
        raise ValueError(f"a slice with step 0 ({place()})")
    what = f"a slice {entry.start}:{entry.stop}:{entry.step} of the symbolic dimension {n}"
    begin, end = _span(n, entry, step)
    if begin is None or end is None:
        raise Unimplemented(f"{what}, which may be {_least(n)}: where it ends has to be known for all values "
                            f"({place()})\nA larger least value of the interval makes it known.")
    length = end - begin
    if _least(length) < 1:
        if _least(-length) < 0:
            raise Unimplemented(f"{what}, which may be {_least(n)}: {length} may be {_least(length)}, and a dimension "
                                f"has elements for all values, or for none ({place()})\n"
                                f"A larger least value of the interval makes it known.")
        length = 0
    return _apart(x, d, begin, length, step, what)


def _apart(x: Tracer, d: int, begin: Extent, length: Extent, step: int, what: str) -> tuple[Tracer, tuple[Any, ...]]:
    """Every `step`th element of a part: the first column of rows as long as the step."""
    n, apart = x.shape[d], abs(step)
    found = (quotient(length + more, apart) for more in range(apart))
    kept = next((q for q in found if q is not None), None)
    if kept is None:
        raise Unimplemented(f"{what}: one of {apart} of {length} elements, whose number is no sum of products of "
                            f"dimensions ({place()})")
    if apart > 1 and length != 0:
        begin = begin if step > 0 else begin + length - 1 - (kept - 1) * apart
        behind = n - begin - kept * apart
        if _least(behind) < 0:
            x = concatenate([x, full((*x.shape[:d], apart - 1, *x.shape[d + 1:]), 0, x.dtype)], d)
        x = _crop(x, d, begin, kept * apart)
        x = reshape(x, (*x.shape[:d], kept, apart, *x.shape[d + 1:]))
        x = x[(*[slice(None)] * (d + 1), 0)]
    else:
        x = _crop(x, d, begin, length)
    return x, (0, -1 if isinstance(kept, Size) else kept, 1, kept, step < 0, True)


def _arrays(x: Tracer, arrays: dict[int, Any], entry_count: int) -> Tracer:
    """`arrays`: for dimensions of x. Where they are neighbours the result has theirs at that place, else in front."""
    dims = sorted(arrays)
    for d in dims:
        known = None if isinstance(arrays[d], Tracer) or isinstance(x.shape[d], Size) else np.asarray(arrays[d])
        n = x.shape[d]
        if known is not None and known.size and (known.min() < -n or known.max() >= n):
            raise IndexError(f"an index from {known.min()} to {known.max()} of a dimension of {n} ({place()})")
    indices = [value(arrays[d], np.int64) for d in dims]
    if len(dims) == 1:
        return gather(x, indices[0], dims[0])
    shape = broadcast([i.shape for i in indices], "an index")
    flat: Any = None
    for d, i in zip(dims, indices):
        n = size_value(x.shape[d])
        inside = np.maximum(np.minimum(select(i < 0, i + n, i), n - 1), 0)
        flat = inside if flat is None else flat * n + inside
    flat = broadcast_to(flat, shape)
    rest = [d for d in range(x.ndim) if d not in dims]
    rows = reshape(transpose(x, dims + rest), (count(x.shape[d] for d in dims), *(x.shape[d] for d in rest)))
    made = gather(rows, flat, 0)
    if dims == list(range(dims[0], dims[-1] + 1)) and dims[0]:
        k, before = len(shape), dims[0]
        made = transpose(made, [*range(k, k + before), *range(k), *range(k + before, made.ndim)])
    return made


def gather(x: Tracer, indices: Any, axis: int) -> Tracer:
    """Rows along an axis; negative indices count from the end, others outside are clamped."""
    if isinstance(x.shape[axis], int) and x.shape[axis] == 0 and indices.size != 0:
        raise IndexError(f"an index of a dimension without elements ({place()})")
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
    return emit("gather", (x, indices), {"axis": axis}, x.dtype, shape)


def iota(shape: Any, axis: int, dtype: Any = np.int64) -> Tracer:
    """The index along an axis."""
    return emit("iota", (), {"axis": axis}, dtype, shape)


def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Tracer:
    a = value(a)
    a, axis = (reshape(a, -1), 0) if axis is None else (a, one_axis(a, axis))
    if mode not in ("raise", "clip"):
        raise Unimplemented(f"numpy.take with mode '{mode}' ({place()})")
    if mode == "clip":
        return gather(a, np.maximum(value(indices, np.int64), 0), axis)
    if _fractional(indices):
        raise IndexError(f"numpy.take: indices are whole numbers ({place()})")
    if any(isinstance(n, int) and n == 0 for n in a.shape[:axis]):  # NumPy looks at no index, then
        places = value(indices, np.int64).shape
        return full((*a.shape[:axis], *places, *a.shape[axis + 1:]), 0, a.dtype)
    return _arrays(a, {axis: indices}, a.ndim)


def _fractional(indices: Any) -> bool:
    dtype = indices.dtype if isinstance(indices, Tracer) else np.asarray(indices).dtype
    return dtype.kind not in "iu"


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tracer:
    """The axes in front and behind count on beside the indices."""
    x, i = value(arr), value(indices)
    if axis is None:
        x, axis = reshape(x, -1), 0
    if i.dtype.kind not in "iu":
        raise IndexError(f"numpy.take_along_axis: indices are whole numbers ({place()})")
    axis = one_axis(x, axis)
    if i.ndim != x.ndim:
        raise ValueError(f"numpy.take_along_axis: {i.ndim} dimensions of indices, {x.ndim} of the array ({place()})")
    rest = broadcast([x.shape[:axis] + (1,) + x.shape[axis + 1:], i.shape[:axis] + (1,) + i.shape[axis + 1:]],
                     "numpy.take_along_axis")
    i = broadcast_to(convert(i, np.int64), rest[:axis] + (i.shape[axis],) + rest[axis + 1:])
    x = broadcast_to(x, rest[:axis] + (x.shape[axis],) + rest[axis + 1:])
    if x.ndim == 1:
        return gather(x, i, 0)
    n = size_value(x.shape[axis])
    inside = np.maximum(np.minimum(select(i < 0, i + n, i), n - 1), 0)
    strides = [size_value(count(x.shape[d + 1:])) for d in range(x.ndim)]
    flat = inside * strides[axis]
    for d in range(x.ndim):
        if d != axis:
            flat = flat + iota(i.shape, d) * strides[d]
    return gather(reshape(x, -1), flat, 0)
