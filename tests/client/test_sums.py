#!/usr/bin/env python3
"""Extents that are sums of products of symbols, from the command line: a decoder's cache grows by what comes, rows of
a batch are one dimension; code for the processor and for others, proofs, variants and intervals. numpy says what the
results are."""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxsums."))
DECODER = """sx 1
graph "decoder" (batch in [1, 4], past in [1, 64], seq in [1, 8]) {
    %x = parameter {name = "x", weight = 0} : f32[batch, seq, 16]
    %cache = parameter {name = "cache", weight = 0} : f32[batch, past, 16]
    %w = parameter {name = "w", weight = 1} : f32[16, 16]
    %rows = reshape(%x) : f32[batch*seq, 16]
    %0 = dot_general(%rows, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch*seq, 16]
    %k = reshape(%0) : f32[batch, seq, 16]
    %keys = concatenate(%cache, %k) {axis = 1} : f32[batch, past + seq, 16]
    %1 = dot_general(%x, %keys) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [2]}
        : f32[batch, seq, past + seq]
    %2 = softmax(%1) {axis = 2} : f32[batch, seq, past + seq]
    %3 = dot_general(%2, %keys) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1]}
        : f32[batch, seq, 16]
    %4 = reshape(%3) : f32[batch*seq, 16]
    %5 = relu(%4) : f32[batch*seq, 16]
    return %5 as "y", %keys as "keys"
}
"""
ROWS = """sx 1
graph "rows" (batch in [1, 64], seq in [1, 8]) {
    %x = parameter {name = "x", weight = 0} : f32[batch*seq, 16]
    %y = relu(%x) : f32[batch*seq, 16]
    return %y as "y"
}
"""


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def decode(x, cache, w):
    keys = np.concatenate([cache, x @ w], axis=1)
    scores = x @ keys.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = (weights / weights.sum(-1, keepdims=True)) @ keys
    return np.maximum(y.reshape(-1, 16), 0), keys


def run_decoder():
    rng = np.random.default_rng(7)
    (TMP / "decoder.sx").write_text(DECODER)
    for batch, past, seq in ((1, 1, 1), (2, 7, 3), (4, 64, 8)):
        x, cache, w = (rng.standard_normal(shape, np.float32) / 4
                       for shape in ((batch, seq, 16), (batch, past, 16), (16, 16)))
        for name, values in (("x", x), ("cache", cache), ("w", w)):
            np.save(TMP / f"{name}.npy", values)
        dims = ["--dim", f"batch={batch}", "--dim", f"past={past}", "--dim", f"seq={seq}"]
        sx("compile", "decoder.sx", *dims, "--no-daemon", "-t", "x86-64-v3", "-o", "d.sxm")
        sx("run", "d.sxm", "-i", "x=x.npy", "-i", "cache=cache.npy", "-w", "w=w.npy", "--check", "-o", "out")
        for name, values in zip(("y", "keys"), decode(x, cache, w)):
            got = np.load(TMP / "out" / f"{name}.npy")
            # sums of 16 and of 72 numbers of size 1, and an exponential: far below 1e-5 in f32
            assert got.shape == values.shape and np.allclose(got, values, rtol=1e-5, atol=1e-5), (name, batch, past)
    done = sx("compile", "decoder.sx", "--dim", "batch=2", "--dim", "seq=1", "--no-daemon", "-o", "d.sxm", status=4)
    assert 'symbol "past" has no value, within [1, 64]' in done.stderr, done
    done = sx("compile", "decoder.sx", "--dim", "batch=2", "--dim", "seq=1", "--dim", "past + seq=9", "--no-daemon",
              "-o", "d.sxm", status=4)
    assert "past + seq" in done.stderr and "unknown" in done.stderr, done
    for target in ("x86-64-v4", "h100"):  # emulated, interpreted
        sx("compile", "decoder.sx", "--dim", "batch=2", "--dim", "past=5", "--dim", "seq=3", "--no-daemon", "-t",
           target, "-o", "other.sxm")
    sx("optimize", "decoder.sx", "--no-daemon", "--proof", "proof.txt", "-o", "better.sx")
    sx("prove", "proof.txt", "--from", "decoder.sx")
    done = sx("compile", "decoder.sx", "--dim", "batch=2", "--dim", "seq=1", "--dim", "past=1..4", "--no-daemon", "-o",
              "d.sxm", status=4)
    assert 'an extent of "keys" is past + seq: give "past" one value' in done.stderr, done


def run_rows():
    x = np.linspace(-1, 1, 6 * 8 * 16, dtype=np.float32).reshape(48, 16)
    (TMP / "rows.sx").write_text(ROWS)
    np.save(TMP / "x.npy", x)
    for batch in ("1..6", "2,6"):
        sx("compile", "rows.sx", "--dim", f"batch={batch}", "--dim", "seq=8", "--no-daemon", "-t", "x86-64-v3", "-o",
           "r.sxm")
        sx("run", "r.sxm", "-i", "x=x.npy", "--dim", "batch=6", "--check", "-o", "out")
        assert np.array_equal(np.load(TMP / "out" / "y.npy"), np.maximum(x, 0)), batch
        np.save(TMP / "x2.npy", x[:16])
        sx("run", "r.sxm", "-i", "x=x2.npy", "--dim", "batch=2", "--check", "-o", "out")
        assert np.array_equal(np.load(TMP / "out" / "y.npy"), np.maximum(x[:16], 0)), batch


def main():
    run_decoder()
    run_rows()
    print("ok")


main()
