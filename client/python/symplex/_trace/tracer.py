"""Tracing: a Python function over NumPy arrays becomes a program. A Tracer stands for an array whose shape and type are
known and whose elements are not; NumPy hands its functions over to it. Here: the class, operations element by element,
reductions, shapes. `_index.py` has x[...], `_functions.py` and `_linalg.py` the rest of NumPy."""
from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace import graph as _graph
from symplex._trace.graph import _STACK, Graph, Value, type_text
from symplex._trace.size import (AxisExtent, Extent, Size, TraceError, broadcast, count, instruction, meet, place,
                                 place_of, plain, texts)

Shape = tuple[Extent, ...]


def graph() -> Graph:
    """The program that is being traced."""
    graphs = _STACK.graphs
    if not graphs:
        raise TraceError(f"a traced value is used after its function has returned ({place()})")
    return graphs[-1]


def emit(operation: str, inputs: Sequence[Any], attributes: dict[str, Any], dtype: Any,
         shape: Iterable[Extent]) -> "Tracer":
    return graph().emit(operation, inputs, attributes, dtype, shape)


def _refuse(what: str, instead: str) -> Callable[..., Any]:
    def method(self: "Tracer", *args: Any, **keywords: Any) -> Any:
        raise TraceError(f"{what} of a traced {type_text(self.dtype, self.shape)}: its elements are not known while "
                         f"the function is traced ({place()})\n{instead}")
    return method


def _operator(function: Any, swapped: bool = False) -> Callable[..., Any]:
    name = function.__name__

    def method(self: "Tracer", other: Any) -> Any:
        if type(other) in _PLAIN:  # NumPy would hand it back to us
            build = UFUNCS[name]
            return build(function, other, self) if swapped else build(function, self, other)
        return function(other, self) if swapped else function(self, other)
    return method


