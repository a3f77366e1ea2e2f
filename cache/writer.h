/* writer.h - the writer thread: one batch at a time, one transaction each.
 *
 * Why a thread: compressing 1 MiB takes milliseconds, a checkpoint writes and syncs, a full disk or a busy
 * file waits; none of that may stop the owner's loop. Why a mailbox of one batch and not a shared queue: the
 * owner stages in its own lists without a lock, group commit falls out of it, and the only shared state is one slot.
 */
#ifndef SX_CACHE_WRITER_H
#define SX_CACHE_WRITER_H
#include "cache/op.h"

typedef struct {
    /* The file of the store; borrowed for the writer's life. */
    const char *path;
    /* The SQLite VFS; NULL: the default one. */
    const char *vfs;
    /* The store is read through a memory map. */
    bool map;
    /* These are the options of the same name (sx_cache_options); the quotas are borrowed for the writer's life. */
    uint64_t size_limit;
    uint64_t ns_quota;
    const sx_cache_quota *quota;
    uint32_t quota_count;
    /* Called on the writer thread, with `wake_self`, when a batch is finished. */
    void (*wake)(void *self);
    void *wake_self;
} sx_writer_config;

typedef struct {
    /* SX_OK: it is committed. SX_SYSTEM: nothing of it is; it may be tried later. SX_CORRUPT: the file is malformed,
     * and trying again is of no use. */
    sx_code code;
    bool more;   /* limits are still exceeded: give another batch, an empty one will do */
    bool synced; /* the batch asked for it, and all is on the medium */
    /* Entries that this batch evicted: by the limit of the store, by quotas, by operations EVICT. */
    uint64_t evicted_size, evicted_quota, evicted_request;
    uint64_t entries, bytes, quarantined; /* of the store, after the commit */
    char text[SX_CACHE_ERROR_MAX];        /* why code is not SX_OK */
} sx_batch_result;

typedef struct {
    sx_op_list list;
    bool sync; /* bring it to the medium before it is done */
    sx_batch_result result;
} sx_batch;

typedef struct sx_writer sx_writer;
void sx_writer_close(SX_TAKE sx_writer *writer); /* must be idle; closes the store */
/* Starts the thread. `store` is moved in: the connection opened for writing, or a closed one to be opened with
 * the first batch. */
sx_code sx_writer_open(sx_ctx *cx, const sx_writer_config *config, sx_store *store,
                       sx_writer **writer);
/* Gives the batch; the writer must be idle. It is the writer's until taken back. */
void sx_writer_give(sx_writer *writer, SX_KEEP sx_batch *batch);
/* True when the batch given is finished (the writer is idle then); waits for it if asked. */
bool sx_writer_take(sx_writer *writer, bool wait);

/* ---- apply.c, evict.c: run on the writer thread ---- */
typedef struct {
    const sx_writer_config *config;
    sx_store store;  /* the connection for writing */
    ZSTD_CCtx *pack; /* compresses what is put */
    /* The clock of GreedyDual-Size: the score of the entry that was evicted last. New scores are counted from it. */
    double clock;
    double clock_kept; /* as the table `meta` has it */
    /* The clock, and how much each namespace takes, were read since the store was opened. */
    bool has_stock;
} sx_apply;
void sx_apply_run(sx_apply *apply, sx_batch *batch);
/* Brings namespaces and the whole under their limits, within the open transaction. False: the store failed. */
bool sx_evict_run(sx_apply *apply, sx_batch_result *result);
/* Deletes one entry, also when its blob cannot be read any more (then the blob stays, named by quarantine). */
bool sx_apply_remove(sx_apply *apply, const sx_ident *ident);
#endif
