/* Fused nodes as values: what is valid, what is refused and with which text, hash and equality, single elements. */
#include <math.h>
#include <string.h>

#include "core/fuse/fuse.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

#define DIM(extent) ((sx_dim){extent, SX_NO_SYMBOL})

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* max(0, x . w + b) over the space [4, 6, 5], the last reduced: arguments x [4, 5], w [5, 6], b [6]. */
static sx_body body;
static sx_attr attr;
static sx_type input[3];

static void make_network(void)
{
    memset(&body, 0, sizeof(body));
    for (uint32_t a = 0; a < SX_FUSED_ARGS_MAX; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            body.access[a].stride[d] = DIM(0);
        }
        body.access[a].offset = DIM(0);
    }
    body.arg_count = 3;
    body.axes = 4;
    body.access[0].stride[0] = DIM(5);
    body.access[0].stride[2] = DIM(1);
    body.access[1].stride[1] = DIM(1);
    body.access[1].stride[2] = DIM(6);
    body.access[2].stride[1] = DIM(1);
    sx_instr program[] = {
        {.kind = SX_BODY_ARG, .x = 0, .dtype = SX_F32},
        {.kind = SX_BODY_ARG, .x = 1, .dtype = SX_F32},
        {.kind = SX_BODY_DOT, .x = 0, .y = 1, .dtype = SX_F32},
        {.kind = SX_BODY_ARG, .x = 2, .dtype = SX_F32},
        {.kind = SX_BODY_APPLY, .op = SX_OP_ADD, .x = 2, .y = 3, .dtype = SX_F32},
        {.kind = SX_BODY_IMM, .imm = 0, .dtype = SX_F32},
        {.kind = SX_BODY_APPLY, .op = SX_OP_MAXIMUM, .x = 5, .y = 4, .dtype = SX_F32}};
    memcpy(body.instr, program, sizeof(program));
    body.instr_count = SX_COUNT(program);
    attr = (sx_attr){.present = SX_A(type) | SX_A(body), .body = &body};
    attr.type = (sx_type){SX_F32, 3, {DIM(4), DIM(6), DIM(5)}};
    input[0] = (sx_type){SX_F32, 2, {DIM(4), DIM(5)}};
    input[1] = (sx_type){SX_F32, 2, {DIM(5), DIM(6)}};
    input[2] = (sx_type){SX_F32, 1, {DIM(6)}};
}

static void refused(const char *text)
{
    sx_type result;
    ck_sx_fails(&cx, sx_fused_infer(&cx, &attr, input, 3, &result), SX_INPUT, text);
    make_network();
}

START_TEST(accepts)
{
    sx_type result;
    make_network();
    ck_sx_ok(&cx, sx_fused_infer(&cx, &attr, input, 3, &result));
    sx_type expected = {SX_F32, 2, {DIM(4), DIM(6)}};
    ck_assert(sx_type_equal(&result, &expected));
    ck_assert_int_eq(sx_body_kernel_kind(&body), SX_KERNEL_DOT);
    ck_assert(!sx_body_result_is_full(&attr.type, &body));
}
END_TEST

START_TEST(refuses_spaces_and_accesses)
{
    sx_type result;
    make_network();
    ck_sx_fails(&cx, sx_fused_infer(&cx, &attr, input, 2, &result), SX_INPUT, "2 inputs for 3");
    attr.body = NULL;
    refused("no body");
    body.instr_count = 0;
    refused("no instruction");
    body.axes = 8;
    refused("reduced axes 0x8 in a space of rank 3");
    attr.type.dtype = SX_F64;
    refused("the result is f32, the space says f64");
    body.access[0].offset = DIM(1);
    refused("argument 0: the access is not shown to stay inside");
    body.access[1].stride[2] = DIM(7);
    refused("argument 1: the access");
    body.access[2].stride[0] = DIM(1);
    refused("argument 2: the access");
    body.access[2].stride[5] = DIM(1);
    refused("argument 2: stride 1 along dimension 5 of 3");
    body.access[2].stride[0] = DIM(-1);
    refused("argument 2: stride -1 along dimension 0");
    body.access[2].offset = DIM(-1);
    refused("argument 2: offset -1 is negative");
    body.access[2].offset = (sx_dim){1, 0};
    refused("argument 2: the access");
    body.access[2].stride[1] = DIM(INT64_MAX);
    refused("argument 2: the access");
    body.access[2].stride[1] = (sx_dim){1, 0};
    refused("argument 2: the access");
    attr.type.dim[0] = (sx_dim){1, 0};
    refused("argument 0: the access");
    attr.type.dim[0] = DIM(INT64_MAX);
    refused("extent 9223372036854775807 of dimension 0");
    attr.type.dim[2] = DIM(0);
    refused("extent 0 of dimension 2, from 1");
    attr.type.rank = 9;
    ck_sx_fails(&cx, sx_fused_infer(&cx, &attr, input, 3, &result), SX_LIMIT, "rank 9");
    make_network();
    body.arg_count = 17;
    ck_sx_fails(&cx, sx_fused_infer(&cx, &attr, input, 3, &result), SX_LIMIT, "17 arguments");
}
END_TEST

