/* tune.h - the schedules that kernels of a module may have instead of their own, and the one that each has. */
#ifndef SX_CLIENT_TUNE_TUNE_H
#define SX_CLIENT_TUNE_TUNE_H
#include "core/search/measured.h"
#include "core/search/search.h"
#include "protocol/module.h"

/* A kernel of a fused node with one result. Others have no schedules to choose from. */
typedef struct {
    /* Its number in the module, and what it is measured as. */
    uint32_t number;
    uint64_t kernel;
    /* The schedule of its code, and what the model says that it takes. */
    sx_schedule own;
    double own_ns;
    /* Those that the search offers, cheapest first; some of them may have other bits, and are not taken then. */
    sx_schedule offered[SX_SEARCH_KEEP];
    uint32_t offered_count;
} sxt_kernel;

/* The kernels of a module, in their order, in cx's arena: of all launches but those of bodies inside the program.
 *   errors   SX_UNIMPLEMENTED a symbol has several values, or the device is no row of the table; the compiler's */
sx_code sxt_kernels(sx_ctx *cx, const sx_module *module, sxt_kernel **kernel, uint32_t *count);
/* The name of the device of the module, as rows have it: in cx's arena. */
sx_code sxt_device(sx_ctx *cx, const sx_module *module, const sx_device **device);
/* Adds the times of the launches of a run, one slot for each launch of the module, to ns[number of a kernel]: the mean
 * of its launches, each with what was packed for it just before. */
void sxt_add_times(const sx_module *module, const uint64_t *launch_ns, double *ns);
#endif
