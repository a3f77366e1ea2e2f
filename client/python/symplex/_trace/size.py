"""Extents: numbers, sums of products of symbols (docs/IR.md), and typed axes, whose names must not meet."""
from __future__ import annotations

import itertools
import math
import os
import re
import sys
import types
from typing import Any, Callable, Iterable, Mapping

from symplex._errors import Error

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLAIN = frozenset((int,))
_INSIDE: dict[str, bool] = {}
"""Whether a file of code is ours or NumPy's: each value of a trace asks for the line it comes from."""
_TOGETHER: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
"""The shapes of numbers that were broadcast, and what came out."""
_TOGETHER_MAX = 4096


class TraceError(Error, TypeError):
    """A traced function does what a program cannot: it asks for elements, changes an array, mixes axes. The text has
    file and line."""


def _is_inside(file: str) -> bool:
    import numpy
    found = _INSIDE[file] = os.path.abspath(file).startswith((_HERE, os.path.dirname(os.path.abspath(numpy.__file__))))
    return found


def _outside(depth: int) -> types.FrameType:
    """The innermost frame from `depth` on that is neither ours nor NumPy's."""
    frame = sys._getframe(depth + 1)
    while True:
        file = frame.f_code.co_filename
        inside = _INSIDE.get(file)
        back = frame.f_back
        if back is None or not (_is_inside(file) if inside is None else inside):
            return frame
        frame = back


