"""The array API standard 2024.12 over symplex: inside of traced functions its functions are parts of the program, with
arrays they are compiled programs of their own, one for each function, shapes and types.

    import symplex.numpy as xp
    y = xp.sum(xp.exp(x), axis=0)        x: an array of NumPy, or traced

Arrays are NumPy's; `symplex.numpy` is also what a traced array gives as `__array_namespace__()`. Element types are the
real ones of 64 and 32 bits, float16 where NumPy has it, int8 to int64, uint8 and bool; what gives others, and what has
a shape that depends on elements (`unique_values`, `nonzero`, ...), raises `symplex.Unimplemented`. Random indices are
clamped where they are traced. `linalg` has the extension of linear algebra; Fourier transforms are not there."""
from __future__ import annotations

import builtins
from typing import Any, Callable

import numpy as np
from numpy import (bool_ as bool, e, euler_gamma, finfo, float16, float32, float64, iinfo, inf, int8, int16,  # noqa
                   int32, int64, nan, newaxis, pi, uint8)

from symplex._errors import Unimplemented
from symplex._jit import jit
from symplex._trace import functions as _functions
from symplex._trace.graph import current
from symplex._trace.index import iota as _iota
from symplex._trace.size import Size
from symplex._trace.tracer import FUNCTIONS, REFUSED, UFUNCS, Tracer, convert, full as _full, value

__array_api_version__ = "2024.12"
_DTYPES = {"bool": np.bool_, **{name: getattr(np, name) for name in (
    "int8", "int16", "int32", "int64", "uint8", "float32", "float64")}}


def _static(x: Any) -> Any:
    """What is no array is part of the program."""
    return tuple(map(_static, x)) if isinstance(x, list) else x


def _is_array(x: Any) -> builtins.bool:
    return isinstance(x, (np.ndarray, np.generic, Tracer)) or (not isinstance(x, type) and hasattr(x, "__dlpack__"))


def _compiled(name: str, traced: Callable[..., Any]) -> Callable[..., Any]:
    """The function for traced arrays and for others. Those are taken out of the arguments, wherever they are."""
    known: dict[Any, Any] = {}

    def call(*args: Any, **keywords: Any) -> Any:
        if current() is not None:
            return traced(*args, **keywords)
        arrays: list[Any] = []

        def take(x: Any) -> Any:
            if isinstance(x, (tuple, list)) and builtins.any(_is_array(v) for v in x):
                return ("several", tuple(take(v) for v in x))
            if _is_array(x):
                arrays.append(np.asarray(x) if not isinstance(x, np.ndarray) and not hasattr(x, "dtype") else x)
                return ("array", len(arrays) - 1)
            return ("fixed", type(x), _static(x))
        form = tuple(map(take, args)), tuple((k, take(v)) for k, v in sorted(keywords.items()))
        if form not in known:
            known[form] = jit(_filled(traced, form))
        known[form].__name__ = name
        return known[form](*arrays)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = traced.__doc__ or f"{name} of the array API standard."
    call.__module__ = "symplex.numpy"
    call.__wrapped__ = traced  # type: ignore[attr-defined]
    return call


def _filled(traced: Callable[..., Any], form: Any) -> Callable[..., Any]:
    def function(*arrays: Any) -> Any:
        def give(part: Any) -> Any:
            if part[0] == "array":
                return arrays[part[1]]
            return [give(v) for v in part[1]] if part[0] == "several" else part[2]
        made = traced(*map(give, form[0]), **{k: give(v) for k, v in form[1]})
        return list(made) if isinstance(made, list) else made
    return function


def _ufunc(numpy_name: str) -> Callable[..., Any]:
    ufunc = getattr(np, numpy_name)
    unary = ufunc.nin == 1

    def one(x: Any, /) -> Any:
        return UFUNCS[ufunc.__name__](ufunc, value(x))

    def two(x1: Any, x2: Any, /) -> Any:
        if not isinstance(x1, Tracer) and not isinstance(x2, Tracer):
            x1, x2 = value(x1), value(x2)
        return UFUNCS[ufunc.__name__](ufunc, x1, x2)
    return one if unary else two


_UFUNC_NAMES = {"abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
                "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert",
                "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "conj": "conjugate",
                "pow": "power",
                **{name: name for name in """add bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh divide equal
                exp expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log log1p
                log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative
                not_equal positive reciprocal remainder sign signbit sin sinh square sqrt subtract tan tanh
                trunc""".split()}}
for _name, _numpy in _UFUNC_NAMES.items():
    globals()[_name] = _compiled(_name, _ufunc(_numpy))


def _real(x: Any, /) -> Any:
    return value(x)


def _round(x: Any, /) -> Any:
    return _functions.round_(x)


def _clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    return _functions.clip(x, min, max)


