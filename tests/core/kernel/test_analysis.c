/* What the analysis says of kernels, by hand: roles, extents, figures, refusals. */
#include "tests/core/loop/nodes.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void check_extents(const sx_analysis *a, int64_t b, int64_t m, int64_t n, int64_t k,
                          int64_t d)
{
    ck_assert_int_eq(a->extent[SX_ROLE_BATCH], b);
    ck_assert_int_eq(a->extent[SX_ROLE_ROW], m);
    ck_assert_int_eq(a->extent[SX_ROLE_COLUMN], n);
    ck_assert_int_eq(a->extent[SX_ROLE_SUM], k);
    ck_assert_int_eq(a->extent[SX_ROLE_INNER], d);
}

START_TEST(test_map)
{
    sx_type x = TYPE(SX_F32, 3, 4, 5);
    sx_attr none = {.present = 0};
    node n = lift(&cx, SX_OP_EXP, &none, &x, 1);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_assert_int_eq(a->kind, SX_KERNEL_MAP);
    check_extents(a, 1, 1, 60, 1, 1); /* contiguous: one dimension */
    ck_assert_double_eq(a->flops, 60);
    ck_assert_double_eq(a->work, 60 * sx_op_weight(SX_OP_EXP));
    ck_assert_double_eq(a->bytes, 480);
    sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
    n = lift(&cx, SX_OP_TRANSPOSE, &perm, &x, 1);
    a = analysis_of(&cx, &n);
    check_extents(a, 1, 15, 4, 1, 1); /* the columns of the result are contiguous */
    ck_assert_uint_eq(a->view.rank, 3);
}
END_TEST

START_TEST(test_row)
{
    sx_type x = TYPE(SX_F32, 6, 7, 33);
    sx_attr attr = {.present = SX_A(axis), .axis = 2};
    node n = lift(&cx, SX_OP_SOFTMAX, &attr, &x, 1);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_assert_int_eq(a->kind, SX_KERNEL_ROW);
    check_extents(a, 1, 42, 1, 33, 1);
    ck_assert(a->along && a->full);
    attr.axis = 1;
    n = lift(&cx, SX_OP_SOFTMAX, &attr, &x, 1);
    a = analysis_of(&cx, &n);
    check_extents(a, 1, 6, 33, 7, 1);
    ck_assert(!a->along && a->full);
    sx_attr sum = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {2}}, .reducer = SX_SUM};
    n = lift(&cx, SX_OP_REDUCE, &sum, &x, 1);
    a = analysis_of(&cx, &n);
    ck_assert(a->along && !a->full);
    ck_assert_double_eq(a->bytes, 4.0 * (6 * 7 * 33 + 6 * 7));
}
END_TEST

static sx_attr dot_attr(bool batched, uint32_t lhs_contract, uint32_t rhs_contract)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){batched ? 1 : 0, {0}};
    attr.lhs_contract = (sx_ints){1, {lhs_contract}};
    attr.rhs_contract = (sx_ints){1, {rhs_contract}};
    return attr;
}

START_TEST(test_contraction)
{
    sx_type x[2] = {TYPE(SX_F32, 2, 9, 30), TYPE(SX_F32, 2, 30, 20)};
    sx_attr attr = dot_attr(true, 2, 1);
    node n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    const sx_analysis *a = analysis_of(&cx, &n);
    ck_assert_int_eq(a->kind, SX_KERNEL_DOT);
    check_extents(a, 2, 9, 20, 30, 1);
    ck_assert_int_eq(a->rhs_copies, 2);
    ck_assert(a->rhs_direct && a->rhs_packable && !a->swapped);
    ck_assert_uint_eq(a->lhs, 0);
    ck_assert_uint_eq(a->rhs, 1);
    ck_assert_double_eq(a->flops, 2.0 * 2 * 9 * 20 * 30);
    ck_assert_double_eq(a->bytes, 4.0 * 2 * (9 * 30 + 30 * 20 + 9 * 20));
    x[1] = TYPE(SX_F32, 2, 20, 30); /* columns lie apart */
    attr = dot_attr(true, 2, 2);
    n = lift(&cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    ck_assert(!analysis_of(&cx, &n)->rhs_direct);
    sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
    node t =
        lift(&cx, SX_OP_TRANSPOSE, &perm, &n.result, 1); /* its columns are those of the left one */
    n = inlined(&cx, &t, 0, &n);
    a = analysis_of(&cx, &n);
    ck_assert(a->swapped);
    ck_assert_uint_eq(a->lhs, 1);
    check_extents(a, 2, 20, 9, 30, 1);
}
END_TEST

/* Symbols count as the values given; without values they are refused. */
START_TEST(test_symbols)
{
    sx_type x = TYPE(SX_F32, 1, 16);
    x.dim[0] = (sx_dim){2, 0};
    sx_symbol symbol = {.name = SX_SPAN_LITERAL("batch"), .low = 1, .high = 100};
    sx_attr attr = {.present = SX_A(axis), .axis = 1};
    sx_type result;
    sx_attr fused;
    ck_sx_ok(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_SOFTMAX, &attr, &x, 1, &result));
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_SOFTMAX, &attr, &x, 1, &result, &fused));
    sx_analysis a;
    int64_t seven = 7;
    ck_sx_ok(&cx, sx_analysis_of_checked(&cx, &fused, &x, 1, &result, &seven, &a));
    check_extents(&a, 1, 14, 1, 16, 1);
    ck_assert_double_eq(a.bytes, 2 * 4.0 * 14 * 16);
    ck_sx_fails(&cx, sx_analysis_of_checked(&cx, &fused, &x, 1, &result, NULL, &a),
                SX_UNIMPLEMENTED, "dimension 0 of the space is symbolic");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel.analysis");
    TCase *cases = tcase_create("analysis");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_map);
    tcase_add_test(cases, test_row);
    tcase_add_test(cases, test_contraction);
    tcase_add_test(cases, test_symbols);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
