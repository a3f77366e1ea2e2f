#!/usr/bin/env python3
"""Who includes whom, read off the sources. usage: include_graph.py [--dot | --files FOLDER]

Without an option: each folder of the product with the folders that its files include, and how often; then the
circles between files of one folder, each with its reason. --dot: the folders as a graph for graphviz. --files
FOLDER: the units of one folder (x.c with x.h is the unit x) instead.

Exits 1 and says so where docs/ARCHITECTURE.md draws another picture than the sources, where folders include
each other in a circle, and where files do so without a reason in CIRCLES below. tests/tools/test_tidy.py runs
the same checks."""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# Circles between units of one folder, and why they stay. A unit is x.c with x.h; headers alone are never in a
# circle. Most are of one kind: x.h is what others include, y.h is what the files of the folder share and
# includes it for its types, x.c includes y.h.
CIRCLES = {
    ("cache/cache", "cache/hot", "cache/key", "cache/op", "cache/owner", "cache/store", "cache/writer"):
        "cache.h is what others include; the parts use its types, and cache.c opens and closes them",
    ("client/export/onnx_write", "client/export/onnx_writer"):
        "onnx_write.h is what others include; onnx_writer.h is what the files of the writer share",
    ("client/operation/build", "client/operation/operation"):
        "operation.h is what others include; build.h is what the files of the folder share",
    ("client/verify/emulation", "client/verify/execute"):
        "execute.h is what others include; emulation.h is what the files behind it share, with its types",
    ("client/symplex", "client/symplex_inside", "client/symplex_session"):
        "symplex.h is what others include; symplex_inside.h and symplex_session.h are what the files behind it share, "
        "with its types",
    ("client/runtime/device", "client/runtime/device_inside", "client/runtime/program", "client/runtime/runtime"):
        "runtime.h is what others include; program.h is what its files share, device.h what of it is on a GPU, and "
        "device_inside.h what the files behind that share",
    ("client/verify/ranks", "client/verify/verify"):
        "verify.h is what others include; ranks.c has one of its functions, and verify.c asks it for another",
    ("core/egraph/sharding", "core/egraph/tensor"):
        "a node that tensor.c adds gets its placements from sharding.c, which walks the graph of tensor.h",
    ("core/eval/cell", "core/eval/eval"):
        "eval.h is what others include; cell.h is what its files share",
    ("core/ir/check", "core/ir/extent"):
        "the checker adds extents, and extent.c prints as check.h says",
    ("core/ir/fused", "core/ir/fused_body"):
        "fused.h is what others include; fused_body.h is what its files share",
    ("core/optimize/fuse", "core/optimize/fuser"):
        "fuse.h is what others include; fuser.h is what fuse.c and nest.c share",
    ("core/optimize/optimize", "core/optimize/optimizer"):
        "optimize.h is the stage as others see it; optimizer.h is what its files share",
    ("daemon/service/artefact", "daemon/service/gang", "daemon/service/search", "daemon/service/service"):
        "service.h is what others include; search.h, artefact.h and gang.h are what the files of searches, artefacts "
        "and sessions of jobs share, and service.c opens them",
    ("daemon/work/task", "daemon/work/work"):
        "work.h is what others include; task.c gives tasks to the workers of work.h",
    ("core/pareto", "core/pipeline"):
        "a point of the front is a run of the stages of pipeline.h, and the pipeline makes a front where one is "
        "asked for",
    ("core/proof/certificate", "core/proof/certificate_read"):
        "certificate.h is the checker's interface; certificate_read.h is what its two files share",
    ("core/rules/conv", "core/rules/logic", "core/rules/merge", "core/rules/online", "core/rules/rules"):
        "rules.c holds the table; the others hold rules of it that are written in C, with the types of rules.h",
    ("core/roll/cut", "core/roll/roll"):
        "roll.h is what others include; cut.h is what its files share",
    ("core/search/search", "core/search/space"):
        "search.h has the types; space.c lists plans, search.c prices what it lists",
    ("protocol/module", "protocol/module_check"):
        "module.h is what others include; module_check.h is what its files share",
}


