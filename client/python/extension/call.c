/* call.c - a run: arguments to memory, values of symbols from their shapes, results as new arrays. */
#include "client/python/extension/device.h"

#include <stdlib.h>

/* Everything of one call. */
typedef struct {
    sxp_module *self;
    sxp_list in, out;
    PyObject **given;       /* [in.count] borrowed */
    PyObject **result;      /* [out.count] owned; what the caller gets */
    sxp_array *input;       /* [in.count] */
    sxp_array *output;      /* [out.count] */
    symplex_memory *memory; /* [in.count + out.count] */
    symplex_dim *dim;       /* [symbol_count] */
    sxp_value *value;       /* [symbol_count] */
    PyObject *out_given;    /* borrowed; NULL: new arrays */
    PyObject *stream_given; /* borrowed; NULL: none */
    void *stream;           /* of a call with arrays on a GPU */
    bool device;            /* that is what it is; data of arrays are addresses there */
    uint64_t *ns;           /* of a profile: one for each launch */
    symplex_launch *launch; /* likewise */
    size_t launch_count;
    bool timed;
} call;

/* ---- memory of the call: one block ---- */

static call *begin(sxp_module *self, bool timed)
{
    sxp_list in = self->role[SYMPLEX_INPUT_TENSOR], out = self->role[SYMPLEX_OUTPUT_TENSOR];
    size_t inputs = in.count, outputs = out.count, both = inputs + outputs;
    size_t size = sizeof(call) + both * (sizeof(sxp_array) + sizeof(PyObject *)) +
                  both * sizeof(symplex_memory) +
                  self->symbol_count * (sizeof(symplex_dim) + sizeof(sxp_value));
    call *c = PyMem_Calloc(1, size);
    if (c == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    c->self = self;
    c->in = in;
    c->out = out;
    c->timed = timed;
    c->input = (sxp_array *)(c + 1);
    c->output = c->input + inputs;
    c->given = (PyObject **)(c->output + outputs);
    c->result = c->given + inputs;
    c->memory = (symplex_memory *)(c->result + outputs);
    c->dim = (symplex_dim *)(c->memory + both);
    c->value = (sxp_value *)(c->dim + self->symbol_count);
    return c;
}

static void end(call *c)
{
    for (size_t i = 0; i < c->in.count; i++) {
        sxp_array_release(&c->input[i]);
    }
    for (size_t i = 0; i < c->out.count; i++) {
        sxp_array_release(&c->output[i]);
        Py_XDECREF(c->result[i]);
    }
    free(c->ns);
    free(c->launch);
    PyMem_Free(c);
}

/* ---- arguments ---- */

/* One of `dims`. */
static bool read_dim(call *c, PyObject *key, PyObject *number)
{
    size_t s = 0;
    while (s < c->self->symbol_count && PyUnicode_Check(key) &&
           PyUnicode_CompareWithASCIIString(key, c->self->symbol[s].name) != 0) {
        s++;
    }
    if (s == c->self->symbol_count || !PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "dims: the module has no dimension %R", key);
        return false;
    }
    int64_t value = PyLong_AsLongLong(number);
    c->value[s].value = value;
    if (value < 1 && !PyErr_Occurred()) {
        PyErr_Format(c->self->state->shape_error, "dims: %s = %R, at least 1 is needed",
                     c->self->symbol[s].name, number);
    }
    return value >= 1;
}

