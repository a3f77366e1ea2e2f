/* lower_map.c - elementwise kernels: the last dimension of the view across the lanes, the others in grid and loops. */
#include "core/loop/lower.h"

#include <string.h>

sx_code sx_lower_match_map(sx_ctx *cx, const sx_schedule *schedule, const char *name)
{
    static const sx_level_form form[] = {
        {SX_ROLE_ROW, SX_BIND_GRID},        {SX_ROLE_COLUMN, SX_BIND_GRID},
        {SX_ROLE_ROW, SX_BIND_LOOP},        {SX_ROLE_COLUMN, SX_BIND_LOOP},
        {SX_ROLE_COLUMN, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_LANE},
    };
    return sx_schedule_match(cx, schedule, form, SX_COUNT(form), name);
}

sx_code sx_lower_match_map_wide(sx_ctx *cx, const sx_schedule *schedule, const char *name)
{
    static const sx_level_form form[] = {
        {SX_ROLE_ROW, SX_BIND_GRID},        {SX_ROLE_COLUMN, SX_BIND_GRID},
        {SX_ROLE_ROW, SX_BIND_LOOP},        {SX_ROLE_COLUMN, SX_BIND_LOOP},
        {SX_ROLE_COLUMN, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_LANE},
        {SX_ROLE_COLUMN, SX_BIND_REGISTER},
    };
    return sx_schedule_match(cx, schedule, form, SX_COUNT(form), name);
}

/* The values of all results at the position, as they lie in memory. */
static void make_results(sx_lower *l, uint32_t made[SX_FUSED_RESULTS_MAX])
{
    const sx_analysis *a = l->analysis;
    for (uint32_t r = 0; r < a->result_count; r++) {
        made[r] = sx_lower_stored(l, sx_lower_value(l, a->root[r]), a->root_dtype[r]);
    }
}

/* All values come before the first store: a result may lie over an argument that another one is made of. */
static void one_vector(sx_lower *l, uint32_t valid)
{
    uint32_t made[SX_FUSED_RESULTS_MAX];
    l->valid = valid;
    sx_lower_move(l);
    make_results(l, made);
    for (uint32_t r = 0; r < l->analysis->result_count; r++) {
        sx_lower_choose_result(l, r);
        sx_lower_store_raw(l, made[r], l->out_dtype);
    }
}

/* Elements of a line that one lane may hold. */
#define LINE_MAX 64

/* `count` vectors from the position on in which each lane has `width` elements side by side: all loads, then all
 * values, then all stores, so that loads are in flight together and neighbours can be one access. */
static void one_line(sx_lower *l, uint32_t count, uint32_t width)
{
    const sx_body *body = l->body;
    uint32_t raw[LINE_MAX][SX_FUSED_ARGS_MAX];
    uint32_t made[LINE_MAX][SX_FUSED_RESULTS_MAX];
    uint32_t d = l->vector_dim;
    int64_t start = l->at[d].constant;
    bool used[SX_FUSED_ARGS_MAX] = {false};
    SX_ASSERT(count <= LINE_MAX && count % width == 0);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        bool varies = (l->analysis->varies[i] >> d & 1) != 0;
        if (in->kind == SX_BODY_ARG) {
            used[in->x] = used[in->x] || (varies && !l->pinned[i]);
        }
    }
    l->valid = l->lanes;
    l->lane_step = width;
#define AT(k) (start + (int64_t)((k) / width * width) * l->lanes + (k) % width)
    for (uint32_t argument = 0; argument < SX_FUSED_ARGS_MAX; argument++) {
        for (uint32_t k = 0; used[argument] && k < count; k++) {
            l->at[d].constant = AT(k);
            raw[k][argument] = sx_lower_load_raw(l, argument);
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        l->at[d].constant = AT(k);
        sx_lower_move(l);
        for (uint32_t i = 0; i < body->instr_count; i++) {
            const sx_instr *in = &body->instr[i];
            if (in->kind == SX_BODY_ARG && used[in->x] && !l->have[i]) {
                l->reg[i] = sx_lower_loaded(l, in->x, raw[k][in->x]);
                l->have[i] = true;
            }
        }
        make_results(l, made[k]);
    }
    for (uint32_t r = 0; r < l->analysis->result_count; r++) {
        sx_lower_choose_result(l, r);
        for (uint32_t k = 0; k < count; k++) {
            l->at[d].constant = AT(k);
            sx_lower_store_raw(l, made[k][r], l->out_dtype);
        }
    }
#undef AT
    l->at[d].constant = start;
    l->lane_step = 1;
}

