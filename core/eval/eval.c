#include "core/eval/cell.h"
#include "core/ir/program.h"

#include <string.h>

/* One node being evaluated: the inputs have their values, the result its memory. */
typedef struct {
    sx_ctx *cx;
    sx_op op;
    const sx_attr *attr;
    sx_eval_mode mode;
    const sx_tensor *input;
    uint32_t input_count;
    const sx_type *type;
    sx_tensor *result;
    sx_cell *cell; /* of the result */
    int64_t elements;
} eval;

static const sx_cell *cells_of(const eval *e, uint32_t k)
{
    return e->input[k].data;
}

static void static_strides(const sx_type *type, int64_t stride[SX_RANK_MAX])
{
    int64_t step = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        stride[d] = step;
        step *= type->dim[d].scale;
    }
}

/* The next index in row-major order. */
static void advance(const sx_type *type, int64_t index[SX_RANK_MAX])
{
    for (uint32_t d = type->rank; d-- > 0;) {
        if (++index[d] < type->dim[d].scale) {
            return;
        }
        index[d] = 0;
    }
}

static int64_t flat_of(uint32_t rank, const int64_t index[SX_RANK_MAX],
                       const int64_t stride[SX_RANK_MAX])
{
    int64_t at = 0;
    for (uint32_t d = 0; d < rank; d++) {
        at += index[d] * stride[d];
    }
    return at;
}

/* ---- leaves ---- */
static sx_code eval_constant(const eval *e)
{
    sx_dtype dtype = e->type->dtype;
    bool fills = e->attr->data.len == sx_dtype_bytes(dtype);
    sx_cell first = sx_cell_load(e->mode, dtype, e->attr->data.ptr, 0);
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = fills ? first : sx_cell_load(e->mode, dtype, e->attr->data.ptr, k);
    }
    return SX_OK;
}

static sx_code eval_iota(const eval *e)
{
    int64_t index[SX_RANK_MAX] = {0};
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = sx_cell_of_int(e->mode, e->type->dtype, index[e->attr->axis]);
        advance(e->type, index);
    }
    return SX_OK;
}

/* ---- element by element ---- */
static sx_code eval_elementwise(const eval *e)
{
    uint32_t from = e->op == SX_OP_SELECT ? 1 : 0;
    sx_scalar_op op = {e->op, e->op == SX_OP_COMPARE ? e->attr->direction : SX_EQ,
                       e->input[from].type.dtype, e->type->dtype};
    const sx_cell *x = cells_of(e, 0);
    const sx_cell *y = e->input_count > 1 ? cells_of(e, 1) : x;
    const sx_cell *z = e->input_count > 2 ? cells_of(e, 2) : x;
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = sx_cell_apply(e->mode, &op, x[k], y[k], z[k]);
    }
    return SX_OK;
}

/* ---- views: each result index is read at offset + index . step ---- */
static void copy_strided(const eval *e, int64_t offset, const int64_t step[SX_RANK_MAX])
{
    int64_t index[SX_RANK_MAX] = {0};
    const sx_cell *from = cells_of(e, 0);
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = from[offset + flat_of(e->type->rank, index, step)];
        advance(e->type, index);
    }
}

static sx_code eval_view(const eval *e)
{
    const sx_type *source = &e->input[0].type;
    int64_t stride[SX_RANK_MAX] = {0};
    int64_t step[SX_RANK_MAX] = {0};
    int64_t offset = 0;
    static_strides(source, stride);
    if (e->op == SX_OP_RESHAPE) {
        memcpy(e->cell, cells_of(e, 0), (size_t)e->elements * sizeof(sx_cell));
        return SX_OK;
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        if (e->op == SX_OP_TRANSPOSE) {
            step[d] = stride[e->attr->perm.v[d]];
        } else if (e->op == SX_OP_BROADCAST) {
            step[e->attr->dims.v[d]] = source->dim[d].scale == 1 ? 0 : stride[d];
        } else {
            step[d] = stride[d] * e->attr->stride.v[d];
            offset += stride[d] * e->attr->start.v[d];
        }
    }
    copy_strided(e, offset, step);
    return SX_OK;
}

/* Where it begins counts from the end along attr.dims. */
static sx_code eval_crop(const eval *e)
{
    const sx_type *source = &e->input[0].type;
    int64_t stride[SX_RANK_MAX] = {0}, start[SX_RANK_MAX], offset = 0;
    static_strides(source, stride);
    for (uint32_t d = 0; d < source->rank; d++) {
        start[d] = e->attr->origin.v[d].scale;
    }
    for (uint32_t k = 0; k < e->attr->dims.count; k++) {
        int64_t d = e->attr->dims.v[k];
        start[d] = source->dim[d].scale - start[d] - e->type->dim[d].scale;
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        offset += start[d] * stride[d];
    }
    copy_strided(e, offset, stride);
    return SX_OK;
}

