/* rules.h - the table of rules (rules.def) and what the C sides of rules share (inner header of the rules_*.c
 * files). */
#ifndef SX_CORE_RULES_RULES_H
#define SX_CORE_RULES_RULES_H
#include "core/egraph/tensor.h"

/* Rules of the rounds come first; the fusion rules (fuse.h), which are steps of their own pass, follow. */
typedef enum {
#define SX_RULE(id, name, rule_class, left, right) SX_RULE_##id,
#define SX_RULE_BUILD(id, name, rule_class, left, build) SX_RULE_##id,
#include "core/rules/rules.def"
#undef SX_RULE
#undef SX_RULE_BUILD
    SX_RULE_ROUNDS_COUNT,
    SX_RULE_BEFORE_FUSION = SX_RULE_ROUNDS_COUNT - 1,
#define SX_RULE_FUSION(id, name, rule_class, help) SX_RULE_##id,
#include "core/rules/fusion.def"
#undef SX_RULE_FUSION
    SX_RULE_COUNT
} sx_rule_id;

/* [SX_RULE_ROUNDS_COUNT] as the matcher wants them. */
extern const sx_rule sx_rules[];
/* Their sides as they were parsed while this was built (gen_rules.c). */
typedef struct {
    const struct sx_pattern *left, *right; /* right NULL: a C function */
} sx_rule_sides;
extern const sx_rule_sides sx_rules_parsed[];
/* The rules for one graph: all enabled, nothing seen. Same as sx_eg_ruleset_init of sx_rules, without reading
 * any text. */
sx_code sx_rules_set(sx_ctx *cx, sx_tensors *t, sx_eg_ruleset *set);
const char *sx_rule_name(uint32_t rule);
sx_rule_class sx_rule_class_of(uint32_t rule);
sx_rule_range sx_rule_range_of(uint32_t rule);
const char *sx_rule_range_name(sx_rule_range range); /* "keeps", "contracts", "folds", "moves" */
const char *sx_rule_range_why(uint32_t rule); /* of range.def; NULL where the rule keeps it */
/* "reassociating", or with what it does to the range, if it does not keep it: "reassociating, folds" */
const char *sx_rule_class_text(uint32_t rule);
bool sx_rule_find(sx_span name, uint32_t *rule);

/* Helpers of the build functions. */
static inline sx_tensors *sx_rewrite_tensors(const sx_rewrite *rw)
{
    return (sx_tensors *)rw->self;
}
static inline const sx_type *sx_rewrite_type(const sx_rewrite *rw, uint32_t node)
{
    return sx_tensors_type(sx_rewrite_tensors(rw), node);
}
/* The attribute of the k-th matched node, by value: interning moves the table. */
static inline sx_attr sx_rewrite_attr(const sx_rewrite *rw, uint32_t k)
{
    return *sx_tensors_attr(sx_rewrite_tensors(rw), rw->node[k]);
}
/* Adds a node; *node stays SX_EG_NONE if a child is or if it is ill-typed. */
sx_code sx_rewrite_add(sx_rewrite *rw, sx_op op, const sx_attr *attr, const uint32_t *child,
                       uint32_t arity, uint32_t *node);
/* x seen as `type`: x itself, or a reshape of it. */
sx_code sx_rewrite_reshape(sx_rewrite *rw, uint32_t x, const sx_type *type, uint32_t *node);
/* Emits unless `to` is SX_EG_NONE or of another type than the root. */
sx_code sx_rewrite_emit(sx_rewrite *rw, uint32_t to);
/* Is the class one known value, within one part in 2^21 (constants rounded to f32; narrow types: half of
 * their last place)? */
bool sx_rewrite_near(const sx_rewrite *rw, uint32_t class_, double value);
/* Is the root's class the only one that reads the class of matched node `k`? Rules that would compute it in
 * another way as well ask this: it bounds the search, not the truth. */
bool sx_rewrite_is_private(const sx_rewrite *rw, uint32_t k);
/* Factors between 1/16 and 16 leave the range of a value as good as it is. */
#define SX_RANGE_FACTOR 16.0
/* Is the class one known value of such a magnitude? */
bool sx_rewrite_is_factor_near_one(const sx_rewrite *rw, uint32_t class_);
/* Rows come in pairs where a side condition tells whether the range is kept: `keeps`. May the row with that
 * condition (far: the one without) say its equality? When a step is checked, the one without may always: both
 * sides are equal all the same. */
static inline bool sx_rewrite_may(const sx_rewrite *rw, bool far, bool keeps)
{
    return far ? !keeps || rw->unguarded : keeps;
}
/* The first member of the class with this operation (where a step is checked: the one that was picked), or
 * SX_EG_NONE. */
uint32_t sx_rewrite_member(const sx_rewrite *rw, uint32_t class_, sx_op op);
sx_code sx_rewrite_emit_unary(sx_rewrite *rw, sx_op op, uint32_t a);
sx_code sx_rewrite_emit_binary(sx_rewrite *rw, sx_op op, uint32_t a, uint32_t b);
/* The constant of the root's type that is `value` everywhere, where the element type holds it. */
sx_code sx_rewrite_emit_value(sx_rewrite *rw, double value);
/* The slice that takes all of a value of this type. */
sx_attr sx_slice_whole(const sx_type *type);
/* [start, start + extent) of dimension `axis` of x; SX_EG_NONE of SX_EG_NONE. */
sx_code sx_rewrite_cut(sx_rewrite *rw, uint32_t x, uint32_t axis, int64_t start, int64_t extent,
                       uint32_t *node);
/* Does a slice of a value of type `whole` take a run along one axis and all of the others? Which one. */
bool sx_slice_axis(const sx_attr *slice, const sx_type *whole, uint32_t *axis);
/* Is `wide` the type `narrow` with one dimension more, of 1, at `place`? */
bool sx_type_is_wider(const sx_type *wide, const sx_type *narrow, uint32_t place);
/* `value` as the element type of `type` holds it. */
double sx_rewrite_rounded(const sx_type *type, double value);
bool sx_type_is_real(const sx_type *type); /* f32 or f64 */

#define SX_RULE(id, name, rule_class, left, right)
#define SX_RULE_BUILD(id, name, rule_class, left, build) sx_code build(sx_rewrite *rw);
#include "core/rules/rules.def"
#undef SX_RULE
#undef SX_RULE_BUILD
#endif
