"""Runs the tests of a file: all of them, or those that the command line names, each from the same seed."""
import os
import sys

import torch

SEED = int(os.environ.get("SX_SEED", "20261124"))


def run(names):
    """`names`: the globals of the file. Prints each test that has ended."""
    print(f"seed {SEED}", file=sys.stderr)
    tests = {name: f for name, f in names.items() if name.startswith("test_") and callable(f)}
    for name in sys.argv[1:] or tests:
        torch.manual_seed(SEED)
        tests[name]()
        print(name, flush=True)
