/* algebra.h - the values of a kernel program as terms: what a lane holds, written in elements of the inputs.
 * Internal to core/judge.
 *
 *   form   an affine integer: constant + sum of coefficient * variable, every sum and product checked for overflow
 *   term   what one lane holds: a constant, an element of an input at a form, an integer form, an
 *          operation on terms, a run: a step applied again and again to an accumulator, or a recurrence:
 *          several values that step together, each step reading those before it
 *
 * Both are hash-consed: equal ones have equal numbers, whole keys are compared and no hash is trusted. Number
 * 0 is the constant form zero, and no term. Variables are small numbers: those of the program, the lane, those
 * bound by runs (named by how deep runs nest), those of store records.
 *
 * A run has a first value, a step that contains SX_TERM_ACC, and one to five counts, innermost first: the
 * accumulator takes the step for every value of the run's variables in row-major order. Runs are kept in
 * normal form: counts of 1 are gone, neighbours that make one arithmetic sequence are one, and a step that
 * continues the run before it is part of it. So two chains with the same steps in the same order are one
 * number, however the program unrolled and tiled its loops.
 *
 * A recurrence is what a loop makes of memory that it carries. Parts have a first value and a step over the
 * values of all parts before it (SX_TERM_PART); the term is the value of part 0 behind the loop, and the other
 * parts are those that its step needs, in the order in which they are met. One part alone is a run where it
 * can be one.
 *
 * Failure sticks in `refused`, with the reason; functions return 0 from then on. */
#ifndef SX_CORE_JUDGE_ALGEBRA_H
#define SX_CORE_JUDGE_ALGEBRA_H
#include "core/base/buf.h"
#include "core/loop/loop.h"

#define SX_VAR_LANE 16u
#define SX_VAR_RUN 17u
#define SX_RUN_LEVELS 6u
#define SX_RUN_DEPTH 5u
#define SX_VAR_STORE 47u
#define SX_STORE_DIMS 15u
#define SX_VAR_NAMED \
    62u /* which of several places it is that an integer of the inputs names (walk_named.c) */
#define SX_VAR_ROW 63u
#define SX_VAR_COUNT 64u
_Static_assert(SX_VAR_RUN + SX_RUN_LEVELS * SX_RUN_DEPTH == SX_VAR_STORE, "run variables");
_Static_assert(SX_VAR_STORE + SX_STORE_DIMS == SX_VAR_NAMED, "variables fit a set of 64");
#define SX_TERMS_MAX 400000u
#define SX_FORMS_MAX 200000u
#define SX_VAR_BIT(variable) (UINT64_C(1) << (variable))

/* A form that is being made: coefficients outside `vars` have no meaning. */
typedef struct {
    int64_t constant;
    uint64_t vars;
    int64_t coef[SX_VAR_COUNT];
} sx_lin;
typedef struct {
    int64_t constant;
    uint64_t vars;
    /* Where its coefficients begin in the algebra's `coef`: one for each variable, in ascending order. */
    uint32_t first;
} sx_form;

