/* symplex_weights.c - weights that are bound once: several handles on one module, and what is bound again. */
#include "client/symplex_inside.h"

#include <string.h>

symplex_code symplex_module_share(const symplex_module *module, symplex_module **another,
                                  symplex_error *error)
{
    if (module == NULL || another == NULL) {
        return sxc_call_misuse(error, "symplex_module_share: module and a place are needed");
    }
    sx_ctx cx;
    sxr_program *program = NULL;
    sxc_call_begin(&cx);
    *another = NULL;
    sx_code code = sxr_share(&cx, module->program, &program);
    code = code == SX_OK ? sxc_module_make(&cx, program, another) : code;
    return sxc_call_finish(&cx, code, error);
}

/* Nothing is bound before everything may be. */
static sx_code check_weight(sx_ctx *cx, const symplex_module *module, const symplex_weight *weight)
{
    if (weight->index >= module->count ||
        sxr_module(module->program)->tensor[module->tensor[weight->index]].place !=
            SX_TENSOR_WEIGHT) {
        return SX_FAIL(cx, SX_USAGE, "symplex_module_bind_weights: tensor %s is no weight",
                       weight->index < module->count ? module->name[weight->index]
                                                     : "without a number");
    }
    uint64_t size = sxr_size(module->program, module->tensor[weight->index]);
    if (weight->size != size || (weight->memory == NULL && size > 0)) {
        return SX_FAIL(cx, SX_INPUT, "weight %s: %zu bytes given%s, it has %llu",
                       module->name[weight->index], weight->size,
                       weight->memory == NULL ? " without memory" : "", (unsigned long long)size);
    }
    return SX_OK;
}

static sx_code bind_weights(sx_ctx *cx, symplex_module *module, const symplex_weight *weights,
                            size_t count, size_t *changed)
{
    for (size_t i = 0; i < count; i++) {
        SX_TRY(check_weight(cx, module, &weights[i]));
    }
    for (size_t i = 0; i < count; i++) {
        const symplex_weight *given = &weights[i];
        sxc_weight *has = &module->weight[given->index];
        if (has->known && has->memory == given->memory && has->version == given->version) {
            continue;
        }
        void *memory; /* runs only read it */
        memcpy(&memory, &given->memory, sizeof(memory));
        SX_TRY(sxr_bind(cx, module->program, module->tensor[given->index], memory, given->size));
        *has = (sxc_weight){given->memory, given->version, true};
        (*changed)++;
    }
    return SX_OK;
}

symplex_code symplex_module_bind_weights(symplex_module *module, const symplex_weight *weights,
                                         size_t count, size_t *changed, symplex_error *error)
{
    size_t bound = 0;
    if (module == NULL || (weights == NULL && count > 0)) {
        return sxc_call_misuse(error, "symplex_module_bind_weights: module and weights are needed");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sx_code code = bind_weights(&cx, module, weights, count, &bound);
    if (changed != NULL) {
        *changed = bound;
    }
    return sxc_call_finish(&cx, code, error);
}

int symplex_module_weight_packed(const symplex_module *module, size_t index)
{
    return module != NULL && index < module->count &&
           sxr_module(module->program)->tensor[module->tensor[index]].place == SX_TENSOR_WEIGHT &&
           sxr_packed(module->program, module->tensor[index]);
}
