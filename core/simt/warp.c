/* warp.c - the threads of a warp, each at its own instruction: those that stand at the same one go on together.
 *
 * Instructions that threads execute together are met in two steps: a thread that comes to one waits there, and
 * the last of them executes it for all.
 */
#include "core/base/fast.h"
#include "core/simt/machine.h"

/* ---- which lanes ---- */
SX_LEVELS static uint32_t lanes_at(const sx_ptx_warp *w, uint32_t lanes, uint32_t pc)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        at |= (uint32_t)(w->pc[i] == pc) << i;
    }
    return at & lanes;
}

/* Threads that fell behind go first, so that they meet the others again; with a seed any may, now and then. */
static uint32_t choose_lanes(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t *at)
{
    uint32_t pc = w->pc[__builtin_ctz(w->running)], lanes = lanes_at(w, w->running, pc);
    uint32_t first = pc;
    for (uint32_t i = 0; lanes != w->running && i < SX_PTX_LANES; i++) {
        pc = (w->running >> i & 1) != 0 && w->pc[i] < pc ? w->pc[i] : pc;
    }
    if (m->launch->seed != 0 && sx_rng_below(&m->rng, 8) == 0) {
        uint32_t lane = (uint32_t)sx_rng_below(&m->rng, SX_PTX_LANES);
        pc = (w->running >> lane & 1) != 0 ? w->pc[lane] : pc;
    }
    *at = pc;
    return pc == first ? lanes : lanes_at(w, w->running, pc);
}

SX_LEVELS static void advance(sx_ptx_warp *w, uint32_t lanes)
{
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        w->pc[i] += lanes >> i & 1;
    }
}

/* ---- registers ---- */
static const char *const class_letter[SX_PTX_REGISTER_CLASSES] = {
    [SX_PTX_PRED] = "p", [SX_PTX_B16] = "h", [SX_PTX_B32] = "r", [SX_PTX_B64] = "d"};

static sx_code check_known(const sx_ptx_step *s, uint32_t word, uint32_t lanes)
{
    if (word == SX_PTX_NO_WORD || (word & SX_PTX_CONSTANT) != 0 ||
        (s->w->known[word] & lanes) == lanes) {
        return SX_OK;
    }
    uint32_t lane = (uint32_t)__builtin_ctz(lanes & ~s->w->known[word]);
    uint32_t class_of = SX_PTX_REGISTER_CLASSES - 1;
    while (class_of > 0 && word < s->m->class_first[class_of]) {
        class_of--;
    }
    return sx_ptx_stop(
        s->m, s->w, lane, s->insn, SX_MISMATCH,
        "reads register %%%s%u (as the instruction is printed here), which it never wrote",
        class_letter[class_of], word - s->m->class_first[class_of]);
}

static sx_code check_operands(const sx_ptx_step *s)
{
    const sx_ptx_micro *u = s->u;
    const uint32_t *word = s->m->word + u->word + u->result_count;
    for (uint32_t i = 0; i < u->operand_count; i++) {
        SX_TRY(check_known(s, word[i], s->active));
    }
    for (uint32_t i = 0; i < u->address_count; i++) {
        SX_TRY(check_known(s, u->address[i], s->active));
    }
    return s->w->lock == NULL || u->handler == SX_PTX_RUN_WGMMA ? SX_OK : sx_ptx_check_unlocked(s);
}

/* ---- execution ---- */
static sx_code compute(const sx_ptx_step *s)
{
    const sx_ptx_micro *u = s->u;
    sx_ptx_word *result[SX_PTX_WORDS_MAX];
    const sx_ptx_word *operand[SX_PTX_WORDS_MAX];
    for (uint32_t i = 0; i < u->operand_count; i++) {
        operand[i] = sx_ptx_operand_word(s, i);
    }
    for (uint32_t i = 0; i < u->result_count; i++) {
        result[i] = sx_ptx_result(s, i);
    }
    u->alu.run(&u->alu, result, operand, s->active);
    return SX_OK;
}

/* A policy says nothing but how caches are used. */
static void make_policy(const sx_ptx_step *s)
{
    const uint64_t opaque = UINT64_C(0x1000000000000000);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) != 0) {
            sx_ptx_result(s, 0)->lane[lane] = opaque;
        }
    }
}

/* The registers that a thread may use are the assembler's concern; what the warps asked for is noted. */
static sx_code set_registers(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    bool more = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_REGISTERS, 0) == SX_PTX_REGISTERS_INC;
    uint32_t wanted = (uint32_t)sx_ptx_operand_word(s, 0)->lane[0], had = s->w->registers;
    if (had != 0 && (more ? wanted < had : wanted > had)) {
        return sx_ptx_stop(s->m, s->w, 0, s->insn, SX_MISMATCH,
                           "%s the registers of the warp to %u, it has %u",
                           more ? "raises" : "lowers", wanted, had);
    }
    s->w->registers = wanted;
    s->m->outcome->statistics.register_changes++;
    return SX_OK;
}