static bool read_dims(call *c, PyObject *dims)
{
    if (!PyDict_Check(dims)) {
        PyErr_SetString(PyExc_TypeError, "dims: a dict of names and values is needed");
        return false;
    }
    PyObject *pairs = PyDict_Items(dims);
    bool good = pairs != NULL;
    for (Py_ssize_t i = 0; good && i < PyList_Size(pairs); i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        good = read_dim(c, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    }
    Py_XDECREF(pairs);
    return good;
}

static size_t find_input(const call *c, PyObject *key)
{
    size_t i = 0;
    while (i < c->in.count && PyUnicode_CompareWithASCIIString(key, c->in.tensor[i].name) != 0) {
        i++;
    }
    return i;
}

static bool read_keyword(call *c, PyObject *key, PyObject *object)
{
    if (PyUnicode_CompareWithASCIIString(key, "out") == 0) {
        c->out_given = object == Py_None ? NULL : object;
        return true;
    }
    if (PyUnicode_CompareWithASCIIString(key, "stream") == 0) {
        c->stream_given = object == Py_None ? NULL : object;
        return true;
    }
    if (PyUnicode_CompareWithASCIIString(key, "dims") == 0) {
        return object == Py_None || read_dims(c, object);
    }
    size_t i = find_input(c, key);
    if (i == c->in.count) {
        PyErr_Format(PyExc_TypeError, "the module has no input %R", key);
        return false;
    }
    if (c->given[i] != NULL) {
        PyErr_Format(PyExc_TypeError, "argument '%s' is given twice", c->in.tensor[i].name);
        return false;
    }
    c->given[i] = object;
    return true;
}

static bool read_arguments(call *c, PyObject *args, PyObject *keywords)
{
    Py_ssize_t n = PyTuple_Size(args), at = 0;
    PyObject *key, *object;
    if ((size_t)n > c->in.count) {
        PyErr_Format(PyExc_TypeError, "%zd arguments given, the module has %zu inputs", n,
                     c->in.count);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        c->given[i] = PyTuple_GetItem(args, i);
    }
    while (keywords != NULL && PyDict_Next(keywords, &at, &key, &object)) {
        if (!read_keyword(c, key, object)) {
            return false;
        }
    }
    for (size_t i = 0; i < c->in.count; i++) {
        if (c->given[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "argument '%s' is missing", c->in.tensor[i].name);
            return false;
        }
    }
    return true;
}

/* An input in whose memory an output lies is written. */
static bool is_written(const call *c, size_t input)
{
    for (size_t i = 0; i < c->out.count; i++) {
        if (c->out.tensor[i].alias == input) {
            return true;
        }
    }
    return false;
}

static size_t bytes_of(const sxp_tensor *tensor, const sxp_array *array)
{
    size_t bytes = sxp_dtypes[tensor->dtype].bytes;
    for (uint32_t d = 0; d < array->rank; d++) {
        bytes *= (size_t)array->shape[d];
    }
    return bytes;
}

static bool take_array(call *c, const sxp_tensor *tensor, PyObject *object, bool writable,
                       const sxp_what *what, sxp_array *array)
{
    sxp_state *state = c->self->state;
    return c->device ? sxp_device_take(state, object, tensor->dtype, writable, what, c->self->gpu,
                                       c->stream, array)
                     : sxp_array_take(state, object, tensor->dtype, writable, what, array);
}

/* What extents that are sums or products tell, as long as one does, and whether they fit. */
static bool settle_sums(call *c)
{
    for (bool learned = c->self->sums; learned;) {
        learned = false;
        for (size_t i = 0; i < c->in.count; i++) {
            const sxp_what what = {"argument", c->in.tensor[i].name};
            if (!sxp_sums_check(c->self, &c->in.tensor[i], &c->input[i], &what, c->value,
                                &learned)) {
                return false;
            }
        }
    }
    return true;
}

/* Every symbol gets its value. */
static bool settle_values(call *c)
{
    for (size_t s = 0; s < c->self->symbol_count; s++) {
        int64_t *value = &c->value[s].value;
        *value = *value != 0 ? *value : c->self->symbol[s].value;
    }
    if (!settle_sums(c)) {
        return false;
    }
    for (size_t s = 0; s < c->self->symbol_count; s++) {
        const char *name = c->self->symbol[s].name;
        c->dim[s] = (symplex_dim){name, c->value[s].value};
        if (c->value[s].value == 0) {
            PyErr_Format(c->self->state->shape_error,
                         "no argument tells the dimension %s: dims={\"%s\": ...} does", name, name);
            return false;
        }
    }
    return true;
}

static bool take_inputs(call *c)
{
    for (size_t i = 0; i < c->in.count; i++) {
        const sxp_tensor *tensor = &c->in.tensor[i];
        sxp_array *array = &c->input[i];
        const sxp_what what = {"argument", tensor->name};
        if (!take_array(c, tensor, c->given[i], is_written(c, i), &what, array) ||
            !sxp_shape_check(c->self, tensor, array, &what, c->value)) {
            return false;
        }
        c->memory[i] = (symplex_memory){tensor->index, array->data, bytes_of(tensor, array)};
    }
    return settle_values(c);
}

/* The object that was given for output `i`; borrowed. */
static PyObject *given_for(const call *c, size_t i)
{
    PyObject *given = c->out_given;
    if (PyDict_Check(given)) {
        return PyDict_GetItemString(given, c->out.tensor[i].name);
    }
    if (PyTuple_Check(given) || PyList_Check(given)) {
        Py_ssize_t n = PyTuple_Check(given) ? PyTuple_Size(given) : PyList_Size(given);
        return (size_t)n != c->out.count ? NULL
               : PyTuple_Check(given)    ? PyTuple_GetItem(given, (Py_ssize_t)i)
                                         : PyList_GetItem(given, (Py_ssize_t)i);
    }
    return c->out.count == 1 ? given : NULL;
}

/* ---- arrays on a GPU ---- */

/* Argument or output `i` of those that are given; NULL: no more. */
static PyObject *given_at(const call *c, size_t i, sxp_what *what)
{
    if (i < c->in.count) {
        *what = (sxp_what){"argument", c->in.tensor[i].name};
        return c->given[i];
    }
    size_t out = i - c->in.count;
    *what = (sxp_what){"out", out < c->out.count ? c->out.tensor[out].name : ""};
    return c->out_given != NULL && out < c->out.count ? given_for(c, out) : NULL;
}

/* Which stream: the one that is given, that of the framework of the first array that says so, or the default one. */
static bool find_stream(call *c)
{
    sxp_what what;
    bool found = false;
    c->stream = NULL;
    if (c->stream_given != NULL) {
        return sxp_stream_read(c->stream_given, &c->stream);
    }
    for (size_t i = 0; !found && i < c->in.count + c->out.count; i++) {
        PyObject *object = given_at(c, i, &what);
        if (object != NULL &&
            !sxp_stream_of(c->self->state, object, c->self->gpu, &c->stream, &found)) {
            return false;
        }
    }
    return true;
}

/* Arguments and outputs lie in memory of the host, or all on the GPU. */
static bool find_side(call *c)
{
    sxp_what what, host = {.kind = NULL}, device = {.kind = NULL};
    sxp_state *state = c->self->state;
    for (size_t i = 0; c->self->gpu >= 0 && i < c->in.count + c->out.count; i++) {
        PyObject *object = given_at(c, i, &what);
        if (object != NULL) {
            *(sxp_on_gpu(state, object) ? &device : &host) = what;
        }
    }
    c->device = device.kind != NULL || (c->in.count == 0 && c->stream_given != NULL);
    if (device.kind != NULL && host.kind != NULL) {
        PyErr_Format(state->layout_error,
                     SXP_WHAT ": it lies in memory of the host, and " SXP_WHAT
                              " on a GPU; nothing is copied from one to the other",
                     host.kind, host.name, device.kind, device.name);
        return false;
    }
    if (c->stream_given != NULL && (!c->device || c->self->gpu < 0)) {
        PyErr_SetString(PyExc_TypeError, c->self->gpu < 0
                                             ? "stream: the module runs on the processor"
                                             : "stream: it is for arrays on a GPU");
        return false;
    }
    if (c->device && c->timed) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "profile: of arrays on a GPU; it takes arrays of the host");
        return false;
    }
    return !c->device || find_stream(c);
}

