#!/usr/bin/env python3
"""What libsymplex.so is made of, and how it compiles without a daemon: by a process that holds the compiler, so
that a program which loads and runs modules holds neither it nor isl, the e-graph and the verification."""
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = BINARY / "symplex-client"
EXAMPLE = BINARY / "symplex-example"
BATCHES = BINARY / "symplex-example-batches"
LIBRARY = BINARY.parent / "lib" / "libsymplex.so"
MLP = str(ROOT / "tests" / "models" / "mlp.onnx")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxlib."))
DEADLINE = 60
RESULT, ERROR = 1, 2

# One function of each of these must be in the command line, and none in the library.
COMPILER = ("sx_core_compile", "sx_optimize", "sx_eg_saturate", "sx_judge_", "sx_search_", "sx_lower_",
            "sx_rules_parsed", "sx_x64_emulate", "sx_x64_emit",
            "sx_schedule_", "sxr_verify", "sxv_reference_run", "sxv_multiply")


def symbols(path):
    listing = subprocess.run(["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if line}


def needed(path):
    listing = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split("[")[1].split(".so")[0] for line in listing.splitlines() if "(NEEDED)" in line}


def test_the_library_holds_no_compiler():
    inside, program = symbols(LIBRARY), symbols(CLIENT)
    assert "sxr_run" in inside and "symplex_compile" in inside, "a library with symbols"
    for prefix in COMPILER:
        assert any(name.startswith(prefix) for name in program), "%s is gone: this test names what is there" % prefix
        found = [name for name in inside if name.startswith(prefix)]
        assert not found, "libsymplex.so holds %s" % ", ".join(sorted(found)[:5])
    foreign = needed(LIBRARY) & {"libisl", "libgmp", "libsqlite3", "libuv", "libzstd", "libhiredis", "libseccomp"}
    assert not foreign, foreign
    assert not [name for name in inside if name.startswith("sx_poly_")]
    sizes = LIBRARY.stat().st_size, CLIENT.stat().st_size
    assert sizes[0] * 2 < sizes[1], "library and program of %d and %d bytes" % sizes


def test_a_caller_gives_up():
    """Through a daemon: it stops the job of a caller who wants no more, which nobody else waits for."""
    with Daemon(program="symplexd") as daemon:
        done = subprocess.run([str(BINARY / "sx-gives-up"), str(daemon.path), str(ROOT / "tests/models/encoder.onnx")],
                              capture_output=True, text=True, timeout=DEADLINE, check=True)
        found = re.fullmatch(r"code (\d+), 0 bytes, heard (\d+)\n", done.stdout)
        assert found and found[1] == "1" and int(found[2]) > 0, done
        until(lambda: daemon.jobs() == [], "the daemon stopped the job")
        assert daemon.counter("cancelled") == 1


def example(status, library=None, program=EXAMPLE, **environment):
    surroundings = dict(os.environ, SYMPLEX_SOCKET=str(TMP / "nobody.sock"), XDG_STATE_HOME=str(TMP / "state"),
                        **environment)
    if library is not None:
        surroundings["LD_LIBRARY_PATH"] = str(library)
    done = subprocess.run([str(program), MLP], capture_output=True, text=True, timeout=60, env=surroundings)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def script(name, text):
    path = TMP / name
    path.write_text("#!/bin/sh\n%s\n" % text)
    path.chmod(0o755)
    return str(path)


def test_who_compiles_without_a_daemon():
    assert "sum 1.000000" in example(0)
    assert "sum 1.000000" in example(0, SYMPLEX_CLIENT=str(CLIENT))
    said = example(1, SYMPLEX_CLIENT=str(TMP / "missing"))
    assert "SYMPLEX_CLIENT: %s cannot be executed" % (TMP / "missing") in said, said
    said = example(1, SYMPLEX_CLIENT=script("ends", "exit 0"))
    assert "the compile process died" in said, said
    said = example(1, SYMPLEX_CLIENT=script("killed", "kill -KILL $$"))
    assert "the compile process died of signal 9" in said, said


def test_one_module_for_several_batches():
    said = example(0, program=BATCHES)
    for batch in 1, 4, 16:
        assert "batch=%-3d x f32[%d, 784], %d bytes; y f32[%d, 10], %d bytes" % (
            batch, batch, 4 * 784 * batch, batch, 40 * batch) in said, said
    assert "refused   extent batch has 7; the module serves 1, 4, 16" in said, said


def test_installed_beside_the_program_or_without_it():
    """lib/ with the library finds ../bin/symplex-client, and says what is missing where there is none."""
    (TMP / "lib").mkdir()
    (TMP / "bin").mkdir()
    shutil.copy(LIBRARY.resolve(), TMP / "lib" / "libsymplex.so.0")
    said = example(1, library=TMP / "lib")
    assert "there is no symplex-client beside %s" % (TMP / "lib") in said and "SYMPLEX_CLIENT" in said, said
    (TMP / "bin" / "symplex-client").symlink_to(CLIENT)
    assert "sum 1.000000" in example(0, library=TMP / "lib")


def worker(said):
    """What `symplex-client worker` answers to these bytes: kind of the word and what follows it; None: nothing."""
    ours, theirs = socket.socketpair()
    with subprocess.Popen([str(CLIENT), "worker"], stdin=theirs, stderr=subprocess.PIPE) as process:
        theirs.close()
        ours.sendall(said)
        ours.shutdown(socket.SHUT_WR)
        ours.settimeout(DEADLINE)
        answer = b""
        try:
            while chunk := ours.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass  # it ended without reading all that was said
        process.communicate(timeout=DEADLINE)
    ours.close()
    while answer:
        kind, _, size, _, _ = struct.unpack_from("=IIQQQ", answer)
        body, answer = answer[32:32 + size], answer[32 + size:]
        if kind in (RESULT, ERROR):
            assert answer == b"" and len(body) == size
            return kind, body
    return None


def job(build, kind=0, flags=0, extents=0, program=b"", target=b"", behind=b"", program_size=None, tool=0):
    head = struct.pack("=64sIIIIQQQQQQQQQQQ", build.encode()[:63], kind, flags, extents, tool,
                       len(program) if program_size is None else program_size, len(target), *(0,) * 9)
    return head + program + target + behind


def test_jobs_that_make_no_sense():
    build = json.loads(subprocess.run([str(CLIENT), "version", "--json"], capture_output=True,
                                      check=True).stdout)["toolchain"]
    program = b'sx 1\ngraph "g" (n in [1, 64]) {\n    %0 = parameter {name = "x", weight = 0} : f32[n]\n' \
              b'    %1 = add(%0, %0) : f32[n]\n    return %1 as "y"\n}\n'
    extent = struct.pack("=qqQ", 8, 0, 1) + b"n"
    kind, module = worker(job(build, program=program, target=b"x86-64-v3", extents=1, behind=extent))
    assert kind == RESULT and module[:4] != b"\0" * 4 and len(module) > 1000
    for part, said in (("of another", job("another build", program=program)),
                       ("job of kind 9", job(build, kind=9, program=program)),
                       ("ends before all of it was said", job(build, program=program, target=b"x86-64-v3", extents=1)),
                       ("ends before all of it was said", job(build)[:40]),
                       ("ends before all of it was said", b""),
                       ("extents, at most", job(build, program=program, target=b"x", extents=1 << 30)),
                       ("bytes in a job, at most", job(build, program=program, extents=1, behind=struct.pack(
                           "=qqQ", 1, 0, 1 << 40))),
                       ("bytes in a job", job(build, program_size=1 << 60)),
                       ("nonsense", job(build, program=b"nonsense", target=b"x86-64-v3")),
                       ("module", job(build, kind=2, program=b"no module" * 100)),
                       ("module", job(build, kind=3, program=b"no module" * 100)),
                       ("module", job(build, kind=5, program=b"no module" * 100)),
                       ("no target", job(build, kind=4, program=b".version 8.0", target=b"sm_90a -o x")),
                       ("none of them 0", job(build, kind=4, program=b"a\0b", target=b"sm_90a")),
                       ("assembler 3, known", job(build, kind=4, program=b"x", target=b"sm_90a", tool=3))):
        kind, body = worker(said)
        assert kind == ERROR and part.encode() in body, (part, body[:300])
    for standard_input in (subprocess.DEVNULL, subprocess.PIPE):
        done = subprocess.run([str(CLIENT), "worker"], stdin=standard_input, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "standard input is no socket" in done.stderr, done


if __name__ == "__main__":
    try:
        run(globals())
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
