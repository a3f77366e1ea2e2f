/* steps.h - steps of fusion, remembered: programs of one e-graph are fused one after the other and have most of their
 * kernels in common, so that the same step on the same kernel is wanted again and again. */
#ifndef SX_CORE_OPTIMIZE_STEPS_H
#define SX_CORE_OPTIMIZE_STEPS_H
#include "core/egraph/tensor.h"

/* A step by all that its result follows from. Kernels, operations and types stand there by their numbers in the
 * e-graph, which stay what they are as long as it lives; words that a rule does not need are 0. */
typedef struct {
    uint32_t rule; /* of fusion.def */
    uint32_t kernel, argument;
    uint32_t with[4];
} sx_fuse_step;
/* Zeroed before the first use; memory in the arena of cx. NULL in place of it: nothing is remembered. */
typedef struct {
    sx_fuse_step *step;
    uint32_t *result; /* per step: the attribute that the kernel becomes, or SX_FUSE_NO_STEP */
    uint32_t count, capacity, result_capacity;
    sx_idmap map;
} sx_fuse_steps;
#define SX_FUSE_NO_STEP UINT32_MAX /* the step cannot be taken */

/* Was the step tried before? */
bool sx_fuse_steps_find(const sx_fuse_steps *steps, const sx_fuse_step *step, uint32_t *result);
/* A step that was not. */
sx_code sx_fuse_steps_put(sx_ctx *cx, sx_fuse_steps *steps, const sx_fuse_step *step,
                          uint32_t result);
#endif
