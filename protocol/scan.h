/* scan.h - structural walk over one MessagePack value, before any decoder sees a byte.
 *
 * A MessagePack header claims counts that a decoder reserves memory for (five bytes can ask for 8 GiB). The
 * walk allocates nothing, looks at each header once and proves: nesting is bounded, every claimed count fits
 * into the bytes that follow, the number of values is bounded, the value ends exactly at the end of the
 * message. After it a decoder needs at most 24 bytes of memory for each byte of the message.
 * Reference: MessagePack specification (github.com/msgpack/msgpack, spec.md).
 */
#ifndef SX_PROTOCOL_SCAN_H
#define SX_PROTOCOL_SCAN_H
#include "core/base/base.h"

#define SX_SCAN_DEPTH_MAX 16                  /* containers within containers */
#define SX_SCAN_NODES_MAX (UINT32_C(1) << 20) /* values of any kind in one message */

/* Check that `message` is one well-formed value.
 *   nodes    number of values found; may be NULL
 *   errors   SX_INPUT malformed, truncated, trailing bytes, forbidden type; SX_LIMIT too deep, too many values.
 *            The text names the byte offset. */
sx_code sx_scan(sx_ctx *cx, sx_span message, uint32_t *nodes);
#endif
