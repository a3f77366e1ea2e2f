/* lower_pack.c - the dimensions of a contraction; the kernel that packs the right argument in panels of columns. */
#include "core/loop/lower_dot.h"

#include <string.h>

enum { CLASS_SHARED = 0, CLASS_LEFT = 1, CLASS_RIGHT = 2, CLASS_BATCH = 3, CLASS_REDUCED = 4 };

static uint32_t class_of(const sx_view *view, uint32_t lhs, uint32_t rhs, uint32_t d)
{
    if (view->reduced[d]) {
        return CLASS_REDUCED;
    }
    return (view->stride[lhs][d] != 0 ? CLASS_LEFT : 0) |
           (view->stride[rhs][d] != 0 ? CLASS_RIGHT : 0);
}

static void classify(sx_view *view, const sx_dot_view *dot)
{
    for (uint32_t d = 0; d < view->rank; d++) {
        view->klass[d] = class_of(view, dot->lhs, dot->rhs, d);
    }
}

sx_code sx_dot_view_make(sx_ctx *cx, const sx_body *body, sx_view *view, sx_dot_view *dot)
{
    memset(dot, 0, sizeof(*dot));
    dot->instr = body->instr_count;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        if (body->instr[i].kind == SX_BODY_DOT) {
            dot->instr = i;
        }
    }
    if (dot->instr == body->instr_count) {
        return SX_FAIL(cx, SX_INPUT, "fused: no dot among %u instructions", body->instr_count);
    }
    dot->lhs = body->instr[body->instr[dot->instr].x].x;
    dot->rhs = body->instr[body->instr[dot->instr].y].x;
    classify(view, dot);
    sx_view_merge(body, view);
    dot->n_dim = SX_NO_DIM;
    dot->m_dim = SX_NO_DIM;
    for (uint32_t d = 0; d < view->rank; d++) {
        dot->n_dim = view->reduced[d] ? dot->n_dim : d;
    }
    if (dot->n_dim != SX_NO_DIM && view->klass[dot->n_dim] == CLASS_LEFT) {
        uint32_t left = dot->lhs;
        dot->lhs = dot->rhs;
        dot->rhs = left;
        dot->swapped = true;
        classify(view, dot);
    }
    for (uint32_t d = 0; d < view->rank; d++) {
        if (view->klass[d] == CLASS_LEFT && d != dot->n_dim &&
            (dot->m_dim == SX_NO_DIM || view->extent[d] >= view->extent[dot->m_dim])) {
            dot->m_dim = d;
        }
    }
    dot->lhs_by_lane = dot->n_dim != SX_NO_DIM && view->stride[dot->lhs][dot->n_dim] != 0;
    return SX_OK;
}

/* The right argument must be read by the DOT alone: panels have another order. */
static bool packable(const sx_body *body, const sx_dot_view *dot)
{
    uint32_t readers = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        readers += body->instr[i].kind == SX_BODY_ARG && body->instr[i].x == dot->rhs;
    }
    return readers == 1 && dot->lhs != dot->rhs;
}

sx_code sx_dot_shape_of(sx_ctx *cx, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, sx_dot_shape *shape)
{
    sx_view view;
    sx_dot_view dot;
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    SX_TRY(sx_view_make(cx, fused, input, input_count, &view));
    SX_TRY(sx_dot_view_make(cx, fused->body, &view, &dot));
    *shape = (sx_dot_shape){.batch = 1, .m = 1, .n = 1, .k = 1, .swapped = dot.swapped};
    shape->lhs = dot.lhs;
    shape->rhs = dot.rhs;
    for (uint32_t d = 0; d < view.rank; d++) {
        int64_t *product = view.klass[d] == CLASS_REDUCED ? &shape->k
                           : view.klass[d] == CLASS_LEFT  ? &shape->m
                           : view.klass[d] == CLASS_RIGHT ? &shape->n
                                                          : &shape->batch;
        *product *= view.extent[d];
        shape->rhs_batched = shape->rhs_batched || view.klass[d] == CLASS_BATCH;
    }
    shape->b_packable = packable(fused->body, &dot);
    shape->b_direct = dot.n_dim == SX_NO_DIM || view.stride[dot.rhs][dot.n_dim] == 1;
    return SX_OK;
}

