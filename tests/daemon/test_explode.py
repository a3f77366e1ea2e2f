"""Programs built to explode, through the daemon and in the process of the client: every one is answered within
the memory of a worker by a program no dearer than the input; explain says why the search ended; the proof that
was stored with it holds."""
import glob
import json
import os
import resource
import subprocess
from wire import *

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
WORKER_MB = 128  # of a worker's address space, and more than any of them may touch
DOT = " {lhs_contract = [1], rhs_contract = [0]}"
STOPS = {"saturated", "nodes", "fuel", "bytes", "rounds"}


def program(leaves, shape, steps, weights=0):
    """`steps`: operation, two operands, attributes; the last one is the result."""
    lines = ['sx 1\ngraph "explode" {']
    for i in range(leaves):
        lines.append('%%p%d = parameter {name = "p%d", weight = %d} : f32%s' % (i, i, weights if i else 0, shape))
    for k, (op, a, b, more) in enumerate(steps):
        lines.append("%%v%d = %s(%%%s, %%%s)%s : f32%s" % (k, op, a, b, more, shape))
    return "\n".join(lines + ['return %%v%d as "y"' % (len(steps) - 1), "}"]) + "\n"


def chain(op, count, leaves, more=""):
    return [(op, "p0" if k == 0 else "v%d" % (k - 1), "p%d" % ((k + 1) % leaves), more) for k in range(count)]


def doubling(count):
    return [("add", *2 * ["p0" if k == 0 else "v%d" % (k - 1)], "") for k in range(count)]


def nested(depth):
    """((p0 + p1) (p2 + p3) + p4) (p5 + p6) ...: as a sum of products it has 2^depth terms."""
    steps, value = [], "p0"
    for k in range(depth):
        steps += [("add", value, "p%d" % (3 * k + 1), ""), ("add", "p%d" % (3 * k + 2), "p%d" % (3 * k + 3), "")]
        steps.append(("multiply", "v%d" % (3 * k), "v%d" % (3 * k + 1), ""))
        value = "v%d" % (3 * k + 2)
    return steps


PROGRAMS = {
    "2,000 additions": program(50, "[8, 8]", chain("add", 2000, 50)),
    "64 contractions in a row": program(65, "[32, 32]", chain("dot_general", 64, 65, DOT), 1),
    "500 additions of two operands": program(2, "[8, 8]", chain("add", 500, 2)),
    "500 doublings": program(1, "[8, 8]", doubling(500)),
    "300 products of two operands": program(2, "[8, 8]", chain("multiply", 300, 2)),
    "nested sums of products": program(121, "[8, 8]", nested(40)),
    "nested sums of products of weights": program(121, "[8, 8]", nested(40), 1),
}


def sx(*arguments, status=0, **more):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == status, (arguments, done.returncode, done.stdout[-500:], done.stderr[-500:])
    return done


def memory(pid, field):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def texts(client):
    """Keys of what optimize has stored."""
    return [e["key"].hex() for e in client.call("cache.list")["entries"] if e["kind"] == "text"]


def check_search(name, search):
    assert search["stop"] in STOPS, (name, search)
    assert search["estimate_ns"] <= search["input_estimate_ns"] * (1 + 1e-9), (name, search)
    assert search["nodes"] <= 2 * 40000, (name, search)  # the limit of the rounds, and kernels


def test_through_the_daemon():
    stops, seen = set(), set()
    with Daemon("--worker-memory-mb", str(WORKER_MB), "--workers", "1",
                program="symplexd") as daemon, daemon.client() as client:
        for name, text in PROGRAMS.items():
            client.socket.settimeout(120)
            client.call("optimize", {"ir": text})
            key = next(k for k in texts(client) if k not in seen)
            seen.add(key)
            explained = json.loads(sx("explain", key, "--socket", daemon.path, "--json").stdout)
            assert explained["schema"] == "explain/1"
            check_search(name, explained["search"])
            stops.add(explained["search"]["stop"])
            assert "stopped: " + explained["search"]["stop"] in sx("explain", key[:20], "--socket", daemon.path).stdout
            proved = json.loads(sx("prove", key, "--socket", daemon.path, "--json").stdout)
            assert proved["holds"] and proved["steps"] > 0, (name, proved)
            peak = max(memory(pid, "VmHWM") for pid in children(daemon.process.pid))
            assert peak < WORKER_MB << 20, (name, peak)
        counters = daemon.status()["counters"]
        assert counters["worker_died"] == 0, counters
    assert stops & {"nodes", "fuel", "rounds", "bytes"}, stops


def test_in_the_process_of_the_client():
    """The most memory any of them takes is far below what the arena may hold."""
    with Daemon(program="symplexd") as daemon:  # for a private directory
        for name, text in PROGRAMS.items():
            path, proof = daemon.root / "e.sx", daemon.root / "e.proof"
            path.write_text(text)
            search = json.loads(sx("optimize", path, "--no-daemon", "--json").stdout)["search"]
            check_search(name, search)
            sx("optimize", path, "--no-daemon", "--proof", proof, "-o", daemon.root / "better.sx")
            sx("prove", proof, "--from", path, "--to", daemon.root / "better.sx")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 400 << 10


def test_keys_of_entries():
    with Daemon(program="symplexd") as daemon, daemon.client() as client:
        def refused(part, *arguments, status=4):
            done = sx(*arguments, "--socket", daemon.path, status=status)
            assert part in done.stderr, (arguments, done.stderr)

        text = program(2, "[8, 8]", chain("add", 5, 2))
        answer = client.compile(text)
        key = answer["key"].hex()
        shown = json.loads(sx("explain", key, "--socket", daemon.path, "--json").stdout)
        assert shown["key"] == key and shown["search"]["stop"] == "saturated"
        for command in ("explain", "prove"):
            refused("get: no entry " + "0" * 64, command, "0" * 64, status=1)
            refused("key 00000000: no entry begins so", command, "0" * 8, status=1)
            refused("not 4 to 64 hex digits", command, "xyz", status=2)
            for entry in client.call("cache.list")["entries"]:
                if entry["kind"] == "egraph":
                    refused("an e-graph, no module", command, entry["key"].hex())
        refused("no proof, only optimize stores one", "prove", key)
        sx("explain", key, "--socket", daemon.root / "nowhere", status=3)


if __name__ == "__main__":
    run(globals())
