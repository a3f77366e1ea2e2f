/* peak.h - memory a program needs while it runs, before there is code for it.
 *
 * One kernel for each operation, in the order of the nodes; temporaries are placed as sx_plan_memory places
 * them. Results that follow from weights and constants, parameters and outputs are not temporaries; a reshape
 * shares the memory of its operand. Packed copies that code generation may add are not counted.
 */
#ifndef SX_CORE_PLAN_PEAK_H
#define SX_CORE_PLAN_PEAK_H
#include "core/ir/ir.h"

/* `graph` is static (sx_graph_bind).  errors  SX_NOMEM; SX_QUOTA: a fuel for each pair of temporaries */
sx_code sx_plan_peak(sx_ctx *cx, const sx_graph *graph, uint64_t *peak_bytes);
#endif
