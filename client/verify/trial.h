/* trial.h - inside client/verify: one kernel made again in other ways, which must not change a bit.
 *
 * The numerics contract: an element of a result has the same bits however many rows and columns are computed beside
 * it, wherever in them it stands, under every schedule whose kernel has the same numerics id, and in every order of
 * the grid's points. A trial takes a box of the iteration space of a fused node: some of the elements that the node
 * computes, or, where an extent is larger than the node's, more than these (arguments are then continued with their
 * own elements). The box is a node of its own; it is searched, lowered and emitted like any other, the code is run by
 * the emulator of the target, and what it has in common with the base is compared bit for bit. Of NaN the bits are
 * not promised (core/loop/README.md).
 */
#ifndef SX_CLIENT_VERIFY_TRIAL_H
#define SX_CLIENT_VERIFY_TRIAL_H
#include "core/base/rng.h"
#include "core/cost/device.h"
#include "core/kernel/kernel.h"
#include "core/target/target.h"

/* The node whose kernel is tried. Extents are constants. */
typedef struct {
    const sx_target *target;
    const sx_device *device;
    const sx_attr *fused;
    const sx_type *input;
    uint32_t input_count;
    /* The elements of each input. */
    const void *const *argument;
    /* As for sx_search_kernel. */
    bool rhs_constant;
} sxv_subject;

/* What every trial is compared with: the elements of the node. */
typedef struct {
    uint64_t numerics;
    const uint8_t *bits;
    /* NULL, or not 0 at the bytes of `bits` that are there. */
    const uint8_t *touched;
} sxv_base;

typedef struct {
    /* Extents that each dimension of the space that is not reduced gets, in this order. */
    const int64_t *extent;
    uint32_t extent_count;
    /* How many other schedules are drawn, each with an order of the grid's points of its own. */
    uint32_t schedules;
    uint64_t seed;
    /* About how many instructions a trial takes: dimensions beside the one that is tried are made smaller for it. One
     * that takes more than `trial_max` nevertheless is left out; after `total_max` of all none begins. */
    uint64_t trial_wish, trial_max, total_max;
} sxv_trials;

#define SXV_EVIDENCE_TEXT 256
typedef struct {
    /* Kernels that were compared: at other extents, at other positions, under other schedules. */
    uint32_t extents, positions, schedules;
    /* Schedules of which the kernel has another numerics id: it need not have the same bits. */
    uint32_t other_plans;
    /* Trials left out because of their instructions or memory. */
    uint32_t left_out;
    /* Elements that were compared. */
    uint64_t elements, instructions;
    /* The extents by the letters of kernel.h: "m=1,2,3 n=1,2". */
    char tried[SXV_EVIDENCE_TEXT];
    /* What is the matter, with the element and the bits of both; trying ends there. */
    bool differs;
    char difference[SXV_EVIDENCE_TEXT];
} sxv_evidence;

/* Makes the kernel that the search chooses for the node as it is, in cx's arena.
 *   errors   SX_COMPILE no candidate is usable */
sx_code sxv_base_make(sx_ctx *cx, const sxv_subject *subject, sxv_base *base);
/* The numerics id of the node's kernel under this schedule. */
sx_code sxv_numerics_of(sx_ctx *cx, const sxv_subject *subject, const sx_schedule *schedule,
                        uint64_t *numerics);
/* Fills *evidence in; a difference is no error.  errors  those of the compiler and of the emulator */
sx_code sxv_try(sx_ctx *cx, const sxv_subject *subject, const sxv_base *base,
                const sxv_trials *trials, sxv_evidence *evidence);
/* The first element that differs, of `count` from element 0 on; -1: none. NaN equals NaN. `touched` as in sxv_base. */
int64_t sxv_first_difference(sx_dtype dtype, const uint8_t *a, const uint8_t *b,
                             const uint8_t *touched, int64_t count);
#endif
