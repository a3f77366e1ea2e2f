"""Operators whose places are operands, as rows of a table. What indices out of range do is said in README.md."""
from __future__ import annotations

import functools
import math
import operator
from typing import Any, Iterable, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value, plain
from symplex.torch._shapes import slice_scatter
from symplex.torch._table import HANDLERS, Type, axis_of, handles, operand, widened


def _whole(x: Value) -> tuple[int, ...]:
    if not all(isinstance(n, int) for n in x.shape):
        raise Unsupported("places of a symbolic dimension")
    return x.shape


@handles("embedding")
def _embedding(e: Emitter, out: Type, table: Value, indices: Value, *rest: Any) -> Value:
    return _index_select(e, out, table, 0, indices)


@handles("index_select")
def _index_select(e: Emitter, out: Type, x: Value, dim: int, indices: Value) -> Value:
    if not x.shape:
        return e.reshape(x, out.shape)
    if 0 in x.shape or 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    return e.emit("gather", (x, indices), f"axis = {axis_of(dim, x)}", x.dtype, out.shape)


@handles("embedding_dense_backward")
def _embedding_backward(e: Emitter, out: Type, slope: Value, indices: Value, rows: int, padding: int,
                        by_frequency: bool) -> Value:
    if by_frequency:
        raise Unsupported("slopes scaled by frequency")
    slope = widened(e, slope)
    if padding >= 0:  # behind the last row nothing is written
        indices = e.select(e.compare(indices, "eq", padding), rows, indices)
    zeros = e.constant(0, slope.dtype, out.shape)
    return e.convert(scattered(e, zeros, indices, slope, "add"), out.dtype)


def scattered(e: Emitter, table: Value, rows: Value, updates: Value, reducer: str) -> Value:
    if 0 in updates.shape or 0 in table.shape:
        return table
    return e.emit("scatter", (table, rows, updates), f"axis = 0, reducer = {reducer}", table.dtype, table.shape)


# ---- x[i, :, j] ----
class _Rows:
    """x as a table with a row for each place of the indexed dimensions, and the indices as numbers of rows. The
    result of an index has the shape of the indices where the first indexed dimension was; in front, where others stand
    between them."""

    def __init__(self, e: Emitter, x: Value, indices: Sequence[Value | None]) -> None:
        given = {d: v for d, v in enumerate(indices) if v is not None}
        if not given or any(v.dtype in ("bool", "u8") for v in given.values()):
            raise Unsupported("a mask as an index")
        self.shape = _together([v.shape for v in given.values()])
        dims = sorted(given)
        self.perm = dims + [d for d in range(len(x.shape)) if d not in given]
        turned = e.transpose(x, self.perm)
        self.turned, self.rest = turned.shape, turned.shape[len(dims):]
        self.table = e.reshape(turned, (_product(turned.shape[:len(dims)]), *self.rest))
        together = dims == list(range(dims[0], dims[-1] + 1))
        first = dims[0] if together else 0
        rank = len(self.shape)
        # in a gathered result the indices come first
        self.order = [*range(rank, rank + first), *range(rank), *range(rank + first, rank + len(self.rest))]
        row = None
        for d in dims:
            place = _from_the_front(e, given[d], x.shape[d], self.shape)
            place = e.with_extent("multiply", place, _product(x.shape[k] for k in dims if k > d))
            row = place if row is None else e.like("add", row, place)
        assert row is not None
        self.row = row


def _product(extents: Iterable[Any]) -> Any:
    return plain(functools.reduce(operator.mul, extents, 1))


def _from_the_front(e: Emitter, index: Value, extent: Any, shape: Sequence[Any]) -> Value:
    """An index that counts from the end where it is negative."""
    place = operand(e, index, "i64", shape)
    return e.select(e.compare(place, "lt", 0), e.with_extent("add", place, extent), place)


