/* owner.h - what the owner thread knows: tiers, staged changes, strikes, counters. Shared by cache.c,
 * strike.c, query.c.
 *
 * Invariants: an operation is in exactly one of touches, staged, in_flight or freed; `pending` holds for each
 * identity the newest PUT or QUARANTINE that readers of the store cannot see yet; at most one batch is with
 * the writer (`busy`).
 */
#ifndef SX_CACHE_OWNER_H
#define SX_CACHE_OWNER_H
#include "cache/hot.h"
#include "cache/writer.h"

typedef struct sx_strike_entry sx_strike_entry;

struct sx_cache {
    sx_cache_options options; /* defaults filled in; quota copied */
    char path[SX_CACHE_PATH_MAX];
    int lock_fd; /* -1: none */
    sx_cache_store_state state;
    sx_store reader; /* db NULL: cannot read the store */
    sx_writer *writer;
    sx_hot hot;
    sx_op_list staged;
    /* hits on their way: staged together, after touch_us or when they are many */
    sx_op_list touches;
    sx_batch in_flight;
    bool busy;
    bool closing;
    bool wants_batch;         /* limits to be enforced, also with nothing staged */
    sx_op *pending;           /* uthash by ident */
    uint64_t staged_since_us; /* when the first staged operation came */
    uint64_t touched_us;      /* when hits were staged last */
    uint64_t retry_us;        /* not before, while failing */
    uint64_t pause_us;        /* the last pause, doubled by each failure */
    sx_strike_entry *strike;  /* uthash by key, oldest first */
    uint64_t strike_count;
    sx_cache_stats stats; /* counters; gauges are filled in by sx_cache_stats_of */
};

uint64_t sx_owner_now(const sx_cache *cache);
bool sx_owner_writes(const sx_cache *cache); /* is there a store that takes changes? */
void sx_owner_stage(sx_cache *cache, SX_TAKE sx_op *op);
/* Notes an error for stats.error_text and counts it. */
void sx_owner_note(sx_cache *cache, const char *text);
/* The row of `ident` is damaged: a miss from now on, moved to quarantine with the next batch. */
void sx_owner_quarantine(sx_cache *cache, const sx_ident *ident, const sx_store_damage *damage);
/* Writes what is staged and waits; SX_OK also when there is no store. */
sx_code sx_owner_settle(sx_ctx *cx, sx_cache *cache, bool sync);
/* The newest change of `ident` that is not in the store yet; NULL: none. */
sx_op *sx_owner_pending(const sx_cache *cache, const sx_ident *ident);

/* strike.c */
bool sx_strike_load(sx_cache *cache); /* from the reader; false: cannot be read */
void sx_strike_fini(sx_cache *cache);
#endif
