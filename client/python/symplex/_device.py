"""Arrays on a GPU: results of modules that were called with such arrays."""
from __future__ import annotations

from typing import Any

from symplex import _c
from symplex._errors import LayoutError, Unimplemented

_CUDA = 2  # DLPack's kind of device
_LETTERS = {"float": "f", "int": "i", "uint": "u", "bool": "b"}


class DeviceArray:
    """An array on a GPU, for whatever reads DLPack or the CUDA array interface (version 3): PyTorch, CuPy, JAX, Numba,
    or another module. Its memory is freed with its last owner. `to_numpy` copies it to the host, as NumPy's functions
    do that are given one."""

    __slots__ = ("_memory", "_type", "shape", "__weakref__")

    def __init__(self, memory: _c.DeviceMemory, dtype: str, shape: tuple[int, ...]) -> None:
        self._memory, self._type, self.shape = memory, dtype, shape

    @property
    def dtype(self) -> Any:
        """NumPy's element type."""
        return _numpy_type(self._type)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def device(self) -> str:
        return f"cuda:{self._memory.gpu}"

    def to_numpy(self) -> Any:
        """A copy on the host, once the runs that write this array have ended."""
        import numpy as np
        made = np.empty(self.shape, self.dtype)
        self._memory.read(made.reshape(-1).view(np.uint8))
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array on a GPU becomes one of NumPy by a copy")
        made = self.to_numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._memory.gpu

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """What is put on `stream` later waits for the runs that write this array: None and 1 are CUDA's default stream,
        -1 is none."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"an array on {self.device} is not copied to device {tuple(dl_device)}")
        if copy:
            raise BufferError("no copy is made of an array on a GPU")
        if stream == 0:
            raise ValueError("stream: 0 is no number of DLPack; 1 is CUDA's default stream")
        if stream != -1:
            self._memory.follow(1 if stream is None else stream)
        return self._memory.capsule(self._type, self.shape, max_version is not None and max_version[0] >= 1)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        letter = _LETTERS.get(self._type.rstrip("0123456789"))
        if letter is None:
            raise AttributeError(f"elements of {self._type} have no name in the CUDA array interface: use DLPack")
        self._memory.follow(1)
        size = self.nbytes // self.size if self.size else self.dtype.itemsize
        return {"version": 3, "shape": self.shape, "typestr": f"{'|' if size == 1 else '<'}{letter}{size}",
                "data": (self._memory.address, False), "strides": None, "stream": 1}

    def __repr__(self) -> str:
        return f"<symplex.DeviceArray {self._type}[{', '.join(map(str, self.shape))}] on {self.device}>"


class OnGpu:
    """An argument of a traced function that lies on a GPU: what tracing asks of an array."""

    __slots__ = ("array", "dtype", "shape", "gpu")

    def __init__(self, array: Any, dtype: Any, shape: tuple[int, ...], gpu: int) -> None:
        self.array, self.dtype, self.shape, self.gpu = array, dtype, shape, gpu


def on_gpu(array: Any, name: str) -> OnGpu | None:
    """None of what does not lie on a GPU. `name` is for errors."""
    said = _c.device_type(array, name)
    return None if said is None else OnGpu(array, _numpy_type(said[0]), said[1], said[2])


def gpu_of(leaves: list[tuple[str, Any]]) -> int | None:
    """The GPU on which the arguments lie, by their names; None: on the host."""
    known = [(name, x.gpu if isinstance(x, OnGpu) else None) for name, x in leaves]
    for name, gpu in known:
        if gpu != known[0][1]:
            here, there = (f"GPU {g}" if g is not None else "the host" for g in (gpu, known[0][1]))
            raise LayoutError(f"argument '{name}': it lies on {here}, and argument '{known[0][0]}' on {there}; nothing "
                              f"is copied from one to the other")
    return known[0][1] if known else None


def _numpy_type(name: str) -> Any:
    import numpy as np
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes  # noqa: F401 - NumPy knows these names once it is there
    return np.dtype(name)


def target_of(gpu: int) -> str:
    """The target of a GPU of this machine, such as "h100"; an error that names it where there is none."""
    name, capability, target = _c.gpu(gpu)
    if not target:
        raise Unimplemented(f"GPU {gpu} ({name}, compute capability {capability // 10}.{capability % 10}) is none of "
                            f"the targets of `symplex-client targets`; target=... says which one to compile for")
    return target
