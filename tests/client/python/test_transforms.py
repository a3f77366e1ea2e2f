#!/usr/bin/env python3
"""Control flow, vmap, gradients inside of traced functions, random numbers, static and donated arguments. Values are
those of the same functions run by Python on NumPy arrays, example by example; of gradients those that are written down
here or differences of values; of random bits those of Philox as its authors publish them, computed here anew."""
import os
import pathlib
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402

import symplex  # noqa: E402

F32 = np.arange(12, dtype=np.float32).reshape(3, 4) % 7 - 3
F64 = F32.astype(np.float64)
I32 = F32.astype(np.int32)


def jit(function, **options):
    return symplex.jit(function, threads=1, **options)


def fails(classes, part, function, *args, **keywords):
    try:
        function(*args, **keywords)
    except classes as error:
        assert part in str(error), f"{part!r} is not in {error}"
        return error
    raise AssertionError(f"nothing was raised, {classes} was expected: {part}")


def leaves(x):
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in leaves(part)]
    return [leaf for k in sorted(x) for leaf in leaves(x[k])] if isinstance(x, dict) else [x]


def equal(got, want, ulps=0):
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want), (got, want)
    for g, w in zip(got, want):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape and g.dtype == w.dtype, (g.dtype, w.dtype, g.shape, w.shape)
        if ulps:
            allowed = ulps * np.finfo(w.dtype).eps * np.max(np.abs(w), initial=1)
            assert np.max(np.abs(g - w), initial=0) <= allowed, (g, w)
        else:
            assert np.array_equal(g, w), (g, w)


# ---- control flow ----
def test_cond():
    def function(x, k):
        y = symplex.cond(x.sum() > 0, lambda v, i: (v * 2, {"n": i + 1}), lambda v, i: (v - k, {"n": i * 3}), x,
                         np.int32(4))
        return y, symplex.cond(k > 1, lambda: x, lambda: -x)
    f = jit(function)
    for x in (F32, -F32, F32 + 3):
        for k in (np.float32(0), np.float32(5)):
            equal(f(x, k), function(x, k))
    assert len(f.modules) == 1 and f.lower(F32, np.float32(0)).count("cond(") == 2
    fails(symplex.TraceError, "the predicate is f32[3, 4]", jit(lambda x: symplex.cond(
        x, lambda: x, lambda: x)), F32)
    error = fails(symplex.TraceError, "gives * of f32[3, 4], <lambda> * of f32[4]", jit(lambda x: symplex.cond(
        x[0, 0] > 0, lambda: x, lambda: x[0])), F32)
    assert __file__ in str(error)


def test_while_loop():
    def collatz(n):
        return symplex.while_loop(lambda c: c[0] != 1, lambda c: (np.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1),
                                                                  c[1] + 1), (n, 0))
    f = jit(collatz)
    for n in (1, 6, 27, 97):
        equal(f(np.int64(n)), tuple(map(np.int64, collatz(np.int64(n)))))
    assert f(np.int64(27))[1] == 111, "the known length of the orbit of 27"

    def power(a, v):
        step = a / 4
        return symplex.while_loop(lambda c: c["k"] < 5, lambda c: {"k": c["k"] + 1, "v": step @ c["v"]},
                                  {"k": np.int32(0), "v": v})["v"]
    a, v = F64[:, :3] * 4, np.array([1.0, 2, -1])
    equal(jit(power)(a, v), np.linalg.matrix_power(F64[:, :3], 5) @ v)
    forever = jit(lambda x: symplex.while_loop(lambda c: c.sum() > 0, lambda c: c, x, rounds=7))
    fails(symplex.Error, "after 7 rounds", forever, F32 + 3)
    fails(symplex.TraceError, "carry[0] is f32[3, 4] at the start and f64[3, 4] after a round", jit(
        lambda x: symplex.while_loop(lambda c: c[0].sum() > 0, lambda c: (c[0].astype("f8"),), (x,))), F32)
    fails(symplex.TraceError, "the carry is * at the start and (*, *)", jit(
        lambda x: symplex.while_loop(lambda c: c.sum() > 0, lambda c: (c, c), x)), F32)
    fails(symplex.TraceError, "one bool is needed", jit(
        lambda x: symplex.while_loop(lambda c: c > 0, lambda c: c, x)), F32)


