"""NumPy's statistics: quantiles, histograms, covariances, and sums that pass over NaN."""
from __future__ import annotations

import operator
from typing import Any, Callable

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace.functions import ordered, searchsorted, take_along_axis
from symplex._trace.index import gather
from symplex._trace.size import Size, count, place
from symplex._trace.tracer import (FUNCTIONS, REFUSED, Tracer, axes_of, broadcast_to, convert, emit, expand_dims, full,
                                   product, real, reduce, reshape, result_type, select, size_value, total,
                                   transpose, value)


# ---- quantiles ----
def _rows_of(x: Tracer, axis: Any) -> tuple[Tracer, tuple[int, ...]]:
    """The elements of the axes as the last one."""
    at = axes_of(x, axis)
    rest = [d for d in range(x.ndim) if d not in at]
    return reshape(transpose(x, rest + list(at)), (*(x.shape[d] for d in rest), count(x.shape[d] for d in at))), at


_METHODS: dict[str, Callable[[Tracer], Tracer]] = {
    "linear": lambda part: part, "lower": lambda part: part * 0, "higher": np.ceil, "nearest": np.rint,
    "midpoint": lambda part: np.ceil(part) * part.dtype.type(0.5)}


def quantile(scale: int, over_nan: bool, what: str) -> Callable[..., Tracer]:
    """Between two neighbours in order. `scale`: 100 of percentiles; with `over_nan` only of what is no NaN."""
    def build(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Tracer:
        x = real(a)
        if method not in _METHODS:
            raise Unimplemented(f"numpy.{what} with method '{method}' ({place()})")
        known = None if isinstance(q, Tracer) else np.asarray(q)
        if known is not None and not np.all((known >= 0) & (known <= scale)):
            raise ValueError(f"numpy.{what}: {known} is not between 0 and {scale} ({place()})")
        rows, at = _rows_of(x, axis)
        if isinstance(rows.shape[-1], int) and rows.shape[-1] == 0:
            raise Unimplemented(f"numpy.{what} of nothing ({place()})")
        share = value(q, x.dtype if np.ndim(q) == 0 and not isinstance(q, (Tracer, np.ndarray, np.generic)) else
                      np.result_type(x.dtype, value(q).dtype))
        share = share / value(scale, share.dtype) if scale != 1 else share
        order = ordered(rows, -1, False)[0]
        nan = np.isnan(order)
        n = size_value(rows.shape[-1])
        last = (n - total(nan, -1, keepdims=True) if over_nan else broadcast_to(n, (*rows.shape[:-1], 1))) - 1
        flat = reshape(share, -1)
        place_of = convert(last, share.dtype) * flat  # rows, and each share behind them
        below = np.floor(place_of)
        part = place_of - below
        if method == "nearest":  # halves go to the even place
            below, part = np.rint(place_of), part * 0
        elif method != "linear":
            part = _METHODS[method](part)
        first = convert(below, np.int64)
        low = take_along_axis(order, np.maximum(first, 0), -1)
        high = take_along_axis(order, np.maximum(np.minimum(first + 1, last), 0), -1)
        step = high - low
        made = select(part >= 0.5, high - step * (1 - part), low + step * part)
        made = select(part == 0, convert(low, made.dtype), made)
        gone = last < 0 if over_nan else nan[..., -1:]
        made = select(gone, value(np.nan, made.dtype), made)
        kept = tuple(1 if d in at else m for d, m in enumerate(x.shape)) if keepdims else rows.shape[:-1]
        made = transpose(made, [made.ndim - 1, *range(made.ndim - 1)])
        return reshape(made, (*share.shape, *kept))
    return build


def _middle(over_nan: bool) -> Callable[..., Tracer]:
    def build(a: Any, axis: Any = None, keepdims: bool = False) -> Tracer:
        return quantile(1, over_nan, "nanmedian")(a, 0.5, axis, keepdims=keepdims)
    return build


# ---- sums that pass over NaN ----
def _without(x: Any, fill: Any) -> Tracer:
    x = value(x)
    return select(np.isnan(x), value(fill, x.dtype), x) if x.dtype.kind == "f" else x


def _number(x: Tracer, axis: Any, keepdims: bool) -> Tracer:
    return convert(total(~np.isnan(x), axis, keepdims=keepdims), x.dtype)


def nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    x = real(a) if dtype is None else convert(value(a), dtype)
    return total(_without(x, 0), axis, keepdims=keepdims) / _number(x, axis, keepdims)


def nanvar(a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Tracer:
    x = real(a) if dtype is None else convert(value(a), dtype)
    away = _without(x - nanmean(x, axis, keepdims=True), 0)
    number = _number(x, axis, keepdims) - value(ddof, x.dtype)
    sums = total(away * away, axis, keepdims=keepdims)
    return select(number <= 0, value(np.nan, x.dtype), sums / number)


def _nan_extreme(reducer: str, edge: float) -> Callable[..., Tracer]:
    def build(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tracer:
        x = value(a)
        made = reduce(_without(x, edge), reducer, axis, keepdims)
        if x.dtype.kind != "f":
            return made
        return select(FUNCTIONS["all"](np.isnan(x), axis, keepdims), value(np.nan, x.dtype), made)
    return build


# ---- counting ----
def bincount(x: Any, weights: Any = None, minlength: Any = 0) -> Tracer:
    """`minlength` places: what lies behind them is not counted, as their number cannot depend on elements."""
    if minlength == 0:
        raise Unimplemented(f"numpy.bincount ({place()}){REFUSED['bincount']}")
    x, length = value(x), minlength if isinstance(minlength, Size) else operator.index(minlength)
    if x.ndim != 1 or x.dtype.kind not in "iub":
        raise TypeError(f"numpy.bincount of {x.dtype.name} of {x.ndim} dimensions: whole numbers of one are needed "
                        f"({place()})")
    added = full(x.shape, 1, np.int64) if weights is None else convert(value(weights), np.float64)
    if added.shape != x.shape:
        raise ValueError(f"numpy.bincount: {added.shape} weights for {x.shape} numbers ({place()})")
    places = convert(x, np.int64)
    places = select(places < 0, size_value(length), places)
    start = full((length,), 0, added.dtype)
    return emit("scatter", (start, places, added), {"axis": 0, "reducer": "add"}, added.dtype, start.shape)


def digitize(x: Any, bins: Any, right: bool = False) -> Tracer:
    """`bins` may also fall."""
    x, edges = value(x), value(bins)
    if edges.ndim != 1:
        raise ValueError(f"numpy.digitize: bins of {edges.ndim} dimensions ({place()})")
    known = None if isinstance(bins, Tracer) else np.asarray(bins)
    if known is not None and np.any(np.diff(known) < 0) and np.any(np.diff(known) > 0):
        raise ValueError(f"numpy.digitize: bins neither rise nor fall ({place()})")
    rising = searchsorted(edges, x, "left" if right else "right")
    if known is not None and np.all(np.diff(known) >= 0):
        return rising
    falling = size_value(edges.shape[0]) - searchsorted(edges[::-1], x, "right" if right else "left")
    return select(edges[0] <= edges[-1], rising, falling)


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
              ) -> tuple[Tracer, Tracer]:
    """Equal bins: the place by a division, put right by the edges, as NumPy does it; others by a search."""
    x = reshape(a, -1)
    x = convert(x, np.uint8) if x.dtype == bool else x
    if isinstance(bins, str):
        raise Unimplemented(f"numpy.histogram with bins '{bins}' ({place()})")
    if np.ndim(bins) == 0 and not isinstance(bins, Tracer):
        n = operator.index(bins)
        if n < 1:
            raise ValueError(f"numpy.histogram: {n} bins, at least 1 ({place()})")
        if range is not None and not any(isinstance(v, Tracer) for v in range) and not range[0] <= range[1]:
            raise ValueError(f"numpy.histogram: the range {range} ends before it begins ({place()})")
        first, last = (reduce(x, "minimum"), reduce(x, "maximum")) if range is None else range
        dtype = np.result_type(real(x).dtype, *(v.dtype for v in (first, last) if isinstance(v, Tracer)))
        first, last = value(first, dtype), value(last, dtype)
        one = first == last
        first, last = (select(one, v + value(k, dtype), v) for v, k in ((first, -0.5), (last, 0.5)))
        edges = FUNCTIONS["linspace"](first, last, n + 1, dtype=dtype)
        y = convert(x, dtype)
        at = np.maximum(np.minimum(convert((y - first) / (last - first) * value(n, dtype), np.int64), n - 1), 0)
        at = at - convert(y < gather(edges, at, 0), np.int64)
        at = at + convert((y >= gather(edges, at + 1, 0)) & (at != n - 1), np.int64)
    else:
        edges = value(bins)
        if edges.ndim != 1 or (not isinstance(bins, Tracer) and np.any(np.diff(np.asarray(bins)) < 0)):
            raise ValueError(f"numpy.histogram: bins rise and have one dimension ({place()})")
        n = edges.shape[0] - 1
        y, first, last = x, edges[0], edges[-1]
        at = np.minimum(searchsorted(edges, y, "right") - 1, size_value(n) - 1)
    outside = ~((y >= first) & (y <= last))
    at = select(outside, size_value(n), at)
    added = full(x.shape, 1, np.int64) if weights is None else reshape(weights, -1)
    counts = emit("scatter", (full((n,), 0, added.dtype), at, added), {"axis": 0, "reducer": "add"}, added.dtype, (n,))
    if density:
        widths = convert(edges[1:] - edges[:-1], np.float64)
        counts = counts / widths / total(counts)
    return counts, edges


# ---- moments of several variables ----
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Tracer:
    if fweights is not None or aweights is not None:
        raise Unimplemented(f"numpy.cov with weights ({place()})")
    x = _variables(m, rowvar)
    if y is not None:
        x = FUNCTIONS["concatenate"]([x, _variables(y, rowvar)], 0)
    x = real(x) if dtype is None else convert(x, dtype)
    x = x if dtype is not None or x.dtype.itemsize == 8 else convert(x, np.float64)
    less = ddof if ddof is not None else 0 if bias else 1
    away = x - FUNCTIONS["mean"](x, 1, keepdims=True)
    number = np.maximum(size_value(x.shape[1]) - operator.index(less), 0)
    made = away @ transpose(away) / convert(number, x.dtype)
    return reshape(made, ()) if x.shape[0] == 1 else made


def _variables(m: Any, rowvar: bool) -> Tracer:
    x = value(m)
    if x.ndim > 2:
        raise ValueError(f"numpy.cov of {x.ndim} dimensions ({place()})")
    x = reshape(x, (1, -1)) if x.ndim < 2 else x
    return x if rowvar or x.shape[0] == 1 else transpose(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tracer:
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    size = np.sqrt(FUNCTIONS["diagonal"](c))
    return np.clip(c / expand_dims(size, 1) / expand_dims(size, 0), -1, 1)


REFUSED["bincount"] = ("\nHow long it is depends on elements: with minlength=n it has n places, and what is n or more "
                       "is not counted.")
FUNCTIONS.update({
    "quantile": quantile(1, False, "quantile"), "percentile": quantile(100, False, "percentile"),
    "nanquantile": quantile(1, True, "nanquantile"), "nanpercentile": quantile(100, True, "nanpercentile"),
    "nanmedian": _middle(True), "nanmean": nanmean, "nanvar": nanvar,
    "nanstd": lambda a, axis=None, dtype=None, *, ddof=0, keepdims=False: np.sqrt(
        nanvar(a, axis, dtype, ddof=ddof, keepdims=keepdims)),
    "nanprod": lambda a, axis=None, dtype=None, keepdims=False: product(_without(a, 1), axis, dtype, keepdims),
    "nanmax": _nan_extreme("maximum", -np.inf), "nanmin": _nan_extreme("minimum", np.inf),
    "nanargmax": lambda a, axis=None, *, keepdims=False: FUNCTIONS["argmax"](_without(a, -np.inf), axis,
                                                                             keepdims=keepdims),
    "nanargmin": lambda a, axis=None, *, keepdims=False: FUNCTIONS["argmin"](_without(a, np.inf), axis,
                                                                             keepdims=keepdims),
    "nancumsum": lambda a, axis=None, dtype=None: FUNCTIONS["cumsum"](_without(a, 0), axis, dtype),
    "nancumprod": lambda a, axis=None, dtype=None: FUNCTIONS["cumprod"](_without(a, 1), axis, dtype),
    "bincount": bincount, "digitize": digitize, "histogram": histogram, "cov": cov, "corrcoef": corrcoef})
