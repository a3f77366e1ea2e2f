/* lower_index.c - scatter, dynamic_slice and dynamic_update_slice: moves whose places are operands.
 *
 * Every place of the result is stored once, at an address that is known: what the operands name are places that are
 * read, and conditions. So grid points stay independent, and nothing is added up by several of them.
 *
 *   dynamic_slice    rows of the box copied, from a base that is the sum of the clamped starts
 *   dynamic_update   each row of x is read, and the row of the update that would lie there (of those outside the
 *                    nearest one); a comparison of integers chooses. A row of x is read before it is stored, by the
 *                    point that stores it: the result may lie where x lies
 *   scatter          a place of the result belongs to one lane, which walks all indices in order and combines the
 *                    updates that name its row: rows x indices steps, no atomic operations, the same bits anywhere
 *   scatter, linear  some columns of all rows are copied to the workspace, as they are accumulated, with a row more at
 *                    each end for what is out of range; then each update is combined with the row that its index
 *                    names, in order, and the rows go to the result: rows + indices steps, the same bits. Where lanes
 *                    are threads the first form stays: a warp has no workspace of that size */
#include "core/loop/lower.h"

#include <string.h>

/* A dimension of the result, or several neighbours that are walked as one. */
typedef struct {
    int64_t extent;
    /* How many of them the box has: the result of a slice, or the update. */
    int64_t box;
    /* How many of them are walked. */
    int64_t trip;
    /* The operand that is its start; 0: it has none, or the only start is 0. */
    uint32_t start;
    /* Bytes from one index to the next, in x and in the box. */
    int64_t stride, box_stride;
    /* Where the walk stands. */
    sx_affine at;
} axis;

typedef struct indexed indexed;
/* `column`: where a tile of the row begins, in units; `units`: how many it has. */
typedef void (*row_body)(indexed *m, const sx_affine *column, int64_t units);
struct indexed {
    sx_ctx *cx;
    sx_kernel *kernel;
    sx_loop_builder b;
    const sx_schedule *schedule;
    const char *name;
    const sx_type *input;
    uint32_t input_count;
    sx_dtype dtype;
    /* Bytes of what a lane takes, and how it lies in memory. */
    int64_t unit;
    sx_mem mem;
    /* The dimensions that are walked row by row, outermost first; behind them lies the row. */
    axis axis[SX_RANK_MAX + 1];
    uint32_t count;
    /* Units of a row. */
    int64_t row;
    /* Of scatter. */
    sx_reducer reducer;
    int64_t picks, rows;
    /* The row runs along the axis that the indices name. */
    bool along;
    /* Of a linear one: columns of a row of the workspace, as many as are walked at once. */
    int64_t width;
    /* Integer registers of the part: of each axis its start, negated; of a slice the base. */
    uint32_t negated[SX_RANK_MAX + 1];
    uint32_t base;
    /* A mask: the row lies in the update; SX_NO_REG: every row does. */
    uint32_t inside;
};

/* ---- integers ---- */
static uint32_t integer(indexed *m, sx_lop op, uint32_t x, int64_t n)
{
    return sx_loop_op(&m->b, op, SX_NO_REG, NULL, x, SX_NO_REG, SX_NO_REG, 0, n);
}

static uint32_t added(indexed *m, uint32_t x, uint32_t y)
{
    uint32_t none = SX_NO_REG;
    return x == none ? y : sx_loop_op(&m->b, SX_LOP_SADD, none, NULL, x, y, none, 0, 0);
}

static uint32_t loaded(indexed *m, uint32_t operand, const sx_addr *addr)
{
    bool wide = m->input[operand].dtype == SX_I64;
    uint32_t none = SX_NO_REG;
    return sx_loop_op(&m->b, wide ? SX_LOP_SLOAD64 : SX_LOP_SLOAD32, none, addr, none, none, none,
                      0, 0);
}

