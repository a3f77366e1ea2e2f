#include "core/ir/check.h"

#include <stdio.h>
#include <string.h>

#include "core/ir/plain.h"

/* ---- views ---- */

/* The number of elements with any number of symbols: scale * product of the symbols, ascending. */
typedef struct {
    int64_t scale;
    uint32_t count;
    uint32_t symbol[SX_RANK_MAX];
} monomial;

static monomial monomial_of(const sx_type *type)
{
    monomial m = {.scale = 1};
    for (uint32_t i = 0; i < type->rank; i++) {
        m.scale *= type->dim[i].scale; /* a checked type: at most SX_ELEMENTS_MAX */
        SX_ASSERT(m.scale >= 0 && m.scale <= SX_ELEMENTS_MAX);
        if (m.scale == 0) {
            return (monomial){0}; /* whatever else there is */
        }
        if (sx_dim_is_constant(type->dim[i])) {
            continue;
        }
        uint32_t at = m.count++;
        while (at > 0 && m.symbol[at - 1] > type->dim[i].symbol) {
            m.symbol[at] = m.symbol[at - 1];
            at--;
        }
        m.symbol[at] = type->dim[i].symbol;
    }
    return m;
}

static sx_short monomial_text(const sx_infer *in, const monomial *m)
{
    sx_short out;
    size_t used = (size_t)snprintf(out.text, sizeof(out.text), "%lld", (long long)m->scale);
    for (uint32_t i = 0; i < m->count && used < sizeof(out.text) - 1; i++) {
        int more = snprintf(out.text + used, sizeof(out.text) - used, "*%s",
                            SX_DIM_TEXT(in, ((sx_dim){1, m->symbol[i]})));
        used += more > 0 ? (size_t)more : 0;
    }
    return out;
}

/* By what the symbols stand for. */
static bool same_elements(const sx_infer *in, const sx_type *from, const sx_type *to)
{
    sx_polynomial a, b;
    for (uint32_t d = 0; d < from->rank; d++) {
        if (!sx_dim_is_constant(from->dim[d]) && from->dim[d].symbol >= in->symbol_count) {
            return false;
        }
    }
    return sx_polynomial_elements(in->symbols, from, &a) &&
           sx_polynomial_elements(in->symbols, to, &b) && sx_polynomial_compare(&a, &b) == 0;
}

sx_code sx_infer_reshape(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_type *to = &in->attr->type;
    if (from->dtype != to->dtype) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s, the result %s", in->name,
                       sx_dtype_name(from->dtype), sx_dtype_name(to->dtype));
    }
    monomial a = monomial_of(from);
    monomial b = monomial_of(to);
    bool same = a.scale == b.scale && a.count == b.count &&
                memcmp(a.symbol, b.symbol, a.count * sizeof(a.symbol[0])) == 0;
    if (!same && !same_elements(in, from, to)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 has %s elements, the result %s", in->name,
                       monomial_text(in, &a).text, monomial_text(in, &b).text);
    }
    *in->result = *to;
    return SX_OK;
}

sx_code sx_infer_transpose(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_ints *perm = &in->attr->perm;
    if (perm->count != from->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: perm has %u numbers, operand 0 has rank %u", in->name,
                       perm->count, from->rank);
    }
    SX_TRY(sx_check_dims(in, perm, SX_ATTR_perm, from->rank, false));
    *in->result = *from;
    for (uint32_t i = 0; i < from->rank; i++) {
        in->result->dim[i] = from->dim[perm->v[i]];
    }
    return SX_OK;
}

sx_code sx_infer_broadcast(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_type *to = &in->attr->type;
    const sx_ints *dims = &in->attr->dims;
    if (from->dtype != to->dtype) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s, the result %s", in->name,
                       sx_dtype_name(from->dtype), sx_dtype_name(to->dtype));
    }
    if (dims->count != from->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: dims has %u numbers, operand 0 has rank %u", in->name,
                       dims->count, from->rank);
    }
    SX_TRY(sx_check_dims(in, dims, SX_ATTR_dims, to->rank, true));
    for (uint32_t i = 0; i < from->rank; i++) {
        sx_dim target = to->dim[dims->v[i]];
        if (!sx_dim_equal(from->dim[i], sx_dim_of(1)) && !sx_dim_equal(from->dim[i], target)) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: axis %u of operand 0 has extent %s, axis %lld of the result %s",
                           in->name, i, SX_DIM_TEXT(in, from->dim[i]), (long long)dims->v[i],
                           SX_DIM_TEXT(in, target));
        }
    }
    *in->result = *to;
    return SX_OK;
}

