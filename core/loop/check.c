/* check.c - a kernel is well formed: nesting, scope, registers written before they are read, every access
 * inside its buffer.
 *
 * One walk over the text of each part. Variables have the interval [0, extent - 1]; integer registers carry an
 * interval that their instruction bounds. Before a loop body is walked, the integer registers written anywhere
 * inside it lose their interval (an earlier iteration may have left any value), so a bound never outlives its proof. */
#include "core/loop/check.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    int64_t low, high;
} interval;
static const interval everything = {INT64_MIN, INT64_MAX};

typedef struct {
    sx_ctx *cx;
    const sx_kernel *kernel;
    const sx_part *part;
    uint32_t part_index;
    uint32_t at;                    /* item */
    bool *written[3];               /* of each class: v, m, s */
    uint32_t count[3];              /* registers of each class */
    interval *scalar;               /* [scalar_count] */
    int64_t high[SX_LOOP_VARS_MAX]; /* largest value of each variable in scope */
    uint32_t open;                  /* loops */
    uint32_t open_item[SX_LOOP_VARS_MAX];
    bool *before[SX_LOOP_VARS_MAX]
                [3]; /* of an open loop with any_trip: what was written when it began */
    uint32_t idle;   /* open loops without iterations: their addresses are never touched */
} walk;

#define WALK_FAIL(w, ...) walk_fail((w), __LINE__, __VA_ARGS__)
static sx_code walk_fail(walk *w, int line, const char *format, ...) SX_PRINTF(3, 4);
static sx_code walk_fail(walk *w, int line, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return sx_fail(w->cx, SX_INPUT, __FILE__, line, "kernel %s: part %u: item %u: %s",
                   w->kernel->name, w->part_index, w->at, text);
}

static uint32_t class_index(char kind)
{
    return kind == 'v' ? 0 : kind == 'm' ? 1 : 2;
}

bool sx_loop_access_bytes(const sx_item *item, const sx_kernel *kernel, int64_t *low, int64_t *high)
{
    int64_t n = item->imm;
    uint32_t lanes = kernel->lanes;
    int64_t size = item->mem < SX_MEM_COUNT ? sx_mem_bytes(item->mem, kernel->lane_bytes) : 0;
    *low = 0;
    switch (item->op) {
    case SX_LOP_LOAD:
    case SX_LOP_STORE: *high = size * n; return size > 0 && n >= 1 && n <= lanes;
    case SX_LOP_LOADB: *high = size; return size > 0;
    case SX_LOP_LOADS:
    case SX_LOP_STORES: {
        int64_t last = 0;
        bool apart = item->op == SX_LOP_LOADS || item->imm2 >= size; /* no lane meets another */
        if (size == 0 || !apart || n < 1 || n > lanes || !sx_mul_i64(n - 1, item->imm2, &last) ||
            last > SX_LOOP_BYTES_MAX || last < -SX_LOOP_BYTES_MAX) {
            return false;
        }
        *low = sx_min_i64(0, last);
        *high = sx_max_i64(0, last) + size;
        return true;
    }
    case SX_LOP_SLOAD64: *high = 8; return true;
    default: *high = 4; return true;
    }
}

/* Adds coefficient * [0, high] to `sum`. */
static bool add_term(interval *sum, int64_t coefficient, int64_t high)
{
    int64_t product;
    if (!sx_mul_i64(coefficient, high, &product)) {
        return false;
    }
    return product < 0 ? sx_add_i64(sum->low, product, &sum->low)
                       : sx_add_i64(sum->high, product, &sum->high);
}

