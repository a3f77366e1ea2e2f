#!/usr/bin/env python3
"""`symplex-bench jax`: a function of JAX compiled by symplex.jax.jit or by jax.jit, run for each line on stdin; answers
with the nanoseconds of CALLS runs. Arguments: the compiler ("symplex", "xla"; "nothing": jax.jit of a custom call that
does nothing), the case, the threads and the folder of the package, python/ of the build."""
import ctypes
import os
import pathlib
import sys

from peer import serve, set_threads

COMPILER, CASE, THREADS, FOLDER = sys.argv[1:]
set_threads(int(THREADS))
if THREADS == "1":  # XLA has threads whatever it is told: one processor, for both sides
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def norm(jnp, x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def transformer(jax, jnp, width, heads, layers, causal, tokens=128):
    """Layers with norm, attention, norm and a gelu between two products, as GPT-2 and BERT have them."""
    keys = iter(jax.random.split(jax.random.key(0), 6 * layers + 1))

    def weight(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / 16

    shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    weights = [[weight(*shape) for shape in shapes] for _ in range(layers)]

    def run(x, weights):
        for qkv, out, up, down in weights:
            parts = jnp.split(norm(jnp, x) @ qkv, 3, -1)
            q, k, v = (part.reshape(tokens, heads, width // heads).swapaxes(0, 1) for part in parts)
            scores = q @ k.swapaxes(1, 2) / (width // heads) ** 0.5
            if causal:
                scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
            mixed = jax.nn.softmax(scores, -1) @ v
            x = x + mixed.swapaxes(0, 1).reshape(tokens, width) @ out
            x = x + jax.nn.gelu(norm(jnp, x) @ up) @ down
        return x

    return run, (weight(tokens, width), weights)


def resnet(jax, jnp):
    """The basic block of ResNet-18."""
    first, second, data = jax.random.split(jax.random.key(0), 3)
    weights = [jax.random.normal(key, (64, 64, 3, 3)) / 16 for key in (first, second)]

    def convolved(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))

    def run(x, weights):
        return jax.nn.relu(convolved(jax.nn.relu(convolved(x, weights[0])), weights[1]) + x)

    return run, (jax.random.normal(data, (4, 64, 28, 28)), weights)


def drawn(jax, jnp, dropout):
    """A million words of JAX's own generator; or a million numbers of which a tenth is dropped."""
    key, count = jax.random.key(7), 1_000_000
    if not dropout:
        return lambda key: jax.random.bits(key, (count,), jnp.uint32), [key]
    return (lambda x, key: jnp.where(jax.random.bernoulli(key, jnp.float32(0.9), x.shape), x / 0.9, 0),
            [jnp.ones(count), key])


def nothing(jax, folder):
    """A function of the types of `call` and `floor` whose custom call returns at once."""
    library = ctypes.CDLL(str(pathlib.Path(folder).parent / "xla-nothing" / "libsx_xla_nothing.so"))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    address = ctypes.cast(library.sx_xla_nothing, ctypes.c_void_p)
    jax.ffi.register_ffi_target("nothing", capsule(address, None, None), platform="cpu")
    return lambda a, b, c: jax.ffi.ffi_call("nothing", jax.ShapeDtypeStruct(a.shape, a.dtype))(a, b, c)


def engine():
    import jax
    import jax.numpy as jnp
    tiny = (lambda: (lambda a, b, c: a + b + c, [jnp.ones(64) for _ in range(3)]), 2000)
    make, calls = {
        "call": tiny, "floor": tiny,
        "block": (lambda: transformer(jax, jnp, 256, 8, 1, True), 4),
        "bert": (lambda: transformer(jax, jnp, 512, 8, 4, False), 2),
        "gpt2": (lambda: transformer(jax, jnp, 512, 8, 4, True), 2),
        "resnet": (lambda: resnet(jax, jnp), 4),
        "bits": (lambda: drawn(jax, jnp, False), 4), "dropout": (lambda: drawn(jax, jnp, True), 4)}[CASE]
    function, args = make()
    if COMPILER == "symplex":
        sys.path.insert(0, FOLDER)
        import symplex.jax
        compiled = symplex.jax.jit(function, strict=True, daemon="never", threads=int(THREADS))
    else:
        compiled = jax.jit(nothing(jax, FOLDER) if COMPILER == "nothing" else function)

    def run():
        for _ in range(calls):
            result = compiled(*args)
        jax.block_until_ready(result)

    return f"JAX {jax.__version__}, {COMPILER}", run


serve(engine, warm_ns=50_000_000)
