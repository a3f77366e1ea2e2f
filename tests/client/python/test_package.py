#!/usr/bin/env python3
"""The package symplex for Python: values against NumPy, every way in for arrays, who owns what, errors by class and
text, threads, signals, fork. What is compared was computed by NumPy alone; sums are of small whole numbers, so equal
means equal."""
import array
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
sys.path.insert(0, str(BUILD / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"  # no daemon: each compile is a process of its own
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import symplex  # noqa: E402
from small import fails, numbers, parameter, program  # noqa: E402

MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
          "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "i64": np.int64, "i32": np.int32,
          "i8": np.int8, "u8": np.uint8, "bool": np.bool_, "i16": np.int16}


DOT = program(parameter("a", "f32[3, 4]"), parameter("b", "f32[4, 2]"),
              "%p = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : f32[3, 2]",
              "%q = add(%a, %a) : f32[3, 4]", 'return %p as "p", %q as "q"')
DOUBLE = program(parameter("x", "f32[3, 4]"), "%y = add(%x, %x) : f32[3, 4]", 'return %y as "y"')
STATE = (ROOT / "tests" / "golden" / "ir" / "state.sx").read_text()
opened = {}


def module(text, **options):
    """Compiled once for all tests that do not change it."""
    key = text, repr(sorted(options.items()))
    if key not in opened:
        opened[key] = symplex.compile(text, threads=1, **options)
    return opened[key]


# ---- values ----
def test_results_are_new_arrays():
    a, b = numbers(3, 4), numbers(4, 2)
    p, q = module(DOT)(a, b)
    assert type(p) is np.ndarray and p.dtype == np.float32 and p.flags.owndata and p.flags.writeable
    assert np.array_equal(p, a @ b) and np.array_equal(q, a + a)
    p_again, _ = module(DOT)(b=b, a=a)
    assert np.array_equal(p_again, p) and p_again is not p
    assert np.array_equal(module(DOT)(a, b=b)[0], p)


def test_every_element_type():
    for name, dtype in DTYPES.items():
        text = program(parameter("x", f"{name}[5]"), f"%y = concatenate(%x, %x) {{axis = 0}} : {name}[10]",
                       'return %y as "y"')
        x = np.array([0, 1, 0, 1, 1]).astype(dtype)
        y = module(text)(x)
        assert y.dtype == np.dtype(dtype) and y.shape == (10,), (name, y.dtype)
        assert y.tobytes() == np.concatenate([x, x]).tobytes(), name
        out = np.zeros(10, dtype)
        assert module(text)(x, out=out) is out and out.tobytes() == y.tobytes(), name
        assert module(text).inputs == (symplex.Tensor("x", np.dtype(dtype).name, (5,)),), name
        other = "f32" if name != "f32" else "f64"
        error = fails(symplex.DTypeError, f"needed are {np.dtype(dtype).name}", module(text), x.astype(DTYPES[other]))
        assert isinstance(error, TypeError) and isinstance(error, ValueError) and "argument 'x'" in str(error)


def test_out_in_each_form():
    a, b = numbers(3, 4), numbers(4, 2)
    p, q = np.empty((3, 2), np.float32), np.empty((3, 4), np.float32)
    for out in ((p, q), [p, q], {"q": q, "p": p}):
        p[:], q[:] = 99, 99
        given = module(DOT)(a, b, out=out)
        assert given[0] is p and given[1] is q and np.array_equal(p, a @ b) and np.array_equal(q, a + a)
    for out in (p, (p,), {"p": p}, {}, 7):
        fails(TypeError, "out: an array for output", module(DOT), a, b, out=out)
    fails(symplex.LayoutError, "out 'q': its memory overlaps", module(DOT), a, b, out=(p, a))
    fails(symplex.LayoutError, "out 'y': its memory overlaps", module(DOUBLE), a, out=a)
    both = np.empty(18, np.float32)
    fails(symplex.LayoutError, "overlaps", module(DOT), a, b, out=(both[:6].reshape(3, 2), both[5:17].reshape(3, 4)))
    fails(symplex.LayoutError, "out 'y': its elements do not lie", module(DOUBLE), a, out=np.empty((4, 3), "f4").T)
    fails(symplex.ShapeError, "out 'y': its shape is (4, 3), needed is (3, 4)", module(DOUBLE), a,
          out=np.empty((4, 3), "f4"))
    fixed = np.empty((3, 4), np.float32)
    fixed.flags.writeable = False
    fails(symplex.LayoutError, "out 'y': it is read-only", module(DOUBLE), a, out=fixed)


def test_dimensions_are_learned_from_arguments():
    interval = symplex.compile(MLP, dims={"batch": (1, 64)}, threads=1)
    several = symplex.compile(pathlib.Path(MLP), dims={"batch": [1, 4]}, threads=1)
    assert interval.dims == {"batch": [(1, 64, 1)]} and interval.inputs[0].shape == ("batch", 784)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((64, 784), np.float32)
    whole = interval(x)
    for rows in (1, 4, 33):
        assert np.array_equal(interval(x[:rows]), whole[:rows]), "a row does not depend on the batch"
    four = several(x[:4], dims={"batch": 4})
    assert four.shape == (4, 10) and np.array_equal(several(x[:1]), four[:1])
    fails(symplex.ShapeError, "argument 'x': extent batch has 3; the module serves 1, 4", several, x[:3])
    fails(symplex.ShapeError, "argument 'x': extent batch has 65", interval, np.empty((65, 784), np.float32))
    fails(symplex.ShapeError, "argument 'x': extent batch has 65", interval.profile, np.empty((65, 784), np.float32))
    fails(symplex.ShapeError, "needed is ('batch', 784), where batch = 2", interval, x[:3], dims={"batch": 2})
    fails(symplex.ShapeError, "its shape is (0, 784)", interval, x[:0])
    fails(TypeError, "dims: the module has no dimension 'rows'", interval, x, dims={"rows": 2})
    fails(TypeError, "dims: a dict", interval, x, dims=3)
    fails(TypeError, "", interval, x, dims={"batch": "four"})
    fails(symplex.ShapeError, "at least 1", interval, x, dims={"batch": 0})


def test_calls_that_are_wrong():
    for wrong, words in (({"batch": "four"}, "dims: batch = 'four'; a whole number is needed"),
                         ({"batch": 2.0}, "dims: batch = 2.0; a whole"),
                         ({"batch": [1, None]}, "dims: batch = [1, None]"),
                         ({"batch": (1, 2.5)}, "dims: batch = (1, 2.5)"), (["batch"], "dims: a dict"), (3, "not int")):
        fails(TypeError, words, symplex.compile, MLP, dims=wrong)
    for function in symplex.compile, symplex.compile_onnx, symplex.compile_bytes, symplex.optimize:
        error = fails(TypeError, "unknown option 'dim', known are", function, MLP, dim={"batch": 4})
        assert "_run" not in str(error) and ("threads" in str(error)) == (function.__name__[7:] in ("", "_onnx")), error
    fails(TypeError, "compile_file: unknown option 'dim'", symplex.compile_file, MLP, "m.sxm", dim={"batch": 4})
    for function in symplex.compile, symplex.compile_onnx, symplex.compile_bytes, symplex.load:
        error = fails(symplex.MissingFile, "No such file or directory: 'none.onnx'", function, "none.onnx")
        assert isinstance(error, FileNotFoundError) and isinstance(error, symplex.InputError)
        assert error.filename == "none.onnx" and error.hint == "", error
    for rank, world, words in (("0", 1, "rank is '0'"), (0, 1.5, "world is 1.5"), (0, None, "world is None")):
        fails(TypeError, "session: " + words, symplex.session, job="j", rank=rank, world=world)
    fails(ValueError, "session: world is 0, needed is 1 or more", symplex.session, job="j", rank=0, world=0)
    for words, status in (("--help", 0), ("doctor --help", 0), ("", 2), ("doctors", 2)):
        done = subprocess.run([sys.executable, "-m", "symplex", *words.split()], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(BUILD / "python")), check=False)
        assert done.returncode == status and "usage: " in (done.stderr if status else done.stdout), done


