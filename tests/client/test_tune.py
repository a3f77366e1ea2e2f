#!/usr/bin/env python3
"""tune: every schedule that is offered is run here and takes part, what is kept is used by compile in process and
through a daemon, changes no bit, and rows of other bits, other devices and other builds are passed over."""
import json
import os
import pathlib
import re
import resource
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
HEAD = "symplex measured 3\n"


def sx(*arguments, status=0, **environment):
    surroundings = {**os.environ, "SYMPLEX_SOCKET": str(TMP / "nobody.sock"), "XDG_STATE_HOME": str(TMP / "state"),
                    **environment}
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=surroundings, cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def plan_of(module):
    return re.search(r"^  plan +(.*)$", sx("explain", "--all", module).stdout, re.M).group(1)


def result_of(module):
    sx("run", module, "--random", "1", "--repeat", "1", "--output", TMP / "out")
    return numpy.load(TMP / "out" / "out.npy").tobytes()


# Where nothing can be kept it is said before anything is measured; a folder that is missing is made.
(TMP / "file").write_text("")
said = sx("tune", *GEMM, status=4, XDG_STATE_HOME=str(TMP / "file")).stderr
assert "what is measured" in said and "--times" in said, said
said = sx("tune", *GEMM, "--times", TMP / "no" / "times", status=4).stderr
assert "no/times: what is measured cannot be kept there: No such file" in said, said
# A file that may not grow is an error that names it, and leaves nothing.
for blocks in (0, 4):
    done = subprocess.run([CLIENT, "compile", *GEMM, "--no-daemon", "-o", "cut.sxm"], capture_output=True, text=True,
                          timeout=300, check=False, cwd=TMP, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_FSIZE, (1024 * blocks, 1024 * blocks)))
    assert done.returncode in (4, 6) and "died" not in done.stderr and "File too large" in done.stderr, done
    assert not list(TMP.glob("cut.sxm*"))

# What tune says: each kernel with its times, and all of them in a file. Of three pairs nothing is certain.
said = json.loads(sx("tune", *GEMM, "--repeat", "3", "--json", "-o", "tuned.sxm").stdout)
assert said["schema"] == "tune/1", said
kernel = said["kernels"][0]
assert kernel["tried"] > 1 and 0 < kernel["best_ns"] and not kernel["certain"] and not said["kept"], said
kept = TMP / "state" / "symplex" / "measured"
assert said["place"] == str(kept) and not said["daemon"] and said["rows"] == kernel["tried"], said
machine = said["machine"]
rows = kept.read_text().splitlines()
assert rows[0] + "\n" == HEAD and len(rows) == 1 + kernel["tried"], rows
for row in rows[1:]:
    assert row.split()[:3] == [machine, said["device"], kernel["measured_as"]] and row.split()[7] == "tried", row
sx("compile", *GEMM, "-o", "model.sxm")
assert "measured" not in plan_of("model.sxm")
kept.unlink()

# A row chooses: another schedule of the same plan comes first, explain says so, no bit is another.
sx("compile", *GEMM, "-o", "model.sxm")
plan = plan_of("model.sxm")
other = re.sub(r"m/(\d+), n", "m/48, n", plan, count=1)
assert other != plan and "measured" not in plan, plan
gemm_plan, gemm_other = plan, other


def row_of(device, name, schedule, where=machine, verdict="best"):
    return HEAD + "%s %s %s 1500 1400 9 2026-11-24 %s %s\n" % (where, device, name, verdict, schedule)


def rows(*row, file="rows", **more):
    path = TMP / file
    path.write_text(row_of(*row, **more))
    return path


def code_of(module):
    """Programs and code of the kernels, without who verified them."""
    folder = TMP / "dump"
    shutil.rmtree(folder, ignore_errors=True)
    sx("module", "dump", module, "-o", folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "manifest.txt"}


device = said["device"]
chosen = rows(device, kernel["measured_as"], other, file="chosen")
sx("compile", *GEMM, "--times", chosen, "-o", "chosen.sxm")
assert plan_of("chosen.sxm") == other + ", measured 1.5 us on 2026-11-24", plan_of("chosen.sxm")
assert result_of("chosen.sxm") == result_of("model.sxm")
sx("verify", "chosen.sxm")

# The usual place needs no option.
kept.write_text(chosen.read_text())
sx("compile", *GEMM, "-o", "usual.sxm")
assert plan_of("usual.sxm") == plan_of("chosen.sxm")
kept.write_text("something else\n")
assert "line 1: 'symplex measured 3' wanted" in sx("compile", *GEMM, "-o", "usual.sxm", status=4).stderr
kept.unlink()

