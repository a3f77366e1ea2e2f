#include "core/rules/rules.h"

#include <math.h>
#include <string.h>

#include "core/ir/num.h"

const sx_rule sx_rules[] = {
#define SX_RULE(id, name_, class_, left_, right_) \
    {.name = name_, .rule_class = SX_RULE_##class_, .left = left_, .right = right_},
#define SX_RULE_BUILD(id, name_, class_, left_, build_) \
    {.name = name_, .rule_class = SX_RULE_##class_, .left = left_, .build = build_},
#include "core/rules/rules.def"
#undef SX_RULE
#undef SX_RULE_BUILD
};
_Static_assert(SX_COUNT(sx_rules) == SX_RULE_ROUNDS_COUNT, "the table and its numbers agree");

static const struct {
    const char *name;
    sx_rule_class rule_class;
} fusion_table[] = {
#define SX_RULE_FUSION(id, name_, class_, help) {name_, SX_RULE_##class_},
#include "core/rules/fusion.def"
#undef SX_RULE_FUSION
};

sx_code sx_rules_set(sx_ctx *cx, sx_tensors *t, sx_eg_ruleset *set)
{
    *set = (sx_eg_ruleset){.language = sx_tensors_language(t), .rule_count = SX_RULE_ROUNDS_COUNT};
    set->rule = SX_NEW_ARRAY(cx, sx_eg_rule, SX_RULE_ROUNDS_COUNT);
    if (set->rule == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < SX_RULE_ROUNDS_COUNT; i++) {
        set->rule[i] = (sx_eg_rule){.rule = &sx_rules[i],
                                    .left = sx_rules_parsed[i].left,
                                    .right = sx_rules_parsed[i].right,
                                    .enabled = true};
    }
    return SX_OK;
}

const char *sx_rule_name(uint32_t rule)
{
    if (rule < SX_RULE_ROUNDS_COUNT) {
        return sx_rules[rule].name;
    }
    if (rule < SX_RULE_COUNT) {
        return fusion_table[rule - SX_RULE_ROUNDS_COUNT].name;
    }
    return rule == SX_EG_RULE_CONGRUENCE ? "congruence" : "given";
}

sx_rule_class sx_rule_class_of(uint32_t rule)
{
    if (rule < SX_RULE_ROUNDS_COUNT) {
        return sx_rules[rule].rule_class;
    }
    return rule < SX_RULE_COUNT ? fusion_table[rule - SX_RULE_ROUNDS_COUNT].rule_class
                                : SX_RULE_EXACT;
}

static const struct {
    sx_rule_range range;
    const char *why;
} range_table[SX_RULE_COUNT] = {
#define SX_RULE_RANGE(id, range_, why_) [SX_RULE_##id] = {SX_RANGE_##range_, why_},
#include "core/rules/range.def"
#undef SX_RULE_RANGE
};

sx_rule_range sx_rule_range_of(uint32_t rule)
{
    return rule < SX_RULE_COUNT ? range_table[rule].range : SX_RANGE_KEEPS;
}

const char *sx_rule_range_why(uint32_t rule)
{
    return rule < SX_RULE_COUNT ? range_table[rule].why : NULL;
}

const char *sx_rule_range_name(sx_rule_range range)
{
    static const char *const name[] = {"keeps", "contracts", "folds", "moves"};
    SX_ASSERT(range < SX_COUNT(name));
    return name[range];
}

const char *sx_rule_class_text(uint32_t rule)
{
    static const char *const text[][4] = {
        [SX_RULE_EXACT] = {"exact", NULL, NULL, NULL},
        [SX_RULE_REASSOCIATING] = {"reassociating", "reassociating, contracts",
                                   "reassociating, folds", "reassociating, moves"},
        [SX_RULE_APPROXIMATE] = {"approximate", "approximate, contracts", "approximate, folds",
                                 "approximate, moves"}};
    const char *found = text[sx_rule_class_of(rule)][sx_rule_range_of(rule)];
    SX_ASSERT(found != NULL); /* what keeps every bit keeps the range */
    return found;
}

bool sx_rule_find(sx_span name, uint32_t *rule)
{
    SX_ASSERT(name.ptr != NULL || name.len == 0);
    for (uint32_t i = 0; i < SX_RULE_COUNT; i++) {
        if (sx_span_is(name, sx_rule_name(i))) {
            *rule = i;
            return true;
        }
    }
    return false;
}

sx_code sx_rewrite_add(sx_rewrite *rw, sx_op op, const sx_attr *attr, const uint32_t *child,
                       uint32_t arity, uint32_t *node)
{
    SX_ASSERT(op < SX_OP_COUNT && arity <= SX_EG_ARITY_MAX);
    uint32_t made = SX_EG_NONE; /* `node` may be one of `child` */
    bool all = true;
    for (uint32_t k = 0; k < arity; k++) {
        all = all && child[k] != SX_EG_NONE;
    }
    if (all) {
        SX_TRY(sx_tensors_add(rw->cx, sx_rewrite_tensors(rw), op, attr, child, arity, &made));
    }
    *node = made;
    return SX_OK;
}

sx_code sx_rewrite_reshape(sx_rewrite *rw, uint32_t x, const sx_type *type, uint32_t *node)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    *node = x;
    if (x == SX_EG_NONE || sx_type_equal(sx_rewrite_type(rw, x), type)) {
        return SX_OK;
    }
    sx_attr attr = {.present = SX_A(type), .type = *type};
    return sx_rewrite_add(rw, SX_OP_RESHAPE, &attr, &x, 1, node);
}

sx_code sx_rewrite_emit(sx_rewrite *rw, uint32_t to)
{
    if (to == SX_EG_NONE ||
        !sx_type_equal(sx_rewrite_type(rw, to), sx_rewrite_type(rw, rw->node[0]))) {
        return SX_OK;
    }
    return sx_rewrite_to(rw, to);
}

sx_code sx_rewrite_emit_unary(sx_rewrite *rw, sx_op op, uint32_t a)
{
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, &a, 1, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rewrite_emit_binary(sx_rewrite *rw, sx_op op, uint32_t a, uint32_t b)
{
    uint32_t child[2] = {a, b};
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rewrite_emit_value(sx_rewrite *rw, double value)
{
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, sx_rewrite_tensors(rw), &type, value, &node));
    return sx_rewrite_emit(rw, node);
}

sx_attr sx_slice_whole(const sx_type *type)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_attr attr = {.present = SX_A(start) | SX_A(limit) | SX_A(stride)};
    attr.start.count = attr.limit.count = attr.stride.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        attr.stride.v[d] = 1;
        attr.limit.v[d] = sx_dim_is_constant(type->dim[d]) ? type->dim[d].scale : -1;
    }
    return attr;
}

