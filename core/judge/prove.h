/* prove.h - what the proofs of fused kernels (prove.c) and of moves (move.c) share: the parts of a kernel are walked,
 * the stores that stay are located in the result, and each is compared with what must be there. Internal to
 * core/judge. */
#ifndef SX_CORE_JUDGE_PROVE_H
#define SX_CORE_JUDGE_PROVE_H
#include "core/judge/reference.h"
#include "core/judge/walk.h"
#include "core/tile/program.h"

/* Dimensions that the stores of a result must lie along. */
typedef struct {
    uint32_t count;
    /* How many bytes lie between neighbours; ascending. */
    int64_t stride[SX_STORE_DIMS];
    int64_t extent[SX_STORE_DIMS];
    /* The dimension of the space that it is. Of panels, SX_RANK_MAX is the column inside a panel. */
    uint32_t dim[SX_STORE_DIMS];
} sx_places;

/* A set of stores that no later one hides. */
typedef struct {
    sx_record record;
    /* Its index along each dimension of the places, as a form over its store variables. */
    sx_lin digit[SX_RANK_MAX + 1];
} sx_final;

/* Roles on a ring that sx_rings_check has found right. */
typedef struct {
    uint32_t depth, full, empty, roles;
    /* The steps of each role: of a turn of its loop, and then those behind. */
    uint32_t body[SX_ROLES_MAX], tail[SX_ROLES_MAX];
    sx_step step[SX_ROLES_MAX][SX_TILE_ITEMS_MAX];
} sx_proven_ring;
#define SX_PROVEN_RINGS 16u

struct sx_judge {
    sx_ctx *cx;
    sx_algebra algebra;
    sx_reference reference;
    sx_walk walk;
    /* Stores to the result that no later one hides, with the variables of the grid as store variables; and the same
     * once they are located, one for one. */
    sx_records live;
    sx_final *made;
    uint32_t made_capacity;
    /* The last rings of tile programs that were proven; the next one goes to ring_next, modulo their number. */
    sx_proven_ring ring[SX_PROVEN_RINGS];
    uint32_t ring_count, ring_next;
    /* For sx_judge_print: the places of the last kernel, and the term that the record which differs had to hold. */
    sx_places places;
    uint32_t expected;
    /* The buffer of the result. */
    uint32_t result;
};

/* block_engine.c: the boxes of an argument bring the tile of its view into its slot. False: refused. */
bool sx_prove_boxes(sx_judge *j, const sx_tile *tile, uint32_t which);

/* block_horizon.c: the scores behind the horizon of an online sum are minus infinity, and the rows of a warp are those
 * that it leaves stages out for; else the judge refuses. */
sx_code sx_prove_horizon(sx_judge *j, const sx_tile *tile);

/* index.c: sx_judge_move of scatter, dynamic_slice and dynamic_update_slice. */
sx_code sx_judge_indexed(sx_judge *j, sx_op op, const sx_attr *attr, const sx_type *input,
                         uint32_t input_count, const sx_type *result, const sx_kernel *kernel,
                         sx_verdict *verdict);

/* sort.c: the same of sort. */
sx_code sx_judge_sort(sx_judge *j, const sx_attr *attr, const sx_type *input, const sx_type *result,
                      const sx_kernel *kernel, sx_verdict *verdict);

/* Checks the kernel and forgets the one before. */
sx_code sx_prove_begin(sx_judge *j, const sx_kernel *kernel, sx_verdict *verdict);
/* The buffers must be those of the node: `size` bytes of each input, and of each of `results` results, and at most a
 * workspace. */
bool sx_prove_buffers(sx_algebra *g, const sx_kernel *kernel, uint32_t inputs, uint32_t results,
                      const int64_t *size);
/* What the parts leave in buffer `result`, located in its places. */
sx_code sx_prove_stores(sx_judge *j, const sx_kernel *kernel, uint32_t result, const sx_places *p);
/* Ranges of the store variables of a record, as variables from `first` on. */
void sx_prove_ranges(sx_algebra *g, const sx_record *record, uint32_t first);
/* Each record must hold the term that `expected` gives for it. */
typedef uint32_t (*sx_prove_value)(void *self, const sx_final *f);
void sx_prove_values(sx_judge *j, sx_prove_value expected, void *self);
/* Blocks of threads compute what sx_tile_unfold says of them, or the judge refuses (block.c). The kernel has passed
 * sx_tile_unfold, and its unfolded form sx_kernel_check. */
sx_code sx_prove_blocks(sx_judge *j, const sx_kernel *kernel);
/* The verdict, once the records are known to be a partition of elements of `width` bytes. */
sx_code sx_prove_finish(sx_judge *j, const sx_places *p, sx_mem mem, sx_verdict *verdict);
#endif
