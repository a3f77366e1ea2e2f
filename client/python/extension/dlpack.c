/* dlpack.c - arrays by DLPack: capsules, and the table of C functions of a class. */
#include "client/python/extension/array.h"

/* ---- DLPack ---- */

/* `gpu`: the number of the GPU where it has to lie, or SXP_HOST. */
static bool check_place(const sxp_state *state, const sxp_what *what, const dl_tensor *tensor,
                        int gpu)
{
    bool good = gpu < 0 ? tensor->device_type == DL_CPU || tensor->device_type == DL_CUDA_HOST
                        : sxp_dl_on_gpu(tensor->device_type) && tensor->device_id == gpu;
    if (!good && gpu < 0) {
        PyErr_Format(state->layout_error,
                     SXP_WHAT ": it lies on device %d:%d of DLPack, and memory of the processor is "
                              "needed",
                     what->kind, what->name, (int)tensor->device_type, (int)tensor->device_id);
    } else if (!good) {
        PyErr_Format(state->layout_error,
                     SXP_WHAT ": it lies on device %d:%d of DLPack, the module is on GPU %d (2:%d)",
                     what->kind, what->name, (int)tensor->device_type, (int)tensor->device_id, gpu,
                     gpu);
    }
    return good;
}

static bool check_dl(const sxp_state *state, const sxp_what *what, const dl_tensor *tensor,
                     const sxp_dtype *wanted, int gpu)
{
    if (!check_place(state, what, tensor, gpu)) {
        return false;
    }
    if (tensor->code != wanted->dlpack || tensor->bits != wanted->bytes * 8 || tensor->lanes != 1) {
        static const char class[] = {'i', 'u', 'f'};
        char given[64];
        if (tensor->code < sizeof(class)) {
            sxp_name_format("", tensor->bits / 8, class[tensor->code], given);
        } else {
            (void)PyOS_snprintf(given, sizeof(given), "of DLPack's code %d with %d bits",
                                (int)tensor->code, (int)tensor->bits);
        }
        sxp_refuse_dtype(state, what, given, wanted);
        return false;
    }
    if (tensor->rank < 0 || tensor->rank > SYMPLEX_RANK_MAX) {
        return sxp_refuse_rank(state, what, (int)tensor->rank);
    }
    int64_t stride = 1;
    for (int32_t d = 0; d < tensor->rank; d++) {
        if (tensor->shape[d] == 0) {
            return true; /* nothing has no gaps */
        }
    }
    for (int32_t d = tensor->rank; tensor->strides != NULL && d-- > 0;) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != stride) {
            return sxp_refuse_gaps(state, what, gpu);
        }
        stride *= tensor->shape[d];
    }
    return true;
}

/* The tensor in a capsule, which is marked as used; the array owns it from here on. */
static const dl_tensor *open_capsule(const sxp_what *what, const sxp_state *state,
                                     PyObject *capsule, sxp_array *array)
{
    array->versioned = PyCapsule_IsValid(capsule, "dltensor_versioned") != 0;
    const char *name = array->versioned ? "dltensor_versioned" : "dltensor";
    void *managed = PyCapsule_GetPointer(capsule, name);
    if (managed == NULL) {
        sxp_name_failure(state->dtype_error, what);
        return NULL;
    }
    if (array->versioned && ((dl_versioned *)managed)->major != DL_MAJOR) {
        PyErr_Format(state->dtype_error, SXP_WHAT ": version %u of DLPack, known is %d", what->kind,
                     what->name, (unsigned)((dl_versioned *)managed)->major, DL_MAJOR);
        return NULL;
    }
    if (PyCapsule_SetName(capsule,
                          array->versioned ? "used_dltensor_versioned" : "used_dltensor") != 0) {
        return NULL;
    }
    array->managed = managed;
    array->read_only = array->versioned && (((dl_versioned *)managed)->flags & 1) != 0;
    return array->versioned ? &((dl_versioned *)managed)->tensor : &((dl_managed *)managed)->tensor;
}

/* `{"max_version": (1, 0)}` where `versions`, and the stream where there is one. */
static PyObject *ask_words(bool versions, PyObject *stream)
{
    PyObject *words =
        versions ? Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, 0) : PyDict_New();
    if (words != NULL && stream != NULL && PyDict_SetItemString(words, "stream", stream) != 0) {
        Py_CLEAR(words);
    }
    return words;
}

