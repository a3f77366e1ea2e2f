/* sort_order.c - the order of `sort` as one of integers, written once for the lowering and for the judge.
 *
 * An element becomes a pair of integers: a key, which compares as the element does, and a tag, which is larger the
 * later it comes along the axis. So pairs are all different, elements are in order where pairs are, the smallest
 * first, and any way of sorting the pairs gives the stable order of the elements.
 *
 *   integers   the key is the element, and the tag its place
 *   floats     the bits of a positive float compare as it does, and those of a negative one do once all but the sign
 *              are flipped. Zeros have one key, all that is not a number has the largest. The tag is twice the place,
 *              and has the sign of the element as its lowest bit, which the key of a zero has lost
 *   descending all bits of the key are flipped
 */
#include "core/loop/loop.h"

static uint32_t apply(sx_loop_builder *b, sx_lop op, uint32_t x, uint32_t y, uint32_t imm)
{
    return sx_loop_op(b, op, SX_NO_REG, NULL, x, y, SX_NO_REG, imm, 0);
}

static uint32_t choose(sx_loop_builder *b, uint32_t mask, uint32_t x, uint32_t y)
{
    return sx_loop_op(b, SX_LOP_BLEND, SX_NO_REG, NULL, mask, x, y, 0, 0);
}

static bool is_wide(const sx_loop_builder *b)
{
    return b->kernel->lane_bytes == 8;
}

/* All bits but the sign, and all bits. */
static uint32_t magnitude(sx_loop_builder *b)
{
    return sx_loop_bits(b, is_wide(b) ? INT64_MAX : INT32_MAX);
}

static uint32_t flipped(sx_loop_builder *b, uint32_t key)
{
    return apply(b, SX_LOP_XOR, key, sx_loop_bits(b, is_wide(b) ? UINT64_MAX : UINT32_MAX), 0);
}

/* What compares as the float does, and back from there. */
static uint32_t turned(sx_loop_builder *b, uint32_t bits)
{
    uint32_t negative = apply(b, SX_LOP_ICMP, sx_loop_bits(b, 0), bits, SX_GT);
    return choose(b, negative, apply(b, SX_LOP_XOR, bits, magnitude(b), 0), bits);
}

static bool is_real(sx_dtype dtype)
{
    return sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
}

/* A truth value sorts as the integer that it lies in memory as. */
static sx_dtype number_of(sx_dtype dtype)
{
    return dtype == SX_BOOL ? SX_U8 : dtype;
}

sx_loop_pair sx_loop_sort_enter(sx_loop_builder *b, sx_dtype dtype, bool falls, uint32_t raw,
                                uint32_t place)
{
    uint32_t key = sx_loop_decode(b, number_of(dtype), raw);
    uint32_t tag = place;
    if (is_real(dtype)) {
        uint32_t value = key;
        uint32_t sign = apply(b, SX_LOP_SHR, value, SX_NO_REG, 8 * b->kernel->lane_bytes - 1);
        tag = apply(b, SX_LOP_OR, apply(b, SX_LOP_SHL, place, SX_NO_REG, 1), sign, 0);
        uint32_t none = apply(b, SX_LOP_CMP, value, value, SX_NE);
        key = turned(b, apply(b, SX_LOP_ADD, value, sx_loop_bits(b, 0), 0)); /* -0 + 0 is 0 */
        key = choose(b, none, magnitude(b), key);
    }
    return (sx_loop_pair){falls ? flipped(b, key) : key, tag};
}

uint32_t sx_loop_sort_value(sx_loop_builder *b, sx_dtype dtype, bool falls, sx_loop_pair pair)
{
    uint32_t value = falls ? flipped(b, pair.key) : pair.key;
    if (is_real(dtype)) {
        uint32_t sign = apply(b, SX_LOP_SHL, pair.tag, SX_NO_REG, 8 * b->kernel->lane_bytes - 1);
        value = apply(b, SX_LOP_OR, turned(b, value), sign, 0);
        if (dtype ==
            SX_F8E5M2) { /* its infinities become the largest number, as in any arithmetic */
            value = sx_loop_round(b, dtype, value);
        }
    }
    return sx_loop_encode(b, number_of(dtype), value);
}

uint32_t sx_loop_sort_place(sx_loop_builder *b, sx_dtype dtype, sx_loop_pair pair)
{
    return is_real(dtype) ? apply(b, SX_LOP_SHR, pair.tag, SX_NO_REG, 1) : pair.tag;
}

uint32_t sx_loop_sort_last(sx_loop_builder *b)
{
    return magnitude(b);
}
