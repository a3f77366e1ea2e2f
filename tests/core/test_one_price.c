/* One price: level 1 extracts by what level 2 says the chosen kernels cost, so that what a module is said to
 * take is what was extracted, and is never dearer than the program as it came. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "core/cost/cost.h"

static const char *const names[] = {
    "conv_norm_relu", "encoder_block", "factor_matmul", "fire_module",  "gelu_1",
    "gelu_tanh",      "layer_norm_1",  "layer_norm_2",  "layer_norm_3", "relu_matmul_bias",
    "rep_block",      "rms_norm",      "softmax",       "norm_conv"};
static const char *const targets[] = {"x86-64-v3", "x86-64-v4"};

/* Symbols at the values that level 1 counts with: only there must both levels agree. */
static uint32_t bind_reference(sx_ctx *cx, sx_span text, sx_binding binding[SX_SYMBOLS_MAX])
{
    sx_graph *graph;
    ck_sx_ok(cx, sx_graph_parse(cx, text, &graph));
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        binding[i] = (sx_binding){graph->symbol[i].name, sx_cost_reference(graph->symbol, i)};
    }
    return graph->symbol_count;
}

START_TEST(test_module_takes_what_was_extracted)
{
    for (uint32_t t = 0; t < SX_COUNT(targets); t++) {
        sx_ctx cx;
        sx_buf text;
        char path[512];
        sx_image image;
        sx_binding binding[SX_SYMBOLS_MAX];
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        cx.fuel = SX_FUEL_DEFAULT;
        sx_buf_init(&text, 1 << 20);
        sx_image_init(&image);
        (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph/%s.sx", SX_SOURCE_DIR,
                       names[_i]);
        sx_test_read_file(path, &text);
        sx_core_request request = {
            .ir = sx_buf_span(&text), .target = sx_span_of(targets[t]), .binding = binding};
        request.binding_count = bind_reference(&cx, request.ir, binding);
        ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
        sx_module_search search;
        ck_assert_uint_ge(image.search.len, sizeof(search));
        memcpy(&search, image.search.ptr, sizeof(search));
        double took = image.info.cost_ns;
        /* level 1 counts in thousandths of a nanosecond, rounded up, and one or two more for each node */
        double slack = 0.005 * (double)(image.kernel.len / sizeof(sx_module_kernel)) + 1e-9 * took;
        const sx_device *device;
        ck_sx_ok(&cx, sx_device_find(&cx, request.target, &device));
        if (device == sx_device_class(device)) { /* by whose prices programs are chosen */
            ck_assert_msg(fabs(took - search.cost_ns) <= slack, "%s for %s: %g ns, extracted %g",
                          names[_i], targets[t], took, search.cost_ns);
        }
        ck_assert_msg(took <= image.info.input_cost_ns + slack, "%s for %s: %g ns, as it came %g",
                      names[_i], targets[t], took, image.info.input_cost_ns);
        ck_assert_double_gt(took, 0);
        sx_image_fini(&image);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.one_price");
    TCase *cases = tcase_create("price");
    tcase_add_loop_test(cases, test_module_takes_what_was_extracted, 0, (int)SX_COUNT(names));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