static sx_code dispatch(const sx_ptx_step *s)
{
    if (s->u->computes) {
        return compute(s);
    }
    switch (s->u->handler) {
    case SX_PTX_RUN_LD:
    case SX_PTX_RUN_ST:
    case SX_PTX_RUN_PREFETCH:
    case SX_PTX_RUN_CVTA: return sx_ptx_run_memory(s);
    case SX_PTX_RUN_ATOM: return sx_ptx_run_atomic(s);
    case SX_PTX_RUN_CP_ASYNC:
    case SX_PTX_RUN_CP_COMMIT:
    case SX_PTX_RUN_CP_WAIT: return sx_ptx_run_copy(s);
    case SX_PTX_RUN_SHFL:
    case SX_PTX_RUN_VOTE:
    case SX_PTX_RUN_REDUX:
    case SX_PTX_RUN_ACTIVEMASK:
    case SX_PTX_RUN_ELECT:
    case SX_PTX_RUN_BAR_WARP: return sx_ptx_run_together(s);
    case SX_PTX_RUN_MBARRIER:
    case SX_PTX_RUN_FENCE_MBARRIER:
    case SX_PTX_RUN_FENCE_PROXY: return sx_ptx_run_mbarrier(s);
    case SX_PTX_RUN_BULK:
    case SX_PTX_RUN_BULK_GROUP:
    case SX_PTX_RUN_PREFETCH_MAP: return sx_ptx_run_bulk(s);
    case SX_PTX_RUN_WGMMA_GROUP: return sx_ptx_run_wgmma_group(s);
    case SX_PTX_RUN_POLICY: make_policy(s); return SX_OK;
    case SX_PTX_RUN_SETMAXNREG: return set_registers(s);
    case SX_PTX_RUN_GRID: return SX_OK; // grids are executed one after the other
    case SX_PTX_RUN_MAPA:
    case SX_PTX_RUN_CLUSTER_BARRIER: return sx_ptx_run_cluster(s);
    case SX_PTX_RUN_LDMATRIX:
    case SX_PTX_RUN_STMATRIX: return sx_ptx_run_matrix(s);
    case SX_PTX_RUN_FENCE: return SX_OK; // accesses are executed in order
    default: {
        char name[SX_PTX_INSN_TEXT_MAX];
        return SX_FAIL(s->m->cx, SX_UNIMPLEMENTED, "kernel %s, %s: not interpreted",
                       s->m->kernel->name, sx_ptx_insn_name(s->m, s->insn, name));
    }
    }
}

static void count(sx_ptx_machine *m, uint32_t insn, uint32_t lanes)
{
    sx_ptx_statistics *stats = &m->outcome->statistics;
    stats->warp_insns++;
    stats->thread_insns += (uint32_t)__builtin_popcount(lanes);
    if (insn < m->kernel->insn_count) {
        stats->op[m->kernel->insn[insn].op]++;
    }
}

/* ---- meeting ---- */
static sx_code execute_together(sx_ptx_step *s)
{
    s->w->meeting &= ~s->active;
    s->w->running |= s->active;
    count(s->m, s->insn, s->active);
    SX_TRY(check_operands(s));
    if (s->u->handler == SX_PTX_RUN_BAR) {
        return sx_ptx_run_barrier(s);
    }
    if (s->u->handler == SX_PTX_RUN_WGMMA) {
        return sx_ptx_run_wgmma(s);
    }
    SX_TRY(dispatch(s));
    advance(s->w, s->active & ~s->w->stalled);
    return SX_OK;
}

/* Executes what the lanes that wait at `pc` wait for, where all that belong together are there. */
static sx_code try_meet(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t pc, bool *met)
{
    sx_ptx_step s = {.m = m, .w = w, .u = &m->micro[pc], .insn = pc};
    uint32_t left = lanes_at(w, w->meeting, pc);
    uint32_t there = left;
    while (left != 0) {
        uint32_t members, same = 0, first = (uint32_t)__builtin_ctz(left);
        s.active = there;
        SX_TRY(sx_ptx_members(&s, first, &members));
        for (uint32_t i = first; i < SX_PTX_LANES; i++) {
            uint32_t of_other = 0;
            if ((left >> i & 1) != 0) {
                SX_TRY(sx_ptx_members(&s, i, &of_other));
                same |= (uint32_t)(of_other == members) << i;
            }
        }
        left &= ~same;
        if (same == members) {
            s.active = members;
            *met = true;
            SX_TRY(execute_together(&s));
        }
    }
    return SX_OK;
}

