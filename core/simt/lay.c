/* lay.c - what a launch gives to a kernel: regions at addresses, parameters, constants, room for a block. */
#include <string.h>

#include "core/simt/machine.h"

#define SHARED_BYTES_USUAL (UINT64_C(163) << 10)
#define THREADS_USUAL 1024
#define TARGET_WITH_CLUSTERS 90
#define WARPGROUP 4
#define GRID_X_MAX INT32_MAX
#define GRID_YZ_MAX UINT16_MAX

static uint64_t volume(sx_ptx_dim d)
{
    return (uint64_t)d.x * d.y * d.z;
}

static sx_code check_block(sx_ptx_machine *m)
{
    const sx_ptx_kernel *k = m->kernel;
    const sx_ptx_launch *l = m->launch;
    const sx_ptx_dim *b = &l->block, *g = &l->grid;
    uint32_t threads_max = l->threads_max == 0 ? THREADS_USUAL : l->threads_max;
    if (b->x == 0 || b->y == 0 || b->z == 0 || g->x == 0 || g->y == 0 || g->z == 0) {
        return SX_FAIL(m->cx, SX_INPUT, "grid %u,%u,%u of blocks %u,%u,%u: all must be at least 1",
                       g->x, g->y, g->z, b->x, b->y, b->z);
    }
    if (g->x > GRID_X_MAX || g->y > GRID_YZ_MAX || g->z > GRID_YZ_MAX) {
        return SX_FAIL(m->cx, SX_LIMIT, "grid %u,%u,%u: at most %d,%d,%d", g->x, g->y, g->z,
                       GRID_X_MAX, GRID_YZ_MAX, GRID_YZ_MAX);
    }
    /* A side is checked by itself, so that the product cannot overflow. */
    if (b->x > threads_max || b->y > threads_max || b->z > threads_max ||
        volume(*b) > threads_max || volume(*b) > SX_PTX_WARPS_MAX * SX_PTX_LANES) {
        return SX_FAIL(m->cx, SX_LIMIT, "block %u,%u,%u: more than %u threads", b->x, b->y, b->z,
                       threads_max);
    }
    const sx_ptx_block *r = &k->required, *most = &k->maximum;
    if (r->x != 0 && (r->x != b->x || r->y != b->y || r->z != b->z)) {
        return SX_FAIL(m->cx, SX_INPUT, "block %u,%u,%u: kernel %s requires %u,%u,%u", b->x, b->y,
                       b->z, k->name, r->x, r->y, r->z);
    }
    uint64_t most_threads = (uint64_t)most->x * most->y * most->z;
    if (most->x != 0 && volume(*b) > most_threads) {
        return SX_FAIL(m->cx, SX_INPUT, "block %u,%u,%u: kernel %s is for at most %llu threads",
                       b->x, b->y, b->z, k->name, (unsigned long long)most_threads);
    }
    return SX_OK;
}

