/* substitute.h - symbols of an attribute replaced by other dimensions: binding, renumbering, types of a mesh's
 * pieces. */
#ifndef SX_CORE_IR_SUBSTITUTE_H
#define SX_CORE_IR_SUBSTITUTE_H
#include "core/ir/ir.h"

/* `attr` of a node whose operand 0 has type `operand` (NULL for none), each symbol s as image[s]. Slice limits
 * of -1 become the extent where the dimension is now constant. The body, if any, is a copy in cx's arena, and
 * programs are over the symbols of `to`, the graph that the node is for; other spans are shared. SX_LIMIT where
 * a product overflows. */
sx_code sx_substitute(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *operand,
                      const sx_dim *image, const sx_graph *to, sx_attr *result);
/* A crop whose places are all numbers, or that takes all of a dimension, becomes the slice that it is. `operand` is the
 * type of what it crops. */
void sx_crop_settle(const sx_type *operand, sx_op *op, sx_attr *attr);
#endif
