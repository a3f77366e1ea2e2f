#include "core/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sx_buf_init(sx_buf *buf, size_t limit)
{
    *buf = (sx_buf){.limit = limit};
}

void sx_buf_fini(sx_buf *buf)
{
    free(buf->ptr);
    *buf = (sx_buf){.limit = buf->limit};
}

void sx_buf_clear(sx_buf *buf)
{
    buf->len = 0;
    buf->code = SX_OK;
}

/* Makes room for `more` bytes; false after a failure. */
static bool reserve(sx_buf *buf, size_t more)
{
    if (buf->code != SX_OK) {
        return false;
    }
    if (more > buf->limit - buf->len) {
        buf->code = SX_LIMIT;
        return false;
    }
    size_t need = buf->len + more;
    if (need <= buf->capacity) {
        return true;
    }
    size_t capacity = buf->capacity < 256 ? 256 : buf->capacity;
    while (capacity < need) {
        capacity += capacity / 2 + 64;
    }
    uint8_t *fresh = realloc(buf->ptr, capacity);
    if (fresh == NULL) {
        buf->code = SX_NOMEM;
        return false;
    }
    buf->ptr = fresh;
    buf->capacity = capacity;
    return true;
}

void sx_buf_put(sx_buf *buf, const void *bytes, size_t len)
{
    SX_ASSERT(bytes != NULL || len == 0);
    if (len > 0 && reserve(buf, len)) {
        memcpy(buf->ptr + buf->len, bytes, len);
        buf->len += len;
    }
}

uint8_t *sx_buf_room(sx_buf *buf, size_t len)
{
    SX_ASSERT(buf->len <= buf->capacity || buf->ptr == NULL);
    if (!reserve(buf, len)) {
        return NULL;
    }
    uint8_t *room = buf->ptr + buf->len;
    memset(room, 0, len);
    buf->len += len;
    return room;
}

void sx_buf_put_span(sx_buf *buf, sx_span span)
{
    sx_buf_put(buf, span.ptr, span.len);
}

void sx_buf_put_text(sx_buf *buf, const char *text)
{
    sx_buf_put(buf, text, strlen(text));
}

void sx_buf_put_u8(sx_buf *buf, uint8_t value)
{
    sx_buf_put(buf, &value, 1);
}

void sx_buf_put_u16(sx_buf *buf, uint16_t value)
{
    uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    sx_buf_put(buf, bytes, sizeof(bytes));
}

void sx_buf_put_u32(sx_buf *buf, uint32_t value)
{
    uint8_t bytes[4];
    for (uint32_t i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    sx_buf_put(buf, bytes, sizeof(bytes));
}

void sx_buf_put_number(sx_buf *buf, int64_t value)
{
    uint8_t digit[20];
    size_t first = sizeof(digit);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digit[--first] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        digit[--first] = '-';
    }
    SX_ASSERT(first < sizeof(digit));
    sx_buf_put(buf, digit + first, sizeof(digit) - first);
}

void sx_buf_print(sx_buf *buf, const char *format, ...)
{
    char text[256]; /* what most texts fit, so that they are made once */
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    SX_ASSERT(length >= 0);
    size_t size = (size_t)length + 1;
    if (reserve(buf, size)) {
        if (size <= sizeof(text)) {
            memcpy(buf->ptr + buf->len, text, size);
        } else {
            (void)vsnprintf((char *)buf->ptr + buf->len, size, format, again);
        }
        buf->len += (size_t)length;
    }
    va_end(again);
}

void sx_buf_pad(sx_buf *buf, size_t alignment)
{
    SX_ASSERT(alignment > 0);
    size_t rest = buf->len % alignment;
    size_t pad = rest == 0 ? 0 : alignment - rest;
    if (pad > 0 && reserve(buf, pad)) {
        memset(buf->ptr + buf->len, 0, pad);
        buf->len += pad;
    }
}

sx_span sx_buf_span(const sx_buf *buf)
{
    SX_ASSERT(buf->ptr != NULL || buf->len == 0);
    return (sx_span){buf->ptr, buf->len};
}

sx_code sx_buf_check(sx_ctx *cx, const sx_buf *buf, const char *what)
{
    SX_ASSERT(buf->len <= buf->limit);
    if (buf->code == SX_LIMIT) {
        return SX_FAIL(cx, SX_LIMIT, "%s: more than %zu bytes", what, buf->limit);
    }
    if (buf->code != SX_OK) {
        return SX_FAIL(cx, buf->code, "%s: no memory for %zu bytes", what, buf->len);
    }
    return SX_OK;
}
