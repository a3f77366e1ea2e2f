/* bench_skinny.c - `symplex-bench ptx --case skinny`: products of few rows, as the model of core/cost prices them: from
 * the side that is chosen beside the plain form, and beside the floor. Nothing is run: there is no GPU here. */
#include <stdio.h>

#include "core/fuse/fuse.h"
#include "core/search/search.h"
#include "core/target/target.h"
#include "tests/bench/bench.h"

static const char *const devices[] = {"a100", "h100", "h200", "rtx4090"};
static const int64_t rows[] = {1, 8, 16, 32, 64};
/* Columns and sums of layers of language models: out, gate and up, down. */
static const int64_t layers[][2] = {{4096, 4096}, {28672, 4096}, {4096, 14336}};

/* x [m, k] times w [n, k], as a Linear of PyTorch keeps its weights. */
static sx_code make_product(sx_ctx *cx, int64_t m, int64_t n, int64_t k, sx_analysis *a)
{
    const sx_type input[2] = {{.dtype = SX_BF16, .rank = 2, .dim = {sx_dim_of(m), sx_dim_of(k)}},
                              {.dtype = SX_BF16, .rank = 2, .dim = {sx_dim_of(n), sx_dim_of(k)}}};
    const sx_type result = {.dtype = SX_BF16, .rank = 2, .dim = {sx_dim_of(m), sx_dim_of(n)}};
    sx_attr attr = {.present =
                        SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract),
                    .lhs_contract = {1, {1}},
                    .rhs_contract = {1, {1}}};
    sx_attr *fused = SX_NEW(cx, sx_attr);
    sx_type *own = SX_NEW_ARRAY(cx, sx_type, 2);
    if (fused == NULL || own == NULL) {
        return cx->error.code;
    }
    own[0] = input[0];
    own[1] = input[1];
    SX_TRY(sx_fused_lift(cx, SX_OP_DOT_GENERAL, &attr, own, 2, &result, fused));
    return sx_analysis_make(cx, fused, own, 2, a);
}

static sx_code price(sx_ctx *cx, const sx_analysis *a, const sx_device *device,
                     sx_search_sides sides, double *us)
{
    const sx_target *target = sx_target_find(NULL, device->target);
    const sx_matrix_instruction *matrix =
        sx_search_matrix(a, target->matrix, sx_search_matrices(device, target));
    sx_search_result found;
    SX_TRY(sx_search_block(cx, a, device, matrix, sides, 1, &found));
    SX_ASSERT(found.best_count == 1 && found.best[0].cost_ns >= found.floor_ns);
    *us = found.best[0].cost_ns / 1e3;
    return SX_OK;
}

static sx_code measure(sx_ctx *cx, const sx_bench_options *options, const sx_device *device,
                       int64_t m, const int64_t layer[2])
{
    char name[80];
    double plain, swapped, chosen;
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    SX_TRY(a != NULL ? make_product(cx, m, layer[0], layer[1], a) : cx->error.code);
    SX_TRY(price(cx, a, device, SX_SIDES_PLAIN, &plain));
    SX_TRY(price(cx, a, device, SX_SIDES_SWAPPED, &swapped));
    SX_TRY(price(cx, a, device, SX_SIDES_BOTH, &chosen));
    (void)snprintf(name, sizeof(name), "skinny-%s-%lldx%lldx%lld", device->name, (long long)m,
                   (long long)layer[0], (long long)layer[1]);
    const sx_bench_row row[] = {
        {"ptx", name, "predicted, sides swapped", swapped, "us", "predicted, plain form", plain},
        {"ptx", name, "predicted, chosen side", chosen, "us", "floor",
         sx_cost_floor(device, a) / 1e3}};
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_bench_put(options, &row[i]);
    }
    return SX_OK;
}

int sx_bench_skinny(const sx_bench_options *options)
{
    if (!sx_bench_wants(options, "skinny")) {
        return 0;
    }
    for (uint32_t d = 0; d < SX_COUNT(devices); d++) {
        for (uint32_t l = 0; l < SX_COUNT(layers); l++) {
            for (uint32_t r = 0; r < SX_COUNT(rows); r++) {
                sx_ctx cx;
                const sx_device *device;
                sx_ctx_init(&cx, SX_ARENA_DEFAULT);
                cx.fuel = SX_FUEL_DEFAULT;
                sx_code code = sx_device_find(&cx, sx_span_of(devices[d]), &device);
                code = code == SX_OK ? measure(&cx, options, device, rows[r], layers[l]) : code;
                if (code != SX_OK) {
                    (void)fprintf(stderr, "symplex-bench ptx: %s\n", cx.error.text);
                }
                sx_ctx_fini(&cx);
                if (code != SX_OK) {
                    return sx_code_exit(code);
                }
            }
        }
    }
    return 0;
}
