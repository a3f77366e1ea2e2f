/* bench_ptx.c - the interpreter of PTX: instructions of threads a second of processor time, by kernel; all that it
 * looks for is looked for. And the assembler of this machine, where there is one: processor time by kernel of a
 * network. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/assemble/assemble.h"
#include "client/source.h"
#include "core/core.h"
#include "core/simt/run.h"
#include "tests/bench/bench.h"
#include "tests/bench/networks.h"

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

/* ---- the assembler ---- */

#define ASSEMBLED_CASE "assemble-encoder-h200"
#define TEXTS_MAX 4096u

/* Milliseconds of processor time of each text, and whether there are spills. */
typedef struct {
    double ms[TEXTS_MAX];
    uint32_t count, spills;
} assembled;

static sx_code assemble(void *self, sx_ctx *cx, sx_span text, const char *target, sx_span *code)
{
    assembled *a = self;
    const sxa_options any = {.with = SXA_ANY};
    sxa_result result;
    double start = processor_seconds();
    SX_TRY(sxa_assemble(cx, text, target, &any, &result));
    if (a->count < TEXTS_MAX) {
        a->ms[a->count++] = (processor_seconds() - start) * 1e3;
    }
    for (uint32_t k = 0; k < result.record->kernel_count; k++) {
        a->spills += result.record->kernel[k].spill_count;
    }
    *code = result.cubin;
    return SX_OK;
}

/* Each round compiles the network, without verification. */
static sx_code assemble_network(sx_ctx *cx, const sx_bench_options *options, assembled *a)
{
    sx_buf text;
    sx_code code = SX_OK;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    code = sx_bench_network_text(cx, sx_bench_network_find("encoder"), &text);
    for (uint32_t r = 0; code == SX_OK && r < options->rounds; r++) {
        const sx_assembler assembler = {.self = a, .assemble = assemble};
        sx_binding batch = {SX_SPAN_LITERAL("batch"), 1};
        sx_core_request request = {.ir = sx_buf_span(&text),
                                   .target = SX_SPAN_LITERAL("h200"),
                                   .binding = &batch,
                                   .binding_count = 1,
                                   .assembler = SX_SPAN_LITERAL("any"),
                                   .assemble = &assembler};
        sx_image image;
        sx_image_init(&image);
        cx->stage_count = 0;
        code = sx_core_compile(cx, &request, &image);
        sx_image_fini(&image);
    }
    sx_buf_fini(&text);
    return code;
}

static sx_code measure_assembler(const sx_bench_options *options)
{
    static assembled a;
    sx_ctx cx;
    double sum = 0, most = 0;
    sx_ctx_init(&cx, (size_t)8 << 30);
    cx.fuel = SX_FUEL_DEFAULT;
    sx_code code = assemble_network(&cx, options, &a);
    for (uint32_t i = 0; i < a.count; i++) {
        sum += a.ms[i];
        most = a.ms[i] > most ? a.ms[i] : most;
    }
    if (code == SX_OK && a.count > 0) {
        uint32_t rounds = options->rounds > 0 ? options->rounds : 1;
        const sx_bench_row row[] = {
            {"ptx", ASSEMBLED_CASE, "kernels", a.count / rounds, "", NULL, 0},
            {"ptx", ASSEMBLED_CASE, "assembling all", sum / rounds, "ms", NULL, 0},
            {"ptx", ASSEMBLED_CASE, "assembling, slowest kernel", most, "ms", NULL, 0},
            {"ptx", ASSEMBLED_CASE, "assembling, median kernel", sx_bench_median(a.ms, a.count),
             "ms", NULL, 0},
            {"ptx", ASSEMBLED_CASE, "spills", a.spills, "", NULL, 0}};
        for (uint32_t i = 0; i < SX_COUNT(row); i++) {
            sx_bench_put(options, &row[i]);
        }
    }
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench ptx: %s\n", cx.error.text);
    }
    sx_ctx_fini(&cx);
    return code == SX_ABSENT ? SX_OK : code; /* no toolkit: said, and no failure */
}

/* Is the device among those asked for, or the one that stands for all where none is? */
static bool asks(const sx_bench_options *options, const char *name)
{
    const char *list = options->target;
    if (list == NULL) {
        return options->list || options->case_name != NULL || strcmp(name, "h100") == 0;
    }
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',' ? 1 : 0;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

int sx_bench_each_gpu(const sx_bench_options *options, const char *prefix,
                      int (*run)(const sx_bench_options *options, const char *label,
                                 const sx_device *device))
{
    int status = 0;
    for (uint32_t d = 0; d < sx_device_count() && status == 0; d++) {
        const sx_device *device = sx_device_at(d);
        char label[64];
        (void)snprintf(label, sizeof(label), "%s-%s", prefix, device->name);
        if (device->block_threads > 0 && asks(options, device->name) &&
            sx_bench_wants(options, label)) {
            status = run(options, label, device);
        }
    }
    return status;
}

int sx_bench_ptx(const sx_bench_options *options)
{
    if (sx_bench_wants(options, ASSEMBLED_CASE)) {
        sx_code code = measure_assembler(options);
        if (code != SX_OK) {
            return sx_code_exit(code);
        }
    }
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
    int status = sx_bench_skinny(options);
    status = status == 0 ? sx_bench_exported(options) : status;
    status = status == 0 ? sx_bench_select(options) : status;
    return status != 0 ? status : sx_bench_suite(options);
}
