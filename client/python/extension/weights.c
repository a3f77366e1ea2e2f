/* weights.c - weights of a module: binding them, and whether what they were bound to is still as it was. */
#include "client/python/extension/device.h"

#include <string.h>

static sxp_module *module_of(PyObject *self)
{
    return (sxp_module *)(void *)self;
}

bool sxp_weights_make(sxp_module *self)
{
    const sxp_list *list = &self->role[SYMPLEX_WEIGHT_TENSOR];
    self->weight = PyMem_Calloc(list->count + 1, sizeof(*self->weight));
    if (self->weight == NULL) {
        return PyErr_NoMemory() != NULL;
    }
    for (size_t i = 0; i < list->count; i++) {
        self->weight[i].packed =
            symplex_module_weight_packed(self->module, list->tensor[i].index) != 0;
    }
    return true;
}

static void release(sxp_weight *weight)
{
    sxp_array_release(&weight->memory);
    Py_CLEAR(weight->object);
}

void sxp_weights_free(sxp_module *self)
{
    for (size_t i = 0; self->weight != NULL && i < self->role[SYMPLEX_WEIGHT_TENSOR].count; i++) {
        release(&self->weight[i]);
    }
    PyMem_Free(self->weight);
    self->weight = NULL;
}

/* ---- how an object is ---- */

/* A number of a weight of `size` bytes that changes with any word on its diagonal, which passes through all its rows
 * (along the first dimension) and columns. Of one that is shorter than a word, all of it counts. */
static uint64_t sample(const sxp_tensor *tensor, const void *memory, size_t size)
{
    uint64_t sum = 0, word = 0;
    size_t rows = tensor->rank > 0 && tensor->shape[0] > 0 ? (size_t)tensor->shape[0] : 1;
    size_t words = size / rows / sizeof(word); /* of a row */
    if (words == 0) {
        rows = 1;
        words = size / sizeof(word);
    }
    if (words == 0) {
        memcpy(&word, memory, size);
        return word;
    }
    size_t row = 0, column = 0;
    for (size_t i = rows > words ? rows : words; i > 0; i--) {
        memcpy(&word, (const char *)memory + row * (size / rows) + column * sizeof(word),
               sizeof(word));
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* odd: no change is lost */
        sum ^= sum >> 32;
        row = row + 1 < rows ? row + 1 : 0;
        column = column + 1 < words ? column + 1 : 0;
    }
    return sum;
}

/* How often PyTorch says that a tensor was changed; false: it does not count, as of one that was made in its inference
 * mode. No exception is left. */
static bool read_version(sxp_state *state, PyObject *object, uint64_t *version)
{
    if (state->version_word == NULL) {
        state->version_word = PyUnicode_InternFromString("_version");
    }
    PyObject *number =
        state->version_word != NULL ? PyObject_GetAttr(object, state->version_word) : NULL;
    *version = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    bool good = number != NULL && !PyErr_Occurred();
    PyErr_Clear();
    return good;
}

/* Notes how the owner of a weight is now. False with an exception. */
static bool note(sxp_state *state, PyObject *owner, const sxp_tensor *tensor, sxp_weight *weight)
{
    size_t size = sxp_size_of(tensor);
    weight->owner = owner;
    if (!sxp_array_place(state, owner, &weight->address, weight->stride)) {
        return false;
    }
    weight->versioned = read_version(state, owner, &weight->version);
    weight->sampled = weight->address == weight->memory.data && size > 0;
    if (weight->sampled) {
        weight->sample = sample(tensor, weight->address, size);
    }
    return true;
}

/* 1: the owner of the weight is as it was; 0: not; -1: an exception. */
static int is_as_noted(sxp_state *state, PyObject *owner, const sxp_tensor *tensor, bool content,
                       const sxp_weight *weight)
{
    const void *address;
    int64_t stride[SYMPLEX_RANK_MAX];
    uint64_t version;
    if (weight->owner != owner) {
        return 0;
    }
    if (!sxp_array_place(state, owner, &address, stride)) {
        return -1;
    }
    if (address != weight->address || memcmp(stride, weight->stride, sizeof(stride)) != 0) {
        return 0;
    }
    bool copied = weight->address != weight->memory.data; /* as it had gaps */
    if (!content || (!weight->packed && !copied)) {
        return 1; /* a run reads it where it lies */
    }
    if (!weight->versioned || !read_version(state, owner, &version) || version != weight->version) {
        return 0; /* of what is not counted nobody knows */
    }
    return !weight->sampled || sample(tensor, address, sxp_size_of(tensor)) == weight->sample;
}

/* Two notes of one owner, between which it did not change. */
static bool is_noted_alike(const sxp_weight *a, const sxp_weight *b)
{
    return a->owner != NULL && a->owner == b->owner && a->memory.data == b->memory.data &&
           a->address == b->address && memcmp(a->stride, b->stride, sizeof(a->stride)) == 0 &&
           a->versioned && b->versioned && a->version == b->version && a->sampled == b->sampled &&
           a->sample == b->sample;
}

/* ---- binding ---- */

