/* cluster.c - blocks that run together: addresses in each other's shared memory, their barrier, their ends.
 *
 * The warps of all blocks of a cluster are one set, and their shared memory lies in one array, so that races, barriers
 * in shared memory and the clocks of threads know nothing of blocks. What is of clusters alone is here. Shared memory
 * of another block may be accessed from when that block is known to run until the last of its threads ends, and both
 * are matters of what a thread has seen, not of the order in which this run happened to execute the blocks.
 */
#include "core/simt/machine.h"

/* ---- registers and addresses ---- */
void sx_ptx_cluster_begin(sx_ptx_machine *m, sx_ptx_dim first)
{
    const sx_ptx_dim *c = &m->cluster, *g = &m->launch->grid;
    for (uint32_t rank = 0; rank < m->block_count; rank++) {
        sx_ptx_block_place *b = &m->block[rank];
        b->at = (sx_ptx_dim){first.x + rank % c->x, first.y + rank / c->x % c->y,
                             first.z + rank / c->x / c->y};
        b->number = (b->at.z * g->y + b->at.y) * g->x + b->at.x;
        if (m->tracks) {
            sx_ptx_clock_clear(m, &b->ended);
        }
    }
    if (m->tracks) {
        sx_ptx_clock_clear(m, &m->together.next);
        sx_ptx_clock_clear(m, &m->together.done);
    }
    size_t pairs = (size_t)m->warp_count * SX_PTX_LANES * m->block_count;
    for (size_t i = 0; m->far != NULL && i < pairs; i++) {
        m->far[i].thread = 0;
    }
}

void sx_ptx_cluster_fill(const sx_ptx_machine *m, sx_ptx_warp *w)
{
    const sx_ptx_dim *c = &m->cluster, *g = &m->launch->grid, *at = &m->block[w->block].at;
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTERID_X, at->x / c->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTERID_Y, at->y / c->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTERID_Z, at->z / c->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCLUSTERID_X, g->x / c->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCLUSTERID_Y, g->y / c->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_NCLUSTERID_Z, g->z / c->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_CTAID_X, at->x % c->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_CTAID_Y, at->y % c->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_CTAID_Z, at->z % c->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_NCTAID_X, c->x);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_NCTAID_Y, c->y);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_NCTAID_Z, c->z);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_CTARANK, w->block);
    sx_ptx_fill(w, SX_PTX_SPECIAL_CLUSTER_NCTARANK, m->block_count);
}

/* mapa: the same place in the shared memory of another block. */
static sx_code map_address(const sx_ptx_step *s, uint32_t lane)
{
    bool generic = s->u->space == 0;
    uint64_t address = sx_ptx_operand_word(s, 0)->lane[lane];
    uint64_t rank = (uint32_t)sx_ptx_operand_word(s, 1)->lane[lane];
    uint64_t window = generic ? SX_PTX_WINDOW_SHARED : 0, at = address - window;
    if (at >= (SX_PTX_CLUSTER_BLOCKS_MAX + 1) * SX_PTX_SHARED_OF_RANK) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "0x%llx is no address of shared memory", (unsigned long long)address);
    }
    if (rank >= s->m->block_count) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "there is no block %u in the cluster, which has %u", (uint32_t)rank,
                           s->m->block_count);
    }
    sx_ptx_result(s, 0)->lane[lane] =
        window + (rank + 1) * SX_PTX_SHARED_OF_RANK + at % SX_PTX_SHARED_OF_RANK;
    return SX_OK;
}

/* ---- the shared memory of another block ---- */
/* Has the lane seen anything of a thread of the block? Epochs count from 1. */
static bool has_begun(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t rank)
{
    uint32_t first = rank * m->block_warps;
    const uint32_t *seen = w->clock[lane].seen, *thread = seen + m->warp_count;
    for (uint32_t i = first; i < first + m->block_warps; i++) {
        if (w->seen[i] > 0 || seen[i] > 0) {
            return true;
        }
    }
    for (uint32_t i = first * SX_PTX_LANES; i < (first + m->block_warps) * SX_PTX_LANES; i++) {
        if (thread[i] > 0) {
            return true;
        }
    }
    return false;
}

sx_code sx_ptx_cluster_access(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                              uint32_t rank)
{
    uint16_t *met = &m->warp[w->index].met[lane];
    SX_ASSERT(rank < m->block_count && rank != w->block && m->tracks);
    if ((*met >> rank & 1) == 0) {
        if (!has_begun(m, w, lane, rank)) {
            const sx_ptx_dim *at = &m->block[rank].at;
            return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH,
                               "accesses the shared memory of block (%u,%u,%u), which may not run "
                               "yet: no barrier of the cluster lies before",
                               at->x, at->y, at->z);
        }
        *met |= (uint16_t)(1U << rank);
    }
    if (m->micro[insn].handler != SX_PTX_RUN_BULK) { // copies end when their mbarrier says so
        m->far[((size_t)w->index * SX_PTX_LANES + lane) * m->block_count + rank] =
            sx_ptx_stamp_of(w, lane, insn, false);
    }
    return SX_OK;
}

