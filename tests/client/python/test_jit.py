#!/usr/bin/env python3
"""symplex.jit and gradients: the same functions by NumPy, which traces nothing. Arguments are small whole numbers and
quarters where results are sums and products of them, so that equal means equal. Functions that round (exp, log,
...) are one operation each, here and there: a result may be off by 4 units in the last place of the largest one.
Gradients are compared with ones that are written down here."""
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402

import symplex  # noqa: E402

F32 = np.arange(12, dtype=np.float32).reshape(3, 4) % 7 - 3
F64 = F32.astype(np.float64)
I32 = F32.astype(np.int32)
TRUE = F32 > 0
POSITIVE = np.abs(F32) + np.float32(0.5)
UNIT = F32 / np.float32(4)
SEEN = {}


def jit(function, **options):
    return symplex.jit(function, threads=1, **options)


def fails(classes, part, function, *args, **keywords):
    try:
        function(*args, **keywords)
    except classes as error:
        assert part in str(error), f"{part!r} is not in {error}"
        return error
    raise AssertionError(f"nothing was raised, {classes} was expected: {part}")


def same(function, *args, ulps=0):
    """One trace of several results: element types, shapes, and values."""
    want = function(*args)
    got = jit(function)(*args)
    assert type(got) is type(want) and len(got) == len(want), (got, want)
    for i, (g, w) in enumerate(zip(got, want)):
        w = np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape, (i, g.dtype, w.dtype, g.shape, w.shape)
        if ulps and w.dtype.kind == "f":
            allowed = ulps * np.finfo(w.dtype).eps * np.max(np.abs(w))
            assert np.max(np.abs(g - w)) <= allowed, (i, g, w)
        else:
            assert np.array_equal(g, w), (i, g, w)


def test_operators():
    same(lambda x, y: (x + y, x - y, x * y, x / 2, 2 / (y * y + 1), -x, +x, abs(x), x ** 2, x + 1, 1 - x, x == y,
                       x != y, x < y, x <= y, x > 1, x >= 0.5), F32, F32[::-1].copy())
    same(lambda x, i, b: (x + i, i + i, i * 3, i / 2, b & (x > 0), b | b, b ^ b, ~b, i & 3, i | 4, ~i, -i, i + b, i < x,
                          x * 2.5, i * 2.5, b + b), F64, I32, TRUE)
    same(lambda x: (x + np.float32(1), x + np.ones(4, np.float32), np.ones((2, 3, 4), np.float32) * x,
                    F64 - x, x + np.arange(3, dtype=np.float32)[:, None]), F32)


def test_functions_of_elements():
    same(lambda x: (np.add(x, x), np.maximum(x, 0), np.minimum(x, 1), np.abs(x), np.floor(x / 2), np.ceil(x / 2),
                    np.rint(x / 2), np.sign(x), np.square(x), np.fmod(x, 2), np.negative(x), np.logical_not(x),
                    np.logical_and(x, x > 1), np.logical_or(x, x), np.where(x > 0, x, -1), np.where(x > 0, 1.5, x),
                    np.where(TRUE, x, np.zeros(4, np.float32)), np.zeros_like(x), np.ones_like(x),
                    np.full_like(x, 7)), F32)
    same(lambda x, p: (np.exp(x), np.log(p), np.sqrt(p), np.tanh(x), np.sin(x), np.cos(x), np.power(p, 1.5),
                       np.reciprocal(p)), UNIT, POSITIVE, ulps=4)
    same(lambda x, p: (np.exp(x), np.log(p), np.sqrt(p), np.tanh(x), np.sin(x), np.cos(x)), UNIT.astype(np.float64),
         POSITIVE.astype(np.float64), ulps=4)


class Metres:
    """An operand with a say of its own in NumPy's functions."""

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        return ufunc.__name__, [type(x) is Metres for x in inputs]


def test_operands_of_other_classes():
    """An operator is NumPy's function, which asks a left operand first that has a say in it."""
    found = []

    def take(x, y):
        found.append(Metres() - x)
        return x - 1, 1 / x, 2.0 * x, x * np.float32(3), x / y, x @ y.T, -x
    same(take, POSITIVE + 1, POSITIVE, ulps=4)
    assert found[-1] == ("subtract", [True, False]), found


