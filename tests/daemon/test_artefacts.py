"""Artefacts of other caches: kept, found, listed, evicted; one makes what is missing while the others wait, and what
becomes of those when it puts, gives up, dies or takes too long."""
import random
import sqlite3

from wire import *

from test_service import refused

SEED = int(os.environ.get("SX_SEED", "7"))


def get(client, name, cache="t", **more):
    return client.call("artefact.get", dict({"cache": cache, "name": name}, **more))


def put(client, name, value, cache="t", **more):
    return client.call("artefact.put", dict({"cache": cache, "name": name, "value": value}, **more))


def ask(client, name, wait_ms=20000, claim_ms=60000, cache="t"):
    return client.send("artefact.get", {"cache": cache, "name": name, "claim_ms": claim_ms, "wait_ms": wait_ms})


def answer(client):
    _, error, result = client.receive()
    assert error is None, error
    return result


def waiting(daemon):
    with daemon.client() as client:
        return client.call("artefact.caches")["waiting"]


def test_put_and_get_and_restart():
    generator = random.Random(SEED)
    print("seed", SEED)
    values = {generator.randbytes(generator.randint(1, 4096)): generator.randbytes(generator.choice((0, 1, 70000)))
              for _ in range(20)}
    daemon = Daemon()
    with daemon:
        with daemon.client() as client:
            for name, value in values.items():
                assert get(client, name)["state"] == "absent"
                made = put(client, name, value, cost_us=1234)
                assert made["stored"] and made["served"] == 0 and len(made["key"]) == 32
            for name, value in values.items():
                found = get(client, name)
                assert found["state"] == "found" and found["value"] == value and found["cost_us"] == 1234, found
                assert get(client, name, cache="other")["state"] == "absent"
            put(client, b"x", b"one")
            put(client, b"x", b"two")
            assert get(client, b"x")["value"] == b"two"
        until(lambda: daemon.counter("cache_queue_rows") == 0, "all is committed")
        daemon.kill()
        again = Daemon(root=daemon.root)
        with again, again.client() as client:
            for name, value in values.items():
                found = get(client, name)
                assert found["value"] == value and found["tier"] == "disk", found
        daemon.process = again.process


def test_bad_requests_are_named():
    with Daemon() as daemon, daemon.client() as client:
        refused(lambda: get(client, b"n", cache=""), "INPUT", "cache ''")
        refused(lambda: get(client, b"n", cache="No"), "INPUT", "cache 'No'")
        refused(lambda: get(client, b"n", cache="a" * 33), "INPUT", "1 to 32")
        refused(lambda: get(client, b""), "LIMIT", "0 bytes, allowed are 1 to 4096")
        refused(lambda: get(client, bytes(4097)), "LIMIT", "4097 bytes")
        refused(lambda: get(client, b"n", claim_ms=3600001), "INPUT", "3600001")
        refused(lambda: get(client, b"n", wait_ms=-1), "INPUT", "-1")
        refused(lambda: put(client, b"n", b"v", cost_us=-1), "INPUT", "cost_us -1")
        refused(lambda: client.call("artefact.put", {"cache": "t", "name": b"n"}), "INPUT", "'value' is missing")
        refused(lambda: client.call("cache.evict", {"cache": "t", "all": True}), "INPUT", "key, or cache, or all")
        assert client.call("artefact.release", {"lease": 77}) == {"released": False}


def test_a_process_does_not_wait_for_itself():
    with Daemon() as daemon:
        clients = [daemon.client() for _ in range(8)]
        ask(clients[0], b"k")
        first = answer(clients[0])
        assert first["state"] == "claimed" and first["lease"] > 0, first
        for client in clients[1:]:
            ask(client, b"k")
        # all are this process, which would wait for itself: it is told to make it, too
        assert [answer(client)["state"] for client in clients[1:]] == ["absent"] * 7
        for client in clients:
            client.close()


class Process:
    """A process of its own that asks and tells what it was told: for leases, processes count."""

    PROGRAM = ("import os, sys; sys.path.insert(0, sys.argv[2]); from wire import *\n"
               "client = Client(sys.argv[1])\n"
               "for line in sys.stdin:\n"
               "    _, error, result = (client.send(*eval(line)), client.receive())[1]\n"
               "    print(repr(error or result), flush=True)\n")

    def __init__(self, daemon):
        import subprocess
        import sys
        words = [sys.executable, "-c", self.PROGRAM, str(daemon.path), os.path.dirname(__file__)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, method, args):
        self.process.stdin.write(repr((method, args)) + "\n")
        self.process.stdin.flush()

    def ask(self, name, wait_ms=20000, claim_ms=60000):
        self.send("artefact.get", {"cache": "t", "name": name, "claim_ms": claim_ms, "wait_ms": wait_ms})

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, "no answer within 20 s"
        return eval(self.process.stdout.readline())

    def call(self, method, args):
        self.send(method, args)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Crowd:
    """Some processes; the first one has the lease of b"k", and all others wait for it."""

    def __init__(self, daemon, count=8, **more):
        self.daemon = daemon
        self.all = [Process(daemon) for _ in range(count)]
        self.all[0].ask(b"k", **more)
        self.claim = self.all[0].answer()
        assert self.claim["state"] == "claimed", self.claim
        for process in self.all[1:]:
            process.ask(b"k", **more)
        until(lambda: waiting(daemon) == count - 1, "the others wait")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.all:
            process.kill()


