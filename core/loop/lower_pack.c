/* lower_pack.c - the kernel that packs the right argument of a contraction in panels of columns. */
#include "core/loop/lower.h"

#include <string.h>

sx_code sx_lower_pack_view(sx_ctx *cx, const sx_analysis *a, int64_t width, sx_view *view,
                           int64_t *packed_bytes)
{
    if (!a->rhs_packable) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "fused: argument %u is read beside the contraction, so it cannot be packed",
                       a->rhs);
    }
    int64_t n = a->column == SX_NO_DIM ? 1 : view->extent[a->column];
    int64_t *stride = view->stride[a->rhs];
    int64_t k = width;
    for (uint32_t d = view->rank; d-- > 0;) {
        if (view->reduced[d]) {
            stride[d] = k;
            k *= view->extent[d];
        }
    }
    if (a->column != SX_NO_DIM) {
        stride[a->column] = k / width; // exact for whole panels
    }
    int64_t size;
    bool ok = sx_mul_i64(sx_ceil_div_i64(n, width), k, &size);
    for (uint32_t d = view->rank; ok && d-- > 0;) {
        if (!view->reduced[d] && d != a->column && stride[d] != 0) {
            stride[d] = size;
            ok = sx_mul_i64(size, view->extent[d], &size);
        }
    }
    view->offset[a->rhs] = 0;
    if (!ok || size > SX_LOOP_BYTES_MAX / a->lane_bytes) {
        return SX_FAIL(cx, SX_LIMIT, "fused: packed panels of argument %u exceed %lld bytes",
                       a->rhs, (long long)SX_LOOP_BYTES_MAX);
    }
    *packed_bytes = a->lane_bytes * size;
    return SX_OK;
}

typedef struct {
    sx_view packed; /* strides of the panels */
    int64_t width;
} packing;

/* Column `column` of the panel at the position, of which the view is in force: panels hold lanes. */
static sx_addr panel_address(sx_lower *l, int64_t column)
{
    uint32_t rhs = l->analysis->rhs;
    sx_dtype dtype = l->arg_dtype[rhs];
    l->arg_dtype[rhs] = l->kernel->lane_bytes == 8 ? SX_F64 : SX_F32; /* of that size */
    sx_addr to = sx_lower_arg_address(l, rhs);
    l->arg_dtype[rhs] = dtype;
    to.buffer = 1;
    to.offset += l->kernel->lane_bytes * column;
    return to;
}

/* One row of a panel: `length` columns, zeros up to the width. */
static void emit_panel_row(sx_lower *l, const packing *p, int64_t length)
{
    uint32_t n = l->analysis->column;
    sx_view source = l->view;
    int64_t start = n == SX_NO_DIM ? 0 : l->at[n].constant;
    for (int64_t column = 0; column < p->width; column += l->lanes) {
        l->view = p->packed;
        sx_addr to = panel_address(l, column);
        l->view = source;
        uint32_t value;
        if (column >= length) {
            value = sx_loop_bits(&l->b, 0);
        } else {
            l->valid = (uint32_t)sx_min_i64(l->lanes, length - column);
            if (n != SX_NO_DIM) {
                l->at[n].constant = start + column;
            }
            value = sx_lower_load(l, l->analysis->rhs);
            if (n != SX_NO_DIM) {
                l->at[n].constant = start;
            }
        }
        (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, &to, value, SX_NO_REG, SX_NO_REG, l->lanes,
                         0);
    }
}

/* ---- panels of a matrix that is contiguous along k: square blocks turned in registers ---- */
void sx_lower_turn_masks(sx_lower *l, uint32_t mask[SX_TURN_STAGES])
{
    uint32_t none = SX_NO_REG;
    uint32_t lane = sx_loop_op(&l->b, SX_LOP_IOTA, none, NULL, none, none, none, 0, 0);
    for (uint32_t k = 0; 1u << k < l->lanes; k++) {
        uint32_t bit = sx_loop_op(&l->b, SX_LOP_SET, none, NULL, none, none, none, 1u << k, 0);
        uint32_t zero = sx_loop_op(&l->b, SX_LOP_SET, none, NULL, none, none, none, 0, 0);
        bit = sx_loop_op(&l->b, SX_LOP_AND, none, NULL, lane, bit, none, 0, 0);
        mask[k] = sx_loop_op(&l->b, SX_LOP_ICMP, none, NULL, bit, zero, none, SX_EQ, 0);
    }
}

