#!/usr/bin/env python3
"""A module is the same bytes whether the machine that made it has the instructions or not, but for the word in
its record that says how its code was run; without them it does not run, and the error names what it needs and
what is there. A module for several levels runs the best code that the machine has.
SX_TARGET: the instruction set; without it every one that this processor has."""
import json
import os
import struct
import subprocess
import sys
import tempfile

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
GOLDEN = os.path.join(os.environ["SX_SOURCE_DIR"], "tests", "golden")
PROGRAMS = {  # kernels of every kind: contractions, rows, maps, packs, attention, windows
    "ir/mlp.sx": ["batch=8"],
    "egraph/encoder_block.sx": ["batch=2"],
    "egraph/softmax.sx": ["batch=2"],
    "egraph/conv_norm_relu.sx": ["batch=2"],
    "egraph/layer_norm_1.sx": ["batch=2"],
}
CHECKS = 10  # number of the section with the record (protocol/module.h)
TEST_SKIPPED = 77  # SX_TEST_SKIPPED of tests/lib/test.h
BELOW = {"x86-64-v3": "none", "x86-64-v4": "x86-64-v3"}


def client(*arguments, hidden=None, expect=0):
    environment = dict(os.environ)
    if hidden is not None:
        environment["SYMPLEX_ISA_MAX"] = hidden
    done = subprocess.run([CLIENT, *arguments], capture_output=True, text=True, timeout=300, check=False,
                          env=environment)
    if done.returncode != expect and expect is not None:
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}")
    return done.stdout or done.stderr


def sections(path):
    """{kind: payload}"""
    with open(path, "rb") as file:
        data = file.read()
    found = {}
    for i in range(struct.unpack_from("<I", data, 12)[0]):
        kind, _, offset, size = struct.unpack_from("<IIQQ", data, 64 + 40 * i)
        found[kind] = data[offset:offset + size]
    return found


def records(path):
    return json.loads(client("explain", path, "--json"))["checks"]


def compare(folder, name, dims, target):
    source = os.path.join(GOLDEN, name)
    made = {}
    for how, hidden in (("executed", None), ("emulated", BELOW[target])):
        made[how] = os.path.join(folder, how + ".sxm")
        options = [word for dim in dims for word in ("--dim", dim)]
        client("compile", source, "--no-daemon", "--target", target, *options, "-o", made[how], hidden=hidden)
        found = records(made[how])
        ran = [check for check in found if check["passed"]]
        if not ran or any(check["code"] != how for check in ran):
            sys.exit(f"{name} {target}: {how}, but the record says {found}")
    one, two = (sections(made[how]) for how in ("executed", "emulated"))
    different = [kind for kind in sorted(one.keys() | two.keys()) if one.get(kind) != two.get(kind)]
    if different != [CHECKS]:
        sys.exit(f"{name} {target}: sections {different} differ, expected {[CHECKS]} alone")
    texts = [[{**check, "code": ""} for check in records(made[how])] for how in ("executed", "emulated")]
    if texts[0] != texts[1]:
        sys.exit(f"{name} {target}: emulated numbers differ\n{texts[0]}\n{texts[1]}")
    return made["executed"]


def checked(module, target):
    """The code of any module can be verified on any machine."""
    for how, hidden in (("executed", None), ("emulated", BELOW[target])):
        said = client("verify", module, hidden=hidden)
        if f"verified   again just now ({how})" not in said:
            sys.exit(f"verify of {target} should be {how}: {said}")


WIDE = """sx 1
graph "wide" () {
%x = parameter {name = "x", weight = 0} : f32[320, 1024]
%w = parameter {name = "w", weight = 1} : f32[1024, 320]
%y = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[320, 320]
return %y as "y"
}
"""


def to_the_end(folder, target):
    """More instructions than the emulator runs of one launch: a part, and with --all every point of the grid. A part
    says that the outputs were not compared, and those of the optimised program neither: nothing is executed here."""
    source, module = (os.path.join(folder, name) for name in ("wide.sx", "wide.sxm"))
    n = {"x86-64-v3": 320, "x86-64-v4": 512}[target]
    with open(source, "w") as file:
        file.write(WIDE.replace("320", str(n)))
    client("compile", source, "--no-daemon", "--target", target, "-o", module)
    for options, left_out in (([], 2), (["--all"], 0)):
        said = json.loads(client("verify", module, "--json", *options, hidden="none"))
        assert said["emulated"] and said["left_out"] == left_out, said
        whole = [check for check in said["checks"] if check["elements"] == n * n]
        assert len(whole) == (1 if left_out == 0 else 0) and said["seed"] == 1, said


