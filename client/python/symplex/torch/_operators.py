"""Operators of our own for PyTorch: products, attention and convolutions whose results do not depend on the batch.

Each is a `torch.library.custom_op` with a fake form (so torch.compile, with any back end, and torch.export see through
it) and reverse mode, all of which are programs of the same table as a compiled graph. A program is made for each set of
types and shapes, and kept."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch
from torch import nn

from symplex._errors import Unimplemented
from symplex.torch._emit import Emitter, Value, type_of
from symplex.torch._lower import Input, Output, Program, Result
from symplex.torch._run import Entry, compiled
from symplex.torch._table import HANDLERS, Type

# Rewrites that keep every bit: which others are worth their cost depends on the batch.
_OPTIONS: dict[str, Any] = {"exact": True}
_entries: dict[Any, Entry] = {}
_ENTRIES_MAX = 4096


def _run(key: Any, body: Callable[[Emitter, list[Value]], list[Value]], args: Sequence[torch.Tensor]) -> list[Any]:
    """The results of a program over these arguments; `key` names the body and what else it is made of."""
    whole = key, tuple((x.dtype, tuple(x.shape)) for x in args)
    entry = _entries.get(whole)
    if entry is None:
        elsewhere = [x.device for x in args if x.device.type != "cpu"]
        if elsewhere:
            raise Unimplemented(f"symplex.torch: an operator with tensors on {elsewhere[0]}, it runs on the processor")
        e = Emitter()
        inputs = [e.parameter(f"x{i}", type_of(x.dtype), tuple(x.shape)) for i, x in enumerate(args)]
        results = body(e, inputs)
        dtypes = {type_of(x.dtype): x.dtype for x in args}
        outputs = [Output(list(r.shape), _strides(r.shape), dtypes[r.dtype], None, False) for r in results]
        program = Program(e.program(results), [Input(i, None) for i in range(len(args))], outputs,
                          [Result("output", i, []) for i in range(len(results))])
        if len(_entries) >= _ENTRIES_MAX:
            _entries.pop(next(iter(_entries)))
        entry = _entries[whole] = Entry(program, compiled(program.text, _OPTIONS), False)
    return entry.call([x.detach() for x in args])


def _strides(shape: Sequence[int]) -> list[int]:
    made = [1]
    for n in reversed(shape[1:]):
        made.insert(0, made[0] * max(n, 1))
    return made[:len(shape)]


def _type(x: torch.Tensor | Value) -> Type:
    return Type(x.dtype if isinstance(x, Value) else type_of(x.dtype), tuple(x.shape))


# ---- products ----
def _product(e: Emitter, x: Value, w: Value, b: Value | None) -> Value:
    """x w^T + b, over the last dimension of x; rounded once."""
    wide_x, wide_w = (e.convert(v, "f32" if v.dtype in ("bf16", "f16") else v.dtype) for v in (x, w))
    made = e.dot(wide_x, wide_w, [len(x.shape) - 1], [1])
    if b is not None:
        made = e.like("add", made, e.broadcast(e.convert(b, made.dtype), made.shape))
    return e.convert(made, x.dtype)


@torch.library.custom_op("symplex::linear", mutates_args=())
def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    args = (x, weight) if bias is None else (x, weight, bias)
    return _run("linear", lambda e, v: [_product(e, v[0], v[1], v[2] if len(v) > 2 else None)], args)[0]


@_linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if x.shape[-1] != weight.shape[1] or x.dtype != weight.dtype or (bias is not None and bias.dtype != x.dtype):
        raise RuntimeError(f"symplex::linear: {x.dtype}{list(x.shape)} by {weight.dtype}{list(weight.shape)}")
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@torch.library.custom_op("symplex::linear_backward", mutates_args=())
def _linear_backward(slope: torch.Tensor, x: torch.Tensor,
                     weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def body(e: Emitter, v: list[Value]) -> list[Value]:
        slope, x, w = (e.convert(k, "f32" if k.dtype in ("bf16", "f16") else k.dtype) for k in v)
        rows = math.prod(x.shape[:-1])
        slope = e.reshape(slope, (rows, w.shape[0]))
        of_x = e.reshape(e.dot(slope, w, [1], [0]), x.shape)
        of_w = e.dot(slope, e.reshape(x, (rows, w.shape[1])), [0], [0])
        return [e.convert(k, v[0].dtype) for k in (of_x, of_w, e.reduce(slope, [0], "add"))]

    return tuple(_run("linear_backward", body, (slope, x, weight)))  # type: ignore[return-value]


@_linear_backward.register_fake
def _(slope: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[:1])


def _linear_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _linear_slopes(ctx: Any, slope: torch.Tensor) -> Any:
    x, weight = ctx.saved_tensors
    of_x, of_weight, of_bias = _linear_backward(slope, x, weight)
    return of_x, of_weight, of_bias if ctx.has_bias else None


_linear.register_autograd(_linear_slopes, setup_context=_linear_context)


class Linear(nn.Linear):
    """nn.Linear with a result whose rows have the same bits whatever the batch, forward and for the slope of its
    argument; that of the weight is a sum over the batch, in a fixed order. `Linear.from_torch(layer)` takes over the
    parameters of a layer, not copies of them."""

    @classmethod
    def from_torch(cls, layer: nn.Linear) -> "Linear":
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"layer: an nn.Linear is needed, not {type(layer).__name__}")
        made = cls(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        made.weight, made.bias = layer.weight, layer.bias
        made.train(layer.training)
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _linear(input, self.weight, self.bias)


# ---- attention ----
def _handler(name: str) -> Callable[..., Any]:
    return HANDLERS[name]


def _check_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Of tensors and of those that only have a shape; PyTorch says it of heads in these words."""
    if min(q.dim(), k.dim(), v.dim()) >= 3 and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
        if any(x.shape[-3] == 0 or q.shape[-3] % x.shape[-3] for x in (k, v)):
            raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
    elif q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        raise RuntimeError(f"symplex::attention: queries {list(q.shape)}, keys {list(k.shape)} and values "
                           f"{list(v.shape)} differ before the last three dimensions")