def test_scan():
    def cell(w):
        def step(carry, x):
            h, n = carry
            h = np.minimum(np.maximum(x @ w + h, -4), 4)
            return (h, n + 1), {"h": h, "row": x * n}
        return step

    def function(w, xs, h):
        first = h, np.float32(0)
        return symplex.scan(cell(w), first, xs), symplex.scan(cell(w), first, xs, reverse=True)
    w, xs, h = F32.T.copy(), np.stack([F32[0], F32[1], F32[2], -F32[0], F32[1] * 2]), np.zeros(3, np.float32)
    equal(jit(function)(w, xs, h), function(w, xs, h))
    last, nothing = jit(lambda x: symplex.scan(lambda c, _: (c * 2, None), x, length=5))(F32)
    assert nothing is None and np.array_equal(last, F32 * 32)
    last, squares = jit(lambda x: symplex.scan(lambda c, row: (c + 1, row * c), 0, x))(F64)
    assert last == 3 and last.dtype == np.int64 and np.array_equal(squares, F64 * np.arange(3)[:, None])

    def nested(x):
        def outer(c, row):
            return symplex.scan(lambda d, y: (d + y * c[0], d), c, row)
        return symplex.scan(outer, x[0, :2], x[:, :, None] * np.ones(2, np.float32))
    equal(jit(nested)(F32), nested(F32))
    fails(symplex.TraceError, "a pair (carry, y) is needed", jit(lambda x: symplex.scan(lambda c, r: c, x[0], x)), F32)
    fails(symplex.TraceError, "no common length", jit(lambda x: symplex.scan(lambda c, r: (c, r), 0, (x, x.T))), F32)


# ---- vmap ----
def by_example(function, in_axes, out_axes=0):
    """vmap by a loop of Python."""
    def call(*args):
        axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        n = next(a.shape[d] for a, d in zip(args, axes) if d is not None)
        rows = [leaves(function(*(a if d is None else np.take(a, i, d) for a, d in zip(args, axes)))) for i in range(n)]
        return tuple(np.stack([np.asarray(row[k]) for row in rows], out_axes) for k in range(len(rows[0])))
    return call


def both(function, *args, in_axes=0, out_axes=0, ulps=0):
    made = symplex.vmap(function, in_axes, out_axes, threads=1)
    equal(made(*args), by_example(function, in_axes, out_axes)(*args), ulps)


def whole(seed, *shape, dtype=np.float32, low=-3, high=4):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def test_vmap_of_operations():
    x, y, w = whole(1, 5, 3, 4), whole(2, 5, 3, 4), whole(3, 4, 2)
    both(lambda x, y: (x + y, x * 2, np.where(x > y, x, 1), x.astype(np.int32), np.maximum(x, 0), x[0] + y), x, y)
    both(lambda x: (x.T, x.reshape(-1), x[:, None], x[1:], x[::-1, ::2], x[..., -1], np.concatenate([x, x], 1),
                    np.broadcast_to(x[:1], (6, 4)), np.pad(x, ((1, 2), (0, 1))), x.sum(), x.max(0), np.sort(x, 0),
                    np.argsort(x, kind="stable"), np.cumsum(x, 1), np.argmax(x, 1), np.tril(x)), x)
    both(lambda x, y: (x @ y.T, np.einsum("ij,ij->i", x, y), x @ w, w.T @ x.T, x[0] @ w, x[0] @ y[0],
                       np.tensordot(x, y, 2)), x, y)
    both(lambda x, w: (x @ w, w.T @ x.T, x[0] @ w, w.T @ x[0]), x, w, in_axes=(0, None))
    both(lambda x, w: (x @ w, w.T @ x.T, np.outer(x, w)), x[0], whole(4, 5, 4, 2), in_axes=(None, 0))
    both(lambda x, y: (x + y.T,), whole(5, 3, 5, 4), whole(6, 4, 3, 5), in_axes=(1, 2), out_axes=1)
    both(lambda x, y: (x + y, y), whole(5, 5, 4), F32[0], in_axes=(0, None))


