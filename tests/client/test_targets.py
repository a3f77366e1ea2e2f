#!/usr/bin/env python3
"""A module is the same bytes whether the machine that made it has the instructions or not, but for the word in
its record that says how its code was run; without them it does not run, and the error names what it needs and
what is there. SX_TARGET: the instruction set; without it every one that this processor has."""
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
        said = client("module", "check", "--code", module, hidden=hidden)
        if f"verified again just now ({how})" not in said:
            sys.exit(f"module check --code of {target} should be {how}: {said}")


def refused(module, target):
    said = client("run", module, "--random", "1", hidden=BELOW[target], expect=None)
    wanted = [f"module is for {target}", "this processor executes", "doctor"]
    if BELOW[target] != "none":
        wanted.append(BELOW[target])
    if any(word not in said for word in wanted):
        sys.exit(f"run of {target} where there is {BELOW[target]}: {said}")


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
    print("ok")
    return 0


sys.exit(main())
