/* eval.h - the interpreter: what a program means, and the oracle of everything that compiles one.
 *
 * Each primitive has one plain evaluator. A composite is evaluated through its decomposition, a fused node through
 * its body. Nothing here is fast for its own sake, and nothing of it is shared with what it judges.
 */
#ifndef SX_CORE_EVAL_EVAL_H
#define SX_CORE_EVAL_EVAL_H
#include "core/ir/ir.h"

typedef enum {
    SX_EVAL_F64, /* floats as doubles, rounded to the stored type only at parameters and constants */
    /* each result rounded to its element type: the double result of libm or of an IEEE operation,
     * rounded once (+ - * / sqrt are then the IEEE operations of the type). reduce and dot_general
     * accumulate in f32 if the type is narrower and round once; dot_general is a chain of fused
     * multiply-adds. */
    SX_EVAL_TYPED,
    /* exact arithmetic mod 2^31 - 1, equality is ==. + - * and / (by the inverse, x / 0 = 0) of
     * floats, + - * of integers; constants are exact, 0.5 is the inverse of 2. Order (compare,
     * maximum, minimum, abs, sign) is that of residues in [-(p-1)/2, (p-1)/2]: total and reversed
     * by negation, but not kept by addition, so rules that add under a maximum are tested in POW2
     * or F64. Other functions are pseudo-random functions of their exact argument, with the
     * symmetries of tanh, erf, sine, cosine, and rsqrt, logistic, ceil made from sqrt, exponential,
     * floor. Conversions to floats and to wider integers keep the residue; others are
     * pseudo-random. */
    SX_EVAL_MODP,
    SX_EVAL_POW2, /* as F64; meant for inputs that are small powers of two, where sums are exact */
    /* exact arithmetic in two fields at once, mod p = 2147483579 = 2 q + 1 and mod q = 1073741789:
     * as MODP, but exponential(x) = 4^(x mod q) mod p, so that sums of exponents are products; tanh
     * and logistic follow from it. The second half of what an exponential gives, and of what is
     * computed from it, is undefined. Order is that of the first half. */
    SX_EVAL_FIELDS
} sx_eval_mode;
typedef struct {
    sx_type type; /* static */
    /* row-major. F64, TYPED, POW2: double for floats; int64_t for integers and bool. MODP: uint64_t
     * residues for floats and integers, int64_t 0/1 for bool; FIELDS: the same with pairs, mod p in
     * the lower 32 bits, mod q in the upper, bit 62: undefined there (sx_pair_equal) */
    void *data;
} sx_tensor;
/* Equal in both halves, in the first alone where a second one is undefined. */
bool sx_pair_equal(uint64_t x, uint64_t y);
#define SX_FIELD_P UINT64_C(2147483579)
#define SX_FIELD_Q UINT64_C(1073741789)
/* Evaluates a static graph. argument[k] is the k-th parameter in node order. result[k] is output k, memory in
 * cx's arena. Fuel: one per scalar operation. */
sx_code sx_graph_eval(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode,
                      const sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                      uint32_t result_count);
/* steps.c: `steps` runs of a static program that keeps state, each on the state that the one before left. An argument
 * that is state may have no data: it begins with its initial value. Behind the call arguments that are state are what
 * the last run left, and `result` are its results; without a step neither is written but for initial values. Other
 * arguments are the same in each run, donated ones too. */
sx_code sx_graph_eval_steps(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode, uint32_t steps,
                            sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                            uint32_t result_count);
/* The first value of a parameter that is state. */
sx_code sx_state_initial(sx_ctx *cx, const sx_graph *graph, uint32_t node, sx_eval_mode mode,
                         sx_tensor *tensor);
/* mesh.c: a program that each rank of its mesh runs (core/ir/collective.h), all ranks in step. graph[r] is that of rank
 * r: mostly one graph for all, or one text bound to other extents; argument[r * argument_count + k] is parameter k on
 * rank r, result[r * result_count + k] output k there. sx_graph_eval knows collectives of one rank alone.
 *   errors   SX_INPUT no mesh, placements, other programs; ranks whose operands of a collective differ in shape, with
 *            node, axis, ranks and shapes */
sx_code sx_graph_eval_mesh(sx_ctx *cx, const sx_graph *const *graph, uint32_t rank_count,
                           sx_eval_mode mode, const sx_tensor *argument, uint32_t argument_count,
                           sx_tensor *result, uint32_t result_count);
/* One node of a static graph, inputs given; the same rules. */
sx_code sx_node_eval(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                     const sx_tensor *input, uint32_t input_count, const sx_type *type,
                     sx_tensor *result);
/* Raw little-endian elements of `type` (as stored in files and buffers) from and to the interpreter's form. */
sx_code sx_tensor_unpack(sx_ctx *cx, const sx_type *type, sx_eval_mode mode, sx_span raw,
                         sx_tensor *tensor);
sx_code sx_tensor_pack(sx_ctx *cx, const sx_tensor *tensor, sx_buf *raw);

/* Evaluates single elements of a static fused node, to check compiled kernels that are too large to be
 * evaluated as a whole.
 *   mode      F64 for references; TYPED rounds as the element types do (the chain of a DOT bit for bit)
 *   raw       the stored little-endian elements of each input, all of them; borrowed
 *   position  row-major numbers of elements of the result; neighbours in one row share its reductions
 *   value     receives one double for each position
 *   fuel      1 + instructions for each point that is visited: the reduction length for each position of a
 *             contraction, a whole row for each row that is visited
 *   errors    SX_INPUT the node is not valid or not static, the bytes do not fit a type, a position is outside */
sx_code sx_fused_eval_at(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_type *input,
                         const sx_span *raw, uint32_t input_count, const int64_t *position,
                         uint32_t position_count, double *value);
#endif
