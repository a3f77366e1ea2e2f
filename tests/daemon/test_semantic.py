"""Semantic hits through the real daemon: a program that equals a stored one, written in another way, is
answered from the stored e-graph; so after a restart; damaged or foreign e-graphs are replaced; other options
see nothing of it."""
import glob
import json
import os
import shutil
import sqlite3
import struct
import subprocess
from wire import *

HEAD = """sx 1
graph "p" (batch in [1, 64]) {
    %x = parameter {name = "x", weight = 0} : f32[batch, 48]
    %w = parameter {name = "w", weight = 1} : f32[48, 32]
    %b = parameter {name = "b", weight = 1} : f32[32]
    %c = parameter {name = "c", weight = 0} : f32[batch, 32]
"""
DOT = "%0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 32]\n"
ROW = "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 32]\n"
TAIL = "%9 = relu(%8) : f32[batch, 32]\nreturn %9 as \"y\"\n}\n"


def add(to, a, b):
    return "%%%s = add(%%%s, %%%s) : f32[batch, 32]\n" % (to, a, b)


STORED = HEAD + DOT + ROW + add(2, 0, 1) + add(8, 2, "c") + TAIL
WAYS = {
    "commuted": HEAD + DOT + ROW + add(2, 1, 0) + add(8, "c", 2) + TAIL,
    "association": HEAD + DOT + ROW + add(2, 1, "c") + add(8, 0, 2) + TAIL,
    "transposed": HEAD + "%t = transpose(%w) {perm = [1, 0]} : f32[32, 48]\n" + DOT.replace("%w", "%t").replace(
        "rhs_contract = [0]", "rhs_contract = [1]") + ROW + add(2, 0, 1) + add(8, 2, "c") + TAIL,
    "renamed": STORED.replace('"x"', '"data"').replace('"w"', '"matrix"').replace('"y"', '"out"'),
}
UNEQUAL = HEAD + DOT + ROW + add(2, 0, 1) + add(8, 2, 2) + TAIL
DIMS = {"batch": 8}
CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")


def real(*arguments, **more):
    return Daemon(*arguments, program="symplexd", **more)


def sections(module):
    rows = struct.unpack_from("<I", module, 12)[0]
    table = [struct.unpack_from("<IIQQ", module, 64 + 40 * i) for i in range(rows)]
    return {kind: module[offset:offset + size] for kind, _, offset, size in table if size > 0}


def code_of(module):
    return sections(module)[16]  # CODE (protocol/module.h): equal where a module was taken over


