/* tile_scores.h - inside core/nvidia: what tile_scores.c and tile_online.c share of a block whose tile is an online sum
 * or a nested contraction. */
#ifndef SX_CORE_NVIDIA_TILE_SCORES_H
#define SX_CORE_NVIDIA_TILE_SCORES_H
#include "core/nvidia/tile_inside.h"
#include "core/tile/online.h"

#define SX_ONLINE_ROWS 2    /* of a thread */
#define SX_ONLINE_C_WORDS 4 /* registers of a thread for the sums of one instruction, */
#define SX_ONLINE_A_WORDS 4 /* its left factor */
#define SX_ONLINE_B_WORDS 2 /* and its right one */

/* The program of an element with registers and pointers of its own. */
typedef struct {
    const sx_part *part;
    sx_ptx_arg *vector, *mask, *scalar;
    sx_nvidia_pointer *pointer;
    uint32_t pointer_count;
    uint32_t *pointer_of;
} sx_nvidia_program;

typedef struct sx_nvidia_online {
    const sx_tile_online *of;
    sx_nvidia_program scores[2], power, map, statistic;
    /* By inner product: where its queries lie, their words (of all steps of d, where the query stays; else of one), and
     * the scores, by register of of->held. */
    sx_nvidia_places query[SX_TILE_PRODUCTS_MAX];
    sx_matrix_move query_move[SX_TILE_PRODUCTS_MAX];
    sx_ptx_arg *query_word[SX_TILE_PRODUCTS_MAX];
    sx_ptx_arg *score[SX_TILE_PRODUCTS_MAX];
    sx_ptx_arg total[SX_ONLINE_C_WORDS];
    sx_ptx_arg maximum[SX_ONLINE_ROWS], factor[SX_ONLINE_ROWS];
    sx_ptx_arg ones; /* two of the type of the values */
    sx_ptx_arg rows_left, own_key;
    /* How many stages the block and the thread's warp pass; NONE: all. */
    sx_ptx_arg block_stages, warp_stages;
} sx_nvidia_online;

/* A right factor of a step: its words are loaded, and what is complete is multiplied at once. */
typedef struct {
    uint32_t which;       /* of the ring */
    uint32_t row, column; /* where in the slot the step begins */
    bool columns_are_k;   /* along the slot's columns runs what is summed */
    const sx_ptx_arg *left;
    sx_ptx_arg *sum;
    uint32_t end; /* columns of the product that are needed */
} sx_nvidia_product;

/* ---- programs of elements ---- */
sx_code sx_nvidia_make_program(sx_nvidia_block *k, const sx_part *part, sx_nvidia_program *p);
void sx_nvidia_enter(sx_nvidia_block *k, const sx_nvidia_program *p);
/* Pointers of the thread's first element. */
void sx_nvidia_start_pointers(sx_nvidia_block *k, sx_nvidia_program *p);
void sx_nvidia_run(sx_nvidia_block *k);
/* Whether so much is left of a side behind the thread's element at `at`, and `with`; NONE stands for true. */
sx_ptx_arg sx_nvidia_left(sx_nvidia_block *k, sx_ptx_arg left, uint32_t at, sx_ptx_arg with);
sx_ptx_arg sx_nvidia_rest(sx_nvidia_block *k, int64_t extent, sx_ptx_arg own);

/* `count` registers of 32 bits, which hold `value` where it is not NULL. */
sx_code sx_nvidia_make_words(sx_nvidia_block *k, uint32_t count, const int64_t *value,
                             sx_ptx_arg **word);
/* Registers of the queries, of factors, scores and sums; the sums are 0. */
sx_code sx_nvidia_make_score_words(sx_nvidia_block *k);

/* ---- products ---- */
/* How ldmatrix gets queries and factors of the ring. */
sx_code sx_nvidia_find_moves(sx_nvidia_block *k);
/* Starts the copies of the queries, which are one group. */
void sx_nvidia_fetch_queries(sx_nvidia_block *k);
void sx_nvidia_put_product(sx_nvidia_block *k, const sx_nvidia_product *p);
/* The inner products of `keys` keys of the stage that is read. */
void sx_nvidia_put_scores(sx_nvidia_block *k, uint32_t keys);
/* Row and column of the layout's register `r` from the first of the thread. */
static inline uint32_t sx_nvidia_row_of(const sx_layout *held, uint32_t r, uint32_t *column)
{
    uint32_t at = sx_layout_apply(held, &(sx_place){{r}});
    *column = sx_at_column(at);
    return sx_at_row(at);
}
#endif
