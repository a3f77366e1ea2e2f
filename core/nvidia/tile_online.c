/* tile_online.c - online sums of blocks as PTX (core/tile/online.h): attention by mma.sync.
 *
 * A warp has 16 rows. Of them a thread holds two, 8 apart, and of each what its fragments give it: the maximum of a row
 * is known to its four lanes after two shuffles. Sums need none: that of the weights is a product, too. */
#include <float.h>
#include <math.h>

#include "core/nvidia/tile_inside.h"
#include "core/tile/online.h"

#define ROWS 2          /* of a thread */
#define ROW_LANES 4     /* that share a row */
#define C_WORDS 4       /* registers of a thread for the sums of one instruction, */
#define A_WORDS 4       /* its left factor */
#define B_WORDS 2       /* and its right one */
#define PRODUCTS_MAX 64 /* instructions side by side */

/* The program of an element with registers and pointers of its own. */
typedef struct {
    const sx_part *part;
    sx_ptx_arg *vector, *mask, *scalar;
    sx_nvidia_pointer *pointer;
    uint32_t pointer_count;
    uint32_t *pointer_of;
} program;

typedef struct sx_nvidia_online {
    const sx_tile_online *of;
    program scores[2], power, map, statistic;
    sx_nvidia_places query;
    sx_matrix_move query_move;
    sx_ptx_arg *query_word; /* of all steps of d, where the query stays; else of one */
    sx_ptx_arg *score;      /* by register of of->held */
    sx_ptx_arg total[C_WORDS];
    sx_ptx_arg maximum[ROWS], factor[ROWS];
    sx_ptx_arg ones; /* two of the type of the values */
    sx_ptx_arg rows_left, own_key;
    /* How many stages the block and the thread's warp pass; NONE: all. */
    sx_ptx_arg block_stages, warp_stages;
} online;

/* ---- programs of elements ---- */
static void enter(sx_nvidia_block *k, const program *p)
{
    sx_nvidia_lowering *l = &k->l;
    l->part = p->part;
    l->vector = p->vector;
    l->mask = p->mask;
    l->scalar = p->scalar;
    l->pointer = p->pointer;
    l->pointer_count = p->pointer_count;
    l->pointer_of = p->pointer_of;
}

/* Pointers of the thread's first element. */
static void start_pointers(sx_nvidia_block *k, program *p)
{
    sx_nvidia_lowering *l = &k->l;
    for (uint32_t i = 0; i < p->pointer_count; i++) {
        sx_nvidia_pointer *pointer = &p->pointer[i];
        pointer->at = sx_ptx_register(&l->b, SX_PTX_B64);
        SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), pointer->at, l->buffer[pointer->buffer]);
        for (uint32_t v = SX_TILE_VAR_ROW; v < SX_LOOP_VARS_MAX; v++) {
            if (pointer->coef[v] != 0) {
                SX_PTX_PUT(&l->b, MAD, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_S64), pointer->at,
                           l->variable[v], sx_ptx_imm(pointer->coef[v]), pointer->at);
            }
        }
    }
}

static sx_code make_program(sx_nvidia_block *k, const sx_part *part, program *p)
{
    sx_nvidia_lowering *l = &k->l;
    l->part = part;
    l->pointer_count = 0;
    SX_TRY(sx_nvidia_make_registers(l));
    SX_TRY(sx_nvidia_find_pointers(l));
    *p =
        (program){part, l->vector, l->mask, l->scalar, l->pointer, l->pointer_count, l->pointer_of};
    return SX_OK;
}

static void run(sx_nvidia_block *k)
{
    for (uint32_t i = 0; i < k->l.part->item_count; i++) {
        sx_nvidia_op(&k->l, i);
    }
}

/* e^(x - minus) */
static void put_power(sx_nvidia_block *k, sx_ptx_arg d, sx_ptx_arg x, sx_ptx_arg minus)
{
    sx_ptx_builder *b = &k->l.b;
    const program *p = &k->online->power;
    enter(k, p);
    SX_PTX_PUT(b, SUB_F32, SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32), p->vector[0], x, minus);
    run(k);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), d, p->vector[k->online->of->power.result]);
}

