/* plain.h - the part of the language that everything behind the canonical form knows.
 *
 * A program is *plain* if no padding in it is negative. Every program equals a plain one: elements that negative
 * padding takes away are taken away by a slice, and what is left is padded. The canonical form (sx_graph_canon) is
 * plain, and so are the programs that rules, kernels and derivatives see; the text, the checker and the interpreter
 * know all programs.
 */
#ifndef SX_CORE_IR_PLAIN_H
#define SX_CORE_IR_PLAIN_H
#include "core/ir/ir.h"

/* Does a node of this operation and attribute belong to a plain program? */
bool sx_node_is_plain(sx_op op, const sx_attr *attr);
/* The same program, plain; `graph` itself if it is. Names of outputs, effects, placements and origins stay.
 *   errors   as sx_graph_add */
sx_code sx_graph_plain(sx_ctx *cx, const sx_graph *graph, const sx_graph **plain);
#endif
