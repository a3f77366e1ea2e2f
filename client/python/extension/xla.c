/* xla.c - modules as custom calls of XLA: the handler that jax.ffi.register_ffi_target takes. The structures are those
 * of XLA's C interface for foreign functions (xla/ffi/api/c_api.h, versions 0.1 to 0.3, which begin alike); nothing of
 * it is linked. XLA calls from threads of its own, without the interpreter's lock. */
#include "client/python/extension/callable.h"
#include "client/python/extension/xla.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- XLA's interface: only what is read here; the order of members is the interface ---- */

#define BUFFER 1   /* the type of an argument or result that lies in memory */
#define SCALAR 3   /* the type of an attribute that is one number */
#define WHOLE_64 5 /* the element type i64 */
#define UNSIGNED_32 8
#define STAGE_EXECUTE 3
#define INVALID_ARGUMENT 3
#define FAILED_PRECONDITION 9
#define INTERNAL 13

typedef struct xla_error xla_error;

typedef struct {
    size_t struct_size;
    void *extension;
    const char *message;
    int code;
} xla_error_create;

typedef struct {
    size_t struct_size;
    void *extension;
    xla_version version;
    const void *internal;
    xla_error *(*error_create)(xla_error_create *);
} xla_api;

typedef struct {
    size_t struct_size;
    void *extension;
    int dtype;
    void *data;
    int64_t rank;
    const int64_t *dims;
} xla_buffer;

/* Arguments, and results. */
typedef struct {
    size_t struct_size;
    void *extension;
    int64_t size;
    const int *types;
    void **item;
} xla_list;

typedef struct {
    const char *ptr;
    size_t len;
} xla_span;

typedef struct {
    int dtype;
    const void *value;
} xla_scalar;

typedef struct {
    size_t struct_size;
    void *extension;
    int64_t size;
    const int *types;
    xla_span **names;
    void **item;
} xla_attributes;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    const xla_api *api;
    void *context;
    int stage;
    xla_list args, rets;
    xla_attributes attributes;
} xla_call;

/* ---- modules by number ---- */

/* Numbers of another process, as a stored executable may have them, name no module of this one: the upper half is
 * drawn once. Modules stay: an executable may call them as long as the process lives. So do the blocks that hold them,
 * each twice as large as the one before, and who looks one up needs no lock; numbers are given under the interpreter's.
 */
#define FIRST_BLOCK 16u
#define BLOCKS 24u
static struct {
    sxp_module **block[BLOCKS];
    _Atomic uint32_t count;
    uint32_t own;
} registry;

/* The place of module `number`: block b holds FIRST_BLOCK << b of them. */
static void place_of(uint32_t number, uint32_t *block, uint32_t *index)
{
    *block = 0;
    for (*index = number; *index >= FIRST_BLOCK << *block; (*block)++) {
        *index -= FIRST_BLOCK << *block;
    }
}

static bool draw_own(void)
{
    while (registry.own == 0) {
        if (getrandom(&registry.own, sizeof(registry.own), 0) != sizeof(registry.own)) {
            (void)PyErr_SetFromErrno(PyExc_OSError);
            return false;
        }
        registry.own &= INT32_MAX;
    }
    return true;
}

PyObject *sxp_xla_register(PyObject *self, PyObject *object)
{
    PyObject *type = PyObject_GetAttrString(self, "Module");
    int is = type != NULL ? PyObject_IsInstance(object, type) : -1;
    Py_XDECREF(type);
    if (is != 1) {
        return is < 0 ? NULL : PyErr_Format(PyExc_TypeError, "a symplex.Module is needed");
    }
    uint32_t number = atomic_load(&registry.count), block, index;
    place_of(number, &block, &index);
    if (!draw_own()) {
        return NULL;
    }
    if (block < BLOCKS && registry.block[block] == NULL) {
        registry.block[block] = calloc(FIRST_BLOCK << block, sizeof(sxp_module *));
    }
    if (block == BLOCKS || registry.block[block] == NULL) {
        return PyErr_NoMemory();
    }
    registry.block[block][index] = (sxp_module *)(void *)Py_NewRef(object);
    atomic_store(&registry.count, number + 1);
    return PyLong_FromLongLong((int64_t)registry.own << 32 | number);
}

