/* search.h - chooses a schedule for one kernel (level 2) by the analytical model of core/cost.
 *
 * All schedules of the kernel are enumerated. Three phases drop those that cannot be good:
 *   roofline    the schedule cannot keep the multiply-add units busy
 *   alignment   its register blocks do not fill the vector unit, or are larger than the problem
 *   resources   it needs more registers, or more of the L1 and L2 caches, than there are
 * The others are ranked by sx_cost_schedule; of equally cheap ones the first wins, so the same input gives the same
 * ranking. No estimate lies below the roofline floor of the whole problem.
 */
#ifndef SX_CORE_SEARCH_SEARCH_H
#define SX_CORE_SEARCH_SEARCH_H
#include "core/cost/cost.h"

struct sx_target;

/* A contraction on a device whose target runs blocks of threads (bindings of core/target) has block schedules beside
 * those of the loop IR. Where the target has a matrix instruction for what is multiplied, these come first whatever
 * the others cost, because they round in another way and a row must have the same bits in every batch: which is taken
 * follows from types and target alone. Block schedules without matrix instructions give the bits of the loop IR, so
 * there the cheapest one wins. */
#define SX_SEARCH_KEEP 8
typedef struct {
    sx_schedule schedule;
    double cost_ns;
} sx_search_candidate;
typedef struct {
    uint32_t keep;                            /* how many candidates are kept */
    sx_search_candidate best[SX_SEARCH_KEEP]; /* the cheapest ones, in ascending order of cost */
    uint32_t best_count;
    /* So many of them, the first ones, multiply by matrix instructions. They and the others are in ascending order of
     * cost each for themselves. */
    uint32_t matrix_count;
    /* Places are left, which sx_search_rest fills: with those that are `dearer`, or with schedules of the loop IR. */
    bool more, dearer;
    uint32_t considered; /* how many schedules the space has */
    /* Schedules that were not priced, because a part of them alone costs more than those that are kept. */
    uint32_t dropped_bound;
    uint32_t dropped_roofline; /* this and the next two: schedules that were dropped, by phase */
    uint32_t dropped_alignment;
    uint32_t dropped_resources;
    double floor_ns; /* roofline floor of the kernel on this device */
} sx_search_result;

/* Ranks the schedules of a kernel and keeps the `keep` (1 .. SX_SEARCH_KEEP) cheapest ones. `rhs_constant` is as for
 * sx_cost_schedule.
 *   errors   SX_UNIMPLEMENTED there is no code generator for the device; SX_LIMIT more blocks than a launch has, where
 *            only blocks have the numerics plan of the types */
sx_code sx_search_kernel(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                         bool rhs_constant, uint32_t keep, sx_search_result *result);

/* The same in two steps. Where matrix instructions come first, schedules of the loop IR are taken only if no block
 * schedule can be emitted, whatever they cost: the first step leaves them out and the second one finds them. Where
 * blocks without these compete with the loop IR, the first step has the cheapest half, the second one the others. */
sx_code sx_search_first(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                        bool rhs_constant, uint32_t keep, sx_search_result *result);
sx_code sx_search_rest(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                       bool rhs_constant, sx_search_result *result);
/* After the first step: those with the same matrix instruction whose threads hold half as many sums at most as any that
 * is kept; `result` has them alone, `matrix_count` 0 where there is none. For blocks that the assembler of a machine
 * does not take: their numerics plan stays. */
sx_code sx_search_smaller(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                          sx_search_result *result);
/* The first step, but every schedule that fits is priced: nothing is dropped because a part of it alone costs too much.
 * It finds the same schedules and takes longer. */
sx_code sx_search_exhaustive(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                             bool rhs_constant, uint32_t keep, sx_search_result *result);

/* Which side of a product the rows stand on: sx_block_tiles.swapped. */
typedef enum { SX_SIDES_BOTH, SX_SIDES_PLAIN, SX_SIDES_SWAPPED } sx_search_sides;
/* The block schedules of a contraction alone, on a device with the laws of blocks: those that multiply by a matrix
 * instruction, or by the lanes of threads (`matrix` NULL). None is kept where `analysis` is no contraction that blocks
 * compute. */
sx_code sx_search_block(sx_ctx *cx, const sx_analysis *analysis, const sx_device *device,
                        const sx_matrix_instruction *matrix, sx_search_sides sides, uint32_t keep,
                        sx_search_result *result);
/* How many of a target's matrix instructions a device may use: those that round what they multiply if it allows it. */
uint32_t sx_search_matrices(const sx_device *device, const struct sx_target *target);
/* The instruction by which a contraction is multiplied on a target, one of `matrix`; NULL: none of them. */
const sx_matrix_instruction *sx_search_matrix(const sx_analysis *analysis,
                                              const sx_matrix_instruction *matrix, uint32_t count);
/* The unit for sx_rows_apart where a copy of an argument comes before its product; 0: all are read where they lie. */
int64_t sx_search_copies_rows(const sx_analysis *analysis, const sx_matrix_instruction *matrix,
                              uint32_t count);

/* price.c: what one node costs as a kernel of its own, under the schedule that the search would choose: the
 * one price that level 1 extracts by and level 2 reports. Operations that are one loop nest are lifted; the
 * rest (concatenate, gather, pad ...) move bytes, and 0 for parameter, constant and reshape. Symbols count as
 * sx_cost_reference.
 *   constant  set of 1 << input, for the first SX_FUSED_ARGS_MAX: depends on weights alone
 *   errors    SX_LIMIT when sizes overflow */
typedef struct {
    sx_op op;
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    const sx_type *result;
    uint32_t constant;
} sx_price_subject;
sx_code sx_price_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                      uint32_t symbol_count, const sx_price_subject *subject, sx_cost *cost);
/* The sum over a program, each node a kernel of its own; what depends on weights alone is done at load and
 * counts nothing. */
sx_code sx_price_program(sx_ctx *cx, const sx_device *device, const sx_graph *graph, sx_cost *sum);
/* How many keys a piece has where an online sum is made in pieces (core/kernel/online_pieces.h), as two nodes, on the
 * device; 0: it is one node. */
int64_t sx_search_piece(const sx_analysis *analysis, const sx_device *device);
#endif
