/* mbarrier.c - barriers that lie in shared memory: phases, arrivals, bytes of copies.
 *
 * A phase ends when all its arrivals have come and as many bytes as were expected. A thread that waits goes to
 * sleep; with a seed a try_wait may also answer too early that it is not over, as the manual allows.
 */
#include "core/simt/machine.h"

#define COUNT_MAX ((1 << 20) - 1)
/* Failing tests in a row, of all threads, without anything else that happens: nothing will. */
#define FRUITLESS_MAX 100000
#define FRUITLESS_LANDS 64

static sx_ptx_mbarrier *at_offset(sx_ptx_machine *m, uint64_t offset)
{
    for (uint32_t i = 0; i < m->mbarrier_count; i++) {
        if (m->mbarrier[i].offset == offset) {
            return &m->mbarrier[i];
        }
    }
    return NULL;
}

sx_code sx_ptx_mbarrier_locate(const sx_ptx_step *s, uint32_t lane, uint32_t nth, uint64_t *offset)
{
    sx_ptx_spot place;
    SX_TRY(sx_ptx_locate(s->m, s->w, lane, s->insn, s->u->space, sx_ptx_address(s, nth, lane), 8,
                         SX_PTX_IS_STORE, &place));
    *offset = place.offset;
    if (place.space != SX_PTX_SPACE_SHARED) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "the mbarrier does not lie in shared memory");
    }
    bool far = place.offset / s->m->shared_stride != s->w->block;
    return !far || s->u->space == SX_PTX_SPACE_SHARED_CLUSTER
               ? SX_OK
               : sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                             "the mbarrier lies in the shared memory of another block");
}

sx_code sx_ptx_mbarrier_at(const sx_ptx_step *s, uint32_t lane, uint64_t offset,
                           sx_ptx_mbarrier **found)
{
    char text[SX_PTX_THREAD_TEXT_MAX];
    sx_ptx_mbarrier *b = at_offset(s->m, offset);
    if (b == NULL || !b->valid) {
        return sx_ptx_stop(
            s->m, s->w, lane, s->insn, SX_MISMATCH, "no mbarrier was initialised at byte %u of %s",
            sx_ptx_byte_of(s->m, offset), sx_ptx_shared_name(s->m, s->w, offset, text));
    }
    if (!sx_ptx_comes_before(s->m, &b->init, s->w, lane)) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "race: the mbarrier at byte %u was initialised by %s, and nothing "
                           "orders that before",
                           sx_ptx_byte_of(s->m, b->offset),
                           sx_ptx_thread_name(s->m, s->w, b->init.thread - 1U, text));
    }
    *found = b;
    return SX_OK;
}

sx_code sx_ptx_mbarrier_find(const sx_ptx_step *s, uint32_t lane, uint32_t nth,
                             sx_ptx_mbarrier **found)
{
    uint64_t offset;
    SX_TRY(sx_ptx_mbarrier_locate(s, lane, nth, &offset));
    return sx_ptx_mbarrier_at(s, lane, offset, found);
}

/* ---- phases ---- */
static sx_code wake(sx_ptx_machine *m, uint32_t index)
{
    for (uint32_t i = 0; i < m->warp_count; i++) {
        sx_ptx_warp *w = &m->warp[i];
        for (uint32_t left = w->stalled | w->woken; left != 0; left &= left - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(left);
            if (w->stalled_on[lane] != index) {
                continue;
            }
            if ((w->woken >> lane & 1) != 0) {
                return sx_ptx_stop(m, w, lane, w->pc[lane], SX_MISMATCH,
                                   "the phase that it waits for has passed, and now the next one "
                                   "too: the mbarrier at byte %u is in phase %u",
                                   sx_ptx_byte_of(m, m->mbarrier[index].offset),
                                   m->mbarrier[index].phase);
            }
            w->stalled &= ~(1U << lane);
            w->running |= 1U << lane;
            w->woken |= 1U << lane;
        }
    }
    return SX_OK;
}

static sx_code complete(sx_ptx_machine *m, sx_ptx_mbarrier *b)
{
    if (b->pending != 0 || b->tx != 0) {
        return SX_OK;
    }
    sx_ptx_clock_join(m, &b->done, &b->next);
    sx_ptx_clock_join(m, &b->far_done, &b->far_next);
    b->phase++;
    b->pending = b->count;
    b->done.seen[sx_ptx_actor_word(m, b->actor)] = b->phase;
    return wake(m, (uint32_t)(b - m->mbarrier));
}

sx_code sx_ptx_mbarrier_bytes(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                              sx_ptx_mbarrier *b, int64_t bytes)
{
    m->fruitless = 0;
    b->tx += bytes;
    if (b->tx > COUNT_MAX || b->tx < -COUNT_MAX) {
        return sx_ptx_stop(m, w, lane, insn, SX_MISMATCH,
                           "the mbarrier at byte %u waits for %lld bytes, more than it can count",
                           sx_ptx_byte_of(m, b->offset), (long long)b->tx);
    }
    return complete(m, b);
}

