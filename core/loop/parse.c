/* parse.c - reads the text that print.c writes. Names and numbers are checked for form here and for meaning by
 * sx_kernel_check, which callers run on what they did not write themselves. */
#include "core/loop/loop.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    sx_ctx *cx;
    const uint8_t *p, *end;
    uint32_t line;
} reader;

static sx_code expected(reader *r, const char *what)
{
    size_t left = (size_t)(r->end - r->p);
    return SX_FAIL(r->cx, SX_INPUT, "kernel text line %u: expected %s, found '%.*s'", r->line, what,
                   (int)(left < 16 ? left : 16), (const char *)r->p);
}

static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) {
        r->line += *r->p++ == '\n';
    }
}

static bool is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Takes `text` if it comes next; a word must end there. */
static bool take(reader *r, const char *text)
{
    skip_space(r);
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0 ||
        (is_name((uint8_t)text[n - 1]) && r->p + n < r->end && is_name(r->p[n]))) {
        return false;
    }
    r->p += n;
    return true;
}

/* Takes one character, whatever follows it. */
static sx_code need_letter(reader *r, char letter, const char *what)
{
    skip_space(r);
    if (r->p == r->end || *r->p != (uint8_t)letter) {
        return expected(r, what);
    }
    r->p++;
    return SX_OK;
}

static sx_code need(reader *r, const char *text)
{
    return take(r, text) ? SX_OK : expected(r, text);
}

/* Copies the next number-like token into `token`. */
static sx_code number_token(reader *r, char token[64])
{
    skip_space(r);
    size_t n = 0;
    while (r->p + n < r->end && n < 63) {
        uint8_t c = r->p[n];
        if (!is_name(c) && c != '-' && c != '+' && c != '.') {
            break;
        }
        token[n++] = (char)c;
    }
    token[n] = '\0';
    if (n == 0 || (token[0] != '-' && (token[0] < '0' || token[0] > '9') && token[0] != 'i' &&
                   token[0] != 'n')) {
        return expected(r, "a number");
    }
    return SX_OK;
}

static sx_code read_i64(reader *r, int64_t low, int64_t high, int64_t *value)
{
    skip_space(r);
    const uint8_t *p = r->p;
    bool negative = p < r->end && *p == '-';
    p += negative;
    if (p == r->end || *p < '0' || *p > '9') {
        return expected(r, "an integer");
    }
    int64_t v = 0;
    for (; p < r->end && *p >= '0' && *p <= '9'; p++) {
        int64_t digit = *p - '0';
        if (!sx_mul_i64(v, 10, &v) || !sx_add_i64(v, negative ? -digit : digit, &v)) {
            return expected(r, "an integer of 64 bits");
        }
    }
    if (v < low || v > high) {
        return SX_FAIL(r->cx, SX_INPUT, "kernel text line %u: %lld, allowed %lld to %lld", r->line,
                       (long long)v, (long long)low, (long long)high);
    }
    r->p = p;
    *value = v;
    return SX_OK;
}

static sx_code read_u32(reader *r, uint32_t limit, uint32_t *value)
{
    int64_t v = 0;
    SX_TRY(read_i64(r, 0, limit, &v));
    *value = (uint32_t)v;
    return SX_OK;
}

