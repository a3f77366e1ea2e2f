/* launch.c - a launch: cluster after cluster, the warps of each in an order that the seed chooses. */
#include <string.h>

#include "core/simt/machine.h"

void sx_ptx_fill(sx_ptx_warp *w, sx_ptx_special special, uint32_t value)
{
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        w->file[special].lane[lane] = value;
    }
    w->known[special] = SX_PTX_ALL;
}

static void fill_threads(const sx_ptx_machine *m, sx_ptx_warp *w)
{
    static const sx_ptx_special own[] = {
        SX_PTX_SPECIAL_TID_X,       SX_PTX_SPECIAL_TID_Y,       SX_PTX_SPECIAL_TID_Z,
        SX_PTX_SPECIAL_LANEID,      SX_PTX_SPECIAL_LANEMASK_EQ, SX_PTX_SPECIAL_LANEMASK_LT,
        SX_PTX_SPECIAL_LANEMASK_LE, SX_PTX_SPECIAL_LANEMASK_GT, SX_PTX_SPECIAL_LANEMASK_GE};
    for (uint32_t i = 0; i < SX_COUNT(own); i++) {
        sx_ptx_fill(w, own[i], 0);
    }
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        sx_ptx_dim t = sx_ptx_thread_of(m, w->index * SX_PTX_LANES + lane);
        uint32_t bit = 1U << lane, below = bit - 1;
        w->file[SX_PTX_SPECIAL_TID_X].lane[lane] = t.x;
        w->file[SX_PTX_SPECIAL_TID_Y].lane[lane] = t.y;
        w->file[SX_PTX_SPECIAL_TID_Z].lane[lane] = t.z;
        w->file[SX_PTX_SPECIAL_LANEID].lane[lane] = lane;
        w->file[SX_PTX_SPECIAL_LANEMASK_EQ].lane[lane] = bit;
        w->file[SX_PTX_SPECIAL_LANEMASK_LT].lane[lane] = below;
        w->file[SX_PTX_SPECIAL_LANEMASK_LE].lane[lane] = below | bit;
        w->file[SX_PTX_SPECIAL_LANEMASK_GT].lane[lane] = (uint32_t) ~(below | bit);
        w->file[SX_PTX_SPECIAL_LANEMASK_GE].lane[lane] = (uint32_t)~below;
    }
}

static void begin_warp(const sx_ptx_machine *m, sx_ptx_warp *w)
{
    sx_ptx_word *file = w->file;
    uint32_t *known = w->known, index = w->index;
    uint32_t before = index % m->block_warps * SX_PTX_LANES;
    uint32_t threads = m->thread_count > before ? m->thread_count - before : 0;
    const sx_ptx_dim *block = &m->launch->block, *grid = &m->launch->grid;
    const sx_ptx_dim *at = &m->block[w->block].at;
    memset(known, 0, m->file_count * sizeof *known);
    memset(file, 0, m->file_count * sizeof *file);
    const sx_ptx_warp old = *w;
    *w = (sx_ptx_warp){.file = file,
                       .known = known,
                       .index = index,
                       .block = old.block,
                       .epoch = 1,
                       .changed = old.changed,
                       .lock = old.lock,
                       .lock_insn = old.lock_insn,
                       .product_group = 1};
    memcpy(w->clock, old.clock, sizeof w->clock);
    if (w->changed != NULL) { // a fence must come before the first product
        memset(w->changed, 1, m->file_count * sizeof *w->changed);
        memset(w->lock, 0, m->file_count * sizeof *w->lock);
    }
    w->running = threads >= SX_PTX_LANES ? SX_PTX_ALL : (1U << threads) - 1;
    w->ended = ~w->running;
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        w->lane_epoch[lane] = 1;
        w->group[lane] = 1;
    }
    fill_threads(m, w);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NTID_X, block->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NTID_Y, block->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NTID_Z, block->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CTAID_X, at->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CTAID_Y, at->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CTAID_Z, at->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCTAID_X, grid->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCTAID_Y, grid->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCTAID_Z, grid->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_WARPID, index % m->block_warps);
    sx_ptx_fill(w, SX_PTX_SPECIAL_DYNAMIC_SMEM_SIZE, (uint32_t)m->launch->dynamic_shared_bytes);
    sx_ptx_fill(w, SX_PTX_SPECIAL_TOTAL_SMEM_SIZE, (uint32_t)m->shared_bytes);
    sx_ptx_cluster_fill(m, w);
}

