/* space.h - the plans of one kernel kind, one after the other, and their price. Internal to core/search. */
#ifndef SX_CORE_SEARCH_SPACE_H
#define SX_CORE_SEARCH_SPACE_H
#include "core/search/search.h"

/* What the model needs to know of a kernel, whatever its plan. */
typedef struct {
    const sx_device *device;
    sx_kernel_kind kind;
    sx_dot_shape dot;       /* contractions */
    sx_online_shape online; /* online sums */
    bool rhs_constant;
    int64_t rows,
        inner; /* map and row kernels: outer iterations, extent of the innermost dimension */
    double flops, bytes; /* of the whole problem */
    double floor_ns;
} sx_search_problem;

typedef enum {
    SX_PHASE_ROOFLINE,
    SX_PHASE_ALIGNMENT,
    SX_PHASE_RESOURCES,
    SX_PHASE_KEPT
} sx_search_phase;

/* dot_space.c: all plans of a contraction; `visit` is called for each. */
typedef sx_code (*sx_search_visit)(void *self, const sx_lower_plan *plan);
sx_code sx_dot_space(const sx_search_problem *problem, sx_search_visit visit, void *self);
/* Which phase drops the plan. */
sx_search_phase sx_dot_sieve(const sx_search_problem *problem, const sx_lower_plan *plan);
/* Estimated time, at least problem->floor_ns. */
double sx_dot_price(const sx_search_problem *problem, const sx_lower_plan *plan);
/* online_space.c: the same for online sums. */
sx_code sx_online_space(const sx_search_problem *problem, sx_search_visit visit, void *self);
sx_search_phase sx_online_sieve(const sx_search_problem *problem, const sx_lower_plan *plan);
double sx_online_price(const sx_search_problem *problem, const sx_lower_plan *plan);
#endif
