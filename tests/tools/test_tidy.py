#!/usr/bin/env python3
"""Holds the house rules that a compiler does not: who may include whom, banned calls, sizes of files and functions,
words that mark unfinished work or that the glossary replaces, width of lines, declarations broken by a comment,
expressions that depend on the order of evaluation, formatting, assertions. Prints one line for each finding and exits
1 if there is any."""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import argument_order  # noqa: E402
import assertions  # noqa: E402
import include_graph  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

BANNED = ["strcpy", "strcat", "sprintf", "vsprintf", "strtok", "atoi", "atol", "atof", "gets", "alloca"]
IMPURE = ["malloc", "calloc", "realloc", "free", "getenv", "fopen", "clock_gettime", "rand"]
# isl hands out strings that are released with free
MALLOC_OK = {"core/base/base.h", "core/base/arena.c", "core/base/buf.c", "core/poly/legal.c"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|not implemented yet|for now\b|simulated for|placeholder|dummy",
                        re.I)
# Words that docs/GLOSSARY.md ("One word of several") replaces, where a pattern can tell; what to write instead.
RETIRED = ((re.compile(r"\b(?:known|remembered|kept) (?:programs?|e-graphs?|modules?)\b", re.I), "stored"),
           (re.compile(r"\bsemantic (?:cache )?(?:hit|match)", re.I), "meeting"),
           (re.compile(r"\bequivalent programs?\b(?=.*\b(?:rules?|stored)\b)", re.I), "equal"),
           (re.compile(r"\b(?:similar|related) (?:programs?|parts?)\b", re.I), "likes"),
           (re.compile(r"\b(?:legal|safe) kernels?\b", re.I), "proven"),
           (re.compile(r"\bcache (?:row|record)s?\b|\b(?:row|record)s? of the cache\b", re.I), "entry"),
           (re.compile(r"\bsignature of (?:a|the) module\b", re.I), "seal"),
           (re.compile(r"\b(?:plan of a kernel|kernel plan)s?\b", re.I), "schedule"))
OTHER_WORDS = ("docs/GLOSSARY.md", "docs/decisions/", "tests/")
FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
TEST_LINES_MAX = 150  # a test with its table
COLUMNS_MAX = 120
PEOPLE_READ = (".c", ".h", ".def", ".py", ".sh", ".md", ".cmake", "CMakeLists.txt", ".service")
GENERATED = {"docs/RULES.md"}
# clang-format breaks a declaration between type and name, or before the dimensions, when the comment behind it is long
BROKEN = re.compile(r"^ +(?:const |struct |unsigned )*\w+(?: \w+)?(?: \*+)?\n +(?:\*?\w+)?(?:\[\w+\])*; */\*", re.M)

findings = []


