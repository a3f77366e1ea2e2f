/* mutants.h - an emitted kernel with one instruction left out, exchanged with the next one, or with another immediate.
 *
 * Each mutant is stopped at a fault, gives another result or never ends; or why it does not is derived from the
 * program; or it is listed. What is derived holds for any kernel, so that lists have what is particular to one:
 *   unused    no memory, address, guard or product needs what is changed
 *   alias     generic addresses of global memory are the same
 *   commutes  neighbours that combine one register with others in either order
 *   element   what is computed from elements and constants alone, and decides no address and no branch: the constants
 *             and ranges of functions such as exp. No few numbers tell them all; core.target.test_target holds the
 *             bits of these functions, instruction by instruction, against the interpreter of the loop IR.
 * All mutants are tried with SX_MUTANTS=all, else one of `share`, those that the seed chooses. */
#ifndef SX_TESTS_CORE_SIMT_MUTANTS_H
#define SX_TESTS_CORE_SIMT_MUTANTS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ptx/ptx.h"
#include "tests/lib/test.h"

typedef enum {
    MUTANTS_UNUSED,
    MUTANTS_ALIAS,
    MUTANTS_COMMUTES,
    MUTANTS_ELEMENT,
    MUTANTS_LISTED,
    MUTANTS_REASONS
} mutants_reason;

/* Mutants whose results are the same: what is done, a part of the instruction's text, how many, and why. */
typedef struct {
    const char *how, *text;
    uint32_t count;
    const char *why;
} mutants_same;

/* By register: is its value needed, and does it steer, that is, reach an address, a guard or what is awaited? */
typedef struct {
    uint8_t *needed[SX_PTX_REGISTER_CLASSES], *steers[SX_PTX_REGISTER_CLASSES];
} mutants_flow;

typedef struct {
    sx_ctx *cx;
    sx_ptx_module *module;
    uint32_t kernel; /* of the module */
    /* Is the module as it stands found out, in one of the orders? */
    bool (*is_killed)(void *self);
    void *self;
    const mutants_same *same;
    uint32_t same_count;
    uint32_t first, end; /* instructions that are changed */
    uint32_t share;      /* one of so many is tried */

    bool all;
    sx_rng rng;
    mutants_flow flow;
    uint32_t survivors[64]; /* by row of `same` */
    uint32_t tried, killed, reason[MUTANTS_REASONS];
} mutants;

/* ---- registers of instructions ---- */
typedef struct {
    uint32_t count;
    struct {
        uint32_t form, id;
        bool written, address;
    } of[144]; /* wgmma has 128 sums */
} mutants_registers;

static inline void mutants_note(mutants_registers *r, const sx_ptx_arg *arg, bool written,
                                bool address)
{
    ck_assert_uint_lt(r->count + 1, SX_COUNT(r->of));
    r->of[r->count].form = arg->form;
    r->of[r->count].id = arg->id;
    r->of[r->count].written = written;
    r->of[r->count++].address = address;
    if (arg->kind == SX_PTX_ARG_REGISTER && arg->count > 0) { /* d|p */
        r->of[r->count].form = SX_PTX_PRED;
        r->of[r->count].id = arg->count - 1;
        r->of[r->count].written = written;
        r->of[r->count++].address = false;
    }
}

static inline mutants_registers mutants_registers_of(const sx_ptx_kernel *k,
                                                     const sx_ptx_insn *insn)
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    mutants_registers r = {0};
    if (insn->guarded) {
        const sx_ptx_arg guard = {.form = SX_PTX_PRED, .id = insn->guard};
        mutants_note(&r, &guard, false, true);
    }
    for (uint32_t i = 0; i < count; i++) {
        const sx_ptx_arg *arg = &k->arg[insn->arg + i];
        bool memory = arg->kind == SX_PTX_ARG_MEMORY;
        bool written = (row->operand[operand[i]].flags & SX_PTX_WRITTEN) != 0 && !memory;
        if (arg->kind == SX_PTX_ARG_REGISTER || (memory && arg->base == SX_PTX_ARG_REGISTER)) {
            mutants_note(&r, arg, written, memory);
        }
        for (uint32_t e = 0; arg->kind == SX_PTX_ARG_VECTOR && e < arg->count; e++) {
            mutants_note(&r, &k->arg[arg->id + e], written, arg->form == 1);
        }
    }
    return r;
}