/* ---- results ---- */

/* numpy's element types of an output, once. */
static bool prepare_dtype(sxp_state *state, sxp_tensor *tensor)
{
    const sxp_dtype *dtype = &sxp_dtypes[tensor->dtype];
    if (tensor->store_object != NULL) {
        return true;
    }
    if (!sxp_need_numpy(state)) {
        return false;
    }
    if (dtype->class == 0) { /* numpy knows their names once this package is there */
        PyObject *package = PyImport_ImportModule("ml_dtypes");
        if (package == NULL) {
            return false;
        }
        Py_DECREF(package);
    }
    tensor->dtype_object = PyObject_CallFunction(state->dtype_of, "s", dtype->name);
    tensor->store_object = tensor->dtype_object != NULL
                               ? PyObject_CallFunction(state->dtype_of, "s", dtype->store)
                               : NULL;
    return tensor->store_object != NULL;
}

static PyObject *shape_of(const call *c, const sxp_tensor *tensor, int64_t shape[SYMPLEX_RANK_MAX])
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)tensor->rank);
    for (uint32_t d = 0; tuple != NULL && d < tensor->rank; d++) {
        shape[d] = sxp_extent_of(c->self, tensor, d, c->value);
        PyObject *extent = PyLong_FromLongLong(shape[d]);
        if (extent == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)d, extent) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static bool make_result(call *c, size_t i)
{
    sxp_state *state = c->self->state;
    sxp_tensor *tensor = &c->out.tensor[i];
    sxp_array *array = &c->output[i];
    array->rank = tensor->rank;
    PyObject *shape =
        c->device || prepare_dtype(state, tensor) ? shape_of(c, tensor, array->shape) : NULL;
    if (shape == NULL) {
        return false;
    }
    if (c->device) {
        uint64_t address = 0;
        c->result[i] = sxp_device_new(c->self, tensor, shape, bytes_of(tensor, array), &address);
        Py_DECREF(shape);
        array->data = (void *)(uintptr_t)address;
        return c->result[i] != NULL;
    }
    c->result[i] = PyObject_CallFunctionObjArgs(state->empty, shape, tensor->store_object, NULL);
    Py_DECREF(shape);
    if (c->result[i] == NULL ||
        PyObject_GetBuffer(c->result[i], &array->view, PyBUF_WRITABLE) != 0) {
        array->view.obj = NULL;
        return false;
    }
    array->data = array->view.buf;
    return true;
}

