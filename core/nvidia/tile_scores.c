/* tile_scores.c - inner products of a block by mma.sync: queries beside the ring, keys of a stage, and the programs of
 * single elements around them. */
#include "core/nvidia/tile_scores.h"

#define PRODUCTS_MAX 64 /* instructions side by side */

/* ---- programs of elements ---- */
void sx_nvidia_enter(sx_nvidia_block *k, const sx_nvidia_program *p)
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
void sx_nvidia_start_pointers(sx_nvidia_block *k, sx_nvidia_program *p)
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

sx_code sx_nvidia_make_program(sx_nvidia_block *k, const sx_part *part, sx_nvidia_program *p)
{
    sx_nvidia_lowering *l = &k->l;
    l->part = part;
    l->pointer_count = 0;
    SX_TRY(sx_nvidia_make_registers(l));
    SX_TRY(sx_nvidia_find_pointers(l));
    *p = (sx_nvidia_program){part,       l->vector,        l->mask,      l->scalar,
                             l->pointer, l->pointer_count, l->pointer_of};
    return SX_OK;
}

void sx_nvidia_run(sx_nvidia_block *k)
{
    for (uint32_t i = 0; i < k->l.part->item_count; i++) {
        sx_nvidia_op(&k->l, i);
    }
}

/* e^(x - minus) */
/* Whether so much is left of a side behind the thread's element at `at`, and `with`; NONE stands for true. */
sx_ptx_arg sx_nvidia_left(sx_nvidia_block *k, sx_ptx_arg left, uint32_t at, sx_ptx_arg with)
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

sx_ptx_arg sx_nvidia_rest(sx_nvidia_block *k, int64_t extent, sx_ptx_arg own)
{
    sx_ptx_arg rest = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, SUB, SX_PTX_M(SX_PTX_TYPE_S32), rest, sx_ptx_imm(extent), own);
    return rest;
}

/* ---- registers ---- */
sx_code sx_nvidia_make_words(sx_nvidia_block *k, uint32_t count, const int64_t *value,
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
sx_code sx_nvidia_make_score_words(sx_nvidia_block *k)
{
    sx_nvidia_online *o = k->online;
    const sx_tile *tile = k->tile;
    const int64_t zero = 0;
    uint32_t steps = o->of->query_stays ? inner_steps(tile) : 1;
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        SX_TRY(sx_nvidia_make_words(k, steps * SX_ONLINE_A_WORDS, NULL, &o->query_word[i]));
    }
    for (uint32_t which = 0; which < sx_tile_operands(tile); which++) {
        SX_TRY(
            sx_nvidia_make_words(k, words_of(&tile->operand[which].held), NULL, &k->factor[which]));
    }
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        SX_TRY(sx_nvidia_make_words(k, sx_layout_count(&o->of->held, SX_HOME_REGISTER), NULL,
                                    &o->score[i]));
    }
    return sx_nvidia_make_words(k, sx_layout_count(&tile->held, SX_HOME_REGISTER), &zero, &k->sum);
}

/* ---- the queries ---- */
static sx_code find_move(sx_nvidia_block *k, const sx_tile_operand *o, sx_matrix_move *move)
{
    if (!sx_matrix_move_find(&o->held, sx_dtype_bytes(o->view.element), move)) {
        return SX_FAIL(k->l.cx, SX_UNIMPLEMENTED, "kernel %s: ldmatrix does not load argument %u",
                       k->l.kernel->name, o->view.buffer);
    }
    return SX_OK;
}

sx_code sx_nvidia_find_moves(sx_nvidia_block *k)
{
    const sx_tile *tile = k->tile;
    for (uint32_t which = 0; which < sx_tile_operands(tile); which++) {
        SX_TRY(find_move(k, &tile->operand[which], &k->move[which]));
    }
    for (uint32_t i = 0; i < sx_tile_products(tile); i++) {
        SX_TRY(find_move(k, &sx_tile_query(tile, i)->operand[SX_TILE_LEFT],
                         &k->online->query_move[i]));
    }
    return SX_OK;
}

/* The tile of the queries of product `i` stands for that of the ring while they are copied and their places found. */
static void fetch_query(sx_nvidia_block *k, uint32_t i)
{
    sx_ptx_builder *b = &k->l.b;
    const sx_tile *tile = k->tile;
    sx_nvidia_online *o = k->online;
    sx_ptx_arg shared = k->shared;
    k->tile = sx_tile_query(tile, i);
    k->shared = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S32), k->shared, shared,
               sx_ptx_imm((int64_t)k->tile->ring.offset - tile->ring.offset));
    const sx_tile_operand *q = &k->tile->operand[SX_TILE_LEFT];
    sx_ptx_arg stage = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), stage, sx_ptx_imm(0));
    k->copy[SX_TILE_LEFT] = (sx_nvidia_copy){.from = {0}};
    sx_nvidia_begin_copy(k, SX_TILE_LEFT);
    sx_nvidia_fetch_one(k, SX_TILE_LEFT, stage, false);
    sx_nvidia_place(k, 0, &o->query_move[i].rows, sx_dtype_bytes(q->view.element),
                    q->sum_inner ? SX_SIDE_COLUMN : SX_SIDE_ROW, q->group,
                    k->tile->block_steps / q->group, &o->query[i]);
    sx_nvidia_move(k, &o->query[i], stage);
    k->copy[SX_TILE_LEFT] = (sx_nvidia_copy){.from = {0}}; /* that of the keys */
    k->tile = tile;
    k->shared = shared;
}

