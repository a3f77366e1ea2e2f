/* lower_row.c - kernels with reductions: softmax, norms, sums.
 *
 * A row is one point of the kept dimensions with all of the reduced ones. Two forms:
 *   along    the last dimension is reduced: lanes run along it. Fixed virtual shape on every machine: 16 lanes
 *            (of 8 bytes: 8) x 4 accumulators, chunk c of as many elements goes to accumulator c mod 4, the
 *            tail is filled with the identity, then (a0 + a1) + (a2 + a3) and the lanes fold by halves. With
 *            vectors of 32 bytes a virtual one is two registers; with 32 lanes a register is two of them, a0 beside
 *            a1 and a2 beside a3 (of 8 bytes: all four), added by an exchange: the same bits.
 *   across   the last dimension is kept: lanes run across rows, each row is one chain in ascending order.
 * The form follows from the space alone, whatever the extents of kept dimensions are (a batch of 1 is a
 * dimension too), and reduced dimensions are never merged (whether strides allow it may depend on kept
 * extents): a row has the same bits in every batch. Every REDUCE is one pass over the row, in the order of the
 * program; full results are a last pass, and results with one value a row are stored behind it. Long functions that
 * several passes need are computed once and kept: in the row of a full result, else in the workspace. They also get a
 * pass of their own where the accumulators take half of the registers.
 *
 * A long row is cut in pieces (sx_row_cut), each summed up in that form for itself; their sums are added in ascending
 * order. On a machine whose lanes are threads the warps of a block may walk the pieces of a row side by side: the sums
 * of pieces meet in the workspace of the block.
 *
 * Along a row, lanes that are threads may have two elements side by side (`lane(k/2) register(k)`): 32 lanes are a step
 * of the virtual shape then, and its accumulators are folded in the same order. The loads of a line stand in front of
 * what is computed of them. Where one line is the whole row, its elements and kept values stay in registers: memory is
 * read once. Across the rows, steps of the chain may be a line (`loop(k/64) register(k)`), which changes no order:
 * a lane waits for memory once for all of them. */
#include "core/ir/num.h"
#include "core/loop/lower_row.h"

#include <math.h>
#include <string.h>

#define KEPT_BYTES_MAX (INT64_C(64) << 20)

typedef sx_lower_rows rows;

static bool is_full(const sx_lower *l, uint32_t result)
{
    return l->analysis->full && l->analysis->root_full[result];
}

typedef void (*chunk_body)(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half);
static void reduce_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half);
static void keep_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half);
static void result_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half);

static bool varies(const sx_lower *l, const rows *r, uint32_t instr)
{
    return (l->analysis->varies[instr] & r->reduced) != 0;
}

static uint32_t operands_of(const sx_instr *in, uint32_t operand[3])
{
    operand[0] = in->x;
    operand[1] = in->y;
    operand[2] = in->z;
    return in->kind == SX_BODY_APPLY ? sx_op_info_of(in->op)->input_max : 0;
}

/* Instructions that a pass for the values in `target` evaluates at every element: what varies along the row, down to
 * kept values. `edge`: the row's constants that they use. */
static void closure(const sx_lower *l, const rows *r, const uint32_t *target, uint32_t count,
                    bool inside[], bool edge[])
{
    uint32_t end = 0;
    memset(inside, 0, SX_FUSED_INSTRS_MAX * sizeof(bool));
    memset(edge, 0, SX_FUSED_INSTRS_MAX * sizeof(bool));
    for (uint32_t k = 0; k < count; k++) {
        inside[target[k]] = varies(l, r, target[k]);
        edge[target[k]] = !inside[target[k]];
        end = target[k] + 1 > end ? target[k] + 1 : end;
    }
    for (uint32_t i = end; i-- > 0;) {
        if (!inside[i] || r->filled[i]) {
            continue;
        }
        uint32_t operand[3];
        uint32_t operands = operands_of(&l->body->instr[i], operand);
        for (uint32_t k = 0; k < operands; k++) {
            bool constant = !varies(l, r, operand[k]);
            inside[operand[k]] = inside[operand[k]] || !constant;
            edge[operand[k]] = edge[operand[k]] || constant;
        }
    }
}

/* ---- kept values ---- */
static sx_addr slot_address(sx_lower *l, const rows *r, uint32_t instr)
{
    if (r->slot[instr] == SLOT_RESULT) {
        sx_lower_choose_result(l, r->slot_result);
        return sx_lower_out_address(l);
    }
    sx_addr a = {.buffer = r->workspace, .offset = r->slot_offset[instr], .index_reg = SX_NO_REG};
    int64_t stride = (int64_t)l->kernel->lane_bytes * (r->along ? 1 : l->lanes);
    for (uint32_t k = r->axis_count; k-- > 0;) {
        const sx_affine *at = &l->at[r->axis[k]];
        a.offset += stride * at->constant;
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            a.coef[v] += stride * at->coef[v];
        }
        stride *= l->view.extent[r->axis[k]];
    }
    return a;
}

