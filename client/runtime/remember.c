/* remember.c - what runs overwrite, as it was before them, for whoever compares a run with its program. */
#include <stdlib.h>
#include <string.h>

#include "client/runtime/device.h"

void sxr_forget(sxr_program *program)
{
    for (uint64_t i = 0; program->before != NULL && i < program->module.tensor_count; i++) {
        free(program->before[i]);
    }
    free(program->before);
    program->before = NULL;
}

/* An input that an output lies in. */
static bool is_taken(const sx_module *module, uint32_t tensor)
{
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].alias == tensor) {
            return true;
        }
    }
    return false;
}

static sx_code remember_tensor(sx_ctx *cx, sxr_program *program, uint32_t index)
{
    const sx_module_tensor *tensor = &program->module.tensor[index];
    bool state = tensor->place == SX_TENSOR_STATE;
    bool given = tensor->place == SX_TENSOR_INPUT && program->tensor[index] != NULL &&
                 is_taken(&program->module, index);
    if (!state && !given) {
        return SX_OK;
    }
    size_t size = (size_t)program->bytes[index];
    program->before[index] = malloc(size + 1);
    if (program->before[index] == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a copy of %zu bytes of what a run overwrites",
                       size);
    }
    if (state) {
        return sxr_state_read(cx, program, index, program->before[index], size);
    }
    memcpy(program->before[index], program->tensor[index], size);
    return SX_OK;
}

sx_code sxr_remember(sx_ctx *cx, sxr_program *program)
{
    size_t count = (size_t)program->module.tensor_count;
    sxr_forget(program);
    program->before = calloc(count + 1, sizeof(*program->before));
    if (program->before == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for a list of %zu tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(remember_tensor(cx, program, i));
    }
    return SX_OK;
}

const void *sxr_remembered(const sxr_program *program, uint32_t tensor)
{
    SX_ASSERT(tensor < program->module.tensor_count);
    return program->before != NULL ? program->before[tensor] : NULL;
}
