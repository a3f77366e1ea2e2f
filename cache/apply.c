/* apply.c - one batch, one transaction. A row that cannot be stored is given up alone; a failing store gives
 * back the whole batch. */
#include "cache/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUARANTINE_ROWS_MAX 64 /* kept for a look; the oldest leave */

/* ZSTD above the limit, where it saves a sixteenth at least. *packed is to be freed. */
static sx_span pack_blob(sx_apply *apply, sx_span raw, void **packed, uint32_t *encoding)
{
    *packed = NULL;
    *encoding = SX_ENCODING_RAW;
    if (raw.len <= SX_CACHE_ZSTD_MIN) {
        return raw;
    }
    size_t room = ZSTD_compressBound(raw.len);
    *packed = malloc(room);
    if (*packed == NULL) {
        return raw;
    }
    size_t size = ZSTD_compress2(apply->pack, *packed, room, raw.ptr, raw.len);
    if (ZSTD_isError(size) || size > raw.len - raw.len / 16) {
        return raw;
    }
    *encoding = SX_ENCODING_ZSTD;
    return (sx_span){*packed, size};
}

static bool insert_parts(sx_apply *apply, const sx_op *op, int64_t id)
{
    for (uint32_t i = 0; i < op->u.put.part_count; i++) {
        sqlite3_stmt *insert = sx_store_statement(&apply->store, SX_SQL_PUT_PART);
        if (insert == NULL) {
            return false;
        }
        (void)sqlite3_bind_int64(insert, 1, id);
        (void)sqlite3_bind_int64(insert, 2, i);
        (void)sqlite3_bind_int64(insert, 3, op->ident.ns);
        sx_store_bind_span(insert, 4, op->u.put.part[i].name);
        sx_store_bind_span(insert, 5, op->u.put.part[i].value);
        (void)sqlite3_bind_blob(insert, 6, op->ident.key.byte, SX_KEY_BYTES, SQLITE_STATIC);
        if (!sx_store_run(&apply->store, insert, "put part")) {
            return false;
        }
    }
    return true;
}

static bool insert_entry(sx_apply *apply, const sx_cache_info *info, int64_t id, uint32_t encoding,
                         const uint8_t xxh[16])
{
    sqlite3_stmt *insert = sx_store_statement(&apply->store, SX_SQL_PUT_ENTRY);
    if (insert == NULL) {
        return false;
    }
    double charged = (double)(info->stored_size + SX_CACHE_ROW_BYTES);
    sx_ident ident = {.key = info->key, .ns = info->ns};
    sx_store_bind_ident(insert, &ident);
    (void)sqlite3_bind_int64(insert, 3, id);
    (void)sqlite3_bind_int64(insert, 4, info->kind);
    (void)sqlite3_bind_int64(insert, 5, encoding);
    sx_store_bind_u64(insert, 6, info->size);
    sx_store_bind_u64(insert, 7, info->stored_size);
    (void)sqlite3_bind_blob(insert, 8, xxh, 16, SQLITE_STATIC);
    sx_store_bind_u64(insert, 9, info->cost_us);
    (void)sqlite3_bind_double(insert, 10, apply->clock + (double)info->cost_us / charged);
    sx_store_bind_u64(insert, 11, info->created_us);
    sx_store_bind_u64(insert, 12, info->last_used_us);
    (void)sqlite3_bind_int64(insert, 13, info->pinned);
    sx_store_bind_u64(insert, 14, info->generation);
    return sx_store_run(&apply->store, insert, "put entry");
}

