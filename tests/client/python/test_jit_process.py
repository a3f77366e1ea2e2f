#!/usr/bin/env python3
"""Traced functions where processes and threads are in the way: many threads, fork, multiprocessing, Ctrl-C while it
compiles, no daemon, no home that can be written, exceptions while it traces; the line of progress."""
import io
import logging
import multiprocessing
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
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402

import symplex  # noqa: E402
from symplex._trace.graph import current  # noqa: E402
from symplex._trace.progress import Line  # noqa: E402
from small import fails  # noqa: E402

F32 = np.arange(12, dtype=np.float32).reshape(3, 4) % 7 - 3
DEADLINE_S = 120


def jit(function, **options):
    return symplex.jit(function, threads=1, **options)


def ends_well(child):
    """The child's status is 0, before the deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child did not end")


def in_child(function):
    child = os.fork()
    if child == 0:
        code = 3
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    ends_well(child)


def test_threads_share_one_function():
    """All begin at once: each signature is compiled once, and each result is right."""
    traced = []

    def function(x, k):
        traced.append(x.shape)
        return x * k + 1

    f, wrong = jit(function), []
    begin = threading.Barrier(8)

    def work(n):
        x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
        begin.wait()
        for k in range(30):
            if not np.array_equal(f(x, np.float32(k)), x * k + 1):
                wrong.append((n, k))
    threads = [threading.Thread(target=work, args=(1 + i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sorted(traced) == [(1, 4), (2, 4)], (wrong, traced)
    assert len(symplex.explain(f)) == 2


def test_threads_trace_at_once():
    """Programs of different threads do not meet."""
    made, begin = {}, threading.Barrier(4)

    def work(n):
        def function(x):
            begin.wait()
            return symplex.scan(lambda c, row: (c + row * n, c), x[0] * 0, x)[0]
        made[n] = jit(function)(F32)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(made[n], F32.sum(0) * n) for n in range(4))


def test_fork():
    f = jit(lambda x: x * 2)
    f(F32)

    def child():
        assert np.array_equal(f(F32 + 1), (F32 + 1) * 2)
        assert np.array_equal(f(F32[:2]), F32[:2] * 2), "another signature is compiled in the child"
        assert np.array_equal(symplex.grad(lambda x: (x * x).sum(), threads=1)(F32), 2 * F32)
    in_child(child)
    assert len(f.modules) == 1


def test_fork_while_others_are_at_work():
    """A thread runs the module, another compiles: neither's lock is taken in the child for ever."""
    f, stop, inside = jit(lambda x: (x @ x.T).sum()), threading.Event(), threading.Event()
    big = np.ones((200, 200), np.float32)
    f(big)

    def slow(x):
        inside.set()
        stop.wait()
        return x + 1
    g = jit(slow)

    def run():
        while not stop.is_set():
            f(big)
    threads = [threading.Thread(target=run), threading.Thread(target=lambda: g(F32))]
    for thread in threads:
        thread.start()
    inside.wait()

    def child():
        stop.set()
        assert f(big) == 200 ** 3
        assert np.array_equal(g(F32), F32 + 1)
    try:
        for _ in range(10):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


WORKED = jit(lambda x: x @ x.T)


def worker(n):
    x = np.full((n, 3), n, np.float32)
    return WORKED(x)


def test_multiprocessing():
    worker(2)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        made = pool.map_async(worker, [2, 3, 4, 2]).get(DEADLINE_S)
    for n, got in zip((2, 3, 4, 2), made):
        assert np.array_equal(got, np.full((n, n), 3 * n * n))


def test_interrupt_ends_a_compile():
    """Ctrl-C while the compile process says nothing; the function compiles at its next call."""
    f = jit(lambda x: x - 1)
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
            fails(KeyboardInterrupt, "", f, F32)
        finally:
            del os.environ["SYMPLEX_CLIENT"]
            signal.signal(signal.SIGINT, before)
            other.join()
        assert time.monotonic() - start < 50
    assert current() is None and not f.modules and not symplex.explain(f)
    assert np.array_equal(f(F32), F32 - 1)


