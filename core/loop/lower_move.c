/* lower_move.c - concatenate and gather: rows of contiguous bytes copied, in words of 4 bytes where all rows have whole
 * ones, else element by element; several words of a lane side by side where the schedule says so. */
#include "core/loop/lower.h"

#include <string.h>

typedef struct {
    sx_ctx *cx;
    sx_kernel *kernel;
    sx_loop_builder b;
    const sx_schedule *schedule;
    int64_t unit;   /* bytes: 4, 2 or 1 */
    uint32_t width; /* units of a lane that lie side by side */
    sx_mem mem;     /* of a unit */
} mover;

/* `rows`: a length in bytes that is a multiple of 4 where that of all rows is. */
static sx_code mover_init(mover *m, sx_ctx *cx, const char *name, sx_dtype dtype, int64_t rows,
                          const sx_schedule *schedule)
{
    memset(m, 0, sizeof(*m));
    m->cx = cx;
    m->schedule = schedule;
    m->unit = sx_move_unit(dtype, rows);
    m->mem = m->unit == 4 ? SX_MEM_LANE : m->unit == 2 ? SX_MEM_U16 : SX_MEM_U8;
    m->width = sx_schedule_width(schedule);
    SX_TRY((m->width > 1 ? sx_lower_match_map_wide : sx_lower_match_map)(cx, schedule, name));
    SX_TRY(sx_kernel_make(cx, name, sx_schedule_lanes(schedule), 4, &m->kernel));
    m->kernel->numerics = sx_hash64(SX_SPAN_LITERAL("move"), 0); // rounds nothing
    return SX_OK;
}

static void copy_vector(mover *m, const sx_addr *from, const sx_addr *to, uint32_t count)
{
    uint32_t v = sx_loop_access(&m->b, SX_LOP_LOAD, m->mem, from, SX_NO_REG, count, 0);
    (void)sx_loop_access(&m->b, SX_LOP_STORE, m->mem, to, v, count, 0);
}

#define LINE_MAX 64 /* vectors of a line, all of which are read before the first is written */

/* `vectors` vectors of whole lines: neighbours of a lane can be one access. */
static void copy_line(mover *m, const sx_addr *from, const sx_addr *to, int64_t vectors)
{
    uint32_t held[LINE_MAX];
    uint32_t lanes = m->kernel->lanes;
    int64_t stride = m->width * m->unit;
    SX_ASSERT(vectors <= LINE_MAX && vectors % m->width == 0);
    for (uint32_t store = 0; store < 2; store++) {
        for (int64_t k = 0; k < vectors; k++) {
            sx_addr at = store != 0 ? *to : *from;
            at.offset += (k / m->width * m->width * lanes + k % m->width) * m->unit;
            if (store != 0) {
                (void)sx_loop_access(&m->b, SX_LOP_STORES, m->mem, &at, held[k], lanes, stride);
            } else {
                held[k] =
                    sx_loop_access(&m->b, SX_LOP_LOADS, m->mem, &at, SX_NO_REG, lanes, stride);
            }
        }
    }
}

/* `units` consecutive units, as many vectors per iteration as the schedule says. */
static void copy_row(mover *m, sx_addr from, sx_addr to, int64_t units)
{
    int64_t lanes = m->kernel->lanes;
    int64_t block = sx_schedule_step(m->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
    int64_t trip = units / block;
    if (trip > 0) {
        uint32_t v = trip > 1 ? sx_loop_open(&m->b, trip) : 0;
        sx_addr a = from;
        sx_addr b = to;
        if (trip > 1) {
            a.coef[v] = b.coef[v] = block * m->unit;
        }
        if (m->width > 1) {
            copy_line(m, &a, &b, block / lanes);
        }
        for (int64_t u = 0; m->width == 1 && u < block; u += lanes) {
            copy_vector(m, &a, &b, (uint32_t)lanes);
            a.offset += lanes * m->unit;
            b.offset += lanes * m->unit;
        }
        if (trip > 1) {
            sx_loop_close(&m->b);
        }
    }
    int64_t done = trip * block;
    int64_t lines = m->width > 1 ? (units - done) / (m->width * lanes) * m->width : 0;
    if (lines > 0) {
        sx_addr a = from;
        sx_addr b = to;
        a.offset += done * m->unit;
        b.offset += done * m->unit;
        copy_line(m, &a, &b, lines);
        done += lines * lanes;
    }
    for (; done < units; done += lanes) {
        sx_addr a = from;
        sx_addr b = to;
        a.offset += done * m->unit;
        b.offset += done * m->unit;
        copy_vector(m, &a, &b, (uint32_t)sx_min_i64(lanes, units - done));
    }
}

static int64_t product(const sx_type *type, uint32_t first, uint32_t last)
{
    int64_t p = 1;
    for (uint32_t d = first; d < last; d++) {
        p *= type->dim[d].scale;
    }
    return p;
}

static sx_code check_static(sx_ctx *cx, const char *name, const sx_type *type, int64_t axis)
{
    sx_dim elements;
    if (!sx_type_is_static(type) || !sx_type_elements(type, &elements) || elements.scale < 1) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: shape is symbolic or empty", name);
    }
    if (axis < 0 || axis >= type->rank) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: axis %lld of rank %u", name, (long long)axis,
                       type->rank);
    }
    return SX_OK;
}