/* Whether so much is left of a side behind the thread's element at `at`, and `with`; NONE stands for true. */
static sx_ptx_arg inside(sx_nvidia_block *k, sx_ptx_arg left, uint32_t at, sx_ptx_arg with)
{
    sx_ptx_builder *b = &k->l.b;
    if (left.kind == SX_PTX_ARG_NONE) {
        return with;
    }
    sx_ptx_arg d = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_GT, SX_PTX_TYPE_S32), d, left, sx_ptx_imm(at));
    if (with.kind != SX_PTX_ARG_NONE) {
        SX_PTX_PUT(b, AND, SX_PTX_M(SX_PTX_TYPE_PRED), d, d, with);
    }
    return d;
}

static sx_ptx_arg rest_of(sx_nvidia_block *k, int64_t extent, sx_ptx_arg own)
{
    sx_ptx_arg rest = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), rest, sx_ptx_imm(extent), own);
    return rest;
}

/* ---- registers ---- */
static sx_code make_words(sx_nvidia_block *k, uint32_t count, const int64_t *value,
                          sx_ptx_arg **word)
{
    *word = SX_NEW_ARRAY(k->l.cx, sx_ptx_arg, count + 1);
    if (*word == NULL) {
        return k->l.cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        (*word)[i] = sx_ptx_register(&k->l.b, SX_PTX_B32);
        if (value != NULL) {
            SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), (*word)[i], sx_ptx_imm(*value));
        }
    }
    return SX_OK;
}

static uint32_t words_of(const sx_layout *held)
{
    return sx_layout_count(held, SX_HOME_REGISTER) / 2;
}

/* Of the inner dimension, those steps that are not all zeros. */
static uint32_t inner_steps(const sx_tile *tile)
{
    return (uint32_t)sx_ceil_div_i64(tile->rows, tile->matrix->steps);
}

static sx_code make_registers(sx_nvidia_block *k)
{
    online *o = k->online;
    const sx_tile *tile = k->tile;
    const int64_t zero = 0;
    sx_ptx_builder *b = &k->l.b;
    uint32_t steps = o->of->query_stays ? inner_steps(tile) : 1;
    sx_ptx_arg *total;
    SX_TRY(make_words(k, steps * A_WORDS, NULL, &o->query_word));
    SX_TRY(make_words(k, words_of(&tile->operand[0].held), NULL, &k->factor[0]));
    SX_TRY(make_words(k, words_of(&tile->operand[1].held), NULL, &k->factor[1]));
    SX_TRY(make_words(k, sx_layout_count(&o->of->held, SX_HOME_REGISTER), NULL, &o->score));
    SX_TRY(make_words(k, sx_layout_count(&tile->held, SX_HOME_REGISTER), &zero, &k->sum));
    SX_TRY(make_words(k, C_WORDS, &zero, &total));
    for (uint32_t i = 0; i < C_WORDS; i++) {
        o->total[i] = total[i];
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        o->maximum[i] = sx_ptx_register(b, SX_PTX_B32);
        o->factor[i] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_F32), o->maximum[i], sx_ptx_imm_f32(-FLT_MAX));
    }
    o->ones = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->ones,
               sx_ptx_imm(tile->matrix->factor == SX_BF16 ? 0x3f803f80 : 0x3c003c00));
    return b->code;
}

/* ---- the queries ---- */
/* The queries' tile stands for that of keys and values while `body` is written. */
static void with_query(sx_nvidia_block *k, void (*body)(sx_nvidia_block *k))
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    sx_ptx_arg shared = k->shared;
    k->tile = k->online->of->query;
    k->shared = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), k->shared, shared,
               sx_ptx_imm((int64_t)k->tile->ring.offset - tile->ring.offset));
    body(k);
    k->tile = tile;
    k->shared = shared;
}

