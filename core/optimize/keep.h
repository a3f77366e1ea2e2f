/* keep.h - writes the e-graphs of the parts of a program while they are optimised, so that later programs with the
 * same parts can use them. sx_optimize_keeper (optimize.h) says which parts are wanted and where the bytes go. */
#ifndef SX_CORE_OPTIMIZE_KEEP_H
#define SX_CORE_OPTIMIZE_KEEP_H
#include "core/optimize/optimize.h"
#include "core/store/wiring.h"

/* The place of a part, or NULL if its e-graph is not wanted. sx_keep_has says whether it has been written, and
 * sx_keep_clear forgets all that has been. */
const sx_optimize_place *sx_keep_place(const sx_optimize_keeper *keeper, const sx_key *part);
bool sx_keep_has(const sx_optimize_keeper *keeper, const sx_key *part);
void sx_keep_clear(sx_optimize_keeper *keeper);

/* Writes the e-graph of a part: the snapshot that sx_optimize_whole has put into a buffer of keeper->bytes_max bytes.
 * It is left out where it found no room there. */
void sx_keep_snapshot(sx_optimize_keeper *keeper, const sx_key *part, const sx_buf *snapshot);
/* Optimises the part `program`, whose key is `part`, as sx_optimize_whole does, and writes its e-graph if it
 * is wanted. */
sx_code sx_keep_optimized(sx_ctx *cx, const sx_graph *program, const sx_key *part,
                          const sx_device *device, const sx_optimize_options *options,
                          sx_graph **out, sx_optimize_report *report);
/* Writes the wiring (wiring.h) of the part info->program, if it is wanted. */
sx_code sx_keep_wiring(sx_ctx *cx, sx_optimize_keeper *keeper, const sx_roll *roll,
                       const sx_wired_part *part, const sx_library_info *info, const sx_key *rules);
#endif
