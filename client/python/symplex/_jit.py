"""symplex.jit: Python functions over NumPy arrays, traced once for each shape and type and compiled; and gradients."""
from __future__ import annotations

import functools
import inspect
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Callable, Sequence, Union

import numpy as np

from symplex import _c
from symplex._compile import compile
from symplex._errors import Error, Unimplemented
from symplex._module import Module
from symplex._trace import Graph, TraceError, Tracer, type_text

_LEAF = object()


def _flatten(value: Any, name: str, leaves: list[tuple[str, Any]]) -> Any:
    """The structure of tuples, lists and dicts; arrays go into `leaves` with names, all else is part of it."""
    if isinstance(value, (np.ndarray, np.generic, Tracer)):
        leaves.append((name, value))
        return _LEAF
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_flatten(v, f"{name}[{i}]", leaves) for i, v in enumerate(value))
    if isinstance(value, dict):
        return dict, tuple((k, _flatten(value[k], f"{name}[{k!r}]", leaves)) for k in sorted(value))
    if isinstance(value, (bool, int, float, str, type(None))):
        return type(value), value
    if hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
        leaves.append((name, np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)))
        return _LEAF
    raise TypeError(f"argument '{name}': {type(value).__name__} is neither an array, a number, a text, nor a tuple, "
                    f"list or dict of such")


def _build(structure: Any, leaves: Any) -> Any:
    """The reverse; `leaves` is an iterator."""
    if structure is _LEAF:
        return next(leaves)
    kind, inner = structure
    if kind in (tuple, list):
        return kind(_build(part, leaves) for part in inner)
    if kind is dict:
        return {key: _build(part, leaves) for key, part in inner}
    return inner


def _client() -> str:
    """The program beside the extension, as the library finds it."""
    given = os.environ.get("SYMPLEX_CLIENT")
    here = pathlib.Path(_c.__file__).parent
    for path in ([pathlib.Path(given)] if given else [here / "symplex-client", here.parents[1] / "bin/symplex-client"]):
        if os.access(path, os.X_OK):
            return str(path)
    raise Error(f"there is no symplex-client beside {here} for gradients")


