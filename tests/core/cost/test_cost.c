#include "core/fuse/fuse.h"
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/cost/cost.h"
#include "core/ir/extent.h"

static sx_ctx cx;
static const sx_device *device;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

START_TEST(test_devices)
{
    const sx_device *found = NULL;
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v3"), &found));
    ck_assert_uint_eq(found->lanes, 8);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("h100"), &found));
    ck_assert_str_eq(found->target, "sm_90");
    ck_sx_fails(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("z80"), &found), SX_INPUT, "x86-64-v4");
    ck_sx_fails(&cx, sx_device_find(&cx, (sx_span){NULL, 0}, &found), SX_INPUT, "unknown");
    /* vendor peaks, TFLOPS of FP32 outside tensor cores */
    static const struct {
        const char *name;
        double tflops;
    } vendor[] = {{"a100", 19.5}, {"h100", 67},      {"h200", 67},
                  {"b200", 75},   {"rtx3090", 35.6}, {"rtx4090", 82.6}};
    for (uint32_t i = 0; i < SX_COUNT(vendor); i++) {
        for (uint32_t k = 0; k < sx_device_count(); k++) {
            if (strcmp(sx_device_at(k)->name, vendor[i].name) == 0) {
                double tflops = 1 / sx_device_compute_ns(sx_device_at(k), SX_F32, false, 1) / 1000;
                ck_assert_double_eq_tol(tflops, vendor[i].tflops, 0.01 * vendor[i].tflops);
            }
        }
    }
}
END_TEST

static sx_type shape(sx_dtype dtype, uint32_t rank, int64_t a, int64_t b, int64_t c)
{
    sx_type type = {.dtype = dtype, .rank = rank};
    int64_t extents[3] = {a, b, c};
    for (uint32_t d = 0; d < rank; d++) {
        type.dim[d] = sx_dim_of(extents[d]);
    }
    return type;
}

static sx_cost matmul(int64_t m, int64_t n, int64_t k)
{
    sx_type input[2] = {shape(SX_F32, 2, m, k, 0), shape(SX_F32, 2, k, n, 0)};
    sx_type result = shape(SX_F32, 2, m, n, 0);
    sx_attr attr = {.present = SX_A(lhs_contract) | SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    sx_cost cost;
    ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, SX_OP_DOT_GENERAL, &attr, input, 2, &result,
                               &cost));
    return cost;
}

START_TEST(test_matmul_by_hand)
{
    sx_cost cost = matmul(1024, 512, 256);
    ck_assert_double_eq(cost.flops, 2.0 * 1024 * 512 * 256);
    ck_assert_double_eq(cost.bytes, 4.0 * (1024 * 256 + 256 * 512 + 1024 * 512));
    double peak = 2.0 * device->cores * device->lanes * device->fma_per_cycle * device->ghz;
    double compute = cost.flops / peak;
    double move = cost.bytes / device->memory_bytes_per_ns;
    ck_assert_double_eq_tol(cost.floor_ns, compute > move ? compute : move, 1e-6);
    ck_assert_double_ge(cost.cost_ns, cost.floor_ns + device->launch_ns);
}
END_TEST

/* The estimate grows with every extent and never lies below the floor. */
START_TEST(test_monotone_above_floor)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 500; trial++) {
        int64_t size[3];
        for (uint32_t i = 0; i < 3; i++) {
            size[i] = (int64_t)1 + (int64_t)sx_rng_below(&rng, 3000);
        }
        sx_cost base = matmul(size[0], size[1], size[2]);
        ck_assert_double_ge(base.cost_ns, base.floor_ns);
        for (uint32_t i = 0; i < 3; i++) {
            size[i] *= 2;
            sx_cost more = matmul(size[0], size[1], size[2]);
            size[i] /= 2;
            ck_assert_double_gt(more.cost_ns, base.cost_ns);
            ck_assert_double_gt(more.flops, base.flops);
        }
    }
}
END_TEST

static sx_cost unary(sx_op op, const sx_type *type, const sx_symbol *symbols, uint32_t count)
{
    sx_attr attr = {0};
    attr.type = *type;
    attr.perm = (sx_ints){2, {1, 0}};
    sx_cost cost;
    ck_sx_ok(&cx, sx_cost_node(&cx, device, symbols, count, op, &attr, type, 1, type, &cost));
    return cost;
}

