#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/import/import.h"
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "tests/client/import/onnx_make.h"
#include "tests/lib/test.h"

/* Operators against loops written here: shapes drawn at random, and meanings newer than the packaged test data
 * (opset 18 on). */

#define F SX_ONNX_FLOAT
#define ARGUMENTS_MAX 4

typedef struct {
    sx_ctx cx;
    onnx_make m;
    sx_rng rng;
    sx_tensor argument[ARGUMENTS_MAX];
    uint32_t argument_count;
    sx_tensor result[4];
} fixture;

static void begin(fixture *f, uint64_t seed)
{
    memset(f, 0, sizeof(*f));
    sx_ctx_init(&f->cx, 64 << 20);
    make_begin(&f->m);
    f->rng.state = seed;
}

static void end(fixture *f)
{
    make_free(&f->m);
    sx_ctx_fini(&f->cx);
}

/* A float input with random values; its elements. */
static double *add_input(fixture *f, const char *name, uint32_t rank, const int64_t *dim)
{
    sx_type type = {.dtype = SX_F32, .rank = rank};
    char dims[128] = "";
    for (uint32_t k = 0; k < rank; k++) {
        type.dim[k] = sx_dim_of(dim[k]);
        size_t used = strlen(dims);
        (void)snprintf(dims + used, sizeof(dims) - used, "%s%lld", k > 0 ? "," : "",
                       (long long)dim[k]);
    }
    make_input(&f->m, name, F, dims);
    int64_t elements = sx_tensor_elements(&type);
    double *data = SX_NEW_ARRAY(&f->cx, double, (size_t)elements);
    ck_assert_ptr_nonnull(data);
    for (int64_t k = 0; k < elements; k++) {
        data[k] = (double)sx_rng_f32(&f->rng);
    }
    ck_assert_uint_lt(f->argument_count, ARGUMENTS_MAX);
    f->argument[f->argument_count++] = (sx_tensor){type, data};
    return data;
}

/* Imports and evaluates in f64: results of output 0. */
static const double *run(fixture *f, int64_t opset, uint32_t outputs)
{
    sx_graph *graph;
    sx_weights *weights;
    ck_sx_ok(&f->cx, sx_onnx_import(&f->cx, make_end(&f->m, opset), NULL, &graph, &weights));
    ck_sx_ok(&f->cx, sx_graph_check(&f->cx, graph));
    ck_sx_ok(&f->cx, sx_graph_eval(&f->cx, graph, SX_EVAL_F64, f->argument, f->argument_count,
                                   f->result, outputs));
    return f->result[0].data;
}

/* Computed in f64, but constants are rounded to f32 first. */
static void want(double got, double wanted)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-7 * (1 + fabs(wanted)), "%.17g, %.17g wanted", got,
                  wanted);
}

static int64_t draw(fixture *f, int64_t low, int64_t high)
{
    return low + (int64_t)sx_rng_below(&f->rng, (uint64_t)(high - low + 1));
}

/* ---- products ---- */

/* Row-major position of index `i` (of the last `rank` dimensions of it) where extents of 1 are repeated. */
static int64_t at(const int64_t *i, uint32_t total, const int64_t *dim, uint32_t rank)
{
    int64_t position = 0;
    for (uint32_t k = 0; k < rank; k++) {
        position = position * dim[k] + (dim[k] == 1 ? 0 : i[total - rank + k]);
    }
    return position;
}

/* a [batch.., m, k] b [batch.., k, n] with batch dimensions missing or 1 at random. */
START_TEST(test_matmul)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t round = 0; round < 200; round++) {
        fixture f;
        begin(&f, seed + round);
        uint32_t batch = (uint32_t)draw(&f, 0, 2);
        int64_t full[4];
        for (uint32_t k = 0; k < batch; k++) {
            full[k] = draw(&f, 1, 3);
        }
        int64_t m = draw(&f, 1, 4);
        int64_t n = draw(&f, 1, 4);
        int64_t depth = draw(&f, 1, 4);
        int64_t dim[2][4];
        uint32_t rank[2];
        for (uint32_t side = 0; side < 2; side++) {
            uint32_t own = (uint32_t)draw(&f, 0, batch);
            for (uint32_t k = 0; k < own; k++) {
                dim[side][k] = draw(&f, 0, 2) == 0 ? 1 : full[batch - own + k];
            }
            dim[side][own] = side == 0 ? m : depth;
            dim[side][own + 1] = side == 0 ? depth : n;
            rank[side] = own + 2;
        }
        const double *a = add_input(&f, "a", rank[0], dim[0]);
        const double *b = add_input(&f, "b", rank[1], dim[1]);
        make_node(&f.m, "MatMul", "a,b", "y");
        static const char *const unknown[] = {"?,?", "?,?,?", "?,?,?,?"};
        make_output(&f.m, "y", F, unknown[(rank[0] > rank[1] ? rank[0] : rank[1]) - 2]);
        const double *y = run(&f, 13, 1);
        const sx_type *type = &f.result[0].type;
        int64_t index[4] = {0};
        for (int64_t e = 0; e < sx_tensor_elements(type); e++) {
            int64_t rest = e;
            for (uint32_t k = type->rank; k-- > 0;) {
                index[k] = rest % type->dim[k].scale;
                rest /= type->dim[k].scale;
            }
            double sum = 0;
            for (int64_t k = 0; k < depth; k++) {
                int64_t left = at(index, type->rank - 2, dim[0], rank[0] - 2) * m * depth +
                               index[type->rank - 2] * depth + k;
                int64_t right = at(index, type->rank - 2, dim[1], rank[1] - 2) * depth * n + k * n +
                                index[type->rank - 1];
                sum += a[left] * b[right];
            }
            want(y[e], sum);
        }
        end(&f);
    }
}
END_TEST