def test_extents_that_are_products():
    """`rows` and one of the dimensions tell the other."""
    text = 'sx 1\ngraph "flat" (batch in [1, 9], seq in [1, 50]) {\n' + "\n".join((
        parameter("rows", "f32[batch*seq + seq, 3]"), parameter("first", "f32[batch, 3]"),
        "%y = negate(%rows) : f32[batch*seq + seq, 3]", "%z = negate(%first) : f32[batch, 3]",
        'return %y as "y", %z as "z"', "}\n"))
    dims = {"batch": (1, 9), "seq": (1, 50)}
    flat = symplex.compile(text, dims=dims, threads=1)
    assert flat.inputs[0].shape == ("batch * seq + seq", 3), flat.inputs
    for batch, seq in ((1, 1), (9, 50), (4, 7), (9, 1), (1, 50)):
        rows, first = numbers(batch * seq + seq, 3), numbers(batch, 3)
        out = np.empty(rows.shape, "f4"), np.empty(first.shape, "f4")
        for y, z in flat(rows, first), flat(rows, first, out=out), flat(rows, first, dims={"seq": seq}):
            assert np.array_equal(y, -rows) and np.array_equal(z, -first), (batch, seq)
    fails(symplex.ShapeError, "argument 'rows': its shape is (9, 3), needed is ('batch * seq + seq', 3), where "
          "batch = 3 (argument 'first')", flat, numbers(9, 3), numbers(3, 3))
    fails(symplex.ShapeError, "argument 'rows': its shape is (8, 3), needed is ('batch * seq + seq', 3), where "
          "batch = 3 (argument 'first'), seq = 3", flat, numbers(8, 3), numbers(3, 3), dims={"seq": 3})
    fails(symplex.InputError, "extent seq has 51; the module serves 1 to 50", flat, numbers(102, 3), numbers(1, 3))
    fails(symplex.ShapeError, "out 'y': its shape is (9, 3), needed is ('batch * seq + seq', 3)", flat, numbers(8, 3),
          numbers(3, 3), out=(np.empty((9, 3), "f4"), np.empty((3, 3), "f4")))
    alone = symplex.compile(text.replace("%z = negate(%first) : f32[batch, 3]\n", "").replace(', %z as "z"', "")
                            .replace(parameter("first", "f32[batch, 3]") + "\n", ""), dims=dims, threads=1)
    fails(symplex.ShapeError, "no argument tells the dimension batch", alone, numbers(12, 3))
    for given in {"batch": 3}, {"seq": 3}, {"batch": 2}:
        assert np.array_equal(alone(numbers(12, 3), dims=given), -numbers(12, 3)), given


