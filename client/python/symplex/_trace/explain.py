"""symplex.explain: what a traced function was compiled for, why, and what it took; and why it was compiled again."""
from __future__ import annotations

import logging
from typing import Any, NamedTuple, Sequence

log = logging.getLogger("symplex")


class Compilation(NamedTuple):
    """One signature of a function."""

    function: str
    signature: dict[str, str]
    why: str
    tier: str
    trace_s: float
    compile_s: float
    host_calls: tuple[str, ...]
    notes: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        of = ", ".join(f"{name}: {kind}" for name, kind in self.signature.items())
        lines = [f"{self.function}({of})", f"  compiled because: {self.why}",
                 f"  cache: {self.tier}; traced in {self.trace_s * 1e3:.1f} ms, compiled in "
                 f"{self.compile_s * 1e3:.1f} ms"]
        lines += [f"  key: {key}" for key in self.keys]
        lines += [f"  by NumPy, on the host: {name}" for name in self.host_calls]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


class Explanation(tuple[Compilation, ...]):
    """The compilations of a function, in their order; as text, what a person wants to read."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing was compiled yet"

    __repr__ = __str__


def why(signature: dict[str, str], known: Sequence[Compilation]) -> str:
    """What differs from the nearest signature that was there."""
    if not known:
        return "it is the first call"
    rows = []
    for before in known:
        names = [*before.signature, *(n for n in signature if n not in before.signature)]
        rows.append([f"{n} is {signature.get(n, 'not given')}, was {before.signature.get(n, 'not given')}"
                     for n in names if signature.get(n) != before.signature.get(n)])
    nearest = min(rows, key=len)
    return "; ".join(nearest) if nearest else "options or global state differ"


def report(made: Compilation) -> None:
    """The log of compilations: logging.getLogger("symplex"), level info."""
    log.info("compiled %s: %s (%s, %.1f ms)", made.function, made.why, made.tier, made.compile_s * 1e3)


def explain(function: Any) -> Explanation:
    """What `function`, made by `jit`, `grad` or `vmap`, was compiled for: each signature with why (what differs from
    the nearest one that was there), cache tier, time, and calls that NumPy makes on the host. `print` it, or take the
    records of this tuple."""
    found = getattr(function, "compilations", None)
    if found is None:
        raise TypeError(f"symplex.explain: {type(function).__name__} is no function of symplex.jit, grad or vmap")
    return Explanation(found)


def tier_text(infos: Sequence[dict[str, Any]]) -> str:
    words = {"ram": "hit, memory of the daemon", "disk": "hit, disk of the daemon",
             "none": "miss, compiled by the daemon", "process": "no daemon, compiled in a process of its own"}
    return " and ".join(dict.fromkeys(words.get(info["tier"], info["tier"]) for info in infos))
