#!/usr/bin/env python3
"""Searches of the daemon, over the wire, with the compiler that does what its program says: steps, budgets,
restarts, limits."""
import resource
import shutil
import sqlite3
import tempfile

from wire import *


def refused(call, name, text=""):
    try:
        call()
    except Refused as refusal:
        assert refusal.name == name and text in refusal.error["msg"], refusal
        return refusal.error
    raise AssertionError("not refused with " + name)


def start(client, program, budget_ms=60000, **more):
    return client.call("search.start", dict({"ir": program, "budget_ms": budget_ms}, **more))["search"]


def show(daemon, search):
    with daemon.client() as client:
        answer = client.call("search.show", {"search": search})
        return answer["search"][0], answer["lanes"]


def ended(client, search):
    """Long poll until the search does not run any more; its row."""
    answer = client.call("search.wait", {"search": search})
    while answer["search"][0]["state"] == "running":
        answer = client.call("search.wait", {"search": search, "seq": answer["seq"], "wait_ms": 5000})
    return answer["search"][0]


def held(daemon, search):
    """Workers whose step waits for SIGUSR1."""
    return [lane["worker"] for lane in show(daemon, search)[1] if lane.get("stage") == "hold"]


def step_forward(daemon, search):
    """Lets one held step go on; waits until it is stored."""
    before = daemon.counter("search_steps")
    worker = until(lambda: held(daemon, search), "a step is held")[0]
    os.kill(worker, signal.SIGUSR1)
    until(lambda: daemon.counter("search_steps") > before, "the step is stored")


def steps_of(log):
    """(lane, step) of every finished step, in the order of the log."""
    found = []
    for line in log.splitlines():
        if "ev=step " in line:
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            found.append((int(words["lane"]), int(words["step"])))
    return found


def undisturbed(program, **more):
    """Result and lanes of the same search in a daemon that nothing happens to."""
    with Daemon() as daemon, daemon.client() as client:
        search = start(client, program, **more)
        row = ended(client, search)
        lanes = show(daemon, search)[1]
        return row, client.call("search.result", {"search": search}), lanes


def same_lanes(a, b):
    keys = ("lane", "name", "state", "steps", "objective", "bound", "nodes", "fuel", "bytes")
    return [[lane.get(k) for k in keys] for lane in a] == [[lane.get(k) for k in keys] for lane in b]


def test_a_search_from_start_to_end():
    with Daemon() as daemon, daemon.client() as client:
        started = client.call("search.start", {"ir": "search 3 4", "budget_ms": 60000})
        assert started["search"] == 1 and started["lanes"] == 3
        row = ended(client, 1)
        assert row["state"] == "done" and row["steps"] == 12 and row["lanes_ended"] == 3, row
        assert row["objective"] == "time" and row["target"] == "native" and row["budget_ms"] == 60000
        assert row["bound"] == 50.0 and row["used_ms"] <= 60000 and row["peak_bytes"] == 4096
        _, lanes = show(daemon, 1)
        assert [lane["name"] for lane in lanes] == ["lane-0", "lane-1", "lane-2"]
        assert all(lane["state"] == "done" and lane["steps"] == 4 and lane["why"] == "proven" for lane in lanes), lanes
        best = min(lanes, key=lambda lane: (lane["objective"], lane["lane"]))
        assert row["best"] == best["objective"] and row["best_lane"] == best["lane"]
        result = client.call("search.result", {"search": 1})
        assert result["state"] == "done" and result["lane"] == best["lane"] and result["objective"] == row["best"]
        module = result["module"].decode().split()
        assert module[0] == "compiled:" and int(module[1]) == best["lane"] and int(module[3]) == row["best"]
        assert steps_of(daemon.log_text())[-1][1] == 4
        counters = daemon.status()["counters"]
        assert counters["searches"] == 1 and counters["search_steps"] == 12 and counters["searches_running"] == 0
        assert client.call("search.list")["searches"] == [row]


def test_the_front_of_all_lanes():
    with Daemon() as daemon, daemon.client() as client:
        search = start(client, "search 3 2", options={"objective": "pareto"})
        row = ended(client, search)
        assert row["objective"] == "pareto"
        parts = client.call("search.result", {"search": search})["module"].split(b"+")
        assert len(parts) == 3 and sorted(int(p.split()[1]) for p in parts) == [0, 1, 2], parts
        assert int(parts[0].split()[1]) == row["best_lane"]


