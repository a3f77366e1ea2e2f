#!/usr/bin/env python3
"""symplex.torch.from_exported: programs of torch.export, saved and loaded, against the functions they were made of.

    test_torch_export.py [NAME ...]        these functions alone
"""
import copy
import os
import pathlib
import sys
import tempfile
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from models import MODELS  # noqa: E402
from runner import SEED, run  # noqa: E402
from test_torch_models import near  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import symplex  # noqa: E402
import symplex.torch  # noqa: E402
from symplex.torch import _run  # noqa: E402

OPTIONS = {"strict": True, "daemon": "never", "threads": 1}
BATCH = torch.export.Dim("batch", min=2, max=64)


def imported(program, **options):
    return symplex.torch.from_exported(program, **{**OPTIONS, **options})


def whole(*shape):
    return torch.randint(-3, 4, shape).float()


def fails(kind, part, call):
    try:
        call()
    except kind as error:
        assert part in str(error), error
        return
    raise AssertionError(f"nothing was raised, {kind} was expected: {part}")


class Affine(nn.Module):
    """With whole numbers, so that equal means equal. It counts its calls, and takes and gives containers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(whole(4, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, pair, *, scale):
        self.calls.add_(1)
        x, y = pair
        return {"made": (x @ self.weight) * scale + y, "rows": x.sum(1), "times": self.calls + 0}


def affine(rows):
    return ((whole(rows, 4), whole(rows, 3)),), {"scale": torch.tensor(2.0)}


def exported(model, rows=5, dynamic=True):
    args, keywords = affine(rows)
    rows = {0: BATCH} if dynamic else None
    return torch.export.export(model, args, keywords, dynamic_shapes={"pair": (rows, rows), "scale": None})


def agrees(run, model, rows):
    """Beside a copy of the model that has what the program has now."""
    args, keywords = affine(rows)
    theirs = copy.deepcopy(model)
    theirs.load_state_dict({name: value.clone() for name, value in run.state.items()})
    got, want = run(*args, **keywords), theirs(*args, **keywords)
    assert torch.equal(run.state["calls"], theirs.calls)
    assert list(got) == list(want)
    for name in want:
        assert got[name].dtype == want[name].dtype and got[name].stride() == want[name].stride(), name
        assert torch.equal(got[name], want[name]), (name, rows, got[name], want[name])


def test_models():
    for name, (kind, example) in MODELS.items():
        torch.manual_seed(SEED)
        model, x = kind().eval(), example()
        wide = copy.deepcopy(model).double()(x.double() if x.is_floating_point() else x)
        got = imported(torch.export.export(model, (x,)))(x)
        near(f"{name}, exported", got, model(x).detach(), wide.detach())


def test_dynamic_dimensions_and_state():
    model = Affine()
    run = imported(exported(model))
    for rows in (5, 2, 3, 7, 11, 64):
        agrees(run, model, rows)
    assert int(run.state["calls"]) == 6


def test_one_module_for_an_interval():
    model = Affine()
    with mock.patch.object(_run, "compile_bytes", side_effect=_run.compile_bytes) as compiling:
        run = imported(exported(model))
        for rows in range(2, 40):
            agrees(run, model, rows)
    assert 1 <= compiling.call_count <= 6, compiling.call_count


def test_file():
    model = Affine()
    with tempfile.TemporaryDirectory(prefix="sxe.") as folder:
        path = pathlib.Path(folder, "model.pt2")
        torch.export.save(exported(model), path)
        for given in (path, str(path), torch.export.load(str(path))):
            run = imported(given)
            agrees(run, model, 9)
            agrees(run, model, 4)
            assert torch.equal(run.state["weight"], model.weight)


def test_weights_are_read_at_each_call():
    model = Affine()
    run = imported(exported(model, dynamic=False))
    agrees(run, model, 5)
    with torch.no_grad():
        run.state["weight"].add_(1)
    agrees(run, model, 5)


def test_sizes_and_factors():
    class Larger(nn.Module):
        def forward(self, x):
            return (F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(3, 5), mode="bilinear"),
                    F.interpolate(x, scale_factor=2), F.interpolate(x, size=(8, 2)))

    x = whole(2, 3, 4, 4) * 4
    for got, want in zip(imported(torch.export.export(Larger(), (x,)))(x), Larger()(x), strict=True):
        assert got.stride() == want.stride() and torch.allclose(got, want, rtol=0, atol=1e-5)


def test_updated_arguments():
    class Updates(nn.Module):
        def forward(self, x):
            return x.add_(1) * 2

    x = whole(3, 4)
    run, mine = imported(torch.export.export(Updates(), (x.clone(),))), x.clone()
    assert torch.equal(run(mine), (x + 1) * 2) and torch.equal(mine, x + 1)


def test_parts_of_pytorch():
    class Counts(nn.Module):
        def forward(self, x):
            return torch.histc(x @ x + 1, 7, -3, 3) * 2

    x = whole(4, 4)
    program = torch.export.export(Counts(), (x,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = imported(program, strict=False)(x)
    assert torch.equal(got, Counts()(x))
    assert sum("aten.histc" in str(w.message) for w in caught) == 1, [str(w.message) for w in caught]
    fails(symplex.Unimplemented, "aten.histc", lambda: imported(program))


def test_wrong_arguments():
    run = imported(exported(Affine()))
    (pair,), keywords = affine(5)

    def call(x=pair[0], y=pair[1], **more):
        return lambda: run((x, y), **{**keywords, **more})

    call()()
    fails(symplex.InputError, "dimension 0 is 65, allowed are 2 to 64", call(whole(65, 4), whole(65, 3)))
    fails(symplex.InputError, "dimension 0 is 6, needed is", call(y=whole(6, 3)))
    fails(symplex.InputError, "dimension 1 is 5, needed is 4", call(whole(5, 5)))
    fails(symplex.InputError, "pair_0: torch.float64[5, 4], exported for torch.float32", call(pair[0].double()))
    fails(symplex.InputError, "scale: float, exported for", call(scale=2.0))
    fails(symplex.InputError, "keyword", call(other=1))
    fails(symplex.InputError, "exported for", lambda: run(pair[0], **keywords))
    fails(TypeError, "an ExportedProgram or a path", lambda: imported(3))
    fails(symplex.UsageError, "colour", lambda: imported(exported(Affine()), colour=1))


if __name__ == "__main__":
    run(globals())
