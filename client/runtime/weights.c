/* weights.c - weights that come beside a module, as those of a model do that was just compiled. What runs read of them
 * is copied. What only the work on weights reads stays where it is: that work is done while they are there, and they
 * come again from their source if it has to be done again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/runtime/pages.h"
#include "client/runtime/program.h"

/* Of all programs that share a module. */
struct sxr_weights {
    /* The copies, one after the other. */
    uint8_t *memory;
    size_t size;
    /* [tensor_count] weights that were left; then there is a source, open. */
    bool *left;
    sxr_source source;
    /* Guards the next three. */
    pthread_mutex_t lock;
    /* [tensor_count] where each weight begins; NULL for other tensors, and for what was left and has not come again. */
    uint8_t **at;
    /* What came again. */
    uint8_t *again;
    size_t again_size;
};

static bool make(sxr_program *program)
{
    size_t count = (size_t)program->module.tensor_count + 1;
    struct sxr_weights *made = calloc(1, sizeof(*made));
    if (made == NULL || pthread_mutex_init(&made->lock, NULL) != 0) {
        free(made);
        return false;
    }
    program->weights = made;
    made->at = calloc(count, sizeof(*made->at));
    made->left = calloc(count, sizeof(*made->left));
    return made->at != NULL && made->left != NULL;
}

void sxr_weights_free(struct sxr_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    if (weights->source.close != NULL) {
        weights->source.close(weights->source.self);
    }
    sxr_pages_free(weights->memory, weights->size);
    sxr_pages_free(weights->again, weights->again_size);
    free(weights->at);
    free(weights->left);
    (void)pthread_mutex_destroy(&weights->lock);
    free(weights);
}

/* ---- taking them ---- */

/* What options.weight has for tensor `index`, which is a weight that the file does not carry; empty: nothing. */
static sx_code weight_bytes(sx_ctx *cx, const sxr_program *program, const sxr_options *options,
                            uint64_t index, sx_span *bytes)
{
    const sx_module *module = &program->module;
    const sx_module_tensor *tensor = &module->tensor[index];
    sx_span name = sx_module_string(module, tensor->name);
    bool asked = tensor->place == SX_TENSOR_WEIGHT && tensor->offset == UINT64_MAX;
    *bytes = (sx_span){NULL, 0};
    if (asked && options->weight(options->weight_self, name, bytes) && bytes->len != tensor->size) {
        return SX_FAIL(cx, SX_INPUT, "weight %.*s: %zu bytes in the model, the module has %llu",
                       (int)name.len, (const char *)name.ptr, bytes->len,
                       (unsigned long long)tensor->size);
    }
    return SX_OK;
}

/* Runs read the tensor, and not only work on weights does. */
static bool is_read_by_runs(const sx_module *module, uint64_t tensor)
{
    for (uint64_t i = 0; i < module->launch_count; i++) {
        const sx_module_launch *launch = &module->launch[i];
        for (uint32_t k = 0; launch->prologue == 0 && k < launch->arg_count; k++) {
            if (module->arg[launch->arg_first + k] == tensor) {
                return true;
            }
        }
    }
    return false;
}

/* The work on weights can be done now: there is one variant, and it is known. */
static bool can_leave(const sxr_program *program, const sxr_options *options)
{
    const sx_module *module = &program->module;
    return options->source != NULL && program->device == NULL && sxr_runs_here(program) &&
           module->variant_count == 1 && program->variant == 0 && sx_module_ranks(module) <= 1;
}

/* Into new memory, whose pages come with the bytes that go there. */
static void copy_weight(uint8_t *to, sx_span bytes)
{
    for (size_t at = 0; at < bytes.len; at += SXR_TOUCH_BYTES) {
        size_t rest = bytes.len - at, size = rest < SXR_TOUCH_BYTES ? rest : SXR_TOUCH_BYTES;
        sxr_pages_touch(to + at, size);
        memcpy(to + at, bytes.ptr + at, size);
    }
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static sx_code no_memory(sx_ctx *cx, uint64_t bytes)
{
    return SX_FAIL(cx, SX_NOMEM, "no memory for %llu bytes of weights", (unsigned long long)bytes);
}

/* Which are left, and how many bytes the others have. */
static sx_code plan(sx_ctx *cx, sxr_program *program, const sxr_options *options, uint64_t *total)
{
    struct sxr_weights *weights = program->weights;
    bool may = can_leave(program, options);
    sx_span bytes;
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        SX_TRY(weight_bytes(cx, program, options, i, &bytes));
        weights->left[i] =
            may && bytes.len > 0 && program->packed[i] && !is_read_by_runs(&program->module, i);
        *total += weights->left[i] ? 0 : rounded(bytes.len);
    }
    return SX_OK;
}

