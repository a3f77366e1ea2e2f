/* values.h - random tensors for the interpreter and comparison of its results. */
#ifndef SX_TESTS_CORE_RULES_VALUES_H
#define SX_TESTS_CORE_RULES_VALUES_H
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/ir.h"
#include "core/ir/num.h"

typedef enum {
    FILL_PLAIN,    /* numbers of both signs around 1 */
    FILL_POSITIVE, /* [0.25, 2) */
    FILL_WIDE,     /* [-8, 8) */
    FILL_SMALL,    /* whole numbers of both signs: sums, products and orders of a few are exact */
    FILL_DIVISORS, /* the same without 0 */
    FILL_EXTREME   /* also zeros of both signs, infinities, NaN, subnormals, the largest */
} fill_kind;

static inline double random_float(sx_rng *rng, fill_kind kind)
{
    static const double extreme[] = {0.0,    -0.0,   HUGE_VAL, -HUGE_VAL, (double)NAN, 1e-45,
                                     -1e-40, 3.4e38, -65504,   6e-8,      DBL_MAX};
    if (kind == FILL_EXTREME && sx_rng_below(rng, 3) == 0) {
        return extreme[sx_rng_below(rng, SX_COUNT(extreme))];
    }
    if (kind == FILL_SMALL) {
        return (double)sx_rng_below(rng, 17) - 8;
    }
    if (kind == FILL_DIVISORS) {
        double size = (double)sx_rng_below(rng, 8) + 1;
        return sx_rng_below(rng, 2) == 0 ? size : -size;
    }
    double x = (double)sx_rng_f32(rng);
    if (kind == FILL_WIDE) {
        return 8 * x;
    }
    return kind == FILL_POSITIVE ? 0.25 + 1.75 * fabs(x) : 2 * x;
}

static inline int64_t random_integer(sx_rng *rng, sx_dtype dtype, fill_kind kind)
{
    int64_t low = sx_num_int_min(dtype);
    if (kind == FILL_EXTREME && sx_rng_below(rng, 4) == 0) {
        int64_t extreme[] = {0, 1, low, sx_num_int_max(dtype), low < 0 ? -1 : 2};
        return extreme[sx_rng_below(rng, SX_COUNT(extreme))];
    }
    bool near = sx_rng_below(rng, 2) == 0; /* as an index that is in range, often */
    return (int64_t)sx_rng_below(rng, near ? 12 : 100) - (low < 0 ? (near ? 4 : 50) : 0);
}

static inline sx_code random_tensor(sx_ctx *cx, sx_rng *rng, const sx_type *type, sx_eval_mode mode,
                                    fill_kind kind, sx_tensor *tensor)
{
    int64_t count = sx_tensor_elements(type);
    tensor->type = *type;
    tensor->data = sx_alloc_array(cx, (size_t)count + 1, 8);
    if (tensor->data == NULL) {
        return cx->error.code;
    }
    double *f = tensor->data;
    int64_t *i = tensor->data;
    uint64_t *u = tensor->data;
    for (int64_t k = 0; k < count; k++) {
        if (type->dtype == SX_BOOL) {
            i[k] = (int64_t)sx_rng_below(rng, 2);
        } else if (mode == SX_EVAL_MODP) {
            u[k] = sx_rng_below(rng, 2147483647);
        } else if (mode == SX_EVAL_FIELDS) {
            u[k] = sx_rng_below(rng, SX_FIELD_P) | (uint64_t)sx_rng_below(rng, SX_FIELD_Q) << 32;
        } else if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
            f[k] = sx_num_round(type->dtype, random_float(rng, kind));
        } else {
            i[k] = random_integer(rng, type->dtype, kind);
        }
    }
    return SX_OK;
}

/* Random arguments for every parameter of a static graph. */
static inline sx_code random_arguments(sx_ctx *cx, sx_rng *rng, const sx_graph *graph,
                                       sx_eval_mode mode, fill_kind kind, sx_tensor **argument,
                                       uint32_t *count)
{
    *count = 0;
    *argument = SX_NEW_ARRAY(cx, sx_tensor, graph->node_count);
    if (*argument == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->node[n].op == SX_OP_PARAMETER) {
            SX_TRY(
                random_tensor(cx, rng, &graph->node[n].type, mode, kind, &(*argument)[(*count)++]));
        }
    }
    return SX_OK;
}

/* Zeros of two signs: one number, but not the same bits. */
#define ZERO_SIGNS 1e-300

/* How far y is from x: 0 for equal bits (all NaN are one), else relative to 1 + |x|. NaN is infinitely far
 * from every number, and an infinity from every other value. */
static inline double float_gap(double x, double y)
{
    if (memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y))) {
        return 0;
    }
    if (x == y) {
        return ZERO_SIGNS;
    }
    if (!isfinite(x) || !isfinite(y)) {
        return HUGE_VAL;
    }
    return fabs(x - y) / (1 + fabs(x));
}

/* Greatest deviation of two tensors: that of their floats; HUGE_VAL for other elements that differ, and for
 * two types. */
static inline double deviation(const sx_tensor *a, const sx_tensor *b, sx_eval_mode mode)
{
    int64_t count = sx_tensor_elements(&a->type);
    const double *x = a->data;
    const double *y = b->data;
    const uint64_t *u = a->data;
    const uint64_t *v = b->data;
    double worst = sx_type_equal(&a->type, &b->type) ? 0 : HUGE_VAL;
    bool is_float = mode != SX_EVAL_MODP && mode != SX_EVAL_FIELDS &&
                    sx_dtype_class_of(a->type.dtype) == SX_CLASS_FLOAT;
    bool is_pair = mode == SX_EVAL_FIELDS && a->type.dtype != SX_BOOL;
    for (int64_t k = 0; k < count && worst < HUGE_VAL; k++) {
        bool equal = is_pair ? sx_pair_equal(u[k], v[k]) : u[k] == v[k];
        double gap = is_float ? float_gap(x[k], y[k]) : equal ? 0 : HUGE_VAL;
        worst = gap > worst ? gap : worst;
    }
    return worst;
}
#endif
