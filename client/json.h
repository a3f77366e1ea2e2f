/* json.h - writes JSON objects field by field. */
#ifndef SX_CLIENT_JSON_H
#define SX_CLIENT_JSON_H
#include "core/base/buf.h"

/* An object begins with {"schema": "NAME/1"; each field that follows prints its comma in front. */
void sxc_json_begin(sx_buf *json, const char *schema);
void sxc_json_end(sx_buf *json);
void sxc_json_text(sx_buf *json, const char *name, sx_span text);
void sxc_json_int(sx_buf *json, const char *name, int64_t value);
void sxc_json_real(sx_buf *json, const char *name, double value);
void sxc_json_bool(sx_buf *json, const char *name, bool value);
/* Begins an array or an object inside: `bracket` is '[' or '{'. */
void sxc_json_open(sx_buf *json, const char *name, char bracket);
void sxc_json_close(sx_buf *json, char bracket);
/* Comes before each item of an array: prints a comma, unless it is the first. */
void sxc_json_item(sx_buf *json);
#endif
