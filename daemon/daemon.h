/* daemon.h - the service: one loop thread that owns all state, compile workers in processes of their own.
 *
 * main.c calls sxd_main with the real compiler; tests call it with theirs. Everything else in this folder is internal.
 */
#ifndef SX_DAEMON_DAEMON_H
#define SX_DAEMON_DAEMON_H
#include "cache/cache.h"
#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "core/core.h"
#include "protocol/message.h"
#include "trust/seal.h"

/* The key of a request and the named parts it was made of (in the context's arena). */
typedef struct {
    sx_key key;
    sx_cache_part part[SX_CACHE_PART_MAX];
    uint32_t part_count;
} sxd_key;

/* One step of one lane of a search (core/core.h). */
typedef struct {
    uint32_t lane;
    uint64_t fuel;
    sx_span state; /* empty: the first step; aligned to 64 */
} sxd_step;

/* A compiler. All functions are pure: no state of their own, any thread.
 *   key       on a pool thread of the daemon; must be safe on hostile input
 *   compile   in a worker process; result appended to `module`; may die
 *   optimize  in a worker process; text of the program appended to `text`; may die
 *   places    on a pool thread; where e-graphs of programs that may equal this one, and of its parts, are
 *             kept; NULL: none are
 *   twin      on a pool thread; the key that the program of a stored e-graph has under this request
 *   lanes     on a pool thread; names of the lanes of a search, in the context's arena; NULL: there are no searches
 *   step      in a worker process; one step; a state of another build is SX_ABSENT, a damaged one SX_CORRUPT;
 *             SX_LIMIT: the new state is too large, all else of `result` is there; may die
 *   merge     on a pool thread; the front of two modules of a search for "pareto"; NULL: the better one is the answer
 *   check     in the daemon; is `module` (aligned to 64 bytes) well formed, so that it may be stored? */
typedef struct {
    const char *name;
    const char *(*build)(void); /* digest or version that changes whenever output may change */
    sx_code (*key)(sx_ctx *cx, const sx_compile_args *args, sxd_key *key);
    sx_code (*compile)(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                       sx_buf *module);
    sx_code (*optimize)(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                        sx_buf *text);
    sx_code (*places)(sx_ctx *cx, const sx_compile_args *args, sx_core_place *place,
                      uint32_t *count);
    sx_code (*twin)(sx_ctx *cx, const sx_compile_args *args, sx_span egraph, sx_key *key);
    sx_code (*lanes)(sx_ctx *cx, const sx_compile_args *args, sx_span **names, uint32_t *count);
    sx_code (*step)(sx_ctx *cx, const sx_compile_args *args, const sxd_step *step,
                    sx_core_step_result *result);
    sx_code (*merge)(sx_ctx *cx, const sx_compile_args *args, sx_span a, sx_span b, sx_buf *out);
    sx_code (*check)(sx_ctx *cx, sx_span module);
    /* Signs what a worker verified; NULL: modules are not signed. */
    sx_code (*seal)(sx_ctx *cx, const sx_trust_key *key, sx_span module, sx_module_seal *seal);
} sxd_backend;

extern const sxd_backend sxd_backend_core; /* backend.c: the compiler of core/ */

/* Runs the daemon (or, started as `--zygote`, the parent of its workers) until it is told to stop; the exit status. */
int sxd_main(int argc, char **argv, const sxd_backend *backend);
#endif
