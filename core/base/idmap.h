/* idmap.h - hash-consing: a table of u32 ids over an array of nodes that the caller owns.
 *
 * A slot holds id + 1; 0 is free. Linear probing, load at most 1/2, no removal (rebuild instead). The caller
 * supplies hash and equality, so nothing observable depends on slot order.
 */
#ifndef SX_CORE_BASE_IDMAP_H
#define SX_CORE_BASE_IDMAP_H
#include "core/base/base.h"

typedef struct {
    uint32_t *slot;
    uint32_t *hash;      /* low 32 bits, to grow without calling back and to skip compares */
    uint32_t slot_count; /* power of two, or 0 before the first put */
    uint32_t used;
} sx_idmap;

typedef bool (*sx_idmap_equal)(const void *self, uint32_t id, const void *probe);

#define SX_IDMAP_NONE UINT32_MAX
/* The id whose node equals `probe`, or SX_IDMAP_NONE. */
uint32_t sx_idmap_find(const sx_idmap *map, uint64_t hash, sx_idmap_equal equal, const void *self,
                       const void *probe);
/* Adds an id known to be absent. Memory from cx's arena. */
sx_code sx_idmap_put(sx_ctx *cx, sx_idmap *map, uint64_t hash, uint32_t id);
#endif
