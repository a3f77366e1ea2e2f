"""JAX's compilation cache, as JAX lets others implement it (jax/_src/compilation_cache_interface.py)."""
from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import jax
from jax._src import compilation_cache, distributed
from jax._src.compilation_cache_interface import CacheInterface

from symplex.caches import Keeper

CACHE = "jax"
_COMPILED = "/jax/core/compile/backend_compile_duration"  # the end of each look-up with its compilation


class _Cache(CacheInterface):  # type: ignore[misc]
    def __init__(self, keeper: Keeper, path: str) -> None:
        self._keeper = keeper
        self._path = pathlib.Path(path)

    def get(self, key: str) -> bytes | None:
        # of the processes of one job, JAX lets the first one alone write
        writes = distributed.global_state.process_id == 0
        return self._keeper.get(CACHE, key, claim=writes, wait=True)

    def put(self, key: str, value: bytes) -> None:
        self._keeper.put(CACHE, key, value)


def install(keeper: Keeper) -> str:
    """JAX keeps compiled programs by way of this cache; also short ones, which it would not write to files."""
    def end(event: str, duration: float, **_: Any) -> None:
        if event == _COMPILED:  # what was compiled and not written, for whatever reason, is not waited for
            keeper.release(CACHE)

    def get_file_cache(path: str) -> tuple[CacheInterface, str]:
        cache: CacheInterface = _Cache(keeper, path)
        if jax.config.jax_compilation_cache_check_contents:
            cache = compilation_cache.VerificationCache(cache)
        return cache, path

    assert callable(compilation_cache.get_file_cache)
    if not jax.config.jax_compilation_cache_dir:  # JAX asks for a cache only where there is a path
        jax.config.update("jax_compilation_cache_dir", tempfile.gettempdir())
        # XLA would write files of its own there
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache.get_file_cache = get_file_cache
    compilation_cache.reset_cache()
    jax.monitoring.register_event_duration_secs_listener(end)
    return "compiled programs"
