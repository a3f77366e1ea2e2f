/* race.c - shared memory: was a byte written, is a copy into it under way, and does a barrier order accesses?
 *
 * A warp begins a new epoch at each barrier, a lane at each barrier of its warp. An access is stamped with the
 * epochs of its thread. It comes before another access if the other thread has seen that epoch: barriers hand
 * on what their arrivals had seen (a vector clock of warps, and one of lanes within each warp; barriers of
 * blocks are executed by whole warps, so that the two need not be mixed).
 */
#include <stdio.h>
#include <string.h>

#include "core/simt/machine.h"

#define ACCESS_TEXT_MAX 512

static inline bool comes_before(const sx_ptx_machine *m, const sx_ptx_stamp *stamp,
                                const sx_ptx_warp *w, uint32_t lane)
{
    uint32_t thread = stamp->thread - 1U;
    uint32_t warp = thread / SX_PTX_LANES, other = thread % SX_PTX_LANES;
    if (warp == w->index) {
        return other == lane || stamp->lane_epoch <= w->lane_seen[lane][other];
    }
    return (warp < m->warp_count && stamp->warp_epoch <= w->seen[warp]) ||
           (m->tracks && sx_ptx_clock_holds(m, w, lane, stamp));
}

bool sx_ptx_comes_before(const sx_ptx_machine *m, const sx_ptx_stamp *stamp, const sx_ptx_warp *w,
                         uint32_t lane)
{
    return comes_before(m, stamp, w, lane);
}

/* "which thread (3,0,0) wrote with instruction 7 ...", or what else did. */
static void name_access(const sx_ptx_machine *m, const sx_ptx_warp *w, const sx_ptx_stamp *stamp,
                        const char *theirs, char text[ACCESS_TEXT_MAX])
{
    char name[SX_PTX_INSN_TEXT_MAX];
    uint32_t id = stamp->thread - 1U, threads = m->warp_count * SX_PTX_LANES;
    (void)sx_ptx_insn_name(m, stamp->insn, name);
    if (id < threads) {
        char thread[SX_PTX_THREAD_TEXT_MAX];
        (void)snprintf(text, ACCESS_TEXT_MAX, "which %s %s with %s; no barrier lies between",
                       sx_ptx_thread_name(m, w, id, thread), theirs, name);
        return;
    }
    const sx_ptx_actor *a = &m->actor[id - threads];
    switch ((sx_ptx_actor_kind)a->kind) {
    case SX_PTX_ACTOR_COPIES:
        (void)snprintf(text, ACCESS_TEXT_MAX,
                       "which the copy of %s %s; it completes on the mbarrier at byte %u, and this "
                       "thread did not wait for that phase",
                       name, theirs, sx_ptx_byte_of(m, a->of));
        return;
    case SX_PTX_ACTOR_STORES:
        (void)snprintf(text, ACCESS_TEXT_MAX,
                       "which the copy of %s %s; nobody waited for its group before", name, theirs);
        return;
    case SX_PTX_ACTOR_PRODUCTS:
        (void)snprintf(text, ACCESS_TEXT_MAX,
                       "which the product of %s of warpgroup %u %s; nobody waited for its group "
                       "before",
                       name, a->of, theirs);
        return;
    }
    SX_UNREACHABLE();
}

static sx_code race(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                    uint64_t offset, const char *mine, const char *theirs,
                    const sx_ptx_stamp *stamp)
{
    char text[ACCESS_TEXT_MAX], memory[SX_PTX_SHARED_TEXT_MAX];
    name_access(m, w, stamp, theirs, text);
    return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH, "race: %s byte %u of %s, %s", mine,
                       sx_ptx_byte_of(m, offset), sx_ptx_shared_name(m, w, offset, memory), text);
}

/* A reading that comes before this one need not be kept: who comes behind this one comes behind it too. */
static inline void note_read(const sx_ptx_machine *m, sx_ptx_cell *cell, const sx_ptx_stamp *stamp,
                             const sx_ptx_warp *w, uint32_t lane)
{
    for (uint32_t i = 0; i < SX_COUNT(cell->read); i++) {
        if (cell->read[i].thread == 0 || cell->read[i].thread == stamp->thread ||
            comes_before(m, &cell->read[i], w, lane)) {
            cell->read[i] = *stamp;
            return;
        }
    }
    /* Of more readings without an order those of two warps are kept. */
    bool first_is_mine = (cell->read[0].thread - 1U) / SX_PTX_LANES == w->index;
    cell->read[first_is_mine ? 0 : 1] = *stamp;
}

