#!/usr/bin/env python3
"""Models with random weights, compiled by symplex and run by eager PyTorch: results, and one step of training.

The measure is PyTorch in f64: what is compiled may be as far from it as 8 times what eager PyTorch in f32 is, or 32
units in the last place of the largest element of that tensor, whichever is more (both round each operation once, in
another order). Tensors are compared one by one: results, every gradient, every buffer, every weight after the step.
With `exact` the bits of a row do not depend on the batch, nor with `batch_invariant`, nor where PyTorch holds the batch
as a symbol; without any of them a rewrite may be taken for one batch alone.

    test_torch_models.py [NAME ...]     of MODELS, and `invariant`, what that option promises; by hand also those that
                                        symplex-bench measures, as large-gpt2"""
import copy
import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from models import LARGE, MODELS  # noqa: E402

import symplex.torch  # noqa: E402

SEED = int(os.environ.get("SX_SEED", "20261124"))
OPTIONS = {"strict": True, "daemon": "never", "threads": 2, "warm": False}
WORSE, UNITS = 8, 32


def compiled(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend="symplex", fullgraph=True, options={**OPTIONS, **options})


def near(name, got, eager, exact, eps=torch.finfo(torch.float32).eps):
    assert got.shape == eager.shape and got.dtype == eager.dtype and got.stride() == eager.stride(), name
    if not got.is_floating_point():
        assert torch.equal(got, eager), name
        return
    got, eager, exact = (x.detach().to(torch.float64) for x in (got, eager, exact))
    assert exact.isfinite().all() and got.isfinite().all(), name
    unit = eps * float(exact.abs().max())
    allowed = max(WORSE * float((eager - exact).abs().max()), UNITS * unit)
    off = float((got - exact).abs().max())
    assert off <= allowed, f"{name}: {off:.3g} off, allowed is {allowed:.3g}"


def step(run, model, x, target):
    """A step of SGD with momentum: the loss, and what then is in the model and its gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(2):  # the second step sees the weights of the first
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(run(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    made = {f"loss {i}": loss for i, loss in enumerate(losses)}
    made |= {f"slope of {n}": p.grad for n, p in model.named_parameters()}
    return made | {n: v.clone() for n, v in model.state_dict().items()}


def try_model(name):
    torch.manual_seed(SEED)
    kind, example = LARGE[name.removeprefix("large-")] if name.startswith("large-") else MODELS[name]
    model, x = kind(), example()
    if name == "large-resnet50":  # of one image, some of its norms see four numbers a channel: no digit is left
        x = torch.randn(4, *x.shape[1:])
    target = torch.randint(0, 10, (x.shape[0],))
    wide = copy.deepcopy(model).double()
    wide_x = x.double() if x.is_floating_point() else x
    with torch.no_grad():
        model.eval(), wide.eval()
        near(f"{name}, inference", compiled(model)(x), model(x), wide(wide_x))
        all_rows = compiled(model, exact=True)(x)
        for rows in (slice(0, 1), slice(1, 3)) if x.shape[0] > 1 else ():
            alone = compiled(model, exact=True)(x[rows])
            assert torch.equal(alone, all_rows[rows]), f"{name}: {rows} depends on the batch"
    model.train(), wide.train()
    mine = copy.deepcopy(model)
    theirs, exact = step(model, model, x, target), step(wide, wide, wide_x, target)
    ours = step(compiled(mine), mine, x, target)
    assert ours.keys() == theirs.keys()
    for part in ours:
        near(f"{name}, {part}", ours[part], theirs[part], exact[part])


def try_narrow(name):
    """In bf16 the same measure with the unit of bf16: a model whose weights are bf16, and one of f32 under autocast;
    results and slopes. The truth is f64 with the weights as the model has them."""
    for whole in (True, False):
        torch.manual_seed(SEED)
        kind, example = MODELS[name]
        model, x = kind(), example()
        model = model.bfloat16() if whole else model
        x = x.bfloat16() if whole and x.is_floating_point() else x
        mine, wide = copy.deepcopy(model), copy.deepcopy(model).double()
        wide_x = x.double() if x.is_floating_point() else x
        made = []
        for run, owner, given in ((compiled(mine), mine, x), (model, model, x), (wide, wide, wide_x)):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not whole and owner is not wide):
                result = run(given)
            result.double().square().sum().backward()
            made.append({"result": result, **{n: p.grad for n, p in owner.named_parameters()}})
        ours, theirs, exact = made
        how = "bf16" if whole else "autocast"
        assert ours["result"].dtype == torch.bfloat16, how
        for part in ours:
            near(f"{name}, {how}, {part}", ours[part], theirs[part], exact[part], torch.finfo(torch.bfloat16).eps)


def try_rows(name):
    """Where PyTorch holds the batch as a symbol, bits of a row do not depend on it: not with a program for each of
    three sizes, nor with the one for all others."""
    torch.manual_seed(SEED)
    kind, example = MODELS[name]
    model = kind().eval()
    x = torch.randn(8, *example().shape[1:])
    run = compiled(model)
    with torch.no_grad():
        made = {}
        for rows in (8, 2, 3, 5, 7):
            given = x[:rows].clone()
            torch._dynamo.mark_dynamic(given, 0)
            made[rows] = run(given)
    for rows, result in made.items():
        assert torch.equal(result, made[8][:rows]), f"{name}: {rows} rows are not those of 8"


class LowRank(torch.nn.Module):
    """A layer with a correction of low rank: for one row its sum is taken in another order than for many."""

    def __init__(self):
        super().__init__()
        self.whole = torch.nn.Linear(256, 256)
        self.down, self.up = torch.nn.Linear(256, 8, bias=False), torch.nn.Linear(8, 256, bias=False)

    def forward(self, x):
        return self.whole(x) + self.up(self.down(x)) * 0.5


def differing(model, x, **options):
    """Batches whose rows have other bits than those of the first: programs for 12 rows and for 1, which PyTorch holds
    as numbers, and for 3, a symbol by then."""
    run, made = compiled(model, **options), {}
    with torch.no_grad():
        for rows in (12, 1, 3):
            made[rows] = run(x[:rows].clone())
    return [rows for rows, result in made.items() if not torch.equal(result, made[12][:rows])]


def try_invariant():
    """With `batch_invariant` rows have the same bits in every batch, and so have their slopes; without it these models
    tell batches apart."""
    torch.manual_seed(SEED)
    low_rank, x = LowRank(), torch.randn(12, 256)
    assert differing(low_rank, x), "without it rows are the same, too: take another model"
    for model, given in ((low_rank, x), (MODELS["unet"][0]().eval(), torch.randn(12, 3, 16, 16))):
        assert not differing(model, given, batch_invariant=True), type(model)
    slopes = []
    for rows in (12, 5):
        given = x[:rows].clone().requires_grad_()
        compiled(low_rank, batch_invariant=True)(given).square().sum().backward()
        slopes.append(given.grad)
    assert torch.equal(slopes[0][:5], slopes[1])


NARROW = ("vit", "llama")
ROWS = ("unet", "resnet")


def main():
    for name in sys.argv[1:] or [*MODELS, "invariant"]:
        if name == "invariant":
            try_invariant()
            continue
        try_model(name)
        if name in NARROW:
            try_narrow(name)
        if name in ROWS:
            try_rows(name)
        print(name)

if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    main()
