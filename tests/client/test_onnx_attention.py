#!/usr/bin/env python3
"""Attention and RotaryEmbedding of ONNX: `run` gives what ONNX's own reference evaluator gives, with masks, caches,
groups of heads, windows and soft caps, and rows that see no key. What is wrong is refused by name.

The reference computes in f32 as we do. A score is a sum of 8 products of numbers below 1, an exponential changes by as
much as its argument, and a result is a mean of at most 12 numbers below 1: in all less than 32 roundings of 2^-24 on
each side; f16 is computed in f32 and rounded once, to results below 2. Operands that are a fiftieth larger have to give
results beyond that."""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator
except ImportError as error:
    sys.exit(f"{error}: run deploy/install-deps.sh, which puts it into build/venv")

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
TOLERANCE = {numpy.float32: 2 * 32 * 2.0**-24, numpy.float16: 2 * 32 * 2.0**-24 + 2.0**-11}
BATCH, ROWS, KEYS, SIZE = 2, 5, 7, 8
INPUTS = {"Attention": ["q", "k", "v", "mask", "past_key", "past_value", "lengths"],
          "RotaryEmbedding": ["x", "cosine", "sine", "places"]}
OUTPUTS = ["y", "present_key", "present_value", "scores"]


def heads(count, length):
    return (BATCH, count, length, SIZE)


def attention(q=4, kv=4, **more):
    return {"q": heads(q, ROWS), "k": heads(kv, KEYS), "v": heads(kv, KEYS), **more}


FLAT = {"q": (BATCH, ROWS, 4 * SIZE), "k": (BATCH, KEYS, 2 * SIZE), "v": (BATCH, KEYS, 2 * SIZE)}
PAST = {"past_key": heads(2, 3), "past_value": heads(2, 3)}
NEVER = numpy.array([[True, False, True, True, False, True, True]] * 3 + [[False] * 7] * 2)
# operator, opset, inputs (a shape, or the elements), attributes, how many outputs
CASES = [
    ("Attention", 23, attention(), {}, 1),
    ("Attention", 23, attention(kv=2), {"is_causal": 1, "scale": 0.25}, 1),
    ("Attention", 23, attention(kv=1, mask=(4, ROWS, KEYS)), {"is_causal": 1}, 1),
    ("Attention", 23, attention(mask=NEVER), {}, 1),
    ("Attention", 23, attention(mask=NEVER[:, :5]), {}, 1),
    ("Attention", 23, FLAT, {"q_num_heads": 4, "kv_num_heads": 2, "softcap": 0.5, "is_causal": 1}, 1),
    ("Attention", 23, {**FLAT, **PAST}, {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, 3),
    *(("Attention", 24, attention(mask=NEVER), {"qk_matmul_output_mode": mode, "softcap": 2.0}, 4)
      for mode in range(1, 4)),
    ("Attention", 24, attention(), {"qk_matmul_output_mode": 0}, 4),
    ("Attention", 24, attention(lengths=numpy.array([7, 4])), {"is_causal": 1}, 1),
    ("Attention", 25, attention(), {"left_window_size": 1, "right_window_size": 2}, 1),
    ("RotaryEmbedding", 23, {"x": heads(3, ROWS), "cosine": (BATCH, ROWS, 4), "sine": (BATCH, ROWS, 4)}, {}, 1),
    ("RotaryEmbedding", 23, {"x": heads(3, ROWS), "cosine": (BATCH, ROWS, 3), "sine": (BATCH, ROWS, 3)},
     {"interleaved": 1, "rotary_embedding_dim": 6}, 1),
    ("RotaryEmbedding", 23, {"x": (BATCH, ROWS, 3 * SIZE), "cosine": (9, 2), "sine": (9, 2),
                             "places": numpy.array([[0, 1, 2, 3, 4], [8, 4, 7, 1, 1]])},
     {"num_heads": 3, "rotary_embedding_dim": 4}, 1),
]
REFUSED = [
    ("Attention", 23, attention(kv=3), {}, 1, "4 heads of queries for 3 of keys"),
    ("Attention", 23, FLAT, {"kv_num_heads": 2}, 1, "q_num_heads is 0"),
    ("Attention", 23, {**attention(kv=2), "past_key": heads(2, 3)}, {}, 1, "one of past_key and past_value alone"),
    ("RotaryEmbedding", 23, {"x": heads(3, ROWS), "cosine": (BATCH, ROWS, 3), "sine": (BATCH, ROWS, 3)}, {}, 1,
     "a last extent of 4 wanted"),
]


def client(*arguments):
    return subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, SYMPLEX_SOCKET="/nonexistent/d.sock"))


