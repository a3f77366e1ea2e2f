/* try.h - lowered nodes before the judge; shared by these tests. */
#ifndef SX_TESTS_CORE_JUDGE_TRY_H
#define SX_TESTS_CORE_JUDGE_TRY_H
#include "tests/core/loop/nodes.h"

#include "core/judge/judge.h"
#include "tests/lib/unit.h"

/* The verdict on the kernel of `n` under the schedule, and on the packing kernel if there is one. */
SX_UNUSED static void expect_proven(sx_ctx *cx, sx_judge *judge, const node *n,
                                    const sx_schedule *schedule, const char *what)
{
    sx_kernel *kernel;
    sx_verdict verdict;
    const sx_analysis *a = analysis_of(cx, n);
    sx_judge_facts facts = sx_judge_facts_of(schedule, a->kind);
    ck_sx_ok(cx, sx_lower_fused(cx, sx_test_unit(schedule), "node", a, schedule, &kernel));
    ck_sx_ok(cx, sx_judge_kernel(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
    ck_assert_msg(verdict.proven, "%s: lanes %u: %s", what, kernel->lanes, verdict.text);
    if (facts.panel > 0) {
        int64_t size;
        ck_sx_ok(cx, sx_lower_pack(cx, "pack", a, schedule, &kernel, &size));
        ck_sx_ok(cx, sx_judge_pack(judge, &n->fused, n->input, n->count, &facts, kernel, &verdict));
        ck_assert_msg(verdict.proven, "%s: pack: lanes %u: %s", what, kernel->lanes, verdict.text);
    }
}

SX_UNUSED static node row_node(sx_ctx *cx, sx_op op, int64_t rows, int64_t length, int64_t axis)
{
    sx_type x[3] = {TYPE(SX_F32, rows, length), TYPE(SX_F32, length), TYPE(SX_F32, length)};
    sx_attr attr = {.present = SX_A(axis), .axis = axis, .eps = 1e-5};
    attr.present |= op == SX_OP_LAYER_NORM ? SX_A(eps) : 0;
    return lift(cx, op, &attr, x, op == SX_OP_LAYER_NORM ? 3 : 1);
}

SX_UNUSED static node dot_node(sx_ctx *cx, int64_t m, int64_t k, int64_t n, sx_op function)
{
    sx_type x[2] = {TYPE(SX_F32, m, k), TYPE(SX_F32, k, n)};
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    node d = lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    d = with_tensor(cx, SX_OP_ADD, &d, TYPE(SX_F32, n));
    return unary(cx, function, &d);
}

SX_UNUSED static node map_node(sx_ctx *cx, int64_t a, int64_t b, int64_t c)
{
    sx_type x = TYPE(SX_F32, a, b, c);
    sx_attr none = {.present = 0};
    node n = lift(cx, SX_OP_GELU, &none, &x, 1);
    return with_tensor(cx, SX_OP_MULTIPLY, &n, TYPE(SX_F32, c));
}

/* One truth value for each pair of elements. */
SX_UNUSED static node compare_node(sx_ctx *cx, int64_t a, int64_t b)
{
    sx_type x[2] = {TYPE(SX_F32, a, b), TYPE(SX_F32, a, b)};
    sx_attr attr = {.present = SX_A(direction), .direction = SX_LT};
    return lift(cx, SX_OP_COMPARE, &attr, x, 2);
}

/* Bits moved by a number of places for each element, and back by one for each column. */
SX_UNUSED static node shift_node(sx_ctx *cx, int64_t a, int64_t b)
{
    sx_type x[2] = {TYPE(SX_I32, a, b), TYPE(SX_I32, a, b)};
    sx_attr none = {.present = 0};
    node n = lift(cx, SX_OP_SHIFT_LEFT, &none, x, 2);
    n = with_tensor(cx, SX_OP_SHIFT_RIGHT_ARITHMETIC, &n, TYPE(SX_I32, b));
    return with_tensor(cx, SX_OP_SHIFT_RIGHT_LOGICAL, &n, TYPE(SX_I32, b));
}

/* Sums of the rows of a turned matrix in batches. */
SX_UNUSED static node batched_node(sx_ctx *cx, int64_t batch, int64_t m, int64_t k, int64_t n)
{
    sx_type x[2] = {TYPE(SX_F32, batch, m, k), TYPE(SX_F32, batch, n, k)};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = attr.rhs_contract = (sx_ints){1, {2}};
    return lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
}

/* Attention, its scores computed inside or read. */
SX_UNUSED static node attention_node(sx_ctx *cx, bool inside, const int64_t extent[5])
{
    int64_t batch = extent[0], rows = extent[1], keys = extent[2], columns = extent[3];
    sx_type x[2] = {TYPE(SX_F32, batch, rows, keys), TYPE(SX_F32, batch, keys, columns)};
    sx_type qk[2] = {TYPE(SX_F32, batch, rows, extent[4]), TYPE(SX_F32, batch, keys, extent[4])};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_ONLINE_DOT)->attrs, .form = 1};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {2}};
    attr.rhs_contract = (sx_ints){1, {1}};
    node n = lift(cx, SX_OP_ONLINE_DOT, &attr, x, 2);
    attr.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs;
    attr.form = 0;
    attr.rhs_contract = (sx_ints){1, {2}};
    node scores = lift(cx, SX_OP_DOT_GENERAL, &attr, qk, 2);
    return inside ? inlined(cx, &n, 0, &scores) : n;
}

#endif
