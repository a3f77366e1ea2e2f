#!/usr/bin/env python3
"""Symbolic dimensions and typed axes of symplex.jit: one program for all values of a dimension, each value against
NumPy on arrays of that size; arithmetic on sizes against the same arithmetic on numbers, at random values; errors that
name dimensions and axes. Sums are of small whole numbers, so equal means equal."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx.reference  # noqa: E402
import onnxruntime  # noqa: E402

import symplex  # noqa: E402
from symplex._trace.size import Size, parse  # noqa: E402
from small import fails  # noqa: E402


def rows(n, *rest, dtype=np.float32):
    return (np.arange(n * int(np.prod(rest, dtype=int))) % 7 - 3).reshape(n, *rest).astype(dtype)


def equal(got, want):
    got, want = (x if isinstance(x, (tuple, list)) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == np.shape(w) and g.dtype == np.asarray(w).dtype and np.array_equal(g, w), (i, g, w)


def batch(function, *names, low=1, high=64, **options):
    """Jitted with the first dimension of the arguments of these names symbolic, the second 4."""
    return symplex.jit(function, shapes={name: ("batch", 4) for name in names}, dims={"batch": (low, high)}, threads=1,
                       **options)


def test_one_program_for_all():
    w = rows(4, 5)

    def layer(x, w, b):
        y = np.maximum(x @ w + b, 0)
        return y, y.sum(0), y.sum(1), y.mean() * 64 * 5, y.T, y * y.shape[0], np.concatenate([y, y], 1), y[:, ::-1]
    f = symplex.jit(layer, shapes={"x": ("batch", 4)}, dims={"batch": (1, 64)}, threads=1)
    for n in (1, 2, 7, 32, 64):
        got, want = f(rows(n, 4), w, w[0]), layer(rows(n, 4), w, w[0])
        equal(got[:3] + got[4:], want[:3] + want[4:])
        assert abs(got[3] - want[3]) <= 4 * np.finfo(np.float32).eps * abs(want[3])
    assert len(f.modules) == 1 and len(symplex.explain(f)) == 1
    assert symplex.explain(f)[0].signature["x"] == "f32[batch, 4]"
    assert "(batch in [1, 64])" in f.lower(rows(3, 4), w, w[0])
    f(rows(3, 4), w[:, :2].copy(), w[0, :2].copy())
    assert "w is f32[4, 2], was f32[4, 5]" in symplex.explain(f)[1].why


def test_shapes_from_sizes():
    def function(x):
        n, k = x.shape
        flat = x.reshape(n * k)
        return (flat, x.reshape(-1, 2), x.reshape(2 * n, 2), np.zeros_like(x, shape=(n, 3)) + n, x[0], x[-1],
                x[::-1], np.broadcast_to(x[:, None], (n, 2, k)), np.expand_dims(x, 0), np.stack([x, x]), x[:1] + x,
                np.where(x > 0, x, 0), np.sum(x > 0), np.cumsum(x, 0), np.sort(x, 1), x.max(0), np.tril(x @ x.T),
                np.einsum("ij,kj->ik", x, x), np.trace(x @ x.T), np.take(x, np.array([1, 0, 1]), 1))
    f = batch(function, "x")
    for n in (1, 2, 9, 64):
        equal(f(rows(n, 4)), function(rows(n, 4)))
    assert len(f.modules) == 1


def test_two_dimensions():
    def function(x, y):
        b, s = x.shape[:2]
        flat = x.reshape(b * s, 4) @ y
        return flat.reshape(b, s, -1), (x.reshape(b, s * 4) * 2).sum(), np.swapaxes(x, 0, 1)
    f = symplex.jit(function, shapes={"x": ("batch", "seq", 4)}, dims={"batch": (1, 8), "seq": (2, 16)}, threads=1)
    for b, s in ((1, 2), (3, 16), (8, 5)):
        x = rows(b, s, 4)
        equal(f(x, rows(4, 3)), function(x, rows(4, 3)))
    assert len(f.modules) == 1
    flat = symplex.jit(lambda x, y: x.reshape(-1, 4) @ y, shapes={"x": ("batch", "batch", "seq", 4)},
                       dims={"batch": (1, 8), "seq": (2, 16)})
    error = fails(symplex.Unimplemented, "is batch*batch*seq", flat, rows(2, 2, 3, 4), rows(4, 3))
    assert "f32[batch, batch, seq, 4], y: f32[4, 3]) was compiled" in error.__notes__[0]
    g = symplex.jit(lambda x, y: x.reshape(-1) + y, shapes={"x": ("n", 2), "y": ("2*n",)}, dims={"n": (1, 9)},
                    threads=1)
    equal(g(rows(5, 2), rows(10)), rows(5, 2).reshape(-1) + rows(10))
    fails(symplex.ShapeError, "argument 'y': the dimension n is 4, in 'x' it is 5", g, rows(5, 2), rows(8))
    fails(symplex.ShapeError, "argument 'y': dimension 0 is 9, needed is a multiple of 2 (2*n)", g, rows(5, 2), rows(9))


def test_transforms():
    def loss(w, x):
        return ((x @ w) ** 2).sum()
    f = symplex.value_and_grad(loss, shapes={"x": ("batch", 4)}, dims={"batch": (1, 32)}, threads=1)
    w = np.array([1, -2, 0, 3], np.float32)
    for n in (1, 5, 32):
        x = rows(n, 4)
        equal(f(w, x), (((x @ w) ** 2).sum(), 2 * x.T @ (x @ w)))
    many = symplex.vmap(lambda row, w: (row * w, row[::-1], row.sum(), row @ w, row.reshape(2, 2), row[1:]),
                        in_axes=(0, None), shapes={"row": ("batch", 4)}, dims={"batch": (1, 32)}, threads=1)
    for n in (1, 6):
        x = rows(n, 4)
        equal(many(x, w), (x * w, x[:, ::-1], x.sum(1), x @ w, x.reshape(n, 2, 2), x[:, 1:]))
    sums = batch(lambda x: symplex.scan(lambda c, row: (c + row, c), x[0] * 0, x), "x", high=32)
    for n in (1, 5, 32):
        x = rows(n, 4)
        equal(sums(x), (x.sum(0), np.cumsum(x, 0) - x))
    assert len(f.modules) == len(many.modules) == len(sums.modules) == 1
    key = symplex.random.key(3)
    drawn = batch(lambda x: symplex.random.bits(key, x.shape), "x")
    equal(drawn(rows(7, 4)), symplex.random.bits(key, (7, 4)))


def test_structures():
    f = symplex.jit(lambda p, x: p["w"][0] + x, shapes={"p['w'][0]": ("n",), "x": ("n",)}, dims={"n": (2, 9)},
                    threads=1)
    for n in (2, 9):
        equal(f({"w": [rows(n)]}, rows(n)), rows(n) * 2)
    assert len(f.modules) == 1
    fails(symplex.ShapeError, "argument 'x': the dimension n is 3, in 'p['w'][0]' it is 2", f, {"w": [rows(2)]},
          rows(3))
    fails(symplex.ShapeError, "shapes: 'p['w'][0]' is no array among the arguments x", f, {"w": [1]}, rows(3))


def test_sizes():
    seed = int(os.environ.get("SX_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"seed: SX_SEED={seed}")
    rng = np.random.default_rng(seed)
    bounds = {"a": (1, 50), "b": (2, 9), "c": (1, 7)}
    symbols = [Size({(s,): 1}, bounds) for s in bounds]
    for _ in range(300):
        values = {s: int(rng.integers(lo, hi + 1)) for s, (lo, hi) in bounds.items()}
        made, want = 0, 0
        for _ in range(rng.integers(1, 6)):
            k, s, n = int(rng.integers(3)), int(rng.integers(3)), int(rng.integers(1, 5))
            x, v = symbols[s], values[list(bounds)[s]]
            made, want = [(made + n * x, want + n * v), (made * x + n, want * v + n), (n - made, n - want)][k]

        def value(size):
            return size.value(values) if isinstance(size, Size) else size
        assert value(made) == want
        assert parse(str(made), bounds) == made, str(made)
        if isinstance(made, Size):
            low, high = made.range()
            assert low <= want <= high
            assert (made * symbols[0]) // symbols[0] == made and (made * 6) // 3 == made * 2
            assert (made * (symbols[0] + 1)) // (symbols[0] + 1) == made and (made * symbols[1]) % symbols[1] == 0
            assert hash(made) == hash(parse(str(made), bounds))
    a, b, _ = symbols
    assert str(2 * a * b - 1) == "2*a*b - 1" and str(a - a + 3) == "3" and a - a == 0 and a + 1 > 1 and a <= 50
    assert a != b and not a == 3 and a * b == b * a
    for part, function in (("a < b", lambda: a < b), ("a // b", lambda: a // b), ("a % 2", lambda: a % 2),
                           ("between 1 and 50", lambda: int(a)), ("a number of the dimension a", lambda: range(a)),
                           ("the truth of the dimension a - 1", lambda: bool(a - 1))):
        error = fails(symplex.TraceError, part, function)
        assert __file__ in str(error)


def test_errors_name_dimensions():
    x = rows(5, 4)
    f = batch(lambda x: x + 1, "x")
    fails(symplex.ShapeError, "argument 'x': the dimension batch is 65, allowed are 1 to 64", f, rows(65, 4))
    fails(symplex.ShapeError, "argument 'x': dimension 1 is 3, needed is 4", f, rows(5, 3))
    fails(symplex.ShapeError, "argument 'x': its shape is (5,), needed is (batch, 4)", f, rows(5))
    for part, function in (
            ("numpy.add: batch meets 3", lambda x: x + np.ones((3, 4), np.float32)),
            ("len() of the symbolic dimension batch", lambda x: len(x)),
            ("iterating over the symbolic dimension batch", lambda x: [r for r in x]),
            ("a number of the dimension batch", lambda x: [x[i] for i in range(x.shape[0])]),
            ("numpy.matmul: 4 meets batch", lambda x: x @ x), ("batch > 3", lambda x: x if x.shape[0] > 3 else -x)):
        error = fails(symplex.TraceError, part, batch(function, "x"), x)
        assert f"({__file__}:" in str(error)
    fails(IndexError, "index 1 of the dimension batch, which may be 1", batch(lambda x: x[1], "x"), x)
    for part, function in (
            ("1:None:None of the symbolic dimension batch, which may be 1: batch - 1 may be 0", lambda x: x[1:]),
            ("None:5:None of the symbolic dimension batch, which may be 1: where it ends", lambda x: x[:5]),
            ("None:None:2 of the symbolic dimension batch: one of 2 of batch elements", lambda x: x[::2])):
        error = fails(symplex.Unimplemented, "a slice " + part, batch(function, "x"), x)
        assert f"({__file__}:" in str(error)
    fails(ValueError, "a slice with step 0", batch(lambda x: x[::0], "x"), x)
    fails(ValueError, "cannot become", batch(lambda x: x.reshape(3, -1), "x"), x)
    fails(ValueError, "'n' of the extent 'n' has no interval", symplex.jit, lambda x: x, shapes={"x": ("n",)})
    fails(ValueError, "dims: n: no shape of `shapes` names it", symplex.jit, lambda x: x, dims={"n": (1, 4)})
    fails(ValueError, "dims: n = 3; an interval", symplex.jit, lambda x: x, shapes={"x": ("n",)}, dims={"n": 3})
    fails(ValueError, "shapes: x has -2", symplex.jit, lambda x: x, shapes={"x": (-2,)})
    fails(symplex.ShapeError, "'y' is no array among the arguments x", symplex.jit(
        lambda x: x, shapes={"y": (4,)}), rows(4))
    fails(symplex.ShapeError, "no argument tells m alone", symplex.jit(
        lambda x, y: x, shapes={"x": ("n",), "y": ("n*m*m",)}, dims={"n": (1, 4), "m": (1, 4)}), rows(2), rows(4))


def test_slices_of_dimensions():
    """Stencils: parts of symbolic dimensions, from both ends, backwards, and one of several where that is a dimension;
    their gradients; in a loop; under vmap."""
    def parts(x):
        n = x.shape[0]
        return (x[1:] - x[:-1], x[2:] - 2 * x[1:-1] + x[:-2], x[-1], x[-3:], x[:3], x[1:3], x[-3:-1], x[-2::-1],
                x[:0:-1], x[2:1], x[:100], x[-100:], x[n - 1], x[1:n - 1, 1:], x[:-1, ::-1],
                np.diff(x, 2, 0), np.roll(x, 1, 0),
                np.roll(x, -2, 0), np.roll(x, 41, 0))
    f = batch(parts, "x", low=3)
    for n in (3, 4, 64):
        equal(f(rows(n, 4)), parts(rows(n, 4)))
    assert len(f.modules) == 1

    def strided(x):
        return x[::2], x[1::2], x[::-2], x[:3:2], x[-3::2], x[:-1:2], x[1:-1:2], x[::-1][::2], x[-2::-2]
    f = symplex.jit(strided, shapes={"x": ("2*n", 4)}, dims={"n": (2, 20)}, threads=1)
    for n in (2, 5, 20):
        equal(f(rows(2 * n, 4)), strided(rows(2 * n, 4)))

    f = symplex.jit(lambda x, y: (x[y.shape[0] - 1:][:1], y[-1]), shapes={"x": ("n + m", 4), "y": ("n",)},
                    dims={"n": (1, 5), "m": (1, 5)}, threads=1)
    equal(f(rows(3, 4), rows(1)), (rows(3, 4)[:1], rows(1)[0]))
    equal(f(rows(9, 4), rows(5)), (rows(9, 4)[4:5], rows(5)[4]))

    def energy(x):
        return ((x[1:] - x[:-1]) ** 2).sum() + x[-1] * x[0]

    def slope(x):
        step, last = 2 * np.diff(x), np.zeros_like(x)
        last[0], last[-1] = x[-1], x[0]
        return np.append(0, step) - np.append(step, 0) + last
    f = symplex.jit(symplex.grad(energy), shapes={"x": ("n",)}, dims={"n": (3, 20)}, threads=1)
    g = symplex.jit(symplex.vmap(symplex.grad(energy)), shapes={"x": (3, "n")}, dims={"n": (3, 20)}, threads=1)
    for n in (3, 20):
        x = rows(3, n).astype(np.float64)
        equal((f(x[0]), g(x)), (slope(x[0]), np.stack([slope(row) for row in x])))

    def smoothed(x):
        return np.concatenate([x[:1], (x[2:] + 2 * x[1:-1] + x[:-2]) / 4, x[-1:]])
    f = symplex.jit(lambda x: symplex.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, smoothed(s[1])), (0, x))[1],
                    shapes={"x": ("n",)}, dims={"n": (3, 20)}, threads=1)
    for n in (3, 7):
        x = want = rows(n).astype(np.float64)
        for _ in range(9):
            want = smoothed(want)
        equal([f(x)], [want])


def test_sums_of_dimensions():
    """Joined along symbolic dimensions: one program for all values of both."""
    def joined(a, b):
        both = np.concatenate([a, b])
        return both * 2, both[::-1], both.sum(0), both.reshape(-1)
    f = symplex.jit(joined, shapes={"a": ("past", 4), "b": ("seq", 4)}, dims={"past": (1, 9), "seq": (1, 5)},
                    threads=1)
    for past, seq in ((1, 1), (3, 2), (9, 5), (1, 4)):
        equal(f(rows(past, 4), rows(seq, 4) + 1), joined(rows(past, 4), rows(seq, 4) + 1))
    g = symplex.jit(lambda a, c: (a * 2, c + 1), shapes={"a": ("past", 4), "c": ("past + seq",)},
                    dims={"past": (1, 9), "seq": (1, 5)}, threads=1)
    for past, seq in ((2, 1), (9, 5), (3, 3)):
        equal(g(rows(past, 4), rows(past + seq)), (rows(past, 4) * 2, rows(past + seq) + 1))
    assert len(f.modules) == 1 and len(g.modules) == 1
    fails(symplex.ShapeError, "argument 'c': the dimension seq is 6, allowed are 1 to 5", g, rows(2, 4), rows(8))
    h = symplex.jit(lambda a, b, c: (np.concatenate([a, b]) + c[:, None]), dims={"past": (1, 9), "seq": (1, 5)},
                    shapes={"a": ("past", 4), "b": ("seq", 4), "c": ("past + seq",)}, threads=1)
    equal(h(rows(2, 4), rows(3, 4), rows(5)), np.concatenate([rows(2, 4), rows(3, 4)]) + rows(5)[:, None])
    fails(symplex.ShapeError, "argument 'c': dimension 0 is 6, needed is past + seq = 5, where past = 2 (argument 'a'"
          "), seq = 3 (argument 'b')", h, rows(2, 4), rows(3, 4), rows(6))


def test_products_of_dimensions():
    """Rows of a batch as one dimension, of results and of arguments: one program for all values of both."""
    def flat(x, w):
        y = x.reshape(-1, 4) @ w
        return y, (y * 2).reshape(-1), (y + 1).reshape(x.shape[0], x.shape[1], 3).max(2)
    f = symplex.jit(flat, shapes={"x": ("batch", "seq", 4)}, dims={"batch": (1, 9), "seq": (1, 50)}, threads=1)
    w = rows(4, 3)
    for n, m in ((1, 1), (9, 50), (1, 50), (9, 1), (2, 7), (5, 3)):
        equal(f(rows(n, m, 4), w), flat(rows(n, m, 4), w))
    assert len(f.modules) == 1

    def unfold(y, x):
        return y.reshape(x.shape[0], -1, 4).sum(2) + x.sum() * 0, y * 2
    g = symplex.jit(unfold, shapes={"y": ("batch*seq", 4), "x": ("batch",)}, dims={"batch": (1, 9), "seq": (1, 50)},
                    threads=1)
    for n, m in ((1, 1), (9, 50), (2, 7), (5, 3)):
        equal(g(rows(n * m, 4), rows(n)), unfold(rows(n * m, 4), rows(n)))
    assert len(g.modules) == 1
    fails(symplex.ShapeError, "argument 'y': dimension 0 is batch*seq, and no argument tells seq alone", g, rows(7, 4),
          rows(2))
    fails(symplex.ShapeError, "argument 'y': the dimension seq is 51, allowed are 1 to 50", g, rows(102, 4), rows(2))


def test_borders_around_dimensions():
    """Padded along a symbolic dimension, and along others: one program for all values; also of an ONNX model."""
    def padded(x):
        return np.pad(x, ((1, 2), (0, 0))), np.pad(x, ((0, 3), (2, 0)), constant_values=7), np.pad(x, 0) + 1
    f = symplex.jit(padded, shapes={"x": ("n", 4)}, dims={"n": (1, 9)}, threads=1)
    node = onnx.helper.make_node("Pad", ["x", "pads"], ["y"])
    kinds = [onnx.helper.make_tensor_value_info(*kind) for kind in (("x", 1, ["n", 4]), ("y", 1, ["m", 5]))]
    graph = onnx.helper.make_graph([node], "pad", kinds[:1], kinds[1:],
                                   [onnx.helper.make_tensor("pads", 7, [4], [1, 0, 2, 1])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    g = symplex.compile_onnx(model.SerializeToString(), dims={"n": (1, 9)}, threads=1)
    for n in (1, 2, 9):
        equal(f(rows(n, 4)), padded(rows(n, 4)))
        equal(g(rows(n, 4)), np.pad(rows(n, 4), ((1, 2), (0, 1))))
    assert len(f.modules) == 1


def resize_model(op, opset, names, weights, extents, **attributes):
    """Of a batch that is symbolic, and other extents that may be."""
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    kinds = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in
             (("x", ["n", *extents]), ("y", None))]
    graph = onnx.helper.make_graph([node], "resize", kinds[:1], kinds[1:],
                                   [onnx.numpy_helper.from_array(array, key) for key, array in weights.items()])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=7)


def near(got, want):
    """Values up to 8; two axes of three roundings each, and two of each weight."""
    assert got.shape == want.shape and np.abs(got - want).max() <= 8 * 10 * 2.0**-24, (got, want)


def test_resize():
    """By scales and by sizes, against the reference of ONNX; opset 10 and Upsample against onnxruntime."""
    x = np.random.default_rng(5).uniform(-8, 8, (2, 3, 6, 5)).astype(np.float32)
    places = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
    kinds = [("linear", place, "floor") for place in places]
    kinds += [("nearest", place, rounding) for place in places
              for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")]
    targets = (({"scales": [1, 1, 2, 3]}, {}), ({"scales": [1.625, 0.5]}, {"axes": [3, 2]}),
               ({"sizes": [3, 8]}, {"axes": [2, 3]}), ({"sizes": [12, 1]}, {"axes": [2, 3]}))
    for mode, place, rounding in kinds:
        for target, axes in targets:
            (key, numbers), = target.items()
            weights = {key: np.array(numbers, np.float32 if key == "scales" else np.int64)}
            names = ["x", "", "scales"] if key == "scales" else ["x", "", "", "sizes"]
            model = resize_model("Resize", 19 if axes else 13, names, weights, [3, 6, 5], mode=mode,
                                 coordinate_transformation_mode=place, nearest_mode=rounding, **axes)
            want, = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
            got = symplex.compile_onnx(model.SerializeToString(), dims={"n": (1, 9)}, threads=1)(x)
            (near if mode == "linear" else equal)(got, want)


def test_resize_of_old():
    x = np.random.default_rng(6).uniform(-8, 8, (2, 3, 6, 5)).astype(np.float32)
    for op, opset, scales in (("Resize", 10, [1, 1, 0.75, 0.5]), ("Resize", 10, [1, 1, 2.5, 0.625]),
                              ("Upsample", 9, [1, 1, 2, 2.5]), ("Upsample", 7, [1, 1, 3, 2])):
        for mode in ("nearest", "linear"):
            given = {"scales": np.array(scales, np.float32)} if opset > 7 else {}
            attributes = {} if opset > 7 else {"scales": [float(scale) for scale in scales]}
            model = resize_model(op, opset, ["x", *given], given, [3, 6, 5], mode=mode, **attributes)
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            got = symplex.compile_onnx(model.SerializeToString(), dims={"n": (1, 9)}, threads=1)(x)
            (near if mode == "linear" else equal)(got, session.run(None, {"x": x})[0])


def test_resize_by_inexact_scales():
    """A third of nine is three, each the third; 0.7 of ten is seven, and what is between two elements is the lower."""
    x = np.random.default_rng(8).uniform(-8, 8, (1, 1, 9, 10)).astype(np.float32)
    for place, rounding, scales, want in (
            ("asymmetric", "floor", [1, 1, 1 / 3, 1], x[:, :, ::3]),
            ("half_pixel", "round_prefer_floor", [1, 1, 1, 0.7], x[..., [0, 2, 3, 4, 6, 7, 9]])):
        model = resize_model("Resize", 13, ["x", "", "scales"], {"scales": np.array(scales, np.float32)}, [1, 9, 10],
                             coordinate_transformation_mode=place, nearest_mode=rounding)
        equal(symplex.compile_onnx(model.SerializeToString(), dims={"n": (1, 9)}, threads=1)(x), want)


def test_resize_by_whole_scales():
    """Elements are repeated along symbolic dimensions: one program for all extents. Other scales are refused there."""
    scales = {"scales": np.array([1, 1, 2, 3], np.float32)}
    model = resize_model("Resize", 13, ["x", "", "scales"], scales, [3, "h", "w"], nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric")
    f = symplex.compile_onnx(model.SerializeToString(), dims={"n": (1, 4), "h": (1, 9), "w": (1, 9)}, threads=1)
    for shape in ((1, 3, 1, 1), (2, 3, 4, 9)):
        x = np.random.default_rng(7).uniform(-8, 8, shape).astype(np.float32)
        equal(f(x), x.repeat(2, 2).repeat(3, 3))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("mode", "linear"))
    fails(symplex.Unimplemented, "axis 2 becomes 2*h, a constant extent", symplex.compile_onnx,
          model.SerializeToString(), dims={"n": (1, 4), "h": (1, 9), "w": (1, 9)}, threads=1)


def test_typed_axes():
    batch, seq, width = symplex.axis("batch"), symplex.axis("seq"), symplex.axis("width")
    shapes = {"x": (batch, width), "y": (seq, width)}
    f = symplex.jit(lambda x, y: (x @ y.T, (x * 2).sum(0) + y[0]), shapes=shapes, threads=1)
    x = rows(3, 4)
    equal(f(x, x), (x @ x.T, (x * 2).sum(0) + x[0]))
    for n in (1, 2):
        equal(f(rows(n, 4), x), (rows(n, 4) @ x.T, (rows(n, 4) * 2).sum(0) + x[0]))
    mixed = (("numpy.add: axis batch (3) meets axis seq (3)", lambda x, y: x + y),
             ("numpy.matmul: axis width (3) meets axis seq (3)", lambda x, y: x @ y),
             ("axis batch (3) meets axis seq (3)", lambda x, y: np.where(x > 0, x, y)),
             ("axis batch (3) meets axis seq (3)", lambda x, y: np.concatenate([x, y], 1)),
             ("axis width (3) meets axis batch (3)", lambda x, y: x.T + x),
             ("axis batch (3) meets axis seq (3)", lambda x, y: np.einsum("ij,ik->jk", x, y)),
             ("axis batch (3) meets axis seq (3)", lambda x, y: symplex.vmap(lambda a, b: a + b)(x, y)),
             ("axis batch (3) meets axis seq (3)", lambda x, y: x.sum(1) * y.max(1)))
    square = rows(3, 3)
    for part, function in mixed:
        error = fails(symplex.TraceError, part, symplex.jit(function, shapes=shapes), square, square)
        assert f"({__file__}:" in str(error), error
        function(square, square)  # NumPy does not mind
    fails(symplex.ShapeError, "argument 'y': the dimension width is 5, in 'x' it is 4", f, x, rows(3, 5))
    wide = symplex.jit(lambda x: x + 1, shapes={"x": (symplex.axis("rows", 1, 20), 4)}, threads=1)
    for n in (1, 20):
        equal(wide(rows(n, 4)), rows(n, 4) + 1)
    assert len(wide.modules) == 1
    fails(ValueError, "axis: a name of letters", symplex.axis, "a b")
    fails(ValueError, "1 <= low <= high", symplex.axis, "a", 3, 2)
    assert repr(batch) == "axis('batch')" and repr(symplex.axis("n", 1, 4)) == "axis('n', 1, 4)"


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
