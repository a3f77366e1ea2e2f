#include "protocol/message.h"

#include <string.h>

/* ---- the tables ---- */
#define SX_MESSAGE(message, help) static const sx_field fields_##message[] = {
#define SX_FIELD(message, key, type_, need, help_) \
    {.name = #key,                                 \
     .help = help_,                                \
     .item = NULL,                                 \
     .offset = offsetof(sx_##message, key),        \
     .type = SX_TYPE_##type_,                      \
     .required = NEED_##need},
#define SX_ITEMS(message, key, item_, need, help_) \
    {.name = #key,                                 \
     .help = help_,                                \
     .item = &sx_message_##item_,                  \
     .offset = offsetof(sx_##message, key),        \
     .type = SX_TYPE_ITEMS,                        \
     .required = NEED_##need},
#define SX_MESSAGE_END(message) \
    {                           \
        .name = NULL            \
    }                           \
    }                           \
    ;
#define NEED_REQUIRED true
#define NEED_OPTIONAL false
#include "protocol/messages.def"

#define SX_MESSAGE(message, help_)               \
    const sx_message sx_message_##message = {    \
        .name = #message,                        \
        .help = help_,                           \
        .fields = fields_##message,              \
        .field_count = SX_FIELD_COUNT_##message, \
        .size = sizeof(sx_##message),            \
    };
#include "protocol/messages.def"

static const sx_method_row method_table[SX_METHOD_COUNT] = {
#define SX_METHOD(id, name_, arguments_, result_, class_, revision_, help_) \
    [SX_METHOD_##id] = {.name = name_,                                      \
                        .help = help_,                                      \
                        .arguments = &sx_message_##arguments_,              \
                        .result = &sx_message_##result_,                    \
                        .class = SX_CLASS_##class_,                         \
                        .revision = revision_},
#include "protocol/messages.def"
};

const sx_method_row *sx_method_get(sx_method method)
{
    SX_ASSERT(method < SX_METHOD_COUNT);
    return &method_table[method];
}

bool sx_method_find(sx_span name, sx_method *method)
{
    for (uint32_t i = 0; i < SX_METHOD_COUNT; i++) {
        if (sx_span_is(name, method_table[i].name)) {
            *method = (sx_method)i;
            return true;
        }
    }
    return false;
}
