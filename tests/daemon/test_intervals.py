"""Modules for intervals through the real daemon with its own settings: what takes seconds says how far it is, is made
once for all who ask, and stops as soon as nobody wants it any more."""
import pathlib
import pty
import shutil
import subprocess
import tempfile
from wire import *

LAYER = """sx 1
graph "layer" (batch in [1, 64], seq in [1, 512]) {
    %x = parameter {name = "x", weight = 0} : f32[batch, seq, 40]
    %w = parameter {name = "w", weight = 1} : f32[40, 48]
    %0 = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, seq, 48]
    %1 = tanh(%0) : f32[batch, seq, 48]
    %2 = dot_general(%1, %1) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [2]}
        : f32[batch, seq, seq]
    %3 = softmax(%2) {axis = 2} : f32[batch, seq, seq]
    %4 = dot_general(%3, %1) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1]}
        : f32[batch, seq, 48]
    return %4 as "y"
}
"""
SMALL = {"intervals": "batch=1..4\nseq=1..40\n"}
LARGE = {"intervals": "batch=1..64\nseq=1..512\n"}  # seconds of lowering


def real(*arguments, **more):
    return Daemon(*arguments, program="symplexd", **more)


def events_of(client, job):
    """All events of a job, and its last answer."""
    events, seen, answer = [], 0, {"state": "queued"}
    while answer["state"] != "done":
        answer = client.call("wait", {"job": job, "seq": seen})
        events += answer["events"]
        seen = answer["seq"]
    return events, answer


def until_pairs(daemon):
    lowers = lambda row: row["state"] == "running" and row["stage"] == "pairs"
    until(lambda: any(map(lowers, daemon.jobs())), "pairs are lowered")


def test_once_for_all_who_ask():
    with real() as daemon, daemon.client() as client, daemon.client() as other:
        job = client.compile(LAYER, options=SMALL, mode="async")["job"]
        other.send("compile", {"ir": LAYER, "options": SMALL})
        events, answer = events_of(client, job)
        joined = other.receive()[2]
        assert joined["coalesced"] and joined["module"] == answer["module"], joined["coalesced"]
        assert b"program as sent, all outputs" in answer["module"]
        told = [(e["done"], e["total"]) for e in events if e["stage"] == "pairs"]
        assert told and told == sorted(told), events
        pairs = 4 * 40
        kernels, rest = divmod(told[0][1], pairs)
        assert 1 <= kernels <= 4 and rest == 0 and {total for _, total in told} == {told[0][1]}, told
        assert [done % pairs for done, _ in told] == [0] * len(told) and told[-1][0] < told[-1][1], told
        again = client.compile(LAYER, options={"intervals": "seq=1..40\nbatch=1..4\n"})
        assert again["tier"] == "ram" and again["module"] == answer["module"]
        counters = daemon.status()["counters"]
        assert counters["compiles"] == 1 and counters["coalesced"] == 1 and counters["timeouts"] == 0, counters


def test_nobody_wants_it():
    """A call, the end of a connection and a stopped program each end the work at once."""
    with real("--workers", "1") as daemon, daemon.client() as client:
        job = client.compile(LAYER, options=LARGE, mode="async")["job"]
        until_pairs(daemon)
        assert client.call("cancel", {"job": job})["state"] == "running"
        until(lambda: daemon.counter("cancelled") == 1 and not daemon.running(), "a call ends it", 5)
        gone = daemon.client()
        gone.send("compile", {"ir": LAYER, "options": LARGE})
        until_pairs(daemon)
        gone.close()
        until(lambda: daemon.counter("cancelled") == 2, "the end of a connection ends it", 5)
        program = daemon.root / "layer.sx"
        program.write_text(LAYER)
        asks = subprocess.Popen(command(program, "--daemon-only", "--socket", daemon.path), stderr=subprocess.DEVNULL)
        until_pairs(daemon)
        asks.send_signal(signal.SIGINT)
        assert asks.wait(5) in (130, -signal.SIGINT)
        until(lambda: daemon.counter("cancelled") == 3, "a stopped program ends it", 5)
        assert client.compile(LAYER, options=SMALL)["tier"] == "none"  # the worker is free again


def command(program, *arguments):
    return [str(BINARY / "symplex-client"), "compile", str(program), "--dim", "batch=1..64", "--dim", "seq=1..512",
            "-o", str(program.with_suffix(".sxm")), *map(str, arguments)]


def test_without_a_daemon():
    """On a terminal the pairs are counted; a stopped program leaves no process and no module."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sxd."))
    program = folder / "layer.sx"
    program.write_text(LAYER)
    ours, theirs = pty.openpty()
    asks = subprocess.Popen(command(program, "--no-daemon"), stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    said, end = b"", time.monotonic() + 20
    while b"pairs " not in said and time.monotonic() < end:
        if select.select([ours], [], [], 1)[0]:
            said += os.read(ours, 65536)
    found = said.split(b"pairs ")[-1].split()
    assert found[1] == b"of" and int(found[2].rstrip(b",")) % (64 * 512) == 0, said
    children = pathlib.Path("/proc/%d/task/%d/children" % (asks.pid, asks.pid)).read_text().split()
    assert len(children) == 1, children
    asks.send_signal(signal.SIGINT)
    assert asks.wait(5) in (130, -signal.SIGINT)
    os.close(ours)
    until(lambda: not alive(int(children[0])), "its process ends", 5)
    assert not program.with_suffix(".sxm").exists()
    shutil.rmtree(folder)


if __name__ == "__main__":
    run(globals())