@torch.library.custom_op("symplex::attention", mutates_args=())
def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool,
               scale: float) -> torch.Tensor:
    _check_attention(q, k, v)

    def body(e: Emitter, x: list[Value]) -> list[Value]:
        out = [Type(x[0].dtype, (*x[0].shape[:-1], x[2].shape[-1]))]
        return _handler("_scaled_dot_product_flash_attention_for_cpu")(
            e, out, *x[:3], 0.0, causal, attn_mask=x[3] if len(x) > 3 else None, scale=scale, wanted=[True, False])[:1]

    args = (q, k, v) if mask is None else (q, k, v, mask)
    return _run(("attention", causal, scale), body, args)[0]


@_attention.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool,
      scale: float) -> torch.Tensor:
    _check_attention(q, k, v)
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.custom_op("symplex::attention_backward", mutates_args=())
def _attention_backward(slope: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                        mask: torch.Tensor | None, causal: bool,
                        scale: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The forward form once more, with the logarithms of its sums, then its slopes."""
    def body(e: Emitter, x: list[Value]) -> list[Value]:
        slope, q, k, v = x[:4]
        mask = x[4] if len(x) > 4 else None
        wide = "f32" if q.dtype in ("bf16", "f16") else q.dtype
        out = [Type(wide, (*q.shape[:-1], v.shape[-1])), Type(wide, q.shape[:-1])]
        made, sums = _handler("_scaled_dot_product_flash_attention_for_cpu")(
            e, out, q, k, v, 0.0, causal, attn_mask=mask, scale=scale, wanted=[True, True])
        return _handler("_scaled_dot_product_flash_attention_for_cpu_backward")(
            e, [_type(q), _type(k), _type(v)], slope, q, k, v, made, sums, 0.0, causal, attn_mask=mask, scale=scale)

    args = (slope, q, k, v) if mask is None else (slope, q, k, v, mask)
    return tuple(_run(("attention_backward", causal, scale), body, args))  # type: ignore[return-value]


@_attention_backward.register_fake
def _(slope: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool,
      scale: float) -> Any:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _attention_context(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask)


def _attention_slopes(ctx: Any, slope: torch.Tensor) -> Any:
    q, k, v, mask = ctx.saved_tensors
    return *_attention_backward(slope, q, k, v, mask, ctx.causal, ctx.scale), None, None, None


_attention.register_autograd(_attention_slopes, setup_context=_attention_context)


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                                 attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
    """As torch.nn.functional has it, of tensors with the same dimensions before the last two (with `enable_gqa` fewer
    heads of keys and values than of queries). A mask has no slope, and there is no dropout."""
    if dropout_p:
        raise NotImplementedError("symplex.torch.scaled_dot_product_attention: dropout_p is not 0")
    if attn_mask is not None and attn_mask.requires_grad:
        raise NotImplementedError("symplex.torch.scaled_dot_product_attention: a mask that requires a slope")
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
        attn_mask = attn_mask.to(query.dtype)
    if not enable_gqa and (query.shape[:-2] != key.shape[:-2] or key.shape[:-2] != value.shape[:-2]):
        raise ValueError(f"symplex.torch.scaled_dot_product_attention: queries {list(query.shape)}, keys "
                         f"{list(key.shape)} and values {list(value.shape)} differ before the last two dimensions")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    return _attention(query, key, value, attn_mask, is_causal, scale)


# ---- convolutions ----
def _pairs(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else [int(n) for n in value]


@torch.library.custom_op("symplex::conv2d", mutates_args=())
def _conv2d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
            padding: Sequence[int], dilation: Sequence[int], groups: int) -> torch.Tensor:
    shape = _places(x, weight, stride, padding, dilation)

    def body(e: Emitter, v: list[Value]) -> list[Value]:
        return [_handler("convolution")(e, Type(v[0].dtype, shape), v[0], v[1], v[2] if len(v) > 2 else None, stride,
                                        padding, dilation, False, [0, 0], groups)]

    args = (x, weight) if bias is None else (x, weight, bias)
    return _run(("conv2d", *stride, *padding, *dilation, groups), body, args)[0]


def _places(x: Any, weight: Any, stride: Sequence[int], padding: Sequence[int],
            dilation: Sequence[int]) -> tuple[int, ...]:
    return (x.shape[0], weight.shape[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(
        x.shape[2:], padding, dilation, weight.shape[2:], stride)))


@_conv2d.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
      dilation: Sequence[int], groups: int) -> torch.Tensor:
    return x.new_empty(_places(x, weight, stride, padding, dilation))


@torch.library.custom_op("symplex::conv2d_backward", mutates_args=())
def _conv2d_backward(slope: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int],
                     padding: Sequence[int], dilation: Sequence[int],
                     groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def body(e: Emitter, v: list[Value]) -> list[Value]:
        out = [_type(v[1]), _type(v[2]), Type(v[2].dtype, v[2].shape[:1])]
        return _handler("convolution_backward")(e, out, *v, None, stride, padding, dilation, False, [0, 0], groups,
                                                [True, True, True])

    return tuple(_run(("conv2d_backward", *stride, *padding, *dilation, groups), body,  # type: ignore[return-value]
                      (slope, x, weight)))


@_conv2d_backward.register_fake
def _(slope: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
      dilation: Sequence[int], groups: int) -> Any:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[:1])


def _conv2d_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, *ctx.numbers = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _conv2d_slopes(ctx: Any, slope: torch.Tensor) -> Any:
    of_x, of_weight, of_bias = _conv2d_backward(slope, *ctx.saved_tensors, *ctx.numbers)
    return of_x, of_weight, of_bias if ctx.has_bias else None, None, None, None, None


_conv2d.register_autograd(_conv2d_slopes, setup_context=_conv2d_context)


def conv2d(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> torch.Tensor:
    """As torch.nn.functional has it, with numbers or pairs for stride, padding and dilation; of [n, c, h, w]."""
    if input.dim() != 4 or weight.dim() != 4 or weight.shape[1] * groups != input.shape[1]:
        raise ValueError(f"symplex.torch.conv2d: {list(input.shape)} by {list(weight.shape)} in {groups} groups")
    if isinstance(padding, str):
        raise NotImplementedError(f"symplex.torch.conv2d: padding {padding!r}; numbers are needed")
    return _conv2d(input, weight, bias, _pairs(stride), _pairs(padding), _pairs(dilation), groups)
