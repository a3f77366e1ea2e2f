/* pool.h - threads that run the points of a grid. Points are independent, so who runs which cannot change a bit.
 *
 * Threads claim chunks of points as they come: a worker that the system does not let run delays nobody, the
 * others (the caller is number 0) do its share. Workers spin a short while between launches and sleep on a
 * futex after that. One launch at a time: a caller that comes while another one's launch has the threads runs its own
 * alone. A launch of a microsecond is over before a worker has heard of it: one that is repeated is tried both ways at
 * first, and goes the faster way from then on.
 */
#ifndef SX_CLIENT_RUNTIME_POOL_H
#define SX_CLIENT_RUNTIME_POOL_H
#include "core/base/base.h"

#define SXR_THREADS_MAX 256u
typedef struct sxr_pool sxr_pool;
/* Runs points [first, last) of a launch on thread `thread`. */
typedef void (*sxr_pool_task)(void *self, uint32_t thread, int64_t first, int64_t last);

void sxr_pool_free(SX_TAKE sxr_pool *pool); /* NULL is allowed */
/* As many threads as are wanted; 0: as many as the process may use. */
uint32_t sxr_pool_usable(uint32_t wanted);
/* `threads` 1..SXR_THREADS_MAX, the caller included. SX_SYSTEM when a thread cannot be started. */
sx_code sxr_pool_new(sx_ctx *cx, uint32_t threads, sxr_pool **pool);
uint32_t sxr_pool_threads(const sxr_pool *pool);
/* Runs `task` over [0, points) in chunks and returns when all are done. */
void sxr_pool_run(sxr_pool *pool, sxr_pool_task task, void *self, int64_t points);

/* What is known of a launch that is repeated: how long it took the caller alone and all threads together, at best.
 * Zeros at first. With another number of points it is another launch. */
typedef struct {
    int64_t points;
    uint64_t alone_ns, together_ns;
    uint32_t tries;
} sxr_pool_habit;
/* The same, by the caller alone where that is known to be faster. Of the first eight times every second one is alone,
 * unless all threads together never took less than 50 us so far. */
void sxr_pool_repeat(sxr_pool *pool, sxr_pool_habit *habit, sxr_pool_task task, void *self,
                     int64_t points);
#endif
