#!/usr/bin/env python3
"""Rows of programs with a fixed batch: with --batch-invariant a row has the same bits in every batch, through
optimize and compile, for text and ONNX. Without it they differ for these programs, which is what makes the test one:
what pays for one batch is not what pays for another."""
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx

CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxrows."))
BATCHES = (1, 2, 3, 7, 24)
# A layer with a correction of low rank, whose sum is taken in another order for one row than for many.
LOW_RANK = """sx 1
graph "low_rank" {{
    %w = parameter {{name = "w", weight = 0}} : f32[256, 256]
    %b = parameter {{name = "b", weight = 0}} : f32[256]
    %x = parameter {{name = "x", weight = 0}} : f32[{rows}, 256]
    %d = parameter {{name = "d", weight = 0}} : f32[8, 256]
    %u = parameter {{name = "u", weight = 0}} : f32[256, 8]
    %0 = transpose(%w) {{perm = [1, 0]}} : f32[256, 256]
    %1 = broadcast_in_dim(%b) {{dims = [1]}} : f32[{rows}, 256]
    %2 = dot_general(%x, %0) {{lhs_contract = [1], rhs_contract = [0]}} : f32[{rows}, 256]
    %3 = add(%2, %1) : f32[{rows}, 256]
    %4 = transpose(%d) {{perm = [1, 0]}} : f32[256, 8]
    %5 = dot_general(%x, %4) {{lhs_contract = [1], rhs_contract = [0]}} : f32[{rows}, 8]
    %6 = transpose(%u) {{perm = [1, 0]}} : f32[8, 256]
    %7 = dot_general(%5, %6) {{lhs_contract = [1], rhs_contract = [0]}} : f32[{rows}, 256]
    %8 = constant {{data = 0.5}} : f32[{rows}, 256]
    %9 = multiply(%7, %8) : f32[{rows}, 256]
    %y = add(%3, %9) : f32[{rows}, 256]
    return %y as "y"
}}
"""
# Keys that count the rows: of each there is another word of data.
COUNTED = """sx 1
graph "counted" {{
    %x = parameter {{name = "x", weight = 0}} : f32[2, 4]
    %0 = constant {{data = [0, 1, 2, 3, 4, 5, 6, 7]}} : f32[2, 4]
    %y = add(%x, %0) : f32[2, 4]
    return %y as "y"
}}
"""


def client(*arguments, fails=False):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))
    assert (done.returncode != 0) == fails, (arguments, done.stderr)
    return done


def onnx_model(rows):
    """The same as a model whose batch is a number."""
    random = np.random.default_rng(3)
    weights = [onnx.numpy_helper.from_array(random.uniform(-1, 1, shape).astype(np.float32), name)
               for name, shape in (("w", (256, 256)), ("d", (256, 8)), ("u", (8, 256)), ("half", ()))]
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["0"]), node("MatMul", ["x", "d"], ["1"]), node("MatMul", ["1", "u"], ["2"]),
             node("Mul", ["2", "half"], ["3"]), node("Add", ["0", "3"], ["y"])]
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "low_rank", [tensor("x", onnx.TensorProto.FLOAT, (rows, 256))],
                                   [tensor("y", onnx.TensorProto.FLOAT, (rows, 256))], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, TMP / "model.onnx")
    return TMP / "model.onnx"


def text(rows):
    (TMP / "model.sx").write_text(LOW_RANK.format(rows=rows), encoding="utf-8")
    return TMP / "model.sx"


def results(model, inputs, *options):
    """Batch -> what it gives for the first rows."""
    made = {}
    for rows in BATCHES:
        client("compile", model(rows), "--no-daemon", "-o", TMP / "m.sxm", *options)
        given = []
        for name, values in inputs.items():
            np.save(TMP / f"{name}.npy", values[:rows] if name == "x" else values)
            given += ["-i", f"{name}={TMP / name}.npy"]
        client("run", TMP / "m.sxm", *given, "-o", TMP / "out", "-n", "1")
        made[rows] = np.load(TMP / "out" / "y.npy")
        assert made[rows].shape == (rows, 256)
    return made


def differing(made):
    last = made[BATCHES[-1]]
    return [rows for rows, y in made.items() if y.tobytes() != last[:rows].tobytes()]


def test_rows_have_the_same_bits_in_every_batch():
    random = np.random.default_rng(11)
    inputs = {name: random.uniform(-1, 1, shape).astype(np.float32)
              for name, shape in (("x", (BATCHES[-1], 256)), ("w", (256, 256)), ("b", (256,)), ("d", (8, 256)),
                                  ("u", (256, 8)))}
    assert differing(results(text, inputs)), "the program does not tell batches apart any more: take another one"
    made = results(text, inputs, "--batch-invariant")
    assert not differing(made), differing(made)
    x, w, b, d, u = (inputs[k].astype(np.float64) for k in "xwbdu")
    assert np.abs(x @ w.T + b + x @ d.T @ u.T / 2 - made[BATCHES[-1]]).max() < 1e-4  # sums of 256 products below 1
    assert not differing(results(onnx_model, {"x": inputs["x"]}, "--batch-invariant"))


def test_one_program_for_all_batches():
    """What optimize gives is the same text for each of them, and compile can print what it asks for."""
    programs, asked = set(), set()
    for rows in BATCHES:
        client("optimize", text(rows), "--batch-invariant", "--no-daemon", "-o", TMP / "better.sx")
        programs.add((TMP / "better.sx").read_text(encoding="utf-8"))
        asked.add(client("compile", text(rows), "--batch-invariant", "--print-program").stdout)
    assert len(programs) == 1 and len(asked) == 1
    assert "f32[rows, 256]" in programs.pop() and "%x = " not in asked.pop()  # values have numbers, names go with them
    client("optimize", text(4), "--batch-invariant", "--no-daemon", "-o", TMP / "better.sx", "--proof", TMP / "proof")
    client("prove", TMP / "proof")


def test_what_is_no_batch():
    """Where the rows cannot be a symbol it says why, and only bits are kept; a symbol is left alone."""
    (TMP / "counted.sx").write_text(COUNTED.format(), encoding="utf-8")
    said = client("compile", TMP / "counted.sx", "--batch-invariant", "--no-daemon", "-o", TMP / "m.sxm").stderr
    assert "the batch is no symbol, as " in said and "only rewrites that keep every bit" in said, said
    exact = client("compile", TMP / "counted.sx", "--exact", "--no-daemon", "-o", TMP / "e.sxm").stderr
    assert "no symbol" not in exact and (TMP / "m.sxm").read_bytes() == (TMP / "e.sxm").read_bytes()
    symbol = LOW_RANK.format(rows="batch").replace('"low_rank"', '"low_rank" (batch in [1, 64])')
    (TMP / "symbol.sx").write_text(symbol, encoding="utf-8")
    for name, options in (("a", []), ("b", ["--batch-invariant"])):
        client("compile", TMP / "symbol.sx", "-d", "batch=3", "--no-daemon", "-o", TMP / f"{name}.sxm", *options)
    assert (TMP / "a.sxm").read_bytes() == (TMP / "b.sxm").read_bytes()


if __name__ == "__main__":
    test_rows_have_the_same_bits_in_every_batch()
    test_one_program_for_all_batches()
    test_what_is_no_batch()
