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
        test_text_beside_it(folder)
        test_refusals(folder)


if __name__ == "__main__":
    main()
