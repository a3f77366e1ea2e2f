/* cache.c - the owner's side: open, get, put, tick, flush, evict, close. */
#include "cache/owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/place.h"

#define QUEUE_ROWS_MAX 8192                  /* staged and in flight */
#define TOUCH_ROWS_MAX 4096                  /* counts of hits kept back */
#define BATCH_ROWS_MAX 1024                  /* of one transaction */
#define BATCH_BYTES_MAX ((uint64_t)32 << 20) /* of one transaction, unless one entry is larger */
#define PAUSE_US_MIN UINT64_C(100000)        /* between tries while the store fails */
#define PAUSE_US_MAX UINT64_C(30000000)

uint64_t sx_owner_now(const sx_cache *cache)
{
    if (cache->options.now_us != NULL) {
        return cache->options.now_us(cache->options.now_self);
    }
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool sx_owner_writes(const sx_cache *cache)
{
    return cache->writer != NULL &&
           (cache->state == SX_STORE_OK || cache->state == SX_STORE_FAILING);
}

void sx_owner_note(sx_cache *cache, const char *text)
{
    cache->stats.errors++;
    (void)snprintf(cache->stats.error_text, sizeof(cache->stats.error_text), "%s", text);
}

sx_op *sx_owner_pending(const sx_cache *cache, const sx_ident *ident)
{
    sx_op *op = NULL;
    HASH_FIND(hh, cache->pending, ident, sizeof(*ident), op);
    return op;
}

static void unset_pending(sx_cache *cache, sx_op *op)
{
    if (op->is_pending) {
        HASH_DEL(cache->pending, op);
        op->is_pending = false;
    }
}

/* False when there is no memory; then nothing changed. */
static bool set_pending(sx_cache *cache, sx_op *op)
{
    sx_op *older = sx_owner_pending(cache, &op->ident);
    HASH_ADD(hh, cache->pending, ident, sizeof(op->ident), op);
    if (op->hh.tbl == NULL) {
        return false;
    }
    op->is_pending = true;
    if (older != NULL) {
        unset_pending(cache, older);
    }
    return true;
}

void sx_owner_stage(sx_cache *cache, sx_op *op)
{
    SX_ASSERT(op->next == NULL); /* it is in no other list */
    if (cache->staged.rows == 0) {
        cache->staged_since_us = sx_owner_now(cache);
    }
    sx_op_list_append(&cache->staged, op);
}

static uint64_t queue_rows(const sx_cache *cache)
{
    return cache->staged.rows + cache->in_flight.list.rows;
}

static uint64_t queue_bytes(const sx_cache *cache)
{
    return cache->staged.bytes + cache->in_flight.list.bytes;
}

/* ---- hits on their way to the store ---- */

/* Not a reason to commit by itself: each commit makes the reader look at its pages afresh. */
static void keep_touch(void *self, const sx_ident *ident, uint64_t hits, uint64_t last_used_us)
{
    sx_cache *cache = self;
    if (!sx_owner_writes(cache) || cache->touches.rows >= TOUCH_ROWS_MAX) {
        return; /* a lost count of hits is no loss of data */
    }
    sx_op *op = sx_op_new(SX_OP_TOUCH, ident);
    if (op != NULL) {
        op->u.touch.hits = hits;
        op->u.touch.last_used_us = last_used_us;
        sx_op_list_append(&cache->touches, op);
    }
}

static void stage_touches(sx_cache *cache, uint64_t now)
{
    sx_ident ident;
    uint64_t hits;
    uint64_t last_used_us;
    cache->touched_us = now;
    while (cache->touches.rows < TOUCH_ROWS_MAX &&
           sx_hot_take_dirty(&cache->hot, &ident, &hits, &last_used_us)) {
        keep_touch(cache, &ident, hits, last_used_us);
    }
    sx_op *op;
    while (queue_rows(cache) < QUEUE_ROWS_MAX && (op = sx_op_list_take(&cache->touches)) != NULL) {
        sx_owner_stage(cache, op);
    }
}

/* ---- collecting a batch ---- */

/* Gives an operation up or ends it well. */
static void end_op(sx_cache *cache, sx_op *op, sx_code code)
{
    unset_pending(cache, op);
    void (*done)(void *self, sx_code code) = NULL;
    void *done_self = NULL;
    if (op->type == SX_OP_PUT) {
        done = op->u.put.done;
        done_self = op->u.put.done_self;
        if (code == SX_OK) {
            sx_hot_stored(&cache->hot, &op->ident, op->u.put.blob, op->u.put.stored_size,
                          op->u.put.generation);
        }
    }
    sx_op_free(op);
    if (done != NULL) {
        done(done_self, code);
    }
}

static void end_all(sx_cache *cache, sx_op_list *list, sx_code code)
{
    sx_op_list mine = *list;
    *list = (sx_op_list){0};
    sx_op *op;
    while ((op = sx_op_list_take(&mine)) != NULL) {
        end_op(cache, op, code != SX_OK ? code : op->code);
    }
}

static void open_reader(sx_cache *cache)
{
    if (cache->reader.db == NULL &&
        !sx_store_open_reader(&cache->reader, cache->path, cache->options.vfs,
                              !cache->options.without_map)) {
        sx_owner_note(cache, cache->reader.text);
    }
}

static void take_committed(sx_cache *cache, const sx_batch_result *result)
{
    sx_cache_stats *stats = &cache->stats;
    cache->state = SX_STORE_OK;
    cache->pause_us = 0;
    cache->wants_batch = result->more;
    stats->commits++;
    stats->evicted_size += result->evicted_size;
    stats->evicted_quota += result->evicted_quota;
    stats->evicted_request += result->evicted_request;
    stats->entries = result->entries;
    stats->bytes = result->bytes;
    stats->quarantined = result->quarantined;
    if (result->text[0] != '\0') {
        sx_owner_note(cache, result->text); /* one row given up, or not synced */
    }
    open_reader(cache);
    end_all(cache, &cache->in_flight.list, SX_OK);
}

/* What could not be written goes back to the front of the queue. */
static void take_failed(sx_cache *cache, const sx_batch_result *result)
{
    sx_owner_note(cache, result->text);
    if (result->code == SX_CORRUPT) {
        cache->state = SX_STORE_DAMAGED;
        char mark[SX_CACHE_PATH_MAX + 16];
        (void)snprintf(mark, sizeof(mark), "%s.damaged", cache->path);
        FILE *file = fopen(mark, "we");
        if (file != NULL) {
            (void)fclose(file);
        }
        end_all(cache, &cache->in_flight.list, SX_CORRUPT);
        end_all(cache, &cache->staged, SX_CORRUPT);
        return;
    }
    cache->state = SX_STORE_FAILING;
    cache->pause_us = cache->pause_us == 0 ? PAUSE_US_MIN : cache->pause_us * 2;
    if (cache->pause_us > PAUSE_US_MAX) {
        cache->pause_us = PAUSE_US_MAX;
    }
    cache->retry_us = sx_owner_now(cache) + cache->pause_us;
    cache->wants_batch = true; /* so that it is tried again also with nothing staged */
    sx_op_list later = cache->staged;
    cache->staged = cache->in_flight.list;
    cache->in_flight.list = (sx_op_list){0};
    sx_op_list_move(&later, &cache->staged, UINT64_MAX, UINT64_MAX);
}

/* True when no batch is with the writer afterwards. */
static bool collect(sx_cache *cache, bool wait)
{
    if (!cache->busy) {
        return true;
    }
    if (!sx_writer_take(cache->writer, wait)) {
        return false;
    }
    cache->busy = false;
    sx_batch_result result = cache->in_flight.result;
    if (result.code == SX_OK) {
        take_committed(cache, &result);
    } else {
        take_failed(cache, &result);
    }
    return true;
}

static void hand_over(sx_cache *cache, bool sync)
{
    SX_ASSERT(!cache->busy && cache->in_flight.list.rows == 0);
    sx_op_list_move(&cache->staged, &cache->in_flight.list, BATCH_ROWS_MAX, BATCH_BYTES_MAX);
    cache->in_flight.sync = sync;
    cache->staged_since_us = sx_owner_now(cache);
    cache->wants_batch = false;
    cache->busy = true;
    sx_writer_give(cache->writer, &cache->in_flight);
}

/* Microseconds left of `wait` since `start`; 0 when over or when the clock went back. */
static uint64_t time_left(uint64_t now, uint64_t start, uint64_t wait)
{
    if (now < start || now - start >= wait) {
        return 0;
    }
    return wait - (now - start);
}

uint64_t sx_cache_tick(sx_cache *cache)
{
    if (cache->writer == NULL || !collect(cache, false) || !sx_owner_writes(cache)) {
        return UINT64_MAX;
    }
    uint64_t now = sx_owner_now(cache);
    uint64_t touch_left = UINT64_MAX;
    if (cache->hot.dirty != NULL || cache->touches.rows > 0) {
        bool many = cache->touches.rows >= TOUCH_ROWS_MAX / 2;
        touch_left = many ? 0 : time_left(now, cache->touched_us, cache->options.touch_us);
        if (touch_left == 0) {
            stage_touches(cache, now);
            touch_left = UINT64_MAX;
        }
    }
    if (cache->staged.rows == 0 && !cache->wants_batch) {
        return touch_left;
    }
    uint64_t left = 0;
    if (cache->state == SX_STORE_FAILING) {
        left = cache->retry_us > now ? cache->retry_us - now : 0;
        left = left <= cache->pause_us ? left : 0; /* the clock went back */
    } else if (cache->staged.rows < cache->options.batch_rows && !cache->wants_batch) {
        left = time_left(now, cache->staged_since_us, cache->options.batch_us);
    }
    if (left == 0) {
        hand_over(cache, false);
        return UINT64_MAX;
    }
    return left < touch_left ? left : touch_left;
}

sx_code sx_owner_settle(sx_ctx *cx, sx_cache *cache, bool sync)
{
    if (!sx_owner_writes(cache)) {
        return SX_OK;
    }
    (void)collect(cache, true);
    stage_touches(cache, sx_owner_now(cache));
    bool once = sync;
    while (sx_owner_writes(cache) && (cache->staged.rows > 0 || cache->wants_batch || once)) {
        uint64_t errors = cache->stats.errors;
        hand_over(cache, sync && cache->staged.rows <= BATCH_ROWS_MAX);
        (void)collect(cache, true);
        if (cache->state != SX_STORE_OK ||
            (sync && !cache->in_flight.result.synced && cache->stats.errors > errors)) {
            break;
        }
        once = sync && !cache->in_flight.result.synced;
    }
    if (cache->state == SX_STORE_OK && !once) {
        return SX_OK;
    }
    return SX_FAIL(cx, SX_SYSTEM, "cache store %s: %s", cache->path, cache->stats.error_text);
}

sx_code sx_cache_flush(sx_ctx *cx, sx_cache *cache, sx_cache_level level)
{
    SX_ASSERT(level == SX_CACHE_COMMITTED || level == SX_CACHE_SYNCED);
    return sx_owner_settle(cx, cache, level == SX_CACHE_SYNCED);
}

/* ---- get ---- */

void sx_owner_quarantine(sx_cache *cache, const sx_ident *ident, const sx_store_damage *damage)
{
    cache->stats.corrupt++;
    if (!sx_owner_writes(cache) || queue_rows(cache) >= QUEUE_ROWS_MAX) {
        return; /* checked again, and missed again, by the next get */
    }
    sx_op *op = sx_op_new(SX_OP_QUARANTINE, ident);
    if (op == NULL) {
        return;
    }
    op->u.quarantine.at_us = sx_owner_now(cache);
    op->u.quarantine.reason = damage->why;
    op->u.quarantine.has_xxh = damage->has_xxh;
    memcpy(op->u.quarantine.xxh, damage->xxh, sizeof(damage->xxh));
    if (!set_pending(cache, op)) {
        sx_op_free(op);
        return;
    }
    sx_owner_stage(cache, op);
}

static sx_code count_hit(sx_cache *cache, uint64_t *tier, const sx_cache_info *from,
                         sx_cache_info *info)
{
    (*tier)++;
    cache->stats.saved_us += from->cost_us;
    if (info != NULL) {
        *info = *from;
    }
    return SX_OK;
}

static sx_code get_stored(sx_cache *cache, const sx_ident *ident, sx_blob **blob,
                          sx_cache_info *info)
{
    sx_cache_info found;
    sx_store_damage damage;
    sx_code code = sx_store_load(&cache->reader, ident, blob, &found, &damage);
    if (code == SX_OK) {
        uint64_t now = sx_owner_now(cache);
        sx_cache_info counted;
        if (!sx_hot_put(&cache->hot, *blob, &found) ||
            sx_hot_hit(&cache->hot, ident, now, &counted) == NULL) {
            keep_touch(cache, ident, 1, now);
        }
        found.hits++;
        found.last_used_us = now > found.last_used_us ? now : found.last_used_us;
        return count_hit(cache, &cache->stats.hits_disk, &found, info);
    }
    if (code == SX_CORRUPT) {
        sx_owner_quarantine(cache, ident, &damage);
    } else if (code != SX_ABSENT) {
        sx_owner_note(cache, cache->reader.text);
    }
    return SX_ABSENT;
}

sx_code sx_cache_get(sx_cache *cache, uint32_t ns, const sx_key *key, sx_blob **blob,
                     sx_cache_info *info)
{
    sx_ident ident = {.key = *key, .ns = ns};
    sx_cache_info found;
    sx_blob *hot = sx_hot_hit(&cache->hot, &ident, sx_owner_now(cache), &found);
    if (hot != NULL) {
        *blob = sx_blob_share(hot);
        found.tier = SX_TIER_RAM;
        return count_hit(cache, &cache->stats.hits_ram, &found, info);
    }
    const sx_op *op = sx_owner_pending(cache, &ident);
    if (op != NULL && op->type == SX_OP_PUT) {
        *blob = sx_blob_share(op->u.put.blob);
        return count_hit(cache, &cache->stats.hits_ram, &op->u.put.info, info);
    }
    if (op == NULL && cache->reader.db != NULL && get_stored(cache, &ident, blob, info) == SX_OK) {
        return SX_OK;
    }
    cache->stats.misses++;
    return SX_ABSENT;
}

/* ---- put ---- */

static sx_code check_item(sx_ctx *cx, const sx_cache_item *item)
{
    if (item->bytes.len > SX_CACHE_BLOB_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "cache entry of %zu bytes, at most %zu", item->bytes.len,
                       SX_CACHE_BLOB_MAX);
    }
    if (item->part_count > SX_CACHE_PART_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "cache entry of %u key parts, at most %d", item->part_count,
                       SX_CACHE_PART_MAX);
    }
    for (uint32_t i = 0; i < item->part_count; i++) {
        const sx_cache_part *part = &item->part[i];
        if (part->name.len > SX_CACHE_PART_NAME_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "cache key part %u: name of %zu bytes, at most %d", i,
                           part->name.len, SX_CACHE_PART_NAME_MAX);
        }
        if (part->value.len > SX_CACHE_PART_VALUE_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "cache key part %u: value of %zu bytes, at most %d", i,
                           part->value.len, SX_CACHE_PART_VALUE_MAX);
        }
    }
    return SX_OK;
}

