#include "core/grad/grad.h"

#include <string.h>

#include "core/grad/sweep.h"
#include "core/ir/effect.h"
#include "core/ir/origin.h"
#include "core/ir/plain.h"

typedef enum { RULE_NONE, RULE_ZERO, RULE_GIVES } rule_kind;
typedef struct {
    rule_kind kind;
    sx_grad_rule give;
} rule_row;

static const rule_row rules[SX_OP_COUNT] = {
#define SX_GRAD(op, function, text) [SX_OP_##op] = {RULE_GIVES, sx_grad_##function},
#define SX_GRAD_ZERO(op, text) [SX_OP_##op] = {RULE_ZERO, NULL},
#include "core/grad/rules.def"
#undef SX_GRAD
#undef SX_GRAD_ZERO
};

/* One differentiation. */
typedef struct {
    sx_sweep s;
    const sx_graph *from;
    const sx_grad_request *request;
    sx_gradient *made;
    uint32_t output; /* of `from` */
    sx_node_id *wrt; /* [wrt_count] parameters of `from` */
    uint32_t wrt_count;
    bool *reached;     /* [nodes of from] the output depends on it */
    sx_node_id *image; /* [nodes of from] the node of s.graph */
    uint32_t *source;  /* [source_count] and back: the node of `from` */
    uint32_t source_count, source_capacity;
    uint32_t wanted_capacity;
} task;

static bool is_float(const sx_type *type)
{
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

/* ---- what is asked for ---- */

static sx_code find_output(task *t)
{
    sx_span name = t->request->output;
    if (name.len == 0 && t->from->output_count != 1) {
        return SX_FAIL(t->s.cx, SX_INPUT,
                       "the program has %u outputs: which one is differentiated?",
                       t->from->output_count);
    }
    for (t->output = 0; t->output < t->from->output_count; t->output++) {
        if (name.len == 0 || sx_span_equal(t->from->output[t->output].name, name)) {
            break;
        }
    }
    if (t->output == t->from->output_count) {
        return SX_FAIL(t->s.cx, SX_INPUT, "output \"%.*s\": the program has none of this name",
                       (int)name.len, (const char *)name.ptr);
    }
    const sx_output *output = &t->from->output[t->output];
    const sx_type *type = &sx_graph_node(t->from, output->node)->type;
    if (!is_float(type)) {
        return SX_FAIL(t->s.cx, SX_INPUT, "output \"%.*s\" is %s: gradients are of floats",
                       (int)output->name.len, (const char *)output->name.ptr,
                       sx_dtype_name(type->dtype));
    }
    return SX_OK;
}

static bool is_named(const task *t, uint32_t node)
{
    for (uint32_t i = 0; i < t->wrt_count; i++) {
        if (t->wrt[i].i == node) {
            return true;
        }
    }
    return false;
}

static sx_code find_parameter(task *t, sx_span name)
{
    for (uint32_t n = 0; n < t->from->node_count; n++) {
        const sx_node *node = &t->from->node[n];
        if (node->op != SX_OP_PARAMETER ||
            !sx_span_equal(sx_graph_attr(t->from, node)->name, name)) {
            continue;
        }
        if (!is_float(&node->type)) {
            return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\" is %s: gradients are of floats",
                           (int)name.len, (const char *)name.ptr, sx_dtype_name(node->type.dtype));
        }
        if (is_named(t, n)) {
            return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\" is named twice", (int)name.len,
                           (const char *)name.ptr);
        }
        t->wrt[t->wrt_count++].i = n;
        return SX_OK;
    }
    return SX_FAIL(t->s.cx, SX_INPUT, "parameter \"%.*s\": the program has none of this name",
                   (int)name.len, (const char *)name.ptr);
}

static sx_code find_parameters(task *t)
{
    sx_ctx *cx = t->s.cx;
    uint32_t room = t->request->wrt_count + t->from->node_count;
    t->wrt = SX_NEW_ARRAY(cx, sx_node_id, room);
    t->made->skipped = SX_NEW_ARRAY(cx, sx_span, t->from->node_count);
    t->made->zero = SX_NEW_ARRAY(cx, sx_span, room);
    if (t->wrt == NULL || t->made->skipped == NULL || t->made->zero == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < t->request->wrt_count; i++) {
        SX_TRY(find_parameter(t, t->request->wrt[i]));
    }
    for (uint32_t n = 0; t->request->weights && n < t->from->node_count; n++) {
        const sx_node *node = &t->from->node[n];
        const sx_attr *attr = sx_graph_attr(t->from, node);
        if (node->op != SX_OP_PARAMETER || attr->weight == 0 || is_named(t, n)) {
            continue;
        }
        if (is_float(&node->type)) {
            t->wrt[t->wrt_count++].i = n;
        } else {
            t->made->skipped[t->made->skipped_count++] = attr->name;
        }
    }
    if (t->wrt_count == 0) {
        return SX_FAIL(cx, SX_INPUT,
                       t->request->weights ? "the program has no weights of floats"
                                           : "no parameter is named");
    }
    return SX_OK;
}

