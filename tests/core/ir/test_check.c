#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ir/fused.h"
#include "core/ir/ir.h"

/* Symbols of all cases: b in [2, 64], s in [1, 128], huge in [1, 2^40]. */
static const sx_symbol symbols[] = {
    {{(const uint8_t *)"b", sizeof("b") - 1}, 2, 64, NULL},
    {{(const uint8_t *)"s", sizeof("s") - 1}, 1, 128, NULL},
    {{(const uint8_t *)"huge", sizeof("huge") - 1}, 1, SX_EXTENT_MAX, NULL},
};

/* "f32[2*b,3]": a type in the text form, read by hand so that these tables need no parser. */
static sx_type type_of(const char *text)
{
    sx_type type = {0};
    const char *open = strchr(text, '[');
    ck_assert_ptr_nonnull(open);
    sx_span name = {(const uint8_t *)text, (size_t)(open - text)};
    ck_assert_msg(sx_dtype_parse(name, &type.dtype), "%s", text);
    const char *p = open + 1;
    while (*p != ']') {
        char *end = NULL;
        sx_dim dim = sx_dim_of(1);
        if (*p >= '0' && *p <= '9') {
            dim.scale = strtoll(p, &end, 10);
            p = *end == '*' ? end + 1 : end;
        }
        for (uint32_t i = 0; i < SX_COUNT(symbols); i++) {
            if (strncmp(p, (const char *)symbols[i].name.ptr, symbols[i].name.len) == 0) {
                dim.symbol = i;
                p += symbols[i].name.len;
                break;
            }
        }
        type.dim[type.rank++] = dim;
        p += *p == ',' ? 1 : 0;
    }
    return type;
}

typedef struct {
    sx_op op;
    const char *inputs; /* types, one space between */
    sx_attr attr;
    const char *expected; /* the result type, or NULL */
    sx_code code;
    const char *error; /* part of the text */
} infer_case;

static void run_case(const infer_case *c, uint32_t index)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_type input[5];
    uint32_t count = 0;
    for (const char *p = c->inputs; *p != '\0' && count < 5; count++) {
        input[count] = type_of(p);
        p = strchr(p, ']') + 1;
        p += *p == ' ' ? 1 : 0;
    }
    sx_attr attr = c->attr;
    attr.present = attr.present != 0 ? attr.present : sx_op_info_of(c->op)->attrs;
    sx_type result;
    sx_code code =
        sx_infer_type(&cx, symbols, SX_COUNT(symbols), c->op, &attr, input, count, &result);
    const char *name = sx_op_info_of(c->op)->name;
    ck_assert_msg(code == c->code, "case %u %s: %s (%s)", index, name, sx_code_name(code),
                  cx.error.text);
    if (code == SX_OK) {
        sx_type expected = type_of(c->expected);
        ck_assert_msg(sx_type_equal(&result, &expected), "case %u %s: not %s", index, name,
                      c->expected);
    } else {
        ck_assert_msg(strstr(cx.error.text, c->error) != NULL, "case %u %s: text is '%s'", index,
                      name, cx.error.text);
        ck_assert_msg(strncmp(cx.error.text, name, strlen(name)) == 0, "'%s'", cx.error.text);
    }
    sx_ctx_fini(&cx);
}

static void run_cases(const infer_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        run_case(&cases[i], i);
    }
}

/* clang-format off */
#define GOOD(op, type, in) {SX_OP_##op, in, {0}, type, SX_OK, NULL}
#define GOOD_A(op, type, a, in) {SX_OP_##op, in, A a, type, SX_OK, NULL}
#define BAD(op, text, in) {SX_OP_##op, in, {0}, NULL, SX_INPUT, text}
#define BAD_A(op, text, a, in) {SX_OP_##op, in, A a, NULL, SX_INPUT, text}
#define FAIL_A(op, fail, text, a, in) {SX_OP_##op, in, A a, NULL, fail, text}
#define A(...) {__VA_ARGS__}
#define L(n, ...) {n, {__VA_ARGS__}}
#define C(n) {n, SX_NO_SYMBOL}
#define S(n, s) {n, s}
#define T(dtype, rank, ...) {SX_##dtype, rank, {__VA_ARGS__}}

