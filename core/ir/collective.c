#include "core/ir/collective.h"

#include "core/ir/check.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"

static bool is_collective(const sx_node *node)
{
    return sx_op_info_of(node->op)->op_class == SX_OPCLASS_COLLECTIVE;
}

/* ---- a whole program ---- */

static sx_code check_along(sx_ctx *cx, const sx_graph *whole, uint32_t n, sx_op op,
                           const sx_attr *attr)
{
    const char *name = sx_op_info_of(op)->name;
    sx_short along = sx_short_name(attr->along);
    if (whole->sharding == NULL) {
        return SX_FAIL(cx, SX_INPUT, "node %u (%s): along \"%s\", and the graph has no mesh", n,
                       name, along.text);
    }
    uint32_t axis = sx_mesh_find_axis(whole, attr->along);
    if (axis == SX_MESH_AXES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "node %u (%s): mesh axis \"%s\" is not declared", n, name,
                       along.text);
    }
    int64_t size = whole->sharding->axis[axis].size;
    if (attr->ranks != size) {
        return SX_FAIL(cx, SX_INPUT, "node %u (%s): %lld ranks along \"%s\", the mesh has %lld", n,
                       name, (long long)attr->ranks, along.text, (long long)size);
    }
    return SX_OK;
}

/* Those of `graph`, which is the whole program or stands in its node `around`. */
static sx_code check_each(sx_ctx *cx, const sx_graph *whole, const sx_graph *graph, uint32_t around)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        uint32_t at = graph == whole ? n : around;
        const sx_program *inner[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_node_programs(graph, node, inner);
        if (is_collective(node)) {
            SX_TRY(check_along(cx, whole, at, node->op, sx_graph_attr(graph, node)));
        }
        for (uint32_t k = 0; k < count; k++) {
            SX_TRY(check_each(cx, whole, inner[k]->graph, at));
        }
    }
    return SX_OK;
}

sx_code sx_collectives_check(sx_ctx *cx, const sx_graph *graph)
{
    const sx_sharding *s = graph->sharding;
    sx_collective first;
    if (!sx_collective_find(graph, &first)) {
        return SX_OK;
    }
    SX_ASSERT(first.node < graph->node_count);
    SX_TRY(check_each(cx, graph, graph, 0));
    SX_ASSERT(s != NULL);
    if (s->parameter_count > 0 || s->output_count > 0) {
        bool parameter = s->parameter_count > 0;
        sx_span name = parameter ? sx_graph_attr(graph, &graph->node[s->parameter[0].index])->name
                                 : graph->output[s->output[0].index].name;
        return SX_FAIL(cx, SX_INPUT,
                       "%s \"%s\" is placed and node %u is %s: a program has placements and speaks "
                       "of whole tensors, or collectives and speaks of those of a rank",
                       parameter ? "parameter" : "output", sx_short_name(name).text, first.node,
                       sx_op_info_of(first.op)->name);
    }
    return SX_OK;
}

/* ---- types ---- */

/* A dimension of operand 0 that is cut into as many equal pieces as there are ranks. */
static sx_code cut(const sx_infer *in, int64_t d, sx_type *type)
{
    sx_dim whole = type->dim[d];
    if (sx_dim_divide(whole, sx_dim_of(in->attr->ranks), &type->dim[d])) {
        return SX_OK;
    }
    bool constant = sx_dim_is_constant(whole);
    return SX_FAIL(in->cx, constant ? SX_INPUT : SX_UNIMPLEMENTED,
                   "%s: dimension %lld of extent %s, %s cut into %lld equal pieces", in->name,
                   (long long)d, SX_DIM_TEXT(in, whole),
                   constant ? "which cannot be" : "of which it is not known that it can be",
                   (long long)in->attr->ranks);
}

static sx_code join(const sx_infer *in, int64_t d, sx_type *type)
{
    sx_dim piece = type->dim[d];
    if (sx_dim_multiply(piece, sx_dim_of(in->attr->ranks), &type->dim[d])) {
        return SX_OK;
    }
    return SX_FAIL(in->cx, SX_LIMIT, "%s: dimension %lld of extent %s on each of %lld ranks",
                   in->name, (long long)d, SX_DIM_TEXT(in, piece), (long long)in->attr->ranks);
}

static sx_code check_rank(const sx_infer *in, uint32_t i, const char *what, int64_t rank)
{
    if (rank < 0 || rank >= in->attr->ranks) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: pair %u has %s %lld, of %lld ranks", in->name, i,
                       what, (long long)rank, (long long)in->attr->ranks);
    }
    return SX_OK;
}

static sx_code check_pairs(const sx_infer *in)
{
    const sx_rank_pairs *pairs = &in->attr->pairs;
    for (uint32_t i = 0; i < pairs->count; i++) {
        const sx_rank_pair *pair = &pairs->pair[i];
        SX_TRY(check_rank(in, i, "source", pair->source));
        SX_TRY(check_rank(in, i, "target", pair->target));
        if (i > 0 && pair->source <= pair[-1].source) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: pair %u has source %lld behind %lld; sources ascend", in->name, i,
                           (long long)pair->source, (long long)pair[-1].source);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (pairs->pair[k].target == pair->target) {
                return SX_FAIL(in->cx, SX_INPUT, "%s: pairs %u and %u have target %lld", in->name,
                               k, i, (long long)pair->target);
            }
        }
    }
    return SX_OK;
}

sx_code sx_infer_collective(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    if (attr->along.len == 0 || attr->along.len > SX_NAME_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: along of %zu bytes, 1 to %d", in->name,
                       attr->along.len, SX_NAME_MAX);
    }
    if (attr->ranks < 1 || attr->ranks > SX_MESH_DEVICES_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %lld ranks, 1 to %lld", in->name,
                       (long long)attr->ranks, (long long)SX_MESH_DEVICES_MAX);
    }
    if (in->op == SX_OP_AXIS_INDEX) {
        *in->result = (sx_type){.dtype = SX_I64};
        return SX_OK;
    }
    SX_ASSERT(in->input_count == 1);
    sx_type type = in->input[0];
    if ((attr->present & SX_A(reducer)) != 0) {
        SX_TRY(sx_check_reducer(in, type.dtype, false));
    }
    if ((attr->present & SX_A(axis)) != 0) {
        SX_TRY(sx_check_axis(in, type.rank));
    }
    if (in->op == SX_OP_ALL_TO_ALL && (attr->split < 0 || attr->split >= (int64_t)type.rank)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: split %lld of a tensor of rank %u", in->name,
                       (long long)attr->split, type.rank);
    }
    switch ((int)in->op) {
    case SX_OP_ALL_REDUCE: break;
    case SX_OP_ALL_GATHER: SX_TRY(join(in, attr->axis, &type)); break;
    case SX_OP_REDUCE_SCATTER: SX_TRY(cut(in, attr->axis, &type)); break;
    case SX_OP_ALL_TO_ALL:
        SX_TRY(cut(in, attr->split, &type));
        SX_TRY(join(in, attr->axis, &type));
        break;
    case SX_OP_PERMUTE: SX_TRY(check_pairs(in)); break;
    default: SX_UNREACHABLE();
    }
    *in->result = type;
    return SX_OK;
}
