"""Order: sorts and what is at a place of an order, running sums and extremes, places in sorted rows."""
from __future__ import annotations

import math
from typing import Any, Callable

from symplex.torch._emit import Emitter, Unsupported, Value
from symplex.torch._reductions import count_of, known
from symplex.torch._table import Handler, HANDLERS, Operand, Type, axis_of, handles, operand, widened


def _sorted(e: Emitter, x: Value, dim: int, descending: bool, count: int) -> tuple[Value, Value]:
    rows = x if x.shape else e.reshape(x, (1,))
    rows = e.convert(rows, "u8") if x.dtype == "bool" else rows
    shape = [(n if count < 0 else count) if d == dim else n for d, n in enumerate(rows.shape)]
    order = f"axis = {dim}, direction = {'gt' if descending else 'lt'}, count = {count}"
    value, index = e.emit_many("sort", (rows,), order, [(rows.dtype, shape), ("i64", shape)])
    shape = shape if x.shape else []
    return e.reshape(e.convert(value, x.dtype), shape), e.reshape(index, shape)


@handles("sort")
def _sort(e: Emitter, out: list[Type], x: Value, *places: Any, **options: Any) -> list[Value]:
    """(dim, descending), or with `stable` before them."""
    if len(places) == 3 or (places and isinstance(places[0], bool)):
        places = places[1:]
    dim = options.get("dim", places[0] if places else -1)
    descending = options.get("descending", places[1] if len(places) > 1 else False)
    return list(_sorted(e, x, axis_of(dim, x), descending, -1))


@handles("topk")
def _topk(e: Emitter, out: list[Type], x: Value, k: int, dim: int = -1, largest: bool = True,
          sorted: bool = True) -> list[Value]:
    return list(_sorted(e, x, axis_of(dim, x), largest, k))


def _first(e: Emitter, x: Value, dim: int, largest: bool) -> tuple[Value, Value]:
    """The extreme along a dimension and its first place; a NaN is both the largest and the smallest number."""
    if not largest and x.is_float:
        value, index = _sorted(e, e.like("negate", x), dim, True, 1)
        return e.like("negate", value), index
    return _sorted(e, x, dim, largest, 1)


