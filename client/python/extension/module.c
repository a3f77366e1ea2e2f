/* module.c - the module symplex._c: its state, and errors of the library as exceptions. */
#include "client/python/extension/device.h"

#include <string.h>

void sxp_raise(const sxp_state *state, const symplex_error *error, const char *text)
{
    PyObject *code = PyLong_FromLong(error->code);
    PyObject *class = code != NULL ? PyDict_GetItemWithError(state->by_code, code) : NULL;
    const char *said = text != NULL && text[0] != '\0' ? text : error->text;
    PyObject *words = PyUnicode_DecodeUTF8(said, (Py_ssize_t)strlen(said), "replace");
    PyObject *hint = PyUnicode_DecodeUTF8(error->hint, (Py_ssize_t)strlen(error->hint), "replace");
    class = class != NULL ? class : state->error;
    PyObject *made = words != NULL && hint != NULL && !PyErr_Occurred()
                         ? PyObject_CallFunctionObjArgs(class, words, NULL)
                         : NULL;
    if (made != NULL && PyObject_SetAttrString(made, "hint", hint) == 0 &&
        PyObject_SetAttrString(made, "code", code) == 0) {
        PyErr_SetObject(class, made);
    }
    Py_XDECREF(made);
    Py_XDECREF(hint);
    Py_XDECREF(words);
    Py_XDECREF(code);
}

bool sxp_need_numpy(sxp_state *state)
{
    if (state->empty != NULL) {
        return true;
    }
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL) {
        return false;
    }
    PyObject *empty = PyObject_GetAttrString(numpy, "empty");
    PyObject *asarray = PyObject_GetAttrString(numpy, "asarray");
    PyObject *dtype_of = PyObject_GetAttrString(numpy, "dtype");
    Py_DECREF(numpy);
    if (empty == NULL || asarray == NULL || dtype_of == NULL) {
        Py_XDECREF(empty);
        Py_XDECREF(asarray);
        Py_XDECREF(dtype_of);
        return false;
    }
    state->empty = empty;
    state->asarray = asarray;
    state->dtype_of = dtype_of;
    return true;
}

sxp_state *sxp_state_get(void)
{
    PyObject *module = PyImport_ImportModule("symplex._c");
    sxp_state *state = module != NULL ? PyModule_GetState(module) : NULL;
    Py_XDECREF(module); /* sys.modules keeps it, and each object of the type does */
    return state;
}

/* Classes of errors are Python; they are read from there once. */
static int take_errors(sxp_state *state)
{
    PyObject *errors = PyImport_ImportModule("symplex._errors");
    if (errors == NULL) {
        return -1;
    }
    state->by_code = PyObject_GetAttrString(errors, "BY_CODE");
    state->error = PyObject_GetAttrString(errors, "Error");
    state->dtype_error = PyObject_GetAttrString(errors, "DTypeError");
    state->shape_error = PyObject_GetAttrString(errors, "ShapeError");
    state->layout_error = PyObject_GetAttrString(errors, "LayoutError");
    Py_DECREF(errors);
    return state->by_code != NULL && state->error != NULL && state->dtype_error != NULL &&
                   state->shape_error != NULL && state->layout_error != NULL
               ? 0
               : -1;
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int added = type != NULL ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return added;
}

static int begin(PyObject *module)
{
    sxp_state *state = PyModule_GetState(module);
    if (take_errors(state) != 0) {
        return -1;
    }
    int added = add_type(module, "Module", &sxp_module_spec);
    added = added == 0 ? add_type(module, "Store", &sxp_store_spec) : added;
    added = added == 0 ? add_type(module, "Session", &sxp_session_spec) : added;
    added = added == 0 ? add_type(module, "DeviceMemory", &sxp_memory_spec) : added;
    if (added == 0) {
        state->memory_type = PyObject_GetAttrString(module, "DeviceMemory");
        added = state->memory_type != NULL ? 0 : -1;
    }
    added = added == 0 ? PyModule_AddStringConstant(module, "version", symplex_version()) : added;
    return added == 0 ? PyModule_AddStringConstant(module, "toolchain", symplex_toolchain())
                      : added;
}

static PyObject **field_of(sxp_state *state, size_t index)
{
    PyObject **field[] = {&state->by_code,     &state->error,        &state->dtype_error,
                          &state->shape_error, &state->layout_error, &state->empty,
                          &state->asarray,     &state->dtype_of,     &state->session,
                          &state->before_run,  &state->version_word, &state->memory_type,
                          &state->device_class};
    size_t count = sizeof(field) / sizeof(field[0]);
    return index < count                        ? field[index]
           : index - count < SXP_EXCHANGE_COUNT ? &state->exchange_class[index - count]
                                                : NULL;
}

static int visit_all(PyObject *module, visitproc visit, void *arg)
{
    sxp_state *state = PyModule_GetState(module);
    for (size_t i = 0; state != NULL && field_of(state, i) != NULL; i++) {
        Py_VISIT(*field_of(state, i));
    }
    return 0;
}

static int clear(PyObject *module)
{
    sxp_state *state = PyModule_GetState(module);
    for (size_t i = 0; state != NULL && field_of(state, i) != NULL; i++) {
        PyObject **field = field_of(state, i);
        Py_CLEAR(*field);
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"compile", sxp_compile, METH_VARARGS,
     "A program to module file, text or file; see symplex.compile."},
    {"ping", sxp_ping, METH_VARARGS, "Who answers on a socket: (version, build, boot id, pid)."},
    {"set_session", sxp_set_session, METH_O, "Compilations belong to this Session; None: to none."},
    {"set_before_run", sxp_set_before_run, METH_O,
     "Called before each run of a module; None: nothing is."},
    {"short_key", (PyCFunction)(void (*)(void))sxp_short_key, METH_FASTCALL,
     "The key of a call of a traced function, and its arrays."},
    {"short_call", (PyCFunction)(void (*)(void))sxp_short_call, METH_FASTCALL,
     "A call of a traced function whose key is in the table."},
    {"device_type", sxp_device_type, METH_VARARGS,
     "(array, name): (element type, shape, GPU) of an array on a GPU; None of anything else."},
    {"gpu", sxp_gpu, METH_O, "(number): name, compute capability and target of a GPU."},
    {"xla_register", sxp_xla_register, METH_O,
     "The number by which a custom call of XLA names a module; the module stays open."},
    {"xla_handler", sxp_xla_handler, METH_NOARGS, "A capsule with the handler of such calls."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "symplex._c",
                                        .m_doc = "libsymplex for Python; use the package symplex.",
                                        .m_size = sizeof(sxp_state),
                                        .m_methods = methods,
                                        .m_slots = slots,
                                        .m_traverse = visit_all,
                                        .m_clear = clear};

PyMODINIT_FUNC PyInit__c(void);
PyMODINIT_FUNC PyInit__c(void)
{
    return PyModuleDef_Init(&definition);
}
