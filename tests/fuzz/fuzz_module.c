/* fuzz_module.c - any bytes as a module: first as they are, then with every checksum made right, so that what
 * lies behind the checksums is reached. What is accepted is followed along every index as readers do, opened
 * by the loader (nothing is run) and written again: the second form must be accepted and write itself. */
#include <stdlib.h>
#include <string.h>

#include "client/runtime/runtime.h"
#include "protocol/module.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ALIGNMENT ((size_t)64)
#define ARENA_BYTES ((size_t)16 << 20)
#define MODULE_BYTES_MAX ((size_t)64 << 20)
#define MAPPED_BYTES_MAX ((uint64_t)1 << 30) /* the loader reserves what a module asks for */

static uint8_t *aligned_copy(sx_span bytes)
{
    size_t room = (bytes.len + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    uint8_t *copy = aligned_alloc(ALIGNMENT, room);
    if (copy != NULL && bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    return copy;
}

/* Makes sizes and checksums of the header and of the sections inside the file right. */
static void repair(uint8_t *bytes, size_t size)
{
    sx_module_header header;
    sx_module_section section[SX_MODULE_SECTION_COUNT];
    if (size < sizeof(header) + sizeof(section)) {
        return;
    }
    memcpy(&header, bytes, sizeof(header));
    memcpy(section, bytes + sizeof(header), sizeof(section));
    for (uint32_t kind = 0; kind < SX_MODULE_SECTION_COUNT; kind++) {
        if (section[kind].offset <= size && section[kind].size <= size - section[kind].offset) {
            sx_hash128 digest =
                sx_hash128_of((sx_span){bytes + section[kind].offset, (size_t)section[kind].size});
            section[kind].digest[0] = digest.low;
            section[kind].digest[1] = digest.high;
        }
    }
    sx_hash128 table = sx_hash128_of((sx_span){(const uint8_t *)section, sizeof(section)});
    memcpy(header.magic, SX_MODULE_MAGIC, sizeof(header.magic));
    header.version = SX_MODULE_VERSION;
    header.section_count = SX_MODULE_SECTION_COUNT;
    header.file_size = size;
    header.digest[0] = table.low;
    header.digest[1] = table.high;
    memcpy(bytes, &header, sizeof(header));
    memcpy(bytes + sizeof(header), section, sizeof(section));
}

static uint64_t sum_text(const sx_module *module, sx_module_text text)
{
    sx_span bytes = sx_module_string(module, text);
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        sum += bytes.ptr[i];
    }
    return sum;
}

/* Reads what a reader of a checked module may read without looking. */
static uint64_t follow(const sx_module *module)
{
    uint64_t sum = sum_text(module, module->info->name) + sum_text(module, module->info->target);
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        sum += sum_text(module, tensor->name);
        const uint8_t *area = tensor->place == SX_TENSOR_CONSTANT ? module->constants
                              : tensor->place == SX_TENSOR_WEIGHT && tensor->offset != UINT64_MAX
                                  ? module->weights
                                  : NULL;
        if (area != NULL) {
            sum += area[tensor->offset] + (uint64_t)area[tensor->offset + tensor->size - 1];
        }
    }
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        const sx_module_kernel *kernel = sx_module_kernel_of(module, i);
        for (uint32_t k = 0; k < launch->arg_count; k++) {
            sum += module->tensor[module->arg[launch->arg_first + k]].size;
        }
        for (uint32_t k = 0; kernel != NULL && k < kernel->part_count; k++) {
            sum += module->code[module->part[kernel->part_first + k].entry];
        }
    }
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        sum +=
            sum_text(module, module->rewrite[i].rule) + sum_text(module, module->rewrite[i].after);
    }
    return sum;
}

static void open_module(sx_ctx *cx, const sx_module *module, sx_span bytes)
{
    const sx_module_info *info = module->info;
    if (info->arena_bytes + info->persistent_bytes + info->state_bytes + info->workspace_bytes >
        MAPPED_BYTES_MAX) {
        return;
    }
    /* Modules of other machines are opened to be looked at, so that their code is checked here, too. */
    sxr_options options = {.threads = 1, .any_level = info->arch != SX_ARCH_X86_64};
    sxr_program *program;
    if (sxr_open_bytes(cx, bytes, &options, &program) == SX_OK) {
        SX_ASSERT(sxr_module(program)->tensor_count == module->tensor_count);
        for (uint32_t i = 0; i < module->tensor_count; i++) {
            (void)sxr_memory(program, i);
        }
        for (uint32_t s = 0; s < module->symbol_count; s++) {
            sx_span name = sx_module_string(module, module->symbol[s].name);
            (void)sxr_set_extent(cx, program, name, sx_module_symbol_high(module, s));
            (void)sxr_set_extent(cx, program, name, sx_module_symbol_low(module, s));
        }
        sxr_close(program);
    }
    sx_ctx_reset_error(cx);
}

static void write_again(sx_ctx *cx, const sx_module *module, sx_span bytes)
{
    sx_buf first;
    sx_buf second;
    sx_module again;
    sx_buf_init(&first, MODULE_BYTES_MAX);
    sx_buf_init(&second, MODULE_BYTES_MAX);
    if (sx_module_encode(cx, module, &first) == SX_OK) {
        uint8_t *copy = aligned_copy(sx_buf_span(&first));
        SX_ASSERT(copy != NULL);
        SX_ASSERT(sx_span_equal(sx_buf_span(&first), bytes)); /* there is one form of each module */
        SX_ASSERT(sx_module_decode(cx, (sx_span){copy, first.len}, true, &again) == SX_OK);
        SX_ASSERT(sx_module_encode(cx, &again, &second) == SX_OK);
        SX_ASSERT(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
        free(copy);
    }
    sx_buf_fini(&first);
    sx_buf_fini(&second);
}

static void read_module(sx_span bytes)
{
    static volatile uint64_t kept; /* so that no read is left out */
    sx_ctx cx;
    sx_module module;
    sx_ctx_init(&cx, ARENA_BYTES);
    if (sx_module_decode(&cx, bytes, true, &module) == SX_OK) {
        kept = kept + follow(&module);
        open_module(&cx, &module, bytes);
        write_again(&cx, &module, bytes);
    } else {
        SX_ASSERT((cx.error.code == SX_CORRUPT || cx.error.code == SX_NOMEM) &&
                  cx.error.text[0] != '\0');
    }
    sx_ctx_fini(&cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = aligned_copy((sx_span){data, size});
    if (copy == NULL) {
        return 0;
    }
    read_module((sx_span){copy, size});
    repair(copy, size);
    read_module((sx_span){copy, size});
    free(copy);
    return 0;
}
