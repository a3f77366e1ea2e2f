#include "core/ir/check.h"
#include "core/ir/extent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ir/fused.h"

/* ---- short texts ---- */

sx_short sx_short_name(sx_span name)
{
    sx_short out = {{0}};
    size_t used = 0;
    for (size_t i = 0; i < name.len && used + 8 < sizeof(out.text) - 24; i++) {
        uint8_t c = name.ptr[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            out.text[used++] = (char)c;
        } else {
            used += (size_t)snprintf(out.text + used, 5, "\\x%02x", c);
        }
    }
    return out;
}

sx_short sx_short_dim(const sx_symbol *symbols, uint32_t symbol_count, sx_dim dim)
{
    sx_short out;
    if (sx_dim_is_constant(dim)) {
        (void)snprintf(out.text, sizeof(out.text), "%lld", (long long)dim.scale);
        return out;
    }
    sx_short name;
    if (dim.symbol < symbol_count && !sx_symbol_is_declared(&symbols[dim.symbol])) {
        sx_buf text;
        sx_buf_init(&text, 65536);
        sx_polynomial_print(symbols[dim.symbol].sum, dim.scale, symbols, &text);
        name = sx_short_name(sx_buf_span(&text));
        sx_buf_fini(&text);
        return name;
    }
    if (dim.symbol < symbol_count) {
        name = sx_short_name(symbols[dim.symbol].name);
    } else {
        (void)snprintf(name.text, sizeof(name.text), "symbol %u", dim.symbol);
    }
    name.text[sizeof(name.text) - 24] = '\0';
    if (dim.scale == 1) {
        return name;
    }
    (void)snprintf(out.text, sizeof(out.text), "%lld*%.70s", (long long)dim.scale, name.text);
    return out;
}

/* ---- types ---- */

/* Largest value of an extent; false if it is no extent at all, with the failure recorded. */
static sx_code dim_upper(const sx_infer *in, sx_dim dim, const char *what, uint32_t axis,
                         int64_t *upper)
{
    *upper = dim.scale;
    int64_t least = sx_dim_is_constant(dim) && in->op != SX_OP_FUSED ? 0 : 1;
    if (dim.scale < least) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s: axis %u has extent %lld, at least %lld", in->name,
                       what, axis, (long long)dim.scale, (long long)least);
    }
    if (!sx_dim_is_constant(dim)) {
        if (dim.symbol >= in->symbol_count) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %s: axis %u has symbol %u, the graph has %u",
                           in->name, what, axis, dim.symbol, in->symbol_count);
        }
        if (!sx_mul_i64(dim.scale, in->symbols[dim.symbol].high, upper)) {
            *upper = INT64_MAX;
        }
    }
    if (*upper > SX_EXTENT_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: %s: axis %u has extent %s, up to %lld, at most %lld",
                       in->name, what, axis, SX_DIM_TEXT(in, dim), (long long)*upper,
                       (long long)SX_EXTENT_MAX);
    }
    return SX_OK;
}

/* At most `elements_max`; `code` if there are more. */
static sx_code check_extents(const sx_infer *in, const sx_type *type, const char *what,
                             int64_t elements_max, sx_code code)
{
    if (type->dtype >= SX_DTYPE_COUNT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s: element type %u, at most %d", in->name, what,
                       (unsigned)type->dtype, SX_DTYPE_COUNT - 1);
    }
    if (type->rank > SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: %s: rank %u, at most %d", in->name, what, type->rank,
                       SX_RANK_MAX);
    }
    int64_t elements = 1;
    for (uint32_t i = 0; i < type->rank; i++) {
        int64_t upper;
        SX_TRY(dim_upper(in, type->dim[i], what, i, &upper));
        upper = sx_max_i64(upper, 1); /* strides of empty tensors are numbers, too */
        if (!sx_mul_i64(elements, upper, &elements) || elements > elements_max) {
            return SX_FAIL(in->cx, code, "%s: %s: more than %lld elements at axis %u of extent %s",
                           in->name, what, (long long)elements_max, i,
                           SX_DIM_TEXT(in, type->dim[i]));
        }
    }
    return SX_OK;
}

