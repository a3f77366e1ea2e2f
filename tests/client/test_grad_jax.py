#!/usr/bin/env python3
"""Gradients of tests/golden/grad, in f64 as native code, against those that JAX makes of the same functions."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradients import check


def attend(q, k, v, mask):
    return jax.nn.softmax(0.5 * jnp.einsum("bhsd,bhtd->bhst", q, k) + mask, axis=-1) @ v


def causal_attention(p):
    past = jnp.tril(jnp.ones((6, 6), bool))
    return attend(p["q"], p["k"], p["v"], jnp.where(past, p["bias"], -1e30))


def conv_block(p):
    y = lax.conv_general_dilated(p["x"], p["w"], (2, 1), ((1, 1), (1, 0)), rhs_dilation=(1, 2), feature_group_count=2)

    def column(value):
        return value[:, None, None]

    y = (y - column(p["mean"])) * column(p["scale"] * lax.rsqrt(p["variance"]**2 + 0.001)) + column(p["shift"])
    y = jax.nn.relu(y)
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return lax.conv_general_dilated(y, p["wide"], (1, 1), "VALID").mean(axis=(2, 3))


def cross_entropy(p):
    logits = jax.nn.gelu(p["x"] @ p["w1"] + p["b1"], approximate=False) @ p["w2"] + p["b2"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), p["labels"][:, None], axis=1).sum()


def embedding(p):
    return jnp.tanh(p["table"][p["tokens"]]).sum(axis=1) @ p["table"].T


def encoder(p):
    def norm(x, eps, scale, shift=None):
        x = x if shift is None else x - x.mean(axis=-1, keepdims=True)
        x = x * lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + eps) * scale
        return x if shift is None else x + shift

    x = norm(p["x"], 1e-5, p["n1.w"], p["n1.b"])
    heads = [jnp.einsum("bsi,ihd->bhsd", x, p[name]) for name in "qkv"]
    x = p["x"] + jnp.einsum("bhsd,hdo->bso", attend(*heads, 0), p["o"])
    return x + jax.nn.silu(norm(x, 1e-5, p["n2.w"]) @ p["w1"] + p["b1"]) @ p["w2"]


def lstm(p):
    def step(state, projected):
        h, c = state
        i, o, f, g = jnp.split(projected + h @ p["r"][0].T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    projected = p["x"] @ p["w"][0].T + p["b"][0, :12] + p["b"][0, 12:]
    return lax.scan(step, (p["h"][0], p["c"][0]), projected)[1][:, None]


def gradients(function, reals, counts, cotangent, dtype):
    @jax.jit
    def both(given, above):
        value, pull = jax.vjp(lambda p: function(p | counts), given)
        return value, pull(jnp.ones_like(value) if above is None else above)[0]

    above = None if cotangent is None else jnp.asarray(cotangent, dtype)
    value, made = both({name: jnp.asarray(x, dtype) for name, x in reals.items()}, above)
    return np.asarray(value), {name: np.asarray(x) for name, x in made.items()}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    check([causal_attention, conv_block, cross_entropy, embedding, encoder, lstm], gradients)
