"""Programs of torch.export: compiled once, called without Dynamo."""
from __future__ import annotations

import os
from typing import Any, Union

import sympy
import torch
from torch import fx
from torch._decomp import get_decompositions
from torch.export import ExportedProgram, default_decompositions
from torch.export._tree_utils import reorder_kwargs
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.utils._pytree import tree_flatten, tree_unflatten

from symplex._errors import InputError, Unimplemented
from symplex.torch._backend import broken_up, options_of
from symplex.torch._composites import COMPOSITES
from symplex.torch._graph import is_symbolic
from symplex.torch._lower import arguments_of
from symplex.torch._parts import build
from symplex.torch._weights import mark

_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def _table() -> dict[Any, Any]:
    """As for torch.compile, but that torch.export would keep some operators."""
    aten = torch.ops.aten
    kept = [aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec]
    return {**broken_up(default_decompositions().materialize()), **get_decompositions(kept), **COMPOSITES}


class Exported:
    """A program of torch.export that symplex compiled: called with what the exported function took. Parameters and
    buffers are those of the program, in `state`, which a call reads as they are then; buffers that the function writes
    are written."""

    def __init__(self, program: ExportedProgram, options: dict[str, Any]) -> None:
        lowered = program.run_decompositions(_table())
        signature, spec = lowered.graph_signature, lowered.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        self._limits = {symbol: (limits.lower, limits.upper) for symbol, limits in lowered.range_constraints.items()}
        self.state: dict[str, torch.Tensor] = {
            name: value.detach() for name, value in {**lowered.constants, **lowered.state_dict}.items()
            if isinstance(value, torch.Tensor)}
        self._nodes = arguments_of(lowered.graph)
        self._given = [_state_of(s) for s in signature.input_specs]
        for given, spec_ in zip(self._given, signature.input_specs):
            if given is not None and given not in self.state:
                raise Unimplemented(f"torch.export: {spec_.kind.name.lower()} {given} is no tensor")
        self._writes = [_written(s) for s in signature.output_specs]
        self._inputs = [n for n, given in zip(self._nodes, self._given) if given is None]
        self._places = {n.name: i for i, n in enumerate(self._inputs)}
        _without_assertions(lowered.graph_module)
        settings, changed = options_of(options), {name for _, name in self._writes}
        mark(self._nodes, [i for i, name in enumerate(self._given) if name is not None and name not in changed],
             settings.compiling["freeze"])
        self._run = build(lowered.graph_module, settings).boxed()

    def _check(self, values: list[Any]) -> None:
        """What the graph promises of its arguments is what was compiled for."""
        known: dict[Any, int] = {}
        if len(values) != len(self._inputs):
            raise InputError(f"{len(values)} arguments, the exported program takes {len(self._inputs)}")
        for node, x in zip(self._inputs, values):
            want = node.meta["val"]
            if not isinstance(want, torch.Tensor):
                if x != want:
                    raise InputError(f"argument {node.name}: {x!r}, exported for {want!r}")
                continue
            if not isinstance(x, torch.Tensor) or x.dtype != want.dtype or x.dim() != want.dim():
                raise InputError(f"argument {node.name}: {_text(x)}, exported for {_text(want)}")
            for d, n in enumerate(want.shape):
                self._check_extent(node, d, x.shape[d], n, known)

    def _check_extent(self, node: fx.Node, d: int, given: int, want: Any, known: dict[Any, int]) -> None:
        expression = want.node.expr if is_symbolic(want) else sympy.Integer(want)
        if expression.is_symbol and expression not in known:
            low, high = self._limits.get(expression, (0, sympy.oo))
            if not low <= given <= high:
                raise InputError(f"argument {node.name}: dimension {d} is {given}, allowed are {low} to {high}")
            known[expression] = given
        value = expression.subs(known)
        if value != given and not value.free_symbols:
            needed = f"{expression} = {value}" if expression.free_symbols else value
            raise InputError(f"argument {node.name}: dimension {d} is {given}, needed is {needed}")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if keywords:
            try:
                keywords = reorder_kwargs(keywords, self._in_spec)
            except ValueError as error:
                raise InputError(str(error)) from None
        values, spec = tree_flatten((args, keywords))
        if spec != self._in_spec:
            raise InputError(f"arguments {spec}, exported for {self._in_spec}")
        self._check(values)
        rest = iter(values)
        with torch.no_grad():
            given = [self.state[name] if name is not None else _plain(next(rest)) for name in self._given]
            made = self._run(given)
            results = []
            for (kind, name), value in zip(self._writes, made):
                if kind is OutputKind.USER_INPUT_MUTATION:
                    values[self._places[name]].copy_(value)
                elif kind is not None:
                    self.state[name].copy_(value)
                else:
                    results.append(value)
        return tree_unflatten(results, self._out_spec)


def _without_assertions(module: fx.GraphModule) -> None:
    """What torch.export asserts of a tensor in between holds by the graph's own types."""
    for node in list(module.graph.nodes):
        if node.target is not torch.ops.aten._assert_tensor_metadata.default:
            continue
        names = [argument.name for argument in node.target._schema.arguments]
        said = {**dict(zip(names, node.args)), **node.kwargs}
        value = said.pop(names[0]).meta["val"]
        holds = {"dtype": value.dtype, "device": value.device, "layout": value.layout}
        if all(v is None or holds.get(name) == v for name, v in said.items()):
            module.graph.erase_node(node)
    module.recompile()


def _plain(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x


def _text(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__


def _state_of(spec: InputSpec) -> str | None:
    """The name of a parameter, a buffer or a constant; None of what a caller gives."""
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
        return spec.target
    if spec.kind is not InputKind.USER_INPUT:
        raise Unimplemented(f"torch.export: {spec.kind.name.lower()} {spec.target}")
    return None


def _written(spec: Any) -> tuple[Any, Any]:
    if spec.kind in _WRITES:
        return spec.kind, spec.target
    if spec.kind is not OutputKind.USER_OUTPUT:
        raise Unimplemented(f"torch.export: an output that is {spec.kind.name.lower()}")
    return None, None


def from_exported(program: Union[ExportedProgram, str, "os.PathLike[str]"], **options: Any) -> Exported:
    """A program of torch.export, or the .pt2 file of one, compiled by symplex.

        exported = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch", max=512)}})
        run = symplex.torch.from_exported(exported)          # or of torch.export.save's file
        y = run(x)

    Dimensions that were exported as dynamic ones stay so. Options are those of the back end of torch.compile."""
    if isinstance(program, (str, os.PathLike)):
        program = torch.export.load(os.fspath(program))
    if not isinstance(program, ExportedProgram):
        raise TypeError(f"program: an ExportedProgram or a path is needed, not {type(program).__name__}")
    return Exported(program, options)