def test_interrupt_ends_a_run():
    """Ctrl-C in a loop without end, once the main thread has computed for a while; the next call runs."""
    rounds = 1 << 26  # without the interrupt it would end with another exception
    f = jit(lambda x, step: symplex.while_loop(lambda v: v < 3, lambda v: v + step, x, rounds=rounds))
    zero, one = np.int32(0), np.int32(1)
    assert f(zero, one) == 3
    clock = time.pthread_getcpuclockid(threading.main_thread().ident)
    begun = time.clock_gettime(clock)

    def interrupt():
        end = time.monotonic() + DEADLINE_S
        while time.clock_gettime(clock) < begun + 0.3 and time.monotonic() < end:
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGINT)
    other = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other.start()
    try:
        fails(KeyboardInterrupt, "", f, zero, zero)
    finally:
        signal.signal(signal.SIGINT, before)
        other.join()
    assert f(zero, one) == 3


def test_no_gpu():
    """A module for a GPU where no process may see one: an exception with advice, and the next call works."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        error = fails(symplex.Unimplemented, "module is for sm_90", jit(lambda x: x + 1, target="h100"), F32)
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
    assert "--target native" in error.hint
    assert np.array_equal(jit(lambda x: x + 1)(F32), F32 + 1)


def test_exceptions_while_tracing():
    """Those of the function arrive as they are; nothing is left behind."""
    broken = [True]

    def function(x):
        def step(c, row):
            if broken:
                raise LookupError("mine")
            return c + row, None
        return symplex.scan(step, x[0] * 0, x)[0]
    f = jit(function)
    fails(LookupError, "mine", f, F32)
    assert current() is None
    broken.clear()
    assert np.array_equal(f(F32), F32.sum(0))


def test_without_daemon_and_home():
    """HOME is no folder, nothing can be written there; and the same with a folder for temporary files alone."""
    code = f"""
import sys
sys.path.insert(0, {str(BUILD / 'python')!r})
import numpy, symplex
f = symplex.jit(lambda x: x * 2, threads=1)
assert numpy.array_equal(f(numpy.ones(3)), numpy.full(3, 2.0))
assert numpy.array_equal(symplex.grad(lambda x: (x * x).sum(), threads=1)(numpy.ones(3)), numpy.full(3, 2.0))
print(symplex.explain(f)[0].tier)
"""
    bare = {"HOME": "/dev/null", "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": "/dev/null", "XDG_CACHE_HOME": "/dev/null",
            "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, env=bare)
    assert done.stdout == "no daemon, compiled in a process of its own\n", done
    fails(symplex.NoDaemon, "", jit(lambda x: x, daemon="only"), F32)


def test_compilations_are_logged():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log = logging.getLogger("symplex")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        f = jit(lambda x, k=1: x * k)
        f(F32)
        f(F32.astype(np.float64))
        f(F32, 3)
        f(F32)
    finally:
        log.removeHandler(handler)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and "it is the first call" in lines[0], lines
    assert "x is f64[3, 4], was f32[3, 4]" in lines[1] and "k is 3, was 1" in lines[2], lines
    records = symplex.explain(f)
    assert [r.why for r in records] == [line.split(": ", 1)[1].rsplit(" (", 1)[0] for line in lines]
    assert all(r.compile_s > 0 and r.trace_s > 0 and len(r.keys[0]) == 64 for r in records)
    text = str(records)
    assert "<lambda>(x: f32[3, 4], k: 1)" in text and "cache: no daemon" in text
    fails(TypeError, "is no function of symplex.jit", symplex.explain, len)
    assert str(symplex.explain(jit(len))) == "nothing was compiled yet"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress():
    """A line after 0.3 s on a terminal, gone in the end; elsewhere nothing."""
    for stream, wanted in ((Terminal(), True), (io.StringIO(), False)):
        line = Line("f", stream)
        line("optimize", 1, 4)
        assert stream.getvalue() == "", "not before 0.3 s"
        line.begin -= 1
        line("kernels", 2, 4)
        line.end()
        text = stream.getvalue()
        assert (("\rsymplex: compiling f: kernels 2 of 4 (1 s)" in text) and text.endswith("\r")) == wanted, text


def test_pictures():
    program = jit(lambda x: np.exp(x) + symplex.cond(x.sum() > 0, lambda: x, lambda: -x)).lower(F32)
    assert [row[1] for row in program.nodes()].count("cond") == 1 and program.nodes()[0][1] == "parameter"
    dot = program.dot()
    assert dot.startswith("digraph program {") and dot.count("->") >= 6 and '"%0" -> ' in dot
    import xml.dom.minidom
    picture = xml.dom.minidom.parseString(program.svg())
    assert len(picture.getElementsByTagName("rect")) == len(program.nodes())
    assert "<svg" in program._repr_html_() and "&quot;traced&quot;" in program._repr_html_()
    assert isinstance(program, str)


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