/* ---- forward: the program, with the composites in between taken apart ---- */

/* The nodes from `first` on come from node `source`; those that depend on a wanted parameter by a slope are wanted. */
static sx_code note_nodes(task *t, uint32_t first, uint32_t source)
{
    sx_graph *graph = t->s.graph;
    void *array = t->source;
    SX_TRY(sx_grow(t->s.cx, &array, &t->source_capacity, graph->node_count, sizeof(uint32_t)));
    t->source = array;
    array = t->s.wanted;
    SX_TRY(sx_grow(t->s.cx, &array, &t->wanted_capacity, graph->node_count, sizeof(bool)));
    t->s.wanted = array;
    for (uint32_t n = first; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool wanted = node->op == SX_OP_PARAMETER && is_named(t, source);
        for (uint32_t k = 0; k < node->input_count && rules[node->op].kind != RULE_ZERO; k++) {
            wanted = wanted || t->s.wanted[sx_graph_input(graph, node, k).i];
        }
        t->s.wanted[n] = wanted && is_float(&node->type);
        t->source[n] = source;
    }
    t->source_count = graph->node_count;
    return SX_OK;
}

/* The maximum that a softmax subtracts, and what is made of it alone, changes no result: the weights e^(x - m) over
 * their sum, and m + log of the sum of e^(x - m), are the same for every m. So it has no part in a derivative. */
static bool shift_cancels(sx_op op, const sx_attr *attr)
{
    return op == SX_OP_SOFTMAX || op == SX_OP_LOG_SOFTMAX || op == SX_OP_ATTENTION ||
           (op == SX_OP_ONLINE_DOT && attr->form != 0);
}

static sx_code copy_composite(task *t, uint32_t n, const sx_node_id *input, uint32_t input_count)
{
    sx_ctx *cx = t->s.cx;
    const sx_node *node = &t->from->node[n];
    const sx_attr *attr = sx_graph_attr(t->from, node);
    uint32_t first = t->s.graph->node_count;
    sx_code code = sx_decompose(cx, t->s.graph, node->op, attr, input, input_count, &t->image[n]);
    if (code != SX_OK) {
        return code;
    }
    SX_TRY(note_nodes(t, first, n));
    if (!shift_cancels(node->op, attr)) {
        return SX_OK;
    }
    for (uint32_t k = first; k < t->s.graph->node_count; k++) { /* the maximum, and it repeated */
        const sx_node *part = &t->s.graph->node[k];
        bool is_maximum =
            part->op == SX_OP_REDUCE && sx_graph_attr(t->s.graph, part)->reducer == SX_MAX;
        bool repeats =
            part->op == SX_OP_BROADCAST && !t->s.wanted[sx_graph_input(t->s.graph, part, 0).i];
        t->s.wanted[k] = t->s.wanted[k] && !is_maximum && !repeats;
    }
    return SX_OK;
}

static sx_code copy_forward(task *t)
{
    const sx_graph *from = t->from;
    for (uint32_t i = 0; i < from->symbol_count; i++) {
        const sx_symbol *symbol = &from->symbol[i];
        uint32_t same;
        SX_TRY(sx_graph_add_symbol(t->s.cx, t->s.graph, symbol->name, symbol->low, symbol->high,
                                   &same));
        SX_ASSERT(same == i);
    }
    for (uint32_t n = 0; n < from->node_count; n++) {
        const sx_node *node = &from->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        bool wanted = false;
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = t->image[sx_graph_input(from, node, k).i];
            wanted = wanted || t->s.wanted[input[k].i];
        }
        if (wanted && t->reached[n] && sx_op_is_composite(node->op)) {
            SX_TRY(copy_composite(t, n, input, node->input_count));
            continue;
        }
        uint32_t first = t->s.graph->node_count;
        SX_TRY(sx_graph_add(t->s.cx, t->s.graph, node->op, sx_graph_attr(from, node), input,
                            node->input_count, &t->image[n]));
        SX_TRY(note_nodes(t, first, n));
    }
    return SX_OK;
}

static sx_code mark_reached(task *t)
{
    t->reached = SX_NEW_ARRAY(t->s.cx, bool, t->from->node_count);
    if (t->reached == NULL) {
        return t->s.cx->error.code;
    }
    t->reached[t->from->output[t->output].node.i] = true;
    for (uint32_t n = t->from->node_count; n-- > 0;) {
        const sx_node *node = &t->from->node[n];
        for (uint32_t k = 0; t->reached[n] && k < node->input_count; k++) {
            t->reached[sx_graph_input(t->from, node, k).i] = true;
        }
    }
    return SX_OK;
}

