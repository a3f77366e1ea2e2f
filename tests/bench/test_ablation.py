#!/usr/bin/env python3
"""`symplex-bench ablation` and `compile` on the smallest network: the variants are there and differ as they
should, what is estimated never gets dearer by more rules, stages add up, and what is verified has a stage."""
import json
import os
import subprocess

BENCH = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin", "symplex-bench")
VARIANTS = ("as it came", "fused only", "all rules", "long search", "for this batch alone", "as it came, again")


def rows_of(*options):
    done = subprocess.run([BENCH, *options, "--rounds", "1", "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {row["metric"]: row for row in map(json.loads, done.stdout.splitlines())}


rows = rows_of("ablation", "--case", "mlp-batch64", "--steps", "1", "--fuel", "1000000", "--threads", "1")
launches = {name: rows[f"launches: {name}"]["value"] for name in VARIANTS}
model = {name: rows[f"model: {name}"]["value"] for name in VARIANTS}
assert launches["fused only"] < launches["as it came"], launches
assert model["long search"] <= model["all rules"] <= model["fused only"] < model["as it came"], model
assert model["for this batch alone"] <= model["fused only"], model
assert launches["as it came, again"] == launches["as it came"] and rows["model: as it came, again"]["ratio"] == 1
for name in VARIANTS:
    assert rows[f"run: {name}"]["value"] > 0 and rows[f"difference: {name}"]["value"] < 1e-3, name
for name in VARIANTS[1:]:
    row = rows[f"run: {name}"]
    assert row["peer_value"] > 0 and abs(row["peer_value"] / rows["run: as it came"]["value"] - 1) < 1e-4, row
groups = {metric.split(": ")[1] for metric in rows} - set(VARIANTS)
assert len(groups) == 5 and all(name.startswith("without ") for name in groups), groups
# There is no convolution in it, and no attention.
for name in ("without convolutions", "without attention"):
    assert f"the same program: {name}" in rows and f"run: {name}" not in rows, name

# In the encoder every variant is another program: one that is compiled with the rules of another shows here.
rows = rows_of("ablation", "--case", "encoder-batch8", "--steps", "1", "--fuel", "1000000", "--threads", "1")
launches = {name: rows[f"launches: {name}"]["value"] for name in VARIANTS}
model = {name: rows[f"model: {name}"]["value"] for name in VARIANTS}
assert launches["all rules"] < launches["fused only"] < launches["as it came"], launches
assert model["all rules"] < 0.95 * model["fused only"] and model["fused only"] < 0.95 * model["as it came"], model
for name in ("composites", "attention", "merging", "reassociation"):
    assert model["all rules"] < rows[f"model: without {name}"]["value"] < model["as it came"], (name, rows)
assert "the same program: without convolutions" in rows, rows

for case in ("mlp-batch8", "mlp-batch8-verified"):
    rows = rows_of("compile", "--case", case)
    verified = case.endswith("-verified")
    if verified and not rows:
        assert "avx512f" not in open("/proc/cpuinfo", encoding="utf-8").read()
        continue
    stages = {name: row["value"] for name, row in rows.items() if name != "total"}
    assert {"parse", "saturate", "kernels", "places"} <= set(stages) and ("verify" in stages) == verified, stages
    assert 0 < sum(stages.values()) <= rows["total"]["value"], rows
print("ok")
