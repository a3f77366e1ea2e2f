/* instances.h - random well-typed programs that a pattern matches: from the wanted type of the root down to parameters.
 *
 * Attributes are drawn so that types fit; names met again must fit the type they have, else the attempt is
 * given up. Names that stand for numbers in the rules (c, s, n, k, eps) become constants. */
#ifndef SX_TESTS_CORE_RULES_INSTANCES_H
#define SX_TESTS_CORE_RULES_INSTANCES_H
#include <string.h>

#include "core/base/rng.h"
#include <math.h>
#include <stdio.h>

#include "core/egraph/pattern.h"
#include "core/rules/rules.h"
#include "core/ir/num.h"

#define GIVE_UP SX_LIMIT
#define PARTS_MAX 4u /* operands whose types are drawn one by one */

typedef struct {
    sx_ctx *cx;
    sx_rng *rng;
    sx_graph *graph;
    const sx_pattern *pattern;
    bool bound[SX_PATTERN_NAMES_MAX];
    sx_node_id name[SX_PATTERN_NAMES_MAX];
    bool attr_known[SX_PATTERN_NAMES_MAX];
    sx_attr attr[SX_PATTERN_NAMES_MAX];
    sx_type attr_input[SX_PATTERN_NAMES_MAX][PARTS_MAX];
    double reduced; /* elements of the last reduction */
    uint32_t axes;  /* dimensions the last broadcast added; 0: none yet */
    bool first_max; /* the first reduction is a maximum */
    bool any_reducer;
    bool masked;
    bool narrow; /* the outer conversion gives narrow_dtype, what is inside is f32 */
    sx_dtype narrow_dtype;
    bool any_float; /* element types: floats, no others */
    bool real;      /* f32 and f64, no others */
    bool reciprocal_count;
    /* sums weighted by a softmax: inner reductions are maxima over what the outermost one
     * contracts */
    bool online;
    sx_ints contract; /* of the last contraction or online_dot, in its first operand */
    bool symbolic;    /* extents may be stand-ins of symbols (rule_symbols.h) */
    bool far;         /* the names c and s are powers of two far from 1 */
    bool gelu;        /* s is the argument of erf or tanh made of the first name */
    sx_op bend;
    uint32_t parameters;
} generator;

static inline sx_code generate(generator *g, uint32_t part, const sx_type *type, sx_node_id *id);

static inline uint32_t draw(generator *g, uint32_t bound)
{
    return (uint32_t)sx_rng_below(g->rng, bound);
}

/* Extents that stand for a symbol each. */
static const int64_t stand_ins[] = {11, 13};

static inline int64_t draw_extent(generator *g)
{
    static const int64_t extents[] = {1, 2, 3, 4, 5, 7};
    if (g->symbolic && draw(g, 2) == 0) {
        return stand_ins[draw(g, SX_COUNT(stand_ins))];
    }
    return extents[draw(g, SX_COUNT(extents))];
}

/* The extent of an image: its batch, its height or its width. */
static inline sx_dim draw_image(generator *g)
{
    bool symbol = g->symbolic && draw(g, 2) == 0;
    return sx_dim_of(symbol ? stand_ins[draw(g, SX_COUNT(stand_ins))] : 1 + (int64_t)draw(g, 3));
}

static inline sx_dtype draw_dtype(generator *g)
{
    static const sx_dtype dtypes[] = {SX_F32,  SX_F32, SX_F32, SX_F64, SX_I32, SX_I32, SX_BOOL,
                                      SX_BF16, SX_F16, SX_I8,  SX_U8,  SX_I64, SX_I16};
    static const sx_dtype floats[] = {SX_F32, SX_F64, SX_BF16, SX_F16};
    if (g->narrow) {
        return g->narrow_dtype;
    }
    return g->any_float || g->real ? floats[draw(g, g->real ? 2 : 4)]
                                   : dtypes[draw(g, SX_COUNT(dtypes))];
}

static inline sx_type draw_type(generator *g, uint32_t rank_max)
{
    sx_type type = {.dtype = draw_dtype(g)};
    type.rank = draw(g, rank_max + 1);
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = sx_dim_of(draw_extent(g));
    }
    return type;
}

static inline sx_code fresh_parameter(generator *g, const sx_type *type, sx_node_id *id)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "p%u", g->parameters++);
    return sx_build_parameter(g->cx, g->graph, name, draw(g, 2) == 0, type, id);
}

