/* compose.h - inside core/ir: the meaning of composites, written once over an abstract emitter.
 *
 * sx_decompose emits graph nodes, sx_fused_lift emits instructions of a body; both run the same recipe, so a
 * composite and its lifted kernel cannot come apart. Reduced-precision floats are widened to f32 first and
 * rounded once at the end.
 */
#ifndef SX_CORE_IR_COMPOSE_H
#define SX_CORE_IR_COMPOSE_H
#include "core/ir/ir.h"

#define SX_COMPOSE_INPUTS_MAX 5

/* Values are handles of the emitter. A reduced value combines with a full one by being repeated along the
 * reduced axes. */
typedef struct {
    void *self;
    sx_code (*constant)(void *self, sx_dtype dtype, double value, uint32_t *handle);
    /* an elementwise operation; `dtype` is that of the result */
    sx_code (*apply)(void *self, sx_op op, sx_dtype dtype, const uint32_t *operand, uint32_t count,
                     uint32_t *handle);
    sx_code (*reduce)(void *self, sx_reducer reducer, sx_dtype dtype, uint32_t operand,
                      uint32_t *handle);
} sx_emitter;

/* Emits composite `op` (any but attention) on inputs `handle`, whose types are `input`. The inputs behave as
 * if broadcast to the shape of input 0; those of batch_norm but the first lie along `axis`. */
sx_code sx_compose(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                   uint32_t input_count, const uint32_t *handle, const sx_emitter *emitter,
                   uint32_t *result);
/* The set of dimensions that a row composite (softmax, log_softmax, layer_norm, rms_norm) reduces; 0 for others. */
uint32_t sx_compose_axes(sx_op op, const sx_attr *attr, const sx_type *input);
#endif
