/* slices.c - a contraction whose sum is cut in slices, as two nodes: sums of all slices, and what is made of them. */
#include "core/kernel/kernel.h"

/* The one dimension of the space over which the sum goes, or SX_NO_DIM: several, or none. */
static uint32_t sum_dim(const sx_attr *fused)
{
    uint32_t found = SX_NO_DIM;
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        sx_dim extent = fused->type.dim[d];
        bool one = sx_dim_is_constant(extent) && extent.scale == 1;
        if ((fused->body->axes >> d & 1) != 0 && !one) {
            if (found != SX_NO_DIM) {
                return SX_NO_DIM;
            }
            found = d;
        }
    }
    return found;
}

bool sx_slices_apart(const sx_analysis *a)
{
    const sx_body *body = a->body;
    if (a->kind != SX_KERNEL_DOT || a->full || a->lane_bytes != 4 || a->lhs == a->rhs ||
        sum_dim(a->fused) == SX_NO_DIM || a->fused->type.rank >= SX_RANK_MAX ||
        body->instr_count + 1 > SX_FUSED_INSTRS_MAX) {
        return false;
    }
    const sx_instr *dot = &body->instr[a->dot];
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        bool factor = in->kind == SX_BODY_ARG && (in->x == a->lhs || in->x == a->rhs);
        if (factor && i != dot->x && i != dot->y) {
            return false; /* read beside the sum, too */
        }
        for (uint32_t k = 0; i != a->dot && k < sx_body_operand_count(in); k++) {
            uint32_t operand = k == 0 ? in->x : k == 1 ? in->y : in->z;
            if (operand == dot->x || operand == dot->y) {
                return false;
            }
        }
    }
    return a->extent[SX_ROLE_BATCH] * a->extent[SX_ROLE_ROW] * a->extent[SX_ROLE_COLUMN] > 1;
}

/* One element for all points. */
static sx_access nothing(void)
{
    sx_access access = {.offset = sx_dim_of(0)};
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        access.stride[d] = sx_dim_of(0);
    }
    return access;
}

/* An access in the space that has the slices as its first dimension. */
static sx_access behind(const sx_access *from, uint32_t rank, int64_t stride)
{
    sx_access to = nothing();
    to.offset = from->offset;
    to.stride[0] = sx_dim_of(stride);
    for (uint32_t d = 0; d < rank; d++) {
        to.stride[d + 1] = from->stride[d];
    }
    return to;
}

/* The space with the slices in front, and `extent` in place of the dimension that is summed. */
static sx_type space_of(const sx_attr *fused, sx_dtype dtype, int64_t slices, int64_t extent)
{
    sx_type space = {.dtype = dtype, .rank = fused->type.rank + 1};
    space.dim[0] = sx_dim_of(slices);
    for (uint32_t d = 0; d < fused->type.rank; d++) {
        space.dim[d + 1] = d == sum_dim(fused) ? sx_dim_of(extent) : fused->type.dim[d];
    }
    return space;
}

/* [slices, ..]: each element the sum of one slice, in f32, not rounded to a narrower type. */
static void make_partial(const sx_analysis *a, int64_t slice, int64_t slices, sx_slices *s)
{
    const uint32_t argument[2] = {a->lhs, a->rhs};
    uint32_t rank = a->fused->type.rank, k = sum_dim(a->fused);
    sx_body *body = &s->partial_body;
    s->partial = *a->fused;
    s->partial.type = space_of(a->fused, SX_F32, slices, slice);
    s->partial.body = body;
    *body = (sx_body){.arg_count = 2, .instr_count = 3, .axes = a->body->axes << 1};
    for (uint32_t i = 0; i < 2; i++) {
        const sx_access *from = &a->body->access[argument[i]];
        s->partial_input[i] = a->input[argument[i]];
        body->access[i] = behind(from, rank, from->stride[k].scale * slice);
        body->instr[i] =
            (sx_instr){.kind = SX_BODY_ARG, .dtype = s->partial_input[i].dtype, .x = i};
    }
    body->instr[2] = (sx_instr){.kind = SX_BODY_DOT, .dtype = SX_F32, .x = 0, .y = 1};
}