static sx_code check_write(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                           uint64_t offset, const sx_ptx_cell *cell, bool strong)
{
    for (uint32_t i = 0; i < SX_COUNT(cell->read); i++) {
        const sx_ptx_stamp *read = &cell->read[i];
        if (read->thread != 0 && !(strong && read->strong) && !comes_before(m, read, w, lane)) {
            return race(m, w, lane, insn, offset, "writes", "read", read);
        }
    }
    const sx_ptx_stamp *write = &cell->write;
    if (write->thread != 0 && !(strong && write->strong) && !comes_before(m, write, w, lane)) {
        return race(m, w, lane, insn, offset, "writes", "wrote", write);
    }
    return SX_OK;
}

/* The byte belongs to a copy under way, or to an mbarrier. */
static sx_code taken(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                     uint64_t offset, const char *mine)
{
    const sx_ptx_cell *cell = &m->cell[offset >> m->cell_shift];
    char memory[SX_PTX_SHARED_TEXT_MAX], thread[SX_PTX_THREAD_TEXT_MAX];
    const char *in = sx_ptx_shared_name(m, w, offset, memory);
    if (cell->barrier) {
        return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH,
                           "%s byte %u of %s, which belongs to an mbarrier", mine,
                           sx_ptx_byte_of(m, offset), in);
    }
    return sx_ptx_stop(
        m, w, lane, insn, SX_MISMATCH, "%s byte %u of %s, into which a copy of %s is under way",
        mine, sx_ptx_byte_of(m, offset), in, sx_ptx_thread_name(m, w, cell->flight - 1U, thread));
}

static sx_code unwritten(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                         uint64_t offset)
{
    char memory[SX_PTX_SHARED_TEXT_MAX];
    return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH, "reads byte %u of %s, which nobody wrote",
                       sx_ptx_byte_of(m, offset), sx_ptx_shared_name(m, w, offset, memory));
}

/* `offset` of the first byte of a cell. */
static inline sx_code touch_cell(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane,
                                 uint32_t insn, uint64_t offset, sx_ptx_access access,
                                 const sx_ptx_stamp *stamp)
{
    sx_ptx_cell *cell = &m->cell[offset >> m->cell_shift];
    if ((cell->flight | cell->barrier) != 0) {
        return taken(m, w, lane, insn, offset, access == SX_PTX_IS_LOAD ? "reads" : "writes");
    }
    if (access != SX_PTX_IS_STORE && !cell->known) {
        return unwritten(m, w, lane, insn, offset);
    }
    if (access != SX_PTX_IS_LOAD) {
        SX_TRY(check_write(m, w, lane, insn, offset, cell, stamp->strong));
        cell->write = *stamp;
        cell->known = true;
        return SX_OK;
    }
    const sx_ptx_stamp *write = &cell->write;
    if (write->thread != 0 && !(stamp->strong && write->strong) &&
        !comes_before(m, write, w, lane)) {
        return race(m, w, lane, insn, offset, "reads", "wrote", write);
    }
    note_read(m, cell, stamp, w, lane);
    return SX_OK;
}

sx_ptx_stamp sx_ptx_stamp_of(const sx_ptx_warp *w, uint32_t lane, uint32_t insn, bool strong)
{
    return (sx_ptx_stamp){.warp_epoch = w->epoch,
                          .lane_epoch = w->lane_epoch[lane],
                          .insn = insn,
                          .thread = (uint16_t)(1 + w->index * SX_PTX_LANES + lane),
                          .strong = strong};
}

static inline sx_code touch(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, uint32_t size, sx_ptx_access access, bool strong)
{
    uint64_t each = UINT64_C(1) << m->cell_shift;
    SX_ASSERT(offset + size <= m->shared_stride * m->block_count &&
              ((offset | size) & (each - 1)) == 0);
    sx_ptx_stamp stamp = sx_ptx_stamp_of(w, lane, insn, strong);
    sx_ptx_cell before = {.known = false}, after = before; /* of the last one that was looked at */
    for (uint64_t i = offset; i < offset + size; i += each) {
        sx_ptx_cell *cell = &m->cell[i >> m->cell_shift];
        if (i > offset && memcmp(cell, &before, sizeof before) == 0) {
            *cell = after; /* those of one access mostly have the same past */
            continue;
        }
        if (size == each) {
            return touch_cell(m, w, lane, insn, i, access, &stamp);
        }
        before = *cell;
        SX_TRY(touch_cell(m, w, lane, insn, i, access, &stamp));
        after = *cell;
    }
    return SX_OK;
}

sx_code sx_ptx_touch_shared(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, uint32_t size, sx_ptx_access access, bool strong)
{
    return touch(m, w, lane, insn, offset, size, access, strong);
}

sx_code sx_ptx_touch_lanes(const sx_ptx_step *s, const uint64_t offset[SX_PTX_LANES], uint32_t size,
                           sx_ptx_access access)
{
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        SX_TRY(touch(s->m, s->w, lane, s->insn, offset[lane], size, access, s->u->strong));
    }
    return SX_OK;
}