static sx_code read_hex(reader *r, uint64_t limit, uint64_t *value)
{
    SX_TRY(need_letter(r, '0', "a number in hex"));
    SX_TRY(need_letter(r, 'x', "a number in hex"));
    uint64_t v = 0;
    uint32_t digits = 0;
    for (; r->p < r->end && digits <= 16; r->p++, digits++) {
        uint8_t c = *r->p;
        if (c >= '0' && c <= '9') {
            v = v << 4 | (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            v = v << 4 | (uint64_t)(c - 'a' + 10);
        } else {
            break;
        }
    }
    if (digits == 0 || digits > 16 || v > limit) {
        return expected(r, "hex digits");
    }
    *value = v;
    return SX_OK;
}

static sx_code read_double(reader *r, double *value)
{
    char token[64];
    SX_TRY(number_token(r, token));
    char *end;
    *value = strtod(token, &end);
    if (*end != '\0') {
        return expected(r, "a number");
    }
    r->p += end - token;
    return SX_OK;
}

/* A register or variable: a letter and a number. */
static sx_code read_register(reader *r, char kind, uint32_t *index)
{
    SX_TRY(need_letter(r, kind == 'v' ? 'x' : kind, "a register"));
    return read_u32(r, SX_LOOP_REGS_MAX, index);
}

static sx_code read_address(reader *r, sx_part *part, uint32_t *index)
{
    sx_addr addr = {.index_reg = SX_NO_REG};
    SX_TRY(need_letter(r, 'b', "a buffer"));
    SX_TRY(read_u32(r, SX_LOOP_BUFFERS_MAX, &addr.buffer));
    SX_TRY(need(r, "["));
    SX_TRY(read_i64(r, INT64_MIN, INT64_MAX, &addr.offset));
    while (take(r, "+")) {
        skip_space(r);
        if (r->p < r->end && *r->p == 's') {
            SX_TRY(read_register(r, 's', &addr.index_reg));
            continue;
        }
        int64_t coefficient = 0;
        uint32_t variable = 0;
        SX_TRY(read_i64(r, INT64_MIN, INT64_MAX, &coefficient));
        SX_TRY(need(r, "*"));
        SX_TRY(need_letter(r, 'v', "a variable"));
        SX_TRY(read_u32(r, SX_LOOP_VARS_MAX - 1, &variable));
        addr.coef[variable] = coefficient;
    }
    SX_TRY(need(r, "]"));
    void *array = part->addr;
    SX_TRY(sx_grow(r->cx, &array, &part->addr_capacity, part->addr_count + 1, sizeof(sx_addr)));
    part->addr = array;
    *index = part->addr_count;
    part->addr[part->addr_count++] = addr;
    return SX_OK;
}

static sx_code find_op(reader *r, sx_lop *op)
{
    skip_space(r);
    size_t n = 0;
    while (r->p + n < r->end && is_name(r->p[n])) {
        n++;
    }
    for (uint32_t i = 0; i < SX_LOP_COUNT; i++) {
        if (sx_span_is((sx_span){r->p, n}, sx_lop_info_of((sx_lop)i)->name)) {
            *op = (sx_lop)i;
            r->p += n;
            return SX_OK;
        }
    }
    return expected(r, "an instruction");
}

/* ".u8" behind the name of a load or store. */
static sx_code read_mem(reader *r, sx_item *item)
{
    if (r->p == r->end || *r->p != '.') {
        return SX_OK;
    }
    bool vectors = item->op == SX_LOP_LOAD || item->op == SX_LOP_LOADB ||
                   item->op == SX_LOP_LOADS || item->op == SX_LOP_STORE ||
                   item->op == SX_LOP_STORES;
    size_t n = 1;
    while (r->p + n < r->end && is_name(r->p[n])) {
        n++;
    }
    for (uint32_t m = 0; m < SX_MEM_COUNT && vectors; m++) {
        if (sx_span_is((sx_span){r->p + 1, n - 1}, sx_mem_name((sx_mem)m))) {
            item->mem = (sx_mem)m;
            r->p += n;
            return SX_OK;
        }
    }
    return expected(r, "a type in memory");
}

static sx_code read_operands(reader *r, sx_part *part, sx_item *item)
{
    uint32_t operand = 0;
    uint32_t immediate = 0;
    bool wide = item->op >= SX_LOP_SWRAP && item->op <= SX_LOP_SMUL; /* of integers */
    const char *operands = sx_lop_info_of(item->op)->operands;
    for (const char *p = operands; *p != '\0'; p++) {
        if (p != operands) {
            SX_TRY(need(r, ","));
        }
        if (*p == 'A') {
            SX_TRY(read_address(r, part, &item->addr));
        } else if (*p == 'f') {
            uint64_t bits = 0;
            SX_TRY(read_hex(r, UINT64_MAX, &bits));
            item->imm = (uint32_t)bits;
            item->imm2 = (int64_t)(bits >> 32);
        } else if (*p == 'n' && immediate++ == 0 && !wide) {
            SX_TRY(read_u32(r, UINT32_MAX, &item->imm));
        } else if (*p == 'n') {
            SX_TRY(read_i64(r, INT64_MIN, INT64_MAX, &item->imm2));
        } else {
            SX_TRY(read_register(r, *p, &item->src[operand++]));
        }
    }
    return SX_OK;
}

static sx_code read_op(reader *r, sx_part *part, sx_item *item)
{
    item->kind = SX_ITEM_OP;
    item->src[0] = item->src[1] = item->src[2] = SX_NO_REG;
    item->dst = SX_NO_REG;
    const uint8_t *start = r->p;
    char kind = *start == 'x' ? 'v' : (char)*start;
    bool result = r->end - start > 1 && (*start == 'x' || *start == 'm' || *start == 's') &&
                  start[1] >= '0' && start[1] <= '9';
    if (result) {
        SX_TRY(read_register(r, kind, &item->dst));
        SX_TRY(need(r, "="));
    }
    SX_TRY(find_op(r, &item->op));
    SX_TRY(read_mem(r, item));
    char made = sx_lop_info_of(item->op)->result;
    if (made != (result ? kind : '-')) {
        return expected(r, "an instruction with this kind of result");
    }
    return read_operands(r, part, item);
}

static sx_code read_items(reader *r, sx_part *part)
{
    uint32_t depth = 1;
    while (depth > 0) {
        skip_space(r);
        if (r->p == r->end) {
            return expected(r, "}");
        }
        sx_item item = {.addr = 0};
        if (take(r, "}")) {
            depth--;
            item.kind = SX_ITEM_END;
            item.dst = 2 + depth;
        } else if (take(r, "loop")) {
            item.kind = SX_ITEM_LOOP;
            SX_TRY(need_letter(r, 'v', "a variable"));
            SX_TRY(read_u32(r, SX_LOOP_VARS_MAX - 1, &item.dst));
            SX_TRY(read_i64(r, 1, SX_EXTENT_MAX, &item.trip));
            item.warps = take(r, "warps");
            SX_TRY(need(r, "{"));
            depth++;
            if (item.dst + 1 > part->var_count) {
                part->var_count = item.dst + 1;
            }
        } else {
            SX_TRY(read_op(r, part, &item));
        }
        if (depth > SX_LOOP_VARS_MAX || part->item_count >= SX_LOOP_ITEMS_MAX) {
            return SX_FAIL(r->cx, SX_LIMIT, "kernel text line %u: too many loops or instructions",
                           r->line);
        }
        if (depth > 0) {
            void *array = part->item;
            SX_TRY(sx_grow(r->cx, &array, &part->item_capacity, part->item_count + 1,
                           sizeof(sx_item)));
            part->item = array;
            part->item[part->item_count++] = item;
        }
    }
    return SX_OK;
}

static sx_code read_part(reader *r, sx_kernel *kernel)
{
    if (kernel->part_count >= SX_PARTS_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "kernel text line %u: more than %d parts", r->line,
                       SX_PARTS_MAX);
    }
    sx_part *part = &kernel->part[kernel->part_count++];
    part->var_count = 3;
    for (uint32_t g = 0; g < 3; g++) {
        SX_TRY(read_i64(r, 1, SX_EXTENT_MAX, &part->grid[g]));
    }
    if (take(r, "warps")) {
        SX_TRY(read_u32(r, SX_PART_WARPS_MAX, &part->warps));
    }
    SX_TRY(need(r, "registers"));
    SX_TRY(read_u32(r, SX_LOOP_REGS_MAX, &part->vector_count));
    SX_TRY(read_u32(r, SX_LOOP_REGS_MAX, &part->mask_count));
    SX_TRY(read_u32(r, SX_LOOP_REGS_MAX, &part->scalar_count));
    SX_TRY(need(r, "{"));
    return read_items(r, part);
}

