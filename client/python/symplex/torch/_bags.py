"""Bags of rows of a table (nn.EmbeddingBag): sums and means. Bags are found by their offsets in both directions, and
what PyTorch keeps for its own backward form is made only where somebody reads it."""
from __future__ import annotations

from typing import Any, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value
from symplex.torch._index import scattered
from symplex.torch._order import searched
from symplex.torch._table import Type, handles, widened

_SUM, _MEAN = 0, 1


class _Bags:
    def __init__(self, e: Emitter, indices: Value, offsets: Value, count: int, mode: int, padding: int) -> None:
        if mode not in (_SUM, _MEAN):
            raise Unsupported("the largest of a bag")
        if not all(isinstance(n, int) for n in (*indices.shape, count)) or 0 in (*indices.shape, count):
            raise Unsupported("bags of a symbolic number, or none")
        self.e, self.indices, self.mode, self.padding = e, e.convert(indices, "i64"), mode, padding
        places = indices.shape
        starts = e.slice(e.convert(offsets, "i64"), [0], [count])
        behind = searched(e, Type("i64", places), starts, e.iota(0, "i64", places), True, None)
        self.of = e.with_number("subtract", behind, 1)  # the bag of each place
        self.is_counted = e.compare(self.indices, "ne", padding)
        ones = e.convert(self.is_counted, "i64")
        self.sizes = scattered(e, e.constant(0, "i64", (count,)), self.of, ones, "add")

    def rows(self, table: Value, at: Value) -> Value:
        return self.e.emit("gather", (table, at), "axis = 0", table.dtype, (*at.shape, *table.shape[1:]))

    def shared(self, x: Value) -> Value:
        """Of each bag, divided by its size where means are wanted; an empty one is zeros."""
        if self.mode == _SUM:
            return x
        sizes = self.e.convert(self.e.with_number("maximum", self.sizes, 1), x.dtype)
        return self.e.like("divide", x, self.e.broadcast(sizes, x.shape, [0]))

    def weighed(self, rows: Value, weights: Value | None) -> Value:
        if weights is None:
            return rows
        return self.e.like("multiply", rows, self.e.broadcast(self.e.convert(weights, rows.dtype), rows.shape, [0]))


@handles("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(e: Emitter, out: list[Type], table: Value, indices: Value, offsets: Value,
                   by_frequency: bool = False, mode: int = 0, sparse: bool = False, weights: Value | None = None,
                   include_last_offset: bool = False, padding: int = -1, *,
                   wanted: Sequence[bool]) -> list[Value | None]:
    bags = _Bags(e, indices, offsets, out[0].shape[0], mode, padding)
    rows = bags.weighed(bags.rows(widened(e, table), bags.indices), weights)
    if padding >= 0:
        rows = e.select(e.broadcast(bags.is_counted, rows.shape, [0]), rows, 0.0)
    sums = scattered(e, e.constant(0, rows.dtype, out[0].shape), bags.of, rows, "add")
    kept = [e.convert(v, t.dtype) if v.shape == t.shape else e.constant(0, t.dtype, t.shape)
            for v, t in zip((bags.of, bags.sizes), out[1:])] + [e.constant(0, out[3].dtype, out[3].shape)]
    return [e.convert(bags.shared(sums), out[0].dtype), *(v if w else None for v, w in zip(kept, wanted[1:]))]


@handles("_embedding_bag_backward")
def _embedding_bag_backward(e: Emitter, out: Type, slope: Value, indices: Value, offsets: Value, bag_of: Value,
                            sizes: Value, largest: Value, count: int, by_frequency: bool, mode: int, sparse: bool,
                            weights: Value | None, padding: int = -1) -> Value:
    if by_frequency:
        raise Unsupported("slopes scaled by frequency")
    bags = _Bags(e, indices, offsets, slope.shape[0], mode, padding)
    rows = bags.weighed(bags.rows(bags.shared(widened(e, slope)), bags.of), weights)
    # behind the last row nothing is written
    at = e.select(bags.is_counted, bags.indices, e.constant(count, "i64", bags.indices.shape))
    return e.convert(scattered(e, e.constant(0, rows.dtype, out.shape), at, rows, "add"), out.dtype)


@handles("_embedding_bag_per_sample_weights_backward")
def _weights_backward(e: Emitter, out: Type, slope: Value, table: Value, indices: Value, offsets: Value, bag_of: Value,
                      mode: int, padding: int = -1) -> Value:
    bags = _Bags(e, indices, offsets, slope.shape[0], mode, padding)
    rows = e.like("multiply", bags.rows(widened(e, slope), bags.of), bags.rows(widened(e, table), bags.indices))
    made = e.reduce(rows, [1], "add")
    return e.convert(e.select(bags.is_counted, made, 0.0), out.dtype)
