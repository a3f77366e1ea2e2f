"""symplex - tensor programs compiled once and called with arrays; the Python side of symplexd.

    module = symplex.compile_onnx("mlp.onnx", dims={"batch": (1, 64)})
    y = module(x)                        # NumPy, DLPack and buffers in; new NumPy arrays out
    module = symplex.load("mlp.sxm")     # a module file

`python -m symplex doctor` says what works here.
"""
from symplex._compile import compile, compile_bytes, compile_file, compile_onnx, optimize
from symplex._doctor import doctor
from symplex._errors import (Busy, Cancelled, CompileError, CorruptModule, Denied, DTypeError, Error, InputError,
                             LayoutError, LimitExceeded, Mismatch, NoDaemon, NotFound, OutOfMemory, ShapeError,
                             SystemFailure, TimedOut, Unimplemented, UsageError)
from symplex._module import Module, Tensor, load
from symplex._c import version as __version__

__all__ = ["Busy", "Cancelled", "CompileError", "CorruptModule", "DTypeError", "Denied", "Error", "InputError",
           "LayoutError", "LimitExceeded", "Mismatch", "Module", "NoDaemon", "NotFound", "OutOfMemory", "ShapeError",
           "SystemFailure", "Tensor", "TimedOut", "Unimplemented", "UsageError", "compile", "compile_bytes",
           "compile_file", "compile_onnx", "doctor", "load", "optimize"]
