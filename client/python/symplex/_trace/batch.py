"""vmap: a function of one example becomes one of many. The function is traced for one; then each of its nodes is
written for all at once by the rule of its operation. A value that differs from example to example has a new dimension
in front; others stay as they are."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Union

import numpy as np

from symplex._errors import Unimplemented
from symplex._trace import tree as _tree
from symplex._trace.control import inner
from symplex._trace.functions import moveaxis
from symplex._trace.graph import Graph, Node
from symplex._trace.index import gather, iota
from symplex._trace.size import Extent, meet, place
from symplex._trace.tracer import (Tracer, broadcast_to, compare, convert, emit, expand_dims, full, graph, reduce,
                                   reshape, select, size_value, transpose, value)


class Batched(NamedTuple):
    """`many`: the value of each example, along axis 0."""

    value: Any
    many: bool


Rule = Callable[["_Writer", Node, list[Batched]], list[Any]]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function
    return add


class _Writer:
    """Writes nodes for `size` examples."""

    def __init__(self, size: Extent) -> None:
        self.size = size

    def all(self, x: Batched) -> Tracer:
        """With the dimension of examples in any case."""
        return x.value if x.many else broadcast_to(expand_dims(x.value, 0), (self.size, *x.value.shape))

    def walk(self, nodes: Sequence[Node], known: dict[int, Batched]) -> None:
        for node in nodes:
            inputs = [known[id(x)] for x in node.inputs]
            if not any(x.many for x in inputs):
                types = [(x.dtype, x.shape) for x in node.results]
                made = [Batched(x, False) for x in
                        graph().many(node.operation, [x.value for x in inputs], node.attributes, types)]
            elif node.operation in _ELEMENTWISE:
                made = [Batched(_elementwise(self, node, inputs), True)]
            elif node.operation in RULES:
                made = [x if isinstance(x, Batched) else Batched(x, True)
                        for x in RULES[node.operation](self, node, inputs)]
            else:
                raise Unimplemented(f"symplex.vmap of {node.operation} ({place()})")
            known.update((id(x), y) for x, y in zip(node.results, made))

    def again(self, node: Node, inputs: Sequence[Tracer], attributes: dict[str, Any], shape: Any) -> list[Any]:
        return [emit(node.operation, inputs, {**node.attributes, **attributes}, node.results[0].dtype, shape)]


_ELEMENTWISE = set("""negate abs exponential log sqrt rsqrt tanh erf logistic sine cosine floor ceil
    round_nearest_even sign not relu gelu gelu_tanh silu add subtract multiply divide power remainder maximum minimum
    and or xor random_bits compare select convert""".split())


def _elementwise(w: _Writer, node: Node, inputs: list[Batched]) -> Tracer:
    shape = (w.size, *node.results[0].shape)
    return emit(node.operation, [w.all(x) for x in inputs], node.attributes, node.results[0].dtype, shape)


# ---- shapes ----
@_rule("reshape")
def _reshape(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    return [reshape(inputs[0].value, (w.size, *node.results[0].shape))]


@_rule("transpose")
def _transpose(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    return [transpose(inputs[0].value, [0, *(p + 1 for p in node.attributes["perm"])])]


@_rule("broadcast_in_dim")
def _broadcast(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    dims = [0, *(d + 1 for d in node.attributes.get("dims", []))]
    return w.again(node, [inputs[0].value], {"dims": dims}, (w.size, *node.results[0].shape))


@_rule("slice")
def _slice(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    a = node.attributes
    end = w.size if isinstance(w.size, int) else -1
    return w.again(node, [inputs[0].value], {"start": [0, *a["start"]], "limit": [end, *a["limit"]],
                                             "stride": [1, *a["stride"]]}, (w.size, *node.results[0].shape))


@_rule("crop")
def _crop(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    dims = [d + 1 for d in node.attributes.get("dims", [])]
    return w.again(node, [inputs[0].value], {"origin": [0, *node.attributes["origin"]], "dims": dims},
                   (w.size, *node.results[0].shape))


@_rule("concatenate")
def _concatenate(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    return w.again(node, [w.all(x) for x in inputs], {"axis": node.attributes["axis"] + 1},
                   (w.size, *node.results[0].shape))


@_rule("reduce", "reverse")
def _dims(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    dims = [d + 1 for d in node.attributes["dims"]]
    return w.again(node, [inputs[0].value], {"dims": dims}, (w.size, *node.results[0].shape))


@_rule("pad")
def _pad(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    x, fill = inputs
    wide = {name: [0, *node.attributes.get(name, [0] * (x.value.ndim - x.many))]
            for name in ("low", "high", "interior")}
    shape = (w.size, *node.results[0].shape)
    if not fill.many:
        return w.again(node, [x.value, fill.value], wide, shape)
    made = emit("pad", [w.all(x), value(np.zeros((), x.value.dtype))], wide, x.value.dtype, shape)
    inside = emit("pad", [full(w.all(x).shape, True), value(False)], wide, bool, shape)
    edge = reshape(fill.value, (w.size, *[1] * (len(shape) - 1)))
    return [select(inside, made, edge)]


@_rule("sort")
def _sort(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    types = [(x.dtype, (w.size, *x.shape)) for x in node.results]
    attributes = {**node.attributes, "axis": node.attributes["axis"] + 1}
    return graph().many("sort", [inputs[0].value], attributes, types)


@_rule("reduce_window")
def _window(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    neutral = {"stride": 1, "low": 0, "high": 0, "window": 1, "dilation": 1}
    rank = inputs[0].value.ndim - 1
    wide = {name: [one, *node.attributes.get(name, [one] * rank)] for name, one in neutral.items()}
    return w.again(node, [inputs[0].value], wide, (w.size, *node.results[0].shape))


@_rule("softmax", "log_softmax", "layer_norm", "rms_norm")
def _along(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    if any(x.many for x in inputs[1:]):
        raise Unimplemented(f"symplex.vmap of {node.operation} with a scale for each example ({place()})")
    return w.again(node, [inputs[0].value, *(x.value for x in inputs[1:])], {"axis": node.attributes["axis"] + 1},
                   (w.size, *node.results[0].shape))


# ---- products ----
@_rule("dot_general")
def _dot(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """Both of many examples: a batch dimension in front. One: its examples are rows or columns of one product."""
    a, b = inputs
    old = {name: list(node.attributes.get(name, [])) for name in ("lhs_batch", "rhs_batch", "lhs_contract",
                                                                  "rhs_contract")}
    moved = {name: [d + (a if name.startswith("lhs") else b).many for d in dims] for name, dims in old.items()}
    result = node.results[0]
    if a.many and b.many:
        moved["lhs_batch"], moved["rhs_batch"] = [0, *moved["lhs_batch"]], [0, *moved["rhs_batch"]]
        return w.again(node, [a.value, b.value], moved, (w.size, *result.shape))
    k = len(old["lhs_batch"])
    left = len(a.value.shape) - a.many - k - len(old["lhs_contract"])
    at = k if a.many else k + left
    shape = (*result.shape[:at], w.size, *result.shape[at:])
    (made,) = w.again(node, [a.value, b.value], moved, shape)
    return [moveaxis(made, at, 0)]


@_rule("convolution")
def _convolution(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """Examples of x are further images; examples of w are further groups."""
    x, weight = inputs
    result, a = node.results[0], dict(node.attributes)
    if not weight.many:
        images = reshape(x.value, (w.size * x.value.shape[1], *x.value.shape[2:]))
        made = emit("convolution", [images, weight.value], a, result.dtype, (images.shape[0], *result.shape[1:]))
        return [reshape(made, (w.size, *result.shape))]
    images = moveaxis(w.all(x), 0, 1)
    images = reshape(images, (images.shape[0], w.size * images.shape[2], *images.shape[3:]))
    kernels = reshape(weight.value, (w.size * weight.value.shape[1], *weight.value.shape[2:]))
    a["groups"] = w.size * a["groups"]
    made = emit("convolution", [images, kernels], a, result.dtype,
                (result.shape[0], kernels.shape[0], *result.shape[2:]))
    return [moveaxis(reshape(made, (result.shape[0], w.size, *result.shape[1:])), 1, 0)]


# ---- places that are operands ----
def _offset(w: _Writer, indices: Tracer, n: Extent, clamped: bool) -> Any:
    """Indices of each example into all rows of all examples; those outside are clamped, or behind the last row."""
    i = convert(indices, np.int64)
    length = size_value(n)
    i = select(compare(i, "lt", 0), i + length, i)
    first = iota((w.size, *[1] * (i.ndim - 1)), 0) * length
    if clamped:
        return np.maximum(np.minimum(i, length - 1), 0) + first
    inside = compare(i, "ge", 0) & np.less(i, length)
    return select(inside, i + first, length * size_value(w.size))


def _gathered(w: _Writer, x: Batched, indices: Batched, axis: int) -> Tracer:
    """gather(x, indices) along `axis` of an example."""
    if not indices.many:
        return gather(x.value, indices.value, axis + 1)
    if not x.many:
        return moveaxis(gather(x.value, indices.value, axis), axis, 0)
    rows = moveaxis(x.value, axis + 1, 1)
    n = rows.shape[1]
    flat = reshape(rows, (w.size * n, *rows.shape[2:]))
    made = gather(flat, _offset(w, indices.value, n, True), 0)
    k = indices.value.ndim
    return transpose(made, [0, *range(k, k + axis), *range(1, k), *range(k + axis, made.ndim)])


@_rule("gather")
def _gather(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    return [_gathered(w, inputs[0], inputs[1], node.attributes["axis"])]


@_rule("scatter")
def _scatter(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    x, indices, updates = inputs
    axis = node.attributes["axis"]
    shape = (w.size, *node.results[0].shape)
    if not indices.many:
        return w.again(node, [w.all(x), indices.value, w.all(updates)], {"axis": axis + 1}, shape)
    rows = moveaxis(w.all(x), axis + 1, 1)
    n, k = rows.shape[1], indices.value.ndim
    u = w.all(updates)
    u = transpose(u, [0, *range(axis + 1, axis + k), *range(1, axis + 1), *range(axis + k, u.ndim)])
    flat = reshape(rows, (w.size * n, *rows.shape[2:]))
    (made,) = w.again(node, [flat, _offset(w, indices.value, n, False), u], {"axis": 0}, flat.shape)
    return [moveaxis(reshape(made, rows.shape), 1, axis + 1)]


def _start(w: _Writer, start: Batched, extent: Extent, size: Extent) -> Batched:
    last = size_value(extent) - size_value(size)
    return Batched(np.maximum(np.minimum(convert(start.value, np.int64), last), 0), start.many)


@_rule("dynamic_slice")
def _dynamic_slice(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    x, starts = inputs[0], inputs[1:]
    dims, sizes = node.attributes["dims"], node.attributes["sizes"]
    if not any(s.many for s in starts):
        return w.again(node, [x.value, *(s.value for s in starts)], {"dims": [d + 1 for d in dims]},
                       (w.size, *node.results[0].shape))
    for d, size, start in zip(dims, sizes, starts):
        first = _start(w, start, x.value.shape[d + x.many], size)
        places = expand_dims(first.value, -1) + iota((size,), 0)
        x = Batched(_gathered(w, x, Batched(places, first.many), d), True) if x.many or first.many else Batched(
            gather(x.value, places, d), False)
    return [w.all(x)]


@_rule("dynamic_update_slice")
def _dynamic_update_slice(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """With a start for each example: each element comes from the update where it lies inside, else from x."""
    x, update, starts = inputs[0], inputs[1], inputs[2:]
    dims, shape = node.attributes["dims"], (w.size, *node.results[0].shape)
    if not any(s.many for s in starts):
        return w.again(node, [w.all(x), w.all(update), *(s.value for s in starts)],
                       {"dims": [d + 1 for d in dims]}, shape)
    inside, wide = full(shape, True), Batched(w.all(update), True)
    for d, start in zip(dims, starts):
        size, n = wide.value.shape[d + 1], shape[d + 1]
        first = w.all(_start(w, start, n, size))
        at = iota((n,), 0) - expand_dims(first, -1)
        here = compare(at, "ge", 0) & np.less(at, size_value(size))
        inside = inside & reshape(here, tuple(m if e in (0, d + 1) else 1 for e, m in enumerate(shape)))
        wide = Batched(_gathered(w, wide, Batched(np.maximum(at, 0), True), d), True)
    return [select(inside, wide.value, w.all(x))]


@_rule("host")
def _host(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """Functions of NumPy's linear algebra take any dimensions in front."""
    types = [(x.dtype, (w.size, *x.shape)) for x in node.results]
    return graph().many("host", [w.all(x) for x in inputs], node.attributes, types)


