#!/usr/bin/env python3
"""symplex.torch.Linear, scaled_dot_product_attention and conv2d: PyTorch's own checks of operators, values and slopes
beside torch.nn.functional, and rows that do not depend on the batch, to the bit."""
import copy
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import symplex.torch as st  # noqa: E402
from runner import run  # noqa: E402



def near(ours, theirs, function, *args):
    """Values and slopes of both, as near to f64 as PyTorch's within 8 times, or 32 units in the last place of the
    largest element."""
    def run(by, dtype):
        leaves = [a.detach().to(dtype).requires_grad_() if a.is_floating_point() else a for a in args]
        made = function(by, *leaves)
        made.square().sum().backward()
        return [made.detach(), *(a.grad for a in leaves if a.requires_grad)]

    for got, want, exact in zip(run(ours, torch.float32), run(theirs, torch.float32), run(theirs, torch.float64)):
        assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.contiguous().stride()
        unit = torch.finfo(torch.float32).eps * float(exact.abs().max())
        allowed = max(8 * float((want - exact).abs().max()), 32 * unit)
        off = float((got - exact).abs().max())
        assert off <= allowed, (off, allowed)


def test_values_and_slopes():
    def product(by, x, w, b):
        return by(x, w, b)

    near(torch.ops.symplex.linear, F.linear, product, torch.randn(2, 5, 12), torch.randn(7, 12), torch.randn(7))
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 4, 11, 8), torch.randn(2, 4, 11, 8)
    for words in ({}, {"is_causal": True}, {"scale": 0.5}, {"attn_mask": torch.rand(9, 11) > 0.3}):
        near(st.scaled_dot_product_attention, F.scaled_dot_product_attention, lambda by, *x: by(*x, **words), q, k, v)
    near(st.scaled_dot_product_attention, F.scaled_dot_product_attention,
         lambda by, *x: by(*x, enable_gqa=True), q, k[:, :2], v[:, :2])
    for words in ({}, {"stride": 2, "padding": (1, 2)}, {"dilation": 2}):
        near(st.conv2d, F.conv2d, lambda by, *x: by(*x, **words), torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3),
             torch.randn(6))
    near(st.conv2d, F.conv2d, lambda by, *x: by(*x, groups=2), torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 3))


def test_layer():
    layer = nn.Linear(6, 4)
    ours = st.Linear.from_torch(layer)
    assert ours.weight is layer.weight and ours.bias is layer.bias and isinstance(ours, nn.Linear)
    x = torch.randn(3, 6)
    assert torch.allclose(ours(x), layer(x), atol=1e-5)
    with torch.no_grad():
        layer.weight.mul_(2)
    assert torch.allclose(ours(x), layer(x), atol=1e-5)
    assert torch.allclose(copy.deepcopy(ours)(x), layer(x), atol=1e-5)
    try:
        st.Linear.from_torch(nn.ReLU())
    except TypeError as error:
        assert "ReLU" in str(error)
    else:
        raise AssertionError("a ReLU is no Linear")


def test_opcheck():
    def leaf(*shape):
        return torch.randn(*shape, requires_grad=True)

    ops = torch.ops.symplex
    torch.library.opcheck(ops.linear, (leaf(3, 6), leaf(4, 6), leaf(4)))
    torch.library.opcheck(ops.linear, (leaf(2, 3, 6), leaf(4, 6), None))
    torch.library.opcheck(ops.attention, (leaf(2, 5, 8), leaf(2, 6, 8), leaf(2, 6, 8), None, False, 0.25))
    q, k, v = leaf(2, 5, 8), leaf(2, 5, 8), leaf(2, 5, 8)
    torch.library.opcheck(ops.attention, (q, k, v, torch.zeros(5, 5), True, 1.0))
    for heads, own in ((6, 3), (6, 1)):
        torch.library.opcheck(ops.attention, (leaf(2, heads, 5, 8), leaf(2, own, 6, 8), leaf(2, own, 6, 8), None, False,
                                              0.25))
    torch.library.opcheck(ops.conv2d, (leaf(2, 4, 7, 6), leaf(6, 4, 3, 3), leaf(6), [1, 2], [1, 1], [1, 1], 1))


def test_heads_that_do_not_divide():
    """Of tensors, and of those that only have a shape: refused in PyTorch's words, whichever is asked."""
    def refusal(function, *args):
        try:
            function(*args)
        except RuntimeError as error:
            return str(error)
        raise AssertionError(f"{[list(x.shape) for x in args]} were taken")

    def ours(q, k, v):
        return st.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def theirs(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    for heads, own in ((5, 6), (4, 3), (2, 4)):
        for lead in ((2,), ()):
            given = [torch.randn(*lead, n, 3, 8) for n in (heads, own, own)]
            want = refusal(theirs, *given)
            assert refusal(ours, *given) == want
            assert refusal(ours, *(x.to("meta") for x in given)) == want
            torch._dynamo.reset()
            for function in (ours, theirs):
                compiled = torch.compile(function, backend="symplex", fullgraph=True)
                assert want in refusal(compiled, *given)
    try:
        st.scaled_dot_product_attention(*(torch.randn(2, n, 3, 8) for n in (4, 2, 2)))
    except ValueError as error:
        assert "[2, 4, 3, 8]" in str(error) and "[2, 2, 3, 8]" in str(error)
    else:
        raise AssertionError("fewer heads of keys were taken without enable_gqa")


def test_rows_do_not_see_the_batch():
    """Forward, and slopes of the argument: the same bits alone, in front, in the middle, in small and large batches."""
    w, b, kernel = torch.randn(40, 96), torch.randn(40), torch.linspace(-1, 1, 216).view(8, 3, 3, 3)
    cases = [
        ("linear", lambda x: torch.ops.symplex.linear(x, w, b), torch.randn(70, 96)),
        ("attention", lambda x: st.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True),
         torch.randn(70, 2, 17, 16)),
        ("conv2d", lambda x: st.conv2d(x, kernel, padding=1), torch.randn(70, 3, 9, 8))]
    for dtype in (torch.float32, torch.bfloat16):
        for name, function, x in cases if dtype == torch.float32 else cases[1:2]:
            def both(rows):
                leaf = x[rows].to(dtype).requires_grad_()
                made = function(leaf)
                made.float().square().sum().backward()
                return made.detach(), leaf.grad

            whole = both(slice(0, 70))
            for rows in (slice(0, 1), slice(69, 70), slice(5, 12), slice(3, 67)):
                for part, all_rows in zip(both(rows), whole):
                    assert torch.equal(part, all_rows[rows]), (name, dtype, rows)


def test_inside_of_compiled_models():
    """As one operator among others, whichever back end compiles the rest."""
    model = nn.Sequential(st.Linear.from_torch(nn.Linear(6, 5)), nn.ReLU())
    x = torch.randn(3, 6)
    for backend in ("aot_eager", "symplex"):
        torch._dynamo.reset()
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            got = torch.compile(model, backend=backend, fullgraph=True)(x)
        assert torch.equal(got, model(x)), backend


if __name__ == "__main__":
    run(globals())
