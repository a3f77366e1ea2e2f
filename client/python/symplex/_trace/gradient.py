"""Gradients: the traced function as text, differentiated by the compiler, becomes part of the program around it."""
from __future__ import annotations

import inspect
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Callable, Sequence

from symplex import _c
from symplex._errors import Error, Unimplemented
from symplex._trace import tree as _tree
from symplex._trace.control import inner, name_of
from symplex._trace.graph import type_text
from symplex._trace.size import TraceError, place
from symplex._trace.text import read
from symplex._trace.tracer import graph, value


def client() -> str:
    """The program beside the extension, as the library finds it."""
    given = os.environ.get("SYMPLEX_CLIENT")
    here = pathlib.Path(_c.__file__).parent
    for path in ([pathlib.Path(given)] if given else [here / "symplex-client", here.parents[1] / "bin/symplex-client"]):
        if os.access(path, os.X_OK):
            return str(path)
    raise Error(f"there is no symplex-client beside {here} for gradients")


def differentiate(text: str, of: str, names: Sequence[str]) -> str:
    """The program with the gradients of an output; the compiler's own, in a process of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".sx") as file:
        file.write(text)
        file.flush()
        words = [client(), "grad", file.name, "--of", of, *(word for name in names for word in ("--wrt", name))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        error = done.stderr.strip().replace(file.name, "the traced function")
        raise Unimplemented(f"a gradient: {error} ({place()})")
    return done.stdout


def slopes(function: Callable[..., Any], argnums: tuple[int, ...], with_value: bool, single: bool,
           has_aux: bool) -> Callable[..., Any]:
    """The gradient of a function, to be called while something is traced."""
    def call(*args: Any, **keywords: Any) -> Any:
        name = name_of(function)
        if any(not -len(args) <= n < len(args) for n in argnums):
            raise ValueError(f"argnums {argnums}: {name} has {len(args)} arguments by position")
        numbers = [n % len(args) for n in argnums]
        leaves, names, structure = _tree.leaves_of((args, keywords), "args", numbers=False)
        values = [value(x) for x in leaves]
        first, spans = 0, []
        for part in structure[1][0][1]:
            k = len(_tree.leaves_of(_tree.rebuilt(part, iter(values[first:])), "x", numbers=False)[0])
            spans.append((first, first + k))
            first += k
        wanted = [i for n in numbers for i in range(*spans[n])]
        bad = [_named(function, names[i]) for i in wanted if values[i].dtype.kind in "iub"]
        if bad or not wanted:
            raise TraceError(f"{name}: gradients are of arrays of real numbers, not of {', '.join(bad) or 'none'} "
                             f"({place()})")

        def plain(*mine: Any) -> Any:
            given, extra = _tree.rebuilt(structure, mine)
            return function(*given, **extra)
        body, result = inner(plain, values, lambda mine: mine)
        outputs = body.outputs
        pair = has_aux and result is not _tree.LEAF and result[0] is tuple and len(result[1]) == 2
        of_loss = result[1][0] if pair else result
        if (has_aux and not pair or of_loss is not _tree.LEAF or outputs[0].shape != ()
                or outputs[0].dtype.kind in "iub"):
            kinds = ", ".join(type_text(x.dtype, x.shape) for x in outputs)
            raise TraceError(f"{name}: a gradient is of one real number{', the first of a pair' if has_aux else ''}, "
                             f"the function returns {_tree.text(result)} of {kinds} ({place()})")
        found = _differentiated(body, values, wanted)
        cursor = iter(found[len(outputs):])
        parts = [_tree.rebuilt(structure[1][0][1][n], cursor) for n in numbers]
        gradient = parts[0] if single else tuple(parts)
        out = _tree.rebuilt(result, found[:len(outputs)])
        if with_value:
            return out, gradient
        return (gradient, out[1]) if has_aux else gradient
    return call


def _named(function: Callable[..., Any], path: str) -> str:
    """args[0][2]['w'] as the caller knows it: w['w'], say."""
    number, _, rest = path.removeprefix("args[0][").partition("]")
    try:
        return list(inspect.signature(function).parameters)[int(number)] + rest
    except (TypeError, ValueError, IndexError):
        return f"args[{number}]{rest}"


def _differentiated(body: Any, values: list[Any], wanted: list[int]) -> list[Any]:
    """All results of the body, and the gradients of the first, as values of the program around it."""
    host = next((node for node in body.needed() if node.operation == "host"), None)
    if host is not None:
        raise Unimplemented(f"a gradient of {host.attributes['name']}, which is a call of the host ({place()})")
    outer = [x for x, _ in body.captures.values()]
    names = [f"x{i}" for i in range(len(values))] + [f"outer{i}" for i in range(len(outer))]
    text = body.text(body.needed(), names, [f"out{i}" for i in range(len(body.outputs))])
    made, inputs, outputs = read(differentiate(text, "out0", [f"x{i}" for i in wanted]), body.bounds())
    given = dict(zip(names, [*values, *outer]))
    results = dict(zip(outputs, made.inline({id(p): graph().take(given[n]) for p, n in zip(made.parameters, inputs)},
                                            graph())))
    return [results[f"out{i}"] for i in range(len(body.outputs))] + [results[f"grad(x{i})"] for i in wanted]
