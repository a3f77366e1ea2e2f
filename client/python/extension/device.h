/* device.h - arrays on a GPU, of others and our own. */
#ifndef SX_CLIENT_PYTHON_DEVICE_H
#define SX_CLIENT_PYTHON_DEVICE_H
#include "client/python/extension/callable.h"

/* The object is an array on a GPU, by its own words. */
bool sxp_on_gpu(sxp_state *state, PyObject *object);
/* The stream that `given` is: a number as CUDA has it, or an object with `__cuda_stream__` or `cuda_stream`. False with
 * an exception. */
bool sxp_stream_read(PyObject *given, void **stream);
/* The stream on which the framework of an array puts work now, if it says so. False with an exception. */
bool sxp_stream_of(sxp_state *state, PyObject *object, int gpu, void **stream, bool *found);
/* As sxp_array_take, of an array on that GPU which is used on `stream`: by DLPack, which puts the stream in order, or
 * the CUDA array interface, whose stream is then array->behind. */
bool sxp_device_take(sxp_state *state, PyObject *object, symplex_dtype dtype, bool writable,
                     const sxp_what *what, int gpu, void *stream, sxp_array *array);

/* ---- the type symplex._c.DeviceMemory: memory of the GPU that runs a module, which it keeps open ---- */

extern PyType_Spec sxp_memory_spec;
/* A symplex.DeviceArray of such memory; *address is where it lies. NULL with an exception. */
PyObject *sxp_device_new(sxp_module *module, const sxp_tensor *tensor, PyObject *shape, size_t size,
                         uint64_t *address);
/* (object, name): (element type, shape, GPU) of an array on a GPU; None of anything else. */
PyObject *sxp_device_type(PyObject *module, PyObject *args);
/* (gpu): name, capability and target, as symplex_gpu_describe has them. */
PyObject *sxp_gpu(PyObject *module, PyObject *number);
#endif
