#!/usr/bin/env python3
"""Functions as scientists write them, by symplex.jit and by NumPy, which traces nothing: element types and shapes are
the same, whole numbers and bools are equal. Reals are sums, products and quotients of at most 128 terms, whose order
may differ, with functions good to 8 units between: each may be off by 128 units in the last place of the largest
finite number of its result. Random numbers print their seed."""
import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import numpy as np  # noqa: E402

import symplex  # noqa: E402
from small import fails  # noqa: E402

SEED = int(os.environ.get("SX_SEED") or int.from_bytes(os.urandom(4), "little"))
RNG = np.random.default_rng(SEED)
X = RNG.standard_normal((20, 4))
F32 = X.astype(np.float32)
I = np.arange(20).reshape(4, 5)
GAPS = np.where(RNG.random((20, 4)) > 0.7, np.nan, X)


def jit(function, **options):
    return symplex.jit(function, threads=1, **options)


def leaves(tree):
    return [x for part in tree for x in leaves(part)] if isinstance(tree, (tuple, list)) else [np.asarray(tree)]


def near(got, want, note=""):
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want), (len(got), len(want))
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.dtype == w.dtype and g.shape == w.shape, (note, i, g.dtype, w.dtype, g.shape, w.shape)
        if w.dtype.kind != "f":
            assert np.array_equal(g, w), (note, i, g, w)
            continue
        whole = np.isfinite(w)
        assert np.array_equal(g[~whole], w[~whole], equal_nan=True) and np.all(np.isfinite(g[whole])), (note, i, g, w)
        allowed = 128 * np.finfo(w.dtype).eps * np.max(np.abs(w), where=whole, initial=0)
        assert np.all(np.abs(g[whole] - w[whole]) <= allowed), (note, i, g, w)


