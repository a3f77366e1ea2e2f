#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/ir.h"
#include "core/ir/program.h"

START_TEST(test_dtypes)
{
    for (uint32_t i = 0; i < SX_DTYPE_COUNT; i++) {
        sx_dtype back;
        ck_assert(sx_dtype_parse(sx_span_of(sx_dtype_name((sx_dtype)i)), &back));
        ck_assert_int_eq(back, (int)i);
    }
    sx_dtype dtype;
    ck_assert(!sx_dtype_parse(sx_span_of("f128"), &dtype));
    ck_assert(!sx_dtype_parse(sx_span_of(""), &dtype));
    ck_assert_str_eq(sx_dtype_name(SX_BOOL), "bool");
    ck_assert_uint_eq(sx_dtype_bytes(SX_BF16), 2);
    ck_assert_uint_eq(sx_dtype_bytes(SX_F8E5M2), 1);
    ck_assert_int_eq(sx_dtype_class_of(SX_U8), SX_CLASS_INT);
}
END_TEST

/* Files outlive their programs: what a number meant once it means for ever. */
START_TEST(test_dtype_numbers)
{
    static const char *const name[] = {"f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2",
                                       "i64", "i32", "i8",   "u8",  "bool",   "i16"};
    ck_assert_uint_eq(SX_DTYPE_COUNT, SX_COUNT(name));
    for (uint32_t i = 0; i < SX_COUNT(name); i++) {
        ck_assert_str_eq(sx_dtype_name((sx_dtype)i), name[i]);
    }
}
END_TEST

START_TEST(test_dims)
{
    sx_dim batch = {1, 0};
    sx_dim batch2 = {2, 0};
    sx_dim seq = {1, 1};
    sx_dim r;
    ck_assert(sx_dim_multiply(batch, sx_dim_of(12), &r) && r.scale == 12 && r.symbol == 0);
    ck_assert(sx_dim_multiply(sx_dim_of(3), batch2, &r) && r.scale == 6 && r.symbol == 0);
    ck_assert(!sx_dim_multiply(batch, seq, &r));
    ck_assert(sx_dim_multiply(batch, sx_dim_of(0), &r) && sx_dim_is_constant(r) && r.scale == 0);
    ck_assert(!sx_dim_multiply(sx_dim_of(INT64_MAX), sx_dim_of(2), &r));
    ck_assert(sx_dim_add(batch, batch2, &r) && r.scale == 3 && r.symbol == 0);
    ck_assert(!sx_dim_add(batch, sx_dim_of(1), &r));
    ck_assert(sx_dim_add(batch, sx_dim_of(0), &r) && sx_dim_equal(r, batch));
    ck_assert(!sx_dim_add(sx_dim_of(INT64_MAX), sx_dim_of(1), &r));
    ck_assert(sx_dim_divide(batch2, batch, &r) && sx_dim_is_constant(r) && r.scale == 2);
    ck_assert(sx_dim_divide(batch2, sx_dim_of(2), &r) && sx_dim_equal(r, batch));
    ck_assert(!sx_dim_divide(batch, sx_dim_of(2), &r));
    ck_assert(!sx_dim_divide(sx_dim_of(4), batch, &r));
    ck_assert(!sx_dim_divide(batch, seq, &r));
    ck_assert(!sx_dim_divide(sx_dim_of(4), sx_dim_of(0), &r));
    ck_assert(sx_dim_equal((sx_dim){0, 0}, sx_dim_of(0)));
    ck_assert(!sx_dim_equal(batch, sx_dim_of(1)));
}
END_TEST

START_TEST(test_elements_and_strides)
{
    sx_type type = {SX_F32, 3, {{2, 0}, sx_dim_of(3), sx_dim_of(4)}};
    sx_dim n;
    sx_dim stride[SX_RANK_MAX];
    ck_assert(sx_type_elements(&type, &n) && n.scale == 24 && n.symbol == 0);
    ck_assert(sx_type_strides(&type, stride));
    ck_assert_int_eq(stride[0].scale, 12);
    ck_assert_int_eq(stride[1].scale, 4);
    ck_assert_int_eq(stride[2].scale, 1);
    ck_assert(!sx_type_is_static(&type));
    sx_type scalar = {SX_F32, 0, {{0}}};
    ck_assert(sx_type_elements(&scalar, &n) && n.scale == 1 && sx_dim_is_constant(n));
    ck_assert(sx_type_strides(&scalar, stride));
    type.dim[1] = (sx_dim){1, 1}; /* two symbols: strides can be written, the product cannot */
    ck_assert(!sx_type_elements(&type, &n));
    ck_assert(sx_type_strides(&type, stride));
    ck_assert(stride[0].scale == 4 && stride[0].symbol == 1);
    type.dim[2] = sx_dim_of(0);
    ck_assert(sx_type_elements(&type, &n) && n.scale == 0);
    sx_type huge = {SX_F32, 2, {sx_dim_of(INT64_C(1) << 40), sx_dim_of(INT64_C(1) << 40)}};
    ck_assert(!sx_type_elements(&huge, &n));
    sx_type other = huge;
    other.dtype = SX_F64;
    ck_assert(sx_type_same_shape(&huge, &other) && !sx_type_equal(&huge, &other));
}
END_TEST

