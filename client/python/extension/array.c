/* array.c - arrays of NumPy, PyTorch, JAX and others as memory. */
#include "client/python/extension/array.h"

#include <string.h>

const sxp_dtype sxp_dtypes[SXP_DTYPE_COUNT] = {
    [SYMPLEX_F64] = {"float64", "float64", 'f', 8, 2, 12},
    [SYMPLEX_F32] = {"float32", "float32", 'f', 4, 2, 11},
    [SYMPLEX_BF16] = {"bfloat16", "uint16", 0, 2, 4, 16},
    [SYMPLEX_F16] = {"float16", "float16", 'f', 2, 2, 10},
    [SYMPLEX_F8E4M3] = {"float8_e4m3fn", "uint8", 0, 1, 10, 20},
    [SYMPLEX_F8E5M2] = {"float8_e5m2", "uint8", 0, 1, 12, 19},
    [SYMPLEX_I64] = {"int64", "int64", 'i', 8, 0, 5},
    [SYMPLEX_I32] = {"int32", "int32", 'i', 4, 0, 4},
    [SYMPLEX_I8] = {"int8", "int8", 'i', 1, 0, 2},
    [SYMPLEX_U8] = {"uint8", "uint8", 'u', 1, 1, 6},
    [SYMPLEX_BOOL] = {"bool", "bool", '?', 1, 6, 1},
    [SYMPLEX_I16] = {"int16", "int16", 'i', 2, 0, 3},
};

/* Whoever lent the tensor may be Python, where an exception must not be set already. */
static void give_back(sxp_array *array)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (array->versioned) {
        dl_versioned *managed = array->managed;
        if (managed->deleter != NULL) {
            managed->deleter(managed);
        }
    } else {
        dl_managed *managed = array->managed;
        if (managed->deleter != NULL) {
            managed->deleter(managed);
        }
    }
    PyErr_Restore(type, error, trace);
}

void sxp_array_release(sxp_array *array)
{
    if (array->view.obj != NULL) {
        PyBuffer_Release(&array->view);
    }
    if (array->managed != NULL) {
        give_back(array);
    }
    Py_CLEAR(array->extra);
    array->managed = NULL;
    array->data = NULL;
}

/* Replaces the exception that is set by one of this class which names the array, with the old one as its cause. */
void sxp_name_failure(PyObject *class, const sxp_what *what)
{
    PyObject *type, *cause, *trace;
    PyErr_Fetch(&type, &cause, &trace);
    PyErr_NormalizeException(&type, &cause, &trace);
    PyErr_Format(class, SXP_WHAT ": %S", what->kind, what->name, cause != NULL ? cause : Py_None);
    PyObject *type_now, *now, *trace_now;
    PyErr_Fetch(&type_now, &now, &trace_now);
    PyErr_NormalizeException(&type_now, &now, &trace_now);
    if (now != NULL && cause != NULL) {
        Py_INCREF(cause);
        PyException_SetCause(now, cause);
    }
    PyErr_Restore(type_now, now, trace_now);
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(trace);
}

void sxp_refuse_dtype(const sxp_state *state, const sxp_what *what, const char *given,
                      const sxp_dtype *wanted)
{
    PyErr_Format(state->dtype_error, SXP_WHAT ": its elements are %s, needed are %s", what->kind,
                 what->name, given, wanted->name);
}

/* The class and the size of the elements of a buffer, in words. */
void sxp_name_format(const char *format, Py_ssize_t bytes, char class, char text[64])
{
    const char *word = class == 'f' ? "float" : class == 'i' ? "int" : class == 'u' ? "uint" : NULL;
    if (class == '?') {
        (void)PyOS_snprintf(text, 64, "bool");
    } else if (word != NULL) {
        (void)PyOS_snprintf(text, 64, "%s%d", word, (int)bytes * 8);
    } else if (strcmp(format, "O") == 0) {
        (void)PyOS_snprintf(text, 64, "Python objects");
    } else {
        (void)PyOS_snprintf(text, 64, "of format '%.40s'", format);
    }
}

