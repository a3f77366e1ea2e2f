"""The extension of linear algebra of the array API standard. Solving and factorisations are programs; singular values
and eigenvalues are NumPy's, called between two programs, as `symplex.explain` says."""
from __future__ import annotations

from typing import Any, Callable

from symplex import numpy as _namespace
from symplex._trace import linalg as _linalg
from symplex._trace.tracer import FUNCTIONS


def _diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return FUNCTIONS["numpy.linalg.diagonal"](x, offset)


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return FUNCTIONS["numpy.linalg.trace"](x, offset, dtype)


def _cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _linalg.cross(x1, x2, axis)


def _svd(x: Any, /, *, full_matrices: bool = True) -> Any:
    return _linalg.svd(x, full_matrices)


def _pinv(x: Any, /, *, rtol: Any = None) -> Any:
    return _linalg.pinv(x, rtol=rtol)


def _matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    return _linalg.matrix_rank(x, rtol=rtol)


def _qr(x: Any, /, *, mode: str = "reduced") -> Any:
    return _linalg.qr(x, mode)


def _matrix_power(x: Any, n: int, /) -> Any:
    return _linalg.matrix_power(x, n)


def _one(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, /) -> Any:
        return function(x)
    return call


def _two(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x1: Any, x2: Any, /) -> Any:
        return function(x1, x2)
    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
        "cholesky": _linalg.cholesky, "cross": _cross, "det": _one(_linalg.det), "diagonal": _diagonal,
        "eigh": _one(_linalg.eigh), "eigvalsh": _one(_linalg.eigvalsh), "inv": _one(_linalg.inv),
        "matrix_norm": _linalg.matrix_norm, "matrix_power": _matrix_power, "matrix_rank": _matrix_rank,
        "outer": _two(_linalg.outer), "pinv": _pinv, "qr": _qr, "slogdet": _one(_linalg.slogdet),
        "solve": _two(_linalg.solve), "svd": _svd, "svdvals": _linalg.svdvals, "trace": _trace,
        "vector_norm": _linalg.vector_norm}
for _name, _function in _FUNCTIONS.items():
    globals()[_name] = _namespace._compiled(_name, _function)
for _name in ("matmul", "matrix_transpose", "tensordot", "vecdot"):
    globals()[_name] = getattr(_namespace, _name)