/* The threads of the block may all have ended before the access. */
static sx_code gone(sx_ptx_machine *m, uint32_t rank, const sx_ptx_warp *w, uint32_t lane,
                    uint32_t insn, const char *before)
{
    const sx_ptx_dim *at = &m->block[rank].at;
    return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH,
                       "accesses the shared memory of block (%u,%u,%u), which may have ended: none "
                       "of its threads %s before its end",
                       at->x, at->y, at->z, before);
}

sx_code sx_ptx_cluster_end(sx_ptx_machine *m)
{
    for (uint32_t i = 0; m->far != NULL && i < m->warp_count * SX_PTX_LANES * m->block_count; i++) {
        const sx_ptx_stamp *stamp = &m->far[i];
        uint32_t rank = i % m->block_count, thread = i / m->block_count;
        if (stamp->thread != 0 && !sx_ptx_clock_includes(m, &m->block[rank].ended, stamp)) {
            return gone(m, rank, &m->warp[thread / SX_PTX_LANES], thread % SX_PTX_LANES,
                        stamp->insn, "waits for that");
        }
    }
    for (uint32_t i = 0; i < m->mbarrier_count; i++) {
        const sx_ptx_mbarrier *b = &m->mbarrier[i];
        uint32_t rank = (uint32_t)(b->offset / m->shared_stride);
        const uint32_t *seen = m->block[rank].ended.seen;
        if (b->far_epoch > 0 && seen[sx_ptx_actor_word(m, b->actor)] < b->far_epoch) {
            return gone(m, rank, &m->warp[b->far_warp], b->far_lane, b->far_insn,
                        "waits for the phase that the copy ends");
        }
    }
    return SX_OK;
}

/* ---- the barrier of the cluster ---- */
/* Who has ended counts as arrived. */
static void try_complete(sx_ptx_machine *m)
{
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        if ((m->warp[i].ended | m->warp[i].arrived) != SX_PTX_ALL) {
            return;
        }
        arrived |= m->warp[i].arrived;
    }
    if (arrived == 0) {
        return;
    }
    sx_ptx_clock_join(m, &m->together.done, &m->together.next);
    m->outcome->statistics.barriers++;
    m->fruitless = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        sx_ptx_warp *w = &m->warp[i];
        w->passed |= w->arrived;
        w->arrived = 0;
        for (uint32_t left = w->stalled; left != 0; left &= left - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(left);
            if (w->stalled_on[lane] == SX_PTX_ON_CLUSTER) {
                w->stalled &= ~(1U << lane);
                w->running |= 1U << lane;
            }
        }
    }
}

static sx_code arrive(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_modifier order =
        sx_ptx_insn_modifier(&s->m->kernel->insn[s->insn], SX_PTX_CLASS_ORDER, 0);
    if (((s->w->arrived | s->w->passed) >> lane & 1) != 0) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "arrives at the barrier of the cluster twice and has not waited");
    }
    if (order != SX_PTX_ORDER_RELAXED) {
        sx_ptx_release(s->m, s->w, lane, &s->m->together.next);
    }
    s->w->arrived |= 1U << lane;
    return SX_OK;
}

static sx_code wait(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_warp *w = s->w;
    if ((w->passed >> lane & 1) != 0) {
        w->passed &= ~(1U << lane);
        sx_ptx_acquire(s->m, w, lane, &s->m->together.done);
        return SX_OK;
    }
    if ((w->arrived >> lane & 1) == 0) {
        return sx_ptx_stop(s->m, w, lane, s->insn, SX_MISMATCH,
                           "waits at the barrier of the cluster and has not arrived");
    }
    w->stalled |= 1U << lane;
    w->running &= ~(1U << lane);
    w->stalled_on[lane] = SX_PTX_ON_CLUSTER;
    return SX_OK;
}

sx_code sx_ptx_run_cluster(const sx_ptx_step *s)
{
    bool arrives = s->m->kernel->insn[s->insn].op == SX_PTX_OP_CLUSTER_ARRIVE;
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (s->u->handler == SX_PTX_RUN_MAPA) {
            SX_TRY(map_address(s, lane));
        } else {
            SX_TRY(arrives ? arrive(s, lane) : wait(s, lane));
        }
    }
    if (arrives) {
        try_complete(s->m);
    }
    return SX_OK;
}

void sx_ptx_cluster_leave(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes)
{
    if (!m->tracks) {
        return;
    }
    for (uint32_t left = m->block_count > 1 ? lanes : 0; left != 0; left &= left - 1) {
        sx_ptx_release(m, w, (uint32_t)__builtin_ctz(left), &m->block[w->block].ended);
    }
    try_complete(m);
}

sx_code sx_ptx_cluster_deadlock(sx_ptx_machine *m, const sx_ptx_warp *w)
{
    uint32_t lane = (uint32_t)__builtin_ctz(w->stalled), missing = 0, first = 0;
    for (uint32_t i = m->warp_count * SX_PTX_LANES; i-- > 0;) {
        const sx_ptx_warp *other = &m->warp[i / SX_PTX_LANES];
        if (((other->ended | other->arrived) >> i % SX_PTX_LANES & 1) == 0) {
            missing++;
            first = i;
        }
    }
    char name[SX_PTX_THREAD_TEXT_MAX];
    return sx_ptx_stop(m, w, lane, w->pc[lane], SX_MISMATCH,
                       "deadlock: %u threads never arrive at the barrier of the cluster, the "
                       "first is %s",
                       missing, sx_ptx_thread_name(m, NULL, first, name));
}
