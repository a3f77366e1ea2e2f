/* sweep.h - inside core/grad: the walk back over a program, and the steps of which the rules are made.
 *
 * Steps append nodes to the graph. After the first one that fails all others do nothing, and `code` says why.
 */
#ifndef SX_CORE_GRAD_SWEEP_H
#define SX_CORE_GRAD_SWEEP_H
#include "core/ir/ir.h"

#define SX_GRAD_NONE UINT32_MAX

typedef struct {
    sx_ctx *cx;
    sx_graph *graph; /* the program, and behind it what the rules append */
    sx_code code;
    uint32_t forward_count; /* nodes of the program */
    bool *wanted;           /* [forward_count] a cotangent of it is of use */
    uint32_t *cotangent;    /* [forward_count] a node, or SX_GRAD_NONE: the cotangent is zero */
} sx_sweep;

/* A node and the cotangent of its result. A copy: the tables of the graph grow while rules run. */
typedef struct {
    sx_op op;
    sx_node_id y, g;
    sx_type type; /* of both */
    sx_attr attr;
    uint32_t count;
    sx_node_id x[SX_INPUTS_MAX];
} sx_site;
typedef void (*sx_grad_rule)(sx_sweep *s, const sx_site *at);
#define SX_GRAD(op, function, text) void sx_grad_##function(sx_sweep *s, const sx_site *at);
#define SX_GRAD_ZERO(op, text)
#include "core/grad/rules.def"
#undef SX_GRAD
#undef SX_GRAD_ZERO

/* Is the cotangent of operand k of use? Where it is not, `sx_give` does nothing; rules ask to form nothing in vain. */
bool sx_wants(const sx_sweep *s, const sx_site *at, uint32_t k);
/* Adds to the cotangent of operand k. */
void sx_give(sx_sweep *s, const sx_site *at, uint32_t k, sx_node_id part);

/* steps.c */
sx_type sx_step_type(const sx_sweep *s, sx_node_id a);
sx_node_id sx_step(sx_sweep *s, sx_op op, const sx_attr *attr, const sx_node_id *input,
                   uint32_t input_count);
sx_node_id sx_step_unary(sx_sweep *s, sx_op op, sx_node_id a);
sx_node_id sx_step_binary(sx_sweep *s, sx_op op, sx_node_id a, sx_node_id b);
/* A constant of the type of `like`, every element `value`. */
sx_node_id sx_step_constant(sx_sweep *s, const sx_type *like, double value);
sx_node_id sx_step_times(sx_sweep *s, sx_node_id a, double factor);
sx_node_id sx_step_compare(sx_sweep *s, sx_direction direction, sx_node_id a, sx_node_id b);
sx_node_id sx_step_select(sx_sweep *s, sx_node_id p, sx_node_id a, sx_node_id b);
/* p ? a : 0, or with `inside` false p ? 0 : a. */
sx_node_id sx_step_keep(sx_sweep *s, sx_node_id p, bool inside, sx_node_id a);
sx_node_id sx_step_convert(sx_sweep *s, sx_node_id a, sx_dtype dtype);
/* Views that change nothing give `a` itself; a constant of equal elements is repeated as a constant. */
sx_node_id sx_step_reshape(sx_sweep *s, sx_node_id a, const sx_type *type);
sx_node_id sx_step_transpose(sx_sweep *s, sx_node_id a, const sx_ints *perm);
sx_node_id sx_step_repeat(sx_sweep *s, sx_node_id a, const sx_ints *dims, const sx_type *type);
sx_node_id sx_step_reduce(sx_sweep *s, sx_reducer reducer, sx_node_id a, const sx_ints *dims);
/* start, limit and stride of all of `type`. */
sx_attr sx_whole_slice(const sx_type *type);
sx_node_id sx_step_slice(sx_sweep *s, sx_node_id a, const sx_attr *slice);
/* No padding in any of `rank` dimensions. */
sx_attr sx_no_padding(uint32_t rank);
sx_node_id sx_step_pad(sx_sweep *s, sx_node_id a, const sx_attr *pad, double value);
/* The dimensions of `type` that are not in the ascending list `dims`. */
sx_ints sx_other_dims(uint32_t rank, const sx_ints *dims);
/* `type` with a dimension of extent `extent` put before dimension d. */
sx_type sx_type_with(const sx_type *type, uint32_t d, sx_dim extent);
#endif
