/* device.c - arrays on a GPU: whether an object is one, its memory, and the streams on which it is used. */
#include "client/python/extension/device.h"

#include <string.h>

#include "client/python/extension/array.h"

#define DEVICE_ALIGN 64u /* of memory that is bound (symplex_module_bind_device) */
#define STREAM_LEGACY \
    1 /* CUDA's default stream, as DLPack and the CUDA array interface number it */
#define INTERFACE_VERSION_MIN 2 /* of the CUDA array interface; version 3 added the stream */

/* ---- which device ---- */

/* (type, number) of __dlpack_device__; false, without an exception, where there is none. */
static bool ask_device(PyObject *object, long *type, long *number)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    bool good = pair != NULL && PyTuple_Check(pair) && PyTuple_Size(pair) == 2;
    if (good) {
        *type = PyLong_AsLong(PyTuple_GetItem(pair, 0));
        *number = PyLong_AsLong(PyTuple_GetItem(pair, 1));
        good = !PyErr_Occurred();
    }
    Py_XDECREF(pair);
    PyErr_Clear();
    return good;
}

bool sxp_on_gpu(sxp_state *state, PyObject *object)
{
    long type, number;
    if (PyObject_CheckBuffer(object)) {
        return false;
    }
    const dl_exchange *table = sxp_dl_table(state, object);
    if (table != NULL) {
        dl_tensor tensor;
        bool good = table->tensor_of(object, &tensor) == 0;
        PyErr_Clear();
        return good && sxp_dl_on_gpu(tensor.device_type);
    }
    if (ask_device(object, &type, &number)) {
        return sxp_dl_on_gpu((int32_t)type);
    }
    return PyObject_HasAttrString(object, "__cuda_array_interface__") == 1;
}

/* ---- streams ---- */

static bool read_number(PyObject *number, void **stream)
{
    long long value = PyLong_AsLongLong(number);
    if (PyErr_Occurred()) {
        return false;
    }
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "stream: %lld is no stream of CUDA", value);
        return false;
    }
    *stream = (void *)(uintptr_t)value;
    return true;
}

/* The protocol of CUDA's Python packages: (0, number), or a method that answers it. */
static bool read_protocol(PyObject *answer, void **stream)
{
    PyObject *pair = PyCallable_Check(answer) ? PyObject_CallNoArgs(answer) : Py_NewRef(answer);
    bool good = pair != NULL && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 &&
                PyLong_Check(PyTuple_GetItem(pair, 0)) && PyLong_Check(PyTuple_GetItem(pair, 1));
    if (!good && pair != NULL) {
        PyErr_Format(PyExc_TypeError, "stream: __cuda_stream__ is %R, (0, number) is needed", pair);
    }
    good = good && read_number(PyTuple_GetItem(pair, 1), stream);
    Py_XDECREF(pair);
    return good;
}

bool sxp_stream_read(PyObject *given, void **stream)
{
    PyObject *answer;
    if (PyLong_Check(given) && !PyBool_Check(given)) {
        return read_number(given, stream);
    }
    if (!sxp_find_attribute(given, "__cuda_stream__", &answer)) {
        return false;
    }
    if (answer != NULL) {
        bool good = read_protocol(answer, stream);
        Py_DECREF(answer);
        return good;
    }
    if (!sxp_find_attribute(given, "cuda_stream", &answer)) {
        return false;
    }
    if (answer == NULL || !PyLong_Check(answer)) {
        PyErr_Format(PyExc_TypeError,
                     "stream: a number or an object with __cuda_stream__ or cuda_stream is needed, "
                     "not %R",
                     given);
        Py_XDECREF(answer);
        return false;
    }
    bool good = read_number(answer, stream);
    Py_DECREF(answer);
    return good;
}

bool sxp_stream_of(sxp_state *state, PyObject *object, int gpu, void **stream, bool *found)
{
    const dl_exchange *table = PyObject_CheckBuffer(object) ? NULL : sxp_dl_table(state, object);
    *found = table != NULL && table->stream_of != NULL;
    return !*found || table->stream_of(DL_CUDA, gpu, stream) == 0;
}

