/* Windows, padding and reversal against their definitions, element by element; batch_norm against its formula. */
#include <math.h>
#include <string.h>

#include "core/eval/eval.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

#define P UINT64_C(2147483647)

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)256 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void split(const sx_type *type, int64_t flat, int64_t *index)
{
    for (uint32_t d = type->rank; d-- > 0;) {
        index[d] = flat % type->dim[d].scale;
        flat /= type->dim[d].scale;
    }
}

/* -1 where the index lies outside. */
static int64_t join(const sx_type *type, const int64_t *index)
{
    int64_t flat = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (index[d] < 0 || index[d] >= type->dim[d].scale) {
            return -1;
        }
        flat = flat * type->dim[d].scale + index[d];
    }
    return flat;
}

static uint64_t bits(const sx_tensor *tensor, int64_t at)
{
    return ((const uint64_t *)tensor->data)[at];
}

/* An instance of `op` with random operands, evaluated. */
static sx_tensor instance(sx_rng *rng, sx_op op, sx_eval_mode mode, sx_test_op *t, sx_tensor *input)
{
    sx_test_op_make(&cx, rng, op, t);
    for (uint32_t i = 0; i < t->input_count; i++) {
        sx_test_tensor(&cx, rng, mode, &t->input[i], &input[i]);
    }
    return sx_test_eval(&cx, op, &t->attr, mode, input, t->input_count);
}

START_TEST(moving)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 400; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        sx_op op = k % 2 == 0 ? SX_OP_REVERSE : SX_OP_PAD;
        sx_tensor y = instance(&rng, op, SX_EVAL_F64, &t, x);
        const sx_attr *attr = &t.attr;
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t index[SX_RANK_MAX] = {0};
            bool between = false;
            split(&t.result, at, index);
            for (uint32_t i = 0; i < attr->dims.count; i++) {
                int64_t d = attr->dims.v[i];
                index[d] = t.result.dim[d].scale - 1 - index[d];
            }
            for (uint32_t d = 0; op == SX_OP_PAD && d < t.result.rank; d++) {
                int64_t step = attr->interior.v[d] + 1;
                index[d] -= attr->low.v[d];
                between = between || index[d] < 0 || index[d] % step != 0;
                index[d] /= step;
            }
            int64_t from = join(&t.input[0], index);
            uint64_t expected = between || from < 0 ? bits(&x[1], 0) : bits(&x[0], from);
            ck_assert_msg(bits(&y, at) == expected, "%s: element %lld", sx_op_info_of(op)->name,
                          (long long)at);
        }
    }
}
END_TEST

/* Every pair of an element of x and one of w that meet at a place, by searching all of them. */
static bool meets(const sx_test_op *t, const int64_t *out, const int64_t *x, const int64_t *w)
{
    const sx_attr *attr = &t->attr;
    int64_t outputs = t->input[1].dim[0].scale / attr->groups;
    int64_t inputs = t->input[1].dim[1].scale;
    bool met = x[0] == out[0] && w[0] == out[1] && x[1] == out[1] / outputs * inputs + w[1];
    for (uint32_t d = 2; d < t->result.rank; d++) {
        uint32_t k = d - 2;
        met =
            met && x[d] + attr->low.v[k] == out[d] * attr->stride.v[k] + w[d] * attr->dilation.v[k];
    }
    return met;
}

static uint64_t searched(const sx_test_op *t, const sx_tensor *input, int64_t at)
{
    int64_t out[SX_RANK_MAX] = {0};
    uint64_t sum = 0;
    split(&t->result, at, out);
    for (int64_t i = 0; i < sx_tensor_elements(&t->input[0]); i++) {
        int64_t x[SX_RANK_MAX] = {0};
        split(&t->input[0], i, x);
        for (int64_t j = 0; j < sx_tensor_elements(&t->input[1]); j++) {
            int64_t w[SX_RANK_MAX] = {0};
            split(&t->input[1], j, w);
            if (meets(t, out, x, w)) {
                sum = (sum + bits(&input[0], i) * bits(&input[1], j)) % P;
            }
        }
    }
    return sum;
}

