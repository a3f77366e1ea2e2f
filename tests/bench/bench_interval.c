/* bench_interval.c - one module for intervals of symbols beside those for single values, in turns. Each value of the
 * rows is one row, so that blocks of rows are not full and their numbers come at run time; the encoder has two symbols,
 * its batch and its positions, at pairs that are drawn. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "core/base/rng.h"
#include "core/core.h"
#include "tests/bench/run.h"
#include "tests/lib/compiled.h"
#include "tests/lib/intervals.h"

#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 1000
#define PAIRS 40u     /* of the encoder, */
#define PAIR_ROUNDS 5 /* which run for up to a second */
#define LONG_NS 2e7   /* what takes longer runs once in a round */
#define SYMBOLS 2u

static const char text[] =
    "sx 1\ngraph \"rows\" (batch in [1, 512]) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 256]\n"
    "%w = parameter {name = \"w\", weight = 1} : f32[256, 1024]\n"
    "%v = parameter {name = \"v\", weight = 1} : f32[1024, 256]\n"
    "%s = parameter {name = \"s\", weight = 1} : f32[256]\n"
    "%0 = rms_norm(%x, %s) {axis = 1, eps = 1e-06} : f32[batch, 256]\n"
    "%1 = dot_general(%0, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 1024]\n"
    "%2 = gelu(%1) : f32[batch, 1024]\n"
    "%3 = dot_general(%2, %v) {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 256]\n"
    "%4 = add(%x, %3) : f32[batch, 256]\n"
    "return %4 as \"y\"\n}\n";

static const int64_t batch[] = {1, 5, 17, 33, 63, 100, 200, 333, 512};
#define VALUES ((uint32_t)(sizeof(batch) / sizeof(*batch)))

/* A program, the intervals of its symbols, and the points at which both modules are measured. */
typedef struct {
    const char *name, *text;
    sx_interval interval[SYMBOLS];
    uint32_t symbols, points;
    int64_t value[PAIRS][SYMBOLS];
    uint32_t rounds;
} subject;

/* The module for one point, or (NULL) for the intervals. */
static sx_code compile(sx_ctx *cx, const subject *s, const int64_t *value, sx_buf *bytes)
{
    sx_binding binding[SYMBOLS];
    for (uint32_t k = 0; k < s->symbols; k++) {
        binding[k] = (sx_binding){s->interval[k].name, value != NULL ? value[k] : 0};
    }
    const sx_machine *here = sxr_cpu_machine();
    const sx_core_request request = {.ir = sx_span_of(s->text),
                                     .target = sx_span_of(here != NULL ? here->name : ""),
                                     .binding = binding,
                                     .binding_count = value != NULL ? s->symbols : 0,
                                     .interval = s->interval,
                                     .interval_count = value != NULL ? 0 : s->symbols};
    return sx_test_compile_request(cx, &request, bytes);
}

/* Opens a module with memory of the largest size for each tensor of its interface. Elements depend on names and
 * coordinates, so that all modules compute with the same ones. */
static sx_code open_module(sx_ctx *cx, sx_span bytes, uint32_t threads, sxr_program **program,
                           void ***memory)
{
    const sxr_options open = {.threads = threads};
    SX_TRY(sxr_open_bytes(cx, bytes, &open, program));
    const sx_module *module = sxr_module(*program);
    *memory = SX_NEW_ARRAY(cx, void *, module->tensor_count + 1);
    for (uint32_t t = 0; *memory != NULL && t < module->tensor_count; t++) {
        uint32_t place = module->tensor[t].place;
        if (place == SX_TENSOR_INPUT || place == SX_TENSOR_OUTPUT || place == SX_TENSOR_WEIGHT) {
            (*memory)[t] = sx_alloc(cx, (size_t)module->tensor[t].size);
            if ((*memory)[t] == NULL) {
                return cx->error.code;
            }
            sx_test_fill(module, t, SX_FILL_SMOOTH, (*memory)[t]);
        }
    }
    return cx->error.code;
}

/* Binds all memory, and runs the program once. */
static sx_code warm(sx_ctx *cx, sxr_program *program, void *const *memory)
{
    for (uint32_t t = 0; t < sxr_module(program)->tensor_count; t++) {
        if (memory[t] != NULL) {
            SX_TRY(sxr_bind(cx, program, t, memory[t], sxr_size(program, t)));
        }
    }
    return sxr_run(cx, program, NULL);
}

static double run_ns(sx_ctx *cx, sxr_program *program)
{
    uint64_t start = sx_bench_now_ns();
    return sxr_run(cx, program, NULL) == SX_OK ? (double)(sx_bench_now_ns() - start) : -1;
}

