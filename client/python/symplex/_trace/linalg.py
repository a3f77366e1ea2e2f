"""Products of arrays, einsum, and numpy.linalg. Solving, factorisations and determinants are programs: a scan over
columns. Singular values and eigenvalues are NumPy's own, a call of the host between two programs."""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Sequence

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace import control as _control
from symplex._trace.functions import diagonal, moveaxis, triangle
from symplex._trace.index import gather, iota, take_along_axis
from symplex._trace.size import Extent, Size, broadcast, count, meet, place, texts
from symplex._trace.tracer import (FUNCTIONS, UFUNCS, Tracer, axes_of, broadcast_to, compare, concatenate, convert,
                                   emit, expand_dims, full, graph, one_axis, real, reduce, reshape, result_type,
                                   select, swapaxes, total, transpose, value)


# ---- products ----
def _dot(a: Tracer, b: Tracer, batch: Sequence[tuple[int, int]], contract: Sequence[tuple[int, int]], what: str
         ) -> Tracer:
    """Batch dimensions, what is left of a, what is left of b."""
    dtype = a.dtype if a.dtype == b.dtype else np.result_type(a.dtype, b.dtype)
    kind = np.dtype(np.uint8) if dtype == bool else dtype
    a, b = convert(convert(a, dtype), kind), convert(convert(b, dtype), kind)
    of, by = a.shape, b.shape
    for i, j in (*batch, *contract):
        meet(of[i], by[j], what, [of, by])
    left, right = [i for i, _ in batch], [j for _, j in batch]
    attributes: dict[str, Any] = {"lhs_batch": left, "rhs_batch": right} if batch else {}
    attributes["lhs_contract"], attributes["rhs_contract"] = [i for i, _ in contract], [j for _, j in contract]
    left, right = left + attributes["lhs_contract"], right + attributes["rhs_contract"]
    shape = [of[i] for i, _ in batch]
    shape += [n for d, n in enumerate(of) if d not in left]
    shape += [n for d, n in enumerate(by) if d not in right]
    return convert(emit("dot_general", (a, b), attributes, kind, shape), dtype)


def matmul(x1: Any, x2: Any) -> Tracer:
    a, b = value(x1), value(x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"numpy.matmul of a value without dimensions ({place()})")
    if a.dtype == bool and b.dtype == bool:
        return matmul(convert(a, np.int32), convert(b, np.int32)) > 0
    row, column = a.ndim == 1, b.ndim == 1
    a = reshape(a, (1, *a.shape)) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    meet(a.shape[-1], b.shape[-2], "numpy.matmul", [a.shape, b.shape])
    batch = broadcast([a.shape[:-2], b.shape[:-2]], "numpy.matmul")
    n = len(batch)
    if b.ndim == 2 and n:  # one matrix for all: rows of a flat matrix
        flat = _dot(reshape(a, (count(a.shape[:-1]), a.shape[-1])), b, (), [(1, 0)], "numpy.matmul")
        made = reshape(flat, (*a.shape[:-1], b.shape[-1]))
    else:
        pairs = [(d, d) for d in range(n)]
        made = _dot(broadcast_to(a, batch + a.shape[-2:]), broadcast_to(b, batch + b.shape[-2:]), pairs,
                    [(n + 1, n)], "numpy.matmul")
    shape = batch + (() if row else made.shape[-2:-1]) + (() if column else made.shape[-1:])
    return reshape(made, shape)


def dot(a: Any, b: Any) -> Tracer:
    a, b = value(a), value(b)
    if a.ndim == 0 or b.ndim == 0:
        return np.multiply(a, b)
    return _dot(a, b, (), [(a.ndim - 1, max(b.ndim - 2, 0))], "numpy.dot")


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    a, b = value(a), value(b)
    if np.ndim(axes) == 0:
        k = operator.index(axes)
        pairs = [(a.ndim - k + i, i) for i in range(k)]
    else:
        left, right = (v if isinstance(v, (tuple, list)) else (v,) for v in axes)
        pairs = [(one_axis(a, i), one_axis(b, j)) for i, j in zip(left, right, strict=True)]
    return _dot(a, b, (), pairs, "numpy.tensordot")


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Tracer:
    a, b = value(x1), value(x2)
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    meet(a.shape[-1], b.shape[-1], "numpy.vecdot", [a.shape, b.shape])
    return reshape(matmul(expand_dims(a, -2), expand_dims(b, -1)), broadcast([a.shape[:-1], b.shape[:-1]], "vecdot"))


