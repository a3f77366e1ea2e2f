#!/usr/bin/env python3
"""The other side of a benchmark answers with times, whatever the function that it times returns; one that fails is
named, with what it answered, and the others are measured all the same."""
import os
import re
import subprocess
import sys
import tempfile

BIN = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin")
HERE = os.path.dirname(os.path.abspath(__file__))

SERVED = """
import sys
sys.path.insert(0, sys.argv[1])
from peer import serve
serve(lambda: ("name 1", lambda: %s), own_clock=%s)
"""


def answers(result, own_clock):
    done = subprocess.run([sys.executable, "-c", SERVED % (result, own_clock), HERE], input="run\nrun\n",
                          capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


lines = answers("['a result', 2]", False)
assert lines[0] == "name 1" and len(lines) == 3, lines
assert all(int(line) > 0 for line in lines[1:]), lines
assert answers("1234", True) == ["name 1", "1234", "1234"]

# Two engines that are in place of JAX and of PyTorch: one answers with words, of the other one form ends at its first
# line and the other takes a second.
BAD = "#!/bin/sh\necho 'JAX 0'\nread line\necho 'a tensor'\n"
GOOD = """#!/bin/sh
for last; do :; done
echo "made by $last"
while read line; do [ "$last" = inductor ] && exit 0; echo 1000000000; done
"""
with tempfile.TemporaryDirectory() as folder:
    env = dict(os.environ)
    for name, text in (("SX_PYTHON", BAD), ("SX_FRAMEWORKS_PYTHON", GOOD)):
        env[name] = os.path.join(folder, name)
        with open(env[name], "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(env[name], 0o755)
    env.pop("SX_FRAMEWORKS", None)
    done = subprocess.run([os.path.join(BIN, "symplex-bench"), "backward", "--case", "resnet", "--rounds", "1",
                           "--threads", "1"], env=env, capture_output=True, text=True, timeout=300)
assert done.returncode == 1, done
assert 'JAX 0: "a tensor" is no time in nanoseconds' in done.stderr, done.stderr
assert "made by inductor: it ended without an answer" in done.stderr, done.stderr
rows = done.stdout.splitlines()
assert len(rows) == 1 and re.search(r"resnet +run +\S+ ms +1000 +\S+  made by torch$", rows[0]), done.stdout
