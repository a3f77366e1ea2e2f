#include "core/cost/cost.h"

#include <math.h>

#define REFERENCE_EXTENT 8

int64_t sx_cost_reference(const sx_symbol *symbol)
{
    SX_ASSERT(symbol->low >= 1 && symbol->low <= symbol->high);
    return sx_min_i64(sx_max_i64(REFERENCE_EXTENT, symbol->low), symbol->high);
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
        value *= (double)sx_cost_reference(&s->symbol[dim.symbol]);
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

/* Instructions per element of an elementwise operation: one vector instruction counts 1; functions count the length of a usual
 * polynomial sequence with its range reduction. */
static double op_weight(sx_op op)
{
    switch ((int)op) {
    case SX_OP_EXP: return 14;
    case SX_OP_LOG: return 18;
    case SX_OP_TANH: return 22;
    case SX_OP_ERF: return 26;
    case SX_OP_LOGISTIC: return 22;
    case SX_OP_SIN:
    case SX_OP_COS: return 24;
    case SX_OP_POWER: return 40;
    case SX_OP_REMAINDER: return 12;
    case SX_OP_DIVIDE:
    case SX_OP_SQRT: return 8;
    case SX_OP_RSQRT: return 12;
    case SX_OP_GELU: return 30;
    case SX_OP_GELU_TANH: return 30;
    case SX_OP_SILU: return 23;
    case SX_OP_SOFTMAX: return 26;
    case SX_OP_LOG_SOFTMAX: return 20;
    case SX_OP_LAYER_NORM: return 10;
    case SX_OP_RMS_NORM: return 6;
    case SX_OP_BATCH_NORM: return 4 + 12;
    default: return 1;
    }
}

/* ---- fused kernels ---- */

/* Distinct elements an access touches: the iteration counts of the dimensions it moves along, at most the whole argument. */
static double touched(const scope *s, const sx_type *space, const sx_access *access,
                      const sx_type *argument)
{
    double product = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        if (access->stride[d].scale != 0) {
            product *= extent(s, space->dim[d]);
        }
    }
    double all = elements(s, argument);
    return product < all ? product : all;
}

/* Is the argument read along its rows? Else a vector load gathers, and lines are fetched in part. */
static bool is_contiguous(const sx_type *space, const sx_access *access)
{
    bool moves = false;
    for (uint32_t d = 0; d < space->rank; d++) {
        if (access->stride[d].scale == 1 && sx_dim_is_constant(access->stride[d])) {
            return true;
        }
        moves = moves || access->stride[d].scale != 0;
    }
    return !moves;
}

/* Which dimensions of the space an instruction's value depends on, as a set; reduced ones are gone after REDUCE and DOT. */
static void find_spread(const sx_body *body, const sx_type *space, uint32_t spread[])
{
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        uint32_t set = 0;
        switch (in->kind) {
        case SX_BODY_ARG:
            for (uint32_t d = 0; d < space->rank; d++) {
                set |= body->access[in->x].stride[d].scale != 0 ? 1u << d : 0;
            }
            break;
        case SX_BODY_IMM: break;
        case SX_BODY_INDEX: set = 1u << in->x; break;
        case SX_BODY_APPLY:
            for (uint32_t k = 0; k < sx_op_info_of(in->op)->input_max; k++) {
                uint32_t operand = k == 0 ? in->x : k == 1 ? in->y : in->z;
                set |= spread[operand];
            }
            break;
        case SX_BODY_REDUCE: set = ((1u << space->rank) - 1) & ~body->axes; break;
        case SX_BODY_DOT:
            set = body->inner == 0 ? ((1u << space->rank) - 1) & ~body->axes
                                   : (spread[in->x] | spread[in->y]) & ~body->inner;
            break;
        case SX_BODY_ONLINE: set = (spread[in->x] | spread[in->y]) & ~body->axes; break;
        }
        spread[i] = set;
    }
}

static double points_of(const scope *s, const sx_type *space, uint32_t set)
{
    double points = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        points *= (set >> d & 1) != 0 ? extent(s, space->dim[d]) : 1;
    }
    return points;
}

/* A weighted sum: for each score a maximum, a power and an addition (once in the program: `first`); a multiply-add for each score
 * and column. */
static double online_flops(const scope *s, const sx_body *body, const sx_type *space,
                           const sx_instr *in, const uint32_t *spread, bool first)
{
    double scores = points_of(s, space, spread[in->x]);
    double flops = first ? scores * (op_weight(SX_OP_EXP) + 2) : 0;
    if (body->instr[in->y].kind == SX_BODY_ARG) {
        flops += 2 * points_of(s, space, spread[in->x] | spread[in->y]);
    }
    return flops;
}