# ---- programs inside ----
def _body(w: _Writer, body: Graph, many: Sequence[bool], wanted: Sequence[bool] | None) -> tuple[Graph, list[bool]]:
    """The body for all examples; `many` says which parameters differ, `wanted` which results must."""
    old = [*body.parameters, *(x for _, x in body.captures.values())]
    with Graph() as made:
        mine = [made.parameter((x.dtype), (w.size, *x.shape) if m else x.shape) for x, m in zip(old, many)]
        known = {id(x): Batched(y, m) for x, y, m in zip(old, mine, many)}
        w.walk(body.nodes, known)
        results = [known[id(x)] for x in body.outputs]
        flags = [x.many or (wanted is not None and i < len(wanted) and wanted[i]) for i, x in enumerate(results)]
        made.outputs = [made.take(w.all(x) if flag else x.value) for x, flag in zip(results, flags)]
    return made, flags


def _settled(w: _Writer, body: Graph, many: list[bool], carried: int) -> list[bool]:
    """Which carried values differ in the end: more may in each round."""
    while True:
        flags = _body(w, body, many, None)[1]
        after = [a or b for a, b in zip(many[:carried], flags[:carried])]
        if after == many[:carried]:
            return many
        many = after + many[carried:]


@_rule("scan")
def _scan(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    a = node.attributes
    k, s = a["carried"], a["sliced"]
    many = _settled(w, a["step"], [x.many for x in inputs], k)
    body, flags = _body(w, a["step"], many, many[:k])
    operands = [w.all(x) if m else x.value for x, m in zip(inputs, many)]
    operands[k:k + s] = [moveaxis(x, 0, 1) if m else x for x, m in zip(operands[k:k + s], many[k:k + s])]
    types: list[Any] = [(x.dtype, x.shape) for x in body.outputs[:k]]
    n = operands[k].shape[0]
    types += [(x.dtype, (n, *x.shape)) for x in body.outputs[k:]]
    results = _chosen("scan", [*operands, *_outer(body)], {**a, "step": body}, types, node)
    flags = [flags[i] for i in _numbers(node, len(flags))]
    return [Batched(moveaxis(x, 1, 0) if m and i >= k else x, m)
            for i, x, m in zip(_numbers(node, len(body.outputs)), results, flags)]


def _numbers(node: Node, total: int) -> list[int]:
    """Which results a node has: all, or the one that it names."""
    return [node.attributes["result"]] if "result" in node.attributes else (
        list(range(total)) if len(node.results) > 1 else [0])


def _chosen(operation: str, operands: Sequence[Any], attributes: dict[str, Any], types: Sequence[Any],
            node: Node) -> list[Any]:
    if "result" in node.attributes:
        types = [types[node.attributes["result"]]]
    return graph().many(operation, operands, attributes, types[:len(node.results)])


def _outer(body: Graph) -> list[Any]:
    return [x for x, _ in body.captures.values()]


@_rule("while")
def _while(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """Until no example goes on; one that is done keeps its values."""
    a = node.attributes
    k, many = a["carried"], [x.many for x in inputs]
    while True:
        many = _settled(w, a["step"], many, k)
        differs = _body(w, a["condition"], many, None)[1][0]
        if not differs or all(many[:k]):
            break
        many = [True] * k + many[k:]
    step, _ = _body(w, a["step"], many, many[:k])
    condition, _ = _body(w, a["condition"], many, None)
    operands = [w.all(x) if m else x.value for x, m in zip(inputs, many)]
    if differs:
        step, condition = _masked(step, condition, k)
    types = [(x.dtype, x.shape) for x in operands[:k]]
    made = _chosen("while", operands, {**a, "condition": condition, "step": step}, types, node)
    return [Batched(x, many[i]) for i, x in zip(_numbers(node, k), made)]


def _masked(step: Graph, condition: Graph, carried: int) -> tuple[Graph, Graph]:
    parameters = [(x.dtype, x.shape) for x in step.parameters]

    def inlined(body: Graph, mine: list[Any]) -> list[Any]:
        return body.inline({id(x): y for x, y in zip(body.parameters, mine)}, graph())
    with Graph() as some:
        mine = [some.parameter(*kind) for kind in parameters]
        some.outputs = [reduce(inlined(condition, mine)[0], "add")]
    with Graph() as masked:
        mine = [masked.parameter(*kind) for kind in parameters]
        goes_on = inlined(condition, mine)[0]
        after = inlined(step, mine)
        masked.outputs = [select(reshape(goes_on, (goes_on.shape[0], *[1] * (x.ndim - 1))), y, x)
                          for x, y in zip(mine[:carried], after)]
    return masked, some


@_rule("cond")
def _cond(w: _Writer, node: Node, inputs: list[Batched]) -> list[Any]:
    """By a predicate for each example: both are computed, and one is taken."""
    a = node.attributes
    which, operands = inputs[0], inputs[1:]
    many = [x.many for x in operands]
    if which.many:
        bodies = [_body(w, a[name], many, [True] * len(a[name].outputs))[0] for name in ("then", "otherwise")]
        yes, no = ([made for made in body.inline(
            {id(p): x.value for p, x in zip(body.parameters, operands)}, graph())] for body in bodies)
        rows = [select(reshape(which.value, (w.size, *[1] * (y.ndim - 1))), y, n) for y, n in zip(yes, no)]
        return [rows[i] for i in _numbers(node, len(rows))]
    flags = [_body(w, a[name], many, None)[1] for name in ("then", "otherwise")]
    either = [x or y for x, y in zip(*flags)]
    then, otherwise = (_body(w, a[name], many, either)[0] for name in ("then", "otherwise"))
    made = _chosen("cond", [which.value, *(x.value for x in operands)], {**a, "then": then, "otherwise": otherwise},
                   [(x.dtype, x.shape) for x in then.outputs], node)
    return [Batched(x, either[i]) for i, x in zip(_numbers(node, len(either)), made)]


# ---- vmap ----
Axes = Union[int, None, Sequence[Any], dict[str, Any]]


def _spread(axes: Any, structure: Any, what: str) -> list[Any]:
    """An axis for each leaf; a number stands for all leaves below it."""
    if structure is _tree.LEAF:
        if not (axes is None or isinstance(axes, int)):
            raise ValueError(f"symplex.vmap: {what} {axes!r} for an array: a number or None is needed")
        return [axes]
    kind, parts = structure
    if kind is dict:
        return [d for key, part in parts for d in _spread(axes[key] if isinstance(axes, dict) else axes, part, what)]
    if isinstance(kind, type) and issubclass(kind, (tuple, list)):
        if isinstance(axes, (tuple, list)) and len(axes) != len(parts):
            raise ValueError(f"symplex.vmap: {what} has {len(axes)} entries for {len(parts)}")
        rows = axes if isinstance(axes, (tuple, list)) else [axes] * len(parts)
        return [d for row, part in zip(rows, parts) for d in _spread(row, part, what)]
    return []


def batched(function: Callable[..., Any], in_axes: Axes, out_axes: Axes) -> Callable[..., Any]:
    """The function for many examples, to be called while something is traced."""
    def call(*args: Any, **keywords: Any) -> Any:
        leaves, names, structure = _tree.leaves_of((args, keywords), "args", numbers=False)
        rows = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(rows) != len(args):
            raise ValueError(f"symplex.vmap: in_axes has {len(rows)} entries for {len(args)} arguments ({place()})")
        axes = [*(d for row, part in zip(rows, structure[1][0][1]) for d in _spread(row, part, "in_axes")),
                *_spread(0, structure[1][1], "in_axes")]
        values = [value(x) for x in leaves]
        values = [x if d is None else moveaxis(x, d, 0) for x, d in zip(values, axes)]
        sizes = [(x.shape[0], name) for x, d, name in zip(values, axes, names) if d is not None]
        if not sizes:
            raise ValueError(f"symplex.vmap: no argument has an axis of examples ({place()})")
        size = sizes[0][0]
        for n, name in sizes[1:]:
            size = meet(size, n, f"symplex.vmap: examples of {sizes[0][1]} and {name}", [(sizes[0][0],), (n,)])
        ones = [Tracer(graph(), x.dtype, x.shape if d is None else x.shape[1:]) for x, d in zip(values, axes)]

        def one(*mine: Any) -> Any:
            given, named = _tree.rebuilt(structure, mine)
            return function(*given, **named)
        body, result = inner(one, ones, lambda mine: mine)
        known = {id(p): Batched(x, d is not None) for p, x, d in zip(body.parameters, values, axes)}
        known.update((id(mine), Batched(outer, False)) for outer, mine in body.captures.values())
        writer = _Writer(size)
        writer.walk(body.needed(), known)
        out = _spread(out_axes, result, "out_axes")
        made = []
        for x, d in zip((known[id(x)] for x in body.outputs), out):
            if d is None and x.many:
                raise ValueError(f"symplex.vmap: a result has out_axes None and differs between examples ({place()})")
            made.append(x.value if d is None else moveaxis(writer.all(x), 0, d))
        return _tree.rebuilt(result, made)
    return call
