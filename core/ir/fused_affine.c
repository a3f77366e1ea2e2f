#include "core/ir/fused_body.h"

/* ---- linear expressions in symbols ---- */
bool sx_linear_add(sx_linear *linear, sx_dim a, int64_t sign)
{
    int64_t signed_scale;
    if (!sx_mul_i64(a.scale, sign, &signed_scale)) {
        return false;
    }
    if (signed_scale == 0) {
        return true;
    }
    if (sx_dim_is_constant(a)) {
        return sx_add_i64(linear->constant, signed_scale, &linear->constant);
    }
    for (uint32_t k = 0; k < linear->term_count; k++) {
        if (linear->term[k].symbol == a.symbol) {
            return sx_add_i64(linear->term[k].scale, signed_scale, &linear->term[k].scale);
        }
    }
    if (linear->term_count == SX_LINEAR_TERMS_MAX) {
        return false;
    }
    linear->term[linear->term_count++] = (sx_dim){signed_scale, a.symbol};
    return true;
}

bool sx_linear_add_product(sx_linear *linear, sx_dim a, sx_dim b, int64_t sign)
{
    sx_dim product;
    return sx_dim_multiply(a, b, &product) && sx_linear_add(linear, product, sign);
}

bool sx_linear_is_nonnegative(const sx_linear *linear)
{
    /* With symbol = 1 + x, x >= 0: the constant plus all coefficients, and every coefficient, must be >= 0. */
    int64_t least = linear->constant;
    for (uint32_t k = 0; k < linear->term_count; k++) {
        if (linear->term[k].scale < 0 || !sx_add_i64(least, linear->term[k].scale, &least)) {
            return false;
        }
    }
    return least >= 0;
}

/* ---- digits of a flat index ---- */
static bool is_unit(sx_dim extent)
{
    return sx_dim_is_constant(extent) && extent.scale == 1;
}

uint32_t sx_digits_joined(const sx_type *tensor, uint32_t column_count,
                          sx_dim column[][SX_RANK_MAX])
{
    uint32_t joined = 0;
    for (uint32_t j = 0; j < tensor->rank; j++) {
        uint32_t next = j + 1;
        while (next < tensor->rank && is_unit(tensor->dim[next])) {
            next++;
        }
        bool together = next < tensor->rank && !is_unit(tensor->dim[j]);
        for (uint32_t c = 0; c < column_count && together; c++) {
            sx_dim wanted;
            together = sx_dim_product(tensor->dim[next], column[c][next], &wanted) &&
                       sx_dim_equal(wanted, column[c][j]);
        }
        joined |= together ? 1u << j : 0;
    }
    return joined;
}

static bool merge_dims(const sx_type *tensor, uint32_t joined, sx_digits *digits)
{
    sx_dim stride[SX_RANK_MAX];
    if (!sx_type_strides(tensor, stride)) {
        return false;
    }
    digits->count = 0;
    bool open = false; // the previous dimension goes on in this one
    for (uint32_t j = 0; j < tensor->rank; j++) {
        if (is_unit(tensor->dim[j])) {
            continue;
        }
        sx_dim merged = tensor->dim[j];
        if (merged.scale == 0) {
            return false;
        }
        uint32_t last = digits->count == 0 ? 0 : digits->count - 1;
        /* two symbols cannot be multiplied: those dimensions stay apart */
        open = open && sx_dim_multiply(digits->extent[last], tensor->dim[j], &merged);
        uint32_t k = open ? last : digits->count++;
        digits->extent[k] = merged;
        digits->step[k] = stride[j];
        digits->last[k] = j;
        digits->offset[k] = sx_dim_of(0);
        open = (joined & 1u << j) != 0;
    }
    return true;
}

/* value = quotient * step + rest, with rest < step where both are of one kind; a product of two symbols by a multiple
 * of one of them is multiples of the other; else quotient 0 */
