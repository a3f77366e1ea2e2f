"""What the other sides of the benchmarks have in common: threads, an onnxruntime session, and answering a line of stdin with a time."""
import os
import sys
import time


def set_threads(threads):
    """Before NumPy is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def session_of(model, threads):
    """`model`: a path or bytes."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def runner_of(session, feed):
    import onnxruntime
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, feed)


def uniform(generator, shape):
    import numpy
    return generator.uniform(-1, 1, shape).astype(numpy.float32)


def attend(numpy, scores, v):
    """softmax(scores) v; changes `scores`."""
    scores = numpy.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return scores @ v


def serve(*engines):
    """The first engine whose packages are there: prints its name or "none", then the nanoseconds of a run for each line of stdin."""
    engine = None
    for make in engines:
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