static sx_code check_address(walk *w, const sx_item *item, const sx_lop_info *info)
{
    if (item->addr >= w->part->addr_count) {
        return WALK_FAIL(w, "address %u of %u", item->addr, w->part->addr_count);
    }
    const sx_addr *addr = &w->part->addr[item->addr];
    if (addr->buffer >= w->kernel->buffer_count) {
        return WALK_FAIL(w, "buffer %u of %u", addr->buffer, w->kernel->buffer_count);
    }
    const sx_loop_buffer *buffer = &w->kernel->buffer[addr->buffer];
    if (info->result == '-' && item->op != SX_LOP_PREFETCH && buffer->role == SX_BUFFER_IN) {
        return WALK_FAIL(w, "%s into input buffer %u", info->name, addr->buffer);
    }
    interval bytes = {addr->offset, addr->offset};
    bool ok = true;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (addr->coef[v] != 0 && v >= 3 + w->open) {
            return WALK_FAIL(w, "address uses variable %u, which is not in scope", v);
        }
        ok = ok && (addr->coef[v] == 0 || add_term(&bytes, addr->coef[v], w->high[v]));
    }
    if (addr->index_reg != SX_NO_REG) {
        if (addr->index_reg >= w->count[2] || !w->written[2][addr->index_reg]) {
            return WALK_FAIL(w, "integer register %u read before it is written", addr->index_reg);
        }
        interval s = w->scalar[addr->index_reg];
        ok = ok && sx_add_i64(bytes.low, s.low, &bytes.low) &&
             sx_add_i64(bytes.high, s.high, &bytes.high);
    }
    int64_t low, high;
    if (!sx_loop_access_bytes(item, w->kernel, &low, &high)) {
        return WALK_FAIL(w, "%s: %u lanes or stride %lld out of range, %u lanes in a register",
                         info->name, item->imm, (long long)item->imm2, w->kernel->lanes);
    }
    ok = ok && sx_add_i64(bytes.low, low, &bytes.low) && sx_add_i64(bytes.high, high, &bytes.high);
    if (item->op == SX_LOP_PREFETCH || w->idle > 0) {
        return SX_OK; /* touches nothing */
    }
    if (!ok || bytes.low < 0 || bytes.high > buffer->size) {
        return WALK_FAIL(w, "%s touches bytes [%lld, %lld) of buffer %u, which has %lld",
                         info->name, (long long)bytes.low, (long long)bytes.high, addr->buffer,
                         (long long)buffer->size);
    }
    return SX_OK;
}

/* Ranges of the immediates that are not addresses. */
static bool immediate_ok(const walk *w, const sx_item *item)
{
    switch (item->op) {
    case SX_LOP_ROUND: return item->imm <= 3;
    case SX_LOP_SHL:
    case SX_LOP_SHR: return item->imm < 8 * w->kernel->lane_bytes;
    case SX_LOP_SAR: return item->imm <= 31 && w->kernel->lane_bytes == 4;
    case SX_LOP_SARV:
    case SX_LOP_F2I:
    case SX_LOP_I2F: return w->kernel->lane_bytes == 4;
    case SX_LOP_SET:
        return item->imm2 >= 0 && item->imm2 <= (w->kernel->lane_bytes == 8 ? UINT32_MAX : 0);
    case SX_LOP_CMP: return item->imm < SX_DIRECTION_COUNT;
    case SX_LOP_ICMP: return item->imm == SX_EQ || item->imm == SX_GT;
    case SX_LOP_SWAP:
        return item->imm >= 1 && item->imm < w->kernel->lanes && (item->imm & (item->imm - 1)) == 0;
    case SX_LOP_SVAR: return item->imm < 3 + w->open;
    case SX_LOP_SWRAP: return item->imm2 >= 0 && item->imm2 <= SX_EXTENT_MAX;
    case SX_LOP_SCLAMP: return item->imm2 >= 1 && item->imm2 <= SX_EXTENT_MAX;
    case SX_LOP_SOFF:
    case SX_LOP_SMUL: return item->imm2 >= -SX_LOOP_BYTES_MAX && item->imm2 <= SX_LOOP_BYTES_MAX;
    default: return true;
    }
}

/* The interval of the integer register that `item` writes. */
static interval scalar_interval(const walk *w, const sx_item *item)
{
    bool reads = sx_lop_info_of(item->op)->operands[0] == 's';
    interval x = reads ? w->scalar[item->src[0]] : everything;
    interval out = everything;
    switch (item->op) {
    case SX_LOP_SLOAD32: return (interval){INT32_MIN, INT32_MAX};
    case SX_LOP_SVAR: return (interval){0, w->high[item->imm]};
    case SX_LOP_SCLAMP:
        return (interval){sx_min_i64(sx_max_i64(x.low, 0), item->imm2 - 1),
                          sx_max_i64(0, sx_min_i64(x.high, item->imm2 - 1))};
    case SX_LOP_SWRAP:
        if (x.low < 0) {
            int64_t top = x.high < 0 ? x.high + item->imm2 : sx_max_i64(x.high, item->imm2 - 1);
            return (interval){x.high < 0 ? x.low + item->imm2 : sx_min_i64(x.low + item->imm2, 0),
                              top};
        }
        return x;
    case SX_LOP_SADD:
    case SX_LOP_SOFF: {
        interval y =
            item->op == SX_LOP_SADD ? w->scalar[item->src[1]] : (interval){item->imm2, item->imm2};
        bool fits = sx_add_i64(x.low, y.low, &out.low) && sx_add_i64(x.high, y.high, &out.high);
        return fits ? out : everything;
    }
    case SX_LOP_SMUL: {
        int64_t a, b;
        if (sx_mul_i64(x.low, item->imm2, &a) && sx_mul_i64(x.high, item->imm2, &b)) {
            out = (interval){sx_min_i64(a, b), sx_max_i64(a, b)};
        }
        return out;
    }
    default: return out;
    }
}