sx_code sx_check_type(const sx_infer *in, const sx_type *type, const char *what)
{
    return check_extents(in, type, what, SX_ELEMENTS_MAX, SX_LIMIT);
}

/* The space of a kernel may be larger than any tensor: a contraction has rows, columns and what is summed, for
 * the largest batch. */
static sx_code check_type_attribute(const sx_infer *in)
{
    bool is_space = (in->attr->present & SX_A(body)) != 0;
    return is_space ? check_extents(in, &in->attr->type, "type", SX_SPACE_MAX, SX_UNIMPLEMENTED)
                    : sx_check_type(in, &in->attr->type, "type");
}

sx_code sx_check_like_first(const sx_infer *in, uint32_t k)
{
    const sx_type *first = &in->input[0];
    const sx_type *other = &in->input[k];
    if (other->dtype != first->dtype) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u is %s, operand 0 is %s", in->name, k,
                       sx_dtype_name(other->dtype), sx_dtype_name(first->dtype));
    }
    if (other->rank != first->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u has rank %u, operand 0 has rank %u",
                       in->name, k, other->rank, first->rank);
    }
    return SX_OK;
}

/* Operands a and b have the same extents. */
static sx_code check_same_shape(const sx_infer *in, uint32_t a, uint32_t b)
{
    const sx_type *x = &in->input[a];
    const sx_type *y = &in->input[b];
    if (x->rank != y->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u has rank %u, operand %u has rank %u",
                       in->name, b, y->rank, a, x->rank);
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        if (!sx_dim_equal(x->dim[i], y->dim[i])) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: axis %u: operand %u has extent %s, operand %u has %s", in->name, i,
                           b, SX_DIM_TEXT(in, y->dim[i]), a, SX_DIM_TEXT(in, x->dim[i]));
        }
    }
    return SX_OK;
}

sx_code sx_check_axis(const sx_infer *in, uint32_t rank)
{
    if (in->attr->axis < 0 || in->attr->axis >= (int64_t)rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: axis %lld of a tensor of rank %u", in->name,
                       (long long)in->attr->axis, rank);
    }
    return SX_OK;
}

sx_code sx_check_dims(const sx_infer *in, const sx_ints *dims, sx_attr_field field, uint32_t rank,
                      bool ascending)
{
    const char *list = sx_attr_info_of(field)->name;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < dims->count; i++) {
        int64_t d = dims->v[i];
        if (d < 0 || d >= (int64_t)rank) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %s[%u] is %lld, the rank is %u", in->name, list,
                           i, (long long)d, rank);
        }
        if ((seen & (1u << d)) != 0) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %s names dimension %lld twice", in->name, list,
                           (long long)d);
        }
        if (ascending && i > 0 && d < dims->v[i - 1]) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %s is not ascending: %lld after %lld", in->name,
                           list, (long long)d, (long long)dims->v[i - 1]);
        }
        seen |= 1u << d;
    }
    return SX_OK;
}

sx_code sx_check_reducer(const sx_infer *in, sx_dtype dtype, bool sets)
{
    sx_reducer reducer = in->attr->reducer;
    if (reducer == SX_REPLACE && !sets) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: reducer set; takes add, multiply, maximum, minimum",
                       in->name);
    }
    if (dtype == SX_BOOL && (reducer == SX_MAX || reducer == SX_MIN)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s of bool; takes floats, integers", in->name,
                       sx_reducer_name(reducer));
    }
    return SX_OK;
}

/* ---- element by element ---- */