sx_code sx_ptx_choose_cluster(sx_ptx_machine *m)
{
    const sx_ptx_kernel *k = m->kernel;
    const sx_ptx_dim *l = &m->launch->cluster, *g = &m->launch->grid, *b = &m->launch->block;
    const sx_ptx_block *r = &k->cluster;
    bool given = l->x != 0 || l->y != 0 || l->z != 0;
    sx_ptx_dim c = given ? *l : (sx_ptx_dim){r->x, r->y, r->z};
    if (given && r->x != 0 && (r->x != c.x || r->y != c.y || r->z != c.z)) {
        return SX_FAIL(m->cx, SX_INPUT, "clusters of %u,%u,%u blocks: kernel %s requires %u,%u,%u",
                       c.x, c.y, c.z, k->name, r->x, r->y, r->z);
    }
    if (!given && r->x == 0 && k->explicit_cluster) {
        return SX_FAIL(m->cx, SX_INPUT, "kernel %s: the launch must say the blocks of a cluster",
                       k->name);
    }
    if (!given && r->x == 0) {
        c = (sx_ptx_dim){1, 1, 1};
    }
    if (c.x == 0 || c.y == 0 || c.z == 0 || g->x % c.x != 0 || g->y % c.y != 0 || g->z % c.z != 0) {
        return SX_FAIL(m->cx, SX_INPUT, "grid %u,%u,%u: no multiple of clusters of %u,%u,%u blocks",
                       g->x, g->y, g->z, c.x, c.y, c.z);
    }
    if (c.x > SX_PTX_CLUSTER_BLOCKS_MAX || c.y > SX_PTX_CLUSTER_BLOCKS_MAX ||
        c.z > SX_PTX_CLUSTER_BLOCKS_MAX || volume(c) > SX_PTX_CLUSTER_BLOCKS_MAX) {
        return SX_FAIL(m->cx, SX_LIMIT, "clusters of %u,%u,%u blocks: more than %d", c.x, c.y, c.z,
                       SX_PTX_CLUSTER_BLOCKS_MAX);
    }
    m->cluster = c;
    m->block_count = (uint32_t)volume(c);
    if (m->block_count > 1 && m->launch->module->target < TARGET_WITH_CLUSTERS) {
        return SX_FAIL(m->cx, SX_INPUT, "kernel %s: a target below sm_90 has no clusters", k->name);
    }
    if (m->block_count > 1 &&
        m->block_count * volume(*b) > (uint64_t)SX_PTX_CLUSTER_WARPS_MAX * SX_PTX_LANES) {
        return SX_FAIL(m->cx, SX_LIMIT,
                       "clusters of %u blocks of %llu threads: more than %d threads together are "
                       "not interpreted",
                       m->block_count, (unsigned long long)volume(*b),
                       SX_PTX_CLUSTER_WARPS_MAX * SX_PTX_LANES);
    }
    return SX_OK;
}

static sx_code lay_regions(sx_ptx_machine *m)
{
    const sx_ptx_launch *l = m->launch;
    uint64_t at = SX_PTX_GLOBAL_FIRST;
    m->area_count = l->region_count;
    m->area = SX_NEW_ARRAY(m->cx, sx_ptx_area, l->region_count + 1U);
    if (m->area == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < l->region_count; i++) {
        const sx_ptx_region *region = &l->region[i];
        sx_ptx_area *area = &m->area[i];
        SX_ASSERT(region->bytes != NULL || region->size == 0);
        if (region->size > (UINT64_C(1) << 40)) {
            return SX_FAIL(m->cx, SX_LIMIT, "%s: %llu bytes", region->name,
                           (unsigned long long)region->size);
        }
        *area = (sx_ptx_area){.address = at, .of = region};
        at =
            (at + region->size + 2 * SX_PTX_GLOBAL_GAP - 1) / SX_PTX_GLOBAL_GAP * SX_PTX_GLOBAL_GAP;
        SX_ASSERT(!region->unwatched || region->initialised);
        if ((region->writable && !region->unwatched) || !region->initialised) {
            area->mark = SX_NEW_ARRAY(m->cx, uint8_t, region->size + 1);
            area->writer = SX_NEW_ARRAY(m->cx, uint32_t, region->size + 1);
            area->reader = SX_NEW_ARRAY(m->cx, uint32_t, region->size + 1);
            area->atomic = SX_NEW_ARRAY(m->cx, uint32_t, region->size + 1);
            if (area->mark == NULL || area->writer == NULL || area->reader == NULL ||
                area->atomic == NULL) {
                return m->cx->error.code;
            }
            memset(area->mark, region->initialised ? SX_PTX_KNOWN : 0, region->size);
        }
    }
    return SX_OK;
}

/* What a driver would refuse to encode. */
static sx_code check_map(sx_ptx_machine *m, const char *name, const sx_ptx_tensor_map *map)
{
    uint32_t bytes = map->element_bytes, inner = map->box[0] * bytes, width = map->swizzle_bytes;
    bool fits = map->region > 0 && map->region <= m->launch->region_count && map->rank > 0 &&
                map->rank <= SX_PTX_TENSOR_RANK_MAX && bytes > 0 && bytes <= 8 &&
                (bytes & (bytes - 1)) == 0 && map->offset % 16 == 0 && inner % 16 == 0 &&
                (width == 0 || width == 32 || width == 64 || width == 128) &&
                (width == 0 || inner <= width);
    uint64_t box = fits ? bytes : 0;
    for (uint32_t d = 0; fits && d < map->rank; d++) {
        fits = map->dims[d] > 0 && map->dims[d] <= UINT32_MAX && map->box[d] > 0 &&
               map->box[d] <= 256 &&
               (d == 0 || (map->strides[d] % 16 == 0 && map->strides[d] < UINT64_C(1) << 40));
        box *= map->box[d];
    }
    return fits && box <= UINT32_C(1) << 20
               ? SX_OK
               : SX_FAIL(m->cx, SX_INPUT, "kernel %s, parameter %s: no such tensor map is possible",
                         m->kernel->name, name);
}

