/* descriptor.h - operands of wgmma in shared memory: the 64 bits that say where the matrix lies.
 *
 * An operand is a tile of M x K (A) or N x K (B) elements; "mn" is the index along M or N. K-major: the rows of the
 * slot are mn, and k runs along them. MN-major: the rows are k, and mn runs along them.
 * Fields (PTX ISA, "Matrix Descriptor Format"; amounts in units of 16 bytes): bits 0 to 13 start address, 16 to 29
 * leading offset, 32 to 45 stride offset, 49 to 51 base offset (0: slots are aligned to the pattern), 62 to 63 mode.
 */
#ifndef SX_CORE_TILE_DESCRIPTOR_H
#define SX_CORE_TILE_DESCRIPTOR_H
#include "core/ir/ir.h"
#include "core/tile/memory.h"

typedef enum { SX_MAJOR_K, SX_MAJOR_MN } sx_major;

typedef struct {
    uint64_t bits; /* all but the start address */
    sx_major major;
    uint32_t element_bytes;
    uint32_t mn, k;   /* extents of the tile */
    uint32_t mn_unit; /* an instruction begins at a multiple of it */
    uint32_t k_unit;  /* k of one instruction: 32 bytes */
    uint32_t leading; /* the offsets, in bytes */
    uint32_t stride;
    sx_slot slot;
} sx_wgmma_operand;

/* SX_UNIMPLEMENTED: MN-major elements that do not have 2 bytes, or types that wgmma does not take. SX_INPUT names the
 * field of the slot that the instruction cannot read: panels and pitch are the width of the swizzle (16 bytes where
 * there is none), rows a multiple of 8, k a multiple of 32 bytes. */
sx_code sx_wgmma_operand_make(sx_ctx *cx, const sx_slot *slot, sx_dtype element, sx_major major,
                              sx_wgmma_operand *operand);
/* Offset in the slot at which the instruction that begins at (mn, k) finds its operand: what is added to the base for
 * a slice of M, a part of N, a step of k within a panel or the next panel. */
uint32_t sx_wgmma_offset(const sx_wgmma_operand *operand, uint32_t mn, uint32_t k);
/* The descriptor for a start address: the base of the slot, which is aligned, plus such an offset. */
uint64_t sx_wgmma_descriptor(const sx_wgmma_operand *operand, uint32_t address);
#endif
