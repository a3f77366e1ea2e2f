#include "protocol/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/object.h"

/* Length of the UTF-8 sequence at the front, 0 when it is not one (overlong, surrogate, above U+10FFFF, cut off). */
static size_t utf8_sequence(sx_span text)
{
    const uint8_t *p = text.ptr;
    if (p[0] < 0x80) {
        return 1;
    }
    size_t len = p[0] < 0xe0 ? 2 : (p[0] < 0xf0 ? 3 : 4);
    if (p[0] < 0xc2 || p[0] > 0xf4 || text.len < len) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool bad = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
               (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f);
    return bad ? 0 : len;
}

size_t sx_utf8_prefix(sx_span text)
{
    size_t at = 0;
    while (at < text.len) {
        size_t len = utf8_sequence((sx_span){text.ptr + at, text.len - at});
        if (len == 0) {
            break;
        }
        at += len;
    }
    return at;
}

static void put_escaped(sx_buf *buf, uint8_t byte)
{
    switch (byte) {
    case '"': sx_buf_put_text(buf, "\\\""); return;
    case '\\': sx_buf_put_text(buf, "\\\\"); return;
    case '\n': sx_buf_put_text(buf, "\\n"); return;
    case '\r': sx_buf_put_text(buf, "\\r"); return;
    case '\t': sx_buf_put_text(buf, "\\t"); return;
    default: sx_buf_print(buf, "\\u%04x", byte); return;
    }
}

void sx_json_text(sx_buf *buf, sx_span text)
{
    sx_buf_put_u8(buf, '"');
    size_t at = 0;
    while (at < text.len) {
        uint8_t byte = text.ptr[at];
        size_t len = utf8_sequence((sx_span){text.ptr + at, text.len - at});
        if (len == 0) {
            sx_buf_put_text(buf, "\xef\xbf\xbd"); /* U+FFFD */
            len = 1;
        } else if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7f) {
            put_escaped(buf, byte);
        } else {
            sx_buf_put(buf, text.ptr + at, len);
        }
        at += len;
    }
    sx_buf_put_u8(buf, '"');
}

void sx_json_bytes(sx_buf *buf, sx_span bytes)
{
    static const char digits[] = "0123456789abcdef";
    sx_buf_put_u8(buf, '"');
    for (size_t i = 0; i < bytes.len; i++) {
        char pair[2] = {digits[bytes.ptr[i] >> 4], digits[bytes.ptr[i] & 15]};
        sx_buf_put(buf, pair, sizeof(pair));
    }
    sx_buf_put_u8(buf, '"');
}

void sx_json_real(sx_buf *buf, double value)
{
    if (!isfinite(value)) {
        sx_buf_put_text(buf, "null");
        return;
    }
    char text[40];
    (void)snprintf(text, sizeof(text), "%.15g", value);
    if (strtod(text, NULL) < value || strtod(text, NULL) > value) {
        (void)snprintf(text, sizeof(text), "%.17g", value);
    }
    sx_buf_put_text(buf, text);
}

static void print_object(sx_buf *buf, const msgpack_object *object);

static void print_map_key(sx_buf *buf, const msgpack_object *key)
{
    if (key->type == MSGPACK_OBJECT_STR) {
        print_object(buf, key);
        return;
    }
    sx_buf text;
    sx_buf_init(&text, buf->limit);
    print_object(&text, key);
    if (text.code != SX_OK && buf->code == SX_OK) {
        buf->code = text.code;
    }
    sx_json_text(buf, sx_buf_span(&text));
    sx_buf_fini(&text);
}

static void print_container(sx_buf *buf, const msgpack_object *object)
{
    bool map = object->type == MSGPACK_OBJECT_MAP;
    uint32_t count = map ? object->via.map.size : object->via.array.size;
    sx_buf_put_u8(buf, map ? '{' : '[');
    for (uint32_t i = 0; i < count && buf->code == SX_OK; i++) {
        if (i > 0) {
            sx_buf_put_u8(buf, ',');
        }
        if (map) {
            print_map_key(buf, &object->via.map.ptr[i].key);
            sx_buf_put_u8(buf, ':');
            print_object(buf, &object->via.map.ptr[i].val);
        } else {
            print_object(buf, &object->via.array.ptr[i]);
        }
    }
    sx_buf_put_u8(buf, map ? '}' : ']');
}

