/* target.c - the levels of x86-64 as rows of core/target, and what they share. */
#include "core/target/target.h"

#include "core/x64/make.h"
#include "core/x64/x64.h"

static sx_code check(sx_ctx *cx, const sx_target *target, sx_span blob, const uint32_t *entry,
                     uint32_t entry_count)
{
    return sx_x64_check(cx, blob, target->level >= 4 ? SX_X64_AVX512 : SX_X64_AVX2, entry,
                        entry_count);
}

/* ---- the rows ---- */

/* Every instruction of the loop IR is one IEEE operation at every level, so all levels give the same bits. */
#define NUMERICS "ieee-fma"
#define ALL_TYPES ((1u << SX_DTYPE_COUNT) - 1)
#define BINDINGS \
    (1u << SX_BIND_GRID | 1u << SX_BIND_LOOP | 1u << SX_BIND_REGISTER | 1u << SX_BIND_LANE)

/* The library that loads modules checks code and makes none: nothing of the compiler is in its rows. */
#ifdef SX_LOADER
#define MAKES .lower = NULL
#else
#define MAKES                                                                       \
    .lower = sx_x64_target_lower, .emit = sx_x64_target_emit,                       \
    .emulator_make = sx_x64_target_emulator_make, .emulate = sx_x64_target_emulate, \
    .emulated = sx_x64_target_emulated, .print = sx_x64_target_print
#endif

const sx_target sx_target_x86_64_v3 = {
    .name = "x86-64-v3",
    .text = "AVX2, FMA and F16C",
    .family = "x86-64",
    .level = 3,
    .vectors = {.lanes = 8, .registers = 16, .mask_registers = false, .numerics = NUMERICS},
    .memory_types = ALL_TYPES,
    .lane_types = ALL_TYPES,
    .spaces = 1u << SX_SPACE_MEMORY,
    .bindings = BINDINGS,
    .check = check,
    MAKES};

const sx_target sx_target_x86_64_v4 = {
    .name = "x86-64-v4",
    .text = "AVX-512 F, BW, DQ, VL",
    .family = "x86-64",
    .level = 4,
    .vectors = {.lanes = 16, .registers = 32, .mask_registers = true, .numerics = NUMERICS},
    .memory_types = ALL_TYPES,
    .lane_types = ALL_TYPES,
    .spaces = 1u << SX_SPACE_MEMORY,
    .bindings = BINDINGS,
    .check = check,
    MAKES};
