/* json.c - see json.h. */
#include "client/json.h"

#include "protocol/json.h"

void sxc_json_begin(sx_buf *json, const char *schema)
{
    sx_buf_print(json, "{\"schema\":\"%s/1\"", schema);
}
void sxc_json_end(sx_buf *json)
{
    sx_buf_put_u8(json, '}');
}
void sxc_json_item(sx_buf *json)
{
    uint8_t last = json->len > 0 ? json->ptr[json->len - 1] : '[';
    if (last != '[' && last != '{') {
        sx_buf_put_u8(json, ',');
    }
}
static void put_name(sx_buf *json, const char *name)
{
    sxc_json_item(json);
    if (name != NULL) {
        sx_buf_print(json, "\"%s\":", name);
    }
}
void sxc_json_text(sx_buf *json, const char *name, sx_span text)
{
    put_name(json, name);
    sx_json_text(json, text);
}
void sxc_json_int(sx_buf *json, const char *name, int64_t value)
{
    put_name(json, name);
    sx_buf_print(json, "%lld", (long long)value);
}
void sxc_json_real(sx_buf *json, const char *name, double value)
{
    put_name(json, name);
    sx_json_real(json, value);
}
void sxc_json_bool(sx_buf *json, const char *name, bool value)
{
    put_name(json, name);
    sx_buf_put_text(json, value ? "true" : "false");
}
void sxc_json_open(sx_buf *json, const char *name, char bracket)
{
    put_name(json, name);
    sx_buf_put_u8(json, (uint8_t)bracket);
}
void sxc_json_close(sx_buf *json, char bracket)
{
    sx_buf_put_u8(json, (uint8_t)bracket);
}
