"""Operators that move elements, or make them of nothing."""
from __future__ import annotations

from typing import Any, Sequence

from symplex.torch._emit import Emitter, Unsupported, Value, plain, wide
from symplex.torch._table import Operand, Type, axis_of, handles, operand


@handles("alias", "detach", "lift_fresh_copy", "lift", "contiguous", "positive")
def _same(e: Emitter, out: Type, x: Value) -> Value:
    return x


@handles("clone")
def _clone(e: Emitter, out: Type, x: Value, *, memory_format: Any = None) -> Value:
    """How a result lies is said where the program ends."""
    return x


@handles("_to_copy", "to", "convert_element_type")
def _to_copy(e: Emitter, out: Type, x: Operand, *types: Any, **options: Any) -> Value:
    return operand(e, x, out.dtype, out.shape)


@handles("copy")
def _copy(e: Emitter, out: Type, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return operand(e, source, out.dtype, out.shape)


@handles("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "_reshape_alias", "flatten", "unflatten")
def _view(e: Emitter, out: Type, x: Value, *sizes: Any) -> Value:
    if out.dtype != x.dtype:
        raise Unsupported("a view as other elements")
    return e.reshape(x, out.shape)


@handles("expand")
def _expand(e: Emitter, out: Type, x: Value, *sizes: Any, implicit: bool = False) -> Value:
    return e.broadcast(x, out.shape)


@handles("broadcast_in_dim")
def _broadcast_in_dim(e: Emitter, out: Type, x: Value, shape: Any, dims: Sequence[int]) -> Value:
    return e.broadcast(x, out.shape, dims)


@handles("permute")
def _permute(e: Emitter, out: Type, x: Value, dims: Sequence[int]) -> Value:
    return e.transpose(x, [d % len(x.shape) for d in dims])


@handles("transpose")
def _transpose(e: Emitter, out: Type, x: Value, a: Any, b: int | None = None) -> Value:
    if b is None:
        return e.transpose(x, list(a))
    perm = list(range(len(x.shape)))
    if perm:
        perm[a], perm[b] = perm[b], perm[a]
    return e.transpose(x, perm)


@handles("t")
def _t(e: Emitter, out: Type, x: Value) -> Value:
    return e.transpose(x, list(range(len(x.shape)))[::-1])


def bounds(start: Any, end: Any, extent: Any, count: Any) -> tuple[Any, Any]:
    """As Python has them: from the end where negative, and inside. Of an extent that is no number PyTorch knows how
    many are taken (`count`)."""
    start = 0 if start is None else start
    if end is None or (isinstance(end, int) and end >= 1 << 62) or end == extent:
        end = extent
    if isinstance(extent, int):
        start = min(max(start + extent if start < 0 else start, 0), extent)
        return start, min(max(end + extent if end < 0 else end, start), extent)
    if count == extent:
        return 0, extent
    start = plain(start + extent) if isinstance(start, int) and start < 0 else start
    return start, plain(start + count)


@handles("slice")
def _slice(e: Emitter, out: Type, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim = axis_of(dim, x)
    first, last = bounds(start, end, x.shape[dim], out.shape[dim])
    return e.slice(x, [first if d == dim else 0 for d in range(len(x.shape))],
                   [last if d == dim else n for d, n in enumerate(x.shape)],
                   [step if d == dim else 1 for d in range(len(x.shape))])


def taken(e: Emitter, x: Value, dim: int, index: int) -> Value:
    """One place along a dimension, which vanishes."""
    index = plain(index + x.shape[dim]) if index < 0 else index
    part = e.slice(x, [index if d == dim else 0 for d in range(len(x.shape))],
                   [index + 1 if d == dim else n for d, n in enumerate(x.shape)])
    return e.reshape(part, [n for d, n in enumerate(x.shape) if d != dim])


@handles("select")
def _select(e: Emitter, out: Type, x: Value, dim: int, index: int) -> Value:
    return taken(e, x, axis_of(dim, x), index)


def _parts(e: Emitter, x: Value, dim: int, sizes: Sequence[Any]) -> list[Value]:
    at, made = 0, []
    for size in sizes:
        made.append(e.slice(x, [at if d == dim else 0 for d in range(len(x.shape))],
                            [at + size if d == dim else n for d, n in enumerate(x.shape)]))
        at += size
    return made


@handles("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_split_with_sizes")
def _split(e: Emitter, out: list[Type], x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    dim = axis_of(dim, x)
    return _parts(e, x, dim, [t.shape[dim] for t in out])


@handles("unbind")
def _unbind(e: Emitter, out: list[Type], x: Value, dim: int = 0) -> list[Value]:
    return [taken(e, x, axis_of(dim, x), i) for i in range(len(out))]


@handles("cat")
def _cat(e: Emitter, out: Type, parts: Sequence[Value], dim: int = 0) -> Value:
    whole = [e.convert(p, out.dtype) for p in parts if p.shape != (0,) or len(out.shape) == 1]
    return e.concatenate(whole, dim % len(out.shape)) if whole else e.constant(0, out.dtype, out.shape)


@handles("stack")
def _stack(e: Emitter, out: Type, parts: Sequence[Value], dim: int = 0) -> Value:
    dim %= len(out.shape)
    shape = [1 if d == dim else n for d, n in enumerate(out.shape)]
    return e.concatenate([e.reshape(e.convert(p, out.dtype), shape) for p in parts], dim)


@handles("flip")
def _flip(e: Emitter, out: Type, x: Value, dims: Sequence[int]) -> Value:
    dims = sorted({axis_of(d, x) for d in dims}) if x.shape else []
    return e.emit("reverse", (x,), f"dims = {dims}", x.dtype, x.shape) if dims else x


@handles("roll")
def _roll(e: Emitter, out: Type, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    made = x if dims else e.reshape(x, [_count(x.shape)])
    for shift, dim in zip(shifts, dims or [0]):
        dim = axis_of(dim, made)
        n = made.shape[dim] if made.shape else 0
        if n:
            first, second = _parts(e, made, dim, [n - shift % n, shift % n])
            made = e.concatenate([second, first], dim)
    return e.reshape(made, x.shape)


def _count(shape: Sequence[Any]) -> Any:
    count = 1
    for n in shape:
        count *= n
    return count


@handles("repeat")
def _repeat(e: Emitter, out: Type, x: Value, repeats: Sequence[int]) -> Value:
    """Each dimension behind one of its repetitions."""
    shape = [1] * (len(repeats) - len(x.shape)) + list(x.shape)
    if all(r == 1 for r in repeats):
        return e.reshape(x, out.shape)
    once = [(r, n) for r, n in zip(repeats, shape)]
    spread = [v for r, n in once for v in ([r, n] if r != 1 else [n])]
    places, at = [], 0
    for r, _ in once:
        at += r != 1
        places.append(at)
        at += 1
    return e.reshape(e.broadcast(e.reshape(x, shape), spread, places), out.shape)


@handles("constant_pad_nd")
def _constant_pad_nd(e: Emitter, out: Type, x: Value, pads: Sequence[int], value: float = 0) -> Value:
    rank = len(x.shape)
    low, high = [0] * rank, [0] * rank
    for k in range(len(pads) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pads[2 * k], pads[2 * k + 1]
    return e.pad(x, value, low, high)


def _among(e: Emitter, x: Value, source: Value, dim: int, first: Any, step: int) -> Value:
    """x with the source in the place of what lies along a symbolic dimension from `first` on."""
    if step != 1:
        raise Unsupported("a slice with steps of a symbolic dimension")
    behind = plain(x.shape[dim] - first - source.shape[dim])
    parts = [(0, first), None, (x.shape[dim] - behind, behind)]
    return e.concatenate([source if part is None else e.crop(x, dim, *part) for part in parts
                          if part is None or part[1] != 0], dim)


@handles("slice_scatter")
def slice_scatter(e: Emitter, out: Type, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None,
                   step: int = 1) -> Value:
    dim = axis_of(dim, x)
    count = source.shape[dim] if isinstance(source, Value) and source.shape else None
    first, last = bounds(start, end, x.shape[dim], count)
    if not isinstance(x.shape[dim], int):
        return _among(e, x, operand(e, source, x.dtype, source.shape), dim, first, step)
    source = operand(e, source, x.dtype, [max(0, -(-(last - first) // step)) if d == dim else n
                                          for d, n in enumerate(x.shape)])
    count = source.shape[dim]
    if count == 0:
        return x
    behind = x.shape[dim] - (first + (count - 1) * step + 1)

    def placed(value: Value) -> Value:
        rank = range(len(x.shape))
        return e.pad(value, 0, [first if d == dim else 0 for d in rank], [behind if d == dim else 0 for d in rank],
                     [step - 1 if d == dim else 0 for d in rank])

    return e.select(placed(e.constant(True, "bool", source.shape)), placed(source), x)


@handles("select_scatter")
def _select_scatter(e: Emitter, out: Type, x: Value, source: Value, dim: int, index: int) -> Value:
    dim = axis_of(dim, x)
    index = plain(index + x.shape[dim]) if index < 0 else index
    source = e.reshape(operand(e, source, x.dtype, [n for d, n in enumerate(x.shape) if d != dim]),
                       [1 if d == dim else n for d, n in enumerate(x.shape)])
    return slice_scatter(e, out, x, source, dim, index, index + 1)


def triangle(e: Emitter, shape: Sequence[Any], diagonal: int) -> Value:
    """True on and below a diagonal of the last two dimensions. Positions are i32 where they fit: a kernel of attention
    takes no mask that is made of lanes of 8 bytes."""
    wide = any(isinstance(n, int) and n > 1 << 30 for n in shape[-2:])
    positions = "i64" if wide else "i32"
    diagonal = diagonal if wide else max(min(diagonal, 1 << 30), -1 << 30)
    row, column = e.iota(0, positions, shape[-2:]), e.iota(1, positions, shape[-2:])
    return e.broadcast(e.compare(column, "le", e.with_number("add", row, diagonal)), shape)


@handles("tril")
def _tril(e: Emitter, out: Type, x: Value, diagonal: int = 0) -> Value:
    return e.select(triangle(e, x.shape, diagonal), x, 0)


@handles("triu")
def _triu(e: Emitter, out: Type, x: Value, diagonal: int = 0) -> Value:
    return e.select(triangle(e, x.shape, diagonal - 1), e.constant(0, x.dtype, x.shape), x)


# ---- of nothing ----
@handles("full", "full_like", "new_full")
def _full(e: Emitter, out: Type, _: Any, value: Operand, *rest: Any, **options: Any) -> Value:
    return operand(e, value, out.dtype, out.shape)


@handles("fill")
def _fill(e: Emitter, out: Type, x: Value, value: Operand) -> Value:
    return operand(e, value, out.dtype, out.shape)


@handles("scalar_tensor")
def _scalar_tensor(e: Emitter, out: Type, value: Operand, **options: Any) -> Value:
    return operand(e, value, out.dtype, out.shape)


@handles("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided",
         "empty_permuted", "new_empty_strided")
def _zeros(e: Emitter, out: Type, *rest: Any, **options: Any) -> Value:
    """Also what nobody reads before it is written."""
    return e.constant(0, out.dtype, out.shape)


@handles("ones", "ones_like")
def _ones(e: Emitter, out: Type, *rest: Any, **options: Any) -> Value:
    return e.constant(1, out.dtype, out.shape)


@handles("arange", "iota")
def _arange(e: Emitter, out: Type, *numbers: Any, **options: Any) -> Value:
    start, step = options.get("start", 0), options.get("step", 1)
    if "start" not in options and len(numbers) >= 2:
        start, step = numbers[0], numbers[2] if len(numbers) > 2 else 1
    dtype = wide(out.dtype)
    if dtype == "bool":
        raise Unsupported("a range of bools")
    made = e.iota(0, dtype, out.shape)
    made = made if step == 1 else e.with_number("multiply", made, step)
    made = made if start == 0 else e.with_number("add", made, start)
    return e.convert(made, out.dtype)
