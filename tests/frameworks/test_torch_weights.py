#!/usr/bin/env python3
"""Parameters and buffers in inference: work on them is done once, and again when they change. PyTorch's eager results
are the oracle; numbers are small and whole, so equal means equal.

    test_torch_weights.py [NAME ...]        these functions alone
"""
import copy
import gc
import os
import pathlib
import sys
import threading
import weakref

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import symplex  # noqa: E402
import symplex.torch  # noqa: E402
from runner import run  # noqa: E402
from symplex.torch import _run, _weights  # noqa: E402

OPTIONS = {"strict": True, "daemon": "never", "threads": 2, "warm": False, "freeze": "auto"}


def whole(*shape, dtype=torch.float32, low=-3, high=4):
    return torch.randint(low, high, shape).to(dtype)


class Two(nn.Module):
    """Two products; of the second one the weight lies turned. All numbers stay below 2^24."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 48)
        self.second = nn.Parameter(whole(24, 48).t())
        self.table = nn.Parameter(whole(10, 24))
        self.register_buffer("shift", whole(24))
        self.register_buffer("gaps", whole(24, 2)[:, 1])
        with torch.no_grad():
            for p in self.first.parameters():
                p.copy_(whole(*p.shape))

    def forward(self, x, rows):
        return F.relu(self.first(x)) @ self.second + self.table[rows] + self.shift + self.gaps


def model_and_arguments():
    return Two().eval(), (whole(16, 32), torch.randint(0, 10, (16,)))


def compiled(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend="symplex", fullgraph=True, dynamic=False, options={**OPTIONS, **options})


class Binds:
    """How often weights are bound, and how many programs are compiled."""

    def __enter__(self):
        self.binds = self.programs = 0
        self.kept = _run.compile_bytes, _run.opened
        _run._modules.clear()

        def compile_bytes(*args, **keywords):
            self.programs += 1
            return self.kept[0](*args, **keywords)

        _run.compile_bytes = compile_bytes
        _run.opened = lambda *args: Watched(self.kept[1](*args), self)
        return self

    def __exit__(self, *_):
        _run.compile_bytes, _run.opened = self.kept


class Watched:
    def __init__(self, module, count):
        self.module, self.count = module, count

    def __getattr__(self, name):
        return getattr(self.module, name)

    def __call__(self, *args, **keywords):
        return self.module(*args, **keywords)

    def share(self):
        return Watched(self.module.share(), self.count)

    def _bind_weights(self, *args):
        self.count.binds += 1
        return self.module._bind_weights(*args)


def check(run, model, args):
    with torch.no_grad():
        assert torch.equal(run(*args), model(*args))


def test_work_is_done_once():
    model, args = model_and_arguments()
    with Binds() as count:
        run = compiled(model)
        for _ in range(5):
            check(run, model, args)
        (module,) = _run._modules.values()
    assert (count.binds, count.programs) == (1, 1), (count.binds, count.programs)
    assert len(module.weights) == 6 and len(module.inputs) == 2, (module.weights, module.inputs)
    # as much of the work as the compiler moves to the weights of a model that carries them: both products have panels
    shared = module.module.share()
    for t in shared.weights:
        shared.bind_weight(t.name, whole(*t.shape).numpy())
    given = [(whole(*t.shape) if t.dtype == "float32" else torch.zeros(t.shape, dtype=getattr(torch, t.dtype))).numpy()
             for t in shared.inputs]
    times = [shared.profile(*given)[1] for _ in range(2)]
    once = [[row["kernel"] for row in rows if row["once"] and row["ns"] > 0] for rows in times]
    assert len(once[0]) >= 2 and once[1] == [], once


CHANGES = {
    "in place": lambda m: m.first.weight.mul_(2),
    "in place, by rows": lambda m: m.second[3:5].add_(1),
    "load_state_dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "load_state_dict, assigned": lambda m: m.load_state_dict({k: v - 1 for k, v in m.state_dict().items()},
                                                             assign=True),
    "replaced": lambda m: setattr(m.first, "weight", nn.Parameter(whole(48, 32))),
    "data": lambda m: setattr(m.first.weight, "data", whole(48, 32)),
    "data, of the same memory as before the last": lambda m: [setattr(m.first.weight, "data", whole(48, 32))
                                                             for _ in range(3)],
    "data, turned the other way": lambda m: setattr(m.second, "data", m.second.data.t().contiguous().t()),
    "data, of what no work is done on": lambda m: setattr(m.table, "data", whole(10, 24)),
    "data, alike where it is looked at": lambda m: setattr(m.first.weight, "data", between(m.first.weight)),
    "a row of data": lambda m: m.first.weight.data[5].add_(1),
    "a column of data": lambda m: m.first.weight.data[:, 7].sub_(1),
    "elements of data": lambda m: m.first.weight.data.add_(1),
    "elements of a NumPy array": lambda m: m.first.weight.data.numpy().__iadd__(1),
    "what no work is done on": lambda m: m.table.data[:, 5].add_(3),
    "a buffer": lambda m: m.shift.mul_(3),
    "a buffer with gaps": lambda m: m.gaps.mul_(-2),
    "a buffer, replaced": lambda m: setattr(m, "shift", whole(24)),
    "an optimizer": lambda m: optimize(m),
}


def between(weight):
    """A copy that differs in few elements."""
    made = weight.data.clone()
    made[1, 5:7] += 1
    return made


def optimize(model):
    """One step on gradients that are whole numbers."""
    step = torch.optim.SGD(model.parameters(), lr=1.0)
    for p in model.parameters():
        p.grad = whole(*p.shape)
    step.step()
    step.zero_grad()


def test_changes_are_seen():
    for mode in ("auto", False):
        model, args = model_and_arguments()
        run = compiled(model, freeze=mode)
        check(run, model, args)
        for name, change in CHANGES.items():
            with torch.no_grad():
                before = model(*args)
                change(model)
                moved = not torch.equal(model(*args), before)
            assert moved or name == "data, turned the other way", name
            for _ in range(2):
                try:
                    check(run, model, args)
                except AssertionError:
                    raise AssertionError(f"freeze {mode!r}: {name}") from None


def test_what_is_not_seen():
    """Elements that change without PyTorch's counter, between the words that are looked at."""
    model, args = model_and_arguments()
    run = compiled(model)
    check(run, model, args)
    with torch.no_grad():
        old = model(*args)
        model.first.weight.data[1, 5:7].add_(1)
        assert not torch.equal(model(*args), old) and torch.equal(run(*args), old)
        torch.autograd.graph.increment_version(model.first.weight)
    check(run, model, args)


