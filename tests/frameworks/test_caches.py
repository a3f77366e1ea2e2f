#!/usr/bin/env python3
"""The caches of PyTorch's compiler at a real daemon: eight processes with folders of their own compile a cold model,
and the compilations of all of them are counted."""
import unittest

from ranks import Ranks

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


class Inductor(Ranks):
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
