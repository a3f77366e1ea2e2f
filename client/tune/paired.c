#include "client/tune/paired.h"

#include <math.h>
#include <stdlib.h>

double sxt_chance(uint32_t wins, uint32_t pairs)
{
    double sum = 0;
    SX_ASSERT(wins <= pairs);
    for (uint32_t k = wins; k <= pairs; k++) {
        sum +=
            exp(lgamma(pairs + 1.0) - lgamma(k + 1.0) - lgamma(pairs - k + 1.0) - pairs * log(2));
    }
    return sum < 1 ? sum : 1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

sx_code sxt_compare(sx_ctx *cx, const double *a, uint64_t a_step, const double *b, uint64_t b_step,
                    uint32_t count, sxt_comparison *c)
{
    SX_ASSERT(count > 0);
    *c = (sxt_comparison){.ratio = 1};
    double *ratio = SX_NEW_ARRAY(cx, double, count);
    if (ratio == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        double mine = a[i * a_step], other = b[i * b_step];
        ratio[i] = other > 0 ? mine / other : 1;
        c->wins += mine < other ? 1 : 0;
        c->pairs += mine < other || mine > other ? 1 : 0;
    }
    qsort(ratio, count, sizeof(*ratio), by_size);
    c->ratio = (ratio[count / 2] + ratio[(count - 1) / 2]) / 2;
    c->chance = sxt_chance(c->wins, c->pairs);
    return SX_OK;
}
