/* ir.h - random operations and tensors for tests of the tensor program: valid by construction, repeatable from
 * the seed. */
#ifndef SX_TESTS_LIB_IR_H
#define SX_TESTS_LIB_IR_H
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/fused.h"
#include "core/ir/ir.h"

#define SX_TEST_INPUTS_MAX 5

/* One operation with operand types it accepts. */
typedef struct {
    sx_op op;
    sx_attr attr;
    sx_type input[SX_TEST_INPUTS_MAX];
    uint32_t input_count;
    sx_type result;
} sx_test_op;

/* Rank 0 to rank_max, extents 1 to extent_max. */
sx_type sx_test_type(sx_rng *rng, sx_dtype dtype, uint32_t rank_max, uint32_t extent_max);
/* A random instance of `op` (any but parameter and fused); fails the test if none is found. */
void sx_test_op_make(sx_ctx *cx, sx_rng *rng, sx_op op, sx_test_op *made);
/* A view (reshape, transpose, broadcast_in_dim or slice) of a tensor of type `source`. */
void sx_test_view_make(sx_ctx *cx, sx_rng *rng, sx_op op, const sx_type *source, sx_attr *attr,
                       sx_type *result);
/* Random elements: floats in [-2, 2) (POW2: +- 2^-3 .. 2^3), integers in [-9, 9], residues, bools. */
void sx_test_tensor(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_type *type,
                    sx_tensor *tensor);
/* Equal types and equal bits, all NaN alike; fails the test with `what` and the first difference. */
void sx_test_tensor_equal(const sx_tensor *a, const sx_tensor *b, const char *what);
/* A node evaluated; the test fails if that fails. */
sx_tensor sx_test_eval(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                       const sx_tensor *input, uint32_t input_count);
#endif
