/* multiply.h - products of matrices for the reference: the sums of contractions and convolutions, written in
 * C, in the order of the interpreter.
 *
 * result[b][i][j] = sum over k of left[b][i][k] * right[b][k][j], by fused multiply-adds over ascending k, in
 * doubles or in floats. In floats this is bit for bit what the interpreter's TYPED mode does. Vectors run
 * along j and rows i; no sum is split, so neither the threads nor the instruction set (AVX-512, AVX2, or plain
 * C) can change a bit.
 */
#ifndef SX_CLIENT_VERIFY_MULTIPLY_H
#define SX_CLIENT_VERIFY_MULTIPLY_H
#include "client/runtime/pool.h"

/* Elements of one step k of an operand, at `count` consecutive rows (left) or columns (right) from `first`, as
 * doubles. */
typedef void (*sxv_load)(const void *self, int64_t batch, int64_t k, int64_t first, int64_t count,
                         double *out);
typedef struct {
    int64_t batch, rows, columns, length; /* length: steps of k */
    sxv_load load_left, load_right;
    const void *left, *right;
    /* Sums are carried in f32. */
    bool narrow;
    /* [batch][rows][columns] */
    double *result;
} sxv_product;

/*   memory   malloc, about one operand; returned before the end
 *   errors   SX_NOMEM */
sx_code sxv_multiply(sx_ctx *cx, sxr_pool *pool, const sxv_product *product);
#endif
