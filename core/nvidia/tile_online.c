/* tile_online.c - online sums and nested contractions of blocks as PTX (core/tile/online.h): attention and its
 * gradients by mma.sync.
 *
 * A warp has 16 rows. Of them a thread holds two, 8 apart, and of each what its fragments give it: the maximum of a row
 * is known to its four lanes after two shuffles. Sums need none: that of the weights is a product, too. */
#include <float.h>
#include <math.h>

#include "core/nvidia/tile_scores.h"

#define ROW_LANES 4 /* that share a row */

/* e^(x - minus) */
static void put_power(sx_nvidia_block *k, sx_ptx_arg d, sx_ptx_arg x, sx_ptx_arg minus)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_nvidia_program *p = &k->online->power;
    sx_nvidia_enter(k, p);
    SX_PTX_PUT(b, SUB_F32, SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32), p->vector[0], x, minus);
    sx_nvidia_run(k);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), d, p->vector[k->online->of->power.result]);
}

static sx_code make_registers(sx_nvidia_block *k)
{
    sx_nvidia_online *o = k->online;
    const sx_tile *tile = k->tile;
    const int64_t zero = 0;
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_arg *total;
    SX_TRY(sx_nvidia_make_score_words(k));
    if (o->of->nested) {
        return b->code;
    }
    SX_TRY(sx_nvidia_make_words(k, SX_ONLINE_C_WORDS, &zero, &total));
    for (uint32_t i = 0; i < SX_ONLINE_C_WORDS; i++) {
        o->total[i] = total[i];
    }
    for (uint32_t i = 0; i < SX_ONLINE_ROWS; i++) {
        o->maximum[i] = sx_ptx_register(b, SX_PTX_B32);
        o->factor[i] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_F32), o->maximum[i], sx_ptx_imm_f32(-FLT_MAX));
    }
    o->ones = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->ones,
               sx_ptx_imm(tile->matrix->factor == SX_BF16 ? 0x3f803f80 : 0x3c003c00));
    return b->code;
}

/* ---- a stage ---- */
/* The program of the scores; keys that are not there have minus infinity, or in a nested contraction 0. `rest`: how
 * many there are, 0 for all. */
static void finish_scores(sx_nvidia_block *k, uint32_t keys, uint32_t rest)
{
    sx_nvidia_online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const sx_nvidia_program *p = &o->scores[rest != 0];
    uint32_t variable = sx_tile_stage_variable(k->tile) + 1, column;
    sx_ptx_arg left = rest != 0 ? sx_nvidia_rest(k, rest, o->own_key) : (sx_ptx_arg){0};
    sx_ptx_arg absent = sx_ptx_imm(o->of->nested ? 0 : 0xff800000);
    sx_nvidia_enter(k, p);
    for (uint32_t r = 0; r < keys / 2; r++) {
        uint32_t row = sx_nvidia_row_of(&o->of->held, r, &column);
        sx_ptx_arg there = sx_nvidia_left(k, left, column, (sx_ptx_arg){0});
        l->shift[SX_TILE_VAR_ROW] = row;
        l->shift[variable] = column;
        l->partial[1] = sx_nvidia_left(k, o->rows_left, row, there);
        for (uint32_t i = 0; i < sx_tile_products(k->tile); i++) {
            l->vector[i] = o->score[i][r];
        }
        sx_nvidia_run(k);
        sx_ptx_arg result = l->vector[o->of->scores[rest != 0].result];
        if (there.kind != SX_PTX_ARG_NONE) {
            SX_PTX_PUT(&l->b, SELP, SX_PTX_M(SX_PTX_TYPE_B32), o->score[0][r], result, absent,
                       there);
        } else {
            SX_PTX_PUT(&l->b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->score[0][r], result);
        }
    }
    l->shift[variable] = 0;
}

/* New maxima of the thread's rows, and what they scale the sums by. A score that is not a number is no maximum; its
 * weight is not a number, and so are the sums. */
