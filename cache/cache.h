/* cache.h - the compile cache: a RAM tier over a SQLite store, one owner thread, one writer thread.
 *
 * An entry is (key, namespace) -> bytes with a kind, the cost of making it again and the named parts its key
 * was made of. Every call below belongs to one thread, the owner (the daemon's loop). Reads run on the owner
 * with a connection of their own; every write is an operation that the owner stages and hands over in batches
 * to a writer thread (group commit), so that no commit, compression, eviction or checkpoint runs on the owner.
 * A put is visible to get at once.
 *
 * Durability: a committed entry survives kill -9; it survives loss of power once sx_cache_flush was called
 * with SX_CACHE_SYNCED (WAL with synchronous=NORMAL: the last seconds may go, never the consistency). Row and
 * blob are one transaction. What is read from disk is checked (XXH3-128 over the header fields and the stored
 * bytes); damage is a miss and the row moves to the quarantine table. A full or failing disk never fails a get
 * or a put: the RAM tier goes on, the writes wait and are tried again. Eviction: GreedyDual-Size (Cao, Irani
 * 1997): score = clock + cost_us / bytes at the last use; the lowest goes (of equals the one unused for
 * longest), clock becomes its score.
 */
#ifndef SX_CACHE_CACHE_H
#define SX_CACHE_CACHE_H
#include "core/base/hash.h"

/* ---- limits ---- */
#define SX_CACHE_BLOB_MAX ((size_t)256 << 20) /* bytes of one entry */
#define SX_CACHE_PART_MAX 16                  /* named parts of one key */
#define SX_CACHE_PART_NAME_MAX 32             /* bytes */
#define SX_CACHE_PART_VALUE_MAX 256           /* bytes */
#define SX_CACHE_SIGNATURE_MAX 200            /* bytes of a crash signature, NUL included */
#define SX_CACHE_ERROR_MAX 240                /* bytes of stats.error_text, NUL included */

/* ---- blobs: shared read-only bytes ---- */
/* Counted references; share and free may be called from any thread. The bytes do not move or change while a
 * reference is held, also when the entry is evicted or replaced meanwhile: an answer can be written from them later. */
typedef struct sx_blob sx_blob;
void sx_blob_free(SX_TAKE sx_blob *blob); /* gives one reference back; NULL is fine */
/* One reference to `size` bytes to be filled in, aligned to 64; NULL when there is no memory. */
SX_GIVE(sx_blob_free) sx_blob *sx_blob_new(size_t size);
sx_blob *sx_blob_share(sx_blob *blob); /* one more reference; returns blob */
sx_span sx_blob_span(const sx_blob *blob);
uint8_t *sx_blob_bytes(sx_blob *blob); /* to fill it, before it is shared */

/* ---- keys: made of named parts, in the order of key.def ---- */
typedef struct {
    sx_span name;  /* at most SX_CACHE_PART_NAME_MAX bytes */
    sx_span value; /* at most SX_CACHE_PART_VALUE_MAX bytes: a digest or a short text */
} sx_cache_part;

typedef struct {
#define SX_KEY_FIELD(field, meaning) sx_span field;
#include "cache/key.def"
#undef SX_KEY_FIELD
} sx_cache_key_fields;

enum {
#define SX_KEY_FIELD(field, meaning) SX_KEY_FIELD_##field,
#include "cache/key.def"
#undef SX_KEY_FIELD
    SX_KEY_FIELD_COUNT
};
_Static_assert(SX_KEY_FIELD_COUNT <= SX_CACHE_PART_MAX, "a key fits the part table");

/* The key of a request and its parts; the parts borrow from `fields`. A missing field is an empty part. */
sx_key sx_cache_key_make(const sx_cache_key_fields *fields, sx_cache_part part[SX_KEY_FIELD_COUNT]);

/* ---- opening ---- */
typedef struct {
    uint32_t ns;    /* the namespace */
    uint64_t bytes; /* how much it may take of the store; 0: no limit */
} sx_cache_quota;

typedef struct {
    const char *dir;             /* state directory, made if absent; NULL: RAM only */
    uint64_t size_limit;         /* bytes of the store; 0: 10 GiB */
    uint64_t ram_limit;          /* bytes of the RAM tier; 0: 128 MiB */
    uint64_t queue_limit;        /* bytes waiting for the writer; 0: 64 MiB */
    uint64_t ns_quota;           /* bytes of each namespace not named below; 0: no limit */
    const sx_cache_quota *quota; /* copied */
    uint32_t quota_count;
    uint32_t batch_us;      /* a staged put waits at most this long; 0: 20 ms */
    uint32_t batch_rows;    /* or until so many are staged; 0: 64 */
    uint32_t touch_us;      /* hits and last_used are written this often; 0: 1 s */
    uint32_t strike_limit;  /* strikes that quarantine a key; 0: 2 */
    uint64_t strike_ttl_us; /* a strike is forgotten after; 0: 24 h */
    /* Returns microseconds since 1970; it is called with `now_self`. NULL: the system's clock. */
    uint64_t (*now_us)(void *);
    void *now_self;
    /* Called on the writer thread, with `wake_self`, when sx_cache_tick has something to collect. It must do no more
     * than to see that the owner thread calls sx_cache_tick. */
    void (*wake)(void *);
    void *wake_self;
    const char *vfs;  /* SQLite VFS; NULL: the default one */
    bool without_map; /* no memory map of the store: slower reads, but a media error is no SIGBUS */
} sx_cache_options;

