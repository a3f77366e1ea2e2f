/* compile.c - compiling, with the interpreter's lock released and Ctrl-C answered. */
#include "client/python/extension/extension.h"

#include <stdlib.h>
#include <string.h>

enum { TO_MODULE, TO_TEXT, TO_FILE, TO_OPEN };

/* A call of the library that may take long. */
typedef struct {
    PyThreadState *thread; /* while the interpreter's lock is released */
    PyObject *message, *progress;
    bool failed; /* an exception is set: the call is to end */
} waiter;

static int ask(void *self)
{
    waiter *w = self;
    PyEval_RestoreThread(w->thread);
    w->failed = w->failed || PyErr_CheckSignals() != 0;
    w->thread = PyEval_SaveThread();
    return w->failed;
}

/* Calls back with `arguments`, which it takes; the caller holds the interpreter's lock. */
static void call_back(waiter *w, PyObject *function, PyObject *arguments)
{
    PyObject *result = arguments != NULL ? PyObject_CallObject(function, arguments) : NULL;
    w->failed = w->failed || result == NULL;
    Py_XDECREF(result);
    Py_XDECREF(arguments);
}

static void say(void *self, const char *text)
{
    waiter *w = self;
    if (w->message != Py_None) {
        PyEval_RestoreThread(w->thread);
        if (!w->failed) {
            call_back(w, w->message, Py_BuildValue("(s)", text));
        }
        w->thread = PyEval_SaveThread();
    }
}

static void show(void *self, const char *stage, uint64_t done, uint64_t total)
{
    waiter *w = self;
    if (w->progress != Py_None) {
        PyEval_RestoreThread(w->thread);
        if (!w->failed) {
            call_back(
                w, w->progress,
                Py_BuildValue("(sKK)", stage, (unsigned long long)done, (unsigned long long)total));
        }
        w->thread = PyEval_SaveThread();
    }
}

/* ---- dimensions ---- */

/* [(name, value)] or [(name, low, high)]; names live as long as the list. False with an exception. */
static bool read_dims(PyObject *list, symplex_dim **dims, size_t *count)
{
    Py_ssize_t n = PyList_Size(list);
    *dims = n >= 0 ? PyMem_Calloc((size_t)n + 1, sizeof(**dims)) : NULL;
    for (Py_ssize_t i = 0; *dims != NULL && i < n; i++) {
        long long value;
        const char *name;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sL", &name, &value)) {
            return false;
        }
        (*dims)[i] = (symplex_dim){name, value};
    }
    *count = (size_t)n;
    return *dims != NULL || (!PyErr_Occurred() && PyErr_NoMemory() != NULL);
}

static bool read_intervals(PyObject *list, symplex_interval **intervals, size_t *count)
{
    Py_ssize_t n = PyList_Size(list);
    *intervals = n >= 0 ? PyMem_Calloc((size_t)n + 1, sizeof(**intervals)) : NULL;
    for (Py_ssize_t i = 0; *intervals != NULL && i < n; i++) {
        long long low, high;
        const char *name;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sLL", &name, &low, &high)) {
            return false;
        }
        (*intervals)[i] = (symplex_interval){name, low, high};
    }
    *count = (size_t)n;
    return *intervals != NULL || (!PyErr_Occurred() && PyErr_NoMemory() != NULL);
}

/* ---- the call ---- */

typedef struct {
    int what;
    const char *output; /* of TO_FILE */
    unsigned threads;   /* of TO_OPEN, as is the next */
    symplex_module *module;
    symplex_options options;
    symplex_program program;
    symplex_compiled info;
    PyObject *session; /* NULL: none */
    void *bytes;
    size_t size;
    symplex_error error;
    char *text; /* the whole text of the error, from malloc */
} request;

/* Without the interpreter's lock. */
static void work(request *r)
{
    symplex_client *client;
    symplex_code code = symplex_open(&r->options, &client, &r->error);
    if (code != SYMPLEX_OK) {
        return;
    }
    if (r->session != NULL) {
        (void)symplex_client_join(client, sxp_session_lock(r->session), NULL);
    }
    if (r->what == TO_TEXT) {
        char *text = NULL;
        code = symplex_optimize(client, &r->program, &text, &r->size, &r->error);
        r->bytes = text;
    } else if (r->what == TO_FILE) {
        code = symplex_compile_file(client, &r->program, r->output, &r->info, &r->error);
    } else if (r->what == TO_OPEN) {
        code =
            symplex_compile_open(client, &r->program, r->threads, &r->module, &r->info, &r->error);
    } else {
        code = symplex_compile(client, &r->program, &r->bytes, &r->size, &r->info, &r->error);
    }
    r->text = code != SYMPLEX_OK ? strdup(symplex_client_error(client)) : NULL;
    if (r->session != NULL) {
        sxp_session_unlock(r->session);
    }
    symplex_close(client);
}