def test_killed_in_the_middle_of_a_step():
    program = "search 2 3 hold"
    root = tempfile.mkdtemp(prefix="sxd.")
    log = ""
    with Daemon(root=root) as daemon, daemon.client() as client:
        search = start(client, program)
        for _ in range(3):
            step_forward(daemon, search)
        first = client.call("search.result", {"search": search})
        until(lambda: held(daemon, search), "the next step is under way")
        row, lanes = show(daemon, search)
        daemon.kill()
        log = daemon.log_text()
    with sqlite3.connect(os.path.join(root, "state", "search.db")) as db:
        used_us = db.execute("SELECT used FROM search").fetchone()[0]
        assert 0 < used_us <= row["used_ms"] * 1000 + 999, "only finished steps are counted"
    db.close()
    finished = steps_of(log)
    assert sorted(finished) == [(0, 1), (0, 2), (1, 1)], finished
    with Daemon(root=root) as daemon, daemon.client() as client:
        again, lanes_now = show(daemon, search)
        assert again["state"] == "running" and again["steps"] == 3 and again["created_ms"] == row["created_ms"]
        assert [lane["steps"] for lane in lanes_now] == [lane["steps"] for lane in lanes]
        assert again["worked_ms"] == row["worked_ms"], (row, again)
        assert client.call("search.result", {"search": search})["module"] == first["module"]
        for _ in range(3):
            step_forward(daemon, search)
        assert ended(client, search)["state"] == "done"
        result = client.call("search.result", {"search": search})
        lanes = show(daemon, search)[1]
        finished = steps_of(daemon.log_text())
        assert len(finished) == len(set(finished)) == 6, "no step is done twice: %s" % finished
        assert start(client, "search 1 1") == search + 1
    with Daemon("--workers", "1") as daemon, daemon.client() as client:
        search = start(client, program)
        for _ in range(6):
            step_forward(daemon, search)
        assert ended(client, search)["state"] == "done"
        assert client.call("search.result", {"search": search}) == result
        assert same_lanes(show(daemon, search)[1], lanes)
    shutil.rmtree(root)


def test_killed_at_any_time():
    """The daemon is killed again and again, wherever it is; the search comes to the same end."""
    program = "search 5 40 huge=100000"
    _, expected, expected_lanes = undisturbed(program)
    root = tempfile.mkdtemp(prefix="sxd.")
    kills, seen = 0, []
    with Daemon(root=root) as daemon, daemon.client() as client:
        search = start(client, program)
        daemon.kill()
    while True:
        with Daemon(root=root) as daemon, daemon.client() as client:
            begin = client.call("search.wait", {"search": search})
            row = begin["search"][0]
            assert not seen or row["steps"] >= seen[-1], (row, seen)
            seen.append(row["steps"])
            goal = row["steps"] + 30
            while row["state"] == "running" and row["steps"] < goal:
                begin = client.call("search.wait", {"search": search, "seq": begin["seq"], "wait_ms": 5000})
                row = begin["search"][0]
            if row["state"] != "running":
                break
            daemon.kill()
            kills += 1
    with Daemon(root=root) as daemon, daemon.client() as client:
        assert row["state"] == "done" and kills >= 3, (row, kills)
        assert client.call("search.result", {"search": search}) == expected
        assert same_lanes(show(daemon, search)[1], expected_lanes)
        finished = [s for s in steps_of(daemon.log_text())]
        assert max(s for _, s in finished) == 40
    shutil.rmtree(root)


def test_compilations_come_first():
    with Daemon("--workers", "2") as daemon, daemon.client() as client:
        search = start(client, "search 4 50 hold")
        until(lambda: held(daemon, search), "a step is under way")
        row, _ = show(daemon, search)
        assert row["lanes_active"] == 1, "one of two workers is left for compilations"
        for i in range(5):
            assert client.compile("echo %d" % i)["state"] == "done"
        assert show(daemon, search)[0]["steps"] == 0, "the step is still held"
        client.call("search.cancel", {"search": search})
    with Daemon("--workers", "1") as daemon, daemon.client() as client:
        search = start(client, "search 4 50 hold")
        worker = until(lambda: held(daemon, search), "a step is under way")[0]
        with daemon.client() as other:
            for i in range(3):
                other.send("compile", {"ir": "echo %d" % i})
            until(lambda: len(daemon.jobs()) == 3, "they wait for the only worker")
            os.kill(worker, signal.SIGUSR1)
            modules = sorted(other.receive()[2]["module"] for i in range(3))
            assert modules == [b"compiled:echo %d|" % i for i in range(3)], modules
        until(lambda: show(daemon, search)[0]["steps"] == 1, "all three came before the second step")
    with Daemon("--workers", "2", "--search-workers", "2") as daemon, daemon.client() as client:
        search = start(client, "search 4 50 hold")
        until(lambda: len(held(daemon, search)) == 2, "both workers have a step")


