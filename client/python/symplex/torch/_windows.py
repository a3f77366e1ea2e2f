"""Convolutions and pools, and what their gradients are."""
from __future__ import annotations

import itertools
import math
from typing import Any, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value, ints, wide
from symplex.torch._places import (Table, adaptive_sums, combined, largest_with_places, to_places, transposed,
                                   window as table_of)
from symplex.torch._table import Type, handles, widened

_PLACES_MAX = 64  # of a window whose places are written out one by one


def _all(values: Any, rank: int) -> list[int]:
    """A number for each dimension; one stands for all."""
    values = [values] if isinstance(values, int) else list(values)
    return values * rank if len(values) == 1 else values


def _convolution(e: Emitter, x: Value, w: Value, stride: Sequence[int], low: Sequence[int], high: Sequence[int],
                 dilation: Sequence[int], groups: int) -> Value:
    spatial = []
    for n, k, s, a, b, d in zip(x.shape[2:], w.shape[2:], stride, low, high, dilation):
        if not isinstance(n, int):
            raise Unsupported("a convolution along a symbolic dimension")
        spatial.append(max(0, (n + a + b - 1 - (k - 1) * d) // s + 1))
    attributes = (f"stride = {ints(stride)}, low = {ints(low)}, high = {ints(high)}, dilation = {ints(dilation)}, "
                  f"groups = {groups}")
    return e.emit("convolution", (x, w), attributes, x.dtype, (x.shape[0], w.shape[0], *spatial))


def _turned(e: Emitter, w: Value, groups: int) -> Value:
    """A filter for the way back: from [a, b / groups, window] to [b, a / groups, window], reversed."""
    a, b, *window = w.shape
    rank = len(window)
    made = e.reshape(w, (groups, a // groups, b, *window))
    made = e.transpose(made, [0, 2, 1, *range(3, 3 + rank)])
    made = e.reshape(made, (groups * b, a // groups, *window))
    return e.emit("reverse", (made,), f"dims = {ints(range(2, 2 + rank))}", w.dtype, made.shape)


def _back(e: Emitter, y: Value, w: Value, shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
          dilation: Sequence[int], groups: int) -> Value:
    """What a convolution of an x of this shape by w does backwards: each y goes to all x that it was made of."""
    zeros = [0] * len(stride)
    spread = e.pad(y, 0, [0, 0, *zeros], [0, 0, *zeros], [0, 0, *(s - 1 for s in stride)])
    low = [d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding)]
    high = [n - 1 + d * (k - 1) - (m - 1) - a
            for n, d, k, m, a in zip(shape, dilation, w.shape[2:], spread.shape[2:], low)]
    return _convolution(e, spread, _turned(e, w, groups), [1] * len(stride), low, high, dilation, groups)


@handles("convolution", "_convolution")
def _convolve(e: Emitter, out: Type, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any,
              transposed: bool, output_padding: Any, groups: int, *rest: Any) -> Value:
    rank = len(w.shape) - 2
    batch = len(x.shape) == len(w.shape)
    x, w = widened(e, x), widened(e, w)
    x = x if batch else e.reshape(x, (1, *x.shape))
    stride, padding, dilation = _all(stride, rank), _all(padding, rank), _all(dilation, rank)
    if 0 in x.shape[1:] or 0 in w.shape:
        raise Unsupported("a convolution over nothing")
    if transposed:
        made = _back(e, x, w, out.shape[-rank:], stride, padding, dilation, groups)
    else:
        made = _convolution(e, x, w, stride, padding, padding, dilation, groups)
    if bias is not None:
        made = e.like("add", made, e.broadcast(e.convert(bias, made.dtype), made.shape, [1]))
    return e.convert(e.reshape(made, out.shape), out.dtype)


def _slope_of_filter(e: Emitter, x: Value, slope: Value, window: Sequence[int], stride: Sequence[int],
                     padding: Sequence[int], dilation: Sequence[int], groups: int) -> Value:
    """The convolution of x by the slope, with examples as channels: [out, in / groups, window]."""
    n, channels = x.shape[:2]
    rank = len(window)
    inside = channels // groups
    turned = e.reshape(x, (n, groups, inside, *x.shape[2:]))
    turned = e.reshape(e.transpose(turned, [2, 1, 0, *range(3, 3 + rank)]), (inside, groups * n, *x.shape[2:]))
    filters = e.transpose(slope, [1, 0, *range(2, 2 + rank)])
    high = [d * (k - 1) + s * (m - 1) + 1 - extent - p for d, k, s, m, extent, p in zip(
        dilation, window, stride, slope.shape[2:], x.shape[2:], padding)]
    made = _convolution(e, turned, filters, dilation, padding, high, stride, groups)
    return e.transpose(made, [1, 0, *range(2, 2 + rank)])


@handles("convolution_backward")
def _convolution_backward(e: Emitter, out: list[Type], slope: Value, x: Value, w: Value, bias_sizes: Any, stride: Any,
                          padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
                          mask: Sequence[bool]) -> list[Value | None]:
    rank = len(w.shape) - 2
    slope, x, w = widened(e, slope), widened(e, x), widened(e, w)
    stride, padding, dilation = _all(stride, rank), _all(padding, rank), _all(dilation, rank)
    if 0 in x.shape or 0 in w.shape or 0 in slope.shape:
        raise Unsupported("a convolution over nothing")
    of_x = of_w = of_bias = None
    if transposed:
        if mask[0]:
            of_x = _convolution(e, slope, w, stride, padding, padding, dilation, groups)
        if mask[1]:
            of_w = _slope_of_filter(e, slope, x, w.shape[2:], stride, padding, dilation, groups)
    else:
        if mask[0]:
            of_x = _back(e, slope, w, x.shape[2:], stride, padding, dilation, groups)
        if mask[1]:
            of_w = _slope_of_filter(e, x, slope, w.shape[2:], stride, padding, dilation, groups)
    if mask[2]:
        of_bias = e.reduce(slope, [0, *range(2, 2 + rank)], "add")
    return [None if v is None else e.convert(v, t.dtype) for v, t in zip((of_x, of_w, of_bias), out)]


# ---- pools ----
class _Window:
    """The window of a pool over the last dimensions of x, its steps and what is around x."""

    def __init__(self, x: Value, rank: int, size: Any, stride: Any, padding: Any, dilation: Any,
                 places: Sequence[int]) -> None:
        self.size, self.padding, self.dilation = _all(size, rank), _all(padding, rank), _all(dilation, rank)
        self.stride = _all(stride, rank) if not isinstance(stride, (list, tuple)) or stride else self.size
        self.extent, self.places = x.shape[-rank:], places[-rank:]
        self.lead = len(x.shape) - rank
        # enough behind x that all places are whole; less than nothing where the last elements are in none
        self.high = [(m - 1) * s + (k - 1) * d + 1 - n - p for m, s, k, d, n, p in zip(
            self.places, self.stride, self.size, self.dilation, self.extent, self.padding)]

    def attributes(self, reducer: str) -> str:
        def whole(values: Sequence[int], other: int) -> str:
            return ints([other] * self.lead + list(values))
        return (f"stride = {whole(self.stride, 1)}, low = {whole(self.padding, 0)}, high = {whole(self.high, 0)}, "
                f"window = {whole(self.size, 1)}, dilation = {whole(self.dilation, 1)}, reducer = {reducer}")

    def around(self, values: Sequence[int]) -> list[int]:
        return [0] * self.lead + list(values)

    def is_large(self) -> bool:
        return math.prod(self.size) > _PLACES_MAX

    def tables(self) -> list[Table]:
        """Of each dimension, the places of its windows."""
        return [table_of(*numbers) for numbers in zip(self.places, self.size, self.stride, self.padding, self.dilation)]

    def offsets(self) -> list[tuple[int, ...]]:
        """Places in the window, in order."""
        return list(itertools.product(*(range(k) for k in self.size)))

    def at(self, e: Emitter, wide_x: Value, offset: Sequence[int]) -> Value:
        """What all windows have at one of their places; `wide_x` has its padding."""
        start = [o * d for o, d in zip(offset, self.dilation)]
        limit = [a + (m - 1) * s + 1 for a, m, s in zip(start, self.places, self.stride)]
        return e.slice(wide_x, self.around(start), [*wide_x.shape[:self.lead], *limit], [1] * self.lead + self.stride)

    def back(self, e: Emitter, y: Value, offset: Sequence[int]) -> Value:
        """A value of each window to its element at this place, zeros elsewhere."""
        low = [o * d - p for o, d, p in zip(offset, self.dilation, self.padding)]
        high = [n - a - (m - 1) * s - 1 for n, a, m, s in zip(self.extent, low, self.places, self.stride)]
        spread = y  # s - 1 zeros behind each element
        for d, s in enumerate(self.stride, self.lead):
            if s > 1:
                shape = list(spread.shape)
                rows = e.reshape(spread, (*shape[:d + 1], 1, *shape[d + 1:]))
                none = [0] * len(rows.shape)
                rows = e.pad(rows, 0, none, [s - 1 if k == d + 1 else 0 for k in range(len(none))])
                spread = e.reshape(rows, (*shape[:d], shape[d] * s, *shape[d + 1:]))
        high = [n - (s - 1) for n, s in zip(high, self.stride)]
        return e.pad(spread, 0, self.around(low), self.around(high))

    def index(self, e: Emitter, shape: Sequence[int], offset: Sequence[int]) -> Value:
        """The number of that element in its plane."""
        made, step = None, 1
        for d in reversed(range(len(self.size))):
            place = e.iota(self.lead + d, "i64", shape)
            first = offset[d] * self.dilation[d] - self.padding[d]
            place = e.with_number("add", e.with_number("multiply", place, self.stride[d] * step), first * step)
            made = place if made is None else e.like("add", made, place)
            step *= self.extent[d]
        assert made is not None
        return made


@handles("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(e: Emitter, out: list[Type], x: Value, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False, *, wanted: Sequence[bool], rank: int = 2) -> list[Value | None]:
    window = _Window(x, len(size) if not isinstance(size, int) else rank, size, stride, padding, dilation, out[0].shape)
    if not wanted[1]:
        made = e.emit("reduce_window", (x,), window.attributes("maximum"), x.dtype, out[0].shape)
        return [made, None]
    if window.is_large() and 0 not in out[0].shape:
        return [*largest_with_places(e, x, window.tables())]
    low = -math.inf if x.is_float else 0 if x.dtype == "u8" else -(1 << (int(x.dtype[1:]) - 1))
    wide_x = e.pad(x, low, window.around(window.padding), window.around(window.high))
    best = place = None
    for offset in window.offsets():
        here, index = window.at(e, wide_x, offset), window.index(e, out[0].shape, offset)
        if best is None or place is None:
            best, place = here, index
            inside = _inside(e, window, out[0].shape, offset)
            continue
        better = e.compare(here, "gt", best)  # the first of equals; a NaN is more than anything, the last one stays
        better = e.like("or", better, e.compare(here, "ne", here)) if x.is_float else better
        now = _inside(e, window, out[0].shape, offset)  # padding is never the place, whatever is in x
        better = e.like("and", now, e.like("or", better, e.like("not", inside)))
        inside = e.like("or", inside, now)
        best, place = e.select(better, here, best), e.select(better, index, place)
    return [best, place]


def _inside(e: Emitter, window: _Window, shape: Sequence[int], offset: Sequence[int]) -> Value:
    made = e.constant(True, "bool", shape)
    for d, (n, o) in enumerate(zip(window.extent, offset)):
        first = o * window.dilation[d] - window.padding[d]
        if 0 <= first and first + (window.places[d] - 1) * window.stride[d] < n:
            continue
        place = e.with_number("add", e.with_number("multiply", e.iota(window.lead + d, "i64", shape),
                                                   window.stride[d]), first)
        made = e.like("and", made, e.like("and", e.compare(place, "ge", 0), e.compare(place, "lt", n)))
    return made


@handles("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(e: Emitter, out: Type, slope: Value, x: Value, size: Any, stride: Any, padding: Any,
                       dilation: Any, ceil_mode: bool, indices: Value) -> Value:
    window = _Window(x, len(size), size, stride, padding, dilation, slope.shape)
    if window.is_large():
        return to_places(e, out, slope, indices, len(size))
    slope, total = widened(e, slope), None
    for offset in window.offsets():
        mine = e.compare(indices, "eq", window.index(e, slope.shape, offset))
        placed = window.back(e, e.select(mine, slope, 0.0), offset)
        total = placed if total is None else e.like("add", total, placed)
    assert total is not None
    return e.convert(total, out.dtype)


def _divisor(e: Emitter, x: Value, window: _Window, places: Sequence[int], dtype: str, count_pad: bool,
             divisor: int | None) -> Value:
    """By what each sum is divided: a number, or how many elements were under the window; with padding, but never what
    is further out than that."""
    shape = [*([1] * window.lead), *places]
    if divisor is not None:
        return e.constant(divisor, dtype, shape)
    made = e.constant(1, dtype, shape)
    for d, (n, p) in enumerate(zip(window.extent, window.padding)):
        counts = []
        for m in range(window.places[d]):
            first = m * window.stride[d] - p
            last = min(first + window.size[d], n + p)
            counts.append(last - first if count_pad else min(last, n) - max(first, 0))
        if len(set(counts)) == 1:
            made = e.with_number("multiply", made, counts[0])
            continue
        row = e.emit("constant", (), f"data = {counts}", dtype, (len(counts),))
        made = e.like("multiply", made, e.broadcast(row, shape, [window.lead + d]))
    return made


@handles("avg_pool2d", "avg_pool3d", "avg_pool1d")
def _avg_pool(e: Emitter, out: Type, x: Value, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: int | None = None) -> Value:
    x = e.convert(x, wide(out.dtype))
    window = _Window(x, len(size), size, stride, padding, 1, out.shape)
    made = e.emit("reduce_window", (x,), window.attributes("add"), x.dtype, out.shape)
    divisor = _divisor(e, x, window, window.places, x.dtype, count_include_pad, divisor_override)
    return e.convert(e.like("divide", made, e.broadcast(divisor, out.shape)), out.dtype)


@handles("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(e: Emitter, out: Type, slope: Value, x: Value, size: Any, stride: Any, padding: Any,
                       ceil_mode: bool, count_include_pad: bool, divisor_override: int | None) -> Value:
    window = _Window(x, len(size), size, stride, padding, 1, slope.shape)
    slope, total = widened(e, slope), None
    divisor = _divisor(e, x, window, window.places, slope.dtype, count_include_pad, divisor_override)
    share = e.like("divide", slope, e.broadcast(divisor, slope.shape))
    if window.is_large():
        for d, (table, n) in enumerate(zip(window.tables(), window.extent), window.lead):
            share = combined(e, share, d, transposed(table, n), "add")
        return e.convert(share, out.dtype)
    for offset in window.offsets():
        placed = window.back(e, share, offset)
        total = placed if total is None else e.like("add", total, placed)
    assert total is not None
    return e.convert(total, out.dtype)


def _blocks(x: Sequence[int], places: Sequence[int]) -> list[int] | None:
    """The sizes of equal parts; None where they do not divide."""
    if not all(isinstance(n, int) for n in (*x, *places)):
        raise Unsupported("an adaptive pool of a symbolic dimension")
    return None if any(m == 0 or n % m for n, m in zip(x, places)) else [n // m for n, m in zip(x, places)]


@handles("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(e: Emitter, out: Type, x: Value, places: Sequence[int]) -> Value:
    rank = len(places)
    parts = _blocks(x.shape[-rank:], places)
    if parts is None:
        return e.convert(adaptive_sums(e, widened(e, x), places, False, x.shape[-rank:]), out.dtype)
    return _avg_pool(e, out, x, parts)


def _adaptive_avg_pool_backward(rank: int) -> Any:
    def handler(e: Emitter, out: Type, slope: Value, x: Value) -> Value:
        lead, places, extents = slope.shape[:-rank], slope.shape[-rank:], x.shape[-rank:]
        parts = _blocks(extents, places)
        if parts is None:
            return e.convert(adaptive_sums(e, widened(e, slope), places, True, extents), out.dtype)
        share = e.with_number("divide", widened(e, slope), math.prod(parts))
        k, pairs = len(lead), [n for pair in zip(places, parts) for n in pair]
        spread = e.broadcast(share, (*lead, *pairs), [*range(k), *range(k, k + 2 * rank, 2)])
        return e.convert(e.reshape(spread, x.shape), out.dtype)
    return handler


for _rank in (2, 3):
    handles(f"_adaptive_avg_pool{_rank}d_backward")(_adaptive_avg_pool_backward(_rank))
