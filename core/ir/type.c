#include "core/ir/ir.h"

typedef struct {
    const char *name;
    uint32_t bytes;
    sx_dtype_class dtype_class;
} dtype_row;

/* Each number from 0 on belongs to one row: two rows of one number would initialise one element twice, which is an
 * error, too. */
enum {
    DTYPE_ROWS = 0
#define SX_DTYPE(name, enumerator, number, bytes, class_) +1
#include "core/ir/dtypes.def"
#undef SX_DTYPE
};
_Static_assert(DTYPE_ROWS == (int)SX_DTYPE_COUNT, "dtypes.def: the numbers have no hole");

static const dtype_row dtype_table[SX_DTYPE_COUNT] = {
#define SX_DTYPE(name_, enumerator_, number_, bytes_, class_) \
    [SX_##enumerator_] = {.name = #name_, .bytes = bytes_, .dtype_class = SX_CLASS_##class_},
#include "core/ir/dtypes.def"
#undef SX_DTYPE
};

const char *sx_dtype_name(sx_dtype dtype)
{
    SX_ASSERT(dtype < SX_DTYPE_COUNT);
    return dtype_table[dtype].name;
}

uint32_t sx_dtype_bytes(sx_dtype dtype)
{
    SX_ASSERT(dtype < SX_DTYPE_COUNT);
    return dtype_table[dtype].bytes;
}

sx_dtype_class sx_dtype_class_of(sx_dtype dtype)
{
    SX_ASSERT(dtype < SX_DTYPE_COUNT);
    return dtype_table[dtype].dtype_class;
}

bool sx_dtype_parse(sx_span text, sx_dtype *dtype)
{
    for (uint32_t i = 0; i < SX_DTYPE_COUNT; i++) {
        if (sx_span_is(text, dtype_table[i].name)) {
            *dtype = (sx_dtype)i;
            return true;
        }
    }
    return false;
}

bool sx_dim_multiply(sx_dim a, sx_dim b, sx_dim *product)
{
    SX_ASSERT(a.scale >= 0 && b.scale >= 0);
    if (a.scale == 0 || b.scale == 0) {
        *product = sx_dim_of(0);
        return true;
    }
    if (!sx_dim_is_constant(a) && !sx_dim_is_constant(b)) {
        return false;
    }
    int64_t scale;
    if (!sx_mul_i64(a.scale, b.scale, &scale)) {
        return false;
    }
    *product = (sx_dim){scale, sx_dim_is_constant(a) ? b.symbol : a.symbol};
    return true;
}

bool sx_dim_product(sx_dim a, sx_dim b, sx_dim *product)
{
    if (sx_dim_multiply(a, b, product)) {
        return true;
    }
    uint32_t low = a.symbol < b.symbol ? a.symbol : b.symbol;
    uint32_t high = a.symbol < b.symbol ? b.symbol : a.symbol;
    if (low >= SX_SYMBOLS_MAX || high >= SX_SYMBOLS_MAX) {
        return false;
    }
    product->symbol = SX_SYMBOLS_MAX + SX_SYMBOLS_MAX * low + high;
    return sx_mul_i64(a.scale, b.scale, &product->scale);
}

bool sx_dim_factors(sx_dim dim, sx_dim factor[2])
{
    bool product = !sx_dim_is_constant(dim) && dim.symbol >= SX_SYMBOLS_MAX;
    if (product) {
        uint32_t pair = dim.symbol - SX_SYMBOLS_MAX;
        SX_ASSERT(pair < SX_SYMBOLS_MAX * SX_SYMBOLS_MAX);
        factor[0] = (sx_dim){1, pair / SX_SYMBOLS_MAX};
        factor[1] = (sx_dim){1, pair % SX_SYMBOLS_MAX};
    }
    return product;
}

bool sx_dim_add(sx_dim a, sx_dim b, sx_dim *sum)
{
    SX_ASSERT(a.scale >= 0 && b.scale >= 0);
    if (a.scale == 0 || b.scale == 0) {
        *sum = a.scale == 0 ? b : a;
        return true;
    }
    int64_t scale;
    if (a.symbol != b.symbol || !sx_add_i64(a.scale, b.scale, &scale)) {
        return false;
    }
    *sum = (sx_dim){scale, a.symbol};
    return true;
}

bool sx_dim_divide(sx_dim a, sx_dim b, sx_dim *quotient)
{
    SX_ASSERT(a.scale >= 0 && b.scale >= 0);
    if (b.scale == 0 || a.scale % b.scale != 0) {
        return false;
    }
    if (a.scale == 0) {
        *quotient = sx_dim_of(0);
        return true;
    }
    if (!sx_dim_is_constant(b) && a.symbol != b.symbol) {
        return false;
    }
    *quotient = (sx_dim){a.scale / b.scale, sx_dim_is_constant(b) ? a.symbol : SX_NO_SYMBOL};
    return true;
}

bool sx_type_same_shape(const sx_type *a, const sx_type *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    SX_ASSERT(a->rank <= SX_RANK_MAX);
    for (uint32_t i = 0; i < a->rank; i++) {
        if (!sx_dim_equal(a->dim[i], b->dim[i])) {
            return false;
        }
    }
    return true;
}

bool sx_type_equal(const sx_type *a, const sx_type *b)
{
    return a->dtype == b->dtype && sx_type_same_shape(a, b);
}

bool sx_type_is_static(const sx_type *type)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    for (uint32_t i = 0; i < type->rank; i++) {
        if (!sx_dim_is_constant(type->dim[i])) {
            return false;
        }
    }
    return true;
}

bool sx_type_elements(const sx_type *type, sx_dim *elements)
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_dim product = sx_dim_of(1);
    for (uint32_t i = 0; i < type->rank; i++) {
        if (type->dim[i].scale == 0) {
            *elements = sx_dim_of(0);
            return true;
        }
    }
    for (uint32_t i = 0; i < type->rank; i++) {
        if (!sx_dim_multiply(product, type->dim[i], &product) || product.scale > SX_ELEMENTS_MAX) {
            return false;
        }
    }
    *elements = product;
    return true;
}

bool sx_type_strides(const sx_type *type, sx_dim stride[SX_RANK_MAX])
{
    SX_ASSERT(type->rank <= SX_RANK_MAX);
    sx_dim step = sx_dim_of(1);
    for (uint32_t i = type->rank; i-- > 0;) {
        stride[i] = step;
        if (i > 0 && (!sx_dim_product(step, type->dim[i], &step) || step.scale > SX_ELEMENTS_MAX)) {
            return false;
        }
    }
    return true;
}

int64_t sx_tensor_elements(const sx_type *type)
{
    int64_t elements = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        SX_ASSERT(sx_dim_is_constant(type->dim[d]));
        bool fits = sx_mul_i64(elements, type->dim[d].scale, &elements);
        SX_ASSERT(fits && elements <= SX_ELEMENTS_MAX);
    }
    return elements;
}
