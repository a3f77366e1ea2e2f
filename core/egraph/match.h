/* match.h - rules as text, looking for their left sides, and rounds of rewriting until nothing new appears.
 *
 * Pattern text:   ?x            any class; the same name again means the same class
 *                 ?x=(...)      the class matched by (...), named
 *                 (add ?x ?y)   a node of this operation; (name@p ...) names its attribute: the same name,
 *                               equal attributes
 *                 (*set ?x)     a node of any operation in a set the language names
 *                 (op ...)      three dots: whatever children it has
 *                 0.5           a class known to hold only this value (bit for bit)
 *                 ?shared       makes the left side one member of a bucket, see multi.h
 * A right side is text of the same form, over the names of the left side, or a C function for what needs
 * computed shapes.
 *
 * Matching is incremental: each rule remembers how much of the graph's log it has seen, and gets the matches
 * of which at least one node is new or changed since (trigger.c; stamps.c, after Detlefs, Nelson, Saxe 2005,
 * is the oracle of the tests). In a round all rules search the graph as it stands, then right sides are added
 * and united, then the graph is rebuilt: what a round ends with is the closure of the graph, the right sides
 * and their equations, whenever the unions are made (saturate.c makes them early where it may). Determinism:
 * rules in table order, classes in the order of the log; counts limit work, never a clock.
 */
#ifndef SX_CORE_EGRAPH_MATCH_H
#define SX_CORE_EGRAPH_MATCH_H
#include "core/egraph/egraph.h"

/* EXACT: bit-equal for all inputs. REASSOCIATING: equal over the reals. APPROXIMATE: within a stated bound. */
typedef enum { SX_RULE_EXACT, SX_RULE_REASSOCIATING, SX_RULE_APPROXIMATE } sx_rule_class;
const char *sx_rule_class_name(sx_rule_class rule_class);
/* What a rule does to the range of the values between operands and result: range.def says it. */
typedef enum { SX_RANGE_KEEPS, SX_RANGE_CONTRACTS, SX_RANGE_FOLDS, SX_RANGE_MOVES } sx_rule_range;

#define SX_PATTERN_NODES_MAX 32u
#define SX_PATTERN_NAMES_MAX 16u
#define SX_PATTERN_DEPTH_MAX 12u

/* Members of classes that a build function picked besides the nodes matched, in the order it did. */
#define SX_REWRITE_PICKS_MAX 64u
typedef struct {
    uint32_t node[SX_REWRITE_PICKS_MAX];
    uint32_t count;
    bool again;    /* a step is checked: `node` says what is to be picked, */
    uint32_t next; /* this one is next */
} sx_rewrite_picks;

/* Equalities that wait for the end of the round: from, to, rule, match, and where their picks stand in `pick`:
 * how many nodes were picked and how many numbers were read, and then the nodes of both. */
#define SX_PENDING_WORDS 5u
typedef struct {
    uint32_t *word;
    uint32_t count, capacity;
    uint32_t *pick;
    uint32_t pick_count, pick_capacity;
    struct sx_eg_ruleset *set; /* NULL: their reasons are nobody's concern */
    /* that the unions of the round will add to it: the room is taken */
    uint32_t reasons, reason_nodes, readings;
} sx_eg_pending;

typedef struct {
    sx_ctx *cx;
    sx_eg *eg;
    void *self;           /* the language's */
    const uint32_t *node; /* matched nodes, in the order of the text; node[0] is the root */
    const uint32_t *var;  /* classes of the names, in the order of first mention */
    uint32_t rule;
    uint32_t match;           /* place of the match in its round */
    struct sx_bucket *bucket; /* rules over several matches (multi.h), else NULL */
    sx_eg_pending *pending;
    sx_rewrite_picks *picks; /* NULL for rules over several matches, which pick nothing */
    bool unguarded; /* tests that only keep the graph small do not apply: a step is being checked */
    /* those of them that ask who else reads what a rule opens do not apply (sx_eg_limits) */
    bool open;
} sx_rewrite;
/* Declares that the root of the match equals node `to`; may be called more than once, or not at all. */
sx_code sx_rewrite_to(sx_rewrite *rewrite, uint32_t to);
/* Declares that `from`, any node, equals `to`. */
sx_code sx_rewrite_pair(sx_rewrite *rewrite, uint32_t from, uint32_t to);
typedef sx_code (*sx_rewrite_build)(sx_rewrite *rewrite);
/* A build function that looks for a member of a class asks of each that fits whether it may have it, and then
 * has it. */
bool sx_rewrite_pick(const sx_rewrite *rewrite, uint32_t node);

typedef struct {
    const char *name;
    sx_rule_class rule_class;
    const char *left;
    const char *right; /* NULL where `build` does it */
    sx_rewrite_build build;
} sx_rule;

/* What patterns mean: names of operations, values of classes, and typed insertion. */
typedef struct {
    void *self;
    bool (*ops)(void *self, sx_span name, bool is_set, sx_bits *ops);
    /* Of the record of the class, or of nothing but its members without children. */
    bool (*is_value)(void *self, const sx_eg *eg, uint32_t class_, double value);
    /* *node SX_EG_NONE: such a node cannot be (ill-typed); the match is then passed over. */
    sx_code (*make_value)(sx_ctx *cx, void *self, sx_eg *eg, uint32_t like, double value,
                          uint32_t *node);
    /* NULL: any node can be, and right sides are built in batches. */
    sx_code (*make_node)(sx_ctx *cx, void *self, sx_eg *eg, uint16_t op, uint32_t attr,
                         const uint32_t *child, uint32_t arity, uint32_t *node);
    /* The node by which the record of the class came to name a number, or SX_EG_NONE. NULL: records name none. */
    uint32_t (*number_from)(const void *self, const sx_eg *eg, uint32_t class_);
} sx_eg_language;

