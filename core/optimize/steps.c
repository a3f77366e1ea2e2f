#include "core/optimize/steps.h"

#include <string.h>

_Static_assert(sizeof(sx_fuse_step) == 28, "a step is compared and hashed as bytes");

static bool same_step(const void *self, uint32_t id, const void *probe)
{
    return memcmp(&((const sx_fuse_steps *)self)->step[id], probe, sizeof(sx_fuse_step)) == 0;
}

static uint64_t hash_of(const sx_fuse_step *step)
{
    return sx_hash64((sx_span){(const uint8_t *)step, sizeof(*step)}, 0);
}

bool sx_fuse_steps_find(const sx_fuse_steps *steps, const sx_fuse_step *step, uint32_t *result)
{
    if (steps == NULL) {
        return false;
    }
    uint32_t found = sx_idmap_find(&steps->map, hash_of(step), same_step, steps, step);
    SX_ASSERT(found == SX_IDMAP_NONE || found < steps->count);
    if (found != SX_IDMAP_NONE) {
        *result = steps->result[found];
    }
    return found != SX_IDMAP_NONE;
}

sx_code sx_fuse_steps_put(sx_ctx *cx, sx_fuse_steps *steps, const sx_fuse_step *step,
                          uint32_t result)
{
    if (steps == NULL) {
        return SX_OK;
    }
    uint32_t at = steps->count;
    SX_TRY(sx_grow(cx, (void **)&steps->step, &steps->capacity, at + 1, sizeof(*step)));
    SX_TRY(sx_grow(cx, (void **)&steps->result, &steps->result_capacity, at + 1,
                   sizeof(*steps->result)));
    SX_ASSERT(at < steps->capacity && at < steps->result_capacity);
    steps->step[at] = *step;
    steps->result[at] = result;
    steps->count++;
    return sx_idmap_put(cx, &steps->map, hash_of(step), at);
}
