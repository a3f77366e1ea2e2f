/* encode.c - the structs of messages.def to MessagePack. */
#include "protocol/object.h"

typedef struct {
    const void *items;
    uint32_t count;
} items_view;

static int append(void *self, const char *bytes, size_t len)
{
    sx_buf_put(self, bytes, len);
    return 0; /* failure sticks in the buffer */
}

void sx_object_packer(msgpack_packer *packer, sx_buf *buf)
{
    msgpack_packer_init(packer, buf, append);
}

void sx_object_pack_text(msgpack_packer *packer, sx_span text)
{
    (void)msgpack_pack_str_with_body(packer, text.ptr, text.len);
}

static void pack_pairs(msgpack_packer *packer, const sx_pairs *pairs)
{
    (void)msgpack_pack_map(packer, pairs->count);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const sx_pair *pair = &pairs->items[i];
        sx_object_pack_text(packer, pair->name);
        switch (pair->kind) {
        case SX_VALUE_BOOL:
            (void)(pair->flag ? msgpack_pack_true(packer) : msgpack_pack_false(packer));
            break;
        case SX_VALUE_INT: (void)msgpack_pack_int64(packer, pair->integer); break;
        case SX_VALUE_REAL: (void)msgpack_pack_double(packer, pair->real); break;
        case SX_VALUE_TEXT: sx_object_pack_text(packer, pair->text); break;
        }
    }
}

static void pack_field(msgpack_packer *packer, const sx_field *field, const void *at)
{
    switch (field->type) {
    case SX_TYPE_BOOL:
        (void)(*(const bool *)at ? msgpack_pack_true(packer) : msgpack_pack_false(packer));
        return;
    case SX_TYPE_INT: (void)msgpack_pack_int64(packer, *(const int64_t *)at); return;
    case SX_TYPE_REAL: (void)msgpack_pack_double(packer, *(const double *)at); return;
    case SX_TYPE_TEXT: sx_object_pack_text(packer, *(const sx_span *)at); return;
    case SX_TYPE_BIN: {
        const sx_span *bytes = at;
        (void)msgpack_pack_bin_with_body(packer, bytes->ptr, bytes->len);
        return;
    }
    case SX_TYPE_KEY: (void)msgpack_pack_bin_with_body(packer, at, SX_KEY_BYTES); return;
    case SX_TYPE_INTS:
    case SX_TYPE_MAP: pack_pairs(packer, at); return;
    case SX_TYPE_TEXTS: {
        const sx_texts *texts = at;
        (void)msgpack_pack_array(packer, texts->count);
        for (uint32_t i = 0; i < texts->count; i++) {
            sx_object_pack_text(packer, texts->items[i]);
        }
        return;
    }
    case SX_TYPE_ITEMS: {
        const items_view *view = at;
        (void)msgpack_pack_array(packer, view->count);
        for (uint32_t i = 0; i < view->count; i++) {
            sx_object_encode(packer, field->item,
                             (const uint8_t *)view->items + i * field->item->size, NULL);
        }
        return;
    }
    }
}

static bool present(const sx_message *message, const void *in, uint32_t index)
{
    const uint32_t *has = in;
    return message->fields[index].required || (*has & UINT32_C(1) << index) != 0;
}

void sx_object_encode(msgpack_packer *packer, const sx_message *message, const void *in,
                      sx_span *tail)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < message->field_count; k++) {
        count += present(message, in, k) ? 1 : 0;
    }
    (void)msgpack_pack_map(packer, count);
    if (tail != NULL) {
        *tail = (sx_span){0};
    }
    for (uint32_t k = 0; k < message->field_count; k++) {
        if (!present(message, in, k)) {
            continue;
        }
        const sx_field *field = &message->fields[k];
        const void *at = (const uint8_t *)in + field->offset;
        sx_object_pack_text(packer, sx_span_of(field->name));
        if (tail != NULL && k + 1 == message->field_count && field->type == SX_TYPE_BIN) {
            const sx_span *bytes = at;
            (void)msgpack_pack_bin(packer, bytes->len);
            *tail = *bytes;
        } else {
            pack_field(packer, field, at);
        }
    }
}

void sx_message_encode(sx_buf *buf, const sx_message *message, const void *in, sx_span *tail)
{
    msgpack_packer packer;
    sx_object_packer(&packer, buf);
    sx_object_encode(&packer, message, in, tail);
}
