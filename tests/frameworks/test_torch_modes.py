#!/usr/bin/env python3
"""What users of torch.compile do besides calling a model: optimizers, lists of tensors, whole steps of training,
autocast, checkpoints, transforms of functions, caches that grow, copies and new weights of compiled models.

Floats are as near to those of the same code in f64 as PyTorch's own are: within 8 times PyTorch's distance from it, or
64 units in the last place of the largest element, whichever is more. An operation is rounded once by both, in another
order; the sums here have 16 terms at most, and there are at most four steps one after the other.

    test_torch_modes.py [NAME ...]        these functions alone
"""
import copy
import functools
import os
import pickle

from runner import SEED, run
from test_torch import compiled, same, warned, whole
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils._pytree import tree_flatten, tree_map


def near(got, want, exact):
    got, want, exact = (tree_flatten(x)[0] for x in (got, want, exact))
    assert len(got) == len(want) == len(exact) > 0
    for i, (g, w, x) in enumerate(zip(got, want, exact)):
        assert g.shape == w.shape and g.dtype == w.dtype, (i, g.shape, w.shape, g.dtype, w.dtype)
        g, w, x = (v.detach().to(torch.float64) for v in (g, w, x))
        unit = torch.finfo(torch.float32).eps * float(x.abs().max())
        off, allowed = float((g - x).abs().max()), max(8 * float((w - x).abs().max()), 64 * unit)
        assert off <= allowed, f"result {i}: {off:.3g} off, allowed is {allowed:.3g}"


def wide(x):
    return x.to(torch.float64) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def agrees(function, *args):
    """Of a function, in f64 too, with nothing left to PyTorch."""
    near(compiled(function)(*args), function(*args), function(*tree_map(wide, args)))


def network():
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def slopes(function, model, *args):
    """The result of a function, and the slopes of a model's parameters and of floating arguments."""
    model.zero_grad()
    leaves = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    made = function(*leaves)
    made.square().sum().backward()
    return [made.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None),
            *(a.grad for a in leaves if a.requires_grad)]


def trains_as_pytorch(model, call, *args):
    """`call(model, *args)` and its slopes, compiled, beside those of PyTorch in f32 and f64."""
    exact = copy.deepcopy(model).double()
    run = compiled(functools.partial(call, model))
    near(slopes(run, model, *args), slopes(functools.partial(call, model), model, *args),
         slopes(functools.partial(call, exact), exact, *map(wide, args)))


# ---- optimizers ----
def test_optimizers():
    """The step of an optimizer is one program, or several, and nothing of it is PyTorch's."""
    x, y = torch.randn(5, 8), torch.randn(5, 4)

    def trained(make, step_of, dtype=torch.float32):
        model = network().to(dtype)
        optimizer = make(model.parameters())
        step = step_of(optimizer.step)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(dtype)), y.to(dtype))
            loss.backward()
            step()
            losses.append(loss.detach())
        return losses, list(model.parameters())

    for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
                 lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
                 lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), amsgrad=True),
                 lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, foreach=True)):
        near(trained(make, lambda step: compiled(step, fullgraph=False)), trained(make, lambda step: step),
             trained(make, lambda step: step, torch.float64))


def test_lists_of_tensors():
    """Of small whole numbers, exact."""
    def function(a, b):
        c = torch._foreach_add(a, b, alpha=2)
        torch._foreach_mul_(c, 3)
        d = torch._foreach_sub(torch._foreach_addcmul(c, a, b, value=2), [1.0, 2.0])
        e = torch._foreach_addcmul(d, a, a, [2.0, 3.0])
        f = torch._foreach_maximum(torch._foreach_neg(e), 4.0) + torch._foreach_pow(2, torch._foreach_abs(a))
        z = torch._foreach_add(a, 1)
        torch._foreach_zero_(z)
        return (*z, *c, *d, *e, *f, *torch._foreach_norm(a, 1),
                *torch._foreach_lerp(a, b, 0.5), *torch._foreach_div(a, 2.0))

    args = [[whole(3, 4), whole(5)] for _ in range(2)]
    same(compiled(function)(*args), function(*args))


