"""The text of a program (docs/IR.md) while it is written: values have a name, an element type and a shape."""
from __future__ import annotations

import math
from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np

_TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
          "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
          "bool": "bool", "uint32": "i32"}
"""uint32 has no element type of its own: in a program it is its bits as i32, which have the same sums, products and
shifts. What depends on the order of numbers is computed of i64 (`Emitter.convert`, `_lower.ORDERED`)."""
_RANK_MAX = 8
_CONSTANT_BYTES_MAX = 16 << 20


class Unsupported(Exception):
    """What a program of symplex cannot say; the text names it."""


class Value(NamedTuple):
    name: str
    dtype: Any
    shape: tuple[int, ...]


def _element_type(dtype: Any) -> Any:
    """JAX has types that NumPy does not know, as those of keys."""
    try:
        return np.dtype(dtype)
    except TypeError:
        raise Unsupported(f"elements of {dtype}") from None


def type_text(dtype: Any, shape: Sequence[int]) -> str:
    name = _TYPES.get(str(dtype))
    if name is None:
        raise Unsupported(f"elements of {dtype}")
    if len(shape) > _RANK_MAX:
        raise Unsupported(f"{len(shape)} dimensions, at most {_RANK_MAX}")
    return f"{name}[{', '.join(str(int(n)) for n in shape)}]"


def ints(values: Iterable[Any]) -> str:
    """A list of an attribute: JAX has integers of NumPy's in some."""
    return str([int(n) for n in values])


class Emitter:
    """A program, or one inside of another. Names count on through all of them."""

    def __init__(self, outer: "Emitter | None" = None) -> None:
        self._lines: list[str] = []
        self._count: list[int] = outer._count if outer is not None else [0]
        # What is known of uint32, by name: a number that it is below; the fraction of which it is the bits of 1 to 2.
        self.below: dict[str, int] = {}
        self.fraction: dict[str, Value] = {}

    def _name(self) -> str:
        self._count[0] += 1
        return f"%v{self._count[0]}"

    def emit_many(self, operation: str, operands: Sequence[Value], attributes: str,
                  types: Sequence[tuple[Any, tuple[int, ...]]]) -> list[Value]:
        values = [Value(self._name(), _element_type(dtype), tuple(shape)) for dtype, shape in types]
        self._lines.append(
            f"{', '.join(v.name for v in values)} = {operation}"
            + (f"({', '.join(x.name for x in operands)})" if operands else "")
            + (f" {{{attributes}}}" if attributes else "")
            + f" : {', '.join(type_text(v.dtype, v.shape) for v in values)}")
        return values

    def emit(self, operation: str, operands: Sequence[Value], attributes: str, dtype: Any,
             shape: Sequence[int]) -> Value:
        return self.emit_many(operation, operands, attributes, [(dtype, tuple(shape))])[0]

    def like(self, operation: str, *operands: Value, attributes: str = "", dtype: Any = None) -> Value:
        """Element by element: all operands have the shape of the result."""
        return self.emit(operation, operands, attributes, dtype or operands[-1].dtype, operands[-1].shape)

    def parameter(self, name: str, dtype: Any, shape: Sequence[int]) -> Value:
        return self.emit("parameter", (), f'name = "{name}", weight = 0', dtype, shape)

    def constant(self, value: Any, dtype: Any, shape: Sequence[int] | None = None) -> Value:
        """An array; or one number in all places of `shape`."""
        array = np.asarray(value).astype(dtype)
        if array.nbytes > _CONSTANT_BYTES_MAX:
            raise Unsupported(f"a constant of {array.nbytes} bytes")
        type_text(array.dtype, array.shape)
        stored = array.view(np.int32) if array.dtype == np.uint32 else array
        data = "0" if array.size == 0 else f'"{stored.astype(stored.dtype.newbyteorder("<")).tobytes().hex()}"'
        made = self.emit("constant", (), f"data = {data}", array.dtype, array.shape)
        return made if shape is None or tuple(shape) == array.shape else self.broadcast(made, shape, ())

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        if x.shape == tuple(shape):
            return x
        return self.emit("broadcast_in_dim", (x,), f"dims = {ints(dims)}", x.dtype, shape)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.shape == tuple(shape) else self.emit("reshape", (x,), "", x.dtype, shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(len(x.shape))):
            return x
        return self.emit("transpose", (x,), f"perm = {ints(perm)}", x.dtype, [x.shape[d] for d in perm])

    def convert(self, x: Value, dtype: Any) -> Value:
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if dtype == np.dtype(bool):
            return self.like("compare", x, self.constant(0, x.dtype, x.shape), attributes="direction = ne", dtype=bool)
        if dtype == np.uint32 and x.dtype.kind in "iub":
            return self.convert(x, np.int32)._replace(dtype=dtype)
        if dtype == np.uint32:
            whole = self.convert(self.like("maximum", x, self.constant(0, x.dtype, x.shape)), np.int64)
            return self.convert(whole, dtype)
        if x.dtype == np.uint32:
            words = x._replace(dtype=np.dtype(np.int32))
            narrow = dtype.kind in "iu" and dtype.itemsize <= 4
            if narrow or self.below.get(x.name, math.inf) <= 1 << 31:
                return self.convert(words, dtype)
            low = self.constant(0xFFFFFFFF, np.int64, x.shape)
            return self.convert(self.like("and", self.convert(words, np.int64), low), dtype)
        return self.emit("convert", (x,), "", dtype, x.shape)

    def slice(self, x: Value, start: Sequence[int], limit: Sequence[int], stride: Sequence[int]) -> Value:
        shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(start, limit, stride))
        if not shape:
            return x
        return self.emit("slice", (x,), f"start = {ints(start)}, limit = {ints(limit)}, stride = {ints(stride)}",
                         x.dtype, shape)

    def body(self, results: Sequence[Value]) -> str:
        lines = "\n".join(self._lines)
        return f"graph {{\n{lines}\nreturn " + ", ".join(f'{v.name} as "r{i}"' for i, v in enumerate(results)) + "\n}"

    def program(self, results: Sequence[Value]) -> str:
        lines = "\n".join("    " + line for line in self._lines)
        names = ", ".join(f'{v.name} as "out{i}"' for i, v in enumerate(results))
        return f'sx 1\ngraph "jax" {{\n{lines}\n    return {names}\n}}\n'
