#include "tests/lib/ir.h"

#include <math.h>
#include <string.h>

#include "core/ir/num.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

static uint32_t below(sx_rng *rng, uint32_t bound)
{
    return (uint32_t)sx_rng_below(rng, bound);
}

sx_type sx_test_type(sx_rng *rng, sx_dtype dtype, uint32_t rank_max, uint32_t extent_max)
{
    sx_type type = {.dtype = dtype, .rank = below(rng, rank_max + 1)};
    for (uint32_t d = 0; d < type.rank; d++) {
        type.dim[d] = sx_dim_of(1 + below(rng, extent_max));
    }
    return type;
}

static void shuffle(sx_rng *rng, sx_ints *ints)
{
    for (uint32_t k = ints->count; k > 1; k--) {
        uint32_t other = below(rng, k);
        int64_t kept = ints->v[k - 1];
        ints->v[k - 1] = ints->v[other];
        ints->v[other] = kept;
    }
}

static sx_ints all_dims(uint32_t rank)
{
    sx_ints dims = {.count = rank};
    for (uint32_t d = 0; d < rank; d++) {
        dims.v[d] = d;
    }
    return dims;
}

/* Each of 0..rank-1 with probability one half, ascending. */
static sx_ints some_dims(sx_rng *rng, uint32_t rank)
{
    sx_ints dims = {0};
    for (uint32_t d = 0; d < rank; d++) {
        if (below(rng, 2) == 0) {
            dims.v[dims.count++] = d;
        }
    }
    return dims;
}

/* ---- views ---- */
/* The same elements: extents multiplied together and split again at random. */
static sx_type reshaped(sx_rng *rng, const sx_type *source)
{
    sx_type type = {.dtype = source->dtype};
    for (uint32_t d = 0; d < source->rank; d++) {
        int64_t extent = source->dim[d].scale;
        if (type.rank > 0 && below(rng, 3) == 0) {
            type.dim[type.rank - 1].scale *= extent;
            continue;
        }
        for (int64_t factor = 2; factor < extent && type.rank + source->rank - d < 6; factor++) {
            if (extent % factor == 0 && below(rng, 2) == 0) {
                type.dim[type.rank++] = sx_dim_of(factor);
                extent /= factor;
            }
        }
        type.dim[type.rank++] = sx_dim_of(extent);
        if (type.rank + source->rank - d < 6 && below(rng, 6) == 0) {
            type.dim[type.rank++] = sx_dim_of(1);
        }
    }
    return type;
}

static void make_broadcast(sx_rng *rng, const sx_type *source, sx_attr *attr)
{
    attr->type = (sx_type){.dtype = source->dtype};
    attr->dims.count = source->rank;
    for (uint32_t d = 0; d < source->rank; d++) {
        if (attr->type.rank + source->rank - d < 6 && below(rng, 3) == 0) {
            attr->type.dim[attr->type.rank++] = sx_dim_of(1 + below(rng, 3));
        }
        bool repeats = source->dim[d].scale == 1 && below(rng, 2) == 0;
        attr->dims.v[d] = attr->type.rank;
        attr->type.dim[attr->type.rank++] = repeats ? sx_dim_of(3) : source->dim[d];
    }
    if (attr->type.rank < 6) {
        attr->type.dim[attr->type.rank++] = sx_dim_of(1 + below(rng, 3));
    }
}

static void make_slice(sx_rng *rng, const sx_type *source, sx_attr *attr)
{
    attr->start.count = attr->limit.count = attr->stride.count = source->rank;
    for (uint32_t d = 0; d < source->rank; d++) {
        uint32_t extent = (uint32_t)source->dim[d].scale;
        attr->start.v[d] = below(rng, 2) == 0 ? 0 : below(rng, extent);
        attr->limit.v[d] = attr->start.v[d] + 1 + below(rng, extent - (uint32_t)attr->start.v[d]);
        attr->stride.v[d] = 1 + below(rng, 2);
    }
}

void sx_test_view_make(sx_ctx *cx, sx_rng *rng, sx_op op, const sx_type *source, sx_attr *attr,
                       sx_type *result)
{
    memset(attr, 0, sizeof(*attr));
    attr->present = sx_op_info_of(op)->attrs;
    if (op == SX_OP_RESHAPE) {
        attr->type = reshaped(rng, source);
    } else if (op == SX_OP_TRANSPOSE) {
        attr->perm = all_dims(source->rank);
        shuffle(rng, &attr->perm);
    } else if (op == SX_OP_BROADCAST) {
        make_broadcast(rng, source, attr);
    } else {
        ck_assert_int_eq(op, SX_OP_SLICE);
        make_slice(rng, source, attr);
    }
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, op, attr, source, 1, result));
}