/* A whole or partial vector of kept values, to memory or (`value` SX_NO_REG) from it. */
static uint32_t access_slot(sx_lower *l, const rows *r, uint32_t instr, uint32_t value)
{
    sx_addr a = slot_address(l, r, instr);
    bool apart = r->width > 1;
    sx_lop load = apart ? SX_LOP_LOADS : SX_LOP_LOAD, store = apart ? SX_LOP_STORES : SX_LOP_STORE;
    return sx_loop_op(&l->b, value == SX_NO_REG ? load : store, SX_NO_REG, &a, value, SX_NO_REG,
                      SX_NO_REG, l->valid, apart ? (int64_t)r->width * l->kernel->lane_bytes : 0);
}

/* The value of `target` at the position, kept values loaded instead of computed; what is there of other values at the
 * position is used. */
static uint32_t another(sx_lower *l, const rows *r, uint32_t target)
{
    bool inside[SX_FUSED_INSTRS_MAX];
    bool edge[SX_FUSED_INSTRS_MAX];
    closure(l, r, &target, 1, inside, edge);
    for (uint32_t i = 0; i <= target; i++) {
        const sx_instr *in = &l->body->instr[i];
        uint32_t held = r->held != NULL ? r->held[r->vector][i] : SX_NO_REG;
        if (!inside[i] || l->have[i]) {
            continue;
        }
        if (r->filled[i]) {
            l->reg[i] = held != SX_NO_REG ? held : access_slot(l, r, i, SX_NO_REG);
            l->have[i] = true;
        } else if (held != SX_NO_REG) {
            SX_ASSERT(in->kind == SX_BODY_ARG);
            l->reg[i] = sx_lower_loaded(l, in->x, held);
            l->have[i] = true;
        }
    }
    return sx_lower_value(l, target);
}

static uint32_t element(sx_lower *l, const rows *r, uint32_t target)
{
    sx_lower_move(l);
    return another(l, r, target);
}

/* The values of all full results at the position, as they lie in memory. All come before the first store: a result may
 * lie over an argument that another one is made of. */
static void make_results(sx_lower *l, const rows *r, uint32_t made[SX_FUSED_RESULTS_MAX])
{
    sx_lower_move(l);
    for (uint32_t k = 0; k < r->root_count; k++) {
        uint32_t value = another(l, r, r->root[k]);
        made[k] = sx_lower_stored(l, value, l->analysis->root_dtype[r->result[k]]);
    }
}

static void store_result(sx_lower *l, const rows *r, uint32_t number, uint32_t raw)
{
    sx_lower_choose_result(l, r->result[number]);
    sx_lower_store_raw(l, raw, l->out_dtype);
}

/* ---- passes ---- */
/* `body` for the chunk at `offset` of the innermost axis, or the chunks that share registers, `length` elements of
 * it inside. */
static void run_chunk(sx_lower *l, rows *r, int64_t offset, int64_t length, uint32_t accumulator,
                      chunk_body body)
{
    uint32_t inner = r->axis[r->axis_count - 1];
    for (uint32_t half = 0; half < r->halves; half++) {
        int64_t left = length - (int64_t)half * l->lanes;
        l->at[inner].constant = r->begin + offset + (int64_t)half * l->lanes;
        l->valid = (uint32_t)sx_max_i64(0, sx_min_i64(left, l->lanes));
        body(l, r, accumulator, half);
    }
    l->at[inner].constant = 0;
}

static void run_along(sx_lower *l, rows *r, chunk_body body)
{
    uint32_t inner = r->axis[r->axis_count - 1];
    int64_t length = r->length;
    int64_t lanes = r->lanes;
    int64_t whole = length / lanes;
    int64_t groups = whole / SX_ROW_ACCUMULATORS;
    int64_t step = lanes * SX_ROW_ACCUMULATORS;
    int64_t once = lanes * r->share;
    if (groups > 0) {
        bool opened = sx_lower_open(l, inner, groups, step);
        for (uint32_t c = 0; c < SX_ROW_ACCUMULATORS; c += r->share) {
            run_chunk(l, r, c * lanes, once, c / r->share, body);
        }
        sx_lower_close(l, inner, opened);
    }
    for (int64_t c = groups * SX_ROW_ACCUMULATORS; c * lanes < length; c += r->share) {
        run_chunk(l, r, c * lanes, sx_min_i64(once, length - c * lanes),
                  (uint32_t)(c % SX_ROW_ACCUMULATORS) / r->share, body);
    }
}

/* ---- lines ---- */
/* The position of vector k of a line that begins at `offset`, `length` elements of the line are inside. */
static void go_to_vector(sx_lower *l, rows *r, int64_t offset, int64_t length, uint32_t k)
{
    r->vector = k;
    if (!r->along) { /* a vector is a step of the chain */
        l->at[r->axis[r->axis_count - 1]].constant = r->begin + offset + k;
        return;
    }
    int64_t chunk = (int64_t)l->lanes * r->width;
    int64_t first = k / r->width * chunk, own = k % r->width;
    int64_t left = sx_max_i64(0, sx_min_i64(length - first, chunk));
    l->at[r->axis[r->axis_count - 1]].constant = r->begin + offset + first + own;
    l->valid = (uint32_t)sx_max_i64(0, sx_ceil_div_i64(left - own, r->width));
    r->reached = (uint32_t)(sx_ceil_div_i64(left, r->lanes) * r->lanes / r->width);
}

