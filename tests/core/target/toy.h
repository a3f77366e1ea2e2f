/* toy.h - machines of the tests: their code is the text of the loop program, their emulator the interpreter.
 *
 * They stand for machines that the product does not know. Whatever works with them works with any row of
 * core/target: nothing of them is named anywhere else. One has vector registers and rounds in a way of its own;
 * the other is a warp: its 32 lanes are threads, with the instructions of IEEE 754 and so the bits of x86-64. */
#ifndef SX_TESTS_CORE_TARGET_TOY_H
#define SX_TESTS_CORE_TARGET_TOY_H
#include "core/target/target.h"

#include <string.h>

#define TOY_VECTOR_BYTES 32
#define TOY_WARP_LANES 32
#define TOY_LEVEL 75
#define TOY_WARP_LEVEL 110    /* executes the code of the other too */
#define TOY_MAGIC 0x21594f54u /* "TOY!" */
/* What stands at an entry: this, then the text of the kernel. */
typedef struct {
    uint32_t magic, part, text_size, reserved;
} toy_head;

static uint32_t toy_emitted, toy_run; /* how often it was asked */

SX_UNUSED static sx_code toy_lower(sx_ctx *cx, const sx_target *target, const sx_lowering *what,
                                   sx_kernel **kernel)
{
    return sx_loop_lower(cx, &target->vectors, what, kernel);
}

SX_UNUSED static sx_code toy_emit(sx_ctx *cx, const sx_target *target, const sx_kernel *kernel,
                                  bool spills, sx_buf *blob, sx_target_code *code)
{
    (void)target, (void)spills;
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 24);
    sx_code status = sx_kernel_print(cx, kernel, &text);
    *code = (sx_target_code){.entry_count = kernel->part_count};
    for (uint32_t p = 0; status == SX_OK && p < kernel->part_count; p++) {
        toy_head head = {.magic = TOY_MAGIC, .part = p, .text_size = (uint32_t)text.len};
        sx_buf_pad(blob, 64);
        code->entry[p] = (uint32_t)blob->len;
        sx_buf_put(blob, &head, sizeof(head));
        sx_buf_put(blob, text.ptr, text.len);
    }
    sx_buf_fini(&text);
    toy_emitted++;
    return status == SX_OK ? sx_buf_check(cx, blob, "toy code") : status;
}

SX_UNUSED static sx_code toy_read(sx_ctx *cx, sx_span blob, uint32_t entry, toy_head *head,
                                  sx_kernel **kernel)
{
    if (entry > blob.len || blob.len - entry < sizeof(*head)) {
        return SX_FAIL(cx, SX_INPUT, "toy code at %u: outside of %zu bytes", entry, blob.len);
    }
    memcpy(head, blob.ptr + entry, sizeof(*head));
    if (head->magic != TOY_MAGIC || head->reserved != 0 ||
        head->text_size > blob.len - entry - sizeof(*head)) {
        return SX_FAIL(cx, SX_INPUT, "toy code at %u: no head", entry);
    }
    SX_TRY(
        sx_kernel_parse(cx, (sx_span){blob.ptr + entry + sizeof(*head), head->text_size}, kernel));
    SX_TRY(sx_kernel_check(cx, *kernel));
    return head->part < (*kernel)->part_count
               ? SX_OK
               : SX_FAIL(cx, SX_INPUT, "toy code at %u: part %u", entry, head->part);
}

SX_UNUSED static sx_code toy_check(sx_ctx *cx, const sx_machine *machine, sx_span blob,
                                   const uint32_t *entry, const sx_machine_block *block,
                                   uint32_t entry_count)
{
    (void)block;
    for (uint32_t i = 0; i < entry_count; i++) {
        toy_head head;
        sx_kernel *kernel;
        SX_TRY(toy_read(cx, blob, entry[i], &head, &kernel));
        bool warp = kernel->lanes == TOY_WARP_LANES && machine->level >= TOY_WARP_LEVEL;
        if (sx_kernel_vector_bytes(kernel) != TOY_VECTOR_BYTES && !warp) {
            return SX_FAIL(cx, SX_INPUT, "toy code at %u: %u lanes", entry[i], kernel->lanes);
        }
    }
    return SX_OK;
}

typedef struct {
    sx_span blob;
    uint64_t run;
} toy_emulator;

