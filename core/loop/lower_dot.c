/* lower_dot.c - contractions: a block of rows x vectors of columns in registers, one fused multiply-add chain
 * per element over ascending k from +0 (so that no choice of the schedule can change a bit), and the program
 * behind it applied to the block.
 *
 * The last dimension of the result runs across the lanes (n); the largest dimension that only the left
 * argument has gives the rows of the block (m); all others are grid or loops. ceil(M / block_m) strips of
 * nearly equal height: two heights at most. A long program (exp, tanh ...) or one that needs more registers
 * than the block leaves runs as a second pass over the block just written: a store and a load of lanes are exact. */
#include "core/loop/lower.h"

#include <string.h>

#define BLOCK_MAX 32
#define LINE_BYTES 64
#define NEAR_BYTES 16384 /* a panel that stays in the first level of the caches while strips pass */
/* How far in front of its use a line of a larger panel is asked for. A panel is one stream, of which a step reads a few
 * lines; what the processor fetches of one stream by itself comes late from the level that cores share. */
#define AHEAD_BYTES 4096

typedef struct {
    uint32_t m_dim, n_dim; /* view dimensions or SX_NO_DIM */
    bool packed;
    bool far;                    /* panels come from behind the first level */
    uint32_t klist[SX_RANK_MAX]; /* reduced dimensions, outermost first */
    uint32_t kcount;
    int64_t height; /* of the strips of this part */
    int64_t strips; /* per grid point */
    int64_t panel;  /* columns */
    int64_t unroll;
    int64_t block; /* rows of the register block, at most */
    bool second_pass;
    uint32_t scratch; /* buffer of raw blocks if the result is narrower than a lane */
    uint32_t acc[SX_BLOCK_REGISTERS_MAX];
} contraction;

static void set_at(sx_lower *l, uint32_t dim, int64_t constant)
{
    if (dim != SX_NO_DIM) {
        l->at[dim].constant = constant;
    }
}

static int64_t get_at(const sx_lower *l, uint32_t dim)
{
    return dim == SX_NO_DIM ? 0 : l->at[dim].constant;
}

static uint32_t valid_lanes(const sx_lower *l, int64_t columns, uint32_t v)
{
    return (uint32_t)sx_min_i64(l->lanes, columns - (int64_t)v * l->lanes);
}

/* Vector `v` of the right argument's columns at the position. */
static uint32_t load_right(sx_lower *l, const contraction *c, int64_t columns, uint32_t v)
{
    if (c->packed) { /* panels hold lanes */
        sx_addr a = sx_lower_arg_address(l, l->analysis->rhs);
        int64_t at = (int64_t)l->kernel->lane_bytes * v * l->lanes;
        a.offset += at;
        if (c->far && at % LINE_BYTES == 0) {
            sx_addr ahead = a;
            ahead.offset += AHEAD_BYTES;
            (void)sx_loop_op(&l->b, SX_LOP_PREFETCH, SX_NO_REG, &ahead, SX_NO_REG, SX_NO_REG,
                             SX_NO_REG, 0, 0);
        }
        return sx_loop_op(&l->b, SX_LOP_LOAD, SX_NO_REG, &a, SX_NO_REG, SX_NO_REG, SX_NO_REG,
                          l->lanes, 0);
    }
    int64_t start = get_at(l, c->n_dim);
    set_at(l, c->n_dim, start + (int64_t)v * l->lanes);
    l->valid = valid_lanes(l, columns, v);
    uint32_t r = sx_lower_load(l, l->analysis->rhs);
    set_at(l, c->n_dim, start);
    return r;
}

/* acc += x * y: of floats in one rounding, of integers modulo the lane. */
static void add_product(sx_lower *l, uint32_t acc, uint32_t x, uint32_t y)
{
    sx_dtype dtype = l->body->instr[l->analysis->dot].dtype;
    uint32_t none = SX_NO_REG;
    if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
        (void)sx_loop_op(&l->b, SX_LOP_FMA, acc, NULL, x, y, acc, 0, 0);
        return;
    }
    sx_loop_step step = {.op = SX_OP_MULTIPLY, .from = dtype, .to = dtype};
    uint32_t product = dtype == SX_I64
                           ? sx_loop_typed(&l->b, &step, x, y, none)
                           : sx_loop_op(&l->b, SX_LOP_IMUL, none, NULL, x, y, none, 0, 0);
    (void)sx_loop_op(&l->b, SX_LOP_IADD, acc, NULL, acc, product, none, 0, 0);
}