def feed_of(inputs, kind=numpy.float32):
    random = numpy.random.default_rng(5)
    return {name: given if isinstance(given, numpy.ndarray)
            else random.uniform(-1, 1, given).astype(kind) for name, given in inputs.items()}


def model_of(operator, opset, feed, attributes, outputs, symbolic=False):
    names = [name if name in feed else "" for name in INPUTS[operator]]
    while not names[-1]:
        names.pop()
    node = helper.make_node(operator, names, OUTPUTS[:outputs], **attributes)
    values = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(x.dtype),
        ["batch" if symbolic and d == 0 and n == BATCH else n for d, n in enumerate(x.shape)])
        for name, x in feed.items()]
    graph = helper.make_graph([node], "attention", values, [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(next(iter(feed.values())).dtype), None) for name in OUTPUTS[:outputs]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def distance(a, b):
    assert [x.shape for x in a] == [x.shape for x in b], ([x.shape for x in a], [x.shape for x in b])
    finite = [numpy.isfinite(y) for y in b]
    assert all(numpy.array_equal(x[~f], y[~f]) for x, y, f in zip(a, b, finite)), "what is not finite differs"
    return [float(numpy.abs(x[f].astype(numpy.float64) - y[f]).max()) for x, y, f in zip(a, b, finite)]


def check(case, symbolic, folder, kind=numpy.float32):
    operator, opset, inputs, attributes, outputs = case
    feed = feed_of(inputs, kind)
    model = model_of(operator, opset, feed, attributes, outputs, symbolic)
    onnx.save(model, folder / "model.onnx")
    done = client("compile", folder / "model.onnx", "--no-daemon", *(["-d", "batch=1..4"] if symbolic else []), "-o",
                  folder / "m.sxm")
    assert done.returncode == 0, (case, done.stderr)
    given = []
    for name, values in feed.items():
        numpy.save(folder / f"{name}.npy", values)
        given += ["--input", f"{name}={folder / name}.npy"]
    done = client("run", folder / "m.sxm", *given, "--output", folder / "out", "-n", "1",
                  *(["-d", f"batch={BATCH}"] if symbolic else []))
    assert done.returncode == 0, (case, done.stderr)
    ours = [numpy.load(folder / "out" / f"{name}.npy") for name in OUTPUTS[:outputs]]
    wide = {name: x.astype(numpy.float32) if x.dtype == kind else x for name, x in feed.items()}
    reference = ReferenceEvaluator(model_of(operator, opset, wide, attributes, outputs))
    expected = reference.run(None, wide)
    first = "q" if operator == "Attention" else "x"
    altered = reference.run(None, {**wide, first: wide[first] * numpy.float32(1.02)})
    worst, seen = max(distance(ours, expected)), distance(altered, expected)[0]
    print(f"{operator} {opset} {kind.__name__} {sorted(inputs)} {attributes}: off by {worst:.1e}, altered {seen:.1e}")
    assert worst <= TOLERANCE[kind] < seen / 4, (case, worst, TOLERANCE[kind], seen)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number, case in enumerate(CASES):
            check(case, number % 4 == 1, folder)
            if number in (2, 5, len(CASES) - 1):
                check(case, False, folder, numpy.float16)
        for *case, text in REFUSED:
            feed = feed_of(case[2])
            onnx.save(model_of(case[0], case[1], feed, *case[3:]), folder / "model.onnx")
            done = client("compile", folder / "model.onnx", "--no-daemon", "-o", folder / "m.sxm")
            assert done.returncode == 4 and text in done.stderr, (text, done.returncode, done.stderr)


if __name__ == "__main__":
    main()
