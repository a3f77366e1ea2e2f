/* lower_online.c - sums weighted by a softmax of scores that are made on the way: attention in one kernel.
 *
 * Lanes run across rows (queries): a score block is [key][row], so the running maximum and sum of a row stay
 * in its lane and no lane ever meets another: a row has the same bits whatever rows stand beside it. For a
 * block of keys
 *   1  scores    keys x rows in registers over all of the inner dimensions: key elements broadcast,
 *                rows from a transposed copy
 *   2  program   what stands between the contraction and ONLINE (scale, mask ...), and the new maximum
 *   3  weights   e^(score - maximum) in place; the sum, rescaled by e^(old - new maximum)
 *   4  values    columns x rows of the result, rescaled, plus weights times value elements, which are broadcast
 * and at the end each row leaves with lanes along the columns, through the rest of the program. Keys are cut in the
 * blocks of the outer loop(k/..): part of the numerics plan. The maximum starts at the lowest finite number,
 * so that rows whose first keys are all masked by -inf have weights 0 there; rows masked whole give NaN as the
 * definition does (sum 0).
 *
 * A program that is to serve other numbers of rows and keys, too (sx_analysis.steady), is the same but for numbers: it
 * has code for whole blocks of keys and for a last one of any length, both in loops that may have no iterations. In the
 * last block a remainder of a strip goes in pieces of 4, 2, 1 keys. That changes neither the order of a sum nor its
 * addends.
 * Papers: Milakov, Gimelshein 2018; Dao 2022 (FlashAttention). */
#include "core/loop/lower.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK_MAX 32

typedef struct {
    uint32_t x;                 /* instruction of the scores */
    uint32_t dot;               /* that makes them, or NO_REG */
    uint32_t value;             /* argument that is weighted, or NO_REG */
    uint32_t query, key;        /* arguments of the contraction: along rows, along keys */
    uint32_t row, column, keys; /* view dimensions or NO_DIM */
    uint32_t sum[SX_RANK_MAX];  /* inner dimensions, outermost first */
    uint32_t sum_count;
    int64_t rows;  /* of this part, at most `width` */
    int64_t width; /* rows of a block: vectors of lanes */
    uint32_t vectors;
    int64_t block;   /* keys */
    bool last;       /* in the block of any length of a steady program */
    sx_affine local; /* key inside its block */
    int64_t strip;   /* keys, and columns, of a register block */
    int64_t columns; /* of the running one */
    uint32_t acc[SX_BLOCK_REGISTERS_MAX];
    uint32_t workspace;
    /* instructions whose elements lie along the keys: turned per block of keys */
    uint32_t turned[SX_FUSED_ARGS_MAX];
    uint32_t turned_count;
    int64_t turned_at[SX_FUSED_ARGS_MAX]; /* bytes */
    uint32_t mask[SX_TURN_STAGES];
    int64_t query_at, score_at, result_at, max_at, total_at, rescale_at; /* bytes */
} online;

static uint32_t op3(sx_lower *l, sx_lop op, uint32_t x, uint32_t y, uint32_t z)
{
    return sx_loop_op(&l->b, op, SX_NO_REG, NULL, x, y, z, 0, 0);
}

static void into(sx_lower *l, sx_lop op, uint32_t dst, uint32_t x, uint32_t y, uint32_t z)
{
    (void)sx_loop_op(&l->b, op, dst, NULL, x, y, z, 0, 0);
}

static uint32_t load(sx_lower *l, const sx_addr *a)
{
    return sx_loop_op(&l->b, SX_LOP_LOAD, SX_NO_REG, a, SX_NO_REG, SX_NO_REG, SX_NO_REG, l->lanes,
                      0);
}

static void store(sx_lower *l, const sx_addr *a, uint32_t value)
{
    (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, a, value, SX_NO_REG, SX_NO_REG, l->lanes, 0);
}

static void shift(sx_lower *l, uint32_t dim, int64_t by)
{
    if (dim != SX_NO_DIM) {
        l->at[dim].constant += by;
    }
}

