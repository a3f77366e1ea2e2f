"""What other packages find by the wheel's entry points. Nothing is imported before it is used."""
from __future__ import annotations

from typing import Any


def torch_backend(*args: Any, **keywords: Any) -> Any:
    """torch.compile(backend="symplex")."""
    from symplex.torch import backend
    return backend(*args, **keywords)
