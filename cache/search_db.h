/* search_db.h - searches that go on after a restart: a SQLite file of its own beside the cache's, search.db in
 * the state directory.
 *
 * A search is a row; each of its lanes is a row with two blobs: the state that the next step starts from, and
 * the best module so far. A finished step is one transaction: lane, both blobs, and the time that the search has used.
 * Calls block, and belong to one thread at a time (the daemon makes them one after the other on pool threads);
 * the holder of the cache's lock on the directory is the only process that writes.
 * Durability: WAL with synchronous=NORMAL: what is committed survives kill -9; loss of power may take the last
 * steps, never the consistency. Rows and blobs carry XXH3-128; a damaged blob is SX_CORRUPT on load, a damaged
 * row is reported as such and its search is not run.
 */
#ifndef SX_CACHE_SEARCH_DB_H
#define SX_CACHE_SEARCH_DB_H
#include "cache/cache.h"

#define SX_SEARCH_LANES_MAX 64
#define SX_SEARCH_TEXT_MAX 240 /* bytes of why, NUL included */
#define SX_SEARCH_NAME_MAX 48  /* bytes of names, NUL included */
#define SX_SEARCH_BUILD_MAX 128
#define SX_SEARCH_STATE_MAX ((size_t)224 << 20) /* bytes of one state */

/* What changes of a search, and what does not. States are the daemon's numbers. */
typedef struct {
    int64_t id;                      /* 1, 2, ...; never given twice */
    uint32_t uid;                    /* the user it belongs to */
    uint32_t state;                  /* sxd_search_state of the daemon */
    uint64_t created_ms;             /* since 1970 */
    uint64_t budget_us;              /* it ends when so much time is used */
    uint64_t used_us;                /* the time during which a step was under way */
    uint64_t fuel;                   /* for one step */
    sx_key key;                      /* the key that the same request has as a compilation */
    char build[SX_SEARCH_BUILD_MAX]; /* the build of the compiler that its states are of */
    char why[SX_SEARCH_TEXT_MAX];    /* why it ended; empty: it goes on, or is done */
    sx_span request;                 /* encoded compile_args */
} sx_search_record;

typedef struct {
    uint32_t lane;     /* its number within the search */
    uint32_t state;    /* sxd_search_lane_fate of the daemon */
    uint32_t step;     /* how many steps were finished since the state was empty */
    uint32_t restarts; /* how often the state was thrown away */
    /* Of the best program so far: the value of the objective, and its estimated time and peak memory. `bound` is what
     * no program of the lane can beat, by the same objective; not finite: not known. */
    double objective, bound, time_ns;
    uint64_t peak_bytes;
    uint64_t nodes;                   /* of its e-graph */
    uint64_t fuel, worked_us;         /* spent on all its steps together */
    char name[SX_SEARCH_NAME_MAX];    /* of the way of searching */
    char stop[SX_SEARCH_NAME_MAX];    /* why its last step ended */
    char why[SX_SEARCH_TEXT_MAX];     /* why it was given up, or had to begin again; else empty */
    uint64_t state_bytes, best_bytes; /* sizes of the two blobs; 0: there is none */
    sx_hash128 state_hash, best_hash;
} sx_search_lane_record;

typedef struct sx_search_db sx_search_db;
void sx_search_db_close(SX_TAKE sx_search_db *db); /* NULL is fine */
/* Opens or makes the file in a directory that the caller holds.
 *   errors   SX_UNIMPLEMENTED written by a newer version: left untouched; SX_SYSTEM; SX_NOMEM. A damaged file
 *            is renamed aside (*aside). */
sx_code sx_search_db_open(sx_ctx *cx, const char *dir, sx_search_db **db, bool *aside);

/* Every search with its lanes, oldest first; all in cx's arena. A damaged row has `damaged` set and fields
 * that may be wrong. */
typedef struct {
    sx_search_record row;
    sx_search_lane_record *lane;
    uint32_t lane_count;
    bool damaged;
} sx_search_found;
sx_code sx_search_db_list(sx_ctx *cx, sx_search_db *db, sx_search_found **found, uint32_t *count);

/* The lanes of one search as they are now; SX_CORRUPT: a row is damaged; SX_ABSENT: there are none. */
sx_code sx_search_db_lanes(sx_ctx *cx, sx_search_db *db, int64_t id, sx_search_lane_record **lane,
                           uint32_t *count);

/* A new search with its lanes, without states; row->id is filled in.  errors  SX_SYSTEM, also a full disk */
sx_code sx_search_db_add(sx_ctx *cx, sx_search_db *db, sx_search_record *row,
                         const sx_search_lane_record *lane, uint32_t lane_count);
/* state, build, budget, used, why of one that is there. */
sx_code sx_search_db_put(sx_ctx *cx, sx_search_db *db, const sx_search_record *row);
/* The same and one lane, in one transaction. `state` and `best` NULL: as they are; empty: removed. Hashes and
 * sizes of `lane` are filled in. */
sx_code sx_search_db_put_lane(sx_ctx *cx, sx_search_db *db, const sx_search_record *row,
                              sx_search_lane_record *lane, const sx_span *state,
                              const sx_span *best);
/* A blob of a lane, checked against the row; *blob NULL: there is none.  errors  SX_CORRUPT, SX_SYSTEM, SX_NOMEM */
typedef enum { SX_SEARCH_STATE, SX_SEARCH_BEST } sx_search_part;
sx_code sx_search_db_load(sx_ctx *cx, sx_search_db *db, int64_t id,
                          const sx_search_lane_record *lane, sx_search_part part, sx_blob **blob);
sx_code sx_search_db_remove(sx_ctx *cx, sx_search_db *db, int64_t id);
#endif