/* An affine position as an integer register. */
static uint32_t position(indexed *m, const sx_affine *at)
{
    uint32_t none = SX_NO_REG;
    uint32_t sum = none;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (at->coef[v] != 0) {
            uint32_t s = sx_loop_op(&m->b, SX_LOP_SVAR, none, NULL, none, none, none, v, 0);
            s = at->coef[v] == 1 ? s : integer(m, SX_LOP_SMUL, s, at->coef[v]);
            sum = added(m, sum, s);
        }
    }
    if (sum == none) { /* nothing moves: the grid has a variable, times nothing */
        sum = sx_loop_op(&m->b, SX_LOP_SVAR, none, NULL, none, none, none, 0, 0);
        sum = integer(m, SX_LOP_SMUL, sum, 0);
    }
    return at->constant == 0 ? sum : integer(m, SX_LOP_SOFF, sum, at->constant);
}

static uint32_t to_lanes(indexed *m, uint32_t s)
{
    return sx_loop_op(&m->b, SX_LOP_S2V, SX_NO_REG, NULL, s, SX_NO_REG, SX_NO_REG, 0, 0);
}

static uint32_t equal(indexed *m, uint32_t x, uint32_t y)
{
    return sx_loop_op(&m->b, SX_LOP_ICMP, SX_NO_REG, NULL, x, y, SX_NO_REG, SX_EQ, 0);
}

static uint32_t chosen(indexed *m, uint32_t dst, uint32_t mask, uint32_t x, uint32_t y)
{
    return sx_loop_op(&m->b, SX_LOP_BLEND, dst, NULL, mask, x, y, 0, 0);
}

/* ---- addresses ---- */
static void move_by(sx_addr *addr, const sx_affine *at, int64_t stride)
{
    addr->offset += at->constant * stride;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        addr->coef[v] += at->coef[v] * stride;
    }
}

/* The first unit of a tile in a buffer that lies as x does, or as the box does. */
static sx_addr row_address(const indexed *m, uint32_t buffer, bool box, const sx_affine *column)
{
    sx_addr addr = {.buffer = buffer, .index_reg = SX_NO_REG};
    for (uint32_t k = 0; k < m->count; k++) {
        const axis *a = &m->axis[k];
        if (!box || a->start == 0) {
            move_by(&addr, &a->at, box ? a->box_stride : a->stride);
        }
    }
    move_by(&addr, column, m->unit);
    return addr;
}

static uint32_t load_units(indexed *m, const sx_addr *addr, int64_t done, int64_t units)
{
    sx_addr from = *addr;
    from.offset += done * m->unit;
    return sx_loop_access(&m->b, SX_LOP_LOAD, m->mem, &from, SX_NO_REG, (uint32_t)units, 0);
}

static void store_units(indexed *m, const sx_addr *addr, int64_t done, uint32_t value,
                        int64_t units)
{
    sx_addr to = *addr;
    to.offset += done * m->unit;
    (void)sx_loop_access(&m->b, SX_LOP_STORE, m->mem, &to, value, (uint32_t)units, 0);
}

/* ---- the walk ---- */
/* Iterations over `extent` where there are several. */
static bool open_axis(indexed *m, sx_affine *at, int64_t extent)
{
    if (extent > 1) {
        at->coef[sx_loop_open(&m->b, extent)] = 1;
    }
    return extent > 1;
}

/* One part: `rows` of the last axis a point from `first` on, and so of the columns. */
static sx_code walk_part(indexed *m, const int64_t rows[3], const int64_t columns[3],
                         void (*prologue)(indexed *m), row_body body)
{
    enum { FIRST, POINTS, LENGTH };
    sx_affine column = {.constant = columns[FIRST]};
    uint32_t opened = 0;
    uint32_t last = m->count == 0 ? 0 : m->count - 1;
    sx_loop_begin_part(&m->b, m->cx, m->kernel, last > 0 ? m->axis[0].trip : 1, rows[POINTS],
                       columns[POINTS]);
    column.coef[2] = columns[POINTS] > 1 ? columns[LENGTH] : 0;
    if (prologue != NULL) {
        prologue(m);
    }
    for (uint32_t k = 0; k < m->count; k++) {
        axis *a = &m->axis[k];
        a->at = (sx_affine){0};
        if (k == last) {
            a->at.constant = rows[FIRST];
            a->at.coef[1] = rows[POINTS] > 1 ? rows[LENGTH] : 0;
            opened += open_axis(m, &a->at, rows[LENGTH]);
        } else if (k == 0) {
            a->at.coef[0] = a->trip > 1;
        } else {
            opened += open_axis(m, &a->at, a->trip);
        }
    }
    body(m, &column, columns[LENGTH]);
    while (opened-- > 0) {
        sx_loop_close(&m->b);
    }
    return sx_loop_end_part(&m->b);
}

