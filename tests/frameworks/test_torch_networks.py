#!/usr/bin/env python3
"""Pieces of networks as users write them: losses of language models with extents that change, masks of padding.

Floats are as near to those of the same code in f64 as PyTorch's own are: within 8 times PyTorch's distance from it, or
64 units in the last place of the largest element, whichever is more. An operation is rounded once by both, in another
order, and sums have some hundred terms at most. Results and the slopes of all parameters are compared.

    test_torch_networks.py [NAME ...]        these functions alone
"""
import contextlib
import copy
import sys
from unittest import mock

from test_torch import SEED, compiled
from test_torch_modes import near, wide
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map

from symplex.torch import _run


class Compiled:
    """Of each program that is compiled: its text, and the values of its symbols."""

    def __enter__(self):
        self.texts, self.symbols, made = [], [], _run.compile_bytes

        def kept(text, **options):
            self.texts.append(text)
            self.symbols.append(options.get("dims"))
            return made(text, **options)

        _run._modules.clear()
        self.patch = mock.patch.object(_run, "compile_bytes", kept)
        self.patch.__enter__()
        return self

    def __exit__(self, *given):
        self.patch.__exit__(*given)


def pieces(run, model, args, slopes):
    """The results, and the slopes of parameters and arguments."""
    model.zero_grad()
    args = tree_map(lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(
        x, torch.Tensor) else x, args)
    with contextlib.nullcontext() if slopes else torch.no_grad():
        made = run(*args)
    results = [x for x in tree_flatten(made)[0] if isinstance(x, torch.Tensor)]
    if slopes:
        sum(x.double().sin().sum() for x in results if x.requires_grad).backward()
    owned = [*model.parameters(), *[x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)]]
    return results + [p.grad for p in owned if p.grad is not None]


class Judged:
    """A model, compiled once, and its like in f64."""

    def __init__(self, model, slopes=True, **options):
        self.model, self.wide, self.mine = model, copy.deepcopy(model).double(), copy.deepcopy(model)
        self.run, self.slopes = compiled(self.mine, **options), slopes

    def agrees(self, *args):
        wanted, exact = pieces(self.model, self.model, args, self.slopes), pieces(
            self.wide, self.wide, tree_map(lambda x: wide(x).detach().requires_grad_(x.requires_grad) if isinstance(
                x, torch.Tensor) else x, args), self.slopes)
        near(pieces(self.run, self.mine, args, self.slopes), wanted, exact)


# ---- extents that change ----
class Language(nn.Module):
    """The loss of each word by those before it; words of number 0 do not count."""

    def __init__(self, kinds=20, width=8):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(kinds, width), nn.LayerNorm(width), nn.Linear(width, kinds)

    def forward(self, words):
        x = self.words(words)
        made = self.head(self.norm(torch.tanh(x) + x))
        return F.cross_entropy(made[:, :-1].reshape(-1, made.shape[-1]), words[:, 1:].reshape(-1), ignore_index=0)


class Places(nn.Module):
    """What is taken at places along extents that change: the last, those of each row, those of a table, and losses with
    the kinds in the middle."""

    def __init__(self, width=6):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, lengths, places, kinds):
        x = self.layer(x)
        each = x[torch.arange(x.shape[0]), lengths - 1]
        loss = F.cross_entropy(x.transpose(1, 2), kinds, reduction="none")
        put = torch.zeros_like(x).scatter_add(1, places[:, :, None].expand_as(x), x)
        taken = x.gather(1, places[:, :, None].expand(-1, -1, x.shape[-1]))
        return x[:, -1], each, taken, loss, put, x[:, 1:] - x[:, :-1], x[:, -2:], x[:, 1]


def test_extents_that_change():
    """Programs are written with symbols: which value each had is said when they are compiled."""
    for model, example in ((Language(), lambda n, s: (torch.randint(0, 20, (n, s)),)),
                           (Places(), lambda n, s: (torch.randn(n, s, 6), torch.randint(1, s + 1, (n,)), torch.randint(
                               0, s, (n, s)), torch.randint(0, 6, (n, s))))):
        judged = Judged(model, dynamic=True)
        for n, s in ((3, 7), (2, 9), (5, 4)):
            with Compiled() as programs:
                judged.agrees(*example(n, s))
            assert len(programs.symbols) == 2 and all(programs.symbols), f"{type(model)}: {programs.symbols}"
            assert any(sorted(known.values()) == sorted((n, s)) for known in programs.symbols), programs.symbols
        assert "crop" in programs.texts[0], programs.texts


# ---- masks ----
class Encoded(nn.Module):
    def __init__(self, norm_first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, padding):
        return self.layers(x, src_key_padding_mask=padding)


def test_padding():
    """PyTorch's fast path of an encoder's layer, which it takes without gradients, and the other one."""
    x, padding = torch.randn(3, 6, 8), torch.arange(6)[None] >= torch.tensor([6, 4, 1])[:, None]
    for norm_first in (False, True):
        for model, slopes in ((Encoded(norm_first).eval(), False), (Encoded(norm_first).train(), True)):
            Judged(model, slopes).agrees(x, padding)


def main():
    tests = {name: f for name, f in globals().items() if name.startswith("test_") and callable(f)}
    for name in sys.argv[1:] or tests:
        torch.manual_seed(SEED)
        tests[name]()
        print(name, flush=True)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    main()