START_TEST(test_elementwise)
{
    const infer_case cases[] = {
        GOOD(ADD, "f32[b,4]", "f32[b,4] f32[b,4]"),
        GOOD(ADD, "bool[3]", "bool[3] bool[3]"),
        GOOD(AND, "u8[3]", "u8[3] u8[3]"),
        GOOD(POWER, "bf16[]", "bf16[] bf16[]"),
        GOOD(NEGATE, "i8[2]", "i8[2]"), GOOD(NOT, "bool[2]", "bool[2]"), GOOD(RELU, "i32[2]", "i32[2]"),
        GOOD(GELU, "f16[2*b]", "f16[2*b]"),
        GOOD_A(COMPARE, "bool[2,b]", (.direction = SX_LT), "i64[2,b] i64[2,b]"),
        GOOD(SELECT, "f32[s]", "bool[s] f32[s] f32[s]"),
        GOOD_A(CONVERT, "i8[b,2]", (.type = T(I8, 0, C(0))), "f32[b,2]"),
        GOOD_A(CONVERT, "i8[b,2]", (.type = T(I8, 2, S(1, 0), C(2))), "f32[b,2]"),
        BAD(ADD, "add: axis 1: operand 1 has extent 5, operand 0 has 4", "f32[b,4] f32[b,5]"),
        BAD(ADD, "axis 0: operand 1 has extent 2*b, operand 0 has b", "f32[b,4] f32[2*b,4]"),
        BAD(ADD, "axis 0: operand 1 has extent s, operand 0 has b", "f32[b] f32[s]"),
        BAD(ADD, "operand 1 has rank 1, operand 0 has rank 2", "f32[b,4] f32[4]"),
        BAD(ADD, "operand 1 is f16, operand 0 is f32", "f32[4] f16[4]"),
        BAD(ADD, "add: 1 operands, takes 2 to 2", "f32[4]"),
        BAD(ADD, "3 operands", "f32[4] f32[4] f32[4]"),
        BAD(SUBTRACT, "operand 0 is bool; takes floats, integers", "bool[4] bool[4]"),
        BAD(SQRT, "operand 0 is i32; takes floats", "i32[4]"),
        GOOD(SHIFT_LEFT, "i16[b,2]", "i16[b,2] i16[b,2]"),
        GOOD(SHIFT_RIGHT_LOGICAL, "u8[3]", "u8[3] u8[3]"),
        BAD(SHIFT_LEFT, "shift_left: operand 0 is f32; takes integers", "f32[4] f32[4]"),
        BAD(SHIFT_RIGHT_ARITHMETIC, "operand 0 is bool; takes integers", "bool[4] bool[4]"),
        BAD(SHIFT_RIGHT_LOGICAL, "operand 1 is i64, operand 0 is i32", "i32[4] i64[4]"),
        BAD(RANDOM_BITS, "operand 0 is i32, not i64", "i32[4] i32[4]"),
        BAD(AND, "operand 0 is f32; takes integers, bool", "f32[4] f32[4]"),
        BAD(NOT, "operand 0 is f64", "f64[4]"), BAD(SILU, "operand 0 is u8", "u8[4]"),
        BAD(MAXIMUM, "operand 0 is bool", "bool[4] bool[4]"),
        BAD_A(ADD, "attribute axis is not one it carries", (.present = SX_A(axis)), "f32[4] f32[4]"),
        BAD_A(COMPARE, "direction number 6, at most 5", (.direction = SX_DIRECTION_COUNT), "f32[4] f32[4]"),
        BAD_A(COMPARE, "attribute direction is missing", (.present = SX_A(weight)), "f32[4] f32[4]"),
        BAD_A(COMPARE, "operand 1 is i32", (.direction = SX_LT), "f32[4] i32[4]"),
        BAD(SELECT, "operand 0 is f32, not bool", "f32[4] f32[4] f32[4]"),
        BAD(SELECT, "operand 2 is i32, operand 1 is f32", "bool[4] f32[4] i32[4]"),
        BAD(SELECT, "operand 0 has extent 1, operand 1 has 4", "bool[1] f32[4] f32[4]"),
        BAD(SELECT, "operand 0 has rank 0", "bool[] f32[4] f32[4]"),
        BAD_A(CONVERT, "element type 12, at most 11", (.type = {.dtype = SX_DTYPE_COUNT}), "f32[4]"),
        BAD_A(CONVERT, "shape of type", (.type = T(I8, 1, C(5))), "f32[4]"),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST

START_TEST(test_leaves)
{
    const infer_case cases[] = {
        GOOD_A(PARAMETER, "f32[b,784]", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 2, S(1, 0), C(784))), ""),
        GOOD_A(CONSTANT, "f32[b]", (.data = SX_SPAN_LITERAL("abcd"), .type = T(F32, 1, S(1, 0))), ""),
        GOOD_A(CONSTANT, "i8[2,2]", (.data = SX_SPAN_LITERAL("abcd"), .type = T(I8, 2, C(2), C(2))), ""),
        GOOD_A(CONSTANT, "bool[2]", (.data = SX_SPAN_LITERAL("\1\0"), .type = T(BOOL, 1, C(2))), ""),
        GOOD_A(IOTA, "i32[4,b]", (.axis = 1, .type = T(I32, 2, C(4), S(1, 0))), ""),
        BAD_A(PARAMETER, "name of 0 bytes, 1 to 255", (.type = T(F32, 0, C(0))), ""),
        BAD_A(PARAMETER, "weight is 2, 0 or 1", (.name = SX_SPAN_LITERAL("x"), .weight = 2), ""),
        GOOD_A(PARAMETER, "f32[1,0]", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 2, C(1), C(0))), ""),
        GOOD_A(PARAMETER, "f32[b,0]", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 2, S(1, 0), C(0))), ""),
        BAD_A(PARAMETER, "axis 0 has extent 0, at least 1", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 1,
              S(0, 0))), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "more than 4398046511104 elements at axis 2", (.name = SX_SPAN_LITERAL("x"),
               .type = T(F32, 3, C(0), C(SX_EXTENT_MAX), C(5))), ""),
        GOOD_A(CONSTANT, "f32[2,0]", (.data = SX_SPAN_LITERAL("abcd"), .type = T(F32, 2, C(2), C(0))), ""),
        GOOD_A(CONSTANT, "f32[0]", (.data = SX_SPAN_LITERAL(""), .type = T(F32, 1, C(0))), ""),
        GOOD_A(IOTA, "i32[0,b]", (.axis = 0, .type = T(I32, 2, C(0), S(1, 0))), ""),
        BAD_A(PARAMETER, "extent -1, at least 0", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 1, C(-1))), ""),
        BAD_A(PARAMETER, "axis 0 has symbol 7, the graph has 3", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 1,
              S(1, 7))), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "rank 9, at most 8", (.name = SX_SPAN_LITERAL("x"), .type = {.rank = 9}), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "axis 0 has extent 1099511627777, up to 1099511627777, at most "
               "1099511627776", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 1, C(SX_EXTENT_MAX + 1))), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "extent 2*huge, up to 2199023255552", (.name = SX_SPAN_LITERAL("x"),
               .type = T(F32, 1, S(2, 2))), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "up to 9223372036854775807", (.name = SX_SPAN_LITERAL("x"), .type = T(F32, 1,
               S(INT64_MAX / 2, 0))), ""),
        FAIL_A(PARAMETER, SX_LIMIT, "more than 4398046511104 elements at axis 1", (.name = SX_SPAN_LITERAL("x"),
               .type = T(F32, 2, C(SX_EXTENT_MAX), C(SX_EXTENT_MAX))), ""),
        BAD_A(PARAMETER, "element type 99", (.name = SX_SPAN_LITERAL("x"), .type = {.dtype = 99}), ""),
        BAD_A(CONSTANT, "12 bytes of data for 4 elements of 4 bytes", (.data = SX_SPAN_LITERAL("abcdabcdabcd"),
              .type = T(F32, 1, C(4))), ""),
        BAD_A(CONSTANT, "8 bytes of data for a symbolic shape", (.data = SX_SPAN_LITERAL("abcdabcd"),
              .type = T(F32, 1, S(1, 0))), ""),
        BAD_A(CONSTANT, "0 bytes of data", (.type = T(F32, 1, C(4))), ""),
        BAD_A(CONSTANT, "element 1 of bool is 2, 0 or 1", (.data = SX_SPAN_LITERAL("\1\2"), .type = T(BOOL, 1,
              C(2))), ""),
        BAD_A(IOTA, "axis 2 of a tensor of rank 2", (.axis = 2, .type = T(I32, 2, C(4), C(2))), ""),
        BAD_A(IOTA, "axis 0 of a tensor of rank 0", (.axis = 0, .type = T(I32, 0, C(4))), ""),
        BAD_A(IOTA, "element type bool", (.axis = 0, .type = T(BOOL, 1, C(4))), ""),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST

