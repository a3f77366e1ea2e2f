/* Lifting: a lifted operation means the operation, in every mode, bit for bit. */
#include <stdio.h>
#include <string.h>

#include "core/fuse/fuse.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

static const char *const mode_name[] = {"f64", "typed", "modp", "pow2"};

static bool is_liftable(sx_op op)
{
    sx_op_class c = sx_op_info_of(op)->op_class;
    return c != SX_OPCLASS_CONCAT && c != SX_OPCLASS_MOVE && c != SX_OPCLASS_GATHER &&
           c != SX_OPCLASS_SCATTER && c != SX_OPCLASS_DYNAMIC && c != SX_OPCLASS_FUSED &&
           c != SX_OPCLASS_REGION && c != SX_OPCLASS_SORT && c != SX_OPCLASS_COLLECTIVE &&
           op != SX_OP_PARAMETER && op != SX_OP_RESHAPE && op != SX_OP_ATTENTION;
}

static bool is_padded(const sx_attr *attr)
{
    bool any = false;
    for (uint32_t d = 0; d < attr->low.count; d++) {
        any = any || attr->low.v[d] != 0 || attr->high.v[d] != 0;
    }
    return any;
}

/* Dimensions of the window that are walked. */
static uint32_t window_rank(const sx_test_op *t)
{
    uint32_t rank = 0;
    for (uint32_t d = 0; d < t->attr.window.count; d++) {
        rank += t->attr.window.v[d] > 1;
    }
    for (uint32_t d = 1; t->op == SX_OP_CONVOLUTION && d < t->input[1].rank; d++) {
        rank += t->input[1].dim[d].scale > 1;
    }
    return rank;
}

/* A lift may be refused only for a constant with more than one element, for an outer product without room for
 * an axis, for windows with padding or without room, and for groups of several output channels. */
static bool may_refuse(const sx_test_op *t)
{
    if (t->op == SX_OP_DOT_GENERAL) {
        return t->attr.lhs_contract.count == 0 && t->result.rank == SX_RANK_MAX;
    }
    if (t->op == SX_OP_CONVOLUTION || t->op == SX_OP_REDUCE_WINDOW) {
        bool split = t->op == SX_OP_CONVOLUTION && t->attr.groups > 1 &&
                     t->input[1].dim[0].scale != t->attr.groups;
        return is_padded(&t->attr) || split || t->result.rank + window_rank(t) > SX_RANK_MAX;
    }
    if (t->op == SX_OP_ONLINE_DOT && t->input_count == 2) {
        const sx_ints *sum = &t->attr.lhs_contract;
        bool ascending = true;
        for (uint32_t k = 1; k < sum->count; k++) {
            ascending = ascending && sum->v[k] > sum->v[k - 1];
        }
        return !ascending || t->result.rank + sum->count > SX_RANK_MAX;
    }
    return t->op == SX_OP_CONSTANT && t->attr.data.len != sx_dtype_bytes(t->result.dtype);
}

static void check_one(sx_ctx *cx, sx_rng *rng, const sx_test_op *t, uint32_t *lifted)
{
    sx_attr fused;
    sx_type type;
    sx_code code = sx_fused_lift(cx, t->op, &t->attr, t->input, t->input_count, &t->result, &fused);
    if (may_refuse(t)) {
        ck_assert_int_eq(code, SX_UNIMPLEMENTED);
        sx_ctx_reset_error(cx);
        return;
    }
    ck_assert_msg(code == SX_OK, "%s: %s", sx_op_info_of(t->op)->name, cx->error.text);
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, SX_OP_FUSED, &fused, t->input, t->input_count, &type));
    ck_assert_msg(sx_type_equal(&type, &t->result), "%s", sx_op_info_of(t->op)->name);
    for (sx_eval_mode mode = SX_EVAL_F64; mode <= SX_EVAL_POW2; mode++) {
        sx_tensor input[SX_TEST_INPUTS_MAX];
        char what[96];
        for (uint32_t k = 0; k < t->input_count; k++) {
            sx_test_tensor(cx, rng, mode, &t->input[k], &input[k]);
        }
        sx_tensor expected = sx_test_eval(cx, t->op, &t->attr, mode, input, t->input_count);
        sx_tensor found = sx_test_eval(cx, SX_OP_FUSED, &fused, mode, input, t->input_count);
        (void)snprintf(what, sizeof(what), "%s, %s", sx_op_info_of(t->op)->name, mode_name[mode]);
        sx_test_tensor_equal(&expected, &found, what);
    }
    (*lifted)++;
}

START_TEST(lift_of_every_operation)
{
    sx_rng rng = {sx_test_seed()};
    for (sx_op op = 0; op < SX_OP_COUNT; op++) {
        uint32_t lifted = 0;
        for (uint32_t k = 0; is_liftable(op) && (k < 40 || lifted <= 5) && k < 1000; k++) {
            sx_ctx cx;
            sx_test_op t;
            sx_ctx_init(&cx, (size_t)64 << 20);
            sx_test_op_make(&cx, &rng, op, &t);
            check_one(&cx, &rng, &t, &lifted);
            sx_ctx_fini(&cx);
        }
        ck_assert_msg(!is_liftable(op) || lifted > 5, "%s lifted %u times", sx_op_info_of(op)->name,
                      lifted);
    }
}
END_TEST

