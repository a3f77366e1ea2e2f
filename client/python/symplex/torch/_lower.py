"""A graph of ATen operators as the text of a program: what is an input, how results lie, and everything between."""
from __future__ import annotations

import functools
import inspect
import operator
from typing import Any, Callable, NamedTuple, Sequence

import sympy
import torch
from torch import fx

from symplex.torch import _bags, _elements, _index, _order, _places, _reductions, _shapes, _windows  # noqa: F401 rows
from symplex.torch._emit import OPERANDS_MAX, Emitter, Unsupported, Value
from symplex.torch._fold import folded
from symplex.torch._graph import is_symbolic, is_tensor
from symplex.torch._higher import Cond
from symplex.torch._table import Handler, Type, find, torch_type
from symplex.torch._weights import is_marked

Resolve = Callable[[Any], Any]


def hint(extent: Any) -> Any:
    """A symbolic extent, or a number computed from extents, as it was in the example."""
    if not is_symbolic(extent):
        return extent
    if extent.node.hint is None:
        raise Unsupported("an extent that depends on elements")
    return extent.node.hint


def arguments_of(graph: fx.Graph) -> list[fx.Node]:
    """What a graph is called with, and tensors that it has itself."""
    return [n for n in graph.nodes if n.op not in ("call_function", "call_method", "call_module", "output")]


