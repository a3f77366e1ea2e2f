/* view.c - the iteration space of a fused node as plain strides. */
#include <string.h>

#include "core/kernel/kernel.h"

/* The value of an extent or a stride; false where it has a symbol without a value, or overflows. */
static bool value_of(sx_dim dim, const int64_t *symbol_value, int64_t *value)
{
    if (sx_dim_is_constant(dim)) {
        *value = dim.scale;
        return true;
    }
    sx_dim factor[2];
    if (symbol_value != NULL && sx_dim_factors(dim, factor)) {
        return sx_mul_i64(dim.scale, symbol_value[factor[0].symbol], value) &&
               sx_mul_i64(*value, symbol_value[factor[1].symbol], value);
    }
    return symbol_value != NULL && sx_mul_i64(dim.scale, symbol_value[dim.symbol], value);
}

static bool elements_of(const sx_type *type, const int64_t *symbol_value, int64_t *elements)
{
    bool ok = true;
    *elements = 1;
    for (uint32_t d = 0; ok && d < type->rank; d++) {
        int64_t extent;
        ok = value_of(type->dim[d], symbol_value, &extent) &&
             sx_mul_i64(*elements, extent, elements);
    }
    return ok;
}

static sx_code check_argument(sx_ctx *cx, const sx_view *view, uint32_t a, const sx_type *input,
                              const int64_t *symbol_value)
{
    int64_t elements;
    if (!elements_of(input, symbol_value, &elements)) {
        return SX_FAIL(cx, SX_INPUT, "fused: argument %u has no static shape", a);
    }
    int64_t last = view->offset[a];
    bool ok = last >= 0;
    for (uint32_t d = 0; d < view->rank; d++) {
        int64_t reach;
        ok = ok && view->stride[a][d] >= 0 &&
             sx_mul_i64(view->stride[a][d], view->extent[d] - 1, &reach) &&
             sx_add_i64(last, reach, &last);
    }
    if (!ok || last >= elements) {
        return SX_FAIL(cx, SX_INPUT, "fused: argument %u: access reaches element %lld of %lld", a,
                       (long long)last, (long long)elements);
    }
    return SX_OK;
}

/* Row-major over the dimensions it has. */
void sx_view_result_strides(const sx_view *view, bool full, int64_t stride[SX_RANK_MAX])
{
    int64_t next = 1;
    for (uint32_t d = view->rank; d-- > 0;) {
        bool has = full || !view->reduced[d];
        stride[d] = has ? next : 0;
        next *= has ? view->extent[d] : 1;
    }
}

static void drop_unit_dims(sx_view *view, uint32_t arg_count)
{
    uint32_t kept = 0;
    for (uint32_t d = 0; d < view->rank; d++) {
        if (view->extent[d] == 1) {
            view->view_dim[d] = SX_NO_DIM;
            continue;
        }
        view->view_dim[d] = kept;
        view->extent[kept] = view->extent[d];
        view->out_stride[kept] = view->out_stride[d];
        view->reduced[kept] = view->reduced[d];
        view->inner[kept] = view->inner[d];
        view->klass[kept] = view->inner[d] ? 2 : view->reduced[d];
        for (uint32_t a = 0; a < arg_count; a++) {
            view->stride[a][kept] = view->stride[a][d];
        }
        kept++;
    }
    view->rank = kept;
}

