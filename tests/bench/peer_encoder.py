#!/usr/bin/env python3
"""The other side of `symplex-bench encoder`: runs the model with onnxruntime if it is installed, else with NumPy, once for each
line on stdin, and answers with the nanoseconds it took. First line of output: name and version of the engine, or "none"."""
import os
import sys
import time

model, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(threads)


def onnxruntime_engine():
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    generator = numpy.random.default_rng(7)
    feed = {}
    for node in session.get_inputs():
        shape = [batch if not isinstance(d, int) else d for d in node.shape]
        feed[node.name] = generator.uniform(-1, 1, shape).astype(numpy.float32)
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, feed)


def numpy_engine():
    import math
    import numpy
    if batch < 1:
        raise ValueError("batch")
    d, heads, sequence, hidden = 256, 4, 128, 1024
    generator = numpy.random.default_rng(7)

    def weights(*shape):
        return generator.uniform(-1, 1, shape).astype(numpy.float32) / numpy.float32(math.sqrt(shape[0]))
    wq, wk, wv, wo = (weights(d, d) for _ in range(4))
    w1, w2 = weights(d, hidden), weights(hidden, d)
    x = generator.uniform(-1, 1, (batch, sequence, d)).astype(numpy.float32)
    erf = numpy.vectorize(math.erf, otypes=[numpy.float32]) if not _scipy() else _scipy()

    def norm(v):
        mean = v.mean(-1, keepdims=True)
        return (v - mean) / numpy.sqrt(((v - mean) ** 2).mean(-1, keepdims=True) + numpy.float32(1e-5))

    def split(v):
        return v.reshape(batch, sequence, heads, d // heads).transpose(0, 2, 1, 3)

    def run():
        n = norm(x)
        q, k, v = split(n @ wq), split(n @ wk), split(n @ wv)
        s = q @ k.transpose(0, 1, 3, 2) * numpy.float32(1 / math.sqrt(d // heads))
        s = numpy.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        h = x + (s @ v).transpose(0, 2, 1, 3).reshape(batch, sequence, d) @ wo
        u = norm(h) @ w1
        return h + (u * numpy.float32(0.5) * (1 + erf(u * numpy.float32(math.sqrt(0.5))))) @ w2
    return f"NumPy {numpy.__version__}", run


def _scipy():
    try:
        from scipy.special import erf
        return erf
    except ImportError:
        return None


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