typedef enum {
    /* A constant. `imm` is the low half of its bits, the constant of `form` the high half; a mask is 0 or 1. */
    SX_TERM_CONST = 1,
    /* What a load of type `width` makes of buffer `imm` at byte `form`. Where child[0] is not 0, that integer is
     * added to the byte. */
    SX_TERM_ELEMENT,
    /* The integer `form`: in a lane as many of its low bits as the lane has, in an integer register all of them. */
    SX_TERM_INT,
    /* The operation `op` with the immediate `imm`, or `form` where that has 64 bits, on the children. */
    SX_TERM_OP,
    /* What lane `form` of carried register `imm` holds at the start of an iteration. */
    SX_TERM_HOLE,
    /* The accumulator of the run around it. */
    SX_TERM_ACC,
    /* A run: child[0] is its first value, child[1] its step, `form` its counts (sx_counts), `imm` its level. */
    SX_TERM_RUN,
    /* What byte `form` of carried table `imm` holds at the start of an iteration. */
    SX_TERM_STATE,
    /* What part `imm` of the recurrence around it holds at the start of an iteration. */
    SX_TERM_PART,
    /* A recurrence. child[0] is the first value of a part and child[1] its step; child[2] is the recurrence of the
     * parts behind it, or 0. `form` is the count of iterations, `imm` the level of the loop's variable. */
    SX_TERM_RECUR
} sx_term_kind;
/* The first SX_TERM_KEY bytes are the key, which is compared as a whole; the other fields follow from it. */
typedef struct {
    /* `kind` is a sx_term_kind, `op` a sx_lop or one of SX_LOP_IMAX .., `width` a sx_mem; `zero` is always 0. */
    uint8_t kind, op, width, zero;
    uint32_t imm;
    /* Numbers of terms; 0 where there is no such child. */
    uint32_t child[3];
    /* The number of a form. */
    uint32_t form;
    /* The variables that are free in the term, a set of SX_VAR_BIT. */
    uint64_t vars;
    union {
        struct {
            /* The term has a hole; an accumulator that no run inside the term binds. */
            bool holes, acc;
            /* The term has a state; a recurrence. */
            bool state, recur;
        };
        /* All four at once. */
        uint32_t marks;
    };
    /* One more than the highest level of the runs and recurrences inside, 0 where there are none. A run around the
     * term takes this level, so that its variables are others than theirs. */
    uint8_t level;
} sx_term;
#define SX_TERM_KEY 24u
_Static_assert(offsetof(sx_term, vars) == SX_TERM_KEY, "the key of a term has no gaps");
#define SX_TERM_THE_ACC 1u /* the number of the one accumulator term */
/* Integer maximum and minimum, which programs write as a blend by a comparison. */
#define SX_LOP_IMAX ((int)SX_LOP_COUNT)
#define SX_LOP_IMIN ((int)SX_LOP_COUNT + 1)
/* Float maximum and minimum that keep a NaN of either operand: a blend of MAX (MIN) by whether the first is one. */
#define SX_LOP_NMAX ((int)SX_LOP_COUNT + 2)
#define SX_LOP_NMIN ((int)SX_LOP_COUNT + 3)

/* An answer of sx_term_pair that is kept. */
typedef struct {
    uint32_t a, b, var; /* what was asked */
    uint32_t result;
    /* The generation of the algebra in which it was asked. */
    uint32_t stamp;
} sx_pair_memo;
#define SX_PAIR_MEMO 1024u
/* A note of a result. It holds where `stamp` is that of the question: of a substitution, or the generation. */
typedef struct {
    uint32_t stamp, result;
} sx_memo;
#define SX_SMALL_FORMS 64u
/* A substitution of few variables that was made before. */
#define SX_SUBST_SHARED 4u
typedef struct {
    /* The variables that it replaces, and what they become, in ascending order. */
    uint64_t vars;
    uint32_t form[SX_SUBST_SHARED];
    /* The generation of the algebra in which it was made, and the stamp of its notes. */
    uint32_t generation, stamp;
} sx_subst_known;
#define SX_SUBSTS_KNOWN 64u

/* All forms and terms of one proof. The arrays lie in the arena of `cx` and are used again by the next proof. */
typedef struct {
    sx_ctx *cx;
    /* A lane has 8 bytes, and not 4. */
    bool wide;
    /* Comparisons of positions are decided by the ranges of variables (sx_term_settle). */
    bool settles;
    /* The proof has failed, and why, for people. */
    bool refused;
    char why[160];
    /* Buffers of which some place may be stored more than once: by several iterations, or by a store that a later one
     * hides. A set of 1 << number. */
    uint64_t again;
    sx_form *form;
    uint32_t form_count, form_capacity;
    /* The coefficients of all forms, one form after the other. */
    int64_t *coef;
    uint32_t coef_count, coef_capacity;
    sx_term *term;
    uint32_t term_count, term_capacity;
    /* Hash tables of forms and of terms: generation << 32 | number. A slot of an older generation is empty. */
    uint64_t *slot[2];
    uint32_t slot_count[2];
    /* How many forms and terms there may be before a table or an array must grow. */
    uint32_t room[2];
    /* Counts the proofs: what an older one left is not cleared, but has an older number. */
    uint32_t generation;
    /* For each term what it became under the substitution whose stamp stands beside it. */
    sx_memo *memo;
    uint32_t memo_capacity;
    /* The last stamp that was given to a substitution. */
    uint32_t stamp;
    /* Found by what they do (sx_subst_share). */
    sx_subst_known known[SX_SUBSTS_KNOWN];
    /* Found by a hash of what was asked; SX_PAIR_MEMO of them. */
    sx_pair_memo *pair;
    /* The forms of the constants 0, 1 .., stamped with the generation: lanes ask for them all the time. */
    sx_memo small[SX_SMALL_FORMS];
    /* The last answer of is_plain (subst.c). */
    struct {
        uint32_t term, var, generation;
        bool yes;
    } plain;
    /* The least and the greatest value of each variable that is in scope. */
    int64_t low[SX_VAR_COUNT], high[SX_VAR_COUNT];
} sx_algebra;

