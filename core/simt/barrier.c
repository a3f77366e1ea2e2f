/* barrier.c - the sixteen barriers of a block. Warps arrive as a whole and count as 32 threads. */
#include <stdio.h>

#include "core/simt/machine.h"

/* `id` among the barriers of all blocks of the cluster. */
static bool all_arrived(const sx_ptx_machine *m, uint32_t id)
{
    const sx_ptx_barrier *b = &m->barrier[id];
    if (b->expected != 0) {
        return b->arrived == b->expected;
    }
    const sx_ptx_warp *of_block = &m->warp[id / SX_PTX_BARRIERS * m->block_warps];
    for (uint32_t i = 0; i < m->block_warps; i++) {
        const sx_ptx_warp *w = &of_block[i];
        bool waits = w->waiting != 0 && w->waits_for == id;
        if (w->ended != SX_PTX_ALL && !waits) {
            return false;
        }
    }
    return true;
}

static void open_barrier(sx_ptx_machine *m, uint32_t id)
{
    sx_ptx_barrier *b = &m->barrier[id];
    for (uint32_t i = 0; i < m->warp_count; i++) {
        sx_ptx_warp *w = &m->warp[i];
        if (w->waiting == 0 || w->waits_for != id) {
            continue;
        }
        sx_ptx_order_leave(m, w, b);
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            w->pc[lane] += w->waiting >> lane & 1;
        }
        w->running = w->waiting;
        w->waiting = 0;
    }
    *b = (sx_ptx_barrier){.clock = b->clock};
    if (m->tracks) {
        sx_ptx_clock_clear(m, &b->clock);
    }
    m->outcome->statistics.barriers++;
}

static sx_code uniform(const sx_ptx_step *s, uint32_t index, uint32_t *value)
{
    const sx_ptx_word *word = sx_ptx_operand_word(s, index);
    uint32_t first = (uint32_t)__builtin_ctz(s->active);
    *value = (uint32_t)word->lane[first];
    for (uint32_t lane = first; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) != 0 && (uint32_t)word->lane[lane] != *value) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "gives %u where lane %u of its warp gives %u",
                               (uint32_t)word->lane[lane], first, *value);
        }
    }
    return SX_OK;
}

sx_code sx_ptx_run_barrier(const sx_ptx_step *s)
{
    sx_ptx_machine *m = s->m;
    uint32_t id, expected = 0, lane = (uint32_t)__builtin_ctz(s->active);
    bool arrives = sx_ptx_insn_modifier(&m->kernel->insn[s->insn], SX_PTX_CLASS_ARRIVE, 0) != 0;
    SX_TRY(uniform(s, 0, &id));
    if (s->u->operand_count > 1) {
        SX_TRY(uniform(s, 1, &expected));
    }
    if (id >= SX_PTX_BARRIERS) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH, "barrier %u, there are %d", id,
                           SX_PTX_BARRIERS);
    }
    if (s->u->operand_count > 1 && (expected == 0 || expected % SX_PTX_LANES != 0)) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "barrier %u is for %u threads, which are not whole warps", id, expected);
    }
    id += s->w->block * SX_PTX_BARRIERS;
    sx_ptx_barrier *b = &m->barrier[id];
    if (b->busy && b->expected != expected) {
        return sx_ptx_stop(
            m, s->w, lane, s->insn, SX_MISMATCH,
            "barrier %u is for %u threads, others arrived for %u (0: all of the block)",
            id % SX_PTX_BARRIERS, expected, b->expected);
    }
    b->busy = true;
    b->expected = expected;
    b->arrived += SX_PTX_LANES;
    sx_ptx_order_arrive(m, s->w, b);
    if (arrives) {
        for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
            s->w->pc[i] += s->active >> i & 1;
        }
    } else {
        s->w->running = 0;
        s->w->waiting = s->active;
        s->w->waits_for = id;
    }
    if (all_arrived(m, id)) {
        open_barrier(m, id);
    }
    return SX_OK;
}

void sx_ptx_reopen(sx_ptx_machine *m)
{
    for (uint32_t id = 0; id < SX_PTX_BARRIERS * m->block_count; id++) {
        if (m->barrier[id].busy && m->barrier[id].expected == 0 && all_arrived(m, id)) {
            open_barrier(m, id);
        }
    }
}

/* Lanes that wait for phases of mbarriers, not at the barrier of the cluster. */
static uint32_t stalled_on_mbarrier(const sx_ptx_warp *w)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        lanes |= (uint32_t)(w->stalled_on[i] != SX_PTX_ON_CLUSTER) << i;
    }
    return lanes & w->stalled;
}

/* A lane that waits for a phase of an mbarrier that never ends. */
static sx_code stalled_for_ever(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane)
{
    const sx_ptx_mbarrier *b = &m->mbarrier[w->stalled_on[lane]];
    bool parity = sx_ptx_insn_modifier(&m->kernel->insn[w->pc[lane]], SX_PTX_CLASS_PARITY, 0) != 0;
    return sx_ptx_stop(m, w, lane, w->pc[lane], SX_MISMATCH,
                       "deadlock: waits for %s %u of the mbarrier at byte %u of shared memory, "
                       "which is in phase %u: %u of %u arrivals and %lld bytes are missing",
                       parity ? "parity" : "phase", w->stalled_value[lane],
                       sx_ptx_byte_of(m, b->offset), b->phase, b->pending, b->count,
                       (long long)b->tx);
}

sx_code sx_ptx_deadlock(sx_ptx_machine *m)
{
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const sx_ptx_warp *w = &m->warp[i];
        uint32_t stalled = stalled_on_mbarrier(w);
        if (stalled != 0) {
            return stalled_for_ever(m, w, (uint32_t)__builtin_ctz(stalled));
        }
        if (w->parked != 0) {
            return sx_ptx_stop(m, w, 0, w->pc[0], SX_MISMATCH,
                               "deadlock: the other warps of the warpgroup never come here");
        }
    }
    const sx_ptx_warp *first = NULL, *at_cluster = NULL;
    char others[512] = "";
    size_t len = 0;
    uint32_t told = 0;
    for (uint32_t i = 0; i < m->warp_count; i++) {
        const sx_ptx_warp *w = &m->warp[i];
        const uint32_t told_max = 8;
        at_cluster = at_cluster == NULL && w->stalled != 0 ? w : at_cluster;
        if (w->waiting == 0) {
            continue;
        }
        first = first == NULL ? w : first;
        if (told++ < told_max) {
            int n =
                snprintf(others + len, sizeof others - len, "%s warp %u at barrier %u",
                         told > 1 ? "," : "", i % m->block_warps, w->waits_for % SX_PTX_BARRIERS);
            len += n > 0 && (size_t)n < sizeof others - len ? (size_t)n : 0;
        }
    }
    if (first == NULL && at_cluster != NULL) {
        return sx_ptx_cluster_deadlock(m, at_cluster);
    }
    SX_ASSERT(first != NULL);
    uint32_t lane = (uint32_t)__builtin_ctz(first->waiting);
    const sx_ptx_barrier *b = &m->barrier[first->waits_for];
    char count[32] = "all";
    if (b->expected != 0) {
        (void)snprintf(count, sizeof count, "%u", b->expected);
    }
    return sx_ptx_stop(m, first, lane, first->pc[lane], SX_MISMATCH,
                       "deadlock: barrier %u waits for %s threads, %u arrived; waiting%s",
                       first->waits_for % SX_PTX_BARRIERS, count, b->arrived, others);
}
