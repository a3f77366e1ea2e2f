#!/usr/bin/env python3
"""The interface of libsymplex as binaries see it: which names it exports under which version, and sizes, offsets and
numbers of client/symplex.h as the compiler lays them out. Programs that were built against an earlier library break
where one of these changes, so each stands in a golden file, tests/golden/abi/symplex.txt, which is changed by
SX_GOLDEN=update in a commit that says why. The header is compiled as C99, C11 and C++11 besides."""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
HEADER = ROOT / "client" / "symplex.h"
GOLDEN = ROOT / "tests" / "golden" / "abi" / "symplex.txt"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declared(text):
    """The functions that the header declares."""
    return re.findall(r"SYMPLEX_API\s[^;(]*?\b(symplex_\w+)\s*\(", text)


def structures(text):
    """Name -> its fields in order, of the structures with a body."""
    out = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\n\}\s*(\w+);", text, re.S):
        fields = []
        for line in body.split(";"):
            pointer = re.search(r"\(\*(\w+)\)\(", line)
            if pointer:
                fields.append(pointer.group(1))
            elif line.strip():
                fields += [re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", one).group(1) for one in line.split(",")]
        out[name] = fields
    return out


def enumerators(text):
    return [name for body in re.findall(r"typedef enum \{(.*?)\}", text, re.S)
            for name in re.findall(r"\b(SYMPLEX_\w+)", body)]


def constants(text):
    return re.findall(r"^#define (SYMPLEX_\w+)[ \\\n]+\w", text, re.M)


def measured(text, folder):
    """Lines of a program that the compiler itself fills in."""
    lines = []
    for name, fields in structures(text).items():
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'printf("    {field} at %zu, %zu bytes\\n", offsetof({name}, {field}), '
                  f'sizeof((({name} *)0)->{field}));' for field in fields]
    for name in enumerators(text):
        lines.append(f'printf("enum {name} %d\\n", (int){name});')
    for name in constants(text):
        if name not in ("SYMPLEX_API", "SYMPLEX_H"):
            lines.append(f'printf("constant {name} %llu\\n", (unsigned long long)({name}));')
    source = folder / "measure.c"
    source.write_text('#include "%s"\n#include <stdio.h>\nint main(void)\n{\n%s\nreturn 0;\n}\n'
                      % (HEADER, "\n".join(lines)))
    run("gcc", "-std=c99", *WARNINGS, "-o", folder / "measure", source)
    return run(folder / "measure")


def exported():
    """Name@version of each symbol that the library defines for others, and the versions."""
    listing = run("nm", "-D", "--defined-only", "--with-symbol-versions", BUILD / "lib" / "libsymplex.so")
    return sorted(line.split()[-1] for line in listing.splitlines())


def soname():
    return re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-d", BUILD / "lib" / "libsymplex.so")).group(1)


def test_the_caller_is_not_forked():
    """A process of a compile is spawned: the caller may be large, have threads, or a GPU's context."""
    wanted = run("nm", "-D", "--undefined-only", BUILD / "lib" / "libsymplex.so")
    names = {line.split()[-1].split("@")[0] for line in wanted.splitlines()}
    assert "posix_spawn" in names and not names & {"fork", "vfork", "_Fork", "clone", "system", "popen"}, names


def test_the_interface_is_that_of_the_golden_file():
    text = without_comments(HEADER.read_text())
    with tempfile.TemporaryDirectory() as folder:
        layout = measured(text, pathlib.Path(folder))
    names = exported()
    found = f"soname {soname()}\n" + "".join(f"symbol {name}\n" for name in names) + layout
    if os.environ.get("SX_GOLDEN") == "update":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found)
    want = GOLDEN.read_text() if GOLDEN.exists() else ""
    difference = list(difflib.unified_diff(want.splitlines(), found.splitlines(), str(GOLDEN), "as built", lineterm=""))
    assert not difference, "the interface of libsymplex changed; SX_GOLDEN=update writes the file\n" + "\n".join(
        difference)


def test_every_declared_function_is_exported_and_nothing_else():
    names = {name.split("@")[0] for name in exported()}
    functions = set(declared(without_comments(HEADER.read_text())))
    versions = {name for name in names if re.fullmatch(r"SYMPLEX_\d+\.\d+", name)}
    assert len(functions) > 25 and versions, (functions, versions)
    assert names - versions == functions, names ^ functions ^ versions
    unversioned = [name for name in exported() if "@@" not in name and name not in versions
                   and not re.fullmatch(r"SYMPLEX_\d+\.\d+@*.*", name)]
    assert not unversioned, unversioned


def test_every_field_is_measured():
    """The reader of the header misses none: as many fields as the bodies have declarators."""
    found = structures(without_comments(HEADER.read_text()))
    assert found["symplex_dim"] == ["name", "value"], found["symplex_dim"]
    assert found["symplex_interval"] == ["name", "low", "high"], found["symplex_interval"]
    assert found["symplex_options"] == ["socket", "daemon", "message", "progress", "stop", "self"]
    assert found["symplex_tensor"][-2:] == ["bound", "alias"] and len(found) >= 14, found


def test_the_header_compiles_alone():
    with tempfile.TemporaryDirectory() as folder:
        for compiler, standard, name in (("gcc", "c99", "a.c"), ("gcc", "c11", "b.c"), ("g++", "c++11", "c.cpp"),
                                         ("g++", "c++20", "d.cpp")):
            source = pathlib.Path(folder, name)
            source.write_text(f'#include "{HEADER}"\nint main(void) {{ return symplex_version() == 0; }}\n')
            run(compiler, f"-std={standard}", *WARNINGS, "-c", "-o", f"{source}.o", source)


if __name__ == "__main__":
    for title, test in list(globals().items()):
        if title.startswith("test_"):
            test()
            print("ok", title)
    sys.exit(0)