static inline bool name_is(const generator *g, uint32_t name, const char *text)
{
    return sx_span_is(g->pattern->name[name], text);
}

static inline sx_code scaled_by(generator *g, sx_op op, sx_node_id x, double value, sx_node_id *id)
{
    sx_node_id constant;
    sx_type type = sx_graph_node(g->graph, x)->type;
    if (sx_dtype_class_of(type.dtype) != SX_CLASS_FLOAT) {
        return GIVE_UP;
    }
    SX_TRY(sx_build_scalar(g->cx, g->graph, &type, sx_num_round(type.dtype, value), &constant));
    return sx_build_binary(g->cx, g->graph, op, x, constant, id);
}

/* What erf or tanh gets in gelu, over the name x (number 0), spelled in one of several ways. */
static inline sx_code gelu_argument(generator *g, sx_node_id *id)
{
    sx_node_id x = g->name[0];
    if (g->bend == SX_OP_ERF) {
        return draw(g, 2) == 0 ? scaled_by(g, SX_OP_DIVIDE, x, 1.41421356237309504880, id)
                               : scaled_by(g, SX_OP_MULTIPLY, x, 0.70710678118654752440, id);
    }
    sx_node_id square;
    sx_node_id cube;
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, x, x, &square));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_MULTIPLY, square, x, &cube));
    SX_TRY(scaled_by(g, SX_OP_MULTIPLY, cube, 0.044715, &cube));
    SX_TRY(sx_build_binary(g->cx, g->graph, SX_OP_ADD, x, cube, &cube));
    return scaled_by(g, SX_OP_MULTIPLY, cube, 0.79788456080286535588, id);
}

/* Numbers that rules about bits, clamps and known places look for. */
static inline double draw_known(generator *g, sx_dtype dtype)
{
    static const double whole[] = {0, 1, 2, 4, 8, 3, 7};
    uint32_t pick = draw(g, SX_COUNT(whole) + 1);
    if (dtype == SX_BOOL) {
        return draw(g, 2);
    }
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        return (double)draw(g, 17) / 2 - 4;
    }
    double all = sx_num_int_min(dtype) < 0 ? -1 : (double)sx_num_int_max(dtype);
    return pick < SX_COUNT(whole) ? whole[pick] : all;
}

/* A power of two, of either sign, that is not between 1/16 and 16. */
static inline double draw_far(generator *g, sx_dtype dtype)
{
    static const int bits[] = {5, 6, 8, 20, 32, 48, 64, 80, 100, 120};
    int size = bits[draw(g, sx_dtype_bytes(dtype) < 4 ? 2 : SX_COUNT(bits))];
    double value = ldexp(1, draw(g, 2) == 0 ? size : -size);
    return draw(g, 2) == 0 ? value : -value;
}

static inline sx_code generate_name(generator *g, uint32_t name, const sx_type *type,
                                    sx_node_id *id)
{
    if (g->bound[name]) {
        *id = g->name[name];
        return sx_type_equal(&sx_graph_node(g->graph, *id)->type, type) ? SX_OK : GIVE_UP;
    }
    double value = 0;
    bool is_number = true;
    bool known = false;
    if (name_is(g, name, "n") || name_is(g, name, "k")) {
        value = g->reduced;
    } else if (name_is(g, name, "c") && g->reciprocal_count) {
        value = g->reduced > 0 ? sx_num_round(SX_F32, 1 / g->reduced) : 0;
    } else if (name_is(g, name, "s") && g->gelu) {
        SX_TRY(gelu_argument(g, id));
        g->bound[name] = true;
        g->name[name] = *id;
        return SX_OK;
    } else if (name_is(g, name, "m") || name_is(g, name, "o")) {
        value = draw_known(g, type->dtype);
        known = true;
    } else if (g->far && (name_is(g, name, "c") || name_is(g, name, "s")) &&
               sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
        value = draw_far(g, type->dtype);
    } else if (name_is(g, name, "c") || name_is(g, name, "s")) {
        value = (double)draw(g, 9) - 4 + (type->dtype == SX_F32 ? 0.5 : 0);
    } else if (name_is(g, name, "low") || name_is(g, name, "high")) { /* of a mask */
        g->masked = name_is(g, name, "low") ? draw(g, 2) == 0 : !g->masked;
        value = g->masked ? -HUGE_VAL : 0;
    } else if (name_is(g, name, "eps")) {
        value = sx_num_round(SX_F32, 1e-5);
    } else {
        is_number = false;
    }
    bool is_float = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    if (is_number && !known && (type->dtype == SX_BOOL || (!is_float && value != floor(value)))) {
        return GIVE_UP;
    }
    if (is_number) {
        SX_TRY(sx_build_scalar(g->cx, g->graph, type, value, id));
    } else {
        SX_TRY(fresh_parameter(g, type, id));
    }
    g->bound[name] = true;
    g->name[name] = *id;
    return SX_OK;
}