/* One step of k for the whole block. */
static void multiply_step(sx_lower *l, const contraction *c, int64_t columns, uint32_t vectors)
{
    uint32_t right[BLOCK_MAX];
    for (uint32_t v = 0; v < vectors; v++) {
        right[v] = load_right(l, c, columns, v);
    }
    int64_t row = get_at(l, c->m_dim);
    int64_t column = get_at(l, c->n_dim);
    for (int64_t r = 0; r < c->height; r++) {
        set_at(l, c->m_dim, row + r);
        uint32_t left = 0;
        for (uint32_t v = 0; v < vectors; v++) {
            if (v == 0 || l->analysis->lhs_by_lane) {
                set_at(l, c->n_dim, column + (int64_t)v * l->lanes);
                l->valid = valid_lanes(l, columns, v);
                left = sx_lower_load(l, l->analysis->lhs);
            }
            uint32_t acc = c->acc[r * vectors + v];
            add_product(l, acc, left, right[v]);
        }
        set_at(l, c->n_dim, column);
    }
    set_at(l, c->m_dim, row);
}

/* The accumulators of a block over all steps of k. */
static void accumulate(sx_lower *l, contraction *c, int64_t columns, uint32_t vectors)
{
    for (uint32_t i = 0; i < c->height * vectors; i++) {
        c->acc[i] = sx_loop_bits(&l->b, 0);
    }
    if (c->kcount == 0) {
        multiply_step(l, c, columns, vectors);
        return;
    }
    bool opened[SX_RANK_MAX];
    for (uint32_t k = 0; k + 1 < c->kcount; k++) {
        opened[k] = sx_lower_open(l, c->klist[k], l->view.extent[c->klist[k]], 1);
    }
    uint32_t inner = c->klist[c->kcount - 1];
    int64_t extent = l->view.extent[inner];
    int64_t unroll = sx_min_i64(c->unroll, extent);
    int64_t trip = extent / unroll;
    bool main_loop = sx_lower_open(l, inner, trip, unroll);
    for (int64_t u = 0; u < unroll; u++) {
        l->at[inner].constant = u;
        multiply_step(l, c, columns, vectors);
    }
    sx_lower_close(l, inner, main_loop);
    for (int64_t k = trip * unroll; k < extent; k++) {
        l->at[inner].constant = k;
        multiply_step(l, c, columns, vectors);
    }
    l->at[inner].constant = 0;
    for (uint32_t k = c->kcount - 1; k-- > 0;) {
        sx_lower_close(l, c->klist[k], opened[k]);
    }
}

static void multiply(sx_lower *l, contraction *c, int64_t columns, uint32_t vectors)
{
    sx_dtype dtype = l->body->instr[l->analysis->dot].dtype;
    accumulate(l, c, columns, vectors);
    for (uint32_t i = 0; i < c->height * vectors; i++) {
        c->acc[i] = sx_lower_rounded(l, dtype, c->acc[i]);
    }
}

/* Where the raw value of vector `v` of row `r` waits for the second pass; `row_loop` is the loop variable over
 * rows or SX_NO_DIM. */
static sx_addr raw_address(const sx_lower *l, const contraction *c, uint32_t vectors, int64_t r,
                           uint32_t v, uint32_t row_loop)
{
    if (sx_lower_is_lane_float(l, l->out_dtype)) {
        return sx_lower_out_address(l);
    }
    int64_t vector = (int64_t)l->kernel->lane_bytes * l->lanes;
    sx_addr a = {.buffer = c->scratch, .index_reg = SX_NO_REG};
    a.offset = vector * (r * vectors + v);
    if (row_loop != SX_NO_DIM) {
        a.coef[row_loop] = vector * vectors;
    }
    return a;
}