/* ---- the other operations ---- */
static void make_dot(sx_rng *rng, sx_test_op *made)
{
    sx_dtype dtype = made->input[0].dtype;
    uint32_t left_rank = 1 + below(rng, 4);
    uint32_t right_rank = 1 + below(rng, 4);
    sx_ints left = all_dims(left_rank);
    sx_ints right = all_dims(right_rank);
    shuffle(rng, &left);
    shuffle(rng, &right);
    for (uint32_t side = 0; side < 2; side++) {
        made->input[side] = (sx_type){.dtype = dtype, .rank = side == 0 ? left_rank : right_rank};
        for (uint32_t d = 0; d < made->input[side].rank; d++) {
            made->input[side].dim[d] = sx_dim_of(1 + below(rng, 4));
        }
    }
    uint32_t pairs = below(rng, (left_rank < right_rank ? left_rank : right_rank) + 1);
    uint32_t batch = below(rng, pairs + 1);
    for (uint32_t k = 0; k < pairs; k++) {
        sx_ints *to_left = k < batch ? &made->attr.lhs_batch : &made->attr.lhs_contract;
        sx_ints *to_right = k < batch ? &made->attr.rhs_batch : &made->attr.rhs_contract;
        to_left->v[to_left->count++] = left.v[k];
        to_right->v[to_right->count++] = right.v[k];
        made->input[1].dim[right.v[k]] = made->input[0].dim[left.v[k]];
    }
    made->input_count = 2;
}

/* Without v the rows are summed along any dimensions, ascending. */
static void make_online(sx_rng *rng, sx_test_op *made)
{
    if (below(rng, 3) > 0) {
        make_dot(rng, made);
        made->attr.form = below(rng, 2);
        return;
    }
    for (uint32_t d = 0; d < made->input[0].rank; d++) {
        if (below(rng, 2) == 0) {
            made->attr.lhs_contract.v[made->attr.lhs_contract.count++] = d;
        }
    }
    made->attr.form = below(rng, 2) * 2;
}

static void make_attention(sx_rng *rng, sx_test_op *made)
{
    sx_dtype dtype = made->input[0].dtype;
    uint32_t batch = below(rng, 3);
    int64_t extent[4]; // s, t, d, e
    for (uint32_t k = 0; k < 4; k++) {
        extent[k] = 1 + below(rng, 4);
    }
    int64_t last[4][2] = {{extent[0], extent[2]},
                          {extent[1], extent[2]},
                          {extent[1], extent[3]},
                          {extent[0], extent[1]}};
    made->input_count = 3 + below(rng, 2);
    for (uint32_t k = 0; k < made->input_count; k++) {
        made->input[k] = (sx_type){.dtype = dtype, .rank = batch + 2};
        for (uint32_t d = 0; d < batch; d++) {
            made->input[k].dim[d] = sx_dim_of(2 + d);
        }
        made->input[k].dim[batch] = sx_dim_of(last[k][0]);
        made->input[k].dim[batch + 1] = sx_dim_of(last[k][1]);
    }
    made->attr.scale = 0.25;
}

static void make_norm(sx_rng *rng, sx_op op, sx_test_op *made)
{
    sx_type *x = &made->input[0];
    uint32_t axis = (uint32_t)made->attr.axis;
    made->input_count = op == SX_OP_LAYER_NORM ? 3 : 2;
    made->attr.eps = below(rng, 2) == 0 ? 1e-5 : 0.125;
    for (uint32_t k = 1; k < made->input_count; k++) {
        made->input[k] = (sx_type){.dtype = x->dtype, .rank = x->rank - axis};
        memcpy(made->input[k].dim, x->dim + axis, made->input[k].rank * sizeof(x->dim[0]));
    }
}

static void make_batch_norm(sx_rng *rng, sx_test_op *made)
{
    sx_type *x = &made->input[0];
    made->attr.eps = below(rng, 2) == 0 ? 1e-5 : 0.125;
    made->input_count = 5;
    for (uint32_t k = 1; k < 5; k++) {
        made->input[k] = (sx_type){.dtype = x->dtype, .rank = 1};
        made->input[k].dim[0] = x->dim[made->attr.axis];
    }
}

