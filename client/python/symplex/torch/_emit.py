"""The text of a program (docs/IR.md) while it is written: values have a name, an element type and a shape."""
from __future__ import annotations

import math
import struct
from typing import Any, Iterable, NamedTuple, Sequence

import sympy
import torch

TYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2", torch.int64: "i64", torch.int32: "i32",
         torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}
_NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")
_RANK_MAX = 8
OPERANDS_MAX = 64


class Unsupported(Exception):
    """What a program of symplex cannot say; the text names it."""


class Undescribed(Exception):
    """Why nothing is kept of a graph for other processes."""


class Value(NamedTuple):
    name: str
    dtype: str
    shape: tuple[Any, ...]

    @property
    def is_float(self) -> bool:
        return "f" in self.dtype


def type_of(dtype: Any) -> str:
    name = TYPES.get(dtype)
    if name is None:
        raise Unsupported(f"elements of {str(dtype).removeprefix('torch.')}")
    return name


def wide(dtype: str) -> str:
    """The type that PyTorch computes in where elements are of this one."""
    return "f32" if dtype in _NARROW else dtype


def number(value: Any) -> str:
    """A number as text: a float as all the bits of its double, where its decimal form would be none of the format's."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value) or math.isinf(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(float(value))


def rounded(value: float, dtype: str) -> float:
    """What a number is as an element: beyond the largest one it is an infinity."""
    if dtype == "f32" and math.isfinite(value):
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
    return float(value)


def extent_text(extent: Any) -> str:
    """A number, or a sum of products of numbers and symbols."""
    if isinstance(extent, int):
        return str(extent)
    try:
        polynomial = sympy.Poly(extent, *sorted(extent.free_symbols, key=str))
        terms = [(int(factor), powers) for powers, factor in polynomial.terms() if factor.is_integer]
    except (sympy.PolynomialError, AttributeError):
        terms = []
    if len(terms) == 0 or len(terms) != len(polynomial.terms()):
        raise Unsupported(f"an extent of {extent}")
    words = ["*".join([str(abs(factor)), *(str(s) for s, n in zip(polynomial.gens, powers) for _ in range(n))])
             for factor, powers in terms]
    signs = ["-" if factor < 0 else "+" for factor, _ in terms]
    return f"{'-' if signs[0] == '-' else ''}{words[0]}" + "".join(f" {s} {w}" for s, w in zip(signs[1:], words[1:]))


def plain(extent: Any) -> Any:
    """A number as Python's."""
    return int(extent) if getattr(extent, "is_Integer", False) else extent