/* The result of the program for one vector of the block whose contraction is in register `raw`. */
static void finish_vector(sx_lower *l, uint32_t raw)
{
    uint32_t result = l->body->instr_count - 1;
    sx_lower_move(l);
    l->reg[l->analysis->dot] = raw;
    l->have[l->analysis->dot] = true;
    sx_lower_store_out(l, sx_lower_value(l, result), l->out_dtype);
    l->have[l->analysis->dot] = false;
}

/* Arguments that do not change along m are loaded once per vector of columns, if a register is left for one. */
static void pin_column_argument(sx_lower *l, const contraction *c, bool may)
{
    memset(l->pinned, 0, sizeof(l->pinned));
    sx_lower_move(l);
    for (uint32_t i = l->analysis->dot + 1; may && i < l->body->instr_count; i++) {
        const sx_instr *in = &l->body->instr[i];
        if (in->kind == SX_BODY_ARG && in->dtype != SX_BOOL &&
            (c->m_dim == SX_NO_DIM || (l->analysis->varies[i] >> c->m_dim & 1) == 0)) {
            (void)sx_lower_value(l, i);
            l->pinned[i] = true;
            may = false;
        }
    }
}

static void finish_in_registers(sx_lower *l, contraction *c, int64_t columns, uint32_t vectors)
{
    int64_t row = get_at(l, c->m_dim);
    int64_t column = get_at(l, c->n_dim);
    for (uint32_t v = 0; v < vectors; v++) {
        set_at(l, c->n_dim, column + (int64_t)v * l->lanes);
        l->valid = valid_lanes(l, columns, v);
        pin_column_argument(l, c, c->height > 1);
        for (int64_t r = 0; r < c->height; r++) {
            set_at(l, c->m_dim, row + r);
            finish_vector(l, c->acc[r * vectors + v]);
        }
        set_at(l, c->m_dim, row);
    }
    memset(l->pinned, 0, sizeof(l->pinned));
    set_at(l, c->n_dim, column);
}

static void finish_in_second_pass(sx_lower *l, contraction *c, int64_t columns, uint32_t vectors)
{
    int64_t row = get_at(l, c->m_dim);
    int64_t column = get_at(l, c->n_dim);
    for (int64_t r = 0; r < c->height; r++) {
        for (uint32_t v = 0; v < vectors; v++) {
            set_at(l, c->m_dim, row + r);
            set_at(l, c->n_dim, column + (int64_t)v * l->lanes);
            sx_addr a = raw_address(l, c, vectors, r, v, SX_NO_DIM);
            (void)sx_loop_op(&l->b, SX_LOP_STORE, SX_NO_REG, &a, c->acc[r * vectors + v], SX_NO_REG,
                             SX_NO_REG, valid_lanes(l, columns, v), 0);
        }
    }
    set_at(l, c->m_dim, row);
    uint32_t variable = SX_NO_DIM;
    bool opened = c->m_dim != SX_NO_DIM && sx_lower_open(l, c->m_dim, c->height, 1);
    if (opened) {
        variable = 3 + l->b.open_count - 1;
    }
    for (uint32_t v = 0; v < vectors; v++) {
        set_at(l, c->n_dim, column + (int64_t)v * l->lanes);
        l->valid = valid_lanes(l, columns, v);
        sx_addr a = raw_address(l, c, vectors, 0, v, variable);
        uint32_t raw = sx_loop_op(&l->b, SX_LOP_LOAD, SX_NO_REG, &a, SX_NO_REG, SX_NO_REG,
                                  SX_NO_REG, l->valid, 0);
        finish_vector(l, raw);
    }
    set_at(l, c->n_dim, column);
    if (opened) {
        sx_lower_close(l, c->m_dim, true);
    }
}

static void emit_block(sx_lower *l, int64_t columns)
{
    contraction *c = l->self;
    uint32_t vectors = (uint32_t)sx_ceil_div_i64(columns, l->lanes);
    multiply(l, c, columns, vectors);
    if (c->second_pass) {
        finish_in_second_pass(l, c, columns, vectors);
    } else {
        finish_in_registers(l, c, columns, vectors);
    }
}

