/* callable.h - an opened module as Python has it. */
#ifndef SX_CLIENT_PYTHON_CALLABLE_H
#define SX_CLIENT_PYTHON_CALLABLE_H
#include <pthread.h>

#include "client/python/extension/extension.h"

/* An extent as the sum of its terms, a range of those of the module. `count` 0: it is always the same. */
typedef struct {
    size_t first, count;
    bool sum; /* it is more than a multiple of one symbol: there are several terms, or a product */
} sxp_axis;

typedef struct {
    size_t index; /* in the interface of the module */
    const char *name;
    symplex_dtype dtype;
    uint32_t rank;
    int64_t shape[SYMPLEX_RANK_MAX]; /* -1 where it follows a symbol */
    sxp_axis axis[SYMPLEX_RANK_MAX];
    size_t alias; /* of an output in place of an input: that input's place among the inputs */
    PyObject *dtype_object; /* of an output: numpy's; NULL until it is needed */
    PyObject *store_object; /* what the memory is made as, where that has another type */
} sxp_tensor;

typedef struct {
    sxp_tensor *tensor;
    size_t count;
} sxp_list;

/* What a weight is bound to. */
typedef struct {
    PyObject *object; /* that was given, where `memory` does not hold it itself; else NULL */
    sxp_array memory; /* of it */
    /* The object whose changes are looked for, and how it was when it was bound. It is not held: who asks says that it
     * lives. NULL: none was named. */
    const PyObject *owner;
    const void *address;
    int64_t stride[SYMPLEX_RANK_MAX];
    uint64_t version;
    bool versioned; /* it counts its changes */
    bool sampled;
    uint64_t sample; /* of its bytes */
    uint64_t number; /* what the library is told of it as its version */
    bool packed;     /* the library does work on it once */
} sxp_weight;

typedef struct {
    PyObject_HEAD symplex_module *module;
    /* Of everything that touches `module`; taken only without the interpreter's lock, so that the two cannot wait for
     * each other. A lock of Python's asks for the time at each call. */
    pthread_mutex_t lock;
    sxp_state *state;
    PyObject *owner; /* the Python module that holds `state` */
    sxp_list role[SYMPLEX_STATE_TENSOR + 1];
    symplex_symbol *symbol;
    size_t symbol_count;
    symplex_axis *term; /* of all extents that follow symbols */
    size_t term_count;
    bool sums;          /* an extent is more than a multiple of one symbol */
    sxp_weight *weight; /* [role[SYMPLEX_WEIGHT_TENSOR].count] */
    uint64_t binds;     /* counts */
    int gpu;            /* the number of the GPU that runs it; -1: the processor does */
    /* While a call of Python runs it without the interpreter's lock, which asks for signals; else NULL. */
    PyThreadState *caller;
} sxp_module;

/* module(*args, **keywords). */
PyObject *sxp_call(PyObject *self, PyObject *args, PyObject *keywords);
/* module.profile(*args, **keywords): the results and what each launch took. */
PyObject *sxp_profile(PyObject *self, PyObject *args, PyObject *keywords);
/* Values of symbols, as a call learns them. */
typedef struct {
    int64_t value;    /* 0: not known */
    const char *told; /* the argument whose shape told it; NULL: none did */
} sxp_value;

/* The shape of a tensor as a tuple: numbers, and texts such as "batch", "2 * batch * seq" or "past + seq - 1". */
PyObject *sxp_shape_text(const sxp_module *module, const sxp_tensor *tensor);
/* The extent of a dimension where all its symbols have values; at most INT64_MAX. */
int64_t sxp_extent_of(const sxp_module *module, const sxp_tensor *tensor, uint32_t dimension,
                      const sxp_value *value);
/* The shape is that of the tensor for these values of the symbols, as far as they are known. A multiple of a symbol
 * tells its value. `value` may be NULL for a tensor of one shape. */
bool sxp_shape_check(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                     const sxp_what *what, sxp_value *value);
/* The same for its extents that are sums or products: one in which a single symbol has no value tells it, and *learned
 * is set. */
bool sxp_sums_check(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                    const sxp_what *what, sxp_value *value, bool *learned);
/* Of this role; NULL with an exception. */
sxp_tensor *sxp_find(sxp_module *self, symplex_role role, const char *kind, const char *name);
/* The array of a weight or of state, which is of the tensor's type and shape. */
bool sxp_take(sxp_module *self, const sxp_tensor *tensor, const char *kind, PyObject *object,
              bool writable, sxp_array *array);
/* Bytes of a weight or of state. */
size_t sxp_size_of(const sxp_tensor *tensor);

/* Records of the weights, and their end. */
bool sxp_weights_make(sxp_module *self);
void sxp_weights_free(sxp_module *self);
PyObject *sxp_bind_weight(PyObject *object, PyObject *args);
PyObject *sxp_bind_weights(PyObject *object, PyObject *args);
PyObject *sxp_holds(PyObject *object, PyObject *args);
#endif
