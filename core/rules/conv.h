/* conv.h - what the rules of conv.def share (inner header of conv*.c). */
#ifndef SX_CORE_RULES_CONV_H
#define SX_CORE_RULES_CONV_H
#include "core/rules/rules.h"

bool sx_ints_are(const sx_ints *list, int64_t value); /* every number of the list */
sx_ints sx_ints_of(uint32_t count, int64_t value);
/* of a convolution or window */
bool sx_has_padding(const sx_attr *attr);
/* pad(x, value) without interior; SX_EG_NONE where the element type does not hold the value. */
sx_code sx_rewrite_pad(sx_rewrite *rw, uint32_t x, double value, const sx_ints *low,
                       const sx_ints *high, uint32_t *node);
/* A vector along dimension `dim` of `type`, the same for all others. */
sx_code sx_rewrite_repeat(sx_rewrite *rw, uint32_t vector, uint32_t dim, const sx_type *type,
                          uint32_t *node);
sx_code sx_rewrite_binary(sx_rewrite *rw, sx_op op, uint32_t a, uint32_t b, uint32_t *node);
/* scale rsqrt(variance + eps), as batch_norm defines it */
sx_code sx_rewrite_norm_factor(sx_rewrite *rw, uint32_t scale, uint32_t variance, double eps,
                               uint32_t *node);
#endif
