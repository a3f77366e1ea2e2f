#include "client/runtime/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/runtime/cpu.h"

/* Pauses before a waiting worker sleeps: about the length of a small kernel. */
#define SPIN_MAX 4000u
#define CHUNKS_PER_THREAD 4

/* A launch that all threads together finish in less may be faster alone. Waking a worker that sleeps takes 5 to 50 us,
 * longest in virtual machines, and some times that where threads share a processor. */
#define SHORT_NS UINT64_C(400000)
#define TRIES 8u /* of a launch that is repeated; where it is short, every second one is alone */

typedef struct {
    sxr_pool *pool;
    pthread_t thread;
    uint32_t number;
} worker;

/* The ticket is the launch's generation (high half) and the next chunk nobody has claimed (low half). A claim
 * is a compare-and-swap of the whole ticket, so a worker that slept through a launch cannot claim a chunk of
 * the next one with what it read of the last. CLOSED: no launch is open; its description may be written. */
#define CLOSED UINT32_MAX
struct sxr_pool {
    uint32_t threads;
    uint32_t started; /* workers that run: threads - 1 once made */
    _Atomic uint64_t ticket;
    _Atomic uint32_t generation; /* futex word: the generation of the ticket */
    _Atomic uint32_t sleepers;
    _Atomic int64_t left; /* points of this launch not yet done */
    _Atomic bool stop;
    _Atomic bool busy; /* a caller has the threads for its launch */
    /* the launch */
    _Atomic(sxr_pool_task) task;
    _Atomic(void *) self;
    _Atomic int64_t points;
    _Atomic int64_t chunk; /* points of one claim */
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

/* Claims chunks of the launch of `generation` until there are none, or it is over. */
static void run_chunks(sxr_pool *pool, uint32_t number, uint32_t generation)
{
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        uint32_t next = (uint32_t)ticket;
        sxr_pool_task task = atomic_load_explicit(&pool->task, memory_order_relaxed);
        void *self = atomic_load_explicit(&pool->self, memory_order_relaxed);
        int64_t points = atomic_load_explicit(&pool->points, memory_order_relaxed);
        int64_t chunk = atomic_load_explicit(&pool->chunk, memory_order_relaxed);
        if ((uint32_t)(ticket >> 32) != generation || next == CLOSED || next * chunk >= points) {
            return;
        }
        if (!atomic_compare_exchange_strong(&pool->ticket, &ticket, ticket + 1)) {
            continue;
        }
        int64_t first = next * chunk;
        int64_t last = sx_min_i64(first + chunk, points);
        task(self, number, first, last);
        atomic_fetch_sub_explicit(&pool->left, last - first, memory_order_release);
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
        run_chunks(pool, me->number, seen);
    }
}

/* Opens the launch that is described, under a new generation. */
static uint32_t publish(sxr_pool *pool)
{
    uint32_t generation = atomic_load(&pool->generation) + 1;
    atomic_store(&pool->ticket, (uint64_t)generation << 32);
    atomic_store(&pool->generation, generation);
    if (atomic_load(&pool->sleepers) > 0) {
        futex_wake_all(&pool->generation);
    }
    return generation;
}

void sxr_pool_free(sxr_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    (void)publish(pool);
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

uint32_t sxr_pool_usable(uint32_t wanted)
{
    if (wanted != 0) {
        return wanted;
    }
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : (count > (int)SXR_THREADS_MAX ? SXR_THREADS_MAX : (uint32_t)count);
}

uint32_t sxr_pool_threads(const sxr_pool *pool)
{
    return pool->threads;
}

void sxr_pool_run(sxr_pool *pool, sxr_pool_task task, void *self, int64_t points)
{
    if (pool->started == 0 || points < 2 || atomic_exchange(&pool->busy, true)) {
        task(self, 0, 0, points);
        return;
    }
    uint64_t closed = (uint64_t)atomic_load(&pool->generation) << 32 | CLOSED;
    atomic_store(&pool->ticket, closed);
    atomic_store(&pool->task, task);
    atomic_store(&pool->self, self);
    atomic_store(&pool->points, points);
    atomic_store(&pool->chunk, sx_ceil_div_i64(points, (int64_t)pool->threads * CHUNKS_PER_THREAD));
    atomic_store(&pool->left, points);
    run_chunks(pool, 0, publish(pool));
    for (uint32_t i = 0; atomic_load_explicit(&pool->left, memory_order_acquire) > 0; i++) {
        if (i < SPIN_MAX) {
            sxr_pause();
        } else {
            (void)sched_yield(); /* a worker lost its core in the middle of a chunk: let it run */
        }
    }
    atomic_store(&pool->busy, false);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Runs a launch one way or the other, and remembers how long it took at best. Alone is not tried again where it took
 * twice as long. */
static void try_launch(sxr_pool *pool, sxr_pool_habit *habit, sxr_pool_task task, void *self)
{
    bool slower = habit->alone_ns < UINT64_MAX && habit->alone_ns / 2 > habit->together_ns;
    bool alone = habit->tries++ % 2 == 1 && habit->together_ns < SHORT_NS && !slower;
    uint64_t *best = alone ? &habit->alone_ns : &habit->together_ns;
    uint64_t start = now_ns();
    if (alone) {
        task(self, 0, 0, habit->points);
    } else {
        sxr_pool_run(pool, task, self, habit->points);
    }
    uint64_t ns = now_ns() - start;
    *best = ns < *best ? ns : *best;
}

void sxr_pool_repeat(sxr_pool *pool, sxr_pool_habit *habit, sxr_pool_task task, void *self,
                     int64_t points)
{
    if (pool->started == 0 || points < 2) {
        task(self, 0, 0, points);
        return;
    }
    if (habit->points != points) {
        *habit =
            (sxr_pool_habit){.points = points, .alone_ns = UINT64_MAX, .together_ns = UINT64_MAX};
    }
    if (habit->tries < TRIES) {
        try_launch(pool, habit, task, self);
    } else if (habit->alone_ns < habit->together_ns) {
        task(self, 0, 0, points);
    } else {
        sxr_pool_run(pool, task, self, points);
    }
}