/* RAM has it already; now the way to the disk. */
static sx_code stage_put(sx_ctx *cx, sx_cache *cache, sx_blob *blob, const sx_cache_info *info,
                         const sx_cache_item *item)
{
    if (!sx_owner_writes(cache)) {
        if (item->done != NULL) {
            item->done(item->done_self, SX_ABSENT);
        }
        return SX_OK;
    }
    if (queue_rows(cache) >= QUEUE_ROWS_MAX ||
        (queue_bytes(cache) > 0 && /* one entry larger than the queue goes alone */
         queue_bytes(cache) + info->size > cache->options.queue_limit)) {
        cache->stats.put_dropped++;
        return SX_FAIL(
            cx, SX_BUSY, "cache queue: %llu rows and %llu bytes wait, at most %d and %llu",
            (unsigned long long)queue_rows(cache), (unsigned long long)queue_bytes(cache),
            QUEUE_ROWS_MAX, (unsigned long long)cache->options.queue_limit);
    }
    sx_op *op = sx_op_new_put(blob, info, item);
    if (op == NULL || !set_pending(cache, op)) {
        sx_op_free(op);
        return SX_FAIL(cx, SX_NOMEM, "cache entry of %zu bytes: no memory", item->bytes.len);
    }
    sx_owner_stage(cache, op);
    return SX_OK;
}