static void fetch_query(sx_nvidia_block *k)
{
    const sx_tile_operand *q = &k->tile->operand[SX_TILE_LEFT];
    sx_ptx_arg stage = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), stage, sx_ptx_imm(0));
    sx_nvidia_begin_copy(k, SX_TILE_LEFT);
    sx_nvidia_fetch_one(k, SX_TILE_LEFT, stage, false);
    sx_ptx_put(&k->l.b, SX_PTX_OP_CP_COMMIT, SX_PTX_M(0), NULL, 0);
    sx_nvidia_place(k, 0, &k->online->query_move.rows, sx_dtype_bytes(q->view.element),
                    q->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW, q->group,
                    k->tile->block_steps / q->group, &k->online->query);
    sx_nvidia_move(k, &k->online->query, stage);
}

/* The fragments of step `step` of d. */
static const sx_ptx_arg *load_query(sx_nvidia_block *k, uint32_t step)
{
    const online *o = k->online;
    const sx_tile_operand *q = &o->of->query->operand[SX_TILE_LEFT];
    const sx_ptx_arg *word = &o->query_word[o->of->query_stays ? step * A_WORDS : 0];
    sx_nvidia_words load = {&o->query, &o->query_move, word};
    uint32_t taken[4], at = step * q->group;
    for (uint32_t i = 0; i < sx_layout_count(&o->query_move.rows, SX_HOME_REGISTER); i++) {
        (void)sx_nvidia_load_matrix(k, &load, i, q->sum_inner ? 0 : at, q->sum_inner ? at : 0,
                                    taken);
    }
    return word;
}

void sx_nvidia_take_query(sx_nvidia_block *k)
{
    if (!k->online->of->query_stays) {
        return;
    }
    SX_PTX_PUT(&k->l.b, CP_WAIT, SX_PTX_M(0), sx_ptx_imm(k->tile->ring.depth - 1));
    SX_PTX_PUT(&k->l.b, BAR_SYNC, SX_PTX_M(0), sx_ptx_imm(0));
    for (uint32_t s = 0; s < inner_steps(k->tile); s++) {
        (void)load_query(k, s);
    }
}

/* ---- products ---- */
/* A right factor of a step: its words are loaded, and what is complete is multiplied at once. */
typedef struct {
    uint32_t which;       /* of the ring: keys or values */
    uint32_t row, column; /* where in the slot the step begins */
    bool columns_are_k;   /* along the slot's columns runs what is summed */
    const sx_ptx_arg *left;
    sx_ptx_arg *sum;
    uint32_t end; /* columns of the product that are needed */
} product;

/* Which column of the product a word of the right factor belongs to, and which half of the steps. */
static uint32_t column_of(const product *p, const sx_layout *held, uint32_t word, uint32_t *half)
{
    uint32_t at = sx_layout_apply(held, &(sx_place){{2 * word}});
    uint32_t step = p->columns_are_k ? sx_at_column(at) : sx_at_row(at);
    *half = step >= 8 ? 1 : 0;
    return p->columns_are_k ? sx_at_row(at) : sx_at_column(at);
}

static void put_product(sx_nvidia_block *k, const product *p)
{
    const sx_layout *held = &k->tile->operand[p->which].held;
    const sx_matrix_instruction *m = k->tile->matrix;
    sx_nvidia_words load = {&k->read[p->which], &k->move[p->which], k->factor[p->which]};
    uint32_t count = sx_layout_count(&load.move->rows, SX_HOME_REGISTER);
    uint32_t word_of[PRODUCTS_MAX][B_WORDS];
    bool loaded[PRODUCTS_MAX][B_WORDS] = {{false}};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = sx_layout_apply(&load.move->rows, &(sx_place){{i}});
        uint32_t first = p->columns_are_k ? sx_at_row(at) : sx_at_column(at);
        uint32_t taken[4], half;
        if (first >= p->end) {
            continue;
        }
        uint32_t n = sx_nvidia_load_matrix(k, &load, i, p->row, p->column, taken);
        for (uint32_t w = 0; w < n; w++) {
            uint32_t column = column_of(p, held, taken[w], &half), tile = column / m->columns;
            SX_ASSERT(tile < SX_COUNT(word_of));
            word_of[tile][half] = taken[w];
            loaded[tile][half] = true;
            if (!loaded[tile][0] || !loaded[tile][1] || column >= p->end) {
                continue;
            }
            const sx_ptx_arg right[B_WORDS] = {load.word[word_of[tile][0]],
                                               load.word[word_of[tile][1]]};
            sx_ptx_arg sum = sx_ptx_vector(&k->l.b, &p->sum[tile * C_WORDS], C_WORDS);
            sx_ptx_arg a = sx_ptx_vector(&k->l.b, p->left, A_WORDS);
            sx_ptx_arg b = sx_ptx_vector(&k->l.b, right, B_WORDS);
            const sx_ptx_arg arg[] = {sum, a, b, sum};
            sx_ptx_put(&k->l.b, sx_nvidia_matrix_op(m), SX_PTX_M(0), arg, SX_COUNT(arg));
        }
    }
}

