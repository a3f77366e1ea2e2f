"""Compiled graphs: a module for each set of extents, called with PyTorch's tensors where they lie."""
from __future__ import annotations

import functools
import pickle
import time
import warnings
import weakref
from builtins import compile as compile_python
from typing import Any, Callable, Iterator, Sequence

import sympy
import torch
from torch import fx

from symplex._compile import compile_bytes
from symplex._errors import CompileError, InputError, LayoutError, LimitExceeded, Unimplemented
from symplex._module import Module, load
from symplex.torch import _device
from symplex.torch._device import CPU as _CPU
from symplex.torch._emit import Undescribed, Unsupported
from symplex.torch._graph import expression, graph_of, is_symbolic, is_tensor, rows_of
from symplex.torch._lower import Program, arguments_of, lower
from symplex.torch._weights import Sets, is_marked, mark

_OWN_MAX = 3  # sets of extents that have programs of their own before there is one for an interval
_HIGH_MIN, _HIGH_TIMES = 64, 8  # of the interval that a module serves
_WIDE_SECONDS = 20.0  # that compiling it may take: where nearly each extent needs code of its own it would take minutes
_KEPT_MAX = 8  # programs of one graph that other processes get, too
# Why a program cannot be written with symbols.
_NOT_WITH_SYMBOLS = (Unsupported, Unimplemented, LimitExceeded, CompileError, InputError, TypeError)

# Why PyTorch runs what cannot be compiled.
REFUSED = (Unsupported, Unimplemented, LimitExceeded, CompileError, InputError)

# Twice as fast as torch.empty_strided, with the same arguments: made for code that Inductor writes.
_empty: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None) or (
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype, device=_CPU))

_modules: "weakref.WeakValueDictionary[Any, Module]" = weakref.WeakValueDictionary()


class _TooLong(Exception):
    """A module for an interval is given up: a program for each set of extents serves as well."""


def _within(seconds: float, told: Callable[[str, int, int], object] | None) -> Callable[[str, int, int], None]:
    end = time.monotonic() + seconds

    def progress(stage: str, done: int, total: int) -> None:
        if told is not None:
            told(stage, done, total)
        if time.monotonic() > end:
            raise _TooLong
    return progress


def compiled(text: str | None, options: dict[str, Any], **more: Any) -> Module | None:
    """Equal programs, as equal layers are, are one module. `more`: options that say nothing of the module."""
    if text is None:
        return None
    options = {k: v for k, v in options.items() if k != "freeze"}
    key = text, tuple(sorted((k, repr(v)) for k, v in options.items()))
    module = _modules.get(key)
    if module is None:
        made, info = compile_bytes(text, **{**{k: v for k, v in options.items() if k != "threads"}, **more})
        module = opened(made, options)
        module.compiled = info
        _modules[key] = module
    return module


def opened(made: bytes, options: dict[str, Any]) -> Module:
    module = load(made, threads=options.get("threads", torch.get_num_threads()))
    module.file = made
    return module


class Entry:
    """A program for some extents, and its module. `call(args)` gives the results; it is Python that is written for the
    program, as each loop over arguments would cost as much as a small kernel does. `freeze`: as in `_weights`."""

    def __init__(self, program: Program, module: Module | None, freeze: Any, device: torch.device = _CPU) -> None:
        self.program, self.module = program, module
        known: dict[str, Any] = {"module": module, "empty": _empty if device == _CPU else _device.maker(device),
                                 "LayoutError": LayoutError, "device": device, "torch_empty": torch.empty,
                                 "whole": _device.whole, "stream_of": _device.current_stream}
        lines = _module_call(program, module, freeze, known) if module is not None else []
        results = []
        for i, (kind, at, views) in enumerate(program.results):
            text = f"o{at}" if kind == "output" else f"args[{at}]" if kind == "input" else f"number{i}"
            if kind == "number":
                known[text] = at
            for k, (operator, further, keywords) in enumerate(views):
                known[f"view{i}_{k}"] = functools.partial(_viewed, operator, further, keywords)
                text = f"view{i}_{k}({text})"
            results.append(text)
        body = "\n".join("    " + line for line in [*lines, f"return [{', '.join(results)}]"])
        exec(compile_python(f"def call(args):\n{body}\n", "<symplex>", "exec"), known)
        self.call: Callable[[Sequence[Any]], list[Any]] = known["call"]


