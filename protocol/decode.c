/* decode.c - MessagePack trees to the structs of messages.def. */
#include "protocol/object.h"

#include <string.h>

#include "protocol/json.h"
#include "protocol/scan.h"

typedef struct {
    void *items;
    uint32_t count;
} items_view; /* the layout of every SX_ITEMS field */

static const char *const type_names[] = {
    [SX_TYPE_BOOL] = "a boolean",
    [SX_TYPE_INT] = "an integer of 64 bits",
    [SX_TYPE_REAL] = "a number",
    [SX_TYPE_TEXT] = "text",
    [SX_TYPE_BIN] = "bytes",
    [SX_TYPE_KEY] = "a key of 32 bytes",
    [SX_TYPE_INTS] = "a map of text to integers",
    [SX_TYPE_MAP] = "a map of text to booleans, numbers and text",
    [SX_TYPE_TEXTS] = "an array of text",
    [SX_TYPE_ITEMS] = "an array of maps",
};

sx_code sx_object_unpack(sx_ctx *cx, sx_span bytes, msgpack_unpacked *unpacked)
{
    msgpack_unpacked_init(unpacked);
    SX_TRY(sx_scan(cx, bytes, NULL));
    size_t offset = 0;
    msgpack_unpack_return got =
        msgpack_unpack_next(unpacked, (const char *)bytes.ptr, bytes.len, &offset);
    if (got == MSGPACK_UNPACK_NOMEM_ERROR) {
        return SX_FAIL(cx, SX_NOMEM, "message: no memory to unpack %zu bytes", bytes.len);
    }
    if (SX_NEVER(got != MSGPACK_UNPACK_SUCCESS || offset != bytes.len)) {
        return SX_FAIL(cx, SX_INTERNAL, "message: scan and msgpack-c disagree at byte %zu of %zu",
                       offset, bytes.len);
    }
    return SX_OK;
}

static sx_code wrong_type(sx_ctx *cx, const sx_message *message, const sx_field *field)
{
    return SX_FAIL(cx, SX_INPUT, "%s: key '%s' is not %s", message->name, field->name,
                   type_names[field->type]);
}

static bool read_text(const msgpack_object *object, sx_span *text)
{
    if (object->type != MSGPACK_OBJECT_STR) {
        return false;
    }
    *text = (sx_span){(const uint8_t *)object->via.str.ptr, object->via.str.size};
    return sx_utf8_prefix(*text) == text->len;
}

static bool read_int(const msgpack_object *object, int64_t *value)
{
    if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        *value = object->via.i64;
        return true;
    }
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= INT64_MAX) {
        *value = (int64_t)object->via.u64;
        return true;
    }
    return false;
}

static bool read_real(const msgpack_object *object, double *value)
{
    int64_t integer;
    if (object->type == MSGPACK_OBJECT_FLOAT32 || object->type == MSGPACK_OBJECT_FLOAT64) {
        *value = object->via.f64;
        return true;
    }
    if (read_int(object, &integer)) {
        *value = (double)integer;
        return true;
    }
    return false;
}

/* Value of a MAP pair. Integers stay integers. */
static bool read_pair(const msgpack_object *object, sx_field_type type, sx_pair *pair)
{
    if (read_int(object, &pair->integer)) {
        pair->kind = SX_VALUE_INT;
        return true;
    }
    if (type == SX_TYPE_INTS) {
        return false;
    }
    if (object->type == MSGPACK_OBJECT_BOOLEAN) {
        pair->kind = SX_VALUE_BOOL;
        pair->flag = object->via.boolean;
        return true;
    }
    if (read_text(object, &pair->text)) {
        pair->kind = SX_VALUE_TEXT;
        return true;
    }
    pair->kind = SX_VALUE_REAL;
    return read_real(object, &pair->real);
}

static sx_code decode_pairs(sx_ctx *cx, const sx_message *message, const sx_field *field,
                            const msgpack_object *object, sx_pairs *pairs)
{
    if (object->type != MSGPACK_OBJECT_MAP) {
        return wrong_type(cx, message, field);
    }
    uint32_t count = object->via.map.size;
    if (count > SX_PAIRS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%s: key '%s' holds %u pairs, at most %d", message->name,
                       field->name, count, SX_PAIRS_MAX);
    }
    pairs->items = SX_NEW_ARRAY(cx, sx_pair, count);
    if (pairs->items == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        const msgpack_object_kv *kv = &object->via.map.ptr[i];
        sx_pair *pair = &pairs->items[i];
        if (!read_text(&kv->key, &pair->name) || !read_pair(&kv->val, field->type, pair)) {
            return wrong_type(cx, message, field);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (sx_span_equal(pairs->items[j].name, pair->name)) {
                return SX_FAIL(cx, SX_INPUT, "%s: '%.*s' stands twice in '%s'", message->name,
                               (int)sx_min_i64((int64_t)pair->name.len, SX_NAME_MAX),
                               (const char *)pair->name.ptr, field->name);
            }
        }
    }
    pairs->count = count;
    return SX_OK;
}