#define F (1u << SX_CLASS_FLOAT)
#define I (1u << SX_CLASS_INT)
#define B (1u << SX_CLASS_BOOL)
/* Which element types an operation works on. */
static const uint8_t element_classes[SX_OP_COUNT] = {
    [SX_OP_NEGATE] = F | I,
    [SX_OP_ABS] = F | I,
    [SX_OP_EXP] = F,
    [SX_OP_LOG] = F,
    [SX_OP_SQRT] = F,
    [SX_OP_RSQRT] = F,
    [SX_OP_TANH] = F,
    [SX_OP_ERF] = F,
    [SX_OP_LOGISTIC] = F,
    [SX_OP_SIN] = F,
    [SX_OP_COS] = F,
    [SX_OP_FLOOR] = F,
    [SX_OP_CEIL] = F,
    [SX_OP_ROUND] = F,
    [SX_OP_SIGN] = F | I,
    [SX_OP_NOT] = I | B,
    [SX_OP_RELU] = F | I,
    [SX_OP_GELU] = F,
    [SX_OP_GELU_TANH] = F,
    [SX_OP_SILU] = F,
    [SX_OP_ADD] = F | I | B,
    [SX_OP_SUBTRACT] = F | I,
    [SX_OP_MULTIPLY] = F | I | B,
    [SX_OP_DIVIDE] = F | I,
    [SX_OP_POWER] = F | I,
    [SX_OP_REMAINDER] = F | I,
    [SX_OP_MAXIMUM] = F | I,
    [SX_OP_MINIMUM] = F | I,
    [SX_OP_AND] = I | B,
    [SX_OP_OR] = I | B,
    [SX_OP_XOR] = I | B,
    [SX_OP_SHIFT_LEFT] = I,
    [SX_OP_SHIFT_RIGHT_ARITHMETIC] = I,
    [SX_OP_SHIFT_RIGHT_LOGICAL] = I,
    [SX_OP_RANDOM_BITS] = I,
};

uint32_t sx_op_classes(sx_op op)
{
    return element_classes[op];
}

static sx_code check_class(const sx_infer *in)
{
    uint32_t classes = element_classes[in->op];
    SX_ASSERT(classes != 0);
    if ((classes & (1u << sx_dtype_class_of(in->input[0].dtype))) == 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s; takes %s%s%s", in->name,
                       sx_dtype_name(in->input[0].dtype), (classes & F) != 0 ? "floats" : "",
                       (classes & I) == 0 ? "" : ((classes & F) != 0 ? ", integers" : "integers"),
                       (classes & B) != 0 ? ", bool" : "");
    }
    return SX_OK;
}
#undef F
#undef I
#undef B

static sx_code infer_binary(const sx_infer *in)
{
    if (in->op == SX_OP_RANDOM_BITS && in->input[0].dtype != SX_I64) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s, not i64", in->name,
                       sx_dtype_name(in->input[0].dtype));
    }
    SX_TRY(sx_check_like_first(in, 1));
    SX_TRY(check_same_shape(in, 0, 1));
    *in->result = in->input[0];
    return SX_OK;
}

static sx_code infer_select(const sx_infer *in)
{
    if (in->input[0].dtype != SX_BOOL) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s, not bool", in->name,
                       sx_dtype_name(in->input[0].dtype));
    }
    if (in->input[1].dtype != in->input[2].dtype) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 2 is %s, operand 1 is %s", in->name,
                       sx_dtype_name(in->input[2].dtype), sx_dtype_name(in->input[1].dtype));
    }
    SX_TRY(check_same_shape(in, 1, 2));
    SX_TRY(check_same_shape(in, 1, 0));
    *in->result = in->input[1];
    return SX_OK;
}

static sx_code infer_convert(const sx_infer *in)
{
    const sx_type *type = &in->attr->type;
    if (type->dtype >= SX_DTYPE_COUNT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: element type %u, at most %d", in->name,
                       (unsigned)type->dtype, SX_DTYPE_COUNT - 1);
    }
    if (type->rank != 0 && !sx_type_same_shape(type, &in->input[0])) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: the shape of type is neither empty nor the operand's",
                       in->name);
    }
    *in->result = in->input[0];
    in->result->dtype = type->dtype;
    return SX_OK;
}

/* ---- leaves ---- */

