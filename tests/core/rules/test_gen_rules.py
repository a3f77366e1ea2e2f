#!/usr/bin/env python3
"""A rule table with an error in it ends the build: the program that writes the parsed rules while the project
is built refuses such a row, names it, and the library of the rules depends on what it writes."""

import os
import subprocess
import sys

BUILD = os.environ["SX_BINARY_DIR"]
PROGRAM = os.path.join(BUILD, "bin", "sx_gen_rules")
if not os.path.exists(PROGRAM):
    PROGRAM = os.path.join(BUILD, "sx_gen_rules")

BAD = [  # left side, right side, word of the message
    ("(addd ?a ?b)", "?a", "addd"),
    ("(add ?a ?b)", "?c", "c"),
    ("(add ?a ?b", "?a", "column"),
    ("(add ?a ?b ?c)", "?a", "more operands"),
    ("(add ?a ?b)", "(add ?a)", "fewer operands"),
    ("(transpose ?a)", "(transpose ?a)", "without its attributes"),
    ("(transpose@p ?a)", "(reshape@p ?a)", "another operation"),
    ("(exponential (compare ?a ?b))", "?a", "no element type fits"),
    ("(compare ?a ?b)", "(exponential ?a)", "no element type fits"),
    ("(select (negate ?a) ?b ?c)", "?b", "no element type fits"),
    ("(gather ?x (tanh ?i))", None, "no element type fits"),
]
GOOD = [
    ("(select (compare ?a ?b) (add ?a 0.5) ?a)", "?a"),
    ("(gather (concatenate ...) ?i)", None),
    ("(*any ...)", None),
]


def row(left, right):
    done = subprocess.run([PROGRAM, "some-rule", left] + ([right] if right else []), capture_output=True, text=True)
    return done.returncode, done.stderr


for left, right, word in BAD:
    status, text = row(left, right)
    assert status == 1, f"{left} -> {right} is accepted: {text}"
    assert "some-rule" in text and word in text, f"{left} -> {right}: {text}"
for left, right in GOOD:
    status, text = row(left, right)
    assert status == 0, f"{left} -> {right} is refused: {text}"

done = subprocess.run([PROGRAM], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
with open(os.path.join(BUILD, "generated", "rules_parsed.c")) as file:
    assert file.read() == done.stdout, "what was built is what the table says"

ninja = os.path.join(BUILD, "build.ninja")
if os.path.exists(ninja):
    with open(ninja) as file:
        text = file.read()
    at = text.index("build generated/rules_parsed.c")
    assert "sx_gen_rules" in text[at:at + 2000].split("\n\n")[0], "the tables are written by this program"
print(f"{len(BAD)} bad rows are refused")
sys.exit(0)