sx_code sx_cache_put(sx_ctx *cx, sx_cache *cache, const sx_cache_item *item)
{
    SX_ASSERT((item->bytes.ptr != NULL || item->bytes.len == 0) &&
              (item->part != NULL || item->part_count == 0));
    if (cache->closing) {
        return SX_FAIL(cx, SX_BUSY, "the cache is closing");
    }
    SX_TRY(check_item(cx, item));
    sx_blob *blob = sx_blob_new(item->bytes.len);
    if (blob == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "cache entry of %zu bytes: no memory", item->bytes.len);
    }
    if (item->bytes.len > 0) {
        memcpy(sx_blob_bytes(blob), item->bytes.ptr, item->bytes.len);
    }
    uint64_t now = sx_owner_now(cache);
    sx_cache_info info = {.key = item->key,
                          .ns = item->ns,
                          .kind = item->kind,
                          .size = item->bytes.len,
                          .cost_us = item->cost_us <= INT64_MAX ? item->cost_us : INT64_MAX,
                          .created_us = now <= INT64_MAX ? now : INT64_MAX,
                          .last_used_us = now <= INT64_MAX ? now : INT64_MAX,
                          .pinned = item->pinned};
    (void)sx_hot_put(&cache->hot, blob, &info);
    cache->stats.puts++;
    sx_code code = stage_put(cx, cache, blob, &info, item);
    sx_blob_free(blob);
    return code;
}

