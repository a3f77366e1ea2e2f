/* online_block_space.c - attention by blocks of threads. Which kernels are taken, and how many keys a stage has, follow
 * from types, head sizes and the target alone: they belong to the numerics plan. Rows and stages are free. */
#include "core/cost/online_blocks.h"
#include "core/kernel/online_pieces.h"
#include "core/search/space.h"

#define HEAD_MAX 256
#define STAGE_KEYS 64 /* of heads up to 128 */
#define LARGE_HEAD 128
#define LARGE_HEAD_KEYS 32

static const int64_t rows_of[] = {128, 64, 32, 16};
static const uint32_t depths[] = {2, 3};

const sx_matrix_instruction *
sx_search_online_matrix(const sx_analysis *a, const sx_matrix_instruction *matrix, uint32_t count)
{
    uint32_t inner = 0;
    for (uint32_t d = 0; d < a->view.rank; d++) {
        inner += a->role[d] == SX_ROLE_INNER;
    }
    if (a->kind != SX_KERNEL_ONLINE || a->refusal != NULL || a->dot == SX_NO_INSTR ||
        a->value == SX_NO_INSTR || inner != 1 || a->extent[SX_ROLE_INNER] > HEAD_MAX ||
        a->extent[SX_ROLE_COLUMN] > HEAD_MAX || a->lhs == a->rhs || a->lhs == a->value ||
        a->rhs == a->value) {
        return NULL;
    }
    /* Weights are rounded to the type of the values: that is allowed where the result is, be it of sums of pieces. */
    sx_dtype factor = a->input[a->lhs].dtype;
    bool same = a->input[a->rhs].dtype == factor && a->input[a->value].dtype == factor &&
                (a->result.dtype == factor || a->statistic != NULL);
    for (uint32_t i = 0; i < count && same; i++) {
        if (matrix[i].factor == factor && matrix[i].sum == SX_F32) {
            return &matrix[i];
        }
    }
    return NULL;
}

static sx_online_blocks smallest(const sx_analysis *a, const sx_matrix_instruction *matrix)
{
    int64_t head = sx_max_i64(a->extent[SX_ROLE_INNER], a->extent[SX_ROLE_COLUMN]);
    return (sx_online_blocks){.matrix_rows = matrix->rows,
                              .matrix_columns = matrix->columns,
                              .matrix_steps = matrix->steps,
                              .rows = matrix->rows,
                              .warp_rows = matrix->rows,
                              .keys = head > LARGE_HEAD ? LARGE_HEAD_KEYS : STAGE_KEYS,
                              .depth = depths[0],
                              .query = a->lhs,
                              .key = a->rhs,
                              .value = a->value};
}

int64_t sx_search_online_piece(const sx_analysis *a, const sx_device *device,
                               const sx_matrix_instruction *matrix)
{
    int64_t piece = matrix != NULL ? sx_online_piece(a) : 0;
    sx_online_blocks b = matrix != NULL ? smallest(a, matrix) : (sx_online_blocks){0};
    return piece != 0 && piece % b.keys == 0 && sx_online_blocks_resident(device, a, &b) > 0 ? piece
                                                                                             : 0;
}

sx_code sx_search_online_blocks(sx_search_space *space, const sx_matrix_instruction *matrix)
{
    const sx_analysis *a = space->a;
    sx_online_blocks b = smallest(a, matrix);
    for (uint32_t r = 0; r < SX_COUNT(rows_of); r++) {
        for (uint32_t d = 0; d < SX_COUNT(depths); d++) {
            b.rows = rows_of[r];
            b.depth = depths[d];
            bool empty = r + 1 < SX_COUNT(rows_of) && b.rows >= 2 * a->extent[SX_ROLE_ROW];
            bool fits = !empty && sx_online_blocks_resident(space->device, a, &b) > 0;
            if (!fits) {
                SX_TRY(sx_search_drop(space,
                                      empty ? &space->result->dropped_alignment
                                            : &space->result->dropped_resources,
                                      1));
                continue;
            }
            sx_schedule schedule;
            sx_schedule_online_blocks(&b, &schedule);
            SX_TRY(sx_search_keep(space, &schedule, sx_cost_online_blocks(space->device, a, &b)));
        }
    }
    return SX_OK;
}