static int64_t count_steps(int64_t start, int64_t limit, int64_t stride)
{
    SX_ASSERT(start <= limit && stride >= 1);
    return start == limit ? 0 : (limit - start - 1) / stride + 1;
}

/* A symbolic dimension: a fixed part that is inside for every value of the symbol, or all of it. */
static sx_code slice_symbolic(const sx_infer *in, uint32_t axis, int64_t start, int64_t limit,
                              int64_t stride, sx_dim *extent)
{
    sx_dim dim = in->input[0].dim[axis];
    if (limit >= 0) {
        if (dim.symbol >= in->symbol_count) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %u has symbol %u, the graph has %u",
                           in->name, axis, dim.symbol, in->symbol_count);
        }
        int64_t least;
        if (!sx_mul_i64(dim.scale, in->symbols[dim.symbol].low, &least)) {
            least = INT64_MAX;
        }
        if (limit > least || start > limit) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: axis %u: [%lld, %lld) of extent %s, which can be %lld", in->name,
                           axis, (long long)start, (long long)limit, SX_DIM_TEXT(in, dim),
                           (long long)least);
        }
        *extent = sx_dim_of(count_steps(start, limit, stride));
        return SX_OK;
    }
    if (start != 0 || dim.scale % stride != 0) {
        return SX_FAIL(in->cx, SX_UNIMPLEMENTED,
                       "%s: axis %u: from %lld by %lld of extent %s is no multiple of a symbol",
                       in->name, axis, (long long)start, (long long)stride, SX_DIM_TEXT(in, dim));
    }
    *extent = (sx_dim){dim.scale / stride, dim.symbol};
    return SX_OK;
}

sx_code sx_infer_slice(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_attr *attr = in->attr;
    if (attr->start.count != from->rank || attr->limit.count != from->rank ||
        attr->stride.count != from->rank) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: start, limit, stride have %u, %u, %u numbers, operand 0 has rank %u",
                       in->name, attr->start.count, attr->limit.count, attr->stride.count,
                       from->rank);
    }
    *in->result = *from;
    for (uint32_t i = 0; i < from->rank; i++) {
        int64_t start = attr->start.v[i];
        int64_t limit = attr->limit.v[i];
        int64_t stride = attr->stride.v[i];
        if (start < 0 || limit < -1 || stride < 1) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: axis %u: start %lld, limit %lld, stride %lld; at least 0, -1, 1",
                           in->name, i, (long long)start, (long long)limit, (long long)stride);
        }
        if (!sx_dim_is_constant(from->dim[i])) {
            SX_TRY(slice_symbolic(in, i, start, limit, stride, &in->result->dim[i]));
            continue;
        }
        if (limit > from->dim[i].scale || start > limit) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %u: [%lld, %lld) of extent %lld", in->name,
                           i, (long long)start, (long long)limit, (long long)from->dim[i].scale);
        }
        in->result->dim[i] = sx_dim_of(count_steps(start, limit, stride));
    }
    return SX_OK;
}

