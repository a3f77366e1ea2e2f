/* online_block_space.c - attention and its gradients by blocks of threads. Which kernels are taken, and how many keys
 * a stage of attention has, follow from types, head sizes and the target alone: they belong to the numerics plan. Rows
 * and stages are free. */
#include "core/cost/online_blocks.h"
#include "core/kernel/online_pieces.h"
#include "core/search/space.h"

#define HEAD_MAX 256
#define STAGE_KEYS 64 /* of heads up to 128 */
#define LARGE_HEAD 128
#define SMALL_HEAD 64
#define LARGE_HEAD_KEYS 32

static const int64_t rows_of[] = {128, 64, 32, 16};
static const uint32_t depths[] = {2, 3};

/* Weights are rounded to the type of the values. Which kernels allow that: those whose result is rounded so, be it of
 * sums of pieces, and those whose weights are elements of that type already. */
static bool may_round(const sx_analysis *a, sx_dtype factor)
{
    bool rounded = a->kind == SX_KERNEL_NESTED && a->body->instr[a->scores].dtype == factor;
    return a->result.dtype == factor || a->statistic != NULL || rounded;
}

static int64_t head_of(const sx_analysis *a)
{
    return sx_max_i64(a->extent[SX_ROLE_INNER], a->extent[SX_ROLE_COLUMN]);
}

const sx_matrix_instruction *
sx_search_online_matrix(const sx_analysis *a, const sx_matrix_instruction *matrix, uint32_t count)
{
    sx_online_blocks b;
    if (!sx_online_blocks_take(a, &b) || head_of(a) > HEAD_MAX ||
        (b.two && head_of(a) > LARGE_HEAD)) {
        return NULL;
    }
    sx_dtype factor = a->input[a->value].dtype;
    bool same = may_round(a, factor);
    for (uint32_t i = 0; i < a->product_count; i++) {
        same = same && a->input[a->product[i].lhs].dtype == factor &&
               a->input[a->product[i].rhs].dtype == factor;
    }
    for (uint32_t i = 0; i < count && same; i++) {
        if (matrix[i].factor == factor && matrix[i].sum == SX_F32) {
            return &matrix[i];
        }
    }
    return NULL;
}

static sx_online_blocks smallest(const sx_analysis *a, const sx_matrix_instruction *matrix)
{
    int64_t head = head_of(a);
    sx_online_blocks b = {.matrix_rows = matrix->rows,
                          .matrix_columns = matrix->columns,
                          .matrix_steps = matrix->steps,
                          .rows = matrix->rows,
                          .warp_rows = matrix->rows,
                          .keys = head > LARGE_HEAD ? LARGE_HEAD_KEYS : STAGE_KEYS,
                          .depth = depths[0]};
    bool taken = sx_online_blocks_take(a, &b);
    SX_ASSERT(taken);
    if (b.two &&
        head >
            SMALL_HEAD) { /* a thread holds the scores of both products; of longer heads too many */
        b.keys /= 2;
    }
    return b;
}

int64_t sx_search_online_piece(const sx_analysis *a, const sx_device *device,
                               const sx_matrix_instruction *matrix)
{
    int64_t piece = matrix != NULL ? sx_online_piece(a) : 0;
    sx_online_blocks b = matrix != NULL ? smallest(a, matrix) : (sx_online_blocks){0};
    return piece != 0 && piece % b.keys == 0 && sx_online_blocks_resident(device, a, &b) > 0 ? piece
                                                                                             : 0;
}

/* Blocks of all numbers of rows and stages, with so many keys of a stage. */
static sx_code offer(sx_search_space *space, sx_online_blocks b)
{
    const sx_analysis *a = space->a;
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

sx_code sx_search_online_blocks(sx_search_space *space, const sx_matrix_instruction *matrix)
{
    const sx_analysis *a = space->a;
    sx_online_blocks b = smallest(a, matrix);
    SX_TRY(offer(space, b));
    b.keys /= 2; /* free in a nested contraction: a thread then holds fewer scores */
    return a->kind == SX_KERNEL_NESTED ? offer(space, b) : SX_OK;
}
