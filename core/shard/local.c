#include "core/shard/local.h"

#include "core/ir/effect.h"
#include "core/ir/shard.h"

typedef struct {
    sx_ctx *cx;
    const sx_graph *graph;
    const sx_plan *plan;
    sx_graph *to;
    sx_node_id *parameter; /* [nodes of graph] */
    sx_node_id *made;      /* [step_count] */
} lowering;

static const sx_mesh_axis *axis_of(const lowering *l, uint32_t axis)
{
    SX_ASSERT(axis < l->graph->sharding->axis_count);
    return &l->graph->sharding->axis[axis];
}

static sx_code add_parameters(lowering *l)
{
    const sx_sharding *mesh = l->graph->sharding;
    for (uint32_t n = 0; n < l->graph->node_count; n++) {
        const sx_node *node = &l->graph->node[n];
        if (node->op != SX_OP_PARAMETER) {
            continue;
        }
        sx_places places = sx_graph_places(l->graph, n);
        sx_attr attr = *sx_graph_attr(l->graph, node);
        for (uint32_t a = 0; a < mesh->axis_count; a++) {
            sx_shard_local_type(&attr.type, places.at[a], mesh->axis[a].size);
        }
        SX_TRY(sx_graph_add(l->cx, l->to, SX_OP_PARAMETER, &attr, NULL, 0, &l->parameter[n]));
    }
    return SX_OK;
}

static sx_code add_collective(lowering *l, sx_op op, uint32_t axis, sx_attr attr, sx_node_id x,
                              sx_node_id *id)
{
    attr.present = sx_op_info_of(op)->attrs;
    attr.along = axis_of(l, axis)->name;
    attr.ranks = axis_of(l, axis)->size;
    return sx_graph_add(l->cx, l->to, op, &attr, &x, sx_op_info_of(op)->input_max, id);
}

/* The slice of a dimension at the place of the rank. */
static sx_code keep_piece(lowering *l, uint32_t axis, uint32_t dim, sx_node_id x, sx_node_id *id)
{
    const sx_type number = {.dtype = SX_I64};
    int64_t piece = sx_graph_node(l->to, x)->type.dim[dim].scale / axis_of(l, axis)->size;
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DYNAMIC_SLICE)->attrs,
                    .dims = {1, {dim}},
                    .sizes = {1, {piece}}};
    sx_node_id place;
    sx_node_id size;
    sx_node_id input[2] = {x, x};
    SX_TRY(add_collective(l, SX_OP_AXIS_INDEX, axis, (sx_attr){0}, x, &place));
    SX_TRY(sx_build_scalar(l->cx, l->to, &number, (double)piece, &size));
    SX_TRY(sx_build_binary(l->cx, l->to, SX_OP_MULTIPLY, place, size, &input[1]));
    return sx_graph_add(l->cx, l->to, SX_OP_DYNAMIC_SLICE, &attr, input, 2, id);
}

/* All of it on the first rank, zeros on the others. */
static sx_code keep_first(lowering *l, uint32_t axis, sx_node_id x, sx_node_id *id)
{
    sx_type type = sx_graph_node(l->to, x)->type;
    sx_type truth = type;
    const sx_type number = {.dtype = SX_I64};
    sx_attr equal = {.present = sx_op_info_of(SX_OP_COMPARE)->attrs, .direction = SX_EQ};
    sx_attr none = {.present = sx_op_info_of(SX_OP_SELECT)->attrs};
    sx_node_id pair[2];
    sx_node_id input[3] = {x, x, x};
    SX_TRY(add_collective(l, SX_OP_AXIS_INDEX, axis, (sx_attr){0}, x, &pair[0]));
    SX_TRY(sx_build_scalar(l->cx, l->to, &number, 0, &pair[1]));
    SX_TRY(sx_graph_add(l->cx, l->to, SX_OP_COMPARE, &equal, pair, 2, &input[0]));
    truth.dtype = SX_BOOL;
    SX_TRY(sx_build_broadcast(l->cx, l->to, input[0], &(sx_ints){0}, &truth, &input[0]));
    SX_TRY(sx_build_scalar(l->cx, l->to, &type, 0, &input[2]));
    return sx_graph_add(l->cx, l->to, SX_OP_SELECT, &none, input, 3, id);
}

/* How devices that hold parts of a sum, a maximum or a minimum put them together. */
static sx_reducer reducer_of(sx_shard_place place)
{
    SX_ASSERT(place > SX_PLACE_R && place < SX_PLACE_COUNT);
    return place == SX_PLACE_SUM ? SX_SUM : place == SX_PLACE_MAX ? SX_MAX : SX_MIN;
}

