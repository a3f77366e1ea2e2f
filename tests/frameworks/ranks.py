"""What the tests of symplex.caches share: a real daemon, and processes with cache folders of their own, whose C++
compiler writes a line for each compilation."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SX_BINARY_DIR", ROOT / "build" / "release")).resolve()
os.environ["SX_BINARY_DIR"] = str(BUILD)
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import Daemon  # noqa: E402

RANKS = 8
DEADLINE = 400
COMPILER = """#!/bin/sh
case " $* " in
*" -E "*|*" -v "*|*" --version "*|*" -x c++-header "*|*"-march=native -E"*) ;;
*.cpp*) echo "$*" >> "$SX_COMPILATIONS" ;;
esac
exec g++ "$@"
"""


class Rank:
    """A process with cache folders of its own."""

    def __init__(self, folder, number, program, socket):
        self.home = folder / f"rank{number}"
        self.home.mkdir()
        self.log = open(self.home / "log", "w+")
        env = dict(os.environ, PYTHONPATH=str(BUILD / "python"), TORCHINDUCTOR_CACHE_DIR=str(self.home / "inductor"),
                   TRITON_CACHE_DIR=str(self.home / "triton"), CXX=str(folder / "c++"), OMP_NUM_THREADS="1",
                   SX_COMPILATIONS=str(folder / "compilations"), TORCHINDUCTOR_COMPILE_THREADS="1")
        script = self.home / "program.py"  # Triton reads the source of its kernels
        script.write_text(program)
        self.process = subprocess.Popen([sys.executable, script, str(socket)], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)

    def failed(self):
        self.log.seek(0)
        return f"{self.process.poll()}: {self.log.read()[-4000:]}"

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self):
        line = self.process.stdout.readline()
        assert line, self.failed()
        assert self.process.wait(DEADLINE) == 0, self.failed()
        return json.loads(line)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            file.close()


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sxf."))
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / "c++").write_text(COMPILER)
        (self.folder / "c++").chmod(0o755)
        self.daemon = Daemon(program="symplexd")
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__, None)
        self.made = 0

    def ranks(self, program, count=RANKS):
        """That many processes that have imported all they need and wait for go."""
        all_ = []
        for _ in range(count):
            self.made += 1
            all_.append(Rank(self.folder, self.made, program, self.daemon.path))
            self.addCleanup(all_[-1].close)
        for rank in all_:
            self.assertEqual(rank.process.stdout.readline(), "ready\n", rank.failed())
        return all_

    def run_ranks(self, program, count=RANKS):
        ranks = self.ranks(program, count)
        for rank in ranks:
            rank.go()
        return [rank.result() for rank in ranks]

    def compilations(self):
        """Of C++ kernels, each by the names of its files."""
        path = self.folder / "compilations"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [sorted(word.rsplit("/", 1)[-1] for word in line.split() if word.endswith(".cpp")) for line in lines]