def _along_each(e: Emitter, x: Value, indices: Sequence[Value | None]) -> Value | None:
    """x[..., i, j, ...] where each index varies along a dimension of its own, as rows and columns of an image that is
    scaled: one gather after the other leaves elements in their order. None of other indices."""
    given = {d: v for d, v in enumerate(indices) if v is not None}
    dims = sorted(given)
    if not given or any(v.dtype in ("bool", "u8") for v in given.values()) or dims[-1] - dims[0] != len(dims) - 1:
        return None
    for at, d in enumerate(dims):
        own = (*[1] * (len(dims) - len(given[d].shape)), *given[d].shape)
        if len(own) != len(dims) or any(n != 1 for k, n in enumerate(own) if k != at):
            return None
    if 0 in x.shape or any(0 in v.shape for v in given.values()):
        return None
    # What is left out goes first; then the innermost, as it moves single elements and the others whole rows.
    known = all(isinstance(n, int) for d in dims for n in (x.shape[d], *given[d].shape))
    for d in sorted(dims, key=lambda d: (_product(given[d].shape) / x.shape[d] if known else 0, -d)):
        count = _product(given[d].shape)
        place = _from_the_front(e, e.reshape(given[d], (count,)), x.shape[d], (count,))
        shape = [count if k == d else n for k, n in enumerate(x.shape)]
        x = e.emit("gather", (x, place), f"axis = {d}", x.dtype, shape)
    return x