static sx_code infer_parameter(const sx_infer *in)
{
    if (in->attr->name.len == 0 || in->attr->name.len > SX_NAME_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: name of %zu bytes, 1 to %d", in->name,
                       in->attr->name.len, SX_NAME_MAX);
    }
    if (in->attr->weight != 0 && in->attr->weight != 1) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: weight is %lld, 0 or 1", in->name,
                       (long long)in->attr->weight);
    }
    *in->result = in->attr->type;
    return SX_OK;
}

static sx_code infer_constant(const sx_infer *in)
{
    const sx_type *type = &in->attr->type;
    sx_span data = in->attr->data;
    size_t size = sx_dtype_bytes(type->dtype);
    if (data.len != size) {
        sx_dim elements;
        if (!sx_type_elements(type, &elements) || !sx_dim_is_constant(elements)) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: %zu bytes of data for a symbolic shape; one element fills it",
                           in->name, data.len);
        }
        if ((uint64_t)elements.scale * size != data.len) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: %zu bytes of data for %lld elements of %zu bytes",
                           in->name, data.len, (long long)elements.scale, size);
        }
    }
    for (size_t i = 0; type->dtype == SX_BOOL && i < data.len; i++) {
        if (data.ptr[i] > 1) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: element %zu of bool is %u, 0 or 1", in->name, i,
                           data.ptr[i]);
        }
    }
    *in->result = *type;
    return SX_OK;
}

static sx_code infer_leaf(const sx_infer *in)
{
    if (in->op == SX_OP_PARAMETER) {
        return infer_parameter(in);
    }
    if (in->op == SX_OP_CONSTANT) {
        return infer_constant(in);
    }
    SX_ASSERT(in->op == SX_OP_IOTA);
    SX_TRY(sx_check_axis(in, in->attr->type.rank));
    if (in->attr->type.dtype == SX_BOOL) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: element type bool; takes floats, integers", in->name);
    }
    *in->result = in->attr->type;
    return SX_OK;
}

/* Has the graph the symbol of a stride, or both of its product? */
static bool has_symbol(const sx_infer *in, sx_dim dim)
{
    sx_dim factor[2];
    return sx_dim_factors(dim, factor)
               ? factor[0].symbol < in->symbol_count && factor[1].symbol < in->symbol_count
               : dim.symbol < in->symbol_count;
}

static sx_code infer_fused(const sx_infer *in)
{
    const sx_body *body = in->attr->body;
    for (uint32_t k = 0; k < in->input_count; k++) {
        SX_TRY(sx_check_type(in, &in->input[k], "an operand")); /* none is empty */
    }
    if (body == NULL || body->arg_count > SX_FUSED_ARGS_MAX) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: body of %u arguments, at most %d", in->name,
                       body == NULL ? 0 : body->arg_count, SX_FUSED_ARGS_MAX);
    }
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d <= SX_RANK_MAX; d++) {
            const sx_access *access = &body->access[a];
            sx_dim dim = d < SX_RANK_MAX ? access->stride[d] : access->offset;
            if (!sx_dim_is_constant(dim) && dim.scale != 0 && !has_symbol(in, dim)) {
                return SX_FAIL(in->cx, SX_INPUT,
                               "%s: argument %u: a stride or its offset has symbol %u, the graph "
                               "has %u",
                               in->name, a, dim.symbol, in->symbol_count);
            }
        }
    }
    return sx_fused_infer(in->cx, in->attr, in->input, in->input_count, in->result);
}

/* ---- one operation ---- */

static sx_code check_signature(const sx_infer *in)
{
    const sx_op_info *info = sx_op_info_of(in->op);
    if (in->input_count < info->input_min || in->input_count > info->input_max) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %u operands, takes %u to %u", in->name,
                       in->input_count, info->input_min, info->input_max);
    }
    for (uint32_t i = 0; in->attr->present != info->attrs && i < SX_ATTR_COUNT; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if ((in->attr->present & bit) != (info->attrs & bit)) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: attribute %s is %s", in->name,
                           sx_attr_info_of((sx_attr_field)i)->name,
                           (info->attrs & bit) != 0 ? "missing" : "not one it carries");
        }
    }