sx_code sx_rewrite_cut(sx_rewrite *rw, uint32_t x, uint32_t axis, int64_t start, int64_t extent,
                       uint32_t *node)
{
    SX_ASSERT(axis < SX_RANK_MAX && start >= 0 && extent > 0);
    *node = SX_EG_NONE;
    if (x == SX_EG_NONE) {
        return SX_OK;
    }
    sx_attr attr = sx_slice_whole(sx_rewrite_type(rw, x));
    attr.start.v[axis] = start;
    attr.limit.v[axis] = start + extent;
    return sx_rewrite_add(rw, SX_OP_SLICE, &attr, &x, 1, node);
}

bool sx_rewrite_near(const sx_rewrite *rw, uint32_t class_, double value)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    sx_dtype dtype = sx_rewrite_type(rw, class_)->dtype;
    int bits = dtype == SX_BF16 ? -8 : dtype == SX_F16 ? -11 : -21;
    return fact->has_value != 0 && fabs(fact->value - value) <= ldexp(fabs(value), bits);
}

bool sx_rewrite_is_factor_near_one(const sx_rewrite *rw, uint32_t class_)
{
    const sx_fact *fact = sx_tensors_fact(sx_rewrite_tensors(rw), class_);
    double size = fabs(fact->value);
    return fact->has_value != 0 && size >= 1 / SX_RANGE_FACTOR && size <= SX_RANGE_FACTOR;
}

bool sx_rewrite_is_private(const sx_rewrite *rw, uint32_t k)
{
    SX_ASSERT(k < SX_PATTERN_NODES_MAX);
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t root = sx_eg_find(eg, rw->node[0]);
    uint32_t class_ = sx_eg_find(eg, rw->node[k]);
    if (rw->unguarded || rw->open) {
        return true;
    }
    for (uint32_t e = sx_eg_parent_first(eg, class_); e != SX_EG_LINK_END;
         e = sx_eg_parent_next(eg, e)) {
        const sx_eg_node *parent = &eg->node[sx_eg_parent_node(eg, e)];
        if (parent->dead == 0 && parent->op != SX_OP_FUSED &&
            sx_eg_find(eg, sx_eg_parent_node(eg, e)) != root) {
            return false;
        }
    }
    return true;
}

