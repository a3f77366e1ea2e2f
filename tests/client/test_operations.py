#!/usr/bin/env python3
"""Single operations without a model file: their programs, their results on this processor against numpy in double
precision, their modules for GPUs by the verification, through the daemon as from a file, and the words that are
refused."""
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxoperations."))
NUMPY = {"f64": numpy.float64, "f32": numpy.float32, "f16": numpy.float16, "i8": numpy.int8, "u8": numpy.uint8,
         "i16": numpy.int16, "i32": numpy.int32, "i64": numpy.int64}
UNIT = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11}  # half a unit in the last place, relative
RANDOM = numpy.random.default_rng(20261123)


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(surroundings, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def make(kind, shape):
    if kind.startswith(("i", "u")):
        info = numpy.iinfo(NUMPY[kind])
        return RANDOM.integers(max(info.min, -100), min(info.max, 100), shape).astype(NUMPY[kind])
    return RANDOM.uniform(-1, 1, shape).astype(NUMPY[kind])


def run_module(words, inputs, weights=(), dims=(), run_dims=()):
    """What the operation gives for these arrays on this processor."""
    module, out = TMP / "m.sxm", TMP / "out"
    sx("compile", *words, *dims, "-o", module)
    arguments = []
    for name, array in inputs.items():
        numpy.save(TMP / (name + ".npy"), array)
        arguments += ["--weight" if name in weights else "--input", "%s=%s" % (name, TMP / (name + ".npy"))]
    sx("run", module, *arguments, *run_dims, "--repeat", "1", "--output", out)
    return numpy.load(out / "out.npy")


def near(got, want, bound, what):
    if got.dtype == numpy.float16:
        bound = bound + 2.0 ** -25  # half the distance of subnormal numbers
    off = numpy.abs(got.astype(numpy.float64) - want)
    assert got.shape == want.shape and (off <= bound).all(), (what, got.shape, want.shape, float((off - bound).max()))


# ---- products ----
def wide(array):
    return array.astype(numpy.int64 if array.dtype.kind in "iu" else numpy.float64)


def gelu(x):
    return 0.5 * x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2)))


STEPS = {"bias": lambda x, i: x + wide(i["bias"]), "relu": lambda x, i: numpy.maximum(x, 0),
         "gelu": lambda x, i: gelu(x),
         "gelu-tanh": lambda x, i: 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
         "silu": lambda x, i: x / (1 + numpy.exp(-x)), "sigmoid": lambda x, i: 1 / (1 + numpy.exp(-x)),
         "tanh": lambda x, i: numpy.tanh(x), "residual": lambda x, i: x + wide(i["residual"]),
         "multiply": lambda x, i: x * wide(i["factor"]), "scale": lambda x, i: x * wide(i["scale"]),
         "scale=0.5": lambda x, i: x * 0.5}


def product(kind, m, n, k, layout="nn", batch=(), epilogue=(), result=None, words=(), **more):
    result = result or kind
    a = make(kind, (*batch, *((k, m) if layout[0] == "t" else (m, k))))
    b = make(kind, (*batch, *((n, k) if layout[1] == "t" else (k, n))))
    inputs = {"a": a, "b": b}
    for name, shape in (("bias", (n,)), ("residual", (*batch, m, n)), ("factor", (*batch, m, n)), ("scale", ())):
        if name in epilogue or name == "factor" and "multiply" in epilogue:
            inputs[name] = make(result, shape)
    left = wide(a.swapaxes(-1, -2) if layout[0] == "t" else a)
    right = wide(b.swapaxes(-1, -2) if layout[1] == "t" else b)
    want = left @ right
    unit = UNIT.get(result, 0.0)
    # K roundings of the sum in f32 or f64, then one of the element type; each step adds one and stretches what was
    # off by at most 1.2, the largest slope of gelu and silu (factors lie in [-1, 1]).
    bound = (k + 1) * (0 if unit == 0 else UNIT["f64" if result == "f64" else "f32"]) * (abs(left) @ abs(right))
    bound = bound + unit * abs(want)
    for step in epilogue:
        want = STEPS[step](want, inputs)
        # The functions themselves are exact to 4 units of f32 (core/loop/math.c), f64 to 4 of its own.
        bound = 1.2 * bound + 4 * unit * (abs(want) + 1)
    options = ["--gemm", "%sx%dx%d%s" % (more.pop("symbol", m), n, k, more.pop("behind", "")), "--dtype",
               more.pop("dtype", kind), "--layout", layout]
    options += ["--batch", "x".join(map(str, batch))] if batch else []
    options += ["--epilogue", ",".join(epilogue)] if epilogue else []
    got = run_module([*options, *words], inputs, **more)
    assert got.dtype == NUMPY[result], got.dtype
    near(got, want, bound, (kind, layout, batch, epilogue))


