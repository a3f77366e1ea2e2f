/* memory.h - tiles in shared memory: where an element lies, and how many banks an access meets twice.
 *
 * A slot is a buffer of rows. A row is cut into panels; a panel is all rows of one cut, one below the other at `pitch`
 * bytes, and the panels follow each other. The address of an element is
 *     base + panel * (rows * pitch) + row * pitch + byte within the panel
 * with bits 4 to 6 exchanged as the swizzle mode says. The swizzle looks at absolute addresses, as the copy engine and
 * wgmma do: a base that is not aligned to the pattern of the mode would misplace everything without an error.
 *
 * Shared memory has 32 banks of 4 bytes. A phase of an access is what is served together: 32 lanes with up to 4
 * bytes each, 16 with 8, 8 with 16, and 8 rows of 16 bytes for each matrix of ldmatrix or stmatrix. Its wavefronts are
 * the largest number of different words in one bank.
 */
#ifndef SX_CORE_TILE_MEMORY_H
#define SX_CORE_TILE_MEMORY_H
#include "core/tile/layout.h"

/* The number is how many address bits are exchanged. */
typedef enum {
    SX_SWIZZLE_NONE,
    SX_SWIZZLE_32,
    SX_SWIZZLE_64,
    SX_SWIZZLE_128,
    SX_SWIZZLE_COUNT
} sx_swizzle;

uint32_t sx_swizzle_bytes(
    sx_swizzle swizzle); /* 32, 64, 128: the width within which chunks move; 16: none do */
uint32_t
sx_swizzle_align(sx_swizzle swizzle); /* 256, 512, 1024: where the pattern begins anew; none: 128 */
/* Where the byte of this absolute address lies; its own inverse. */
uint32_t sx_swizzle_apply(sx_swizzle swizzle, uint32_t address);

#define SX_SMEM_BYTES_MAX 232448U /* of one block: 227 KB on sm_90 and later */
#define SX_SLOT_UNIT \
    1024U /* sizes of slots are multiples of it, so that one after the other is aligned */

typedef struct {
    uint32_t rows;
    uint32_t panels;
    uint32_t panel_bytes; /* of one row */
    uint32_t pitch;
    sx_swizzle swizzle;
    uint32_t align; /* of the base */
    uint32_t bytes; /* of the whole, a multiple of SX_SLOT_UNIT */
} sx_slot;

/* `row_bytes` is cut into panels of `panel_bytes`. SX_INPUT names what does not fit: panels and pitch are multiples of
 * 16, panels divide the row, the pitch is no less than a panel, and swizzled panels are multiples of the pattern where
 * there are several. SX_LIMIT: more than a block has. */
sx_code sx_slot_make(sx_ctx *cx, uint32_t rows, uint32_t row_bytes, uint32_t panel_bytes,
                     uint32_t pitch, sx_swizzle swizzle, sx_slot *slot);
/* SX_INPUT unless the base is aligned and the slot ends within the memory of a block. */
sx_code sx_slot_check_base(sx_ctx *cx, const sx_slot *slot, uint32_t base);
uint32_t sx_slot_row_bytes(const sx_slot *slot);
uint32_t sx_slot_panel_stride(const sx_slot *slot);
/* `slot 64 rows of 2 x 128 bytes pitch 128 swizzle 128`. */
void sx_slot_print(const sx_slot *slot, sx_buf *out);

/* The absolute address of a byte; the base is aligned. */
uint32_t sx_slot_address(const sx_slot *slot, uint32_t base, uint32_t row, uint32_t byte);
/* Which byte lies at this address; false for padding and beyond. */
bool sx_slot_find(const sx_slot *slot, uint32_t base, uint32_t address, uint32_t *row,
                  uint32_t *byte);
/* The addresses relative to the base as a linear map of the bits of `byte`, then of `row`; false unless rows, panels,
 * their bytes and the pitch are powers of two. */
bool sx_slot_linear(const sx_slot *slot, sx_linear *map);

/* One instruction for each register (or vector of registers), by all threads of a layout whose rows are those of the
 * slot. */
typedef struct {
    sx_layout layout;
    uint32_t element_bytes;
    uint32_t vector_bytes; /* of one lane: 1 to 16, a power of two */
    bool matrix; /* `layout` is the rows of an sx_matrix_move; vectors are its rows of 16 bytes */
} sx_smem_access;

typedef struct {
    uint32_t worst;  /* wavefronts of the worst phase: 1 is free of conflicts */
    uint64_t total;  /* of all phases */
    uint64_t phases; /* what `total` would be without conflicts */
    bool proven;     /* by ranks, for all phases at once; else counted */
} sx_wavefronts;

/* SX_INPUT names a vector that the layout does not hold together, or a tile that is larger than the slot. */
sx_code sx_slot_wavefronts(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *access,
                           sx_wavefronts *waves);
/* The same by counting, also where it could be proven. */
sx_code sx_slot_count_wavefronts(sx_ctx *cx, const sx_slot *slot, const sx_smem_access *access,
                                 sx_wavefronts *waves);
/* 2^(rank of the word addresses - rank of their bank bits): the wavefronts of a phase whose byte addresses have these
 * columns. */
uint32_t sx_bank_conflict(const uint32_t *column, uint32_t count);

/* The slot with the fewest wavefronts for writer and reader together among the four hardware modes and pads of 16 to
 * 112 bytes; of equal ones the widest swizzle, then the smallest. NULL stands for the copy engine or wgmma, which read
 * and write dense panels of the width of the swizzle alone. */
sx_code sx_slot_choose(sx_ctx *cx, uint32_t rows, uint32_t row_bytes, const sx_smem_access *writer,
                       const sx_smem_access *reader, sx_slot *slot);
#endif