#define SX_RECUR_PARTS 8u
/* A substitution: all that it names is replaced at once. */
typedef struct {
    /* The variables that are replaced, and the form that each becomes; other entries have no meaning. */
    uint64_t vars;
    uint32_t form[SX_VAR_COUNT];
    /* A hole, and the term that it becomes. No hole is replaced where it is 0. */
    uint32_t hole;
    uint32_t acc;
    /* The term that the free accumulator becomes; 0: it stays. */
    uint32_t first;
    /* States, and the terms that they become. */
    uint32_t state_count;
    uint32_t state[SX_RECUR_PARTS];
    uint32_t part[SX_RECUR_PARTS];
    /* The number of this substitution, under which notes on terms are made. */
    uint32_t stamp;
    /* Where `shares`: stamps of notes on terms in which variables alone are replaced, which have none of the marks
     * `own`. `single` is for terms with one of `several` variables. */
    bool shares, several;
    uint32_t own;
    uint32_t shared;
    uint32_t single[SX_VAR_COUNT];
} sx_subst;

sx_code sx_algebra_init(sx_ctx *cx, sx_algebra *g);
void sx_algebra_reset(sx_algebra *g); /* forgets all forms and terms */
uint32_t sx_refuse(sx_algebra *g, const char *format, ...) SX_PRINTF(2, 3); /* 0 */

/* ---- forms ---- */
static inline void sx_lin_init(sx_lin *lin, int64_t constant)
{
    lin->constant = constant;
    lin->vars = 0;
}
void sx_lin_get(const sx_algebra *g, uint32_t form, sx_lin *lin);
void sx_lin_add(sx_algebra *g, sx_lin *lin, uint32_t variable, int64_t coefficient);
void sx_lin_add_lin(sx_algebra *g, sx_lin *lin, const sx_lin *other, int64_t factor);
void sx_lin_add_form(sx_algebra *g, sx_lin *lin, uint32_t form, int64_t factor);
void sx_lin_add_constant(sx_algebra *g, sx_lin *lin, int64_t value);
uint32_t sx_form_put(sx_algebra *g, const sx_lin *lin);
uint32_t sx_form_constant(sx_algebra *g, int64_t value);
uint32_t sx_form_var(sx_algebra *g, uint32_t variable, int64_t coefficient, int64_t constant);
bool sx_lin_range(sx_algebra *g, const sx_lin *lin, int64_t *low, int64_t *high);

/* ---- terms ---- */
uint32_t sx_term_constant(sx_algebra *g, uint64_t bits);
uint64_t sx_term_bits(const sx_algebra *g, const sx_term *constant);
uint32_t sx_term_int(sx_algebra *g, uint32_t form); /* a constant where the form is one */
uint32_t sx_term_scalar(sx_algebra *g, uint32_t form);
/* `width`: a sx_mem, or SX_WIDTH_SIGNED + bits of a load of an integer register: no other is equal to it */
#define SX_WIDTH_SIGNED 64u
uint32_t sx_term_element(sx_algebra *g, uint32_t buffer, uint8_t width, uint32_t form,
                         uint32_t index);
uint32_t sx_term_hole(sx_algebra *g, uint32_t number, uint32_t lane_form);
/* An operation in normal form: integer and mask operations on constants folded, factors in a fixed order,
 * chains as runs. */
uint32_t sx_term_op(sx_algebra *g, sx_lop op, uint32_t imm, uint32_t x, uint32_t y, uint32_t z);
uint32_t sx_term_op_imm2(sx_algebra *g, sx_lop op, int64_t imm2, uint32_t x);
/* The term with its operations made once more, where comparisons of positions that are true for all values of the
 * variables in scope, or for none, are decided: it has the same value for all of them. For a last comparison: the
 * result goes into no other term. */
uint32_t sx_term_settle(sx_algebra *g, uint32_t term);