/* ---- places in the workspace ---- */
/* Line `line` of a table of lines of `width` numbers, vector `v` of it. */
static sx_addr place(const online *o, int64_t table, const sx_affine *line, uint32_t v,
                     uint32_t lanes)
{
    sx_addr a = {.buffer = o->workspace, .index_reg = SX_NO_REG};
    a.offset = table + 4 * (int64_t)v * lanes;
    if (line != NULL) {
        a.offset += 4 * o->width * line->constant;
        for (uint32_t k = 0; k < SX_LOOP_VARS_MAX; k++) {
            a.coef[k] = 4 * o->width * line->coef[k];
        }
    }
    return a;
}

/* The inner dimensions as one number. */
static sx_affine sum_index(const sx_lower *l, const online *o)
{
    sx_affine index = {0};
    int64_t stride = 1;
    for (uint32_t k = o->sum_count; k-- > 0;) {
        const sx_affine *at = &l->at[o->sum[k]];
        index.constant += stride * at->constant;
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            index.coef[v] += stride * at->coef[v];
        }
        stride *= l->view.extent[o->sum[k]];
    }
    return index;
}

/* The column number, or 0 where there is one column. */
static sx_affine column_index(const sx_lower *l, const online *o)
{
    return o->column == SX_NO_DIM ? (sx_affine){0} : l->at[o->column];
}

/* ---- vectors of rows ---- */
static uint32_t valid_rows(const sx_lower *l, const online *o, uint32_t v)
{
    return (uint32_t)sx_min_i64(l->lanes, o->rows - (int64_t)v * l->lanes);
}

/* The position at vector `v` of the rows. */
static void to_vector(sx_lower *l, const online *o, uint32_t v)
{
    shift(l, o->row, (int64_t)v * l->lanes);
    l->valid = valid_rows(l, o, v);
}

static void from_vector(sx_lower *l, const online *o, uint32_t v)
{
    shift(l, o->row, -(int64_t)v * l->lanes);
}

/* ---- loops over keys and inner dimensions ---- */
static bool open_keys(sx_lower *l, online *o, int64_t trip, int64_t step, bool any)
{
    if (trip <= 1 && !any) {
        return false;
    }
    uint32_t v = any ? sx_loop_open_any(&l->b, trip) : sx_loop_open(&l->b, trip);
    l->at[o->keys].coef[v] = step;
    o->local.coef[v] = step;
    return true;
}

static void close_keys(sx_lower *l, online *o, bool opened)
{
    if (opened) {
        sx_loop_close(&l->b);
        l->at[o->keys].coef[3 + l->b.open_count] = 0;
        o->local.coef[3 + l->b.open_count] = 0;
    }
}

static void shift_key(sx_lower *l, online *o, int64_t by)
{
    shift(l, o->keys, by);
    o->local.constant += by;
}

typedef void (*online_body)(sx_lower *l, online *o, int64_t count);

/* The same whatever the length is: what is left goes in pieces that are powers of two. */
static void each_keys_of_any(sx_lower *l, online *o, int64_t length, int64_t step, online_body body)
{
    int64_t done = 0;
    for (int64_t piece = step; piece > 0;) {
        int64_t count = (length - done) / piece;
        bool opened = open_keys(l, o, count, piece, true);
        body(l, o, piece);
        close_keys(l, o, opened);
        shift_key(l, o, count * piece);
        done += count * piece;
        int64_t less = 1;
        for (; 2 * less < piece; less *= 2) {
        }
        piece = piece > 1 ? less : 0;
    }
    shift_key(l, o, -done);
}

/* `body` for the keys of a block, `step` at a time and then what is left. */
static void each_keys(sx_lower *l, online *o, int64_t length, int64_t step, online_body body)
{
    int64_t whole = length / step;
    if (o->last) {
        each_keys_of_any(l, o, length, step, body);
        return;
    }
    if (whole > 0) {
        bool opened = open_keys(l, o, whole, step, false);
        body(l, o, step);
        close_keys(l, o, opened);
    }
    if (length % step > 0) {
        shift_key(l, o, whole * step);
        body(l, o, length % step);
        shift_key(l, o, -whole * step);
    }
}

