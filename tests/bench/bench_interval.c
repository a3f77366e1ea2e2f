/* bench_interval.c - one module for an interval of a symbol beside those for single values, in turns: each value is one
 * row, so that blocks of rows are not full and their numbers come at run time. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "core/core.h"
#include "tests/bench/run.h"
#include "tests/lib/compiled.h"

#define ROUNDS_DEFAULT 15
#define ROUNDS_MAX 1000
#define LOW 1
#define HIGH 512

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
static const int64_t value[] = {1, 5, 17, 33, 63, 100, 200, 333, 512};
#define VALUES ((uint32_t)(sizeof(value) / sizeof(*value)))

/* The module for one value, or (0) for the interval. */
static sx_code compile(sx_ctx *cx, int64_t batch, sx_buf *bytes)
{
    const sx_interval interval = {.name = SX_SPAN_LITERAL("batch"), .low = LOW, .high = HIGH};
    const sx_binding binding = {.name = SX_SPAN_LITERAL("batch"), .value = batch};
    const sx_machine *here = sxr_cpu_machine();
    const sx_core_request request = {.ir = sx_span_of(text),
                                     .target = sx_span_of(here != NULL ? here->name : ""),
                                     .binding = &binding,
                                     .binding_count = batch > 0 ? 1 : 0,
                                     .interval = &interval,
                                     .interval_count = batch > 0 ? 0 : 1};
    sx_image image;
    cx->stage_count = 0;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK ? sx_image_encode(cx, &image, bytes) : code;
    sx_image_fini(&image);
    return code;
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

/* One value: both programs in turns. */
static sx_code measure(sx_ctx *cx, const sx_bench_options *options, sxr_program *whole,
                       void *const *memory, int64_t batch, double *ratio)
{
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    uint32_t rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT;
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    sxr_program *alone = NULL;
    void **own = NULL;
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 28);
    sx_code code = compile(cx, batch, &bytes);
    code =
        code == SX_OK ? open_module(cx, sx_buf_span(&bytes), options->threads, &alone, &own) : code;
    code = code == SX_OK ? warm(cx, alone, own) : code;
    code = code == SX_OK ? sxr_set_extent(cx, whole, SX_SPAN_LITERAL("batch"), batch) : code;
    code = code == SX_OK ? warm(cx, whole, memory) : code;
    for (uint32_t r = 0; code == SX_OK && r < rounds; r++) {
        ours[r] = sx_bench_least_ns(cx, whole);
        theirs[r] = sx_bench_least_ns(cx, alone);
    }
    if (code == SX_OK) {
        char metric[32];
        (void)snprintf(metric, sizeof(metric), "batch %lld", (long long)batch);
        double mine = sx_bench_median(ours, rounds), other = sx_bench_median(theirs, rounds);
        const sx_bench_row row = {.bench = "interval",
                                  .case_name = "rows",
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

int sx_bench_interval(const sx_bench_options *options)
{
    double ratio[VALUES];
    void **memory = NULL;
    sxr_program *whole = NULL;
    sx_ctx cx;
    sx_buf bytes;
    if (!sx_bench_wants(options, "rows")) {
        return 0;
    }
    sx_ctx_init(&cx, (size_t)2 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_buf_init(&bytes, (size_t)1 << 28);
    sx_code code = compile(&cx, 0, &bytes);
    code = code == SX_OK ? open_module(&cx, sx_buf_span(&bytes), options->threads, &whole, &memory)
                         : code;
    for (uint32_t k = 0; code == SX_OK && k < VALUES; k++) {
        code = measure(&cx, options, whole, memory, value[k], &ratio[k]);
    }
    if (code == SX_OK) {
        const sx_bench_row row = {.bench = "interval",
                                  .case_name = "rows",
                                  .metric = "median of the ratios",
                                  .value = sx_bench_median(ratio, VALUES),
                                  .unit = "1"};
        sx_bench_put(options, &row);
    } else {
        (void)fprintf(stderr, "symplex-bench interval: %s\n", cx.error.text);
    }
    sxr_close(whole);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    return code == SX_OK ? 0 : sx_code_exit(code);
}
