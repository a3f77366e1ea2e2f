#!/usr/bin/env python3
"""What tests need of Python: the interpreter that runs this has the pinned versions, a test whose package is
missing fails and says what to run, and deploy/install-deps.sh says so where it finds no packages to install."""
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REMEDY = "run deploy/install-deps.sh"


def run(*command, **environment):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, **environment),
                          check=False)


def test_versions_are_the_pinned_ones():
    pins = [line.split("==") for line in (ROOT / "tests/requirements.txt").read_text(encoding="ascii").split()
            if "==" in line]
    assert {"egglog", "numpy", "onnx", "onnxruntime"} <= {name for name, _ in pins}
    for name, version in pins:
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        assert found == version, f"{name} is {found}, tests/requirements.txt has {version}: {REMEDY}"


def test_which_interpreter():
    script = ROOT / "tests/tools/python.sh"
    done = run(script, "-c", "import sys; print(sys.executable)", SX_PYTHON="/bin/echo")
    assert done.stdout == "-c import sys; print(sys.executable)\n", done
    if (ROOT / "build/venv").is_dir():
        done = run(script, "-c", "import sys; print(sys.prefix)", SX_PYTHON="")
        assert done.stdout.strip() == str(ROOT / "build/venv"), done


# Programs that need more than Python itself, with a word of what is missing where there are no packages and no
# programs.
NEED = {
    "tests/client/test_onnx_export.py": ([], "numpy"),
    "tests/tools/prove_rules.py": ([], "z3"),
    "tests/daemon/test_spread.py": ([], "redis-server"),
    "tests/bench/peer_egglog.py": (["ac", "3"], "egglog"),
    "tests/bench/peer_encoder.py": (["tests/models/encoder.onnx", "1", "1"], "numpy"),
    "tests/bench/peer_attention.py": (["1", "4", "4", "0", "1"], "numpy"),
}


def test_missing_packages_are_named():
    """-S leaves out every folder of packages; an empty PATH every program."""
    for script, (arguments, word) in NEED.items():
        done = run(sys.executable, "-S", ROOT / script, *arguments, PATH="")
        assert done.returncode == 1 and word in done.stderr and REMEDY in done.stderr, (script, done)
        assert "Traceback" not in done.stderr, (script, done)


def test_no_network():
    """A tree of its own, so that the real build/venv stays."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("deploy/install-deps.sh", "tests/requirements.txt"):
            (pathlib.Path(folder) / name).parent.mkdir()
            shutil.copy(ROOT / name, pathlib.Path(folder) / name)
        done = run(pathlib.Path(folder) / "deploy/install-deps.sh", "python", PIP_NO_INDEX="1", PIP_FIND_LINKS="",
                   PIP_CONFIG_FILE="/dev/null")
        assert done.returncode == 1 and "this needs a network with PyPI" in done.stderr, done
        assert "egglog==13.2.0" in done.stderr, done
        assert not (pathlib.Path(folder) / "build/venv").exists()
        assert run(pathlib.Path(folder) / "deploy/install-deps.sh", "more").returncode == 2


for name, function in list(globals().items()):
    if name.startswith("test_"):
        function()
        print("ok", name)
