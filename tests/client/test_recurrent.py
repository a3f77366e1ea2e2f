#!/usr/bin/env python3
"""LSTM, GRU and RNN of ONNX as scans: `run` gives what onnxruntime gives, in all directions, with and without biases,
initial states and peepholes, for a symbolic batch. What is not supported is refused by name.

The tolerance follows the network (tests/e2e/test_networks.py): onnxruntime is asked again with every weight off by
about sqrt(k) u at random, k the number of products that are summed. The spread of its results is the size of rounding
in this network; two engines differ by at most TOLERANCE spreads. A weight that is off by a tenth must be seen."""
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
UNIT, TOLERANCE, DRAWS = 2.0**-24, 8, 4
STEPS, WIDTH, HIDDEN = 30, 12, 20
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

# operator, direction, inputs besides x, w and r, attributes
CASES = [
    ("LSTM", "forward", "", {}),
    ("LSTM", "reverse", "b", {}),
    ("LSTM", "bidirectional", "bhcp", {}),
    ("LSTM", "forward", "hc", {"activations": ["Sigmoid", "Relu", "Tanh"]}),
    ("GRU", "forward", "bh", {}),
    ("GRU", "bidirectional", "b", {"linear_before_reset": 1}),
    ("GRU", "reverse", "", {"linear_before_reset": 1}),
    ("RNN", "forward", "b", {}),
    ("RNN", "bidirectional", "bh", {"activations": ["Tanh", "Relu"]}),
]


def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))


def make(operator, direction, more, attributes):
    """The model: weights and states are initializers, x has a symbolic batch."""
    random = numpy.random.default_rng(5)
    directions, gates = 2 if direction == "bidirectional" else 1, GATES[operator]
    shapes = {"w": (directions, gates * HIDDEN, WIDTH), "r": (directions, gates * HIDDEN, HIDDEN),
              "b": (directions, 2 * gates * HIDDEN), "p": (directions, 3 * HIDDEN)}
    weights, inputs = {}, ["x", "w", "r", "b", "", "h", "c", "p"][:8 if operator == "LSTM" else 6]
    for name in ("w", "r", "b", "p"):
        if name in "wr" + more:
            bound = 1 / HIDDEN**0.5
            weights[name] = random.uniform(-bound, bound, shapes[name]).astype(numpy.float32)
    names = [name if name in "xwr" + more else "" for name in inputs]
    states = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [directions, "batch", HIDDEN])
              for name in "hc" if name in more]
    outputs = ["y", "last", "cell"][:3 if operator == "LSTM" else 2]
    node = helper.make_node(operator, names, outputs, direction=direction, hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph(
        [node], "recurrent",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [STEPS, "batch", WIDTH]), *states],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(values, name) for name, values in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed_of(model, batch):
    random = numpy.random.default_rng(7)
    return {value.name: random.uniform(-1, 1, [d.dim_value or batch for d in value.type.tensor_type.shape.dim])
            .astype(numpy.float32) for value in model.graph.input}


def peer(model, feed):
    return onnxruntime.InferenceSession(model.SerializeToString(),
                                        providers=["CPUExecutionProvider"]).run(None, feed)


def with_weights(model, change):
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for weight in out.graph.initializer:
        values = change(weight.name, onnx.numpy_helper.to_array(weight))
        weight.raw_data = numpy.ascontiguousarray(values).astype(numpy.float32).tobytes()
    return out


def distance(a, b):
    return [float(numpy.abs(x.astype(numpy.float64) - y).max()) for x, y in zip(a, b)]


def allowed_of(model, feed, expected):
    random, spread = numpy.random.default_rng(11), [0.0] * len(expected)
    size = UNIT * (WIDTH + HIDDEN)**0.5
    for _ in range(DRAWS):
        off = with_weights(model, lambda _, values: values * (1 + size * random.uniform(-1, 1, values.shape)))
        spread = [max(s, d) for s, d in zip(spread, distance(peer(off, feed), expected))]
    return [TOLERANCE * s for s in spread]


def check(case, folder):
    model = make(*case)
    onnx.save(model, folder / "model.onnx")
    done = client("compile", folder / "model.onnx", "--no-daemon", "-d", "batch=1,5", "-o", folder / "m.sxm")
    assert done.returncode == 0, (case, done.stderr)
    for batch in (1, 5):  # a variant of the module for each
        feed = feed_of(model, batch)
        expected = peer(model, feed)
        allowed = allowed_of(model, feed, expected)
        altered = distance(peer(with_weights(
            model, lambda name, values: values * (1.1 if name == "r" else 1)), feed), expected)
        given = []
        for name, values in feed.items():
            numpy.save(folder / f"{name}.npy", values)
            given += ["--input", f"{name}={folder / name}.npy"]
        done = client("run", folder / "m.sxm", *given, "-d", f"batch={batch}", "--output", folder / "out", "-n", "1")
        assert done.returncode == 0, (case, done.stderr)
        ours = [numpy.load(folder / "out" / f"{value.name}.npy") for value in model.graph.output]
        for value, y, e, worst, most, planted in zip(model.graph.output, ours, expected, distance(ours, expected),
                                                     allowed, altered):
            print(f"{case}, batch {batch}: {value.name} off by {worst:.1e}, allowed {most:.1e}; altered {planted:.1e}")
            assert y.shape == e.shape, (case, value.name, y.shape, e.shape)
            assert worst <= most < planted / 4, (case, value.name, worst, most, planted)


def check_refused(folder):
    for attributes, text in (({"clip": 1.0}, "clip"), ({"activations": ["Elu"]}, "activation Elu")):
        onnx.save(make("RNN", "forward", "", attributes), folder / "model.onnx")
        done = client("compile", folder / "model.onnx", "--no-daemon", "-d", "batch=1", "-o", folder / "m.sxm")
        assert done.returncode == 4 and text in done.stderr, (done.returncode, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case in CASES:
            check(case, folder)
        check_refused(folder)


if __name__ == "__main__":
    main()