START_TEST(test_nodes)
{
    sx_type type = shape(SX_F32, 2, 64, 64, 0);
    ck_assert_double_eq(unary(SX_OP_RESHAPE, &type, NULL, 0).cost_ns, 0);
    ck_assert_double_eq(unary(SX_OP_PARAMETER, &type, NULL, 0).cost_ns, 0);
    ck_assert_double_eq(unary(SX_OP_NEGATE, &type, NULL, 0).bytes, 2 * 4.0 * 64 * 64);
    ck_assert_double_gt(unary(SX_OP_EXP, &type, NULL, 0).flops,
                        unary(SX_OP_NEGATE, &type, NULL, 0).flops);
    ck_assert_double_gt(unary(SX_OP_TRANSPOSE, &type, NULL, 0).cost_ns,
                        unary(SX_OP_NEGATE, &type, NULL, 0).cost_ns);
    sx_type half = type;
    half.dtype = SX_BF16;
    ck_assert_double_eq(unary(SX_OP_NEGATE, &half, NULL, 0).bytes, 2 * 2.0 * 64 * 64);
    sx_type huge = shape(SX_F64, 3, SX_EXTENT_MAX, SX_EXTENT_MAX, SX_EXTENT_MAX);
    sx_cost cost;
    sx_attr attr = {0};
    ck_sx_fails(&cx,
                sx_cost_node(&cx, device, NULL, 0, SX_OP_NEGATE, &attr, &huge, 1, &huge, &cost),
                SX_LIMIT, "negate");
}
END_TEST

#define N SX_NO_SYMBOL
/* Symbols count as a value that follows from the interval alone. */
START_TEST(test_reference_extent)
{
    const sx_polynomial sum = {2, {{3, {0, 2, N, N, N, N}}, {-1, {N, N, N, N, N, N}}}};
    sx_symbol batch[] = {{SX_SPAN_LITERAL("a"), 1, 4096, NULL},
                         {SX_SPAN_LITERAL("b"), 32, 4096, NULL},
                         {SX_SPAN_LITERAL("c"), 1, 2, NULL},
                         {SX_SPAN_LITERAL("3*a*c - 1"), 2, 24575, &sum}};
    ck_assert_int_eq(sx_cost_reference(batch, 0), 8);
    ck_assert_int_eq(sx_cost_reference(batch, 1), 32);
    ck_assert_int_eq(sx_cost_reference(batch, 2), 2);
    ck_assert_int_eq(sx_cost_reference(batch, 3), 3 * 8 * 2 - 1);
    sx_type symbolic = shape(SX_F32, 2, 0, 64, 0);
    symbolic.dim[0] = (sx_dim){3, 0};
    sx_type fixed = shape(SX_F32, 2, 24, 64, 0);
    ck_assert_double_eq(unary(SX_OP_NEGATE, &symbolic, batch, 3).cost_ns,
                        unary(SX_OP_NEGATE, &fixed, NULL, 0).cost_ns);
}
END_TEST

/* relu(A B + bias) as one kernel: bytes of A, B, bias and the result once; the bias is read through a stride of 0. */
START_TEST(test_fused_contraction)
{
    sx_body body = {.arg_count = 3, .instr_count = 7, .axes = 1u << 2};
    body.access[0].stride[0] = sx_dim_of(32);
    body.access[0].stride[2] = sx_dim_of(1);
    body.access[1].stride[1] = sx_dim_of(1);
    body.access[1].stride[2] = sx_dim_of(16);
    body.access[2].stride[1] = sx_dim_of(1);
    for (uint32_t a = 0; a < 3; a++) {
        body.instr[a] = (sx_instr){.kind = SX_BODY_ARG, .dtype = SX_F32, .x = a};
    }
    body.instr[3] = (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = 0, .y = 1};
    body.instr[4] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .dtype = SX_F32, .x = 3, .y = 2};
    body.instr[5] = (sx_instr){.kind = SX_BODY_IMM, .dtype = SX_F32};
    body.instr[6] =
        (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_MAXIMUM, .dtype = SX_F32, .x = 5, .y = 4};
    sx_attr attr = {.present = SX_A(type) | SX_A(body), .body = &body};
    attr.type = shape(SX_F32, 3, 8, 16, 32);
    sx_type input[3] = {shape(SX_F32, 2, 8, 32, 0), shape(SX_F32, 2, 32, 16, 0),
                        shape(SX_F32, 1, 16, 0, 0)};
    sx_type result = shape(SX_F32, 2, 8, 16, 0);
    sx_cost cost;
    ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, SX_OP_FUSED, &attr, input, 3, &result, &cost));
    ck_assert_double_eq(cost.bytes, 4.0 * (8 * 32 + 32 * 16 + 16 + 8 * 16));
    ck_assert_double_eq(cost.flops, 2.0 * 8 * 16 * 32 + 2.0 * 8 * 16);
    double contiguous = cost.cost_ns;
    body.access[0].stride[0] = sx_dim_of(1); /* the transposed A: lines fetched in part */
    body.access[0].stride[2] = sx_dim_of(8);
    ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, SX_OP_FUSED, &attr, input, 3, &result, &cost));
    ck_assert_double_eq(cost.cost_ns, contiguous); /* some dimension still has stride 1 */
    body.access[2].stride[1] = sx_dim_of(2);
    input[2] = shape(SX_F32, 1, 31, 0, 0);
    ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, SX_OP_FUSED, &attr, input, 3, &result, &cost));
    ck_assert_double_gt(cost.cost_ns, contiguous);
}
END_TEST

/* Rows in tiles of 4 over a right argument of 12.8 MB, which stays in no L2: its panels come from the shared
 * level once for each of the 16 tiles, which takes longer than the products of 4 rows. In tiles of 64 rows they
 * come once. */
