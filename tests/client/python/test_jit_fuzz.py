#!/usr/bin/env python3
"""Bad input to traced functions, drawn by Hypothesis: arrays of every element type and layout, structures, calls of
NumPy's functions with arguments that fit and that do not, shapes that fit a pattern and that do not. What NumPy
computes must come out; else an exception of the right class, with the name of the argument. The seed is printed;
SX_SEED sets it."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"))
os.environ["SYMPLEX_SOCKET"] = "/nowhere/symplex.sock"
import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import symplex  # noqa: E402

SEED = int(os.environ.get("SX_SEED") or int.from_bytes(os.urandom(4), "little"))
KNOWN = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")
OTHERS = ("u2", "u4", "u8", "c8", "c16", "O", "U3", "S2", "M8[s]", "m8[s]", "f4,i4")


def drawn(examples):
    """Each example compiles; so there are few of them, of another seed in each run."""
    def decorate(test):
        given = hypothesis.settings(max_examples=examples, deadline=None, database=None, print_blob=False,
                                    suppress_health_check=list(hypothesis.HealthCheck))(test)
        return hypothesis.seed(SEED)(given)
    return decorate


@st.composite
def arrays(draw, types=KNOWN, rank=3, low=0):
    """Of any layout: gaps, backwards, transposed, repeated, read-only, in the other byte order; NaN among reals."""
    dtype = np.dtype(draw(st.sampled_from(types)))
    shape = tuple(draw(st.lists(st.integers(low, 4), max_size=rank)))
    size = int(np.prod(shape, dtype=int))
    numbers = np.array(draw(st.lists(st.integers(-4, 4), min_size=size, max_size=size)), np.int64).reshape(shape)
    with np.errstate(all="ignore"):
        x = numbers.astype(dtype) if dtype.names is None else np.zeros(shape, dtype)
    if dtype.kind == "f" and size and draw(st.booleans()):
        x.reshape(-1)[draw(st.integers(0, size - 1))] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
    how = draw(st.integers(0, 6))
    if how == 1 and x.ndim:
        x = np.repeat(x, 2, -1)[..., ::2]
    elif how == 2:
        x = np.asfortranarray(x)
    elif how == 3 and x.ndim:
        x = x[::-1]
    elif how == 4:
        x = np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape))
    elif how == 5:
        x = x.copy()
        x.flags.writeable = False
    elif how == 6 and dtype.kind in "fi":
        x = x.astype(dtype.newbyteorder(">"))
    return x


def alike(got, want):
    want = np.asarray(want)
    assert got.dtype == want.dtype.newbyteorder("=") and got.shape == want.shape, (got.dtype, want.dtype, got.shape)
    assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f"), (got, want)


@drawn(60)
@hypothesis.given(arrays(KNOWN + OTHERS), arrays())
def test_arguments(x, y):
    """Every array that NumPy has, beside a good one."""
    f = symplex.jit(lambda first, second: (first, second[None]), threads=1)
    try:
        made = f(x, second=y)
    except symplex.DTypeError as error:
        assert x.dtype.kind in "OUSMmV" and "argument 'first': elements of" in str(error), error
        return
    except symplex.Unimplemented as error:
        assert x.dtype.str[1:] in OTHERS and "argument 'first': elements of" in str(error), error
        return
    assert x.dtype.str[1:] in KNOWN + ("b1",), x.dtype
    alike(made[0], x)
    alike(made[1], y[None])


THINGS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), arrays(), st.just(object()),
              st.binary(max_size=2), st.just(1j), st.just(np.float32), st.just(len)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner),
                            st.dictionaries(st.text(max_size=2), inner, max_size=2)), max_leaves=6)


@drawn(80)
@hypothesis.given(THINGS, arrays(low=1))
def test_structures(thing, x):
    """What is no array is part of the program, or a TypeError that names the argument."""
    f = symplex.jit(lambda thing, x: x, threads=1)
    try:
        alike(f(thing, x), x)
    except TypeError as error:
        assert "argument 'thing" in str(error), error


AXIS = st.one_of(st.none(), st.integers(-4, 4), st.just((0, 1)), st.just((1, 1)))
SHAPE = st.lists(st.integers(-1, 6), max_size=3).map(tuple)
CALLS = st.one_of(
    *(st.tuples(st.just(name), st.fixed_dictionaries({"axis": AXIS})) for name in (
        "sum", "max", "min", "any", "all", "squeeze", "flip", "count_nonzero")),
    *(st.tuples(st.just(name), st.fixed_dictionaries({"axis": st.integers(-4, 4)})) for name in (
        "argmax", "argmin", "cumsum", "sort", "expand_dims", "diff")),
    st.tuples(st.just("argsort"), st.fixed_dictionaries({"axis": st.integers(-4, 4), "kind": st.just("stable")})),
    st.tuples(st.just("reshape"), st.fixed_dictionaries({"shape": SHAPE})),
    st.tuples(st.just("broadcast_to"), st.fixed_dictionaries({"shape": SHAPE})),
    st.tuples(st.just("transpose"), st.fixed_dictionaries({"axes": st.one_of(st.none(), SHAPE)})),
    st.tuples(st.just("roll"), st.fixed_dictionaries({"shift": st.integers(-5, 5), "axis": st.one_of(
        st.none(), st.integers(-4, 4))})),
    st.tuples(st.just("take"), st.fixed_dictionaries({"indices": st.lists(st.integers(-4, 4), min_size=1, max_size=3),
                                                      "axis": st.one_of(st.none(), st.integers(-4, 4))})),
    st.tuples(st.just("repeat"), st.fixed_dictionaries({"repeats": st.integers(-1, 3), "axis": st.one_of(
        st.none(), st.integers(-4, 4))})),
    st.tuples(st.just("tril"), st.fixed_dictionaries({"k": st.integers(-5, 5)})),
    st.tuples(st.just("clip"), st.fixed_dictionaries({"min": st.integers(-2, 0), "max": st.integers(0, 2)})))


@drawn(150)
@hypothesis.given(arrays(("i8", "i4", "f8"), low=1), st.lists(CALLS, min_size=1, max_size=4))
def test_functions(x, calls):
    """Chains of NumPy's functions; where NumPy refuses one, so does the trace, with the same kind of exception."""
    def function(x):
        for name, keywords in calls:
            if np.ndim(x) == 0 and name in ("argsort", "cumsum", "take"):
                continue  # NumPy makes a dimension, or does not, as it was first written
            x = getattr(np, name)(x, **keywords)
        return x
    try:
        want = function(x)
    except (ValueError, IndexError, TypeError) as error:
        refused = error
    else:
        alike(symplex.jit(function, threads=1)(x), want)
        return
    try:
        symplex.jit(function, threads=1)(x)
    except (ValueError, IndexError, TypeError, symplex.Unimplemented):
        return
    raise AssertionError(f"{calls} of {x.shape}: NumPy says {refused}")


