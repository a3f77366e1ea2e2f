/* online.h - one block's program of an online sum, or of a nested contraction: attention and its gradients by matrix
 * instructions.
 *
 * A tile (core/tile/program.h) that has one of these computes, for each query row of each batch,
 *
 *     score[key] = scores(sum over d of query[row, d] * key[d, key])
 *     m = the maximum of score         l = sum over keys of w[key]         w[key] = e^(score[key] - m)
 *     a[column] = sum over keys of w[key] * value[key, column]
 *
 * and then `map` for each column, which makes of a, l and m (registers 0, 1 and 2) an element of the result.
 *
 * The tile itself says how keys and values pass through the ring: `sum` counts keys, `rows` the inner dimension and
 * `columns` those of the values; `left` are the keys with the inner dimension as their side, `right` the values. The
 * tile of the queries is loaded once, before the first stage. MULTIPLY makes of a stage
 *
 *     scores of its keys, by matrix instructions in ascending groups of d; beyond the last key they are minus infinity
 *     m' = the maximum of m and the scores, f = e^(m - m'); m is the lowest finite number at first
 *     w = e^(score - m'), rounded to the type of the values
 *     l = l * f + the sum of w, a = a * f + the sum of w * value, by matrix instructions in ascending groups of keys;
 *         l is a column of a whose values are 1
 *
 * Weights are rounded before both sums, so that what stands above and below a quotient is rounded alike. Sums are in
 * f32. The order belongs to the instruction, the number of keys of a stage and the extents of d and of the keys: not to
 * rows, batch or the threads of a block. With a horizon, a warp leaves out each stage of which none of its rows sees a
 * key, and a block does not fetch those that all of its warps leave out: m would stay what it is, f be 1 and each w 0.
 * Which stages a row passes follows from its number in steps of the rows of a warp, those of the instruction, so the
 * order above stays that of the plan; what a key holds that no row of a warp sees is not looked at, not even where it
 * is no number (docs/decisions). A warp has whole rows, so that no sum crosses warps, and its scores are
 * already where the second product wants its left factor: the fragment of C of two instructions is that of A of one.
 *
 * A nested contraction (core/ir/fused.h) is `nested`: what `scores` makes is the weight itself,
 *
 *     score[key] = scores(sum over d of query[row, d] * key[d, key], and of second query and second key)
 *     a[column] = sum over keys of score[key], rounded to the type of the values, * value[key, column]
 *
 * and `map` makes of a (register 0) an element of the result. There is neither m nor l; beyond the last key the score
 * is 0. The sum is made in ascending groups of keys, so that it does not depend on how many keys a stage has, either.
 * Where there are two inner contractions, operand SX_TILE_SECOND passes through the ring beside keys and values,
 * `second` has the queries of it, and `scores` is given its sum in register 1.
 *
 * Papers: Dao 2022 and 2023 (FlashAttention, FlashAttention-2); Milakov, Gimelshein 2018. */
#ifndef SX_CORE_TILE_ONLINE_H
#define SX_CORE_TILE_ONLINE_H
#include "core/kernel/online_blocks.h"
#include "core/tile/program.h"

/* A program of one element: register 0 is given, `result` is the register of what comes out. */
typedef struct {
    sx_part part;
    uint32_t result;
} sx_tile_value;

#define SX_TILE_PRODUCTS_MAX 2

struct sx_tile_online {
    bool nested;
    /* Of a nested contraction: scores are elements of the type of the values already. */
    bool rounded;
    /* The queries: rows of the result as its rows, d as its sum, which one stage of its ring holds whole. Slot 0 is
     * that of its left argument; it has no right one. */
    const sx_tile *query;
    /* Of a nested contraction with two inner ones, the queries of the second one, likewise; else NULL. */
    const sx_tile *second;
    /* From the product of query and key to the score; f32. [0] is of whole stages, [1] of the last one if it has fewer
     * keys. Variables are the row, the batch as in `map`, and behind it in [0] the number of the stage, and the key in
     * its stage: sx_tile_stage_variable and the next one. */
    sx_tile_value scores[2];
    /* e^x; of an online sum. */
    sx_tile_value power;
    /* Which thread holds which score of the block's rows and a stage's keys. */
    sx_layout held;
    /* Query fragments stay in registers. */
    bool query_stays;
    /* The scores of keys behind row + ahead are minus infinity, whatever numbers they are made of; false: nothing is
     * known of them. A warp whose last row is r, counted on where the matrix has ended, passes the stages up to that of
     * key r + ahead; a block those of its last warp, and the first one in any case. */
    bool has_horizon;
    int64_t ahead;
    /* Of a sum of pieces of the keys, which are a dimension of the batch: a program of each row beside `map`, which
     * reads l and m and stores one element of the kernel's second result. NULL: there is none. */
    const sx_part *statistic;
};
enum { SX_TILE_VALUE_SUM, SX_TILE_WEIGHT_SUM, SX_TILE_MAXIMUM, SX_TILE_ONLINE_SUMS };

/* How many inner products a score is made of, and the queries of each. */
static inline uint32_t sx_tile_products(const sx_tile *tile)
{
    return tile->online->second != NULL ? 2 : 1;
}
static inline const sx_tile *sx_tile_query(const sx_tile *tile, uint32_t product)
{
    return product == 0 ? tile->online->query : tile->online->second;
}
/* How many registers `map` is given. */
static inline uint32_t sx_tile_sums(const sx_tile *tile)
{
    return tile->online->nested ? 1 : SX_TILE_ONLINE_SUMS;
}

static inline uint32_t sx_tile_stage_variable(const sx_tile *tile)
{
    return SX_TILE_VAR_BATCH + tile->batch_count;
}

/* lower_online.c: an online sum under a schedule of sx_schedule_online_blocks. Buffers as sx_tile_lower_dot.
 *   errors   those of sx_tile_lower_dot */
sx_code sx_tile_lower_online(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *analysis, const sx_schedule *schedule,
                             sx_kernel **kernel);
/* lower_nested.c: a nested contraction under such a schedule.
 *   errors   those of sx_tile_lower_dot */
sx_code sx_tile_lower_nested(sx_ctx *cx, const sx_tile_unit *unit, const char *name,
                             const sx_analysis *analysis, const sx_schedule *schedule,
                             sx_kernel **kernel);
/* online_layouts.c: the layouts of scores, sums and fragments, as they follow from the sides of the block; by operand
 * of the ring, and those of the queries of each product. */
typedef struct {
    sx_layout scores, sums;
    sx_layout operand[SX_TILE_OPERANDS_MAX], query[SX_TILE_PRODUCTS_MAX];
} sx_tile_online_layout;
sx_code sx_tile_online_layouts(sx_ctx *cx, const sx_tile *tile, sx_tile_online_layout *layouts);
/* check_online.c, for sx_tile_check. */
sx_code sx_tile_check_online(sx_ctx *cx, const sx_kernel *kernel, const sx_part *part);
/* unfold_online.c: as sx_tile_unfold, one part. */
sx_code sx_tile_unfold_online(sx_ctx *cx, const sx_tile *tile, sx_kernel *kernel);
#endif
