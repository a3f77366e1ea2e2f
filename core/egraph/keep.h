/* keep.h - what is left of the parts of a program for later ones (optimize.h: sx_optimize_keeper). */
#ifndef SX_CORE_EGRAPH_KEEP_H
#define SX_CORE_EGRAPH_KEEP_H
#include "core/egraph/optimize.h"
#include "core/egraph/wiring.h"

/* NULL: that part is not wanted. */
const sx_optimize_place *sx_keep_place(const sx_optimize_keeper *keeper, const sx_key *part);
bool sx_keep_has(const sx_optimize_keeper *keeper, const sx_key *part);
void sx_keep_clear(sx_optimize_keeper *keeper);

/* sx_optimize_whole of the part of that key; its e-graph is kept if it is wanted. */
sx_code sx_keep_optimized(sx_ctx *cx, const sx_graph *program, const sx_key *part,
                          const sx_device *device, const sx_optimize_options *options,
                          sx_graph **out, sx_optimize_report *report);
/* The wiring of the part info->program, if it is wanted. */
sx_code sx_keep_wiring(sx_ctx *cx, sx_optimize_keeper *keeper, const sx_roll *roll,
                       const sx_wired_part *part, const sx_library_info *info, const sx_key *rules);
#endif
