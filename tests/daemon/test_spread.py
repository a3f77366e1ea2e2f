#!/usr/bin/env python3
"""Searches spread over several daemons by a Redis server that the test starts on a socket of its own."""
import shutil
import subprocess
import sys
import tempfile

from wire import *

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
LEASE = ("--search-lease-ms", "300")


class Redis:
    """A server without files, on a Unix socket; `restart` on the same path."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="sxredis.")
        self.path = os.path.join(self.root, "redis.sock")
        self.uri = "unix://" + self.path
        self.start()

    def start(self):
        self.process = subprocess.Popen([SERVER, "--port", "0", "--unixsocket", self.path, "--save", "",
                                         "--appendonly", "no",
                                         "--dir", self.root], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.ask("PING") == "+PONG", "the server answers")

    def ask(self, *words):
        """One command; the first line of the reply."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.settimeout(5)
                s.connect(self.path)
                words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
                s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
                return s.recv(1 << 16).decode(errors="replace").split("\r\n")[0]
        except OSError:
            return None

    def keys(self, pattern):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(self.path)
            s.settimeout(5)
            s.sendall(b"KEYS %s\r\n" % pattern.encode())
            lines = s.recv(1 << 20).decode().split("\r\n")
            return [line for line in lines if line.startswith("symplex:")]

    def stop(self):
        self.process.kill()
        self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)


def spread(redis, *arguments, **more):
    return Daemon("--search-redis", redis.uri if isinstance(redis, Redis) else redis, *LEASE, *arguments, **more)


def start(client, program, budget_ms=600000):
    return client.call("search.start", {"ir": program, "budget_ms": budget_ms})["search"]


def show(daemon, search):
    with daemon.client() as client:
        answer = client.call("search.show", {"search": search})
        return answer["search"][0], answer["lanes"]


def held(daemon):
    """Workers of this daemon whose step waits for SIGUSR1, own steps and those of others."""
    return [w["pid"] for w in daemon.status()["workers"] if w.get("stage") == "hold"]


def release(*daemons):
    """Lets every held step go on, once. A worker that has gone on and is held again looks the same: its signal
    is only early."""
    for daemon in daemons:
        for pid in held(daemon):
            os.kill(pid, signal.SIGUSR1)


def run_to_end(owner, search, *daemons):
    """Releases steps wherever they are held until the search ends; its row."""
    def ended():
        release(owner, *[d for d in daemons if d.process.poll() is None])
        row = show(owner, search)[0]
        return row if row["state"] != "running" else None
    return until(ended, "the search ends", 60)


KEYS = ("lane", "name", "state", "steps", "objective", "bound", "nodes", "fuel", "bytes", "why")


def outcome(daemon, search):
    with daemon.client() as client:
        result = client.call("search.result", {"search": search})
        return result["module"], result["objective"], [[lane.get(k) for k in KEYS] for lane in show(daemon, search)[1]]


def alone(program):
    with Daemon() as daemon:
        with daemon.client() as client:
            search = start(client, program)
        run_to_end(daemon, search)
        return outcome(daemon, search)


def test_three_daemons_share_a_search():
    program = "search 5 6 hold"
    expected = alone(program)
    with Redis() as redis, spread(redis) as owner, spread(redis) as second, spread(redis) as third, \
            owner.client() as client:
        search = start(client, program)
        until(lambda: all(held(d) for d in (owner, second, third)), "each of the three has a step of it")
        others = sorted(d.status()["boot_id"] for d in (second, third))
        until(lambda: sorted(lane["where"] for lane in show(owner, search)[1] if "where" in lane) == others,
              "the owner sees the leases")
        assert show(owner, search)[0]["lanes_active"] == 3
        task = [w["task"] for w in second.status()["workers"] if "task" in w]
        assert len(task) == 1 and task[0].startswith(owner.status()["boot_id"] + "/%x/" % search), task
        assert second.status()["counters"]["searches_kept"] == 0
        row = run_to_end(owner, search, second, third)
        assert row["state"] == "done" and outcome(owner, search) == expected
        given = owner.counter("search_steps_given")
        assert given >= 2 and second.counter("search_steps_taken") >= 1 and third.counter("search_steps_taken") >= 1
        assert 0 < given <= second.counter("search_steps_taken") + third.counter("search_steps_taken")
        assert owner.counter("search_steps") == 30
        left = until(lambda: not [k for k in redis.keys("symplex:1:*:*:*") if ":idle" not in k],
                     "nothing is left on the server")
        assert left