class Eager:
    """A graph that PyTorch runs, called like an Entry: with its own tensors among the arguments."""

    def __init__(self, graph: fx.Graph) -> None:
        arguments = arguments_of(graph)
        argument = next(n.op for n in arguments if n.op != "get_attr")
        for node in arguments:
            node.op, node.target = argument, node.name
        module = fx.GraphModule(torch.nn.Module(), graph)
        end = next(n for n in graph.nodes if n.op == "output").args[0]
        single = not isinstance(end, (list, tuple))
        self.call: Callable[[Sequence[Any]], list[Any]] = (
            lambda args: [module(*args)] if single else list(module(*args)))


def warn(text: str) -> None:
    warnings.warn(f"symplex: PyTorch runs a part of the model: {text}", RuntimeWarning, stacklevel=2)


def _viewed(operator: Any, further: tuple[Any, ...], keywords: dict[str, Any], x: torch.Tensor) -> Any:
    return operator(x, *further, **keywords)


def _module_call(program: Program, module: Module, freeze: Any, known: dict[str, Any]) -> list[str]:
    """Lines that make the outputs o0, o1, ... and run the module."""
    lines, lying = [], []
    for i, output in enumerate(program.outputs):
        known[f"type{i}"] = output.dtype
        lines.append(f"o{i} = empty({tuple(output.shape)}, {tuple(output.stride)}, type{i})")
        if output.plain:
            lines.append(f"p{i} = torch_empty({tuple(output.shape)}, dtype=type{i}, device=device)")
        lying.append(f"p{i}" if output.plain else f"o{i}" if output.perm is None else f"o{i}.permute({output.perm})")
    used, bound = ([program.inputs[int(t.name[len("x"):])] for t in tensors]
                   for tensors in (module.inputs, module.weights))
    if bound:
        known["sets_of"] = Sets(module, [i.perm for i in bound], freeze).of
        lines.append(f"module = sets_of(({''.join(f'args[{i.at}], ' for i in bound)}))")
    given = [f"args[{i.at}]" + (f".permute({i.perm})" if i.perm is not None else "") for i in used]
    order = [int(t.name[len("out"):]) for t in module.outputs]  # a module has an order of its own
    out = f"out = ({''.join(lying[i] + ', ' for i in order)})"
    gpu = known["device"] != _CPU
    lines += ["stream = stream_of(device)"] if gpu else []
    last = "out=out, stream=stream)" if gpu else "out=out)"
    again = [f"whole({g}), " if gpu else f"{g}.contiguous(), " for g in given]
    lines += [out, "try:", f"    module({''.join(g + ', ' for g in given)}{last}",
              "except LayoutError:",  # with gaps, or turned in another way than those that were compiled for
              f"    module({''.join(again)}{last}"]
    return lines + [f"o{i}.copy_(p{i})" for i, output in enumerate(program.outputs) if output.plain]


