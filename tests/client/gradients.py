"""Gradients of tests/golden/grad, in f64 as native code, against those that another system makes of the same functions,
which it has as Python of its own."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np

CLIENT = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client"
GOLDEN = pathlib.Path(os.environ["SX_SOURCE_DIR"]) / "tests" / "golden" / "grad"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxgradients."))
EXTENTS = {"batch": 3, "seq": 5}
RNG = np.random.default_rng(5)
# The output of a program, and how many numbers a parameter of integers has.
PROGRAMS = {"causal_attention": ("y", 0), "conv_block": ("y", 0), "cross_entropy": ("loss", 4), "embedding": ("y", 9),
            "encoder": ("y", 0), "lstm": ("y", 0)}


def sx(*arguments):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=240, check=False,
                          cwd=TMP)
    assert done.returncode == 0, (arguments, done)


def drawn(text, integers):
    """A tensor for each parameter of floats, and one for each of integers. Those of bodies stand further right."""
    reals, counts = {}, {}
    pattern = r'^    %\w+ = parameter \{name = "([^"]+)", weight = \d\} : (\w+)\[([^\]]*)\]'
    for name, kind, shape in re.findall(pattern, text, re.MULTILINE):
        shape = [EXTENTS.get(extent) or int(extent) for extent in shape.split(", ")]
        if kind == "i64":
            counts[name] = RNG.integers(0, integers, shape)
        else:
            reals[name] = RNG.standard_normal(shape)
    return reals, counts


def check_program(name, function, gradients):
    """Both round in f64, in orders of their own. What rounding does is seen in f32, where it is 2^29 times as much: 64
    times the largest error there, over 2^29, may be between the two."""
    output, integers = PROGRAMS[name]
    text = (GOLDEN / f"{name}.sx").read_text(encoding="ascii").replace("f32[", "f64[")
    (TMP / "program.sx").write_text(text, encoding="ascii")
    reals, counts = drawn(text, integers)
    shape = gradients(function, reals, counts, None, np.float64)[0].shape
    cotangent = RNG.standard_normal(shape) if shape else np.float64(1)
    wrt = [word for parameter in reals for word in ("--wrt", parameter)]
    sx("grad", "program.sx", "--of", output, *wrt, "-o", "gradient.sx")
    extents = [f"--dim={symbol}={value}" for symbol, value in EXTENTS.items() if f"{symbol} in [" in text]
    sx("compile", "gradient.sx", "--no-daemon", *extents, "-o", "gradient.sxm")
    given = []
    for parameter, value in (reals | counts | ({f"cotangent({output})": cotangent} if shape else {})).items():
        np.save(TMP / f"{len(given)}.npy", value)
        weight = f'name = "{parameter}", weight = 1' in text
        given += ["--weight" if weight else "-i", f"{parameter}={len(given)}.npy"]
    sx("run", "gradient.sxm", *given, "-o", "out")
    exact = gradients(function, reals, counts, cotangent, np.float64)
    coarse = gradients(function, reals, counts, cotangent, np.float32)
    assert sorted(exact[1]) == sorted(reals)
    for result, value, rough in [(output, exact[0], coarse[0]),
                                 *((f"grad({p})", exact[1][p], coarse[1][p]) for p in reals)]:
        own = np.load(TMP / "out" / f"{result}.npy")
        allowed = 64 * 2.0**-29 * np.abs(value - rough).max()
        error = np.abs(own - value).max()
        assert own.dtype == value.dtype == np.float64 and own.shape == value.shape
        assert 0 < np.abs(value).max() and allowed < 1e-9 * max(1, np.abs(value).max()), (name, result, allowed)
        assert error <= allowed, (name, result, error, allowed)


def check(functions, gradients):
    """Of all programs. `functions`: for each a function of a dict of parameters, by the program's name.
    `gradients(function, reals, counts, cotangent, dtype)`: its value, and the gradient of each of `reals` for this
    cotangent of it (None: of ones)."""
    try:
        assert {path.stem for path in GOLDEN.glob("*.sx")} == set(PROGRAMS) == {f.__name__ for f in functions}
        for function in functions:
            check_program(function.__name__, function, gradients)
    finally:
        shutil.rmtree(TMP)
    print("ok")