static bool overlaps(const symplex_memory *a, const symplex_memory *b)
{
    const char *first = a->memory, *second = b->memory;
    return first < second + b->size && second < first + a->size;
}

/* No output may lie where an input or another output does. */
static bool check_apart(const call *c, const sxp_what *what, const symplex_memory *memory)
{
    for (const symplex_memory *other = c->memory; other < memory; other++) {
        if (overlaps(other, memory)) {
            PyErr_Format(c->self->state->layout_error,
                         SXP_WHAT ": its memory overlaps that of another argument", what->kind,
                         what->name);
            return false;
        }
    }
    return true;
}

static bool take_result(call *c, size_t i)
{
    sxp_tensor *tensor = &c->out.tensor[i];
    const sxp_what what = {"out", tensor->name};
    PyObject *object = given_for(c, i);
    if (object == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "out: an array for output '%s' is needed (an array, a tuple of %zu, or a dict "
                     "by names)",
                     tensor->name, c->out.count);
        return false;
    }
    bool learned = false; /* nothing is left to learn */
    c->result[i] = Py_NewRef(object);
    return take_array(c, tensor, object, true, &what, &c->output[i]) &&
           sxp_shape_check(c->self, tensor, &c->output[i], &what, c->value) &&
           sxp_sums_check(c->self, tensor, &c->output[i], &what, c->value, &learned);
}

/* Memory for the outputs, behind that of the inputs. */
static bool place_outputs(call *c, size_t *count)
{
    *count = c->in.count;
    for (size_t i = 0; i < c->out.count; i++) {
        const sxp_tensor *tensor = &c->out.tensor[i];
        if (tensor->alias != SYMPLEX_NO_TENSOR) {
            c->result[i] = Py_NewRef(c->given[tensor->alias]); /* the library binds it */
            continue;
        }
        if (!(c->out_given != NULL ? take_result(c, i) : make_result(c, i))) {
            return false;
        }
        symplex_memory *memory = &c->memory[(*count)++];
        *memory =
            (symplex_memory){tensor->index, c->output[i].data, bytes_of(tensor, &c->output[i])};
        const sxp_what what = {"out", tensor->name};
        if (c->out_given != NULL && !check_apart(c, &what, memory)) {
            return false;
        }
    }
    return true;
}

