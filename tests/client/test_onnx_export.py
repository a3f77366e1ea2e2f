#!/usr/bin/env python3
"""symplex-client optimize --onnx: the file is read back by the client itself, its proof holds, the checker of
the package onnx accepts it, and onnxruntime gets from it what it gets from the model it came from."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
MODELS = {"mlp": (3, 784), "encoder": (2, 128, 256), "cnn": (2, 3, 32, 32)}
KERNELS = """sx 1
graph "kernels" {
    %x = parameter {name = "x", weight = 0} : f32[4]
    %0 = fused(%x) {type = f32[4], body = {args = [[1]], code = [arg 0]}} : f32[4]
    return %0 as "y"
}
"""
DILATED = """sx 1
graph "dilated" {
    %x = parameter {name = "x", weight = 0} : f32[4]
    %0 = constant {data = 0} : f32[]
    %1 = pad(%x, %0) {low = [0], high = [0], interior = [1]} : f32[7]
    return %1 as "y"
}
"""


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, timeout=120)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done


def compare(original, better, shape):
    x = numpy.random.default_rng(7).standard_normal(shape).astype(numpy.float32)
    one, other = (onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
                  for p in (original, better))
    worst = numpy.abs(one - other).max() / numpy.abs(one).max()
    assert worst <= 1e-5, (original, worst)


def test_models(folder):
    for name, shape in MODELS.items():
        source = ROOT / "tests" / "models" / f"{name}.onnx"
        better, proof = folder / f"{name}.onnx", folder / f"{name}.proof"
        assert sx("optimize", source, "--no-daemon", "--onnx", better, "--proof", proof).stdout == b""
        assert b"holds" in sx("prove", proof).stdout + sx("prove", proof).stderr
        again = sx("optimize", better, "--no-daemon", "--json").stdout  # our own importer reads it
        assert json.loads(again)["program"].startswith("sx 1\n")
        onnx.checker.check_model(str(better), full_check=True)
        assert all(node.domain == "" for node in onnx.load(str(better)).graph.node)
        compare(source, better, shape)


def integers(dtype):
    """x, y -> (x + y) y - w, of which the larger to x, and x rounded as f32 halves; wraps in the type."""
    helper, number = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    weight = numpy.arange(-3, 4).astype(dtype)
    half = numpy.array(0.5, numpy.float32)
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"]), helper.make_node("Mul", ["sum", "y"], ["product"]),
             helper.make_node("Sub", ["product", "w"], ["rest"]), helper.make_node("Greater", ["rest", "x"], ["more"]),
             helper.make_node("Where", ["more", "rest", "x"], ["a"]),
             helper.make_node("Cast", ["x"], ["float"], to=onnx.TensorProto.FLOAT),
             helper.make_node("Mul", ["float", "half"], ["halves"]),
             helper.make_node("Cast", ["halves"], ["b"], to=number)]
    shape = [5, 7]
    graph = helper.make_graph(
        nodes, "integers", [helper.make_tensor_value_info(n, number, shape) for n in "xy"],
        [helper.make_tensor_value_info(n, number, shape) for n in "ab"],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(half, "half")])
    random, info = numpy.random.default_rng(11), numpy.iinfo(dtype)
    x, y = (random.integers(info.min, info.max, shape, dtype, endpoint=True) for _ in "xy")
    rest = (x + y) * y - weight
    wanted = {"a": numpy.where(rest > x, rest, x), "b": (x.astype(numpy.float32) * half).astype(dtype)}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), {"x": x, "y": y}, wanted


def test_integers(folder):
    """Models of small integers, from the file to the results and back to ONNX."""
    for dtype in ("int16", "int8", "uint8", "int32"):
        model, inputs, wanted = integers(dtype)
        source, better = folder / f"{dtype}.onnx", folder / f"{dtype}.better.onnx"
        onnx.save(model, str(source))
        sx("optimize", source, "--no-daemon", "--onnx", better)
        onnx.checker.check_model(str(better), full_check=True)
        for path in (source, better):
            sx("compile", path, "--no-daemon", "-o", folder / "m.sxm")
            arguments = []
            for name, value in inputs.items():
                numpy.save(folder / f"{name}.npy", value)
                arguments += ["--input", f"{name}={folder / name}.npy"]
            sx("run", folder / "m.sxm", *arguments, "--check", "--output", folder / "results")
            for name, value in wanted.items():
                got = numpy.load(folder / "results" / f"{name}.npy")
                assert got.dtype == value.dtype and (got == value).all(), (path, name, got, value)


def test_quantised(folder):
    """QuantizeLinear to each small type saturates at its ends; DequantizeLinear comes back."""
    helper = onnx.helper
    for dtype, zero in (("int8", 3), ("uint8", 100), ("int16", -1000)):
        scale, zero, info = numpy.array(0.25, numpy.float32), numpy.array(zero, dtype), numpy.iinfo(dtype)
        nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
                 helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"])]
        number = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
        graph = helper.make_graph(
            nodes, "quantised", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [6])],
            [helper.make_tensor_value_info("q", number, [6]),
             helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [6])],
            [onnx.numpy_helper.from_array(scale, "scale"), onnx.numpy_helper.from_array(zero, "zero")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
                  str(folder / "q.onnx"))
        x = numpy.array([-1e6, -1.125, 0, 0.375, 7.0, 1e6], numpy.float32)
        numpy.save(folder / "x.npy", x)
        sx("compile", folder / "q.onnx", "--no-daemon", "-o", folder / "q.sxm")
        sx("run", folder / "q.sxm", "--input", f"x={folder / 'x.npy'}", "--check", "--output", folder / "results")
        q = numpy.clip(numpy.rint(x / scale) + float(zero), info.min, info.max).astype(dtype)
        y = (q.astype(numpy.float32) - float(zero)) * scale
        for name, value in (("q", q), ("y", y)):
            got = numpy.load(folder / "results" / f"{name}.npy")
            assert got.dtype == value.dtype and (got == value).all(), (dtype, name, got, value)


def wrapped_power(x, y):
    """x to the power y modulo the type, with Python's integers."""
    bits = x.dtype.itemsize * 8
    found = [pow(int(a), int(b), 1 << bits) for a, b in zip(x.flat, y.flat)]
    return numpy.array([v - (1 << bits) if v >> (bits - 1) else v for v in found], x.dtype).reshape(x.shape)


