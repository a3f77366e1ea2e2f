#include "client/verify/compare.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/ir/eval.h"
#include "core/ir/num.h"

#define SMALLEST 0x1p-143 /* 64 of the smallest numbers of f32 */

/* How often what lies between the references, and how many units of the group's and of the tensor's largest
 * magnitude. */
typedef struct {
    double spreads, units, units_whole;
} rule;
static const rule right_rule = {16, 64, 4};
static const rule wrong_rule = {64, 1024, 16};

/* Half a unit in the last place of 1; 0 for integers and bools. */
static double unit_of(sx_dtype dtype)
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

static double number_at(const sx_tensor *tensor, int64_t i)
{
    const sx_cell *cell = tensor->data;
    bool is_float = sx_dtype_class_of(tensor->type.dtype) == SX_CLASS_FLOAT;
    return is_float ? cell[i].f : (double)cell[i].i;
}

static double stored_at(const sx_type *type, const void *memory, int64_t i)
{
    float narrow;
    if (type->dtype == SX_F32) {
        memcpy(&narrow, (const uint8_t *)memory + i * 4, sizeof(narrow));
        return (double)narrow;
    }
    sx_cell cell = sx_cell_load(SX_EVAL_F64, type->dtype, memory, i);
    return sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT ? cell.f : (double)cell.i;
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
        include(&m, number_at(&pair->exact, i), number_at(&pair->typed, i));
    }
    return m;
}

/* Narrow floats are computed in f32: beside the units of f32 there are a few roundings of the type itself. */
static double bound_of(const rule *r, double unit, const measure *group, const measure *whole)
{
    double step = fmin(unit, 0x1p-24);
    double own = unit > step ? 4 * unit : 0;
    return r->spreads * group->spread + (r->units * step + own) * group->magnitude +
           r->units_whole * step * whole->magnitude + (unit > 0 ? SMALLEST : 0);
}

void sxv_compare(const sxv_pair *pair, const void *memory, bool wide, sxv_comparison *c)
{
    const sx_type *type = &pair->exact.type;
    SX_ASSERT(pair->exact.data != NULL && pair->typed.data != NULL && memory != NULL);
    int64_t elements = sx_tensor_elements(type);
    double unit = unit_of(type->dtype);
    measure whole = measure_of(pair, 0, elements);
    double scale = whole.magnitude > 0 ? whole.magnitude : 1;
    double ratio_worst = -1;
    whole.magnitude = wide ? 0 : whole.magnitude;
    *c = (sxv_comparison){.points = (uint64_t)elements, .spread = whole.spread / scale};
    for (int64_t first = 0; first < elements; first += SXV_GROUP) {
        int64_t last = sx_min_i64(first + SXV_GROUP, elements);
        measure m = measure_of(pair, first, last);
        double right = bound_of(&right_rule, unit, &m, &whole);
        double bound = bound_of(&wrong_rule, unit, &m, &whole);
        for (int64_t i = first; i < last; i++) {
            double want = number_at(&pair->exact, i);
            double got = stored_at(type, memory, i);
            double off = distance(got, want, number_at(&pair->typed, i));
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
