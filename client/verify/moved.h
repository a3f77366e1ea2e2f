/* moved.h - inside client/verify: single elements of operations that only move elements, found without a look at
 * the rest of their operands, which may be large; and what may be said of operands that are moved a little. */
#ifndef SX_CLIENT_VERIFY_MOVED_H
#define SX_CLIENT_VERIFY_MOVED_H
#include "core/ir/ir.h"

/* Does the operation of an operand of `from` answer a small change of it with a jump, as floor and comparisons do? What
 * a region does inside is not known. */
bool sxv_jumps(sx_op op, sx_dtype from, sx_dtype to);
/* A stored element as a number. */
double sxv_element(sx_dtype dtype, const void *memory, int64_t element);
/* Elements `position` of the result, of type `result`, of a gather, a concatenation, a pad or a reverse of stored
 * operands. False: another operation. */
bool sxv_moved_at(const sx_node *node, const sx_attr *attr, const sx_type *type, const sx_span *raw,
                  const int64_t *position, uint32_t count, double *value);
#endif
