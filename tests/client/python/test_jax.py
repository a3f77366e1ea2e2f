#!/usr/bin/env python3
"""symplex.jax.jit beside jax.jit: the same functions, alone, inside of jax.jit, under vmap and grad.

Where operands are small whole numbers and results are sums and products of them, equal means equal. Elsewhere JAX
itself gives the measure: the function is also computed from the same numbers in f64, and ours may be as far from that
as 8 times what jax.jit in f32 is, or 8 units in the last place of the largest value, whichever is more: both round
each operation once, in another order."""
import math
import os
import pathlib
import sys
import threading
import warnings

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import symplex  # noqa: E402
from small import fails  # noqa: E402

jax.config.update("jax_enable_x64", True)
SEED = int(os.environ.get("SX_SEED", "20261124"))
RNG = np.random.default_rng(SEED)
X = jnp.asarray(np.arange(12).reshape(3, 4) % 7 - 3, jnp.float32)
W = jnp.asarray(np.arange(20).reshape(4, 5) % 5 - 2, jnp.float32)
I = jnp.array([2, 0, 1, 5, -1])
IMAGE = jnp.asarray(RNG.integers(-3, 4, (2, 3, 8, 8)), jnp.float32)
FILTER = jnp.asarray(RNG.integers(-2, 3, (4, 3, 3, 3)), jnp.float32)


def jit(function, **options):
    return symplex.jax.jit(function, strict=True, threads=1, **options)


def pairs(got, want):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want), (len(got), len(want))
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and g.dtype == w.dtype, (i, g.shape, w.shape, g.dtype, w.dtype)
        yield i, np.asarray(g), np.asarray(w)


def same(function, *args, by=jit):
    for i, g, w in pairs(by(function)(*args), jax.jit(function)(*args)):
        assert np.array_equal(g, w, equal_nan=w.dtype.kind == "f"), (i, g, w)


def near(function, *args, by):
    """`by` makes of a function what is compared: the function itself, its gradient, a batch of it."""
    wide = [jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, x) for x in args]
    exact = jax.tree.leaves(by(function, jax.jit)(*wide))
    theirs = jax.tree.leaves(by(function, jax.jit)(*args))
    for i, g, w in pairs(by(function, jit)(*args), theirs):
        e = np.asarray(exact[i], np.float64)
        assert np.all(np.isfinite(e)) and np.all(np.isfinite(g)), (i, g, e)
        unit = np.finfo(np.float32).eps * np.max(np.abs(e), initial=0)
        allowed = 8 * max(np.max(np.abs(w - e), initial=0), unit)
        assert np.max(np.abs(g - e), initial=0) <= allowed, (i, np.max(np.abs(g - e)), allowed)


def alone(function, how):
    return how(function)


def test_elements():
    same(lambda x: (x + 1, 2 - x, x * x, x / 2, -x, abs(x), x**2, x**-2 + 0, jnp.floor(x / 2), jnp.ceil(x / 2),
                    jnp.round(x / 2), jnp.sign(x), jnp.maximum(x, 0), jnp.minimum(x, 1), jnp.clip(x, 0, 1),
                    jnp.where(x > 0, x, -1), lax.rem(x, jnp.float32(2)), jnp.isfinite(x / 0), x == 1, x != 1, x < 1,
                    x <= 1, x > 1, x >= 1, (x > 0) & (x < 2), ~(x > 0), (x > 0) ^ (x < 2)), X)
    near(lambda x: (jnp.exp(x), jnp.expm1(x), jnp.expm1(x / 1000), jnp.log(abs(x) + 1), jnp.log1p(abs(x)),
                    jnp.log1p(x / 1000), jnp.tanh(x), jnp.sin(x), jnp.cos(x), jnp.tan(x), lax.erf(x), lax.erfc(x),
                    jnp.sqrt(abs(x)), lax.rsqrt(abs(x) + 1), jnp.exp2(x), (abs(x) + 1)**2.5), X, by=alone)
    near(lambda x: (jax.nn.sigmoid(x), jax.nn.gelu(x), jax.nn.gelu(x, approximate=False), jax.nn.silu(x),
                    jax.nn.elu(x), jax.nn.softplus(x), jax.nn.leaky_relu(x), jax.nn.softmax(x), jax.nn.log_softmax(x),
                    jax.nn.logsumexp(x, 1), jax.nn.standardize(x), jax.nn.glu(x)), X, by=alone)
    far = jnp.asarray([-80, -9, -1e-30, 0, 1e-30, 9, 80], jnp.float32)
    near(jnp.expm1, far[:-1], by=alone)
    near(lax.erfc, far[1:-2], by=alone)
    near(jnp.log1p, far[2:], by=alone)
    for i in (-1, -2, 0, 1):  # by themselves: each is the largest
        near(jnp.expm1, far[i], by=alone)
    near(lax.erfc, far[-2] / 2, by=alone)
    ends = jnp.asarray([-jnp.inf, jnp.inf, jnp.nan], jnp.float32)
    same(lambda x: (jnp.expm1(x), lax.erfc(x), jnp.log1p(x)), ends)