/* `body` for every point of the inner dimensions. */
static void each_sum(sx_lower *l, online *o, int64_t count, online_body body)
{
    bool opened[SX_RANK_MAX];
    for (uint32_t k = 0; k < o->sum_count; k++) {
        opened[k] = sx_lower_open(l, o->sum[k], l->view.extent[o->sum[k]], 1);
    }
    body(l, o, count);
    for (uint32_t k = o->sum_count; k-- > 0;) {
        sx_lower_close(l, o->sum[k], opened[k]);
    }
}

/* ---- arguments whose elements lie along another dimension than the rows: square blocks turned in registers ---- */
/* `count` (at most the lanes) elements along `dim` of every row, as lines from `line` on. */
static void turn(sx_lower *l, const online *o, uint32_t argument, uint32_t dim,
                 const sx_affine *line, int64_t count, int64_t table)
{
    sx_dtype dtype = l->arg_dtype[argument];
    for (uint32_t v = 0; v < o->vectors; v++) {
        uint32_t row[SX_LOOP_LANES_MAX];
        for (uint32_t r = 0; r < l->lanes; r++) {
            int64_t at = (int64_t)v * l->lanes + r;
            bool outside = at >= o->rows && !l->analysis->steady;
            at = sx_min_i64(at,
                            o->rows - 1); /* what lanes beyond the rows hold is nothing to them */
            shift(l, o->row, at);
            sx_addr from = sx_lower_arg_address(l, argument);
            row[r] = outside ? sx_loop_bits(&l->b, 0)
                     : dtype == SX_BOOL /* turned as a byte */
                         ? sx_loop_access(&l->b, SX_LOP_LOAD, SX_MEM_U8, &from, SX_NO_REG,
                                          (uint32_t)count, 0)
                         : sx_lower_load_along(l, argument, (uint32_t)count);
            shift(l, o->row, -at);
        }
        sx_lower_turn(l, row, o->mask);
        for (int64_t k = 0; k < count; k++) {
            sx_affine to = *line;
            to.constant += k;
            sx_addr a = place(o, table, &to, v, l->lanes);
            store(l, &a, row[k]);
        }
    }
    SX_ASSERT(dim != SX_NO_DIM && l->view.stride[argument][dim] == 1);
}

static void turn_keys(sx_lower *l, online *o, int64_t count)
{
    for (uint32_t k = 0; k < o->turned_count; k++) {
        uint32_t argument = l->body->instr[o->turned[k]].x;
        turn(l, o, argument, o->keys, &o->local, count, o->turned_at[k]);
    }
}

/* Values of turned arguments at the key and vector of rows. */
static void give_turned(sx_lower *l, const online *o, uint32_t v)
{
    for (uint32_t k = 0; k < o->turned_count; k++) {
        uint32_t i = o->turned[k];
        sx_addr a = place(o, o->turned_at[k], &o->local, v, l->lanes);
        l->reg[i] = load(l, &a);
        if (l->body->instr[i].dtype == SX_BOOL) {
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            l->reg[i] = sx_loop_op(&l->b, SX_LOP_ICMP, SX_NO_REG, NULL, l->reg[i], zero, SX_NO_REG,
                                   SX_GT, 0);
        }
        l->have[i] = true;
    }
}

/* ---- 0: rows of the query across the lanes ---- */
static void turn_query(sx_lower *l, online *o)
{
    uint32_t d = o->sum[0];
    int64_t extent = l->view.extent[d];
    int64_t whole = extent / l->lanes;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        turn(l, o, o->query, d, &l->at[d], l->lanes, o->query_at);
        sx_lower_close(l, d, opened);
    }
    if (extent % l->lanes > 0) {
        shift(l, d, whole * l->lanes);
        turn(l, o, o->query, d, &l->at[d], extent % l->lanes, o->query_at);
        shift(l, d, -whole * l->lanes);
    }
}

static void pack_query(sx_lower *l, online *o, int64_t count)
{
    sx_affine index = sum_index(l, o);
    (void)count;
    for (uint32_t v = 0; v < o->vectors; v++) {
        to_vector(l, o, v);
        sx_addr a = place(o, o->query_at, &index, v, l->lanes);
        store(l, &a, sx_lower_load(l, o->query));
        from_vector(l, o, v);
    }
}

