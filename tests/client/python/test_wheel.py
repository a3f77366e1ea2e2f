#!/usr/bin/env python3
"""The wheel: made by pip with nothing from a registry, whole in itself but for libraries of the system, the same bytes
twice, and used by every CPython of 3.11 or later that is here, with an empty environment."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
CLEAN = {"PATH": "/usr/bin:/bin", "SYMPLEX_SOCKET": "/nowhere/symplex.sock"}


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def make(folder):
    """By pip, without a network: nothing is to be fetched."""
    run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-index", "--no-deps",
        "--config-settings", f"build-dir={BUILD}", "-w", folder, ROOT / "client" / "python")
    return next(pathlib.Path(folder).glob("*.whl"))


def pythons():
    """Those of 3.11 or later on the path, and this one."""
    found = {os.path.realpath(sys.executable)}
    for minor in range(11, 20):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.run([path, "-c", "import array"], capture_output=True).returncode == 0:
            found.add(os.path.realpath(run(path, "-c", "import sys; print(sys.executable)").strip()))
    return sorted(found)


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheel = make(pathlib.Path(folder, "first"))
        assert wheel.name.startswith("symplex-0.1.0-cp311-abi3-linux_"), wheel
        assert make(pathlib.Path(folder, "second")).read_bytes() == wheel.read_bytes(), "equal trees, equal wheels"
        target = pathlib.Path(folder, "site")
        run(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps",
            "--target", target, wheel)
        names = set(zipfile.ZipFile(wheel).namelist())
        for name in ("__init__.py", "_c.abi3.so", "_c.pyi", "py.typed", "libsymplex.so.0", "symplex-client",
                     "jax/__init__.py", "torch/__init__.py"):
            assert f"symplex/{name}" in names, names
        names = run(sys.executable, "-c", "import importlib.metadata as m; print(*m.entry_points(group='torch_dynamo_"
                    "backends', name='symplex'))", env=dict(CLEAN, PYTHONPATH=str(target)))
        assert "symplex._entry:torch_backend" in names, names
        dynamic = run("readelf", "-d", target / "symplex" / "_c.abi3.so")
        assert "[$ORIGIN]" in dynamic and str(ROOT) not in dynamic and "libpython" not in dynamic, dynamic
        found = run("ldd", target / "symplex" / "_c.abi3.so")
        assert f"{target}/symplex/libsymplex.so.0" in found and "not found" not in found, found
        for python in pythons():
            said = run(python, "-m", "symplex", "doctor", cwd=folder,
                       env=dict(CLEAN, HOME=folder, PYTHONPATH=str(target)))
            assert "the result is right" in said and str(target) in said, said
            print("ok", run(python, "--version").strip(), python)
        (target / "symplex" / "symplex-client").unlink()
        done = subprocess.run([sys.executable, "-m", "symplex", "doctor"], cwd=folder, capture_output=True, text=True,
                              timeout=120, env=dict(CLEAN, HOME=folder, PYTHONPATH=str(target)))
        assert done.returncode == 1 and "there is no symplex-client beside" in done.stdout, done


if __name__ == "__main__":
    main()
    sys.exit(0)