START_TEST(test_gemm)
{
    uint64_t seed = sx_test_seed();
    for (uint32_t round = 0; round < 100; round++) {
        fixture f;
        begin(&f, seed + round);
        int64_t m = draw(&f, 1, 4);
        int64_t n = draw(&f, 1, 4);
        int64_t depth = draw(&f, 1, 4);
        int64_t ta = draw(&f, 0, 1);
        int64_t tb = draw(&f, 0, 1);
        const double *a = add_input(&f, "a", 2, ta ? (int64_t[]){depth, m} : (int64_t[]){m, depth});
        const double *b = add_input(&f, "b", 2, tb ? (int64_t[]){n, depth} : (int64_t[]){depth, n});
        bool rows = draw(&f, 0, 1) == 1;
        const double *c =
            add_input(&f, "c", rows ? 2 : 1, rows ? (int64_t[]){m, 1} : (int64_t[]){n});
        make_attr_int(&f.m, "transA", ta);
        make_attr_int(&f.m, "transB", tb);
        make_attr_float(&f.m, "alpha", 0.5f);
        make_attr_float(&f.m, "beta", round % 3 == 0 ? 1.0f : -2.0f);
        make_node(&f.m, "Gemm", "a,b,c", "y");
        make_output(&f.m, "y", F, "?,?");
        const double *y = run(&f, 13, 1);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < depth; k++) {
                    sum += (ta ? a[k * m + i] : a[i * depth + k]) *
                           (tb ? b[j * depth + k] : b[k * n + j]);
                }
                want(y[i * n + j], 0.5 * sum + (round % 3 == 0 ? 1 : -2) * c[rows ? i : j]);
            }
        }
        end(&f);
    }
}
END_TEST

/* A batch letter, one summed, one of the left only that is summed, the output permuted. */
START_TEST(test_einsum)
{
    fixture f;
    begin(&f, sx_test_seed());
    int64_t b = 2, i = 3, j = 4, k = 5, q = 2;
    const double *x = add_input(&f, "x", 4, (int64_t[]){i, b, k, q});
    const double *w = add_input(&f, "w", 3, (int64_t[]){b, j, k});
    make_attr_text(&f.m, "equation", "ibkq, bjk -> jib");
    make_node(&f.m, "Einsum", "x,w", "y");
    make_output(&f.m, "y", F, "4,3,2");
    const double *y = run(&f, 13, 1);
    for (int64_t e = 0; e < j * i * b; e++) {
        int64_t at_b = e % b;
        int64_t at_i = e / b % i;
        int64_t at_j = e / b / i;
        double sum = 0;
        for (int64_t at_k = 0; at_k < k; at_k++) {
            for (int64_t at_q = 0; at_q < q; at_q++) {
                sum +=
                    x[((at_i * b + at_b) * k + at_k) * q + at_q] * w[(at_b * j + at_j) * k + at_k];
            }
        }
        want(y[e], sum);
    }
    end(&f);
}
END_TEST

/* ---- meanings since opset 18 ---- */

START_TEST(test_gelu)
{
    for (uint32_t with_tanh = 0; with_tanh < 2; with_tanh++) {
        fixture f;
        begin(&f, 5);
        const double *x = add_input(&f, "x", 1, (int64_t[]){50});
        if (with_tanh == 1) {
            make_attr_text(&f.m, "approximate", "tanh");
        }
        make_node(&f.m, "Gelu", "x", "y");
        make_output(&f.m, "y", F, "50");
        const double *y = run(&f, 20, 1);
        for (uint32_t k = 0; k < 50; k++) {
            double bent = with_tanh == 1
                              ? tanh(sqrt(2 / acos(-1.0)) * (x[k] + 0.044715 * x[k] * x[k] * x[k]))
                              : erf(x[k] / sqrt(2.0));
            want(y[k], 0.5 * x[k] * (1 + bent));
        }
        end(&f);
    }
}
END_TEST

