/* fused.h - one kernel as a value: an iteration space, arguments read through affine accesses, a scalar program.
 *
 * `fused` is the only operation that is compiled to a loop nest; every primitive but parameter, constant, reshape, concatenate and
 * gather can be lifted to it (sx_fused_lift), and rules grow it: absorb a view into an access, append an epilogue, inline an
 * elementwise producer. attr.type holds the iteration space (extents) and the result's element type.
 *
 *   space      dimensions 0..rank-1 of attr.type; those in `axes` are reduced
 *   argument   flat row-major element index = offset + sum over d of stride[d] * i[d]   (strides may be symbolic, may be 0 for
 *              broadcast). The whole range lies inside the argument; proved for every value >= 1 of the symbols, or refused.
 *   program    instructions in order, operands are earlier instructions:
 *                ARG a        element of argument a at this iteration
 *                IMM v        a constant of `dtype`, rounded to it; for integers and bool a whole number in range
 *                INDEX d      the iteration number along dimension d
 *                APPLY op     an elementwise primitive on x, y, z (`direction` for compare; convert goes to `dtype`). Types follow
 *                             sx_infer_type; composites (gelu...) are refused, sx_fused_lift expands them
 *                REDUCE r x   x combined over all of `axes` by reducer r: the same for all iterations of a row afterwards
 *                DOT x y      sum over `axes` of x * y: one fused multiply-add chain in ascending order of the axes
 *                ONLINE x y   sum over `axes` of e^(x - max of x) * y, y an ARG or an IMM: one pass that may be cut in blocks
 *              Reductions run in ascending row-major order of the axes. With element types narrower than f32 they accumulate in
 *              f32 and round once. Every instruction but the last is used by a later one. At most one DOT, and then no REDUCE, x and y are ARG instructions, and what follows depends on no axis of `axes`
 *              but through the DOT. The kind of kernel follows: ONLINE, DOT contraction, REDUCE row kernel, else map.
 *              With ONLINE, which may stand several times over the same x (once with an ARG), a DOT makes the scores: it runs over the
 *              axes in `inner` alone, ONLINE over the others, and the only REDUCE is the maximum of x. Nothing but the operands of the
 *              DOT varies along `inner`, the result along no axis.
 *   result     the last instruction. If it varies along `axes` (it is not a function of REDUCE/DOT results and of arguments with
 *              stride 0 there) the result has the whole space as its shape; else the dimensions in `axes` are gone.
 *              The result's dimensions are in the order of the space: a transposed result is a permuted space.
 *
 * Rewrites below never change the order or the rounding of any arithmetic: results are equal bit for bit. What they return has
 * no duplicate and no unused instruction; an argument may be left without a reader. A rewritten node passes sx_fused_infer, but
 * in shapes with two symbols the proof of ranges can fail: treat SX_INPUT there as "not applicable".
 *
 * The same shape as linalg.generic (MLIR) with reductions inside, and as XLA's fusion computations.
 */
#ifndef SX_CORE_IR_FUSED_H
#define SX_CORE_IR_FUSED_H
#include "core/ir/ir.h"

#define SX_FUSED_ARGS_MAX 16
#define SX_FUSED_INSTRS_MAX 96

typedef enum {
    SX_BODY_ARG,
    SX_BODY_IMM,
    SX_BODY_INDEX,
    SX_BODY_APPLY,
    SX_BODY_REDUCE,
    SX_BODY_DOT,
    SX_BODY_ONLINE
} sx_body_kind;
typedef struct {
    sx_body_kind kind;
    sx_op op;               /* APPLY */
    sx_direction direction; /* APPLY compare */
    sx_reducer reducer;     /* REDUCE */
    sx_dtype dtype;         /* of the value */
    uint32_t x, y,
        z; /* operands: instruction numbers; ARG: x is the argument; INDEX: x is the dimension */
    double imm; /* IMM */
} sx_instr;
typedef struct {
    sx_dim stride
        [SX_RANK_MAX]; /* elements per step of each space dimension; scale may be negative never */
    sx_dim offset;     /* elements; constant */
} sx_access;
struct sx_body {
    uint32_t arg_count;
    uint32_t instr_count;
    uint32_t axes;  /* set of 1 << dimension */
    uint32_t inner; /* those of `axes` that the DOT under an ONLINE sums over; else 0 */
    sx_access access[SX_FUSED_ARGS_MAX];
    sx_instr instr[SX_FUSED_INSTRS_MAX];
};
typedef enum { SX_KERNEL_MAP, SX_KERNEL_ROW, SX_KERNEL_DOT, SX_KERNEL_ONLINE } sx_kernel_kind;

/* What is in use of `from` into `to`, which has room for all. The body of an interned attribute ends with its last instruction, so a body is
 * copied in no other way. */
