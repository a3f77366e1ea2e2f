/* ranks.c - programs that every rank of a mesh runs: their collectives become launches.
 *
 * What ranks exchange are pieces that lie one behind the other in memory. So a collective that joins or cuts another
 * dimension than the first is brought into that form before level 1, which sees the transposes as any others:
 *
 *     all_gather(x) along d       x with a dimension of 1 in front; gathered along it; that brought to d, and merged
 *     reduce_scatter(x) along d   d as n pieces, which are brought to the front; scattered along that
 *     all_to_all(x) from s to d   both: pieces of s brought to the front, pieces of all ranks brought to d
 *
 * Where all dimensions before it are 1, the dimension lies in memory as the first one does. */
#include "core/ir/extent.h"
#include "core/ir/origin.h"
#include "core/ir/plain.h"
#include "core/ir/program.h"
#include "core/ir/shard.h"
#include "core/pipeline.h"

_Static_assert((int)SX_COMBINE_SUM == (int)SX_SUM && (int)SX_COMBINE_PRODUCT == (int)SX_PRODUCT &&
                   (int)SX_COMBINE_MAX == (int)SX_MAX && (int)SX_COMBINE_MIN == (int)SX_MIN &&
                   (int)SX_COMBINE_COUNT == (int)SX_REDUCER_COUNT,
               "ranks combine as reductions do");
_Static_assert(SX_MODULE_AXES_MAX == SX_MESH_AXES_MAX &&
                   SX_MODULE_RANKS_MAX == (uint64_t)SX_MESH_DEVICES_MAX,
               "a module has the meshes that programs have");

/* ---- before level 1: pieces one behind the other ---- */

static bool lies_first(const sx_type *type, int64_t dim)
{
    bool first = true;
    for (int64_t d = 0; d < dim; d++) {
        first = first && sx_dim_equal(type->dim[d], sx_dim_of(1));
    }
    return first;
}

typedef struct {
    sx_ctx *cx;
    sx_graph *to;
    const sx_attr *attr;
} leading;

static sx_code add(const leading *l, sx_op op, const sx_attr *attr, sx_node_id x, sx_node_id *id)
{
    sx_code code = sx_graph_add(l->cx, l->to, op, attr, &x, 1, id);
    return code == SX_LIMIT || code == SX_OK ? code : sx_fail_in(l->cx, "pieces of a collective");
}

static sx_code add_reshape(const leading *l, const sx_type *type, sx_node_id *x)
{
    const sx_attr attr = {.present = SX_A(type), .type = *type};
    return add(l, SX_OP_RESHAPE, &attr, *x, x);
}

/* Dimension `from` of x is taken out and put in at `at`. */
static sx_code add_move(const leading *l, uint32_t from, uint32_t at, sx_node_id *x)
{
    sx_type type = l->to->node[x->i].type;
    sx_attr attr = {.present = SX_A(perm), .perm = {.count = type.rank}};
    uint32_t next = 0;
    for (uint32_t d = 0; d < type.rank; d++) {
        next += next == from ? 1 : 0;
        attr.perm.v[d] = d == at ? (int64_t)from : (int64_t)next++;
    }
    return from == at ? SX_OK : add(l, SX_OP_TRANSPOSE, &attr, *x, x);
}

/* One more dimension, of extent `front`, at `at`; that behind it has the extent `rest` then. */
static sx_type split_type(const sx_type *type, uint32_t at, int64_t front, sx_dim rest)
{
    sx_type split = *type;
    split.rank++;
    for (uint32_t d = type->rank; d > at; d--) {
        split.dim[d] = type->dim[d - 1];
    }
    split.dim[at] = sx_dim_of(front);
    if (at + 1 < split.rank) {
        split.dim[at + 1] = rest;
    }
    return split;
}

/* Dimension d of x as as many pieces as there are ranks, along a new dimension 0. */
static sx_code pieces_first(const leading *l, int64_t d, sx_node_id *x)
{
    sx_type type = l->to->node[x->i].type;
    sx_dim piece;
    bool cut = sx_dim_divide(type.dim[d], sx_dim_of(l->attr->ranks), &piece);
    SX_ASSERT(cut);
    sx_type split = split_type(&type, (uint32_t)d, l->attr->ranks, piece);
    SX_TRY(add_reshape(l, &split, x));
    return add_move(l, (uint32_t)d, 0, x);
}