/* Loads what the pass reads of vectors `first` to `end` - 1 of the line, but what is held. */
static void load_line(sx_lower *l, rows *r, int64_t offset, int64_t length, uint32_t first,
                      uint32_t end)
{
    bool inside[SX_FUSED_INSTRS_MAX];
    bool edge[SX_FUSED_INSTRS_MAX];
    closure(l, r, r->value, r->value_count, inside, edge);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        bool kept = r->filled[i] && r->slot[i] != SLOT_REGISTER;
        for (uint32_t k = first; inside[i] && k < end; k++) {
            go_to_vector(l, r, offset, length, k);
            if (l->valid == 0 || (r->holds && r->held[k][i] != SX_NO_REG)) {
                continue;
            }
            if (kept) {
                r->held[k][i] = access_slot(l, r, i, SX_NO_REG);
            } else if (in->kind == SX_BODY_ARG && !r->filled[i]) {
                r->held[k][i] = sx_lower_load_raw(l, in->x);
            }
        }
    }
}

/* `count` steps of the chain across the rows from `offset` on. */
static void run_steps(sx_lower *l, rows *r, int64_t offset, uint32_t count, chunk_body body)
{
    SX_ASSERT(!r->along && count <= LINE_VECTORS_MAX);
    memset(r->held, 0xFF, count * sizeof(r->held[0]));
    load_line(l, r, offset, count, 0, count);
    for (uint32_t k = 0; k < count; k++) {
        go_to_vector(l, r, offset, count, k);
        body(l, r, 0, 0);
    }
    l->at[r->axis[r->axis_count - 1]].constant = 0;
}

static void run_across(sx_lower *l, rows *r, chunk_body body)
{
    uint32_t inner = r->axis[r->axis_count - 1];
    int64_t lines = r->length / r->line, rest = r->length % r->line;
    if (lines > 0) {
        bool opened = sx_lower_open(l, inner, lines, r->line);
        run_steps(l, r, 0, (uint32_t)r->line, body);
        sx_lower_close(l, inner, opened);
    }
    if (rest > 0) {
        run_steps(l, r, lines * r->line, (uint32_t)rest, body);
    }
}

/* ---- lanes with several elements ---- */
/* What was made of vectors side by side, to memory. */
static void store_made(sx_lower *l, rows *r, int64_t offset, int64_t length, uint32_t first)
{
    uint32_t stores = r->pass == PASS_RESULT ? r->root_count : 1;
    for (uint32_t k = 0; k < stores; k++) {
        for (uint32_t j = 0; j < r->width; j++) {
            go_to_vector(l, r, offset, length, first + j);
            if (l->valid > 0 && r->pass == PASS_RESULT) {
                store_result(l, r, k, r->made[k][j]);
            } else if (l->valid > 0) {
                (void)access_slot(l, r, r->target, r->made[k][j]);
            }
        }
    }
}

/* The values of a pass at the position, for the vector `own` of those side by side. */
static void make_own(sx_lower *l, rows *r, uint32_t own)
{
    uint32_t made[SX_FUSED_RESULTS_MAX];
    if (l->valid == 0) {
        r->made[0][own] = SX_NO_REG;
    } else if (r->pass == PASS_KEEP) {
        r->made[0][own] = element(l, r, r->target);
    } else {
        make_results(l, r, made);
        for (uint32_t k = 0; k < r->root_count; k++) {
            r->made[k][own] = made[k];
        }
    }
}

/* The pass at vector k of a line. */
static void run_vector(sx_lower *l, rows *r, int64_t offset, int64_t length, uint32_t k,
                       chunk_body reduce)
{
    uint32_t own = k % r->width;
    go_to_vector(l, r, offset, length, k);
    if (r->pass == PASS_REDUCE) {
        reduce(l, r, own, 0);
        return;
    }
    make_own(l, r, own);
    if (r->pass == PASS_KEEP && r->slot[r->target] == SLOT_REGISTER) {
        r->held[k][r->target] = r->made[0][own];
    } else if (own + 1 == r->width) {
        store_made(l, r, offset, length, k - own);
    }
}