/* `whole` in pieces of `piece`: those that are full, and the rest. */
static bool cut(int64_t whole, int64_t piece, uint32_t rest, int64_t out[3])
{
    out[0] = rest == 0 ? 0 : whole / piece * piece;
    out[1] = rest == 0 ? whole / piece : whole % piece != 0;
    out[2] = rest == 0 ? piece : whole % piece;
    return out[1] > 0;
}

static sx_code walk_rows(indexed *m, void (*prologue)(indexed *m), row_body body)
{
    int64_t rows = m->count == 0 ? 1 : m->axis[m->count - 1].trip;
    int64_t some = sx_schedule_step(m->schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t tile = sx_schedule_step(m->schedule, SX_ROLE_COLUMN, SX_BIND_GRID, 0);
    some = sx_max_i64(1, sx_min_i64(some, rows));
    tile = sx_max_i64(1, sx_min_i64(tile, m->row));
    for (uint32_t k = 0; k < 4; k++) {
        int64_t of_rows[3], of_columns[3];
        if (cut(rows, some, k / 2, of_rows) && cut(m->row, tile, k % 2, of_columns)) {
            SX_TRY(walk_part(m, of_rows, of_columns, prologue, body));
        }
    }
    return SX_OK;
}

/* A tile in blocks of vectors, as many in straight line as the schedule says; `block` gets the units of each. */
static void walk_columns(indexed *m, const sx_affine *column, int64_t units, row_body block)
{
    int64_t step = sx_schedule_step(m->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t trip = units / step;
    if (trip > 0) {
        sx_affine at = *column;
        if (trip > 1) {
            at.coef[sx_loop_open(&m->b, trip)] = step;
        }
        block(m, &at, step);
        if (trip > 1) {
            sx_loop_close(&m->b);
        }
    }
    if (units % step > 0) {
        sx_affine at = *column;
        at.constant += trip * step;
        block(m, &at, units % step);
    }
}

/* ---- what all have ---- */
static sx_code begin(indexed *m, sx_ctx *cx, const sx_lowering *w)
{
    *m = (indexed){.cx = cx,
                   .schedule = w->schedule,
                   .name = w->name,
                   .input = w->input,
                   .input_count = w->input_count,
                   .dtype = w->result->dtype};
    for (uint32_t k = 0; k <= w->input_count; k++) {
        const sx_type *type = k < w->input_count ? &w->input[k] : w->result;
        sx_dim elements;
        if (!sx_type_is_static(type) || !sx_type_elements(type, &elements) || elements.scale < 1) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: shape is symbolic or empty", w->name);
        }
        for (uint32_t d = 0; d < type->rank; d++) {
            if (type->dim[d].scale > INT32_MAX / 2) {
                return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: extent %lld, at most %d", w->name,
                               (long long)type->dim[d].scale, INT32_MAX / 2);
            }
        }
    }
    return sx_lower_match_map(cx, w->schedule, w->name);
}

static sx_code check_indices(const indexed *m, uint32_t first, uint32_t end)
{
    for (uint32_t k = first; k < end; k++) {
        if (m->input[k].dtype != SX_I32 && m->input[k].dtype != SX_I64) {
            return SX_FAIL(m->cx, SX_UNIMPLEMENTED, "kernel %s: places of %s", m->name,
                           sx_dtype_name(m->input[k].dtype));
        }
    }
    return SX_OK;
}

static sx_code make_kernel(indexed *m, const sx_lowering *w, uint32_t lane_bytes)
{
    SX_TRY(sx_kernel_make(m->cx, w->name, sx_schedule_lanes(w->schedule), lane_bytes, &m->kernel));
    for (uint32_t k = 0; k <= w->input_count; k++) {
        const sx_type *type = k < w->input_count ? &w->input[k] : w->result;
        int64_t size = sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
        (void)sx_kernel_add_buffer(m->kernel, k < w->input_count ? SX_BUFFER_IN : SX_BUFFER_OUT,
                                   size);
        m->kernel->bytes += (double)size;
    }
    return SX_OK;
}

