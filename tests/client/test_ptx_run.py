#!/usr/bin/env python3
"""ptx run as its users meet it: results in .npy files, faults with their place, exit codes, what is refused."""
import array
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = str(pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin" / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxptxrun."))
KERNELS = ROOT / "tests" / "data" / "ptx" / "kernels.ptx"
ROWS, COLUMNS, DEPTH = 32, 48, 64


def run(*arguments, status=0):
    done = subprocess.run([CLIENT, "ptx", "run", *map(str, arguments)], capture_output=True, timeout=60, cwd=TMP)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def write_npy(path, values, shape, kind="f"):
    header = "{'descr': '<%s4', 'fortran_order': False, 'shape': (%s), }" % (
        kind, "".join("%d, " % n for n in shape))
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    body = array.array(kind, values).tobytes()
    path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + body)
    return path


def read_npy(path, kind="f"):
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + length].decode()
    shape = tuple(int(n) for n in header.split("(")[1].split(")")[0].replace(",", " ").split())
    return shape, array.array(kind, data[10 + length:])


A = [(i * 7 + i // 5) % 9 - 4 for i in range(ROWS * DEPTH)]
B = [(i * 5 + i // 7) % 9 - 4 for i in range(DEPTH * COLUMNS)]
A_FILE = write_npy(TMP / "a.npy", A, [ROWS, DEPTH])
B_FILE = write_npy(TMP / "b.npy", B, [DEPTH, COLUMNS])
LAUNCH = ["--grid", "3,2,1", "--block", "16,16", "--arg", "@%s" % A_FILE, "--arg", "@%s" % B_FILE,
          "--arg", "out:f32:%dx%d" % (ROWS, COLUMNS)]
EXTENTS = ["--arg", "i32:%d" % COLUMNS, "--arg", "i32:%d" % DEPTH]


def test_results():
    want = [float(sum(A[i * DEPTH + k] * B[k * COLUMNS + j] for k in range(DEPTH)))
            for i in range(ROWS) for j in range(COLUMNS)]
    for more in ([], ["--seed", 3, "--lazy"], ["--seed", 4], ["--on", "h100"]):
        folder = TMP / "out"
        done = run(KERNELS, "--kernel", "matmul_async", *LAUNCH, *EXTENTS, "--out", folder, *more)
        assert b"matmul_async ended without a fault" in done.stdout, done.stdout
        shape, values = read_npy(folder / "arg2.npy")
        assert shape == (ROWS, COLUMNS) and list(values) == want
        assert sorted(p.name for p in folder.iterdir()) == ["arg2.npy"]
        shutil.rmtree(folder)


def test_a_type_that_numpy_has_not():
    """The same bytes as two numbers of bf16 each: elements of two bytes without a type."""
    folder, shape = TMP / "narrow", "%dx%d" % (ROWS, 2 * COLUMNS)
    run(KERNELS, "--kernel", "matmul_async", *LAUNCH, *EXTENTS, "--out", folder)
    whole = (folder / "arg2.npy").read_bytes()[-ROWS * COLUMNS * 4:]
    run(KERNELS, "--kernel", "matmul_async", *LAUNCH[:-1], "out:bf16:" + shape, *EXTENTS, "--out", folder)
    got = (folder / "arg2.npy").read_bytes()
    assert got[-ROWS * COLUMNS * 4:] == whole and b"'descr': '|V2'" in got[:128], got[:128]


def test_clusters():
    """A kernel that requires clusters of two, and one whose launch says how many blocks one has."""
    threads, folder = 64, TMP / "clusters"
    numbers = [i * i % 1009 for i in range(4 * threads)]
    given = write_npy(TMP / "numbers.npy", numbers, [4 * threads], "i")
    by_hand, made = KERNELS.with_name("multicast.ptx"), KERNELS.with_name("clusters.ptx")
    launch = ["--kernel", "exchange", "--block", "64", "--arg", "@%s" % given, "--arg", "out:i32:256"]
    for more in ([], ["--cluster", "2"], ["--seed", 5]):
        run(by_hand, *launch, "--grid", "4", *more, "--out", folder)
        values = read_npy(folder / "arg1.npy", "i")[1]
        assert list(values) == [numbers[i ^ threads] + 2 * numbers[i] for i in range(4 * threads)], more
    for blocks in (1, 2, 4):
        run(made, "--kernel", "row_sums", "--block", "32", "--grid", 2 * blocks, "--cluster", blocks, "--arg",
            "@%s" % given, "--arg", "out:i32:2", "--arg", "i32:128", "--out", folder)
        values = read_npy(folder / "arg1.npy", "i")[1]
        assert list(values) == [sum(numbers[:128]), sum(numbers[128:])], blocks
    done = run(by_hand, *launch, "--grid", "4", "--cluster", "4", status=4)
    assert b"kernel exchange requires 2,1,1" in done.stderr, done.stderr
    done = run(by_hand, *launch, "--grid", "3", status=4)
    assert b"grid 3,1,1: no multiple of clusters of 2,1,1 blocks" in done.stderr, done.stderr
    done = run(by_hand, *launch, "--cluster", "2,x", status=2)
    assert b"--cluster" in done.stderr, done.stderr


def test_json():
    done = run(KERNELS, "--kernel", "matmul_async", *LAUNCH, *EXTENTS, "--json")
    record = json.loads(done.stdout)
    assert record["schema"] == "ptx-run/1" and record["kernel"] == "matmul_async", record
    assert record["global_written_bytes"] == ROWS * COLUMNS * 4, record
    # two tiles of 16 x 16 for each of 4 steps of 6 blocks
    assert record["global_read_bytes"] == 6 * 4 * 2 * 16 * 16 * 4, record
    assert record["shared_bytes"] == 4096 and record["barriers"] == 6 * 4 * 2, record
    assert record["shared_passes"] >= record["shared_passes_least"] > 0, record


def test_a_buffer_that_is_read_and_written():
    bins = write_npy(TMP / "bins.npy", [1] * 64, [64], "i")
    x = write_npy(TMP / "x.npy", range(640), [640], "i")
    run(KERNELS, "--kernel", "histogram", "--grid", 2, "--block", 128, "--arg", "@%s" % x, "--arg", "inout:@%s" % bins,
        "--arg", "i32:640", "-o", TMP / "counted")
    assert list(read_npy(TMP / "counted" / "arg1.npy", "i")[1]) == [11] * 64


def test_faults():
    done = run(KERNELS, "--kernel", "no_wait", *LAUNCH, *EXTENTS, "--out", TMP / "none", status=1)
    line = next(n for n, text in enumerate(KERNELS.read_text().splitlines(), 1) if ".entry no_wait" in text)
    assert b"kernel no_wait, instruction " in done.stderr and b"a copy of thread (" in done.stderr, done.stderr
    assert int(done.stderr.split(b"(line ")[1].split(b")")[0]) > line, done.stderr
    assert not (TMP / "none").exists(), "results of a kernel that was stopped"
    error = json.loads(run(KERNELS, "--kernel", "one_too_many", "--grid", 3, "--block", 32, "--arg", "@%s" % A_FILE,
                           "--arg", "out:f32:64", "--arg", "i32:64", "--json", status=1).stdout)
    assert error["code"] == "MISMATCH" and "argument 1" in error["message"], error
    assert "4 bytes behind its end" in error["message"], error
    done = run(KERNELS, "--kernel", "for_ever", "--arg", "inout:@%s" % write_npy(TMP / "zero.npy", [0], [1]),
               "--fuel", 1000, status=5)
    assert b"within 1000 instructions" in done.stderr, done.stderr


def test_what_is_refused():
    def refused(part, *arguments, status=2):
        done = run(*arguments, status=status)
        assert part in done.stderr.decode() and done.stdout == b"", done

    refused("19 kernels", KERNELS)
    refused("no kernel nobody", KERNELS, "--kernel", "nobody", status=1)
    refused("nowhere.ptx", "/nowhere.ptx", status=4)
    refused("more than three", KERNELS, "--kernel", "matmul", "--grid", "1,1,1,1")
    refused("--block", KERNELS, "--kernel", "matmul", "--block", "0")
    for wrong in ("64", "f99:1", "i32:", "i32:x", "i8:128", "u8:-1", "i32:2147483648", "f32:one", "out:f32", "out:32",
                  "out:f32:0", "out:f32:4x", "bool:1"):
        refused("--arg", KERNELS, "--kernel", "matmul", "--arg", wrong)
    refused("nowhere.npy", KERNELS, "--kernel", "matmul", "--arg", "@/nowhere.npy", status=4)
    refused("takes 5 arguments, 3", KERNELS, "--kernel", "matmul_async", *LAUNCH, status=4)
    refused("4 bytes, the argument has 8", KERNELS, "--kernel", "matmul_async", *LAUNCH, "--arg", "i64:1",
            "--arg", "i32:1", status=4)
    refused("232448", KERNELS, "--kernel", "matmul_async", *LAUNCH, *EXTENTS, "--on", "h100", "--shared", 232448,
            status=4)
    refused("without blocks", KERNELS, "--kernel", "matmul_async", *LAUNCH, *EXTENTS, "--on", "x86-64-v4")
    text = TMP / "outside.ptx"
    text.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n nanosleep.u32 20;\n}\n")
    refused("nanosleep", text, status=4)


if __name__ == "__main__":
    try:
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test()
                print("ok", name)
    finally:
        shutil.rmtree(TMP)