def test_clipped_slopes():
    def clipped(parameters):
        return nn.utils.clip_grad_norm_(parameters, 0.1, foreach=True)

    def run(by, dtype=torch.float32):
        parameters = list(network().to(dtype).parameters())
        torch.manual_seed(SEED)
        for p in parameters:
            p.grad = torch.randn(p.shape).to(dtype)
        return [by(parameters), *(p.grad for p in parameters)]

    near(run(compiled(clipped)), run(clipped), run(clipped, torch.float64))


# ---- parameters that are computed ----
def test_weight_norm():
    for dim in (0, 1):
        torch.manual_seed(SEED)
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4), dim=dim)
        trains_as_pytorch(layer, lambda layer, x: layer(x), torch.randn(5, 8))


# ---- narrow floats ----
def test_autocast_in_training():
    """Four steps with an optimizer; the products and their slopes are bf16, the parameters f32."""
    x, y = torch.randn(5, 8), torch.randn(5, 4)

    def trained(model, run):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                made = run(x)
                loss = F.mse_loss(made.float(), y)
            loss.backward()
            optimizer.step()
        return made.detach(), [p.detach() for p in model.parameters()]

    ours = network()
    (made, got), (want_made, want) = trained(ours, compiled(ours)), trained(theirs := network(), theirs)
    assert made.dtype == want_made.dtype == torch.bfloat16
    for a, b in zip(got, want):  # each step may differ by a few units of bf16 of a slope below 1, times 0.1
        assert a.dtype == torch.float32 and float((a - b).abs().max()) <= 4 * 4 * 0.1 * torch.finfo(torch.bfloat16).eps


# ---- checkpoints ----
def test_checkpoints():
    """Parts that are computed again in the backward pass; the dropout of one is drawn once more as it was."""
    kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    for words in ({}, {"context_fn": kept}):
        trains_as_pytorch(network(), lambda model, x: checkpoint(model, x, use_reentrant=False, **words),
                          torch.randn(5, 8))
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.Linear(32, 4))

    def drawn(function, x):
        torch.manual_seed(SEED)
        return slopes(function, model, x)

    def call(x):
        return checkpoint(model, x, use_reentrant=False)

    x = torch.randn(5, 8)
    run = compiled(call, strict=False)
    got, texts = warned(lambda: drawn(run, x))
    assert texts, "random numbers are PyTorch's"
    same(drawn(run, x), got)
    assert torch.allclose(got[0], drawn(call, x)[0], atol=1e-5)


# ---- transforms of functions ----
def test_transforms():
    model, w, x, y = network(), torch.randn(8, 3), torch.randn(5, 8), torch.randn(5, 4)
    parameters = dict(model.named_parameters())

    def loss(parameters, x, y):
        return F.mse_loss(functional_call(model, parameters, (x,)), y)

    agrees(lambda w, x: vmap(grad(lambda w, r: (r @ w).sin().sum()), in_dims=(None, 0))(w, x), w, x)
    agrees(lambda r: (jacrev(lambda v: v.sin() * v.sum())(r), jacfwd(lambda v: v.cos() * v.sum())(r),
                      hessian(lambda v: (v ** 3).sum())(r)), x[0])
    agrees(lambda p, x, y: grad(loss)(p, x, y), parameters, x, y)
    agrees(lambda p, x, y: vmap(grad(loss), in_dims=(None, 0, 0))(p, x[:, None], y[:, None]), parameters, x, y)


# ---- workers that were forked ----
class Prepared(torch.utils.data.Dataset):
    """Rows that a compiled function made, where the row is asked for."""
    def __init__(self, function):
        self.function = function

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return self.function(torch.arange(8.0) + i), torch.tensor(os.getpid())


