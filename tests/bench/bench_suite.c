/* bench_suite.c - `symplex-bench ptx --case suite-h100`: kernels for the shapes of tests/data/shapes on one GPU of the
 * table, without one. README.md has the columns. The program fails where a kernel spills, or where its predicted time
 * is below the floor of the shape (shapes.h), which shares nothing with the prices. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "client/assemble/assemble.h"
#include "client/file.h"
#include "core/core.h"
#include "core/kernel/online_pieces.h"
#include "core/search/search.h"
#include "tests/bench/bench.h"
#include "tests/bench/shapes.h"
#include "tests/lib/net.h"

#define SHAPES SX_SOURCE_DIR "/tests/data/shapes/gpu.txt"
#define ROUNDS_MAX 64u
/* Threads of a warp, all of which run what the programs of this compiler run. */
#define WARP 32.0
#define GOAL_SELECTION_US 20.0
/* What the interpreter is given of a kernel's memory at most. */
#define MEMORY_MAX ((int64_t)8 << 30)

typedef struct {
    const sx_bench_shape *shape;
    const sx_device *device;
    const sx_target *target;
    uint32_t rounds;
    const char *modules; /* NULL, or where the module is written to; then nothing is measured */
    /* Of the shape and of the program made for it. */
    double floor_ns, predicted_ns;
    /* Sums over the kernels; of one of them where there is one. */
    double selection_us, emission_ms, assembling_ms;
    double interpreted, interpreted_s; /* instructions of threads, seconds of processor time */
    uint32_t kernels, considered, assembled, spills;
    /* The most of all kernels. */
    uint32_t registers, threads;
    uint64_t shared_bytes;
    char plan[400]; /* schedules, the last one last */
} figures;

/* What follows from all shapes of a target. */
typedef struct {
    double log_ratio, selection_us[SX_BENCH_SHAPES_MAX], most_selection_us;
    double emission_ms, assembling_ms, interpreted, interpreted_s;
    uint32_t shapes, kernels, assembled, spills, below, blocks;
} totals;

static double thread_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- one kernel: selection, emission, interpretation ---- */

/* The first schedule that can be lowered and emitted, as the pipeline takes it; the time of that alone. */
static sx_code emit_first(sx_ctx *cx, figures *f, const sx_analysis *a,
                          const sx_search_result *search, sx_buf *blob, sx_kernel **kernel,
                          sx_target_code *code)
{
    sx_code status = SX_COMPILE;
    for (uint32_t c = 0; c < search->best_count && status != SX_OK; c++) {
        const sx_lowering what = {.kind = SX_LOWER_FUSED,
                                  .name = "bench",
                                  .schedule = &search->best[c].schedule,
                                  .analysis = a};
        double start = thread_seconds();
        sx_ctx_reset_error(cx);
        status = sx_target_lower(cx, f->target, &what, kernel);
        status =
            status == SX_OK ? f->target->emit(cx, f->target, *kernel, false, blob, code) : status;
        f->emission_ms += status == SX_OK ? (thread_seconds() - start) * 1e3 : 0;
    }
    return status;
}

static int64_t pages_of(int64_t bytes)
{
    SX_ASSERT(bytes >= 0 && bytes <= INT64_MAX - 4096);
    return (bytes + 4095) / 4096 * 4096;
}

