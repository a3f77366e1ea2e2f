/* store.c - the type symplex._c.Store: artefacts of other caches, by a connection to the daemon. */
#include "client/python/extension/extension.h"

#include <unistd.h>

typedef struct {
    PyObject_HEAD symplex_store *store;
    PyThreadState *thread; /* of the call under way, without the interpreter's lock */
    bool failed;           /* a signal raised an exception */
    bool busy;             /* a call is under way */
    pid_t pid;             /* in which process the last call began */
} sxp_store;

static sxp_store *store_of(PyObject *self)
{
    return (sxp_store *)(void *)self;
}

static int ask(void *self)
{
    sxp_store *s = self;
    PyEval_RestoreThread(s->thread);
    s->failed = s->failed || PyErr_CheckSignals() != 0;
    s->thread = PyEval_SaveThread();
    return s->failed;
}

/* One call at a time: what comes in between is refused, and the interpreter's lock released. */
static bool enter(sxp_store *s)
{
    if (s->busy || s->store == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        s->busy ? "store: another call is under way" : "store: it is closed");
        return false;
    }
    s->busy = true;
    s->failed = false;
    s->pid = getpid();
    s->thread = PyEval_SaveThread();
    return true;
}

/* False with an exception: of a signal, or of the error unless its code is `fine`. */
static bool leave(sxp_store *s, const symplex_error *error, symplex_code fine)
{
    PyEval_RestoreThread(s->thread);
    s->busy = false;
    if (s->failed) {
        return false;
    }
    if (error->code != SYMPLEX_OK && error->code != fine) {
        const sxp_state *state = sxp_state_get();
        if (state != NULL) {
            sxp_raise(state, error, NULL);
        }
        return false;
    }
    return true;
}

static int store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    sxp_store *s = store_of(self);
    symplex_options options = {.socket = NULL};
    symplex_error error = {.code = SYMPLEX_OK};
    symplex_store *made = NULL;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "z", &options.socket)) {
        return -1;
    }
    if (s->store != NULL || s->busy) {
        PyErr_SetString(PyExc_RuntimeError, "store: it is open");
        return -1;
    }
    options.stop = ask;
    options.self = s;
    s->busy = true;
    s->failed = false;
    s->thread = PyEval_SaveThread();
    (void)symplex_store_open(&options, &made, &error);
    s->store = made;
    return leave(s, &error, SYMPLEX_OK) ? 0 : -1;
}

static PyObject *store_get(PyObject *self, PyObject *args)
{
    sxp_store *s = store_of(self);
    const char *cache, *name;
    Py_ssize_t name_size;
    unsigned long long claim_ms, wait_ms;
    if (!PyArg_ParseTuple(args, "sy#KK", &cache, &name, &name_size, &claim_ms, &wait_ms) ||
        !enter(s)) {
        return NULL;
    }
    void *bytes = NULL;
    size_t size = 0;
    symplex_found found = {0};
    symplex_error error = {.code = SYMPLEX_OK};
    (void)symplex_store_get(s->store, cache, name, (size_t)name_size, claim_ms, wait_ms, &bytes,
                            &size, &found, &error);
    PyObject *result = NULL;
    if (leave(s, &error, SYMPLEX_ABSENT)) {
        PyObject *value = error.code == SYMPLEX_OK
                              ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size)
                              : Py_NewRef(Py_None);
        result = value == NULL ? NULL
                               : Py_BuildValue("(NKOK)", value, (unsigned long long)found.lease,
                                               found.held ? Py_True : Py_False,
                                               (unsigned long long)found.waited_ms);
    }
    symplex_free(bytes);
    return result;
}

static PyObject *store_put(PyObject *self, PyObject *args)
{
    sxp_store *s = store_of(self);
    const char *cache, *name;
    Py_ssize_t name_size;
    Py_buffer value;
    unsigned long long cost_us;
    if (!PyArg_ParseTuple(args, "sy#y*K", &cache, &name, &name_size, &value, &cost_us)) {
        return NULL;
    }
    bool fine = enter(s);
    if (fine) {
        symplex_error error = {.code = SYMPLEX_OK};
        (void)symplex_store_put(s->store, cache, name, (size_t)name_size, value.buf,
                                (size_t)value.len, cost_us, &error);
        fine = leave(s, &error, SYMPLEX_OK);
    }
    PyBuffer_Release(&value);
    return fine ? Py_NewRef(Py_None) : NULL;
}

static PyObject *store_release(PyObject *self, PyObject *args)
{
    sxp_store *s = store_of(self);
    unsigned long long lease;
    if (!PyArg_ParseTuple(args, "K", &lease) || !enter(s)) {
        return NULL;
    }
    symplex_error error = {.code = SYMPLEX_OK};
    (void)symplex_store_release(s->store, lease, &error);
    return leave(s, &error, SYMPLEX_OK) ? Py_NewRef(Py_None) : NULL;
}

/* In a forked child `busy` is of a thread that is not here: the child closes what it inherited. */
static PyObject *store_close(PyObject *self, PyObject *nothing)
{
    sxp_store *s = store_of(self);
    (void)nothing;
    if (s->busy && s->pid == getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "store: another call is under way");
        return NULL;
    }
    symplex_store_close(s->store);
    s->store = NULL;
    return Py_NewRef(Py_None);
}

static void store_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    symplex_store_close(store_of(self)->store);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef store_methods[] = {
    {"get", store_get, METH_VARARGS,
     "(cache, name, claim_ms, wait_ms): (bytes or None, lease, held, waited_ms)."},
    {"put", store_put, METH_VARARGS, "(cache, name, value, cost_us)."},
    {"release", store_release, METH_VARARGS, "(lease): gives it back."},
    {"close", store_close, METH_NOARGS, "Ends the connection, and its leases."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot store_slots[] = {{Py_tp_init, (void *)store_init},
                                    {Py_tp_new, (void *)PyType_GenericNew},
                                    {Py_tp_dealloc, (void *)store_dealloc},
                                    {Py_tp_methods, store_methods},
                                    {0, NULL}};

PyType_Spec sxp_store_spec = {.name = "symplex._c.Store",
                              .basicsize = sizeof(sxp_store),
                              .flags = Py_TPFLAGS_DEFAULT,
                              .slots = store_slots};