def test_types():
    for dtype in (jnp.float64, jnp.float32, jnp.float16, jnp.bfloat16, jnp.int64, jnp.int32, jnp.int16, jnp.int8,
                  jnp.uint8):
        x = jnp.abs(X).astype(dtype)
        same(lambda x: (x + x, x * 2, x @ x.T, x.sum(axis=0, dtype=x.dtype), x.max(), x.astype(jnp.float32),
                        x.astype(bool), jnp.where(x > 1, x, x + 1), x[::2], x == 2), x)
    same(lambda b: (b | b[::-1], b & True, jnp.all(b, 1), jnp.any(b), b.astype(jnp.int32), b.sum()), X > 0)
    fails(symplex.Unimplemented, "elements of uint16", jit(lambda x: x + 1), jnp.arange(3, dtype=jnp.uint16))


def test_reductions_and_order():
    same(lambda x: (x.sum(), x.sum(0), x.prod(1), x.max(0), x.min(), jnp.argmax(x, 1), jnp.argmin(x, 0),
                    jnp.argmax(x > 0, 1), jnp.sort(x, 0), jnp.argsort(-x, 1), jnp.cumsum(x, 1), jnp.cumprod(x, 0),
                    lax.cummax(x, 1, reverse=True), lax.cummin(x), lax.top_k(x, 2), jnp.flip(x), x.mean(1)), X)
    nan = X.at[1, 2].set(jnp.nan)
    same(lambda x: (x.max(1), jnp.argmax(x, 1), jnp.argmin(x, 1), x.sum(0)), nan)
    near(lambda x: (jnp.var(x, 1), jnp.std(x), jnp.linalg.norm(x, axis=1)), X, by=alone)


def test_shapes():
    same(lambda x: (jnp.pad(x, 1), jnp.tile(x, (2, 3)), jnp.repeat(x, 2, 0), jnp.roll(x, 1, 1), x.T, x.reshape(2, 6),
                    jnp.concatenate([x, x]), jnp.split(x, 2, 1), jnp.tril(x), jnp.stack([x, x], 1), x[None], x[1:, ::2],
                    x[0], x[:, -1], jnp.arange(4) * x[0].astype(int), jnp.eye(3) @ x.astype(float), jnp.zeros((0, 4)),
                    lax.pad(x, jnp.float32(7), ((-1, 2, 0), (0, 0, 1))), jnp.squeeze(x[:1]), x, x), X)


def test_indices():
    same(lambda x, i: (x[i], jnp.take(x, i, axis=1), jax.nn.one_hot(i, 5), x.at[i].add(1.), x.at[0].set(1.),
                       jnp.take_along_axis(x, jnp.array([[1], [2], [0]]), 1), x.at[i, 0].multiply(2.),
                       x[i[:3], i[:3]], x.at[:, i].max(0.), x.at[i].min(0.), x.at[i, i].set(7., mode="drop"),
                       x.at[i].get(mode="clip"), x.at[i].get(mode="fill", fill_value=9.),
                       x.at[i].add(1., mode="clip"), x.T[i][:, i]), X, I)
    same(lambda x, i: (lax.dynamic_slice(x, (i, i), (2, 2)), lax.dynamic_update_slice(x, x[:1, :2] * 2, (i, i)),
                       lax.dynamic_index_in_dim(x, i, 0), x[i]), X, jnp.int32(2))