def test_vmap_of_places():
    x, i = whole(1, 5, 3, 4), whole(2, 5, 6, dtype=np.int64, low=-3, high=3)
    j = whole(3, 5, dtype=np.int32, low=-3, high=3)
    both(lambda x, i, j: (x[i], x[:, i], x[j], x[:, j], np.take(x, i, 1), np.take_along_axis(x, i[:3, None] % 2, 1),
                          x[i, i], x[j, 1:]), x, i, j)
    both(lambda x, i: (x[i], x[:, i]), x, whole(4, 2, 2, dtype=np.int64, low=-3, high=3), in_axes=(0, None))
    both(lambda x, i: (x[i], x[:, i]), x[0], i, in_axes=(None, 0))
    both(lambda x, v: (np.searchsorted(np.sort(x[0]), v), np.roll(x, 1, 0)), x, whole(5, 5, 3))
    gathered = jit(symplex.vmap(symplex.grad(lambda x, i: (x[i] * np.arange(6, dtype=np.float32)[:, None]).sum())))
    want = np.zeros_like(x)
    for n in range(5):
        np.add.at(want[n], i[n], np.arange(6, dtype=np.float32)[:, None])
    equal(gathered(x, i), want)
    # dynamic_update_slice is what the gradient of a slice at a traced place is
    sliced = jit(symplex.vmap(symplex.grad(lambda x, j: (x[j] * 2).sum())))
    want = np.zeros_like(x)
    want[np.arange(5), j] = 2
    equal(sliced(x, j), want)


def test_vmap_of_control_flow():
    x, k = whole(1, 5, 4), whole(2, 5, dtype=np.int64, low=1, high=6)
    both(lambda x, k: symplex.cond(k > 2, lambda: (x * 2, k), lambda: (x - 1, k * 3)), x, k)
    both(lambda x, k: (symplex.cond(k > 2, lambda v: v * 2, lambda v: v - 1, x),), x, np.int64(3), in_axes=(0, None))
    both(lambda x, k: symplex.while_loop(lambda c: c[0] < k, lambda c: (c[0] + 1, c[1] * 2), (np.int64(0), x)), x, k)
    both(lambda x, k: symplex.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + x), (np.int64(0), x)), x, k)
    both(lambda x, k: symplex.while_loop(lambda c: c.sum() < 40, lambda c: c + k.astype(np.float32), np.abs(x) + 1),
         x, k)
    both(lambda x, k: symplex.scan(lambda c, v: (c + v * k, c), np.float32(0), x), x, k.astype(np.float32))
    both(lambda x, y: symplex.scan(lambda c, v: (c + v, c * y.sum()), x.sum() * 0, x), whole(3, 4), x,
         in_axes=(None, 0))
    both(lambda x, y: symplex.scan(lambda c, v: (c + 1, c + v), np.float32(0), x), x, x)


def test_vmap_composes():
    x, w = whole(1, 5, 3, 4), whole(2, 6, 4, 2)
    twice = symplex.vmap(symplex.vmap(lambda x, w: x @ w, (0, None)), (None, 0), threads=1)
    equal(twice(x, w), np.stack([x @ w[i] for i in range(6)]))
    inside = jit(lambda x: symplex.vmap(lambda row: row * x.sum(), in_axes=0)(x) + 1)
    equal(inside(F32), F32 * F32.sum() + 1)
    rows = symplex.vmap(lambda d, k=2: {"a": d["x"] * k, "b": (d["y"], 1)}, threads=1)(
        {"x": F32, "y": F64}, k=np.arange(3, dtype=np.float32))
    equal(rows["a"], F32 * np.arange(3, dtype=np.float32)[:, None])
    assert list(rows) == ["a", "b"] and np.array_equal(rows["b"][1], [1, 1, 1])
    per_example = symplex.vmap(symplex.grad(lambda w, x: ((x @ w) ** 2).sum()), in_axes=(None, 0), threads=1)
    equal(per_example(w[0], x), np.stack([2 * x[i].T @ (x[i] @ w[0]) for i in range(5)]))
    total = symplex.grad(lambda w: symplex.vmap(lambda row: (row * w) ** 2)(F32).sum(), threads=1)
    equal(total(F32[0]), 2 * F32[0] * (F32 ** 2).sum(0))
    fails(ValueError, "no argument has an axis", symplex.vmap(lambda x: x, in_axes=None), F32)
    fails(ValueError, "3 is not 4", symplex.vmap(lambda x, y: x), F32, F32.T.copy())
    fails(ValueError, "in_axes has 3 entries for 1", symplex.vmap(lambda x: x, in_axes=(0, 0, 0)), F32)
    fails(ValueError, "differs between examples", symplex.vmap(lambda x: x, out_axes=None), F32)


