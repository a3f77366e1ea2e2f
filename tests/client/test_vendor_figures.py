#!/usr/bin/env python3
"""The constants of GPUs against documents of their vendor: every row of the table in docs/DEVICES.md, "Checked against
documents", beside what `symplex-client targets NAME` prints. A figure of a document has as many digits as it has: ours
may be off by half of its last one, or by the share that the table's heading allows, whichever is more."""
import os
import re
import subprocess

BIN = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin", "symplex-client")
SOURCE = os.environ.get("SX_SOURCE_DIR", ".")
SHARE = 0.002
SCALE = {"": 1.0, "B": 1.0, "kB": 1e3, "KiB": 1024.0, "MB": 1e6, "MiB": 1024.0 ** 2, "GB": 1e9, "GiB": 1024.0 ** 3,
         "MHz": 1e6, "GHz": 1e9, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "cycles": 1.0, "ns": 1e-9, "us": 1e-6,
         "pJ": 1e-12}
for prefix, factor in (("G", 1e9), ("T", 1e12), ("P", 1e15)):
    SCALE[prefix + "FLOP/s"] = SCALE[prefix + "OP/s"] = factor
GPUS = ["a100", "h100", "h200", "b200", "rtx3090", "rtx4090"]
# Of each GPU the documents say at least so much.
LEAST = ["rate bf16 tensor", "rate f16 tensor", "shared capacity", "threads per core", "blocks per core",
         "register file", "threads per block"]


def number(text):
    """A value in the base unit, and half of the last digit that is written down."""
    digits, _, unit = text.partition(" ")
    decimals = len(digits.partition(".")[2])
    return float(digits) * SCALE[unit], 0.5 * 10.0 ** -decimals * SCALE[unit]


def values(name):
    text = subprocess.run([BIN, "targets", name], capture_output=True, text=True, check=True, timeout=60).stdout
    out = {}
    for line in text.split("\n"):
        follows = re.fullmatch(r"# (rate f32 vector) follows: (\S+ \S+)", line)
        match = follows or re.fullmatch(r"([a-z][a-z0-9 ]*?) ([0-9.]+(?: \S+)?)", line)
        if match:
            out[match[1]] = number(match[2])[0]
    tf32 = subprocess.run([BIN, "targets", name + "+tf32"], capture_output=True, text=True, check=True,
                          timeout=60).stdout
    out["rate f32 tensor"] = number(re.search(r"rate f32 tensor ([0-9.]+ \S+)", tf32)[1])[0]
    out["second level"] = out["l2 capacity"] * out["cores"]
    out["both ways of links"] = 2 * out["link bandwidth"]
    return out


def compare(rows, of):
    """What is wrong: a line for each row."""
    wrong = []
    for device, quantity, figure, document in rows:
        want, half = number(figure)
        got = of[device].get(quantity)
        if not document or got is None or abs(got - want) > max(half, SHARE * want) * (1 + 1e-9):
            wrong.append(f"{device}: {quantity} is {got}, {document or 'no document'} says {figure}")
    return wrong


with open(os.path.join(SOURCE, "docs", "DEVICES.md"), encoding="utf-8") as file:
    page = file.read().split("## Checked against documents", 1)[1].split("\n## ", 1)[0]
table = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.split("\n") if line.startswith("| ")]
rows = [cells for cells in table if cells[0] in GPUS]
assert len(rows) == len(table) - 1 and len({(r[0], r[1]) for r in rows}) == len(rows)
ours = {name: values(name) for name in GPUS}
wrong = compare(rows, ours)
assert not wrong, "\n".join(wrong)
for name in GPUS:
    missing = set(LEAST) - {r[1] for r in rows if r[0] == name}
    assert not missing, (name, missing)
# Every row counts: with another value of ours it is wrong.
for name in GPUS:
    for quantity in [r[1] for r in rows if r[0] == name]:
        planted = {k: dict(v) for k, v in ours.items()}
        planted[name][quantity] *= 1.1
        found = compare(rows, planted)
        assert len(found) == 1 and found[0].startswith(f"{name}: {quantity} "), (name, quantity, found)
print(f"ok: {len(rows)} figures")
