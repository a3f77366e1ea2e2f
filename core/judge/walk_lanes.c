/* walk_lanes.c - what a register holds, lane by lane.
 *
 * Most instructions that move lanes belong to square blocks that are turned in registers: rows are loaded, lanes
 * exchanged between them in stages, and at the end register k has lane k of every row. So a moved lane is not made
 * as a term of its own: its piece names the term of the row and the lane at which it is meant. Who computes with
 * such a register gets the terms (sx_walk_get). A store of a whole one asks instead whether the rows are one term
 * with the number of the row as a variable: once for a block, not for each of its lanes. */
#include <string.h>

#include "core/judge/walk.h"

static bool has_lane(const sx_walk *w, uint32_t term)
{
    return (w->g->term[term].vars & SX_VAR_BIT(SX_VAR_LANE)) != 0;
}

uint32_t sx_walk_at(sx_walk *w, uint32_t term, uint32_t lane)
{
    if (!has_lane(w, term)) {
        return term;
    }
    sx_fixed_lanes *fixed = &w->fixed[term % SX_FIXED_LANES];
    SX_ASSERT(lane < SX_COUNT(fixed->at));
    if (fixed->term != term || fixed->generation != w->g->generation) {
        *fixed = (sx_fixed_lanes){.term = term, .generation = w->g->generation};
    }
    if (fixed->at[lane] == 0) {
        fixed->at[lane] = sx_term_fix(w->g, term, SX_VAR_LANE, lane);
    }
    return fixed->at[lane];
}

/* No pieces yet. The lanes behind the last piece have no meaning: to clear them would take longer than the rest. */
static void begin(sx_lanes *lanes)
{
    lanes->count = 0;
    lanes->moved = false;
}

/* Adds a piece; equal neighbours are one. */
static void put_piece(sx_lanes *lanes, uint32_t end, uint32_t term, uint32_t at)
{
    uint32_t n = lanes->count;
    bool same =
        n > 0 && lanes->term[n - 1] == term && lanes->at[n - 1] == SX_LANE_OWN && at == SX_LANE_OWN;
    n = same ? n - 1 : n;
    lanes->end[n] = (uint8_t)end;
    lanes->term[n] = term;
    lanes->at[n] = (uint8_t)at;
    lanes->count = (uint8_t)(n + 1);
    lanes->moved = lanes->moved || at != SX_LANE_OWN;
}

/* Moved lanes get the terms that they stand for. */
static void resolve(sx_walk *w, sx_lanes *lanes)
{
    const uint32_t count = lanes->count;
    lanes->count = 0;
    lanes->moved = false;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t term = lanes->term[k];
        term = lanes->at[k] == SX_LANE_OWN ? term : sx_walk_at(w, term, lanes->at[k]);
        put_piece(lanes, lanes->end[k], term, SX_LANE_OWN);
    }
}

/* The pieces of a value where they stand, moved lanes and all, or the one piece in `whole`. */
static const sx_lanes *raw_view(const sx_walk *w, uint32_t value, sx_lanes *whole)
{
    if ((value & SX_MANY) != 0) {
        return &w->many[value & ~SX_MANY];
    }
    whole->count = 1;
    whole->moved = false;
    whole->end[0] = (uint8_t)w->lanes;
    whole->at[0] = SX_LANE_OWN;
    whole->term[0] = value;
    return whole;
}

const sx_lanes *sx_walk_view(sx_walk *w, uint32_t value, sx_lanes *whole)
{
    if ((value & SX_MANY) != 0 && w->many[value & ~SX_MANY].moved) {
        resolve(w, &w->many[value & ~SX_MANY]);
    }
    return raw_view(w, value, whole);
}

static void copy_lanes(const sx_lanes *from, sx_lanes *lanes)
{
    lanes->count = from->count; /* the pieces that there are: most values have few */
    lanes->moved = from->moved;
    memcpy(lanes->end, from->end, from->count * sizeof(from->end[0]));
    memcpy(lanes->at, from->at, from->count * sizeof(from->at[0]));
    memcpy(lanes->term, from->term, from->count * sizeof(from->term[0]));
}

void sx_walk_get(sx_walk *w, uint32_t value, sx_lanes *lanes)
{
    const sx_lanes *from = sx_walk_view(w, value, lanes);
    if (from != lanes) {
        copy_lanes(from, lanes);
    }
}

