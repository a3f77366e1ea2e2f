/* Conds with a known predicate become one of their branches. */
#include "core/ir/settle.h"

#include "core/ir/extent.h"
#include "core/ir/num.h"
#include "core/ir/program.h"

/* ---- known numbers ---- */

/* The number that a tensor of one element is; a tensor that is not of such a type is never known. */
typedef struct {
    bool is;
    int64_t value;
} known;

typedef struct {
    sx_ctx *cx;
    sx_graph *to;
    known *number; /* [number_capacity] by node of `to` */
    uint32_t number_capacity;
    bool changed;
} settling;

static bool is_one_integer(const sx_type *type)
{
    bool one = sx_dtype_class_of(type->dtype) != SX_CLASS_FLOAT;
    for (uint32_t d = 0; d < type->rank; d++) {
        one = one && sx_dim_is_constant(type->dim[d]) && type->dim[d].scale == 1;
    }
    return one;
}

static bool compare(sx_direction direction, int64_t a, int64_t b)
{
    switch (direction) {
    case SX_EQ: return a == b;
    case SX_NE: return a != b;
    case SX_LT: return a < b;
    case SX_LE: return a <= b;
    case SX_GT: return a > b;
    case SX_GE: return a >= b;
    case SX_DIRECTION_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* x converted to a type that holds it; others are left alone. */
static known convert(sx_dtype dtype, int64_t x)
{
    return (known){x >= sx_num_int_min(dtype) && x <= sx_num_int_max(dtype), x};
}

/* What an operation on known numbers gives; operands are of one type. */
static known apply(sx_op op, const sx_attr *attr, sx_dtype dtype, int64_t a, int64_t b)
{
    switch ((int)op) {
    case SX_OP_MINIMUM: return (known){true, sx_min_i64(a, b)};
    case SX_OP_MAXIMUM: return (known){true, sx_max_i64(a, b)};
    case SX_OP_AND: return (known){true, a & b};
    case SX_OP_OR: return (known){true, a | b};
    case SX_OP_XOR: return (known){true, a ^ b};
    case SX_OP_NOT: return (known){dtype == SX_BOOL, a == 0 ? 1 : 0};
    case SX_OP_COMPARE: return (known){true, compare(attr->direction, a, b) ? 1 : 0};
    case SX_OP_CONVERT: return convert(dtype, a);
    default: return (known){false, 0};
    }
}

static known number_of(const settling *s, uint32_t n)
{
    const sx_graph *graph = s->to;
    const sx_node *node = &graph->node[n];
    const sx_attr *attr = sx_graph_attr(graph, node);
    known x[2] = {{false, 0}, {false, 0}};
    if (!is_one_integer(&node->type) || node->input_count > 2) {
        return x[0];
    }
    if (node->op == SX_OP_CONSTANT) {
        uint64_t bits = sx_num_load(node->type.dtype, attr->data.ptr, 0);
        return (known){true, sx_num_int_decode(node->type.dtype, bits)};
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        x[k] = s->number[sx_graph_input(graph, node, k).i];
        if (!x[k].is) {
            return x[k];
        }
    }
    bool view = sx_op_info_of(node->op)->op_class == SX_OPCLASS_VIEW;
    return view ? x[0] : apply(node->op, attr, node->type.dtype, x[0].value, x[1].value);
}

/* ---- nodes ---- */

static sx_code settle_programs(settling *s, sx_attr *attr)
{
    const sx_program **program[SX_ATTR_PROGRAMS_MAX];
    uint32_t count = sx_attr_programs(attr, program);
    for (uint32_t k = 0; k < count; k++) {
        const sx_graph *inner;
        SX_TRY(sx_graph_settle(s->cx, (*program[k])->graph, &inner));
        if (inner != (*program[k])->graph) {
            s->changed = true;
            SX_TRY(sx_program_make(s->cx, inner, program[k]));
        }
    }
    return SX_OK;
}

static sx_code add_node(settling *s, const sx_graph *from, const sx_node *node,
                        const sx_node_id *input, uint32_t *id)
{
    sx_attr attr = *sx_graph_attr(from, node);
    sx_node_id made;
    SX_TRY(settle_programs(s, &attr));
    SX_TRY(sx_graph_add(s->cx, s->to, node->op, &attr, input, node->input_count, &made));
    void *number = s->number;
    SX_TRY(sx_grow(s->cx, &number, &s->number_capacity, made.i + 1, sizeof(*s->number)));
    s->number = number;
    s->number[made.i] = number_of(s, made.i);
    *id = made.i;
    return SX_OK;
}

/* Nodes of a cond that are its results: the operands are the same, and so are the programs. */
static bool is_sibling(const sx_graph *graph, const sx_node *a, const sx_node *b)
{
    bool same = a->op == b->op && a->input_count == b->input_count &&
                sx_attr_is_sibling(sx_graph_attr(graph, a), sx_graph_attr(graph, b));
    for (uint32_t k = 0; same && k < a->input_count; k++) {
        same = sx_graph_input(graph, a, k).i == sx_graph_input(graph, b, k).i;
    }
    return same;
}

/* The cond that became a branch last, and where the nodes of that are: its results mostly follow each other. */
typedef struct {
    const sx_node *cond;
    const sx_graph *branch;
    const uint32_t *image;
} taken;

static sx_code add_nodes(settling *s, const sx_graph *from, uint32_t first, uint32_t *image);

static sx_code take_branch(settling *s, const sx_graph *from, const sx_node *cond,
                           const sx_node_id *input, taken *last, uint32_t *id)
{
    const sx_attr *attr = sx_graph_attr(from, cond);
    if (last->cond == NULL || !is_sibling(from, last->cond, cond)) {
        const sx_program *program = s->number[input[0].i].value != 0 ? attr->then : attr->otherwise;
        uint32_t *image = SX_NEW_ARRAY(s->cx, uint32_t, program->graph->node_count);
        if (image == NULL) {
            return s->cx->error.code;
        }
        SX_ASSERT(program->parameter_count + 1 == cond->input_count);
        for (uint32_t k = 0; k < program->parameter_count; k++) {
            image[k] = input[k + 1].i;
        }
        SX_TRY(add_nodes(s, program->graph, program->parameter_count, image));
        *last = (taken){cond, program->graph, image};
        s->changed = true;
    }
    *id = last->image[last->branch->output[attr->result].node.i];
    return SX_OK;
}

/* The nodes from `first` on; image[n] is the node of the result that node n is. */
static sx_code add_nodes(settling *s, const sx_graph *from, uint32_t first, uint32_t *image)
{
    taken last = {.cond = NULL};
    for (uint32_t n = first; n < from->node_count; n++) {
        const sx_node *node = &from->node[n];
        sx_node_id input[SX_INPUTS_MAX];
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k].i = image[sx_graph_input(from, node, k).i];
        }
        bool decided = node->op == SX_OP_COND && s->number[input[0].i].is;
        SX_TRY(decided ? take_branch(s, from, node, input, &last, &image[n])
                       : add_node(s, from, node, input, &image[n]));
    }
    return SX_OK;
}