/* ---- instructions of a lane ---- */
static sx_code init(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_machine *m = s->m;
    uint64_t offset;
    uint32_t count = (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane];
    SX_TRY(sx_ptx_mbarrier_locate(s, lane, 0, &offset));
    sx_ptx_mbarrier *b = at_offset(m, offset);
    if (b != NULL && b->valid) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "initialises the mbarrier at byte %u once more",
                           sx_ptx_byte_of(m, b->offset));
    }
    if (count == 0 || count > COUNT_MAX) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "an mbarrier of %u arrivals, 1 to %d are possible", count, COUNT_MAX);
    }
    SX_TRY(sx_ptx_touch_shared(m, s->w, lane, s->insn, offset, 8, SX_PTX_IS_STORE, false));
    if (b == NULL) {
        if (m->mbarrier_count == SX_PTX_MBARRIERS_MAX) {
            return SX_FAIL(m->cx, SX_LIMIT, "kernel %s: more than %d mbarriers", m->kernel->name,
                           SX_PTX_MBARRIERS_MAX);
        }
        b = &m->mbarrier[m->mbarrier_count];
        if (b->next.seen == NULL) {
            SX_TRY(sx_ptx_clock_make(m, &b->next));
            SX_TRY(sx_ptx_clock_make(m, &b->done));
            SX_TRY(sx_ptx_clock_make(m, &b->far_next));
            SX_TRY(sx_ptx_clock_make(m, &b->far_done));
        }
        SX_TRY(sx_ptx_actor_make(m, SX_PTX_ACTOR_COPIES, (uint32_t)offset, &b->actor));
        b->phase = b->far_epoch = 0;
        m->mbarrier_count++;
    }
    sx_ptx_clock_clear(m, &b->next);
    sx_ptx_clock_clear(m, &b->done);
    sx_ptx_clock_clear(m, &b->far_next);
    sx_ptx_clock_clear(m, &b->far_done);
    b->offset = (uint32_t)offset;
    b->count = b->pending = count;
    b->tx = 0;
    b->phase += b->phase & 1; // phases go on, so that copies from before it was invalid are known
    b->valid = true;
    b->init = sx_ptx_stamp_of(s->w, lane, s->insn, false);
    b->fence = (sx_ptx_stamp){.thread = 0};
    for (uint32_t i = 0; i < 8; i += 1U << m->cell_shift) {
        m->cell[(offset + i) >> m->cell_shift].barrier = true;
    }
    return SX_OK;
}

static sx_code invalidate(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_mbarrier *b;
    SX_TRY(sx_ptx_mbarrier_find(s, lane, 0, &b));
    if (b->tx != 0) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "the mbarrier at byte %u still waits for %lld bytes",
                           sx_ptx_byte_of(s->m, b->offset), (long long)b->tx);
    }
    b->valid = false;
    for (uint32_t i = 0; i < 8; i += 1U << s->m->cell_shift) {
        sx_ptx_cell *cell = &s->m->cell[(b->offset + i) >> s->m->cell_shift];
        cell->barrier = cell->known = false;
    }
    return SX_OK;
}

static bool has_cluster_scope(const sx_ptx_step *s)
{
    return sx_ptx_insn_modifier(&s->m->kernel->insn[s->insn], SX_PTX_CLASS_SCOPE, 0) ==
           SX_PTX_SCOPE_CLUSTER;
}

/* `bytes` are expected, then `count` threads arrive. */
static sx_code arrive(const sx_ptx_step *s, uint32_t lane, uint32_t count, uint32_t bytes)
{
    sx_ptx_mbarrier *b;
    SX_TRY(sx_ptx_mbarrier_find(s, lane, 0, &b));
    if (count == 0 || count > b->pending) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "%u arrivals at the mbarrier at byte %u, which waits for %u of %u in "
                           "phase %u",
                           count, sx_ptx_byte_of(s->m, b->offset), b->pending, b->count, b->phase);
    }
    if (s->u->result_count > 0) {
        sx_ptx_result(s, 0)->lane[lane] = b->phase;
    }
    /* Within the block everybody sees what an arrival hands on; other blocks need its scope. */
    if (b->offset / s->m->shared_stride == s->w->block) {
        sx_ptx_release(s->m, s->w, lane, &b->next);
    } else if (has_cluster_scope(s)) {
        sx_ptx_release(s->m, s->w, lane, &b->far_next);
    }
    b->pending -= count;
    return sx_ptx_mbarrier_bytes(s->m, s->w, lane, s->insn, b, bytes);
}

/* The next failing test may be one too many. */
static sx_code failed(const sx_ptx_step *s, uint32_t lane, const sx_ptx_mbarrier *b)
{
    sx_ptx_machine *m = s->m;
    m->fruitless++;
    if (m->fruitless % FRUITLESS_LANDS == 0) {
        bool landed;
        SX_TRY(sx_ptx_bulk_land_one(m, &landed));
    }
    return m->fruitless < FRUITLESS_MAX
               ? SX_OK
               : sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                             "deadlock: tests the mbarrier at byte %u for ever; it is in phase %u "
                             "and waits for %u of %u arrivals and %lld bytes",
                             sx_ptx_byte_of(m, b->offset), b->phase, b->pending, b->count,
                             (long long)b->tx);
}

