#!/usr/bin/env python3
"""symplex.caches without and with a daemon, and JAX's compilation cache by way of it: eight processes and one
compilation, a leader that is killed, a second start, a daemon that goes away. Compilations are counted by JAX's own
events: a hit of its cache is one, a compilation that was written another."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
sys.path.insert(0, str(BUILD / "python"))
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
os.environ.pop("SYMPLEX_SOCKET", None)
from symplex import _c, caches  # noqa: E402
from wire import Daemon, run, until  # noqa: E402

RANKS = 8
DEADLINE = 120
PROGRAM = """
import json, sys, warnings
warnings.simplefilter(sys.argv[2])
import jax, jax.numpy as jnp
import symplex
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.rsplit("/", 1)[-1]))
said = symplex.caches.install("jax", socket=sys.argv[1])
x = jnp.ones((8, 8))
x.block_until_ready()
hits.clear()
print("ready", flush=True)
sys.stdin.readline()
BEFORE
y = jax.jit(lambda x: (jnp.tanh(x) @ x).sum())(x)
print(json.dumps({"y": float(y), "said": said, "hits": hits.count("cache_hits"), "made": hits.count("cache_misses"),
                  "stats": symplex.caches.stats()}), flush=True)
"""


class Rank:
    def __init__(self, socket, warn="error", before="", env=None):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.replace("BEFORE", before), str(socket), warn], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=str(BUILD / "python"), JAX_PLATFORMS="cpu", **(env or {})))
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self):
        line = self.process.stdout.readline()
        _, self.said = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == 0, self.said
        return json.loads(line)


def run_ranks(daemon, count):
    ranks = [Rank(daemon.path) for _ in range(count)]
    for rank in ranks:
        rank.go()
    return [rank.result() for rank in ranks]


def waiting(daemon):
    with daemon.client() as client:
        return client.call("artefact.caches")["waiting"]


def test_eight_processes_compile_once_and_a_second_start_not_at_all():
    with Daemon(program="symplexd") as daemon:
        got = run_ranks(daemon, RANKS)
        assert len({g["y"] for g in got}) == 1 and got[0]["said"] == {"jax": "compiled programs"}, got
        assert sum(g["made"] for g in got) == 1 and sum(g["hits"] for g in got) == RANKS - 1, got
        again = run_ranks(daemon, 2)
        assert [g["made"] for g in again] == [0, 0] and [g["hits"] for g in again] == [1, 1], again
        with daemon.client() as client:
            (row,) = client.call("artefact.caches")["caches"]
            assert row["cache"] == "jax" and row["entries"] >= 1 and row["cost_us"] > 1000, row
            assert client.call("cache.evict", {"cache": "jax"})["entries"] == row["entries"]
        assert [g["made"] for g in run_ranks(daemon, 1)] == [1]


# The compilation begins, says so, and does not end.
STUCK = """
from jax._src import compiler
def forever(*unused, **more):
    print("compiling", flush=True)
    sys.stdin.read()
    raise RuntimeError("the compiler failed")