/* One point: both programs in turns. */
static sx_code measure(sx_ctx *cx, const sx_bench_options *options, const subject *s,
                       const int64_t *value, sxr_program *whole, void *const *memory, double *ratio)
{
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    uint32_t rounds = options->rounds > 0 ? options->rounds : s->rounds;
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    sxr_program *alone = NULL;
    void **own = NULL;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    sx_code code = compile(cx, s, value, &bytes);
    code =
        code == SX_OK ? open_module(cx, sx_buf_span(&bytes), options->threads, &alone, &own) : code;
    code = code == SX_OK ? warm(cx, alone, own) : code;
    char metric[80] = "";
    for (uint32_t k = 0; k < s->symbols; k++) {
        size_t end = strlen(metric);
        (void)snprintf(metric + end, sizeof(metric) - end, "%s%.*s %lld", k > 0 ? ", " : "",
                       (int)s->interval[k].name.len, (const char *)s->interval[k].name.ptr,
                       (long long)value[k]);
        code = code == SX_OK ? sxr_set_extent(cx, whole, s->interval[k].name, value[k]) : code;
    }
    code = code == SX_OK ? warm(cx, whole, memory) : code;
    double once = code == SX_OK ? run_ns(cx, whole) : 0;
    for (uint32_t r = 0; code == SX_OK && r < rounds; r++) {
        double (*run)(sx_ctx *, sxr_program *) = once > LONG_NS ? run_ns : sx_bench_least_ns;
        ours[r] = run(cx, whole);
        theirs[r] = run(cx, alone);
    }
    if (code == SX_OK) {
        double mine = sx_bench_median(ours, rounds), other = sx_bench_median(theirs, rounds);
        const sx_bench_row row = {.bench = "interval",
                                  .case_name = s->name,
                                  .metric = metric,
                                  .value = mine / 1e3,
                                  .unit = "us",
                                  .peer = "the module for this value",
                                  .peer_value = other / 1e3};
        sx_bench_put(options, &row);
        *ratio = mine / other;
    }
    sxr_close(alone);
    sx_buf_fini(&bytes);
    return code;
}

/* The point in an arena of its own. */
static sx_code measure_apart(sx_ctx *cx, const sx_bench_options *options, const subject *s,
                             uint32_t point, sxr_program *whole, void *const *memory, double *ratio)
{
    sx_arena outer = cx->arena;
    sx_arena_init(&cx->arena, outer.limit_bytes - outer.used_bytes);
    sx_code code = measure(cx, options, s, s->value[point], whole, memory, ratio);
    sx_arena_fini(&cx->arena);
    cx->arena = outer;
    return code;
}

static sx_code run_subject(sx_ctx *cx, const sx_bench_options *options, const subject *s)
{
    double ratio[PAIRS];
    void **memory = NULL;
    sxr_program *whole = NULL;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    sx_code code = compile(cx, s, NULL, &bytes);
    code = code == SX_OK ? open_module(cx, sx_buf_span(&bytes), options->threads, &whole, &memory)
                         : code;
    for (uint32_t k = 0; code == SX_OK && k < s->points; k++) {
        code = measure_apart(cx, options, s, k, whole, memory, &ratio[k]);
    }
    double most = 0;
    for (uint32_t k = 0; code == SX_OK && k < s->points; k++) {
        most = ratio[k] > most ? ratio[k] : most;
    }
    const sx_bench_row row[] = {{.bench = "interval",
                                 .case_name = s->name,
                                 .metric = "largest ratio",
                                 .value = most,
                                 .unit = "1"},
                                {.bench = "interval",
                                 .case_name = s->name,
                                 .metric = "median of the ratios",
                                 .value = code == SX_OK ? sx_bench_median(ratio, s->points) : 0,
                                 .unit = "1"}};
    for (uint32_t k = 0; code == SX_OK && k < SX_COUNT(row); k++) {
        sx_bench_put(options, &row[k]);
    }
    sxr_close(whole);
    sx_buf_fini(&bytes);
    return code;
}

int sx_bench_interval(const sx_bench_options *options)
{
    sx_code code = SX_OK;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)2 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
    if (sx_bench_wants(options, "rows")) {
        subject s = {.name = "rows",
                     .text = text,
                     .interval = {{.name = SX_SPAN_LITERAL("batch"), .low = 1, .high = 512}},
                     .symbols = 1,
                     .points = VALUES,
                     .rounds = ROUNDS_DEFAULT};
        for (uint32_t k = 0; k < VALUES; k++) {
            s.value[k][0] = batch[k];
        }
        code = run_subject(&cx, options, &s);
    }
    if (code == SX_OK && sx_bench_wants(options, "encoder")) {
        subject s = {.name = "encoder",
                     .interval = {{.name = SX_SPAN_LITERAL("batch"), .low = 1, .high = 64},
                                  {.name = SX_SPAN_LITERAL("seq"), .low = 1, .high = 512}},
                     .symbols = 2,
                     .points = PAIRS,
                     .rounds = PAIR_ROUNDS};
        sx_rng rng = {1};
        code = sx_test_encoder_text(&cx, &s.text);
        for (uint32_t k = 0; k < PAIRS; k++) {
            s.value[k][0] = 1 + (int64_t)sx_rng_below(&rng, 64);
            s.value[k][1] = 1 + (int64_t)sx_rng_below(&rng, 512);
        }
        code = code == SX_OK ? run_subject(&cx, options, &s) : code;
    }
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench interval: %s\n", cx.error.text);
    }
    sx_ctx_fini(&cx);
    return code == SX_OK ? 0 : sx_code_exit(code);
}
