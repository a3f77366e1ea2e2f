/* lower_nested.c - nested contractions as programs of blocks: gradients of attention on matrix instructions. */
#include "core/tile/lower_scores.h"

static sx_code make_map(sx_lower_scores *w)
{
    sx_lower *l = &w->l;
    const sx_analysis *a = l->analysis;
    sx_lower_scores_begin_program(w);
    if (a->column != SX_NO_DIM) {
        l->at[a->column].coef[SX_TILE_VAR_COLUMN] = 1;
    }
    uint32_t sum = sx_loop_vector(&l->b);
    SX_ASSERT(l->b.code != SX_OK || sum == 0);
    l->reg[a->outer] = sx_lower_rounded(l, l->body->instr[a->outer].dtype, sum);
    l->have[a->outer] = true;
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    return sx_lower_scores_end_program(w, &w->tile->map);
}

static sx_code lower(sx_lower_scores *w, sx_kernel **kernel)
{
    const sx_analysis *a = w->l.analysis;
    sx_tile *tile = w->tile;
    uint32_t dot[SX_TILE_PRODUCTS_MAX];
    SX_TRY(sx_lower_scores_matrix(w));
    SX_TRY(sx_lower_scores_measure(w));
    w->online->nested = true;
    w->online->rounded = a->body->instr[a->scores].dtype == tile->matrix->factor;
    uint32_t inner = sx_lower_scores_inner(w);
    int64_t extent[2] = {a->extent[SX_ROLE_SUM], a->extent[SX_ROLE_INNER]};
    sx_tile_add_buffers(&w->l, a);
    sx_lower_scores_name(w, SX_KERNEL_NESTED, extent, SX_COUNT(extent));
    for (uint32_t i = 0; i < a->product_count; i++) {
        const sx_inner_product *p = &a->product[i];
        uint32_t which = i == 0 ? SX_TILE_LEFT : SX_TILE_SECOND;
        dot[i] = p->dot;
        sx_lower_scores_view(w, p->lhs, a->row, inner, &w->query[i]->operand[SX_TILE_LEFT]);
        sx_lower_scores_view(w, p->rhs, inner, a->keys, &tile->operand[which]);
    }
    sx_lower_scores_view(w, a->value, a->column, a->keys, &tile->operand[SX_TILE_RIGHT]);
    sx_tile_make_roles(tile);
    SX_TRY(sx_lower_scores_programs(w, a->scores, dot, a->product_count));
    SX_TRY(make_map(w));
    SX_TRY(sx_lower_scores_rings(w));
    SX_TRY(sx_lower_scores_part(w));
    *kernel = w->l.kernel;
    return SX_OK;
}

sx_code sx_tile_lower_nested(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_lower_scores *w;
    SX_ASSERT(a->kind == SX_KERNEL_NESTED);
    SX_TRY(sx_lower_scores_begin(cx, unit, name, a, schedule, &w));
    return lower(w, kernel);
}
