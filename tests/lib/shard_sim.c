#include "tests/lib/shard_sim.h"

#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/test.h"

#define PRIME UINT64_C(2147483647)

static bool is_double(sx_eval_mode mode, const sx_type *type)
{
    return mode != SX_EVAL_MODP && sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
}

static sx_tensor make(sx_ctx *cx, const sx_type *type)
{
    sx_tensor t = {.type = *type};
    t.data = SX_NEW_ARRAY(cx, uint64_t, (size_t)sx_tensor_elements(type) + 1);
    ck_assert_ptr_nonnull(t.data);
    return t;
}

sx_tensor sx_sim_random(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_type *type, bool wide)
{
    sx_tensor t = make(cx, type);
    int64_t count = sx_tensor_elements(type);
    for (int64_t i = 0; i < count; i++) {
        int64_t small = (int64_t)sx_rng_below(rng, 17) - 8;
        if (type->dtype == SX_BOOL) {
            ((int64_t *)t.data)[i] = (int64_t)sx_rng_below(rng, 2);
        } else if (is_double(mode, type)) {
            ((double *)t.data)[i] = ((double)sx_rng_below(rng, 65) - 32) / 4;
        } else if (mode == SX_EVAL_MODP) {
            ((uint64_t *)t.data)[i] = wide ? sx_rng_below(rng, PRIME) : sx_rng_below(rng, 9);
        } else {
            int64_t low = sx_num_int_min(type->dtype);
            uint64_t span = (uint64_t)sx_num_int_max(type->dtype) - (uint64_t)low;
            uint64_t draw = span == UINT64_MAX ? sx_rng_next(rng) : sx_rng_below(rng, span + 1);
            ((int64_t *)t.data)[i] = wide                   ? (int64_t)((uint64_t)low + draw)
                                     : type->dtype == SX_U8 ? small + 8
                                                            : small;
        }
    }
    return t;
}

/* Copies piece k of `whole` along d to `piece`, or back. */
static void copy_piece(const sx_tensor *whole, const sx_tensor *piece, uint32_t d, uint32_t k,
                       bool back)
{
    int64_t inner = 1;
    int64_t outer = 1;
    for (uint32_t i = 0; i < whole->type.rank; i++) {
        if (i < d) {
            outer *= whole->type.dim[i].scale;
        } else {
            inner *= i > d ? whole->type.dim[i].scale : 1;
        }
    }
    int64_t run = piece->type.dim[d].scale * inner;
    int64_t row = whole->type.dim[d].scale * inner;
    for (int64_t o = 0; o < outer; o++) {
        uint64_t *big = (uint64_t *)whole->data + o * row + (int64_t)k * run;
        uint64_t *small = (uint64_t *)piece->data + o * run;
        memcpy(back ? big : small, back ? small : big, (size_t)run * sizeof(*big));
    }
}

static sx_tensor combine(sx_ctx *cx, sx_op op, sx_eval_mode mode, const sx_tensor *a,
                         const sx_tensor *b)
{
    const sx_attr none = {0};
    const sx_tensor input[2] = {*a, *b};
    sx_tensor result;
    ck_sx_ok(cx, sx_node_eval(cx, op, &none, mode, input, 2, &a->type, &result));
    return result;
}

static void split_sum(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_tensor *whole,
                      uint32_t size, sx_sim *sim)
{
    sx_tensor rest = *whole;
    for (uint32_t k = 0; k + 1 < size; k++) {
        sim->part[k] = sx_sim_random(cx, rng, mode, &whole->type, true);
        rest = combine(cx, SX_OP_SUBTRACT, mode, &rest, &sim->part[k]);
    }
    sim->part[size - 1] = rest;
}

/* Every element is on one device as it is, elsewhere something on the right side of it. */
static void split_order(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_tensor *whole,
                        sx_shard_place place, uint32_t size, sx_sim *sim)
{
    sx_op op = place == SX_PLACE_MAX ? SX_OP_MINIMUM : SX_OP_MAXIMUM;
    int64_t count = sx_tensor_elements(&whole->type);
    for (uint32_t k = 0; k < size; k++) {
        sx_tensor noise = sx_sim_random(cx, rng, mode, &whole->type, true);
        sim->part[k] = combine(cx, op, mode, whole, &noise);
    }
    for (int64_t i = 0; i < count; i++) {
        uint32_t owner = (uint32_t)sx_rng_below(rng, size);
        ((uint64_t *)sim->part[owner].data)[i] = ((const uint64_t *)whole->data)[i];
    }
}

void sx_sim_split(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_tensor *whole,
                  sx_shard_place place, uint32_t size, sx_sim *sim)
{
    ck_assert_uint_le(size, SX_SIM_DEVICES_MAX);
    if (place == SX_PLACE_SUM) {
        split_sum(cx, rng, mode, whole, size, sim);
    } else if (place > SX_PLACE_SUM) {
        split_order(cx, rng, mode, whole, place, size, sim);
    } else {
        for (uint32_t k = 0; k < size; k++) {
            sx_type piece = whole->type;
            sx_shard_local_type(&piece, place, size);
            sim->part[k] = place == SX_PLACE_R ? *whole : make(cx, &piece);
            if (place != SX_PLACE_R) {
                copy_piece(whole, &sim->part[k], place, k, false);
            }
        }
    }
}

void sx_sim_weaken(sx_ctx *cx, const sx_sim *from, sx_shard_place place, uint32_t size, sx_sim *to)
{
    for (uint32_t k = 0; k < size; k++) {
        const sx_tensor *whole = &from->part[k];
        sx_type piece = whole->type;
        to->part[k] = *whole;
        if (place < SX_PLACE_R) {
            sx_shard_local_type(&piece, place, size);
            to->part[k] = make(cx, &piece);
            copy_piece(whole, &to->part[k], place, k, false);
        } else if (place == SX_PLACE_SUM && k > 0) {
            to->part[k] = make(cx, &piece); /* zeros in every form */
        }
    }
}

bool sx_sim_equal(const sx_tensor *a, const sx_tensor *b)
{
    size_t count = (size_t)sx_tensor_elements(&a->type);
    if (sx_dtype_class_of(a->type.dtype) == SX_CLASS_FLOAT) { /* zeros of both signs are equal */
        const uint64_t *x = a->data;
        const uint64_t *y = b->data;
        for (size_t i = 0; i < count; i++) {
            bool zero = ((x[i] | y[i]) << 1) == 0;
            if (x[i] != y[i] && !zero) {
                return false;
            }
        }
        return true;
    }
    return memcmp(a->data, b->data, count * sizeof(uint64_t)) == 0;
}

bool sx_sim_join(sx_ctx *cx, sx_eval_mode mode, const sx_sim *sim, const sx_type *type,
                 sx_shard_place place, uint32_t size, sx_tensor *whole)
{
    static const sx_op op[] = {SX_OP_ADD, SX_OP_MAXIMUM, SX_OP_MINIMUM};
    *whole = sim->part[0];
    if (place < SX_PLACE_R) {
        *whole = make(cx, type);
        for (uint32_t k = 0; k < size; k++) {
            copy_piece(whole, &sim->part[k], place, k, true);
        }
    }
    for (uint32_t k = 1; k < size && place >= SX_PLACE_R; k++) {
        if (place == SX_PLACE_R && !sx_sim_equal(&sim->part[0], &sim->part[k])) {
            return false;
        }
        if (place > SX_PLACE_R) {
            *whole = combine(cx, op[place - SX_PLACE_SUM], mode, whole, &sim->part[k]);
        }
    }
    return true;
}
