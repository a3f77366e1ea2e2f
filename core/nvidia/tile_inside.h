/* tile_inside.h - what the files share that make PTX of a block's program. */
#ifndef SX_CORE_NVIDIA_TILE_INSIDE_H
#define SX_CORE_NVIDIA_TILE_INSIDE_H
#include "core/base/grid.h"
#include "core/nvidia/loop.h"
#include "core/nvidia/loop_inside.h"
#include "core/tile/fragment.h"
#include "core/tile/program.h"

#define SX_NVIDIA_KEYS_MAX 64

/* Where the threads of a layout find elements of a slot. An address is linear over GF(2) in the bits of thread and
 * register, apart from padded slots, where it is a sum. The bits that the threads' part leaves alone are an immediate;
 * for each value of the others there is a pointer. */
typedef struct {
    const sx_slot *slot;
    uint32_t element; /* bytes */
    uint32_t mask;    /* bits of the address within the slot that threads may set */
    uint32_t key[SX_NVIDIA_KEYS_MAX];
    sx_ptx_arg fixed[SX_NVIDIA_KEYS_MAX]; /* in stage 0 */
    sx_ptx_arg at[SX_NVIDIA_KEYS_MAX];    /* in the stage of this step */
    uint32_t count;
} sx_nvidia_places;

/* A factor on its way from its matrix into the ring. */
typedef struct {
    sx_nvidia_places places;
    sx_ptx_arg from; /* what the thread copies first, in the stage to come */
    sx_ptx_arg side_rest,
        sum_rest; /* elements from there to the end of the matrix, where tiles may cross it */
    sx_ptx_arg takes_part; /* not a surplus thread; NONE: there are none */
} sx_nvidia_copy;

typedef struct {
    sx_nvidia_lowering l; /* of the element's program; its builder writes all */
    const sx_tile *tile;
    sx_ptx_arg thread;   /* its number in the block */
    sx_ptx_arg memory;   /* the address of the block's shared memory */
    sx_ptx_arg shared;   /* of stage 0 */
    int64_t grid[3];     /* of the part */
    sx_ptx_arg point[3]; /* which point of it the block is */
    /* By operand: the index of its side with which the block begins. */
    sx_ptx_arg first[SX_TILE_OPERANDS_MAX];
    /* Where blocks walk: the number of the point, and where the next one begins. */
    sx_ptx_arg walked, next_point;
    sx_ptx_arg batch[SX_RANK_MAX];
    sx_nvidia_copy copy[SX_TILE_OPERANDS_MAX];
    sx_nvidia_places read[SX_TILE_OPERANDS_MAX];
    sx_matrix_move move[SX_TILE_OPERANDS_MAX]; /* how matrix instructions get their factors */
    sx_ptx_arg *factor[SX_TILE_OPERANDS_MAX];  /* registers of what is held of a group */
    sx_ptx_arg written, reading; /* bytes from stage 0 to the stages that are filled and read */
    sx_ptx_arg *sum;             /* by register of tile->held */
    sx_ptx_arg *total;           /* of the slices before; NULL: there is one slice */
    /* Where the copy engine copies: the maps of both factors and of the result that it stores, what matrix instructions
     * read, and the address of what the thread's warps multiply of each in stage 0. */
    sx_ptx_arg map[3];
    sx_wgmma_operand operand[2];
    sx_ptx_arg own_slot[2];
    /* In a cluster of two: the rank of the block, and of the other one. */
    sx_ptx_arg rank, other_rank;
    struct sx_nvidia_online *online; /* NULL: a contraction */
    struct sx_nvidia_store *store;   /* NULL: threads store their results */
} sx_nvidia_block;

/* ---- tile.c ---- */
sx_ptx_arg sx_nvidia_scaled(sx_nvidia_block *k, sx_ptx_arg x, uint32_t factor);
/* Cuts a number into the indices that it holds, the last one fastest. */
void sx_nvidia_split(sx_nvidia_block *k, sx_ptx_arg all, const int64_t *extent, uint32_t count,
                     sx_ptx_arg *index);

/* ---- tile_walk.c: blocks that walk over the points of the grid; each role has this loop for itself ---- */
/* What follows is done for each point of the block. Finds the point, its indices of the batch, its row and column. */
void sx_nvidia_begin_walk(sx_nvidia_block *k);
void sx_nvidia_end_walk(sx_nvidia_block *k);

/* ---- tile_ring.c ---- */
/* Barriers, and the role that multiplies up to its sums; then its map may follow. `loading`: where the other role goes
 * on. */
sx_code sx_nvidia_ring(sx_nvidia_block *k, sx_ptx_arg *loading);
/* The other role, to the end of the entry. */
void sx_nvidia_load(sx_nvidia_block *k, sx_ptx_arg loading);
/* The instruction of four warps; SX_PTX_OP_COUNT where it is not emitted. */
sx_ptx_op sx_nvidia_warpgroup_op(const sx_matrix_instruction *m);

