/* pair.h - which parameter of one program may stand for which of another: a guess from names, from where they
 * stand, and from their order.
 *
 * The mark of a parameter is a hash of what is made of it, which names, the order of the parameters and the
 * order of the operands of sums, products, maxima and minima do not change. Only parameters of one type, both
 * weights or both inputs, are paired. Time is linear.
 */
#ifndef SX_CORE_STORE_PAIR_H
#define SX_CORE_STORE_PAIR_H
#include "core/ir/ir.h"

/* Per parameter of `graph` in order: its mark; result in cx's arena. */
sx_code sx_pair_marks(sx_ctx *cx, const sx_graph *graph, uint32_t **mark);

/* A hash of all operations, which the same does not change. */
sx_code sx_pair_shape(sx_ctx *cx, const sx_graph *graph, uint64_t *shape);

/* Parameters of `here` to those of `there`, one to one. `by_name`: by name where all names agree. Otherwise,
 * and else, by the marks `there_mark` (NULL: none are known), then the i-th of a type to the i-th of that type.
 *   result   (*parameter_of)[i]: number of the parameter that stands for parameter i of `here`
 *   *paired  false: the two have not as many parameters of each type, or other symbols
 *   errors   SX_NOMEM */
sx_code sx_pair_parameters(sx_ctx *cx, const sx_graph *here, const sx_graph *there,
                           const uint32_t *there_mark, bool by_name, uint32_t **parameter_of,
                           bool *paired);

/* Nodes of the parameters, in order; result in cx's arena. */
sx_code sx_pair_list(sx_ctx *cx, const sx_graph *graph, uint32_t **list, uint32_t *count);
/* Types equal, and both weights or both inputs? */
bool sx_pair_same_kind(const sx_graph *a, uint32_t x, const sx_graph *b, uint32_t y);
#endif
