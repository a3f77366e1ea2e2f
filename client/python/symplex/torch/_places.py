"""Operators that combine elements at places known when a graph is compiled: uneven pools, large windows, edges that are
repeated, pieces of a signal.

A table says for each place of a result, along one dimension, which places of the operand it is made of; a window over
several dimensions is one table after the other, so that it costs the sum of its widths and not their product."""
from __future__ import annotations

import math
from typing import Any, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value
from symplex.torch._table import Type, axis_of, handles, widened

Table = Sequence[Sequence[int]]  # a place that is not in the operand adds nothing
_WIDTH_MAX, _ELEMENTS_MAX = 64, 1 << 16  # of the places compared one after the other; of a table


def window(places: int, size: int, stride: int, padding: int, dilation: int) -> Table:
    return [[j * stride - padding + k * dilation for k in range(size)] for j in range(places)]


def adaptive(extent: int, places: int) -> Table:
    """Parts that overlap by one where they do not divide the extent."""
    return [range(j * extent // places, -(-(j + 1) * extent // places)) for j in range(places)]


def repeated_edges(extent: int, low: int, places: int) -> Table:
    return [[min(max(j - low, 0), extent - 1)] for j in range(places)]


def transposed(table: Table, extent: int) -> Table:
    """For each place of the operand the results that it is part of."""
    made: list[list[int]] = [[] for _ in range(extent)]
    for j, row in enumerate(table):
        for place in row:
            if 0 <= place < extent:
                made[place].append(j)
    return made


def _gathered(e: Emitter, x: Value, axis: int, rows: Table) -> tuple[Value, Value | None]:
    """x with each row of places along `axis` and a new dimension behind it; and which of them are in x, None if all."""
    extent, width = x.shape[axis], max((len(row) for row in rows), default=0)
    if not isinstance(extent, int):
        raise Unsupported("places of a symbolic dimension")
    if len(rows) * width > _ELEMENTS_MAX:
        raise Unsupported(f"{len(rows)} times {width} places, at most {_ELEMENTS_MAX}")
    places = [[*row, *[-1] * (width - len(row))] for row in rows]
    flat = [min(max(p, 0), extent - 1) for row in places for p in row]
    shape = [*x.shape[:axis], len(rows), width, *x.shape[axis + 1:]]
    taken = e.emit("gather", (x, e.numbers(flat, "i64", (len(rows), width))), f"axis = {axis}", x.dtype, shape)
    inside = [0 <= p < extent for row in places for p in row]
    if all(inside):
        return taken, None
    return taken, e.broadcast(e.numbers(inside, "bool", (len(rows), width)), shape, [axis, axis + 1])


def _least(dtype: str) -> float:
    return -math.inf if "f" in dtype else 0 if dtype == "u8" else -(1 << (int(dtype[1:]) - 1))


def combined(e: Emitter, x: Value, axis: int, table: Table, reducer: str) -> Value:
    """Sums ("add") or largest ("maximum") of the elements at each row of places."""
    shape = [len(table) if d == axis else n for d, n in enumerate(x.shape)]
    nothing = 0 if reducer == "add" else _least(x.dtype)
    if 0 in shape or 0 in x.shape or not any(table):
        return e.constant(nothing, x.dtype, shape)
    made, inside = _gathered(e, x, axis, table)
    made = made if inside is None else e.select(inside, made, e.constant(nothing, x.dtype, made.shape))
    return e.reduce(made, [axis + 1], reducer)


def first_largest(e: Emitter, value: Value, place: Value, axis: int, table: Table) -> tuple[Value, Value]:
    """Of each row of places the largest element and what `place` says of it: the first of equals, and the last NaN if
    there are any, as PyTorch goes through a window."""
    width = max(len(row) for row in table)
    if width > _WIDTH_MAX:
        raise Unsupported(f"a window of {width} places in one dimension, at most {_WIDTH_MAX}")
    extent, best, best_place, found = value.shape[axis], None, None, None
    for k in range(width):
        column = [[row[k]] if k < len(row) else [-1] for row in table]
        taken, inside = _gathered(e, value, axis, column)
        shape = [len(table) if d == axis else n for d, n in enumerate(value.shape)]
        here = e.reshape(taken, shape)
        index = e.reshape(_gathered(e, place, axis, column)[0], shape)
        flags = [0 <= row[0] < extent for row in column]
        now = None if inside is None else e.broadcast(e.numbers(flags, "bool", (len(flags),)), shape, [axis])
        if best is None or best_place is None:
            best, best_place, found = here, index, now
            continue
        better = e.compare(here, "gt", best)
        better = e.like("or", better, e.compare(here, "ne", here)) if here.is_float else better
        if found is not None:
            better = e.like("or", better, e.like("not", found))
        if now is not None:
            better = e.like("and", better, now)
            found = found if found is None else e.like("or", found, now)
        else:
            found = None
        best, best_place = e.select(better, here, best), e.select(better, index, best_place)
    assert best is not None and best_place is not None
    return best, best_place


def largest_with_places(e: Emitter, x: Value, tables: Sequence[Table]) -> list[Value]:
    """Over the last dimensions, the innermost first: values, and the numbers of elements in their planes."""
    lead, plane = len(x.shape) - len(tables), math.prod(x.shape[-len(tables):])
    value = x
    place = e.reshape(e.broadcast(e.iota(0, "i64", (plane,)), (*x.shape[:lead], plane)), x.shape)
    for k in reversed(range(len(tables))):
        value, place = first_largest(e, value, place, lead + k, tables[k])
    return [value, place]


def to_places(e: Emitter, out: Type, slope: Value, place: Value, rank: int) -> Value:
    """Slopes added to the elements of their planes that `place` names."""
    slope = widened(e, slope)
    if 0 in slope.shape or 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    planes, plane = math.prod(out.shape[:-rank]), math.prod(out.shape[-rank:])
    each = math.prod(slope.shape[-rank:])
    first = e.with_number("multiply", e.iota(0, "i64", (planes, each)), plane)
    rows = e.reshape(e.like("add", first, e.reshape(place, (planes, each))), (planes * each,))
    zeros = e.constant(0, slope.dtype, (planes * plane,))
    made = e.emit("scatter", (zeros, rows, e.reshape(slope, (planes * each,))), "axis = 0, reducer = add",
                  slope.dtype, zeros.shape)
    return e.convert(e.reshape(made, out.shape), out.dtype)


# ---- adaptive pools ----
def adaptive_tables(extents: Sequence[int], places: Sequence[int]) -> list[Table]:
    if not all(isinstance(n, int) for n in (*extents, *places)):
        raise Unsupported("an adaptive pool of a symbolic dimension")
    return [adaptive(n, m) for n, m in zip(extents, places)]


def adaptive_sums(e: Emitter, x: Value, places: Sequence[int], back: bool, extents: Sequence[int]) -> Value:
    """Means of uneven parts; or `back`, each slope shared among the elements of its part."""
    tables = adaptive_tables(extents, places)
    lead = len(x.shape) - len(places)

    def shared(x: Value) -> Value:
        for d, table in enumerate(tables, lead):
            counts = e.numbers([len(row) for row in table], x.dtype, (len(table),))
            x = e.like("divide", x, e.broadcast(counts, x.shape, [d]))
        return x

    x = shared(x) if back else x
    for d, (table, n) in enumerate(zip(tables, extents), lead):
        x = combined(e, x, d, transposed(table, n) if back else table, "add")
    return x if back else shared(x)


@handles("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(e: Emitter, out: list[Type], x: Value, places: Sequence[int], *,
                       wanted: Sequence[bool]) -> list[Value | None]:
    rank = len(places)
    tables = adaptive_tables(x.shape[-rank:], places)
    if 0 in out[0].shape:
        return [e.constant(0, t.dtype, t.shape) for t in out]
    if wanted[1]:
        return [*largest_with_places(e, x, tables)]
    for d, table in enumerate(tables, len(x.shape) - rank):
        x = combined(e, x, d, table, "maximum")
    return [x, None]


def _adaptive_max_pool_backward(rank: int) -> Any:
    def handler(e: Emitter, out: Type, slope: Value, x: Value, place: Value) -> Value:
        return to_places(e, out, slope, place, rank)
    return handler


for _rank in (2, 3):
    handles(f"adaptive_max_pool{_rank}d_backward")(_adaptive_max_pool_backward(_rank))


# ---- edges, pieces ----
def _replication_backward(rank: int) -> Any:
    def handler(e: Emitter, out: Type, slope: Value, x: Value, pads: Sequence[int]) -> Value:
        made = widened(e, slope)
        for k in range(rank):
            d = len(x.shape) - 1 - k
            table = repeated_edges(x.shape[d], pads[2 * k], slope.shape[d])
            made = combined(e, made, d, transposed(table, x.shape[d]), "add")
        return e.convert(made, out.dtype)
    return handler


for _rank in (1, 2, 3):
    handles(f"replication_pad{_rank}d_backward")(_replication_backward(_rank))


@handles("unfold")
def _unfold(e: Emitter, out: Type, x: Value, dim: int, size: int, step: int) -> Value:
    """Pieces of a dimension, which may overlap; their elements are a new last dimension."""
    rows = x if x.shape else e.reshape(x, (1,))
    dim = axis_of(dim, rows)
    if 0 in out.shape:
        return e.constant(0, out.dtype, out.shape)
    count = out.shape[dim] if x.shape else 1
    made, _ = _gathered(e, rows, dim, window(count, size, step, 0, 1))
    perm = [d for d in range(len(made.shape)) if d != dim + 1] + [dim + 1]
    return e.reshape(e.transpose(made, perm), out.shape)


@handles("unfold_backward")
def _unfold_backward(e: Emitter, out: Type, slope: Value, sizes: Sequence[int], dim: int, size: int,
                     step: int) -> Value:
    rank = len(sizes)
    if 0 in slope.shape or rank == 0:
        return e.reshape(e.convert(slope, out.dtype), out.shape) if rank == 0 and size == 1 else e.constant(
            0, out.dtype, out.shape)
    dim %= rank
    count = slope.shape[dim]
    order = [*range(dim + 1), rank, *range(dim + 1, rank)]
    rows = e.transpose(widened(e, slope), order)
    rows = e.reshape(rows, [*rows.shape[:dim], count * size, *rows.shape[dim + 2:]])
    pieces = window(count, size, step, 0, 1)
    table = transposed([[place] for row in pieces for place in row], sizes[dim])
    return e.convert(combined(e, rows, dim, table, "add"), out.dtype)
