#!/usr/bin/env python3
"""Searches as their users meet them: optimize --budget and the search commands, with the real daemon and the
real compiler."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxsearch."))
# many steps, so that they can be interrupted: little fuel in each
STEPS = ("--search-fuel", "20000000")


def sum_of_products(count):
    """Products added one after the other, half of them on shared matrices: associativity and factoring have
    much to do."""
    half = max(1, count // 2)
    lines = ["sx 1", 'graph "sum" (n in [1, 64]) {']
    lines += ['    %%p%d = parameter {name = "p%d", weight = 0} : f32[n, 64]' % (i, i) for i in range(count)]
    lines += ['    %%w%d = parameter {name = "w%d", weight = 1} : f32[64, 64]' % (i, i) for i in range(half)]
    lines += ["    %%d%d = dot_general(%%p%d, %%w%d) {lhs_contract = [1], rhs_contract = [0]} : f32[n, 64]" % (i, i,
            i % half)
              for i in range(count)]
    lines += ["    %%s%d = add(%%%s, %%d%d) : f32[n, 64]" % (i, "d0" if i == 1 else "s%d" % (i - 1), i)
              for i in range(1, count)]
    return "\n".join(lines + ['    return %%s%d as "y"' % (count - 1), "}", ""])


TRADE = TMP / "trade.sx"
TRADE.write_text(re.search(r'\nTRADE = """(.*?)"""', (ROOT / "tests" / "client" / "test_cli.py").read_text(),
                           re.S).group(1))
SUM = TMP / "sum.sx"
SUM.write_text(sum_of_products(10))
FEW = TMP / "few.sx"
FEW.write_text(sum_of_products(4))  # the usual limits hold all of it, but for lanes that open more


def real(*arguments, **more):
    return Daemon(*STEPS, *arguments, program="symplexd", **more)


def environment(daemon):
    return dict(os.environ, SYMPLEX_SOCKET=str(daemon.path))


def sx(daemon, *arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, env=environment(daemon), timeout=300,
                          cwd=TMP,
                          stdin=subprocess.DEVNULL)
    if done.returncode != status:
        raise AssertionError("%s: exit %d, expected %d\n%s%s" % (" ".join(map(str, arguments)), done.returncode, status,
                                                                 done.stdout[-2000:].decode(),
                                                                         done.stderr[-2000:].decode()))
    return done


def js(daemon, *arguments, **more):
    return json.loads(sx(daemon, *arguments, "--json", **more).stdout)


def test_optimize_with_a_budget():
    with real() as daemon:
        better, proof = TMP / "better.sx", TMP / "better.proof"
        done = sx(daemon, "optimize", FEW, "-d", "n=8", "--budget", "2m", "-o", better, "--proof", proof)
        assert b"search 1: done after" in done.stderr and better.read_text().startswith("sx 1")
        sx(daemon, "prove", proof, "--to", better)
        row = js(daemon, "search")["searches"][0]
        assert row["state"] == "done" and row["lanes"] == row["lanes_ended"] and row["steps"] > row["lanes"], row
        plain = js(daemon, "optimize", FEW, "-d", "n=8")
        assert row["best"] <= plain["search"]["estimate_ns"] * (1 + 1e-9), (row, plain["search"])
        assert js(daemon, "search", "result", 1)["program"] == better.read_text()
        shown = js(daemon, "search", "show", 1)
        assert shown["search"] == [row] and {lane["state"] for lane in shown["lanes"]} == {"done"}
        table = sx(daemon, "search", "show", 1).stdout.decode()
        assert all(lane["name"] in table for lane in shown["lanes"]) and "proven" in table, table
        assert sx(daemon, "search", "remove", 1).stdout == b"search 1: removed\n"
        assert js(daemon, "search")["searches"] == []


def test_killed_and_taken_up_again():
    root = tempfile.mkdtemp(prefix="sxd.")
    with real() as daemon:
        number = js(daemon, "optimize", SUM, "-d", "n=8", "--budget", "2m", "--background")["search"]
        sx(daemon, "search", "wait", number, "-o", TMP / "undisturbed.sx", "--proof", TMP / "undisturbed.proof")
        lanes = js(daemon, "search", "show", number)["lanes"]
    with real(root=root) as daemon:
        number = int(sx(daemon, "optimize", SUM, "-d", "n=8", "--budget", "2m", "--background").stdout)
        until(lambda: js(daemon, "search")["searches"][0]["steps"] >= 3, "three steps")
        daemon.kill()
    with real(root=root) as daemon:
        before = js(daemon, "search")["searches"][0]
        assert before["state"] == "running" and before["steps"] >= 3, before
        sx(daemon, "search", "wait", number, "-o", TMP / "again.sx", "--proof", TMP / "again.proof")
        now = js(daemon, "search", "show", number)["lanes"]
        keys = ("lane", "steps", "objective", "bound", "nodes", "fuel", "bytes", "why")
        assert [[lane.get(k) for k in keys] for lane in now] == [[lane.get(k) for k in keys] for lane in lanes]
    assert (TMP / "again.sx").read_bytes() == (TMP / "undisturbed.sx").read_bytes()
    assert (TMP / "again.proof").read_bytes() == (TMP / "undisturbed.proof").read_bytes()
    shutil.rmtree(root)


def test_front_and_onnx():
    with real() as daemon:
        asked = ("optimize", TRADE, "-t", "x86-64-v3", "--objective", "pareto")
        plain = [(p["estimate_ns"], p["peak_bytes"]) for p in js(daemon, *asked)["points"]]
        long = [(p["estimate_ns"], p["peak_bytes"]) for p in js(daemon, *asked, "--budget", "2m")["points"]]
        assert len(long) >= 2 and all(any(t <= time and m <= peak for t, m in long)
                                      for time, peak in plain), (plain, long)
        done = sx(daemon, "optimize", MLP, "-d", "batch=4", "--budget", "2m", "--onnx", TMP / "mlp.onnx")
        assert b"done after" in done.stderr and (TMP / "mlp.onnx").stat().st_size > 1000
        sx(daemon, "search", "result", 2, MLP, "--onnx", TMP / "again.onnx")
        assert (TMP / "again.onnx").read_bytes() == (TMP / "mlp.onnx").read_bytes()


def test_ctrl_c_leaves_it_running():
    with real("--workers", "1") as daemon:
        SUM.with_name("large.sx").write_text(sum_of_products(20))
        client = subprocess.Popen([CLIENT, "optimize", str(TMP / "large.sx"), "-d", "n=8", "--budget", "10m"],
                                  env=environment(daemon),
                                  stderr=subprocess.PIPE, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        with daemon.client() as wire:
            until(lambda: wire.call("search.list")["searches"], "it is there")
            until(lambda: wire.call("status")["counters"]["call_search.wait"] > 0, "the client waits")
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=20)
        assert client.returncode == 130 and b"symplex-client search wait 1" in err and out == b"", err
        assert js(daemon, "search")["searches"][0]["state"] == "running"
        assert sx(daemon, "compile", SUM, "-d", "n=8", "-o", TMP / "sum.sxm"), "compilations go on"
        assert sx(daemon, "search", "cancel", 1).stdout == b"search 1: cancelled\n"
        assert sx(daemon, "search", "extend", 1, "--budget", "1h").stdout == b"search 1: running\n"
        row = js(daemon, "search")["searches"][0]
        assert row["budget_ms"] == 70 * 60000, row
        sx(daemon, "search", "cancel", 1)


def test_two_daemons_and_a_server():
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    assert server is not None, "no redis-server or valkey-server is installed: run deploy/install-deps.sh"
    with real() as daemon:
        sx(daemon, "optimize", SUM, "-d", "n=8", "--budget", "2m", "-o", TMP / "alone.sx", "--proof",
           TMP / "alone.proof")
        lanes = js(daemon, "search", "show", 1)["lanes"]
    path = TMP / "redis.sock"
    redis = subprocess.Popen([server, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(TMP)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        shared = ("--search-redis", "unix://%s" % path)
        with real(*shared) as owner, real(*shared) as other:
            until(lambda: all("state=up" in d.log_text() for d in (owner, other)), "both reach the server")
            # two searches, so that lanes wait while the owner is busy
            second = int(sx(owner, "optimize", SUM, "-d", "n=8", "--budget", "2m", "--background").stdout)
            sx(owner, "optimize", SUM, "-d", "n=8", "--budget", "2m", "-o", TMP / "shared.sx", "--proof",
               TMP / "shared.proof")
            sx(owner, "search", "wait", second, "-o", TMP / "second.sx")
            counters = owner.status()["counters"]
            assert counters["search_steps_given"] > 0, counters
            keys = ("lane", "steps", "objective", "bound", "nodes", "fuel", "bytes", "why")
            now = js(owner, "search", "show", 2)["lanes"]
            assert [[lane.get(k) for k in keys] for lane in now] == [[lane.get(k) for k in keys] for lane in lanes]
    finally:
        redis.kill()
        redis.wait(20)
    assert (TMP / "shared.sx").read_bytes() == (TMP / "alone.sx").read_bytes() == (TMP / "second.sx").read_bytes()
    assert (TMP / "shared.proof").read_bytes() == (TMP / "alone.proof").read_bytes()


def test_wrong_usage():
    with real() as daemon:
        for budget in ("", "5", "m", "5w", "1.5h", "0s", "-3m", "31d", "9999999999999999999h"):
            done = subprocess.run([CLIENT, "optimize", str(SUM), "-d", "n=8", "--budget=" + budget],
                                  capture_output=True,
                                  env=environment(daemon), timeout=20)
            assert done.returncode in (2, 4) and b"--budget" in done.stderr, (budget, done)
        assert b"--budget TIME is missing" in sx(daemon, "optimize", SUM, "--background", status=2).stderr
        assert b"not with --no-daemon" in sx(daemon, "optimize", SUM, "--budget", "1m", "--no-daemon", status=2).stderr
        assert b"search 9: not known" in sx(daemon, "search", "show", "9", status=1).stderr
        assert js(daemon, "search", "result", "9", status=1)["code"] == "ABSENT"
        (TMP / "broken.sx").write_text("sx 1\nnonsense")
        sx(daemon, "optimize", TMP / "broken.sx", "--budget", "1m", status=4)
        assert js(daemon, "search")["searches"] == []


if __name__ == "__main__":
    try:
        run(globals())
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
