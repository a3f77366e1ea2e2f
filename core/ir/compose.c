#include "core/ir/compose.h"

#include <math.h>

#include "core/ir/fused.h"
#include "core/ir/sort.h"

bool sx_op_is_composite(sx_op op)
{
    switch ((int)op) {
    case SX_OP_RELU:
    case SX_OP_GELU:
    case SX_OP_GELU_TANH:
    case SX_OP_SILU:
    case SX_OP_SOFTMAX:
    case SX_OP_LOG_SOFTMAX:
    case SX_OP_LAYER_NORM:
    case SX_OP_RMS_NORM:
    case SX_OP_BATCH_NORM:
    case SX_OP_ATTENTION:
    case SX_OP_ONLINE_DOT: return true;
    }
    return false;
}

/* ---- recipes ----
 * Every step is a statement of its own: the order of instructions must not hang on the order in which a
 * compiler evaluates arguments. */
/* A recipe in progress: after the first failure every step is a no-op and `code` tells why. */
typedef struct {
    const sx_emitter *emitter;
    sx_dtype dtype; /* of the computation */
    sx_code code;
} recipe;

static uint32_t constant(recipe *r, double value)
{
    uint32_t handle = 0;
    if (r->code == SX_OK) {
        r->code = r->emitter->constant(r->emitter->self, r->dtype, value, &handle);
    }
    return handle;
}

static uint32_t unary(recipe *r, sx_op op, uint32_t a)
{
    uint32_t handle = 0;
    if (r->code == SX_OK) {
        r->code = r->emitter->apply(r->emitter->self, op, r->dtype, &a, 1, &handle);
    }
    return handle;
}

static uint32_t binary(recipe *r, sx_op op, uint32_t a, uint32_t b)
{
    uint32_t operand[2] = {a, b};
    uint32_t handle = 0;
    if (r->code == SX_OK) {
        r->code = r->emitter->apply(r->emitter->self, op, r->dtype, operand, 2, &handle);
    }
    return handle;
}

static uint32_t reduce(recipe *r, sx_reducer reducer, uint32_t a)
{
    uint32_t handle = 0;
    if (r->code == SX_OK) {
        r->code = r->emitter->reduce(r->emitter->self, reducer, r->dtype, a, &handle);
    }
    return handle;
}

static uint32_t convert(recipe *r, sx_dtype from, sx_dtype to, uint32_t a)
{
    uint32_t handle = a;
    if (r->code == SX_OK && from != to) {
        r->code = r->emitter->apply(r->emitter->self, SX_OP_CONVERT, to, &a, 1, &handle);
    }
    return handle;
}

static uint32_t times(recipe *r, uint32_t a, double factor)
{
    uint32_t value = constant(r, factor);
    return binary(r, SX_OP_MULTIPLY, a, value);
}

static uint32_t gelu(recipe *r, uint32_t x)
{
    uint32_t half = times(r, x, 0.5);
    uint32_t erf_part = unary(r, SX_OP_ERF, times(r, x, 0.70710678118654752440));
    uint32_t one = constant(r, 1);
    return binary(r, SX_OP_MULTIPLY, half, binary(r, SX_OP_ADD, erf_part, one));
}

static uint32_t gelu_tanh(recipe *r, uint32_t x)
{
    uint32_t cube = binary(r, SX_OP_MULTIPLY, binary(r, SX_OP_MULTIPLY, x, x), x);
    uint32_t part = times(r, cube, 0.044715);
    uint32_t inner = binary(r, SX_OP_ADD, x, part);
    uint32_t bent = unary(r, SX_OP_TANH, times(r, inner, 0.79788456080286535588)); // sqrt(2/pi)
    uint32_t half = times(r, x, 0.5);
    uint32_t one = constant(r, 1);
    return binary(r, SX_OP_MULTIPLY, half, binary(r, SX_OP_ADD, bent, one));
}

static uint32_t softmax(recipe *r, uint32_t x)
{
    uint32_t shifted = binary(r, SX_OP_SUBTRACT, x, reduce(r, SX_MAX, x));
    uint32_t power = unary(r, SX_OP_EXP, shifted);
    return binary(r, SX_OP_DIVIDE, power, reduce(r, SX_SUM, power));
}