typedef struct sx_cache sx_cache;

/* Writes everything staged, stops the writer, closes the store. NULL is fine. Completions are called before it
 * returns. */
void sx_cache_close(SX_TAKE sx_cache *cache);
/* Opens or makes the cache of a directory.
 *   errors   SX_BUSY another process holds the directory; SX_INPUT the directory is on a network file system
 *            or no directory; SX_SYSTEM it cannot be made, locked or written; SX_NOMEM
 * A store written by a newer version is left untouched and the cache runs from RAM (stats.store
 * SX_STORE_NEWER); an older or unreadable one is renamed aside, never deleted; a disk that is full at this
 * moment gives SX_STORE_FAILING and is tried again. */
sx_code sx_cache_open(sx_ctx *cx, const sx_cache_options *options, sx_cache **cache);

/* ---- get and put ---- */
typedef enum { SX_TIER_RAM, SX_TIER_DISK } sx_cache_tier;

typedef struct {
    sx_key key;
    uint32_t ns;           /* the namespace; entries of different ones never meet */
    uint32_t kind;         /* a number of the caller's, for the type of the contents */
    uint64_t size;         /* bytes as put */
    uint64_t stored_size;  /* bytes in the store, after compression; 0 while not stored */
    uint64_t cost_us;      /* what it took to make */
    uint64_t created_us;   /* since 1970 */
    uint64_t last_used_us; /* since 1970 */
    uint64_t hits;         /* how often it was found since it was put */
    /* 1 for the first put of this key, then one more for each; 0 while not stored */
    uint64_t generation;
    bool pinned;        /* never evicted by size or quota */
    bool stored;        /* committed */
    sx_cache_tier tier; /* where this answer came from */
} sx_cache_info;

/* Finds an entry. SX_OK: *blob is one reference, yours (sx_blob_free); SX_ABSENT: a miss, also when the entry
 * was damaged or the disk failed (counted in stats). `info` may be NULL. */
sx_code sx_cache_get(sx_cache *cache, uint32_t ns, const sx_key *key, sx_blob **blob,
                     sx_cache_info *info);

typedef struct {
    sx_key key;
    uint32_t ns;
    uint32_t kind;
    uint64_t cost_us; /* what it took to make; of two entries alike the dearer one stays longer */
    sx_span bytes;    /* copied, at most SX_CACHE_BLOB_MAX */
    /* The named parts that the key was made of, for people who ask what an entry is; copied. */
    const sx_cache_part *part;
    uint32_t part_count; /* at most SX_CACHE_PART_MAX */
    bool pinned;         /* never evicted by size or quota */
    /* Called once if put returned SX_OK, from tick, flush or close: SX_OK committed, else why it was given up;
     * from put itself with SX_ABSENT when there is no store to write. NULL: no one asks. */
    void (*done)(void *self, sx_code code);
    void *done_self;
} sx_cache_item;

/* Inserts or replaces. Visible at once; on disk after a tick or flush.
 *   errors   SX_LIMIT bytes or parts over the limit; SX_NOMEM; SX_BUSY the queue is full (the entry is in the
 *            RAM tier only, if it fits there) or the cache is closing */
sx_code sx_cache_put(sx_ctx *cx, sx_cache *cache, const sx_cache_item *item);

/* Pins an entry (no eviction by size or quota) or lets it go. Flushes; SX_ABSENT no such entry; SX_SYSTEM the
 * store fails. */
sx_code sx_cache_pin(sx_ctx *cx, sx_cache *cache, uint32_t ns, const sx_key *key, bool pinned);

/* ---- time ---- */
/* Hands due batches to the writer and collects finished ones; never waits. Returns the microseconds until it
 * wants to be called again, UINT64_MAX when only a put, a hit or `wake` changes that. */
uint64_t sx_cache_tick(sx_cache *cache);

typedef enum { SX_CACHE_COMMITTED, SX_CACHE_SYNCED } sx_cache_level;
/* Waits until everything staged is committed (or, SYNCED, on the medium). SX_SYSTEM: the store fails, what is
 * staged stays staged. */
sx_code sx_cache_flush(sx_ctx *cx, sx_cache *cache, sx_cache_level level);

/* ---- keys that kill workers ---- */
typedef struct {
    /* How many there were; all are forgotten when the last one is older than the TTL. */
    uint32_t count;
    uint64_t last_us;                       /* when the last one came, since 1970 */
    char signature[SX_CACHE_SIGNATURE_MAX]; /* of the last strike */
} sx_cache_strikes;