/* ---- pin, evict ---- */

static bool filter_matches(const void *self, const sx_cache_info *info)
{
    const sx_cache_filter *filter = self;
    return (!filter->by_ns || info->ns == filter->ns) &&
           (!filter->by_key || sx_key_equal(&info->key, &filter->key)) &&
           (!filter->by_kind || info->kind == filter->kind) &&
           (filter->unused_since_us == 0 || info->last_used_us < filter->unused_since_us) &&
           (filter->pinned_too || !info->pinned);
}

/* Carries out one operation at once. What cannot be done is taken back, so that it does not strike later. */
static sx_code carry_out(sx_ctx *cx, sx_cache *cache, sx_op *op)
{
    if (op == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "cache: no memory for a change");
    }
    sx_owner_stage(cache, op);
    sx_code code = sx_owner_settle(cx, cache, false);
    if (code != SX_OK && cache->staged.first == op) {
        sx_op_free(sx_op_list_take(&cache->staged));
    }
    return code;
}

sx_code sx_cache_evict(sx_ctx *cx, sx_cache *cache, const sx_cache_filter *filter, uint64_t *count)
{
    uint64_t before = cache->stats.evicted_request;
    SX_TRY(sx_owner_settle(cx, cache, false));
    if (sx_owner_writes(cache)) {
        sx_op *op = sx_op_new(SX_OP_EVICT, &(sx_ident){.ns = filter->ns});
        if (op != NULL) {
            op->u.evict.filter = *filter;
        }
        SX_TRY(carry_out(cx, cache, op));
    }
    uint64_t stored = cache->stats.evicted_request - before;
    uint64_t hot = sx_hot_remove_if(&cache->hot, filter_matches, filter);
    if (count != NULL) {
        *count = stored > hot ? stored : hot;
    }
    if (cache->state == SX_STORE_DAMAGED) {
        return SX_FAIL(cx, SX_CORRUPT, "cache store %s: malformed, only the RAM tier was emptied",
                       cache->path);
    }
    return SX_OK;
}

