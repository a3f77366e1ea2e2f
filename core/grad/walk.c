/* walk.c - a program copied with its composites taken apart, and the walk back over it. */
#include "core/grad/sweep.h"

#include "core/ir/extent.h"
#include "core/ir/origin.h"

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

bool sx_has_slope(sx_op op)
{
    SX_ASSERT(op < SX_OP_COUNT);
    return rules[op].kind != RULE_ZERO;
}

bool sx_is_float(const sx_type *type)
{
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

static bool is_region(sx_op op)
{
    return sx_op_info_of(op)->op_class == SX_OPCLASS_REGION;
}

/* ---- messages ---- */

/* Where a body has no names of the user's, a node goes by its number in the canonical form. */
static sx_code in_words_of_model(const sx_sweep *s, uint32_t node)
{
    const sx_origin *origin = sx_origin_find(s->from->origins, node);
    const char *op = sx_op_info_of(s->from->node[node].op)->name;
    if (origin == NULL) {
        return sx_fail_in(s->cx, s->body ? "node %u of its body (%s)" : "node %u (%s)", node, op);
    }
    if (origin->opset <= 0) {
        return sx_fail_in(s->cx, "node '%.*s' (%s)", (int)origin->name.len,
                          (const char *)origin->name.ptr, op);
    }
    return sx_fail_in(s->cx, "node '%.*s' (%.*s, opset %lld)", (int)origin->name.len,
                      (const char *)origin->name.ptr, (int)origin->op.len,
                      (const char *)origin->op.ptr, (long long)origin->opset);
}

/* ---- forward ---- */

/* Does node n depend by a slope on something wanted? */
static sx_code find_wanted(const sx_sweep *s, uint32_t n, bool *wanted)
{
    const sx_node *node = &s->graph->node[n];
    const sx_attr *attr = sx_graph_attr(s->graph, node);
    uint64_t sees[SX_PROGRAM_RESULTS_MAX];
    uint64_t operands = sx_has_slope(node->op) ? UINT64_MAX : 0;
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        any = any || s->wanted[sx_graph_input(s->graph, node, k).i];
    }
    if (any && is_region(node->op)) {
        SX_TRY(sx_region_slopes(s->cx, node->op, attr, sees));
        operands = sees[attr->result];
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        *wanted =
            *wanted || ((operands >> k & 1) != 0 && s->wanted[sx_graph_input(s->graph, node, k).i]);
    }
    return SX_OK;
}

/* The nodes from `first` on come from node `source`; those that depend on a wanted parameter by a slope are wanted. */
static sx_code note_nodes(sx_sweep *s, uint32_t first, uint32_t source)
{
    sx_graph *graph = s->graph;
    void *array = s->source;
    SX_TRY(sx_grow(s->cx, &array, &s->source_capacity, graph->node_count, sizeof(uint32_t)));
    s->source = array;
    array = s->wanted;
    SX_TRY(sx_grow(s->cx, &array, &s->wanted_capacity, graph->node_count, sizeof(bool)));
    s->wanted = array;
    for (uint32_t n = first; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        bool wanted = node->op == SX_OP_PARAMETER && s->wrt[source];
        SX_TRY(find_wanted(s, n, &wanted));
        s->wanted[n] = wanted && sx_is_float(&node->type);
        s->source[n] = source;
    }
    s->source_count = graph->node_count;
    return SX_OK;
}

/* The maximum that a softmax subtracts, and what is made of it alone, changes no result: the weights e^(x - m) over
 * their sum, and m + log of the sum of e^(x - m), are the same for every m. So it has no part in a derivative. */
static bool shift_cancels(sx_op op, const sx_attr *attr)
{
    return op == SX_OP_SOFTMAX || op == SX_OP_LOG_SOFTMAX || op == SX_OP_ATTENTION ||
           (op == SX_OP_ONLINE_DOT && attr->form != 0);
}