class Emitter:
    def __init__(self, outer: "Emitter | None" = None) -> None:
        self._lines: list[str] = []
        self._count: list[int] = outer._count if outer is not None else [0]

    def emit_many(self, operation: str, operands: Sequence[Value], attributes: str,
                  types: Sequence[tuple[str, Sequence[Any]]]) -> list[Value]:
        values = []
        for dtype, shape in types:
            if len(shape) > _RANK_MAX:
                raise Unsupported(f"{len(shape)} dimensions, at most {_RANK_MAX}")
            self._count[0] += 1
            values.append(Value(f"%v{self._count[0]}", dtype, tuple(shape)))
        self._lines.append(
            f"{', '.join(v.name for v in values)} = {operation}"
            + (f"({', '.join(x.name for x in operands)})" if operands else "")
            + (f" {{{attributes}}}" if attributes else "")
            + " : " + ", ".join(f"{v.dtype}[{', '.join(map(extent_text, v.shape))}]" for v in values))
        return values

    def emit(self, operation: str, operands: Sequence[Value], attributes: str, dtype: str,
             shape: Sequence[Any]) -> Value:
        return self.emit_many(operation, operands, attributes, [(dtype, shape)])[0]

    def like(self, operation: str, *operands: Value, attributes: str = "", dtype: str | None = None) -> Value:
        """Element by element: all operands have the shape of the result."""
        return self.emit(operation, operands, attributes, dtype or operands[-1].dtype, operands[-1].shape)

    def parameter(self, name: str, dtype: str, shape: Sequence[Any], weight: bool = False) -> Value:
        """An argument of each call, or a weight, which is bound once."""
        return self.emit("parameter", (), f'name = "{name}", weight = {int(weight)}', dtype, shape)

    def constant(self, value: Any, dtype: str, shape: Sequence[Any] = ()) -> Value:
        """A number in all places of `shape`."""
        if dtype == "bool":
            value = bool(value)
        elif "f" in dtype:
            value = rounded(float(value), dtype)
        else:
            bits = 8 if dtype == "u8" else int(dtype[1:])
            low = 0 if dtype == "u8" else -(1 << (bits - 1))
            value = (int(value) - low) % (1 << bits) + low
        return self.emit("constant", (), f"data = {number(value)}", dtype, shape)

    def numbers(self, elements: Sequence[Any], dtype: str, shape: Sequence[int]) -> Value:
        """Each element by itself; of equal ones, one."""
        texts = [number(v) for v in elements]
        data = texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"
        return self.emit("constant", (), f"data = {data}", dtype, shape)

    def broadcast(self, x: Value, shape: Sequence[Any], dims: Sequence[int] | None = None) -> Value:
        """`dims` None: as NumPy does, the last dimensions are the same."""
        if x.shape == tuple(shape):
            return x
        dims = range(len(shape) - len(x.shape), len(shape)) if dims is None else dims
        return self.emit("broadcast_in_dim", (x,), f"dims = {ints(dims)}", x.dtype, shape)

    def reshape(self, x: Value, shape: Sequence[Any]) -> Value:
        return x if x.shape == tuple(shape) else self.emit("reshape", (x,), "", x.dtype, shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(len(x.shape))):
            return x
        return self.emit("transpose", (x,), f"perm = {ints(perm)}", x.dtype, [x.shape[d] for d in perm])

    def convert(self, x: Value, dtype: str) -> Value:
        if x.dtype == dtype:
            return x
        if dtype == "bool":
            return self.compare(x, "ne", self.constant(0, x.dtype, x.shape))
        return self.emit("convert", (x,), "", dtype, x.shape)

    def compare(self, x: Value, direction: str, y: Value | float) -> Value:
        y = y if isinstance(y, Value) else self.constant(y, x.dtype, x.shape)
        return self.like("compare", x, y, attributes=f"direction = {direction}", dtype="bool")

    def select(self, which: Value, yes: Value | float, no: Value | float) -> Value:
        some = yes if isinstance(yes, Value) else no
        assert isinstance(some, Value)
        yes, no = (v if isinstance(v, Value) else self.constant(v, some.dtype, some.shape) for v in (yes, no))
        return self.like("select", which, yes, no)

    def with_number(self, operation: str, x: Value, value: float) -> Value:
        return self.like(operation, x, self.constant(value, x.dtype, x.shape))

    def slice(self, x: Value, start: Sequence[Any], limit: Sequence[Any], stride: Sequence[int] | None = None) -> Value:
        start, limit, stride = list(start), list(limit), stride or [1] * len(start)
        for d, n in enumerate(x.shape):
            if not isinstance(n, int) and (start[d], limit[d]) != (0, n):
                if stride[d] != 1:
                    raise Unsupported("a slice with steps of a symbolic dimension")
                x = self.crop(x, d, start[d], limit[d] - start[d])
                start[d], limit[d] = 0, x.shape[d]
        if not x.shape or (not any(start) and list(limit) == list(x.shape) and all(s == 1 for s in stride)):
            return x
        # a dimension that is taken whole keeps its extent, whatever it is
        shape = [n if (a, b, s) == (0, n, 1) else max(0, -(-(b - a) // s))
                 for n, a, b, s in zip(x.shape, start, limit, stride)]
        ends = [b if isinstance(b, int) else -1 for b in limit]
        return self.emit("slice", (x,), f"start = {ints(start)}, limit = {ints(ends)}, stride = {ints(stride)}",
                         x.dtype, shape)

    def crop(self, x: Value, dim: int, start: Any, count: Any) -> Value:
        """`count` elements along a dimension, which may be symbols, from `start` on. Where this is no number but what
        is left behind is, it is counted from the end."""
        behind = plain(x.shape[dim] - start - count)
        origin, back = (behind, [dim]) if isinstance(behind, int) and not isinstance(start, int) else (start, [])
        origins = ", ".join(extent_text(origin if d == dim else 0) for d in range(len(x.shape)))
        return self.emit("crop", (x,), f"dims = {ints(back)}, origin = [{origins}]", x.dtype,
                         [plain(count) if d == dim else n for d, n in enumerate(x.shape)])

    def extent(self, n: Any) -> Value:
        """An extent as a number of the program, i64: one more than the last place along it."""
        if isinstance(n, int):
            return self.constant(n, "i64")
        last = self.crop(self.iota(0, "i64", (n,)), 0, n - 1, 1)
        return self.reshape(self.with_number("add", last, 1), ())

    def with_extent(self, operation: str, x: Value, n: Any) -> Value:
        """x and an extent that may be symbols, element by element."""
        return self.like(operation, x, self.broadcast(self.extent(n), x.shape))

    def pad(self, x: Value, value: float, low: Sequence[int], high: Sequence[int],
            interior: Sequence[int] | None = None) -> Value:
        interior = interior or [0] * len(low)
        for d, n in enumerate(x.shape):
            if not isinstance(n, int) and interior[d] == 0 and low[d] >= 0 and high[d] >= 0:  # borders around a symbol
                x = self.concatenate([x if width is None else
                                      self.constant(value, x.dtype, [*x.shape[:d], width, *x.shape[d + 1:]])
                                      for width in (low[d], None, high[d]) if width != 0], d)
                low, high = ([0 if k == d else width for k, width in enumerate(w)] for w in (low, high))
        if not any(low) and not any(high) and not any(interior):
            return x
        shape = [n if (a, b, i) == (0, 0, 0) else max(0, n + max(0, n - 1) * i + a + b)
                 for n, a, b, i in zip(x.shape, low, high, interior)]
        return self.emit("pad", (x, self.constant(value, x.dtype)),
                         f"low = {ints(low)}, high = {ints(high)}, interior = {ints(interior)}", x.dtype, shape)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        while len(parts) > 1:
            parts = [self._joined(parts[i:i + OPERANDS_MAX], axis) for i in range(0, len(parts), OPERANDS_MAX)]
        return parts[0]

    def _joined(self, parts: Sequence[Value], axis: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.emit("concatenate", parts, f"axis = {axis}", parts[0].dtype, shape)

    def reduce(self, x: Value, dims: Iterable[int], reducer: str, keep: bool = False) -> Value:
        dims = sorted(dims)
        made = x if not dims else self.emit("reduce", (x,), f"dims = {ints(dims)}, reducer = {reducer}", x.dtype,
                                            [n for d, n in enumerate(x.shape) if d not in dims])
        return self.reshape(made, [1 if d in dims else n for d, n in enumerate(x.shape)]) if keep else made

    def iota(self, axis: int, dtype: str, shape: Sequence[Any]) -> Value:
        return self.emit("iota", (), f"axis = {axis}", dtype, shape)

    def dot(self, a: Value, b: Value, left: Sequence[int], right: Sequence[int], batch: int = 0) -> Value:
        """The first `batch` dimensions of both go together; `left` and `right` are summed over."""
        attributes = f"lhs_contract = {ints(left)}, rhs_contract = {ints(right)}"
        if batch:
            attributes = f"lhs_batch = {ints(range(batch))}, rhs_batch = {ints(range(batch))}, {attributes}"
        shape = ([*a.shape[:batch]] + [n for d, n in enumerate(a.shape) if d >= batch and d not in left]
                 + [n for d, n in enumerate(b.shape) if d >= batch and d not in right])
        return self.emit("dot_general", (a, b), attributes, a.dtype, shape)

    def body(self, results: Sequence[Value]) -> str:
        lines = "\n".join(self._lines)
        return f"graph {{\n{lines}\nreturn " + ", ".join(f'{v.name} as "r{i}"' for i, v in enumerate(results)) + "\n}"

    def program(self, results: Sequence[Value], symbols: str = "") -> str:
        lines = "\n".join("    " + line for line in self._lines)
        names = ", ".join(f'{v.name} as "out{i}"' for i, v in enumerate(results))
        return f'sx 1\ngraph "torch" {symbols}{{\n{lines}\n    return {names}\n}}\n'


def ints(values: Iterable[Any]) -> str:
    return str([int(n) for n in values])
