/* bench_legality.c - what the proof of an emitted kernel costs, kernel by kernel; isl on the template of the
 * schedule beside it. Times are processor time of the thread: they do not depend on what else runs. */
#include <stdio.h>
#include <time.h>

#include "core/judge/judge.h"
#include "core/poly/poly.h"
#include "core/search/search.h"
#include "tests/bench/bench.h"
#include "tests/lib/net.h"
#include "tests/lib/unit.h"

#define KERNELS_MAX 256
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
    double us[KERNELS_MAX], isl_us[KERNELS_MAX];
    uint32_t count, proven;
} figures;

static sx_code visit(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     void *self)
{
    figures *f = self;
    double us[64], isl[64];
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
        start = now_us();
        SX_TRY(sx_poly_check_fused(cx, a, schedule, &order));
        isl[r] = now_us() - start;
    }
    f->us[f->count] = sx_bench_median(us, rounds);
    f->isl_us[f->count++] = sx_bench_median(isl, rounds);
    f->proven += verdict.proven;
    return SX_OK;
}

static int measure(const sx_bench_options *options, const char *model, const char *target)
{
    char label[64];
    (void)snprintf(label, sizeof(label), "%s-%s", model, target);
    if (!sx_bench_wants(options, label)) {
        return 0;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)2 << 30);
    cx.fuel = UINT64_MAX;
    figures f = {.target = target, .rounds = options->rounds};
    sx_code code = sx_judge_make(&cx, &f.judge);
    code = code == SX_OK ? sx_test_each_fused(&cx, model, target, 8, visit, &f) : code;
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: %s: %s\n", model, cx.error.text);
        return sx_code_exit(code);
    }
    double most = 0;
    for (uint32_t k = 0; k < f.count; k++) {
        most = f.us[k] > most ? f.us[k] : most;
    }
    sx_bench_put(options, &(sx_bench_row){"legality", label, "kernels", f.count, "", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "proven", f.proven, "", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "median",
                                          sx_bench_median(f.us, f.count), "us", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "largest", most, "us", NULL, 0});
    sx_bench_put(options, &(sx_bench_row){"legality", label, "isl on the schedule, median",
                                          sx_bench_median(f.isl_us, f.count), "us", NULL, 0});
    sx_ctx_fini(&cx);
    return 0;
}

int sx_bench_legality(const sx_bench_options *options)
{
    static const char *const models[] = {"mlp", "encoder", "cnn"};
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};
    int status = 0;
    for (uint32_t m = 0; m < SX_COUNT(models); m++) {
        for (uint32_t t = 0; status == 0 && t < SX_COUNT(targets); t++) {
            status = measure(options, models[m], targets[t]);
        }
    }
    return status;
}