/* ---- attributes by operation: from the result's type to the operand's ---- */

static inline sx_code before_reshape(generator *g, const sx_type *type, sx_attr *attr,
                                     sx_type *input)
{
    attr->present = SX_A(type);
    attr->type = *type;
    *input = *type;
    uint32_t at = type->rank > 0 ? draw(g, type->rank) : 0;
    switch (draw(g, 4)) {
    case 0: /* the operand has one more extent of 1 */
    case 1: /* or splits a dimension */
        if (type->rank >= 4) {
            return GIVE_UP;
        }
        memmove(&input->dim[at + 1], &input->dim[at], (type->rank - at) * sizeof(sx_dim));
        input->dim[at] = sx_dim_of(1);
        input->rank++;
        if (type->rank > 0 && draw(g, 2) == 0) {
            for (int64_t f = 2; f < 8; f++) {
                if (type->dim[at].scale % f == 0) {
                    input->dim[at] = sx_dim_of(f);
                    input->dim[at + 1] = sx_dim_of(type->dim[at].scale / f);
                    break;
                }
            }
        }
        return SX_OK;
    case 2: /* the operand merges two */
        if (at + 1 >= type->rank) {
            return GIVE_UP;
        }
        input->dim[at] = sx_dim_of(type->dim[at].scale * type->dim[at + 1].scale);
        memmove(&input->dim[at + 1], &input->dim[at + 2], (type->rank - at - 2) * sizeof(sx_dim));
        input->rank--;
        return SX_OK;
    default: return SX_OK;
    }
}

static inline sx_code before_transpose(generator *g, const sx_type *type, sx_attr *attr,
                                       sx_type *input)
{
    attr->present = SX_A(perm);
    attr->perm.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        uint32_t k = draw(g, d + 1);
        attr->perm.v[d] = attr->perm.v[k];
        attr->perm.v[k] = d;
    }
    *input = *type;
    for (uint32_t d = 0; d < type->rank; d++) {
        input->dim[attr->perm.v[d]] = type->dim[d];
    }
    return SX_OK;
}

static inline sx_code before_broadcast(generator *g, const sx_pattern_part *child,
                                       const sx_type *type, sx_attr *attr, sx_type *input)
{
    attr->present = SX_A(dims) | SX_A(type);
    attr->type = *type;
    *input = (sx_type){.dtype = type->dtype};
    uint32_t added = g->axes != 0 && draw(g, 4) != 0 ? g->axes : draw(g, 1u << type->rank);
    if (draw(g, 2) == 0 && g->axes == 0 && type->rank > 0) { /* the last few, as norms do */
        uint32_t first = draw(g, type->rank);
        added = (1u << type->rank) - (1u << first);
    }
    bool is_gain = child->kind == SX_PART_NAME &&
                   (name_is(g, child->name, "scale") || name_is(g, child->name, "bias"));
    if (is_gain && g->axes != 0 && draw(g, 8) != 0) { /* what rows are multiplied with */
        added = ((1u << type->rank) - 1) & ~g->axes;
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        if ((added & 1u << d) == 0) {
            attr->dims.v[attr->dims.count++] = d;
            input->dim[input->rank++] = type->dim[d];
        }
    }
    g->axes = is_gain && g->axes != 0 ? g->axes : added;
    return SX_OK;
}