static void drop_opened(PyObject *capsule)
{
    symplex_module_close(sxp_opened_take(capsule));
}

/* A module for the type Module, which is closed where nobody takes it. */
static PyObject *opened(request *r)
{
    PyObject *capsule = PyCapsule_New(r->module, SXP_OPENED, drop_opened);
    r->module = capsule != NULL ? NULL : r->module;
    return capsule;
}

symplex_module *sxp_opened_take(PyObject *capsule)
{
    symplex_module *module = NULL;
    if (PyCapsule_IsValid(capsule, SXP_OPENED)) {
        module = PyCapsule_GetPointer(capsule, SXP_OPENED);
        (void)PyCapsule_SetName(capsule, "taken");
    }
    return module;
}

static PyObject *answer(request *r)
{
    if (r->what == TO_TEXT) {
        return PyUnicode_DecodeUTF8(r->bytes, (Py_ssize_t)r->size, "strict");
    }
    PyObject *bytes = r->what == TO_FILE ? Py_NewRef(Py_None)
                      : r->what == TO_OPEN
                          ? opened(r)
                          : PyBytes_FromStringAndSize(r->bytes, (Py_ssize_t)r->size);
    return bytes == NULL
               ? NULL
               : Py_BuildValue("(N{s:s,s:s,s:O,s:d,s:d})", bytes, "key", r->info.key, "tier",
                               r->info.tier, "hit", r->info.hit ? Py_True : Py_False, "cost_s",
                               (double)r->info.cost_us / 1e6, "total_s",
                               (double)r->info.total_us / 1e6);
}

static PyObject *run(request *r, waiter *w)
{
    const sxp_state *state = sxp_state_get();
    if (state == NULL) {
        return NULL;
    }
    r->options.message = say;
    r->options.progress = show;
    r->options.stop = ask;
    r->options.self = w;
    r->session = Py_XNewRef(state->session);
    w->thread = PyEval_SaveThread();
    work(r);
    PyEval_RestoreThread(w->thread);
    Py_XDECREF(r->session);
    PyObject *result = NULL;
    if (w->failed || PyErr_Occurred()) {
        w->failed = true; /* the exception of a signal or of a callback stays */
    } else if (r->error.code != SYMPLEX_OK) {
        sxp_raise(state, &r->error, r->text);
    } else {
        result = answer(r);
    }
    symplex_free(r->bytes);
    symplex_module_close(r->module);
    free(r->text);
    return result;
}

PyObject *sxp_compile(PyObject *self, PyObject *args)
{
    request r = {.what = TO_MODULE};
    waiter w = {.message = Py_None, .progress = Py_None};
    PyObject *dims, *intervals, *result = NULL;
    Py_buffer text = {.obj = NULL};
    unsigned flags, daemon;
    symplex_dim *dim = NULL;
    symplex_interval *interval = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "izz*zO!O!IzzIzOOzI", &r.what, &r.program.path, &text,
                          &r.program.target, &PyList_Type, &dims, &PyList_Type, &intervals, &flags,
                          &r.program.disabled_rules, &r.program.objective, &daemon,
                          &r.options.socket, &w.message, &w.progress, &r.output, &r.threads)) {
        return NULL;
    }
    r.program.bytes = text.buf;
    r.program.size = (size_t)(text.obj != NULL ? text.len : 0);
    r.program.flags = flags;
    r.options.daemon = (symplex_daemon)daemon;
    if (read_dims(dims, &dim, &r.program.dim_count) &&
        read_intervals(intervals, &interval, &r.program.interval_count)) {
        r.program.dims = dim;
        r.program.intervals = interval;
        result = run(&r, &w);
    }
    PyMem_Free(dim);
    PyMem_Free(interval);
    if (text.obj != NULL) {
        PyBuffer_Release(&text);
    }
    return result;
}

PyObject *sxp_ping(PyObject *self, PyObject *args)
{
    symplex_options options = {.socket = NULL};
    symplex_client *client = NULL;
    symplex_server server;
    symplex_error error;
    const sxp_state *state = PyModule_GetState(self);
    if (!PyArg_ParseTuple(args, "z", &options.socket)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    if (symplex_open(&options, &client, &error) == SYMPLEX_OK) {
        (void)symplex_ping(client, &server, &error);
    }
    symplex_close(client);
    Py_END_ALLOW_THREADS;
    if (error.code != SYMPLEX_OK) {
        sxp_raise(state, &error, NULL);
        return NULL;
    }
    return Py_BuildValue("(sssL)", server.version, server.build, server.boot_id,
                         (long long)server.pid);
}
