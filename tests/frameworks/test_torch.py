#!/usr/bin/env python3
"""torch.compile(backend="symplex"): what a caller relies on beyond values. Where numbers are small and whole, equal
means equal.

    test_torch.py [NAME ...]        these functions alone
"""
import copy
import gc
import os
import pathlib
import subprocess
import sys
import threading
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import symplex  # noqa: E402
import symplex.torch  # noqa: E402
from runner import SEED, run  # noqa: E402
from symplex.torch import _run  # noqa: E402

OPTIONS = {"strict": True, "daemon": "never", "threads": 1, "warm": False}  # test_torch_warm.py is about those


def compiled(function, fullgraph=True, dynamic=False, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="symplex", fullgraph=fullgraph, dynamic=dynamic,
                         options={**OPTIONS, **options})


class Counted:
    """How many programs were compiled, and how often modules ran."""

    def __enter__(self):
        self.programs, self.runs = 0, 0
        self.kept = _run.compile_bytes, _run.opened

        def counted_compile(*args, **keywords):
            self.programs += 1
            return self.kept[0](*args, **keywords)

        _run._modules.clear()
        _run.compile_bytes = counted_compile
        _run.opened = lambda *args: Watched(self.kept[1](*args), self)
        return self

    def __exit__(self, *_):
        _run.compile_bytes, _run.opened = self.kept


class Watched:
    def __init__(self, module, count):
        self.module, self.count = module, count

    def __getattr__(self, name):
        return getattr(self.module, name)

    def share(self):
        return Watched(self.module.share(), self.count)

    def __call__(self, *args, **keywords):
        self.count.runs += 1
        return self.module(*args, **keywords)


def whole(*shape, dtype=torch.float32, low=-3, high=4):
    return torch.randint(low, high, shape).to(dtype)


def same(got, want):
    got, want = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (got, want))
    assert len(got) == len(want), (len(got), len(want))
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and g.dtype == w.dtype, (i, g.shape, w.shape, g.dtype, w.dtype)
        assert g.stride() == w.stride(), (i, g.stride(), w.stride())
        assert torch.equal(g.nan_to_num(77), w.nan_to_num(77)) and torch.equal(g.isnan(), w.isnan()), (i, g, w)


def agrees(function, *args, **options):
    with Counted() as count:
        same(compiled(function, **options)(*args), function(*args))
    assert count.runs > 0, "nothing ran that symplex compiled"


