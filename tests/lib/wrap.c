#include "tests/lib/wrap.h"

#include <stdio.h>

#include "tests/lib/test.h"

typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    const sx_graph *from;
    uint32_t parameter[SX_INPUTS_MAX]; /* nodes of `from`, in the order of the body */
    uint32_t count;
} wrap;

static bool is_float(const sx_type *type)
{
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

static bool half(wrap *w)
{
    return sx_rng_below(w->rng, 2) == 0;
}

static sx_graph *open_graph(wrap *w)
{
    sx_graph *graph;
    ck_sx_ok(w->cx, sx_graph_make(w->cx, sx_span_of("wrap"), NULL, &graph));
    for (uint32_t i = 0; i < w->from->symbol_count; i++) {
        const sx_symbol *s = &w->from->symbol[i];
        uint32_t same;
        ck_sx_ok(w->cx, sx_graph_add_symbol(w->cx, graph, s->name, s->low, s->high, &same));
    }
    return graph;
}

static sx_node_id put_parameter(wrap *w, sx_graph *graph, sx_span name, const sx_type *type)
{
    char text[SX_NAME_MAX + 1];
    sx_node_id made;
    (void)snprintf(text, sizeof(text), "%.*s", (int)name.len, (const char *)name.ptr);
    ck_sx_ok(w->cx, sx_build_parameter(w->cx, graph, sx_alloc_text(w->cx, sx_span_of(text)), false,
                                       type, &made));
    return made;
}

static sx_span name_of(const wrap *w, uint32_t k)
{
    return sx_graph_attr(w->from, &w->from->node[w->parameter[k]])->name;
}

/* All nodes, parameters first in their order. */
static void copy_nodes(wrap *w, sx_graph *graph, sx_node_id *image)
{
    for (uint32_t k = 0; k < w->count; k++) {
        uint32_t n = w->parameter[k];
        image[n] = put_parameter(w, graph, name_of(w, k), &w->from->node[n].type);
    }
    for (uint32_t n = 0; n < w->from->node_count; n++) {
        const sx_node *node = &w->from->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        if (node->op == SX_OP_PARAMETER) {
            continue;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = image[sx_graph_input(w->from, node, k).i];
        }
        sx_attr attr = *sx_graph_attr(w->from, node);
        ck_sx_ok(w->cx, sx_attr_over(w->cx, graph, &attr)); /* there may be a symbol more */
        ck_sx_ok(w->cx,
                 sx_graph_add(w->cx, graph, node->op, &attr, input, node->input_count, &image[n]));
    }
}

/* Some node of the type of node n, of the last ones rather: `n` itself where there is no other. */
static uint32_t some_like(wrap *w, uint32_t n)
{
    for (uint32_t k = w->from->node_count; k-- > 0;) {
        bool same = sx_type_equal(&w->from->node[k].type, &w->from->node[n].type);
        if (same && k != n && sx_rng_below(w->rng, 3) > 0) {
            return k;
        }
    }
    return n;
}

static void put_output(wrap *w, sx_graph *graph, sx_node_id node)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "out%u", graph->output_count);
    ck_sx_ok(w->cx, sx_graph_add_output(w->cx, graph, sx_span_of(name), node));
}

/* Some results of the region are outputs, floats first. */
static void put_outputs(wrap *w, sx_graph *graph, sx_op op, const sx_attr *attr,
                        const sx_node_id *input, uint32_t count)
{
    uint32_t results = sx_region_result_count(op, attr);
    const sx_program *body = op == SX_OP_COND ? attr->then : attr->step;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t r = 0; r < results; r++) {
            bool floats = is_float(sx_program_result(body, r));
            bool last = r + 1 == results && graph->output_count == 0;
            sx_attr own = *attr;
            sx_node_id node;
            own.result = r;
            if (floats == (pass == 0) && (half(w) || last)) {
                ck_sx_ok(w->cx, sx_graph_add(w->cx, graph, op, &own, input, count, &node));
                put_output(w, graph, node);
            }
        }
    }
}

/* The parameters of `from`, those of each role together: carried floats, sliced ones, and those seen whole. */
static void draw_roles(wrap *w, sx_attr *attr)
{
    uint32_t role[SX_INPUTS_MAX] = {0};
    uint32_t node[SX_INPUTS_MAX];
    uint32_t count = 0;
    for (uint32_t n = 0; n < w->from->node_count; n++) {
        if (w->from->node[n].op == SX_OP_PARAMETER) {
            ck_assert_uint_lt(count, SX_INPUTS_MAX);
            role[count] = (uint32_t)sx_rng_below(w->rng, 3);
            role[count] += role[count] == 0 && !is_float(&w->from->node[n].type) ? 2 : 0;
            node[count++] = n;
        }
    }
    ck_assert_uint_gt(count, 0);
    role[sx_rng_below(w->rng, count)] = 1;
    w->count = 0;
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint32_t k = 0; k < count; k++) {
            if (role[k] == pass) {
                w->parameter[w->count++] = node[k];
                attr->carried += pass == 0 ? 1 : 0;
                attr->sliced += pass == 1 ? 1 : 0;
            }
        }
    }
}