def test_numbers_are_constants_once():
    """What is the same number of the same type is one node of the program, and of one shape one broadcast. Zeros of
    both signs are two, and so are numbers of two types."""
    def counted(function, *args):
        text = symplex.jit(function).lower(*args)
        return text.count(" = constant"), text.count(" = broadcast_in_dim")
    assert counted(lambda x: (x + 0.5) * 0.5 + 0.5, F32) == (1, 1)
    assert counted(lambda x: (x + 0.5) * 0.25, F32) == (2, 2)
    assert counted(lambda x: (x + 0.0) * -0.0, F32) == (2, 2)
    assert counted(lambda x, y: (x + 1, y + 1), F32, F64) == (2, 2)
    assert counted(lambda x: (x + 2, x[0] * 2), F32) == (1, 2)
    x = np.float32([0.0, -0.0, 1.5])
    assert np.array_equal(np.signbit(symplex.jit(lambda x: (x * 0.0, x * -0.0), threads=1)(x)),
                          np.signbit((x * np.float32(0.0), x * np.float32(-0.0))))


def test_take_of_nothing():
    """NumPy looks at indices only where an extent in front of the axis is not 0."""
    for shape, axis in (((0, 1), 1), ((2, 0, 3), 2), ((0, 0), 1)):
        x = np.zeros(shape, np.float32)
        same(lambda x: np.take(x, [5, 7], axis=axis), x)
        assert np.take(x, [5, 7], axis=axis).size == 0
    fails(IndexError, "an index from 5 to 5 of a dimension of 2",
          symplex.jit(lambda x: np.take(x, [5], axis=0)), np.zeros((2, 0), np.float32))


def test_reductions():
    same(lambda x, i, b: (np.sum(x), np.sum(x, 1), x.sum(axis=(0, 1)), np.sum(x, axis=-1, keepdims=True), x.max(),
                          np.max(x, axis=0), np.min(i, axis=1), x.min(axis=0, keepdims=True), np.sum(i), np.sum(b, 0),
                          np.prod(i, axis=0), np.add.reduce(x), np.maximum.reduce(x, axis=1), np.amax(x),
                          np.mean(i * 4, axis=1), (x * 4).mean(axis=1), np.mean(b)), F32, I32, TRUE)


def test_matrix_products():
    a, b = F32, F32.T.copy()
    same(lambda a, b: (a @ b, np.matmul(a, b), np.dot(a, b), a @ b[:, 0], a[0] @ b, a[0] @ b[:, 0],
                       a @ np.ones(4, "f4"), np.dot(a, 2)), a, b)
    c, d = np.stack([a, a + 1]), np.stack([b, b - 1])
    same(lambda c, d, b: (c @ d, c @ b, c[:, None] @ d[None], b @ c[0], c @ np.ones((4, 5), "f4")), c, d, b)
    same(lambda i: (i @ i.T, i.astype(np.float64) @ np.ones(4)), I32)


def test_shapes():
    same(lambda x: (x.reshape(4, 3), x.reshape(-1), np.reshape(x, (2, -1)), x.T, np.transpose(x), x.transpose(1, 0),
                    np.swapaxes(x, 0, 1), np.expand_dims(x, 1), np.squeeze(x[:1]), np.squeeze(x.min(), axis=0),
                    np.ravel(x), x.ravel(),
                    np.broadcast_to(x, (2, 3, 4)), np.broadcast_to(x[:, :1], (3, 5)), np.concatenate([x, x], axis=1),
                    np.stack([x, x * 2], axis=-1), np.concatenate([x, np.ones((1, 4), np.float32)]),
                    x.astype(np.int32), x.astype("f8"), x.astype(bool)), F32)
    same(lambda x: (x[0], x[-1, 2], x[1:], x[:, ::2], x[::-1], x[2:0:-1, 1:3], x[..., 1], x[None, :, 0], x[:, None],
                    sum(x), *x, x[1:1], x[..., None], x[np.int64(1)], x[()]), F32)


def test_structures():
    def step(w, batch, scale=2, *, flip=False):
        y = batch["x"] @ w[0] + w[1]
        return {"y": -y if flip else y * scale, "all": [w, (y, np.float32(1))]}

    w, batch = (F32.T.copy(), np.ones(3, np.float32)), {"x": F32}
    f = jit(step)
    for keywords in ({}, {"scale": 3}, {"flip": True}, {"scale": 2.0}):
        got, want = f(w, batch, **keywords), step(w, batch, **keywords)
        assert np.array_equal(got["y"], want["y"]) and list(got) == ["all", "y"] and type(got["all"][1]) is tuple
        assert np.array_equal(got["all"][0][0], w[0]) and got["all"][1][1] == 1
    assert len(f.modules) == 4
    f(w, {"x": F32[:2]})
    f(w, {"x": F32[:2] + 1}, 2)
    assert len(f.modules) == 5, "another shape; other elements are the same program"
    text = f.lower(w, batch)
    assert text.startswith("sx 1\n") and "dot_general" in text
    assert np.array_equal(jit(lambda x: x * 2)(F32.T), F32.T * 2), "gaps are copied"
    assert np.array_equal(jit(lambda *xs, **ys: xs[1] + ys["z"])(F32, F32, z=F32), 2 * F32)


