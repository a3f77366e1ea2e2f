/* emulate.h - runs emitted machine code without a processor that has its instructions.
 *
 * The meaning of each form stands in ops.def (micro-operation, element, variant), the formulas in lanes.def.
 * Code is decoded once into micro-operations with their operands resolved and then run as often as wanted.
 * Results are those of the processor in the default floating point state (round to nearest even, subnormals
 * kept, exceptions masked), bit for bit, NaNs included except which NaN a fused multiply-add of several makes.
 *
 * Addresses are the emulator's own: every region (code, stack, the tables of the entry ABI, each buffer) lies
 * alone in a part of the address space of 2^48 bytes, so that an access is inside its region or refused,
 * however far it misses. Masked-off lanes of lane-wise instructions are not accessed; permutations access
 * their whole memory operand, as the processor does. Flags that the manual leaves undefined may not be read,
 * the caller's registers must be kept, and rsp must be back at `ret`. Sources: Intel SDM volume 2 (operation
 * sections), volume 1 chapter 4.8.3 (NaNs).
 */
#ifndef SX_CORE_X64_EMULATE_H
#define SX_CORE_X64_EMULATE_H
#include "core/target/target.h"
#include "core/x64/form.h"

typedef struct sx_x64_emulator sx_x64_emulator;

/* Decodes everything that the entries reach. The code must have passed sx_x64_check with these entries.
 *   meaning  sx_x64_meanings; the tests give altered ones
 *   memory   in cx's arena, borrowed blob: 4 bytes per byte of blob, about 200 per instruction
 *   errors   SX_INPUT bytes that the check would refuse; SX_NOMEM */
sx_code sx_x64_emulator_make(sx_ctx *cx, sx_span blob, const uint32_t *entry, uint32_t entry_count,
                             const sx_x64_meaning *meaning, sx_x64_emulator **emulator);

/* What the code of the entries called from now on finds behind the index; borrowed. None at first. */
void sx_x64_emulator_take(sx_x64_emulator *emulator, const int64_t *number, uint32_t count);

/* Calls one entry as loop.h states: entry(buffer pointers, index, workspace).
 *   entry     one of those given to sx_x64_emulator_make
 *   workspace NULL: the null pointer
 *   fuel      one per instruction
 *   errors    SX_INPUT an access outside its region, a store where none is allowed, an undefined flag, a
 *             register of the caller that is lost: the offset of the instruction, the address and the region;
 *             SX_QUOTA, SX_CANCELLED */
sx_code sx_x64_emulate(sx_ctx *cx, sx_x64_emulator *emulator, uint32_t entry,
                       const sx_region *buffer, uint32_t buffer_count, const int64_t index[3],
                       const sx_region *workspace);

/* Instructions and lanes computed since the emulator was made. */
typedef struct {
    uint64_t instructions;
    uint64_t lanes;
} sx_x64_work;
sx_x64_work sx_x64_emulated(const sx_x64_emulator *emulator);
#endif
