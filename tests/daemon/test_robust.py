"""What the daemon survives: hostile bytes, clients that vanish, workers that die, a full disk, kill -9, a
second daemon."""
import contextlib
import random
import resource
import shutil
import sqlite3
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


def closed(client):
    """The daemon closes this connection."""
    try:
        while client.socket.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True


def rss_kib(pid):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_garbage():
    seed = int(os.environ.get("SX_SEED", time.time_ns() % 1000000))
    print("seed: SX_SEED=%d" % seed)
    rng = random.Random(seed)
    good = frame(struct.pack(">I", 0x80000001) + request(1, "compile", {"ir": "echo"}))
    with Daemon() as daemon:
        fixed = [
            b"GET / HTTP/1.1\r\n\r\n", b"\0SP\0\0\x31\0\0", b"\0" * 64, b"\xff" * 64,
            HELLO_REQ + b"\x02" + b"\0" * 8, HELLO_REQ + b"\x01" + b"\xff" * 8,
            HELLO_REQ + b"\x01\0\0\1\0\0\0\0\0", HELLO_REQ + frame(b""), HELLO_REQ + frame(b"\0\0\0\1"),
            HELLO_REQ + frame(b"\0\0\0\1" * 40 + b"\x80\0\0\0"),
        ]
        for data in fixed:
            client = Client(daemon.path, hello=False)
            client.socket.sendall(data)
            assert closed(client), data
        assert daemon.counter("protocol_errors") == len(fixed)
        before = rss_kib(daemon.process.pid)
        for _ in range(300):
            client = Client(daemon.path, hello=False)
            data = bytearray(HELLO_REQ + good * 2)
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                client.socket.sendall(bytes(data[:rng.randrange(len(data) + 1)]))
            except (BrokenPipeError, ConnectionResetError):
                pass
            client.close()
        with daemon.client() as client: # bombs inside well-formed frames are answered, not fatal
            for body in (b"\xdd\x10\0\0\0", b"\xdf\xff\xff\xff\xff", b"\x91" * 60 + b"\xc0", b"\xc1", b"\x94"):
                client.socket.sendall(frame(b"\x80\0\0\7" + body))
                message, _ = unpack_body(client.receive_raw())
                assert message[2]["name"] in ("INPUT", "LIMIT"), message
            assert client.call("ping")["boot_id"]
        assert rss_kib(daemon.process.pid) - before < 16 << 10


def unpack_body(body):
    from wire import unpack
    return unpack(body, 4)


def test_oversize_claim_takes_no_memory():
    with Daemon() as daemon:
        before = rss_kib(daemon.process.pid)
        clients = []
        for _ in range(50): # 50 x 64 MiB are claimed, 50 x 10 bytes are sent
            client = daemon.client()
            client.socket.sendall(b"\x01" + struct.pack(">Q", 64 << 20) + b"0123456789")
            clients.append(client)
        with daemon.client() as client:
            assert client.call("ping")
        assert rss_kib(daemon.process.pid) - before < 8 << 10
        client = daemon.client()
        client.socket.sendall(b"\x01" + struct.pack(">Q", (64 << 20) + 4096))
        assert closed(client)


def test_a_thousand_early_closes():
    with Daemon() as daemon:
        for i in range(1000):
            client = Client(daemon.path, hello=False)
            if i % 4 == 1:
                client.socket.sendall(HELLO_REQ[:i % 8])
            elif i % 4 == 2:
                client.socket.sendall(HELLO_REQ + frame(struct.pack(">I", 0x80000001) + request(1, "ping", {})))
            elif i % 4 == 3:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with daemon.client() as client:
            assert client.call("ping")
        until(lambda: daemon.counter("open_sessions") == 1, "all sessions are gone")
        fds = len(os.listdir("/proc/%d/fd" % daemon.process.pid))
        assert fds < 60, fds