/* In a cluster: the thread is done with the memory of the other block. */
void sx_nvidia_part_from_cluster(sx_nvidia_block *k);
/* Behind the results: until the other block of a cluster does not need the memory of this one any more. */
void sx_nvidia_leave_cluster(sx_nvidia_block *k);

/* Whether the thread is the first one of its four warps: a predicate. */
sx_ptx_arg sx_nvidia_find_speaker(sx_nvidia_block *k);

/* ---- tile_store.c: results that the copy engine stores ---- */
/* Pointers into the slots of the thread's group; afterwards the words of its stores are kept for what follows. */
sx_code sx_nvidia_begin_store(sx_nvidia_block *k);
/* Takes the words of the group of elements that begins at this register of the sums, and stores what is full. */
void sx_nvidia_put_store(sx_nvidia_block *k, uint32_t element);
/* The engine has read all that was to be stored. */
void sx_nvidia_end_store(sx_nvidia_block *k);

/* ---- tile_place.c ---- */
/* The sum (or exclusive or) of the columns of the bits that are set in the number of the thread. */
sx_ptx_arg sx_nvidia_of_thread(sx_nvidia_block *k, const uint32_t *column, uint32_t count,
                               bool exclusive);
/* Row or column of a layout that the thread's bits give. */
sx_ptx_arg sx_nvidia_side(sx_nvidia_block *k, const sx_layout *layout, sx_side side);
/* Pointers for a layout, whose registers are in rows and columns from each of `steps` on: `along` says which. */
void sx_nvidia_place(sx_nvidia_block *k, uint32_t slot, const sx_layout *layout,
                     uint32_t element_bytes, sx_side along, uint32_t step, uint32_t steps,
                     sx_nvidia_places *places);
/* Moves the pointers to the stage so many bytes from stage 0. */
void sx_nvidia_move(sx_nvidia_block *k, sx_nvidia_places *places, sx_ptx_arg stage);
/* The element at this row and column from the thread's own, in the stage moved to. */
sx_ptx_arg sx_nvidia_element(const sx_nvidia_places *places, uint32_t row, uint32_t column);

/* ---- tile_group.c ---- */
/* How many elements of a thread are stored at once: where its store goes along the columns, as many as layout,
 * alignment and edge allow. */
uint32_t sx_nvidia_group_width(const sx_nvidia_lowering *l, const sx_layout *held, int64_t columns);

/* ---- tile_copy.c ---- */
void sx_nvidia_begin_copies(sx_nvidia_block *k);
void sx_nvidia_begin_copy(sx_nvidia_block *k, uint32_t which);
/* One factor into the stage so many bytes from stage 0; `whole` as below. */
void sx_nvidia_fetch_one(sx_nvidia_block *k, uint32_t which, sx_ptx_arg stage, bool whole);
/* Copies the tiles of the next stage, and moves on. `whole`: all its steps of k are there. */
void sx_nvidia_fetch(sx_nvidia_block *k, bool whole);

/* ---- tile_math.c ---- */
sx_code sx_nvidia_begin_math(sx_nvidia_block *k);
/* Adds the products of the stage that is read, the first `steps` of it. */
void sx_nvidia_multiply(sx_nvidia_block *k, uint32_t steps);
/* Adds the sums of a slice to the totals, and begins the next one at 0. */
void sx_nvidia_end_slice(sx_nvidia_block *k);
/* Registers for the sums, and for the totals of slices, all of which are 0. */
sx_code sx_nvidia_make_sums(sx_nvidia_block *k);
/* SX_PTX_OP_COUNT: it is not emitted. */
sx_ptx_op sx_nvidia_matrix_op(const sx_matrix_instruction *m);
/* Words of fragments, in the order of a layout's registers, and how ldmatrix fills them. */
typedef struct {
    const sx_nvidia_places *places;
    const sx_matrix_move *move;
    const sx_ptx_arg *word;
} sx_nvidia_words;
/* One ldmatrix, of the fragments so many rows and columns from the first. Says how many words it filled, and which. */
uint32_t sx_nvidia_load_matrix(sx_nvidia_block *k, const sx_nvidia_words *load,
                               uint32_t instruction, uint32_t row, uint32_t column,
                               uint32_t taken[4]);

/* ---- tile_online.c: the part's tile is an online sum or a nested contraction ---- */
/* Copies of the queries, registers, places; the block has begun. */
sx_code sx_nvidia_begin_online(sx_nvidia_block *k);
/* tile_scores.c: behind the copies of the first stages, fragments of the queries, where they stay in registers. */
void sx_nvidia_take_query(sx_nvidia_block *k);
/* A stage of keys and values. `whole`: all of its keys are there. `stage`: its number; where there is a horizon, warps
 * that see none of its keys pass it over. */
sx_code sx_nvidia_put_online(sx_nvidia_block *k, bool whole, sx_ptx_arg stage);
/* How many stages a warp of the block passes, at least 1; NONE: all. */
sx_ptx_arg sx_nvidia_stages_of_block(const sx_nvidia_block *k);
/* The results. */
sx_code sx_nvidia_end_online(sx_nvidia_block *k);
#endif
