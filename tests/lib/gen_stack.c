#include "tests/lib/gen_stack.h"

#include <stdio.h>

#include "tests/lib/test.h"

/* One random step of a layer: x and some earlier values of the layer in, a new value out. */
static sx_node_id random_step(sx_ctx *cx, sx_graph *graph, uint32_t choice, uint32_t *weights,
                              const sx_node_id *value, uint32_t count)
{
    static const sx_op unary[] = {SX_OP_TANH, SX_OP_NEGATE, SX_OP_ABS};
    static const sx_op binary[] = {SX_OP_ADD, SX_OP_MULTIPLY, SX_OP_MAXIMUM};
    sx_type square = {.dtype = SX_F32, .rank = 2, .dim = {sx_dim_of(4), sx_dim_of(4)}};
    sx_node_id a = value[count - 1 - choice / 64 % (count < 3 ? count : 3)];
    sx_node_id b = value[choice / 1024 % count];
    sx_node_id made;
    if (choice % 4 == 0) {
        char name[32];
        sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs,
                        .lhs_contract = {1, {1}},
                        .rhs_contract = {1, {choice / 8 % 2}}};
        (void)snprintf(name, sizeof(name), "w%u", (*weights)++);
        ck_sx_ok(cx, sx_build_parameter(cx, graph, name, choice / 16 % 4 != 0, &square, &b));
        sx_node_id input[2] = {a, b};
        ck_sx_ok(cx, sx_graph_add(cx, graph, SX_OP_DOT_GENERAL, &attr, input, 2, &made));
    } else if (choice % 4 == 1) {
        ck_sx_ok(cx, sx_build_unary(cx, graph, unary[choice / 8 % 3], a, &made));
    } else if (choice % 4 == 2) {
        ck_sx_ok(cx, sx_build_transpose(cx, graph, a, &(sx_ints){2, {1, 0}}, &made));
    } else {
        ck_sx_ok(cx, sx_build_binary(cx, graph, binary[choice / 8 % 3], a, b, &made));
    }
    return made;
}

sx_graph *sx_gen_stack(sx_ctx *cx, sx_rng *rng)
{
    uint32_t choice[40];
    uint32_t steps = 14 + (uint32_t)sx_rng_below(rng, 26);
    uint32_t weights = 0;
    uint32_t outputs = 0;
    sx_type square = {.dtype = SX_F32, .rank = 2, .dim = {sx_dim_of(4), sx_dim_of(4)}};
    sx_graph *graph;
    sx_node_id value[42];
    char name[32];
    uint32_t layers = 2 + (uint32_t)sx_rng_below(rng, 7);
    for (uint32_t i = 0; i < steps; i++) {
        choice[i] = (uint32_t)sx_rng_next(rng);
    }
    ck_sx_ok(cx, sx_graph_make(cx, SX_SPAN_LITERAL("stack"), NULL, &graph));
    ck_sx_ok(cx, sx_build_parameter(cx, graph, "shared", false, &square, &value[0]));
    ck_sx_ok(cx, sx_build_parameter(cx, graph, "x", false, &square, &value[1]));
    for (uint32_t layer = 0; layer < layers; layer++) {
        uint32_t odd = sx_rng_below(rng, 6) == 0 ? (uint32_t)sx_rng_below(rng, steps) : steps;
        for (uint32_t i = 0; i < steps; i++) {
            uint32_t step = choice[i] ^ (i == odd ? 3u : 0);
            value[2 + i] = random_step(cx, graph, step, &weights, value, 2 + i);
        }
        value[1] = value[1 + steps];
        if (sx_rng_below(rng, 6) == 0) {
            value[0] = value[2 + sx_rng_below(rng, steps)];
        }
        if (sx_rng_below(rng, 5) == 0) {
            (void)snprintf(name, sizeof(name), "tap%u", outputs++);
            ck_sx_ok(cx, sx_graph_add_output(cx, graph, sx_span_of(name),
                                             value[sx_rng_below(rng, 2 + steps)]));
        }
    }
    ck_sx_ok(cx, sx_graph_add_output(cx, graph, SX_SPAN_LITERAL("y"), value[1]));
    return graph;
}
