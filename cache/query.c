/* query.c - looking into the store and checking it: list, show, explain, verify. Runs on the owner, with the reader. */
#include "cache/owner.h"

#include <stdlib.h>
#include <string.h>

/* ---- list ---- */

typedef struct {
    sx_ctx *cx;
    sx_cache_info *info;
    uint32_t count;
    uint32_t capacity;
    bool failed;
    bool only_unstored;
} gathering;

static void gather(void *self, const sx_cache_info *info)
{
    gathering *all = self;
    if (all->failed || (all->only_unstored && info->stored)) {
        return;
    }
    void *array = all->info;
    if (all->count == UINT32_MAX ||
        sx_grow(all->cx, &array, &all->capacity, all->count + 1, sizeof(*info)) != SX_OK) {
        all->failed = true;
        return;
    }
    all->info = array;
    all->info[all->count] = *info;
    all->info[all->count++].tier = info->stored ? SX_TIER_DISK : SX_TIER_RAM;
}

static int compare_last_used(const void *left, const void *right)
{
    const sx_cache_info *a = left;
    const sx_cache_info *b = right;
    if (a->last_used_us != b->last_used_us) {
        return a->last_used_us > b->last_used_us ? -1 : 1;
    }
    int order = memcmp(a->key.byte, b->key.byte, SX_KEY_BYTES);
    if (order != 0) {
        return order;
    }
    return a->ns < b->ns ? -1 : (a->ns > b->ns ? 1 : 0);
}

static sx_code gather_stored(sx_ctx *cx, sx_cache *cache, uint32_t limit, gathering *all)
{
    sqlite3_stmt *row = sx_store_statement(&cache->reader, SX_SQL_LIST);
    int step = SQLITE_ERROR;
    if (row != NULL) {
        (void)sqlite3_bind_int64(row, 1, limit);
        while ((step = sqlite3_step(row)) == SQLITE_ROW) {
            sx_cache_info info;
            if (sx_store_column_info(row, &info)) {
                gather(all, &info);
            }
        }
        if (step != SQLITE_DONE) {
            sx_store_note(&cache->reader, "list");
        }
        (void)sqlite3_reset(row);
    }
    if (step != SQLITE_DONE) {
        sx_owner_note(cache, cache->reader.text);
        return SX_FAIL(cx, SX_SYSTEM, "cache store %s: %s", cache->path, cache->reader.text);
    }
    return all->failed ? cx->error.code : SX_OK;
}

/* Hits and changes that wait are written first where the store takes them; a failing store is read as it is. */
static void settle_quietly(sx_cache *cache)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 4096);
    (void)sx_owner_settle(&cx, cache, false); /* counted and noted in stats */
    sx_ctx_fini(&cx);
}

sx_code sx_cache_list(sx_ctx *cx, sx_cache *cache, uint32_t limit,
                      bool (*each)(void *self, const sx_cache_info *info), void *self)
{
    SX_ASSERT(each != NULL); /* it is not called where nothing is stored */
    gathering all = {.cx = cx};
    settle_quietly(cache);
    if (cache->reader.db != NULL) {
        SX_TRY(gather_stored(cx, cache, limit, &all));
    }
    all.only_unstored = cache->reader.db != NULL;
    sx_hot_walk(&cache->hot, gather, &all);
    for (const sx_op *op = cache->pending; op != NULL; op = op->hh.next) {
        if (op->type == SX_OP_PUT && sx_hot_find(&cache->hot, &op->ident) == NULL) {
            gather(&all, &op->u.put.info);
        }
    }
    if (all.failed) {
        return cx->error.code;
    }
    if (all.count > 1) {
        qsort(all.info, all.count, sizeof(*all.info), compare_last_used);
    }
    for (uint32_t i = 0; i < all.count && i < limit; i++) {
        if (!each(self, &all.info[i])) {
            break;
        }
    }
    return SX_OK;
}

/* ---- show ---- */

static sx_code copy_span(sx_ctx *cx, sx_span *span)
{
    char *copy = sx_alloc_text(cx, *span);
    if (copy == NULL) {
        return cx->error.code;
    }
    span->ptr = (const uint8_t *)copy;
    return SX_OK;
}