/* What is left of one dimension behind the origin and the result: at least 0, by the bounds of the symbols. */
static sx_code check_crop(const sx_infer *in, uint32_t axis)
{
    const sx_dim part[] = {in->input[0].dim[axis], in->attr->origin.v[axis],
                           in->attr->type.dim[axis]};
    sx_polynomial rest = {0}, p;
    int64_t low = 0, high;
    bool fits = true;
    for (uint32_t k = 0; k < SX_COUNT(part); k++) {
        if (!sx_dim_is_constant(part[k]) && part[k].symbol >= in->symbol_count) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %u has symbol %u, the graph has %u",
                           in->name, axis, part[k].symbol, in->symbol_count);
        }
        fits = fits && sx_polynomial_of(in->symbols, part[k], &p) &&
               sx_polynomial_add(&rest, &p, k == 0 ? 1 : -1);
    }
    fits = fits && sx_polynomial_bounds(in->symbols, &rest, &low, &high);
    if (!fits || low < 0) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: axis %u: %s elements from %s on, of extent %s, can be more than it has",
                       in->name, axis, SX_DIM_TEXT(in, part[2]), SX_DIM_TEXT(in, part[1]),
                       SX_DIM_TEXT(in, part[0]));
    }
    return SX_OK;
}

sx_code sx_infer_crop(const sx_infer *in)
{
    const sx_type *from = &in->input[0], *to = &in->attr->type;
    SX_ASSERT(in->op == SX_OP_CROP && in->input_count == 1);
    if (from->dtype != to->dtype || from->rank != to->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s of rank %u, the result %s of rank %u",
                       in->name, sx_dtype_name(from->dtype), from->rank, sx_dtype_name(to->dtype),
                       to->rank);
    }
    if (in->attr->origin.count != from->rank) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: origin has %u extents, operand 0 has rank %u",
                       in->name, in->attr->origin.count, from->rank);
    }
    SX_TRY(sx_check_dims(in, &in->attr->dims, SX_ATTR_dims, from->rank, true));
    for (uint32_t i = 0; i < from->rank; i++) {
        if (in->attr->origin.v[i].scale < 0) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %u: origin %lld, at least 0", in->name, i,
                           (long long)in->attr->origin.v[i].scale);
        }
        SX_TRY(check_crop(in, i));
    }
    *in->result = *to;
    return SX_OK;
}

/* The extents of all operands along the axis, together. */
static sx_code add_extents(const sx_infer *in, sx_dim *sum)
{
    int64_t axis = in->attr->axis;
    sx_polynomial total = {0};
    bool alike = true, fits = true;
    for (uint32_t k = 0; k < in->input_count; k++) {
        sx_dim more = in->input[k].dim[axis];
        sx_polynomial p;
        if (more.symbol >= in->symbol_count && !sx_dim_is_constant(more)) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: axis %lld of operand %u has symbol %u of %u",
                           in->name, (long long)axis, k, more.symbol, in->symbol_count);
        }
        alike =
            alike && (k == 0 || sum->symbol == more.symbol || sum->scale == 0 || more.scale == 0);
        fits = fits && sx_polynomial_of(in->symbols, more, &p) &&
               sx_polynomial_add(&total, &p, 1) &&
               (!alike || k == 0 || sx_dim_add(*sum, more, sum));
        if (!fits) {
            return SX_FAIL(
                in->cx, SX_LIMIT,
                "%s: axis %lld: extent beyond %lld, or more than %u terms, at operand %u", in->name,
                (long long)axis, (long long)SX_EXTENT_MAX, SX_TERMS_MAX, k);
        }
    }
    return alike ? SX_OK : sx_infer_extent(in, axis, &total, sum);
}

sx_code sx_infer_concatenate(const sx_infer *in)
{
    SX_ASSERT(in->input_count > 0); /* the table of operations holds the least number */
    SX_TRY(sx_check_axis(in, in->input[0].rank));
    *in->result = in->input[0];
    for (uint32_t k = 1; k < in->input_count; k++) {
        SX_TRY(sx_check_like_first(in, k));
        for (uint32_t i = 0; i < in->input[0].rank; i++) {
            if (i != (uint32_t)in->attr->axis &&
                !sx_dim_equal(in->input[0].dim[i], in->input[k].dim[i])) {
                return SX_FAIL(in->cx, SX_INPUT,
                               "%s: axis %u: operand %u has extent %s, operand 0 has %s", in->name,
                               i, k, SX_DIM_TEXT(in, in->input[k].dim[i]),
                               SX_DIM_TEXT(in, in->input[0].dim[i]));
            }
        }
    }
    return add_extents(in, &in->result->dim[in->attr->axis]);
}