static void clear_column(sx_lower *l, const online *o)
{
    sx_affine index = column_index(l, o);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->result_at, &index, v, l->lanes);
        store(l, &a, sx_loop_set(&l->b, 0.0f));
    }
}

static void start(sx_lower *l, online *o)
{
    bool query = o->dot != SX_NO_REG && o->sum_count == 1 &&
                 sx_analysis_is_turned(l->analysis, o->query, o->sum[0]);
    if (query) {
        sx_lower_turn_masks(l, o->mask);
        turn_query(l, o);
    } else if (o->dot != SX_NO_REG) {
        each_sum(l, o, 0, pack_query);
    }
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr max = place(o, o->max_at, NULL, v, l->lanes);
        sx_addr total = place(o, o->total_at, NULL, v, l->lanes);
        store(l, &max, sx_loop_set(&l->b, -FLT_MAX));
        store(l, &total, sx_loop_set(&l->b, 0.0f));
    }
    if (o->value != SX_NO_REG) {
        bool opened =
            o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
        clear_column(l, o);
        sx_lower_close(l, o->column, opened);
    }
}

/* ---- 1: scores ---- */
static void multiply_step(sx_lower *l, online *o, int64_t keys)
{
    uint32_t right[BLOCK_MAX];
    sx_affine index = sum_index(l, o);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->query_at, &index, v, l->lanes);
        right[v] = load(l, &a);
    }
    l->valid = l->lanes;
    for (int64_t r = 0; r < keys; r++) {
        shift(l, o->keys, r);
        uint32_t left = sx_lower_load(l, o->key);
        shift(l, o->keys, -r);
        for (uint32_t v = 0; v < o->vectors; v++) {
            uint32_t acc = o->acc[r * o->vectors + v];
            into(l, SX_LOP_FMA, acc, left, right[v], acc);
        }
    }
}

static void multiply_keys(sx_lower *l, online *o, int64_t keys)
{
    for (uint32_t i = 0; i < keys * o->vectors; i++) {
        o->acc[i] = sx_loop_set(&l->b, 0.0f);
    }
    each_sum(l, o, keys, multiply_step);
    for (int64_t r = 0; r < keys; r++) {
        o->local.constant += r;
        for (uint32_t v = 0; v < o->vectors; v++) {
            sx_addr a = place(o, o->score_at, &o->local, v, l->lanes);
            store(l, &a, o->acc[r * o->vectors + v]);
        }
        o->local.constant -= r;
    }
}

/* ---- 2: the program of the scores, and their maximum in o->acc ---- */
static void finish_scores(sx_lower *l, online *o, int64_t keys)
{
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->score_at, &o->local, v, l->lanes);
        to_vector(l, o, v);
        sx_lower_move(l);
        give_turned(l, o, v);
        if (o->dot != SX_NO_REG) {
            l->reg[o->dot] = load(l, &a);
            l->have[o->dot] = true;
        }
        uint32_t score = sx_lower_value(l, o->x);
        if (o->x != o->dot) {
            store(l, &a, score);
        }
        into(l, SX_LOP_MAX, o->acc[v], score, o->acc[v],
             SX_NO_REG); /* of a NaN the weight is NaN, and so all sums */
        from_vector(l, o, v);
    }
    sx_lower_move(l);
}

/* ---- 3: weights in place, their sums in o->acc[vectors ..] ---- */
static void weigh(sx_lower *l, online *o, int64_t keys)
{
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->score_at, &o->local, v, l->lanes);
        uint32_t weight = op3(l, SX_LOP_SUB, load(l, &a), o->acc[v], SX_NO_REG);
        weight = sx_loop_apply(&l->b, SX_OP_EXP, SX_EQ, weight, SX_NO_REG, SX_NO_REG);
        store(l, &a, weight);
        uint32_t sum = o->acc[o->vectors + v];
        into(l, SX_LOP_ADD, sum, sum, weight, SX_NO_REG);
    }
}

