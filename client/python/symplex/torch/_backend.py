"""The back end of torch.compile."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from symplex._errors import UsageError
from symplex.torch._parts import Options, build

_OPTIONS = ("target", "exact", "approximate", "range_any", "refresh", "objective", "disabled_rules", "daemon", "socket",
            "threads", "message", "progress")
# Operators that stay whole: the compiler has them, or a form that is better than the decomposition.
_WHOLE = ("_scaled_dot_product_flash_attention_for_cpu", "silu", "embedding_dense_backward", "baddbmm", "addmv",
          "select_scatter", "slice_scatter", "tril", "triu", "roll", "leaky_relu", "elu", "stack")


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    table = core_aten_decompositions()
    return {k: v for k, v in table.items() if k._schema.name.split("::")[1] not in _WHOLE}


def _options(given: dict[str, Any] | None) -> Options:
    given = dict(given or {})
    strict = bool(given.pop("strict", False))
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise UsageError(f"torch.compile, options: {', '.join(unknown)}; known are strict, {', '.join(_OPTIONS)}")
    return Options(strict, given)


def backend(module: fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None,
            mode: str | None = None) -> Callable[..., Any]:
    """`torch.compile(model, backend="symplex", options={...})`: "strict", and options of symplex.compile."""
    if mode not in (None, "default"):
        raise UsageError(f"torch.compile, mode: {mode!r}, known is 'default'")
    settings = _options(options)

    def compiler(graph: fx.GraphModule, example: list[Any]) -> Callable[[list[Any]], Any]:
        return build(graph, settings)

    make = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler,
                        decompositions=decompositions(), partition_fn=min_cut_rematerialization_partition)
    return make(module, inputs)