static sx_code finish(indexed *m, const char *plan, sx_kernel **kernel)
{
    m->kernel->numerics = sx_hash64(sx_span_of(plan), m->dtype);
    SX_TRY(sx_kernel_check(m->cx, m->kernel));
    *kernel = m->kernel;
    return SX_OK;
}

/* ---- dynamic slices and updates ---- */
/* The dimensions of x and of the box inside of it, neighbours without a start as one, those without a start behind
 * the last that has one as the row. `first` is the operand of the first start. */
static void find_axes(indexed *m, const sx_attr *attr, const sx_type *x, const sx_type *box,
                      uint32_t first)
{
    uint32_t next = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        axis a = {.extent = x->dim[d].scale, .box = box->dim[d].scale};
        if (next < attr->dims.count && attr->dims.v[next] == (int64_t)d) {
            a.start = a.box < a.extent ? first + next : 0;
            next++;
        }
        axis *before = m->count == 0 ? NULL : &m->axis[m->count - 1];
        if (a.extent == 1) {
            continue;
        }
        if (before != NULL && before->start == 0 && a.start == 0) {
            before->extent *= a.extent;
            before->box *= a.box;
        } else {
            m->axis[m->count++] = a;
        }
    }
    m->row = 1;
    if (m->count > 0 && m->axis[m->count - 1].start == 0) {
        m->row = m->axis[--m->count].extent;
    }
    int64_t bytes = sx_dtype_bytes(m->dtype);
    int64_t stride = m->row * bytes;
    int64_t box_stride = stride;
    m->unit = sx_move_unit(m->dtype, stride);
    m->mem = m->unit == 4 ? SX_MEM_LANE : m->unit == 2 ? SX_MEM_U16 : SX_MEM_U8;
    m->row = stride / m->unit;
    for (uint32_t k = m->count; k-- > 0;) {
        m->axis[k].stride = stride;
        m->axis[k].box_stride = box_stride;
        stride *= m->axis[k].extent;
        box_stride *= m->axis[k].box;
    }
}

/* The start of an axis, so that the box lies inside. */
static uint32_t clamped_start(indexed *m, const axis *a)
{
    sx_addr addr = {.buffer = a->start, .index_reg = SX_NO_REG};
    return integer(m, SX_LOP_SCLAMP, loaded(m, a->start, &addr), a->extent - a->box + 1);
}

static void slice_prologue(indexed *m)
{
    m->base = SX_NO_REG;
    for (uint32_t k = 0; k <= m->count; k++) { /* the last one lies in the row */
        if (m->axis[k].start != 0) {
            uint32_t s = clamped_start(m, &m->axis[k]);
            m->base = added(m, m->base, integer(m, SX_LOP_SMUL, s, m->axis[k].stride));
        }
    }
}

static void slice_block(indexed *m, const sx_affine *column, int64_t units)
{
    sx_addr from = {.buffer = 0, .index_reg = m->base};
    sx_addr to = {.buffer = m->input_count, .index_reg = SX_NO_REG};
    for (uint32_t k = 0; k < m->count; k++) {
        move_by(&from, &m->axis[k].at, m->axis[k].stride);
        move_by(&to, &m->axis[k].at, m->axis[k].box_stride);
    }
    move_by(&from, column, m->unit);
    move_by(&to, column, m->unit);
    for (int64_t done = 0; done < units; done += m->kernel->lanes) {
        int64_t some = sx_min_i64(m->kernel->lanes, units - done);
        store_units(m, &to, done, load_units(m, &from, done, some), some);
    }
}

static void slice_row(indexed *m, const sx_affine *column, int64_t units)
{
    walk_columns(m, column, units, slice_block);
}

