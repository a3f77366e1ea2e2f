/* lower.c - a static fused node as a kernel: buffers, dispatch by kind, figures for the cost models. */
#include "core/loop/lower.h"

#include <string.h>

static sx_code add_buffers(sx_lower *l, const sx_type *input, uint32_t input_count,
                           const sx_type *result, const sx_attr *fused)
{
    sx_dot_shape shape = {.rhs = SX_NO_REG};
    int64_t packed = 0;
    if (l->plan->packed_b && sx_body_kernel_kind(fused->body) == SX_KERNEL_DOT) {
        sx_kernel *pack;
        SX_TRY(sx_dot_shape_of(l->cx, fused, input, input_count, &shape));
        SX_TRY(sx_lower_pack(l->cx, "pack", fused, input, input_count, l->plan, &pack, &packed));
    }
    for (uint32_t a = 0; a < input_count; a++) {
        int64_t size = sx_tensor_elements(&input[a]) * sx_dtype_bytes(input[a].dtype);
        l->arg_dtype[a] = input[a].dtype;
        l->arg_buffer[a] =
            sx_kernel_add_buffer(l->kernel, SX_BUFFER_IN, a == shape.rhs ? packed : size);
        l->kernel->bytes += (double)size;
    }
    int64_t size = sx_tensor_elements(result) * sx_dtype_bytes(result->dtype);
    l->out_dtype = result->dtype;
    l->out_buffer = sx_kernel_add_buffer(l->kernel, SX_BUFFER_OUT, size);
    l->kernel->bytes += (double)size;
    return SX_OK;
}

/* One per elementwise instruction and point of the space it varies over, two per step of a contraction or weighted sum. */
static double flops_of(const sx_lower *l)
{
    double flops = 0;
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        bool pairs = in->kind == SX_BODY_DOT || in->kind == SX_BODY_ONLINE;
        bool counts = in->kind == SX_BODY_APPLY || in->kind == SX_BODY_REDUCE;
        double points = pairs ? 2 : counts ? 1 : 0;
        uint32_t varies = sx_lower_varies(l, in->kind == SX_BODY_REDUCE || pairs ? in->x : i);
        varies |= pairs ? sx_lower_varies(l, in->y) : 0;
        for (uint32_t d = 0; d < l->view.rank; d++) {
            bool whole = in->kind == SX_BODY_DOT && l->body->inner == 0;
            bool along = whole || (varies >> d & 1) != 0;
            points *= along ? (double)l->view.extent[d] : 1;
        }
        flops += points;
    }
    return flops;
}

sx_code sx_lower_fused(sx_ctx *cx, const char *name, const sx_attr *fused, const sx_type *input,
                       uint32_t input_count, const sx_lower_plan *plan, sx_kernel **kernel)
{
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    sx_lower *l = SX_NEW(cx, sx_lower);
    if (l == NULL) {
        return cx->error.code;
    }
    *l = (sx_lower){.cx = cx, .plan = plan, .body = fused->body, .lanes = plan->lanes};
    SX_TRY(sx_kernel_make(cx, name, plan->lanes, &l->kernel));
    SX_TRY(sx_view_make(cx, fused, input, input_count, &l->view));
    SX_TRY(add_buffers(l, input, input_count, &result, fused));
    l->kernel->flops = flops_of(l);
    switch (sx_body_kernel_kind(fused->body)) {
    case SX_KERNEL_MAP: SX_TRY(sx_lower_map(l)); break;
    case SX_KERNEL_ROW: SX_TRY(sx_lower_row(l)); break;
    case SX_KERNEL_DOT: SX_TRY(sx_lower_dot(l)); break;
    case SX_KERNEL_ONLINE: SX_TRY(sx_lower_online(l)); break;
    }
    SX_TRY(sx_kernel_check(cx, l->kernel));
    *kernel = l->kernel;
    return SX_OK;
}
