"""Sessions of jobs on the wire: who may come, what is pinned, what a check says, and what ends a session."""
import hashlib
import subprocess
import sys

from wire import *

from test_service import refused

KEYS = [bytes([n]) * 32 for n in range(1, 5)]


def digest(module):
    """As docs/PROTOCOL.md says: BLAKE2b-256 of the domain and the parts, each with its length in front."""
    h = hashlib.blake2b(digest_size=32)
    for part in (b"symplex-module-1", module):
        h.update(struct.pack("<Q", len(part)) + part)
    return h.digest()


class Rank:
    def __init__(self, daemon, rank, world, job="job"):
        self.client, self.rank, self.daemon, self.world, self.job = daemon.client(), rank, daemon, world, job
        self.opened = self.client.call("session.open", {"job": job, "rank": rank, "world": world})
        self.session = self.opened["session"]

    def call(self, method, **args):
        return self.client.call("session." + method, dict({"session": self.session, "rank": self.rank}, **args))

    def send_check(self, round_, entries, wait_ms=20000):
        rows = [{"key": key, "digest": value} for key, value in entries.items()]
        self.client.send("session.check", {"session": self.session, "rank": self.rank, "round": round_,
                                           "entries": rows, "wait_ms": wait_ms})

    def answer(self):
        _, error, result = self.client.receive()
        if error is not None:
            raise Refused(error)
        return result

    def check(self, round_, entries, wait_ms=20000):
        self.send_check(round_, entries, wait_ms)
        return self.answer()


def row(daemon):
    with daemon.client() as client:
        rows = client.call("session.list")["sessions"]
    return rows[0] if rows else None


def test_who_may_come():
    with Daemon("--session-max", "2") as daemon:
        one = Rank(daemon, 0, 2)
        two = Rank(daemon, 1, 2)
        assert one.session == two.session and one.opened["pins"] == one.opened["round"] == 0
        refused(lambda: Rank(daemon, 0, 3), "INPUT", "rank 0 says 3 ranks, others say 2")
        refused(lambda: Rank(daemon, 2, 2), "INPUT", "rank 2 of 2")
        refused(lambda: Rank(daemon, 0, 4097), "INPUT", "4097")
        refused(lambda: Rank(daemon, 0, 1, job=""), "INPUT", "0 bytes")
        refused(lambda: Rank(daemon, 0, 1, job="j" * 257), "INPUT", "257 bytes")
        refused(lambda: one.client.call("session.show", {"session": 7}), "ABSENT", "session 7")
        other = Rank(daemon, 0, 1, job="other")
        assert other.session != one.session
        refused(lambda: Rank(daemon, 0, 1, job="third"), "BUSY", "at most 2")
        shown = one.client.call("session.show", {"session": one.session})
        assert [(r["rank"], r["state"], r["pid"]) for r in shown["ranks"]] == [(0, "open", os.getpid()),
                                                                               (1, "open", os.getpid())], shown
        taken = subprocess.run([sys.executable, "-c", "import sys\nsys.path.insert(0, sys.argv[2])\n"
                                "from wire import *\n"
                                "try: Client(sys.argv[1]).call('session.open', {'job': 'job', 'rank': 1, 'world': 2})\n"
                                "except Refused as refusal: print(refusal)", str(daemon.path),
                                os.path.dirname(__file__)], capture_output=True, text=True, timeout=20)
        assert f"rank 1 is process {os.getpid()} already" in taken.stdout, taken
        refused(lambda: one.call("pin", rank=2, key=KEYS[0]), "INPUT", "rank 2, allowed are 0 to 1")


def test_the_first_module_is_pinned():
    with Daemon() as daemon:
        one, two = Rank(daemon, 0, 2), Rank(daemon, 1, 2)
        assert one.call("pin", key=KEYS[0]) == {"state": "absent"}
        assert one.call("pin", key=KEYS[0], digest=digest(b"A")) == {"state": "absent"}
        refused(lambda: one.call("pin", key=KEYS[0], digest=digest(b"B"), module=b"A"), "INPUT", "digest")
        assert one.call("pin", key=KEYS[0], digest=digest(b"A"), module=b"A")["state"] == "pinned"
        assert two.call("pin", key=KEYS[0]) == {"state": "other", "rank": 0, "module": b"A"}
        assert two.call("pin", key=KEYS[0], digest=digest(b"B"), module=b"B")["module"] == b"A"
        assert two.call("pin", key=KEYS[0], digest=digest(b"A")) == {"state": "same", "rank": 0}
        assert two.call("pin", key=KEYS[1], digest=digest(b""), module=b"")["state"] == "pinned"
        assert one.call("pin", key=KEYS[1])["module"] == b""
        assert row(daemon)["pins"] == 2 and row(daemon)["bytes"] == 1
        # another job has pins of its own
        assert Rank(daemon, 0, 1, job="other").call("pin", key=KEYS[0]) == {"state": "absent"}
        counters = daemon.status()["counters"]
        assert counters["session_pins"] == 2 and counters["session_replaced"] == 1, counters