/* `length` elements of the row from `offset` on: whole chunks, or the end of one. */
static void run_line(sx_lower *l, rows *r, int64_t offset, int64_t length, chunk_body reduce)
{
    uint32_t count = (uint32_t)sx_ceil_div_i64(length, (int64_t)l->lanes * r->width) * r->width;
    SX_ASSERT(count <= LINE_VECTORS_MAX && r->width == 2);
    l->lane_step = r->width;
    if (!r->holds) {
        memset(r->held, 0xFF, count * sizeof(r->held[0]));
    }
    for (uint32_t first = 0; first < count; first += SX_ROW_LOADED) {
        uint32_t end = count - first < SX_ROW_LOADED ? count : first + SX_ROW_LOADED;
        load_line(l, r, offset, length, first, end);
        for (uint32_t k = first; k < end; k++) {
            run_vector(l, r, offset, length, k, reduce);
        }
    }
    l->at[r->axis[r->axis_count - 1]].constant = 0;
    l->lane_step = 1;
}

static void run_wide(sx_lower *l, rows *r, chunk_body reduce)
{
    uint32_t inner = r->axis[r->axis_count - 1];
    int64_t length = r->length;
    int64_t chunk = (int64_t)l->lanes * r->width;
    int64_t lines = r->holds ? 0 : length / r->line;
    if (r->holds) {
        run_line(l, r, 0, length, reduce);
        return;
    }
    if (lines > 0) {
        bool opened = sx_lower_open(l, inner, lines, r->line);
        run_line(l, r, 0, r->line, reduce);
        sx_lower_close(l, inner, opened);
    }
    int64_t done = lines * r->line, rest = length - done;
    if (rest >= chunk) {
        run_line(l, r, done, rest / chunk * chunk, reduce);
        done += rest / chunk * chunk;
    }
    if (done < length) {
        run_line(l, r, done, length - done, reduce);
    }
}

/* Walks what r->begin and r->length say. */
static void walk(sx_lower *l, rows *r)
{
    static const chunk_body bodies[] = {reduce_chunk, keep_chunk, result_chunk};
    chunk_body body = bodies[r->pass];
    bool opened[SX_RANK_MAX];
    bool lines = r->held != NULL;
    uint32_t loops = r->along || lines ? r->axis_count - 1 : r->axis_count;
    for (uint32_t k = 0; k < loops; k++) {
        bool inner = k + 1 == r->axis_count; /* of a piece, if the row is cut */
        l->at[r->axis[k]].constant = inner ? r->begin : 0;
        opened[k] = sx_lower_open(l, r->axis[k], inner ? r->length : l->view.extent[r->axis[k]], 1);
    }
    if (r->width > 1) {
        run_wide(l, r, body);
    } else if (r->along) {
        run_along(l, r, body);
    } else if (lines) {
        run_across(l, r, body);
    } else {
        body(l, r, 0, 0);
    }
    for (uint32_t k = loops; k-- > 0;) {
        sx_lower_close(l, r->axis[k], opened[k]);
        l->at[r->axis[k]].constant = 0;
    }
}

/* `body` for each piece of the row and for what is behind the last one. Of a block each warp has as many pieces as the
 * others, and one of them what is behind. */
static void for_pieces(sx_lower *l, rows *r, void (*body)(sx_lower *l, rows *r))
{
    const sx_row_pieces *cut = &r->cut;
    uint32_t inner = r->axis[r->axis_count - 1];
    int64_t each = cut->count / (r->warps > 0 ? r->warps : 1);
    r->begin = 0;
    r->length = cut->length;
    if (r->warps > 0) {
        uint32_t v = sx_loop_open_warps(&l->b, r->warps);
        l->at[inner].coef[v] = each * cut->length;
    }
    bool opened = sx_lower_open(l, inner, each, cut->length);
    body(l, r);
    sx_lower_close(l, inner, opened);
    sx_lower_close(l, inner, r->warps > 0);
    if (cut->rest > 0) {
        r->begin = cut->count * cut->length;
        r->length = cut->rest;
        if (r->warps > 0) {
            (void)sx_loop_open_warps(&l->b, 1);
        }
        body(l, r);
        sx_lower_close(l, inner, r->warps > 0);
    }
    r->begin = 0;
    r->length = l->view.extent[inner];
}

/* One pass over the row for `target`, evaluating these values at every element: `body` walks it. The constants of the
 * row that they use are made first, outside its loops. */
static void run_pass_by(sx_lower *l, rows *r, uint32_t target, const uint32_t *value,
                        uint32_t count, pass_kind pass, void (*body)(sx_lower *l, rows *r))
{
    bool inside[SX_FUSED_INSTRS_MAX];
    bool edge[SX_FUSED_INSTRS_MAX];
    uint32_t valid = l->valid;
    closure(l, r, value, count, inside, edge);
    if (r->along) {
        l->valid = l->lanes;
    }
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        if (edge[i] && l->body->instr[i].kind != SX_BODY_IMM) {
            (void)sx_lower_value(l, i);
            l->pinned[i] = true;
        }
    }
    r->target = target;
    r->value = value;
    r->value_count = count;
    r->pass = pass;
    if (r->warps > 0 && body == walk) {
        for_pieces(l, r, walk);
    } else {
        body(l, r);
    }
    sx_lower_move(l);
    l->valid = valid;
}

static void keep_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half)
{
    (void)accumulator;
    (void)half;
    if (l->valid > 0) {
        (void)access_slot(l, r, r->target, element(l, r, r->target));
    }
}