/* ---- the run ---- */

/* What symplex_module_call does, with the time of each launch. */
static symplex_code run_timed(call *c, size_t count, symplex_error *error)
{
    symplex_module *module = c->self->module;
    symplex_code code = symplex_module_choose(module, c->dim, c->self->symbol_count, error);
    for (size_t i = 0; code == SYMPLEX_OK && i < count; i++) {
        const symplex_memory *m = &c->memory[i];
        code = symplex_module_bind(module, m->index, m->memory, m->size, error);
    }
    if (code != SYMPLEX_OK) {
        return code;
    }
    c->launch_count = symplex_module_launch_count(module);
    c->ns = calloc(c->launch_count + 1, sizeof(*c->ns));
    c->launch = calloc(c->launch_count + 1, sizeof(*c->launch));
    if (c->ns == NULL || c->launch == NULL) {
        return SYMPLEX_OK; /* the caller sees it */
    }
    for (size_t i = 0; code == SYMPLEX_OK && i < c->launch_count; i++) {
        code = symplex_module_launch(module, i, &c->launch[i], error);
    }
    return code == SYMPLEX_OK ? symplex_module_run_timed(module, c->ns, c->launch_count, error)
                              : code;
}

/* A run on the caller's stream, behind what writes its arguments and behind the module's runs on other streams. */
static symplex_code enqueue(call *c, size_t count, symplex_error *error)
{
    symplex_module *module = c->self->module;
    symplex_code code = c->self->symbol_count > 0
                            ? symplex_module_choose(module, c->dim, c->self->symbol_count, error)
                            : SYMPLEX_OK;
    for (size_t i = 0; code == SYMPLEX_OK && i < c->in.count + c->out.count; i++) {
        const sxp_array *array = &c->input[i]; /* outputs lie behind inputs */
        code = array->has_behind ? symplex_module_order(module, array->behind, c->stream, error)
                                 : SYMPLEX_OK;
    }
    for (size_t i = 0; code == SYMPLEX_OK && i < count; i++) {
        const symplex_memory *m = &c->memory[i];
        code = symplex_module_bind_device(module, m->index, (uintptr_t)m->memory, m->size, error);
    }
    code = code == SYMPLEX_OK ? symplex_module_follow(module, c->stream, error) : code;
    if (code != SYMPLEX_OK) {
        return code;
    }
    code = symplex_module_enqueue(module, c->stream, error);
    if (code == SYMPLEX_USAGE) { /* the first run, or after another weight, state or extent */
        code = symplex_module_prepare(module, error);
        code = code == SYMPLEX_OK ? symplex_module_enqueue(module, c->stream, error) : code;
    }
    return code == SYMPLEX_OK ? symplex_module_mark(module, c->stream, error) : code;
}

/* A session may want to compare what the ranks use before the first run. */
static bool may_run(const sxp_state *state)
{
    PyObject *function = Py_XNewRef(state->before_run), *result;
    if (function == NULL) {
        return true;
    }
    result = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    Py_XDECREF(result);
    return result != NULL;
}

static bool is_served(const symplex_symbol *symbol, int64_t value)
{
    bool served = false;
    for (size_t i = 0; i < symbol->range_count && !served; i++) {
        const symplex_range *range = &symbol->range[i];
        served =
            value >= range->low && value <= range->high && (value - range->low) % range->step == 0;
    }
    return served;
}

/* The library knows extents and not where they come from: one that it refused is a matter of the argument that told it.
 * False: it is about something else. */
static bool raise_extent(const call *c, const symplex_error *error)
{
    for (size_t s = 0; error->code == SYMPLEX_INPUT && s < c->self->symbol_count; s++) {
        const sxp_value *value = &c->value[s];
        if (value->told != NULL && !is_served(&c->self->symbol[s], value->value)) {
            const sxp_what what = {"argument", value->told};
            PyErr_Format(c->self->state->shape_error, SXP_WHAT ": %s", what.kind, what.name,
                         error->text);
            return true;
        }
    }
    return false;
}

