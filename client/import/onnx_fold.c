#include "client/import/onnx_import.h"
#include "core/ir/num.h"

/* Arithmetic on elements that are constants of any sign or extents scale * symbol with scale > 0. Each returns
 * false where the result cannot be written that way. */

static bool both_constant(sx_dim a, sx_dim b)
{
    return sx_dim_is_constant(a) && sx_dim_is_constant(b);
}

static bool is_zero(sx_dim a)
{
    return a.scale == 0;
}

static bool add(sx_dim a, sx_dim b, sx_dim *out)
{
    if (is_zero(a) || is_zero(b)) {
        *out = is_zero(a) ? b : a;
        return true;
    }
    *out = a;
    return a.symbol == b.symbol && sx_add_i64(a.scale, b.scale, &out->scale);
}

static bool subtract(sx_dim a, sx_dim b, sx_dim *out)
{
    *out = a;
    if (is_zero(b)) {
        return true;
    }
    if (a.symbol != b.symbol || !sx_sub_i64(a.scale, b.scale, &out->scale)) {
        return false;
    }
    if (out->scale == 0) {
        *out = sx_dim_of(0);
    }
    return sx_dim_is_constant(*out) || out->scale > 0;
}

static bool multiply(sx_dim a, sx_dim b, sx_dim *out)
{
    if (is_zero(a) || is_zero(b)) {
        *out = sx_dim_of(0);
        return true;
    }
    if (!sx_dim_is_constant(a) && !sx_dim_is_constant(b)) {
        return false;
    }
    *out = sx_dim_is_constant(a) ? b : a;
    return sx_mul_i64(a.scale, b.scale, &out->scale) &&
           (sx_dim_is_constant(*out) || out->scale > 0);
}

/* Integer division truncates, as the operator does; over a symbol it must be exact. */
static bool divide(sx_dim a, sx_dim b, sx_dim *out)
{
    if (is_zero(b) || (b.scale == -1 && a.scale == INT64_MIN)) {
        return false;
    }
    if (both_constant(a, b)) {
        *out = sx_dim_of(a.scale / b.scale);
        return true;
    }
    return a.scale > 0 && b.scale > 0 && sx_dim_divide(a, b, out);
}

static void range_of(const sx_ox *im, sx_dim a, int64_t *low, int64_t *high)
{
    *low = *high = a.scale;
    if (!sx_dim_is_constant(a)) {
        const sx_symbol *symbol = &im->graph->symbol[a.symbol];
        if (!sx_mul_i64(a.scale, symbol->low, low)) {
            *low = INT64_MAX;
        }
        if (!sx_mul_i64(a.scale, symbol->high, high)) {
            *high = INT64_MAX;
        }
    }
}

static bool extreme(const sx_ox *im, sx_dim a, sx_dim b, bool largest, sx_dim *out)
{
    int64_t a_low;
    int64_t a_high;
    int64_t b_low;
    int64_t b_high;
    range_of(im, a, &a_low, &a_high);
    range_of(im, b, &b_low, &b_high);
    if (sx_dim_equal(a, b) || a_low >= b_high) {
        *out = largest ? a : b;
        return true;
    }
    *out = largest ? b : a;
    return b_low >= a_high;
}

bool sx_ox_extent(sx_ox *im, const sx_polynomial *p, sx_dim *dim)
{
    *dim = sx_dim_of(p->count > 0 ? p->term[0].scale : 0);
    if (p->count == 0 || (p->count == 1 && p->term[0].factor[0] == SX_NO_SYMBOL)) {
        return true;
    }
    if (sx_graph_add_extent(im->cx, im->graph, p, dim) == SX_OK) {
        return true;
    }
    if (im->cx->error.code == SX_NOMEM) {
        im->code = SX_NOMEM;
    } else {
        sx_ctx_reset_error(im->cx);
    }
    return false;
}

bool sx_ox_times(sx_ox *im, sx_dim a, sx_dim b, sx_dim *product)
{
    sx_polynomial p, q;
    return sx_dim_multiply(a, b, product) ||
           (sx_polynomial_of(im->graph->symbol, a, &p) &&
            sx_polynomial_of(im->graph->symbol, b, &q) && sx_polynomial_multiply(&p, &q, &p) &&
            sx_ox_extent(im, &p, product));
}