/* Pieces along dimension 0 of x, joined along d. */
static sx_code pieces_joined(const leading *l, int64_t d, const sx_type *result, sx_node_id *x)
{
    SX_TRY(add_move(l, 0, (uint32_t)d, x));
    return add_reshape(l, result, x);
}

static sx_code lead(const leading *l, sx_op op, const sx_type *result, sx_node_id x, sx_node_id *id)
{
    sx_attr attr = *l->attr;
    sx_type type = l->to->node[x.i].type;
    bool cuts = op == SX_OP_REDUCE_SCATTER || op == SX_OP_ALL_TO_ALL;
    bool joins = op == SX_OP_ALL_GATHER || op == SX_OP_ALL_TO_ALL;
    int64_t *cut = op == SX_OP_ALL_TO_ALL ? &attr.split : &attr.axis;
    bool cut_there = !cuts || lies_first(&type, *cut);
    bool joined_there = !joins || lies_first(&type, attr.axis);
    *id = x;
    if (type.rank == SX_RANK_MAX && !(cut_there && joined_there)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                       "%s of a tensor of rank %u along another dimension "
                       "than the first: no code generator",
                       sx_op_info_of(op)->name, type.rank);
    }
    if ((!cuts && !joins) || (cut_there && joined_there && op != SX_OP_ALL_TO_ALL)) {
        return add(l, op, &attr, x, id);
    }
    if (op == SX_OP_ALL_GATHER) {
        sx_type one = split_type(&type, 0, 1, type.dim[0]);
        SX_TRY(add_reshape(l, &one, id));
    } else {
        SX_TRY(pieces_first(l, *cut, id));
    }
    int64_t along = attr.axis;
    attr.axis = 0;
    if (op == SX_OP_ALL_TO_ALL) {
        attr.split = 0;
    }
    SX_TRY(add(l, op, &attr, *id, id));
    return op == SX_OP_REDUCE_SCATTER ? add_reshape(l, result, id)
                                      : pieces_joined(l, along, result, id);
}

sx_code sx_pipe_lead(sx_ctx *cx, const sx_graph *graph, sx_graph **led)
{
    sx_graph *to;
    uint32_t *image = SX_NEW_ARRAY(cx, uint32_t, (size_t)graph->node_count + 1);
    SX_TRY(image != NULL ? sx_graph_make(cx, graph->name, NULL, &to) : cx->error.code);
    SX_TRY(sx_graph_copy_symbols(cx, graph->symbol, graph->symbol_count, to));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_node_id input[SX_INPUTS_MAX], id;
        sx_attr attr = *sx_graph_attr(graph, node);
        const sx_program **program[SX_ATTR_PROGRAMS_MAX];
        uint32_t count = sx_attr_programs(&attr, program);
        for (uint32_t k = 0; k < count; k++) {
            sx_graph *inner;
            SX_TRY(sx_pipe_lead(cx, (*program[k])->graph, &inner)); /* 8 deep at most */
            SX_TRY(sx_program_make(cx, inner, program[k]));
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k].i = image[sx_graph_input(graph, node, k).i];
        }
        const leading l = {cx, to, &attr};
        bool collective = sx_op_info_of(node->op)->op_class == SX_OPCLASS_COLLECTIVE;
        SX_TRY(collective && node->input_count > 0
                   ? lead(&l, node->op, &node->type, input[0], &id)
                   : sx_graph_add(cx, to, node->op, &attr, input, node->input_count, &id));
        SX_ASSERT(sx_type_equal(&to->node[id.i].type, &node->type));
        image[n] = id.i;
        const sx_origin *origin = sx_origin_find(graph->origins, n);
        if (origin != NULL && sx_origin_find(to->origins, id.i) == NULL) {
            SX_TRY(sx_graph_set_origin(cx, to, id.i, origin));
        }
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id node = {image[graph->output[k].node.i]};
        SX_TRY(sx_graph_add_output(cx, to, graph->output[k].name, node));
    }
    *led = to;
    return SX_OK;
}

