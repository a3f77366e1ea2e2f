#!/usr/bin/env python3
"""run --random draws what the program means something on, and a comparison of NaN with NaN alone is none."""
import array
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxran."))
NORM = """sx 1
graph "norm" () {
    %0 = parameter {name = "x", weight = 0} : f32[8,32]
    %1 = parameter {name = "variance", weight = 1} : f32[32]
    %2 = constant {data = 0.001} : f32[32]
    %3 = add(%1, %2) : f32[32]
    %4 = sqrt(%3) : f32[32]
    %5 = broadcast_in_dim(%4) {dims = [1]} : f32[8,32]
    %6 = divide(%0, %5) : f32[8,32]
    return %6 as "y"
}
"""
NOTHING = """sx 1
graph "nothing" () {
    %0 = parameter {name = "x", weight = 0} : f32[64]
    %1 = abs(%0) : f32[64]
    %2 = constant {data = -1.0} : f32[64]
    %3 = subtract(%2, %1) : f32[64]
    %4 = sqrt(%3) : f32[64]
    return %4 as "y"
}
"""


def sx(*arguments, status=0):
    environment = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"), XDG_STATE_HOME=str(TMP / "state"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=environment,
                          check=False)
    assert done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def compiled(name, text):
    (TMP / name).write_text(text)
    module = TMP / (name + "m")
    sx("compile", TMP / name, "-o", module)
    return module


def test_variances_are_positive():
    module = compiled("norm.sx", NORM)
    for seed in range(1, 9):
        out = TMP / "out"
        sx("run", module, "--random", seed, "--output", out, "--check", "-n", 1)
        data = (out / "y.npy").read_bytes()
        values = array.array("f", data[-8 * 32 * 4:])
        assert all(math.isfinite(v) for v in values) and len(set(values)) > 200, "seed %d: %s" % (seed, values[:8])


def test_the_same_seed_draws_the_same():
    module = TMP / "norm.sxm"
    outputs = []
    for seed, threads in ((3, 1), (3, 2), (4, 1)):
        sx("run", module, "--random", seed, "--threads", threads, "--output", TMP / "out", "-n", 1)
        outputs.append((TMP / "out" / "y.npy").read_bytes())
    assert outputs[0] == outputs[1] != outputs[2]


def test_nan_against_nan_is_no_comparison():
    module = compiled("nothing.sx", NOTHING)
    said = sx("run", module, "--random", 1, "--check", "-n", 1, status=4)
    assert "nothing was compared: on these inputs all 64 elements of the outputs are NaN" in said, said
    assert "passed" not in said, said
    checks = json.loads(sx("explain", module, "--json"))["checks"]
    whole = [check for check in checks if check["name"].startswith("program as sent, all outputs")]
    assert whole and all("every element is NaN" in check["name"] and not check["passed"] for check in whole), checks


if __name__ == "__main__":
    try:
        run(globals())
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