static void result_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half)
{
    (void)accumulator;
    (void)half;
    uint32_t made[SX_FUSED_RESULTS_MAX];
    if (l->valid == 0) {
        return;
    }
    make_results(l, r, made);
    for (uint32_t k = 0; k < r->root_count; k++) {
        store_result(l, r, k, made[k]);
    }
}

/* ---- reductions ---- */
/* What a reduction starts from, as the bits of a lane. */
static uint32_t identity(sx_lower *l, sx_reducer reducer, sx_dtype dtype)
{
    bool wide = l->kernel->lane_bytes == 8;
    double f = reducer == SX_PRODUCT ? 1 : 0;
    int64_t i = reducer == SX_PRODUCT;
    if (reducer == SX_MAX || reducer == SX_MIN) {
        f = reducer == SX_MAX ? -(double)INFINITY : (double)INFINITY;
        i = sx_dtype_class_of(dtype) != SX_CLASS_INT ? 0
            : reducer == SX_MAX                      ? sx_num_int_min(dtype)
                                                     : sx_num_int_max(dtype);
    }
    bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
    return sx_loop_bits(&l->b, real ? sx_num_encode(wide ? SX_F64 : SX_F32, f)
                                    : sx_num_int_encode(wide ? SX_I64 : SX_I32, i));
}

/* An operand as it is accumulated: bools as 0 and 1. */
static uint32_t operand(sx_lower *l, const rows *r, const sx_instr *in)
{
    uint32_t value = element(l, r, in->x);
    return in->dtype == SX_BOOL ? sx_loop_encode(&l->b, SX_BOOL, value) : value;
}

/* The lanes below `count`. */
static uint32_t first_lanes(sx_lower *l, uint32_t count)
{
    uint32_t none = SX_NO_REG;
    uint32_t lane = sx_loop_op(&l->b, SX_LOP_IOTA, none, NULL, none, none, none, 0, 0);
    uint32_t end = sx_loop_bits(&l->b, count);
    return sx_loop_op(&l->b, SX_LOP_ICMP, none, NULL, end, lane, none, SX_GT, 0);
}

/* The end of a row. A chunk of the virtual shape is filled with the identity; where a register holds several, the
 * lanes of those that the row does not reach keep what they have. */
static void reduce_tail(sx_lower *l, const rows *r, const sx_instr *in, uint32_t acc)
{
    uint32_t none = SX_NO_REG;
    uint32_t reached =
        r->width > 1 ? r->reached : (l->valid + r->lanes - 1) / r->lanes * r->lanes; /* lanes */
    bool fills = l->valid == 0 || l->valid != reached;
    uint32_t fill = fills ? identity(l, in->reducer, in->dtype) : none;
    uint32_t value = l->valid > 0 ? operand(l, r, in) : fill;
    if (l->valid > 0 && fills) {
        uint32_t in_row = first_lanes(l, l->valid);
        value = sx_loop_op(&l->b, SX_LOP_BLEND, none, NULL, in_row, value, fill, 0, 0);
    }
    bool all = r->share == 1 || reached == l->lanes;
    uint32_t sum = sx_loop_combine(&l->b, in->reducer, in->dtype, all ? acc : none, acc, value);
    if (!all) {
        (void)sx_loop_op(&l->b, SX_LOP_BLEND, acc, NULL, first_lanes(l, reached), sum, acc, 0, 0);
    }
}

static void reduce_chunk(sx_lower *l, rows *r, uint32_t accumulator, uint32_t half)
{
    const sx_instr *in = &l->body->instr[r->target];
    uint32_t acc = r->acc[accumulator][half];
    if (r->along && l->valid < l->lanes) {
        reduce_tail(l, r, in, acc);
    } else {
        (void)sx_loop_combine(&l->b, in->reducer, in->dtype, acc, acc, operand(l, r, in));
    }
}

/* Lane i of `v` with lane i ^ distance. */
static uint32_t exchanged(sx_lower *l, sx_reducer reducer, sx_dtype dtype, uint32_t v,
                          uint32_t distance)
{
    uint32_t none = SX_NO_REG;
    uint32_t other = sx_loop_op(&l->b, SX_LOP_SWAP, none, NULL, v, none, none, distance, 0);
    return sx_loop_combine(&l->b, reducer, dtype, none, v, other);
}

/* The virtual accumulators as one, in the first lanes of a register that holds several. */
static uint32_t fold_shared(sx_lower *l, const rows *r, sx_reducer reducer, sx_dtype dtype)
{
    uint32_t sum = SX_NO_REG;
    SX_ASSERT(r->share * r->lanes == l->lanes && r->share <= SX_ROW_ACCUMULATORS);
    for (uint32_t a = 0; a < SX_ROW_ACCUMULATORS / r->share; a++) {
        uint32_t v = r->acc[a][0];
        for (uint32_t n = r->lanes; n < l->lanes; n *= 2) {
            v = exchanged(l, reducer, dtype, v, n);
        }
        sum = a == 0 ? v : sx_loop_combine(&l->b, reducer, dtype, SX_NO_REG, sum, v);
    }
    return sum;
}

