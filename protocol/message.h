/* message.h - the structs of messages.def, and one decoder, encoder and JSON printer for all of them.
 *
 * A message is a MessagePack map with text keys. Its struct holds decoded values; spans borrow from the
 * message bytes (decode) or from the caller (encode); arrays lie in the context's arena. `has` has one bit per
 * field: SX_HAS(p, message, key), SX_PUT(p, message, key, value). Required fields are always encoded, optional
 * ones when their bit is set.
 */
#ifndef SX_PROTOCOL_MESSAGE_H
#define SX_PROTOCOL_MESSAGE_H
#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/hash.h"

#define SX_PAIRS_MAX 256 /* in one INTS or MAP field */

typedef enum { SX_VALUE_BOOL, SX_VALUE_INT, SX_VALUE_REAL, SX_VALUE_TEXT } sx_value_kind;

/* One pair of an INTS or MAP field. */
typedef struct {
    sx_span name;
    sx_value_kind kind;
    bool flag;
    int64_t integer;
    double real;
    sx_span text;
} sx_pair;

typedef struct {
    sx_pair *items;
    uint32_t count;
} sx_pairs;

typedef struct {
    sx_span *items;
    uint32_t count;
} sx_texts;

typedef enum {
    SX_TYPE_BOOL,
    SX_TYPE_INT,
    SX_TYPE_REAL,
    SX_TYPE_TEXT,
    SX_TYPE_BIN,
    SX_TYPE_KEY,
    SX_TYPE_INTS,
    SX_TYPE_MAP,
    SX_TYPE_TEXTS,
    SX_TYPE_ITEMS,
} sx_field_type;

/* ---- the structs ---- */
#define SX_CTYPE_BOOL bool
#define SX_CTYPE_INT int64_t
#define SX_CTYPE_REAL double
#define SX_CTYPE_TEXT sx_span
#define SX_CTYPE_BIN sx_span
#define SX_CTYPE_KEY sx_key
#define SX_CTYPE_INTS sx_pairs
#define SX_CTYPE_MAP sx_pairs
#define SX_CTYPE_TEXTS sx_texts

#define SX_MESSAGE(message, help) \
    typedef struct {              \
        uint32_t has;
#define SX_FIELD(message, key, type, need, help) SX_CTYPE_##type key;
#define SX_ITEMS(message, key, item, need, help) \
    struct {                                     \
        sx_##item *items;                        \
        uint32_t count;                          \
    } key;
#define SX_MESSAGE_END(message) \
    }                           \
    sx_##message;
#include "protocol/messages.def"

/* Index of each field: SX_AT_<message>_<key>. */
#define SX_MESSAGE(message, help) enum {
#define SX_FIELD(message, key, type, need, help) SX_AT_##message##_##key,
#define SX_ITEMS(message, key, item, need, help) SX_AT_##message##_##key,
#define SX_MESSAGE_END(message) \
    SX_FIELD_COUNT_##message    \
    }                           \
    ;                           \
    _Static_assert(SX_FIELD_COUNT_##message <= 32, "fields fit the bits of `has`");
#include "protocol/messages.def"

#define SX_BIT(message, key) (UINT32_C(1) << SX_AT_##message##_##key)
#define SX_HAS(p, message, key) (((p)->has & SX_BIT(message, key)) != 0)
#define SX_PUT(p, message, key_, value)    \
    do {                                   \
        (p)->key_ = (value);               \
        (p)->has |= SX_BIT(message, key_); \
    } while (0)

/* ---- the descriptions ---- */
typedef struct sx_message sx_message;
typedef struct {
    const char *name;
    const char *help;
    const sx_message *item; /* SX_TYPE_ITEMS */
    size_t offset;          /* in the struct */
    sx_field_type type;
    bool required;
} sx_field;

struct sx_message {
    const char *name;
    const char *help;
    const sx_field *fields;
    uint32_t field_count;
    size_t size; /* of the struct; `has` lies at offset 0 */
};

#define SX_MESSAGE(message, help) extern const sx_message sx_message_##message;
#include "protocol/messages.def"

typedef enum { SX_CLASS_CONTROL, SX_CLASS_BULK, SX_CLASS_INNER } sx_method_class;
typedef enum {
#define SX_METHOD(id, name, arguments, result, class, revision, help) SX_METHOD_##id,
#include "protocol/messages.def"
    SX_METHOD_COUNT
} sx_method;

typedef struct {
    const char *name; /* on the wire */
    const char *help;
    const sx_message *arguments;
    const sx_message *result;
    sx_method_class class;
    int64_t revision;
} sx_method_row;

const sx_method_row *sx_method_get(sx_method method);
bool sx_method_find(sx_span name, sx_method *method);

/* Append the map of `in` to `buf` (failure sticks in buf). With `tail` not NULL and a last field that is a
 * present BIN, the bytes of that field are left out and returned in *tail, to be sent behind `buf`; else *tail
 * is empty. */
void sx_message_encode(sx_buf *buf, const sx_message *message, const void *in, sx_span *tail);

/* Append `in` as one line of JSON, keys in table order, `schema` ("compile_result/1") first; absent optional
 * keys are left out. Bytes and keys print as lower-case hex. */
void sx_message_json(sx_buf *buf, const sx_message *message, const void *in);
#endif
