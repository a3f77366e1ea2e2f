/* ranks.h - modules that several ranks run together: what they exchange, and through what.
 *
 * Every rank has a program of its own, opened with a communicator. When its run meets a collective, the function of the
 * communicator for that is called with the tensors; it returns when the result is there. All ranks meet the same
 * collectives in the same order, because they run one module. A communicator is an engine that moves bytes between
 * ranks: sxr_group is one for ranks that are threads of one process. Another one must keep the order in which elements
 * are combined: rank 0 first, as sxr_combine does, or results would depend on the engine.
 */
#ifndef SX_CLIENT_RUNTIME_RANKS_H
#define SX_CLIENT_RUNTIME_RANKS_H
#include "client/runtime/runtime.h"

/* One collective of one rank. Those that take part are the ranks first + k * stride for k from 0 to count - 1, which
 * differ in their place along the axis alone; this one is k = place. */
typedef struct {
    sx_module_collective kind;
    sx_span axis;
    uint32_t first, stride, count, place;
    /* The number of the launch in the module, for messages. */
    uint32_t launch;
    /* An sx_dtype. */
    uint32_t dtype;
    sx_module_combine combine;
    const sx_module_pair *pair;
    uint32_t pair_count;
    /* What `from` and `to` hold, in order of memory. A gather makes `count` pieces of from_bytes in `to`;
     * reduce-scatter and all-to-all read as many from `from`. */
    const void *from;
    uint64_t from_bytes;
    void *to;
    uint64_t to_bytes;
} sxr_exchange;

/* Each is called by the thread that runs the program. A failure ends the run with it; `cx` says what happened. */
typedef sx_code (*sxr_collective)(sx_ctx *cx, void *self, const sxr_exchange *exchange);
typedef struct sxr_communicator {
    void *self;
    uint32_t rank, rank_count;
    sxr_collective all_reduce, all_gather, reduce_scatter, all_to_all, permute;
    /* The run of this rank ended with an error: nobody shall wait for it. */
    void (*abort)(void *self, const sx_error *error);
} sxr_communicator;

/* Fills in the exchange of a collective of this program, on the memory of its arguments.
 *   errors   SX_CORRUPT the extents of this run give its tensors sizes that do not belong together */
sx_code sxr_exchange_of(sx_ctx *cx, const sxr_program *program, uint32_t rank, uint32_t launch,
                        void *const *buffer, sxr_exchange *exchange);
/* Do all ranks say the same?  errors  SX_INPUT names both ranks, the launch and what differs */
sx_code sxr_exchange_agree(sx_ctx *cx, const sxr_exchange *a, uint32_t rank_a,
                           const sxr_exchange *b, uint32_t rank_b);
/* What rank `place` gets: from[k] is the operand of number k of those that take part. */
void sxr_exchange_run(const sxr_exchange *exchange, const void *const *from);

/* ---- ranks that are threads of one process ---- */

typedef struct sxr_group sxr_group;
void sxr_group_free(SX_TAKE sxr_group *group); /* NULL is allowed; no rank is in it any more */
/* A rank that waits longer than `deadline_ms` for another ends all of them. */
sx_code sxr_group_new(sx_ctx *cx, uint32_t rank_count, uint64_t deadline_ms, sxr_group **group);
/* For one rank; as long as the group. */
const sxr_communicator *sxr_group_communicator(sxr_group *group, uint32_t rank);
#endif