/* ---- a stage ---- */
/* Scores of `keys` keys, before their program. */
static void put_scores(sx_nvidia_block *k, uint32_t keys)
{
    online *o = k->online;
    const sx_tile_operand *operand = &k->tile->operand[SX_TILE_LEFT];
    for (uint32_t r = 0; r < keys / 2; r++) {
        SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->score[r], sx_ptx_imm(0));
    }
    for (uint32_t s = 0; s < inner_steps(k->tile); s++) {
        uint32_t at = s * k->tile->matrix->steps;
        product p = {.which = SX_TILE_LEFT,
                     .row = operand->sum_inner ? at : 0,
                     .column = operand->sum_inner ? 0 : at,
                     .columns_are_k = !operand->sum_inner,
                     .left = o->of->query_stays ? &o->query_word[s * A_WORDS] : load_query(k, s),
                     .sum = o->score,
                     .end = keys};
        put_product(k, &p);
    }
}

static uint32_t row_of(const sx_layout *held, uint32_t r, uint32_t *column)
{
    uint32_t at = sx_layout_apply(held, &(sx_place){{r}});
    *column = sx_at_column(at);
    return sx_at_row(at);
}

/* The program of the scores; keys that are not there have minus infinity. `rest`: how many there are, 0 for all. */
static void finish_scores(sx_nvidia_block *k, uint32_t keys, uint32_t rest)
{
    online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const program *p = &o->scores[rest != 0];
    uint32_t variable = sx_tile_stage_variable(k->tile) + 1, column;
    sx_ptx_arg left = rest != 0 ? rest_of(k, rest, o->own_key) : (sx_ptx_arg){0};
    enter(k, p);
    for (uint32_t r = 0; r < keys / 2; r++) {
        uint32_t row = row_of(&o->of->held, r, &column);
        sx_ptx_arg there = inside(k, left, column, (sx_ptx_arg){0});
        l->shift[SX_TILE_VAR_ROW] = row;
        l->shift[variable] = column;
        l->partial[1] = inside(k, o->rows_left, row, there);
        l->vector[0] = o->score[r];
        run(k);
        sx_ptx_arg result = l->vector[o->of->scores[rest != 0].result];
        if (there.kind != SX_PTX_ARG_NONE) {
            SX_PTX_PUT(&l->b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), o->score[r], result,
                       sx_ptx_imm(0xff800000), there);
        } else {
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->score[r], result);
        }
    }
    l->shift[variable] = 0;
}

/* New maxima of the thread's rows, and what they scale the sums by. A score that is not a number is no maximum; its
 * weight is not a number, and so are the sums. */