static void make_sliding(sx_rng *rng, uint32_t count, sx_attr *attr)
{
    attr->stride.count = attr->low.count = attr->high.count = attr->dilation.count = count;
    bool padded = below(rng, 2) == 0;
    bool cropped = below(rng, 3) == 0;
    for (uint32_t d = 0; d < count; d++) {
        attr->stride.v[d] = 1 + below(rng, 3);
        attr->low.v[d] = padded ? below(rng, 4) : 0;
        attr->high.v[d] = padded ? below(rng, 4) : 0;
        attr->low.v[d] -= cropped ? below(rng, 4) : 0;
        attr->high.v[d] -= cropped ? below(rng, 4) : 0;
        attr->dilation.v[d] = 1 + below(rng, 2);
    }
}

/* Three in four of one spatial dimension or two. */
static void make_convolution(sx_rng *rng, sx_test_op *made)
{
    uint32_t spatial = below(rng, 4) == 0 ? 3 : 1 + below(rng, 2);
    int64_t groups = 1 + below(rng, 3);
    int64_t channels = 1 + below(rng, 3);
    sx_type *x = &made->input[0];
    sx_type *w = &made->input[1];
    make_sliding(rng, spatial, &made->attr);
    made->attr.groups = groups;
    x->rank = w->rank = 2 + spatial;
    x->dim[0] = sx_dim_of(1 + below(rng, 3));
    x->dim[1] = sx_dim_of(groups * channels);
    w->dim[0] = sx_dim_of(groups * (1 + below(rng, 3)));
    w->dim[1] = sx_dim_of(channels);
    for (uint32_t d = 2; d < x->rank; d++) {
        x->dim[d] = sx_dim_of(1 + below(rng, 7));
        w->dim[d] = sx_dim_of(1 + below(rng, 3));
    }
}

static void make_window(sx_rng *rng, sx_test_op *made)
{
    make_sliding(rng, made->input[0].rank, &made->attr);
    made->attr.window.count = made->input[0].rank;
    for (uint32_t d = 0; d < made->input[0].rank; d++) {
        made->attr.window.v[d] = 1 + below(rng, 3);
    }
}

static void make_pad(sx_rng *rng, sx_test_op *made)
{
    make_sliding(rng, made->input[0].rank, &made->attr);
    made->input[1] = (sx_type){.dtype = made->input[0].dtype};
    made->attr.interior.count = made->input[0].rank;
    for (uint32_t d = 0; d < made->input[0].rank; d++) {
        made->attr.interior.v[d] = below(rng, 3) == 0 ? 1 + below(rng, 2) : 0;
    }
}

/* A part of each dimension, from the front or from the end. */
static void make_crop(sx_rng *rng, sx_test_op *made)
{
    sx_attr *attr = &made->attr;
    attr->type = made->input[0];
    attr->dims = some_dims(rng, attr->type.rank);
    attr->origin.count = attr->type.rank;
    for (uint32_t d = 0; d < attr->type.rank; d++) {
        int64_t extent = attr->type.dim[d].scale, part = 1 + below(rng, (uint32_t)extent);
        attr->type.dim[d] = sx_dim_of(part);
        attr->origin.v[d] = sx_dim_of(below(rng, (uint32_t)(extent - part) + 1));
    }
}

/* Updates are those that gather would give; indices of a byte reach their extremes. */
static void make_scatter(sx_rng *rng, sx_test_op *made)
{
    const sx_type *x = &made->input[0];
    sx_type *updates = &made->input[2];
    static const sx_dtype integers[] = {SX_I64, SX_I32, SX_I16, SX_I8, SX_U8};
    made->input[1] = sx_test_type(rng, integers[sx_rng_below(rng, SX_COUNT(integers))], 2, 5);
    *updates = (sx_type){.dtype = x->dtype};
    made->attr.reducer = (sx_reducer)sx_rng_below(rng, SX_REPLACE + 1);
    for (uint32_t d = 0; d < x->rank; d++) {
        bool axis = d == (uint32_t)made->attr.axis;
        for (uint32_t k = 0; k < (axis ? made->input[1].rank : 1); k++) {
            updates->dim[updates->rank++] = axis ? made->input[1].dim[k] : x->dim[d];
        }
    }
}

static void make_dynamic(sx_rng *rng, sx_op op, sx_test_op *made)
{
    const sx_type *x = &made->input[0];
    sx_attr *attr = &made->attr;
    uint32_t first = op == SX_OP_DYNAMIC_UPDATE_SLICE ? 2 : 1;
    sx_type box = *x;
    for (uint32_t d = 0; d < x->rank && first + attr->dims.count < SX_TEST_INPUTS_MAX; d++) {
        if (below(rng, 3) > 0) {
            int64_t size = 1 + below(rng, (uint32_t)x->dim[d].scale);
            box.dim[d] = sx_dim_of(size);
            attr->sizes.v[attr->sizes.count++] = size;
            attr->dims.v[attr->dims.count++] = d;
        }
    }
    made->input_count = first + attr->dims.count;
    made->input[1] = box;
    for (uint32_t k = first; k < made->input_count; k++) {
        made->input[k] = (sx_type){.dtype = below(rng, 2) == 0 ? SX_I32 : SX_I64};
    }
}