void sx_body_copy(sx_body *to, const sx_body *from);
sx_kernel_kind sx_body_kernel_kind(const sx_body *body);
/* Is it a REDUCE, DOT or ONLINE? */
bool sx_body_combines(const sx_instr *instr);
/* Number of operands among x, y, z that are instruction numbers. */
uint32_t sx_body_operand_count(const sx_instr *instr);
uint64_t sx_body_hash(const sx_body *body);
bool sx_body_equal(const sx_body *a, const sx_body *b);
/* Does the last instruction vary along the reduced axes (so that the result has the whole space as its shape)? */
bool sx_body_result_is_full(const sx_type *space, const sx_body *body);
/* Result type of a fused node; SX_INPUT with the instruction number where the rules above are broken. */
sx_code sx_fused_infer(sx_ctx *cx, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                       sx_type *result);

/* Any one operation as a fused body over its own inputs, unfused otherwise. SX_UNIMPLEMENTED for those that are no single loop
 * nest: parameter, constant (non-splat), reshape, concatenate, gather, reverse, pad, attention; and where a stride has two symbols, a
 * slice has a symbolic offset, a window has padding, a convolution has groups of several output channels, or the space needs more than
 * SX_RANK_MAX dimensions. Softmax, layer_norm, rms_norm, reduce become row kernels, reduce_window one over the space [result but its
 * last dimension, window, last dimension]; dot_general a contraction over the space [batch, left free, right free, contracted in the
 * order of the attribute], convolution over [n, o, places .., c, window ..] (window dimensions of extent 1 left out in both); views
 * become copies through the access; online_dot with v has its own kind of kernel, without v it is the row kernel of its definition
 * (sx_fused_lift_online is the other kind). A reduction or contraction over nothing gets a last axis of extent 1. `fused` returns itself. */
sx_code sx_fused_lift(sx_ctx *cx, sx_op op, const sx_attr *attr, const sx_type *input,
                      uint32_t input_count, const sx_type *result, sx_attr *fused);
sx_code sx_fused_lift_online(sx_ctx *cx, const sx_attr *attr, const sx_type *input,
                             uint32_t input_count, const sx_type *result, sx_attr *fused);

/* Argument `a` of `consumer` is produced by view `op`/`view` of a tensor of type `source` with result type `through`: the consumer
 * reading the source directly. *ok false where the composed access is not affine. */
sx_code sx_fused_absorb_view(sx_ctx *cx, const sx_attr *consumer, uint32_t a, sx_op op,
                             const sx_attr *view, const sx_type *source, const sx_type *through,
                             sx_attr *fused, bool *ok);

/* Argument `a` of `consumer` is produced by the fused node `producer` (result type `through`): one node computing both, with the
 * arguments of the consumer but `a`, then those of the producer, duplicates kept (the caller may merge equal ones through
 * sx_fused_merge_args). *ok false unless it is legal without recomputing a reduction: producer a map read at any affine access;
 * or producer row/contraction with a full or reduced result that a map consumer reads one to one (epilogue). A straight read keeps
 * the producer's space. A permuted read, or one through a reshape that splits the result's dimensions or merges such as the
 * producer reads contiguously, gives the space [the consumer's dimensions, the reduced ones]; a full row result only if that keeps
 * the order of summation. A map goes into an operand of a DOT, or the second of an ONLINE, only if it is a copy. A contraction goes
 * into the scores of an ONLINE unless both its operands vary along the keys: its reduced dimensions come last and are `inner`. */
sx_code sx_fused_inline(sx_ctx *cx, const sx_attr *consumer, uint32_t a, const sx_attr *producer,
                        const sx_type *through, sx_attr *fused, bool *ok);

/* Argument `a` replaced by the splat value `imm` inside the program; the argument disappears. SX_UNIMPLEMENTED for an operand of a
 * DOT, or where the result would become constant along the reduced axes. */
sx_code sx_fused_inline_splat(sx_ctx *cx, const sx_attr *consumer, uint32_t a, double imm,
                              sx_attr *fused);

/* Arguments `keep` and `drop` (keep < drop) are the same tensor: with equal accesses the ARG instructions are merged and the
 * argument disappears, else *ok is false. */
sx_code sx_fused_merge_args(sx_ctx *cx, const sx_attr *attr, uint32_t keep, uint32_t drop,
                            sx_attr *fused, bool *ok);

/* eval_fused.c: single elements of a static fused node, for checking compiled kernels too big to evaluate whole.
 *   mode      F64 for references; TYPED gives the rounding of the element types (a DOT's chain bit for bit)
 *   raw       input a's stored little-endian elements, all of them; borrowed
 *   position  row-major element numbers of the result; positions of one row next to each other share its reductions
 *   value     one double per position
 *   fuel      (1 + instructions) per iteration read: points * reduction length for contractions, a whole row per row visited
 *   errors    SX_INPUT node not valid or not static, bytes that do not fit a type, position outside */
sx_code sx_fused_eval_at(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_type *input,
                         const sx_span *raw, uint32_t input_count, const int64_t *position,
                         uint32_t position_count, double *value);
#endif