def is_view(node: fx.Node) -> bool:
    """Of its first operand, as the operator's own schema says."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    if len(schema.returns) != 1 or not schema.arguments or not node.args or not isinstance(node.args[0], fx.Node):
        return False
    alias = schema.arguments[0].alias_info
    return (alias is not None and not alias.is_write and schema.returns[0].alias_info is not None
            and is_tensor(node.meta.get("val")))


def piece_of(node: fx.Node, number: Resolve) -> tuple[fx.Node, tuple[int, Any, Any]] | None:
    """Of what split gives, the tensor that was split, and the dimension, start and end of the piece, which is a view of
    it; None of any other node."""
    if node.target is not operator.getitem or not isinstance(node.args[0], fx.Node):
        return None
    split, i = node.args
    if split.target not in (torch.ops.aten.split.Tensor, torch.ops.aten.split_with_sizes.default):
        return None
    whole, sizes, dim = (*split.args, *split.kwargs.values(), 0)[:3]
    sizes = [number(n) for n in sizes] if isinstance(sizes, (list, tuple)) else [number(sizes)] * (i + 1)
    start = sum(sizes[:i])
    return whole, (dim, start, start + sizes[i])


def resolved(value: Any, resolve: Resolve) -> Type | list[Type | None] | None:
    """The type of a result, or of several; None of what is no tensor."""
    if isinstance(value, (list, tuple)):
        return [resolved(v, resolve) for v in value]  # type: ignore[misc]
    if not is_tensor(value):
        return None
    made = torch_type(value)
    return Type(made.dtype, tuple(resolve(n) for n in made.shape))


def _wants(handler: Handler) -> bool:
    return "wanted" in inspect.signature(handler).parameters


def _wanted(node: fx.Node, count: int) -> list[bool]:
    """Which of several results anybody reads."""
    read = [False] * count
    for user in node.users:
        if user.target is not operator.getitem:
            return [True] * count
        read[user.args[1]] = True  # type: ignore[index]
    return read


def _checked(made: Any, types: Any) -> None:
    """What a handler made is what PyTorch says; anything else would be a silent error."""
    for value, kind in zip(made, types) if isinstance(types, list) else [(made, types)]:
        if value is not None and (value.dtype, tuple(value.shape)) != (kind.dtype, tuple(kind.shape)):
            raise Unsupported(f"its result would be {value.dtype}{list(value.shape)} and not "
                              f"{kind.dtype}{list(kind.shape)}")


def _branch(outer: Emitter, graph: fx.Graph, operands: Sequence[Any], resolve: Resolve) -> tuple[str, list[Value]]:
    """A graph as a program inside a program: its text, and what it gives."""
    e, values, given = Emitter(outer), {}, iter(operands)
    for i, node in enumerate(graph.nodes):
        if node.op == "output":
            made = [values.get(x) if isinstance(x, fx.Node) else x for x in node.args[0]]
            if not all(isinstance(v, Value) for v in made):
                raise Unsupported("a result that is no tensor")
            return e.body(made), made
        if node.op == "get_attr":
            raise Unsupported(f"{node.target}, a tensor of its own")
        if node.op != "call_function":
            x = next(given)
            values[node] = e.parameter(f"p{i}", x.dtype, x.shape) if isinstance(x, Value) else x
        elif node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif is_symbolic(node.meta.get("val")):
            values[node] = resolve(node.meta["val"])
        else:
            values[node] = lower_node(e, node, resolve, values.__getitem__)
    raise Unsupported("a graph without an end")


def _cond(branches: Cond, resolve: Resolve, e: Emitter, types: Any, which: Any, *operands: Any) -> list[Value]:
    if not isinstance(which, Value):
        raise Unsupported("a predicate that is no tensor")
    (yes, made), (no, others) = (_branch(e, g, operands, resolve) for g in branches.graphs)
    types = [(v.dtype, v.shape) for v in made]
    if types != [(v.dtype, v.shape) for v in others]:
        raise Unsupported("branches whose results differ in type or shape")
    values = [e.reshape(e.convert(which, "bool"), ()), *[x for x in operands if isinstance(x, Value)]]
    if len(values) > OPERANDS_MAX:
        raise Unsupported(f"{len(values)} operands, at most {OPERANDS_MAX}")
    return e.emit_many("cond", values, f"then = {yes}, otherwise = {no}", types)


def lower_node(e: Emitter, node: fx.Node, resolve: Resolve, read: Callable[[fx.Node], Any]) -> Any:
    """One operator; Unsupported with its name."""
    try:
        cond = functools.partial(_cond, node.target, resolve) if isinstance(node.target, Cond) else None
        handler = cond or find(node.target)
        types = resolved(node.meta["val"], resolve)
        args, keywords = fx.node.map_arg((node.args, node.kwargs), read)
        if _wants(handler):
            keywords = {**keywords, "wanted": _wanted(node, len(node.meta["val"]))}
        for value in node.meta["val"] if isinstance(node.meta["val"], (list, tuple)) else [node.meta["val"]]:
            if is_tensor(value) and value.is_neg():
                raise Unsupported("a view with its sign changed")
        made = handler(e, types, *args, **keywords)
        _checked(made, types)
    except Unsupported as error:
        raise Unsupported(f"{node.target} ({error})") from None
    return made


def check(node: fx.Node) -> None:
    """Whether an operator can be in a program: Unsupported where not."""
    e = Emitter()

    def read(x: fx.Node) -> Any:
        value = x.meta.get("val")
        if is_symbolic(value) or isinstance(value, int):
            return hint(value)
        types = resolved(value, hint)
        if isinstance(types, Type):
            if value.is_neg():
                raise Unsupported("a view with its sign changed")
            return e.parameter("x", types.dtype, types.shape)
        raise Unsupported("an operand that is no tensor")

    lower_node(e, node, hint, read)


# ---- how tensors lie ----
def _symbolic_order(shape: Sequence[Any], stride: Sequence[Any]) -> list[int] | None:
    """From the innermost dimension on, each stride is the product of the extents so far, whatever these are."""
    order, expected = [d for d, n in enumerate(shape) if n == 1], 1
    left = [d for d in reversed(range(len(shape))) if d not in order]
    lying: list[int] = []
    while left:
        following = next((d for d in left if sympy.expand(stride[d] - expected) == 0), None)
        if following is None:
            return None
        left.remove(following)
        lying.insert(0, following)
        expected *= shape[following]
    return list(range(len(shape))) if lying == sorted(lying) else order + lying


def order_of(shape: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """The dimensions from the outermost on, where elements lie without gaps in that order; else None."""
    if 0 in shape:
        return list(range(len(shape)))
    if not all(isinstance(n, int) for n in (*shape, *stride)):
        return _symbolic_order(shape, stride)
    order = sorted(range(len(shape)), key=lambda d: (shape[d] != 1, -stride[d] if shape[d] != 1 else d, d))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1 and stride[d] != expected:
            return None
        expected *= shape[d]
    alone = [d for d in order if shape[d] != 1]
    return list(range(len(shape))) if alone == sorted(alone) else order


class Input(NamedTuple):
    """Argument number `at` of the graph. `perm`: its dimensions as they lie, None where they lie in order."""

    at: int
    perm: list[int] | None


class Output(NamedTuple):
    """A tensor that the module makes. `perm`: its dimensions as they lie; `plain`: first it is made in order, then
    copied to where its strides say."""

    shape: list[int]
    stride: list[int]
    dtype: torch.dtype
    perm: list[int] | None
    plain: bool


class Result(NamedTuple):
    """A result of the graph: argument `at`, made output `at`, or a number; then views of it, each an operator with
    its further arguments."""

    kind: str
    at: Any
    views: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]


class Program(NamedTuple):
    text: str | None  # None: nothing is computed
    inputs: list[Input]
    outputs: list[Output]
    results: list[Result]

    def at(self, number: Callable[[Any], Any]) -> "Program":
        """Of a program with symbols, what it is where they have values."""
        outputs = [o._replace(shape=[number(n) for n in o.shape], stride=[number(s) for s in o.stride])
                   for o in self.outputs]
        results = [Result(r.kind, number(r.at), [
            (f, fx.node.map_aggregate(args, number), fx.node.map_aggregate(words, number))
            for f, args, words in r.views]) for r in self.results]
        return Program(self.text, self.inputs, outputs, results)


class _Lowering:
    def __init__(self, graph: fx.Graph, resolve: Resolve) -> None:
        self.e, self.resolve = Emitter(), resolve
        self.inputs: list[Input] = []
        self.made: list[fx.Node] = []
        self.values: dict[fx.Node, Any] = {}
        self.place = {n: i for i, n in enumerate(arguments_of(graph))}
        (self.end,) = (n for n in graph.nodes if n.op == "output")
        self.graph, self.known = graph, folded(graph)

    def number(self, x: Any) -> Any:
        value = x.meta.get("val") if isinstance(x, fx.Node) else x
        return self.resolve(value)

    def result(self, x: Any) -> Result:
        if not isinstance(x, fx.Node):
            return Result("number", x, [])
        if not is_tensor(x.meta.get("val")) and x not in self.place:
            return Result("number", self.number(x), [])
        views = []
        while is_view(x) or (piece := piece_of(x, self.number)) is not None:
            if not is_view(x):
                assert piece is not None
                views.append((torch.ops.aten.slice.Tensor, piece[1], {}))
                x = piece[0]
                continue
            args, keywords = fx.node.map_arg((x.args[1:], x.kwargs), self.number)
            if x.target not in (torch.ops.aten.alias.default, torch.ops.aten.detach.default):
                views.append((x.target, tuple(args), dict(keywords)))
            x = x.args[0]
        if x in self.place:
            return Result("input", self.place[x], views[::-1])
        if x not in self.made:
            self.made.append(x)
        return Result("output", self.made.index(x), views[::-1])

    def needed(self) -> list[fx.Node]:
        wanted = set(self.made)
        for node in reversed(self.graph.nodes):
            if node in wanted and node not in self.known:
                wanted.update(x for x in node.all_input_nodes if not is_symbolic(x.meta.get("val")))
        return [n for n in self.graph.nodes if n in wanted]

    def parameter(self, node: fx.Node) -> Value:
        """Declared as its elements lie, and turned."""
        value = node.meta["val"]
        kind = resolved(value, self.resolve)
        if not isinstance(kind, Type) or value.is_neg():
            raise Unsupported("an argument that is no plain tensor")
        perm = order_of(kind.shape, [self.resolve(s) for s in value.stride()])
        perm = None if perm == list(range(len(kind.shape))) else perm
        name = f"x{len(self.inputs)}"
        self.inputs.append(Input(self.place[node], perm))
        weight = is_marked(node)
        if perm is None:
            return self.e.parameter(name, kind.dtype, kind.shape, weight)
        lying = self.e.parameter(name, kind.dtype, [kind.shape[d] for d in perm], weight)
        return self.e.transpose(lying, [perm.index(d) for d in range(len(perm))])

    def output(self, node: fx.Node) -> tuple[Value, Output]:
        value, made = node.meta["val"], self.values[node]
        shape = [self.resolve(n) for n in value.shape]
        stride = [self.resolve(s) for s in value.stride()]
        perm = order_of(shape, stride)
        if perm is not None and perm != list(range(len(shape))):
            return self.e.transpose(made, perm), Output(shape, stride, value.dtype, perm, False)
        return made, Output(shape, stride, value.dtype, None, perm is None)

    def read(self, node: fx.Node) -> Any:
        return self.values[node] if node in self.values else self.number(node)

    def program(self, symbols: str) -> Program:
        results = [self.result(x) for x in self._ends()]
        for node in self.needed():
            if node in self.place:
                self.values[node] = self.parameter(node)
            elif node in self.known:
                kind = resolved(node.meta["val"], self.resolve)
                assert isinstance(kind, Type)
                self.values[node] = self.e.numbers(self.known[node], kind.dtype, kind.shape)
            elif node.target is operator.getitem:
                self.values[node] = self.values[node.args[0]][node.args[1]]  # type: ignore[index]
            else:
                self.values[node] = lower_node(self.e, node, self.resolve, self.read)
        pairs = [self.output(node) for node in self.made]
        text = self.e.program([value for value, _ in pairs], symbols) if pairs else None
        return Program(text, self.inputs, [output for _, output in pairs], results)

    def _ends(self) -> Sequence[Any]:
        ends = self.end.args[0]
        return ends if isinstance(ends, (list, tuple)) else [ends]


def lower(graph: fx.Graph, resolve: Resolve, symbols: str = "") -> Program:
    """The program of a graph for these extents: numbers, or expressions of symbols, which are declared by `symbols`.
    Raises Unsupported with the operator's name."""
    return _Lowering(graph, resolve).program(symbols)
