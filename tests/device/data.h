/* data.h - what kernels are given on a device, and what they must answer.
 *
 * Elements of a tensor follow from its number and their index alone, so a reference of single results in double
 * precision needs no tensor: it shares nothing with the compiler, not even memory. */
#ifndef SX_TESTS_DEVICE_DATA_H
#define SX_TESTS_DEVICE_DATA_H
#include "tests/bench/shapes.h"

/* Elements of a tensor repeat after so many, a prime: rows of no extent are alike. */
#define SX_DATA_PERIOD 1048573u
typedef struct {
    sx_dtype dtype;
    uint32_t bytes;               /* of an element */
    double value[SX_DATA_PERIOD]; /* as the type holds it */
    uint8_t bits[4 * SX_DATA_PERIOD];
} sx_data;

/* Fills a table: random numbers of [-1, 1), or `exact`: whole numbers from -2 to 2, whose products and sums have no
 * rounding errors. False: no table of such elements. */
bool sx_data_make(sx_data *data, sx_dtype dtype, uint64_t seed, bool exact);
static inline double sx_data_at(const sx_data *data, int64_t index)
{
    return data->value[(uint64_t)index % SX_DATA_PERIOD];
}
/* An element of a result as a number; the nearest one that the type has, ties to even. */
double sx_data_decode(sx_dtype dtype, const uint8_t *bits);
double sx_data_round(sx_dtype dtype, double number);

typedef enum {
    SX_JUDGE_PRODUCT,
    SX_JUDGE_SOFTMAX,
    SX_JUDGE_RMS,
    SX_JUDGE_LAYER,
    SX_JUDGE_ATTENTION
} sx_judge_kind;
typedef struct {
    sx_judge_kind kind;
    int64_t x[4]; /* M N K; rows columns; batch heads tokens size */
    int64_t keys, groups;
    bool left_turned, right_turned, causal;
    sx_dtype result;
} sx_judged;
/* Reads the operation of a shape.  errors  SX_INPUT one that is not known here */
sx_code sx_judged_read(sx_ctx *cx, const sx_bench_shape *shape, sx_judged *judged);
/* Names of its inputs in the order of `input` below. */
const char *sx_judged_input(const sx_judged *judged, uint32_t index); /* NULL: no more */
int64_t sx_judged_results(const sx_judged *judged);
/* Result `index` in double precision, and how far from it a kernel may be that sums in f32 and rounds once: the bounds
 * of the rounding errors of the operation (Higham, Accuracy and Stability of Numerical Algorithms, section 3), where a
 * step may cut off instead of round. */
void sx_judged_at(const sx_judged *judged, const sx_data *const *input, int64_t index,
                  double *value, double *bound);
#endif
