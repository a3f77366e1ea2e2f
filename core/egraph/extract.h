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
    const uint64_t *cost; /* [node_count] */
    const uint32_t *root; /* nodes whose classes are wanted */
    uint32_t root_count;
    const uint32_t *start; /* [node_count] a choice to beat, per class, or NULL */
    uint64_t fuel;         /* as sx_xt_options.fuel */
} sx_extraction;
typedef struct {
    /* [node_count] per class: the node chosen, SX_EG_NONE where the program does not need the
     * class */
    uint32_t *choice;
    uint64_t cost;
    uint64_t lower_bound; /* no program of this graph costs less */
    bool proven;          /* no cheaper program exists in this graph */
    uint64_t fuel;        /* spent */
} sx_extracted;

/* errors   SX_INTERNAL no program exists for the roots */
sx_code sx_eg_extract(sx_ctx *cx, const sx_eg *eg, const sx_extraction *wanted,
                      sx_extracted *result);
/* Walks programs of one graph again and again without allocating. */
typedef struct {
    uint32_t *mark; /* per class: 2 * epoch while open, 2 * epoch + 1 when done */
    uint32_t *stack;
    uint32_t *next;  /* per stack slot: next child */
    uint32_t *order; /* classes of the last program walked, children first */
    uint32_t order_count;
    uint32_t epoch;
    uint64_t work; /* nodes and edges seen so far */
} sx_walker;
sx_code sx_walker_init(sx_ctx *cx, const sx_eg *eg, sx_walker *walker);
/* The program a choice makes; false on a cycle or a hole. `cost` NULL: every node costs 1. */
bool sx_walker_run(sx_walker *walker, const sx_eg *eg, const uint64_t *cost, const uint32_t *root,
                   uint32_t root_count, const uint32_t *choice, uint64_t *total);
#endif
