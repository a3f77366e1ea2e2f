/* Gradients of models: cross-entropy, a block of an encoder, attention with a causal mask, a block of convolutions, an
 * LSTM, and programs as an importer writes them, against central differences in random directions; of small ones
 * against those of every single element. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/grad/grad.h"
#include "tests/lib/slope.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* The program of a file in doubles. */
static sx_graph *load(const char *name)
{
    char path[512];
    sx_buf text;
    sx_graph *graph;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/%s.sx", SX_SOURCE_DIR, name);
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_test_read_file(path, &text);
    for (size_t i = 0; i + 4 <= text.len; i++) {
        if (memcmp(&text.ptr[i], "f32[", 4) == 0) {
            memcpy(&text.ptr[i], "f64[", 4);
        }
    }
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf_fini(&text);
    return graph;
}

/* Every symbol is 3. */
static const sx_graph *bind(const sx_graph *graph)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_graph *bound;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        binding[i] = (sx_binding){graph->symbol[i].name, 3};
    }
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, binding, graph->symbol_count, &bound));
    return bound;
}

static const char *const model[] = {
    "grad/embedding",        "grad/cross_entropy", "grad/encoder",
    "grad/causal_attention", "grad/conv_block",    "grad/lstm",
    "egraph/conv_norm_relu", "egraph/fire_module", "egraph/rep_block",
    "egraph/encoder_block",  "egraph/softmax",     "egraph/layer_norm_1",
    "egraph/rms_norm",       "egraph/gelu_tanh",
};

START_TEST(directions)
{
    sx_rng rng = {sx_test_seed()};
    sx_graph *program = load(model[_i]);
    uint32_t same = 0;
    uint32_t tried = 0;
    for (uint32_t output = 0; output < program->output_count; output++) {
        /* made while the extents are symbols */
        const sx_graph *gradient = bind(sx_slope_gradient(&cx, program, output));
        for (uint32_t trial = 0; trial < 6; trial++, tried++) {
            sx_slope_case at = {.program = bind(program),
                                .gradient = gradient,
                                .output = output,
                                .step = 0x1p-18, /* thousands of kinks */
                                .positive = strstr(model[_i], "egraph/conv_norm") != NULL};
            sx_slope slope = sx_slope_real(&rng, &at);
            ck_assert_msg(slope != SX_SLOPE_DIFFERENT, "%s: %s", model[_i], at.text);
            same += slope == SX_SLOPE_SAME ? 1 : 0;
        }
    }
    ck_assert_msg(same * 2 >= tried, "%s: %u of %u decided", model[_i], same, tried);
}
END_TEST

START_TEST(elements)
{
    static const struct {
        const char *name;
        uint32_t output;
        int64_t elements;
        int64_t nothing; /* so many may have slopes of about 0, which differences do not show */
    } small[] = {
        {"grad/cross_entropy", 0, 89, 0}, /* x 15, w1 35, b1 7, w2 28, b2 4 */
        {"grad/lstm", 0, 132, 0},         /* x 30, h 9, c 9, w 24, r 36, b 24 */
        {"grad/lstm", 1, 132, 0},
        {"grad/causal_attention", 0, 432, 0}, /* q 144, k 144, v 108, bias 36 */
        {"grad/encoder", 0, 556, 60}, /* x 72, norms 24, q, k, v and o 256, w1 96, b1 12, w2 96 */
        /* x 864, w 108, scale, shift, mean and variance 24, wide 120; what pooling leaves out has none */
        {"grad/conv_block", 0, 1116, 300},
    };
    sx_rng rng = {sx_test_seed()};
    sx_graph *program = load(small[_i].name);
    sx_slope_case at = {.program = bind(program), .output = small[_i].output};
    at.gradient = bind(sx_slope_gradient(&cx, program, at.output));
    int64_t undecided = 0;
    for (at.element = 1; at.element <= small[_i].elements; at.element++) {
        sx_slope slope = sx_slope_real(&rng, &at);
        undecided += slope != SX_SLOPE_SAME ? 1 : 0;
        ck_assert_msg(slope != SX_SLOPE_DIFFERENT && undecided <= small[_i].nothing,
                      "%s: element %lld, %lld undecided: %s", small[_i].name, (long long)at.element,
                      (long long)undecided, at.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients of models");
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, directions, 0, (int)SX_COUNT(model));
    tcase_add_loop_test(tests, elements, 0, 6);
    suite_add_tcase(suite, tests);
    return sx_test_main(suite);
}
