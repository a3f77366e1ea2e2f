"""The real daemon with the real compiler: keys, hits, restarts, refusals. (What a module computes is tested
elsewhere.)"""
import glob
import os
import shutil
import sqlite3
import struct
from wire import *

LAYER = """sx 1
graph "layer" (batch in [1, 64]) {
    %x = parameter {name = "x", weight = 0} : f32[batch, 48]
    %w = parameter {name = "w", weight = 1} : f32[48, 32]
    %b = parameter {name = "b", weight = 1} : f32[32]
    %0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 32]
    %1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 32]
    %2 = add(%0, %1) : f32[batch, 32]
    %3 = relu(%2) : f32[batch, 32]
    return %3 as "y"
}
"""
# the same program: other names, another order, a node that nothing needs
DISGUISED = """sx 1
graph "layer" (batch in [1, 64]) {
    %in = parameter {name = "x", weight = 0} : f32[batch, 48]
    %fc = parameter {name = "w", weight = 1} : f32[48, 32]
    %bias = parameter {name = "b", weight = 1} : f32[32]
    %row = broadcast_in_dim(%bias) {dims = [1]} : f32[batch, 32]
    %unused = exponential(%row) : f32[batch, 32]
    %dot = dot_general(%in, %fc) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 32]
    %sum = add(%dot, %row) : f32[batch, 32]
    %out = relu(%sum) : f32[batch, 32]
    return %out as "y"
}
"""


def real(*arguments, **more):
    return Daemon(*arguments, program="symplexd", **more)


def refused(function, names, part=""):
    try:
        function()
    except Refused as refusal:
        assert refusal.name in names.split(), refusal
        assert part in refusal.error["msg"], refusal.error["msg"]
        return refusal.error
    raise AssertionError("%s expected" % names)


def test_compile_hit_restart():
    with real() as daemon, daemon.client() as client:
        first = client.compile(LAYER, dims={"batch": 8})
        assert first["tier"] == "none" and len(first["module"]) > 1000
        again = client.compile(LAYER, dims={"batch": 8}, target="native")
        assert again["tier"] == "ram" and again["module"] == first["module"]
        same = client.compile(DISGUISED, dims={"batch": 8})
        assert same["key"] == first["key"] and same["tier"] == "ram"
        other = client.compile(LAYER, dims={"batch": 9})
        assert other["key"] != first["key"] and other["tier"] == "none"
        exact = client.compile(LAYER, dims={"batch": 8}, options={"no_reassociate": True})
        assert exact["key"] != first["key"]
        fresh = client.compile(LAYER, dims={"batch": 8}, refresh=True)
        assert fresh["tier"] == "none" and fresh["key"] == first["key"]
        parts = {p["name"]: p["value"] for p in client.call("cache.show", {"key": first["key"]})["parts"]}
        assert parts["extents"] == b"batch=8" and len(parts["program"]) == 32, parts
        assert {"program", "target", "extents", "options", "toolchain", "rules"} <= set(parts)
        counters = daemon.status()["counters"]
        assert counters["compiles"] == 4 and counters["worker_died"] == 0, counters
        daemon.own_root = False
    with real(root=daemon.root) as after, after.client() as client:
        stored = client.compile(LAYER, dims={"batch": 8})
        assert stored["tier"] == "disk" and stored["module"] == fresh["module"]
        assert client.call("cache.verify")["bad"] == 0
    shutil.rmtree(daemon.root)


def test_several_values_of_a_dimension():
    """One module with a variant for each value, under one key whatever their order."""
    with real() as daemon, daemon.client() as client:
        first = client.compile(LAYER, dims={"batch": 8}, options={"more_dims": "batch=2\nbatch=5\n"})
        assert first["tier"] == "none"
        again = client.compile(LAYER, dims={"batch": 5}, options={"more_dims": "batch=8\nbatch=2\n"})
        assert again["tier"] == "ram" and again["key"] == first["key"] and again["module"] == first["module"]
        parts = {p["name"]: p["value"] for p in client.call("cache.show", {"key": first["key"]})["parts"]}
        assert parts["extents"] == b"batch=2 batch=5 batch=8", parts
        for wrong in ("batch", "batch=", "=3\n", "batch=3", "batch=x\n", "batch=99999999999999\n"):
            refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"more_dims": wrong}), "INPUT", "NAME=N")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"more_dims": "batch=8\n"}), "INPUT", "twice")


