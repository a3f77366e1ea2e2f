#!/usr/bin/env python3
"""Modules for NVIDIA GPUs on a machine without one: compiled and verified, the same bytes each time and through the
daemon, taken apart, run as kernels by `ptx run` with the results of the processor's own module, refused by `run`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxgpu."))
# A map, row sums and a contraction of odd extents.
PROGRAM = TMP / "odd.sx"
PROGRAM.write_text("""sx 1
graph "odd" () {
  %x = parameter {name = "x", weight = 0} : f32[5, 37]
  %w = parameter {name = "w", weight = 0} : f32[37, 11]
  %d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[5, 11]
  %t = tanh(%x) : f32[5, 37]
  return %d as "d", %t as "t"
}
""")


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(surroundings, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def compiled(target, name, **environment):
    module = TMP / (name + ".sxm")
    sx("compile", PROGRAM, "--target", target, "-o", module, **environment)
    return module


def test_the_same_bytes_here_and_from_the_daemon():
    first, second = compiled("h100", "first"), compiled("h100", "second")
    assert first.read_bytes()[:-104] == second.read_bytes()[:-104]
    with Daemon(program="symplexd") as daemon:
        third = compiled("h100", "third", SYMPLEX_SOCKET=str(daemon.path))
    assert first.read_bytes()[:-104] == third.read_bytes()[:-104]
    checks = json.loads(sx("explain", "--json", first).stdout)["checks"]
    assert checks and all(c["passed"] for c in checks), checks
    assert "emulated" in sx("explain", first).stdout
    assert "verified   again just now (emulated)" in sx("verify", first).stdout


def test_bits_that_depend_on_nothing():
    """Every kernel by interpretation: other extents, positions and schedules of the same numerics plan."""
    said = json.loads(sx("determinism", "--json", "--random", "3", compiled("h100", "contract")).stdout)
    assert said["schema"] == "determinism/1" and said["seed"] == 3, said
    assert said["runs"] == [] and "no CUDA driver" in said["not_run"], said
    assert all(k["equal"] and k["emulated"] and k["plan"] for k in said["kernels"]), said
    tried = {k["name"].split("_")[0]: k for k in said["kernels"]}
    assert tried["dot"]["tried"] == "m=1,2,3,31,64,65,4096 n=1,2,3,31,64,65,4096", said
    driver = TMP / "libcuda.so.1"  # of the tests: its device executes PTX in the interpreter
    shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", driver)
    driver.chmod(0o600)
    device = sx("determinism", "--json", TMP / "contract.sxm", SYMPLEX_CUDA_DRIVER=str(driver),
                SX_FAKE_CUDA="capability=90 version=12090").stdout
    runs = json.loads(device)["runs"]
    assert len(runs) == 4 and all(r["equal"] and r["gpu"].startswith("Fake") for r in runs), runs
    assert tried["dot"]["positions"] == 2 and tried["dot"]["schedules"] >= 6 and tried["map"]["schedules"] == 8, said


def test_every_gpu_of_the_table():
    rows = {r["name"]: r["target"] for r in json.loads(sx("targets", "--json").stdout)["devices"]}
    gpus = {name: target for name, target in rows.items() if target.startswith("sm_")}
    assert {"a100", "h100", "h200", "rtx3090", "rtx4090"} <= set(gpus), rows
    for name, target in gpus.items():
        shown = sx("module", "show", compiled(name, "of_" + name)).stdout
        assert "nvidia, from " + target + " on" in shown, shown


def kernels(module, folder):
    sx("module", "dump", module, "-o", folder)
    return sorted((folder / "kernels").glob("*.ptx"))


def test_a_kernel_by_itself():
    """The map of the dump, launched by hand: what the module of this processor gives, and NumPy nearly."""
    files = kernels(compiled("a100", "apart"), TMP / "apart")
    assert files and all(f.read_text().startswith(".version 7.0\n.target sm_80\n") for f in files), files
    the_map = [f for f in files if "map" in f.name]
    assert len(the_map) == 1, files
    name = the_map[0].name.split("_", 1)[1][:-len(".ptx")]
    x = numpy.random.default_rng(7).standard_normal((5, 37)).astype(numpy.float32)
    numpy.save(TMP / "x.npy", x)
    shown = json.loads(sx("module", "show", "--json", TMP / "apart.sxm").stdout)
    grids = [[part["grid"] for part in k["parts"]] for k in shown["kernels"] if k["name"] == name]
    assert len(grids) == 1, shown["kernels"]
    results = []
    for blocks, warps in ((1, 1), (3, 4)):  # any number of warps takes the points of the grid
        out, made = TMP / "out", "out:f32:5x37"
        for part, grid in enumerate(grids[0]):
            sx("ptx", "run", the_map[0], "--kernel", "%s_p%d" % (name, part), "--grid", f"{blocks},1,1", "--block",
               f"32,{warps},1", "--arg", "@" + str(TMP / "x.npy"), "--arg", made, "--arg", "i32:0",
               "--arg", "i32:%d" % (grid[0] * grid[1] * grid[2]), "-o", out)
            made = "inout:@" + str(out / "arg1.npy")
        results.append(numpy.load(out / "arg1.npy"))
        assert numpy.abs(results[-1] - numpy.tanh(x)).max() < 1e-6, results
    assert numpy.array_equal(*results)


def test_copy_engine_by_hand():
    """A product by wgmma, taken from its module, with the tensor maps that the module says: whole numbers, exact."""
    random = numpy.random.default_rng(5)
    a = random.integers(-4, 5, (72, 160)).astype(numpy.float16)
    b = random.integers(-4, 5, (2048, 160)).astype(numpy.float16)
    numpy.save(TMP / "a.npy", a)
    numpy.save(TMP / "b.npy", b)
    module, dump = TMP / "product.sxm", TMP / "product"
    sx("compile", "--gemm", "72x2048x160", "--dtype", "f16", "--layout", "nt", "--target", "h100", "-o", module)
    sx("module", "dump", module, "-o", dump)
    kernel = json.loads((dump / "kernels.json").read_text())["kernels"][0]
    launch = kernel["launch"][0]
    assert [m["argument"] for m in launch["maps"]] == [0, 1, 2], launch  # the result is stored by the engine, too

    def words(maps):
        extents = ["x".join(map(str, reversed(m[what]))) for m in maps for what in ("dims", "box")]
        return ["map:%d:%s:%s:%d" % (m["argument"], extents[2 * i], extents[2 * i + 1], m["swizzle_bytes"])
                for i, m in enumerate(maps)]

    def ran(maps, *more, status=0):
        return sx("ptx", "run", dump / kernel["ptx"], "--grid", ",".join(map(str, reversed(launch["grid"]))), "--block",
                  launch["threads"], "--shared", launch["dynamic_shared_bytes"], "--on", "h100", "--arg", "@a.npy",
                  "--arg", "@b.npy", "--arg", "out:f16:72x2048", *[x for m in maps for x in ("--arg", m)], *more,
                  status=status)

    want = a.astype(numpy.float64) @ b.astype(numpy.float64).T
    for more in ((), ("--lazy", "--seed", 3)):
        ran(words(launch["maps"]), "-o", TMP / "tma", *more)
        assert (numpy.load(TMP / "tma" / "arg2.npy") == want).all()
    for which in range(3):  # the same bytes in other places
        other = words([dict(m, swizzle_bytes=0) if i == which else m for i, m in enumerate(launch["maps"])])
        ran(other, "-o", TMP / "tma")
        assert (numpy.load(TMP / "tma" / "arg2.npy") != want).any(), which
    short = [*launch["maps"][:2], dict(launch["maps"][2], dims=[2048, 71])]  # the last row lies outside of the map
    ran(words(short), "-o", TMP / "tma")
    last = numpy.load(TMP / "tma" / "arg2.npy")
    assert (last[:71] == want[:71]).all() and (last[71] != want[71]).any(), last[71]
    for wrong, said in (("map:7:72x160:64x64", "no buffer before it"), ("map:0:72x160", "not of the form"),
                        ("map:0:72x160:64", "2 extents and 1 of a box"), ("map:0:73x160:64x64", "more than the 23040"),
                        ("map:0:72x160:64x64:1:2", "not of the form"), ("map:0:72x160:0x64", "--arg")):
        assert said in ran([wrong, wrong, wrong], status=2).stderr, wrong
    wide = ["map:0:72x160:64x512", *words(launch["maps"])[1:]]
    assert "no such tensor map is possible" in ran(wide, status=4).stderr


def test_rows_are_moved_by_vectors():
    """Concatenations and gathers of rows that are multiples of 16 bytes, of 512 at least: 16 bytes in each thread, both
    ways. Others take the narrow way, and give the same elements."""
    for kind, first, second, row, wide in (("f32", 1000, 600, 776, True), ("bf16", 1000, 608, 1552, True),
                                           ("f32", 1001, 600, 775, False), ("i8", 2048, 528, 640, True),
                                           ("f32", 40, 20, 64, False), ("i8", 2047, 528, 642, False)):
        program = TMP / "moves.sx"
        program.write_text(f"""sx 1