/* ---- what follows from the program ---- */
static inline bool mutants_pure(const sx_ptx_insn *insn)
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    return (row->effects & ~(uint32_t)(SX_PTX_DOES_LOADS | SX_PTX_DOES_WARP)) == 0;
}

/* Do its operands, but for addresses and guards, go on as data: to its results or to memory? */
static inline bool mutants_passes(const sx_ptx_insn *insn)
{
    return mutants_pure(insn) || insn->op == SX_PTX_OP_ST;
}

static inline bool mutants_raise(uint8_t *flag, bool to)
{
    bool changes = to && *flag == 0;
    *flag = changes ? 1 : *flag;
    return changes;
}

/* Flags go from results to operands until nothing changes: the order of instructions plays no part. */
static inline void mutants_follow(mutants *m)
{
    const sx_ptx_kernel *k = &m->module->kernel[m->kernel];
    for (uint32_t c = 0; c < SX_PTX_REGISTER_CLASSES; c++) {
        m->flow.needed[c] = sx_alloc(m->cx, k->register_count[c] + 1);
        m->flow.steers[c] = sx_alloc(m->cx, k->register_count[c] + 1);
        ck_assert(m->flow.needed[c] != NULL && m->flow.steers[c] != NULL);
    }
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t i = k->insn_count; i-- > 0;) {
            const sx_ptx_insn *insn = &k->insn[i];
            mutants_registers r = mutants_registers_of(k, insn);
            bool needed = !mutants_pure(insn), steers = !mutants_passes(insn);
            for (uint32_t n = 0; n < r.count; n++) {
                needed |= r.of[n].written && m->flow.needed[r.of[n].form][r.of[n].id] != 0;
                steers |= r.of[n].written && m->flow.steers[r.of[n].form][r.of[n].id] != 0;
            }
            for (uint32_t n = 0; n < r.count; n++) {
                uint8_t *to[2] = {&m->flow.needed[r.of[n].form][r.of[n].id],
                                  &m->flow.steers[r.of[n].form][r.of[n].id]};
                changes |= !r.of[n].written && mutants_raise(to[0], needed);
                changes |=
                    !r.of[n].written && mutants_raise(to[1], steers || (needed && r.of[n].address));
            }
        }
    }
}

static inline bool mutants_unused(const mutants *m, const sx_ptx_insn *insn)
{
    mutants_registers r = mutants_registers_of(&m->module->kernel[m->kernel], insn);
    bool needed = !mutants_pure(insn);
    for (uint32_t n = 0; n < r.count; n++) {
        needed |= r.of[n].written && m->flow.needed[r.of[n].form][r.of[n].id] != 0;
    }
    return !needed;
}

/* Computed from registers and constants, for every thread, and nothing is steered by it. */
static inline bool mutants_element(const mutants *m, const sx_ptx_insn *insn)
{
    mutants_registers r = mutants_registers_of(&m->module->kernel[m->kernel], insn);
    bool steers = insn->guarded || sx_ptx_row_of((sx_ptx_op)insn->op)->effects != 0;
    uint32_t written = 0;
    for (uint32_t n = 0; n < r.count; n++) {
        written += r.of[n].written ? 1 : 0;
        steers |= r.of[n].written && m->flow.steers[r.of[n].form][r.of[n].id] != 0;
    }
    return !steers && written > 0;
}

/* Neither needs what the other writes, and they do not touch the same memory: loads alone, or none. */
static inline bool mutants_independent(const sx_ptx_kernel *k, const sx_ptx_insn *a,
                                       const sx_ptx_insn *b)
{
    mutants_registers x = mutants_registers_of(k, a), y = mutants_registers_of(k, b);
    uint32_t does[2] = {sx_ptx_row_of((sx_ptx_op)a->op)->effects,
                        sx_ptx_row_of((sx_ptx_op)b->op)->effects};
    uint32_t free = SX_PTX_DOES_LOADS | SX_PTX_DOES_WARP;
    if ((does[0] & ~free) != 0 && (does[1] & ~free) != 0) {
        /* stores and copies to different places, which the layouts prove (core.tile) */
        uint32_t order = SX_PTX_DOES_FENCE | SX_PTX_DOES_CONTROL | SX_PTX_DOES_BLOCK;
        if (((does[0] | does[1]) & order) != 0) {
            return false;
        }
    } else if (((does[0] | does[1]) & ~free) != 0 &&
               ((does[0] & does[1]) != 0 || (does[0] | does[1]) & SX_PTX_DOES_CONTROL ||
                (does[0] != 0 && does[1] != 0))) {
        return false;
    }
    for (uint32_t i = 0; i < x.count; i++) {
        for (uint32_t n = 0; n < y.count; n++) {
            if (x.of[i].form == y.of[n].form && x.of[i].id == y.of[n].id &&
                (x.of[i].written || y.of[n].written)) {
                return false;
            }
        }
    }
    return true;
}