def sources():
    """Path -> paths it includes, of the C files and tables of the product and of tests."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.c", "*.h", "*.def"],
                           cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    out = {}
    for name in names:
        path = os.path.join(ROOT, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                out[name] = re.findall(r'^\s*#\s*include "([^"]+)"', file.read(), re.M)
    return out


def drawn_arrows():
    """Folder -> folders, as docs/ARCHITECTURE.md draws them."""
    arrows = {}
    with open(os.path.join(ROOT, "docs", "ARCHITECTURE.md"), encoding="utf-8") as file:
        for line in file:
            match = re.match(r"    ([a-z0-9/]+) +-> ([a-z0-9/, ]+|\(nothing\))$", line.rstrip("\n"))
            if match:
                arrows[match.group(1)] = [] if match.group(2) == "(nothing)" else match.group(2).split(", ")
    return arrows


def folder_graph(files):
    """Folder of the product -> folder -> number of includes."""
    graph = collections.defaultdict(collections.Counter)
    for path, included in files.items():
        folder = os.path.dirname(path)
        if folder.split("/")[0] != "tests":
            graph[folder].update(t for t in map(os.path.dirname, included) if t not in ("", folder))
    return graph


def unit_graph(files):
    """Unit of the product -> units, within and across folders."""
    def unit(path):
        return os.path.splitext(path)[0]
    graph = collections.defaultdict(set)
    for path, included in files.items():
        if path.split("/")[0] != "tests":
            graph[unit(path)].update(unit(t) for t in included if unit(t) != unit(path))
    return graph


def circles(graph):
    """Sets of names that reach each other, each sorted (Tarjan 1972, without recursion)."""
    index, low, stack, out = {}, {}, [], []
    for start in sorted(graph):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        work = [(start, iter(sorted(graph[start])))]
        while work:
            name, rest = work[-1]
            step = next(rest, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    group = stack[stack.index(name):]
                    del stack[stack.index(name):]
                    if len(group) > 1:
                        out.append(tuple(sorted(group)))
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                work.append((step, iter(sorted(graph.get(step, ())))))
            elif step in stack:
                low[name] = min(low[name], index[step])
    return out


def findings(files, drawn, reasons):
    out = []
    folders = folder_graph(files)
    for folder in sorted(set(folders) | set(drawn)):
        real, allowed = set(folders.get(folder, ())), set(drawn.get(folder, ()))
        if folder not in drawn:
            includes = ", ".join(sorted(real)) or "nothing"
            out.append(f"docs/ARCHITECTURE.md: no arrows of {folder}, which includes {includes}")
            continue
        out += [f"docs/ARCHITECTURE.md: {folder} -> {t}, but no file there includes one of {t}"
                for t in sorted(allowed - real)]
        out += [f"{folder} includes {t}, an arrow that docs/ARCHITECTURE.md does not draw"
                for t in sorted(real - allowed)]
    out += [f"folders in a circle: {', '.join(group)}" for group in circles(folders)]
    found = circles(unit_graph(files))
    out += [f"files in a circle: {', '.join(group)} (open it, or give the reason in tests/tools/include_graph.py)"
            for group in found if group not in reasons]
    out += [f"tests/tools/include_graph.py: {', '.join(group)} is no circle any more" for group in reasons
            if group not in found]
    headers = {p: [t for t in included if t.endswith(".h")] for p, included in files.items() if p.endswith(".h")}
    out += [f"headers in a circle: {', '.join(group)}" for group in circles(headers)]
    return out


def print_dot(graph):
    print("digraph includes {\n  rankdir = BT;\n  node [shape = box];")
    for name in sorted(graph):
        print(f'  "{name}";')
        for target in sorted(graph[name]):
            print(f'  "{name}" -> "{target}";')
    print("}")


def main():
    files = sources()
    folders = folder_graph(files)
    if sys.argv[1:] == ["--dot"]:
        print_dot(folders)
    elif sys.argv[1:2] == ["--files"] and len(sys.argv) == 3:
        inside = {u: {t for t in targets if os.path.dirname(t) == sys.argv[2]}
                  for u, targets in unit_graph(files).items()
                  if os.path.dirname(u) == sys.argv[2]}
        if not inside:
            print(f"include_graph.py: no sources in {sys.argv[2]}", file=sys.stderr)
            return 2
        print_dot(inside)
    elif sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        for name in sorted(folders):
            print(f"{name:16} -> " + (", ".join(f"{t} ({n})" for t, n in sorted(folders[name].items())) or "(nothing)"))
        print("\ncircles between files of one folder:")
        for group in circles(unit_graph(files)):
            print(f"  {', '.join(group)}\n      {CIRCLES.get(group, 'no reason given')}")
    bad = findings(files, drawn_arrows(), CIRCLES)
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
