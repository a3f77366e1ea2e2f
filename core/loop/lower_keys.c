/* lower_keys.c - rows across the lanes, keys in blocks (lower_keys.h).
 *
 * A program that is to serve other numbers of rows and keys, too (sx_analysis.steady), is the same but for numbers: it
 * has code for whole blocks of keys and for a last one of any length, both in loops that may have no iterations. In the
 * last block a remainder of a strip goes in pieces of 4, 2, 1 keys. That changes neither the order of a sum nor its
 * addends. */
#include "core/loop/lower_keys.h"

#define BLOCK_MAX 32

/* ---- places in the workspace ---- */
sx_addr sx_keys_at(const sx_lower *l, const sx_keys *o, int64_t table, const sx_affine *line,
                   uint32_t v)
{
    sx_addr a = {.buffer = o->workspace, .index_reg = SX_NO_REG};
    a.offset = table + 4 * (int64_t)v * l->lanes;
    if (line != NULL) {
        a.offset += 4 * o->width * line->constant;
        for (uint32_t k = 0; k < SX_LOOP_VARS_MAX; k++) {
            a.coef[k] = 4 * o->width * line->coef[k];
        }
    }
    return a;
}

/* The inner dimensions as one number. */
static sx_affine sum_index(const sx_lower *l, const sx_keys *o)
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

sx_affine sx_keys_column(const sx_lower *l, const sx_keys *o)
{
    return o->column == SX_NO_DIM ? (sx_affine){0} : l->at[o->column];
}

/* ---- vectors of rows ---- */
static uint32_t valid_rows(const sx_lower *l, const sx_keys *o, uint32_t v)
{
    return (uint32_t)sx_min_i64(l->lanes, o->rows - (int64_t)v * l->lanes);
}

void sx_keys_to_vector(sx_lower *l, const sx_keys *o, uint32_t v)
{
    sx_keys_shift(l, o->row, (int64_t)v * l->lanes);
    l->valid = valid_rows(l, o, v);
}

void sx_keys_from_vector(sx_lower *l, const sx_keys *o, uint32_t v)
{
    sx_keys_shift(l, o->row, -(int64_t)v * l->lanes);
}

/* ---- loops over keys and inner dimensions ---- */
static bool open_keys(sx_lower *l, sx_keys *o, int64_t trip, int64_t step, bool any)
{
    if (trip <= 1 && !any) {
        return false;
    }
    uint32_t v = any ? sx_loop_open_any(&l->b, trip) : sx_loop_open(&l->b, trip);
    l->at[o->keys].coef[v] = step;
    o->local.coef[v] = step;
    return true;
}

static void close_keys(sx_lower *l, sx_keys *o, bool opened)
{
    if (opened) {
        sx_loop_close(&l->b);
        l->at[o->keys].coef[3 + l->b.open_count] = 0;
        o->local.coef[3 + l->b.open_count] = 0;
    }
}

static void shift_key(sx_lower *l, sx_keys *o, int64_t by)
{
    sx_keys_shift(l, o->keys, by);
    o->local.constant += by;
}

/* The same whatever the length is: what is left goes in pieces that are powers of two. */
static void each_of_any(sx_lower *l, sx_keys *o, int64_t length, int64_t step, sx_keys_body body)
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

