/* determinism.h - the evidence that the kernels of a module keep the numerics contract.
 *
 * The module runs once, launch by launch, on random inputs. Of each kernel the first launch is looked at: its own code
 * is run again, and by the emulator from the last point of the grid to the first; the numerics id of its record must
 * be the one that its schedule has; and the kernel of its node is made again under other extents, at other positions
 * and under other schedules (trial.h). Everything that has the same id must have the same bits.
 */
#ifndef SX_CLIENT_VERIFY_DETERMINISM_H
#define SX_CLIENT_VERIFY_DETERMINISM_H
#include "client/verify/verify.h"

typedef struct {
    char name[64];
    /* In the module, and the variant in which it was looked at. */
    uint32_t kernel, variant;
    uint64_t numerics;
    /* The numerics plan in words. */
    char plan[160];
    /* Its own code was emulated alone, in two orders of the grid; else it was also executed twice. `partly`: the
     * emulator ran a part of the grid. */
    bool emulated, partly;
    /* As in sxv_evidence (trial.h). */
    uint32_t extents, positions, schedules, other_plans, left_out;
    uint64_t elements;
    char tried[256];
    bool differs;
    char difference[256];
} sxr_kernel_evidence;

/* Appends an sxr_kernel_evidence for each kernel that runs to `rows`; a difference is no error.
 *   instructions_max   that are emulated for one kernel, about; 0: 2 million
 *   errors             as sxr_verify, but that nothing is compared with a reference */
sx_code sxr_determinism(sx_ctx *cx, sx_span module, const sxr_verify_options *options,
                        uint64_t instructions_max, sx_buf *rows);
#endif