#define CHECK_INT(field)
#define CHECK_INTS(field)                                                                      \
    if (in->attr->field.count > SX_RANK_MAX)                                                   \
        return SX_FAIL(in->cx, SX_LIMIT, "%s: %s of %u numbers, at most %d", in->name, #field, \
                       in->attr->field.count, SX_RANK_MAX);
#define CHECK_EXTENTS(field)                                                                   \
    if (in->attr->field.count > SX_RANK_MAX)                                                   \
        return SX_FAIL(in->cx, SX_LIMIT, "%s: %s of %u extents, at most %d", in->name, #field, \
                       in->attr->field.count, SX_RANK_MAX);
#define CHECK_FLOAT(field)          \
    if (!isfinite(in->attr->field)) \
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s is not finite", in->name, #field);
#define CHECK_ENUM(field, count)                                                           \
    if (in->attr->field >= (count))                                                        \
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s number %u, at most %d", in->name, #field, \
                       (unsigned)in->attr->field, (count)-1);
#define CHECK_REDUCER(field) CHECK_ENUM(field, SX_REPLACE + 1)
#define CHECK_DIRECTION(field) CHECK_ENUM(field, SX_DIRECTION_COUNT)
#define CHECK_TYPE(field)
#define CHECK_BYTES(field)
#define CHECK_NAME(field)
#define CHECK_BODY(field)
#define CHECK_PAIRS(field)                                                                   \
    if (in->attr->field.count > SX_RANK_PAIRS_MAX)                                           \
        return SX_FAIL(in->cx, SX_LIMIT, "%s: %s of %u pairs, at most %u", in->name, #field, \
                       in->attr->field.count, SX_RANK_PAIRS_MAX);
#define CHECK_PROGRAM(field)                                        \
    if ((in->attr->present & SX_A(field)) != 0 && !in->attr->field) \
        return SX_FAIL(in->cx, SX_INPUT, "%s: no %s", in->name, #field);
#define SX_ATTR(name, kind, help) CHECK_##kind(name)
#include "core/ir/attrs.def"
#undef SX_ATTR
    return SX_OK;
}

static sx_code dispatch(const sx_infer *in)
{
    switch (sx_op_info_of(in->op)->op_class) {
    case SX_OPCLASS_LEAF: return infer_leaf(in);
    case SX_OPCLASS_UNARY:
        SX_TRY(check_class(in));
        *in->result = in->input[0];
        return SX_OK;
    case SX_OPCLASS_BINARY: SX_TRY(check_class(in)); return infer_binary(in);
    case SX_OPCLASS_COMPARE:
        SX_TRY(infer_binary(in));
        in->result->dtype = SX_BOOL;
        return SX_OK;
    case SX_OPCLASS_SELECT: return infer_select(in);
    case SX_OPCLASS_CONVERT: return infer_convert(in);
    case SX_OPCLASS_VIEW:
        if (in->op == SX_OP_RESHAPE) {
            return sx_infer_reshape(in);
        }
        if (in->op == SX_OP_TRANSPOSE) {
            return sx_infer_transpose(in);
        }
        return in->op == SX_OP_BROADCAST ? sx_infer_broadcast(in) : sx_infer_slice(in);
    case SX_OPCLASS_CONCAT: return sx_infer_concatenate(in);
    case SX_OPCLASS_REDUCE: return sx_infer_reduce(in);
    case SX_OPCLASS_DOT: return sx_infer_dot_general(in);
    case SX_OPCLASS_GATHER: return sx_infer_gather(in);
    case SX_OPCLASS_SCATTER: return sx_infer_scatter(in);
    case SX_OPCLASS_DYNAMIC:
        return in->op == SX_OP_DYNAMIC_SLICE ? sx_infer_dynamic_slice(in)
                                             : sx_infer_dynamic_update_slice(in);
    case SX_OPCLASS_SORT: return sx_infer_sort(in);
    case SX_OPCLASS_MOVE:
        return in->op == SX_OP_REVERSE ? sx_infer_reverse(in)
               : in->op == SX_OP_PAD   ? sx_infer_pad(in)
                                       : sx_infer_crop(in);
    case SX_OPCLASS_WINDOW: return sx_infer_reduce_window(in);
    case SX_OPCLASS_CONV: return sx_infer_convolution(in);
    case SX_OPCLASS_COMPOSITE: return sx_infer_composite(in);
    case SX_OPCLASS_REGION: return sx_infer_region(in);
    case SX_OPCLASS_COLLECTIVE: return sx_infer_collective(in);
    case SX_OPCLASS_FUSED: return infer_fused(in);
    }
    SX_UNREACHABLE();
}

