"""Tracing: a Python function over NumPy arrays becomes a program as text (docs/IR.md). A Tracer stands for an array
whose shape and type are known and whose elements are not; NumPy hands its functions over to it."""
from __future__ import annotations

import operator
import os
import sys
from typing import Any, Callable

import numpy as np

from symplex._errors import Error, Unimplemented

_HERE = os.path.dirname(os.path.abspath(__file__))
_NUMPY = os.path.dirname(os.path.abspath(np.__file__))
_TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
          "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool"}
_CONSTANT_BYTES_MAX = 16 << 20
_RANK_MAX = 8


class TraceError(Error, TypeError):
    """A traced function does what a program cannot: it asks for elements, or changes an array. The text has file and
    line."""


def place() -> str:
    """The innermost line that is neither ours nor NumPy's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith((_HERE, _NUMPY)):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def type_text(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    if dtype.name not in _TYPES:
        raise Unimplemented(f"elements of {dtype.name} ({place()})")
    if len(shape) > _RANK_MAX:
        raise Unimplemented(f"{len(shape)} dimensions, at most {_RANK_MAX} ({place()})")
    return f"{_TYPES[dtype.name]}[{', '.join(map(str, shape))}]"


class Graph:
    """The program while it is traced."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.open = True

    def emit(self, operation: str, inputs: tuple["Tracer", ...], attributes: str, dtype: Any,
             shape: tuple[int, ...]) -> "Tracer":
        if not self.open:
            raise TraceError(f"a traced value is used after its function has returned ({place()})")
        dtype = np.dtype(dtype)
        name = f"%v{len(self.lines)}"
        operands = f"({', '.join(x._name for x in inputs)})" if inputs else ""
        braces = f" {{{attributes}}}" if attributes else ""
        self.lines.append(f"    {name} = {operation}{operands}{braces} : {type_text(dtype, shape)}")
        return Tracer(self, name, dtype, shape)

    def constant(self, value: Any, dtype: Any = None) -> "Tracer":
        array = np.asarray(value, dtype)
        if array.nbytes > _CONSTANT_BYTES_MAX:
            raise Unimplemented(f"a constant of {array.nbytes} bytes, at most {_CONSTANT_BYTES_MAX}: give the array as "
                                f"an argument ({place()})")
        data = "0" if array.size == 0 else f'"{array.astype(array.dtype.newbyteorder("<")).tobytes().hex()}"'
        return self.emit("constant", (), f"data = {data}", array.dtype, array.shape)

    def text(self, outputs: list["Tracer"]) -> str:
        results = ", ".join(f'{x._name} as "out{i}"' for i, x in enumerate(outputs))
        return 'sx 1\ngraph "traced" {\n' + "\n".join(self.lines) + f"\n    return {results}\n}}\n"


def _refuse(what: str, instead: str) -> Callable[..., Any]:
    def method(self: "Tracer", *args: Any, **keywords: Any) -> Any:
        raise TraceError(f"{what} of a traced {type_text(self.dtype, self.shape)}: its elements are not known while "
                         f"the function is traced ({place()})\n{instead}")
    return method


def _operator(function: Any, swapped: bool = False) -> Callable[..., Any]:
    def method(self: "Tracer", other: Any) -> Any:
        return function(other, self) if swapped else function(self, other)
    return method


