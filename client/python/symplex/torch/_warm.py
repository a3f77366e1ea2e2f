"""Warm starts: what AOT autograd made of a graph is kept by the graph that Dynamo traced, and bound again without AOT
autograd where the same graph comes again, in this process or another one."""
from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import pickle
import time
import types
from typing import Any, Callable, Iterator, Sequence
from unittest import mock

import sympy
import torch
import torch._functorch._aot_autograd.graph_compile as graph_compile
from torch import fx
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd.aot_autograd_result import GenericAOTAutogradResult, serialize_graph_module

from symplex._errors import Error
from symplex._module import Module
from symplex.torch import _entries
from symplex.torch._emit import Undescribed
from symplex.torch._entries import COUNTS, tell
from symplex.torch._key import key_of, symbols_of
from symplex.torch._parts import Built, Options, warn
from symplex.torch._run import Part, opened

Tell = Callable[[Built], None]
Make = Callable[[Tell, Tell], Callable[..., Any]]
# AOT autograd has one function for each direction that is given all that a cache would keep, and what we read of it.
_KEEPERS = {"_cache_inference_info": ("aot_config", "fw_metadata", "maybe_subclass_meta", "wrappers"),
            "_cache_autograd_info": ("aot_config", "fw_metadata", "maybe_subclass_meta", "wrappers", "bw_module",
                                     "num_fw_outs_saved_for_bw", "_indices_of_inps_to_detach",
                                     "num_symints_saved_for_bw")}
_SEVERAL_MAX = 4  # entries by one key
_UNREADABLE = (pickle.UnpicklingError, AttributeError, ImportError, EOFError, LookupError, TypeError, ValueError, Error)


def is_known() -> bool:
    """Whether this version of PyTorch has what is needed here."""
    return all(set(names) <= set(inspect.signature(getattr(graph_compile, keeper)).parameters)
               for keeper, names in _KEEPERS.items())


