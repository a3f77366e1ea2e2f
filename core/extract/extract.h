/* extract.h - the cheapest program of an extraction problem, a shared value paid once, with a proven lower bound.
 *
 * A problem is an e-graph without its meaning: classes, nodes, the classes each node reads, a cost per node,
 * the classes wanted. A program picks one node for every class wanted and for every class a picked node reads,
 * without cycles. Its DAG cost is the sum over the picked nodes; its tree cost counts a class once for every
 * reader. The least tree cost is found in O(E log V) (Knuth 1977); the least DAG cost is NP-hard. The ladder,
 * each rung starting from the best so far:
 *   1. tree costs            tree.c
 *   2. reductions            reduce.c    unreachable classes, self loops, nodes that need their own class,
 *                                        dominated nodes, nodes over the best cost, classes every program holds,
 *                                        single readers, independent parts
 *   3. greedy sets, descent  greedy.c, descend.c
 *   4. Lagrangian bound      relax.c     with transitive "needs" as constraints; nodes whose reduced
 *                                        cost is too high go
 *   5. landmark cuts         cuts.c      a bound where the relaxation is weak
 *   6. branch and reduce     branch.c    on classes every program holds; ends with a proof, or when the fuel is used up
 *
 * Arithmetic: costs are doubles >= 0. Tree costs are sums of doubles in one fixed order. DAG costs are whole
 * multiples of a power of two, the unit: the program of the tree optimum costs between 2^49 and 2^50 units,
 * each node is rounded to the nearest unit, so sums are exact and do not depend on order. Costs that are
 * multiples of the unit (all whole numbers up to 2^50, say) are exact. `dag_cost` adds the doubles of the
 * picked nodes again, children first. Same problem, same fuel: same answer on every machine.
 *
 * Papers: Knuth 1977 (tree costs); Held, Karp 1971 (subgradient bounds); Helmert, Domshlak 2009 (landmark
 * cuts: a program is a plan without deletes); Sun et al. 2024, arXiv 2408.17042 (simplification).
 */
#ifndef SX_CORE_EXTRACT_EXTRACT_H
#define SX_CORE_EXTRACT_EXTRACT_H
#include "core/base/base.h"

#define SX_XT_NONE UINT32_MAX
#define SX_XT_CLASSES_MAX (UINT32_C(1) << 28)

/* Flat arrays in the arena of the request. The nodes of class c are node_first[c] .. node_first[c + 1), and
 * may be none; the classes node n reads are child[edge_first[n] .. edge_first[n + 1]), one may occur twice. */
typedef struct {
    uint32_t class_count, node_count, edge_count, root_count;
    uint32_t *node_first; /* [class_count + 1] */
    uint32_t *edge_first; /* [node_count + 1] */
    uint32_t *child;      /* [edge_count] */
    double *cost;         /* [node_count] >= 0; INFINITY: not to be picked */
    uint32_t *root;       /* [root_count] classes wanted, each once */
} sx_xt;

/* Room for the counts given; the arrays are zero. SX_LIMIT, SX_NOMEM. */
sx_code sx_xt_init(sx_ctx *cx, sx_xt *problem, uint32_t class_count, uint32_t node_count,
                   uint32_t edge_count, uint32_t root_count);
/* Every index in its range, costs neither negative nor NaN, roots once each. SX_INPUT names the node or root. */
sx_code sx_xt_check(sx_ctx *cx, const sx_xt *problem);

/* Least tree costs; ties go to the smaller of the nodes known when the class is settled. No program: INFINITY,
 * SX_XT_NONE. */
typedef struct {
    double *cost;     /* [class_count] */
    uint32_t *choice; /* [class_count] node, or SX_XT_NONE */
    double total;     /* over the roots; INFINITY where one has no program, or beyond the doubles */
} sx_xt_tree;
sx_code sx_xt_tree_run(sx_ctx *cx, const sx_xt *problem, sx_xt_tree *tree);

typedef enum {
    SX_XT_PROVEN,   /* the answer is the least */
    SX_XT_FUEL,     /* the fuel is used up */
    SX_XT_DEADLINE, /* `expired` said so: the answer may differ from run to run */
    SX_XT_SIZE,     /* parts of the ladder are not tried on problems this large */
} sx_xt_stop;
const char *sx_xt_stop_name(sx_xt_stop stop);

#define SX_XT_FUEL_DEFAULT UINT64_C(8000000000)
typedef struct {
    uint64_t fuel;               /* words and edges looked at; about 1 ns each */
    bool (*expired)(void *self); /* a deadline, or NULL; asked about every millisecond */
    void *expired_self;
    /* [class_count] a program to beat, or NULL; one that is no program is left aside */
    const uint32_t *start;
} sx_xt_options;
typedef struct {
    uint32_t *choice; /* [class_count] node, SX_XT_NONE where the program does not need the class */
    double dag_cost;
    double greedy_cost; /* best of tree and greedy sets */
    double tree_cost;   /* DBL_MAX: beyond the doubles */
    double lower_bound; /* <= dag_cost; equal to it when proven */
    bool proven;
    sx_xt_stop stop;
    uint64_t fuel; /* spent */
} sx_xt_answer;

/* errors   SX_INPUT a root has no program; SX_CANCELLED; SX_NOMEM. The problem must have passed sx_xt_check. */
sx_code sx_xt_solve(sx_ctx *cx, const sx_xt *problem, const sx_xt_options *options,
                    sx_xt_answer *answer);

/* Walks a choice: false on a cycle, a hole or a node of another class. `order` [class_count]: the classes met,
 * children first. `cost` is the sum in that order. Memory for the walk in cx's arena: SX_NOMEM. */
typedef struct {
    uint32_t *order;
    uint32_t order_count;
    double cost;
    bool whole;
} sx_xt_walk;
sx_code sx_xt_walk_run(sx_ctx *cx, const sx_xt *problem, const uint32_t *choice, sx_xt_walk *walk);
#endif
