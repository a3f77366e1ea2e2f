"""The caches of PyTorch's compiler, Triton and JAX, kept by the daemon: shared by ranks and restarts, and one process
compiles while the others wait.

    import symplex
    print(symplex.caches.install())      # before the first compilation; says what it did
    ...
    print(symplex.caches.stats())

Everything goes on without a daemon, and when it goes away: then each process compiles for itself, as without this
module, and one warning says so. What the daemon gives back was put there by processes of the same user.
"""
from __future__ import annotations

import importlib
import importlib.util
import os
import threading
import time
import warnings
from typing import Any, Callable

from symplex import _c
from symplex._errors import Error, InputError, LimitExceeded

CLAIM_MS = 600_000  # who makes something longer than this is overtaken
WAIT_S = 300.0  # who waited so long makes it, too
_PAUSE_S = (5.0, 60.0)  # between tries to reach a daemon that went away: the first, the longest


class Keeper:
    """Bytes by the name of a cache and a name within it, at the daemon; never an exception, but KeyboardInterrupt.

    Calls may come from any thread. Each takes a connection that nobody uses, or makes one. No locks: a child that is
    forked while another thread holds one would wait for ever. What a cache claims belongs to the thread, which has one
    claim for each cache at a time: the next one gives the one before back."""

    def __init__(self, socket: str | None = None, wait_s: float = WAIT_S) -> None:
        self.socket, self.wait_s = socket, wait_s
        self._free: list[Any] = []
        self._all: list[Any] = []
        self._local = threading.local()
        self._counts: dict[str, dict[str, float]] = {}
        self._retry_at = 0.0
        self._pause = _PAUSE_S[0]
        self._warned = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """The child closes what it inherited, or claims of a parent that dies would seem to live on."""
        for store in self._all:
            store.close()
        self._free, self._all, self._local = [], [], threading.local()

    def _count(self, cache: str, **more: float) -> None:
        row = self._counts.setdefault(cache, dict.fromkeys(
            ("gets", "hits", "shared", "waited_s", "misses", "claims", "puts", "bytes_in", "bytes_out", "errors"), 0))
        for name, by in more.items():
            row[name] += by

    def _lost(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _PAUSE_S[1])
        if not self._warned:
            self._warned = True
            warnings.warn(f"symplex.caches: {error}; this process compiles for itself until the daemon is back",
                          RuntimeWarning, stacklevel=2)

    def connect(self) -> None:
        """Raises what is wrong if there is no daemon."""
        store = _c.Store(self.socket)
        self._all.append(store)
        self._free.append(store)

    def _call(self, cache: str, function: Callable[[Any], Any]) -> Any:
        """What the function makes of a connection; None if there is no daemon."""
        if time.monotonic() < self._retry_at:
            return None
        store = None
        try:
            try:
                store = self._free.pop()
            except IndexError:
                store = _c.Store(self.socket)
                self._all.append(store)
            result = function(store)
            self._pause = _PAUSE_S[0]
            self._free.append(store)
            return result
        except (InputError, LimitExceeded):  # of this artefact alone: too large, for example
            self._count(cache, errors=1)
            self._free.append(store)
        except Error as error:
            self._count(cache, errors=1)
            self._drop(store)
            self._lost(error)
        except BaseException:
            self._drop(store)
            raise
        return None

    def _drop(self, store: Any) -> None:
        if store is not None:
            store.close()
            self._all.remove(store)

    def get(self, cache: str, name: str, claim: bool = False, wait: bool = False) -> bytes | None:
        """The bytes, or None. `claim`: whoever gets None makes them, and puts or releases; the others wait meanwhile.
        `wait`: only wait while another process makes them."""
        if claim:
            self.release(cache)
        key = name.encode()
        wait_ms = int(self.wait_s * 1000) if claim or wait else 0
        got = self._call(cache, lambda store: store.get(cache, key, CLAIM_MS if claim else 0, wait_ms))
        value, lease, _, waited_ms = got if got is not None else (None, 0, False, 0)
        self._count(cache, gets=1, hits=value is not None, misses=value is None, claims=lease != 0,
                    shared=value is not None and waited_ms > 0, waited_s=waited_ms / 1000,
                    bytes_in=len(value) if value is not None else 0)
        if value is None:
            self._begun()[cache] = name, lease, time.monotonic()
        return value

    def _begun(self) -> dict[str, tuple[str, int, float]]:
        if not hasattr(self._local, "begun"):
            self._local.begun = {}
        begun: dict[str, tuple[str, int, float]] = self._local.begun
        return begun

    def put(self, cache: str, name: str, value: bytes) -> None:
        """Keeps the bytes. They cost the time since this thread missed them."""
        asked, _, since = self._begun().get(cache, ("", 0, 0.0))
        cost_us = int((time.monotonic() - since) * 1e6) if asked == name else 1000
        done = self._call(cache, lambda store: store.put(cache, name.encode(), value, cost_us) or True)
        self._count(cache, puts=done is not None, bytes_out=len(value) if done else 0)
        if asked == name and done:
            del self._begun()[cache]

    def release(self, cache: str, name: str | None = None) -> None:
        """Gives back what this thread claims (of that name)."""
        asked, lease, _ = self._begun().get(cache, ("", 0, 0.0))
        if asked and name in (None, asked):
            del self._begun()[cache]
            if lease != 0:
                self._call(cache, lambda store: store.release(lease) or True)

    def stats(self) -> dict[str, dict[str, float]]:
        return {cache: dict(row) for cache, row in sorted(self._counts.items())}


