#!/usr/bin/env python3
"""Modules for a GPU that are called with arrays on it: values against NumPy, streams in order, who owns what, and what
is refused. The GPU is that of the driver of the tests; sums are of small whole numbers, so equal means equal."""
import gc
import os
import pathlib
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"  # no daemon: each compile is a process of its own
import numpy as np  # noqa: E402

import device  # noqa: E402

device.begin()
import symplex  # noqa: E402
from symplex import _c  # noqa: E402
from small import fails, numbers, parameter, program  # noqa: E402


DOT = program(parameter("a", "f32[3, 4]"), parameter("b", "f32[4, 2]"),
              "%p = dot_general(%a, %b) {lhs_contract = [1], rhs_contract = [0]} : f32[3, 2]",
              "%q = add(%a, %a) : f32[3, 4]", 'return %p as "p", %q as "q"')
SCALED = program(parameter("x", "f32[3, 4]"), parameter("w", "f32[3, 4]", 1), "%v = multiply(%w, %w) : f32[3, 4]",
                 "%y = multiply(%x, %v) : f32[3, 4]", 'return %y as "y"')
BATCH = ('sx 1\ngraph "test" (n in [1, 8]) {\n    %x = parameter {name = "x", weight = 0} : f32[n, 4]\n'
         '    %y = add(%x, %x) : f32[n, 4]\n    return %y as "y"\n}\n')
opened = {}


def module(text, **options):
    """Compiled once for all tests that do not change it."""
    key = text, repr(sorted(options.items()))
    if key not in opened:
        opened[key] = symplex.compile(text, threads=1, target="h100", **options)
    return opened[key]


def test_arrays_of_both_protocols():
    a, b = numbers(3, 4), numbers(4, 2)
    for kind in (device.DLPack, device.Interface):
        x, y = kind(a), kind(b)
        p, q = module(DOT)(x, y)
        assert type(p) is symplex.DeviceArray and p.shape == (3, 2) and p.dtype == np.float32, p
        assert np.array_equal(p.to_numpy(), a @ b) and np.array_equal(np.asarray(q), a + a)
        assert q.nbytes == 48 and q.size == 12 and q.ndim == 2 and q.device == "cuda:0", q
        assert repr(q) == "<symplex.DeviceArray float32[3, 4] on cuda:0>", q
    x, y = device.DLPack(a), device.Interface(b)  # one of each
    assert np.array_equal(module(DOT)(b=y, a=x)[0].to_numpy(), a @ b)
    assert not x.lent, "what was lent is given back"
    assert module(DOT).info["gpu"] == 0 and module(DOT).info["gpu_name"] == "NVIDIA H100 80GB HBM3"


def test_results_where_the_caller_wants_them():
    a, b = device.DLPack(numbers(3, 4)), device.Interface(numbers(4, 2))
    p, q = device.Interface(np.zeros((3, 2), np.float32)), device.DLPack(np.zeros((3, 4), np.float32))
    got = module(DOT)(a, b, out=(p, q))
    assert got[0] is p and got[1] is q
    assert np.array_equal(p.numpy(), a.like @ b.like) and np.array_equal(q.numpy(), a.like * 2)
    fails(symplex.LayoutError, "out 'q': its memory overlaps", module(DOT), a, b, out=(p, a))
    p.more = {"data": (p.memory.at, True)}
    fails(symplex.LayoutError, "out 'p': it is read-only", module(DOT), a, b, out=(p, q))


def test_results_go_on_to_others():
    """From module to module, and by DLPack and the CUDA array interface to others."""
    double = program(parameter("x", "f32[3, 4]"), "%y = add(%x, %x) : f32[3, 4]", 'return %y as "y"')
    x = device.DLPack(numbers(3, 4))
    first = module(double)(x)
    second = module(double)(first)
    del first
    gc.collect()
    assert np.array_equal(second.to_numpy(), 4 * x.like)
    assert second.__dlpack_device__() == (2, 0)
    said = second.__cuda_array_interface__
    assert said["version"] == 3 and said["typestr"] == "<f4" and said["shape"] == (3, 4) and said["stream"] == 1, said
    capsule = second.__dlpack__(stream=1, max_version=(1, 1))
    assert device.from_dlpack(capsule) == (said["data"][0], (3, 4), 2, (2, 32))
    del second  # the capsule keeps it
    gc.collect()
    assert device.from_dlpack(capsule)[1] == (3, 4)
    del capsule
    third = module(double)(x)
    old = third.__dlpack__()
    assert device.from_dlpack(old, b"dltensor")[1:] == ((3, 4), 2, (2, 32))
    fails(ValueError, "0 is no number", third.__dlpack__, stream=0)
    fails(BufferError, "not copied to device (1, 0)", third.__dlpack__, dl_device=(1, 0))
    fails(BufferError, "no copy", third.__dlpack__, copy=True)
    fails(ValueError, "by a copy", third.__array__, copy=False)
    assert np.asarray(third, np.float64).dtype == np.float64


