/* Level 1 on transformers of any depth: e-nodes, classes, processor time, bytes and why it stopped, equal
 * layers rolled or not. Rows "transformer-24" and "transformer-24-flat": hidden 768, 12 heads of 64, ffn 3072,
 * 128 tokens, causal, symbolic batch, full table of rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/optimize/optimize.h"
#include "tests/bench/bench.h"
#include "tests/lib/gen_transformer.h"

#define ROUNDS_MAX 64u

static double processor_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct {
    sx_optimize_report report;
    double seconds;
    size_t bytes;
} sample;

static sx_code measure(sx_ctx *cx, uint32_t layers, bool whole, sample *s)
{
    sx_transformer shape = sx_transformer_default(layers);
    sx_optimize_options options = sx_optimize_defaults();
    const sx_device *device;
    sx_graph *graph;
    sx_graph *better;
    shape.hidden = 768;
    shape.heads = 12;
    shape.ffn = 3072;
    shape.seq = 128;
    shape.vocab = 32000;
    options.whole = whole;
    SX_TRY(sx_device_find(cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
    SX_TRY(sx_transformer_make(cx, &shape, &graph));
    size_t before = cx->arena.used_bytes;
    double start = processor_s();
    SX_TRY(sx_optimize(cx, graph, device, &options, &better, &s->report));
    s->seconds = processor_s() - start;
    s->bytes = cx->arena.used_bytes - before;
    return SX_OK;
}

static void put(const sx_bench_options *options, const char *case_name, const char *metric,
                double value, const char *unit)
{
    sx_bench_put(options, &(sx_bench_row){.bench = "egraph",
                                          .case_name = case_name,
                                          .metric = metric,
                                          .value = value,
                                          .unit = unit});
}

static void put_sample(const sx_bench_options *options, const char *case_name, const sample *s)
{
    const sx_optimize_report *report = &s->report;
    char metric[96];
    put(options, case_name, "nodes", report->nodes, "count");
    put(options, case_name, "classes", report->classes, "count");
    put(options, case_name, "parts", report->part_count, "count");
    put(options, case_name, "fuel", (double)report->fuel, "steps");
    put(options, case_name, "memory", (double)s->bytes, "bytes");
    put(options, case_name, "gain", report->cost_before_ns / report->cost_after_ns, "ratio");
    (void)snprintf(metric, sizeof(metric), "stop: %s", sx_eg_stop_name(report->stop));
    put(options, case_name, metric, report->rounds, "rounds");
    for (uint32_t r = 0; options->json && r < SX_RULE_COUNT; r++) {
        (void)snprintf(metric, sizeof(metric), "matches: %s", sx_rule_name(r));
        put(options, case_name, metric, (double)report->match_count[r], "count");
    }
}

static int run_case(const sx_bench_options *options, const char *case_name, uint32_t layers,
                    bool whole)
{
    double seconds[ROUNDS_MAX];
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    rounds = rounds == 0 ? 1 : rounds;
    for (uint32_t i = 0; i < rounds; i++) {
        sx_ctx cx;
        sample s;
        sx_ctx_init(&cx, (size_t)8 << 30);
        sx_code code = measure(&cx, layers, whole, &s);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench: transformer %s: %s\n", case_name, cx.error.text);
            sx_ctx_fini(&cx);
            return sx_code_exit(code);
        }
        seconds[i] = s.seconds;
        if (i + 1 == rounds) {
            put_sample(options, case_name, &s);
        }
        sx_ctx_fini(&cx);
    }
    put(options, case_name, "processor", sx_bench_median(seconds, rounds), "s");
    return 0;
}

int sx_bench_transformer(const sx_bench_options *options)
{
    static const uint32_t usual[] = {1, 4, 24, 32, 64};
    uint32_t count = options->layers > 0 ? 1 : SX_COUNT(usual);
    int status = 0;
    for (uint32_t i = 0; i < 2 * count && status == 0; i++) {
        char case_name[48];
        bool whole = i % 2 == 1;
        uint32_t layers = options->layers > 0 ? options->layers : usual[i / 2];
        if (layers > SX_TRANSFORMER_LAYERS_MAX) {
            (void)fprintf(stderr, "symplex-bench: %u layers, at most %u\n", layers,
                          SX_TRANSFORMER_LAYERS_MAX);
            return 2;
        }
        (void)snprintf(case_name, sizeof(case_name), "transformer-%u%s", layers,
                       whole ? "-flat" : "");
        status = run_case(options, case_name, layers, whole);
    }
    return status;
}