_keeper: Keeper | None = None
_installed: dict[str, str] = {}
_FRAMEWORKS = {"inductor": ("torch", "symplex._caches_torch"), "triton": ("triton", "symplex._caches_triton"),
               "jax": ("jax", "symplex._caches_jax")}


def keeper() -> Keeper:
    """That of this process. Processes that a framework starts get here by the environment, without `install`."""
    global _keeper
    if _keeper is None:
        _keeper = Keeper()
    return _keeper


def install(*frameworks: str, socket: str | None = None, wait_s: float = WAIT_S) -> dict[str, str]:
    """Keeps the caches of these frameworks ("inductor", "triton", "jax"; all that are installed, if none is named) at
    the daemon, and says for each what was done, or why nothing was. Call it before the first compilation; calling it
    again does no harm. Without a daemon nothing is done, and a warning says so.

    `socket` is the daemon's, by default $SYMPLEX_SOCKET or the user's own. `wait_s`: how long to wait for another
    process that compiles the same before it is compiled here, too."""
    global _keeper
    unknown = set(frameworks) - set(_FRAMEWORKS)
    if unknown:
        raise ValueError(f"caches.install: {', '.join(sorted(unknown))}: known are {', '.join(_FRAMEWORKS)}")
    if not wait_s >= 0:
        raise ValueError(f"caches.install: wait_s is {wait_s}, needed is 0 or more")
    if _keeper is None or socket is not None and socket != _keeper.socket:
        made = Keeper(socket, wait_s)
        try:
            made.connect()
        except Error as error:
            warnings.warn(f"symplex.caches: {error}; every process compiles for itself", RuntimeWarning, stacklevel=2)
            return {name: "nothing: no daemon" for name in frameworks or _FRAMEWORKS}
        _keeper = made
        _installed.clear()
    _keeper.wait_s = wait_s
    if socket is not None:
        os.environ.setdefault("SYMPLEX_SOCKET", socket)  # for processes that frameworks start
    done = {}
    for name in frameworks or _FRAMEWORKS:
        package, module = _FRAMEWORKS[name]
        if name in _installed:
            done[name] = _installed[name]
        elif importlib.util.find_spec(package) is None:
            done[name] = f"nothing: {package} is not installed"
        else:
            try:
                done[name] = _installed[name] = importlib.import_module(module).install(_keeper)
            except (ImportError, AttributeError) as error:  # another version, with other interfaces
                done[name] = f"nothing: this version of {package} is not known ({error})"
                warnings.warn(f"symplex.caches: {name}: {done[name]}", RuntimeWarning, stacklevel=2)
    return done


def stats() -> dict[str, dict[str, float]]:
    """What this process asked for, by cache: gets = hits + misses; shared, hits that another process made while this
    one waited, waited_s in all; claims, misses that this process makes for all; puts; bytes_in, bytes_out; errors."""
    return _keeper.stats() if _keeper is not None else {}


def __getattr__(name: str) -> Any:
    """Triton finds its manager here by its name (TRITON_CACHE_MANAGER)."""
    if name == "TritonCacheManager":
        return importlib.import_module("symplex._caches_triton").TritonCacheManager
    raise AttributeError(f"module 'symplex.caches' has no attribute '{name}'")
