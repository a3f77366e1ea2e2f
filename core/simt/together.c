/* together.c - instructions that the threads of a warp execute together: what they tell each other. */
#include "core/simt/machine.h"

sx_code sx_ptx_members(const sx_ptx_step *s, uint32_t lane, uint32_t *members)
{
    switch (s->u->handler) {
    case SX_PTX_RUN_SHFL: *members = (uint32_t)sx_ptx_operand_word(s, 3)->lane[lane]; break;
    case SX_PTX_RUN_VOTE:
    case SX_PTX_RUN_REDUX: *members = (uint32_t)sx_ptx_operand_word(s, 1)->lane[lane]; break;
    case SX_PTX_RUN_ELECT:
    case SX_PTX_RUN_BAR_WARP: *members = (uint32_t)sx_ptx_operand_word(s, 0)->lane[lane]; break;
    case SX_PTX_RUN_CLUSTER_BARRIER:
    case SX_PTX_RUN_BAR: *members = SX_PTX_ALL & ~s->w->ended; return SX_OK;
    default: *members = SX_PTX_ALL; break; // matrices
    }
    if ((*members >> lane & 1) == 0) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "is not in its own member mask 0x%x", *members);
    }
    uint32_t gone = *members & s->w->ended;
    if (gone != 0) {
        return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                           "waits for the lanes 0x%x of its warp, which have ended or do not exist",
                           gone);
    }
    return SX_OK;
}

/* ---- shuffles ---- */
/* The lane that `lane` reads from; false: itself, as there is none in its segment. */
static bool shuffle_source(sx_ptx_modifier how, uint32_t lane, uint32_t b, uint32_t c,
                           uint32_t *source)
{
    uint32_t segment = c >> 8 & 31, clamp = c & 31, first = lane & segment;
    uint32_t last = first | (clamp & ~segment);
    int32_t from;
    bool in;
    b &= 31;
    switch (how) {
    case SX_PTX_SHUFFLE_UP:
        from = (int32_t)lane - (int32_t)b;
        in = from >= (int32_t)last;
        break;
    case SX_PTX_SHUFFLE_DOWN:
        from = (int32_t)(lane + b);
        in = from <= (int32_t)last;
        break;
    case SX_PTX_SHUFFLE_BFLY:
        from = (int32_t)(lane ^ b);
        in = from <= (int32_t)last;
        break;
    case SX_PTX_SHUFFLE_IDX:
        from = (int32_t)(first | (b & ~segment));
        in = from <= (int32_t)last;
        break;
    default: SX_UNREACHABLE();
    }
    *source = in ? (uint32_t)from : lane;
    SX_ASSERT(*source < SX_PTX_LANES);
    return in;
}

static sx_code shuffle(const sx_ptx_step *s)
{
    sx_ptx_modifier how =
        sx_ptx_insn_modifier(&s->m->kernel->insn[s->insn], SX_PTX_CLASS_SHUFFLE, 0);
    const sx_ptx_word from = *sx_ptx_operand_word(s, 0), b = *sx_ptx_operand_word(s, 1);
    const sx_ptx_word c = *sx_ptx_operand_word(s, 2);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        uint32_t source;
        if ((s->active >> lane & 1) == 0) {
            continue;
        }
        bool in =
            shuffle_source(how, lane, (uint32_t)b.lane[lane], (uint32_t)c.lane[lane], &source);
        if ((s->active >> source & 1) == 0) {
            return sx_ptx_stop(s->m, s->w, lane, s->insn, SX_MISMATCH,
                               "reads from lane %u, which is not in the member mask 0x%x", source,
                               s->active);
        }
        sx_ptx_result(s, 0)->lane[lane] = from.lane[source];
        if (s->u->result_count > 1) {
            sx_ptx_result(s, 1)->lane[lane] = in;
        }
    }
    return SX_OK;
}

