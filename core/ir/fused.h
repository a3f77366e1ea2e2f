/* fused.h - one kernel as a value: an iteration space, arguments with strides, and a scalar program.
 *
 * A node of the operation `fused` is what the compiler makes one loop nest of. It says what is computed at one
 * point of a box (the iteration space) and which element of each argument that point reads. It is what
 * MLIR calls linalg.generic, with reductions inside, and XLA a fusion. For example, relu(x + bias) for x of shape
 * [8, 64] is the space [8, 64], the accesses 64 * i0 + i1 and i1, and the program ARG 0, ARG 1, add, IMM 0, maximum.
 *
 * Every primitive operation except parameter, constant, reshape, concatenate and gather can be turned into a fused
 * node (sx_fused_lift in core/fuse/fuse.h; the others that cannot are listed there). Fused nodes then grow: a view
 * becomes part of an access, an elementwise producer or consumer becomes part of the program.
 *
 *   space      The dimensions 0 .. rank - 1 of attr.type, which also gives the element type of the result. The
 *              dimensions in `axes` are reduced.
 *   argument   The element that a point reads has the row-major number offset + sum over d of stride[d] * i[d].
 *              Strides and the offset may be multiples of a symbol; a stride is 0 for a broadcast. Every read lies
 *              inside the argument; a node for which this cannot be proved for all values of the symbols is refused.
 *   program    A list of instructions. Operands are earlier instructions, and every instruction except the last is
 *              used by a later one.
 *
 *     ARG a          the element of argument a that belongs to this point
 *     IMM v          a constant, rounded to `dtype`; for integers and bool a whole number in range
 *     INDEX d        the coordinate of the point along dimension d
 *     APPLY op       an elementwise primitive on x, y, z; types follow sx_infer_type. Composites such as gelu are
 *                    refused here, because sx_fused_lift expands them
 *     REDUCE r x     x combined by reducer r over all of `axes`; later instructions see one value per row
 *     DOT x y        the sum of x * y over `axes`, as one chain of fused multiply-adds in ascending order. x and y
 *                    may be of narrower types, whose elements become those of `dtype` first (sx_dot_widens). Where
 *                    `inner` is not empty, a DOT of two arguments sums over the axes in `inner` alone, and every
 *                    other reduction over those that are not in it
 *     ONLINE x y     the sum over `axes` of e^(x - m) * y, where m is the maximum of x: softmax and its weighted
 *                    sum in one pass (online softmax, FlashAttention), which may be divided into blocks. y may be
 *                    narrower, as for DOT
 *
 *   order      Reductions visit the axes in ascending row-major order. Values narrower than f32 are accumulated in f32
 *              and rounded once.
 *   result     The last instruction. If it varies along `axes`, the result has the shape of the whole space;
 *              otherwise the dimensions in `axes` are gone. The dimensions of the result are in the order of the
 *              space, so a transposed result is written as a permuted space.
 *
 * The kind of kernel follows from the instructions (sx_body_kernel_kind):
 *
 *   map          no REDUCE, DOT or ONLINE
 *   row          a REDUCE and no DOT or ONLINE
 *   contraction  one DOT and no REDUCE. Its operands are ARG instructions, and what follows depends on the
 *                reduced dimensions only through the DOT.
 *   online       at least one ONLINE; several share their x, and y is an IMM or, at most once, an ARG. A DOT
 *                may compute the scores: it sums over the axes in `inner`, the ONLINE over the others. The
 *                only REDUCE allowed is the maximum of x. Only the operands of the DOT vary along `inner`, and
 *                the result along no axis.
 *   nested       a contraction of contractions, as the gradients of attention are: one or two inner DOTs, which sum
 *                over `inner`, and one outer DOT, which sums over the other axes. The x of the outer DOT is computed
 *                of the inner ones by an elementwise program; its y is an ARG. Nothing else uses an inner DOT. Only
 *                the operands of the inner DOTs vary along `inner`, and the result along no axis. No REDUCE and no
 *                ONLINE. The inner sums are chains in ascending order, and so is the outer one.
 */
#ifndef SX_CORE_IR_FUSED_H
#define SX_CORE_IR_FUSED_H
#include "core/ir/ir.h"

#define SX_FUSED_ARGS_MAX 16
#define SX_FUSED_INSTRS_MAX 96
/* Of a kernel that computes several nodes. */
#define SX_FUSED_RESULTS_MAX 4

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
    sx_op op;               /* used by APPLY */
    sx_direction direction; /* used by APPLY of compare */
    sx_reducer reducer;     /* used by REDUCE */
    sx_dtype dtype;         /* the element type of the value */
    /* The operands, as numbers of earlier instructions. For ARG, x is the number of the argument; for INDEX, x is the
     * dimension. */
    uint32_t x, y, z;
    double imm; /* used by IMM */
} sx_instr;
typedef struct {
    /* For each dimension of the space, how many elements one step moves. It is never negative. */
    sx_dim stride[SX_RANK_MAX];
    sx_dim offset; /* in elements; never negative */
} sx_access;
struct sx_body {
    uint32_t arg_count;
    uint32_t instr_count;
    uint32_t axes;  /* the reduced dimensions, as a set of 1 << dimension */
    uint32_t inner; /* those of `axes` that inner DOTs sum over; else 0 */
    sx_access access[SX_FUSED_ARGS_MAX];
    sx_instr instr[SX_FUSED_INSTRS_MAX];
};
typedef enum {
    SX_KERNEL_MAP,
    SX_KERNEL_ROW,
    SX_KERNEL_DOT,
    SX_KERNEL_ONLINE,
    SX_KERNEL_NESTED
} sx_kernel_kind;
/* Inner DOTs of a nested kernel. */
#define SX_NESTED_DOTS_MAX 2

/* Copies the part of `from` that is in use to `to`, which has room for a whole body. The body of an interned attribute
 * ends in memory behind its last instruction, so copying the whole struct would read too far. */
void sx_body_copy(sx_body *to, const sx_body *from);
sx_kernel_kind sx_body_kernel_kind(const sx_body *body);
/* May a DOT or ONLINE of type `to` have an argument of type `from`? They are equal, or f32 stands for a sum of
 * products of bf16 or f16, i32 for one of narrower integers: then each element of `from` is one of `to`. */
bool sx_dot_widens(sx_dtype from, sx_dtype to);
/* Is the instruction a REDUCE, DOT or ONLINE? */
bool sx_body_combines(const sx_instr *instr);
/* The dimensions that such an instruction of the body sums over. */
uint32_t sx_body_summed(const sx_body *body, const sx_instr *instr);
/* How many of x, y, z are numbers of instructions. */
uint32_t sx_body_operand_count(const sx_instr *instr);
uint64_t sx_body_hash(const sx_body *body);
/* Where a body stands in a table of the running process: equal bodies have equal places. It takes less time than
 * sx_body_hash, but may be another in another version of the program, so nothing stored may depend on it. */
uint64_t sx_body_place(const sx_body *body, uint64_t seed);
bool sx_body_equal(const sx_body *a, const sx_body *b);
/* Does a kernel of the body need lanes of 8 bytes: for values of f64 and i64, and quotients of i32, which are made of
 * doubles? */
bool sx_body_is_wide(const sx_body *body);
/* Does the last instruction vary along the reduced dimensions, so that the result has the shape of the whole space? */
bool sx_body_result_is_full(const sx_type *space, const sx_body *body);
/* Computes the type of the result and checks the rules above.
 *   errors   SX_INPUT with the number of the instruction that breaks a rule */
sx_code sx_fused_infer(sx_ctx *cx, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                       sx_type *result);
#endif
