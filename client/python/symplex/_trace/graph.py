"""Programs while they are traced: nodes in order, programs inside of programs, and their text (docs/IR.md)."""
from __future__ import annotations

import functools
import threading
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from symplex._device import on_gpu
from symplex._errors import Unimplemented
from symplex._trace.size import Extent, Size, TraceError, place

_TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
          "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
          "bool": "bool"}
CONSTANT_BYTES_MAX = 16 << 20
_WEIGHT_SIZE_MIN = 1024  # elements of an array that is bound to a module rather than written into its program
RANK_MAX = 8
_OF_HOST = frozenset((np.ndarray, float, int, bool))


def dtype_of(word: str) -> np.dtype:
    """The element type of a program as NumPy has it."""
    name = next(name for name, short in _TYPES.items() if short == word)
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


_words: dict[np.dtype, str] = {}  # what _TYPES says of element types that were asked for: their names are made anew


@functools.lru_cache(1024)
def type_text(dtype: np.dtype, shape: tuple[Extent, ...]) -> str:
    word = _words.get(dtype)
    if word is None:
        if dtype.name not in _TYPES:
            raise Unimplemented(f"elements of {dtype.name} ({place()})")
        word = _words[dtype] = _TYPES[dtype.name]
    if len(shape) > RANK_MAX:
        raise Unimplemented(f"{len(shape)} dimensions, at most {RANK_MAX} ({place()})")
    return f"{word}[{', '.join([str(n) if isinstance(n, Size) else str(int(n)) for n in shape])}]"


class Value:
    """One result of a node. `type` is the text of its element type and shape."""

    __slots__ = ("_graph", "dtype", "shape", "type")

    def __init__(self, graph: "Graph", dtype: np.dtype, shape: tuple[Extent, ...]) -> None:
        self._graph, self.dtype, self.shape = graph, dtype, shape
        self.type = type_text(dtype, shape)

    @property
    def origin(self) -> str:
        """The line that made it; empty: not known."""
        return ""


class Node:
    """An operation. Attributes are numbers, lists, words as the text has them, arrays (of constants) and programs."""

    __slots__ = ("operation", "inputs", "attributes", "results")

    def __init__(self, operation: str, inputs: tuple[Any, ...], attributes: dict[str, Any], results: list[Any]) -> None:
        self.operation, self.inputs, self.attributes, self.results = operation, inputs, attributes, results


class Stack(threading.local):
    """The programs that are being traced in this thread, the innermost last."""

    graphs: list["Graph"]

    def __init__(self) -> None:
        self.graphs = []


_STACK = Stack()
MAKE: list[Callable[..., Any]] = [Value]
"""What makes a value; tracing puts its own class here."""


def current() -> "Graph | None":
    return _STACK.graphs[-1] if _STACK.graphs else None


