"""The remote caches of PyTorch's compiler (torch/_inductor/remote_cache.py), and the C++ kernels that it builds for the
processor."""
from __future__ import annotations

import functools
import hashlib
import os
import stat
from typing import Any

import torch
from torch._inductor import codecache, config, cpp_builder, remote_cache
from torch._inductor.runtime.runtime_utils import cache_dir
from torch.utils._filelock import FileLock

from symplex.caches import Keeper

# Class of PyTorch's -> name of the cache, and whether one process makes an entry while the others wait. Between the
# question and the answer of the others there runs code of the user (forward passes, collectives), so waiting for it
# could be for ever.
_CACHES = {"RemoteFxGraphCache": ("inductor.fx", True), "RemoteAOTAutogradCache": ("inductor.aot", False),
           "RemoteAutotuneCache": ("inductor.autotune", False)}
_CPP = "inductor.cpp"


class _Backend(remote_cache.RemoteCacheBackend[bytes]):
    def __init__(self, keeper: Keeper, cache: str, claim: bool) -> None:
        super().__init__()
        self._keeper, self._cache, self._claim = keeper, cache, claim

    def _get(self, key: str) -> bytes | None:
        return self._keeper.get(self._cache, key, claim=self._claim)

    def _put(self, key: str, data: bytes) -> None:
        self._keeper.put(self._cache, key, data)


# ---- C++ kernels: object files and libraries by what they are made of ----
@functools.lru_cache(None)
def _processor() -> str:
    """What -march=native means here."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read().split("\n\n", 1)[0].splitlines()
    except OSError:
        return ""
    return "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _name_of(builder: Any) -> str | None:
    """A digest of sources, command, compiler, PyTorch and processor; None where a source cannot be read."""
    command = builder.get_command_line()
    for path, word in ((builder._output_dir, "$OUT"), (cache_dir(), "$CACHE")):
        command = command.replace(path, word) if path else command
    digest = hashlib.sha256()
    for part in (command, cpp_builder.get_compiler_version_info(builder._compiler), torch.__version__,
                 codecache.torch_key().hex(), _processor()):
        digest.update(b"%d:" % len(part) + part.encode())
    try:
        for source in builder._sources_args.split():
            with open(source, "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
    except OSError:
        return None
    return digest.hexdigest()


def _wrap_build(keeper: Keeper) -> None:
    build = cpp_builder.CppBuilder.build
    headers: dict[str, Any] = {}  # precompiled headers that are made when a compilation needs them

    def make_header(path: str | None) -> None:
        if path in headers:
            lock = os.path.join(codecache.get_lock_dir(), os.path.basename(path) + ".symplex.lock")
            with FileLock(lock, timeout=codecache.LOCK_TIMEOUT):
                if not os.path.exists(path + ".gch"):
                    build(headers[path])

    def build_or_get(self: Any) -> None:
        target = self.get_target_file_path()
        if self._precompiling and target.endswith(".gch"):
            headers[target[:-len(".gch")]] = self
            return
        name = None
        if not self._preprocessing and not self._precompiling and not self._use_relative_path and not self._aot_mode:
            name = _name_of(self)
        found = keeper.get(_CPP, name, claim=True) if name is not None else None
        if found is not None:
            codecache.write_atomic(target, found)
            os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR)
            return
        try:
            make_header(self._build_option.precompiled_header)
            build(self)
            if name is not None:
                with open(target, "rb") as file:
                    keeper.put(_CPP, name, file.read())
        finally:
            keeper.release(_CPP)

    cpp_builder.CppBuilder.build = functools.wraps(build)(build_or_get)


def install(keeper: Keeper) -> str:
    for name, (cache, claim) in _CACHES.items():
        getattr(remote_cache, name).backend_override_cls = functools.partial(_Backend, keeper, cache, claim)
    config.fx_graph_remote_cache = True
    config.autotune_remote_cache = True
    torch._functorch.config.enable_remote_autograd_cache = True
    _wrap_build(keeper)
    return "compiled graphs, autograd graphs, timings of autotuning, C++ kernels"