def test_silent_connections():
    with Daemon("--stall-ms", "300") as daemon:
        silent = [Client(daemon.path, hello=False) for _ in range(100)] # never say hello
        half = daemon.client() # half a frame
        half.socket.sendall(b"\x01\0\0")
        idle = daemon.client() # between calls: may be silent for ever
        with daemon.client() as client:
            start = time.monotonic()
            client.call("ping")
            assert time.monotonic() - start < 1
        assert all(closed(client) for client in silent) and closed(half)
        assert idle.call("ping") and daemon.counter("stalled") == 101
        idle.close()


def test_client_limit():
    with Daemon("--clients-max", "4") as daemon:
        clients = [daemon.client() for _ in range(4)]
        extra = Client(daemon.path, hello=False)
        assert closed(extra)
        clients.pop().close()
        until(daemon.is_ready, "there is room again")
        for client in clients:
            client.close()


def test_slow_reader_is_cut_off():
    with Daemon("--output-mb", "8", "--stall-ms", "2000") as daemon:
        with daemon.client() as client:
            client.compile("big 4000000")
        slow = daemon.client()
        for _ in range(8): # asks for 32 MB and reads nothing
            slow.send("compile", {"ir": "big 4000000"})
        with daemon.client() as client:
            assert client.call("ping")
        until(lambda: daemon.counter("stalled") == 1, "the slow reader is gone")
        assert rss_kib(daemon.process.pid) < 200 << 10
        slow.close()


def test_disconnect_kills_the_worker():
    with Daemon() as daemon:
        taken = []
        for order in ("hold", "spin") * 3:
            client = daemon.client()
            client.send("compile", {"ir": order})
            worker = until(daemon.running, "runs")["worker"]
            start = time.monotonic()
            client.close()
            until(lambda: not alive(worker), "the worker is gone")
            taken.append(time.monotonic() - start)
            until(lambda: daemon.jobs() == [], "the job is gone")
        assert min(taken) < 0.3, taken # the best one: this machine may be busy with other tests
        assert daemon.counter("cancelled") == 6
        assert daemon.counter("cache_struck_keys") == 0
        stay, leave = daemon.client(), daemon.client()
        stay.send("compile", {"ir": "hold both"})
        leave.send("compile", {"ir": "hold both"})
        until(lambda: [j for j in daemon.jobs() if j["waiters"] == 2 and j["stage"]], "two wait")
        leave.close()
        until(lambda: [j for j in daemon.jobs() if j["waiters"] == 1], "one waits")
        os.kill(daemon.running()["worker"], signal.SIGUSR1)
        assert stay.receive()[2]["module"] == b"compiled:hold both|"
        stay.close()


def test_disconnect_with_a_full_window():
    with Daemon("--inflight-max", "2", "--workers", "2") as daemon:
        client = daemon.client()
        for i in range(6):
            client.send("compile", {"ir": "hold %d" % i})
        until(lambda: len([j for j in daemon.jobs() if j["stage"]]) == 2, "two run, four are not read")
        client.close() # nothing is read from it: the sweep sees its end
        until(lambda: daemon.jobs() == [], "all are cancelled")


def test_disconnect_at_any_point():
    with Daemon() as daemon:
        sent = HELLO_REQ + frame(struct.pack(">I", 0x80000001) + request(1, "compile", {"ir": "echo any point"}))
        for cut in range(len(sent) + 1):
            client = Client(daemon.path, hello=False)
            client.socket.sendall(sent[:cut])
            client.close()
        with daemon.client() as client:
            assert client.compile("echo any point")["state"] == "done"
        until(lambda: daemon.counter("open_sessions") == 1 and daemon.counter("active_jobs") == 0, "nothing is left")


def test_worker_killed_by_hand():
    with Daemon("--workers", "1") as daemon, daemon.client() as client:
        client.send("compile", {"ir": "hold"})
        worker = until(daemon.running, "runs")["worker"]
        os.kill(worker, signal.SIGKILL)
        _, error, _ = client.receive()
        assert error["name"] == "WORKER" and "signal 9" in error["msg"] and str(worker) in error["msg"], error
        assert client.compile("echo next")["state"] == "done"
        idle = until(lambda: [w for w in daemon.status()["workers"] if w["state"] == "idle"], "an idle worker")[0]
        os.kill(idle["pid"], signal.SIGKILL)
        until(lambda: [w for w in daemon.status()["workers"] if w["state"] == "idle" and w["pid"] != idle["pid"]],
              "it is replaced")
        assert client.compile("echo more")["state"] == "done"