def _differentiate(text: str, names: Sequence[str]) -> str:
    """The program with the gradients of out0; the compiler's own, in a process of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".sx") as file:
        file.write(text)
        file.flush()
        words = [_client(), "grad", file.name, "--of", "out0", *(word for name in names for word in ("--wrt", name))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unimplemented(f"a gradient: {done.stderr.strip()}")
    return done.stdout


class Function:
    """A traced function. `modules`: one for each structure, shapes and types that it was called with."""

    def __init__(self, function: Callable[..., Any], argnums: tuple[int, ...] | None, with_value: bool,
                 single: bool, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._argnums, self._with_value, self._single = argnums, with_value, single
        self._signature = inspect.signature(function)
        self._quick: dict[Any, tuple[Module, Any]] = {}
        self.modules: dict[Any, tuple[Module, Any, list[tuple[int, ...]]]] = {}

    def _arguments(self, args: Any, keywords: Any) -> tuple[Any, list[tuple[str, Any]], list[tuple[int, int]]]:
        bound = self._signature.bind(*args, **keywords)
        bound.apply_defaults()
        leaves: list[tuple[str, Any]] = []
        spans, structure = [], []
        for name, value in bound.arguments.items():
            first = len(leaves)
            kind = self._signature.parameters[name].kind
            structure.append((name, kind, _flatten(value, name, leaves)))
            spans.append((first, len(leaves)))
        if any(isinstance(leaf, Tracer) for _, leaf in leaves):
            raise Unimplemented(f"{self.__name__}: a traced function inside of another; call the plain one")
        return tuple(structure), leaves, spans

    def _trace(self, structure: Any, leaves: list[tuple[str, Any]]) -> tuple[str, Any, list[Tracer]]:
        graph = Graph()
        inputs = []
        for i, (_, leaf) in enumerate(leaves):
            kind = type_text(leaf.dtype, leaf.shape)
            graph.lines.append(f'    %x{i} = parameter {{name = "x{i}", weight = 0}} : {kind}')
            inputs.append(Tracer(graph, f"%x{i}", leaf.dtype, leaf.shape))
        at = iter(inputs)
        args, keywords = [], {}
        for name, kind, part in structure:
            value = _build(part, at)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                keywords.update(value)
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                keywords[name] = value
            else:
                args.append(value)
        result: list[tuple[str, Any]] = []
        out = _flatten(self._function(*args, **keywords), "result", result)
        outputs = [x if isinstance(x, Tracer) else graph.constant(x) for _, x in result]
        if any(x._graph is not graph for x in outputs):
            raise TraceError(f"{self.__name__} returns a value of another traced function")
        text = graph.text(outputs)
        graph.open = False
        if not outputs:
            raise TraceError(f"{self.__name__} returns no array")
        return text, out, outputs

    def lower(self, *args: Any, **keywords: Any) -> str:
        """The program as text, for arguments like these."""
        structure, leaves, spans = self._arguments(args, keywords)
        return self._lower(structure, leaves, spans)[0]

    def _lower(self, structure: Any, leaves: Any, spans: Any) -> tuple[str, Any, list[int]]:
        text, out, outputs = self._trace(structure, leaves)
        if self._argnums is None:
            return text, out, []
        if len(outputs) != 1 or outputs[0].shape != () or outputs[0].dtype.kind != "f":
            raise TraceError(f"{self.__name__}: a gradient is of one real number, the function returns {outputs}")
        if any(not 0 <= n < len(spans) for n in self._argnums):
            raise ValueError(f"argnums {self._argnums}: {self.__name__} has {len(spans)} arguments")
        wanted = [i for n in self._argnums for i in range(*spans[n])]
        bad = [leaves[i][0] for i in wanted if leaves[i][1].dtype.kind in "iub"]
        if bad or not wanted:
            raise TraceError(f"{self.__name__}: gradients are of arrays of real numbers, not of "
                             f"{', '.join(bad) or 'none'}")
        return _differentiate(text, [f"x{i}" for i in wanted]), out, wanted

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        key = []
        for x in args:  # plain arrays alone, of types and shapes that were there before: straight to the module
            if type(x) is not np.ndarray or not x.flags.c_contiguous:
                return self._call(args, keywords)
            key.append(x.dtype)
            key.append(x.shape)
        quick = self._quick.get(tuple(key)) if not keywords else None
        if quick is None:
            return self._call(args, keywords)
        module, out = quick
        results = module(*args)
        return results if out is _LEAF else _build(out, iter(results if type(results) is tuple else (results,)))

    def _remember(self, args: Any, keywords: Any, structure: Any, module: Module, out: Any) -> None:
        """Where each argument is a plain array, and the inputs of the module are these arguments."""
        plain = not keywords and self._argnums is None and all(type(x) is np.ndarray for x in args) and all(
            part is _LEAF for _, _, part in structure)
        if plain and [t.name for t in module.inputs] == [f"x{i}" for i in range(len(args))] and [
                t.name for t in module.outputs] == [f"out{i}" for i in range(len(module.outputs))]:
            self._quick[tuple(part for x in args for part in (x.dtype, x.shape))] = module, out

    def _call(self, args: Any, keywords: Any) -> Any:
        structure, leaves, spans = self._arguments(args, keywords)
        arrays = [np.ascontiguousarray(x).reshape(x.shape) for _, x in leaves]
        key = structure, tuple((x.dtype, x.shape) for x in arrays)
        if key not in self.modules:
            text, out, wanted = self._lower(structure, leaves, spans)
            self.modules[key] = compile(text, **self._options), out, wanted
            self._remember(args, keywords, structure, *self.modules[key][:2])
        module, out, wanted = self.modules[key]
        results = module(**{t.name: arrays[int(t.name[1:])] for t in module.inputs})
        found = dict(zip((t.name for t in module.outputs), results if isinstance(results, tuple) else (results,)))
        if self._argnums is None:
            return _build(out, (found[f"out{i}"] for i in range(len(found))))
        slopes = iter([found[f"grad(x{i})"] for i in wanted])
        parts = tuple(_build(structure[n][2], slopes) for n in self._argnums)
        gradient = parts[0] if self._single else parts
        return (_build(out, iter([found["out0"]])), gradient) if self._with_value else gradient


def jit(function: Callable[..., Any], **options: Any) -> Function:
    """Traces `function` at its first call with arguments of some shapes and types, compiles the program, and runs it
    then and later. Arguments are arrays, and tuples, lists and dicts of them; numbers and texts in between are fixed:
    other ones are another program. The function is pure: it uses NumPy's functions on its arguments and returns arrays.
    Those that symplex does not know raise Unimplemented with their names, and what needs elements or changes an array
    raises TraceError with file and line. Options are those of `compile`."""
    return Function(function, None, False, False, options)


def value_and_grad(function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, **options: Any) -> Function:
    """The value of a function that returns one real number, and its gradients with respect to the arguments `argnums`,
    each of the structure of that argument."""
    single = isinstance(argnums, int)
    return Function(function, (argnums,) if isinstance(argnums, int) else tuple(argnums), True, single, options)


def grad(function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, **options: Any) -> Function:
    """The gradients alone."""
    made = value_and_grad(function, argnums, **options)
    made._with_value = False
    return made