static bool put_stored(sx_apply *apply, sx_op *op, sx_span stored, uint32_t encoding,
                       uint64_t generation)
{
    sqlite3_stmt *insert = sx_store_statement(&apply->store, SX_SQL_PUT_BLOB);
    if (insert == NULL) {
        return false;
    }
    sx_store_bind_span(insert, 1, stored);
    bool done = sx_store_run(&apply->store, insert, "put blob");
    (void)sqlite3_clear_bindings(insert);
    if (!done) {
        return false;
    }
    int64_t id = sqlite3_last_insert_rowid(apply->store.db);
    sx_cache_info info = op->u.put.info;
    uint8_t xxh[16];
    info.stored_size = stored.len;
    info.generation = generation;
    sx_store_checksum(&info, encoding, stored, xxh);
    op->u.put.stored_size = stored.len;
    op->u.put.generation = generation;
    return insert_entry(apply, &info, id, encoding, xxh) && insert_parts(apply, op, id);
}

static bool apply_put(sx_apply *apply, sx_op *op)
{
    sqlite3_stmt *row = sx_store_statement(&apply->store, SX_SQL_GENERATION);
    if (row == NULL) {
        return false;
    }
    sx_store_bind_ident(row, &op->ident);
    int step = sqlite3_step(row);
    uint64_t generation = step == SQLITE_ROW ? sx_store_column_u64(row, 0) : 0;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        sx_store_note(&apply->store, "put");
    }
    (void)sqlite3_reset(row);
    if (step == SQLITE_ROW) {
        if (!sx_apply_remove(apply, &op->ident)) {
            return false;
        }
    } else if (step != SQLITE_DONE) {
        return false;
    }
    void *packed;
    uint32_t encoding;
    sx_span stored = pack_blob(apply, sx_blob_span(op->u.put.blob), &packed, &encoding);
    bool done = put_stored(apply, op, stored, encoding, generation + 1);
    free(packed);
    return done;
}

static bool apply_touch(sx_apply *apply, const sx_op *op)
{
    sqlite3_stmt *update = sx_store_statement(&apply->store, SX_SQL_TOUCH);
    if (update == NULL) {
        return false;
    }
    sx_store_bind_ident(update, &op->ident);
    sx_store_bind_u64(update, 3, op->u.touch.hits);
    sx_store_bind_u64(update, 4, op->u.touch.last_used_us);
    (void)sqlite3_bind_double(update, 5, apply->clock);
    return sx_store_run(&apply->store, update, "touch");
}

static bool run_id(sx_apply *apply, sx_sql sql, int64_t id, const char *what)
{
    sqlite3_stmt *statement = sx_store_statement(&apply->store, sql);
    if (statement == NULL) {
        return false;
    }
    (void)sqlite3_bind_int64(statement, 1, id);
    return sx_store_run(&apply->store, statement, what);
}

static bool query_id(sx_apply *apply, sx_sql sql, int64_t *value)
{
    sqlite3_stmt *row = sx_store_statement(&apply->store, sql);
    bool found = row != NULL && sqlite3_step(row) == SQLITE_ROW;
    if (found) {
        *value = sqlite3_column_int64(row, 0);
    } else {
        sx_store_note(&apply->store, "query");
    }
    if (row != NULL) {
        (void)sqlite3_reset(row);
    }
    return found;
}

/* A kept blob that cannot be deleted because its pages are malformed stays behind as an orphan. */
static bool trim_quarantine(sx_apply *apply)
{
    int64_t count;
    if (!query_id(apply, SX_SQL_QUARANTINE_COUNT, &count)) {
        return false;
    }
    for (; count > QUARANTINE_ROWS_MAX; count--) {
        int64_t id;
        if (!query_id(apply, SX_SQL_QUARANTINE_OLDEST, &id) ||
            !run_id(apply, SX_SQL_QUARANTINE_FORGET, id, "quarantine")) {
            return false;
        }
        if (!run_id(apply, SX_SQL_BLOB_REMOVE, id, "quarantine") &&
            !sx_store_is_damage(apply->store.code)) {
            return false;
        }
    }
    return true;
}

