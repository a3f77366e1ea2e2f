#include "client/verify/compare.h"

#include "client/verify/rounded.h"

#include <float.h>
#include <math.h>

#include "core/base/fast.h"
#include "client/verify/moved.h"

#define SMALLEST 0x1p-143 /* 64 of the smallest numbers of f32 */

/* How often what lies between the references, and how many units of the group's and of the tensor's largest
 * magnitude. */
typedef struct {
    double spreads, units, units_whole;
} rule;
static const rule right_rule = {16, 64, 4};
static const rule wrong_rule = {64, 1024, 16};
static const rule rounded_rule = {0, 48, 3}; /* against the rounded elements */

/* Half a unit in the last place of 1; 0 for integers and bools. */
double sxv_unit(sx_dtype dtype)
{
    switch ((int)dtype) {
    case SX_F64: return 0x1p-53;
    case SX_F32: return 0x1p-24;
    case SX_F16: return 0x1p-11;
    case SX_BF16: return 0x1p-8;
    case SX_F8E4M3: return 0x1p-4;
    case SX_F8E5M2: return 0x1p-3;
    }
    return 0;
}

static double exact_at(const sxv_pair *pair, int64_t i)
{
    bool is_float = sx_dtype_class_of(pair->type->dtype) == SX_CLASS_FLOAT;
    return is_float ? pair->exact[i].f : (double)pair->exact[i].i;
}

static double typed_at(const sxv_pair *pair, int64_t i)
{
    if (pair->typed_f32 != NULL) {
        return (double)pair->typed_f32[i];
    }
    bool is_float = sx_dtype_class_of(pair->type->dtype) == SX_CLASS_FLOAT;
    return is_float ? pair->typed[i].f : (double)pair->typed[i].i;
}

/* How far an element is off; infinite where no distance says it. */
static double distance(double got, double want, double typed)
{
    bool as_want = got == want || (isnan(got) && isnan(want));
    bool as_typed = got == typed || (isnan(got) && isnan(typed));
    if (as_want || as_typed || (isfinite(want) && !isfinite(typed) && !isfinite(got))) {
        return 0;
    }
    return isfinite(got) && isfinite(want) ? fabs(got - want) : (double)INFINITY;
}

typedef struct {
    double magnitude, spread;
} measure;

static void include(measure *m, double want, double typed)
{
    if (isfinite(want)) {
        m->magnitude = fmax(m->magnitude, fabs(want));
        m->spread = isfinite(typed) ? fmax(m->spread, fabs(want - typed)) : m->spread;
    }
}

static measure measure_of(const sxv_pair *pair, int64_t first, int64_t last)
{
    measure m = {0};
    for (int64_t i = first; i < last; i++) {
        include(&m, exact_at(pair, i), typed_at(pair, i));
    }
    return m;
}

/* Of what is rounded on the way to an element. */
static double unit_of(const sxv_pair *pair)
{
    bool tf32 = pair->tf32 && pair->type->dtype == SX_F32;
    return tf32 ? SXV_TF32_UNIT : sxv_unit(pair->type->dtype);
}

/* Narrow floats are computed in f32: beside the units of f32 there are a few roundings of the type itself. */
static double bound_of(const rule *r, double unit, const measure *group, const measure *whole)
{
    double step = fmin(unit, 0x1p-24);
    double own = unit > step ? (r->spreads > 0 ? 4 : 3) * unit : 0;
    return r->spreads * group->spread + (r->units * step + own) * group->magnitude +
           r->units_whole * step * whole->magnitude + (unit > 0 ? SMALLEST : 0);
}

/* ---- against the rounded elements alone ---- */
typedef struct {
    double magnitude, off;
    bool finite; /* all of both */
} rounded_group;

SX_LEVELS static rounded_group measure_f32(const float *typed, const float *got, int64_t count)
{
    double magnitude = 0;
    double off = 0;
    double sum = 0; /* 0, or NaN where anything is not finite */
    for (int64_t i = 0; i < count; i++) {
        double want = (double)typed[i];
        double far = fabs((double)got[i] - want);
        magnitude = fabs(want) > magnitude ? fabs(want) : magnitude;
        off = far > off ? far : off;
        sum += far * 0 + want * 0;
    }
    return (rounded_group){magnitude, off, sum == 0};
}