/* ---- the CUDA array interface, version 3 ---- */

/* The number behind the letter of "<f4" says how many bytes an element has; letters are those of NumPy. */
static bool check_typestr(const sxp_state *state, const sxp_what *what, PyObject *text,
                          const sxp_dtype *wanted)
{
    const char *word =
        text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    char letter = wanted->class == '?' ? 'b' : wanted->class;
    if (word != NULL && strlen(word) == 3 && *word != '>' && letter != 0 && word[1] == letter &&
        word[2] - '0' == wanted->bytes) {
        return true;
    }
    PyErr_Clear();
    sxp_refuse_dtype(state, what, word != NULL ? word : "without a type", wanted);
    return false;
}

/* A tuple of whole numbers. */
static bool read_extents(PyObject *tuple, uint32_t *rank, int64_t extent[SYMPLEX_RANK_MAX])
{
    Py_ssize_t n = tuple != NULL && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (n < 0 || n > SYMPLEX_RANK_MAX) {
        PyErr_SetString(PyExc_TypeError, "its shape or strides are no tuple of few numbers");
        return false;
    }
    *rank = (uint32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        extent[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

static PyObject *entry_of(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    return value == Py_None ? NULL : value;
}

/* 1: row-major without gaps; 0: not; -1: an exception. */
static int is_whole(PyObject *strides, const sxp_array *array, size_t bytes)
{
    int64_t stride[SYMPLEX_RANK_MAX], expected = (int64_t)bytes;
    uint32_t rank;
    if (strides == NULL) {
        return 1;
    }
    if (!read_extents(strides, &rank, stride) || rank != array->rank) {
        return PyErr_Occurred() ? -1 : 0;
    }
    for (uint32_t d = rank; d-- > 0;) {
        if (array->shape[d] != 1 && stride[d] != expected) {
            return 0;
        }
        expected *= array->shape[d];
    }
    return 1;
}

static bool read_address(PyObject *data, sxp_array *array)
{
    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        PyErr_SetString(PyExc_TypeError, "its data is no pair of address and read-only");
        return false;
    }
    array->data = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(data, 0));
    array->read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) == 1;
    return !PyErr_Occurred();
}

static bool read_interface(PyObject *dict, sxp_array *array)
{
    PyObject *version = entry_of(dict, "version"), *behind = entry_of(dict, "stream");
    if (version == NULL || PyLong_AsLong(version) < INTERFACE_VERSION_MIN) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "version 2 or later of the CUDA array interface is needed");
        return false;
    }
    if (entry_of(dict, "mask") != NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "it has a mask");
        return false;
    }
    array->has_behind = behind != NULL;
    return read_extents(entry_of(dict, "shape"), &array->rank, array->shape) &&
           read_address(entry_of(dict, "data"), array) &&
           (behind == NULL || read_number(behind, &array->behind));
}

static bool from_interface(const sxp_state *state, PyObject *dict, const sxp_what *what,
                           const sxp_dtype *wanted, int gpu, sxp_array *array)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "its CUDA array interface is no dict");
    } else if (read_interface(dict, array)) {
        if (!check_typestr(state, what, entry_of(dict, "typestr"), wanted)) {
            return false;
        }
        int whole = is_whole(entry_of(dict, "strides"), array, wanted->bytes);
        if (whole >= 0) {
            return whole == 1 || sxp_refuse_gaps(state, what, gpu);
        }
    }
    bool absent = PyErr_ExceptionMatches(PyExc_NotImplementedError);
    sxp_name_failure(absent ? PyExc_NotImplementedError : state->dtype_error, what);
    return false;
}

/* ---- taking one ---- */