/* ---- combining ---- */

sx_code sx_infer_reduce(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_ints *dims = &in->attr->dims;
    if (dims->count == 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: dims is empty, at least 1 dimension", in->name);
    }
    SX_TRY(sx_check_dims(in, dims, SX_ATTR_dims, from->rank, true));
    SX_TRY(sx_check_reducer(in, from->dtype, false));
    *in->result = (sx_type){.dtype = from->dtype};
    uint32_t next = 0;
    for (uint32_t i = 0; i < from->rank; i++) {
        if (next < dims->count && dims->v[next] == (int64_t)i) {
            next++;
        } else {
            in->result->dim[in->result->rank++] = from->dim[i];
        }
    }
    return SX_OK;
}

/* One pair of lists of dot_general: equally long, extents equal pair by pair; marks the dimensions as used. */
static sx_code check_pairs(const sx_infer *in, sx_attr_field left, sx_attr_field right,
                           const sx_ints *a, const sx_ints *b, uint32_t used[2])
{
    if (a->count != b->count) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: %s has %u numbers, %s has %u", in->name,
                       sx_attr_info_of(left)->name, a->count, sx_attr_info_of(right)->name,
                       b->count);
    }
    SX_TRY(sx_check_dims(in, a, left, in->input[0].rank, false));
    SX_TRY(sx_check_dims(in, b, right, in->input[1].rank, false));
    for (uint32_t i = 0; i < a->count; i++) {
        sx_dim x = in->input[0].dim[a->v[i]];
        sx_dim y = in->input[1].dim[b->v[i]];
        if (!sx_dim_equal(x, y)) {
            return SX_FAIL(
                in->cx, SX_INPUT,
                "%s: %s: axis %lld of operand 0 has extent %s, axis %lld of operand 1 %s", in->name,
                sx_attr_info_of(left)->name + 4, (long long)a->v[i], SX_DIM_TEXT(in, x),
                (long long)b->v[i], SX_DIM_TEXT(in, y));
        }
        if ((used[0] & (1u << a->v[i])) != 0 || (used[1] & (1u << b->v[i])) != 0) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: dimensions %lld and %lld are batch and contracted", in->name,
                           (long long)a->v[i], (long long)b->v[i]);
        }
        used[0] |= 1u << a->v[i];
        used[1] |= 1u << b->v[i];
    }
    return SX_OK;
}

sx_code sx_infer_dot_general(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    if (in->input[0].dtype != in->input[1].dtype || in->input[0].dtype == SX_BOOL) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: operand 0 is %s, operand 1 is %s; takes two equal, not bool", in->name,
                       sx_dtype_name(in->input[0].dtype), sx_dtype_name(in->input[1].dtype));
    }
    uint32_t used[2] = {0, 0};
    SX_TRY(check_pairs(in, SX_ATTR_lhs_batch, SX_ATTR_rhs_batch, &attr->lhs_batch, &attr->rhs_batch,
                       used));
    SX_TRY(check_pairs(in, SX_ATTR_lhs_contract, SX_ATTR_rhs_contract, &attr->lhs_contract,
                       &attr->rhs_contract, used));
    sx_type result = {.dtype = in->input[0].dtype};
    sx_dim dim[2 * SX_RANK_MAX];
    for (uint32_t i = 0; i < attr->lhs_batch.count; i++) {
        dim[result.rank++] = in->input[0].dim[attr->lhs_batch.v[i]];
    }
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < in->input[side].rank; i++) {
            if ((used[side] & (1u << i)) == 0) {
                SX_ASSERT(result.rank < SX_COUNT(dim));
                dim[result.rank++] = in->input[side].dim[i];
            }
        }
    }
    if (result.rank > SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: result of rank %u, at most %d", in->name, result.rank,
                       SX_RANK_MAX);
    }
    memcpy(result.dim, dim, result.rank * sizeof(dim[0]));
    *in->result = result;
    return SX_OK;
}

