#!/usr/bin/env python3
"""symplex.torch on PyTorch's own samples of its operators (its OpInfo database), beside eager PyTorch.

Each sample is compiled with strict=True, so an operator is right, refused by its name, or wrong, which is a failure.
Whole numbers, bools, shapes, strides and element types are equal. Floats are as near to the result in f64 as PyTorch's
own are: within 8 times PyTorch's distance from it, or 16 units in the last place of the largest element of the result
or of the arguments, whichever is more. Both make each operation with one rounding, in another order: for a sum of n
terms of size 1 that is up to n units either way, and samples have some hundred terms at most; and a function such as
expm1 is two or three operations of which each rounds. bf16 results are those of f32 rounded once by both, so one unit
of bf16 covers it.

    test_torch_ops.py [NAME ...]         these operators alone, with every refusal and difference
"""
import collections
import os
import pathlib
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_map  # noqa: E402

import symplex  # noqa: E402
import symplex.torch  # noqa: E402

# Names (with variants) of operators that symplex knows, by themselves or by their decompositions. SX_SAMPLES samples of
# each are tried in each type.
KNOWN = """
abs acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax any arange argmax argmin asin asinh
atan atan2 atanh atleast_1d atleast_2d atleast_3d baddbmm bitwise_and bitwise_not bitwise_or bitwise_xor block_diag bmm
broadcast_tensors broadcast_to bucketize cat ceil chunk clamp clamp_max clamp_min clone column_stack constant_pad_nd
contiguous copysign cos cosh cross cummax cummin cumsum deg2rad diag diag_embed diagonal diagonal_copy diagonal_scatter
diff dist div.floor_rounding div.no_rounding_mode div.trunc_rounding dot dsplit dstack einsum empty_like eq exp exp2
expand expand_as expm1 fill flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac full full_like
gather ge gradient grid_sampler_2d gt hsplit hstack hypot index_add index_copy index_fill index_put index_reduce.amax
index_reduce.mean index_select inner isfinite isin isinf isnan isneginf isposinf kron kthvalue ldexp le lerp
linalg.cross linalg.vecdot log log10 log1p log2 log_softmax logaddexp logcumsumexp logical_and logical_not logical_or
logical_xor logit logsumexp lt masked_fill matmul max.binary max.reduction_no_dim max.reduction_with_dim maximum mean
median min.binary min.reduction_no_dim min.reduction_with_dim minimum mm movedim mul mv nan_to_num nanmean nanmedian
nansum narrow narrow_copy ne neg new_full new_ones new_zeros nn.functional.adaptive_avg_pool1d
nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d nn.functional.avg_pool2d
nn.functional.avg_pool3d nn.functional.batch_norm nn.functional.bilinear nn.functional.celu nn.functional.conv1d
nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
nn.functional.conv_transpose3d nn.functional.cosine_similarity nn.functional.cross_entropy nn.functional.elu
nn.functional.embedding nn.functional.gelu nn.functional.glu nn.functional.group_norm nn.functional.hardshrink
nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh nn.functional.huber_loss
nn.functional.instance_norm nn.functional.interpolate.area nn.functional.interpolate.bilinear
nn.functional.interpolate.nearest nn.functional.l1_loss nn.functional.layer_norm nn.functional.leaky_relu
nn.functional.linear nn.functional.logsigmoid nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
nn.functional.mish nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize nn.functional.pad.circular
nn.functional.pad.constant nn.functional.pad.replicate nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
nn.functional.prelu nn.functional.relu nn.functional.relu6 nn.functional.rms_norm
nn.functional.scaled_dot_product_attention nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss
nn.functional.softmin nn.functional.softplus nn.functional.softshrink nn.functional.softsign nn.functional.tanhshrink
nn.functional.threshold nn.functional.unfold ones ones_like outer permute permute_copy positive pow prod rad2deg
reciprocal remainder repeat repeat_interleave reshape reshape_as roll rot90 round round.decimals_3 round.decimals_neg_3
rsqrt rsub scatter scatter_add scatter_reduce.amax scatter_reduce.amin scatter_reduce.mean scatter_reduce.prod
scatter_reduce.sum searchsorted select select_scatter sgn sigmoid sign signbit sin sinh slice slice_scatter softmax sort
split split_with_sizes sqrt square squeeze squeeze.multiple stack std std_mean sub sum t take_along_dim tan tanh
tensor_split tensordot tile topk trace transpose tril triu true_divide trunc unbind unflatten unfold unsqueeze var
var_mean vdot view view_as view_copy vsplit vstack where xlogy zeros zeros_like
""".split()
# Of these the slopes, too, in f32: operators of PyTorch's own make them.
SLOPES = """
cummax kthvalue logcumsumexp median nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.avg_pool2d nn.functional.avg_pool3d
nn.functional.bilinear nn.functional.max_pool3d nn.functional.pad.replicate scatter_reduce.mean unfold
""".split()
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SAMPLES_MAX = int(os.environ.get("SX_SAMPLES", "2"))  # of one operator and type
WORSE, UNITS = 8, 16
_ORDERS = ("sort", "topk", "kthvalue", "median", "nanmedian")


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def wide(x):
    return x.to(torch.float64) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def largest(values):
    sizes = [x.detach().to(torch.float64).abs() for x in values if isinstance(x, torch.Tensor)
             and x.is_floating_point() and x.numel()]
    return max((float(x[x.isfinite()].max()) for x in sizes if x.isfinite().any()), default=0.0)