# ---- as bytes ----
class _Pickler(pickle.Pickler):
    """Modules are kept once, as their files; operators and Python's modules by their names."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.files: dict[int, tuple[int, bytes]] = {}

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, Module):
            assert value.file is not None
            return "module", self.files.setdefault(id(value), (len(self.files), value.file))[0]
        if isinstance(value, torch._ops.OpOverload):
            space, name = value._schema.name.split("::")
            return "operator", space, name, value._overloadname
        if isinstance(value, types.ModuleType):
            return "import", value.__name__
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            raise Undescribed("a symbolic number of a graph")
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, files: list[bytes], options: dict[str, Any]) -> None:
        super().__init__(file)
        self.files, self.options = files, options
        self.modules: dict[int, Module] = {}

    def persistent_load(self, name: tuple[Any, ...]) -> Any:
        kind, *rest = name
        if kind == "module":
            (at,) = rest
            if at not in self.modules:
                self.modules[at] = opened(self.files[at], self.options)
            return self.modules[at]
        if kind == "operator":
            space, name, overload = rest
            return getattr(getattr(getattr(torch.ops, space), name), overload)
        return importlib.import_module(rest[0])


def _bytes(value: Any) -> bytes:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return pickle.dumps(([made for _, made in pickler.files.values()], file.getvalue()), protocol=5)


def _value(made: bytes, options: dict[str, Any]) -> Any:
    files, rest = pickle.loads(made)
    return _Unpickler(io.BytesIO(rest), files, options).load()


# ---- what is kept ----
@dataclasses.dataclass
class _Later:
    """A graph of the backward pass, which only compiled autograd reads."""

    made: bytes

    def deserialize(self) -> fx.GraphModule:
        graph: fx.GraphModule = pickle.loads(self.made).deserialize()
        return graph


@dataclasses.dataclass
class _Entry:
    forward: Built
    backward: Built | None
    facts: dict[str, Any]  # of GenericAOTAutogradResult: outputs, aliases, mutations, what is saved for backward
    graph: _Later | None
    symints: int  # that the forward pass saves for the backward one

    def parts(self) -> list[Part]:
        return [part for built in (self.forward, self.backward) if built is not None for part in built.whole.parts()]


_Guards = tuple[Any, ...]  # expressions of symbols that must be true, as AOT autograd decided by them


@dataclasses.dataclass
class _Kept:
    """An entry, and how it gets to where other processes find it. By one key there may be several, for extents for
    which AOT autograd made something else."""

    key: str
    guards: _Guards
    entry: _Entry
    options: Options
    cost_us: int
    is_new: bool

    def begin(self) -> None:
        """A part with symbols has its first program when it is first called, and more of them later."""
        for part in self.entry.parts():
            part.options = self.options.compiling
            part.changed = self.put
        if self.is_new:
            self.put()

    def put(self) -> None:
        if not all(part.own or part.wide for part in self.entry.parts()):
            return
        try:
            made = _bytes(self.entry)
        except Undescribed as error:
            return tell(str(error))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            return tell(f"what cannot be kept: {error}")
        compiling = self.options.compiling
        others = [] if compiling.get("refresh") else _several(_entries.get(self.key, compiling)[0])
        rest = [(guards, value) for guards, value in others if guards != self.guards]
        several = pickle.dumps([(self.guards, made), *rest[:_SEVERAL_MAX - 1]], protocol=5)
        if not _entries.put(self.key, several, self.cost_us, compiling):
            tell("no room for entries")
        elif self.is_new:
            COUNTS["kept"] += 1
            self.is_new = False


def _several(made: bytes | None) -> list[tuple[_Guards, bytes]]:
    """What is kept by one key; nothing of what cannot be read."""
    try:
        several: list[tuple[_Guards, bytes]] = pickle.loads(made) if made is not None else []
        return [(tuple(guards), bytes(value)) for guards, value in several]
    except _UNREADABLE:
        return []


@dataclasses.dataclass
class _Bound:
    """One direction as a result of AOT autograd has it."""

    call: Callable[[list[Any]], Any]
    backward_state_indices: list[int] = dataclasses.field(default_factory=list)
    num_symints_saved_for_bw_: int = 0

    def load(self, example: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return self.call

    def post_compile(self, call: Callable[[list[Any]], Any], config: Any) -> Callable[[list[Any]], Any]:
        if config["is_backward"]:
            disabled = torch._dynamo.disable(call, reason="do not trace what is compiled")
            disabled._boxed_call = True
            return disabled
        return call


def _bind(entry: _Entry) -> Callable[..., Any]:
    """What AOT autograd would give."""
    facts = dict(entry.facts)
    config = dataclasses.replace(facts.pop("sanitized_aot_config"), aot_id=next(aot_autograd.AOT_COUNTER))
    backward = _Bound(entry.backward.boxed(), [], entry.symints) if entry.backward is not None else None
    result: Any = GenericAOTAutogradResult(
        compiled_fw=_Bound(entry.forward.boxed()), compiled_bw=backward, aot_joint_graph_str=None,
        aot_forward_graph_str=None, aot_backward_graph_str=None, min_cut_info_str=None, dispatch_wrappers=[],
        maybe_subclass_meta=None, forward_time_taken_ns=0, backward_time_taken_ns=0, guards_expr=None,
        sanitized_aot_config=config, serialized_bw_module=entry.graph, **facts)  # type: ignore[arg-type]
    run = result.wrap_post_compile([], config, {})
    return torch._dynamo.disable(lambda *args: run(list(args)), reason="do not trace what is compiled")


def _environment() -> Any:
    """PyTorch's ShapeEnv of what is being traced, and nothing where there is none."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fakify_first_call:
        raise Undescribed("no context of tracing")
    return context.fake_mode.shape_env if context.fake_mode is not None else None


