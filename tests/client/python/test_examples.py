#!/usr/bin/env python3
"""The tutorials of client/python/examples run as they are, each in a process of its own, and check what they say."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "client" / "python" / "examples"
PACKAGE = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "python"


def test_examples():
    scripts = sorted(EXAMPLES.glob("*.py"))
    words = (EXAMPLES / "README.md").read_text()
    assert len(scripts) >= 3 and all(f"`{script.name}`" in words for script in scripts), scripts
    for script in scripts:
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "SYMPLEX_SOCKET": "/nowhere/symplex.sock",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=300,
                              env=environment)
        assert done.returncode == 0 and done.stdout and not done.stderr, (script.name, done.stdout, done.stderr)
        print("ok", script.name, flush=True)


if __name__ == "__main__":
    test_examples()
    sys.exit(0)
