#!/usr/bin/env python3
"""`symplex-bench search`: its rows agree with each other, the same run again gives them again but for the
seconds; a program from a file; refusals."""
import json
import os
import subprocess

BENCH = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin", "symplex-bench")
SOURCE = os.environ.get("SX_SOURCE_DIR", ".")
FUEL = 30_000_000


def run(*options):
    done = subprocess.run([BENCH, "search", "--json", *options], capture_output=True, text=True, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def check(program, steps, name):
    options = ["--program", program, "--steps", str(steps), "--fuel", str(FUEL)]
    code, rows, error = run(*options)
    assert code == 0, error
    step = [row for row in rows if "lane" in row]
    summary = {row["metric"]: row for row in rows if "metric" in row}
    lanes = {}
    for row in step:
        assert row["case"] == name and 0 < row["bound"] <= row["objective"], row
        before = lanes.get(row["lane"])
        assert row["step"] == (before["step"] + 1 if before else 1) and row["step"] <= steps, row
        assert row["new"] == (before is None or row["objective"] < before["objective"]), row
        assert before is None or (row["fuel"] > before["fuel"] and not before["done"]), row
        lanes[row["lane"]] = row
    assert len(lanes) > 1 and "steady" in lanes
    best = min(row["objective"] for row in lanes.values())
    assert abs(summary["objective"]["value"] - best) <= 1e-9 * best
    assert abs(summary["objective"]["peer_value"] - step[0]["objective"]) <= 1e-5 * best
    assert summary["fuel"]["value"] == sum(row["fuel"] for row in lanes.values())
    _, again, _ = run(*options)
    for row in rows + again:
        row.pop("seconds", None)
    assert [r for r in rows if "lane" in r] == [r for r in again if "lane" in r]
    return best, step[0]["objective"]


best, first = check("products", 2, "products")
assert best < first, (best, first)
path = os.path.join(SOURCE, "tests/golden/egraph/rep_block.sx")
check(path, 1, path)
for options, text in ((["--program", "no such"], "neither a built-in program nor a file"),
                      (["--case", "no such"], "has no case"), (["--fuel", "x"], "is not a number")):
    code, rows, error = run(*options)
    assert code != 0 and not rows and text in error, (options, code, error)
print("ok")