sx_code sx_infer_gather(const sx_infer *in)
{
    const sx_type *from = &in->input[0];
    const sx_type *index = &in->input[1];
    SX_TRY(sx_check_axis(in, from->rank));
    if (sx_dtype_class_of(index->dtype) != SX_CLASS_INT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 1 is %s; takes integers", in->name,
                       sx_dtype_name(index->dtype));
    }
    uint32_t rank = from->rank - 1 + index->rank;
    if (rank > SX_RANK_MAX) {
        return SX_FAIL(in->cx, SX_LIMIT, "%s: result of rank %u, at most %d", in->name, rank,
                       SX_RANK_MAX);
    }
    sx_type result = {.dtype = from->dtype};
    for (uint32_t i = 0; i < from->rank; i++) {
        if (i != (uint32_t)in->attr->axis) {
            result.dim[result.rank++] = from->dim[i];
            continue;
        }
        for (uint32_t k = 0; k < index->rank; k++) {
            result.dim[result.rank++] = index->dim[k];
        }
    }
    SX_ASSERT(result.rank == rank);
    if (from->dim[in->attr->axis].scale == 0 && !sx_type_is_empty(index)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: axis %lld of operand 0 is empty, operand 1 is not",
                       in->name, (long long)in->attr->axis);
    }
    *in->result = result;
    return SX_OK;
}

/* ---- composites ---- */

static sx_code check_float(const sx_infer *in)
{
    if (sx_dtype_class_of(in->input[0].dtype) != SX_CLASS_FLOAT) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 is %s; takes floats", in->name,
                       sx_dtype_name(in->input[0].dtype));
    }
    return SX_OK;
}

/* Operands 1.. of a normalisation have the shape of operand 0 from `axis` on. */
static sx_code infer_norm(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    SX_TRY(sx_check_axis(in, x->rank));
    if (in->attr->eps < 0.0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: eps is %g, at least 0", in->name, in->attr->eps);
    }
    uint32_t axis = (uint32_t)in->attr->axis;
    for (uint32_t k = 1; k < in->input_count; k++) {
        const sx_type *scale = &in->input[k];
        if (scale->dtype != x->dtype) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u is %s, operand 0 is %s", in->name, k,
                           sx_dtype_name(scale->dtype), sx_dtype_name(x->dtype));
        }
        if (scale->rank != x->rank - axis) {
            return SX_FAIL(in->cx, SX_INPUT,
                           "%s: operand %u has rank %u, operand 0 has %u dimensions from axis %u",
                           in->name, k, scale->rank, x->rank - axis, axis);
        }
        for (uint32_t i = 0; i < scale->rank; i++) {
            if (!sx_dim_equal(scale->dim[i], x->dim[axis + i])) {
                return SX_FAIL(in->cx, SX_INPUT,
                               "%s: axis %u of operand %u has extent %s, axis %u of operand 0 %s",
                               in->name, i, k, SX_DIM_TEXT(in, scale->dim[i]), axis + i,
                               SX_DIM_TEXT(in, x->dim[axis + i]));
            }
        }
    }
    *in->result = *x;
    return SX_OK;
}

/* Axis i of operand a and axis j of operand b are equal. */
static sx_code check_axes(const sx_infer *in, uint32_t a, uint32_t i, uint32_t b, uint32_t j)
{
    sx_dim x = in->input[a].dim[i];
    sx_dim y = in->input[b].dim[j];
    if (!sx_dim_equal(x, y)) {
        return SX_FAIL(in->cx, SX_INPUT,
                       "%s: axis %u of operand %u has extent %s, axis %u of operand %u %s",
                       in->name, j, b, SX_DIM_TEXT(in, y), i, a, SX_DIM_TEXT(in, x));
    }
    return SX_OK;
}