static sx_code wait(const sx_ptx_step *s, uint32_t lane)
{
    sx_ptx_machine *m = s->m;
    const sx_ptx_insn *insn = &m->kernel->insn[s->insn];
    sx_ptx_mbarrier *b;
    SX_TRY(sx_ptx_mbarrier_find(s, lane, 0, &b));
    bool parity = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_PARITY, 0) != 0;
    bool tries = insn->op == SX_PTX_OP_MBARRIER_TRY || insn->op == SX_PTX_OP_MBARRIER_TRY_PARITY;
    uint64_t value = sx_ptx_operand_word(s, 0)->lane[lane];
    if (parity ? value > 1 : value != b->phase && value + 1 != b->phase) {
        return sx_ptx_stop(m, s->w, lane, s->insn, SX_MISMATCH,
                           "waits for %s %llu of the mbarrier at byte %u, which is in phase %u",
                           parity ? "parity" : "the phase", (unsigned long long)value,
                           sx_ptx_byte_of(m, b->offset), b->phase);
    }
    bool over = parity ? (b->phase & 1) != value : b->phase != value;
    s->w->woken &= ~(1U << lane);
    if (!over && tries) {
        s->w->stalled |= 1U << lane;
        s->w->running &= ~(1U << lane);
        s->w->stalled_on[lane] = (uint32_t)(b - m->mbarrier);
        s->w->stalled_value[lane] = (uint32_t)value;
        return SX_OK;
    }
    if (over && tries && m->launch->seed != 0 && sx_rng_below(&m->rng, 4) == 0) {
        over = false;
    } else if (over) {
        sx_ptx_acquire(m, s->w, lane, &b->done);
        if (has_cluster_scope(s)) {
            sx_ptx_acquire(m, s->w, lane, &b->far_done);
        }
    } else {
        SX_TRY(failed(s, lane, b));
    }
    sx_ptx_result(s, 0)->lane[lane] = over;
    return SX_OK;
}

static sx_code run_lane(const sx_ptx_step *s, uint32_t lane)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    uint32_t number = s->u->operand_count > 0 ? (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane] : 1;
    sx_ptx_mbarrier *b;
    switch ((sx_ptx_op)insn->op) {
    case SX_PTX_OP_MBARRIER_INIT: return init(s, lane);
    case SX_PTX_OP_MBARRIER_INVAL: return invalidate(s, lane);
    case SX_PTX_OP_MBARRIER_ARRIVE:
    case SX_PTX_OP_MBARRIER_ARRIVE_COUNT:
    case SX_PTX_OP_MBARRIER_ARRIVE_FAR: return arrive(s, lane, number, 0);
    case SX_PTX_OP_MBARRIER_ARRIVE_TX:
    case SX_PTX_OP_MBARRIER_ARRIVE_TX_FAR: return arrive(s, lane, 1, number);
    case SX_PTX_OP_MBARRIER_EXPECT_TX:
        SX_TRY(sx_ptx_mbarrier_find(s, lane, 0, &b));
        return sx_ptx_mbarrier_bytes(s->m, s->w, lane, s->insn, b, number);
    case SX_PTX_OP_MBARRIER_TEST:
    case SX_PTX_OP_MBARRIER_TEST_PARITY:
    case SX_PTX_OP_MBARRIER_TRY:
    case SX_PTX_OP_MBARRIER_TRY_PARITY: return wait(s, lane);
    default: SX_UNREACHABLE();
    }
}

/* Initialisations that the lane has seen may be used by engines from now on. */
static void fence_initialisations(const sx_ptx_step *s, uint32_t lane)
{
    for (uint32_t i = 0; i < s->m->mbarrier_count; i++) {
        sx_ptx_mbarrier *b = &s->m->mbarrier[i];
        bool mine = b->init.thread == s->w->index * SX_PTX_LANES + lane + 1;
        if (b->valid && b->fence.thread == 0 &&
            (mine || sx_ptx_comes_before(s->m, &b->init, s->w, lane))) {
            b->fence = sx_ptx_stamp_of(s->w, lane, s->insn, false);
        }
    }
}

sx_code sx_ptx_run_mbarrier(const sx_ptx_step *s)
{
    for (uint32_t left = s->active; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        switch (s->u->handler) {
        case SX_PTX_RUN_FENCE_PROXY:
            fence_initialisations(s, lane);
            sx_ptx_fence_proxy(s->m, s->w, lane);
            break;
        case SX_PTX_RUN_FENCE_MBARRIER: fence_initialisations(s, lane); break;
        default: SX_TRY(run_lane(s, lane));
        }
    }
    return SX_OK;
}