/* Bytes by 0 to 9 places, in both directions; other directions and signed numbers are refused. */
START_TEST(test_bit_shift)
{
    for (uint32_t right = 0; right < 2; right++) {
        fixture f;
        begin(&f, 5);
        make_input(&f.m, "x", SX_ONNX_UINT8, "2560");
        make_input(&f.m, "by", SX_ONNX_UINT8, "2560");
        for (uint32_t k = 0; k < 2; k++) {
            int64_t *data = SX_NEW_ARRAY(&f.cx, int64_t, 2560);
            ck_assert_ptr_nonnull(data);
            for (uint32_t i = 0; i < 2560; i++) {
                data[i] = k == 0 ? i / 10 : i % 10;
            }
            sx_type type = {.dtype = SX_U8, .rank = 1, .dim = {sx_dim_of(2560)}};
            f.argument[f.argument_count++] = (sx_tensor){type, data};
        }
        make_attr_text(&f.m, "direction", right != 0 ? "RIGHT" : "LEFT");
        make_node(&f.m, "BitShift", "x,by", "y");
        make_output(&f.m, "y", SX_ONNX_UINT8, "2560");
        (void)run(&f, 11, 1);
        const int64_t *y = f.result[0].data;
        for (uint32_t i = 0; i < 2560; i++) {
            uint32_t x = i / 10;
            ck_assert_int_eq(y[i], right != 0 ? x >> i % 10 : (x << i % 10 & 0xFF));
        }
        end(&f);
    }
    static const struct {
        int64_t dtype;
        const char *direction, *why;
    } refused[] = {{SX_ONNX_UINT8, "UP", "direction is neither LEFT nor RIGHT"},
                   {SX_ONNX_INT32, "LEFT", "input 0 is i32, not u8"}};
    for (uint32_t i = 0; i < SX_COUNT(refused); i++) {
        fixture f;
        sx_graph *graph;
        sx_weights *weights;
        begin(&f, 5);
        make_input(&f.m, "x", refused[i].dtype, "4");
        make_attr_text(&f.m, "direction", refused[i].direction);
        make_node(&f.m, "BitShift", "x,x", "y");
        make_output(&f.m, "y", refused[i].dtype, "4");
        ck_sx_fails(&f.cx, sx_onnx_import(&f.cx, make_end(&f.m, 11), NULL, &graph, &weights),
                    SX_INPUT, refused[i].why);
        end(&f);
    }
}
END_TEST

/* Axes as an input, negative; then none and noop. */
START_TEST(test_reduce_18)
{
    fixture f;
    begin(&f, 6);
    const double *x = add_input(&f, "x", 2, (int64_t[]){3, 4});
    make_ints(&f.m, "axes", "-1");
    make_ints(&f.m, "none", "");
    make_attr_int(&f.m, "keepdims", 0);
    make_node(&f.m, "ReduceL2", "x,axes", "y");
    make_attr_int(&f.m, "noop_with_empty_axes", 1);
    make_node(&f.m, "ReduceMean", "x,none", "z");
    make_node(&f.m, "ReduceLogSumExp", "x", "w");
    make_output(&f.m, "y", F, "3");
    make_output(&f.m, "z", F, "3,4");
    make_output(&f.m, "w", F, "1,1");
    const double *y = run(&f, 18, 3);
    double total = 0;
    for (uint32_t i = 0; i < 3; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < 4; j++) {
            sum += x[4 * i + j] * x[4 * i + j];
            total += exp(x[4 * i + j]);
            want(((const double *)f.result[1].data)[4 * i + j], x[4 * i + j]);
        }
        want(y[i], sqrt(sum));
    }
    want(((const double *)f.result[2].data)[0], log(total));
    end(&f);
}
END_TEST

/* Seven elements in three parts: 3, 3, 1. */
START_TEST(test_split_18)
{
    fixture f;
    begin(&f, 7);
    const double *x = add_input(&f, "x", 1, (int64_t[]){7});
    make_attr_int(&f.m, "num_outputs", 3);
    make_node(&f.m, "Split", "x", "a,b,c");
    make_output(&f.m, "c", F, "1");
    make_output(&f.m, "b", F, "3");
    const double *c = run(&f, 18, 2);
    want(c[0], x[6]);
    want(((const double *)f.result[1].data)[2], x[5]);
    end(&f);
}
END_TEST

