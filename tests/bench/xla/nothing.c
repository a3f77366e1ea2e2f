/* nothing.c - a custom call of XLA that does nothing: what any call by its interface for foreign functions costs at
 * least (`symplex-bench jax --case floor`). Structures as in client/python/extension/xla.c. */
#include <stddef.h>
#include <stdint.h>

#define EXTENSION_METADATA 1

typedef struct {
    size_t struct_size;
    void *extension;
    int major, minor;
} xla_version;

typedef struct {
    size_t struct_size;
    xla_version version;
    uint32_t traits;
} xla_metadata;

typedef struct {
    size_t struct_size;
    int type;
    void *next;
    xla_metadata *metadata;
} xla_extension;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
} xla_call;

__attribute__((visibility("default"))) void *sx_xla_nothing(xla_call *call);

/* NULL: no error. */
void *sx_xla_nothing(xla_call *call)
{
    if (call->extension != NULL && call->extension->type == EXTENSION_METADATA) {
        call->extension->metadata->version.major = 0;
        call->extension->metadata->version.minor = 1;
        call->extension->metadata->traits = 0;
    }
    return NULL;
}
