/* The operation `sort` against its definition, counted element by element here, and against what it is made of. */
#include <math.h>
#include <string.h>

#include "core/eval/eval.h"
#include "core/ir/num.h"
#include "core/ir/sort.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)512 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static bool is_float(const sx_type *type)
{
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

/* Few different values, so that many are equal; of floats zeros of both signs, infinities and NaN as well. */
static void draw(sx_rng *rng, sx_eval_mode mode, sx_tensor *x)
{
    double *number = x->data;
    int64_t *integer = x->data;
    bool odd = sx_rng_below(rng, 2) == 0;
    for (int64_t k = 0; k < sx_tensor_elements(&x->type); k++) {
        int64_t small = (int64_t)sx_rng_below(rng, 7) - 3;
        if (mode == SX_EVAL_MODP && x->type.dtype != SX_BOOL) {
            integer[k] = small < 0 ? 2147483647 + small : small;
        } else if (x->type.dtype == SX_BOOL) {
            integer[k] = small > 0;
        } else if (!is_float(&x->type)) {
            integer[k] = x->type.dtype == SX_U8 ? small + 3 : small;
        } else {
            static const double special[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, -0.0, 0.0};
            uint64_t which = sx_rng_below(rng, odd ? 8 : 64);
            number[k] = sx_num_round(x->type.dtype, which < SX_COUNT(special) ? special[which]
                                                                              : (double)small / 2);
        }
    }
}

/* Is element a of a smaller rank than b? Numbers before NaN, or behind it where the largest comes first. */
static bool comes_before(const sx_tensor *x, sx_eval_mode mode, bool falls, int64_t a, int64_t b)
{
    const int64_t *integer = x->data;
    if (is_float(&x->type) && mode != SX_EVAL_MODP) {
        const double *number = x->data;
        double low = number[falls ? b : a], high = number[falls ? a : b];
        if (isnan(low) || isnan(high)) {
            return isnan(high) && (!isnan(low) || a < b);
        }
        return low < high || (low == high && a < b);
    }
    bool residues = mode == SX_EVAL_MODP && x->type.dtype != SX_BOOL;
    int64_t p = residues ? 2147483647 : 0;
    int64_t low = integer[falls ? b : a], high = integer[falls ? a : b];
    low -= residues && low > p / 2 ? p : 0;
    high -= residues && high > p / 2 ? p : 0;
    return low < high || (low == high && a < b);
}

/* The number in x of the element that comes to place `at` of the result. */
static int64_t comes_from(const sx_test_op *t, const sx_tensor *x, sx_eval_mode mode, int64_t at)
{
    int64_t n = x->type.dim[t->attr.axis].scale, taken = t->result.dim[t->attr.axis].scale;
    int64_t inner = 1, found = -1;
    for (uint32_t d = (uint32_t)t->attr.axis + 1; d < x->type.rank; d++) {
        inner *= x->type.dim[d].scale;
    }
    int64_t first = at / inner / taken * n * inner + at % inner;
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = 0;
        for (int64_t j = 0; j < n; j++) {
            rank += comes_before(x, mode, t->attr.direction == SX_GT, first + j * inner,
                                 first + i * inner);
        }
        if (rank == at / inner % taken) {
            ck_assert_int_eq(found, -1);
            found = first + i * inner;
        }
    }
    ck_assert_int_ge(found, 0);
    return found;
}

static void check(const sx_test_op *t, const sx_tensor *x, sx_eval_mode mode, const sx_tensor *y)
{
    int64_t inner = 1;
    for (uint32_t d = (uint32_t)t->attr.axis + 1; d < x->type.rank; d++) {
        inner *= x->type.dim[d].scale;
    }
    for (int64_t k = 0; k < sx_tensor_elements(&t->result); k++) {
        int64_t from = comes_from(t, x, mode, k);
        if (t->attr.result == 1) {
            ck_assert_int_eq(((const int64_t *)y->data)[k],
                             from / inner % x->type.dim[t->attr.axis].scale);
        } else {
            const double *got = (const double *)y->data + k, *want = (const double *)x->data + from;
            bool saturated = x->type.dtype == SX_F8E5M2 && mode == SX_EVAL_TYPED && isinf(*want);
            if (saturated) {
                ck_assert(*got == copysign(57344, *want));
            } else {
                bool both_nan = is_float(&x->type) && isnan(*got) && isnan(*want);
                ck_assert(both_nan || memcmp(got, want, sizeof(*got)) == 0);
            }
        }
    }
}