def difference(got, want, exact, arguments):
    """What is wrong with a result, or None."""
    if not isinstance(want, torch.Tensor):
        return None if got == want else f"{got} is not {want}"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} is not {want.dtype}{list(want.shape)}"
    alone = [d for d, n in enumerate(want.shape) if n > 1]
    if want.numel() and [got.stride(d) for d in alone] != [want.stride(d) for d in alone]:
        return f"strides {got.stride()} are not {want.stride()}"
    if not want.is_floating_point():
        return None if torch.equal(got, want) else f"{got} is not {want}"
    g, w = got.detach().to(torch.float64), want.detach().to(torch.float64)
    x = exact.detach().to(torch.float64)
    finite = w.isfinite() & x.isfinite()
    if not torch.equal(g[~finite].nan_to_num(7), w[~finite].nan_to_num(7)):
        return f"{g[~finite]} is not {w[~finite]}"
    if not finite.any():
        return None
    unit = torch.finfo(want.dtype).eps * max(float(x[finite].abs().max()), min(largest(arguments), 1e4))
    allowed = max(WORSE * float((w - x)[finite].abs().max()), UNITS * unit)
    off = float((g - x)[finite].abs().max())
    theirs = float((w - x)[finite].abs().max())
    return None if off <= allowed else f"{off:.3g} off, allowed is {allowed:.3g} (PyTorch: {theirs:.3g})"


def same_order(name, got, want, sample):
    """Indices of a sort, or of what is at a place of an order, may name another of equal elements: those that they name
    are the same."""
    x = sample.input
    places = [a for a in sample.args if type(a) is int][1 if name in ("topk", "kthvalue") else 0:]  # the count is first
    dim = sample.kwargs.get("dim", places[0] if places else -1)
    got, want = (x.reshape(x.shape or (1,)).take_along_dim(i.reshape(i.shape or (1,)), dim) for i in (got, want))
    return torch.equal(got.nan_to_num(7), want.nan_to_num(7))


def slopes(function, *args):
    """Of the arguments that have one, where results count differently."""
    args = tree_map(lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(
        x, torch.Tensor) else x, args)
    made = [x for x in tree_flatten(function(*args))[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    if made:
        torch.autograd.backward(made, [torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape) for x in made])
    return [x.grad for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor) and x.requires_grad]


def results(function, *args):
    return function(*args)


def tried(op, sample, of=results):
    """("right", ""), ("refused", why) or ("wrong", why)."""
    def function(*args):
        return op.op(*args, **sample.kwargs)

    def in_f64(*args):
        return op.op(*args, **tree_map(wide, sample.kwargs))

    args = (sample.input, *sample.args)
    leaves = tree_flatten((args, sample.kwargs))[0]
    try:
        want = of(function, *args)
        exact = of(in_f64, *tree_map(lambda x: wide(x).detach().requires_grad_(
            x.requires_grad) if isinstance(x, torch.Tensor) else x, args))
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return "skipped", "PyTorch itself fails"
    torch._dynamo.reset()
    try:
        got = of(torch.compile(function, backend="symplex", fullgraph=True, dynamic=False,
                               options={"strict": True, "daemon": "never", "threads": 1, "warm": False}), *args)
    except Exception as error:
        cause = error
        while cause is not None and not isinstance(cause, symplex.Error):
            cause = cause.__cause__ or getattr(cause, "inner_exception", None)
        if isinstance(cause, symplex.Unimplemented):
            return "refused", str(cause)
        if type(error).__name__ in ("Unsupported", "UserError"):
            return "refused", "Dynamo: " + str(error).splitlines()[0]
        return "wrong", f"{type(error).__name__}: {error}"
    for g, w, x in zip(tree_flatten(got)[0], tree_flatten(want)[0], tree_flatten(exact)[0]):
        why = difference(g, w, x, leaves)
        if why is not None and op.name in _ORDERS and w.dtype == torch.int64 and same_order(
                op.name, g, w, sample):
            why = None
        if why is not None:
            return "wrong", why
    return "right", ""


def samples_of(op, dtype, of=results):
    """Some of an operator's samples, from all over the list."""
    try:
        samples = [s for s in op.sample_inputs("cpu", dtype, requires_grad=of is slopes)]
    except (RuntimeError, NotImplementedError):
        return []
    step = max(1, -(-len(samples) // SAMPLES_MAX))
    return samples[::step]


def main():
    only = sys.argv[1:]
    known = set(only or KNOWN)
    ops = [op for op in op_db if name_of(op) in known or (op.name in known and not op.variant_test_name)]
    missing = known - {name_of(op) for op in ops}
    assert not missing, f"no such operators: {sorted(missing)}"
    counts, refusals, wrong = collections.Counter(), collections.Counter(), []
    right_names = set()
    start = time.monotonic()
    for op in ops:
        ways = [(dtype, results) for dtype in DTYPES if dtype in op.dtypes]
        for dtype, of in ways + ([(torch.float32, slopes)] if name_of(op) in SLOPES else []):
            for sample in samples_of(op, dtype, of):
                torch.manual_seed(0)
                verdict, why = tried(op, sample, of)
                counts[verdict] += 1
                if verdict == "right":
                    right_names.add(name_of(op))
                if verdict == "wrong":
                    wrong.append(f"{name_of(op)}, {of.__name__}, {dtype}: {why[:600]}\n    {str(sample)[:300]}")
                if verdict == "refused":
                    refusals[why[:160]] += 1
        if only:
            print(name_of(op), dict(counts))
    for why, count in refusals.most_common(200 if only else 30):
        print(f"refused {count}: {why}")
    for text in wrong:
        print("WRONG", text)
    print(f"{len(right_names)} operators, {counts['right']} samples right, {counts['refused']} refused by name, "
          f"{counts['wrong']} wrong, {counts['skipped']} that PyTorch refuses; {time.monotonic() - start:.0f} s")
    assert not wrong, f"{len(wrong)} samples are wrong"
    if not only:
        assert len(right_names) >= 250 and counts["right"] >= 20 * counts["refused"]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
