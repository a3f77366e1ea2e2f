#!/usr/bin/env python3
"""The loader holds neither the compiler nor the interpreter: the objects of client/runtime, with all the
objects of other archives that they need, define no function of those. The compiler, in turn, holds no isl."""
import glob
import os
import subprocess
import sys

ABSENT = ["sx_core_compile", "sx_graph_eval", "sx_node_eval", "sx_optimize", "sx_lower_fused", "sx_x64_emit",
          "sx_poly_check_fused"]
NOT_COMPILED_WITH = "sx_poly_legal"  # core/poly, the one folder that calls isl
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


def closure(objects, owner, first):
    """The objects that these need, themselves included, and all that they define."""
    held, todo = set(), list(first)
    while todo:
        place = todo.pop()
        if place not in held:
            held.add(place)
            todo += [owner[name] for name in objects[place][1] if name in owner]
    return held, set().union(*(objects[place][0] for place in held)) if held else set()


def main():
    objects, loader, compiler = {}, [], []
    for archive in sorted(glob.glob(os.path.join(os.environ["SX_BINARY_DIR"], "lib", "libsx_*.a"))):
        of = members(archive)
        objects.update(of)
        if os.path.basename(archive) == "libsx_runtime.a":
            loader = list(of)
        if os.path.basename(archive) == "libsx_core.a":
            compiler = list(of)
    owner = {name: place for place, (defined, _) in objects.items() for name in defined}
    held, symbols = closure(objects, owner, loader)
    compiled_with = closure(objects, owner, compiler)[1]
    findings = [f"the loader holds {name}" for name in ABSENT if name in symbols]
    findings += [f"{name} is nowhere" for name in ABSENT if name not in owner]
    findings += [f"{name} is not in the loader" for name in THERE if name not in symbols]
    if NOT_COMPILED_WITH in compiled_with or NOT_COMPILED_WITH not in owner or "sx_core_compile" not in compiled_with:
        findings.append(f"the compiler holds {NOT_COMPILED_WITH}, or one of both is nowhere")
    print("\n".join(findings) or f"the loader is {len(held)} of {len(objects)} objects")
    return 1 if findings else 0


sys.exit(main())
