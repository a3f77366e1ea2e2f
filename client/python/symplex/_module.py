"""Modules: compiled programs that are called with arrays."""
from __future__ import annotations

import errno
import json
import os
import weakref
from typing import Any, Mapping, NamedTuple, Union

from symplex import _c
from symplex._errors import MissingFile


class Tensor(NamedTuple):
    """A tensor of a module's interface. An extent is a number, or a text such as "batch", "2 * batch" or
    "past + seq - 1"."""

    name: str
    dtype: str
    shape: tuple[Union[int, str], ...]


class Module(_c.Module):
    """A compiled program. Calling it runs it: inputs by position, in the order of `inputs`, or by name.

        y = module(x)
        y = module(x, w=w, out=y)            results into arrays of the caller
        y, z = module(x, dims={"batch": 4})  values of dimensions that no argument tells

    Arguments are arrays without gaps of exactly the element type that is needed: of NumPy, or anything with the buffer
    protocol, DLPack or the array interface; they are used where they lie. Results are new NumPy arrays, unless `out` is
    given: an array, a tuple of them, or a dict by names. Several results are a tuple. An output that lies in place of
    an input (a donated one) is that argument itself, which must be writable. Inputs that are called "out", "dims" or
    "stream" are given by position. A module may be called by several threads; its runs come one after the other,
    without the interpreter's lock.

    A module for a GPU takes arrays of the host, which are copied there and back, or arrays that lie on that GPU: with
    DLPack, or the CUDA array interface. With these nothing is copied and nothing waits: the run is put on a stream,
    and results are arrays there, a `DeviceArray` each unless `out` is given.

        y = module(x)                        on the stream on which the framework of x works, if it says so as PyTorch
                                             does; else on CUDA's default stream
        y = module(x, stream=stream)         a number, or an object with __cuda_stream__ or cuda_stream
    """

    def __init__(self, *opened: Any) -> None:
        _OPEN.add(self)

    file: bytes | None = None
    """Of a module that symplex.torch compiled: what it was opened from."""

    compiled: dict[str, Any] | None = None
    """Of a module that was compiled here: key, tier, hit, cost_s, total_s."""

    def _of_role(self, role: str) -> tuple[Tensor, ...]:
        return tuple(Tensor(name, dtype, shape) for its, name, dtype, shape in self._tensors() if its == role)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a call needs, in the order of its arguments."""
        return self._of_role("input")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What a call gives, in the order of its results."""
        return self._of_role("output")

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """What is bound once."""
        return self._of_role("weight")

    @property
    def states(self) -> tuple[Tensor, ...]:
        """What the module keeps from call to call."""
        return self._of_role("state")

    @property
    def dims(self) -> dict[str, list[tuple[int, int, int]]]:
        """Symbolic dimensions, and the values (low, high, step) that the module serves."""
        return self._symbols()

    @property
    def info(self) -> dict[str, Any]:
        """Key, target, threads, estimates, GPU."""
        return self._describe()

    def report(self) -> dict[str, Any]:
        """What the compiler did: search, rules, stages, rewrites."""
        return json.loads(self._report())

    def profile(self, *args: Any, **keywords: Any) -> tuple[Any, list[dict[str, Any]]]:
        """A call, and what each of its launches took in ns; those with `once` are the work on weights alone."""
        return self._profile(*args, **keywords)

    def bind_weight(self, name: str, array: Any) -> None:
        """Gives a weight its memory, which is used where it lies, until another is bound. What is made of weights
        alone, such as other layouts, is made by the next call and kept: who changes elements binds the weight again."""
        self._bind_weight(name, array)

    def bind_weights(self, arrays: Mapping[str, Any]) -> None:
        """The same of all weights, by their names; none is bound where one is refused."""
        names = [t.name for t in self.weights]
        for wrong, said in ((set(arrays) - set(names), "the module has none of the name"),
                            (set(names) - set(arrays), "missing are those of")):
            if wrong:
                raise KeyError(f"weights: {said} {', '.join(sorted(wrong))}; it has {', '.join(names) or 'none'}")
        self._bind_weights(tuple(arrays[name] for name in names), None)

    def share(self) -> "Module":
        """Another module of the same code, threads and file, with weights, state and a lock of its own: for several
        sets of weights, also called by several threads at the same time. It begins as one that was loaded."""
        made: Module = self._share()
        made.file, made.compiled = self.file, self.compiled
        _OPEN.add(made)
        return made

    def read_state(self, name: str, out: Any) -> Any:
        """Copies a state tensor into `out`."""
        self._state(name, out, False)
        return out

    def write_state(self, name: str, array: Any) -> None:
        """Sets a state tensor."""
        self._state(name, array, True)

    def reset_state(self) -> None:
        """All state gets its first values."""
        self._reset_state()

    def __repr__(self) -> str:
        def text(tensors: tuple[Tensor, ...]) -> str:
            return ", ".join(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors)

        return f"<symplex.Module ({text(self.inputs)}) -> ({text(self.outputs)}), {self.info['target']}>"


_OPEN: "weakref.WeakSet[Module]" = weakref.WeakSet()


def _after_fork() -> None:
    """Threads that hold locks of modules are not there in a child."""
    for module in list(_OPEN):
        module._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def checked_threads(threads: int) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 256:
        raise ValueError(f"threads: {threads!r}, allowed are 0 (as many as the process may use) to 256")
    return threads


def checked_path(path: Union[str, os.PathLike[str]]) -> str:
    if not os.path.lexists(path):
        raise MissingFile(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return os.fspath(path)


def load(module: Union[str, os.PathLike[str], bytes, bytearray, memoryview], *, threads: int = 0) -> Module:
    """Opens a module file, by its path or from its bytes. `threads` 0: as many as the process may use."""
    checked_threads(threads)
    if isinstance(module, (str, os.PathLike)):
        return Module(checked_path(module), None, threads)
    if not isinstance(module, (bytes, bytearray, memoryview)):
        raise TypeError(f"module: a path or bytes are needed, not {type(module).__name__}")
    return Module(None, module, threads)
