"""What of a function is compiled where a primitive of it is not known, and what XLA computes."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np
from jax.extend import core

from symplex.jax._emit import Unsupported
from symplex.jax._lower import closed_call, lower, needed

# They compute nothing, or keys: a part of these alone is left to XLA, as a call of its own would cost more.
_MOVES = {"random_wrap", "random_unwrap", "random_split", "random_fold_in", "random_seed", "random_clone",
          "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "convert_element_type", "iota",
          "copy", "concatenate", "pad", "rev", "stop_gradient", "split"}


class Part(NamedTuple):
    """Equations that are computed together. Those of a known part make a program."""

    known: bool
    jaxpr: core.ClosedJaxpr
    inputs: list[core.Var]
    results: list[core.Var]


class Split(NamedTuple):
    """The parts in an order in which each reads what earlier ones gave. `reasons`: what is not known, by name."""

    parts: list[Part]
    given: list[core.Var]
    constants: dict[core.Var, Any]
    results: list[Any]
    reasons: list[str]

    def run(self, calls: Sequence[Callable[..., Any]], leaves: Sequence[Any]) -> list[Any]:
        """`calls[i]` computes parts[i]."""
        values = {**self.constants, **dict(zip(self.given, leaves))}
        for part, call in zip(self.parts, calls):
            values.update(zip(part.results, call(*[values[v] for v in part.inputs])))
        return [r.val if isinstance(r, core.Literal) else values[r] for r in self.results]


def _made(eqn: Any) -> list[core.Var]:
    return [v for v in eqn.outvars if not isinstance(v, core.DropVar)]


def _read(eqn: Any) -> list[core.Var]:
    return [v for v in eqn.invars if not isinstance(v, core.Literal)]


def _part(like: core.Jaxpr, known: bool, eqns: Sequence[Any], wanted: Callable[[core.Var], bool]) -> Part:
    made = [v for eqn in eqns for v in _made(eqn)]
    own = set(made)
    inputs = list(dict.fromkeys(v for eqn in eqns for v in _read(eqn) if v not in own))
    results = [v for v in made if wanted(v)]
    effects = set().union(*(eqn.effects for eqn in eqns))
    jaxpr = like.replace(constvars=[], invars=inputs, outvars=results, eqns=list(eqns), effects=effects)
    return Part(known, core.ClosedJaxpr(jaxpr, []), inputs, results)


class _Opened:
    """The equations of a jaxpr, those of calls in their place where a call is not known as a whole."""

    def __init__(self, closed: core.ClosedJaxpr) -> None:
        self.like = closed.jaxpr
        self.fresh = core.gensym()
        self.eqns: list[tuple[bool, Any]] = []
        self.constants: dict[core.Var, Any] = {}
        self.reasons: list[str] = []
        self.given = [self.fresh(v.aval) for v in closed.jaxpr.invars]
        self.results = self._open(closed, self.given)

    def _reason(self, eqn: Any) -> str | None:
        """Why an equation alone is no program."""
        if not _made(eqn):
            return f"the primitive {eqn.primitive.name}"
        try:
            lower(_part(self.like, True, [eqn], lambda v: True).jaxpr)
            return None
        except Unsupported as error:
            return str(error)

    def _open(self, closed: core.ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
        place: dict[Any, Any] = dict(zip(closed.jaxpr.invars, inputs))
        for v, value in zip(closed.jaxpr.constvars, closed.consts):
            place[v] = self.fresh(v.aval)
            self.constants[place[v]] = value

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, core.Literal) else place[atom]

        for eqn in needed(closed.jaxpr):
            eqn = eqn.replace(invars=[read(v) for v in eqn.invars])
            reason = self._reason(eqn)
            inner = closed_call(eqn) if reason else None
            if inner is not None:
                place.update(zip(eqn.outvars, self._open(inner, eqn.invars)))
                continue
            for v in _made(eqn):
                place[v] = self.fresh(v.aval)
            self.eqns.append((reason is None, eqn.replace(outvars=[place.get(v, v) for v in eqn.outvars])))
            if reason:
                self.reasons.append(reason)
        return [read(v) for v in closed.jaxpr.outvars]


def _levels(eqns: Sequence[tuple[bool, Any]]) -> list[int]:
    """A number for each equation, such that those of one kind and one number can be computed together: what an
    equation reads from one of the other kind has a lower number. Effects keep their order."""
    level_of: dict[Any, tuple[int, bool]] = {}
    levels: list[int] = []
    for known, eqn in eqns:
        before = [level_of[v] for v in [*_read(eqn), *(["effects"] if eqn.effects else [])] if v in level_of]
        levels.append(max((n + (kind != known) for n, kind in before), default=0))
        level_of.update((v, (levels[-1], known)) for v in [*_made(eqn), *(["effects"] if eqn.effects else [])])
    return levels


def _elements(values: Sequence[core.Var]) -> int:
    return sum(int(np.prod(v.aval.shape)) for v in values)


def _sink(eqns: Sequence[tuple[bool, Any]], levels: list[int], results: set[Any]) -> None:
    """What makes more than it reads (a broadcast) goes to its readers, if they are of its kind and all in one place."""
    readers: dict[core.Var, set[tuple[bool, int]]] = {}
    for i in range(len(eqns) - 1, -1, -1):
        known, eqn = eqns[i]
        seen = set().union(*(readers.get(v, set()) for v in _made(eqn)))
        if len(seen) == 1 and not eqn.effects and results.isdisjoint(_made(eqn)) and \
                _elements(_read(eqn)) <= _elements(_made(eqn)):
            (kind, level), = seen
            levels[i] = level if kind == known else levels[i]
        for v in _read(eqn):
            readers.setdefault(v, set()).add((known, levels[i]))


def split(closed: core.ClosedJaxpr) -> Split:
    """The parts of a jaxpr of which some primitive is not known."""
    opened = _Opened(closed)
    results = {v for v in opened.results if not isinstance(v, core.Literal)}
    levels = _levels(opened.eqns)
    _sink(opened.eqns, levels, results)
    groups: dict[tuple[int, bool], list[Any]] = {}
    group_of: dict[core.Var, tuple[int, bool]] = {}
    for level, (known, eqn) in zip(levels, opened.eqns):
        groups.setdefault((level, known), []).append(eqn)
        group_of.update((v, (level, known)) for v in _made(eqn))
    crossing = results | {v for key, eqns in groups.items() for eqn in eqns for v in _read(eqn)
                          if v in group_of and group_of[v] != key}
    parts = [_part(opened.like, key[1] and any(eqn.primitive.name not in _MOVES for eqn in groups[key]), groups[key],
                   crossing.__contains__) for key in sorted(groups)]
    return Split(parts, opened.given, opened.constants, opened.results, list(dict.fromkeys(opened.reasons)))
