"""symplex.jit: Python functions over NumPy arrays, traced once for each shape and type and compiled; and what is made
of such functions: gradients, and functions of many examples."""
from __future__ import annotations

import functools
import inspect
import os
import random as python_random
import threading
import time
import types
import warnings
import weakref
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence, Union

import numpy as np

from symplex._c import short_call, short_key
from symplex._compile import check_options, compile
from symplex._device import OnGpu, gpu_of, target_of
from symplex._errors import DTypeError, Error, LayoutError, OutOfMemory, Unimplemented
from symplex._trace import explain as _explain, tree as _tree
from symplex._trace.batch import Axes, batched
from symplex._trace.control import name_of
from symplex._trace.gradient import slopes
from symplex._trace.graph import _STACK, Graph, type_text
from symplex._trace.program import Program
from symplex._trace.progress import Line
from symplex._trace.shapes import Patterns
from symplex._trace.size import TraceError, place, texts
from symplex._trace.stages import HostCall, Part, Ready, ready, split
from symplex._trace.tracer import Tracer, value
import symplex._trace.elements  # noqa: F401
import symplex._trace.functions  # noqa: F401
import symplex._trace.arranging  # noqa: F401
import symplex._trace.linalg  # noqa: F401
import symplex._trace.signals  # noqa: F401
import symplex._trace.statistics  # noqa: F401

_SHORT_MAX = 4096
_NAMES = np.ndarray, frozenset(np.dtype(c).type for c in "efdbhilqBHILQ?"), "dtype", "shape"


class _Static(NamedTuple):
    """An argument that is part of the program."""

    value: Any


class _Compiled(NamedTuple):
    """What serves one signature."""

    stages: list[Union[Ready, HostCall]]
    out: Any
    outputs: list[int]
    donated: frozenset[int]


class _Out:
    """The structure of what a function gives, where that is not one array; where its parts are among the results."""

    __slots__ = ("structure", "order")

    def __init__(self, structure: Any, order: list[int]) -> None:
        self.structure, self.order = structure, order


class _Bound(NamedTuple):
    """The arguments of a call, taken apart."""

    structure: Any
    leaves: list[tuple[str, Any]]
    spans: list[tuple[int, int]]


def _numbers(given: Union[int, Sequence[int], None]) -> tuple[int, ...]:
    return () if given is None else (given,) if isinstance(given, int) else tuple(given)


def _names(given: Union[str, Sequence[str], None]) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of C, without one
        return inspect.signature(lambda *args, **keywords: None)


def _chosen(signature: inspect.Signature, given: tuple[Any, Any], what: str) -> frozenset[str]:
    """Names of parameters, by numbers and by names."""
    numbers, names = given
    known = list(signature.parameters)
    found = set(_names(names))
    for n in _numbers(numbers):
        if not -len(known) <= n < len(known):
            raise ValueError(f"{what}: {n}, the function has {len(known)} arguments")
        found.add(known[n])
    wrong = sorted(found - set(known))
    if wrong and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        raise ValueError(f"{what}: the function has no argument {', '.join(wrong)}")
    return frozenset(found)


def _checked(name: str, x: Any) -> Any:
    """An array as a program can have it: in the byte order of the machine, of a known element type."""
    if x.dtype.kind in "OSUMm" or x.dtype.names is not None:
        raise DTypeError(f"argument '{name}': elements of {x.dtype.name}; arrays of numbers are needed")
    try:
        type_text(x.dtype, ())
    except Unimplemented:
        raise Unimplemented(f"argument '{name}': elements of {x.dtype.name}") from None
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def _whole(name: str, x: Any) -> Any:
    """Without gaps; a copy where there are some. On a GPU as it is."""
    if type(x) is np.ndarray and x.flags.c_contiguous:
        return x
    if isinstance(x, OnGpu):
        return x.array
    try:
        return np.ascontiguousarray(x).reshape(x.shape)
    except MemoryError as error:
        raise OutOfMemory(f"argument '{name}': {error}") from None


