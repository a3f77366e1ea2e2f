#!/usr/bin/env python3
"""The loader holds neither the compiler nor the interpreter: the objects of client/runtime, with all the
objects of other archives that they need, define no function of those."""
import glob
import os
import subprocess
import sys

ABSENT = ["sx_core_compile", "sx_graph_eval", "sx_node_eval", "sx_optimize", "sx_lower_fused", "sx_x64_emit",
          "sx_poly_check_fused"]
THERE = ["sxr_run", "sx_module_decode"]  # or the test looks at nothing


def members(archive):
    """{object: (symbols it defines, symbols it needs)}"""
    listing = subprocess.run(["nm", "-A", archive], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listing.splitlines():
        place, _, rest = line.rpartition(":")
        words = rest.split()
        if len(words) < 2:
            continue
        defined, needed = found.setdefault(place, (set(), set()))
        (needed if words[-2] == "U" else defined).add(words[-1])
    return found


def main():
    objects, loader = {}, []
    for archive in sorted(glob.glob(os.path.join(os.environ["SX_BINARY_DIR"], "lib", "libsx_*.a"))):
        of = members(archive)
        objects.update(of)
        if os.path.basename(archive) == "libsx_runtime.a":
            loader = list(of)
    owner = {name: place for place, (defined, _) in objects.items() for name in defined}
    held, todo = set(), loader
    while todo:
        place = todo.pop()
        if place not in held:
            held.add(place)
            todo += [owner[name] for name in objects[place][1] if name in owner]
    symbols = set().union(*(objects[place][0] for place in held)) if held else set()
    findings = [f"the loader holds {name}" for name in ABSENT if name in symbols]
    findings += [f"{name} is nowhere" for name in ABSENT if name not in owner]
    findings += [f"{name} is not in the loader" for name in THERE if name not in symbols]
    print("\n".join(findings) or f"the loader is {len(held)} of {len(objects)} objects")
    return 1 if findings else 0


sys.exit(main())
