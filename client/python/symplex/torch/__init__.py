"""symplex.torch - models of PyTorch compiled by symplex.

    import symplex.torch                 # not needed where the wheel is installed
    model = torch.compile(model, backend="symplex")
"""
from __future__ import annotations

import torch._dynamo

from symplex.torch._backend import backend

__all__ = ["backend"]

torch._dynamo.register_backend(backend, name="symplex")