# ---- gradients ----
def test_gradients_inside():
    x = F64[0]

    def loss(w, x, y):
        return ((x @ w - y) ** 2).sum()

    def train(w, xs, ys):
        def step(w, batch):
            value, slope = symplex.value_and_grad(loss)(w, *batch)
            return w - slope / 64, value
        return symplex.scan(step, w, (xs, ys))

    w, xs, ys = np.zeros(4), np.stack([F64, F64 + 1]), np.ones((2, 3))
    got, want_w, want = jit(train)(w, xs, ys), w, []
    for a, b in zip(xs, ys):
        want.append(((a @ want_w - b) ** 2).sum())
        want_w = want_w - 2 * a.T @ (a @ want_w - b) / 64
    equal(got, (want_w, np.array(want)), ulps=4)
    # derivatives of higher order, by a cube: 3 x^2, 6 x, and a mixed one
    second = symplex.grad(lambda x: symplex.grad(lambda y: (y ** 3).sum())(x).sum(), threads=1)
    equal(second(x), 6 * x)
    mixed = symplex.grad(lambda x: symplex.grad(lambda y: (x * y * y).sum())(x).sum(), threads=1)
    equal(mixed(x), 4 * x)  # 2 x y with y = x
    hessian = jit(lambda x: symplex.vmap(lambda v: symplex.grad(lambda x: symplex.grad(
        lambda y: (y ** 3).sum() + y[0] * y[1])(x) @ v)(x))(np.eye(4)))
    want = np.diag(6 * x)
    want[0, 1] = want[1, 0] = 1
    equal(hessian(x), want)
    captured = jit(lambda x, k: symplex.grad(lambda v: (v * k).sum() * k.sum())(x))
    equal(captured(x, F64[1]), F64[1] * F64[1].sum())
    jitted = symplex.grad(jit(lambda x: (x * x).sum()), threads=1)
    equal(jitted(x), 2 * x)


def test_gradients_of_control_flow():
    def f(x, p):
        return symplex.cond(p, lambda v: (v * v).sum(), lambda v: v.sum() * 3, x)
    slope = symplex.grad(f, threads=1)
    equal(slope(F64, np.bool_(True)), 2 * F64)
    equal(slope(F64, np.bool_(False)), np.full_like(F64, 3))
    product = symplex.grad(lambda x: symplex.scan(lambda c, v: (c * v, None), np.float64(1), x)[0], threads=1)
    x = np.array([2.0, 3, -4, 5])
    equal(product(x), np.prod(x) / x)
    error = fails(symplex.Unimplemented, "while", symplex.grad(lambda x: symplex.while_loop(
        lambda c: c < 9, lambda c: c * 2, x)), np.float64(1))
    assert __file__ in str(error)