def test_windows_at_indices():
    """Parts that begin at an index, for each of several: inside, at the edges, and out of range in every mode."""
    at = jnp.array([1, 0, 2, -7, 9])
    whole = lax.GatherDimensionNumbers((1, 2), (), (0,))
    same(lambda x, i: [lax.gather(x, i[:, None], whole, (2, 4), mode=m) for m in ("clip", "fill", "promise_in_bounds")]
         + [lax.gather(x, i[:, None], lax.GatherDimensionNumbers((0, 2), (), (1,)), (3, 2), mode="fill")], X, at[:3])
    same(lambda x, i: [lax.gather(x, i[:, None], whole, (2, 4), mode=m) for m in ("clip", "fill")], X, at)
    same(lambda x, i: (x[i, 1:3], x.at[1:3].set(0.), x.at[i[0], 1:3].add(1.), x.at[1:3, 2:4].multiply(2.), x.at[
        i, 1:3].add(1.), x.at[:, 1].set(x[:, 0]), jax.vmap(lambda row, k: row[k])(x, i[:3]), jax.vmap(
            lambda row, k: lax.dynamic_slice(row, (k,), (2,)))(x, i[:3]), jax.vmap(
                lambda row, k: lax.dynamic_update_slice(row, row[:2] * 0, (k,)))(x, i[:3]), jnp.unique(
                    i, size=4)), X, at)
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    same(lambda x, i: [lax.scatter_add(x, i[:, None], jnp.ones((5, 2, 3), x.dtype), numbers, mode=m)
                       for m in ("clip", "drop")], X, at)
    near(lambda x, i: (x[i, 1:3] ** 2).sum(), X, at, by=lambda f, how: jax.grad(how(f)))


def test_orders_of_several_keys():
    keys = jnp.array([1, 0, 1, 0, 1, 1]), jnp.array([2., jnp.nan, -1, 0, -0., 2]), jnp.array([True, False] * 3)
    same(lambda i, x, b: (jnp.lexsort((x, i)), jnp.lexsort((i, x)), jnp.lexsort((b, i, x)), lax.sort(
        (i, x, jnp.arange(6)), num_keys=2), lax.sort((b, x, i), num_keys=2), jnp.argmin(i), jnp.argmin(b),
                           jnp.argmin(x)), *keys)
    same(lambda x: [jnp.searchsorted(jnp.sort(x), x[::-1], side=s) for s in ("left", "right")], keys[1])
    same(lambda x: (jnp.interp(x, jnp.arange(3.), jnp.arange(3.) * 2), jnp.histogram(x, 4), jnp.digitize(
        x, jnp.array([-1., 0, 1]))), X.astype(jnp.float64))


def test_unsigned_numbers_in_between():
    """What begins and ends as another type, and does not come by at 2^32."""
    same(lambda i: [(f(i.astype(jnp.uint32), jnp.uint32(3))).astype(jnp.float64) for f in (
        jnp.add, jnp.subtract, jnp.multiply, jnp.floor_divide, jnp.remainder, jnp.maximum, jnp.minimum)]
         + [i.astype(jnp.uint32) < 5, (-i).astype(jnp.uint32) // 7 > 100, jnp.where(
             i > 1, i.astype(jnp.uint32), 7).astype(int), (i.astype(jnp.uint32) * jnp.uint32(4000000000)).astype(
                 jnp.int64), i.astype(jnp.uint32).astype(bool)],
         jnp.array([0, 1, 2, -1, -5, 2147483647], jnp.int32))