static sx_code decode_texts(sx_ctx *cx, const sx_message *message, const sx_field *field,
                            const msgpack_object *object, sx_texts *texts)
{
    if (object->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type(cx, message, field);
    }
    texts->items = SX_NEW_ARRAY(cx, sx_span, object->via.array.size);
    if (texts->items == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < object->via.array.size; i++) {
        if (!read_text(&object->via.array.ptr[i], &texts->items[i])) {
            return wrong_type(cx, message, field);
        }
    }
    texts->count = object->via.array.size;
    return SX_OK;
}

static sx_code decode_items(sx_ctx *cx, const sx_message *message, const sx_field *field,
                            const msgpack_object *object, items_view *view)
{
    if (object->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type(cx, message, field);
    }
    uint32_t count = object->via.array.size;
    uint8_t *items = sx_alloc_array(cx, count, field->item->size);
    if (items == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sx_object_decode(cx, field->item, &object->via.array.ptr[i],
                                items + i * field->item->size));
    }
    *view = (items_view){.items = items, .count = count};
    return SX_OK;
}

static sx_code decode_field(sx_ctx *cx, const sx_message *message, const sx_field *field,
                            const msgpack_object *object, void *at)
{
    bool right = false;
    switch (field->type) {
    case SX_TYPE_BOOL:
        right = object->type == MSGPACK_OBJECT_BOOLEAN;
        *(bool *)at = right && object->via.boolean;
        break;
    case SX_TYPE_INT: right = read_int(object, (int64_t *)at); break;
    case SX_TYPE_REAL: right = read_real(object, (double *)at); break;
    case SX_TYPE_TEXT: right = read_text(object, (sx_span *)at); break;
    case SX_TYPE_BIN:
        right = object->type == MSGPACK_OBJECT_BIN;
        if (right) {
            *(sx_span *)at = (sx_span){(const uint8_t *)object->via.bin.ptr, object->via.bin.size};
        }
        break;
    case SX_TYPE_KEY:
        right = object->type == MSGPACK_OBJECT_BIN && object->via.bin.size == SX_KEY_BYTES;
        if (right) {
            memcpy(at, object->via.bin.ptr, SX_KEY_BYTES);
        }
        break;
    case SX_TYPE_INTS:
    case SX_TYPE_MAP: return decode_pairs(cx, message, field, object, (sx_pairs *)at);
    case SX_TYPE_TEXTS: return decode_texts(cx, message, field, object, (sx_texts *)at);
    case SX_TYPE_ITEMS: return decode_items(cx, message, field, object, (items_view *)at);
    }
    return right ? SX_OK : wrong_type(cx, message, field);
}

sx_code sx_object_decode(sx_ctx *cx, const sx_message *message, const msgpack_object *object,
                         void *out)
{
    if (object->type != MSGPACK_OBJECT_MAP) {
        return SX_FAIL(cx, SX_INPUT, "%s: not a map", message->name);
    }
    uint32_t *has = out;
    SX_ASSERT(*has == 0);
    for (uint32_t i = 0; i < object->via.map.size; i++) {
        const msgpack_object_kv *kv = &object->via.map.ptr[i];
        sx_span key;
        if (!read_text(&kv->key, &key)) {
            return SX_FAIL(cx, SX_INPUT, "%s: key %u is not text", message->name, i);
        }
        uint32_t k = 0;
        while (k < message->field_count && !sx_span_is(key, message->fields[k].name)) {
            k++;
        }
        if (k == message->field_count) {
            continue; /* from a newer peer */
        }
        const sx_field *field = &message->fields[k];
        if ((*has & UINT32_C(1) << k) != 0) {
            return SX_FAIL(cx, SX_INPUT, "%s: key '%s' stands twice", message->name, field->name);
        }
        SX_TRY(decode_field(cx, message, field, &kv->val, (uint8_t *)out + field->offset));
        *has |= UINT32_C(1) << k;
    }
    for (uint32_t k = 0; k < message->field_count; k++) {
        if (message->fields[k].required && (*has & UINT32_C(1) << k) == 0) {
            return SX_FAIL(cx, SX_INPUT, "%s: key '%s' is missing", message->name,
                           message->fields[k].name);
        }
    }
    return SX_OK;
}
