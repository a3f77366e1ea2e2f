"""symplex - tensor programs compiled once and called with arrays; the Python side of symplexd.

    module = symplex.compile_onnx("mlp.onnx", dims={"batch": (1, 64)})
    y = module(x)                        # NumPy, DLPack and buffers in; new NumPy arrays out
    module = symplex.load("mlp.sxm")     # a module file
    f = symplex.jit(function)            # a function over NumPy arrays, traced and compiled at its first call
    g = symplex.value_and_grad(loss)     # with the gradient of its first argument; vmap: for many examples
    symplex.cond, while_loop, scan       # control flow inside of such functions
    print(symplex.explain(f))            # what was compiled, why, and what it took
    f = symplex.jax.jit(jax_function)    # instead of jax.jit
    f = torch.compile(model, backend="symplex")          # with the wheel installed, or after import symplex.torch
    with symplex.session(job="run-17", rank=0, world=8) as session: ...     # the same modules on all ranks
    symplex.caches.install()             # the caches of PyTorch, Triton and JAX at the daemon

`python -m symplex doctor` says what works here.
"""
import importlib
from typing import TYPE_CHECKING, Any

from symplex._compile import compile, compile_bytes, compile_file, compile_onnx, optimize
from symplex._device import DeviceArray
from symplex._doctor import doctor
from symplex._errors import (Busy, Cancelled, CompileError, CorruptModule, Denied, DTypeError, Error, InputError,
                             LayoutError, LimitExceeded, Mismatch, MissingFile, NoDaemon, NotFound, OutOfMemory,
                             ShapeError, SystemFailure, TimedOut, Unimplemented, UsageError)
from symplex._module import Module, Tensor, load
from symplex._session import Session, session
from symplex._c import version as __version__

if TYPE_CHECKING:
    from symplex import random
    from symplex._trace.control import cond, scan, while_loop
    from symplex._trace.explain import explain
    from symplex._jit import Function, grad, jit, value_and_grad, vmap
    from symplex._trace.size import TraceError, axis

_TRACING = {"Function": "_jit", "TraceError": "_trace.size", "axis": "_trace.size", "cond": "_trace.control",
            "explain": "_trace.explain", "grad": "_jit", "jit": "_jit", "scan": "_trace.control",
            "value_and_grad": "_jit", "vmap": "_jit", "while_loop": "_trace.control"}

__all__ = ["Busy", "Cancelled", "CompileError", "CorruptModule", "DTypeError", "Denied", "DeviceArray", "Error",
           "Function", "InputError", "LayoutError", "LimitExceeded", "Mismatch", "MissingFile", "Module", "NoDaemon",
           "NotFound", "OutOfMemory", "Session", "ShapeError", "SystemFailure", "Tensor", "TimedOut", "TraceError",
           "Unimplemented", "UsageError", "axis", "compile", "compile_bytes", "compile_file", "compile_onnx", "cond",
           "doctor", "explain", "grad", "jit", "load", "optimize", "random", "scan", "session", "value_and_grad",
           "vmap", "while_loop"]


def __getattr__(name: str) -> Any:
    """Tracing needs NumPy, symplex.jax JAX, and symplex.torch PyTorch; the rest of the package does not."""
    if name in _TRACING:
        return getattr(importlib.import_module(f"symplex.{_TRACING[name]}"), name)
    if name in ("caches", "jax", "numpy", "random", "torch"):
        return importlib.import_module(f"symplex.{name}")
    raise AttributeError(f"module 'symplex' has no attribute '{name}'")