START_TEST(refuses_programs)
{
    make_network();
    body.instr[2].x = 2;
    refused("instruction 2: operand 0 is instruction 2");
    body.instr[4].y = 200;
    refused("instruction 4: operand 1 is instruction 200");
    body.instr[0].x = 3;
    refused("instruction 0: argument 3 of 3");
    body.instr[0].dtype = SX_BF16;
    refused("instruction 0: argument 0 is f32, not bf16");
    body.instr[5].dtype = SX_I32;
    refused("instruction 6: ");
    body.instr[6].dtype = SX_BOOL;
    refused("instruction 6: maximum gives f32, not bool");
    body.instr[6].op = SX_OP_RESHAPE;
    refused("applies to no scalar");
    body.instr[6].op = SX_OP_COUNT;
    refused("applies to no scalar");
    body.instr[6].op = SX_OP_AND;
    refused("instruction 6: and");
    body.instr[6] = (sx_instr){.kind = SX_BODY_APPLY, .op = SX_OP_GELU, .x = 4, .dtype = SX_F32};
    refused("gelu is a composite");
    body.instr[6].y = 3;
    refused("instruction 4 is used by no later one");
    body.instr[6] = (sx_instr){.kind = SX_BODY_REDUCE, .x = 4, .dtype = SX_F32};
    refused("used by no later one");
    body.axes = 0;
    refused("instruction 2: reduction over no axis");
    body.instr[2].kind = SX_BODY_APPLY;
    body.instr[2].op = SX_OP_MULTIPLY;
    refused("reduced axes 0x4 and no reduction");
    body.instr[3] = (sx_instr){.kind = SX_BODY_INDEX, .x = 2, .dtype = SX_F32};
    refused("depends on a contracted axis outside of the dot");
    body.instr[3] = (sx_instr){.kind = SX_BODY_INDEX, .x = 3, .dtype = SX_F32};
    refused("instruction 3: index of dimension 3 of 3");
    body.instr[3] = (sx_instr){.kind = SX_BODY_DOT, .x = 1, .y = 0, .dtype = SX_F32};
    refused("2 dots and 0 reductions");
    body.instr[3] = (sx_instr){.kind = SX_BODY_REDUCE, .x = 1, .dtype = SX_F32};
    refused("1 dots and 1 reductions");
    body.instr[3] = (sx_instr){.kind = SX_BODY_IMM, .imm = 0.5, .dtype = SX_I32};
    refused("0.5 is no value of i32");
    body.instr[3] = (sx_instr){.kind = SX_BODY_IMM, .imm = 256, .dtype = SX_U8};
    refused("256 is no value of u8");
    body.instr[3] = (sx_instr){.kind = SX_BODY_DOT, .x = 2, .y = 0, .dtype = SX_F32};
    refused("operands of a dot are arguments");
    body.instr[3].kind = (sx_body_kind)77;
    refused("kind 77");
    body.instr[3].dtype = (sx_dtype)99;
    refused("element type 99");
}
END_TEST