def _sort(x: Any, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
    return _functions.ordered(x, axis, descending)[0]


def _argsort(x: Any, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
    return _functions.ordered(x, axis, descending)[1]


def _std(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: builtins.bool = False) -> Any:
    return _functions.std(x, axis, None, correction, keepdims)


def _var(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: builtins.bool = False) -> Any:
    return _functions.var(x, axis, None, correction, keepdims)


def _keyed(name: str) -> Callable[..., Any]:
    """A reduction: all but the array by name."""
    def call(x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        return FUNCTIONS[name](x, axis=axis, keepdims=keepdims)
    return call


def _summed(name: str) -> Callable[..., Any]:
    def call(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: builtins.bool = False) -> Any:
        return FUNCTIONS[name](x, axis=axis, dtype=dtype, keepdims=keepdims)
    return call


def _cumulative(name: str) -> Callable[..., Any]:
    def call(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: builtins.bool = False) -> Any:
        return FUNCTIONS[name](x, axis=axis, dtype=dtype, include_initial=include_initial)
    return call


def _concat(arrays: Any, /, *, axis: Any = 0) -> Any:
    return FUNCTIONS["concatenate"](arrays, axis)


def _stack(arrays: Any, /, *, axis: int = 0) -> Any:
    return FUNCTIONS["stack"](arrays, axis)


def _flip(x: Any, /, *, axis: Any = None) -> Any:
    return FUNCTIONS["flip"](x, axis)


def _roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    return FUNCTIONS["roll"](x, shift, axis)


def _repeat(x: Any, repeats: Any, /, *, axis: Any = None) -> Any:
    return FUNCTIONS["repeat"](x, repeats, axis)


def _tile(x: Any, repetitions: Any, /) -> Any:
    return FUNCTIONS["tile"](x, repetitions)


def _expand_dims(x: Any, /, *, axis: Any = 0) -> Any:
    return FUNCTIONS["expand_dims"](x, axis)


def _squeeze(x: Any, /, axis: Any) -> Any:
    return FUNCTIONS["squeeze"](x, axis)


def _permute_dims(x: Any, /, axes: Any) -> Any:
    return FUNCTIONS["transpose"](x, axes)


def _reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    return FUNCTIONS["reshape"](x, shape)


def _broadcast_to(x: Any, /, shape: Any) -> Any:
    return FUNCTIONS["broadcast_to"](x, shape)


def _broadcast_arrays(*arrays: Any) -> Any:
    return list(_functions.broadcast_arrays(*arrays))


def _meshgrid(*arrays: Any, indexing: str = "xy") -> Any:
    return list(_functions.meshgrid(*arrays, indexing=indexing))


def _moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    return FUNCTIONS["moveaxis"](x, source, destination)


def _take(x: Any, indices: Any, /, *, axis: Any = None) -> Any:
    return FUNCTIONS["take"](x, indices, axis)


def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    return FUNCTIONS["take_along_axis"](x, indices, axis)


def _searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    return FUNCTIONS["searchsorted"](x1, x2, side, sorter)


def _diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    return FUNCTIONS["diff"](x, n, axis, prepend, append)


def _where(condition: Any, x1: Any, x2: Any, /) -> Any:
    return FUNCTIONS["where"](condition, x1, x2)


def _count_nonzero(x: Any, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    return FUNCTIONS["count_nonzero"](x, axis, keepdims=keepdims)


def _tril(x: Any, /, *, k: int = 0) -> Any:
    return FUNCTIONS["tril"](x, k)


def _triu(x: Any, /, *, k: int = 0) -> Any:
    return FUNCTIONS["triu"](x, k)


def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    return FUNCTIONS["unstack"](x, axis=axis)


def _matmul(x1: Any, x2: Any, /) -> Any:
    return UFUNCS["matmul"](np.matmul, x1, x2)


def _matrix_transpose(x: Any, /) -> Any:
    return FUNCTIONS["matrix_transpose"](x)


def _tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return FUNCTIONS["tensordot"](x1, x2, axes)


def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return FUNCTIONS["numpy.linalg.vecdot"](x1, x2, axis)


def _astype(x: Any, dtype: Any, /, *, copy: builtins.bool = True, device: Any = None) -> Any:
    return convert(value(x), dtype)


def _einsum(subscripts: str, *operands: Any) -> Any:
    return FUNCTIONS["einsum"](subscripts, *operands)


def _outer(x1: Any, x2: Any, /) -> Any:
    return FUNCTIONS["outer"](x1, x2)


# ---- creation ----
def _dtype(dtype: Any) -> Any:
    return np.dtype(np.float64 if dtype is None else dtype)


def _zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return _full(shape, 0, _dtype(dtype))


def _ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return _full(shape, 1, _dtype(dtype))


def _filled_with(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return _full(shape, fill_value, dtype)


def _arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """Bounds are numbers; of whole ones, `stop` alone may be a symbolic size."""
    arange: Any = np.arange
    if stop is None:
        start, stop = 0, start
    if isinstance(stop, Size) or isinstance(start, Size):
        n = stop - start
        if not (isinstance(step, int) and step == 1) or not isinstance(n, Size):
            return value(arange(start, stop, step, dtype))
        made = _iota((n,), 0) + value(start)
        return made if dtype is None else convert(made, dtype)
    return value(arange(start, stop, step, dtype))


def _linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
              endpoint: builtins.bool = True) -> Any:
    return value(np.linspace(start, stop, num, endpoint, dtype=dtype))


def _eye(n_rows: int, n_cols: Any = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    return convert(np.equal(_iota(shape, 1) - _iota(shape, 0), k), _dtype(dtype))


def _asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    return value(obj, dtype)


def _full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return _full(x.shape, fill_value, dtype or x.dtype)


def _like(fill: int) -> Callable[..., Any]:
    def call(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
        return _full(x.shape, fill, dtype or x.dtype)
    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
        "real": _real, "round": _round, "clip": _clip, "sort": _sort, "argsort": _argsort, "std": _std, "var": _var,
        **{name: _keyed(name) for name in ("max", "min", "any", "all", "argmax", "argmin", "mean")},
        "sum": _summed("sum"), "prod": _summed("prod"), "cumulative_sum": _cumulative("cumulative_sum"),
        "cumulative_prod": _cumulative("cumulative_prod"), "concat": _concat, "stack": _stack, "flip": _flip,
        "roll": _roll, "repeat": _repeat, "tile": _tile, "expand_dims": _expand_dims, "squeeze": _squeeze,
        "permute_dims": _permute_dims, "reshape": _reshape, "broadcast_to": _broadcast_to,
        "broadcast_arrays": _broadcast_arrays, "meshgrid": _meshgrid, "moveaxis": _moveaxis, "take": _take,
        "take_along_axis": _take_along_axis, "searchsorted": _searchsorted, "diff": _diff, "where": _where,
        "count_nonzero": _count_nonzero, "tril": _tril, "triu": _triu, "unstack": _unstack, "matmul": _matmul,
        "matrix_transpose": _matrix_transpose, "tensordot": _tensordot, "vecdot": _vecdot, "einsum": _einsum,
        "outer": _outer}
for _name, _function in _FUNCTIONS.items():
    globals()[_name] = _compiled(_name, _function)


def _made(name: str, traced: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Outside of traced functions a new array is NumPy's: there is nothing to compute."""
    def call(*args: Any, **keywords: Any) -> Any:
        if current() is not None:
            return traced(*args, **keywords)
        if keywords.get("device") not in (None, "cpu"):
            raise ValueError(f"{name}: device {keywords['device']!r}; there is cpu")
        return plain(*args, **keywords)
    call.__name__, call.__module__, call.__wrapped__ = name, "symplex.numpy", traced  # type: ignore[attr-defined]
    call.__doc__ = traced.__doc__ or f"{name} of the array API standard."
    return call


_CREATION: dict[str, Callable[..., Any]] = {
    "zeros": _zeros, "ones": _ones, "empty": _zeros, "full": _filled_with, "arange": _arange,
    "linspace": _linspace, "eye": _eye, "asarray": _asarray, "astype": _astype,
    "full_like": _full_like, "zeros_like": _like(0), "ones_like": _like(1),
    "empty_like": _like(0)}
for _name, _function in _CREATION.items():
    globals()[_name] = _made(_name, _function, getattr(np, _name))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """An array of another library as NumPy's, which shares its memory."""
    return np.from_dlpack(x, device=device, copy=copy)


# ---- element types ----
def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether promotion can lead from one element type to the other."""
    return np.can_cast(from_.dtype if _is_array(from_) else from_, to)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether an element type is of a kind such as "integral"."""
    return np.isdtype(np.dtype(dtype), kind)


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The element type of what is computed of these."""
    return np.result_type(*(x.dtype if isinstance(x, Tracer) else x for x in arrays_and_dtypes))


class _Info:
    """What this namespace offers (__array_namespace_info__)."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 8}

    def default_device(self) -> str:
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        return {"real floating": np.dtype(np.float64), "complex floating": np.dtype(np.complex128),
                "integral": np.dtype(np.int64), "indexing": np.dtype(np.int64)}

    def devices(self) -> list[str]:
        return ["cpu"]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        return {name: np.dtype(dtype) for name, dtype in _DTYPES.items() if kind is None or np.isdtype(
            np.dtype(dtype), kind)}


def __array_namespace_info__() -> _Info:
    """What this namespace offers."""
    return _Info()


_ABSENT = ("unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero", "nextafter", "imag")


def __getattr__(name: str) -> Any:
    if name == "linalg":
        import importlib
        return importlib.import_module("symplex.numpy.linalg")
    if name in _ABSENT:
        raise Unimplemented(f"symplex.numpy.{name}{REFUSED.get(name, '')}")
    raise AttributeError(f"module 'symplex.numpy' has no attribute '{name}'")