static inline sx_code before_slice(generator *g, const sx_type *type, sx_attr *attr, sx_type *input)
{
    attr->present = SX_A(start) | SX_A(limit) | SX_A(stride);
    attr->start.count = attr->limit.count = attr->stride.count = type->rank;
    *input = *type;
    for (uint32_t d = 0; d < type->rank; d++) {
        bool whole = draw(g, 2) == 0;
        attr->start.v[d] = whole ? 0 : draw(g, 3);
        attr->stride.v[d] = whole ? 1 : 1 + draw(g, 2);
        attr->limit.v[d] = attr->start.v[d] + (type->dim[d].scale - 1) * attr->stride.v[d] + 1;
        input->dim[d] = sx_dim_of(attr->limit.v[d] + (whole ? 0 : draw(g, 3)));
        if (g->symbolic && !whole && attr->limit.v[d] <= 3 && draw(g, 2) == 0) {
            input->dim[d] = sx_dim_of(stand_ins[draw(g, SX_COUNT(stand_ins))]);
        }
    }
    return SX_OK;
}

static inline void set_axes(generator *g, const sx_ints *dims)
{
    g->axes = 0;
    g->contract = *dims;
    for (uint32_t i = 0; i < dims->count; i++) {
        g->axes |= 1u << dims->v[i];
    }
}

/* Reduces so that a name that has a type already fits; else puts in a dimension or two. */
static inline sx_code before_reduce(generator *g, const sx_pattern_part *child, const sx_type *type,
                                    sx_attr *attr, sx_type *input)
{
    attr->present = SX_A(dims) | SX_A(reducer);
    attr->reducer = g->first_max ? SX_MAX : SX_SUM;
    attr->reducer = g->any_reducer ? (sx_reducer)draw(g, SX_REDUCER_COUNT) : attr->reducer;
    g->first_max = g->online;
    /* reduce of a name, of (multiply ?d ?d) or of (exponential ?d) */
    uint32_t name = child->name;
    if (child->kind == SX_PART_NODE && (name == SX_PATTERN_NONE || !g->bound[name]) &&
        child->arity >= 1) {
        name = g->pattern->part[child->child[0]].name;
    }
    *input = *type;
    if (name != SX_PATTERN_NONE && g->bound[name]) {
        *input = sx_graph_node(g->graph, g->name[name])->type;
        for (uint32_t d = 0; d < input->rank; d++) {
            if ((g->axes & 1u << d) != 0) {
                attr->dims.v[attr->dims.count++] = d;
            }
        }
    } else {
        for (uint32_t k = 1 + draw(g, 2); k > 0; k--) {
            uint32_t at = draw(g, input->rank + 1);
            memmove(&input->dim[at + 1], &input->dim[at], (input->rank - at) * sizeof(sx_dim));
            input->dim[at] = sx_dim_of(draw_extent(g));
            input->rank++;
            for (uint32_t i = 0; i < attr->dims.count; i++) {
                attr->dims.v[i] += attr->dims.v[i] >= at ? 1 : 0;
            }
            uint32_t i = attr->dims.count++;
            for (; i > 0 && attr->dims.v[i - 1] > at; i--) {
                attr->dims.v[i] = attr->dims.v[i - 1];
            }
            attr->dims.v[i] = at;
        }
    }
    g->reduced = 1;
    for (uint32_t i = 0; i < attr->dims.count; i++) {
        g->reduced *= (double)input->dim[attr->dims.v[i]].scale;
    }
    if (g->online) {
        set_axes(g, &attr->dims);
    }
    return attr->dims.count > 0 ? SX_OK : GIVE_UP;
}

/* An operand of a contraction: its batch, free and contracted extents in a random order, free ones ascending. */
static inline void mix_operand(generator *g, const sx_type *result, const sx_ints *batch_dims,
                               uint32_t free_first, uint32_t free_count, const int64_t *contracted,
                               uint32_t contracted_count, bool plain, sx_ints *batch,
                               sx_ints *contract, sx_type *type)
{
    uint32_t left[3] = {batch_dims->count, free_count, contracted_count};
    *type = (sx_type){.dtype = result->dtype};
    while (left[0] + left[1] + left[2] > 0) {
        uint32_t kind = plain ? (left[0] > 0 ? 0 : left[1] > 0 ? 1 : 2) : draw(g, 3);
        if (left[kind] == 0) {
            continue;
        }
        uint32_t d = type->rank++;
        if (kind == 0) {
            uint32_t i = batch_dims->count - left[0];
            type->dim[d] = result->dim[batch_dims->v[i]];
            batch->v[batch->count++] = d;
        } else if (kind == 1) {
            type->dim[d] = result->dim[free_first + free_count - left[1]];
        } else {
            type->dim[d] = sx_dim_of(contracted[contracted_count - left[2]]);
            contract->v[contract->count++] = d;
        }
        left[kind]--;
    }
}

