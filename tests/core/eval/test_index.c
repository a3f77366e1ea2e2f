/* Scatter, dynamic slices and dynamic updates against scalar loops written here: one update, one element at a time. */
#include <math.h>
#include <string.h>

#include "core/eval/eval.h"
#include "core/ir/num.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

static sx_ctx cx;

typedef union {
    double f;
    int64_t i;
    uint64_t u;
} test_cell;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static uint64_t *bits(const sx_tensor *tensor)
{
    return tensor->data;
}

/* Starts and indices beyond every extent, and at the ends of their types. */
static void draw_integers(sx_rng *rng, sx_tensor *tensor)
{
    int64_t *integer = tensor->data;
    bool u8 = tensor->type.dtype == SX_U8;
    uint32_t width = 8 * sx_dtype_bytes(tensor->type.dtype);
    for (int64_t k = 0; k < sx_tensor_elements(&tensor->type); k++) {
        int64_t small = (int64_t)sx_rng_below(rng, 15) - 7;
        int64_t top = u8 ? 255 : (int64_t)(UINT64_MAX >> 1 >> (64 - width));
        uint64_t which = sx_rng_below(rng, 8);
        integer[k] = which == 0 ? top : which == 1 ? (u8 ? 0 : -top - 1) : small;
        integer[k] = u8 && integer[k] < 0 ? -integer[k] : integer[k];
    }
}

/* An instance of `op` evaluated, with the integers from operand `first` to `end` drawn so. */
static sx_tensor instance(sx_rng *rng, sx_op op, sx_eval_mode mode, sx_test_op *t, sx_tensor *input)
{
    sx_test_op_make(&cx, rng, op, t);
    uint32_t first = op == SX_OP_DYNAMIC_UPDATE_SLICE ? 2 : 1;
    uint32_t end = op == SX_OP_SCATTER ? 2 : t->input_count;
    for (uint32_t i = 0; i < t->input_count; i++) {
        sx_test_tensor(&cx, rng, mode, &t->input[i], &input[i]);
        if (i >= first && i < end) {
            draw_integers(rng, &input[i]);
        }
    }
    return sx_test_eval(&cx, op, &t->attr, mode, input, t->input_count);
}

/* What an index names, or -1. */
static int64_t row_of(int64_t index, int64_t extent)
{
    if (index >= 0 && index < extent) {
        return index;
    }
    return index < 0 && index >= -extent ? extent + index : -1;
}

static double round_f32(double value)
{
    return (double)(float)value;
}

/* One step on doubles; sums and products of types below f64 are those of f32. */
static double combine_float(sx_reducer reducer, bool f64, double x, double y)
{
    switch (reducer) {
    case SX_SUM: return f64 ? x + y : round_f32(x + y);
    case SX_PRODUCT: return f64 ? x * y : round_f32(x * y);
    case SX_MAX: return isnan(x) || isnan(y) ? (double)NAN : y > x ? y : x;
    case SX_MIN: return isnan(x) || isnan(y) ? (double)NAN : y < x ? y : x;
    default: return y;
    }
}

static int64_t wrapped(sx_dtype dtype, uint64_t value)
{
    switch ((int)dtype) {
    case SX_I32: return (int32_t)(uint32_t)value;
    case SX_I16: return (int16_t)(uint16_t)value;
    case SX_I8: return (int8_t)(uint8_t)value;
    case SX_U8: return (uint8_t)value;
    case SX_BOOL: return value != 0;
    default: return (int64_t)value;
    }
}

static int64_t combine_integer(sx_reducer reducer, sx_dtype dtype, int64_t x, int64_t y)
{
    switch (reducer) {
    case SX_SUM: return wrapped(dtype, (uint64_t)x + (uint64_t)y);
    case SX_PRODUCT: return wrapped(dtype, (uint64_t)x * (uint64_t)y);
    case SX_MAX: return y > x ? y : x;
    case SX_MIN: return y < x ? y : x;
    default: return y;
    }
}

/* Element `at` of the result: all updates are looked at, from the first to the last. */
static test_cell scattered(const sx_test_op *t, const sx_tensor *input, int64_t at)
{
    const sx_attr *attr = &t->attr;
    sx_dtype dtype = t->result.dtype;
    bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    int64_t extent = t->result.dim[attr->axis].scale;
    int64_t inner = 1;
    for (uint32_t d = (uint32_t)attr->axis + 1; d < t->result.rank; d++) {
        inner *= t->result.dim[d].scale;
    }
    int64_t picks = sx_tensor_elements(&t->input[1]);
    int64_t outer = at / inner / extent;
    test_cell sum = {.u = bits(&input[0])[at]};
    for (int64_t k = 0; k < picks; k++) {
        int64_t row = row_of(((const int64_t *)input[1].data)[k], extent);
        test_cell y = {.u = bits(&input[2])[(outer * picks + k) * inner + at % inner]};
        if (row != at / inner % extent) {
            continue;
        }
        if (real && attr->reducer != SX_REPLACE) {
            sum.f = combine_float(attr->reducer, dtype == SX_F64, sum.f, y.f);
        } else {
            sum.i = combine_integer(attr->reducer, dtype, sum.i, y.i);
        }
    }
    if (real && attr->reducer != SX_REPLACE) {
        sum.f = sx_round(dtype, sum.f); /* once, in the end */
    }
    return sum;
}

