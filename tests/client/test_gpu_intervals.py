#!/usr/bin/env python3
"""One module for an interval on a GPU: the driver of the tests is given the numbers of each run, and maps of its
extents, and the outputs have the bits of the module for the value alone."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxintervals."))
HIGH, STEPS, COLUMNS = 70, 64, 48
ROWS = f"""sx 1
graph "rows" (m in [1, 4096]) {{
    %x = parameter {{name = "x", weight = 0}} : f16[m, {STEPS}]
    %w = parameter {{name = "w", weight = 1}} : f16[{STEPS}, {COLUMNS}]
    %0 = dot_general(%x, %w) {{lhs_contract = [1], rhs_contract = [0]}} : f16[m, {COLUMNS}]
    %1 = convert(%0) : f32[m, {COLUMNS}]
    %2 = softmax(%1) {{axis = 1}} : f32[m, {COLUMNS}]
    return %2 as "y"
}}
"""


def sx(*arguments, status=0, **environment):
    done = subprocess.run([str(BINARY / "symplex-client"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=240, check=False, env=dict(os.environ, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def test_runs(target, fake):
    sx("compile", "rows.sx", "--no-daemon", "--assembler", "none", "--target", target, "--dim", f"m=1..{HIGH}", "-o",
       f"{target}.sxm")
    shown = json.loads(sx("module", "show", f"{target}.sxm", "--json"))
    assert len(shown.get("variants", [None])) <= 3, shown["variants"]
    for m in (1, 5, 64, HIGH):
        x = RNG.standard_normal((m, STEPS)).astype(np.float16)
        np.save(TMP / "x.npy", x)
        sx("compile", "rows.sx", "--no-daemon", "--assembler", "none", "--target", target, "--dim", f"m={m}", "-o",
           "alone.sxm")
        y = {}
        for name in (target, "alone"):
            sx("run", f"{name}.sxm", "-i", "x=x.npy", "--weight", "w=w.npy", "-o", name, **fake)
            y[name] = np.load(TMP / name / "y.npy")
        assert y[target].tobytes() == y["alone"].tobytes(), (target, m)
        scores = x.astype(np.float32) @ W.astype(np.float32)
        want = np.exp(scores - scores.max(axis=1, keepdims=True))
        want /= want.sum(axis=1, keepdims=True)
        # the scores are rounded to f16: e^x moves by as much as x, of which the largest is about 40
        assert np.abs(y[target] - want).max() < 40 * 2.0**-11, (target, m)
    told = sx("run", f"{target}.sxm", "--random", 1, "--dim", f"m={HIGH + 1}", status=4, **fake)
    assert f"extent m has {HIGH + 1}; the module serves 1 to {HIGH}" in told, told


def test_dump(target):
    """Whoever launches the kernels by himself finds what follows the extents."""
    sx("module", "dump", f"{target}.sxm", "-o", "dump")
    kernels = json.loads((TMP / "dump" / "kernels.json").read_text(encoding="utf-8"))["kernels"]
    parts = [(kernel, part) for kernel in kernels for part in kernel["launch"]]
    assert any(part["numbers"] > 0 for _, part in parts), parts
    for kernel, part in parts:
        text = (TMP / "dump" / kernel["ptx"]).read_text(encoding="utf-8")
        assert part["numbers"] == 0 or f"number_{part['numbers'] - 1}" in text, kernel["name"]
        last = part["cases"][-1] if part["cases"] else {"first": 3, "numbers": []}
        assert part["numbers"] == last["first"] + len(last["numbers"]) - 3, part
        for case in part["cases"]:
            assert case["symbol"] == "m" and 1 <= case["low"] <= case["high"] <= HIGH, case
        for copied in part["maps"]:
            assert all(n == 0 or 3 <= n < part["numbers"] + 3 for n in copied["dim_numbers"]), copied


RNG = np.random.default_rng(7)
W = RNG.standard_normal((STEPS, COLUMNS)).astype(np.float16)
np.save(TMP / "w.npy", W)
(TMP / "rows.sx").write_text(ROWS, encoding="utf-8")
try:
    fake_driver = TMP / "libcuda.so.1"
    shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", fake_driver)
    fake_driver.chmod(0o600)
    for gpu, capability in (("a100", 80), ("h100", 90)):
        test_runs(gpu, {"SYMPLEX_CUDA_DRIVER": str(fake_driver), "SX_FAKE_CUDA": f"capability={capability}"})
    test_dump("h100")
finally:
    shutil.rmtree(TMP)
print("one module for an interval, on the GPU of the tests' driver")