static double fused_flops(const scope *s, const sx_body *body, const sx_type *space)
{
    uint32_t spread[SX_FUSED_INSTRS_MAX];
    find_spread(body, space, spread);
    double flops = 0;
    double all = 1;
    bool is_online = sx_body_kernel_kind(body) == SX_KERNEL_ONLINE;
    bool first = true;
    for (uint32_t d = 0; d < space->rank; d++) {
        all *= extent(s, space->dim[d]);
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_DOT) {
            uint32_t set = spread[in->x] | spread[in->y];
            flops += 2 * (body->inner == 0 ? all : points_of(s, space, set));
        } else if (in->kind == SX_BODY_ONLINE) {
            flops += online_flops(s, body, space, in, spread, first);
            first = false;
        } else if (in->kind == SX_BODY_REDUCE) {
            flops += is_online ? 0 : all;
        } else if (in->kind == SX_BODY_APPLY) {
            flops += points_of(s, space, spread[i]) * op_weight(in->op);
        }
    }
    return flops;
}

/* An online sum runs rows across the lanes: rows that do not fill whole vectors cost as much as if they did. Rows are a kept dimension
 * along which the scores vary, the keys and values do not. */
static double lane_waste(const scope *s, const sx_device *device, const sx_type *space,
                         uint32_t rows)
{
    double longest = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        if ((rows >> d & 1) != 0) {
            longest = fmax(longest, extent(s, space->dim[d]));
        }
    }
    return ceil(longest / device->lanes) * device->lanes / longest;
}

static double fused_waste(const scope *s, const sx_device *device, const sx_body *body,
                          const sx_type *space)
{
    uint32_t spread[SX_FUSED_INSTRS_MAX];
    uint32_t scores = 0, others = 0;
    find_spread(body, space, spread);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_ONLINE) {
            scores = spread[in->x];
            others |= spread[in->y];
        } else if (in->kind == SX_BODY_DOT && body->inner != 0) {
            bool left_is_key = (spread[in->x] & body->axes & ~body->inner) != 0;
            others |= spread[left_is_key ? in->x : in->y];
        }
    }
    return lane_waste(s, device, space, scores & ~body->axes & ~others);
}

#define SCATTERED_READ 1.5 /* bytes fetched per byte used where rows are not read in order */

static void cost_fused(const scope *s, const sx_attr *attr, const sx_type *input,
                       uint32_t input_count, const sx_type *result, sx_cost *cost, double *effort)
{
    const sx_body *body = attr->body;
    SX_ASSERT(body != NULL && body->arg_count == input_count);
    cost->bytes = bytes_of(s, result);
    *effort = cost->bytes;
    for (uint32_t a = 0; a < input_count; a++) {
        double read =
            touched(s, &attr->type, &body->access[a], &input[a]) * sx_dtype_bytes(input[a].dtype);
        cost->bytes += read;
        *effort += is_contiguous(&attr->type, &body->access[a]) ? read : read * SCATTERED_READ;
    }
    cost->flops = fused_flops(s, body, &attr->type);
}

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
    cost->flops = elements(s, x) * (op_weight(SX_OP_EXP) + 2);
    if (input_count == 2) {
        cost->flops += 2 * elements(s, result) * points_of(s, x, contract);
        *waste = lane_waste(s, device, x, rows & ~contract);
    }
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
    cost->flops = scores * (2 * width + op_weight(SX_OP_SOFTMAX) + 2);
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
        bool partial = op == SX_OP_SLICE || (op == SX_OP_GATHER && k == 0);
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
            cost->flops = elements(s, result) * op_weight(op);
        }
        break;
    case SX_OPCLASS_UNARY:
    case SX_OPCLASS_BINARY:
    case SX_OPCLASS_COMPARE:
    case SX_OPCLASS_SELECT:
    case SX_OPCLASS_CONVERT: cost->flops = elements(s, result) * op_weight(op); break;
    case SX_OPCLASS_LEAF:
    case SX_OPCLASS_VIEW:
    case SX_OPCLASS_CONCAT:
    case SX_OPCLASS_GATHER:
    case SX_OPCLASS_MOVE:
    case SX_OPCLASS_FUSED: break;
    }
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
    double effort;
    double waste = 1; /* operations done for one that is useful */
    if (op == SX_OP_FUSED) {
        cost_fused(&s, attr, input, input_count, result, cost, &effort);
        if (sx_body_kernel_kind(attr->body) == SX_KERNEL_ONLINE) {
            waste = fused_waste(&s, device, attr->body, &attr->type);
        }
    } else {
        cost_plain(&s, device, op, attr, input, input_count, result, cost, &waste);
        effort = op == SX_OP_TRANSPOSE ? cost->bytes * SCATTERED_READ : cost->bytes;
    }
    cost->energy_nj = (cost->flops * device->flop_pj + cost->bytes * device->byte_pj) / 1000;
    cost->floor_ns = sx_device_floor_ns(device, cost->flops, cost->bytes);
    if (!isfinite(cost->floor_ns) || cost->floor_ns > 1e18) {
        return SX_FAIL(cx, SX_LIMIT, "%s: would take %g s, at most 1e9 s", sx_op_info_of(op)->name,
                       cost->floor_ns * 1e-9);
    }
    double launches = op == SX_OP_ATTENTION ? ATTENTION_KERNELS : 1;
    cost->cost_ns =
        launches * device->launch_ns + sx_device_floor_ns(device, cost->flops * waste, effort);
    SX_ASSERT(cost->cost_ns >= cost->floor_ns);
    return SX_OK;
}
