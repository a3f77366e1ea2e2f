/* lower_slices.c - contractions whose slices of k are made by different blocks: the two kernels. */
#include <string.h>

#include "core/loop/lower.h"
#include "core/tile/program.h"

#define COMBINE_COLUMNS 32 /* of a grid point of the launch that adds: a vector */

static sx_code read_slices(sx_ctx *cx, const sx_analysis *a, const sx_schedule *schedule,
                           sx_block_tiles *tiles, sx_slices **slices)
{
    SX_TRY(sx_schedule_check(cx, schedule, a));
    if (!sx_block_tiles_of(schedule, tiles) || !tiles->apart) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "a schedule without slices of different blocks");
    }
    *slices = SX_NEW(cx, sx_slices);
    return *slices != NULL ? sx_slices_make(cx, a, tiles->slice, *slices) : cx->error.code;
}

/* The instruction of the tiles, for these factors; NULL: there is none. */
static const sx_matrix_instruction *matrix_of(const sx_tile_unit *unit, const sx_analysis *a,
                                              const sx_block_tiles *t)
{
    for (uint32_t i = 0; i < unit->matrix_count; i++) {
        const sx_matrix_instruction *m = &unit->matrix[i];
        if (m->factor == a->input[a->lhs].dtype && m->factor == a->input[a->rhs].dtype &&
            m->sum == SX_F32 && m->rows == t->matrix_rows && m->columns == t->matrix_columns &&
            m->steps == t->matrix_steps) {
            return m;
        }
    }
    return NULL;
}

static sx_code check_plan(sx_ctx *cx, const sx_tile_unit *unit, const sx_analysis *a,
                          const sx_block_tiles *t, const sx_matrix_instruction **matrix)
{
    *matrix = matrix_of(unit, a, t);
    bool planned = *matrix != NULL && sx_matrix_slice(*matrix, a->extent[SX_ROLE_SUM]) == t->slice;
    return planned
               ? SX_OK
               : SX_FAIL(cx, SX_UNIMPLEMENTED, "slices of %lld are not those of the numerics plan",
                         (long long)t->slice);
}

sx_code sx_tile_lower_slices(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_block_tiles tiles;
    sx_slices *slices;
    sx_schedule own;
    const sx_matrix_instruction *matrix;
    SX_TRY(read_slices(cx, a, schedule, &tiles, &slices));
    SX_TRY(check_plan(cx, unit, a, &tiles, &matrix));
    sx_matrix_instruction *whole = SX_NEW(cx, sx_matrix_instruction);
    if (whole == NULL) {
        return cx->error.code;
    }
    *whole = *matrix;
    whole->slice_least = 0; /* a slice is summed in one chain, however long it is */
    sx_tile_unit of_slices = *unit;
    of_slices.matrix = whole;
    of_slices.matrix_count = 1;
    tiles.slice = 0;
    tiles.apart = false;
    const sx_analysis *partial = &slices->partial_analysis;
    tiles.left = tiles.swapped ? partial->rhs : partial->lhs;
    tiles.right = tiles.swapped ? partial->lhs : partial->rhs;
    sx_schedule_block(&tiles, &own);
    return sx_tile_lower_dot(cx, &of_slices, name, &slices->partial_analysis, &own, kernel);
}

sx_code sx_tile_lower_combine(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                              const sx_analysis *a, const sx_schedule *schedule, sx_kernel **kernel)
{
    sx_block_tiles tiles;
    sx_slices *slices;
    sx_schedule own;
    const sx_matrix_instruction *matrix;
    SX_TRY(read_slices(cx, a, schedule, &tiles, &slices));
    SX_TRY(check_plan(cx, unit, a, &tiles, &matrix));
    const sx_analysis *combine = &slices->combine_analysis;
    sx_schedule_row(unit->vectors->lanes, combine->lane_bytes, false, 1, COMBINE_COLUMNS, &own);
    SX_TRY(sx_lower_fused(cx, unit->vectors, name, combine, &own, kernel));
    (*kernel)->numerics = sx_tile_numerics(unit, a, matrix, tiles.slice);
    return SX_OK;
}

uint64_t sx_tile_numerics(const sx_tile_unit *unit, const sx_analysis *a,
                          const sx_matrix_instruction *matrix, int64_t slice)
{
    sx_vector_unit rounding = *unit->vectors;
    const int64_t sums[2] = {a->extent[SX_ROLE_SUM], slice};
    rounding.numerics = matrix != NULL ? matrix->numerics : rounding.numerics;
    sx_lower l;
    memset(&l, 0, sizeof(l));
    l.unit = &rounding;
    l.body = a->body;
    l.out_dtype = a->result.dtype;
    return sx_lower_numerics(&l, SX_KERNEL_DOT, sums, slice != 0 ? 2 : 1);
}