static void weigh_block(sx_lower *l, online *o, int64_t length)
{
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->max_at, NULL, v, l->lanes);
        o->acc[v] = load(l, &a);
    }
    each_keys(l, o, length, 1, finish_scores);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr max = place(o, o->max_at, NULL, v, l->lanes);
        sx_addr total = place(o, o->total_at, NULL, v, l->lanes);
        sx_addr rescale = place(o, o->rescale_at, NULL, v, l->lanes);
        uint32_t factor = op3(l, SX_LOP_SUB, load(l, &max), o->acc[v], SX_NO_REG);
        factor = sx_loop_apply(&l->b, SX_OP_EXP, SX_EQ, factor, SX_NO_REG, SX_NO_REG);
        store(l, &max, o->acc[v]);
        store(l, &rescale, factor);
        o->acc[o->vectors + v] = op3(l, SX_LOP_MUL, load(l, &total), factor, SX_NO_REG);
    }
    each_keys(l, o, length, 1, weigh);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr total = place(o, o->total_at, NULL, v, l->lanes);
        store(l, &total, o->acc[o->vectors + v]);
    }
}

/* ---- 4: weighted values; o->acc is columns x vectors ---- */
static void add_values(sx_lower *l, online *o, int64_t keys)
{
    uint32_t right[BLOCK_MAX];
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = place(o, o->score_at, &o->local, v, l->lanes);
        right[v] = load(l, &a);
    }
    l->valid = l->lanes;
    for (int64_t c = 0; c < o->columns; c++) {
        shift(l, o->column, c);
        uint32_t left = sx_lower_load(l, o->value);
        shift(l, o->column, -c);
        for (uint32_t v = 0; v < o->vectors; v++) {
            uint32_t acc = o->acc[c * o->vectors + v];
            into(l, SX_LOP_FMA, acc, left, right[v], acc);
        }
    }
}

static void weighted_columns(sx_lower *l, online *o, int64_t length)
{
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr rescale = place(o, o->rescale_at, NULL, v, l->lanes);
        uint32_t factor = load(l, &rescale);
        for (int64_t c = 0; c < o->columns; c++) {
            sx_affine index = column_index(l, o);
            index.constant += c;
            sx_addr a = place(o, o->result_at, &index, v, l->lanes);
            o->acc[c * o->vectors + v] = op3(l, SX_LOP_MUL, load(l, &a), factor, SX_NO_REG);
        }
    }
    each_keys(l, o, length, 1, add_values);
    for (int64_t c = 0; c < o->columns; c++) {
        sx_affine index = column_index(l, o);
        index.constant += c;
        for (uint32_t v = 0; v < o->vectors; v++) {
            sx_addr a = place(o, o->result_at, &index, v, l->lanes);
            store(l, &a, o->acc[c * o->vectors + v]);
        }
    }
}

static void add_block_values(sx_lower *l, online *o, int64_t length)
{
    int64_t extent = o->column == SX_NO_DIM ? 1 : l->view.extent[o->column];
    int64_t whole = extent / o->strip;
    o->columns = o->strip;
    if (whole > 0) {
        bool opened = o->column != SX_NO_DIM && sx_lower_open(l, o->column, whole, o->strip);
        weighted_columns(l, o, length);
        sx_lower_close(l, o->column, opened);
    }
    o->columns = extent % o->strip;
    if (o->columns > 0) {
        shift(l, o->column, whole * o->strip);
        weighted_columns(l, o, length);
        shift(l, o->column, -whole * o->strip);
    }
}

static void emit_block(sx_lower *l, online *o, int64_t length)
{
    if (o->dot != SX_NO_REG) {
        each_keys(l, o, length, o->strip, multiply_keys);
    }
    if (o->turned_count > 0) {
        sx_lower_turn_masks(l, o->mask);
        each_keys(l, o, length, l->lanes, turn_keys);
    }
    weigh_block(l, o, length);
    if (o->value != SX_NO_REG) {
        add_block_values(l, o, length);
    }
}