def warned_once(folder, target):
    """What the record says of each extent of an interval is one warning, that says how often."""
    source, module = (os.path.join(folder, name) for name in ("tall.sx", "tall.sxm"))
    with open(source, "w") as file:
        wide = WIDE.replace('"wide" ()', '"tall" (n in [1, 4096])')
        file.write(wide.replace("320, 1024", "n, 1024").replace("320, 320", "n, 320").replace("320", "512"))
    said = client("compile", source, "--no-daemon", "--target", target, "--dim", "n=512..528", "-o", module,
                  hidden="none")
    warnings = [line for line in said.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and warnings[0].endswith("a part only (3 times)"), said


def refused(module, target):
    said = client("run", module, "--random", "1", hidden=BELOW[target], expect=None)
    wanted = [f"module is for {target}", "this processor executes", "doctor"]
    if BELOW[target] != "none":
        wanted.append(BELOW[target])
    if any(word not in said for word in wanted):
        sys.exit(f"run of {target} where there is {BELOW[target]}: {said}")


def outputs(module, hidden, folder):
    """Name of the variant that ran, and the bytes of its output."""
    ran = json.loads(client("run", module, "--random", "7", "--check", "--output", folder, "--json", "-n", "1", "--dim",
                            "batch=8", hidden=hidden))
    assert ran["check"]["passed"] and ran["extents"] == {"batch": 8}, ran
    variants = json.loads(client("module", "show", module, "--json"))["variants"]
    chosen = [v for v in variants if v["name"] == ran["variant"]]
    assert len(chosen) == 1 and len(ran["launches"]) == chosen[0]["launches"], ran
    data = b""
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            data += file.read()
    assert data
    return ran["variant"], data


def several(folder, target):
    """One module for both levels: each machine runs its own code, and gets the bits of a module for it alone."""
    source = os.path.join(GOLDEN, "ir/mlp.sx")
    both, turned, alone = (os.path.join(folder, name + ".sxm") for name in ("both", "turned", "alone"))
    for path, names in ((both, "x86-64-v3,x86-64-v4"), (turned, "x86-64-v4,x86-64-v3"), (alone, target)):
        client("compile", source, "--no-daemon", "--target", names, "--dim", "batch=2,8", "-o", path, hidden=target)
    assert sections(both) == sections(turned), "the order of names matters"
    shown = json.loads(client("module", "show", both, "--json"))
    assert shown["target"] == "x86-64-v3,x86-64-v4" and shown["level"] == "x86-64-v3", shown
    assert [v["name"] for v in shown["variants"]] == ["batch=2 x86-64-v4", "batch=8 x86-64-v4", "batch=2 x86-64-v3",
                                                      "batch=8 x86-64-v3"], shown["variants"]
    guard = {"kind": "machine", "architecture": "x86-64", "level": "x86-64-v4"}
    assert [guard in v["guards"] for v in shown["variants"]] == [True, True, False, False], shown["variants"]
    for level in ("x86-64-v3", "x86-64-v4"):  # every variant was compared as a whole, and how its code was run is told
        whole = [check for check in records(both) if f"{level}: program as sent, all outputs" in check["name"]]
        how = "executed" if level <= target else "emulated"
        assert len(whole) == 2 and all(check["passed"] and check["code"] == how for check in whole), whole
    variant, data = outputs(both, target, os.path.join(folder, "of_both"))
    assert variant == "batch=8 " + target, variant
    assert data == outputs(alone, target, os.path.join(folder, "of_one"))[1], "other bits"
    said = client("run", both, "--random", "1", "--dim", "batch=8", hidden="none", expect=None)
    assert "module is for x86-64-v3" in said and "no target" in said, said
    assert "verified   again just now" in client("verify", both, hidden=target)


def wrong_lists():
    source = os.path.join(GOLDEN, "ir/mlp.sx")
    for names, part in (("x86-64-v3,", "a name between commas is empty"), ("x86-64-v3,x86-64-v3", "stands there twice"),
                        ("x86-64-v3,h100", "h100"), ("x86-64-v3,z80", "'z80' is unknown"),
                        (",".join(f"t{i}" for i in range(17)), "17 targets, at most 16")):
        said = client("compile", source, "--no-daemon", "--target", names, "--dim", "batch=2", "-o", os.devnull,
                      expect=None)
        assert part in said, (names, said)
    said = client("optimize", source, "--no-daemon", "--target", "x86-64-v3,x86-64-v4", "-o", os.devnull, expect=None)
    assert "only compile takes several" in said, said


def main():
    findings = json.loads(client("doctor", "--json", expect=None) or "{}")
    level = {f["name"]: f["detail"] for f in findings.get("findings", [])}.get("isa", "")[:9]
    here = {"x86-64-v4": ["x86-64-v3", "x86-64-v4"], "x86-64-v3": ["x86-64-v3"]}.get(level, [])
    target = os.environ.get("SX_TARGET")
    if target is not None and target not in here:
        print(f"SKIPPED: instruction set {target}: this processor has {' and '.join(here) or 'none of them'}")
        return TEST_SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        for target in [target] if target else here:
            for name, dims in PROGRAMS.items():
                module = compare(folder, name, dims, target)
            checked(module, target)
            refused(module, target)
            several(folder, target)
            to_the_end(folder, target)
            if target == "x86-64-v4":
                warned_once(folder, target)
    wrong_lists()
    print("ok")
    return 0


sys.exit(main())
