/* backend.h - a compiler as the daemon sees it. */
#ifndef SX_DAEMON_WORK_BACKEND_H
#define SX_DAEMON_WORK_BACKEND_H
#include "cache/cache.h"
#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "core/core.h"
#include "protocol/message.h"
#include "trust/seal.h"

/* The key of a request, and the named parts it was made of, which are in the arena of the ctx. */
typedef struct {
    sx_key key;
    /* The program as it was read for the key, for `places` of the same backend; in the arena of the ctx. NULL: the
     * backend keeps none. */
    const void *program;
    sx_cache_part part[SX_CACHE_PART_MAX];
    uint32_t part_count;
} sxd_key;

/* What a worker needs to know to do one step of one lane of a search (core/core.h). */
typedef struct {
    uint32_t lane;
    uint64_t fuel;
    sx_span state; /* empty: the first step; aligned to 64 */
} sxd_step;

struct sxd_zygote_message; /* zygote.h: the limits of a worker */

/* A compiler, as the daemon sees it. The functions are pure: they keep no state of their own and may be called on any
 * thread. Those that "may die" run in a worker process, which the daemon survives.
 *
 *   key       Computes the key of a request, on a thread of the pool. It must be safe on hostile input.
 *   compile   Appends the module to `module`; in a worker; may die.
 *   optimize  Appends the text of the optimised program to `text`; in a worker; may die.
 *   places    Says under which keys e-graphs of equal programs, and of equal parts, would be stored; on a thread of
 *             the pool. `program` is that of sxd_key, so that the program is read once. NULL: there are none.
 *   twin      Computes the key that the program of a stored e-graph has under this request; on a thread of the pool.
 *   lanes     Returns the names of the lanes of a search, in the arena of the ctx; on a thread of the pool. NULL: there
 *             are no searches.
 *   step      Does one step of a lane; in a worker; may die. SX_ABSENT: the state is of another build;
 *             SX_CORRUPT: it is damaged; SX_LIMIT: the new state is too large, but the rest of `result` is valid.
 *   merge     Merges two modules of a search for "pareto" to their common front; on a thread of the pool.
 *             NULL: the better one is the answer.
 *   prepare   Finds out what all workers have to know; in their parent, before there are any. NULL: nothing.
 *   start     Starts what a worker needs and cannot start; in the worker, before it is confined. The result is the
 *             highest descriptor that the worker keeps. NULL: SXD_WORK_FD.
 *   machine   The word for the kind of this machine under which measured rows are kept. NULL: none are used.
 *   check     Checks that `module`, aligned to 64 bytes, is well formed and may be stored; in the daemon. */
typedef struct {
    const char *(*build)(void); /* digest or version that changes whenever output may change */
    sx_code (*key)(sx_ctx *cx, const sx_compile_args *args, sxd_key *key);
    sx_code (*compile)(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                       sx_buf *module);
    sx_code (*optimize)(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                        sx_buf *text);
    sx_code (*places)(sx_ctx *cx, const sx_compile_args *args, const void *program,
                      sx_core_place *place, uint32_t *count);
    sx_code (*twin)(sx_ctx *cx, const sx_compile_args *args, sx_span egraph, sx_key *key);
    sx_code (*lanes)(sx_ctx *cx, const sx_compile_args *args, sx_span **names, uint32_t *count);
    sx_code (*step)(sx_ctx *cx, const sx_compile_args *args, const sxd_step *step,
                    sx_core_step_result *result);
    sx_code (*merge)(sx_ctx *cx, const sx_compile_args *args, sx_span a, sx_span b, sx_buf *out);
    void (*prepare)(void);
    int (*start)(const struct sxd_zygote_message *limits);
    const char *(*machine)(void);
    sx_code (*check)(sx_ctx *cx, sx_span module);
    /* Signs what a worker verified; NULL: modules are not signed. */
    sx_code (*seal)(sx_ctx *cx, const sx_trust_key *key, sx_span module, sx_module_seal *seal);
} sxd_backend;
#endif
