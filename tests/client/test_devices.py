#!/usr/bin/env python3
"""Devices of the user's own: listed, printed, read back, refused by name and range, and compiled for, with the bits of
the target and other prices; without a daemon and with one."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
PROGRAM = str(ROOT / "tests" / "models" / "mlp.onnx")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxdevices."))
DIMS = ["--dim", "batch=8"]


def sx(*arguments, status=0, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(surroundings, **environment))
    assert done.returncode == status, (arguments, done)
    return done


def js(*arguments, **more):
    return json.loads(sx(*arguments, "--json", **more).stdout)


def device(name="mine", **replaced):
    """A file made of the row x86-64-v3 with some lines replaced (None: left out)."""
    lines = sx("targets", "x86-64-v3").stdout.replace("device x86-64-v3", "device " + name).splitlines()
    for words, value in replaced.items():
        words = words.replace("_", " ")
        at = [i for i, line in enumerate(lines) if line.startswith(words + " ")]
        assert len(at) == 1, (words, lines)
        lines[at[0]:at[0] + 1] = [] if value is None else [words + " " + value]
    path = TMP / (name + ".device")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_list():
    rows = {row["name"]: row for row in js("targets")["devices"]}
    assert len(rows) >= 8 and "x86-64-v4" in rows, rows
    assert rows["h100"]["target"] == "sm_90" and "bf16" in rows["h100"]["types"], rows["h100"]
    assert rows["h100"]["here"] in ("executed", "emulated"), rows["h100"]
    assert {"type": "bf16", "unit": "tensor", "gflop_per_s": 989400.0} in rows["h100"]["rates"]
    assert "f32" in rows["x86-64-v3"]["types"] and rows["x86-64-v3"]["cores"] == 8
    hidden = {row["name"]: row["here"] for row in js("targets", SYMPLEX_ISA_MAX="none")["devices"]}
    assert hidden["x86-64-v3"] == "emulated" and hidden["x86-64-v4"] == "emulated", hidden
    text = sx("targets").stdout
    assert "h100" in text and "tensor" in text and "989 TFLOPS" in text
    assert "z80" in sx("targets", "z80", status=4).stderr


def test_one_in_full():
    """targets show: the constants of the text with range, meaning and source; limits by the occupancy rules."""
    for name in ("h200", "x86-64-v4", "a100"):
        shown, plain = js("targets", "show", name), sx("targets", name).stdout.splitlines()
        text = sx("targets", "show", name).stdout
        for constant in shown["constants"]:
            line = constant["name"] + " " + constant["value"]
            assert line in plain, (line, plain)
            assert " to " in constant["allowed"] and constant["meaning"] and constant["source"] != "not told", constant
            assert all(constant[k] in text for k in ("name", "value", "allowed", "meaning", "source")), constant
        assert len(shown["constants"]) + len(shown["rates"]) >= len(plain) - 3, (shown, plain)
        listed, = js("targets", name)["devices"]
        assert shown["device"] == listed
        for rate in shown["rates"]:
            assert abs(rate["gflop_per_s"] / listed["memory_bytes_per_ns"] / rate["flop_per_byte"] - 1) < 1e-12, rate
    # 65536 registers, handed out by 8 for each thread; 2048 threads of a core
    assert shown["blocks"] == [{"threads": n, "registers": min(255, 65536 // n),
                                "resident": 65536 // n // min(256, 65536 // n),
                                "resident_with_32_registers": min(32, 2048 // n)} for n in (128, 256, 512, 1024)], shown
    assert js("targets", "show", "x86-64-v3")["blocks"] == []
    path = device("shown", memory_bandwidth="77 GB/s")
    own = {c["name"]: c for c in js("targets", "show", "--device", path)["constants"]}
    assert own["memory bandwidth"]["value"] == "77 GB/s" and own["clock"]["source"] == "its description", own
    assert "z80" in sx("targets", "show", "z80", status=4).stderr
    assert "needs NAME" in sx("targets", "show", status=2).stderr


def test_a_row_is_where_one_begins():
    path = device()
    again = sx("targets", "--device", path).stdout
    assert again == path.read_text(), again
    assert js("targets", "--device", path)["devices"][0]["name"] == "mine"


def test_what_is_refused_before_anything_runs():
    for words, value, why in (("memory_bandwidth", None, "memory bandwidth is missing: 100 MB/s to 100 TB/s wanted"),
                              ("memory_bandwidth", "1 EB/s", "unit \"EB/s\""),
                              ("cores", "0", "cores 0: 1 to 65536 wanted"),
                              ("lanes", "16", "its target x86-64-v3 has 8"),
                              ("target", "z80", "target z80 is unknown"),
                              ("target", "none", "no code generator")):
        path = device("bad", **{words: value})
        status = 4
        done = sx("compile", PROGRAM, *DIMS, "--no-daemon", "--device", path, "-o", TMP / "bad.sxm", status=status)
        assert why in done.stderr, (words, done)
        assert not (TMP / "bad.sxm").exists()
    sx("compile", PROGRAM, *DIMS, "--device", TMP / "absent", "-o", TMP / "bad.sxm", status=4)
    sx("compile", PROGRAM, *DIMS, "--device", device(), "--target", "x86-64-v3", "-o", TMP / "bad.sxm", status=2)


def test_a_target_file_of_a_gpu():
    row = sx("targets", "h100").stdout.replace("device h100", "device own")

    def edited(words, value):
        path = TMP / "own.target"
        path.write_text("".join(words + " " + value + "\n" if line.startswith(words + " ") else line
                                for line in row.splitlines(True)))
        return path

    gemm = ["compile", "--gemm", "64x64x64", "--dtype", "bf16", "--no-daemon", "--assembler", "none"]
    out = TMP / "own.sxm"
    for words, value, why in (("threads per block", "33", "threads per block 33: a multiple of its 32 lanes wanted"),
                              ("threads per block", "2048", "2048 threads and 232448 bytes of shared memory per block, "
                               "its target sm_90 has 1024 and 232448"),
                              ("target", "sm_89", "its target sm_89 has 1024 and 101376"),
                              ("target", "sm_70", "target sm_70 is unknown"),
                              ("register step", "7", "register step 7: a power of two wanted"),
                              ("cores", "\x1b[2J\x07", 'not a decimal number: "?[2J?"')):
        done = sx(*gemm, "--target", edited(words, value), "-o", out, status=4)
        assert why in done.stderr and "\x1b" not in done.stderr, (why, done)
        assert not out.exists() and not list(TMP.glob("own.sxm*"))
    path = edited("memory bandwidth", "1 TB/s")
    one = js(*gemm, "--target", path, "-o", out)
    assert one["key"] == js(*gemm, "--device", path, "-o", out)["key"]
    assert js("explain", out)["target"] == "own"
    sx(*gemm, "--target", TMP / "absent.target", "-o", out, status=4)


def compiled(path, name, **environment):
    out = TMP / (name + ".sxm")
    device_of = ["--device", path] if path else ["--target", "x86-64-v3"]
    mode = [] if environment else ["--no-daemon"]
    made = js("compile", PROGRAM, *DIMS, *mode, *device_of, "-o", out, **environment)
    return out, made, js("explain", out)


def results(module, name):
    folder = TMP / name
    sx("run", module, "--random", "7", "--output", folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_other_prices_same_bits():
    row, made, plain = compiled(None, "row")
    slow, slowly, dear = compiled(device("slow", memory_bandwidth="410 MB/s"), "slow")
    assert made["key"] != slowly["key"] and dear["target"] == "slow", (made, slowly, dear)
    assert dear["estimate_ns"] > 3 * plain["estimate_ns"], (dear["estimate_ns"], plain["estimate_ns"])
    if {r["name"]: r["here"] for r in js("targets")["devices"]}["x86-64-v3"] == "executed":
        assert results(row, "of_row") == results(slow, "of_slow")


def test_through_a_daemon():
    with Daemon(program="symplexd") as daemon:
        where = {"SYMPLEX_SOCKET": str(daemon.path)}
        path = device("served", memory_bandwidth="82 GB/s")
        first = compiled(path, "first", **where)[1]
        second = compiled(path, "second", **where)[1]
        other = compiled(device("served", memory_bandwidth="83 GB/s"), "other", **where)[1]
        assert not first["hit"] and second["hit"] and not other["hit"], (first, second, other)
        assert first["key"] == second["key"] != other["key"]


run(globals())
