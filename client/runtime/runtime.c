/* runtime.c - what a caller of an open program sees: its tensors, their memory, its state. */
#include "client/runtime/runtime.h"

#include <string.h>

#include "client/runtime/device.h"

bool sxr_runs_here(const sxr_program *program)
{
    return program->runs_here &&
           (program->variant == SX_MODULE_NONE ||
            sx_module_machine_fits(&program->module, program->variant, &program->here));
}

const sx_machine *sxr_machine(const sxr_program *program)
{
    return program->made_for;
}

sx_span sxr_bytes(const sxr_program *program)
{
    SX_ASSERT(program != NULL && program->file != NULL);
    return (sx_span){program->file, program->file_size};
}

const sx_module *sxr_module(const sxr_program *program)
{
    return &program->module;
}

uint32_t sxr_threads(const sxr_program *program)
{
    return sxr_pool_threads(program->pool);
}

sxr_pool *sxr_pool_of(const sxr_program *program)
{
    return program->pool;
}

uint32_t sxr_find(const sxr_program *program, sx_module_place place, sx_span name)
{
    const sx_module *module = &program->module;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == (uint32_t)place &&
            sx_span_equal(sx_module_string(module, module->tensor[i].name), name)) {
            return (uint32_t)i;
        }
    }
    return UINT32_MAX;
}

static sx_code check_bound_size(sx_ctx *cx, const sxr_program *program, uint32_t index,
                                const void *memory, uint64_t size)
{
    const sx_module *module = &program->module;
    sx_span name = sx_module_string(module, module->tensor[index].name);
    uint32_t rows;
    (void)sx_module_extents_of(module, SX_EXTENT_TENSOR, index, &rows);
    if (rows > 0) {
        SX_TRY(sxr_extents_check(cx, program));
    }
    if (size != program->bytes[index] || memory == NULL) {
        return SX_FAIL(cx, SX_INPUT, "tensor %.*s: %llu bytes given, it has %llu", (int)name.len,
                       (const char *)name.ptr, (unsigned long long)size,
                       (unsigned long long)program->bytes[index]);
    }
    return SX_OK;
}

/* The prologues have run for other weights. */
static void forget_prologues(sxr_program *program)
{
    const sx_module *module = &program->module;
    if (module->variant_count > 0) {
        memset(program->prologue_done, 0, (size_t)module->variant_count * sizeof(bool));
        memset(program->made, 0, (size_t)module->tensor_count * sizeof(bool));
        program->as_opened = program->usual = false;
    }
}

static sx_code check_place(sx_ctx *cx, const sxr_program *program, uint32_t index)
{
    const sx_module_tensor *tensor = &program->module.tensor[index];
    sx_span name = sx_module_string(&program->module, tensor->name);
    if (tensor->place != SX_TENSOR_INPUT && tensor->place != SX_TENSOR_OUTPUT &&
        tensor->place != SX_TENSOR_WEIGHT) {
        return SX_FAIL(cx, SX_INPUT, "tensor %.*s is internal", (int)name.len,
                       (const char *)name.ptr);
    }
    return SX_OK;
}

/* The tensor, and an output in its place, has this memory of the host; NULL: none. */
static void put_memory(sxr_program *program, uint32_t index, void *memory)
{
    const sx_module *module = &program->module;
    program->apart = program->apart && memory != NULL && program->tensor[index] == memory;
    program->tensor[index] = memory;
    for (uint32_t i = 0; program->aliased && i < module->tensor_count; i++) {
        program->tensor[i] = module->tensor[i].alias == index ? memory : program->tensor[i];
    }
    if (module->tensor[index].place == SX_TENSOR_WEIGHT && program->packed[index]) {
        forget_prologues(program);
    }
}

/* It shares its memory with none, and gets as much as it needs: nothing else follows from it. */
bool sxr_bind_usual(sxr_program *program, uint32_t index, void *memory, uint64_t size)
{
    SX_ASSERT(index < program->module.tensor_count);
    uint32_t place = program->module.tensor[index].place;
    if (program->device != NULL || program->module.symbol_count > 0 || program->aliased ||
        (place != SX_TENSOR_INPUT && place != SX_TENSOR_OUTPUT) || memory == NULL || size == 0 ||
        size != program->bytes[index]) {
        return false;
    }
    program->tensor[index] = memory;
    return true;
}

