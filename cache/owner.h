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
    /* As given to sx_cache_open, with the defaults filled in and the quotas copied. */
    sx_cache_options options;
    /* The file of the store; empty without a directory. */
    char path[SX_CACHE_PATH_MAX];
    /* Holds the lock of the directory; -1: there is none. */
    int lock_fd;
    sx_cache_store_state state;
    /* The connection for reading; its `db` is NULL if the store cannot be read. */
    sx_store reader;
    /* NULL: there is no store that takes changes. */
    sx_writer *writer;
    /* The RAM tier. */
    sx_hot hot;
    /* Changes that go to the writer with the next batch, in the order in which they came. */
    sx_op_list staged;
    /* Hits that are not staged yet. They are staged together, after options.touch_us or when they are many. */
    sx_op_list touches;
    /* The batch that the writer has. It has none unless `busy`. */
    sx_batch in_flight;
    bool busy;
    /* sx_cache_close was called: nothing new is staged. */
    bool closing;
    /* The store is over its limits: the writer gets a batch even if nothing is staged. */
    bool wants_batch;
    /* uthash by identity: see the invariants above. */
    sx_op *pending;
    /* When the first of the staged operations came, and when hits were staged last. */
    uint64_t staged_since_us;
    uint64_t touched_us;
    /* While the store fails: when the next batch may be tried, and how long the last pause was, which each failure
     * doubles. */
    uint64_t retry_us;
    uint64_t pause_us;
    /* uthash by key, oldest first: keys whose work killed a worker. */
    sx_strike_entry *strike;
    uint64_t strike_count;
    /* Counts of events. Its sizes and numbers of entries are filled in by sx_cache_stats_of alone. */
    sx_cache_stats stats;
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