def warned(call):
    """The result, and the texts of symplex's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(w.message) for w in caught if str(w.message).startswith("symplex")]


def fails(kind, part, function, *args, **keywords):
    try:
        function(*args, **keywords)
    except Exception as error:
        cause = error
        while cause is not None and not isinstance(cause, kind):
            cause = cause.__cause__ or getattr(cause, "inner_exception", None)
        assert cause is not None and part in str(cause), f"{part!r} is not in {error!r}"
        return
    raise AssertionError(f"nothing was raised, {kind} was expected: {part}")


# ---- types, shapes, strides ----
def test_types():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                  torch.int8, torch.uint8):
        agrees(lambda x: (x + x, x * 2, x @ x.t(), x.sum(0), x.amax(1), x.to(torch.float32), x > 1, x[:, 1:],
                          torch.where(x > 1, x, x + 1)), whole(3, 4, dtype=dtype, low=0))
    agrees(lambda b: (b | b.flip(0), ~b, b.any(0), b.all(1), b.to(torch.int32), b.sum()), whole(3, 4) > 0)


def test_small_and_empty():
    agrees(lambda x, y: (x + y, x * 2, y.sum(), x.reshape(1, 1)), torch.tensor(2.0), whole(3))
    agrees(lambda x, y: (x + 1, y * 2, x.sum(0), torch.cat([x, y])), torch.empty(0, 4), whole(2, 4))
    agrees(lambda x: (x[:, :0] + 1, x + 1, x[1:1].sum(1)), whole(3, 4))
    agrees(lambda x: x + 1, torch.tensor(7))


def test_strides():
    image = whole(2, 3, 4, 5)
    last = image.to(memory_format=torch.channels_last)
    agrees(lambda x: (x + 1, F.relu(x), x.permute(0, 2, 3, 1) * 2, x.sum(1), x.mean(0)), last)
    agrees(lambda x, w: F.conv2d(x, w, padding=1), last, whole(4, 3, 3, 3))
    agrees(lambda x: (x.t() + 1, x.t().contiguous() + 1, (x + 1).t(), x.t() @ x), whole(3, 4))
    agrees(lambda x: (x + 1, x * 2), whole(4, 3).t())
    agrees(lambda x: x + 1, whole(6, 8)[::2, ::3])  # with gaps
    agrees(lambda x: x * 2, whole(1, 4).expand(3, 4))  # elements that are several
    agrees(lambda x: x * 2, whole(5, 6)[1:, 2:])
    agrees(lambda x: (x.expand(3, 4), x + 1), whole(1, 4))


def test_pieces_are_views():
    """Of what is cut in pieces, the whole is made, and the pieces are views of it: no copy with gaps."""
    def model(x):
        a, b, c = (x * 2).split([2, 3, 4], -1)
        d, e = (x + 1).chunk(2, 1)
        return a, b.transpose(0, 1), c, d, e

    x = torch.randn(3, 6, 9)
    got, want = compiled(model)(x), model(x)
    for g, w in zip(got, want):
        assert torch.equal(g, w) and g.stride() == w.stride() and g.storage_offset() == w.storage_offset()
    assert len({g.untyped_storage().data_ptr() for g in got}) == 2


def test_strides_of_another_call():
    """The same compiled function with an argument that lies in another way: no guard of ours may be missing."""
    f = compiled(lambda x: x + 1)
    x = whole(4, 4)
    for value in (x, x.t(), x[:, :], torch.cat([x, x])[::2], x.t().contiguous().t()):
        same(f(value), value + 1)


def test_aliases():
    def function(x, y):
        x.add_(y)
        v = x[0]
        v.mul_(2)
        return v, x.view(-1), y.t(), y

    x, y = whole(3, 4), whole(3, 4)
    x_copy = x.clone()
    got, want = compiled(function)(x, y), function(x_copy, y)
    same([x, *got], [x_copy, *want])
    got[1].fill_(5)
    assert torch.equal(x, torch.full((3, 4), 5.0)), "the view of the argument is no view"
    assert got[3] is y and got[2].data_ptr() == y.data_ptr()


def test_views_of_arguments_cost_nothing():
    with Counted() as count:
        x = whole(3, 4)
        made = compiled(lambda x: (x.t(), x[1], x.view(12)))(x)
    assert count.programs == 0 and all(m.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for m in made)


def test_results_of_one_type_keep_their_order():
    """A module writes its outputs in an order of its own, where shapes and types do not tell them apart."""
    modules = []

    def keep(*args):
        modules.append(opened(*args))
        return modules[-1]

    def function(x):
        return torch.ones(4, 5), x + 1, torch.zeros(4, 5), x * 2

    opened = _run.opened
    with mock.patch.object(_run, "opened", keep):
        agrees(function, whole(4, 5))
    names = [t.name for t in modules[-1].outputs]
    assert sorted(names) == ["out0", "out1", "out2", "out3"] != names, f"{names}: this tests nothing any more"


def test_equal_programs_are_one_module():
    """Equal layers behind graph breaks; with other options a program is another module, though its text is the same."""
    def function(x):
        y = torch.relu(x) * 2
        print(end="")
        return torch.relu(y) * 2

    x = whole(5, 7)
    with Counted() as count:
        first = compiled(function, fullgraph=False)
        same(first(x), function(x))
        assert (count.programs, count.runs) == (1, 2)
        torch._dynamo.reset()
        second = compiled(function, fullgraph=False)
        same(second(x), function(x))
        assert (count.programs, count.runs) == (1, 4), "a module that is in use was not found"
        other = compiled(function, fullgraph=False, exact=True)
        same(other(x), function(x))
        assert (count.programs, count.runs) == (2, 6), "options are part of what a module is"
        assert len({id(m) for m in _run._modules.values()}) == 2


def texts_of(function, *args):
    """The programs that are compiled of it, and that they are right."""
    texts, found = [], _run.compile_bytes

    def kept(text, **options):
        texts.append(text)
        return found(text, **options)

    with mock.patch.object(_run, "compile_bytes", kept):
        agrees(function, *args)
    return "".join(texts)


def test_indices_along_each_dimension():
    """Rows and columns are gathered one after the other, without a table of places."""
    x, rows, columns = whole(2, 3, 4, 5), torch.tensor([[0], [2], [-1], [1]]), torch.tensor([1, 1, 0, -2, 3])
    text = texts_of(lambda x: (x[:, rows, columns], x[:, :, columns], x[rows[:2, 0] - 1], x[..., rows[:, 0]]), x)
    assert text.count("gather(") == 5 and "axis = 2" in text, text
    agrees(lambda x: (x[rows[:2, :, None] - 1, rows[None, :, :1], columns[None, None]], x[:, :, columns[:0]]), x)
    for index in (lambda x: x[:, rows, :, columns], lambda x: x[:, rows[:2, 0], columns[:2]], lambda x: x[:, :, rows],
                  lambda x: x[:, columns[None, :3] - 1, rows], lambda x: x[:, rows[:1], columns[:1]]):
        agrees(index, x)


def test_known_numbers_are_in_the_program():
    """Weights and places of a scaled image are numbers of the program, and a mask by places stays one by places."""
    image = 16 * whole(1, 2, 6, 4)
    text = texts_of(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image)
    assert "iota" not in text and "convert" not in text and "[0.0, 0.25, 0.75," in text, text
    text = texts_of(lambda x: (x * (torch.arange(4) / 2 - 1).clamp(-0.5), (torch.arange(6) / 2).floor().long()), image)
    assert "iota" not in text, text
    assert "iota" in texts_of(lambda x: (x.tril(), x + torch.arange(4), x * torch.arange(4).float()), image)
    text = texts_of(lambda x: x[..., :3] + torch.arange(3) / torch.zeros(3), image)
    assert "[nan, inf, inf]" in text, text
    agrees(lambda x: x * torch.add(torch.arange(4) * 0.1, torch.arange(4) * 0.3, alpha=3).round(), image)
    agrees(lambda x: (x[0, 0] * (torch.arange(0) / 2).sum(), x + (torch.arange(1) + 0.5)), image)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agrees(lambda x: x * (torch.arange(4) / 4 + 256), image)


# ---- parts that PyTorch runs ----
def test_parts():
    def function(x):
        y = torch.relu(x) * 2
        z = torch.linalg.cholesky(y @ y.t() + 50 * torch.eye(4))
        return (z @ z.t()).round() + 1, y

    x = whole(4, 4)
    with Counted() as count:
        got, texts = warned(lambda: compiled(function, strict=False)(x))
    same(got, function(x))
    assert count.programs == 2, count.programs
    assert len(texts) == 1 and "aten.linalg_cholesky_ex" in texts[0], texts
    fails(symplex.Unimplemented, "aten.linalg_cholesky_ex", compiled(function), x)


def test_dropout_draws_as_pytorch_does():
    drop = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.ReLU())
    x = whole(8, 4)
    run = compiled(drop, strict=False)
    torch.manual_seed(SEED)
    want = drop(x)
    torch.manual_seed(SEED)
    got, texts = warned(lambda: run(x))
    assert torch.equal(got == 0, want == 0) and torch.allclose(got, want), "other elements were dropped"
    assert len(texts) == 1 and "aten.native_dropout" in texts[0], texts


def test_graph_breaks_and_options():
    def function(x):
        y = x + 1
        print(end="")
        return y * 2

    x = whole(3)
    with Counted() as count:
        same(compiled(function, fullgraph=False)(x), function(x))
    assert count.programs == 2, count.programs
    fails(symplex.UsageError, "options: colour", compiled(lambda x: x + 1, colour=1), whole(3))
    fails(Exception, "mode", torch.compile(lambda x: x + 1, backend="symplex", mode="max-autotune"), whole(3))
    assert "symplex" in torch._dynamo.list_backends()


def test_found_by_its_name():
    """By the entry point of the wheel, in a process that imports nothing of symplex itself."""
    import tempfile
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
    import backend
    code = ("import torch; f = torch.compile(lambda x: x + 1, backend='symplex', options={'strict': True, "
            "'daemon': 'never'}); print(f(torch.ones(2)), 'symplex' in torch._dynamo.list_backends())")
    with tempfile.TemporaryDirectory() as folder:
        info = pathlib.Path(folder, "symplex-0.1.0.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(backend._metadata())
        (info / "entry_points.txt").write_text(backend.entry_points())
        path = os.pathsep.join([folder, str(pathlib.Path(os.environ["SX_BINARY_DIR"]).resolve() / "python")])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder,
                              env=dict(os.environ, PYTHONPATH=path))
    assert done.stdout.strip() == "tensor([2., 2.]) True", done


# ---- weights, statistics, training ----
def test_weights_that_change():
    layer = nn.Linear(4, 3)
    run, x = compiled(layer), whole(2, 4)

    def check():
        with torch.no_grad():
            assert torch.allclose(run(x), layer(x), rtol=0, atol=1e-5)

    before = run(x).detach()
    with torch.no_grad():
        layer.weight.add_(1)
    check()
    layer.weight.data.mul_(2)
    check()
    layer.bias.detach().numpy()[:] = 7
    check()
    layer.load_state_dict({"weight": torch.ones(3, 4), "bias": torch.zeros(3)})
    check()
    layer.weight = nn.Parameter(whole(3, 4))
    check()
    assert not torch.allclose(run(x), before)


def test_batch_norm_statistics():
    norm = nn.BatchNorm2d(3, momentum=0.25)
    theirs = copy.deepcopy(norm)
    run = compiled(norm)
    for _ in range(3):
        x = whole(2, 3, 4, 4)
        got, want = run(x), theirs(x)
        assert torch.allclose(got, want, atol=1e-5)
    for mine, other in zip(norm.buffers(), theirs.buffers()):
        assert mine.dtype == other.dtype and torch.allclose(mine, other, rtol=1e-6), (mine, other)
    assert int(norm.num_batches_tracked) == 3
    norm.eval(), theirs.eval()
    assert torch.allclose(run(x), theirs(x), atol=1e-5)


def test_gradients():
    """Of whole numbers, exact."""
    def slopes(function, *args):
        leaves = [a.clone().requires_grad_() for a in args]
        made = function(*leaves)
        (made * whole(*made.shape, low=1)).sum().backward()
        return [leaf.grad for leaf in leaves]

    for function, *args in (
            (lambda x, w: F.conv2d(x, w, stride=2, padding=1), whole(2, 4, 7, 8), whole(6, 4, 3, 3)),
            (lambda x, w: F.conv2d(x, w, dilation=2, groups=2), whole(2, 4, 7, 8), whole(6, 2, 3, 2)),
            (lambda x, w: F.conv1d(x, w, stride=3), whole(2, 4, 9), whole(6, 4, 2)),
            (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2), whole(2, 4, 3, 4),
             whole(4, 3, 3, 3)),
            (lambda x: F.max_pool2d(x, 3, 2, 1), whole(2, 3, 7, 8)),
            (lambda x: F.max_pool2d(x, 2, ceil_mode=True), whole(2, 3, 7, 9)),
            (lambda x: F.avg_pool2d(x, 2, 2) * 4, whole(2, 3, 6, 8)),
            (lambda x: F.max_pool2d(x, 9, 2, 4), whole(2, 3, 11, 12)),  # many are equal: the first one has the slope
            (lambda x: F.max_pool2d(x, (11, 7), 3, ceil_mode=True), whole(2, 3, 19, 12)),
            (lambda x: F.max_pool3d(x, (2, 5, 7), 2, (1, 2, 3)), whole(2, 3, 4, 6, 9)),
            (lambda x: F.avg_pool2d(x, 16, 3, 4) * 256, whole(2, 3, 18, 17)),
            (lambda x: F.adaptive_max_pool2d(x, (3, 5)), whole(2, 3, 7, 8)),
            (lambda x: F.embedding(torch.tensor([[0, 2, 2], [4, 0, 2]]), x, padding_idx=0), whole(5, 3)),
            (lambda x: x[torch.tensor([0, 2, 2]), :, torch.tensor([1, 1, -1])], whole(3, 2, 4)),
            (lambda x: x.gather(1, torch.tensor([[0, 0], [2, 1]])), whole(2, 3)),
            (lambda x, y: torch.cat([x.t(), y], 1).cumsum(1)[:, ::2], whole(3, 4), whole(4, 2)),
            (lambda x, y: torch.where(x > 0, x * y, y), whole(3, 4), whole(3, 4)),
            (lambda x: F.pad(x, (1, -1, 2, 0)).amax(1), torch.randperm(24).reshape(4, 6).float())):
        torch.manual_seed(SEED)
        want = slopes(function, *args)
        torch.manual_seed(SEED)
        same(slopes(compiled(function), *args), want)


def test_bags_of_rows():
    """Sums and means of four, exact: with and without a row that does not count, weights, and an empty bag."""
    bags, offsets = torch.tensor([1, 4, 0, 4, 2, 2, 3, 1, 0, 5, 4, 1]), torch.tensor([0, 4, 8, 8])
    for words in ({}, {"mode": "sum"}, {"mode": "sum", "padding_idx": 4}, {"mode": "sum", "weighed": True},
                  {"mode": "sum", "weighed": True, "padding_idx": 2}):
        weighed = words.pop("weighed", False)

        def call(table, weights):
            more = {"per_sample_weights": weights} if weighed else {}
            return F.embedding_bag(bags, table, offsets, **words, **more) * 12

        run = compiled(call)
        table, weights = whole(6, 5), whole(12)
        with torch.no_grad():
            same(compiled(call)(table, weights), call(table, weights))
        results = []
        for function in (run, call):
            leaves = [table.clone().requires_grad_(), weights.clone().requires_grad_()]
            made = function(*leaves)
            made.sum().backward()
            results.append([made.detach(), *(x.grad for x in leaves if x.grad is not None)])
        same(*results)


def test_autocast():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    x, run = torch.randn(5, 8), compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = run(x), model(x)
    exact, got_slope = copy.deepcopy(model).double()(x.double()).detach(), got
    got, want = got.detach(), want.detach()
    assert got.dtype == torch.bfloat16
    unit = torch.finfo(torch.bfloat16).eps * float(exact.abs().max())
    assert float((got - exact).abs().max()) <= max(4 * float((want - exact).abs().max()), 2 * unit)
    got_slope.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


# ---- values ----
def test_nan():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0, -inf], [inf, -1.0, 0.0, -0.0]])
    agrees(lambda x: (x.clamp(0, 1), torch.maximum(x, x.flip(1)), x.amax(1), x.argmax(1), x.max(1).indices,
                      F.relu(x), x.sum(1), torch.isnan(x), x == x, F.hardtanh(x), torch.sign(x), x.nan_to_num(3),
                      x.sort(1).values), x)
    agrees(lambda x: F.max_pool2d(x, 2), torch.tensor([[[[nan, 1.0], [2.0, 3.0]]]]))
    x = torch.full((1, 1, 9, 9), -inf)
    x[0, 0, 2, 3] = x[0, 0, 5, 1] = nan
    agrees(lambda x: (*F.max_pool2d(x, 9, 1, 4, return_indices=True), *F.adaptive_max_pool2d(
        x, 4, return_indices=True), *F.max_pool2d(x, 3, 1, 1, return_indices=True)), x)


def test_angles():
    """Each within 4 units of its own last place of the value in f64 rounded, over many sizes; and at the edges, where
    the standard of C says what they are."""
    nan, inf = float("nan"), float("inf")
    torch.manual_seed(SEED)
    sizes = torch.randn(4000, dtype=torch.float64) * 10 ** torch.randint(-8, 9, (4000,)).double()
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 1e30, -1e30], dtype=torch.float64)
    x = torch.cat([edges, sizes])
    y = torch.cat([edges.flip(0), sizes.flip(0) + 1e-9])
    for name, args in (("atan", (x,)), ("asinh", (x,)), ("asin", (x.sin(),)), ("acos", (x.sin(),)),
                       ("atanh", (x.sin(),)), ("acosh", (x.abs() + 1,)), ("atan2", (x, y)),
                       ("atan2", tuple(v.reshape(-1) for v in torch.meshgrid(edges, edges, indexing="ij")))):
        function = getattr(torch, name)
        for dtype in (torch.float32, torch.float64):
            given = [v.to(dtype) for v in args]
            got, want = compiled(function)(*given), function(*given)
            exact = function(*(v.double() for v in given))
            assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf()), name
            whole_part = want.isfinite() & (want != 0)
            assert torch.equal(got[want == 0].signbit(), want[want == 0].signbit()), name
            units = (got.double() - exact)[whole_part].abs() / (exact[whole_part].abs() * torch.finfo(dtype).eps)
            assert float(units.max()) <= 4, (name, dtype, float(units.max()), given[0][whole_part][units.argmax()])


def test_order():
    """Whole numbers, many of them equal; and NaN, which are first in some orders and last in others."""
    nan = float("nan")

    def running(x):
        return (*x.cummax(1), *x.cummin(0), x.kthvalue(3, 1).values, x.kthvalue(2, 0).values, x.median(1).values,
                x.median(), x.nanmedian(0).values)

    x = torch.tensor([[1.0, nan, 2.0, nan], [3.0, 3.0, 1.0, 3.0], [nan, nan, nan, nan]])
    agrees(running, x)
    for dtype in (torch.int64, torch.uint8, torch.float32):
        agrees(running, whole(5, 6, dtype=dtype, low=0))
        rows, sought = whole(3, 9, dtype=dtype, low=0).sort(1).values, whole(3, 7, dtype=dtype, low=0, high=5)
        agrees(lambda rows, sought: (torch.searchsorted(rows, sought), torch.bucketize(sought, rows[0], right=True),
                                     torch.searchsorted(rows, sought, side="right", out_int32=True)), rows, sought)
        agrees(lambda rows, sought: torch.searchsorted(rows.flip(1), sought, sorter=torch.arange(8, -1, -1).repeat(
            3, 1)), rows, sought)
    agrees(lambda rows, sought: torch.searchsorted(rows, sought), torch.tensor([1.0, 2.0, nan]),
           torch.tensor([nan, 0.0, 2.0, 5.0]))
    index = torch.tensor([[0, 2, 2, 4], [1, 1, 1, 1]])
    for dtype in (torch.int32, torch.uint8, torch.float32):
        x, updates = whole(2, 5, dtype=dtype, low=0, high=9), whole(2, 4, dtype=dtype, low=0, high=9)
        for reduce in ("sum", "prod", "amax", "amin", "mean"):
            agrees(lambda x, updates: (x.scatter_reduce(1, index, updates, reduce),
                                       x.scatter_reduce(1, index, updates, reduce, include_self=False)), x, updates)


def test_products_of_bytes():
    agrees(torch._int_mm, whole(19, 40, dtype=torch.int8, low=-128, high=128),
           whole(40, 24, dtype=torch.int8, low=-128, high=128))


def test_shifts():
    """By all numbers of places around those that a number has, negative ones too."""
    def shifted(x, places):
        return (x << places, x >> places, x << 2, x >> 3, torch.bitwise_left_shift(x, 1),
                torch.bitwise_right_shift(-5 if x.dtype != torch.uint8 else 250, places))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        ends = torch.iinfo(dtype)
        x = torch.tensor([0, 1, 7, ends.min, ends.max, ends.max - 11, ends.min + 5], dtype=dtype)
        places = torch.tensor([0, 1, 5, ends.bits - 1, ends.bits, ends.bits + 8, ends.max, ends.min], dtype=dtype)
        agrees(shifted, *(v.contiguous() for v in torch.meshgrid(x, places, indexing="ij")))


def test_rows_do_not_see_the_batch():
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 40), nn.Softmax(1)).eval()
    x = torch.randn(37, 64)
    with torch.no_grad():
        run = compiled(model)
        all_rows = run(x)
        for rows in (slice(0, 1), slice(5, 6), slice(30, 37), slice(3, 20)):
            assert torch.equal(run(x[rows]), all_rows[rows]), rows


def test_threads():
    """Eight threads in one compiled model, each with arguments of its own."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    with torch.no_grad():
        run = compiled(model)
        args = [torch.randn(4, 16) for _ in range(8)]
        want = [run(x) for x in args]
        bad = []

        def work(i):
            with torch.no_grad():
                bad.extend(i for _ in range(50) if not torch.equal(run(args[i]), want[i]))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not bad, bad