static sx_code add_transfer(lowering *l, const sx_plan_step *step, sx_node_id x, sx_node_id *id)
{
    uint32_t a = step->axis;
    switch (step->kind) {
    case SX_PLAN_KEEP:
        if (step->to < SX_PLACE_R) {
            return keep_piece(l, a, step->to, x, id);
        }
        if (step->to == SX_PLACE_SUM) {
            return keep_first(l, a, x, id);
        }
        *id = x; /* the maximum of what all have is that */
        return SX_OK;
    case SX_PLAN_ALL_GATHER:
        return add_collective(l, SX_OP_ALL_GATHER, a, (sx_attr){.axis = step->from}, x, id);
    case SX_PLAN_REDUCE_SCATTER: {
        sx_attr attr = {.axis = step->to, .reducer = reducer_of(step->from)};
        return add_collective(l, SX_OP_REDUCE_SCATTER, a, attr, x, id);
    }
    case SX_PLAN_ALL_REDUCE:
        return add_collective(l, SX_OP_ALL_REDUCE, a, (sx_attr){.reducer = reducer_of(step->from)},
                              x, id);
    case SX_PLAN_ALL_TO_ALL: {
        sx_attr attr = {.split = step->to, .axis = step->from};
        return add_collective(l, SX_OP_ALL_TO_ALL, a, attr, x, id);
    }
    case SX_PLAN_COMPUTE:
    case SX_PLAN_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

static sx_code add_step(lowering *l, uint32_t i)
{
    const sx_plan_step *step = &l->plan->step[i];
    const sx_node *node = &l->graph->node[step->node];
    sx_node_id input[SX_INPUTS_MAX];
    SX_ASSERT(step->operand_count <= SX_INPUTS_MAX);
    for (uint32_t k = 0; k < step->operand_count; k++) {
        uint32_t from = l->plan->operand[step->operand_first + k];
        SX_ASSERT(from < i);
        input[k] = l->made[from];
    }
    if (step->kind != SX_PLAN_COMPUTE) {
        SX_TRY(add_transfer(l, step, input[0], &l->made[i]));
    } else if (node->op == SX_OP_PARAMETER) {
        l->made[i] = l->parameter[step->node];
    } else {
        SX_TRY(sx_graph_add(l->cx, l->to, node->op, step->attr, input, step->operand_count,
                            &l->made[i]));
    }
    SX_ASSERT(sx_type_equal(&sx_graph_node(l->to, l->made[i])->type, &step->local));
    return SX_OK;
}

sx_code sx_plan_local(sx_ctx *cx, const sx_graph *graph, const sx_plan *plan, sx_graph **local)
{
    lowering l = {.cx = cx, .graph = graph, .plan = plan};
    SX_ASSERT(graph->sharding != NULL);
    if (graph->effects != NULL) {
        const sx_kept *first = &graph->effects->kept[0];
        SX_ASSERT(graph->effects->kept_count > 0);
        sx_span name = sx_graph_attr(graph, &graph->node[first->node])->name;
        return SX_FAIL(
            cx, SX_UNIMPLEMENTED,
            "parameter \"%.*s\" is %s: no program of each device is made of one with state or "
            "donated inputs",
            (int)sx_min_i64((int64_t)name.len, 60), (const char *)name.ptr,
            first->role == SX_KEEP_STATE ? "state" : "donated");
    }
    if (graph->symbol_count > 0) {
        return SX_FAIL(cx, SX_INPUT, "symbol \"%.*s\" has no value",
                       (int)sx_min_i64((int64_t)graph->symbol[0].name.len, 60),
                       (const char *)graph->symbol[0].name.ptr);
    }
    l.parameter = SX_NEW_ARRAY(cx, sx_node_id, (size_t)graph->node_count + 1);
    l.made = SX_NEW_ARRAY(cx, sx_node_id, (size_t)plan->step_count + 1);
    if (l.parameter == NULL || l.made == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &l.to));
    for (uint32_t a = 0; a < graph->sharding->axis_count; a++) {
        const sx_mesh_axis *axis = axis_of(&l, a);
        SX_TRY(sx_mesh_add_axis(cx, l.to, axis->name, axis->size));
    }
    SX_TRY(add_parameters(&l));
    for (uint32_t i = 0; i < plan->step_count; i++) {
        SX_TRY(add_step(&l, i));
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        SX_TRY(sx_graph_add_output(cx, l.to, graph->output[k].name, l.made[plan->output[k]]));
    }
    *local = l.to;
    return sx_graph_check(cx, l.to);
}
