/* affine.c - do the blocks of a grid differ in nothing but where they read and write?
 *
 * Every register is followed from what the instructions say, without their order: does it depend on the index of the
 * block, on data, or on neither? A kernel is affine where what depends on the index of the block is a sum of
 * multiples of it, is never mixed with data, and goes nowhere but into addresses, sizes of copies, coordinates of the
 * copy engine, and comparisons of order with what all blocks share; and where data decides neither addresses nor which
 * instructions are executed.
 *
 * Take blocks whose indices form a box. An inequality of an affine function that has one answer at all corners of the
 * box has it everywhere in the box, since both sides of a hyperplane are convex. So where the corners have the same
 * path (run.h) all blocks of the box have it, and all their addresses are the same affine functions of the index,
 * which their values at the corners determine. How far a box of the copy engine lies outside of its tensor along each
 * dimension is told by such inequalities, and belongs to the path, too. A wait for a phase of an mbarrier has the
 * answer that copies, arrivals and earlier answers give it, which are the same in all blocks of one path.
 *
 * Blocks that all lie along x find the indices of their point by division. The launch says how many points there are
 * along each dimension (run.h). The number of a block over the product of the last of these extents is affine in the
 * indices of its point, and so is the remainder between two such quotients. So %ctaid.x and its quotients are marked
 * with what the number is divided by in them. An instruction that divides must find the number over its mark: that and
 * what it finds are both affine, so what is equal at the corners of a box is equal in all of it.
 */
#include "core/simt/machine.h"

enum { OF_BLOCK = 1, OF_DATA = 2 };
#define MIXED (-1)

typedef struct {
    sx_ptx_machine *m;
    uint8_t *of; /* by word of a warp's file */
    /* By word: what the number of the block is divided by in it; 0: not known yet, MIXED: it is something else. */
    int64_t *mark;
    bool changed, fails;
} walk;

static uint8_t class_of(const walk *w, uint32_t word)
{
    return word == SX_PTX_NO_WORD || (word & SX_PTX_CONSTANT) != 0 ? 0 : w->of[word];
}

static uint8_t operand(const walk *w, const sx_ptx_micro *u, uint32_t index)
{
    SX_ASSERT(index < u->operand_count);
    return class_of(w, w->m->word[u->word + u->result_count + index]);
}

static void put(walk *w, const sx_ptx_micro *u, uint8_t value)
{
    for (uint32_t i = 0; i < u->result_count; i++) {
        uint8_t *of = &w->of[w->m->word[u->word + i]];
        w->changed = w->changed || (*of | value) != *of;
        *of |= value;
    }
}

static uint32_t word_of(const sx_ptx_machine *m, const sx_ptx_micro *u, uint32_t index)
{
    SX_ASSERT(index < u->operand_count);
    return m->word[u->word + u->result_count + index];
}

static bool is_register(uint32_t word)
{
    return word != SX_PTX_NO_WORD && (word & SX_PTX_CONSTANT) == 0;
}

static int64_t mark_of(const walk *w, const sx_ptx_micro *u, uint32_t index)
{
    uint32_t word = word_of(w->m, u, index);
    return is_register(word) ? w->mark[word] : MIXED;
}

static bool divides(const sx_ptx_micro *u)
{
    return u->handler == SX_PTX_RUN_DIV || u->handler == SX_PTX_RUN_REM;
}

/* The mark of a quotient; MIXED: it has none. */
static int64_t quotient_of(const walk *w, const sx_ptx_micro *u)
{
    uint32_t by = word_of(w->m, u, 1);
    int64_t mark = mark_of(w, u, 0), all;
    if (mark <= 0 || by == SX_PTX_NO_WORD || is_register(by)) {
        return mark == 0 ? 0 : MIXED;
    }
    uint64_t value = w->m->constant[by & ~SX_PTX_CONSTANT].lane[0];
    bool fits = value >= 1 && value <= INT32_MAX && sx_mul_i64(mark, (int64_t)value, &all);
    return fits ? all : MIXED;
}

static void put_mark(walk *w, const sx_ptx_micro *u)
{
    bool moves = u->handler == SX_PTX_RUN_MOV;
    bool adds = u->handler == SX_PTX_RUN_ADD && operand(w, u, 1) == 0;
    int64_t value = moves || adds                  ? mark_of(w, u, 0)
                    : u->handler == SX_PTX_RUN_DIV ? quotient_of(w, u)
                                                   : MIXED;
    for (uint32_t i = 0; i < u->result_count; i++) {
        int64_t *mark = &w->mark[w->m->word[u->word + i]];
        int64_t next = value == 0 || *mark == value ? *mark : *mark == 0 ? value : MIXED;
        w->changed = w->changed || next != *mark;
        *mark = next;
    }
}

/* Is the number of a block over this affine in the indices of its point? */
static bool is_index(const sx_ptx_machine *m, int64_t divisor)
{
    const int64_t *points = m->launch->points;
    int64_t last = points[2], two = points[1] * points[2];
    return divisor > 0 && points[0] > 0 &&
           (divisor == 1 || divisor == last || divisor == two || divisor >= two * points[0]);
}