def digest():
    import hashlib
    from models import MODELS
    torch.manual_seed(SEED)
    kind, example = MODELS["vit"]
    model, x = kind(), example()
    loss = F.cross_entropy(compiled(model, threads=2)(x), torch.arange(x.shape[0]))
    loss.backward()
    made = hashlib.sha256(loss.detach().numpy().tobytes())
    for p in model.parameters():
        made.update(p.grad.numpy().tobytes())
    return made.hexdigest()


def test_two_processes():
    words = [sys.executable, __file__, "--digest"]
    first, second = (subprocess.run(words, check=True, capture_output=True, text=True).stdout for _ in range(2))
    assert len(first.split()[-1]) == 64 and first == second, (first, second)


def test_memory_of_arguments_is_free_again():
    """A boxed call: what only the call held is freed during it or right after, and no result keeps it."""
    import weakref
    run = compiled(lambda x: torch.relu(x @ x.t()))
    x = whole(8, 8)
    seen = weakref.ref(x)
    made = run(x)
    del x
    gc.collect()
    assert seen() is None and made.shape == (8, 8)


# ---- extents that change ----
def test_dynamic():
    layer = nn.Linear(6, 5)
    with torch.no_grad(), Counted() as count:
        f = compiled(lambda x: torch.relu(layer(x)).softmax(-1).sum(0), dynamic=None)
        sizes = [4, 7, 9, 1, 0, 33, 7, 64]
        for n in sizes:
            x = torch.randn(n, 6)
            assert torch.allclose(f(x), torch.relu(layer(x)).softmax(-1).sum(0), atol=1e-5), n
    assert count.runs >= len(sizes) - 1
    with torch.no_grad(), Counted() as count:
        f = compiled(lambda x: torch.relu(layer(x)).softmax(-1) + 1, dynamic=True)
        for n in range(2, 40):
            x = torch.randn(n, 6)
            got, want = f(x), torch.relu(layer(x)).softmax(-1) + 1
            assert got.shape == want.shape and torch.allclose(got, want, atol=1e-5), n
    assert count.programs == 4 and count.runs == 38, "three programs of their own, and one for all others"
    with torch.no_grad(), Counted() as count:
        f = compiled(lambda x: F.pad(x, (1, 0, 2, 1), value=7.0) * 2, dynamic=None)
        for n in range(2, 9):
            x = whole(n, 6)
            torch._dynamo.mark_dynamic(x, 0)
            same(f(x), F.pad(x, (1, 0, 2, 1), value=7.0) * 2)
    assert count.programs == 4 and count.runs == 7, (count.programs, count.runs)
    agrees(lambda x: (x.reshape(x.shape[0] * 2, -1), x.new_ones(x.shape[0] + 3) * 2, x.shape[0] * x.sum()), whole(5, 4),
           dynamic=True)


