"""What the daemon promises to well-behaved clients: hits, single flight, jobs, cancelling, limits, draining, reload."""
import pathlib
import shutil
import subprocess
import tempfile
from wire import *


def refused(function, name, part=""):
    try:
        function()
    except Refused as refusal:
        assert refusal.name == name, refusal
        assert part in refusal.error["msg"], refusal.error["msg"]
        return refusal.error
    raise AssertionError("%s expected" % name)


def release(daemon):
    """Lets the held compilation go on."""
    job = until(daemon.running, "a job runs")
    os.kill(job["worker"], signal.SIGUSR1)
    return job


def test_hello_and_limits():
    with Daemon("--inflight-max", "7") as daemon, daemon.client() as client:
        hello = client.call("hello", {"client": "test", "later": [1, {"x": 2}]})
        assert hello["server"] == "symplexd" and hello["build"] == "fake-1"
        assert hello["limits"]["inflight"] == 7 and hello["limits"]["request_bytes"] == 64 << 20
        assert "work" not in hello["methods"] and hello["methods"]["compile"] == 1
        assert client.call("ping", {"data": b"\0\xff" * 1000})["data"] == b"\0\xff" * 1000
        refused(lambda: client.call("work", {"optimize": False, "request": [{"ir": "echo"}]}), "UNIMPLEMENTED")
        refused(lambda: client.call("no.such", {}), "UNIMPLEMENTED", "no.such")
        refused(lambda: client.call("compile", {}), "INPUT", "'ir' is missing")
        refused(lambda: client.call("compile", {"ir": 5}), "INPUT", "'ir' is not text")
        refused(lambda: client.compile("echo", mode="later"), "INPUT", "mode")
        refused(lambda: client.call("ping", {"data": bytes((1 << 20) + 1)}), "LIMIT", "ping")
        assert os.stat(daemon.path).st_mode & 0o777 == 0o600


def test_hit_never_touches_a_worker():
    with Daemon("--workers", "1") as daemon, daemon.client() as client:
        first = client.compile("echo one", target="native", dims={"n": 3})
        assert first["tier"] == "none" and first["module"] == b"compiled:echo one|native|n=3"
        hold = daemon.client()
        hold.send("compile", {"ir": "hold"})
        until(daemon.running, "the only worker is busy")
        again = client.compile("echo one", target="native", dims={"n": 3})
        assert again["tier"] == "ram" and again["module"] == first["module"] and again["key"] == first["key"]
        assert client.call("get", {"key": first["key"]})["module"] == first["module"]
        other = client.compile("echo one", target="native", dims={"n": 4}, mode="async")
        assert other["key"] != first["key"] and other["state"] == "queued"
        refused(lambda: client.compile("echo two", mode="hit_only"), "ABSENT")
        refused(lambda: client.call("get", {"key": bytes(32)}), "ABSENT", "00" * 32)
        counters = daemon.status()["counters"]
        assert counters["misses"] == 3 and counters["absent"] == 2, counters
        assert counters["hits"] == 2 and counters["hits_ram"] == 2 and counters["compiles"] == 2, counters
        hold.close()


def test_refresh_compiles_again():
    with Daemon() as daemon, daemon.client() as client:
        client.compile("echo x")
        assert client.compile("echo x")["tier"] == "ram"
        assert client.compile("echo x", refresh=True)["tier"] == "none"
        assert daemon.counter("compiles") == 2


def test_sixteen_callers_one_compilation():
    with Daemon() as daemon:
        clients = [daemon.client() for _ in range(16)]
        for client in clients:
            client.send("compile", {"ir": "hold for sixteen"})
        until(lambda: [j for j in daemon.jobs() if j["waiters"] == 16], "all sixteen wait")
        release(daemon)
        results = [client.receive() for client in clients]
        assert all(error is None for _, error, _ in results), results
        assert len({result["module"] for _, _, result in results}) == 1
        assert sorted(result["coalesced"] for _, _, result in results) == [False] + [True] * 15
        counters = daemon.status()["counters"]
        assert counters["compiles"] == 1 and counters["coalesced"] == 15, counters
        for client in clients:
            client.close()