static sx_code add_part(sx_ctx *cx, sx_cache_part *part, uint32_t *count, sx_span name,
                        sx_span value)
{
    if (*count >= SX_CACHE_PART_MAX) {
        return SX_OK; /* the store never holds more */
    }
    part[*count] = (sx_cache_part){.name = name, .value = value};
    SX_TRY(copy_span(cx, &part[*count].name));
    SX_TRY(copy_span(cx, &part[*count].value));
    (*count)++;
    return SX_OK;
}

static sx_code read_parts(sx_ctx *cx, sx_cache *cache, const sx_ident *ident, sx_cache_part *part,
                          uint32_t *count)
{
    *count = 0;
    const sx_op *op = sx_owner_pending(cache, ident);
    if (op != NULL && op->type == SX_OP_PUT) {
        for (uint32_t i = 0; i < op->u.put.part_count; i++) {
            SX_TRY(add_part(cx, part, count, op->u.put.part[i].name, op->u.put.part[i].value));
        }
        return SX_OK;
    }
    if (cache->reader.db == NULL) {
        return SX_OK;
    }
    sqlite3_stmt *row = sx_store_statement(&cache->reader, SX_SQL_PARTS);
    if (row == NULL) {
        return SX_FAIL(cx, SX_SYSTEM, "cache store %s: %s", cache->path, cache->reader.text);
    }
    sx_store_bind_ident(row, ident);
    sx_code code = SX_OK;
    while (code == SX_OK && sqlite3_step(row) == SQLITE_ROW) {
        code =
            add_part(cx, part, count, sx_store_column_span(row, 0), sx_store_column_span(row, 1));
    }
    (void)sqlite3_reset(row);
    return code;
}

/* The row without its blob, from the store; false: none. */
static bool find_stored(sx_cache *cache, const sx_ident *ident, sx_cache_info *info)
{
    sqlite3_stmt *row =
        cache->reader.db != NULL ? sx_store_statement(&cache->reader, SX_SQL_FIND) : NULL;
    if (row == NULL) {
        return false;
    }
    sx_store_bind_ident(row, ident);
    bool found = sqlite3_step(row) == SQLITE_ROW && sx_store_column_info(row, info);
    (void)sqlite3_reset(row);
    return found;
}

sx_code sx_cache_show(sx_ctx *cx, sx_cache *cache, uint32_t ns, const sx_key *key,
                      sx_cache_info *info, sx_cache_part **part, uint32_t *part_count)
{
    sx_ident ident = {.key = *key, .ns = ns};
    settle_quietly(cache);
    const sx_op *op = sx_owner_pending(cache, &ident);
    const sx_cache_info *hot = sx_hot_find(&cache->hot, &ident);
    if (op != NULL && op->type == SX_OP_PUT) {
        *info = hot != NULL ? *hot : op->u.put.info;
    } else if (!find_stored(cache, &ident, info)) {
        if (hot == NULL) {
            char text[SX_KEY_TEXT_SIZE];
            sx_key_print(key, text);
            return SX_FAIL(cx, SX_ABSENT, "cache entry %s: none in namespace %u", text, ns);
        }
        *info = *hot;
    }
    *part = SX_NEW_ARRAY(cx, sx_cache_part, SX_CACHE_PART_MAX);
    if (*part == NULL) {
        return cx->error.code;
    }
    return read_parts(cx, cache, &ident, *part, part_count);
}

/* ---- verify ---- */

#define WALK_ROWS 64

