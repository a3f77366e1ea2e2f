#!/usr/bin/env python3
"""Programs that all ranks of a mesh run, through the client: from a plan to the program of each device, to a module, to
a run of all ranks on pieces of whole arrays, whose results put together are those of numpy; what is wrong is named."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
MLP = """sx 1
graph "mlp" (batch in [1, 4096]) mesh (dp = 2, tp = 3) {
    %x = parameter {name = "x", weight = 0} : f32[batch, 24] {dp = S(0)}
    %w1 = parameter {name = "w1", weight = 1} : f32[24, 36] {tp = S(1)}
    %w2 = parameter {name = "w2", weight = 1} : f32[36, 12] {tp = S(0)}
    %0 = dot_general(%x, %w1) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 36]
    %1 = relu(%0) : f32[batch, 36]
    %2 = dot_general(%1, %w2) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 12]
    return %2 as "y" {dp = S(0)}
}
"""
STEP = """sx 1
graph "step" mesh (dp = 3) {
    %x = parameter {name = "x", weight = 0} : f32[4, 5]
    %y = parameter {name = "y", weight = 0} : f32[4]
    %w = parameter {name = "w", weight = 0} : f32[5] state = 0.5
    %0 = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[4]
    %1 = subtract(%0, %y) : f32[4]
    %2 = dot_general(%1, %x) {lhs_contract = [0], rhs_contract = [0]} : f32[5]
    %3 = all_reduce(%2) {reducer = add, along = "dp", ranks = 3} : f32[5]
    %4 = constant {data = 0.01} : f32[5]
    %5 = multiply(%4, %3) : f32[5]
    %6 = subtract(%w, %5) : f32[5]
    return %3 as "g", %6 as "w'" into "w"
}
"""


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, timeout=120, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done


def test_plan_to_run(folder):
    """Whole arrays, cut as the plan says, on six ranks: pieces of y are those of numpy, on every rank of tp."""
    model, local, module, out = folder / "mlp.sx", folder / "local.sx", folder / "local.sxm", folder / "out"
    model.write_text(MLP)
    sx("sharding", model, "-d", "batch=8", "-o", local)
    sx("compile", local, "-o", module, "--no-daemon", "-t", "x86-64-v3")
    random = numpy.random.default_rng(1)
    x, w1, w2 = (random.standard_normal(s).astype(numpy.float32) for s in ((8, 24), (24, 36), (36, 12)))
    for name, array in (("x", x), ("w1", w1), ("w2", w2)):
        numpy.save(folder / f"{name}.npy", array)
    told = sx("run", module, "-i", f"x={folder}/x.npy,dp:0", "-w", f"w1={folder}/w1.npy,tp:1",
              "-w", f"w2={folder}/w2.npy,tp:0", "-o", out, "--check")
    assert "mesh     6 ranks: dp = 2, tp = 3" in told.stdout and "check    passed: 288 elements" in told.stdout
    want = numpy.maximum(x.astype(float) @ w1, 0) @ w2
    for rank in range(6):
        got = numpy.load(out / f"y@{rank}.npy")
        piece = want[rank // 3 * 4:rank // 3 * 4 + 4]
        assert got.shape == (4, 12) and numpy.abs(got - piece).max() < 1e-5 * numpy.abs(want).max()
        assert (got == numpy.load(out / f"y@{rank // 3 * 3}.npy")).all()  # to the bit, with its neighbours along tp
    checks = json.loads(sx("explain", module, "--json").stdout)["checks"]
    assert [c["name"] for c in checks] == ["program as sent, all outputs of all ranks (6)"], checks
    assert "mesh       dp = 2, tp = 3: 6 ranks run it together" in sx("explain", module).stdout


def test_state(folder):
    """Three ranks, a step of gradient descent each run: all have the same weights; another rank's data matters."""
    path, module = folder / "step.sx", folder / "step.sxm"
    path.write_text(STEP)
    sx("compile", path, "-o", module, "--no-daemon", "-t", "x86-64-v3")
    random = numpy.random.default_rng(2)
    x, y = random.standard_normal((12, 5)).astype(numpy.float32), random.standard_normal(12).astype(numpy.float32)
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", y)
    w = numpy.full(5, 0.5)
    for _ in range(4):
        gradient = x.T.astype(float) @ (x @ w - y)
        w -= 0.01 * gradient
    inputs = ["-i", f"x={folder}/x.npy,dp:0", "-i", f"y={folder}/y.npy,dp:0"]
    run = json.loads(sx("run", module, *inputs, "--steps", 4, "--check", "-o", folder / "s", "--json").stdout)
    assert run["ranks"] == 3 and run["runs"] == 4 and run["check"]["passed"] and run["mesh"] == "dp = 3"
    for rank in range(3):
        got = numpy.load(folder / "s" / f"g@{rank}.npy")
        assert numpy.abs(got - gradient).max() < 1e-4 * numpy.abs(gradient).max()
    numpy.save(folder / "zero.npy", numpy.zeros((4, 5), numpy.float32))
    sx("run", module, *inputs, "-i", f"x@2={folder}/zero.npy", "--steps", 4, "-o", folder / "z", "--check")
    other = numpy.load(folder / "z" / "g@0.npy")
    assert (other != got).any()
    told = sx("run", module, *inputs, "--state-in", "s.npz", status=4).stderr
    assert "--state-in of a module that 3 ranks run" in told