/* Moves the row: the blob stays where it is, named by the quarantine row. */
static bool move_to_quarantine(sx_apply *apply, const sx_ident *ident, uint64_t at_us,
                               const char *reason, const uint8_t *xxh)
{
    sqlite3_stmt *insert = sx_store_statement(&apply->store, SX_SQL_QUARANTINE);
    if (insert == NULL) {
        return false;
    }
    sx_store_bind_ident(insert, ident);
    sx_store_bind_u64(insert, 3, at_us);
    (void)sqlite3_bind_text(insert, 4, reason, -1, SQLITE_STATIC);
    if (xxh != NULL) {
        (void)sqlite3_bind_blob(insert, 5, xxh, 16, SQLITE_STATIC);
    }
    if (!sx_store_run(&apply->store, insert, "quarantine")) {
        return false;
    }
    sqlite3_stmt *remove = sx_store_statement(&apply->store, SX_SQL_QUARANTINE_REMOVE);
    if (remove == NULL) {
        return false;
    }
    sx_store_bind_ident(remove, ident);
    return sx_store_run(&apply->store, remove, "quarantine") && trim_quarantine(apply);
}

bool sx_apply_remove(sx_apply *apply, const sx_ident *ident)
{
    sqlite3_stmt *remove = sx_store_statement(&apply->store, SX_SQL_REMOVE);
    if (remove == NULL) {
        return false;
    }
    sx_store_bind_ident(remove, ident);
    if (sx_store_run(&apply->store, remove, "remove")) {
        return true;
    }
    return sx_store_is_damage(apply->store.code) &&
           move_to_quarantine(apply, ident, 0, "page is malformed", NULL);
}

static bool apply_strike(sx_apply *apply, const sx_op *op)
{
    sqlite3_stmt *insert = sx_store_statement(&apply->store, SX_SQL_STRIKE);
    if (insert == NULL) {
        return false;
    }
    (void)sqlite3_bind_blob(insert, 1, op->ident.key.byte, SX_KEY_BYTES, SQLITE_STATIC);
    (void)sqlite3_bind_int64(insert, 2, op->u.strike.count);
    sx_store_bind_u64(insert, 3, op->u.strike.last_us);
    (void)sqlite3_bind_text(insert, 4, op->u.strike.signature, -1, SQLITE_STATIC);
    return sx_store_run(&apply->store, insert, "strike");
}

static bool apply_pardon(sx_apply *apply, const sx_op *op)
{
    sqlite3_stmt *remove = sx_store_statement(&apply->store, SX_SQL_PARDON);
    if (remove == NULL) {
        return false;
    }
    (void)sqlite3_bind_blob(remove, 1, op->ident.key.byte, SX_KEY_BYTES, SQLITE_STATIC);
    return sx_store_run(&apply->store, remove, "pardon");
}

static bool apply_evict(sx_apply *apply, sx_op *op, sx_batch_result *result)
{
    const sx_cache_filter *filter = &op->u.evict.filter;
    sqlite3_stmt *remove = sx_store_statement(&apply->store, SX_SQL_EVICT);
    if (remove == NULL) {
        return false;
    }
    (void)sqlite3_bind_int(remove, 1, filter->by_ns);
    (void)sqlite3_bind_int64(remove, 2, filter->ns);
    if (filter->by_key) {
        (void)sqlite3_bind_blob(remove, 3, filter->key.byte, SX_KEY_BYTES, SQLITE_STATIC);
    }
    sx_store_bind_u64(remove, 4, filter->unused_since_us);
    (void)sqlite3_bind_int(remove, 5, filter->pinned_too);
    (void)sqlite3_bind_int(remove, 6, filter->by_kind);
    (void)sqlite3_bind_int64(remove, 7, filter->kind);
    if (!sx_store_run(&apply->store, remove, "evict")) {
        return false;
    }
    op->u.evict.count = (uint64_t)sqlite3_changes64(apply->store.db);
    result->evicted_request += op->u.evict.count;
    return true;
}

static bool apply_pin(sx_apply *apply, const sx_op *op)
{
    sqlite3_stmt *update = sx_store_statement(&apply->store, SX_SQL_PIN);
    if (update == NULL) {
        return false;
    }
    sx_store_bind_ident(update, &op->ident);
    (void)sqlite3_bind_int(update, 3, op->u.pinned);
    return sx_store_run(&apply->store, update, "pin");
}