/* Runs one point of the grid of the first part, on zeros: pages that it does not touch cost nothing. */
static sx_code interpret(sx_ctx *cx, figures *f, const sx_kernel *kernel, sx_span blob,
                         const sx_target_code *code)
{
    sx_region region[SX_LOOP_BUFFERS_MAX];
    int64_t bytes = 0;
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        bytes += pages_of(kernel->buffer[b].size);
    }
    if (bytes > MEMORY_MAX) {
        return SX_OK;
    }
    uint8_t *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return SX_FAIL(cx, SX_NOMEM, "no %lld bytes for a kernel", (long long)bytes);
    }
    int64_t at = 0;
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        region[b] = (sx_region){.name = "buffer",
                                .memory = memory + at,
                                .size = (uint64_t)kernel->buffer[b].size,
                                .writable = kernel->buffer[b].role != SX_BUFFER_IN};
        at += pages_of(kernel->buffer[b].size);
    }
    bool workspace = kernel->buffer[kernel->buffer_count - 1].role == SX_BUFFER_WORKSPACE;
    sx_emulation what = {.entry = code->entry[0],
                         .count = 1,
                         .buffer = region,
                         .buffer_count = kernel->buffer_count - (workspace ? 1 : 0),
                         .workspace = workspace ? &region[kernel->buffer_count - 1] : NULL,
                         .threads = code->block[0].threads,
                         .shared_bytes = code->block[0].shared_bytes,
                         .maps = &code->maps[0]};
    memcpy(what.grid, kernel->part[0].grid, sizeof(what.grid));
    sx_emulator *emulator;
    sx_code status =
        f->target->emulator_make(cx, f->target, blob, code->entry, code->entry_count, &emulator);
    /* The first time the text is read. */
    status = status == SX_OK ? f->target->emulate(cx, emulator, &what) : status;
    uint64_t before = status == SX_OK ? f->target->emulated(emulator) : 0;
    double start = thread_seconds();
    status = status == SX_OK ? f->target->emulate(cx, emulator, &what) : status;
    if (status == SX_OK) {
        f->interpreted_s += thread_seconds() - start;
        f->interpreted += WARP * (double)(f->target->emulated(emulator) - before);
    }
    (void)munmap(memory, (size_t)bytes);
    return status;
}

/* Emits the cheapest schedule of a kernel that can be emitted, and executes some of it. */
static sx_code make(sx_ctx *cx, figures *f, const sx_analysis *a, const sx_search_result *search)
{
    sx_kernel *kernel;
    sx_target_code code;
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 26);
    sx_code status = emit_first(cx, f, a, search, &blob, &kernel, &code);
    status = status == SX_OK ? interpret(cx, f, kernel, sx_buf_span(&blob), &code) : status;
    for (uint32_t p = 0; status == SX_OK && p < code.entry_count; p++) {
        f->threads = code.block[p].threads > f->threads ? code.block[p].threads : f->threads;
    }
    sx_buf_fini(&blob);
    return status;
}

/* Both launches of an online sum in pieces. */
static sx_code make_pieces(sx_ctx *cx, figures *f, const sx_analysis *a, int64_t piece)
{
    sx_online_pieces *nodes = SX_NEW(cx, sx_online_pieces);
    if (nodes == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_online_pieces_make(cx, a, piece, nodes));
    const sx_analysis *const both[] = {&nodes->partial_analysis, &nodes->combine_analysis};
    for (uint32_t i = 0; i < SX_COUNT(both); i++) {
        sx_search_result search;
        SX_TRY(sx_search_first(cx, both[i], f->device, false, SX_SEARCH_KEEP, &search));
        SX_TRY(make(cx, f, both[i], &search));
    }
    return SX_OK;
}

static sx_code visit(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     void *self)
{
    figures *f = self;
    double us[ROUNDS_MAX];
    uint32_t rounds = f->rounds < ROUNDS_MAX ? f->rounds : ROUNDS_MAX;
    sx_search_result search;
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, fused, input, input_count, a));
    for (uint32_t r = 0; r < rounds; r++) {
        double start = thread_seconds();
        SX_TRY(sx_search_first(cx, a, f->device, false, SX_SEARCH_KEEP, &search));
        us[r] = (thread_seconds() - start) * 1e6;
    }
    f->selection_us += sx_bench_median(us, rounds);
    f->considered += search.considered;
    int64_t piece = sx_search_piece(a, f->device);
    return piece != 0 ? make_pieces(cx, f, a, piece) : make(cx, f, a, &search);
}