def test_budget_and_extension():
    with Daemon() as daemon, daemon.client() as client:
        search = start(client, "search 2 30 hold", budget_ms=2)
        while show(daemon, search)[0]["state"] == "running":
            if held(daemon, search):
                step_forward(daemon, search)
        row = ended(client, search)
        assert row["state"] == "spent" and 1 <= row["steps"] < 60 and row["used_ms"] >= 2, row
        assert client.call("search.result", {"search": search})["state"] == "spent"
        assert show(daemon, search)[0]["used_ms"] == row["used_ms"]
        assert client.call("search.extend", {"search": search, "budget_ms": 60000})["state"] == "running"
        for _ in range(60 - row["steps"]):
            step_forward(daemon, search)
        row = ended(client, search)
        assert row["state"] == "done" and row["steps"] == 60 and row["budget_ms"] == 60002
        refused(lambda: client.call("search.extend", {"search": search, "budget_ms": 1}), "INPUT", "nothing left")


def test_cancel_and_remove():
    with Daemon() as daemon, daemon.client() as client:
        search = start(client, "search 2 3 hold")
        refused(lambda: client.call("search.result", {"search": search}), "ABSENT", "no program found yet")
        step_forward(daemon, search)
        worker = until(lambda: held(daemon, search), "the next step")[0]
        refused(lambda: client.call("search.remove", {"search": search}), "INPUT", "cancel it first")
        waiter = daemon.client()
        seq = waiter.call("search.wait", {"search": search})["seq"]
        waiter.send("search.wait", {"search": search, "seq": seq})
        assert client.call("search.cancel", {"search": search})["state"] == "cancelled"
        assert waiter.receive()[2]["search"][0]["state"] == "cancelled"
        until(lambda: not alive(worker), "its worker is gone")
        assert client.call("search.cancel", {"search": search})["state"] == "cancelled"
        assert client.call("search.result", {"search": search})["state"] == "cancelled"
        assert client.call("search.extend", {"search": search, "budget_ms": 1})["state"] == "running"
        until(lambda: held(daemon, search), "it goes on")
        client.call("search.cancel", {"search": search})
        assert client.call("search.remove", {"search": search})["state"] == "removed"
        refused(lambda: client.call("search.show", {"search": search}), "ABSENT", "search %d: not known" % search)
        assert client.call("search.list")["searches"] == []
        assert start(client, "search 1 1") == search + 1
        waiter.close()


def test_wrong_input():
    with Daemon("--search-max", "2") as daemon, daemon.client() as client:
        for budget in (0, -5, 1 << 62):
            refused(lambda: start(client, "search 1 1", budget), "INPUT", "budget_ms %d, allowed 1 to" % budget)
        refused(lambda: start(client, "echo"), "INPUT", "no search")
        refused(lambda: start(client, "bad"), "INPUT", "line 1")
        refused(lambda: start(client, "search 65 1"), "LIMIT", "65 lanes, at most 64")
        refused(lambda: start(client, "search 0 1"), "LIMIT", "0 lanes")
        refused(lambda: client.call("search.start", {"ir": "search 1 1"}), "INPUT", "budget_ms")
        refused(lambda: client.call("search.wait", {"search": 7}), "ABSENT", "search 7: not known")
        refused(lambda: client.call("step", {}), "INPUT")
        start(client, "search 1 1")
        start(client, "search 1 1")
        refused(lambda: start(client, "search 1 1"), "LIMIT", "2 kept, at most 2")
        assert daemon.counter("searches") == 2


