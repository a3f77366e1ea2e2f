/* multi.h - rules over several matches at once: joins, not products.
 *
 * A left side that holds the name ?shared matches one member. Members that agree on the class of ?shared, on
 * the operation of the root and on every named attribute are a bucket. Its build function is called once for
 * the bucket, whole, and unites the root of each member with a part of one merged value: N members give one
 * merged value and N parts, where a product of matches would look at N * N pairs. A left side that holds the
 * name ?apart has buckets of members that share no operand: those of one operation and one set of attributes.
 * Incremental: the ordinary search finds the members that are new or changed, and only their buckets are
 * looked at; the other members are found upwards from the class of ?shared through the lists of parents. A
 * bucket is built again only when it has grown, at most SX_MULTI_BUILDS times, so a program that feeds it one
 * member at a time stays linear too. A bucket holds one member for each class of roots, ascending by their
 * nodes, none of a node that the same round added.
 */
#ifndef SX_CORE_EGRAPH_MULTI_H
#define SX_CORE_EGRAPH_MULTI_H
#include "core/base/idmap.h"
#include "core/egraph/pattern.h"

#define SX_MULTI_BUILDS 4u
/* Nodes matched that one equality rests on: what a merged value is made of, in one piece, is at most so much. */
#define SX_MULTI_RUN_NODES 120u

/* Nodes looked at before a question of dependence is given up. */
#define SX_MULTI_REACH_MAX 20000u

/* What the buckets met before held, and room to collect one; zero at the start of a run. */
typedef struct {
    uint32_t *key; /* SX_MULTI_KEY_WORDS a bucket */
    uint32_t *size;
    uint32_t *builds;
    uint32_t *epoch;
    uint32_t bucket_count, key_capacity, size_capacity, builds_capacity, epoch_capacity;
    sx_idmap map;
    uint32_t now;        /* counts calls */
    uint32_t node_limit; /* nodes of the graph when the round began */
    uint32_t *mark;      /* per class: walk that met it */
    uint32_t mark_capacity, walk;
    uint32_t *frontier[2]; /* classes on the way up */
    uint32_t frontier_count[2], frontier_capacity[2];
    uint32_t *run; /* of the round: first node in the set's list of reasons, number of nodes */
    uint32_t run_count, run_capacity;
} sx_multi;

/* The members of the bucket at hand, as matches in the list of the round. */
typedef struct sx_bucket {
    sx_multi *multi;
    sx_eg_ruleset *set;
    const sx_match_list *found;
    uint32_t first, count;
    uint32_t stride, bind_count; /* words of a match; the nodes come first */
    uint64_t work;               /* steps of the build function, to be charged */
} sx_bucket;

/* Which of its names is ?shared; name_count if none is. */
uint32_t sx_multi_shared(const sx_pattern *left);
/* Is this the left side of such a rule? */
bool sx_multi_is(const sx_pattern *left);

/* Before the first rule of a round is applied. */
void sx_multi_begin(sx_multi *m, const sx_eg *eg);
/* Applies rule rw->rule to the buckets of the matches in `found`, to which it appends the members it collects;
 * unions go where `rw` puts them. `rw` is set but for node, var, match, bucket.
 *   fuel   added to: steps of looking for members; stops at `fuel_limit`  */
sx_code sx_multi_apply(sx_multi *m, sx_eg_ruleset *set, sx_match_list *found, sx_rewrite *rw,
                       uint64_t fuel_limit, uint64_t *fuel);
/* The reason of a pair the rule put among the pending ones with this number as its match. */
sx_code sx_multi_reason(sx_ctx *cx, const sx_multi *m, sx_eg_ruleset *set, uint32_t rule,
                        uint32_t match, uint32_t *reason);
/* The pairs that `rule` makes equal for these members, `count` matches as a run had them: for checking a step. */
sx_code sx_multi_instance(sx_ctx *cx, sx_eg *eg, const sx_eg_ruleset *set, uint32_t rule,
                          uint32_t *match, uint32_t count, sx_eg_pending *pairs);

/* For build functions: node and var become those of member i < rw->bucket->count. */
void sx_rewrite_turn(sx_rewrite *rw, uint32_t i);
/* What is declared equal from here on follows from these members, in this order, and from no others.
 *   limit  count times the nodes of a member at most SX_MULTI_RUN_NODES */
sx_code sx_rewrite_run(sx_rewrite *rw, const uint32_t *member, uint32_t count);
/* Is the root of no member below one of the `count` classes `from`, by any of their nodes? Where that holds, a
 * value made of all of them and read by every member closes no cycle. False as well if SX_MULTI_REACH_MAX
 * nodes do not decide it. */
sx_code sx_rewrite_independent(sx_rewrite *rw, const uint32_t *from, uint32_t count,
                               bool *independent);
/* The same with the roots of these members alone; NULL: of the first `member_count`. */
sx_code sx_rewrite_independent_of(sx_rewrite *rw, const uint32_t *from, uint32_t count,
                                  const uint32_t *member, uint32_t member_count, bool *independent);
/* Members that one run may hold. */
static inline uint32_t sx_rewrite_run_max(const sx_rewrite *rw)
{
    return SX_MULTI_RUN_NODES / rw->bucket->bind_count;
}
#endif
