"""JAX's gather and scatter in the forms that have a row for each index: dimensions are either indexed one element at a
time or taken whole. All indexed ones become one, along which docs/IR.md gathers and scatters."""
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
    """x as a table: a row for each place of its indexed dimensions; and the indices as numbers of rows."""

    def __init__(self, e: Emitter, x: Value, indices: Value, indexed: Sequence[int], batching: Sequence[int],
                 of_batching: Sequence[int]) -> None:
        self.e = e
        self.shape = indices.shape[:-1]  # of the indices, the last dimension of which is one row of the table
        self.dims = sorted([*indexed, *batching])
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
            part = (self._of_batch(indices, of_batching[list(batching).index(d)]) if d in batching
                    else self._of_column(indices, list(indexed).index(d), x.shape[d]))
            scaled = e.like("multiply", part, e.constant(stride, np.int64, self.shape))
            self.row = scaled if self.row is None else e.like("add", self.row, scaled)

    def _of_batch(self, indices: Value, dim: int) -> Value:
        return self.e.emit("iota", (), f"axis = {dim}", np.int64, self.shape)

    def _of_column(self, indices: Value, column: int, extent: int) -> Value:
        e, rank = self.e, len(indices.shape)
        start = [0] * (rank - 1) + [column]
        one = e.reshape(e.slice(indices, start, [*self.shape, column + 1], [1] * rank), self.shape)
        one = e.convert(one, np.int64)
        inside = e.like("and", _compare(e, one, "ge", 0), _compare(e, one, "lt", extent))
        self.inside = inside if self.inside is None else e.like("and", self.inside, inside)
        zero, last = e.constant(0, np.int64, self.shape), e.constant(max(0, extent - 1), np.int64, self.shape)
        return e.like("minimum", e.like("maximum", one, zero), last)


def _plain(indices: Value, columns: int) -> Value:
    if len(indices.shape) == 0 or indices.shape[-1] != columns:
        raise Unsupported("indices of another form")
    return indices


def gather(e: Emitter, p: Any, aval: Any, x: Value, indices: Value) -> Value:
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    indexed, batching = numbers.start_index_map, numbers.operand_batching_dims
    removed = {*numbers.collapsed_slice_dims, *batching}
    if {*indexed, *batching} != removed or any(n != x.shape[d] for d, n in enumerate(sizes) if d not in removed):
        raise Unsupported("slices that begin at an index")
    if not indexed or any(n == 0 for n in x.shape):
        raise Unsupported("nothing that is indexed")
    rows = _Rows(e, x, _plain(indices, len(indexed)), indexed, batching, numbers.start_indices_batching_dims)
    shape = (*rows.shape, *rows.table.shape[1:])
    made = e.emit("gather", (rows.table, rows.row), "axis = 0", x.dtype, shape)
    if p["mode"] == GatherScatterMode.FILL_OR_DROP:
        fill = p["fill_value"]
        if fill is None:
            fill = np.nan if x.dtype.kind not in "iub" else np.iinfo(x.dtype).min if x.dtype.kind == "i" else \
                True if x.dtype.kind == "b" else np.iinfo(x.dtype).max
        inside = e.broadcast(rows.inside, shape, range(len(rows.shape)))
        made = e.emit("select", (inside, made, e.constant(fill, x.dtype, shape)), "", x.dtype, shape)
    # in `made` the indices come first; in JAX's result they stand where offset_dims are not
    rank = len(shape)
    batch = [d for d in range(rank) if d not in numbers.offset_dims]
    return e.transpose(made, _inverse([*batch, *numbers.offset_dims]))


def scatter(e: Emitter, p: Any, reducer: str, x: Value, indices: Value, updates: Value) -> Value:
    numbers = p["dimension_numbers"]
    indexed, batching = numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims
    if {*indexed, *batching} != {*numbers.inserted_window_dims, *batching} or not indexed:
        raise Unsupported("updates that begin at an index")
    rows = _Rows(e, x, _plain(indices, len(indexed)), indexed, batching, numbers.scatter_indices_batching_dims)
    window = numbers.update_window_dims
    if tuple(updates.shape[d] for d in window) != rows.table.shape[1:] or any(n == 0 for n in x.shape):
        raise Unsupported("updates of a part of a row")
    row = rows.row
    if p["mode"] != GatherScatterMode.CLIP:  # what is out of range is dropped: behind the last row nothing is written
        behind = e.constant(rows.count, np.int64, rows.shape)
        row = e.emit("select", (rows.inside, row, behind), "", np.int64, rows.shape)
    batch = [d for d in range(len(updates.shape)) if d not in window]
    updates = e.transpose(updates, [*batch, *window])
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