/* As rows: all dimensions before the axis, and blocks of everything from the axis on. */
static sx_code eval_concatenate(const eval *e)
{
    int64_t rows = 1;
    int64_t inner = 1;
    for (uint32_t d = 0; d < e->type->rank; d++) {
        if (d < (uint32_t)e->attr->axis) {
            rows *= e->type->dim[d].scale;
        } else if (d > (uint32_t)e->attr->axis) {
            inner *= e->type->dim[d].scale;
        }
    }
    sx_cell *to = e->cell;
    for (int64_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < e->input_count; k++) {
            int64_t block = e->input[k].type.dim[e->attr->axis].scale * inner;
            memcpy(to, cells_of(e, k) + row * block, (size_t)block * sizeof(sx_cell));
            to += block;
        }
    }
    return SX_OK;
}

static sx_code eval_gather(const eval *e)
{
    const sx_type *source = &e->input[0].type;
    uint32_t axis = (uint32_t)e->attr->axis;
    int64_t extent = source->dim[axis].scale;
    int64_t picks = sx_tensor_elements(&e->input[1].type);
    int64_t inner = 1;
    for (uint32_t d = axis + 1; d < source->rank; d++) {
        inner *= source->dim[d].scale;
    }
    const sx_cell *index = cells_of(e, 1);
    for (int64_t k = 0; k < e->elements; k++) {
        sx_cell which = index[k / inner % picks];
        int64_t at = sx_mode_is_exact(e->mode) ? sx_exact_balanced(e->mode, which.u) : which.i;
        at = at < 0 ? at + extent : at;
        at = sx_max_i64(0, sx_min_i64(at, extent - 1));
        int64_t outer = k / inner / picks;
        e->cell[k] = cells_of(e, 0)[(outer * extent + at) * inner + k % inner];
    }
    return SX_OK;
}

/* ---- reductions ---- */
static sx_code eval_reduce(const eval *e)
{
    const sx_type *source = &e->input[0].type;
    sx_dtype dtype = e->type->dtype;
    int64_t kept_stride[SX_RANK_MAX] = {0};
    int64_t step[SX_RANK_MAX] = {0}; // of the result, per dimension of the operand
    uint32_t reduced = 0;
    uint32_t kept = 0;
    static_strides(e->type, kept_stride);
    for (uint32_t k = 0; k < e->attr->dims.count; k++) {
        reduced |= 1u << e->attr->dims.v[k];
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        step[d] = (reduced & 1u << d) != 0 ? 0 : kept_stride[kept++];
    }
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = sx_reduce_open(e->mode, e->attr->reducer, dtype);
    }
    int64_t index[SX_RANK_MAX] = {0};
    int64_t count = sx_tensor_elements(source);
    SX_TRY(sx_spend(e->cx, (uint64_t)count));
    for (int64_t k = 0; k < count; k++) {
        sx_cell *sum = &e->cell[flat_of(source->rank, index, step)];
        *sum = sx_reduce_step(e->mode, e->attr->reducer, dtype, *sum, cells_of(e, 0)[k]);
        advance(source, index);
    }
    for (int64_t k = 0; k < e->elements; k++) {
        e->cell[k] = sx_reduce_close(e->mode, dtype, e->cell[k]);
    }
    return SX_OK;
}