static void put_maxima(sx_nvidia_block *k, uint32_t keys)
{
    online *o = k->online;
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_modifiers f32 = SX_PTX_M(SX_PTX_TYPE_F32);
    sx_ptx_arg made[ROWS], other = sx_ptx_register(b, SX_PTX_B32);
    uint32_t column;
    for (uint32_t i = 0; i < ROWS; i++) {
        made[i] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), made[i], o->maximum[i]);
    }
    for (uint32_t r = 0; r < keys / 2; r++) {
        uint32_t i = row_of(&o->of->held, r, &column) != 0;
        SX_PTX_PUT(b, MAX_F, f32, made[i], made[i], o->score[r]);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t lane = 1; lane < ROW_LANES; lane *= 2) {
            SX_PTX_PUT(b, SHFL, SX_PTX_M(SX_PTX_SHUFFLE_BFLY), other, made[i], sx_ptx_imm(lane),
                       sx_ptx_imm(31), sx_ptx_imm(UINT32_MAX));
            SX_PTX_PUT(b, MAX_F, f32, made[i], made[i], other);
        }
        put_power(k, o->factor[i], o->maximum[i], made[i]);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->maximum[i], made[i]);
    }
}

static void scale_sums(sx_nvidia_block *k)
{
    online *o = k->online;
    sx_ptx_modifiers m = SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32);
    uint32_t column;
    for (uint32_t r = 0; r < sx_layout_count(&k->tile->held, SX_HOME_REGISTER); r++) {
        uint32_t i = row_of(&k->tile->held, r, &column) != 0;
        if (column < k->tile->columns) {
            SX_PTX_PUT(&k->l.b, MUL_F32, m, k->sum[r], k->sum[r], o->factor[i]);
        }
    }
    /* all columns of this product are the same, and the first one of a thread is read */
    for (uint32_t i = 0; i < ROWS; i++) {
        sx_ptx_arg total = o->total[i * C_WORDS / ROWS];
        SX_PTX_PUT(&k->l.b, MUL_F32, m, total, total, o->factor[i]);
    }
}

/* The weights of 16 keys as a left factor: fragments of C, rounded, are that of A. */
static sx_code take_weights(sx_nvidia_block *k, uint32_t key, sx_ptx_arg word[A_WORDS])
{
    const online *o = k->online;
    const sx_matrix_instruction *m = k->tile->matrix;
    sx_ptx_builder *b = &k->l.b;
    sx_layout left;
    SX_TRY(sx_fragment_find(k->l.cx, SX_MMA_SYNC, SX_OPERAND_A, m->factor, m->columns, m->steps,
                            &left));
    for (uint32_t w = 0; w < A_WORDS; w++) {
        uint32_t at = sx_layout_apply(&left, &(sx_place){{2 * w}});
        sx_place low = {{0}};
        bool found = sx_layout_find(&o->of->held, at + SX_AT(0, key), SX_HOMES_THREAD, &low);
        SX_ASSERT(found && low.of[SX_HOME_REGISTER] % 2 == 0);
        uint32_t r = low.of[SX_HOME_REGISTER];
        for (uint32_t i = 0; i < 2; i++) {
            put_power(k, o->score[r + i], o->score[r + i], o->maximum[sx_at_row(at) != 0]);
        }
        word[w] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, CVT_PAIR,
                   SX_PTX_M(SX_PTX_ROUND_RN,
                            m->factor == SX_BF16 ? SX_PTX_TYPE_BF16X2 : SX_PTX_TYPE_F16X2,
                            SX_PTX_TYPE_F32),
                   word[w], o->score[r + 1], o->score[r]);
    }
    return SX_OK;
}

static sx_code add_values(sx_nvidia_block *k, uint32_t keys)
{
    online *o = k->online;
    const sx_tile_operand *operand = &k->tile->operand[SX_TILE_RIGHT];
    const sx_matrix_instruction *m = k->tile->matrix;
    for (uint32_t at = 0; at < keys; at += m->steps) {
        sx_ptx_arg weight[A_WORDS];
        SX_TRY(take_weights(k, at, weight));
        const sx_ptx_arg ones[B_WORDS] = {o->ones, o->ones};
        sx_ptx_arg sum = sx_ptx_vector(&k->l.b, o->total, C_WORDS);
        sx_ptx_arg a = sx_ptx_vector(&k->l.b, weight, A_WORDS);
        sx_ptx_arg b = sx_ptx_vector(&k->l.b, ones, B_WORDS);
        const sx_ptx_arg arg[] = {sum, a, b, sum};
        sx_ptx_put(&k->l.b, sx_nvidia_matrix_op(m), SX_PTX_M(0), arg, SX_COUNT(arg));
        product p = {.which = SX_TILE_RIGHT,
                     .row = operand->sum_inner ? 0 : at,
                     .column = operand->sum_inner ? at : 0,
                     .columns_are_k = operand->sum_inner,
                     .left = weight,
                     .sum = k->sum,
                     .end = (uint32_t)k->tile->columns};
        put_product(k, &p);
    }
    return SX_OK;
}

