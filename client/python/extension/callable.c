/* callable.c - the type symplex._c.Module: opening, what it has, weights and state. */
#include "client/python/extension/callable.h"

#include <string.h>

#define ROLE_COUNT (SYMPLEX_STATE_TENSOR + 1)

static sxp_module *module_of(PyObject *self)
{
    return (sxp_module *)(void *)self;
}

/* ---- opening ---- */

static bool list_symbols(sxp_module *self)
{
    self->symbol_count = symplex_module_symbol_count(self->module);
    self->symbol = PyMem_Calloc(self->symbol_count + 1, sizeof(*self->symbol));
    if (self->symbol == NULL) {
        return PyErr_NoMemory() != NULL;
    }
    for (size_t i = 0; i < self->symbol_count; i++) {
        symplex_error error;
        if (symplex_module_symbol(self->module, i, &self->symbol[i], &error) != SYMPLEX_OK) {
            sxp_raise(self->state, &error, NULL);
            return false;
        }
    }
    return true;
}

/* The terms of a dimension, behind those of others. */
static bool read_axis(sxp_module *self, size_t index, uint32_t dimension, sxp_axis *axis)
{
    size_t count = symplex_module_terms(self->module, index, dimension, NULL, 0);
    *axis = (sxp_axis){self->term_count, count, count > 1};
    if (count == 0) {
        return true;
    }
    symplex_axis *more = PyMem_Realloc(self->term, (self->term_count + count) * sizeof(*more));
    if (more == NULL) {
        return PyErr_NoMemory() != NULL;
    }
    self->term = more;
    (void)symplex_module_terms(self->module, index, dimension, more + self->term_count, count);
    axis->sum = axis->sum || more[self->term_count].other != SYMPLEX_NO_TENSOR;
    self->term_count += count;
    self->sums = self->sums || axis->sum;
    return true;
}

static bool read_tensor(sxp_module *self, size_t index, const symplex_tensor *from)
{
    sxp_list *list = &self->role[from->role];
    sxp_tensor *more = PyMem_Realloc(list->tensor, (list->count + 1) * sizeof(*more));
    if (more == NULL) {
        return PyErr_NoMemory() != NULL;
    }
    list->tensor = more;
    sxp_tensor *tensor = &more[list->count++];
    memset(tensor, 0, sizeof(*tensor));
    tensor->index = index;
    tensor->name = from->name;
    tensor->dtype = from->dtype;
    tensor->rank = from->rank;
    tensor->alias = from->alias;
    for (uint32_t d = 0; d < from->rank; d++) {
        if (!read_axis(self, index, d, &tensor->axis[d])) {
            return false;
        }
        tensor->shape[d] = tensor->axis[d].count == 0 ? from->shape[d] : -1;
    }
    return true;
}

/* Outputs in place of inputs: from numbers of the interface to places among the inputs. */
static void resolve_aliases(sxp_module *self)
{
    const sxp_list *in = &self->role[SYMPLEX_INPUT_TENSOR],
                   *out = &self->role[SYMPLEX_OUTPUT_TENSOR];
    for (size_t i = 0; i < out->count; i++) {
        size_t k = 0;
        while (k < in->count && in->tensor[k].index != out->tensor[i].alias) {
            k++;
        }
        out->tensor[i].alias = k < in->count ? k : SYMPLEX_NO_TENSOR;
    }
}

static bool list_tensors(sxp_module *self)
{
    for (size_t i = 0; i < symplex_module_tensor_count(self->module); i++) {
        symplex_tensor tensor;
        symplex_error error;
        if (symplex_module_tensor(self->module, i, &tensor, &error) != SYMPLEX_OK) {
            sxp_raise(self->state, &error, NULL);
            return false;
        }
        if (tensor.dtype >= SXP_DTYPE_COUNT || tensor.role >= ROLE_COUNT) {
            PyErr_Format(PyExc_NotImplementedError, "tensor %s: element type %s", tensor.name,
                         tensor.dtype_name);
            return false;
        }
        if (!read_tensor(self, i, &tensor)) {
            return false;
        }
    }
    resolve_aliases(self);
    return true;
}

