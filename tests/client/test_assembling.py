#!/usr/bin/env python3
"""Modules with machine code beside their PTX, by the nvJitLink of the tests (tests/client/assemble/fake), in process
and through the daemon: the same bytes and key, what is told of them, and what becomes of spills and of crashes."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxcubin."))
TOOLKIT = TMP / "toolkit"
(TOOLKIT / "lib64").mkdir(parents=True)
shutil.copy(BINARY.parent / "nvjitlink-fake" / "libnvJitLink.so.13", TOOLKIT / "lib64")
for path in (TOOLKIT, TOOLKIT / "lib64", TOOLKIT / "lib64" / "libnvJitLink.so.13"):
    path.chmod(0o700)
os.environ["CUDA_HOME"] = str(TOOLKIT)
PROGRAM = TMP / "small.sx"
PROGRAM.write_text("""sx 1
graph "small" () {
  %x = parameter {name = "x", weight = 0} : f32[5, 37]
  %w = parameter {name = "w", weight = 0} : f32[37, 11]
  %d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[5, 11]
  %t = tanh(%x) : f32[5, 37]
  return %d as "d", %t as "t"
}
""")
SEAL = 104  # bytes behind the file, of who verified it


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
                          env=dict(surroundings, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def compiled(name, *options, target="h100", **environment):
    module = TMP / (name + ".sxm")
    told = sx("compile", PROGRAM, "--target", target, "-o", module, "--json", *options, **environment)
    return module, json.loads(told.stdout)


def shown(module):
    return json.loads(sx("module", "show", "--json", module).stdout)


def cubins(module):
    return [c for k in shown(module)["kernels"] for c in k["cubins"]]


def test_the_same_here_and_from_the_daemon():
    here, told = compiled("here")
    with Daemon(program="symplexd") as daemon:
        there, again = compiled("there", SYMPLEX_SOCKET=str(daemon.path))
        assert (again["tier"], again["hit"]) == ("none", False), again
        hit = compiled("hit", SYMPLEX_SOCKET=str(daemon.path))[1]
        assert hit["hit"] and hit["key"] == again["key"], (hit, again)
    assert told["key"] == again["key"] == shown(here)["key"], (told, again)
    assert here.read_bytes()[:-SEAL] == there.read_bytes()[:-SEAL]
    rows = cubins(here)
    assert rows and all(r["assembler"] == "nvJitLink 13.0.99" and r["level"] == "sm_90" and r["registers"] == 40 and
                        r["spills"] == 0 and r["bytes"] > 0 for r in rows), rows
    assert "verified" in sx("module", "check", here).stdout


def test_what_is_told():
    module = compiled("told")[0]
    alone, plain = compiled("alone", "--assembler", "none")
    assert plain["key"] != shown(module)["key"] and cubins(alone) == []
    assert "machine code for sm_90 by nvJitLink 13.0.99: 40 to 40 registers, 0 spills" in sx("explain", module).stdout
    assert "PTX alone: registers and spills are not known" in sx("explain", alone).stdout
    assert any(k["cubins"] for k in json.loads(sx("explain", "--json", module).stdout)["kernels"])
    assert " REGISTERS  SPILLS " in sx("module", "show", module).stdout
    assert "--assembler all, any or none wanted" in sx("compile", PROGRAM, "--assembler", "all", status=2).stderr


def test_the_dump():
    module, folder = compiled("dumped")[0], TMP / "dump"
    sx("module", "dump", module, "-o", folder)
    kernels = json.loads((folder / "kernels.json").read_text())["kernels"]
    assert len(kernels) == len(shown(module)["kernels"]) == len(list((folder / "kernels").glob("*.ptx"))), kernels
    for k in kernels:
        assert (folder / k["ptx"]).read_text().startswith(".version") and len(k["cubin"]) == 1, k
        record = json.loads(sx("ptx", "show", "--json", folder / k["cubin"][0]).stdout)
        assert record["target"] == k["target"] == "sm_90" and len(record["kernels"]) == len(k["cubins"]), record
        assert {r["registers"] for r in k["cubins"]} == {r["registers"] for r in record["kernels"]}, (k, record)
        assert 0 < k["floor_ns"] <= k["predicted_ns"] and len(k["numerics"]) == 16, k
        assert all(part["grid"][0] >= 1 and (part["program"] == "block") == (part["threads"] > 0)
                   for part in k["launch"]), k


def test_several_gpus():
    rows = cubins(compiled("both", target="a100,h100")[0])
    assert {r["level"] for r in rows} == {"sm_80", "sm_90"}, rows


def name_of(kind):
    """The name in PTX of the first part of the kernel of that kind."""
    rows = [k["name"] for k in shown(compiled("names", "--assembler", "none")[0])["kernels"] if k["kind"] == kind]
    return rows[0] + "_p0"


def test_a_kernel_that_always_spills():
    done = sx("compile", PROGRAM, "--target", "h100", "-o", TMP / "no.sxm", status=4,
              SX_FAKE_NVJITLINK="spill=" + name_of("map"))
    assert "none of" in done.stderr and "spill" in done.stderr, done


def test_a_crash():
    """In process and in the daemon: an error that names the assembler; the daemon's next compilation is served."""
    crash = "crash=" + name_of("map")
    done = sx("compile", PROGRAM, "--target", "h100", "-o", TMP / "no.sxm", status=6, SX_FAKE_NVJITLINK=crash)
    assert "nvJitLink 13.0.99 died" in done.stderr and "--assembler none" in done.stderr, done
    os.environ["SX_FAKE_NVJITLINK"] = crash
    try:
        with Daemon("--workers", "1", program="symplexd") as daemon:
            for _ in range(3):  # a key that kills workers would be refused by now
                done = sx("compile", PROGRAM, "--target", "h100", "-o", TMP / "no.sxm", "--daemon-only", status=6,
                          SYMPLEX_SOCKET=str(daemon.path))
                assert "nvJitLink 13.0.99 died" in done.stderr, done
            good = TMP / "good.sx"
            good.write_text(PROGRAM.read_text().replace("tanh", "relu").replace("%t", "%r"))
            sx("compile", good, "--target", "x86-64-v3", "-o", TMP / "good.sxm", "--daemon-only",
               SYMPLEX_SOCKET=str(daemon.path))
            sx("compile", PROGRAM, "--target", "h100", "--assembler", "none", "-o", TMP / "plain.sxm", "--daemon-only",
               SYMPLEX_SOCKET=str(daemon.path))
    finally:
        del os.environ["SX_FAKE_NVJITLINK"]


run(globals())