/* Loads and values that do not change along the vector dimension are made once, before the loop, while they are few. */
static void pin_invariants(sx_lower *l)
{
    uint32_t pinned = 0;
    l->valid = l->lanes;
    for (uint32_t i = 0; i < l->body->instr_count && pinned < 4; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind == SX_BODY_ARG && in->dtype != SX_BOOL &&
            (l->analysis->varies[i] >> l->vector_dim & 1) == 0) {
            (void)sx_lower_value(l, i);
            l->pinned[i] = true;
            pinned++;
        }
    }
}

static void emit_row(sx_lower *l, int64_t length)
{
    uint32_t d = l->vector_dim;
    if (d == SX_NO_DIM) {
        one_vector(l, 1);
        return;
    }
    memset(l->pinned, 0, sizeof(l->pinned));
    memset(l->have, 0, sizeof(l->have));
    pin_invariants(l);
    int64_t lanes = l->lanes;
    int64_t step = sx_schedule_step(l->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t trip = length / step;
    int64_t start = l->at[d].constant;
    if (trip > 0) {
        bool opened = sx_lower_open(l, d, trip, step);
        uint32_t width = sx_schedule_width(l->schedule);
        if (width > 1) {
            one_line(l, (uint32_t)(step / lanes), width);
        }
        for (int64_t u = 0; width == 1 && u < step; u += lanes) {
            l->at[d].constant = start + u;
            one_vector(l, l->lanes);
        }
        sx_lower_close(l, d, opened);
    }
    for (int64_t done = trip * step; done < length; done += lanes) {
        l->at[d].constant = start + done;
        one_vector(l, (uint32_t)sx_min_i64(lanes, length - done));
    }
    l->at[d].constant = start;
}

/* ---- squares of arguments that lie along the rows, turned in registers ---- */
typedef struct {
    uint32_t row;                         /* the dimension along which they lie */
    uint32_t argument[SX_FUSED_ARGS_MAX]; /* that are turned */
    uint32_t count;
    uint32_t mask[SX_TURN_STAGES];
    uint32_t workspace; /* a square of `lanes` rows for each of them */
    int64_t columns;    /* of a grid point */
} turning;

static sx_addr square_address(const sx_lower *l, const turning *t, uint32_t which, int64_t line)
{
    sx_addr a = {.buffer = t->workspace, .index_reg = SX_NO_REG};
    a.offset = (int64_t)sizeof(float) * l->lanes * ((int64_t)which * l->lanes + line);
    return a;
}

/* `rows` rows and `valid` columns of each turned argument from the position on. */
static void turn_squares(sx_lower *l, const turning *t, uint32_t rows, uint32_t valid)
{
    uint32_t none = SX_NO_REG, d = l->vector_dim;
    int64_t start = l->at[d].constant;
    for (uint32_t k = 0; k < t->count; k++) {
        uint32_t line[SX_LOOP_LANES_MAX];
        for (uint32_t j = 0; j < l->lanes; j++) {
            l->at[d].constant = start + j;
            line[j] =
                j < valid ? sx_lower_load_along(l, t->argument[k], rows) : sx_loop_bits(&l->b, 0);
        }
        l->at[d].constant = start;
        sx_lower_turn(l, line, t->mask);
        for (uint32_t r = 0; r < rows; r++) {
            sx_addr a = square_address(l, t, k, r);
            (void)sx_loop_op(&l->b, SX_LOP_STORE, none, &a, line[r], none, none, l->lanes, 0);
        }
    }
}

/* A vector of each of the rows of a square; their loop variable moves through the squares as well. */
static void rows_of_square(sx_lower *l, const turning *t, uint32_t rows, uint32_t valid)
{
    uint32_t none = SX_NO_REG;
    turn_squares(l, t, rows, valid);
    bool opened = sx_lower_open(l, t->row, rows, 1);
    uint32_t made[SX_FUSED_RESULTS_MAX];
    l->valid = valid;
    sx_lower_move(l);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        for (uint32_t k = 0; in->kind == SX_BODY_ARG && k < t->count; k++) {
            if (in->x == t->argument[k]) {
                sx_addr a = square_address(l, t, k, 0);
                a.coef[2 + l->b.open_count] = opened ? (int64_t)sizeof(float) * l->lanes : 0;
                l->reg[i] = sx_loop_op(&l->b, SX_LOP_LOAD, none, &a, none, none, none, l->lanes, 0);
                l->have[i] = true;
            }
        }
    }
    make_results(l, made);
    for (uint32_t r = 0; r < l->analysis->result_count; r++) {
        sx_lower_choose_result(l, r);
        sx_lower_store_raw(l, made[r], l->out_dtype);
    }
    sx_lower_close(l, t->row, opened);
    sx_lower_move(l);
}

