#!/usr/bin/env python3
"""Triton's cache at a real daemon: kernels are compiled for a target that need not be there."""
import unittest

from ranks import RANKS, Ranks
from wire import until

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


class Triton(Ranks):
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