sx_code sx_view_make(sx_ctx *cx, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                     const int64_t *symbol_value, sx_view *view)
{
    const sx_type *space = &fused->type;
    const sx_body *body = fused->body;
    memset(view, 0, sizeof(*view));
    if (body->arg_count != input_count || input_count > SX_FUSED_ARGS_MAX ||
        body->instr_count == 0 || body->instr_count > SX_FUSED_INSTRS_MAX) {
        return SX_FAIL(cx, SX_INPUT, "fused: %u arguments for %u inputs, %u instructions",
                       body->arg_count, input_count, body->instr_count);
    }
    int64_t total = 1;
    view->rank = space->rank;
    for (uint32_t d = 0; d < space->rank; d++) {
        bool known = value_of(space->dim[d], symbol_value, &view->extent[d]);
        if (!known || view->extent[d] < 1) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "fused: dimension %u of the space is %s", d,
                           known ? "empty" : "symbolic");
        }
        view->reduced[d] = (body->axes >> d & 1) != 0;
        view->inner[d] = (body->inner >> d & 1) != 0;
        view->last_reduced = view->reduced[d] ? view->last_reduced || view->extent[d] > 1 : false;
        if (!sx_mul_i64(total, view->extent[d], &total) || total > SX_SPACE_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "fused: space of more than %lld points",
                           (long long)SX_SPACE_MAX);
        }
    }
    sx_view_result_strides(view, sx_body_result_is_full(space, body), view->out_stride);
    for (uint32_t a = 0; a < input_count; a++) {
        for (uint32_t d = 0; d < space->rank; d++) {
            bool moves = view->extent[d] >
                         1; /* else its stride, which may be beyond all bounds, says nothing */
            if (moves && !value_of(body->access[a].stride[d], symbol_value, &view->stride[a][d])) {
                return SX_FAIL(cx, SX_INPUT, "fused: argument %u has a symbolic stride", a);
            }
        }
        if (!value_of(body->access[a].offset, symbol_value, &view->offset[a])) {
            return SX_FAIL(cx, SX_INPUT, "fused: argument %u has a symbolic offset", a);
        }
        SX_TRY(check_argument(cx, view, a, &input[a], symbol_value));
    }
    drop_unit_dims(view, input_count);
    return SX_OK;
}

static bool index_used(const sx_body *body, const sx_view *view, uint32_t dim)
{
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind == SX_BODY_INDEX && view->view_dim[in->x] == dim) {
            return true;
        }
    }
    return false;
}

static bool mergeable(const sx_body *body, const sx_view *view, uint32_t d)
{
    int64_t inner = view->extent[d + 1];
    bool ok = view->klass[d] == view->klass[d + 1] && view->reduced[d] == view->reduced[d + 1] &&
              view->out_stride[d] == view->out_stride[d + 1] * inner &&
              !index_used(body, view, d) && !index_used(body, view, d + 1);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        ok = ok && view->stride[a][d] == view->stride[a][d + 1] * inner;
    }
    return ok;
}

void sx_view_merge(const sx_body *body, sx_view *view)
{
    for (uint32_t d = 0; d + 1 < view->rank;) {
        if (!mergeable(body, view, d)) {
            d++;
            continue;
        }
        view->extent[d] *= view->extent[d + 1];
        view->out_stride[d] = view->out_stride[d + 1];
        for (uint32_t a = 0; a < body->arg_count; a++) {
            view->stride[a][d] = view->stride[a][d + 1];
        }
        for (uint32_t e = d + 1; e + 1 < view->rank; e++) {
            view->extent[e] = view->extent[e + 1];
            view->out_stride[e] = view->out_stride[e + 1];
            view->klass[e] = view->klass[e + 1];
            view->reduced[e] = view->reduced[e + 1];
            view->inner[e] = view->inner[e + 1];
            for (uint32_t a = 0; a < body->arg_count; a++) {
                view->stride[a][e] = view->stride[a][e + 1];
            }
        }
        view->rank--;
        for (uint32_t s = 0; s < SX_RANK_MAX; s++) {
            if (view->view_dim[s] != SX_NO_DIM && view->view_dim[s] > d) {
                view->view_dim[s]--;
            }
        }
    }
}

uint32_t sx_view_inner_reduced(const sx_view *view)
{
    uint32_t inner = SX_NO_DIM;
    for (uint32_t d = 0; d < view->rank; d++) {
        inner = view->reduced[d] ? d : inner;
    }
    return inner;
}