/* The warp that goes on: any that can, from `next` on; NULL: none can. */
static sx_ptx_warp *choose_warp(sx_ptx_machine *m, uint32_t *next)
{
    uint32_t first = m->launch->seed == 0 ? *next : (uint32_t)sx_rng_below(&m->rng, m->warp_count);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        uint32_t index = (first + i) % m->warp_count;
        const sx_ptx_warp *w = &m->warp[index];
        if (w->running != 0 || (w->meeting != 0 && w->stalled == 0)) {
            *next = index + 1;
            return &m->warp[index];
        }
    }
    return NULL;
}

static void begin_cluster(sx_ptx_machine *m, sx_ptx_dim first)
{
    uint64_t shared_bytes = m->shared_stride * m->block_count;
    memset(m->cell, 0, ((shared_bytes >> m->cell_shift) + 1) * sizeof *m->cell);
    memset(m->local_known, 0, m->local_bytes * m->warp_count * SX_PTX_LANES);
    for (uint32_t i = 0; i < SX_PTX_BARRIERS * m->block_count; i++) {
        m->barrier[i] = (sx_ptx_barrier){.clock = m->barrier[i].clock};
    }
    if (m->clocks != NULL) {
        memset(m->clocks, 0, m->clocks_bytes);
    }
    for (uint32_t i = 0; i < m->bulk_count; i++) {
        m->bulk[i].busy = false;
    }
    m->copy_count = m->actor_count = m->mbarrier_count = m->bulk_busy = m->product_count = 0;
    m->fruitless = 0;
    sx_ptx_cluster_begin(m, first);
    for (uint32_t i = 0; i < m->warp_count; i++) {
        begin_warp(m, &m->warp[i]);
    }
}

static bool all_ended(const sx_ptx_machine *m)
{
    bool ended = true;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        ended = ended && m->warp[i].ended == SX_PTX_ALL;
    }
    return ended;
}

static sx_code end_cluster(sx_ptx_machine *m)
{
    if (!all_ended(m)) {
        return sx_ptx_deadlock(m);
    }
    for (uint32_t i = 0; i < m->bulk_count && m->bulk_busy > 0; i++) {
        const sx_ptx_bulk *c = &m->bulk[i];
        if (c->busy) {
            return sx_ptx_stop(m, &m->warp[c->warp], c->lane, c->insn, SX_MISMATCH,
                               "the block ends while this copy is under way: nobody waited for it");
        }
    }
    return sx_ptx_cluster_end(m);
}

/* Copies arrive when nothing else can happen, and with a seed now and then before. */
static sx_code run_cluster(sx_ptx_machine *m, sx_ptx_dim block)
{
    const uint32_t steps_usual = 256, steps_seeded = 24, early = 32;
    uint32_t next = 0;
    bool going = true;
    begin_cluster(m, block);
    while (going) {
        sx_ptx_warp *w = choose_warp(m, &next);
        bool arrives =
            m->bulk_busy > 0 && m->launch->seed != 0 && sx_rng_below(&m->rng, early) == 0;
        if (w == NULL || arrives) {
            bool landed = false;
            if (!all_ended(m)) {
                SX_TRY(sx_ptx_bulk_land_one(m, &landed));
            }
            going = w != NULL || landed;
            continue;
        }
        uint32_t steps =
            m->launch->seed == 0 ? steps_usual : 1 + (uint32_t)sx_rng_below(&m->rng, steps_seeded);
        SX_TRY(sx_spend(m->cx, steps));
        SX_TRY(sx_ptx_warp_go(m, w, steps));
    }
    return end_cluster(m);
}

