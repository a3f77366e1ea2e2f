/* lower_parts.c - the outer dimensions of a space as grid variables and loops.
 *
 * A grid point covers `rows` iterations: the innermost outer dimensions as a whole in loops while they fit,
 * the next one cut in pieces, those left over one grid variable for the largest and loops for the rest. Pieces
 * that do not divide the extent evenly give a second part; so do tiles of the inner dimension. */
#include "core/loop/lower.h"

#include <string.h>

typedef struct {
    uint32_t split; /* position in `outer` of the cut dimension, or its count */
    int64_t piece;  /* its iterations per grid point */
    uint32_t own;   /* dimension that has a grid variable of its own, or SX_NO_DIM */
} cut;

bool sx_lower_open(sx_lower *l, uint32_t dim, int64_t trip, int64_t step)
{
    if (trip <= 1) {
        return false;
    }
    uint32_t v = sx_loop_open(&l->b, trip);
    l->at[dim].coef[v] = step;
    return true;
}

void sx_lower_close(sx_lower *l, uint32_t dim, bool opened)
{
    if (opened) {
        sx_loop_close(&l->b);
        l->at[dim].coef[3 + l->b.open_count] = 0;
    }
}

static bool is_steady(const sx_lower *l)
{
    return l->analysis != NULL && l->analysis->steady;
}

static cut plan_cut(const sx_lower *l, const uint32_t *outer, uint32_t outer_count, int64_t rows)
{
    cut c = {.split = outer_count, .piece = 1, .own = SX_NO_DIM};
    const int64_t *extent = l->view.extent;
    int64_t product = 1;
    uint32_t first = outer_count;
    while (first > 0 && extent[outer[first - 1]] <= rows / product) {
        product *= extent[outer[first - 1]];
        first--;
    }
    if (first > 0) {
        c.split = first - 1;
        c.piece = sx_max_i64(1, sx_min_i64(rows / product, extent[outer[c.split]]));
        bool known = l->own_extent > 0;
        c.own = known ? l->own : SX_NO_DIM;
        for (uint32_t k = 0; k + 1 < first && !known; k++) {
            if (c.own == SX_NO_DIM || extent[outer[k]] > extent[c.own]) {
                c.own = outer[k];
            }
        }
    }
    return c;
}

sx_code sx_lower_part(sx_lower *l, const sx_part_plan *plan, int64_t length, sx_lower_body body)
{
    memset(l->at, 0, sizeof(l->at));
    memset(l->have, 0, sizeof(l->have));
    memset(l->pinned, 0, sizeof(l->pinned));
    bool own = plan->own != SX_NO_DIM;
    bool hidden = l->own_extent > 0 && plan->own == l->own;
    int64_t points = !own ? 1 : hidden ? l->own_extent : l->view.extent[plan->own];
    sx_loop_begin_part(&l->b, l->cx, l->kernel, points, plan->axis[0].count, plan->axis[1].count);
    if (own) {
        l->at[plan->own].coef[0] = 1;
    }
    for (uint32_t k = 0; k < 2; k++) {
        const sx_grid_axis *axis = &plan->axis[k];
        if (axis->dim != SX_NO_DIM) {
            l->at[axis->dim].constant = axis->start;
            bool moves = axis->count > 1 || is_steady(l);
            l->at[axis->dim].coef[1 + k] = moves ? axis->step : 0;
        }
    }
    bool opened[SX_RANK_MAX] = {false};
    for (uint32_t k = 0; k < plan->loop_count; k++) {
        opened[k] = sx_lower_open(l, plan->loop[k], plan->trip[k], 1);
    }
    if (l->b.code == SX_OK) {
        body(l, length);
    }
    for (uint32_t k = plan->loop_count; k-- > 0;) {
        sx_lower_close(l, plan->loop[k], opened[k]);
    }
    return sx_loop_end_part(&l->b);
}

/* Pieces of a dimension: the even ones and the rest. */
static sx_grid_axis axis_of(uint32_t dim, int64_t extent, int64_t piece, bool rest,
                            int64_t *covered)
{
    int64_t count = extent / piece;
    *covered = rest ? extent % piece : piece;
    return rest ? (sx_grid_axis){dim, count * piece, *covered > 0, piece}
                : (sx_grid_axis){dim, 0, count, piece};
}

sx_code sx_lower_parts(sx_lower *l, const uint32_t *outer, uint32_t outer_count, int64_t rows,
                       uint32_t inner, int64_t tile, sx_lower_body body)
{
    cut c = plan_cut(l, outer, outer_count, sx_max_i64(1, rows));
    bool split = c.split < outer_count;
    int64_t whole = split ? l->view.extent[outer[c.split]] : 1;
    int64_t extent = inner == SX_NO_DIM ? 1 : l->view.extent[inner];
    tile = tile <= 0 || (tile > extent && !is_steady(l)) ? extent : tile;
    for (uint32_t variant = 0; variant < 4; variant++) {
        sx_part_plan plan = {.own = c.own};
        int64_t piece, length;
        plan.axis[0] =
            axis_of(split ? outer[c.split] : SX_NO_DIM, whole, c.piece, variant / 2 != 0, &piece);
        plan.axis[1] = axis_of(inner, extent, tile, variant % 2 != 0, &length);
        if (plan.axis[0].count == 0 || plan.axis[1].count == 0) {
            continue;
        }
        for (uint32_t k = 0; k < outer_count; k++) {
            if (outer[k] != c.own) {
                plan.loop[plan.loop_count] = outer[k];
                plan.trip[plan.loop_count++] = k == c.split ? piece : l->view.extent[outer[k]];
            }
        }
        SX_TRY(sx_lower_part(l, &plan, length, body));
    }
    return SX_OK;
}
