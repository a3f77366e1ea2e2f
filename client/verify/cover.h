/* cover.h - inside client/verify: may some blocks of a grid stand for all of them?
 *
 * Of a block program the blocks at the ends of the grid are run: along each dimension the first, the last but one and
 * the last, in all combinations. The blocks that are the last along the same dimensions are of one kind, and form a
 * box, all corners of which ran. If the text is affine (core/simt/affine.c), the corners of each box took the same
 * path, and what they stored is the same but for a move that is a multiple of the index, then every block of a box
 * does what its corners do, on other rows and columns. Then it is known what every block stores: together they must
 * store each byte of the result once. Where blocks run together in clusters, what is said of a block here is said of a
 * cluster, and the grid is that of the clusters. */
#ifndef SX_CLIENT_VERIFY_COVER_H
#define SX_CLIENT_VERIFY_COVER_H
#include "core/target/target.h"

#define SXV_ENDS_MAX 27 /* blocks at the ends of a grid */
typedef struct sxv_cover sxv_cover;

/* The blocks at the ends: their number and indices. */
uint32_t sxv_cover_ends(const int64_t grid[3], int64_t index[SXV_ENDS_MAX][3]);

/* For a result of so many bytes. In cx's arena, but for memory that `fini` gives back, which is called on failure too,
 * where *cover is not NULL. */
sx_code sxv_cover_make(sx_ctx *cx, const int64_t grid[3], size_t bytes, sxv_cover **cover);
void sxv_cover_fini(sxv_cover *cover);

/* Notes what a block did that was run, and adds what it stored to `touched`. In the order of sxv_cover_ends.
 *   stored   a byte for each one of the result: 1 where it stored, else 0 */
sx_code sxv_cover_add(sx_ctx *cx, sxv_cover *cover, const int64_t index[3],
                      const sx_emulated_path *took, const uint8_t *stored, uint8_t *touched);

/* The blocks that ran stand for all; `partition`: all together store each byte of the result once. */
bool sxv_cover_holds(sxv_cover *cover, bool *partition);
#endif
