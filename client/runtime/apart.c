/* apart.c - an output that replaces an input lies where no other tensor does. */
#include <stdlib.h>

#include "client/runtime/device.h"
#include "client/runtime/program.h"

/* The bytes of a tensor that the caller gave memory to. */
typedef struct {
    uint64_t start, end;
    uint32_t tensor;
    bool replaced; /* by an output in its place */
} occupied;

static int by_start(const void *a, const void *b)
{
    const occupied *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* `replaced` marks the inputs that outputs replace. */
static uint32_t list_occupied(const sxr_program *program, bool *replaced, occupied *list)
{
    const sx_module *module = &program->module;
    uint32_t count = 0;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].alias != SX_MODULE_NONE) {
            replaced[module->tensor[i].alias] = true;
        }
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        bool given = tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_OUTPUT ||
                     tensor->place == SX_TENSOR_WEIGHT;
        bool there =
            program->tensor[i] != NULL || (program->device != NULL && sxr_device_has(program, i));
        if (given && there && tensor->alias == SX_MODULE_NONE && program->bytes[i] > 0) {
            uint64_t at = program->tensor[i] != NULL ? (uint64_t)(uintptr_t)program->tensor[i]
                                                     : sxr_device_address(program, i);
            list[count++] = (occupied){at, at + program->bytes[i], i, replaced[i]};
        }
    }
    qsort(list, count, sizeof(*list), by_start);
    return count;
}

static sx_code refuse(sx_ctx *cx, const sx_module *module, uint32_t replaced, uint32_t other)
{
    sx_span name = sx_module_string(module, module->tensor[replaced].name);
    sx_span with = sx_module_string(module, module->tensor[other].name);
    return SX_FAIL(cx, SX_INPUT,
                   "input %.*s is replaced by an output in its place, and its memory overlaps that "
                   "of %.*s",
                   (int)name.len, (const char *)name.ptr, (int)with.len, (const char *)with.ptr);
}

sx_code sxr_check_apart(sx_ctx *cx, sxr_program *program)
{
    const sx_module *module = &program->module;
    if (!program->aliased || program->apart) {
        return SX_OK;
    }
    occupied *list = SX_NEW_ARRAY(cx, occupied, module->tensor_count + 1);
    bool *marks = SX_NEW_ARRAY(cx, bool, module->tensor_count + 1);
    if (list == NULL || marks == NULL) {
        return cx->error.code;
    }
    uint32_t count = list_occupied(program, marks, list);
    /* of those that start before: which reaches furthest, of all and of the replaced ones */
    const occupied *any = NULL, *replaced = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const occupied *x = &list[i];
        if (x->replaced && any != NULL && any->end > x->start) {
            return refuse(cx, module, x->tensor, any->tensor);
        }
        if (replaced != NULL && replaced->end > x->start) {
            return refuse(cx, module, replaced->tensor, x->tensor);
        }
        any = any == NULL || x->end > any->end ? x : any;
        replaced = x->replaced && (replaced == NULL || x->end > replaced->end) ? x : replaced;
    }
    program->apart = true;
    return SX_OK;
}
