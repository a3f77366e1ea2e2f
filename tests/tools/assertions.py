#!/usr/bin/env python3
"""How many of the functions that other files call hold an assertion, read off the sources. usage:
assertions.py [FOLDER]

Without an argument: each folder with its share and the share that it must have. FOLDER: the functions of that folder
that hold none. tests/tools/test_tidy.py refuses a folder that falls below its line in LEAST;
docs/decisions/2026-11-22-assertions.md has the rule behind it.

It also lists the failures with SX_INTERNAL, "a bug", whose branch SX_NEVER does not mark: new ones are refused.

An assertion is SX_ASSERT, SX_NEVER, SX_UNREACHABLE, _Static_assert or a call of a function demand_*, which is what a
file calls the checks that several of its functions share. A function that a table (*.def) names is called at one
place, which asserts for all of its kind: it counts only if it holds an assertion of its own."""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

# Folder -> percent of its functions. A figure here may only rise; a folder without a line is held to the
# line of the folder that it lies in, where there is one.
LEAST = {
    "cache": 44,
    "client": 0,
    "client/cli": 0,
    "client/export": 74,
    "client/import": 69,
    "client/runtime": 20,
    "client/verify": 15,
    "client/worker": 0,
    "core": 15,
    "core/base": 52,
    "core/cost": 40,
    "core/egraph": 78,
    "core/eval": 17,
    "core/extract": 64,
    "core/fuse": 71,
    "core/ir": 43,
    "core/judge": 0,
    "core/kernel": 15,
    "core/long": 62,
    "core/loop": 25,
    "core/optimize": 69,
    "core/plan": 100,
    "core/poly": 0,
    "core/proof": 25,
    "core/roll": 50,
    "core/rules": 45,
    "core/search": 10,
    "core/shard": 100,
    "core/store": 72,
    "core/target": 50,
    "core/tile": 80,
    "core/x64": 35,
    "daemon": 0,
    "daemon/base": 60,
    "daemon/net": 50,
    "daemon/service": 35,
    "daemon/work": 50,
    "protocol": 32,
    "trust": 55,
}

# Failures that say SX_INTERNAL without SX_NEVER in front: file -> how many, and why each can be reached.
REACHED = {
    "core/curves.c": (1, "cases that are lost or wrong at a pair of values, which tests plant"),
    "core/egraph/check.c": (11, "a check function, which tests give damaged graphs"),
    "core/egraph/tensor.c": (1, "two types united by a step of a certificate or of a stored e-graph"),
    "core/proof/certificate_eval.c": (2, "a rule that is wrong, which tests plant"),
    "core/x64/asm.c": (2, "an instruction without a form or a label, which tests ask for"),
    "core/egraph/extract.c": (1, "no root has a program, where a test forbids every node"),
    "client/verify/execute.c": (1, "a block that walks wrongly, which tests plant"),
    "client/verify/kernels.c": (3, "a kernel that is wrong or stops early, which tests plant"),
    "client/verify/verify.c": (2, "a wrong copy or first value, which tests plant"),
}

ASSERTION = re.compile(r"\b(SX_ASSERT|SX_NEVER|SX_UNREACHABLE|_Static_assert|demand_\w+)\s*\(")
FUNCTION = re.compile(r"^(?!static\b|typedef\b|#|\s|\})[^\n;{}=(]+[ *](\w+)\([^;{}]*?\)\n\{\n(.*?)^\}", re.M | re.S)


def functions(code):
    """Name -> whether it asserts, of the functions with external linkage in `code`, which has no comments."""
    return {name: bool(ASSERTION.search(body)) for name, body in FUNCTION.findall(code)}


def missing(asserting, tabled):
    """Names that hold no assertion and should; `tabled` are the names that tables mention."""
    return [name for name, asserts in asserting.items() if not asserts and name not in tabled]


def counts(sources, tables):
    """Folder -> [with an assertion, all that count]; `sources`: path -> code without comments and strings."""
    tabled = set(re.findall(r"\w+", tables))
    out = collections.defaultdict(lambda: [0, 0])
    for path, code in sources.items():
        if path.endswith(".c") and not path.startswith("tests/"):
            asserting = functions(code)
            count = out[os.path.dirname(path)]
            count[0] += sum(asserting.values())
            count[1] += sum(asserting.values()) + len(missing(asserting, tabled))
    return out


def unmarked(code):
    """How often `code` fails with SX_INTERNAL in a branch that SX_NEVER does not mark. The mark is the condition of
    the branch: it ends at most eight lines above, and no other line of this or a lower depth stands between."""
    count = 0
    for match in re.finditer(r"\bSX_FAIL\(\s*[^,()]+,\s*SX_INTERNAL\b", code):
        before = code[:match.start()].split("\n")
        depth = len(before[-1]) - len(before[-1].lstrip())
        inside = [k for k, line in enumerate(before[-9:-1]) if line.strip() and
                  len(line) - len(line.lstrip()) < depth]
        opened = "\n".join(before[-9:-1][max(0, inside[-1] - 3):inside[-1] + 1]) if inside else ""
        start = opened.rfind("if (")
        count += 0 if start >= 0 and opened[start:].startswith("if (SX_NEVER(") else 1
    return count


