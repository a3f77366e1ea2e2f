/* of_online.h - the polyhedral program of an online sum (core/loop/lower_online.c); internal to core/poly. */
#ifndef SX_CORE_POLY_OF_ONLINE_H
#define SX_CORE_POLY_OF_ONLINE_H
#include "core/poly/poly.h"

/* `program` is zero on entry; as sx_poly_of_fused. */
sx_code sx_poly_of_online(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                          uint32_t input_count, const sx_lower_plan *plan,
                          sx_poly_program *program);
#endif
