"""Compiling: programs to modules, through the daemon where one answers and in a process of our own where none does."""
from __future__ import annotations

import functools
import inspect
import operator
import os
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

from symplex import _c
from symplex._module import Module, checked_path, checked_threads

Program = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]
Extent = Union[int, "tuple[int, int]", "Sequence[int]"]

_DAEMON = {"auto": 0, "only": 1, "never": 2}
_EXACT, _APPROXIMATE, _REFRESH, _NO_WEIGHTS, _RANGE_ANY, _BATCH_INVARIANT = 1, 2, 4, 8, 16, 32


def _number(name: str, extent: Any, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"dims: {name} = {extent!r}; a whole number is needed, a list of them, or a tuple "
                        "(low, high)") from None


def _dims(dims: Mapping[str, Extent] | None) -> tuple[list[Any], list[Any]]:
    values: list[Any] = []
    intervals: list[Any] = []
    if not isinstance(dims, (Mapping, type(None))):
        raise TypeError(f"dims: a dict of names and values is needed, not {type(dims).__name__}")
    for name, extent in (dims or {}).items():
        if isinstance(extent, tuple):
            if len(extent) != 2:
                raise ValueError(f"dims: {name} = {extent!r}; an interval is a tuple (low, high), values are a list")
            intervals.append((name, *(_number(name, extent, value) for value in extent)))
        else:
            values += [(name, _number(name, extent, value))
                       for value in (extent if isinstance(extent, (list, range)) else [extent])]
    return values, intervals


def _source(program: Program) -> tuple[str | None, Any]:
    """Path and bytes, one of which is None: text of a program has a newline, a path has none."""
    if isinstance(program, str) and "\n" in program:
        return None, program.encode()
    if isinstance(program, (str, os.PathLike)):
        return checked_path(program), None
    if not isinstance(program, (bytes, bytearray, memoryview)):
        raise TypeError(f"program: a path, text or bytes are needed, not {type(program).__name__}")
    return None, program


def _run(what: int, program: Program, output: str | None, *, target: str = "native",
         dims: Mapping[str, Extent] | None = None, objective: str | None = None, exact: bool = False,
         batch_invariant: bool = False, approximate: bool = False, range_any: bool = False, refresh: bool = False,
         weights: bool = True, disabled_rules: Iterable[str] = (), daemon: str = "auto", socket: str | None = None,
         message: Callable[[str], object] | None = None,
         progress: Callable[[str, int, int], object] | None = None, run_threads: int = 0) -> Any:
    path, text = _source(program)
    values, intervals = _dims(dims)
    if daemon not in _DAEMON:
        raise ValueError(f"daemon: {daemon!r}, known are {', '.join(_DAEMON)}")
    flags = (_EXACT * bool(exact) | _APPROXIMATE * bool(approximate) | _REFRESH * bool(refresh)
             | _NO_WEIGHTS * (not weights) | _RANGE_ANY * bool(range_any)
             | _BATCH_INVARIANT * bool(batch_invariant))
    return _c.compile(what, path, text, target, values, intervals, flags, ",".join(disabled_rules) or None, objective,
                      _DAEMON[daemon], socket, message, progress, output, run_threads)


@functools.lru_cache(maxsize=None)
def _known() -> frozenset[str]:
    return frozenset(inspect.signature(_run, eval_str=False).parameters) - {"what", "program", "output", "run_threads"}


def check_options(what: str, options: Mapping[str, Any], threads: bool = True) -> None:
    """Are these options of `compile`, which has `threads`, or of what opens no module?"""
    known = _known() | {"threads"} if threads else _known()
    unknown = sorted(set(options) - known)
    if unknown:
        raise TypeError(f"{what}: unknown option '{unknown[0]}', known are {', '.join(sorted(known))}")


def compile_bytes(program: Program, **options: Any) -> tuple[bytes, dict[str, Any]]:
    """The module file of a program, and how it was got: key, tier ("ram", "disk": a hit; "none", "process": compiled),
    hit, cost_s, total_s. Options are those of `compile`."""
    check_options("compile_bytes", options, threads=False)
    return _run(0, program, None, **options)


def compile_file(program: Program, output: Union[str, os.PathLike[str]], **options: Any) -> dict[str, Any]:
    """The same into a file, whole or not at all."""
    check_options("compile_file", options, threads=False)
    return _run(2, program, os.fspath(output), **options)[1]


def compile(program: Program, *, threads: int = 0, **options: Any) -> Module:
    """Compiles a program and opens the module.

    program    a path to an ONNX model or to a program as text (docs/IR.md), told apart by content; or their bytes; or
               the text itself
    target     "native", "x86-64-v3", ..., or several with commas between
    dims       {"batch": 4}; {"batch": [1, 4, 16]}: a variant for each; {"batch": (1, 4096)}: one module for all from
               low to high
    objective  "time" (default), "memory" or "energy"
    exact      only rewrites that keep every bit; approximate: also such with an error bound; range_any: also such under
               which a value in between may overflow or vanish where it did not
    batch_invariant
               what is computed for a row of the results has the same bits in every batch: rewrites are chosen without
               its size (symplex.h, SYMPLEX_BATCH_INVARIANT)
    refresh    compile again and replace what is stored
    weights    False: they are bound after loading (Module.bind_weight)
    daemon     "auto", "only" or "never"; socket: where it listens
    message    called with a line such as "no daemon at ...; compiling in process"
    progress   called with (stage, done, total)
    threads    that run the module; 0: as many as the process may use

    Ctrl-C, and an exception of `message` or `progress`, end it: the daemon stops what nobody else waits for.
    """
    check_options("compile", options)
    opened, info = _run(3, program, None, run_threads=checked_threads(threads), **options)
    module = Module(None, opened, threads)
    module.compiled = info
    return module


def compile_onnx(model: Any, **options: Any) -> Module:
    """`compile` of an ONNX model: a path, bytes, or an onnx.ModelProto."""
    serialize = getattr(model, "SerializeToString", None)
    return compile(serialize() if serialize is not None else model, **options)


def optimize(program: Program, **options: Any) -> str:
    """The program that equality saturation extracts, as text. Options are those of `compile`, without `threads`."""
    check_options("optimize", options, threads=False)
    return _run(1, program, None, **options)
