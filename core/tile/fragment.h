/* fragment.h - the operands of matrix instructions as layouts: mma.sync, wgmma, ldmatrix and stmatrix.
 *
 * The fragments of mma.sync and wgmma are the rows of fragments.def. ldmatrix and stmatrix move matrices of 8 rows of
 * 16 bytes between shared memory and the registers of a warp: lane 8 m + r gives the address of row r of matrix m,
 * and every lane receives 4 bytes of each matrix. A layout that is divisible by the fragment of one such matrix can
 * be moved by them whole.
 */
#ifndef SX_CORE_TILE_FRAGMENT_H
#define SX_CORE_TILE_FRAGMENT_H
#include "core/ir/ir.h"
#include "core/tile/layout.h"

typedef enum { SX_MMA_SYNC, SX_WGMMA, SX_MMA_KIND_COUNT } sx_mma_kind;
typedef enum { SX_OPERAND_A, SX_OPERAND_B, SX_OPERAND_C } sx_operand;

const char *sx_mma_kind_name(sx_mma_kind kind); /* "mma.sync", "wgmma" */

/* The fragment of an operand of m16n8kK (mma.sync) or m64nNkK (wgmma); C stands for D too. `element` is the type of
 * A and B (f32 stands for tf32); `n` counts for wgmma alone. SX_UNIMPLEMENTED where the instruction has no such form:
 * k and type do not go together, n is none of wgmma's, or the operand has no registers (B of wgmma). */
sx_code sx_fragment_find(sx_ctx *cx, sx_mma_kind kind, sx_operand operand, sx_dtype element,
                         uint32_t n, uint32_t k, sx_layout *fragment);
/* n of wgmma: multiples of 8 up to 256; for integers 8, 16, 24, 32 and multiples of 16 above. */
sx_code sx_wgmma_check_n(sx_ctx *cx, sx_dtype element, uint32_t n);

/* What one 8 x 16-byte matrix gives the lanes of a warp, rows and columns as in shared memory. Transposed ones have
 * elements of 2 bytes. */
sx_layout sx_matrix_fragment(uint32_t element_bytes, bool transposed);

/* How ldmatrix (or stmatrix) moves a layout whose rows are those of shared memory. */
typedef struct {
    bool transposed;
    uint32_t matrices; /* per instruction: 1, 2 or 4 */
    /* Register bits of the normal form of the layout that say which of them. */
    uint8_t matrix_bit[2];
    /* Lane -> the element at which the row starts whose address it gives; the registers and modes are the
     * instructions. Lanes that give no address repeat those that do. */
    sx_layout rows;
} sx_matrix_move;
/* False where ldmatrix cannot; plain matrices are tried before transposed ones. */
bool sx_matrix_move_find(const sx_layout *layout, uint32_t element_bytes, sx_matrix_move *move);
#endif