static uint32_t log_softmax(recipe *r, uint32_t x)
{
    uint32_t shifted = binary(r, SX_OP_SUBTRACT, x, reduce(r, SX_MAX, x));
    uint32_t sum = reduce(r, SX_SUM, unary(r, SX_OP_EXP, shifted));
    return binary(r, SX_OP_SUBTRACT, shifted, unary(r, SX_OP_LOG, sum));
}

static uint32_t mean(recipe *r, uint32_t x, double count)
{
    uint32_t sum = reduce(r, SX_SUM, x);
    uint32_t divisor = constant(r, count);
    return binary(r, SX_OP_DIVIDE, sum, divisor);
}

/* 1 / sqrt(mean(x^2) + eps) */
static uint32_t inverse_root(recipe *r, uint32_t x, double count, double eps)
{
    uint32_t square = mean(r, binary(r, SX_OP_MULTIPLY, x, x), count);
    uint32_t small = constant(r, eps);
    return unary(r, SX_OP_RSQRT, binary(r, SX_OP_ADD, square, small));
}

static uint32_t layer_norm(recipe *r, const uint32_t x[3], double count, double eps)
{
    uint32_t centred = binary(r, SX_OP_SUBTRACT, x[0], mean(r, x[0], count));
    uint32_t unit = binary(r, SX_OP_MULTIPLY, centred, inverse_root(r, centred, count, eps));
    return binary(r, SX_OP_ADD, binary(r, SX_OP_MULTIPLY, unit, x[1]), x[2]);
}

static uint32_t rms_norm(recipe *r, const uint32_t x[2], double count, double eps)
{
    uint32_t unit = binary(r, SX_OP_MULTIPLY, x[0], inverse_root(r, x[0], count, eps));
    return binary(r, SX_OP_MULTIPLY, unit, x[1]);
}

/* The factor of a channel first: it follows from weights alone. */
static uint32_t batch_norm(recipe *r, const uint32_t x[SX_COMPOSE_INPUTS_MAX], double eps)
{
    uint32_t small = constant(r, eps);
    uint32_t root = unary(r, SX_OP_RSQRT, binary(r, SX_OP_ADD, x[4], small));
    uint32_t factor = binary(r, SX_OP_MULTIPLY, x[1], root);
    uint32_t centred = binary(r, SX_OP_SUBTRACT, x[0], x[3]);
    return binary(r, SX_OP_ADD, binary(r, SX_OP_MULTIPLY, centred, factor), x[2]);
}

uint32_t sx_compose_axes(sx_op op, const sx_attr *attr, const sx_type *input)
{
    uint32_t rank = input[0].rank;
    if (attr->axis < 0 || attr->axis >= rank) {
        return 0;
    }
    uint32_t axis = (uint32_t)attr->axis;
    if (op == SX_OP_SOFTMAX || op == SX_OP_LOG_SOFTMAX) {
        return 1u << axis;
    }
    if (op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM) {
        return ((1u << rank) - 1) & ~((1u << axis) - 1);
    }
    return 0;
}

/* Elements of one normalised row: a number in the recipe, so it must be known. */
static sx_code row_elements(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                            double *count)
{
    int64_t product = 1;
    for (uint32_t d = (uint32_t)attr->axis; d < input[0].rank; d++) {
        if (!sx_dim_is_constant(input[0].dim[d])) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "%s: dimension %u is symbolic",
                           sx_op_info_of(op)->name, d);
        }
        if (!sx_mul_i64(product, input[0].dim[d].scale, &product) || product > SX_ELEMENTS_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "%s: a row has more than %lld elements",
                           sx_op_info_of(op)->name, (long long)SX_ELEMENTS_MAX);
        }
    }
    *count = (double)product;
    return SX_OK;
}