def test_an_interval_that_takes_too_long():
    """It is given up once, and each set of extents has its program, with the bits of the others."""
    layer, told = nn.Linear(6, 5), []
    kept, _run._WIDE_SECONDS = _run._WIDE_SECONDS, -1
    try:
        with torch.no_grad(), Counted() as count:
            f = compiled(lambda x: torch.relu(layer(x)).softmax(-1) - 1, dynamic=True,
                         progress=lambda stage, done, total: told.append(stage))
            x = torch.randn(9, 6)
            rows = [f(x[:n]) for n in range(2, 10)]
    finally:
        _run._WIDE_SECONDS = kept
    assert count.programs == 9 and count.runs == 8 and told, (count.programs, count.runs)
    for n, got in enumerate(rows, 2):
        same(got, rows[-1][:n])


def test_attention_with_fewer_heads_of_keys():
    """Strict: nothing of it, nor of its gradient, is left to PyTorch. Sums of at most 8 products of order one."""
    torch.manual_seed(SEED)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    for kv in (1, 2):
        given = [torch.randn(2, n, 6, 8) for n in (4, kv, kv)]
        ours, theirs = ([x.clone().requires_grad_() for x in given] for _ in range(2))
        weight = torch.randn(2, 4, 6, 8)
        (compiled(function)(*ours) * weight).sum().backward()
        (function(*theirs) * weight).sum().backward()
        for a, b in zip(ours, theirs):
            assert torch.allclose(a.grad, b.grad, atol=1e-5), kv
        with torch.no_grad():
            assert torch.allclose(compiled(function)(*given), function(*given), atol=1e-5), kv