START_TEST(convolving)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 60;) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        sx_tensor y = instance(&rng, SX_OP_CONVOLUTION, SX_EVAL_MODP, &t, x);
        int64_t count = sx_tensor_elements(&t.result);
        if (count * sx_tensor_elements(&t.input[0]) * sx_tensor_elements(&t.input[1]) > 400000) {
            continue;
        }
        k++;
        for (int64_t at = 0; at < count; at++) {
            ck_assert_uint_eq(bits(&y, at), searched(&t, x, at));
        }
    }
}
END_TEST

/* Padding is zeros that are multiplied: the same as a convolution of the padded operand, infinite weights included. */
START_TEST(padding_is_multiplied)
{
    sx_rng rng = {sx_test_seed()};
    uint32_t padded = 0;
    for (uint32_t k = 0; k < 200; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        sx_tensor y = instance(&rng, SX_OP_CONVOLUTION, SX_EVAL_TYPED, &t, x);
        if (sx_dtype_class_of(t.input[0].dtype) == SX_CLASS_FLOAT) {
            ((double *)x[1].data)[0] = k % 2 == 0 ? HUGE_VAL : 1;
            y = sx_test_eval(&cx, t.op, &t.attr, SX_EVAL_TYPED, x, 2);
        }
        sx_attr pad = {.present = sx_op_info_of(SX_OP_PAD)->attrs};
        pad.low.count = pad.high.count = pad.interior.count = t.result.rank;
        for (uint32_t d = 2; d < t.result.rank; d++) {
            pad.low.v[d] = t.attr.low.v[d - 2];
            pad.high.v[d] = t.attr.high.v[d - 2];
            padded += pad.low.v[d] > 0;
            t.attr.low.v[d - 2] = t.attr.high.v[d - 2] = 0;
        }
        uint64_t zero = 0;
        sx_tensor both[2] = {x[0], {{.dtype = t.input[0].dtype}, &zero}};
        x[0] = sx_test_eval(&cx, SX_OP_PAD, &pad, SX_EVAL_TYPED, both, 2);
        sx_tensor again = sx_test_eval(&cx, t.op, &t.attr, SX_EVAL_TYPED, x, 2);
        sx_test_tensor_equal(&y, &again, "convolution of the padded operand");
    }
    ck_assert_uint_gt(padded, 20);
}
END_TEST

/* The elements under the window gathered in order, then combined by the interpreter's own reduce, which has
 * its own tests. */
START_TEST(pooling)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 300; k++) {
        sx_test_op t;
        sx_tensor x[SX_TEST_INPUTS_MAX];
        sx_eval_mode mode = k % 2 == 0 ? SX_EVAL_TYPED : SX_EVAL_MODP;
        sx_tensor y = instance(&rng, SX_OP_REDUCE_WINDOW, mode, &t, x);
        sx_type window = {.dtype = SX_F32, .rank = t.result.rank};
        for (uint32_t d = 0; d < window.rank; d++) {
            window.dim[d] = sx_dim_of(t.attr.window.v[d]);
        }
        for (int64_t at = 0; at < sx_tensor_elements(&t.result); at++) {
            int64_t out[SX_RANK_MAX] = {0};
            uint64_t taken[729];
            int64_t count = 0;
            split(&t.result, at, out);
            for (int64_t i = 0; i < sx_tensor_elements(&window); i++) {
                int64_t in[SX_RANK_MAX] = {0};
                split(&window, i, in);
                for (uint32_t d = 0; d < window.rank; d++) {
                    in[d] = out[d] * t.attr.stride.v[d] + in[d] * t.attr.dilation.v[d] -
                            t.attr.low.v[d];
                }
                int64_t from = join(&t.input[0], in);
                if (from >= 0) {
                    taken[count++] = bits(&x[0], from);
                }
            }
            if (count == 0) {
                continue;
            }
            sx_attr reduce = {.present = SX_A(dims) | SX_A(reducer), .reducer = t.attr.reducer};
            reduce.dims.count = 1;
            sx_tensor list = {{.dtype = t.result.dtype, .rank = 1, .dim = {sx_dim_of(count)}},
                              taken};
            sx_tensor one = sx_test_eval(&cx, SX_OP_REDUCE, &reduce, mode, &list, 1);
            sx_tensor found = {{.dtype = t.result.dtype}, (uint64_t *)y.data + at};
            sx_test_tensor_equal(&one, &found, "place of the window");
        }
    }
}
END_TEST