/* No lane can go on: those that wait meet, or never will. */
static sx_code resolve(sx_ptx_machine *m, sx_ptx_warp *w)
{
    bool met = false;
    uint32_t left = w->meeting;
    while (left != 0 && !met) {
        uint32_t pc = w->pc[__builtin_ctz(left)];
        left &= ~lanes_at(w, w->meeting, pc);
        SX_TRY(try_meet(m, w, pc, &met));
    }
    if (met) {
        return SX_OK;
    }
    char name[SX_PTX_INSN_TEXT_MAX];
    uint32_t lane = (uint32_t)__builtin_ctz(w->meeting);
    uint32_t here = lanes_at(w, w->meeting, w->pc[lane]);
    uint32_t others = w->meeting & ~here;
    if (others == 0) {
        return sx_ptx_stop(
            m, w, lane, w->pc[lane], SX_MISMATCH,
            "the lanes 0x%x of the warp are here and do not agree who executes it together", here);
    }
    uint32_t other = (uint32_t)__builtin_ctz(others);
    return sx_ptx_stop(
        m, w, lane, w->pc[lane], SX_MISMATCH,
        "only the lanes 0x%x of the warp are here, and lane %u waits at %s: they never meet", here,
        other, sx_ptx_insn_name(m, w->pc[other], name));
}

/* ---- one instruction of some lanes ---- */
SX_LEVELS static uint32_t passed_guard(const sx_ptx_step *s, uint32_t lanes)
{
    const sx_ptx_word *guard = &s->w->file[s->u->guard];
    uint32_t set = 0;
    for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
        set |= (uint32_t)(guard->lane[i] & 1) << i;
    }
    return lanes & (s->u->guard_negated ? ~set : set);
}

/* Threads end: nothing of theirs may be under way. */
static sx_code check_end(const sx_ptx_step *s)
{
    SX_TRY(sx_ptx_bulk_check_end(s));
    return s->w->lock == NULL ? SX_OK : sx_ptx_wgmma_check_end(s);
}

static sx_code control(const sx_ptx_step *s, uint32_t lanes)
{
    sx_ptx_warp *w = s->w;
    switch (s->u->handler) {
    case SX_PTX_RUN_BRA:
        s->m->outcome->statistics.divergent += s->active != 0 && s->active != lanes;
        for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
            uint32_t next = (s->active >> i & 1) != 0 ? s->u->target : w->pc[i] + 1;
            w->pc[i] = (lanes >> i & 1) != 0 ? next : w->pc[i];
        }
        return SX_OK;
    case SX_PTX_RUN_EXIT:
        if (s->active != 0 && s->m->tracks) {
            SX_TRY(check_end(s));
        }
        advance(w, lanes & ~s->active);
        w->running &= ~s->active;
        w->ended |= s->active;
        sx_ptx_reopen(s->m);
        sx_ptx_cluster_leave(s->m, w, s->active);
        return SX_OK;
    case SX_PTX_RUN_TRAP:
        if (s->active != 0) {
            return sx_ptx_stop(s->m, w, (uint32_t)__builtin_ctz(s->active), s->insn, SX_MISMATCH,
                               "trap");
        }
        advance(w, lanes);
        return SX_OK;
    default: SX_UNREACHABLE();
    }
}

static bool is_control(uint8_t handler)
{
    return handler == SX_PTX_RUN_BRA || handler == SX_PTX_RUN_EXIT || handler == SX_PTX_RUN_TRAP;
}

static sx_code step(sx_ptx_machine *m, sx_ptx_warp *w)
{
    uint32_t pc, lanes = choose_lanes(m, w, &pc);
    SX_ASSERT(lanes != 0 && pc <= m->kernel->insn_count);
    sx_ptx_step s = {.m = m, .w = w, .u = &m->micro[pc], .insn = pc, .active = lanes};
    uint32_t executed = (uint32_t)__builtin_popcount(lanes);
    if (m->instructions_left < executed) {
        return sx_ptx_stop(
            m, w, (uint32_t)__builtin_ctz(lanes), pc, SX_QUOTA,
            "does not end within %llu instructions of all threads; this thread stands here",
            (unsigned long long)m->launch->instructions_max);
    }
    m->instructions_left -= executed;
    if (s.u->guard != SX_PTX_NO_WORD) {
        SX_TRY(check_known(&s, s.u->guard, lanes));
        s.active = passed_guard(&s, lanes);
    }
    if (m->follows && s.u->decides) {
        sx_ptx_note_path(&s, lanes);
    }
    if (is_control(s.u->handler)) {
        count(m, pc, lanes);
        return control(&s, lanes);
    }
    if (s.u->together && s.active != 0) {
        bool met = false;
        advance(w, lanes & ~s.active);
        w->running &= ~s.active;
        w->meeting |= s.active;
        /* Who waits at a barrier of the block may still be joined by all. */
        return s.u->handler == SX_PTX_RUN_BAR && w->running != 0 ? SX_OK : try_meet(m, w, pc, &met);
    }
    count(m, pc, lanes);
    if (s.active != 0) {
        SX_TRY(check_operands(&s));
        SX_TRY(dispatch(&s));
    }
    advance(w, lanes & ~w->stalled);
    return SX_OK;
}

sx_code sx_ptx_warp_go(sx_ptx_machine *m, sx_ptx_warp *w, uint32_t steps)
{
    SX_ASSERT((w->running & w->meeting) == 0 && w->ended != SX_PTX_ALL);
    for (uint32_t i = 0; i < steps && w->running != 0; i++) {
        SX_TRY(step(m, w));
    }
    return w->running == 0 && w->meeting != 0 && w->stalled == 0 ? resolve(m, w) : SX_OK;
}