static char class_of(const char *format)
{
    if (format[0] == '\0' || format[1] != '\0') {
        return 0;
    }
    return strchr("efd", *format) != NULL      ? 'f'
           : strchr("bhilqn", *format) != NULL ? 'i'
           : strchr("BHILQN", *format) != NULL ? 'u'
           : *format == '?'                    ? '?'
                                               : 0;
}

static bool check_format(const sxp_state *state, const sxp_what *what, const Py_buffer *view,
                         const sxp_dtype *wanted)
{
    char given[64];
    const char *format = view->format != NULL ? view->format : "B";
    bool swapped = *format == '>' || *format == '!';
    if (strchr("@=<>!", *format) != NULL && *format != '\0') {
        format++;
    }
    char class = class_of(format);
    if (!swapped && class == wanted->class && class != 0 && view->itemsize == wanted->bytes) {
        return true;
    }
    sxp_name_format(format, view->itemsize, class, given);
    if (swapped) {
        size_t length = strlen(given);
        (void)PyOS_snprintf(given + length, sizeof(given) - length, " in the other byte order");
    }
    sxp_refuse_dtype(state, what, given, wanted);
    return false;
}

bool sxp_refuse_gaps(const sxp_state *state, const sxp_what *what, int gpu)
{
    PyErr_Format(state->layout_error,
                 SXP_WHAT ": its elements do not lie in row-major order without gaps; %s makes a "
                          "copy of which that is true",
                 what->kind, what->name,
                 gpu < 0 ? "numpy.ascontiguousarray" : "`ascontiguousarray` or `contiguous`");
    return false;
}

bool sxp_refuse_rank(const sxp_state *state, const sxp_what *what, int rank)
{
    PyErr_Format(state->shape_error, SXP_WHAT ": it has %d dimensions, at most %d are known",
                 what->kind, what->name, rank, SYMPLEX_RANK_MAX);
    return false;
}

/* `raw`: the elements are those of the type that stands for it. */
static bool from_buffer(const sxp_state *state, const sxp_what *what, const sxp_dtype *wanted,
                        bool raw, sxp_array *array)
{
    const Py_buffer *view = &array->view;
    if (!raw && !check_format(state, what, view, wanted)) {
        return false;
    }
    if (view->ndim > SYMPLEX_RANK_MAX) {
        return sxp_refuse_rank(state, what, view->ndim);
    }
    if (!PyBuffer_IsContiguous(view, 'C')) {
        return sxp_refuse_gaps(state, what, SXP_HOST);
    }
    array->data = view->buf;
    array->read_only = view->readonly != 0;
    array->rank = (uint32_t)view->ndim;
    for (uint32_t d = 0; d < array->rank; d++) {
        array->shape[d] = view->shape[d];
    }
    return true;
}

/* ---- any ---- */

/* NumPy knows no buffer format for bfloat16 and the like, so another type of that size stands for it: *made is the
 * same memory as that type, or NULL where the elements of the object are no such. */
static bool view_as_store(PyObject *object, const sxp_dtype *wanted, PyObject **made)
{
    *made = NULL;
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype != NULL ? PyObject_GetAttrString(dtype, "name") : NULL;
    bool same = name != NULL && PyUnicode_Check(name) &&
                PyUnicode_CompareWithASCIIString(name, wanted->name) == 0;
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    PyErr_Clear();
    if (same) {
        *made = PyObject_CallMethod(object, "view", "s", wanted->store);
    }
    return !same || *made != NULL;
}

/* An attribute that need not be there; false with an exception that says more than that. */
bool sxp_find_attribute(PyObject *object, const char *name, PyObject **found)
{
    *found = PyObject_GetAttrString(object, name);
    if (*found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return true;
    }
    return *found != NULL;
}

static bool buffer_of(PyObject *object, sxp_array *array)
{
    if (PyObject_CheckBuffer(object) &&
        PyObject_GetBuffer(object, &array->view, PyBUF_FULL_RO) == 0) {
        return true;
    }
    PyErr_Clear();
    array->view.obj = NULL;
    return false;
}