/* ---- votes and reductions ---- */
static sx_code vote(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    bool negated = s->m->kernel->arg[insn->arg + 1].negated != 0;
    const sx_ptx_word *word = sx_ptx_operand_word(s, 0);
    uint32_t ballot = 0;
    uint64_t answer;
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        ballot |= (uint32_t)((word->lane[lane] & 1) ^ negated) << lane;
    }
    ballot &= s->active;
    switch (sx_ptx_insn_modifier(insn, SX_PTX_CLASS_VOTE, 0)) {
    case SX_PTX_VOTE_ALL: answer = ballot == s->active; break;
    case SX_PTX_VOTE_ANY: answer = ballot != 0; break;
    case SX_PTX_VOTE_UNI: answer = ballot == s->active || ballot == 0; break;
    case SX_PTX_VOTE_BALLOT: answer = ballot; break;
    default: SX_UNREACHABLE();
    }
    sx_ptx_word *result = sx_ptx_result(s, 0);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        result->lane[lane] = (s->active >> lane & 1) != 0 ? answer : result->lane[lane];
    }
    return SX_OK;
}

static uint32_t reduced(sx_ptx_modifier how, bool is_signed, uint32_t a, uint32_t b)
{
    bool less = is_signed ? (int32_t)a < (int32_t)b : a < b;
    switch (how) {
    case SX_PTX_COMBINE_ADD: return a + b;
    case SX_PTX_COMBINE_MIN: return less ? a : b;
    case SX_PTX_COMBINE_MAX: return less ? b : a;
    case SX_PTX_COMBINE_AND: return a & b;
    case SX_PTX_COMBINE_OR: return a | b;
    case SX_PTX_COMBINE_XOR: return a ^ b;
    default: SX_UNREACHABLE();
    }
}

static sx_code reduce(const sx_ptx_step *s)
{
    const sx_ptx_insn *insn = &s->m->kernel->insn[s->insn];
    sx_ptx_modifier how = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_COMBINE, 0);
    bool is_signed = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 0) == SX_PTX_TYPE_S32;
    const sx_ptx_word *word = sx_ptx_operand_word(s, 0);
    uint32_t first = (uint32_t)__builtin_ctz(s->active);
    uint32_t answer = (uint32_t)word->lane[first];
    for (uint32_t lane = first + 1; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) != 0) {
            answer = reduced(how, is_signed, answer, (uint32_t)word->lane[lane]);
        }
    }
    sx_ptx_word *result = sx_ptx_result(s, 0);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        result->lane[lane] = (s->active >> lane & 1) != 0 ? answer : result->lane[lane];
    }
    return SX_OK;
}

static sx_code active_mask(const sx_ptx_step *s)
{
    sx_ptx_word *result = sx_ptx_result(s, 0);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        result->lane[lane] = (s->active >> lane & 1) != 0 ? s->active : result->lane[lane];
    }
    return SX_OK;
}

/* One of the lanes, always the same one of a mask; the seed says which. */
static void elect(const sx_ptx_step *s)
{
    uint32_t left = s->active;
    uint64_t skipped = s->m->launch->seed % (uint64_t)__builtin_popcount(left);
    for (; skipped > 0; skipped--) {
        left &= left - 1;
    }
    uint32_t leader = (uint32_t)__builtin_ctz(left);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        if ((s->active >> lane & 1) != 0) {
            sx_ptx_result(s, 0)->lane[lane] = leader;
            sx_ptx_result(s, 1)->lane[lane] = lane == leader;
        }
    }
}

sx_code sx_ptx_run_together(const sx_ptx_step *s)
{
    SX_ASSERT(s->active != 0);
    switch (s->u->handler) {
    case SX_PTX_RUN_SHFL: return shuffle(s);
    case SX_PTX_RUN_VOTE: return vote(s);
    case SX_PTX_RUN_REDUX: return reduce(s);
    case SX_PTX_RUN_ACTIVEMASK: return active_mask(s);
    case SX_PTX_RUN_BAR_WARP: sx_ptx_order_lanes(s->m, s->w, s->active); return SX_OK;
    case SX_PTX_RUN_ELECT: elect(s); return SX_OK;
    default: SX_UNREACHABLE();
    }
}
