#!/usr/bin/env python3
"""The other side of `symplex-bench attention`: attention in steps (MatMul, Mul, Softmax, MatMul) as an ONNX
model run by onnxruntime, once for each line on stdin; answers with the nanoseconds it took. First line: name
and version, or "none"."""
import sys

from peer import runner_of, serve, session_of, set_threads, uniform

heads, sequence, width, causal, threads = (int(a) for a in sys.argv[1:6])
set_threads(threads)


def operands():
    import numpy
    generator = numpy.random.default_rng(7)
    shape = (1, heads, sequence, width)
    q, k, v = (uniform(generator, shape) for _ in range(3))
    mask = numpy.triu(numpy.full((sequence, sequence), -numpy.inf, numpy.float32), 1) if causal else None
    return q, k, v, mask


def onnxruntime_engine():
    import numpy
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
    return runner_of(session_of(model.SerializeToString(), threads), {"q": q, "k": k, "v": v})


serve(onnxruntime_engine)