static inline sx_code before_dot(generator *g, const sx_type *type, sx_attr *attr, sx_type input[2])
{
    bool plain = draw(g, 2) == 0 && type->rank >= 2;
    attr->present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) | SX_A(rhs_contract);
    uint32_t batch_count = plain || type->rank == 0 ? 0 : draw(g, type->rank);
    uint32_t free_left = plain ? type->rank - 1 : draw(g, type->rank - batch_count + 1);
    uint32_t free_right = type->rank - batch_count - free_left;
    sx_ints batch = {0};
    for (uint32_t d = 0; d < batch_count; d++) {
        batch.v[batch.count++] = d;
    }
    int64_t contracted[2] = {draw_extent(g), draw_extent(g)};
    uint32_t contracted_count = plain ? 1 : 1 + draw(g, 2);
    bool left_plain = draw(g, 2) == 0;
    mix_operand(g, type, &batch, batch_count, free_left, contracted, contracted_count,
                plain && left_plain, &attr->lhs_batch, &attr->lhs_contract, &input[0]);
    mix_operand(g, type, &batch, batch_count + free_left, free_right, contracted, contracted_count,
                false, &attr->rhs_batch, &attr->rhs_contract, &input[1]);
    if (g->online) {
        set_axes(g, &attr->lhs_contract);
        g->first_max = true;
    }
    return input[0].rank <= 5 && input[1].rank <= 5 ? SX_OK : GIVE_UP;
}

/* With v: as a contraction, and what follows repeats along the free dimensions of v. Without: a sum of the
 * rows of the x met before, or of a new one whose maximum comes next. */
static inline sx_code before_online(generator *g, const sx_pattern_part *part, const sx_type *type,
                                    sx_attr *attr, sx_type input[2])
{
    if (part->any_arity) { /* v is made by the caller, or there is none */
        SX_TRY(before_dot(g, type, attr, input));
        attr->form = draw(g, 2);
    } else if (part->arity == 2) {
        SX_TRY(before_dot(g, type, attr, input));
        uint32_t free_right = input[1].rank - attr->rhs_batch.count - attr->rhs_contract.count;
        g->contract = attr->lhs_contract;
        g->axes = (1u << type->rank) - (1u << (type->rank - free_right));
    } else if (g->bound[g->pattern->part[part->child[0]].name]) {
        attr->lhs_contract = g->contract;
        input[0] = sx_graph_node(g->graph, g->name[g->pattern->part[part->child[0]].name])->type;
    } else {
        bool online = g->online;
        g->online = true;
        sx_code code = before_reduce(g, &g->pattern->part[part->child[0]], type, attr, &input[0]);
        g->online = online;
        g->first_max = true;
        attr->lhs_contract = attr->dims;
        attr->dims = (sx_ints){0};
        SX_TRY(code);
    }
    attr->present = sx_op_info_of(SX_OP_ONLINE_DOT)->attrs;
    return SX_OK;
}

/* Operands of a concatenation whose pattern leaves their number open: one more than it names, at least two. */
static inline uint32_t count_parts(const sx_pattern_part *part)
{
    return !part->any_arity ? part->arity : part->arity == 0 ? 2 : part->arity + 1u;
}

/* Parts of a concatenation: the axis cut at random places. */
static inline sx_code before_concatenate(generator *g, const sx_pattern_part *part,
                                         const sx_type *type, sx_attr *attr,
                                         sx_type input[PARTS_MAX])
{
    attr->present = SX_A(axis);
    attr->axis = type->rank > 0 ? draw(g, type->rank) : 0;
    uint32_t count = count_parts(part);
    if (type->rank == 0 || count > PARTS_MAX || type->dim[attr->axis].scale < count) {
        return GIVE_UP;
    }
    int64_t left = type->dim[attr->axis].scale - count;
    for (uint32_t k = 0; k < count; k++) {
        int64_t more = k + 1 == count ? left : draw(g, (uint32_t)left + 1);
        input[k].dim[attr->axis] = sx_dim_of(1 + more);
        left -= more;
    }
    return SX_OK;
}

