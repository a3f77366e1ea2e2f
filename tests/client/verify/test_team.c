/* Threads for the compiler: every task once, the lock held by one at a time; and memory that a process keeps. */
#include "tests/lib/test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "client/verify/team.h"

#define TASKS 1000u

typedef struct {
    const sx_team *team;
    _Atomic uint32_t runs[TASKS];
    uint64_t sum; /* under the lock */
} work;

static void count_task(void *of, uint32_t index)
{
    work *w = of;
    w->runs[index]++;
    for (uint32_t i = 0; i < 100; i++) {
        w->team->lock(w->team->self);
        w->sum++;
        w->team->unlock(w->team->self);
    }
}

START_TEST(test_every_task_once)
{
    static const uint32_t threads[] = {0, 1, 2, 4, 1000};
    static const uint32_t counts[] = {0, 1, 3, TASKS};
    for (uint32_t t = 0; t < SX_COUNT(threads); t++) {
        sxv_team team;
        sxv_team_init(&team, threads[t]);
        ck_assert_uint_ge(team.team.threads, 1);
        ck_assert_uint_le(team.team.threads, SXV_TEAM_THREADS_MAX);
        for (uint32_t c = 0; c < SX_COUNT(counts); c++) {
            static work w;
            memset(&w, 0, sizeof(w));
            w.team = &team.team;
            team.team.run(team.team.self, count_task, &w, counts[c]);
            for (uint32_t i = 0; i < TASKS; i++) {
                ck_assert_uint_eq(w.runs[i], i < counts[c] ? 1 : 0);
            }
            ck_assert_uint_eq(w.sum, (uint64_t)counts[c] * 100);
        }
        sxv_team_fini(&team);
    }
}
END_TEST

#define BLOCK_BYTES ((size_t)8 << 20)

static long touch_pages(void)
{
    struct rusage before, after;
    (void)getrusage(RUSAGE_SELF, &before);
    char *block = malloc(BLOCK_BYTES);
    ck_assert(block != NULL);
    for (size_t i = 0; i < BLOCK_BYTES; i += 4096) {
        ((volatile char *)block)[i] = 1;
    }
    free(block);
    (void)getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
}

/* A block that was freed serves again without a new page from the system. */
START_TEST(test_memory_is_kept)
{
    if (SX_SANITIZED) {
        return; /* the allocator is another */
    }
    sxv_keep_memory();
    (void)touch_pages();
    ck_assert_int_lt(touch_pages(), 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client.verify.team");
    TCase *cases = tcase_create("team");
    tcase_add_test(cases, test_every_task_once);
    tcase_add_test(cases, test_memory_is_kept);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
