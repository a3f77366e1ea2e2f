/* array.h - what the files that read arrays of others share. */
#ifndef SX_CLIENT_PYTHON_ARRAY_H
#define SX_CLIENT_PYTHON_ARRAY_H
#include "client/python/extension/extension.h"

#define SXP_HOST (-1) /* in place of the number of a GPU */

/* ---- DLPack, https://dmlc.github.io/dlpack/latest/c_api.html ---- */

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides may be NULL: no gaps */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;
typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor tensor;
} dl_versioned;
/* The table of C functions of a class of arrays, of which one is asked: the tensor of an object, which lives as long as
 * the object does. 0, or -1 with an exception. */
typedef struct dl_exchange {
    uint32_t major, minor;
    const struct dl_exchange *previous; /* of an older version */
    void *allocate, *managed_of, *object_of;
    int (*tensor_of)(void *object, dl_tensor *tensor);
    /* The stream on which the framework puts work for a device now. 0, or -1 with an exception. */
    int (*stream_of)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;
#define DL_CPU 1
#define DL_CUDA 2
#define DL_CUDA_HOST 3
#define DL_CUDA_MANAGED 13
#define DL_MAJOR 1
#define DL_READ_ONLY 1u

static inline bool sxp_dl_on_gpu(int32_t device_type)
{
    return device_type == DL_CUDA || device_type == DL_CUDA_MANAGED;
}

/* ---- exceptions that name the array (array.c); all but the first return false ---- */

/* Replaces the exception that is set by one of this class which names the array, with the old one as its cause. */
void sxp_name_failure(PyObject *class, const sxp_what *what);
void sxp_refuse_dtype(const sxp_state *state, const sxp_what *what, const char *given,
                      const sxp_dtype *wanted);
bool sxp_refuse_gaps(const sxp_state *state, const sxp_what *what, int gpu);
bool sxp_refuse_rank(const sxp_state *state, const sxp_what *what, int rank);
/* The class and the size of the elements of a buffer, in words. */
void sxp_name_format(const char *format, Py_ssize_t bytes, char class, char text[64]);
/* An attribute that need not be there; false with an exception that says more than that. */
bool sxp_find_attribute(PyObject *object, const char *name, PyObject **found);

/* ---- DLPack (dlpack.c); `gpu` is the number of the GPU where the array has to lie, or SXP_HOST ---- */

/* The table of an object's class; NULL where it has none. Classes are asked once, but for those without. */
const dl_exchange *sxp_dl_table(sxp_state *state, PyObject *object);
bool sxp_from_table(const sxp_state *state, const dl_exchange *table, PyObject *object,
                    const sxp_what *what, const sxp_dtype *wanted, int gpu, sxp_array *array);
/* What a method __dlpack__ answers, asked in the form of DLPack 1 first; `stream` NULL: without one. */
PyObject *sxp_dl_ask(PyObject *method, PyObject *stream);
bool sxp_from_dlpack(const sxp_state *state, PyObject *method, PyObject *stream,
                     const sxp_what *what, const sxp_dtype *wanted, int gpu, sxp_array *array);
#endif
