#!/usr/bin/env python3
"""ptx assemble and ptx show on PTX that nvcc made of a small CUDA kernel, for several architectures: what the record
says is what `ptxas -v` says of the same text, run by the test itself, and what nvcc's own cubin says. Skipped
where there is no CUDA toolkit with nvcc."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxptx."))
DATA = ROOT / "tests" / "data" / "ptx"
SOURCE = """
struct shape { int rows, columns; double scale; };
extern "C" __global__ void __launch_bounds__(128, 2) scaled_rows(float *out, const float *in, shape s, char last)
{
    __shared__ float partial[128];
    float sum = 0;
    for (int i = threadIdx.x; i < s.columns; i += blockDim.x)
        sum += in[blockIdx.x * s.columns + i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0] * (float)s.scale + last;
}
extern "C" __global__ void table(int *out, int n)
{
    int local[512];
    for (int i = 0; i < 512; i++) local[i] = out[i];
    out[threadIdx.x] = local[n & 511] + local[out[n] & 511];
}
"""


def run(*arguments, status=0):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=120, cwd=TMP)
    assert done.returncode == status, (arguments, done)
    return done


def record(*arguments, status=0):
    value = json.loads(run(CLIENT, "ptx", arguments[0], "--json", *arguments[1:], status=status).stdout)
    return {k["name"]: k for k in value["kernels"]}, value


def find_toolkit():
    rows = {f["name"]: f for f in json.loads(subprocess.run([CLIENT, "doctor", "--json"], capture_output=True,
                                                            check=False).stdout)["findings"]}
    for name in ("nvjitlink", "ptxas"):
        if not rows[name]["found"]:
            print("SKIPPED: CUDA toolkit: no " + name)
            sys.exit(77)
    ptxas = pathlib.Path(rows["ptxas"]["detail"].split(",")[0])
    nvcc = ptxas.with_name("nvcc")
    if not nvcc.exists():
        print("SKIPPED: CUDA toolkit: no nvcc beside ptxas")
        sys.exit(77)
    return ptxas, nvcc


PTXAS, NVCC = find_toolkit()
SAID = re.compile(r"entry function '(\w+)' for '\w+'\n.*\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, "
                  r"(\d+) bytes spill loads\n.*Used (\d+) registers, used (\d+) barriers(?:, (\d+) bytes cumulative "
                  r"stack size)?(?:, (\d+) bytes smem)?")


def test_what_nvcc_made():
    source = TMP / "kernels.cu"
    source.write_text(SOURCE)
    for arch in ("sm_80", "sm_90a", "sm_100a"):
        ptx, cubin, direct = TMP / (arch + ".ptx"), TMP / (arch + ".cubin"), TMP / (arch + ".nvcc.cubin")
        run(NVCC, "-ptx", "-arch=" + arch, source, "-o", ptx)
        said = {m[0]: [int(n or 0) for n in m[1:]] for m in
                SAID.findall(run(PTXAS, "-v", "-arch=" + arch, ptx, "-o", TMP / "x.cubin").stderr)}
        assert set(said) == {"scaled_rows", "table"}, said
        for tool in ("nvjitlink", "ptxas"):
            kernels, value = record("assemble", ptx, "-t", arch, "--with", tool, "-o", cubin)
            assert value["with"] == tool and value["target"] == arch and value["failures"] == 0, value
            for name, (frame, stores, loads, registers, barriers, _, shared) in said.items():
                k = kernels[name]
                assert (k["registers"], k["frame_bytes"], k["barriers"], k["shared_bytes"]) == \
                    (registers, frame, barriers, shared), (arch, tool, k, said)
                assert (k["spills"] > 0) == (stores + loads > 0), (k, said)
            rows = kernels["scaled_rows"]
            assert rows["shared_bytes"] == 512 and rows["block_max"] == [128, 1, 1] and rows["barriers"] == 1, rows
            assert [(p["offset"], p["size"]) for p in rows["parameters"]] == [(0, 8), (8, 8), (16, 16), (32, 1)]
            assert kernels["table"]["frame_bytes"] == 2048, kernels["table"]
            assert any(f["name"] == "local" and not f["failure"] for f in value["findings"]), value
            assert record("show", cubin)[0] == kernels
        run(NVCC, "-cubin", "-arch=" + arch, source, "-o", direct)
        assert record("show", direct)[0] == kernels  # those of ptxas, the last of the two


def test_files_of_the_repository():
    out = TMP / "out.cubin"
    run(CLIENT, "ptx", "assemble", DATA / "cluster.ptx", "-t", "sm_90a", "-o", out, "--on", "h100")
    assert out.read_bytes()[:4] == b"\x7fELF"
    out.unlink()
    done = run(CLIENT, "ptx", "assemble", DATA / "spill.ptx", "-t", "sm_80", "-o", out, status=4)
    assert "failure    spill: kernel spill" in done.stdout and "spill:" in done.stderr and not out.exists(), done
    done = run(CLIENT, "ptx", "assemble", DATA / "error.ptx", "-t", "sm_90a", "-o", out, status=4)
    assert "line 11: Not a name of any known instruction: 'frobnicate': `frobnicate" in done.stderr, done
    assert done.stdout == "" and not out.exists()
    handed = [record("assemble", DATA / "setmaxnreg.ptx", "-t", "sm_90a", *with_, status=s)[1]
              for with_, s in (([], 0), (["--with", "nvjitlink"], 4))]
    assert [v["with"] for v in handed] == ["ptxas", "nvjitlink"], handed
    assert [f["name"] for f in handed[1]["findings"]] == ["C7504"], handed


def test_a_death_is_an_error():
    """nvJitLink 13.0 crashes on this text, which ptxas takes; another one may not. In no case does the client die."""
    text = DATA / "large_call.ptx"
    done = subprocess.run([CLIENT, "ptx", "assemble", text, "-t", "sm_80"], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 6), done
    assert done.returncode == 0 or "--with ptxas" in done.stderr, done
    kernels, _ = record("assemble", text, "-t", "sm_80", "--with", "ptxas")
    assert kernels["large"]["parameter_bytes"] == 20008, kernels


try:
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            print(name, flush=True)
            function()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
