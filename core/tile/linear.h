/* linear.h - linear maps over GF(2): where hardware bits meet coordinates and addresses.
 *
 * A map of n input bits is a list of n columns, one for each input bit. The value at x is the exclusive or of the
 * columns of the bits that are set in x. A column of zero says that its bit does not matter. Everything here is
 * Gauss elimination on words of 32 bits: exact, and in microseconds.
 * Invariant: columns have no bit at `output_bits` or above.
 * Papers: Zhou 2025 (linear layouts, arXiv 2505.23819).
 */
#ifndef SX_CORE_TILE_LINEAR_H
#define SX_CORE_TILE_LINEAR_H
#include "core/base/base.h"

#define SX_LINEAR_INPUTS_MAX 24

typedef struct {
    uint8_t input_bits;
    uint8_t output_bits; /* at most 32 */
    uint32_t column[SX_LINEAR_INPUTS_MAX];
} sx_linear;

/* The map that changes nothing on so many bits. */
sx_linear sx_linear_identity(uint32_t bits);
/* The value at x; x < 2^input_bits. */
uint32_t sx_linear_apply(const sx_linear *map, uint32_t x);
/* x -> outer(inner(x)); outer takes as many bits as inner gives. */
sx_linear sx_linear_compose(const sx_linear *outer, const sx_linear *inner);
bool sx_linear_equal(const sx_linear *a, const sx_linear *b);

/* Dimension of the image. */
uint32_t sx_linear_rank(const sx_linear *map);
/* The rank of `count` columns, of which only the bits in `mask` are looked at. */
uint32_t sx_linear_rank_of(const uint32_t *column, uint32_t count, uint32_t mask);
/* The input bits that are no combination of lower input bits. Every value of the map is taken by exactly one input
 * that is zero in all other bits, and that input is the smallest one with this value. */
uint32_t sx_linear_pivots(const sx_linear *map);

/* The smallest x with map(x) = y among those whose bits lie in `inputs`; false if there is none. */
bool sx_linear_solve(const sx_linear *map, uint32_t inputs, uint32_t y, uint32_t *x);
/* A map with map(inverse(y)) = y for all y, which gives the smallest x each time; false unless every y of
 * output_bits is taken, or where output_bits are more than SX_LINEAR_INPUTS_MAX. */
bool sx_linear_find_inverse(const sx_linear *map, sx_linear *inverse);
#endif
