#!/usr/bin/env python3
"""`symplex-bench first`: the first call of a network of 12 layers (256 wide, 8 heads, 128 tokens) in a process of its
own, whose program another process has compiled: for each line on stdin a new process, and the nanoseconds that its
first call takes after all imports, from the function or the model to the result. Arguments: the engine, the case, the
threads, and the folder of the package, python/ of the build.

Case "jit" is a function over arrays, its weights arguments: symplex.jit beside jax.jit with JAX's own cache on disk.
"onnx" is a model in a file with its weights: symplex.compile_onnx beside a session of onnxruntime. symplex asks the
daemon at $SYMPLEX_SOCKET."""
import atexit
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from peer import serve, session_of, set_threads, uniform

ENGINE, CASE, THREADS, FOLDER = sys.argv[1:5]
LAYERS, WIDTH, HEADS, TOKENS = 12, 256, 8, 128
TESTS = pathlib.Path(__file__).resolve().parents[1]


def transformer(xp, x, layers):
    """Layers with norm, attention under a triangle, norm and a gelu between two products."""
    def norm(x):
        x = x - x.mean(-1, keepdims=True)
        return x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def heads(x):
        return x.reshape(TOKENS, HEADS, WIDTH // HEADS).swapaxes(0, 1)

    for qkv, out, up, down in layers:
        q, k, v = (heads(part) for part in xp.split(norm(x) @ qkv, 3, -1))
        scores = q @ k.swapaxes(1, 2) / (WIDTH // HEADS) ** 0.5
        scores = xp.where(xp.tril(xp.ones((TOKENS, TOKENS), bool)), scores, -xp.inf)
        e = xp.exp(scores - scores.max(-1, keepdims=True))
        mixed = e / e.sum(-1, keepdims=True) @ v
        x = x + mixed.swapaxes(0, 1).reshape(TOKENS, WIDTH) @ out
        y = norm(x) @ up
        x = x + y / (1 + xp.exp(-1.702 * y)) @ down
    return x


def arguments():
    import numpy
    generator = numpy.random.default_rng(0)
    shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    weights = [[uniform(generator, shape) / 16 for shape in shapes] for _ in range(LAYERS)]
    return uniform(generator, (TOKENS, WIDTH)), weights


def symplex_jit(x, weights):
    import numpy
    from symplex import jit
    return lambda: jit(lambda x, w: transformer(numpy, x, w), daemon="only", threads=int(THREADS))(x, weights)


def jax_jit(x, weights):
    import jax
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    return lambda: jax.block_until_ready(jax.jit(lambda x, w: transformer(jax.numpy, x, w))(x, weights))


def symplex_onnx(x, model):
    from symplex import compile_onnx
    return lambda: compile_onnx(model, daemon="only", threads=int(THREADS))(x)


def onnxruntime_session(x, model):
    import onnxruntime  # noqa: F401
    return lambda: session_of(model, int(THREADS)).run(None, {"x": x})


CALLS = {("jit", "symplex"): symplex_jit, ("jit", "jax"): jax_jit, ("onnx", "symplex"): symplex_onnx,
         ("onnx", "onnxruntime"): onnxruntime_session}


def first_call():
    sys.path.insert(0, FOLDER)
    x, weights = arguments()
    call = CALLS[CASE, ENGINE](x if CASE == "jit" else x[None], weights if CASE == "jit" else sys.argv[5])
    start = time.perf_counter_ns()
    call()
    print(time.perf_counter_ns() - start)


class Layer:
    """A layer of make_models.py among several: its names have a number in front, its weights come quickly."""

    def __init__(self, model, number, generator):
        self.model, self.number, self.generator, self.own = model, number, generator, {}

    def named(self, name):
        self.own[name] = f"{self.number}.{name}"
        return self.own[name]

    def node(self, op, inputs, output, **attributes):
        return self.model.node(op, [self.own.get(i, i) for i in inputs], self.named(output), **attributes)

    def random(self, name, dims, bound, centre=0.0):
        raw = (uniform(self.generator, dims) * bound + centre).astype("<f4").tobytes()
        self.model.floats(self.named(name), dims, raw)
        return name


def make_model(path):
    import numpy
    sys.path.insert(0, str(TESTS / "models"))
    import make_models
    model, x, generator = make_models.Model("layers", 0), "x", numpy.random.default_rng(0)
    make_models.encoder_constants(model, False)
    for number in range(LAYERS):
        x = make_models.encoder_layer(Layer(model, number, generator), x, False)
    model.node("Identity", [x], "y")
    dims = [1, make_models.SEQUENCE, make_models.WIDTH]
    pathlib.Path(path).write_bytes(model.finish([("x", dims)], [("y", dims)]))


def starts():
    """Each run is the first call of a new process."""
    kept = tempfile.mkdtemp(prefix="sxb.")
    atexit.register(shutil.rmtree, kept)
    model = os.path.join(kept, "model.onnx")
    make_model(model)
    env = dict(os.environ, JAX_COMPILATION_CACHE_DIR=kept)

    def run():
        done = subprocess.run([sys.executable, *sys.argv, model], env=env, stdout=subprocess.PIPE, check=True)
        return int(done.stdout)

    version = "" if ENGINE == "symplex" else importlib.metadata.version(ENGINE)
    return f"{ENGINE} {version}", run


set_threads(int(THREADS))
if len(sys.argv) > 5:
    first_call()
else:
    serve(starts, own_clock=True)
