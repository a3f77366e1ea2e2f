/* sweep.h - inside core/grad: the walk back over a program, and the steps of which the rules are made.
 *
 * Steps append nodes to the graph. After the first one that fails all others do nothing, and `code` says why.
 */
#ifndef SX_CORE_GRAD_SWEEP_H
#define SX_CORE_GRAD_SWEEP_H
#include "core/ir/program.h"

#define SX_GRAD_NONE UINT32_MAX

typedef struct {
    sx_ctx *cx;
    /* What is asked for. */
    const sx_graph *from;
    const bool *wrt; /* [nodes of from] parameters whose cotangents are asked for */
    bool *reached;   /* [nodes of from] what is differentiated; then all that it depends on */
    bool body;       /* `from` is the body of an operation, for messages */
    /* What is made. */
    sx_graph *graph; /* the program, and behind it what the rules append */
    sx_code code;
    uint32_t forward_count; /* nodes of the program */
    bool *wanted;           /* [forward_count] a cotangent of it is of use */
    uint32_t *cotangent;    /* [forward_count] a node, or SX_GRAD_NONE: the cotangent is zero */
    sx_node_id *image;      /* [nodes of from] the node of `graph` */
    uint32_t *source;       /* [source_count] and back: the node of `from` */
    uint32_t source_count, source_capacity, wanted_capacity;
} sx_sweep;

/* walk.c: `graph` becomes a copy of `from` in which composites between what is asked for are taken apart, and scans
 * stack the values that they carry; then the caller puts the cotangents of what is differentiated; then the walk back.
 *   errors   SX_UNIMPLEMENTED an operation without a rule, with the node */
sx_code sx_sweep_forward(sx_sweep *s);
void sx_put_cotangent(sx_sweep *s, sx_node_id value, sx_node_id part);
sx_code sx_sweep_back(sx_sweep *s);
/* False: its derivative is zero wherever there is one. */
bool sx_has_slope(sx_op op);
bool sx_is_float(const sx_type *type);

/* Regions are computed once for all their results, which are nodes of their own (siblings). Is there one before node
 * n, a region? And the next one behind node m, a sibling of n or n itself; the number of nodes: there is none. */
bool sx_sibling_before(const sx_graph *graph, uint32_t n);
uint32_t sx_sibling_next(const sx_graph *graph, uint32_t n, uint32_t m);

/* slopes.c: for each result of a region the set of operands (a bit each) on which it depends by a slope. */
sx_code sx_region_slopes(sx_ctx *cx, sx_op op, const sx_attr *attr,
                         uint64_t operands[SX_PROGRAM_RESULTS_MAX]);
/* For each result of a program the set of its parameters. */
sx_code sx_program_slopes(sx_ctx *cx, const sx_program *program,
                          uint64_t parameters[SX_PROGRAM_RESULTS_MAX]);
/* For each parameter of a step the set that it depends on in some round: itself, and for those below `carried`, whose
 * results see `sees`, what goes into it. */
void sx_carried_slopes(uint32_t carried, const uint64_t *sees, uint64_t stands_for[SX_INPUTS_MAX]);
/* rules_region.c: the step of a scan gives besides its results what it carries, at the start of the round. */
sx_code sx_stack_carried(sx_ctx *cx, sx_attr *attr);
/* bounded.c: result attr->result, a float, of a while with these operands, as the scan of as many rounds as it may
 * have. errors   SX_UNIMPLEMENTED more rounds than are kept, or too many carried values */
#define SX_GRAD_ROUNDS_MAX 4096u
sx_code sx_bound_while(sx_sweep *s, const sx_attr *attr, const sx_node_id *input, uint32_t count,
                       sx_node_id *result);
/* Results that scans stack and no output needs are left out. Nodes keep their numbers. */
sx_code sx_drop_unread(sx_ctx *cx, sx_graph *graph);

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