/* The same of lanes with several elements: the bits of an element's place in the virtual shape are, from the lowest on,
 * those of its number in the lane and of the lane. */
static uint32_t fold_wide(sx_lower *l, const rows *r, sx_reducer reducer, sx_dtype dtype)
{
    uint32_t none = SX_NO_REG;
    uint32_t half = r->lanes / r->width; /* lanes of a virtual vector */
    uint32_t v[2];
    SX_ASSERT(r->width == 2 && half * SX_ROW_ACCUMULATORS == l->lanes);
    for (uint32_t j = 0; j < r->width; j++) {
        v[j] = r->acc[j][0];
        for (uint32_t n = half; n < l->lanes; n *= 2) {
            v[j] = exchanged(l, reducer, dtype, v[j], n);
        }
        for (uint32_t n = half / 2; n > 0; n /= 2) {
            v[j] = exchanged(l, reducer, dtype, v[j], n);
        }
    }
    uint32_t sum = sx_loop_combine(&l->b, reducer, dtype, none, v[0], v[1]);
    return sx_loop_op(&l->b, SX_LOP_BCAST0, none, NULL, sum, none, none, 0, 0);
}

/* The value of the row from its accumulators, in all lanes. */
static uint32_t fold(sx_lower *l, const rows *r, sx_reducer reducer, sx_dtype dtype)
{
    uint32_t none = SX_NO_REG;
    if (!r->along) {
        return r->acc[0][0];
    }
    if (r->width > 1) {
        return fold_wide(l, r, reducer, dtype);
    }
    uint32_t half[2] = {none, none};
    for (uint32_t h = 0; r->share == 1 && h < r->halves; h++) {
        uint32_t low = sx_loop_combine(&l->b, reducer, dtype, none, r->acc[0][h], r->acc[1][h]);
        uint32_t high = sx_loop_combine(&l->b, reducer, dtype, none, r->acc[2][h], r->acc[3][h]);
        half[h] = sx_loop_combine(&l->b, reducer, dtype, none, low, high);
    }
    uint32_t v = r->share == 1 ? half[0] : fold_shared(l, r, reducer, dtype);
    if (r->halves == 2) {
        v = sx_loop_combine(&l->b, reducer, dtype, none, v, half[1]);
    }
    for (uint32_t n = (l->lanes < r->lanes ? l->lanes : r->lanes) / 2; n > 0; n /= 2) {
        v = exchanged(l, reducer, dtype, v, n);
    }
    return sx_loop_op(&l->b, SX_LOP_BCAST0, none, NULL, v, none, none, 0, 0);
}

static void begin_sums(sx_lower *l, rows *r, const sx_instr *in)
{
    uint32_t accumulators = r->along ? SX_ROW_ACCUMULATORS / r->share : 1;
    uint32_t halves = r->along ? r->halves : 1;
    accumulators = r->width > 1 ? r->width : accumulators;
    for (uint32_t a = 0; a < accumulators; a++) {
        for (uint32_t h = 0; h < halves; h++) {
            r->acc[a][h] = identity(l, in->reducer, in->dtype);
        }
    }
}

/* Bytes of the sum of a piece: of one row, or of as many as there are lanes. */
static int64_t sum_bytes(const sx_lower *l, const rows *r)
{
    return (int64_t)l->kernel->lane_bytes * (r->along ? 1 : l->lanes);
}

/* Where the sum of the piece at the position lies while warps wait for each other. */
static sx_addr sum_address(const sx_lower *l, const rows *r)
{
    const sx_affine *at = &l->at[r->axis[r->axis_count - 1]];
    int64_t bytes = sum_bytes(l, r);
    sx_addr a = {.buffer = r->workspace, .index_reg = SX_NO_REG};
    a.offset = r->sums + bytes * (r->begin / r->cut.length);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        SX_ASSERT(at->coef[v] % r->cut.length == 0);
        a.coef[v] = bytes * (at->coef[v] / r->cut.length);
    }
    return a;
}

/* A piece for itself: added to the total, or left where all warps find it. */
static void sum_piece(sx_lower *l, rows *r)
{
    const sx_instr *in = &l->body->instr[r->target];
    uint32_t none = SX_NO_REG;
    begin_sums(l, r, in);
    walk(l, r);
    uint32_t sum = fold(l, r, in->reducer, in->dtype);
    if (r->warps > 0) {
        sx_addr a = sum_address(l, r);
        uint32_t lanes = r->along ? 1 : l->valid;
        (void)sx_loop_op(&l->b, SX_LOP_STORE, none, &a, sum, none, none, lanes, 0);
    } else {
        (void)sx_loop_combine(&l->b, in->reducer, in->dtype, r->total, r->total, sum);
    }
}

