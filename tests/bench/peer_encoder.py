#!/usr/bin/env python3
"""The other side of `symplex-bench encoder`: runs the model with onnxruntime, once for each line on stdin, and
answers with the nanoseconds it took. First line of output: name and version of the engine, or "none"."""
import sys

from peer import runner_of, serve, session_of, set_threads, uniform

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


serve(onnxruntime_engine)