def test_one_makes_it_for_eight_processes():
    with Daemon() as daemon, Crowd(daemon) as crowd:
        made = crowd.all[0].call("artefact.put", {"cache": "t", "name": b"k", "value": b"made", "cost_us": 5})
        assert made["served"] == 7, made
        for process in crowd.all[1:]:
            found = process.answer()
            assert found["state"] == "found" and found["value"] == b"made" and found["cost_us"] == 5, found
        counters = daemon.status()["counters"]
        assert counters["artefact_claims"] == 1 and counters["artefact_shared"] == 7, counters
        with daemon.client() as client:
            caches = client.call("artefact.caches")
        assert caches["leases"] == 0 and caches["waiting"] == 0
        assert caches["caches"][0]["cache"] == "t" and caches["caches"][0]["entries"] == 1


def next_leader(crowd, left):
    """Exactly one of the waiting ones is told to make it."""
    ready = until(lambda: select.select([p.process.stdout for p in left], [], [], 0.05)[0], "one is told")
    leader = next(p for p in left if p.process.stdout in ready)
    claim = leader.answer()
    assert claim["state"] == "claimed" and claim["lease"] != crowd.claim["lease"], claim
    until(lambda: waiting(crowd.daemon) == len(left) - 1, "the others wait on")
    return leader


def finish(crowd, leader, left):
    leader.send("artefact.put", {"cache": "t", "name": b"k", "value": b"second"})
    assert leader.answer()["served"] == len(left)
    assert all(process.answer()["value"] == b"second" for process in left)
    assert crowd.daemon.counter("artefact_claims") == 2


def test_a_killed_leader_is_replaced():
    with Daemon() as daemon, Crowd(daemon, 4) as crowd:
        crowd.all[0].kill()
        leader = next_leader(crowd, crowd.all[1:])
        finish(crowd, leader, [p for p in crowd.all[1:] if p is not leader])
        assert daemon.counter("artefact_leases_lost") == 1


def test_a_leader_that_gives_up_is_replaced():
    with Daemon() as daemon, Crowd(daemon, 3) as crowd:
        assert crowd.all[0].call("artefact.release", {"lease": crowd.claim["lease"]}) == {"released": True}
        leader = next_leader(crowd, crowd.all[1:])
        assert crowd.all[0].call("artefact.release", {"lease": crowd.claim["lease"]}) == {"released": False}
        finish(crowd, leader, [p for p in crowd.all[1:] if p is not leader])
        assert daemon.counter("artefact_leases_lost") == 0


def test_a_leader_that_takes_too_long_is_replaced():
    with Daemon() as daemon:
        slow, other = Process(daemon), Process(daemon)
        slow.ask(b"k", claim_ms=300)
        assert slow.answer()["state"] == "claimed"
        other.ask(b"k")
        claim = other.answer()
        assert claim["state"] == "claimed" and claim["waited_ms"] <= 20000, claim
        assert "lease-deadline" in daemon.log_text()
        # what the slow one has made at last is as good
        assert slow.call("artefact.put", {"cache": "t", "name": b"k", "value": b"late"})["served"] == 0
        assert other.call("artefact.get", {"cache": "t", "name": b"k"})["value"] == b"late"
        slow.kill()
        other.kill()


def test_waiting_ends():
    with Daemon("--wait-ms", "200") as daemon, Crowd(daemon, 2, wait_ms=60000) as crowd:
        held = crowd.all[1].answer()
        assert held["state"] == "held" and 150 <= held["waited_ms"] < 20000, held
        assert crowd.all[1].call("artefact.get", {"cache": "t", "name": b"k", "claim_ms": 5})["state"] == "held"
        crowd.all[1].ask(b"k", claim_ms=0)
        until(lambda: waiting(daemon) == 1, "it waits")
        assert crowd.all[0].call("artefact.release", {"lease": crowd.claim["lease"]})["released"]
        assert crowd.all[1].answer()["state"] == "absent" # it did not ask for a lease


