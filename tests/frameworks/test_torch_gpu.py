#!/usr/bin/env python3
"""torch.compile(backend="symplex") for graphs on a GPU, where PyTorch has none: tensors that only have a shape say
where a graph runs and what it is compiled for; it runs with arrays on the GPU of the driver of the tests, which stand
in for PyTorch's where its own functions would need one (new tensors, the current stream). Sums are of small whole
numbers, so equal means equal.

    test_torch_gpu.py [NAME ...]        these functions alone
"""
import gc
import os
import pathlib
import sys
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "client" / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import device as gpu  # noqa: E402

gpu.begin()
import symplex  # noqa: E402
from runner import run  # noqa: E402
import symplex.torch  # noqa: E402
from symplex.torch import _backend, _device, _parts, _run  # noqa: E402

OPTIONS = {"daemon": "never", "threads": 1}
DTYPES = {torch.float32: np.float32, torch.int32: np.int32}


def graph_of(function, *shapes, devices=None):
    """As AOT autograd gives it to a compiler; nothing is computed."""
    with FakeTensorMode():
        given = [torch.empty(s, device=(devices or {}).get(i, "cuda")) for i, s in enumerate(shapes)]
        graph = make_fx(function, tracing_mode="real")(*given)
    return graph


def built(graph, strict=True, **options):
    return _parts.build(graph, _backend.options_of({**OPTIONS, "strict": strict, **options}))