/* A dot may have narrower operands: those whose elements all are elements of its type. */
START_TEST(dots_that_widen)
{
    static const struct {
        sx_dtype left, right, sum;
        bool taken;
    } row[] = {
        {SX_BF16, SX_BF16, SX_F32, true},  {SX_F16, SX_F32, SX_F32, true},
        {SX_I8, SX_I8, SX_I32, true},      {SX_U8, SX_I8, SX_I32, true},
        {SX_I16, SX_I32, SX_I32, true},    {SX_F32, SX_BF16, SX_BF16, false},
        {SX_BF16, SX_BF16, SX_F16, false}, {SX_BF16, SX_BF16, SX_F64, false},
        {SX_I8, SX_I8, SX_F32, false},     {SX_I64, SX_I32, SX_I32, false},
        {SX_BOOL, SX_BOOL, SX_I32, false}, {SX_F8E4M3, SX_F8E4M3, SX_F32, false},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sx_ctx own;
        sx_ctx_init(&own, SX_ARENA_DEFAULT);
        sx_type x[2] = {{row[i].left, 2, {sx_dim_of(4), sx_dim_of(8)}},
                        {row[i].right, 2, {sx_dim_of(8), sx_dim_of(6)}}};
        sx_body dot = {.arg_count = 2, .instr_count = 3, .axes = 4};
        sx_attr product = {.present = SX_A(type) | SX_A(body), .body = &dot};
        product.type = (sx_type){row[i].sum, 3, {sx_dim_of(4), sx_dim_of(6), sx_dim_of(8)}};
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
                int64_t left = d == 0 ? 8 : d == 2 ? 1 : 0, right = d == 1 ? 1 : d == 2 ? 6 : 0;
                dot.access[k].stride[d] = sx_dim_of(k == 0 ? left : right);
            }
            dot.access[k].offset = sx_dim_of(0);
            dot.instr[k] = (sx_instr){.kind = SX_BODY_ARG, .x = k, .dtype = x[k].dtype};
        }
        dot.instr[2] = (sx_instr){.kind = SX_BODY_DOT, .x = 0, .y = 1, .dtype = row[i].sum};
        sx_type result;
        if (row[i].taken) {
            ck_sx_ok(&own, sx_fused_infer(&own, &product, x, 2, &result));
            ck_assert_int_eq(result.dtype, row[i].sum);
        } else {
            ck_sx_fails(&own, sx_fused_infer(&own, &product, x, 2, &result), SX_INPUT, "gives no");
        }
        sx_ctx_fini(&own);
    }
}
END_TEST

/* Equality and hash look at what carries meaning: unused operands and symbols of zero do not. */
START_TEST(hash_and_equality)
{
    make_network();
    sx_body other = body;
    ck_assert(sx_body_equal(&body, &other));
    other.instr[0].y = 5;
    other.instr[2].imm = 3;
    other.access[2].stride[0] = (sx_dim){0, 3};
    other.access[9].offset = DIM(7);
    ck_assert(sx_body_equal(&body, &other));
    ck_assert_uint_eq(sx_body_hash(&body), sx_body_hash(&other));
    sx_body changed[6];
    for (uint32_t k = 0; k < 6; k++) {
        changed[k] = body;
    }
    changed[0].instr[6].x = 4;
    changed[1].instr[6].op = SX_OP_MINIMUM;
    changed[2].instr[5].imm = -0.0;
    changed[3].access[2].stride[1] = (sx_dim){1, 0};
    changed[4].access[0].offset = DIM(1);
    changed[5].axes = 2;
    for (uint32_t k = 0; k < 6; k++) {
        ck_assert_msg(!sx_body_equal(&body, &changed[k]), "change %u", k);
        ck_assert_msg(sx_body_hash(&body) != sx_body_hash(&changed[k]), "change %u", k);
    }
}
END_TEST

/* ---- single elements ---- */
static sx_span packed(const sx_tensor *tensor, sx_buf *buf)
{
    sx_buf_init(buf, (size_t)1 << 20);
    ck_sx_ok(&cx, sx_tensor_pack(&cx, tensor, buf));
    return sx_buf_span(buf);
}