def test_later_calls():
    """Other elements, other layouts, other ways to give the same: always what NumPy gives."""
    def function(x, y=F32, k=1):
        return x * k + y, [y]

    f, g, h = jit(function), jit(lambda x, y: x - y), jit(lambda x, y: y * 2)
    for x in (F32, F32 + 1, F32[::-1], np.asfortranarray(F32), F32.view(np.matrix), F32.astype(">f4").astype("f4")):
        for args, keywords in (((x,), {}), ((x, F32 * 2), {}), ((x,), {"y": x}), ((x, x, 3), {}), ((x, x), {"k": 3})):
            for _ in range(2):
                got, want = f(*args, **keywords), function(*args, **keywords)
                assert np.array_equal(got[0], want[0]) and np.array_equal(got[1][0], want[1][0])
        assert np.array_equal(g(x, F32), np.asarray(x) - F32) and np.array_equal(h(F32, x), np.asarray(x) * 2)
        assert np.array_equal(g(F64, F64 * 2), -F64) and np.array_equal(g(F32[:1], F32), F32[:1] - F32)
    fails(TypeError, "missing a required argument", g, F32)
    fails(TypeError, "too many positional arguments", g, F32, F32, F32)
    assert len(g.modules) == 3 and len(h.modules) == 1


def test_the_short_way():
    """Later calls with what was there: arrays that are there twice, defaults, orders of keys, numbers that are equal
    and not the same, scalars of NumPy, gaps."""
    def function(p, *rest, y=None, k=1.0):
        return [p["a"] - p["b"], (rest[0] * 2 - rest[1][0], np.copysign(F32 if y is None else y, k)), -p["b"]]
    f = jit(function)
    a, b = F32, F32 * 3
    for _ in range(3):
        for args, keywords in ((({"a": a, "b": b}, a, [b]), {}), (({"b": a, "a": b}, b, [b]), {"k": -0.0}),
                               (({"a": b, "b": b}, b, [a]), {"k": 0.0}),
                               (({"a": a, "b": b}, a, [a]), {"y": b, "k": -1.0}),
                               (({"a": a.T, "b": b.T}, a, [b[::-1]]), {}), (({"a": a, "b": b}, a[0, 0], [b]), {}),
                               (({"a": a, "b": a}, np.float32(2), (np.float32(3),)), {"k": 1.0})):
            got, want = f(*args, **keywords), function(*args, **keywords)
            assert type(got[1]) is tuple
            for g, w in zip((got[0], *got[1], got[2]), (want[0], *want[1], want[2])):
                assert np.array_equal(g, w) and np.array_equal(np.signbit(g), np.signbit(w)), (args, keywords)
    assert len(f._short) == 7, "each has one; what has gaps is then refused there, and copied"
    number = jit(lambda x, k: x * k)
    assert np.isnan(number(F32, np.nan)).all() and np.isnan(number(F32, float("nan"))).all()
    assert len(number.modules) == 1
    assert [number(I32, k).dtype for k in (True, 1.0, 1)] == [np.int32, np.float64, np.int32]


def test_rows_of_every_batch():
    """With `batch_invariant` a row has the same bits in every batch; without it this sum is taken in another order for
    one row."""
    rng = np.random.default_rng(1)
    w, b, d, u, x = (rng.uniform(-1, 1, shape).astype(np.float32)
                     for shape in ((256, 256), (256,), (8, 256), (256, 8), (12, 256)))

    def function(x, w, b, d, u):
        return x @ w.T + b + (x @ d.T) @ u.T * np.float32(0.5)

    for options, same in (({}, False), ({"batch_invariant": True}, True)):
        f = jit(function, **options)
        made = {rows: f(x[:rows].copy(), w, b, d, u) for rows in (12, 1, 3)}
        assert all(np.array_equal(y, made[12][:rows]) for rows, y in made.items()) == same, options
        assert np.abs(made[12] - function(x, w, b, d, u)).max() < 1e-4 and len(f.modules) == 3


