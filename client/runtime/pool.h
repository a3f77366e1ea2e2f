/* pool.h - threads that run the points of a grid. Points are independent, so who runs which cannot change a bit.
 *
 * Threads claim chunks of points as they come: a worker that the system does not let run delays nobody, the
 * others (the caller is number 0) do its share. Workers spin a short while between launches and sleep on a
 * futex after that. One launch at a time.
 */
#ifndef SX_CLIENT_RUNTIME_POOL_H
#define SX_CLIENT_RUNTIME_POOL_H
#include "core/base/base.h"

#define SXR_THREADS_MAX 256u
typedef struct sxr_pool sxr_pool;
/* Runs points [first, last) of a launch on thread `thread`. */
typedef void (*sxr_pool_task)(void *self, uint32_t thread, int64_t first, int64_t last);

void sxr_pool_free(SX_TAKE sxr_pool *pool); /* NULL is allowed */
/* `threads` 1..SXR_THREADS_MAX, the caller included. SX_SYSTEM when a thread cannot be started. */
sx_code sxr_pool_new(sx_ctx *cx, uint32_t threads, sxr_pool **pool);
uint32_t sxr_pool_threads(const sxr_pool *pool);
/* Runs `task` over [0, points) in chunks and returns when all are done. */
void sxr_pool_run(sxr_pool *pool, sxr_pool_task task, void *self, int64_t points);
#endif
