"""The table from ATen's operators to operations of docs/IR.md, and what its rows share."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Union

import torch

from symplex.torch._emit import Emitter, Unsupported, Value, type_of, wide


class Type(NamedTuple):
    """What PyTorch says a result is."""

    dtype: str
    shape: tuple[Any, ...]


Operand = Union[Value, bool, int, float]
# e, the type of the result (a list of types where there are several), then the arguments of the operator. `wanted`,
# for those that ask for it, says which of several results anybody reads.
Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Names of operators, of all overloads or of one ("div.Tensor_mode")."""
    def add(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function
    return add


def find(target: Any) -> Handler:
    """The handler of an operator; Unsupported where there is none."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        raise Unsupported("no operator of ATen")
    name = target._schema.name.split("::")[1]
    handler = HANDLERS.get(f"{name}.{target._overloadname}") or HANDLERS.get(name)
    if handler is None:
        raise Unsupported("not known")
    return handler


def operand(e: Emitter, x: Operand, dtype: str, shape: Sequence[Any]) -> Value:
    """A tensor or a number as elements of this type, in this shape."""
    if not isinstance(x, Value):
        if isinstance(x, complex):
            raise Unsupported("a complex number")
        return e.constant(x, dtype, shape)
    return e.broadcast(e.convert(x, dtype), shape)


def dims_of(dims: Any, rank: int) -> list[int]:
    """Dimensions as an operator has them: a number, a list, or none, which means all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    dims = [dims] if isinstance(dims, int) else dims
    return sorted({d % rank for d in dims}) if rank else []


def axis_of(dim: int, x: Value) -> int:
    return dim % len(x.shape) if x.shape else 0


def widened(e: Emitter, x: Value) -> Value:
    return e.convert(x, wide(x.dtype))


def torch_type(value: Any) -> Type:
    """Of a tensor that only has a shape."""
    if value.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"a tensor on {value.device}")
    if value.layout != torch.strided or value.is_quantized:
        raise Unsupported(f"a tensor of layout {value.layout}")
    return Type(type_of(value.dtype), tuple(value.shape))