static bool is_integer(sx_ptx_modifier type)
{
    return type >= SX_PTX_TYPE_B8 && type <= SX_PTX_TYPE_S64;
}

static bool is_order(const sx_ptx_alu *alu)
{
    bool less = (alu->relation & SX_PTX_LESS) != 0;
    bool greater = (alu->relation & SX_PTX_GREATER) != 0;
    return is_integer(alu->type) && less != greater;
}

/* Is the result of these operands, some of which depend on the block, affine in its index? */
static bool stays_affine(const walk *w, const sx_ptx_micro *u)
{
    const sx_ptx_alu *alu = &u->alu;
    bool low = alu->half != SX_PTX_HALF_HI && !alu->saturate;
    switch ((int)u->handler) {
    case SX_PTX_RUN_MOV:
    case SX_PTX_RUN_CVTA: return true;
    case SX_PTX_RUN_ADD:
    case SX_PTX_RUN_SUB: return low;
    case SX_PTX_RUN_MUL:
    case SX_PTX_RUN_MUL_WIDE:
    case SX_PTX_RUN_MAD:
    case SX_PTX_RUN_MAD_WIDE: return low && (operand(w, u, 0) & operand(w, u, 1)) == 0;
    case SX_PTX_RUN_SHL: return operand(w, u, 1) == 0;
    case SX_PTX_RUN_CVT: return low && is_integer(alu->type) && is_integer(alu->type2);
    case SX_PTX_RUN_MIN:
    case SX_PTX_RUN_MAX:
    case SX_PTX_RUN_SELP: return true;
    case SX_PTX_RUN_SETP: return is_order(alu);
    case SX_PTX_RUN_DIV: return is_index(w->m, quotient_of(w, u));
    case SX_PTX_RUN_REM:
        return is_index(w->m, mark_of(w, u, 0)) && is_index(w->m, quotient_of(w, u));
    default: return false;
    }
}

static bool is_box(const sx_ptx_machine *m, const sx_ptx_micro *u)
{
    uint16_t op = m->kernel->insn[u - m->micro].op;
    return op == SX_PTX_OP_CP_TENSOR_LOAD || op == SX_PTX_OP_CP_TENSOR_STORE;
}

static void look_at(walk *w, sx_ptx_micro *u)
{
    uint8_t in = 0, at = 0;
    uint8_t guard = class_of(w, u->guard);
    for (uint32_t i = 0; i < u->operand_count; i++) {
        in |= operand(w, u, i);
    }
    for (uint32_t i = 0; i < u->address_count; i++) {
        at |= class_of(w, u->address[i]);
    }
    w->fails = w->fails || ((guard | at) & OF_DATA) != 0;
    u->decides = u->guard != SX_PTX_NO_WORD;
    if (u->computes || u->handler == SX_PTX_RUN_CVTA) {
        bool of_block = (in & OF_BLOCK) != 0;
        bool compares = u->handler == SX_PTX_RUN_SETP;
        w->fails = w->fails || (of_block && ((in & OF_DATA) != 0 || !stays_affine(w, u)));
        u->decides = u->decides || (of_block && (compares || u->handler == SX_PTX_RUN_MIN ||
                                                 u->handler == SX_PTX_RUN_MAX || divides(u)));
        put_mark(w, u);
        put(w, u, compares ? in & OF_DATA : in); // an answer is the same in a box
        return;
    }
    switch ((sx_ptx_handler)u->handler) {
    case SX_PTX_RUN_LD: put(w, u, u->space == SX_PTX_SPACE_PARAM && at == 0 ? 0 : OF_DATA); return;
    case SX_PTX_RUN_LDMATRIX: put(w, u, OF_DATA); return;
    case SX_PTX_RUN_ST:
    case SX_PTX_RUN_STMATRIX: w->fails = w->fails || (in & OF_BLOCK) != 0; return;
    case SX_PTX_RUN_CP_ASYNC: w->fails = w->fails || (in & OF_DATA) != 0; return;
    case SX_PTX_RUN_SHFL:
        w->fails = w->fails || (in & OF_BLOCK) != 0;
        put(w, u, in);
        return;
    /* The rank in its cluster is no index: it is taken that clusters form the box, each with all of its blocks. */
    case SX_PTX_RUN_MAPA:
    case SX_PTX_RUN_MBARRIER:
    case SX_PTX_RUN_ELECT:
        w->fails = w->fails || (in | at) != 0;
        put(w, u, 0);
        return;
    case SX_PTX_RUN_BULK: /* loads and stores of boxes: not at places of shared memory that the block decides */
        w->fails = w->fails || (in & OF_DATA) != 0 || at != 0 || !is_box(w->m, u);
        return;
    case SX_PTX_RUN_WGMMA:
        w->fails = w->fails || in != 0;
        put(w, u, OF_DATA);
        return;
    case SX_PTX_RUN_CLUSTER_BARRIER:
    case SX_PTX_RUN_WGMMA_GROUP:
    case SX_PTX_RUN_BULK_GROUP:
    case SX_PTX_RUN_SETMAXNREG:
    case SX_PTX_RUN_BAR:
    case SX_PTX_RUN_BAR_WARP:
    case SX_PTX_RUN_CP_COMMIT:
    case SX_PTX_RUN_CP_WAIT: w->fails = w->fails || in != 0; return;
    case SX_PTX_RUN_FENCE:
    case SX_PTX_RUN_FENCE_MBARRIER:
    case SX_PTX_RUN_FENCE_PROXY:
    case SX_PTX_RUN_PREFETCH:
    case SX_PTX_RUN_PREFETCH_MAP:
    case SX_PTX_RUN_BRA:
    case SX_PTX_RUN_EXIT:
    case SX_PTX_RUN_TRAP: return;
    default: w->fails = true; return; // others are not followed
    }
}

