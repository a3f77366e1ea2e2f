#include "client/runtime/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/runtime/cpu.h"

/* Pauses before a waiting worker sleeps: about the length of a small kernel. */
#define SPIN_MAX 4000u

typedef struct {
    sxr_pool *pool;
    pthread_t thread;
    uint32_t number;
} worker;

struct sxr_pool {
    uint32_t threads;
    uint32_t started;            /* workers that run: threads - 1 once made */
    _Atomic uint32_t generation; /* counts launches; workers wait for it to move */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t running; /* workers not yet done with this launch */
    _Atomic bool stop;
    /* the launch, written before `generation` moves */
    sxr_pool_task task;
    void *self;
    int64_t points;
    worker worker[SXR_THREADS_MAX];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the generation differs from `seen`; returns it. */
static uint32_t await_generation(sxr_pool *pool, uint32_t seen)
{
    for (uint32_t i = 0; i < SPIN_MAX; i++) {
        uint32_t now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen) {
            return now;
        }
        sxr_pause();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    uint32_t now;
    while ((now = atomic_load(&pool->generation)) == seen) {
        futex_wait(&pool->generation, seen);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    return now;
}

static void run_share(sxr_pool *pool, uint32_t number)
{
    int64_t share = pool->points / pool->threads;
    int64_t rest = pool->points % pool->threads;
    int64_t first = share * number + sx_min_i64(number, rest);
    int64_t last = first + share + (number < rest ? 1 : 0);
    if (first < last) {
        pool->task(pool->self, number, first, last);
    }
}

static void *worker_main(void *argument)
{
    worker *me = argument;
    sxr_pool *pool = me->pool;
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    uint32_t seen = 0;
    for (;;) {
        seen = await_generation(pool, seen);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        run_share(pool, me->number);
        atomic_fetch_sub_explicit(&pool->running, 1, memory_order_release);
    }
}

static void publish(sxr_pool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        futex_wake_all(&pool->generation);
    }
}

void sxr_pool_free(sxr_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    publish(pool);
    for (uint32_t i = 0; i < pool->started; i++) {
        (void)pthread_join(pool->worker[i].thread, NULL);
    }
    free(pool);
}

sx_code sxr_pool_new(sx_ctx *cx, uint32_t threads, sxr_pool **out)
{
    if (threads < 1 || threads > SXR_THREADS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%u threads, allowed are 1 to %u", threads, SXR_THREADS_MAX);
    }
    sxr_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "thread pool: no memory for %zu bytes", sizeof(*pool));
    }
    pool->threads = threads;
    for (uint32_t i = 0; i + 1 < threads; i++) {
        pool->worker[i] = (worker){.pool = pool, .number = i + 1};
        int failure = pthread_create(&pool->worker[i].thread, NULL, worker_main, &pool->worker[i]);
        if (failure != 0) {
            sxr_pool_free(pool);
            return SX_FAIL(cx, SX_SYSTEM, "thread %u of %u: %s", i + 1, threads, strerror(failure));
        }
        pool->started++;
    }
    *out = pool;
    return SX_OK;
}

uint32_t sxr_pool_threads(const sxr_pool *pool)
{
    return pool->threads;
}

void sxr_pool_run(sxr_pool *pool, sxr_pool_task task, void *self, int64_t points)
{
    pool->task = task;
    pool->self = self;
    pool->points = points;
    if (pool->started == 0 || points < 2) {
        task(self, 0, 0, points);
        return;
    }
    atomic_store(&pool->running, pool->started);
    publish(pool);
    run_share(pool, 0);
    for (uint32_t i = 0; atomic_load_explicit(&pool->running, memory_order_acquire) > 0; i++) {
        if (i < SPIN_MAX) {
            sxr_pause();
        } else {
            (void)usleep(0); /* a worker lost its core: let it run */
        }
    }
}