static void make_constant(sx_ctx *cx, sx_rng *rng, sx_test_op *made)
{
    sx_type *type = &made->attr.type;
    int64_t count = below(rng, 2) == 0 ? 1 : sx_tensor_elements(type);
    size_t size = (size_t)count * sx_dtype_bytes(type->dtype);
    uint8_t *raw = sx_alloc(cx, size);
    ck_assert_ptr_nonnull(raw);
    for (size_t k = 0; k < size; k++) {
        bool high = type->dtype == SX_I64 && k % 8 > 5; // at most 48 bits: exact in a double
        raw[k] = high ? 0 : (uint8_t)below(rng, type->dtype == SX_BOOL ? 2 : 60);
    }
    made->attr.data = (sx_span){raw, size};
}

static void fill_attributes(sx_ctx *cx, sx_rng *rng, sx_op op, sx_test_op *made)
{
    sx_type *x = &made->input[0];
    sx_attr *attr = &made->attr;
    uint32_t rank = x->rank;
    attr->axis = rank > 0 ? below(rng, rank) : 0;
    attr->direction = (sx_direction)below(rng, SX_DIRECTION_COUNT);
    attr->reducer = (sx_reducer)below(rng, SX_REDUCER_COUNT);
    if (op == SX_OP_CONVERT) {
        attr->type = (sx_type){.dtype = (sx_dtype)below(rng, SX_DTYPE_COUNT)};
    } else if (op == SX_OP_IOTA || op == SX_OP_CONSTANT) {
        attr->type = *x;
        made->input_count = 0;
    } else if (op == SX_OP_REDUCE || op == SX_OP_REVERSE) {
        attr->dims = some_dims(rng, rank);
    } else if (op == SX_OP_GATHER) {
        made->input[1] = sx_test_type(rng, SX_I32, 2, 3);
    } else if (op == SX_OP_SCATTER) {
        make_scatter(rng, made);
    } else if (op == SX_OP_DYNAMIC_SLICE || op == SX_OP_DYNAMIC_UPDATE_SLICE) {
        make_dynamic(rng, op, made);
    } else if (op == SX_OP_SORT) {
        attr->count = -1;
        if (rank > 0 && below(rng, 2) == 0) {
            attr->count = 1 + (int64_t)below(rng, (uint32_t)x->dim[attr->axis].scale);
        }
        attr->direction = below(rng, 2) == 0 ? SX_LT : SX_GT;
        attr->result = below(rng, 2);
    } else if (op == SX_OP_CONCATENATE) {
        made->input_count = 1 + below(rng, 4);
        for (uint32_t k = 1; k < made->input_count; k++) {
            made->input[k] = *x;
            made->input[k].dim[attr->axis] = sx_dim_of(1 + below(rng, 4));
        }
    } else if (op == SX_OP_LAYER_NORM || op == SX_OP_RMS_NORM) {
        make_norm(rng, op, made);
    } else if (op == SX_OP_BATCH_NORM) {
        make_batch_norm(rng, made);
    } else if (op == SX_OP_PAD) {
        make_pad(rng, made);
    } else if (op == SX_OP_CROP) {
        make_crop(rng, made);
    } else if (op == SX_OP_REDUCE_WINDOW) {
        make_window(rng, made);
    } else if (op == SX_OP_CONVOLUTION) {
        make_convolution(rng, made);
    } else if (op == SX_OP_DOT_GENERAL) {
        make_dot(rng, made);
    } else if (op == SX_OP_ATTENTION) {
        make_attention(rng, made);
    } else if (op == SX_OP_ONLINE_DOT) {
        make_online(rng, made);
    }
    if (op == SX_OP_CONSTANT) {
        make_constant(cx, rng, made);
    }
    if (sx_op_info_of(op)->op_class ==
        SX_OPCLASS_COLLECTIVE) { /* one rank: all that is evaluated alone */
        static const sx_rank_pair self = {0, 0};
        attr->along = SX_SPAN_LITERAL("tp");
        attr->ranks = 1;
        attr->split = attr->axis;
        attr->pairs = (sx_rank_pairs){&self, below(rng, 2)};
    }
}