def _together(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    rank = max(len(s) for s in shapes)
    made = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            made[d] = n if made[d] == 1 else made[d]
    return made


@handles("index", "_unsafe_index")
def _index(e: Emitter, out: Type, x: Value, indices: Sequence[Value | None]) -> Value:
    along = _along_each(e, x, indices)
    if along is not None:
        return along
    rows = _Rows(e, x, indices)
    if 0 in x.shape or 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    made = e.emit("gather", (rows.table, rows.row), "axis = 0", x.dtype, (*rows.shape, *rows.rest))
    return e.transpose(made, rows.order)


@handles("index_put", "_unsafe_index_put")
def _index_put(e: Emitter, out: Type, x: Value, indices: Sequence[Value | None], values: Value,
               accumulate: bool = False, unsafe: bool = False) -> Value:
    mask = indices[0]
    if mask is not None and mask.dtype == "bool" and [len(indices), accumulate] == [1, False] and values.shape in (
            (), (1,)):
        which = e.reshape(mask, [*mask.shape, *([1] * (len(x.shape) - len(mask.shape)))])
        return e.select(e.broadcast(which, x.shape), operand(e, e.reshape(values, ()), x.dtype, x.shape), x)
    rows = _Rows(e, x, indices)
    shape = [*rows.shape, *rows.rest]
    values = operand(e, values, x.dtype, [shape[d] for d in rows.order])
    values = e.transpose(values, [rows.order.index(d) for d in range(len(shape))])
    made = scattered(e, rows.table, rows.row, values, "add" if accumulate else "set")
    return e.transpose(e.reshape(made, rows.turned), [rows.perm.index(d) for d in range(len(x.shape))])


# ---- an index for each element ----
def _flat(e: Emitter, x: Value, dim: int, index: Value) -> Value:
    """The number of the element that each index names in all of x."""
    made, stride = None, 1
    index = e.convert(index, "i64")
    for d in reversed(range(len(x.shape))):
        place = _from_the_front(e, index, x.shape[d], index.shape) if d == dim else e.iota(d, "i64", index.shape)
        place = e.with_extent("multiply", place, stride)
        made = place if made is None else e.like("add", made, place)
        stride = plain(stride * x.shape[d])
    assert made is not None
    return made


@handles("gather")
def _gather(e: Emitter, out: Type, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if 0 in index.shape or 0 in x.shape:
        return e.constant(0, out.dtype, out.shape)
    if not x.shape:
        return e.broadcast(x, out.shape, [])
    if not index.shape:
        index = e.reshape(index, (1,))
    flat = e.reshape(x, (_product(x.shape),))
    made = e.emit("gather", (flat, _flat(e, x, axis_of(dim, x), index)), "axis = 0", x.dtype, index.shape)
    return e.reshape(made, out.shape)


def _scatter(e: Emitter, x: Value, dim: int, index: Value, updates: Any, reducer: str) -> Value:
    if not x.shape:
        made = _scatter(e, e.reshape(x, (1,)), 0, e.reshape(index, (1,)), operand(e, updates, x.dtype, (
            )) if not isinstance(updates, Value) else e.reshape(updates, (1,)), reducer)
        return e.reshape(made, ())
    index = index if index.shape else e.reshape(index, (1,))
    if isinstance(updates, Value):
        updates = updates if updates.shape else e.reshape(updates, (1,))
        updates = e.slice(e.convert(updates, x.dtype), [0] * len(x.shape), index.shape)
    else:
        updates = e.constant(updates, x.dtype, index.shape)
    if 0 in index.shape or 0 in x.shape:
        return x
    flat = e.reshape(x, (_product(x.shape),))
    made = scattered(e, flat, _flat(e, x, axis_of(dim, x), index), updates, reducer)
    return e.reshape(made, x.shape)


@handles("scatter")
def _scatter_set(e: Emitter, out: Type, x: Value, dim: int, index: Value, updates: Any, *,
                 reduce: str | None = None) -> Value:
    if reduce is not None:
        raise Unsupported(f"reduce = {reduce}")
    return _scatter(e, x, dim, index, updates, "set")


@handles("scatter_add")
def _scatter_add(e: Emitter, out: Type, x: Value, dim: int, index: Value, updates: Value) -> Value:
    return _scatter(e, x, dim, index, updates, "add")


_REDUCERS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum", "mean": "add"}


def _neutral(reduce: str, dtype: str) -> float:
    """What changes nothing: where an element is replaced by those that are scattered, it starts as this."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if "f" in dtype:
        return -math.inf if reduce == "amax" else math.inf
    bits, signed = (8, 0) if dtype == "u8" else (1, 0) if dtype == "bool" else (int(dtype[1:]), 1)
    return -(signed << (bits - 1)) if reduce == "amax" else (1 << (bits - signed)) - 1


@handles("scatter_reduce")
def _scatter_reduce(e: Emitter, out: Type, x: Value, dim: int, index: Value, updates: Value, reduce: str, *,
                    include_self: bool = True) -> Value:
    if reduce not in _REDUCERS:
        raise Unsupported(f"reduce = {reduce}")
    x, updates = widened(e, x), widened(e, updates)
    start = x if include_self else _scatter(e, x, dim, index, _neutral(reduce, x.dtype), "set")
    made = _scatter(e, start, dim, index, updates, _REDUCERS[reduce])
    if reduce == "mean":
        count = _scatter(e, e.constant(int(include_self), "i64", x.shape), dim, index, 1, "add")
        count = e.convert(e.with_number("maximum", count, 1), made.dtype)
        made = HANDLERS["div"](e, Type(made.dtype, made.shape), made, count,
                               rounding_mode=None if made.is_float else "floor")
    return e.convert(made, out.dtype)


@handles("index_reduce")
def _index_reduce(e: Emitter, out: Type, x: Value, dim: int, index: Value, source: Value, reduce: str, *,
                  include_self: bool = True) -> Value:
    if not x.shape:
        raise Unsupported("rows of a number")
    index = index if index.shape else e.reshape(index, (1,))
    each = e.broadcast(index, source.shape, [axis_of(dim, x)])
    return _scatter_reduce(e, out, x, dim, each, source, reduce, include_self=include_self)


class _Diagonal:
    """Two dimensions of x as one in front of all others, in which the elements of a diagonal are at equal steps."""

    def __init__(self, e: Emitter, x: Value, offset: int, dim1: int, dim2: int) -> None:
        rank = len(_whole(x))
        a, b = dim1 % rank, dim2 % rank
        self.perm = [a, b] + [d for d in range(rank) if d not in (a, b)]
        self.turned = e.transpose(x, self.perm)
        self.rows = e.reshape(self.turned, (x.shape[a] * x.shape[b], *self.turned.shape[2:]))
        self.first, self.step = offset if offset >= 0 else -offset * x.shape[b], x.shape[b] + 1

    def end(self, count: int) -> int:
        return self.first + (count - 1) * self.step + 1


@handles("diagonal")
def _diagonal(e: Emitter, out: Type, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    if 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    along, others = _Diagonal(e, x, offset, dim1, dim2), len(x.shape) - 2
    rows = along.rows
    taken = e.slice(rows, [along.first] + [0] * others, (along.end(out.shape[-1]), *rows.shape[1:]),
                    [along.step] + [1] * others)
    return e.transpose(taken, [*range(1, others + 1), 0])


@handles("diagonal_scatter")
def _diagonal_scatter(e: Emitter, out: Type, x: Value, source: Value, offset: int = 0, dim1: int = 0,
                      dim2: int = 1) -> Value:
    if 0 in source.shape or 0 in x.shape:
        return x
    along, count, others = _Diagonal(e, x, offset, dim1, dim2), source.shape[-1], len(x.shape) - 2
    source = e.transpose(e.convert(source, x.dtype), [others, *range(others)])
    made = slice_scatter(e, Type(x.dtype, along.rows.shape), along.rows, source, 0, along.first, along.end(count),
                         along.step)
    made = e.reshape(made, along.turned.shape)
    return e.transpose(made, [along.perm.index(d) for d in range(len(x.shape))])