/* What is more than a multiple of one symbol. */
static bool combine(sx_ox *im, sx_op op, sx_dim a, sx_dim b, sx_dim *out)
{
    sx_polynomial p, q;
    bool ok = !both_constant(a, b) && sx_polynomial_of(im->graph->symbol, a, &p) &&
              sx_polynomial_of(im->graph->symbol, b, &q);
    switch ((int)op) {
    case SX_OP_ADD: ok = ok && sx_polynomial_add(&p, &q, 1); break;
    case SX_OP_SUBTRACT: ok = ok && sx_polynomial_add(&p, &q, -1); break;
    case SX_OP_MULTIPLY: ok = ok && sx_polynomial_multiply(&p, &q, &p); break;
    case SX_OP_DIVIDE: ok = ok && sx_polynomial_divide(&p, &q, &p); break;
    default: return false;
    }
    return ok && sx_ox_extent(im, &p, out);
}

/* Of numbers whose sign does not matter. */
static bool remainder_of(sx_dim a, sx_dim b, sx_dim *out)
{
    if (!both_constant(a, b) || a.scale < 0 || b.scale <= 0) {
        return false;
    }
    *out = sx_dim_of(a.scale % b.scale);
    return true;
}

static bool apply(const sx_ox *im, sx_op op, sx_dim a, sx_dim b, sx_dim *out)
{
    switch ((int)op) {
    case SX_OP_ADD: return add(a, b, out);
    case SX_OP_SUBTRACT: return subtract(a, b, out);
    case SX_OP_MULTIPLY: return multiply(a, b, out);
    case SX_OP_DIVIDE: return divide(a, b, out);
    case SX_OP_REMAINDER: return remainder_of(a, b, out);
    case SX_OP_MAXIMUM: return extreme(im, a, b, true, out);
    case SX_OP_MINIMUM: return extreme(im, a, b, false, out);
    case SX_OP_AND: *out = sx_dim_of(a.scale & b.scale); return both_constant(a, b);
    case SX_OP_OR: *out = sx_dim_of(a.scale | b.scale); return both_constant(a, b);
    case SX_OP_XOR: *out = sx_dim_of(a.scale ^ b.scale); return both_constant(a, b);
    default: return false;
    }
}

static bool compare(const sx_ox *im, sx_direction direction, sx_dim a, sx_dim b, sx_dim *out)
{
    int64_t a_low;
    int64_t a_high;
    int64_t b_low;
    int64_t b_high;
    range_of(im, a, &a_low, &a_high);
    range_of(im, b, &b_low, &b_high);
    bool equal = sx_dim_equal(a, b);
    bool less = !equal && a_high < b_low;
    bool greater = !equal && a_low > b_high;
    if (!equal && !less && !greater) {
        return false;
    }
    static const bool table[SX_DIRECTION_COUNT][3] = {
        /* less, equal, greater */
        [SX_EQ] = {false, true, false}, [SX_NE] = {true, false, true},
        [SX_LT] = {true, false, false}, [SX_LE] = {true, true, false},
        [SX_GT] = {false, false, true}, [SX_GE] = {false, true, true}};
    *out = sx_dim_of(table[direction][less ? 0 : equal ? 1 : 2]);
    return true;
}

bool sx_ox_is_known(const sx_ox_value *value)
{
    return value != NULL && value->known != NULL;
}

/* ---- broadcasting over element lists ---- */

typedef struct {
    sx_type type;
    uint32_t count;
    sx_dim *element;
} fold_result;

/* The common shape of the first `inputs` inputs (extent 0 wins over 1) and room for its elements; false if too
 * large or unequal. */
