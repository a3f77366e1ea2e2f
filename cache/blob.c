/* blob.c - shared read-only bytes: one allocation, counter in front, payload aligned to 64. */
#include "cache/cache.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sx_blob {
    _Atomic uint32_t references;
    uint32_t reserved;
    size_t size;
    uint8_t pad[48];
};
_Static_assert(sizeof(sx_blob) == 64, "payload starts on a cache line");

sx_blob *sx_blob_new(size_t size)
{
    if (size > SX_CACHE_BLOB_MAX) {
        return NULL;
    }
    size_t total = (sizeof(sx_blob) + size + 63) & ~(size_t)63;
    sx_blob *blob = aligned_alloc(64, total);
    if (blob != NULL) {
        *blob = (sx_blob){0};
        blob->size = size;
        atomic_init(&blob->references, 1);
    }
    return blob;
}

sx_blob *sx_blob_share(sx_blob *blob)
{
    uint32_t before = atomic_fetch_add_explicit(&blob->references, 1, memory_order_relaxed);
    SX_ASSERT(before > 0 && before < UINT32_MAX);
    return blob;
}

void sx_blob_free(sx_blob *blob)
{
    if (blob == NULL) {
        return;
    }
    uint32_t before = atomic_fetch_sub_explicit(&blob->references, 1, memory_order_acq_rel);
    SX_ASSERT(before > 0);
    if (before == 1) {
        free(blob);
    }
}

sx_span sx_blob_span(const sx_blob *blob)
{
    return (sx_span){(const uint8_t *)(blob + 1), blob->size};
}

uint8_t *sx_blob_bytes(sx_blob *blob)
{
    return (uint8_t *)(blob + 1);
}
