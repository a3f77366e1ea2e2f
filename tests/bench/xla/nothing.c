/* nothing.c - a custom call of XLA that does nothing: what any call by its interface for foreign functions costs at
 * least (`symplex-bench jax --case floor`). */
#include "client/python/extension/xla.h"

typedef struct {
    size_t struct_size;
    xla_extension *extension;
} xla_call;

__attribute__((visibility("default"))) void *sx_xla_nothing(xla_call *call);

/* NULL: no error. */
void *sx_xla_nothing(xla_call *call)
{
    if (call->extension != NULL && call->extension->type == XLA_EXTENSION_METADATA) {
        call->extension->metadata->version.major = XLA_API_MAJOR;
        call->extension->metadata->version.minor = XLA_API_MINOR;
        call->extension->metadata->traits = 0;
    }
    return NULL;
}
