/* fused_body.h - making and rewriting the bodies of fused nodes: instructions, affine accesses, symbolic bounds. For
 * core/ir, the interpreter and what makes fused nodes.
 *
 * Invariant kept by every rewrite: equal instructions are one instruction (value numbering), every instruction
 * is used, the result is the last one. sx_fused_infer refuses bodies with unused instructions, so equal
 * kernels tend to have equal bodies.
 */
#ifndef SX_CORE_IR_FUSED_BODY_H
#define SX_CORE_IR_FUSED_BODY_H
#include "core/ir/fused.h"

/* An empty body in cx's arena; NULL past the limit with cx->error set. */
sx_body *sx_body_make(sx_ctx *cx);
static inline uint32_t sx_body_operand(const sx_instr *instr, uint32_t k)
{
    return k == 0 ? instr->x : k == 1 ? instr->y : instr->z;
}
/* The number of an instruction equal to `instr`, appended if there is none; false when the body is full. */
bool sx_body_put(sx_body *body, const sx_instr *instr, uint32_t *index);
/* Drops every instruction that `result` does not need; `result` becomes the last one. */
void sx_body_trim(sx_body *body, uint32_t result);
/* vary[i]: set of the space dimensions that instruction i varies along (REDUCE, DOT and ONLINE clear what they sum
 * over, sx_body_summed). */
void sx_body_vary(const sx_body *body, uint32_t rank, uint32_t vary[SX_FUSED_INSTRS_MAX]);
/* May these instructions stand in one kernel without changing a bit of what they give in kernels of their own? */
bool sx_body_keeps_bits(const sx_body *body);
/* Sets `fused` to the attribute of a fused node. */
void sx_body_wrap(const sx_type *space, const sx_body *body, sx_attr *fused);
/* The shape of the result of a body that has passed sx_fused_infer, without its checks. */
void sx_body_shape(const sx_type *space, const sx_body *body, sx_type *result);

/* ---- symbolic bounds ---- */
#define SX_LINEAR_TERMS_MAX 4
/* constant + sum of term[k].scale * symbol; symbols differ. Coefficients may be negative here. */
typedef struct {
    int64_t constant;
    uint32_t term_count;
    sx_dim term[SX_LINEAR_TERMS_MAX];
} sx_linear;
/* linear += sign * a, linear += sign * a * b; false where it is not linear, has too many symbols or overflows. */
bool sx_linear_add(sx_linear *linear, sx_dim a, int64_t sign);
bool sx_linear_add_product(sx_linear *linear, sx_dim a, sx_dim b, int64_t sign);
/* True only if the value is >= 0 whenever every symbol is >= 1 (sufficient; not necessary with several terms). */
bool sx_linear_is_nonnegative(const sx_linear *linear);

/* ---- accesses ---- */
/* True only if the access over the whole space reads inside a tensor of type `input`, whatever the symbols are. */
bool sx_access_is_inside(const sx_type *space, const sx_access *access, const sx_type *input);

/* Digits of a flat access over a tensor: for every merged dimension j of the tensor, flat = sum over j of
 * step[j] * digit_j with digit_j = offset[j] + sum over d of digit[d][j] * i[d], each digit inside [0, extent[j]). */
typedef struct {
    uint32_t count;             /* merged dimensions of the tensor */
    sx_dim extent[SX_RANK_MAX]; /* of merged dimension j */
    sx_dim step[SX_RANK_MAX];   /* row-major stride of merged dimension j */
    uint32_t last[SX_RANK_MAX]; /* innermost dimension of the tensor in merged dimension j */
    sx_dim offset[SX_RANK_MAX];
    sx_dim digit[SX_RANK_MAX][SX_RANK_MAX]; /* [space dimension][merged dimension] */
} sx_digits;
/* The set of dimensions j of `tensor` that can be merged with the next one (dimensions of extent 1 left out)
 * without changing any of the given affine reads of it: column[c][j] == extent[next] * column[c][next]. */
uint32_t sx_digits_joined(const sx_type *tensor, uint32_t column_count,
                          sx_dim column[][SX_RANK_MAX]);
/* Reads `access` (over `space`) of a tensor of type `tensor` digit by digit. Dimensions j and j + 1 of the
 * tensor are merged where `joined` has bit j. Dimensions of extent 1 have digit 0. False where a digit can
 * carry or a stride has no digits. */
bool sx_access_digits(const sx_type *space, const sx_access *access, const sx_type *tensor,
                      uint32_t joined, sx_digits *digits);
/* `inner` reads something at the tensor's dimensions; `composed` reads it at the `rank` space dimensions.
 * False where a stride or the offset cannot be written. */
bool sx_digits_compose(const sx_digits *digits, uint32_t rank, const sx_access *inner,
                       sx_access *composed);
#endif
