/* memory.c - the type symplex._c.DeviceMemory: memory of a GPU, which others may use by DLPack. */
#include <string.h>

#include "client/python/extension/array.h"
#include "client/python/extension/device.h"

typedef struct {
    PyObject_HEAD sxp_module *module; /* on whose GPU it lies; held */
    uint64_t address;                 /* 0: none */
    size_t size;
} device_memory;

static device_memory *memory_of(PyObject *self)
{
    return (device_memory *)(void *)self;
}

/* ---- its life ---- */

static PyObject *new_memory(sxp_module *module, size_t size)
{
    symplex_error error;
    symplex_code code;
    PyTypeObject *type = (PyTypeObject *)module->state->memory_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *made = allocate(type, 0);
    if (made == NULL) {
        return NULL;
    }
    device_memory *self = memory_of(made);
    self->module = module;
    Py_INCREF((PyObject *)(void *)module);
    self->size = size;
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&module->lock);
    code = symplex_module_device_alloc(module->module, size, &self->address, &error);
    (void)pthread_mutex_unlock(&module->lock);
    Py_END_ALLOW_THREADS;
    if (code != SYMPLEX_OK) {
        sxp_raise(module->state, &error, NULL);
        Py_CLEAR(made);
    }
    return made;
}

static void free_memory(PyObject *object)
{
    device_memory *self = memory_of(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->address != 0) { /* what uses it on the GPU ends before */
        Py_BEGIN_ALLOW_THREADS;
        (void)pthread_mutex_lock(&self->module->lock);
        (void)symplex_module_device_free(self->module->module, self->address, NULL);
        (void)pthread_mutex_unlock(&self->module->lock);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF((PyObject *)(void *)self->module);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

PyObject *sxp_device_new(sxp_module *module, const sxp_tensor *tensor, PyObject *shape, size_t size,
                         uint64_t *address)
{
    sxp_state *state = module->state;
    if (state->device_class == NULL) {
        PyObject *package = PyImport_ImportModule("symplex._device");
        state->device_class =
            package != NULL ? PyObject_GetAttrString(package, "DeviceArray") : NULL;
        Py_XDECREF(package);
    }
    PyObject *memory = state->device_class != NULL ? new_memory(module, size) : NULL;
    if (memory == NULL) {
        return NULL;
    }
    *address = memory_of(memory)->address;
    PyObject *made = PyObject_CallFunction(state->device_class, "OsO", memory,
                                           sxp_dtypes[tensor->dtype].name, shape);
    Py_DECREF(memory);
    return made;
}

/* ---- what can be done with it ---- */

/* A call of the library with the module, after which a failure is raised. */
#define WITH_MODULE(self, call)                         \
    symplex_error error;                                \
    symplex_code code;                                  \
    Py_BEGIN_ALLOW_THREADS;                             \
    (void)pthread_mutex_lock(&(self)->module->lock);    \
    code = (call);                                      \
    (void)pthread_mutex_unlock(&(self)->module->lock);  \
    Py_END_ALLOW_THREADS;                               \
    if (code != SYMPLEX_OK) {                           \
        sxp_raise((self)->module->state, &error, NULL); \
    }

/* (buffer): copies all of it there, once the runs that write it have ended. */
static PyObject *read_memory(PyObject *object, PyObject *buffer)
{
    device_memory *self = memory_of(object);
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_CONTIG) != 0) {
        return NULL;
    }
    if ((size_t)view.len != self->size) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes for %zu", view.len, self->size);
    } else {
        WITH_MODULE(self, symplex_module_device_read(self->module->module, self->address, view.buf,
                                                     self->size, &error));
    }
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* (stream): what comes later on it waits for the runs that write this memory. */
static PyObject *follow(PyObject *object, PyObject *given)
{
    device_memory *self = memory_of(object);
    void *stream;
    if (!sxp_stream_read(given, &stream)) {
        return NULL;
    }
    WITH_MODULE(self, symplex_module_follow(self->module->module, stream, &error));
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- DLPack ---- */

/* What others get; the first field is what the capsule points to. */
typedef struct {
    union {
        dl_managed plain;
        dl_versioned versioned;
    } tensor;
    PyObject *owner;
    int64_t shape[SYMPLEX_RANK_MAX], stride[SYMPLEX_RANK_MAX];
} exported;

/* By any thread, which need not have the interpreter's lock. */
static void drop(void *context)
{
    exported *made = context;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(made->owner);
        PyMem_Free(made);
        PyGILState_Release(state);
    }
}