def test_extents_that_are_sums():
    """What comes is put behind a cache; `both` tells one of the symbols where the cache is no argument."""
    names, dims = 'sx 1\ngraph "grow" (past in [1, 9], seq in [1, 5]) {\n', {"past": (1, 9), "seq": (1, 5)}
    grow = symplex.compile(names + "\n".join((
        parameter("old", "f32[past, 3]"), parameter("new", "f32[seq, 3]"),
        "%all = concatenate(%old, %new) {axis = 0} : f32[past + seq, 3]",
        "%window = crop(%all) {origin = [1, 0]} : f32[past + seq - 1, 3]",
        "%line = reshape(%all) : f32[3*past + 3*seq]", "%flat = negate(%line) : f32[3*past + 3*seq]",
        'return %all as "all", %window as "window", %flat as "flat"', "}\n")), dims=dims, threads=1)
    assert [t.shape for t in grow.outputs] == [("past + seq", 3), ("past + seq - 1", 3), ("3 * past + 3 * seq",)]
    for past, seq in ((1, 1), (4, 2), (9, 5), (2, 3)):
        old, new = numbers(past, 3), numbers(seq, 3) + 10
        every = np.concatenate([old, new])
        for got in grow(old, new), grow(old, new, out=tuple(
                np.empty(x.shape, np.float32) for x in (every, every[1:], every.reshape(-1)))):
            for one, want in zip(got, (every, every[1:], -every.reshape(-1))):
                assert one.shape == want.shape and np.array_equal(one, want)
    fails(symplex.ShapeError, "out 'window': its shape is (5, 3), needed is ('past + seq - 1', 3), where past = 2 "
          "(argument 'old'), seq = 3 (argument 'new')", grow, old, new,
          out=(np.empty((5, 3), "f4"), np.empty((5, 3), "f4"), np.empty(15, "f4")))
    rest = symplex.compile(names + "\n".join((
        parameter("both", "f32[past + seq, 3]"), parameter("old", "f32[past, 3]"), parameter("new", "f32[seq, 3]"),
        "%part = crop(%both) {origin = [past, 0]} : f32[seq, 3]", "%y = add(%part, %new) : f32[seq, 3]",
        "%z = negate(%old) : f32[past, 3]", 'return %y as "y", %z as "z"', "}\n")), dims=dims, threads=1)
    both = numbers(7, 3)
    y, z = rest(both, both[:4], both[:3])
    assert np.array_equal(y, both[4:] + both[:3]) and np.array_equal(z, -both[:4])
    fails(symplex.ShapeError, "argument 'both': its shape is (7, 3), needed is ('past + seq', 3), where past = 4 "
          "(argument 'old'), seq = 2 (argument 'new')", rest, both, both[:4], both[:2])
    fails(symplex.InputError, "extent past has 10; the module serves 1 to 9", rest, numbers(11, 3), numbers(10, 3),
          both[:1])
    tail = symplex.compile(names + "\n".join((
        parameter("both", "f32[past + seq, 3]"), parameter("all", "f32[2*past + seq - 1, 3]"),
        "%part = crop(%both) {origin = [past, 0]} : f32[seq, 3]",
        "%rest = crop(%all) {origin = [past, 0]} : f32[past + seq - 1, 3]",
        'return %part as "y", %rest as "z"', "}\n")), dims=dims, threads=1)
    fails(symplex.ShapeError, "no argument tells the dimension past: dims={\"past\": ...} does", tail, both, both)
    for given in {"past": 5}, {"seq": 2}, {"past": 5, "seq": 2}:
        y, z = tail(both, numbers(11, 3), dims=given)
        assert np.array_equal(y, both[5:]) and np.array_equal(z, numbers(11, 3)[5:]), given
    fails(symplex.ShapeError, "argument 'all': its shape is (9, 3), needed is ('2 * past + seq - 1', 3), where "
          "past = 5, seq = 2 (argument 'both')", tail, both, numbers(9, 3), dims={"past": 5})
    fails(symplex.ShapeError, "argument 'both': its shape is (7, 3), needed is ('past + seq', 3), where past = 8", tail,
          both, both, dims={"past": 8})