sx_code sx_compose(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                   uint32_t input_count, const uint32_t *handle, const sx_emitter *emitter,
                   uint32_t *result)
{
    SX_ASSERT(sx_op_is_composite(op) && op != SX_OP_ATTENTION && op != SX_OP_ONLINE_DOT);
    SX_ASSERT(input_count >= 1 && input_count <= SX_COMPOSE_INPUTS_MAX);
    sx_dtype dtype = input[0].dtype;
    bool is_narrow = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT && sx_dtype_bytes(dtype) < 4;
    recipe r = {.emitter = emitter, .dtype = is_narrow && op != SX_OP_RELU ? SX_F32 : dtype};
    double count = 0;
    if (op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM) {
        SX_TRY(row_elements(cx, op, attr, input, &count));
    }
    uint32_t x[SX_COMPOSE_INPUTS_MAX] = {0};
    for (uint32_t k = 0; k < input_count; k++) {
        x[k] = convert(&r, input[k].dtype, r.dtype, handle[k]);
    }
    uint32_t made = 0;
    switch ((int)op) {
    case SX_OP_RELU:
        made = constant(&r, 0);
        made = binary(&r, SX_OP_MAXIMUM, made, x[0]);
        break;
    case SX_OP_GELU: made = gelu(&r, x[0]); break;
    case SX_OP_GELU_TANH: made = gelu_tanh(&r, x[0]); break;
    case SX_OP_SILU:
        made = binary(&r, SX_OP_MULTIPLY, x[0], unary(&r, SX_OP_LOGISTIC, x[0]));
        break;
    case SX_OP_SOFTMAX: made = softmax(&r, x[0]); break;
    case SX_OP_LOG_SOFTMAX: made = log_softmax(&r, x[0]); break;
    case SX_OP_LAYER_NORM: made = layer_norm(&r, x, count, attr->eps); break;
    case SX_OP_RMS_NORM: made = rms_norm(&r, x, count, attr->eps); break;
    case SX_OP_BATCH_NORM: made = batch_norm(&r, x, attr->eps); break;
    }
    *result = convert(&r, r.dtype, dtype, made);
    return r.code;
}

/* ---- as graph nodes ---- */
/* A handle is an index into `value`. Shapes: the whole shape, or the shape without the reduced axes; constants
 * get the shape of what they meet. */
typedef enum { VALUE_FULL, VALUE_REDUCED, VALUE_CONSTANT } value_shape;
typedef struct {
    value_shape shape;
    sx_node_id node;
    sx_dtype dtype;
    double constant;
} value;
#define VALUES_MAX 64
typedef struct {
    sx_ctx *cx;
    sx_graph *graph;
    sx_type full;
    sx_type reduced;
    sx_ints axes; /* reduced dimensions */
    sx_ints kept; /* the others */
    uint32_t count;
    value value[VALUES_MAX];
} nodes;

static uint32_t keep(nodes *n, value v)
{
    SX_ASSERT(n->count < VALUES_MAX);
    n->value[n->count] = v;
    return n->count++;
}

static sx_code node_constant(void *self, sx_dtype dtype, double constant_value, uint32_t *handle)
{
    *handle = keep(self, (value){VALUE_CONSTANT, {0}, dtype, constant_value});
    return SX_OK;
}

/* The node that holds `v` in the wanted shape. */
static sx_code in_shape(nodes *n, const value *v, value_shape wanted, sx_node_id *node)
{
    sx_type type = wanted == VALUE_FULL ? n->full : n->reduced;
    type.dtype = v->dtype;
    if (v->shape == VALUE_CONSTANT) {
        return sx_build_scalar(n->cx, n->graph, &type, v->constant, node);
    }
    if (v->shape == wanted) {
        *node = v->node;
        return SX_OK;
    }
    SX_ASSERT(v->shape == VALUE_REDUCED && wanted == VALUE_FULL);
    return sx_build_broadcast(n->cx, n->graph, v->node, &n->kept, &type, node);
}

static sx_code node_apply(void *self, sx_op op, sx_dtype dtype, const uint32_t *operand,
                          uint32_t count, uint32_t *handle)
{
    nodes *n = self;
    value_shape shape = VALUE_REDUCED;
    for (uint32_t k = 0; k < count; k++) {
        shape = n->value[operand[k]].shape == VALUE_FULL ? VALUE_FULL : shape;
    }
    sx_node_id input[3] = {{0}, {0}, {0}};
    for (uint32_t k = 0; k < count; k++) {
        SX_TRY(in_shape(n, &n->value[operand[k]], shape, &input[k]));
    }
    sx_attr attr = {0};
    if (op == SX_OP_CONVERT) {
        attr.present = SX_A(type);
        attr.type = shape == VALUE_FULL ? n->full : n->reduced;
        attr.type.dtype = dtype;
    }
    sx_node_id node;
    SX_TRY(sx_graph_add(n->cx, n->graph, op, &attr, input, count, &node));
    *handle = keep(n, (value){shape, node, dtype, 0});
    return SX_OK;
}