class Tensor(gpu.DLPack):
    """In place of a tensor on a GPU: what compiled code asks of one. `turned`: another view of the same elements."""

    turned = None

    @property
    def shape(self):
        return self.like.shape

    def permute(self, dims):
        made = Tensor.__new__(Tensor)
        made.__dict__ = dict(self.__dict__)
        made.like = self.like.transpose(dims)
        lie = made.like.strides if self.strides is None else [self.strides[d] * 4 for d in dims]
        made.strides = [s // 4 for s in lie]
        return made

    def is_contiguous(self):
        return self.strides is None

    def clone(self):
        return Tensor(self.like)

    contiguous = clone


class Made:
    """New tensors, and the stream, in place of PyTorch's."""

    def __init__(self, stream=0):
        self.tensors, self.devices, self.stream = [], [], stream

    def empty(self, shape, stride, *, dtype, device):
        size = 1 + sum((n - 1) * s for n, s in zip(shape, stride))
        flat = np.zeros(size, DTYPES[dtype])
        made = Tensor(np.lib.stride_tricks.as_strided(flat, shape, [4 * s for s in stride]))
        made.strides = None if made.like.flags.c_contiguous else list(stride)
        self.tensors.append(made)
        self.devices.append(device)
        return made

    def __enter__(self):
        self.patches = [mock.patch.object(_device, "empty_strided", self.empty),
                        mock.patch.object(_run._device, "current_stream", lambda device: self.stream)]
        for p in self.patches:
            p.start()
        return self

    def __exit__(self, *_):
        for p in self.patches:
            p.stop()


def numbers(*shape):
    return (np.arange(int(np.prod(shape))) % 7 - 3).reshape(shape).astype(np.float32)


def fails(classes, part, function, *args, **keywords):
    try:
        function(*args, **keywords)
    except classes as error:
        assert part in str(error), f"{type(error).__name__}: {error}"
        return
    raise AssertionError(f"nothing was raised: {part}")


def told(function, *args, **keywords):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = function(*args, **keywords)
    return made, [str(w.message) for w in seen if issubclass(w.category, RuntimeWarning)]


def test_a_graph_on_a_gpu():
    """The target is that of the device; new tensors are PyTorch's, on it; the run is on PyTorch's stream."""
    stream = gpu.Stream()
    with Made(stream.cuda_stream) as made:
        whole = built(graph_of(lambda x, w: (torch.relu(x @ w) + 1, x * 2), (3, 4), (4, 2))).whole
        assert isinstance(whole, _run.Part) and whole.device == torch.device("cuda:0")
        (entry,) = whole.entries.values()
        assert entry.module.info["target"] == "h100" and entry.module.info["gpu"] == 0, entry.module.info
        x, w = Tensor(numbers(3, 4)), Tensor(numbers(4, 2))
        results = whole.run([x, w])
        assert [r is t for r, t in zip(results, made.tensors)] == [True, True]
        assert set(made.devices) == {torch.device("cuda:0")}
        assert np.array_equal(results[0].numpy(), np.maximum(x.like @ w.like, 0) + 1)
        assert np.array_equal(results[1].numpy(), 2 * x.like)
        assert {s for t in (x, w, *results) for s in t.asked} == {stream.cuda_stream}
    stream.close()
    gpu.waits(None, None, forget=True)


def test_strides():
    """A turned result is made as the graph promises; an argument that does not lie as it did is copied by PyTorch."""
    graph = graph_of(lambda x: (x.t() + 1,), (3, 4))
    with Made():
        whole = built(graph).whole
        for x in (Tensor(numbers(3, 4)), Tensor(numbers(3, 4), offset=16)):  # as a slice: in order, but not aligned
            (y,) = whole.run([x])
            assert y.shape == (4, 3) and y.strides == [1, 4], y.strides
            assert np.array_equal(y.memory.read(np.zeros((3, 4), np.float32)).T, x.like.T + 1)


def test_devices_that_meet():
    """Operators with tensors of another device than the graph's are PyTorch's, named once; the rest is compiled."""
    graph = graph_of(lambda x, s: ((x * 2 + 1) * s,), (3, 4), (), devices={1: "cpu"})
    made, said = told(built, graph, strict=False)
    assert isinstance(made.whole, _parts.Whole), made.whole
    assert len(said) == 1 and "aten.mul.Tensor (a tensor on cpu in a graph on cuda:0)" in said[0], said
    (part,) = made.whole.parts()
    assert part.device == torch.device("cuda:0") and part.on == {"target": "h100"}
    fails(symplex.Unimplemented, "a tensor on cpu in a graph on cuda:0", built, graph)
    plain = graph_of(lambda x: (x * 2,), (3, 4), devices={0: "cpu"})
    assert built(plain).whole.device == torch.device("cpu") and built(plain).whole.on == {}


def test_devices_that_are_not_served():
    graph = graph_of(lambda x: (x * 3,), (3, 4))
    other = graph_of(lambda x: (x * 3,), (3, 4), devices={0: "cuda:1"})
    gpu.settings("capability=89 name=NVIDIA_L40S")
    made, said = told(built, graph, strict=False)
    assert isinstance(made.whole, _parts.Whole) and not made.whole.parts()
    assert len(said) == 1 and "tensors on cuda:0: GPU 0 (NVIDIA L40S, compute capability 8.9) is none" in said[0], said
    assert built(graph, target="generic-sm80").whole.entries[()].module.info["gpu"] == 0
    fails(symplex.Unimplemented, "tensors on cuda:1: there is no GPU 1", built, other)
    gpu.settings("capability=90 gpus=2 name=NVIDIA_H100_80GB_HBM3")  # the second one is said to have more
    fails(symplex.Unimplemented, "tensors on cuda:1: GPU 1 (NVIDIA H100 80GB HBM3, compute capability 9.1)", built,
          other)
    fails(symplex.Unimplemented, "the module for h100 runs on GPU 0", built, other, target="h100")
    gpu.settings(gpu.H100)
    fails(symplex.Unimplemented, "runs on the processor", built, graph, target="x86-64-v3")
    fails(symplex.Unimplemented, "a tensor on meta", built, graph_of(lambda x: (x * 3,), (3, 4), devices={0: "meta"}))
    x = torch.zeros(2, 4, device="meta")
    fails(symplex.Unimplemented, "tensors on meta, it runs on the processor",
          symplex.torch._operators._run, "test", lambda e, inputs: inputs, [x])


def test_parameters_are_read_where_they_lie():
    """`freeze` binds weights of the host alone."""
    from symplex.torch._lower import arguments_of
    from symplex.torch._weights import is_marked, mark
    graph = graph_of(lambda x, w: (x @ w,), (3, 4), (4, 2))
    nodes = arguments_of(graph.graph)
    mark(nodes, [0, 1], "auto")
    assert not any(map(is_marked, nodes))
    plain = arguments_of(graph_of(lambda x: (x + 1,), (3, 4), devices={0: "cpu"}).graph)
    mark(plain, [0], "auto")
    assert is_marked(plain[0])


def main():
    run(globals())
    _run._modules.clear()
    gc.collect()
    gpu.end()


if __name__ == "__main__":
    main()