void sx_nvidia_fetch_queries(sx_nvidia_block *k)
{
    for (uint32_t i = 0; i < sx_tile_products(k->tile); i++) {
        fetch_query(k, i);
    }
    sx_ptx_put(&k->l.b, SX_PTX_OP_CP_COMMIT, SX_PTX_M(0), NULL, 0);
}

/* The fragments of step `step` of d, of the queries of a product. */
static const sx_ptx_arg *load_query(sx_nvidia_block *k, uint32_t product, uint32_t step)
{
    const sx_nvidia_online *o = k->online;
    const sx_tile_operand *q = &sx_tile_query(k->tile, product)->operand[SX_TILE_LEFT];
    const sx_ptx_arg *word =
        &o->query_word[product][o->of->query_stays ? step * SX_ONLINE_A_WORDS : 0];
    sx_nvidia_words load = {&o->query[product], &o->query_move[product], word};
    uint32_t taken[4], at = step * q->group;
    for (uint32_t i = 0; i < sx_layout_count(&load.move->rows, SX_HOME_REGISTER); i++) {
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
        for (uint32_t i = 0; i < sx_tile_products(k->tile); i++) {
            (void)load_query(k, i, s);
        }
    }
}

/* ---- products ---- */
/* Which column of the product a word of the right factor belongs to, and which half of the steps. */
static uint32_t column_of(const sx_nvidia_product *p, const sx_layout *held, uint32_t word,
                          uint32_t *half)
{
    uint32_t at = sx_layout_apply(held, &(sx_place){{2 * word}});
    uint32_t step = p->columns_are_k ? sx_at_column(at) : sx_at_row(at);
    *half = step >= 8 ? 1 : 0;
    return p->columns_are_k ? sx_at_row(at) : sx_at_column(at);
}

void sx_nvidia_put_product(sx_nvidia_block *k, const sx_nvidia_product *p)
{
    const sx_layout *held = &k->tile->operand[p->which].held;
    const sx_matrix_instruction *m = k->tile->matrix;
    sx_nvidia_words load = {&k->read[p->which], &k->move[p->which], k->factor[p->which]};
    uint32_t count = sx_layout_count(&load.move->rows, SX_HOME_REGISTER);
    uint32_t word_of[PRODUCTS_MAX][SX_ONLINE_B_WORDS];
    bool loaded[PRODUCTS_MAX][SX_ONLINE_B_WORDS] = {{false}};
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
            const sx_ptx_arg right[SX_ONLINE_B_WORDS] = {load.word[word_of[tile][0]],
                                                         load.word[word_of[tile][1]]};
            sx_ptx_arg sum =
                sx_ptx_vector(&k->l.b, &p->sum[tile * SX_ONLINE_C_WORDS], SX_ONLINE_C_WORDS);
            sx_ptx_arg a = sx_ptx_vector(&k->l.b, p->left, SX_ONLINE_A_WORDS);
            sx_ptx_arg b = sx_ptx_vector(&k->l.b, right, SX_ONLINE_B_WORDS);
            const sx_ptx_arg arg[] = {sum, a, b, sum};
            sx_ptx_put(&k->l.b, sx_nvidia_matrix_op(m), SX_PTX_M(0), arg, SX_COUNT(arg));
        }
    }
}

/* Scores of `keys` keys, before their program. */
static void put_inner(sx_nvidia_block *k, uint32_t i, uint32_t keys)
{
    sx_nvidia_online *o = k->online;
    uint32_t which = i == 0 ? SX_TILE_LEFT : SX_TILE_SECOND;
    const sx_tile_operand *operand = &k->tile->operand[which];
    for (uint32_t r = 0; r < keys / 2; r++) {
        SX_PTX_PUT(&k->l.b, MOV, SX_PTX_M(SX_PTX_TYPE_B32), o->score[i][r], sx_ptx_imm(0));
    }
    for (uint32_t s = 0; s < inner_steps(k->tile); s++) {
        uint32_t at = s * k->tile->matrix->steps;
        const sx_ptx_arg *left = &o->query_word[i][s * SX_ONLINE_A_WORDS];
        sx_nvidia_product p = {.which = which,
                               .row = operand->sum_inner ? at : 0,
                               .column = operand->sum_inner ? 0 : at,
                               .columns_are_k = !operand->sum_inner,
                               .left = o->of->query_stays ? left : load_query(k, i, s),
                               .sum = o->score[i],
                               .end = keys};
        sx_nvidia_put_product(k, &p);
    }
}

void sx_nvidia_put_scores(sx_nvidia_block *k, uint32_t keys)
{
    for (uint32_t i = 0; i < sx_tile_products(k->tile); i++) {
        put_inner(k, i, keys);
    }
}