def test_a_daemon_dies_with_a_step():
    program = "search 4 5 hold"
    expected = alone(program)
    with Redis() as redis, spread(redis) as owner, spread(redis) as second, owner.client() as client:
        search = start(client, program)
        until(lambda: held(owner) and held(second), "both have a step")
        stolen = until(lambda: [lane["lane"] for lane in show(owner, search)[1] if "where" in lane],
                       "the owner sees the lease")
        with spread(redis) as third:
            second.kill()
            until(lambda: held(third), "a third one takes steps")
            until(lambda: [lane for lane in show(owner, search)[1] if lane["lane"] == stolen[0] and
                           lane.get("where") in (None, third.status()["boot_id"])], "the lease of the dead one lapses")
            row = run_to_end(owner, search, third)
            assert row["state"] == "done" and outcome(owner, search) == expected
            assert show(owner, search)[1][stolen[0]]["steps"] == 5


def test_the_owner_dies_and_comes_back():
    program = "search 4 5 hold"
    expected = alone(program)
    root = tempfile.mkdtemp(prefix="sxd.")
    with Redis() as redis, spread(redis) as second:
        with spread(redis, root=root) as owner, owner.client() as client:
            search = start(client, program)
            until(lambda: held(owner) and held(second), "both have a step")
            release(owner, second)
            until(lambda: show(owner, search)[0]["steps"] >= 2, "two steps are stored")
            steps = show(owner, search)[0]["steps"]
            owner.kill()
        with spread(redis, root=root) as owner:
            assert show(owner, search)[0]["steps"] >= steps
            row = run_to_end(owner, search, second)
            assert row["state"] == "done" and outcome(owner, search) == expected
    shutil.rmtree(root)


def test_the_server_goes_and_comes_back():
    program = "search 4 8 hold"
    expected = alone(program)
    with Redis() as redis, spread(redis) as owner, spread(redis) as second, owner.client() as client:
        search = start(client, program)
        until(lambda: held(owner) and held(second), "both have a step")
        redis.stop()
        until(lambda: "state=down" in owner.log_text() and "state=down" in second.log_text(), "both notice")
        until(lambda: not held(second), "the step of another is given up")
        before = show(owner, search)[0]["steps"]
        release(owner)
        until(lambda: show(owner, search)[0]["steps"] > before, "the search goes on alone")
        redis.start()
        until(lambda: held(second), "they share again")
        assert owner.log_text().count("state=down") == 1, "said once"
        row = run_to_end(owner, search, second)
        assert row["state"] == "done" and outcome(owner, search) == expected
    with spread("unix:///nowhere/at/all.sock") as daemon, daemon.client() as client:
        search = start(client, "search 2 3")
        assert until(lambda: show(daemon, search)[0]["state"] == "done", "alone from the start")
    with spread("tcp://127.0.0.1:1") as daemon, daemon.client() as client:
        assert until(lambda: "state=down" in daemon.log_text(), "nobody listens there")
    with spread("http://x") as daemon:
        assert "is not unix:///path or tcp://host:port" in daemon.log_text()


def test_another_build_takes_nothing():
    with Redis() as redis, spread(redis) as owner, spread(redis,
                                                          env={"FAKE_BUILD": "fake-2"}) as other, \
            owner.client() as client:
        search = start(client, "search 4 2 hold")
        until(lambda: held(owner), "the owner has a step")
        assert run_to_end(owner, search, other)["state"] == "done"
        assert other.counter("search_steps_taken") == 0 and owner.counter("search_steps_given") == 0