static sx_code lay_arguments(sx_ptx_machine *m)
{
    static const uint8_t encoded[128] = {0}; // what the driver makes of a map is not known
    const sx_ptx_launch *l = m->launch;
    const sx_ptx_kernel *k = m->kernel;
    if (l->argument_count != k->parameter_count) {
        return SX_FAIL(m->cx, SX_INPUT, "kernel %s takes %u arguments, %u are given", k->name,
                       k->parameter_count, l->argument_count);
    }
    m->parameter = SX_NEW_ARRAY(m->cx, uint8_t, m->parameter_bytes + 1);
    if (m->parameter == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < k->parameter_count; i++) {
        const sx_ptx_argument *a = &l->argument[i];
        const sx_ptx_variable *p = &k->parameter[i];
        uint64_t bytes = sx_ptx_variable_bytes(p), address = 0;
        sx_span value = a->value;
        if (a->map != NULL) {
            SX_TRY(check_map(m, p->name, a->map));
            value = (sx_span){encoded, sizeof encoded};
        } else if (a->region != 0) {
            SX_ASSERT(a->region <= l->region_count);
            address = m->area[a->region - 1].address + a->offset;
            value = (sx_span){(const uint8_t *)&address, sizeof address};
        }
        if (value.len != bytes) {
            return SX_FAIL(m->cx, SX_INPUT,
                           "kernel %s, parameter %s: %llu bytes, the argument has %zu", k->name,
                           p->name, (unsigned long long)bytes, value.len);
        }
        memcpy(m->parameter + m->parameter_offset[i], value.ptr, value.len);
    }
    return SX_OK;
}

static sx_code lay_constants(sx_ptx_machine *m)
{
    const sx_ptx_module *module = m->launch->module;
    m->constants = SX_NEW_ARRAY(m->cx, uint8_t, m->constants_bytes + 1);
    if (m->constants == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < module->variable_count; i++) {
        const sx_ptx_variable *v = &module->variable[i];
        if (v->space == SX_PTX_SPACE_CONST && m->module_address[i] != 0 && v->initial.len > 0) {
            SX_ASSERT(v->initial.len <= sx_ptx_variable_bytes(v));
            memcpy(m->constants + m->module_address[i] - SX_PTX_CONST_FIRST, v->initial.ptr,
                   v->initial.len);
        }
    }
    return SX_OK;
}

static sx_ptx_clock clock_at(const sx_ptx_machine *m, size_t index)
{
    uint32_t *seen = m->clocks + 2 * index * m->clock_words;
    return (sx_ptx_clock){seen, seen + m->clock_words};
}

static sx_code lay_clocks(sx_ptx_machine *m)
{
    uint32_t lanes = m->warp_count * SX_PTX_LANES;
    m->clock_words = m->warp_count + lanes + SX_PTX_ACTORS_MAX;
    size_t words = (size_t)2 * (lanes + SX_PTX_BARRIERS * m->block_count) * m->clock_words;
    m->clocks = SX_NEW_ARRAY(m->cx, uint32_t, words);
    if (m->clocks == NULL) {
        return m->cx->error.code;
    }
    m->clocks_bytes = words * sizeof *m->clocks;
    for (uint32_t i = 0; i < lanes; i++) {
        m->warp[i / SX_PTX_LANES].clock[i % SX_PTX_LANES] = clock_at(m, i);
    }
    for (uint32_t i = 0; i < SX_PTX_BARRIERS * m->block_count; i++) {
        m->barrier[i].clock = clock_at(m, lanes + i);
    }
    SX_TRY(sx_ptx_clock_make(m, &m->together.next));
    SX_TRY(sx_ptx_clock_make(m, &m->together.done));
    for (uint32_t i = 0; i < m->block_count; i++) {
        SX_TRY(sx_ptx_clock_make(m, &m->block[i].ended));
    }
    return SX_OK;
}

