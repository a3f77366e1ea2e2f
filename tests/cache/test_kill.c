/* kill -9 of a process that writes: what it was told is committed is there, and nothing served is wrong. */
#include "tests/cache/fixture.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 40

static uint8_t *payload(uint32_t i, size_t *size)
{
    sx_rng rng = {i + 1};
    *size = sx_rng_below(&rng, i % 10 == 0 ? 200000 : 9000);
    return make_bytes(&rng, *size, i % 2 == 0);
}

/* The child: puts first, first + 1, ... and writes each number to `out` once it is committed. Never returns. */
static void write_until_killed(const char *dir, uint32_t first, int out)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_cache *cache = NULL;
    if (sx_cache_open(&cx, &(sx_cache_options){.dir = dir, .ram_limit = 100000}, &cache) != SX_OK) {
        _exit(3);
    }
    for (uint32_t i = first;; i++) {
        size_t size;
        uint8_t *bytes = payload(i, &size);
        sx_cache_item item = {.key = key_of(i, 0), .kind = 2, .cost_us = i, .bytes = {bytes, size}};
        if (sx_cache_put(&cx, cache, &item) != SX_OK) {
            _exit(4);
        }
        free(bytes);
        sx_key old = key_of(i / 2, 0);
        sx_blob *blob = NULL;
        if (sx_cache_get(cache, 0, &old, &blob, NULL) == SX_OK) {
            sx_blob_free(blob);
        }
        if (i % 3 == 0 && (sx_cache_flush(&cx, cache, SX_CACHE_COMMITTED) != SX_OK ||
                           write(out, &i, sizeof(i)) != (ssize_t)sizeof(i))) {
            _exit(5);
        }
    }
}

/* Lets the child run until `acks` commits were told and a little longer, kills it; the last number told. */
static uint32_t run_and_kill(const bench *b, uint32_t first, uint32_t acks, uint64_t extra_ns)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)close(ends[0]);
        write_until_killed(b->dir, first, ends[1]);
    }
    (void)close(ends[1]);
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < acks; i++) {
        ck_assert_int_eq(read(ends[0], &last, sizeof(last)), (ssize_t)sizeof(last));
    }
    struct timespec pause = {.tv_nsec = (long)extra_ns};
    (void)nanosleep(&pause, NULL);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status), "child ended by itself: status %d", status);
    while (read(ends[0], &last, sizeof(last)) == (ssize_t)sizeof(last)) {
    }
    (void)close(ends[0]);
    return last;
}

START_TEST(test_kill_9)
{
    bench b = bench_open(NULL);
    sx_cache_close(b.cache);
    sx_rng rng = {sx_test_seed()};
    uint32_t next = 0;
    uint64_t checked = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t acks = (uint32_t)sx_rng_below(&rng, 12); /* 0: maybe while it opens */
        uint32_t last = run_and_kill(&b, next, acks, sx_rng_below(&rng, 4000000));
        uint32_t committed = last == UINT32_MAX ? next : last + 1;
        bench_reopen(&b);
        for (uint32_t i = next; i < committed; i++) {
            sx_blob *blob = NULL;
            sx_key key = key_of(i, 0);
            ck_assert_msg(sx_cache_get(b.cache, 0, &key, &blob, NULL) == SX_OK,
                          "round %u: entry %u was committed and is gone", round, i);
            size_t size;
            uint8_t *bytes = payload(i, &size);
            ck_assert(sx_span_equal(sx_blob_span(blob), (sx_span){bytes, size}));
            free(bytes);
            sx_blob_free(blob);
            checked++;
        }
        next = committed;
        if (round % 8 == 7) {
            sx_cache_verification check = {.deep = true};
            ck_sx_ok(&b.cx, sx_cache_verify(&b.cx, b.cache, 0, &check));
            ck_assert_uint_eq(check.corrupt + check.orphans + check.damaged_pages, 0);
            ck_assert_uint_ge(check.ok, next);
        }
        sx_cache_stats stats;
        sx_cache_stats_of(b.cache, &stats);
        ck_assert_int_eq(stats.store, SX_STORE_OK);
        ck_assert_uint_eq(stats.corrupt + stats.errors, 0);
        sx_cache_close(b.cache);
    }
    bench_reopen(&b);
    for (uint32_t i = 0; i < next; i++) {
        ck_assert(has(&b, 0, key_of(i, 0)));
    }
    printf("kill: %d kills, %llu committed entries found\n", ROUNDS, (unsigned long long)checked);
    ck_assert_uint_gt(checked, 100);
    bench_close(&b);
}
END_TEST

/* The lock goes with the process. */
START_TEST(test_lock_is_free_after_kill)
{
    bench b = bench_open(NULL);
    sx_cache_close(b.cache);
    b.cache = NULL;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        write_until_killed(b.dir, 0, ends[1]);
    }
    uint32_t told;
    ck_assert_int_eq(read(ends[0], &told, sizeof(told)), (ssize_t)sizeof(told));
    char text[64];
    (void)snprintf(text, sizeof(text), "in use by process %ld", (long)child);
    ck_sx_fails(&b.cx, sx_cache_open(&b.cx, &b.options, &b.cache), SX_BUSY, text);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    (void)close(ends[0]);
    (void)close(ends[1]);
    bench_reopen(&b);
    bench_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kill");
    TCase *cases = tcase_create("kill");
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_kill_9);
    tcase_add_test(cases, test_lock_is_free_after_kill);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