def test_same_request_during_a_look():
    """The module is made and stored while an equal request still looks for stored programs."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sxd.look."))
    with Daemon(env={"FAKE_LOOK": str(folder)}) as daemon, daemon.client() as early, daemon.client() as late:
        for number, client in (("1", early), ("2", late)):
            client.send("compile", {"ir": "echo twice"})
            until((folder / number).exists, "look-up %s has begun" % number)
        (folder / "1.go").touch()
        first = early.receive()[2]
        (folder / "2.go").touch()
        second = late.receive()[2]
        assert first["tier"] == "none" and second["tier"] == "ram", (first, second)
        assert first["module"] == second["module"]
        counters = daemon.status()["counters"]
        assert counters["compiles"] == 1 and counters["hits_ram"] == 1, counters
    shutil.rmtree(folder)


def test_many_calls_on_one_connection():
    with Daemon("--inflight-max", "8") as daemon, daemon.client() as client:
        sent = [client.send("compile", {"ir": "echo %d" % i}) for i in range(200)]
        got = {}
        for _ in sent:
            msgid, error, result = client.receive()
            assert error is None
            got[msgid] = result["module"]
        assert [got[i] for i in sent] == [b"compiled:echo %d|" % i for i in range(200)]


def test_async_wait_events_cancel():
    with Daemon() as daemon, daemon.client() as client:
        job = client.compile("hold a", mode="async")
        assert job["state"] in ("queued", "running") and "module" not in job
        events = client.call("wait", {"job": job["job"]})
        while not events["events"]:
            events = client.call("wait", {"job": job["job"], "seq": events["seq"]})
        assert [e["stage"] for e in events["events"]] == ["hold"] and events["state"] == "running"
        assert events["events"][0]["done"] == 1 and events["events"][0]["total"] == 2
        idle = client.call("wait", {"job": job["job"], "seq": events["seq"], "wait_ms": 30})
        assert idle["events"] == [] and idle["state"] == "running"
        release(daemon)
        seen, answer = events["seq"], events
        while answer["state"] != "done":
            answer = client.call("wait", {"job": job["job"], "seq": seen})
            seen = answer["seq"]
        assert answer["module"] == b"compiled:hold a|" and seen == 2
        again = client.call("wait", {"job": job["job"], "seq": 0})
        assert [e["seq"] for e in again["events"]] == [1, 2] and again["module"] == answer["module"]
        second = client.compile("hold b", mode="async")
        until(daemon.running, "second job runs")
        assert client.call("cancel", {"job": second["job"]})["state"] == "running"
        refused(lambda: client.call("wait", {"job": second["job"]}), "CANCELLED", "cancelled by a call")
        refused(lambda: client.call("wait", {"job": 999}), "ABSENT", "job 999")
        assert client.call("cancel", {"job": second["job"]})["state"] == "cancelled"


def test_leaving_a_job():
    with Daemon() as daemon, daemon.client() as client, daemon.client() as other:
        leave = lambda who, job: who.call("cancel", {"job": job["job"], "leave": True})["state"]
        first = client.compile("hold a", mode="async")
        second = other.compile("hold a", mode="async")
        until(daemon.running, "runs")
        assert first["job"] == second["job"]
        assert leave(client, first) == "running"
        release(daemon)  # it goes on for the other one
        waiting = {"job": second["job"], "seq": 99, "wait_ms": 1000}
        done = until(lambda: [a for a in [other.call("wait", waiting)] if a["state"] == "done"], "done")[0]
        assert done["module"] == b"compiled:hold a|"
        third = client.compile("hold b", mode="async")
        other.send("compile", {"ir": "hold b"})  # waits for the result
        until(lambda: any(row["waiters"] == 1 for row in daemon.jobs()), "waits")
        assert leave(client, third) == "running" and daemon.running()
        release(daemon)
        assert other.receive()[2]["module"] == b"compiled:hold b|"
        fourth = client.compile("hold c", mode="async")
        until(daemon.running, "the last one runs")
        assert leave(client, fourth) == "running"
        until(lambda: not daemon.running(), "nobody asked for it any more")
        assert daemon.counter("cancelled") == 1
        refused(lambda: client.call("wait", {"job": fourth["job"]}), "ABSENT", "job")


def test_wait_ms_answers_running():
    with Daemon() as daemon, daemon.client() as client:
        answer = client.compile("hold", wait_ms=20)
        assert answer["state"] == "running" and "module" not in answer
        release(daemon)
        until(lambda: client.call("wait", {"job": answer["job"], "seq": 99, "wait_ms": 1000})["state"] == "done",
              "the job ends although its first caller left")


def test_deadline_of_the_caller():
    with Daemon() as daemon, daemon.client() as client:
        patient = daemon.client()
        patient.send("compile", {"ir": "hold"})
        until(daemon.running, "runs")
        refused(lambda: client.call("compile", {"ir": "hold"}, {"dl": 30}), "TIMEOUT", "deadline of the call")
        release(daemon)
        assert patient.receive()[2]["module"] == b"compiled:hold|"
        refused(lambda: client.call("compile", {"ir": "hold alone"}, {"dl": 30}), "TIMEOUT")
        until(lambda: daemon.jobs() == [], "the job died with its only caller")
        assert daemon.counter("cancelled") == 1 and daemon.counter("expired") == 2
        patient.close()


def test_compile_deadline():
    with Daemon("--compile-ms", "60") as daemon, daemon.client() as client:
        refused(lambda: client.compile("spin"), "TIMEOUT", "stopped after 60 ms")
        assert client.compile("echo after")["module"] == b"compiled:echo after|"
        counters = daemon.status()["counters"]
        assert counters["timeouts"] == 1 and counters["cache_struck_keys"] == 0, counters


def test_queue_limit():
    with Daemon("--workers", "1", "--queue-max", "3") as daemon, daemon.client() as client:
        jobs = [client.compile("hold %d" % i, mode="async")["job"] for i in range(3)]
        error = refused(lambda: client.compile("echo"), "BUSY", "3 compilations, at most 3")
        assert error["retry"] and error["after_ms"] > 0
        for job in jobs:
            client.call("cancel", {"job": job})
        assert client.compile("echo")["state"] == "done"


def test_errors_of_the_program():
    with Daemon() as daemon, daemon.client() as client:
        error = refused(lambda: client.compile("fail now"), "COMPILE", "program refused: fail now")
        assert error["hint"] == "Ask for less." and error["code"] == 100 and not error["retry"]
        refused(lambda: client.compile("bad"), "INPUT", "line 1")
        refused(lambda: client.compile("wrong"), "CORRUPT", "module")
        refused(lambda: client.compile("wrong", mode="hit_only"), "ABSENT")
        assert client.call("optimize", {"ir": "echo"})["module"] == b"better echo"
        assert client.call("optimize", {"ir": "echo"})["tier"] == "ram"


def test_trace_is_logged():
    with Daemon() as daemon, daemon.client() as client:
        client.call("compile", {"ir": "echo"}, {"tr": "00-4bf9\n\"x"})
        client.call("hello", {"client": "me 1.0"})
        until(lambda: 'client="me 1.0"' in daemon.log_text(), "the client is named")
        lines = [line for line in daemon.log_text().splitlines() if r'trace="00-4bf9\x0a\"x"' in line]
        assert ["ev=job" in line for line in lines] == [True, False] and "method=compile" in lines[1], daemon.log_text()


def test_large_program():
    with Daemon() as daemon, daemon.client() as client:
        program = "echo " + "x" * (20 << 20)
        assert client.compile(program)["module"] == b"compiled:" + program.encode() + b"|"
        assert client.compile(program)["tier"] == "ram"
        assert daemon.counter("memo_hits") == 0 # hashed on a pool thread, not on the loop
        refused(lambda: client.call("optimize", {"ir": "\0" * 5, "target": 7}), "INPUT", "'target' is not text")


def test_command_line():
    def tool(*arguments, status=0):
        done = subprocess.run([str(BINARY / "sx-fake-symplexd"), *arguments], capture_output=True, timeout=20)
        assert done.returncode == status, done
        return (done.stdout + done.stderr).decode()

    assert tool("--version") == "symplexd 0.1.0 build fake-1\n"
    assert "--worker-memory-mb" in tool("--help") and "SYMPLEX_NAME" in tool("--help")
    assert "workers = 7    ; argument\n" in tool("--print-config", "--workers", "7")
    assert tool("--check-config") == "configuration is valid\n"
    assert "workers: 'x' is not a whole number" in tool("--workers", "x", status=2)
    assert "'--what' is not known" in tool("--what", status=2)
    assert "/none: cannot be read" in tool("--config", "/none", status=6)


def test_large_module():
    with Daemon() as daemon, daemon.client() as client:
        module = client.compile("big 30000000 x")["module"]
        assert len(module) >= 30000000 and module.startswith(b"compiled:big")
        assert client.compile("big 30000000 x")["module"] == module


def test_cache_methods():
    with Daemon() as daemon, daemon.client() as client:
        keys = [client.compile("echo %d" % i)["key"] for i in range(5)]
        listed = client.call("cache.list", {"limit": 3})
        assert len(listed["entries"]) == 3 and listed["more"]
        listed = client.call("cache.list")
        assert {e["key"] for e in listed["entries"]} == set(keys) and not listed["more"]
        shown = client.call("cache.show", {"key": keys[2]})
        assert shown["entry"][0]["key"] == keys[2] and shown["entry"][0]["kind"] == "module"
        assert {p["name"]: p["value"] for p in shown["parts"]}["toolchain"] == b"fake"
        assert client.call("cache.verify") == {"checked": 5, "bad": 0, "orphans": 0, "pages_bad": 0}
        assert client.call("cache.evict", {"key": keys[0]})["entries"] == 1
        refused(lambda: client.call("cache.show", {"key": keys[0]}), "ABSENT")
        refused(lambda: client.call("cache.evict", {}), "INPUT", "either key, or cache, or all")
        refused(lambda: client.call("cache.list", {"limit": 0}), "INPUT")
        assert client.call("cache.evict", {"all": True})["entries"] == 4
        assert client.compile("echo 1")["tier"] == "none"


def test_workers_are_recycled():
    with Daemon("--workers", "1", "--worker-jobs", "3") as daemon, daemon.client() as client:
        for i in range(10):
            client.compile("echo %d" % i)
        counters = daemon.status()["counters"]
        assert counters["worker_recycled"] == 3 and counters["worker_died"] == 0, counters


def test_term_finishes_what_is_under_way():
    with Daemon() as daemon:
        client, late = daemon.client(), daemon.client()
        client.compile("echo stored")
        client.send("compile", {"ir": "hold through the drain"})
        job = until(daemon.running, "runs")
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: not os.path.exists(daemon.path), "the socket is gone")
        refused(lambda: late.compile("echo new"), "BUSY", "stopping")
        assert late.compile("echo stored")["tier"] == "ram"
        assert late.call("ready") == {"ready": False, "why": "draining"}
        assert daemon.process.poll() is None
        os.kill(job["worker"], signal.SIGUSR1)
        assert client.receive()[2]["module"] == b"compiled:hold through the drain|"
        assert daemon.process.wait(20) == 0
        assert not alive(job["worker"])
        daemon.own_root = False
    with Daemon(root=daemon.root) as after, after.client() as client:
        assert client.compile("hold through the drain")["tier"] == "disk"
    shutil.rmtree(daemon.root)


def test_second_term_is_fast():
    with Daemon() as daemon, daemon.client() as client:
        client.send("compile", {"ir": "hold"})
        job = until(daemon.running, "runs")
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: not os.path.exists(daemon.path), "the socket is gone")
        daemon.process.send_signal(signal.SIGTERM)
        _, error, _ = client.receive()
        assert error["name"] == "BUSY" and "stopping" in error["msg"], error
        assert daemon.process.wait(20) == 0
        until(lambda: not alive(job["worker"]), "the worker is gone")


def test_shutdown_call_and_idle_exit():
    with Daemon() as daemon, daemon.client() as client:
        assert client.call("shutdown")["state"] == "draining"
        assert daemon.process.wait(20) == 0
    with Daemon("--idle-exit-s", "1") as daemon:
        assert daemon.process.wait(20) == 0


def test_reload():
    root = None
    with Daemon() as daemon:
        config = daemon.root / "config" / "symplex"
        config.mkdir(parents=True)
        (config / "symplexd.conf").write_text("queue_max = 0\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "symplexd.conf:1: queue_max: 0, allowed 1 to 100000" in daemon.log_text(), "the error is logged")
        (config / "symplexd.conf").write_text("; comment\nqueue_max = 1\nworkers = 9\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "ev=reloaded" in daemon.log_text(), "reloaded")
        assert "option=workers applied=needs-restart" in daemon.log_text()
        with daemon.client() as client:
            client.compile("hold", mode="async")
            refused(lambda: client.compile("echo"), "BUSY", "at most 1")


if __name__ == "__main__":
    run(globals())