class Tracer(Value):
    """An array of a traced function. It has NumPy's operators, functions and methods; what needs elements raises
    TraceError."""

    __slots__ = ("_made_at",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, dtype: np.dtype, shape: Shape) -> None:
        self._graph, self.dtype, self.shape = graph, dtype, shape
        self.type = type_text(dtype, shape)
        self._made_at = instruction(3)  # whoever calls this is the program, and its caller one of ours

    @property
    def origin(self) -> str:
        return place_of(*self._made_at)

    def __repr__(self) -> str:
        return f"<traced {type_text(self.dtype, self.shape)}>"

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: count(self.shape))
    T = property(lambda self: transpose(self))
    mT = property(lambda self: swapaxes(self, -1, -2))
    real = property(lambda self: self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a traced value without dimensions")
        if isinstance(self.shape[0], Size):
            raise TraceError(f"len() of the symbolic dimension {self.shape[0]} ({place()})\nx.shape[0] is it.")
        return self.shape[0]

    def __iter__(self) -> Iterator["Tracer"]:
        """The rows, as many as there are: each is written out in the program. symplex.scan is one loop."""
        if self.shape and isinstance(self.shape[0], Size):
            raise TraceError(f"iterating over the symbolic dimension {self.shape[0]} ({place()})\n"
                             f"symplex.scan goes over it, symplex.vmap does something for each.")
        return iter([self[i] for i in range(len(self))])

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from symplex import numpy
        return numpy

    __bool__ = _refuse("the truth", "numpy.where chooses between two arrays, symplex.cond between two functions; "
                       "symplex.while_loop goes on while something is true.")
    __float__ = __int__ = __index__ = __complex__ = _refuse("a number", "Leave it an array, or compute it outside.")
    __array__ = _refuse("the elements", "Use functions of NumPy that symplex knows, numpy.stack instead of "
                        "numpy.array, or compute it outside.")
    __dlpack__ = tolist = item = tobytes = _refuse("the elements", "Return it from the function instead.")
    __setitem__ = _refuse("an assignment to elements", "Programs change nothing: numpy.where makes a new array.")
    fill = sort = partition = resize = put = _refuse("a change in place", "Programs change nothing: functions of "
                                                     "numpy, such as numpy.sort(x), make new arrays.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if keywords.get("out") is not None:
            raise TraceError(f"numpy.{ufunc.__name__} into 'out': programs change nothing ({place()})")
        if method == "reduce" and ufunc.__name__ in UFUNC_REDUCE and set(keywords) <= {"axis", "keepdims", "dtype"}:
            return UFUNC_REDUCE[ufunc.__name__](inputs[0], **{"axis": 0, **keywords})
        if method == "accumulate" and ufunc.__name__ in UFUNC_ACCUMULATE and set(keywords) <= {"axis", "dtype"}:
            return UFUNC_ACCUMULATE[ufunc.__name__](*inputs, **keywords)
        if method == "outer" and not keywords:
            a, b = (value(x) for x in inputs)
            return ufunc(reshape(a, (*a.shape, *[1] * b.ndim)), b)
        if method != "__call__" or keywords or ufunc.__name__ not in UFUNCS:
            extra = f" with {', '.join(keywords)}" if keywords else ""
            dot = "" if method == "__call__" else f".{method}"
            raise Unimplemented(f"numpy.{ufunc.__name__}{dot}{extra} ({place()})")
        return UFUNCS[ufunc.__name__](ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        name = f"{function.__module__}.{function.__name__}"
        found = FUNCTIONS.get(name if name.startswith("numpy.linalg.") else function.__name__)
        if found is None:
            raise Unimplemented(f"{name if name.startswith('numpy.') else 'numpy.' + function.__name__} ({place()})"
                                f"{REFUSED.get(function.__name__, '')}")
        if keywords.get("out") is not None:
            raise TraceError(f"numpy.{function.__name__} into 'out': programs change nothing ({place()})")
        try:
            return found(*args, **{k: v for k, v in keywords.items() if v is not np._NoValue and k != "out"})
        except TypeError as error:
            if "unexpected keyword" in str(error) or "positional argument" in str(error):
                raise Unimplemented(f"numpy.{function.__name__} with these arguments: {error} ({place()})") from None
            raise

    def __getitem__(self, key: Any) -> "Tracer":
        from symplex._trace.index import index
        return index(self, key)

    if TYPE_CHECKING:  # made below, from tables
        def _binary(self, other: Any) -> "Tracer": ...
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _binary
        __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary

        def _unary(self) -> "Tracer": ...
        __neg__ = __pos__ = __abs__ = __invert__ = _unary
        __eq__ = __ne__ = _binary  # type: ignore[assignment]

    def astype(self, dtype: Any, copy: bool = True) -> "Tracer":
        return convert(self, dtype)

    def reshape(self, *shape: Any) -> "Tracer":
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> "Tracer":
        return transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def view(self, *args: Any, **keywords: Any) -> "Tracer":
        raise Unimplemented(f"numpy.ndarray.view ({place()})")


def _method(name: str) -> Callable[..., Any]:
    def method(self: Tracer, *args: Any, **keywords: Any) -> Any:
        return getattr(np, name)(self, *args, **keywords)
    method.__name__, method.__doc__ = name, f"numpy.{name} of this array."
    return method


for _name in ("sum", "prod", "mean", "max", "min", "any", "all", "var", "std", "argmax", "argmin", "argsort", "cumsum",
              "cumprod", "clip", "round", "ravel", "squeeze", "swapaxes", "repeat", "take", "dot", "copy", "diagonal",
              "trace", "searchsorted", "nonzero"):
    setattr(Tracer, _name, _method(_name))
Tracer.flatten = Tracer.ravel  # type: ignore[attr-defined]
Tracer.conj = Tracer.conjugate = lambda self: self  # type: ignore[attr-defined]
for _name, _function in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
                         "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
                         "xor": np.bitwise_xor, "mod": np.remainder, "floordiv": np.floor_divide, "divmod": np.divmod,
                         "lshift": np.left_shift, "rshift": np.right_shift}.items():
    setattr(Tracer, f"__{_name}__", _operator(_function))
    setattr(Tracer, f"__r{_name}__", _operator(_function, True))
for _name, _function in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                         "ge": np.greater_equal}.items():
    setattr(Tracer, f"__{_name}__", _operator(_function))
for _name, _function in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(Tracer, f"__{_name}__", lambda self, function=_function: function(self))
_graph.MAKE[0] = Tracer
_PLAIN = frozenset((Tracer, int, float))


# ---- values of one shape and type ----
def value(x: Any, dtype: Any = None) -> Tracer:
    """A tracer of the program; a number becomes one of `dtype`."""
    if type(x) is Tracer:
        return convert(x, x.dtype if dtype is None else dtype)
    if isinstance(x, Size):
        return convert(size_value(x), dtype or np.int64)
    if isinstance(x, (list, tuple)) and any(isinstance(v, (Tracer, Size)) for v in x):
        x = FUNCTIONS["stack"](x)
    return graph().constant(x, dtype)


def size_value(n: Extent) -> Tracer:
    """An extent as a number of the program, i64: a symbol is the sum of as many ones."""
    if not isinstance(n, Size):
        return graph().constant(np.int64(n))
    total = None
    for symbols, factor in n.terms.items():
        part = graph().constant(np.int64(factor))
        for symbol in symbols:
            ones = emit("constant", (), {"data": 1}, np.int64, (Size({(symbol,): 1}, n.bounds),))
            part = part * emit("reduce", (ones,), {"dims": [0], "reducer": "add"}, np.int64, ())
        total = part if total is None else total + part
    return total if total is not None else graph().constant(np.int64(0))


def convert(x: Any, dtype: Any) -> Tracer:
    """To another element type; what is not zero is true. NumPy has it the same, but for what is out of range."""
    if dtype is not x.dtype:
        dtype = np.dtype(dtype)
    if dtype == x.dtype:
        inside = graph()
        return x if x._graph is inside else inside.take(x)
    if dtype == bool:
        return emit("compare", (x, full(x.shape, 0, x.dtype)), {"direction": "ne"}, bool, x.shape)
    return emit("convert", (x,), {}, dtype, x.shape)


def full(shape: Any, fill: Any, dtype: Any = None) -> Tracer:
    return broadcast_to(value(fill, dtype), shape)


def extent(n: Any) -> Extent:
    return n if isinstance(n, (Size, AxisExtent)) else operator.index(n)


def shape_of(shape: Any) -> Shape:
    if isinstance(shape, (int, np.integer, Size)):
        return (extent(shape),)
    return shape if type(shape) is tuple and plain(shape) else tuple(extent(n) for n in shape)


def broadcast_to(array: Any, shape: Any) -> Tracer:
    x, shape = value(array), shape_of(shape)
    of, rank = x.shape, len(x.shape)
    if not of and shape:
        if plain(shape):
            return graph().filled(x, shape)
        return emit("broadcast_in_dim", (x,), {"dims": []}, x.dtype, shape)
    if len(shape) < rank or broadcast([of, shape], "broadcast_to") != shape:
        raise ValueError(f"shape {texts(of)} cannot be broadcast to {texts(shape)} ({place()})")
    if of == shape:
        return x
    lead = len(shape) - rank
    kept = [d for d, n in enumerate(of) if n == shape[lead + d]]
    inner = x if len(kept) == rank else emit("reshape", (x,), {}, x.dtype, tuple([of[d] for d in kept]))
    return emit("broadcast_in_dim", (inner,), {"dims": [lead + d for d in kept]}, x.dtype, shape)


def together(*inputs: Any, what: Any) -> list[Tracer]:
    """Broadcast to one shape; element types as they are."""
    values = [value(x) for x in inputs]
    shape = broadcast([x.shape for x in values], what)
    return [broadcast_to(x, shape) for x in values]


def kind_of(x: Any) -> Any:
    """What NumPy's rules of promotion see: a type of Python's for its own numbers."""
    if isinstance(x, Tracer):
        return x.dtype
    if isinstance(x, Size):
        return int
    if type(x) in (int, float, complex):
        return type(x)
    return np.asarray(x).dtype if not isinstance(x, (list, tuple)) else value(x).dtype


def result_type(*inputs: Any) -> np.dtype:
    kinds = [kind_of(x) for x in inputs]
    return np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in kinds))