static void drop_plain(dl_managed *tensor)
{
    drop(tensor->context);
}

static void drop_versioned(dl_versioned *tensor)
{
    drop(tensor->context);
}

/* Nobody took it. */
static void drop_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && strncmp(name, "used_", 5) != 0) {
        drop(PyCapsule_GetContext(capsule));
    }
}

static bool fill(exported *made, device_memory *self, const sxp_dtype *dtype, PyObject *shape,
                 dl_tensor *tensor)
{
    Py_ssize_t rank = PyTuple_Size(shape);
    int64_t stride = 1;
    for (Py_ssize_t d = rank; d-- > 0;) {
        made->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        made->stride[d] = stride;
        stride *= made->shape[d];
    }
    *tensor = (dl_tensor){.data = (void *)(uintptr_t)self->address,
                          .device_type = DL_CUDA,
                          .device_id = self->module->gpu,
                          .rank = (int32_t)rank,
                          .code = dtype->dlpack,
                          .bits = (uint8_t)(dtype->bytes * 8),
                          .lanes = 1,
                          .shape = made->shape,
                          .strides = made->stride};
    return !PyErr_Occurred();
}

static const sxp_dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < SXP_DTYPE_COUNT; i++) {
        if (strcmp(sxp_dtypes[i].name, name) == 0) {
            return &sxp_dtypes[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "element type %s", name);
    return NULL;
}

/* (element type, shape, versioned): a capsule of DLPack, which keeps the memory. */
static PyObject *export(PyObject *object, PyObject *args)
{
    device_memory *self = memory_of(object);
    const char *name;
    PyObject *shape;
    int versioned;
    if (!PyArg_ParseTuple(args, "sO!p", &name, &PyTuple_Type, &shape, &versioned)) {
        return NULL;
    }
    const sxp_dtype *dtype = find_dtype(name);
    exported *made = dtype != NULL && PyTuple_Size(shape) <= SYMPLEX_RANK_MAX
                         ? PyMem_Calloc(1, sizeof(*made))
                         : NULL;
    if (made == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    made->owner = Py_NewRef(object);
    if (versioned != 0) {
        made->tensor.versioned = (dl_versioned){
            .major = DL_MAJOR, .minor = 0, .context = made, .deleter = drop_versioned};
    } else {
        made->tensor.plain = (dl_managed){.context = made, .deleter = drop_plain};
    }
    bool good = fill(made, self, dtype, shape,
                     versioned != 0 ? &made->tensor.versioned.tensor : &made->tensor.plain.tensor);
    PyObject *capsule =
        good ? PyCapsule_New(made, versioned != 0 ? "dltensor_versioned" : "dltensor", drop_capsule)
             : NULL;
    if (capsule == NULL) {
        drop(made);
        return NULL;
    }
    (void)PyCapsule_SetContext(capsule, made);
    return capsule;
}

/* ---- the type ---- */

static PyObject *get_address(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLongLong(memory_of(object)->address);
}

static PyObject *get_size(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(memory_of(object)->size);
}

static PyObject *get_gpu(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLong(memory_of(object)->module->gpu);
}

static PyGetSetDef fields[] = {
    {"address", get_address, NULL, "Where it begins.", NULL},
    {"nbytes", get_size, NULL, "Its bytes.", NULL},
    {"gpu", get_gpu, NULL, "The number of its GPU.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"read", read_memory, METH_O, "(buffer): copies all of it to the host."},
    {"follow", follow, METH_O, "(stream): work that is put there later waits for what writes it."},
    {"capsule", export, METH_VARARGS, "(element type, shape, versioned): a capsule of DLPack."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)free_memory},
                              {Py_tp_methods, (void *)methods},
                              {Py_tp_getset, (void *)fields},
                              {0, NULL}};

PyType_Spec sxp_memory_spec = {.name = "symplex._c.DeviceMemory",
                               .basicsize = sizeof(device_memory),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