def test_two_that_wait_for_each_other_do_not():
    with Daemon() as daemon:
        one, two = Process(daemon), Process(daemon)
        for process, name in ((one, b"a"), (two, b"b")):
            process.ask(name)
            assert process.answer()["state"] == "claimed"
        one.ask(b"b")
        until(lambda: waiting(daemon) == 1, "one waits for two")
        two.ask(b"a")
        assert two.answer()["state"] == "absent"
        two.send("artefact.put", {"cache": "t", "name": b"b", "value": b"b"})
        assert two.answer()["served"] == 1 and one.answer()["value"] == b"b"
        one.kill()
        two.kill()


def test_a_daemon_that_stops_lets_all_go():
    with Daemon() as daemon, Crowd(daemon, 3) as crowd:
        daemon.process.terminate()
        assert [p.answer()["state"] for p in crowd.all[1:]] == ["absent"] * 2


def test_a_killed_writer_leaves_nothing():
    with Daemon() as daemon:
        client = daemon.client()
        body = struct.pack(">I", 0x80000001) + request(1, "artefact.put",
                                                       {"cache": "t", "name": b"k", "value": bytes(1 << 20)})
        client.socket.sendall(frame(body)[:1 << 19])
        client.close()
        with daemon.client() as other:
            assert get(other, b"k")["state"] == "absent"
            assert other.call("cache.list")["entries"] == []


def test_damage_is_a_miss():
    with Daemon() as daemon:
        with daemon.client() as client:
            put(client, b"k", b"v" * 1000)
        daemon.stop()
        with sqlite3.connect(daemon.root / "state" / "cache.db") as store:
            assert store.execute("UPDATE blob SET data = zeroblob(length(data))").rowcount == 1
        store.close()
        again = Daemon(root=daemon.root)
        with again, again.client() as client:
            assert get(client, b"k")["state"] == "absent"
            assert again.counter("cache_corrupt") == 1
        daemon.process = again.process


def test_listed_shown_and_evicted():
    with Daemon() as daemon, daemon.client() as client:
        client.compile("echo module")
        keys = {name: put(client, name, b"v" * 5000, cache=cache, cost_us=7)["key"]
                for name, cache in ((b"a", "one"), (b"b", "one"), (b"c", "two"))}
        until(lambda: len(client.call("cache.list")["entries"]) == 4, "four entries")
        rows = client.call("cache.list")["entries"]
        assert sorted(row["kind"] for row in rows) == ["module", "one", "one", "two"], rows
        assert {row["uid"] for row in rows} == {os.getuid()}
        shown = client.call("cache.show", {"key": keys[b"c"]})
        assert shown["entry"][0]["kind"] == "two"
        assert {p["name"]: p["value"] for p in shown["parts"]} == {"cache": b"two", "name": b"c"}
        caches = client.call("artefact.caches")
        assert [(r["cache"], r["entries"], r["size"], r["cost_us"]) for r in caches["caches"]] == \
            [("one", 2, 10000, 14), ("two", 1, 5000, 7)], caches
        assert client.call("cache.evict", {"key": keys[b"a"]})["entries"] == 1
        assert client.call("cache.evict", {"cache": "two"})["entries"] == 1
        assert get(client, b"c", cache="two")["state"] == "absent"
        assert get(client, b"b", cache="one")["state"] == "found"
        assert client.call("cache.evict", {"all": True})["entries"] == 2


def test_names_of_caches_survive_a_restart():
    daemon = Daemon()
    with daemon:
        with daemon.client() as client:
            put(client, b"a", b"v", cache="some.cache")
        daemon.stop()
        again = Daemon(root=daemon.root)
        with again, again.client() as client:
            assert client.call("artefact.caches")["caches"][0]["cache"] == "some.cache"
            assert client.call("cache.list")["entries"][0]["kind"] == "some.cache"
        daemon.process = again.process


def test_artefacts_have_a_quota_and_modules_stay():
    generator = random.Random(SEED)
    with Daemon("--artefact-mb", "1", "--cache-ram-mb", "1") as daemon, daemon.client() as client:
        module = client.compile("echo module")
        for i in range(12): # the dear ones stay
            put(client, b"%d" % i, generator.randbytes(200_000), cost_us=10_000_000 if i < 3 else 10)
        rows = client.call("cache.list")["entries"]
        kept = [row for row in rows if row["kind"] == "t"]
        assert 3 <= len(kept) <= 5 and sum(row["stored"] for row in kept) <= 1 << 20, kept
        assert sum(row["cost_us"] == 10_000_000 for row in kept) == 3, kept
        assert client.call("artefact.caches")["quota"] == 1 << 20
        assert client.call("get", {"key": module["key"]})["module"] == module["module"]


if __name__ == "__main__":
    run({name: function for name, function in globals().items() if name.startswith("test_")})