/* Any primitive or fused node but parameter. */
static sx_code eval_primitive(const eval *e)
{
    sx_op_class of = sx_op_info_of(e->op)->op_class;
    if (e->elements == 0 && of != SX_OPCLASS_COLLECTIVE) {
        return SX_OK;
    }
    switch (of) {
    case SX_OPCLASS_LEAF: return e->op == SX_OP_IOTA ? eval_iota(e) : eval_constant(e);
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: return eval_elementwise(e);
    case SX_OPCLASS_VIEW: return eval_view(e);
    case SX_OPCLASS_CONCAT: return eval_concatenate(e);
    case SX_OPCLASS_REDUCE: return eval_reduce(e);
    case SX_OPCLASS_DOT: return sx_eval_dot(e->cx, e->attr, e->mode, e->input, e->type, e->result);
    case SX_OPCLASS_GATHER: return eval_gather(e);
    case SX_OPCLASS_SCATTER: return sx_eval_scatter(e->cx, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_DYNAMIC:
        return e->op == SX_OP_DYNAMIC_SLICE
                   ? sx_eval_dynamic_slice(e->cx, e->attr, e->mode, e->input, e->result)
                   : sx_eval_dynamic_update(e->cx, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_SORT: return sx_eval_sort(e->cx, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_MOVE:
        return e->op == SX_OP_REVERSE ? sx_eval_reverse(e->cx, e->attr, e->input, e->result)
               : e->op == SX_OP_PAD   ? sx_eval_pad(e->cx, e->attr, e->input, e->result)
                                      : eval_crop(e);
    case SX_OPCLASS_WINDOW: return sx_eval_window(e->cx, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_CONV: return sx_eval_convolution(e->cx, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_FUSED:
        return sx_eval_fused(e->cx, e->attr, e->mode, e->input, e->input_count, e->type, e->result);
    case SX_OPCLASS_COLLECTIVE:
        return sx_eval_alone(e->cx, e->op, e->attr, e->mode, e->input, e->result);
    case SX_OPCLASS_COMPOSITE:
    case SX_OPCLASS_REGION: break;
    }
    SX_UNREACHABLE();
}

/* ---- arguments ---- */
static sx_code bad_value(sx_ctx *cx, const sx_type *type, uint32_t k, int64_t at, double value)
{
    return SX_FAIL(cx, SX_INPUT, "parameter %u: element %lld is %g, no value of %s in this mode", k,
                   (long long)at, value, sx_dtype_name(type->dtype));
}

/* The argument with every float rounded to its type; integers, bools and residues are refused when out of
 * range. The memory of the caller is used where nothing changes. */
sx_code sx_eval_take(sx_ctx *cx, sx_eval_mode mode, uint32_t k, const sx_tensor *argument,
                     sx_tensor *taken)
{
    const sx_type *type = &argument->type;
    const sx_cell *cell = argument->data;
    sx_dtype_class of = sx_dtype_class_of(type->dtype);
    int64_t elements = sx_tensor_elements(type);
    int64_t wrong = -1;
    SX_TRY(sx_spend(cx, (uint64_t)elements));
    *taken = *argument;
    for (int64_t i = 0; i < elements && wrong < 0; i++) {
        if (of == SX_CLASS_BOOL) {
            wrong = cell[i].i == 0 || cell[i].i == 1 ? -1 : i;
        } else if (mode == SX_EVAL_MODP) {
            wrong = cell[i].u < SX_MODULUS ? -1 : i;
        } else if (mode == SX_EVAL_FIELDS) {
            wrong = sx_pair_check(cell[i].u) ? -1 : i;
        } else if (of == SX_CLASS_INT) {
            wrong = sx_cell_of_int(mode, type->dtype, cell[i].i).i == cell[i].i ? -1 : i;
        } else {
            sx_cell rounded = sx_cell_of(mode, type->dtype, cell[i].f);
            wrong = rounded.u == cell[i].u || cell[i].f != cell[i].f ? -1 : i;
        }
    }
    if (wrong < 0) {
        return SX_OK;
    }
    if (of != SX_CLASS_FLOAT || sx_mode_is_exact(mode)) {
        return bad_value(cx, type, k, wrong, (double)cell[wrong].i);
    }
    SX_TRY(sx_tensor_make(cx, type, taken));
    for (int64_t i = 0; i < elements; i++) {
        ((sx_cell *)taken->data)[i] = sx_cell_of(mode, type->dtype, cell[i].f);
    }
    return SX_OK;
}

/* ---- memory: a tensor's cells are used again after its last reader ---- */
#define FREE_MAX 64
typedef struct {
    uint32_t *last_use; /* [node] the last node that reads it; UINT32_MAX: an output */
    sx_tensor *value;   /* [node] */
    bool *owned;        /* [node] memory of ours */
    uint32_t free_count;
    sx_tensor free[FREE_MAX];
} pool;

static sx_code make_pool(sx_ctx *cx, const sx_graph *graph, pool *p)
{
    p->last_use = SX_NEW_ARRAY(cx, uint32_t, graph->node_count);
    p->value = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count);
    p->owned = SX_NEW_ARRAY(cx, bool, graph->node_count);
    if (p->last_use == NULL || p->value == NULL || p->owned == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        p->last_use[n] = n;
        for (uint32_t k = 0; k < graph->node[n].input_count; k++) {
            p->last_use[sx_graph_input(graph, &graph->node[n], k).i] = n;
        }
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        p->last_use[graph->output[k].node.i] = UINT32_MAX;
    }
    return SX_OK;
}

/* The smallest free tensor that is large enough, or a new one. */
static sx_code take_memory(sx_ctx *cx, pool *p, const sx_type *type, sx_tensor *tensor)
{
    int64_t elements = sx_tensor_elements(type);
    uint32_t best = FREE_MAX;
    int64_t best_elements = INT64_MAX;
    for (uint32_t k = 0; k < p->free_count; k++) {
        int64_t have = sx_tensor_elements(&p->free[k].type);
        if (have >= elements && have < best_elements && have / 2 <= elements) {
            best = k;
            best_elements = have;
        }
    }
    if (best == FREE_MAX) {
        return sx_tensor_make(cx, type, tensor);
    }
    SX_TRY(sx_spend(cx, (uint64_t)elements));
    *tensor = (sx_tensor){*type, p->free[best].data};
    p->free[best] = p->free[--p->free_count];
    return SX_OK;
}

static void give_memory(pool *p, const sx_graph *graph, uint32_t n)
{
    const sx_node *node = &graph->node[n];
    for (uint32_t k = 0; k <= node->input_count; k++) {
        uint32_t of = k < node->input_count ? sx_graph_input(graph, node, k).i : n;
        if (p->last_use[of] == n && p->owned[of] && p->free_count < FREE_MAX) {
            p->owned[of] = false;
            p->free[p->free_count++] = p->value[of];
        }
    }
}

/* ---- graphs ---- */

/* Is node m the same computation as node n, of which it is another result? */
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

/* All results of the region of node n that nodes of the graph ask for, in one go. */
static sx_code eval_siblings(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode, pool *p,
                             uint32_t n)
{
    const sx_node *node = &graph->node[n];
    sx_tensor input[SX_INPUTS_MAX];
    sx_tensor result[SX_PROGRAM_RESULTS_MAX];
    uint32_t owner[SX_PROGRAM_RESULTS_MAX];
    uint64_t wanted = 0;
    SX_ASSERT(node->input_count <= SX_INPUTS_MAX && p->value[n].data == NULL);
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k] = p->value[sx_graph_input(graph, node, k).i];
    }
    for (uint32_t m = n; m < graph->node_count; m++) {
        if (m > n && !is_sibling(graph, n, m)) {
            continue;
        }
        int64_t which = sx_graph_attr(graph, &graph->node[m])->result;
        SX_ASSERT(which >= 0 && which < SX_PROGRAM_RESULTS_MAX);
        if ((wanted >> which & 1) == 0) {
            SX_TRY(take_memory(cx, p, &graph->node[m].type, &result[which]));
            p->owned[m] = true;
            owner[which] = m;
            wanted |= UINT64_C(1) << which;
        } else { /* two nodes have it: its memory is not used again */
            p->owned[owner[which]] = false;
        }
        p->value[m] = result[which];
    }
    return sx_eval_region(cx, node->op, sx_graph_attr(graph, node), mode, input, node->input_count,
                          wanted, result);
}

static sx_code eval_graph_node(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode, pool *p,
                               uint32_t n)
{
    const sx_node *node = &graph->node[n];
    if (sx_op_info_of(node->op)->op_class == SX_OPCLASS_REGION) {
        if (p->value[n].data == NULL) {
            SX_TRY(eval_siblings(cx, graph, mode, p, n));
        }
        give_memory(p, graph, n);
        return SX_OK;
    }
    sx_tensor input[SX_INPUTS_MAX];
    SX_ASSERT(node->input_count <= SX_INPUTS_MAX);
    for (uint32_t k = 0; k < node->input_count; k++) {
        input[k] = p->value[sx_graph_input(graph, node, k).i];
    }
    SX_TRY(take_memory(cx, p, &node->type, &p->value[n]));
    p->owned[n] = true;
    eval e = {.cx = cx,
              .op = node->op,
              .attr = sx_graph_attr(graph, node),
              .mode = mode,
              .input = input,
              .input_count = node->input_count,
              .type = &node->type,
              .result = &p->value[n],
              .cell = p->value[n].data,
              .elements = sx_tensor_elements(&node->type)};
    SX_TRY(eval_primitive(&e));
    give_memory(p, graph, n);
    return SX_OK;
}

static sx_code check_static(sx_ctx *cx, const sx_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (!sx_type_is_static(&graph->node[n].type)) {
            return SX_FAIL(cx, SX_INPUT, "node %u: a symbolic dimension has no value", n);
        }
    }
    return SX_OK;
}

/* `inner`: the arguments are values of a surrounding evaluation, taken as they are. */
static sx_code eval_graph(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode, bool inner,
                          const sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                          uint32_t result_count)
{
    if (result_count != graph->output_count) {
        return SX_FAIL(cx, SX_INPUT, "graph: %u results asked, it has %u", result_count,
                       graph->output_count);
    }
    pool p = {0};
    SX_TRY(check_static(cx, graph));
    SX_TRY(sx_graph_expand(cx, graph, &graph));
    SX_TRY(make_pool(cx, graph, &p));
    uint32_t taken = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        if (node->op != SX_OP_PARAMETER) {
            SX_TRY(eval_graph_node(cx, graph, mode, &p, n));
            continue;
        }
        if (taken == argument_count || !sx_type_equal(&argument[taken].type, &node->type)) {
            return SX_FAIL(cx, SX_INPUT, "parameter %u: %s", taken,
                           taken == argument_count ? "no argument" : "the argument's type differs");
        }
        if (inner) {
            p.value[n] = argument[taken];
        } else {
            SX_TRY(sx_eval_take(cx, mode, taken, &argument[taken], &p.value[n]));
        }
        taken++;
    }
    if (taken != argument_count) {
        return SX_FAIL(cx, SX_INPUT, "graph: %u arguments for %u parameters", argument_count,
                       taken);
    }
    for (uint32_t k = 0; k < result_count; k++) {
        result[k] = p.value[graph->output[k].node.i];
    }
    return SX_OK;
}

