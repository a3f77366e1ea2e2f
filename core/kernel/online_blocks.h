/* online_blocks.h - the schedule of an online sum, or of a nested contraction, by blocks of threads: attention and its
 * gradients on matrix instructions.
 *
 * `grid(b, m/64) loop(k/64) warp(m/16) matrix(m/16, n/8, k/16, d/16) stage(arg0: shared, arg1: shared x2, arg2: shared
 * x2)` reads: a block has 64 rows (queries), its warps 16 each, and goes through the keys 64 at a time; scores and
 * weighted sums are made by an instruction of 16 x 8 x 16; queries lie in shared memory, keys and values pass through a
 * ring of 2 stages. All columns of the values belong to one block.
 *
 * In a nested contraction "keys" are the elements of the outer sum, whatever they are in the program that was written:
 * in the gradient of the keys of attention, rows are keys and the outer sum runs over the queries. Where it has a
 * second inner contraction, the arguments of that one stand behind the others, `arg3: shared, arg4: shared x2`. */
#ifndef SX_CORE_KERNEL_ONLINE_BLOCKS_H
#define SX_CORE_KERNEL_ONLINE_BLOCKS_H
#include "core/kernel/kernel.h"

typedef struct {
    /* The shape of the matrix instruction. */
    uint32_t matrix_rows, matrix_columns, matrix_steps;
    /* The rows of a block and of each of its warps. */
    int64_t rows, warp_rows;
    /* Keys of a stage. In an online sum this belongs to the numerics plan. */
    int64_t keys;
    /* Stages of the ring. */
    uint32_t depth;
    /* The arguments, all different: those of the first inner product of the analysis, and `value`. */
    uint32_t query, key, value;
    /* Of a nested contraction with two inner ones: the arguments of the second one. */
    bool two;
    uint32_t second_query, second_key;
} sx_online_blocks;

/* The arguments of an online sum or a nested contraction by blocks; the numbers are left alone. false: it is none, or
 * not over one dimension of keys and one inner one, or two of the arguments are the same. */
bool sx_online_blocks_take(const sx_analysis *analysis, sx_online_blocks *blocks);
void sx_schedule_online_blocks(const sx_online_blocks *blocks, sx_schedule *s);
/* The numbers that a schedule was made of; false: it is not of this form. */
bool sx_online_blocks_of(const sx_schedule *s, sx_online_blocks *blocks);

/* online_horizon.c: does the body make the score of each key behind row + *ahead minus infinity, whatever numbers it is
 * made of, as a causal mask does that is computed from the positions? A mask in memory says nothing of itself. */
#define SX_HORIZON_MAX (INT64_C(1) << 29) /* of rows, keys, and the distance between them */
bool sx_online_horizon(const sx_analysis *analysis, int64_t *ahead);
#endif