def test_large_arrays_of_a_closure_are_bound():
    """They are weights: as they were when the function was traced, in no program, and work on them is done once."""
    def layer(w, b):
        return lambda x: (np.tanh(x) @ w + b, w)

    def whole(*shape):
        return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)

    x, w, b = np.zeros((4, 64), np.float32), whole(64, 48), whole(48)
    x[:, ::3] = np.inf  # whose tanh is 1
    functions = [jit(layer(w * k, b)) for k in (1, 2)]
    for k, f in enumerate(functions, 1):
        for _ in range(2):
            made = f(x)
            assert np.array_equal(made[0], np.tanh(x) @ (w * k) + b) and np.array_equal(made[1], w * k)
    one, two = ([stage.module for c in f.modules.values() for stage in c.stages] for f in functions)
    assert one[0].compiled["key"] == two[0].compiled["key"] and [t.name for t in one[0].weights] == ["w0"]
    rows = [row for row in one[0].profile(x)[1] if row["once"]]
    assert rows and not any(row["ns"] for row in rows), rows
    mine = w.copy()
    f = jit(layer(mine, b))
    want = f(x)
    mine += 1
    assert all(np.array_equal(a, b) for a, b in zip(f(x), want))
    for hosts in (lambda x: np.linalg.svd(x, compute_uv=False) @ w, lambda x: np.linalg.svd(x @ w, compute_uv=False)):
        assert np.allclose(jit(hosts)(w[:, :64] @ w.T), hosts(w[:, :64] @ w.T), rtol=1e-4, atol=1e-2)


def test_a_function_must_be_pure():
    leaked = []
    cases = (("the truth of a traced bool[]", lambda x: x if x.sum() > 0 else -x),
             ("a number of a", lambda x: float(x[0, 0])),
             ("the elements of a traced", lambda x: np.asarray(x)), ("a number of a", lambda x: range(x[0, 0])),
             ("an assignment", lambda x: x.__setitem__(0, 1)),
             ("the elements", lambda x: x.tolist()), ("the elements", lambda x: np.float32(x)))
    for part, function in cases:
        error = fails(symplex.TraceError, part, jit(function), F32)
        assert f"{__file__}:" in str(error), error
    fails(symplex.TraceError, "leaks a traced value through 'leaked', made at " + __file__,
          jit(lambda x: leaked.append(x * 2) or x), F32)
    fails(symplex.TraceError, "through 'SEEN'", jit(lambda x: SEEN.update(x=x) or x), F32)
    fails(symplex.TraceError, "after its function has returned", lambda: leaked[0] + 1)
    fails(symplex.TraceError, "after its function has returned", jit(lambda x: x), leaked[0])
    fails(symplex.TraceError, f"of another traced function is used, made at {__file__}", jit(
        lambda x: x + leaked[0]), F32)
    fails(symplex.TraceError, "returns no array", jit(lambda x: 3), F32)
    fails(symplex.TraceError, "changes one of its arguments, a dict", jit(lambda d: d.update(x=d["x"] + 1) or d["x"]),
          {"x": F32})
    fails(symplex.TraceError, "changes one of its arguments, a list", jit(lambda d: d.append(d[0]) or d[0]), [F32])
    fails(symplex.TraceError, "draws random numbers of the host", jit(lambda x: x + np.random.rand()), F32)
    fails(symplex.TraceError, "draws random numbers of the host", jit(lambda x: x + random.random()), F32)
    fails(symplex.TraceError, "into 'out'", jit(lambda x: np.add(x, x, out=np.zeros_like(F32))), F32)
    fails(symplex.TraceError, "into 'out'", jit(lambda x: np.sum(x, out=np.zeros(()))), F32)
    fails(symplex.TraceError, "a change in place", jit(lambda x: x.sort() or x), F32)
    fails(symplex.TraceError, "a number of a traced", jit(lambda x: np.zeros(3).__setitem__(0, x[0, 0]) or x), F32)


def test_what_is_missing_is_named():
    for name, function in (("numpy.nextafter", lambda x: np.nextafter(x, x)), ("numpy.unique", np.unique),
                           ("depends on elements", np.unique_values),
                           ("numpy.fft.fft", np.fft.fft), ("numpy.linalg.eig", lambda x: np.linalg.eig(x[:, :3])),
                           ("numpy.add.reduceat", lambda x: np.add.reduceat(x, [0, 1])), ("numpy.nonzero",
                            lambda x: x.nonzero()),
                           ("numpy.exp with where", lambda x: np.exp(x, where=True)),
                           ("numpy.sum with these arguments", lambda x: np.sum(x, where=True)),
                           ("an index of bool", lambda x: x[x > 0]), ("an index of type str", lambda x: x["a"]),
                           ("elements of complex64", lambda x: x.astype("c8"))):
        error = fails(symplex.Unimplemented, name, jit(function), F32)
        assert isinstance(error, NotImplementedError) and f"({__file__}:" in str(error) or "x" in name, error
    fails(symplex.Unimplemented, "argument 'x': elements of uint16", jit(lambda x: x), F32.astype(np.uint16))
    fails(symplex.Unimplemented, "whose result is uint64", jit(lambda x: x.sum()), F32.astype(np.uint8))
    for part, function in (("cannot become", lambda x: x.reshape(5)), ("axis 2 of 2", lambda x: x.sum(2)),
                           ("numpy.matmul of shapes (3, 4) and (3, 4): 4 is not 3", lambda x: x @ x),
                           ("shape", lambda x: x + np.ones(3, "f4")), ("numpy.concatenate", lambda x: np.concatenate(
                               [x, x[:, 1:]]))):
        fails(ValueError, part, jit(function), F32)
    fails(IndexError, "index 3 of a dimension of 3", jit(lambda x: x[3]), F32)
    fails(TypeError, "argument 'x': object is neither", jit(lambda x: x), object())


