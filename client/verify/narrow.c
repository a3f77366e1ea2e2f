#include "client/verify/narrow.h"

#include <math.h>
#include <string.h>

#include "core/base/fast.h"

#define CHUNK 256
#define ERROR 0x1p-40      /* of what is computed here, relative to itself */
#define CENTRES_PER_ONE 32 /* centres lie 1/32 apart */
#define EXP_MAX 80.0F      /* beyond, exp is for the C library: it leaves the range of f32 soon */
#define ANY 0x1p127F       /* erf and tanh are computed here for all but the largest numbers */

/* ---- what is one operation in f32, too ---- */

#define EACH(value)                       \
    for (int64_t i = 0; i < count; i++) { \
        to[i] = (value);                  \
    }                                     \
    return true

SX_LEVELS static bool run_exact(sx_op op, const float *x, const float *y, int64_t count, float *to)
{
    switch ((int)op) {
    case SX_OP_NEGATE: EACH(-x[i]);
    case SX_OP_ABS: EACH(fabsf(x[i]));
    case SX_OP_SQRT: EACH(sqrtf(x[i]));
    case SX_OP_ADD: EACH(x[i] + y[i]);
    case SX_OP_SUBTRACT: EACH(x[i] - y[i]);
    case SX_OP_MULTIPLY: EACH(x[i] * y[i]);
    case SX_OP_DIVIDE: EACH(x[i] / y[i]);
    default: return false;
    }
}

/* ---- the others, some elements at a time ---- */

/* exp(x) for |x| <= EXP_MAX: 2^k exp(r) with |r| <= ln(2) / 2. The first term that is left out is r^13 / 13!. */
static inline double exp_of(double x)
{
    const double whole = 0x1.8p52; /* what is added to it is rounded to a whole number */
    const double ln2 = 0x1.62e42fefa39efp-1;
    double shifted = x * (1 / 0x1.62e42fefa39efp-1) + whole;
    double r = x - (shifted - whole) * ln2;
    double sum = 1.0 / 479001600;
    uint64_t k, bits;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    memcpy(&k, &shifted, sizeof(k)); /* its last bits are the whole number */
    memcpy(&bits, &sum, sizeof(bits));
    bits += k << 52;
    memcpy(&sum, &bits, sizeof(sum));
    return sum;
}

SX_LEVELS static void run_exp(const float *restrict x, int64_t count, double *restrict near)
{
    for (int64_t i = 0; i < count; i++) {
        near[i] = exp_of((double)x[i]);
    }
}

SX_LEVELS static void run_logistic(const float *restrict x, int64_t count, double *restrict near)
{
    for (int64_t i = 0; i < count; i++) {
        near[i] = 1 / (1 + exp_of(-(double)x[i]));
    }
}

/* erf or tanh by the polynomial about the next centre. */
SX_LEVELS static void run_odd(const sxv_narrow *restrict n, const float *restrict x, int64_t count,
                              double *restrict near)
{
    const double end = n->end;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs((double)x[i]);
        double inside = size < end ? size : end;
        int32_t centre = (int32_t)(inside * CENTRES_PER_ONE + 0.5);
        double h = inside - (double)centre * (1.0 / CENTRES_PER_ONE);
        double sum = n->term[7][centre];
        sum = sum * h + n->term[6][centre];
        sum = sum * h + n->term[5][centre];
        sum = sum * h + n->term[4][centre];
        sum = sum * h + n->term[3][centre];
        sum = sum * h + n->term[2][centre];
        sum = sum * h + n->term[1][centre];
        sum = sum * h + n->term[0][centre];
        near[i] = copysign(sum, (double)x[i]);
    }
}

/* `unsure` where the C library has to tell: beyond `most`, and where what is a little less is rounded to another number
 * than what is a little more. */