def test_products_in_every_layout():
    for layout in ("nn", "nt", "tn", "tt"):
        for kind in ("f32", "f64", "f16"):
            product(kind, 19, 23, 31, layout)
        product("f32", 5, 7, 11, layout, batch=(2, 3))
    product("f32", 1, 40, 64)


def test_every_epilogue():
    listed = sx("compile", "--gemm", "4x4x4", "--dtype", "f32", "--epilogue", "nothing", "--print-program",
                status=2).stderr.split("none of")[1].split()
    assert set(listed) - {"scale=NUMBER"} == set(STEPS) - {"scale=0.5"}, listed
    help_line = [line for line in sx("help", "compile").stdout.splitlines() if "--epilogue LIST" in line]
    assert all(" " + name in help_line[0] for name in listed), help_line
    for step in STEPS:
        product("f32", 9, 21, 16, epilogue=(step,))
    product("f32", 33, 24, 40, epilogue=("bias", "gelu", "residual"))
    product("f64", 6, 10, 20, "nt", epilogue=("scale", "bias", "silu", "multiply"), batch=(2,))
    product("f16", 17, 24, 40, epilogue=("bias", "relu", "residual"))


def test_integers_and_three_types():
    for kind, result in (("i8", "i32"), ("u8", "i32"), ("i16", "i32"), ("i32", "i32"), ("i64", "i64")):
        product(kind, 13, 9, 21, epilogue=("bias", "relu"), result=result)
    product("i8", 13, 9, 21, epilogue=("scale", "bias"), dtype="i8,i32,f32", result="f32")
    product("f16", 13, 9, 21, epilogue=("bias",), dtype="f16,f32", result="f32")
    # one rounding: that of the exact sum of elements that are small integers
    a, b = RANDOM.integers(-8, 8, (12, 300)), RANDOM.integers(-8, 8, (300, 20))
    bias = RANDOM.integers(-2000, 2000, 20) + 0.5
    got = run_module(["--gemm", "12x20x300", "--dtype", "f16,f32,f16", "--epilogue", "bias,scale=0.125"],
                     {"a": a.astype(numpy.float16), "b": b.astype(numpy.float16), "bias": bias.astype(numpy.float16)})
    assert numpy.array_equal(got, ((a @ b + bias.astype(numpy.float16)) * 0.125).astype(numpy.float16))


def test_files_of_bfloat16_and_unsigned():
    """bf16 goes in and out as elements of two bytes without a type; unsigned integers go in where they fit."""
    a, b = (RANDOM.integers(-8, 8, shape).astype(numpy.float32) for shape in ((12, 40), (40, 20)))
    bits = {name: (array.view(numpy.uint32) >> 16).astype(numpy.uint16).view("V2")
            for name, array in (("a", a), ("b", b))}
    got = run_module(["--gemm", "12x20x40", "--dtype", "bf16"], bits)
    assert got.dtype == numpy.dtype("V2"), got.dtype
    exact = (a @ b).view(numpy.uint32)  # sums of small integers; rounded once, nearest even
    want = ((exact + 0x7FFF + (exact >> 16 & 1)) >> 16).astype(numpy.uint16)
    assert numpy.array_equal(got.view(numpy.uint16), want)
    u = {"a": RANDOM.integers(0, 2 ** 31, (3, 4)).astype(numpy.uint32), "b": numpy.eye(4, dtype=numpy.uint32)}
    words = ["--gemm", "3x4x4", "--dtype", "i32"]
    assert numpy.array_equal(run_module(words, u), u["a"])
    u["a"][1, 2] = 2 ** 31
    numpy.save(TMP / "u.npy", u["a"])
    done = sx("run", TMP / "m.sxm", "--input", "a=u.npy", "--random", "1", status=4)
    assert "u.npy: element 6 of u32 is larger than any i32" in done.stderr, done


def test_names_for_extents():
    product("f32", 5, 24, 40, "nt", epilogue=("bias",), symbol="rows", behind=",weights", weights=("b", "bias"),
            dims=["--dim", "rows=1,5,64"], run_dims=["--dim", "rows=5"])
    done = sx("compile", "--gemm", "rowsx4x4", "--dtype", "f32", status=4)
    assert "rows" in done.stderr, done
    text = sx("compile", "--attention", "B:64x4xS:4096x32,causal,kv-heads=2", "--dtype", "f32",
              "--print-program").stdout
    assert '"attention" (B in [1, 64], S in [1, 4096])' in text, text


