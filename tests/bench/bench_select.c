/* bench_select.c - `symplex-bench ptx --case select-h100`: how long a schedule takes to be chosen for each kernel of
 * the shapes of tests/data/shapes, as a compilation chooses it: the cheapest one, of which alone code is made unless it
 * cannot be had; and what the chosen one costs by the model beside the cheapest of the whole space,
 * priced point by point (tests/lib/block_sweep.h, and sx_search_exhaustive for what has no blocks). Nothing is run: it
 * shows what the search loses, not what the model does. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/core.h"
#include "core/search/search.h"
#include "core/target/target.h"
#include "tests/bench/bench.h"
#include "tests/bench/shapes.h"
#include "tests/lib/block_sweep.h"
#include "tests/lib/net.h"

#define SHAPES SX_SOURCE_DIR "/tests/data/shapes/gpu.txt"
#define ROUNDS_MAX 64u
#define GOAL_US 20.0 /* of a kernel */
#define KERNELS_MAX (4 * SX_BENCH_SHAPES_MAX)

typedef struct {
    const sx_bench_options *options;
    const sx_device *device;
    const sx_target *target;
    const char *shape;
    uint32_t of_shape; /* kernels so far */
    /* Of all kernels. */
    double us[KERNELS_MAX], log_ratio, worst;
    uint32_t count, exact;
} figures;

static double thread_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* The cheapest of the space from which the search has taken `found`, by the full price of each. */
static sx_code cheapest(sx_ctx *cx, const figures *f, const sx_analysis *a,
                        const sx_search_result *found, double *ns, double *points)
{
    sx_block_tiles t;
    sx_search_result all;
    bool blocks = sx_block_tiles_of(&found->best[0].schedule, &t);
    bool matrix = blocks && t.matrix_rows != 0;
    *ns = HUGE_VAL;
    *points = 0;
    if (a->kind == SX_KERNEL_DOT && found->matrix_count == found->best_count && matrix) {
        const sx_matrix_instruction *instruction =
            sx_search_matrix(a, f->target->matrix, sx_search_matrices(f->device, f->target));
        sx_test_sweep sweep;
        sx_test_sweep_blocks(f->device, a, instruction, SX_SIDES_BOTH, &sweep);
        *ns = sweep.least_ns;
        *points = (double)sweep.count;
        return SX_OK;
    }
    SX_TRY(sx_search_exhaustive(cx, a, f->device, false, 1, &all));
    *ns = all.best[0].cost_ns;
    *points = all.considered;
    if (a->kind == SX_KERNEL_DOT && blocks) {
        sx_test_sweep sweep;
        sx_test_sweep_blocks(f->device, a, NULL, SX_SIDES_PLAIN, &sweep);
        *ns = sweep.least_ns < *ns ? sweep.least_ns : *ns;
        *points += (double)sweep.count;
    }
    return SX_OK;
}

static void put(figures *f, const sx_search_result *search, double us, double least_ns,
                double points)
{
    double chosen = search->best[0].cost_ns, ratio = least_ns / chosen;
    uint32_t priced = search->considered - search->dropped_bound - search->dropped_roofline -
                      search->dropped_alignment - search->dropped_resources;
    SX_ASSERT(f->count < KERNELS_MAX && least_ns > 0);
    f->us[f->count++] = us;
    f->log_ratio += log(ratio);
    f->worst = ratio < f->worst ? ratio : f->worst;
    f->exact += ratio >= 1 - 1e-9 ? 1 : 0;
    if (!f->options->json) {
        printf("%-8s  %-32s  %6u  %9.1f  %9u  %6u  %12.3f  %12.3f  %8.0f  %6.4f\n", f->device->name,
               f->shape, f->of_shape++, us, search->considered, priced, chosen / 1e3,
               least_ns / 1e3, points, ratio);
        return;
    }
    sx_buf text;
    sx_buf_init(&text, SX_SCHEDULE_TEXT_MAX + 1);
    sx_schedule_print(&search->best[0].schedule, &text);
    printf("{\"schema\": \"symplex-bench select 1\", \"target\": \"%s\", \"shape\": \"%s\", "
           "\"kernel\": %u, \"selection_us\": %.6g, \"schedules\": %u, \"priced\": %u, "
           "\"chosen\": \"%.*s\", \"chosen_us\": %.6g, \"cheapest_us\": %.6g, "
           "\"points\": %.0f, \"ratio\": %.6g}\n",
           f->device->name, f->shape, f->of_shape++, us, search->considered, priced, (int)text.len,
           (const char *)text.ptr, chosen / 1e3, least_ns / 1e3, points, ratio);
    sx_buf_fini(&text);
}

