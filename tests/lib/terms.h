/* terms.h - a small language of plain terms, to test and time the engine apart from tensors.
 *
 * Terms as text: (add x (mul 2 y)). An operation is any word, numbered in order of first mention; a leaf is a
 * symbol or a number. Rules are rows of the pattern language of core/egraph/match.h; (*any ...) matches a node
 * of any operation, a number in a pattern the class of that number. With `folds` a class knows its value
 * (constant folding as an analysis): a class that holds a number, and what arithmetic makes of such classes.
 */
#ifndef SX_TESTS_LIB_TERMS_H
#define SX_TESTS_LIB_TERMS_H
#include "core/egraph/match.h"

#define SX_TERMS_LEAF 0u /* operation number of leaves */
#define SX_TERMS_LEAVES_MAX 4096u

typedef struct {
    sx_span name; /* empty for a number */
    double value;
} sx_terms_leaf;
typedef struct {
    sx_ctx *cx;
    sx_eg eg;
    sx_eg_language language;
    sx_span op[SX_EG_OPS_MAX];
    uint32_t op_count;
    sx_terms_leaf *leaf; /* by attribute */
    uint32_t leaf_count, leaf_capacity;
    uint32_t value_node[4]; /* nodes of -1, 0, 1, 2 once they exist: asked for in every search */
} sx_terms;

sx_code sx_terms_init(sx_ctx *cx, sx_terms *t, bool folds);
/* errors  SX_INPUT column and what was expected; depth at most 200 */
sx_code sx_terms_add(sx_terms *t, const char *text, uint32_t *node);
/* The value that a class is known to hold; false if none. */
bool sx_terms_value(const sx_terms *t, uint32_t class_, double *value);
sx_code sx_terms_add_value(sx_terms *t, double value, uint32_t *node);

/* math-micro: 24 rules and 7 terms (research/egraph.md, section 6); sums of `leaves` leaves under commutativity and
 * associativity; egg's mathematics with conditions, for a run under back-off. */
extern const sx_rule sx_terms_micro_rules[24];
extern const sx_rule sx_terms_sum_rules[3];
extern const sx_rule sx_terms_math_rules[];
extern const uint32_t sx_terms_math_rule_count;
sx_code sx_terms_add_micro(sx_terms *t);
sx_code sx_terms_add_sum(sx_terms *t, uint32_t leaves); /* 1 + (2 + (3 + ...)) */
#endif