/* Every element of lifted operations, in random order, from the stored bytes. */
START_TEST(single_elements)
{
    sx_rng rng = {sx_test_seed()};
    static const sx_op ops[] = {SX_OP_DOT_GENERAL, SX_OP_SOFTMAX, SX_OP_LAYER_NORM, SX_OP_REDUCE,
                                SX_OP_ADD,         SX_OP_CONVERT, SX_OP_ONLINE_DOT};
    for (uint32_t k = 0; k < 140; k++) {
        sx_test_op t;
        sx_attr fused;
        sx_tensor x[4];
        sx_buf buf[4];
        sx_span raw[4];
        sx_eval_mode mode = k % 2 == 0 ? SX_EVAL_F64 : SX_EVAL_TYPED;
        sx_test_op_make(&cx, &rng, ops[k % 7], &t);
        if (sx_fused_lift(&cx, t.op, &t.attr, t.input, t.input_count, &t.result, &fused) != SX_OK) {
            sx_ctx_reset_error(&cx); // an outer product of rank 8
            continue;
        }
        for (uint32_t i = 0; i < t.input_count; i++) {
            sx_test_tensor(&cx, &rng, mode, &t.input[i], &x[i]);
            raw[i] = packed(&x[i], &buf[i]);
        }
        sx_tensor whole = sx_test_eval(&cx, SX_OP_FUSED, &fused, mode, x, t.input_count);
        int64_t position[50];
        double value[50];
        for (uint32_t i = 0; i < 50; i++) {
            position[i] = (int64_t)sx_rng_below(&rng, (uint64_t)sx_tensor_elements(&t.result));
        }
        ck_sx_ok(&cx, sx_fused_eval_at(&cx, &fused, mode, t.input, raw, t.input_count, position, 50,
                                       value));
        for (uint32_t i = 0; i < 50; i++) {
            bool is_float = sx_dtype_class_of(t.result.dtype) == SX_CLASS_FLOAT;
            double expected = is_float ? ((double *)whole.data)[position[i]]
                                       : (double)((int64_t *)whole.data)[position[i]];
            ck_assert_msg(value[i] == expected || (isnan(value[i]) && isnan(expected)),
                          "%s at %lld: %.17g, expected %.17g", sx_op_info_of(t.op)->name,
                          (long long)position[i], value[i], expected);
        }
        for (uint32_t i = 0; i < t.input_count; i++) {
            sx_buf_fini(&buf[i]);
        }
    }
}
END_TEST

START_TEST(single_elements_refused)
{
    uint8_t bytes[4 * 30] = {0};
    sx_span raw[3] = {{bytes, 80}, {bytes, 120}, {bytes, 24}};
    int64_t position[2] = {23, 24};
    double value[2];
    make_network();
    ck_sx_ok(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 3, position, 1, value));
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 3, position, 2, value),
                SX_INPUT, "position 24 of 24");
    raw[1].len = 119;
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 3, position, 1, value),
                SX_INPUT, "argument 1 has 119 bytes");
    raw[1].len = 120;
    cx.fuel = 5;
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 3, position, 1, value),
                SX_QUOTA, "");
    cx.fuel = 1000;
    attr.type.dim[0] = (sx_dim){1, 0};
    input[0].dim[0] = (sx_dim){1, 0};
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, input, raw, 3, position, 1, value),
                SX_INPUT, "a symbol has no value");
}
END_TEST

/* A space that costs nothing to write and for ever to walk: out of fuel or refused, at once. */
START_TEST(endless_spaces)
{
    sx_instr sum[2] = {{.kind = SX_BODY_INDEX, .x = 0, .dtype = SX_I64},
                       {.kind = SX_BODY_REDUCE, .x = 0, .dtype = SX_I64}};
    int64_t position = 0;
    double value;
    make_network();
    memcpy(body.instr, sum, sizeof(sum));
    body.instr_count = 2;
    body.arg_count = 0;
    body.axes = 1;
    attr.type = (sx_type){SX_I64, 1, {DIM(SX_EXTENT_MAX)}};
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, NULL, NULL, 0, &position, 1, &value),
                SX_QUOTA, "");
    cx.fuel = 1000000;
    body.axes = 3;
    attr.type = (sx_type){SX_I64, 2, {DIM(SX_EXTENT_MAX), DIM(SX_EXTENT_MAX)}};
    ck_sx_fails(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, NULL, NULL, 0, &position, 1, &value),
                SX_LIMIT, "a row has more than");
    body.axes = 1;
    attr.type = (sx_type){SX_I64, 1, {DIM(1000)}};
    ck_sx_ok(&cx, sx_fused_eval_at(&cx, &attr, SX_EVAL_F64, NULL, NULL, 0, &position, 1, &value));
    ck_assert(value == 499500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fused");
    TCase *tcase = tcase_create("fused");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, accepts);
    tcase_add_test(tcase, refuses_spaces_and_accesses);
    tcase_add_test(tcase, refuses_programs);
    tcase_add_test(tcase, dots_that_widen);
    tcase_add_test(tcase, hash_and_equality);
    tcase_add_test(tcase, single_elements);
    tcase_add_test(tcase, single_elements_refused);
    tcase_add_test(tcase, endless_spaces);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
