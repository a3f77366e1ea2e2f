#!/usr/bin/env python3
"""The state directory is the daemon's own and closed to others: what is not is refused with path, owner and
mode, before anything is opened in it."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from wire import *  # noqa: E402

TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxstate."))
IS_ROOT = os.geteuid() == 0
OTHER = 4242424
DEADLINE_S = 20


def starts(state, umask=0o022):
    with Daemon("--state", str(state), program="symplexd", preexec=lambda: os.umask(umask)) as daemon:
        assert daemon.status()["directory"] == str(state)


def names_in(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:  # not there, no directory, or none that we may look into
        return []


def refused(state, *parts, **more):
    """The daemon ends with 4 (not permitted), says all of `parts`, and has put nothing into the directory
    (which it may have made)."""
    before = names_in(state)
    done = subprocess.run([BINARY / "symplexd", "--state", state, "--socket", TMP / "d.sock"], capture_output=True,
                          timeout=DEADLINE_S, env={"HOME": str(TMP)}, **more)
    said = done.stderr.decode()
    assert done.returncode == 4 and "code=DENIED" in said, (done.returncode, said)
    assert all(p in said for p in parts), (parts, said)
    assert names_in(state) == before


def folder(name, mode):
    path = TMP / name
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def test_made_closed():
    starts(TMP / "a" / "b" / "state", umask=0)
    for path in (TMP / "a", TMP / "a" / "b", TMP / "a" / "b" / "state"):
        assert path.stat().st_mode & 0o7777 == 0o700, oct(path.stat().st_mode)
    for path in (TMP / "a" / "b" / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, (path, oct(path.stat().st_mode))
    starts(TMP / "a" / "b" / "state")


def test_open_to_others():
    for mode in (0o755, 0o750, 0o701, 0o720, 0o1777):
        state = folder("mode%o" % mode, mode)
        refused(state, "state: folder %s has mode %04o (owner %d)" % (state, mode, os.geteuid()))
        state.chmod(0o700)
        starts(state)


def test_link():
    folder("real", 0o700)
    (TMP / "link").symlink_to(TMP / "real")
    refused(TMP / "link", "state: %s is a symbolic link" % (TMP / "link"))


def test_parents_that_others_may_write():
    parent = folder("shared", 0o777)
    state = parent / "state"
    refused(state, "state: folder %s has mode 0777" % parent)
    parent.chmod(0o1777)
    starts(state)


def test_of_another_user():
    if not IS_ROOT:  # one that root made for itself is no place of ours either
        refused(pathlib.Path("/root"), "state: folder /root ")
        return
    state = folder("other", 0o700)
    os.chown(state, OTHER, OTHER)
    refused(state, "state: folder %s belongs to user %d (mode 0700), we are 0" % (state, OTHER))
    parent = folder("others", 0o755)
    (parent / "state").mkdir(mode=0o700)
    os.chown(parent, OTHER, OTHER)
    refused(parent / "state", "state: folder %s belongs to user %d" % (parent, OTHER))
    # as that user: a directory of root's, closed to it or not
    shutil.copy(BINARY / "symplexd", TMP / "symplexd")
    TMP.chmod(0o755)
    for mode in (0o700, 0o755):
        state = folder("roots%o" % mode, mode)
        done = subprocess.run([TMP / "symplexd", "--state", state, "--socket", "/nowhere/d.sock"],
                              capture_output=True, timeout=DEADLINE_S,
                              env={}, user=OTHER, group=OTHER, extra_groups=[])
        assert done.returncode == 4 and b"state: folder %s" % str(state).encode() in done.stderr, done.stderr


try:
    run(globals())
finally:
    shutil.rmtree(TMP, ignore_errors=True)