/* ---- one shape ---- */

static sx_code assemble(void *self, sx_ctx *cx, sx_span text, const char *target, sx_span *code)
{
    figures *f = self;
    const sxa_options any = {.with = SXA_ANY};
    sxa_result result;
    double start = thread_seconds();
    SX_TRY(sxa_assemble(cx, text, target, &any, &result));
    f->assembling_ms += (thread_seconds() - start) * 1e3;
    *code = result.cubin;
    return SX_OK;
}

/* What the module says of its kernels. */
static void read_module(figures *f, const sx_image *image)
{
    sx_module_kernel kernel;
    sx_module_cubin cubin;
    sx_module_part part;
    f->predicted_ns = image->info.cost_ns;
    f->kernels = (uint32_t)(image->kernel.len / sizeof(kernel));
    for (uint32_t k = 0; k < f->kernels; k++) {
        memcpy(&kernel, image->kernel.ptr + k * sizeof(kernel), sizeof(kernel));
        size_t used = strlen(f->plan);
        bool any = kernel.plan.size > 0;
        const char *text = (const char *)image->strings.ptr + kernel.plan.offset;
        (void)snprintf(f->plan + used, sizeof(f->plan) - used, "%s%.*s", used > 0 ? "; " : "",
                       any ? (int)kernel.plan.size : 4, any ? text : "copy");
    }
    for (size_t i = 0; i < image->part.len / sizeof(part); i++) {
        memcpy(&part, image->part.ptr + i * sizeof(part), sizeof(part));
        f->shared_bytes = part.shared_bytes > f->shared_bytes ? part.shared_bytes : f->shared_bytes;
    }
    f->assembled = (uint32_t)(image->cubin.len / sizeof(cubin));
    for (uint32_t i = 0; i < f->assembled; i++) {
        memcpy(&cubin, image->cubin.ptr + i * sizeof(cubin), sizeof(cubin));
        f->registers = cubin.registers > f->registers ? cubin.registers : f->registers;
        f->spills += cubin.spills + (cubin.local_bytes > 0 ? 1 : 0);
    }
}

static sx_code write_module(sx_ctx *cx, const figures *f, const sx_image *image)
{
    char path[4096];
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)1 << 30);
    (void)snprintf(path, sizeof(path), "%s/%s.sxm", f->modules, f->shape->name);
    sx_code code = sx_image_encode(cx, image, &bytes);
    code = code == SX_OK ? sxc_write_file(cx, path, sx_buf_span(&bytes)) : code;
    sx_buf_fini(&bytes);
    return code;
}

static sx_code compile(sx_ctx *cx, figures *f, const char *assembler_name, sx_span text)
{
    const sx_assembler assembler = {.self = f, .assemble = assemble};
    const sx_binding none = {SX_SPAN_LITERAL("batch"), 1};
    sx_core_request request = {.ir = text, .target = sx_span_of(f->device->name)};
    if (assembler_name[0] != '\0') {
        request.assembler = sx_span_of(assembler_name);
        request.assemble = &assembler;
    }
    sx_image image;
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    if (code == SX_OK && f->modules != NULL) {
        code = write_module(cx, f, &image);
    } else if (code == SX_OK) {
        read_module(f, &image);
        code = sx_test_visit_fused(cx, sx_buf_span(&image.optimized), &none, 0, visit, f);
    }
    sx_image_fini(&image);
    return code;
}

static sx_code measure(sx_ctx *cx, figures *f, const char *assembler_name)
{
    sx_bench_work work;
    sx_buf text;
    cx->fuel = UINT64_MAX;
    SX_TRY(sx_bench_shape_work(cx, f->shape, &work));
    f->floor_ns = sx_bench_floor_ns(f->device, f->shape, &work);
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_bench_shape_text(cx, f->shape, &text);
    code = code == SX_OK ? compile(cx, f, assembler_name, sx_buf_span(&text)) : code;
    sx_buf_fini(&text);
    return code;
}