def test_key_that_kills_is_quarantined():
    with Daemon() as daemon, daemon.client() as client:
        for _ in range(2):
            refused(lambda: client.compile("crash me"), "WORKER", "by signal 6")
        refused(lambda: client.compile("crash me"), "QUARANTINED", "by signal 6")
        deaths = daemon.counter("worker_died")
        assert deaths == 2
        assert client.compile("echo fine")["state"] == "done"
        root = daemon.root
        daemon.own_root = False
    with Daemon(root=root) as daemon, daemon.client() as client: # known after a restart
        refused(lambda: client.compile("crash me"), "QUARANTINED")
        refused(lambda: client.compile("crash me", refresh=True), "WORKER")
    shutil.rmtree(root)


def test_broken_workers():
    with Daemon("--workers", "2") as daemon, daemon.client() as client:
        refused(lambda: client.compile("exit"), "WORKER", "exit status 3")
        refused(lambda: client.compile("garbage"), "WORKER")
        refused(lambda: client.compile("mute"), "WORKER")
        if "worker-seccomp" in client.call("hello")["features"]:
            refused(lambda: client.compile("fork"), "WORKER", "signal 31")
            refused(lambda: client.compile("open"), "COMPILE", "Permission denied")
        assert client.compile("echo fine")["state"] == "done"


def test_memory_limit():
    with Daemon("--worker-memory-mb", "200") as daemon, daemon.client() as client:
        if "worker-memory-limit" not in client.call("hello")["features"]:
            print("skipped: this build does not limit the memory of workers")
            return
        refused(lambda: client.compile("alloc"), "NOMEM", "no memory")
        assert client.compile("echo fine")["state"] == "done"


def test_cpu_limit():
    with Daemon("--worker-cpu-s", "1") as daemon, daemon.client() as client:
        refused(lambda: client.compile("spin"), "WORKER", "signal %d" % signal.SIGXCPU)
        assert client.compile("echo fine")["state"] == "done"


def zygote_of(daemon):
    with open("/proc/%d/task/%d/children" % (daemon.process.pid, daemon.process.pid)) as children:
        return int(children.read().split()[0])


def test_zygote_killed():
    with Daemon() as daemon, daemon.client() as client:
        client.send("compile", {"ir": "hold"})
        worker = until(daemon.running, "runs")["worker"]
        os.kill(zygote_of(daemon), signal.SIGKILL)
        _, error, _ = client.receive()
        assert error["name"] == "WORKER", error
        until(lambda: not alive(worker), "its workers die with it")
        assert daemon.counter("cache_struck_keys") == 0 # says nothing about the program
        assert client.compile("echo after")["state"] == "done"
        assert daemon.counter("zygote_restarts") >= 1


def test_zygote_stopped():
    with Daemon() as daemon, daemon.client() as client:
        hold = daemon.client()
        hold.send("compile", {"ir": "hold"})
        worker = until(daemon.running, "runs")["worker"]
        os.kill(zygote_of(daemon), signal.SIGSTOP)
        hold.close()
        until(lambda: daemon.counter("zygote_restarts") == 1, "the zygote is replaced")
        until(lambda: not alive(worker), "the worker is gone")
        assert client.compile("echo after")["state"] == "done"
        os.kill(zygote_of(daemon), signal.SIGSTOP) # stopping goes on all the same


def test_kill_9_and_restart():
    root = None
    modules = {}
    for turn in range(5):
        daemon = Daemon(root=root)
        root = daemon.root
        daemon.own_root = False
        with daemon.client() as client:
            for ir, module in modules.items():
                got = client.compile(ir, mode="hit_only")
                assert got["module"] == module and got["tier"] == "disk", (ir, got)
            for i in range(20):
                ir = "echo %d %d" % (turn, i)
                modules[ir] = client.compile(ir)["module"]
            until(lambda: client.call("status")["counters"]["cache_queue_rows"] == 0, "all is committed")
            client.send("compile", {"ir": "hold"})
            worker = until(daemon.running, "runs")["worker"]
            daemon.kill()
            until(lambda: not alive(worker), "workers die with the daemon")
        assert os.path.exists(daemon.path) # stale socket for the next one
        daemon.log.close()
    shutil.rmtree(root)