class Tracer:
    """An array of a traced function."""

    __slots__ = ("_graph", "_name", "dtype", "shape")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._graph, self._name, self.dtype, self.shape = graph, name, dtype, shape

    def __repr__(self) -> str:
        return f"<traced {type_text(self.dtype, self.shape)}>"

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)))
    T = property(lambda self: transpose(self))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a traced value without dimensions")
        return self.shape[0]

    __bool__ = _refuse("the truth", "numpy.where chooses between two arrays.")
    __float__ = __int__ = __index__ = __complex__ = _refuse("a number", "Leave it an array, or compute it outside.")
    __array__ = _refuse("the elements", "Use functions of NumPy that symplex knows, or compute it outside.")
    tolist = item = tobytes = _refuse("the elements", "Return it from the function instead.")
    __setitem__ = _refuse("an assignment to elements", "Programs change nothing: numpy.where makes a new array.")
    __iter__ = _refuse("iterating over the elements", "Loop over range(len(x)) and take x[i].")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if method == "reduce" and ufunc.__name__ in _UFUNC_REDUCE and set(keywords) <= {"axis", "keepdims"}:
            return _UFUNC_REDUCE[ufunc.__name__](inputs[0], keywords.get("axis", 0), keywords.get("keepdims", False))
        if method != "__call__" or keywords or ufunc.__name__ not in _UFUNCS:
            extra = f" with {', '.join(keywords)}" if keywords else ""
            dot = "" if method == "__call__" else f".{method}"
            raise Unimplemented(f"numpy.{ufunc.__name__}{dot}{extra} ({place()})")
        return _UFUNCS[ufunc.__name__](ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        if function.__name__ not in _FUNCTIONS:
            raise Unimplemented(f"numpy.{function.__name__} ({place()})")
        try:
            return _FUNCTIONS[function.__name__](*args, **keywords)
        except TypeError as error:
            if "unexpected keyword" in str(error) or "positional argument" in str(error):
                raise Unimplemented(f"numpy.{function.__name__} with these arguments: {error} ({place()})") from None
            raise

    def __getitem__(self, key: Any) -> "Tracer":
        return _index(self, key)

    def astype(self, dtype: Any) -> "Tracer":
        dtype = np.dtype(dtype)
        return self if dtype == self.dtype else self._graph.emit("convert", (self,), "", dtype, self.shape)

    def reshape(self, *shape: Any) -> "Tracer":
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> "Tracer":
        return transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def ravel(self) -> "Tracer":
        return reshape(self, -1)

    def sum(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return _sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return _mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return _reduce(self, "maximum", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return _reduce(self, "minimum", axis, keepdims)


for _name, _function in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
                         "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
                         "xor": np.bitwise_xor, "mod": np.remainder, "floordiv": np.floor_divide}.items():
    setattr(Tracer, f"__{_name}__", _operator(_function))
    setattr(Tracer, f"__r{_name}__", _operator(_function, True))
for _name, _function in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                         "ge": np.greater_equal}.items():
    setattr(Tracer, f"__{_name}__", _operator(_function))
for _name, _function in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(Tracer, f"__{_name}__", lambda self, function=_function: function(self))


# ---- values of one shape and type ----
def _graph_of(values: Any) -> Graph:
    return next(x._graph for x in values if isinstance(x, Tracer))


def _value(graph: Graph, x: Any, dtype: Any = None) -> Tracer:
    """A tracer of this program; a number becomes one of `dtype`."""
    if isinstance(x, Tracer):
        if x._graph is not graph:
            raise TraceError(f"a value of another traced function is used ({place()})")
        return x if dtype is None else x.astype(dtype)
    return graph.constant(x, dtype)


def broadcast_to(x: Any, shape: Any) -> Tracer:
    shape = (shape,) if isinstance(shape, int) else tuple(operator.index(n) for n in shape)
    if np.broadcast_shapes(x.shape, shape) != shape:
        raise ValueError(f"shape {x.shape} cannot be broadcast to {shape} ({place()})")
    if x.shape == shape:
        return x
    lead = len(shape) - len(x.shape)
    kept = [d for d, n in enumerate(x.shape) if n == shape[lead + d]]
    inner = x if len(kept) == len(x.shape) else reshape(x, tuple(x.shape[d] for d in kept))
    return x._graph.emit("broadcast_in_dim", (inner,), f"dims = {[lead + d for d in kept]}", x.dtype, shape)


def _elementwise(operation: str, attributes: str = "", result: Any = None) -> Callable[..., Tracer]:
    """NumPy says which types operands are cast to, and what comes out."""
    def build(ufunc: Any, *inputs: Any) -> Tracer:
        graph = _graph_of(inputs)
        kinds = [type(x) if type(x) in (int, float, bool) else np.asarray(x).dtype if not isinstance(x, Tracer)
                 else x.dtype for x in inputs]
        kinds = [np.dtype(bool) if kind is bool else kind for kind in kinds]
        loop = ufunc.resolve_dtypes((*kinds, None))
        values = [_value(graph, x, loop[i]) for i, x in enumerate(inputs)]
        shape = np.broadcast_shapes(*(x.shape for x in values))
        values = [broadcast_to(x, shape) for x in values]
        return graph.emit(operation, tuple(values), attributes, result or loop[-1], shape)
    return build


def _power(ufunc: Any, x: Any, y: Any) -> Tracer:
    if type(y) is int and 0 < y < 5:
        value = x
        for _ in range(y - 1):
            value = value * x
        return value
    made = _elementwise("power")(ufunc, x, y)
    if made.dtype.kind != "f":
        raise Unimplemented(f"numpy.power of {made.dtype.name} ({place()})")
    return made


def _matmul(ufunc: Any, a: Any, b: Any) -> Tracer:
    graph = _graph_of((a, b))
    a, b = _value(graph, a), _value(graph, b)
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = a.astype(dtype), b.astype(dtype)
    if not a.shape or not b.shape:
        raise ValueError(f"numpy.matmul of a value without dimensions ({place()})")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = reshape(a, (1, *a.shape)) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"numpy.matmul of {a.shape} and {b.shape}: {a.shape[-1]} is not {b.shape[-2]} ({place()})")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n = len(batch)
    if len(b.shape) == 2 and n:  # one matrix for all: rows of a flat matrix
        made = reshape(_dot(reshape(a, (-1, a.shape[-1])), b, 0), (*a.shape[:-1], b.shape[-1]))
    else:
        made = _dot(broadcast_to(a, batch + a.shape[-2:]), broadcast_to(b, batch + b.shape[-2:]), n)
    shape = batch + (() if row else made.shape[-2:-1]) + (() if column else made.shape[-1:])
    return reshape(made, shape)


