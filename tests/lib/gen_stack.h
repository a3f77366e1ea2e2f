/* gen_stack.h - random layers in a row: contractions with fresh weights, elementwise operations and transposes
 * of 4 x 4 tensors.
 *
 * One layer of 14 to 39 random steps is written 2 to 8 times; now and then a step is changed, a value of one
 * layer is read by all that follow, or becomes an output. Same seed, same graph; it is not canonical.
 */
#ifndef SX_TESTS_LIB_GEN_STACK_H
#define SX_TESTS_LIB_GEN_STACK_H
#include "core/base/rng.h"
#include "core/ir/ir.h"

/* Fails the running test if the graph cannot be made. */
sx_graph *sx_gen_stack(sx_ctx *cx, sx_rng *rng);
#endif