/* Copies what is not left; the other weights lie where they come from until the work on them is done. */
static sx_code take(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    struct sxr_weights *weights = program->weights;
    uint8_t *to = weights->memory;
    sx_span bytes;
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        SX_TRY(weight_bytes(cx, program, options, i, &bytes));
        if (weights->left[i]) {
            memcpy(&program->tensor[i], &bytes.ptr, sizeof(bytes.ptr)); /* it is only read */
        } else if (bytes.len > 0) {
            copy_weight(to, bytes);
            program->tensor[i] = weights->at[i] = to;
            to += rounded(bytes.len);
        }
    }
    return SX_OK;
}

/* The work on weights is done; then the program has none of those that were left. */
static sx_code leave(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    struct sxr_weights *weights = program->weights;
    bool any = false;
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        any = any || weights->left[i];
    }
    if (any) {
        SX_TRY(sxr_run_opening(cx, program));
    }
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        program->tensor[i] = weights->left[i] ? NULL : program->tensor[i];
    }
    if (any) {
        weights->source = *options->source;
    } else if (options->source != NULL) {
        options->source->close(options->source->self);
    }
    return SX_OK;
}

sx_code sxr_take_weights(sx_ctx *cx, sxr_program *program, const sxr_options *options)
{
    uint64_t total = 0;
    if (options->weight == NULL) {
        SX_ASSERT(options->source == NULL);
        return SX_OK;
    }
    if (!make(program)) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu tensors",
                       (unsigned long long)program->module.tensor_count);
    }
    SX_TRY(plan(cx, program, options, &total));
    if (total > 0) {
        program->weights->memory = sxr_pages_kept((size_t)total);
        if (program->weights->memory == NULL) {
            return no_memory(cx, total);
        }
        program->weights->size = (size_t)total;
    }
    SX_TRY(take(cx, program, options));
    return leave(cx, program, options);
}

/* ---- afterwards ---- */

bool sxr_weight_is_left(const sxr_program *program, uint32_t tensor)
{
    return program->weights != NULL && program->weights->left[tensor];
}

/* The tensors that have no memory get what there is. The lock is held. */
static void place(sxr_program *program)
{
    for (uint64_t i = 0; i < program->module.tensor_count; i++) {
        program->tensor[i] =
            program->tensor[i] == NULL ? program->weights->at[i] : program->tensor[i];
    }
}

void sxr_place_weights(sxr_program *program)
{
    if (program->weights != NULL) {
        (void)pthread_mutex_lock(&program->weights->lock);
        place(program);
        (void)pthread_mutex_unlock(&program->weights->lock);
    }
}

/* Reads all that was left. The lock is held. */
static sx_code read_again(sx_ctx *cx, const sxr_program *program)
{
    const sx_module *module = &program->module;
    struct sxr_weights *weights = program->weights;
    uint64_t total = 0;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        total += weights->left[i] ? rounded(module->tensor[i].size) : 0;
    }
    uint8_t *memory = sxr_pages_kept((size_t)total);
    if (memory == NULL) {
        return no_memory(cx, total);
    }
    uint8_t *to = memory;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        sx_span name = sx_module_string(module, module->tensor[i].name), bytes;
        if (!weights->left[i]) {
            continue;
        }
        if (weights->source.again(weights->source.self, cx, name, &bytes) != SX_OK) {
            sxr_pages_free(memory, (size_t)total);
            return cx->error.code;
        }
        SX_ASSERT(bytes.len == module->tensor[i].size);
        copy_weight(to, bytes);
        to += rounded(bytes.len);
    }
    to = memory;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        weights->at[i] = weights->left[i] ? to : weights->at[i];
        to += weights->left[i] ? rounded(module->tensor[i].size) : 0;
    }
    weights->again = memory;
    weights->again_size = (size_t)total;
    return SX_OK;
}

sx_code sxr_weights_again(sx_ctx *cx, sxr_program *program)
{
    bool missing = false;
    for (uint32_t i = 0; program->weights != NULL && i < program->module.tensor_count; i++) {
        missing = missing || (program->weights->left[i] && program->tensor[i] == NULL);
    }
    if (!missing) {
        return SX_OK;
    }
    (void)pthread_mutex_lock(&program->weights->lock);
    sx_code code = program->weights->again == NULL ? read_again(cx, program) : SX_OK;
    if (code == SX_OK) {
        place(program);
    }
    (void)pthread_mutex_unlock(&program->weights->lock);
    return code;
}
