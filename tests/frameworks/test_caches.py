#!/usr/bin/env python3
"""The caches of PyTorch's compiler and of Triton at a real daemon: eight processes with folders of their own compile a
cold model, and the compilations of all of them are counted, by a compiler that writes a line for each."""
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
from wire import Daemon, until  # noqa: E402

RANKS = 8
DEADLINE = 400
# A model with two graphs (a break in between), trained for a step: four graphs with what is computed backward.
MODEL = """
import json, os, sys, warnings
warnings.filterwarnings("error", message="symplex")
import torch
import symplex
said = symplex.caches.install("inductor", socket=sys.argv[1])
assert said["inductor"].startswith("compiled graphs"), said
torch.manual_seed(0)
layer = torch.nn.Linear(32, 32)

def model(x):
    y = torch.tanh(layer(x)) * 2
    torch._dynamo.graph_break()
    return (torch.relu(y) + 1).sum()

print("ready", flush=True)
sys.stdin.readline()
loss = torch.compile(model)(torch.ones(4, 32))
loss.backward()
symplex_stats = symplex.caches.stats()
from torch._dynamo.utils import counters
print(json.dumps({"loss": loss.item(), "grad": layer.weight.grad.sum().item(), "stats": symplex_stats,
                  "inductor": dict(counters["inductor"]), "aot": dict(counters["aot_autograd"])}), flush=True)
"""
KERNEL = """
import json, sys
import triton, triton.language as tl
from triton.compiler import ASTSource, compile
from triton.backends.compiler import GPUTarget
import symplex
said = symplex.caches.install("triton", socket=sys.argv[1])
assert said["triton"].startswith("compiled kernels"), said

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)

hits = []
triton.knobs.compilation.listener = lambda **what: hits.append(what["cache_hit"])
print("ready", flush=True)
sys.stdin.readline()
made = compile(ASTSource(double, {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {(3,): 128}),
               target=GPUTarget("cuda", 80, 32))
print(json.dumps({"hit": hits, "cubin": made.asm["cubin"].hex(), "stats": symplex.caches.stats()}), flush=True)
"""
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


class Caches(unittest.TestCase):
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

    def test_eight_ranks_compile_each_kernel_once(self):
        got = self.run_ranks(MODEL)
        self.assertEqual(len({(g["loss"], g["grad"]) for g in got}), 1)
        graphs = sum(g["stats"]["inductor.fx"]["puts"] for g in got)
        self.assertEqual(graphs, 4, got)
        self.assertEqual(sum(g["inductor"].get("fxgraph_cache_miss", 0) for g in got), 4, got)
        once = self.compilations()
        self.assertGreater(len(once), 0)
        self.assertEqual(len(once), len({tuple(names) for names in once}), once)
        again = self.run_ranks(MODEL, 2)
        self.assertEqual(self.compilations(), [])
        self.assertEqual({(g["loss"], g["grad"]) for g in again}, {(got[0]["loss"], got[0]["grad"])})
        for g in again:
            self.assertEqual(g["inductor"].get("fxgraph_cache_miss", 0), 0, g)
            self.assertEqual(g["aot"].get("autograd_cache_miss", 0), 0, g)
            self.assertEqual(g["stats"]["inductor.cpp"]["misses"], 0, g)

    def test_without_the_daemon_in_mid_run(self):
        leader, other = self.ranks(MODEL.replace('"error"', '"default"'), 2)
        leader.go()
        want = leader.result()
        self.daemon.kill()
        other.go()
        got = other.result()
        self.assertEqual((got["loss"], got["grad"]), (want["loss"], want["grad"]))
        self.assertEqual(other.failed().count("this process compiles for itself"), 1, other.failed())

    def test_triton_compiles_once(self):
        got = self.run_ranks(KERNEL)
        self.assertEqual(len({g["cubin"] for g in got}), 1)
        self.assertEqual(sorted(hit for g in got for hit in g["hit"]), [False] + [True] * (RANKS - 1), got)
        self.assertEqual([g["hit"] for g in self.run_ranks(KERNEL, 1)], [[True]])

    def test_triton_after_a_killed_leader(self):
        stuck = KERNEL.replace("triton.knobs.compilation.listener =", """
from triton.backends.nvidia.compiler import CUDABackend
def forever(*unused):
    print("compiling", flush=True)
    sys.stdin.read()
CUDABackend.make_ttir = forever
triton.knobs.compilation.listener =""")
        (leader,) = self.ranks(stuck, 1)
        others = self.ranks(KERNEL, 2)
        leader.go()
        self.assertEqual(leader.process.stdout.readline(), "compiling\n", leader.failed())
        for rank in others:
            rank.go()

        def waiting():
            with self.daemon.client() as client:
                return client.call("artefact.caches")["waiting"] == 2
        until(waiting, "two wait", 60)
        leader.process.kill()
        got = [rank.result() for rank in others]
        self.assertEqual(sorted(hit for g in got for hit in g["hit"]), [False, True], got)


if __name__ == "__main__":
    unittest.main(verbosity=2)