void sx_subst_begin(sx_algebra *g, sx_subst *s);
void sx_subst_var(sx_subst *s, uint32_t variable, uint32_t form);
/* Once all variables are there: what was found for them before, in an equal substitution, holds for this one. */
void sx_subst_share(sx_algebra *g, sx_subst *s);
uint32_t sx_form_subst(sx_algebra *g, uint32_t form, const sx_subst *s);
uint32_t sx_term_subst(sx_algebra *g, uint32_t term, const sx_subst *s);
/* The term at a value of the variable. */
uint32_t sx_term_fix(sx_algebra *g, uint32_t term, uint32_t var, int64_t value);
/* Is `b` what `a` becomes? Of substitutions of variables alone. */
bool sx_form_becomes(sx_algebra *g, uint32_t a, uint32_t b, const sx_subst *s);
bool sx_term_becomes(sx_algebra *g, uint32_t a, uint32_t b, const sx_subst *s);
/* The term at `outer` = 0, where it depends on inner + factor * outer alone; else 0. */
uint32_t sx_term_flat(sx_algebra *g, uint32_t term, uint32_t inner, uint32_t outer, int64_t factor);
/* The term with `var` that is `a` at 0 and `b` at 1, where they differ by constants in forms alone; else 0. */
uint32_t sx_term_pair(sx_algebra *g, uint32_t a, uint32_t b, uint32_t var);
uint32_t sx_form_pair(sx_algebra *g, uint32_t a, uint32_t b, uint32_t var); /* UINT32_MAX: no */
/* The value behind a loop over `var` of `trip` iterations, of a register that held `first` before it, `hole`
 * at the start of an iteration and `last` at its end. */
uint32_t sx_term_close(sx_algebra *g, uint32_t first, uint32_t hole, uint32_t last, uint32_t var,
                       int64_t trip);
/* ---- recurrences (recur.c) ---- */
uint32_t sx_term_state(sx_algebra *g, uint32_t table, uint32_t place);
/* The first value and the step of a state; false: it is none of the loop. */
typedef bool (*sx_define)(void *self, uint32_t state, uint32_t *first, uint32_t *step);
/* The state `asked` behind a loop over `var` of `trip` iterations; 0 where no recurrence can be made of it. */
uint32_t sx_term_recur(sx_algebra *g, uint32_t asked, sx_define define, void *self, uint32_t var,
                       int64_t trip);

/* ---- between algebra.c, subst.c, image.c, fold.c, run.c and recur.c ---- */
/* The stamp of notes on a term: a hole, an accumulator or a state is replaced by this substitution alone. */
static inline uint32_t sx_memo_stamp(const sx_algebra *g, uint32_t term, const sx_subst *s)
{
    if (!s->shares) {
        return s->stamp;
    }
    const sx_term *t = &g->term[term];
    uint64_t hit = t->vars & s->vars;
    if ((t->marks & s->own) != 0) {
        return s->stamp;
    }
    bool single = s->several && hit != 0 && (hit & (hit - 1)) == 0;
    return single ? s->single[__builtin_ctzll(hit)] : s->shared;
}

/* What was noted for a term under the running substitution. */
static inline bool sx_memo_find(const sx_algebra *g, uint32_t term, const sx_subst *s,
                                uint32_t *result)
{
    SX_ASSERT(term < g->memo_capacity);
    *result = g->memo[term].result;
    return g->memo[term].stamp == sx_memo_stamp(g, term, s);
}

static inline void sx_memo_put(sx_algebra *g, uint32_t term, const sx_subst *s, uint32_t result)
{
    SX_ASSERT(term < g->memo_capacity);
    g->memo[term] = (sx_memo){sx_memo_stamp(g, term, s), result};
}

uint32_t sx_term_put(sx_algebra *g, const sx_term *key);
bool sx_form_equal(const sx_algebra *g, uint32_t form, const sx_lin *lin);
/* Does the substitution only give other names to what is in the term (subst.c)? */
bool sx_subst_renames(const sx_algebra *g, uint32_t term, const sx_subst *s);
/* Puts the factors of an operation in their fixed order, where they may be exchanged. */
void sx_term_exchange(sx_algebra *g, sx_term *key);
/* Variables bound by runs of this level. */
uint64_t sx_run_vars(uint32_t level);
/* How often the step of a run is taken, innermost count first. In the form of a run the constant is how many
 * counts there are, and coefficient k is count k. */
typedef struct {
    uint32_t depth;
    int64_t count[SX_RUN_DEPTH + 1];
} sx_counts;
void sx_counts_get(const sx_algebra *g, uint32_t form, sx_counts *counts);
/* A run in normal form. */
uint32_t sx_run_make(sx_algebra *g, uint32_t first, uint32_t step, uint32_t level,
                     const sx_counts *counts);
/* Which operand of an operation may accumulate, or 3. */
uint32_t sx_run_operand(sx_lop op);
/* The operation `key`, whose operand `at` accumulates, as a part of the run that the operand is; 0: it is none. */
uint32_t sx_run_continue(sx_algebra *g, const sx_term *key, uint32_t at);

/* `depth` operations deep. */
void sx_term_print(const sx_algebra *g, uint32_t term, uint32_t depth, sx_buf *text);
#endif