static sx_code copy_composite(sx_sweep *s, uint32_t n, const sx_node_id *input)
{
    sx_ctx *cx = s->cx;
    const sx_node *node = &s->from->node[n];
    const sx_attr *attr = sx_graph_attr(s->from, node);
    uint32_t first = s->graph->node_count;
    SX_TRY(sx_decompose(cx, s->graph, node->op, attr, input, node->input_count, &s->image[n]));
    SX_TRY(note_nodes(s, first, n));
    if (!shift_cancels(node->op, attr)) {
        return SX_OK;
    }
    for (uint32_t k = first; k < s->graph->node_count; k++) { /* the maximum, and it repeated */
        const sx_node *part = &s->graph->node[k];
        bool is_maximum =
            part->op == SX_OP_REDUCE && sx_graph_attr(s->graph, part)->reducer == SX_MAX;
        bool repeats =
            part->op == SX_OP_BROADCAST && !s->wanted[sx_graph_input(s->graph, part, 0).i];
        s->wanted[k] = s->wanted[k] && !is_maximum && !repeats;
    }
    return SX_OK;
}

/* Does this result of a while depend by a slope on an operand that does on a wanted parameter? */
static sx_code depends_by_slope(const sx_sweep *s, const sx_attr *attr, const sx_node_id *input,
                                uint32_t count, bool *depends)
{
    uint64_t sees[SX_PROGRAM_RESULTS_MAX];
    SX_TRY(sx_region_slopes(s->cx, SX_OP_WHILE, attr, sees));
    *depends = false;
    for (uint32_t k = 0; k < count; k++) {
        *depends = *depends || ((sees[attr->result] >> k & 1) != 0 && s->wanted[input[k].i]);
    }
    return SX_OK;
}

static sx_code copy_node(sx_sweep *s, uint32_t n)
{
    const sx_node *node = &s->from->node[n];
    sx_node_id input[SX_INPUTS_MAX];
    bool wanted = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k] = s->image[sx_graph_input(s->from, node, k).i];
        wanted = wanted || s->wanted[input[k].i];
    }
    if (wanted && s->reached[n] && sx_op_is_composite(node->op)) {
        return copy_composite(s, n, input);
    }
    sx_attr attr = *sx_graph_attr(s->from, node);
    if (wanted && s->reached[n] && node->op == SX_OP_WHILE && sx_is_float(&node->type)) {
        bool depends;
        SX_TRY(depends_by_slope(s, &attr, input, node->input_count, &depends));
        if (depends) {
            uint32_t before = s->graph->node_count;
            SX_TRY(sx_bound_while(s, &attr, input, node->input_count, &s->image[n]));
            return note_nodes(s, before, n);
        }
    }
    if (wanted && node->op == SX_OP_SCAN) {
        SX_TRY(sx_stack_carried(s->cx, &attr));
    }
    uint32_t first = s->graph->node_count;
    SX_TRY(sx_graph_add(s->cx, s->graph, node->op, &attr, input, node->input_count, &s->image[n]));
    return note_nodes(s, first, n);
}

sx_code sx_sweep_forward(sx_sweep *s)
{
    const sx_graph *from = s->from;
    SX_ASSERT(s->graph == NULL && s->wrt != NULL && s->reached != NULL);
    SX_TRY(sx_graph_make(s->cx, from->name, NULL, &s->graph));
    s->image = SX_NEW_ARRAY(s->cx, sx_node_id, from->node_count);
    if (s->image == NULL) {
        return s->cx->error.code;
    }
    for (uint32_t n = from->node_count; n-- > 0;) {
        const sx_node *node = &from->node[n];
        for (uint32_t k = 0; s->reached[n] && k < node->input_count; k++) {
            s->reached[sx_graph_input(from, node, k).i] = true;
        }
    }
    SX_TRY(sx_graph_copy_symbols(s->cx, from->symbol, from->symbol_count, s->graph));
    for (uint32_t n = 0; n < from->node_count; n++) {
        if (copy_node(s, n) != SX_OK) {
            return in_words_of_model(s, n);
        }
    }
    s->forward_count = s->graph->node_count;
    s->cotangent = SX_NEW_ARRAY(s->cx, uint32_t, s->forward_count);
    if (s->cotangent == NULL) {
        return s->cx->error.code;
    }
    for (uint32_t n = 0; n < s->forward_count; n++) {
        s->cotangent[n] = SX_GRAD_NONE;
    }
    return SX_OK;
}

