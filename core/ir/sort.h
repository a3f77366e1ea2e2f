/* sort.h - inside core/ir and for who prices it: the decomposition of `sort`, which is its kernels. */
#ifndef SX_CORE_IR_SORT_H
#define SX_CORE_IR_SORT_H
#include "core/ir/ir.h"

/* Elements along the axis: indices are counted in 32 bits, and are below half of each modulus of core/eval. */
#define SX_SORT_EXTENT_MAX INT64_C(1000000000)
/* Places that are found by an extreme each. */
#define SX_SORT_TURNS_MAX 8

/* Rows that a kernel sorts by a network of comparisons (core/loop/lower_sort.c). */
#define SX_SORT_NETWORK_MIN 32
#define SX_SORT_NETWORK_MAX (1 << 18)

/* Does the sort of `x` have a kernel of its own? Rows have such a length, all extents are known, and more places are
 * asked for than are found one after the other. */
bool sx_sort_is_network(const sx_attr *attr, const sx_type *x);
/* Are the places of a sort of `x` found one after the other, not by ranks? */
bool sx_sort_takes_turns(const sx_attr *attr, const sx_type *x);
/* `sort` of x, which checks, as primitives. */
sx_code sx_sort_decompose(sx_ctx *cx, sx_graph *graph, const sx_attr *attr, sx_node_id x,
                          sx_node_id *result);
#endif