def same(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nothing but NaN
        want = function(*args)
    near(jit(function)(*args), want)


def test_derivatives_and_integrals():
    at = np.arange(20.0)**1.5
    same(lambda x: (np.gradient(x), np.gradient(x, 2.0, axis=0), np.gradient(x, 0.5, 2.0), np.gradient(x, axis=1),
                    np.gradient(x[:, 0], 2.0, edge_order=2), np.gradient(x[:, 0], at),
                    np.gradient(x[:, 0], at, edge_order=2), np.ediff1d(x, to_end=1.0), np.unwrap(x[:, 0] * 4)), X)
    same(lambda x: (np.trapezoid(x), np.trapezoid(x, dx=0.5, axis=0), np.trapezoid(x[:, 0], at)),
         np.abs(X))  # of sums that do not cancel
    same(lambda x, i: (np.gradient(x), np.gradient(i), np.trapezoid(i), np.unwrap(x, axis=0)), F32, I)


def test_convolutions():
    def function(a, b):
        pairs = ((a, b), (b, a), (a, a[:4]), (a[:4], a[:2]), (a[:2], a[:4]), (a[:1], b))
        return [f(x, y, mode) for f in (np.convolve, np.correlate) for x, y in pairs
                for mode in ("full", "same", "valid")]
    same(function, X[:7, 0], X[:12, 1])
    same(lambda a, b: (np.convolve(a, b), np.correlate(b, a, "same")), I[0], I[1, :3])
    same(lambda a, b: (np.convolve(a, b), np.convolve(a, b, "valid")), np.tile(F32[:, 0], 6), np.tile(
        F32[:, 1], 4)[:70])
    f = symplex.jit(lambda x, k: np.convolve(x, k, "same"), shapes={"x": ("n",)}, dims={"n": (5, 64)}, threads=1)
    for n in (5, 20):
        near(f(X[:n, 0], X[:5, 1]), np.convolve(X[:n, 0], X[:5, 1], "same"))


def test_quantiles():
    same(lambda x: (np.percentile(x, 30), np.percentile(x, [10, 50, 90], axis=0), np.quantile(x, 0.25, axis=1),
                    np.quantile(x, [[0.1, 0.5], [0.9, 1]], axis=0, keepdims=True), np.quantile(x, 1.0),
                    np.quantile(x, 0, axis=(0, 1)), *(np.quantile(x, 0.33, axis=0, method=m) for m in (
                        "lower", "higher", "nearest", "midpoint", "linear"))), X)
    same(lambda x, i, g: (np.percentile(x, 30), np.quantile(x, np.float64(0.3)), np.percentile(i, 30),
                          np.quantile(i, [0.25, 0.75], axis=0), np.percentile(g, 20, axis=0)), F32, I, GAPS)
    fails(ValueError, "is not between 0 and 100", jit(lambda x: np.percentile(x, 101)), X)


def test_what_passes_over_nan():
    gone = np.full((3, 4), np.nan)
    same(lambda x, y: [f(v, axis=d) for v in (x, y) for d in (None, 0, 1) for f in (
        np.nansum, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanprod, np.nanmedian)], GAPS, gone)
    same(lambda x: (np.nanpercentile(x, 30), np.nanquantile(x, [0.1, 0.5], axis=0), np.nancumsum(x, 0),
                    np.nancumprod(x[0]), np.nanargmax(x[:, 0]), np.nanargmin(x[:, 0]), np.nanvar(x, ddof=1),
                    np.nanmean(x, 0, keepdims=True), np.fmax(x, 0), np.fmin(x, x[::-1])), GAPS)


def test_counting():
    k = RNG.integers(0, 5, 40)
    same(lambda k, w: (np.bincount(k, minlength=8), np.bincount(k, w, minlength=5)), k, X.reshape(-1)[:40])
    same(lambda x: (np.histogram(x), np.histogram(x, 7, density=True), np.histogram(x, 5, range=(-1, 1)),
                    np.histogram(x, bins=[-1.0, 0, 0.5, 2]), np.histogram(x * 0, 4), np.histogram(x, 5, weights=x),
                    np.histogram(x, np.linspace(-2, 2, 9), density=True)), X)
    same(lambda i, x: (np.histogram(i, 4), np.histogram(i, [0, 5, 10, 19]), np.histogram(x, 8)), I, F32)
    same(lambda x: (np.digitize(x, [-1.0, 0, 1]), np.digitize(x, [1.0, 0, -1]), np.digitize(
        x, [-1.0, 0, 1], right=True), np.digitize(x[:, 0], np.sort(x[:, 1])), np.digitize(
            x[:, 0], -np.sort(-x[:, 1]))), X)
    edges = np.array([0.0, 0.1, 0.2, 0.3, 0.7, 0.9999999999999999, 1.0])
    same(lambda x: (np.histogram(x, 10, range=(0, 1)), np.histogram(x, 3, range=(0, 0.3))), edges)


def test_moments():
    same(lambda x: (np.cov(x, rowvar=False), np.cov(x[:, 0]), np.cov(x[:, 0], x[:, 1]), np.cov(x.T, bias=True),
                    np.corrcoef(x.T), np.corrcoef(x[:, 0], x[:, 1])), X)
    same(lambda x, i: (np.cov(x.T), np.cov(i)), F32, I)


def test_values_between():
    points = np.concatenate([np.linspace(-1, 11, 25), [np.nan, np.inf, -np.inf, 0, 9, 4]])
    same(lambda x, xp, fp: (np.interp(x, xp, fp), np.interp(x, xp, fp, left=-1, right=9), np.interp(
        3.5, xp, fp), np.interp(x[0], xp[:1], fp[:1])), points, np.arange(10.0), X[:10, 0])
    same(lambda x, i: (np.linspace(x[0, 0], x[1, 0], 5), np.linspace(x[0], 1, 4), np.linspace(0, x[0, 0], 5, False),
                       np.linspace(i[0], i[1], 4), np.linspace(x[0], x[1], 3, axis=1), np.linspace(
                           x[0, 0], 2, 1)), F32, I)
    same(lambda x: (np.polyval([1.0, 2, 3], x), np.polyval(x[:3, 0], 2.0), np.vander(x[:3, 0]), np.vander(
        x[:3, 0], 2, increasing=True)), X)


def test_elements():
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 8, 27, 1e300, 1e-300])
    same(lambda x, e: (np.cbrt(x), np.cbrt(e), np.heaviside(x, 0.5), np.heaviside(e, 0.5), np.logaddexp2(x, x + 1),
                       np.modf(x), np.modf(e), np.sinc(x), np.fix(x), np.angle(x), divmod(x, 2.0),
                       np.float_power(x * x, 1.5)), X, edges)
    same(lambda i: (divmod(i, 4), divmod(7, i + 1), np.add.accumulate(i), np.maximum.accumulate(i - 5, axis=1),
                    np.multiply.accumulate(i[:2], axis=0), np.minimum.accumulate(i.astype(np.int32) - 9)), I)
    same(lambda x: (np.maximum.accumulate(x), np.minimum.accumulate(x, axis=1)), GAPS)