static void put_maxima(sx_nvidia_block *k, uint32_t keys)
{
    sx_nvidia_online *o = k->online;
    sx_ptx_builder *b = &k->l.b;
    sx_ptx_modifiers f32 = SX_PTX_M(SX_PTX_TYPE_F32);
    sx_ptx_arg made[SX_ONLINE_ROWS], other = sx_ptx_register(b, SX_PTX_B32);
    uint32_t column;
    for (uint32_t i = 0; i < SX_ONLINE_ROWS; i++) {
        made[i] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), made[i], o->maximum[i]);
    }
    for (uint32_t r = 0; r < keys / 2; r++) {
        uint32_t i = sx_nvidia_row_of(&o->of->held, r, &column) != 0;
        SX_PTX_PUT(b, MAX_F, f32, made[i], made[i], o->score[0][r]);
    }
    for (uint32_t i = 0; i < SX_ONLINE_ROWS; i++) {
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
    sx_nvidia_online *o = k->online;
    sx_ptx_modifiers m = SX_PTX_M(SX_PTX_ROUND_RN, SX_PTX_TYPE_F32);
    uint32_t column;
    for (uint32_t r = 0; r < sx_layout_count(&k->tile->held, SX_HOME_REGISTER); r++) {
        uint32_t i = sx_nvidia_row_of(&k->tile->held, r, &column) != 0;
        if (column < k->tile->columns) {
            SX_PTX_PUT(&k->l.b, MUL_F32, m, k->sum[r], k->sum[r], o->factor[i]);
        }
    }
    /* all columns of this product are the same, and the first one of a thread is read */
    for (uint32_t i = 0; i < SX_ONLINE_ROWS; i++) {
        sx_ptx_arg total = o->total[i * SX_ONLINE_C_WORDS / SX_ONLINE_ROWS];
        SX_PTX_PUT(&k->l.b, MUL_F32, m, total, total, o->factor[i]);
    }
}

/* The weights of 16 keys as a left factor: fragments of C, rounded, are that of A. In a nested contraction they are
 * what the program of the scores has made. */
static sx_code take_weights(sx_nvidia_block *k, uint32_t key, sx_ptx_arg word[SX_ONLINE_A_WORDS])
{
    const sx_nvidia_online *o = k->online;
    const sx_matrix_instruction *m = k->tile->matrix;
    const sx_ptx_arg *score = o->score[0];
    sx_ptx_builder *b = &k->l.b;
    sx_layout left;
    SX_TRY(sx_fragment_find(k->l.cx, SX_MMA_SYNC, SX_OPERAND_A, m->factor, m->columns, m->steps,
                            &left));
    for (uint32_t w = 0; w < SX_ONLINE_A_WORDS; w++) {
        uint32_t at = sx_layout_apply(&left, &(sx_place){{2 * w}});
        sx_place low = {{0}};
        bool found = sx_layout_find(&o->of->held, at + SX_AT(0, key), SX_HOMES_THREAD, &low);
        SX_ASSERT(found && low.of[SX_HOME_REGISTER] % 2 == 0);
        uint32_t r = low.of[SX_HOME_REGISTER];
        for (uint32_t i = 0; i < 2 && !o->of->nested; i++) {
            put_power(k, score[r + i], score[r + i], o->maximum[sx_at_row(at) != 0]);
        }
        word[w] = sx_ptx_register(b, SX_PTX_B32);
        SX_PTX_PUT(b, CVT_PAIR,
                   SX_PTX_M(SX_PTX_ROUND_RN,
                            m->factor == SX_BF16 ? SX_PTX_TYPE_BF16X2 : SX_PTX_TYPE_F16X2,
                            SX_PTX_TYPE_F32),
                   word[w], score[r + 1], score[r]);
    }
    return SX_OK;
}

/* Adds 16 weights to the sum of all. */
static void add_weights(sx_nvidia_block *k, const sx_ptx_arg weight[SX_ONLINE_A_WORDS])
{
    const sx_nvidia_online *o = k->online;
    const sx_ptx_arg ones[SX_ONLINE_B_WORDS] = {o->ones, o->ones};
    sx_ptx_arg sum = sx_ptx_vector(&k->l.b, o->total, SX_ONLINE_C_WORDS);
    sx_ptx_arg a = sx_ptx_vector(&k->l.b, weight, SX_ONLINE_A_WORDS);
    sx_ptx_arg b = sx_ptx_vector(&k->l.b, ones, SX_ONLINE_B_WORDS);
    const sx_ptx_arg arg[] = {sum, a, b, sum};
    sx_ptx_put(&k->l.b, sx_nvidia_matrix_op(k->tile->matrix), SX_PTX_M(0), arg, SX_COUNT(arg));
}

