/* bench_extract.c - the public extraction collection: cost, lower bound, proof and time of every file, beside
 * the best known cost and that of the collection's greedy extractor; and the tree optimum of all files
 * together. Seconds, and the limit of 10 s a file, are processor time of one thread; reading the files is not counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/bench.h"
#include "tests/lib/gym.h"

#define TREE_ROUNDS 5u
#define SECONDS_MAX 10.0

typedef struct {
    double tree_seconds, seconds;
    sx_xt_answer answer;
} figures;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool is_expired(void *self)
{
    return cpu_ns() >= *(const uint64_t *)self;
}

static sx_code measure(sx_ctx *cx, const sx_gym_row *row, figures *out)
{
    sx_buf text;
    sxc_egraph g;
    sx_code code = sx_gym_load(cx, row->file, &text, &g);
    double sample[TREE_ROUNDS];
    for (uint32_t i = 0; i < TREE_ROUNDS && code == SX_OK; i++) {
        sx_xt_tree tree;
        uint64_t start = cpu_ns();
        code = sx_xt_tree_run(cx, &g.problem, &tree);
        sample[i] = (double)(cpu_ns() - start) / 1e9;
    }
    if (code == SX_OK) {
        uint64_t start = cpu_ns();
        uint64_t end = start + (uint64_t)(SECONDS_MAX * 1e9);
        sx_xt_options options = {.fuel = UINT64_MAX, .expired = is_expired, .expired_self = &end};
        out->tree_seconds = sx_bench_median(sample, TREE_ROUNDS);
        code = sx_xt_solve(cx, &g.problem, &options, &out->answer);
        out->seconds = (double)(cpu_ns() - start) / 1e9;
    }
    sx_buf_fini(&text);
    return code;
}

static void put_file(const sx_bench_options *options, const sx_gym_row *row, const figures *f)
{
    const sx_xt_answer *a = &f->answer;
    if (!options->json) {
        printf("| %s | %u | %u | %.10g | %.10g | %s | %.3f | %.10g | %.10g |\n", row->file,
               row->nodes, row->classes, a->dag_cost, a->lower_bound, a->proven ? "yes" : "no",
               f->seconds, row->best_cost, row->greedy_cost);
        (void)fflush(stdout);
        return;
    }
    const sx_bench_row rows[] = {
        {"extract", row->file, "dag_cost", a->dag_cost, "cost", "best known", row->best_cost},
        {"extract", row->file, "lower_bound", a->lower_bound, "cost", NULL, 0},
        {"extract", row->file, "proven", a->proven ? 1 : 0, "", NULL, 0},
        {"extract", row->file, "seconds", f->seconds, "s", NULL, 0},
    };
    for (uint32_t i = 0; i < SX_COUNT(rows); i++) {
        sx_bench_put(options, &rows[i]);
    }
}

int sx_bench_extract(const sx_bench_options *options)
{
    sx_gym_row row[SX_GYM_FILES];
    sx_ctx cx;
    double tree_seconds = 0;
    double seconds = 0;
    uint32_t proven = 0;
    uint32_t count = 0;
    sx_ctx_init(&cx, (size_t)2 << 30);
    sx_code code = sx_gym_rows(&cx, row);
    if (!options->json && !options->list) {
        printf(
            "| file | nodes | classes | cost | lower bound | proven | s | best known | greedy of "
            "the collection |\n|---|---|---|---|---|---|---|---|---|\n");
    }
    for (uint32_t i = 0; i < SX_GYM_FILES && code == SX_OK; i++) {
        figures f;
        sx_ctx one;
        if (!sx_bench_wants(options, row[i].file)) {
            continue;
        }
        sx_ctx_init(&one, (size_t)2 << 30);
        code = measure(&one, &row[i], &f);
        if (code == SX_OK) {
            put_file(options, &row[i], &f);
            tree_seconds += f.tree_seconds;
            seconds += f.seconds;
            proven += f.answer.proven ? 1 : 0;
            count++;
        } else {
            (void)fprintf(stderr, "symplex-bench: %s: %s\n", row[i].file, one.error.text);
        }
        sx_ctx_fini(&one);
    }
    sx_ctx_fini(&cx);
    if (options->list) {
        return sx_code_exit(code);
    }
    const sx_bench_row rows[] = {
        {"extract", "all files", "files", count, "", NULL, 0},
        {"extract", "all files", "proven", proven, "", NULL, 0},
        {"extract", "all files", "seconds", seconds, "s", NULL, 0},
        {"extract", "all files", "tree_seconds", tree_seconds, "s", NULL, 0},
    };
    for (uint32_t i = 0; i < SX_COUNT(rows) && code == SX_OK; i++) {
        sx_bench_put(options, &rows[i]);
    }
    return code == SX_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