/* ---- what is printed ---- */

static double per_second(double instructions, double seconds)
{
    return seconds > 0 ? instructions / seconds / 1e6 : 0;
}

static void put(const sx_bench_options *options, const figures *f)
{
    double ratio = f->floor_ns / f->predicted_ns;
    double rate = per_second(f->interpreted, f->interpreted_s);
    if (!options->json) {
        printf("%-32s  %12.2f  %12.2f  %5.3f  %9.1f  %8.2f  %8.1f  %4u  %7llu  %6u  %6.1f\n",
               f->shape->name, f->predicted_ns / 1e3, f->floor_ns / 1e3, ratio, f->selection_us,
               f->emission_ms, f->assembling_ms, f->registers, (unsigned long long)f->shared_bytes,
               f->spills, rate);
        return;
    }
    printf("{\"schema\": \"symplex-bench suite 1\", \"target\": \"%s\", \"shape\": \"%s\", "
           "\"operation\": \"%s\", \"dtype\": \"%s\", \"layout\": \"%s\", \"origin\": \"%s\", ",
           f->device->name, f->shape->name, f->shape->operation, f->shape->dtype, f->shape->layout,
           f->shape->origin);
    printf("\"predicted_us\": %.6g, \"floor_us\": %.6g, \"ratio\": %.6g, \"kernels\": %u, "
           "\"schedules\": %u, \"selection_us\": %.6g, \"emission_ms\": %.6g, ",
           f->predicted_ns / 1e3, f->floor_ns / 1e3, ratio, f->kernels, f->considered,
           f->selection_us, f->emission_ms);
    if (f->assembled > 0) {
        printf("\"assembling_ms\": %.6g, \"registers\": %u, \"spills\": %u, ", f->assembling_ms,
               f->registers, f->spills);
    } else {
        printf("\"assembling_ms\": null, \"registers\": null, \"spills\": null, ");
    }
    printf("\"threads\": %u, \"shared_bytes\": %llu, \"interpreted\": %.6g, "
           "\"interpreted_per_second\": %.6g, \"schedule\": \"%s\"}\n",
           f->threads, (unsigned long long)f->shared_bytes, f->interpreted, rate * 1e6, f->plan);
}

static void put_totals(const sx_bench_options *options, const char *label, totals *t)
{
    double median = sx_bench_median(t->selection_us, t->shapes);
    const sx_bench_row row[] = {
        {"ptx", label, "shapes", t->shapes, "", NULL, 0},
        {"ptx", label, "shapes in blocks of threads", t->blocks, "", NULL, 0},
        {"ptx", label, "floor over prediction, mean", exp(t->log_ratio / t->shapes), "", NULL, 0},
        {"ptx", label, "predicted below floor", t->below, "", NULL, 0},
        {"ptx", label, "spills", t->spills, "", NULL, 0},
        {"ptx", label, "selection, median shape", median, "us", "wanted, at most",
         GOAL_SELECTION_US},
        {"ptx", label, "selection, slowest shape", t->most_selection_us, "us", "wanted, at most",
         GOAL_SELECTION_US},
        {"ptx", label, "emission, a kernel", t->emission_ms / t->kernels, "ms", NULL, 0},
        {"ptx", label, "thread instructions", per_second(t->interpreted, t->interpreted_s), "M/s",
         "wanted, at least", 20}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_bench_put(options, &row[i]);
    }
    if (t->assembled > 0) {
        sx_bench_put(options, &(sx_bench_row){"ptx", label, "assembling, a kernel",
                                              t->assembling_ms / t->assembled, "ms", NULL, 0});
    } else {
        (void)fprintf(stderr, "symplex-bench ptx: no CUDA toolkit here: nothing is assembled\n");
    }
}