def test_two_daemons_on_one_state():
    with Daemon() as daemon:
        other = Daemon("--socket", str(daemon.root / "other.sock"), root=daemon.root, wait=False)
        assert other.process.wait(20) == 5
        assert "in use by process %d" % daemon.process.pid in daemon.log_text(), daemon.log_text()
        third = Daemon("--state", str(daemon.root / "state3"), root=daemon.root, wait=False)
        assert third.process.wait(20) == 5
        assert "another daemon serves it" in daemon.log_text()
        with daemon.client() as client: # the first one goes on
            assert client.call("ping")


def test_socket_path_problems():
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "plain")
        open(plain, "w").close()
        for path, status, text in ((plain, 2, "is not a socket"), ("/" + "x" * 200, 2, "path of 201 bytes"),
                                   (folder + "/none/such/d.sock", 6, "cannot be made")):
            process = subprocess.run([str(BINARY / "sx-fake-symplexd"), "--state", folder + "/state", "--socket", path],
                                     stderr=subprocess.PIPE, timeout=20)
            assert process.returncode == status and text in process.stderr.decode(), (path, process)
        assert os.path.exists(plain)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_full_disk():
    rng = random.Random(7)
    programs = ["echo " + "%060000x" % rng.getrandbits(240000) for _ in range(60)] # about 30 KB each when packed
    modules = {}
    with Daemon("--log-level", "0", preexec=limit_files) as daemon, daemon.client() as client:
        for ir in programs[:3]:
            modules[ir] = client.compile(ir)["module"]
        until(lambda: client.call("status")["counters"]["cache_queue_rows"] == 0, "three are committed")
        for ir in programs[3:]: # far more than the disk takes
            modules[ir] = client.compile(ir)["module"]
        until(lambda: client.call("status")["counters"]["cache_errors"] > 0, "the store has noticed")
        assert client.call("status")["store"] == "failing"
        until(lambda: "level=error ev=cache-store state=failing error=" in daemon.log_text(), "the log tells it")
        assert daemon.log_text().count("ev=cache-store") == 1, daemon.log_text() # once, however often it is tried
        for ir, module in modules.items(): # the memory tier goes on
            assert client.compile(ir)["module"] == module
        assert client.call("ready")["ready"]
        daemon.own_root = False
        root = daemon.root
    with Daemon(root=root) as daemon, daemon.client() as client: # what was committed is there and right
        hits = 0
        for ir, module in modules.items():
            try:
                assert client.compile(ir, mode="hit_only")["module"] == module
                hits += 1
            except Refused as refusal:
                assert refusal.name == "ABSENT", refusal
                assert ir not in programs[:3]
        print("after a full disk: %d of %d modules are on it" % (hits, len(modules)))
        assert hits >= 3 and client.call("cache.verify")["bad"] == 0
    shutil.rmtree(root)


def test_store_of_a_newer_version():
    with Daemon() as daemon, daemon.client() as client:
        client.compile("echo older")
        daemon.own_root = False
        root = daemon.root
    for name, table in (("cache.db", "entry"), ("search.db", "search")):
        with contextlib.closing(sqlite3.connect(next(root.rglob(name)))) as store:
            assert store.execute("SELECT count(*) FROM " + table).fetchone()[0] == (name == "cache.db")
            store.execute("PRAGMA user_version = 1000")
    with Daemon("--log-level", "0", root=root) as daemon, daemon.client() as client: # works from memory, and says why
        assert client.call("status")["store"] == "newer"
        tiers = [client.compile("echo older")["tier"] for _ in range(2)]
        assert tiers == ["none", "ram"], tiers
        log = daemon.log_text()
        assert log.count("ev=cache-store state=newer error=") == 1 and "of a newer version" in log, log
        assert "level=error ev=search-db error=\"search.db: version 1000, at most" in log, log
    shutil.rmtree(root)


if __name__ == "__main__":
    run(globals())
