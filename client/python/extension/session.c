/* session.c - the type symplex._c.Session: the ranks of a job use the same modules. */
#include "client/python/extension/extension.h"

#include <pythread.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    PyObject_HEAD symplex_session *session;
    /* Taken without the interpreter's lock; guards `session` and the next two. */
    PyThread_type_lock lock;
    PyThreadState *thread; /* of the call under way */
    bool failed;           /* a signal raised an exception */
    pid_t pid;             /* that opened it */
} sxp_session;

static sxp_session *session_of(PyObject *self)
{
    return (sxp_session *)(void *)self;
}

static int ask(void *self)
{
    sxp_session *s = self;
    PyEval_RestoreThread(s->thread);
    s->failed = s->failed || PyErr_CheckSignals() != 0;
    s->thread = PyEval_SaveThread();
    return s->failed;
}

/* Releases the interpreter's lock and takes this one; false with an exception: it is closed. */
static bool enter(sxp_session *s)
{
    if (s->lock == NULL || s->pid != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "session: it is of another process");
        return false;
    }
    PyThreadState *thread = PyEval_SaveThread();
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    s->thread = thread;
    s->failed = false;
    if (s->session != NULL) {
        return true;
    }
    PyThread_release_lock(s->lock);
    PyEval_RestoreThread(thread);
    PyErr_SetString(PyExc_RuntimeError, "session: it is closed");
    return false;
}

static bool leave(sxp_session *s, const symplex_error *error)
{
    PyThreadState *thread = s->thread;
    bool failed = s->failed;
    PyThread_release_lock(s->lock);
    PyEval_RestoreThread(thread);
    if (failed || error->code == SYMPLEX_OK) {
        return !failed;
    }
    const sxp_state *state = sxp_state_get();
    if (state != NULL) {
        sxp_raise(state, error, NULL);
    }
    return false;
}

symplex_session *sxp_session_lock(PyObject *self)
{
    sxp_session *s = session_of(self);
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    return s->session;
}

void sxp_session_unlock(PyObject *self)
{
    PyThread_release_lock(session_of(self)->lock);
}

/* ---- the type ---- */
static int session_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    sxp_session *s = session_of(self);
    symplex_options options = {.socket = NULL};
    symplex_error error = {.code = SYMPLEX_OK};
    const char *job;
    unsigned rank, world;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "zsII", &options.socket, &job, &rank, &world)) {
        return -1;
    }
    if (s->lock != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "session: it is open");
        return -1;
    }
    s->lock = PyThread_allocate_lock();
    if (s->lock == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    options.stop = ask;
    options.self = s;
    s->pid = getpid();
    PyThreadState *thread = PyEval_SaveThread();
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    s->thread = thread;
    (void)symplex_session_open(&options, job, rank, world, &s->session, &error);
    return leave(s, &error) ? 0 : -1;
}

static PyObject *session_check(PyObject *self, PyObject *args)
{
    unsigned long long timeout_ms;
    symplex_error error = {.code = SYMPLEX_OK};
    if (!PyArg_ParseTuple(args, "K", &timeout_ms) || !enter(session_of(self))) {
        return NULL;
    }
    (void)symplex_session_check(session_of(self)->session, timeout_ms, &error);
    return leave(session_of(self), &error) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *session_note(PyObject *self, PyObject *args)
{
    const char *name;
    Py_buffer value;
    if (!PyArg_ParseTuple(args, "sy*", &name, &value)) {
        return NULL;
    }
    bool fine = enter(session_of(self));
    if (fine) {
        symplex_error error = {.code = SYMPLEX_OK};
        (void)symplex_session_note(session_of(self)->session, name, value.buf, (size_t)value.len,
                                   &error);
        fine = leave(session_of(self), &error);
    }
    PyBuffer_Release(&value);
    return fine ? Py_NewRef(Py_None) : NULL;
}

static PyObject *session_digest(PyObject *self, PyObject *nothing)
{
    uint8_t digest[32];
    size_t count = 0;
    symplex_error error = {.code = SYMPLEX_OK};
    (void)nothing;
    if (!enter(session_of(self))) {
        return NULL;
    }
    (void)symplex_session_digest(session_of(self)->session, digest, &count, &error);
    return leave(session_of(self), &error)
               ? Py_BuildValue("(y#n)", (const char *)digest, (Py_ssize_t)sizeof(digest),
                               (Py_ssize_t)count)
               : NULL;
}

static PyObject *session_close(PyObject *self, PyObject *nothing)
{
    sxp_session *s = session_of(self);
    (void)nothing;
    if (s->lock == NULL || s->pid != getpid()) {
        /* A forked child closes what it inherited, or its parent would seem to live on; it says nothing. */
        symplex_session_close(s->session);
        s->session = NULL;
        return Py_NewRef(Py_None);
    }
    PyThreadState *thread = PyEval_SaveThread();
    (void)PyThread_acquire_lock(s->lock, WAIT_LOCK);
    symplex_session *session = s->session;
    s->session = NULL;
    PyThread_release_lock(s->lock);
    symplex_session_close(session);
    PyEval_RestoreThread(thread);
    return Py_NewRef(Py_None);
}

static void session_dealloc(PyObject *self)
{
    sxp_session *s = session_of(self);
    PyTypeObject *type = Py_TYPE(self);
    symplex_session_close(s->session);
    if (s->lock != NULL) {
        PyThread_free_lock(s->lock);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Compilations of this process belong to the session from now on; None: to none. */
PyObject *sxp_set_session(PyObject *module, PyObject *session)
{
    sxp_state *state = PyModule_GetState(module);
    PyObject *before = state->session;
    state->session = session == Py_None ? NULL : Py_NewRef(session);
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

/* The function is called before each run of a module from now on, and a run does not begin where it raises; None:
 * nothing is. */
PyObject *sxp_set_before_run(PyObject *module, PyObject *function)
{
    sxp_state *state = PyModule_GetState(module);
    PyObject *before = state->before_run;
    state->before_run = function == Py_None ? NULL : Py_NewRef(function);
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

static PyMethodDef session_methods[] = {
    {"check", session_check, METH_VARARGS, "(timeout_ms): compares what all ranks used."},
    {"note", session_note, METH_VARARGS, "(name, value): something else to be compared."},
    {"digest", session_digest, METH_NOARGS, "(digest, count) of what this rank used."},
    {"close", session_close, METH_NOARGS, "Leaves the job."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot session_slots[] = {{Py_tp_init, (void *)session_init},
                                      {Py_tp_new, (void *)PyType_GenericNew},
                                      {Py_tp_dealloc, (void *)session_dealloc},
                                      {Py_tp_methods, session_methods},
                                      {0, NULL}};

PyType_Spec sxp_session_spec = {.name = "symplex._c.Session",
                                .basicsize = sizeof(sxp_session),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = session_slots};
