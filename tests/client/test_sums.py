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
BOTH = """sx 1
graph "both" (past in [1, 64], seq in [1, 16]) {
    %both = parameter {name = "both", weight = 0} : f32[past + seq, 8]
    %old = parameter {name = "old", weight = 0} : f32[past, 8]
    %new = crop(%both) {origin = [past, 0]} : f32[seq, 8]
    %z = negate(%old) : f32[past, 8]
    return %new as "y", %z as "z"
}
"""
ROWS = """sx 1
graph "rows" (batch in [1, 64], seq in [1, 8]) {
    %x = parameter {name = "x", weight = 0} : f32[batch*seq, 16]
    %y = relu(%x) : f32[batch*seq, 16]
    return %y as "y"
}
"""


# What a step adds to a cache, with rows of a table that begin where the cache ends; parts of the sum; a window that
# slides by one.
CACHE = """sx 1
graph "cache" (past in [1, 63], seq in [1, 64]) {
    %old = parameter {name = "old", weight = 0} : f32[past, 8]
    %new = parameter {name = "new", weight = 0} : f32[seq, 8]
    %table = parameter {name = "table", weight = 1} : f32[128, 8]
    %place = crop(%table) {origin = [past, 0]} : f32[seq, 8]
    %placed = add(%new, %place) : f32[seq, 8]
    %all = concatenate(%old, %placed) {axis = 0} : f32[past + seq, 8]
    %head = crop(%all) {origin = [0, 0]} : f32[past, 8]
    %tail = crop(%all) {origin = [past, 2]} : f32[seq, 4]
    %last = crop(%all) {dims = [0], origin = [0, 0]} : f32[1, 8]
    %window = crop(%all) {origin = [1, 0]} : f32[past + seq - 1, 8]
    %line = reshape(%all) : f32[8*past + 8*seq]
    %flat = negate(%line) : f32[8*past + 8*seq]
    return %all as "all", %head as "head", %tail as "tail", %last as "last", %window as "window", %flat as "flat"
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
    sx("compile", "decoder.sx", "--dim", "batch=2", "--dim", "seq=1", "--dim", "past=1..4", "--no-daemon", "-o",
       "d.sxm")
    for past in range(1, 5):
        x, cache = (rng.standard_normal((2, rows, 16), np.float32) / 4 for rows in (1, past))
        np.save(TMP / "x.npy", x)
        np.save(TMP / "cache.npy", cache)
        sx("run", "d.sxm", "--dim", f"past={past}", "-i", "x=x.npy", "-i", "cache=cache.npy", "-w", "w=w.npy",
           "--check", "-o", "out")
        for name, values in zip(("y", "keys"), decode(x, cache, w)):
            got = np.load(TMP / "out" / f"{name}.npy")
            assert got.shape == values.shape and np.allclose(got, values, rtol=1e-5, atol=1e-5), (name, past)


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
        sx("run", "r.sxm", "-i", "x=x2.npy", "--check", "-o", "out")
        assert np.array_equal(np.load(TMP / "out" / "y.npy"), np.maximum(x[:16], 0)), batch
    for seq in ("1..8", "2,3,4"):  # one symbol and the file tell the other
        sx("compile", "rows.sx", "--dim", "batch=1..6", "--dim", f"seq={seq}", "--no-daemon", "-t", "x86-64-v3", "-o",
           "r.sxm")
        shown = sx("module", "show", "r.sxm").stdout
        assert "dimension 0 = batch * seq\n" in shown or "dimension 0 = seq * batch\n" in shown, shown
        for given in ("batch=4", "seq=3"):
            np.save(TMP / "x3.npy", x[:12])
            sx("run", "r.sxm", "-i", "x=x3.npy", "--dim", given, "--check", "-o", "out")
            assert np.array_equal(np.load(TMP / "out" / "y.npy"), np.maximum(x[:12], 0)), (seq, given)
        done = sx("run", "r.sxm", "-i", "x=x3.npy", "--dim", "batch=5", status=2)
        assert "dimension seq has no value" in done.stderr, done
        done = sx("run", "r.sxm", "-i", "x=x3.npy", status=2)
        assert "has no value" in done.stderr, done


def run_both():
    """The files of the inputs tell both symbols, one of them by a sum."""
    (TMP / "both.sx").write_text(BOTH)
    sx("compile", "both.sx", "--dim", "past=1..8", "--dim", "seq=1..4", "--no-daemon", "-o", "both.sxm")
    both = np.arange(56, dtype=np.float32).reshape(7, 8)
    np.save(TMP / "both.npy", both)
    np.save(TMP / "old.npy", -both[:5])
    sx("run", "both.sxm", "-i", "both=both.npy", "-i", "old=old.npy", "--check", "-o", "out")
    assert np.array_equal(np.load(TMP / "out" / "y.npy"), both[5:]), "the rows behind those that are old"
    done = sx("run", "both.sxm", "-i", "both=both.npy", "--random", "1", status=2)
    assert "dimension seq has no value" in done.stderr or "dimension past has no value" in done.stderr, done


def check_cache(module, past, seq, *dims):
    """All results are elements of the operands, or one sum of two: equal to the bit."""
    rng = np.random.default_rng(past + 100 * seq)
    old, new, table = (rng.standard_normal((rows, 8), np.float32) for rows in (past, seq, 128))
    for name, values in (("old", old), ("new", new), ("table", table)):
        np.save(TMP / f"{name}.npy", values)
    sx("run", module, *dims, "-i", "old=old.npy", "-i", "new=new.npy", "-w", "table=table.npy", "--check", "-o", "out")
    every = np.concatenate([old, new + table[past:past + seq]])
    for name, values in {"all": every, "head": every[:past], "tail": every[past:, 2:6], "last": every[-1:],
                         "window": every[1:], "flat": -every.reshape(-1)}.items():
        assert np.array_equal(np.load(TMP / "out" / f"{name}.npy"), values), (name, past, seq)


def run_cache():
    (TMP / "cache.sx").write_text(CACHE)
    for past, seq in ((1, 1), (17, 5), (63, 64)):
        sx("compile", "cache.sx", "--dim", f"past={past}", "--dim", f"seq={seq}", "--no-daemon", "-o", "c.sxm")
        check_cache("c.sxm", past, seq)
    sx("compile", "cache.sx", "--dim", "past=1..63", "--dim", "seq=3", "--no-daemon", "-o", "past.sxm")
    assert "dimension 0 = past + 3\n" in sx("module", "show", "past.sxm").stdout
    assert "dimension 0 = past + 2\n" in sx("module", "show", "past.sxm").stdout
    for past in (1, 2, 31, 63):
        check_cache("past.sxm", past, 3, "--dim", f"past={past}")
    sx("compile", "cache.sx", "--dim", "past=1..63", "--dim", "seq=3,4", "--no-daemon", "-o", "past.sxm")
    for past, seq in ((1, 3), (63, 3), (17, 4), (63, 4)):  # kernels for one length are not those for another
        check_cache("past.sxm", past, seq, "--dim", f"past={past}", "--dim", f"seq={seq}")
    sx("compile", "cache.sx", "--dim", "past=1..5", "--dim", "seq=1..6", "--no-daemon", "-o", "both.sxm")
    shown = sx("module", "show", "both.sxm").stdout
    assert "dimension 0 = past + seq\n" in shown and "dimension 0 = past + seq + -1\n" in shown, shown
    for past, seq in ((1, 1), (1, 6), (5, 1), (3, 4), (5, 6)):
        check_cache("both.sxm", past, seq, "--dim", f"past={past}", "--dim", f"seq={seq}")
    (TMP / "far.sx").write_text(CACHE.replace("f32[128, 8]", "f32[126, 8]"))
    done = sx("compile", "far.sx", "--dim", "past=1", "--dim", "seq=1", "--no-daemon", "-o", "c.sxm", status=4)
    assert "seq elements from past on, of extent 126, can be more than it has" in done.stderr, done
    sx("optimize", "cache.sx", "--no-daemon", "--proof", "proof.txt", "-o", "better.sx")
    sx("prove", "proof.txt", "--from", "cache.sx")


def main():
    run_decoder()
    run_cache()
    run_rows()
    run_both()
    print("ok")


main()
