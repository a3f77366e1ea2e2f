/* region.h - random nodes of scan, while and cond over operands of a given type. */
#ifndef SX_TESTS_LIB_REGION_H
#define SX_TESTS_LIB_REGION_H
#include "core/base/rng.h"
#include "core/ir/program.h"

static inline bool sx_test_is_region(sx_op op)
{
    return sx_op_info_of(op)->op_class == SX_OPCLASS_REGION;
}
/* Two operands, of which the last has the static type `x` (of rank 1 at least for scan); a while has one round at most,
 * in every mode of the interpreter. False: there is none for this type. */
bool sx_test_region(sx_ctx *cx, sx_rng *rng, sx_op op, const sx_type *x, sx_attr *attr,
                    sx_type input[2]);
/* The text of a graph, checked. */
sx_graph *sx_test_parse(sx_ctx *cx, const char *text);
#endif