static sx_code add_values(sx_nvidia_block *k, uint32_t keys)
{
    const sx_tile_operand *operand = &k->tile->operand[SX_TILE_RIGHT];
    const sx_matrix_instruction *m = k->tile->matrix;
    for (uint32_t at = 0; at < keys; at += m->steps) {
        sx_ptx_arg weight[SX_ONLINE_A_WORDS];
        SX_TRY(take_weights(k, at, weight));
        if (!k->online->of->nested) {
            add_weights(k, weight);
        }
        sx_nvidia_product p = {.which = SX_TILE_RIGHT,
                               .row = operand->sum_inner ? 0 : at,
                               .column = operand->sum_inner ? at : 0,
                               .columns_are_k = operand->sum_inner,
                               .left = weight,
                               .sum = k->sum,
                               .end = (uint32_t)k->tile->columns};
        sx_nvidia_put_product(k, &p);
    }
    return SX_OK;
}

/* To the scores of the next stage. */
static void next_scores(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    uint32_t stage = sx_tile_stage_variable(k->tile);
    sx_nvidia_program *p = &k->online->scores[0];
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
    sx_nvidia_online *o = k->online;
    const sx_tile *tile = k->tile;
    uint32_t rest = whole ? 0 : (uint32_t)(tile->sum % tile->block_steps);
    uint32_t steps = tile->matrix->steps;
    uint32_t keys = whole ? tile->block_steps : (rest + steps - 1) / steps * steps;
    sx_ptx_arg end = o->of->has_horizon ? sx_ptx_label(&k->l.b) : (sx_ptx_arg){0};
    if (o->of->has_horizon) {
        pass_over(k, stage, end);
    }
    for (uint32_t which = 0; which < sx_tile_operands(tile); which++) {
        sx_nvidia_move(k, &k->read[which], k->reading);
    }
    if (!whole) {
        sx_nvidia_start_pointers(k, &o->scores[1]);
    }
    sx_nvidia_put_scores(k, keys);
    finish_scores(k, keys, rest);
    if (!o->of->nested) {
        put_maxima(k, keys);
        scale_sums(k);
    }
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
    sx_nvidia_online *o = k->online;
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
    sx_nvidia_online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const sx_tile *query = o->of->query;
    uint32_t stage = sx_tile_stage_variable(k->tile);
    sx_ptx_arg row = sx_nvidia_side(k, &o->of->held, SX_SIDE_ROW);
    SX_PTX_PUT(&l->b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), row, row, k->first[0]);
    if (query->rows % query->block_rows != 0) {
        o->rows_left = sx_nvidia_rest(k, query->rows, row);
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
    sx_nvidia_online *o = k->online = SX_NEW(k->l.cx, sx_nvidia_online);
    if (o == NULL) {
        return k->l.cx->error.code;
    }
    o->of = tile->online;
    SX_TRY(sx_nvidia_find_moves(k));
    k->first[0] = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, MUL, SX_PTX_M(SX_PTX_HALF_LO, SX_PTX_TYPE_U32), k->first[0], k->point[1],
               sx_ptx_imm(o->of->query->block_rows));
    make_variables(k);
    if (o->of->has_horizon) {
        count_stages(k);
    }
    sx_nvidia_fetch_queries(k);
    k->first[SX_TILE_LEFT] = k->first[SX_TILE_RIGHT] = k->first[SX_TILE_SECOND] =
        number(k, SX_PTX_B32, 0); /* a block has all of d and of the columns */
    sx_nvidia_begin_copies(k);
    for (uint32_t which = 0; which < sx_tile_operands(tile); which++) {
        const sx_tile_operand *x = &tile->operand[which];
        bool along_d = which != SX_TILE_RIGHT;
        uint32_t sum = along_d ? tile->block_rows : tile->block_steps;
        sx_side side = x->sum_inner != along_d ? SX_SIDE_COLUMN : SX_SIDE_ROW;
        sx_nvidia_place(k, which, &k->move[which].rows, sx_dtype_bytes(x->view.element), side,
                        x->group, sum / x->group, &k->read[which]);
    }
    SX_TRY(make_registers(k));
    SX_TRY(sx_nvidia_make_program(k, &o->of->scores[0].part, &o->scores[0]));
    SX_TRY(sx_nvidia_make_program(k, &o->of->scores[1].part, &o->scores[1]));
    SX_TRY(o->of->nested ? SX_OK : sx_nvidia_make_program(k, &o->of->power.part, &o->power));
    sx_nvidia_start_pointers(k, &o->scores[0]);
    return k->l.b.code;
}