/* The identities after the cursor. False: the store cannot be read. */
static bool walk(sx_cache *cache, const sx_cache_verification *state, uint32_t rows,
                 sx_ident ident[WALK_ROWS], uint32_t *count)
{
    *count = 0;
    sqlite3_stmt *row = sx_store_statement(&cache->reader, SX_SQL_WALK);
    if (row == NULL) {
        return false;
    }
    if (state->started) {
        (void)sqlite3_bind_blob(row, 1, state->after_key.byte, SX_KEY_BYTES, SQLITE_STATIC);
        (void)sqlite3_bind_int64(row, 2, state->after_ns);
    } else {
        (void)sqlite3_bind_zeroblob(row, 1, 0);
        (void)sqlite3_bind_int64(row, 2, -1);
    }
    (void)sqlite3_bind_int64(row, 3, rows);
    int step;
    while (*count < WALK_ROWS && (step = sqlite3_step(row)) == SQLITE_ROW) {
        sx_span key = sx_store_column_span(row, 0);
        if (key.len == SX_KEY_BYTES) {
            memcpy(ident[*count].key.byte, key.ptr, SX_KEY_BYTES);
            ident[(*count)++].ns = (uint32_t)sx_store_column_u64(row, 1);
        }
    }
    bool whole = *count == WALK_ROWS || step == SQLITE_DONE;
    if (!whole) {
        sx_store_note(&cache->reader, "verify");
    }
    (void)sqlite3_reset(row);
    return whole;
}

static bool check_one(sx_cache *cache, const sx_ident *ident, sx_cache_verification *state)
{
    sx_blob *blob = NULL;
    sx_cache_info info;
    sx_store_damage damage;
    sx_code code = sx_store_load(&cache->reader, ident, &blob, &info, &damage);
    sx_blob_free(blob);
    if (code == SX_OK) {
        state->ok++;
    } else if (code == SX_CORRUPT) {
        const sx_op *op = sx_owner_pending(cache, ident);
        if (op == NULL) { /* else it is being moved or replaced already */
            sx_owner_quarantine(cache, ident, &damage);
        }
        state->corrupt++;
    }
    return code != SX_SYSTEM && code != SX_NOMEM;
}

static bool finish_verify(sx_cache *cache, sx_cache_verification *state)
{
    sqlite3_stmt *row = sx_store_statement(&cache->reader, SX_SQL_ORPHANS);
    if (row == NULL || sqlite3_step(row) != SQLITE_ROW) {
        sx_store_note(&cache->reader, "verify");
        return false;
    }
    state->orphans = sx_store_column_u64(row, 0);
    (void)sqlite3_reset(row);
    if (state->deep) {
        row = sx_store_statement(&cache->reader, SX_SQL_INTEGRITY);
        bool sound = row != NULL && sqlite3_step(row) == SQLITE_ROW &&
                     sx_span_is(sx_store_column_span(row, 0), "ok");
        state->damaged_pages = sound ? 0 : 1;
        if (row != NULL) {
            (void)sqlite3_reset(row);
        }
    }
    state->finished = true;
    return true;
}

sx_code sx_cache_verify(sx_ctx *cx, sx_cache *cache, uint32_t rows, sx_cache_verification *state)
{
    settle_quietly(cache);
    if (cache->reader.db == NULL) {
        return SX_FAIL(cx, SX_ABSENT, "cache verify: there is no store (%s)",
                       sx_cache_store_name(cache->state));
    }
    uint32_t left = rows != 0 ? rows : UINT32_MAX;
    bool readable = true;
    while (left > 0 && readable && !state->finished) {
        sx_ident ident[WALK_ROWS];
        uint32_t count;
        uint32_t wanted = left < WALK_ROWS ? left : WALK_ROWS;
        readable = walk(cache, state, wanted, ident, &count);
        for (uint32_t i = 0; i < count && readable; i++) {
            readable = check_one(cache, &ident[i], state);
            state->after_key = ident[i].key;
            state->after_ns = ident[i].ns;
            state->started = true;
        }
        left -= rows != 0 ? count : 0;
        if (readable && count == 0) {
            settle_quietly(cache); /* the quarantined rows first: their blobs are no orphans */
            readable = finish_verify(cache, state);
        }
    }
    if (!readable) {
        sx_owner_note(cache, cache->reader.text);
        return SX_FAIL(cx, sx_store_is_damage(cache->reader.code) ? SX_CORRUPT : SX_SYSTEM,
                       "cache store %s: %s", cache->path, cache->reader.text);
    }
    return SX_OK;
}