/* ---- back ---- */

bool sx_wants(const sx_sweep *s, const sx_site *at, uint32_t k)
{
    SX_ASSERT(k < at->count && at->x[k].i < s->forward_count);
    return s->wanted[at->x[k].i];
}

void sx_give(sx_sweep *s, const sx_site *at, uint32_t k, sx_node_id part)
{
    if (s->code != SX_OK || !sx_wants(s, at, k)) {
        return;
    }
    sx_type own = sx_step_type(s, at->x[k]);
    sx_type given = sx_step_type(s, part);
    SX_ASSERT(sx_type_equal(&own, &given));
    uint32_t *sum = &s->cotangent[at->x[k].i];
    *sum = *sum == SX_GRAD_NONE ? part.i : sx_step_binary(s, SX_OP_ADD, (sx_node_id){*sum}, part).i;
}

static sx_code in_words_of_model(task *t, uint32_t n)
{
    const sx_origin *origin = sx_origin_find(t->from->origins, t->source[n]);
    const char *op = sx_op_info_of(t->from->node[t->source[n]].op)->name;
    if (origin == NULL) {
        return sx_fail_in(t->s.cx, "node %u (%s)", t->source[n], op);
    }
    if (origin->opset <= 0) {
        return sx_fail_in(t->s.cx, "node '%.*s' (%s)", (int)origin->name.len,
                          (const char *)origin->name.ptr, op);
    }
    return sx_fail_in(t->s.cx, "node '%.*s' (%.*s, opset %lld)", (int)origin->name.len,
                      (const char *)origin->name.ptr, (int)origin->op.len,
                      (const char *)origin->op.ptr, (long long)origin->opset);
}

static sx_code walk_back_over(task *t, uint32_t n)
{
    sx_sweep *s = &t->s;
    const sx_node *node = &s->graph->node[n];
    if (rules[node->op].kind == RULE_NONE) {
        return SX_FAIL(s->cx, SX_UNIMPLEMENTED, "gradient of %s is not there yet",
                       sx_op_info_of(node->op)->name);
    }
    SX_ASSERT(rules[node->op].kind ==
              RULE_GIVES); /* nothing that depends by a zero slope is wanted */
    sx_site at = {.op = node->op,
                  .y = {n},
                  .g = {s->cotangent[n]},
                  .type = node->type,
                  .attr = *sx_graph_attr(s->graph, node),
                  .count = node->input_count};
    for (uint32_t k = 0; k < at.count; k++) {
        at.x[k] = sx_graph_input(s->graph, node, k);
    }
    rules[at.op].give(s, &at);
    return s->code;
}

/* The cotangent of the output: one for a scalar, else a parameter behind all others. */
static sx_code begin(task *t)
{
    sx_sweep *s = &t->s;
    const sx_output *output = &t->from->output[t->output];
    const sx_type type = sx_graph_node(t->from, output->node)->type;
    s->forward_count = s->graph->node_count;
    s->cotangent = SX_NEW_ARRAY(s->cx, uint32_t, s->forward_count);
    if (s->cotangent == NULL) {
        return s->cx->error.code;
    }
    for (uint32_t n = 0; n < s->forward_count; n++) {
        s->cotangent[n] = SX_GRAD_NONE;
    }
    uint32_t *seed = &s->cotangent[t->image[output->node.i].i];
    if (type.rank == 0) {
        *seed = sx_step_constant(s, &type, 1).i;
        return s->code;
    }
    sx_buf name;
    sx_buf_init(&name, 2 * SX_NAME_MAX);
    sx_buf_print(&name, "cotangent(%.*s)", (int)output->name.len, (const char *)output->name.ptr);
    char *kept = sx_alloc_text(s->cx, sx_buf_span(&name));
    sx_buf_fini(&name);
    if (kept == NULL) {
        return s->cx->error.code;
    }
    sx_node_id parameter;
    SX_TRY(sx_build_parameter(s->cx, s->graph, kept, false, &type, &parameter));
    *seed = parameter.i;
    t->made->cotangent = sx_span_of(kept);
    return SX_OK;
}

static sx_code sweep(task *t)
{
    SX_TRY(begin(t));
    for (uint32_t n = t->s.forward_count; n-- > 0;) {
        bool is_leaf = t->s.graph->node[n].op == SX_OP_PARAMETER;
        if (t->s.cotangent[n] == SX_GRAD_NONE || !t->s.wanted[n] || is_leaf) {
            continue;
        }
        if (walk_back_over(t, n) != SX_OK) {
            return in_words_of_model(t, n);
        }
        uint32_t first = t->source_count;
        void *array = t->source; /* what a rule appends belongs to its node */
        SX_TRY(sx_grow(t->s.cx, &array, &t->source_capacity, t->s.graph->node_count,
                       sizeof(uint32_t)));
        t->source = array;
        for (uint32_t k = first; k < t->s.graph->node_count; k++) {
            t->source[k] = t->source[n];
        }
        t->source_count = t->s.graph->node_count;
    }
    return SX_OK;
}