graph "moves" () {{
  %x = parameter {{name = "x", weight = 0}} : {kind}[33, {first}]
  %y = parameter {{name = "y", weight = 0}} : {kind}[33, {second}]
  %t = parameter {{name = "t", weight = 0}} : {kind}[3, 50, {row}]
  %i = parameter {{name = "i", weight = 0}} : i32[37]
  %c = concatenate(%x, %y) {{axis = 1}} : {kind}[33, {first + second}]
  %g = gather(%t, %i) {{axis = 1}} : {kind}[3, 37, {row}]
  return %c as "c", %g as "g"
}}
""")
        for target in ("a100", "h200"):
            module, folder = TMP / "moves.sxm", TMP / f"moves-{kind}-{first}-{target}"
            sx("compile", program, "--target", target, "-o", module)
            sx("module", "dump", module, "-o", folder)
            texts = [path.read_text() for path in sorted(folder.glob("kernels/*.ptx"))]
            assert len(texts) == 2, texts
            for text in texts:
                assert ("ld.global.v4.b32" in text) == ("st.global.v4.b32" in text) == wide, (kind, first, target, text)
            checks = json.loads(sx("explain", "--json", module).stdout)["checks"]
            assert all(c["passed"] for c in checks), checks
            assert "verified   again just now (emulated)" in sx("verify", module, "--random", "3").stdout


def test_random_bits():
    """Philox in a kernel of its own, and fused with what uses the numbers: each element against the interpreter's."""
    program = TMP / "bits.sx"
    program.write_text("""sx 1
graph "bits" {
  %key = parameter {name = "key", weight = 0} : i64[]
  %first = parameter {name = "first", weight = 0} : i64[]
  %x = parameter {name = "x", weight = 0} : f32[13, 91]
  %at = iota {axis = 1} : i64[13, 91]
  %row = iota {axis = 0} : i64[13, 91]
  %wide = constant {data = 91} : i64[13, 91]
  %before = multiply(%row, %wide) : i64[13, 91]
  %own = add(%before, %at) : i64[13, 91]
  %begin = broadcast_in_dim(%first) : i64[13, 91]
  %counter = add(%own, %begin) : i64[13, 91]
  %keys = broadcast_in_dim(%key) : i64[13, 91]
  %bits = random_bits(%counter, %keys) : i64[13, 91]
  %zero = constant {data = 0} : i64[13, 91]
  %kept = compare(%bits, %zero) {direction = gt} : bool[13, 91]
  %none = constant {data = 0} : f32[13, 91]
  %y = select(%kept, %x, %none) : f32[13, 91]
  return %bits as "bits", %y as "y"
}
""")
    for target in ("a100", "h200"):
        module = TMP / "bits.sxm"
        sx("compile", program, "--target", target, "--assembler", "none", "-o", module)
        checks = json.loads(sx("explain", "--json", module).stdout)["checks"]
        assert checks and all(c["passed"] for c in checks), checks
        again = sx("verify", module, "--random", "5").stdout
        assert "verified   again just now (emulated)" in again and "error 0" in again, again