void sx_keys_each(sx_lower *l, sx_keys *o, int64_t length, int64_t step, sx_keys_body body)
{
    int64_t whole = length / step;
    if (o->last) {
        each_of_any(l, o, length, step, body);
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

/* Loops over dimensions, outermost first. */
static void open_all(sx_lower *l, const uint32_t *dim, uint32_t count, bool opened[SX_RANK_MAX])
{
    for (uint32_t k = 0; k < count; k++) {
        opened[k] = sx_lower_open(l, dim[k], l->view.extent[dim[k]], 1);
    }
}

static void close_all(sx_lower *l, const uint32_t *dim, uint32_t count,
                      const bool opened[SX_RANK_MAX])
{
    for (uint32_t k = count; k-- > 0;) {
        sx_lower_close(l, dim[k], opened[k]);
    }
}

/* ---- arguments whose elements lie along another dimension than the rows: square blocks turned in registers ---- */
/* `count` (at most the lanes) elements along `dim` of every row, as lines from `line` on. */
static void turn(sx_lower *l, const sx_keys *o, uint32_t argument, uint32_t dim,
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
            sx_keys_shift(l, o->row, at);
            sx_addr from = sx_lower_arg_address(l, argument);
            l->b.apart = l->analysis->steady;
            row[r] = outside ? sx_loop_bits(&l->b, 0)
                     : dtype == SX_BOOL /* turned as a byte */
                         ? sx_loop_access(&l->b, SX_LOP_LOAD, SX_MEM_U8, &from, SX_NO_REG,
                                          (uint32_t)count, 0)
                         : sx_lower_load_along(l, argument, (uint32_t)count);
            l->b.apart = false;
            sx_keys_shift(l, o->row, -at);
        }
        sx_lower_turn(l, row, o->mask);
        for (int64_t k = 0; k < count; k++) {
            sx_affine to = *line;
            to.constant += k;
            sx_addr a = sx_keys_at(l, o, table, &to, v);
            sx_keys_store(l, &a, row[k]);
        }
    }
    SX_ASSERT(dim != SX_NO_DIM && l->view.stride[argument][dim] == 1);
}

static void turn_keys(sx_lower *l, sx_keys *o, int64_t count)
{
    for (uint32_t k = 0; k < o->turned_count; k++) {
        uint32_t argument = l->body->instr[o->turned[k]].x;
        turn(l, o, argument, o->keys, &o->local, count, o->turned_at[k]);
    }
}

static void give_turned(sx_lower *l, const sx_keys *o, uint32_t v)
{
    for (uint32_t k = 0; k < o->turned_count; k++) {
        uint32_t i = o->turned[k];
        sx_addr a = sx_keys_at(l, o, o->turned_at[k], &o->local, v);
        l->reg[i] = sx_keys_load(l, &a);
        if (l->body->instr[i].dtype == SX_BOOL) {
            uint32_t zero = sx_loop_set(&l->b, 0.0f);
            l->reg[i] = sx_loop_op(&l->b, SX_LOP_ICMP, SX_NO_REG, NULL, l->reg[i], zero, SX_NO_REG,
                                   SX_GT, 0);
        }
        l->have[i] = true;
    }
}

void sx_keys_give(sx_lower *l, const sx_keys *o, uint32_t v)
{
    give_turned(l, o, v);
    for (uint32_t k = 0; k < o->product_count; k++) {
        const sx_keys_product *p = &o->product[k];
        sx_addr a = sx_keys_at(l, o, p->score_at, &o->local, v);
        l->reg[p->dot] = sx_lower_rounded(l, l->body->instr[p->dot].dtype, sx_keys_load(l, &a));
        l->have[p->dot] = true;
    }
}

/* ---- 0: rows of the queries across the lanes ---- */
static void turn_query(sx_lower *l, sx_keys *o, const sx_keys_product *p)
{
    uint32_t d = o->sum[0];
    int64_t extent = l->view.extent[d];
    int64_t whole = extent / l->lanes;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        turn(l, o, p->query, d, &l->at[d], l->lanes, p->query_at);
        sx_lower_close(l, d, opened);
    }
    if (extent % l->lanes > 0) {
        sx_keys_shift(l, d, whole * l->lanes);
        turn(l, o, p->query, d, &l->at[d], extent % l->lanes, p->query_at);
        sx_keys_shift(l, d, -whole * l->lanes);
    }
}

static void pack_query(sx_lower *l, sx_keys *o, const sx_keys_product *p)
{
    bool opened[SX_RANK_MAX];
    open_all(l, o->sum, o->sum_count, opened);
    sx_affine index = sum_index(l, o);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_keys_to_vector(l, o, v);
        sx_addr a = sx_keys_at(l, o, p->query_at, &index, v);
        sx_keys_store(l, &a, sx_lower_load(l, p->query));
        sx_keys_from_vector(l, o, v);
    }
    close_all(l, o->sum, o->sum_count, opened);
}

