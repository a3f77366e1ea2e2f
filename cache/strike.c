/* strike.c - keys whose compilation killed workers: counted, remembered over a restart, forgotten after the TTL. */
#include "cache/owner.h"

#include <stdlib.h>
#include <string.h>

#define STRIKES_MAX 4096 /* keys; the one struck longest ago leaves */

struct sx_strike_entry {
    sx_key key;
    sx_cache_strikes strikes;
    UT_hash_handle hh;
};

static sx_strike_entry *find(const sx_cache *cache, const sx_key *key)
{
    sx_strike_entry *entry = NULL;
    HASH_FIND(hh, cache->strike, key, sizeof(*key), entry);
    return entry;
}

static void drop(sx_cache *cache, sx_strike_entry *entry)
{
    HASH_DEL(cache->strike, entry);
    SX_ASSERT(cache->strike_count > 0);
    cache->strike_count--;
    free(entry);
}

/* A lost write only means that the strikes are counted again after a restart. */
static void stage(sx_cache *cache, sx_op_type type, const sx_key *key,
                  const sx_cache_strikes *strikes)
{
    if (!sx_owner_writes(cache)) {
        return;
    }
    sx_ident ident = {.key = *key};
    sx_op *op = sx_op_new(type, &ident);
    if (op != NULL) {
        if (strikes != NULL) {
            op->u.strike = *strikes;
        }
        sx_owner_stage(cache, op);
    }
}

/* Appends, so that the table stays in the order of the last strikes. False: no memory. */
static bool insert(sx_cache *cache, const sx_key *key, const sx_cache_strikes *strikes)
{
    sx_strike_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return false;
    }
    entry->key = *key;
    entry->strikes = *strikes;
    HASH_ADD(hh, cache->strike, key, sizeof(entry->key), entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return false;
    }
    cache->strike_count++;
    while (cache->strike_count > STRIKES_MAX) {
        stage(cache, SX_OP_PARDON, &cache->strike->key, NULL);
        drop(cache, cache->strike);
    }
    return true;
}

static bool is_expired(const sx_cache *cache, const sx_strike_entry *entry, uint64_t now)
{
    return now > entry->strikes.last_us &&
           now - entry->strikes.last_us > cache->options.strike_ttl_us;
}

/* The living strikes of a key; an expired entry is forgotten on sight. */
static sx_strike_entry *find_living(sx_cache *cache, const sx_key *key)
{
    sx_strike_entry *entry = find(cache, key);
    if (entry != NULL && is_expired(cache, entry, sx_owner_now(cache))) {
        stage(cache, SX_OP_PARDON, key, NULL);
        drop(cache, entry);
        return NULL;
    }
    return entry;
}

/* One line of printable text, cut at the limit. */
static void copy_signature(char to[SX_CACHE_SIGNATURE_MAX], sx_span text)
{
    size_t length = text.len < SX_CACHE_SIGNATURE_MAX - 1 ? text.len : SX_CACHE_SIGNATURE_MAX - 1;
    memset(to, 0, SX_CACHE_SIGNATURE_MAX);
    for (size_t i = 0; i < length; i++) {
        to[i] = text.ptr[i] >= 0x20 && text.ptr[i] < 0x7f ? (char)text.ptr[i] : '?';
    }
}

sx_code sx_cache_strike(sx_ctx *cx, sx_cache *cache, const sx_key *key, sx_span signature,
                        sx_cache_strikes *strikes)
{
    sx_cache_strikes fresh = {0};
    sx_strike_entry *entry = find_living(cache, key);
    if (entry != NULL) {
        fresh = entry->strikes;
        drop(cache, entry);
    }
    fresh.count += fresh.count < UINT32_MAX ? 1 : 0;
    fresh.last_us = sx_owner_now(cache);
    copy_signature(fresh.signature, signature);
    if (!insert(cache, key, &fresh)) {
        return SX_FAIL(cx, SX_NOMEM, "cache strikes: no memory for one more");
    }
    SX_ASSERT(fresh.count > 0 && find(cache, key) != NULL);
    stage(cache, SX_OP_STRIKE, key, &fresh);
    if (strikes != NULL) {
        *strikes = fresh;
    }
    return SX_OK;
}

bool sx_cache_is_quarantined(sx_cache *cache, const sx_key *key, sx_cache_strikes *strikes)
{
    SX_ASSERT(cache->options.strike_limit > 0);
    const sx_strike_entry *entry = find_living(cache, key);
    if (entry == NULL) {
        return false;
    }
    if (strikes != NULL) {
        *strikes = entry->strikes;
    }
    return entry->strikes.count >= cache->options.strike_limit;
}

bool sx_cache_pardon(sx_cache *cache, const sx_key *key)
{
    sx_strike_entry *entry = find(cache, key);
    if (entry == NULL) {
        return false;
    }
    stage(cache, SX_OP_PARDON, key, NULL);
    drop(cache, entry);
    return true;
}

bool sx_strike_load(sx_cache *cache)
{
    sqlite3_stmt *row = sx_store_statement(&cache->reader, SX_SQL_STRIKES);
    if (row == NULL) {
        return false;
    }
    int step;
    while ((step = sqlite3_step(row)) == SQLITE_ROW) {
        sx_span key = sx_store_column_span(row, 0);
        uint64_t count = sx_store_column_u64(row, 1);
        sx_cache_strikes strikes = {.count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX,
                                    .last_us = sx_store_column_u64(row, 2)};
        copy_signature(strikes.signature, sx_store_column_span(row, 3));
        if (key.len == SX_KEY_BYTES) {
            sx_key name;
            memcpy(name.byte, key.ptr, SX_KEY_BYTES);
            if (find(cache, &name) == NULL && !insert(cache, &name, &strikes)) {
                break;
            }
        }
    }
    if (step != SQLITE_DONE) {
        sx_store_note(&cache->reader, "strikes");
    }
    (void)sqlite3_reset(row);
    return step == SQLITE_DONE;
}

void sx_strike_fini(sx_cache *cache)
{
    while (cache->strike != NULL) {
        drop(cache, cache->strike);
    }
    SX_ASSERT(cache->strike_count == 0);
}
