"""What the graph that Dynamo traced is, as a digest: equal digests mean that AOT autograd makes the same of them."""
from __future__ import annotations

import functools
import hashlib
import pathlib
import platform
import struct
import sys
from typing import Any, Iterator, Sequence

import torch
import torch._functorch.config
from torch import fx
from torch._dynamo import compiled_autograd
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, check_node_safe
from torch.fx.node import _get_qualified_name

from symplex import _c
from symplex.torch._emit import Undescribed
from symplex.torch._higher import CARRIERS

_FORMAT = 3
_ATTRIBUTES = (bool, int, str, type(None))
_TORCHS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_NAMES = ("torch.", "_operator.", "math.", "builtins.")  # of functions whose meaning is that of versions
_NAMESPACES = ("aten", "prims", "symplex")
# Options of the back end that change neither a program nor what runs of it.
_ASIDE = ("message", "progress", "daemon", "socket", "threads", "refresh")


@functools.cache
def _here() -> tuple[str, ...]:
    """Versions, our own sources, the compiler's, and the processor, which decides about the target."""
    sources = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read().split("\n\n", 1)[0].splitlines()
    except OSError:
        lines = []
    processor = "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return (str(_FORMAT), str(torch.__version__), str(torch.version.git_version), sys.version, _c.toolchain,
            sources.hexdigest(), platform.machine(), processor)


