#include "core/cost/cost.h"
#include "core/ir/extent.h"
#include "core/ir/program.h"
#include "core/ir/sort.h"
#include "core/kernel/kernel.h"

#include <math.h>

#define REFERENCE_EXTENT 8

int64_t sx_cost_reference(const sx_symbol *symbols, uint32_t symbol)
{
    const sx_symbol *s = &symbols[symbol];
    SX_ASSERT(s->low >= 1 && s->low <= s->high);
    if (sx_symbol_is_declared(s)) {
        return sx_min_i64(sx_max_i64(REFERENCE_EXTENT, s->low), s->high);
    }
    int64_t value[SX_SYMBOLS_MAX];
    for (uint32_t k = 0; k < symbol; k++) {
        value[k] = sx_symbol_is_declared(&symbols[k]) ? sx_cost_reference(symbols, k) : 0;
    }
    return sx_polynomial_value(s->sum, value);
}

typedef struct {
    const sx_symbol *symbol;
    uint32_t count;
} scope;

/* Sizes are doubles: eight extents of 2^40 do not overflow one. */
static double extent(const scope *s, sx_dim dim)
{
    double value = (double)dim.scale;
    if (!sx_dim_is_constant(dim)) {
        SX_ASSERT(dim.symbol < s->count);
        value *= (double)sx_cost_reference(s->symbol, dim.symbol);
    }
    return value;
}

static double elements(const scope *s, const sx_type *type)
{
    double product = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        product *= extent(s, type->dim[d]);
    }
    return product;
}

static double bytes_of(const scope *s, const sx_type *type)
{
    return elements(s, type) * sx_dtype_bytes(type->dtype);
}

double sx_cost_bytes(const sx_symbol *symbols, uint32_t symbol_count, const sx_type *type)
{
    scope s = {symbols, symbol_count};
    return bytes_of(&s, type);
}

/* ---- fused kernels ---- */

/* An online sum runs rows across the lanes: rows that do not fill whole vectors cost as much as if they did. */
static double lane_waste(const sx_device *device, double rows)
{
    return ceil(rows / device->lanes) * device->lanes / rows;
}

static sx_code cost_fused(sx_ctx *cx, const scope *s, const sx_device *device, const sx_attr *attr,
                          const sx_type *input, uint32_t input_count, const sx_type *result,
                          sx_cost *cost, double *effort, double *waste)
{
    int64_t value[SX_SYMBOLS_MAX];
    sx_analysis a;
    SX_ASSERT(s->count <= SX_SYMBOLS_MAX);
    for (uint32_t k = 0; k < s->count; k++) {
        value[k] = sx_cost_reference(s->symbol, k);
    }
    SX_TRY(sx_analysis_of_checked(cx, attr, input, input_count, result, value, &a));
    cost->arithmetic = a.arithmetic;
    cost->flops = a.work;
    cost->bytes = a.bytes;
    *effort = a.effort;
    if (a.kind == SX_KERNEL_ONLINE) {
        *waste = lane_waste(device, a.row == SX_NO_DIM ? 1 : (double)a.view.extent[a.row]);
    }
    return SX_OK;
}

#define SCATTERED_READ 1.5 /* bytes fetched per byte used where rows are not read in order */

/* ---- primitives and composites, each as a kernel of its own ---- */

static double dot_flops(const scope *s, const sx_attr *attr, const sx_type *left,
                        const sx_type *result)
{
    double contracted = 1;
    for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
        contracted *= extent(s, left->dim[attr->lhs_contract.v[i]]);
    }
    return 2 * contracted * elements(s, result);
}

/* online_dot as a kernel of its own. */
static void cost_online(const scope *s, const sx_device *device, const sx_attr *attr,
                        const sx_type *input, uint32_t input_count, const sx_type *result,
                        sx_cost *cost, double *waste)
{
    const sx_type *x = &input[0];
    uint32_t rows = (1u << x->rank) - 1;
    uint32_t contract = 0;
    for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
        contract |= 1u << attr->lhs_contract.v[i];
    }
    for (uint32_t i = 0; i < attr->lhs_batch.count; i++) {
        rows &= ~(1u << attr->lhs_batch.v[i]);
    }
    cost->flops = elements(s, x) * (sx_op_weight(SX_OP_EXP) + 2);
    if (input_count == 2) {
        double pairs = 2 * elements(s, result);
        for (uint32_t i = 0; i < attr->lhs_contract.count; i++) {
            pairs *= extent(s, x->dim[attr->lhs_contract.v[i]]);
        }
        cost->flops += pairs;
        double longest = 1;
        for (uint32_t d = 0; d < x->rank; d++) {
            bool row = (rows & ~contract) >> d & 1;
            longest = row ? fmax(longest, extent(s, x->dim[d])) : longest;
        }
        *waste = lane_waste(device, longest);
    }
}