def test_state_and_donated_arguments():
    step = symplex.compile(STATE, threads=1)
    x, d = numbers(4, 8), numbers(4, 8) + 5
    before = d.copy()
    y, bias = step(x, d)
    assert y is d and np.array_equal(d, (0.5 + x) * before), "the result lies in place of the argument"
    assert np.array_equal(bias, [1, -2, 0, 0.25])
    w, count = np.empty((4, 8), np.float32), np.zeros((), np.int64)
    assert np.array_equal(step.read_state("w", w), 0.5 + x) and step.read_state("count", count) == 1
    step.write_state("count", np.array(41))
    step(x, d)
    assert step.read_state("count", count) == 42
    step.reset_state()
    assert step.read_state("count", count) == 0 and np.all(step.read_state("w", w) == 0.5)
    d.flags.writeable = False
    fails(symplex.LayoutError, "argument 'd': it is read-only and would be written", step, x, d)
    fails(KeyError, "no state 'v'", step.read_state, "v", w)
    fails(symplex.ShapeError, "state 'w'", step.read_state, "w", np.empty((8, 4), np.float32))
    fails(symplex.LayoutError, "state 'w': it is read-only", step.read_state, "w", np.broadcast_to(w, (4, 8)))
    assert [s.name for s in step.states] == ["w", "count", "bias"]


def test_weights_are_bound_and_kept():
    import onnx
    from onnx import numpy_helper
    x = numbers(2, 784)
    with_weights = symplex.compile_onnx(onnx.load(MLP), dims={"batch": 2}, threads=1)
    without = symplex.compile_onnx(MLP, dims={"batch": 2}, weights=False, threads=1)
    values = {t.name: numpy_helper.to_array(t) for t in onnx.load(MLP).graph.initializer}
    names = [w.name for w in without.weights]
    assert names and set(names) <= set(values), names
    fails(symplex.InputError, "is not bound", without, x)
    for weight in without.weights:
        value = np.ascontiguousarray(values[weight.name], np.dtype(weight.dtype))
        count = sys.getrefcount(value)
        without.bind_weight(weight.name, value)
        assert sys.getrefcount(value) == count + 1, "the module keeps it"
        last = value, count
    assert np.array_equal(without(x), with_weights(x))
    without.bind_weight(names[-1], last[0].copy())
    assert sys.getrefcount(last[0]) == last[1] + 1, "only this test's tuple keeps it now"
    fails(symplex.ShapeError, f"weight '{names[0]}'", without.bind_weight, names[0], numbers(3))
    fails(KeyError, "no weight 'z'", without.bind_weight, "z", x)
    fails(TypeError, "a tuple of the", without._holds, (x,), True)


def test_a_model_may_change_after_it_was_compiled():
    """Its weights are in the module, or are read again from the file as long as that is as it was."""
    x, other = numbers(64, 784), numbers(512, 784)[::-1].copy()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "mlp.onnx")
        path.write_bytes(pathlib.Path(MLP).read_bytes())
        whole = symplex.compile_onnx(path.read_bytes(), dims={"batch": 64}, threads=1)  # of bytes all is copied
        kept, changed = (symplex.compile_onnx(path, dims={"batch": 64}, threads=1) for _ in range(2))
        want, name = whole(x), next(t.name for t in whole.weights if t.shape == other.shape)
        path.rename(path.with_suffix(".old"))
        kept.bind_weight(name, other)
        whole.bind_weight(name, other)
        assert np.array_equal(kept(x), whole(x)) and not np.array_equal(kept(x), want)
        path.with_suffix(".old").write_bytes(b"")
        assert np.array_equal(changed(x), want) and np.array_equal(kept.share()(x), want)
        changed.bind_weight(name, other)
        fails(symplex.InputError, "was changed since it was read", changed, x)


