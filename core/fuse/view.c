#include "core/fuse/fuse.h"
#include "core/ir/fused_body.h"

static bool transpose_access(const sx_attr *view, const sx_type *source, const sx_type *through,
                             const sx_dim stride[SX_RANK_MAX], sx_access *access)
{
    if (view->perm.count != through->rank || source->rank != through->rank) {
        return false;
    }
    for (uint32_t d = 0; d < through->rank; d++) {
        int64_t from = view->perm.v[d];
        if (from < 0 || from >= source->rank) {
            return false;
        }
        access->stride[d] = stride[from];
    }
    return true;
}

static bool broadcast_access(const sx_attr *view, const sx_type *source, const sx_type *through,
                             const sx_dim stride[SX_RANK_MAX], sx_access *access)
{
    if (view->dims.count != source->rank) {
        return false;
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        int64_t to = view->dims.v[d];
        if (to < 0 || to >= through->rank) {
            return false;
        }
        bool repeated = !sx_dim_equal(source->dim[d], through->dim[to]);
        access->stride[to] = repeated ? sx_dim_of(0) : stride[d];
    }
    return true;
}

static bool slice_access(const sx_attr *view, const sx_type *source,
                         const sx_dim stride[SX_RANK_MAX], sx_access *access)
{
    if (view->start.count != source->rank || view->stride.count != source->rank) {
        return false;
    }
    for (uint32_t d = 0; d < source->rank; d++) {
        sx_dim skipped;
        if (view->start.v[d] < 0 || view->stride.v[d] < 1 ||
            !sx_dim_multiply(stride[d], sx_dim_of(view->stride.v[d]), &access->stride[d]) ||
            !sx_dim_multiply(stride[d], sx_dim_of(view->start.v[d]), &skipped) ||
            !sx_dim_add(access->offset, skipped, &access->offset)) {
            return false;
        }
    }
    return true;
}

bool sx_view_access(sx_op op, const sx_attr *view, const sx_type *source, const sx_type *through,
                    sx_access *access)
{
    sx_dim stride[SX_RANK_MAX];
    if (!sx_type_strides(source, stride)) {
        return false;
    }
    access->offset = sx_dim_of(0);
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        access->stride[d] = sx_dim_of(0);
    }
    if (op == SX_OP_TRANSPOSE) {
        return transpose_access(view, source, through, stride, access);
    }
    if (op == SX_OP_BROADCAST) {
        return broadcast_access(view, source, through, stride, access);
    }
    return op == SX_OP_SLICE && slice_access(view, source, stride, access);
}

/* The access of `a` through the view, as an access to its source. */
static bool read_through(const sx_type *space, const sx_access *access, sx_op op,
                         const sx_attr *view, const sx_type *source, const sx_type *through,
                         sx_access *composed)
{
    if (op == SX_OP_RESHAPE) {
        *composed = *access; // the same flat index
        return true;
    }
    sx_access inner;
    if (!sx_view_access(op, view, source, through, &inner)) {
        return false;
    }
    sx_digits digits;
    uint32_t joined = sx_digits_joined(through, 1, &inner.stride);
    return sx_access_digits(space, access, through, joined, &digits) &&
           sx_digits_compose(&digits, space->rank, &inner, composed) &&
           sx_access_is_inside(space, composed, source);
}

sx_code sx_fused_absorb_view(sx_ctx *cx, const sx_attr *consumer, uint32_t a, sx_op op,
                             const sx_attr *view, const sx_type *source, const sx_type *through,
                             sx_attr *fused, bool *ok)
{
    const sx_body *body = consumer->body;
    SX_ASSERT(body != NULL && a < body->arg_count);
    *ok = false;
    sx_access composed;
    if (!read_through(&consumer->type, &body->access[a], op, view, source, through, &composed)) {
        return SX_OK;
    }
    sx_body *made = sx_body_make(cx);
    if (made == NULL) {
        return cx->error.code;
    }
    sx_body_copy(made, body);
    made->access[a] = composed;
    /* A broadcast can make the result constant along the reduced axes, and so change its shape. */
    *ok = sx_body_result_is_full(&consumer->type, made) ==
          sx_body_result_is_full(&consumer->type, body);
    if (*ok) {
        sx_body_wrap(&consumer->type, made, fused);
    }
    return SX_OK;
}