def _extreme_along(largest: bool) -> Handler:
    def handler(e: Emitter, out: list[Type], x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        value, index = _first(e, x, axis_of(dim, x), largest)
        return [e.reshape(value, out[0].shape), e.reshape(index, out[1].shape)]
    return handler


def _place(largest: bool) -> Handler:
    def handler(e: Emitter, out: Type, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        rows = e.reshape(x, (known(count_of(x, range(len(x.shape)))),)) if dim is None else x
        return e.reshape(_first(e, rows, axis_of(dim or 0, rows), largest)[1], out.shape)
    return handler


HANDLERS["max.dim"], HANDLERS["min.dim"] = _extreme_along(True), _extreme_along(False)
HANDLERS["argmax"], HANDLERS["argmin"] = _place(True), _place(False)


# ---- at a place of the order ----
def _at(e: Emitter, x: Value, dim: int, k: int) -> tuple[Value, Value]:
    """Number k of a dimension in rising order, and where it stands; its extent there is 1."""
    pair = _sorted(e, x, dim, False, k + 1)
    if not x.shape:
        return pair
    start = [k if d == dim else 0 for d in range(len(x.shape))]
    limit = [k + 1 if d == dim else n for d, n in enumerate(x.shape)]
    return e.slice(pair[0], start, limit), e.slice(pair[1], start, limit)


@handles("kthvalue")
def _kthvalue(e: Emitter, out: list[Type], x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    if 0 in out[0].shape:
        return [e.constant(0, t.dtype, t.shape) for t in out]
    return [e.reshape(v, t.shape) for v, t in zip(_at(e, x, axis_of(dim, x), k - 1), out)]


def _median(e: Emitter, x: Value, dim: int) -> tuple[Value, Value]:
    """The lower one of two in the middle; the first NaN if there is one."""
    value, index = _at(e, x, dim, (known(x.shape[dim]) - 1) // 2 if x.shape else 0)
    if x.is_float:
        most, place = _first(e, x, dim, True)
        is_nan = e.compare(most, "ne", most)
        value, index = e.select(is_nan, most, value), e.select(is_nan, place, index)
    return value, index


def _median_of_numbers(e: Emitter, x: Value, dim: int) -> tuple[Value, Value]:
    """NaN are behind all others in the order, and are not counted."""
    if not x.is_float or not x.shape:
        return _median(e, x, dim)
    value, index = _sorted(e, x, dim, False, -1)
    count = e.reduce(e.convert(e.compare(x, "eq", x), "i64"), [dim], "add", True)
    middle = e.with_number("divide", e.with_number("subtract", e.with_number("maximum", count, 1), 1), 2)
    return tuple(HANDLERS["gather"](e, Type(v.dtype, middle.shape), v, dim, middle)  # type: ignore[return-value]
                 for v in (value, index))


def _median_along(of: Callable[[Emitter, Value, int], tuple[Value, Value]]) -> Handler:
    def handler(e: Emitter, out: list[Type], x: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
        if 0 in x.shape:
            raise Unsupported("the middle of nothing")
        return [e.reshape(v, t.shape) for v, t in zip(of(e, x, axis_of(dim, x)), out)]
    return handler


def _median_of_all(of: Callable[[Emitter, Value, int], tuple[Value, Value]]) -> Handler:
    def handler(e: Emitter, out: Type, x: Value) -> Value:
        rows = e.reshape(x, (known(count_of(x, range(len(x.shape)))),))
        return e.constant(math.nan, out.dtype) if 0 in rows.shape else e.reshape(of(e, rows, 0)[0], ())
    return handler


for _name, _of in {"median": _median, "nanmedian": _median_of_numbers}.items():
    HANDLERS[f"{_name}.dim"], HANDLERS[f"{_name}.default"] = _median_along(_of), _median_of_all(_of)


# ---- running sums and extremes ----
Step = Callable[[Emitter, Value, Value], Value]


def _in_front(e: Emitter, x: Value, dim: int) -> tuple[Value, list[int]]:
    axis = axis_of(dim, x)
    perm = [axis] + [d for d in range(len(x.shape)) if d != axis]
    return e.transpose(x, perm), [perm.index(d) for d in range(len(perm))]


def _apart(e: Emitter, rows: Value) -> tuple[Value, Value]:
    """The first row and the others."""
    zeros = [0] * len(rows.shape)
    first = e.reshape(e.slice(rows, zeros, (1, *rows.shape[1:])), rows.shape[1:])
    return first, e.slice(rows, [1, *zeros[1:]], rows.shape)


def _together(e: Emitter, first: Value, rest: Value, back: list[int]) -> Value:
    return e.transpose(e.concatenate([e.reshape(first, (1, *first.shape)), rest], 0), back)


def _cumulative(step: Step) -> Handler:
    """One after the other, in order, as PyTorch does."""
    def handler(e: Emitter, out: Type, x: Value, dim: int, *, dtype: Any = None) -> Value:
        x = e.convert(x, out.dtype)
        if not x.shape or x.shape[axis_of(dim, x)] in (0, 1) or 0 in x.shape:
            return x
        rows, back = _in_front(e, widened(e, x), dim)
        first, rest = _apart(e, rows)
        inner = Emitter(e)
        made = step(inner, inner.parameter("carry", rows.dtype, first.shape),
                    inner.parameter("row", rows.dtype, first.shape))
        _, sums = e.emit_many("scan", (first, rest), f"carried = 1, sliced = 1, step = {inner.body([made, made])}",
                              [(rows.dtype, first.shape), (rows.dtype, rest.shape)])
        return e.convert(_together(e, first, sums, back), out.dtype)
    return handler


def _log_of_sum(e: Emitter, carry: Value, row: Value) -> Value:
    most, least = e.like("maximum", carry, row), e.like("minimum", carry, row)
    small = e.like("exponential", e.like("subtract", least, most))
    made = e.like("add", HANDLERS["log1p"](e, Type(row.dtype, row.shape), small), most)
    equal = e.like("and", e.compare(least, "eq", most), e.compare(e.like("abs", most), "eq", math.inf))
    return e.select(equal, most, made)  # of two infinities the difference would be NaN


HANDLERS["cumsum"] = _cumulative(lambda e, carry, row: e.like("add", carry, row))
HANDLERS["cumprod"] = _cumulative(lambda e, carry, row: e.like("multiply", carry, row))
HANDLERS["logcumsumexp"] = _cumulative(_log_of_sum)


def _running_extreme(direction: str) -> Handler:
    """The extreme so far and its place: the last of equals, and the last NaN."""
    def handler(e: Emitter, out: list[Type], x: Value, dim: int) -> list[Value]:
        if not x.shape or x.shape[axis_of(dim, x)] in (0, 1) or 0 in x.shape:
            return [x, e.constant(0, "i64", x.shape)]
        rows, back = _in_front(e, e.convert(x, "u8") if x.dtype == "bool" else x, dim)
        first, rest = _apart(e, rows)
        places = e.with_number("add", e.iota(0, "i64", rest.shape), 1)
        inner = Emitter(e)
        best, place, row, here = (inner.parameter(name, dtype, first.shape) for name, dtype in (
            ("best", rows.dtype), ("place", "i64"), ("row", rows.dtype), ("here", "i64")))
        better = inner.compare(row, direction, best)
        better = inner.like("or", better, inner.compare(row, "ne", row)) if row.is_float else better
        made = [inner.select(better, row, best), inner.select(better, here, place)]
        start = first, e.constant(0, "i64", first.shape)
        _, _, *rows_made = e.emit_many(
            "scan", (*start, rest, places), f"carried = 2, sliced = 2, step = {inner.body([*made, *made])}",
            [(v.dtype, shape) for shape in (first.shape, rest.shape) for v in start])
        return [e.convert(_together(e, a, b, back), t.dtype) for a, b, t in zip(start, rows_made, out)]
    return handler


HANDLERS["cummax"], HANDLERS["cummin"] = _running_extreme("ge"), _running_extreme("le")


# ---- places in sorted rows ----
def searched(e: Emitter, out: Type, rows: Value, x: Value, right: bool, sorter: Value | None) -> Value:
    """By halves, with PyTorch's comparisons, so that a NaN has the place that it has there."""
    count, lead = known(rows.shape[-1]), rows.shape[:-1]
    if count == 0 or 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    flat = e.reshape(rows, (known(count_of(rows, range(len(rows.shape)))),))
    first = None  # of the row that goes with each element
    if lead:
        first = e.with_number("multiply", e.iota(0, "i64", (flat.shape[0] // count,)), count)
        first = e.broadcast(e.reshape(first, lead), x.shape, range(len(lead)))

    def in_row(table: Value, place: Value) -> Value:
        place = place if first is None else e.like("add", place, first)
        return e.emit("gather", (table, place), "axis = 0", table.dtype, place.shape)

    low, high = e.constant(0, "i64", x.shape), e.constant(count, "i64", x.shape)
    for _ in range(count.bit_length()):
        middle = e.with_number("divide", e.like("add", low, high), 2)
        place = e.with_number("minimum", middle, count - 1)
        if sorter is not None:
            place = in_row(e.reshape(e.convert(sorter, "i64"), flat.shape), place)
        before = e.compare(in_row(flat, place), "gt" if right else "ge", x)
        open_ = e.compare(low, "lt", high)
        low = e.select(e.like("and", open_, e.like("not", before)), e.with_number("add", middle, 1), low)
        high = e.select(e.like("and", open_, before), middle, high)
    return e.convert(low, out.dtype)


@handles("searchsorted")
def _searchsorted(e: Emitter, out: Type, rows: Value, x: Operand, *, out_int32: bool = False, right: bool = False,
                  side: str | None = None, sorter: Value | None = None) -> Value:
    return searched(e, out, rows, operand(e, x, rows.dtype, out.shape), right or side == "right", sorter)


@handles("bucketize")
def _bucketize(e: Emitter, out: Type, x: Operand, rows: Value, *, out_int32: bool = False,
               right: bool = False) -> Value:
    return searched(e, out, rows, operand(e, x, rows.dtype, out.shape), right, None)