static sx_code node_reduce(void *self, sx_reducer reducer, sx_dtype dtype, uint32_t operand,
                           uint32_t *handle)
{
    nodes *n = self;
    sx_node_id input;
    sx_node_id node;
    SX_TRY(in_shape(n, &n->value[operand], VALUE_FULL, &input));
    SX_TRY(sx_build_reduce(n->cx, n->graph, reducer, input, &n->axes, &node));
    *handle = keep(n, (value){VALUE_REDUCED, node, dtype, 0});
    return SX_OK;
}

static void split_dims(nodes *n, uint32_t axes)
{
    n->reduced = (sx_type){.dtype = n->full.dtype};
    for (uint32_t d = 0; d < n->full.rank; d++) {
        if ((axes & 1u << d) != 0) {
            n->axes.v[n->axes.count++] = d;
        } else {
            n->kept.v[n->kept.count++] = d;
            n->reduced.dim[n->reduced.rank++] = n->full.dim[d];
        }
    }
}

/* Scale and bias [dimensions axis and later], repeated over the dimensions before. */
static sx_code repeat_rows(sx_ctx *cx, sx_graph *graph, const sx_type *full, sx_node_id *node)
{
    const sx_type own = sx_graph_node(graph, *node)->type;
    if (sx_type_same_shape(&own, full)) {
        return SX_OK;
    }
    sx_ints dims = {.count = own.rank};
    sx_type type = *full;
    type.dtype = own.dtype;
    SX_ASSERT(own.rank <= full->rank);
    for (uint32_t d = 0; d < own.rank; d++) {
        dims.v[d] = full->rank - own.rank + d;
    }
    return sx_build_broadcast(cx, graph, *node, &dims, &type, node);
}

static sx_code decompose_recipe(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                                const sx_node_id *input, uint32_t input_count, sx_node_id *result)
{
    nodes *n = SX_NEW(cx, nodes);
    if (n == NULL) {
        return cx->error.code;
    }
    sx_type type[SX_COMPOSE_INPUTS_MAX];
    uint32_t handle[SX_COMPOSE_INPUTS_MAX];
    SX_ASSERT(input_count >= 1 && input_count <= SX_COMPOSE_INPUTS_MAX);
    n->cx = cx;
    n->graph = graph;
    n->full = sx_graph_node(graph, input[0])->type;
    for (uint32_t k = 0; k < input_count; k++) {
        sx_node_id node = input[k];
        bool per_channel = op == SX_OP_BATCH_NORM && k > 0;
        if (!per_channel) {
            SX_TRY(repeat_rows(cx, graph, &n->full, &node));
        }
        type[k] = sx_graph_node(graph, node)->type;
        value_shape shape = per_channel ? VALUE_REDUCED : VALUE_FULL;
        handle[k] = keep(n, (value){shape, node, type[k].dtype, 0});
    }
    /* values of a channel are those that all other dimensions share */
    split_dims(n, op == SX_OP_BATCH_NORM ? ((1u << n->full.rank) - 1) & ~(1u << attr->axis)
                                         : sx_compose_axes(op, attr, type));
    sx_emitter emitter = {n, node_constant, node_apply, node_reduce};
    uint32_t made;
    SX_TRY(sx_compose(cx, op, attr, type, input_count, handle, &emitter, &made));
    return in_shape(n, &n->value[made], VALUE_FULL, result);
}

/* ---- attention ---- */
static sx_code add_dot(sx_ctx *cx, sx_graph *graph, sx_node_id a, sx_node_id b, uint32_t batch,
                       uint32_t a_contract, uint32_t b_contract, sx_node_id *result)
{
    sx_attr attr = {.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs};
    attr.lhs_batch.count = batch;
    attr.rhs_batch.count = batch;
    for (uint32_t d = 0; d < batch; d++) {
        attr.lhs_batch.v[d] = d;
        attr.rhs_batch.v[d] = d;
    }
    attr.lhs_contract = (sx_ints){1, {a_contract}};
    attr.rhs_contract = (sx_ints){1, {b_contract}};
    sx_node_id input[2] = {a, b};
    return sx_graph_add(cx, graph, SX_OP_DOT_GENERAL, &attr, input, 2, result);
}

static sx_code to_dtype(sx_ctx *cx, sx_graph *graph, sx_dtype dtype, sx_node_id *node)
{
    sx_attr attr = {.present = SX_A(type), .type = sx_graph_node(graph, *node)->type};
    if (attr.type.dtype == dtype) {
        return SX_OK;
    }
    attr.type.dtype = dtype;
    sx_node_id input = *node;
    return sx_graph_add(cx, graph, SX_OP_CONVERT, &attr, &input, 1, node);
}

