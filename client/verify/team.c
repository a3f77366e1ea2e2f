#include "client/verify/team.h"

#include <malloc.h>
#include <stdatomic.h>

#include "client/runtime/pool.h"

#define KEPT_BYTES (64 << 20)
#define HEAP_BLOCK_BYTES (32 << 20) /* larger ones come from the system; the most that it allows */

typedef struct {
    void (*task)(void *of, uint32_t index);
    void *of;
    uint32_t count;
    _Atomic uint32_t next;
} work;

static void *do_tasks(void *argument)
{
    work *w = argument;
    for (uint32_t i = atomic_fetch_add(&w->next, 1); i < w->count;
         i = atomic_fetch_add(&w->next, 1)) {
        w->task(w->of, i);
    }
    return NULL;
}

static void run(void *self, void (*task)(void *of, uint32_t index), void *of, uint32_t count)
{
    const sxv_team *team = self;
    work w = {.task = task, .of = of, .count = count};
    pthread_t thread[SXV_TEAM_THREADS_MAX];
    uint32_t started = 0;
    SX_ASSERT(team->team.threads <= SXV_TEAM_THREADS_MAX);
    while (started + 1 < team->team.threads && started + 1 < count &&
           pthread_create(&thread[started], NULL, do_tasks, &w) == 0) {
        started++;
    }
    (void)do_tasks(&w);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
}

static void lock(void *self)
{
    (void)pthread_mutex_lock(&((sxv_team *)self)->mutex);
}

static void unlock(void *self)
{
    (void)pthread_mutex_unlock(&((sxv_team *)self)->mutex);
}

void sxv_team_init(sxv_team *team, uint32_t threads)
{
    uint32_t wanted = sxr_pool_usable(threads);
    team->team = (sx_team){.self = team,
                           .threads = wanted < SXV_TEAM_THREADS_MAX ? wanted : SXV_TEAM_THREADS_MAX,
                           .run = run,
                           .lock = lock,
                           .unlock = unlock};
    (void)pthread_mutex_init(&team->mutex, NULL);
}

void sxv_team_fini(sxv_team *team)
{
    (void)pthread_mutex_destroy(&team->mutex);
}

void sxv_keep_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}