static bool apply_op(sx_apply *apply, sx_op *op, sx_batch_result *result)
{
    switch (op->type) {
    case SX_OP_PUT: return apply_put(apply, op);
    case SX_OP_TOUCH: return apply_touch(apply, op);
    case SX_OP_QUARANTINE:
        return move_to_quarantine(apply, &op->ident, op->u.quarantine.at_us,
                                  op->u.quarantine.reason,
                                  op->u.quarantine.has_xxh ? op->u.quarantine.xxh : NULL);
    case SX_OP_STRIKE: return apply_strike(apply, op);
    case SX_OP_PARDON: return apply_pardon(apply, op);
    case SX_OP_EVICT: return apply_evict(apply, op, result);
    case SX_OP_PIN: return apply_pin(apply, op);
    }
    SX_UNREACHABLE();
}

static bool run_plain(sx_apply *apply, sx_sql sql, const char *what)
{
    sqlite3_stmt *statement = sx_store_statement(&apply->store, sql);
    return statement != NULL && sx_store_run(&apply->store, statement, what);
}

/* When even that fails (no memory), closing the connection does it; the next batch opens it again. */
static void roll_back(sx_apply *apply)
{
    if (sqlite3_get_autocommit(apply->store.db) == 0) {
        int code = apply->store.code;
        char text[SX_CACHE_ERROR_MAX];
        memcpy(text, apply->store.text, sizeof(text));
        (void)run_plain(apply, SX_SQL_ROLLBACK, "rollback");
        apply->store.code = code;
        memcpy(apply->store.text, text, sizeof(text));
    }
    if (sqlite3_get_autocommit(apply->store.db) == 0) {
        sx_store_close(&apply->store);
    }
}

/* With the first batch after opening: the clock as it was, the usage as it is (a damaged count would evict
 * what it need not). */
static bool take_stock(sx_apply *apply)
{
    if (apply->has_stock) {
        return true;
    }
    if (!run_plain(apply, SX_SQL_USAGE_CLEAR, "usage") ||
        !run_plain(apply, SX_SQL_USAGE_COUNT, "usage")) {
        return false;
    }
    sqlite3_stmt *row = sx_store_statement(&apply->store, SX_SQL_CLOCK_LOAD);
    if (row == NULL) {
        return false;
    }
    int step = sqlite3_step(row);
    double stored = step == SQLITE_ROW ? sqlite3_column_double(row, 0) : 0.0;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        sx_store_note(&apply->store, "clock");
    }
    (void)sqlite3_reset(row);
    apply->clock_kept = stored >= 0.0 ? stored : 0.0;
    return step == SQLITE_ROW || step == SQLITE_DONE;
}

static bool finish(sx_apply *apply, sx_batch_result *result)
{
    if (!sx_evict_run(apply, result)) {
        return false;
    }
    if (apply->clock > apply->clock_kept) {
        sqlite3_stmt *store = sx_store_statement(&apply->store, SX_SQL_CLOCK_STORE);
        if (store == NULL) {
            return false;
        }
        (void)sqlite3_bind_double(store, 1, apply->clock);
        if (!sx_store_run(&apply->store, store, "clock")) {
            return false;
        }
    }
    sqlite3_stmt *usage = sx_store_statement(&apply->store, SX_SQL_USAGE);
    if (usage == NULL) {
        return false;
    }
    bool counted = sqlite3_step(usage) == SQLITE_ROW;
    if (counted) {
        result->entries = sx_store_column_u64(usage, 0);
        result->bytes = sx_store_column_u64(usage, 1);
    } else {
        sx_store_note(&apply->store, "usage");
    }
    (void)sqlite3_reset(usage);
    int64_t count;
    if (!counted || !query_id(apply, SX_SQL_QUARANTINE_COUNT, &count)) {
        return false;
    }
    result->quarantined = (uint64_t)count;
    return run_plain(apply, SX_SQL_COMMIT, "commit");
}