/* Runs a program of the sums at register r of the block's sums; `there`: whether to store (NONE: always). */
static void run_at(sx_nvidia_block *k, uint32_t r, sx_ptx_arg there)
{
    sx_nvidia_online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    uint32_t column, row = sx_nvidia_row_of(&k->tile->held, r, &column);
    l->shift[SX_TILE_VAR_ROW] = row;
    l->shift[SX_TILE_VAR_COLUMN] = column;
    l->partial[1] = sx_nvidia_left(k, o->rows_left, row, there);
    l->vector[SX_TILE_VALUE_SUM] = k->sum[r];
    if (!o->of->nested) {
        l->vector[SX_TILE_WEIGHT_SUM] = o->total[row != 0 ? SX_ONLINE_C_WORDS / SX_ONLINE_ROWS : 0];
        l->vector[SX_TILE_MAXIMUM] = o->maximum[row != 0];
    }
    sx_nvidia_run(k);
}

/* The second result: of the threads that hold a row, the one with its first column stores it. */
static sx_code put_statistic(sx_nvidia_block *k, sx_ptx_arg own_column)
{
    sx_nvidia_online *o = k->online;
    uint32_t column;
    sx_ptx_arg first = sx_ptx_register(&k->l.b, SX_PTX_PRED);
    SX_TRY(sx_nvidia_make_program(k, o->of->statistic, &o->statistic));
    sx_nvidia_start_pointers(k, &o->statistic);
    sx_nvidia_enter(k, &o->statistic);
    SX_PTX_PUT(&k->l.b, SETP, SX_PTX_M(SX_PTX_COMPARE_EQ, SX_PTX_TYPE_S32), first, own_column,
               sx_ptx_imm(0));
    for (uint32_t r = 0; r < sx_layout_count(&k->tile->held, SX_HOME_REGISTER); r++) {
        (void)sx_nvidia_row_of(&k->tile->held, r, &column);
        if (column == 0) {
            run_at(k, r, first);
        }
    }
    return k->l.b.code;
}

sx_code sx_nvidia_end_online(sx_nvidia_block *k)
{
    sx_nvidia_online *o = k->online;
    sx_nvidia_lowering *l = &k->l;
    const sx_tile *tile = k->tile;
    sx_ptx_arg columns_left = {0};
    sx_ptx_arg own = sx_nvidia_side(k, &tile->held, SX_SIDE_COLUMN);
    if (tile->columns % tile->matrix->columns != 0) {
        columns_left = sx_nvidia_rest(k, tile->columns, own);
    }
    l->variable[SX_TILE_VAR_COLUMN] = sx_nvidia_widened(l, own);
    SX_TRY(o->of->statistic != NULL ? put_statistic(k, own) : SX_OK);
    SX_TRY(sx_nvidia_make_program(k, &tile->map, &o->map));
    sx_nvidia_start_pointers(k, &o->map);
    sx_nvidia_enter(k, &o->map);
    for (uint32_t r = 0; r < sx_layout_count(&tile->held, SX_HOME_REGISTER); r++) {
        uint32_t column;
        (void)sx_nvidia_row_of(&tile->held, r, &column);
        if (column < tile->columns) {
            run_at(k, r, sx_nvidia_left(k, columns_left, column, (sx_ptx_arg){0}));
        }
    }
    return l->b.code;
}