/* ---- back ---- */

bool sx_wants(const sx_sweep *s, const sx_site *at, uint32_t k)
{
    SX_ASSERT(k < at->count && at->x[k].i < s->forward_count);
    return s->wanted[at->x[k].i];
}

void sx_put_cotangent(sx_sweep *s, sx_node_id value, sx_node_id part)
{
    SX_ASSERT(value.i < s->forward_count);
    sx_type own = sx_step_type(s, value);
    sx_type given = sx_step_type(s, part);
    if (s->code != SX_OK) {
        return;
    }
    SX_ASSERT(sx_type_equal(&own, &given));
    uint32_t *sum = &s->cotangent[value.i];
    *sum = *sum == SX_GRAD_NONE ? part.i : sx_step_binary(s, SX_OP_ADD, (sx_node_id){*sum}, part).i;
}

void sx_give(sx_sweep *s, const sx_site *at, uint32_t k, sx_node_id part)
{
    if (s->code == SX_OK && sx_wants(s, at, k)) {
        sx_put_cotangent(s, at->x[k], part);
    }
}

static bool is_sibling(const sx_graph *graph, uint32_t n, uint32_t m)
{
    const sx_node *a = &graph->node[n];
    const sx_node *b = &graph->node[m];
    bool same = a->op == b->op && a->input_count == b->input_count &&
                sx_attr_is_sibling(sx_graph_attr(graph, a), sx_graph_attr(graph, b));
    for (uint32_t k = 0; k < a->input_count && same; k++) {
        same = sx_graph_input(graph, a, k).i == sx_graph_input(graph, b, k).i;
    }
    return same;
}

bool sx_sibling_before(const sx_graph *graph, uint32_t n)
{
    SX_ASSERT(is_region(graph->node[n].op));
    bool found = false;
    for (uint32_t m = 0; m < n && !found; m++) {
        found = is_sibling(graph, n, m);
    }
    return found;
}

uint32_t sx_sibling_next(const sx_graph *graph, uint32_t n, uint32_t m)
{
    do {
        m++;
    } while (m < graph->node_count && !is_sibling(graph, n, m));
    return m;
}

/* Is there something to give back at node n? A region gives once, at the first of its results: by then all that reads
 * any of them has been passed. */
static bool has_cotangent(const sx_sweep *s, uint32_t n)
{
    if (!is_region(s->graph->node[n].op)) {
        return s->cotangent[n] != SX_GRAD_NONE && s->wanted[n];
    }
    bool any = false;
    for (uint32_t m = n; m < s->forward_count; m = sx_sibling_next(s->graph, n, m)) {
        any = any || (s->cotangent[m] != SX_GRAD_NONE && s->wanted[m]);
    }
    return any && !sx_sibling_before(s->graph, n);
}

static sx_code walk_back_over(sx_sweep *s, uint32_t n)
{
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

sx_code sx_sweep_back(sx_sweep *s)
{
    SX_TRY(s->code);
    for (uint32_t n = s->forward_count; n-- > 0;) {
        if (s->graph->node[n].op == SX_OP_PARAMETER || !has_cotangent(s, n)) {
            continue;
        }
        if (walk_back_over(s, n) != SX_OK) {
            return in_words_of_model(s, s->source[n]);
        }
        uint32_t first = s->source_count;
        void *array = s->source; /* what a rule appends belongs to its node */
        SX_TRY(sx_grow(s->cx, &array, &s->source_capacity, s->graph->node_count, sizeof(uint32_t)));
        s->source = array;
        for (uint32_t k = first; k < s->graph->node_count; k++) {
            s->source[k] = s->source[n];
        }
        s->source_count = s->graph->node_count;
    }
    return SX_OK;
}