void sx_lower_turn(sx_lower *l, uint32_t row[SX_LOOP_LANES_MAX],
                   const uint32_t mask[SX_TURN_STAGES])
{
    uint32_t none = SX_NO_REG;
    for (uint32_t k = 0; 1u << k < l->lanes; k++) {
        uint32_t s = 1u << k;
        for (uint32_t i = 0; i < l->lanes; i++) {
            if ((i & s) != 0) {
                continue;
            }
            uint32_t a = row[i];
            uint32_t b = row[i | s];
            uint32_t from_b = sx_loop_op(&l->b, SX_LOP_SWAP, none, NULL, b, none, none, s, 0);
            uint32_t from_a = sx_loop_op(&l->b, SX_LOP_SWAP, none, NULL, a, none, none, s, 0);
            row[i] = sx_loop_op(&l->b, SX_LOP_BLEND, none, NULL, mask[k], a, from_b, 0, 0);
            row[i | s] = sx_loop_op(&l->b, SX_LOP_BLEND, none, NULL, mask[k], from_a, b, 0, 0);
        }
    }
}

/* `count` steps of k from the position on, for all columns of the panel. */
static void emit_turned_block(sx_lower *l, const packing *p, int64_t length, uint32_t k_dim,
                              uint32_t count, const uint32_t mask[SX_TURN_STAGES])
{
    uint32_t n = l->analysis->column;
    int64_t start = l->at[n].constant;
    int64_t k_start = l->at[k_dim].constant;
    for (int64_t column = 0; column < p->width; column += l->lanes) {
        uint32_t row[SX_LOOP_LANES_MAX];
        for (uint32_t j = 0; j < l->lanes; j++) {
            l->at[n].constant = start + column + j;
            row[j] = column + j >= length ? sx_loop_bits(&l->b, 0)
                                          : sx_lower_load_along(l, l->analysis->rhs, count);
        }
        l->at[n].constant = start;
        if (column < length) {
            sx_lower_turn(l, row, mask);
        }
        sx_view source = l->view;
        l->view = p->packed;
        for (uint32_t i = 0; i < count; i++) {
            l->at[k_dim].constant = k_start + i;
            sx_addr to = panel_address(l, column);
            (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, &to, row[i], SX_NO_REG, SX_NO_REG,
                             l->lanes, 0);
        }
        l->at[k_dim].constant = k_start;
        l->view = source;
    }
}

static void emit_turned_panel(sx_lower *l, int64_t length)
{
    const packing *p = l->self;
    uint32_t k_dim = sx_view_inner_reduced(&l->view);
    uint32_t mask[SX_TURN_STAGES];
    sx_lower_turn_masks(l, mask);
    bool opened[SX_RANK_MAX];
    for (uint32_t d = 0; d < l->view.rank; d++) {
        opened[d] = l->view.reduced[d] && d != k_dim && sx_lower_open(l, d, l->view.extent[d], 1);
    }
    int64_t extent = l->view.extent[k_dim];
    int64_t whole = extent / l->lanes;
    if (whole > 0) {
        bool loop = sx_lower_open(l, k_dim, whole, l->lanes);
        emit_turned_block(l, p, length, k_dim, l->lanes, mask);
        sx_lower_close(l, k_dim, loop);
    }
    if (extent % l->lanes > 0) {
        l->at[k_dim].constant = whole * l->lanes;
        emit_turned_block(l, p, length, k_dim, (uint32_t)(extent % l->lanes), mask);
        l->at[k_dim].constant = 0;
    }
    for (uint32_t d = l->view.rank; d-- > 0;) {
        sx_lower_close(l, d, opened[d]);
    }
}

