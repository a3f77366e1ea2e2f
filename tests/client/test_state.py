#!/usr/bin/env python3
"""Programs that keep state, from the command line: numpy says what is in the files before and behind, step by step;
what does not fit is told by name, and nothing is left behind."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxstate."))
STEP = """sx 1
graph "step" {
    %x = parameter {name = "x", weight = 0} : f64[4, 3]
    %w = parameter {name = "layer/w", weight = 0} : f64[4, 3] state = 0.5
    %n = parameter {name = "n", weight = 0} : i64[] state = 0
    %d = parameter {name = "d", weight = 0} : f64[4, 3] donated
    %0 = multiply(%w, %x) : f64[4, 3]
    %1 = add(%0, %d) : f64[4, 3]
    %2 = constant {data = 1} : i64[]
    %3 = add(%n, %2) : i64[]
    %4 = subtract(%d, %x) : f64[4, 3]
    return %1 as "w" into "layer/w", %3 as "n" into "n", %4 as "e" into "d", %w as "old"
}
"""
PLAIN = """sx 1
graph "plain" {
    %x = parameter {name = "x", weight = 0} : f32[4]
    %0 = negate(%x) : f32[4]
    return %0 as "y"
}
"""


def sx(*arguments, status=0, **environment):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def refused(says, status, *arguments):
    before = sorted(TMP.rglob("*"))
    done = sx(*arguments, status=status)
    assert says in done.stderr and done.stderr.startswith("symplex-client: "), (says, done)
    assert sorted(TMP.rglob("*")) == before


RNG = np.random.default_rng(7)
X, D = RNG.integers(-3, 4, (4, 3)) / 2, RNG.integers(-3, 4, (4, 3)) / 4
RUN = ["run", "step.sxm", "-i", "x=x.npy", "-i", "d=d.npy"]


def after(steps, w, n):
    old = w
    for _ in range(steps):
        old, w, n = w, w * X + D, n + 1
    return old, w, n


def state(path):
    with np.load(TMP / path) as archive:
        assert sorted(archive.files) == ["layer/w", "n"], archive.files
        assert archive["n"].dtype == np.int64 and archive["n"].shape == ()
        return archive["layer/w"], int(archive["n"])


def test_steps():
    """From the initial values; on from a file of ours; the same in one go; donated inputs are given at each run."""
    sx(*RUN, "--steps", 3, "--state-out", "s3.npz", "-o", "out", "--check")
    old, w, n = after(3, np.full((4, 3), 0.5), 0)
    assert n == 3 and np.array_equal(state("s3.npz")[0], w) and state("s3.npz")[1] == 3
    assert np.array_equal(np.load(TMP / "out" / "old.npy"), old)
    assert np.array_equal(np.load(TMP / "out" / "e.npy"), D - X)
    assert not (TMP / "out" / "w.npy").exists()  # it goes into a state, and is no output
    sx(*RUN, "--steps", 4, "--state-in", "s3.npz", "--state-out", "s7.npz")
    sx(*RUN, "--steps", 7, "--state-out", "once.npz")
    assert (TMP / "s7.npz").read_bytes() == (TMP / "once.npz").read_bytes()
    assert np.array_equal(state("s7.npz")[0], after(7, np.full((4, 3), 0.5), 0)[1])


def test_files_of_numpy():
    """numpy.savez is read, and what was read is written."""
    w = RNG.integers(-9, 9, (4, 3)) / 8
    np.savez(TMP / "own.npz", **{"layer/w": w, "n": np.int64(40)})
    sx(*RUN, "--steps", 0, "--state-in", "own.npz", "--state-out", "same.npz")
    assert np.array_equal(state("same.npz")[0], w) and state("same.npz")[1] == 40
    done = json.loads(sx(*RUN, "--steps", 2, "--state-in", "own.npz", "--state-out", "on.npz", "--json").stdout)
    assert done["runs"] == 2, done
    assert np.array_equal(state("on.npz")[0], after(2, w, 40)[1]) and state("on.npz")[1] == 42


def test_no_step():
    done = sx(*RUN, "--steps", 0, "--state-out", "zero.npz")
    assert "0 runs" in done.stdout and np.array_equal(state("zero.npz")[0], np.full((4, 3), 0.5))
    refused("--steps 0 and --check", 2, *RUN, "--steps", 0, "--check")


def test_wrong_state():
    w, n = np.zeros((4, 3)), np.int64(0)

    def given(says, **arrays):
        np.savez(TMP / "bad.npz", **{name.replace("_", "/"): array for name, array in arrays.items()})
        refused(says, 4, *RUN, "--steps", 1, "--state-in", "bad.npz", "--state-out", "never.npz")

    given("state layer/w: in bad.npz it is f64[3, 4], the module has f64[4, 3]", layer_w=w.T.copy(), n=n)
    given("state layer/w: in bad.npz it is f32[4, 3], the module has f64[4, 3]", layer_w=w.astype(np.float32), n=n)
    given("bad.npz: the module has no state m", layer_w=w, n=n, m=n)
    given("bad.npz: state n is not in it", layer_w=w)
    given("state layer/w: bad.npz: not in C order", layer_w=np.asfortranarray(w), n=n)
    np.savez_compressed(TMP / "bad.npz", **{"layer/w": w, "n": n})
    refused("is compressed", 4, *RUN, "--steps", 1, "--state-in", "bad.npz")
    refused("x.npy: not an .npz file", 4, *RUN, "--steps", 1, "--state-in", "x.npy")
    refused("missing.npz", 4, *RUN, "--steps", 1, "--state-in", "missing.npz")
    np.savez(TMP / "bad.npz", **{"layer/w": w, "n": n})
    whole = (TMP / "bad.npz").read_bytes()
    at = whole.index(b"\x93NUMPY") + 200  # an element
    (TMP / "bad.npz").write_bytes(whole[:at] + b"\x01" + whole[at + 1:])
    refused("is damaged: its checksum differs", 4, *RUN, "--steps", 1, "--state-in", "bad.npz")


def test_misuse():
    refused("--state-out: the state behind how many runs?", 2, *RUN, "--state-out", "never.npz")
    refused("--steps and --repeat", 2, *RUN, "--steps", 2, "--repeat", 2)
    refused("the module keeps no state", 4, "run", "plain.sxm", "-r", 1, "--steps", 1, "--state-in", "own.npz")
    refused("never", 4, *RUN, "--steps", 1, "--state-out", "missing/never.npz")


def test_verified():
    done = sx("verify", "step.sxm")
    assert "initial values of state" in done.stdout and "over 4 runs" in done.stdout, done
    assert "state" in sx("explain", "step.sxm", "--all").stdout


def test_gpu():
    """PTX, executed by the driver of the tests: state stays on the GPU from run to run, with the processor's bits."""
    driver = TMP / "libcuda.so.1"
    shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", driver)
    driver.chmod(0o600)
    gpu = {"SYMPLEX_CUDA_DRIVER": str(driver), "SX_FAKE_CUDA": "capability=90"}
    sx("compile", "step.sx", "--no-daemon", "--assembler", "none", "--target", "h100", "-o", "gpu.sxm")
    on_gpu = ["run", "gpu.sxm", *RUN[2:]]
    done = sx(*on_gpu, "--steps", 3, "--state-out", "gpu3.npz", "--check", **gpu)
    assert "check    passed" in done.stdout and "threads" not in done.stdout, done
    sx(*RUN, "--steps", 3, "--state-out", "cpu3.npz")
    assert (TMP / "gpu3.npz").read_bytes() == (TMP / "cpu3.npz").read_bytes()
    sx(*on_gpu, "--steps", 2, "--state-in", "cpu3.npz", "--state-out", "gpu5.npz", **gpu)
    sx(*RUN, "--steps", 5, "--state-out", "cpu5.npz")
    assert (TMP / "gpu5.npz").read_bytes() == (TMP / "cpu5.npz").read_bytes()


