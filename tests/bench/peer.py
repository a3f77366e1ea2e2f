"""What the other sides of the benchmarks have in common: threads, an onnxruntime session, and answering a line
of stdin with a time."""
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


def serve(make, first=True, warm_ns=0, own_clock=False):
    """Prints the name of the engine, or "none" where its packages are missing, then the nanoseconds of a run for each
    line of stdin: what it took, or with `own_clock` what it returns. `first`: one before, not timed. Before each line's
    run there are others for `warm_ns`, which do not count: threads of the other side may still wait for work
    with all their might (OpenMP's do for some 15 ms), and our own have fallen asleep."""
    try:
        name, run = make()
    except ImportError as error:
        print("none", flush=True)
        sys.exit(f"{error}: no peer to compare with; run deploy/install-deps.sh")
    print(name, flush=True)
    if first:
        run()
    for _ in sys.stdin:
        warm = time.perf_counter_ns() + warm_ns
        while warm_ns > 0 and time.perf_counter_ns() < warm:
            run()
        start = time.perf_counter_ns()
        made = run()
        took = time.perf_counter_ns() - start
        print(made if own_clock else took, flush=True)
