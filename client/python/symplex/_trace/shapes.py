"""Shapes of arguments as a caller of `jit` gives them: names of dimensions, typed axes, numbers, None."""
from __future__ import annotations

import math
from typing import Any, Mapping

from symplex._errors import ShapeError
from symplex._trace.size import Axis, AxisExtent, Size, parse


class Patterns:
    """`shapes` and `dims` of `jit`."""

    def __init__(self, shapes: Mapping[str, Any] | None, dims: Mapping[str, Any] | None) -> None:
        self.rows = {name: (row,) if isinstance(row, (str, int, Axis)) else tuple(row)
                     for name, row in (shapes or {}).items()}
        self.bounds: dict[str, tuple[int, int]] = {}
        for name, bounds in (dims or {}).items():
            if not (isinstance(bounds, tuple) and len(bounds) == 2 and all(type(n) is int for n in bounds)
                    and 1 <= bounds[0] <= bounds[1]):
                raise ValueError(f"dims: {name} = {bounds!r}; an interval is a tuple (low, high), 1 <= low <= high")
            self.bounds[name] = bounds
        for name, row in self.rows.items():
            for n in row:
                if isinstance(n, Axis) and n.low is not None and n.high is not None:
                    self.bounds[n.name] = n.low, n.high
                elif not (n is None or isinstance(n, (str, Axis)) or (type(n) is int and n >= 0)):
                    raise ValueError(f"shapes: {name} has {n!r}; a dimension is a number, None (any), the name of a "
                                     f"dimension, or an axis")
        used = {s for name, row in self.rows.items() for n in row for s in self._symbols(name, n)}
        unused = sorted(set(self.bounds) - used)
        if unused:
            raise ValueError(f"dims: {', '.join(unused)}: no shape of `shapes` names it")

    def _extent(self, n: Any) -> Any:
        return parse(n.name if isinstance(n, Axis) else n, self.bounds)

    def _symbols(self, name: str, n: Any) -> set[str]:
        if n is None or isinstance(n, int) or (isinstance(n, Axis) and n.name not in self.bounds):
            return set()
        made = self._extent(n)
        return {s for symbols in made.terms for s in symbols} if isinstance(made, Size) else set()

    def resolve(self, leaves: list[tuple[str, Any]]) -> list[tuple[Any, ...]]:
        """The shape of each argument as it is traced. Raises ShapeError where a given one does not fit."""
        given = dict(leaves)
        for name in self.rows:
            if name not in given:
                raise ShapeError(f"shapes: '{name}' is no array among the arguments {', '.join(given) or '(none)'}")
        values: dict[str, tuple[int, str]] = {}
        for name, row in self.rows.items():
            self._rank(name, row, given[name].shape)
            for d, n in enumerate(row):
                self._learn(name, d, n, given[name].shape[d], values)
        while any([self._learn_of_sum(name, n, given[name].shape[d], values)
                   for name, row in self.rows.items() for d, n in enumerate(row)]):
            pass
        return [self._shape(name, x.shape, values) for name, x in leaves]

    def _rank(self, name: str, row: tuple[Any, ...], shape: tuple[int, ...]) -> None:
        if len(row) != len(shape):
            raise ShapeError(f"argument '{name}': its shape is {shape}, needed is {self._text(row)}")

    @staticmethod
    def _text(row: tuple[Any, ...]) -> str:
        return "(" + ", ".join("any" if n is None else n.name if isinstance(n, Axis) else str(n) for n in row) + ")"

    def _learn(self, name: str, d: int, n: Any, value: int, values: dict[str, tuple[int, str]]) -> None:
        """What single names and multiples of them say."""
        if isinstance(n, int):
            if value != n:
                raise ShapeError(f"argument '{name}': dimension {d} is {value}, needed is {n}")
            return
        if n is None:
            return
        if isinstance(n, Axis) and n.name not in self.bounds:
            self._agree(n.name, value, name, values)
            return
        made = self._extent(n)
        if isinstance(made, Size) and len(made.terms) == 1:
            ((symbols, factor),) = made.terms.items()
            if len(symbols) == 1:
                if value % factor:
                    raise ShapeError(f"argument '{name}': dimension {d} is {value}, needed is a multiple of {factor} "
                                     f"({made})")
                self._agree(symbols[0], value // factor, name, values)

    def _learn_of_sum(self, name: str, n: Any, value: int, values: dict[str, tuple[int, str]]) -> bool:
        """The one symbol of a sum or product that has no value yet gets that which makes it `value`, if one does."""
        unknown = self._symbols(name, n) - set(values)
        if len(unknown) != 1:
            return False
        (symbol,) = unknown
        rest, factor = value, 0
        for symbols, k in self._extent(n).terms.items():
            number = k * math.prod(values[s][0] for s in symbols if s != symbol)
            if symbols.count(symbol) > 1:
                return False
            if symbol in symbols:
                factor += number
            else:
                rest -= number
        if factor == 0 or rest % factor != 0 or rest // factor < 1:
            return False
        self._agree(symbol, rest // factor, name, values)
        return True

    def _agree(self, symbol: str, value: int, name: str, values: dict[str, tuple[int, str]]) -> None:
        low, high = self.bounds.get(symbol, (0, value))
        if not low <= value <= high:
            raise ShapeError(f"argument '{name}': the dimension {symbol} is {value}, allowed are {low} to {high}")
        before = values.setdefault(symbol, (value, name))
        if before[0] != value:
            raise ShapeError(f"argument '{name}': the dimension {symbol} is {value}, in '{before[1]}' it is "
                             f"{before[0]}")

    def _shape(self, name: str, shape: tuple[int, ...], values: dict[str, tuple[int, str]]) -> tuple[Any, ...]:
        made: list[Any] = []
        for d, (n, value) in enumerate(zip(self.rows.get(name, shape), shape)):
            if n is None or isinstance(n, int):
                made.append(value)
            elif isinstance(n, Axis) and n.name not in self.bounds:
                made.append(AxisExtent(value, n.name))
            else:
                extent = self._extent(n)
                missing = sorted(self._symbols(name, n) - set(values))
                if missing:
                    raise ShapeError(f"argument '{name}': dimension {d} is {extent}, and no argument tells "
                                     f"{', '.join(missing)} alone")
                wanted = extent.value({s: v for s, (v, _) in values.items()}) if isinstance(extent, Size) else extent
                if wanted != value:
                    told = ", ".join(f"{s} = {values[s][0]} (argument '{values[s][1]}')"
                                     for s in sorted(self._symbols(name, n)))
                    raise ShapeError(f"argument '{name}': dimension {d} is {value}, needed is {extent} = {wanted}, "
                                     f"where {told}")
                made.append(extent)
        return tuple(made)