static bool fold_shape(sx_ox *im, uint32_t inputs, sx_dtype dtype, fold_result *out)
{
    out->type = (sx_type){.dtype = dtype};
    for (uint32_t i = 0; i < inputs; i++) {
        uint32_t rank = im->input[i]->type.rank;
        out->type.rank = rank > out->type.rank ? rank : out->type.rank;
    }
    int64_t count = 1;
    for (uint32_t k = 0; k < out->type.rank; k++) {
        int64_t extent = 1;
        for (uint32_t i = 0; i < inputs; i++) {
            const sx_type *type = &im->input[i]->type;
            uint32_t lead = out->type.rank - type->rank;
            int64_t own = k < lead ? 1 : type->dim[k - lead].scale;
            if (own != 1 && extent != 1 && own != extent) {
                return false;
            }
            extent = own == 1 ? extent : own;
        }
        out->type.dim[k] = sx_dim_of(extent);
        if (!sx_mul_i64(count, extent, &count) || count > SX_OX_KNOWN_MAX) {
            return false;
        }
    }
    out->count = (uint32_t)count;
    out->element = SX_NEW_ARRAY(im->cx, sx_dim, (size_t)count + 1);
    if (out->element == NULL) {
        im->code = im->cx->error.code;
    }
    return out->element != NULL;
}

/* Element of `value` that broadcasts to row-major position `index` of `shape`. */
static sx_dim element_at(const sx_ox_value *value, const sx_type *shape, uint32_t index)
{
    int64_t at = 0;
    int64_t stride = 1;
    for (uint32_t k = shape->rank; k-- > 0;) {
        int64_t extent = shape->dim[k].scale;
        int64_t i = index % extent;
        index = (uint32_t)(index / extent);
        uint32_t lead = shape->rank - value->type.rank;
        if (k >= lead) {
            int64_t own = value->type.dim[k - lead].scale;
            at += own == 1 ? 0 : i * stride;
            stride *= own;
        }
    }
    SX_ASSERT(at >= 0 && at < value->known_count);
    return value->known[at];
}

static bool fits(sx_dim a, sx_dtype dtype)
{
    if (!sx_dim_is_constant(a)) {
        return dtype == SX_I64 || dtype == SX_I32;
    }
    return a.scale >= sx_num_int_min(dtype) && a.scale <= sx_num_int_max(dtype);
}

static bool inputs_known(const sx_ox *im, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        if (!sx_ox_is_known(sx_ox_input(im, k))) {
            return false;
        }
    }
    return true;
}

sx_code sx_ox_fold_binary(sx_ox *im, sx_op op, bool *done)
{
    SX_ASSERT(sx_op_is_elementwise(op));
    fold_result out;
    *done = false;
    if (!inputs_known(im, 2) || im->input[0]->type.dtype != im->input[1]->type.dtype ||
        !fold_shape(im, 2, im->input[0]->type.dtype, &out)) {
        return im->code;
    }
    for (uint32_t k = 0; k < out.count; k++) {
        sx_dim a = element_at(im->input[0], &out.type, k);
        sx_dim b = element_at(im->input[1], &out.type, k);
        if ((!apply(im, op, a, b, &out.element[k]) && !combine(im, op, a, b, &out.element[k])) ||
            !fits(out.element[k], out.type.dtype)) {
            return im->code;
        }
    }
    *done = true;
    return sx_ox_set_known(im, 0, &out.type, out.element, out.count);
}

sx_code sx_ox_fold_compare(sx_ox *im, sx_direction direction, bool *done)
{
    SX_ASSERT(direction < SX_DIRECTION_COUNT);
    fold_result out;
    *done = false;
    if (!inputs_known(im, 2) || !fold_shape(im, 2, SX_BOOL, &out)) {
        return im->code;
    }
    for (uint32_t k = 0; k < out.count; k++) {
        if (!compare(im, direction, element_at(im->input[0], &out.type, k),
                     element_at(im->input[1], &out.type, k), &out.element[k])) {
            return SX_OK;
        }
    }
    *done = true;
    return sx_ox_set_known(im, 0, &out.type, out.element, out.count);
}

sx_code sx_ox_fold_select(sx_ox *im, bool *done)
{
    fold_result out;
    *done = false;
    if (!inputs_known(im, 3) || im->input[1]->type.dtype != im->input[2]->type.dtype ||
        !fold_shape(im, 3, im->input[1]->type.dtype, &out)) {
        return im->code;
    }
    for (uint32_t k = 0; k < out.count; k++) {
        bool first = element_at(im->input[0], &out.type, k).scale != 0;
        out.element[k] = element_at(im->input[first ? 1 : 2], &out.type, k);
    }
    *done = true;
    return sx_ox_set_known(im, 0, &out.type, out.element, out.count);
}
