"""Sums, products, extremes; products of matrices; norms, softmax, attention."""
from __future__ import annotations

import math
from typing import Any, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value, wide
from symplex.torch._shapes import triangle
from symplex.torch._table import Handler, HANDLERS, Type, dims_of, handles, operand, widened, axis_of


def count_of(x: Value, dims: Sequence[int]) -> Any:
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count


def known(count: Any) -> int:
    if not isinstance(count, int):
        raise Unsupported("the number of elements of a symbolic dimension")
    return count


# ---- reductions ----
@handles("sum")
def _sum(e: Emitter, out: Type, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return e.reduce(e.convert(x, out.dtype), dims_of(dim, len(x.shape)), "add", keepdim)


def mean_of(e: Emitter, x: Value, dims: Sequence[int], keep: bool) -> Value:
    count = known(count_of(x, dims))
    made = e.reduce(x, dims, "add", keep)
    return e.with_number("divide", made, count)


@handles("mean")
def _mean(e: Emitter, out: Type, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = e.convert(x, wide(out.dtype))
    return e.convert(mean_of(e, x, dims_of(dim, len(x.shape)), keepdim), out.dtype)


def variance_of(e: Emitter, x: Value, dims: Sequence[int], correction: float, keep: bool) -> tuple[Value, Value]:
    """The mean, with its dimensions kept, and the variance of two passes."""
    mean = mean_of(e, x, dims, True)
    apart = e.like("subtract", x, e.broadcast(mean, x.shape))
    total = e.reduce(e.like("multiply", apart, apart), dims, "add", keep)
    return mean, e.with_number("divide", total, max(0, known(count_of(x, dims)) - correction))


@handles("var")
def _var(e: Emitter, out: Type, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    x = e.convert(x, wide(out.dtype))
    correction = 1 if correction is None else correction
    return e.convert(variance_of(e, x, dims_of(dim, len(x.shape)), correction, keepdim)[1], out.dtype)


@handles("var_mean")
def _var_mean(e: Emitter, out: list[Type], x: Value, dim: Any = None, *, correction: Any = 1,
              keepdim: bool = False) -> list[Value]:
    rows = e.convert(x, wide(out[0].dtype))
    correction = 1 if correction is None else correction
    mean, variance = variance_of(e, rows, dims_of(dim, len(x.shape)), correction, keepdim)
    return [e.convert(variance, out[0].dtype), e.convert(e.reshape(mean, out[1].shape), out[1].dtype)]


def _extreme(reducer: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
        dims = dims_of(dim, len(x.shape))
        return e.reduce(x, dims, reducer, keepdim)
    return handler


for _name, _reducer in {"amax": "maximum", "amin": "minimum"}.items():
    HANDLERS[_name] = _extreme(_reducer)
HANDLERS["max.default"], HANDLERS["min.default"] = _extreme("maximum"), _extreme("minimum")


@handles("prod")
def _prod(e: Emitter, out: Type, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return e.reduce(e.convert(x, out.dtype), dims_of(dim, len(x.shape)), "multiply", keepdim)


def _truth(reducer: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        dims = [] if isinstance(dim, (list, tuple)) and not dim else dims_of(dim, len(x.shape))
        return e.convert(e.reduce(e.convert(x, "bool"), dims, reducer, keepdim), out.dtype)
    return handler


HANDLERS["any"], HANDLERS["all"] = _truth("add"), _truth("multiply")


# ---- products of matrices ----
@handles("mm", "bmm", "mv", "dot")
def _product(e: Emitter, out: Type, a: Value, b: Value) -> Value:
    batch = max(0, len(a.shape) - 2)
    return e.dot(a, b, [len(a.shape) - 1], [batch], batch)


@handles("_int_mm")
def _int_product(e: Emitter, out: Type, a: Value, b: Value) -> Value:
    return _product(e, out, e.convert(a, out.dtype), e.convert(b, out.dtype))


@handles("addmm", "baddbmm", "addmv")
def _added_product(e: Emitter, out: Type, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """Narrow floats are rounded once, behind the sum."""
    c, a, b = operand(e, c, wide(out.dtype), out.shape), widened(e, a), widened(e, b)
    made = _product(e, out, a, b)
    made = made if alpha == 1 else e.with_number("multiply", made, alpha)
    if beta == 0:
        return e.convert(made, out.dtype)
    c = c if beta == 1 else e.with_number("multiply", c, beta)
    return e.convert(e.like("add", made, c), out.dtype)


@handles("addbmm")
def _addbmm(e: Emitter, out: Type, c: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """The sum of all products is one product over two dimensions."""
    made = e.dot(widened(e, a), widened(e, b), [0, 2], [0, 1])
    made = made if alpha == 1 else e.with_number("multiply", made, alpha)
    if beta == 0:
        return e.convert(made, out.dtype)
    c = operand(e, c, made.dtype, out.shape)
    c = c if beta == 1 else e.with_number("multiply", c, beta)
    return e.convert(e.like("add", made, c), out.dtype)


# ---- softmax, norms ----
def _softmax(operation: str) -> Handler:
    def handler(e: Emitter, out: Type, x: Value, dim: int, half_to_float: bool = False) -> Value:
        x = e.convert(x, wide(out.dtype))
        if not x.shape:
            x = e.reshape(x, (1,))
        made = e.emit(operation, (x,), f"axis = {axis_of(dim, x)}", x.dtype, x.shape)
        return e.reshape(e.convert(made, out.dtype), out.shape)
    return handler


HANDLERS["_softmax"], HANDLERS["_log_softmax"] = _softmax("softmax"), _softmax("log_softmax")


def _scaled(e: Emitter, x: Value, scale: Value | None, bias: Value | None, dims: Sequence[int]) -> Value:
    """Times a scale and plus a bias, which stand along `dims`."""
    if scale is not None:
        x = e.like("multiply", x, e.broadcast(e.convert(scale, x.dtype), x.shape, dims))
    return x if bias is None else e.like("add", x, e.broadcast(e.convert(bias, x.dtype), x.shape, dims))


def _normalised(e: Emitter, x: Value, dims: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """(x - mean) rsqrt(variance + eps), the mean and that root, their dimensions kept."""
    mean, variance = variance_of(e, x, dims, 0, True)
    root = e.like("rsqrt", e.with_number("add", variance, eps))
    apart = e.like("subtract", x, e.broadcast(mean, x.shape))
    return e.like("multiply", apart, e.broadcast(root, x.shape)), mean, root


@handles("native_layer_norm")
def _layer_norm(e: Emitter, out: list[Type], x: Value, shape: Sequence[Any], scale: Value | None, bias: Value | None,
                eps: float, *, wanted: Sequence[bool]) -> list[Value | None]:
    axis = len(x.shape) - len(shape)
    dims, x = list(range(axis, len(x.shape))), widened(e, x)
    if not any(wanted[1:]) and 0 not in x.shape:
        one, zero = (e.constant(v, x.dtype, x.shape[axis:]) for v in (1, 0))
        operands = x, one if scale is None else e.convert(scale, x.dtype), \
            zero if bias is None else e.convert(bias, x.dtype)
        made = e.emit("layer_norm", operands, f"axis = {axis}, eps = {eps!r}", x.dtype, x.shape)
        return [e.convert(made, out[0].dtype), None, None]
    made, mean, root = _normalised(e, x, dims, eps)
    made = _scaled(e, made, scale, bias, dims)
    return [e.convert(v, t.dtype) for v, t in zip((made, mean, root), out)]


@handles("native_group_norm")
def _group_norm(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None, n: int, c: int, hw: int,
                groups: int, eps: float) -> list[Value]:
    wide_x = e.reshape(widened(e, x), (n, groups, c // groups * hw))
    made, mean, root = _normalised(e, wide_x, [2], eps)
    made = _scaled(e, e.reshape(made, x.shape), scale, bias, [1])
    return [e.convert(e.reshape(v, t.shape), t.dtype) for v, t in zip((made, mean, root), out)]


@handles("_native_batch_norm_legit_no_training")
def _batch_norm(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None, mean: Value,
                variance: Value, momentum: float, eps: float) -> list[Value]:
    rows = widened(e, x)
    one, zero = (e.constant(v, rows.dtype, mean.shape) for v in (1, 0))
    operands = [e.convert(v, rows.dtype) for v in (one if scale is None else scale, zero if bias is None else bias,
                                                   mean, variance)]
    made = e.emit("batch_norm", (rows, *operands), f"axis = 1, eps = {eps!r}", rows.dtype, rows.shape)
    return [e.convert(made, out[0].dtype)] + [e.constant(0, t.dtype, t.shape) for t in out[1:]]


def _training_batch_norm(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None,
                         running: Sequence[Value | None], momentum: float, eps: float) -> list[Value]:
    """The result, mean, root; and new running statistics, of which the variance is that of a sample."""
    rows = widened(e, x)
    dims = [d for d in range(len(x.shape)) if d != 1]
    made, mean, root = _normalised(e, rows, dims, eps)
    made = _scaled(e, made, scale, bias, [1])
    results = [made, e.reshape(mean, (x.shape[1],)), e.reshape(root, (x.shape[1],))]
    _, sample = variance_of(e, rows, dims, 1, False)
    for old, new in zip(running, (results[1], sample)):
        if old is not None:
            kept = e.with_number("multiply", e.convert(old, rows.dtype), 1 - momentum)
            results.append(e.like("add", e.with_number("multiply", new, momentum), kept))
    return results


@handles("_native_batch_norm_legit_functional")
def _batch_norm_functional(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None, mean: Value,
                           variance: Value, training: bool, momentum: float, eps: float) -> list[Value]:
    if not training:
        made = _batch_norm(e, out[:3], x, scale, bias, mean, variance, momentum, eps)
        return [*made, mean, variance]
    made = _training_batch_norm(e, out, x, scale, bias, (mean, variance), momentum, eps)
    return [e.convert(v, t.dtype) for v, t in zip(made, out)]


@handles("_batch_norm_with_update_functional")
def _batch_norm_with_update(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None, mean: Value,
                            variance: Value, momentum: float, eps: float) -> list[Value]:
    made = _training_batch_norm(e, out, x, scale, bias, (mean, variance), momentum, eps)
    made.insert(3, e.constant(0, out[3].dtype, out[3].shape))  # what a library would keep for its backward form
    return [e.convert(v, t.dtype) for v, t in zip(made, out)]


@handles("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(e: Emitter, out: list[Type], x: Value, scale: Value | None, bias: Value | None, training: bool,
                         momentum: float, eps: float) -> list[Value]:
    made = _training_batch_norm(e, out, x, scale, bias, (None, None), momentum, eps)
    return [e.convert(v, t.dtype) for v, t in zip(made, out)]


# ---- attention ----
def _mask_of(e: Emitter, q: Value, k: Value, causal: bool, mask: Value | None) -> Value | None:
    shape = (*q.shape[:-1], k.shape[-2])
    made = None if mask is None else operand(e, mask, q.dtype, shape)
    if causal:
        below = triangle(e, shape, 0)
        made = e.select(below, 0.0 if made is None else made, e.constant(-math.inf, q.dtype, shape))
    return made


def _scores(e: Emitter, q: Value, k: Value, scale: float, mask: Value | None) -> Value:
    batch = len(q.shape) - 2
    made = e.with_number("multiply", e.dot(q, k, [batch + 1], [batch + 1], batch), scale)
    return made if mask is None else e.like("add", made, mask)


def _for_heads_of(e: Emitter, q: Value, x: Value) -> Value:
    """Keys or values [.., heads, rows, width] of as many heads as there are of queries: each serves several, side by
    side (`enable_gqa`)."""
    if q.shape[:-2] == x.shape[:-2]:
        return x
    lead, heads, own = x.shape[:-3], q.shape[-3], x.shape[-3]
    if not isinstance(heads, int) or not isinstance(own, int) or own == 0 or heads % own:
        raise Unsupported(f"{heads} heads of queries for {own} of keys or values")
    k = len(lead)
    spread = e.broadcast(x, (*lead, own, heads // own, *x.shape[-2:]), [*range(k + 1), k + 2, k + 3])
    return e.reshape(spread, (*lead, heads, *x.shape[-2:]))


def _of_own_heads(e: Emitter, slope: Value, x: Value) -> Value:
    """The other way: the sum over the queries that each head of x served."""
    if slope.shape[:-2] == x.shape[:-2]:
        return slope
    lead, own = x.shape[:-3], x.shape[-3]
    apart = e.reshape(slope, (*lead, own, slope.shape[-3] // own, *slope.shape[-2:]))
    return e.reduce(apart, [len(lead) + 1], "add")


@handles("_scaled_dot_product_flash_attention_for_cpu")
def _attention(e: Emitter, out: list[Type], q: Value, k: Value, v: Value, dropout_p: float = 0, is_causal: bool = False,
               *, attn_mask: Value | None = None, scale: float | None = None,
               wanted: Sequence[bool]) -> list[Value | None]:
    if dropout_p:
        raise Unsupported("dropout")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = widened(e, q), widened(e, _for_heads_of(e, q, k)), widened(e, _for_heads_of(e, q, v))
    mask = _mask_of(e, q, k, is_causal, attn_mask)
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    made = e.emit("attention", operands, f"scale = {scale!r}", q.dtype, out[0].shape)
    if not wanted[1]:
        return [e.convert(made, out[0].dtype), None]
    scores = _scores(e, q, k, scale, mask)  # the logarithm of each row's sum, which the backward form takes
    last = len(scores.shape) - 1
    highest = e.reduce(scores, [last], "maximum", True)
    total = e.reduce(e.like("exponential", e.like("subtract", scores, e.broadcast(highest, scores.shape))), [last],
                     "add", True)
    sums = e.like("add", highest, e.like("log", total))
    return [e.convert(made, out[0].dtype), e.convert(e.reshape(sums, out[1].shape), out[1].dtype)]


@handles("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(e: Emitter, out: list[Type], slope: Value, q: Value, k: Value, v: Value, result: Value,
                        sums: Value, dropout_p: float, is_causal: bool, *, attn_mask: Value | None = None,
                        scale: float | None = None) -> list[Value]:
    """With weights p = e^(scores - their logarithm of sums): dv = p^T do, ds = p (do v^T - row sums of do o)."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    own = k, v
    k, v = _for_heads_of(e, q, k), _for_heads_of(e, q, v)
    slope, q, k, v, result = (widened(e, x) for x in (slope, q, k, v, result))
    scores = _scores(e, q, k, scale, _mask_of(e, q, k, is_causal, attn_mask))
    batch = len(q.shape) - 2
    sums = e.reshape(e.convert(sums, q.dtype), (*q.shape[:-1], 1))
    weights = e.like("exponential", e.like("subtract", scores, e.broadcast(sums, scores.shape)))
    rows = e.reduce(e.like("multiply", slope, result), [batch + 1], "add", True)
    apart = e.like("subtract", e.dot(slope, v, [batch + 1], [batch + 1], batch), e.broadcast(rows, scores.shape))
    of_scores = e.with_number("multiply", e.like("multiply", weights, apart), scale)
    made = (e.dot(of_scores, k, [batch + 1], [batch], batch),
            _of_own_heads(e, e.dot(of_scores, q, [batch], [batch], batch), own[0]),
            _of_own_heads(e, e.dot(weights, slope, [batch], [batch], batch), own[1]))
    return [e.convert(x, t.dtype) for x, t in zip(made, out)]
