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

/* Some elements of an operand, as floats where `narrow` is set, else as doubles: of the left one `count` steps from
 * `k` of row `at`; of the right one, at step `k`, `count` columns from `at`. */
typedef void (*sxv_load)(const void *self, bool narrow, int64_t batch, int64_t k, int64_t at,
                         int64_t count, void *out);

/* Memory that is used again from product to product; all zeros at first. */
typedef struct {
    void *memory;
    size_t bytes;
} sxv_scratch;
void sxv_scratch_free(sxv_scratch *scratch);

typedef struct {
    int64_t batch, rows, columns, length; /* length: steps of k */
    sxv_load load_left, load_right;
    const void *left, *right;
    /* Sums are carried in f32. */
    bool narrow;
    /* With `narrow`: what is multiplied is rounded to tf32 before (rounded.h). */
    bool tf32;
    /* [batch][rows][columns]: doubles, or floats where sums are narrow. One of them is there. */
    double *result;
    float *result_f32;
    sxv_scratch *scratch;
} sxv_product;

/*   memory   `scratch` holds one operand
 *   errors   SX_NOMEM */
sx_code sxv_multiply(sx_ctx *cx, sxr_pool *pool, const sxv_product *product);
#endif