/* The cells of these bytes. */
static sx_ptx_cell *cells_at(const sx_ptx_machine *m, uint64_t offset, uint32_t size,
                             uint32_t *count)
{
    uint64_t each = UINT64_C(1) << m->cell_shift;
    SX_ASSERT(offset + size <= m->shared_stride * m->block_count &&
              ((offset | size) & (each - 1)) == 0);
    *count = size >> m->cell_shift;
    return &m->cell[offset >> m->cell_shift];
}

void sx_ptx_in_flight(sx_ptx_machine *m, uint32_t thread, uint64_t offset, uint32_t size)
{
    uint32_t count;
    sx_ptx_cell *cell = cells_at(m, offset, size, &count);
    for (uint32_t i = 0; i < count; i++) {
        cell[i].flight = (uint16_t)(thread + 1);
    }
}

void sx_ptx_landed(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                   uint64_t offset, uint32_t size)
{
    uint32_t count;
    sx_ptx_cell *cell = cells_at(m, offset, size, &count);
    sx_ptx_stamp stamp = sx_ptx_stamp_of(w, lane, insn, false);
    for (uint32_t i = 0; i < count; i++) {
        cell[i].flight = 0;
        cell[i].known = true;
        cell[i].write = stamp;
    }
}

/* ---- engines: they take 16 bytes, so cells wholly ---- */
void sx_ptx_note_read(const sx_ptx_machine *m, sx_ptx_cell *cell, const sx_ptx_stamp *stamp,
                      const sx_ptx_warp *w, uint32_t lane)
{
    note_read(m, cell, stamp, w, lane);
}

sx_code sx_ptx_engine_writes(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                             uint64_t offset)
{
    sx_ptx_cell *cell = &m->cell[offset >> m->cell_shift];
    if ((cell->flight | cell->barrier) != 0) {
        return taken(m, w, lane, insn, offset, "writes");
    }
    return check_write(m, w, lane, insn, offset, cell, false);
}

sx_code sx_ptx_engine_reads(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                            uint64_t offset, const sx_ptx_stamp *stamp)
{
    sx_ptx_cell *cell = &m->cell[offset >> m->cell_shift];
    if ((cell->flight | cell->barrier) != 0) {
        return taken(m, w, lane, insn, offset, "reads");
    }
    if (!cell->known) {
        return unwritten(m, w, lane, insn, offset);
    }
    if (cell->write.thread != 0 && !comes_before(m, &cell->write, w, lane)) {
        return race(m, w, lane, insn, offset, "reads", "wrote", &cell->write);
    }
    if (stamp != NULL) {
        note_read(m, cell, stamp, w, lane);
    }
    return SX_OK;
}

/* ---- what barriers order ---- */
void sx_ptx_order_lanes(const sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lanes)
{
    if (m->tracks) {
        sx_ptx_clock_order_lanes(m, w, lanes);
    }
    uint32_t latest[SX_PTX_LANES] = {0};
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        for (uint32_t k = 0; (lanes >> i & 1) != 0 && k < SX_PTX_LANES; k++) {
            latest[k] = w->lane_seen[i][k] > latest[k] ? w->lane_seen[i][k] : latest[k];
        }
    }
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        if ((lanes >> i & 1) != 0) {
            latest[i] = w->lane_epoch[i];
            w->lane_epoch[i]++;
        }
    }
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        for (uint32_t k = 0; (lanes >> i & 1) != 0 && k < SX_PTX_LANES; k++) {
            w->lane_seen[i][k] = latest[k];
        }
    }
}

void sx_ptx_order_arrive(const sx_ptx_machine *m, sx_ptx_warp *w, sx_ptx_barrier *barrier)
{
    sx_ptx_order_lanes(m, w, SX_PTX_ALL); // who has ended counts as arrived
    if (m->tracks) {
        sx_ptx_clock_join(m, &barrier->clock, &w->clock[0]);
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        uint32_t seen = i == w->index ? w->epoch : w->seen[i];
        barrier->seen[i] = seen > barrier->seen[i] ? seen : barrier->seen[i];
    }
    w->epoch++;
}

void sx_ptx_order_leave(const sx_ptx_machine *m, sx_ptx_warp *w, const sx_ptx_barrier *barrier)
{
    for (uint32_t lane = 0; m->tracks && lane < SX_PTX_LANES; lane++) {
        sx_ptx_clock_join(m, &w->clock[lane], &barrier->clock);
    }
    for (uint32_t i = 0; i < m->warp_count; i++) {
        w->seen[i] = barrier->seen[i] > w->seen[i] ? barrier->seen[i] : w->seen[i];
    }
}