static sx_code decompose_attention(sx_ctx *cx, sx_graph *graph, const sx_attr *attr,
                                   const sx_node_id *input, uint32_t input_count,
                                   sx_node_id *result)
{
    sx_node_id x[4] = {{0}, {0}, {0}, {0}};
    sx_dtype dtype = sx_graph_node(graph, input[0])->type.dtype;
    sx_dtype wide = sx_dtype_bytes(dtype) < 4 ? SX_F32 : dtype;
    uint32_t rank = sx_graph_node(graph, input[0])->type.rank;
    SX_ASSERT(input_count >= 3 && input_count <= 4 && rank >= 2);
    for (uint32_t k = 0; k < input_count; k++) {
        x[k] = input[k];
        SX_TRY(to_dtype(cx, graph, wide, &x[k]));
    }
    sx_node_id scores;
    sx_node_id scale;
    SX_TRY(add_dot(cx, graph, x[0], x[1], rank - 2, rank - 1, rank - 1, &scores));
    const sx_type type = sx_graph_node(graph, scores)->type;
    SX_TRY(sx_build_scalar(cx, graph, &type, attr->scale, &scale));
    SX_TRY(sx_build_binary(cx, graph, SX_OP_MULTIPLY, scores, scale, &scores));
    if (input_count == 4) {
        SX_TRY(repeat_rows(cx, graph, &type, &x[3]));
        SX_TRY(sx_build_binary(cx, graph, SX_OP_ADD, scores, x[3], &scores));
    }
    sx_attr along = {.present = SX_A(axis), .axis = rank - 1};
    sx_node_id weights;
    SX_TRY(decompose_recipe(cx, graph, SX_OP_SOFTMAX, &along, &scores, 1, &weights));
    SX_TRY(add_dot(cx, graph, weights, x[2], rank - 2, rank - 1, rank - 2, result));
    return to_dtype(cx, graph, dtype, result);
}

/* ---- online_dot ---- */
/* `list` without the dimensions of the contraction, in the order of the result: batch first, then free ascending. */
static sx_ints kept_dims(const sx_attr *attr, uint32_t rank)
{
    sx_ints kept = attr->lhs_batch;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < attr->lhs_batch.count; i++) {
        taken |= 1u << attr->lhs_batch.v[i];
    }
    for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
        taken |= 1u << attr->lhs_contract.v[i];
    }
    for (uint32_t d = 0; d < rank; d++) {
        if ((taken >> d & 1) == 0) {
            kept.v[kept.count++] = d;
        }
    }
    return kept;
}

static sx_ints ascending_contract(const sx_attr *attr, uint32_t rank)
{
    sx_ints dims = {0};
    for (uint32_t d = 0; d < rank; d++) {
        for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
            if (attr->lhs_contract.v[i] == d) {
                dims.v[dims.count++] = d;
            }
        }
    }
    return dims;
}

/* `row`, which has the kept dimensions of x in ascending order, in the order of the result. */
static sx_code order_rows(sx_ctx *cx, sx_graph *graph, const sx_attr *attr, uint32_t rank,
                          sx_node_id *row)
{
    sx_ints kept = kept_dims(attr, rank);
    sx_ints perm = {.count = kept.count};
    bool identity = true;
    for (uint32_t i = 0; i < kept.count; i++) {
        for (uint32_t j = 0; j < kept.count; j++) {
            perm.v[i] += kept.v[j] < kept.v[i] ? 1 : 0;
        }
        identity = identity && perm.v[i] == i;
    }
    return identity ? SX_OK : sx_build_transpose(cx, graph, *row, &perm, row);
}