def outer(a: Any, b: Any) -> Tracer:
    a, b = reshape(a, -1), reshape(b, -1)
    return np.multiply(expand_dims(a, 1), b)


def inner(a: Any, b: Any) -> Tracer:
    a, b = value(a), value(b)
    return np.multiply(a, b) if a.ndim == 0 or b.ndim == 0 else _dot(a, b, (), [(a.ndim - 1, b.ndim - 1)],
                                                                     "numpy.inner")


def kron(a: Any, b: Any) -> Tracer:
    a, b = value(a), value(b)
    rank = max(a.ndim, b.ndim)
    a, b = (reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    wide = np.multiply(expand_dims(a, [2 * d + 1 for d in range(rank)]), expand_dims(b, [2 * d for d in range(rank)]))
    return reshape(wide, tuple(n * m for n, m in zip(a.shape, b.shape)))


def cross(a: Any, b: Any, axis: int = -1) -> Tracer:
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(f"numpy.cross of {texts(a.shape)} and {texts(b.shape)}: 3 elements are needed ({place()})")
    parts = [a[..., (i + 1) % 3] * b[..., (i + 2) % 3] - a[..., (i + 2) % 3] * b[..., (i + 1) % 3] for i in range(3)]
    return moveaxis(FUNCTIONS["stack"](parts, -1), -1, axis)


# ---- einsum ----
def einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Tracer:
    """From left to right, two at a time."""
    if not isinstance(subscripts, str):
        raise Unimplemented(f"numpy.einsum without a text of subscripts ({place()})")
    values = [value(x) for x in operands]
    inputs, output = _subscripts(subscripts.replace(" ", ""), values)
    dtype = result_type(*values)
    terms = [_traces(convert(x, dtype), labels) for x, labels in zip(values, inputs)]
    made, labels = terms[0]
    for k in range(len(terms)):
        later = set(output).union(*(other for _, other in terms[k + 1:]))
        made, labels = _summed(made, labels, later if k + 1 == len(terms) else later)
        if k + 1 < len(terms):
            later = set(output).union(*(other for _, other in terms[k + 2:]))
            right = _summed(*terms[k + 1], later | set(labels))
            made, labels = _pair(made, labels, *right, later)
    made, labels = _summed(made, labels, set(output))
    return transpose(made, [labels.index(c) for c in output])


def _subscripts(text: str, values: list[Tracer]) -> tuple[list[str], str]:
    """Labels of each operand and of the result; dimensions under an ellipsis get labels of their own."""
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(values):
        raise ValueError(f"numpy.einsum '{text}': {len(inputs)} subscripts for {len(values)} operands ({place()})")
    extra = [chr(0x3b1 + i) for i in range(8)]
    longest = 0
    for i, (row, x) in enumerate(zip(inputs, values)):
        if "..." in row:
            k = x.ndim - len(row.replace("...", ""))
            longest = max(longest, k)
            inputs[i] = row.replace("...", "".join(extra[8 - k:]) if k else "")
        if len(inputs[i]) != x.ndim:
            raise ValueError(f"numpy.einsum '{text}': '{row}' for an operand of {x.ndim} dimensions ({place()})")
    dots = "".join(extra[8 - longest:]) if longest else ""
    if not arrow:
        once = sorted(c for c in set("".join(inputs)) if "".join(inputs).count(c) == 1 and c not in dots)
        return inputs, dots + "".join(once)
    output = right.replace("...", dots)
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise ValueError(f"numpy.einsum '{text}': the result has labels twice, or that no operand has ({place()})")
    return inputs, output


def _traces(x: Tracer, labels: str) -> tuple[Tracer, str]:
    """Repeated labels of one operand are its diagonal."""
    for c in sorted(set(labels)):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            meet(x.shape[i], x.shape[j], f"numpy.einsum, label {c}", [x.shape])
            x = diagonal(x, 0, i, j)
            labels = "".join(d for k, d in enumerate(labels) if k not in (i, j)) + c
    return x, labels


def _summed(x: Tracer, labels: str, kept: set[str]) -> tuple[Tracer, str]:
    gone = [i for i, c in enumerate(labels) if c not in kept]
    return (reduce(x, "add", tuple(gone)) if gone else x), "".join(c for c in labels if c in kept)


def _pair(a: Tracer, left: str, b: Tracer, right: str, later: set[str]) -> tuple[Tracer, str]:
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in later]
    contract = [c for c in shared if c not in later]
    for c in shared:  # extents of 1 meet others
        i, j = left.index(c), right.index(c)
        if a.shape[i] != b.shape[j] and 1 in (a.shape[i], b.shape[j]):
            n = b.shape[j] if a.shape[i] == 1 else a.shape[i]
            a = broadcast_to(a, tuple(n if d == i else m for d, m in enumerate(a.shape)))
            b = broadcast_to(b, tuple(n if d == j else m for d, m in enumerate(b.shape)))
    made = _dot(a, b, [(left.index(c), right.index(c)) for c in batch],
                [(left.index(c), right.index(c)) for c in contract], "numpy.einsum")
    rest = [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return made, "".join(batch + rest)


# ---- solving: programs ----
def _square(a: Any, what: str) -> Tracer:
    a = real(a)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{what}: {a.ndim} dimensions, at least 2 are needed ({place()})")
    meet(a.shape[-1], a.shape[-2], what, [a.shape])
    if isinstance(a.shape[-1], Size):
        raise Unimplemented(f"{what} of the symbolic dimension {a.shape[-1]} ({place()})")
    return a


def _column(x: Tracer, k: Tracer) -> Tracer:
    return gather(x, reshape(k, (1,)), x.ndim - 1)[..., 0]


def _row(x: Tracer, k: Tracer) -> Tracer:
    return gather(x, reshape(k, (1,)), x.ndim - 2)[..., 0, :]


def _eliminated(a: Tracer) -> tuple[Tracer, Tracer]:
    """Gaussian elimination with partial pivoting of a matrix with further columns behind it; and how often rows were
    exchanged."""
    n = a.shape[-2]
    rows = iota((n,), 0)

    def step(carry: Any, k: Tracer) -> Any:
        x, swaps = carry
        column = _column(x, k)
        size = select(np.greater_equal(rows, k), abs(column), value(-1, x.dtype))
        pivot = FUNCTIONS["argmax"](size, -1, keepdims=True)
        order = select(np.equal(rows, k), pivot, select(np.equal(rows, pivot), k, rows))
        x = take_along_axis(x, expand_dims(order, -1), -2)
        swaps = swaps + convert(np.not_equal(pivot[..., 0], k), np.int32)
        head, column = _row(x, k), _column(x, k)
        below = np.greater(rows, k)
        factor = select(below, column / expand_dims(_column(head, k), -1), value(0, x.dtype))
        made = x - expand_dims(factor, -1) * expand_dims(head, -2)
        cleared = np.equal(iota((x.shape[-1],), 0), k) & expand_dims(below, -1)
        return (select(cleared, value(0, x.dtype), made), swaps), None
    swaps = full(a.shape[:-2], 0, np.int32)
    (x, swaps), _ = _control.scan(step, (a, swaps), rows)
    return x, swaps


def solve(a: Any, b: Any) -> Tracer:
    """Elimination with partial pivoting and substitution. A singular matrix gives infinities or NaN, where NumPy
    raises an error."""
    dtype = result_type(real(a), real(b))
    a, b = convert(_square(a, "numpy.linalg.solve"), dtype), convert(real(b), dtype)
    vector = b.ndim == 1
    b = expand_dims(b, -1) if vector else b
    meet(a.shape[-1], b.shape[-2], "numpy.linalg.solve", [a.shape, b.shape])
    batch = broadcast([a.shape[:-2], b.shape[:-2]], "numpy.linalg.solve")
    a, b = broadcast_to(a, batch + a.shape[-2:]), broadcast_to(b, batch + b.shape[-2:])
    n = a.shape[-1]
    x, _ = _eliminated(concatenate([a, b], -1))
    upper, right = x[..., :n], x[..., n:]

    def step(known: Tracer, k: Tracer) -> Any:
        row = _row(upper, k)
        rest = _row(right, k) - matmul(expand_dims(row, -2), known)[..., 0, :]
        solved = rest / expand_dims(_column(row, k), -1)
        here = np.equal(iota((n,), 0), k)
        return select(expand_dims(here, -1), expand_dims(solved, -2), known), None
    made, _ = _control.scan(step, full(right.shape, 0, dtype), iota((n,), 0), reverse=True)
    return made[..., 0] if vector else made


def _identity(n: Extent, dtype: Any) -> Tracer:
    return convert(np.equal(iota((n, n), 0), iota((n, n), 1)), dtype)


def inv(a: Any) -> Tracer:
    a = _square(a, "numpy.linalg.inv")
    return solve(a, broadcast_to(_identity(a.shape[-1], a.dtype), a.shape))


def _pivots(a: Any, what: str) -> tuple[Tracer, Tracer]:
    a = _square(a, what)
    x, swaps = _eliminated(a)
    return diagonal(x, 0, -2, -1), convert(1 - 2 * (swaps & 1), a.dtype)


def det(a: Any) -> Tracer:
    pivots, sign = _pivots(a, "numpy.linalg.det")
    zero = FUNCTIONS["any"](np.equal(pivots, 0), -1)
    return select(zero, value(0, pivots.dtype), FUNCTIONS["prod"](pivots, -1) * sign)


def slogdet(a: Any) -> Any:
    pivots, sign = _pivots(a, "numpy.linalg.slogdet")
    zero = FUNCTIONS["any"](np.equal(pivots, 0), -1)
    sign = select(zero, value(0, pivots.dtype), FUNCTIONS["prod"](np.sign(pivots), -1) * sign)
    log = select(zero, value(-math.inf, pivots.dtype), total(np.log(abs(pivots)), -1))
    return np.linalg._linalg.SlogdetResult(sign, log)


def cholesky(x: Any, /, *, upper: bool = False) -> Tracer:
    """Column by column. What is not positive definite gives NaN, where NumPy raises an error."""
    a = _square(x, "numpy.linalg.cholesky")
    n = a.shape[-1]
    rows = iota((n,), 0)
    a = swapaxes(a, -1, -2) if upper else a

    def step(rest: Tracer, k: Tracer) -> Any:
        column = _column(rest, k)
        head = expand_dims(np.sqrt(_column(column, k)), -1)
        column = select(np.greater_equal(rows, k), column / head, value(0, a.dtype))
        return rest - expand_dims(column, -1) * expand_dims(column, -2), column
    _, columns = _control.scan(step, a, rows)
    made = moveaxis(columns, 0, -1)
    return swapaxes(made, -1, -2) if upper else made


def qr(a: Any, mode: str = "reduced") -> Any:
    """Householder's reflections, one for each column, with LAPACK's choice of signs."""
    a = real(a)
    if mode not in ("reduced", "complete", "r") or a.ndim < 2 or isinstance(count(a.shape[-2:]), Size):
        raise Unimplemented(f"numpy.linalg.qr of {texts(a.shape)} with mode '{mode}' ({place()})")
    m, n = a.shape[-2:]
    rows = iota((m,), 0)
    zero = value(0, a.dtype)

    def step(carry: Any, k: Tracer) -> Any:
        r, q = carry
        column = _column(r, k)
        head = _column(column, k)
        below = select(np.greater(rows, k), column, zero)
        size = norm(below, axis=-1)
        length = np.hypot(head, size)
        beta = select(compare(head, "lt", 0), length, -length)
        v = select(np.equal(rows, k), expand_dims(head - beta, -1), below)
        square = total(v * v, -1)
        scale = expand_dims(expand_dims(select(compare(size, "gt", 0), value(2, a.dtype) / square, zero), -1), -1)
        r = r - scale * expand_dims(v, -1) * matmul(expand_dims(v, -2), r)
        q = q - scale * matmul(q, expand_dims(v, -1)) * expand_dims(v, -2)
        return (r, q), None
    q = broadcast_to(_identity(m, a.dtype), (*a.shape[:-2], m, m))
    (r, q), _ = _control.scan(step, (a, q), iota((min(m, n),), 0))
    r = triangle(False)(r)
    if mode != "complete":
        r, q = r[..., :min(m, n), :], q[..., :min(m, n)]
    results: Any = np.linalg._linalg.QRResult
    return r if mode == "r" else results(q, r)


# ---- norms ----
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tracer:
    x = real(x)
    if axis is None and (ord is None or x.ndim < 2):
        axis = tuple(range(x.ndim))
        if ord is None or x.ndim < 2:
            return _vector_norm(x, 2 if ord is None else ord, axis, keepdims)
    axis = tuple(range(x.ndim))[-2:] if axis is None else axis
    axes = [one_axis(x, d) for d in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(axes) == 1 or ord is None:
        return _vector_norm(x, 2 if ord is None else ord, tuple(axes), keepdims)
    return matrix_norm(moveaxis(x, axes, (-2, -1)), ord=ord, keepdims=keepdims)


def _vector_norm(x: Tracer, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Squares are of numbers that are scaled by the largest, so that none is out of range."""
    size = abs(x)
    if ord in (math.inf, -math.inf):
        return reduce(size, "maximum" if ord > 0 else "minimum", axis, keepdims)
    if ord == 0:
        return total(convert(compare(x, "ne", 0), x.dtype), axis, keepdims=keepdims)
    if ord == 1:
        return total(size, axis, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(total(x * x, axis, keepdims=keepdims))
    if not isinstance(ord, (int, float)):
        raise ValueError(f"numpy.linalg.norm: ord {ord!r} for vectors ({place()})")
    return np.power(total(np.power(size, float(ord)), axis, keepdims=keepdims), 1.0 / ord)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tracer:
    x = real(x)
    return _vector_norm(x, ord, axes_of(x, axis), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tracer:
    x = real(x)
    axes = (x.ndim - 2, x.ndim - 1)
    if ord == "fro":
        return _vector_norm(x, 2, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        sums = total(abs(x), axes[0] if abs(ord) == 1 else axes[1], keepdims=True)
        made = reduce(sums, "maximum" if ord > 0 else "minimum", axes, True)
    elif ord in (2, -2, "nuc"):
        values = expand_dims(svdvals(x), -1)
        made = total(values, -2, keepdims=True) if ord == "nuc" else reduce(
            values, "maximum" if ord == 2 else "minimum", -2, True)
    else:
        raise ValueError(f"numpy.linalg.norm: ord {ord!r} for matrices ({place()})")
    return made if keepdims else reshape(made, made.shape[:-2])


# ---- calls of the host ----
def host(name: str, function: Callable[..., Any], operands: Sequence[Tracer], types: Sequence[Any]) -> list[Tracer]:
    """NumPy computes it, between the program of what comes before and that of what comes behind."""
    return graph().many("host", list(operands), {"name": name, "function": function}, types)


def _svd_values(a: Any) -> Any:
    return np.linalg.svd(a, compute_uv=False)


def _svd_reduced(a: Any) -> Any:
    return tuple(np.linalg.svd(a, full_matrices=False))


def _svd_full(a: Any) -> Any:
    return tuple(np.linalg.svd(a))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    a = real(a)
    if a.ndim < 2 or hermitian or isinstance(count(a.shape[-2:]), Size):
        raise Unimplemented(f"numpy.linalg.svd of {texts(a.shape)}{', hermitian' if hermitian else ''} ({place()})")
    m, n = a.shape[-2:]
    k, batch = min(m, n), a.shape[:-2]
    if not compute_uv:
        return host("numpy.linalg.svd", _svd_values, [a], [(a.dtype, (*batch, k))])[0]
    left, right = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    made = host("numpy.linalg.svd", _svd_full if full_matrices else _svd_reduced, [a],
                [(a.dtype, (*batch, *left)), (a.dtype, (*batch, k)), (a.dtype, (*batch, *right))])
    results: Any = np.linalg._linalg.SVDResult
    return results(*made)


def svdvals(x: Any, /) -> Tracer:
    return svd(x, compute_uv=False)


def _eigh_lower(a: Any) -> Any:
    return tuple(np.linalg.eigh(a))


def _eigh_upper(a: Any) -> Any:
    return tuple(np.linalg.eigh(a, "U"))


def eigh(a: Any, UPLO: str = "L") -> Any:
    a = _square(a, "numpy.linalg.eigh")
    made = host("numpy.linalg.eigh", _eigh_upper if UPLO.upper() == "U" else _eigh_lower, [a],
                [(a.dtype, a.shape[:-1]), (a.dtype, a.shape)])
    results: Any = np.linalg._linalg.EighResult
    return results(*made)


def eigvalsh(a: Any, UPLO: str = "L") -> Tracer:
    return eigh(a, UPLO)[0]


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tracer:
    a = real(a)
    u, s, v = svd(a, full_matrices=False)
    limit = rcond if rcond is not None else rtol if rtol is not None else max(a.shape[-2:]) * np.finfo(a.dtype).eps
    small = np.less_equal(s, reduce(s, "maximum", -1, True) * value(limit, a.dtype))
    scaled = select(small, value(0, a.dtype), value(1, a.dtype) / s)
    return matmul(swapaxes(v, -1, -2) * expand_dims(scaled, -2), swapaxes(u, -1, -2))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tracer:
    a = real(A)
    s = svdvals(a)
    rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol
    limit = reduce(s, "maximum", -1, True) * value(rtol, a.dtype) if tol is None else value(tol, a.dtype)
    return total(convert(np.greater(s, limit), np.int64), -1)


def matrix_power(a: Any, n: int) -> Tracer:
    a, n = value(a), operator.index(n)
    if n < 0:
        return matrix_power(inv(a), -n)
    made = broadcast_to(_identity(a.shape[-1], a.dtype), a.shape)
    while n:
        made = matmul(made, a) if n & 1 else made
        a, n = (matmul(a, a) if n > 1 else a), n >> 1
    return made


def multi_dot(arrays: Sequence[Any]) -> Tracer:
    made = value(arrays[0])
    for x in arrays[1:]:
        made = matmul(made, x)
    return made


def _cond(x: Any, p: Any = None) -> Tracer:
    x = real(x)
    if p in (None, 2, -2):
        s = svdvals(x)
        most, least = reduce(s, "maximum", -1), reduce(s, "minimum", -1)
        return most / least if p != -2 else least / most
    return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)


UFUNCS["matmul"] = lambda ufunc, a, b: matmul(a, b)
UFUNCS["vecdot"] = lambda ufunc, a, b: vecdot(a, b)
UFUNCS["matvec"] = lambda ufunc, a, b: matmul(a, expand_dims(b, -1))[..., 0]
UFUNCS["vecmat"] = lambda ufunc, a, b: matmul(expand_dims(a, -2), b)[..., 0, :]
FUNCTIONS.update({"dot": dot, "tensordot": tensordot, "outer": outer, "inner": inner, "kron": kron, "cross": cross,
                  "einsum": einsum, "vdot": lambda a, b: dot(reshape(a, -1), reshape(b, -1)),
                  "matrix_transpose": lambda x: swapaxes(x, -1, -2)})
_LINALG: dict[str, Callable[..., Any]] = {
    "solve": solve, "inv": inv, "det": det, "slogdet": slogdet, "cholesky": cholesky, "qr": qr, "norm": norm,
    "vector_norm": vector_norm, "matrix_norm": matrix_norm, "svd": svd, "svdvals": svdvals, "eigh": eigh,
    "eigvalsh": eigvalsh, "pinv": pinv, "matrix_rank": matrix_rank, "matrix_power": matrix_power,
    "multi_dot": multi_dot, "cond": _cond, "matmul": matmul, "outer": outer, "tensordot": tensordot,
    "vecdot": lambda a, b, axis=-1: vecdot(a, b, axis), "cross": lambda a, b, axis=-1: cross(a, b, axis),
    "diagonal": lambda x, offset=0: diagonal(x, offset, -2, -1), "matrix_transpose": lambda x: swapaxes(x, -1, -2),
    "trace": lambda x, offset=0, dtype=None: total(diagonal(x, offset, -2, -1), -1, dtype)}
FUNCTIONS.update({f"numpy.linalg.{name}": function for name, function in _LINALG.items()})