def test_streams_in_order():
    s, t, u = device.Stream(), device.Stream(), device.Stream()
    a, b = device.DLPack(numbers(3, 4)), device.Interface(numbers(4, 2))
    b.stream = u.cuda_stream
    device.waits(None, None, forget=True)
    p, _ = module(DOT)(a, b, stream=s)
    assert a.asked == [s.cuda_stream], "the producer puts our stream in order"
    assert device.waits(s.cuda_stream, u.cuda_stream) == 1, "the consumer waits for the producer's stream"
    b.stream = None
    module(DOT)(a, b, stream=t.cuda_stream)
    assert device.waits(t.cuda_stream, s.cuda_stream) == 1, "runs of a module do not overlap"
    assert a.asked[-1] == t.cuda_stream
    module(DOT)(a, b)
    assert a.asked[-1] == 1, "CUDA's default stream"
    assert device.waits(None, t.cuda_stream) == 1
    p.__dlpack__(stream=u.cuda_stream)
    assert device.waits(u.cuda_stream, None) == 1, "who takes a result waits for the run"
    p.__dlpack__(stream=-1)
    assert device.waits(u.cuda_stream, None, forget=True) == 1

    class Protocol:
        def __cuda_stream__(self):
            return 0, s.cuda_stream

    module(DOT)(a, b, stream=Protocol())
    assert a.asked[-1] == s.cuda_stream
    for wrong, classes, text in ((True, TypeError, "stream: a number"), ("s", TypeError, "stream: a number"),
                                 (-1, ValueError, "stream: -1 is no stream")):
        fails(classes, text, module(DOT), a, b, stream=wrong)
    for stream in (s, t, u):
        stream.close()
    device.waits(None, None, forget=True)


def test_a_graph():
    """The run is on the stream that is given, whatever it is: one that is captured runs when its graph is launched."""
    s = device.Stream()
    a, b = device.Interface(numbers(3, 4)), device.Interface(numbers(4, 2))
    out = device.Interface(np.zeros((3, 2), np.float32)), device.Interface(np.zeros((3, 4), np.float32))
    module(DOT)(a, b, out=out, stream=s)
    out[0].memory.write(np.zeros((3, 2), np.float32))
    device.capture(s.cuda_stream)
    module(DOT)(a, b, out=out, stream=s)
    graph = device.captured(s.cuda_stream)
    assert not out[0].numpy().any()
    for times in (1, 3):
        a.memory.write(a.like * times)
        device.launch(graph, s.cuda_stream)
        assert np.array_equal(out[0].numpy(), times * (a.like @ b.like))
    device.free_graph(graph)
    s.close()