sx_code sx_ptx_follow(sx_ptx_machine *m, bool *affine)
{
    static const sx_ptx_special index[] = {SX_PTX_SPECIAL_CTAID_X,     SX_PTX_SPECIAL_CTAID_Y,
                                           SX_PTX_SPECIAL_CTAID_Z,     SX_PTX_SPECIAL_CLUSTERID_X,
                                           SX_PTX_SPECIAL_CLUSTERID_Y, SX_PTX_SPECIAL_CLUSTERID_Z};
    walk w = {.m = m,
              .of = SX_NEW_ARRAY(m->cx, uint8_t, m->file_count),
              .mark = SX_NEW_ARRAY(m->cx, int64_t, m->file_count),
              .changed = true};
    SX_ASSERT(m->micro != NULL && affine != NULL);
    if (w.of == NULL || w.mark == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < SX_COUNT(index); i++) {
        w.of[index[i]] = OF_BLOCK;
        w.mark[index[i]] = index[i] == SX_PTX_SPECIAL_CTAID_X ? 1 : MIXED;
    }
    /* A pass that changes something adds a bit to a register, or a mark, or takes one away. */
    for (uint32_t pass = 0; w.changed && !w.fails; pass++) {
        SX_ASSERT(pass <= 4 * m->file_count);
        w.changed = false;
        for (uint32_t i = 0; i < m->kernel->insn_count && !w.fails; i++) {
            look_at(&w, &m->micro[i]);
        }
    }
    m->follows = !w.fails;
    m->mark = w.mark;
    *affine = !w.fails;
    return SX_OK;
}

/* The path goes on: FNV-1a of words. */
static void mix(sx_ptx_machine *m, uint64_t word)
{
    m->outcome->path = (m->outcome->path ^ word) * UINT64_C(1099511628211);
}

/* Is the first operand less than the second, or, where the instruction asks for that, not greater? */
static uint32_t order(const sx_ptx_step *s)
{
    const sx_ptx_alu *alu = &s->u->alu;
    const sx_ptx_word *first = sx_ptx_operand_word(s, 0), *second = sx_ptx_operand_word(s, 1);
    uint32_t answer = 0;
    bool equal = s->u->handler == SX_PTX_RUN_SETP &&
                 ((alu->relation & SX_PTX_LESS) != 0) == ((alu->relation & SX_PTX_EQUAL) != 0);
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        uint64_t x = first->lane[lane] ^ alu->sign, y = second->lane[lane] ^ alu->sign;
        answer |= (uint32_t)(x < y || (equal && x == y)) << lane;
    }
    return answer & s->active;
}

/* Does an instruction that divides find the number of the block over its mark? */
static bool finds_number(const sx_ptx_step *s)
{
    const sx_ptx_word *found = sx_ptx_operand_word(s, 0);
    int64_t mark = s->m->mark[word_of(s->m, s->u, 0)];
    bool all = mark > 0;
    for (uint32_t lane = 0; lane < SX_PTX_LANES && all; lane++) {
        all = (s->active >> lane & 1) == 0 ||
              found->lane[lane] == s->m->block[s->w->block].number / (uint64_t)mark;
    }
    return all;
}

void sx_ptx_note_path(const sx_ptx_step *s, uint32_t lanes)
{
    SX_ASSERT(s->u->decides && s->m->follows);
    if (divides(s->u)) {
        s->m->outcome->affine = s->m->outcome->affine && finds_number(s);
    }
    mix(s->m, (uint64_t)s->insn << 32 | lanes);
    mix(s->m, (uint64_t)s->w->index << 32 | s->active);
    if (s->u->computes && s->u->operand_count >= 2 && !divides(s->u)) {
        mix(s->m, order(s));
    }
}

void sx_ptx_note_outside(sx_ptx_machine *m, uint32_t before, uint32_t behind)
{
    SX_ASSERT(m->follows);
    mix(m, (uint64_t)before << 32 | behind);
}