static void add(totals *t, const figures *f)
{
    t->log_ratio += log(f->floor_ns / f->predicted_ns);
    t->selection_us[t->shapes++] = f->selection_us;
    t->most_selection_us =
        f->selection_us > t->most_selection_us ? f->selection_us : t->most_selection_us;
    t->emission_ms += f->emission_ms;
    t->assembling_ms += f->assembling_ms;
    t->interpreted += f->interpreted;
    t->interpreted_s += f->interpreted_s;
    t->kernels += f->kernels;
    t->assembled += f->assembled;
    t->spills += f->spills;
    t->blocks += f->threads > 0;
}

/* One shape in a context of its own; an exit status. */
static int run_shape(const sx_bench_options *options, figures *f, const char *assembler_name,
                     totals *t)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    sx_code code = measure(&cx, f, assembler_name);
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench ptx: %s on %s: %s\n", f->shape->name, f->device->name,
                      cx.error.text);
    }
    sx_ctx_fini(&cx);
    if (code != SX_OK) {
        return sx_code_exit(code);
    }
    if (options->modules != NULL) {
        t->shapes++;
        return 0;
    }
    if (options->plant != NULL) { /* to see that the program fails */
        bool spills = strcmp(options->plant, "spill") == 0;
        f->spills += spills ? 1 : 0;
        f->predicted_ns = spills ? f->predicted_ns : f->floor_ns * 0.99;
    }
    put(options, f);
    (void)fflush(stdout);
    add(t, f);
    if (f->predicted_ns < f->floor_ns) {
        t->below++;
        (void)fprintf(
            stderr, "symplex-bench ptx: %s on %s: predicted %.2f us, below the floor of %.2f us\n",
            f->shape->name, f->device->name, f->predicted_ns / 1e3, f->floor_ns / 1e3);
    }
    return 0;
}

static int run_target(const sx_bench_options *options, const char *label, const sx_device *device)
{
    static sx_bench_shape shape[SX_BENCH_SHAPES_MAX];
    static totals t;
    uint32_t count;
    int status = 0;
    sxa_identity assembler;
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sxa_identify(&cx, true, &assembler);
    const char *list = options->shapes != NULL ? options->shapes : SHAPES;
    if (sx_bench_shapes_read(&cx, list, shape, &count) != SX_OK) {
        (void)fprintf(stderr, "symplex-bench ptx: %s: %s\n", list, cx.error.text);
        status = 2;
    }
    sx_ctx_fini(&cx);
    t = (totals){0};
    if (!options->json && options->modules == NULL && status == 0) {
        printf("%-32s  %12s  %12s  %5s  %9s  %8s  %8s  %4s  %7s  %6s  %6s\n", device->name,
               "PREDICTED US", "FLOOR US", "RATIO", "SELECT US", "EMIT MS", "ASM MS", "REGS",
               "SHARED", "SPILLS", "M/S");
    }
    for (uint32_t i = 0; i < count && status == 0; i++) {
        if (options->shape != NULL &&
            strncmp(shape[i].name, options->shape, strlen(options->shape)) != 0) {
            continue;
        }
        figures f = {.shape = &shape[i],
                     .device = device,
                     .target = sx_target_find(NULL, device->target),
                     .rounds = options->rounds,
                     .modules = options->modules};
        status = run_shape(options, &f, assembler.name, &t);
    }
    if (status == 0 && t.shapes == 0) {
        (void)fprintf(stderr, "symplex-bench ptx: no shape begins with %s\n", options->shape);
        return 2;
    }
    if (status == 0 && options->modules == NULL) {
        put_totals(options, label, &t);
    }
    if (t.spills > 0) {
        (void)fprintf(stderr, "symplex-bench ptx: kernels for %s spill\n", device->name);
    }
    return status != 0 ? status : t.below + t.spills > 0;
}

int sx_bench_suite(const sx_bench_options *options)
{
    return sx_bench_each_gpu(options, "suite", run_target);
}
