#include "core/base/idmap.h"

#include <string.h>

uint32_t sx_idmap_find(const sx_idmap *map, uint64_t hash, sx_idmap_equal equal, const void *self,
                       const void *probe)
{
    if (map->slot_count == 0) {
        return SX_IDMAP_NONE;
    }
    uint32_t mask = map->slot_count - 1;
    uint32_t low = (uint32_t)hash;
    for (uint32_t i = low & mask; map->slot[i] != 0; i = (i + 1) & mask) {
        if (map->hash[i] == low && equal(self, map->slot[i] - 1, probe)) {
            return map->slot[i] - 1;
        }
    }
    return SX_IDMAP_NONE;
}

static void place(sx_idmap *map, uint32_t low, uint32_t stored)
{
    uint32_t mask = map->slot_count - 1;
    uint32_t i = low & mask;
    while (map->slot[i] != 0) {
        i = (i + 1) & mask;
    }
    map->slot[i] = stored;
    map->hash[i] = low;
}

sx_code sx_idmap_put(sx_ctx *cx, sx_idmap *map, uint64_t hash, uint32_t id)
{
    SX_ASSERT(id < UINT32_MAX - 1);
    if ((uint64_t)map->used * 2 + 2 > map->slot_count) {
        sx_idmap old = *map;
        uint32_t count = old.slot_count == 0 ? 16 : old.slot_count * 2;
        if (count < old.slot_count) {
            return SX_FAIL(cx, SX_LIMIT, "hash table of more than %u slots", old.slot_count);
        }
        map->slot = SX_NEW_ARRAY(cx, uint32_t, count);
        map->hash = SX_NEW_ARRAY(cx, uint32_t, count);
        if (map->slot == NULL || map->hash == NULL) {
            *map = old;
            return cx->error.code;
        }
        map->slot_count = count;
        for (uint32_t i = 0; i < old.slot_count; i++) {
            if (old.slot[i] != 0) {
                place(map, old.hash[i], old.slot[i]);
            }
        }
    }
    SX_ASSERT(map->used < map->slot_count / 2);
    place(map, (uint32_t)hash, id + 1);
    map->used++;
    return SX_OK;
}