START_TEST(test_views)
{
    const infer_case cases[] = {
        GOOD_A(RESHAPE, "f32[4*b,2]", (.type = T(F32, 2, S(4, 0), C(2))), "f32[b,2,4]"),
        GOOD_A(RESHAPE, "f32[s,b,2,2]", (.type = T(F32, 4, S(1, 1), S(1, 0), C(2), C(2))), "f32[b,4*s]"),
        GOOD_A(RESHAPE, "f32[]", (.type = T(F32, 0, C(0))), "f32[1,1]"),
        GOOD_A(TRANSPOSE, "f32[3,b,2]", (.perm = L(3, 2, 0, 1)), "f32[b,2,3]"),
        GOOD_A(TRANSPOSE, "f32[]", (.perm = L(0, 0)), "f32[]"),
        GOOD_A(BROADCAST, "f32[b,4,s]", (.dims = L(2, 1, 2), .type = T(F32, 3, S(1, 0), C(4), S(1, 1))), "f32[4,1]"),
        GOOD_A(BROADCAST, "f32[b]", (.dims = L(0, 0), .type = T(F32, 1, S(1, 0))), "f32[]"),
        GOOD_A(SLICE, "f32[3,b]", (.start = L(2, 1, 0), .limit = L(2, 6, -1), .stride = L(2, 2, 1)), "f32[7,b]"),
        GOOD_A(SLICE, "f32[2*b]", (.start = L(1, 0), .limit = L(1, -1), .stride = L(1, 2)), "f32[4*b]"),
        GOOD_A(SLICE, "f32[3]", (.start = L(1, 1), .limit = L(1, 4), .stride = L(1, 1)), "f32[2*b]"),
        BAD_A(RESHAPE, "operand 0 has 784*b elements, the result 780*b", (.type = T(F32, 2, S(1, 0), C(780))),
              "f32[b,784]"),
        BAD_A(RESHAPE, "operand 0 has 4*b elements, the result 4*s", (.type = T(F32, 2, S(1, 1), C(4))), "f32[b,4]"),
        BAD_A(RESHAPE, "operand 0 is f32, the result f64", (.type = T(F64, 1, C(4))), "f32[4]"),
        BAD_A(TRANSPOSE, "perm has 1 numbers, operand 0 has rank 2", (.perm = L(1, 0)), "f32[b,2]"),
        BAD_A(TRANSPOSE, "perm names dimension 1 twice", (.perm = L(2, 1, 1)), "f32[b,2]"),
        BAD_A(TRANSPOSE, "perm[1] is 2, the rank is 2", (.perm = L(2, 1, 2)), "f32[b,2]"),
        BAD_A(TRANSPOSE, "perm[0] is -1", (.perm = L(2, -1, 0)), "f32[b,2]"),
        FAIL_A(TRANSPOSE, SX_LIMIT, "perm of 9 numbers, at most 8", (.perm = {.count = 9}), "f32[b,2]"),
        BAD_A(BROADCAST, "axis 0 of operand 0 has extent 3, axis 1 of the result 4", (.dims = L(1, 1),
              .type = T(F32, 2, S(1, 0), C(4))), "f32[3]"),
        BAD_A(BROADCAST, "not ascending: 0 after 1", (.dims = L(2, 1, 0), .type = T(F32, 2, C(4), C(3))), "f32[3,4]"),
        BAD_A(BROADCAST, "dims has 2 numbers, operand 0 has rank 1", (.dims = L(2, 0, 1), .type = T(F32, 2, C(4),
              C(3))), "f32[3]"),
        BAD_A(BROADCAST, "dims[0] is 2, the rank is 2", (.dims = L(1, 2), .type = T(F32, 2, C(4), C(3))), "f32[3]"),
        BAD_A(BROADCAST, "operand 0 is f32, the result f16", (.dims = L(1, 0), .type = T(F16, 1, C(3))), "f32[3]"),
        GOOD_A(CROP, "f32[b,2]", (.origin = L(2, S(1, 0), C(1)), .type = T(F32, 2, S(1, 0), C(2))), "f32[2*b,3]"),
        GOOD_A(CROP, "f32[b]", (.origin = L(1, C(136)), .type = T(F32, 1, S(1, 0))), "f32[200]"),
        GOOD_A(CROP, "f32[1]", (.dims = L(1, 0), .origin = L(1, C(1)), .type = T(F32, 1, C(1))), "f32[b]"),
        BAD_A(CROP, "axis 0: b elements from 137 on, of extent 200",
              (.origin = L(1, C(137)), .type = T(F32, 1, S(1, 0))), "f32[200]"),
        BAD_A(CROP, "axis 0: 2 elements from b on, of extent b", (.origin = L(1, S(1, 0)), .type = T(F32, 1, C(2))),
              "f32[b]"),
        BAD_A(CROP, "axis 0: origin -1, at least 0", (.origin = L(1, C(-1)), .type = T(F32, 1, C(2))), "f32[7]"),
        BAD_A(CROP, "origin has 1 extents, operand 0 has rank 2", (.origin = L(1, C(0)), .type = T(F32, 2, C(2), C(2))),
              "f32[7,2]"),
        BAD_A(CROP, "operand 0 is f32 of rank 1, the result i32 of rank 1",
              (.origin = L(1, C(0)), .type = T(I32, 1, C(2))), "f32[7]"),
        BAD_A(SLICE, "axis 0: [2, 8) of extent 7", (.start = L(1, 2), .limit = L(1, 8), .stride = L(1, 1)), "f32[7]"),
        BAD_A(SLICE, "axis 0: [3, 2) of extent 7", (.start = L(1, 3), .limit = L(1, 2), .stride = L(1, 1)), "f32[7]"),
        GOOD_A(SLICE, "f32[0]", (.start = L(1, 2), .limit = L(1, 2), .stride = L(1, 3)), "f32[7]"),
        GOOD_A(SLICE, "f32[0]", (.start = L(1, 2), .limit = L(1, 2), .stride = L(1, 3)), "f32[2*b]"),
        BAD_A(SLICE, "axis 0: [0, -1) of extent 7", (.start = L(1, 0), .limit = L(1, -1), .stride = L(1, 1)), "f32[7]"),
        BAD_A(SLICE, "stride 0; at least 0, -1, 1", (.start = L(1, 0), .limit = L(1, 7), .stride = L(1, 0)), "f32[7]"),
        BAD_A(SLICE, "start -1,", (.start = L(1, -1), .limit = L(1, 7), .stride = L(1, 1)), "f32[7]"),
        BAD_A(SLICE, "have 1, 2, 1 numbers", (.start = L(1, 0), .limit = L(2, 7, 7), .stride = L(1, 1)), "f32[7]"),
        BAD_A(SLICE, "[0, 5) of extent 2*b, which can be 4", (.start = L(1, 0), .limit = L(1, 5), .stride = L(1,
              1)), "f32[2*b]"),
        FAIL_A(SLICE, SX_UNIMPLEMENTED, "from 1 by 1 of extent b", (.start = L(1, 1), .limit = L(1, -1),
               .stride = L(1, 1)), "f32[b]"),
        FAIL_A(SLICE, SX_UNIMPLEMENTED, "from 0 by 2 of extent b", (.start = L(1, 0), .limit = L(1, -1),
               .stride = L(1, 2)), "f32[b]"),
        GOOD_A(CONCATENATE, "f32[3*b,4]", (.axis = 0), "f32[b,4] f32[2*b,4]"),
        GOOD_A(CONCATENATE, "f32[b,9]", (.axis = 1), "f32[b,4] f32[b,3] f32[b,2]"),
        GOOD_A(CONCATENATE, "f32[b,4]", (.axis = 0), "f32[0,4] f32[b,4] f32[0,4]"),
        BAD_A(CONCATENATE, "axis 1: operand 1 has extent 5, operand 0 has 4", (.axis = 0), "f32[b,4] f32[b,5]"),
        BAD_A(CONCATENATE, "axis 2 of a tensor of rank 2", (.axis = 2), "f32[b,4] f32[b,4]"),
        BAD_A(CONCATENATE, "axis -1 of", (.axis = -1), "f32[b,4] f32[b,4]"),
        BAD_A(CONCATENATE, "operand 1 is f64", (.axis = 0), "f32[b,4] f64[b,4]"),
        BAD_A(CONCATENATE, "0 operands, takes 1 to 64", (.axis = 0), ""),
        FAIL_A(CONCATENATE, SX_UNIMPLEMENTED, "axis 0: no type of the program has the extent b + 3", (.axis = 0),
               "f32[b,4] f32[3,4]"),
        FAIL_A(CONCATENATE, SX_UNIMPLEMENTED, "axis 0: no type of the program has the extent b + s", (.axis = 0),
               "f32[b,4] f32[s,4]"),
        FAIL_A(CONCATENATE, SX_LIMIT, "result: axis 0 has extent 2*huge", (.axis = 0), "f32[huge] f32[huge]"),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST

START_TEST(test_combining)
{
    const infer_case cases[] = {
        GOOD_A(REDUCE, "f32[4]", (.dims = L(2, 0, 2)), "f32[b,4,3]"),
        GOOD_A(REDUCE, "bool[]", (.dims = L(1, 0)), "bool[4]"),
        BAD_A(REDUCE, "dims is empty", (.reducer = SX_SUM), "f32[b,4]"),
        BAD_A(REDUCE, "dims[0] is 2, the rank is 2", (.dims = L(1, 2)), "f32[b,4]"),
        BAD_A(REDUCE, "not ascending", (.dims = L(2, 1, 0)), "f32[b,4]"),
        BAD_A(REDUCE, "dimension 1 twice", (.dims = L(2, 1, 1)), "f32[b,4]"),
        BAD_A(REDUCE, "maximum of bool", (.dims = L(1, 0), .reducer = SX_MAX), "bool[b,4]"),
        BAD_A(REDUCE, "reducer number 5, at most 4", (.dims = L(1, 0), .reducer = 5), "f32[b,4]"),
        GOOD_A(DOT_GENERAL, "f32[b,512]", (.lhs_contract = L(1, 1), .rhs_contract = L(1, 0)),
               "f32[b,784] f32[784,512]"),
        GOOD_A(DOT_GENERAL, "f32[b,4,s,s]", (.lhs_batch = L(2, 0, 2), .rhs_batch = L(2, 0, 1),
               .lhs_contract = L(1, 3), .rhs_contract = L(1, 3)), "f32[b,s,4,64] f32[b,4,s,64]"),
        GOOD_A(DOT_GENERAL, "i8[2,3]", (.axis = 0), "i8[2] i8[3]"),
        BAD_A(DOT_GENERAL, "contract: axis 1 of operand 0 has extent 784, axis 0 of operand 1 780",
              (.lhs_contract = L(1, 1), .rhs_contract = L(1, 0)), "f32[b,784] f32[780,512]"),
        BAD_A(DOT_GENERAL, "batch: axis 0 of operand 0 has extent b, axis 0 of operand 1 s", (.lhs_batch = L(1,
              0), .rhs_batch = L(1, 0)), "f32[b,784] f32[s,512]"),
        BAD_A(DOT_GENERAL, "lhs_contract has 1 numbers, rhs_contract has 0", (.lhs_contract = L(1, 1)),
              "f32[b,784] f32[784,512]"),
        BAD_A(DOT_GENERAL, "dimensions 0 and 0 are batch and contracted", (.lhs_batch = L(1, 0),
              .rhs_batch = L(1, 0), .lhs_contract = L(1, 0), .rhs_contract = L(1, 0)), "f32[b,784] f32[b,512]"),
        BAD_A(DOT_GENERAL, "rhs_contract[0] is 2", (.lhs_contract = L(1, 1), .rhs_contract = L(1, 2)),
              "f32[b,784] f32[784,512]"),
        BAD_A(DOT_GENERAL, "lhs_contract names dimension 1 twice", (.lhs_contract = L(2, 1, 1),
              .rhs_contract = L(2, 0, 1)), "f32[b,4] f32[4,4]"),
        BAD_A(DOT_GENERAL, "operand 0 is f32, operand 1 is f16", (.lhs_contract = L(1, 1), .rhs_contract = L(1,
              0)), "f32[b,4] f16[4,4]"),
        BAD_A(DOT_GENERAL, "not bool", (.lhs_contract = L(1, 1), .rhs_contract = L(1, 0)), "bool[b,4] bool[4,4]"),
        FAIL_A(DOT_GENERAL, SX_LIMIT, "result of rank 10, at most 8", (.axis = 0), "f32[1,1,1,1,1] f32[1,1,1,1,1]"),
        FAIL_A(DOT_GENERAL, SX_LIMIT, "result: more than", (.axis = 0), "f32[huge] f32[huge]"),
        GOOD_A(GATHER, "f32[b,s,64]", (.axis = 0), "f32[30000,64] i64[b,s]"),
        GOOD_A(GATHER, "f32[64]", (.axis = 0), "f32[30000,64] i32[]"),
        GOOD_A(GATHER, "f32[0,64]", (.axis = 0), "f32[30000,64] i32[0]"),
        GOOD_A(GATHER, "f32[b,0,64]", (.axis = 0), "f32[0,64] i32[b,0]"),
        BAD_A(GATHER, "axis 0 of operand 0 is empty, operand 1 is not", (.axis = 0), "f32[0,64] i32[b]"),
        BAD_A(GATHER, "operand 1 is f32; takes integers", (.axis = 0), "f32[30000,64] f32[b]"),
        BAD_A(GATHER, "axis 2 of", (.axis = 2), "f32[30000,64] i32[b]"),
        BAD_A(GATHER, "axis 0 of a tensor of rank 0", (.axis = 0), "f32[] i32[b]"),
        FAIL_A(GATHER, SX_LIMIT, "result of rank 9", (.axis = 0), "f32[1,1,1,1,1] i32[1,1,1,1,1]"),
        GOOD_A(SORT, "f32[b,5]", (.axis = 1, .count = 5, .direction = SX_GT), "f32[b,9]"),
        GOOD_A(SORT, "i64[b,5]", (.axis = 1, .count = 5, .direction = SX_LT, .result = 1), "bool[b,9]"),
        GOOD_A(SORT, "bf16[4,s]", (.axis = 1, .count = -1, .direction = SX_LT), "bf16[4,s]"),
        GOOD_A(SORT, "f32[3]", (.axis = 0, .count = 3, .direction = SX_LT), "f32[1000000000]"),
        BAD_A(SORT, "direction le, expected lt or gt", (.axis = 0, .count = 1, .direction = SX_LE), "f32[9]"),
        BAD_A(SORT, "result 2, it has 2", (.axis = 0, .count = 1, .direction = SX_LT, .result = 2), "f32[9]"),
        BAD_A(SORT, "count 10, axis 0 has extent 9", (.axis = 0, .count = 10, .direction = SX_LT), "f32[9]"),
        GOOD_A(SORT, "f32[0]", (.axis = 0, .count = 0, .direction = SX_LT), "f32[9]"),
        GOOD_A(SORT, "i64[b,0]", (.axis = 1, .count = -1, .direction = SX_GT, .result = 1), "f32[b,0]"),
        BAD_A(SORT, "count 1, axis 0 has extent 0", (.axis = 0, .count = 1, .direction = SX_LT), "f32[0]"),
        BAD_A(SORT, "count -2, axis 0 has extent 9", (.axis = 0, .count = -2, .direction = SX_LT), "f32[9]"),
        BAD_A(SORT, "count 3, axis 0 has extent b", (.axis = 0, .count = 3, .direction = SX_LT), "f32[b]"),
        BAD_A(SORT, "axis 0 of a tensor of rank 0", (.axis = 0, .count = 1, .direction = SX_LT), "f32[]"),
        FAIL_A(SORT, SX_LIMIT, "rank 8, at most 7", (.axis = 0, .count = 1, .direction = SX_LT),
               "f32[1,1,1,1,1,1,1,1]"),
        FAIL_A(SORT, SX_LIMIT, "axis 0 has extent 2000000000, at most 1000000000", (.axis = 0, .count = 1,
               .direction = SX_LT), "f32[2000000000]"),
        FAIL_A(SORT, SX_LIMIT, "axis 0 has extent 10000000; rows times its square", (.axis = 0, .count = 9,
               .direction = SX_LT), "f32[10000000]"),
        GOOD_A(SCATTER, "f32[30000,64]", (.axis = 0), "f32[30000,64] i64[b,s] f32[b,s,64]"),
        GOOD_A(SCATTER, "bf16[s,9]", (.axis = 1, .reducer = SX_REPLACE), "bf16[s,9] u8[] bf16[s]"),
        GOOD_A(SCATTER, "bool[4]", (.axis = 0, .reducer = SX_PRODUCT), "bool[4] i8[b] bool[b]"),
        GOOD_A(SCATTER, "bool[4]", (.axis = 0, .reducer = SX_REPLACE), "bool[4] i8[b] bool[b]"),
        BAD_A(SCATTER, "maximum of bool", (.axis = 0, .reducer = SX_MAX), "bool[4] i8[b] bool[b]"),
        BAD_A(SCATTER, "reducer number 5, at most 4", (.axis = 0, .reducer = SX_REPLACE + 1), "f32[4] i8[b] f32[b]"),
        BAD_A(SCATTER, "operand 1 is f32; takes integers", (.axis = 0), "f32[4] f32[b] f32[b]"),
        BAD_A(SCATTER, "operand 2 is f64, operand 0 is f32", (.axis = 0), "f32[4] i32[b] f64[b]"),
        BAD_A(SCATTER, "operand 2 has rank 1; with operand 0 of rank 2 and operand 1 of rank 1 it is 2", (.axis = 0),
              "f32[4,4] i32[4] f32[4]"),
        BAD_A(SCATTER, "axis 1 of operand 2 has extent 5, operands 0 and 1 have 4 there", (.axis = 0),
              "f32[9,4] i32[b] f32[b,5]"),
        BAD_A(SCATTER, "axis 0 of operand 2 has extent s, operands 0 and 1 have b there", (.axis = 0),
              "f32[9,4] i32[b] f32[s,4]"),
        BAD_A(SCATTER, "axis 2 of a tensor of rank 2", (.axis = 2), "f32[9,4] i32[b] f32[b,4]"),
        FAIL_A(SCATTER, SX_LIMIT, "updates of rank 9", (.axis = 0), "f32[1,1,1,1,1] i32[1,1,1,1,1] f32[1]"),
        BAD_A(REDUCE, "reducer set; takes add", (.dims = L(1, 0), .reducer = SX_REPLACE), "f32[4]"),
        GOOD_A(DYNAMIC_SLICE, "f32[b,5,64]", (.dims = L(1, 1), .sizes = L(1, 5)), "f32[b,9,64] i64[]"),
        GOOD_A(DYNAMIC_SLICE, "f32[2,9]", (.dims = L(2, 0, 1), .sizes = L(2, 2, 9)), "f32[b,9] i64[] u8[]"),
        BAD_A(DYNAMIC_SLICE, "axis 0: size 3 of extent b, at least 2", (.dims = L(1, 0), .sizes = L(1, 3)),
              "f32[b,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "axis 1: size 10 of extent 9", (.dims = L(1, 1), .sizes = L(1, 10)), "f32[b,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "axis 1: size -1 of extent 9", (.dims = L(1, 1), .sizes = L(1, -1)), "f32[b,9] i64[]"),
        GOOD_A(DYNAMIC_SLICE, "f32[b,0]", (.dims = L(1, 1), .sizes = L(1, 0)), "f32[b,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "sizes has 2 numbers, dims 1", (.dims = L(1, 1), .sizes = L(2, 1, 1)), "f32[b,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "dims is empty", (.sizes = L(1, 1)), "f32[b,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "dims is not ascending", (.dims = L(2, 1, 0), .sizes = L(2, 1, 1)),
              "f32[9,9] i64[] i64[]"),
        BAD_A(DYNAMIC_SLICE, "1 starts for 2 dimensions", (.dims = L(2, 0, 1), .sizes = L(2, 1, 1)), "f32[9,9] i64[]"),
        BAD_A(DYNAMIC_SLICE, "operand 1 is f32; takes integers", (.dims = L(1, 1), .sizes = L(1, 1)), "f32[9,9] f32[]"),
        BAD_A(DYNAMIC_SLICE, "operand 1, a start, has rank 1, not 0", (.dims = L(1, 1), .sizes = L(1, 1)),
              "f32[9,9] i64[1]"),
        GOOD_A(DYNAMIC_UPDATE_SLICE, "f32[b,9]", (.dims = L(1, 1)), "f32[b,9] f32[b,9] i64[]"),
        GOOD_A(DYNAMIC_UPDATE_SLICE, "f32[b,200]", (.dims = L(2, 0, 1)), "f32[b,200] f32[2,s] i64[] i32[]"),
        GOOD_A(DYNAMIC_UPDATE_SLICE, "i8[2*b]", (.dims = L(1, 0)), "i8[2*b] i8[b] i64[]"),
        BAD_A(DYNAMIC_UPDATE_SLICE, "axis 1: operand 1 has extent s, operand 0 9", (.dims = L(1, 1)),
              "f32[b,9] f32[b,s] i64[]"),
        BAD_A(DYNAMIC_UPDATE_SLICE, "axis 0: operand 1 has extent 1, operand 0 b and no start", (.dims = L(1, 1)),
              "f32[b,9] f32[1,9] i64[]"),
        BAD_A(DYNAMIC_UPDATE_SLICE, "operand 1 is f16, operand 0 is f32", (.dims = L(1, 1)),
              "f32[b,9] f16[b,9] i64[]"),
        BAD_A(DYNAMIC_UPDATE_SLICE, "operand 1 has rank 1", (.dims = L(1, 1)), "f32[b,9] f32[9] i64[]"),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST

#define SLIDE(n, s, l, h, d) .stride = s, .low = l, .high = h, .dilation = d
#define ONES2 L(2, 1, 1)
#define ZEROS2 L(2, 0, 0)

START_TEST(test_windows)
{
    const infer_case cases[] = {
        GOOD_A(REVERSE, "f32[b,4]", (.dims = L(2, 0, 1)), "f32[b,4]"),
        BAD_A(REVERSE, "dims is not ascending: 0 after 1", (.dims = L(2, 1, 0)), "f32[b,4]"),
        GOOD_A(PAD, "f32[b,14]", (.low = L(2, 0, 1), .high = L(2, 0, 3), .interior = L(2, 0, 2)), "f32[b,4] f32[]"),
        BAD_A(PAD, "low has 1 numbers for 2 dimensions", (.low = L(1, 0), .high = ZEROS2, .interior = ZEROS2),
              "f32[b,4] f32[]"),
        GOOD_A(PAD, "f32[b,5]", (.low = L(2, 0, -3), .high = L(2, 0, -2), .interior = L(2, 0, 2)), "f32[b,4] f32[]"),
        GOOD_A(PAD, "f32[b,4]", (.low = L(2, 0, -6), .high = L(2, 0, 6), .interior = ZEROS2), "f32[b,4] f32[]"),
        GOOD_A(PAD, "f32[b,0]", (.low = L(2, 0, -1), .high = L(2, 0, -3), .interior = ZEROS2), "f32[b,4] f32[]"),
        GOOD_A(PAD, "f32[b,3]", (.low = L(2, 0, 2), .high = L(2, 0, 1), .interior = L(2, 0, 5)), "f32[b,0] f32[]"),
        BAD_A(PAD, "axis 1: padding -3 and -2 leaves -1 of extent 4", (.low = L(2, 0, -3), .high = L(2, 0, -2),
              .interior = ZEROS2), "f32[b,4] f32[]"),
        BAD_A(PAD, "interior[1] is -1, from 0", (.low = ZEROS2, .high = ZEROS2, .interior = L(2, 0, -1)),
              "f32[b,4] f32[]"),
        BAD_A(PAD, "low[0] is -1099511627777, from -1099511627776", (.low = L(2, -SX_EXTENT_MAX - 1, 0),
              .high = ZEROS2, .interior = ZEROS2), "f32[b,4] f32[]"),
        FAIL_A(PAD, SX_UNIMPLEMENTED, "axis 0: extent b and padding", (.low = L(2, -1, 0), .high = L(2, 1, 0),
               .interior = ZEROS2), "f32[b,4] f32[]"),
        BAD_A(PAD, "operand 1 is f16 of rank 0, not f32 of rank 0", (.low = ZEROS2, .high = ZEROS2,
              .interior = ZEROS2), "f32[b,4] f16[]"),
        BAD_A(PAD, "operand 1 is f32 of rank 1", (.low = ZEROS2, .high = ZEROS2, .interior = ZEROS2),
              "f32[b,4] f32[1]"),
        FAIL_A(PAD, SX_UNIMPLEMENTED, "axis 0: extent b and padding", (.low = L(2, 1, 0), .high = ZEROS2,
               .interior = ZEROS2), "f32[b,4] f32[]"),
        FAIL_A(PAD, SX_LIMIT, "axis 1: extent beyond", (.low = L(2, 0, SX_EXTENT_MAX), .high = L(2, 0,
               SX_EXTENT_MAX), .interior = L(2, 0, SX_EXTENT_MAX)), "f32[b,4000000000] f32[]"),
        GOOD_A(REDUCE_WINDOW, "f32[b,3]", (SLIDE(2, L(2, 1, 2), L(2, 0, 1), L(2, 0, 1), L(2, 1, 2)),
               .window = L(2, 1, 2)), "f32[b,5]"),
        GOOD_A(REDUCE_WINDOW, "f32[b,2]", (SLIDE(2, ONES2, L(2, 0, -1), L(2, 0, -1), ONES2), .window = L(2, 1, 2)),
               "f32[b,5]"),
        GOOD_A(REDUCE_WINDOW, "f32[b,0]", (SLIDE(2, ONES2, ZEROS2, ZEROS2, ONES2), .window = L(2, 1, 3)), "f32[b,0]"),
        BAD_A(REDUCE_WINDOW, "axis 1: the window covers 3 elements, the padded extent is 2", (SLIDE(2, ONES2,
              L(2, 0, -4), L(2, 0, 1), ONES2), .window = L(2, 1, 3)), "f32[b,5]"),
        FAIL_A(REDUCE_WINDOW, SX_UNIMPLEMENTED, "axis 0: windows of 1 by 1 on extent b", (SLIDE(2, ONES2,
               L(2, -1, 0), L(2, 1, 0), ONES2), .window = ONES2), "f32[b,5]"),
        GOOD_A(REDUCE_WINDOW, "f32[b,5]", (SLIDE(2, L(2, 2, 1), ZEROS2, ZEROS2, ONES2), .window = L(2, 2, 1)),
               "f32[2*b,5]"),
        BAD_A(REDUCE_WINDOW, "operand 0 has rank 0", (.reducer = SX_SUM), "f32[]"),
        BAD_A(REDUCE_WINDOW, "window[1] is 0, from 1", (SLIDE(2, ONES2, ZEROS2, ZEROS2, ONES2), .window = L(2, 1,
              0)), "f32[b,5]"),
        BAD_A(REDUCE_WINDOW, "stride[0] is 0, from 1", (SLIDE(2, L(2, 0, 1), ZEROS2, ZEROS2, ONES2),
              .window = ONES2), "f32[b,5]"),
        BAD_A(REDUCE_WINDOW, "dilation has 1 numbers", (SLIDE(2, ONES2, ZEROS2, ZEROS2, L(1, 1)),
              .window = ONES2), "f32[b,5]"),
        BAD_A(REDUCE_WINDOW, "axis 1: the window covers 7 elements, the padded extent is 6", (SLIDE(2, ONES2,
              L(2, 0, 1), ZEROS2, L(2, 1, 3)), .window = L(2, 1, 3)), "f32[b,5]"),
        BAD_A(REDUCE_WINDOW, "maximum of bool", (SLIDE(1, L(1, 1), L(1, 0), L(1, 0), L(1, 1)), .window = L(1, 1),
              .reducer = SX_MAX), "bool[5]"),
        FAIL_A(REDUCE_WINDOW, SX_UNIMPLEMENTED, "axis 0: windows of 2 by 1 on extent b", (SLIDE(2, ONES2, ZEROS2,
               ZEROS2, ONES2), .window = L(2, 2, 1)), "f32[b,5]"),
        FAIL_A(REDUCE_WINDOW, SX_UNIMPLEMENTED, "with padding 1", (SLIDE(2, ONES2, L(2, 1, 0), ZEROS2, ONES2),
               .window = L(2, 1, 1)), "f32[b,5]"),
        FAIL_A(REDUCE_WINDOW, SX_LIMIT, "axis 0: a window of", (SLIDE(1, L(1, 1), L(1, 0), L(1, 0), L(1,
               SX_EXTENT_MAX)), .window = L(1, SX_EXTENT_MAX)), "f32[5]"),
        GOOD_A(CONVOLUTION, "f32[b,16,8,4]", (SLIDE(2, L(2, 1, 2), ONES2, ONES2, ONES2), .groups = 1),
               "f32[b,3,8,8] f32[16,3,3,3]"),
        GOOD_A(CONVOLUTION, "f32[b,6,2]", (SLIDE(1, L(1, 2), L(1, 0), L(1, 1), L(1, 3)), .groups = 3),
               "f32[b,3,6] f32[6,1,2]"),
        GOOD_A(CONVOLUTION, "i8[1,2,1,1,1]", (SLIDE(3, L(3, 1, 1, 1), L(3, 0, 0, 0), L(3, 0, 0, 0), L(3, 1, 1,
               1)), .groups = 1), "i8[1,2,3,3,3] i8[2,2,3,3,3]"),
        BAD_A(CONVOLUTION, "operands of rank 2 and 2, takes two equal from 3 to 5", (.groups = 1),
              "f32[b,3] f32[16,3]"),
        BAD_A(CONVOLUTION, "operand 0 is f32, operand 1 is f16", (.groups = 1), "f32[b,3,8] f16[16,3,3]"),
        BAD_A(CONVOLUTION, "groups is 0, from 1", (.groups = 0), "f32[b,3,8] f32[16,3,3]"),
        BAD_A(CONVOLUTION, "2 groups of 3 channels in operand 1, operand 0 has 4 channels", (.groups = 2),
              "f32[b,4,8] f32[16,3,3]"),
        BAD_A(CONVOLUTION, "5 output channels in 2 groups", (.groups = 2), "f32[b,4,8] f32[5,2,3]"),
        BAD_A(CONVOLUTION, "low has 0 numbers for 1 dimensions", (.stride = L(1, 1), .high = L(1, 0),
              .dilation = L(1, 1), .groups = 1), "f32[b,3,8] f32[16,3,3]"),
        BAD_A(CONVOLUTION, "axis 2: the window covers 9 elements, the padded extent is 8", (SLIDE(1, L(1, 1),
              L(1, 0), L(1, 0), L(1, 1)), .groups = 1), "f32[b,3,8] f32[16,3,9]"),
        FAIL_A(CONVOLUTION, SX_UNIMPLEMENTED, "axis 2: a window of symbolic extent s", (SLIDE(1, L(1, 1), L(1,
               0), L(1, 0), L(1, 1)), .groups = 1), "f32[b,3,8] f32[16,3,s]"),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST

START_TEST(test_composites)
{
    const infer_case cases[] = {
        GOOD_A(SOFTMAX, "f32[b,4]", (.axis = 1), "f32[b,4]"), GOOD_A(LOG_SOFTMAX, "f32[b,4]", (.axis = 0), "f32[b,4]"),
        BAD_A(SOFTMAX, "axis 2 of a tensor of rank 2", (.axis = 2), "f32[b,4]"),
        BAD_A(SOFTMAX, "operand 0 is i32; takes floats", (.axis = 1), "i32[b,4]"),
        GOOD_A(LAYER_NORM, "f32[b,s,4]", (.axis = 2, .eps = 1e-5), "f32[b,s,4] f32[4] f32[4]"),
        GOOD_A(RMS_NORM, "f32[b,s,4]", (.axis = 1, .eps = 1e-5), "f32[b,s,4] f32[s,4]"),
        GOOD_A(BATCH_NORM, "f32[b,3,4]", (.axis = 1), "f32[b,3,4] f32[3] f32[3] f32[3] f32[3]"),
        BAD_A(BATCH_NORM, "axis 0 of operand 2 has extent 4, axis 1 of operand 0 3", (.axis = 1),
              "f32[b,3,4] f32[3] f32[4] f32[3] f32[3]"),
        BAD_A(BATCH_NORM, "operand 4 is f32 of rank 2, not f32 of rank 1", (.axis = 1),
              "f32[b,3,4] f32[3] f32[3] f32[3] f32[3,1]"),
        BAD_A(BATCH_NORM, "eps is -1, at least 0", (.axis = 1, .eps = -1), "f32[b,3,4] f32[3] f32[3] f32[3] f32[3]"),
        BAD_A(LAYER_NORM, "axis 0 of operand 2 has extent 5, axis 2 of operand 0 4", (.axis = 2),
              "f32[b,s,4] f32[4] f32[5]"),
        BAD_A(LAYER_NORM, "operand 1 has rank 2, operand 0 has 1 dimensions from axis 2", (.axis = 2),
              "f32[b,s,4] f32[s,4] f32[4]"),
        BAD_A(LAYER_NORM, "2 operands, takes 3 to 3", (.axis = 2), "f32[b,s,4] f32[4]"),
        BAD_A(RMS_NORM, "eps is -1, at least 0", (.axis = 1, .eps = -1.0), "f32[b,4] f32[4]"),
        BAD_A(RMS_NORM, "eps is not finite", (.axis = 1, .eps = HUGE_VAL), "f32[b,4] f32[4]"),
        BAD_A(RMS_NORM, "operand 1 is f64", (.axis = 1), "f32[b,4] f64[4]"),
        GOOD_A(ATTENTION, "f32[b,4,s,5]", (.scale = 0.5), "f32[b,4,s,64] f32[b,4,7,64] f32[b,4,7,5]"),
        GOOD_A(ATTENTION, "f32[s,5]", (.scale = 0.5), "f32[s,64] f32[7,64] f32[7,5] f32[s,7]"),
        BAD_A(ATTENTION, "axis 2 of operand 1 has extent 63, axis 2 of operand 0 64", (.scale = 1),
              "f32[b,s,64] f32[b,7,63] f32[b,7,5]"),
        BAD_A(ATTENTION, "axis 1 of operand 2 has extent 8, axis 1 of operand 1 7", (.scale = 1),
              "f32[b,s,64] f32[b,7,64] f32[b,8,5]"),
        BAD_A(ATTENTION, "axis 2 of operand 3 has extent 8, axis 1 of operand 1 7", (.scale = 1),
              "f32[b,s,64] f32[b,7,64] f32[b,7,5] f32[b,s,8]"),
        BAD_A(ATTENTION, "axis 0 of operand 2 has extent 2*b", (.scale = 1), "f32[b,s,64] f32[b,7,64] f32[2*b,7,64]"),
        BAD_A(ATTENTION, "operand 2 has rank 2", (.scale = 1), "f32[b,s,64] f32[b,7,64] f32[7,64]"),
        BAD_A(ATTENTION, "operand 0 has rank 1, at least 2", (.scale = 1), "f32[64] f32[64] f32[64]"),
    };
    run_cases(cases, SX_COUNT(cases));
}
END_TEST
/* clang-format on */

START_TEST(test_every_op_has_a_bad_case)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_type type = type_of("f32[2]");
    sx_type many[SX_INPUTS_MAX];
    for (uint32_t i = 0; i < SX_INPUTS_MAX; i++) {
        many[i] = type;
    }
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        sx_attr attr = {.present = sx_op_info_of((sx_op)i)->attrs};
        sx_body body = {0};
        attr.body = (attr.present & SX_A(body)) != 0 ? &body : NULL;
        sx_type result;
        uint32_t count = sx_op_info_of((sx_op)i)->input_max;
        if (count < SX_INPUTS_MAX) {
            ck_sx_fails(&cx, sx_infer_type(&cx, NULL, 0, (sx_op)i, &attr, many, count + 1, &result),
                        SX_INPUT, "operands, takes");
        }
        attr.present ^= SX_A(axis);
        ck_sx_fails(&cx, sx_infer_type(&cx, NULL, 0, (sx_op)i, &attr, many, count, &result),
                    SX_INPUT, "attribute axis is");
    }
    ck_sx_fails(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_COUNT, &(sx_attr){0}, many, 1, &many[0]),
                SX_INPUT, "operation number");
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/check");
    TCase *tcase = tcase_create("check");
    tcase_add_test(tcase, test_elementwise);
    tcase_add_test(tcase, test_leaves);
    tcase_add_test(tcase, test_views);
    tcase_add_test(tcase, test_combining);
    tcase_add_test(tcase, test_windows);
    tcase_add_test(tcase, test_composites);
    tcase_add_test(tcase, test_every_op_has_a_bad_case);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