/* Rows of `units` from `from` to `to`, `rows` of them: in groups over the grid, or one long row cut in tiles. */
static sx_code copy_rows(mover *m, sx_addr from, sx_addr to, int64_t rows, int64_t units,
                         int64_t from_stride, int64_t to_stride)
{
    bool one = rows == 1;
    int64_t tile =
        sx_schedule_step(m->schedule, one ? SX_ROLE_COLUMN : SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t whole = one ? units : rows;
    int64_t piece = sx_max_i64(1, sx_min_i64(tile, whole));
    int64_t from_step = one ? m->unit : from_stride;
    int64_t to_step = one ? m->unit : to_stride;
    for (uint32_t rest = 0; rest < 2; rest++) {
        int64_t count = rest == 0 ? whole / piece : whole % piece != 0;
        int64_t length = rest == 0 ? piece : whole % piece;
        if (count == 0) {
            continue;
        }
        sx_addr a = from;
        sx_addr b = to;
        if (rest != 0) {
            a.offset += whole / piece * piece * from_step;
            b.offset += whole / piece * piece * to_step;
        }
        sx_loop_begin_part(&m->b, m->cx, m->kernel, count, 1, 1);
        a.coef[0] = count > 1 ? piece * from_step : 0;
        b.coef[0] = count > 1 ? piece * to_step : 0;
        bool loop = !one && length > 1;
        if (loop) {
            uint32_t v = sx_loop_open(&m->b, length);
            a.coef[v] = from_step;
            b.coef[v] = to_step;
        }
        copy_row(m, a, b, one ? length : units);
        if (loop) {
            sx_loop_close(&m->b);
        }
        SX_TRY(sx_loop_end_part(&m->b));
    }
    return SX_OK;
}

sx_code sx_lower_concatenate(sx_ctx *cx, const char *name, const sx_attr *attr,
                             const sx_type *input, uint32_t input_count, const sx_type *result,
                             const sx_schedule *schedule, sx_kernel **kernel)
{
    SX_ASSERT(input_count <= SX_INPUTS_MAX);
    mover m;
    SX_TRY(check_static(cx, name, result, attr->axis));
    uint32_t axis = (uint32_t)attr->axis;
    int64_t bytes = sx_dtype_bytes(result->dtype);
    int64_t lengths = 0;
    for (uint32_t k = 0; k < input_count; k++) {
        bool fits = sx_type_is_static(&input[k]) && input[k].rank == result->rank;
        lengths |= fits ? bytes * product(&input[k], axis, input[k].rank) : 0;
    }
    SX_TRY(mover_init(&m, cx, name, result->dtype, lengths, schedule));
    int64_t total = bytes * sx_tensor_elements(result);
    int64_t sum = 0;
    for (uint32_t k = 0; k < input_count; k++) {
        if (!sx_type_is_static(&input[k]) || input[k].rank != result->rank ||
            input[k].dtype != result->dtype) {
            return SX_FAIL(cx, SX_INPUT, "kernel %s: input %u does not fit the result", name, k);
        }
        int64_t size = bytes * sx_tensor_elements(&input[k]);
        (void)sx_kernel_add_buffer(m.kernel, SX_BUFFER_IN, size);
        sum += size;
    }
    if (sum != total) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: inputs of %lld bytes, result of %lld", name,
                       (long long)sum, (long long)total);
    }
    uint32_t out = sx_kernel_add_buffer(m.kernel, SX_BUFFER_OUT, total);
    m.kernel->bytes = 2 * (double)total;
    int64_t rows = product(result, 0, axis);
    int64_t at = 0;
    for (uint32_t k = 0; k < input_count; k++) {
        int64_t row = bytes * product(&input[k], axis, input[k].rank);
        if (row > 0) {
            sx_addr from = {.buffer = k, .index_reg = SX_NO_REG};
            sx_addr to = {.buffer = out, .offset = at, .index_reg = SX_NO_REG};
            SX_TRY(copy_rows(&m, from, to, rows, row / m.unit, row, total / rows));
        }
        at += row;
    }
    SX_TRY(sx_kernel_check(cx, m.kernel));
    *kernel = m.kernel;
    return SX_OK;
}

/* A gather: `before` tables of `extent` rows of `row` bytes, and `picks` indices that name rows of each. */
typedef struct {
    int64_t before, extent, picks, row, index_bytes;
} gathering;

