/* codegen.h - machine code of a kernel of the loop IR (core/loop/loop.h).
 *
 * One function per part, entry ABI as loop.h states: void entry(void *const *buffer, const int64_t index[3],
 * void *workspace), SysV, leaf, position independent. Vectors of 32 bytes give AVX2 + FMA + F16C code, of
 * 64 bytes AVX-512 (F, VL, BW, DQ). Every instruction of the loop IR becomes the same IEEE operation, so
 * results equal the interpreter's bit for bit (but for which NaN comes out).
 *
 *   registers   vectors and masks by linear scan over live intervals; constants that find no register become
 *               memory operands; sx_x64_emit never spills a vector: a program that needs more is no candidate
 *               of the search
 *   addresses   every pattern (buffer, coefficients) is a pointer that its loops advance; pointers, counters
 *               and integers that find no general register live on the stack
 * Papers: Poletto and Sarkar 1999 (linear scan).
 */
#ifndef SX_CORE_X64_CODEGEN_H
#define SX_CORE_X64_CODEGEN_H
#include "core/loop/loop.h"
#include "core/x64/x64.h"

typedef struct {
    /* What the processor must have. */
    sx_x64_level level;
    /* Where the function of each part begins in the blob, a multiple of 64. */
    uint32_t entry[SX_PARTS_MAX];
    uint32_t entry_count;
    /* Vector registers, and stack slots of 8 bytes, of the part that uses most. */
    uint32_t vector_count;
    uint32_t slot_count;
    /* Of all parts together: constants that are memory operands, and vectors and masks that live on the stack.
     * sx_x64_emit puts none there. */
    uint32_t constant_count;
    uint32_t spill_count;
} sx_x64_kernel;

/* Level that vectors need: of 32 bytes AVX2, of 64 bytes AVX-512. */
sx_x64_level sx_x64_level_of(uint32_t vector_bytes);

/* Appends code and constants of all parts to `blob`; on failure `blob` is as long as before.
 *   memory   analysis in cx's arena: about 150 bytes per instruction
 *   fuel     about 20 per instruction
 *   errors   those of sx_kernel_check; SX_LIMIT: a part needs more vector or mask registers than there are
 *            (the search then takes another candidate), more than 1024 address patterns or constants, a
 *            pointer step beyond 63 bits; blob limit; SX_UNIMPLEMENTED: vectors of other than 32 or 64
 *            bytes */
sx_code sx_x64_emit(sx_ctx *cx, const sx_kernel *kernel, sx_buf *blob, sx_x64_kernel *out);
/* The same, but vectors and masks may live on the stack: for a kernel of which no candidate fits. Same bits,
 * slower code. */
sx_code sx_x64_emit_spilling(sx_ctx *cx, const sx_kernel *kernel, sx_buf *blob, sx_x64_kernel *out);
#endif
