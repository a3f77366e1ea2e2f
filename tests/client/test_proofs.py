#!/usr/bin/env python3
"""Every golden program and every model: optimised by the client, with a proof that holds between what went in
and what came out."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = os.path.join(os.environ["SX_BINARY_DIR"], "bin", "symplex-client")


def sx(*arguments, status=0):
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done.stdout


def prove(source, folder, *options):
    better, proof = folder / "better.sx", folder / "proof"
    sx("optimize", source, "--no-daemon", "-o", better, "--proof", proof, *options)
    placed = source.suffix == ".sx" and "mesh" in source.read_text()  # placements come back after the proof
    again = [] if source.suffix != ".sx" else ["--from", source]
    again += [] if placed else ["--to", better]
    shown = json.loads(sx("prove", proof, *again, "--json"))
    assert shown["holds"] and shown["parts"] > 0, (source, shown)
    return shown["steps"]


def test_golden(folder):
    steps = {}
    for source in sorted((ROOT / "tests" / "golden").rglob("*.sx")):
        dims = [f"--dim={name}={high}" for name, high in re.findall(r"(\w+) in \[\d+, (\d+)\]", source.read_text())]
        if source.name == "collectives.sx":  # of one rank among several
            sx("optimize", source, "--no-daemon", "-o", folder / "none.sx", *dims, status=4)
            continue
        steps[source.name] = prove(source, folder, *dims)
        prove(source, folder, *dims, "--exact")
    assert len(steps) >= 20 and sum(1 for count in steps.values() if count > 0) > len(steps) / 2, steps


def test_bodies(folder):
    """A proof says how many programs inside regions it has no steps for, and holds for none that differ."""
    source, proof = ROOT / "tests" / "golden" / "ir" / "regions.sx", folder / "proof"
    sx("optimize", source, "--no-daemon", "-o", folder / "better.sx", "--proof", proof, "--dim=batch=2")
    assert json.loads(sx("prove", proof, "--json"))["bodies"] == {"programs": 7, "operations": 9}
    assert "7 programs with 9 operations, the same before and after" in sx("prove", proof)
    text = proof.read_text()
    for body, other in (("add(%1, %1)", "multiply(%1, %1)"), ("subtract(%0, %1)", "add(%0, %1)"),
                        ("maximum(%0, %1)", "minimum(%0, %1)"), ("direction = lt", "direction = le")):
        head, rest = text.split("\noutput ", 1)
        size, rest = rest.split("\n", 1)
        before, after = rest[:int(size)].rsplit(body, 1)
        program = before + other + after
        proof.write_text(f"{head}\noutput {len(program)}\n{program}{rest[int(size):]}")
        done = subprocess.run([CLIENT, "prove", proof], capture_output=True, text=True, timeout=120)
        assert done.returncode == 4 and "output '" in done.stderr, (body, done.stderr)
    plain = ROOT / "tests" / "golden" / "egraph" / "softmax.sx"
    sx("optimize", plain, "--no-daemon", "-o", folder / "better.sx", "--proof", proof)
    assert json.loads(sx("prove", proof, "--json"))["bodies"] == {"programs": 0, "operations": 0}
    assert "bodies" not in sx("prove", proof)


def test_models(folder):
    models = sorted((ROOT / "tests" / "models").glob("*.onnx"))
    for source in models:
        assert prove(source, folder, "--dim=batch=2") > 0, source
    assert len(models) >= 3


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for title, function in list(globals().items()):
            if title.startswith("test_"):
                function(pathlib.Path(name))
                print(title)
