"""Where a graph runs: on the processor, or on the GPU on which its tensors lie."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch import fx

from symplex import _c
from symplex._device import target_of
from symplex._errors import Error
from symplex._module import Module
from symplex.torch._emit import Unsupported
from symplex.torch._graph import is_tensor

CPU = torch.device("cpu")
KINDS = ("cpu", "cuda")

empty_strided = torch.empty_strided


def current_stream(device: torch.device) -> int:
    """Where PyTorch puts work for this GPU now."""
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream


def _devices(node: fx.Node) -> Iterator[torch.device]:
    value = node.meta.get("val")
    for v in value if isinstance(value, (list, tuple)) else [value]:
        if is_tensor(v):
            yield v.device


def device_of(graph: fx.Graph) -> torch.device:
    """Where most results of operators lie, or the first of them; where there is none, the first argument."""
    count: dict[torch.device, int] = {}
    arguments: list[torch.device] = []
    for node in graph.nodes:
        if node.op == "call_function":
            for device in _devices(node):
                count[device] = count.get(device, 0) + 1
        else:
            arguments += _devices(node)
    return max(count, key=lambda d: count[d]) if count else arguments[0] if arguments else CPU


def check_device(node: fx.Node, device: torch.device) -> None:
    """An operator has all its tensors on the device of the graph: Unsupported where not."""
    for x in (node, *node.all_input_nodes):
        for other in _devices(x):
            if other != device:
                raise Unsupported(f"{node.target} (a tensor on {other} in a graph on {device})")


def options_on(device: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    """What is compiled for a GPU, and not for another machine, if no option says so: its target."""
    if device.type == "cpu":
        return {}
    if device.type not in KINDS:
        raise Unsupported(f"tensors on {device}")
    gpu = device.index or 0
    try:
        capability = _c.gpu(gpu)[1]
        earlier = [i for i in range(gpu) if _c.gpu(i)[1] >= capability]
        if earlier:
            raise Unsupported(f"tensors on {device}: a module runs on the first GPU that is enough, {earlier[0]}")
        return {"target": options.get("target") or target_of(gpu)}
    except Error as error:
        raise Unsupported(f"tensors on {device}: {error}") from None


def check_placed(module: Module | None, device: torch.device) -> None:
    """The module runs where the tensors lie; one for the processor is not asked."""
    if module is not None and device.type == "cuda" and module.info["gpu"] != (device.index or 0):
        gpu = module.info["gpu"]
        raise Unsupported(f"tensors on {device}: the module for {module.info['target']} runs on "
                          f"{f'GPU {gpu}' if gpu >= 0 else 'the processor'}")


def maker(device: torch.device) -> Callable[..., torch.Tensor]:
    """New tensors on a GPU by shape, strides and type."""
    return lambda shape, stride, dtype: empty_strided(shape, stride, dtype=dtype, device=device)


def whole(x: torch.Tensor) -> torch.Tensor:
    """A copy that lies in order from an aligned address on, as that of a slice need not be."""
    return x.clone() if x.is_contiguous() else x.contiguous()
