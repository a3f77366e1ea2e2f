"""A framework with a GPU, for tests without one: arrays in memory of the driver of the tests (tests/client/cuda/fake),
whose GPU executes PTX in the interpreter. `begin()` comes before the package symplex is used, `end()` last: it fails
the process where memory of the GPU is left."""
import ctypes
import os
import pathlib
import shutil
import tempfile

BUILD = pathlib.Path(os.environ["SX_BINARY_DIR"])
H100 = "capability=90 name=NVIDIA_H100_80GB_HBM3"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="sxdevice."))
TYPES = {"float32": (2, 32, "<f4"), "float64": (2, 64, "<f8"), "int32": (0, 32, "<i4"), "float16": (2, 16, "<f2"),
         "bool": (6, 8, "|b1")}
driver = None


def settings(text):
    """What the driver is like from the next start of a module on."""
    os.environ["SX_FAKE_CUDA"] = text


def _ok(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, (name, status)


def begin(text=H100):
    global driver
    path = FOLDER / "libcuda.so.1"  # a folder of builds may be one that others write to
    shutil.copy(BUILD / "cuda-fake" / "libcuda.so.1", path)
    path.chmod(0o600)
    os.environ["SYMPLEX_CUDA_DRIVER"] = str(path)
    settings(text)
    driver = ctypes.CDLL(str(path))
    context = ctypes.c_void_p()
    _ok("cuInit", 0)
    _ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    _ok("cuCtxPushCurrent_v2", context)


def end():
    context = ctypes.c_void_p()
    _ok("cuCtxPopCurrent_v2", ctypes.byref(context))
    _ok("cuDevicePrimaryCtxRelease_v2", 0)
    shutil.rmtree(FOLDER)


class Stream:
    """As that of PyTorch: a number by the name cuda_stream."""

    def __init__(self):
        made = ctypes.c_void_p()
        _ok("cuStreamCreate", ctypes.byref(made), 1)
        self.cuda_stream = made.value

    def close(self):
        _ok("cuStreamDestroy_v2", ctypes.c_void_p(self.cuda_stream))


def waits(stream, on, forget=False):
    """How often `stream` was told to wait for what is on `on`, since the last one that forgot."""
    return driver.fakeWaits(ctypes.c_void_p(stream), ctypes.c_void_p(on), int(forget))


def capture(stream):
    _ok("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 0)


def captured(stream):
    graph = ctypes.c_void_p()
    _ok("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
    return graph


def launch(graph, stream):
    _ok("cuGraphLaunch", graph, ctypes.c_void_p(stream))


def free_graph(graph):
    _ok("cuGraphExecDestroy", graph)


class Memory:
    """Of the GPU, with what a NumPy array has in it. `offset`: so many bytes lie in front."""

    def __init__(self, of, offset=0):
        at = ctypes.c_uint64()
        self.freed, self.offset, self.nbytes = False, offset, of.nbytes
        _ok("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(of.nbytes, 1) + offset))
        self.base, self.at = at.value, at.value + offset
        self.write(of)

    def write(self, of):
        _ok("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.at), ctypes.c_void_p(of.ctypes.data),
            ctypes.c_size_t(of.nbytes), None)

    def read(self, like):
        _ok("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(like.ctypes.data), ctypes.c_uint64(self.at),
            ctypes.c_size_t(self.nbytes), None)
        return like

    def __del__(self):
        if not self.freed:
            self.freed = True
            _ok("cuMemFree_v2", ctypes.c_uint64(self.base))


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Base:
    """Its elements, and where they lie."""

    def __init__(self, of, strides=None, offset=0, gpu=0):
        self.like, self.memory, self.strides, self.gpu = of, Memory(of, offset), strides, gpu

    def numpy(self):
        return self.memory.read(self.like.copy())


class Interface(Base):
    """By the CUDA array interface alone."""

    stream = None
    more = {}

    @property
    def __cuda_array_interface__(self):
        _, _, text = TYPES[self.like.dtype.name]
        return {"version": 3, "shape": self.like.shape, "typestr": text, "data": (self.memory.at, False),
                "strides": self.strides, "stream": self.stream, **self.more}


class DLPack(Base):
    """By DLPack; it keeps which streams it was asked for."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.asked, self.lent = [], {}

    def __dlpack_device__(self):
        return 2, self.gpu

    def __dlpack__(self, *, stream=None):  # an older one, which knows no max_version
        self.asked.append(stream)
        rank = self.like.ndim
        code, bits, _ = TYPES[self.like.dtype.name]
        shape = (ctypes.c_int64 * rank)(*self.like.shape)
        strides = (ctypes.c_int64 * rank)(*self.strides) if self.strides else None
        made = _Managed(_DLTensor(self.memory.at, 2, self.gpu, rank, code, bits, 1, shape, strides, 0), None)

        def drop(pointer):
            del self.lent[ctypes.addressof(pointer.contents)]

        made.deleter = _DELETER(drop)
        self.lent[ctypes.addressof(made)] = made, shape, strides
        return _new_capsule(ctypes.addressof(made), b"dltensor", None)


def from_dlpack(capsule, name=b"dltensor_versioned"):
    """The address in a capsule and its shape; the capsule is left as it is."""
    skip = 32 if name.endswith(b"versioned") else 0  # version, context, deleter, flags
    tensor = _DLTensor.from_address(_pointer_of(capsule, name) + skip)
    return tensor.data, tuple(tensor.shape[:tensor.rank]), tensor.device_type, (tensor.code, tensor.bits)