def test_attention_stays_whole():
    """One operation of the program, which the compiler sees as attention; its parts written out are three."""
    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    given, texts, found = [torch.randn(2, 4, 6, 8) for _ in range(3)], [], _run.compile_bytes

    def kept(text, **options):
        texts.append(text)
        return found(text, **options)

    with mock.patch.object(_run, "compile_bytes", kept), torch.no_grad():
        assert torch.allclose(compiled(function)(*given), function(*given), atol=1e-5)
    (text,) = texts
    assert text.count(" attention(") == 1 and " dot_general(" not in text and " softmax(" not in text, text


def test_fractions_of_extents():
    """A scale that is the quotient of two extents is no whole number."""
    with Counted() as count:
        f = compiled(lambda x: F.interpolate(x, size=(33, 33), mode="nearest"), dynamic=True)
        for n in (17, 20, 40, 12, 9):
            x = whole(2, 3, n, n)
            same(f(x), F.interpolate(x, size=(33, 33), mode="nearest"))
    assert count.runs == 5, count.runs


def test_dynamic_training():
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5))
    theirs = copy.deepcopy(model)
    f = compiled(model, dynamic=True)
    for n in (3, 8, 5):
        x = torch.randn(n, 6)
        for run, owner in ((f, model), (theirs, theirs)):
            owner.zero_grad()
            run(x).square().sum().backward()
        for a, b in zip(model.parameters(), theirs.parameters()):
            assert torch.allclose(a.grad, b.grad, atol=1e-4), n


