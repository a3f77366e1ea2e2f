/* pareto.h - the front of estimated time and peak memory. Internal to core/. */
#ifndef SX_CORE_PARETO_H
#define SX_CORE_PARETO_H
#include "core/core.h"
#include "core/optimize/optimize.h"

#define SX_PARETO_PRICES 12u
/* Price `index` of a byte in the objective, beside 1 of a nanosecond: 0, then ascending. */
double sx_pareto_price(const sx_device *device, uint32_t index);
/* What a program needs, its extents bound as the request says; point->program is left empty.  errors  SX_INPUT
 * a symbol without value */
sx_code sx_pareto_measure(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                          const sx_graph *graph, sx_module_point *point);
/* Moves the points of which no other is better to the front, fastest first; of equal ones the first. Result:
 * how many. */
uint32_t sx_pareto_keep(sx_module_point *point, uint32_t count);

/* Appends a record to image->point for every program of the front, fastest first. Every symbol must have a value.
 *   errors   those of sx_optimize, sx_graph_bind */
sx_code sx_core_pareto(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_image *image);
#endif