class _Record:
    """What is made of one graph, while it is made."""

    def __init__(self, key: str, symbols: dict[Any, int], options: Options) -> None:
        self.key, self.symbols, self.options = key, symbols, options
        self.forward: Built | None = None
        self.backward: Built | None = None
        self.begun, self.spent_s = time.monotonic(), 0.0
        self.environment = _environment()
        self.guards = self._guards()
        self.replaced = self._replaced()
        self.decided: _Guards = ()

    def tell_forward(self, built: Built) -> None:
        self.forward = built

    def tell_backward(self, built: Built) -> None:
        self.backward = built

    def _guards(self) -> tuple[int, int]:
        """How many conditions on arguments there are. One that AOT autograd adds would be missing after a hit."""
        guards = torch._guards.TracingContext.get().guards_context
        return len(guards.aotautograd_guards), len(self.environment.guards) if self.environment is not None else 0

    def _replaced(self) -> list[Any]:
        """Symbols that are no longer free."""
        return [s for s in self.symbols if s in self.environment.replacements]

    def facts(self, given: dict[str, Any]) -> dict[str, Any]:
        """What AOT autograd found out, from the arguments of its function that would keep it."""
        meta = given["fw_metadata"]
        (others, shapes), (others_now, shapes_now) = self.guards, self._guards()
        self.decided = tuple(g.expr for g in self.environment.guards[shapes:]) if shapes_now > shapes else ()
        if (others_now != others or self._replaced() != self.replaced
                or not all(expr.free_symbols <= self.symbols.keys() for expr in self.decided)):
            raise Undescribed("conditions on arguments that AOT autograd adds")
        if any(getattr(w, "needs_post_compile", True) for w in given["wrappers"]):
            raise Undescribed("arguments that are the same tensor, or that lie in the same memory")
        if given["maybe_subclass_meta"] is not None or meta.tokens or meta.num_graphsafe_rng_states:
            raise Undescribed("subclasses of tensors, effects, or states of generators")
        config = given["aot_config"].to_cacheable()
        return {"runtime_metadata": meta, "num_fw_outs_saved_for_bw": given.get("num_fw_outs_saved_for_bw"),
                "indices_of_inps_to_detach": given.get("_indices_of_inps_to_detach", []),
                "sanitized_aot_config": dataclasses.replace(config, aot_autograd_arg_pos_to_source=None,
                                                            precompile_backend_id=None)}

    def keep(self, facts: dict[str, Any], graph: fx.GraphModule | None, symints: int) -> None:
        assert self.forward is not None
        try:
            later = _Later(pickle.dumps(serialize_graph_module(graph))) if graph is not None else None
        except Exception as error:  # whatever PyTorch raises of what it cannot write
            return tell(f"what cannot be kept: {error}")
        cost_us = int((self.spent_s + time.monotonic() - self.begun) * 1e6)
        entry = _Entry(self.forward, self.backward, facts, later, symints)
        _Kept(self.key, self.decided, entry, self.options, cost_us, True).begin()

    def inference(self, found: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        given = inspect.signature(found).bind(*args, **keywords).arguments
        result = found(*args, **keywords)
        try:
            self.keep(self.facts(given), None, 0)
        except Undescribed as error:
            tell(str(error))
        return result

    def training(self, found: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """The backward pass may be compiled when it is first needed: then what is kept waits for it."""
        given = inspect.signature(found).bind(*args, **keywords).arguments
        result = found(*args, **keywords)
        try:
            facts = self.facts(given)
        except Undescribed as error:
            tell(str(error))
            return result
        self.spent_s, graph = time.monotonic() - self.begun, given["bw_module"]
        symints = given["num_symints_saved_for_bw"]

        def later(call: Any, module: fx.GraphModule, meta: Any, config: Any) -> None:
            self.keep({**facts, "runtime_metadata": meta}, module, symints)

        if self.backward is not None:
            self.keep(facts, graph, symints)
            return result
        return later, None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Dynamo compiles one graph at a time, so nobody else calls those functions meanwhile."""
        with contextlib.ExitStack() as stack:
            for name, with_them in zip(_KEEPERS, (self.inference, self.training)):
                found = getattr(graph_compile, name)
                stack.enter_context(mock.patch.object(
                    graph_compile, name, lambda *a, w=with_them, f=found, **k: w(f, *a, **k)))
            yield


def _fits(guards: _Guards, symbols: dict[Any, int]) -> bool:
    return all(expr.subs(symbols) == sympy.true for expr in guards)


def _restored(record: _Record) -> Callable[..., Any] | None:
    """What is kept by this key, for these extents."""
    made, damaged = _entries.get(record.key, record.options.compiling)
    several = _several(made)
    found = [(guards, value) for guards, value in several if _fits(guards, record.symbols)]
    if found:
        guards, value = found[0]
        try:
            entry = _value(value, record.options.compiling)
            run = _bind(entry)
        except _UNREADABLE:
            found = []
        else:
            for expr in guards:  # Dynamo checks them at later calls, as if AOT autograd had run
                record.environment.evaluate_expr(expr)
            _Kept(record.key, guards, entry, record.options, 0, False).begin()
            for built in (entry.forward, entry.backward):
                if built is not None and built.told:
                    warn(built.told)
            COUNTS["hits"] += 1
            return run
        damaged = True
    COUNTS["damaged" if damaged or (made is not None and not several) else "misses"] += 1
    return None


def compiled(module: fx.GraphModule, given: Sequence[Any], options: Options, make: Make) -> Callable[..., Any]:
    """A graph of Dynamo's, by what is kept of it, or else by AOT autograd."""
    try:
        key = key_of(module, given, options.compiling, _environment())
        record = _Record(key, symbols_of(given), options)
    except Undescribed as error:
        tell(str(error))
        return make(lambda built: None, lambda built: None)
    run = None if options.compiling.get("refresh") else _restored(record)
    if run is not None:
        return run
    with record.watching():
        return make(record.tell_forward, record.tell_backward)