def test_functions_that_are_composed():
    """Beside XLA's own, from the same numbers in f64; XLA is as far off, as `near` has it."""
    x = jnp.asarray(RNG.standard_normal(64) * 2, jnp.float32)
    unit = jnp.clip(x / 3, -0.99, 0.99)
    near(lambda x, u: (jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x), jnp.arccosh(abs(x) + 1.5), jnp.arctanh(u),
                       jnp.arctan(x), jnp.arctan2(x, u), jnp.arcsin(u), jnp.arccos(u), jnp.cbrt(x),
                       lax.lgamma(abs(x) + 2.5), lax.lgamma(-abs(u) - 0.001), lax.digamma(abs(x) + 0.1),
                       lax.digamma(u * 0.4 - 0.5),
                       jnp.round(x * 4) / 4), x, unit, by=alone)
    # erf_inv of f64 is not known, so that nothing says how far XLA's of f32 is off but the function itself
    back = np.asarray(jit(lax.erf_inv)(unit), np.float64)
    assert np.max(np.abs([math.erf(y) for y in back] - np.asarray(unit, np.float64))) <= 4 * 2.0 ** -24
    same(lambda x: (lax.erf_inv(x), lax.cbrt(x * 8), jnp.arctanh(x)), jnp.array([1., -1, 0], jnp.float32))
    same(lambda x: (lax.lgamma(x), lax.digamma(x[:1])), jnp.array([0., jnp.inf, -jnp.inf, -1, 1], jnp.float32))
    wide = jnp.linspace(-6.0, 26, 65)
    got, want = np.asarray(jit(lax.erfc)(wide)), np.array([math.erfc(v) for v in wide])
    # e^(-x^2) is off by half a unit of x^2
    assert np.all(np.abs(got - want) <= (8 + np.asarray(wide) ** 2) * 2.0 ** -52 * want), np.abs(got - want) / want
    half = x.astype(jnp.bfloat16)
    same(lambda x: (jnp.arctan(x), jnp.sinh(x / 8)), jnp.array([0., jnp.inf, -jnp.inf], jnp.bfloat16))
    assert np.max(np.abs(jit(lax.erfc)(half).astype(np.float32) - lax.erfc(half.astype(jnp.float32)))) <= 2.0 ** -8
    shifts = lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical
    for dtype in (jnp.int8, jnp.int16, jnp.int32, jnp.int64, jnp.uint8):
        ends = jnp.iinfo(dtype)
        numbers = jnp.array([0, 1, 7, ends.min, ends.max, ends.max - 11, ends.min + 5], dtype)
        places = jnp.array([0, 1, 5, ends.bits - 1, ends.bits, ends.bits + 8, ends.max, ends.min], dtype)
        same(lambda i, k: [f(i, k) for f in shifts] + [i << 2, i >> 1], *jnp.meshgrid(numbers, places))
    same(lambda x: jnp.divmod(x, 0.75), X)


def test_options():
    f = jit(lambda state, x: (state + x, x), donate_argnums=0)
    state = jnp.ones(4)
    same(lambda s, x: (s + x, x), state, X[0])
    assert np.array_equal(f(state, X[0])[0], 1 + X[0])
    fails(TypeError, "symplex.jax.jit: unknown option 'static_argnum', known are", jit, lambda x: x, static_argnum=1)
    fails(TypeError, "symplex.jit: unknown option 'thread', known are", symplex.jit, lambda x: x, thread=1)


def test_products():
    same(lambda x, w: (x @ w, jnp.einsum("ij,jk->ki", x, w), jnp.outer(x[0], x[1]), x @ x.T, jnp.dot(x[0], x[1]),
                       jnp.einsum("bij,bjk->bki", jnp.stack([x, x + 1]), jnp.stack([w, w])),
                       lax.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)),
         X, W)
    q = jnp.asarray(RNG.standard_normal((2, 16, 4, 8)), jnp.float32)
    near(lambda q, k: jax.nn.dot_product_attention(q, k, k * 2, is_causal=True), q, q[::-1], by=alone)