def test_lanes_are_given_up():
    with Daemon() as daemon, daemon.client() as client:
        program = "search 5 3 crash=1:2 fail=2:2 wrong=3:1 deaf=4:2"
        search = start(client, program)
        row = ended(client, search)
        lanes = show(daemon, search)[1]
        assert row["state"] == "done" and [lane["state"] for lane in lanes] == ["done"] + 4 * ["out"], lanes
        assert "by signal 6 in step 2" in lanes[1]["why"] and lanes[1]["steps"] == 1
        assert lanes[2]["why"] == "lane 2 refuses step 2" and lanes[4]["why"] == "answered with another step"
        assert "module" in lanes[3]["why"] and "objective" not in lanes[3]
        counters = daemon.status()["counters"]
        assert counters["worker_died"] == 2 and counters["search_lanes_out"] == 4 and counters["failed"] == 0, counters
        assert daemon.counter("cache_struck_keys") == 1 # the step's: strikes are counted where those of keys are
        assert client.call("search.result", {"search": search})["objective"] == row["best"]
        alone = start(client, "search 1 2 fail=0:1")
        row = ended(client, alone)
        assert row["state"] == "failed" and row["why"] == "lane 0 refuses step 1" and "best" not in row
        refused(lambda: client.call("search.result", {"search": alone}), "ABSENT", "lane 0 refuses step 1")
        full = start(client, "search 1 9 limit=0:2")
        assert ended(client, full)["state"] == "done"
        assert show(daemon, full)[1][0]["steps"] == 2 and show(daemon, full)[1][0]["why"] == "state"


def test_a_step_that_never_ends():
    with Daemon("--compile-ms", "60") as daemon, daemon.client() as client:
        search = start(client, "search 2 2 spin=1:2")
        assert ended(client, search)["state"] == "done"
        lanes = show(daemon, search)[1]
        assert "more than 60 ms" in lanes[1]["why"] and lanes[0]["state"] == "done", lanes


def test_bytes_of_states_are_limited():
    with Daemon("--search-mb", "1") as daemon, daemon.client() as client:
        search = start(client, "search 3 2 huge=500000")
        row = ended(client, search)
        lanes = show(daemon, search)[1]
        assert sorted(lane["state"] for lane in lanes) == ["done", "done", "out"], lanes
        out = [lane for lane in lanes if lane["state"] == "out"][0]
        assert "at most 1048576" in out["why"] and out["bytes"] == 0 and row["bytes"] <= 1 << 20


def test_damage_restarts_a_lane():
    program = "search 2 3 hold"
    root = tempfile.mkdtemp(prefix="sxd.")
    with Daemon(root=root) as daemon, daemon.client() as client:
        search = start(client, program)
        for _ in range(4):
            step_forward(daemon, search)
        lanes = show(daemon, search)[1]
        assert [lane["steps"] for lane in lanes] == [2, 2]
        daemon.kill()
    with sqlite3.connect(os.path.join(root, "state", "search.db")) as db:
        data = bytearray(db.execute("SELECT data FROM search_blob WHERE lane = 1 AND part = 0").fetchone()[0])
        data[len(data) // 2] ^= 1
        db.execute("UPDATE search_blob SET data = ? WHERE lane = 1 AND part = 0", (bytes(data),))
    db.close()
    with Daemon(root=root) as daemon, daemon.client() as client:
        until(lambda: show(daemon, search)[1][1]["restarts"] == 1 or
              (held(daemon, search) and step_forward(daemon, search)), "the damage is found")
        lane = show(daemon, search)[1][1]
        assert lane["objective"] == lanes[1]["objective"] and "damaged" in lane["why"], lane
        while show(daemon, search)[0]["state"] == "running":
            if held(daemon, search):
                step_forward(daemon, search)
        now = show(daemon, search)[1]
        assert [lane["steps"] for lane in now] == [3, 3] and daemon.counter("search_restarts") == 1
        result = client.call("search.result", {"search": search})
        daemon.kill()
    with sqlite3.connect(os.path.join(root, "state", "search.db")) as db:
        db.execute("UPDATE search SET used = used + 1")
    db.close()
    with Daemon(root=root) as daemon, daemon.client() as client:
        assert "damaged=1" in daemon.log_text()
        row = show(daemon, search)[0]
        assert row["state"] == "failed" and "damaged" in row["why"]
        assert client.call("search.result", {"search": search})["module"] == result["module"]
        daemon.kill()
    for name in os.listdir(os.path.join(root, "state")):
        if name.startswith("search.db"):
            with open(os.path.join(root, "state", name), "r+b") as file:
                file.write(b"nonsense" * 64)
    with Daemon(root=root) as daemon, daemon.client() as client:
        assert client.call("search.list")["searches"] == [] and "set aside" in daemon.log_text()
        assert ended(client, start(client, "search 1 1"))["state"] == "done"
        assert any(".damaged." in name for name in os.listdir(os.path.join(root, "state")))
    shutil.rmtree(root)


def test_another_build_begins_again():
    root = tempfile.mkdtemp(prefix="sxd.")
    with Daemon(root=root) as daemon, daemon.client() as client:
        search = start(client, "search 2 3 hold")
        for _ in range(4):
            step_forward(daemon, search)
        row = show(daemon, search)[0]
        daemon.kill()
    with Daemon(root=root, env={"FAKE_BUILD": "fake-2"}) as daemon, daemon.client() as client:
        until(lambda: show(daemon, search)[0]["steps"] == 0, "both lanes begin again")
        now, lanes = show(daemon, search)
        assert now["best"] == row["best"] and now["worked_ms"] == row["worked_ms"], (now, row)
        assert all("another build" in lane["why"] for lane in lanes), lanes
        for _ in range(6):
            step_forward(daemon, search)
        assert ended(client, search)["state"] == "done"
    shutil.rmtree(root)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))


