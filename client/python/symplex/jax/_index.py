"""JAX's gather and scatter: dimensions are indexed one element at a time, or a window of them is taken, or they are
taken whole. Those of the first two kinds become one, along which docs/IR.md gathers and scatters."""
from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np
from jax.lax import GatherScatterMode

from symplex.jax._emit import Emitter, Unsupported, Value


def _inverse(perm: Sequence[int]) -> list[int]:
    return [list(perm).index(d) for d in range(len(perm))]


def _compare(e: Emitter, x: Value, direction: str, number: int) -> Value:
    return e.like("compare", x, e.constant(number, x.dtype, x.shape), attributes=f"direction = {direction}", dtype=bool)


class _Rows:
    """x as a table: a row for each place of its indexed dimensions and of those of which a window is taken; and for
    each index and place of the window the number of a row. `windows`: dimensions with the extents of their windows,
    behind the dimensions of the indices in `shape`."""

    def __init__(self, e: Emitter, x: Value, indices: Value, indexed: Sequence[int], batching: Sequence[int],
                 of_batching: Sequence[int], windows: dict[int, int] | None = None) -> None:
        self.e = e
        windows = windows or {}
        self.batch = indices.shape[:-1]  # the last dimension of the indices is one row of the table
        self.shape = (*self.batch, *windows.values())
        self.dims = sorted({*indexed, *batching, *windows})
        self.whole = [d for d in range(len(x.shape)) if d not in self.dims]
        self.perm = [*self.dims, *self.whole]
        self.count = math.prod(x.shape[d] for d in self.dims)
        turned = e.transpose(x, self.perm)
        self.turned = turned.shape
        self.table = e.reshape(turned, (self.count, *(x.shape[d] for d in self.whole)))
        self.row, self.inside = None, None
        stride = self.count
        for d in self.dims:
            stride //= max(1, x.shape[d])
            if d in indexed:
                self._add(self._of_column(indices, list(indexed).index(d), x.shape[d] - windows.get(d, 1)), stride)
            if d in batching:
                self._add(e.emit("iota", (), f"axis = {of_batching[list(batching).index(d)]}", np.int64, self.shape),
                          stride)
            if d in windows:
                axis = len(self.batch) + list(windows).index(d)
                self._add(e.emit("iota", (), f"axis = {axis}", np.int64, self.shape), stride)

    def _add(self, part: Value, stride: int) -> None:
        scaled = self.e.like("multiply", part, self.e.constant(stride, np.int64, self.shape))
        self.row = scaled if self.row is None else self.e.like("add", self.row, scaled)

    def _of_column(self, indices: Value, column: int, last: int) -> Value:
        """Where it begins, between 0 and `last`."""
        e, rank = self.e, len(indices.shape)
        start = [0] * (rank - 1) + [column]
        one = e.reshape(e.slice(indices, start, [*self.batch, column + 1], [1] * rank), self.batch)
        one = e.convert(one, np.int64)
        inside = e.like("and", _compare(e, one, "ge", 0), _compare(e, one, "le", last))
        self.inside = inside if self.inside is None else e.like("and", self.inside, inside)
        zero, most = e.constant(0, np.int64, self.batch), e.constant(max(0, last), np.int64, self.batch)
        one = e.like("minimum", e.like("maximum", one, zero), most)
        return e.broadcast(one, self.shape, range(len(self.batch)))

    def inside_of(self, shape: Sequence[int]) -> Value:
        """Which elements are of an index that is inside."""
        assert self.inside is not None
        return self.e.broadcast(self.inside, shape, range(len(self.batch)))


def _windows(x: Value, taken: dict[int, int], indexed: Sequence[int]) -> dict[int, int]:
    """Of the dimensions that are in the result those of which only a part is taken, or that have an index."""
    return {d: n for d, n in taken.items() if n != x.shape[d] or d in indexed}