def test_windows():
    same(lambda a, b: (lax.conv_general_dilated(a, b, (1, 1), "SAME"),
                       lax.conv_general_dilated(a, b, (2, 1), ((1, 0), (0, 2)), rhs_dilation=(1, 2)),
                       lax.conv_transpose(a, b, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")),
                       lax.conv_general_dilated(a.transpose(0, 2, 3, 1), b.transpose(2, 3, 1, 0), (1, 1), "VALID",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC"))), IMAGE, FILTER)
    same(lambda a: (lax.reduce_window(a, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
                    lax.reduce_window(a, 0., lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
                    lax.reduce_window(a, jnp.inf, lax.min, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")), IMAGE)


def test_control():
    same(lambda x: (lax.scan(lambda c, s: (c + s, c * 2), x[0], x),
                    lax.scan(lambda c, s: (c + s, c), x[0], x, reverse=True),
                    lax.fori_loop(0, 5, lambda i, c: c * 2 + i, x), lax.map(lambda r: r.sum(), x),
                    lax.while_loop(lambda c: c.max() < 100, lambda c: c * 2 + x.max(), x),
                    lax.cond(x.sum() > 0, lambda c: c * 2, lambda c: c - x, x)), X)
    for branch in (-1, 0, 1, 2, 9):
        same(lambda x, j: lax.switch(j, [lambda c: c * 2, lambda c: c - 1, lambda c: c + 7], x), X, jnp.int32(branch))
    fails(symplex.Unimplemented, "the primitive debug_print", jit(lambda x: (jax.debug.print("{}", x), x)[1]), X)


PARAMETERS = {"w1": jnp.asarray(RNG.standard_normal((6, 24)), jnp.float32), "b1": jnp.zeros(24, jnp.float32),
              "w2": jnp.asarray(RNG.standard_normal((24, 4)), jnp.float32)}
BATCH = jnp.asarray(RNG.standard_normal((16, 6)), jnp.float32)
LABELS = jnp.asarray(RNG.integers(0, 4, 16))


def mlp(p, x, labels):
    logits = jax.nn.log_softmax(jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"])
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


def lstm(w, x):
    def cell(carry, s):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([s, h]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    zero = jnp.zeros(5, w.dtype)
    return (lax.scan(cell, (zero, zero), x)[1]**2).sum()


def cnn(k, a):
    y = jax.nn.relu(lax.conv_general_dilated(a, k, (1, 1), "SAME"))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
    return (y**2).mean()


def test_gradients():
    near(mlp, PARAMETERS, BATCH, LABELS, by=lambda f, how: jax.value_and_grad(how(f)))
    near(mlp, PARAMETERS, BATCH, LABELS, by=lambda f, how: how(jax.value_and_grad(f)))
    w = jnp.asarray(RNG.standard_normal((8, 20)) / 3, jnp.float32)
    rows = jnp.asarray(RNG.standard_normal((2, 7, 3)), jnp.float32)
    near(lstm, w, rows[0], by=lambda f, how: jax.grad(how(f), (0, 1)))
    near(lstm, w, rows, by=lambda f, how: jax.vmap(jax.grad(how(f)), (None, 0)))
    near(cnn, FILTER, IMAGE / 4, by=lambda f, how: jax.grad(how(f), (0, 1)))
    near(lambda x: (jnp.sin(x) * x).sum(), BATCH,
         by=lambda f, how: jax.grad(lambda x: (jax.grad(lambda y: how(f)(y))(x)**2).sum()))
    near(lambda x: lax.cond(x.sum() > 0, lambda c: (c**2).sum(), lambda c: c.sum(), x), BATCH,
         by=lambda f, how: jax.grad(how(f)))
    near(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()), BATCH, by=lambda f, how: jax.grad(how(f)))
    fails(TypeError, "forward-mode", jax.jvp, jit(jnp.sin), (BATCH,), (BATCH,))


def test_training():
    """Fifty steps with momentum: f32 moves away from f64 as jax.jit does."""
    def step(p, m, x, labels):
        loss, slope = jax.value_and_grad(mlp)(p, x, labels)
        m = jax.tree.map(lambda a, b: 0.875 * a + b, m, slope)
        return jax.tree.map(lambda a, b: a - b / 16, p, m), m, loss

    def trained(how):
        def run(p, x, labels):
            made, m = how(step), jax.tree.map(jnp.zeros_like, p)
            for _ in range(50):
                p, m, loss = made(p, m, x, labels)
            return p, loss
        return run
    near(mlp, PARAMETERS, BATCH, LABELS, by=lambda f, how: trained(how))
    assert trained(jit)(PARAMETERS, BATCH, LABELS)[1] < mlp(PARAMETERS, BATCH, LABELS) / 2


def test_composition():
    same(lambda x, w: x @ w, X, W, by=lambda f: jax.jit(lambda x, w: jit(f)(x + 1, w) - jit(f)(jnp.ones_like(x), w)))
    same(lambda x, w: x @ w, X, W, by=lambda f: lambda x, w: jax.vmap(jit(f), (0, None))(x, w))
    for axes in ((0, 0), (1, None), (None, 1)):
        x, w = jnp.stack([X, X + 1, X - 1], axes[0] or 0), jnp.stack([W, W, W + 1], axes[1] or 0)
        args = x if axes[0] is not None else X, w if axes[1] is not None else W
        want = jax.vmap(lambda x, w: (x @ w, w), axes)(*args)
        for i, g, w in pairs(jax.vmap(jit(lambda x, w: (x @ w, w)), axes)(*args), want):
            assert np.array_equal(g, w), i
    same(lambda x: jit(lambda y: jit(lambda z: z + 1)(y) * 2)(x), X)
    kept = 3 * X
    same(lambda x: x + kept, X)  # an array from outside
    assert jax.grad(lambda w: jit(lambda x: x * w)(jnp.ones(3)).sum())(2.) == 3
    tree = jit(lambda p, *, scale: {"y": [p["x"] * scale, (p["x"],)]})({"x": X}, scale=2)
    assert np.array_equal(tree["y"][0], X * 2) and np.array_equal(tree["y"][1][0], X)
    assert np.array_equal(jit(lambda x, n: x * n if n > 2 else x, static_argnums=1)(X, 3), X * 3)
    assert jit(lambda x: {})(X) == {} and jit(lambda: jnp.ones(3))().shape == (3,)
    decorated = symplex.jax.jit(strict=True)(lambda x: x + 1)
    assert np.array_equal(decorated(np.asarray(X)), X + 1)


def told_by(action):
    """What is said about a function while it is called, and what it gives; JAX has nothing to say."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = action()
    assert not [str(w.message) for w in told if "jax" in str(w.message)], told
    return made, [str(w.message) for w in told if "symplex" in str(w.message)]


def custom_calls(function, *args):
    """How many programs of ours a function calls, and whether XLA has a product left to compute."""
    text = jax.jit(function).lower(*args).as_text()
    return text.count("custom_call @symplex_module"), "dot_general" in text


def test_left_to_xla():
    def rounded(x):
        return lax.reduce_precision(x, 8, 23)
    function = symplex.jax.jit(rounded)
    (made, again), told = told_by(lambda: (function(X), function(X[:2])))
    assert np.array_equal(made, X) and np.array_equal(again, X[:2])
    assert told == ["symplex: rounded is left to XLA: the primitive reduce_precision cannot be compiled"], told
    assert custom_calls(function, X) == (0, False)
    fails(symplex.Unimplemented, "rounded: the primitive reduce_precision cannot be compiled (strict=True)",
          jit(rounded), X)


def test_part_left_to_xla():
    """An unknown primitive between two products: they are ours, also under vmap, grad and inside of calls."""
    @jax.jit
    def inner(x):
        return lax.reduce_precision(x @ W, 8, 23) * 2 + 1

    def between(x, w):
        y = inner(x)
        return (y @ w).sum(0), y

    w = jnp.asarray(np.arange(10).reshape(5, 2) % 3 - 1, jnp.float32)
    function = symplex.jax.jit(between, threads=1)
    made, told = told_by(lambda: function(X, w))
    assert told == ["symplex: a part of between is left to XLA: the primitive reduce_precision cannot be "
                    "compiled"], told
    assert jax.tree.all(jax.tree.map(np.array_equal, made, between(X, w)))
    assert custom_calls(function, X, w) == (2, False)
    many = jnp.stack([X, X + 1, 2 * X])
    batched = jax.vmap(function, in_axes=(0, None))
    assert jax.tree.all(jax.tree.map(np.array_equal, batched(many, w), jax.vmap(between, in_axes=(0, None))(many, w)))
    assert custom_calls(batched, many, w) == (2, False)

    def loss(f):
        return jax.grad(lambda x, w: f(x, w)[0].sum() + f(x, w)[1].sum(), argnums=(0, 1))
    ours, theirs = loss(function)(X, w), loss(between)(X, w)
    assert jax.tree.all(jax.tree.map(np.array_equal, ours, theirs)), (ours, theirs)
    calls, by_xla = custom_calls(loss(function), X, w)
    assert calls >= 4 and not by_xla, (calls, by_xla)
    fails(symplex.Unimplemented, "between: the primitive reduce_precision cannot be compiled (strict=True)",
          jit(between), X, w)


def test_random_numbers_of_jax():
    """Of a key the same bits, wherever it is: given, made, parted, indexed, carried; inside of loops and under vmap."""
    def drop(x, key):
        return jnp.where(jax.random.bernoulli(key, np.float32(0.5), (3, 5)), x @ W, 0)

    def carried(key, x):
        def layer(state, w):
            x, key = state
            key, here = jax.random.split(key)
            return (jnp.where(jax.random.bernoulli(here, np.float32(0.75), x.shape), x @ w, 0), key), key
        return lax.scan(layer, (x, key), jnp.stack([jnp.eye(4), 2 * jnp.eye(4)]).astype(jnp.float32))

    def data(tree):
        return jax.tree.map(lambda v: jax.random.key_data(v) if jnp.issubdtype(v.dtype, jax.dtypes.prng_key) else v,
                            tree)
    key, f32 = jax.random.key(SEED % 1000), jnp.float32
    functions = (
        lambda key: (drop(X, key), jax.random.uniform(key, (3, 2), f32), jax.random.bits(key, (5,), jnp.uint32),
                     jax.random.bits(key, (4,), jnp.uint8), jax.random.split(key, 3), jax.random.fold_in(key, 7),
                     jax.random.fold_in(key, 2**32 - 1), jax.random.randint(key, (6,), 0, 7, jnp.int32),
                     jax.random.permutation(key, 8)),
        lambda key: (carried(key, X), jax.vmap(lambda k: jax.random.uniform(k, (2,), f32))(jax.random.split(key, 3)),
                     jax.random.uniform(jax.random.split(key, 4)[1:][1], (), f32), lax.cond(
                         jax.random.bits(key, (), jnp.uint32) > 2**31, lambda k: jax.random.fold_in(k, 1),
                         lambda k: k, key),
                     lax.while_loop(lambda s: s[1] < 3, lambda s: (jax.random.fold_in(s[0], s[1]), s[1] + 1),
                                    (key, jnp.int32(0)))[0]),
        lambda key: (jax.random.key_data(jax.random.key(3)), jax.random.bits(
                         jax.random.key(jnp.int32(-7)), (3,), jnp.uint32),
                     jax.random.split(jax.random.wrap_key_data(jax.random.key_data(key) + jnp.uint32(2**31)))))
    for function in functions:
        made, want = data(jit(function)(key)), data(jax.jit(function)(key))
        for i, (m, w) in enumerate(zip(*map(jax.tree.leaves, (made, want)), strict=True)):
            assert m.dtype == w.dtype and np.array_equal(m, w), (i, m, w)
    keys = jax.random.split(key, 3)
    assert np.array_equal(jax.vmap(jit(drop), (None, 0))(X, keys), jax.vmap(drop, (None, 0))(X, keys))
    assert np.array_equal(jax.grad(lambda x: jit(drop)(x, key).sum())(X), jax.grad(lambda x: drop(x, key).sum())(X))

    def many(key):
        """So many that the generator is written out."""
        return (jax.random.bits(key, (257, 256), jnp.uint32), jax.random.uniform(key, (2, 40000), f32),
                jax.random.bernoulli(key, f32(0.25), (90000,)))
    assert custom_calls(jit(many), key) == (1, False)
    for m, w in zip(jit(many)(key), jax.jit(many)(key), strict=True):
        assert m.dtype == w.dtype and np.array_equal(m, w)
    old = jax.random.PRNGKey(3)  # without a type of its own
    assert np.array_equal(jit(drop)(X, old), drop(X, old))
    # the largest number below 1 has erf_inv 4: a unit of the number there is 1.2e-7 of the density of 1e-7
    normal = np.asarray(jit(lambda key: jax.random.normal(key, (64,), f32))(key), np.float64)
    uniform = np.asarray(jax.random.uniform(key, (64,), f32, np.nextafter(f32(-1), f32(0)), 1), np.float64)
    back = np.array([math.erf(v / math.sqrt(2)) for v in normal])
    assert np.max(np.abs(back - uniform)) <= 8 * 2.0 ** -24, np.max(np.abs(back - uniform))


def test_whole_numbers_without_a_sign():
    words = jnp.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF], jnp.uint32)
    same(lambda x, k: (x + x[::-1], x * x, x - 5, x // 3, x % 7, -x, ~x, x ^ 0xFF, x << 3, x >> 5, x << 32, x >> 32,
                       lax.shift_left(x, k), lax.shift_right_logical(x, k), lax.shift_right_arithmetic(x, k),
                       jnp.sort(x), jnp.maximum(x, k), jnp.clip(x, 2, 2**31), x >= k, jnp.argmin(x), x.min(),
                       lax.dynamic_slice(x, (k[0],), (3,)), lax.dynamic_slice(x, (k[-1],), (3,)), x.astype(jnp.int64),
                       x.sum(dtype=x.dtype), x.max(),
                       x < 2**31,
                       jnp.argmax(x), x.astype(jnp.int32), x.astype(jnp.uint8), lax.bitcast_convert_type(x, jnp.int32),
                       lax.bitcast_convert_type((x >> 9) | 0x3F800000, jnp.float32), jnp.pad(x, 1), x[k % 7],
                       x.astype(jnp.float32)), words, jnp.array([0, 1, 5, 31, 32, 40, 2**32 - 1], jnp.uint32))
    bits = jnp.asarray(np.concatenate([RNG.integers(0, 2**32, 40), [0, 1, 2**31, 2**31 + 1, 0x7F800000, 0xFF800000]]),
                       jnp.uint32)
    same(lambda x: (lax.bitcast_convert_type(x, jnp.float32), lax.bitcast_convert_type(x.astype(jnp.int32),
                                                                                       jnp.float32)), bits)
    fails(symplex.Unimplemented, "bits of float32 as uint32", jit(lambda x: lax.bitcast_convert_type(x, jnp.uint32)),
          X)


def test_linear_algebra_is_xlas():
    """Told once for each primitive, inside of jax.jit and under grad, too; products before and behind are ours."""
    def factors(a, b):
        return (jnp.linalg.cholesky(a @ a.T) @ b).sum()

    def solved(a, b):
        return (jnp.linalg.solve(a @ a, b) @ b.T).sum()
    a = jnp.asarray(4 * np.eye(5) + np.arange(25).reshape(5, 5) % 3, jnp.float32)
    b = jnp.asarray(np.arange(10).reshape(5, 2) % 4 - 1, jnp.float32)
    left = (factors, ("cholesky", "triangular_solve")), (solved, ("primitive lu", "custom_linear_solve"))
    for function, names in left:
        ours = symplex.jax.jit(function, threads=1)
        slope = lambda f: jax.value_and_grad(f, argnums=(0, 1))  # noqa: E731
        made, told = told_by(lambda: [ours(a, b), jax.jit(ours)(a, b), slope(ours)(a, b), jax.jit(slope(ours))(a, b)])
        want, slopes = function(a, b), slope(function)(a, b)
        for got, beside in zip(jax.tree.leaves(made), jax.tree.leaves([want, want, slopes, slopes]), strict=True):
            # a matrix of condition below 10^2: eight units of f32 times that, of numbers of the size of the largest
            assert np.max(np.abs(got - beside)) <= 8 * 2.0 ** -23 * 100 * np.max(np.abs(beside)), (got, beside)
        for name in names:
            assert sum(name in line for line in told) == 1, told
        assert custom_calls(ours, a, b)[1] is False


def test_effects_keep_their_order():
    seen = []

    def noisy(x):
        jax.debug.callback(lambda v: seen.append(("first", float(v))), (x @ W).sum(), ordered=True)
        jax.debug.callback(lambda v: seen.append(("second", float(v.sum()))), x, ordered=True)
        return (x @ W) @ W.T
    made, told = told_by(lambda: symplex.jax.jit(noisy, threads=1)(X))
    jax.effects_barrier()
    assert np.array_equal(made, (X @ W) @ W.T) and told, told
    assert seen == [("first", float((X @ W).sum())), ("second", float(X.sum()))], seen


def test_what_does_not_compile():
    """A program that the compiler refuses is XLA's, and the compiler's reason is told."""
    def large(x):
        return x + 1
    function = symplex.jax.jit(large, threads=1, target="no-such-target")
    made, told = told_by(lambda: function(X))
    assert np.array_equal(made, X + 1) and len(told) == 1 and "no-such-target" in told[0], told
    fails(Exception, "no-such-target", symplex.jax.jit(large, strict=True, target="no-such-target"), X)


def test_custom_call():
    """What XLA hands over is checked: numbers of modules, types and shapes."""
    same(lambda x: x + 1, X)

    def call(number, x, shape=(3, 4)):
        return jax.ffi.ffi_call("symplex_module", jax.ShapeDtypeStruct(shape, jnp.float32))(x, module=np.int64(number))
    module = symplex.compile(symplex.jax.lower(lambda x: x * 2, X), threads=1)
    from symplex import _c
    number = _c.xla_register(module)
    assert np.array_equal(call(number, X), X * 2)
    for wrong in (0, number + 1, number ^ (1 << 40), -1):
        fails(Exception, "a module of another process", call, wrong, X)
    fails(Exception, "a buffer is not what the module needs", call, number, X.T)
    fails(Exception, "a buffer is not what the module needs", call, number, X.astype(jnp.float64))
    fails(Exception, "a buffer is not what the module needs", call, number, X, (3, 5))
    fails(TypeError, "a symplex.Module is needed", _c.xla_register, 3)


def test_threads():
    function = jit(lambda x: (x @ x.T).sum())
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append((i, [float(function(X + i)) for _ in range(50)])))
               for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for i, values in found:
        assert set(values) == {float(((X + i) @ (X + i).T).sum())}, (i, values)


if __name__ == "__main__":
    print(f"seed: SX_SEED={SEED}")
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            test()
            print("ok", name)