static sx_code visit(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     void *self)
{
    figures *f = self;
    double us[ROUNDS_MAX], least_ns, points;
    uint32_t rounds = f->options->rounds < ROUNDS_MAX ? f->options->rounds : ROUNDS_MAX;
    sx_search_result search;
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (a == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_analysis_make(cx, fused, input, input_count, a));
    for (uint32_t r = 0; r < rounds; r++) {
        double start = thread_us();
        SX_TRY(sx_search_first(cx, a, f->device, false, 1, &search));
        us[r] = thread_us() - start;
    }
    SX_TRY(cheapest(cx, f, a, &search, &least_ns, &points));
    put(f, &search, sx_bench_median(us, rounds), least_ns, points);
    return SX_OK;
}

/* The program that level 1 makes of a shape: its kernels are visited. */
static sx_code run_shape(sx_ctx *cx, figures *f, const sx_bench_shape *shape)
{
    const sx_binding none = {SX_SPAN_LITERAL("batch"), 1};
    sx_buf text;
    sx_image image;
    cx->fuel = UINT64_MAX;
    f->shape = shape->name;
    f->of_shape = 0;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_image_init(&image);
    sx_code code = sx_bench_shape_text(cx, shape, &text);
    sx_core_request request = {.ir = sx_buf_span(&text), .target = sx_span_of(f->device->name)};
    code = code == SX_OK ? sx_core_compile(cx, &request, &image) : code;
    code = code == SX_OK
               ? sx_test_visit_fused(cx, sx_buf_span(&image.optimized), &none, 0, visit, f)
               : code;
    sx_image_fini(&image);
    sx_buf_fini(&text);
    return code;
}

static void put_totals(const sx_bench_options *options, const char *label, figures *f)
{
    double median = sx_bench_median(f->us, f->count);
    const sx_bench_row row[] = {
        {"ptx", label, "kernels", f->count, "", NULL, 0},
        {"ptx", label, "selection, median kernel", median, "us", "wanted, at most", GOAL_US},
        {"ptx", label, "selection, slowest kernel", f->us[f->count - 1], "us", "wanted, at most",
         GOAL_US},
        {"ptx", label, "kernels whose choice is the cheapest", f->exact, "", NULL, 0},
        {"ptx", label, "cheapest over chosen, geomean", exp(f->log_ratio / f->count), "", NULL, 0},
        {"ptx", label, "cheapest over chosen, worst", f->worst, "", NULL, 0}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_bench_put(options, &row[i]);
    }
}

static int run_device(const sx_bench_options *options, const char *label, const sx_device *device)
{
    static sx_bench_shape shape[SX_BENCH_SHAPES_MAX];
    static figures f;
    uint32_t count = 0;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)4 << 30);
    const char *list = options->shapes != NULL ? options->shapes : SHAPES;
    sx_code code = sx_bench_shapes_read(&cx, list, shape, &count);
    f = (figures){.options = options,
                  .device = device,
                  .target = sx_target_find(NULL, device->target),
                  .worst = 1};
    if (!options->json && code == SX_OK) {
        printf("%-8s  %-32s  %6s  %9s  %9s  %6s  %12s  %12s  %8s  %6s\n", "TARGET", "SHAPE",
               "KERNEL", "SELECT US", "SCHEDULES", "PRICED", "CHOSEN US", "CHEAPEST US", "POINTS",
               "RATIO");
    }
    for (uint32_t i = 0; i < count && code == SX_OK; i++) {
        if (options->shape == NULL ||
            strncmp(shape[i].name, options->shape, strlen(options->shape)) == 0) {
            sx_ctx own;
            sx_ctx_init(&own, (size_t)4 << 30);
            code = run_shape(&own, &f, &shape[i]);
            cx.error = own.error;
            sx_ctx_fini(&own);
        }
    }
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench ptx: %s\n", cx.error.text);
    }
    sx_ctx_fini(&cx);
    if (code == SX_OK && f.count == 0) {
        (void)fprintf(stderr, "symplex-bench ptx: no shape begins with %s\n", options->shape);
        return 2;
    }
    if (code == SX_OK) {
        put_totals(options, label, &f);
    }
    return code == SX_OK ? 0 : sx_code_exit(code);
}

int sx_bench_select(const sx_bench_options *options)
{
    return sx_bench_each_gpu(options, "select", run_device);
}
