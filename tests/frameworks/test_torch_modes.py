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
import sys

from test_torch import SEED, compiled, same, warned, whole
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


def agrees(function, *args, run=None, **options):
    """Of a function, in f64 too, with nothing left to PyTorch."""
    near((run or compiled(function, **options))(*args), function(*args), function(*tree_map(wide, args)))


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


def main():
    tests = {name: f for name, f in globals().items() if name.startswith("test_") and callable(f)}
    for name in sys.argv[1:] or tests:
        torch.manual_seed(SEED)
        tests[name]()
        print(name, flush=True)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    main()
