#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/import/import.h"
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "tests/lib/test.h"

/* The two committed models through importer and interpreter, against outputs that numpy computed in float64
 * (tests/models/make_models.py --reference). */

#define MODELS SX_SOURCE_DIR "/tests/models/"

static void import_model(sx_ctx *cx, const char *path, sx_onnx_file **file, sx_graph **graph,
                         sx_weights **weights)
{
    *file = sx_onnx_file_open(cx, path);
    ck_assert_msg(*file != NULL, "%s", cx->error.text);
    ck_sx_ok(cx, sx_onnx_file_import(cx, *file, NULL, graph, weights));
    ck_sx_ok(cx, sx_graph_check(cx, *graph));
}

/* Expected outputs: a .npy file of float64 with one dimension. */
static uint32_t read_npy(const char *path, double *value, uint32_t most)
{
    sx_buf buf;
    sx_buf_init(&buf, 1 << 20);
    sx_test_read_file(path, &buf);
    ck_assert_uint_gt(buf.len, 128);
    ck_assert(memcmp(buf.ptr, "\x93NUMPY\x01\x00", 8) == 0);
    size_t start = 10 + buf.ptr[8] + 256u * buf.ptr[9];
    size_t count = (buf.len - start) / sizeof(double);
    ck_assert_uint_le(count, most);
    memcpy(value, buf.ptr + start, count * sizeof(double));
    sx_buf_fini(&buf);
    return (uint32_t)count;
}

/* Arguments of a bound graph: the input from seed 7, weights from the file. */
static void make_arguments(sx_ctx *cx, const sx_graph *bound, const sx_weights *weights,
                           sx_eval_mode mode, sx_tensor *argument, uint32_t *count)
{
    *count = 0;
    for (uint32_t k = 0; k < bound->node_count; k++) {
        const sx_node *node = &bound->node[k];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        const sx_attr *attr = sx_graph_attr(bound, node);
        sx_tensor *tensor = &argument[(*count)++];
        if (attr->weight == 1) {
            const sx_weight *weight = sx_weights_find(weights, attr->name);
            ck_assert_ptr_nonnull(weight);
            ck_assert(sx_type_equal(&weight->type, &node->type));
            ck_sx_ok(cx, sx_tensor_unpack(cx, &node->type, mode, weight->bytes, tensor));
            continue;
        }
        ck_assert(sx_span_is(attr->name, "x"));
        int64_t elements = sx_tensor_elements(&node->type);
        float *values = sx_alloc_array(cx, (size_t)elements, sizeof(float));
        sx_rng rng = {7};
        for (int64_t i = 0; i < elements; i++) {
            values[i] = sx_rng_f32(&rng);
        }
        sx_span raw = {(const uint8_t *)values, (size_t)elements * sizeof(float)};
        ck_sx_ok(cx, sx_tensor_unpack(cx, &node->type, mode, raw, tensor));
    }
}

/* Largest difference to the expected outputs, every `step`-th element. */
static double largest_error(const char *model, const char *expected, int64_t batch, uint32_t step,
                            sx_eval_mode mode)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_onnx_file *file;
    sx_graph *graph;
    sx_graph *bound;
    sx_weights *weights;
    import_model(&cx, model, &file, &graph, &weights);
    sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &binding, 1, &bound));
    sx_tensor argument[64];
    uint32_t argument_count;
    make_arguments(&cx, bound, weights, mode, argument, &argument_count);
    ck_assert_uint_eq(argument_count, weights->count + 1);
    sx_tensor result;
    ck_assert_uint_eq(bound->output_count, 1);
    ck_assert(sx_span_is(bound->output[0].name, "y"));
    ck_sx_ok(&cx, sx_graph_eval(&cx, bound, mode, argument, argument_count, &result, 1));
    double wanted[4096];
    uint32_t count = read_npy(expected, wanted, 4096);
    int64_t elements = sx_tensor_elements(&result.type);
    ck_assert_int_eq((elements - 1) / step + 1, count);
    double worst = 0.0;
    for (uint32_t k = 0; k < count; k++) {
        double error = fabs(((const double *)result.data)[(size_t)k * step] - wanted[k]);
        ck_assert(isfinite(error));
        worst = error > worst ? error : worst;
    }
    sx_onnx_file_close(file);
    sx_ctx_fini(&cx);
    return worst;
}

START_TEST(test_mlp)
{
    double exact = largest_error(MODELS "mlp.onnx", MODELS "mlp.expected.npy", 3, 1, SX_EVAL_F64);
    double typed = largest_error(MODELS "mlp.onnx", MODELS "mlp.expected.npy", 3, 1, SX_EVAL_TYPED);
    printf("mlp: largest error %.3g in f64, %.3g in f32\n", exact, typed);
    ck_assert_double_lt(exact, 1e-12);
    ck_assert_double_lt(typed, 1e-5);
}
END_TEST

