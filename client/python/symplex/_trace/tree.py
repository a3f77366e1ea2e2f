"""Structures of arguments and results: tuples, named tuples, lists and dicts of arrays."""
from __future__ import annotations

from typing import Any, Iterable, Iterator

import numpy as np

from symplex._device import on_gpu
from symplex._trace.graph import Value

LEAF = object()
_NUMBERS = (bool, int, float)
_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")


def _array_like(value: Any) -> bool:
    return not isinstance(value, type) and any(hasattr(value, name) for name in _PROTOCOLS)


def flatten(value: Any, name: str, leaves: list[tuple[str, Any]], numbers: bool = False) -> Any:
    """The structure; arrays go into `leaves` with their names, numbers too if `numbers`, all else is part of it."""
    if isinstance(value, (np.ndarray, np.generic, Value)) or (numbers and isinstance(value, _NUMBERS)):
        leaves.append((name, value))
        return LEAF
    if isinstance(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        return type(value), tuple(
            flatten(v, f"{name}.{fields[i]}" if fields else f"{name}[{i}]", leaves, numbers)
            for i, v in enumerate(value))
    if isinstance(value, dict):
        try:
            keys = sorted(value)
        except TypeError:
            raise TypeError(f"argument '{name}': the keys of a dict are of one kind that has an order") from None
        return dict, tuple((k, flatten(value[k], f"{name}[{k!r}]", leaves, numbers)) for k in keys)
    if type(value) is float:
        return float, value.hex()  # zeros of both signs are two programs, and every NaN is one
    if isinstance(value, (bool, int, float, str, type(None))):
        return type(value), value
    if _array_like(value):
        leaves.append((name, on_gpu(value, name) or (
            np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value))))
        return LEAF
    raise TypeError(f"argument '{name}': {type(value).__name__} is neither an array, a number, a text, nor a tuple, "
                    f"list or dict of such")


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, (tuple, list, dict))


def build(structure: Any, leaves: Iterator[Any]) -> Any:
    """The reverse."""
    if structure is LEAF:
        return next(leaves)
    kind, inner = structure
    if kind is dict:
        return {key: build(part, leaves) for key, part in inner}
    if _is_structure(kind):
        parts = [build(part, leaves) for part in inner]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return float.fromhex(inner) if kind is float else inner


def leaves_of(value: Any, name: str, numbers: bool = True) -> tuple[list[Any], list[str], Any]:
    rows: list[tuple[str, Any]] = []
    structure = flatten(value, name, rows, numbers)
    return [x for _, x in rows], [n for n, _ in rows], structure


def rebuilt(structure: Any, leaves: Iterable[Any]) -> Any:
    return build(structure, iter(leaves))


def text(structure: Any) -> str:
    """A structure in words: (*, {'a': *})."""
    if structure is LEAF:
        return "*"
    kind, inner = structure
    if kind is dict:
        return "{" + ", ".join(f"{k!r}: {text(part)}" for k, part in inner) + "}"
    if _is_structure(kind):
        parts = ", ".join(text(part) for part in inner)
        return f"[{parts}]" if kind is list else f"({parts}{',' if len(inner) == 1 else ''})"
    return repr(float.fromhex(inner) if kind is float else inner)


def marked(value: Any, marks: Iterator[Any]) -> Any:
    """The same with a mark for each array, in the order in which they come."""
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        return next(marks)
    if kind is dict:
        return {k: marked(v, marks) for k, v in value.items()}
    return kind([marked(v, marks) for v in value]) if kind in (tuple, list) else value
