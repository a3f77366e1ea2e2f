#!/usr/bin/env python3
"""tune: every schedule that is offered is run here and takes part, what is kept is used by compile in process and
through a daemon, changes no bit, and rows of other bits, other devices and other builds are passed over."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxtune."))
GEMM = ("--gemm", "96x160x64", "--dtype", "f32", "--epilogue", "bias,relu")
ATTENTION = ("--attention", "1x2x64x32", "--dtype", "f32")
HEAD = "symplex measured 1\n"


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"), XDG_STATE_HOME=str(TMP / "state"),
                        **environment)
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=surroundings, cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def plan_of(module):
    return re.search(r"^  plan +(.*)$", sx("explain", "--all", module).stdout, re.M).group(1)


def result_of(module):
    sx("run", module, "--random", "1", "--repeat", "1", "--output", TMP / "out")
    return numpy.load(TMP / "out" / "out.npy").tobytes()


(TMP / "state" / "symplex").mkdir(parents=True)

# What tune says: each kernel with its times, and a file where something was faster once more.
said = json.loads(sx("tune", *GEMM, "--repeat", "3", "--json", "-o", "tuned.sxm").stdout)
assert said["schema"] == "tune/1", said
kernel = said["kernels"][0]
assert kernel["tried"] > 1 and 0 < kernel["best_ns"] <= kernel["model_ns"], said
kept = TMP / "state" / "symplex" / "measured"
assert kept.exists() == said["kept"] and (not said["kept"] or said["tuned_run_ns"] <= said["model_run_ns"]), said
if kept.exists():
    rows = kept.read_text().splitlines()
    assert rows[0] + "\n" == HEAD and len(rows) == 1 + kernel["tried"], rows
    assert all(row.split()[:2] == [said["device"], kernel["measured_as"]] for row in rows[1:]), rows
    kept.unlink()

# A row chooses: another schedule of the same plan comes first, explain says so, no bit is another.
sx("compile", *GEMM, "-o", "model.sxm")
plan = plan_of("model.sxm")
other = re.sub(r"m/(\d+), n", "m/48, n", plan, count=1)
assert other != plan and "measured" not in plan, plan


def rows(device, name, schedule, file="rows"):
    path = TMP / file
    path.write_text(HEAD + "%s %s 1500 9 2026-11-24 %s\n" % (device, name, schedule))
    return path


device = said["device"]
chosen = rows(device, kernel["measured_as"], other, "chosen")
sx("compile", *GEMM, "--times", chosen, "-o", "chosen.sxm")
assert plan_of("chosen.sxm") == other + ", measured 1.5 us on 2026-11-24", plan_of("chosen.sxm")
assert result_of("chosen.sxm") == result_of("model.sxm")
sx("verify", "chosen.sxm")

# The usual place needs no option.
kept.write_text(chosen.read_text())
sx("compile", *GEMM, "-o", "usual.sxm")
assert plan_of("usual.sxm") == plan_of("chosen.sxm")
kept.write_text("something else\n")
assert "line 1: 'symplex measured 1' wanted" in sx("compile", *GEMM, "-o", "usual.sxm", status=4).stderr
kept.unlink()

# Passed over: another device, another kernel, a schedule of another form.
for path in (rows("h100", kernel["measured_as"], other), rows(device, "0123456789abcdef", other),
             rows(device, kernel["measured_as"], "grid(m/64) loop(m, n/32) register(n/16) lane(n)")):
    sx("compile", *GEMM, "--times", path, "-o", "passed.sxm")
    assert plan_of("passed.sxm") == plan, path.read_text()

# Passed over: a schedule of another numerics plan, here with other blocks of keys.
attention = json.loads(sx("tune", *ATTENTION, "--repeat", "3", "--json", "--times", TMP / "attention").stdout)
sx("compile", *ATTENTION, "-o", "model.sxm")
plan = plan_of("model.sxm")
blocks = re.search(r"loop\(k/(\d+), k/(\d+)", plan)
other = plan.replace(blocks.group(0), "loop(k/%d, k/%s" % (int(blocks.group(1)) // 2, blocks.group(2)), 1)
name = attention["kernels"][0]["measured_as"]
sx("compile", *ATTENTION, "--times", rows(device, name, other), "-o", "passed.sxm")
assert plan_of("passed.sxm") == plan, (plan, other)

# Through a daemon: the rows travel with the request, and the key is that of the request without them.
with Daemon(program="symplexd") as daemon:
    surroundings = dict(os.environ, XDG_STATE_HOME=str(TMP / "state"))
    command = [CLIENT, "compile", *GEMM, "--times", str(chosen), "-o", str(TMP / "served.sxm"), "--json",
               "--daemon-only", "--socket", str(daemon.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=surroundings)
    served = json.loads(done.stdout)
    assert plan_of(TMP / "served.sxm") == plan_of("chosen.sxm"), plan_of(TMP / "served.sxm")
    assert served["key"] == json.loads(sx("compile", *GEMM, "-o", "model.sxm", "--json").stdout)["key"]

# Without a GPU nothing is measured for one; on that of the tests, whose driver executes PTX, every schedule takes part.
assert "no CUDA driver" in sx("tune", *GEMM, "--target", "h100", status=4).stderr
driver = TMP / "libcuda.so.1"
shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", driver)
driver.chmod(0o600)
GPU = {"SYMPLEX_CUDA_DRIVER": str(driver), "SX_FAKE_CUDA": "capability=90 version=12090"}
HALF = ("--gemm", "64x96x160", "--dtype", "bf16", "--epilogue", "bias", "--target", "h100")
said = json.loads(sx("tune", *HALF, "--repeat", "3", "--json", "--times", TMP / "gpu", **GPU).stdout)
on_gpu = said["kernels"][0]
assert said["device"] == "h100" and on_gpu["tried"] > 1 and on_gpu["model_ns"] > 0, said
sx("compile", *HALF, "-o", "model.sxm")
other = plan_of("model.sxm").replace(" x4", " x3")  # stages of the ring
assert other != plan_of("model.sxm"), other
sx("compile", *HALF, "--times", rows("h100", on_gpu["measured_as"], other), "-o", "chosen.sxm")
assert plan_of("chosen.sxm") == other + ", measured 1.5 us on 2026-11-24", plan_of("chosen.sxm")
print("tune: %d schedules tried here, %d on the GPU of the tests" % (kernel["tried"], on_gpu["tried"]))