INDEX = st.lists(st.one_of(
    st.none(), st.just(Ellipsis), st.integers(-4, 4), st.lists(st.integers(-3, 3), min_size=1, max_size=3),
    st.builds(slice, st.one_of(st.none(), st.integers(-5, 5)), st.one_of(st.none(), st.integers(-5, 5)),
              st.one_of(st.none(), st.sampled_from([-2, -1, 1, 2])))), max_size=4).map(tuple)


@drawn(120)
@hypothesis.given(arrays(("f4", "i8")), INDEX)
def test_indices(x, index):
    try:
        want = x[index]
    except IndexError:
        want = None
    try:
        got = symplex.jit(lambda x: x[index], threads=1)(x)
    except (IndexError, symplex.TraceError) as error:
        assert want is None, (index, x.shape, error)
    except ValueError as error:  # indices that do not meet: NumPy calls that an IndexError
        assert want is None and "index" in str(error), (index, x.shape, error)
    else:
        assert want is not None, (index, x.shape)
        alike(got, want)


F = symplex.jit(lambda x, y: x.sum(0) + y.sum(), shapes={"x": ("n", 2), "y": ("n", None)}, dims={"n": (2, 6)},
                threads=1)


@drawn(80)
@hypothesis.given(arrays(("f8",)), arrays(("f8",)))
def test_patterns(x, y):
    """A shape fits, or the error says which argument does not."""
    fits = x.ndim == y.ndim == 2 and x.shape[1] == 2 and 2 <= x.shape[0] <= 6 and x.shape[0] == y.shape[0]
    try:
        got = F(x, y)
    except symplex.ShapeError as error:
        assert not fits and ("argument 'x'" in str(error) or "argument 'y'" in str(error)), (x.shape, y.shape, error)
    else:
        assert fits
        alike(got, x.sum(0) + y.sum())


def test_what_is_too_large():
    """Memory that is not there, extents beyond the compiler's: exceptions that say so."""
    huge = np.broadcast_to(np.float32(1), (1 << 20, 1 << 22))
    for function in (lambda x: x + 1, lambda x: x.sum()):
        try:
            symplex.jit(function, threads=1)(huge)
        except symplex.Error as error:
            assert "argument 'x'" in str(error) or "was compiled" in "".join(getattr(error, "__notes__", [])), error
        else:
            raise AssertionError("4 TiB were added")
    try:
        symplex.jit(lambda x: x.reshape((1,) * 9))(np.ones(1))
    except symplex.Unimplemented as error:
        assert "9 dimensions, at most 8" in str(error)
    else:
        raise AssertionError("9 dimensions")
    try:
        symplex.jit(lambda x: x + np.ones(1 << 22))(np.ones(1))
    except symplex.Unimplemented as error:
        assert "a constant of 33554432 bytes, at most 16777216" in str(error)
    else:
        raise AssertionError("a large constant")


if __name__ == "__main__":
    print(f"seed: SX_SEED={SEED}", flush=True)
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title, flush=True)
    sys.exit(0)