uint32_t sx_rewrite_member(const sx_rewrite *rw, uint32_t class_, sx_op op)
{
    SX_ASSERT(op < SX_OP_COUNT);
    const sx_eg *eg = &sx_rewrite_tensors(rw)->eg;
    uint32_t first = sx_eg_find(eg, class_);
    uint32_t n = first;
    do {
        if (eg->node[n].op == op && (eg->node[n].dead == 0 || rw->unguarded) &&
            sx_rewrite_pick(rw, n)) {
            return n;
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_EG_NONE;
}

bool sx_type_is_wider(const sx_type *wide, const sx_type *narrow, uint32_t place)
{
    bool same = wide->rank == narrow->rank + 1 && place < wide->rank &&
                sx_dim_equal(wide->dim[place], sx_dim_of(1));
    for (uint32_t d = 0; d < narrow->rank && same; d++) {
        same = sx_dim_equal(narrow->dim[d], wide->dim[d < place ? d : d + 1]);
    }
    return same;
}

bool sx_slice_axis(const sx_attr *slice, const sx_type *whole, uint32_t *axis)
{
    SX_ASSERT(slice->start.count == whole->rank && slice->limit.count == whole->rank);
    uint32_t cuts = 0;
    for (uint32_t d = 0; d < whole->rank; d++) {
        bool all = slice->start.v[d] == 0 &&
                   (slice->limit.v[d] < 0 || (sx_dim_is_constant(whole->dim[d]) &&
                                              slice->limit.v[d] == whole->dim[d].scale));
        if (slice->stride.v[d] != 1 || (!all && !sx_dim_is_constant(whole->dim[d]))) {
            return false;
        }
        if (!all) {
            cuts++;
            *axis = d;
        }
    }
    return cuts == 1;
}

double sx_rewrite_rounded(const sx_type *type, double value)
{
    return sx_num_round(type->dtype, value);
}

bool sx_type_is_real(const sx_type *type)
{
    return type->dtype == SX_F32 || type->dtype == SX_F64;
}

sx_code sx_rule_add_zero_integer(sx_rewrite *rw)
{
    if (sx_dtype_class_of(sx_rewrite_type(rw, rw->node[0])->dtype) != SX_CLASS_INT) {
        return SX_OK;
    }
    return sx_rewrite_emit(rw, rw->var[0]);
}

/* Not for numbers without sign: -5 is 251 there, and so is |251|. */
sx_code sx_rule_abs_negate(sx_rewrite *rw)
{
    sx_dtype dtype = sx_rewrite_type(rw, rw->node[0])->dtype;
    if (sx_dtype_class_of(dtype) != SX_CLASS_FLOAT && sx_num_int_min(dtype) >= 0) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_ABS, NULL, &rw->var[0], 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* Not for integers: x / 0 is -1 whatever the sign of x. */
sx_code sx_rule_divide_negate(sx_rewrite *rw)
{
    if (sx_dtype_class_of(sx_rewrite_type(rw, rw->node[0])->dtype) != SX_CLASS_FLOAT) {
        return SX_OK;
    }
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, SX_OP_DIVIDE, NULL, rw->var, 2, &node));
    SX_TRY(sx_rewrite_add(rw, SX_OP_NEGATE, NULL, &node, 1, &node));
    return sx_rewrite_emit(rw, node);
}

/* a / 2^k = a * 2^-k: both are the same real number, rounded once. */
sx_code sx_rule_divide_power(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *fact = sx_tensors_fact(t, rw->var[1]);
    sx_type type = *sx_rewrite_type(rw, rw->node[0]);
    int exponent;
    if (fact->has_value == 0 || fabs(frexp(fact->value, &exponent)) != 0.5 ||
        sx_dtype_class_of(type.dtype) != SX_CLASS_FLOAT) {
        return SX_OK;
    }
    uint32_t child[2] = {rw->var[0], SX_EG_NONE};
    uint32_t node;
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, 1 / fact->value, &child[1]));
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