/* Between rounds of a loop: Ctrl-C ends the run, its exception is set. */
static int ask_for_signals(void *self)
{
    sxp_module *module = self;
    if (module->caller == NULL) { /* XLA runs it */
        return 0;
    }
    PyEval_RestoreThread(module->caller);
    int stops = PyErr_CheckSignals();
    module->caller = PyEval_SaveThread();
    return stops;
}

/* Of a module that was opened, or was not. */
static bool list_all(sxp_module *self, symplex_code code, const symplex_error *error)
{
    if (code != SYMPLEX_OK) {
        sxp_raise(self->state, error, NULL);
        return false;
    }
    symplex_module_info info;
    symplex_module_describe(self->module, &info);
    self->gpu = info.gpu;
    symplex_module_watch(self->module, ask_for_signals, self);
    return list_symbols(self) && list_tensors(self) && sxp_weights_make(self);
}

/* One that was compiled and opened in one call. */
static bool take_opened(sxp_module *self, PyObject *capsule)
{
    symplex_error error = {.code = SYMPLEX_OK};
    self->module = sxp_opened_take(capsule);
    return self->module != NULL ? list_all(self, SYMPLEX_OK, &error)
                                : PyErr_Format(PyExc_TypeError, "no module in the capsule") != NULL;
}

/* One of `path` and `bytes` is there. */
static bool open_module(sxp_module *self, const char *path, const Py_buffer *bytes,
                        unsigned threads)
{
    symplex_error error;
    symplex_code code;
    Py_BEGIN_ALLOW_THREADS;
    code = path != NULL ? symplex_module_open_file(path, threads, &self->module, &error)
                        : symplex_module_open(bytes->buf, (size_t)bytes->len, threads,
                                              &self->module, &error);
    Py_END_ALLOW_THREADS;
    return list_all(self, code, &error);
}

/* Without what it runs. */
static PyObject *allocate_module(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *made = allocate(type, 0);
    if (made != NULL) {
        sxp_module *self = module_of(made);
        self->owner = PyImport_ImportModule("symplex._c");
        self->state = self->owner != NULL ? PyModule_GetState(self->owner) : NULL;
        self->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        if (self->state == NULL) {
            Py_CLEAR(made);
        }
    }
    return made;
}

static PyObject *new_module(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    const char *path;
    PyObject *from; /* its bytes, or a capsule of sxp_compile */
    Py_buffer bytes = {.obj = NULL};
    unsigned threads;
    (void)keywords; /* the class of the package takes none */
    if (!PyArg_ParseTuple(args, "zOI", &path, &from, &threads) ||
        (from != Py_None && !PyCapsule_CheckExact(from) &&
         PyObject_GetBuffer(from, &bytes, PyBUF_SIMPLE) != 0)) {
        return NULL;
    }
    PyObject *made = allocate_module(type);
    bool good = made != NULL &&
                (PyCapsule_CheckExact(from) ? take_opened(module_of(made), from)
                                            : open_module(module_of(made), path, &bytes, threads));
    if (!good) {
        Py_CLEAR(made);
    }
    if (bytes.obj != NULL) {
        PyBuffer_Release(&bytes);
    }
    return made;
}

/* It begins as a module that was opened does; what Python keeps of a module it has for itself. */
static PyObject *share(PyObject *object, PyObject *ignored)
{
    sxp_module *from = module_of(object);
    PyObject *made = allocate_module(Py_TYPE(object));
    (void)ignored;
    if (made != NULL) {
        sxp_module *self = module_of(made);
        symplex_error error;
        symplex_code code;
        Py_BEGIN_ALLOW_THREADS;
        (void)pthread_mutex_lock(&from->lock); /* no weight is bound meanwhile */
        code = symplex_module_share(from->module, &self->module, &error);
        (void)pthread_mutex_unlock(&from->lock);
        Py_END_ALLOW_THREADS;
        if (!list_all(self, code, &error)) {
            Py_CLEAR(made);
        }
    }
    return made;
}