class Part:
    """A graph all of whose operators are in the table. Extents that are symbols are numbers at each call: a set of them
    has a program of its own, or that of an interval."""

    def __init__(self, graph_module: fx.GraphModule, options: dict[str, Any], strict: bool = False) -> None:
        graph, self.options, self.strict = graph_module.graph, options, strict
        self.device = _device.device_of(graph)
        self.on = _device.options_on(self.device, options)
        arguments = arguments_of(graph)
        self.constants: list[tuple[int, torch.Tensor]] = []
        for i, node in enumerate(arguments):
            if node.op == "get_attr":
                tensor = _attribute(graph_module, node.target)
                node.meta.setdefault("val", tensor)
                self.constants.append((i, tensor))
        self.freeze = options.get("freeze", False)
        if any(is_marked(n) for n in arguments):  # a graph of inference
            mark(arguments, [i for i, _ in self.constants], self.freeze)
        self.symbols = _sources(arguments)
        for symbol in unknown_symbols(graph):
            raise Unsupported(f"extent {symbol}, which no argument of this part has")
        self.rows = pickle.dumps(rows_of(graph), protocol=5) if self.symbols else None
        self.least = _least(graph, [symbol for symbol, _, _ in self.symbols])
        self._begin()
        if not self.symbols:
            self.entries[()] = self._own(lower(graph, lambda n: _number(expression(n), {})))
            self.only = None if self.constants else self.entries[()].call

    def _begin(self) -> None:
        self.entries: dict[tuple[int, ...], Entry | Eager] = {}
        self.own: dict[tuple[int, ...], tuple[Program, Module | None]] = {}
        self.wide: list[tuple[tuple[int, ...], Program, Module | None]] = []
        self.intervals = True  # the program can be written with symbols, as far as is known,
        self.shared = True  # and one module can serve an interval
        self.only: Callable[[Sequence[Any]], list[Any]] | None = None
        self.changed: Callable[[], None] = lambda: None  # told of programs that others may want, too

    def __getstate__(self) -> tuple[Any, ...]:
        """What a process needs that has not seen the graph."""
        if self.on:
            raise Undescribed("a program for a GPU")
        own = {k: (program._replace(text=None), module) for k, (program, module) in self.own.items()}
        wide = [(high, program._replace(text=None), module) for high, program, module in self.wide]
        return (self.rows, self.symbols, self.least, own, wide, self.intervals, self.shared, self.constants,
                self.freeze, self.strict)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.options: dict[str, Any] = {}
        self.device, self.on = _CPU, {}
        self._begin()
        (self.rows, self.symbols, self.least, self.own, self.wide, self.intervals, self.shared, self.constants,
         self.freeze, self.strict) = state
        self.entries = {key: Entry(program, module, self.freeze) for key, (program, module) in self.own.items()}
        if not self.symbols:
            self.only = None if self.constants else self.entries[()].call

    def parts(self) -> list["Part"]:
        return [self]

    @functools.cached_property
    def graph(self) -> fx.Graph:
        """With symbols: whoever made the graph, it is read from the same bytes."""
        assert self.rows is not None
        return graph_of(pickle.loads(self.rows))

    def _add(self, key: tuple[int, ...]) -> Entry | Eager:
        try:
            self.entries[key] = self._made(key)
        except REFUSED as error:
            if self.strict:
                raise
            extents = ", ".join(f"{symbol} = {n}" for (symbol, _, _), n in zip(self.symbols, key))
            warn(f"{error}, where {extents}")
            assert self.rows is not None
            self.entries[key] = Eager(graph_of(pickle.loads(self.rows)))
        return self.entries[key]

    def _made(self, key: tuple[int, ...]) -> Entry:
        known = {symbol: value for (symbol, _, _), value in zip(self.symbols, key)}
        own = len(self.entries) < _OWN_MAX or not (self.intervals and self.shared)
        entry = None if own else self._of_interval(key, known)
        if entry is None:
            entry = self._of_values(key, known)
        if entry is None:
            entry = self._own(lower(self.graph, lambda n: _number(expression(n), known)), key)
        return entry

    def _own(self, program: Program, key: tuple[int, ...] = (), **options: Any) -> Entry:
        module = compiled(program.text, {**self.options, **self.on, **options})
        _device.check_placed(module, self.device)
        if len(self.own) < _KEPT_MAX:
            self.own[key] = program, module
            self.changed()
        return Entry(program, module, self.freeze, self.device)

    def _with_symbols(self, key: tuple[int, ...]) -> tuple[Program, dict[str, int]]:
        """The program with symbols, each from its least to a power of two beyond what it is, and the highest values."""
        high = {str(symbol): max(_HIGH_MIN, 1 << (n * _HIGH_TIMES - 1).bit_length())
                for (symbol, _, _), n in zip(self.symbols, key)}
        declared = ", ".join(f"{name} in [{low}, {h}]" for low, (name, h) in zip(self.least, high.items()))
        return lower(self.graph, _symbolic, f"({declared}) "), high

    def _is_below(self, key: tuple[int, ...]) -> bool:
        return any(n < low for n, low in zip(key, self.least))

    def _of_values(self, key: tuple[int, ...], known: dict[Any, int]) -> Entry | None:
        """What is computed, and in which order, is decided on the program with symbols, so that no bit of a row depends
        on how many there are; then each has its value. None where the program cannot be written so."""
        if not self.intervals or self._is_below(key):
            return None
        try:
            program, high = self._with_symbols(key)
            program = program.at(lambda n: _number(n, known))
            return self._own(program, key, dims={name: n for name, n in zip(high, key)})
        except _NOT_WITH_SYMBOLS:
            self.intervals = False
            return None

    def _of_interval(self, key: tuple[int, ...], known: dict[Any, int]) -> Entry | None:
        """One module serves all extents from the least to a power of two beyond those of its first call. It takes as
        long to compile as several programs for one extent each, so it is made where extents keep changing. None where
        the program cannot be written so, or compiling it takes too long."""
        if self._is_below(key):
            return None
        for (high, program, module) in self.wide:
            if all(n <= h for n, h in zip(key, high)):
                return Entry(program.at(lambda n: _number(n, known)), module, self.freeze, self.device)
        try:
            program, highest = self._with_symbols(key)
        except _NOT_WITH_SYMBOLS:
            self.intervals = False
            return None
        try:
            intervals = {name: (low, h) for low, (name, h) in zip(self.least, highest.items())}
            module = compiled(program.text, {**self.options, **self.on, "dims": intervals},
                              progress=_within(_WIDE_SECONDS, self.options.get("progress")))
        except (*_NOT_WITH_SYMBOLS, _TooLong):
            self.shared = False
            return None
        self.wide.append((tuple(highest.values()), program, module))
        if len(self.wide) < _KEPT_MAX:
            self.changed()
        return Entry(program.at(lambda n: _number(n, known)), module, self.freeze, self.device)

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.only is not None:
            return self.only(args)
        if self.constants:
            args = list(args)
            for at, tensor in self.constants:
                args.insert(at, tensor)
        key = tuple([int(args[i]) if d is None else args[i].shape[d] for _, i, d in self.symbols])
        entry = self.entries.get(key)
        return (entry or self._add(key)).call(args)