@functools.lru_cache(1024, typed=True)  # int64 as an element type is equal to Python's int, and no such type
def _loop(ufunc: Any, *kinds: Any) -> tuple[np.dtype, ...]:
    """The types to which operands are cast, and that of what comes out."""
    return ufunc.resolve_dtypes((*kinds, None))


def elementwise(operation: str, attributes: dict[str, Any] | None = None, result: Any = None) -> Callable[..., Tracer]:
    """NumPy says which types operands are cast to, and what comes out."""
    def build(ufunc: Any, *inputs: Any) -> Tracer:
        loop = _loop(ufunc, *[x.dtype if type(x) is Tracer else kind_of(x) for x in inputs])
        values = [value(x, dtype) for x, dtype in zip(inputs, loop)]
        shape = broadcast([x.shape for x in values], f"numpy.{ufunc.__name__}")
        values = [x if x.shape == shape else broadcast_to(x, shape) for x in values]
        return emit(operation, values, dict(attributes or {}), result or loop[-1], shape)
    return build


def real(x: Any) -> Tracer:
    """Whole numbers as f64, as NumPy's functions of real numbers take those of 32 bits and more."""
    x = value(x)
    if x.dtype.kind in "iub":
        return convert(x, np.result_type(x.dtype, np.float16) if x.dtype.itemsize < 4 else np.float64)
    return x


