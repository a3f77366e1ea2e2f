/* bench_ptx.c - the interpreter of PTX: instructions of threads a second of processor time, by kernel. All that it
 * looks for is looked for. */
#include <stdio.h>
#include <time.h>

#include "client/source.h"
#include "core/simt/run.h"
#include "tests/bench/bench.h"

#define KERNELS SX_SOURCE_DIR "/tests/data/ptx/kernels.ptx"
#define BUFFER_BYTES ((size_t)256 << 10)
#define EXTENT 128 /* of the matrices */

typedef struct {
    const char *name, *kernel;
    sx_ptx_dim grid, block;
    uint32_t number[3], number_count;
} kernel_case;

static const kernel_case cases[] = {
    {"add", "vector_add", {256, 1, 1}, {256, 1, 1}, {65536}, 1},
    {"matmul-shared", "matmul", {8, 8, 1}, {16, 16, 1}, {EXTENT, EXTENT, EXTENT}, 3},
    {"matmul-async", "matmul_async", {8, 8, 1}, {16, 16, 1}, {EXTENT, EXTENT}, 2},
    {"matmul-mma", "matmul_mma", {16, 8, 1}, {32, 1, 1}, {EXTENT, EXTENT}, 2},
};

static double processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static sx_code run_once(sx_ctx *cx, const sx_ptx_module *module, const kernel_case *c, double *rate)
{
    sx_ptx_region region[3];
    sx_ptx_argument argument[6];
    sx_ptx_outcome outcome;
    for (uint32_t i = 0; i < SX_COUNT(region); i++) {
        region[i] = (sx_ptx_region){.name = "buffer",
                                    .bytes = sx_alloc(cx, BUFFER_BYTES),
                                    .size = BUFFER_BYTES,
                                    .writable = i == 2,
                                    .initialised = i < 2};
        argument[i] = (sx_ptx_argument){.region = 1 + i};
        SX_TRY(cx->error.code);
    }
    for (uint32_t i = 0; i < c->number_count; i++) {
        argument[3 + i] =
            (sx_ptx_argument){.value = {(const uint8_t *)&c->number[i], sizeof(c->number[i])}};
    }
    sx_ptx_launch launch = {.module = module,
                            .kernel = c->kernel,
                            .grid = c->grid,
                            .block = c->block,
                            .region = region,
                            .region_count = SX_COUNT(region),
                            .argument = argument,
                            .argument_count = (uint32_t)SX_COUNT(region) + c->number_count};
    double start = processor_seconds();
    SX_TRY(sx_ptx_run(cx, &launch, &outcome));
    *rate = (double)outcome.statistics.thread_insns / (processor_seconds() - start) / 1e6;
    return SX_OK;
}

static sx_code measure(sx_ctx *cx, const sx_bench_options *options, const kernel_case *c)
{
    sx_ptx_module *module;
    sx_buf text;
    double *rate = SX_NEW_ARRAY(cx, double, options->rounds);
    sx_buf_init(&text, (size_t)1 << 22);
    sx_code code = rate == NULL ? cx->error.code : sxc_read_text(cx, KERNELS, &text);
    code = code == SX_OK ? sx_ptx_parse(cx, sx_buf_span(&text), &module) : code;
    sx_buf_fini(&text);
    SX_TRY(code);
    for (uint32_t r = 0; r < options->rounds; r++) {
        SX_TRY(run_once(cx, module, c, &rate[r]));
    }
    sx_bench_put(options, &(sx_bench_row){"ptx", c->name, "thread instructions",
                                          sx_bench_median(rate, options->rounds), "M/s", NULL, 0});
    return SX_OK;
}

int sx_bench_ptx(const sx_bench_options *options)
{
    for (uint32_t i = 0; i < SX_COUNT(cases); i++) {
        if (!sx_bench_wants(options, cases[i].name)) {
            continue;
        }
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        sx_code code = measure(&cx, options, &cases[i]);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench ptx: %s\n", cx.error.text);
        }
        sx_ctx_fini(&cx);
        if (code != SX_OK) {
            return sx_code_exit(code);
        }
    }
    return 0;
}
