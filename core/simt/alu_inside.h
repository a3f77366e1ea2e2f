/* alu_inside.h - what the files of alu.h share. */
#ifndef SX_CORE_SIMT_ALU_INSIDE_H
#define SX_CORE_SIMT_ALU_INSIDE_H
#include <string.h>

#include "core/simt/alu.h"
#include "core/simt/exact.h"

typedef void (*sx_ptx_run)(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                           const sx_ptx_word *const *operand, uint32_t active);

#define SX_PTX_EACH_LANE(i) for (uint32_t i = 0; i < SX_PTX_LANES; i++)

/* Writes the active lanes. */
static inline void sx_ptx_put_lanes(sx_ptx_word *to, const sx_ptx_word *value, uint32_t active)
{
    if (active == UINT32_MAX) {
        *to = *value;
        return;
    }
    SX_PTX_EACH_LANE(i)
    {
        to->lane[i] = (active >> i & 1) != 0 ? value->lane[i] : to->lane[i];
    }
}

static inline float sx_ptx_f32(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof(value));
    return value;
}

static inline uint32_t sx_ptx_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Writes p and q of a comparison whose outcome is `truth`, joined with the third operand. */
void sx_ptx_put_predicates(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                           const sx_ptx_word *const *operand, const sx_ptx_word *truth,
                           uint32_t active);

/* NULL: no float type. Of packed types that of an element. */
const sx_ptx_format *sx_ptx_format_of(sx_ptx_modifier type);
sx_ptx_rounding sx_ptx_rounding_of(sx_ptx_modifier round);
/* A number of the format; subnormal ones are zero with `ftz`. */
sx_ptx_exact sx_ptx_read_float(const sx_ptx_format *format, uint64_t bits, bool ftz);
/* Rounded as the instruction says, then `ftz`, .relu and .sat. */
uint64_t sx_ptx_write_float(const sx_ptx_alu *alu, const sx_ptx_format *format, sx_ptx_exact value,
                            bool ftz);

/* What .approx gives where the quick way cannot tell; of finite operands, above 0 for LG2. */
float sx_ptx_approx_slowly(sx_ptx_handler handler, float operand);

/* By handler; NULL: the file has none for this instruction. */
sx_ptx_run sx_ptx_integer_of(const sx_ptx_alu *alu);
sx_ptx_run sx_ptx_float_of(const sx_ptx_alu *alu);
sx_ptx_run sx_ptx_approx_of(const sx_ptx_alu *alu);
sx_ptx_run sx_ptx_convert_of(const sx_ptx_alu *alu);
sx_ptx_run sx_ptx_mma_of(const sx_ptx_alu *alu);
#endif
