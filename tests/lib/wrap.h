/* wrap.h - a random program as the body of a scan or of a cond.
 *
 * The result has the parameters of the program, those of a scan that are sliced with a dimension more, and is over its
 * symbols. The first output is of floats if that of the program is; some results of the region are no outputs. */
#ifndef SX_TESTS_LIB_WRAP_H
#define SX_TESTS_LIB_WRAP_H
#include "core/base/rng.h"
#include "core/ir/program.h"

/* `level` makes names that differ from those of other wraps. With `bounded` carried values stay below one in size, so
 * that they do not grow from round to round; else they are values of the program as they are. The number of rounds, 1
 * to 3, is a symbol or not. */
sx_graph *sx_wrap_scan(sx_ctx *cx, sx_rng *rng, const sx_graph *program, uint32_t level,
                       bool bounded);
/* The other program has other nodes of the same types as results. */
sx_graph *sx_wrap_cond(sx_ctx *cx, sx_rng *rng, const sx_graph *program, uint32_t level);
#endif
