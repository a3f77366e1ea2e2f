#!/usr/bin/env python3
"""If of ONNX as cond: `run` gives what onnxruntime gives whichever way the condition goes, with captured inputs,
weights and constants, one inside the other, for a symbolic batch; a known condition leaves one branch. What is not
supported, or is wrong, is refused by name.

Both engines compute these element by element, or in sums of eight products: they differ by a few units of f32."""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
FLOAT, BOOL, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
# eight products and a sum of ones of order one: 16 roundings of 2^-24 at most, of values below 8
TOLERANCE = 16 * 8 * 2.0**-24
NODE = helper.make_node


def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name, nodes, outputs, initializers=()):
    return helper.make_graph(nodes, name, [], [value(output, FLOAT, None) for output in outputs],
                             [onnx.numpy_helper.from_array(array, key) for key, array in initializers])


def model_of(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "control", inputs, [value(name, FLOAT, None) for name in outputs],
                              [onnx.numpy_helper.from_array(array, key) for key, array in weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X, P = value("x", FLOAT, ["batch", 8]), value("p", BOOL, [])
W = numpy.random.default_rng(3).uniform(-1, 1, (8, 8)).astype(numpy.float32)
V = numpy.arange(8, dtype=numpy.float32)


def captures():
    """Both branches read x and a weight from outside; one has an initializer of its own, the other gives x itself."""
    then = branch("then", [NODE("MatMul", ["x", "w"], ["a"]), NODE("Add", ["a", "v"], ["b"])], ["b", "a"], [("v", V)])
    other = branch("else", [NODE("MatMul", ["x", "w"], ["d"]), NODE("Sub", ["d", "x"], ["e"]),
                            NODE("Identity", ["x"], ["f"])], ["f", "e"])
    node = NODE("If", ["p"], ["y", "z"], then_branch=then, else_branch=other)
    return model_of([node], [P, X], ["y", "z"], [("w", W)])


def computed():
    """The condition is computed, of one element, and what comes before and behind is used in the branches."""
    then = branch("then", [NODE("Exp", ["t"], ["a"])], ["a"])
    other = branch("else", [NODE("Neg", ["t"], ["d"])], ["d"])
    nodes = [NODE("Tanh", ["x"], ["t"]), NODE("ReduceSum", ["x"], ["s"], keepdims=1),
             NODE("Greater", ["s", "zero"], ["q"]),
             NODE("If", ["q"], ["y"], then_branch=then, else_branch=other), NODE("Mul", ["y", "t"], ["z"])]
    return model_of(nodes, [X], ["z"], [("zero", numpy.zeros((1, 1), numpy.float32))])


def nested():
    """An If in a branch of another, with names of both scopes around it."""
    inner = NODE("If", ["q"], ["i"], name="inner",
                 then_branch=branch("a", [NODE("Add", ["x", "h"], ["a"])], ["a"]),
                 else_branch=branch("b", [NODE("Mul", ["h", "w1"], ["b"])], ["b"]))
    then = branch("then", [NODE("Sigmoid", ["x"], ["h"]), inner], ["i"])
    other = branch("else", [NODE("Abs", ["x"], ["c"])], ["c"])
    return model_of([NODE("If", ["p"], ["y"], then_branch=then, else_branch=other)], [P, value("q", BOOL, [1]), X],
                    ["y"], [("w1", V)])


def known():
    """The condition is known: one branch is left, and the operator that the other has does not matter."""
    then = branch("then", [NODE("Relu", ["x"], ["a"])], ["a"])
    other = branch("else", [NODE("NonZero", ["x"], ["c"]), NODE("Cast", ["c"], ["d"], to=FLOAT)], ["d"])
    nodes = [NODE("Shape", ["x"], ["s"]), NODE("Size", ["s"], ["n"]), NODE("Equal", ["n", "two"], ["q"]),
             NODE("If", ["q"], ["y"], then_branch=then, else_branch=other), NODE("Add", ["y", "x"], ["z"])]
    return model_of(nodes, [X], ["z"], [("two", numpy.array(2, numpy.int64))])


def other_types():
    then = branch("then", [NODE("Exp", ["x"], ["a"])], ["a"])
    other = branch("else", [NODE("ReduceSum", ["x"], ["d"], keepdims=0)], ["d"])
    return model_of([NODE("If", ["p"], ["y"], name="here", then_branch=then, else_branch=other)], [P, X], ["y"])


def unsupported():
    then = branch("then", [NODE("Exp", ["x"], ["a"])], ["a"])
    other = branch("else", [NODE("NonZero", ["x"], ["d"], name="what")], ["d"])
    return model_of([NODE("If", ["p"], ["y"], name="here", then_branch=then, else_branch=other)], [P, X], ["y"])


def large_inside():
    then = branch("then", [NODE("MatMul", ["x", "u"], ["a"])], ["a"], [("u", numpy.ones((8, 64), numpy.float32))])
    return model_of([NODE("If", ["p"], ["y"], name="here", then_branch=then, else_branch=then)], [P, X], ["y"])


def not_made():
    then = branch("then", [NODE("Exp", ["nowhere"], ["a"])], ["a"])
    other = branch("else", [NODE("Exp", ["x"], ["d"])], ["d"])
    return model_of([NODE("If", ["p"], ["y"], name="here", then_branch=then, else_branch=other)], [P, X], ["y"])


def ways(model):
    """Values for all inputs: both truths of each condition, and x of either sign."""
    names = [item.name for item in model.graph.input]
    for number in range(4):
        random = numpy.random.default_rng(number)
        x = random.uniform(0.1, 1, (5, 8)).astype(numpy.float32) * (1 if number % 2 == 0 else -1)
        feed = {"x": x, "p": numpy.array(number % 2 == 0), "q": numpy.array([number // 2 == 0])}
        yield {name: feed[name] for name in names}


def compare(folder, make):
    model = make()
    path, module = folder / "m.onnx", folder / "m.sxm"
    onnx.save(model, path)
    done = client("compile", path, "-o", module, "--dim", "batch=5", "--no-daemon")
    assert done.returncode == 0, f"{make.__name__}: {done.stderr}"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in ways(model):
        arguments = []
        for name, array in feed.items():
            numpy.save(folder / f"{name}.npy", array)
            arguments += ["--input", f"{name}={folder / (name + '.npy')}"]
        done = client("run", module, *arguments, "--output", folder)
        assert done.returncode == 0, f"{make.__name__}: {done.stderr}"
        for item, wanted in zip(model.graph.output, session.run(None, feed)):
            got = numpy.load(folder / f"{item.name}.npy")
            assert got.shape == wanted.shape, f"{make.__name__}: {item.name} {got.shape}, {wanted.shape}"
            worst = numpy.abs(got - wanted).max()
            assert worst <= TOLERANCE, f"{make.__name__}: {item.name} is off by {worst}"
    return client("module", "show", module).stdout


REFUSED = [
    (other_types, "node 0 'here' (If, opset 17): output 0 is f32 of rank 2 in one branch, and f32 of rank 0"),
    (unsupported, "node 0 'here' (If, opset 17): node 0 'what' (NonZero, opset 17): operator NonZero is not supported"),
    (large_inside, "tensor 'u': data of 2048 bytes inside of a subgraph, at most 1024"),
    (not_made, "input 'nowhere' is made by no earlier node"),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for make, branches in ((captures, 1), (computed, 1), (nested, 2), (known, 0)):
            shown = compare(folder, make)
            found = sum(line.split()[2:3] == ["branch"] for line in shown.splitlines())
            assert found == branches, f"{make.__name__}: {found} branches\n{shown}"
        for make, text in REFUSED:
            onnx.save(make(), folder / "bad.onnx")
            done = client("compile", folder / "bad.onnx", "-o", folder / "bad.sxm", "--dim", "batch=5")
            assert done.returncode == 4 and text in done.stderr, f"{make.__name__}: {done.returncode} {done.stderr}"
    print("4 models as onnxruntime has them, 4 refused")


if __name__ == "__main__":
    main()