PyObject *sxp_dl_ask(PyObject *method, PyObject *stream)
{
    PyObject *none = PyTuple_New(0), *capsule = NULL;
    for (int versions = 1; none != NULL && versions >= 0; versions--) {
        PyObject *words = ask_words(versions != 0, stream);
        capsule = words != NULL ? PyObject_Call(method, none, words) : NULL;
        Py_XDECREF(words);
        if (capsule != NULL || versions == 0 || !PyErr_ExceptionMatches(PyExc_TypeError)) {
            break;
        }
        PyErr_Clear(); /* older objects know no max_version */
    }
    Py_XDECREF(none);
    return capsule;
}

static bool from_dl(const sxp_state *state, const sxp_what *what, const dl_tensor *tensor,
                    const sxp_dtype *wanted, int gpu, sxp_array *array)
{
    if (!check_dl(state, what, tensor, wanted, gpu)) {
        return false;
    }
    array->data = (char *)tensor->data + tensor->byte_offset;
    array->rank = (uint32_t)tensor->rank;
    for (uint32_t d = 0; d < array->rank; d++) {
        array->shape[d] = tensor->shape[d];
    }
    return true;
}

bool sxp_from_dlpack(const sxp_state *state, PyObject *method, PyObject *stream,
                     const sxp_what *what, const sxp_dtype *wanted, int gpu, sxp_array *array)
{
    PyObject *capsule = sxp_dl_ask(method, stream);
    if (capsule == NULL) { /* NumPy's arrays of dates and the like have a method that refuses */
        sxp_name_failure(state->dtype_error, what);
        return false;
    }
    const dl_tensor *tensor = open_capsule(what, state, capsule, array);
    Py_DECREF(capsule);
    return tensor != NULL && from_dl(state, what, tensor, wanted, gpu, array);
}

/* ---- DLPack's table of C functions ---- */

/* The table in a capsule, or an older one that it names. */
static const dl_exchange *open_table(PyObject *capsule)
{
    const dl_exchange *table = PyCapsule_IsValid(capsule, "dlpack_exchange_api") != 0
                                   ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
                                   : NULL;
    while (table != NULL && (table->major != DL_MAJOR || table->tensor_of == NULL)) {
        table = table->previous;
    }
    return table;
}

const dl_exchange *sxp_dl_table(sxp_state *state, PyObject *object)
{
    PyObject *class = (PyObject *)Py_TYPE(object);
    for (size_t i = 0; i < SXP_EXCHANGE_COUNT; i++) {
        if (state->exchange_class[i] == class) {
            return state->exchange[i];
        }
    }
    PyObject *capsule = PyObject_GetAttrString(class, "__dlpack_c_exchange_api__");
    const dl_exchange *table = capsule != NULL ? open_table(capsule) : NULL;
    Py_XDECREF(capsule); /* the table outlives it, as the process does */
    PyErr_Clear();
    if (table != NULL) {
        uint32_t at = state->exchange_next++ % SXP_EXCHANGE_COUNT;
        PyObject *old = state->exchange_class[at];
        state->exchange_class[at] = Py_NewRef(class);
        state->exchange[at] = table;
        Py_XDECREF(old);
    }
    return table;
}

bool sxp_from_table(const sxp_state *state, const dl_exchange *table, PyObject *object,
                    const sxp_what *what, const sxp_dtype *wanted, int gpu, sxp_array *array)
{
    dl_tensor tensor;
    if (table->tensor_of(object, &tensor) != 0) {
        sxp_name_failure(state->dtype_error, what);
        return false;
    }
    if (!from_dl(state, what, &tensor, wanted, gpu, array)) {
        return false;
    }
    int64_t elements = 1;
    for (uint32_t d = 0; d < array->rank; d++) {
        elements *= array->shape[d];
    }
    if (tensor.data == NULL && elements > 0) { /* such as tensors that only have a shape */
        PyErr_Format(state->layout_error, SXP_WHAT ": it has no memory", what->kind, what->name);
        return false;
    }
    return true;
}
