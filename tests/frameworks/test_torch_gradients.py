#!/usr/bin/env python3
"""Gradients of tests/golden/grad, in f64 as native code, against those that PyTorch's autograd makes of the same
functions."""
import os
import pathlib
import sys

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(os.environ["SX_SOURCE_DIR"]) / "tests" / "client"))
from gradients import check  # noqa: E402


def attend(q, k, v, mask):
    return torch.softmax(0.5 * torch.einsum("bhsd,bhtd->bhst", q, k) + mask, -1) @ v


def causal_attention(p):
    past = torch.ones(6, 6).tril().bool()
    return attend(p["q"], p["k"], p["v"], torch.where(past, p["bias"], torch.tensor(-1e30, dtype=p["q"].dtype)))


def conv_block(p):
    y = F.conv2d(F.pad(p["x"], (1, 0, 1, 1)), p["w"], stride=(2, 1), dilation=(1, 2), groups=2)
    mean, variance, scale, shift = (p[name][:, None, None] for name in ("mean", "variance", "scale", "shift"))
    y = (y - mean) * (scale * torch.rsqrt(variance**2 + 0.001)) + shift
    return F.conv2d(F.max_pool2d(F.relu(y), 3, 2, 1), p["wide"]).mean((2, 3))


def cross_entropy(p):
    logits = F.gelu(p["x"] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return F.cross_entropy(logits, p["labels"], reduction="sum")


def embedding(p):
    return F.embedding(p["tokens"], p["table"]).tanh().sum(1) @ p["table"].T


def encoder(p):
    x = F.layer_norm(p["x"], (8,), p["n1.w"], p["n1.b"])
    heads = [torch.einsum("bsi,ihd->bhsd", x, p[name]) for name in "qkv"]
    x = p["x"] + torch.einsum("bhsd,hdo->bso", attend(*heads, 0), p["o"])
    return x + F.silu(F.rms_norm(x, (8,), p["n2.w"], 1e-5) @ p["w1"] + p["b1"]) @ p["w2"]


def lstm(p):
    h, c, rows = p["h"][0], p["c"][0], []
    for projected in p["x"] @ p["w"][0].T + p["b"][0, :12] + p["b"][0, 12:]:
        i, o, f, g = (projected + h @ p["r"][0].T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        rows.append(h)
    return torch.stack(rows)[:, None]


def gradients(function, reals, counts, cotangent, dtype):
    given = {name: torch.from_numpy(np.asarray(x, dtype)).requires_grad_() for name, x in reals.items()}
    value = function(given | {name: torch.from_numpy(x) for name, x in counts.items()})
    above = torch.ones_like(value) if cotangent is None else torch.as_tensor(cotangent).to(value.dtype)
    made = torch.autograd.grad(value, list(given.values()), above)
    return value.detach().numpy(), {name: x.numpy() for name, x in zip(given, made)}


if __name__ == "__main__":
    check([causal_attention, conv_block, cross_entropy, embedding, encoder, lstm], gradients)