static uint32_t put_many(sx_walk *w, const sx_lanes *lanes)
{
    void *array = w->many;
    if (lanes->count == 1) {
        return lanes->at[0] == SX_LANE_OWN ? lanes->term[0]
                                           : sx_walk_at(w, lanes->term[0], lanes->at[0]);
    }
    if (w->g->refused || sx_grow(w->g->cx, &array, &w->many_capacity, w->many_count + 1,
                                 sizeof(sx_lanes)) != SX_OK) {
        return sx_refuse(w->g, "out of memory");
    }
    w->many = array;
    copy_lanes(lanes, &w->many[w->many_count]);
    return SX_MANY | w->many_count++;
}

/* A piece of one lane has the lane fixed; equal neighbours are one piece. */
uint32_t sx_walk_put(sx_walk *w, const sx_lanes *lanes)
{
    sx_lanes made;
    uint32_t start = 0;
    begin(&made);
    for (uint32_t k = 0; k < lanes->count; k++) {
        uint32_t term = lanes->term[k];
        term = lanes->end[k] == start + 1 ? sx_walk_at(w, term, start) : term;
        start = lanes->end[k];
        put_piece(&made, start, term, SX_LANE_OWN);
    }
    return w->g->refused ? 0 : put_many(w, &made);
}

/* The lane `lane` of piece k is put at the end of `out`. */
static void move_lane(const sx_walk *w, const sx_lanes *in, uint32_t k, uint32_t lane,
                      sx_lanes *out, uint32_t end)
{
    uint32_t at = in->at[k] != SX_LANE_OWN ? in->at[k] : lane;
    put_piece(out, end, in->term[k], has_lane(w, in->term[k]) ? at : SX_LANE_OWN);
}

uint32_t sx_walk_swap(sx_walk *w, uint32_t value, uint32_t distance)
{
    sx_lanes whole, out;
    uint8_t piece[SX_LOOP_LANES_MAX];
    if ((value & SX_MANY) == 0 && !has_lane(w, value)) {
        return value;
    }
    const sx_lanes *in = raw_view(w, value, &whole);
    uint32_t start = 0;
    for (uint32_t k = 0; k < in->count; k++) {
        for (; start < in->end[k]; start++) {
            piece[start] = (uint8_t)k;
        }
    }
    begin(&out);
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t from = (i ^ distance) % w->lanes;
        move_lane(w, in, piece[from], from, &out, i + 1);
    }
    return put_many(w, &out);
}

uint32_t sx_walk_choose(sx_walk *w, uint32_t mask, uint32_t x, uint32_t y)
{
    sx_lanes whole[3], out;
    const sx_lanes *known = raw_view(w, mask, &whole[0]);
    const sx_lanes *in[2] = {raw_view(w, x, &whole[1]), raw_view(w, y, &whole[2])};
    uint32_t at[2] = {0, 0};
    for (uint32_t k = 0; k < known->count; k++) {
        if (w->g->term[known->term[k]].kind != SX_TERM_CONST) {
            return 0;
        }
    }
    begin(&out);
    uint32_t m = 0;
    for (uint32_t start = 0; start < w->lanes;) {
        uint32_t of = w->g->term[known->term[m]].imm != 0 ? 0 : 1;
        uint32_t end = known->end[m];
        for (uint32_t k = 0; k < 2; k++) {
            at[k] += in[k]->end[at[k]] == start;
            end = in[k]->end[at[k]] < end ? in[k]->end[at[k]] : end;
        }
        if (end == start + 1) {
            move_lane(w, in[of], at[of], start, &out, end);
        } else {
            put_piece(&out, end, in[of]->term[at[of]], SX_LANE_OWN);
        }
        m += known->end[m] == end;
        start = end;
    }
    return put_many(w, &out);
}

/* ---- pieces as one term ---- */
/* Is `value` what the term is at the value of the variable? */
static bool is_at(sx_walk *w, uint32_t term, uint32_t var, uint32_t number, uint32_t value)
{
    sx_subst s;
    sx_subst_begin(w->g, &s);
    sx_subst_var(&s, var, sx_form_constant(w->g, number));
    return sx_term_becomes(w->g, term, value, &s);
}