static sx_tensor decomposed(const sx_test_op *t, sx_eval_mode mode, const sx_tensor *x)
{
    sx_graph *graph;
    sx_node_id in, made;
    sx_tensor result;
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("parts"), NULL, &graph));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &x->type, &in));
    ck_sx_ok(&cx, sx_decompose(&cx, graph, SX_OP_SORT, &t->attr, &in, 1, &made));
    ck_sx_ok(&cx, sx_graph_add_output(&cx, graph, SX_SPAN_LITERAL("y"), made));
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, mode, x, 1, &result, 1));
    return result;
}

static const sx_eval_mode modes[] = {SX_EVAL_TYPED, SX_EVAL_F64, SX_EVAL_MODP};

/* A NaN of the parts may have other bits. */
START_TEST(definition)
{
    sx_rng rng = {sx_test_seed()};
    sx_eval_mode mode = modes[_i];
    uint32_t turns = 0, trials = sx_test_trials(150);
    for (uint32_t trial = 0; trial < trials; trial++) {
        sx_test_op t;
        sx_tensor x;
        sx_ctx_fini(&cx);
        setup();
        sx_test_op_make(&cx, &rng, SX_OP_SORT, &t);
        if (trial % 3 == 0) { /* long enough for several extremes */
            t.input[0].rank = 2;
            t.attr.axis = (int64_t)sx_rng_below(&rng, 2);
            t.input[0].dim[t.attr.axis] = sx_dim_of(33 + (int64_t)sx_rng_below(&rng, 100));
            t.input[0].dim[1 - t.attr.axis] = sx_dim_of(1 + (int64_t)sx_rng_below(&rng, 2));
            t.attr.count = 1 + (int64_t)sx_rng_below(&rng, 9);
            ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, t.op, &t.attr, t.input, 1, &t.result));
        }
        turns += sx_sort_takes_turns(&t.attr, t.input) ? 1 : 0;
        sx_test_tensor(&cx, &rng, SX_EVAL_TYPED, &t.input[0], &x);
        draw(&rng, mode, &x);
        sx_tensor y = sx_test_eval(&cx, SX_OP_SORT, &t.attr, mode, &x, 1);
        check(&t, &x, mode, &y);
        sx_tensor parts = decomposed(&t, mode, &x);
        sx_test_tensor_equal(&y, &parts, "by its parts");
    }
    ck_assert_uint_gt(turns, trials / 8);
    ck_assert_uint_lt(turns, trials - trials / 8);
}
END_TEST

/* What the manual says, as text. */
START_TEST(known)
{
    static const char text[] =
        "sx 1\n"
        "graph \"known\" {\n"
        "%x = constant {data = [2, nan, -0, 0, -inf, 2, nan, inf]} : f32[8]\n"
        "%v, %i = sort(%x) {axis = 0, count = -1, direction = lt} : f32[8], i64[8]\n"
        "%w, %j = sort(%x) {axis = 0, count = 5, direction = gt} : f32[5], i64[5]\n"
        "%k = sort(%x) {axis = 0, count = 1, direction = lt, result = 1} : i64[1]\n"
        "return %v as \"v\", %i as \"i\", %w as \"w\", %j as \"j\", %k as \"k\"\n"
        "}\n";
    static const int64_t rising[] = {4, 2, 3, 0, 5, 7, 1, 6}, falling[] = {1, 6, 7, 0, 5};
    sx_graph *graph;
    sx_tensor y[5];
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    ck_sx_ok(&cx, sx_graph_eval(&cx, graph, SX_EVAL_TYPED, NULL, 0, y, 5));
    ck_assert_mem_eq(y[1].data, rising, sizeof(rising));
    ck_assert_mem_eq(y[3].data, falling, sizeof(falling));
    ck_assert_int_eq(*(const int64_t *)y[4].data, 4);
    const double *v = y[0].data, *w = y[2].data;
    ck_assert(v[0] == -HUGE_VAL && signbit(v[1]) && v[1] == 0 && !signbit(v[2]) && isnan(v[7]));
    ck_assert(isnan(w[0]) && isnan(w[1]) && w[2] == HUGE_VAL && w[3] == 2 && w[4] == 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sort");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, definition, 0, (int)SX_COUNT(modes));
    tcase_add_test(tcase, known);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
