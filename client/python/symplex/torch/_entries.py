"""Bytes by a key: at the daemon where one answers, else in a folder of the user's. Whoever asks gets what was put
whole, or nothing."""
from __future__ import annotations

import hashlib
import os
import pathlib
import stat
import tempfile
import time
from typing import Any

from symplex import _c
from symplex._errors import Error

_CACHE = "torch.graphs"
_MAGIC = b"sxtorch1"
_FOLDER_BYTES_MAX = 1 << 30
_LEFT_OVER_S = 3600.0  # a file that was being written so long ago belongs to a process that was killed

COUNTS: dict[str, int] = {"hits": 0, "misses": 0, "kept": 0, "damaged": 0}
_reasons: dict[str, int] = {}


def warm_starts() -> dict[str, Any]:
    """What became of the graphs of this process: hits, which AOT autograd did not see; misses; kept, of those;
    damaged, entries that were refused; and for what was not looked up or not kept, how often for which reason."""
    return {**COUNTS, "reasons": dict(_reasons)}


def tell(reason: str) -> None:
    _reasons[reason] = _reasons.get(reason, 0) + 1


def _head(key: str, value: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(value)
    return _MAGIC + digest.digest()


def _opened(key: str, whole: bytes) -> bytes | None:
    """None of what is damaged, or was put by another key."""
    start = len(_head(key, b""))
    value = whole[start:]
    return value if whole[:start] == _head(key, value) else None


def folder() -> pathlib.Path:
    """$SYMPLEX_CACHE_DIR/torch, else in the user's cache folder."""
    given = os.environ.get("SYMPLEX_CACHE_DIR")
    base = pathlib.Path(given) if given else pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "symplex"
    return base / "torch"


class _Folder:
    """Files that only this user can write, as what is read of them is trusted like a program is."""

    def __init__(self) -> None:
        self.path = folder()

    def _mine(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def get(self, key: str) -> bytes | None:
        if not self._mine():
            return None
        try:
            value = (self.path / key).read_bytes()
            os.utime(self.path / key)  # used last: evicted last
            return value
        except OSError:
            return None

    def put(self, key: str, value: bytes) -> bool:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._mine():
                return False
            with tempfile.NamedTemporaryFile(dir=self.path, prefix="new.", delete=False) as file:
                try:
                    file.write(value)
                    file.flush()
                    os.replace(file.name, self.path / key)
                except BaseException:
                    os.unlink(file.name)
                    raise
            self._evict()
            return True
        except OSError:  # full, or read only
            return False

    def _evict(self) -> None:
        """Those that were used longest ago, until the rest fits."""
        now, total = time.time(), 0
        entries = []
        for entry in os.scandir(self.path):
            try:
                found = entry.stat()
            except OSError:  # another process evicts, too
                continue
            left_over = entry.name.startswith("new.") and now - found.st_mtime > _LEFT_OVER_S
            entries.append((0.0 if left_over else found.st_mtime, found.st_size, entry.path))
        for used, size, path in sorted(entries, reverse=True):
            total += size
            if used == 0.0 or total > _FOLDER_BYTES_MAX:
                try:
                    os.unlink(path)
                except OSError:
                    pass


class _Daemon:
    """A connection for each call: there is one when a graph is compiled."""

    def __init__(self, socket: str | None) -> None:
        self.socket = socket

    def get(self, key: str) -> bytes | None:
        store = _c.Store(self.socket)
        try:
            return store.get(_CACHE, key.encode(), 0, 0)[0]
        finally:
            store.close()

    def put(self, key: str, value: bytes, cost_us: int) -> None:
        store = _c.Store(self.socket)
        try:
            store.put(_CACHE, key.encode(), value, cost_us)
        finally:
            store.close()


def get(key: str, options: dict[str, Any]) -> tuple[bytes | None, bool]:
    """What was put, or None; and whether that is for damage. `options` are those of symplex.compile."""
    found = None
    try:
        if options.get("daemon", "auto") == "never":
            found = _Folder().get(key)
        else:
            found = _Daemon(options.get("socket")).get(key)
    except Error:
        if options.get("daemon", "auto") == "auto":
            found = _Folder().get(key)
    value = _opened(key, found) if found is not None else None
    return value, found is not None and value is None


def put(key: str, value: bytes, cost_us: int, options: dict[str, Any]) -> bool:
    """Whether it is kept."""
    whole = _head(key, value) + value
    try:
        if options.get("daemon", "auto") == "never":
            return _Folder().put(key, whole)
        _Daemon(options.get("socket")).put(key, whole, cost_us)
        return True
    except Error:
        return options.get("daemon", "auto") == "auto" and _Folder().put(key, whole)