def test_what_is_refused():
    a, b = device.DLPack(numbers(3, 4)), device.DLPack(numbers(4, 2))
    m = module(DOT)
    fails(symplex.LayoutError, "argument 'b': it lies in memory of the host, and argument 'a' on a GPU", m, a, b.like)
    fails(symplex.LayoutError, "argument 'a': it lies in memory of the host, and argument 'b' on a GPU", m, a.like, b)
    fails(symplex.LayoutError, "out 'p': it lies in memory of the host", m, a, b,
          out=(np.zeros((3, 2), np.float32), device.DLPack(numbers(3, 4))))
    fails(symplex.ShapeError, "argument 'b': its shape is (2, 4)", m, a, device.Interface(numbers(2, 4)))
    fails(symplex.DTypeError, "argument 'b': its elements are float64, needed are float32", m, a,
          device.DLPack(numbers(4, 2, dtype=np.float64)))
    fails(symplex.DTypeError, "argument 'b': its elements are <i4, needed are float32", m, a,
          device.Interface(numbers(4, 2, dtype=np.int32)))
    fails(symplex.LayoutError, "argument 'a': its elements do not lie", m, device.DLPack(numbers(3, 4), (1, 3)), b)
    fails(symplex.LayoutError, "argument 'a': its elements do not lie", m, device.Interface(numbers(3, 4), (4, 12)), b)
    assert m(device.Interface(numbers(3, 4), (16, 4)), b)[1].shape == (3, 4)
    fails(symplex.LayoutError, "is not a multiple of 64", m, device.Interface(numbers(3, 4), offset=16), b)
    fails(symplex.LayoutError, "argument 'a': it lies on device 2:1 of DLPack, the module is on GPU 0", m,
          device.DLPack(numbers(3, 4), gpu=1), b)
    masked = device.Interface(numbers(3, 4))
    masked.more = {"mask": masked}
    fails(NotImplementedError, "argument 'a': it has a mask", m, masked, b)
    masked.more = {"version": 1}
    fails(NotImplementedError, "argument 'a': version 2 or later", m, masked, b)
    stranger = device.Interface(numbers(3, 4))
    stranger.more = {"data": (1 << 40, False)}
    fails(symplex.InputError, "tensor a: 0x10000000000 is no address of memory of a GPU", m, stranger, b)
    fails(NotImplementedError, "profile: of arrays on a GPU", m.profile, a, b)
    fails(TypeError, "stream: it is for arrays on a GPU", m, a.like, b.like, stream=1)
    host = symplex.compile(DOT, threads=1)
    fails(symplex.LayoutError, "argument 'a': it lies on device 2:0 of DLPack, and memory of the processor", host, a, b)
    fails(symplex.LayoutError, "argument 'a': it lies on a GPU", host, device.Interface(numbers(3, 4)), b)
    fails(TypeError, "stream: the module runs on the processor", host, a.like, b.like, stream=1)
    assert np.array_equal(m(a, b)[0].to_numpy(), a.like @ b.like), "nothing of it is left"


def test_both_sides_by_turns():
    a, b = numbers(3, 4), numbers(4, 2)
    for _ in range(2):
        assert np.array_equal(module(DOT)(a, b)[0], a @ b)
        assert np.array_equal(module(DOT)(device.DLPack(a), device.DLPack(b))[0].to_numpy(), a @ b)


def test_weights():
    """They are copied once, when they were bound; other ones are copied again."""
    m, x = symplex.compile(SCALED, threads=1, target="h100"), device.DLPack(numbers(3, 4))
    w = np.full((3, 4), 2, np.float32)
    fails(symplex.InputError, "w is not bound", m, x)
    m.bind_weights({"w": w})
    assert np.array_equal(m(x).to_numpy(), 4 * x.like)
    w[:] = 3  # behind the back of the module, whose work on weights is done
    assert np.array_equal(m(x).to_numpy(), 4 * x.like)
    m.bind_weights({"w": w})
    assert np.array_equal(m(x).to_numpy(), 9 * x.like)
    other = m.share()
    other.bind_weights({"w": np.full((3, 4), 1, np.float32)})
    assert np.array_equal(other(x).to_numpy(), x.like) and np.array_equal(m(x).to_numpy(), 9 * x.like)
    fails(NotImplementedError, "weight 'w': it lies on a GPU", m.bind_weight, "w", device.DLPack(w))


def test_dimensions():
    m = module(BATCH, dims={"n": (1, 8)})
    for n in (3, 8, 3, 1):
        x = device.DLPack(numbers(n, 4))
        y = m(x)
        assert y.shape == (n, 4) and np.array_equal(y.to_numpy(), 2 * x.like), n
    fails(symplex.ShapeError, "argument 'x'", m, device.DLPack(numbers(3, 5)))
    fails(symplex.InputError, "n", m, device.DLPack(numbers(9, 4)))


