/* lower_online.c - online sums as programs of blocks: attention on matrix instructions. */
#include <float.h>
#include <math.h>

#include "core/tile/lower_scores.h"

/* ---- programs of elements ---- */
static sx_code make_power(sx_lower_scores *w)
{
    sx_lower_scores_begin_program(w);
    uint32_t x = sx_loop_vector(&w->l.b);
    w->online->power.result = sx_loop_apply(&w->l.b, SX_OP_EXP, SX_EQ, x, SX_NO_REG, SX_NO_REG);
    return sx_lower_scores_end_program(w, &w->online->power.part);
}

static uint32_t op(sx_lower *l, sx_lop lop, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&l->b, lop, SX_NO_REG, NULL, x, y, z, 0, 0);
}

/* The reductions of the body, from the sums of the block; not a number for rows that are masked whole. */
static void give_reductions(sx_lower_scores *w, const uint32_t sum[SX_TILE_ONLINE_SUMS])
{
    sx_lower *l = &w->l;
    uint32_t total = sum[SX_TILE_WEIGHT_SUM];
    uint32_t one = op(l, SX_LOP_DIV, total, total, SX_NO_REG);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind == SX_BODY_REDUCE) {
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            uint32_t empty =
                sx_loop_op(&l->b, SX_LOP_CMP, SX_NO_REG, NULL, total, zero, SX_NO_REG, SX_EQ, 0);
            l->reg[i] =
                op(l, SX_LOP_BLEND, empty, sx_loop_set(&l->b, -HUGE_VALF), sum[SX_TILE_MAXIMUM]);
        } else if (in->kind == SX_BODY_ONLINE && l->body->instr[in->y].kind == SX_BODY_IMM) {
            uint32_t factor = sx_loop_set(&l->b, (float)l->body->instr[in->y].imm);
            factor = op(l, SX_LOP_MUL, one, factor, SX_NO_REG);
            l->reg[i] = op(l, SX_LOP_MUL, total, factor, SX_NO_REG);
        } else if (in->kind == SX_BODY_ONLINE) {
            l->reg[i] = op(l, SX_LOP_MUL, sum[SX_TILE_VALUE_SUM], one, SX_NO_REG);
        }
        l->have[i] = l->have[i] || in->kind == SX_BODY_REDUCE || in->kind == SX_BODY_ONLINE;
    }
}

static sx_code make_map(sx_lower_scores *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    uint32_t sum[SX_TILE_ONLINE_SUMS];
    sx_lower_scores_begin_program(w);
    if (a->column != SX_NO_DIM) {
        l->at[a->column].coef[SX_TILE_VAR_COLUMN] = 1;
    }
    for (uint32_t i = 0; i < SX_TILE_ONLINE_SUMS; i++) {
        sum[i] = sx_loop_vector(&l->b);
        SX_ASSERT(l->b.code != SX_OK || sum[i] == i);
    }
    give_reductions(w, sum);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    return sx_lower_scores_end_program(w, &w->tile->map);
}

/* Results of rows lie in the order of the sums, without the columns. */
static void row_strides(const sx_lower_scores *w, sx_view *view)
{
    const sx_analysis *a = w->l.analysis;
    for (uint32_t d = 0; d < view->rank && a->column != SX_NO_DIM; d++) {
        bool outer = view->out_stride[d] > view->out_stride[a->column];
        view->out_stride[d] = d == a->column ? 0
                              : outer        ? view->out_stride[d] / view->extent[a->column]
                                             : view->out_stride[d];
    }
}

/* The program of the second result: its body stands for that of the kernel while it is written. */
static sx_code make_statistic(sx_lower_scores *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    const sx_lower before = *l;
    uint32_t sum[SX_TILE_ONLINE_SUMS];
    sx_part *part = SX_NEW(l->cx, sx_part);
    if (part == NULL) {
        return l->cx->error.code;
    }
    l->body = a->statistic->body;
    l->out_dtype = a->statistic_result.dtype;
    l->out_buffer = before.out_buffer + 1;
    row_strides(w, &l->view);
    sx_lower_scores_begin_program(w);
    for (uint32_t i = 0; i < SX_TILE_ONLINE_SUMS; i++) {
        sum[i] = sx_loop_vector(&l->b);
    }
    give_reductions(w, sum);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    SX_TRY(sx_lower_scores_end_program(w, part));
    l->body = before.body;
    l->out_dtype = before.out_dtype;
    l->out_buffer = before.out_buffer;
    l->view = before.view;
    w->online->statistic = part;
    return SX_OK;
}

static sx_code make_programs(sx_lower_scores *w)
{
    const sx_analysis *a = w->l.analysis;
    SX_TRY(sx_lower_scores_programs(w, a->scores, &a->dot, 1));
    SX_TRY(make_power(w));
    SX_TRY(a->statistic != NULL ? make_statistic(w) : SX_OK);
    return make_map(w);
}

/* ---- the kernel ---- */
static sx_code lower(sx_lower_scores *w, sx_kernel **kernel)
{
    const sx_analysis *a = w->l.analysis;
    sx_tile *tile = w->tile;
    SX_TRY(sx_lower_scores_matrix(w));
    SX_TRY(sx_lower_scores_measure(w));
    w->online->has_horizon = sx_online_horizon(a, &w->online->ahead);
    uint32_t inner = sx_lower_scores_inner(w);
    int64_t extent[3] = {w->blocks.keys, a->extent[SX_ROLE_SUM], a->extent[SX_ROLE_INNER]};
    sx_tile_add_buffers(&w->l, a);
    sx_lower_scores_name(w, SX_KERNEL_ONLINE, extent, SX_COUNT(extent));
    sx_lower_scores_view(w, a->lhs, a->row, inner, &w->query[0]->operand[SX_TILE_LEFT]);
    sx_lower_scores_view(w, a->rhs, inner, a->keys, &tile->operand[SX_TILE_LEFT]);
    sx_lower_scores_view(w, a->value, a->column, a->keys, &tile->operand[SX_TILE_RIGHT]);
    sx_tile_make_roles(tile);
    SX_TRY(make_programs(w));
    SX_TRY(sx_lower_scores_rings(w));
    SX_TRY(sx_lower_scores_part(w));
    *kernel = w->l.kernel;
    return SX_OK;
}

sx_code sx_tile_lower_online(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_lower_scores *w;
    SX_TRY(sx_lower_scores_begin(cx, unit, name, a, schedule, &w));
    return lower(w, kernel);
}
