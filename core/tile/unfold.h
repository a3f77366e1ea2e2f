/* unfold.h - what a kernel of blocks computes, element by element, as a kernel of the loop IR.
 *
 * Each part with a tile becomes a part of one thread that does all elements: loops over rows, columns and batches, a
 * loop over k with a multiply-add of an element of the left argument and one of the right, read through their views,
 * and `map` behind it. There are no blocks, stages or layouts in it. That the blocks compute these elements is another
 * matter (core/judge/block.c); that the elements are those of a fused body can be shown of this kernel as of any other.
 *
 * A matrix instruction adds several products at once. Here they are a chain of fused multiply-adds in ascending k, as
 * without one, whether there are slices or not: the same products in the same order, rounded otherwise. */
#ifndef SX_CORE_TILE_UNFOLD_H
#define SX_CORE_TILE_UNFOLD_H
#include "core/tile/program.h"

/* The same buffers, and a part for each part: those without a tile as they are.
 *   memory   `unfolded` lies in the arena of cx; parts without a tile share their items with `kernel`
 *   errors   SX_INPUT extents, types or registers that no program can have; SX_LIMIT addresses beyond what a
 *            kernel may reach. Whether addresses stay inside of their buffers is what sx_kernel_check says of it. */
sx_code sx_tile_unfold(sx_ctx *cx, const sx_kernel *kernel, sx_kernel **unfolded);
#endif