/* ---- the end: row by row, lanes along the columns ---- */
/* The reductions at the position, for one row in all lanes (`line` is its number) or for a vector of rows (NULL). */
static void give_reductions(sx_lower *l, const online *o, const sx_affine *line, uint32_t v)
{
    uint32_t none = SX_NO_REG;
    sx_addr total_at = place(o, o->total_at, NULL, v, l->lanes);
    sx_addr max_at = place(o, o->max_at, NULL, v, l->lanes);
    sx_affine index = column_index(l, o);
    sx_addr value_at = place(o, o->result_at, &index, v, l->lanes);
    sx_addr *moved[] = {&total_at, &max_at, &value_at};
    for (uint32_t k = 0; line != NULL && k < SX_COUNT(moved); k++) {
        moved[k]->offset += 4 * line->constant;
        for (uint32_t i = 0; i < SX_LOOP_VARS_MAX; i++) {
            moved[k]->coef[i] += 4 * line->coef[i];
        }
    }
    sx_lop get = line != NULL ? SX_LOP_LOADB : SX_LOP_LOAD;
    uint32_t lanes = line != NULL ? 0 : l->lanes;
    uint32_t total = sx_loop_op(&l->b, get, none, &total_at, none, none, none, lanes, 0);
    uint32_t one = op3(l, SX_LOP_DIV, total, total, none); /* NaN for rows masked whole */
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind != SX_BODY_ONLINE && in->kind != SX_BODY_REDUCE) {
            continue;
        }
        const sx_instr *y = &l->body->instr[in->y];
        if (in->kind == SX_BODY_REDUCE) {
            uint32_t max = sx_loop_op(&l->b, get, none, &max_at, none, none, none, lanes, 0);
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            uint32_t empty = sx_loop_op(&l->b, SX_LOP_CMP, none, NULL, total, zero, none, SX_EQ, 0);
            l->reg[i] = op3(l, SX_LOP_BLEND, empty, sx_loop_set(&l->b, -HUGE_VALF), max);
        } else if (y->kind == SX_BODY_IMM) {
            uint32_t factor = op3(l, SX_LOP_MUL, one, sx_loop_set(&l->b, (float)y->imm), none);
            l->reg[i] = op3(l, SX_LOP_MUL, total, factor, none);
        } else {
            bool across = line != NULL && o->column != SX_NO_DIM && l->vector_dim == o->column;
            uint32_t value =
                !across ? sx_loop_op(&l->b, get, none, &value_at, none, none, none, lanes, 0)
                        : sx_loop_op(&l->b, SX_LOP_LOADS, none, &value_at, none, none, none,
                                     l->valid, 4 * o->width);
            l->reg[i] = op3(l, SX_LOP_MUL, value, one, none);
        }
        l->have[i] = true;
    }
}

static void leave(sx_lower *l, const online *o, const sx_affine *line, uint32_t v)
{
    sx_lower_move(l);
    give_reductions(l, o, line, v);
    sx_lower_store_out(l, sx_lower_value(l, l->body->instr_count - 1), l->out_dtype);
    memset(l->have, 0, sizeof(l->have));
}

/* Rows that are contiguous in the result, column by column. */
static void leave_in_lanes(sx_lower *l, const online *o)
{
    bool opened =
        o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        to_vector(l, o, v);
        leave(l, o, NULL, v);
        from_vector(l, o, v);
    }
    sx_lower_close(l, o->column, opened);
}

/* Neither rows nor columns are contiguous in the result: number by number. */
static void leave_alone(sx_lower *l, const online *o, const sx_affine *line)
{
    bool opened =
        o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
    l->vector_dim = SX_NO_DIM;
    l->valid = 1;
    leave(l, o, line, 0);
    l->vector_dim = o->row;
    sx_lower_close(l, o->column, opened);
}

static void leave_row(sx_lower *l, const online *o, const sx_affine *line)
{
    uint32_t d = o->column;
    if (d == SX_NO_DIM || l->view.out_stride[d] != 1) {
        leave_alone(l, o, line);
        return;
    }
    int64_t extent = l->view.extent[d];
    int64_t whole = extent / l->lanes;
    l->vector_dim = d;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        l->valid = l->lanes;
        leave(l, o, line, 0);
        sx_lower_close(l, d, opened);
    }
    if (extent > whole * l->lanes) {
        shift(l, d, whole * l->lanes);
        l->valid = (uint32_t)(extent - whole * l->lanes);
        leave(l, o, line, 0);
        shift(l, d, -whole * l->lanes);
    }
    l->vector_dim = o->row;
}