/* To the scores of the next stage. */
static void next_scores(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    uint32_t stage = sx_tile_stage_variable(k->tile);
    program *p = &k->online->scores[0];
    for (uint32_t i = 0; i < p->pointer_count; i++) {
        if (p->pointer[i].coef[stage] != 0) {
            SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), p->pointer[i].at, p->pointer[i].at,
                       sx_ptx_imm(p->pointer[i].coef[stage]));
        }
    }
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), k->l.variable[stage], k->l.variable[stage],
               sx_ptx_imm(1));
}

/* Jumps to `label` where no row of the warp sees a key of the stage: all threads of a warp, or none. */
static void pass_over(sx_nvidia_block *k, sx_ptx_arg stage, sx_ptx_arg label)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg behind = sx_ptx_register(b, SX_PTX_PRED);
    SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_LE, SX_PTX_TYPE_S32), behind,
               k->online->warp_stages, stage);
    sx_ptx_guard(b, behind);
    SX_PTX_PUT(b, BRA, SX_PTX_M(0), label);
}

sx_code sx_nvidia_put_online(sx_nvidia_block *k, bool whole, sx_ptx_arg stage)
{
    online *o = k->online;
    const sx_tile *tile = k->tile;
    uint32_t rest = whole ? 0 : (uint32_t)(tile->sum % tile->block_steps);
    uint32_t steps = tile->matrix->steps;
    uint32_t keys = whole ? tile->block_steps : (rest + steps - 1) / steps * steps;
    sx_ptx_arg end = o->of->has_horizon ? sx_ptx_label(&k->l.b) : (sx_ptx_arg){0};
    if (o->of->has_horizon) {
        pass_over(k, stage, end);
    }
    for (uint32_t which = 0; which < 2; which++) {
        sx_nvidia_move(k, &k->read[which], k->reading);
    }
    if (!whole) {
        start_pointers(k, &o->scores[1]);
    }
    put_scores(k, keys);
    finish_scores(k, keys, rest);
    put_maxima(k, keys);
    scale_sums(k);
    SX_TRY(add_values(k, keys));
    if (whole) {
        next_scores(k);
    }
    if (o->of->has_horizon) {
        sx_ptx_place(&k->l.b, end);
    }
    return k->l.b.code;
}

sx_ptx_arg sx_nvidia_stages_of_block(const sx_nvidia_block *k)
{
    return k->online->block_stages;
}

/* ---- beginning and end ---- */
static sx_code find_moves(sx_nvidia_block *k)
{
    const sx_tile *tile = k->tile;
    const sx_tile_operand *o[] = {&tile->operand[0], &tile->operand[1],
                                  &tile->online->query->operand[SX_TILE_LEFT]};
    sx_matrix_move *const move[] = {&k->move[0], &k->move[1], &k->online->query_move};
    for (uint32_t i = 0; i < SX_COUNT(o); i++) {
        if (!sx_matrix_move_find(&o[i]->held, sx_dtype_bytes(o[i]->view.element), move[i])) {
            return SX_FAIL(k->l.cx, SX_UNIMPLEMENTED,
                           "kernel %s: ldmatrix does not load argument %u", k->l.kernel->name,
                           o[i]->view.buffer);
        }
    }
    return SX_OK;
}

static sx_ptx_arg number(sx_nvidia_block *k, sx_ptx_register_class class_of, int64_t value)
{
    bool wide = class_of == SX_PTX_B64;
    sx_ptx_arg d = sx_ptx_register(&k->l.b, class_of);
    SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(wide ? SX_PTX_TYPE_B64 : SX_PTX_TYPE_B32), d,
               sx_ptx_imm(value));
    return d;
}