def _number(value: Any, known: dict[Any, int]) -> Any:
    """An extent, or a number that is computed from extents, which may be a fraction: a scale such as 17 / 33."""
    if not isinstance(value, sympy.Basic):
        return value
    found = value.subs(known)
    return int(found) if found.is_Integer else float(found)


def _symbolic(extent: Any) -> Any:
    if not is_symbolic(extent):
        return extent
    value = expression(extent)
    return int(value) if value.is_Integer else value


def _attribute(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


def _sources(arguments: Sequence[fx.Node]) -> list[tuple[Any, int, int | None]]:
    """Where each symbol is read from: an argument that is a number, or an extent of a tensor."""
    found: dict[Any, tuple[int, int | None]] = {}
    for i, node in enumerate(arguments):
        value = node.meta.get("val")
        if is_symbolic(value) and expression(value).is_symbol:
            found[expression(value)] = i, None
    for i, node in enumerate(arguments):
        value = node.meta.get("val")
        for d, n in enumerate(value.shape if is_tensor(value) else ()):
            if is_symbolic(n) and expression(n).is_symbol:
                found.setdefault(expression(n), (i, d))
    return [(symbol, i, d) for symbol, (i, d) in found.items()]


def _extents(graph: fx.Graph) -> Iterator[sympy.Basic]:
    """Those of all values that are no numbers, and strides."""
    for node in graph.nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, (list, tuple)) else [value]:
            for n in [*v.shape, *v.stride()] if is_tensor(v) else [v]:
                if is_symbolic(n) and isinstance(expression(n), sympy.Basic):
                    yield expression(n)


def _least(graph: fx.Graph, symbols: Sequence[Any]) -> list[int]:
    """The least value of each symbol for which a program is written with symbols: 2, or where all extents such as
    s - 3 have elements."""
    least = dict.fromkeys(symbols, 2)
    for extent in _extents(graph):
        if extent.is_Add and len(extent.free_symbols) == 1:
            (symbol,) = extent.free_symbols
            slope, rest = extent.coeff(symbol, 1), extent.coeff(symbol, 0)
            if slope.is_Integer and slope > 0 and rest.is_Integer and extent == slope * symbol + rest:
                least[symbol] = max(least.get(symbol, 2), -((int(rest) - 1) // int(slope)))
    return [least[symbol] for symbol in symbols]


def unknown_symbols(graph: fx.Graph) -> list[Any]:
    """Of the extents of a graph, those that follow from none of its arguments."""
    known = {symbol for symbol, _, _ in _sources(arguments_of(graph))}
    found: dict[Any, None] = {}
    for extent in _extents(graph):
        found.update(dict.fromkeys(sorted(extent.free_symbols - known, key=str)))
    return list(found)
