/* lower.c - an analysed kernel under a schedule as a loop program: buffers, dispatch by kind. */
#include "core/loop/lower.h"

_Static_assert(SX_LOOP_BUFFERS_MAX > SX_INPUTS_MAX, "of a concatenation");
_Static_assert(SX_LOOP_BUFFERS_MAX > SX_FUSED_ARGS_MAX + SX_FUSED_RESULTS_MAX, "and a workspace");
_Static_assert(SX_PARTS_MAX >= 2 * SX_INPUTS_MAX, "a concatenation has two for each operand");

static sx_code add_buffers(sx_lower *l, const sx_analysis *a)
{
    uint32_t staged = SX_NO_INSTR;
    int64_t packed = 0;
    if (a->kind == SX_KERNEL_DOT && sx_schedule_stage(l->schedule, a->rhs) != NULL) {
        sx_kernel *pack;
        staged = a->rhs;
        SX_TRY(sx_lower_pack(l->cx, "pack", a, l->schedule, &pack, &packed));
    }
    for (uint32_t k = 0; k < a->input_count; k++) {
        const sx_type *type = &a->input[k];
        int64_t size = sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        sx_dtype lane = a->lane_bytes == 8 ? SX_F64 : SX_F32; /* panels hold them */
        l->arg_dtype[k] = k == staged ? lane : type->dtype;
        l->arg_buffer[k] =
            sx_kernel_add_buffer(l->kernel, SX_BUFFER_IN, k == staged ? packed : size);
    }
    SX_ASSERT(a->result_count > 0 && a->result_count <= SX_FUSED_RESULTS_MAX);
    SX_ASSERT(a->result_count == 1 || a->kind == SX_KERNEL_MAP || a->kind == SX_KERNEL_ROW);
    l->out_dtype = a->root_dtype[0];
    for (uint32_t k = 0; k < a->result_count; k++) {
        int64_t size = sx_analysis_elements(a, k) * sx_dtype_bytes(a->root_dtype[k]);
        uint32_t buffer = sx_kernel_add_buffer(l->kernel, SX_BUFFER_OUT, size);
        l->out_buffer = k == 0 ? buffer : l->out_buffer;
    }
    return SX_OK;
}

/* A program that has a dimension of the grid for one of its own cannot depend on how long that is: it is not told. */
static sx_code hide_own(sx_lower *l)
{
    uint32_t own = sx_analysis_own(l->analysis);
    if (own == SX_NO_DIM) {
        return SX_OK;
    }
    sx_analysis *hidden = SX_NEW(l->cx, sx_analysis);
    if (hidden == NULL) {
        return l->cx->error.code;
    }
    *hidden = *l->analysis;
    l->own = own;
    l->own_extent = hidden->view.extent[own];
    hidden->view.extent[own] = hidden->extent[SX_ROLE_BATCH] = SX_LOWER_HIDDEN;
    l->view = hidden->view;
    l->analysis = hidden;
    return SX_OK;
}

sx_code sx_lower_fused(sx_ctx *cx, const sx_vector_unit *unit, const char *name,
                       const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    SX_ASSERT(unit->numerics != NULL && unit->registers > 0);
    sx_lower *l = SX_NEW(cx, sx_lower);
    if (l == NULL) {
        return cx->error.code;
    }
    if (a->refusal != NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: %s", name, a->refusal);
    }
    SX_TRY(sx_schedule_check(cx, schedule, a));
    uint32_t lanes = sx_vector_unit_lanes(unit, a->lane_bytes);
    if (sx_schedule_lanes(schedule) != lanes) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: schedule of %u lanes for vectors of %u", name,
                       sx_schedule_lanes(schedule), lanes);
    }
    *l = (sx_lower){.cx = cx,
                    .analysis = a,
                    .schedule = schedule,
                    .unit = unit,
                    .body = a->fused->body,
                    .view = a->view,
                    .lane_step = 1,
                    .lanes = sx_schedule_lanes(schedule)};
    SX_TRY(sx_kernel_make(cx, name, l->lanes, a->lane_bytes, &l->kernel));
    SX_TRY(add_buffers(l, a));
    SX_TRY(hide_own(l));
    l->kernel->flops = a->flops;
    l->kernel->bytes = a->bytes;
    l->vector_dim = a->lane;
    switch (a->kind) {
    case SX_KERNEL_MAP: SX_TRY(sx_lower_map(l)); break;
    case SX_KERNEL_ROW: SX_TRY(sx_lower_row(l)); break;
    case SX_KERNEL_DOT: SX_TRY(sx_lower_dot(l)); break;
    case SX_KERNEL_ONLINE: SX_TRY(sx_lower_online(l)); break;
    case SX_KERNEL_NESTED: SX_TRY(sx_lower_nested(l)); break;
    }
    SX_TRY(sx_kernel_check(cx, l->kernel));
    *kernel = l->kernel;
    return SX_OK;
}

static sx_code lower_move(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel)
{
    switch ((int)w->op) {
    case SX_OP_SCATTER: return sx_lower_scatter(cx, w, kernel);
    case SX_OP_SORT: return sx_lower_sort(cx, w, kernel);
    case SX_OP_DYNAMIC_SLICE: return sx_lower_dynamic_slice(cx, w, kernel);
    case SX_OP_DYNAMIC_UPDATE_SLICE: return sx_lower_dynamic_update(cx, w, kernel);
    case SX_OP_GATHER:
        return sx_lower_gather(cx, w->name, w->attr, w->input, w->input_count, w->result,
                               w->schedule, kernel);
    case SX_OP_PAD:
        return sx_lower_pad(cx, w->name, w->attr, w->input, w->result, w->schedule, kernel);
    case SX_OP_REVERSE:
        return sx_lower_reverse(cx, w->name, w->attr, w->input, w->result, w->schedule, kernel);
    }
    SX_ASSERT(w->op == SX_OP_CONCATENATE);
    return sx_lower_concatenate(cx, w->name, w->attr, w->input, w->input_count, w->result,
                                w->schedule, kernel);
}

sx_code sx_loop_lower(sx_ctx *cx, const sx_vector_unit *unit, const sx_lowering *w,
                      sx_kernel **kernel)
{
    int64_t bytes; /* of the panels: the size of their buffer */
    switch (w->kind) {
    case SX_LOWER_FUSED: return sx_lower_fused(cx, unit, w->name, w->analysis, w->schedule, kernel);
    case SX_LOWER_PACK: return sx_lower_pack(cx, w->name, w->analysis, w->schedule, kernel, &bytes);
    case SX_LOWER_MOVE: return lower_move(cx, w, kernel);
    }
    SX_UNREACHABLE();
}