static void sum_pieces(sx_lower *l, rows *r)
{
    const sx_instr *in = &l->body->instr[r->target];
    uint32_t none = SX_NO_REG, count = (uint32_t)(r->cut.count + (r->cut.rest > 0));
    r->total = identity(l, in->reducer, in->dtype);
    for_pieces(l, r, sum_piece);
    if (r->warps == 0) {
        return;
    }
    uint32_t sum[SX_ROW_PIECES_MAX + 1];
    SX_ASSERT(count <= SX_COUNT(sum));
    for (uint32_t k = 0; k < count; k++) {
        sx_addr a = {.buffer = r->workspace, .index_reg = none};
        a.offset = r->sums + sum_bytes(l, r) * k;
        sum[k] = sx_loop_op(&l->b, r->along ? SX_LOP_LOADB : SX_LOP_LOAD, none, &a, none, none,
                            none, r->along ? 0 : l->valid, 0);
    }
    for (uint32_t k = 0; k < count; k++) {
        (void)sx_loop_combine(&l->b, in->reducer, in->dtype, r->total, r->total, sum[k]);
    }
    r->sums += sum_bytes(l, r) * count;
}

static void reduce(sx_lower *l, rows *r, uint32_t instr)
{
    const sx_instr *in = &l->body->instr[instr];
    uint32_t sum;
    if (r->cut.count > 1) {
        run_pass_by(l, r, instr, &in->x, 1, PASS_REDUCE, sum_pieces);
        sum = r->total;
    } else {
        begin_sums(l, r, in);
        run_pass_by(l, r, instr, &in->x, 1, PASS_REDUCE, walk);
        sum = fold(l, r, in->reducer, in->dtype);
    }
    l->reg[instr] = sx_lower_rounded(l, in->dtype, sum);
    l->have[instr] = true;
    l->pinned[instr] = true;
}

/* Fills the slots that a pass for these values wants and that are not filled yet, in the order of the program. */
static void fill_slots(sx_lower *l, rows *r, const uint32_t *value, uint32_t count)
{
    bool inside[SX_FUSED_INSTRS_MAX];
    bool edge[SX_FUSED_INSTRS_MAX];
    closure(l, r, value, count, inside, edge);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        if (inside[i] && r->slot[i] != SLOT_NONE && !r->filled[i]) {
            run_pass_by(l, r, i, &i, 1, PASS_KEEP, walk);
            r->filled[i] = true;
        }
    }
}

/* Stores a result that has one value a row. */
static void store_row_value(sx_lower *l, const rows *r, uint32_t result)
{
    uint32_t valid = l->valid;
    l->valid = r->along ? l->lanes : valid;
    uint32_t value = sx_lower_value(l, l->analysis->root[result]);
    l->valid = r->along ? 1 : valid;
    if (r->warps > 0) { /* one of them stores it */
        (void)sx_loop_open_warps(&l->b, 1);
    }
    sx_lower_choose_result(l, result);
    sx_lower_store_out(l, value, l->out_dtype);
    if (r->warps > 0) {
        sx_loop_close(&l->b);
    }
    l->valid = valid;
}

static void emit_one_row(sx_lower *l)
{
    rows *r = l->self;
    memset(l->have, 0, sizeof(l->have));
    memset(l->pinned, 0, sizeof(l->pinned));
    memset(r->filled, 0, sizeof(r->filled));
    if (r->held != NULL) {
        memset(r->held, 0xFF, LINE_VECTORS_MAX * sizeof(r->held[0]));
    }
    r->sums = 0;
    l->b.part->warps = r->warps;
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        if (l->body->instr[i].kind == SX_BODY_REDUCE) {
            fill_slots(l, r, &l->body->instr[i].x, 1);
            reduce(l, r, i);
        }
    }
    if (r->root_count > 0) {
        fill_slots(l, r, r->root, r->root_count);
        run_pass_by(l, r, r->root[0], r->root, r->root_count, PASS_RESULT, walk);
    }
    for (uint32_t k = 0; k < l->analysis->result_count; k++) {
        if (!is_full(l, k)) {
            store_row_value(l, r, k);
        }
    }
}

/* ---- choice of kept values ---- */
/* The sums of pieces of all reductions, which a block keeps in its workspace. */
static void place_sums(sx_lower *l, rows *r)
{
    int64_t size = 0;
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        bool reduces = l->body->instr[i].kind == SX_BODY_REDUCE;
        size += reduces ? sum_bytes(l, r) * (r->cut.count + (r->cut.rest > 0)) : 0;
    }
    r->workspace = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE, size);
}

/* Counts the long functions that a pass for these values evaluates; `reduced`: those that a reduction needs. */
static void count_uses(const sx_lower *l, const rows *r, const uint32_t *value, uint32_t count,
                       uint32_t uses[], bool reduced[])
{
    bool inside[SX_FUSED_INSTRS_MAX];
    bool edge[SX_FUSED_INSTRS_MAX];
    closure(l, r, value, count, inside, edge);
    for (uint32_t i = 0; i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (inside[i] && in->kind == SX_BODY_APPLY &&
            sx_dtype_class_of(in->dtype) == SX_CLASS_FLOAT && sx_op_is_long(in->op)) {
            uses[i]++;
            if (reduced != NULL) {
                reduced[i] = true;
            }
        }
    }
}