def test_an_interval_of_a_dimension():
    """One module for all values, under a key of its own; an interval of one value is that value."""
    with real() as daemon, daemon.client() as client:
        first = client.compile(LAYER, dims={}, options={"intervals": "batch=2..5\n"})
        assert first["tier"] == "none"
        assert client.compile(LAYER, dims={}, options={"intervals": "batch=2..5\n"})["module"] == first["module"]
        parts = {p["name"]: p["value"] for p in client.call("cache.show", {"key": first["key"]})["parts"]}
        assert parts["extents"] == b"batch=2..5", parts
        assert client.compile(LAYER, dims={}, options={"intervals": "batch=2..6\n"})["key"] != first["key"]
        one = client.compile(LAYER, dims={"batch": 3})
        again = client.compile(LAYER, dims={}, options={"intervals": "batch=3..3\n"})
        assert again["key"] == one["key"] and again["module"] == one["module"]
        for wrong in ("batch", "batch=", "batch=2..5", "batch=2\n", "batch=..5\n", "batch=2..\n", "batch=2...5\n",
                      "=2..5\n", "batch=2..x\n", "batch=2..5 \n", "batch=2..999999999999999\n"):
            refused(lambda: client.compile(LAYER, dims={}, options={"intervals": wrong}), "INPUT", "NAME=LOW..HIGH")
        for wrong in ("batch=0..4\n", "batch=5..2\n", "batch=2..3\nbatch=4..5\n"):
            refused(lambda: client.compile(LAYER, dims={}, options={"intervals": wrong}), "INPUT", "interval")
        refused(lambda: client.compile(LAYER, dims={"batch": 1}, options={"intervals": "batch=2..5\n"}), "INPUT",
                "and a value")
        refused(lambda: client.call("optimize", {"ir": LAYER, "options": {"intervals": "batch=2..5\n"}}), "INPUT",
                "optimize takes values")


def test_modules_of_another_format_are_removed():
    """Entries of an older module format are gone when the daemon is ready; others stay."""
    with real() as daemon, daemon.client() as client:
        keys = [client.compile(LAYER, dims={"batch": size})["key"] for size in (1, 2, 3)]
        daemon.own_root = False
    files = [p for p in glob.glob(os.path.join(daemon.root, "**", "*"), recursive=True) if os.path.isfile(p)]
    store, = [p for p in files if open(p, "rb").read(15) == b"SQLite format 3" and "search" not in p]
    base = sqlite3.connect(store)
    assert base.execute("UPDATE entry SET kind = 1 WHERE key IN (?, ?)", keys[:2]).rowcount == 2
    base.commit()
    base.close()
    with real(root=daemon.root) as after, after.client() as client:
        there = {row["key"] for row in client.call("cache.list", {"limit": 100})["entries"]}
        assert keys[2] in there and not there & set(keys[:2]), there
        assert client.compile(LAYER, dims={"batch": 1})["tier"] == "none"
        assert client.compile(LAYER, dims={"batch": 3})["tier"] == "disk"
    shutil.rmtree(daemon.root)


def section(module, kind):
    """The payload of a section of a module (protocol/module.h)."""
    rows = struct.unpack_from("<I", module, 12)[0]
    for i in range(rows):
        row = struct.unpack_from("<IIQQ", module, 64 + 40 * i)
        if row[0] == kind:
            return module[row[2]:row[2] + row[3]]
    return b""


def test_optimize():
    with real() as daemon, daemon.client() as client:
        module = client.call("optimize", {"ir": LAYER, "dims": {"batch": 8}})["module"]
        text = section(module, 15).decode()
        assert section(module, 13).startswith(b"symplex-proof 1\n") and not section(module, 4)
        assert text.startswith("sx 1\n") and 'as "y"' in text, text
        assert client.compile(text, dims={"batch": 8})["state"] == "done" # the result is a program again


def test_refusals():
    with real() as daemon, daemon.client() as client:
        refused(lambda: client.compile(""), "INPUT", "line 1:")
        refused(lambda: client.compile(LAYER.replace("relu", "rely"), dims={"batch": 8}), "INPUT", "line 9:")
        refused(lambda: client.compile(LAYER.replace("f32[48, 32]", "f32[47, 32]"), dims={"batch": 8}), "INPUT",
                "line 6:")
        refused(lambda: client.compile(LAYER, dims={"batch": 65}), "INPUT", "batch")
        refused(lambda: client.compile(LAYER, dims={"batch": 0}), "INPUT", "batch")
        refused(lambda: client.compile(LAYER), "INPUT", "batch")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, target="pdp-11"), "INPUT ABSENT UNIMPLEMENTED",
                "pdp-11")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"speed": 11}), "INPUT",
                "'speed' is not known")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"no_reassociate": 1}), "INPUT",
                "not a boolean")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"range": "wide"}), "INPUT",
                "neither \"keep\" nor \"any\"")
        refused(lambda: client.compile(LAYER, dims={"batch": 8}, options={"range": True}), "INPUT",
                "neither \"keep\" nor \"any\"")
        counters = daemon.status()["counters"]
        assert counters["worker_died"] == 0, counters


def test_sixteen_callers_one_compilation():
    with real("--workers", "1") as daemon:
        clients = [daemon.client() for _ in range(16)]
        for client in clients:
            client.send("compile", {"ir": LAYER, "dims": {"batch": 8}})
        results = [client.receive() for client in clients]
        assert all(error is None for _, error, _ in results), results
        assert len({result["module"] for _, _, result in results}) == 1
        counters = daemon.status()["counters"]
        assert counters["compiles"] == 1, counters
        assert counters["coalesced"] + counters["hits"] == 15, counters
        for client in clients:
            client.close()


def test_progress():
    with real() as daemon, daemon.client() as client:
        job = client.compile(LAYER, dims={"batch": 8}, mode="async")["job"]
        stages, seen, state = [], 0, "queued"
        while state != "done":
            answer = client.call("wait", {"job": job, "seq": seen})
            stages += [e["stage"] for e in answer["events"]]
            seen, state = answer["seq"], answer["state"]
        assert len(stages) >= 2 and len(answer["module"]) > 1000, stages


if __name__ == "__main__":
    run(globals())