static void take_queries(sx_lower *l, sx_keys *o)
{
    bool masks = false;
    for (uint32_t k = 0; k < o->product_count; k++) {
        const sx_keys_product *p = &o->product[k];
        bool turned = o->sum_count == 1 && sx_analysis_is_turned(l->analysis, p->query, o->sum[0]);
        if (turned && !masks) {
            sx_lower_turn_masks(l, o->mask);
            masks = true;
        }
        if (turned) {
            turn_query(l, o, p);
        } else {
            pack_query(l, o, p);
        }
    }
}

static void clear_results(sx_lower *l, const sx_keys *o)
{
    bool opened =
        o->column != SX_NO_DIM && sx_lower_open(l, o->column, l->view.extent[o->column], 1);
    sx_affine index = sx_keys_column(l, o);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, o->result_at, &index, v);
        sx_keys_store(l, &a, sx_loop_set(&l->b, 0.0f));
    }
    sx_lower_close(l, o->column, opened);
}

/* ---- 1: products ---- */
static void multiply_step(sx_lower *l, sx_keys *o, const sx_keys_product *p, int64_t keys)
{
    uint32_t right[BLOCK_MAX];
    sx_affine index = sum_index(l, o);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, p->query_at, &index, v);
        right[v] = sx_keys_load(l, &a);
    }
    l->valid = l->lanes;
    for (int64_t r = 0; r < keys; r++) {
        sx_keys_shift(l, o->keys, r);
        uint32_t left = sx_lower_load(l, p->key);
        sx_keys_shift(l, o->keys, -r);
        for (uint32_t v = 0; v < o->vectors; v++) {
            uint32_t acc = o->acc[r * o->vectors + v];
            sx_keys_into(l, SX_LOP_FMA, acc, left, right[v], acc);
        }
    }
}

static void multiply_keys(sx_lower *l, sx_keys *o, int64_t keys)
{
    for (uint32_t k = 0; k < o->product_count; k++) {
        const sx_keys_product *p = &o->product[k];
        bool opened[SX_RANK_MAX];
        for (uint32_t i = 0; i < keys * o->vectors; i++) {
            o->acc[i] = sx_loop_set(&l->b, 0.0f);
        }
        open_all(l, o->sum, o->sum_count, opened);
        multiply_step(l, o, p, keys);
        close_all(l, o->sum, o->sum_count, opened);
        for (int64_t r = 0; r < keys; r++) {
            o->local.constant += r;
            for (uint32_t v = 0; v < o->vectors; v++) {
                sx_addr a = sx_keys_at(l, o, p->score_at, &o->local, v);
                sx_keys_store(l, &a, o->acc[r * o->vectors + v]);
            }
            o->local.constant -= r;
        }
    }
}

/* ---- 2: weighted values; o->acc is columns x vectors ---- */
static void add_values(sx_lower *l, sx_keys *o, int64_t keys)
{
    uint32_t right[BLOCK_MAX];
    SX_ASSERT(keys == 1);
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr a = sx_keys_at(l, o, o->weight_at, &o->local, v);
        right[v] = sx_keys_load(l, &a);
    }
    l->valid = l->lanes;
    for (int64_t c = 0; c < o->columns; c++) {
        sx_keys_shift(l, o->column, c);
        uint32_t left = sx_lower_load(l, o->value);
        sx_keys_shift(l, o->column, -c);
        for (uint32_t v = 0; v < o->vectors; v++) {
            uint32_t acc = o->acc[c * o->vectors + v];
            sx_keys_into(l, SX_LOP_FMA, acc, left, right[v], acc);
        }
    }
}

