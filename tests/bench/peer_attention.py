#!/usr/bin/env python3
"""The other side of `symplex-bench attention`: attention in steps (MatMul, Mul, Softmax, MatMul) as an ONNX model run by onnxruntime,
else with NumPy, once for each line on stdin; answers with the nanoseconds it took. First line: name and version, or "none"."""
import os
import sys
import time

heads, sequence, width, causal, threads = (int(a) for a in sys.argv[1:6])
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(threads)


def operands():
    import numpy
    generator = numpy.random.default_rng(7)
    shape = (1, heads, sequence, width)
    q, k, v = (generator.uniform(-1, 1, shape).astype(numpy.float32) for _ in range(3))
    mask = numpy.triu(numpy.full((sequence, sequence), -numpy.inf, numpy.float32), 1) if causal else None
    return q, k, v, mask


def onnxruntime_engine():
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    q, k, v, mask = operands()
    shape = list(q.shape)
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
             helper.make_node("MatMul", ["q", "kt"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["y"])]
    constants = [numpy_helper.from_array(numpy.array(width ** -0.5, numpy.float32), "scale")]
    scores = "y"
    if causal:
        nodes.append(helper.make_node("Add", ["y", "mask"], ["x"]))
        constants.append(numpy_helper.from_array(mask, "mask"))
        scores = "x"
    nodes += [helper.make_node("Softmax", [scores], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", "v"], ["o"])]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "qkv"]
    output = [helper.make_tensor_value_info("o", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "attention", inputs, output, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    feed = {"q": q, "k": k, "v": v}
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, feed)


def numpy_engine():
    import numpy
    q, k, v, mask = operands()

    def run():
        s = q @ k.transpose(0, 1, 3, 2) * numpy.float32(width ** -0.5)
        if causal:
            s += mask
        s = numpy.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        return s @ v
    return f"NumPy {numpy.__version__}", run


engine = None
for make in (onnxruntime_engine, numpy_engine):
    try:
        engine = make()
        break
    except ImportError:
        continue
print(engine[0] if engine else "none", flush=True)
if engine:
    engine[1]()
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        engine[1]()
        print(time.perf_counter_ns() - start, flush=True)