/* Fields that the operation does not carry are zero. */
static void keep_attributes(sx_op op, sx_attr *attr)
{
    sx_attr kept = {.present = sx_op_info_of(op)->attrs};
#define SX_ATTR(name, kind, help)           \
    if ((kept.present & SX_A(name)) != 0) { \
        kept.name = attr->name;             \
    }
#include "core/ir/attrs.def"
#undef SX_ATTR
    *attr = kept;
}

void sx_test_op_make(sx_ctx *cx, sx_rng *rng, sx_op op, sx_test_op *made)
{
    for (uint32_t attempt = 0; attempt < 200; attempt++) {
        memset(made, 0, sizeof(*made));
        made->op = op;
        sx_type type = sx_test_type(rng, (sx_dtype)below(rng, SX_DTYPE_COUNT), 4, 5);
        made->input_count = sx_op_info_of(op)->input_min;
        for (uint32_t k = 0; k < SX_TEST_INPUTS_MAX; k++) {
            made->input[k] = type;
        }
        if (op == SX_OP_SELECT) {
            made->input[0].dtype = SX_BOOL;
        }
        if (sx_op_info_of(op)->op_class == SX_OPCLASS_VIEW) {
            sx_test_view_make(cx, rng, op, &type, &made->attr, &made->result);
            return;
        }
        if (sx_test_is_region(op)) {
            made->input_count = 2;
            if (!sx_test_region(cx, rng, op, &type, &made->attr, made->input)) {
                continue;
            }
        } else {
            fill_attributes(cx, rng, op, made);
            keep_attributes(op, &made->attr);
        }
        if (sx_infer_type(cx, NULL, 0, op, &made->attr, made->input, made->input_count,
                          &made->result) == SX_OK) {
            return;
        }
        sx_ctx_reset_error(cx);
    }
    ck_abort_msg("no instance of %s found", sx_op_info_of(op)->name);
}

/* ---- tensors ---- */
void sx_test_tensor(sx_ctx *cx, sx_rng *rng, sx_eval_mode mode, const sx_type *type,
                    sx_tensor *tensor)
{
    int64_t count = sx_tensor_elements(type);
    tensor->type = *type;
    tensor->data = SX_NEW_ARRAY(cx, uint64_t, (size_t)count);
    ck_assert_ptr_nonnull(tensor->data);
    double *number = tensor->data;
    int64_t *integer = tensor->data;
    bool is_float = sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT;
    for (int64_t k = 0; k < count; k++) {
        if (type->dtype == SX_BOOL) {
            integer[k] = below(rng, 2);
        } else if (mode == SX_EVAL_MODP) {
            integer[k] = below(rng, 8) == 0 ? below(rng, 3) : below(rng, 2147483647u);
        } else if (!is_float) {
            integer[k] = (int64_t)below(rng, 19) - (type->dtype == SX_U8 ? 0 : 9);
        } else if (mode == SX_EVAL_POW2) {
            number[k] = ldexp(below(rng, 2) == 0 ? 1 : -1, (int)below(rng, 7) - 3);
        } else {
            number[k] = sx_round(type->dtype, 2 * (double)sx_rng_f32(rng));
        }
    }
}

void sx_test_tensor_equal(const sx_tensor *a, const sx_tensor *b, const char *what)
{
    ck_assert_msg(sx_type_equal(&a->type, &b->type), "%s: the types differ", what);
    bool is_float = sx_dtype_class_of(a->type.dtype) == SX_CLASS_FLOAT;
    int64_t count = sx_tensor_elements(&a->type);
    const double *x = a->data;
    const double *y = b->data;
    for (int64_t k = 0; k < count; k++) {
        bool both_nan = is_float && isnan(x[k]) && isnan(y[k]);
        ck_assert_msg(both_nan || memcmp(&x[k], &y[k], sizeof(x[k])) == 0,
                      "%s: element %lld of %s: %.17g (%lld) and %.17g (%lld)", what, (long long)k,
                      sx_dtype_name(a->type.dtype), x[k], (long long)((const int64_t *)a->data)[k],
                      y[k], (long long)((const int64_t *)b->data)[k]);
    }
}

sx_tensor sx_test_eval(sx_ctx *cx, sx_op op, const sx_attr *attr, sx_eval_mode mode,
                       const sx_tensor *input, uint32_t input_count)
{
    sx_type type[SX_INPUTS_MAX];
    sx_type result_type;
    sx_tensor result;
    for (uint32_t k = 0; k < input_count; k++) {
        type[k] = input[k].type;
    }
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, op, attr, type, input_count, &result_type));
    ck_sx_ok(cx, sx_node_eval(cx, op, attr, mode, input, input_count, &result_type, &result));
    return result;
}
