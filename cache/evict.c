/* evict.c - GreedyDual-Size over the score index: the lowest score leaves, the clock rises to it. */
#include "cache/writer.h"

#include <string.h>

#define EVICT_ROWS_MAX 4096 /* of one transaction; the rest follows in the next */

typedef struct {
    sx_ident ident;
    double score;
    uint64_t bytes;
} victim;

/* 1 found, 0 none left, -1 the store failed. */
static int find_lowest(sx_apply *apply, const uint32_t *ns, victim *found)
{
    sqlite3_stmt *row =
        sx_store_statement(&apply->store, ns != NULL ? SX_SQL_LOWEST_OF : SX_SQL_LOWEST);
    if (row == NULL) {
        return -1;
    }
    if (ns != NULL) {
        (void)sqlite3_bind_int64(row, 1, *ns);
    }
    int step = sqlite3_step(row);
    if (step == SQLITE_ROW) {
        sx_span key = sx_store_column_span(row, 0);
        *found = (victim){.ident.ns = (uint32_t)sx_store_column_u64(row, 1),
                          .score = sqlite3_column_double(row, 2),
                          .bytes = sx_store_column_u64(row, 3)};
        if (key.len == SX_KEY_BYTES) {
            memcpy(found->ident.key.byte, key.ptr, SX_KEY_BYTES);
        } else {
            apply->store.code = SQLITE_CORRUPT;
            step = SQLITE_CORRUPT;
        }
    } else if (step != SQLITE_DONE) {
        sx_store_note(&apply->store, "evict");
    }
    (void)sqlite3_reset(row);
    return step == SQLITE_ROW ? 1 : (step == SQLITE_DONE ? 0 : -1);
}

/* Removes the lowest of `ns` (NULL: of all) until `bytes` is at most `limit` or nothing unpinned is left. */
static bool bring_under(sx_apply *apply, const uint32_t *ns, uint64_t bytes, uint64_t limit,
                        uint32_t *budget, uint64_t *count)
{
    while (bytes > limit && *budget > 0) {
        victim lowest = {0};
        int found = find_lowest(apply, ns, &lowest);
        if (found <= 0) {
            return found == 0;
        }
        if (!sx_apply_remove(apply, &lowest.ident)) {
            return false;
        }
        if (lowest.score > apply->clock) {
            apply->clock = lowest.score;
        }
        bytes -= lowest.bytes < bytes ? lowest.bytes : bytes;
        (*budget)--;
        (*count)++;
    }
    return true;
}

static uint64_t quota_of(const sx_writer_config *config, uint32_t ns)
{
    for (uint32_t i = 0; i < config->quota_count; i++) {
        if (config->quota[i].ns == ns) {
            return config->quota[i].bytes;
        }
    }
    return config->ns_quota;
}

/* The first namespace at or after `from` that is over its quota. 1 found, 0 none, -1 the store failed. */
static int find_over_quota(sx_apply *apply, uint64_t from, uint32_t *ns, uint64_t *bytes)
{
    sqlite3_stmt *row = sx_store_statement(&apply->store, SX_SQL_USAGE_EACH);
    if (row == NULL) {
        return -1;
    }
    int found = 0;
    int step;
    while (found == 0 && (step = sqlite3_step(row)) != SQLITE_DONE) {
        if (step != SQLITE_ROW) {
            sx_store_note(&apply->store, "usage");
            found = -1;
            break;
        }
        uint64_t each = sx_store_column_u64(row, 0);
        uint64_t used = sx_store_column_u64(row, 1);
        uint64_t quota = quota_of(apply->config, (uint32_t)each);
        if (each >= from && each <= UINT32_MAX && quota > 0 && used > quota) {
            *ns = (uint32_t)each;
            *bytes = used;
            found = 1;
        }
    }
    (void)sqlite3_reset(row);
    return found;
}

static bool read_usage(sx_apply *apply, uint64_t *bytes)
{
    sqlite3_stmt *row = sx_store_statement(&apply->store, SX_SQL_USAGE);
    bool found = row != NULL && sqlite3_step(row) == SQLITE_ROW;
    if (found) {
        *bytes = sx_store_column_u64(row, 1);
    } else {
        sx_store_note(&apply->store, "usage");
    }
    if (row != NULL) {
        (void)sqlite3_reset(row);
    }
    return found;
}

bool sx_evict_run(sx_apply *apply, sx_batch_result *result)
{
    const sx_writer_config *config = apply->config;
    uint32_t budget = EVICT_ROWS_MAX;
    uint64_t bytes = 0;
    uint64_t from = 0;
    while ((config->quota_count > 0 || config->ns_quota > 0) && budget > 0) {
        uint32_t ns = 0;
        int found = find_over_quota(apply, from, &ns, &bytes);
        if (found < 0) {
            return false;
        }
        if (found == 0) {
            break;
        }
        if (!bring_under(apply, &ns, bytes, quota_of(config, ns), &budget,
                         &result->evicted_quota)) {
            return false;
        }
        from = (uint64_t)ns + 1;
    }
    if (!read_usage(apply, &bytes) ||
        !bring_under(apply, NULL, bytes, config->size_limit, &budget, &result->evicted_size)) {
        return false;
    }
    result->more = budget == 0;
    return true;
}
