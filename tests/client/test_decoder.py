#!/usr/bin/env python3
"""A decoder whose keys and values are state: each of its steps gives the bits of the same row of the whole sequence,
on the processor and on the GPU of the tests' driver. One module for an interval takes prompts of any length, and single
steps, one behind the other."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxdecoder."))
WIDTH, TOKENS, LONG = 32, 64, 2048
WEIGHTS = ("wq", "wk", "wv")


def dot(left, right, side, rows, columns):
    return f"dot_general(%{left}, %{right}) {{lhs_contract = [1], rhs_contract = [{side}]}} : f32[{rows}, {columns}]"


def program(rows, tokens=TOKENS):
    """Attention of `rows` queries over all places of which they may see theirs and those before. Of a single row, at
    the place `pos`, keys and values of the others are state; so they are of "seq" rows from there on."""
    lines = [f'%x = parameter {{name = "x", weight = 0}} : f32[{rows}, {WIDTH}]']
    lines += [f'%{w} = parameter {{name = "{w}", weight = 1}} : f32[{WIDTH}, {WIDTH}]' for w in WEIGHTS]
    lines += [f"%{value} = " + dot("x", f"w{value}", 0, rows, WIDTH) for value in "qkv"]
    keys, values, more = "k", "v", ""
    if rows != tokens:
        lines += ['%pos = parameter {name = "pos", weight = 0} : i32[] state = 0']
        for value in "kv":
            kept = f"f32[{tokens}, {WIDTH}]"
            lines += [f'%old_{value} = parameter {{name = "{value}", weight = 0}} : {kept} state = 0',
                      f"%new_{value} = dynamic_update_slice(%old_{value}, %{value}, %pos) {{dims = [0]}} : {kept}"]
        lines += ["%one = constant {data = 1} : i32[]" if rows == 1 else
                  '%one = parameter {name = "count", weight = 0} : i32[]',
                  "%next = add(%pos, %one) : i32[]", f"%first = broadcast_in_dim(%pos) : i32[{rows}, {tokens}]",
                  f"%own = iota {{axis = 0}} : i32[{rows}, {tokens}]",
                  f"%row = add(%first, %own) : i32[{rows}, {tokens}]"]
        keys, values = "new_k", "new_v"
        more = ', %new_k as "k" into "k", %new_v as "v" into "v", %next as "pos" into "pos"'
    else:
        lines += [f"%row = iota {{axis = 0}} : i32[{rows}, {tokens}]"]
    scores = f"f32[{rows}, {tokens}]"
    lines += [f"%column = iota {{axis = 1}} : i32[{rows}, {tokens}]",
              f"%seen = compare(%column, %row) {{direction = le}} : bool[{rows}, {tokens}]",
              "%raw = " + dot("q", keys, 1, rows, tokens), f"%factor = constant {{data = {WIDTH**-0.5}}} : {scores}",
              f"%scaled = multiply(%raw, %factor) : {scores}", f"%hidden = constant {{data = -inf}} : {scores}",
              f"%scores = select(%seen, %scaled, %hidden) : {scores}",
              f"%weights = softmax(%scores) {{axis = 1}} : {scores}",
              "%y = " + dot("weights", values, 0, rows, WIDTH)]
    symbols = f" (seq in [1, {tokens}])" if rows == "seq" else ""
    return f"sx 1\ngraph \"decoder\"{symbols} {{\n    " + "\n    ".join(lines) + f'\n    return %y as "y"{more}\n}}\n'


def sx(*arguments, **environment):
    done = subprocess.run([str(BINARY / "symplex-client"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False, env=dict(os.environ, **environment), cwd=TMP)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def compiled(target):
    for name, rows in (("whole", TOKENS), ("step", 1)):
        (TMP / f"{name}.sx").write_text(program(rows), encoding="utf-8")
        sx("compile", f"{name}.sx", "--no-daemon", "--assembler", "none", "--target", target, "-o", f"{name}.sxm")


def test_lengths():
    """The last row of the whole sequence of every length, each a run of its own, is the row that a step gives there."""
    text = program("seq", "seq").replace("(seq in [1, seq])", f"(seq in [1, {TOKENS}])")
    (TMP / "lengths.sx").write_text(text, encoding="utf-8")
    sx("compile", "lengths.sx", "--no-daemon", "--dim", f"seq=1..{TOKENS}", "-o", "lengths.sxm")
    x = RNG.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    kept = ("--steps", 1, "--state-out", "state.npz")
    step = run("step", x[:1], *kept)
    for length in range(1, TOKENS + 1):
        whole = run("lengths", x[:length], "--dim", f"seq={length}")
        assert whole.shape == (length, WIDTH) and whole[-1:].tobytes() == step.tobytes(), length
        if length < TOKENS:
            step = run("step", x[length:length + 1], *kept, "--state-in", "state.npz")


def test_prompts():
    """Pieces of a sequence, of any length, each run on the state that the one before left."""
    (TMP / "pieces.sx").write_text(program("seq"), encoding="utf-8")
    sx("compile", "pieces.sx", "--no-daemon", "--dim", f"seq=1..{TOKENS}", "-o", "pieces.sxm")
    shown = json.loads(sx("module", "show", "pieces.sxm", "--json"))
    assert len(shown.get("variants", [None])) == 1, shown["variants"]
    x = RNG.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    whole = run("whole", x)
    before, done = [], 0
    for count in (17, 1, 1, 5, 33, 7):
        np.save(TMP / "count.npy", np.int32(count))
        rows = run("pieces", x[done:done + count], "-i", "count=count.npy", "--dim", f"seq={count}", "--steps", 1,
                   *before, "--state-out", "state.npz")
        before = ["--state-in", "state.npz"]
        assert rows.tobytes() == whole[done:done + count].tobytes(), (done, count)
        done += count
    with np.load(TMP / "state.npz") as state:
        assert state["pos"] == done == TOKENS and state["k"].any(axis=1).all()
    empty = np.zeros((TOKENS, WIDTH), np.float32)
    for count in (3, 5):  # a place beyond the last is the last one from which all rows fit
        np.savez(TMP / "far.npz", pos=np.int32(1000), k=empty, v=empty)
        np.save(TMP / "count.npy", np.int32(count))
        run("pieces", x[:count], "-i", "count=count.npy", "--dim", f"seq={count}", "--steps", 1,
            "--state-in", "far.npz", "--state-out", "far.npz")
        with np.load(TMP / "far.npz") as state:
            assert state["k"][-count:].any(axis=1).all() and not state["k"][:-count].any()
            assert state["pos"] == 1000 + count
    assert "in place" in sx("explain", "pieces.sxm", "--all")
    weights = [word for name in WEIGHTS for word in ("--weight", f"{name}={name}.npy")]
    sx("run", "pieces.sxm", "--random", 1, *weights, "--dim", "seq=1", "--steps", 64, "--check")
    (TMP / "kept.sx").write_text(program("seq").replace(f"seq in [1, {TOKENS}]", "seq in [1, 8], places in [64, 96]")
                                 .replace(f"{TOKENS}, {WIDTH}]", f"places, {WIDTH}]").replace(f"{TOKENS}]", "places]"),
                                 encoding="utf-8")
    done = subprocess.run([str(BINARY / "symplex-client"), "compile", "kept.sx", "--no-daemon", "--dim", "seq=1",
                           "--dim", "places=64..96"], capture_output=True, text=True, timeout=120, check=False, cwd=TMP)
    assert done.returncode == 4 and 'state "k" has an extent that follows "places"' in done.stderr, done


def test_long():
    """2,048 places, prompts of any length, few variants; scores are in memory, and keys are packed in each run."""
    (TMP / "long.sx").write_text(program("seq", LONG), encoding="utf-8")
    sx("compile", "long.sx", "--no-daemon", "--dim", f"seq=1..{LONG}", "-o", "long.sxm")
    sx("compile", "long.sx", "--no-daemon", "--dim", f"seq={LONG}", "-o", "bound.sxm")
    variants = [v["name"] for v in json.loads(sx("module", "show", "long.sxm", "--json"))["variants"]]
    assert len(variants) <= 4, variants
    assert any(kernel["kind"] == "pack" for kernel in json.loads(sx("explain", "long.sxm", "--json"))["kernels"])
    x = RNG.standard_normal((LONG, WIDTH)).astype(np.float32)
    before, done, pieces = [], 0, {}
    for count in (1, 1, 37, 640, 1, 1025, 343):
        np.save(TMP / "count.npy", np.int32(count))
        more = ("-i", "count=count.npy", "--steps", 1, "--state-out", "state.npz")
        pieces[done] = run("long", x[done:done + count], *more, *before, "--dim", f"seq={count}")
        before = ["--state-in", "state.npz"]
        done += count
    assert done == LONG
    np.save(TMP / "count.npy", np.int32(LONG))
    whole = run("bound", x, "-i", "count=count.npy", "--steps", 1)
    for first, rows in pieces.items():
        assert rows.tobytes() == whole[first:first + len(rows)].tobytes(), (first, len(rows))


def run(module, x, *more, **environment):
    np.save(TMP / "x.npy", x)
    weights = [word for name in WEIGHTS for word in ("--weight", f"{name}={name}.npy")]
    sx("run", f"{module}.sxm", "-i", "x=x.npy", *weights, *more, "-o", "out", **environment)
    return np.load(TMP / "out" / "y.npy")


def test_rows(steps, **environment):
    """Row by row, the state going through files."""
    x = RNG.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    whole = run("whole", x, **environment)
    assert np.isfinite(whole).all() and len(np.unique(whole)) > TOKENS
    before = []
    for t in range(steps):
        row = run("step", x[t:t + 1], "--steps", 1, *before, "--state-out", "state.npz", **environment)
        before = ["--state-in", "state.npz"]
        assert row.tobytes() == whole[t:t + 1].tobytes(), (t, row, whole[t])
    with np.load(TMP / "state.npz") as state:
        assert state["pos"] == steps and not state["k"][steps:].any() and state["v"][:steps].any(axis=1).all()


def test_far_position():
    """A place beyond the last is the last, as dynamic_update_slice says: nothing behind the cache is written."""
    np.savez(TMP / "far.npz", pos=np.int32(1000), k=np.zeros((TOKENS, WIDTH), np.float32),
             v=np.zeros((TOKENS, WIDTH), np.float32))
    run("step", np.ones((1, WIDTH), np.float32), "--steps", 1, "--state-in", "far.npz", "--state-out", "far.npz")
    with np.load(TMP / "far.npz") as state:
        assert state["k"][-1].any() and not state["k"][:-1].any() and state["pos"] == 1001


if __name__ == "__main__":
    try:
        RNG = np.random.default_rng(3)
        for w in WEIGHTS:
            np.save(TMP / f"{w}.npy", (RNG.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32))
        compiled("native")
        test_rows(TOKENS)
        test_lengths()
        test_far_position()
        test_prompts()
        test_long()
        assert "in place" in sx("explain", "step.sxm", "--all")
        driver = TMP / "libcuda.so.1"
        shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", driver)
        driver.chmod(0o600)
        compiled("h100")
        test_rows(5, SYMPLEX_CUDA_DRIVER=str(driver), SX_FAKE_CUDA="capability=90")
    finally:
        shutil.rmtree(TMP)
    print("ok")
