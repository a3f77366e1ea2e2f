/* tile_walk.c - blocks that walk over the points of the grid: block n of g is the points n, n + g, n + 2 g ... The loop
 * of each role is written around what it does for one point; rings, and the slots of the result, go on from one point
 * to the next. How many blocks there are is read at run time, so that the text is right for every number of them. */
#include "core/nvidia/tile_inside.h"

/* (batch, row, column) of the blocks; or of blocks whose rows are visited together (group of rows, column, row). */
static void find_walked(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    sx_nvidia_split(k, k->walked, k->grid, 3, k->point);
    if (tile->raster > 0) {
        sx_ptx_arg group = k->point[0], row = k->point[2];
        k->point[2] = k->point[1];
        k->point[1] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), k->point[1], group,
                   sx_ptx_imm(tile->raster), row);
        k->point[0] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), k->point[0], sx_ptx_imm(0));
    }
}

void sx_nvidia_begin_walk(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    SX_ASSERT(tile->walkers > 0 && tile->by_engine && tile->online == NULL);
    k->walked = sx_ptx_register(b, SX_PTX_B32);
    k->next_point = sx_ptx_label(b);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_U32), k->walked,
               sx_nvidia_special(&k->l, SX_PTX_SPECIAL_CTAID_X));
    sx_ptx_place(b, k->next_point);
    find_walked(k);
    sx_nvidia_split(k, k->point[0], tile->batch, tile->batch_count, k->batch);
    k->first[0] = sx_nvidia_scaled(k, k->point[1], tile->block_rows);
    k->first[1] = sx_nvidia_scaled(k, k->point[2], tile->block_columns);
}

void sx_nvidia_end_walk(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    int64_t points;
    bool can = sx_grid_can_walk(k->grid, &points);
    sx_ptx_arg more = sx_ptx_register(b, SX_PTX_PRED);
    SX_ASSERT(can); /* so that no sum overflows */
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), k->walked, k->walked,
               sx_nvidia_special(&k->l, SX_PTX_SPECIAL_NCTAID_X));
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LT, SX_PTX_TYPE_U32), more, k->walked,
               sx_ptx_imm(points));
    sx_ptx_guard(b, more);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), k->next_point);
}