/* How many stages are passed where the last row is `back` behind `row`, if the keys go on for ever; less than 1 where
 * no key is seen. */
static sx_ptx_arg stages_seen(sx_nvidia_block *k, sx_ptx_arg row, int64_t back)
{
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg d = sx_ptx_register(b, SX_PTX_B32);
    sx_ptx_modifiers s32 = SX_PTX_M(SX_PTX_TYPE_S32);
    int64_t last = back + k->online->of->ahead;
    SX_PTX_PUT(b, ADD, s32, d, row, sx_ptx_imm(last));
    SX_PTX_PUT(b, SHR, s32, d, d, sx_ptx_imm(__builtin_ctz(k->tile->block_steps)));
    SX_PTX_PUT(b, ADD, s32, d, d, sx_ptx_imm(1));
    return d;
}

/* The first row of the block is known. Its stages are those of its last warp; one is read in any case. */
static void count_stages(sx_nvidia_block *k)
{
    online *o = k->online;
    const sx_layout *held = &o->of->held;
    const sx_tile *query = o->of->query;
    sx_ptx_builder *b = &k->l.b;
    uint32_t column[SX_LAYOUT_BITS_MAX] = {0};
    uint32_t warp_bits = held->bits[SX_HOME_WARP], first = sx_layout_first(held, SX_HOME_WARP);
    for (uint32_t i = 0; i < warp_bits; i++) {
        column[held->bits[SX_HOME_LANE] + i] = sx_at_row(held->column[first + i]);
    }
    sx_ptx_arg row = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), row, k->first[0],
               sx_nvidia_of_thread(k, column, held->bits[SX_HOME_LANE] + warp_bits, false));
    o->warp_stages = stages_seen(k, row, query->matrix->rows - 1);
    o->block_stages = stages_seen(k, k->first[0], query->block_rows - 1);
    SX_PTX_PUT(b, MIN, SX_PTX_M(SX_PTX_TYPE_S32), o->block_stages, o->block_stages,
               sx_ptx_imm(sx_ceil_div_i64(k->tile->sum, k->tile->block_steps)));
    SX_PTX_PUT(b, MAX, SX_PTX_M(SX_PTX_TYPE_S32), o->block_stages, o->block_stages, sx_ptx_imm(1));
}

/* Variables of the programs: the thread's first row, the batch, the stage and the thread's first key in it. */
static void make_variables(sx_nvidia_block *k)
{
    online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const sx_tile *query = o->of->query;
    uint32_t stage = sx_tile_stage_variable(k->tile);
    sx_ptx_arg row = sx_nvidia_side(k, &o->of->held, SX_SIDE_ROW);
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), row, row, k->first[0]);
    if (query->rows % query->block_rows != 0) {
        o->rows_left = rest_of(k, query->rows, row);
    }
    o->own_key = sx_nvidia_side(k, &o->of->held, SX_SIDE_COLUMN);
    l->variable[SX_TILE_VAR_ROW] = sx_nvidia_widened(l, row);
    for (uint32_t d = 0; d < k->tile->batch_count; d++) {
        l->variable[SX_TILE_VAR_BATCH + d] = sx_nvidia_widened(l, k->batch[d]);
    }
    l->variable[stage] = number(k, SX_PTX_B64, 0);
    l->variable[stage + 1] = sx_nvidia_widened(l, o->own_key);
}