typedef enum { COMMITTED, AGAIN, FAILED } attempt;

/* AGAIN: one row was given up (op->code), the others are to be written without it. */
static attempt try_batch(sx_apply *apply, sx_batch *batch)
{
    char text[SX_CACHE_ERROR_MAX]; /* of a row given up in an earlier round */
    memcpy(text, batch->result.text, sizeof(text));
    batch->result = (sx_batch_result){.code = SX_SYSTEM};
    if (!run_plain(apply, SX_SQL_BEGIN, "begin") || !take_stock(apply)) {
        roll_back(apply);
        return FAILED;
    }
    apply->clock = apply->clock_kept;
    for (sx_op *op = batch->list.first; op != NULL; op = op->next) {
        if (op->code == SX_OK && !apply_op(apply, op, &batch->result)) {
            bool row_fault = sx_store_is_row_fault(apply->store.code);
            roll_back(apply);
            if (row_fault) {
                op->code = SX_INTERNAL;
                (void)snprintf(text, sizeof(text), "%s", apply->store.text);
            }
            memcpy(batch->result.text, text, sizeof(text));
            return row_fault && apply->store.db != NULL ? AGAIN : FAILED;
        }
    }
    if (!finish(apply, &batch->result)) {
        roll_back(apply);
        return FAILED;
    }
    apply->clock_kept = apply->clock;
    apply->has_stock = true;
    memcpy(batch->result.text, text, sizeof(text));
    batch->result.code = SX_OK;
    return COMMITTED;
}

/* A store that could not be opened so far is tried once more. */
static bool reopen(sx_apply *apply)
{
    const sx_writer_config *config = apply->config;
    if (apply->store.db != NULL) {
        return true;
    }
    apply->has_stock = false;
    sx_found found = sx_store_open(&apply->store, config->path, config->vfs, config->map);
    if (found != SX_FOUND_READY && found != SX_FOUND_FAILED) {
        (void)snprintf(apply->store.text, sizeof(apply->store.text),
                       "open: the file is not a store of this version");
    }
    return found == SX_FOUND_READY;
}

/* Frees what an evicted region left at the end of the file; a failure only leaves the file larger. */
static void shrink(sx_apply *apply, const sx_batch_result *result)
{
    if (result->evicted_request > 0) {
        (void)run_plain(apply, SX_SQL_SHRINK, "shrink");
    }
}

/* A checkpoint syncs the log, copies it into the file and syncs that. */
static bool bring_to_medium(sx_apply *apply)
{
    int frames = 0;
    int copied = 0;
    int code =
        sqlite3_wal_checkpoint_v2(apply->store.db, NULL, SQLITE_CHECKPOINT_FULL, &frames, &copied);
    if (code != SQLITE_OK) {
        sx_store_note(&apply->store, "checkpoint");
    }
    return code == SQLITE_OK && frames == copied;
}

void sx_apply_run(sx_apply *apply, sx_batch *batch)
{
    batch->result = (sx_batch_result){.code = SX_SYSTEM};
    attempt outcome = FAILED;
    if (reopen(apply)) {
        do { /* each round gives up one row */
            outcome = try_batch(apply, batch);
        } while (outcome == AGAIN);
    }
    if (outcome == COMMITTED) {
        shrink(apply, &batch->result);
        batch->result.synced = batch->sync && bring_to_medium(apply);
        if (batch->sync && !batch->result.synced) {
            (void)snprintf(batch->result.text, sizeof(batch->result.text), "%s", apply->store.text);
        }
        return;
    }
    (void)snprintf(batch->result.text, sizeof(batch->result.text), "%s", apply->store.text);
    if (sx_store_is_damage(apply->store.code)) {
        batch->result.code = SX_CORRUPT;
    } else if ((apply->store.code & 0xff) == SQLITE_FULL && apply->store.db != NULL) {
        /* a log copied into the file and cut to nothing gives room for the next try */
        (void)sqlite3_wal_checkpoint_v2(apply->store.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                        NULL);
    }
}