typedef struct {
    const sx_rule *rule;
    const struct sx_pattern *left;
    const struct sx_pattern *right;
    bool enabled;
    uint32_t seen;         /* how many nodes it has looked at */
    uint32_t seen_changed; /* how many entries of the log of changes it has looked at */
    /* The value of sx_eg.changed_lost at that time. If it has another value now, entries of the log are lost and the
     * rule looks at all nodes again. */
    uint32_t seen_lost;
    /* the first round in which the rule may search again after too many matches */
    uint32_t banned_to;
    uint32_t bans; /* how often it had too many */
    uint64_t match_count;
    uint64_t union_count;
} sx_eg_rule;
/* Why a union was made: the rule and the nodes its left side matched. Unions of the engine carry numbers of these. */
typedef struct {
    uint32_t rule;
    /* into sx_eg_ruleset.reason_node, in the order of the text; then those picked */
    uint32_t node_first, node_count;
} sx_eg_reason;
/* A build function may read the numbers of classes. Classes of several numbers grow together later, so what it
 * could read of the nodes matched and picked, and of their children, is written down: the reason, and the node
 * by which the class had its number. */
typedef struct {
    uint32_t reason, from;
} sx_eg_reading;
#define SX_EG_READINGS_MAX 64u /* of one reason */
typedef struct sx_eg_ruleset {
    sx_eg_language language;
    sx_eg_rule *rule;
    uint32_t rule_count;
    sx_eg_reason *reason;
    uint32_t reason_count, reason_capacity;
    uint32_t *reason_node;
    uint32_t reason_node_count, reason_node_capacity;
    /* Ascending by reason. Those of reasons that were loaded from a store are not known. */
    sx_eg_reading *reading;
    uint32_t reading_count, reading_capacity;
} sx_eg_ruleset;

/* What a rule has seen of a graph: nodes below `node`, entries of the log of changes below `changed`. */
typedef struct {
    uint32_t node, changed;
} sx_eg_position;
static inline sx_eg_position sx_eg_rule_position(const sx_eg *eg, const sx_eg_rule *rule)
{
    bool lost = rule->seen_lost != eg->changed_lost || rule->seen == 0;
    return lost ? (sx_eg_position){0, eg->changed_count}
                : (sx_eg_position){rule->seen, rule->seen_changed};
}
static inline void sx_eg_rule_set_position(sx_eg *eg, sx_eg_rule *rule, sx_eg_position seen)
{
    rule->seen = seen.node;
    rule->seen_changed = seen.changed;
    rule->seen_lost = eg->changed_lost;
    eg->old_count = eg->old_count > seen.node ? eg->old_count : seen.node;
}

sx_code sx_eg_reason_add(sx_ctx *cx, sx_eg_ruleset *set, uint32_t rule, const uint32_t *node,
                         uint32_t node_count, const uint32_t *pick, uint32_t pick_count,
                         uint32_t *reason);
/* Writes down the numbers that these nodes and their children are now, as what the last reason may have read. */
sx_code sx_eg_reading_add(sx_ctx *cx, const sx_eg *eg, sx_eg_ruleset *set, const uint32_t *node,
                          uint32_t node_count);

/* Parses every rule; all are enabled.  errors  SX_INPUT rule name, column, what was expected */
sx_code sx_eg_ruleset_init(sx_ctx *cx, sx_eg_ruleset *set, const sx_eg_language *language,
                           const sx_rule *rule, uint32_t rule_count);

/* What rule number `rule` makes of one match, given as in sx_rewrite: equalities of nodes are appended to
 * `pairs`, none where its side conditions do not hold. Classes of `var` are canonical, or SX_EG_NONE where the
 * left side has no such name. `pick` are the nodes it picked when it was found. */
sx_code sx_eg_instance(sx_ctx *cx, sx_eg *eg, const sx_eg_ruleset *set, uint32_t rule,
                       const uint32_t *node, const uint32_t *var, const uint32_t *pick,
                       uint32_t pick_count, sx_eg_pending *pairs);

typedef enum {
    SX_STOP_SATURATED,
    SX_STOP_FUEL,
    SX_STOP_NODES,
    SX_STOP_BYTES,
    SX_STOP_ROUNDS,
    SX_STOP_CANCELLED
} sx_eg_stop;
const char *sx_eg_stop_name(sx_eg_stop stop);

typedef struct {
    uint32_t rounds;
    uint32_t nodes; /* in the graph, dead ones included */
    /* Matches of one rule in one round. A rule that has more waits for some rounds, and is then allowed twice
     * as many. */
    uint32_t matches;
    uint64_t fuel; /* one for each step of matching and each node that is added */
    /* Bytes taken from the arena since the call. It is never exceeded while matches are applied. */
    size_t bytes;
    bool check; /* run sx_eg_check after every rebuild; Debug builds always do */
    /* Match by modification stamps instead of triggers. That is slower; it is the oracle of the tests. */
    bool stamps;
    /* Plans of the rules, made before (pattern.h), or NULL. */
    const struct sx_trigger *plans;
    /* Rules may also rewrite the inside of values that something else reads. The graph then holds more
     * programs and grows much faster. */
    bool open;
} sx_eg_limits;
typedef struct {
    sx_eg_stop stop;
    uint32_t rounds;
    uint64_t fuel;
} sx_eg_run;

/* Rounds of rewriting with the enabled rules until nothing changes or a limit binds. Whatever the stop reason,
 * the graph is rebuilt and valid, and a later call goes on where this one ended. */
sx_code sx_eg_saturate(sx_ctx *cx, sx_eg *eg, sx_eg_ruleset *set, const sx_eg_limits *limits,
                       sx_eg_run *run);
#endif