SX_UNUSED static sx_code toy_emulator_make(sx_ctx *cx, const sx_target *target, sx_span blob,
                                           const uint32_t *entry, uint32_t entry_count,
                                           sx_emulator **emulator)
{
    (void)target, (void)entry, (void)entry_count;
    toy_emulator *made = SX_NEW(cx, toy_emulator);
    if (made == NULL) {
        return cx->error.code;
    }
    made->blob = blob;
    *emulator = (sx_emulator *)(void *)made;
    return SX_OK;
}

SX_UNUSED static sx_code toy_emulate(sx_ctx *cx, sx_emulator *emulator, const sx_emulation *what)
{
    toy_emulator *toy = (toy_emulator *)(void *)emulator;
    toy_head head;
    sx_kernel *kernel;
    void *memory[SX_LOOP_BUFFERS_MAX];
    SX_TRY(toy_read(cx, toy->blob, what->entry, &head, &kernel));
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        const sx_region *region = k < what->buffer_count ? &what->buffer[k] : what->workspace;
        if (region == NULL || region->size < (uint64_t)kernel->buffer[k].size) {
            return SX_FAIL(cx, SX_INPUT, "toy code at %u: buffer %u is too small", what->entry, k);
        }
        memory[k] = region->memory;
    }
    for (int64_t i = 0; i < what->count; i++) {
        int64_t index[3];
        sx_emulation_index(what, what->first + i, index);
        toy->run++;
        toy_run++;
        SX_TRY(sx_kernel_eval_point(cx, kernel, head.part, index, memory));
    }
    return SX_OK;
}

SX_UNUSED static uint64_t toy_emulated(const sx_emulator *emulator)
{
    return ((const toy_emulator *)(const void *)emulator)->run;
}

SX_UNUSED static void toy_print(const sx_target *target, sx_span code, const char *symbol,
                                sx_buf *text)
{
    sx_buf_print(text, "%s: %s, %zu bytes\n", symbol, target->machine->name, code.len);
}

/* Names that module files know and no code generator of the product has. */
static const sx_machine toy_machine = {.name = "sm_75",
                                       .text = "the tests",
                                       .family = "nvidia",
                                       .level = TOY_LEVEL,
                                       .check = toy_check};
static const sx_machine toy_warp_machine = {.name = "sm_110",
                                            .text = "the tests, with threads",
                                            .family = "nvidia",
                                            .level = TOY_WARP_LEVEL,
                                            .check = toy_check};
/* Another class of rounding than any other row: no plan of it may share an id with theirs. */
static const sx_target toy_target = {
    .machine = &toy_machine,
    .vectors = {.lanes = 8, .registers = 16, .mask_registers = true, .numerics = "toy"},
    .memory_types = (1u << SX_DTYPE_COUNT) - 1,
    .lane_types = (1u << SX_DTYPE_COUNT) - 1,
    .spaces = 1u << SX_SPACE_MEMORY,
    .bindings =
        1u << SX_BIND_GRID | 1u << SX_BIND_LOOP | 1u << SX_BIND_REGISTER | 1u << SX_BIND_LANE,
    .lower = toy_lower,
    .emit = toy_emit,
    .emulator_make = toy_emulator_make,
    .emulate = toy_emulate,
    .emulated = toy_emulated,
    .print = toy_print};
static const sx_target toy_warp = {.machine = &toy_warp_machine,
                                   .vectors = {.lanes = TOY_WARP_LANES,
                                               .threads = true,
                                               .registers = 255,
                                               .mask_registers = true,
                                               .numerics = "ieee-fma"},
                                   .memory_types = (1u << SX_DTYPE_COUNT) - 1,
                                   .lane_types = (1u << SX_DTYPE_COUNT) - 1,
                                   .spaces = 1u << SX_SPACE_MEMORY,
                                   .bindings = 1u << SX_BIND_GRID | 1u << SX_BIND_LOOP |
                                               1u << SX_BIND_REGISTER | 1u << SX_BIND_LANE,
                                   .lower = toy_lower,
                                   .emit = toy_emit,
                                   .emulator_make = toy_emulator_make,
                                   .emulate = toy_emulate,
                                   .emulated = toy_emulated,
                                   .print = toy_print};
static const sx_target *const toy_row[] = {&toy_target, &toy_warp};
static const sx_targets toy_targets = {toy_row, 2};
#endif