static void free_module(PyObject *object)
{
    sxp_module *self = module_of(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    symplex_module_close(self->module);
    sxp_weights_free(self);
    for (size_t role = 0; role < ROLE_COUNT; role++) {
        for (size_t i = 0; i < self->role[role].count; i++) {
            Py_XDECREF(self->role[role].tensor[i].dtype_object);
            Py_XDECREF(self->role[role].tensor[i].store_object);
        }
        PyMem_Free(self->role[role].tensor);
    }
    PyMem_Free(self->symbol);
    PyMem_Free(self->term);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int visit_all(PyObject *object, visitproc visit, void *arg)
{
    sxp_module *self = module_of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->owner);
    for (size_t i = 0; self->weight != NULL && i < self->role[SYMPLEX_WEIGHT_TENSOR].count; i++) {
        Py_VISIT(self->weight[i].object);
    }
    return 0;
}

/* ---- what it has ---- */

/* [(role, name, dtype, shape)], in the order of the arguments and results. */
static PyObject *tensors(PyObject *object, PyObject *ignored)
{
    static const char *const word[] = {"input", "output", "weight", "state"};
    sxp_module *self = module_of(object);
    PyObject *list = PyList_New(0);
    (void)ignored;
    for (size_t role = 0; list != NULL && role < ROLE_COUNT; role++) {
        for (size_t i = 0; list != NULL && i < self->role[role].count; i++) {
            const sxp_tensor *tensor = &self->role[role].tensor[i];
            PyObject *row =
                Py_BuildValue("(sssN)", word[role], tensor->name, sxp_dtypes[tensor->dtype].name,
                              sxp_shape_text(self, tensor));
            if (row == NULL || PyList_Append(list, row) != 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(row);
        }
    }
    return list;
}

/* {name: [(low, high, step), ...]} */
static PyObject *symbols(PyObject *object, PyObject *ignored)
{
    sxp_module *self = module_of(object);
    PyObject *dict = PyDict_New();
    (void)ignored;
    for (size_t s = 0; dict != NULL && s < self->symbol_count; s++) {
        const symplex_symbol *symbol = &self->symbol[s];
        PyObject *list = PyList_New((Py_ssize_t)symbol->range_count);
        for (size_t i = 0; list != NULL && i < symbol->range_count; i++) {
            const symplex_range *range = &symbol->range[i];
            PyObject *row = Py_BuildValue("(LLL)", (long long)range->low, (long long)range->high,
                                          (long long)range->step);
            if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) != 0) {
                Py_CLEAR(list);
            }
        }
        if (list == NULL || PyDict_SetItemString(dict, symbol->name, list) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(list);
    }
    return dict;
}

static PyObject *describe(PyObject *object, PyObject *ignored)
{
    sxp_module *self = module_of(object);
    symplex_module_info info;
    (void)ignored;
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&self->lock);
    symplex_module_describe(self->module, &info);
    (void)pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("{s:s,s:s,s:I,s:d,s:d,s:d,s:I,s:s,s:i,s:s}", "key", info.key, "target",
                         info.target, "threads", info.threads, "flops", info.flops, "estimate_ns",
                         info.estimate_ns, "floor_ns", info.floor_ns, "variant_count",
                         info.variant_count, "variant", info.variant, "gpu", info.gpu, "gpu_name",
                         info.gpu_name);
}