static sx_code check_op(walk *w, const sx_item *item)
{
    if (item->op >= SX_LOP_COUNT) {
        return WALK_FAIL(w, "instruction number %d of %d", (int)item->op, SX_LOP_COUNT);
    }
    const sx_lop_info *info = sx_lop_info_of(item->op);
    uint32_t operand = 0;
    for (const char *p = info->operands; *p != '\0'; p++) {
        if (*p == 'v' || *p == 'm' || *p == 's') {
            uint32_t class_ = class_index(*p);
            uint32_t reg = item->src[operand++];
            if (reg >= w->count[class_] || !w->written[class_][reg]) {
                return WALK_FAIL(w, "%s: register %c%u read before it is written", info->name, *p,
                                 reg);
            }
        }
    }
    if (!immediate_ok(w, item)) {
        return WALK_FAIL(w, "%s: immediate %u, %lld out of range", info->name, item->imm,
                         (long long)item->imm2);
    }
    if (info->operands[0] == 'A') {
        SX_TRY(check_address(w, item, info));
    }
    if (info->result != '-') {
        uint32_t class_ = class_index(info->result);
        if (item->dst >= w->count[class_]) {
            return WALK_FAIL(w, "%s: result register %c%u of %u", info->name, info->result,
                             item->dst, w->count[class_]);
        }
        if (info->result == 's') {
            w->scalar[item->dst] = scalar_interval(w, item);
        }
        w->written[class_][item->dst] = true;
    }
    return SX_OK;
}

/* Integer registers written inside the loop that opens at item `first` may hold anything at its start. */
static void forget_scalars(walk *w, uint32_t first)
{
    uint32_t depth = 0;
    for (uint32_t i = first; i < w->part->item_count; i++) {
        const sx_item *item = &w->part->item[i];
        if (item->kind == SX_ITEM_LOOP) {
            depth++;
        } else if (item->kind == SX_ITEM_END && --depth == 0) {
            return;
        } else if (item->kind == SX_ITEM_OP && item->op < SX_LOP_COUNT &&
                   sx_lop_info_of(item->op)->result == 's' && item->dst < w->count[2]) {
            w->scalar[item->dst] = everything;
        }
    }
}

/* Registers that are written inside the loop over warps that opens at item `first` belong to an iteration: they hold
 * nothing when one begins, and nothing behind the loop. */
static void forget_registers(walk *w, uint32_t first)
{
    uint32_t depth = 0;
    for (uint32_t i = first; i < w->part->item_count; i++) {
        const sx_item *item = &w->part->item[i];
        if (item->kind == SX_ITEM_LOOP) {
            depth++;
        } else if (item->kind == SX_ITEM_END && --depth == 0) {
            return;
        } else if (item->kind == SX_ITEM_OP && item->op < SX_LOP_COUNT &&
                   sx_lop_info_of(item->op)->result != '-') {
            uint32_t class_ = class_index(sx_lop_info_of(item->op)->result);
            if (item->dst < w->count[class_]) {
                w->written[class_][item->dst] = false;
            }
        }
    }
}

/* What is written in a loop that may have no iterations is not written behind it. */
static sx_code remember_registers(walk *w)
{
    for (uint32_t c = 0; c < 3; c++) {
        bool *before = SX_NEW_ARRAY(w->cx, bool, w->count[c] + 1);
        if (before == NULL) {
            return w->cx->error.code;
        }
        memcpy(before, w->written[c], w->count[c] * sizeof(*before));
        w->before[w->open][c] = before;
    }
    return SX_OK;
}

static sx_code check_loop(walk *w, const sx_item *item)
{
    uint32_t variable = 3 + w->open;
    if (variable >= SX_LOOP_VARS_MAX) {
        return WALK_FAIL(w, "%u open loops, at most %d", w->open + 1, SX_LOOP_VARS_MAX - 3);
    }
    if (item->dst != variable || variable >= w->part->var_count) {
        return WALK_FAIL(w, "loop over variable %u, expected %u below %u", item->dst, variable,
                         w->part->var_count);
    }
    if (item->trip < (item->any_trip ? 0 : 1) || item->trip > SX_EXTENT_MAX) {
        return WALK_FAIL(w, "trip count %lld, allowed 1 to %lld", (long long)item->trip,
                         (long long)SX_EXTENT_MAX);
    }
    w->high[variable] = sx_max_i64(item->trip, 1) - 1;
    w->idle += item->trip == 0 ? 1 : 0;
    SX_TRY(item->any_trip ? remember_registers(w) : SX_OK);
    w->open_item[w->open++] = w->at;
    if (w->part->scalar_count > 0) {
        forget_scalars(w, w->at);
    }
    if (item->warps) {
        forget_registers(w, w->at);
    }
    return SX_OK;
}