/* A run of dimensions of the result comes from the index. */
static inline sx_code before_gather(generator *g, const sx_type *type, sx_attr *attr,
                                    sx_type input[2])
{
    attr->present = SX_A(axis);
    attr->axis = draw(g, type->rank + 1);
    uint32_t count = draw(g, type->rank - (uint32_t)attr->axis + 1);
    input[0] = (sx_type){.dtype = type->dtype};
    input[1] = (sx_type){.dtype = draw(g, 2) == 0 ? SX_I64 : SX_I32};
    for (uint32_t d = 0; d < type->rank; d++) {
        bool indexed = d >= attr->axis && d < attr->axis + count;
        if (d == attr->axis) {
            input[0].dim[input[0].rank++] = sx_dim_of(draw_extent(g));
        }
        input[indexed ? 1 : 0].dim[input[indexed ? 1 : 0].rank++] = type->dim[d];
    }
    if (attr->axis == type->rank) {
        input[0].dim[input[0].rank++] = sx_dim_of(draw_extent(g));
    }
    return SX_OK;
}

/* Longer than what is taken, or as long. */
#define SORT_PAIRS_MAX 65536
static inline sx_code before_sort(generator *g, const sx_type *type, sx_attr *attr, sx_type *input)
{
    attr->present = sx_op_info_of(SX_OP_SORT)->attrs;
    if (type->rank == 0) {
        return GIVE_UP;
    }
    attr->axis = draw(g, type->rank);
    attr->direction = draw(g, 2) == 0 ? SX_LT : SX_GT;
    attr->count = draw(g, 2) == 0 ? -1 : type->dim[attr->axis].scale;
    if (attr->count > 0) {
        input->dim[attr->axis] = sx_dim_of(attr->count * (1 + draw(g, 17)));
    }
    int64_t length =
        input->dim[attr->axis].scale; /* each element is compared with each of its row */
    if (sx_tensor_elements(input) > SORT_PAIRS_MAX / length) {
        return GIVE_UP;
    }
    attr->result = type->dtype == SX_I64 ? 1 : 0;
    if (attr->result == 1) {
        input->dtype = draw_dtype(g);
    }
    return SX_OK;
}

static inline sx_code before_norm(generator *g, const sx_type *type, sx_attr *attr,
                                  sx_type input[3])
{
    attr->present = SX_A(axis) | SX_A(eps);
    attr->eps = sx_num_round(SX_F32, 1e-3);
    attr->axis = type->rank > 0 ? draw(g, type->rank) : 0;
    for (uint32_t k = 1; k < 3; k++) {
        input[k] = (sx_type){.dtype = type->dtype};
        for (uint32_t d = (uint32_t)attr->axis; d < type->rank; d++) {
            input[k].dim[input[k].rank++] = type->dim[d];
        }
    }
    return type->rank > 0 ? SX_OK : GIVE_UP;
}

#include "tests/core/rules/instances_conv.h"

static inline sx_code draw_attr(generator *g, sx_op op, const sx_pattern_part *part,
                                const sx_type *type, sx_attr *attr, sx_type input[PARTS_MAX])
{
    for (uint32_t k = 0; k < PARTS_MAX; k++) {
        input[k] = *type;
    }
    switch ((int)op) {
    case SX_OP_RESHAPE: return before_reshape(g, type, attr, &input[0]);
    case SX_OP_TRANSPOSE: return before_transpose(g, type, attr, &input[0]);
    case SX_OP_BROADCAST:
        return before_broadcast(g, &g->pattern->part[part->child[0]], type, attr, &input[0]);
    case SX_OP_SLICE: return before_slice(g, type, attr, &input[0]);
    case SX_OP_REDUCE:
        return before_reduce(g, &g->pattern->part[part->child[0]], type, attr, &input[0]);
    case SX_OP_DOT_GENERAL: return before_dot(g, type, attr, input);
    case SX_OP_ONLINE_DOT: return before_online(g, part, type, attr, input);
    case SX_OP_CONVERT:
        attr->present = SX_A(type);
        attr->type = *type;
        input[0].dtype = draw(g, 3) == 0 ? type->dtype : draw_dtype(g);
        if (g->narrow) {
            input[0].dtype = type->dtype == SX_F32 ? g->narrow_dtype : SX_F32;
        }
        return SX_OK;
    case SX_OP_SELECT: input[0].dtype = SX_BOOL; return SX_OK;
    case SX_OP_COMPARE:
        attr->present = SX_A(direction);
        attr->direction = (sx_direction)draw(g, SX_DIRECTION_COUNT);
        input[0].dtype = input[1].dtype = draw(g, 2) == 0 ? SX_F32 : SX_I32;
        return type->dtype == SX_BOOL ? SX_OK : GIVE_UP;
    case SX_OP_SORT: return before_sort(g, type, attr, &input[0]);
    case SX_OP_GATHER: return before_gather(g, type, attr, input);
    case SX_OP_CONCATENATE: return before_concatenate(g, part, type, attr, input);
    case SX_OP_CONVOLUTION: return before_convolution(g, type, attr, input);
    case SX_OP_REDUCE_WINDOW: return before_window(g, type, attr, input);
    case SX_OP_PAD: return before_pad(g, type, attr, input);
    case SX_OP_REVERSE: return before_reverse(g, type, attr);
    case SX_OP_BATCH_NORM: return before_batch_norm(g, type, attr, input);
    case SX_OP_LAYER_NORM:
    case SX_OP_RMS_NORM: return before_norm(g, type, attr, input);
    case SX_OP_LOG_SOFTMAX:
    case SX_OP_SOFTMAX:
        attr->present = SX_A(axis);
        attr->axis = type->rank > 0 ? draw(g, type->rank) : 0;
        return type->rank > 0 ? SX_OK : GIVE_UP;
    default: return SX_OK;
    }
}

