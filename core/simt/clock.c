/* clock.c - what a thread has seen of the others, thread by thread: for barriers in shared memory and the engines.
 *
 * A clock has a word for each warp, each thread and each actor of the cluster. The word of a warp is an epoch of
 * its barriers, that of a thread an epoch of its own; an access comes before whoever has seen either. An actor is
 * something that accesses memory by itself: the copies that complete on one mbarrier, the products of a
 * warpgroup, the bulk stores of a thread. Each thread has two clocks: what it has seen, and which of that it knows
 * to lie before a proxy fence, so that engines may read it.
 */
#include <string.h>

#include "core/simt/machine.h"

static void join(uint32_t *to, const uint32_t *from, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        to[i] = from[i] > to[i] ? from[i] : to[i];
    }
}

/* Words of actors that there are not yet are zero. */
static uint32_t used(const sx_ptx_machine *m)
{
    return m->warp_count + m->warp_count * SX_PTX_LANES + m->actor_count;
}

sx_code sx_ptx_clock_make(sx_ptx_machine *m, sx_ptx_clock *clock)
{
    clock->seen = SX_NEW_ARRAY(m->cx, uint32_t, m->clock_words);
    clock->fenced = SX_NEW_ARRAY(m->cx, uint32_t, m->clock_words);
    return clock->seen == NULL || clock->fenced == NULL ? m->cx->error.code : SX_OK;
}

void sx_ptx_clock_clear(const sx_ptx_machine *m, sx_ptx_clock *clock)
{
    SX_ASSERT(clock->seen != NULL);
    memset(clock->seen, 0, m->clock_words * sizeof *clock->seen);
    memset(clock->fenced, 0, m->clock_words * sizeof *clock->fenced);
}

void sx_ptx_clock_join(const sx_ptx_machine *m, sx_ptx_clock *to, const sx_ptx_clock *from)
{
    join(to->seen, from->seen, used(m));
    join(to->fenced, from->fenced, used(m));
}

/* All that the lane has seen, itself included. */
static void join_lane(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t *to)
{
    uint32_t *own = to + m->warp_count + w->index * SX_PTX_LANES;
    join(to, w->seen, m->warp_count);
    join(to, w->clock[lane].seen, used(m));
    join(own, w->lane_seen[lane], SX_PTX_LANES);
    /* What lies before the last barrier of the block, all lanes of the warp have behind them. */
    to[w->index] = w->epoch - 1 > to[w->index] ? w->epoch - 1 : to[w->index];
    own[lane] = w->lane_epoch[lane];
}

void sx_ptx_release(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane, sx_ptx_clock *to)
{
    SX_ASSERT(m->tracks && w->clock[lane].seen != NULL);
    join_lane(m, w, lane, to->seen);
    join(to->fenced, w->clock[lane].fenced, used(m));
    w->lane_epoch[lane]++;
}

void sx_ptx_acquire(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane,
                    const sx_ptx_clock *from)
{
    SX_ASSERT(m->tracks && w->clock[lane].seen != NULL);
    const uint32_t *own = from->seen + m->warp_count + w->index * SX_PTX_LANES;
    sx_ptx_clock_join(m, &w->clock[lane], from);
    for (uint32_t k = 0; k < SX_PTX_LANES; k++) {
        bool more = k != lane && own[k] > w->lane_seen[lane][k];
        w->lane_seen[lane][k] = more ? own[k] : w->lane_seen[lane][k];
    }
}

void sx_ptx_fence_proxy(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane)
{
    join_lane(m, w, lane, w->clock[lane].fenced);
    w->lane_epoch[lane]++;
}

void sx_ptx_clock_order_lanes(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes)
{
    uint32_t first = (uint32_t)__builtin_ctz(lanes);
    sx_ptx_clock *all = &w->clock[first];
    for (uint32_t lane = first + 1; lane < SX_PTX_LANES; lane++) {
        if ((lanes >> lane & 1) != 0) {
            sx_ptx_clock_join(m, all, &w->clock[lane]);
        }
    }
    for (uint32_t lane = first + 1; lane < SX_PTX_LANES; lane++) {
        if ((lanes >> lane & 1) != 0) {
            memcpy(w->clock[lane].seen, all->seen, m->clock_words * sizeof *all->seen);
            memcpy(w->clock[lane].fenced, all->fenced, m->clock_words * sizeof *all->fenced);
        }
    }
}

static bool holds(const sx_ptx_machine *m, const uint32_t *clock, const sx_ptx_stamp *stamp)
{
    uint32_t id = stamp->thread - 1U, threads = m->warp_count * SX_PTX_LANES;
    return clock[m->warp_count + id] >= stamp->lane_epoch ||
           (id < threads && clock[id / SX_PTX_LANES] >= stamp->warp_epoch);
}

bool sx_ptx_clock_holds(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane,
                        const sx_ptx_stamp *stamp)
{
    SX_ASSERT(m->tracks);
    return holds(m, w->clock[lane].seen, stamp);
}

bool sx_ptx_clock_includes(const sx_ptx_machine *m, const sx_ptx_clock *clock,
                           const sx_ptx_stamp *stamp)
{
    return holds(m, clock->seen, stamp);
}

bool sx_ptx_is_fenced(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane,
                      const sx_ptx_stamp *stamp)
{
    /* What engines wrote needs no fence for engines. */
    return stamp->thread == 0 || stamp->thread > m->warp_count * SX_PTX_LANES ||
           holds(m, w->clock[lane].fenced, stamp);
}

/* ---- actors ---- */
sx_code sx_ptx_actor_make(sx_ptx_machine *m, sx_ptx_actor_kind kind, uint32_t of, uint32_t *actor)
{
    if (m->actor_count == SX_PTX_ACTORS_MAX) {
        return SX_FAIL(m->cx, SX_LIMIT,
                       "kernel %s: more than %d mbarriers, warpgroups and threads with bulk copies",
                       m->kernel->name, SX_PTX_ACTORS_MAX);
    }
    m->actor[m->actor_count] = (sx_ptx_actor){.kind = (uint8_t)kind, .of = of};
    *actor = m->actor_count++;
    return SX_OK;
}

uint32_t sx_ptx_actor_word(const sx_ptx_machine *m, uint32_t actor)
{
    SX_ASSERT(actor < m->actor_count);
    return m->warp_count + m->warp_count * SX_PTX_LANES + actor;
}

sx_ptx_stamp sx_ptx_actor_stamp(const sx_ptx_machine *m, uint32_t actor, uint32_t epoch,
                                uint32_t insn)
{
    return (sx_ptx_stamp){.warp_epoch = UINT32_MAX,
                          .lane_epoch = epoch,
                          .insn = insn,
                          .thread = (uint16_t)(1 + m->warp_count * SX_PTX_LANES + actor)};
}
