/* Composites against their closed forms in double precision, written here from the definitions. */
#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

#define DIM(extent) ((sx_dim){extent, SX_NO_SYMBOL})
#define ROWS 6
#define COLUMNS 7

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static void near(double found, double expected, double tolerance)
{
    ck_assert_msg(fabs(found - expected) <= tolerance * fmax(1, fabs(expected)),
                  "%.17g, expected %.17g", found, expected);
}

static sx_tensor random_tensor(sx_rng *rng, sx_dtype dtype, uint32_t rank, const int64_t *extent)
{
    sx_type type = {.dtype = dtype, .rank = rank};
    sx_tensor tensor;
    for (uint32_t d = 0; d < rank; d++) {
        type.dim[d] = DIM(extent[d]);
    }
    sx_test_tensor(&cx, rng, SX_EVAL_F64, &type, &tensor);
    return tensor;
}

static double *numbers(const sx_tensor *tensor)
{
    return tensor->data;
}

START_TEST(pointwise)
{
    sx_rng rng = {sx_test_seed()};
    sx_tensor x = random_tensor(&rng, SX_F64, 1, (int64_t[]){200});
    static const sx_op ops[] = {SX_OP_RELU, SX_OP_GELU, SX_OP_GELU_TANH, SX_OP_SILU};
    for (uint32_t k = 0; k < 4; k++) {
        sx_tensor y = sx_test_eval(&cx, ops[k], &(sx_attr){0}, SX_EVAL_F64, &x, 1);
        for (uint32_t i = 0; i < 200; i++) {
            double v = numbers(&x)[i];
            double cube = v * v * v;
            double expected[4] = {v > 0 ? v : 0, v * 0.5 * erfc(-v / sqrt(2)),
                                  v / (1 + exp(-2 * sqrt(2 / M_PI) * (v + 0.044715 * cube))),
                                  v / (1 + exp(-v))};
            near(numbers(&y)[i], expected[k], 1e-14);
        }
    }
    numbers(&x)[0] = (double)NAN;
    sx_tensor y = sx_test_eval(&cx, SX_OP_RELU, &(sx_attr){0}, SX_EVAL_F64, &x, 1);
    ck_assert(isnan(numbers(&y)[0]));
}
END_TEST

/* softmax and log_softmax along axis 0 and 1; shifting a row changes nothing. */
START_TEST(softmaxes)
{
    sx_rng rng = {sx_test_seed()};
    sx_tensor x = random_tensor(&rng, SX_F64, 2, (int64_t[]){ROWS, COLUMNS});
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        numbers(&x)[i] = 40 * numbers(&x)[i] + 800; // e^840 is infinite
    }
    for (uint32_t axis = 0; axis < 2; axis++) {
        sx_attr attr = {.present = SX_A(axis), .axis = axis};
        sx_tensor y = sx_test_eval(&cx, SX_OP_SOFTMAX, &attr, SX_EVAL_F64, &x, 1);
        sx_tensor z = sx_test_eval(&cx, SX_OP_LOG_SOFTMAX, &attr, SX_EVAL_F64, &x, 1);
        for (uint32_t r = 0; r < ROWS; r++) {
            for (uint32_t c = 0; c < COLUMNS; c++) {
                double sum = 0; // of e^(x_j - x_i): 1 / softmax
                for (uint32_t k = 0; k < (axis == 0 ? ROWS : COLUMNS); k++) {
                    uint32_t other = axis == 0 ? k * COLUMNS + c : r * COLUMNS + k;
                    sum += exp(numbers(&x)[other] - numbers(&x)[r * COLUMNS + c]);
                }
                near(numbers(&y)[r * COLUMNS + c], 1 / sum, 1e-13);
                near(numbers(&z)[r * COLUMNS + c], -log(sum), 1e-13);
            }
        }
    }
}
END_TEST

/* Rows of axes 1 and 2 together; a large common offset stays harmless with the two-pass variance. */
START_TEST(norms)
{
    sx_rng rng = {sx_test_seed()};
    sx_tensor x[3] = {random_tensor(&rng, SX_F64, 3, (int64_t[]){ROWS, 3, COLUMNS}),
                      random_tensor(&rng, SX_F64, 2, (int64_t[]){3, COLUMNS}),
                      random_tensor(&rng, SX_F64, 2, (int64_t[]){3, COLUMNS})};
    const uint32_t n = 3 * COLUMNS;
    for (uint32_t i = 0; i < ROWS * n; i++) {
        numbers(&x[0])[i] += 1e6;
    }
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = 1, .eps = 1e-5};
    sx_tensor y = sx_test_eval(&cx, SX_OP_LAYER_NORM, &attr, SX_EVAL_F64, x, 3);
    sx_tensor z = sx_test_eval(&cx, SX_OP_RMS_NORM, &attr, SX_EVAL_F64, x, 2);
    for (uint32_t r = 0; r < ROWS; r++) {
        const double *row = numbers(&x[0]) + r * n;
        double mean = 0;
        double variance = 0;
        double square = 0;
        for (uint32_t c = 0; c < n; c++) {
            mean += (row[c] - 1e6) / n;
            square += row[c] * row[c] / n;
        }
        for (uint32_t c = 0; c < n; c++) {
            double d = row[c] - 1e6 - mean;
            variance += d * d / n;
        }
        for (uint32_t c = 0; c < n; c++) {
            double scale = numbers(&x[1])[c];
            double unit = (row[c] - 1e6 - mean) / sqrt(variance + 1e-5);
            near(numbers(&y)[r * n + c], unit * scale + numbers(&x[2])[c], 1e-8);
            near(numbers(&z)[r * n + c], row[c] / sqrt(square + 1e-5) * scale, 1e-13);
        }
    }
}
END_TEST