/* The terms of `count` rows as one, with the number of the row as SX_VAR_ROW; 0: they are not one. */
static uint32_t rows_as_one(sx_walk *w, const uint32_t *row, uint32_t count)
{
    sx_rows *last = &w->rows;
    if (last->generation == w->g->generation && last->count == count &&
        memcmp(last->row, row, count * sizeof(row[0])) == 0) {
        return last->one;
    }
    uint32_t one = sx_term_pair(w->g, row[0], row[1], SX_VAR_ROW);
    for (uint32_t r = 2; one != 0 && r < count; r++) {
        one = is_at(w, one, SX_VAR_ROW, r, row[r]) ? one : 0;
    }
    *last = (sx_rows){.generation = w->g->generation, .count = count, .one = one};
    memcpy(last->row, row, count * sizeof(row[0]));
    return one;
}

/* Lanes from the first on that were moved from one lane of as many rows become one piece, if the rows are one. */
static void join_rows(sx_walk *w, sx_lanes *lanes)
{
    uint32_t n = 0;
    while (n < lanes->count && lanes->at[n] != SX_LANE_OWN && lanes->at[n] == lanes->at[0]) {
        SX_ASSERT(lanes->end[n] == n + 1);
        n++;
    }
    uint32_t one = n < 2 ? 0 : rows_as_one(w, lanes->term, n);
    if (one == 0) {
        return;
    }
    sx_subst s;
    sx_subst_begin(w->g, &s);
    sx_subst_var(&s, SX_VAR_LANE, sx_form_constant(w->g, lanes->at[0]));
    sx_subst_var(&s, SX_VAR_ROW, sx_form_var(w->g, SX_VAR_LANE, 1, 0));
    one = sx_term_subst(w->g, one, &s);
    for (uint32_t k = n; k < lanes->count; k++) { /* none behind them may be the next of them */
        if (lanes->at[k] != SX_LANE_OWN || is_at(w, one, SX_VAR_LANE, n, lanes->term[k])) {
            return;
        }
    }
    lanes->end[0] = (uint8_t)n;
    lanes->term[0] = one;
    lanes->at[0] = SX_LANE_OWN;
    for (uint32_t k = n; k < lanes->count; k++) {
        lanes->end[k - n + 1] = lanes->end[k];
        lanes->term[k - n + 1] = lanes->term[k];
        lanes->at[k - n + 1] = SX_LANE_OWN;
    }
    lanes->count = (uint8_t)(lanes->count - n + 1);
    lanes->moved = false;
}

/* Pieces of lanes that differ by their lane alone become one. */
static void join_pieces(sx_walk *w, sx_lanes *lanes, uint32_t count)
{
    sx_algebra *g = w->g;
    sx_lanes out;
    uint32_t start = 0;
    begin(&out);
    for (uint32_t k = 0; k < lanes->count && start < count;) {
        uint32_t end = lanes->end[k];
        uint32_t term = lanes->term[k];
        bool one = end == start + 1 && k + 1 < lanes->count && lanes->end[k + 1] == end + 1;
        uint32_t pair = one ? sx_term_pair(g, term, lanes->term[k + 1], SX_VAR_LANE) : 0;
        k++;
        if (pair != 0 && end < count) { /* at lane `start` the variable is `start`, not 0 */
            sx_subst s;
            sx_subst_begin(g, &s);
            sx_subst_var(&s, SX_VAR_LANE, sx_form_var(g, SX_VAR_LANE, 1, -(int64_t)start));
            term = sx_term_subst(g, pair, &s);
            while (k < lanes->count && lanes->end[k] == end + 1 &&
                   is_at(w, term, SX_VAR_LANE, end, lanes->term[k])) {
                end = lanes->end[k++];
            }
        }
        out.end[out.count] = (uint8_t)end;
        out.at[out.count] = SX_LANE_OWN;
        out.term[out.count++] = term;
        start = end;
    }
    if (start >= count) {
        copy_lanes(&out, lanes);
    }
}

void sx_walk_get_joined(sx_walk *w, uint32_t value, uint32_t count, sx_lanes *lanes)
{
    const sx_lanes *from = raw_view(w, value, lanes);
    if (from != lanes) {
        copy_lanes(from, lanes);
    }
    if (lanes->moved && count == w->lanes) {
        join_rows(w, lanes);
    }
    if (lanes->moved) {
        resolve(w, lanes);
    }
    if (lanes->end[0] < count) {
        join_pieces(w, lanes, count);
    }
}