def test_failures_elsewhere_do_not_count():
    with Redis() as redis, spread(redis) as owner, spread(redis) as second, owner.client() as client:
        search = start(client, "search 3 2 hold crash=1:1 fail=2:2")
        row = run_to_end(owner, search, second)
        lanes = show(owner, search)[1]
        assert row["state"] == "done" and [lane["state"] for lane in lanes] == ["done", "out", "out"], lanes
        assert "in step 1" in lanes[1]["why"] and lanes[2]["why"] == "lane 2 refuses step 2", lanes


def test_bytes_of_the_server_are_not_trusted():
    program = "search 4 3 hold"
    expected = alone(program)
    with Redis() as redis, spread(redis) as owner, owner.client() as client:
        prefix = until(lambda: redis.keys("symplex:1:*") or redis.ask("SET", "x", "y") and [],
                       "the owner tells its free places")[0]
        prefix = ":".join(prefix.split(":")[:3]) + ":"
        boot = owner.status()["boot_id"]
        # names and tasks of a hostile peer: not names, no task, a task of another form
        for name in ("../../x", "a/b/c/d" * 40, "", "1/2/3/4", "\x00/1/1/1", boot + "/1/0/1"):
            redis.ask("RPUSH", prefix + "offers", name)
            redis.ask("RPUSH", prefix + "done:" + boot, name)
        redis.ask("SET", prefix + "task:1/2/3/4", b"\x93\xff" * 100)
        redis.ask("SET", prefix + "result:" + boot + "/1/0/1", b"\x00" * 1000)
        # places that nobody has: offers that nobody takes come back
        now = int(time.time() * 1000)
        redis.ask("ZADD", prefix + "idle", now + 3600000, "ffff/0", now + 3600000, "ffff/1")
        search = start(client, program)
        task = until(lambda: redis.keys(prefix + "task:" + boot + "/*"), "a step is offered")[0]
        name = task.split("task:")[1]
        # a lease taken, then a result that is none
        redis.ask("SET", prefix + "lease:" + name, "ffff")
        until(lambda: [lane for lane in show(owner, search)[1] if lane.get("where") == "ffff"], "the lease is seen")
        redis.ask("SET", prefix + "result:" + name, b"\x01" * 300)
        redis.ask("RPUSH", prefix + "done:" + boot, name)
        row = run_to_end(owner, search)
        assert row["state"] == "done" and outcome(owner, search) == expected
        assert owner.counter("search_steps_given") == 0 and "refused" in owner.log_text()
        assert owner.process.poll() is None


def test_a_guest_without_a_worker_goes_back():
    program = "search 3 2 hold"
    expected = alone(program)
    with Redis() as redis, spread(redis) as owner, spread(redis, "--workers", "1") as second, owner.client() as client:
        search = start(client, program)
        until(lambda: held(owner) and held(second), "both have a step")
        with second.client() as busy:
            for i in range(8): # the worker is taken before the next step can have it
                busy.send("compile", {"ir": "hold %d" % i})
            until(lambda: len(second.jobs()) == 8, "they wait")
            release(second)
            until(second.running, "a compilation has the worker")
            row = run_to_end(owner, search)
            assert row["state"] == "done" and outcome(owner, search) == expected
            assert len(second.jobs()) >= 1, "the compilations still hold the worker"


def test_cancel_withdraws():
    with Redis() as redis, spread(redis) as owner, spread(redis) as second, owner.client() as client:
        search = start(client, "search 4 5 hold")
        until(lambda: held(owner) and held(second), "both have a step")
        assert client.call("search.cancel", {"search": search})["state"] == "cancelled"
        until(lambda: not held(second), "the other one gives it up")
        until(lambda: not [k for k in redis.keys("symplex:1:*") if ":idle" not in k], "nothing is left on the server")
        with second.client() as other:
            assert other.compile("echo")["state"] == "done"


if __name__ == "__main__":
    if SERVER is None:
        sys.exit("no redis-server or valkey-server is installed: run deploy/install-deps.sh")
    run(globals())
