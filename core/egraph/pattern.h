/* pattern.h - a parsed pattern and the steps that look for it (inner header of the matcher). */
#ifndef SX_CORE_EGRAPH_PATTERN_H
#define SX_CORE_EGRAPH_PATTERN_H
#include "core/egraph/match.h"

#define SX_PATTERN_NONE 0xFFu

typedef enum { SX_PART_NAME, SX_PART_VALUE, SX_PART_NODE } sx_part_kind;
typedef struct {
    sx_part_kind kind;
    uint8_t name; /* NAME; NODE: the name given to its class, or NONE */
    uint8_t attr_name;
    uint8_t arity;
    bool any_arity;
    sx_bits ops;
    double value;
    uint8_t child[SX_PATTERN_NAMES_MAX];
} sx_pattern_part;

/* BIND looks at the members of class reg[from]: one that fits puts its children into reg[out..]. */
typedef enum { SX_STEP_BIND, SX_STEP_SAME, SX_STEP_VALUE } sx_step_kind;
typedef struct {
    sx_step_kind kind;
    uint8_t from;
    /* SAME: the register to equal; BIND: number of the bind whose attribute to equal, or NONE */
    uint8_t other;
    uint8_t bind; /* BIND: which matched node it is */
    uint8_t out;
    uint8_t arity;
    bool any_arity;
    sx_bits ops;
    /* The set `ops` as sx_eg_node.ops has it. */
    uint8_t hint;
    double value;
} sx_step;

typedef struct sx_pattern {
    /* As many as `part_count` says; the arrays below likewise. */
    const sx_pattern_part *part;
    uint32_t part_count;
    uint32_t root;
    /* The names that stand for classes, such as ?x. */
    sx_span name[SX_PATTERN_NAMES_MAX];
    uint32_t name_count;
    sx_span attr_name[SX_PATTERN_NAMES_MAX];
    /* The bind that first names the attribute. */
    uint8_t attr_bind[SX_PATTERN_NAMES_MAX];
    uint32_t attr_name_count;
    /* What follows is of left sides alone. */
    const sx_step *step;
    uint32_t step_count;
    uint32_t bind_count;
    uint32_t reg_count;
    uint8_t name_reg[SX_PATTERN_NAMES_MAX];
    /* For each register but 0: the matched node that it is a child of, and which child. */
    const uint8_t *reg_bind;
    const uint8_t *reg_slot;
    /* How many levels of nodes it has: 1 for (op ?x). */
    uint32_t depth;
} sx_pattern;

/* `left` NULL: a left side (compiled to steps); else a right side over the names of `left`. */
sx_code sx_pattern_parse(sx_ctx *cx, const sx_eg_language *language, const char *rule_name,
                         const char *text, const sx_pattern *left, const sx_pattern **pattern);

/* A match in a list: bind_count nodes, then name_count classes, at least one. */
static inline uint32_t sx_pattern_stride(const sx_pattern *left)
{
    return left->bind_count + (left->name_count > 0 ? left->name_count : 1);
}

/* Appends every match at class `root` to `found`. Stops early at `match_limit`
 * matches in the list or after `work_limit` steps. */
typedef struct {
    uint32_t *word;
    uint32_t count, capacity;
    uint32_t match_count;
    /* Matches that were found and would change nothing: their right side is in the class already. */
    uint32_t idle;
    /* Matches of the list that were asked about this, or passed over. */
    uint32_t looked;
    /* How many matches are passed over next, and how many were the last time. */
    uint32_t pass, passed;
} sx_match_list;
sx_code sx_pattern_search(sx_ctx *cx, const sx_eg *eg, const sx_eg_language *language,
                          const sx_pattern *pattern, uint32_t root, uint32_t match_limit,
                          uint64_t work_limit, sx_match_list *found, uint64_t *work);
/* Adds the right side for one match; *node SX_EG_NONE if some part cannot be. */
sx_code sx_pattern_build(sx_ctx *cx, sx_eg *eg, const sx_eg_language *language,
                         const sx_pattern *right, const uint32_t *match_node,
                         const uint32_t *match_var, uint32_t *node);

/* The same for `count` matches, at most SX_EG_BATCH, `stride` words apart, where the language has no say in
 * what can be: node[] are their right sides. A pattern that does not lend itself to it is not batched. */
bool sx_pattern_batches(const sx_eg_language *language, const sx_pattern *right);
sx_code sx_pattern_build_batch(sx_ctx *cx, sx_eg *eg, const sx_eg_language *language,
                               const sx_pattern *right, const uint32_t *match, uint32_t stride,
                               uint32_t bind_count, uint32_t count, uint32_t *node);

/* What stands of the right sides in the graph as it is, else SX_EG_NONE. Only for patterns that name no values. */
bool sx_pattern_finds(const sx_eg_language *language, const sx_pattern *right);
void sx_pattern_find_batch(const sx_eg *eg, const sx_pattern *right, const uint32_t *match,
                           uint32_t stride, uint32_t bind_count, uint32_t count, uint32_t *node);
/* Takes the matches of `rule` out of the end of its list, at most SX_EG_BATCH, that would change nothing.
 * Where most would, matches are passed over before it looks again, up to 64 batches. */
void sx_pattern_drop_idle(const sx_eg *eg, const sx_eg_rule *rule, sx_match_list *found);

/* ---- who looks for matches (stamps.c, trigger.c) ---- */

typedef struct {
    sx_ctx *cx;
    const sx_eg *eg;
    const sx_eg_ruleset *set;
    /* For each rule, what it finds. */
    sx_match_list *found;
    /* For each rule: may it look in this round? */
    const bool *wanted;
    /* For each rule: is set when it found more than its limit, which makes its list useless. */
    bool *over;
    /* For each rule, how many matches it may find. */
    const uint32_t *limit;
    uint64_t work, work_limit;
    /* The search may leave out matches that would change nothing. */
    bool drops;
} sx_search;
typedef struct sx_stamps sx_stamps;
sx_code sx_stamps_make(sx_ctx *cx, sx_stamps **stamps);
/* What every wanted rule finds since its position. Stops early, with SX_OK and *done false, when the work is
 * done up. */
sx_code sx_stamps_run(sx_stamps *stamps, sx_search *search, bool *done);

/* The plans of the rules that are enabled now. */
typedef struct sx_trigger sx_trigger;
sx_code sx_trigger_make(sx_ctx *cx, const sx_eg_ruleset *set, sx_trigger **trigger);
/* The same from plans that were made before, which are only read, also by several threads at once, and live as
 * long as what is made of them. NULL, or plans of other rules: they are made anew. */
sx_code sx_trigger_share(sx_ctx *cx, const sx_trigger *made, const sx_eg_ruleset *set,
                         sx_trigger **trigger);
sx_code sx_trigger_run(sx_trigger *trigger, sx_search *search, bool *done);
#endif