static bool run(call *c, size_t count)
{
    symplex_error error;
    sxp_module *self = c->self;
    symplex_code code;
    PyThreadState *thread = PyEval_SaveThread();
    (void)pthread_mutex_lock(&self->lock);
    self->caller = thread;
    code = c->device  ? enqueue(c, count, &error)
           : c->timed ? run_timed(c, count, &error)
                      : symplex_module_call(self->module, c->dim, self->symbol_count, c->memory,
                                            count, &error);
    thread = self->caller;
    self->caller = NULL;
    (void)pthread_mutex_unlock(&self->lock);
    PyEval_RestoreThread(thread);
    if (code == SYMPLEX_CANCELLED && PyErr_Occurred()) {
        return false;
    }
    if (code != SYMPLEX_OK && !raise_extent(c, &error)) {
        sxp_raise(self->state, &error, NULL);
    } else if (code == SYMPLEX_OK && c->timed && (c->ns == NULL || c->launch == NULL)) {
        (void)PyErr_NoMemory();
    }
    return !PyErr_Occurred();
}

/* The results as the caller wants them: one, or a tuple. New arrays get their own element type. */
static PyObject *results(call *c)
{
    for (size_t i = 0; i < c->out.count; i++) {
        const sxp_tensor *tensor = &c->out.tensor[i];
        bool made = c->out_given == NULL && tensor->alias == SYMPLEX_NO_TENSOR && !c->device;
        if (made && sxp_dtypes[tensor->dtype].class == 0) {
            PyObject *view = PyObject_CallMethod(c->result[i], "view", "O", tensor->dtype_object);
            if (view == NULL) {
                return NULL;
            }
            Py_DECREF(c->result[i]);
            c->result[i] = view;
        }
    }
    if (c->out.count == 1) {
        return Py_NewRef(c->result[0]);
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)c->out.count);
    for (size_t i = 0; tuple != NULL && i < c->out.count; i++) {
        (void)PyTuple_SetItem(tuple, (Py_ssize_t)i, Py_NewRef(c->result[i]));
    }
    return tuple;
}

static PyObject *call_module(PyObject *self, PyObject *args, PyObject *keywords, bool timed,
                             PyObject *(*finish)(call *))
{
    call *c = begin((sxp_module *)(void *)self, timed);
    size_t count;
    PyObject *result = NULL;
    if (c != NULL) {
        if (read_arguments(c, args, keywords) && find_side(c) && take_inputs(c) &&
            place_outputs(c, &count) && may_run(c->self->state) && run(c, count)) {
            result = finish(c);
        }
        end(c);
    }
    return result;
}

PyObject *sxp_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    return call_module(self, args, keywords, false, results);
}

/* (results, [{"kernel": ..., "ns": ...}, ...]) */
static PyObject *results_and_times(call *c)
{
    PyObject *list = PyList_New(0), *made = NULL;
    for (size_t i = 0; list != NULL && i < c->launch_count; i++) {
        const symplex_launch *launch = &c->launch[i];
        PyObject *row =
            Py_BuildValue("{s:s,s:s,s:O,s:d,s:d,s:d,s:d,s:K}", "kernel", launch->kernel, "kind",
                          launch->kind, "once", launch->once ? Py_True : Py_False, "flops",
                          launch->flops, "bytes", launch->bytes, "estimate_ns", launch->estimate_ns,
                          "floor_ns", launch->floor_ns, "ns", (unsigned long long)c->ns[i]);
        if (row == NULL || PyList_Append(list, row) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    made = list != NULL ? results(c) : NULL;
    PyObject *both = made != NULL ? PyTuple_Pack(2, made, list) : NULL;
    Py_XDECREF(made);
    Py_XDECREF(list);
    return both;
}

PyObject *sxp_profile(PyObject *self, PyObject *args, PyObject *keywords)
{
    return call_module(self, args, keywords, true, results_and_times);
}