/* Does it add something to its result, or fold it with something by MIN or MAX, reading it nowhere else? */
static inline bool mutants_combines(const sx_ptx_kernel *k, const sx_ptx_insn *insn)
{
    const sx_ptx_arg *arg = &k->arg[insn->arg], *d = arg;
    bool mad = insn->op == SX_PTX_OP_MAD || insn->op == SX_PTX_OP_MAD_WIDE;
    uint32_t operands = mad ? 3 : 2, read = 0, last = 0;
    for (uint32_t n = 1; n <= operands; n++) {
        bool is =
            arg[n].kind == SX_PTX_ARG_REGISTER && arg[n].id == d->id && arg[n].form == d->form;
        last = is ? n : last;
        read += is ? 1 : 0;
    }
    return read == 1 && (!mad || last == operands);
}

/* d = d + x; d = d + y, of integers, where x may be a product; or d = max(d, x); d = max(d, y). */
static inline bool mutants_commute(const sx_ptx_kernel *k, const sx_ptx_insn *a,
                                   const sx_ptx_insn *b)
{
    const sx_ptx_insn *both[2] = {a, b};
    bool adds = true;
    for (uint32_t i = 0; i < 2; i++) {
        uint16_t op = both[i]->op;
        bool sum = op == SX_PTX_OP_ADD || op == SX_PTX_OP_MAD || op == SX_PTX_OP_MAD_WIDE;
        bool fold = (op == SX_PTX_OP_MIN || op == SX_PTX_OP_MAX) && a->op == b->op &&
                    memcmp(a->modifier, b->modifier, sizeof(a->modifier)) == 0;
        if (both[i]->guarded || (!sum && !fold) || !mutants_combines(k, both[i])) {
            return false;
        }
        adds &= sum;
    }
    const sx_ptx_arg *x = &k->arg[a->arg], *y = &k->arg[b->arg];
    return x->form == y->form && x->id == y->id && (adds || a->op == b->op);
}

/* ---- mutants ---- */
static inline void mutants_text(const mutants *m, uint32_t i, char text[256])
{
    sx_buf line;
    sx_buf_init(&line, 4096);
    sx_ptx_print_insn(m->module, &m->module->kernel[m->kernel],
                      &m->module->kernel[m->kernel].insn[i], &line);
    (void)snprintf(text, 256, "%.*s", (int)line.len, (const char *)line.ptr);
    sx_buf_fini(&line);
}

/* The module is the mutant; `follows` if a reason other than its place in a list was derived. */
static inline void mutants_judge(mutants *m, const char *how, uint32_t i, const char *text,
                                 mutants_reason reason)
{
    if (!m->all && sx_rng_below(&m->rng, m->share) != 0) {
        return;
    }
    m->tried++;
    if (m->is_killed(m->self)) {
        m->killed++;
        return;
    }
    uint32_t n = 0;
    while (reason == MUTANTS_LISTED && n < m->same_count &&
           (m->same[n].count == 0 || strcmp(m->same[n].how, how) != 0 ||
            strstr(text, m->same[n].text) == NULL)) {
        n++;
    }
    if (getenv("SX_SHOW") != NULL) {
        (void)fprintf(stderr, "%d %s %u: %s\n", (int)reason, how, i, text);
    } else {
        ck_assert_msg(reason != MUTANTS_LISTED || n < m->same_count,
                      "nobody misses: %s instruction %u %s", how, i, text);
    }
    m->reason[reason]++;
    if (reason == MUTANTS_LISTED && n < m->same_count) {
        m->survivors[n]++;
    }
}

static inline mutants_reason mutants_why(const mutants *m, const sx_ptx_insn *insn)
{
    return mutants_unused(m, insn)      ? MUTANTS_UNUSED
           : insn->op == SX_PTX_OP_CVTA ? MUTANTS_ALIAS
           : mutants_element(m, insn)   ? MUTANTS_ELEMENT
                                        : MUTANTS_LISTED;
}

