#!/usr/bin/env python3
"""What an instruction set that is missing does to a test: with AVX-512 hidden (SYMPLEX_ISA_MAX) a test of it
is skipped with its reason, one that does not say which set it wants fails, and the counts of deploy/test.sh
keep skipped, failed and passed apart."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import Daemon  # noqa: E402

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
SKIPPED = 77


def run(*command, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("SX_TARGET", "SYMPLEX_ISA_MAX")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(kept, **environment),
                          check=False)


def client(*arguments, **environment):
    return run(str(BINARY / "symplex-client"), *arguments, SYMPLEX_SOCKET="/nonexistent/d.sock", **environment)


def test_programs_skip():
    for command in ([str(BINARY / "core.test_pipeline")], [sys.executable, str(ROOT / "tests/core/test_spill.py")]):
        for limit, has in (("x86-64-v3", "x86-64-v3"), ("none", "none")):
            done = run(*command, SX_TARGET="x86-64-v4", SYMPLEX_ISA_MAX=limit)
            assert done.returncode == SKIPPED, done
            assert done.stdout.startswith("SKIPPED: instruction set x86-64-v4: this processor has " + has), done.stdout
        done = run(*command, SX_TARGET="x86-64-v3", SYMPLEX_ISA_MAX="x86-64-v3")
        assert done.returncode == 0 and "SKIPPED" not in done.stdout, done


def test_nothing_passes_unseen():
    """Without SX_TARGET a test of both sets fails where one is missing."""
    done = run(str(BINARY / "core.test_pipeline"), SYMPLEX_ISA_MAX="x86-64-v3")
    assert done.returncode == 1 and "this processor does not run x86-64-v4" in done.stdout, done
    assert run(str(BINARY / "core.test_pipeline"), SX_TARGET="avx2").returncode == 1


def test_product_obeys():
    """The client compiles for the processor that it is shown, and refuses what that one lacks."""
    with tempfile.TemporaryDirectory() as folder:
        module = os.path.join(folder, "mlp.sxm")
        done = client("compile", MLP, "-d", "batch=1", "-o", module, SYMPLEX_ISA_MAX="x86-64-v3")
        assert done.returncode == 0, done
        assert "target     x86-64-v3" in client("explain", module).stdout
        done = client("run", module, "--random", "7", "-n", "1", SYMPLEX_ISA_MAX="none")
        assert done.returncode == 4 and "module is for x86-64-v3" in done.stderr, done
    found = json.loads(client("doctor", "--json", SYMPLEX_ISA_MAX="x86-64-v3").stdout)["findings"]
    assert {f["name"]: f["detail"]
            for f in found}["isa"] == "x86-64-v3: AVX2, FMA and F16C; at most SYMPLEX_ISA_MAX=x86-64-v3", found


def test_daemon_obeys():
    """Client, daemon and its worker processes, which run the module, agree on the processor that they are shown."""
    limit = {"SYMPLEX_ISA_MAX": "x86-64-v3"}
    with Daemon(program="symplexd", env=limit) as daemon, tempfile.TemporaryDirectory() as folder:
        module = os.path.join(folder, "mlp.sxm")
        done = run(str(BINARY / "symplex-client"), "compile", MLP, "-d", "batch=1", "--target", "native",
                   "--daemon-only", "-o", module,
                   SYMPLEX_SOCKET=str(daemon.path), **limit)
        assert done.returncode == 0, done
        assert "target     x86-64-v3" in client("explain", module).stdout


CASE = '<testcase name="%s" status="%s">%s<system-out>%s</system-out></testcase>'
MISSING = "SKIPPED: instruction set x86-64-v4: this processor has x86-64-v3"
SKIP = '<skipped message="SKIP_RETURN_CODE=77"/>'
CASES = [
    ("passes", CASE % ("a", "run", "", "SKIPPED: instruction set is only a word here"), "1 0 0"),
    ("fails", CASE % ("a", "fail", '<failure message=""/>', ""), "0 1 0"),
    ("cannot be started", CASE % ("a", "notrun", '<skipped message="Unable to find executable"/>', MISSING), "0 1 0"),
    ("switched off", CASE % ("a", "disabled", "", ""), "0 1 0"),
    ("lacks the set", CASE % ("a", "notrun", SKIP, "noise\n" + MISSING), "0 0 1"),
    ("lacks the toolkit", CASE % ("a", "notrun", SKIP, "SKIPPED: CUDA toolkit: no ptxas"), "0 0 1"),
    ("lacks a package", CASE % ("a", "notrun", SKIP, "SKIPPED: onnx is not installed"), "0 1 0"),
    ("says nothing", CASE % ("a", "notrun", SKIP, ""), "0 1 0"),
]


def test_counts():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "junit.xml"
        for label, case, counts in CASES:
            path.write_text("<testsuite>%s</testsuite>" % case, encoding="utf-8")
            done = run(sys.executable, str(ROOT / "tests/tools/ctest_summary.py"), str(path))
            assert done.stdout.splitlines()[0] == counts, (label, done)
            assert done.returncode == int(counts.split()[1] != "0"), (label, done)
            assert ("a: " + MISSING[9:] in done.stdout) == (label == "lacks the set"), (label, done)


for name, function in list(globals().items()):
    if name.startswith("test_"):
        function()
        print("ok", name)
