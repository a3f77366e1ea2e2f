#!/usr/bin/env python3
"""Gradients of tests/golden/grad, in f64 as native code, against those that JAX makes of the same functions."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CLIENT = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client"
GOLDEN = pathlib.Path(os.environ["SX_SOURCE_DIR"]) / "tests" / "golden" / "grad"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxjax."))
EXTENTS = {"batch": 3, "seq": 5}


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


# The function, the output it is, and how many numbers a parameter of integers has.
PROGRAMS = {causal_attention: ("y", 0), conv_block: ("y", 0), cross_entropy: ("loss", 4), embedding: ("y", 9),
            encoder: ("y", 0), lstm: ("y", 0)}


def sx(*arguments):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=240, check=False,
                          cwd=TMP)
    assert done.returncode == 0, (arguments, done)


def drawn(text, integers):
    """A tensor for each parameter of floats, and one for each of integers. Those of bodies stand further right."""
    reals, counts = {}, {}
    pattern = r'^    %\w+ = parameter \{name = "([^"]+)", weight = \d\} : (\w+)\[([^\]]*)\]'
    for name, kind, shape in re.findall(pattern, text, re.MULTILINE):
        shape = [EXTENTS.get(extent) or int(extent) for extent in shape.split(", ")]
        if kind == "i64":
            counts[name] = RNG.integers(0, integers, shape)
        else:
            reals[name] = RNG.standard_normal(shape)
    return reals, counts


def gradients(function, reals, counts, cotangent, dtype):
    @jax.jit
    def both(given, above):
        value, pull = jax.vjp(lambda p: function(p | counts), given)
        return value, pull(above)[0]

    value, made = both({name: jnp.asarray(x, dtype) for name, x in reals.items()}, jnp.asarray(cotangent, dtype))
    return np.asarray(value), {name: np.asarray(x) for name, x in made.items()}


def test_program(function, output, integers):
    """Both round in f64, in orders of their own. What rounding does is seen in f32, where it is 2^29 times as much: 64
    times the largest error there, over 2^29, may be between the two."""
    text = (GOLDEN / f"{function.__name__}.sx").read_text(encoding="ascii").replace("f32[", "f64[")
    (TMP / "program.sx").write_text(text, encoding="ascii")
    reals, counts = drawn(text, integers)
    shape = jax.eval_shape(lambda p: function(p | counts), reals).shape
    cotangent = RNG.standard_normal(shape) if shape else np.float64(1)
    wrt = [word for name in reals for word in ("--wrt", name)]
    sx("grad", "program.sx", "--of", output, *wrt, "-o", "gradient.sx")
    extents = [f"--dim={name}={value}" for name, value in EXTENTS.items() if f"{name} in [" in text]
    sx("compile", "gradient.sx", "--no-daemon", *extents, "-o", "gradient.sxm")
    given = []
    for name, value in (reals | counts | ({f"cotangent({output})": cotangent} if shape else {})).items():
        np.save(TMP / f"{len(given)}.npy", value)
        weight = f'name = "{name}", weight = 1' in text
        given += ["--weight" if weight else "-i", f"{name}={len(given)}.npy"]
    sx("run", "gradient.sxm", *given, "-o", "out")
    exact = gradients(function, reals, counts, cotangent, np.float64)
    coarse = gradients(function, reals, counts, cotangent, np.float32)
    assert sorted(exact[1]) == sorted(reals)
    for name, value, rough in [(output, exact[0], coarse[0]),
                               *((f"grad({name})", exact[1][name], coarse[1][name]) for name in reals)]:
        own = np.load(TMP / "out" / f"{name}.npy")
        allowed = 64 * 2.0**-29 * np.abs(value - rough).max()
        error = np.abs(own - value).max()
        assert own.dtype == value.dtype == np.float64 and own.shape == value.shape
        assert 0 < np.abs(value).max() and allowed < 1e-9 * max(1, np.abs(value).max()), (function, name, allowed)
        assert error <= allowed, (function, name, error, allowed)


if __name__ == "__main__":
    try:
        jax.config.update("jax_enable_x64", True)
        RNG = np.random.default_rng(5)
        assert {path.stem for path in GOLDEN.glob("*.sx")} == {function.__name__ for function in PROGRAMS}
        for made, (result, numbers) in PROGRAMS.items():
            test_program(made, result, numbers)
    finally:
        shutil.rmtree(TMP)
    print("ok")