PLACES = """sx 1
graph "places" mesh (dp = 2, tp = 2) {
    %x = parameter {name = "x", weight = 0} : f32[6, 5]
    %w = parameter {name = "w", weight = 1} : f32[5, 4]
    %i = axis_index {along = "tp", ranks = 2} : i64[]
    %f = convert(%i) : f32[]
    %b = broadcast_in_dim(%f) {dims = []} : f32[6, 4]
    %d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[6, 4]
    %a = add(%d, %b) : f32[6, 4]
    %0 = all_reduce(%a) {reducer = add, along = "dp", ranks = 2} : f32[6, 4]
    %t = tanh(%0) : f32[6, 4]
    %1 = reduce_scatter(%t) {axis = 0, reducer = add, along = "tp", ranks = 2} : f32[3, 4]
    return %0 as "sum", %1 as "part"
}
"""


def test_evidence(folder):
    """`verify` runs all ranks against the interpreter; `determinism` looks at each kernel, with what the others would
    send drawn, and runs all ranks several times."""
    path, module = folder / "places.sx", folder / "places.sxm"
    path.write_text(PLACES)
    sx("compile", path, "-o", module, "--no-daemon", "-t", "x86-64-v3")
    told = json.loads(sx("verify", module, "--json", "--random", 5).stdout)
    assert told["record"] == "verified" and told["elements"] == 4 * (24 + 12) and told["left_out"] == 0, told
    assert [c["name"] for c in told["checks"]] == ["program as sent, all outputs of all ranks (4)"]
    told = json.loads(sx("determinism", module, "--json", "--random", 5).stdout)
    assert told["ranks"] == 4 and [run["threads"] for run in told["runs"]][:2] == [1, 1] and told["not_run"] == ""
    assert len(told["runs"]) == 4 and all(run["equal"] for run in told["runs"])
    kernels = [kernel["name"].split("_")[0] for kernel in told["kernels"]]
    assert "dot" in kernels and kernels.count("map") >= 1 and all(kernel["equal"] for kernel in told["kernels"]), told
    assert all(kernel["schedules"] > 0 for kernel in told["kernels"] if kernel["name"].startswith("dot"))
    assert "module     4 ranks, each run with threads: 1, 1, " in sx("determinism", module).stdout


def test_wrong_words(folder):
    module = folder / "step.sxm"
    for value, text in ((f"x={folder}/x.npy", "is f32[12, 5], expected f32[4, 5]"),
                        (f"x={folder}/x.npy,dp:1", "is f32[12, 5], expected f32[4, 15]"),
                        (f"x={folder}/x.npy,dp:2", "dimension 2 of a tensor of rank 2"),
                        (f"x={folder}/x.npy,tp:0", "the mesh has no axis tp"),
                        (f"x={folder}/x.npy,dp:0,dp:1", "cut along dp twice"),
                        (f"x@3={folder}/x.npy", "the mesh has no rank of that number"),
                        (f"q={folder}/x.npy", "the module has none of that name"),
                        ("x", "not of the form NAME=FILE.npy")):
        command = [CLIENT, "run", str(module), "-i", value, "--random", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (2, 4) and text in done.stderr, (value, done.stderr)
    told = sx("run", module, "-i", f"x@0={folder}/zero.npy", status=2).stderr
    assert "input x of rank 1 is not given" in told or "input y of rank 0 is not given" in told
    assert "certificates and searches" in sx("optimize", folder / "step.sx", "--no-daemon", status=4).stderr
    assert "no code generator for all_reduce" in sx("compile", folder / "step.sx", "-o", folder / "h.sxm", "-t", "h100",
                                                    "--no-daemon", status=4).stderr


def test_interval(folder):
    """Pieces follow the symbol: each value has a variant; where there are too many the error names the collective."""
    path, module, out = folder / "sum.sx", folder / "sum.sxm", folder / "sums"
    path.write_text("""sx 1
graph "sum" (batch in [1, 100]) mesh (dp = 2) {
    %x = parameter {name = "x", weight = 0} : f32[batch, 4]
    %y = all_reduce(%x) {reducer = add, along = "dp", ranks = 2} : f32[batch, 4]
    return %y as "y"
}
""")
    sx("compile", path, "-o", module, "--no-daemon", "-t", "x86-64-v3", "--dim", "batch=1..3")
    assert len(json.loads(sx("module", "show", module, "--json").stdout)["variants"]) == 3
    for batch in (1, 3):
        x = numpy.arange(batch * 8, dtype=numpy.float32).reshape(2, batch, 4)
        for rank in range(2):
            numpy.save(folder / f"x{rank}.npy", x[rank])
        sx("run", module, "-d", f"batch={batch}", "-i", f"x@0={folder}/x0.npy", "-i", f"x@1={folder}/x1.npy", "-o", out)
        assert all((numpy.load(out / f"y@{rank}.npy") == x[0] + x[1]).all() for rank in range(2))
    told = sx("compile", path, "-o", module, "--no-daemon", "-t", "x86-64-v3", "--dim", "batch=1..100", status=4).stderr
    assert "more than 64 variants" in told and "(all_reduce): its pieces follow the symbol" in told, told


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_STATE_HOME"] = name
        test_plan_to_run(folder)
        test_state(folder)
        test_evidence(folder)
        test_wrong_words(folder)
        test_interval(folder)
    print("ranks: ok")


if __name__ == "__main__":
    main()
