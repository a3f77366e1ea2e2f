/* op.h - one change of the store, staged by the owner and carried out by the writer.
 *
 * An operation belongs to one side at a time: to the owner while staged and after completion, to the writer in
 * between. Only the blob of a PUT is shared (counted), and the owner may read ident, blob and the fields of
 * `put` that the writer does not set.
 */
#ifndef SX_CACHE_OP_H
#define SX_CACHE_OP_H
#include "cache/store.h"

#include "cache/hash_table.h"

typedef enum {
    SX_OP_PUT,
    SX_OP_TOUCH,
    SX_OP_QUARANTINE,
    SX_OP_STRIKE,
    SX_OP_PARDON,
    SX_OP_EVICT,
    SX_OP_PIN
} sx_op_type;

typedef struct sx_op sx_op;
struct sx_op {
    sx_op *next; /* of the list that it is in */
    sx_op_type type;
    sx_code code;   /* set by the writer: why this one was given up; SX_OK: it was not */
    sx_ident ident; /* of the entry; a strike and a pardon use its key alone */
    union {
        struct {
            sx_blob *blob; /* one reference */
            sx_cache_info info;
            /* The parts of the key. They and their bytes lie behind this struct, in the same piece of memory. */
            const sx_cache_part *part;
            uint32_t part_count;
            void (*done)(void *self, sx_code code); /* as in sx_cache_item */
            void *done_self;
            uint64_t stored_size; /* set by the writer; as in sx_cache_info */
            uint64_t generation;  /* set by the writer; as in sx_cache_info */
        } put;
        struct {
            uint64_t hits;         /* to be added to those of the row */
            uint64_t last_used_us; /* since 1970 */
        } touch;
        struct {
            uint64_t at_us;     /* when the damage was seen, since 1970 */
            const char *reason; /* static storage */
            /* The checksum of the row that was seen, if it could be read. A row with another one is left alone. */
            uint8_t xxh[16];
            bool has_xxh;
        } quarantine;
        sx_cache_strikes strike;
        bool pinned;
        struct {
            sx_cache_filter filter;
            uint64_t count; /* set by the writer */
        } evict;
    } u;
    bool is_pending; /* in the owner's table of changes that readers cannot see yet */
    UT_hash_handle hh;
};

typedef struct {
    sx_op *first;
    sx_op *last;
    uint64_t rows;  /* operations in the list */
    uint64_t bytes; /* what they charge to the queue (sx_op_bytes) */
} sx_op_list;

void sx_op_free(SX_TAKE sx_op *op);
/* NULL when there is no memory. */
SX_GIVE(sx_op_free) sx_op *sx_op_new(sx_op_type type, const sx_ident *ident);
/* A PUT: shares the blob, copies the parts. */
SX_GIVE(sx_op_free)
sx_op *sx_op_new_put(sx_blob *blob, const sx_cache_info *info, const sx_cache_item *item);
uint64_t sx_op_bytes(const sx_op *op); /* what it charges to the queue */

void sx_op_list_append(sx_op_list *list, SX_TAKE sx_op *op);
/* Moves at most `rows` operations and about `bytes` (one at least) from the front of `from` to the end of `to`. */
void sx_op_list_move(sx_op_list *from, sx_op_list *to, uint64_t rows, uint64_t bytes);
sx_op *sx_op_list_take(sx_op_list *list); /* the first, now the caller's; NULL when empty */
#endif