sx_code sx_nvidia_begin_online(sx_nvidia_block *k)
{
    const sx_tile *tile = k->tile;
    online *o = k->online = SX_NEW(k->l.cx, online);
    if (o == NULL) {
        return k->l.cx->error.code;
    }
    o->of = tile->online;
    SX_TRY(find_moves(k));
    k->first[0] = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), k->first[0], k->point[1],
               sx_ptx_imm(o->of->query->block_rows));
    make_variables(k);
    if (o->of->has_horizon) {
        count_stages(k);
    }
    with_query(k, fetch_query);
    k->copy[SX_TILE_LEFT] = (sx_nvidia_copy){.from = {0}}; /* that of the keys */
    k->first[0] = k->first[1] =
        number(k, SX_PTX_B32, 0); /* a block has all of d and of the columns */
    sx_nvidia_begin_copies(k);
    for (uint32_t which = 0; which < 2; which++) {
        const sx_tile_operand *x = &tile->operand[which];
        bool along_d = which == SX_TILE_LEFT;
        uint32_t sum = along_d ? tile->block_rows : tile->block_steps;
        sx_side side = x->sum_inner != along_d ? SX_SIDE_COLUMN : SX_SIDE_ROW;
        sx_nvidia_place(k, which, &k->move[which].rows, sx_dtype_bytes(x->view.element), side,
                        x->group, sum / x->group, &k->read[which]);
    }
    SX_TRY(make_registers(k));
    SX_TRY(make_program(k, &o->of->scores[0].part, &o->scores[0]));
    SX_TRY(make_program(k, &o->of->scores[1].part, &o->scores[1]));
    SX_TRY(make_program(k, &o->of->power.part, &o->power));
    start_pointers(k, &o->scores[0]);
    return k->l.b.code;
}

/* Runs a program of the sums at register r of the block's sums; `there`: whether to store (NONE: always). */
static void run_at(sx_nvidia_block *k, uint32_t r, sx_ptx_arg there)
{
    online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    uint32_t column, row = row_of(&k->tile->held, r, &column);
    l->shift[SX_TILE_VAR_ROW] = row;
    l->shift[SX_TILE_VAR_COLUMN] = column;
    l->partial[1] = inside(k, o->rows_left, row, there);
    l->vector[SX_TILE_VALUE_SUM] = k->sum[r];
    l->vector[SX_TILE_WEIGHT_SUM] = o->total[row != 0 ? C_WORDS / ROWS : 0];
    l->vector[SX_TILE_MAXIMUM] = o->maximum[row != 0];
    run(k);
}

/* The second result: of the threads that hold a row, the one with its first column stores it. */
static sx_code put_statistic(sx_nvidia_block *k, sx_ptx_arg own_column)
{
    online *o = k->online;
    uint32_t column;
    sx_ptx_arg first = sx_ptx_register(&k->l.b, SX_PTX_PRED);
    SX_TRY(make_program(k, o->of->statistic, &o->statistic));
    start_pointers(k, &o->statistic);
    enter(k, &o->statistic);
    SX_PTX_PUT(&k->l.b, SETP, SX_PTX_M(SX_PTX_COMPARE_EQ, SX_PTX_TYPE_S32), first, own_column,
               sx_ptx_imm(0));
    for (uint32_t r = 0; r < sx_layout_count(&k->tile->held, SX_HOME_REGISTER); r++) {
        (void)row_of(&k->tile->held, r, &column);
        if (column == 0) {
            run_at(k, r, first);
        }
    }
    return k->l.b.code;
}

sx_code sx_nvidia_end_online(sx_nvidia_block *k)
{
    online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const sx_tile *tile = k->tile;
    sx_ptx_arg columns_left = {0};
    sx_ptx_arg own = sx_nvidia_side(k, &tile->held, SX_SIDE_COLUMN);
    if (tile->columns % tile->matrix->columns != 0) {
        columns_left = rest_of(k, tile->columns, own);
    }
    l->variable[SX_TILE_VAR_COLUMN] = sx_nvidia_widened(l, own);
    SX_TRY(o->of->statistic != NULL ? put_statistic(k, own) : SX_OK);
    SX_TRY(make_program(k, &tile->map, &o->map));
    start_pointers(k, &o->map);
    enter(k, &o->map);
    for (uint32_t r = 0; r < sx_layout_count(&tile->held, SX_HOME_REGISTER); r++) {
        uint32_t column;
        (void)row_of(&tile->held, r, &column);
        if (column < tile->columns) {
            run_at(k, r, inside(k, columns_left, column, (sx_ptx_arg){0}));
        }
    }
    return l->b.code;
}
