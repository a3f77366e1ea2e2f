#!/usr/bin/env python3
"""The other side of `symplex-bench encoder`: runs the model with onnxruntime if it is installed, else with NumPy, once for each
line on stdin, and answers with the nanoseconds it took. First line of output: name and version of the engine, or "none"."""
import sys

from peer import attend, runner_of, serve, session_of, set_threads, uniform

model, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
set_threads(threads)


def onnxruntime_engine():
    import numpy
    session = session_of(model, threads)
    generator = numpy.random.default_rng(7)
    feed = {}
    for node in session.get_inputs():
        shape = [batch if not isinstance(d, int) else d for d in node.shape]
        feed[node.name] = uniform(generator, shape)
    return runner_of(session, feed)


def numpy_engine():
    import math
    import numpy
    if batch < 1:
        raise ValueError("batch")
    d, heads, sequence, hidden = 256, 4, 128, 1024
    generator = numpy.random.default_rng(7)

    def weights(*shape):
        return uniform(generator, shape) / numpy.float32(math.sqrt(shape[0]))
    wq, wk, wv, wo = (weights(d, d) for _ in range(4))
    w1, w2 = weights(d, hidden), weights(hidden, d)
    x = uniform(generator, (batch, sequence, d))
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
        h = x + attend(numpy, s, v).transpose(0, 2, 1, 3).reshape(batch, sequence, d) @ wo
        u = norm(h) @ w1
        return h + (u * numpy.float32(0.5) * (1 + erf(u * numpy.float32(math.sqrt(0.5))))) @ w2
    return f"NumPy {numpy.__version__}", run


def _scipy():
    try:
        from scipy.special import erf
        return erf
    except ImportError:
        return None


serve(onnxruntime_engine, numpy_engine)