START_TEST(test_op_table)
{
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        const sx_op_info *info = sx_op_info_of((sx_op)i);
        sx_op back;
        ck_assert(sx_op_parse(sx_span_of(info->name), &back) && back == (sx_op)i);
        ck_assert_uint_le(info->input_min, info->input_max);
        ck_assert(info->help[0] != '\0');
    }
    ck_assert(sx_op_is_elementwise(SX_OP_SELECT) && sx_op_is_elementwise(SX_OP_GELU));
    ck_assert(!sx_op_is_elementwise(SX_OP_RESHAPE) && !sx_op_is_elementwise(SX_OP_IOTA));
    ck_assert_uint_eq(sx_op_info_of(SX_OP_CONSTANT)->attrs, SX_A(data) | SX_A(type));
    for (uint32_t i = 0; i < SX_ATTR_COUNT; i++) {
        sx_attr_field back;
        const sx_attr_info *info = sx_attr_info_of((sx_attr_field)i);
        ck_assert(sx_attr_field_parse(sx_span_of(info->name), &back) && back == (sx_attr_field)i);
    }
    for (uint32_t i = 0; i < SX_REDUCER_COUNT; i++) {
        sx_reducer back;
        ck_assert(sx_reducer_parse(sx_span_of(sx_reducer_name((sx_reducer)i)), &back));
        ck_assert_int_eq(back, (int)i);
    }
    for (uint32_t i = 0; i < SX_DIRECTION_COUNT; i++) {
        sx_direction back;
        ck_assert(sx_direction_parse(sx_span_of(sx_direction_name((sx_direction)i)), &back));
        ck_assert_int_eq(back, (int)i);
    }
}
END_TEST

static const sx_program *program_of(sx_ctx *cx, const char *result)
{
    char text[256];
    sx_graph *graph;
    const sx_program *program;
    (void)snprintf(text, sizeof(text),
                   "sx 1 graph \"g\" {%%x = parameter {name = \"x\", weight = 0} : f32[] "
                   "%%y = negate(%%x) : f32[] return %s as \"y\"}",
                   result);
    ck_sx_ok(cx, sx_graph_parse(cx, sx_span_of(text), &graph));
    ck_sx_ok(cx, sx_program_make(cx, graph, &program));
    return program;
}

/* One attribute with every field set. */
static sx_attr full_attr(const sx_body *body, const sx_program *program)
{
    static const sx_rank_pair pair[] = {{0, 1}, {1, 0}};
    sx_ints ints = {3, {1, 2, 3}};
    sx_attr attr = {.present = (UINT64_C(1) << SX_ATTR_COUNT) - 1,
                    .axis = 1,
                    .dims = ints,
                    .perm = ints,
                    .start = ints,
                    .limit = ints,
                    .stride = ints,
                    .low = ints,
                    .high = ints,
                    .interior = ints,
                    .sizes = ints,
                    .window = ints,
                    .dilation = ints,
                    .groups = 4,
                    .lhs_batch = ints,
                    .rhs_batch = ints,
                    .lhs_contract = ints,
                    .rhs_contract = ints,
                    .eps = 0.5,
                    .scale = 0.25,
                    .reducer = SX_MAX,
                    .direction = SX_LT,
                    .type = {SX_F32, 2, {{2, 0}, sx_dim_of(5)}},
                    .data = SX_SPAN_LITERAL("abcd"),
                    .name = SX_SPAN_LITERAL("x"),
                    .weight = 1,
                    .result = 1,
                    .carried = 2,
                    .sliced = 3,
                    .rounds = 4,
                    .condition = program,
                    .step = program,
                    .then = program,
                    .otherwise = program,
                    .along = SX_SPAN_LITERAL("tp"),
                    .ranks = 2,
                    .split = 1,
                    .pairs = {pair, 2},
                    .origin = {2, {{2, 0}, sx_dim_of(5)}},
                    .body = body};
    return attr;
}