class Function:
    """A traced function: calling it runs a program, which is compiled at the first call with arguments of some
    structure, shapes and types. Inside of another traced function it is part of that one's program."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], *, static: Any = (None, None),
                 donated: Any = (None, None), shapes: Mapping[str, Any] | None = None,
                 dims: Mapping[str, Any] | None = None) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._signature = _signature(function)
        self._static = _chosen(self._signature, static, "static_argnums")
        self._donated = _chosen(self._signature, donated, "donate_argnums")
        self._patterns = Patterns(shapes, dims)
        self._short: dict[Any, tuple[Any, ...]] = {}
        self._lock = threading.RLock()
        self.modules: dict[Any, _Compiled] = {}
        self.compilations: list[_explain.Compilation] = []
        _FUNCTIONS.add(self)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<symplex function {name_of(self)}, {len(self.modules)} compiled>"

    # ---- arguments ----
    def _arguments(self, args: Any, keywords: Any) -> _Bound:
        bound = self._signature.bind(*args, **keywords)
        bound.apply_defaults()
        leaves: list[tuple[str, Any]] = []
        spans, structure = [], []
        for name, given in bound.arguments.items():
            first = len(leaves)
            kind = self._signature.parameters[name].kind
            if name in self._static:
                try:
                    hash(given)
                except TypeError:
                    raise TypeError(f"argument '{name}': a static argument is part of the program and must be "
                                    f"hashable, which {type(given).__name__} is not") from None
                part: Any = _Static(given)
            else:
                part = _tree.flatten(given, name, leaves)
            structure.append((name, kind, part))
            spans.append((first, len(leaves)))
        if any(isinstance(leaf, Tracer) for _, leaf in leaves):
            raise TraceError(f"a traced value is used after its function has returned ({place()})")
        return _Bound(tuple(structure), [(name, _checked(name, x)) for name, x in leaves], spans)

    @staticmethod
    def _rebuilt(structure: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        at = iter(inputs)
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, kind, part in structure:
            given = part.value if isinstance(part, _Static) else _tree.build(part, at)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += given
            elif kind is inspect.Parameter.VAR_KEYWORD:
                keywords.update(given)
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                keywords[name] = given
            else:
                args.append(given)
        return args, keywords

    # ---- tracing ----
    def _trace(self, bound: _Bound, shapes: list[tuple[Any, ...]]) -> tuple[Graph, Any]:
        before = _random_state()
        with Graph(name_of(self) if name_of(self).isidentifier() else "traced") as graph:
            inputs = [graph.parameter(x.dtype, shape) for (_, x), shape in zip(bound.leaves, shapes)]
            args, keywords = self._rebuilt(bound.structure, inputs)
            try:
                result = self._function(*args, **keywords)
            except ValueError as error:  # NumPy's around ours: an element of a plain array was set to a traced one
                if isinstance(error.__cause__, TraceError):
                    raise error.__cause__ from None
                raise
            self._check_pure(graph, bound, (args, keywords), inputs, before)
            rows: list[tuple[str, Any]] = []
            out = _tree.flatten(result, "result", rows)
            graph.outputs = [graph.take(value(x)) for _, x in rows]
        if not graph.outputs:
            raise TraceError(f"{name_of(self)} returns no array")
        return graph, out

    def _check_pure(self, graph: Graph, bound: _Bound, given: Any, inputs: list[Any], before: Any) -> None:
        where = _defined(self._function)
        if not _same_state(before, _random_state()):
            raise TraceError(f"{name_of(self)} draws random numbers of the host while it is traced ({where})\n"
                             f"They would be the same in each call: symplex.random draws from a key.")
        args, keywords = given
        plain, named = self._rebuilt(bound.structure, inputs)
        for mine, old in ((args, plain), (list(keywords.values()), list(named.values()))):
            for a, b in zip(mine, old):
                left, _, one = _leaves_or_none(a)
                right, _, other = _leaves_or_none(b)
                if one != other or any(x is not y for x, y in zip(left, right)):
                    raise TraceError(f"{name_of(self)} changes one of its arguments, a {type(a).__name__} ({where})\n"
                                     f"The caller's would stay as it is: return the new one instead.")
        leak = _leaked(self._function, graph)
        if leak is not None:
            raise TraceError(f"{name_of(self)} leaks a traced value through '{leak[0]}', made at {leak[1].origin} "
                             f"({where})\nReturn it instead.")

    def _donate(self, graph: Graph, bound: _Bound) -> tuple[frozenset[int], list[str]]:
        """Which inputs results lie in: each donated one takes the first result of its type."""
        leaves = [i for (name, _, _), (a, b) in zip(bound.structure, bound.spans) if name in self._donated
                  for i in range(a, b)]
        free = list(range(len(graph.outputs)))
        taken, notes = set(), []
        for i in leaves:
            x = graph.parameters[i]
            fit = next((k for k in free if graph.outputs[k].dtype == x.dtype and graph.outputs[k].shape == x.shape
                        and not any(graph.outputs[k] is p for p in graph.parameters)), None)
            if fit is None:
                notes.append(f"no result has the type of the donated argument '{bound.leaves[i][0]}', "
                             f"{type_text(x.dtype, x.shape)}")
                continue
            free.remove(fit)
            graph.roles[f"x{i}"] = f"out{fit}"
            taken.add(i)
        for note in notes:
            warnings.warn(f"{name_of(self)}: {note}", stacklevel=5)
        return frozenset(taken), notes

    # ---- compiling ----
    def _signature_of(self, bound: _Bound, shapes: list[tuple[Any, ...]]) -> dict[str, str]:
        """What a person is told of a signature."""
        made = {name: type_text(x.dtype, shape) if len(shape) <= 8 else texts(shape)
                for (name, x), shape in zip(bound.leaves, shapes)}
        for name, _, part in bound.structure:
            if isinstance(part, _Static):
                made[name] = f"{part.value!r} (static)"
            elif part is not _tree.LEAF and not any(n == name for n, _ in bound.leaves):
                made[name] = _tree.text(part)
        return made

    def lower(self, *args: Any, **keywords: Any) -> Program:
        """The program as text, for arguments like these; where NumPy computes in between, the programs."""
        bound = self._arguments(args, keywords)
        graph, _ = self._trace(bound, self._patterns.resolve(bound.leaves))
        self._donate(graph, bound)
        return Program("\n".join(stage.text for stage in split(graph) if isinstance(stage, Part)))

    def _compile(self, bound: _Bound, shapes: list[tuple[Any, ...]]) -> _Compiled:
        begin = time.perf_counter()
        graph, out = self._trace(bound, shapes)
        donated, notes = self._donate(graph, bound)
        stages = split(graph)
        if donated and len(stages) > 1:
            raise Unimplemented(f"{name_of(self)}: donated arguments beside {_host_names(stages)[0]}, which is a call "
                                f"of the host")
        middle = time.perf_counter()
        signature = self._signature_of(bound, shapes)
        gpu = gpu_of(bound.leaves)
        if gpu is not None and _host_names(stages):
            raise Unimplemented(f"{name_of(self)}: {_host_names(stages)[0]} is a call of the host, and the arguments "
                                f"lie on a GPU")
        made = self._modules(stages, graph.bounds(), signature, gpu)
        infos = [stage.module.compiled for stage in made if isinstance(stage, Ready) and stage.module.compiled]
        record = _explain.Compilation(
            name_of(self), signature, _explain.why(signature, self.compilations), _explain.tier_text(infos),
            middle - begin, time.perf_counter() - middle, tuple(_host_names(stages)), tuple(notes),
            tuple(str(info["key"]) for info in infos))
        self.compilations.append(record)
        _explain.report(record)
        outputs = stages[0].results if len(stages) == 1 and isinstance(stages[0], Part) else self._places(graph, stages)
        return _Compiled(made, out, outputs, donated)

    @staticmethod
    def _places(graph: Graph, stages: Sequence[Any]) -> list[int]:
        """Of the results among the values of a run of several stages."""
        made = {id(x): i for i, x in enumerate(graph.parameters)}
        for node in graph.needed():
            for x in node.results:
                made[id(x)] = len(made)
        return [made[id(x)] for x in graph.outputs]

    def _modules(self, stages: Sequence[Any], bounds: Mapping[str, tuple[int, int]],
                 signature: Mapping[str, str], gpu: int | None) -> list[Union[Ready, HostCall]]:
        options = dict(self._options)
        if gpu is not None and "target" not in options:
            options["target"] = target_of(gpu)
        line = Line(name_of(self))
        options.setdefault("progress", line)
        made: list[Union[Ready, HostCall]] = []
        try:
            for stage in stages:
                if isinstance(stage, HostCall):
                    made.append(stage)
                    continue
                dims = {name: interval for name, interval in bounds.items() if name in stage.graph.bounds()}
                made.append(ready(stage, compile(stage.text, dims=dims or None, **options)))
        except Error as error:
            of = ", ".join(f"{name}: {kind}" for name, kind in signature.items())
            error.add_note(f"while {name_of(self)}({of}) was compiled; its arrays are x0, x1, ... in this order")
            raise
        finally:
            line.end()
        return made

    # ---- calls ----
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if _STACK.graphs:
            return self._function(*args, **keywords)
        made = short_call(self._short, args, keywords, _NAMES)
        if made is NotImplemented:
            return self._long(args, keywords)
        if type(made) is not tuple or type(made[0]) is not _Out:
            return made
        out, results = made
        return _tree.build(out.structure, iter([results[i] for i in out.order] if out.order else (results,)))

    def _remember(self, args: Any, keywords: Any, made: _Compiled) -> None:
        """The short way of later calls, where one module does all."""
        found = short_key(args, keywords, _NAMES) if not self._static else None
        stage = made.stages[0]
        if found is None or len(made.stages) != 1 or not isinstance(stage, Ready):
            return
        key, leaves = found
        marks = [np.empty(0) for _ in leaves]
        again = self._arguments(*_tree.marked((args, keywords), iter(marks)))
        place_of = {id(x): i for i, x in enumerate(marks)}  # arrays that are defaults are not among them
        order = [place_of.get(id(again.leaves[i][1])) for i in stage.operands.values()]
        if None not in order and all(leaves[i].dtype.isnative for i in order):
            if len(self._short) >= _SHORT_MAX:
                self._short.clear()
            given = list(stage.results.values())  # the compiler's order of results
            out = _Out(made.out, [given.index(i) for i in made.outputs] if len(given) > 1 else [])
            self._short[key] = stage.module, tuple(order), None if made.out is _tree.LEAF else out

    def _long(self, args: Any, keywords: Any) -> Any:
        bound = self._arguments(args, keywords)
        shapes = self._patterns.resolve(bound.leaves)
        key: Any = bound.structure, tuple((x.dtype, shape) for (_, x), shape in zip(bound.leaves, shapes))
        gpu = gpu_of(bound.leaves)
        key = key if gpu is None else (*key, gpu)
        made = self.modules.get(key)
        if made is None:
            with self._lock:  # one compiles, the others wait
                made = self.modules.get(key)
                if made is None:
                    made = self.modules[key] = self._compile(bound, shapes)
        values: dict[int, Any] = {}
        for i, (name, x) in enumerate(bound.leaves):
            if i in made.donated and gpu is None and not (x.flags.c_contiguous and x.flags.writeable):
                raise LayoutError(f"argument '{name}': it is donated, and "
                                  f"{'has gaps' if x.flags.writeable else 'is read-only'}")
            values[i] = _whole(name, x)
        self._remember(args, keywords, made)
        for stage in made.stages:
            stage.run(values)
        return _tree.build(made.out, iter([values[i] for i in made.outputs]))


_FUNCTIONS: "weakref.WeakSet[Function]" = weakref.WeakSet()


def _after_fork() -> None:
    """Threads that hold locks are not there in a child."""
    for function in list(_FUNCTIONS):
        function._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


# ---- purity ----
def _random_state() -> Any:
    return np.random.get_state(legacy=False)["state"], python_random.getstate()


def _same_state(a: Any, b: Any) -> bool:
    return a[1] == b[1] and a[0]["pos"] == b[0]["pos"] and np.array_equal(a[0]["key"], b[0]["key"])


def _defined(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else name_of(function)


def _leaves_or_none(x: Any) -> tuple[list[Any], list[str], Any]:
    try:
        return _tree.leaves_of(x, "argument", numbers=False)
    except TypeError:
        return [x], [], None


def _leaked(function: Any, graph: Graph) -> tuple[str, Any] | None:
    """A value of the program in what the function closes over, or in a global that it names."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    held = dict(zip(code.co_freevars, function.__closure__ or ()))
    rows = [(name, _content(cell)) for name, cell in held.items()]
    rows += [(name, function.__globals__[name]) for name in code.co_names if name in function.__globals__]
    for name, x in rows:
        inside = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, (list, tuple, set)) else [x]
        for item in inside[-64:]:
            if isinstance(item, Tracer) and item._graph is graph:
                return name, item
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _host_names(stages: Iterable[Any]) -> list[str]:
    return [stage.name for stage in stages if isinstance(stage, HostCall)]