def test_without_room_only_digests_are_kept():
    with Daemon("--session-mb", "0") as daemon:
        one, two = Rank(daemon, 0, 2), Rank(daemon, 1, 2)
        assert one.call("pin", key=KEYS[0], digest=digest(b"A"), module=b"A")["state"] == "pinned"
        assert two.call("pin", key=KEYS[0]) == {"state": "lost", "rank": 0}
        assert two.call("pin", key=KEYS[0], digest=digest(b"B"), module=b"B")["state"] == "lost"
        assert two.call("pin", key=KEYS[0], digest=digest(b"A"), module=b"A")["state"] == "same"


def test_checks():
    with Daemon() as daemon:
        ranks = [Rank(daemon, n, 4) for n in range(4)]
        same = {KEYS[0]: b"a" * 32, KEYS[1]: b"b" * 32}
        for rank in ranks[:3]:
            rank.send_check(1, same)
        until(lambda: row(daemon)["waiting"] == 3, "three have come")
        assert ranks[3].check(1, same)["state"] == "equal"
        assert [rank.answer()["state"] for rank in ranks[:3]] == ["equal"] * 3
        # rank 0, which most differ from, is the one that is named
        odd = {KEYS[0]: b"x" * 32, KEYS[1]: b"b" * 32, KEYS[2]: b"c" * 32}
        for rank in ranks:
            rank.send_check(2, odd if rank.rank == 0 else same)
        for rank in ranks:
            got = rank.answer()
            assert got["state"] == "different" and got["differences"] == [
                {"rank": 0, "key": KEYS[0], "digest": b"x" * 32, "other_rank": 1, "other_digest": b"a" * 32},
                {"rank": 0, "key": KEYS[2], "digest": b"c" * 32, "other_rank": 1}], got
        # who did not hear the verdict asks again, and who is elsewhere is told
        assert ranks[2].check(2, same)["state"] == "different"
        refused(lambda: ranks[2].check(4, same), "INPUT", "rank 2 is at check 4, the job at 3")
        refused(lambda: ranks[2].check(1, same), "INPUT", "rank 2 is at check 1")
        rows = [{"key": KEYS[0], "digest": b"a" * 32}] * 2
        refused(lambda: ranks[0].call("check", round=3, entries=rows), "INPUT", "twice")
        rows = [{"key": struct.pack("<I", n) + bytes(28), "digest": bytes(32)} for n in range(8193)]
        refused(lambda: ranks[0].call("check", round=3, entries=rows), "LIMIT", "8193 modules, at most 8192")
        assert ranks[0].call("check", round=3, entries=rows[:8192])["state"] == "waiting"
        assert len(row(daemon)) > 0 and row(daemon)["round"] == 2
        missing = ranks[0].check(3, {}, 0)["missing"]
        assert [(r["rank"], r["state"]) for r in missing] == [(1, "open"), (2, "open"), (3, "open")], missing


def test_a_rank_that_goes_is_told_and_may_come_back():
    with Daemon() as daemon:
        one, two = Rank(daemon, 0, 2), Rank(daemon, 1, 2)
        one.send_check(1, {})
        until(lambda: row(daemon)["waiting"] == 1, "one waits")
        two.client.close()
        got = one.answer()
        assert got["state"] == "waiting" and [(r["rank"], r["state"]) for r in got["missing"]] == [(1, "gone")], got
        one.send_check(1, {})
        until(lambda: row(daemon)["gone"] == 1, "it is gone")
        again = Rank(daemon, 1, 2)
        assert again.session == two.session
        assert again.check(1, {})["state"] == "equal" and one.answer()["state"] == "equal"
        one.send_check(2, {})
        until(lambda: row(daemon)["waiting"] == 1, "one waits")
        assert again.call("close") == {"left": 1}
        assert one.answer()["missing"][0]["state"] == "closed"
        refused(lambda: again.call("pin", key=KEYS[0]), "INPUT", "rank 1 has closed it")
        assert one.call("close") == {"left": 0} and row(daemon) is None
        assert Rank(daemon, 0, 3).session != one.session # the job's name is free


def test_a_forgotten_session_ends():
    with Daemon("--session-idle-s", "1") as daemon:
        one = Rank(daemon, 0, 2)
        one.call("pin", key=KEYS[0], digest=digest(b"A"), module=b"A")
        time_open = row(daemon)
        assert time_open["open"] == 1
        one.client.close()
        until(lambda: row(daemon) is None, "it is forgotten")
        assert "session-idle" in daemon.log_text()


def test_a_daemon_that_stops_tells_those_that_wait():
    with Daemon() as daemon:
        one = Rank(daemon, 0, 2)
        one.send_check(1, {})
        until(lambda: row(daemon)["waiting"] == 1, "one waits")
        daemon.process.terminate()
        assert one.answer()["state"] == "waiting"


if __name__ == "__main__":
    run({name: function for name, function in globals().items() if name.startswith("test_")})