def test_times_of_a_graph():
    """On the CUDA driver of the tests, which says that whatever is timed takes 2 us."""
    driver = TMP / "driver.so"
    driver.write_bytes((BINARY.parent / "cuda-fake" / "libcuda.so.1").read_bytes())
    driver.chmod(0o600)
    module, fake = compiled("a100", "graph"), {"SYMPLEX_CUDA_DRIVER": str(driver)}
    said = sx("run", module, "--random", "1", "--graph", "3", "--check", **fake).stdout
    assert "graph    best 2 us, median 2 us of 3 launches on the GPU" in said and "passed" in said, said
    graph = json.loads(sx("run", module, "--random", "1", "--graph", "3", "--json", **fake).stdout)["graph"]
    assert graph["launches"] == 3 and abs(graph["median_ns"] - 2000) <= 1, graph
    sx("compile", PROGRAM, "-o", TMP / "here.sxm")
    done = sx("run", TMP / "here.sxm", "--random", "1", "--graph", "3", status=2)
    assert "the module runs on the processor" in done.stderr, done


def test_what_is_refused():
    done = sx("run", compiled("h100", "elsewhere"), "--random", "1", status=4)
    assert "sm_90" in done.stderr, done
    done = sx("compile", PROGRAM, "--target", "x86-64-v3,h100", "-o", TMP / "both.sxm", status=4)
    assert "h100" in done.stderr and "one architecture" in done.stderr, done
    damaged = bytearray((TMP / "elsewhere.sxm").read_bytes())
    at = damaged.index(b"fma.rn.f32")
    damaged[at:at + 3] = b"add"
    (TMP / "damaged.sxm").write_bytes(damaged)
    assert "checksum" in sx("module", "check", TMP / "damaged.sxm", status=4).stderr


run(globals())