static void emit_strips(sx_lower *l, int64_t columns)
{
    contraction *c = l->self;
    bool opened = c->m_dim != SX_NO_DIM && sx_lower_open(l, c->m_dim, c->strips, c->height);
    emit_block(l, columns);
    if (opened) {
        sx_lower_close(l, c->m_dim, true);
    }
}

/* One grid point: panels of columns outside, so that a panel of the right argument stays in cache while the
 * strips pass. */
static void emit_point(sx_lower *l, int64_t length)
{
    contraction *c = l->self;
    uint32_t n = c->n_dim;
    int64_t panels = length / c->panel;
    if (panels > 0) {
        bool opened = n != SX_NO_DIM && sx_lower_open(l, n, panels, c->panel);
        emit_strips(l, c->panel);
        if (opened) {
            sx_lower_close(l, n, true);
        }
    }
    if (length % c->panel != 0) {
        int64_t start = get_at(l, n);
        set_at(l, n, start + panels * c->panel);
        emit_strips(l, length % c->panel);
        set_at(l, n, start);
    }
}

/* Registers that the program needs beside the block, counted over its text; 99 for long sequences. */
static uint32_t registers_needed(const sx_lower *l)
{
    const sx_instr *instrs = l->body->instr;
    uint32_t last_use[SX_FUSED_INSTRS_MAX] = {0};
    uint32_t count = l->body->instr_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t operands =
            instrs[i].kind == SX_BODY_APPLY ? sx_op_info_of(instrs[i].op)->input_max : 0;
        const uint32_t operand[] = {instrs[i].x, instrs[i].y, instrs[i].z};
        for (uint32_t k = 0; k < operands; k++) {
            last_use[operand[k]] = i;
        }
    }
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (instrs[i].kind == SX_BODY_APPLY && sx_op_is_long(instrs[i].op)) {
            return UINT32_MAX;
        }
        uint32_t live = instrs[i].kind == SX_BODY_APPLY ? 2 : 1; // the result and one constant
        for (uint32_t j = 0; j < i; j++) {
            bool counted =
                j != l->analysis->dot && instrs[j].kind != SX_BODY_DOT && last_use[j] >= i;
            live += counted && !(instrs[j].dtype == SX_BOOL && l->unit->mask_registers);
        }
        most = live > most ? live : most;
    }
    return most + 1; // an argument kept per vector of columns
}

static const sx_level_form form[] = {
    {SX_ROLE_BATCH, SX_BIND_GRID},      {SX_ROLE_ROW, SX_BIND_GRID},
    {SX_ROLE_COLUMN, SX_BIND_GRID},     {SX_ROLE_COLUMN, SX_BIND_LOOP},
    {SX_ROLE_ROW, SX_BIND_LOOP},        {SX_ROLE_SUM, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_REGISTER},    {SX_ROLE_ROW, SX_BIND_REGISTER},
    {SX_ROLE_COLUMN, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_LANE},
};

static sx_code check_block(sx_lower *l, const contraction *c)
{
    SX_TRY(sx_schedule_match(l->cx, l->schedule, form, SX_COUNT(form), l->kernel->name));
    int64_t budget = sx_min_i64(l->unit->registers, SX_BLOCK_REGISTERS_MAX);
    int64_t vectors = c->panel / l->lanes;
    if (c->block > 31 || vectors > 31 || c->panel % l->lanes != 0 ||
        c->block * vectors + vectors + 2 > budget) {
        return SX_FAIL(
            l->cx, SX_LIMIT,
            "kernel %s: block of %lld rows x %lld columns needs more than %lld registers "
            "of %u lanes",
            l->kernel->name, (long long)c->block, (long long)c->panel, (long long)budget, l->lanes);
    }
    return SX_OK;
}

