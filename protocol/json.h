/* json.h - text of JSON values, and any MessagePack value as JSON.
 *
 * One line, no spaces. Text that is not UTF-8 shows U+FFFD for each bad byte; bytes print as lower-case hex; a
 * map key that is not text prints as the text of its JSON; reals that JSON has no number for print as null.
 */
#ifndef SX_PROTOCOL_JSON_H
#define SX_PROTOCOL_JSON_H
#include "core/base/base.h"
#include "core/base/buf.h"

void sx_json_text(sx_buf *buf, sx_span text);   /* with quotes */
void sx_json_bytes(sx_buf *buf, sx_span bytes); /* hex, with quotes */
void sx_json_real(sx_buf *buf,
                  double value); /* shortest of %.15g and %.17g that reads back the same */

/* One MessagePack value; runs sx_scan first.
 *   errors   SX_INPUT, SX_LIMIT of the scan; the limit of `buf` */
sx_code sx_json_msgpack(sx_ctx *cx, sx_span message, sx_buf *buf);

/* Bytes of valid UTF-8 at the front of `text` (all of it when equal to text.len). */
size_t sx_utf8_prefix(sx_span text);
#endif