static sx_code check_packable(sx_ctx *cx, const sx_body *body, const sx_dot_view *dot)
{
    if (!packable(body, dot)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "fused: argument %u is read beside the contraction, so it cannot be packed",
                       dot->rhs);
    }
    return SX_OK;
}

sx_code sx_dot_view_pack(sx_ctx *cx, const sx_body *body, sx_view *view, const sx_lower_plan *plan,
                         sx_dot_view *dot)
{
    SX_TRY(check_packable(cx, body, dot));
    int64_t width = (int64_t)plan->block_nv * plan->lanes;
    int64_t n = dot->n_dim == SX_NO_DIM ? 1 : view->extent[dot->n_dim];
    int64_t *stride = view->stride[dot->rhs];
    int64_t k = width;
    for (uint32_t d = view->rank; d-- > 0;) {
        if (view->reduced[d]) {
            stride[d] = k;
            k *= view->extent[d];
        }
    }
    if (dot->n_dim != SX_NO_DIM) {
        stride[dot->n_dim] = k / width; // exact for whole panels
    }
    int64_t size;
    bool ok = sx_mul_i64(sx_ceil_div_i64(n, width), k, &size);
    for (uint32_t d = view->rank; ok && d-- > 0;) {
        if (!view->reduced[d] && d != dot->n_dim && stride[d] != 0) {
            stride[d] = size;
            ok = sx_mul_i64(size, view->extent[d], &size);
        }
    }
    view->offset[dot->rhs] = 0;
    if (!ok || size > SX_LOOP_BYTES_MAX / 4) {
        return SX_FAIL(cx, SX_LIMIT, "fused: packed panels of argument %u exceed %lld bytes",
                       dot->rhs, (long long)SX_LOOP_BYTES_MAX);
    }
    dot->packed_bytes = 4 * size;
    return SX_OK;
}

typedef struct {
    sx_dot_view dot;
    sx_view packed; /* strides of the panels */
    int64_t width;
} packing;

/* One row of a panel: `length` columns, zeros up to the width. */
static void emit_panel_row(sx_lower *l, const packing *p, int64_t length)
{
    uint32_t n = p->dot.n_dim;
    sx_view source = l->view;
    int64_t start = n == SX_NO_DIM ? 0 : l->at[n].constant;
    for (int64_t column = 0; column < p->width; column += l->lanes) {
        l->view = p->packed;
        sx_addr to = sx_lower_arg_address(l, p->dot.rhs);
        to.buffer = 1;
        to.offset += 4 * column;
        l->view = source;
        uint32_t value;
        if (column >= length) {
            value = sx_loop_set(&l->b, 0.0f);
        } else {
            l->valid = (uint32_t)sx_min_i64(l->lanes, length - column);
            if (n != SX_NO_DIM) {
                l->at[n].constant = start + column;
            }
            value = sx_lower_load(l, p->dot.rhs);
            if (n != SX_NO_DIM) {
                l->at[n].constant = start;
            }
        }
        (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, &to, value, SX_NO_REG, SX_NO_REG, l->lanes,
                         0);
    }
}

/* ---- panels of a matrix that is contiguous along k: square blocks turned in registers ---- */
static uint32_t inner_reduced(const sx_view *view)
{
    uint32_t inner = SX_NO_DIM;
    for (uint32_t d = 0; d < view->rank; d++) {
        inner = view->reduced[d] ? d : inner;
    }
    return inner;
}

void sx_lower_turn_masks(sx_lower *l, uint32_t mask[4])
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

