#!/usr/bin/env python3
"""The table of rules in docs/RULES.md has the rows of the program at hand, and the prover of
tests/tools/prove_rules.py refuses what it should: a proof from assumptions that nothing satisfies, and a
difference in any one element."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import prove_rules  # noqa: E402

HEAD = 'sx 1\ngraph "pair" {\n'


def proof(body, rule_class="reassociating"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pair.sx")
        with open(path, "w", encoding="utf-8") as out:
            out.write(HEAD + body + '\n    return %l as "left", %r as "right"\n}\n')
        prove_rules.TERMS.clear()
        return prove_rules.prove(path, rule_class)


def test_rows_are_those_of_the_program():
    client = os.path.join(os.environ.get("SX_BINARY_DIR", "build/dev"), "bin", "symplex-client")
    rules = json.loads(subprocess.run([client, "rules", "--json"], check=True, capture_output=True).stdout)["rules"]
    with open(ROOT / "docs" / "RULES.md", encoding="utf-8") as file:
        lines = file.read().splitlines()
    rows = [line for line in lines if line.startswith("| ")][1:]
    wanted = [prove_rules.row(rule, "") for rule in rules]
    assert len(rows) == len(wanted), \
        f"docs/RULES.md has {len(rows)} rules, the program {len(wanted)}: prove_rules.py --write docs/RULES.md"
    for found, made in zip(rows, wanted):
        assert found.startswith(made[:-len(" |")]), \
            f"docs/RULES.md has drifted, prove_rules.py --write docs/RULES.md:\n{found}\n{made}"
    proved = sum("| proved: " in row for row in rows)
    assert any(line.startswith(f"{proved} of {len(rows)} rules are proved so") for line in lines), proved


def test_proofs_from_nothing_are_refused():
    """The divisor is zero for every argument: that it is not would prove anything."""
    nothing = """    %x = parameter {name = "x", weight = 0} : f32[2]
    %z = subtract(%x, %x) : f32[2]
    %l = divide(%x, %z) : f32[2]
    %r = negate(%l) : f32[2]"""
    outcome, _, _, why = proof(nothing)
    assert outcome == "vacuous" and "satisfies" in why, (outcome, why)
    negative = """    %x = parameter {name = "x", weight = 0} : f32[2]
    %q = multiply(%x, %x) : f32[2]
    %n = negate(%q) : f32[2]
    %l = rsqrt(%n) : f32[2]
    %r = multiply(%l, %x) : f32[2]"""
    outcome, _, _, why = proof(negative)
    assert outcome == "vacuous", (outcome, why)


def test_assumptions_that_hold_somewhere_prove():
    quotient = """    %x = parameter {name = "x", weight = 0} : f32[3]
    %y = parameter {name = "y", weight = 0} : f32[3]
    %p = multiply(%x, %y) : f32[3]
    %l = divide(%p, %y) : f32[3]
    %r = multiply(%x, %one) : f32[3]"""
    quotient = quotient.replace("    %r", "    %one = constant {data = 1} : f32[3]\n    %r")
    assert proof(quotient) == ("reals", 3, 3, None), proof(quotient)
    roots = """    %x = parameter {name = "x", weight = 0} : f32[2]
    %s = rsqrt(%x) : f32[2]
    %l = multiply(%x, %s) : f32[2]
    %r = sqrt(%x) : f32[2]"""
    assert proof(roots) == ("reals", 2, 2, None), proof(roots)


def test_every_element_is_compared():
    """Twenty elements, the same but for one; the one is last, first, and in between."""
    for at in (0, 7, 19):
        body = """    %%x = parameter {name = "x", weight = 0} : f32[20]
    %%a = slice(%%x) {start = [0], limit = [%d], stride = [1]} : f32[%d]
    %%b = slice(%%x) {start = [%d], limit = [%d], stride = [1]} : f32[1]
    %%c = slice(%%x) {start = [%d], limit = [20], stride = [1]} : f32[%d]
    %%n = negate(%%b) : f32[1]
    %%j = concatenate(%s) {axis = 0} : f32[20]
    %%l = add(%%x, %%x) : f32[20]
    %%r = add(%%x, %%j) : f32[20]""" % (at, at, at, at + 1, at + 1, 19 - at,
                                        ", ".join((["%a"] if at > 0 else []) + ["%n"] + (["%c"] if at < 19 else [])))
        lines = [line for line in body.split("\n") if "f32[0]" not in line]
        for rule_class in ("exact", "reassociating"):
            outcome, _, count, _ = proof("\n".join(lines), rule_class)
            assert outcome == "counterexample" and count == 20, (at, rule_class, outcome, count)


if __name__ == "__main__":
    for title, function in list(globals().items()):
        if title.startswith("test_"):
            function()
            print(title)
