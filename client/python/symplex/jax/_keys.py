"""Keys of random numbers: a key is its two words of uint32, along a dimension behind those of the array of keys. What
moves keys is said of words then."""
from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from symplex.jax._emit import Unsupported

_WORDS = 2


class _Typed(NamedTuple):
    """Stands for a variable of which only the type is asked."""

    aval: Any


def is_key(aval: Any) -> bool:
    return str(aval.dtype) == "key<fry>"


def words(aval: Any) -> Any:
    """The type of an array, with keys as words."""
    return jax.core.ShapedArray((*aval.shape, _WORDS), np.dtype(np.uint32)) if is_key(aval) else aval


def _slice(p: Any, rank: int) -> Any:
    return {"start_indices": (*p["start_indices"], 0), "limit_indices": (*p["limit_indices"], _WORDS),
            "strides": None if p["strides"] is None else (*p["strides"], 1)}


def _gather(p: Any, rank: int) -> Any:
    numbers = p["dimension_numbers"]
    return {"dimension_numbers": numbers._replace(offset_dims=(*numbers.offset_dims, rank)),
            "slice_sizes": (*p["slice_sizes"], _WORDS)}


# What changes in the parameters, of which the rank of the result is part; nothing in those of the others.
_CHANGES = {
    "slice": _slice, "gather": _gather,
    "broadcast_in_dim": lambda p, rank: {"shape": (*p["shape"], _WORDS),
                                         "broadcast_dimensions": (*p["broadcast_dimensions"], rank)},
    "transpose": lambda p, rank: {"permutation": (*p["permutation"], rank)}}
_SAME = {"reshape", "squeeze", "expand_dims", "concatenate", "split", "dynamic_slice", "dynamic_update_slice",
         "select_n", "copy", "copy_p", "optimization_barrier", "device_put", "stop_gradient", "scan", "while", "cond",
         "symplex", "random_bits", "random_split", "random_fold_in", "random_seed", "random_wrap", "random_unwrap",
         "random_clone"}


def of_words(eqn: Any, calls: Any) -> Any:
    """The same equation of words instead of keys. `calls`: names of primitives that call a jaxpr."""
    if not any(is_key(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        return eqn
    name, params = eqn.primitive.name, dict(eqn.params)
    if name in _CHANGES:
        params.update(_CHANGES[name](params, len(eqn.outvars[0].aval.shape)))
    elif name not in _SAME and name not in calls:
        raise Unsupported(f"{name}: elements of key<fry>")
    return eqn.replace(outvars=[_Typed(words(v.aval)) for v in eqn.outvars], params=params)