def test_random_functions():
    """Chains of operations that are exact on small whole numbers."""
    seed = int(os.environ.get("SX_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"seed: SX_SEED={seed}")
    rng = np.random.default_rng(seed)
    steps = (lambda x, y: x + y.sum(), lambda x, y: x - 1, lambda x, y: np.maximum(x, y.max()), lambda x, y: x.T,
             lambda x, y: np.minimum(x, 2), lambda x, y: x[::-1], lambda x, y: x[1:] if len(x) > 1 else x,
             lambda x, y: np.concatenate([x, x]), lambda x, y: np.where(x > y.min(), x, -x), lambda x, y: x.reshape(-1),
             lambda x, y: np.expand_dims(x, 0) if x.ndim < 4 else x[0], lambda x, y: np.sum(x, axis=0, keepdims=True),
             lambda x, y: np.sign(x), lambda x, y: abs(x), lambda x, y: x * np.sign(y).sum().astype(x.dtype),
             lambda x, y: x[..., ::2], lambda x, y: np.stack([x, x]) if x.ndim < 3 else x, lambda x, y: -x,
             lambda x, y: np.broadcast_to(x, (2, *x.shape)) if x.ndim < 3 else x, lambda x, y: x.astype(np.int32) | 1,
             lambda x, y: (x != 0).astype(np.float32), lambda x, y: x @ np.ones((x.shape[-1], 2), x.dtype))
    for _ in range(25):
        chosen = [steps[k] for k in rng.integers(len(steps), size=8)]

        def function(x, y):
            results = []
            for step in chosen:
                x = np.minimum(step(x, y), 99)
                results.append(x)
                x = x if x.ndim else x.reshape(1)
            return results

        same(function, F32, rng.integers(-3, 4, (2, 3)).astype(rng.choice(["f4", "f8", "i4"])))


def test_gradients():
    x, w, b = F32, F32.T.copy() / 4, np.array([0.5, -1, 2], np.float32)

    def loss(params, x):
        y = x @ params["w"] + params["b"]
        return np.sum(y * y) / 2

    value, slopes = symplex.value_and_grad(loss, threads=1)({"w": w, "b": b}, x)
    y = x @ w + b
    assert value == loss({"w": w, "b": b}, x) and set(slopes) == {"w", "b"}
    assert np.array_equal(slopes["w"], x.T @ y) and np.array_equal(slopes["b"], y.sum(0)), "quarters are exact"
    both = symplex.grad(loss, argnums=(0, 1), threads=1)({"w": w, "b": b}, x)
    assert np.array_equal(both[1], y @ w.T) and np.array_equal(both[0]["b"], y.sum(0))
    cube = symplex.grad(lambda x: np.sum(np.where(x > 0, x ** 3, 0)), threads=1)(F64)
    assert np.array_equal(cube, np.where(F64 > 0, 3 * F64 ** 2, 0))
    rows = symplex.grad(lambda x: np.mean(x[1] * 8), threads=1)(F32)
    assert np.array_equal(rows, [[0] * 4, [2] * 4, [0] * 4])
    fails(symplex.TraceError, "a gradient is of one real number", symplex.grad(lambda x: x * 2), F32)
    fails(symplex.TraceError, "not of x", symplex.grad(lambda x: x.sum()), I32)
    fails(symplex.TraceError, "not of x['a']", symplex.grad(lambda x: x["b"].sum()), {"a": I32, "b": F32})
    fails(symplex.TraceError, "gradients are of arrays of real numbers, not of i", symplex.grad(
        lambda x, i: (x * i).sum(), argnums=1), F64, I32)
    fails(ValueError, "argnums (2,)", symplex.grad(loss, argnums=2), {"w": w, "b": b}, x)


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