sx_code sx_lower_dynamic_slice(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel)
{
    indexed *m = SX_NEW(cx, indexed);
    if (m == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(w->op == SX_OP_DYNAMIC_SLICE && w->input_count >= 2);
    SX_TRY(begin(m, cx, w));
    SX_TRY(check_indices(m, 1, w->input_count));
    SX_TRY(make_kernel(m, w, 4));
    m->kernel->bytes = 2 * (double)m->kernel->buffer[w->input_count].size;
    find_axes(m, w->attr, &w->input[0], w->result, 1);
    for (uint32_t k = 0; k < m->count; k++) {
        m->axis[k].trip = m->axis[k].box;
    }
    if (m->count > 0) { /* the box lies in one piece along the last start and behind it */
        m->row *= m->axis[--m->count].box;
    }
    SX_TRY(walk_rows(m, slice_prologue, slice_row));
    return finish(m, "move", kernel);
}

static void update_prologue(indexed *m)
{
    for (uint32_t k = 0; k < m->count; k++) {
        if (m->axis[k].start != 0) {
            m->negated[k] = integer(m, SX_LOP_SMUL, clamped_start(m, &m->axis[k]), -1);
        }
    }
}

/* Where the row lies in the update: `inside` is set where it lies there at all, `base` is the place, or the nearest. */
static void find_row(indexed *m)
{
    m->base = m->inside = SX_NO_REG;
    for (uint32_t k = 0; k < m->count; k++) {
        const axis *a = &m->axis[k];
        if (a->start == 0) {
            continue;
        }
        uint32_t at = added(m, position(m, &a->at), m->negated[k]);
        uint32_t near = integer(m, SX_LOP_SCLAMP, at, a->box);
        uint32_t wanted = to_lanes(m, at);
        uint32_t had = to_lanes(m, near);
        uint32_t same = equal(m, wanted, had);
        bool first = m->inside == SX_NO_REG;
        m->inside = first ? same
                          : sx_loop_op(&m->b, SX_LOP_MAND, SX_NO_REG, NULL, m->inside, same,
                                       SX_NO_REG, 0, 0);
        m->base = added(m, m->base, integer(m, SX_LOP_SMUL, near, a->box_stride));
    }
}

static void update_block(indexed *m, const sx_affine *column, int64_t units)
{
    sx_addr x = row_address(m, 0, false, column);
    sx_addr update = row_address(m, 1, true, column);
    sx_addr to = row_address(m, m->input_count, false, column);
    update.index_reg = m->base;
    for (int64_t done = 0; done < units; done += m->kernel->lanes) {
        int64_t some = sx_min_i64(m->kernel->lanes, units - done);
        uint32_t value = load_units(m, &update, done, some);
        if (m->inside != SX_NO_REG) { /* else the update is all there is */
            value = chosen(m, SX_NO_REG, m->inside, value, load_units(m, &x, done, some));
        }
        store_units(m, &to, done, value, some);
    }
}

static void update_row(indexed *m, const sx_affine *column, int64_t units)
{
    find_row(m);
    walk_columns(m, column, units, update_block);
}

sx_code sx_lower_dynamic_update(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel)
{
    indexed *m = SX_NEW(cx, indexed);
    if (m == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(w->op == SX_OP_DYNAMIC_UPDATE_SLICE && w->input_count >= 3);
    SX_TRY(begin(m, cx, w));
    SX_TRY(check_indices(m, 2, w->input_count));
    SX_TRY(make_kernel(m, w, 4));
    find_axes(m, w->attr, &w->input[0], &w->input[1], 2);
    for (uint32_t k = 0; k < m->count; k++) {
        m->axis[k].trip = m->axis[k].extent;
    }
    SX_TRY(walk_rows(m, update_prologue, update_row));
    return finish(m, "move", kernel);
}

/* ---- scatter ---- */
/* [before, axis, row]; where the axis is the last dimension it is the row, and lanes run along it. */
static void find_rows(indexed *m, const sx_attr *attr)
{
    const sx_type *x = &m->input[0];
    int64_t bytes = sx_dtype_bytes(m->dtype);
    int64_t before = 1;
    m->row = 1;
    for (uint32_t d = 0; d < x->rank; d++) {
        before *= d < (uint32_t)attr->axis ? x->dim[d].scale : 1;
        m->row *= d > (uint32_t)attr->axis ? x->dim[d].scale : 1;
    }
    m->reducer = attr->reducer;
    m->rows = x->dim[attr->axis].scale;
    m->picks = sx_tensor_elements(&m->input[1]);
    m->along = m->row == 1;
    m->unit = bytes;
    m->mem = sx_loop_mem(m->dtype, m->kernel->lane_bytes);
    m->axis[0] = (axis){.trip = before,
                        .stride = m->rows * m->row * bytes,
                        .box_stride = m->picks * m->row * bytes};
    m->axis[1] = (axis){.trip = m->rows, .stride = m->row * bytes};
    m->count = m->along ? 1 : 2;
    m->row = m->along ? m->rows : m->row;
}

/* One more than the row that index number `pick` names; what is out of range is no row. */
static uint32_t named_number(indexed *m, const sx_affine *pick)
{
    sx_addr addr = {.buffer = 1, .index_reg = SX_NO_REG};
    move_by(&addr, pick, sx_dtype_bytes(m->input[1].dtype));
    uint32_t s = integer(m, SX_LOP_SWRAP, loaded(m, 1, &addr), m->rows);
    return integer(m, SX_LOP_SCLAMP, integer(m, SX_LOP_SOFF, s, 1), m->rows + 2);
}

/* An element as it is accumulated. Of a bool 0 or 1, and what is only moved keeps its bits. */
static uint32_t accumulated(indexed *m, uint32_t raw)
{
    bool keeps = m->reducer == SX_REPLACE || m->dtype == SX_BOOL;
    return keeps ? raw : sx_loop_decode(&m->b, m->dtype, raw);
}

static uint32_t rounded(indexed *m, uint32_t sum)
{
    if (m->reducer == SX_REPLACE || m->dtype == SX_BOOL) {
        return sum;
    }
    sx_loop_step step = sx_loop_close_step(m->dtype, m->kernel->lane_bytes);
    uint32_t value = sx_loop_typed(&m->b, &step, sum, SX_NO_REG, SX_NO_REG);
    return sx_loop_encode(&m->b, m->dtype, value);
}

#define SCATTER_VECTORS 8 /* accumulators of a row, at most */

/* All indices in order, for up to SCATTER_VECTORS vectors that have accumulators of their own. */
static void scatter_block(indexed *m, const sx_affine *column, int64_t units)
{
    int64_t lanes = m->kernel->lanes;
    sx_addr x = row_address(m, 0, false, column);
    sx_addr to = row_address(m, 3, false, column);
    sx_addr from = {.buffer = 2, .index_reg = SX_NO_REG};
    sx_affine pick = {0};
    uint32_t acc[SCATTER_VECTORS], row[SCATTER_VECTORS];
    SX_ASSERT(units <= SCATTER_VECTORS * lanes);
    for (int64_t k = 0; k * lanes < units; k++) {
        int64_t some = sx_min_i64(lanes, units - k * lanes);
        uint32_t first = accumulated(m, load_units(m, &x, k * lanes, some));
        acc[k] = sx_loop_op(&m->b, SX_LOP_MOV, SX_NO_REG, NULL, first, SX_NO_REG, SX_NO_REG, 0, 0);
        sx_affine at = m->along ? *column : m->axis[1].at;
        at.constant += m->along ? k * lanes : 0;
        row[k] = to_lanes(m, integer(m, SX_LOP_SOFF, position(m, &at), 1));
        if (m->along) {
            uint32_t lane = sx_loop_op(&m->b, SX_LOP_IOTA, SX_NO_REG, NULL, SX_NO_REG, SX_NO_REG,
                                       SX_NO_REG, 0, 0);
            row[k] = sx_loop_op(&m->b, SX_LOP_IADD, SX_NO_REG, NULL, row[k], lane, SX_NO_REG, 0, 0);
        }
    }
    bool opened = open_axis(m, &pick, m->picks);
    uint32_t named = to_lanes(m, named_number(m, &pick));
    move_by(&from, &m->axis[0].at, m->axis[0].box_stride);
    move_by(&from, &pick, m->along ? m->unit : m->row * m->unit);
    if (!m->along) {
        move_by(&from, column, m->unit);
    }
    for (int64_t k = 0; k * lanes < units; k++) {
        int64_t some = sx_min_i64(lanes, units - k * lanes);
        uint32_t y = m->along ? sx_loop_access(&m->b, SX_LOP_LOADB, m->mem, &from, SX_NO_REG, 0, 0)
                              : load_units(m, &from, k * lanes, some);
        y = accumulated(m, y);
        uint32_t sum = m->reducer == SX_REPLACE
                           ? y
                           : sx_loop_combine(&m->b, m->reducer, m->dtype, SX_NO_REG, acc[k], y);
        (void)chosen(m, acc[k], equal(m, named, row[k]), sum, acc[k]);
    }
    if (opened) {
        sx_loop_close(&m->b);
    }
    for (int64_t k = 0; k * lanes < units; k++) {
        store_units(m, &to, k * lanes, rounded(m, acc[k]), sx_min_i64(lanes, units - k * lanes));
    }
}

static void scatter_row(indexed *m, const sx_affine *column, int64_t units)
{
    walk_columns(m, column, units, scatter_block);
}

/* ---- scatter in time that is linear ---- */
#define SCATTER_INSIDE 4u /* the workspace: rows + 2 rows, `width` lanes each */

/* `trip` pieces of `units` neighbours each, the first of which is unit `first` of x (of its column): from x to the
 * workspace, or back to the result. A piece is a row, or a part of the axis that is the row. */
static void carry_rows(indexed *m, const sx_affine *column, int64_t first, int64_t trip,
                       int64_t units, bool back)
{
    const int64_t lane = m->kernel->lane_bytes;
    sx_addr outside = {.buffer = back ? 3 : 0, .index_reg = SX_NO_REG};
    sx_addr inside = {
        .buffer = SCATTER_INSIDE, .offset = (m->width + first) * lane, .index_reg = SX_NO_REG};
    sx_affine at = {0};
    SX_ASSERT(trip >= 1 && units >= 1 && units <= SCATTER_VECTORS * (int64_t)m->kernel->lanes);
    move_by(&outside, &m->axis[0].at, m->axis[0].stride);
    move_by(&outside, column, m->unit);
    outside.offset += first * m->unit;
    bool opened = open_axis(m, &at, trip);
    move_by(&outside, &at, (m->along ? units : m->row) * m->unit);
    move_by(&inside, &at, units * lane);
    for (int64_t done = 0; done < units; done += m->kernel->lanes) {
        uint32_t some = (uint32_t)sx_min_i64(m->kernel->lanes, units - done);
        sx_addr place = inside;
        place.offset += done * lane;
        if (back) {
            uint32_t sum =
                sx_loop_access(&m->b, SX_LOP_LOAD, SX_MEM_LANE, &place, SX_NO_REG, some, 0);
            store_units(m, &outside, done, rounded(m, sum), some);
        } else {
            uint32_t value = accumulated(m, load_units(m, &outside, done, some));
            (void)sx_loop_access(&m->b, SX_LOP_STORE, SX_MEM_LANE, &place, value, some, 0);
        }
    }
    if (opened) {
        sx_loop_close(&m->b);
    }
}

static void carry_all(indexed *m, const sx_affine *column, bool back)
{
    if (!m->along) {
        carry_rows(m, column, 0, m->rows, m->width, back);
        return;
    }
    int64_t step = SCATTER_VECTORS * (int64_t)m->kernel->lanes;
    int64_t whole = m->rows / step;
    if (whole > 0) {
        carry_rows(m, column, 0, whole, step, back);
    }
    if (m->rows % step > 0) {
        carry_rows(m, column, whole * step, 1, m->rows % step, back);
    }
}

/* Rows of the workspace for what is out of range: they hold something from the start. */
static void clear_ends(indexed *m)
{
    const int64_t lane = m->kernel->lane_bytes;
    uint32_t zero = sx_loop_bits(&m->b, 0);
    for (int64_t done = 0; done < m->width; done += m->kernel->lanes) {
        uint32_t some = (uint32_t)sx_min_i64(m->kernel->lanes, m->width - done);
        for (int64_t end = 0; end < 2; end++) {
            sx_addr place = {.buffer = SCATTER_INSIDE,
                             .offset = (end * (m->rows + 1) * m->width + done) * lane,
                             .index_reg = SX_NO_REG};
            (void)sx_loop_access(&m->b, SX_LOP_STORE, SX_MEM_LANE, &place, zero, some, 0);
        }
    }
}

/* The updates, in the order of their indices. */
static void combine_updates(indexed *m, const sx_affine *column)
{
    const int64_t lane = m->kernel->lane_bytes;
    sx_affine pick = {0};
    bool opened = open_axis(m, &pick, m->picks);
    sx_addr from = {.buffer = 2, .index_reg = SX_NO_REG};
    sx_addr place = {.buffer = SCATTER_INSIDE};
    place.index_reg = integer(m, SX_LOP_SMUL, named_number(m, &pick), m->width * lane);
    move_by(&from, &m->axis[0].at, m->axis[0].box_stride);
    move_by(&from, &pick, m->along ? m->unit : m->row * m->unit);
    move_by(&from, column, m->along ? 0 : m->unit);
    for (int64_t done = 0; done < m->width; done += m->kernel->lanes) {
        uint32_t some = (uint32_t)sx_min_i64(m->kernel->lanes, m->width - done);
        sx_addr own = place;
        own.offset += done * lane;
        uint32_t sum = accumulated(m, load_units(m, &from, done, some));
        if (m->reducer != SX_REPLACE) {
            uint32_t held =
                sx_loop_access(&m->b, SX_LOP_LOAD, SX_MEM_LANE, &own, SX_NO_REG, some, 0);
            sum = sx_loop_combine(&m->b, m->reducer, m->dtype, SX_NO_REG, held, sum);
        }
        (void)sx_loop_access(&m->b, SX_LOP_STORE, SX_MEM_LANE, &own, sum, some, 0);
    }
    if (opened) {
        sx_loop_close(&m->b);
    }
}

/* A point has `width` columns of all rows. */
static sx_code linear_part(indexed *m, int64_t first, int64_t points, int64_t width)
{
    sx_affine column = {.constant = first};
    m->width = width;
    column.coef[2] = points > 1 ? width : 0;
    sx_loop_begin_part(&m->b, m->cx, m->kernel, m->axis[0].trip, 1, points);
    m->axis[0].at = (sx_affine){0};
    m->axis[0].at.coef[0] = m->axis[0].trip > 1;
    clear_ends(m);
    carry_all(m, &column, false);
    combine_updates(m, &column);
    carry_all(m, &column, true);
    return sx_loop_end_part(&m->b);
}

static sx_code linear_scatter(indexed *m, int64_t step)
{
    const int64_t widest = m->along ? 1 : sx_min_i64(step, m->row);
    const int64_t size = (m->rows + 2) * widest * m->kernel->lane_bytes;
    SX_ASSERT(m->rows > 1 && m->picks > 1 && widest >= 1);
    uint32_t inside = sx_kernel_add_buffer(m->kernel, SX_BUFFER_WORKSPACE, size);
    SX_ASSERT(inside == SCATTER_INSIDE);
    m->kernel->bytes += 2 * (double)m->kernel->buffer[3].size;
    if (m->along) {
        return linear_part(m, 0, 1, 1);
    }
    if (m->row / widest > 0) {
        SX_TRY(linear_part(m, 0, m->row / widest, widest));
    }
    return m->row % widest > 0 ? linear_part(m, m->row / widest * widest, 1, m->row % widest)
                               : SX_OK;
}

sx_code sx_lower_scatter(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel)
{
    indexed *m = SX_NEW(cx, indexed);
    if (m == NULL) {
        return cx->error.code;
    }
    SX_ASSERT(w->op == SX_OP_SCATTER && w->input_count == 3);
    SX_TRY(begin(m, cx, w));
    SX_TRY(check_indices(m, 1, 2));
    SX_TRY(make_kernel(m, w, sx_move_lane_bytes(m->dtype)));
    find_rows(m, w->attr);
    m->kernel->flops = (double)sx_tensor_elements(&w->input[2]);
    int64_t step = sx_schedule_step(w->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    if (step > SCATTER_VECTORS * (int64_t)m->kernel->lanes) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: %lld columns in straight line, at most %d",
                       w->name, (long long)step, SCATTER_VECTORS * (int)m->kernel->lanes);
    }
    const bool threads = m->kernel->lanes == SX_LOOP_LANES_MAX;
    if (sx_scatter_is_linear(m->rows, m->along ? 1 : m->row, m->picks, threads)) {
        SX_TRY(linear_scatter(m, step));
    } else {
        SX_TRY(walk_rows(m, NULL, scatter_row));
    }
    return finish(m, m->reducer == SX_REPLACE ? "move" : sx_reducer_name(m->reducer), kernel);
}