START_TEST(test_intern)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_attr_table table;
    ck_sx_ok(&cx, sx_attr_table_init(&cx, &table));
    sx_attr_id id;
    sx_attr_id again;
    ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &(sx_attr){0}, &id));
    ck_assert_uint_eq(id.i, 0);
    sx_body body = {.arg_count = 1, .instr_count = 1};
    body.instr[0] = (sx_instr){.kind = SX_BODY_ARG, .dtype = SX_F32};
    const sx_program *program = program_of(&cx, "%x");
    const sx_program *twin = program_of(&cx, "%x");
    sx_attr attr = full_attr(&body, program);
    ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &attr, &id));
    sx_body copy = body;
    sx_attr same = full_attr(&copy, twin);
    char data[] = "abcd";
    same.data = sx_span_of(data);
    ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &same, &again));
    ck_assert_uint_eq(id.i, again.i);
    data[0] = 'z'; /* the table holds copies */
    copy.axes = 1;
    ck_assert(sx_attr_equal(sx_attr_get(&table, id), &attr));
    ck_assert_ptr_ne(sx_attr_get(&table, id)->step, program);
    /* Fields that are not present do not count. */
    sx_attr partial = {.present = SX_A(axis), .axis = 2, .weight = 77};
    ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &partial, &id));
    partial.weight = 78;
    ck_sx_ok(&cx, sx_attr_intern(&cx, &table, &partial, &again));
    ck_assert_uint_eq(id.i, again.i);
    ck_assert_int_eq(sx_attr_get(&table, id)->weight, 0);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_every_field_matters)
{
    sx_body body = {.arg_count = 1, .instr_count = 1};
    sx_body other = body;
    other.axes = 1;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    const sx_program *program = program_of(&cx, "%x");
    const sx_program *another = program_of(&cx, "%y");
    sx_attr base = full_attr(&body, program);
    sx_attr v[SX_ATTR_COUNT + 3];
    for (uint32_t i = 0; i < SX_COUNT(v); i++) {
        v[i] = base;
    }
    v[SX_ATTR_axis].axis = 2;
    v[SX_ATTR_dims].dims.v[2] = 9;
    v[SX_ATTR_perm].perm.v[0] = 9;
    v[SX_ATTR_start].start.count = 2;
    v[SX_ATTR_limit].limit.v[1] = -1;
    v[SX_ATTR_stride].stride.v[1] = 7;
    v[SX_ATTR_low].low.v[1] = 7;
    v[SX_ATTR_high].high.v[2] = 7;
    v[SX_ATTR_interior].interior.v[0] = 7;
    v[SX_ATTR_sizes].sizes.v[1] = 7;
    v[SX_ATTR_window].window.v[1] = 7;
    v[SX_ATTR_dilation].dilation.v[1] = 7;
    v[SX_ATTR_groups].groups = 5;
    v[SX_ATTR_lhs_batch].lhs_batch.v[1] = 7;
    v[SX_ATTR_rhs_batch].rhs_batch.v[1] = 7;
    v[SX_ATTR_lhs_contract].lhs_contract.v[1] = 7;
    v[SX_ATTR_rhs_contract].rhs_contract.v[1] = 7;
    v[SX_ATTR_eps].eps = -0.5;
    v[SX_ATTR_scale].scale = 0.125;
    v[SX_ATTR_reducer].reducer = SX_MIN;
    v[SX_ATTR_direction].direction = SX_GT;
    v[SX_ATTR_count].count = 5;
    v[SX_ATTR_type].type.dim[0].symbol = 1;
    v[SX_ATTR_data].data = SX_SPAN_LITERAL("abce");
    v[SX_ATTR_name].name = SX_SPAN_LITERAL("y");
    v[SX_ATTR_weight].weight = 0;
    v[SX_ATTR_form].form = 1;
    v[SX_ATTR_body].body = &other;
    v[SX_ATTR_result].result = 0;
    v[SX_ATTR_carried].carried = 0;
    v[SX_ATTR_sliced].sliced = 0;
    v[SX_ATTR_rounds].rounds = 0;
    v[SX_ATTR_condition].condition = another;
    v[SX_ATTR_step].step = another;
    v[SX_ATTR_then].then = another;
    v[SX_ATTR_otherwise].otherwise = another;
    v[SX_ATTR_along].along = SX_SPAN_LITERAL("pp");
    v[SX_ATTR_ranks].ranks = 3;
    v[SX_ATTR_split].split = 2;
    v[SX_ATTR_pairs].pairs.count = 1;
    v[SX_ATTR_origin].origin.v[1].scale = 6;
    v[SX_ATTR_COUNT].present &= ~SX_A(axis);
    v[SX_ATTR_COUNT + 1].type.dtype = SX_F64;
    v[SX_ATTR_COUNT + 2].type.rank = 1;
    for (uint32_t i = 0; i < SX_COUNT(v); i++) {
        ck_assert_msg(!sx_attr_equal(&base, &v[i]), "field %u", i);
        ck_assert_msg(sx_attr_hash(&base) != sx_attr_hash(&v[i]), "field %u", i);
    }
    sx_attr zero = base;
    zero.eps = 0.0;
    sx_attr negative = base;
    negative.eps = -0.0;
    ck_assert(!sx_attr_equal(&zero, &negative));
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/type");
    TCase *tcase = tcase_create("type");
    tcase_add_test(tcase, test_dtypes);
    tcase_add_test(tcase, test_dtype_numbers);
    tcase_add_test(tcase, test_dims);
    tcase_add_test(tcase, test_elements_and_strides);
    tcase_add_test(tcase, test_op_table);
    tcase_add_test(tcase, test_intern);
    tcase_add_test(tcase, test_every_field_matters);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
