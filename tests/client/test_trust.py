#!/usr/bin/env python3
"""Another user's daemon: symplex-client takes nothing from it and compiles in process, says why, and fails
with --daemon-only.

As root the other user is real (a uid without a name): it runs the real daemon in folders of its own. Without
root the refusals that need no second user are tried here; those of owner and uid are in
tests/trust/test_folder.c and tests/client/test_stranger.c with the expected uid given."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "daemon"))
from wire import *  # noqa: E402

TMP = pathlib.Path(tempfile.mkdtemp(prefix="sxtrust."))
IS_ROOT = os.geteuid() == 0
HOSTILE, VICTIM = 4242424, 4242425
SOURCE = TMP / "twice.sx"
SOURCE.write_text("""sx 1
graph "twice" () {
    %0 = parameter {name = "x", weight = 0} : f32[4]
    %1 = add(%0, %0) : f32[4]
    return %1 as "y"
}
""")
TMP.chmod(0o755)
for program in ("symplex-client", "symplexd"):  # where every user may run them
    shutil.copy(BINARY / program, TMP / program)


def user(uid):
    return {"user": uid, "group": uid, "extra_groups": []} if IS_ROOT else {}


def sx(*arguments, status=0, uid=0, **environment):
    """Runs the client with nothing but this environment; the finished process."""
    done = subprocess.run([TMP / "symplex-client", *map(str, arguments)], capture_output=True, timeout=60,
                          stdin=subprocess.DEVNULL,
                          env=dict(environment, PATH=os.environ["PATH"], XDG_STATE_HOME=str(TMP / "state")),
                          **(user(uid) if uid else {}))
    assert done.returncode == status, (done.returncode, status, done.stdout, done.stderr)
    return done


def compiled(out, *arguments, **more):
    """The tier that a compilation of SOURCE tells, and its stderr."""
    done = sx("compile", "--json", SOURCE, "-o", out, *arguments, **more)
    return json.loads(done.stdout)["tier"], done.stderr.decode()


class Hostile:
    """The real daemon as another user, with state and socket in folders that this user made."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / "d.sock"
        state = TMP / "hostile-state"
        shutil.rmtree(state, ignore_errors=True)
        for made, mode in ((self.folder, 0o755), (state, 0o700)):
            made.mkdir()
            made.chmod(mode)
            os.chown(made, HOSTILE, HOSTILE)
        self.log = open(TMP / "hostile.log", "wb")
        self.process = subprocess.Popen([TMP / "symplexd", "--state", state, "--socket", self.path],
                                        stderr=self.log, env={}, **user(HOSTILE))

    def ready(self):
        assert self.process.poll() is None, (TMP / "hostile.log").read_text()
        try:
            with Client(self.path) as client:
                return client.call("ready")["ready"]
        except (OSError, EOFError):
            return False

    def __enter__(self):
        until(self.ready, "the hostile daemon is ready")
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


def refused(path, part, uid=0, out=TMP / "out.sxm"):
    """The daemon at `path` counts as none, and each way to it says why."""
    tier, said = compiled(out, uid=uid, SYMPLEX_SOCKET=str(path))
    assert tier == "process", (tier, said)
    assert part in said and "; compiling in process" in said and said.count("socket:") == 1, said
    for arguments in (["compile", SOURCE, "-o", out, "--daemon-only"], ["ping"], ["status"],
                      ["explain", "abcdef0123"], ["shutdown"]):
        done = sx(arguments[0], "--json", *arguments[1:], status=4, uid=uid, SYMPLEX_SOCKET=str(path))
        error = json.loads(done.stdout)
        assert error["code"] == "DENIED" and part in error["message"], error
    assert part in sx("doctor", uid=uid, SYMPLEX_SOCKET=str(path)).stdout.decode()


def test_folders_that_others_may_write():
    with Daemon(program="symplexd") as daemon:
        assert compiled(TMP / "out.sxm", SYMPLEX_SOCKET=str(daemon.path))[0] == "none"
        for mode in (0o777, 0o720, 0o1777):
            daemon.root.chmod(mode)
            refused(daemon.path, "folder %s has mode %04o" % (daemon.root, mode))
        daemon.root.chmod(0o700)
        (TMP / "link").symlink_to(daemon.root)
        refused(TMP / "link" / "d.sock", "%s is a symbolic link" % (TMP / "link"))
        assert compiled(TMP / "out.sxm", SYMPLEX_SOCKET=str(daemon.path))[0] == "ram"


def test_the_variable_is_read():
    done = sx("compile", SOURCE, "-o", TMP / "out.sxm", status=2, SYMPLEX_SOCKET=str(TMP / "none"),
              SYMPLEX_TRUST_UID="me")
    assert b"SYMPLEX_TRUST_UID: 'me' is not a user id" in done.stderr, done.stderr


def test_folder_of_another_user():
    if not IS_ROOT:
        print("not root: the owner is tried with the expected uid given, in trust.test_folder")
        return
    with Hostile(TMP / "hostile") as hostile:
        refused(hostile.path, "folder %s belongs to user %d" % (hostile.folder, HOSTILE))
        tier, said = compiled(TMP / "out.sxm", SYMPLEX_SOCKET=str(hostile.path), SYMPLEX_TRUST_UID=str(HOSTILE))
        assert tier == "none" and said == "", (tier, said)  # a daemon that is named is used


def test_process_of_another_user():
    if not IS_ROOT:
        print("not root: the peer is tried with the expected uid given, in trust.test_folder")
        return
    with Hostile(TMP / "hostile") as hostile:
        os.chown(hostile.folder, 0, 0)  # the folder is fine now, who listens in it is not
        refused(hostile.path, "user %d listens there, we are 0" % HOSTILE)
        assert compiled(TMP / "out.sxm", SYMPLEX_SOCKET=str(hostile.path), SYMPLEX_TRUST_UID=str(HOSTILE))[0] == "none"


def test_folder_of_the_temporary_directory():
    """Without XDG_RUNTIME_DIR: whoever makes /tmp/symplex-UID first hands out nothing."""
    if not IS_ROOT:
        print("not root: the owner is tried with the expected uid given, in trust.test_folder")
        return
    home = TMP / "victim"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    with Hostile("/tmp/symplex-%d" % VICTIM) as hostile:
        hostile.path.chmod(0o666)
        tier, said = compiled(home / "out.sxm", uid=VICTIM)
        assert tier == "process" and "/tmp/symplex-%d belongs to user %d" % (VICTIM, HOSTILE) in said, (tier, said)
        error = json.loads(sx("ping", "--json", status=4, uid=VICTIM).stdout)
        assert error["code"] == "DENIED", error


try:
    run(globals())
finally:
    shutil.rmtree(TMP, ignore_errors=True)