/* op(a, op(b, c)) = op(op(a, b), c), or the other way round */
static sx_code associate(sx_rewrite *rw, bool to_left)
{
    if (!sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    sx_op op = sx_tensors_op(sx_rewrite_tensors(rw), rw->node[0]);
    uint32_t inner;
    uint32_t node;
    SX_TRY(sx_rewrite_add(rw, op, NULL, &rw->var[to_left ? 0 : 1], 2, &inner));
    uint32_t child[2] = {to_left ? inner : rw->var[0], to_left ? rw->var[2] : inner};
    SX_TRY(sx_rewrite_add(rw, op, NULL, child, 2, &node));
    return sx_rewrite_emit(rw, node);
}

sx_code sx_rule_associate_left(sx_rewrite *rw)
{
    return associate(rw, true);
}

sx_code sx_rule_associate_right(sx_rewrite *rw)
{
    return associate(rw, false);
}

/* Is the product of two known values there in the type of `class_a`, with most of its digits? */
static bool has_product(const sx_rewrite *rw, uint32_t class_a, uint32_t class_b)
{
    const sx_fact *a = sx_tensors_fact(sx_rewrite_tensors(rw), class_a);
    const sx_fact *b = sx_tensors_fact(sx_rewrite_tensors(rw), class_b);
    double product = a->value * b->value;
    double rounded = sx_rewrite_rounded(sx_rewrite_type(rw, class_a), product);
    return a->has_value != 0 && b->has_value != 0 && isfinite(rounded) && product != 0 &&
           fabs(rounded - product) <= ldexp(fabs(product), -8);
}

/* Does the product made anew have the magnitude of one that is there? Where one of three factors is near 1, it
 * has that of an operand or of the result; where both its factors are known, it can be looked at; where the
 * outer factors are one, it is the old one. */
static bool product_is_near(const sx_rewrite *rw, bool to_left)
{
    const sx_tensors *t = sx_rewrite_tensors(rw);
    bool near = sx_dtype_class_of(sx_rewrite_type(rw, rw->node[0])->dtype) != SX_CLASS_FLOAT ||
                sx_eg_find(&t->eg, rw->var[0]) == sx_eg_find(&t->eg, rw->var[2]) ||
                has_product(rw, rw->var[to_left ? 0 : 1], rw->var[to_left ? 1 : 2]);
    for (uint32_t k = 0; k < 3; k++) {
        near = near || sx_rewrite_is_factor_near_one(rw, rw->var[k]);
    }
    return near;
}

sx_code sx_rule_multiply_left(sx_rewrite *rw)
{
    return sx_rewrite_may(rw, false, product_is_near(rw, true)) ? associate(rw, true) : SX_OK;
}

sx_code sx_rule_multiply_right(sx_rewrite *rw)
{
    return sx_rewrite_may(rw, false, product_is_near(rw, false)) ? associate(rw, false) : SX_OK;
}

sx_code sx_rule_multiply_far_left(sx_rewrite *rw)
{
    return sx_rewrite_may(rw, true, product_is_near(rw, true)) ? associate(rw, true) : SX_OK;
}

sx_code sx_rule_multiply_far_right(sx_rewrite *rw)
{
    return sx_rewrite_may(rw, true, product_is_near(rw, false)) ? associate(rw, false) : SX_OK;
}

/* (a / b) / d = a / (b d): the product of the divisors is one more value. */
static sx_code divide_twice(sx_rewrite *rw, bool far)
{
    uint32_t child[2] = {rw->var[1], rw->var[2]};
    uint32_t node;
    if (sx_dtype_class_of(sx_rewrite_type(rw, rw->node[0])->dtype) != SX_CLASS_FLOAT ||
        !sx_rewrite_is_private(rw, 1)) {
        return SX_OK;
    }
    bool near = has_product(rw, child[0], child[1]) ||
                sx_rewrite_is_factor_near_one(rw, child[0]) ||
                sx_rewrite_is_factor_near_one(rw, child[1]);
    if (!sx_rewrite_may(rw, far, near)) {
        return SX_OK;
    }
    SX_TRY(sx_rewrite_add(rw, SX_OP_MULTIPLY, NULL, child, 2, &node));
    return sx_rewrite_emit_binary(rw, SX_OP_DIVIDE, rw->var[0], node);
}

sx_code sx_rule_divide_divide(sx_rewrite *rw)
{
    return divide_twice(rw, false);
}

sx_code sx_rule_divide_divide_far(sx_rewrite *rw)
{
    return divide_twice(rw, true);
}

sx_code sx_rule_fold_value(sx_rewrite *rw)
{
    sx_tensors *t = sx_rewrite_tensors(rw);
    const sx_fact *fact = sx_tensors_fact(t, rw->node[0]);
    uint32_t class_ = sx_eg_find(&t->eg, rw->node[0]);
    bool there = sx_eg_has_op(&t->eg, class_, SX_OP_CONSTANT);
    if (fact->has_value == 0 || (there && !rw->unguarded)) {
        return SX_OK;
    }
    uint32_t constant;
    sx_type type = t->type[fact->type];
    SX_TRY(sx_tensors_add_value(rw->cx, t, &type, fact->value, &constant));
    return sx_rewrite_emit(rw, constant);
}
