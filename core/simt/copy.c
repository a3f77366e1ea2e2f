/* copy.c - copies that end by themselves: cp.async.
 *
 * The destination may not be touched from the beginning of a copy until its thread has waited for it, whenever
 * the bytes arrive: at once, or as late as that (`lazy`). Until then the destination holds a poison.
 */
#include <string.h>

#include "core/simt/machine.h"

#define POISON 0xa5

static sx_code land(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t lane, sx_ptx_copy *copy)
{
    if (m->launch->lazy && copy->source_size > 0) {
        sx_ptx_spot from;
        SX_TRY(sx_ptx_locate(m, w, lane, copy->insn, SX_PTX_SPACE_GLOBAL, copy->from,
                             copy->source_size, SX_PTX_IS_LOAD, &from));
        SX_TRY(sx_ptx_touch(m, w, lane, copy->insn, &from, copy->source_size, SX_PTX_IS_LOAD));
        memcpy(m->shared + copy->to, from.bytes, copy->source_size);
    }
    if (m->launch->lazy) {
        memset(m->shared + copy->to + copy->source_size, 0, copy->size - copy->source_size);
    }
    sx_ptx_landed(m, w, lane, copy->insn, copy->to, copy->size);
    copy->done = true;
    return SX_OK;
}

/* The copies of each lane in its groups up to `last` end. */
static sx_code wait_for(const sx_ptx_step *s, const uint32_t last[SX_PTX_LANES])
{
    sx_ptx_machine *m = s->m;
    uint32_t first = s->w->index * SX_PTX_LANES;
    for (uint32_t i = 0; i < m->copy_count; i++) {
        sx_ptx_copy *copy = &m->copy[i];
        uint32_t lane = copy->thread - first; /* of another warp: none */
        bool mine = copy->thread >= first && lane < SX_PTX_LANES && (s->active >> lane & 1) != 0;
        if (mine && !copy->done && copy->group <= last[lane]) {
            SX_TRY(land(m, s->w, lane, copy));
        }
    }
    return SX_OK;
}

static void forget_done(sx_ptx_machine *m)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->copy_count; i++) {
        if (!m->copy[i].done) {
            m->copy[kept++] = m->copy[i];
        }
    }
    m->copy_count = kept;
}

static sx_code begin(const sx_ptx_step *s, uint32_t lane, uint64_t *offset)
{
    sx_ptx_machine *m = s->m;
    uint32_t size = (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane], source_size = size;
    bool hinted = sx_ptx_insn_modifier(&m->kernel->insn[s->insn], SX_PTX_CLASS_HINT, 0) != 0;
    bool sized = s->u->operand_count > (hinted ? 2 : 1);
    if (sized) {
        source_size = (uint32_t)sx_ptx_operand_word(s, 1)->lane[lane];
        if (source_size > size) {
            return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH, "copies %u bytes into %u",
                               source_size, size);
        }
    }
    sx_ptx_spot to, from;
    SX_TRY(sx_ptx_locate(m, s->w, lane, s->insn, SX_PTX_SPACE_SHARED, sx_ptx_address(s, 0, lane),
                         size, SX_PTX_IS_STORE, &to));
    SX_TRY(sx_ptx_touch(m, s->w, lane, s->insn, &to, size, SX_PTX_IS_STORE));
    memset(to.bytes, POISON, size);
    uint64_t address = sx_ptx_address(s, 1, lane);
    if (address % size != 0) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "copies %u bytes from address 0x%llx, which %u does not divide", size,
                           (unsigned long long)address, size);
    }
    /* Bytes that are not read need not be there. */
    if (source_size > 0) {
        SX_TRY(sx_ptx_locate(m, s->w, lane, s->insn, SX_PTX_SPACE_GLOBAL, address, source_size,
                             SX_PTX_IS_LOAD, &from));
    }
    if (!m->launch->lazy && source_size > 0) {
        SX_TRY(sx_ptx_touch(m, s->w, lane, s->insn, &from, source_size, SX_PTX_IS_LOAD));
        memcpy(to.bytes, from.bytes, source_size);
    }
    if (!m->launch->lazy) {
        memset(to.bytes + source_size, 0, size - source_size);
    }
    uint32_t thread = s->w->index * SX_PTX_LANES + lane;
    sx_ptx_in_flight(m, thread, to.offset, size);
    offset[lane] = to.offset;
    SX_TRY(
        sx_grow(m->cx, (void **)&m->copy, &m->copy_capacity, m->copy_count + 1, sizeof *m->copy));
    m->copy[m->copy_count++] = (sx_ptx_copy){.from = address,
                                             .to = (uint32_t)to.offset,
                                             .size = size,
                                             .source_size = source_size,
                                             .thread = thread,
                                             .group = s->w->group[lane],
                                             .insn = s->insn};
    return SX_OK;
}

sx_code sx_ptx_run_copy(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    bool all = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_GROUP, 0) == SX_PTX_GROUP_WAIT_ALL;
    uint64_t offset[SX_PTX_LANES] = {0};
    uint32_t last[SX_PTX_LANES] = {0}; /* groups of each lane that end: none */
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) == 0) {
            continue;
        }
        uint32_t open = s->w->group[lane]; // groups count from 1
        if (s->u->handler == SX_PTX_RUN_CP_ASYNC) {
            SX_TRY(begin(s, lane, offset));
        } else if (s->u->handler == SX_PTX_RUN_CP_COMMIT) {
            s->w->group[lane]++;
        } else if (all) {
            last[lane] = open;
        } else {
            uint64_t pending = sx_ptx_operand_word(s, 0)->lane[lane];
            last[lane] = pending < open - 1 ? open - 1 - (uint32_t)pending : 0;
        }
    }
    if (s->u->handler == SX_PTX_RUN_CP_ASYNC) {
        sx_ptx_count_passes(s->m, offset, s->active, (uint32_t)sx_ptx_operand_word(s, 0)->lane[0]);
    } else if (s->u->handler != SX_PTX_RUN_CP_COMMIT) {
        SX_TRY(wait_for(s, last));
        forget_done(s->m);
    }
    return SX_OK;
}
