#!/usr/bin/env python3
"""Every form of the table of PTX instructions, as core.ptx.test_ptx prints them, is taken by the ptxas at hand for the
target it was printed for. Skipped where there is no ptxas."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TEST = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "core.ptx.test_ptx"


def thinned(text):
    """Every 23rd product of a warpgroup: ptxas takes minutes for hundreds of them in one kernel."""
    kept, seen = [], 0
    for line in text.splitlines():
        product = "wgmma.mma_async" in line
        seen += product
        if not product or seen % 23 == 0:
            kept.append(line)
    return "\n".join(kept) + "\n"


def main():
    ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if ptxas is None:
        print("SKIPPED: CUDA toolkit: no ptxas")
        return 77
    with tempfile.TemporaryDirectory(prefix="sxforms.") as folder:
        environment = dict(os.environ, SX_PTX_FORMS=folder)
        done = subprocess.run([TEST], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        made = sorted(pathlib.Path(folder).iterdir())
        assert [path.stem for path in made] == ["sm_80", "sm_89", "sm_90a"], made
        for path in made:
            path.write_text(thinned(path.read_text()))
            done = subprocess.run([ptxas, "-arch=" + path.stem, "-O1", "-o", os.devnull, path], capture_output=True,
                                  text=True, timeout=200)
            assert done.returncode == 0, path.stem + ": " + done.stdout + done.stderr
            print(path.stem, path.read_text().count(";\n"), "lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