static void leave_rows(sx_lower *l, const online *o)
{
    sx_affine line = {0};
    bool any = l->analysis->steady && o->rows < o->width && o->row != SX_NO_DIM;
    bool opened = o->rows > 1 || any;
    if (opened) {
        uint32_t v = any ? sx_loop_open_any(&l->b, o->rows) : sx_loop_open(&l->b, o->rows);
        l->at[o->row].coef[v] = 1;
        line.coef[v] = 1;
    }
    leave_row(l, o, &line);
    sx_lower_close(l, o->row, opened);
}

/* Whole blocks of keys, and the last one, in a steady program. */
static void emit_any_blocks(sx_lower *l, online *o, int64_t keys)
{
    int64_t blocks = keys / o->block, rest = keys % o->block;
    bool opened = open_keys(l, o, blocks, o->block, true);
    sx_affine local = {0};
    o->local = local; /* inside of its block */
    emit_block(l, o, o->block);
    close_keys(l, o, opened);
    shift(l, o->keys, blocks * o->block);
    opened = open_keys(l, o, rest > 0 ? 1 : 0, 0, true);
    o->local = local;
    o->last = true;
    emit_block(l, o, rest);
    o->last = false;
    close_keys(l, o, opened);
    shift(l, o->keys, -blocks * o->block);
}

static void emit_point(sx_lower *l, int64_t length)
{
    online *o = l->self;
    int64_t keys = o->keys == SX_NO_DIM ? 1 : l->view.extent[o->keys];
    int64_t blocks = keys / o->block;
    o->rows = length;
    o->vectors = (uint32_t)sx_ceil_div_i64(length, l->lanes);
    l->vector_dim = o->row;
    start(l, o);
    if (l->analysis->steady && o->keys != SX_NO_DIM) {
        emit_any_blocks(l, o, keys);
        blocks = keys = 0;
    }
    if (blocks > 0) {
        bool opened = o->keys != SX_NO_DIM && sx_lower_open(l, o->keys, blocks, o->block);
        emit_block(l, o, o->block);
        sx_lower_close(l, o->keys, opened);
    }
    if (keys % o->block > 0) {
        shift(l, o->keys, blocks * o->block);
        emit_block(l, o, keys % o->block);
        shift(l, o->keys, -blocks * o->block);
    }
    bool contiguous = o->row == SX_NO_DIM || l->view.out_stride[o->row] == 1;
    bool columns = o->column != SX_NO_DIM && l->view.out_stride[o->column] == 1;
    if (contiguous && !columns) {
        leave_in_lanes(l, o);
    } else {
        leave_rows(l, o);
    }
}

/* ---- what the analysis says, and what follows from it ---- */
static sx_code take_roles(sx_lower *l, online *o)
{
    const sx_analysis *a = l->analysis;
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        bool sums = in->kind == SX_BODY_ONLINE || in->kind == SX_BODY_DOT;
        if (sums && in->dtype != SX_F32) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED,
                           "kernel %s: online sum of %s has no vector form", l->kernel->name,
                           sx_dtype_name(in->dtype));
        }
    }
    *o = (online){.x = a->scores,
                  .dot = a->dot,
                  .value = a->value,
                  .query = a->lhs,
                  .key = a->rhs,
                  .row = a->row,
                  .column = a->column,
                  .keys = a->keys};
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->view.inner[d]) {
            o->sum[o->sum_count++] = d;
        }
    }
    return SX_OK;
}

/* Arguments of the program that makes the scores from the contraction (or from memory). */
static void find_turned(const sx_lower *l, online *o)
{
    bool needed[SX_FUSED_INSTRS_MAX] = {false};
    needed[o->x] = true;
    for (uint32_t i = o->x + 1; i-- > 0;) {
        const sx_instr *in = &l->body->instr[i];
        if (!needed[i]) {
            continue;
        }
        const uint32_t operand[] = {in->x, in->y, in->z};
        uint32_t count = in->kind == SX_BODY_APPLY ? sx_op_info_of(in->op)->input_max : 0;
        for (uint32_t k = 0; k < count; k++) {
            needed[operand[k]] = true;
        }
        if (in->kind == SX_BODY_ARG && sx_analysis_is_turned(l->analysis, in->x, o->keys)) {
            o->turned[o->turned_count++] = i;
        }
    }
}

