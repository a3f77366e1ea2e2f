#!/usr/bin/env python3
"""Limits of the comparison of all outputs, as a user raises them: with the daemon, without it, and of `run --check`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

CLIENT = str(BINARY / "symplex-client")
TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxlim."))
PROGRAM = TMP / "wide.sx"
NOBODY = TMP / "nobody.sock"
TEXT = """sx 1
graph "wide" (n in [1, 1048576]) {
    %0 = parameter {name = "x", weight = 0} : f32[n]
    %1 = tanh(%0) : f32[n]
    return %1 as "y"
}
"""


def sx(*arguments, status=0, socket=NOBODY):
    environment = dict(os.environ, SYMPLEX_SOCKET=str(socket), XDG_STATE_HOME=str(TMP / "state"))
    done = subprocess.run([CLIENT, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=environment,
                          check=False)
    assert status is None or done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def key_of(module):
    return json.loads(sx("module", "show", "--json", module))["key"]


def check_keys(options, socket):
    """What a record can say is part of what is asked: another limit, another module."""
    keys = set()
    for i, limit in enumerate(([], ["--verify-flops", "5T"], ["--verify-flops", "6T"], ["--verify-memory", "3G"])):
        out = TMP / ("key%d.sxm" % i)
        sx("compile", PROGRAM, "-d", "n=4096", *limit, *options, "-o", out, socket=socket)
        keys.add(key_of(out))
    assert len(keys) == 4, keys
    again = TMP / "again.sxm"
    sx("compile", PROGRAM, "-d", "n=4096", "--verify-flops", "5000G", *options, "-o", again, socket=socket)
    assert key_of(again) in keys


def check_refused(options, socket):
    """Memory that is not there is refused by name, before anything is compiled."""
    said = sx("compile", PROGRAM, "-d", "n=4096", "--verify-memory", "900T", *options, "-o", TMP / "no.sxm",
              socket=socket, status=None)
    assert "943718400 MiB of memory wanted, the machine has" in said, said
    assert not (TMP / "no.sxm").exists()


def test_in_process():
    check_keys(["--no-daemon"], NOBODY)
    check_refused(["--no-daemon"], NOBODY)


def test_daemon():
    with Daemon(program="symplexd") as daemon:
        check_keys(["--daemon-only"], daemon.path)
        check_refused(["--daemon-only"], daemon.path)


def test_worker_memory():
    """A worker of the daemon has what the daemon gives it."""
    if b"__asan_init" in pathlib.Path(CLIENT).read_bytes():
        return  # with sanitizers workers have no limit of memory
    with Daemon("--worker-memory-mb", "1024", program="symplexd") as daemon:
        said = sx("compile", PROGRAM, "-d", "n=4096", "--verify-memory", "3G", "--daemon-only", "-o", TMP / "no.sxm",
                  socket=daemon.path, status=None)
        assert "3072 MiB of memory wanted, this process may have 1024" in said and "worker_memory_mb" in said, said


def test_what_is_no_number():
    for given in ("much", "0", "-1", "5X", "1.5T", "99999999P", "T"):
        said = sx("compile", PROGRAM, "-d", "n=4", "--verify-flops", given, status=2)
        assert "--verify-flops" in said, said


def test_run_check():
    """The comparison of run --check says what it lacks, and gets it."""
    out = TMP / "run.sxm"
    sx("compile", PROGRAM, "-d", "n=1048576", "-o", out)
    check = ["run", out, "--random", "1", "-n", "1", "--check", "--verify-memory"]
    said = sx(*check, "3M", status=None)
    assert "tensors of more than 3145728 bytes alive at once" in said and "--verify-memory SIZE" in said, said
    assert "passed: 1048576 elements" in sx(*check, "16M")
    assert "the machine has" in sx(*check, "900T", status=None)


if __name__ == "__main__":
    PROGRAM.write_text(TEXT)
    try:
        run(globals())
    finally:
        shutil.rmtree(TMP, ignore_errors=True)