/* ---- panels row by row ---- */
static void emit_panel(sx_lower *l, int64_t length)
{
    const packing *p = l->self;
    uint32_t k_dim = sx_view_inner_reduced(&l->view);
    uint32_t n = l->analysis->column;
    const int64_t *stride = l->view.stride[l->analysis->rhs];
    if (n != SX_NO_DIM && k_dim != SX_NO_DIM && stride[k_dim] == 1 && stride[n] > 1) {
        emit_turned_panel(l, length);
        return;
    }
    bool opened[SX_RANK_MAX];
    for (uint32_t d = 0; d < l->view.rank; d++) {
        opened[d] = l->view.reduced[d] && sx_lower_open(l, d, l->view.extent[d], 1);
    }
    emit_panel_row(l, p, length);
    for (uint32_t d = l->view.rank; d-- > 0;) {
        sx_lower_close(l, d, opened[d]);
    }
}

static sx_code emit_panels(sx_lower *l, const packing *p)
{
    int64_t n = l->analysis->column == SX_NO_DIM ? 1 : l->view.extent[l->analysis->column];
    sx_part_plan plan = {.own = SX_NO_DIM};
    plan.axis[1] = (sx_grid_axis){SX_NO_DIM, 0, 1, 0};
    for (uint32_t d = 0; d < l->view.rank; d++) {
        bool outer = !l->view.reduced[d] && d != l->analysis->column &&
                     l->view.stride[l->analysis->rhs][d] != 0;
        if (outer && plan.own == SX_NO_DIM) {
            plan.own = d;
        } else if (outer) {
            plan.loop[plan.loop_count] = d;
            plan.trip[plan.loop_count++] = l->view.extent[d];
        }
    }
    if (n / p->width > 0) {
        plan.axis[0] = (sx_grid_axis){l->analysis->column, 0, n / p->width, p->width};
        SX_TRY(sx_lower_part(l, &plan, p->width, emit_panel));
    }
    if (n % p->width > 0) {
        plan.axis[0] = (sx_grid_axis){l->analysis->column, n / p->width * p->width, 1, 0};
        SX_TRY(sx_lower_part(l, &plan, n % p->width, emit_panel));
    }
    return SX_OK;
}

sx_code sx_lower_pack(sx_ctx *cx, const char *name, const sx_analysis *a,
                      const sx_schedule *schedule, sx_kernel **kernel, int64_t *packed_bytes)
{
    packing p = {.width = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0)};
    uint32_t lanes = sx_schedule_lanes(schedule);
    sx_lower *l = SX_NEW(cx, sx_lower);
    if (l == NULL) {
        return cx->error.code;
    }
    if (a->kind != SX_KERNEL_DOT || lanes == 0 || p.width < 1 || p.width % lanes != 0 ||
        p.width / lanes > 31) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: panels of %lld columns of %s", name,
                       (long long)p.width,
                       a->kind == SX_KERNEL_DOT ? sx_dtype_name(a->input[a->rhs].dtype) : "no dot");
    }
    *l = (sx_lower){.cx = cx,
                    .lane_step = 1,
                    .analysis = a,
                    .schedule = schedule,
                    .body = a->body,
                    .view = a->view,
                    .lanes = lanes,
                    .vector_dim = a->column,
                    .self = &p};
    SX_TRY(sx_kernel_make(cx, name, lanes, a->lane_bytes, &l->kernel));
    p.packed = l->view;
    SX_TRY(sx_lower_pack_view(cx, a, p.width, &p.packed, packed_bytes));
    for (uint32_t k = 0; k < a->input_count; k++) {
        l->arg_dtype[k] = a->input[k].dtype;
    }
    int64_t source = sx_dtype_bytes(a->input[a->rhs].dtype) * sx_tensor_elements(&a->input[a->rhs]);
    (void)sx_kernel_add_buffer(l->kernel, SX_BUFFER_IN, source);
    (void)sx_kernel_add_buffer(l->kernel, SX_BUFFER_OUT, *packed_bytes);
    l->kernel->bytes = (double)source + (double)*packed_bytes;
    l->kernel->numerics = sx_hash64(SX_SPAN_LITERAL("pack"), 0); // moves values, rounds nothing
    SX_TRY(emit_panels(l, &p));
    SX_TRY(sx_kernel_check(cx, l->kernel));
    *kernel = l->kernel;
    return SX_OK;
}