static sx_code lay_cluster(sx_ptx_machine *m)
{
    size_t threads = (size_t)m->warp_count * SX_PTX_LANES;
    m->block = SX_NEW_ARRAY(m->cx, sx_ptx_block_place, m->block_count);
    m->barrier = SX_NEW_ARRAY(m->cx, sx_ptx_barrier, SX_PTX_BARRIERS * m->block_count);
    if (m->block_count > 1) {
        m->far = SX_NEW_ARRAY(m->cx, sx_ptx_stamp, threads * m->block_count);
    }
    return m->block == NULL || m->barrier == NULL || (m->block_count > 1 && m->far == NULL)
               ? m->cx->error.code
               : SX_OK;
}

static sx_code lay_warps(sx_ptx_machine *m)
{
    m->thread_count = (uint32_t)volume(m->launch->block);
    m->block_warps = (m->thread_count + SX_PTX_LANES - 1) / SX_PTX_LANES;
    if (m->block_count > 1) {
        m->block_warps = (m->block_warps + WARPGROUP - 1) / WARPGROUP * WARPGROUP;
    }
    m->shared_stride =
        m->shared_bytes / SX_PTX_SHARED_ALIGN * SX_PTX_SHARED_ALIGN + SX_PTX_SHARED_ALIGN;
    m->warp_count = m->block_warps * m->block_count;
    uint64_t shared_bytes = m->shared_stride * m->block_count;
    uint64_t local_bytes = m->local_bytes * m->warp_count * SX_PTX_LANES;
    m->warp = SX_NEW_ARRAY(m->cx, sx_ptx_warp, m->warp_count);
    m->shared = SX_NEW_ARRAY(m->cx, uint8_t, shared_bytes + 1);
    m->cell = SX_NEW_ARRAY(m->cx, sx_ptx_cell, (shared_bytes >> m->cell_shift) + 1);
    m->local = SX_NEW_ARRAY(m->cx, uint8_t, local_bytes + 1);
    m->local_known = SX_NEW_ARRAY(m->cx, uint8_t, local_bytes + 1);
    if (m->warp == NULL || m->shared == NULL || m->cell == NULL || m->local == NULL ||
        m->local_known == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        m->warp[i].file = SX_NEW_ARRAY(m->cx, sx_ptx_word, m->file_count);
        m->warp[i].known = SX_NEW_ARRAY(m->cx, uint32_t, m->file_count);
        if (m->warp[i].file == NULL || m->warp[i].known == NULL) {
            return m->cx->error.code;
        }
        m->warp[i].index = i;
        m->warp[i].block = i / m->block_warps;
        if (m->multiplies) {
            m->warp[i].changed = SX_NEW_ARRAY(m->cx, uint8_t, m->file_count);
            m->warp[i].lock = SX_NEW_ARRAY(m->cx, uint16_t, m->file_count);
            m->warp[i].lock_insn = SX_NEW_ARRAY(m->cx, uint32_t, m->file_count);
            if (m->warp[i].changed == NULL || m->warp[i].lock == NULL ||
                m->warp[i].lock_insn == NULL) {
                return m->cx->error.code;
            }
        }
    }
    SX_TRY(lay_cluster(m));
    return m->tracks ? lay_clocks(m) : SX_OK;
}

sx_code sx_ptx_lay(sx_ptx_machine *m)
{
    const sx_ptx_launch *l = m->launch;
    uint64_t shared_max = l->shared_bytes_max == 0 ? SHARED_BYTES_USUAL : l->shared_bytes_max;
    SX_ASSERT(m->micro != NULL && m->warp == NULL);
    SX_TRY(check_block(m));
    if (l->dynamic_shared_bytes > shared_max || m->shared_bytes > shared_max) {
        return SX_FAIL(m->cx, SX_LIMIT,
                       "kernel %s: %llu bytes of shared memory, the device has %llu for a block",
                       m->kernel->name, (unsigned long long)m->shared_bytes,
                       (unsigned long long)shared_max);
    }
    m->outcome->statistics.shared_bytes = m->shared_bytes;
    SX_TRY(lay_regions(m));
    SX_TRY(lay_arguments(m));
    SX_TRY(lay_constants(m));
    return lay_warps(m);
}