START_TEST(test_operands_that_come_again)
{
    sx_type input[2] = {shape(SX_F32, 2, 64, 256, 0), shape(SX_F32, 2, 256, 12544, 0)};
    sx_type result = shape(SX_F32, 2, 64, 12544, 0);
    sx_attr fused, attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &attr, input, 2, &result, &fused));
    sx_analysis a;
    ck_sx_ok(&cx, sx_analysis_make(&cx, &fused, input, 2, &a));
    sx_contraction_tiles tiles = {.lanes = device->lanes,
                                  .block_rows = 4,
                                  .block_vectors = 2,
                                  .tile_rows = 4,
                                  .unroll = 4,
                                  .panels = UINT32_MAX};
    int64_t columns = 8 * 2 * (int64_t)device->lanes;
    double low, high;
    sx_cost_contractions(device, &a, &tiles, &columns, 1, true, &low);
    tiles.tile_rows = 64;
    sx_cost_contractions(device, &a, &tiles, &columns, 1, true, &high);
    double bytes = 16 * 4.0 * 256 * 12544;
    ck_assert_double_gt(low, bytes / (device->l3_bytes_per_ns * device->cores));
    ck_assert_double_gt(low, 1.5 * high);
}
END_TEST

static sx_analysis *product(int64_t m, int64_t n, int64_t k)
{
    sx_type input[2] = {shape(SX_F32, 2, m, k, 0), shape(SX_F32, 2, k, n, 0)};
    sx_type result = shape(SX_F32, 2, m, n, 0);
    sx_attr *fused = SX_NEW(&cx, sx_attr);
    sx_type *kept = SX_NEW_ARRAY(&cx, sx_type, 2);
    sx_analysis *a = SX_NEW(&cx, sx_analysis);
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    ck_assert(fused != NULL && kept != NULL && a != NULL);
    kept[0] = input[0];
    kept[1] = input[1];
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &attr, kept, 2, &result, fused));
    ck_sx_ok(&cx, sx_analysis_make(&cx, fused, kept, 2, a));
    return a;
}

/* Contractions of which a warp makes each point of the grid: no tiles take less than what their register blocks say,
 * or than the floor; a second k of the same length never costs less. One point keeps one core busy: by hand, a warp
 * waits for its loads in each turn. */
START_TEST(test_warps)
{
    sx_rng rng = {sx_test_seed()};
    const sx_device *gpu;
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("a100"), &gpu));
    for (uint32_t trial = 0; trial < 500; trial++) {
        int64_t m = (int64_t)(1 + sx_rng_below(&rng, 700)),
                n = (int64_t)(1 + sx_rng_below(&rng, 700));
        int64_t k = (int64_t)(1 + sx_rng_below(&rng, 500));
        sx_contraction_tiles t = {.lanes = gpu->lanes,
                                  .block_rows = (uint32_t)(1 + sx_rng_below(&rng, 14)),
                                  .block_vectors = (uint32_t)(1 + sx_rng_below(&rng, 4)),
                                  .unroll = 4,
                                  .panels = UINT32_MAX};
        t.tile_rows = t.block_rows * (int64_t)(1 + sx_rng_below(&rng, 8));
        int64_t columns = (int64_t)t.block_vectors * t.lanes * (int64_t)(1 + sx_rng_below(&rng, 4));
        sx_analysis *a = product(m, n, k);
        double ns, longer;
        sx_cost_contractions(gpu, a, &t, &columns, 1, true, &ns);
        sx_cost_contractions(gpu, product(m, n, 2 * k), &t, &columns, 1, true, &longer);
        ck_assert_double_ge(ns, sx_cost_floor(gpu, a) + gpu->launch_ns);
        ck_assert_double_ge(ns, sx_cost_block_bound(gpu, a, &t, false) * (1 - 1e-9));
        ck_assert_double_ge(longer, ns);
        sx_ctx_fini(&cx);
        sx_ctx_init(&cx, (size_t)1 << 24);
    }
    sx_contraction_tiles one = {.lanes = 32,
                                .block_rows = 4,
                                .block_vectors = 1,
                                .unroll = 4,
                                .tile_rows = 4,
                                .panels = UINT32_MAX};
    int64_t columns = 32;
    double ns, wait = 1024 / 4 * (gpu->l2_latency + 4.0 * gpu->fma_latency) / gpu->ghz;
    sx_cost_contractions(gpu, product(4, 32, 1024), &one, &columns, 1, true, &ns);
    ck_assert_double_ge(ns - gpu->launch_ns, wait);
    ck_assert_double_eq_tol(ns - gpu->launch_ns, wait, 0.03 * wait);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.cost");
    TCase *cases = tcase_create("cost");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_devices);
    tcase_add_test(cases, test_matmul_by_hand);
    tcase_add_test(cases, test_monotone_above_floor);
    tcase_add_test(cases, test_nodes);
    tcase_add_test(cases, test_reference_extent);
    tcase_add_test(cases, test_fused_contraction);
    tcase_add_test(cases, test_operands_that_come_again);
    tcase_add_test(cases, test_warps);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
