#!/usr/bin/env python3
"""Holds the documentation to the tree. usage: test_docs.py [--update]

Links and paths lead somewhere; each folder has a README; commands and options are those of `symplex-client
help`; figures and counts of docs/TESTING.md are right within a tenth (--update writes them anew); its fuzz
targets are those of the tree; every table of docs/PERFORMANCE.md and docs/perf names a benchmark and cases
that `symplex-bench list` knows; tests that docs/TESTING.md says catch a fault are there. SX_BINARY_DIR: the
build whose programs are asked (default build/release). Prints one line for each finding and exits 1 if there is any."""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("SX_BINARY_DIR", os.path.join(ROOT, "build", "release"))
# `folder/file.c` in backticks, below one of the folders of the tree
PATH = re.compile(r"`((?:core|protocol|cache|client|daemon|tests|deploy|docs|trust)/[A-Za-z0-9_./-]+)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
OFF_BY = 0.1  # figures that change with every commit may be off by this much, or by three

findings = []


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def lines_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")


def tracked():
    return [n for n in lines_of("git", "ls-files", "--cached", "--others", "--exclude-standard") if n
            and os.path.isfile(os.path.join(ROOT, n))]


# ---- links, paths, folders ----

def exists(path):
    """A file, a folder, or a program's source without its ending (tests are named so)."""
    full = os.path.join(ROOT, path)
    return any(os.path.exists(full + ending) for ending in ("", ".c", ".h", ".py", ".def"))


def check_paths(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for target in LINK.findall(line):
            if not os.path.exists(os.path.join(ROOT, os.path.dirname(path), target)):
                findings.append(f"{path}:{number}: link to {target}, which does not exist")
        for target in PATH.findall(line):
            if not exists(target.rstrip("/.")) and "NAME" not in target:
                findings.append(f"{path}:{number}: names {target}, which does not exist")


def check_drawing(text):
    """The way of a request in ARCHITECTURE.md: its files, written from the root or from core/."""
    for number, line in enumerate(text.split("\n"), 1):
        for name in re.findall(r"\b[a-z0-9]+/[a-z0-9_/]+\.[ch]\b", line):
            if not exists(name) and not exists("core/" + name):
                findings.append(f"docs/ARCHITECTURE.md:{number}: names {name}, which does not exist")


def check_folders(names):
    """Folders with sources have a README; below tests, which mirrors the tree, its own folders do."""
    folders = {os.path.dirname(n) for n in names if n.endswith((".c", ".h", ".def", ".py", ".sh", ".cmake"))}
    folders = {"/".join(f.split("/")[:2]) if f.startswith("tests/") else f for f in folders}
    for folder in sorted(folders - {"deploy/cmake"}):
        page = os.path.join(folder, "README.md")
        if not exists(page) or os.path.getsize(os.path.join(ROOT, page)) == 0:
            findings.append(f"{folder} has no README.md, or an empty one")


# ---- commands ----

def shown_commands(text):
    """Commands as a reader would type them: lines that are indented, with or without a prompt. Command name, words."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"    (?:\$ )?(?:build/\w+/bin/)?(symplex-client|symplex-bench) (\S.*)", line)
        if match:
            yield number, match.group(1), re.split(r"\s{2,}|;", match.group(2))[0].split()
        for name, words in re.findall(r"`(symplex-client|symplex-bench) ([^`]*)`", line):
            yield number, name, words.split()


def check_client(path, number, words, commands):
    plain = [w for w in words if not w.startswith("-")]
    known = commands.get(" ".join(plain[:2])) or commands.get(plain[0] if plain else "")
    if known is None:
        findings.append(f"{path}:{number}: symplex-client {' '.join(words)}: there is no such command")
        return
    for word in words:
        name = word.strip("[]").split("=")[0]
        if name.startswith("--") and name[2:] not in known:
            findings.append(f"{path}:{number}: symplex-client {plain[0]} takes no option {name}")


def check_bench(path, number, words, benches, usage):
    name = words[0]
    if name in ("NAME", "list"):
        return
    if name not in benches:
        findings.append(f"{path}:{number}: symplex-bench list knows no {name}")
        return
    for option, value in zip(words, words[1:] + [""]):
        option = option.strip("[]")
        if option.startswith("--") and option not in usage:
            findings.append(f"{path}:{number}: symplex-bench takes no option {option}")
        for case in value.strip("[]").split("|") if option == "--case" else []:
            if case != "CASE" and case not in benches[name]:
                findings.append(f"{path}:{number}: symplex-bench list knows no case {case} of {name}")


def known_commands():
    """Command of the client -> its options."""
    text = "\n".join(lines_of(os.path.join(BUILD, "bin", "symplex-client"), "help", "--json"))
    return {c["name"]: set(c["options"]) for c in json.loads(text)["commands"]}


def known_benches():
    """Bench -> its cases, as the program lists them."""
    benches = {}
    for line in lines_of(os.path.join(BUILD, "bin", "symplex-bench"), "list"):
        if line.startswith("      "):
            benches[name].append(line.strip())
        elif line.strip():
            name = line.split()[0]
            benches[name] = []
    return benches


# ---- tables of PERFORMANCE.md ----

def check_tables(page, text, benches):
    """A table with the columns bench and case names them in each row; above any other stands the command that
    makes it."""
    command = None
    header = None
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{page}:{number}"
        if line.startswith("#"):
            command = None
        for words in re.findall(r"`(?:\./build/release/bin/)?symplex-bench ([^`]*)`", line):
            command = words.split()
        if not line.startswith("|"):
            header = None
            continue
        cells = [c.strip() for c in line.strip("|").split("|")]
        if header is None:
            header = cells
            if header[:2] != ["bench", "case"] and (command is None or command[0] not in benches):
                findings.append(f"{place}: no command of symplex-bench above this table")
        elif set(line) <= set("|-: "):
            continue
        elif header[:2] == ["bench", "case"]:
            case = re.split(r"[,:]", cells[1])[0]
            if case not in benches.get(cells[0], []):
                findings.append(f"{place}: symplex-bench list knows no case {case} of {cells[0]}")
        elif command and (header[0], command[0]) in (("case", command[0]), ("program", "search"), ("file", "extract")):
            case = re.split(r"[,:]", cells[0])[0]
            if case and case not in benches.get(command[0], []):
                findings.append(f"{place}: symplex-bench list knows no case {case} of {command[0]}")


# ---- figures of TESTING.md ----

def count_lines(names, wanted):
    return sum(read(n).count("\n") for n in names if wanted(n))


def is_source(name):
    return name.endswith((".c", ".h", ".def", ".py", ".sh"))


def count_entries(label):
    for line in lines_of("ctest", "--test-dir", BUILD, "-N", "-L", f"^{label}$"):
        if line.startswith("Total Tests:"):
            return int(line.split(":")[1])
    return 0


def figures(names):
    """First cell of a row -> its figure."""
    cases = [n for n in names if n.startswith("tests/") and n.endswith(".c")]
    out = {
        "test cases in C": sum(len(re.findall(r"^START_TEST", read(n), re.M)) for n in cases),
        "lines of the product": count_lines(names, lambda n: is_source(n) and not n.startswith("tests/")),
        "lines of tests": count_lines(names, lambda n: is_source(n) and n.startswith("tests/")),
    }
    for label in ("unit", "slow", "script", "fuzz", "frameworks"):
        out[f"`{label}`"] = count_entries(label)
    return out


def check_figures(text, true, update):
    """Rows "| name | ... | figure |" or "| name | figure | how |". Returns the text with the figures written
    anew where asked."""
    out, seen = [], set()
    for line in text.split("\n"):
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else []
        name = cells[0] if len(cells) == 3 else None
        if name in true:
            seen.add(name)
            at = 2 if name.startswith("`") else 1
            said = int(re.sub(r"[^0-9]", "", cells[at]) or 0)
            if update:
                cells[at] = f"{true[name]:,}"
                line = "| " + " | ".join(cells) + " |"
            elif abs(said - true[name]) > max(3, OFF_BY * true[name]):
                findings.append(f"docs/TESTING.md: {name} is {true[name]:,}, not {said:,}: "
                                f"tests/tools/test_docs.py --update")
        out.append(line)
    findings.extend(f"docs/TESTING.md: no row of {name}" for name in sorted(set(true) - seen))
    return "\n".join(out)


def check_fuzz_targets(text, names):
    listed = set(re.findall(r"^\| `(fuzz_\w+)` \|", text, re.M))
    there = {os.path.basename(n)[:-2] for n in names if re.match(r"tests/fuzz/fuzz_\w+\.c$", n)}
    findings.extend(f"docs/TESTING.md: no row of {n}" for n in sorted(there - listed))
    findings.extend(f"docs/TESTING.md: {n} is no file of tests/fuzz" for n in sorted(listed - there))


def file_of_test(name):
    """Path of a test that is named as a path, with or without tests/ and its ending, or as ctest names it; None."""
    name = re.sub(r"\.x86-64-v[34]$", "", name)
    for path in (name, "tests/" + name, "tests/" + name.replace(".", "/")):
        for ending in ("", ".c", ".py", ".sh"):
            if os.path.exists(os.path.join(ROOT, path + ending)):
                return path + ending
    return None


def section(text, title):
    return text.split(f"\n## {title}\n")[-1].split("\n## ")[0] if f"\n## {title}\n" in text else ""


def check_tests_named(text):
    """The column of tests in both tables: each names a file or folder; a name test_x that is no file stands in
    a file of its row."""
    for title in ("Layers and oracles", "Planted faults"):
        rows = [line for line in section(text, title).split("\n") if line.startswith("|")][2:]
        if not rows:
            findings.append(f"docs/TESTING.md: no table below {title}")
        for row in rows:
            names = re.findall(r"`([^`]+)`", row.strip("|").split(" | ")[1])
            files = [f for f in map(file_of_test, names) if f is not None]
            if not files:
                findings.append(f"docs/TESTING.md: {title}: no test of the tree in: {row}")
                continue
            beside = [os.path.dirname(f) for f in files]
            sources = "\n".join(read(f) for f in files if os.path.isfile(os.path.join(ROOT, f)))
            for name in names:
                known = file_of_test(name) or any(file_of_test(f"{folder}/{name}") for folder in beside)
                if re.match(r"test_\w+$", name) and not known and not re.search(rf"\b{name}\b", sources):
                    findings.append(f"docs/TESTING.md: {title}: {name} is neither a file nor in {', '.join(files)}")


def check_settings(text):
    """SX_NAME in TESTING.md is read by some program or script."""
    sources = lines_of("git", "grep", "--untracked", "-hoE", r"\bSX_[A-Z_]+\b", "--", "tests", "deploy",
                       "core/base", "CMakeLists.txt")
    for name in sorted(set(re.findall(r"\bSX_[A-Z_]+\b", text)) - set(sources)):
        findings.append(f"docs/TESTING.md: {name} is read nowhere")


def main():
    names = tracked()
    pages = [n for n in names if n.endswith(".md")]
    commands, benches = known_commands(), known_benches()
    usage = "\n".join(lines_of(os.path.join(BUILD, "bin", "symplex-bench"), "--help"))
    for page in pages:
        text = read(page)
        check_paths(page, text)
        for number, program, words in shown_commands(text):
            if program == "symplex-client":
                check_client(page, number, words, commands)
            else:
                check_bench(page, number, words, benches, usage)
    check_drawing(read("docs/ARCHITECTURE.md"))
    check_folders(names)
    for page in pages:
        if page == "docs/PERFORMANCE.md" or page.startswith("docs/perf/"):
            check_tables(page, read(page), benches)
    testing = read("docs/TESTING.md")
    check_settings(testing)
    check_fuzz_targets(testing, names)
    check_tests_named(testing)
    update = "--update" in sys.argv[1:]
    written = check_figures(testing, figures(names), update)
    if update and written != testing:
        with open(os.path.join(ROOT, "docs/TESTING.md"), "w", encoding="utf-8") as file:
            file.write(written)
    for line in findings:
        print(line)
    print(f"{len(pages)} pages, {len(findings)} findings")
    return 1 if findings or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