SX_LEVELS static bool round_near(const double *restrict near, const float *restrict x, float most,
                                 int64_t count, float *restrict to, int32_t *restrict unsure)
{
    int32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        float low = (float)(near[i] * (1 - ERROR));
        float high = (float)(near[i] * (1 + ERROR));
        int32_t differ = low == high ? 0 : 1;
        int32_t beyond = fabsf(x[i]) <= most ? 0 : 1;
        to[i] = high;
        unsure[i] = differ | beyond;
        any |= differ | beyond;
    }
    return any != 0;
}

static float by_library(sx_op op, double x)
{
    switch ((int)op) {
    case SX_OP_EXP: return (float)exp(x);
    case SX_OP_LOGISTIC: return (float)(1 / (1 + exp(-x)));
    case SX_OP_ERF: return (float)erf(x);
    case SX_OP_TANH: return (float)tanh(x);
    default: SX_UNREACHABLE();
    }
}

void sxv_narrow_run(const sxv_narrow *n, const float *x, const float *y, int64_t count, float *to)
{
    float from[CHUNK];
    double near[CHUNK];
    int32_t unsure[CHUNK];
    bool odd = n->op == SX_OP_ERF || n->op == SX_OP_TANH;
    SX_ASSERT(count >= 0);
    if (run_exact(n->op, x, y, count, to)) {
        return;
    }
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t some = sx_min_i64(CHUNK, count - first);
        memcpy(from, x + first, (size_t)some * sizeof(*from));
        if (odd) {
            run_odd(n, from, some, near);
        } else if (n->op == SX_OP_EXP) {
            run_exp(from, some, near);
        } else {
            run_logistic(from, some, near);
        }
        bool any = round_near(near, from, odd ? ANY : EXP_MAX, some, to + first, unsure);
        for (int64_t i = 0; any && i < some; i++) {
            if (unsure[i] != 0) {
                to[first + i] = by_library(n->op, (double)from[i]);
            }
        }
    }
}

/* ---- coefficients ---- */

/* With y = erf about c: (n + 1) (n + 2) y[n+2] = -2 c (n + 1) y[n+1] - 2 n y[n]. */
static void put_erf(double c, double y[SXV_NARROW_TERMS])
{
    y[0] = erf(c);
    y[1] = 2 / sqrt(acos(-1)) * exp(-c * c);
    for (int n = 0; n + 2 < SXV_NARROW_TERMS; n++) {
        double above = -2 * c * (n + 1) * y[n + 1] - 2 * n * y[n];
        y[n + 2] = above / ((n + 1) * (n + 2));
    }
}

/* With y = tanh about c: (n + 1) y[n+1] = (n = 0) - sum of y[i] y[n-i]. */
static void put_tanh(double c, double y[SXV_NARROW_TERMS])
{
    y[0] = tanh(c);
    y[1] = 1 / (cosh(c) * cosh(c));
    for (int n = 1; n + 1 < SXV_NARROW_TERMS; n++) {
        double sum = 0;
        for (int i = 0; i <= n; i++) {
            sum += y[i] * y[n - i];
        }
        y[n + 1] = -sum / (n + 1);
    }
}

bool sxv_narrow_make(sx_op op, sxv_narrow *n)
{
    n->op = op;
    n->end = op == SX_OP_ERF ? 4.0 : 9.0625;
    for (int i = 0; (op == SX_OP_ERF || op == SX_OP_TANH) && i < SXV_NARROW_CENTRES; i++) {
        double y[SXV_NARROW_TERMS];
        if (op == SX_OP_ERF) {
            put_erf((double)i / CENTRES_PER_ONE, y);
        } else {
            put_tanh((double)i / CENTRES_PER_ONE, y);
        }
        for (int k = 0; k < SXV_NARROW_TERMS; k++) {
            n->term[k][i] = y[k];
        }
    }
    _Static_assert(SXV_NARROW_TERMS == 8, "run_odd has as many");
    return op == SX_OP_ERF || op == SX_OP_TANH || op == SX_OP_EXP || op == SX_OP_LOGISTIC ||
           run_exact(op, NULL, NULL, 0, NULL);
}
