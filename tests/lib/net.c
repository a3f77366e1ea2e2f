#include "tests/lib/net.h"

#include "core/core.h"
#include "tests/lib/model.h"

sx_code sx_test_visit_fused(sx_ctx *cx, sx_span text, const sx_binding *binding,
                            uint32_t binding_count, sx_test_fused_visit visit, void *self)
{
    sx_graph *graph, *bound;
    SX_TRY(sx_graph_parse(cx, text, &graph));
    SX_TRY(sx_graph_bind(cx, graph, binding, binding_count, &bound));
    for (uint32_t i = 0; i < bound->node_count; i++) {
        const sx_node *node = &bound->node[i];
        sx_type input[SX_INPUTS_MAX];
        if (node->op != SX_OP_FUSED) {
            continue;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = bound->node[sx_graph_input(bound, node, k).i].type;
        }
        SX_TRY(visit(cx, sx_graph_attr(bound, node), input, node->input_count, self));
    }
    return SX_OK;
}

sx_code sx_test_each_fused_of(sx_ctx *cx, sx_span text, const char *target, int64_t batch,
                              sx_test_fused_visit visit, void *self)
{
    sx_image image;
    sx_image_init(&image);
    sx_binding binding = {SX_SPAN_LITERAL("batch"), batch};
    sx_core_request request = {
        .ir = text, .target = sx_span_of(target), .binding = &binding, .binding_count = 1};
    sx_code code = sx_core_compile(cx, &request, &image);
    code = code == SX_OK
               ? sx_test_visit_fused(cx, sx_buf_span(&image.optimized), &binding, 1, visit, self)
               : code;
    sx_image_fini(&image);
    return code;
}

sx_code sx_test_each_fused(sx_ctx *cx, const char *name, const char *target, int64_t batch,
                           sx_test_fused_visit visit, void *self)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_test_model_text(cx, name, &text);
    code = code == SX_OK ? sx_test_each_fused_of(cx, sx_buf_span(&text), target, batch, visit, self)
                         : code;
    sx_buf_fini(&text);
    return code;
}