/* Every row of x meets every index, or each is looked at once. */
static double scatter_flops(const scope *s, const sx_device *device, const sx_attr *attr,
                            const sx_type *input)
{
    const double rows = extent(s, input[0].dim[attr->axis]);
    const double picks = elements(s, &input[1]);
    double row = 1;
    for (uint32_t d = (uint32_t)attr->axis + 1; d < input[0].rank; d++) {
        row *= extent(s, input[0].dim[d]);
    }
    bool threads = device->block_threads != 0;
    if (sx_scatter_is_linear((int64_t)rows, (int64_t)row, (int64_t)picks, threads)) {
        return elements(s, &input[0]) + elements(s, &input[2]);
    }
    return elements(s, &input[0]) * picks;
}

/* A kernel of its own compares pairs; else each element meets each other one, or each place all elements. */
static double sort_flops(const scope *s, const sx_device *device, const sx_attr *attr,
                         const sx_type *input, const sx_type *result)
{
    const double n = extent(s, input[0].dim[attr->axis]);
    if (sx_sort_is_network(attr, &input[0])) {
        const int64_t lanes = device->block_threads != 0 ? 32 : device->lanes;
        double pairs = sx_sort_comparisons((int64_t)n, result->dim[attr->axis].scale, lanes);
        return elements(s, &input[0]) / n * pairs * SX_SORT_PAIR_FLOPS;
    }
    return elements(s, &input[0]) *
           (sx_sort_takes_turns(attr, &input[0]) ? (double)attr->count : n);
}

#define ATTENTION_KERNELS 3 /* scores, softmax, weighted sum */

static void cost_attention(const scope *s, const sx_type *input, uint32_t input_count,
                           const sx_type *result, sx_cost *cost)
{
    SX_ASSERT(input_count >= 3);
    const sx_type *q = &input[0];
    const sx_type *k = &input[1];
    double rows = elements(s, q) / extent(s, q->dim[q->rank - 1]);
    double keys = extent(s, k->dim[k->rank - 2]);
    double width = extent(s, q->dim[q->rank - 1]) + extent(s, result->dim[result->rank - 1]);
    double scores = rows * keys;
    cost->flops = scores * (2 * width + sx_op_weight(SX_OP_SOFTMAX) + 2);
    cost->bytes +=
        4 * scores * sx_dtype_bytes(q->dtype); // written and read twice between its three kernels
}

static void cost_plain(const scope *s, const sx_device *device, sx_op op, const sx_attr *attr,
                       const sx_type *input, uint32_t input_count, const sx_type *result,
                       sx_cost *cost, double *waste)
{
    const sx_op_info *info = sx_op_info_of(op);
    cost->bytes = bytes_of(s, result);
    for (uint32_t k = 0; k < input_count; k++) {
        double read = bytes_of(s, &input[k]);
        bool partial = op == SX_OP_SLICE || op == SX_OP_CROP ||
                       (k == 0 && (op == SX_OP_GATHER || op == SX_OP_DYNAMIC_SLICE));
        cost->bytes += partial ? fmin(read, bytes_of(s, result)) : read;
    }
    switch (info->op_class) {
    case SX_OPCLASS_DOT: cost->flops = dot_flops(s, attr, &input[0], result); break;
    case SX_OPCLASS_REDUCE: cost->flops = elements(s, &input[0]); break;
    case SX_OPCLASS_WINDOW:
        cost->flops = elements(s, result);
        for (uint32_t d = 0; d < attr->window.count; d++) {
            cost->flops *= (double)attr->window.v[d];
        }
        break;
    case SX_OPCLASS_CONV:
        cost->flops = 2 * elements(s, result) * elements(s, &input[1]) / extent(s, input[1].dim[0]);
        break;
    case SX_OPCLASS_COMPOSITE:
        if (op == SX_OP_ATTENTION) {
            cost_attention(s, input, input_count, result, cost);
        } else if (op == SX_OP_ONLINE_DOT) {
            cost_online(s, device, attr, input, input_count, result, cost, waste);
        } else {
            cost->flops = elements(s, result) * sx_op_weight(op);
        }
        break;
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: cost->flops = elements(s, result) * sx_op_weight(op); break;
    case SX_OPCLASS_SCATTER: cost->flops = scatter_flops(s, device, attr, input); break;
    case SX_OPCLASS_SORT: cost->flops = sort_flops(s, device, attr, input, result); break;
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_DYNAMIC:
    case SX_OPCLASS_MOVE:
    case SX_OPCLASS_REGION:
    case SX_OPCLASS_COLLECTIVE:
    case SX_OPCLASS_FUSED: break;
    }
}

/* May a unit that multiplies matrices compute it? */
static bool is_contraction(sx_op op, const sx_attr *attr)
{
    if (op == SX_OP_FUSED) {
        sx_kernel_kind kind = sx_body_kernel_kind(attr->body);
        return kind == SX_KERNEL_DOT || kind == SX_KERNEL_ONLINE || kind == SX_KERNEL_NESTED;
    }
    sx_op_class c = sx_op_info_of(op)->op_class;
    return c == SX_OPCLASS_DOT || c == SX_OPCLASS_CONV || op == SX_OP_ATTENTION ||
           op == SX_OP_ONLINE_DOT;
}

