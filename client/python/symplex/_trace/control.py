"""Control flow that depends on elements: cond, while_loop and scan. Traced they are programs inside of the program,
with arrays they run as Python."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

from symplex._trace import tree as _tree
from symplex._trace.graph import Graph, current, type_text
from symplex._trace.index import iota
from symplex._trace.size import Size, TraceError, place
from symplex._trace.tracer import Tracer, convert, emit, full, graph, value

ROUNDS_MAX = (1 << 31) - 1


def name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def is_traced(*values: Any) -> bool:
    return current() is not None or any(isinstance(x, Tracer) for v in values for x in _tree.leaves_of(v, "value")[0])


def _types(values: list[Any]) -> str:
    return ", ".join(type_text(x.dtype, x.shape) for x in values)


def inner(function: Callable[..., Any], parameters: list[Tracer], given: Any) -> tuple[Graph, Any]:
    """The function as a program of its own; `given` makes its arguments of the parameters."""
    with Graph() as made:
        mine = [made.parameter(x.dtype, x.shape) for x in parameters]
        leaves, _, structure = _tree.leaves_of(function(*given(mine)), "result")
        made.outputs = [made.take(value(x)) for x in leaves]
    return made, structure


def share_captures(bodies: list[Graph]) -> list[Any]:
    """Values of the outer program that any body uses: all bodies get them all, in one order."""
    outer = {key: x for body in bodies for key, (x, _) in body.captures.items()}
    for body in bodies:
        body.captures = {key: (x, body.captures[key][1] if key in body.captures else body.value(x.dtype, x.shape))
                         for key, x in outer.items()}
    return list(outer.values())


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """then(*operands) where the predicate is true, else otherwise(*operands); only one of them is computed. Both give
    the same structure, shapes and types. The predicate is one bool."""
    if not is_traced(predicate, operands):
        return then(*operands) if predicate else otherwise(*operands)
    which = value(predicate)
    if which.shape != () or which.dtype != bool:
        raise TraceError(f"symplex.cond: the predicate is {type_text(which.dtype, which.shape)}, one bool is needed "
                         f"({place()})")
    leaves, _, structure = _tree.leaves_of(operands, "operands")
    given = [value(x) for x in leaves]
    bodies, structures = zip(*(inner(f, given, lambda mine: _tree.rebuilt(structure, mine))
                               for f in (then, otherwise)))
    if structures[0] != structures[1] or _types(bodies[0].outputs) != _types(bodies[1].outputs):
        raise TraceError(f"symplex.cond: {name_of(then)} gives {_tree.text(structures[0])} of "
                         f"{_types(bodies[0].outputs)}, {name_of(otherwise)} {_tree.text(structures[1])} of "
                         f"{_types(bodies[1].outputs)} ({place()})")
    outer = share_captures(list(bodies))
    types = [(x.dtype, x.shape) for x in bodies[0].outputs]
    if not types:
        return _tree.rebuilt(structures[0], [])
    made = graph().many("cond", [which, *given, *outer], {"then": bodies[0], "otherwise": bodies[1]}, types)
    return _tree.rebuilt(structures[0], made)


class _Carry:
    """What goes from round to round. Numbers of Python's take the type that a round gives them."""

    def __init__(self, what: str, init: Any) -> None:
        self.what = what
        leaves, self.names, self.structure = _tree.leaves_of(init, "carry")
        self.weak = [type(x) in (bool, int, float) for x in leaves]
        self.values = [value(x) for x in leaves]

    def check(self, made: list[Any], structure: Any) -> bool:
        """False: with other types for numbers it may fit."""
        if structure != self.structure:
            raise TraceError(f"symplex.{self.what}: the carry is {_tree.text(self.structure)} at the start and "
                             f"{_tree.text(structure)} after a round ({place()})")
        again = False
        for i, (name, before, after) in enumerate(zip(self.names, self.values, made)):
            if before.dtype == after.dtype and before.shape == after.shape:
                continue
            if self.weak[i] and before.shape == after.shape:
                self.values[i], self.weak[i], again = convert(before, after.dtype), False, True
                continue
            raise TraceError(f"symplex.{self.what}: {name} is {type_text(before.dtype, before.shape)} at the start and "
                             f"{type_text(after.dtype, after.shape)} after a round ({place()})")
        return not again