/* A window that meets padding alone gives the neutral element. */
START_TEST(pooling_of_nothing)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs};
    attr.window = attr.stride = attr.dilation = (sx_ints){1, {1}};
    attr.low = (sx_ints){1, {1}};
    attr.high = (sx_ints){1, {0}};
    double element = 5;
    static const double expected[] = {
        [SX_SUM] = 0, [SX_PRODUCT] = 1, [SX_MAX] = -HUGE_VAL, [SX_MIN] = HUGE_VAL};
    for (sx_reducer r = 0; r < SX_REDUCER_COUNT; r++) {
        attr.reducer = r;
        sx_tensor x = {{SX_F32, 1, {{1, SX_NO_SYMBOL}}}, &element};
        sx_tensor y = sx_test_eval(&cx, SX_OP_REDUCE_WINDOW, &attr, SX_EVAL_TYPED, &x, 1);
        ck_assert(((double *)y.data)[0] == expected[r]);
        ck_assert(((double *)y.data)[1] == 5);
    }
}
END_TEST

START_TEST(normalising)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t k = 0; k < 40; k++) {
        sx_type type = sx_test_type(&rng, SX_F64, 4, 5);
        if (type.rank == 0) {
            continue;
        }
        uint32_t axis = (uint32_t)sx_rng_below(&rng, type.rank);
        sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = axis, .eps = 0.01};
        sx_type channel = {.dtype = SX_F64, .rank = 1, .dim = {type.dim[axis]}};
        sx_tensor x[5];
        for (uint32_t i = 0; i < 5; i++) {
            sx_test_tensor(&cx, &rng, SX_EVAL_F64, i == 0 ? &type : &channel, &x[i]);
        }
        double *v[5] = {x[0].data, x[1].data, x[2].data, x[3].data, x[4].data};
        for (int64_t c = 0; c < type.dim[axis].scale; c++) {
            v[4][c] *= v[4][c]; /* a variance */
        }
        sx_tensor y = sx_test_eval(&cx, SX_OP_BATCH_NORM, &attr, SX_EVAL_F64, x, 5);
        for (int64_t at = 0; at < sx_tensor_elements(&type); at++) {
            int64_t index[SX_RANK_MAX] = {0};
            split(&type, at, index);
            int64_t c = index[axis];
            double expected = (v[0][at] - v[3][c]) / sqrt(v[4][c] + 0.01) * v[1][c] + v[2][c];
            double found = ((double *)y.data)[at];
            ck_assert_msg(fabs(found - expected) <= 1e-12 * (1 + fabs(expected)), "%g, expected %g",
                          found, expected);
        }
    }
}
END_TEST

/* Hours of work in a few bytes of text are refused by fuel. */
START_TEST(fuel_bounds_windows)
{
    sx_ctx small;
    sx_ctx_init(&small, (size_t)64 << 20);
    small.fuel = 100000;
    sx_attr attr = {.present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs};
    attr.window = (sx_ints){1, {SX_EXTENT_MAX}};
    attr.low = (sx_ints){1, {SX_EXTENT_MAX}};
    attr.high = (sx_ints){1, {0}};
    attr.stride = attr.dilation = (sx_ints){1, {1}};
    double element[4] = {0};
    sx_tensor x = {{SX_F32, 1, {{4, SX_NO_SYMBOL}}}, element};
    sx_type type = {SX_F32, 1, {{5, SX_NO_SYMBOL}}};
    sx_tensor y;
    ck_assert_int_eq(
        sx_node_eval(&small, SX_OP_REDUCE_WINDOW, &attr, SX_EVAL_F64, &x, 1, &type, &y), SX_QUOTA);
    sx_ctx_fini(&small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("window");
    TCase *tcase = tcase_create("windows");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, moving);
    tcase_add_test(tcase, convolving);
    tcase_add_test(tcase, padding_is_multiplied);
    tcase_add_test(tcase, pooling);
    tcase_add_test(tcase, pooling_of_nothing);
    tcase_add_test(tcase, normalising);
    tcase_add_test(tcase, fuel_bounds_windows);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