static sxp_module *module_of(int64_t number)
{
    uint32_t block, index;
    if ((uint32_t)number >= atomic_load(&registry.count) ||
        (uint64_t)number >> 32 != registry.own) {
        return NULL;
    }
    place_of((uint32_t)number, &block, &index);
    return registry.block[block][index];
}

/* ---- a call ---- */

static xla_error *fail(const xla_call *call, int code, const char *text)
{
    xla_error_create create = {sizeof(create), NULL, text, code};
    return call->api->error_create(&create);
}

static bool number_of(const xla_attributes *attributes, const char *name, int64_t *number)
{
    for (int64_t i = 0; i < attributes->size; i++) {
        const xla_span *span = attributes->names[i];
        const xla_scalar *scalar = attributes->item[i];
        if (span->len == strlen(name) && memcmp(span->ptr, name, span->len) == 0 &&
            attributes->types[i] == SCALAR && scalar->dtype == WHOLE_64) {
            memcpy(number, scalar->value, sizeof(*number));
            return true;
        }
    }
    return false;
}

/* Memory of the tensors of a role, which are all of fixed shape; false: a buffer is not what the module needs. */
static bool take(const sxp_list *tensors, const xla_list *list, symplex_memory *memory)
{
    bool right = list->size == (int64_t)tensors->count;
    for (size_t i = 0; right && i < tensors->count; i++) {
        const sxp_tensor *tensor = &tensors->tensor[i];
        const xla_buffer *buffer = list->item[i];
        /* the bits of unsigned numbers are those of i32 */
        int dtype = buffer->dtype == UNSIGNED_32 ? sxp_dtypes[SYMPLEX_I32].xla : buffer->dtype;
        right = list->types[i] == BUFFER && buffer->rank == tensor->rank &&
                dtype == sxp_dtypes[tensor->dtype].xla;
        size_t bytes = sxp_dtypes[tensor->dtype].bytes;
        for (uint32_t d = 0; right && d < tensor->rank; d++) {
            right = buffer->dims[d] == tensor->shape[d];
            bytes *= (size_t)buffer->dims[d];
        }
        memory[i] = (symplex_memory){tensor->index, right ? buffer->data : NULL, bytes};
    }
    return right;
}

#define FEW 32 /* tensors of a call that needs no memory */

static xla_error *execute(const xla_call *call)
{
    int64_t number;
    sxp_module *module = number_of(&call->attributes, "module", &number) ? module_of(number) : NULL;
    if (module == NULL) {
        return fail(call, FAILED_PRECONDITION,
                    "symplex: the executable calls a module of another process");
    }
    const sxp_list *in = &module->role[SYMPLEX_INPUT_TENSOR];
    const sxp_list *out = &module->role[SYMPLEX_OUTPUT_TENSOR];
    size_t count = in->count + out->count;
    symplex_memory few[FEW];
    symplex_memory *memory = count <= FEW ? few : calloc(count, sizeof(*memory));
    symplex_error error; /* of the call */
    bool right = memory != NULL && take(in, &call->args, memory) &&
                 take(out, &call->rets, memory + in->count);
    symplex_code code = SYMPLEX_OK;
    if (right) {
        (void)pthread_mutex_lock(&module->lock);
        code = symplex_module_call(module->module, NULL, 0, memory, count, &error);
        (void)pthread_mutex_unlock(&module->lock);
    }
    free(memory != few ? memory : NULL);
    if (!right) {
        return fail(call, INVALID_ARGUMENT, "symplex: a buffer is not what the module needs");
    }
    if (code != SYMPLEX_OK) {
        char text[sizeof(error.text) + 16];
        (void)snprintf(text, sizeof(text), "symplex: %s", error.text);
        return fail(call, INTERNAL, text);
    }
    return NULL;
}

static xla_error *handle(xla_call *call)
{
    xla_extension *extension = call->extension;
    if (extension != NULL && extension->type == XLA_EXTENSION_METADATA) {
        extension->metadata->version.major = XLA_API_MAJOR;
        extension->metadata->version.minor = XLA_API_MINOR;
        extension->metadata->traits = 0;
        return NULL;
    }
    return call->stage == STAGE_EXECUTE ? execute(call) : NULL;
}

PyObject *sxp_xla_handler(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
    /* A capsule holds a pointer to data, and XLA takes that for the address of the function. */
    xla_error *(*function)(xla_call *) = handle;
    void *address;
    memcpy(&address, &function, sizeof(address));
    return PyCapsule_New(address, NULL, NULL);
}