sx_graph *sx_wrap_scan(sx_ctx *cx, sx_rng *rng, const sx_graph *program, uint32_t level,
                       bool bounded)
{
    wrap w = {.cx = cx, .rng = rng, .from = program};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_SCAN)->attrs};
    draw_roles(&w, &attr);
    sx_graph *outer = open_graph(&w);
    sx_graph *step = open_graph(&w);
    sx_dim rounds = sx_dim_of(1 + (int64_t)sx_rng_below(rng, 3));
    if (half(&w) && program->symbol_count < SX_SYMBOLS_MAX) {
        char name[16];
        rounds = (sx_dim){1, 0};
        (void)snprintf(name, sizeof(name), "rounds%u", level);
        ck_sx_ok(cx, sx_graph_add_symbol(cx, outer, sx_span_of(name), 1, 3, &rounds.symbol));
        ck_sx_ok(cx, sx_graph_add_symbol(cx, step, sx_span_of(name), 1, 3, &rounds.symbol));
    }
    sx_node_id *image = SX_NEW_ARRAY(cx, sx_node_id, program->node_count);
    ck_assert_ptr_nonnull(image);
    copy_nodes(&w, step, image);
    for (uint32_t k = 0; k < attr.carried; k++) {
        sx_node_id next = image[some_like(&w, w.parameter[k])];
        if (bounded) {
            ck_sx_ok(cx, sx_build_unary(cx, step, SX_OP_TANH, next, &next));
        }
        put_output(&w, step, next);
    }
    for (uint32_t k = 0; k < program->output_count; k++) {
        put_output(&w, step, image[program->output[k].node.i]);
    }
    ck_sx_ok(cx, sx_program_make(cx, step, &attr.step));
    sx_node_id input[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < w.count; k++) {
        sx_type type = program->node[w.parameter[k]].type;
        bool sliced = k >= attr.carried && k < attr.carried + attr.sliced;
        for (uint32_t d = type.rank; sliced && d > 0; d--) {
            type.dim[d] = type.dim[d - 1];
        }
        type.dim[0] = sliced ? rounds : type.dim[0];
        type.rank += sliced ? 1 : 0;
        input[k] = put_parameter(&w, outer, name_of(&w, k), &type);
    }
    put_outputs(&w, outer, SX_OP_SCAN, &attr, input, w.count);
    ck_sx_ok(cx, sx_graph_check(cx, outer));
    return outer;
}

sx_graph *sx_wrap_cond(sx_ctx *cx, sx_rng *rng, const sx_graph *program, uint32_t level)
{
    wrap w = {.cx = cx, .rng = rng, .from = program};
    sx_attr attr = {.present = sx_op_info_of(SX_OP_COND)->attrs};
    const sx_type truth = {.dtype = SX_BOOL};
    char name[16];
    sx_node_id *image = SX_NEW_ARRAY(cx, sx_node_id, program->node_count);
    ck_assert_ptr_nonnull(image);
    for (uint32_t n = 0; n < program->node_count; n++) {
        if (program->node[n].op == SX_OP_PARAMETER) {
            w.parameter[w.count++] = n;
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        sx_graph *body = open_graph(&w);
        copy_nodes(&w, body, image);
        for (uint32_t k = 0; k < program->output_count; k++) {
            uint32_t n = program->output[k].node.i;
            put_output(&w, body, image[i == 0 ? n : some_like(&w, n)]);
        }
        ck_sx_ok(cx, sx_program_make(cx, body, i == 0 ? &attr.then : &attr.otherwise));
    }
    sx_graph *outer = open_graph(&w);
    sx_node_id input[SX_INPUTS_MAX];
    (void)snprintf(name, sizeof(name), "which%u", level);
    input[0] = put_parameter(&w, outer, sx_span_of(name), &truth);
    for (uint32_t k = 0; k < w.count; k++) {
        input[k + 1] =
            put_parameter(&w, outer, name_of(&w, k), &program->node[w.parameter[k]].type);
    }
    put_outputs(&w, outer, SX_OP_COND, &attr, input, w.count + 1);
    ck_sx_ok(cx, sx_graph_check(cx, outer));
    return outer;
}
