/* bench_legality.c - what the proof of an emitted kernel costs, kernel by kernel; isl on the template of the
 * schedule beside it. Times are processor time of the thread: they do not depend on what else runs. The goals
 * stand beside the figures they are for: half of the kernels, 99 of 100, and attention, whose kernels are not
 * among the 99. */
#include <stdio.h>
#include <time.h>

#include "core/judge/judge.h"
#include "core/poly/poly.h"
#include "core/search/search.h"
#include "core/target/target.h"
#include "tests/bench/bench.h"
#include "tests/bench/networks.h"
#include "tests/lib/net.h"
#include "tests/lib/unit.h"

#define KERNELS_MAX 1024
#define GOAL_MEDIAN_US 300
#define GOAL_MOST_US 1000
#define GOAL_ATTENTION_US 3000
#define GOAL_BLOCKS_MEDIAN_US 1000
#define GOAL_BLOCKS_MOST_US 3000
static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

typedef struct {
    const char *target;
    sx_judge *judge;
    uint32_t rounds;
    bool blocks; /* the programs of blocks of contractions, and nothing else */
    double us[KERNELS_MAX], isl_us[KERNELS_MAX];
    double plain_us[KERNELS_MAX]; /* of the kernels that are not attention */
    double attention_us;          /* the largest */
    double first_us; /* of blocks: the largest where the ring may be one not yet known */
    uint32_t count, plain_count, proven;
} figures;

static sx_code visit(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     void *self)
{
    figures *f = self;
    double us[64];
    const sx_device *device;
    sx_search_result search;
    sx_kernel *kernel;
    sx_verdict verdict = {.proven = false};
    sx_poly_verdict order;
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL || f->count == KERNELS_MAX) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, fused, input, input_count, a));
    SX_TRY(sx_device_find(cx, sx_span_of(f->target), &device));
    SX_TRY(sx_search_kernel(cx, a, device, true, SX_SEARCH_KEEP, &search));
    const sx_schedule *schedule = &search.best[0].schedule;
    sx_judge_facts facts = sx_judge_facts_of(schedule, a->kind);
    SX_TRY(sx_lower_fused(cx, sx_test_unit(schedule), "bench", a, schedule, &kernel));
    uint32_t rounds = f->rounds < 64 ? f->rounds : 64;
    for (uint32_t r = 0; r < rounds; r++) {
        double start = now_us();
        SX_TRY(sx_judge_kernel(f->judge, fused, input, input_count, &facts, kernel, &verdict));
        us[r] = now_us() - start;
    }
    double start = now_us();
    SX_TRY(sx_poly_check_fused(cx, a, schedule, &order));
    f->isl_us[f->count] = now_us() - start;
    double median = sx_bench_median(us, rounds);
    f->us[f->count++] = median;
    f->proven += verdict.proven;
    if (a->kind == SX_KERNEL_ONLINE) {
        f->attention_us = median > f->attention_us ? median : f->attention_us;
    } else {
        f->plain_us[f->plain_count++] = median;
    }
    return SX_OK;
}

/* Blocks of threads for a contraction, where the search has some and the lowering follows. Of others nothing is
 * counted. */
static sx_code visit_blocks(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                            uint32_t input_count, void *self)
{
    figures *f = self;
    double us[64];
    const sx_device *device;
    sx_search_result search;
    sx_kernel *kernel;
    sx_verdict verdict = {.proven = false};
    sx_judge_facts facts = {0};
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL || f->count == KERNELS_MAX) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, fused, input, input_count, a));
    if (a->kind != SX_KERNEL_DOT) {
        return SX_OK;
    }
    SX_TRY(sx_device_find(cx, sx_span_of(f->target), &device));
    const sx_target *target = sx_target_find(NULL, device->target);
    SX_TRY(sx_search_block(cx, a, device, sx_search_matrix(a, target->matrix, target->matrix_count),
                           SX_SIDES_PLAIN, 1, &search));
    if (search.best_count == 0) {
        return SX_OK;
    }
    const sx_lowering what = {.kind = SX_LOWER_FUSED,
                              .name = "bench",
                              .schedule = &search.best[0].schedule,
                              .analysis = a};
    sx_code code = sx_target_lower(cx, target, &what, &kernel);
    if (code == SX_UNIMPLEMENTED || code == SX_LIMIT) {
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    SX_TRY(code);
    uint32_t rounds = f->rounds < 64 ? f->rounds : 64;
    for (uint32_t r = 0; r < rounds; r++) {
        double start = now_us();
        SX_TRY(sx_judge_kernel(f->judge, fused, input, input_count, &facts, kernel, &verdict));
        us[r] = now_us() - start;
    }
    f->first_us = us[0] > f->first_us ? us[0] : f->first_us;
    f->us[f->count++] = sx_bench_median(us, rounds);
    f->proven += verdict.proven;
    return SX_OK;
}