static void weighted_columns(sx_lower *l, sx_keys *o, int64_t length)
{
    bool rescales = o->rescale_at != SX_KEYS_NO_TABLE;
    for (uint32_t v = 0; v < o->vectors; v++) {
        sx_addr rescale = sx_keys_at(l, o, o->rescale_at, NULL, v);
        uint32_t factor = rescales ? sx_keys_load(l, &rescale) : SX_NO_REG;
        for (int64_t c = 0; c < o->columns; c++) {
            sx_affine index = sx_keys_column(l, o);
            index.constant += c;
            sx_addr a = sx_keys_at(l, o, o->result_at, &index, v);
            uint32_t held = sx_keys_load(l, &a);
            o->acc[c * o->vectors + v] =
                rescales ? sx_keys_op(l, SX_LOP_MUL, held, factor, SX_NO_REG) : held;
        }
    }
    sx_keys_each(l, o, length, 1, add_values);
    for (int64_t c = 0; c < o->columns; c++) {
        sx_affine index = sx_keys_column(l, o);
        index.constant += c;
        for (uint32_t v = 0; v < o->vectors; v++) {
            sx_addr a = sx_keys_at(l, o, o->result_at, &index, v);
            sx_keys_store(l, &a, o->acc[c * o->vectors + v]);
        }
    }
}

static void add_block_values(sx_lower *l, sx_keys *o, int64_t length)
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
        sx_keys_shift(l, o->column, whole * o->strip);
        weighted_columns(l, o, length);
        sx_keys_shift(l, o->column, -whole * o->strip);
    }
}

static void emit_block(sx_lower *l, sx_keys *o, int64_t length)
{
    if (o->product_count > 0) {
        sx_keys_each(l, o, length, o->strip, multiply_keys);
    }
    if (o->turned_count > 0) {
        sx_lower_turn_masks(l, o->mask);
        sx_keys_each(l, o, length, l->lanes, turn_keys);
    }
    o->weigh(l, o, length);
    if (o->value != SX_NO_REG) {
        add_block_values(l, o, length);
    }
}

/* ---- all blocks ---- */
/* Whole blocks of keys, and the last one, in a steady program. */
static void emit_any_blocks(sx_lower *l, sx_keys *o, int64_t keys)
{
    int64_t blocks = keys / o->block, rest = keys % o->block;
    bool opened = open_keys(l, o, blocks, o->block, true);
    sx_affine local = {0};
    o->local = local; /* inside of its block */
    emit_block(l, o, o->block);
    close_keys(l, o, opened);
    sx_keys_shift(l, o->keys, blocks * o->block);
    opened = open_keys(l, o, rest > 0 ? 1 : 0, 0, true);
    o->local = local;
    o->last = true;
    emit_block(l, o, rest);
    o->last = false;
    close_keys(l, o, opened);
    sx_keys_shift(l, o->keys, -blocks * o->block);
}

static void emit_blocks(sx_lower *l, sx_keys *o)
{
    int64_t keys = o->keys == SX_NO_DIM ? 1 : l->view.extent[o->keys];
    int64_t blocks = keys / o->block;
    if (l->analysis->steady && o->keys != SX_NO_DIM) {
        emit_any_blocks(l, o, keys);
        return;
    }
    if (blocks > 0) {
        bool opened = o->keys != SX_NO_DIM && sx_lower_open(l, o->keys, blocks, o->block);
        emit_block(l, o, o->block);
        sx_lower_close(l, o->keys, opened);
    }
    if (keys % o->block > 0) {
        sx_keys_shift(l, o->keys, blocks * o->block);
        emit_block(l, o, keys % o->block);
        sx_keys_shift(l, o->keys, -blocks * o->block);
    }
}

static void emit_point(sx_lower *l, int64_t length)
{
    sx_keys *o = l->self;
    bool opened[SX_RANK_MAX];
    o->rows = length;
    o->vectors = (uint32_t)sx_ceil_div_i64(length, l->lanes);
    l->vector_dim = o->row;
    take_queries(l, o);
    if (o->begin != NULL) {
        o->begin(l, o);
    }
    if (o->value != SX_NO_REG) {
        clear_results(l, o);
    }
    open_all(l, o->around, o->around_count, opened);
    emit_blocks(l, o);
    close_all(l, o->around, o->around_count, opened);
    sx_keys_leave(l, o);
}