START_TEST(scattering)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t seen[SX_REPLACE + 1] = {0};
    uint32_t types = 0;
    for (uint32_t k = 0; k < 1500; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        sx_tensor y = instance(&rng, SX_OP_SCATTER, SX_EVAL_TYPED, &t, x);
        bool real = sx_dtype_class_of(t.result.dtype) == SX_CLASS_FLOAT;
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            test_cell want = scattered(&t, x, at);
            test_cell got = {.u = bits(&y)[at]};
            bool nan = real && isnan(got.f) && isnan(want.f);
            ck_assert_msg(nan || got.u == want.u, "%s of %s: element %lld: %.17g, expected %.17g",
                          sx_reducer_name(t.attr.reducer), sx_dtype_name(t.result.dtype),
                          (long long)at, got.f, want.f);
        }
        seen[t.attr.reducer]++;
        types |= 1u << t.result.dtype;
    }
    for (uint32_t r = 0; r <= SX_REPLACE; r++) {
        ck_assert_uint_gt(seen[r], 50);
    }
    ck_assert_uint_eq(types, (1u << SX_DTYPE_COUNT) - 1);
}
END_TEST

static void split(const sx_type *type, int64_t flat, int64_t *index)
{
    for (uint32_t d = type->rank; d-- > 0;) {
        index[d] = flat % type->dim[d].scale;
        flat /= type->dim[d].scale;
    }
}

static int64_t join(const sx_type *type, const int64_t *index)
{
    int64_t flat = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        flat = flat * type->dim[d].scale + index[d];
    }
    return flat;
}

/* Where the box begins along each dimension. */
static void starts_of(const sx_test_op *t, const sx_type *whole, const sx_type *box,
                      const sx_tensor *start, int64_t *at)
{
    for (uint32_t k = 0; k < t->attr.dims.count; k++) {
        int64_t d = t->attr.dims.v[k];
        int64_t value = *(const int64_t *)start[k].data;
        int64_t last = whole->dim[d].scale - box->dim[d].scale;
        at[d] = value < 0 ? 0 : value > last ? last : value;
    }
}

START_TEST(slicing)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 600; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        int64_t start[SX_RANK_MAX] = {0};
        sx_tensor y = instance(&rng, SX_OP_DYNAMIC_SLICE, SX_EVAL_F64, &t, x);
        starts_of(&t, &t.input[0], &t.result, &x[1], start);
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t index[SX_RANK_MAX] = {0};
            split(&t.result, at, index);
            for (uint32_t d = 0; d < t.result.rank; d++) {
                index[d] += start[d];
            }
            ck_assert_uint_eq(bits(&y)[at], bits(&x[0])[join(&t.input[0], index)]);
        }
    }
}
END_TEST

START_TEST(updating)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 600; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        int64_t start[SX_RANK_MAX] = {0};
        sx_tensor y = instance(&rng, SX_OP_DYNAMIC_UPDATE_SLICE, SX_EVAL_F64, &t, x);
        starts_of(&t, &t.input[0], &t.input[1], &x[2], start);
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t index[SX_RANK_MAX] = {0};
            bool inside = true;
            split(&t.result, at, index);
            for (uint32_t d = 0; d < t.result.rank; d++) {
                index[d] -= start[d];
                inside = inside && index[d] >= 0 && index[d] < t.input[1].dim[d].scale;
            }
            uint64_t want = inside ? bits(&x[1])[join(&t.input[1], index)] : bits(&x[0])[at];
            ck_assert_uint_eq(bits(&y)[at], want);
        }
    }
}
END_TEST

static sx_tensor evaluated(const char *text, const sx_tensor *input, uint32_t count)
{
    sx_graph *graph;
    sx_tensor result;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, input, count, &result, 1));
    return result;
}

/* The last of equal indices stays; what is out of range on either side is dropped, also where 32 bits of it are not. */
START_TEST(by_hand)
{
    static const char set[] = "sx 1 graph \"\" () {\n"
                              "%x = constant {data = [0, 10, 20, 30]} : f32[4]\n"
                              "%i = constant {data = [1, -1, 4, 1, -5, 4294967298, -4294967296, "
                              "9223372036854775807, -4]} : i64[9]\n"
                              "%u = constant {data = [1, 2, 3, 4, 5, 6, 7, 8, 9]} : f32[9]\n"
                              "%0 = scatter(%x, %i, %u) {axis = 0, reducer = set} : f32[4]\n"
                              "return %0 as \"y\" }\n";
    static const double kept[4] = {9, 4, 20, 2};
    sx_tensor y = evaluated(set, NULL, 0);
    ck_assert_mem_eq(y.data, kept, sizeof(kept));
    /* 2048 + 1 is 2048 in f16 (ulp 2): two steps would stay there, one rounding of 2050 does not */
    static const char sum[] = "sx 1 graph \"\" () {\n"
                              "%x = constant {data = 2048} : f16[1]\n"
                              "%i = constant {data = 0} : i32[2]\n"
                              "%u = constant {data = 1} : f16[2]\n"
                              "%0 = scatter(%x, %i, %u) {axis = 0, reducer = add} : f16[1]\n"
                              "return %0 as \"y\" }\n";
    y = evaluated(sum, NULL, 0);
    ck_assert_double_eq(*(const double *)y.data, 2050);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index");
    TCase *tcase = tcase_create("places");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, scattering);
    tcase_add_test(tcase, slicing);
    tcase_add_test(tcase, updating);
    tcase_add_test(tcase, by_hand);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
