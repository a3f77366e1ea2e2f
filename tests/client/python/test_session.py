#!/usr/bin/env python3
"""symplex.session with ranks that are processes: one module for all whatever the cache does, differences by rank and
name, ranks that die or do not come, a daemon that is started again."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
sys.path.insert(0, str(BUILD / "python"))
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
import symplex  # noqa: E402
from wire import Daemon, run, until  # noqa: E402

DEADLINE = 60
PROGRAM = """
import hashlib, json, os, socket, sys
import symplex
TEXT = open(sys.argv[4]).read()
def module(text=TEXT, **options):
    data, info = symplex.compile_bytes(text, socket=sys.argv[1], **options)
    return hashlib.sha256(data).hexdigest(), info["tier"]
with symplex.session(job="job", rank=int(sys.argv[2]), world=int(sys.argv[3]), socket=sys.argv[1],
                     timeout_s=50, automatic=len(sys.argv) > 5) as session:
    for line in sys.stdin:
        try:
            got = eval(line)
        except symplex.Error as error:
            got = type(error).__name__, str(error)
        print(json.dumps(got), flush=True)
"""
TEXT = """sx 1
graph "test" {
    %x = parameter {name = "x", weight = 0} : f32[3, 4]
    %y = add(%x, %x) : f32[3, 4]
    return %y as "y"
}
"""


class Rank:
    def __init__(self, daemon, rank, world, *automatic):
        source = daemon.root / "program.sx"
        source.write_text(TEXT)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(daemon.path), str(rank), str(world), str(source), *automatic],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=str(BUILD / "python")))

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.process.wait(DEADLINE)
        return json.loads(line)

    def __call__(self, line):
        self.send(line)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(DEADLINE) == 0


def all_of(ranks, line):
    for rank in ranks:
        rank.send(line)
    return [rank.answer() for rank in ranks]


def sessions(daemon):
    with daemon.client() as client:
        return client.call("session.list")["sessions"]


def test_one_module_whatever_the_cache_does():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 4) for n in range(4)]
        first = ranks[0]("module()")
        assert first[1] == "none"
        with daemon.client() as client:
            client.call("cache.evict", {"all": True})
        assert ranks[1]("module()") == [first[0], "session"]
        assert ranks[2]("module(refresh=True)") == [first[0], "session"]
        # a module that was made elsewhere is replaced; without a session it has other bytes
        alone = ranks[3]("(_c := symplex._c).set_session(None) or module(daemon='never')")
        assert alone[0] != first[0] and alone[1] == "process", alone
        assert ranks[3]("_c.set_session(session._session) or module(daemon='never')") == [first[0], "session"]
        assert ranks[3]("session.used") == 1
        assert all_of(ranks, "session.check()") == [None] * 4
        assert len({d for d in all_of(ranks, "session.digest().hex()")}) == 1
        shown = subprocess.run([BUILD / "bin" / "symplex-client", "session", "ls", "--socket", daemon.path],
                               capture_output=True, text=True, timeout=DEADLINE)
        assert shown.returncode == 0 and "job" in shown.stdout.splitlines()[1], shown
        number = shown.stdout.split("\n")[1].split()[0]
        shown = subprocess.run([BUILD / "bin" / "symplex-client", "session", "show", number, "--socket", daemon.path],
                               capture_output=True, text=True, timeout=DEADLINE)
        assert shown.returncode == 0 and shown.stdout.count("open") == 4, shown
        for rank in ranks:
            rank.end()
        until(lambda: sessions(daemon) == [], "the session ended with its last rank")


def test_a_race_of_cold_ranks_gives_one_module():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 6) for n in range(6)]
        got = [pair[0] for pair in all_of(ranks[:3], "module()")]
        # these compile by themselves, at the same time
        got += [pair[0] for pair in all_of(ranks[3:], "module(daemon='never')")]
        assert len(set(got)) == 1, got
        assert all_of(ranks, "session.check()") == [None] * 6
        for rank in ranks:
            rank.end()


def test_differences_are_named():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 4) for n in range(4)]
        for rank, value in zip(ranks, ("8", "8", "16", "8")):
            rank(f"session.note('num_warps of softmax', '{value}')")
        for kind, text in all_of(ranks, "session.check()"):
            assert kind == "Mismatch" and "for 'num_warps of softmax' rank 2 has " in text and ", rank 0 has " in text
        ranks[2]("session.note('num_warps of softmax', '8')")
        assert all_of(ranks, "session.check()") == [None] * 4
        assert ranks[1]("session.note('only here', b'')") is None
        for kind, text in all_of(ranks, "session.check()"):
            assert kind == "Mismatch" and " rank 1 has " in text and "rank 0 has none" in text, text
        for rank in ranks[:1] + ranks[2:]:
            rank("session.note('only here', b'')")
        assert all_of(ranks, "session.check()") == [None] * 4
        used = ranks[0]("module()")
        assert used[1] == "none"
        for kind, text in all_of(ranks, "session.check()"):
            assert kind == "Mismatch" and "rank 0 has " in text and "rank 1 has none" in text, text
        ranks[0].process.kill()
        for rank in ranks:
            rank.process.kill()
            rank.process.communicate()


def test_a_rank_that_dies():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 3) for n in range(3)]
        all_of(ranks, "session.used")
        for rank in ranks[:2]:
            rank.send("session.check()")
        until(lambda: sessions(daemon)[0]["waiting"] == 2, "two wait")
        ranks[2].process.kill()
        for rank in ranks[:2]:
            kind, text = rank.answer()
            assert kind == "NotFound" and f"rank 2 (process {ranks[2].process.pid}) lost its connection" in text, text
        ranks[2].process.communicate()
        for rank in ranks[:2]:
            rank.end()


def test_a_rank_that_does_not_come():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 4) for n in range(3)]
        all_of(ranks, "session.used")
        ranks[0].send("session.check(0.3)")
        kind, text = ranks[0].answer()
        assert kind == "TimedOut" and "rank 1, 2, 3 of 4 did not come to the check within 0.3 s" in text, text
        for rank in ranks:
            rank.end()


def test_a_daemon_that_is_started_again():
    daemon = Daemon(program="symplexd")
    with daemon:
        ranks = [Rank(daemon, n, 3) for n in range(3)]
        first = ranks[0]("module()")
        assert all_of(ranks[1:], "module()") == [[first[0], "session"]] * 2
        assert all_of(ranks, "session.check()") == [None] * 3
        until(lambda: daemon.counter("cache_queue_rows") == 0, "all is committed")
        daemon.kill()
        again = Daemon(program="symplexd", root=daemon.root)
        with again:
            assert ranks[1]("module()")[0] == first[0]
            assert all_of(ranks, "session.check()") == [None] * 3 # also a rank that had no call in between
            for rank, value in zip(ranks, "aab"):
                rank(f"session.note('n', '{value}')")
            assert all("rank 2 has" in text for _, text in all_of(ranks, "session.check()"))
            for rank in ranks:
                rank.process.kill()
                rank.process.communicate()


def test_a_lost_connection_comes_back():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 2) for n in range(2)]
        all_of(ranks, "module()")
        cut = ("[socket.socket(fileno=os.dup(d)).shutdown(socket.SHUT_RDWR) for d in range(3, 100)"
               " if os.path.lexists(f'/proc/self/fd/{d}') and os.readlink(f'/proc/self/fd/{d}').startswith('socket')]")
        assert ranks[1](cut) == [None]
        until(lambda: sessions(daemon)[0]["gone"] == 1, "rank 1 is gone")
        assert all_of(ranks, "session.check()") == [None] * 2
        for rank in ranks:
            rank.end()


def test_a_forked_child_is_no_rank():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 2) for n in range(2)]
        all_of(ranks, "module()")
        child = ranks[1]("(pid := os.fork()) and (os.waitpid(pid, 0)[1]) or"
                         " (pid == 0 and os._exit(module()[1] == 'session'))")
        assert child is False, child # it compiled outside of the session
        lives = ranks[1]("os.fork() or __import__('signal').pause()")
        ranks[0].send("session.check()")
        until(lambda: sessions(daemon)[0]["waiting"] == 1, "rank 0 waits")
        ranks[1].process.kill()
        kind, text = ranks[0].answer()
        os.kill(lives, signal.SIGKILL)
        assert kind == "NotFound" and "rank 1" in text, text
        ranks[1].process.wait()
        ranks[1].process.stdin.close()
        ranks[1].process.stdout.close()
        ranks[0].end()


RUN = "(f := globals().setdefault('f', symplex.jit(lambda x: x + x))) and f(np.ones(3, np.float32)).tolist()"


def test_the_first_run_compares():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 3, "automatic") for n in range(3)]
        for rank, value in zip(ranks, "aba"):
            rank("globals().update(np=__import__('numpy'))")
            rank(f"session.note('n', '{value}')")
        for rank in ranks[:2]:
            rank.send(RUN)
        until(lambda: sessions(daemon)[0]["waiting"] == 2, "two wait before they run")
        ranks[2].send(RUN)
        for kind, text in (rank.answer() for rank in ranks):
            assert kind == "Mismatch" and "for 'n' rank 1 has " in text, text
        # whoever disagrees does not run; who agrees then does, and only the first run waits
        ranks[1]("session.note('n', 'a')")
        assert all_of(ranks, RUN) == [[2, 2, 2]] * 3
        for rank in ranks:
            assert rank(RUN) == [2, 2, 2]
        for rank in ranks:
            rank.end()


def test_a_check_before_the_first_run_is_enough():
    with Daemon(program="symplexd") as daemon:
        ranks = [Rank(daemon, n, 2, "automatic") for n in range(2)]
        all_of(ranks, "globals().update(np=__import__('numpy'))")
        assert all_of(ranks, "session.check()") == [None] * 2
        assert ranks[0](RUN) == [2, 2, 2]
        assert ranks[1](RUN) == [2, 2, 2]
        for rank in ranks:
            rank.process.stdin.close() # what was compiled since is compared on the way out
        for rank in ranks:
            rank.end()


def test_a_first_run_that_others_do_not_come_to():
    import numpy as np
    f = symplex.jit(lambda x: x * 2)
    x = np.ones(3, np.float32)
    with Daemon(program="symplexd") as daemon:
        with symplex.session(job="j", rank=0, world=2, socket=str(daemon.path), timeout_s=0.2) as session:
            try:
                f(x)
                raise AssertionError("TimedOut expected")
            except symplex.TimedOut as error:
                assert "rank 1 of 2 did not come" in str(error), error
                assert "automatic=False" in error.__notes__[0]
            with symplex.session(job="k", rank=0, world=2, socket=str(daemon.path), automatic=False):
                assert f(x).tolist() == [2, 2, 2] # of the inner one
            with symplex.session(job="l", rank=0, world=2, socket=str(daemon.path),
                                 gather=lambda mine: (f(x), [mine, mine])[1]) as other:
                assert f(x).tolist() == [2, 2, 2] and other._checked
        assert f(x).tolist() == [2, 2, 2] # of none


def test_gather_for_several_machines():
    with Daemon(program="symplexd") as daemon:
        with symplex.session(job="j", rank=1, world=3, socket=str(daemon.path)) as session:
            session.note("a", b"1")
            session.check(gather=lambda mine: [mine] * 3)
            try:
                session.check(gather=lambda mine: [mine, mine, b"x" * 32])
                raise AssertionError("Mismatch expected")
            except symplex.Mismatch as error:
                assert "rank 2 used other modules than rank 0" in str(error), error
            try:
                session.check(gather=lambda mine: [mine])
                raise AssertionError("ValueError expected")
            except ValueError as error:
                assert "1 digests, the job has 3 ranks" in str(error), error
            assert session.used == 1 and len(session.digest()) == 32


def test_wrong_arguments_and_no_daemon():
    def fails(kind, part, **arguments):
        try:
            symplex.session(**dict(dict(job="j", rank=0, world=1, socket="/nowhere/symplex.sock"), **arguments))
            raise AssertionError(f"{kind} expected")
        except kind as error:
            assert part in str(error), error
    fails(symplex.NoDaemon, "/nowhere/symplex.sock")
    fails(ValueError, "rank 1 of 1", rank=1)
    fails(ValueError, "rank -1 of 1", rank=-1)
    fails(ValueError, "timeout_s is nan", timeout_s=float("nan"))
    fails(symplex.UsageError, "257 bytes", job="j" * 257)
    with Daemon(program="symplexd") as daemon:
        with symplex.session(job="j", rank=0, world=2, socket=str(daemon.path)) as session:
            fails(symplex.InputError, "rank 1 says 3 ranks, others say 2", rank=1, world=3, socket=str(daemon.path))
            assert repr(session) == "<symplex session 'j', rank 0 of 2>"
        try:
            session.check()
            raise AssertionError("RuntimeError expected")
        except RuntimeError as error:
            assert "closed" in str(error), error


def test_ctrl_c_ends_a_check():
    with Daemon(program="symplexd") as daemon:
        with symplex.session(job="j", rank=0, world=2, socket=str(daemon.path)) as session:
            threading.Thread(target=lambda: (until(lambda: sessions(daemon)[0]["waiting"] == 1, "it waits"),
                                             os.kill(os.getpid(), signal.SIGINT))).start()
            try:
                session.check()
                raise AssertionError("KeyboardInterrupt expected")
            except KeyboardInterrupt:
                pass


if __name__ == "__main__":
    run(globals())
