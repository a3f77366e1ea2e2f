#!/usr/bin/env python3
"""Pieces of networks as users write them: losses of language models with extents that change, masks of padding,
operators that carry graphs.

Floats are as near to those of the same code in f64 as PyTorch's own are: within 8 times PyTorch's distance from it, or
64 units in the last place of the largest element, whichever is more. An operation is rounded once by both, in another
order, and sums have some hundred terms at most. Results and the slopes of all parameters are compared.

    test_torch_networks.py [NAME ...]        these functions alone
"""
import contextlib
import copy
import sys
from unittest import mock

from test_torch import SEED, compiled, warned
from test_torch_modes import near, wide
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
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


# ---- operators that carry graphs ----
class Either(nn.Module):
    """Two layers, of which one is used; `odd` has an operator that PyTorch runs."""

    def __init__(self, odd=False):
        super().__init__()
        self.yes, self.no, self.odd = nn.Linear(4, 4), nn.Linear(4, 4), odd

    def forward(self, x):
        def yes(x):
            y = torch.relu(self.yes(x))
            return y, torch.linalg.det(y.T @ y + torch.eye(4)) if self.odd else y.sum()

        def no(x):  # of what is negative this is NaN, with slopes that are, too
            return torch.tanh(self.no(x)), x.log().sum()
        return torch.cond(x.sum() < 0, yes, no, (x,))


def test_cond():
    """One branch alone is computed: NaN of the other one is nowhere, neither in slopes."""
    x = torch.rand(3, 4) + 0.5
    for slopes in (False, True):
        with Compiled() as programs:
            judged = Judged(Either(), slopes)
            for given in (x, -x):
                judged.agrees(given.requires_grad_(slopes))
        assert len(programs.texts) == 1 + slopes and all(" cond(" in text for text in programs.texts), programs.texts
    judged = Judged(Either(), dynamic=True)
    for rows in (3, 2):
        judged.agrees(x[:1].expand(rows, -1).clone())
    odd = Either(odd=True)
    with torch.no_grad():
        made, texts = warned(lambda: compiled(odd, strict=False)(-x))
        near(made, odd(-x), odd.double()(-x.double()))
    assert len(texts) == 1 and "torch.cond (aten._linalg_det" in texts[0], texts


class Flexible(nn.Module):
    """Attention with a bias by distance that is learned for each head, whose rows see a window."""

    def __init__(self, window=5, heads=2):
        super().__init__()
        self.slope, self.window = nn.Parameter(torch.rand(heads)), window

    def forward(self, q, k, v):
        def sees(batch, head, i, j):
            return (i >= j) & (i - j < self.window)

        def score(score, batch, head, i, j):
            return torch.tanh(score) - self.slope[head] * (i - j).abs() * 0.5

        mask = create_block_mask(sees, None, None, q.shape[-2], k.shape[-2], device="cpu", BLOCK_SIZE=8)
        made = flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)
        return made, flex_attention(q, q, q, block_mask=mask), flex_attention(q, k, v, score_mod=score, enable_gqa=True)


def test_flex_attention():
    """Eager PyTorch in f64 is the truth; it has no slopes of this on the processor."""
    q, k, v = torch.randn(2, 2, 16, 4), torch.randn(2, 1, 16, 4), torch.randn(2, 1, 16, 4)
    Judged(Flexible(), slopes=False).agrees(q, k, v)


@torch.compiler.nested_compile_region
def turned(x, weight):
    return torch.tanh(x @ weight)


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4) / 2)

    def forward(self, x):
        return turned(turned(turned(x, self.weight), self.weight), self.weight)


def test_nested_regions():
    for slopes in (False, True):
        Judged(Repeated(), slopes).agrees(torch.randn(3, 4))


def main():
    tests = {name: f for name, f in globals().items() if name.startswith("test_") and callable(f)}
    for name in sys.argv[1:] or tests:
        torch.manual_seed(SEED)
        tests[name]()
        print(name, flush=True)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    main()