START_TEST(lift_refuses)
{
    sx_rng rng = {sx_test_seed()};
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)64 << 20);
    static const sx_op refused[] = {SX_OP_RESHAPE, SX_OP_CONCATENATE,   SX_OP_GATHER,
                                    SX_OP_SCATTER, SX_OP_DYNAMIC_SLICE, SX_OP_DYNAMIC_UPDATE_SLICE,
                                    SX_OP_REVERSE, SX_OP_PAD,           SX_OP_ATTENTION,
                                    SX_OP_SORT};
    for (uint32_t k = 0; k < SX_COUNT(refused); k++) {
        sx_test_op t;
        sx_attr fused;
        sx_test_op_make(&cx, &rng, refused[k], &t);
        ck_sx_fails(&cx,
                    sx_fused_lift(&cx, t.op, &t.attr, t.input, t.input_count, &t.result, &fused),
                    SX_UNIMPLEMENTED, sx_op_info_of(t.op)->name);
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* [batch, 8] . [8, 16] with a symbolic batch: strides and extents carry the symbol, the proof of ranges goes
 * through. */
START_TEST(lift_symbolic_dot)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_dim batch = {1, 0};
    sx_type input[2] = {{SX_F32, 2, {batch, {8, SX_NO_SYMBOL}}},
                        {SX_F32, 2, {{8, SX_NO_SYMBOL}, {16, SX_NO_SYMBOL}}}};
    sx_symbol symbol = {SX_SPAN_LITERAL("batch"), 1, 4096, NULL};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    sx_type result;
    sx_type again;
    sx_attr fused;
    ck_sx_ok(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_DOT_GENERAL, &attr, input, 2, &result));
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_DOT_GENERAL, &attr, input, 2, &result, &fused));
    ck_sx_ok(&cx, sx_infer_type(&cx, &symbol, 1, SX_OP_FUSED, &fused, input, 2, &again));
    ck_assert(sx_type_equal(&result, &again));
    ck_assert_int_eq(sx_body_kernel_kind(fused.body), SX_KERNEL_DOT);
    ck_assert_uint_eq(fused.type.rank, 3);
    ck_assert_uint_eq(fused.body->axes, 4);
    ck_assert_int_eq(fused.body->access[0].stride[0].scale, 8);
    ck_assert_int_eq(fused.body->access[1].stride[2].scale, 16);
    sx_ctx_fini(&cx);
}
END_TEST

/* Transposing [batch, 3, 4] makes a stride that holds for every batch; a stride may have two symbols, and no third. */
START_TEST(lift_symbolic_transpose)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)16 << 20);
    sx_type input = {SX_F32, 3, {{1, 0}, {3, SX_NO_SYMBOL}, {1, 1}}};
    sx_symbol symbol[2] = {{SX_SPAN_LITERAL("a"), 1, 64, NULL},
                           {SX_SPAN_LITERAL("b"), 1, 64, NULL}};
    sx_attr attr = {.present = SX_A(perm), .perm = {3, {2, 0, 1}}};
    sx_type result;
    sx_type again;
    sx_attr fused;
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_TRANSPOSE, &attr, &input, 1, &result));
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_TRANSPOSE, &attr, &input, 1, &result, &fused));
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_FUSED, &fused, &input, 1, &again));
    ck_assert_int_eq(fused.body->access[0].stride[1].scale, 3);
    ck_assert_uint_eq(fused.body->access[0].stride[1].symbol, 1);
    sx_type both = {SX_F32, 3, {{4, SX_NO_SYMBOL}, {1, 0}, {1, 1}}};
    attr.perm = (sx_ints){3, {1, 0, 2}};
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_TRANSPOSE, &attr, &both, 1, &result));
    ck_sx_ok(&cx, sx_fused_lift(&cx, SX_OP_TRANSPOSE, &attr, &both, 1, &result, &fused));
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_FUSED, &fused, &both, 1, &again));
    ck_assert(sx_type_equal(&again, &result));
    sx_dim factor[2];
    ck_assert(sx_dim_factors(fused.body->access[0].stride[1], factor));
    ck_assert(factor[0].symbol == 0 && factor[1].symbol == 1);
    ck_assert_int_eq(fused.body->access[0].stride[1].scale, 1);
    sx_type three = {SX_F32, 4, {{4, SX_NO_SYMBOL}, {1, 0}, {1, 1}, {1, 1}}};
    attr.perm = (sx_ints){4, {1, 0, 2, 3}};
    ck_sx_ok(&cx, sx_infer_type(&cx, symbol, 2, SX_OP_TRANSPOSE, &attr, &three, 1, &result));
    ck_sx_fails(&cx, sx_fused_lift(&cx, SX_OP_TRANSPOSE, &attr, &three, 1, &result, &fused),
                SX_UNIMPLEMENTED, "transpose");
    sx_ctx_fini(&cx);
}
END_TEST

/* Whether a row of no elements is read along its axis cannot be told from strides. */
START_TEST(lift_of_an_empty_square)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    const sx_attr attr = {.present = SX_A(axis), .axis = 0};
    const sx_type none = {SX_F32, 2, {sx_dim_of(0), sx_dim_of(0)}};
    sx_attr fused;
    ck_sx_fails(&cx, sx_fused_lift(&cx, SX_OP_SOFTMAX, &attr, &none, 1, &none, &fused),
                SX_UNIMPLEMENTED, "softmax: no elements");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lift");
    TCase *tcase = tcase_create("lift");
    tcase_add_test(tcase, lift_of_every_operation);
    tcase_add_test(tcase, lift_refuses);
    tcase_add_test(tcase, lift_symbolic_dot);
    tcase_add_test(tcase, lift_symbolic_transpose);
    tcase_add_test(tcase, lift_of_an_empty_square);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