static sx_code read_buffer(reader *r, sx_kernel *kernel)
{
    if (kernel->buffer_count >= SX_LOOP_BUFFERS_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "kernel text line %u: more than %d buffers", r->line,
                       SX_LOOP_BUFFERS_MAX);
    }
    sx_buffer_role role = SX_BUFFER_IN;
    if (take(r, "out")) {
        role = SX_BUFFER_OUT;
    } else if (take(r, "workspace")) {
        role = SX_BUFFER_WORKSPACE;
    } else {
        SX_TRY(need(r, "in"));
    }
    int64_t size = 0;
    SX_TRY(read_i64(r, 0, SX_LOOP_BYTES_MAX, &size));
    (void)sx_kernel_add_buffer(kernel, role, size);
    return SX_OK;
}

sx_code sx_kernel_parse(sx_ctx *cx, sx_span text, sx_kernel **kernel)
{
    reader r = {.cx = cx, .p = text.ptr, .end = text.ptr + text.len, .line = 1};
    SX_TRY(need(&r, "kernel"));
    SX_TRY(need(&r, "\""));
    char name[64] = {0};
    for (uint32_t n = 0; r.p < r.end && *r.p != '"' && *r.p != '\n' && n < 63; n++) {
        name[n] = (char)*r.p++;
    }
    SX_TRY(need(&r, "\""));
    uint32_t lanes = 0;
    SX_TRY(need(&r, "lanes"));
    SX_TRY(read_u32(&r, SX_LOOP_LANES_MAX, &lanes));
    SX_TRY(sx_kernel_make(cx, name, lanes, take(&r, "wide") ? 8 : 4, kernel));
    SX_TRY(need(&r, "numerics"));
    SX_TRY(read_hex(&r, UINT64_MAX, &(*kernel)->numerics));
    SX_TRY(need(&r, "flops"));
    SX_TRY(read_double(&r, &(*kernel)->flops));
    SX_TRY(need(&r, "bytes"));
    SX_TRY(read_double(&r, &(*kernel)->bytes));
    SX_TRY(need(&r, "{"));
    while (take(&r, "buffer")) {
        SX_TRY(read_buffer(&r, *kernel));
    }
    while (take(&r, "part")) {
        SX_TRY(read_part(&r, *kernel));
    }
    SX_TRY(need(&r, "}"));
    skip_space(&r);
    return r.p == r.end ? SX_OK : expected(&r, "the end of the text");
}
