#!/usr/bin/env python3
"""The other sides of `symplex-bench backward`: the same block with its gradients for all weights by jax.vjp under
jax.jit, by PyTorch as it stands, or by torch.compile; once for each line on stdin, answered with the nanoseconds it
took. First line: name and version, or "none"."""
import os
import sys

from peer import serve, set_threads, uniform

block, threads, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3]
set_threads(threads)
if threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

SHAPES = {
    "encoder": ({"x": (8, 128, 256)},
                {"n1": (256,), "b1": (256,), "n2": (256,), "b2": (256,), "q": (256, 4, 64), "k": (256, 4, 64),
                 "v": (256, 4, 64), "o": (4, 64, 256), "w1": (256, 1024), "w2": (1024, 256)}),
    "resnet": ({"x": (8, 64, 28, 28), "mean1": (64,), "variance1": (64,), "mean2": (64,), "variance2": (64,)},
               {"w1": (64, 64, 3, 3), "n1": (64,), "b1": (64,), "w2": (64, 64, 3, 3), "n2": (64,), "b2": (64,)}),
}


def jax_engine():
    import jax
    import jax.numpy as jnp
    import numpy
    from jax import lax

    def norm(x, scale, shift):
        x = x - x.mean(axis=-1, keepdims=True)
        return x * lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift

    def encoder(w, p):
        x = norm(p["x"], w["n1"], w["b1"])
        q, k, v = (jnp.einsum("bsi,ihd->bhsd", x, w[name]) for name in "qkv")
        scores = jax.nn.softmax(0.125 * jnp.einsum("bhsd,bhtd->bhst", q, k), axis=-1)
        x = p["x"] + jnp.einsum("bhsd,hdo->bso", jnp.einsum("bhst,bhtd->bhsd", scores, v), w["o"])
        return x + jax.nn.gelu(norm(x, w["n2"], w["b2"]) @ w["w1"], approximate=True) @ w["w2"]

    def resnet(w, p):
        def convolved(x, which):
            column = [p[f"mean{which}"], lax.rsqrt(p[f"variance{which}"]**2 + 1e-5) * w[f"n{which}"], w[f"b{which}"]]
            mean, scale, shift = (value[:, None, None] for value in column)
            return (lax.conv_general_dilated(x, w[f"w{which}"], (1, 1), ((1, 1), (1, 1))) - mean) * scale + shift

        return jax.nn.relu(convolved(jax.nn.relu(convolved(p["x"], 1)), 2) + p["x"])

    function = {"encoder": encoder, "resnet": resnet}[block]

    @jax.jit
    def both(weights, given, cotangent):
        value, pull = jax.vjp(lambda w: function(w, given), weights)
        return value, pull(cotangent)[0]

    generator = numpy.random.default_rng(7)
    given, weights = ({name: jnp.asarray(uniform(generator, shape)) for name, shape in shapes.items()}
                      for shapes in SHAPES[block])
    weights = {name: value / 16 for name, value in weights.items()}
    cotangent = jnp.asarray(uniform(generator, SHAPES[block][0]["x"]))
    return f"JAX {jax.__version__}", lambda: jax.block_until_ready(both(weights, given, cotangent))


def torch_engine():
    import numpy
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)

    def encoder(w, p):
        x = functional.layer_norm(p["x"], (256,), w["n1"], w["b1"])
        q, k, v = (torch.einsum("bsi,ihd->bhsd", x, w[name]) for name in "qkv")
        mixed = functional.scaled_dot_product_attention(q, k, v, scale=0.125)
        x = p["x"] + torch.einsum("bhsd,hdo->bso", mixed, w["o"])
        y = functional.layer_norm(x, (256,), w["n2"], w["b2"])
        return x + functional.gelu(y @ w["w1"], approximate="tanh") @ w["w2"]

    def resnet(w, p):
        def convolved(x, which):
            x = functional.conv2d(x, w[f"w{which}"], padding=1)
            return functional.batch_norm(x, p[f"mean{which}"], p[f"variance{which}"]**2, w[f"n{which}"],
                                         w[f"b{which}"])

        return functional.relu(convolved(functional.relu(convolved(p["x"], 1)), 2) + p["x"])

    function = {"encoder": encoder, "resnet": resnet}[block]
    if engine == "inductor":
        function = torch.compile(function)
    generator = numpy.random.default_rng(7)
    given, weights = ({name: torch.from_numpy(uniform(generator, shape)) for name, shape in shapes.items()}
                      for shapes in SHAPES[block])
    weights = {name: (value / 16).requires_grad_() for name, value in weights.items()}
    cotangent = torch.from_numpy(uniform(generator, SHAPES[block][0]["x"]))

    def run():
        return torch.autograd.grad(function(weights, given), list(weights.values()), cotangent)

    name = "torch.compile" if engine == "inductor" else "PyTorch"
    return f"{name} {torch.__version__.split('+')[0]}", run


serve(jax_engine if engine == "jax" else torch_engine)