def _dot(a: Tracer, b: Tracer, batch: int) -> Tracer:
    dims = list(range(batch))
    attributes = (f"lhs_batch = {dims}, rhs_batch = {dims}, " if dims else "") + \
        f"lhs_contract = [{batch + 1}], rhs_contract = [{batch}]"
    return a._graph.emit("dot_general", (a, b), attributes, a.dtype, (*a.shape[:-1], b.shape[-1]))


def _logical(operation: str) -> Callable[..., Tracer]:
    def build(ufunc: Any, *inputs: Any) -> Tracer:
        graph = _graph_of(inputs)
        truths = [x if x.dtype == bool else x != 0 for x in (_value(graph, x) for x in inputs)]
        return _elementwise(operation)(ufunc, *truths)
    return build


def _positive(ufunc: Any, x: Tracer) -> Tracer:
    return x


_UFUNCS: dict[str, Callable[..., Tracer]] = {
    "add": _elementwise("add"), "subtract": _elementwise("subtract"), "multiply": _elementwise("multiply"),
    "divide": _elementwise("divide"), "maximum": _elementwise("maximum"), "minimum": _elementwise("minimum"),
    "fmod": _elementwise("remainder"), "negative": _elementwise("negate"), "absolute": _elementwise("abs"),
    "exp": _elementwise("exponential"), "log": _elementwise("log"), "sqrt": _elementwise("sqrt"),
    "tanh": _elementwise("tanh"), "sin": _elementwise("sine"), "cos": _elementwise("cosine"),
    "floor": _elementwise("floor"), "ceil": _elementwise("ceil"), "rint": _elementwise("round_nearest_even"),
    "sign": _elementwise("sign"), "bitwise_and": _elementwise("and"), "bitwise_or": _elementwise("or"),
    "bitwise_xor": _elementwise("xor"), "invert": _elementwise("not"), "logical_and": _logical("and"),
    "logical_or": _logical("or"), "logical_xor": _logical("xor"), "logical_not": _logical("not"), "power": _power,
    "matmul": _matmul, "positive": _positive, "square": lambda ufunc, x: x * x,
    "reciprocal": lambda ufunc, x: np.true_divide(np.ones((), x.dtype), x),
    **{name: _elementwise("compare", f"direction = {direction}", bool) for name, direction in (
        ("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
        ("greater_equal", "ge"))}}


# ---- reductions ----
def _axes(x: Tracer, axis: Any) -> tuple[int, ...]:
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(operator.index(a) + (x.ndim if a < 0 else 0) for a in given)
    if len(set(axes)) < len(axes) or any(not 0 <= a < x.ndim for a in axes):
        raise ValueError(f"axis {axis} of {x.ndim} dimensions ({place()})")
    return tuple(sorted(axes))


def _reduce(x: Tracer, reducer: str, axis: Any, keepdims: bool) -> Tracer:
    axes = _axes(x, axis)
    if reducer in ("maximum", "minimum") and any(x.shape[a] == 0 for a in axes):
        raise ValueError(f"the {reducer} of nothing ({place()})")
    shape = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    made = x._graph.emit("reduce", (x,), f"dims = {list(axes)}, reducer = {reducer}", x.dtype, shape) if axes else x
    return reshape(made, tuple(1 if d in axes else n for d, n in enumerate(x.shape))) if keepdims else made


def _wide(x: Tracer, what: str) -> Tracer:
    """Sums and products of whole numbers are of 64 bits."""
    if x.dtype.kind == "u":
        raise Unimplemented(f"numpy.{what} of {x.dtype.name}, whose result is uint64 ({place()})")
    return x.astype(np.int64) if x.dtype.kind in "ib" else x


def _sum(a: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    return _reduce(_wide(a, "sum"), "add", axis, keepdims)


def _prod(a: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    return _reduce(_wide(a, "prod"), "multiply", axis, keepdims)


def _mean(a: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    count = int(np.prod([a.shape[d] for d in _axes(a, axis)], dtype=np.int64))
    x = a if a.dtype.kind not in "iub" else a.astype(np.float64)
    return _reduce(x, "add", axis, keepdims) / np.array(count, x.dtype)


_UFUNC_REDUCE = {"add": _sum, "multiply": _prod, "maximum": lambda x, axis, keep: _reduce(x, "maximum", axis, keep),
                 "minimum": lambda x, axis, keep: _reduce(x, "minimum", axis, keep)}


# ---- shapes ----
def reshape(a: Tracer, shape: Any) -> Tracer:
    shape = (shape,) if isinstance(shape, int) else tuple(operator.index(n) for n in shape)
    shape = _filled(a, shape)
    return a if shape == a.shape else a._graph.emit("reshape", (a,), "", a.dtype, shape)


def _filled(a: Tracer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """One extent may be -1."""
    known = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
    if shape.count(-1) == 1 and known > 0 and a.size % known == 0:
        shape = tuple(a.size // known if n == -1 else n for n in shape)
    if min(shape, default=0) < 0 or int(np.prod(shape, dtype=np.int64)) != a.size:
        raise ValueError(f"shape {a.shape} cannot become {shape} ({place()})")
    return shape


def transpose(a: Tracer, axes: Any = None) -> Tracer:
    perm = list(range(a.ndim))[::-1] if axes is None else [operator.index(n) % max(a.ndim, 1) for n in axes]
    if sorted(perm) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} of {a.ndim} dimensions ({place()})")
    if perm == sorted(perm):
        return a
    return a._graph.emit("transpose", (a,), f"perm = {perm}", a.dtype, tuple(a.shape[p] for p in perm))


def _swapaxes(a: Tracer, axis1: int, axis2: int) -> Tracer:
    perm = list(range(a.ndim))
    perm[axis1], perm[axis2] = perm[axis2], perm[axis1]
    return transpose(a, perm)


def _where(condition: Any, x: Any, y: Any) -> Tracer:
    graph = _graph_of((condition, x, y))
    dtype = np.result_type(*(v.dtype if isinstance(v, Tracer) else v for v in (x, y)))
    truth = _value(graph, condition)
    truth = truth if truth.dtype == bool else truth != 0
    x, y = _value(graph, x, dtype), _value(graph, y, dtype)
    shape = np.broadcast_shapes(truth.shape, x.shape, y.shape)
    return graph.emit("select", tuple(broadcast_to(v, shape) for v in (truth, x, y)), "", dtype, shape)


def _concatenate(arrays: Any, axis: int = 0) -> Tracer:
    graph = _graph_of(arrays)
    dtype = np.result_type(*(a.dtype for a in arrays))
    values = tuple(_value(graph, a, dtype) for a in arrays)
    (axis,) = _axes(values[0], axis)
    rest = {v.shape[:axis] + v.shape[axis + 1:] for v in values}
    if len(rest) != 1 or len({v.ndim for v in values}) != 1:
        raise ValueError(f"numpy.concatenate of shapes {[v.shape for v in values]} along {axis} ({place()})")
    shape = list(values[0].shape)
    shape[axis] = sum(v.shape[axis] for v in values)
    return graph.emit("concatenate", values, f"axis = {axis}", dtype, tuple(shape))


def _expand_dims(a: Tracer, axis: int) -> Tracer:
    axis += a.ndim + 1 if axis < 0 else 0
    return reshape(a, a.shape[:axis] + (1,) + a.shape[axis:])


def _stack(arrays: Any, axis: int = 0) -> Tracer:
    graph = _graph_of(arrays)
    return _concatenate([_expand_dims(_value(graph, a), axis) for a in arrays], axis)


def _squeeze(a: Tracer, axis: Any = None) -> Tracer:
    gone = _axes(a, axis) if axis is not None else tuple(d for d, n in enumerate(a.shape) if n == 1)
    if any(a.shape[d] != 1 for d in gone):
        raise ValueError(f"numpy.squeeze of {a.shape} along {axis} ({place()})")
    return reshape(a, tuple(n for d, n in enumerate(a.shape) if d not in gone))


def _full_like(a: Tracer, fill_value: Any) -> Tracer:
    return broadcast_to(_value(a._graph, fill_value, a.dtype), a.shape)


def _dot_product(a: Any, b: Any) -> Tracer:
    a, b = (x if isinstance(x, Tracer) else np.asarray(x) for x in (a, b))
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return np.multiply(a, b)
    if len(np.shape(b)) > 2:
        raise Unimplemented(f"numpy.dot with a second operand of {len(np.shape(b))} dimensions ({place()})")
    return np.matmul(a, b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "prod": _prod, "mean": _mean, "where": _where, "concatenate": _concatenate, "stack": _stack,
    "amax": lambda a, axis=None, keepdims=False: _reduce(a, "maximum", axis, keepdims),
    "amin": lambda a, axis=None, keepdims=False: _reduce(a, "minimum", axis, keepdims),
    "reshape": reshape, "transpose": transpose, "swapaxes": _swapaxes, "expand_dims": _expand_dims,
    "squeeze": _squeeze, "ravel": lambda a: reshape(a, -1), "broadcast_to": broadcast_to, "dot": _dot_product,
    "zeros_like": lambda a: _full_like(a, 0), "ones_like": lambda a: _full_like(a, 1), "full_like": _full_like,
    "shape": lambda a: a.shape, "ndim": lambda a: a.ndim, "size": lambda a: a.size}
_FUNCTIONS["max"], _FUNCTIONS["min"] = _FUNCTIONS["amax"], _FUNCTIONS["amin"]


# ---- x[...] ----
def _expanded(x: Tracer, key: Any) -> list[Any]:
    """One entry for each dimension, and None for each new one."""
    entries = list(key) if isinstance(key, tuple) else [key]
    for entry in entries:
        if not (entry is None or entry is Ellipsis or isinstance(entry, slice)
                or (hasattr(entry, "__index__") and not isinstance(entry, (bool, Tracer, np.ndarray)))):
            raise Unimplemented(f"an index of type {type(entry).__name__}: numbers and slices are known ({place()})")
    taken = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if taken > x.ndim or sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError(f"{taken} indices of {x.ndim} dimensions ({place()})")
    at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    return entries[:at] + [slice(None)] * (x.ndim - taken) + entries[at + 1:]


def _index(x: Tracer, key: Any) -> Tracer:
    start, limit, stride, backward, shape, d = [], [], [], [], [], 0
    for entry in _expanded(x, key):
        if entry is None:
            shape.append(1)
            continue
        n = x.shape[d]
        if isinstance(entry, slice):
            r = range(n)[entry]
            if r.step < 0:
                backward.append(d)
                r = r[::-1]
            shape.append(len(r))
        else:
            i = operator.index(entry)
            if not -n <= i < n:
                raise IndexError(f"index {i} of a dimension of {n} ({place()})")
            r = range(i % n, i % n + 1)
        start.append(r.start if len(r) else 0)
        limit.append(r[-1] + 1 if len(r) else 0)
        stride.append(r.step)
        d += 1
    cut = tuple(-(-(hi - lo) // step) for lo, hi, step in zip(start, limit, stride))
    if cut != x.shape:
        x = x._graph.emit("slice", (x,), f"start = {start}, limit = {limit}, stride = {stride}", x.dtype, cut)
    if backward:
        x = x._graph.emit("reverse", (x,), f"dims = {backward}", x.dtype, x.shape)
    return reshape(x, tuple(shape))
