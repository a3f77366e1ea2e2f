#!/usr/bin/env python3
"""Networks that people export (tests/models/networks), with random weights: each compiles, and `run` gives
what onnxruntime gives.

usage: test_networks.py [NAME...]: names of networks, with -full for the published size.

The tolerance follows the network. A sum of k products in single precision is the exact sum of terms that are
off by about sqrt(k) u each, u = 2^-24. So onnxruntime is asked again with every weight off by that much at
random: the spread of its results is the size of rounding in this network. Two engines differ by at most
TOLERANCE spreads: 2 as both of them round, 2 as the worst of all elements is estimated from few draws, 2 for
what has no weights (products of activations, functions that are right to a few u)."""
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models" / "networks"))
try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")
import make_networks  # noqa: E402

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
FOLDER = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "networks"
UNIT = 2.0**-24
TOLERANCE = 8
DRAWS = 4

# Case -> network, small or not, batches. Without arguments: the small ones, and the full ones of FULL.
CASES = {name: (name, True, (1, 3)) for name in make_networks.NETWORKS}
CASES.update({name + "-full": (name, False, (1,)) for name in make_networks.NETWORKS})
FULL = ["resnet50-full", "mobilenet_v3-full", "efficientnet_b0-full", "convnext_tiny-full"]


def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))


def feed_of(model, batch):
    random, feed = numpy.random.default_rng(7), {}
    for value in model.graph.input:
        shape = [d.dim_value or batch for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            most = {"attention_mask": 1, "token_type_ids": 1}.get(value.name, 255)
            feed[value.name] = random.integers(0, most, shape, endpoint=True)
            if value.name == "attention_mask":
                feed[value.name][..., 0] = 1  # somebody is attended to
        else:
            feed[value.name] = random.uniform(-1, 1, shape).astype(numpy.float32)
    return feed


def run_peer(model, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"]).run(None, feed)


def terms_of(model):
    """Weight -> number of products that are summed with it."""
    shapes = {w.name: tuple(w.dims) for w in model.graph.initializer}
    terms = dict.fromkeys(shapes, 1)
    for node in model.graph.node:
        weight = node.input[1] if len(node.input) > 1 else None
        if node.op_type == "Conv":
            terms[weight] = int(numpy.prod(shapes[weight][1:]))
        elif node.op_type in ("MatMul", "Gemm") and weight in shapes:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            terms[weight] = shapes[weight][-1 if transposed else -2]
    return terms


def with_weights(model, change):
    """The model with every weight of float type passed through `change(name, values)`."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for weight in out.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(weight)
            weight.raw_data = numpy.ascontiguousarray(change(weight.name, values)).astype(numpy.float32).tobytes()
    return out


def distance(a, b):
    """The largest difference of each output."""
    return [float(numpy.abs(x.astype(numpy.float64) - y).max()) for x, y in zip(a, b)]


def tolerances(model, feed, expected):
    random, terms, spread = numpy.random.default_rng(11), terms_of(model), [0.0] * len(expected)
    for _ in range(DRAWS):
        def off(name, values):
            return values * (1 + UNIT * terms[name] ** 0.5 * random.uniform(-1, 1, values.shape))
        spread = [max(s, d) for s, d in zip(spread, distance(run_peer(with_weights(model, off), feed), expected))]
    return [TOLERANCE * s for s in spread]


def altered(model):
    """One weight of a hundred in the middle of the network off by a tenth: what the comparison must not let pass."""
    middle = [w.name for w in model.graph.initializer if len(w.dims) >= 2 and w.data_type == onnx.TensorProto.FLOAT]
    chosen = middle[len(middle) // 2]

    def change(name, values):
        return values * (1 + 0.1 * (numpy.arange(values.size)
                                    % 100 == 0).reshape(values.shape)) if name == chosen else values
    return with_weights(model, change)


def run_ours(module, feed, folder):
    given = []
    for name, values in feed.items():
        numpy.save(folder / f"{name}.npy", values)
        given += ["--input", f"{name}={folder / name}.npy"]
    done = client("run", module, *given, "--output", folder / "out", "-n", "1")
    assert done.returncode == 0, done.stderr
    return folder / "out"


def targets_of(case, batch):
    """Small networks: one instruction set for each batch, and this machine's for both where it lacks the other."""
    if case.endswith("-full"):
        return ("native",)
    target = "x86-64-v3" if batch == 1 else "x86-64-v4"
    return (target,) if can_run(target) else (target, "native")


def can_run(target):
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return target != "x86-64-v4" or {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(flags)


def check(case, path, model, batch):
    folder = FOLDER / f"{case}.{batch}"
    folder.mkdir(parents=True, exist_ok=True)
    feed = feed_of(model, batch)
    expected = run_peer(model, feed)
    assert all(numpy.isfinite(y).all() for y in expected), case
    allowed = tolerances(model, feed, expected)
    fault = distance(run_peer(altered(model), feed), expected)
    for target in targets_of(case, batch):
        start = time.monotonic()
        done = client("compile", path, "--no-daemon", "-t", target, "-d", f"batch={batch}", "-o", folder / "module.sxm")
        seconds = time.monotonic() - start
        assert done.returncode == 0, f"{case}, {target}: exit {done.returncode}: {done.stderr}"
        if not can_run(target):
            continue
        results = run_ours(folder / "module.sxm", feed, folder)
        ours = [numpy.load(results / f"{value.name}.npy") for value in model.graph.output]
        found = distance(ours, expected)
        for value, y, worst, most, planted in zip(model.graph.output, expected, found, allowed, fault):
            print(f"{case}, batch {batch}, {target}: {value.name} of {y.size} elements up to {numpy.abs(y).max():.2g}: "
                  f"off by {worst:.1e}, allowed {most:.1e}; an altered weight {planted:.1e}; "
                  f"compiled in {seconds:.1f} s", flush=True)
            assert worst <= most, f"{case}, {target}: {value.name} is off by {worst}, allowed {most}"
            assert planted > 4 * most, \
                f"{case}: {value.name}: a weight that is off by a tenth would not be seen: {planted}, allowed {most}"


def main():
    for case in sys.argv[1:] or [*make_networks.NETWORKS, *FULL]:
        name, small, batches = CASES[case]
        model = make_networks.make(name, small)
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"{case}.onnx"
        onnx.save(model, path)
        for batch in batches:
            check(case, path, model, batch)


if __name__ == "__main__":
    main()