def select(which: Any, yes: Any, no: Any) -> Tracer:
    """Of one element type, which the caller has seen to."""
    which, yes, no = together(which, yes, no, what="where")
    return emit("select", (which, yes, no), {}, yes.dtype, yes.shape)


def unary(operation: str, x: Tracer) -> Tracer:
    return emit(operation, (x,), {}, x.dtype, x.shape)


def compare(x: Any, direction: str, y: Any) -> Tracer:
    x, y = together(x, value(y, x.dtype), what="compare")
    return emit("compare", (x, y), {"direction": direction}, bool, x.shape)


UFUNCS: dict[str, Callable[..., Any]] = {}
UFUNC_REDUCE: dict[str, Callable[..., Tracer]] = {}
UFUNC_ACCUMULATE: dict[str, Callable[..., Tracer]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
REFUSED: dict[str, str] = {}
"""Why functions are not there, where there is more to say than that."""


# ---- reductions ----
def axes_of(x: Tracer, axis: Any) -> tuple[int, ...]:
    rank = len(x.shape)
    if type(axis) is int and -rank <= axis < rank:
        return (axis + rank if axis < 0 else axis,)
    given = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(operator.index(a) + (rank if a < 0 else 0) for a in given)
    if len(set(axes)) < len(axes) or any(not 0 <= a < rank for a in axes):
        raise ValueError(f"axis {axis} of {rank} dimensions ({place()})")
    return tuple(sorted(axes))


def one_axis(x: Tracer, axis: int) -> int:
    return axes_of(x, operator.index(axis))[0]


def reduce(x: Tracer, reducer: str, axis: Any = None, keepdims: bool = False) -> Tracer:
    of = x.shape
    axes = () if not of and axis in (0, -1) else axes_of(x, axis)  # NumPy lets a number have that axis, too
    if reducer in ("maximum", "minimum") and any([isinstance(of[a], int) and of[a] == 0 for a in axes]):
        raise ValueError(f"the {reducer} of nothing ({place()})")
    shape = tuple([n for d, n in enumerate(of) if d not in axes])
    made = emit("reduce", (x,), {"dims": axes, "reducer": reducer}, x.dtype, shape) if axes else x
    return reshape(made, tuple([1 if d in axes else n for d, n in enumerate(of)])) if keepdims else made


def wide(x: Any, what: str, dtype: Any = None) -> Tracer:
    """Sums and products of whole numbers are of 64 bits."""
    x = value(x)
    if dtype is not None:
        return convert(x, dtype)
    if x.dtype.kind == "u":
        raise Unimplemented(f"numpy.{what} of {x.dtype.name}, whose result is uint64 ({place()})")
    return convert(x, np.int64) if x.dtype.kind in "ib" else x


def total(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    return reduce(wide(a, "sum", dtype), "add", axis, keepdims)


def product(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    return reduce(wide(a, "prod", dtype), "multiply", axis, keepdims)


def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    x = value(a)
    x = convert(x, dtype) if dtype is not None else convert(x, np.float64) if x.dtype.kind in "iub" else x
    return reduce(x, "add", axis, keepdims) / value(count(x.shape[d] for d in axes_of(x, axis)), x.dtype)


def extreme(reducer: str) -> Callable[..., Tracer]:
    def build(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tracer:
        return reduce(value(a), reducer, axis, keepdims)
    return build


def every(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tracer:
    return reduce(convert(value(a), bool), "multiply", axis, keepdims)


def some(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tracer:
    return reduce(convert(value(a), bool), "add", axis, keepdims)


UFUNC_REDUCE.update({"add": total, "multiply": product, "maximum": extreme("maximum"), "minimum": extreme("minimum"),
                     "logical_and": every, "logical_or": some})
FUNCTIONS.update({"sum": total, "prod": product, "mean": mean, "any": some, "all": every,
                  **{name: extreme("maximum") for name in ("max", "amax")},
                  **{name: extreme("minimum") for name in ("min", "amin")}})


# ---- shapes ----
def reshape(a: Any, shape: Any) -> Tracer:
    a = value(a)
    shape = _filled(a, shape_of(shape))
    return a if shape == a.shape and len(shape) == a.ndim else emit("reshape", (a,), {}, a.dtype, shape)


def _filled(a: Tracer, shape: Shape) -> Shape:
    """One extent may be -1."""
    if plain(shape) and plain(a.shape) and min(shape, default=0) >= 0 and math.prod(shape) == math.prod(a.shape):
        return shape
    unknown = [d for d, n in enumerate(shape) if isinstance(n, int) and n == -1]
    whole = count(n for d, n in enumerate(shape) if d not in unknown)
    if len(unknown) == 1 and not (isinstance(whole, int) and whole == 0):
        try:
            missing = a.size // whole if isinstance(a.size, Size) or isinstance(whole, Size) or a.size % whole == 0 \
                else None
        except TraceError:
            missing = None
        if missing is not None:
            shape = tuple(missing if d in unknown else n for d, n in enumerate(shape))
    if any(isinstance(n, int) and n < 0 for n in shape) or count(shape) != a.size:
        raise ValueError(f"shape {texts(a.shape)} cannot become {texts(shape)} ({place()})")
    return shape


def transpose(a: Any, axes: Any = None) -> Tracer:
    a = value(a)
    of = a.shape
    same = list(range(len(of)))
    perm = same[::-1] if axes is None else [operator.index(n) % max(len(of), 1) for n in axes]
    if sorted(perm) != same:
        raise ValueError(f"axes {axes} of {len(of)} dimensions ({place()})")
    if perm == same:
        return a
    return emit("transpose", (a,), {"perm": perm}, a.dtype, tuple([of[p] for p in perm]))


def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    a = value(a)
    i, j = one_axis(a, axis1), one_axis(a, axis2)
    perm = list(range(len(a.shape)))
    perm[i], perm[j] = perm[j], perm[i]
    return transpose(a, perm)


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Tracer:
    values = [value(a) for a in arrays]
    if not values:
        raise ValueError(f"numpy.concatenate of no arrays ({place()})")
    values = values if axis is not None else [reshape(v, -1) for v in values]
    dtype = np.result_type(*(v.dtype for v in values)) if dtype is None else np.dtype(dtype)
    values = [convert(v, dtype) for v in values]
    at = one_axis(values[0], axis or 0)
    if len({v.ndim for v in values}) != 1:
        raise ValueError(f"numpy.concatenate of shapes {[texts(v.shape) for v in values]} ({place()})")
    shape = list(values[0].shape)
    for v in values[1:]:
        for d, n in enumerate(v.shape):
            if d != at:
                shape[d] = meet(shape[d], n, f"numpy.concatenate along axis {at}", [values[0].shape, v.shape])
    shape[at] = sum((v.shape[at] for v in values[1:]), values[0].shape[at])
    if len(values) > 64:
        return concatenate([concatenate(values[i:i + 64], at) for i in range(0, len(values), 64)], at)
    return values[0] if len(values) == 1 else emit("concatenate", values, {"axis": at}, dtype, shape)


def expand_dims(a: Any, axis: Any) -> Tracer:
    a = value(a)
    axes = [operator.index(d) for d in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    rank = a.ndim + len(axes)
    new = {d + rank if d < 0 else d for d in axes}
    if len(new) != len(axes) or not all(0 <= d < rank for d in new):
        raise ValueError(f"axis {axis} of {rank} dimensions ({place()})")
    old = iter(a.shape)
    return reshape(a, tuple(1 if d in new else next(old) for d in range(rank)))


def stack(arrays: Any, axis: int = 0) -> Tracer:
    return concatenate([expand_dims(a, axis) for a in arrays], axis)


def squeeze(a: Any, axis: Any = None) -> Tracer:
    a = value(a)
    if a.ndim == 0 and axis in (0, -1):  # as NumPy has it
        return a
    gone = axes_of(a, axis) if axis is not None else tuple(d for d, n in enumerate(a.shape) if n == 1)
    if any(a.shape[d] != 1 for d in gone):
        raise ValueError(f"numpy.squeeze of {texts(a.shape)} along {axis} ({place()})")
    return reshape(a, tuple(n for d, n in enumerate(a.shape) if d not in gone))


FUNCTIONS.update({
    "concatenate": concatenate, "stack": stack, "reshape": lambda a, shape, order="C": reshape(a, shape),
    "transpose": transpose, "swapaxes": swapaxes, "expand_dims": expand_dims, "squeeze": squeeze,
    "ravel": lambda a: reshape(a, -1), "broadcast_to": broadcast_to, "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim, "size": lambda a: a.size, "copy": value})
