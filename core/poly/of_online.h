/* of_online.h - the polyhedral program of an online sum or a nested contraction (core/loop/lower_keys.c); internal to
 * core/poly. */
#ifndef SX_CORE_POLY_OF_ONLINE_H
#define SX_CORE_POLY_OF_ONLINE_H
#include "core/poly/poly.h"

/* `program` is zero on entry; as sx_poly_of_fused. */
void sx_poly_of_online(const sx_analysis *analysis, const sx_schedule *schedule,
                       sx_poly_program *program);
#endif