sx_code sx_graph_eval(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode,
                      const sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                      uint32_t result_count)
{
    return eval_graph(cx, graph, mode, false, argument, argument_count, result, result_count);
}

sx_code sx_eval_inside(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode,
                       const sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                       uint32_t result_count)
{
    return eval_graph(cx, graph, mode, true, argument, argument_count, result, result_count);
}

/* ---- one node ---- */
static sx_code eval_composite(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                              const sx_tensor *input, uint32_t input_count, sx_tensor *result)
{
    sx_graph *graph;
    sx_node_id node[5];
    sx_node_id made;
    static const char *const name[5] = {"a", "b", "c", "d", "e"};
    SX_ASSERT(input_count <= 5);
    SX_TRY(sx_graph_make(cx, SX_SPAN_LITERAL("composite"), NULL, &graph));
    for (uint32_t k = 0; k < input_count; k++) {
        SX_TRY(sx_build_parameter(cx, graph, name[k], false, &input[k].type, &node[k]));
    }
    SX_TRY(sx_decompose(cx, graph, op, attr, node, input_count, &made));
    SX_TRY(sx_graph_add_output(cx, graph, SX_SPAN_LITERAL("result"), made));
    return eval_graph(cx, graph, mode, true, input, input_count, result, 1);
}