static void divide(sx_dim value, sx_dim step, sx_dim *quotient, sx_dim *rest)
{
    sx_dim factor[2];
    SX_ASSERT(step.scale > 0 && value.scale >= 0);
    if (value.scale == 0) {
        *quotient = sx_dim_of(0);
        *rest = sx_dim_of(0);
    } else if (sx_dim_is_constant(step)) {
        *quotient = (sx_dim){value.scale / step.scale, value.symbol};
        *rest = (sx_dim){value.scale % step.scale, value.symbol};
    } else if (step.symbol == value.symbol) {
        *quotient = sx_dim_of(value.scale / step.scale);
        *rest = (sx_dim){value.scale % step.scale, value.symbol};
    } else if (sx_dim_factors(value, factor) &&
               (step.symbol == factor[0].symbol || step.symbol == factor[1].symbol)) {
        uint32_t other = factor[step.symbol == factor[0].symbol ? 1 : 0].symbol;
        *quotient = (sx_dim){value.scale / step.scale, other};
        *rest = (sx_dim){value.scale % step.scale, value.symbol};
    } else {
        *quotient = sx_dim_of(0);
        *rest = value;
    }
}

static bool digits_of(const sx_digits *digits, sx_dim value, sx_dim digit[SX_RANK_MAX])
{
    for (uint32_t j = 0; j < digits->count; j++) {
        divide(value, digits->step[j], &digit[j], &value);
    }
    return value.scale == 0;
}

/* 0 <= digit j < extent j over the whole space, for every value of the symbols */
static bool digit_stays_inside(const sx_type *space, const sx_digits *digits, uint32_t j)
{
    sx_linear room = {.constant = -1};
    if (!sx_linear_add(&room, digits->extent[j], 1) ||
        !sx_linear_add(&room, digits->offset[j], -1)) {
        return false;
    }
    for (uint32_t d = 0; d < space->rank; d++) {
        sx_dim digit = digits->digit[d][j];
        if (digit.scale == 0) {
            continue;
        }
        if (!sx_linear_add_product(&room, digit, space->dim[d], -1) ||
            !sx_linear_add(&room, digit, 1)) {
            return false;
        }
    }
    return sx_linear_is_nonnegative(&room);
}

bool sx_access_digits(const sx_type *space, const sx_access *access, const sx_type *tensor,
                      uint32_t joined, sx_digits *digits)
{
    SX_ASSERT(space->rank <= SX_RANK_MAX && tensor->rank <= SX_RANK_MAX);
    if (!merge_dims(tensor, joined, digits) || !digits_of(digits, access->offset, digits->offset)) {
        return false;
    }
    for (uint32_t d = 0; d < space->rank; d++) {
        sx_dim stride = is_unit(space->dim[d]) ? sx_dim_of(0) : access->stride[d];
        if (!digits_of(digits, stride, digits->digit[d])) {
            return false;
        }
    }
    for (uint32_t j = 0; j < digits->count; j++) {
        if (!digit_stays_inside(space, digits, j)) {
            return false;
        }
    }
    return true;
}

bool sx_digits_compose(const sx_digits *digits, uint32_t rank, const sx_access *inner,
                       sx_access *composed)
{
    sx_access made = *composed;
    made.offset = inner->offset;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        made.stride[d] = sx_dim_of(0);
    }
    for (uint32_t j = 0; j < digits->count; j++) {
        sx_dim step = inner->stride[digits->last[j]];
        sx_dim moved;
        if (!sx_dim_product(digits->offset[j], step, &moved) ||
            !sx_dim_add(made.offset, moved, &made.offset)) {
            return false;
        }
        for (uint32_t d = 0; d < rank; d++) {
            if (!sx_dim_product(digits->digit[d][j], step, &moved) ||
                !sx_dim_add(made.stride[d], moved, &made.stride[d])) {
                return false;
            }
        }
    }
    *composed = made;
    return true;
}