def test_handles_have_weights_of_their_own():
    text = """sx 1
graph "layer" {
    %0 = parameter {name = "x", weight = 0} : f32[5, 48]
    %1 = parameter {name = "w", weight = 1} : f32[48, 72]
    %2 = parameter {name = "b", weight = 1} : f32[5, 72]
    %3 = dot_general(%0, %1) {lhs_contract = [1], rhs_contract = [0]} : f32[5, 72]
    %4 = add(%3, %2) : f32[5, 72]
    return %4 as "y"
}
"""
    whole = np.random.default_rng(7).integers

    def numbers_of(*shape):
        return whole(-4, 5, shape).astype(np.float32)

    first = symplex.compile(text, threads=2)
    modules = [first, first.share(), first.share().share()]
    sets = [{"w": numbers_of(48, 72), "b": numbers_of(5, 72)} for _ in modules]
    x = numbers_of(5, 48)
    assert modules[1].compiled == first.compiled and modules[1].weights == first.weights
    fails(symplex.InputError, "is not bound", modules[2], x)
    for module, weights in zip(modules, sets):
        module.bind_weights(weights)
    for _ in range(2):
        for module, weights in zip(modules, sets):
            assert np.array_equal(module(x), x @ weights["w"] + weights["b"])
    sets[0]["w"] += 1
    assert not np.array_equal(first(x), x @ sets[0]["w"] + sets[0]["b"]), "work on it is done when it is bound"
    first.bind_weights(sets[0])
    assert np.array_equal(first(x), x @ sets[0]["w"] + sets[0]["b"])
    before = first(x)
    fails(KeyError, "weights: missing are those of w; it has w, b", first.bind_weights, {"b": sets[1]["b"]})
    fails(KeyError, "weights: the module has none of the name v; it has w, b", first.bind_weights,
          dict(sets[1], v=sets[1]["b"]))
    fails(symplex.ShapeError, "weight 'b'", first.bind_weights, {"w": sets[1]["w"], "b": numbers_of(4)})
    assert np.array_equal(first(x), before), "none is bound where one is refused"
    del first, modules[0]
    gc.collect()
    assert np.array_equal(modules[0](x), x @ sets[1]["w"] + sets[1]["b"])


# ---- ways in ----
class Proxy:
    """Shows one attribute of an array and nothing else of it."""

    def __init__(self, of, name):
        self.of = of
        setattr(self, "shown", name)

    def __getattr__(self, name):
        if name in ("of", "shown") or name != self.shown:
            raise AttributeError(name)
        return getattr(self.of, name)


class Old(Proxy):
    """DLPack before 1.0: no max_version."""

    def __init__(self, of):
        super().__init__(of, "__dlpack__")

    def __dlpack__(self, stream=None):
        return self.of.__dlpack__()


def test_every_protocol():
    import jax.numpy as jnp
    x = numbers(3, 4)
    want = x + x
    fixed = x.copy()
    fixed.flags.writeable = False
    for given in (x, fixed, memoryview(x), array.array("f", x.ravel()).tobytes(), Proxy(x, "__dlpack__"),
                  Proxy(fixed, "__dlpack__"), Proxy(x, "__array_interface__"), Old(x), jnp.asarray(x),
                  Proxy(jnp.asarray(x), "__dlpack__"), np.matrix(x), x.view(type("Sub", (np.ndarray,), {}))):
        if isinstance(given, bytes):  # bytes are u8 of one dimension
            fails(symplex.DTypeError, "its elements are uint8", module(DOUBLE), given)
        else:
            assert np.array_equal(module(DOUBLE)(given), want), type(given)
    out = np.zeros((3, 4), np.float32)
    assert module(DOUBLE)(x, out=memoryview(out)) is not None and np.array_equal(out, want)
    brain = x.astype(ml_dtypes.bfloat16)
    text = DOUBLE.replace("f32", "bf16")
    for given in (brain, jnp.asarray(brain), Proxy(jnp.asarray(brain), "__dlpack__")):
        assert np.array_equal(module(text)(given), brain + brain), type(given)
    fails(symplex.LayoutError, "out 'y': it is read-only", module(DOUBLE), x, out=jnp.asarray(x))
    fails(symplex.DTypeError, "argument 'x': its elements are float64", module(DOUBLE),
          Proxy(x.astype(np.float64), "__dlpack__"))
    fails(symplex.LayoutError, "row-major order", module(DOUBLE), Proxy(numbers(4, 3).T, "__dlpack__"))


