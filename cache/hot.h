/* hot.h - the RAM tier: entries by identity, least recently used out first, limited in bytes.
 *
 * LRU and not GreedyDual-Size: behind the RAM tier stands the store, so a miss here costs one read whatever
 * the entry cost to make. Hits are counted in the entry; the entries with unsaved hits form a second list,
 * which the owner empties into TOUCH operations.
 */
#ifndef SX_CACHE_HOT_H
#define SX_CACHE_HOT_H
#include "cache/store.h"

typedef struct sx_hot_entry sx_hot_entry;
typedef struct {
    sx_hot_entry *table; /* uthash head */
    sx_hot_entry *used;  /* utlist: most recent first */
    sx_hot_entry *dirty; /* utlist: with unsaved hits */
    uint64_t count;      /* entries */
    uint64_t bytes;      /* what they take together, each with a fixed charge for its row */
    uint64_t limit;      /* `bytes` is never above it */
    /* How many entries have left to make room for others. */
    uint64_t evicted;
    /* Called, with `self`, before an entry with unsaved hits leaves by eviction, so that the hits are not lost. */
    void (*leaving)(void *self, const sx_ident *ident, uint64_t hits, uint64_t last_used_us);
    void *self;
} sx_hot;

void sx_hot_init(sx_hot *hot, uint64_t limit);
void sx_hot_fini(sx_hot *hot);
/* Takes a reference of its own; replaces. An entry over a quarter of the limit is not kept: false. */
bool sx_hot_put(sx_hot *hot, sx_blob *blob, const sx_cache_info *info);
/* NULL when absent. The blob is borrowed. Moves the entry to the front and counts a hit at `now_us`. */
sx_blob *sx_hot_hit(sx_hot *hot, const sx_ident *ident, uint64_t now_us, sx_cache_info *info);
/* Looks without counting; NULL when absent. */
const sx_cache_info *sx_hot_find(const sx_hot *hot, const sx_ident *ident);
/* What the writer found out: stored size and generation. Ignored when the entry has gone or is of a later put
 * (other blob). */
void sx_hot_stored(sx_hot *hot, const sx_ident *ident, const sx_blob *blob, uint64_t stored_size,
                   uint64_t generation);
bool sx_hot_pin(sx_hot *hot, const sx_ident *ident, bool pinned); /* false: absent */
bool sx_hot_remove(sx_hot *hot, const sx_ident *ident);
/* Removes all that `match` accepts; returns how many. */
uint64_t sx_hot_remove_if(sx_hot *hot, bool (*match)(const void *self, const sx_cache_info *info),
                          const void *self);
/* Calls `each` for every entry, in order of insertion. */
void sx_hot_walk(const sx_hot *hot, void (*each)(void *self, const sx_cache_info *info),
                 void *self);
/* Takes the oldest unsaved count; false when there is none. */
bool sx_hot_take_dirty(sx_hot *hot, sx_ident *ident, uint64_t *hits, uint64_t *last_used_us);
#endif