sx_code sxr_bind(sx_ctx *cx, sxr_program *program, uint32_t index, void *memory, uint64_t size)
{
    const sx_module *module = &program->module;
    SX_ASSERT(index < module->tensor_count);
    const sx_module_tensor *tensor = &module->tensor[index];
    if (sxr_bind_usual(program, index, memory, size)) {
        return SX_OK;
    }
    sx_span name = sx_module_string(module, tensor->name);
    SX_TRY(check_place(cx, program, index));
    if (size == 0 && memory == NULL) {
        memory = program; /* nothing is read or written there */
    }
    SX_TRY(check_bound_size(cx, program, index, memory, size));
    if (tensor->alias != SX_MODULE_NONE && program->tensor[tensor->alias] != memory) {
        sx_span input = sx_module_string(module, module->tensor[tensor->alias].name);
        return SX_FAIL(cx, SX_INPUT, "output %.*s lies in the memory of input %.*s: bind that",
                       (int)name.len, (const char *)name.ptr, (int)input.len,
                       (const char *)input.ptr);
    }
    put_memory(program, index, memory);
    if (program->device != NULL) {
        sxr_device_bound(program, index);
    }
    return SX_OK;
}

sx_code sxr_bind_device(sx_ctx *cx, sxr_program *program, uint32_t index, uint64_t address,
                        uint64_t size)
{
    SX_ASSERT(index < program->module.tensor_count);
    if (program->device == NULL) {
        return SX_FAIL(cx, SX_USAGE,
                       "the module runs on the processor, which has no memory of a GPU");
    }
    SX_TRY(check_place(cx, program, index));
    SX_TRY(check_bound_size(cx, program, index, program, size)); /* it is not NULL */
    SX_TRY(sxr_device_bind(cx, program, index, address));
    put_memory(program, index, NULL);
    return SX_OK;
}

bool sxr_packed(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->packed[tensor];
}

bool sxr_bound(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->tensor[tensor] != NULL || sxr_weight_is_left(program, tensor) ||
           (program->device != NULL && sxr_device_has(program, tensor));
}

uint32_t sxr_alias(const sxr_program *program, uint32_t output)
{
    SX_ASSERT(output < program->module.tensor_count);
    return program->module.tensor[output].alias;
}

void *sxr_memory(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->tensor[tensor];
}

/* ---- state ---- */

void sxr_state_reset(sxr_program *program)
{
    const sx_module *module = &program->module;
    if (program->device != NULL) {
        sxr_device_state_reset(program);
        return;
    }
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->place != SX_TENSOR_STATE) {
            continue;
        }
        if (tensor->initial == UINT64_MAX) {
            memset(program->tensor[i], 0, (size_t)tensor->size);
        } else {
            memcpy(program->tensor[i], module->constants + tensor->initial, (size_t)tensor->size);
        }
    }
}

static sx_code check_state(sx_ctx *cx, const sxr_program *program, uint32_t index,
                           const void *memory, uint64_t size)
{
    SX_ASSERT(index < program->module.tensor_count);
    const sx_module_tensor *tensor = &program->module.tensor[index];
    sx_span name = sx_module_string(&program->module, tensor->name);
    int shown = (int)sx_min_i64((int64_t)name.len, 200);
    if (tensor->place != SX_TENSOR_STATE || memory == NULL) {
        return SX_FAIL(cx, SX_USAGE, "tensor %.*s: %s", shown, (const char *)name.ptr,
                       memory == NULL ? "no memory is given" : "it is not state");
    }
    if (size != tensor->size) {
        return SX_FAIL(cx, SX_INPUT, "state %.*s: %llu bytes given, it has %llu", shown,
                       (const char *)name.ptr, (unsigned long long)size,
                       (unsigned long long)tensor->size);
    }
    SX_ASSERT(program->device != NULL || program->tensor[index] != NULL);
    return SX_OK;
}

sx_code sxr_state_read(sx_ctx *cx, const sxr_program *program, uint32_t tensor, void *memory,
                       uint64_t size)
{
    SX_TRY(check_state(cx, program, tensor, memory, size));
    if (program->device != NULL) {
        return sxr_device_state_read(cx, program, tensor, memory, size);
    }
    memcpy(memory, program->tensor[tensor], (size_t)size);
    return SX_OK;
}

sx_code sxr_state_write(sx_ctx *cx, sxr_program *program, uint32_t tensor, const void *memory,
                        uint64_t size)
{
    SX_TRY(check_state(cx, program, tensor, memory, size));
    if (program->device != NULL) {
        return sxr_device_state_write(cx, program, tensor, memory, size);
    }
    memcpy(program->tensor[tensor], memory, (size_t)size);
    return SX_OK;
}
