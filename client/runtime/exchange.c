/* exchange.c - one collective: who takes part, whether they agree, and what each gets. */
#include "client/runtime/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ir/num.h"

static const void *piece_of(const void *from, uint64_t index, uint64_t bytes)
{
    return (const uint8_t *)from + index * bytes;
}

/* ---- combining, rank 0 first ---- */

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "elements are those of IEEE 754");

static double combine_double(sx_module_combine combine, double sum, double x)
{
    switch (combine) {
    case SX_COMBINE_SUM: return sum + x;
    case SX_COMBINE_PRODUCT: return sum * x;
    case SX_COMBINE_MAX: return isnan(x) || x > sum ? x : sum; /* of equal ones the first stays */
    case SX_COMBINE_MIN: return isnan(x) || x < sum ? x : sum;
    case SX_COMBINE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* The same in f32, where each step is rounded. */
static float combine_float(sx_module_combine combine, float sum, float x)
{
    switch (combine) {
    case SX_COMBINE_SUM: return sum + x;
    case SX_COMBINE_PRODUCT: return sum * x;
    case SX_COMBINE_MAX: return isnan(x) || x > sum ? x : sum;
    case SX_COMBINE_MIN: return isnan(x) || x < sum ? x : sum;
    case SX_COMBINE_COUNT: break;
    }
    SX_UNREACHABLE();
}

static int64_t combine_int(sx_module_combine combine, int64_t sum, int64_t x)
{
    switch (combine) {
    case SX_COMBINE_SUM: return (int64_t)((uint64_t)sum + (uint64_t)x); /* modulo 2^64 */
    case SX_COMBINE_PRODUCT: return (int64_t)((uint64_t)sum * (uint64_t)x);
    case SX_COMBINE_MAX: return x > sum ? x : sum;
    case SX_COMBINE_MIN: return x < sum ? x : sum;
    case SX_COMBINE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* What a combination of nothing is. */
static double neutral(sx_module_combine combine)
{
    switch (combine) {
    case SX_COMBINE_SUM: return 0;
    case SX_COMBINE_PRODUCT: return 1;
    case SX_COMBINE_MAX: return -HUGE_VAL;
    case SX_COMBINE_MIN: return HUGE_VAL;
    case SX_COMBINE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* `to` in f32, all of rank 0 first, then those of rank 1 ...: element by element that is the order of ranks. */
static void combine_f32(const sxr_exchange *x, const void *const *from, uint64_t offset)
{
    float *to = x->to;
    uint64_t count = x->to_bytes / sizeof(float);
    for (uint64_t i = 0; i < count; i++) {
        to[i] = (float)neutral(x->combine);
    }
    for (uint32_t k = 0; k < x->count; k++) {
        const float *of = piece_of(from[k], 1, offset);
        for (uint64_t i = 0; i < count; i++) {
            to[i] = combine_float(x->combine, to[i], of[i]);
        }
    }
}

static void combine_f64(const sxr_exchange *x, const void *const *from, uint64_t offset)
{
    double *to = x->to;
    uint64_t count = x->to_bytes / sizeof(double);
    for (uint64_t i = 0; i < count; i++) {
        to[i] = neutral(x->combine);
    }
    for (uint32_t k = 0; k < x->count; k++) {
        const double *of = piece_of(from[k], 1, offset);
        for (uint64_t i = 0; i < count; i++) {
            to[i] = combine_double(x->combine, to[i], of[i]);
        }
    }
}

/* Floats that are narrower: in f32, rounded once. */
static void combine_narrow(const sxr_exchange *x, const void *const *from, uint64_t offset)
{
    sx_dtype dtype = (sx_dtype)x->dtype;
    uint64_t count = x->to_bytes / sx_dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i++) {
        float sum = (float)neutral(x->combine);
        for (uint32_t k = 0; k < x->count; k++) {
            uint64_t bits = sx_num_load(dtype, piece_of(from[k], 1, offset), (size_t)i);
            sum = combine_float(x->combine, sum, (float)sx_num_decode(dtype, bits));
        }
        uint64_t bits = sx_num_encode(dtype, sx_round(dtype, (double)sum));
        sx_num_store(dtype, x->to, (size_t)i, bits);
    }
}

/* Integers wrap around; of bools a sum is `or`, a product `and`, as of the numbers 0 and 1 with 1 the largest. */
static void combine_whole(const sxr_exchange *x, const void *const *from, uint64_t offset)
{
    sx_dtype dtype = (sx_dtype)x->dtype;
    uint64_t count = x->to_bytes / sx_dtype_bytes(dtype);
    bool truth = sx_dtype_class_of(dtype) == SX_CLASS_BOOL;
    bool up = x->combine == SX_COMBINE_SUM || x->combine == SX_COMBINE_MAX;
    sx_module_combine combine = !truth ? x->combine : up ? SX_COMBINE_MAX : SX_COMBINE_MIN;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = sx_num_load(dtype, piece_of(from[0], 1, offset), (size_t)i);
        int64_t sum = sx_num_int_decode(dtype, bits);
        for (uint32_t k = 1; k < x->count; k++) {
            bits = sx_num_load(dtype, piece_of(from[k], 1, offset), (size_t)i);
            sum = combine_int(combine, sum, sx_num_int_decode(dtype, bits));
        }
        sx_num_store(dtype, x->to, (size_t)i, sx_num_int_encode(dtype, sum));
    }
}

/* All of `to` from the bytes at `offset` of each operand. */
static void combine(const sxr_exchange *x, const void *const *from, uint64_t offset)
{
    if (x->count == 1) { /* its own: a sum that begins with 0 would turn -0 into 0 */
        memcpy(x->to, piece_of(from[0], 1, offset), (size_t)x->to_bytes);
        return;
    }
    SX_ASSERT(x->count > 0 && offset + x->to_bytes <= x->from_bytes);
    if (sx_dtype_class_of((sx_dtype)x->dtype) != SX_CLASS_FLOAT) {
        combine_whole(x, from, offset);
    } else if (x->dtype == SX_F32) {
        combine_f32(x, from, offset);
    } else if (x->dtype == SX_F64) {
        combine_f64(x, from, offset);
    } else {
        combine_narrow(x, from, offset);
    }
}

/* ---- what a rank gets ---- */

static void permute(const sxr_exchange *x, const void *const *from)
{
    memset(x->to, 0, (size_t)x->to_bytes);
    for (uint32_t i = 0; i < x->pair_count; i++) {
        if (x->pair[i].target == x->place) {
            memcpy(x->to, from[x->pair[i].source], (size_t)x->to_bytes);
        }
    }
}

void sxr_exchange_run(const sxr_exchange *x, const void *const *from)
{
    uint64_t piece = x->kind == SX_COLLECTIVE_ALL_GATHER ? x->from_bytes : x->to_bytes / x->count;
    switch (x->kind) {
    case SX_COLLECTIVE_ALL_REDUCE: combine(x, from, 0); return;
    case SX_COLLECTIVE_REDUCE_SCATTER: combine(x, from, x->place * x->to_bytes); return;
    case SX_COLLECTIVE_ALL_GATHER:
    case SX_COLLECTIVE_ALL_TO_ALL:
        for (uint32_t k = 0; k < x->count; k++) {
            bool all = x->kind == SX_COLLECTIVE_ALL_GATHER;
            memcpy((uint8_t *)x->to + k * piece, piece_of(from[k], all ? 0 : x->place, piece),
                   (size_t)piece);
        }
        return;
    case SX_COLLECTIVE_PERMUTE: permute(x, from); return;
    case SX_COLLECTIVE_AXIS_INDEX: {
        int64_t place = x->place;
        SX_ASSERT(x->to_bytes == sizeof(place));
        memcpy(x->to, &place, sizeof(place));
        return;
    }
    case SX_COLLECTIVE_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* ---- one collective of a program ---- */

static bool sizes_fit(const sxr_exchange *x)
{
    switch (x->kind) {
    case SX_COLLECTIVE_ALL_REDUCE:
    case SX_COLLECTIVE_PERMUTE: return x->from_bytes == x->to_bytes;
    case SX_COLLECTIVE_ALL_GATHER: return x->to_bytes == x->from_bytes * x->count;
    case SX_COLLECTIVE_REDUCE_SCATTER: return x->from_bytes == x->to_bytes * x->count;
    case SX_COLLECTIVE_ALL_TO_ALL:
        return x->from_bytes == x->to_bytes && x->to_bytes % x->count == 0;
    case SX_COLLECTIVE_AXIS_INDEX: return x->to_bytes == 8;
    case SX_COLLECTIVE_COUNT: break;
    }
    SX_UNREACHABLE();
}

sx_code sxr_exchange_of(sx_ctx *cx, const sxr_program *program, uint32_t rank, uint32_t index,
                        void *const *buffer, sxr_exchange *x)
{
    const sx_module *module = sxr_module(program);
    const sx_module_launch *launch = &module->launch[index];
    const uint32_t *arg = module->arg + launch->arg_first;
    uint32_t axis = sx_module_axis_of(module, launch), last = launch->arg_count - 1;
    uint32_t stride = sx_module_axis_stride(module, axis);
    uint32_t count = (uint32_t)module->axis[axis].size, place = rank / stride % count;
    SX_ASSERT(rank < sx_module_ranks(module) && launch->arg_count >= 1);
    *x = (sxr_exchange){.kind = (sx_module_collective)launch->value,
                        .axis = sx_module_string(module, launch->name),
                        .first = rank - place * stride,
                        .stride = stride,
                        .count = count,
                        .place = place,
                        .launch = index,
                        .dtype = module->tensor[arg[last]].dtype,
                        .combine = (sx_module_combine)launch->combine,
                        .pair = module->pair + launch->pair_first,
                        .pair_count = launch->pair_count,
                        .from = last > 0 ? buffer[0] : NULL,
                        .from_bytes = last > 0 ? sxr_size(program, arg[0]) : 0,
                        .to = buffer[last],
                        .to_bytes = sxr_size(program, arg[last])};
    if (!sizes_fit(x)) {
        return SX_FAIL(cx, SX_CORRUPT,
                       "module launch %u: %s of %u ranks from %llu bytes to %llu bytes", index,
                       sx_module_collective_name(launch->value), count,
                       (unsigned long long)x->from_bytes, (unsigned long long)x->to_bytes);
    }
    return SX_OK;
}

/* "launch 3, all-reduce sum along dp of 64 bytes of f32" */
static void describe(const sxr_exchange *x, char text[160])
{
    bool combines = x->kind == SX_COLLECTIVE_ALL_REDUCE || x->kind == SX_COLLECTIVE_REDUCE_SCATTER;
    (void)snprintf(text, 160, "launch %u, %s%s%s along %.*s of %llu bytes of %s", x->launch,
                   sx_module_collective_name(x->kind), combines ? " " : "",
                   combines ? sx_module_combine_name(x->combine) : "",
                   (int)sx_min_i64((int64_t)x->axis.len, 40), (const char *)x->axis.ptr,
                   (unsigned long long)x->from_bytes, sx_dtype_name((sx_dtype)x->dtype));
}

sx_code sxr_exchange_agree(sx_ctx *cx, const sxr_exchange *a, uint32_t rank_a,
                           const sxr_exchange *b, uint32_t rank_b)
{
    char text[2][160];
    bool same = a->kind == b->kind && a->first == b->first && a->stride == b->stride &&
                a->count == b->count && a->launch == b->launch && a->dtype == b->dtype &&
                a->combine == b->combine && a->pair_count == b->pair_count &&
                a->from_bytes == b->from_bytes && a->to_bytes == b->to_bytes &&
                sx_span_equal(a->axis, b->axis);
    for (uint32_t k = 0; same && k < a->pair_count; k++) {
        same = a->pair[k].source == b->pair[k].source && a->pair[k].target == b->pair[k].target;
    }
    if (same) {
        return SX_OK;
    }
    describe(a, text[0]);
    describe(b, text[1]);
    return SX_FAIL(cx, SX_INPUT, "ranks disagree: rank %u is at %s, rank %u at %s", rank_a, text[0],
                   rank_b, text[1]);
}