/* Everything of `in` but op and result is there. */
static sx_code infer(sx_infer in, sx_op op, sx_type *result)
{
    if (op >= SX_OP_COUNT) {
        return SX_FAIL(in.cx, SX_INPUT, "operation number %u, at most %d", (unsigned)op,
                       SX_OP_COUNT - 1);
    }
    sx_type inferred = {0};
    in.op = op;
    in.name = sx_op_info_of(op)->name;
    in.result = &inferred;
    SX_TRY(check_signature(&in));
    if ((in.attr->present & SX_A(type)) != 0 && op != SX_OP_CONVERT) {
        SX_TRY(check_type_attribute(&in));
    }
    for (uint32_t k = 0; k < in.input_count; k++) {
        SX_ASSERT(in.input[k].rank <= SX_RANK_MAX && in.input[k].dtype < SX_DTYPE_COUNT);
    }
    SX_TRY(dispatch(&in));
    if (in.grows != NULL) { /* it may have grown */
        in.symbols = in.grows->symbol;
        in.symbol_count = in.grows->symbol_count;
    }
    SX_TRY(sx_check_type(&in, &inferred, "result"));
    for (uint32_t i = inferred.rank; i < SX_RANK_MAX; i++) { /* nothing stale beyond the rank */
        inferred.dim[i] = (sx_dim){0};
    }
    *result = inferred;
    return SX_OK;
}

sx_code sx_infer_type(sx_ctx *cx, const sx_symbol *symbols, uint32_t symbol_count, sx_op op,
                      const sx_attr *attr, const sx_type *input, uint32_t input_count,
                      sx_type *result)
{
    SX_ASSERT(symbols != NULL || symbol_count == 0);
    sx_infer in = {.cx = cx,
                   .symbols = symbols,
                   .symbol_count = symbol_count,
                   .attr = attr,
                   .input = input,
                   .input_count = input_count};
    return infer(in, op, result);
}

sx_code sx_infer_over(sx_ctx *cx, sx_graph *graph, sx_op op, const sx_attr *attr,
                      const sx_type *input, uint32_t input_count, sx_type *result)
{
    SX_ASSERT(graph != NULL);
    sx_infer in = {.cx = cx,
                   .symbols = graph->symbol,
                   .symbol_count = graph->symbol_count,
                   .grows = graph,
                   .attr = attr,
                   .input = input,
                   .input_count = input_count};
    return infer(in, op, result);
}

sx_code sx_infer_extent(const sx_infer *in, int64_t axis, const sx_polynomial *p, sx_dim *dim)
{
    SX_ASSERT(p->count <= SX_TERMS_MAX);
    if (sx_extent_find(in->symbols, in->symbol_count, p, dim)) {
        return SX_OK;
    }
    if (in->grows == NULL) {
        sx_buf text;
        sx_buf_init(&text, 65536);
        sx_polynomial_print(p, 1, in->symbols, &text);
        sx_short extent = sx_short_name(sx_buf_span(&text));
        sx_buf_fini(&text);
        return SX_FAIL(in->cx, SX_UNIMPLEMENTED,
                       "%s: axis %lld: no type of the program has the extent %s", in->name,
                       (long long)axis, extent.text);
    }
    return sx_graph_add_extent(in->cx, in->grows, p, dim) == SX_OK
               ? SX_OK
               : sx_fail_in(in->cx, "%s: axis %lld", in->name, (long long)axis);
}