sx_code sx_keys_emit(sx_lower *l, sx_keys *o)
{
    uint32_t outer[SX_RANK_MAX];
    uint32_t outer_count = 0;
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->analysis->role[d] == SX_ROLE_BATCH) {
            outer[outer_count++] = d;
        }
    }
    l->self = o;
    return sx_lower_parts(l, outer, outer_count, 1, o->row, o->width, emit_point);
}

/* ---- what the analysis says, and what follows from it ---- */
/* Arguments of the program that makes the weights from the products (or from memory). */
static void find_turned(const sx_lower *l, sx_keys *o)
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

void sx_keys_take_roles(const sx_lower *l, sx_keys *o)
{
    const sx_analysis *a = l->analysis;
    o->x = a->scores;
    o->value = a->value;
    for (uint32_t k = 0; k < a->product_count; k++) {
        const sx_inner_product *p = &a->product[k];
        o->product[o->product_count++] =
            (sx_keys_product){.dot = p->dot, .query = p->lhs, .key = p->rhs};
    }
    o->row = a->row;
    o->column = a->column;
    o->keys = a->keys;
    o->rescale_at = SX_KEYS_NO_TABLE;
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->view.inner[d]) {
            o->sum[o->sum_count++] = d;
        } else if (l->view.reduced[d] && d != o->keys) {
            o->around[o->around_count++] = d;
        }
    }
    find_turned(l, o);
}

static const sx_level_form form[] = {
    {SX_ROLE_BATCH, SX_BIND_GRID},   {SX_ROLE_ROW, SX_BIND_GRID},
    {SX_ROLE_SUM, SX_BIND_LOOP},     {SX_ROLE_SUM, SX_BIND_LOOP},
    {SX_ROLE_COLUMN, SX_BIND_LOOP},  {SX_ROLE_INNER, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_REGISTER},
    {SX_ROLE_ROW, SX_BIND_REGISTER}, {SX_ROLE_ROW, SX_BIND_LANE},
};

sx_code sx_keys_take_schedule(sx_lower *l, sx_keys *o)
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
sx_code sx_keys_place(sx_lower *l, sx_keys *o, int64_t lines, int64_t *table)
{
    *table = o->size;
    if (lines > (WORKSPACE_MAX - o->size) / (4 * o->width)) {
        return SX_FAIL(l->cx, SX_UNIMPLEMENTED, "kernel %s: more than %lld bytes of workspace",
                       l->kernel->name, (long long)WORKSPACE_MAX);
    }
    o->size += 4 * o->width * lines;
    return SX_OK;
}

sx_code sx_keys_place_tables(sx_lower *l, sx_keys *o)
{
    int64_t inner = 1;
    for (uint32_t k = 0; k < o->sum_count; k++) {
        inner *= l->view.extent[o->sum[k]];
    }
    int64_t columns = o->column == SX_NO_DIM ? 1 : l->view.extent[o->column];
    for (uint32_t k = 0; k < o->product_count; k++) {
        SX_TRY(sx_keys_place(l, o, inner, &o->product[k].query_at));
        SX_TRY(sx_keys_place(l, o, o->block, &o->product[k].score_at));
    }
    if (o->product_count == 0) {
        SX_TRY(sx_keys_place(l, o, o->block, &o->weight_at));
    } else {
        o->weight_at = o->product[0].score_at;
    }
    return sx_keys_place(l, o, o->value != SX_NO_REG ? columns : 1, &o->result_at);
}

sx_code sx_keys_end_tables(sx_lower *l, sx_keys *o)
{
    for (uint32_t k = 0; k < o->turned_count; k++) {
        SX_TRY(sx_keys_place(l, o, o->block, &o->turned_at[k]));
    }
    o->workspace = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE, o->size);
    return SX_OK;
}