/* Warps of a block keep nothing: what one of them has made is in no other one's registers, and to make it again takes
 * less than to read it from memory once more. */
static void choose_slots(sx_lower *l, rows *r)
{
    if (r->warps > 0) {
        place_sums(l, r);
        return;
    }
    uint32_t uses[SX_FUSED_INSTRS_MAX] = {0};
    bool reduced[SX_FUSED_INSTRS_MAX] = {false};
    uint32_t count = l->body->instr_count;
    for (uint32_t p = 0; p < count; p++) {
        if (l->body->instr[p].kind == SX_BODY_REDUCE) {
            count_uses(l, r, &l->body->instr[p].x, 1, uses, reduced);
        }
    }
    count_uses(l, r, r->root, r->root_count, uses, NULL);
    int64_t elements = r->along ? 1 : l->lanes;
    for (uint32_t k = 0; k < r->axis_count; k++) {
        elements *= l->view.extent[r->axis[k]];
    }
    uint32_t accumulators = SX_ROW_ACCUMULATORS / r->share * r->halves;
    bool crowded = 2 * accumulators >= l->unit->registers;
    int64_t size = 0;
    bool result_free = false;
    for (uint32_t k = r->root_count; k-- > 0;) {
        if (sx_lower_is_lane_float(l, l->analysis->root_dtype[r->result[k]])) {
            r->slot_result = r->result[k];
            result_free = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        bool wanted = uses[i] >= 2 || (uses[i] == 1 && reduced[i] && crowded);
        if (wanted && r->holds) {
            r->slot[i] = SLOT_REGISTER;
        } else if (wanted && result_free) {
            r->slot[i] = SLOT_RESULT;
            result_free = false;
        } else if (wanted && elements <= (KEPT_BYTES_MAX - size) / l->kernel->lane_bytes) {
            r->slot[i] = SLOT_WORKSPACE;
            r->slot_offset[i] = size;
            size += l->kernel->lane_bytes * elements;
        }
    }
    if (size > 0) {
        r->workspace = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE, size);
    }
}

static void emit_point(sx_lower *l, int64_t length)
{
    const rows *r = l->self;
    uint32_t d = l->vector_dim;
    l->valid = r->along ? l->lanes : 1;
    if (r->along || d == SX_NO_DIM) {
        emit_one_row(l);
        return;
    }
    int64_t start = l->at[d].constant;
    int64_t whole = length / l->lanes;
    if (whole > 0) {
        bool opened = sx_lower_open(l, d, whole, l->lanes);
        l->valid = l->lanes;
        emit_one_row(l);
        sx_lower_close(l, d, opened);
    }
    if (length % l->lanes > 0) {
        l->at[d].constant = start + whole * l->lanes;
        l->valid = (uint32_t)(length % l->lanes);
        emit_one_row(l);
        l->at[d].constant = start;
    }
}

sx_code sx_lower_row(sx_lower *l)
{
    rows r;
    memset(&r, 0, sizeof(r));
    uint32_t outer[SX_RANK_MAX];
    uint32_t outer_count = 0;
    int64_t extent[SX_RANK_MAX + 1];
    r.lanes = SX_ROW_BYTES / l->kernel->lane_bytes;
    r.halves = l->lanes < r.lanes ? r.lanes / l->lanes : 1;
    r.share = l->lanes > r.lanes ? l->lanes / r.lanes : 1;
    r.along = l->analysis->along;
    for (uint32_t k = 0; k < l->analysis->result_count; k++) {
        if (is_full(l, k)) {
            r.root[r.root_count] = l->analysis->root[k];
            r.result[r.root_count++] = k;
        }
    }
    r.reduced = l->analysis->reduced;
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->view.reduced[d]) {
            extent[r.axis_count] = l->view.extent[d];
            r.axis[r.axis_count++] = d;
        } else if (r.along || d != l->vector_dim) {
            outer[outer_count++] = d;
        }
    }
    bool cuts = r.axis_count == 1;
    int64_t length = r.axis_count > 0 ? extent[r.axis_count - 1] : 1;
    r.cut = cuts ? sx_row_cut(length, l->kernel->lane_bytes) : (sx_row_pieces){1, length, 0};
    r.length = length;
    SX_TRY(sx_lower_row_match(l, &r));
    extent[r.axis_count] = r.along || r.cut.count > 1 ? r.cut.count : 0;
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_ROW, extent, r.axis_count + 1);
    l->self = &r;
    choose_slots(l, &r);
    uint32_t inner = r.along ? SX_NO_DIM : l->vector_dim;
    int64_t tile = sx_schedule_step(l->schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    int64_t points = sx_schedule_step(l->schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    tile = sx_ceil_div_i64(tile, l->lanes) * l->lanes;
    return sx_lower_parts(l, outer, outer_count, points, inner, tile, emit_point);
}