sx_code sx_node_eval(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                     const sx_tensor *input, uint32_t input_count, const sx_type *type,
                     sx_tensor *result)
{
    sx_type given[SX_INPUTS_MAX];
    sx_type inferred;
    if (input_count > SX_INPUTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%s: %u inputs, at most %d", sx_op_info_of(op)->name,
                       input_count, SX_INPUTS_MAX);
    }
    for (uint32_t k = 0; k < input_count; k++) {
        given[k] = input[k].type;
    }
    SX_TRY(sx_infer_type(cx, NULL, 0, op, attr, given, input_count, &inferred));
    if (!sx_type_equal(&inferred, type) || op == SX_OP_PARAMETER) {
        return SX_FAIL(cx, SX_INPUT, "%s: %s", sx_op_info_of(op)->name,
                       op == SX_OP_PARAMETER ? "has no value" : "the result's type differs");
    }
    if (sx_op_is_composite(op)) {
        return eval_composite(cx, op, attr, mode, input, input_count, result);
    }
    SX_TRY(sx_tensor_make(cx, type, result));
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_REGION) {
        sx_tensor all[SX_PROGRAM_RESULTS_MAX];
        SX_ASSERT(attr->result < SX_PROGRAM_RESULTS_MAX);
        all[attr->result] = *result;
        return sx_eval_region(cx, op, attr, mode, input, input_count, UINT64_C(1) << attr->result,
                              all);
    }
    eval e = {.cx = cx,
              .op = op,
              .attr = attr,
              .mode = mode,
              .input = input,
              .input_count = input_count,
              .type = type,
              .result = result,
              .cell = result->data,
              .elements = sx_tensor_elements(type)};
    return eval_primitive(&e);
}