def test_remainders(folder):
    """Mod of both conventions, powers and products of integers, compiled, against numpy."""
    helper, shape = onnx.helper, [4, 33]
    for dtype in ("float32", "float64", "float16", "int64", "int32", "int16", "uint8"):
        random, real = numpy.random.default_rng(5), dtype.startswith("float")
        number = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
        if real:
            x, y = (numpy.ldexp(random.uniform(-1, 1, shape), random.integers(-12, 15, shape)).astype(dtype)
                    for _ in "xy")
        else:
            info = numpy.iinfo(dtype)
            x, y = (random.integers(info.min, info.max, shape, dtype, endpoint=True) for _ in "xy")
        y[y == 0] = 3
        nodes = [helper.make_node("Mod", ["x", "y"], ["a"], fmod=1)]
        wanted = {"a": numpy.fmod(x, y)}
        if not real:
            nodes.append(helper.make_node("Mod", ["x", "y"], ["b"]))
            wanted["b"] = numpy.mod(x, y)
        if dtype in ("int64", "int32"):
            small = (numpy.abs(y) % 97).astype(dtype)
            nodes += [helper.make_node("Pow", ["x", "small"], ["c"]),
                      helper.make_node("ReduceProd", ["x"], ["d"], axes=[1], keepdims=0)]
            wanted |= {"c": wrapped_power(x, small), "d": numpy.prod(x, axis=1, dtype=dtype)}
        weights = [onnx.numpy_helper.from_array(small, "small")] if "c" in wanted else []
        outputs = [helper.make_tensor_value_info(n, number, v.shape) for n, v in wanted.items()]
        graph = helper.make_graph(nodes, "rest", [helper.make_tensor_value_info(n, number, shape) for n in "xy"],
                                  outputs, weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                  str(folder / "rest.onnx"))
        numpy.save(folder / "x.npy", x)
        numpy.save(folder / "y.npy", y)
        sx("compile", folder / "rest.onnx", "--no-daemon", "-o", folder / "rest.sxm")
        sx("run", folder / "rest.sxm", "--input", f"x={folder / 'x.npy'}", "--input", f"y={folder / 'y.npy'}",
           "--check", "--output", folder / "results")
        for name, value in wanted.items():
            got = numpy.load(folder / "results" / f"{name}.npy")
            assert got.dtype == value.dtype and (got == value).all(), (dtype, name, got, value)


def test_text_beside_it(folder):
    """-o writes the same operations as text."""
    text = folder / "mlp.sx"
    sx("optimize", ROOT / "tests/models/mlp.onnx", "--no-daemon", "--onnx", folder / "a.onnx", "-o", text)
    assert "dot_general" in text.read_text() and "fused" not in text.read_text()
    sx("optimize", ROOT / "tests/models/mlp.onnx", "--no-daemon", "--onnx", folder / "b.onnx")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def test_refusals(folder):
    for text, why in ((KERNELS, b"is a fused kernel"), (DILATED, b"elements between neighbours")):
        source, target = folder / "refused.sx", folder / "refused.onnx"
        source.write_text(text)
        done = sx("optimize", source, "--no-daemon", "--onnx", target, status=4)
        assert why in done.stderr, done.stderr
        assert not target.exists()
    done = sx("optimize", ROOT / "tests/models/mlp.onnx", "--no-daemon", "--objective", "pareto", "--onnx",
              folder / "p", status=4)
    assert b"not with unfused" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_models(folder)
        test_integers(folder)
        test_quantised(folder)
        test_remainders(folder)
        test_text_beside_it(folder)
        test_refusals(folder)


if __name__ == "__main__":
    main()