def test_what_is_no_array():
    class Raises:
        @property
        def __dlpack__(self):
            raise RuntimeError("not today")

    class Nonsense:
        def __dlpack__(self, **keywords):
            return "a capsule"

    class Liar:
        __array_interface__ = {"version": 3, "shape": (3, 4), "typestr": "<f4", "data": "nowhere"}

    x = numbers(3, 4)
    for given, word in ((None, "NoneType"), (3.5, "float"), ([[1.0]], "list"), ("x", "str"), (object(), "object")):
        fails(symplex.DTypeError, f"argument 'x': a {word} is no array", module(DOUBLE), given)
    fails(RuntimeError, "not today", module(DOUBLE), Raises())
    for given in (Nonsense(), Liar(), np.array(["a"] * 12).reshape(3, 4), x.astype("M8[s]"), x.astype(object),
                  x.astype(np.complex64), np.zeros((3, 4), [("a", "f4")]), x.astype(">f4"), np.ma.array(x, dtype="f8")):
        error = fails(symplex.DTypeError, "argument 'x'", module(DOUBLE), given)
        assert "Python objects" in str(error) or getattr(given, "dtype", None) != object
    for given in (numbers(4, 3).T, numbers(3, 8)[:, ::2], numbers(3, 4)[::-1], np.broadcast_to(np.float32(1), (3, 4))):
        fails(symplex.LayoutError, "argument 'x': its elements do not lie in row-major order", module(DOUBLE), given)
    for given in (numbers(12), numbers(3, 4, 1), numbers(4, 3), numbers(3, 5), np.float32(1), numbers(1, 4)):
        fails(symplex.ShapeError, "needed is (3, 4)", module(DOUBLE), given)
    fails(symplex.ShapeError, "at most 8", module(DOUBLE), x.reshape((3, 4) + (1,) * 8))


def test_wrong_calls():
    x = numbers(3, 4)
    fails(TypeError, "argument 'x' is missing", module(DOUBLE))
    fails(TypeError, "2 arguments given, the module has 1 inputs", module(DOUBLE), x, x)
    fails(TypeError, "argument 'x' is given twice", module(DOUBLE), x, x=x)
    fails(TypeError, "the module has no input 'z'", module(DOUBLE), x, z=x)


