/* refusals.h - everything of a program that is not supported, said at once: in the words of the model,
 * grouped, with counts.
 *
 *     3 nodes are not supported at opset 17: Gather (2: '/a', '/b'): constant on i64 has no vector form; Loop
 *     (1: '/l'): ...
 */
#ifndef SX_CORE_IR_REFUSALS_H
#define SX_CORE_IR_REFUSALS_H
#include "core/ir/origin.h"

typedef struct {
    sx_origin origin; /* its spans are borrowed */
    sx_span reason;
} sx_refusal;
typedef struct {
    sx_refusal *refusal;
    uint32_t count, capacity;
} sx_refusals;

/* Takes the failure recorded in cx (which is then none) for the reason why this node is not supported. The
 * same node is noted once for a
 * reason.  errors  SX_NOMEM */
sx_code sx_refusals_add(sx_ctx *cx, sx_refusals *all, const sx_origin *origin);
/* SX_OK where there are none, else SX_UNIMPLEMENTED. One alone reads "node '/a' (Gather, opset 17): ...". */
sx_code sx_refusals_end(sx_ctx *cx, const sx_refusals *all);
#endif