static sx_code infer_attention(const sx_infer *in)
{
    uint32_t rank = in->input[0].rank;
    if (rank < 2) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: operand 0 has rank %u, at least 2", in->name, rank);
    }
    for (uint32_t k = 1; k < in->input_count; k++) {
        SX_TRY(sx_check_like_first(in, k));
        for (uint32_t i = 0; i + 2 < rank; i++) {
            SX_TRY(check_axes(in, 0, i, k, i));
        }
    }
    SX_TRY(check_axes(in, 0, rank - 1, 1, rank - 1));
    SX_TRY(check_axes(in, 1, rank - 2, 2, rank - 2));
    if (in->input_count == 4) {
        SX_TRY(check_axes(in, 0, rank - 2, 3, rank - 2));
        SX_TRY(check_axes(in, 1, rank - 2, 3, rank - 1));
    }
    *in->result = in->input[0];
    in->result->dim[rank - 1] = in->input[2].dim[rank - 1];
    return SX_OK;
}

/* Scores that run along no contracted dimension have no weights; without v the lists of v are empty. */
static sx_code infer_online(const sx_infer *in)
{
    const sx_attr *attr = in->attr;
    const sx_ints *sum = &attr->lhs_contract;
    bool has_v = in->input_count == 2;
    if (attr->form < 0 || attr->form > 2 || (attr->form == 2 && has_v) ||
        (attr->form == 1 && !has_v)) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: form is %lld with %u operands; 0, 1 with 2, 2 with 1",
                       in->name, (long long)attr->form, in->input_count);
    }
    if (sum->count == 0 || in->input[0].rank == 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: lhs_contract is empty, at least 1 dimension",
                       in->name);
    }
    if (sx_dtype_bytes(in->input[0].dtype) < 4) {
        return SX_FAIL(in->cx, SX_UNIMPLEMENTED, "%s: operand 0 is %s; takes f32, f64", in->name,
                       sx_dtype_name(in->input[0].dtype));
    }
    if (has_v) {
        return sx_infer_dot_general(in);
    }
    if (attr->lhs_batch.count + attr->rhs_batch.count + attr->rhs_contract.count > 0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: batch or rhs_contract without operand 1", in->name);
    }
    SX_TRY(sx_check_dims(in, sum, SX_ATTR_lhs_contract, in->input[0].rank, true));
    *in->result = (sx_type){.dtype = in->input[0].dtype};
    for (uint32_t d = 0, k = 0; d < in->input[0].rank; d++) {
        if (k < sum->count && sum->v[k] == d) {
            k++;
        } else {
            in->result->dim[in->result->rank++] = in->input[0].dim[d];
        }
    }
    return SX_OK;
}

/* Operands 1.. have one element for each index along `axis` of operand 0. */
static sx_code infer_batch_norm(const sx_infer *in)
{
    const sx_type *x = &in->input[0];
    SX_TRY(sx_check_axis(in, x->rank));
    if (in->attr->eps < 0.0) {
        return SX_FAIL(in->cx, SX_INPUT, "%s: eps is %g, at least 0", in->name, in->attr->eps);
    }
    for (uint32_t k = 1; k < in->input_count; k++) {
        const sx_type *channel = &in->input[k];
        if (channel->dtype != x->dtype || channel->rank != 1) {
            return SX_FAIL(in->cx, SX_INPUT, "%s: operand %u is %s of rank %u, not %s of rank 1",
                           in->name, k, sx_dtype_name(channel->dtype), channel->rank,
                           sx_dtype_name(x->dtype));
        }
        SX_TRY(check_axes(in, 0, (uint32_t)in->attr->axis, k, 0));
    }
    *in->result = *x;
    return SX_OK;
}

sx_code sx_infer_composite(const sx_infer *in)
{
    SX_TRY(check_float(in));
    if (in->op == SX_OP_ONLINE_DOT) {
        return infer_online(in);
    }
    if (in->op == SX_OP_BATCH_NORM) {
        return infer_batch_norm(in);
    }
    if (in->op == SX_OP_ATTENTION) {
        return infer_attention(in);
    }
    if (in->op == SX_OP_LAYER_NORM || in->op == SX_OP_RMS_NORM) {
        return infer_norm(in);
    }
    SX_ASSERT(in->op == SX_OP_SOFTMAX || in->op == SX_OP_LOG_SOFTMAX);
    SX_TRY(sx_check_axis(in, in->input[0].rank));
    *in->result = in->input[0];
    return SX_OK;
}