def check_module(module, folder):
    """Ours to judge: the client runs it on random tensors and compares with the interpretation of the program
    it carries."""
    path = os.path.join(folder, "m.sxm")
    with open(path, "wb") as file:
        file.write(module)
    done = subprocess.run([CLIENT, "run", path, "--random", "7", "--check", "--repeat", "1"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_semantic_hits():
    with real() as daemon, daemon.client() as client:
        first = client.compile(STORED, dims=DIMS)
        assert first["tier"] == "none" and "met" not in first
        for name, text in WAYS.items():
            answer = client.compile(text, dims=DIMS)
            assert answer["tier"] == "none" and answer["key"] != first["key"], name
            assert answer.get("met") == first["key"], (name, sorted(answer))
            assert bool(answer["rules"]) == (name != "renamed"), (name, answer["rules"])
            assert code_of(answer["module"]) == code_of(first["module"]), name
            check_module(answer["module"], daemon.root)
            again = client.compile(text, dims=DIMS)  # from now on an entry of its own
            assert again["tier"] == "ram" and again["module"] == answer["module"], name
        counters = daemon.status()["counters"]
        assert counters["semantic_hits"] == counters["semantic_reused"] == len(WAYS), counters
        assert counters["egraphs_stored"] == 1 and counters["worker_died"] == 0, counters
        kinds = [e["kind"] for e in client.call("cache.list")["entries"]]
        assert sorted(kinds) == ["egraph"] + ["module"] * (1 + len(WAYS)), kinds


def test_other_requests():
    """Other extents compile the stored extraction; unequal programs, other options and refresh begin from nothing."""
    with real() as daemon, daemon.client() as client:
        first = client.compile(STORED, dims=DIMS)
        other = client.compile(WAYS["commuted"], dims={"batch": 5})
        assert "add-commute" in other["rules"] and other["met"] != first["key"]
        check_module(other["module"], daemon.root)
        assert client.call("optimize", {"ir": WAYS["association"], "dims": DIMS})["met"] == first["key"]
        assert "met" not in client.compile(UNEQUAL, dims=DIMS)
        exact = {"no_reassociate": True}
        assert "met" not in client.compile(WAYS["transposed"], dims=DIMS, options=exact)
        assert "met" not in client.compile(WAYS["renamed"], dims=DIMS, refresh=True)
        job = client.compile(WAYS["transposed"], dims=DIMS, mode="async")["job"]
        answer = {"state": "queued", "seq": 0}
        while answer["state"] != "done":
            answer = client.call("wait", {"job": job, "seq": answer["seq"]})
        assert answer["met"] == first["key"]
        counters = daemon.status()["counters"]
        assert counters["semantic_hits"] == 3 and counters["semantic_reused"] == 1, counters


def layers(commuted, prefix, count=6):
    """Equal layers, which are optimised once: their parts are stored."""
    lines = ['sx 1', 'graph "p" (batch in [1, 64]) {', '%x = parameter {name = "x", weight = 0} : f32[batch, 8]']
    for i in range(count):
        lines.append('%%w%d = parameter {name = "%sw%d", weight = 1} : f32[8, 8]' % (i, prefix, i))
    of = " : f32[batch, 8]"
    value = "x"
    for i in range(count):
        lines.append("%%l%d = dot_general(%%%s, %%w%d) {lhs_contract = [1], rhs_contract = [0]}%s" % (i, value, i, of))
        name = "l%d" % i
        for k, op in enumerate(["tanh", "exponential", "negate", "logistic", "abs", "tanh", "negate", "tanh", "abs",
                                "tanh"]):
            lines.append("%%m%d_%d = %s(%%%s)%s" % (i, k, op, name, of))
            name = "m%d_%d" % (i, k)
        pair = (name, value) if commuted else (value, name)
        lines.append("%%o%d = add(%%%s, %%%s)%s" % (i, *pair, of))
        value = "o%d" % i
    return "\n".join(lines + ['return %%%s as "y"' % value, "}"]) + "\n"


def look_at_parts(daemon, client):
    """symplex-client egraph of what is stored: the list of the parts, and each of them as an e-graph of its own."""
    def egraph(*arguments):
        return subprocess.run([CLIENT, "egraph", *arguments, "--socket", str(daemon.path)], capture_output=True,
                              text=True)

    keys = [e["key"].hex() for e in client.call("cache.list")["entries"] if e["kind"] == "egraph"]
    listed = {key: json.loads(egraph(key, "--json").stdout) for key in keys}
    wired = [key for key in keys if "parts" in listed[key]]
    assert len(wired) == 1 and len(keys) == 1 + len(listed[wired[0]]["parts"]), listed
    parts = listed[wired[0]]["parts"]
    assert [p["part"] for p in parts] == list(range(1, len(parts) + 1)) and sum(p["uses"] for p in parts) >= 6, parts
    graphs = [json.loads(egraph(wired[0], "--part", str(p["part"]), "--json").stdout)["nodes"] for p in parts]
    assert sorted(map(len, graphs)) == sorted(len(listed[k]["nodes"]) for k in keys if k not in wired)
    assert egraph(wired[0]).stdout.split()[:3] == ["PART", "USES", "PROGRAM"]
    picture = os.path.join(daemon.root, "g.svg")
    assert egraph(wired[0], "--part", "1", "-o", picture).returncode == 0 and open(picture).read(4) == "<svg"
    assert egraph(wired[0], "-o", picture).returncode == 2 and egraph(wired[0], "--part",
            str(len(parts) + 1)).returncode == 2
    single = next(key for key in keys if key not in wired)
    assert egraph(single, "--part", "1").returncode == 2


def test_layers():
    with real() as daemon, daemon.client() as client:
        first = client.compile(layers(False, ""), dims=DIMS)
        assert "met" not in first
        answer = client.compile(layers(True, "m"), dims=DIMS)
        assert answer.get("met") == first["key"] and "add-commute" in answer["rules"], sorted(answer)
        check_module(answer["module"], daemon.root)
        look_at_parts(daemon, client)
        before = daemon.status()["counters"]
        other = client.compile(layers(True, "m", 5), dims=DIMS)  # its layers are known, the whole is not
        after = daemon.status()["counters"]
        assert "met" not in other and after["parts_met"] > before["parts_met"]
        assert b", met stored " in other["module"] and b"add-commute" in other["module"]
        check_module(other["module"], daemon.root)
        daemon.own_root = False
    with real(root=daemon.root) as after, after.client() as client:
        assert client.call("optimize", {"ir": layers(True, "k"), "dims": DIMS})["met"] == first["key"]
        counters = after.status()["counters"]
        assert counters["egraphs_refused"] == 0 and counters["worker_died"] == 0, counters
    shutil.rmtree(daemon.root)


def end_of(client, job):
    answer = {"state": "queued", "seq": 0}
    while answer["state"] in ("queued", "running"):
        answer = client.call("wait", {"job": job, "seq": answer["seq"]})
    return answer


def test_alike_at_once():
    """Programs that differ in names alone, sent together: one is compiled, the others wait and meet it."""
    with real("--workers", "4") as daemon, daemon.client() as client:
        for i in range(8):
            client.send("compile", {"ir": layers(False, "p%d" % i), "dims": DIMS})
        answers = [client.receive()[2] for i in range(8)]
        first = [a for a in answers if "met" not in a]
        assert len(first) == 1 and all(a["met"] == first[0]["key"] for a in answers if a is not first[0])
        counters = daemon.status()["counters"]
        assert counters["semantic_hits"] == 7 and counters["awaited"] >= 1, counters
        stored = counters["egraphs_stored"]
        assert stored == [e["kind"] for e in client.call("cache.list")["entries"]].count("egraph"), counters
        for answer in answers:
            check_module(answer["module"], daemon.root)
    with real("--workers", "4") as daemon, daemon.client() as client:
        for i in range(4):
            client.send("compile", {"ir": layers(False, "p%d" % i, 24), "dims": DIMS, "mode": "async"})
        jobs = [client.receive()[2]["job"] for i in range(4)]
        client.call("cancel", {"job": min(jobs)})  # the one that goes first: another one takes its place
        ends = [end_of(client, job) for job in sorted(jobs)[1:]]
        assert [a["state"] for a in ends] == ["done"] * 3
        assert sum("met" in a for a in ends) >= 2, [sorted(a) for a in ends]
        assert daemon.status()["counters"]["awaited"] >= 1


def damage(root):
    """One byte of the stored e-graph, on disk."""
    path = glob.glob(os.path.join(root, "**", "*.db"), recursive=True) or \
        [p for p in glob.glob(os.path.join(root, "**", "*"), recursive=True)
         if os.path.isfile(p) and open(p, "rb").read(15) == b"SQLite format 3"]
    base = sqlite3.connect(path[0])
    identity, = base.execute("SELECT id FROM entry WHERE kind = 3").fetchone()
    data, = base.execute("SELECT data FROM blob WHERE id = ?", (identity,)).fetchone()
    data = bytearray(data)
    data[len(data) // 2] ^= 1
    base.execute("UPDATE blob SET data = ? WHERE id = ?", (bytes(data), identity))
    base.commit()
    base.close()


def test_restart_and_damage():
    with real() as daemon, daemon.client() as client:
        first = client.compile(STORED, dims=DIMS)
        daemon.own_root = False
    with real(root=daemon.root) as after, after.client() as client:
        assert client.compile(WAYS["commuted"], dims=DIMS)["met"] == first["key"]
        after.own_root = False
    damage(daemon.root)
    with real(root=daemon.root) as after, after.client() as client:
        answer = client.compile(WAYS["association"], dims=DIMS)
        assert "met" not in answer  # refused, and built again
        check_module(answer["module"], daemon.root)
        assert after.log_text().count("refused=") == 1, after.log_text()
        assert client.compile(WAYS["transposed"], dims=DIMS)["met"] == answer["key"]
        counters = after.status()["counters"]
        assert counters["egraphs_refused"] == counters["egraphs_stored"] == 1, counters
        client.call("cache.evict", {"all": True})
        assert client.call("cache.list")["entries"] == []
        assert "met" not in client.compile(WAYS["renamed"], dims=DIMS)
    shutil.rmtree(daemon.root)


def test_switched_off():
    with real("--egraph-kb", "0") as daemon, daemon.client() as client:
        client.compile(STORED, dims=DIMS)
        assert "met" not in client.compile(WAYS["commuted"], dims=DIMS)
        assert {e["kind"] for e in client.call("cache.list")["entries"]} == {"module"}
    with real("--egraph-kb", "1") as daemon, daemon.client() as client:
        client.compile(STORED, dims=DIMS)
        assert {e["kind"] for e in client.call("cache.list")["entries"]} == {"module"}  # too large to keep


if __name__ == "__main__":
    run(globals())
