/* space.h - the schedules of one kind of kernel, sieved. Internal to core/search. */
#ifndef SX_CORE_SEARCH_SPACE_H
#define SX_CORE_SEARCH_SPACE_H
#include <math.h>

#include "core/search/search.h"

typedef struct {
    sx_ctx *cx;
    const sx_device *device;
    const sx_analysis *a;
    bool rhs_constant;
    sx_search_result *result;
    bool all; /* nothing is dropped because of a bound */
    /* Blocks by matrix instructions: the most elements of the result that a warp (or group) holds; 0: any. */
    int64_t held_max;
    sx_search_sides sides;
    bool rest; /* all places are filled, where the first step leaves some for sx_search_rest */
} sx_search_space;

/* `count` points of the space are dropped in one phase, whose counter is given. */
sx_code sx_search_drop(sx_search_space *space, uint32_t *phase, uint32_t count);
/* One schedule is priced and kept if it is among the best; one that costs so much, is. */
sx_code sx_search_price(sx_search_space *space, const sx_schedule *schedule);
sx_code sx_search_keep(sx_search_space *space, const sx_schedule *schedule, double ns);
/* A schedule of this price would not be among the best; HUGE_VAL: any would. */
static inline double sx_search_dearest(const sx_search_space *space)
{
    const sx_search_result *result = space->result;
    bool any = space->all || result->best_count < result->keep;
    return any ? HUGE_VAL : result->best[result->keep - 1].cost_ns;
}

/* Would a schedule of this price be among the best? */
static inline bool sx_search_wants(const sx_search_space *space, double ns)
{
    const sx_search_result *result = space->result;
    return space->all || result->best_count < result->keep ||
           ns < result->best[result->keep - 1].cost_ns;
}

sx_code sx_search_dot(sx_search_space *space);
sx_code sx_search_online(sx_search_space *space);
sx_code sx_search_rows(sx_search_space *space);
/* Contractions that blocks of threads can compute: of one row, one column and one summed dimension at most. */
bool sx_search_takes_blocks(const sx_analysis *a);
sx_code sx_search_blocks(sx_search_space *space, const sx_matrix_instruction *matrix);
/* online_block_space.c: the instruction by which blocks compute attention, one of `matrix`, or NULL. */
const sx_matrix_instruction *
sx_search_online_matrix(const sx_analysis *a, const sx_matrix_instruction *matrix, uint32_t count);
/* The keys of a piece where that instruction (NULL: none) makes an online sum in pieces on a device with the laws of
 * blocks; else 0. */
int64_t sx_search_online_piece(const sx_analysis *a, const sx_device *device,
                               const sx_matrix_instruction *matrix);
sx_code sx_search_online_blocks(sx_search_space *space, const sx_matrix_instruction *matrix);
#endif
