/* paired.h - is one of two things faster than the other, on a machine that does something else beside?
 *
 * Both run in turns, and each run is compared with the one of the other next to it: what slows a machine for a while
 * slows both. The sign test asks how likely so many wins are where neither is faster: it knows nothing of the times
 * but which of two is the smaller, so that no outlier, however large, counts more than any other pair. */
#ifndef SX_CLIENT_TUNE_PAIRED_H
#define SX_CLIENT_TUNE_PAIRED_H
#include "core/base/base.h"

/* A change that has no effect is made once in a thousand. Fewer than 10 pairs are never certain. */
#define SXT_CHANCE_MAX 0.001
typedef struct {
    double ratio;         /* the median of a's time over b's */
    uint32_t wins, pairs; /* of a; pairs that are not equal */
    double chance;        /* of so many wins or more where neither is faster */
} sxt_comparison;

/* The chance that at least `wins` of `pairs` fair coins show heads. */
double sxt_chance(uint32_t wins, uint32_t pairs);
/* Compares a[i * a_step] with b[i * b_step], i < count, all above 0. */
sx_code sxt_compare(sx_ctx *cx, const double *a, uint64_t a_step, const double *b, uint64_t b_step,
                    uint32_t count, sxt_comparison *c);
#endif