static void put(const sx_bench_options *options, const char *label, const char *metric, double us,
                double goal)
{
    sx_bench_put(options,
                 &(sx_bench_row){"legality", label, metric, us, "us", "wanted, at most", goal});
}

static void put_figures(const sx_bench_options *options, const char *label, figures *f)
{
    sx_bench_put(options, &(sx_bench_row){"legality", label, "kernels", f->count, "", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "proven", f->proven, "", NULL, 0});
    put(options, label, "median", sx_bench_median(f->us, f->count), GOAL_MEDIAN_US);
    if (f->plain_count > 0) { /* sorts */
        (void)sx_bench_median(f->plain_us, f->plain_count);
        put(options, label, "99 of 100, without attention",
            f->plain_us[(f->plain_count * 99 + 99) / 100 - 1], GOAL_MOST_US);
        sx_bench_put(options, &(sx_bench_row){"legality", label, "largest, without attention",
                                              f->plain_us[f->plain_count - 1], "us", NULL, 0});
    }
    if (f->plain_count < f->count) {
        put(options, label, "attention, largest", f->attention_us, GOAL_ATTENTION_US);
    }
    sx_bench_put(options, &(sx_bench_row){"legality", label, "isl on the schedule, median",
                                          sx_bench_median(f->isl_us, f->count), "us", NULL, 0});
}

static void put_blocks(const sx_bench_options *options, const char *label, figures *f)
{
    sx_bench_put(options, &(sx_bench_row){"legality", label, "kernels", f->count, "", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "proven", f->proven, "", NULL, 0});
    if (f->count > 0) { /* sorts */
        put(options, label, "median", sx_bench_median(f->us, f->count), GOAL_BLOCKS_MEDIAN_US);
        put(options, label, "99 of 100", f->us[(f->count * 99 + 99) / 100 - 1],
            GOAL_BLOCKS_MOST_US);
        put(options, label, "first round, largest", f->first_us, GOAL_BLOCKS_MOST_US);
    }
}

/* Each network in a context of its own. */
static int visit_network(const char *name, figures *f)
{
    sx_ctx cx;
    sx_buf text;
    sx_ctx_init(&cx, (size_t)8 << 30);
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    cx.fuel = UINT64_MAX;
    sx_code code = sx_judge_make(&cx, &f->judge);
    code = code == SX_OK ? sx_bench_network_text(&cx, sx_bench_network_find(name), &text) : code;
    code = code == SX_OK ? sx_test_each_fused_of(&cx, sx_buf_span(&text), f->target, 8,
                                                 f->blocks ? visit_blocks : visit, f)
                         : code;
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: %s: %s\n", name, cx.error.text);
    }
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
    return code == SX_OK ? 0 : sx_code_exit(code);
}

/* The kernels of the networks, as one set. */
static int measure(const sx_bench_options *options, const char *name, const char *const *networks,
                   uint32_t network_count, const char *target, bool blocks)
{
    char label[64];
    int status = 0;
    (void)snprintf(label, sizeof(label), "%s-%s", name, target);
    if (!sx_bench_wants(options, label)) {
        return 0;
    }
    figures f = {.target = target, .rounds = options->rounds, .blocks = blocks};
    for (uint32_t n = 0; n < network_count && status == 0; n++) {
        status = visit_network(networks[n], &f);
    }
    if (status == 0) {
        (blocks ? put_blocks : put_figures)(options, label, &f);
    }
    return status;
}

int sx_bench_legality(const sx_bench_options *options)
{
    static const char *const networks[] = {"mlp",      "encoder",  "cnn",   "encoder12",
                                           "resnet50", "vit_b_16", "gpt2_4"};
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    int status = 0;
    for (uint32_t n = 0; n <= SX_COUNT(networks); n++) {
        bool all = n == SX_COUNT(networks);
        for (uint32_t t = 0; status == 0 && t < SX_COUNT(targets); t++) {
            status = all ? measure(options, "all", networks, SX_COUNT(networks), targets[t], false)
                         : measure(options, networks[n], &networks[n], 1, targets[t], false);
        }
    }
    return status == 0 ? measure(options, "blocks", networks, SX_COUNT(networks), "h100", true)
                       : status;
}