static const sx_level_form form[] = {
    {SX_ROLE_BATCH, SX_BIND_GRID},   {SX_ROLE_ROW, SX_BIND_GRID},
    {SX_ROLE_SUM, SX_BIND_LOOP},     {SX_ROLE_SUM, SX_BIND_LOOP},
    {SX_ROLE_COLUMN, SX_BIND_LOOP},  {SX_ROLE_INNER, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_REGISTER},
    {SX_ROLE_ROW, SX_BIND_REGISTER}, {SX_ROLE_ROW, SX_BIND_LANE},
};

static sx_code take_schedule(sx_lower *l, online *o)
{
    const sx_schedule *s = l->schedule;
    SX_TRY(sx_schedule_match(l->cx, s, form, SX_COUNT(form), l->kernel->name));
    int64_t keys = o->keys == SX_NO_DIM ? 1 : l->view.extent[o->keys];
    o->block = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    o->block = l->analysis->steady ? o->block : sx_min_i64(o->block, keys);
    o->strip = sx_schedule_step(s, SX_ROLE_SUM, SX_BIND_LOOP, 1);
    o->width = sx_schedule_step(s, SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t vectors = o->width / l->lanes;
    int64_t budget = sx_min_i64(l->unit->registers, SX_BLOCK_REGISTERS_MAX);
    if (o->strip != sx_schedule_step(s, SX_ROLE_COLUMN, SX_BIND_LOOP, 0)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: strips of keys and columns that differ",
                       l->kernel->name);
    }
    if (o->strip > 31 || vectors > 8 || o->width % l->lanes != 0 ||
        o->strip * vectors + vectors + 1 > budget) {
        return SX_FAIL(l->cx, SX_LIMIT,
                       "kernel %s: block of %lld x %lld vectors needs more than %lld registers",
                       l->kernel->name, (long long)o->strip, (long long)vectors, (long long)budget);
    }
    return SX_OK;
}

#define WORKSPACE_MAX (INT64_C(64) << 20)
static sx_code place_tables(sx_lower *l, online *o)
{
    int64_t inner = 1;
    for (uint32_t k = 0; k < o->sum_count; k++) {
        inner *= l->view.extent[o->sum[k]];
    }
    int64_t columns = o->column == SX_NO_DIM ? 1 : l->view.extent[o->column];
    int64_t lines[] = {
        o->dot != SX_NO_REG ? inner : 0, o->block, o->value != SX_NO_REG ? columns : 1, 1, 1, 1};
    int64_t *at[] = {&o->query_at, &o->score_at, &o->result_at,
                     &o->max_at,   &o->total_at, &o->rescale_at};
    int64_t size = 0;
    for (uint32_t k = 0; k < SX_COUNT(lines); k++) {
        *at[k] = size;
        if (lines[k] > (WORKSPACE_MAX - size) / (4 * o->width)) {
            return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: more than %lld bytes of workspace",
                           l->kernel->name, (long long)WORKSPACE_MAX);
        }
        size += 4 * o->width * lines[k];
    }
    for (uint32_t k = 0; k < o->turned_count; k++) {
        o->turned_at[k] = size;
        size += 4 * o->width * o->block;
    }
    o->workspace = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE, size);
    return SX_OK;
}

sx_code sx_lower_online(sx_lower *l)
{
    online o;
    SX_TRY(take_roles(l, &o));
    SX_TRY(take_schedule(l, &o));
    find_turned(l, &o);
    SX_TRY(place_tables(l, &o));
    uint32_t outer[SX_RANK_MAX];
    uint32_t outer_count = 0;
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->analysis->role[d] == SX_ROLE_BATCH) {
            outer[outer_count++] = d;
        }
    }
    const int64_t *of = l->analysis->extent;
    int64_t keys = o.keys == SX_NO_DIM ? 1 : l->view.extent[o.keys];
    int64_t extent[3] = {sx_min_i64(o.block, keys), of[SX_ROLE_SUM], of[SX_ROLE_INNER]};
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_ONLINE, extent, SX_COUNT(extent));
    l->self = &o;
    return sx_lower_parts(l, outer, outer_count, 1, o.row, o.width, emit_point);
}
