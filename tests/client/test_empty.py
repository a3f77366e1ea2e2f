#!/usr/bin/env python3
"""Tensors without elements from the command line: files in and out, on the processor and as code for others; numpy
says what the results are. What has no code is told by name."""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
PROGRAM = pathlib.Path(os.environ["SX_SOURCE_DIR"]) / "tests" / "golden" / "ir" / "empty.sx"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxempty."))
STATE = """sx 1
graph "state" {
    %x = parameter {name = "x", weight = 0} : f32[4]
    %k = parameter {name = "k", weight = 0} : f32[0, 2] state = 0
    %n = negate(%k) : f32[0, 2]
    %y = negate(%x) : f32[4]
    return %y as "y", %n as "n" into "k"
}
"""
SCAN = """sx 1
graph "scan" {
    %c = parameter {name = "c", weight = 0} : f32[4]
    %k = parameter {name = "k", weight = 0} : f32[0]
    %n = parameter {name = "n", weight = 0} : f32[3, 4]
    %last, %k2 = scan(%c, %k, %n) {carried = 2, sliced = 1, step = graph {
        %sum = parameter {name = "sum", weight = 0} : f32[4]
        %e = parameter {name = "e", weight = 0} : f32[0]
        %row = parameter {name = "row", weight = 0} : f32[4]
        %next = add(%sum, %row) : f32[4]
        return %next as "carried", %e as "e"
    }} : f32[4], f32[0]
    return %last as "last", %k2 as "k2"
}
"""


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def main():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(TMP / "x.npy", x)
    np.save(TMP / "e.npy", np.zeros((0, 4), np.float32))
    np.save(TMP / "w.npy", np.zeros((4, 0), np.float32))
    sx("compile", PROGRAM, "--dim", "b=3", "--no-daemon", "-t", "x86-64-v3", "-o", "empty.sxm")
    sx("run", "empty.sxm", "-i", "x=x.npy", "-i", "e=e.npy", "-w", "w=w.npy", "--check", "-o", "out")
    want = {"y": x, "r": np.full(3, -np.inf, np.float32), "s": np.zeros((3, 0), np.float32),
            "c": np.full((2, 4), 1.5, np.float32), "g": np.zeros((0, 4), np.float32),
            "e2": np.zeros((0, 4), np.float32)}
    for name, values in want.items():
        got = np.load(TMP / "out" / f"{name}.npy")
        assert got.shape == values.shape and got.dtype == values.dtype and np.array_equal(got, values), (name, got)
    assert len(list((TMP / "out").iterdir())) == len(want)
    sx("run", "empty.sxm", "--random", "5", "--check")
    for target in ("x86-64-v4", "h100"):  # emulated, interpreted
        sx("compile", PROGRAM, "--dim", "b=3", "--no-daemon", "-t", target, "-o", "other.sxm")
    (TMP / "state.sx").write_text(STATE)
    sx("compile", "state.sx", "--no-daemon", "-t", "x86-64-v3", "-o", "state.sxm")
    sx("run", "state.sxm", "--random", "5", "--steps", "2", "--state-out", "s.npz")
    assert np.load(TMP / "s.npz")["k"].shape == (0, 2)
    (TMP / "scan.sx").write_text(SCAN)
    done = sx("compile", "scan.sx", "--no-daemon", "-o", "scan.sxm", status=4)
    assert "scan of a tensor without elements" in done.stderr and "'%last'" in done.stderr, done
    sx("optimize", PROGRAM, "--no-daemon", "--proof", "proof.txt", "-o", "better.sx")
    sx("prove", "proof.txt", "--from", PROGRAM)
    print("ok")


main()