def while_loop(condition: Callable[..., Any], step: Callable[..., Any], init: Any, *,
               rounds: int = ROUNDS_MAX) -> Any:
    """carry = step(carry), as long as condition(carry) is true, from `init` on. More than `rounds` rounds are an
    error."""
    if not is_traced(init):
        carry = init
        for _ in range(rounds):
            if not condition(carry):
                return carry
            carry = step(carry)
        if condition(carry):
            raise RuntimeError(f"symplex.while_loop: the condition is true after {rounds} rounds")
        return carry
    if not 1 <= rounds <= ROUNDS_MAX:
        raise ValueError(f"symplex.while_loop: {rounds} rounds, allowed are 1 to {ROUNDS_MAX}")
    carry = _Carry("while_loop", init)

    def given(mine: list[Any]) -> tuple[Any]:
        return (_tree.rebuilt(carry.structure, mine),)
    body, structure = inner(step, carry.values, given)
    while not carry.check(body.outputs, structure):
        body, structure = inner(step, carry.values, given)
    test, shape = inner(condition, carry.values, given)
    if shape is not _tree.LEAF or test.outputs[0].shape != () or test.outputs[0].dtype != bool:
        raise TraceError(f"symplex.while_loop: the condition gives {_tree.text(shape)} of {_types(test.outputs)}, one "
                         f"bool is needed ({place()})")
    outer = share_captures([test, body])
    made = graph().many("while", [*carry.values, *outer],
                        {"carried": len(carry.values), "rounds": rounds, "condition": test, "step": body},
                        [(x.dtype, x.shape) for x in carry.values])
    return _tree.rebuilt(carry.structure, made)


def scan(step: Callable[..., Any], init: Any, xs: Any = None, length: Any = None, *, reverse: bool = False) -> Any:
    """carry, y = step(carry, x) for each slice x of `xs` along axis 0, or `length` times; gives the last carry, and all
    y, stacked along a new axis 0. With `reverse` from the last slice to the first; y stays where its x is."""
    if not is_traced(init, xs):
        return _scan_arrays(step, init, xs, length, reverse)
    carry = _Carry("scan", init)
    leaves, names, structure = _tree.leaves_of(xs, "xs")
    slices = [value(x) for x in leaves]
    lengths = {x.shape[0] if x.ndim else None for x in slices} | ({length} if length is not None else set())
    if None in lengths or len(lengths) != 1:
        raise TraceError(f"symplex.scan: xs of {_types(slices) or 'nothing'} and length {length} have no common "
                         f"length ({place()})")
    n = lengths.pop()
    counted = not slices
    slices = slices or [iota((n,), 0)]
    slices = [emit("reverse", (x,), {"dims": [0]}, x.dtype, x.shape) for x in slices] if reverse else slices
    rows = [full(x.shape[1:], 0, x.dtype) for x in slices]
    k = len(carry.values)

    def given(mine: list[Any]) -> tuple[Any, Any]:
        return (_tree.rebuilt(carry.structure, mine[:k]), None if counted else _tree.rebuilt(structure, mine[k:]))

    def traced() -> tuple[Graph, Any]:
        body, result = inner(step, [*carry.values, *rows], given)
        if result is _tree.LEAF or result[0] not in (tuple, list) or len(result[1]) != 2:
            raise TraceError(f"symplex.scan: {name_of(step)} gives {_tree.text(result)}, a pair (carry, y) is needed "
                             f"({place()})")
        return body, result[1]
    body, result = traced()
    while not carry.check(body.outputs[:k] if len(body.outputs) >= k else body.outputs, result[0]):
        body, result = traced()
    types = [(x.dtype, x.shape) for x in carry.values]
    types += [(x.dtype, (n, *x.shape)) for x in body.outputs[k:]]
    outer = [x for x, _ in body.captures.values()]
    made = graph().many("scan", [*carry.values, *slices, *outer],
                        {"carried": k, "sliced": len(slices), "step": body}, types) if types else []
    stacked = made[k:]
    if reverse:
        stacked = [emit("reverse", (y,), {"dims": [0]}, y.dtype, y.shape) for y in stacked]
    return _tree.rebuilt(carry.structure, made[:k]), _tree.rebuilt(result[1], stacked)


def _scan_arrays(step: Callable[..., Any], init: Any, xs: Any, length: Any, reverse: bool) -> Any:
    leaves, _, structure = _tree.leaves_of(xs, "xs")
    lengths = {len(x) for x in leaves} | ({length} if length is not None else set())
    if len(lengths) != 1 or isinstance(length, Size):
        raise ValueError(f"symplex.scan: lengths {sorted(map(str, lengths))} of xs and length {length}")
    n = lengths.pop()
    carry, made = init, []
    for i in range(n)[::-1] if reverse else range(n):
        carry, y = step(carry, _tree.rebuilt(structure, (np.asarray(x)[i] for x in leaves)))
        made.append(_tree.leaves_of(y, "y"))
    made = made[::-1] if reverse else made
    if not made:
        return carry, None
    stacked = [np.stack([np.asarray(row[0][k]) for row in made]) for k in range(len(made[0][0]))]
    return carry, _tree.rebuilt(made[0][2], stacked)