def report(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def tracked():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    return [n for n in names if n and os.path.isfile(os.path.join(ROOT, n))]


def check_includes(path, text):
    """Who includes whom is checked by include_graph; here what no arrow says."""
    folder = os.path.dirname(path)
    if path.startswith("tests/"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include "(core/[a-z_]+\.h)"', line)
        if match and folder not in ("core", "core/long") and match.group(1) != "core/core.h":
            report(path, number, f"includes {match.group(1)}: only core/core.h is public")
    if folder != "core/poly" and re.search(r"#\s*include <isl/", text):
        report(path, 1, "isl belongs to core/poly alone")


def check_calls(path, code):
    pure = path.startswith("core/") and path not in MALLOC_OK
    for number, line in enumerate(code.split("\n"), 1):
        for name in BANNED + (IMPURE if pure else []):
            if re.search(rf"(?<![\w.>]){name}\s*\(", line):
                report(path, number, f"calls {name}" + (": core is a pure function" if name in IMPURE else ""))


def check_functions(path, code):
    start = None
    for number, line in enumerate(code.split("\n"), 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            limit = TEST_LINES_MAX if path.startswith("tests/") else FUNCTION_LINES_MAX
            if number - start - 1 > limit:
                report(path, start, f"function of {number - start - 1} lines, at most {limit}")
            start = None


def check_columns(path, text):
    """Tables and indented text of Markdown are as wide as what they show."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= path.endswith(".md") and line.startswith("```")
        shown = path.endswith(".md") and (fenced or line.startswith(("|", "    ")))
        if len(line) > COLUMNS_MAX and not shown and path not in GENERATED:
            report(path, number, f"{len(line)} columns, at most {COLUMNS_MAX}")


def check_words(path, text):
    if path.startswith(OTHER_WORDS):
        return
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, use in RETIRED:
            match = pattern.search(line)
            if match:
                report(path, number, f"'{match.group(0)}': docs/GLOSSARY.md has another word, {use}")


def check_declarations(path, text):
    for match in BROKEN.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        report(path, number, "a declaration broken between type and name: its comment belongs above it")


def check_planted():
    """The checks find what they are for, and pass what they should."""
    assertions.planted()
    argument_order.planted()
    for text, wanted in (("x" * 120 + "\n" + "x" * 121, 1), ("short", 0)):
        check_columns("planted.c", text)
        assert len(findings) == wanted, findings
        findings.clear()
    for text in ("    " + "x" * 121, "| " + "x" * 121, "```\n" + "x" * 121 + "\n```"):
        check_columns("planted.md", text)
        assert not findings, findings
    for text, wanted in (("a remembered e-graph", 1), ("a Semantic hit", 1), ("all legal kernels", 1),
                         ("the same program again", 0), ("what is known of programs", 0), ("a stored program", 0)):
        check_words("core/planted.c", text)
        assert len(findings) == wanted, (text, findings)
        findings.clear()
        check_words("docs/decisions/planted.md", text)
        assert not findings, findings
    broken = ("    bool\n        reused; /* its module */", "    const sx_dim *\n        known; /* all */",
              "    sx_dim stride\n        [SX_RANK_MAX]; /* elements */")
    for text in (*broken, "    /* its module */\n    bool reused;\n", "    SX_PART_COUNT\n} sx_part; /* all */"):
        check_declarations("planted.h", text)
        assert len(findings) == (text in broken), (text, findings)
        findings.clear()


def check_order(sources):
    for path, line, text in argument_order.find(sources):
        report(path, line, text)


def check_format(paths):
    if subprocess.run(["sh", "-c", "command -v clang-format"], capture_output=True).returncode != 0:
        findings.append("clang-format is not installed, formatting was not checked: run deploy/install-deps.sh")
        return
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], cwd=ROOT, capture_output=True, text=True)
    for line in result.stderr.split("\n"):
        if "error: code should be clang-formatted" in line:
            findings.append(line.split(" error:")[0] + " not formatted")


def main():
    check_planted()
    c_files, codes, tables = [], {}, []
    for path in tracked():
        if os.path.basename(path) in ("util.c", "util.h", "common.h", "common.c", "misc.c", "misc.h"):
            report(path, 1, "a name that says nothing")
        if not path.endswith(PEOPLE_READ):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        check_columns(path, text)
        check_words(path, text)
        if path.endswith(".md"):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if UNFINISHED.search(line) and not path.startswith("tests/"):
                report(path, number, "a word that marks unfinished work")
        if path.endswith(".def"):
            tables.append(text)
        if path.endswith((".c", ".h")):
            c_files.append(path)
            if text.count("\n") > FILE_LINES_MAX:
                report(path, 1, f"{text.count(chr(10))} lines, at most {FILE_LINES_MAX}")
            check_includes(path, text)
            check_declarations(path, text)
            code = codes[path] = assertions.without_comments_and_strings(text)
            check_calls(path, code)
            check_functions(path, code)
    check_order({path: code for path, code in codes.items() if not path.startswith("tests/")})
    check_format(c_files)
    findings.extend(assertions.findings(codes, "\n".join(tables)))
    findings.extend(assertions.marks(codes))
    findings.extend(include_graph.findings(include_graph.sources(), include_graph.drawn_arrows(),
                                           include_graph.CIRCLES))
    for line in findings:
        print(line)
    print(f"{len(c_files)} C files, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
