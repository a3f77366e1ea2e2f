#!/usr/bin/env python3
"""ONNX models with extents of 0: inputs, weights and values in between without elements. Each compiles and runs, and
gives what is written here beside it."""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
FOLDER = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "onnx-empty"
F, I = numpy.float32, numpy.int64


def ramp(*shape):
    return numpy.arange(numpy.prod(shape, dtype=int), dtype=F).reshape(shape) - 3


def case(nodes, inputs, wanted, **weights):
    """`nodes`: "Op in,in -> out {attributes}" as tuples; results are those that `wanted` names."""
    return nodes, inputs, wanted, weights


X, E = ramp(3, 4), ramp(0, 4)
CASES = {
    "relu": case([("Relu", "x", "y", {})], {"x": E}, {"y": E}),
    "add to a row": case([("Add", "x,w", "y", {})], {"x": E}, {"y": E}, w=ramp(4)),
    "weight without elements": case([("Add", "x,w", "y", {})], {"x": ramp(3, 1)}, {"y": ramp(3, 0)}, w=ramp(3, 0)),
    "product with no rows": case([("MatMul", "x,w", "y", {})], {"x": E}, {"y": ramp(0, 5)}, w=ramp(4, 5)),
    "product over nothing": case(
        [("MatMul", "x,w", "y", {})],
        {"x": ramp(3, 0)}, {"y": numpy.zeros((3, 5), F)}, w=ramp(0, 5)),
    "sum over nothing": case(
        [("ReduceSum", "x,a", "y", {"keepdims": 0})],
        {"x": E}, {"y": numpy.zeros(4, F)}, a=numpy.array([0], I)),
    "join": case([("Concat", "x,w", "y", {"axis": 0})], {"x": X}, {"y": X}, w=E),
    "join of nothing": case([("Concat", "x,w", "y", {"axis": 0})], {"x": E}, {"y": E}, w=E),
    "empty slice": case(
        [("Slice", "x,b,e,a", "y", {})],
        {"x": X}, {"y": X[2:1]}, b=numpy.array([2], I), e=numpy.array([1], I), a=numpy.array([0], I)),
    "slice, joined again": case(
        [("Slice", "x,b,e,a", "s", {}), ("Concat", "s,x", "y", {"axis": 1})],
        {"x": X}, {"y": X}, b=numpy.array([4], I), e=numpy.array([9], I), a=numpy.array([1], I)),
    "transpose": case([("Transpose", "x", "y", {"perm": [1, 0]})], {"x": E}, {"y": E.T}),
    "reshape, 0 is copied": case(
        [("Reshape", "x,s", "y", {})],
        {"x": E}, {"y": ramp(0, 2, 2)}, s=numpy.array([0, 2, 2], I)),
    "reshape, 0 is 0": case(
        [("Reshape", "x,s", "y", {"allowzero": 1})],
        {"x": E}, {"y": ramp(3, 0)}, s=numpy.array([3, 0], I)),
    "expand": case([("Expand", "x,s", "y", {})], {"x": ramp(1, 4)}, {"y": E}, s=numpy.array([0, 4], I)),
    "filled shape": case(
        [("ConstantOfShape", "s", "c", {}), ("Concat", "c,x", "y", {"axis": 0})],
        {"x": X}, {"y": X}, s=numpy.array([0, 4], I)),
    "softmax": case([("Softmax", "x", "y", {"axis": 1})], {"x": E}, {"y": E}),
    "gather of no rows": case([("Gather", "x,i", "y", {"axis": 0})], {"x": X}, {"y": E}, i=numpy.zeros(0, I)),
    "cast": case([("Cast", "x", "y", {"to": TensorProto.INT64})], {"x": E}, {"y": E.astype(I)}),
    "split": case([("Split", "x,s", "y,z", {"axis": 0})], {"x": X}, {"y": X, "z": E}, s=numpy.array([3, 0], I)),
    "top of none": case(
        [("TopK", "x,k", "y,z", {"axis": 1})],
        {"x": X}, {"y": ramp(3, 0), "z": ramp(3, 0).astype(I)}, k=numpy.array([0], I)),
    "repeated no times": case([("Tile", "x,r", "y", {})], {"x": X}, {"y": ramp(0, 8)}, r=numpy.array([0, 2], I)),
    "mean over nothing": case(
        [("ReduceMean", "x", "y", {"axes": [0]})],
        {"x": E}, {"y": numpy.full((1, 4), numpy.nan, F)}),
    "unsqueeze": case([("Unsqueeze", "x,a", "y", {})], {"x": E}, {"y": ramp(0, 1, 4)}, a=numpy.array([1], I)),
    "layer of a network": case(
        [("Gemm", "x,w,b", "h", {}), ("Relu", "h", "r", {}), ("Gemm", "r,v", "y", {})],
        {"x": E}, {"y": ramp(0, 2)}, w=ramp(4, 6), b=ramp(6), v=ramp(6, 2)),
}


def infos(tensors):
    return [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in tensors.items()]


def model_of(nodes, inputs, wanted, weights):
    graph = helper.make_graph(
        [helper.make_node(op, given.split(","), made.split(","), **more) for op, given, made, more in nodes],
        "empty", infos(inputs), infos(wanted),
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def check(name):
    nodes, inputs, wanted, weights = CASES[name]
    folder = FOLDER / name.replace(" ", "-").replace(",", "")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model_of(nodes, inputs, wanted, weights), folder / "m.onnx")
    result = client("compile", folder / "m.onnx", "--no-daemon", "-o", folder / "m.sxm")
    if result.returncode != 0:
        return f"compile: {result.stderr}"
    given = []
    for key, value in inputs.items():
        numpy.save(folder / f"{key}.npy", value)
        given += ["--input", f"{key}={folder / key}.npy"]
    result = client("run", folder / "m.sxm", *given, "--output", folder / "out")
    if result.returncode != 0:
        return f"run: {result.stderr}"
    for key, want in wanted.items():
        got = numpy.load(folder / "out" / f"{key}.npy")
        if got.shape != want.shape or got.dtype != want.dtype or not numpy.array_equal(got, want, want.dtype == F):
            return f"{key}: {got.dtype}{got.shape} {got}, not {want.dtype}{want.shape} {want}"
    return ""


def main():
    failed = 0
    for name in sys.argv[1:] or CASES:
        trouble = check(name)
        failed += trouble != ""
        if trouble:
            print(f"{name}: {trouble.strip()}", flush=True)
    print(f"{len(sys.argv[1:] or CASES)} models, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
