/* plan.h - how a program runs on a mesh: a placement for every value, and the collectives between them.
 *
 * Along one axis the question is a problem of core/extract: its classes are (value, placement), its nodes the
 * rows of every operation (core/ir/shard.h) and the collectives that bring a value from one placement to
 * another. So a value brought to a placement is brought there once for all readers, an operation runs in two
 * ways where that is cheaper, and the answer comes with the word "proven" where no plan along this axis is
 * cheaper. Over an e-graph the nodes of a class are all its members: the cheapest of all equal programs as
 * they lie. Axes are planned one after the other, each on the pieces and with the collectives that the ones
 * before have made, in every order; the fastest plan is taken. An axis of one device, and one along which
 * nothing is placed, is left out.
 *
 * Costs are nanoseconds for one device: the work on its pieces by core/cost, collectives by volume and steps.
 * Of b bytes among n devices a device sends b (n-1)/n for an all-gather (b of the result), reduce-scatter or
 * all-to-all (b of the operand), twice that for an all-reduce, in log2 n steps, twice for an all-reduce.
 * Symbols count as sx_cost_reference, rounded up to what the cuts divide. Outputs of which nothing is asked
 * may lie in any way but P.
 * Papers: Xu et al. 2021 (GSPMD); Zheng et al. 2022 (Alpa); Thakur, Rabenseifner, Gropp 2005 (collectives). */
#ifndef SX_CORE_SHARD_PLAN_H
#define SX_CORE_SHARD_PLAN_H
#include "core/cost/cost.h"
#include "core/egraph/sharding.h"

typedef enum {
    SX_PLAN_COMPUTE, /* the operation, on the pieces */
    SX_PLAN_KEEP,    /* of what every device has, its piece: nothing is sent */
    SX_PLAN_ALL_GATHER,
    SX_PLAN_REDUCE_SCATTER,
    SX_PLAN_ALL_REDUCE,
    SX_PLAN_ALL_TO_ALL,
    SX_PLAN_KIND_COUNT
} sx_plan_kind;
const char *sx_plan_kind_name(sx_plan_kind kind); /* "compute", ..., "all-to-all" */

typedef struct {
    /* The node whose value is made or moved. */
    uint32_t node;
    sx_plan_kind kind;
    /* The axis of the mesh along which it is moved, and how it lies before and after; not for COMPUTE. */
    uint32_t axis;
    sx_shard_place from, to;
    /* How the value lies after the step. */
    sx_places places;
    /* What one device holds of it. */
    sx_type local;
    /* How many bytes one device sends. */
    double bytes;
    double ns;
    /* Of COMPUTE: the attributes of the operation on the pieces. */
    const sx_attr *attr;
    /* The operands are sx_plan.operand[operand_first] and those behind it, numbers of steps. */
    uint32_t operand_first, operand_count;
} sx_plan_step;
typedef struct {
    /* Operands stand before the steps that use them; parameters are among them. */
    sx_plan_step *step;
    uint32_t step_count;
    uint32_t *operand;
    /* [output_count of the graph] the step that makes each output. */
    uint32_t *output;
    double compute_ns, collective_ns, collective_bytes;
    uint32_t collective_count;
    /* The plan is the cheapest along each axis, given those that were planned before it. */
    bool proven;
} sx_plan;

/* Plans `graph` as it is; it has a sharding.
 *   fuel     as sx_xt_options, for each axis
 *   errors   SX_INPUT no value of a symbol is cut evenly by all parameters; SX_NOMEM */
sx_code sx_plan_make(sx_ctx *cx, const sx_graph *graph, const sx_device *device, uint64_t fuel,
                     sx_plan **plan);

/* Programs in an e-graph with a mesh. `cost`: of each node in thousandths of nanoseconds, everything on one
 * device; the share that the pieces have of its work is taken. */
typedef struct {
    const sx_tensors *t;
    const sx_device *device;
    /* [node_count] SX_COST_NEVER for nodes that are not to be used. */
    const uint64_t *cost;
    /* The nodes of the outputs of t->mesh->program, in their order. */
    const uint32_t *root;
    uint64_t fuel;
} sx_plan_space;
/* What the program of a choice costs on the mesh; INFINITY where the choice has a cycle. */
sx_code sx_plan_cost(sx_ctx *cx, const sx_plan_space *space, const uint32_t *choice, double *ns);
/* The cheapest program of all along `axis` alone, as a choice [node_count]; *found false where the axis is
 * left out, or its classes chose members that make no program together. */
sx_code sx_plan_propose(sx_ctx *cx, const sx_plan_space *space, uint32_t axis, uint32_t *choice,
                        bool *found);
#endif
