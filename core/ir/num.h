/* num.h - element types as bits: every format to and from double, rounding to nearest even.
 *
 * Formats: IEEE 754 binary16/32/64, bfloat16 (the upper half of binary32), OCP 8-bit floating point (revision
 * 1.0, 2023): E5M2 as IEEE with 5 exponent bits, E4M3 without infinities, 448 the largest, S.1111.111 the only
 * NaN. Integers are two's complement, bool is 0 or 1. Bits are the little-endian value of the stored element,
 * zero above it.
 */
#ifndef SX_CORE_IR_NUM_H
#define SX_CORE_IR_NUM_H
#include "core/ir/ir.h"

/* The value of an element of a float type; exact. */
double sx_num_decode(sx_dtype dtype, uint64_t bits);
/* The nearest element of a float type, ties to even, subnormals kept. Too large: infinity, or NaN in f8e4m3.
 * NaN: the quiet NaN with the sign of `value`. */
uint64_t sx_num_encode(sx_dtype dtype, double value);
/* Any float type rounded through its format: decode(encode(value)). */
double sx_num_round(sx_dtype dtype, double value);
/* Smallest and largest value of an integer type or bool. */
int64_t sx_num_int_min(sx_dtype dtype);
int64_t sx_num_int_max(sx_dtype dtype);
/* The value of an element of an integer type or bool, sign-extended; and back, keeping the low bits. */
int64_t sx_num_int_decode(sx_dtype dtype, uint64_t bits);
uint64_t sx_num_int_encode(sx_dtype dtype, int64_t value);
/* Element `index` of packed little-endian elements, and back. */
uint64_t sx_num_load(sx_dtype dtype, const uint8_t *bytes, size_t index);
void sx_num_store(sx_dtype dtype, uint8_t *bytes, size_t index, uint64_t bits);
/* The value of one stored little-endian element as a double; false for integers that a double cannot hold. */
bool sx_element_value(sx_dtype dtype, const uint8_t *raw, double *value);
/* `value` rounded once to a float type as the arithmetic of a program rounds, to nearest even. f64 returns it. f16 and
 * bf16 overflow to infinity; f8e4m3 and f8e5m2 (OCP 8-bit floating point specification, saturating) go to +-448 and
 * +-57344, infinities too; NaN stays. */
double sx_round(sx_dtype dtype, double value);
#endif