class Graph:
    """A program. One inside of another takes values of the outer ones as further parameters: `captures`."""

    def __init__(self, name: str = "traced") -> None:
        self.name, self.nodes, self.open = name, [], False
        self.parameters: list[Any] = []
        self.captures: dict[int, tuple[Any, Any]] = {}
        self.outer: Graph | None = None
        self.outputs: list[Any] = []
        self.roles: dict[str, str] = {}  # donated parameters, and what goes into them
        self._numbers: dict[Any, Any] = {}  # values of constants without dimensions, by types and bytes
        self._filled: dict[Any, Any] = {}  # such values in shapes of numbers, by ids and shapes

    def __enter__(self) -> "Graph":
        self.outer, self.open = current(), True
        _STACK.graphs.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _STACK.graphs.pop()
        self.open = False

    nodes: list[Node]

    def value(self, dtype: Any, shape: Iterable[Extent]) -> Any:
        return MAKE[0](self, np.dtype(dtype), tuple(shape))

    def parameter(self, dtype: Any, shape: Iterable[Extent]) -> Any:
        made = self.value(dtype, shape)
        self.parameters.append(made)
        return made

    def take(self, x: Any) -> Any:
        """A value of this program for one of this or of an outer program."""
        if x._graph is self:
            return x
        known = self.captures.get(id(x))
        if known is not None:
            return known[1]
        outer = self.outer
        while outer is not None and outer is not x._graph:
            outer = outer.outer
        if outer is None:
            raise TraceError(f"a value of another traced function is used{x.origin and ', made at ' + x.origin} "
                             f"({place()})\nWhat a traced function makes leaves it as a result only.")
        made = self.value(x.dtype, x.shape)
        self.captures[id(x)] = x, made
        return made

    def many(self, operation: str, inputs: Sequence[Any], attributes: dict[str, Any],
             types: Sequence[tuple[Any, Iterable[Extent]]]) -> list[Any]:
        results = [MAKE[0](self, dtype if isinstance(dtype, np.dtype) else np.dtype(dtype), tuple(shape))
                   for dtype, shape in types]
        operands = tuple([x if x._graph is self else self.take(x) for x in inputs])
        self.nodes.append(Node(operation, operands, attributes, results))
        return results

    def emit(self, operation: str, inputs: Sequence[Any], attributes: dict[str, Any], dtype: Any,
             shape: Iterable[Extent]) -> Any:
        made = MAKE[0](self, dtype if isinstance(dtype, np.dtype) else np.dtype(dtype), tuple(shape))
        for x in inputs:
            if x._graph is not self:
                inputs = [self.take(x) for x in inputs]
                break
        self.nodes.append(Node(operation, tuple(inputs), attributes, [made]))
        return made

    def filled(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A value without dimensions, at every place of a shape of numbers; one node, however often it is asked for."""
        x = self.take(x)
        made = self._filled.get((id(x), shape))
        if made is None:
            made = self._filled[id(x), shape] = self.emit("broadcast_in_dim", (x,), {"dims": []}, x.dtype, shape)
        return made

    def constant(self, value: Any, dtype: Any = None) -> Any:
        if type(value) not in _OF_HOST and on_gpu(value, "constant") is not None:
            raise Unimplemented(f"an array on a GPU that is no argument: give it as one ({place()})")
        array = np.asarray(value, dtype)
        if array.dtype.kind in "OSUV" and array.dtype.name not in _TYPES:
            raise TraceError(f"a value of type {type(value).__name__} is no array of numbers ({place()})")
        if array.nbytes > CONSTANT_BYTES_MAX:
            raise Unimplemented(f"a constant of {array.nbytes} bytes, at most {CONSTANT_BYTES_MAX}: give the array as "
                                f"an argument ({place()})")
        if array.shape:
            return self.emit("constant", (), {"data": array}, array.dtype, array.shape)
        key = array.dtype, array.tobytes()
        made = self._numbers.get(key)
        if made is None:
            made = self._numbers[key] = self.emit("constant", (), {"data": array}, array.dtype, ())
        return made

    def inline(self, values: Mapping[int, Any], into: "Graph") -> list[Any]:
        """Writes the nodes out in another program; `values`: for the id of each parameter and capture."""
        known = dict(values)
        for node in self.nodes:
            types = [(v.dtype, v.shape) for v in node.results]
            made = into.many(node.operation, [known[id(x)] for x in node.inputs], node.attributes, types)
            known.update((id(old), new) for old, new in zip(node.results, made))
        return [known[id(x)] for x in self.outputs]

    def needed(self) -> list[Node]:
        """The nodes on which outputs depend."""
        wanted = {id(x) for x in self.outputs}
        kept = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(map(id, node.results)):
                kept.append(node)
                wanted.update(map(id, node.inputs))
        return kept[::-1]

    # ---- text ----
    @staticmethod
    def weights(nodes: Iterable[Node]) -> dict[str, list[Node]]:
        """Large arrays that a program of these nodes closes over, each with its constants, by names: it need not hold
        them. Those in bodies of loops and branches, and in gradients, it holds."""
        large: dict[int, list[Node]] = {}
        for node in nodes:
            data = node.attributes["data"] if node.operation == "constant" else None
            if isinstance(data, np.ndarray) and data.size >= _WEIGHT_SIZE_MIN:
                large.setdefault(id(data), []).append(node)
        return {f"w{i}": nodes for i, nodes in enumerate(large.values())}

    def text(self, nodes: Sequence[Node], parameters: Sequence[str], outputs: Sequence[str],
             weights: Mapping[str, Sequence[Node]] | None = None) -> str:
        """The whole program: its nodes that are needed, names of parameters (captures behind the others) and of
        outputs, and constants that are weights of it."""
        values = [*self.parameters, *(made for _, made in self.captures.values())]
        lines = self._lines(nodes, values, parameters, outputs, "",
                            {id(node): name for name, nodes in (weights or {}).items() for node in nodes})
        bounds = self.bounds()
        symbols = ", ".join(f"{name} in [{low}, {high}]" for name, (low, high) in sorted(bounds.items()))
        return f'sx 1\ngraph "{self.name}"{f" ({symbols})" if symbols else ""} {{\n{lines}}}\n'

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Symbols of the extents, with their intervals."""
        made: dict[str, tuple[int, int]] = {}
        values = [*self.parameters, *(x for _, x in self.captures.values()),
                  *(x for node in self.nodes for x in node.results)]
        for n in [n for shape in {x.shape: 0 for x in values} for n in shape if isinstance(n, Size)]:
            made.update((s, n.bounds[s]) for symbols in n.terms for s in symbols)
        for node in self.nodes:
            for inner in node.attributes.values():
                if isinstance(inner, Graph):
                    made.update(inner.bounds())
        return made

    def body_text(self, indent: str) -> str:
        values = [*self.parameters, *(made for _, made in self.captures.values())]
        names = [f"p{i}" for i in range(len(values))]
        return "graph {\n" + self._lines(self.needed(), values, names, [f"r{i}" for i in range(len(self.outputs))],
                                         indent) + indent + "}"

    def _lines(self, nodes: Sequence[Node], values: Sequence[Any], names: Sequence[str], outputs: Sequence[str],
               indent: str, weights: Mapping[int, str] = MappingProxyType({})) -> str:
        known: dict[int, str] = {}
        bound: dict[str, str] = {}
        lines = []
        inner = indent + "    "

        def declare(x: Any) -> str:
            name = known[id(x)] = f"%{len(known)}"
            return name

        for x, name in zip(values, names):
            role = " donated" if name in self.roles else ""
            lines.append(f'{declare(x)} = parameter {{name = "{name}", weight = 0}} : '
                         f"{x.type}{role}")
        for node in nodes:
            results = node.results
            weight = weights.get(id(node))
            if weight is not None:
                (x,) = results
                if weight in bound:
                    known[id(x)] = bound[weight]
                else:
                    bound[weight] = declare(x)
                    lines.append(f'{bound[weight]} = parameter {{name = "{weight}", weight = 1}} : '
                                 f"{x.type}")
                continue
            operands = f"({', '.join([known[id(x)] for x in node.inputs])})" if node.inputs else ""
            parts = ", ".join([f"{k} = {attribute_text(v, inner)}" for k, v in node.attributes.items()]
                              ) if node.attributes else ""
            made = declare(results[0]) if len(results) == 1 else ", ".join([declare(x) for x in results])
            types = results[0].type if len(results) == 1 else ", ".join([x.type for x in results])
            lines.append(f"{made} = {node.operation}{operands}{f' {{{parts}}}' if parts else ''} : {types}")
        into = {output: name for name, output in self.roles.items()}
        lines.append("return " + ", ".join(
            f'{known[id(x)]} as "{name}"' + (f' into "{into[name]}"' if name in into else "")
            for x, name in zip(self.outputs, outputs)))
        return "".join(f"{indent}    {line}\n" for line in lines)


def attribute_text(value: Any, indent: str = "") -> str:
    if type(value) is str or type(value) is int:
        return str(value)
    if type(value) is list or type(value) is tuple:
        return f"[{', '.join([str(n if type(n) is int or isinstance(n, Size) else int(n)) for n in value])}]"
    if isinstance(value, Graph):
        return value.body_text(indent)
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return "0"
        return f'"{value.astype(value.dtype.newbyteorder("<")).tobytes().hex()}"'
    return str(value)
