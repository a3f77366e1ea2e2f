/* extract.h - the cheapest program in an e-graph, a shared value paid once.
 *
 * A program is a choice of one node for some classes: for the classes of the roots, and for every child of a
 * chosen node; without cycles. Its cost is the sum over the chosen nodes (DAG cost); a node that reads a class
 * twice pays it once. The e-graph becomes a problem on flat arrays for the ladder of core/extract/extract.h,
 * and the answer a choice of its nodes. The result is never worse than the start. Same graph, same fuel: same result.
 */
#ifndef SX_CORE_EGRAPH_EXTRACT_H
#define SX_CORE_EGRAPH_EXTRACT_H
#include "core/egraph/egraph.h"

#define SX_COST_NEVER UINT64_MAX        /* cost of a node that must not be chosen */
#define SX_COST_MAX (UINT64_C(1) << 60) /* costs above count as this */

typedef struct {
    /* [node_count] what each node costs. */
    const uint64_t *cost;
    /* The nodes whose classes the program must compute. */
    const uint32_t *root;
    uint32_t root_count;
    /* [node_count] for each class the node of a program at hand, which is to be beaten; or NULL. */
    const uint32_t *start;
    /* As sx_xt_options.fuel. */
    uint64_t fuel;
} sx_extraction;
typedef struct {
    /* [node_count] for each class the node that was chosen; SX_EG_NONE where the program does not need the
     * class. */
    uint32_t *choice;
    uint64_t cost;
    /* No program of this graph costs less. */
    uint64_t lower_bound;
    /* It was shown that no program of this graph is cheaper. */
    bool proven;
    /* How much fuel was spent. */
    uint64_t fuel;
} sx_extracted;

/* errors   SX_INTERNAL no program exists for the roots */
sx_code sx_eg_extract(sx_ctx *cx, const sx_eg *eg, const sx_extraction *wanted,
                      sx_extracted *result);
/* Walks programs of one graph again and again without allocating. */
typedef struct {
    /* For each class: 2 * epoch while it is open, 2 * epoch + 1 when it is done. */
    uint32_t *mark;
    uint32_t *stack;
    /* For each slot of the stack: the child that comes next. */
    uint32_t *next;
    /* The classes of the program that was walked last, children first. */
    uint32_t *order;
    uint32_t order_count;
    uint32_t epoch;
} sx_walker;
sx_code sx_walker_init(sx_ctx *cx, const sx_eg *eg, sx_walker *walker);
/* The program a choice makes; false on a cycle or a hole. `cost` NULL: every node costs 1. */
bool sx_walker_run(sx_walker *walker, const sx_eg *eg, const uint64_t *cost, const uint32_t *root,
                   uint32_t root_count, const uint32_t *choice, uint64_t *total);
#endif