def marks(sources, reached=None):
    """Findings: files where a failure with SX_INTERNAL lacks its mark, or the list above is out of date."""
    reached = REACHED if reached is None else reached
    found = []
    for path, code in sorted(sources.items()):
        if path.endswith(".c") and not path.startswith("tests/"):
            count, wanted = unmarked(code), reached.get(path, (0, ""))[0]
            if count != wanted:
                found.append(f"{path}: {count} failures with SX_INTERNAL are not marked SX_NEVER, {wanted} are known "
                             "to be reached (REACHED in tests/tools/assertions.py)")
    return found


def least_of(folder, least):
    while folder and folder not in least:
        folder = os.path.dirname(folder)
    return least.get(folder, 0)


def findings(sources, tables, least=None):
    least = LEAST if least is None else least
    found = []
    for folder, (held, count) in sorted(counts(sources, tables).items()):
        wanted = least_of(folder, least)
        if 100 * held < wanted * count:
            found.append(f"{folder}: {held} of {count} functions that others call hold an assertion, "
                         f"{100 * held / count:.1f} %, at least {wanted} % wanted (tests/tools/assertions.py {folder})")
    return found


def planted():
    """The check finds a share that falls, and passes one that does not."""
    held = "sx_code sx_a_put(sx_a *a, uint32_t i)\n{\n    SX_ASSERT(i < a->count);\n    return SX_OK;\n}\n"
    bare = "void sx_a_drop(sx_a *a,\n               uint32_t i)\n{\n    a->at[i] = 0;\n}\n"
    own = "static void sx_a_hide(void)\n{\n}\n"
    own += "static inline __attribute__((always_inline)) sx_code\na_find(const sx_a *a)\n{\n}\n"
    shared = "uint32_t sx_a_at(const sx_a *a)\n{\n    demand_open(a);\n    return a->at[0];\n}\n"
    least = {"a": 100, "a/low": 50}
    for files, tables, wanted in (({"a/x.c": held + own + shared}, "", 0), ({"a/x.c": held + bare}, "", 1),
                                  ({"a/x.c": held + bare}, "SX_OP(drop, sx_a_drop)", 0), ({"b/x.c": bare}, "", 0),
                                  ({"a/x.c": held, "a/y.c": bare}, "", 1), ({"a/new/x.c": bare}, "", 1),
                                  ({"a/low/x.c": bare + held}, "", 0), ({"tests/a/x.c": bare}, "", 0)):
        got = findings(files, tables, least)
        assert len(got) == wanted, (files, got)
    fails = '{\n        return SX_FAIL(cx, SX_INTERNAL, "x");\n    }\n'
    long = "    if (SX_NEVER(a->count > 1 ||\n                 a->other > 2)) " + fails
    for code, wanted in (("    if (a > b) " + fails, 1), ("    if (SX_NEVER(a > b)) " + fails, 0), (long, 0),
                         ("    if (SX_NEVER(a > b)) {\n        b = a;\n    }\n    if (b) " + fails, 1),
                         (fails.replace("INTERNAL", "LIMIT"), 0)):
        assert len(marks({"a/x.c": code}, {})) == wanted, (code, wanted)
        assert len(marks({"a/x.c": code}, {"a/x.c": (wanted, "")})) == 0, code
        assert not marks({"tests/a/x.c": code}, {}), code


def without_comments_and_strings(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    text = re.sub(r"//[^\n]*", blank, text)
    return re.sub(r'"(\\.|[^"\\\n])*"', blank, text)


def main():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.c", "*.def"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    text = {}
    for name in names:
        path = os.path.join(ROOT, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                text[name] = file.read()
    sources = {name: without_comments_and_strings(code) for name, code in text.items() if name.endswith(".c")}
    tables = "\n".join(code for name, code in text.items() if name.endswith(".def"))
    if len(sys.argv) == 2:
        for name, code in sources.items():
            if os.path.dirname(name) == sys.argv[1]:
                for function in missing(functions(code), set(re.findall(r"\w+", tables))):
                    print(f"{name}: {function}")
        return 0
    for folder, (held, count) in sorted(counts(sources, tables).items()):
        if count:
            share, wanted = 100 * held // count, least_of(folder, LEAST)
            print(f"{folder:24} {held:4} of {count:4} {share:3} %  at least {wanted:3} %")
    for path, (_, why) in sorted(REACHED.items()):
        print(f"{path:40} {unmarked(sources.get(path, '')):3} failures with SX_INTERNAL are reached: {why}")
    never = sum(len(re.findall(r"\bSX_NEVER\(", code)) for path, code in sources.items() if path[:6] != "tests/")
    print(f"{never} branches are marked SX_NEVER")
    return 0


if __name__ == "__main__":
    sys.exit(main())