/* Operations that compute with floats and choose by truth values or integers are operations of floats. */
static sx_dtype arithmetic_of(const sx_type *input, uint32_t input_count, const sx_type *result)
{
    sx_dtype found = result->dtype;
    for (uint32_t k = 0; k < input_count; k++) {
        bool wider = sx_dtype_class_of(input[k].dtype) == SX_CLASS_FLOAT &&
                     sx_dtype_class_of(found) != SX_CLASS_FLOAT;
        found = wider || found == SX_BOOL ? input[k].dtype : found;
    }
    return found;
}

/* ---- programs inside ---- */

/* Adds `rounds` times what a program takes. */
static sx_code add_program(sx_ctx *cx, const sx_device *device, const scope *s,
                           const sx_program *program, double rounds, sx_cost *sum)
{
    const sx_graph *graph = program->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        sx_type input[SX_INPUTS_MAX];
        sx_cost one;
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = sx_graph_node(graph, sx_graph_input(graph, node, k))->type;
        }
        SX_TRY(sx_cost_node(cx, device, s->symbol, s->count, node->op, sx_graph_attr(graph, node),
                            input, node->input_count, &node->type, &one));
        sum->flops += rounds * one.flops;
        sum->bytes += rounds * one.bytes;
        sum->energy_nj += rounds * one.energy_nj;
        sum->floor_ns += rounds * one.floor_ns;
        sum->cost_ns += rounds * one.cost_ns;
    }
    return SX_OK;
}

/* A round has the price of its program; of two branches it is the dearer one. A node is one result of several that are
 * computed at once, so it pays its share of them. */
static sx_code cost_region(sx_ctx *cx, const sx_device *device, const scope *s, sx_op op,
                           const sx_attr *attr, const sx_type *input, const sx_type *result,
                           sx_cost *cost)
{
    double share = 1.0 / sx_region_result_count(op, attr);
    SX_ASSERT(share > 0);
    cost->arithmetic = result->dtype;
    if (op == SX_OP_COND) {
        sx_cost other = *cost;
        SX_TRY(add_program(cx, device, s, attr->then, share, cost));
        SX_TRY(add_program(cx, device, s, attr->otherwise, share, &other));
        *cost = other.cost_ns > cost->cost_ns ? other : *cost;
        return SX_OK;
    }
    double rounds = SX_COST_ROUNDS;
    if (op == SX_OP_SCAN) {
        rounds = extent(s, input[attr->carried].dim[0]);
    } else {
        SX_TRY(add_program(cx, device, s, attr->condition, rounds * share, cost));
    }
    return add_program(cx, device, s, attr->step, rounds * share, cost);
}

sx_code sx_cost_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                     uint32_t symbol_count, sx_op op, const sx_attr *attr, const sx_type *input,
                     uint32_t input_count, const sx_type *result, sx_cost *cost)
{
    *cost = (sx_cost){0};
    scope s = {symbols, symbol_count};
    if (op == SX_OP_PARAMETER || op == SX_OP_CONSTANT || op == SX_OP_RESHAPE) {
        return SX_OK;
    }
    if (sx_op_info_of(op)->op_class == SX_OPCLASS_REGION) {
        return cost_region(cx, device, &s, op, attr, input, result, cost);
    }
    double effort;
    double waste = 1; /* operations done for one that is useful */
    if (op == SX_OP_FUSED) {
        SX_TRY(cost_fused(cx, &s, device, attr, input, input_count, result, cost, &effort, &waste));
    } else {
        cost_plain(&s, device, op, attr, input, input_count, result, cost, &waste);
        cost->arithmetic = arithmetic_of(input, input_count, result);
        effort = op == SX_OP_TRANSPOSE ? cost->bytes * SCATTERED_READ : cost->bytes;
    }
    bool matrix = is_contraction(op, attr);
    cost->energy_nj = (cost->flops * device->flop_pj + cost->bytes * device->byte_pj) / 1000;
    cost->floor_ns = sx_device_floor_ns(device, cost->arithmetic, matrix, cost->flops, cost->bytes);
    if (!isfinite(cost->floor_ns) || cost->floor_ns > 1e18) {
        return SX_FAIL(cx, SX_LIMIT, "%s: would take %g s, at most 1e9 s", sx_op_info_of(op)->name,
                       cost->floor_ns * 1e-9);
    }
    double launches = op == SX_OP_ATTENTION ? ATTENTION_KERNELS : 1;
    cost->cost_ns =
        launches * device->launch_ns +
        sx_device_floor_ns(device, cost->arithmetic, matrix, cost->flops * waste, effort);
    SX_ASSERT(cost->cost_ns >= cost->floor_ns);
    return SX_OK;
}
