/* places.c - where each tensor of a module lies. */
#include "core/pipeline.h"

#include "core/ir/check.h"
#include "core/plan/memory.h"

sx_code sx_pipe_add_tensor(sx_ctx *cx, sx_pipe *pipe, sx_span name, const sx_type *type,
                           uint64_t size, sx_module_place place, uint32_t *index)
{
    SX_ASSERT(sx_type_is_static(type));
    if (size > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "tensor %u '%.60s': %llu bytes, at most %llu",
                       pipe->tensor_count, sx_short_name(name).text, (unsigned long long)size,
                       (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    void *array = pipe->tensor;
    SX_TRY(
        sx_grow(cx, &array, &pipe->tensor_capacity, pipe->tensor_count + 1, sizeof(*pipe->tensor)));
    pipe->tensor = array;
    bool own = place == SX_TENSOR_PERSISTENT || place == SX_TENSOR_TEMPORARY;
    sx_pipe_tensor *tensor = &pipe->tensor[pipe->tensor_count];
    *tensor = (sx_pipe_tensor){.first = UINT32_MAX};
    tensor->record = (sx_module_tensor){.name = sx_module_put_text(&pipe->image->strings, name),
                                        .place = place,
                                        .dtype = type->dtype,
                                        .rank = type->rank,
                                        .element_bytes = sx_dtype_bytes(type->dtype),
                                        .size = size,
                                        .variant = own ? pipe->variant : SX_MODULE_NONE,
                                        .alias = SX_MODULE_NONE,
                                        .initial = UINT64_MAX};
    for (uint32_t d = 0; d < type->rank; d++) {
        tensor->record.dim[d] = type->dim[d].scale;
    }
    *index = pipe->tensor_count++;
    return SX_OK;
}

void sx_pipe_use_tensor(sx_pipe *pipe, uint32_t index)
{
    SX_ASSERT(index < pipe->tensor_count);
    sx_pipe_tensor *tensor = &pipe->tensor[index];
    if (tensor->first == UINT32_MAX) {
        tensor->first = pipe->launch_count;
    }
    tensor->last = pipe->launch_count;
}

sx_code sx_pipe_across(sx_ctx *cx, sx_pipe *pipe, uint32_t first, uint32_t last)
{
    SX_ASSERT(first < last);
    void *array = pipe->loop;
    SX_TRY(sx_grow(cx, &array, &pipe->loop_capacity, pipe->loop_count + 1, sizeof(*pipe->loop)));
    pipe->loop = array;
    pipe->loop[pipe->loop_count].first = first;
    pipe->loop[pipe->loop_count++].last = last;
    return SX_OK;
}

/* From the first use to the last one, and through the whole of each loop of which only a part lies between them. */
static sx_lifetime life_of(const sx_pipe *pipe, const sx_pipe_tensor *tensor)
{
    sx_lifetime life = {.size = tensor->record.size, .first = tensor->first, .last = tensor->last};
    for (uint32_t i = 0; i < pipe->loop_count; i++) {
        uint32_t first = pipe->loop[i].first, last = pipe->loop[i].last;
        bool meet = life.first <= last && first <= life.last;
        if (meet && (life.first < first || life.last > last)) {
            life.first = life.first < first ? life.first : first;
            life.last = life.last > last ? life.last : last;
        }
    }
    return life;
}

static uint64_t round_up(uint64_t size)
{
    return (size + 63) & ~UINT64_C(63);
}

sx_code sx_pipe_place(sx_ctx *cx, sx_pipe *pipe)
{
    sx_lifetime *life = SX_NEW_ARRAY(cx, sx_lifetime, pipe->tensor_count);
    uint32_t *of = SX_NEW_ARRAY(cx, uint32_t, pipe->tensor_count);
    if (life == NULL || of == NULL) {
        return cx->error.code;
    }
    sx_module_info *info = &pipe->image->info;
    uint32_t count = 0;
    for (uint32_t i = 0; i < pipe->tensor_count; i++) {
        sx_pipe_tensor *tensor = &pipe->tensor[i];
        if (tensor->record.variant != pipe->variant) {
            continue;
        }
        if (tensor->record.place == SX_TENSOR_TEMPORARY) {
            SX_ASSERT(tensor->first != UINT32_MAX);
            of[count] = i;
            life[count++] = life_of(pipe, tensor);
        }
    }
    uint64_t arena_bytes, floor_bytes;
    SX_TRY(sx_plan_memory(cx, life, count, &arena_bytes, &floor_bytes));
    if (arena_bytes > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%llu bytes of temporaries, at most %llu",
                       (unsigned long long)arena_bytes, (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    for (uint32_t k = 0; k < count; k++) {
        pipe->tensor[of[k]].record.offset = life[k].offset;
    }
    info->arena_bytes = arena_bytes > info->arena_bytes ? arena_bytes : info->arena_bytes;
    sx_pipe_put_variant(pipe);
    if (pipe->variant == 0) {
        info->flops = pipe->flops;
        info->cost_ns = pipe->cost_ns;
        info->floor_ns = pipe->floor_ns;
    }
    return SX_OK;
}

/* Places those of one variant, or with SX_MODULE_NONE those of all, from *end on. */
static void place_behind(sx_pipe *pipe, uint32_t variant, uint64_t *end)
{
    for (uint32_t i = 0; i < pipe->tensor_count && *end <= SX_MODULE_BYTES_MAX; i++) {
        sx_module_tensor *tensor = &pipe->tensor[i].record;
        if (tensor->place == SX_TENSOR_PERSISTENT && tensor->variant == variant) {
            tensor->offset = *end;
            *end += round_up(tensor->size);
        }
    }
}

sx_code sx_pipe_place_persistent(sx_ctx *cx, sx_pipe *pipe)
{
    sx_buf *records = &pipe->image->variant;
    uint64_t end = 0;
    SX_ASSERT(records->len == pipe->variants->count * sizeof(sx_module_variant));
    place_behind(pipe, SX_MODULE_NONE, &end);
    for (uint32_t v = 0; v < pipe->variants->count; v++) {
        sx_module_variant *variant = (sx_module_variant *)(void *)records->ptr + v;
        variant->persistent_offset = end;
        place_behind(pipe, v, &end);
        variant->persistent_bytes = end - variant->persistent_offset;
    }
    if (end > SX_MODULE_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%llu bytes of persistent tensors, at most %llu",
                       (unsigned long long)end, (unsigned long long)SX_MODULE_BYTES_MAX);
    }
    pipe->image->info.persistent_bytes = end;
    return SX_OK;
}
