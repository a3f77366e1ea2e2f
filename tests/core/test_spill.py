#!/usr/bin/env python3
"""A program that keeps more values alive than AVX2 has registers compiles, says so and computes the right
thing. SX_TARGET: the instruction set; without it every one that this processor has."""
import json
import os
import subprocess
import sys
import tempfile

CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")
INPUTS = 15
SPILLED = {"x86-64-v3": True, "x86-64-v4": False}
TEST_SKIPPED = 77  # SX_TEST_SKIPPED of tests/lib/test.h


def program():
    """Two passes over the same values: none of them may be forgotten between the passes."""
    lines = ["sx 1", 'graph "wide" (batch in [1, 64]) {']
    count = 0

    def add(text):
        nonlocal count
        lines.append(f"    %{count} = {text} : f32[batch, 100]")
        count += 1
        return f"%{count - 1}"

    inputs = [add(f'parameter {{name = "p{i}", weight = 0}}') for i in range(INPUTS)]
    values = [add(f"tanh({x})") for x in inputs]
    total = values[0]
    for value in values[1:]:
        total = add(f"add({total}, {value})")
    result = values[-1]
    for value in reversed(values[:-1]):
        result = add(f"maximum({add(f'multiply({result}, {value})')}, {total})")
    return "\n".join(lines + [f'    return {result} as "y"', "}", ""])


def client(*arguments, allowed=(0,)):
    done = subprocess.run([CLIENT, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sets_of_processor():
    """Those that the product finds; an AVX-512 processor runs both."""
    found = json.loads(client("doctor", "--json", allowed=(0, 1)))["findings"]
    level = {f["name"]: f["detail"] for f in found}["isa"][:9]
    return {"x86-64-v4": ["x86-64-v3", "x86-64-v4"], "x86-64-v3": ["x86-64-v3"]}.get(level, [])


def main():
    here = sets_of_processor()
    target = os.environ.get("SX_TARGET")
    if target is not None and target not in here:
        print(f"SKIPPED: instruction set {target}: this processor has {' and '.join(here) or 'none of them'}")
        return TEST_SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "wide.sx")
        with open(source, "w", encoding="ascii") as file:
            file.write(program())
        for target in [target] if target else here:
            module = os.path.join(folder, target + ".sxm")
            client("compile", source, "--no-daemon", "--target", target, "--dim", "batch=8", "-o", module)
            said = "vectors on the stack" in client("explain", "--all", module)
            if said != SPILLED[target]:
                sys.exit(f"{target}: vectors on the stack: {said}, expected {SPILLED[target]}")
            client("run", module, "--random", "7", "--check")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
