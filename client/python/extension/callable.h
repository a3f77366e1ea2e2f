/* callable.h - an opened module as Python has it. */
#ifndef SX_CLIENT_PYTHON_CALLABLE_H
#define SX_CLIENT_PYTHON_CALLABLE_H
#include "client/python/extension/extension.h"

typedef struct {
    size_t index; /* in the interface of the module */
    const char *name;
    symplex_dtype dtype;
    uint32_t rank;
    int64_t shape[SYMPLEX_RANK_MAX]; /* -1 where it follows a symbol */
    symplex_axis axis[SYMPLEX_RANK_MAX];
    size_t alias; /* of an output in place of an input: that input's place among the inputs */
    PyObject *dtype_object; /* of an output: numpy's; NULL until it is needed */
    PyObject *store_object; /* what the memory is made as, where that has another type */
    PyObject *kept;         /* of a weight: what holds its memory */
} sxp_tensor;

typedef struct {
    sxp_tensor *tensor;
    size_t count;
} sxp_list;

typedef struct {
    PyObject_HEAD symplex_module *module;
    /* Of everything that touches `module`; taken only without the interpreter's lock, so that the two cannot wait for
     * each other. */
    PyThread_type_lock lock;
    sxp_state *state;
    PyObject *owner; /* the Python module that holds `state` */
    sxp_list role[SYMPLEX_STATE_TENSOR + 1];
    symplex_symbol *symbol;
    size_t symbol_count;
} sxp_module;

/* module(*args, **keywords). */
PyObject *sxp_call(PyObject *self, PyObject *args, PyObject *keywords);
/* module.profile(*args, **keywords): the results and what each launch took. */
PyObject *sxp_profile(PyObject *self, PyObject *args, PyObject *keywords);
/* The shape of a tensor as a tuple: numbers, and texts such as "batch" or "2 * batch". */
PyObject *sxp_shape_text(const sxp_module *module, const sxp_tensor *tensor);
/* The shape is that of the tensor for these values of the symbols; one of 0 is learned from it. */
bool sxp_shape_check(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                     const sxp_what *what, int64_t *value);
#endif