/* Strips of one height, `count` of them from row `start`. */
static sx_code emit_height(sx_lower *l, contraction *c, int64_t start, int64_t count,
                           int64_t height, int64_t tile_m, int64_t tile_n)
{
    c->height = height;
    int64_t group = sx_max_i64(1, sx_min_i64(count, tile_m / height));
    int64_t extent = c->n_dim == SX_NO_DIM ? 1 : l->view.extent[c->n_dim];
    for (uint32_t variant = 0; variant < 4; variant++) {
        sx_part_plan plan = {.own = SX_NO_DIM};
        bool row_rest = variant / 2 != 0;
        bool column_rest = variant % 2 != 0;
        int64_t groups = row_rest ? count % group != 0 : count / group;
        int64_t tiles = column_rest ? extent % tile_n != 0 : extent / tile_n;
        if (groups == 0 || tiles == 0) {
            continue;
        }
        c->strips = row_rest ? count % group : group;
        plan.axis[0] =
            (sx_grid_axis){c->m_dim, start + (row_rest ? count / group * group * height : 0),
                           groups, group * height};
        plan.axis[1] =
            (sx_grid_axis){c->n_dim, column_rest ? extent / tile_n * tile_n : 0, tiles, tile_n};
        for (uint32_t d = 0; d < l->view.rank; d++) {
            bool outer = !l->view.reduced[d] && d != c->m_dim && d != c->n_dim;
            if (outer && (plan.own == SX_NO_DIM || l->view.extent[d] > l->view.extent[plan.own])) {
                plan.own = d;
            }
        }
        for (uint32_t d = 0; d < l->view.rank; d++) {
            if (!l->view.reduced[d] && d != c->m_dim && d != c->n_dim && d != plan.own) {
                plan.loop[plan.loop_count] = d;
                plan.trip[plan.loop_count++] = l->view.extent[d];
            }
        }
        SX_TRY(sx_lower_part(l, &plan, column_rest ? extent % tile_n : tile_n, emit_point));
    }
    return SX_OK;
}

/* Raw blocks wait in the workspace for a second pass where the result cannot hold them. */
static void plan_second_pass(sx_lower *l, contraction *c, uint32_t registers)
{
    c->second_pass = registers_needed(l) > l->unit->registers - 1 - registers;
    if (c->second_pass && !sx_lower_is_lane_float(l, l->out_dtype)) {
        c->scratch = sx_kernel_add_buffer(l->kernel, SX_BUFFER_WORKSPACE,
                                          (int64_t)l->kernel->lane_bytes * registers * l->lanes);
    }
}

sx_code sx_lower_dot(sx_lower *l)
{
    const sx_schedule *schedule = l->schedule;
    contraction c = {.m_dim = l->analysis->row, .n_dim = l->analysis->column};
    c.unroll = sx_min_i64(sx_schedule_step(schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0), 16);
    c.block = sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_LOOP, 0);
    c.panel = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    SX_TRY(check_block(l, &c));
    c.packed = sx_schedule_stage(schedule, l->analysis->rhs) != NULL;
    c.far = l->analysis->extent[SX_ROLE_SUM] * c.panel * l->kernel->lane_bytes > NEAR_BYTES;
    if (c.packed) {
        int64_t bytes;
        SX_TRY(sx_lower_pack_view(l->cx, l->analysis, c.panel, &l->view, &bytes));
    }
    for (uint32_t d = 0; d < l->view.rank; d++) {
        if (l->view.reduced[d]) {
            c.klist[c.kcount++] = d;
        }
    }
    l->self = &c;
    l->kernel->numerics = sx_lower_numerics(l, SX_KERNEL_DOT, &l->analysis->extent[SX_ROLE_SUM], 1);
    int64_t m = c.m_dim == SX_NO_DIM ? 1 : l->view.extent[c.m_dim];
    int64_t n = c.n_dim == SX_NO_DIM ? 1 : l->view.extent[c.n_dim];
    int64_t strips = sx_ceil_div_i64(m, c.block);
    int64_t low = m / strips;
    int64_t tall = m % strips;
    int64_t vectors = sx_min_i64(c.panel / l->lanes, sx_ceil_div_i64(n, l->lanes));
    plan_second_pass(l, &c, (uint32_t)(low + (tall > 0)) * (uint32_t)vectors);
    int64_t tile_n = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    tile_n = sx_min_i64(sx_ceil_div_i64(tile_n, c.panel) * c.panel, n);
    int64_t tile_m = sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    if (tall > 0) {
        SX_TRY(emit_height(l, &c, 0, tall, low + 1, tile_m, tile_n));
    }
    return emit_height(l, &c, tall * (low + 1), strips - tall, low, tile_m, tile_n);
}