static sx_code check_end(walk *w, const sx_item *item)
{
    if (w->open == 0) {
        return WALK_FAIL(w, "end without a loop");
    }
    if (w->open_item[w->open - 1] + 1 == w->at) {
        return WALK_FAIL(w, "empty loop");
    }
    w->open--;
    const sx_item *loop = &w->part->item[w->open_item[w->open]];
    if (loop->warps) {
        forget_registers(w, w->open_item[w->open]);
    }
    for (uint32_t c = 0; loop->any_trip && c < 3; c++) {
        memcpy(w->written[c], w->before[w->open][c], w->count[c] * sizeof(bool));
    }
    w->idle -= loop->trip == 0 ? 1 : 0;
    if (item->dst != 3 + w->open) {
        return WALK_FAIL(w, "end of variable %u, expected %u", item->dst, 3 + w->open);
    }
    return SX_OK;
}

static sx_code check_part(walk *w)
{
    const sx_part *part = w->part;
    int64_t points = 1;
    for (uint32_t g = 0; g < 3; g++) {
        if (part->grid[g] < 1 || part->grid[g] > SX_EXTENT_MAX ||
            !sx_mul_i64(points, part->grid[g], &points) || points > SX_EXTENT_MAX) {
            return WALK_FAIL(w, "grid dimension %u has %lld points", g, (long long)part->grid[g]);
        }
        w->high[g] = part->grid[g] - 1;
    }
    w->count[0] = part->vector_count;
    w->count[1] = part->mask_count;
    w->count[2] = part->scalar_count;
    for (uint32_t c = 0; c < 3; c++) {
        if (w->count[c] > SX_LOOP_REGS_MAX) {
            return WALK_FAIL(w, "%u registers, at most %u", w->count[c], SX_LOOP_REGS_MAX);
        }
        w->written[c] = SX_NEW_ARRAY(w->cx, bool, w->count[c] + 1);
        if (w->written[c] == NULL) {
            return w->cx->error.code;
        }
    }
    w->scalar = SX_NEW_ARRAY(w->cx, interval, w->count[2] + 1);
    if (w->scalar == NULL) {
        return w->cx->error.code;
    }
    if (part->item_count > SX_LOOP_ITEMS_MAX || part->var_count < 3 ||
        part->var_count > SX_LOOP_VARS_MAX) {
        return WALK_FAIL(w, "%u items, at most %u; %u variables, at most %d", part->item_count,
                         SX_LOOP_ITEMS_MAX, part->var_count, SX_LOOP_VARS_MAX);
    }
    for (w->at = 0; w->at < part->item_count; w->at++) {
        const sx_item *item = &part->item[w->at];
        SX_TRY(item->kind == SX_ITEM_OP     ? check_op(w, item)
               : item->kind == SX_ITEM_LOOP ? check_loop(w, item)
                                            : check_end(w, item));
    }
    return w->open == 0 ? SX_OK : WALK_FAIL(w, "%u loops left open", w->open);
}

sx_code sx_kernel_check(sx_ctx *cx, const sx_kernel *kernel)
{
    SX_TRY(sx_kernel_check_lanes(cx, kernel->name, kernel->lanes, kernel->lane_bytes));
    if (kernel->buffer_count > SX_LOOP_BUFFERS_MAX || kernel->part_count > SX_PARTS_MAX ||
        kernel->part_count == 0) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s: %u buffers, at most %d; %u parts, 1 to %d",
                       kernel->name, kernel->buffer_count, SX_LOOP_BUFFERS_MAX, kernel->part_count,
                       SX_PARTS_MAX);
    }
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        const sx_loop_buffer *buffer = &kernel->buffer[k];
        if (buffer->size < 0 || buffer->size > SX_LOOP_BYTES_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "kernel %s: buffer %u has %lld bytes, at most %lld",
                           kernel->name, k, (long long)buffer->size, (long long)SX_LOOP_BYTES_MAX);
        }
        if (buffer->role == SX_BUFFER_WORKSPACE && k + 1 != kernel->buffer_count) {
            return SX_FAIL(cx, SX_INPUT,
                           "kernel %s: workspace is buffer %u of %u, must be the last",
                           kernel->name, k, kernel->buffer_count);
        }
    }
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        walk w = {.cx = cx, .kernel = kernel, .part = &kernel->part[p], .part_index = p};
        SX_TRY(check_part(&w));
        SX_TRY(sx_kernel_check_warps(cx, kernel, p));
    }
    return SX_OK;
}
