#!/usr/bin/env python3
"""Warm starts of torch.compile(backend="symplex"): what AOT autograd and the compiler made is kept by the graph that
Dynamo traced. Both are counted where they are called, so a start that says it was warm and was not is seen.

    test_torch_warm.py [NAME ...]        these functions alone
"""
import copy
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"), str(ROOT / "tests" / "daemon")]
os.environ.setdefault("SYMPLEX_SOCKET", "/nowhere/symplex.sock")
if "SYMPLEX_CACHE_DIR" not in os.environ:
    os.environ["SYMPLEX_CACHE_DIR"] = tempfile.mkdtemp(prefix="sxw.")
import torch  # noqa: E402
import torch._functorch.aot_autograd as aot  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import symplex.torch  # noqa: E402
from models import MODELS  # noqa: E402
from runner import SEED, run  # noqa: E402
from symplex.torch import _entries, _key, _run  # noqa: E402

FOLDER = pathlib.Path(os.environ["SYMPLEX_CACHE_DIR"]) / "torch"


class Counted:
    """How many programs were compiled, how many graphs AOT autograd traced, and what became of entries."""

    def __enter__(self):
        self.before = symplex.torch.warm_starts()
        compiling, tracing = _run.compile_bytes, aot.aot_stage1_graph_capture
        self.stack = [mock.patch.object(_run, "compile_bytes", side_effect=compiling),
                      mock.patch.object(aot, "aot_stage1_graph_capture", side_effect=tracing)]
        self.calls = [p.__enter__() for p in self.stack]
        return self

    def __exit__(self, *_):
        for p in self.stack:
            p.__exit__(None, None, None)
        self.programs, self.traced = (c.call_count for c in self.calls)
        after = symplex.torch.warm_starts()
        self.reasons = [r for r, n in after.pop("reasons").items() if n != self.before["reasons"].get(r, 0)]
        for name, n in after.items():
            setattr(self, name, n - self.before[name])


def compiled(function, **options):
    torch._dynamo.reset()
    _run._modules.clear()
    return torch.compile(function, backend="symplex", fullgraph=True, dynamic=False,
                         options={"daemon": "never", "threads": 1, **options})


def clear():
    shutil.rmtree(FOLDER, ignore_errors=True)


def entries():
    return sorted(FOLDER.iterdir()) if FOLDER.exists() else []


def values(made):
    return [x.detach() for x in (made if isinstance(made, (list, tuple)) else [made])]


def warm(function, *args, context=None, **options):
    """The results of a start that must be warm, after one that must not be."""
    clear()

    def once():
        given = [copy.deepcopy(a) for a in args]
        torch.manual_seed(SEED)
        made = compiled(function, **options)(*given)
        return [*values(made), *[a for a in given if isinstance(a, torch.Tensor)]]

    with Counted() as cold:
        first = once()
    assert (cold.hits, cold.kept) == (0, 1) and cold.traced == 1, (vars(cold), cold.reasons)
    with Counted() as count:
        second = once()
    assert (count.hits, count.programs, count.traced) == (1, 0, 0), (vars(count), count.reasons)
    for a, b in zip(first, second, strict=True):
        assert a.stride() == b.stride() and torch.equal(a, b), (a, b)
    return second


def never(reason, function, *args, **options):
    """A graph of which nothing is kept, for that reason."""
    clear()
    for _ in range(2):
        with Counted() as count:
            compiled(function, **options)(*args)
        assert (count.hits, count.kept, count.traced) == (0, 0, 1), vars(count)
        assert any(reason in r for r in count.reasons), (reason, count.reasons)
    assert not entries(), entries()


# ---- another process ----
def one_start(name):
    """Inference and two steps of training, and what of it was compiled."""
    torch.manual_seed(SEED)
    kind, example = MODELS[name]
    model, x = kind(), example()
    made = hashlib.sha256()
    with Counted() as count:
        run = torch.compile(model, backend="symplex", options={"strict": True, "threads": 1})
        with torch.no_grad():
            made.update(run(x).numpy().tobytes())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(run(x), torch.arange(x.shape[0])).backward()
            optimizer.step()
    for value in model.state_dict().values():
        made.update(value.numpy().tobytes())
    print(json.dumps({"digest": made.hexdigest(), "hits": count.hits, "kept": count.kept, "programs": count.programs,
                      "traced": count.traced, "damaged": count.damaged}))


def start(name, code=None, **env):
    words = [sys.executable, __file__, "--start", name] if code is None else [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})