/* What is no buffer that can be read: DLPack's table, bfloat16, DLPack, the array interface; in this order. */
static bool take_other(sxp_state *state, PyObject *object, const sxp_dtype *wanted,
                       const sxp_what *what, sxp_array *array)
{
    PyObject *method = NULL;
    const dl_exchange *table = sxp_dl_table(state, object);
    if (table != NULL) {
        return sxp_from_table(state, table, object, what, wanted, SXP_HOST, array);
    }
    if (wanted->class == 0 && PyObject_CheckBuffer(object)) {
        if (!view_as_store(object, wanted, &array->extra)) {
            return false;
        }
        if (array->extra != NULL && buffer_of(array->extra, array)) {
            return from_buffer(state, what, wanted, true, array);
        }
    }
    if (!sxp_find_attribute(object, "__dlpack__", &method)) {
        return false;
    }
    if (method != NULL) {
        bool good = sxp_from_dlpack(state, method, NULL, what, wanted, SXP_HOST, array);
        Py_DECREF(method);
        return good;
    }
    if (!sxp_find_attribute(object, "__array_interface__", &method)) {
        return false;
    }
    if (method == NULL && PyObject_HasAttrString(object, "__cuda_array_interface__")) {
        PyErr_Format(state->layout_error,
                     SXP_WHAT ": it lies on a GPU, and memory of the processor is needed",
                     what->kind, what->name);
        return false;
    }
    if (method == NULL) {
        PyObject *type = PyType_GetName(Py_TYPE(object));
        PyErr_Format(state->dtype_error,
                     SXP_WHAT
                     ": a %U is no array; an array of %s is needed, such as NumPy, DLPack or the "
                     "buffer protocol give",
                     what->kind, what->name, type, wanted->name);
        Py_XDECREF(type);
        return false;
    }
    Py_DECREF(method);
    if (!sxp_need_numpy(state)) {
        return false;
    }
    array->extra = PyObject_CallFunctionObjArgs(state->asarray, object, NULL);
    if (array->extra == NULL || !buffer_of(array->extra, array)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "its array interface gives no memory");
        }
        sxp_name_failure(state->dtype_error, what);
        return false;
    }
    return from_buffer(state, what, wanted, false, array);
}

bool sxp_array_take(sxp_state *state, PyObject *object, symplex_dtype dtype, bool writable,
                    const sxp_what *what, sxp_array *array)
{
    const sxp_dtype *wanted = &sxp_dtypes[dtype];
    memset(array, 0, sizeof(*array));
    bool good = buffer_of(object, array) ? from_buffer(state, what, wanted, false, array)
                                         : take_other(state, object, wanted, what, array);
    if (good && writable && array->read_only) {
        PyErr_Format(state->layout_error, SXP_WHAT ": it is read-only and would be written",
                     what->kind, what->name);
        good = false;
    }
    if (!good) {
        sxp_array_release(array);
    }
    return good;
}

bool sxp_array_place(sxp_state *state, PyObject *object, const void **address,
                     int64_t stride[SYMPLEX_RANK_MAX])
{
    const dl_exchange *table = sxp_dl_table(state, object);
    memset(stride, 0, SYMPLEX_RANK_MAX * sizeof(*stride));
    *address = NULL;
    if (table != NULL) {
        dl_tensor tensor;
        if (table->tensor_of(object, &tensor) != 0) {
            return false;
        }
        *address = tensor.data != NULL ? (char *)tensor.data + tensor.byte_offset : NULL;
        for (int32_t d = 0; tensor.strides != NULL && d < tensor.rank && d < SYMPLEX_RANK_MAX;
             d++) {
            stride[d] = tensor.strides[d];
        }
        return true;
    }
    PyObject *method;
    if (!sxp_find_attribute(object, "data_ptr", &method) || method == NULL) {
        return !PyErr_Occurred();
    }
    PyObject *number = PyObject_CallNoArgs(method);
    *address = number != NULL ? PyLong_AsVoidPtr(number) : NULL;
    Py_DECREF(method);
    Py_XDECREF(number);
    return !PyErr_Occurred();
}
