/* xla.h - how XLA asks a handler of foreign functions which version of its C interface it speaks
 * (xla/ffi/api/c_api.h). Only what is read; the order of members is the interface. */
#ifndef SX_CLIENT_PYTHON_EXTENSION_XLA_H
#define SX_CLIENT_PYTHON_EXTENSION_XLA_H
#include <stddef.h>
#include <stdint.h>

#define XLA_API_MAJOR 0
#define XLA_API_MINOR 1
#define XLA_EXTENSION_METADATA 1

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
#endif