def result(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_second_process_of_each_model():
    with tempfile.TemporaryDirectory(prefix="sxw.") as folder:
        for name in ("resnet", "gpt2", "lstm"):
            first, second = (result(start(name, SYMPLEX_CACHE_DIR=folder)) for _ in range(2))
            assert (first["hits"], first["kept"], first["traced"], first["programs"]) == (0, 2, 2, 3), (name, first)
            assert (second["hits"], second["programs"], second["traced"]) == (2, 0, 0), (name, second)
            assert first["digest"] == second["digest"], name


def test_processes_share_a_daemon():
    from wire import Daemon
    with tempfile.TemporaryDirectory(prefix="sxw.") as folder, Daemon(program="symplexd") as daemon:
        env = {"SYMPLEX_SOCKET": str(daemon.path), "SYMPLEX_CACHE_DIR": folder}
        first, second = (result(start("llama", **env)) for _ in range(2))
        assert first["kept"] == 2 and (second["hits"], second["programs"], second["traced"]) == (2, 0, 0), second
        assert first["digest"] == second["digest"] and not list(pathlib.Path(folder).iterdir())
        daemon.kill()
        third, fourth = (result(start("llama", **env)) for _ in range(2))
        assert third["traced"] == 2 and fourth["hits"] == 2 and len(list(pathlib.Path(folder, "torch").iterdir())) == 2
        assert fourth["digest"] == first["digest"]


def test_killed_writer():
    """A process that dies with its entry half written leaves none, and what it leaves is cleared away."""
    die = ("import os, signal, sys; sys.argv = ['', '--start', 'llama']; "
           "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
           f"__file__ = {__file__!r}; exec(compile(open(__file__).read(), __file__, 'exec'))")
    with tempfile.TemporaryDirectory(prefix="sxw.") as folder:
        env = {"SYMPLEX_CACHE_DIR": folder, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        assert start("llama", die, **env).returncode == -signal.SIGKILL
        (left,) = pathlib.Path(folder, "torch").iterdir()
        assert left.name.startswith("new.") and left.stat().st_size > 0
        os.utime(left, (time.time() - 2 * _entries._LEFT_OVER_S,) * 2)
        second = result(start("llama", **env))
        assert (second["hits"], second["kept"], second["damaged"]) == (0, 2, 0), second
        assert not left.exists() and len(list(pathlib.Path(folder, "torch").iterdir())) == 2


# ---- what a hit gives ----
def test_results():
    x, y = torch.randint(-3, 4, (3, 4)).float(), torch.randint(-3, 4, (3, 4)).float()

    def in_place(x, y):
        x.add_(y)
        v = x[0]
        v.mul_(2)
        return v * 1, y.t(), x.sum(0)

    warm(in_place, x, y)
    warm(lambda x: (x + 1, x.t(), x * torch.tensor([1.0, 2.0, 3.0, 4.0]), x.sum()), x)
    warm(lambda x: (x + 1, F.relu(x)), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    warm(lambda x: x.t(), x)  # nothing is computed
    warm(lambda x: torch.full((2, 3), float("nan")).nan_to_num(2.5) + x.sum(), x)


def test_views_stay_views():
    x = torch.randn(3, 4)
    for _ in range(2):
        view, same = compiled(lambda x: (x.t(), x))(x)
        assert view.data_ptr() == x.data_ptr() and same is x
    assert symplex.torch.warm_starts()["hits"] > 0


def test_statistics_and_gradients():
    norm = nn.BatchNorm1d(3, momentum=0.25)

    def step(norm, x):
        norm(x).square().sum().backward()
        return [p.grad for p in norm.parameters()] + [b.clone() for b in norm.buffers()]

    clear()
    made = []
    for want in (0, 1, 1):
        mine, x = copy.deepcopy(norm), torch.arange(12.0).reshape(4, 3).square()
        with Counted() as count:
            made.append(step(compiled(mine), x))
        assert count.hits == want, vars(count)
    for a, b in zip(made[0], made[1]):
        assert torch.equal(a, b), (a, b)
    want = step(copy.deepcopy(norm), x)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(made[2], want))


def test_changed_weights_are_used():
    layer, x = nn.Linear(4, 3), torch.randint(-3, 4, (2, 4)).float()
    clear()
    with torch.no_grad():
        for n, want in ((1, 0), (2, 1), (3, 1)):
            layer.weight.copy_(torch.full((3, 4), float(n)))
            layer.bias.fill_(n)
            with Counted() as count:
                run = compiled(layer)
                assert torch.equal(run(x), layer(x)), n
            assert count.hits == want, vars(count)
            layer.weight.add_(1)
            assert torch.equal(run(x), layer(x)), "a hit keeps weights"


def test_parts_of_pytorch():
    """Their warning is given again, and they draw the numbers that PyTorch draws."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.ReLU())
    clear()
    for want in (0, 1):
        with Counted() as count, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.manual_seed(SEED)
            got = compiled(model)(torch.ones(8, 4))
            got.sum().backward()
        assert count.hits == want and count.programs == (0 if want else count.programs), vars(count)
        texts = [str(w.message) for w in caught if str(w.message).startswith("symplex")]
        assert len(texts) == 1 and "aten.native_dropout" in texts[0], texts
        torch.manual_seed(SEED)
        assert torch.allclose(got, model(torch.ones(8, 4)), atol=1e-6)


# ---- symbolic extents ----
def symbolic(function, **options):
    return torch.compile(function, backend="symplex", fullgraph=True, dynamic=True,
                         options={"daemon": "never", "threads": 1, **options})


def extents_in_turn(extents):
    """Inference and slopes of one function with these extents, which Dynamo finds to be dynamic at the second."""
    torch.manual_seed(SEED)
    layer = nn.Linear(6, 5)

    def function(x):
        return torch.relu(layer(x)).softmax(-1) + 1

    made = hashlib.sha256()
    run = torch.compile(function, backend="symplex", options={"threads": 1, "strict": True, "daemon": "never"})
    with Counted() as count:
        for n in extents:
            x = torch.randn(n, 6)
            for context in (torch.no_grad, torch.enable_grad):
                with context():
                    got, want = run(x), function(x)
                assert got.shape == want.shape and torch.allclose(got, want, atol=1e-6), n
                made.update(got.detach().numpy().tobytes())
            slopes = torch.autograd.grad(got.square().sum(), layer.parameters())
            for g, w in zip(slopes, torch.autograd.grad(want.square().sum(), layer.parameters())):
                assert torch.allclose(g, w, rtol=1e-4, atol=1e-5), n
                made.update(g.numpy().tobytes())
    return {"digest": made.hexdigest(), "hits": count.hits, "misses": count.misses, "programs": count.programs,
            "traced": count.traced, "reasons": count.reasons}


def test_symbolic_extents():
    """A start finds the programs of each set of extents that there was, and makes those that are missing, which the
    next one finds. The last start is another process."""
    def run(*extents):
        torch._dynamo.reset()
        _run._modules.clear()
        made = extents_in_turn(extents)
        assert not made["reasons"], made
        return made

    def counts(made):
        return made["hits"], made["misses"], made["traced"], made["programs"]

    clear()
    first, again = run(4, 7), run(4, 7)
    assert counts(first) == (0, 4, 4, 6) and counts(again) == (4, 0, 0, 0), (first, again)
    assert first["digest"] == again["digest"]
    assert counts(run(4, 7, 8)) == (4, 0, 0, 3)
    wide = run(4, 20, 21)
    assert counts(wide)[:3] == (4, 0, 0) and wide["programs"] > 3, wide
    assert counts(run(4, 33)) == (4, 0, 0, 0), "the modules of intervals serve inference and slopes"
    other = result(subprocess.run([sys.executable, __file__, "--extents", "4,20,21"], capture_output=True, text=True))
    assert counts(other) == (4, 0, 0, 0) and other["digest"] == wide["digest"], other


def test_what_decides_about_symbols():
    """AOT autograd finds conditions of its own, here by a decomposition that asks whether a number of rows is even.
    After a hit Dynamo checks them as it did when they were found, and others have another entry by the same key."""
    asked = []

    def decomposed(x):
        asked.append(x.shape[0])
        return torch.ops.aten.mul.Tensor(x, 2 if x.shape[0] % 2 == 0 else 3)

    def function(x):
        return F.hardswish(x) + 1

    def check(run, n):
        with Counted() as count:
            got = run(torch.full((n, 4), 5.0))
        assert torch.equal(got, torch.full((n, 4), 11.0 if n % 2 == 0 else 16.0)), n
        return count

    def first(n):
        torch._dynamo.reset()
        run = symbolic(function)
        return run, check(run, n)

    clear()
    table = {torch.ops.aten.hardswish.default: decomposed}
    with mock.patch.dict(symplex.torch._backend.decompositions(), table):
        assert [first(n)[1].hits for n in (8, 7, 8, 10, 9)] == [0, 0, 1, 1, 1]
        assert len(asked) == 2
        run, count = first(8)
        assert (count.hits, count.traced) == (1, 0)
        count = check(run, 30)
        assert (count.hits, count.misses) == (0, 0), "extents that meet the conditions need no other graph"
        count = check(run, 31)
        assert (count.hits, count.misses) == (1, 0), "a condition of AOT autograd was lost"
        check(run, 32)
    assert len(asked) == 2


def test_symbols_in_the_key():
    """What is known of a symbol is part of the key, though the graphs are the same."""
    def call(function):
        def made():
            torch._dynamo.reset()
            assert torch.equal(symbolic(function)(torch.ones(9, 4)), torch.full((9, 4), 2.0))
        return made

    above_2 = call(lambda x: x * 2 if x.shape[0] > 2 else x * 2)

    def fixed():
        compiled(lambda x: x * 2)(torch.ones(9, 4))

    misses(above_2, call(lambda x: x * 2 if x.shape[0] > 5 else x * 2))
    misses(above_2, fixed)
    clear()
    above_2()
    with Counted() as count:
        torch._dynamo.reset()
        run = symbolic(lambda x: x * 2 if x.shape[0] > 2 else x * 2)
        for n in (5, 6, 1, 40):
            assert torch.equal(run(torch.ones(n, 4)), torch.full((n, 4), 2.0))
    assert count.hits == 1, vars(count)


def test_symbols_of_parts_of_pytorch():
    """Parts that PyTorch runs between compiled ones, for extents that the kept entry has not seen."""
    def function(x):
        return torch.logcumsumexp((x * 2).abs() + 40, 0).round() + 1

    clear()
    for extents, want in (((4, 5), 0), ((6, 5), 1)):
        torch._dynamo.reset()
        run = symbolic(function)
        with Counted() as count, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for n in extents:
                x = torch.randint(-3, 4, (n, 3)).float()
                assert torch.equal(run(x), function(x))
        assert (count.hits, count.traced) == (want, 1 - want), (vars(count), count.reasons)


# ---- what is another graph, and what is none ----
def misses(first, second):
    """Two calls, each after a reset of Dynamo: the second has an entry of its own, and both then have theirs."""
    clear()
    for call, want in ((first, 0), (second, 0), (first, 1), (second, 1)):
        with Counted() as count:
            call()
        assert (count.hits, count.traced) == (want, 1 - want), (vars(count), count.reasons)


def test_what_is_in_the_key():
    def f(x):
        return x * 2 + 1

    x = torch.randn(4, 4)

    def of(*args, function=f, **options):
        return lambda: compiled(function, **options)(*args)

    misses(of(x), of(torch.randn(4, 5)))
    misses(of(x[:2]), of(x[:3]))  # in the same memory, with the same strides
    misses(of(x), of(x.double()))
    misses(of(x), of(x.view(torch.int32)))
    misses(of(x), of(x.t()))
    leaf = x.clone().requires_grad_()
    misses(of(x), lambda: compiled(f)(leaf).sum().backward())
    misses(of(x), of(x, function=lambda x: x * 2 + 1.5))
    misses(of(x), of(x, function=lambda x: x * 2 - 1))
    misses(of(x), of(x, function=lambda x: 1 + x * 2 + 0))
    misses(of(x), of(x, exact=True))
    misses(of(x, function=lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0])),
           of(x, function=lambda x: x + torch.tensor([1.0, 2.0, 3.0, 5.0])))
    misses(of(x, function=lambda x: x[1:]), of(x, function=lambda x: x[:1]))
    misses(of(x, function=lambda x: x.sum(0) + 1), of(x, function=lambda x: x.sum((0,), True) + 1))


def test_the_compiler_is_in_the_key():
    x, own = torch.randn(4, 4), _key._c.toolchain

    def f(x):
        return x * 5 + 1

    def by(toolchain):
        def call():
            _key._c.toolchain = toolchain
            _key._here.cache_clear()
            compiled(f)(x)
        return call

    try:
        misses(by(own), by(own + "0"))
    finally:
        by(own)()


def test_state_is_in_the_key():
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)

    def within(*contexts):
        def call():
            import contextlib
            with contextlib.ExitStack() as stack:
                for enter in contexts:
                    stack.enter_context(enter())
                compiled(lambda x: F.linear(x, layer.weight.detach()))(x)
        return call

    def version(name):
        _key._here.cache_clear()
        return mock.patch.object(torch, "__version__", name)

    misses(within(), within(torch.no_grad))
    misses(within(), within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)))
    misses(within(lambda: torch.autocast("cpu", dtype=torch.float16)),
           within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)))
    misses(within(), within(lambda: torch._functorch.config.patch(activation_memory_budget=0.5)))
    misses(within(lambda: version("2.15.0")), within(lambda: version("2.15.1")))
    _key._here.cache_clear()
    misses(within(), within(lambda: mock.patch.object(_key, "_here", return_value=("another processor",))))


def test_graphs_in_graphs():
    """What torch.cond carries is in the key."""
    x = torch.rand(3, 4)

    def either(factor):
        return lambda x: torch.cond(x.sum() > 0, lambda x: x * factor, lambda x: x + 1, (x,))

    warm(either(2.0), x)
    misses(lambda: compiled(either(2.0))(x), lambda: compiled(either(3.0))(x))


def test_what_is_never_kept():
    x = torch.randn(4, 4)
    @torch.library.custom_op("sxwarm::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        never("in the same memory", lambda a, b: a.add_(b), x, x[:, :])
        never("sxwarm.twice", lambda x: torch.ops.sxwarm.twice(x) + 1, x)
    clear()
    with Counted() as count:
        compiled(lambda x: x * 2, warm=False)(x)
    assert (count.hits, count.misses, count.kept) == (0, 0, 0) and not entries()


def test_refresh_replaces():
    x = torch.randn(4)
    warm(lambda x: x * 3, x)
    (entry,) = entries()
    os.utime(entry, (1, 1))
    with Counted() as count:
        compiled(lambda x: x * 3, refresh=True)(x)
    assert (count.hits, count.programs, count.kept) == (0, 1, 1) and entry.stat().st_mtime > 1, vars(count)


# ---- entries as bytes ----
def test_damage_is_refused_and_replaced():
    x = torch.randn(4, 4)

    def call():
        with Counted() as count:
            got = compiled(lambda x: torch.relu(x) * 3)(x)
        assert torch.equal(got, torch.relu(x) * 3)
        return count

    clear()
    call()
    (entry,) = entries()
    good = entry.read_bytes()
    other = entry.with_name("f" * 64)
    for bad in (b"", good[:10], good[:-1], good + b"x", b"X" + good[1:], good[:20] + bytes([good[20] ^ 1]) + good[21:],
                good[:-9] + bytes([good[-9] ^ 64]) + good[-8:], _entries._head(other.name, b"") + good[40:],
                _entries._head(entry.name, b"no pickle") + b"no pickle",
                _entries._head(entry.name, b"I1\n.") + b"I1\n."):
        entry.write_bytes(bad)
        count = call()
        assert (count.hits, count.damaged, count.kept, count.programs) == (0, 1, 1, 1), (bad[:50], vars(count))
        assert call().hits == 1, "the entry was not replaced"


def test_folder_that_others_may_write():
    """What is read is trusted as a program is, so a folder that is not the user's own is left alone."""
    x = torch.randn(4)
    warm(lambda x: x * 5, x)
    FOLDER.chmod(0o777)
    with Counted() as count:
        compiled(lambda x: x * 5)(x)
    assert (count.hits, count.kept, count.traced) == (0, 0, 1), vars(count)
    FOLDER.chmod(0o700)
    with Counted() as count:
        compiled(lambda x: x * 5)(x)
    assert count.hits == 1


def test_no_folder():
    """A home that cannot be written: nothing is kept, and everything works."""
    with tempfile.NamedTemporaryFile() as file, mock.patch.dict(os.environ, SYMPLEX_CACHE_DIR=file.name):
        with Counted() as count:
            assert torch.equal(compiled(lambda x: x * 7)(torch.ones(3)), torch.full((3,), 7.0))
    assert count.kept == 0 and "no room for entries" in count.reasons, vars(count)


def test_eviction():
    """Beyond the limit, what was used longest ago goes."""
    clear()
    folder = _entries._Folder()
    with mock.patch.object(_entries, "_FOLDER_BYTES_MAX", 2500):
        for i in range(4):
            folder.put(str(i), bytes(1000))
            os.utime(FOLDER / str(i), (i + 1, i + 1))
        assert [e.name for e in entries()] == ["2", "3"], entries()
        assert folder.get("2") is not None  # used now
        folder.put("4", bytes(1000))
        assert [e.name for e in entries()] == ["2", "4"], entries()


def main():
    if sys.argv[1:2] == ["--start"]:
        return one_start(sys.argv[2])
    if sys.argv[1:2] == ["--extents"]:
        return print(json.dumps(extents_in_turn([int(n) for n in sys.argv[2].split(",")])))
    return run(globals())


if __name__ == "__main__":
    main()