static inline void mutants_exchange(mutants *m, uint32_t i)
{
    sx_ptx_kernel *k = &m->module->kernel[m->kernel];
    sx_ptx_insn whole = k->insn[i], next = k->insn[i + 1];
    if (mutants_independent(k, &whole, &next)) {
        return;
    }
    char text[256];
    mutants_text(m, i, text);
    mutants_reason first = mutants_why(m, &whole), second = mutants_why(m, &next);
    mutants_reason reason = mutants_commute(k, &whole, &next)                     ? MUTANTS_COMMUTES
                            : first == MUTANTS_UNUSED || second == MUTANTS_UNUSED ? MUTANTS_UNUSED
                            : first == MUTANTS_ELEMENT && second == MUTANTS_ELEMENT
                                ? MUTANTS_ELEMENT
                                : MUTANTS_LISTED;
    k->insn[i] = next;
    k->insn[i + 1] = whole;
    mutants_judge(m, "exchange", i, text, reason);
    k->insn[i] = whole;
    k->insn[i + 1] = next;
}

/* Integers are one more and addresses 16 bytes further. Of a register that holds an element's constant the bits of a
 * number are changed so that it is twice as large, or half, or 1 instead of 0. */
static inline int64_t mutants_wrong(const sx_ptx_insn *insn, const sx_ptx_arg *arg, bool element)
{
    if (arg->kind == SX_PTX_ARG_MEMORY) {
        return arg->value + 16;
    }
    if (element && insn->op == SX_PTX_OP_MOV && arg->value == 0) {
        return 0x3f800000;
    }
    return element && insn->op == SX_PTX_OP_MOV ? arg->value ^ 0x00800000 : arg->value + 1;
}

static inline void mutants_immediates(mutants *m, uint32_t i)
{
    sx_ptx_kernel *k = &m->module->kernel[m->kernel];
    char text[256];
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(&k->insn[i], operand);
    mutants_reason reason = mutants_why(m, &k->insn[i]);
    for (uint32_t n = 0; n < count; n++) {
        sx_ptx_arg *arg = &k->arg[k->insn[i].arg + n];
        bool memory = arg->kind == SX_PTX_ARG_MEMORY && arg->base == SX_PTX_ARG_REGISTER;
        if (arg->kind != SX_PTX_ARG_IMMEDIATE && !memory) {
            continue;
        }
        sx_ptx_arg whole = *arg;
        arg->value = mutants_wrong(&k->insn[i], arg, reason == MUTANTS_ELEMENT);
        if (sx_ptx_check(m->cx, m->module) == SX_OK) {
            mutants_text(m, i, text);
            mutants_judge(m, "immediate", i, text, reason);
        }
        sx_ctx_reset_error(m->cx);
        *arg = whole;
    }
}

/* Tries them all, or its share, and compares the lists: as many as listed, or at most so many of a share. */
static inline void mutants_run(mutants *m)
{
    sx_ptx_kernel *k = &m->module->kernel[m->kernel];
    const char *asked = getenv("SX_MUTANTS");
    m->all = m->share <= 1 || (asked != NULL && strcmp(asked, "all") == 0);
    m->rng.state = sx_test_seed();
    ck_assert_uint_le(m->same_count, SX_COUNT(m->survivors));
    mutants_follow(m);
    ck_assert(!m->is_killed(m->self));
    for (uint32_t i = m->first; i < m->end; i++) {
        sx_ptx_insn whole = k->insn[i];
        char text[256];
        mutants_text(m, i, text);
        mutants_reason reason = mutants_why(m, &whole);
        /* Nothing is left where it stood. */
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        mutants_judge(m, "without", i, text, reason);
        k->insn[i] = whole;
        mutants_exchange(m, i);
        mutants_immediates(m, i);
    }
    for (uint32_t n = 0; n < m->same_count && m->same[n].how != NULL; n++) {
        const mutants_same *same = &m->same[n];
        bool right = m->all ? m->survivors[n] == same->count : m->survivors[n] <= same->count;
        ck_assert_msg(right, "%s %s: %u survive, not %u (%s)", same->how, same->text,
                      m->survivors[n], same->count, same->why);
    }
    (void)printf("%u mutants: %u killed, %u unused, %u aliases, %u commute, %u of elements, %u "
                 "listed\n",
                 m->tried, m->killed, m->reason[MUTANTS_UNUSED], m->reason[MUTANTS_ALIAS],
                 m->reason[MUTANTS_COMMUTES], m->reason[MUTANTS_ELEMENT],
                 m->reason[MUTANTS_LISTED]);
}
#endif