static sx_code decompose_online(sx_ctx *cx, sx_graph *graph, const sx_attr *attr,
                                const sx_node_id *input, uint32_t input_count, sx_node_id *result)
{
    const sx_type type = sx_graph_node(graph, input[0])->type;
    sx_ints dims = ascending_contract(attr, type.rank);
    sx_attr kept = *attr;
    kept.lhs_batch.count = 0;
    sx_ints back = kept_dims(&kept, type.rank);
    sx_node_id max, weight, sum = {0};
    SX_TRY(sx_build_reduce(cx, graph, SX_MAX, input[0], &dims, &max));
    SX_TRY(sx_build_broadcast(cx, graph, max, &back, &type, &weight));
    SX_TRY(sx_build_binary(cx, graph, SX_OP_SUBTRACT, input[0], weight, &weight));
    SX_TRY(sx_build_unary(cx, graph, SX_OP_EXP, weight, &weight));
    if (input_count == 1 || attr->form == 1) {
        SX_TRY(sx_build_reduce(cx, graph, SX_SUM, weight, &dims, &sum));
    }
    if (attr->form == 2) {
        SX_TRY(sx_build_unary(cx, graph, SX_OP_LOG, sum, &sum));
        SX_TRY(sx_build_binary(cx, graph, SX_OP_ADD, sum, max, &sum));
    }
    if (input_count == 1 || attr->form == 1) {
        SX_TRY(order_rows(cx, graph, attr, type.rank, &sum));
    }
    if (input_count == 1) {
        *result = sum;
        return SX_OK;
    }
    sx_attr dot = *attr;
    dot.present = sx_op_info_of(SX_OP_DOT_GENERAL)->attrs;
    dot.form = 0;
    sx_node_id operand[2] = {weight, input[1]};
    SX_TRY(sx_graph_add(cx, graph, SX_OP_DOT_GENERAL, &dot, operand, 2, result));
    if (attr->form == 1) {
        const sx_type whole = sx_graph_node(graph, *result)->type;
        sx_ints rows = {.count = sx_graph_node(graph, sum)->type.rank};
        for (uint32_t d = 0; d < rows.count; d++) {
            rows.v[d] = d;
        }
        SX_TRY(sx_build_broadcast(cx, graph, sum, &rows, &whole, &sum));
        SX_TRY(sx_build_binary(cx, graph, SX_OP_DIVIDE, *result, sum, result));
    }
    return SX_OK;
}

sx_code sx_decompose(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                     const sx_node_id *input, uint32_t input_count, sx_node_id *result)
{
    if (!sx_op_is_composite(op) && op != SX_OP_SORT) {
        return SX_FAIL(cx, SX_INPUT, "%s: not a composite", sx_op_info_of(op)->name);
    }
    const sx_op_info *info = sx_op_info_of(op);
    if (input_count < info->input_min || input_count > info->input_max) {
        return SX_FAIL(cx, SX_INPUT, "%s: %u inputs, from %u to %u", info->name, input_count,
                       info->input_min, info->input_max);
    }
    sx_type type[SX_COMPOSE_INPUTS_MAX];
    for (uint32_t k = 0; k < input_count; k++) {
        type[k] = sx_graph_node(graph, input[k])->type;
    }
    sx_type checked;
    SX_TRY(sx_infer_type(cx, graph->symbol, graph->symbol_count, op, attr, type, input_count,
                         &checked));
    if (op == SX_OP_SORT) {
        return sx_sort_decompose(cx, graph, attr, input[0], result);
    }
    if (op == SX_OP_ATTENTION) {
        return decompose_attention(cx, graph, attr, input, input_count, result);
    }
    if (op == SX_OP_ONLINE_DOT) {
        return decompose_online(cx, graph, attr, input, input_count, result);
    }
    return decompose_recipe(cx, graph, op, attr, input, input_count, result);
}

sx_code sx_graph_expand(sx_ctx *cx, const sx_graph *graph, const sx_graph **expanded)
{
    bool any = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        any = any || sx_op_is_composite(graph->node[n].op);
    }
    *expanded = graph;
    if (!any) {
        return SX_OK;
    }
    sx_graph *made;
    SX_TRY(sx_graph_make(cx, graph->name, NULL, &made));
    sx_node_id *renamed = SX_NEW_ARRAY(cx, sx_node_id, graph->node_count);
    if (renamed == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        const sx_attr *attr = sx_graph_attr(graph, node);
        sx_node_id input[SX_INPUTS_MAX];
        SX_ASSERT(node->input_count <= SX_INPUTS_MAX);
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = renamed[sx_graph_input(graph, node, k).i];
        }
        if (sx_op_is_composite(node->op)) {
            SX_TRY(sx_decompose(cx, made, node->op, attr, input, node->input_count, &renamed[n]));
        } else {
            SX_TRY(sx_graph_add(cx, made, node->op, attr, input, node->input_count, &renamed[n]));
        }
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        sx_node_id node = renamed[graph->output[k].node.i];
        SX_TRY(sx_graph_add_output(cx, made, graph->output[k].name, node));
    }
    *expanded = made;
    return SX_OK;
}
