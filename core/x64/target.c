/* target.c - the levels of x86-64 as rows of core/target, and what they share. */
#include "core/target/target.h"

#include "core/x64/codegen.h"
#include "core/x64/emulate.h"

static sx_code lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                     sx_kernel **kernel)
{
    return sx_loop_lower(cx, &target->vectors, what, kernel);
}

static sx_code emit(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel, bool spills,
                    sx_buf *blob, sx_target_code *code)
{
    sx_x64_kernel made;
    SX_ASSERT(sx_kernel_vector_bytes(kernel) == 4 * target->vectors.lanes);
    SX_TRY(spills ? sx_x64_emit_spilling(cx, kernel, blob, &made)
                  : sx_x64_emit(cx, kernel, blob, &made));
    *code = (sx_target_code){.entry_count = made.entry_count, .spill_count = made.spill_count};
    for (uint32_t p = 0; p < made.entry_count; p++) {
        code->entry[p] = made.entry[p];
    }
    return SX_OK;
}

static sx_code emulator_make(sx_ctx *cx, const sx_target *target, sx_span blob,
                             const uint32_t *entry, uint32_t entry_count, sx_emulator **emulator)
{
    (void)target; /* the emulator knows every form of every level */
    sx_x64_emulator *made;
    SX_TRY(sx_x64_emulator_make(cx, blob, entry, entry_count, sx_x64_meanings, &made));
    *emulator = (sx_emulator *)made;
    return SX_OK;
}

static sx_code emulate(sx_ctx *cx, sx_emulator *emulator, const sx_emulation *what)
{
    sx_x64_emulator_take((sx_x64_emulator *)emulator, what->number, what->number_count);
    for (int64_t i = 0; i < what->count; i++) {
        int64_t index[3];
        sx_emulation_index(what, what->first + i, index);
        SX_TRY(sx_x64_emulate(cx, (sx_x64_emulator *)emulator, what->entry, what->buffer,
                              what->buffer_count, index, what->workspace));
    }
    return SX_OK;
}

static uint64_t emulated(const sx_emulator *emulator)
{
    return sx_x64_emulated((const sx_x64_emulator *)emulator).instructions;
}

/* ---- assembly text ---- */

/* Farthest place a branch of this instruction leads to, counted from the start of the code; 0 if it is none. */
static uint64_t branch_target(const sx_x64_insn *insn, uint64_t at)
{
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        if (insn->arg[i].kind == SX_X64_LABEL) {
            int64_t target = (int64_t)(at + insn->len) + insn->arg[i].disp;
            return target > 0 ? (uint64_t)target : 0;
        }
    }
    return 0;
}

static void put_bytes(sx_buf *text, sx_span bytes)
{
    sx_buf_put_text(text, "    .byte ");
    for (size_t i = 0; i < bytes.len; i++) {
        sx_buf_print(text, "%s0x%02x", i > 0 ? "," : "", bytes.ptr[i]);
    }
}

/* Instructions up to the last return that no branch goes past; constants and padding behind it. */
static void print(const sx_target *target, sx_span code, const char *symbol, sx_buf *text)
{
    (void)target;
    sx_x64_decoder decoder;
    sx_x64_decoder_init(&decoder);
    sx_x64_insn insn;
    uint64_t at = 0, farthest = 0;
    bool ended = false;
    sx_buf_print(text,
                 "# void entry(void *const *buffer, const int64_t *index, void *workspace)\n"
                 "    .text\n    .globl %s\n    .balign 64\n%s:\n",
                 symbol, symbol);
    while (!ended && sx_x64_decode(&decoder, (sx_span){code.ptr + at, code.len - at}, &insn)) {
        uint64_t to = branch_target(&insn, at);
        farthest = to > farthest ? to : farthest;
        put_bytes(text, (sx_span){code.ptr + at, insn.len});
        sx_buf_print(text, " # %llx: ", (unsigned long long)at);
        sx_x64_print(text, &insn);
        sx_buf_put_u8(text, '\n');
        at += insn.len;
        ended = insn.op == SX_X64_RET && at > farthest;
    }
    while (at < code.len) {
        size_t n = code.len - at < 16 ? (size_t)(code.len - at) : 16;
        put_bytes(text, (sx_span){code.ptr + at, n});
        sx_buf_print(text, " # %llx: data\n", (unsigned long long)at);
        at += n;
    }
}

/* ---- the rows ---- */

/* Every instruction of the loop IR is one IEEE operation at every level, so all levels give the same bits. */
#define NUMERICS "ieee-fma"
#define ALL_TYPES ((1u << SX_DTYPE_COUNT) - 1)
#define BINDINGS \
    (1u << SX_BIND_GRID | 1u << SX_BIND_LOOP | 1u << SX_BIND_REGISTER | 1u << SX_BIND_LANE)

const sx_target sx_target_x86_64_v3 = {
    .machine = &sx_machine_x86_64_v3,
    .vectors = {.lanes = 8, .registers = 16, .mask_registers = false, .numerics = NUMERICS},
    .memory_types = ALL_TYPES,
    .lane_types = ALL_TYPES,
    .spaces = 1u << SX_SPACE_MEMORY,
    .bindings = BINDINGS,
    .lower = lower,
    .emit = emit,
    .emulator_make = emulator_make,
    .emulate = emulate,
    .emulated = emulated,
    .print = print};

const sx_target sx_target_x86_64_v4 = {
    .machine = &sx_machine_x86_64_v4,
    .vectors = {.lanes = 16, .registers = 32, .mask_registers = true, .numerics = NUMERICS},
    .memory_types = ALL_TYPES,
    .lane_types = ALL_TYPES,
    .spaces = 1u << SX_SPACE_MEMORY,
    .bindings = BINDINGS,
    .lower = lower,
    .emit = emit,
    .emulator_make = emulator_make,
    .emulate = emulate,
    .emulated = emulated,
    .print = print};