/* Scale per group (opset 18) and per channel (opset 21). */
START_TEST(test_group_norm)
{
    for (uint32_t newer = 0; newer < 2; newer++) {
        fixture f;
        begin(&f, 8);
        const double *x = add_input(&f, "x", 3, (int64_t[]){2, 4, 3});
        int64_t width = newer == 1 ? 4 : 2;
        const double *scale = add_input(&f, "s", 1, &width);
        const double *bias = add_input(&f, "b", 1, &width);
        make_attr_int(&f.m, "num_groups", 2);
        make_attr_float(&f.m, "epsilon", 0.25f);
        make_node(&f.m, "GroupNormalization", "x,s,b", "y");
        make_output(&f.m, "y", F, "2,4,3");
        const double *y = run(&f, newer == 1 ? 21 : 18, 1);
        for (uint32_t group = 0; group < 4; group++) { /* batch and group: six elements each */
            const double *row = x + (size_t)6 * group;
            double mean = 0;
            double variance = 0;
            for (uint32_t k = 0; k < 6; k++) {
                mean += row[k] / 6;
            }
            for (uint32_t k = 0; k < 6; k++) {
                variance += (row[k] - mean) * (row[k] - mean) / 6;
            }
            for (uint32_t k = 0; k < 6; k++) {
                uint32_t which = newer == 1 ? group % 2 * 2 + k / 3 : group % 2;
                want(y[6 * group + k],
                     (row[k] - mean) / sqrt(variance + 0.25) * scale[which] + bias[which]);
            }
        }
        end(&f);
    }
}
END_TEST

START_TEST(test_rms_norm)
{
    fixture f;
    begin(&f, 9);
    const double *x = add_input(&f, "x", 2, (int64_t[]){3, 4});
    const double *scale = add_input(&f, "s", 1, (int64_t[]){4});
    make_attr_float(&f.m, "epsilon", 0.5f);
    make_node(&f.m, "RMSNormalization", "x,s", "y");
    make_output(&f.m, "y", F, "3,4");
    const double *y = run(&f, 23, 1);
    for (uint32_t i = 0; i < 3; i++) {
        double square = 0;
        for (uint32_t j = 0; j < 4; j++) {
            square += x[4 * i + j] * x[4 * i + j] / 4;
        }
        for (uint32_t j = 0; j < 4; j++) {
            want(y[4 * i + j], x[4 * i + j] / sqrt(square + 0.5) * scale[j]);
        }
    }
    end(&f);
}
END_TEST

/* Near 0 the formulas keep their relative error: e^x - 1, log(1 + x), sinh and the inverses would lose it if
 * written naively. */
START_TEST(test_small_arguments)
{
    static const struct {
        const char *op;
        double (*function)(double);
    } row[] = {{"Sinh", sinh}, {"Asinh", asinh}, {"Atanh", atanh}, {"Elu", expm1}};
    for (uint32_t r = 0; r < SX_COUNT(row); r++) {
        fixture f;
        begin(&f, 10);
        double *x = add_input(&f, "x", 1, (int64_t[]){20});
        for (uint32_t k = 0; k < 20; k++) {
            x[k] = -ldexp(1.0, -(int)k - 1);
        }
        make_node(&f.m, row[r].op, "x", "y");
        make_output(&f.m, "y", F, "20");
        sx_graph *graph;
        sx_weights *weights;
        ck_sx_ok(&f.cx, sx_onnx_import(&f.cx, make_end(&f.m, 13), NULL, &graph, &weights));
        ck_sx_ok(&f.cx, sx_graph_eval(&f.cx, graph, SX_EVAL_TYPED, f.argument, 1, f.result, 1));
        for (uint32_t k = 0; k < 20; k++) {
            double y = ((const double *)f.result[0].data)[k];
            double wanted = row[r].function(x[k]);
            ck_assert_msg(fabs(y - wanted) <= 1e-6 * fabs(wanted), "%s(%g) is %.9g, not %.9g",
                          row[r].op, x[k], y, wanted);
        }
        end(&f);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx ops");
    TCase *tcase = tcase_create("ops");
    tcase_add_test(tcase, test_matmul);
    tcase_add_test(tcase, test_gemm);
    tcase_add_test(tcase, test_einsum);
    tcase_add_test(tcase, test_gelu);
    tcase_add_test(tcase, test_bit_shift);
    tcase_add_test(tcase, test_reduce_18);
    tcase_add_test(tcase, test_split_18);
    tcase_add_test(tcase, test_group_norm);
    tcase_add_test(tcase, test_rms_norm);
    tcase_add_test(tcase, test_small_arguments);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