/* One head after the other, weights written as quotients of sums; the mask forbids the keys after the query. */
static void check_attention(sx_rng *rng, bool masked)
{
    enum { HEADS = 2, S = 4, T = 5, D = 3, E = 6 };
    sx_tensor x[4] = {random_tensor(rng, SX_F64, 3, (int64_t[]){HEADS, S, D}),
                      random_tensor(rng, SX_F64, 3, (int64_t[]){HEADS, T, D}),
                      random_tensor(rng, SX_F64, 3, (int64_t[]){HEADS, T, E}),
                      random_tensor(rng, SX_F64, 3, (int64_t[]){HEADS, S, T})};
    for (uint32_t i = 0; i < HEADS * S * T; i++) {
        numbers(&x[3])[i] = i % T > i / T % S ? -HUGE_VAL : 0;
    }
    sx_attr attr = {.present = SX_A(scale), .scale = 0.6};
    sx_tensor y = sx_test_eval(&cx, SX_OP_ATTENTION, &attr, SX_EVAL_F64, x, masked ? 4 : 3);
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t s = 0; s < S; s++) {
            double weight[T];
            double total = 0;
            for (uint32_t t = 0; t < T; t++) {
                double score = 0;
                for (uint32_t d = 0; d < D; d++) {
                    score +=
                        numbers(&x[0])[(h * S + s) * D + d] * numbers(&x[1])[(h * T + t) * D + d];
                }
                weight[t] = masked && t > s ? 0 : exp(0.6 * score);
                total += weight[t];
            }
            for (uint32_t e = 0; e < E; e++) {
                double sum = 0;
                for (uint32_t t = 0; t < T; t++) {
                    sum += weight[t] / total * numbers(&x[2])[(h * T + t) * E + e];
                }
                near(numbers(&y)[(h * S + s) * E + e], sum, 1e-13);
            }
        }
    }
}

START_TEST(attention)
{
    sx_rng rng = {sx_test_seed()};
    check_attention(&rng, false);
    check_attention(&rng, true);
}
END_TEST

/* Narrow types compute in f32 and round once: never more than one place from the double result. */
START_TEST(narrow_types_round_once)
{
    sx_rng rng = {sx_test_seed()};
    static const sx_op ops[] = {SX_OP_GELU, SX_OP_SILU, SX_OP_SOFTMAX, SX_OP_LOG_SOFTMAX};
    static const sx_dtype dtypes[] = {SX_BF16, SX_F16};
    for (uint32_t k = 0; k < 8; k++) {
        sx_dtype dtype = dtypes[k % 2];
        sx_op op = ops[k / 2];
        sx_attr attr = {.present = sx_op_info_of(op)->attrs, .axis = 0};
        attr.axis = attr.present == 0 ? 0 : 1;
        sx_tensor x = random_tensor(&rng, dtype, 2, (int64_t[]){ROWS, COLUMNS});
        sx_tensor exact = sx_test_eval(&cx, op, &attr, SX_EVAL_F64, &x, 1);
        sx_tensor y = sx_test_eval(&cx, op, &attr, SX_EVAL_TYPED, &x, 1);
        uint32_t same = 0;
        for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
            double expected = sx_round(dtype, numbers(&exact)[i]);
            near(numbers(&y)[i], expected, dtype == SX_BF16 ? 0x1p-7 : 0x1p-10);
            same += numbers(&y)[i] == expected;
        }
        ck_assert_uint_ge(same, ROWS * COLUMNS - 2);
    }
}
END_TEST

START_TEST(refuses)
{
    sx_graph *graph;
    sx_node_id x;
    sx_node_id y;
    uint32_t symbol;
    sx_type type = {SX_F32, 2, {DIM(3), {1, 0}}};
    sx_attr attr = {.present = SX_A(axis) | SX_A(eps), .axis = 1, .eps = 1e-5};
    sx_type scale = {SX_F32, 1, {{1, 0}}};
    ck_sx_ok(&cx, sx_graph_make(&cx, SX_SPAN_LITERAL("g"), NULL, &graph));
    ck_sx_ok(&cx, sx_graph_add_symbol(&cx, graph, SX_SPAN_LITERAL("n"), 1, 9, &symbol));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "x", false, &type, &x));
    ck_sx_ok(&cx, sx_build_parameter(&cx, graph, "y", false, &scale, &y));
    sx_node_id input[2] = {x, y};
    sx_node_id made;
    ck_sx_fails(&cx, sx_decompose(&cx, graph, SX_OP_RMS_NORM, &attr, input, 2, &made),
                SX_UNIMPLEMENTED, "dimension 1 is symbolic");
    ck_sx_fails(&cx, sx_decompose(&cx, graph, SX_OP_ADD, &(sx_attr){0}, input, 2, &made), SX_INPUT,
                "add: not a composite");
    ck_sx_fails(&cx, sx_decompose(&cx, graph, SX_OP_RELU, &(sx_attr){0}, input, 2, &made), SX_INPUT,
                "relu: 2 inputs");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compose");
    TCase *tcase = tcase_create("compose");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, pointwise);
    tcase_add_test(tcase, softmaxes);
    tcase_add_test(tcase, norms);
    tcase_add_test(tcase, attention);
    tcase_add_test(tcase, narrow_types_round_once);
    tcase_add_test(tcase, refuses);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