/* The columns of a grid point, of `rows` rows. */
static void band_of_squares(sx_lower *l, const turning *t, uint32_t rows)
{
    uint32_t d = l->vector_dim;
    int64_t whole = t->columns / l->lanes;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        rows_of_square(l, t, rows, l->lanes);
        sx_lower_close(l, d, opened);
    }
    if (t->columns % l->lanes > 0) {
        int64_t start = l->at[d].constant;
        l->at[d].constant = start + whole * l->lanes;
        rows_of_square(l, t, rows, (uint32_t)(t->columns % l->lanes));
        l->at[d].constant = start;
    }
}

static void emit_squares(sx_lower *l, int64_t length)
{
    turning *t = l->self;
    int64_t whole = length / l->lanes;
    sx_lower_turn_masks(l, t->mask);
    if (whole > 0) {
        bool opened = sx_lower_open(l, t->row, whole, l->lanes);
        band_of_squares(l, t, l->lanes);
        sx_lower_close(l, t->row, opened);
    }
    if (length % l->lanes > 0) {
        int64_t start = l->at[t->row].constant;
        l->at[t->row].constant = start + whole * l->lanes;
        band_of_squares(l, t, (uint32_t)(length % l->lanes));
        l->at[t->row].constant = start;
    }
}

static turning turning_of(const sx_lower *l, uint32_t row)
{
    turning t = {.row = row};
    for (uint32_t k = 0; k < l->body->arg_count; k++) {
        if (l->view.stride[k][l->vector_dim] > 1) {
            t.argument[t.count++] = k;
        }
    }
    return t;
}

/* ---- the same by the threads of a warp: a square is a point of the grid, and its rows stay in registers ---- */
static void emit_square(sx_lower *l, int64_t rows)
{
    turning *t = l->self;
    uint32_t line[SX_FUSED_ARGS_MAX][SX_LOOP_LANES_MAX], made[SX_FUSED_RESULTS_MAX];
    uint32_t d = l->vector_dim, valid = (uint32_t)t->columns;
    int64_t column = l->at[d].constant, start = l->at[t->row].constant;
    sx_lower_turn_masks(l, t->mask);
    for (uint32_t k = 0; k < t->count; k++) { /* all loads are in flight together */
        for (uint32_t j = 0; j < l->lanes; j++) {
            l->at[d].constant = column + j;
            line[k][j] = j < valid ? sx_lower_load_raw_along(l, t->argument[k], (uint32_t)rows)
                                   : sx_loop_bits(&l->b, 0);
        }
        l->at[d].constant = column;
    }
    for (uint32_t k = 0; k < t->count; k++) {
        sx_lower_turn(l, line[k], t->mask);
    }
    l->valid = valid;
    for (int64_t r = 0; r < rows; r++) {
        l->at[t->row].constant = start + r;
        sx_lower_move(l);
        for (uint32_t i = 0; i < l->body->instr_count; i++) {
            const sx_instr *in = &l->body->instr[i];
            for (uint32_t k = 0; in->kind == SX_BODY_ARG && k < t->count; k++) {
                if (in->x == t->argument[k]) {
                    l->reg[i] = sx_lower_loaded(l, in->x, line[k][r]);
                    l->have[i] = true;
                }
            }
        }
        make_results(l, made);
        for (uint32_t n = 0; n < l->analysis->result_count; n++) {
            sx_lower_choose_result(l, n);
            sx_lower_store_raw(l, made[n], l->out_dtype);
        }
    }
    l->at[t->row].constant = start;
    sx_lower_move(l);
}

