#include "cache/hot.h"

#include <stdlib.h>
#include <string.h>

#include "cache/hash_table.h"

struct sx_hot_entry {
    sx_ident ident;
    bool is_dirty;
    uint64_t unsaved;
    sx_blob *blob;
    sx_cache_info info;
    sx_hot_entry *prev; /* used list */
    sx_hot_entry *next;
    sx_hot_entry *dirty_prev; /* dirty list */
    sx_hot_entry *dirty_next;
    UT_hash_handle hh;
};

void sx_hot_init(sx_hot *hot, uint64_t limit)
{
    *hot = (sx_hot){.limit = limit};
}

static uint64_t charge_of(const sx_hot_entry *entry)
{
    return sx_blob_span(entry->blob).len + sizeof(*entry) + 64;
}

static void unlink_dirty(sx_hot *hot, sx_hot_entry *entry)
{
    if (entry->is_dirty) {
        DL_DELETE2(hot->dirty, entry, dirty_prev, dirty_next);
        entry->is_dirty = false;
        entry->unsaved = 0;
    }
}

static void drop(sx_hot *hot, sx_hot_entry *entry)
{
    uint64_t charge = charge_of(entry);
    SX_ASSERT(hot->bytes >= charge && hot->count > 0);
    hot->bytes -= charge;
    hot->count--;
    unlink_dirty(hot, entry);
    DL_DELETE(hot->used, entry);
    HASH_DEL(hot->table, entry);
    sx_blob_free(entry->blob);
    free(entry);
}

void sx_hot_fini(sx_hot *hot)
{
    while (hot->used != NULL) {
        drop(hot, hot->used);
    }
    SX_ASSERT(hot->bytes == 0 && hot->count == 0 && hot->dirty == NULL);
}

static sx_hot_entry *find(const sx_hot *hot, const sx_ident *ident)
{
    sx_hot_entry *entry = NULL;
    HASH_FIND(hh, hot->table, ident, sizeof(*ident), entry);
    return entry;
}

static void make_room(sx_hot *hot)
{
    while (hot->bytes > hot->limit && hot->used != NULL) {
        sx_hot_entry *last = hot->used->prev; /* utlist: the head's prev is the tail */
        if (last->is_dirty && hot->leaving != NULL) {
            hot->leaving(hot->self, &last->ident, last->unsaved, last->info.last_used_us);
        }
        drop(hot, last);
        hot->evicted++;
    }
}

bool sx_hot_put(sx_hot *hot, sx_blob *blob, const sx_cache_info *info)
{
    sx_ident ident = {.key = info->key, .ns = info->ns};
    (void)sx_hot_remove(hot, &ident);
    if (sx_blob_span(blob).len > hot->limit / 4) {
        return false;
    }
    sx_hot_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return false;
    }
    entry->ident = ident;
    entry->info = *info;
    HASH_ADD(hh, hot->table, ident, sizeof(entry->ident), entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return false;
    }
    entry->blob = sx_blob_share(blob);
    DL_PREPEND(hot->used, entry);
    hot->bytes += charge_of(entry);
    hot->count++;
    make_room(hot);
    SX_ASSERT(hot->bytes <= hot->limit);
    return true;
}

sx_blob *sx_hot_hit(sx_hot *hot, const sx_ident *ident, uint64_t now_us, sx_cache_info *info)
{
    sx_hot_entry *entry = find(hot, ident);
    if (entry == NULL) {
        return NULL;
    }
    if (entry != hot->used) {
        DL_DELETE(hot->used, entry);
        DL_PREPEND(hot->used, entry);
    }
    if (!entry->is_dirty) {
        DL_APPEND2(hot->dirty, entry, dirty_prev, dirty_next);
        entry->is_dirty = true;
    }
    entry->unsaved++;
    entry->info.hits++;
    SX_ASSERT(hot->used == entry && entry->blob != NULL);
    if (entry->info.last_used_us < now_us) {
        entry->info.last_used_us = now_us;
    }
    *info = entry->info;
    return entry->blob;
}

const sx_cache_info *sx_hot_find(const sx_hot *hot, const sx_ident *ident)
{
    const sx_hot_entry *entry = find(hot, ident);
    return entry != NULL ? &entry->info : NULL;
}

void sx_hot_stored(sx_hot *hot, const sx_ident *ident, const sx_blob *blob, uint64_t stored_size,
                   uint64_t generation)
{
    sx_hot_entry *entry = find(hot, ident);
    if (entry != NULL && entry->blob == blob) {
        entry->info.stored = true;
        entry->info.stored_size = stored_size;
        entry->info.generation = generation;
    }
}

bool sx_hot_pin(sx_hot *hot, const sx_ident *ident, bool pinned)
{
    sx_hot_entry *entry = find(hot, ident);
    if (entry != NULL) {
        entry->info.pinned = pinned;
    }
    return entry != NULL;
}

bool sx_hot_remove(sx_hot *hot, const sx_ident *ident)
{
    sx_hot_entry *entry = find(hot, ident);
    if (entry != NULL) {
        drop(hot, entry);
    }
    return entry != NULL;
}

uint64_t sx_hot_remove_if(sx_hot *hot, bool (*match)(const void *self, const sx_cache_info *info),
                          const void *self)
{
    uint64_t count = 0;
    sx_hot_entry *entry;
    sx_hot_entry *next;
    DL_FOREACH_SAFE(hot->used, entry, next)
    {
        if (match(self, &entry->info)) {
            drop(hot, entry);
            count++;
        }
    }
    return count;
}

void sx_hot_walk(const sx_hot *hot, void (*each)(void *self, const sx_cache_info *info), void *self)
{
    for (const sx_hot_entry *entry = hot->table; entry != NULL; entry = entry->hh.next) {
        each(self, &entry->info);
    }
}

bool sx_hot_take_dirty(sx_hot *hot, sx_ident *ident, uint64_t *hits, uint64_t *last_used_us)
{
    sx_hot_entry *entry = hot->dirty;
    if (entry == NULL) {
        return false;
    }
    SX_ASSERT(entry->is_dirty && entry->unsaved > 0);
    *ident = entry->ident;
    *hits = entry->unsaved;
    *last_used_us = entry->info.last_used_us;
    unlink_dirty(hot, entry);
    return true;
}
