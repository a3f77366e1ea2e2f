#!/usr/bin/env python3
"""Holds the documentation to the tree: links and paths in Markdown files lead somewhere, every setting and label named in TESTING.md exists. Prints one line for each finding and exits 1 if there is any."""
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# `folder/file.c` in backticks, below one of the folders of the tree
PATH = re.compile(r"`((?:core|protocol|cache|client|daemon|tests|deploy|docs)/[A-Za-z0-9_./-]+)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")

findings = []


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


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


def check_settings():
    """SX_NAME in TESTING.md is read by some program or script."""
    sources = subprocess.run(["git", "grep", "-hoE", r"\bSX_[A-Z_]+\b", "--", "tests", "deploy", "core/base", "CMakeLists.txt"], cwd=ROOT,
                             check=True, capture_output=True, text=True).stdout.split()
    for name in sorted(set(re.findall(r"\bSX_[A-Z_]+\b", read("docs/TESTING.md"))) - set(sources)):
        findings.append(f"docs/TESTING.md: {name} is read nowhere")


def main():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    pages = [n for n in names if os.path.isfile(os.path.join(ROOT, n))]
    for page in pages:
        check_paths(page, read(page))
    check_settings()
    for line in findings:
        print(line)
    print(f"{len(pages)} pages, {len(findings)} findings")
    return 1 if findings or not pages else 0


sys.exit(main())