def test_frozen():
    model, args = model_and_arguments()
    run = compiled(model, freeze=True)
    check(run, model, args)
    with torch.no_grad():
        old = model(*args)
        model.first.weight.mul_(2)
        assert torch.equal(run(*args), old)
        model.first.weight = nn.Parameter(whole(48, 32))
    check(run, model, args)


def test_equal_models_share_a_program():
    models = [model_and_arguments() for _ in range(3)]
    with Binds() as count:
        torch._dynamo.reset()
        runs = [torch.compile(m, backend="symplex", fullgraph=True, dynamic=False, options=OPTIONS) for m, _ in models]
        for _ in range(4):
            for run, (model, args) in zip(runs, models):
                check(run, model, args)
    assert (count.binds, count.programs) == (3, 1), (count.binds, count.programs)


def test_layers_of_one_code():
    """Dynamo compiles the code of equal layers once: one graph is called with the weights of each."""
    layers = [Two().eval() for _ in range(4)]
    x, rows = whole(16, 32), torch.randint(0, 10, (16,))
    with Binds() as count:
        torch._dynamo.reset()
        for layer in layers:
            layer.compile(backend="symplex", fullgraph=True, dynamic=False, options=OPTIONS)
        for _ in range(3):
            for layer in layers:
                with torch.no_grad():
                    assert torch.equal(layer(x, rows), layer.forward(x, rows))
    assert count.binds == len(layers) and count.programs == 1, (count.binds, count.programs)


def test_threads():
    models = [model_and_arguments() for _ in range(3)]
    torch._dynamo.reset()
    runs = [torch.compile(m, backend="symplex", fullgraph=True, dynamic=False, options=OPTIONS) for m, _ in models]
    with torch.no_grad():
        wants = [model(*args) for model, args in models]
        for run, (_, args) in zip(runs, models):
            run(*args)
    wrong = []

    def work(i):
        with torch.no_grad():
            for _ in range(200):
                if not torch.equal(runs[i](*models[i][1]), wants[i]):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i % 3,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong


def test_memory_goes_with_the_model():
    model, args = model_and_arguments()
    other = copy.deepcopy(model)
    torch._dynamo.reset()
    module_of = []
    share = symplex.Module.share

    def shared(self):
        made = share(self)
        module_of.append(weakref.ref(made))
        return made

    symplex.Module.share = shared
    try:
        function = torch.compile(lambda m, *a: m(*a), backend="symplex", fullgraph=True, dynamic=False, options=OPTIONS)
        with torch.no_grad():
            for m in (model, other):
                assert torch.equal(function(m, *args), m(*args))
    finally:
        symplex.Module.share = share
    storage = weakref.ref(model.first.weight.untyped_storage())
    assert len(module_of) == 2 and all(m() is not None for m in module_of)
    del model, m
    gc.collect()
    assert storage() is None and module_of[0]() is None and module_of[1]() is not None
    with torch.no_grad():
        assert torch.equal(function(other, *args), other(*args))


def test_training_keeps_arguments():
    model, args = model_and_arguments()
    with Binds() as count:
        run = compiled(model)
        for _ in range(3):
            loss = run(*args).sum()
            loss.backward()
            mine = [p.grad.clone() for p in model.parameters()]
            model.zero_grad()
            model(*args).sum().backward()
            assert all(torch.equal(a, p.grad) for a, p in zip(mine, model.parameters()))
            optimize(model)
        assert not any(module.weights for module in _run._modules.values())
        check(run, model, args)  # another graph, without gradients
        check(run, model, args)
    assert count.binds == 1, count.binds


class Cache(nn.Module):
    """Rows that each call writes, and a weight."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 16))
        self.weight = nn.Parameter(whole(16, 16))

    def forward(self, x, at):
        before = self.rows @ self.weight
        self.rows.index_copy_(0, at, x)
        return before + self.rows


def test_what_a_graph_changes_is_no_weight():
    model = Cache().eval()
    mine = copy.deepcopy(model)
    with Binds() as count:
        run = compiled(mine)
        with torch.no_grad():
            for i in range(5):
                x, at = whole(2, 16), torch.tensor([i, i + 1])
                assert torch.equal(run(x, at), model(x, at)) and torch.equal(mine.rows, model.rows)
    assert count.binds == 1, count.binds


def test_statistics():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    x = torch.randn(2, 3, 10, 10)
    run = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(run(x), model(x), atol=1e-5)
            model.train()
            model(x * 3 + 1)
            model.eval()


def test_inference_mode():
    """Changes of its tensors are not counted: work on them is done in each call, but where the user says not to."""
    model, args = model_and_arguments()
    run = compiled(model)
    with torch.inference_mode():
        for _ in range(2):
            assert torch.equal(run(*args), model(*args))
            with torch.no_grad():
                model.first.weight.mul_(2)
        made = Two().eval()
        other = compiled(made)
        for _ in range(3):
            assert torch.equal(other(*args), made(*args))
            made.first.weight[1, 1:3] += 1
        with Binds() as count:
            frozen = compiled(made, freeze=True)
            assert all(torch.equal(frozen(*args), made(*args)) for _ in range(3)) and count.binds == 1


def test_warm_starts(tmp=None):
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SYMPLEX_CACHE_DIR"] = folder
        options = {"warm": True, "daemon": "auto"}
        model, args = model_and_arguments()
        before = symplex.torch.warm_starts()["hits"]
        for _ in range(2):
            run = compiled(model, **options)
            check(run, model, args)
            with torch.no_grad():
                model.first.weight.mul_(2)
            check(run, model, args)
        assert symplex.torch.warm_starts()["hits"] == before + 1, symplex.torch.warm_starts()
        run = compiled(model, freeze=False, **options)  # another program
        check(run, model, args)
        assert symplex.torch.warm_starts()["hits"] == before + 1, symplex.torch.warm_starts()
        del os.environ["SYMPLEX_CACHE_DIR"]


def test_exported():
    model, args = model_and_arguments()
    run = symplex.torch.from_exported(torch.export.export(model, args), daemon="never", strict=True, freeze="auto")
    for change in (None, "in place", "in place, by rows", "elements of data", "a buffer"):
        with torch.no_grad():
            if change:
                CHANGES[change](model)
            assert torch.equal(run(*args), model(*args)), change
    run.state["first.weight"] = whole(48, 32)
    with torch.no_grad():
        model.first.weight = nn.Parameter(run.state["first.weight"])
    assert torch.equal(run(*args), model(*args))


def test_wrong_option():
    model, args = model_and_arguments()
    try:
        compiled(model, freeze="always")(*args)
    except Exception as error:
        assert "freeze = 'always', known are 'auto', True and False" in str(error), error
    else:
        raise AssertionError("no error")
    assert [_weights.mode_of(m) for m in _weights.MODES] == list(_weights.MODES)


if __name__ == "__main__":
    run(globals())