def test_threads():
    """One module, several threads; runs come one after the other."""
    m, wrong = module(DOT), []

    def work(k):
        a, b = device.DLPack(numbers(3, 4) * k), numbers(4, 2)
        for _ in range(10):
            if not np.array_equal(m(a, device.DLPack(b))[0].to_numpy(), k * (numbers(3, 4) @ b)):
                wrong.append(k)

    lock = threading.Lock()  # the driver of the tests knows one thread at a time
    alloc = device.Memory.__init__

    def alone(*args, **keywords):
        with lock:
            alloc(*args, **keywords)

    device.Memory.__init__ = alone
    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive()
    device.Memory.__init__ = alloc
    device.waits(None, None, forget=True)
    assert not wrong, wrong


def test_which_target():
    assert _c.gpu(0) == ("NVIDIA H100 80GB HBM3", 90, "h100")
    fails(symplex.NotFound, "there is no GPU 7", _c.gpu, 7)
    assert _c.device_type(device.DLPack(numbers(3, 4)), "x") == ("float32", (3, 4), 0)
    assert _c.device_type(device.Interface(numbers(3, 4, dtype=np.int32)), "x") == ("int32", (3, 4), 0)
    assert _c.device_type(numbers(2), "x") is None and _c.device_type(3, "x") is None
    odd = device.Interface(numbers(3, 4))
    odd.more = {"typestr": "<c8"}
    fails(symplex.DTypeError, "argument 'x': elements of a type that is not known", _c.device_type, odd, "x")


def test_traced_functions():
    """Compiled for the GPU that holds the arguments; in other words for another one, or for both sides."""
    def function(x, both):
        return {"sum": x + both["y"], "double": x * 2.0}

    f = symplex.jit(function)
    x, y = numbers(3, 4), numbers(3, 4) + 1
    for kind in (device.DLPack, device.Interface):
        made = f(kind(x), {"y": kind(y)})
        assert type(made["sum"]) is symplex.DeviceArray and np.array_equal(made["sum"].to_numpy(), x + y)
        assert np.array_equal(made["double"].to_numpy(), 2 * x)
    assert len(f.modules) == 1
    again = f(made["sum"], {"y": made["double"]})  # results are arguments
    assert np.array_equal(again["sum"].to_numpy(), x + y + 2 * x)
    assert len(f.modules) == 1
    (stage,) = next(iter(f.modules.values())).stages
    assert stage.module.info["target"] == "h100" and stage.module.info["gpu"] == 0, stage.module.info
    assert np.array_equal(f(x, {"y": y})["sum"], x + y)  # a program of its own, for the processor
    assert len(f.modules) == 2
    fails(symplex.LayoutError, "argument 'both['y']': it lies on the host, and argument 'x' on GPU 0", f,
          device.DLPack(x), {"y": y})
    fails(symplex.LayoutError, "argument 'x': its elements do not lie", f, device.DLPack(x, (1, 3)), {"y": y})
    held = f(device.DLPack(x), {"y": device.DLPack(y)})["sum"]
    fails(symplex.Unimplemented, "an array on a GPU that is no argument", symplex.jit(lambda z: z + held),
          device.DLPack(x))
    fails(symplex.Unimplemented, "a call of the host, and the arguments lie on a GPU",
          symplex.jit(lambda z: np.linalg.svd(z)[1]), device.DLPack(x))
    table = np.arange(1024, dtype=np.float32)  # a weight of the module
    z = device.DLPack(np.arange(1024, dtype=np.float32))
    assert np.array_equal(symplex.jit(lambda v: v + table)(z).to_numpy(), 2 * z.like)


def test_targets_by_name():
    """The target of the GPU, unless another one is named; one without a row in the table is an error."""
    x = device.DLPack(numbers(3, 4))
    assert np.array_equal(symplex.jit(lambda v: v + v, target="a100")(x).to_numpy(), 2 * x.like)
    device.settings("capability=89 name=NVIDIA_L40S")
    fails(symplex.Unimplemented, "GPU 0 (NVIDIA L40S, compute capability 8.9) is none of the targets",
          symplex.jit(lambda v: v + v), x)
    assert np.array_equal(symplex.jit(lambda v: v + v, target="generic-sm80")(x).to_numpy(), 2 * x.like)
    fails(symplex.Unimplemented, "compute capability 9.0 is needed, GPU 0 (NVIDIA L40S) has 8.9",
          symplex.jit(lambda v: v - v, target="h100"), x)
    device.settings(device.H100)


def main():
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
    opened.clear()
    gc.collect()
    device.end()


if __name__ == "__main__":
    main()
