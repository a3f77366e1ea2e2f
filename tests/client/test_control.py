#!/usr/bin/env python3
"""If of ONNX as cond, Scan and Loop as scan and while: `run` gives what onnxruntime gives whichever way the condition
goes and however many rounds there are, with captured inputs, weights and constants, one inside the other, for a
symbolic batch; a known condition leaves one branch. Rounds in another order are found to differ. What is not supported,
or is wrong, is refused by name.

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


X, P, N = value("x", FLOAT, ["batch", 8]), value("p", BOOL, []), value("count", INT64, [])
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


def body(name, nodes, inputs, outputs, initializers=()):
    """inputs and outputs: name, type and of outputs a shape; the number of a round and the condition are scalars."""
    return helper.make_graph(nodes, name, [value(key, kind, None if kind == FLOAT else []) for key, kind in inputs],
                             [value(key, kind, shape) for key, kind, shape in ((*item, None)[:3] for item in outputs)],
                             [onnx.numpy_helper.from_array(array, key) for key, array in initializers])


def scanned(**attributes):
    """The rows of x one after the other, with a weight from outside that each round sees whole."""
    step = body("step", [NODE("Mul", ["s", "v"], ["d"]), NODE("Add", ["d", "r"], ["t"]), NODE("Tanh", ["t"], ["n"]),
                         NODE("Sub", ["n", "r"], ["o"])],
                [("s", FLOAT), ("r", FLOAT)], [("n", FLOAT), ("o", FLOAT)])
    node = NODE("Scan", ["zero", "x"], ["last", "y"], name="here", body=step, num_scan_inputs=1, **attributes)
    return [node], [("zero", numpy.zeros(8, numpy.float32)), ("v", V / 8)]


def scan():
    nodes, weights = scanned()
    return model_of(nodes, [X], ["last", "y"], weights)


def scan_backwards():
    """What the importer would make if it read the slices of scan() from the last to the first."""
    nodes, weights = scanned(scan_input_directions=[1])
    return model_of(nodes, [X], ["last", "y"], weights)


def scan_stacked_backwards():
    nodes, weights = scanned(scan_output_directions=[1])
    return model_of(nodes, [X], ["last", "y"], weights)


def scan_turned():
    """Columns of x from the last to the first, written as columns from the last to the first."""
    step = body("step", [NODE("Add", ["s", "c"], ["n"]), NODE("Neg", ["n"], ["o"])],
                [("s", FLOAT), ("c", FLOAT)], [("n", FLOAT), ("o", FLOAT)])
    nodes = [NODE("ReduceMax", ["x"], ["s0"], axes=[1], keepdims=0),
             NODE("Scan", ["s0", "x"], ["last", "y"], body=step, num_scan_inputs=1, scan_input_axes=[-1],
                  scan_output_axes=[1], scan_input_directions=[1], scan_output_directions=[1])]
    return model_of(nodes, [X], ["last", "y"])


def loop_body(condition):
    nodes = [NODE("Cast", ["i"], ["f"], to=FLOAT), NODE("Mul", ["s", "v"], ["d"]), NODE("Add", ["d", "f"], ["e"]),
             NODE("Tanh", ["e"], ["n"]), *condition]
    return body("step", nodes, [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT), ("e", FLOAT)])


def loop_counted():
    node = NODE("Loop", ["five", "", "x"], ["last", "y"], body=loop_body([NODE("Identity", ["c"], ["m"])]))
    return model_of([node], [X], ["last", "y"], [("five", numpy.array(5, numpy.int64)), ("v", V / 8)])


def loop_backwards():
    """What the importer would make if it numbered the rounds of loop_counted from the last to the first."""
    model = loop_counted()
    step = model.graph.node[0].attribute[0].g
    step.node.insert(0, NODE("Sub", ["four", "i"], ["turned"]))
    step.node[1].input[0] = "turned"
    model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.array(4, numpy.int64), "four"))
    return model


def loop_by_shape():
    """As many rounds as x has rows, each with the row of its number; the condition is a constant of the body."""
    step = body("step", [NODE("Gather", ["x", "i"], ["r"], axis=0), NODE("Mul", ["s", "v"], ["d"]),
                         NODE("Add", ["d", "r"], ["n"]), NODE("Identity", ["n"], ["o"])],
                [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT), ("o", FLOAT)],
                [("m", numpy.array(True))])
    nodes = [NODE("Shape", ["x"], ["shape"]), NODE("Gather", ["shape", "zero"], ["rows"], axis=0),
             NODE("Loop", ["rows", "true", "s0"], ["last", "y"], body=step)]
    return model_of(nodes, [X], ["last", "y"], [("zero", numpy.array(0, numpy.int64)), ("true", numpy.array(True)),
                                                ("s0", numpy.zeros(8, numpy.float32)), ("v", V / 8)])


def loop_zero():
    """A trip count of 0, and a number of rounds that is negative: the state as it was."""
    step = body("step", [NODE("Add", ["s", "s"], ["n"]), NODE("Identity", ["c"], ["m"])],
                [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT)])
    nodes = [NODE("Loop", ["zero", "p", "x"], ["a"], body=step), NODE("Neg", ["zero"], ["z"]),
             NODE("Sub", ["z", "count"], ["below"]), NODE("Loop", ["below", "", "a"], ["y"], body=step)]
    return model_of(nodes, [P, N, X], ["y"], [("zero", numpy.array(0, numpy.int64))])


def loop_nested():
    """Rows of x, for each a Loop of as many rounds as an input says, with an If in each of them."""
    choice = NODE("If", ["p"], ["u"], then_branch=branch("a", [NODE("Mul", ["e", "v"], ["a"])], ["a"]),
                  else_branch=branch("b", [NODE("Sub", ["e", "r"], ["b"])], ["b"]))
    inner = body("inner", [NODE("Cast", ["i"], ["f"], to=FLOAT), NODE("Add", ["t", "f"], ["e"]), choice,
                           NODE("Identity", ["c"], ["m"])],
                 [("i", INT64), ("c", BOOL), ("t", FLOAT)], [("m", BOOL), ("u", FLOAT)])
    step = body("step", [NODE("Add", ["s", "r"], ["k"]), NODE("Loop", ["count", "", "k"], ["l"], body=inner),
                         NODE("Tanh", ["l"], ["w"]), NODE("Identity", ["w"], ["o"])],
                [("s", FLOAT), ("r", FLOAT)], [("w", FLOAT, [8]), ("o", FLOAT, [8])])
    node = NODE("Scan", ["s0", "x"], ["last", "y"], body=step, num_scan_inputs=1)
    return model_of([node], [P, N, X], ["last", "y"], [("s0", numpy.zeros(8, numpy.float32)), ("v", V / 8)])


def loop_until(trips="trips"):
    """Until a sum is large, or seven rounds are over."""
    step = body("step", [NODE("Add", ["s", "s"], ["n"]), NODE("ReduceMax", ["n"], ["q"], keepdims=0),
                         NODE("Less", ["q", "bound"], ["m"])],
                [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT)])
    nodes = [NODE("Abs", ["x"], ["a"]), NODE("Loop", [trips, "p", "a"], ["y"], body=step)]
    return model_of(nodes, [P, X], ["y"], [("trips", numpy.array(7, numpy.int64)),
                                           ("bound", numpy.array(5, numpy.float32))])


def loop_without_trips():
    return loop_until("")


def scan_inputs_missing():
    nodes, weights = scanned()
    del nodes[0].attribute[0].g.input[1]
    return model_of(nodes, [X], ["last", "y"], weights)


def scan_output_missing():
    nodes, weights = scanned()
    nodes[0].attribute[0].g.output[1].name = "nowhere"
    return model_of(nodes, [X], ["last", "y"], weights)


def scan_lengths():
    step = body("step", [NODE("Add", ["a", "b"], ["o"])], [("a", FLOAT), ("b", FLOAT)], [("o", FLOAT)])
    node = NODE("Scan", ["u", "w"], ["y"], name="here", body=step, num_scan_inputs=2)
    return model_of([node], [X], ["y"], [("u", numpy.ones((3, 8), numpy.float32)), ("w", W)])


def loop_stacks_until():
    condition = [NODE("ReduceMax", ["n"], ["q"], keepdims=0), NODE("Less", ["q", "one"], ["m"])]
    node = NODE("Loop", ["five", "", "x"], ["last", "y"], name="here", body=loop_body(condition))
    return model_of([node], [X], ["last", "y"], [("five", numpy.array(5, numpy.int64)), ("v", V / 8),
                                                 ("one", numpy.array(1, numpy.float32))])


def loop_condition_of_body():
    step = body("step", [NODE("Add", ["s", "s"], ["n"]), NODE("ReduceMax", ["n"], ["q"], keepdims=0),
                         NODE("Less", ["q", "one"], ["m"])],
                [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT)])
    node = NODE("Loop", ["count", "", "x"], ["y"], name="here", body=step)
    return model_of([node], [N, X], ["y"], [("one", numpy.array(1, numpy.float32))])


def loop_grows():
    step = body("step", [NODE("Concat", ["s", "s"], ["n"], axis=0), NODE("Identity", ["c"], ["m"])],
                [("i", INT64), ("c", BOOL), ("s", FLOAT)], [("m", BOOL), ("n", FLOAT)])
    node = NODE("Loop", ["count", "", "x"], ["y"], name="here", body=step)
    return model_of([node], [N, X], ["y"])


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
    """Values for all inputs: both truths of each condition, 0 to 3 rounds, and x of either sign."""
    names = [item.name for item in model.graph.input]
    for number in range(4):
        random = numpy.random.default_rng(number)
        x = random.uniform(0.1, 1, (5, 8)).astype(numpy.float32) * (1 if number % 2 == 0 else -1)
        feed = {"x": x, "p": numpy.array(number % 2 == 0), "q": numpy.array([number // 2 == 0]),
                "count": numpy.array(number, numpy.int64)}
        yield {name: feed[name] for name in names}


def compare(folder, make, wanted_of=None):
    """`make` as it runs here, against the model of `wanted_of` (None: the same) as onnxruntime runs it."""
    model = make()
    path, module = folder / "m.onnx", folder / "m.sxm"
    onnx.save(model, path)
    done = client("compile", path, "-o", module, "--dim", "batch=5", "--no-daemon")
    assert done.returncode == 0, f"{make.__name__}: {done.stderr}"
    session = onnxruntime.InferenceSession((wanted_of or make)().SerializeToString(),
                                           providers=["CPUExecutionProvider"])
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
    (scan_inputs_missing, "node 0 'here' (Scan, opset 17): body: 1 inputs, 2 wanted"),
    (scan_output_missing, "node 0 'here' (Scan, opset 17): output 'nowhere' of a subgraph is made by no node"),
    (scan_lengths, "node 0 'here' (Scan, opset 17): input 1 has 8 slices, input 0 has 3"),
    (loop_stacks_until, "node 0 'here' (Loop, opset 17): outputs of each round"),
    (loop_condition_of_body, "node 0 'here' (Loop, opset 17): no condition, and a body that gives one"),
    (loop_grows, "node 0 'here' (Loop, opset 17): operand 2 of the rounds is f32 of rank 2, and f32 of rank 2"),
    (not_made, "input 'nowhere' is made by no earlier node"),
]


MODELS = [(captures, 1), (computed, 1), (nested, 2), (known, 0), (scan, 0), (scan_turned, 0), (loop_counted, 0),
          (loop_by_shape, 0), (loop_until, 0), (loop_without_trips, 0), (loop_zero, 0), (loop_nested, 1)]
PLANTED = [(scan_backwards, scan), (scan_stacked_backwards, scan), (loop_backwards, loop_counted)]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for make, branches in MODELS:
            shown = compare(folder, make)
            found = sum(line.split()[2:3] == ["branch"] for line in shown.splitlines())
            assert found == branches, f"{make.__name__}: {found} branches\n{shown}"
        for wrong, right in PLANTED:
            try:
                compare(folder, wrong, right)
            except AssertionError as difference:
                assert " is off by " in str(difference), difference
            else:
                sys.exit(f"{wrong.__name__} was not found")
        for make, text in REFUSED:
            onnx.save(make(), folder / "bad.onnx")
            done = client("compile", folder / "bad.onnx", "-o", folder / "bad.sxm", "--dim", "batch=5")
            assert done.returncode == 4 and text in done.stderr, f"{make.__name__}: {done.returncode} {done.stderr}"
    print(f"{len(MODELS)} models as onnxruntime has them, {len(PLANTED)} in another order found, "
          f"{len(REFUSED)} refused")


if __name__ == "__main__":
    main()