static inline sx_code generate_node(generator *g, const sx_pattern_part *part, const sx_type *type,
                                    sx_node_id *id)
{
    uint32_t count = sx_bits_count(&part->ops), number = sx_bits_first(&part->ops);
    for (uint32_t pick = draw(g, count); pick > 0; pick--) {
        number = sx_bits_next(&part->ops, number + 1);
    }
    sx_op op = (sx_op)number;
    if (g->gelu && count > 1) {
        op = g->bend;
    }
    sx_attr attr = {0};
    sx_type input[PARTS_MAX];
    uint8_t known = part->attr_name;
    if (known != SX_PATTERN_NONE && g->attr_known[known]) {
        attr = g->attr[known];
        memcpy(input, g->attr_input[known], sizeof(input));
    } else {
        SX_TRY(draw_attr(g, op, part, type, &attr, input));
        if (known != SX_PATTERN_NONE) {
            g->attr_known[known] = true;
            g->attr[known] = attr;
            memcpy(g->attr_input[known], input, sizeof(input));
        }
    }
    sx_node_id child[SX_PATTERN_NAMES_MAX];
    count = part->arity;
    for (uint32_t k = 0; k < part->arity; k++) {
        uint32_t at = k < PARTS_MAX ? k : PARTS_MAX - 1;
        SX_TRY(generate(g, part->child[k], &input[at], &child[k]));
    }
    uint32_t most = op == SX_OP_CONCATENATE ? count_parts(part) : op == SX_OP_SELECT ? 3 : 2;
    most = most < sx_op_info_of(op)->input_max ? most : sx_op_info_of(op)->input_max;
    for (; part->any_arity && count < most; count++) {
        SX_TRY(fresh_parameter(g, &input[count], &child[count]));
    }
    sx_code code = sx_graph_add(g->cx, g->graph, op, &attr, child, count, id);
    if (code == SX_INPUT || code == SX_UNIMPLEMENTED) {
        sx_ctx_reset_error(g->cx);
        return GIVE_UP;
    }
    return code;
}

static inline sx_code generate(generator *g, uint32_t index, const sx_type *type, sx_node_id *id)
{
    const sx_pattern_part *part = &g->pattern->part[index];
    if (part->kind == SX_PART_NAME) {
        return generate_name(g, part->name, type, id);
    }
    if (part->kind == SX_PART_VALUE) {
        if (type->dtype == SX_BOOL || (sx_dtype_class_of(type->dtype) != SX_CLASS_FLOAT &&
                                       part->value != floor(part->value))) {
            return GIVE_UP;
        }
        return sx_build_scalar(g->cx, g->graph, type, part->value, id);
    }
    if (part->name != SX_PATTERN_NONE && g->bound[part->name]) {
        return generate_name(g, part->name, type, id);
    }
    SX_TRY(generate_node(g, part, type, id));
    if (part->name != SX_PATTERN_NONE) {
        g->bound[part->name] = true;
        g->name[part->name] = *id;
    }
    return SX_OK;
}
#endif