def _plain(indices: Value, columns: int) -> Value:
    if len(indices.shape) == 0 or indices.shape[-1] != columns:
        raise Unsupported("indices of another form")
    return indices


def gather(e: Emitter, p: Any, aval: Any, x: Value, indices: Value) -> Value:
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    indexed, batching = numbers.start_index_map, numbers.operand_batching_dims
    removed = {*numbers.collapsed_slice_dims, *batching}
    if not indexed or any(n == 0 for n in x.shape):
        raise Unsupported("nothing that is indexed")
    kept = [d for d in range(len(x.shape)) if d not in removed]
    windows = _windows(x, {d: sizes[d] for d in kept}, indexed)
    rows = _Rows(e, x, _plain(indices, len(indexed)), indexed, batching, numbers.start_indices_batching_dims, windows)
    shape = (*rows.shape, *rows.table.shape[1:])
    made = e.emit("gather", (rows.table, rows.row), "axis = 0", x.dtype, shape)
    if p["mode"] == GatherScatterMode.FILL_OR_DROP:
        fill = p["fill_value"]
        if fill is None:
            fill = np.nan if x.dtype.kind not in "iub" else np.iinfo(x.dtype).min if x.dtype.kind == "i" else \
                True if x.dtype.kind == "b" else np.iinfo(x.dtype).max
        made = e.emit("select", (rows.inside_of(shape), made, e.constant(fill, x.dtype, shape)), "", x.dtype, shape)
    # in `made` the indices come first, then windows, then what is whole; in JAX's result the indices stand where
    # offset_dims are not, and those have the dimensions in their order
    behind = [*windows, *rows.whole]
    of = {d: len(rows.batch) + behind.index(d) for d in kept}
    batch = iter(range(len(rows.batch)))
    offset = dict(zip(numbers.offset_dims, kept))
    return e.transpose(made, [of[offset[d]] if d in offset else next(batch) for d in range(len(shape))])


def scatter(e: Emitter, p: Any, reducer: str, x: Value, indices: Value, updates: Value) -> Value:
    numbers = p["dimension_numbers"]
    indexed, batching = numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims
    removed = {*numbers.inserted_window_dims, *batching}
    if not indexed or any(n == 0 for n in x.shape):
        raise Unsupported("nothing that is indexed")
    kept = [d for d in range(len(x.shape)) if d not in removed]
    of_updates = dict(zip(kept, numbers.update_window_dims))
    windows = _windows(x, {d: updates.shape[k] for d, k in of_updates.items()}, indexed)
    rows = _Rows(e, x, _plain(indices, len(indexed)), indexed, batching, numbers.scatter_indices_batching_dims, windows)
    row = rows.row
    if p["mode"] != GatherScatterMode.CLIP:  # what is out of range is dropped: behind the last row nothing is written
        behind = e.constant(rows.count, np.int64, rows.shape)
        row = e.emit("select", (rows.inside_of(rows.shape), row, behind), "", np.int64, rows.shape)
    batch = [d for d in range(len(updates.shape)) if d not in numbers.update_window_dims]
    updates = e.transpose(updates, [*batch, *(of_updates[d] for d in (*windows, *rows.whole))])
    made = e.emit("scatter", (rows.table, row, updates), f"axis = 0, reducer = {reducer}", x.dtype, rows.table.shape)
    return e.transpose(e.reshape(made, rows.turned), _inverse(rows.perm))


def along(e: Emitter, x: Value, index: Value, axis: int) -> Value:
    """x in another order along the axis, one for each row."""
    rank = len(x.shape)
    dims = [d for d in range(rank) if d != axis]
    indices = e.reshape(e.transpose(index, [*dims, axis]), (*(x.shape[d] for d in dims), x.shape[axis], 1))
    rows = _Rows(e, x, indices, [axis], dims, list(range(rank - 1)))
    flat = e.emit("gather", (rows.table, rows.row), "axis = 0", x.dtype, rows.shape)
    return e.transpose(flat, _inverse([*dims, axis]))