static PyObject *report(PyObject *object, PyObject *ignored)
{
    sxp_module *self = module_of(object);
    symplex_error error;
    char *json = NULL;
    size_t size = 0;
    (void)ignored;
    if (symplex_module_report(self->module, &json, &size, &error) != SYMPLEX_OK) {
        sxp_raise(self->state, &error, NULL);
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8(json, (Py_ssize_t)size, "replace");
    symplex_free(json);
    return text;
}

/* ---- weights and state ---- */

sxp_tensor *sxp_find(sxp_module *self, symplex_role role, const char *kind, const char *name)
{
    for (size_t i = 0; i < self->role[role].count; i++) {
        if (strcmp(self->role[role].tensor[i].name, name) == 0) {
            return &self->role[role].tensor[i];
        }
    }
    PyErr_Format(PyExc_KeyError, "the module has no %s '%s'", kind, name);
    return NULL;
}

bool sxp_take(sxp_module *self, const sxp_tensor *tensor, const char *kind, PyObject *object,
              bool writable, sxp_array *array)
{
    const sxp_what what = {kind, tensor->name};
    if (!sxp_array_take(self->state, object, tensor->dtype, writable, &what, array)) {
        return false;
    }
    if (!sxp_shape_check(self, tensor, array, &what, NULL)) { /* neither follows symbols */
        sxp_array_release(array);
        return false;
    }
    return true;
}

size_t sxp_size_of(const sxp_tensor *tensor)
{
    size_t size = sxp_dtypes[tensor->dtype].bytes;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        size *= (size_t)tensor->shape[d];
    }
    return size;
}

/* (name, array, write): copies state out, or in. */
static PyObject *state(PyObject *object, PyObject *args)
{
    sxp_module *self = module_of(object);
    const char *name;
    PyObject *given;
    int write;
    sxp_array array;
    if (!PyArg_ParseTuple(args, "sOp", &name, &given, &write)) {
        return NULL;
    }
    sxp_tensor *tensor = sxp_find(self, SYMPLEX_STATE_TENSOR, "state", name);
    if (tensor == NULL || !sxp_take(self, tensor, "state", given, write == 0, &array)) {
        return NULL;
    }
    symplex_error error;
    symplex_code code;
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&self->lock);
    code = write != 0 ? symplex_module_state_write(self->module, tensor->index, array.data,
                                                   sxp_size_of(tensor), &error)
                      : symplex_module_state_read(self->module, tensor->index, array.data,
                                                  sxp_size_of(tensor), &error);
    (void)pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    sxp_array_release(&array);
    if (code != SYMPLEX_OK) {
        sxp_raise(self->state, &error, NULL);
        return NULL;
    }
    return Py_NewRef(Py_None);
}

static PyObject *reset_state(PyObject *object, PyObject *ignored)
{
    sxp_module *self = module_of(object);
    (void)ignored;
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&self->lock);
    (void)symplex_module_state_reset(self->module, NULL);
    (void)pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
}

/* In a child process: a thread that held the lock is not there, so it is a new one. */
static PyObject *after_fork(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    module_of(object)->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    module_of(object)->caller = NULL;
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"_tensors", tensors, METH_NOARGS, "[(role, name, dtype, shape)]"},
    {"_symbols", symbols, METH_NOARGS, "{name: [(low, high, step)]}"},
    {"_describe", describe, METH_NOARGS, "What symplex_module_describe says."},
    {"_report", report, METH_NOARGS, "The report of the compiler as JSON."},
    {"_bind_weight", sxp_bind_weight, METH_VARARGS, "(name, array): used until the next one."},
    {"_bind_weights", sxp_bind_weights, METH_VARARGS,
     "(arrays, owners): all weights, and the objects whose changes _holds looks for, or None."},
    {"_holds", sxp_holds, METH_VARARGS,
     "(owners, content): bound to these objects, which lie where they did; with `content`: as they "
     "are now."},
    {"_share", share, METH_NOARGS, "Another module of the same code, with weights of its own."},
    {"_state", state, METH_VARARGS,
     "(name, array, write): copies state out of or into the module."},
    {"_reset_state", reset_state, METH_NOARGS, "All state gets its first values."},
    {"_after_fork", after_fork, METH_NOARGS, "In a child process: its lock is free."},
    {"_profile", (PyCFunction)(void (*)(void))sxp_profile, METH_VARARGS | METH_KEYWORDS,
     "As a call: (results, what each launch took)."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)new_module},     {Py_tp_dealloc, (void *)free_module},
    {Py_tp_traverse, (void *)visit_all}, {Py_tp_call, (void *)sxp_call},
    {Py_tp_methods, (void *)methods},    {0, NULL}};

PyType_Spec sxp_module_spec = {.name = "symplex._c.Module",
                               .basicsize = sizeof(sxp_module),
                               .flags =
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               .slots = slots};