/* `made` takes the places of what the weights `first`, ... were bound to, once the library has them. */
static bool bind(sxp_module *self, size_t first, size_t count, sxp_weight *made)
{
    symplex_error error;
    symplex_code code;
    const sxp_tensor *tensor = self->role[SYMPLEX_WEIGHT_TENSOR].tensor + first;
    symplex_weight *given = PyMem_Calloc(count + 1, sizeof(*given));
    if (given == NULL) {
        return PyErr_NoMemory() != NULL;
    }
    for (size_t i = 0; i < count; i++) {
        made[i].packed = self->weight[first + i].packed;
        made[i].number = is_noted_alike(&self->weight[first + i], &made[i])
                             ? self->weight[first + i].number
                             : ++self->binds;
        given[i] = (symplex_weight){tensor[i].index, made[i].memory.data, sxp_size_of(&tensor[i]),
                                    made[i].number};
    }
    Py_BEGIN_ALLOW_THREADS;
    (void)pthread_mutex_lock(&self->lock);
    code = symplex_module_bind_weights(self->module, given, count, NULL, &error);
    (void)pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    PyMem_Free(given);
    if (code != SYMPLEX_OK) {
        sxp_raise(self->state, &error, NULL);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sxp_weight before = self->weight[first + i];
        self->weight[first + i] = made[i];
        made[i] = before; /* the caller releases it */
    }
    return true;
}

static bool take(sxp_module *self, const sxp_tensor *tensor, PyObject *object, sxp_weight *weight)
{
    if (self->gpu >= 0 && sxp_on_gpu(self->state, object)) {
        PyErr_Format(
            PyExc_NotImplementedError,
            "weight '%s': it lies on a GPU; weights are bound from memory of the host, and "
            "copied once",
            tensor->name);
        return false;
    }
    if (!sxp_take(self, tensor, "weight", object, false, &weight->memory)) {
        return false;
    }
    bool held = weight->memory.view.obj != NULL || weight->memory.managed != NULL;
    weight->object = held ? NULL : Py_NewRef(object);
    return true;
}

PyObject *sxp_bind_weight(PyObject *object, PyObject *args)
{
    sxp_module *self = module_of(object);
    const char *name;
    PyObject *given;
    sxp_weight made = {.object = NULL};
    if (!PyArg_ParseTuple(args, "sO", &name, &given)) {
        return NULL;
    }
    sxp_tensor *tensor = sxp_find(self, SYMPLEX_WEIGHT_TENSOR, "weight", name);
    bool good = tensor != NULL && take(self, tensor, given, &made) &&
                bind(self, (size_t)(tensor - self->role[SYMPLEX_WEIGHT_TENSOR].tensor), 1, &made);
    release(&made);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* All are taken before one is bound. */
static bool bind_all(sxp_module *self, PyObject *arrays, PyObject *owners, sxp_weight *made)
{
    const sxp_list *list = &self->role[SYMPLEX_WEIGHT_TENSOR];
    for (size_t i = 0; i < list->count; i++) {
        const sxp_tensor *tensor = &list->tensor[i];
        if (!take(self, tensor, PyTuple_GetItem(arrays, (Py_ssize_t)i), &made[i]) ||
            (owners != Py_None &&
             !note(self->state, PyTuple_GetItem(owners, (Py_ssize_t)i), tensor, &made[i]))) {
            return false;
        }
    }
    return bind(self, 0, list->count, made);
}

static bool check_count(const sxp_module *self, PyObject *tuple)
{
    size_t count = self->role[SYMPLEX_WEIGHT_TENSOR].count;
    if (!PyTuple_Check(tuple) || (size_t)PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of the %zu weights of the module is needed", count);
        return false;
    }
    return true;
}

PyObject *sxp_bind_weights(PyObject *object, PyObject *args)
{
    sxp_module *self = module_of(object);
    PyObject *arrays, *owners;
    size_t count = self->role[SYMPLEX_WEIGHT_TENSOR].count;
    if (!PyArg_ParseTuple(args, "OO", &arrays, &owners) || !check_count(self, arrays) ||
        (owners != Py_None && !check_count(self, owners))) {
        return NULL;
    }
    sxp_weight *made = PyMem_Calloc(count + 1, sizeof(*made));
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    bool good = bind_all(self, arrays, owners, made);
    for (size_t i = 0; i < count; i++) {
        release(&made[i]);
    }
    PyMem_Free(made);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyObject *sxp_holds(PyObject *object, PyObject *args)
{
    sxp_module *self = module_of(object);
    PyObject *owners;
    int content, same = 1;
    const sxp_list *list = &self->role[SYMPLEX_WEIGHT_TENSOR];
    if (!PyArg_ParseTuple(args, "Op", &owners, &content) || !check_count(self, owners)) {
        return NULL;
    }
    for (size_t i = 0; same == 1 && i < list->count; i++) {
        same = is_as_noted(self->state, PyTuple_GetItem(owners, (Py_ssize_t)i), &list->tensor[i],
                           content != 0, &self->weight[i]);
    }
    return same < 0 ? NULL : PyBool_FromLong(same);
}
