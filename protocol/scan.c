#include "protocol/scan.h"

/* What one header says about the bytes that follow it. */
typedef struct {
    size_t head_bytes;   /* including the type byte */
    uint64_t body_bytes; /* of strings, binaries, numbers */
    uint64_t children;   /* values inside a container, pairs counted twice */
    bool container;
} header;

static uint64_t read_big_endian(const uint8_t *p, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++) {
        value = value << 8 | p[i];
    }
    return value;
}

/* Headers from 0xc0 to 0xdf: a type byte, then a length field of `width` bytes or a fixed body. */
typedef enum { FORBIDDEN, FIXED, SIZED, EXTENSION, ARRAY, MAP } shape;
typedef struct {
    shape shape;
    uint8_t width; /* FIXED: bytes of the body; others: bytes of the length field */
} form;

static const form form_table[32] = {
    {FIXED, 0},      /* c0 nil */
    {FORBIDDEN, 0},  /* c1 never used */
    {FIXED, 0},      /* c2 false */
    {FIXED, 0},      /* c3 true */
    {SIZED, 1},      /* c4 bin8 */
    {SIZED, 2},      /* c5 bin16 */
    {SIZED, 4},      /* c6 bin32 */
    {EXTENSION, 1},  /* c7 ext8 */
    {FORBIDDEN, 2},  /* c8 ext16: no timestamp is that long */
    {FORBIDDEN, 4},  /* c9 ext32 */
    {FIXED, 4},      /* ca float32 */
    {FIXED, 8},      /* cb float64 */
    {FIXED, 1},      /* cc uint8 */
    {FIXED, 2},      /* cd uint16 */
    {FIXED, 4},      /* ce uint32 */
    {FIXED, 8},      /* cf uint64 */
    {FIXED, 1},      /* d0 int8 */
    {FIXED, 2},      /* d1 int16 */
    {FIXED, 4},      /* d2 int32 */
    {FIXED, 8},      /* d3 int64 */
    {FORBIDDEN, 1},  /* d4 fixext1 */
    {FORBIDDEN, 2},  /* d5 fixext2 */
    {EXTENSION, 4},  /* d6 fixext4: timestamp 32 */
    {EXTENSION, 8},  /* d7 fixext8: timestamp 64 */
    {FORBIDDEN, 16}, /* d8 fixext16 */
    {SIZED, 1},      /* d9 str8 */
    {SIZED, 2},      /* da str16 */
    {SIZED, 4},      /* db str32 */
    {ARRAY, 2},      /* dc array16 */
    {ARRAY, 4},      /* dd array32 */
    {MAP, 2},        /* de map16 */
    {MAP, 4},        /* df map32 */
};

static sx_code truncated(sx_ctx *cx, size_t offset)
{
    return SX_FAIL(cx, SX_INPUT, "message: value at byte %zu ends behind the message", offset);
}

/* Timestamps only: extension type -1 with a body of 4, 8 (fixed forms) or 12 bytes (ext8). */
static sx_code read_extension(sx_ctx *cx, sx_span message, size_t offset, const form *row,
                              header *head)
{
    bool fixed = message.ptr[offset] != 0xc7;
    size_t type_at = offset + (fixed ? 1 : 2);
    if (type_at >= message.len) {
        return truncated(cx, offset);
    }
    uint64_t size = fixed ? row->width : message.ptr[offset + 1];
    if (message.ptr[type_at] != 0xff || (!fixed && size != 12)) {
        return SX_FAIL(cx, SX_INPUT,
                       "message: extension type %u of %llu bytes at byte %zu, only timestamps",
                       message.ptr[type_at], (unsigned long long)size, offset);
    }
    *head = (header){.head_bytes = type_at + 1 - offset, .body_bytes = size};
    return SX_OK;
}

static sx_code read_long_form(sx_ctx *cx, sx_span message, size_t offset, header *head)
{
    uint8_t type = message.ptr[offset];
    const form *row = &form_table[type - 0xc0];
    if (row->shape == FORBIDDEN) {
        return SX_FAIL(cx, SX_INPUT, "message: type 0x%02x at byte %zu is not allowed", type,
                       offset);
    }
    if (row->shape == EXTENSION) {
        return read_extension(cx, message, offset, row, head);
    }
    if (row->shape == FIXED) {
        *head = (header){.head_bytes = 1, .body_bytes = row->width};
        return SX_OK;
    }
    if (message.len - offset - 1 < row->width) {
        return truncated(cx, offset);
    }
    uint64_t count = read_big_endian(message.ptr + offset + 1, row->width);
    *head = (header){.head_bytes = 1u + row->width};
    if (row->shape == SIZED) {
        head->body_bytes = count;
    } else {
        head->children = row->shape == MAP ? 2 * count : count;
        head->container = true;
    }
    return SX_OK;
}

static sx_code read_header(sx_ctx *cx, sx_span message, size_t offset, header *head)
{
    uint8_t type = message.ptr[offset];
    *head = (header){.head_bytes = 1};
    if (type < 0x80 || type >= 0xe0) {
        return SX_OK; /* small integers */
    }
    if (type < 0x90) {
        head->children = 2 * (uint64_t)(type & 0x0f);
        head->container = true;
    } else if (type < 0xa0) {
        head->children = type & 0x0f;
        head->container = true;
    } else if (type < 0xc0) {
        head->body_bytes = type & 0x1f;
    } else {
        return read_long_form(cx, message, offset, head);
    }
    return SX_OK;
}

sx_code sx_scan(sx_ctx *cx, sx_span message, uint32_t *nodes)
{
    SX_ASSERT(message.ptr != NULL || message.len == 0);
    uint64_t open[SX_SCAN_DEPTH_MAX]; /* values still to come in each open container */
    uint32_t depth = 0;
    uint32_t count = 0;
    size_t offset = 0;
    if (message.len == 0) {
        return SX_FAIL(cx, SX_INPUT, "message: empty");
    }
    do {
        if (offset >= message.len) {
            return SX_FAIL(cx, SX_INPUT, "message: ends after %zu bytes within a container",
                           offset);
        }
        if (++count > SX_SCAN_NODES_MAX) {
            return SX_FAIL(cx, SX_LIMIT, "message: more than %u values", SX_SCAN_NODES_MAX);
        }
        header head;
        SX_TRY(read_header(cx, message, offset, &head));
        size_t left = message.len - offset - head.head_bytes;
        if (head.body_bytes > left || head.children > left) {
            return SX_FAIL(cx, SX_INPUT, "message: value at byte %zu claims %llu, %zu bytes left",
                           offset, (unsigned long long)(head.body_bytes + head.children), left);
        }
        offset += head.head_bytes + (size_t)head.body_bytes;
        if (depth > 0) {
            open[depth - 1]--;
        }
        if (head.container && head.children > 0) {
            if (depth == SX_SCAN_DEPTH_MAX) {
                return SX_FAIL(cx, SX_LIMIT, "message: nested deeper than %d at byte %zu",
                               SX_SCAN_DEPTH_MAX, offset);
            }
            open[depth++] = head.children;
        }
        while (depth > 0 && open[depth - 1] == 0) {
            depth--;
        }
    } while (depth > 0);
    if (offset != message.len) {
        return SX_FAIL(cx, SX_INPUT, "message: %zu bytes behind the value", message.len - offset);
    }
    if (nodes != NULL) {
        *nodes = count;
    }
    return SX_OK;
}
