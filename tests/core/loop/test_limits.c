/* Lowering, text, interpreter and C back end under every memory limit, and plans at their edges: an error or a
 * kernel, no crash. */
#include "tests/core/loop/nodes.h"

static node sample(sx_ctx *cx, uint32_t kind)
{
    sx_type x[3] = {TYPE(SX_F32, 9, 35), TYPE(SX_F32, 35, 21), TYPE(SX_F32, 35)};
    sx_attr attr = {.present = SX_A(axis), .axis = 1};
    if (kind == 0) {
        attr = (sx_attr){.present = 0};
        return lift(cx, SX_OP_GELU, &attr, x, 1);
    }
    if (kind == 1) {
        return lift(cx, SX_OP_SOFTMAX, &attr, x, 1);
    }
    attr = (sx_attr){.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                                SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    node d = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    return unary(cx, SX_OP_TANH, &d);
}

static sx_code everything(sx_ctx *cx, const node *n, const test_tiles *plan, void *const *buffer)
{
    sx_kernel *kernel;
    SX_TRY(lower_node(cx, "k", n, plan, &kernel));
    SX_TRY(sx_kernel_eval(cx, kernel, buffer));
    sx_buf text;
    sx_buf_init(&text, 1 << 24);
    sx_code code = sx_kernel_print(cx, kernel, &text);
    if (code == SX_OK) {
        code = sx_kernel_parse(cx, sx_buf_span(&text), &kernel);
    }
    if (code == SX_OK) {
        code = sx_kernel_emit_c(cx, kernel, &text);
    }
    sx_buf_fini(&text);
    return code;
}

START_TEST(test_memory_limits)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_rng rng = {7};
    node n = sample(&cx, (uint32_t)_i);
    fill_inputs(&cx, &n, &rng, false);
    void *buffer[] = {n.raw[0], n.raw[1], NULL, NULL};
    buffer[n.count] = exact_buffer(&cx, bytes_of(&n.result));
    buffer[n.count + 1] = exact_buffer(&cx, 1 << 16);
    test_tiles plan = {.lanes = 8, .block_m = 4, .block_nv = 2, .unroll_k = 2};
    bool done = false;
    for (size_t limit = 512; !done; limit += limit / 8) {
        sx_ctx small;
        sx_ctx_init(&small, limit);
        sx_code code = everything(&small, &n, &plan, buffer);
        ck_assert_msg(code == SX_OK || code == SX_NOMEM, "limit %zu: %s", limit, small.error.text);
        done = code == SX_OK;
        sx_ctx_fini(&small);
        ck_assert_uint_lt(limit, SX_ARENA_DEFAULT);
    }
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_plans_at_their_edges)
{
    static const int64_t tiles[] = {INT64_MIN, -1, 0, 1, 7, INT64_MAX};
    static const uint32_t blocks[] = {0, 1, 2, 31, 32, UINT32_MAX};
    static const uint32_t unrolls[] = {0, 1, 5, UINT32_MAX};
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 300; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        node n = sample(&cx, round % 3);
        test_tiles plan = {.lanes = sx_rng_below(&rng, 9) == 0 ? 4
                                    : round % 2 == 0           ? 8
                                                               : 16,
                           .block_m = blocks[sx_rng_below(&rng, SX_COUNT(blocks))],
                           .block_nv = blocks[sx_rng_below(&rng, SX_COUNT(blocks))],
                           .tile_m = tiles[sx_rng_below(&rng, SX_COUNT(tiles))],
                           .tile_n = tiles[sx_rng_below(&rng, SX_COUNT(tiles))],
                           .unroll_k = unrolls[sx_rng_below(&rng, SX_COUNT(unrolls))],
                           .packed_b = sx_rng_below(&rng, 2) != 0};
        sx_kernel *kernel;
        sx_code code = lower_node(&cx, "k", &n, &plan, &kernel);
        ck_assert_msg(code == SX_OK || code == SX_LIMIT || code == SX_INPUT ||
                          code == SX_UNIMPLEMENTED,
                      "%s", cx.error.text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

/* A prime number of rows in a batch of many: counts of parts and instructions stay small. */
START_TEST(test_large_shapes)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_type x[2] = {TYPE(SX_F32, 1 << 18, 1021, 4099), TYPE(SX_F32, 1 << 18, 4099, 3001)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    test_tiles plan = {
        .lanes = 16, .block_m = 14, .block_nv = 2, .tile_m = 100, .tile_n = 500, .unroll_k = 4};
    node n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    sx_kernel *kernel;
    ck_sx_ok(&cx, lower_node(&cx, "k", &n, &plan, &kernel));
    ck_assert_uint_le(kernel->part_count, 8);
    uint32_t items = 0;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        items += kernel->part[p].item_count;
    }
    ck_assert_uint_lt(items, 8000);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.limits");
    TCase *cases = tcase_create("limits");
    tcase_add_loop_test(cases, test_memory_limits, 0, 3);
    tcase_add_test(cases, test_plans_at_their_edges);
    tcase_add_test(cases, test_large_shapes);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
