#!/usr/bin/env python3
"""What a user may get wrong, or a machine may do to him, on the way to a GPU: each is told by name and limit, with an
exit code, before anything is launched where it can be known, and nothing is left behind. The driver is that of the
tests (tests/client/cuda/fake). Descriptions of devices: test_devices.py; faults of kernels: test_ptx_run.py."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxbad."))
DRIVER = TMP / "libcuda.so.1"
GEMM = ["--dtype", "bf16", "--target", "h100", "--no-daemon", "--assembler", "none"]


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_CUDA_DRIVER=str(DRIVER))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(surroundings, **environment), cwd=TMP)
    assert done.returncode == status, (arguments, environment, done)
    return done


def refused(says, status, *arguments, **environment):
    before = sorted(TMP.rglob("*"))
    done = sx(*arguments, status=status, **environment)
    assert says in done.stderr and done.stderr.startswith("symplex-client: "), (says, done)
    assert sorted(TMP.rglob("*")) == before, sorted(set(TMP.rglob("*")) - set(before))


def test_shapes_whose_indices_overflow():
    limit = "more than 4398046511104 elements"
    for shape, says, status in (("3000000000x3000000000x8", limit, 4),
                                ("1099511627776x8x8", limit, 4),
                                ("1099511627777x8x8", "a number from 1 to 1099511627776", 2),
                                ("9223372036854775808x8x8", "a number from 1 to 1099511627776", 2),
                                ("99999999999999999999999x8x8", "a number from 1 to 1099511627776", 2),
                                ("0x8x8", "a number from 1 to 1099511627776", 2)):
        refused(says, status, "compile", "--gemm", shape, *GEMM, "-o", "out.sxm")
    refused(limit, 4, "compile", "--gemm", "65536x65536x8", "--batch", "65536x65536", *GEMM, "-o", "out.sxm")
    refused("more blocks of threads than the 2147483647 of a launch", 4,
            "compile", "--gemm", "1x1x8", "--batch", "2147483648", *GEMM, "-o", "out.sxm")


def test_machines_that_cannot_run_it():
    for settings, says, status in (
            ("capability=80", "module is for sm_90: compute capability 9.0 is needed, GPU 0 (Fake 0) has 8.0", 4),
            ("gpus=0", "the CUDA driver finds no GPU", 4),
            ("version=10020", "PTX 8.0 needs a driver of CUDA 12.0, this one is of CUDA 10.2", 4),
            ("version=11080", "PTX 8.0 needs a driver of CUDA 12.0, this one is of CUDA 11.8", 4),
            ("shared=1000", "bytes of shared memory, GPU 0 (Fake 0) has 1000", 4),
            ("memory=20000", "bytes wanted for weights, inputs and outputs, 20000 of 20000 bytes are free", 5)):
        settings += "" if "capability" in settings else " capability=90"
        refused(says, status, "run", "good.sxm", "--random", "1", "--output", "out", SX_FAKE_CUDA=settings)


def test_a_gpu_lost_in_a_run():
    for call in ("cuModuleLoadDataEx:1:719", "cuLaunchKernel:1:719", "cuLaunchKernel:2:700",
                 "cuStreamSynchronize:1:719", "cuMemcpyDtoHAsync_v2:1:700"):
        refused("GPU 0 (Fake 0) is lost", 6, "run", "good.sxm", "--random", "1", "--output", "out",
                SX_FAKE_CUDA="capability=90 fail=" + call)
    refused("launching a kernel: CUDA error 701", 6, "run", "good.sxm", "--random", "1", "--output", "out",
            SX_FAKE_CUDA="capability=90 fail=cuLaunchKernel:1:701")
    (TMP / "kept").mkdir()  # a folder that was there stays
    refused("is lost", 6, "run", "good.sxm", "--random", "1", "--output", "kept",
            SX_FAKE_CUDA="capability=90 fail=cuLaunchKernel:1:719")


def test_ptx_outside_of_the_subset():
    text = next((TMP / "dump" / "kernels").glob("*.ptx")).read_text()
    kernel = json.loads((TMP / "dump" / "kernels.json").read_text())
    assert kernel
    path = TMP / "bad.ptx"
    entry = text.split(".entry ")[1].split("(")[0].strip()
    line = text[:text.index("ret;")].count("\n") + 1
    run = ["ptx", "run", path, "--kernel", entry, "--grid", "1", "--block", "32", "--output", "out"]
    for instruction in ("foo.bar %r1;", "call f;", "add.u31 %r1, %r1, %r1;"):
        path.write_text(text.replace("ret;", instruction + " ret;", 1))
        name = instruction.split()[0]
        refused("bad.ptx: PTX line %d: " % line, 4, *run)
        assert "instruction '%s" % name in sx(*run, status=4).stderr
    path.write_bytes(b"\x1b[2J\x07" * 9)
    refused("PTX line 1: expected .version", 4, *run)
    path.write_text(text)
    refused("grid 1,70000,1: at most 2147483647,65535,65535", 4, *run[:5], "--grid", "1,70000", "--block", "32",
            *[word for _ in range(text.count(".param .u64")) for word in ("--arg", "out:f32:64x64")],
            "--shared", "65536", "--output", "out")


shutil.copy(BINARY.parent / "cuda-fake" / "libcuda.so.1", DRIVER)
DRIVER.chmod(0o600)
sx("compile", "--gemm", "64x64x64", *GEMM, "-o", "good.sxm")
sx("module", "dump", "good.sxm", "-o", "dump")
sx("run", "good.sxm", "--random", "1", "--output", "right", SX_FAKE_CUDA="capability=90")
assert [p.suffix for p in (TMP / "right").iterdir()] == [".npy"]
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name)
shutil.rmtree(TMP)