def test_rows_of_a_batch_as_one_dimension():
    """Results of [batch * length, 5]: three programs of their own, then one for all others."""
    torch.manual_seed(SEED)
    layer = nn.Linear(6, 5)
    with torch.no_grad(), Counted() as count:
        f = compiled(lambda x: (torch.relu(layer(x.reshape(-1, 6))), torch.tanh(x * 2).flatten(0, 1)), dynamic=True)
        for batch, length in ((2, 3), (3, 5), (4, 7), (5, 11), (2, 30), (7, 4), (9, 2), (6, 31)):
            x = torch.randn(batch, length, 6)
            got, want = f(x), (torch.relu(layer(x.reshape(-1, 6))), torch.tanh(x * 2).flatten(0, 1))
            for g, w in zip(got, want):
                assert g.shape == w.shape and torch.allclose(g, w, atol=1e-5), (batch, length)
    assert count.programs == 4 and count.runs == 8, (count.programs, count.runs)


def test_parts_with_extents_that_are_products():
    """The second part gets tensors of [batch * length, 6] alone."""
    def function(x):
        y = x.reshape(-1, 6) * 2 + 1
        z = torch.linalg.qr(y)[0]
        return z.abs() * 0 + y - 3

    with Counted() as count:
        f = compiled(function, strict=False, dynamic=True, fullgraph=False)
        for batch, length in ((4, 5), (3, 7)):
            x = whole(batch, length, 6)
            got, _ = warned(lambda: f(x))
            same(got, function(x))
    assert count.runs == 4, count.runs


