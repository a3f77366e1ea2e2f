"""Triton's cache manager (triton/runtime/cache.py). Files are used where Triton has them; what is not there comes from
the daemon. A group, all files of one kernel, is one artefact, so it is there as a whole or not at all."""
from __future__ import annotations

import json
import os
import struct
from typing import Any

from triton import knobs
from triton.runtime.cache import FileCacheManager

from symplex import caches

CACHE = "triton"
_MAGIC = b"sxg1"


def pack(files: dict[str, bytes]) -> bytes:
    """Names and sizes as JSON, with its length in front, then the contents."""
    head = json.dumps([[name, len(data)] for name, data in sorted(files.items())]).encode()
    return _MAGIC + struct.pack("<I", len(head)) + head + b"".join(data for _, data in sorted(files.items()))


def unpack(blob: bytes) -> dict[str, bytes] | None:
    """None: it is not what `pack` makes."""
    if blob[:4] != _MAGIC or len(blob) < 8:
        return None
    (size,) = struct.unpack_from("<I", blob, 4)
    files, at = {}, 8 + size
    try:
        for name, length in json.loads(blob[8:at]):
            if os.path.basename(name) != name or name in ("", ".", "..") or not 0 <= length <= len(blob) - at:
                return None
            files[name] = blob[at:at + length]
            at += length
    except (ValueError, TypeError):
        return None
    return files if at == len(blob) else None


class TritonCacheManager(FileCacheManager):  # type: ignore[misc]
    """One key of Triton's: a kernel, or something that is built for one. Triton drops the manager when it is done, also
    when the compiler fails; then a claim is given back."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        self._ours = not override and not dump
        self._claimed: str | None = None
        self._group = False

    def _name(self, filename: str) -> str:
        return f"{self.key}/{filename}"

    def _get(self, filename: str, claim: bool) -> dict[str, str] | None:
        keeper = caches.keeper()
        blob = keeper.get(CACHE, self._name(filename), claim=claim)
        if blob is None:
            self._claimed = self._name(filename) if claim else None
            return None
        files = unpack(blob)
        return files and {name: super(TritonCacheManager, self).put(data, name) for name, data in files.items()}

    def get_file(self, filename: str) -> str | None:
        path: str | None = super().get_file(filename)
        if path is None and self._ours:
            # timings are measured by kernels that run, perhaps with others: nobody waits for those
            files = self._get(filename, claim=not filename.endswith(".autotune.json"))
            path = files.get(filename) if files else None
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        self._group = True
        group: dict[str, str] | None = super().get_group(filename)
        if group is None and self._ours:
            group = self._get(filename, claim=True)
            if group is not None:
                super().put_group(filename, group)
        return group

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        path: str = super().put(data, filename, binary=binary)
        if self._ours and not self._group and not filename.startswith("__grp__"):
            self._send(filename, {filename: path})
        return path

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        path: str = super().put_group(filename, group)
        if self._ours:
            self._send(filename, group)
        return path

    def _send(self, filename: str, group: dict[str, str]) -> None:
        files = {}
        for name, path in group.items():
            with open(path, "rb") as file:
                files[name] = file.read()
        caches.keeper().put(CACHE, self._name(filename), pack(files))
        self._claimed = None

    def __del__(self) -> None:
        if getattr(self, "_claimed", None) is not None:
            caches.keeper().release(CACHE, self._claimed)


def install(keeper: caches.Keeper) -> str:
    os.environ.setdefault("TRITON_CACHE_MANAGER", "symplex.caches:TritonCacheManager")  # for processes it starts
    knobs.cache.manager_class = TritonCacheManager
    return "compiled kernels, timings of autotuning"