/* Recursion is bounded by SX_SCAN_DEPTH_MAX. */
static void print_object(sx_buf *buf, const msgpack_object *object)
{
    switch (object->type) {
    case MSGPACK_OBJECT_NIL: sx_buf_put_text(buf, "null"); return;
    case MSGPACK_OBJECT_BOOLEAN:
        sx_buf_put_text(buf, object->via.boolean ? "true" : "false");
        return;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        sx_buf_print(buf, "%llu", (unsigned long long)object->via.u64);
        return;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        sx_buf_print(buf, "%lld", (long long)object->via.i64);
        return;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: sx_json_real(buf, object->via.f64); return;
    case MSGPACK_OBJECT_STR:
        sx_json_text(buf, (sx_span){(const uint8_t *)object->via.str.ptr, object->via.str.size});
        return;
    case MSGPACK_OBJECT_BIN:
        sx_json_bytes(buf, (sx_span){(const uint8_t *)object->via.bin.ptr, object->via.bin.size});
        return;
    case MSGPACK_OBJECT_EXT:
        sx_json_bytes(buf, (sx_span){(const uint8_t *)object->via.ext.ptr, object->via.ext.size});
        return;
    case MSGPACK_OBJECT_ARRAY:
    case MSGPACK_OBJECT_MAP: print_container(buf, object); return;
    }
}

sx_code sx_json_msgpack(sx_ctx *cx, sx_span message, sx_buf *buf)
{
    msgpack_unpacked unpacked;
    sx_code code = sx_object_unpack(cx, message, &unpacked);
    if (code == SX_OK) {
        print_object(buf, &unpacked.data);
        code = sx_buf_check(cx, buf, "json");
    }
    msgpack_unpacked_destroy(&unpacked);
    return code;
}

/* ---- messages ---- */
typedef struct {
    const void *items;
    uint32_t count;
} items_view;

static void print_message(sx_buf *buf, const sx_message *message, const void *in);

static void print_pairs(sx_buf *buf, const sx_pairs *pairs)
{
    sx_buf_put_u8(buf, '{');
    for (uint32_t i = 0; i < pairs->count; i++) {
        const sx_pair *pair = &pairs->items[i];
        if (i > 0) {
            sx_buf_put_u8(buf, ',');
        }
        sx_json_text(buf, pair->name);
        sx_buf_put_u8(buf, ':');
        switch (pair->kind) {
        case SX_VALUE_BOOL: sx_buf_put_text(buf, pair->flag ? "true" : "false"); break;
        case SX_VALUE_INT: sx_buf_print(buf, "%lld", (long long)pair->integer); break;
        case SX_VALUE_REAL: sx_json_real(buf, pair->real); break;
        case SX_VALUE_TEXT: sx_json_text(buf, pair->text); break;
        }
    }
    sx_buf_put_u8(buf, '}');
}

static void print_array(sx_buf *buf, const sx_field *field, const void *at)
{
    const items_view *view = at; /* sx_texts has the same layout */
    sx_buf_put_u8(buf, '[');
    for (uint32_t i = 0; i < view->count; i++) {
        if (i > 0) {
            sx_buf_put_u8(buf, ',');
        }
        if (field->type == SX_TYPE_TEXTS) {
            sx_json_text(buf, ((const sx_span *)view->items)[i]);
        } else {
            sx_buf_put_u8(buf, '{');
            print_message(buf, field->item, (const uint8_t *)view->items + i * field->item->size);
            sx_buf_put_u8(buf, '}');
        }
    }
    sx_buf_put_u8(buf, ']');
}

static void print_field(sx_buf *buf, const sx_field *field, const void *at)
{
    switch (field->type) {
    case SX_TYPE_BOOL: sx_buf_put_text(buf, *(const bool *)at ? "true" : "false"); return;
    case SX_TYPE_INT: sx_buf_print(buf, "%lld", (long long)*(const int64_t *)at); return;
    case SX_TYPE_REAL: sx_json_real(buf, *(const double *)at); return;
    case SX_TYPE_TEXT: sx_json_text(buf, *(const sx_span *)at); return;
    case SX_TYPE_BIN: sx_json_bytes(buf, *(const sx_span *)at); return;
    case SX_TYPE_KEY: sx_json_bytes(buf, (sx_span){at, SX_KEY_BYTES}); return;
    case SX_TYPE_INTS:
    case SX_TYPE_MAP: print_pairs(buf, at); return;
    case SX_TYPE_TEXTS:
    case SX_TYPE_ITEMS: print_array(buf, field, at); return;
    }
}

static void print_message(sx_buf *buf, const sx_message *message, const void *in)
{
    const uint32_t *has = in;
    bool first = true;
    for (uint32_t k = 0; k < message->field_count; k++) {
        const sx_field *field = &message->fields[k];
        if (!field->required && (*has & UINT32_C(1) << k) == 0) {
            continue;
        }
        sx_buf_print(buf, "%s\"%s\":", first ? "" : ",", field->name);
        print_field(buf, field, (const uint8_t *)in + field->offset);
        first = false;
    }
}

void sx_message_json(sx_buf *buf, const sx_message *message, const void *in)
{
    sx_buf_print(buf, "{\"schema\":\"%s/1\"%s", message->name, message->field_count > 0 ? "," : "");
    size_t before = buf->len;
    print_message(buf, message, in);
    if (buf->len == before && message->field_count > 0 && buf->len > 0) {
        buf->len--; /* no key was present: the comma goes */
    }
    sx_buf_put_u8(buf, '}');
}
