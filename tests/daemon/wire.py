"""wire.py - the client's half of symplex-rpc in plain Python, and daemons on private directories, for the
tests of daemon/.

Written from docs/PROTOCOL.md alone: it shares no code with protocol/, so it is a second opinion on the wire.
"""
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

BINARY = pathlib.Path(os.environ["SX_BINARY_DIR"]) / "bin"
HELLO_REQ = b"\0SP\0\0\x30\0\0"
HELLO_REP = b"\0SP\0\0\x31\0\0"
DEADLINE = 20.0


# ---- MessagePack ----
def pack(value):
    if value is None:
        return b"\xc0"
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xd3" + struct.pack(">q", value) if value < 1 << 63 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, (bytes, bytearray)):
        return b"\xc6" + struct.pack(">I", len(value)) + bytes(value)
    if isinstance(value, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(pack(v) for v in value)
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


def unpack(data, at=0):
    """One value from `at`: (value, next offset)."""
    def sized(width, start):
        return int.from_bytes(data[start:start + width], "big"), start + width

    def many(count, start):
        items = []
        for _ in range(count):
            item, start = unpack(data, start)
            items.append(item)
        return items, start

    def mapping(count, start):
        items, start = many(2 * count, start)
        return dict(zip(items[::2], items[1::2])), start

    t = data[at]
    at += 1
    if t < 0x80:
        return t, at
    if t >= 0xe0:
        return t - 256, at
    if t < 0x90:
        return mapping(t & 15, at)
    if t < 0xa0:
        return many(t & 15, at)
    if t < 0xc0:
        return data[at:at + (t & 31)].decode(), at + (t & 31)
    if t == 0xc0:
        return None, at
    if t in (0xc2, 0xc3):
        return t == 0xc3, at
    if t in (0xc4, 0xc5, 0xc6):
        n, at = sized(1 << (t - 0xc4), at)
        return data[at:at + n], at + n
    if t == 0xcb:
        return struct.unpack(">d", data[at:at + 8])[0], at + 8
    if 0xcc <= t <= 0xcf:
        return sized(1 << (t - 0xcc), at)
    if 0xd0 <= t <= 0xd3:
        width = 1 << (t - 0xd0)
        return int.from_bytes(data[at:at + width], "big", signed=True), at + width
    if t in (0xd9, 0xda, 0xdb):
        n, at = sized(1 << (t - 0xd9), at)
        return data[at:at + n].decode(), at + n
    if t in (0xdc, 0xdd):
        n, at = sized(2 << (t - 0xdc), at)
        return many(n, at)
    if t in (0xde, 0xdf):
        n, at = sized(2 << (t - 0xde), at)
        return mapping(n, at)
    raise ValueError("type 0x%02x" % t)


def frame(body):
    return b"\x01" + struct.pack(">Q", len(body)) + body


def request(msgid, method, args, meta=None):
    params = [args] if meta is None else [args, meta]
    return pack([0, msgid, method, params])


class Refused(Exception):
    """The daemon answered with an error."""

    def __init__(self, error):
        super().__init__("%s: %s" % (error["name"], error["msg"]))
        self.error = error
        self.name = error["name"]


class Client:
    """One connection. Calls may be sent ahead with `send` and collected with `receive`."""

    def __init__(self, path, hello=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path)) # blocking: waits while the backlog is full
        self.socket.settimeout(DEADLINE)
        self.data = b""
        self.next_id = 0
        if hello:
            self.socket.sendall(HELLO_REQ)
            assert self.exactly(8) == HELLO_REP

    def exactly(self, n):
        while len(self.data) < n:
            more = self.socket.recv(1 << 20)
            if not more:
                raise EOFError("connection closed by the daemon")
            self.data += more
        head, self.data = self.data[:n], self.data[n:]
        return head

    def send(self, method, args=None, meta=None):
        self.next_id += 1
        stack = struct.pack(">I", 0x80000000 | self.next_id)
        self.socket.sendall(frame(stack + request(self.next_id, method, args or {}, meta)))
        return self.next_id

    def receive_raw(self):
        head = self.exactly(9)
        assert head[0] == 1
        return self.exactly(int.from_bytes(head[1:], "big"))

    def receive(self):
        """(msgid, error or None, result or None)"""
        body = self.receive_raw()
        message, end = unpack(body, 4)
        assert end == len(body) and message[0] == 1, message
        assert int.from_bytes(body[:4], "big") == 0x80000000 | message[1] or message[1] == 0
        return message[1], message[2], message[3]

    def call(self, method, args=None, meta=None):
        sent = self.send(method, args, meta)
        msgid, error, result = self.receive()
        assert msgid == sent, (msgid, sent)
        if error is not None:
            raise Refused(error)
        return result

    def compile(self, ir, **more):
        return self.call("compile", dict({"ir": ir}, **more))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def until(check, what, seconds=DEADLINE):
    """Polls until `check` returns something true; returns that."""
    end = time.monotonic() + seconds
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError("not within %g s: %s" % (seconds, what))
        time.sleep(0.002)


class Daemon:
    """A daemon on directories of its own."""

    def __init__(self, *arguments, program="sx-fake-symplexd", root=None, env=None, preexec=None, wait=True):
        self.root = pathlib.Path(root or tempfile.mkdtemp(prefix="sxd."))
        self.own_root = root is None
        self.path = self.root / "d.sock"
        self.log_path = self.root / "log"
        self.log = open(self.log_path, "ab")
        base = {k: v for k, v in os.environ.items() if not k.startswith("SYMPLEX_") or k == "SYMPLEX_ISA_MAX"}
        base.update(HOME=str(self.root), XDG_CONFIG_HOME=str(self.root / "config"), **(env or {}))
        self.process = subprocess.Popen(
            [str(BINARY / program), "--state", str(self.root / "state"), "--socket", str(self.path),
             "--log-level", "3", *arguments],
            stderr=self.log, stdin=subprocess.DEVNULL, env=base, preexec_fn=preexec)
        if wait:
            until(self.is_ready, "daemon is ready; log:\n" + self.log_text())

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError("daemon ended with %d:\n%s" % (self.process.returncode, self.log_text()))
        try:
            with Client(self.path) as client:
                return client.call("ready")["ready"]
        except (OSError, EOFError):
            return False

    def client(self):
        return Client(self.path)

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def status(self):
        with self.client() as client:
            return client.call("status")

    def counter(self, name):
        return self.status()["counters"][name]

    def jobs(self):
        with self.client() as client:
            return client.call("jobs")["jobs"]

    def running(self):
        """The one job that runs in a worker and has reported a stage."""
        rows = [j for j in self.jobs() if j["state"] == "running" and j["stage"]]
        return rows[0] if rows else None

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE)

    def stop(self):
        """TERM; the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                try:
                    status = self.process.wait(DEADLINE)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    status = self.process.wait()
                if kind is None and status != 0:
                    raise AssertionError("daemon ended with %d:\n%s" % (status, self.log_text()[-4000:]))
            if kind is not None:
                print(self.log_text()[-4000:])
        finally:
            self.log.close()
            if self.own_root:
                shutil.rmtree(self.root, ignore_errors=True)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def run(namespace):
    """Runs every function named test_* in order of definition."""
    for name, function in list(namespace.items()):
        if name.startswith("test_") and callable(function):
            start = time.monotonic()
            function()
            print("ok %-50s %.2f s" % (name, time.monotonic() - start), flush=True)


__all__ = ["BINARY", "Client", "Daemon", "Refused", "alive", "frame", "pack", "request", "run", "until",
           "HELLO_REQ", "select", "signal", "socket", "struct", "time", "os"]
