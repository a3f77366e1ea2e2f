/* bits.h - a set of numbers below 128, such as operations. A set that is all zeros is empty. */
#ifndef SX_CORE_BASE_BITS_H
#define SX_CORE_BASE_BITS_H
#include "core/base/base.h"

#define SX_BITS_MAX 128u
#define SX_BITS_WORDS (SX_BITS_MAX / 64)
typedef struct {
    uint64_t word[SX_BITS_WORDS];
} sx_bits;

static inline bool sx_bits_has(const sx_bits *set, uint32_t number)
{
    SX_ASSERT(number < SX_BITS_MAX);
    return (set->word[number / 64] >> number % 64 & 1) != 0;
}
static inline void sx_bits_add(sx_bits *set, uint32_t number)
{
    SX_ASSERT(number < SX_BITS_MAX);
    set->word[number / 64] |= UINT64_C(1) << number % 64;
}
static inline void sx_bits_drop(sx_bits *set, uint32_t number)
{
    SX_ASSERT(number < SX_BITS_MAX);
    set->word[number / 64] &= ~(UINT64_C(1) << number % 64);
}
/* Do they have a number in common? */
static inline bool sx_bits_meet(const sx_bits *a, const sx_bits *b)
{
    return ((a->word[0] & b->word[0]) | (a->word[1] & b->word[1])) != 0;
}
static inline bool sx_bits_equal(const sx_bits *a, const sx_bits *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}
static inline uint32_t sx_bits_count(const sx_bits *set)
{
    return (uint32_t)(__builtin_popcountll(set->word[0]) + __builtin_popcountll(set->word[1]));
}
/* The least number that is `from` or above; SX_BITS_MAX where there is none. */
static inline uint32_t sx_bits_next(const sx_bits *set, uint32_t from)
{
    for (uint32_t w = from / 64; w < SX_BITS_WORDS; w++) {
        uint64_t left = set->word[w];
        left = w == from / 64 ? left >> from % 64 << from % 64 : left;
        if (left != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(left);
        }
    }
    return SX_BITS_MAX;
}
/* For sets that are not empty. */
static inline uint32_t sx_bits_first(const sx_bits *set)
{
    uint32_t first = sx_bits_next(set, 0);
    SX_ASSERT(first < SX_BITS_MAX);
    return first;
}
#endif