def test_arranging():
    same(lambda x: (np.array_split(x, 3), np.array_split(x, [1, 3]), np.hsplit(x, 2), np.vsplit(x, 4), np.hsplit(
        x[:, 0], 5), np.delete(x, 1, 0), np.delete(x, [0, -1], 1), np.insert(x, 2, 0.0, 0), np.insert(
            x, 1, x[:, 0], 1), np.insert(x[0], -1, 5.0), np.append(x, x), np.append(x, x, 0), np.column_stack(
                [x[:, 0], x]), np.dstack([x, x]), np.block([[x, x], [x, x]]), np.block([x[0], x[1]]), *(
                    np.rot90(x, k) for k in range(4)), np.diagflat(x[0])), X)
    same(lambda x: (*(np.pad(x, w, mode=m) for m in ("edge", "wrap", "reflect", "symmetric") for w in (
        1, ((1, 2), (0, 3)), ((0, 0), (7, 9)))), np.pad(x, 1, constant_values=3.0), np.pad(
            x, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4))), np.pad(x, {1: (2, 1)})), X)
    f = symplex.jit(lambda x: [np.pad(x, ((2, 1), (0, 1)), mode=m) for m in ("edge", "wrap", "reflect", "symmetric")],
                    shapes={"x": ("n", 4)}, dims={"n": (3, 20)}, threads=1)
    for n in (3, 20):
        near(f(X[:n]), [np.pad(X[:n], ((2, 1), (0, 1)), mode=m) for m in ("edge", "wrap", "reflect", "symmetric")])
    same(lambda x: (np.select([x < 0, x > 1], [x * 2, x * 3], default=-1), np.select([x < 0, x < 1], [1, 2]),
                    np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2]), np.piecewise(
                        x, [x < 0], [-1, lambda v: v]), np.lexsort((np.round(x[:, 0]), np.round(x[:, 1]))),
                    np.partition(x, 2, 0)[2]), X)


def test_masks_that_are_known():
    odd = np.arange(20) % 2 == 1
    same(lambda x: (x[odd], x[:, [True, False, True, True]], x[np.arange(80).reshape(20, 4) % 5 == 0], x[
        1:4][[True, False, True]], x[..., [True, False, False, True]], x[None, odd], x[odd & ~odd], x[odd, 1:]), X)
    for mask in (odd[:-1], np.ones((20, 3), bool)):
        fails(IndexError, "a mask of", jit(lambda x: x[mask]), X)
    fails(symplex.Unimplemented, "an index of bool", jit(lambda x: x[x > 0]), X)


