/* block.h - inside core/judge: what block.c reads off the program of any block, for block_online.c too. Each function
 * that returns bool refuses the kernel where it says no. */
#ifndef SX_CORE_JUDGE_BLOCK_H
#define SX_CORE_JUDGE_BLOCK_H
#include "core/judge/prove.h"
#include "core/tile/fragment.h"
#include "core/tile/program.h"

#define SX_BLOCK_WARP 32U

typedef struct {
    sx_judge *j;
    sx_algebra *g;
    const sx_kernel *kernel;
    const sx_part *part;
    const sx_tile *t;
} sx_block;
/* How many warps multiply, and load each argument. */
typedef struct {
    uint32_t multiply, load[SX_TILE_OPERANDS_MAX];
} sx_block_crew;

bool sx_block_check_grid(const sx_block *b);
/* Both arguments end at the same k, and each at the end of its side. */
bool sx_block_check_view(const sx_block *b, uint32_t k);
bool sx_block_check_shared(const sx_block *b);
bool sx_block_check_slot(const sx_block *b, uint32_t k);
bool sx_block_check_copies(const sx_block *b, uint32_t k);
bool sx_block_check_map(const sx_block *b, const sx_part *map);
sx_code sx_block_check_roles(const sx_block *b, sx_block_crew *warps);
sx_code sx_block_check_copied(const sx_block *b, uint32_t k, uint32_t warps);
/* One warp's lanes, `warps` warps, one block, and a tile of these sides. */
bool sx_block_has_sides(const sx_layout *layout, uint32_t warps, uint64_t rows, uint64_t columns);
/* Layouts in units of the fragments of the matrix instruction; false where they are not made of them. */
bool sx_block_in_fragments(const sx_block *b, sx_operand operand, const sx_layout *layout,
                           sx_layout *repeats);
/* Does each thread hold, beside its sums, the factors at their rows (or columns) for all k of a group, and all threads
 * in the same registers? */
bool sx_block_holds_factors(const sx_layout *sum_layout, const sx_layout *factor_layout,
                            sx_side shared);

/* block_online.c: a block whose tile is an online sum or a nested contraction. */
sx_code sx_block_prove_online(const sx_block *b);
#endif