static rounded_group measure_rounded(const sxv_pair *pair, const void *memory, int64_t first,
                                     int64_t last)
{
    rounded_group g = {.finite = true};
    if (pair->typed_f32 != NULL) {
        return measure_f32(pair->typed_f32 + first, (const float *)memory + first, last - first);
    }
    for (int64_t i = first; i < last; i++) {
        double want = typed_at(pair, i);
        double got = sxv_element(pair->type->dtype, memory, i);
        g.magnitude = fmax(g.magnitude, fabs(want));
        g.off = fmax(g.off, fabs(got - want));
        g.finite = g.finite && isfinite(got) && isfinite(want);
    }
    return g;
}

static void compare_rounded(const sxv_pair *pair, const void *memory, bool wide, sxv_comparison *c)
{
    int64_t elements = sx_tensor_elements(pair->type);
    double unit = unit_of(pair);
    double scale = 0;
    for (int64_t first = 0; first < elements; first += SXV_GROUP) {
        int64_t last = sx_min_i64(first + SXV_GROUP, elements);
        rounded_group g = measure_rounded(pair, memory, first, last);
        scale = fmax(scale, g.magnitude);
        c->verdict = g.finite ? c->verdict : SXV_UNKNOWN;
    }
    measure whole = {.magnitude = wide ? 0 : scale};
    double ratio_worst = -1;
    for (int64_t first = 0; first < elements && c->verdict == SXV_RIGHT; first += SXV_GROUP) {
        int64_t last = sx_min_i64(first + SXV_GROUP, elements);
        rounded_group g = measure_rounded(pair, memory, first, last);
        measure m = {.magnitude = g.magnitude};
        double bound = bound_of(&rounded_rule, unit, &m, &whole);
        double ratio = g.off == 0 ? 0 : g.off / fmax(bound, DBL_MIN);
        c->verdict = g.off <= bound ? SXV_RIGHT : SXV_UNKNOWN;
        if (ratio > ratio_worst) {
            ratio_worst = ratio;
            c->error = g.off / (scale > 0 ? scale : 1);
            c->bound = bound / (scale > 0 ? scale : 1);
        }
    }
    c->finite = c->verdict == SXV_RIGHT ? c->points : 0;
}

/* ---- against both ---- */
void sxv_compare(const sxv_pair *pair, const void *memory, bool wide, double *spread,
                 sxv_comparison *c)
{
    const sx_type *type = pair->type;
    int64_t elements = sx_tensor_elements(type);
    SX_ASSERT(memory != NULL && (pair->typed == NULL) != (pair->typed_f32 == NULL));
    *c = (sxv_comparison){.points = (uint64_t)elements};
    if (pair->exact == NULL) {
        compare_rounded(pair, memory, wide, c);
        return;
    }
    double unit = unit_of(pair);
    measure whole = measure_of(pair, 0, elements);
    double scale = whole.magnitude > 0 ? whole.magnitude : 1;
    double ratio_worst = -1;
    c->spread = whole.spread > 0 ? whole.spread / whole.magnitude : 0;
    whole.magnitude = wide ? 0 : whole.magnitude;
    for (int64_t first = 0; first < elements; first += SXV_GROUP) {
        int64_t last = sx_min_i64(first + SXV_GROUP, elements);
        measure m = measure_of(pair, first, last);
        if (spread != NULL) {
            double *before = &spread[first / SXV_GROUP];
            *before = m.spread = fmax(*before, m.spread);
        }
        double right = bound_of(&right_rule, unit, &m, &whole);
        double bound = bound_of(&wrong_rule, unit, &m, &whole);
        for (int64_t i = first; i < last; i++) {
            double want = exact_at(pair, i);
            double got = sxv_element(type->dtype, memory, i);
            double off = distance(got, want, typed_at(pair, i));
            double ratio = off == 0 ? 0 : off / fmax(bound, DBL_MIN);
            sxv_verdict verdict = off <= right   ? SXV_RIGHT
                                  : off <= bound ? SXV_IMPRECISE
                                                 : SXV_WRONG;
            c->finite += isfinite(want) ? 1 : 0;
            c->nan += isnan(want) ? 1 : 0;
            c->wrong += verdict == SXV_WRONG ? 1 : 0;
            c->verdict = verdict > c->verdict ? verdict : c->verdict;
            if (ratio > ratio_worst) {
                ratio_worst = ratio;
                c->worst = (uint64_t)i;
                c->got = got;
                c->want = want;
                c->error = off / scale;
                c->bound = bound / scale;
            }
        }
    }
}