/* The instructions behind the contraction, with the sum of the slices in its place. */
static void combine_program(const sx_analysis *a, sx_body *body)
{
    uint32_t to[SX_FUSED_INSTRS_MAX] = {0};
    const sx_instr *dot = &a->body->instr[a->dot];
    uint32_t left = a->body->instr[dot->x].x == a->lhs ? dot->x : dot->y;
    for (uint32_t i = 0; i < a->body->instr_count; i++) {
        sx_instr in = a->body->instr[i];
        bool operates = sx_body_operand_count(&in) > 0;
        if (i != left && (i == dot->x || i == dot->y)) {
            continue;
        }
        if (i == left) {
            in.dtype = SX_F32;
        } else if (i == a->dot) {
            in = (sx_instr){
                .kind = SX_BODY_REDUCE, .reducer = SX_SUM, .dtype = SX_F32, .x = to[left]};
        } else if (in.kind == SX_BODY_INDEX) {
            in.x++;
        } else if (operates) {
            in.x = to[in.x], in.y = to[in.y], in.z = to[in.z];
        }
        body->instr[body->instr_count++] = in;
        if (i == a->dot && dot->dtype != SX_F32) {
            uint32_t sum = body->instr_count - 1;
            body->instr[body->instr_count++] = (sx_instr){
                .kind = SX_BODY_APPLY, .op = SX_OP_CONVERT, .dtype = dot->dtype, .x = sum};
        }
        to[i] = body->instr_count - 1;
    }
}

static void make_combine(const sx_analysis *a, int64_t slices, sx_slices *s)
{
    const sx_type *space = &a->fused->type;
    sx_body *body = &s->combine_body;
    s->combine = *a->fused;
    s->combine.type = space_of(a->fused, space->dtype, slices, 1);
    s->combine.body = body;
    *body = (sx_body){.arg_count = a->body->arg_count, .axes = a->body->axes << 1 | 1};
    for (uint32_t i = 0; i < a->input_count; i++) {
        bool factor = i == a->lhs || i == a->rhs;
        s->combine_input[i] = a->input[i];
        body->access[i] = factor ? nothing() : behind(&a->body->access[i], space->rank, 0);
    }
    int64_t stride = 1;
    for (uint32_t d = space->rank; d-- > 0;) {
        if ((a->body->axes >> d & 1) == 0) {
            body->access[a->lhs].stride[d + 1] = sx_dim_of(stride);
            stride *= space->dim[d].scale;
        }
    }
    body->access[a->lhs].stride[0] = sx_dim_of(stride);
    s->combine_input[a->lhs] =
        (sx_type){.dtype = SX_F32, .rank = 1, .dim = {sx_dim_of(stride * slices)}};
    combine_program(a, body);
}

sx_code sx_slices_make(sx_ctx *cx, const sx_analysis *a, int64_t slice, sx_slices *s)
{
    SX_ASSERT(slice >= 1 && a->kind == SX_KERNEL_DOT);
    uint32_t rank = a->fused->type.rank;
    int64_t sum = a->extent[SX_ROLE_SUM];
    bool constant = sx_slices_apart(a);
    for (uint32_t d = 0; d < rank && constant; d++) {
        constant = sx_dim_is_constant(a->fused->type.dim[d]);
    }
    if (!constant || sum % slice != 0) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "slices of %lld of a sum of %lld are not made apart",
                       (long long)slice, (long long)sum);
    }
    make_partial(a, slice, sum / slice, s);
    make_combine(a, sum / slice, s);
    SX_TRY(sx_analysis_make(cx, &s->partial, s->partial_input, 2, &s->partial_analysis));
    SX_TRY(
        sx_analysis_make(cx, &s->combine, s->combine_input, a->input_count, &s->combine_analysis));
    SX_ASSERT(!s->combine_analysis.along); /* slices come first */
    return SX_OK;
}
