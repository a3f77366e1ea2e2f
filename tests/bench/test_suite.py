#!/usr/bin/env python3
"""`symplex-bench ptx` on shapes of the suite: floors as counted here from the extents and the device's text, the
fields of the schema, the list of shapes; a prediction below the floor and a spill make it fail. And on choosing."""
import json
import os
import re
import subprocess

BIN = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin")
SOURCE = os.environ.get("SX_SOURCE_DIR", ".")
FIELDS = {"schema", "target", "shape", "operation", "dtype", "layout", "origin", "predicted_us", "floor_us", "ratio",
          "kernels", "schedules", "selection_us", "emission_ms", "assembling_ms", "registers", "spills", "threads",
          "shared_bytes", "interpreted", "interpreted_per_second", "schedule"}


def run(*options):
    done = subprocess.run([os.path.join(BIN, "symplex-bench"), "ptx", "--rounds", "1", *options],
                          capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def device(name):
    """GB/s, and TFLOP/s of tensor units for bf16."""
    text = subprocess.run([os.path.join(BIN, "symplex-client"), "targets", name], capture_output=True, text=True,
                          check=True).stdout
    scale = {"GB/s": 1.0, "TB/s": 1000.0, "TFLOP/s": 1.0, "PFLOP/s": 1000.0}
    memory = re.search(r"^memory bandwidth (\S+) (\S+)$", text, re.M)
    rate = re.search(r"^rate bf16 tensor (\S+) (\S+)$", text, re.M)
    return tuple(float(m[1]) * scale[m[2]] for m in (memory, rate))


# The list: 60 contractions first, every name once, five fields.
with open(os.path.join(SOURCE, "tests/data/shapes/gpu.txt"), encoding="utf-8") as file:
    lines = [line.split(None, 4) for line in file.read().split("\n") if line and line[0] != "#"]
assert all(len(line) == 5 for line in lines)
assert len({line[0] for line in lines}) == len(lines)
assert all(line[1].startswith("gemm:") and line[2] == "bf16" for line in lines[:60])
assert {line[1].split(":")[0] for line in lines[60:]} == {"gemm", "softmax", "norm", "attention"}

bandwidth, peak = device("a100")
status, out, error = run("--case", "suite-a100", "--shape", "gpt2.c_fc.1", "--json")
assert status == 0, error
rows = [json.loads(line) for line in out.splitlines()]
shapes = [row for row in rows if row["schema"] == "symplex-bench suite 1"]
assert [row["shape"] for row in shapes] == ["gpt2.c_fc.1", "gpt2.c_fc.16"], shapes
for row in shapes:
    assert set(row) == FIELDS, set(row) ^ FIELDS
    m, n, k = (int(x) for x in row["operation"][5:].split("x"))
    floor = max(2 * (m * n + m * k + n * k) / bandwidth / 1e3, 2.0 * m * n * k / peak / 1e6)
    assert abs(row["floor_us"] - floor) < 1e-4 * floor, (row, floor)
    assert row["predicted_us"] >= row["floor_us"] and 0 < row["ratio"] <= 1
    assert abs(row["ratio"] - row["floor_us"] / row["predicted_us"]) < 1e-4
    assert row["kernels"] >= 1 and row["schedules"] > 1 and row["selection_us"] > 0 and row["interpreted"] > 0
    assert row["registers"] is None or (0 < row["registers"] <= 255 and row["spills"] == 0)
    assert "matrix" in row["schedule"] and row["threads"] >= 32 and 0 < row["shared_bytes"] <= 163 << 10
totals = {row["metric"]: row["value"] for row in rows if row["schema"] == "symplex-bench 1"}
assert totals["shapes"] == 2 and totals["spills"] == 0 and totals["predicted below floor"] == 0

# Rows, attention; floors again.
status, out, error = run("--target", "h100", "--case", "suite-h100", "--shape", "rms.llama3-70b", "--json")
assert status == 0, error
row = json.loads(out.splitlines()[0])
assert abs(row["floor_us"] - 2 * 2 * 4096 * 8192 / device("h100")[0] / 1e3) < 1e-3, row

# Reductions: rows and columns of one matrix, what is read and the sums.
reductions = os.path.join(SOURCE, "tests/data/shapes/reductions.txt")
for name, sums in (("rows.bert", 8192), ("columns.bert", 1024)):
    status, out, error = run("--target", "h100", "--case", "suite-h100", "--shapes", reductions, "--shape", name,
                             "--json")
    assert status == 0, error
    row = json.loads(out.splitlines()[0])
    floor = 2 * (8192 * 1024 + sums) / device("h100")[0] / 1e3
    assert abs(row["floor_us"] - floor) < 1e-4 * floor and 0 < row["ratio"] <= 1 and row["kernels"] >= 1, (row, floor)

for plant, text in (("below", "below the floor"), ("spill", "spill")):
    status, out, error = run("--case", "suite-a100", "--shape", "rms.llama3-70b", "--plant", plant)
    assert status == 1 and text in error, (status, error)
status, out, error = run("--case", "suite-a100", "--shape", "nothing")
assert status == 2 and "no shape begins with nothing" in error, error
# Choosing: what was chosen is of the space that is swept without the search, and less than 1 % above its cheapest.
status, out, error = run("--case", "select-a100", "--shape", "gpt2.c_fc", "--json")
assert status == 0, error
rows = [json.loads(line) for line in out.splitlines()]
kernels = [row for row in rows if row["schema"] == "symplex-bench select 1"]
assert [row["shape"] for row in kernels][:2] == ["gpt2.c_fc.1", "gpt2.c_fc.16"], kernels
for row in kernels:
    assert 0.99 <= row["ratio"] <= 1 + 1e-6 and row["points"] > 100 and row["selection_us"] > 0, row
    assert abs(row["ratio"] - row["cheapest_us"] / row["chosen_us"]) < 1e-4 and row["priced"] <= row["schedules"], row
totals = {row["metric"]: row["value"] for row in rows if row["schema"] == "symplex-bench 1"}
assert totals["kernels"] == len(kernels)
assert abs(totals["cheapest over chosen, worst"] - min(row["ratio"] for row in kernels)) < 1e-4
print("ok")