/* Pieces of a dimension: the whole ones, and what is left. */
static sx_grid_axis pieces_along(const sx_lower *l, uint32_t dim, int64_t piece, bool rest,
                                 int64_t *covered)
{
    int64_t count = l->view.extent[dim] / piece;
    *covered = rest ? l->view.extent[dim] % piece : piece;
    return rest ? (sx_grid_axis){dim, count * piece, *covered > 0, piece}
                : (sx_grid_axis){dim, 0, count, piece};
}

/* Grid points of so many rows and columns. The largest dimension in front of the rows has a grid variable, the others
 * are loops around `body`, which gets the rows. */
static sx_code put_tiles(sx_lower *l, turning *t, int64_t tile_rows, int64_t tile_columns,
                         sx_lower_body body)
{
    uint32_t own = SX_NO_DIM;
    for (uint32_t d = 0; d < t->row; d++) {
        own = own == SX_NO_DIM || l->view.extent[d] > l->view.extent[own] ? d : own;
    }
    for (uint32_t variant = 0; variant < 4; variant++) {
        sx_part_plan plan = {.own = own};
        int64_t rows;
        plan.axis[0] = pieces_along(l, t->row, tile_rows, variant / 2 != 0, &rows);
        plan.axis[1] = pieces_along(l, l->vector_dim, tile_columns, variant % 2 != 0, &t->columns);
        if (plan.axis[0].count == 0 || plan.axis[1].count == 0) {
            continue;
        }
        for (uint32_t d = 0; d < t->row; d++) {
            if (d != own) {
                plan.loop[plan.loop_count] = d;
                plan.trip[plan.loop_count++] = l->view.extent[d];
            }
        }
        SX_TRY(sx_lower_part(l, &plan, rows, body));
    }
    return SX_OK;
}

/* Whole rows, or tiles of them where that many rows alone would be few grid points. */
static sx_code put_bands(sx_lower *l, turning *t)
{
    int64_t rows = sx_schedule_step(l->schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t columns = sx_schedule_step(l->schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    uint32_t outer[SX_RANK_MAX];
    t->columns = l->view.extent[l->vector_dim];
    if (columns < t->columns) {
        return put_tiles(l, t, rows, columns, emit_squares);
    }
    for (uint32_t d = 0; d < t->row; d++) {
        outer[d] = d;
    }
    return sx_lower_parts(l, outer, t->row, 1, t->row, rows, emit_squares);
}

static sx_code lower_turned(sx_lower *l, uint32_t row)
{
    turning t = turning_of(l, row);
    bool threads = l->unit->threads;
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_MAP, NULL, 0);
    l->self = &t;
    if (!threads) {
        int64_t square = (int64_t)sizeof(float) * l->lanes * l->lanes;
        t.workspace = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE, square * t.count);
    }
    sx_code code = threads ? put_tiles(l, &t, l->lanes, l->lanes, emit_square) : put_bands(l, &t);
    l->self = NULL;
    return code;
}

sx_code sx_lower_map(sx_lower *l)
{
    uint32_t outer[SX_RANK_MAX];
    uint32_t outer_count = 0;
    const sx_schedule *schedule = l->schedule;
    uint32_t width = sx_schedule_width(schedule);
    SX_TRY((width > 1 ? sx_lower_match_map_wide : sx_lower_match_map)(l->cx, schedule,
                                                                      l->kernel->name));
    int64_t line = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0) / l->lanes;
    if (width > 1 && (line > LINE_MAX || line % width != 0)) {
        return SX_FAIL(l->cx, SX_INPUT, "kernel %s: %lld elements of a lane in line, at most %d",
                       l->kernel->name, (long long)line, LINE_MAX);
    }
    bool whole = l->unit != NULL; /* moves have no unit */
    uint32_t turned = whole ? sx_schedule_turned_rows(l->analysis, schedule) : SX_NO_DIM;
    if (turned != SX_NO_DIM) {
        return lower_turned(l, turned);
    }
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_MAP, NULL, 0);
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (d != l->vector_dim) {
            outer[outer_count++] = d;
        }
    }
    int64_t step = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t tile = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    int64_t rows = sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    tile = sx_ceil_div_i64(tile, step) * step;
    return sx_lower_parts(l, outer, outer_count, rows, l->vector_dim, tile, emit_row);
}
