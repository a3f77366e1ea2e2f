"""The back end of torch.compile."""
from __future__ import annotations

import functools
from typing import Any, Callable, Mapping

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from symplex._errors import UsageError
from symplex.torch._composites import COMPOSITES
from symplex.torch._higher import with_branches, written_out
from symplex.torch._lower import arguments_of
from symplex.torch._parts import Built, Options, build
from symplex.torch._weights import mark_static, mode_of

_OPTIONS = ("target", "exact", "batch_invariant", "approximate", "range_any", "refresh", "objective", "disabled_rules",
            "daemon", "socket", "threads", "message", "progress", "freeze")
# Operators that stay whole: the compiler has them, or a form that is better than the decomposition.
_WHOLE = ("_scaled_dot_product_flash_attention_for_cpu", "silu", "embedding_dense_backward", "baddbmm", "addmv",
          "select_scatter", "slice_scatter", "tril", "triu", "roll", "leaky_relu", "elu", "stack")


def broken_up(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    return {k: v for k, v in table.items() if k._schema.name.split("::")[1] not in _WHOLE}


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    return {**broken_up(core_aten_decompositions()), **COMPOSITES}


@functools.cache
def _warm() -> Any:
    """The module for warm starts, which reads much of what is PyTorch's own; None where that is another version's."""
    try:
        from symplex.torch import _warm as module
        return module if module.is_known() else None
    except (ImportError, AttributeError):
        return None


def options_of(given: dict[str, Any] | None) -> Options:
    given = dict(given or {})
    strict, warm = bool(given.pop("strict", False)), bool(given.pop("warm", True))
    given["freeze"] = mode_of(given.get("freeze", False))
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise UsageError(f"symplex.torch, options: {', '.join(unknown)}; known are strict, warm, {', '.join(_OPTIONS)}")
    return Options(strict, warm, given)


def _of_slopes(settings: Options) -> Options:
    """Results of a backward graph begin with dimensions of weights, and a batch is none: where the batch may not
    matter, only rewrites that keep every bit are used."""
    if not settings.compiling.get("batch_invariant"):
        return settings
    return settings._replace(compiling={**settings.compiling, "batch_invariant": False, "exact": True})


def backend(module: fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None,
            mode: str | None = None) -> Callable[..., Any]:
    """`torch.compile(model, backend="symplex", options={...})`: "strict", "warm", "freeze" (`_weights`),
    and options of symplex.compile."""
    if mode not in (None, "default"):
        raise UsageError(f"torch.compile, mode: {mode!r}, known is 'default'")
    settings = options_of(options)
    written_out(module)

    def make(forward: Callable[[Built], None], backward: Callable[[Built], None]) -> Callable[..., Any]:
        """By AOT autograd; both are told what was built."""
        def compiler(told: Callable[[Built], None], infers: bool, graph: fx.GraphModule,
                     example: list[Any]) -> Callable[..., Any]:
            with_branches(graph)
            if infers:
                mark_static([n for n in arguments_of(graph.graph) if n.op != "get_attr"], settings.compiling["freeze"])
            built = build(graph, settings if told is not backward else _of_slopes(settings))
            told(built)
            return built.boxed()

        ahead, back = functools.partial(compiler, forward, False), functools.partial(compiler, backward, False)
        return aot_autograd(fw_compiler=ahead, bw_compiler=back,
                            inference_compiler=functools.partial(compiler, forward, True),
                            decompositions=decompositions(),
                            partition_fn=min_cut_rematerialization_partition)(module, inputs)

    warm = _warm() if settings.warm else None
    if warm is None:
        return make(lambda built: None, lambda built: None)
    return warm.compiled(module, inputs, settings, make)
