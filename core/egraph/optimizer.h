/* optimizer.h - what the files of the stage share (optimize.h). Internal to core/egraph. */
#ifndef SX_CORE_EGRAPH_OPTIMIZER_H
#define SX_CORE_EGRAPH_OPTIMIZER_H
#include "core/egraph/fuse.h"
#include "core/egraph/memory.h"
#include "core/egraph/optimize.h"

typedef struct {
    sx_ctx *cx;
    const sx_graph *in;
    const sx_device *device;
    const sx_optimize_options *options;
    sx_optimize_report *report;
    sx_tensors *t;
    sx_eg_ruleset set;
    uint32_t *input_node; /* e-node of every node of the input */
    uint32_t *root;       /* e-nodes of the outputs */
    bool enabled[SX_RULE_COUNT];
    uint64_t fuse_fuel;
    sx_fuse_pairs pairs;
    bool *
        tried; /* nodes of programs that are fused already: what they will cost is known; or NULL */
    uint32_t tried_count;
    sx_memory_graph *known;   /* what an earlier search left, or NULL */
    struct sx_prices *prices; /* of nodes seen before (prices.c) */
} sx_optimizer;

typedef enum {
    SX_COST_OPERATIONS, /* each a kernel */
    SX_COST_FORESEEN,   /* operations: what elementwise ones and views will cost inside a kernel */
    SX_COST_HOPED, /* the same, and kernels; operations that have been fused as they came out */
    SX_COST_KERNELS
} sx_cost_kind;

/* optimize.c: what each node costs by the objective; by `cost`, the program; kernels of the program of a choice. */
sx_code sx_optimizer_costs(sx_optimizer *o, sx_cost_kind kind, uint64_t **cost);
sx_code sx_optimizer_extract(sx_optimizer *o, sx_cost_kind kind, const uint64_t *cost,
                             uint64_t fuel, sx_extracted *best);
sx_code sx_optimizer_fuse(sx_optimizer *o, const uint32_t *choice, bool again,
                          const uint32_t *before, bool *fresh);

/* prices.c: what a node costs as a kernel of its own (sx_price_node), asked once for all nodes like it. */
sx_code sx_optimizer_price(sx_optimizer *o, uint32_t node, sx_cost *cost);

/* optimizer_again.c */
sx_code sx_optimizer_known_kernels(sx_optimizer *o, bool **kernel);
void sx_optimizer_known_choice(const sx_optimizer *o, uint32_t *start);
sx_code sx_optimizer_fuse_samples(sx_optimizer *o);
sx_code sx_optimizer_leave(sx_optimizer *o, const uint32_t *choice, uint32_t kernel_first);
#endif