def test_full_disk():
    program = "search 2 4 huge=400000"
    _, expected, lanes = undisturbed(program)
    with Daemon(preexec=limit_files) as daemon, daemon.client() as client:
        search = start(client, program)
        row = until(lambda: [r for r in client.call("search.list")["searches"] if "why" in r], "the store is full")[0]
        assert "search.db" in row["why"] and row["state"] == "running", row
        refused(lambda: start(client, "search 1 1 " + "x" * 900000), "SYSTEM", "search.db")
        assert client.compile("echo while it is full")["state"] == "done"
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        row = ended(client, search)
        assert row["state"] == "done" and "why" not in row, row
        assert client.call("search.result", {"search": search}) == expected
        assert same_lanes(show(daemon, search)[1], lanes)
        assert daemon.counter("search_stores_failed") > 0 and "recovered" in daemon.log_text()


def test_drain_stores_the_step_under_way():
    root = tempfile.mkdtemp(prefix="sxd.")
    with Daemon(root=root) as daemon, daemon.client() as client:
        search = start(client, "search 2 3 hold")
        worker = until(lambda: held(daemon, search), "a step is under way")[0]
        daemon.process.send_signal(signal.SIGTERM)
        until(lambda: not os.path.exists(daemon.path), "the socket is gone")
        refused(lambda: start(client, "search 1 1"), "BUSY", "stopping")
        assert daemon.process.poll() is None
        os.kill(worker, signal.SIGUSR1)
        assert daemon.process.wait(20) == 0
    with Daemon(root=root) as daemon, daemon.client() as client:
        assert show(daemon, search)[0]["steps"] == 1
        worker = until(lambda: held(daemon, search), "it goes on")[0]
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(20) == 0
        until(lambda: not alive(worker), "the worker is gone")
    with Daemon(root=root) as daemon:
        assert show(daemon, search)[0]["steps"] == 1
    shutil.rmtree(root)


def test_a_client_that_leaves():
    with Daemon() as daemon:
        client = daemon.client()
        client.send("search.start", {"ir": "search 2 3", "budget_ms": 60000})
        client.close()
        with daemon.client() as other:
            until(lambda: other.call("search.list")["searches"], "it is there")
            assert ended(other, 1)["state"] == "done"
            gone = daemon.client()
            search = start(other, "search 1 2 hold")
            gone.send("search.wait", {"search": search, "seq": gone.call("search.wait", {"search": search})["seq"]})
            gone.close()
            step_forward(daemon, search)


def test_idle_exit_waits_for_searches():
    with Daemon("--idle-exit-s", "1") as daemon:
        with daemon.client() as client:
            search = start(client, "search 1 1 hold")
            worker = until(lambda: held(daemon, search), "a step is under way")[0]
        os.kill(worker, signal.SIGUSR1)
        assert daemon.process.wait(20) == 0
        assert "state=done" in daemon.log_text()


if __name__ == "__main__":
    run(globals())