/* Copies the rows that a group of indices names, in `tables` tables at a time: an index is read once for them. */
static void gather_group(mover *m, const gathering *g, int64_t start, int64_t length, bool grid,
                         int64_t first_table, int64_t tables)
{
    uint32_t none = SX_NO_REG;
    int64_t from_table = g->extent * g->row;
    int64_t to_table = g->picks * g->row;
    sx_addr index = {.buffer = 1, .offset = start * g->index_bytes, .index_reg = none};
    sx_addr from = {.buffer = 0, .offset = first_table * from_table, .index_reg = none};
    sx_addr to = {
        .buffer = 2, .offset = first_table * to_table + start * g->row, .index_reg = none};
    from.coef[0] = tables * from_table;
    to.coef[0] = tables * to_table;
    if (grid) {
        index.coef[1] = length * g->index_bytes;
        to.coef[1] = length * g->row;
    }
    if (length > 1) {
        uint32_t v = sx_loop_open(&m->b, length);
        index.coef[v] = g->index_bytes;
        to.coef[v] = g->row;
    }
    uint32_t s = sx_loop_op(&m->b, g->index_bytes == 8 ? SX_LOP_SLOAD64 : SX_LOP_SLOAD32, none,
                            &index, none, none, none, 0, 0);
    s = sx_loop_op(&m->b, SX_LOP_SWRAP, none, NULL, s, none, none, 0, g->extent);
    s = sx_loop_op(&m->b, SX_LOP_SCLAMP, none, NULL, s, none, none, 0, g->extent);
    from.index_reg = sx_loop_op(&m->b, SX_LOP_SMUL, none, NULL, s, none, none, 0, g->row);
    for (int64_t t = 0; t < tables; t++) {
        copy_row(m, from, to, g->row / m->unit);
        from.offset += from_table;
        to.offset += to_table;
    }
    if (length > 1) {
        sx_loop_close(&m->b);
    }
}

#define TABLES_MAX 8 /* that share an index */

/* Groups of indices over the grid, for groups of tables where a row is one vector: else an index costs little beside
 * it. */
static sx_code gather_all(mover *m, const gathering *g, int64_t rows)
{
    int64_t group = sx_max_i64(1, sx_min_i64(rows, g->picks));
    bool short_rows = g->row / m->unit <= m->kernel->lanes && m->width == 1;
    int64_t together = short_rows ? sx_min_i64(TABLES_MAX, g->before) : 1;
    for (uint32_t part = 0; part < 4; part++) {
        bool rest = part % 2 != 0, last = part / 2 != 0;
        int64_t count = rest ? g->picks % group != 0 : g->picks / group;
        int64_t tables = last ? g->before % together : together;
        int64_t times = last ? tables != 0 : g->before / together;
        if (count == 0 || times == 0) {
            continue;
        }
        sx_loop_begin_part(&m->b, m->cx, m->kernel, times, count, 1);
        gather_group(m, g, rest ? g->picks / group * group : 0, rest ? g->picks % group : group,
                     count > 1, last ? g->before / together * together : 0, tables);
        SX_TRY(sx_loop_end_part(&m->b));
    }
    return SX_OK;
}

sx_code sx_lower_gather(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                        uint32_t input_count, const sx_type *result, const sx_schedule *schedule,
                        sx_kernel **kernel)
{
    mover m;
    if (input_count != 2) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: %u inputs, expected 2", name, input_count);
    }
    SX_TRY(check_static(cx, name, &input[0], attr->axis));
    if (!sx_type_is_static(result) || !sx_type_is_static(&input[1]) ||
        sx_tensor_elements(result) < 1) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: shape is symbolic or empty", name);
    }
    if (input[1].dtype != SX_I32 && input[1].dtype != SX_I64) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: indices of %s", name,
                       sx_dtype_name(input[1].dtype));
    }
    uint32_t axis = (uint32_t)attr->axis;
    int64_t bytes = sx_dtype_bytes(result->dtype);
    int64_t before = product(&input[0], 0, axis);
    int64_t extent = input[0].dim[axis].scale;
    int64_t row = bytes * product(&input[0], axis + 1, input[0].rank);
    int64_t picks = sx_tensor_elements(&input[1]);
    int64_t total = bytes * sx_tensor_elements(result);
    if (input[0].dtype != result->dtype || before * picks * row != total) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: %lld rows of %lld bytes do not fit %lld bytes",
                       name, (long long)(before * picks), (long long)row, (long long)total);
    }
    SX_TRY(mover_init(&m, cx, name, result->dtype, row, schedule));
    int64_t index_bytes = sx_dtype_bytes(input[1].dtype);
    (void)sx_kernel_add_buffer(m.kernel, SX_BUFFER_IN, bytes * sx_tensor_elements(&input[0]));
    (void)sx_kernel_add_buffer(m.kernel, SX_BUFFER_IN, index_bytes * picks);
    (void)sx_kernel_add_buffer(m.kernel, SX_BUFFER_OUT, total);
    m.kernel->bytes = 2 * (double)total + (double)(index_bytes * picks);
    gathering g = {before, extent, picks, row, index_bytes};
    SX_TRY(gather_all(&m, &g, sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_GRID, 0)));
    SX_TRY(sx_kernel_check(cx, m.kernel));
    *kernel = m.kernel;
    return SX_OK;
}
