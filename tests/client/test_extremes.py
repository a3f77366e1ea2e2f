#!/usr/bin/env python3
"""ArgMax and ArgMin of ONNX models on rows with NaN, equal elements, infinities and zeros of both signs: NumPy says
which index it is. Value and index of the extreme are one kernel."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxextremes."))
NAN, INF = np.nan, np.inf
ROWS = [[1, NAN, 3, NAN, 2, 0], [NAN] * 6, [1, 2, 3, 3, 1, 1], [NAN, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, NAN],
        [INF, 1, NAN, 2, -INF, 0], [-INF] * 6, [0.0, -0.0, 0.0, -0.0, 0.0, -0.0], [INF, -INF, INF, -INF, 1, 1]]
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
         "int64": TensorProto.INT64}


def sx(*arguments):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          cwd=TMP)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def index_of(x, op, axis, last):
    """What NumPy says; the last one is the first one of the turned rows."""
    find = np.argmax if op == "ArgMax" else np.argmin
    return x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis) if last else find(x, axis=axis)


def check(x, op, axis, last, target):
    extreme = "ReduceMax" if op == "ArgMax" else "ReduceMin"
    nodes = [helper.make_node(op, ["x"], ["index"], axis=axis, keepdims=0, select_last_index=last),
             helper.make_node(extreme, ["x"], ["value"], axes=[axis], keepdims=0)]
    reduced = [x.shape[1 - axis]]
    kind = TYPES[str(x.dtype)]
    graph = helper.make_graph(nodes, "extreme", [helper.make_tensor_value_info("x", kind, x.shape)],
                              [helper.make_tensor_value_info("index", TensorProto.INT64, reduced),
                               helper.make_tensor_value_info("value", kind, reduced)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, TMP / "model.onnx")
    np.save(TMP / "x.npy", x)
    sx("compile", "model.onnx", "--no-daemon", "-t", target, "-o", "model.sxm")
    sx("run", "model.sxm", "-i", "x=x.npy", "-o", "out")
    want = index_of(x, op, axis, last)
    got = np.load(TMP / "out" / "index.npy")
    assert got.dtype == np.int64 and np.array_equal(got, want), (op, axis, last, target, x.dtype, got, want)
    value = np.load(TMP / "out" / "value.npy")
    picked = np.take_along_axis(x, np.expand_dims(want, axis), axis)
    assert np.array_equal(value, np.squeeze(picked, axis), equal_nan=x.dtype.kind == "f"), (op, value)
    kernels = json.loads(sx("explain", "--all", "--json", "model.sxm"))["kernels"]
    assert len(kernels) == 1 and len(kernels[0]["nodes"]) == 2, kernels


def main():
    floats = np.array(ROWS)
    whole = np.arange(54).reshape(9, 6) * 7 % 11 - 4
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for target in ("x86-64-v3", "native"):
                check(floats.astype(np.float32), op, 1, last, target)
            check(floats.T.astype(np.float32).copy(), op, 0, last, "native")
            check(floats.astype(np.float64), op, 1, last, "native")
            check(floats.astype(np.float16), op, 1, last, "native")
            check(whole.astype(np.int64), op, 1, last, "native")
    print("ok")


main()
