/* net.h - the fused nodes of a committed model after level 1, with concrete extents. */
#ifndef SX_TESTS_LIB_NET_H
#define SX_TESTS_LIB_NET_H
#include "core/ir/fused.h"
#include "core/ir/ir.h"

typedef sx_code (*sx_test_fused_visit)(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                                       uint32_t input_count, void *self);
/* Visits the fused nodes of a program text with these extents. */
sx_code sx_test_visit_fused(sx_ctx *cx, sx_span text, const sx_binding *binding,
                            uint32_t binding_count, sx_test_fused_visit visit, void *self);
/* Imports tests/models/NAME.onnx, compiles it for `target` with batch bound, and visits the fused nodes of
 * what came of it. */
sx_code sx_test_each_fused_of(sx_ctx *cx, sx_span text, const char *target, int64_t batch,
                              sx_test_fused_visit visit, void *self); /* of a program text */
sx_code sx_test_each_fused(sx_ctx *cx, const char *name, const char *target, int64_t batch,
                           sx_test_fused_visit visit, void *self);
#endif