static bool take_any(sxp_state *state, PyObject *object, const sxp_dtype *wanted,
                     const sxp_what *what, int gpu, void *stream, sxp_array *array)
{
    const dl_exchange *table = sxp_dl_table(state, object);
    if (table != NULL) { /* it says nothing of order: the framework's stream goes first */
        return sxp_from_table(state, table, object, what, wanted, gpu, array) &&
               sxp_stream_of(state, object, gpu, &array->behind, &array->has_behind);
    }
    PyObject *method;
    if (!sxp_find_attribute(object, "__dlpack__", &method)) {
        return false;
    }
    if (method != NULL) {
        uintptr_t number = stream != NULL ? (uintptr_t)stream : STREAM_LEGACY; /* 0 is no number */
        PyObject *word = PyLong_FromUnsignedLongLong(number);
        bool good = word != NULL && sxp_from_dlpack(state, method, word, what, wanted, gpu, array);
        Py_XDECREF(word);
        Py_DECREF(method);
        return good;
    }
    if (!sxp_find_attribute(object, "__cuda_array_interface__", &method)) {
        return false;
    }
    if (method == NULL) {
        PyErr_Format(state->dtype_error, SXP_WHAT ": it is no array on a GPU", what->kind,
                     what->name);
        return false;
    }
    bool good = from_interface(state, method, what, wanted, gpu, array);
    Py_DECREF(method);
    return good;
}

bool sxp_device_take(sxp_state *state, PyObject *object, symplex_dtype dtype, bool writable,
                     const sxp_what *what, int gpu, void *stream, sxp_array *array)
{
    memset(array, 0, sizeof(*array));
    bool good = take_any(state, object, &sxp_dtypes[dtype], what, gpu, stream, array);
    if (good && writable && array->read_only) {
        PyErr_Format(state->layout_error, SXP_WHAT ": it is read-only and would be written",
                     what->kind, what->name);
        good = false;
    }
    if (good && (uintptr_t)array->data % DEVICE_ALIGN != 0) {
        PyErr_Format(state->layout_error,
                     SXP_WHAT ": its address, %p, is not a multiple of %u, as that of a slice; a "
                              "copy of it is aligned",
                     what->kind, what->name, array->data, DEVICE_ALIGN);
        good = false;
    }
    if (!good) {
        sxp_array_release(array);
    }
    return good;
}

/* ---- what an array is, without using it ---- */

static PyObject *extents(const int64_t *shape, uint32_t rank)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)rank);
    for (uint32_t d = 0; tuple != NULL && d < rank; d++) {
        PyObject *extent = PyLong_FromLongLong(shape[d]);
        if (extent == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)d, extent) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* It is taken as each element type in turn, on the device that it says, until one fits. */
static PyObject *type_of(sxp_state *state, PyObject *object, const sxp_what *what)
{
    long type, number = 0;
    (void)ask_device(object, &type, &number);
    for (size_t i = 0; i < SXP_DTYPE_COUNT; i++) {
        sxp_array array = {.data = NULL};
        bool good = take_any(state, object, &sxp_dtypes[i], what, (int)number,
                             (void *)(uintptr_t)STREAM_LEGACY, &array);
        PyObject *made = good ? Py_BuildValue("(sNl)", sxp_dtypes[i].name,
                                              extents(array.shape, array.rank), number)
                              : NULL;
        sxp_array_release(&array);
        if (made != NULL || !PyErr_ExceptionMatches(state->dtype_error)) {
            return made;
        }
        PyErr_Clear();
    }
    PyErr_Format(state->dtype_error, SXP_WHAT ": elements of a type that is not known", what->kind,
                 what->name);
    return NULL;
}

PyObject *sxp_device_type(PyObject *module, PyObject *args)
{
    sxp_state *state = PyModule_GetState(module);
    PyObject *object;
    sxp_what what = {"argument", NULL};
    if (!PyArg_ParseTuple(args, "Os", &object, &what.name)) {
        return NULL;
    }
    return sxp_on_gpu(state, object) ? type_of(state, object, &what) : Py_NewRef(Py_None);
}

PyObject *sxp_gpu(PyObject *module, PyObject *number)
{
    const sxp_state *state = PyModule_GetState(module);
    symplex_gpu_info info;
    symplex_error error;
    symplex_code code;
    long gpu = PyLong_AsLong(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = symplex_gpu_describe((int)gpu, &info, &error);
    Py_END_ALLOW_THREADS;
    if (code != SYMPLEX_OK) {
        sxp_raise(state, &error, NULL);
        return NULL;
    }
    return Py_BuildValue("(sIs)", info.name, info.capability, info.target);
}