def test_programs():
    """What a user may get wrong in the text."""
    for change, says in ((("state = 0.5", "state"), "state \"layer/w\" has no initial value: state = 0 fills it"),
                         (("into \"n\"", "into \"x\""), "which is neither state nor donated"),
                         (("into \"d\"", "into \"layer/w\""), "outputs \"w\" and \"e\" both go into state \"layer/w\""),
                         (("%w as \"old\"", "%w as \"old\" into \"d\""),
                          "outputs \"e\" and \"old\" both go into the donated \"d\"")):
        assert change[0] in STEP
        (TMP / "bad.sx").write_text(STEP.replace(*change), encoding="utf-8")
        refused(says, 4, "compile", "bad.sx", "--no-daemon", "-o", "never.sxm")
    refused("ONNX has no parameters that are state or donated", 4,
            "optimize", "step.sx", "--no-daemon", "--onnx", "never.onnx")


if __name__ == "__main__":
    try:
        (TMP / "step.sx").write_text(STEP, encoding="utf-8")
        (TMP / "plain.sx").write_text(PLAIN, encoding="utf-8")
        np.save(TMP / "x.npy", X)
        np.save(TMP / "d.npy", D)
        sx("compile", "step.sx", "--no-daemon", "-o", "step.sxm")
        sx("compile", "plain.sx", "--no-daemon", "-o", "plain.sxm")
        test_steps()
        test_files_of_numpy()
        test_no_step()
        test_wrong_state()
        test_misuse()
        test_verified()
        test_gpu()
        test_programs()
    finally:
        shutil.rmtree(TMP)
    print("ok")