def place() -> str:
    """The innermost line that is neither ours nor NumPy's."""
    frame = _outside(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def instruction(depth: int) -> tuple[types.CodeType, int]:
    """The same, from a frame on, as what is had at once: a code and the place in it."""
    frame = sys._getframe(depth + 1)
    while _INSIDE.get(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_filename not in _INSIDE:
        frame = _outside(depth + 1)
    return frame.f_code, frame.f_lasti


def place_of(code: types.CodeType, at: int) -> str:
    """What `place` says of an instruction."""
    line = next(itertools.islice(code.co_positions(), at // 2, None))[0]
    return f"{code.co_filename}:{line}"


class Axis:
    """A typed axis: arrays whose dimensions carry different axes do not meet. With `low` and `high` its extent is
    symbolic: one program for all of them."""

    def __init__(self, name: str, low: int | None = None, high: int | None = None) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise ValueError(f"axis: a name of letters, digits, '_' and '.' is needed, not {name!r}")
        if (low is None) != (high is None) or (low is not None and not 1 <= low <= (high or 0)):
            raise ValueError(f"axis {name}: an interval is 1 <= low <= high, not {low}, {high}")
        self.name, self.low, self.high = name, low, high

    def __repr__(self) -> str:
        return f"axis({self.name!r})" if self.low is None else f"axis({self.name!r}, {self.low}, {self.high})"


def axis(name: str, low: int | None = None, high: int | None = None) -> Axis:
    """A typed axis for `jit(function, shapes={"x": (batch, 784)})`. Dimensions of different axes that meet in an
    operation are a TraceError that names both, with file and line. With an interval the axis is a symbolic
    dimension."""
    return Axis(name, low, high)


class AxisExtent(int):
    """An extent that is a number, and whose axis has a name. Arithmetic gives plain numbers."""

    axis: str

    def __new__(cls, value: int, name: str) -> "AxisExtent":
        made = super().__new__(cls, value)
        made.axis = name
        return made


class Size:
    """A sum of products of symbols. What depends on its value raises TraceError and names it."""

    __slots__ = ("terms", "bounds")

    def __init__(self, terms: Mapping[tuple[str, ...], int], bounds: Mapping[str, tuple[int, int]]) -> None:
        self.terms, self.bounds = dict(terms), bounds

    def __str__(self) -> str:
        def term(symbols: tuple[str, ...], factor: int) -> str:
            parts = ([str(abs(factor))] if abs(factor) != 1 or not symbols else []) + list(symbols)
            return "*".join(parts)
        rows = sorted(self.terms.items(), key=lambda row: (not row[0], row[0]))
        text = "".join((" - " if factor < 0 else " + ") + term(symbols, factor) for symbols, factor in rows)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __repr__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and other.terms == self.terms

    def range(self) -> tuple[int, int]:
        """The least and the largest value that its terms allow."""
        low = high = 0
        for symbols, factor in self.terms.items():
            least = math.prod(self.bounds[s][0] for s in symbols) * factor
            most = math.prod(self.bounds[s][1] for s in symbols) * factor
            low, high = low + min(least, most), high + max(least, most)
        return low, high

    def value(self, values: Mapping[str, int]) -> int:
        return sum(factor * math.prod(values[s] for s in symbols) for symbols, factor in self.terms.items())

    def _with(self, other: Any, combine: Callable[[dict[Any, int], dict[Any, int]], dict[Any, int]]) -> Any:
        if isinstance(other, Size):
            return _made(combine(self.terms, other.terms), {**self.bounds, **other.bounds})
        if isinstance(other, int):
            return _made(combine(self.terms, {(): int(other)}), self.bounds)
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}})

    def __mul__(self, other: Any) -> Any:
        def product(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
            made: dict[Any, int] = {}
            for left, p in a.items():
                for right, q in b.items():
                    key = tuple(sorted(left + right))
                    made[key] = made.get(key, 0) + p * q
            return made
        return self._with(other, product)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if isinstance(other, (int, Size)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __floordiv__(self, other: Any) -> Any:
        made = quotient(self, other)
        if made is None:
            raise TraceError(f"{self} // {other} is no sum of products of dimensions ({place()})")
        return made

    def __mod__(self, other: Any) -> Any:
        if quotient(self, other) is not None:
            return 0
        raise TraceError(f"{self} % {other} depends on the value of {self} ({place()})")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def _compare(self, other: Any, what: str, test: Callable[[int], bool]) -> bool:
        difference = self - other
        low, high = (difference, difference) if isinstance(difference, int) else difference.range()
        if test(low) and test(high):
            return True
        if not test(low) and not test(high):
            return False
        raise TraceError(f"{self} {what} {other} depends on the values of dimensions: {self} is between "
                         f"{self.range()[0]} and {self.range()[1]} ({place()})")

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<", lambda d: d < 0)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "<=", lambda d: d <= 0)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, ">", lambda d: d > 0)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, ">=", lambda d: d >= 0)

    def __bool__(self) -> bool:
        low, high = self.range()
        return True if low > 0 or high < 0 else self._refuse("the truth")

    def _refuse(self, what: str = "a number") -> Any:
        raise TraceError(f"{what} of the dimension {self}, which is symbolic: between {self.range()[0]} and "
                         f"{self.range()[1]} ({place()})")

    def __index__(self) -> int:
        return self._refuse()

    def __float__(self) -> float:
        return self._refuse()

    __int__ = __index__
    __truediv__ = __rtruediv__ = __pow__ = __rfloordiv__ = __rmod__ = lambda self, other: self._refuse()


Extent = Any
"""A number or a Size."""


def _made(terms: dict[Any, int], bounds: Mapping[str, tuple[int, int]]) -> Extent:
    terms = {symbols: factor for symbols, factor in terms.items() if factor != 0}
    return Size(terms, bounds) if any(terms) else terms.get((), 0)


def quotient(a: Extent, b: Any) -> Extent | None:
    """a / b where that is a sum of products; None: it is not."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b != 0 and a % b == 0 else None
    if isinstance(b, int):
        b = Size({(): int(b)}, {})
    if isinstance(a, int) or not isinstance(b, Size):
        return 0 if a == 0 else None
    if a == b:
        return 1
    if len(b.terms) != 1:
        return _long_quotient(a, b)
    ((symbols, factor),) = b.terms.items()
    made: dict[tuple[str, ...], int] = {}
    for term, n in a.terms.items():
        left = list(term)
        for s in symbols:
            if s not in left:
                return None
            left.remove(s)
        if factor == 0 or n % factor != 0:
            return None
        made[tuple(left)] = n // factor
    return _made(made, a.bounds)


def _long_quotient(a: Size, b: Size) -> Extent | None:
    """Of sums: long division by the leading term; a quotient has at most as many terms as the dividend."""
    def leading(size: Size) -> tuple[str, ...]:
        return max(size.terms, key=lambda term: (len(term), term))
    top = Size({leading(b): b.terms[leading(b)]}, b.bounds)
    rest: Extent = a
    made: Extent = 0
    for _ in range(len(a.terms) * 4):
        if not isinstance(rest, Size):
            break
        part = quotient(Size({leading(rest): rest.terms[leading(rest)]}, rest.bounds), top)
        if part is None:
            return None
        made, rest = made + part, rest - part * b
    return made if rest == 0 and isinstance(rest, int) else None


def parse(text: str, bounds: Mapping[str, tuple[int, int]]) -> Extent:
    """An extent as text: 4, batch, 2*batch - 1."""
    made: Extent = 0
    for sign, product in re.findall(r"\s*([+-]?)\s*([^+-]+)", text):
        part: Extent = -1 if sign == "-" else 1
        for word in product.split("*"):
            word = word.strip().strip('"')
            if word.isdigit():
                part = part * int(word)
            elif word in bounds:
                part = part * Size({(word,): 1}, bounds)
            else:
                raise ValueError(f"the dimension '{word}' of the extent '{text}' has no interval: "
                                 f"dims={{'{word}': (low, high)}} gives one")
        made = made + part
    return made


def count(shape: Iterable[Extent]) -> Extent:
    made: Extent = 1
    for n in shape:
        made = made * n
    return made


def same(a: Extent, b: Extent) -> bool:
    """Equal for all values of symbols; different axes are never the same."""
    return a == b and not _apart(a, b)


def _apart(a: Extent, b: Extent) -> bool:
    return isinstance(a, AxisExtent) and isinstance(b, AxisExtent) and a.axis != b.axis


def named(n: Extent) -> str:
    return f"axis {n.axis} ({int(n)})" if isinstance(n, AxisExtent) else str(n)


def texts(shape: Iterable[Extent]) -> str:
    parts = [n.axis if isinstance(n, AxisExtent) else str(n) for n in shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def meet(a: Extent, b: Extent, what: Any, shapes: Iterable[Iterable[Extent]]) -> Extent:
    """The one extent of two dimensions that must be the same."""
    if _apart(a, b) or (a != b and not (isinstance(a, int) and isinstance(b, int))):
        raise TraceError(f"{what}: {named(a)} meets {named(b)}; the shapes are "
                         f"{' and '.join(texts(s) for s in shapes)} ({place()})")
    if a != b:
        raise ValueError(f"{what} of shapes {' and '.join(texts(s) for s in shapes)}: {a} is not {b} ({place()})")
    return a if isinstance(a, AxisExtent) else b


def plain(shape: Iterable[Extent]) -> bool:
    """Numbers alone, without symbols and axes."""
    return _PLAIN.issuperset(map(type, shape))


def broadcast(shapes: list[tuple[Extent, ...]], what: Any) -> tuple[Extent, ...]:
    """As NumPy's: extents of 1 are repeated, and missing ones in front are 1."""
    if not all(map(plain, shapes)):
        return _broadcast(shapes, what)
    key = tuple(shapes)
    made = _TOGETHER.get(key)
    if made is None:
        if len(_TOGETHER) >= _TOGETHER_MAX:
            _TOGETHER.clear()
        made = _TOGETHER[key] = _broadcast(shapes, what)
    return made


def _broadcast(shapes: list[tuple[Extent, ...]], what: Any) -> tuple[Extent, ...]:
    rank = max((len(shape) for shape in shapes), default=0)
    made: list[Extent] = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if type(n) is int and n == 1:
                continue
            if isinstance(n, int) and n == 1:
                made[d] = n if isinstance(n, AxisExtent) and isinstance(made[d], int) and made[d] == 1 else made[d]
            elif isinstance(made[d], int) and made[d] == 1:
                made[d] = n
            else:
                made[d] = meet(made[d], n, what, shapes)
    return tuple(made)
