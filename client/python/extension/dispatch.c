/* dispatch.c - the short way of a traced function: from arguments whose structure, types and shapes were there before
 * straight to the module. Python writes the table (client/python/symplex/_jit.py); here it is read at each call. */
#include "client/python/extension/extension.h"

#include <string.h>

#define DEPTH_MAX 32

/* What Python hands in: numpy's types, and names of attributes that are made once. No code of the caller runs while
 * arguments are walked: types are exact, and attributes those of numpy's own types. */
typedef struct {
    PyObject *array, *scalars, *dtype, *shape; /* borrowed; scalars is a set of types */
    PyObject *key, *leaves;                    /* lists, owned */
} walk;

static bool put(PyObject *list, PyObject *object)
{
    return object != NULL && PyList_Append(list, object) == 0;
}

static bool put_new(PyObject *list, PyObject *object)
{
    bool good = put(list, object);
    Py_XDECREF(object);
    return good;
}

static bool take(walk *w, PyObject *value, uint32_t depth);

static bool take_items(walk *w, PyObject *value, uint32_t depth)
{
    bool tuple = PyTuple_CheckExact(value);
    Py_ssize_t n = tuple ? PyTuple_Size(value) : PyList_Size(value);
    bool good = put(w->key, (PyObject *)Py_TYPE(value)) && put_new(w->key, PyLong_FromSsize_t(n));
    for (Py_ssize_t i = 0; good && i < n; i++) {
        good = take(w, tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i), depth);
    }
    return good;
}

static bool take_pairs(walk *w, PyObject *value, uint32_t depth)
{
    PyObject *name, *object;
    Py_ssize_t at = 0;
    bool good = put(w->key, (PyObject *)Py_TYPE(value)) &&
                put_new(w->key, PyLong_FromSsize_t(PyDict_Size(value)));
    while (good && PyDict_Next(value, &at, &name, &object)) {
        good = put(w->key, name) && take(w, object, depth);
    }
    return good;
}

/* Numbers and texts are part of the program; of floats the bits, so that zeros of both signs are two. */
static bool take_fixed(walk *w, PyObject *value)
{
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AsDouble(value);
        char bits[sizeof(number)];
        memcpy(bits, &number, sizeof(bits));
        return put_new(w->key, PyBytes_FromStringAndSize(bits, sizeof(bits)));
    }
    return (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
            PyUnicode_CheckExact(value)) &&
           put(w->key, (PyObject *)Py_TYPE(value)) && put(w->key, value);
}

/* False without an exception: there is no short way for such a value. */
static bool take(walk *w, PyObject *value, uint32_t depth)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    if (type == w->array || PySet_Contains(w->scalars, type) == 1) {
        return put_new(w->key, PyObject_GetAttr(value, w->dtype)) &&
               put_new(w->key, PyObject_GetAttr(value, w->shape)) && put(w->leaves, value);
    }
    if (depth == DEPTH_MAX) {
        return false;
    }
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        return take_items(w, value, depth + 1);
    }
    return PyDict_CheckExact(value) ? take_pairs(w, value, depth + 1) : take_fixed(w, value);
}

/* The row of the table for these arguments; borrowed; NULL: there is none, or an exception. */
static PyObject *find(walk *w, PyObject *table, PyObject *args, PyObject *keywords)
{
    if (!take(w, args, 0) || (PyDict_Size(keywords) > 0 && !take(w, keywords, 0))) {
        return NULL;
    }
    PyObject *key = PyList_AsTuple(w->key);
    PyObject *row = key != NULL ? PyDict_GetItemWithError(table, key) : NULL;
    Py_XDECREF(key);
    return row;
}

/* What the module gives for the arrays, in the order of its inputs. */
static PyObject *run(const walk *w, PyObject *row)
{
    PyObject *module = PyTuple_GetItem(row, 0), *order = PyTuple_GetItem(row, 1);
    Py_ssize_t n = PyTuple_Size(order);
    PyObject *given = PyTuple_New(n);
    for (Py_ssize_t i = 0; given != NULL && i < n; i++) {
        PyObject *leaf = PyList_GetItem(w->leaves, PyLong_AsSsize_t(PyTuple_GetItem(order, i)));
        (void)PyTuple_SetItem(given, i, Py_XNewRef(leaf));
    }
    PyObject *made = given != NULL ? PyObject_Call(module, given, NULL) : NULL;
    Py_XDECREF(given);
    return made;
}

PyObject *sxp_short_key(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *names = count == 3 ? args[2] : NULL, *both = NULL;
    (void)self;
    if (names == NULL || !PyTuple_Check(names) || PyTuple_Size(names) != 4) {
        PyErr_SetString(PyExc_TypeError, "short_key: args, keywords and four names are needed");
        return NULL;
    }
    walk w = {PyTuple_GetItem(names, 0),
              PyTuple_GetItem(names, 1),
              PyTuple_GetItem(names, 2),
              PyTuple_GetItem(names, 3),
              PyList_New(0),
              PyList_New(0)};
    if (w.key != NULL && w.leaves != NULL && take(&w, args[0], 0) &&
        (PyDict_Size(args[1]) == 0 || take(&w, args[1], 0))) {
        PyObject *key = PyList_AsTuple(w.key);
        both = key != NULL ? PyTuple_Pack(2, key, w.leaves) : NULL;
        Py_XDECREF(key);
    } else if (!PyErr_Occurred()) {
        both = Py_NewRef(Py_None);
    }
    Py_XDECREF(w.key);
    Py_XDECREF(w.leaves);
    return both;
}

PyObject *sxp_short_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    sxp_state *state = PyModule_GetState(self);
    PyObject *names = count == 4 ? args[3] : NULL, *made = NULL;
    if (names == NULL || !PyDict_Check(args[0]) || !PyTuple_Check(args[1]) ||
        !PyDict_Check(args[2]) || !PyTuple_Check(names) || PyTuple_Size(names) != 4) {
        PyErr_SetString(PyExc_TypeError, "short_call: a table, args, keywords and four names");
        return NULL;
    }
    walk w = {PyTuple_GetItem(names, 0),
              PyTuple_GetItem(names, 1),
              PyTuple_GetItem(names, 2),
              PyTuple_GetItem(names, 3),
              PyList_New(0),
              PyList_New(0)};
    bool good = w.key != NULL && w.leaves != NULL;
    PyObject *row = good ? find(&w, args[0], args[1], args[2]) : NULL;
    if (row != NULL) {
        Py_INCREF(row); /* a run may change the table */
        made = run(&w, row);
        PyObject *out = PyTuple_GetItem(row, 2);
        if (made != NULL && out != Py_None) { /* the caller builds it */
            PyObject *both = PyTuple_Pack(2, out, made);
            Py_DECREF(made);
            made = both;
        }
        Py_DECREF(row);
        if (made == NULL && PyErr_ExceptionMatches(state->layout_error)) {
            PyErr_Clear(); /* gaps: the long way copies; read-only: it names the argument */
        }
    }
    Py_XDECREF(w.key);
    Py_XDECREF(w.leaves);
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_NotImplemented);
}
