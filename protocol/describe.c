#include "protocol/describe.h"

#include "protocol/message.h"

static const char *type_name(const sx_field *field)
{
    switch (field->type) {
    case SX_TYPE_BOOL: return "bool";
    case SX_TYPE_INT: return "int";
    case SX_TYPE_REAL: return "real";
    case SX_TYPE_TEXT: return "text";
    case SX_TYPE_BIN: return "bin";
    case SX_TYPE_KEY: return "key";
    case SX_TYPE_INTS: return "map of int";
    case SX_TYPE_MAP: return "map";
    case SX_TYPE_TEXTS: return "array of text";
    case SX_TYPE_ITEMS: return "array of";
    }
    SX_UNREACHABLE();
}

static void describe_message(sx_buf *buf, const sx_message *message)
{
    sx_buf_print(buf, "\n### %s\n\n", message->name);
    if (message->help[0] != '\0') {
        sx_buf_print(buf, "%s\n\n", message->help);
    }
    if (message->field_count == 0) {
        return;
    }
    sx_buf_put_text(buf, "| key | type | | meaning |\n|---|---|---|---|\n");
    for (uint32_t k = 0; k < message->field_count; k++) {
        const sx_field *field = &message->fields[k];
        sx_buf_print(buf, "| `%s` | %s%s%s | %s | %s |\n", field->name, type_name(field),
                     field->item != NULL ? " " : "", field->item != NULL ? field->item->name : "",
                     field->required ? "required" : "optional", field->help);
    }
}

static void describe_methods(sx_buf *buf)
{
    sx_buf_put_text(buf, "## Methods\n\n| method | arguments | result | |\n|---|---|---|---|\n");
    for (uint32_t i = 0; i < SX_METHOD_COUNT; i++) {
        const sx_method_row *row = sx_method_get((sx_method)i);
        if (row->class != SX_CLASS_INNER) {
            sx_buf_print(buf, "| `%s` | %s | %s | %s |\n", row->name, row->arguments->name,
                         row->result->name, row->help);
        }
    }
}

static void describe_codes(sx_buf *buf)
{
    sx_buf_put_text(buf,
                    "\n## Error codes\n\n| code | name | retry | meaning |\n|---|---|---|---|\n");
    for (uint32_t i = 0; i < SX_CODE_COUNT; i++) {
        sx_code code = (sx_code)i;
        if (code != SX_OK) {
            sx_buf_print(buf, "| %d | %s | %s | %s |\n", sx_code_wire(code), sx_code_name(code),
                         sx_code_retry(code) ? "yes" : "no", sx_code_text(code));
        }
    }
}

void sx_protocol_describe(sx_buf *buf)
{
    static const sx_message *const messages[] = {
#define SX_MESSAGE(message, help) &sx_message_##message,
#include "protocol/messages.def"
    };
    describe_methods(buf);
    sx_buf_put_text(buf, "\n## Messages\n");
    for (size_t i = 0; i < SX_COUNT(messages); i++) {
        describe_message(buf, messages[i]);
    }
    describe_codes(buf);
}