# ---- what users call ----
def jit(function: Callable[..., Any] | None = None, *, static_argnums: Union[int, Sequence[int], None] = None,
        static_argnames: Union[str, Sequence[str], None] = None,
        donate_argnums: Union[int, Sequence[int], None] = None,
        donate_argnames: Union[str, Sequence[str], None] = None, shapes: Mapping[str, Any] | None = None,
        dims: Mapping[str, tuple[int, int]] | None = None, **options: Any) -> Any:
    """Traces `function` at its first call with arguments of some shapes and types, compiles the program, and runs it
    then and later; also a decorator, `@symplex.jit` or `@symplex.jit(dims=...)`.

    Arguments are arrays, and tuples, lists and dicts of them; numbers and texts in between are fixed: other ones are
    another program. The function is pure: it uses NumPy's functions on its arguments and returns arrays. Those that
    symplex does not know raise Unimplemented with their names; what needs elements, changes something or mixes axes
    raises TraceError with file and line.

    static_argnums, static_argnames   arguments that the function gets as they are; each value, which must be hashable,
                     is a program of its own
    donate_argnums, donate_argnames   arguments in whose memory results may lie; they are changed, and the results that
                     lie there are these arrays
    shapes, dims     symbolic dimensions and typed axes:
                         jit(f, shapes={"x": ("batch", 784)}, dims={"batch": (1, 4096)})
                     is one program for all values from 1 to 4096. Arrays in structures have the names that errors
                     give them, such as "params['w']". A dimension is a number, None (any; each is a program of its
                     own), the name of a dimension, a sum of products such as "2*batch", or an `axis`.
    options          those of `compile`: target, objective, exact, threads, daemon, ...

    Arguments that lie on a GPU (DLPack, the CUDA array interface) are used there, as `Module` says; results are
    `DeviceArray`s. Without `target` the program is compiled for the GPU that holds them.
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, shapes=shapes,
                                 dims=dims, **options)
    if not callable(function):
        raise TypeError(f"symplex.jit: a function is needed, not {type(function).__name__}")
    check_options("symplex.jit", options)
    return Function(function, options, static=(static_argnums, static_argnames),
                    donated=(donate_argnums, donate_argnames), shapes=shapes, dims=dims)


def _slopes(function: Callable[..., Any], argnums: Union[int, Sequence[int]], with_value: bool, has_aux: bool,
            options: dict[str, Any]) -> Function:
    made = slopes(function, _numbers(argnums), with_value, isinstance(argnums, int), has_aux)
    functools.update_wrapper(made, function)
    return jit(made, **options)


def value_and_grad(function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, *, has_aux: bool = False,
                   **options: Any) -> Function:
    """The value of a function that returns one real number, and its gradients with respect to the arguments `argnums`,
    each of the structure of that argument. With `has_aux` the function returns a pair, whose second part is passed on.
    Options are those of `jit`; inside of traced functions it is part of them, and gradients of gradients are made."""
    return _slopes(function, argnums, True, has_aux, options)


def grad(function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, *, has_aux: bool = False,
         **options: Any) -> Function:
    """The gradients alone; with `has_aux` a pair of them and of the second part that the function returns."""
    return _slopes(function, argnums, False, has_aux, options)


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, **options: Any) -> Function:
    """A function of one example as one of many. `in_axes`: the axis of examples of each argument, None for those that
    are the same for all; `out_axes` of the results. Arguments by name have theirs in front. It is one program without
    a loop, and goes together with jit and grad."""
    made = batched(function, in_axes, out_axes)
    functools.update_wrapper(made, function)
    return jit(made, **options)
