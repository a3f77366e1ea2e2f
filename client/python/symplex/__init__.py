"""symplex - tensor programs compiled once and called with arrays; the Python side of symplexd.

    module = symplex.compile_onnx("mlp.onnx", dims={"batch": (1, 64)})
    y = module(x)                        # NumPy, DLPack and buffers in; new NumPy arrays out
    module = symplex.load("mlp.sxm")     # a module file
    f = symplex.jit(function)            # a function over NumPy arrays, traced and compiled at its first call
    g = symplex.value_and_grad(loss)     # with the gradient of its first argument
    f = symplex.jax.jit(jax_function)    # instead of jax.jit

`python -m symplex doctor` says what works here.
"""
import importlib
from typing import TYPE_CHECKING, Any

from symplex._compile import compile, compile_bytes, compile_file, compile_onnx, optimize
from symplex._doctor import doctor
from symplex._errors import (Busy, Cancelled, CompileError, CorruptModule, Denied, DTypeError, Error, InputError,
                             LayoutError, LimitExceeded, Mismatch, NoDaemon, NotFound, OutOfMemory, ShapeError,
                             SystemFailure, TimedOut, Unimplemented, UsageError)
from symplex._module import Module, Tensor, load
from symplex._c import version as __version__

if TYPE_CHECKING:
    from symplex._jit import Function, TraceError, grad, jit, value_and_grad

__all__ = ["Busy", "Cancelled", "CompileError", "CorruptModule", "DTypeError", "Denied", "Error", "Function",
           "InputError", "LayoutError", "LimitExceeded", "Mismatch", "Module", "NoDaemon", "NotFound",
           "OutOfMemory", "ShapeError", "SystemFailure", "Tensor", "TimedOut", "TraceError",
           "Unimplemented", "UsageError", "compile", "compile_bytes", "compile_file", "compile_onnx",
           "doctor", "grad", "jit", "load", "optimize", "value_and_grad"]


def __getattr__(name: str) -> Any:
    """Tracing needs NumPy, and symplex.jax JAX; the rest of the package does not."""
    if name in ("Function", "TraceError", "grad", "jit", "value_and_grad"):
        from symplex import _jit
        return getattr(_jit, name)
    if name == "jax":
        return importlib.import_module("symplex.jax")
    raise AttributeError(f"module 'symplex' has no attribute '{name}'")