START_TEST(test_cnn)
{
    double exact = largest_error(MODELS "cnn.onnx", MODELS "cnn.expected.npy", 2, 1, SX_EVAL_F64);
    double typed = largest_error(MODELS "cnn.onnx", MODELS "cnn.expected.npy", 2, 1, SX_EVAL_TYPED);
    printf("cnn: largest error %.3g in f64, %.3g in f32\n", exact, typed);
    ck_assert_double_lt(exact, 1e-12);
    ck_assert_double_lt(typed, 1e-5);
}
END_TEST

START_TEST(test_encoder)
{
    double exact =
        largest_error(MODELS "encoder.onnx", MODELS "encoder.expected.npy", 2, 97, SX_EVAL_F64);
    printf("encoder: largest error %.3g in f64\n", exact);
    ck_assert_double_lt(exact, 1e-12);
}
END_TEST

static uint32_t count_ops(const sx_graph *graph, sx_op op)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < graph->node_count; k++) {
        count += graph->node[k].op == op;
    }
    return count;
}

/* What recognition has to work on: primitives as the file has them, one symbol, no weight in the graph. */
START_TEST(test_encoder_structure)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_onnx_file *file;
    sx_graph *graph;
    sx_weights *weights;
    import_model(&cx, MODELS "encoder.onnx", &file, &graph, &weights);
    ck_assert_uint_eq(graph->symbol_count, 1);
    ck_assert(sx_span_is(graph->symbol[0].name, "batch"));
    ck_assert_int_eq(graph->symbol[0].high, SX_ONNX_SYMBOL_HIGH);
    ck_assert_uint_eq(count_ops(graph, SX_OP_DOT_GENERAL), 8);
    ck_assert_uint_eq(count_ops(graph, SX_OP_SOFTMAX), 1);
    ck_assert_uint_eq(count_ops(graph, SX_OP_LAYER_NORM), 0);
    ck_assert_uint_eq(count_ops(graph, SX_OP_ERF), 1);
    ck_assert_uint_eq(count_ops(graph, SX_OP_REDUCE), 6);
    ck_assert_uint_eq(weights->count, 18);
    for (uint32_t k = 0; k < graph->node_count; k++) {
        if (graph->node[k].op == SX_OP_CONSTANT) {
            ck_assert_uint_le(sx_graph_attr(graph, &graph->node[k])->data.len, 8);
        }
    }
    sx_onnx_file_close(file);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_interval_option)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_onnx_file *file = sx_onnx_file_open(&cx, MODELS "mlp.onnx");
    ck_assert_ptr_nonnull(file);
    sx_onnx_interval interval = {SX_SPAN_LITERAL("batch"), 2, 77};
    sx_onnx_options options = {.interval = &interval, .interval_count = 1};
    sx_graph *graph;
    sx_weights *weights;
    ck_sx_ok(&cx, sx_onnx_file_import(&cx, file, &options, &graph, &weights));
    ck_assert_int_eq(graph->symbol[0].low, 2);
    ck_assert_int_eq(graph->symbol[0].high, 77);
    sx_onnx_file_close(file);
    sx_ctx_fini(&cx);
}
END_TEST

/* Other weights, same key; another shape, another key. */
START_TEST(test_key_ignores_weights)
{
    sx_ctx cx;
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    sx_buf buf;
    sx_buf_init(&buf, 8 << 20);
    sx_test_read_file(MODELS "mlp.onnx", &buf);
    sx_key key[2];
    for (uint32_t k = 0; k < 2; k++) {
        sx_graph *graph;
        sx_weights *weights;
        ck_sx_ok(&cx, sx_onnx_import(&cx, sx_buf_span(&buf), NULL, &graph, &weights));
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key[k]));
        const sx_weight *weight = sx_weights_find(weights, SX_SPAN_LITERAL("fc0.weight"));
        ck_assert_ptr_nonnull(weight);
        ck_assert(weight->bytes.ptr > buf.ptr && weight->bytes.ptr < buf.ptr + buf.len);
        size_t at = (size_t)(weight->bytes.ptr - buf.ptr);
        buf.ptr[at + 5] ^= 0x7F;
    }
    ck_assert(sx_key_equal(&key[0], &key[1]));
    sx_buf_fini(&buf);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_absent_file)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    ck_assert_ptr_null(sx_onnx_file_open(&cx, MODELS "absent.onnx"));
    ck_assert_int_eq(cx.error.code, SX_ABSENT);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx models");
    TCase *tcase = tcase_create("models");
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, test_mlp);
    tcase_add_test(tcase, test_cnn);
    tcase_add_test(tcase, test_encoder);
    tcase_add_test(tcase, test_encoder_structure);
    tcase_add_test(tcase, test_interval_option);
    tcase_add_test(tcase, test_key_ignores_weights);
    tcase_add_test(tcase, test_absent_file);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
