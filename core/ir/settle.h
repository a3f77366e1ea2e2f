/* settle.h - branches that are known to be taken.
 *
 * Where a predicate follows from constants alone, a cond is what its one branch computes. Importers write such conds
 * (a switch over a number that was known when the program was traced), and what is fused does not go through a branch.
 */
#ifndef SX_CORE_IR_SETTLE_H
#define SX_CORE_IR_SETTLE_H
#include "core/ir/ir.h"

/* The same program, bit for bit, in which what the branch of such a cond computes stands in its place, in all programs
 * inside as well; without the nodes that nobody needs then. `graph` itself if it has no such cond. Parameters and
 * outputs stay as they are. Predicates are known if minimum, maximum, comparisons, bits, conversions and views of
 * integers and bools with one element give them. `graph` has neither effects nor a sharding.
 *   errors   as sx_graph_add */
sx_code sx_graph_settle(sx_ctx *cx, const sx_graph *graph, const sx_graph **settled);
#endif