# Passed over: another machine, device or kernel, a schedule of another form, what was tried alone. The code is that of
# a machine without rows.
model = code_of("model.sxm")
name = kernel["measured_as"]
for row, more in (((device, name, other), {"where": machine + "x"}), ((device, name, other), {"verdict": "tried"}),
                  (("h100", name, other), {}), ((device, "0123456789abcdef", other), {}),
                  ((device, name, "grid(m/64) loop(m, n/32) register(n/16) lane(n)"), {})):
    sx("compile", *GEMM, "--times", rows(*row, **more), "-o", "passed.sxm")
    assert plan_of("passed.sxm") == plan, (row, more)
    assert code_of("passed.sxm") == model, (row, more)

# Passed over: a schedule of another numerics plan, here with other blocks of keys.
attention = json.loads(sx("tune", *ATTENTION, "--repeat", "3", "--json", "--times", TMP / "attention").stdout)
sx("compile", *ATTENTION, "-o", "model.sxm")
plan = plan_of("model.sxm")
blocks = re.search(r"loop\(k/(\d+), k/(\d+)", plan)
other = plan.replace(blocks.group(0), "loop(k/%d, k/%s" % (int(blocks.group(1)) // 2, blocks.group(2)), 1)
name = attention["kernels"][0]["measured_as"]
sx("compile", *ATTENTION, "--times", rows(device, name, other), "-o", "passed.sxm")
assert plan_of("passed.sxm") == plan, (plan, other)


def served(daemon, *more, root=TMP / "elsewhere"):
    """Compiled by the daemon for a client with another state folder: (plan, what compile says)."""
    done = subprocess.run([CLIENT, "compile", *GEMM, "-o", str(TMP / "served.sxm"), "--json", "--daemon-only",
                           "--socket", str(daemon.path), *more], capture_output=True, text=True, timeout=300,
                          check=True, env=dict(os.environ, XDG_STATE_HOME=str(root)))
    return plan_of(TMP / "served.sxm"), json.loads(done.stdout)


def ask(daemon, *words):
    return sx(*words, "--socket", daemon.path).stdout


def keep(daemon, row):
    """Puts this row in place of all, as tune would."""
    with daemon.client() as client:
        put = {"cache": "measured", "name": machine.encode(), "value": row.encode()}
        assert client.call("artefact.put", put)["stored"]


# The rows of --times travel with the request, and the key is that of the request without them.
MEASURED = ", measured 1.5 us on 2026-11-24"
name = kernel["measured_as"]
root = TMP / "daemon"
root.mkdir()
with Daemon(program="symplexd", root=root) as daemon:
    got, info = served(daemon, "--times", str(chosen))
    assert got == gemm_other + MEASURED, got
    assert info["key"] == json.loads(sx("compile", *GEMM, "-o", "model.sxm", "--json").stdout)["key"]

    # tune puts its rows into the daemon's cache, where cache ls, show and stats know them, and into no file.
    tuned = json.loads(ask(daemon, "tune", *GEMM, "--repeat", "3", "--json"))
    assert tuned["daemon"] and tuned["place"] == str(daemon.path) and not kept.exists(), tuned
    entry, = [row for row in json.loads(ask(daemon, "cache", "ls", "--json"))["entries"] if row["kind"] == "measured"]
    assert entry["cost_us"] > 0, entry
    shown = ask(daemon, "cache", "show", entry["key"])
    assert "measured" in shown and machine in shown, shown
    stats, = json.loads(ask(daemon, "cache", "stats", "--json"))["caches"]
    assert stats["cache"] == "measured" and stats["entries"] == 1, stats
    assert served(daemon, "--refresh")[0] == gemm_plan, "what was tried alone chooses nothing"

    # What is best is used for every client, from the disk too, and no part of the key.
    keep(daemon, row_of(device, name, gemm_other))
    got, hit = served(daemon)
    assert got == gemm_plan and hit["key"] == info["key"] and hit["tier"] != "none", "what the cache holds stays"
    assert served(daemon, "--refresh")[0] == gemm_other + MEASURED
with Daemon(program="symplexd", root=root) as daemon:
    assert served(daemon, "--refresh")[0] == gemm_other + MEASURED
    # A second tune adds to what is there, and takes the verdict on its kernel away.
    again = json.loads(ask(daemon, "tune", *GEMM, "--repeat", "3", "--json"))
    assert not again["kept"] and served(daemon, "--refresh")[0] == gemm_plan, again
    # Rows of another machine, and what is no row at all, change no byte of the code.
    for wrong in (row_of(device, name, gemm_other, where="GenuineIntel-6-1-1-1"), "no rows\n"):
        keep(daemon, wrong)
        assert served(daemon, "--refresh")[0] == gemm_plan, wrong
        assert code_of("served.sxm") == model, wrong
    keep(daemon, row_of(device, name, gemm_other))
    assert "1" in ask(daemon, "cache", "rm", "measured")
    assert served(daemon, "--refresh")[0] == gemm_plan
    assert code_of("served.sxm") == model, "without rows the code is the same everywhere"

    # One measures at a time.
    with daemon.client() as client:
        turn = client.call("artefact.get", {"cache": "measured", "name": b"turn", "claim_ms": 600000})
        assert turn["state"] == "claimed", turn
        second = subprocess.Popen([CLIENT, "tune", *GEMM, "--repeat", "3", "--socket", str(daemon.path)], cwd=TMP,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "another tune measures here" in second.stderr.readline()
        assert second.poll() is None
        client.call("artefact.release", {"lease": turn["lease"]})
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 0 and "times are kept in" in said, said

# A correction, learned from times in which rows in registers are all that matters: it chooses for a shape that nobody
# measured, changes no bit and no key, and is of use where all is in order alone.
learned = TMP / "learned"
for shape in ("64x64x64", "96x64x64", "128x64x32", "64x96x96", "48x64x64", "80x96x32", "144x64x64", "112x32x64"):
    sx("tune", "--gemm", shape, "--dtype", "f32", "--repeat", "3", "--times", learned)
text = HEAD
for line in learned.read_text().splitlines()[1:]:
    words = line.split(" ", 8)
    words[3] = str(1000 * int(re.search(r"loop\(.*?m/(\d+)", words[8]).group(1)))
    text += " ".join(words) + "\n"
learned.write_text(HEAD)
assert "0 kernels of this target with two or more" in sx("tune", "fit", "--times", learned, status=4).stderr
learned.write_text(text)
fitted = json.loads(sx("tune", "fit", "--times", learned, "--json").stdout)
assert fitted["kept"] and fitted["kernels"] == 8 and fitted["corrected"] > fitted["model"], fitted
assert "symplex correction 1\n" in learned.read_text()
sx("compile", *GEMM, "--times", learned, "-o", "corrected.sxm")
assert plan_of("corrected.sxm").endswith(", by corrected prices") and gemm_plan not in plan_of("corrected.sxm")
sx("compile", *GEMM, "-o", "model.sxm")
assert result_of("corrected.sxm") == result_of("model.sxm")
corrected = learned.read_text()
for wrong, why in ((corrected[:-3] + ("0" if corrected[-3] != "0" else "1") + corrected[-2:], "damaged"),
                   (corrected.replace("symplex correction 1", "symplex correction 2"), "'symplex correction 1'")):
    learned.write_text(wrong)
    told = sx("compile", *GEMM, "--times", learned, "-o", "passed.sxm").stderr
    assert "warning" in told and why in told and "prices are the model's" in told, told
    assert code_of("passed.sxm") == model, why
with Daemon(program="symplexd") as daemon:
    keep(daemon, corrected)
    got, info = served(daemon)
    assert got.endswith(", by corrected prices"), got
    keep(daemon, corrected.replace("symplex correction 1", "symplex correction 2"))
    assert served(daemon, "--refresh")[0] == gemm_plan
    keep(daemon, text)
    assert json.loads(ask(daemon, "tune", "fit", "--json"))["kept"]
    got, again = served(daemon, "--refresh")
    assert got.endswith(", by corrected prices") and again["key"] == info["key"], got

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

# On a GPU whose times jitter by a factor of two, and of ten where others use it, a change is made only for what is
# faster: nothing where all schedules take the same time, one with fewer blocks where each block has its price.
SMALL = ("--gemm", "64x96x32", "--dtype", "bf16", "--target", "h100")
first = int(os.environ.get("SX_SEED", "1"))
for seed in (first, first + 1):
    for alike in (1, 0):
        busy = dict(GPU, SX_FAKE_CUDA=GPU["SX_FAKE_CUDA"] + " jitter=%d alike=%d" % (seed, alike))
        said = json.loads(sx("tune", *SMALL, "--repeat", "24", "--json", "--times", TMP / "busy", **busy).stdout)
        on_gpu = said["kernels"][0]
        assert said["kept"] == on_gpu["certain"] == (alike == 0), ("SX_SEED=%d" % seed, said)
        sx("compile", *SMALL, "--times", TMP / "busy", "-o", "busy.sxm")
        assert ("measured" in plan_of("busy.sxm")) == (alike == 0), ("SX_SEED=%d" % seed, plan_of("busy.sxm"))
print("tune: %d schedules tried here, %d on the GPU of the tests" % (kernel["tried"], on_gpu["tried"]))