compiler.backend_compile_and_load = forever
"""


def test_a_killed_leader_is_replaced():
    with Daemon(program="symplexd") as daemon:
        leader = Rank(daemon.path, before=STUCK)
        others = [Rank(daemon.path) for _ in range(3)]
        leader.go()
        assert leader.process.stdout.readline() == "compiling\n"
        for rank in others:
            rank.go()
        until(lambda: waiting(daemon) == 3, "three wait", DEADLINE)
        leader.process.kill()
        got = [rank.result() for rank in others]
        assert sum(g["made"] for g in got) == 1 and sum(g["hits"] for g in got) == 2, got
        assert sum(g["stats"]["jax"]["shared"] for g in got) == 2, got # hits of those that waited
        leader.process.communicate()


def test_a_leader_whose_compiler_fails_is_replaced():
    with Daemon(program="symplexd") as daemon:
        after = 'try:\n    jax.jit(lambda x: (jnp.tanh(x) @ x).sum())(x)\nexcept RuntimeError as error:\n'
        after += '    print(error, flush=True)\n    __import__("signal").pause()\n'
        leader = Rank(daemon.path, before=STUCK + after)
        other = Rank(daemon.path)
        leader.go()
        assert leader.process.stdout.readline() == "compiling\n"
        other.go()
        until(lambda: waiting(daemon) == 1, "one waits", DEADLINE)
        leader.process.stdin.close()
        assert leader.process.stdout.readline() == "the compiler failed\n"
        got = other.result()
        assert got["made"] == 1 and got["hits"] == 0, got
        leader.process.kill()
        leader.process.stdout.close()
        leader.process.stderr.close()
        leader.process.wait()


def test_the_daemon_goes_away():
    with Daemon(program="symplexd") as daemon:
        rank = Rank(daemon.path, warn="always")
        daemon.kill()
        rank.go()
        got = rank.result()
        assert got["hits"] == 0 and got["stats"]["jax"]["errors"] >= 1, got
        assert rank.said.count("this process compiles for itself until the daemon is back") == 1, rank.said


def test_no_daemon_is_one_warning():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        done = caches.install("jax", socket="/nowhere/symplex.sock")
    assert done == {"jax": "nothing: no daemon"} and caches.stats() == {}, done
    assert len(said) == 1 and "/nowhere/symplex.sock" in str(said[0].message), said
    from jax._src import compilation_cache
    assert compilation_cache.get_file_cache.__module__ == "jax._src.compilation_cache"


def test_wrong_arguments():
    for arguments, part in ((dict(wait_s=-1), "wait_s is -1"), (dict(wait_s=float("nan")), "wait_s is nan")):
        try:
            caches.install("jax", **arguments)
            raise AssertionError("ValueError expected")
        except ValueError as error:
            assert part in str(error), error
    try:
        caches.install("numpy")
        raise AssertionError("ValueError expected")
    except ValueError as error:
        assert "numpy" in str(error) and "inductor, triton, jax" in str(error), error


def test_a_strangers_socket_is_not_used():
    """Whoever may write to the folder of the socket could put a socket of his own there."""
    with Daemon(program="symplexd") as daemon, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        os.symlink(daemon.path, pathlib.Path(folder, "d.sock"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert caches.install("jax", socket=f"{folder}/d.sock") == {"jax": "nothing: no daemon"}
        assert len(said) == 1 and folder in str(said[0].message), said


def test_a_fork_shares_no_claim():
    with Daemon(program="symplexd") as daemon:
        keeper = caches.Keeper(str(daemon.path), wait_s=30)
        assert keeper.get("t", "k", claim=True) is None and keeper.stats()["t"]["claims"] == 1
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            keeper.get("t", "of the child", claim=True)
            os.write(writer, b"x")
            signal.pause()
        assert os.read(reader, 1) == b"x"
        descriptors = os.listdir(f"/proc/{child}/fd")
        assert len([d for d in descriptors if os.readlink(f"/proc/{child}/fd/{d}").startswith("socket")]) == 1
        for store in keeper._all:
            store.close() # the claim ends, though the child lives
        with daemon.client() as client:
            until(lambda: client.call("artefact.caches")["leases"] == 1, "that of the child is left")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_a_framework_is_installed_once_for_each_daemon():
    known, installed = caches._FRAMEWORKS["jax"], []
    sys.modules["a_framework"] = types.SimpleNamespace(install=lambda keeper: installed.append(keeper) or "done")
    caches._FRAMEWORKS["jax"] = ("json", "a_framework")
    try:
        with Daemon(program="symplexd") as one, Daemon(program="symplexd") as another:
            for daemon, count in ((one, 1), (one, 1), (another, 2)):
                assert caches.install("jax", socket=str(daemon.path)) == {"jax": "done"}
                assert len(installed) == count and installed[-1].socket == str(daemon.path), (installed, count)
    finally:
        caches._FRAMEWORKS["jax"] = known
        caches._installed.clear()
        caches._keeper = None
        os.environ.pop("SYMPLEX_SOCKET", None)


def test_a_thread_claims_one_name_of_a_cache_at_a_time():
    """Whoever goes on to the next name has given up the one before, and others need not wait for it."""
    with Daemon(program="symplexd") as daemon, daemon.client() as client:
        keeper = caches.Keeper(str(daemon.path))
        claims = []
        for cache, name in (("t", "a"), ("t", "b"), ("u", "a")):
            assert keeper.get(cache, name, claim=True) is None
            claims.append(client.call("artefact.caches")["leases"])
        since = time.monotonic()
        until(lambda: time.monotonic() > since + 0.002, "making it takes more than the least cost")
        least_us = int((time.monotonic() - since) * 1e6)
        keeper.put("t", "b", b"value")
        until(lambda: client.call("artefact.caches")["caches"], "it is kept")
        (row,) = client.call("artefact.caches")["caches"]
        assert row["cost_us"] >= least_us > 1000, (row, least_us)
        claims.append(client.call("artefact.caches")["leases"])
        keeper.release("u", "another")
        claims.append(client.call("artefact.caches")["leases"])
        keeper.release("u", "a")
        claims.append(client.call("artefact.caches")["leases"])
        assert claims == [1, 1, 2, 1, 1, 0], claims


def test_threads_and_a_daemon_that_comes_back():
    daemon = Daemon(program="symplexd")
    with daemon:
        keeper = caches.Keeper(str(daemon.path))
        failed = []

        def work(number):
            for i in range(50):
                keeper.put("t", f"{number}.{i}", b"%d" % i * 1000)
                if keeper.get("t", f"{number}.{i}") != b"%d" % i * 1000:
                    failed.append((number, i))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        row = keeper.stats()["t"]
        assert not failed and row["hits"] == row["puts"] == 400 and row["errors"] == row["shared"] == 0, (failed, row)
        until(lambda: daemon.counter("cache_queue_rows") == 0, "all is committed")
        daemon.stop()
        again = Daemon(program="symplexd", root=daemon.root)
        with again:
            assert keeper.get("t", "3.7") == b"7" * 1000
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert keeper.get("t", "3.7") is None and keeper.get("t", "3.8") is None
            assert keeper.put("t", "x", b"") is None
        assert len(said) == 1, said
        assert keeper.stats()["t"]["errors"] == 1 # then it waits before it tries again


def test_what_is_too_large_is_not_kept():
    with Daemon(program="symplexd") as daemon:
        keeper = caches.Keeper(str(daemon.path))
        keeper.put("t", "k", bytes(64 << 20))
        assert keeper.get("t", "k") is None and keeper.stats()["t"]["errors"] == 1
        keeper.put("t", "k", b"small")
        assert keeper.get("t", "k") == b"small"


def test_ctrl_c_ends_a_wait():
    with Daemon(program="symplexd") as daemon, daemon.client() as client:
        # the claim is of another process, so that there is something to wait for
        other = subprocess.Popen([sys.executable, "-c", "import sys; sys.path[:0] = sys.argv[2:]\n"
                                  "from symplex import _c\ns = _c.Store(sys.argv[1])\n"
                                  "print(s.get('t', b'k', 60000, 0)[1], flush=True)\nsys.stdin.read()",
                                  str(daemon.path), str(BUILD / "python")], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        assert int(other.stdout.readline()) > 0
        threading.Thread(target=lambda: (until(lambda: waiting(daemon) == 1, "it waits"),
                                         os.kill(os.getpid(), signal.SIGINT))).start()
        keeper = caches.Keeper(str(daemon.path))
        try:
            keeper.get("t", "k", claim=True)
            raise AssertionError("KeyboardInterrupt expected")
        except KeyboardInterrupt:
            pass
        until(lambda: client.call("artefact.caches")["waiting"] == 0, "nobody waits")
        other.communicate()
        assert keeper.get("t", "k", claim=True) is None and keeper.stats()["t"]["claims"] == 1


def test_a_closed_store_is_refused():
    with Daemon(program="symplexd") as daemon:
        store = _c.Store(str(daemon.path))
        store.close()
        try:
            store.get("t", b"k", 0, 0)
            raise AssertionError("RuntimeError expected")
        except RuntimeError as error:
            assert "closed" in str(error), error


if __name__ == "__main__":
    run(globals())