/* ---- programs ---- */

static bool has_cond(const sx_graph *graph)
{
    bool has = false;
    for (uint32_t n = 0; n < graph->node_count && !has; n++) {
        const sx_program *program[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_node_programs(graph, &graph->node[n], program);
        has = graph->node[n].op == SX_OP_COND;
        for (uint32_t k = 0; k < count && !has; k++) {
            has = has_cond(program[k]->graph);
        }
    }
    return has;
}

static sx_code make_like(sx_ctx *cx, const sx_graph *graph, sx_graph **made)
{
    SX_TRY(sx_graph_make(cx, graph->name, NULL, made));
    return sx_graph_copy_symbols(cx, graph->symbol, graph->symbol_count, *made);
}

/* Parameters, and what the outputs need: image[n] is where node n of `from` is. */
static sx_code copy_needed(sx_ctx *cx, const sx_graph *from, sx_graph *to)
{
    bool *needed = SX_NEW_ARRAY(cx, bool, from->node_count);
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, from->node_count);
    if (needed == NULL || image == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k < from->output_count; k++) {
        needed[from->output[k].node.i] = true;
    }
    for (uint32_t n = from->node_count; n-- > 0;) {
        needed[n] = needed[n] || from->node[n].op == SX_OP_PARAMETER;
        for (uint32_t k = 0; needed[n] && k < from->node[n].input_count; k++) {
            needed[sx_graph_input(from, &from->node[n], k).i] = true;
        }
    }
    for (uint32_t n = 0; n < from->node_count; n++) {
        const sx_node *node = &from->node[n];
        sx_node_id input[SX_INPUTS_MAX], id;
        for (uint32_t k = 0; needed[n] && k < node->input_count; k++) {
            input[k].i = image[sx_graph_input(from, node, k).i];
        }
        if (needed[n]) {
            SX_TRY(sx_graph_add(cx, to, node->op, sx_graph_attr(from, node), input,
                                node->input_count, &id));
            image[n] = id.i;
        }
    }
    for (uint32_t k = 0; k < from->output_count; k++) {
        sx_node_id node = {image[from->output[k].node.i]};
        SX_TRY(sx_graph_add_output(cx, to, from->output[k].name, node));
    }
    return SX_OK;
}

sx_code sx_graph_settle(sx_ctx *cx, const sx_graph *graph, const sx_graph **settled)
{
    settling s = {.cx = cx};
    sx_graph *out;
    SX_ASSERT(graph->effects == NULL && graph->sharding == NULL);
    *settled = graph;
    if (!has_cond(graph)) {
        return SX_OK;
    }
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, graph->node_count);
    if (image == NULL) {
        return cx->error.code;
    }
    SX_TRY(make_like(cx, graph, &s.to));
    SX_TRY(add_nodes(&s, graph, 0, image));
    if (!s.changed) {
        return SX_OK;
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id node = {image[graph->output[k].node.i]};
        SX_TRY(sx_graph_add_output(cx, s.to, graph->output[k].name, node));
    }
    SX_TRY(make_like(cx, graph, &out));
    SX_TRY(copy_needed(cx, s.to, out));
    *settled = out;
    return SX_OK;
}