def test_workers_of_a_loader():
    """Forked after the function ran here, and before it ran anywhere."""
    def prepare(x):
        return torch.tanh(x * 0.25) - x.mean()

    for first in (True, False):
        function = compiled(prepare)
        if first:
            function(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(Prepared(function), batch_size=3, num_workers=2, timeout=100,
                                             multiprocessing_context="fork")
        rows, makers = (torch.cat(x) for x in zip(*loader))
        assert os.getpid() not in makers.tolist() and len(set(makers.tolist())) == 2, makers
        want = torch.stack([prepare(torch.arange(8.0) + i) for i in range(6)])
        exact = torch.stack([prepare(torch.arange(8.0, dtype=torch.float64) + i) for i in range(6)])
        near(rows, want, exact)


# ---- caches ----
def test_caches_that_grow():
    """Keys and values of a text, joined one by one: from the second length on they are symbols."""
    layers = [nn.Linear(8, 8) for _ in range(3)]

    def step(x, keys, values, layers=layers):
        q, k, v = (layer(x) for layer in layers)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        return F.scaled_dot_product_attention(q, keys, values), keys, values

    wide_layers = [copy.deepcopy(layer).double() for layer in layers]
    run = compiled(step, dynamic=None)
    with torch.no_grad():
        for start in (0, 3):
            got = want = exact = [None, *[torch.randn(2, start, 8)] * 2]
            exact = [None, *map(wide, exact[1:])]
            for _ in range(6):
                x = torch.randn(2, 1, 8)
                got, want = run(x, *got[1:]), step(x, *want[1:])
                exact = step(x.double(), *exact[1:], layers=wide_layers)
                near(got, want, exact)


def test_caches_that_are_written():
    """In place, at a place that is an operand, and at one that is a number."""
    def step(x, place, cache):
        cache.index_copy_(1, place, x)
        mask = torch.arange(16)[None] <= place[-1]
        return F.scaled_dot_product_attention(x, cache, cache, attn_mask=mask)

    def counted(x, place: int, cache):
        cache[:, place:place + 1] = x
        return cache[:, :place + 1].sum(1)

    for function, place_of in ((step, lambda i: torch.tensor([i])), (counted, lambda i: i)):
        run = compiled(function, dynamic=None)
        mine, theirs, exact = torch.zeros(2, 16, 4), torch.zeros(2, 16, 4), torch.zeros(2, 16, 4, dtype=torch.float64)
        for i in range(4):
            x = torch.randn(2, 1, 4)
            near([run(x, place_of(i), mine), mine], [function(x, place_of(i), theirs), theirs],
                 [function(x.double(), place_of(i), exact), exact])


# ---- modules ----
def test_attention_in_training():
    torch.manual_seed(SEED)
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    mask, padding = torch.ones(5, 5, dtype=torch.bool).triu(1), torch.tensor([[False] * 4 + [True]] * 3)
    for words in ({}, {"attn_mask": mask, "need_weights": False}, {"key_padding_mask": padding}):
        trains_as_pytorch(layer, lambda layer, x: layer(x, x, x, **words)[0], x)


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 8)
            self.out = nn.Linear(8, 10, bias=False)
            self.out.weight = self.table.weight

        def forward(self, x):
            return self.out(torch.tanh(self.table(x)))

    trains_as_pytorch(Tied(), lambda model, x: model(x), torch.randint(0, 10, (3, 4)))


def test_other_weights_and_types():
    """A compiled model after load_state_dict, also with assign, copies and pickles; then as other floats."""
    model = network()
    run, x = compiled(model), torch.randn(5, 8)
    with torch.no_grad():
        for assign in (False, True):
            other = network()
            for p in other.parameters():
                p.mul_(1.5 + assign)
            run(x)
            model.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
            near(run(x), other(x), copy.deepcopy(other).double()(x.double()))
    twin = copy.deepcopy(run)
    with torch.no_grad():
        next(twin.parameters()).zero_()
        assert not torch.equal(twin(x), run(x))
    inside = network()
    inside.compile(backend="symplex", options={"daemon": "never", "threads": 1, "warm": False, "strict": True})
    near(pickle.loads(pickle.dumps(inside))(x), inside(x), copy.deepcopy(network()).double()(x.double()))
    model.double()
    assert torch.allclose(run(x.double()), model(x.double()), atol=1e-12)
    with torch.inference_mode():
        assert run(x.double()).is_inference()


if __name__ == "__main__":
    run(globals())