def _state() -> Iterator[Any]:
    """What else of PyTorch decides about what is traced. Modes and hooks are code of the user."""
    if (torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
            or torch._C._functorch.peek_interpreter_stack() is not None):
        raise Undescribed("a mode of PyTorch's dispatch")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Undescribed("hooks of saved tensors")
    if compiled_autograd.compiled_autograd_enabled or torch._dynamo.config.caching_precompile:
        raise Undescribed("compiled autograd, or Dynamo's own store")
    config = torch._functorch.config
    if config.joint_custom_pass is not None:
        raise Undescribed("a pass over the joint graph")
    yield from (config.activation_memory_budget_runtime_estimator, config.activation_memory_budget_solver,
                config.get_hash().hex())
    yield from (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
                torch.get_default_device(), torch.is_autocast_cache_enabled())
    for device in torch._C._autocast_supported_devices():
        yield from (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
    cuda = torch.backends.cuda
    yield from (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
                torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, cuda.flash_sdp_enabled(),
                cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled(),
                torch.utils.deterministic.fill_uninitialized_memory)


def _is_argument(node: fx.Node) -> bool:
    return node.op not in ("call_function", "call_method", "call_module", "get_attr", "output")


def _extent(value: Any) -> Any:
    """A number, or a symbolic one by its expression: Dynamo names a symbol by where it is read from."""
    return value if type(value) is int else ("symbolic", str(value.node.expr))


def _tensor(x: Any, fake: Any) -> Iterator[Any]:
    """A tensor without its elements; `fake` has symbols in place of extents that may differ from call to call."""
    if x.layout != torch.strided or x.device.type != "cpu" or x.is_quantized:
        raise Undescribed(f"a tensor of {x.layout} on {x.device}")
    yield from (x.dtype, tuple(map(_extent, fake.shape)), tuple(map(_extent, fake.stride())),
                _extent(fake.storage_offset()), x.requires_grad, x.is_leaf, x._is_view(), x.is_conj(), x.is_neg(),
                x.is_inference())


def _inputs(arguments: Sequence[fx.Node], given: Sequence[Any]) -> Iterator[Any]:
    """Arguments, and which of them lie in the same memory."""
    if len(arguments) != len(given):
        raise Undescribed("arguments that are not those of the graph")
    storages: dict[int, int] = {}
    symbols = symbols_of(given)
    for node, x in zip(arguments, given):
        fake = node.meta.get("example_value")
        if isinstance(x, torch.SymInt) and isinstance(fake, torch.SymInt):
            yield _extent(x)
            continue
        if not isinstance(x, torch.Tensor) or not isinstance(fake, torch.Tensor):
            raise Undescribed(f"an argument that is a {type(x).__name__}")
        if type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise Undescribed(f"an argument of class {type(x).__name__}")
        extents = [n for n in (*fake.shape, *fake.stride(), fake.storage_offset()) if type(n) is not int]
        plain = not extents
        if not all(n.node.expr.free_symbols <= symbols.keys() for n in extents):
            raise Undescribed("an extent that is no argument")
        storage = x.untyped_storage()
        same = storages.setdefault(storage._cdata, len(storages))
        yield from _tensor(x, x if plain else fake)
        yield from (isinstance(x, torch.nn.Parameter), same,
                    _extent((storage if plain else fake.untyped_storage()).nbytes()),
                    node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def symbols_of(given: Sequence[Any]) -> dict[Any, int]:
    """The symbols that a graph is called with, and what they are in the example."""
    found = {}
    for x in given:
        if isinstance(x, torch.SymInt):
            if not x.node.expr.is_symbol or x.node.hint is None:
                raise Undescribed(f"a symbolic argument {x.node.expr}")
            found[x.node.expr] = int(x.node.hint)
    return found


def _known(environment: Any) -> Iterator[Any]:
    """What is known of symbols: AOT autograd decides by it without a further guard."""
    if environment is None or environment.deferred_runtime_asserts:
        raise Undescribed("assertions about elements")
    yield sorted(f"{s} in {r.lower} {r.upper}" for s, r in environment.var_to_range.items())
    yield sorted(f"{s} is {v}" for s, v in environment.replacements.items())
    yield [str(guard.expr) for guard in environment.guards]


def _name(node: fx.Node) -> str:
    """Of what a node calls."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = str(target)
        if name.split(".")[0] not in _NAMESPACES:
            raise Undescribed(f"{name}, an operator of neither PyTorch nor symplex")
        return name
    try:
        name = _get_qualified_name(target)
    except (RuntimeError, AttributeError):
        raise Undescribed(f"{target}, a function without a name") from None
    if isinstance(target, torch._ops.HigherOrderOperator) or not name.startswith(_NAMES):
        raise Undescribed(name)
    return name


class _Writer:
    """Everything with its type and length, so that different things are different bytes."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.place: dict[fx.Node, int] = {}

    def text(self, kind: str, value: str) -> None:
        self.digest.update(f"{kind}{len(value.encode())}:{value}".encode())

    def write(self, value: Any) -> None:
        if isinstance(value, fx.Node):
            self.text("node", str(self.place[value]))
        elif isinstance(value, list) or type(value) in (tuple, torch.Size):
            self.text("list" if isinstance(value, list) else "tuple", str(len(value)))
            for v in value:
                self.write(v)
        elif isinstance(value, dict):
            self.text("dict", str(len(value)))
            for k, v in value.items():
                self.write(k)
                self.write(v)
        elif isinstance(value, slice):
            self.text("slice", "")
            for v in (value.start, value.stop, value.step):
                self.write(v)
        elif type(value) is float:
            self.text("float", struct.pack("<d", value).hex())
        elif type(value) in _ATTRIBUTES or isinstance(value, _TORCHS):
            self.text(type(value).__name__, str(value))
        elif value is Ellipsis:
            self.text("ellipsis", "")
        else:
            raise Undescribed(f"a constant of class {type(value).__name__}")

    def graph(self, module: fx.GraphModule) -> None:
        for i, node in enumerate(module.graph.nodes):
            self.place[node] = i
            self.text(node.op, "")
            if node.meta.get("custom") or node.meta.get("is_wrapped"):
                raise Undescribed(f"{node.name}, a node with annotations")
            if _is_argument(node):
                continue
            if node.op == "call_function" and node.target in CARRIERS:
                self.text("carries", node.target.__name__)
            elif node.op == "get_attr" and isinstance(part := getattr(module, str(node.target), None), fx.GraphModule):
                self.text("graph", "")
                outer, self.place = self.place, {}
                self.graph(part)
                self.place = outer
                continue
            elif node.op in ("call_function", "call_method"):
                try:
                    check_node_safe(node)
                except BypassAOTAutogradCache as error:
                    raise Undescribed(str(error).split("\n")[0]) from None
                self.text("calls", _name(node))
            elif node.op != "output":
                raise Undescribed(f"a node {node.op}")
            self.write(list(node.args))
            self.write(dict(node.kwargs))


def key_of(module: fx.GraphModule, given: Sequence[Any], options: dict[str, Any], environment: Any) -> str:
    """Of a graph that Dynamo traced, called with tensors like these; `environment` is PyTorch's ShapeEnv. Undescribed
    where it has what cannot be said."""
    writer = _Writer()
    writer.write(_here())
    writer.write(repr(sorted((k, repr(v)) for k, v in options.items() if k not in _ASIDE)))
    writer.write(list(_state()))
    writer.write(list(_inputs([n for n in module.graph.nodes if _is_argument(n)], given)))
    if symbols_of(given):
        writer.write(list(_known(environment)))
    writer.graph(module)
    return writer.digest.hexdigest()