sx_code sx_cache_pin(sx_ctx *cx, sx_cache *cache, uint32_t ns, const sx_key *key, bool pinned)
{
    sx_ident ident = {.key = *key, .ns = ns};
    sx_cache_info info;
    sx_cache_part *part;
    uint32_t part_count;
    SX_TRY(sx_cache_show(cx, cache, ns, key, &info, &part, &part_count)); /* flushes */
    if (sx_owner_writes(cache)) {
        sx_op *op = sx_op_new(SX_OP_PIN, &ident);
        if (op != NULL) {
            op->u.pinned = pinned;
        }
        SX_TRY(carry_out(cx, cache, op));
    }
    (void)sx_hot_pin(&cache->hot, &ident, pinned);
    return SX_OK;
}

/* ---- numbers ---- */

static uint64_t file_bytes(const char *path, const char *suffix)
{
    char name[SX_CACHE_PATH_MAX + 8];
    struct stat status;
    (void)snprintf(name, sizeof(name), "%s%s", path, suffix);
    return stat(name, &status) == 0 && status.st_size > 0 ? (uint64_t)status.st_size : 0;
}

const char *sx_cache_store_name(sx_cache_store_state state)
{
    static const char *const name[] = {[SX_STORE_NONE] = "none",
                                       [SX_STORE_OK] = "ok",
                                       [SX_STORE_FAILING] = "failing",
                                       [SX_STORE_NEWER] = "newer",
                                       [SX_STORE_DAMAGED] = "damaged"};
    SX_ASSERT(state < SX_COUNT(name));
    return name[state];
}