# ---- rows ----
def test_softmax_and_norms():
    for kind in UNIT:
        unit = UNIT[kind]
        x = (make(kind, (7, 96)) * 3).astype(NUMPY[kind])
        scale, bias = make(kind, 96), make(kind, 96)
        v = wide(x)
        power = numpy.exp(v - v.max(-1, keepdims=True))
        soft = power / power.sum(-1, keepdims=True)
        inner = unit if kind == "f64" else UNIT["f32"]  # what it is computed in
        near(run_module(["--softmax", "7x96", "--dtype", kind], {"x": x}), soft, soft * (unit + 110 * inner), kind)
        near(run_module(["--softmax", "7x96,log", "--dtype", kind], {"x": x}), numpy.log(soft),
             abs(numpy.log(soft)) * unit + 120 * inner * 8, kind)
        rms = v / numpy.sqrt((v * v).mean(-1, keepdims=True) + 0.25) * wide(scale)
        near(run_module(["--norm", "rms:7x96,eps=0.25", "--dtype", kind], {"x": x, "scale": scale}), rms,
             abs(rms) * (unit + 110 * inner), kind)
        centred = v - v.mean(-1, keepdims=True)
        layer = centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * wide(scale)
        # the mean is off by 96 roundings of the largest element, at 1 / deviation of 1.7
        bound = abs(layer + wide(bias)) * unit + (abs(layer) + abs(wide(scale)) + 1) * 200 * inner
        near(run_module(["--norm", "layer:7x96,weights", "--dtype", kind], {"x": x, "scale": scale, "bias": bias},
                        weights=("scale", "bias")), layer + wide(bias), bound, kind)
    x = make("f32", (2, 3, 4, 16))
    power = numpy.exp(wide(x))
    near(run_module(["--softmax", "2x3x4x16", "--dtype", "f32"], {"x": x}), power / power.sum(-1, keepdims=True), 1e-5,
         "four dimensions")