def test_random_arrays():
    """Whatever comes is run or refused, as an oracle that knows NumPy alone says."""
    seed = int(os.environ.get("SX_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"seed: SX_SEED={seed}")
    rng = np.random.default_rng(seed)
    kinds = ("f4", "f8", "f2", ">f4", "i4", "i8", "u1", "?", "O", "c8", "S3", "M8[s]", "V4")
    right = 0
    for _ in range(3000):
        shape = tuple(rng.choice((0, 1, 3, 4, 5), rng.integers(0, 4))) if rng.random() < 0.4 else (3, 4)
        kind = "f4" if rng.random() < 0.6 else rng.choice(kinds)
        x = np.zeros(tuple(2 * n for n in shape), kind)
        if kind == "f4":
            x[...] = rng.integers(-9, 9, x.shape)
        cut = rng.random(), rng.random()
        x = x[tuple(slice(0, n) if cut[0] < 0.7 else slice(None, None, 2) for n in shape) + (...,)]
        x = x.copy() if cut[1] < 0.6 else x.T if cut[1] < 0.7 else x
        x.flags.writeable = bool(rng.random() < 0.5)
        good = x.dtype == np.dtype("f4") and x.dtype.isnative and x.shape == (3, 4) and x.flags.c_contiguous
        try:
            y = module(DOUBLE)(x)
            assert good and np.array_equal(y, x + x), (x.dtype, x.shape, x.strides)
            right += 1
        except symplex.InputError as error:
            assert not good and "argument 'x'" in str(error), (x.dtype, x.shape, x.strides, error)
    assert 300 < right < 2700, right


# ---- who owns what ----
def test_nothing_is_kept():
    a, b = numbers(3, 4), numbers(4, 2)
    out = np.empty((3, 2), np.float32), np.empty((3, 4), np.float32)
    before = [sys.getrefcount(o) for o in (a, b, *out)]
    for _ in range(100):
        module(DOT)(a, Proxy(b, "__dlpack__"), out=out)
        fails(symplex.ShapeError, "", module(DOT), a, a)
        fails(symplex.LayoutError, "", module(DOT), a, b, out=(out[0], a))
        fails(TypeError, "", module(DOT), a, b, out=(out[0],))
    gc.collect()
    assert [sys.getrefcount(o) for o in (a, b, *out)] == before
    result = module(DOUBLE)(a)
    assert sys.getrefcount(result) == 2
    a.resize((1, 1), refcheck=False)  # raises while a buffer of it is held


def test_results_outlive_the_module():
    mine = symplex.compile(DOUBLE, threads=2)
    y = mine(numbers(3, 4))
    del mine
    gc.collect()
    assert np.array_equal(y, 2 * numbers(3, 4))


def test_many_modules_are_released():
    made = symplex.compile_bytes(DOUBLE)[0]

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(50):
        symplex.load(made, threads=1)(numbers(3, 4))
    before = resident()
    for _ in range(500):
        symplex.load(made, threads=1)(numbers(3, 4))
    assert resident() - before < 500 * 4096, "less than a page is left of each"


# ---- threads, signals, fork ----
def test_the_lock_of_the_interpreter_is_released():
    """Another thread goes on during a run. It is never made to give up the lock, and gives it up itself."""
    n = 512
    text = program(parameter("a", f"f32[{n}, {n}]"),
                   f"%p = dot_general(%a, %a) {{lhs_contract = [1], rhs_contract = [0]}} : f32[{n}, {n}]",
                   'return %p as "p"')
    a = np.ones((n, n), np.float32)
    rounds, done = [0], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)

    def count():
        while not done:
            rounds[0] += 1
            os.sched_yield()  # releases the lock

    other = threading.Thread(target=count)
    other.start()
    try:
        seen = 0
        for _ in range(200):
            before = rounds[0]
            module(text)(a)
            seen += rounds[0] > before
            if seen >= 3:
                break
    finally:
        done.append(1)
        sys.setswitchinterval(interval)
        other.join()
    assert seen >= 3, seen


def test_one_module_in_many_threads():
    whole = symplex.compile(MLP, dims={"batch": (1, 64)}, threads=1)
    x = np.random.default_rng(3).standard_normal((64, 784), np.float32)
    want, wrong = whole(x), []

    def work(rows):
        for _ in range(50):
            if not np.array_equal(whole(x[:rows]), want[:rows]):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 7, 16, 33, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_a_forked_process_runs_modules():
    code = f"""
import os, sys
sys.path.insert(0, {str(BUILD / 'python')!r})
import numpy, symplex
x = numpy.arange(12, dtype="f4").reshape(3, 4)
for threads in 1, 2:
    m = symplex.compile({DOUBLE!r}, threads=threads)
    m(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if numpy.array_equal(m(x), 2 * x) and m(x).dtype == x.dtype else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "both\n", done


def test_interrupt_ends_a_compile():
    """A signal that comes while a compile process says nothing: KeyboardInterrupt, and that process is gone."""
    with tempfile.TemporaryDirectory() as folder:
        stuck = pathlib.Path(folder, "stuck")
        stuck.write_text(f"#!/bin/sh\ntouch {folder}/started\nexec sleep 100\n")
        stuck.chmod(0o755)

        def interrupt():
            while not pathlib.Path(folder, "started").exists():
                os.sched_yield()
            os.kill(os.getpid(), signal.SIGINT)

        other = threading.Thread(target=interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["SYMPLEX_CLIENT"] = str(stuck)
        start = time.monotonic()
        other.start()
        try:
            fails(KeyboardInterrupt, "", symplex.compile, DOUBLE)
        finally:
            del os.environ["SYMPLEX_CLIENT"]
            signal.signal(signal.SIGINT, before)
            other.join()
        assert time.monotonic() - start < 50, "it did not wait for the process"
    fails(ChildProcessError, "", os.waitpid, -1, os.WNOHANG)
    assert np.array_equal(symplex.compile(DOUBLE, threads=1)(numbers(3, 4)), 2 * numbers(3, 4))


def test_callbacks():
    stages, said = [], []
    symplex.compile_bytes(DOUBLE, progress=lambda *what: stages.append(what), message=said.append)
    assert stages and all(isinstance(s[0], str) and s[1] >= 0 and s[2] >= 0 for s in stages), stages
    assert said and "compiling in process" in said[0], said

    def broken(*_):
        raise ZeroDivisionError("mine")

    fails(ZeroDivisionError, "mine", symplex.compile, DOUBLE, progress=broken)
    fails(ZeroDivisionError, "mine", symplex.compile, DOUBLE, message=broken)


# ---- compiling ----
def test_errors_have_classes():
    with tempfile.TemporaryDirectory() as folder:
        half = pathlib.Path(folder, "half.sxm")
        half.write_bytes(symplex.compile_bytes(DOUBLE)[0][:-100])
        error = fails(symplex.CorruptModule, "", symplex.load, half)
        assert error.code == 15 and isinstance(error, symplex.Error) and isinstance(error, ValueError)
    fails(symplex.CorruptModule, "", symplex.load, b"no module")
    fails(symplex.InputError, "/nowhere.sxm", symplex.load, "/nowhere.sxm")
    fails(symplex.InputError, "/nowhere.onnx", symplex.compile, "/nowhere.onnx")
    fails(symplex.InputError, "", symplex.compile, "sx 1\ngraph nonsense\n")
    fails(symplex.InputError, "", symplex.compile, b"\x00\x01\x02")
    fails(symplex.InputError, "target 'z80' is unknown", symplex.compile, DOUBLE, target="z80")
    import onnx
    from onnx import TensorProto, helper
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
    model = helper.make_model(helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"])], "g", inputs, outputs))
    error = fails(symplex.Unimplemented, "Frobnicate", symplex.compile_onnx, model)
    assert isinstance(error, NotImplementedError) and error.code == 12 and onnx.__version__
    fails(symplex.UsageError, "dimension batch", symplex.compile, MLP, dims={"batch": 0})
    fails(symplex.InputError, "batch", symplex.compile, MLP)
    fails(symplex.NoDaemon, "", symplex.compile, DOUBLE, daemon="only")
    fails(ValueError, "daemon: 'perhaps', known are auto", symplex.compile, DOUBLE, daemon="perhaps")
    fails(ValueError, "an interval is a tuple (low, high)", symplex.compile, MLP, dims={"batch": (1, 2, 3)})
    fails(symplex.Error, "beauty", symplex.compile, DOUBLE, objective="beauty")
    for threads in (-1, 257, 1.5, True):
        fails(ValueError, "threads", symplex.load, b"", threads=threads)
    for wrong in (3, None, [1]):
        fails(TypeError, "program: a path, text or bytes", symplex.compile, wrong)
        fails(TypeError, "module: a path or bytes", symplex.load, wrong)
    fails(TypeError, "colour", symplex.compile, DOUBLE, colour="red")
    fails(symplex.UsageError, "no bytes", symplex._c.Module, None, None, 0)


def test_files_and_text():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "double.sxm")
        info = symplex.compile_file(DOUBLE, path, objective="memory")
        mine = symplex.load(str(path))
        assert mine.info["key"] == info["key"] and np.array_equal(mine(numbers(3, 4)), 2 * numbers(3, 4))
        assert np.array_equal(symplex.load(memoryview(path.read_bytes()))(numbers(3, 4)), 2 * numbers(3, 4))
    assert symplex.compile_bytes(DOUBLE)[1]["key"] != info["key"], "another objective"
    twice = program(parameter("x", "f32[3, 4]"), "%n = negate(%x) : f32[3, 4]", "%m = negate(%n) : f32[3, 4]",
                    'return %m as "y"')
    assert "negate" not in symplex.optimize(twice) and "negate" in twice
    mine = module(DOUBLE)
    assert repr(mine).startswith("<symplex.Module (x: float32[3, 4]) -> (y: float32[3, 4]), "), repr(mine)
    assert {stage["name"] for stage in mine.report()["stages"]} and mine.compiled["tier"] == "process"


def test_profiles():
    a, b = numbers(3, 4), numbers(4, 2)
    (p, q), launches = module(DOT).profile(a, b)
    assert np.array_equal(p, a @ b) and np.array_equal(q, a + a)
    assert launches and all(launch["kernel"] and launch["ns"] > 0 for launch in launches), launches
    out = np.empty((3, 4), np.float32)
    assert module(DOUBLE).profile(a, out=out)[0] is out
    fails(TypeError, "argument 'a' is missing", module(DOT).profile, b=b)


# ---- the package ----
def test_the_doctor():
    environment = dict(os.environ, PYTHONPATH=str(BUILD / "python"))
    done = subprocess.run([sys.executable, "-m", "symplex", "doctor"], capture_output=True, text=True, timeout=120,
                          env=environment)
    assert done.returncode == 0 and "the result is right" in done.stdout and "numpy" in done.stdout, done
    environment["SYMPLEX_CLIENT"] = "/nowhere/symplex-client"
    done = subprocess.run([sys.executable, "-m", "symplex", "doctor"], capture_output=True, text=True, timeout=120,
                          env=environment)
    assert done.returncode == 1 and "/nowhere/symplex-client cannot be executed" in done.stdout, done
    assert subprocess.run([sys.executable, "-m", "symplex"], capture_output=True, env=environment).returncode == 2


def test_the_stub_names_what_is_there():
    stub = (ROOT / "client/python/symplex/_c.pyi").read_text()
    mine = {name for name in vars(symplex._c) if not name.startswith("__")}
    mine |= {name for name in vars(symplex._c.Module) if not name.startswith("__")}
    missing = [name for name in mine
               if f"{name}(" not in stub and f"{name}:" not in stub and f"class {name}" not in stub]
    assert len(mine) > 8 and not missing, missing
    assert all(hasattr(symplex, name) for name in symplex.__all__) and (BUILD / "python/symplex/py.typed").exists()


def test_it_works_without_numpy():
    """With buffers alone: numpy is asked for only where a new array is to be made."""
    code = f"""
import sys
sys.modules["numpy"] = None
sys.path.insert(0, {str(BUILD / 'python')!r})
import array, symplex
m = symplex.compile({DOUBLE.replace("3, 4", "4")!r}, threads=1)
x, y = array.array("f", [1, 2, 3, 4]), array.array("f", [0] * 4)
assert m(x, out=y) is y and list(y) == [2, 4, 6, 8], y
try:
    m(x)
except ImportError:
    print("asked for numpy")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "asked for numpy\n", done


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
