/* online_layouts.c - which thread holds what of an online sum or a nested contraction. */
#include "core/tile/fragment.h"
#include "core/tile/lower_inside.h"
#include "core/tile/online.h"

/* Columns of a layout are added in the order of its homes. */
static void put(sx_layout *layout, sx_home home, uint32_t at)
{
    uint32_t n = sx_layout_input_bits(layout);
    SX_ASSERT(n < SX_LAYOUT_BITS_MAX);
    layout->column[n] = at;
    layout->bits[home]++;
}

static void put_bits(sx_layout *layout, sx_home home, sx_side side, int64_t first, int64_t end)
{
    for (int64_t x = first; x < end; x *= 2) {
        put(layout, home, side == SX_SIDE_ROW ? SX_AT(x, 0) : SX_AT(0, x));
    }
}

/* Fragments side by side in registers, along `side` from `first` up to below `end`; warps stand one below the other,
 * `warp_rows` apart along `down`, or hold the same. */
typedef struct {
    sx_operand operand;
    bool turned;
    sx_side side;
    int64_t first, end;
    int64_t rows, columns;
    int64_t warp_rows;
    sx_side down;
} fragments;

static sx_code hold(sx_ctx *cx, const sx_tile *tile, const fragments *f, sx_layout *layout)
{
    const sx_matrix_instruction *m = tile->matrix;
    sx_layout atom;
    SX_TRY(sx_fragment_find(cx, SX_MMA_SYNC, f->operand, m->factor, m->columns, m->steps, &atom));
    atom = f->turned ? sx_layout_transpose(&atom) : atom;
    *layout = (sx_layout){
        .side_bits = {(uint8_t)sx_tile_log2(f->rows), (uint8_t)sx_tile_log2(f->columns)}};
    for (uint32_t i = 0; i < atom.bits[SX_HOME_REGISTER]; i++) {
        put(layout, SX_HOME_REGISTER, atom.column[i]);
    }
    put_bits(layout, SX_HOME_REGISTER, f->side, f->first, f->end);
    for (uint32_t i = 0; i < atom.bits[SX_HOME_LANE]; i++) {
        put(layout, SX_HOME_LANE, atom.column[atom.bits[SX_HOME_REGISTER] + i]);
    }
    for (uint32_t w = 1; w < tile->threads / 32; w *= 2) {
        int64_t at = f->warp_rows * w;
        put(layout, SX_HOME_WARP, f->down == SX_SIDE_ROW ? SX_AT(at, 0) : SX_AT(0, at));
    }
    return sx_layout_check(cx, layout);
}

sx_code sx_tile_online_layouts(sx_ctx *cx, const sx_tile *tile, sx_tile_online_layout *layouts)
{
    const sx_matrix_instruction *m = tile->matrix;
    const sx_tile_operand *values = &tile->operand[SX_TILE_RIGHT];
    SX_ASSERT(m != NULL && tile->online->query != NULL);
    int64_t rows = tile->online->query->block_rows, stage = tile->block_steps,
            columns = tile->block_columns;
    const fragments scores = {SX_OPERAND_C, false, SX_SIDE_COLUMN, m->columns, stage,
                              rows,         stage, m->rows,        SX_SIDE_ROW};
    const fragments sums = {SX_OPERAND_C, false,   SX_SIDE_COLUMN, m->columns, columns,
                            rows,         columns, m->rows,        SX_SIDE_ROW};
    const fragments right = {SX_OPERAND_B,
                             values->sum_inner,
                             values->sum_inner ? SX_SIDE_ROW : SX_SIDE_COLUMN,
                             m->columns,
                             columns,
                             values->sum_inner ? columns : m->steps,
                             values->sum_inner ? m->steps : columns,
                             0,
                             SX_SIDE_ROW};
    *layouts = (sx_tile_online_layout){.scores = {.mode_count = 0}};
    SX_TRY(hold(cx, tile, &scores, &layouts->scores));
    SX_TRY(hold(cx, tile, &sums, &layouts->sums));
    SX_TRY(hold(cx, tile, &right, &layouts->operand[SX_TILE_RIGHT]));
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        uint32_t which = i == 0 ? SX_TILE_LEFT : SX_TILE_SECOND;
        bool q = sx_tile_query(tile, i)->operand[SX_TILE_LEFT].sum_inner;
        bool key = tile->operand[which].sum_inner;
        const fragments query = {SX_OPERAND_A,
                                 !q,
                                 SX_SIDE_ROW,
                                 1,
                                 1,
                                 q ? rows : m->steps,
                                 q ? m->steps : rows,
                                 m->rows,
                                 q ? SX_SIDE_ROW : SX_SIDE_COLUMN};
        /* the side of this product is what the ring calls its sum */
        const fragments keys = {SX_OPERAND_B,
                                !key,
                                key ? SX_SIDE_COLUMN : SX_SIDE_ROW,
                                m->columns,
                                stage,
                                key ? m->steps : stage,
                                key ? stage : m->steps,
                                0,
                                SX_SIDE_ROW};
        SX_TRY(hold(cx, tile, &query, &layouts->query[i]));
        SX_TRY(hold(cx, tile, &keys, &layouts->operand[which]));
    }
    return SX_OK;
}
