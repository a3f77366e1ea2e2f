#include "core/nvidia/assemble.h"

#include <stdio.h>
#include <string.h>

#include "core/nvidia/code.h"
#include "core/nvidia/loop.h"
#include "core/ptx/limits.h"

/* "sm_90a" of the line ".target sm_90a". */
static sx_code read_target(sx_ctx *cx, sx_span text, char target[16])
{
    static const char word[] = ".target ";
    const char *at = memmem(text.ptr, text.len, word, sizeof(word) - 1);
    SX_ASSERT(at != NULL); /* this compiler has printed it */
    at += sizeof(word) - 1;
    size_t n = strcspn(at, ",\n ");
    if (SX_NEVER(n >= 16)) {
        return SX_FAIL(cx, SX_INTERNAL, "a target of %zu letters in PTX", n);
    }
    memcpy(target, at, n);
    target[n] = '\0';
    return SX_OK;
}

/* Can a block of it be launched on the device? And does it keep what it computes with in registers? */
static sx_code check_entry(sx_ctx *cx, const sx_cubin_kernel *kernel, const sx_device *device,
                           const sx_machine_block *block)
{
    sx_cubin_need need;
    sx_cubin_launch launch = {.block = {SX_NVIDIA_LANES, SX_NVIDIA_WARPS, 1},
                              .dynamic_shared_bytes = block->shared_bytes};
    if (block->threads > 0) {
        launch.block = (sx_cubin_dim){block->threads, 1, 1};
    }
    if (kernel->stack_bytes > 0 || kernel->spill_count > 0) {
        return SX_FAIL(cx, SX_LIMIT,
                       "kernel %.*s: %u bytes of local memory in each thread and %u spills, with "
                       "%u registers of at most %u",
                       (int)sx_min_i64((int64_t)kernel->name.len, 80),
                       (const char *)kernel->name.ptr, kernel->stack_bytes, kernel->spill_count,
                       kernel->registers, kernel->registers_max);
    }
    return device->block_threads > 0
               ? sx_cubin_check_launch(cx, kernel, device, &launch, &need)
               : SX_OK; /* a device without the laws of blocks: nothing is known */
}

sx_code sx_nvidia_assemble(sx_ctx *cx, const sx_assembling *what, sx_span *code,
                           sx_target_record *record)
{
    sx_nvidia_code at;
    sx_cubin *cubin;
    char target[16];
    SX_ASSERT(what->entry_count > 0 && what->assembler->assemble != NULL);
    SX_TRY(sx_nvidia_code_at(cx, what->blob, what->entry[0], &at));
    SX_TRY(read_target(cx, at.text, target));
    SX_TRY(what->assembler->assemble(what->assembler->self, cx, at.text, target, code));
    SX_TRY(sx_cubin_read(cx, *code, &cubin));
    for (uint32_t i = 0; i < what->entry_count; i++) {
        SX_TRY(sx_nvidia_code_at(cx, what->blob, what->entry[i], &at));
        const sx_cubin_kernel *kernel = sx_cubin_find(cubin, at.name);
        if (kernel == NULL) {
            return SX_FAIL(cx, SX_COMPILE, "the assembler left kernel %.*s out",
                           (int)sx_min_i64((int64_t)at.name.len, 80), (const char *)at.name.ptr);
        }
        SX_TRY(check_entry(cx, kernel, what->device, &what->block[i]));
        record[i] = (sx_target_record){.registers = kernel->registers,
                                       .local_bytes = kernel->stack_bytes,
                                       .spills = kernel->spill_count,
                                       .barriers = kernel->barriers,
                                       .parameter_bytes = kernel->param_bytes,
                                       .shared_bytes = kernel->shared_bytes};
    }
    return SX_OK;
}