sx_cache_store_state sx_cache_store_of(const sx_cache *cache, const char **error)
{
    SX_ASSERT(cache != NULL && error != NULL);
    *error = cache->stats.error_text;
    return cache->state;
}

void sx_cache_stats_of(sx_cache *cache, sx_cache_stats *stats)
{
    *stats = cache->stats;
    stats->store = cache->state;
    stats->ram_evicted = cache->hot.evicted;
    stats->ram_entries = cache->hot.count;
    stats->ram_bytes = cache->hot.bytes;
    stats->queue_rows = queue_rows(cache);
    stats->queue_bytes = queue_bytes(cache);
    stats->struck = cache->strike_count;
    if (cache->path[0] != '\0') {
        stats->file_bytes = file_bytes(cache->path, "");
        stats->wal_bytes = file_bytes(cache->path, "-wal");
    }
}

/* ---- open and close ---- */

static sx_code copy_options(sx_ctx *cx, sx_cache *cache, const sx_cache_options *options)
{
    sx_cache_options *o = &cache->options;
    *o = *options;
    o->size_limit = o->size_limit != 0 ? o->size_limit : UINT64_C(10) << 30;
    o->ram_limit = o->ram_limit != 0 ? o->ram_limit : UINT64_C(128) << 20;
    o->queue_limit = o->queue_limit != 0 ? o->queue_limit : UINT64_C(64) << 20;
    o->batch_us = o->batch_us != 0 ? o->batch_us : 20000;
    o->batch_rows = o->batch_rows != 0 ? o->batch_rows : 64;
    o->touch_us = o->touch_us != 0 ? o->touch_us : 1000000;
    o->strike_limit = o->strike_limit != 0 ? o->strike_limit : 2;
    o->strike_ttl_us = o->strike_ttl_us != 0 ? o->strike_ttl_us : UINT64_C(86400000000);
    o->quota = NULL;
    if (o->quota_count > 0) {
        sx_cache_quota *quota = calloc(o->quota_count, sizeof(*quota));
        if (quota == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "cache quotas: no memory for %u", o->quota_count);
        }
        memcpy(quota, options->quota, o->quota_count * sizeof(*quota));
        o->quota = quota;
    }
    return SX_OK;
}

/* Opens what is there; sets aside what is not ours to read. Leaves `store` closed when the cache has to go on
 * without it. */
