#!/usr/bin/env python3
"""grad as its users meet it: the program with its gradients, of text and of an ONNX model with an LSTM, is compiled,
run as native code and compared with central differences of numpy in float64; backward passes of models are compiled for
it and for a GPU and verified; what is refused is named."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import onnx
    from onnx import helper
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
GOLDEN = os.path.join(os.environ["SX_SOURCE_DIR"], "tests", "golden", "grad")
# cross-entropy of two layers: labels are i64, the one-hot rows a comparison with their numbers
MLP = """sx 1
graph "mlp" (batch in [1, 64]) {
    %x = parameter {name = "x", weight = 0} : f64[batch, 6]
    %labels = parameter {name = "labels", weight = 0} : i64[batch]
    %w1 = parameter {name = "w1", weight = 1} : f64[6, 9]
    %b1 = parameter {name = "b1", weight = 1} : f64[9]
    %w2 = parameter {name = "w2", weight = 1} : f64[9, 4]
    %table = parameter {name = "table", weight = 1} : i64[4]
    %0 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : f64[batch, 9]
    %1 = broadcast_in_dim(%b1) {dims = [1]} : f64[batch, 9]
    %2 = add(%0, %1) : f64[batch, 9]
    %3 = relu(%2) : f64[batch, 9]
    %4 = dot_general(%3, %w2) {lhs_contract = [1], rhs_contract = [0]} : f64[batch, 4]
    %5 = log_softmax(%4) {axis = 1} : f64[batch, 4]
    %6 = iota {axis = 1} : i64[batch, 4]
    %7 = broadcast_in_dim(%labels) {dims = [0]} : i64[batch, 4]
    %8 = compare(%6, %7) {direction = eq} : bool[batch, 4]
    %9 = constant {data = 0} : f64[batch, 4]
    %10 = select(%8, %5, %9) : f64[batch, 4]
    %11 = reduce(%10) {dims = [0, 1], reducer = add} : f64[]
    %12 = negate(%11) : f64[]
    return %12 as "loss", %4 as "logits"
}
"""


def client(*arguments, expect=0):
    done = subprocess.run([CLIENT, *arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != expect:
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}")
    return done


def loss(x, labels, weights):
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    logits = hidden @ weights["w2"]
    top = logits.max(axis=1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].sum()


def differences(function, values, name):
    """Central differences at h and h / 2, and how far each may be off: a third of the distance of the two, which is the
    error of the second where the third derivative rules, and rounding of the sum over h."""
    made = []
    for h in (2.0**-14, 2.0**-15):
        slope = np.zeros_like(values[name])
        for at in np.ndindex(*slope.shape):
            moved = {k: v.copy() for k, v in values.items()}
            moved[name][at] += h
            high = function(moved)
            moved[name][at] -= 2 * h
            slope[at] = (high - function(moved)) / (2 * h)
        made.append(slope)
    rounding = 2.0**-53 * 64 * abs(function(values)) * 2**15
    return made[1], np.abs(made[0] - made[1]) + rounding


def check_gradient(function, values, name, gradient):
    slope, allowed = differences(function, values, name)
    assert gradient.shape == slope.shape and np.abs(slope).max() > 0.1
    assert (np.abs(gradient - slope) <= allowed).all(), (name, np.abs(gradient - slope).max(), allowed.max())
    # the check sees a gradient with another sign, and one with a row left out
    assert not (np.abs(-gradient - slope) <= allowed).all()
    gradient.flat[0] = 0
    assert not (np.abs(gradient - slope) <= allowed).all() or slope.flat[0] == 0


def given(folder, inputs, weights):
    options = []
    for name, value in {**inputs, **weights}.items():
        path = os.path.join(folder, name + ".npy")
        np.save(path, value)
        options += ["--input" if name in inputs else "--weight", f"{name}={path}"]
    return options


def test_native(folder):
    source = os.path.join(folder, "mlp.sx")
    step = os.path.join(folder, "step.sx")
    module = os.path.join(folder, "step.sxm")
    with open(source, "w", encoding="ascii") as file:
        file.write(MLP)
    told = client("grad", source, "--wrt", "weights", "--of", "loss", "-o", step)
    assert told.stdout == "" and "left out, as they are no floats: table" in told.stderr, told.stderr
    client("compile", step, "--no-daemon", "--dim", "batch=5", "-o", module)
    rng = np.random.default_rng(20)
    weights = {"w1": rng.standard_normal((6, 9)), "b1": rng.standard_normal(9), "w2": rng.standard_normal((9, 4))}
    x = rng.standard_normal((5, 6))
    labels = np.array([3, 0, 1, 1, 2])
    options = given(folder, {"x": x, "labels": labels}, {"table": np.arange(4), **weights})
    out = os.path.join(folder, "out")
    client("run", module, *options, "--output", out, "--check")
    got = np.load(os.path.join(out, "loss.npy"))
    expected = loss(x, labels, weights)
    assert abs(got - expected) < 1e-12 * abs(expected), (got, expected)
    files = sorted(os.listdir(out))
    for name in weights:
        file = [f for f in files if f.startswith("grad") and name in f]
        assert len(file) == 1, files
        check_gradient(lambda v: loss(x, labels, v), weights, name, np.load(os.path.join(out, file[0])))


def lstm(values, above):
    """The sum of `above` times the states of an LSTM in both directions."""
    total, width = 0.0, values["r"].shape[2]
    for way in range(2):
        h, c = values["h"][way], values["c"][way]
        bias = values["b"][way].reshape(2, -1).sum(axis=0)
        for at in range(len(values["x"]))[::-1 if way else 1]:
            z = values["x"][at] @ values["w"][way].T + h @ values["r"][way].T + bias
            i, o, f = (1 / (1 + np.exp(-z[:, k * width:(k + 1) * width])) for k in range(3))
            c = f * c + i * np.tanh(z[:, 3 * width:])
            h = o * np.tanh(c)
            total += (above[at, way] * h).sum()
    return total


def test_lstm(folder):
    """A model of ONNX with symbolic batch: two scans and the scans back, all inputs and weights."""
    steps, batch, width, hidden = 5, 2, 2, 3
    rng = np.random.default_rng(21)
    shapes = {"x": (steps, batch, width), "h": (2, batch, hidden), "c": (2, batch, hidden),
              "w": (2, 4 * hidden, width), "r": (2, 4 * hidden, hidden), "b": (2, 8 * hidden)}
    values = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    weights = {name: values[name] for name in "wrb"}
    above = rng.standard_normal((steps, 2, batch, hidden))

    def info(name):
        shape = ["batch" if k == 1 else extent for k, extent in enumerate(shapes[name])] if name in shapes else None
        return helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, shape)

    node = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y"], hidden_size=hidden,
                            direction="bidirectional")
    graph = helper.make_graph([node], "lstm", [info(name) for name in "xhc"], [info("y")],
                              [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()])
    model, step, module = (os.path.join(folder, "lstm." + end) for end in ("onnx", "sx", "sxm"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    wrt = [word for name in "xhc" for word in ("--wrt", name)]
    client("grad", model, "--wrt", "weights", *wrt, "-o", step)
    client("compile", step, "--no-daemon", "--dim", f"batch={batch}", "-o", module)
    inputs = {"cotangent(y)": above, **{name: values[name] for name in "xhc"}}
    out = os.path.join(folder, "states")
    client("run", module, *given(folder, inputs, weights), "--output", out, "--check")
    for name in values:
        check_gradient(lambda v: lstm(v, above), values, name, np.load(os.path.join(out, f"grad({name}).npy")))


def test_models(folder):
    """Backward passes as native code against the interpreter; two of them also as PTX, executed by its interpreter.
    Both are verified before they are handed out."""
    for name, words, targets in (
            ("cross_entropy", "--wrt weights --wrt x", ("native", "h100")),
            ("causal_attention", "--wrt q --wrt k --wrt v --wrt bias", ("native", "h100")),
            ("encoder", "--wrt weights --wrt x --of first", ("native",)),
            ("embedding", "--wrt weights", ("native", "h100")),
            ("conv_block", "--wrt weights --wrt x", ("native",)),
            ("lstm", "--wrt weights --wrt x --wrt h --wrt c --of y", ("native",))):
        step = os.path.join(folder, name + ".sx")
        module = os.path.join(folder, name + ".sxm")
        client("grad", os.path.join(GOLDEN, name + ".sx"), *words.split(), "-o", step)
        dims = ["--dim", "batch=2"] + (["--dim", "seq=5"] if name == "encoder" else [])
        for target in targets:
            client("compile", step, "--no-daemon", "--target", target, *dims, "-o", module)
            if target == "native":
                told = client("run", module, "--random", "3", "--check").stdout
                assert "check    passed" in told, told


# in each round one of two functions, by a condition on what is carried
BRANCHES = """sx 1
graph "branches" (rounds in [1, 9]) {
    %c = parameter {name = "c", weight = 0} : f64[3]
    %x = parameter {name = "x", weight = 0} : f64[rounds, 3]
    %last = scan(%c, %x) {carried = 1, sliced = 1, step = graph {
        %c = parameter {name = "c", weight = 0} : f64[3]
        %x = parameter {name = "x", weight = 0} : f64[3]
        %sum = reduce(%c) {dims = [0], reducer = add} : f64[]
        %zero = constant {data = 0} : f64[]
        %more = compare(%sum, %zero) {direction = gt} : bool[]
        %next = cond(%more, %c, %x) {then = graph {
            %c = parameter {name = "c", weight = 0} : f64[3]
            %x = parameter {name = "x", weight = 0} : f64[3]
            %0 = subtract(%x, %c) : f64[3]
            %1 = tanh(%0) : f64[3]
            return %1 as "c"
        }, otherwise = graph {
            %c = parameter {name = "c", weight = 0} : f64[3]
            %x = parameter {name = "x", weight = 0} : f64[3]
            %0 = multiply(%c, %x) : f64[3]
            return %0 as "c"
        }} : f64[3]
        return %next as "c"
    }} : f64[3]
    %y = reduce(%last) {dims = [0], reducer = add} : f64[]
    return %y as "y"
}
"""


def test_branches(folder):
    rng = np.random.default_rng(22)
    values = {"c": rng.standard_normal(3), "x": rng.standard_normal((6, 3))}
    taken = []

    def run(at):
        c = at["c"]
        for x in at["x"]:
            taken.append(bool(c.sum() > 0))
            c = np.tanh(x - c) if taken[-1] else c * x
        return c.sum()

    source, step, module = (os.path.join(folder, "branches" + end) for end in (".sx", ".step.sx", ".sxm"))
    with open(source, "w", encoding="ascii") as file:
        file.write(BRANCHES)
    client("grad", source, "--wrt", "c", "--wrt", "x", "-o", step)
    client("compile", step, "--no-daemon", "--dim", "rounds=6", "-o", module)
    out = os.path.join(folder, "taken")
    client("run", module, *given(folder, values, {}), "--output", out, "--check")
    run(values)
    assert True in taken and False in taken, taken
    for name in values:
        check_gradient(run, values, name, np.load(os.path.join(out, f"grad({name}).npy")))


def test_forms(folder):
    """One operation, a cotangent, JSON, and the same text from a pipe."""
    made = json.loads(client("grad", "--softmax", "3x5", "--dtype", "f32", "--wrt", "x", "--json").stdout)
    assert made["schema"] == "grad/1" and made["cotangent"] == "cotangent(out)" and made["zero"] == [], made
    assert '"grad(x)"' in made["program"] and "softmax" not in made["program"].split("{", 1)[1]
    path = os.path.join(folder, "softmax.sx")
    client("grad", "--softmax", "3x5", "--dtype", "f32", "--wrt", "x", "-o", path)
    with open(path, encoding="ascii") as file:
        text = file.read()
    assert text == made["program"]
    twice = client("grad", path, "--wrt", "x", "--of", "grad(x)").stdout
    assert '"grad(grad(x), x)"' in twice and '"cotangent(grad(x))"' in twice
    told = client("grad", path, "--wrt", "cotangent(out)", "--of", "out").stderr
    assert "zero, as the output does not depend on it: cotangent(out)" in told, told


def test_refused(folder):
    source = os.path.join(folder, "mlp.sx")
    table = os.path.join(folder, "window.sx")
    with open(table, "w", encoding="ascii") as file:
        file.write('sx 1 graph "g" { %x = parameter {name = "x", weight = 0} : f32[4] %y = reduce_window(%x) '
                   '{stride = [1], low = [0], high = [0], window = [2], dilation = [1], reducer = multiply} : f32[3] '
                   'from "/pool" "Product" 17 return %y as "y" }')
    for arguments, status, part in (
            ([source], 2, "--wrt is missing"),
            ([source, "--wrt", "weights"], 4, "2 outputs: which one is differentiated?"),
            ([source, "--wrt", "weights"], 4, '--of NAME of the client says it; the first output is "'),
            ([source, "--wrt", "w9", "--of", "loss"], 4, 'parameter "w9": the program has none of this name'),
            ([source, "--wrt", "labels", "--of", "loss"], 4, 'parameter "labels" is i64: gradients are of floats'),
            ([source, "--wrt", "w1", "--of", "lost"], 4, 'output "lost": the program has none of this name'),
            ([source, "--wrt", "w1", "--wrt", "w1", "--of", "loss"], 4, 'parameter "w1" is named twice'),
            ([table, "--wrt", "x"], 4, "node '/pool' (Product, opset 17): gradient of reduce_window by multiply"),
            ([], 2, "")):
        done = client("grad", *arguments, expect=status)
        assert part in done.stderr and done.stdout == "", (arguments, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_native(folder)
        test_lstm(folder)
        test_branches(folder)
        test_models(folder)
        test_forms(folder)
        test_refused(folder)
    print("grad: ok")


if __name__ == "__main__":
    main()