def test_value_and_grad():
    def loss(p, x, scale):
        y = x * p["w"] + p["b"]
        return (y * y).sum() * scale, {"y": y, "n": x.sum()}
    p, x = {"w": F64[0], "b": np.float64(2)}, F64
    (value, aux), slopes = symplex.value_and_grad(loss, has_aux=True, threads=1)(p, x, 0.5)
    y = x * p["w"] + 2
    equal((value, aux["y"], aux["n"]), ((y * y).sum() / 2, y, x.sum()))
    equal(slopes, {"w": (y * x).sum(0), "b": y.sum()})
    slopes, aux = symplex.grad(loss, has_aux=True, argnums=(0, 1), threads=1)(p, x, 0.5)
    equal(slopes[1], y * p["w"])
    fails(symplex.TraceError, "a gradient is of one real number, the first of a pair", symplex.grad(
        lambda x: x.sum(), has_aux=True), F64)
    fails(symplex.TraceError, "the function returns (*, *)", symplex.grad(lambda x: (x.sum(), x.sum())), F64)
    equal(symplex.grad(lambda x, y: (x * y).sum(), argnums=-1, threads=1)(F64, F64 + 1), F64)


# ---- random numbers ----
MASK = (1 << 32) - 1


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011, section 4.3 and Random123)."""
    c, k = [counter & MASK, counter >> 32 & MASK, 0, 0], [key & MASK, key >> 32 & MASK]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def word(counter, key):
    c = philox(counter, key & (1 << 64) - 1)
    return np.array([c[0] | c[1] << 32], np.uint64).view(np.int64)[0]


def test_random_bits():
    assert philox(0, 0) == [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8], "the known answer of Random123"
    key = symplex.random.key(7)
    equal(symplex.random.bits(key, (2, 3)), np.array([[word(3 * i + j, 7) for j in range(3)] for i in range(2)]))
    equal(symplex.random.split(key, 3), np.array([word((1 << 62) + i, 7) for i in range(3)]))
    equal(symplex.random.fold_in(key, 9), np.asarray(word((1 << 61) + 9, 7)))
    assert symplex.random.key(-1) == -1 and symplex.random.key((1 << 64) - 1) == -1

    def draw(key):
        a, b = symplex.random.split(key)
        drawn = symplex.random.bits(a, (4,)), symplex.random.uniform(b, (3,))
        return *drawn, symplex.random.normal(a, (2, 2), np.float64)
    equal(jit(draw)(key), draw(key))
    many = symplex.vmap(lambda k: symplex.random.uniform(k, (2,)), threads=1)(symplex.random.split(key, 3))
    equal(many, np.stack([symplex.random.uniform(k, (2,)) for k in symplex.random.split(key, 3)]))
    fails(TypeError, "seed: a whole number", symplex.random.key, 1.5)
    fails(TypeError, "key: int64[] is needed, not float32[3, 4]", jit(lambda x: symplex.random.bits(x, (2,))), F32)
    fails(TypeError, "dtype: a type of real numbers", symplex.random.uniform, key, (2,), np.int32)


def test_random_distributions():
    """Of n = 100,000 numbers: mean and variance within 5 standard errors of what they are by definition; keys are
    fixed, so the test always has the same numbers."""
    n, key = 100_000, symplex.random.key(11)
    for dtype in (np.float32, np.float64):
        u = symplex.random.uniform(key, (n,), dtype)
        assert u.dtype == dtype and u.min() >= 0 and u.max() < 1
        assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n) and abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)
        g = symplex.random.normal(key, (n,), dtype).astype(np.float64)
        assert abs(g.mean()) < 5 / np.sqrt(n) and abs(g.var() - 1) < 5 * np.sqrt(2 / n)
        assert abs((g ** 3).mean()) < 5 * np.sqrt(15 / n) and abs((g ** 4).mean() - 3) < 5 * np.sqrt(96 / n)
        assert np.isfinite(g).all()
    b = symplex.random.bernoulli(key, 0.25, (n,))
    assert b.dtype == bool and abs(b.mean() - 0.25) < 5 * np.sqrt(0.1875 / n)
    wide = symplex.random.uniform(key, (n,), minval=-2.0, maxval=6.0)
    assert wide.min() >= -2 and wide.max() <= 6 and abs(wide.mean() - 2) < 5 * np.sqrt(64 / 12 / n)


# ---- static and donated ----
def test_static_arguments():
    traced = []

    def function(x, n, mode="add", *, scale=1):
        traced.append((n, mode, scale))
        made = x
        for _ in range(n):
            made = made + x if mode == "add" else made * 2
        return made * scale
    f = jit(function, static_argnums=1, static_argnames=("mode", "scale"))
    equal(f(F32, 3), F32 * 4)
    equal(f(F32 + 1, 3), F32 * 4 + 4)
    equal(f(F32, 2, "double"), F32 * 4)
    equal(f(F32, 2, mode="double", scale=3), F32 * 12)
    assert traced == [(3, "add", 1), (2, "double", 1), (2, "double", 3)]
    assert [c.signature["n"] for c in symplex.explain(f)] == ["3 (static)", "2 (static)", "2 (static)"]
    key = jit(lambda x, f: f(x), static_argnums=(1,))
    equal(key(F64, np.abs), np.abs(F64))
    fails(TypeError, "argument 'n': a static argument is part of the program and must be hashable, which list", f, F32,
          [1])
    fails(ValueError, "the function has no argument k", jit, function, static_argnames="k")
    fails(ValueError, "static_argnums: 9", jit, lambda x: x, static_argnums=9)


def test_donated_arguments():
    step = jit(lambda state, g: ({"m": state["m"] + g, "n": state["n"] + 1}, g.sum()), donate_argnums=0)
    state = {"m": F32.copy(), "n": np.zeros((), np.int32)}
    memory = state["m"].ctypes.data
    for k in range(1, 4):
        state, total = step(state, F32)
        assert state["m"].ctypes.data == memory and np.array_equal(state["m"], F32 * (k + 1)) and state["n"] == k
    assert 'into "x0"' in step.lower(state, F32) and "donated" in step.lower(state, F32)
    frozen = F32.copy()
    frozen.flags.writeable = False
    fails(symplex.LayoutError, "argument 'state['m']': it is donated, and is read-only", step, {**state, "m": frozen},
          F32)
    fails(symplex.LayoutError, "has gaps", step, {**state, "m": np.zeros((4, 3), np.float32).T}, F32)
    kept = state["m"].copy()
    fails(symplex.InputError, "is replaced by an output in its place, and its memory overlaps that of", step, state,
          state["m"])  # its reader would see the result in its place
    assert np.array_equal(state["m"], kept) and state["n"] == 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        useless = jit(lambda x: x.sum(), donate_argnames="x")
        assert useless(F32) == F32.sum()
    assert "no result has the type of the donated argument 'x', f32[3, 4]" in str(caught[0].message)
    assert "no result has the type" in symplex.explain(useless)[0].notes[0]
    # an argument that is returned as it came is a result of its own: the other one lies in it
    y = F32.copy()
    same, moved = jit(lambda x, y: (y, x + y), donate_argnums=1)(F32 + 1, y)
    equal(same, F32)
    assert moved.ctypes.data == y.ctypes.data != same.ctypes.data and np.array_equal(moved, 2 * F32 + 1)
    fails(symplex.Unimplemented, "donated arguments beside numpy.linalg.svd, which is a call of the host",
          jit(lambda x: x + np.linalg.svd(x)[1].sum(), donate_argnums=0), F32.copy())


def test_what_cannot_be_compiled_names_the_function():
    def scaled(x, *, by):
        return x * by
    error = fails(symplex.InputError, "target 'abacus' is unknown", jit(scaled, target="abacus"), F32, by=F64)
    assert "while scaled(x: f32[3, 4], by: f64[3, 4]) was compiled" in error.__notes__[0], error.__notes__


def test_decorators():
    @symplex.jit
    def double(x):
        "Twice x."
        return x * 2

    class Model:
        w = F32

        @symplex.jit(static_argnums=0, threads=1)
        def __call__(self, x):
            return x * self.w
    equal(double(F32), F32 * 2)
    assert double.__doc__ == "Twice x." and double.__name__ == "double" and "double, 1 compiled" in repr(double)
    equal(Model()(F32), F32 * F32)
    fails(TypeError, "a function is needed, not int", symplex.jit, 3)


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
