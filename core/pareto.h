/* pareto.h - the front of estimated time and peak memory. Internal to core/. */
#ifndef SX_CORE_PARETO_H
#define SX_CORE_PARETO_H
#include "core/core.h"
#include "core/egraph/optimize.h"

/* Appends a record to image->point for every program of the front, fastest first. Every symbol must have a value.
 *   errors   those of sx_optimize, sx_graph_bind */
sx_code sx_core_pareto(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_image *image);
#endif