def test_extents_that_cannot_be_compiled():
    """Known only when they come: PyTorch runs these calls, and says so."""
    def refuse(text, options, kept=_run.compiled):
        if "f32[7" in text or "in [2," in text:
            raise symplex.Unimplemented("seven")
        return kept(text, options)

    weight = whole(6, 4)
    f = compiled(lambda x: torch.relu(x @ weight) + 1, strict=False, dynamic=True)
    strict = compiled(lambda x: torch.relu(x @ weight) + 2, dynamic=True)
    with mock.patch.object(_run, "compiled", refuse):
        for n, told in ((5, 0), (7, 1), (7, 0), (6, 0)):
            x = whole(n, 6)
            got, texts = warned(lambda: f(x))
            same(got, torch.relu(x @ weight) + 1)
            assert len(texts) == told and all("seven, where" in t and "= 7" in t for t in texts), (n, texts)
        strict(whole(5, 6))
        fails(symplex.Unimplemented, "seven", strict, whole(7, 6))


def test_paths_of_pytorch_s_own():
    """What nn.TransformerEncoderLayer calls in inference, and distances."""
    x = torch.randn(2, 7, 16)
    for first, activation in ((True, "relu"), (False, "gelu")):
        layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=first, activation=activation, batch_first=True).eval()
        with torch.no_grad(), Counted() as count:
            for n in layer.parameters():
                n.copy_(torch.randn(n.shape) / 4)
            got, want = compiled(layer)(x), layer(x)
            assert count.runs > 0 and torch.allclose(got, want, atol=1e-5), (first, activation)
    a, b = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    a[0, 0] = b[0, 1]  # their distance is 0, and has no slope
    results = []
    for run in (compiled(torch.cdist), torch.cdist):
        x = a.clone().requires_grad_()
        made = run(x, b)
        results += [made, *torch.autograd.grad(made.sum(), x)]
    assert torch.allclose(results[0], results[2], atol=1e-6) and torch.allclose(results[1], results[3], atol=1e-5)


def test_gradients_of_pairs():
    """Even and odd places of short rows, as in rotary positions; and of many tensors put together."""
    def turn(x, angle):
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * angle - odd, even + odd * angle), -1).flatten(-2)

    x, angle = whole(2, 10, 4, 16).requires_grad_(), whole(10, 1, 8)
    same(torch.autograd.grad(compiled(turn)(x, angle).square().sum(), x), torch.autograd.grad(
        turn(x, angle).square().sum(), x))
    agrees(lambda *parts: torch.stack(parts, 1) * 2, *[whole(3, 4) for _ in range(50)])


def main():
    if sys.argv[1:] == ["--digest"]:
        sys.path.insert(0, str(pathlib.Path(__file__).parent))
        print(digest())
        return
    run(globals())


if __name__ == "__main__":
    main()
