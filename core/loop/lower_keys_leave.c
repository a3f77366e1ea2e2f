/* lower_keys_leave.c - the end of a grid point of lower_keys.c: its rows leave with lanes along the columns, through
 * the rest of the program. */
#include "core/loop/lower_keys.h"

#include <string.h>

uint32_t sx_keys_held(sx_lower *l, const sx_keys *o, int64_t table, const sx_affine *line,
                      uint32_t v, const sx_affine *column)
{
    sx_addr a = sx_keys_at(l, o, table, column, v);
    uint32_t none = SX_NO_REG;
    if (line == NULL) {
        return sx_keys_load(l, &a);
    }
    a.offset += 4 * line->constant;
    for (uint32_t i = 0; i < SX_LOOP_VARS_MAX; i++) {
        a.coef[i] += 4 * line->coef[i];
    }
    bool across = column != NULL && o->column != SX_NO_DIM && l->vector_dim == o->column;
    return across
               ? sx_loop_op(&l->b, SX_LOP_LOADS, none, &a, none, none, none, l->valid, 4 * o->width)
               : sx_loop_op(&l->b, SX_LOP_LOADB, none, &a, none, none, none, 0, 0);
}

static void leave(sx_lower *l, const sx_keys *o, const sx_affine *line, uint32_t v)
{
    sx_lower_move(l);
    o->give(l, o, line, v);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    memset(l->have, 0, sizeof(l->have));
}

/* Rows that are contiguous in the result, column by column. */
static void leave_in_lanes(sx_lower *l, const sx_keys *o)
{
    bool opened =
        o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_keys_to_vector(l, o, v);
        leave(l, o, NULL, v);
        sx_keys_from_vector(l, o, v);
    }
    sx_lower_close(l, o->column, opened);
}

/* Neither rows nor columns are contiguous in the result: number by number. */
static void leave_alone(sx_lower *l, const sx_keys *o, const sx_affine *line)
{
    bool opened =
        o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
    l->vector_dim = SX_NO_DIM;
    l->valid = 1;
    leave(l, o, line, 0);
    l->vector_dim = o->row;
    sx_lower_close(l, o->column, opened);
}

static void leave_row(sx_lower *l, const sx_keys *o, const sx_affine *line)
{
    uint32_t d = o->column;
    if (d == SX_NO_DIM || l->view.out_stride[d] != 1) {
        leave_alone(l, o, line);
        return;
    }
    int64_t extent = l->view.extent[d];
    int64_t whole = extent / l->lanes;
    l->vector_dim = d;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        l->valid = l->lanes;
        leave(l, o, line, 0);
        sx_lower_close(l, d, opened);
    }
    if (extent > whole * l->lanes) {
        sx_keys_shift(l, d, whole * l->lanes);
        l->valid = (uint32_t)(extent - whole * l->lanes);
        leave(l, o, line, 0);
        sx_keys_shift(l, d, -whole * l->lanes);
    }
    l->vector_dim = o->row;
}

static void leave_rows(sx_lower *l, const sx_keys *o)
{
    sx_affine line = {0};
    bool any = l->analysis->steady && o->rows < o->width && o->row != SX_NO_DIM;
    bool opened = o->rows > 1 || any;
    if (opened) {
        uint32_t v = any ? sx_loop_open_any(&l->b, o->rows) : sx_loop_open(&l->b, o->rows);
        l->at[o->row].coef[v] = 1;
        line.coef[v] = 1;
    }
    leave_row(l, o, &line);
    sx_lower_close(l, o->row, opened);
}

void sx_keys_leave(sx_lower *l, const sx_keys *o)
{
    bool contiguous = o->row == SX_NO_DIM || l->view.out_stride[o->row] == 1;
    bool columns = o->column != SX_NO_DIM && l->view.out_stride[o->column] == 1;
    if (contiguous && !columns) {
        leave_in_lanes(l, o);
    } else {
        leave_rows(l, o);
    }
}