static sx_code find_store(sx_ctx *cx, sx_cache *cache, sx_store *store)
{
    char mark[SX_CACHE_PATH_MAX + 16];
    (void)snprintf(mark, sizeof(mark), "%s.damaged", cache->path);
    bool map = !cache->options.without_map;
    if (access(mark, F_OK) == 0) {
        SX_TRY(sx_place_set_aside(cx, cache->path, "damaged"));
        (void)unlink(mark);
    }
    sx_place_make_private(cache->path);
    sx_found found = sx_store_open(store, cache->path, cache->options.vfs, map);
    if (found == SX_FOUND_OTHER || found == SX_FOUND_UNREADABLE) {
        SX_TRY(
            sx_place_set_aside(cx, cache->path, found == SX_FOUND_OTHER ? "other" : "unreadable"));
        sx_place_make_private(cache->path);
        found = sx_store_open(store, cache->path, cache->options.vfs, map);
    }
    switch (found) {
    case SX_FOUND_READY: cache->state = SX_STORE_OK; break;
    case SX_FOUND_NEWER:
        cache->state = SX_STORE_NEWER;
        (void)snprintf(cache->stats.error_text, sizeof(cache->stats.error_text),
                       "store %.150s: of a newer version, at most %d", cache->path,
                       SX_CACHE_SCHEMA_VERSION);
        break;
    case SX_FOUND_OTHER:
    case SX_FOUND_UNREADABLE:
    case SX_FOUND_FAILED:
        cache->state = SX_STORE_FAILING;
        sx_owner_note(cache, store->text);
        break;
    }
    return SX_OK;
}

static sx_code start_store(sx_ctx *cx, sx_cache *cache)
{
    const sx_cache_options *options = &cache->options;
    int length = snprintf(cache->path, sizeof(cache->path), "%s/cache.db", options->dir);
    if (length < 0 || (size_t)length >= sizeof(cache->path)) {
        return SX_FAIL(cx, SX_INPUT, "cache directory: path of %d bytes, at most %d", length,
                       SX_CACHE_PATH_MAX - 10);
    }
    SX_TRY(sx_place_open(cx, options->dir, &cache->lock_fd));
    sx_store store = {0};
    SX_TRY(find_store(cx, cache, &store));
    if (cache->state == SX_STORE_NEWER) {
        return SX_OK;
    }
    if (cache->state == SX_STORE_OK) {
        open_reader(cache);
        if (cache->reader.db != NULL && !sx_strike_load(cache)) {
            sx_owner_note(cache, cache->reader.text);
        }
    }
    sx_writer_config config = {.path = cache->path,
                               .vfs = options->vfs,
                               .map = !options->without_map,
                               .size_limit = options->size_limit,
                               .ns_quota = options->ns_quota,
                               .quota = options->quota,
                               .quota_count = options->quota_count,
                               .wake = options->wake,
                               .wake_self = options->wake_self};
    sx_code code = sx_writer_open(cx, &config, &store, &cache->writer);
    if (code != SX_OK) {
        sx_store_close(&store);
        return code;
    }
    cache->wants_batch = true; /* counts the store and brings it under today's limits */
    return SX_OK;
}

sx_code sx_cache_open(sx_ctx *cx, const sx_cache_options *options, sx_cache **opened)
{
    sx_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "cache: no memory");
    }
    cache->lock_fd = -1;
    cache->state = SX_STORE_NONE;
    sx_code code = copy_options(cx, cache, options);
    if (code == SX_OK) {
        sx_hot_init(&cache->hot, cache->options.ram_limit);
        cache->hot.leaving = keep_touch;
        cache->hot.self = cache;
        code = options->dir != NULL ? start_store(cx, cache) : SX_OK;
    }
    if (code != SX_OK) {
        sx_cache_close(cache);
        return code;
    }
    *opened = cache;
    return SX_OK;
}

void sx_cache_close(sx_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    cache->closing = true;
    if (cache->writer != NULL) {
        sx_ctx cx;
        sx_ctx_init(&cx, 4096);
        (void)sx_owner_settle(&cx, cache, false); /* a failing store was counted and reported */
        sx_ctx_fini(&cx);
        (void)collect(cache, true);
        end_all(cache, &cache->staged, SX_SYSTEM);
        end_all(cache, &cache->touches, SX_SYSTEM);
        sx_store_close(&cache->reader); /* before the writer: the last one out checkpoints */
        sx_writer_close(cache->writer);
    }
    sx_store_close(&cache->reader);
    SX_ASSERT(cache->pending == NULL && queue_rows(cache) == 0);
    sx_hot_fini(&cache->hot);
    sx_strike_fini(cache);
    sx_place_close(cache->lock_fd);
    free((void *)(uintptr_t)cache->options.quota);
    free(cache);
}
