/* cell.h - the interpreter's scalars: elements as 8-byte cells, rounding, one scalar operation
 * in each mode.
 *
 * A cell holds what sx_tensor.data holds: F64, TYPED, POW2: `f` for floats, `i` for integers and bool; MODP:
 * `u`, a residue, for floats and integers, `i` 0 or 1 for bool.
 */
#ifndef SX_CORE_EVAL_CELL_H
#define SX_CORE_EVAL_CELL_H
#include "core/eval/eval.h"

typedef union {
    double f;
    int64_t i;
    uint64_t u;
} sx_cell;
_Static_assert(sizeof(sx_cell) == 8, "a cell is 8 bytes");

/* ---- stored elements (tensor.c; the formats are in core/ir/num.h) ---- */
/* Element `index` of packed elements. */
sx_cell sx_cell_load(sx_eval_mode mode, sx_dtype dtype, const uint8_t *raw, int64_t index);

/* ---- exact arithmetic mod 2^31 - 1 (modp.c) ---- */
#define SX_MODULUS UINT64_C(2147483647)
/* Any finite double is m * 2^e, hence a residue; infinities and NaN have fixed ones, inf and -inf opposite. */
uint64_t sx_residue_of(double value);
uint64_t sx_residue_of_int(int64_t value);
static inline uint64_t sx_residue_fold(uint64_t x) /* x mod p for any x */
{
    x = (x & SX_MODULUS) + (x >> 31);
    x = (x & SX_MODULUS) + (x >> 31);
    return x >= SX_MODULUS ? x - SX_MODULUS : x;
}
/* x as a number in [-(p-1)/2, (p-1)/2]: the order of MODP, under which negation reverses order. */
int64_t sx_residue_balanced(uint64_t x);
uint64_t sx_residue_apply(sx_op op, bool is_float, uint64_t x, uint64_t y);
uint64_t sx_residue_convert(sx_dtype from, sx_dtype to, uint64_t x);

/* ---- exact arithmetic mod p and mod q (fields.c) ---- */
bool sx_pair_check(uint64_t x); /* both halves defined and in range */
uint64_t sx_pair_of(double value);
uint64_t sx_pair_of_int(int64_t value);
int64_t sx_pair_balanced(uint64_t x);
uint64_t sx_pair_apply(sx_op op, bool is_float, uint64_t x, uint64_t y);
uint64_t sx_pair_multiply(uint64_t x, uint64_t y);
uint64_t sx_pair_convert(sx_dtype from, sx_dtype to, uint64_t x);
/* Are floats and integers residues in this mode? What a constant is then, and its place in the order. */
static inline bool sx_mode_is_exact(sx_eval_mode mode)
{
    return mode == SX_EVAL_MODP || mode == SX_EVAL_FIELDS;
}
static inline uint64_t sx_exact_of(sx_eval_mode mode, double value)
{
    return mode == SX_EVAL_MODP ? sx_residue_of(value) : sx_pair_of(value);
}
static inline int64_t sx_exact_balanced(sx_eval_mode mode, uint64_t x)
{
    return mode == SX_EVAL_MODP ? sx_residue_balanced(x) : sx_pair_balanced(x);
}

/* ---- scalar operations (scalar.c) ---- */
sx_cell sx_cell_of(sx_eval_mode mode, sx_dtype dtype,
                   double value); /* as a constant of that type */
sx_cell sx_cell_of_int(sx_eval_mode mode, sx_dtype dtype, int64_t value);
/* `from` is the type of x (select: of y), `to` of the result. */
typedef struct {
    sx_op op;
    sx_direction direction;
    sx_dtype from, to;
} sx_scalar_op;
/* One elementwise primitive (no composite) that sx_infer_type admits. */
sx_cell sx_cell_apply(sx_eval_mode mode, const sx_scalar_op *op, sx_cell x, sx_cell y, sx_cell z);

/* Reductions run in ascending order from the neutral element (0, 1, lowest, highest). In TYPED mode they
 * accumulate in f32 where the type is narrower and round once in `close`. A maximum or minimum of anything
 * that is NaN is NaN, in whatever order. */
sx_dtype sx_accumulator(sx_dtype dtype);
sx_cell sx_reduce_open(sx_eval_mode mode, sx_reducer reducer, sx_dtype dtype);
sx_cell sx_reduce_step(sx_eval_mode mode, sx_reducer reducer, sx_dtype dtype, sx_cell sum,
                       sx_cell x);
sx_cell sx_reduce_close(sx_eval_mode mode, sx_dtype dtype, sx_cell sum);
/* sum + x * y from sx_reduce_open(.., SX_SUM, ..): a fused multiply-add in TYPED, multiply and add of doubles
 * in F64 and POW2. */
sx_cell sx_dot_step(sx_eval_mode mode, sx_dtype dtype, sx_cell sum, sx_cell x, sx_cell y);

/* ---- operations on tensors ---- */
/* Room for the elements of a static type, cells zeroed; spends one unit of fuel per element. */
sx_code sx_tensor_make(sx_ctx *cx, const sx_type *type, sx_tensor *tensor);
sx_code sx_eval_dot(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                    const sx_type *type, sx_tensor *result);
/* window.c; result->type is known, its cells are there. Fuel: one per element moved, combined or multiplied. */
sx_code sx_eval_reverse(sx_ctx *cx, const sx_attr *attr, const sx_tensor *input, sx_tensor *result);
sx_code sx_eval_pad(sx_ctx *cx, const sx_attr *attr, const sx_tensor *input, sx_tensor *result);
sx_code sx_eval_window(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                       sx_tensor *result);
sx_code sx_eval_convolution(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                            const sx_tensor *input, sx_tensor *result);
/* eval.c: a program whose arguments are values of the evaluation around it, taken as they are. */
sx_code sx_eval_inside(sx_ctx *cx, const sx_graph *graph, sx_eval_mode mode,
                       const sx_tensor *argument, uint32_t argument_count, sx_tensor *result,
                       uint32_t result_count);
/* eval.c: argument k with every float rounded to its type; SX_INPUT where an element is no value of its type. */
sx_code sx_eval_take(sx_ctx *cx, sx_eval_mode mode, uint32_t k, const sx_tensor *argument,
                     sx_tensor *taken);
/* mesh.c: a collective in which one rank takes part; its result has its cells. SX_INPUT where there are others. */
sx_code sx_eval_alone(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                      const sx_tensor *input, sx_tensor *result);
/* region.c: those results of scan, while or cond that are in the set `wanted`; the types of these are known, their
 * cells are there. Fuel: one for each evaluation of a program, and what it takes. */
sx_code sx_eval_region(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                       const sx_tensor *input, uint32_t input_count, uint64_t wanted,
                       sx_tensor *result);
/* index.c; the same. */
sx_code sx_eval_scatter(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                        sx_tensor *result);
sx_code sx_eval_dynamic_slice(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                              const sx_tensor *input, sx_tensor *result);
sx_code sx_eval_dynamic_update(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode,
                               const sx_tensor *input, sx_tensor *result);
/* sort.c; the same. */
sx_code sx_eval_sort(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                     sx_tensor *result);
sx_code sx_eval_fused(sx_ctx *cx, const sx_attr *attr, sx_eval_mode mode, const sx_tensor *input,
                      uint32_t input_count, const sx_type *type, sx_tensor *result);
#endif
