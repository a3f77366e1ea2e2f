/* optimizer.h - the state of level 1 while it works on one program (optimize.h), shared by the files that implement
 * it. Internal to core/egraph. */
#ifndef SX_CORE_OPTIMIZE_OPTIMIZER_H
#define SX_CORE_OPTIMIZE_OPTIMIZER_H
#include "core/optimize/fuse.h"
#include "core/store/memory.h"
#include "core/optimize/optimize.h"

/* What a node costs with each run, as long as the same of its children are weights, and 1; 0: not known. */
typedef struct {
    uint64_t cost[2]; /* as a kernel of its own; inside a kernel, as far as that is foreseen */
    uint32_t weights;
} sx_known_cost;

typedef struct {
    sx_ctx *cx;
    const sx_graph *in;
    const sx_device *device;
    const sx_optimize_options *options;
    sx_optimize_report *report;
    sx_tensors *t;
    sx_eg_ruleset set;
    uint32_t *input_node; /* the e-node of each node of the input */
    uint32_t *root;       /* the e-nodes of the outputs */
    bool enabled[SX_RULE_COUNT];
    uint64_t fuse_fuel;
    sx_fuse_pairs pairs;
    sx_fuse_steps steps;
    /* Operations whose fusion has been tried, so that their cost as part of a kernel is known. NULL before that. */
    bool *tried;
    uint32_t tried_count;
    sx_memory_graph *known;       /* the e-graph that an earlier search left, or NULL */
    struct sx_price_view *prices; /* prices of nodes seen before (prices.c) */
    sx_known_cost *cost;          /* by node */
    uint32_t cost_capacity;
} sx_optimizer;

/* Level 1 extracts a program several times: before fusion, to choose the programs that are fused, and after it. Fusion
 * changes what an operation costs: an addition that runs inside the kernel of a matrix product reads and
 * writes no memory of its own. The kinds differ in which nodes may be chosen and in how much of that is assumed. */
typedef enum {
    /* Operations only. Each one costs what it would as a kernel of its own. */
    SX_COST_OPERATIONS,
    /* Operations only. Elementwise operations and views cost the small share that usually remains of them after
     * fusion; all others cost what they would as kernels of their own. */
    SX_COST_FORESEEN,
    /* Operations and kernels. An operation whose fusion has been tried costs as a kernel of its own, because the
     * kernels that came of it can be chosen instead; one that has not been tried costs as for SX_COST_FORESEEN.
     * The cheapest program then shows which operations are worth fusing next. */
    SX_COST_HOPED,
    /* Operations and kernels. Every node costs what it would as a kernel of its own: the final choice. */
    SX_COST_KERNELS
} sx_cost_kind;

/* optimize.c: the cost of each node under the objective; the program that is cheapest by `cost`; and the kernels that
 * can be made of the program of a choice, added to the e-graph. */
sx_code sx_optimizer_costs(sx_optimizer *o, sx_cost_kind kind, uint64_t **cost);
sx_code sx_optimizer_extract(sx_optimizer *o, sx_cost_kind kind, const uint64_t *cost,
                             uint64_t fuel, sx_extracted *best);
sx_code sx_optimizer_fuse(sx_optimizer *o, const uint32_t *choice, bool again,
                          const uint32_t *before, bool *fresh);

/* prices.c: what a node costs as a kernel of its own (sx_price_node), where the children `weights`
 * (sx_optimizer_weights) are weights. Nodes that are alike are priced once: in all parts of a program, if their options
 * have the same table of prices. A table is in the arena of the cx that it was made with, and points to no e-graph that
 * it was used with. It is left aside where the device is another, or a symbol counts as another extent. Parts that are
 * worked on side by side may use one table, if that cx has their team. */
sx_code sx_optimizer_price(sx_optimizer *o, uint32_t node, uint32_t weights, sx_cost *cost);
/* Which children of a node are weights, as a set of 1 << child. */
uint32_t sx_optimizer_weights(const sx_tensors *t, uint32_t node);
sx_code sx_prices_make(sx_ctx *cx, const sx_device *device, const sx_symbol *symbol,
                       uint32_t symbol_count, struct sx_prices **prices);
uint32_t sx_prices_count(const struct sx_prices *prices);

/* optimize.c: sx_optimize_cost, by prices that are known. */
sx_code sx_optimizer_cost(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                          const sx_objective *objective, struct sx_prices *prices, double *cost);

/* again.c: a search that goes on with the e-graph of an earlier one. The functions say which e-nodes are
 * kernels that the earlier search tried; which program it chose; fuse programs drawn by slightly wrong costs; and write
 * the e-graph for the search after this one. */
sx_code sx_optimizer_known_kernels(sx_optimizer *o, bool **kernel);
void sx_optimizer_known_choice(const sx_optimizer *o, uint32_t *start);
sx_code sx_optimizer_fuse_samples(sx_optimizer *o);
sx_code sx_optimizer_leave(sx_optimizer *o, const uint32_t *choice, uint32_t kernel_first);
#endif