/* ---- behind it: launches ---- */

void sx_pipe_put_axes(const sx_graph *graph, sx_image *image)
{
    sx_collective first;
    if (!sx_collective_find(graph, &first)) {
        return; /* what one device computes, all do */
    }
    SX_ASSERT(graph->sharding != NULL);
    for (uint32_t a = 0; a < graph->sharding->axis_count; a++) {
        const sx_mesh_axis *axis = &graph->sharding->axis[a];
        const sx_module_axis record = {sx_module_put_text(&image->strings, axis->name),
                                       (uint64_t)axis->size};
        sx_buf_put(&image->axis, &record, sizeof(record));
    }
}

static sx_module_collective collective_of(sx_op op)
{
    switch ((int)op) {
    case SX_OP_ALL_REDUCE: return SX_COLLECTIVE_ALL_REDUCE;
    case SX_OP_ALL_GATHER: return SX_COLLECTIVE_ALL_GATHER;
    case SX_OP_REDUCE_SCATTER: return SX_COLLECTIVE_REDUCE_SCATTER;
    case SX_OP_ALL_TO_ALL: return SX_COLLECTIVE_ALL_TO_ALL;
    case SX_OP_PERMUTE: return SX_COLLECTIVE_PERMUTE;
    case SX_OP_AXIS_INDEX: return SX_COLLECTIVE_AXIS_INDEX;
    default: SX_UNREACHABLE();
    }
}

/* The result is of each run, never of the prologue: ranks bind weights when they like. */
sx_code sx_pipe_collective(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor)
{
    const sx_graph *graph = pipe->graph;
    const sx_node *node = sx_graph_node(graph, id);
    const sx_attr *attr = sx_graph_attr(graph, node);
    sx_image *image = pipe->image;
    uint32_t result;
    SX_TRY(sx_pipe_result(cx, pipe, id, output_tensor, &result));
    pipe->tensor_of[id.i] =
        result; /* also where it is refused: what else is not supported is told, too */
    if (pipe->steady != NULL) {
        return sx_pipe_unsteady(cx, pipe, "of a collective", "its pieces follow the symbol");
    }
    if (pipe->machine->arch != SX_ARCH_X86_64) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "node %%%u: no code generator for %s", id.i,
                       sx_op_info_of(node->op)->name);
    }
    if (sx_type_is_empty(&node->type)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "node %%%u: %s of a tensor without elements", id.i,
                       sx_op_info_of(node->op)->name);
    }
    sx_module_launch made = {.kind = SX_LAUNCH_COLLECTIVE,
                             .kernel = SX_MODULE_NONE,
                             .arg_first = (uint32_t)(image->arg.len / sizeof(uint32_t)),
                             .arg_count = node->input_count + 1,
                             .value = collective_of(node->op),
                             .name = sx_module_put_text(&image->strings, attr->along)};
    if (node->input_count > 0) {
        uint32_t from = pipe->tensor_of[sx_graph_input(graph, node, 0).i];
        sx_buf_put(&image->arg, &from, sizeof(from));
        sx_pipe_use_tensor(pipe, from);
    }
    sx_buf_put(&image->arg, &result, sizeof(result));
    sx_pipe_use_tensor(pipe, result);
    if (node->op == SX_OP_ALL_REDUCE || node->op == SX_OP_REDUCE_SCATTER) {
        made.combine = (uint32_t)attr->reducer;
    }
    if (node->op == SX_OP_PERMUTE) {
        made.pair_first = (uint32_t)(image->pair.len / sizeof(sx_module_pair));
        made.pair_count = attr->pairs.count;
        for (uint32_t k = 0; k < attr->pairs.count; k++) {
            const sx_rank_pair *pair = &attr->pairs.pair[k];
            const sx_module_pair record = {(uint32_t)pair->source, (uint32_t)pair->target};
            sx_buf_put(&image->pair, &record, sizeof(record));
        }
    }
    sx_buf_put(&image->launch, &made, sizeof(made));
    pipe->launch_count++;
    return sx_buf_check(cx, &image->launch, "launches");
}
