/* Depth costs next to nothing: 32 equal layers of every common kind take as many nodes as one, within 1.3
 * times, and come out as cheap as 32 times one. Layers of fewer than SX_ROLL_BODY_NODES_MIN operations (a
 * contraction, a bias, an activation) are among them. */
#include "tests/lib/test.h"

#include "core/optimize/optimize.h"

static sx_ctx cx;
static sx_buf text;
static uint32_t next; /* value */

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&text, (size_t)1 << 22);
    next = 0;
}

static void teardown(void)
{
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

/* ---- programs ---- */

#define WIDE "[8, 16]"
#define IMAGE "[1, 8, 16, 16]"
#define ROWS " {lhs_contract = [1], rhs_contract = [0]}"

static uint32_t put(const char *op, uint32_t a, uint32_t b, const char *attributes,
                    const char *shape)
{
    if (b == UINT32_MAX) {
        sx_buf_print(&text, "  %%%u = %s(%%%u)%s : f32%s\n", next, op, a, attributes, shape);
    } else {
        sx_buf_print(&text, "  %%%u = %s(%%%u, %%%u)%s : f32%s\n", next, op, a, b, attributes,
                     shape);
    }
    return next++;
}

static uint32_t put_unary(const char *op, uint32_t a, const char *shape)
{
    return put(op, a, UINT32_MAX, "", shape);
}

static uint32_t put_parameter(bool weight, const char *shape)
{
    sx_buf_print(&text, "  %%%u = parameter {name = \"p%u\", weight = %d} : f32%s\n", next, next,
                 weight, shape);
    return next++;
}

static uint32_t put_dot(uint32_t x, const char *weight, const char *shape)
{
    return put("dot_general", x, put_parameter(true, weight), ROWS, shape);
}

static uint32_t put_perceptron(uint32_t x)
{
    uint32_t product = put_dot(x, "[16, 16]", WIDE);
    uint32_t bias =
        put("broadcast_in_dim", put_parameter(true, "[16]"), UINT32_MAX, " {dims = [1]}", WIDE);
    return put_unary("relu", put("add", product, bias, "", WIDE), WIDE);
}

static uint32_t put_convolution(uint32_t x)
{
    uint32_t made = put("convolution", x, put_parameter(true, "[8, 8, 3, 3]"),
                        " {stride = [1, 1], low = [1, 1], high = [1, 1], dilation = [1, 1], groups "
                        "= 1}",
                        IMAGE);
    uint32_t bias =
        put("broadcast_in_dim", put_parameter(true, "[8]"), UINT32_MAX, " {dims = [1]}", IMAGE);
    return put("add", made, bias, "", IMAGE);
}

/* Two convolutions in a row, as in VGG. */
static uint32_t put_plain_block(uint32_t x)
{
    for (uint32_t i = 0; i < 2; i++) {
        x = put_unary("relu", put_convolution(x), IMAGE);
    }
    return x;
}

static uint32_t put_residual_block(uint32_t x)
{
    uint32_t inner = put_unary("relu", put_convolution(x), IMAGE);
    return put_unary("relu", put("add", put_convolution(inner), x, "", IMAGE), IMAGE);
}

static uint32_t put_glu(uint32_t x)
{
    uint32_t gate = put_unary("silu", put_dot(x, "[16, 24]", "[8, 24]"), "[8, 24]");
    uint32_t up = put_dot(x, "[16, 24]", "[8, 24]");
    uint32_t down = put_dot(put("multiply", gate, up, "", "[8, 24]"), "[24, 16]", WIDE);
    return put("add", down, x, "", WIDE);
}

static uint32_t mask; /* [8, 20]: 12 tokens before these 8 */

/* Attention to the keys and values of earlier tokens, which are inputs, and to these; RMSNorm before, GLU after. */
static uint32_t put_decoder(uint32_t x)
{
    uint32_t scale = put_parameter(true, "[16]");
    uint32_t normed = put("rms_norm", x, scale, " {axis = 1, eps = 1e-05}", WIDE);
    uint32_t query = put_dot(normed, "[16, 16]", WIDE);
    uint32_t cached[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t now = put_dot(normed, "[16, 16]", WIDE);
        cached[i] =
            put("concatenate", put_parameter(false, "[12, 16]"), now, " {axis = 0}", "[20, 16]");
    }
    uint32_t scores = put("dot_general", query, cached[0],
                          " {lhs_contract = [1], rhs_contract = [1]}", "[8, 20]");
    scores = put("add", scores, mask, "", "[8, 20]");
    scores = put("softmax", scores, UINT32_MAX, " {axis = 1}", "[8, 20]");
    uint32_t read = put("dot_general", scores, cached[1], ROWS, WIDE);
    return put_glu(put("add", put_dot(read, "[16, 16]", WIDE), x, "", WIDE));
}

static uint32_t put_normed_glu(uint32_t x)
{
    uint32_t scale = put_parameter(true, "[16]");
    return put_glu(put("rms_norm", x, scale, " {axis = 1, eps = 1e-05}", WIDE));
}

static const struct {
    const char *name;
    uint32_t (*layer)(uint32_t x);
    const char *shape;
} kinds[] = {{"perceptron", put_perceptron, WIDE},       {"vgg", put_plain_block, IMAGE},
             {"residual", put_residual_block, IMAGE},    {"glu", put_glu, WIDE},
             {"rms_norm and glu", put_normed_glu, WIDE}, {"decoder", put_decoder, WIDE}};

static void optimize(int kind, uint32_t layers, sx_optimize_report *report)
{
    const sx_device *device;
    sx_graph *in, *out, *canonical;
    sx_optimize_options options = sx_optimize_defaults();
    teardown();
    setup();
    sx_buf_put_text(&text, "sx 1\ngraph \"deep\" {\n");
    uint32_t x = put_parameter(false, kinds[kind].shape);
    mask = put_parameter(false, "[8, 20]");
    for (uint32_t i = 0; i < layers; i++) {
        x = kinds[kind].layer(x);
    }
    sx_buf_print(&text, "  return %%%u as \"y\"\n}\n", x);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &in));
    ck_sx_ok(&cx, sx_graph_canon(&cx, in, &canonical));
    options.with_certificate = true;
    ck_sx_ok(&cx, sx_optimize(&cx, canonical, device, &options, &out, report));
    ck_assert_msg(report->unproved == NULL, "%s: %s", kinds[kind].name, report->unproved);
}

START_TEST(test_depth)
{
    sx_optimize_report one, deep;
    optimize(_i, 1, &one);
    optimize(_i, 32, &deep);
    const char *name = kinds[_i].name;
    ck_assert_msg(deep.part_count > 1, "%s: not cut into layers", name);
    ck_assert_msg(10 * deep.nodes <= 13 * one.nodes, "%s: %u nodes, %u in one layer", name,
                  deep.nodes, one.nodes);
    ck_assert_msg(10 * deep.fuel <= 13 * one.fuel, "%s: %llu fuel, %llu in one layer", name,
                  (unsigned long long)deep.fuel, (unsigned long long)one.fuel);
    ck_assert_double_le(deep.cost_after_ns, 32 * one.cost_after_ns * (1 + 1e-6));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.optimize.depth");
    TCase *cases = tcase_create("depth");
    tcase_set_timeout(cases, 400);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, test_depth, 0, SX_COUNT(kinds));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
