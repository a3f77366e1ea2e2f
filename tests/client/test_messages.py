#!/usr/bin/env python3
"""What symplex-client says to somebody who is new: help of a group of commands, output that cannot be written, and
refusals in which the user finds the file, the tensor or the operation that he named himself."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))
import make_models as onnx  # noqa: E402

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxmsg."))
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")


def sx(*arguments, status=0, program="symplex-client", **more):
    more.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run([str(BINARY / program), *map(str, arguments)], stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False, cwd=TMP, env=dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock")), **more)
    assert done.returncode == status, (arguments, done)
    return done


def refused(says, status, *arguments):
    done = sx(*arguments, status=status)
    assert done.stderr.startswith("symplex-client: ") and says in done.stderr, (says, done)
    return done.stderr


def npy(name, descr, payload, order="False", shape="(8, 784)"):
    head = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    (TMP / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + payload)
    return name


def test_help_of_groups():
    commands = {c["name"] for c in json.loads(sx("help", "--json").stdout)["commands"]}
    groups = {name.split()[0] for name in commands if " " in name}
    assert {"cache", "module", "plot", "ptx", "search"} <= groups
    for group in sorted(groups):
        of_group = {name for name in commands if name.startswith(group + " ")}
        for asked in (("help", group), (group, "--help")):
            lines = sx(*asked).stdout.splitlines()
            assert of_group == {" ".join(line.split()[:2]) for line in lines if line.startswith("  " + group)}, lines
        if group not in commands:
            value = json.loads(sx("help", group, "--json").stdout)
            assert of_group == {c["name"] for c in value["commands"]}, value
            refused("behind '%s' comes one of: " % group, 2, group)  # without a wish for help it is a mistake


def test_output_that_does_not_arrive():
    asked = [("symplex-client", *words) for words in (("help",), ("--help",), ("help", "man"), ("compile", "--help"),
                                                      ("cache", "--help"), ("version",), ("rules",))]
    asked += [("symplexd", word) for word in ("--help", "--version", "--print-config")]
    for program, *words in asked:
        with open("/dev/full", "wb") as full:
            assert "standard output" in sx(*words, program=program, status=4, stdout=full).stderr, words


def test_words_that_are_near_none():
    assert "nearest" not in refused("has no option --bogus", 2, "compile", MLP, "--bogus")
    assert "at most 1 argument;" in refused("'more' is one too many", 2, "run", "a.sxm", "more")


def test_options_that_do_not_go_together():
    for dims in ("batch=8,16",), ("batch=1..16",), ("batch=8", "-d", "batch=16"):
        refused("--dim batch: tune measures one value", 2, "tune", MLP, "--dim", *dims)
    for command in ("compile", MLP, "--no-daemon", "-d", "batch=2", "-o", "no.sxm"), ("egraph", MLP):
        refused("exact and approximate exclude each other", 4, *command, "--exact", "--approximate")
    refused("reference: tensors of more than 1024 bytes alive at once", 4, "run", "good.sxm", "-r", "1", "--check",
            "--verify-memory", "1K")


def test_inputs_of_run():
    array = npy("x.npy", "'<f4'", bytes(4 * 8 * 784))
    run = ["run", "good.sxm", "--input"]
    sx(*run, "x=" + array)
    refused("--input x=: not of the form NAME=FILE.npy", 2, *run, "x=")
    refused("--input x=x.npy: a second file for the same name", 2, *run, "x=" + array, "--input", "x=" + array)
    npy("big.npy", "'>f4'", bytes(4 * 8 * 784))
    assert "astype" in refused("big.npy: element type '>f4'; read are", 4, *run, "x=big.npy")
    npy("rows.npy", "[('a', '<f4'), ('b', '<f4')]", bytes(8 * 8 * 784))
    refused("rows.npy: element type [('a', '<f4'), ('b', '<f; read are", 4, *run, "x=rows.npy")
    npy("turned.npy", "'<f4'", bytes(4 * 8 * 784), order="True")
    assert "numpy.ascontiguousarray" in refused("turned.npy: not in C order", 4, *run, "x=turned.npy")


def test_modules_are_named():
    good = (TMP / "good.sxm").read_bytes()
    (TMP / "state.sx").write_text((ROOT / "tests" / "golden" / "ir" / "state.sx").read_text())
    sx("compile", "state.sx", "--no-daemon", "-o", "state.sxm")
    refused("state \"w\" is kept from run to run: its launches", 4, "determinism", "state.sxm")
    for what, made in (("not a module", b"x" + good[1:]), ("header says", good[:20000]),
                       ("checksum differs", good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])):
        (TMP / "bad.sxm").write_bytes(made)
        for command in (("run",), ("verify",), ("determinism",), ("explain",), ("module", "check")):
            assert "bad.sxm: " in refused(what, 4, *command, "bad.sxm"), command


def test_models_are_named():
    model, square = onnx.Model("vast", 1), [1 << 20, 1 << 20]
    model.node("MatMul", ["x", "x"], "y")
    (TMP / "vast.onnx").write_bytes(model.finish([("x", square)], [("y", square)]))
    refused("dot_general of f32[1048576, 1048576], f32[1048576, 1048576]: ", 4, "compile", "vast.onnx", "--no-daemon")
    text = "sx 1\ngraph \"g\" {\n    %0 = parameter {name = \"x\"} : f32[4]\n    return %0 as \"y\"\n}\n"
    (TMP / "text.sx").write_text(text)
    refused("node 0 (\"x\"): parameter: attribute weight is missing", 4, "compile", "text.sx", "--no-daemon")
    (TMP / "text.sx").write_text(text.replace("name = \"x\"", ""))
    assert "()" not in refused("node 0: parameter: attribute", 4, "compile", "text.sx", "--no-daemon")


sx("compile", MLP, "--no-daemon", "-d", "batch=8", "-o", "good.sxm")
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name)
shutil.rmtree(TMP)
