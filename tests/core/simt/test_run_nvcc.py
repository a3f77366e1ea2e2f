#!/usr/bin/env python3
"""The kernels of tests/data/ptx/kernels.cu, compiled by the nvcc at hand for two architectures, pass core.simt.test_run
as the committed PTX does, those of hopper.cu core.simt.test_run_hopper and those of clusters.cu
core.simt.test_run_cluster; and that is what nvcc 13.0 makes of them. Skipped where there is no nvcc."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEST = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "core.simt.test_run"
SOURCE = ROOT / "tests" / "data" / "ptx" / "kernels.cu"
HOPPER_TEST = TEST.with_name("core.simt.test_run_hopper")
HOPPER = SOURCE.with_name("hopper.cu")
CLUSTER_TEST = TEST.with_name("core.simt.test_run_cluster")
CLUSTERS = SOURCE.with_name("clusters.cu")


def without_comments(text):
    return "".join(line + "\n" for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def hopper(nvcc, release, source, test, made):
    """The case of the test that is named like the source runs what nvcc makes of it."""
    subprocess.run([nvcc, "-ptx", "-arch=sm_90a", "-O3", "-o", made, source], check=True, timeout=200)
    if release == "13.0":
        assert without_comments(made.read_text()) == source.with_suffix(".ptx").read_text(), \
            f"{source.stem}.ptx is not what nvcc makes of {source.name}"
    environment = dict(os.environ, CK_RUN_CASE=source.stem)
    environment["SX_PTX_" + source.stem.upper()] = str(made)
    done = subprocess.run([test], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "100%" in done.stdout, done.stdout + done.stderr
    print("sm_90a by nvcc", release, done.stdout.splitlines()[-1])


def main():
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        print("SKIPPED: CUDA toolkit: no nvcc")
        return 77
    release = re.search(r"release (\S+),", subprocess.run([nvcc, "--version"], check=True, capture_output=True,
                                                          text=True).stdout).group(1)
    with tempfile.TemporaryDirectory(prefix="sxnvcc.") as folder:
        for target in ("sm_80", "sm_90"):
            made = pathlib.Path(folder) / (target + ".ptx")
            subprocess.run([nvcc, "-ptx", "-arch=" + target, "-O3", "-o", made, SOURCE], check=True, timeout=200)
            if release == "13.0" and target == "sm_80":
                assert without_comments(made.read_text()) == SOURCE.with_suffix(".ptx").read_text(), \
                    "kernels.ptx is not what nvcc makes of kernels.cu"
            environment = dict(os.environ, SX_PTX_KERNELS=str(made))
            done = subprocess.run([TEST], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "100%" in done.stdout, done.stdout
            print(target, "by nvcc", release, done.stdout.splitlines()[-1])
        hopper(nvcc, release, HOPPER, HOPPER_TEST, pathlib.Path(folder) / "hopper.ptx")
        hopper(nvcc, release, CLUSTERS, CLUSTER_TEST, pathlib.Path(folder) / "clusters.ptx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
