"""What a traced program runs as: one module, or, where functions of the host stand in between, several in turn."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Union

import numpy as np

from symplex._errors import Unimplemented
from symplex._module import Module
from symplex._trace.graph import Graph, Node


class HostCall(NamedTuple):
    """results = function(*operands), by NumPy; operands and results are places among the values of a run."""

    name: str
    function: Callable[..., Any]
    operands: list[int]
    results: list[int]
    dtypes: list[Any]

    def run(self, values: dict[int, Any]) -> None:
        made = self.function(*(values[i] for i in self.operands))
        made = made if isinstance(made, tuple) else (made,)
        values.update((i, np.ascontiguousarray(x, dtype)) for i, x, dtype in zip(self.results, made, self.dtypes))


class Part(NamedTuple):
    """A program between host calls. It becomes a module when it is compiled; `weights` are bound to it then."""

    graph: Graph
    names: list[str]
    outputs: list[str]
    text: str
    operands: list[int]
    results: list[int]
    weights: dict[str, list[Node]]


class Ready(NamedTuple):
    """The module of a part; `order` are the values that it takes, by the names of its inputs."""

    module: Module
    operands: dict[str, int]
    results: dict[str, int]

    def run(self, values: dict[int, Any]) -> None:
        made = self.module(**{name: values[i] for name, i in self.operands.items()})
        made = made if isinstance(made, tuple) else (made,)
        values.update((self.results[t], x) for t, x in zip(self.results, made))


Stage = Union[Part, HostCall]


def _host_inside(graph: Graph) -> str | None:
    for node in graph.nodes:
        if node.operation == "host":
            return str(node.attributes["name"])
        for inner in node.attributes.values():
            found = _host_inside(inner) if isinstance(inner, Graph) else None
            if found:
                return found
    return None


def check(nodes: Sequence[Node]) -> None:
    for node in nodes:
        for inner in node.attributes.values():
            found = _host_inside(inner) if type(inner) is Graph else None
            if found:
                raise Unimplemented(f"{found} inside of a {node.operation}: it is a call of the host, which is only "
                                    f"made between programs")


def split(graph: Graph) -> list[Stage]:
    """Programs and host calls, in the order in which they run. Values are numbered: parameters first."""
    nodes = graph.needed()
    check(nodes)
    names = [f"x{i}" for i in range(len(graph.parameters))]
    outputs = [f"out{i}" for i in range(len(graph.outputs))]
    places = {id(x): i for i, x in enumerate(graph.parameters)}
    if all(node.operation != "host" for node in nodes):
        for x in graph.outputs:
            places.setdefault(id(x), len(places))
        base = len(graph.parameters)
        weights = graph.weights(nodes)
        return [Part(graph, names, outputs, graph.text(nodes, names, outputs, weights), list(range(base)),
                     list(range(base, base + len(outputs))), weights)]
    level = {id(x): 0 for x in graph.parameters}
    maker: dict[int, Node] = {}
    for node in nodes:
        at = max((level[id(x)] for x in node.inputs), default=0)
        for x in node.results:
            level[id(x)] = at + (node.operation == "host")
            maker[id(x)] = node
            places[id(x)] = len(places)
    last = max(level.values())
    return [stage for k in range(last + 1) for stage in _level(graph, nodes, k, level, maker, places)]


def _level(graph: Graph, nodes: Sequence[Node], k: int, level: dict[int, int], maker: dict[int, Node],
           places: dict[int, int]) -> list[Stage]:
    """What is computed from values behind k host calls, and the calls that then can be made."""
    def leaf(x: Any) -> bool:
        return id(x) in maker and not maker[id(x)].inputs

    def stage_of(node: Node) -> int:
        return max((level[id(x)] for x in node.inputs), default=0)
    mine = [n for n in nodes if n.operation != "host" and n.inputs and stage_of(n) == k]
    calls = [n for n in nodes if n.operation == "host" and stage_of(n) == k]
    made = {id(x) for n in mine for x in n.results}
    later = [n for n in nodes if n not in mine and n.inputs and (n in calls or stage_of(n) > k)]
    wanted: list[Any] = []
    final = k == max(level.values())
    for x in [*(x for n in later for x in n.inputs), *graph.outputs]:
        passes = id(x) in made or (leaf(x) and (any(x is y for n in calls for y in n.inputs) or (
            final and any(x is y for y in graph.outputs))))
        if passes and not any(x is y for y in wanted):
            wanted.append(x)
    stages: list[Stage] = []
    if wanted:
        stages.append(_part(mine, wanted, maker, places, made))
    for n in calls:
        stages.append(HostCall(str(n.attributes["name"]), n.attributes["function"], [places[id(x)] for x in n.inputs],
                               [places[id(x)] for x in n.results], [x.dtype for x in n.results]))
    return stages


def _part(mine: list[Node], wanted: list[Any], maker: dict[int, Node], places: dict[int, int],
          made: set[int]) -> Part:
    part = Graph("part")
    known: dict[int, Any] = {}
    operands: list[int] = []

    def take(x: Any) -> Any:
        if id(x) not in known:
            node = maker.get(id(x))
            if node is not None and not node.inputs:  # constants are made where they are used
                known[id(x)] = part.many(node.operation, [], node.attributes, [(x.dtype, x.shape)])[0]
            else:
                known[id(x)] = part.parameter(x.dtype, x.shape)
                operands.append(places[id(x)])
        return known[id(x)]
    for node in mine:
        results = part.many(node.operation, [take(x) for x in node.inputs], node.attributes,
                            [(x.dtype, x.shape) for x in node.results])
        known.update((id(x), y) for x, y in zip(node.results, results))
    part.outputs = [take(x) for x in wanted]
    names, outputs = [f"v{i}" for i in operands], [f"v{places[id(x)]}" for x in wanted]
    names = [f"in_{n}" for n in names]
    needed = part.needed()
    weights = part.weights(needed)
    return Part(part, names, outputs, part.text(needed, names, outputs, weights), operands,
                [places[id(x)] for x in wanted], weights)


def ready(stage: Part, module: Module) -> Ready:
    """Inputs that the program does not need are not among those of the module. Arrays that the function closes over are
    as they are now, whatever happens to them later."""
    module.bind_weights({t.name: np.array(stage.weights[t.name][0].attributes["data"], order="C", copy=True)
                         for t in module.weights})
    operands = dict(zip(stage.names, stage.operands))
    results = dict(zip(stage.outputs, stage.results))
    return Ready(module, {t.name: operands[t.name] for t in module.inputs},
                 {t.name: results[t.name] for t in module.outputs})
