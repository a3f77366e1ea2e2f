/* estimate.h - the estimates of a module for the cores at hand.
 *
 * A module is compiled for a device of the table, with the cores that it has there, so that the same request
 * gives the same bytes everywhere. What a person waits depends on the cores that this process may use: each
 * kernel of the module is priced again, under its own schedule, for a device that differs in the number of
 * cores alone.
 */
#ifndef SX_CLIENT_CLI_ESTIMATE_H
#define SX_CLIENT_CLI_ESTIMATE_H
#include "client/record.h"
#include "core/cost/cost.h"

typedef struct {
    /* The device of the module, or NULL where this build does not know it. */
    const sx_device *device;
    /* The cores that the figures below are for. */
    uint32_t cores;
    /* The figures were computed here. False: they are the module's own. */
    bool adapted;
    /* [kernel_count] One launch of each kernel, and its roofline floor. */
    double *cost_ns, *floor_ns;
    /* One run. */
    double run_cost_ns, run_floor_ns;
} sxc_estimate;

/* Prices the kernels for `cores` cores; 0: for those that this process may use. The module's own figures stay where its
 * record is not to be believed, where extents are open, and where a kernel has no schedule (it moves memory alone).
 *   memory   arrays in cx's arena
 *   errors   SX_NOMEM */
sx_code sxc_estimate_make(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                          uint32_t cores, sxc_estimate *estimate);
/* "5.9 ms a run on the 2 cores of this machine; 1.6 ms on 8 cores of x86-64-v4 at 2.6 GHz with 41 GB/s", and the floor:
 * two lines, the second without its end. */
void sxc_estimate_print(const sx_module *module, const sxc_estimate *estimate, sx_buf *out);
/* "; as it came 5.83 ms on 8 cores, one kernel per operation": the cores where the others are for other ones. */
void sxc_estimate_print_before(const sxc_estimate *estimate, const char *before, sx_buf *out);
#endif
