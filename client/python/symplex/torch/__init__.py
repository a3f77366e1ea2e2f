"""symplex.torch - models of PyTorch compiled by symplex.

    import symplex.torch                 # not needed where the wheel is installed
    model = torch.compile(model, backend="symplex")
    layer = symplex.torch.Linear.from_torch(layer)       # results that do not depend on the batch, with any back end
    y = symplex.torch.scaled_dot_product_attention(q, k, v)
    y = symplex.torch.conv2d(x, w)
    run = symplex.torch.from_exported("model.pt2")           # a program of torch.export
"""
from __future__ import annotations

import torch._dynamo

from symplex.torch._backend import backend
from symplex.torch._entries import warm_starts
from symplex.torch._exported import Exported, from_exported
from symplex.torch._operators import Linear, conv2d, scaled_dot_product_attention

__all__ = ["Exported", "Linear", "backend", "conv2d", "from_exported", "scaled_dot_product_attention", "warm_starts"]

try:
    torch._dynamo.register_backend(backend, name="symplex")
except AssertionError:  # the wheel's entry point did it
    pass
