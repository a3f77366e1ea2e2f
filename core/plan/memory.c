#include "core/plan/memory.h"

static uint64_t round_up(uint64_t size)
{
    return (size + SX_MEMORY_ALIGNMENT - 1) / SX_MEMORY_ALIGNMENT * SX_MEMORY_ALIGNMENT;
}

/* Does `a` come before `b` when tensors are placed? */
static bool before(const sx_lifetime *life, uint32_t a, uint32_t b)
{
    return life[a].size != life[b].size ? life[a].size > life[b].size : a < b;
}

/* The lowest offset at which `size` bytes collide with none of the placed tensors in `by_offset` that live at
 * the same time. */
static uint64_t lowest_gap(const sx_lifetime *life, const sx_lifetime *tensor,
                           const uint32_t *by_offset, uint32_t placed)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < placed; i++) {
        const sx_lifetime *other = &life[by_offset[i]];
        if (other->last < tensor->first || tensor->last < other->first) {
            continue;
        }
        if (other->offset >= offset + round_up(tensor->size)) {
            break; /* sorted by offset: the gap before it is wide enough */
        }
        uint64_t end = other->offset + round_up(other->size);
        offset = end > offset ? end : offset;
    }
    return offset;
}

static void insert_sorted(const sx_lifetime *life, uint32_t *by_offset, uint32_t placed,
                          uint32_t index)
{
    uint32_t at = placed;
    while (at > 0 && life[by_offset[at - 1]].offset > life[index].offset) {
        by_offset[at] = by_offset[at - 1];
        at--;
    }
    by_offset[at] = index;
}

static uint64_t peak_of(const sx_lifetime *life, uint32_t count)
{
    uint64_t peak = 0;
    for (uint32_t i = 0; i < count; i++) { /* the peak is reached where some tensor begins */
        uint64_t sum = 0;
        for (uint32_t k = 0; k < count; k++) {
            if (life[k].first <= life[i].first && life[i].first <= life[k].last) {
                sum += life[k].size;
            }
        }
        peak = sum > peak ? sum : peak;
    }
    return peak;
}

sx_code sx_plan_memory(sx_ctx *cx, sx_lifetime *life, uint32_t count, uint64_t *arena_bytes,
                       uint64_t *floor_bytes)
{
    *arena_bytes = 0;
    *floor_bytes = 0;
    if (count == 0) {
        return SX_OK;
    }
    SX_TRY(sx_spend(cx, (uint64_t)count * count));
    uint32_t *order = SX_NEW_ARRAY(cx, uint32_t, count);
    uint32_t *by_offset = SX_NEW_ARRAY(cx, uint32_t, count);
    if (order == NULL || by_offset == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_ASSERT(life[i].size > 0 && life[i].first <= life[i].last);
        uint32_t at = i;
        while (at > 0 && before(life, i, order[at - 1])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        sx_lifetime *tensor = &life[order[i]];
        tensor->offset = lowest_gap(life, tensor, by_offset, i);
        insert_sorted(life, by_offset, i, order[i]);
        uint64_t end = tensor->offset + round_up(tensor->size);
        *arena_bytes = end > *arena_bytes ? end : *arena_bytes;
    }
    *floor_bytes = peak_of(life, count);
    SX_ASSERT(*arena_bytes >= *floor_bytes);
    return SX_OK;
}