def test_what_cancels():
    """What rounding left of sums is compiled, too: of elements of 1 it is some units of a sum of as many."""
    for x in (X[:, 0], X[:, 0].astype(np.float32)):
        unit = 64 * len(x) * np.finfo(x.dtype).eps * np.max(abs(x))
        for function in (lambda x: (x - x.mean()).sum(), lambda x: (x - x.mean() - (x - x.mean()).mean()).mean(),
                         lambda x: (np.exp(x) / np.exp(x).sum()).sum() - 1, lambda x: symplex.grad(
                             lambda v: np.var(v))(x).sum(), lambda x: np.cov(x - x.mean()) * 0):
            assert abs(jit(function)(x)) <= unit, function
        slope = 2 * (x - x.mean()) / len(x)
        got = jit(symplex.grad(lambda x: np.var(x)))(x)
        assert np.max(abs(got - slope)) <= unit and got.dtype == x.dtype


def test_gradients_and_batches():
    """Against differences: the functions are of second order at most in x, so central ones are right."""
    def loss(x):
        return (np.gradient(x, 0.5) ** 2).sum() + (np.convolve(x, x[:3], "same")).sum() + np.trapezoid(x * x)
    x = X[:9, 0]
    got = jit(symplex.grad(loss))(x)
    want = np.array([(loss(x + d) - loss(x - d)) / 2 for d in np.eye(9)])
    assert np.max(np.abs(got - want)) <= 1e-12 * np.max(np.abs(want)), (got, want)
    for function in (lambda x: np.interp(x, [-1.0, 0, 1], [0.0, 2, 1]), lambda x: np.histogram(x, 5), lambda x:
                     np.quantile(x, [0.2, 0.7]), lambda x: np.pad(x, 2, mode="reflect"), lambda x: np.bincount(
                         (abs(x) * 2).astype(int) % 4, minlength=4), lambda x: np.convolve(x, x[:2])):
        rows = [leaves(function(row)) for row in X.T]
        near(leaves(jit(symplex.vmap(function))(X.T.copy())), [np.stack(part) for part in zip(*rows)])


def test_what_is_refused():
    for part, function in (("numpy.bincount", lambda x: np.bincount(x.astype(int)[:, 0])),
                           ("with minlength=n", lambda x: np.bincount(x.astype(int)[:, 0])),
                           ("numpy.linalg.lstsq", lambda x: np.linalg.lstsq(x, x[:, 0])),
                           ("numpy.linalg.pinv(a) @ b", lambda x: np.linalg.lstsq(x, x[:, 0])),
                           ("numpy.quantile with method 'weibull'", lambda x: np.quantile(x, 0.5, method="weibull")),
                           ("numpy.histogram with bins 'auto'", lambda x: np.histogram(x, "auto")),
                           ("numpy.interp with a period", lambda x: np.interp(x, [0.0, 1], [0.0, 1], period=1)),
                           ("numpy.pad with mode 'linear_ramp'", lambda x: np.pad(x, 1, mode="linear_ramp")),
                           ("numpy.delete of places", lambda x: np.delete(x, x[0].astype(int), 0)),
                           ("numpy.fft.fft", np.fft.fft)):
        error = fails(symplex.Unimplemented, part, jit(function), X)
        assert f"({__file__}:" in str(error) or function is np.fft.fft, error
    for part, function in (("numpy.convolve of 2 and", lambda x: np.convolve(x, x)),
                           ("an array is empty", lambda x: np.convolve(x[0], x[0, :0])),
                           ("at least 2", lambda x: np.gradient(x[:1], axis=0)),
                           ("bins neither rise nor fall", lambda x: np.digitize(x, [0, 2, 1])),
                           ("0 bins", lambda x: np.histogram(x, 0)),
                           ("2 conditions, 1 choices", lambda x: np.select([x < 0, x > 1], [x])),
                           ("numpy.pad: widths", lambda x: np.pad(x, -1))):
        error = fails(ValueError, part, jit(function), X)
        assert f"({__file__}:" in str(error), error
    fails(symplex.TraceError, "numpy.stack instead of numpy.array", jit(lambda x: np.array([x[0], x[1]])), X)


if __name__ == "__main__":
    print(f"seed: SX_SEED={SEED}")
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