# ---- attention ----
def attention(kind, b, h, s, d, behind="", g=None, t=None, e=None, causal=False, mask=False, scale=None):
    g, t, e = g or h, t or s, e or d
    inputs = {"q": make(kind, (b, h, s, d)), "k": make(kind, (b, g, t, d)), "v": make(kind, (b, g, t, e))}
    scores = numpy.zeros((b, h, s, t))
    if mask:
        inputs["mask"] = make(kind, (1, 1, s, t))
        scores = scores + wide(inputs["mask"])
    want = numpy.zeros((b, h, s, e))
    for head in range(h):  # one head after the other, so that nothing of the grouping is shared with the program
        k, v = (wide(inputs[name])[:, head * g // h] for name in "kv")
        part = scores[:, head] + wide(inputs["q"])[:, head] @ k.swapaxes(-1, -2) * (scale or d ** -0.5)
        for row in range(s):
            seen = t if not causal else row + t - s + 1
            power = numpy.exp(part[:, row, :seen] - part[:, row, :seen].max(-1, keepdims=True))
            want[:, head, row] = numpy.einsum("bt,bte->be", power / power.sum(-1, keepdims=True), v[:, :seen])
    got = run_module(["--attention", "%dx%dx%dx%d%s" % (b, h, s, d, behind), "--dtype", kind], inputs)
    inner = UNIT["f64" if kind == "f64" else "f32"]
    # elements of v are at most 1; scores are off by d roundings, sums by t
    near(got, want, UNIT[kind] * abs(want) + (2 * d + 2 * t + 16) * inner, (kind, behind))


def test_attention():
    attention("f32", 2, 4, 20, 32)
    attention("f32", 2, 4, 20, 32, ",causal", causal=True)
    for kind in UNIT:
        attention(kind, 1, 6, 24, 32, ",causal,kv-heads=2", g=2, causal=True)
    attention("f32", 1, 4, 9, 16, ",kv-heads=1,keys=30,values=24,scale=0.3", g=1, t=30, e=24, scale=0.3)
    attention("f32", 1, 2, 9, 16, ",causal,keys=30,mask", t=30, causal=True, mask=True)


# ---- other types and targets, by what the verification says ----
def checked(*words):
    module = TMP / "checked.sxm"
    sx("compile", *words, "-o", module)
    checks = json.loads(sx("explain", "--json", module).stdout)["checks"]
    assert checks and all(check["passed"] for check in checks), (words, checks)
    whole = [check for check in checks if check["name"].startswith("program as sent, all outputs")]
    assert len(whole) == 1 and whole[0]["elements"] > 0, (words, checks)
    assert not whole[0]["imprecise"], (words, whole)
    narrow = {"bf16": 2.0 ** -8, "f16": 2.0 ** -10, "f8e4m3": 2.0 ** -3, "f8e5m2": 2.0 ** -2}
    assert whole[0]["error"] <= narrow.get(words[words.index("--dtype") + 1], 1e-4), (words, whole)


def test_narrow_types_here():
    for kind in ("bf16", "f8e4m3", "f8e5m2"):
        checked("--gemm", "9x24x40", "--dtype", kind, "--epilogue", "bias,relu")
        checked("--attention", "1x4x12x32,causal,kv-heads=2", "--dtype", kind)
        checked("--softmax", "5x40", "--dtype", kind)
        checked("--norm", "layer:5x40", "--dtype", kind)
        checked("--norm", "rms:5x40", "--dtype", kind)


def test_gpu_targets():
    for kind in ("f32", "bf16", "f16", "f64", "f8e4m3", "f8e5m2"):
        checked("--norm", "layer:3x40", "--dtype", kind, "--target", "h100")
        checked("--norm", "rms:3x40", "--dtype", kind, "--target", "a100")
        checked("--softmax", "3x40", "--dtype", kind, "--target", "h200")
        checked("--gemm", "9x16x24", "--dtype", kind, "--epilogue", "bias,gelu,residual", "--target", "h100")
    for kind in ("f32", "bf16", "f16"):
        checked("--attention", "1x4x8x32,causal,kv-heads=2", "--dtype", kind, "--target", "h100")
    checked("--gemm", "9x16x24", "--dtype", "i8", "--epilogue", "bias,relu", "--target", "rtx4090")
    for layout in ("nt", "tn", "tt"):
        checked("--gemm", "9x16x24", "--dtype", "bf16", "--layout", layout, "--batch", "2", "--target", "rtx3090")


def test_explain_says_what_variants_differ_in():
    """The first words in which the schedules of both variants' kernels differ."""
    module = TMP / "apart.sxm"
    operation = ["--gemm", "Mx64x64,weights", "--dtype", "f32", "--target", "h100", "--assembler", "none",
                 "--no-daemon", "-o", module]
    sx("compile", *operation, "--dim", "M=8,640")
    plans = [kernel["plan"] for kernel in json.loads(sx("explain", "--json", module).stdout)["kernels"]]
    words = [[w for w in re.split("[ ,()]+", plan) if w] for plan in plans]
    assert len(words) == 2, plans
    old, new = next((a, b) for a, b in zip(*words) if a != b)
    said = sx("explain", module).stdout
    assert f"is of another kernel than in M=8: dot_2 has {new} in its schedule, not {old}\n" in said, said
    sx("compile", *operation, "--dim", "M=8")
    assert "of another kernel" not in sx("explain", module).stdout


def test_matrix_instructions_of_every_layout():
    rows = [("bf16", "nn"), ("f16", "tt"), ("bf16,f32,f32", "tn"), ("f16,f32,f32", "nt"), ("bf16,f32,bf16", "tt"),
            ("bf16,f32,f32", "nn"), ("i8", "nt"), ("i8", "tn"), ("u8", "nn"), ("u8", "tt")]
    for number, (kind, layout) in enumerate(rows):
        batch = ["--batch", "2"] if number % 2 else []
        sx("compile", "--gemm", "40x48x72", "--dtype", kind, "--layout", layout, *batch, "--target", "h100",
           "--assembler", "none", "-o", TMP / "matrix.sxm")
        kernels = json.loads(sx("explain", "--json", TMP / "matrix.sxm").stdout)["kernels"]
        # conversions of factors are no kernels of their own
        assert len(kernels) == 1 and " matrix(" in kernels[0]["plan"], (kind, layout, kernels)


def test_few_rows_from_the_other_side():
    """Columns on the long side of an instruction where that is predicted to be faster, with the plan of other rows."""
    numerics = set()
    for rows, other in ((1, True), (8, True), (80, False)):
        sx("compile", "--gemm", f"{rows}x4096x1024", "--dtype", "bf16", "--layout", "nt", "--target", "a100",
           "--assembler", "none", "-o", TMP / "few.sxm")
        said = json.loads(sx("explain", "--json", TMP / "few.sxm").stdout)
        kernel = said["kernels"][0]
        assert ("grid(b, n/" in kernel["plan"]) == other, (rows, kernel)
        assert said["checks"] and all(c["passed"] for c in said["checks"]), said
        assert "program proven" in sx("explain", "--all", TMP / "few.sxm").stdout, rows
        numerics.add(kernel["numerics"])
    assert len(numerics) == 1, numerics


def test_tf32_by_name_alone():
    """Factors of f32 are rounded where the target says so, and nowhere else: other bits, another key, the same rows."""
    module, keys = TMP / "tf32.sxm", set()
    for target in ("h100", "h100+tf32", "a100", "a100+tf32", "rtx4090+tf32", "b200+tf32"):
        allowed = target.endswith("+tf32")
        for words in (["40x48x72", "--layout", "nn"], ["9x16x24", "--layout", "tt", "--epilogue", "bias,gelu,residual"],
                      ["1x64x96", "--layout", "nt"]):
            sx("compile", "--gemm", *words, "--dtype", "f32", "--target", target, "--assembler", "none", "-o", module)
            said = json.loads(sx("explain", "--json", module).stdout)
            assert [("k/8)" in k["plan"]) for k in said["kernels"]] == [allowed], (target, words, said["kernels"])
            checks = {c["name"]: c for c in said["checks"]}
            assert all(c["passed"] for c in checks.values()), (target, words, checks)
            keys.add(said["key"])
        assert said["target"] == target, said
    assert len(keys) == 18, keys
    said = json.loads(sx("determinism", "--json", module).stdout)["kernels"]
    assert all(k["equal"] for k in said) and "rounded to tf32" in said[0]["plan"], said
    sx("compile", ROOT / "tests" / "models" / "mlp.onnx", "--dim", "batch=4", "--target", "h100+tf32", "-o", module)
    assert "k/8)" in sx("explain", "--all", module).stdout
    sx("compile", "--gemm", "9x16x24", "--dtype", "f32", "--target", "a100+tf32,h100+tf32", "-o", module)
    said = json.loads(sx("determinism", "--json", module).stdout)["kernels"]
    assert said and all(k["equal"] and "rounded to tf32" in k["plan"] for k in said), said
    done = sx("compile", "--gemm", "9x16x24", "--dtype", "f32", "--target", "x86-64-v3+tf32", "-o", module, status=4)
    assert "x86-64-v3 has no tensor cores, it multiplies f32 in f32 alone" in done.stderr, done


def test_attention_in_blocks():
    """One launch by matrix instructions where all types are narrow, and only there; its bits are those of its plan."""
    for kind, target, blocks in (("bf16", "h100", True), ("f16", "a100", True), ("f32", "h100", False)):
        module = TMP / "blocks.sxm"
        sx("compile", "--attention", "1x2x40x32,kv-heads=1,causal", "--dtype", kind, "--target", target, "-o", module)
        plans = [kernel["plan"] for kernel in json.loads(sx("explain", "--json", module).stdout)["kernels"]]
        found = ["d/16" in plan and "shared" in plan for plan in plans]
        assert any(found) == blocks, (kind, target, plans)
        # the causal mask is no tensor then, so that hidden keys are left out
        assert not blocks or len(plans) == 1, (kind, target, plans)
        sx("verify", module, "--random", "5")


def layers_text(layers, rows, heads, size):
    """Layers of attention in bf16 that read one causal mask."""
    lines, wide, scores = [], heads * size, "f32[1, 1, %d, %d]" % (rows, rows)

    def put(text):
        lines.append("    %%%d = %s" % (len(lines), text))
        return "%%%d" % (len(lines) - 1)

    def product(x, name):
        weight = put('parameter {name = "%s", weight = 1} : bf16[%d, %d]' % (name, wide, wide))
        return put("dot_general(%s, %s) {lhs_contract = [1], rhs_contract = [0]} : bf16[%d, %d]" %
                   (x, weight, rows, wide))

    places = [put("iota {axis = %d} : %s" % (axis, scores.replace("f32", "i32"))) for axis in (2, 3)]
    sees = put("compare(%s, %s) {direction = ge} : %s" % (*places, scores.replace("f32", "bool")))
    numbers = [put("constant {data = %s} : %s" % (number, scores)) for number in ("0", "-inf")]
    mask = put("select(%s, %s, %s) : %s" % (sees, *numbers, scores))
    mask = put("broadcast_in_dim(%s) {dims = [0, 1, 2, 3]} : f32[1, %d, %d, %d]" % (mask, heads, rows, rows))
    x = put('parameter {name = "x", weight = 0} : bf16[%d, %d]' % (rows, wide))
    for layer in range(layers):
        parts = []
        for part in "qkv":
            y = put("reshape(%s) : bf16[1, %d, %d, %d]" % (product(x, part + str(layer)), rows, heads, size))
            y = put("transpose(%s) {perm = [0, 2, 1, 3]} : bf16[1, %d, %d, %d]" % (y, heads, rows, size))
            parts.append(put("convert(%s) : f32[1, %d, %d, %d]" % (y, heads, rows, size)))
        y = put("attention(%s, %s, %s, %s) {scale = 0.125} : f32[1, %d, %d, %d]" % (*parts, mask, heads, rows, size))
        y = put("convert(%s) : bf16[1, %d, %d, %d]" % (y, heads, rows, size))
        y = put("transpose(%s) {perm = [0, 2, 1, 3]} : bf16[1, %d, %d, %d]" % (y, rows, heads, size))
        y = put("reshape(%s) : bf16[%d, %d]" % (y, rows, wide))
        x = put("add(%s, %s) : bf16[%d, %d]" % (x, product(y, "o" + str(layer)), rows, wide))
    return 'sx 1\ngraph "layers" {\n%s\n    return %s as "out"\n}\n' % ("\n".join(lines), x)


def test_mask_of_all_layers():
    """One causal mask that all layers read is made in place in each of them: none of it lies in memory. With few tokens
    two contractions look cheaper at first, the second one with its result turned."""
    for rows in (256, 2048):
        (TMP / "layers.sx").write_text(layers_text(4, rows, 4, 64))
        sx("optimize", TMP / "layers.sx", "--target", "h100", "--no-daemon", "-o", TMP / "better.sx")
        kernels = [line for line in (TMP / "better.sx").read_text().splitlines() if "= fused(" in line]
        online = [line for line in kernels if "online" in line]
        square = "%d, %d]" % (rows, rows)
        assert len(kernels) == 12 and len(online) == 4, (rows, kernels)
        assert all("index" in line and "compare" in line and square not in line for line in online), online


def test_attention_of_shared_heads():
    """Groups of heads that share keys are one kernel too, however few the queries are, under one numerics plan."""
    plans = set()
    for shape in ("1x8x256x64,kv-heads=2", "1x8x1x64,kv-heads=2,keys=256", "1x8x40x64,kv-heads=4,keys=256"):
        module = TMP / "shared.sxm"
        sx("compile", "--attention", shape, "--dtype", "bf16", "--target", "h100", "--assembler", "none", "-o", module)
        kernels = json.loads(sx("explain", "--json", module).stdout)["kernels"]
        assert len(kernels) == 1 and "d/16" in kernels[0]["plan"], (shape, kernels)
        plans.add(kernels[0]["numerics"])
    assert len(plans) == 1, plans


# ---- the way ----
def test_products_by_the_copy_engine():
    """wgmma on the H100, mma on the A100, whatever the rows: verified, and nothing spills where a toolkit is."""
    def kernels(m, target, *words):
        folder = TMP / ("engine-%d-%s" % (m, target))
        sx("compile", "--gemm", "%dx256x128" % m, "--dtype", "bf16", "--epilogue", "bias,relu", "--target", target,
           *words, "-o", TMP / "engine.sxm")
        sx("module", "dump", TMP / "engine.sxm", "-o", folder)
        return json.loads((folder / "kernels.json").read_text())["kernels"], folder
    plans = set()
    for m in (1, 200, 256):
        rows, folder = kernels(m, "h100")
        (launch,), schedule = rows[0]["launch"], rows[0]["schedule"]
        assert len(rows) == 1 and "matrix(m/64" in schedule and launch["threads"] % 128 == 32, rows
        maps = launch["maps"]
        stored = [[256, m]] if "result: shared" in schedule else []
        assert [x["dims"] for x in maps] == [[128, m], [256, 128], *stored], maps
        assert all(x["element"] == "bf16" for x in maps), maps
        assert ".target sm_90a" in (folder / rows[0]["ptx"]).read_text()
        assert all(c["spills"] == 0 and c["local_bytes"] == 0 for c in rows[0]["cubins"]), rows
        plans.add(rows[0]["numerics"])
    rows, _ = kernels(200, "a100")
    assert "matrix(m/16" in rows[0]["schedule"] and rows[0]["launch"][0]["maps"] == [], rows
    assert len(plans) == 1 and rows[0]["numerics"] not in plans, (plans, rows)
    checks = json.loads(sx("explain", "--json", TMP / "engine.sxm").stdout)["checks"]
    assert checks and all(c["passed"] for c in checks), checks


def test_blocks_that_walk():
    """289 tiles by the 132 blocks that a device holds at once: the module is verified, and says how it is launched."""
    module = TMP / "walk.sxm"
    sx("compile", "--gemm", "2112x4160x128", "--dtype", "bf16", "--target", "h100", "--assembler", "none",
       "--verify-flops", "1", "-o", module)
    text = sx("explain", "--all", module).stdout
    assert " blocks(132)" in text and "132 blocks walk over 289 tiles" in text, text
    assert "blocks, which the others are like" in text, text
    kernel = json.loads(sx("module", "show", module, "--json").stdout)["kernels"][0]
    assert [part["walkers"] for part in kernel["parts"]] == [132], kernel


def test_blocks_in_clusters():
    """Blocks that share a factor fetch it once: the module is verified, and says so; other devices have no clusters."""
    module = TMP / "cluster.sxm"
    for target, clusters in (("h100", True), ("a100", False)):
        sx("compile", "--gemm", "512x1024x1024", "--dtype", "bf16", "--target", target, "--assembler", "none",
           "--verify-flops", "1", "-o", module)
        text = sx("explain", "--all", module).stdout
        assert (" cluster(" in text) == ("clusters of 2 blocks side by side" in text) == clusters, text
        checks = json.loads(sx("explain", "--json", module).stdout)["checks"]
        assert checks and all(c["passed"] for c in checks), checks


def test_clusters_that_walk():
    """306 pairs of tiles by 66 clusters: the module is verified, also while they walk, and says how it is
    launched."""
    module = TMP / "walks.sxm"
    sx("compile", "--gemm", "2304x4352x256", "--dtype", "bf16", "--target", "h100", "--assembler", "none",
       "--verify-flops", "1", "-o", module)
    text = sx("explain", "--all", module).stdout
    assert " cluster(" in text and " blocks(132)" in text, text
    assert "132 blocks walk over 612 tiles" in text and "clusters of 2 blocks side by side" in text, text
    assert "of its 612 blocks, which the others are like" in text, text
    sx("module", "dump", module, "-o", TMP / "walks")
    (launch,) = json.loads((TMP / "walks" / "kernels.json").read_text())["kernels"][0]["launch"]
    assert launch["walkers"] == 132 and launch["grid"] == [1, 18, 34], launch


def test_matrix_instructions_under_every_epilogue():
    """Beside a division or a root wgmma is slow, as its assembler says: such products are by mma, and none by lanes."""
    for epilogue, rows in (("bias,relu", 64), ("residual,scale", 64), ("gelu", 16), ("silu,multiply", 16),
                           ("tanh", 16)):
        folder = TMP / ("under-" + epilogue)
        sx("compile", "--gemm", "64x512x256", "--dtype", "bf16", "--epilogue", epilogue, "--target", "h100",
           "-o", TMP / "under.sxm")
        sx("module", "dump", TMP / "under.sxm", "-o", folder)
        (kernel,) = json.loads((folder / "kernels.json").read_text())["kernels"]
        assert "matrix(m/%d," % rows in kernel["schedule"], (epilogue, kernel)


def test_the_same_as_a_file():
    """The daemon knows the operation and its text by one key; optimize and egraph take it too."""
    words = ["--gemm", "8x16x24", "--dtype", "f32", "--epilogue", "bias,relu"]
    text = sx("compile", *words, "--print-program").stdout
    (TMP / "same.sx").write_text(text)
    assert json.loads(sx("compile", *words, "--print-program", "--json").stdout)["program"] == text
    with Daemon(program="symplexd") as daemon:
        first = json.loads(sx("compile", *words, "--json", SYMPLEX_SOCKET=str(daemon.path)).stdout)
        again = json.loads(sx("compile", TMP / "same.sx", "--json", SYMPLEX_SOCKET=str(daemon.path)).stdout)
    assert first["output"] == "gemm.sxm" and (TMP / "gemm.sxm").exists(), first
    assert not first["hit"] and again["hit"] and first["key"] == again["key"], (first, again)
    assert "maximum" in sx("optimize", *words).stdout
    assert sx("egraph", *words, "-o", "e.dot").stdout == "" and "digraph" in (TMP / "e.dot").read_text()


def test_the_examples_of_the_help():
    lines = json.loads(sx("help", "compile", "--json").stdout)["examples"]
    lines = [line for line in lines if line.startswith("--")]
    assert len(lines) >= 6, lines
    for line in lines:
        assert line in sx("help", "compile").stdout
        assert sx("compile", *shlex.split(line), "--print-program").stdout.startswith("sx 1\ngraph "), line


REFUSED = [
    ("--gemm 4x4 --dtype f32", 2, "2 extents; MxNxK wanted"),
    ("--gemm 4x0x4 --dtype f32", 2, "'0' is no extent"),
    ("--gemm 4x-1x4 --dtype f32", 2, "'-1' is no extent"),
    ("--gemm S:8xSx4 --dtype f32 --epilogue relu,S", 2, "'S' is none of"),
    ("--gemm S:8xS:9x4 --dtype f32", 2, "S is at most 8 in one place, 9 in another"),
    ("--gemm S:x4x4 --dtype f32", 2, "'S:' is no extent"),
    ("--attention Bx4xSx32,causal --dtype f32", 4, "NAME:4096 says that it is less"),
    ("--gemm 4x4x4x --dtype f32", 2, "4 extents"),
    ("--gemm 99999999999999999999x4x4 --dtype f32", 2, "is no extent: a number from 1 to 1099511627776"),
    ("--gemm 99999999x99999999x4 --dtype f32", 4, "--gemm 99999999x99999999x4: "),
    ("--gemm 4x1099511627776x1099511627776 --dtype f32", 4, "b: "),
    ("--gemm 4x4x4,fast --dtype f32", 2, "'fast' behind the extents; it may be: weights"),
    ("--gemm 4x4x4", 2, "--gemm needs --dtype"),
    ("--gemm 4x4x4 --dtype q8", 2, "--gemm takes f64 f32 bf16"),
    ("--gemm 4x4x4 --dtype bool", 2, "--dtype bool: --gemm takes"),
    ("--gemm 4x4x4 --dtype f32,f32,f32,f32", 2, "more than INPUT,COMPUTE,RESULT"),
    ("--gemm 4x4x4 --dtype f32 --epilogue bias,swish", 2, "'swish' is none of bias relu gelu"),
    ("--gemm 4x4x4 --dtype f32 --epilogue bias,bias", 2, "bias stands twice"),
    ("--gemm 4x4x4 --dtype f32 --epilogue scale=x", 2, "scale=x is no finite number"),
    ("--gemm 4x4x4 --dtype i8 --epilogue gelu", 2, "gelu needs floating-point numbers, the sums are i32"),
    ("--gemm 4x4x4 --dtype i32 --epilogue scale=0.5", 4, "0.5 is no value of i32"),
    ("--gemm 4x4x4 --dtype f32 --layout nx", 2, "nn, nt, tn or tt wanted"),
    ("--gemm 4x4x4 --dtype f32 --batch 1x1x1x1x1x1x1", 2, "7 extents"),
    ("--softmax 4x4 --dtype i32", 2, "--softmax takes f64 f32 bf16 f16 f8e4m3 f8e5m2"),
    ("--softmax 4x4 --dtype f32 --epilogue relu", 2, "--softmax has no --epilogue"),
    ("--softmax 4x4 --norm rms:4x4 --dtype f32", 2, "--softmax and --norm exclude each other"),
    ("--norm batch:4x4 --dtype f32", 2, "layer:RxC or rms:RxC wanted"),
    ("--norm rms:4x4,eps=-1 --dtype f32", 2, "eps=-1 is no number above 0"),
    ("--attention 1x2x3 --dtype f32", 2, "3 extents; BxHxSxD wanted"),
    ("--attention 1x8x4x4,kv-heads=3 --dtype f32", 2, "kv-heads divides the number of heads H"),
    ("--attention 1x8x4x4,causal,keys=3 --dtype f32", 2, "causal needs as many keys"),
    ("--attention 1x8x4xD --dtype f32", 2, "scale=NUMBER is needed where D is a name"),
    ("--dtype f32", 2, "--dtype describes an operation"),
    ("m.onnx --gemm 4x4x4 --dtype f32", 2, "--gemm and the file m.onnx exclude each other"),
    ("", 2, "needs FILE"),
]


def test_what_is_refused():
    for line, status, why in REFUSED:
        done = sx("compile", *line.split(), "--print-program", status=status)
        assert why in done.stderr and done.stdout == "", (line, done)
        done = sx("compile", *line.split(), status=status)
        assert why in done.stderr, (line, done)


run(globals())
