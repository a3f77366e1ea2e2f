"""Sessions: the ranks of a job use the same modules, and compare what they used before they talk to each other."""
from __future__ import annotations

import os
import threading
from typing import Any, Callable, Iterable

from symplex import _c
from symplex._errors import Error, Mismatch

Gather = Callable[[bytes], Iterable[bytes]]
_open: list["Session"] = []


def _use_innermost() -> None:
    """Compilations and runs of this process belong to the session that was entered last."""
    session = _open[-1] if _open else None
    _c.set_session(session and session._session)
    _c.set_before_run(session._before_run if session and session._waits else None)


def _after_fork() -> None:
    """A child is no rank."""
    for session in _open:
        session._session.close()
    _open.clear()
    _use_innermost()


os.register_at_fork(after_in_child=_after_fork)


class Session:
    """That of one rank; a context manager.

        with symplex.session(job="run-17", rank=rank, world=world) as session:
            model = symplex.compile_onnx("model.onnx")      # the same module on all ranks
            y = model(x)                                     # compares what the ranks use before it runs
            ...

    Inside, compilations of this process take the module that the first rank of the job got for the same key, even if
    the cache changes in between. The first run inside waits for all ranks and compares what they used so far, as
    check() does, unless check() was called before (`automatic=False`: only then). Leaving the block without an
    exception checks once more, if something was compiled since the last check."""

    def __init__(self, job: str, rank: int, world: int, socket: str | None, timeout_s: float, automatic: bool,
                 gather: Gather | None) -> None:
        if not timeout_s >= 0:
            raise ValueError(f"session: timeout_s is {timeout_s}, needed is 0 or more")
        for name, value in ("rank", rank), ("world", world):
            if not hasattr(value, "__index__"):
                raise TypeError(f"session: {name} is {value!r}, needed is a whole number")
        if world < 1:
            raise ValueError(f"session: world is {world}, needed is 1 or more")
        if not 0 <= rank < world:
            raise ValueError(f"session: rank {rank} of {world}, ranks are 0 to {world - 1}")
        self.job, self.rank, self.world, self.timeout_s = job, rank, world, timeout_s
        self.automatic, self.gather = automatic, gather
        self._session = _c.Session(socket, job, rank, world)
        self._checked: bytes | None = None
        self._waits = automatic # for the first run
        self._first = threading.RLock() # runs of other threads wait for the check of the first one
        self._checking = False

    def __repr__(self) -> str:
        return f"<symplex session {self.job!r}, rank {self.rank} of {self.world}>"

    def __enter__(self) -> Session:
        _open.append(self)
        _use_innermost()
        return self

    def __exit__(self, kind: object, *unused: object) -> None:
        _open.remove(self)
        _use_innermost()
        try:
            if kind is None and self._checked is not None and self.digest() != self._checked:
                self.check()
        finally:
            self.close()

    def _before_run(self) -> None:
        with self._first:
            if self._checking or not self._waits: # by `gather`, or by another thread in the meantime
                return
            self._checking = True
            try:
                self.check()
            except Error as error:
                error.add_note("Before the first run in a session all ranks are compared. Ranks that run nothing call "
                               "session.check(); symplex.session(automatic=False) compares only there.")
                raise
            finally:
                self._checking = False

    def check(self, timeout_s: float | None = None, gather: Gather | None = None) -> None:
        """Waits until all ranks have come here, and compares what they used so far. Raises Mismatch, which names rank
        and key; TimedOut or NotFound, which name ranks that did not come, or died.

        `gather`: for ranks on several machines, whose daemons do not know each other: a function that gives this
        rank's bytes to all and returns those of all ranks in order, as an all-gather of the framework does. Then
        digests of everything are compared by it, and nothing of the daemon. The session's own is that of all checks
        that name none."""
        gather = self.gather if gather is None else gather
        if gather is not None:
            self._compare(list(gather(self.digest())))
        else:
            wait_s = self.timeout_s if timeout_s is None else timeout_s
            self._session.check(int(wait_s * 1000))
        self._checked = self.digest()
        self._waits = False
        _use_innermost()

    def _compare(self, digests: list[bytes]) -> None:
        if len(digests) != self.world:
            raise ValueError(f"session: gather returned {len(digests)} digests, the job has {self.world} ranks")
        common = max(digests, key=digests.count)
        wrong = [str(rank) for rank, digest in enumerate(digests) if digest != common]
        if wrong:
            ranks = "rank " + wrong[0] if len(wrong) == 1 else "ranks " + ", ".join(wrong)
            raise Mismatch(f"session '{self.job}': {ranks} used other modules than rank {digests.index(common)}")

    def note(self, name: str, value: Any) -> None:
        """Something else that must be the same on all ranks, as bytes: a configuration, a tuned choice."""
        self._session.note(name, value.encode() if isinstance(value, str) else value)

    def digest(self) -> bytes:
        """Of all keys and modules, and notes, that this rank used so far: 32 bytes."""
        digest: bytes = self._session.digest()[0]
        return digest

    @property
    def used(self) -> int:
        """How many modules and notes that are."""
        count: int = self._session.digest()[1]
        return count

    def close(self) -> None:
        """Leaves the job; the session ends when all ranks have."""
        self._session.close()


def session(*, job: str, rank: int, world: int, socket: str | None = None, timeout_s: float = 300.0,
            automatic: bool = True, gather: Gather | None = None) -> Session:
    """Comes to the session of the job at the daemon; without a daemon it is NoDaemon. `timeout_s`: how long a check
    waits for the other ranks. `automatic`: the first run inside is preceded by one. `gather`: see Session.check."""
    return Session(job, rank, world, socket, timeout_s, automatic, gather)