/* Notes that work under `key`, a compilation or a step of a search, killed a worker. `signature` is one line of text,
 * cut at the limit. `strikes` may be NULL. */
sx_code sx_cache_strike(sx_ctx *cx, sx_cache *cache, const sx_key *key, sx_span signature,
                        sx_cache_strikes *strikes);
/* True when the key has strike_limit strikes younger than the TTL; fills `strikes` (may be NULL) when there is
 * any strike. */
bool sx_cache_is_quarantined(sx_cache *cache, const sx_key *key, sx_cache_strikes *strikes);
bool sx_cache_pardon(sx_cache *cache, const sx_key *key); /* forgets the strikes; false: none */

/* ---- looking and cleaning; these flush first and may wait for the writer ---- */
/* Calls `each` for at most `limit` entries, most recently used first, until it returns false. */
sx_code sx_cache_list(sx_ctx *cx, sx_cache *cache, uint32_t limit,
                      bool (*each)(void *self, const sx_cache_info *info), void *self);
/* One entry and its parts (in cx's arena). SX_ABSENT when there is none. */
sx_code sx_cache_show(sx_ctx *cx, sx_cache *cache, uint32_t ns, const sx_key *key,
                      sx_cache_info *info, sx_cache_part **part, uint32_t *part_count);

typedef struct {
    /* Which of the conditions `ns`, `key` and `kind` are given. */
    bool by_ns;
    bool by_key;
    bool by_kind;
    bool pinned_too; /* pinned entries go, too */
    uint32_t ns;
    uint32_t kind;
    sx_key key;
    uint64_t unused_since_us; /* last used before this moment; 0: any */
} sx_cache_filter;
/* Removes what all given conditions match, from RAM and store; a zero filter is everything not pinned.
 * SX_SYSTEM: the store fails and keeps its rows. `count` may be NULL. */
sx_code sx_cache_evict(sx_ctx *cx, sx_cache *cache, const sx_cache_filter *filter, uint64_t *count);

/* Full check in slices: zero the struct, call until `finished`. Each call reads at most `rows` entries (0:
 * all). Damaged entries go to quarantine. */
typedef struct {
    bool deep;              /* set by the caller: also check the pages of the database at the end */
    bool finished;          /* everything was looked at, and the figures below are final */
    uint64_t ok;            /* entries without damage */
    uint64_t corrupt;       /* moved to quarantine */
    uint64_t orphans;       /* blobs without a row, at the end */
    uint32_t damaged_pages; /* 1: SQLite's own check found the file malformed */
    /* For sx_cache_verify alone: the entry at which the last call ended, once there was a call. */
    sx_key after_key;
    uint32_t after_ns;
    bool started;
} sx_cache_verification;
sx_code sx_cache_verify(sx_ctx *cx, sx_cache *cache, uint32_t rows, sx_cache_verification *state);

/* ---- numbers ---- */
typedef enum {
    SX_STORE_NONE,    /* RAM only by option */
    SX_STORE_OK,      /* reading and writing */
    SX_STORE_FAILING, /* the last write failed; tried again, with pauses up to 30 s */
    SX_STORE_NEWER,   /* of a newer version: not touched */
    SX_STORE_DAMAGED, /* malformed: read what can be read, no writes; the next open starts a new one */
} sx_cache_store_state;
const char *sx_cache_store_name(sx_cache_store_state state); /* "none", "ok", ... */
/* As sx_cache_stats_of has it, without its figures. *error: the text of the last error, empty: none; it is the cache's
 * and changes with the next call. */
sx_cache_store_state sx_cache_store_of(const sx_cache *cache, const char **error);

typedef struct {
    sx_cache_store_state store;
    /* Answers of sx_cache_get by where they came from, since the cache was opened; so are all counts of events. */
    uint64_t hits_ram, hits_disk, misses;
    uint64_t saved_us;                    /* sum of the costs of all hits */
    uint64_t puts;                        /* puts that were accepted */
    uint64_t put_dropped;                 /* kept in RAM only: queue full */
    uint64_t evicted_size, evicted_quota; /* by the store's limits */
    uint64_t evicted_request;             /* by sx_cache_evict */
    uint64_t ram_evicted;                 /* left the RAM tier */
    uint64_t corrupt;                     /* damaged entries found */
    uint64_t errors;                      /* failed reads and failed batches */
    uint64_t commits;                     /* batches written */
    uint64_t entries, bytes;              /* of the store */
    uint64_t ram_entries, ram_bytes;      /* of the RAM tier */
    uint64_t queue_rows, queue_bytes;     /* waiting for the writer */
    uint64_t file_bytes, wal_bytes;       /* of the files */
    uint64_t quarantined, struck;         /* rows in quarantine; keys with strikes */
    char error_text[SX_CACHE_ERROR_MAX];  /* of the last error; empty: none */
} sx_cache_stats;
void sx_cache_stats_of(sx_cache *cache, sx_cache_stats *stats);
#endif
