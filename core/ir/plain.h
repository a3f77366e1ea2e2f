/* plain.h - the part of the language that everything behind the canonical form knows.
 *
 * A program is *plain* if no padding in it is negative, and if it computes nothing of or with tensors without elements:
 * these are parameters, constants that are outputs, and operands and results of scan, while and cond. Every program
 * equals a plain one: what negative padding takes away is taken away by a slice, a tensor without elements is a
 * constant, and so is a sum of nothing. The canonical form (sx_graph_canon) is plain, and so are the programs that
 * rules, kernels and derivatives see; the text, the checker and the interpreter know all programs.
 */
#ifndef SX_CORE_IR_PLAIN_H
#define SX_CORE_IR_PLAIN_H
#include "core/ir/ir.h"

/* Has a tensor of this type no elements, whatever the values of its symbols are? */
bool sx_type_is_empty(const sx_type *type);
/* Is no padding of a node of this operation negative? */
bool sx_padding_is_plain(sx_op op, const sx_attr *attr);
/* Does a node of this operation, attribute, operands and result belong to a plain program? */
bool sx_node_is_plain(sx_op op, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                      const sx_type *result);
/* The same program, plain; `graph` itself if it is. Names of outputs, effects, placements and origins stay.
 *   errors   as sx_graph_add */
sx_code sx_graph_plain(sx_ctx *cx, const sx_graph *graph, const sx_graph **plain);
#endif
