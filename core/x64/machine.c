/* machine.c - the levels of x86-64 as machines: names, and the check of their code. */
#include "core/target/machine.h"

#include "core/x64/x64.h"

#define AVX512_LEVEL 4 /* the least level with AVX-512 */

static sx_code check(sx_ctx *cx, const sx_machine *machine, sx_span blob, const uint32_t *entry,
                     const sx_machine_block *block, uint32_t entry_count)
{
    for (uint32_t i = 0; block != NULL && i < entry_count; i++) {
        if (block[i].threads > 0) {
            return SX_FAIL(cx, SX_INPUT, "code at %u: a block of %u threads, %s has none", entry[i],
                           block[i].threads, machine->name);
        }
    }
    sx_x64_level level = machine->level >= AVX512_LEVEL ? SX_X64_AVX512 : SX_X64_AVX2;
    return sx_x64_check(cx, blob, level, entry, entry_count);
}

const sx_machine sx_machine_x86_64_v3 = {.name = "x86-64-v3",
                                         .text = "AVX2, FMA and F16C",
                                         .family = "x86-64",
                                         .level = 3,
                                         .check = check};

const sx_machine sx_machine_x86_64_v4 = {.name = "x86-64-v4",
                                         .text = "AVX-512 F, BW, DQ, VL",
                                         .family = "x86-64",
                                         .level = 4,
                                         .check = check};