/* ---- the result ---- */

static bool is_output(const sx_graph *graph, sx_span name)
{
    for (uint32_t k = 0; k < graph->output_count; k++) {
        if (sx_span_equal(graph->output[k].name, name)) {
            return true;
        }
    }
    return false;
}

static sx_code add_gradient(task *t, sx_span parameter, sx_node_id node)
{
    sx_span of = t->from->output[t->output].name;
    sx_buf name;
    sx_buf_init(&name, 4 * SX_NAME_MAX);
    sx_buf_print(&name, "grad(%.*s)", (int)parameter.len, (const char *)parameter.ptr);
    if (is_output(t->s.graph, sx_buf_span(&name))) {
        sx_buf_clear(&name);
        sx_buf_print(&name, "grad(%.*s, %.*s)", (int)of.len, (const char *)of.ptr,
                     (int)parameter.len, (const char *)parameter.ptr);
    }
    sx_code code = sx_graph_add_output(t->s.cx, t->s.graph, sx_buf_span(&name), node);
    sx_buf_fini(&name);
    return code;
}

static sx_code add_outputs(task *t)
{
    const sx_graph *from = t->from;
    for (uint32_t k = 0; k < from->output_count; k++) {
        sx_node_id node = t->image[from->output[k].node.i];
        SX_TRY(sx_graph_add_output(t->s.cx, t->s.graph, from->output[k].name, node));
    }
    for (uint32_t k = 0; k < t->wrt_count; k++) {
        const sx_node *parameter = sx_graph_node(from, t->wrt[k]);
        sx_span name = sx_graph_attr(from, parameter)->name;
        sx_node_id gradient = {t->s.cotangent[t->image[t->wrt[k].i].i]};
        if (gradient.i == SX_GRAD_NONE) {
            gradient = sx_step_constant(&t->s, &parameter->type, 0);
            SX_TRY(t->s.code);
            t->made->zero[t->made->zero_count++] = name;
        }
        SX_TRY(add_gradient(t, name, gradient));
    }
    return SX_OK;
}

/* Where nodes of the model became what: only names of the user's own are kept. */
static sx_code keep_origins(task *t)
{
    for (uint32_t n = 0; n < t->source_count; n++) {
        const sx_origin *origin = sx_origin_find(t->from->origins, t->source[n]);
        if (origin != NULL && origin->opset > 0) {
            SX_TRY(sx_graph_set_origin(t->s.cx, t->s.graph, n, origin));
        }
    }
    return SX_OK;
}

/* State stays state: the outputs of the program have their old numbers. */
static sx_code keep_effects(task *t)
{
    uint32_t *image = SX_NEW_ARRAY(t->s.cx, uint32_t, t->from->node_count);
    if (image == NULL) {
        return t->s.cx->error.code;
    }
    for (uint32_t n = 0; n < t->from->node_count; n++) {
        image[n] = t->image[n].i;
    }
    return sx_effects_copy(t->s.cx, t->from, image, t->s.graph);
}

static sx_code finish(task *t)
{
    sx_graph *canonical;
    sx_origins *origins;
    SX_TRY(keep_origins(t));
    SX_TRY(keep_effects(t));
    SX_TRY(sx_graph_canon_origins(t->s.cx, t->s.graph, &canonical, &origins));
    canonical->name = t->from->name;
    canonical->origins = origins;
    SX_TRY(sx_graph_check(t->s.cx, canonical));
    t->made->graph = canonical;
    return SX_OK;
}

sx_code sx_grad_make(sx_ctx *cx, const sx_graph *graph, const sx_grad_request *request,
                     sx_gradient *gradient)
{
    SX_ASSERT(request->wrt_count == 0 || request->wrt != NULL);
    *gradient = (sx_gradient){.graph = NULL};
    if (graph->sharding != NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "gradient of a program on a mesh");
    }
    SX_TRY(sx_graph_plain(cx, graph, &graph));
    task t = {.s = {.cx = cx}, .from = graph, .request = request, .made = gradient};
    SX_TRY(find_output(&t));
    SX_TRY(find_parameters(&t));
    SX_TRY(mark_reached(&t));
    t.image = SX_NEW_ARRAY(cx, sx_node_id, graph->node_count);
    if (t.image == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &t.s.graph));
    SX_TRY(copy_forward(&t));
    SX_TRY(sweep(&t));
    SX_TRY(add_outputs(&t));
    SX_TRY(finish(&t));
    SX_ASSERT(gradient->graph->output_count == graph->output_count + t.wrt_count);
    return SX_OK;
}