/* The clusters of the grid that the launch runs. */
static sx_code choose_clusters(sx_ptx_machine *m, uint64_t *begin, uint64_t *count)
{
    const sx_ptx_launch *l = m->launch;
    const sx_ptx_dim *g = &l->grid;
    uint64_t blocks = (uint64_t)g->x * g->y;
    if (blocks > UINT32_MAX / g->z) {
        return SX_FAIL(m->cx, SX_LIMIT, "grid %u,%u,%u: more than %u blocks", g->x, g->y, g->z,
                       UINT32_MAX);
    }
    blocks *= g->z;
    if (l->first_block >= blocks || l->block_count > blocks - l->first_block) {
        return SX_FAIL(m->cx, SX_INPUT, "blocks %llu and %llu more, the grid has %llu",
                       (unsigned long long)l->first_block, (unsigned long long)l->block_count,
                       (unsigned long long)blocks);
    }
    if (l->first_block % m->block_count != 0 || l->block_count % m->block_count != 0) {
        return SX_FAIL(m->cx, SX_INPUT, "blocks %llu and %llu more are no whole clusters of %u",
                       (unsigned long long)l->first_block, (unsigned long long)l->block_count,
                       m->block_count);
    }
    *begin = l->first_block / m->block_count;
    *count = (l->block_count > 0 ? l->block_count : blocks - l->first_block) / m->block_count;
    return SX_OK;
}

/* Clusters in the order first + i * stride modulo their number: every one once. */
static sx_code run_clusters(sx_ptx_machine *m)
{
    const sx_ptx_dim *c = &m->cluster;
    uint64_t x = m->launch->grid.x / c->x, y = m->launch->grid.y / c->y;
    uint64_t begin = 0, clusters = 0, first = 0, stride = 1;
    SX_TRY(choose_clusters(m, &begin, &clusters));
    SX_ASSERT(clusters > 0);
    if (m->launch->seed != 0) {
        first = sx_rng_below(&m->rng, clusters);
        stride = 1 + sx_rng_below(&m->rng, clusters);
        while (sx_gcd_u64(stride, clusters) != 1) {
            stride++;
        }
    }
    for (uint64_t i = 0; i < clusters; i++) {
        uint64_t n = begin + (first + i * (stride % clusters)) % clusters;
        SX_TRY(run_cluster(m, (sx_ptx_dim){(uint32_t)(n % x) * c->x, (uint32_t)(n / x % y) * c->y,
                                           (uint32_t)(n / x / y) * c->z}));
        if (m->cx->progress != NULL) {
            m->cx->progress(m->cx->progress_self, "interpret", (i + 1) * m->block_count,
                            clusters * m->block_count);
        }
    }
    return SX_OK;
}

sx_code sx_ptx_run(sx_ctx *cx, const sx_ptx_launch *launch, sx_ptx_outcome *outcome)
{
    SX_ASSERT(launch->module != NULL && launch->kernel != NULL);
    SX_ASSERT(launch->region != NULL || launch->region_count == 0);
    sx_ptx_machine *m = SX_NEW(cx, sx_ptx_machine);
    if (m == NULL) {
        return cx->error.code;
    }
    *outcome = (sx_ptx_outcome){.statistics = {0}};
    m->cx = cx;
    m->launch = launch;
    m->outcome = outcome;
    m->rng.state = launch->seed;
    m->instructions_left = launch->instructions_max == 0 ? UINT64_MAX : launch->instructions_max;
    for (uint32_t i = 0; i < launch->module->kernel_count; i++) {
        if (strcmp(launch->module->kernel[i].name, launch->kernel) == 0) {
            m->kernel = &launch->module->kernel[i];
        }
    }
    if (m->kernel == NULL) {
        return SX_FAIL(cx, SX_ABSENT, "the module has no kernel %s", launch->kernel);
    }
    SX_TRY(sx_ptx_choose_cluster(m));
    SX_TRY(sx_ptx_prepare(m));
    if (launch->follow && launch->seed == 0) {
        SX_TRY(sx_ptx_follow(m, &outcome->affine));
    }
    SX_TRY(sx_ptx_lay(m));
    return run_clusters(m);
}