void sx_lower_turn(sx_lower *l, uint32_t row[16], const uint32_t mask[4])
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
                              uint32_t count, const uint32_t mask[4])
{
    uint32_t n = p->dot.n_dim;
    int64_t start = l->at[n].constant;
    int64_t k_start = l->at[k_dim].constant;
    for (int64_t column = 0; column < p->width; column += l->lanes) {
        uint32_t row[16];
        for (uint32_t j = 0; j < l->lanes; j++) {
            l->at[n].constant = start + column + j;
            sx_addr from = sx_lower_arg_address(l, p->dot.rhs);
            row[j] = column + j >= length ? sx_loop_set(&l->b, 0.0f)
                                          : sx_loop_op(&l->b, SX_LOP_LOAD, SX_NO_REG, &from,
                                                       SX_NO_REG, SX_NO_REG, SX_NO_REG, count, 0);
        }
        l->at[n].constant = start;
        if (column < length) {
            sx_lower_turn(l, row, mask);
        }
        sx_view source = l->view;
        l->view = p->packed;
        for (uint32_t i = 0; i < count; i++) {
            l->at[k_dim].constant = k_start + i;
            sx_addr to = sx_lower_arg_address(l, p->dot.rhs);
            to.buffer = 1;
            to.offset += 4 * column;
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
    uint32_t k_dim = inner_reduced(&l->view);
    uint32_t mask[4];
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
    uint32_t k_dim = inner_reduced(&l->view);
    uint32_t n = p->dot.n_dim;
    const int64_t *stride = l->view.stride[p->dot.rhs];
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
    int64_t n = p->dot.n_dim == SX_NO_DIM ? 1 : l->view.extent[p->dot.n_dim];
    sx_part_plan plan = {.own = SX_NO_DIM};
    plan.axis[1] = (sx_grid_axis){SX_NO_DIM, 0, 1, 0};
    for (uint32_t d = 0; d < l->view.rank; d++) {
        bool outer = !l->view.reduced[d] && d != p->dot.n_dim && l->view.stride[p->dot.rhs][d] != 0;
        if (outer && plan.own == SX_NO_DIM) {
            plan.own = d;
        } else if (outer) {
            plan.loop[plan.loop_count] = d;
            plan.trip[plan.loop_count++] = l->view.extent[d];
        }
    }
    if (n / p->width > 0) {
        plan.axis[0] = (sx_grid_axis){p->dot.n_dim, 0, n / p->width, p->width};
        SX_TRY(sx_lower_part(l, &plan, p->width, emit_panel));
    }
    if (n % p->width > 0) {
        plan.axis[0] = (sx_grid_axis){p->dot.n_dim, n / p->width * p->width, 1, 0};
        SX_TRY(sx_lower_part(l, &plan, n % p->width, emit_panel));
    }
    return SX_OK;
}

sx_code sx_lower_pack(sx_ctx *cx, const char *name, const sx_attr *fused, const sx_type *input,
                      uint32_t input_count, const sx_lower_plan *plan, sx_kernel **kernel,
                      int64_t *packed_bytes)
{
    packing p;
    sx_type result;
    SX_TRY(sx_fused_infer(cx, fused, input, input_count, &result));
    sx_lower *l = SX_NEW(cx, sx_lower);
    if (l == NULL) {
        return cx->error.code;
    }
    *l = (sx_lower){.cx = cx, .plan = plan, .body = fused->body, .lanes = plan->lanes, .self = &p};
    SX_TRY(sx_kernel_make(cx, name, plan->lanes, &l->kernel));
    SX_TRY(sx_view_make(cx, fused, input, input_count, &l->view));
    SX_TRY(sx_dot_view_make(cx, fused->body, &l->view, &p.dot));
    if (input[p.dot.rhs].dtype != SX_F32 || plan->block_nv < 1 || plan->block_nv > 31) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: panels of %u vectors of %s", name,
                       plan->block_nv, sx_dtype_name(input[p.dot.rhs].dtype));
    }
    p.packed = l->view;
    SX_TRY(sx_dot_view_pack(cx, fused->body, &p.packed, plan, &p.dot));
    p.width = (int64_t)plan->block_nv * plan->lanes;
    for (uint32_t a = 0; a < input_count; a++) {
        l->arg_dtype[a] = input[a].dtype;
    }
    l->vector_dim = p.dot.n_dim;
    int64_t source = 4 * sx_tensor_elements(&input[p.dot.rhs]);
    (void)sx_kernel_add_buffer(l->kernel, SX_BUFFER_IN, source);
    (void)sx_kernel_add_buffer(l->kernel, SX_BUFFER_OUT, p.dot.packed_bytes);
    l->kernel->bytes = (double)source + (double)p.dot.packed_bytes;
    l->kernel->numerics = sx_hash64(SX_SPAN_LITERAL("pack"), 0); // moves values, rounds nothing
    SX_TRY(emit_panels(l, &p));
    SX_TRY(sx_kernel_check(cx, l->kernel));
    *packed_bytes = p.dot.packed_bytes;
    *kernel = l->kernel;
    return SX_OK;
}
