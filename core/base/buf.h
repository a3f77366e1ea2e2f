/* buf.h - owned growing bytes with a hard limit: text being printed, messages being packed, files being read.
 *
 * The first failure sticks: after it every append is a no-op and sx_buf_code() tells why, so a printer checks
 * once at its end. Memory comes from malloc; release with sx_buf_fini.
 */
#ifndef SX_CORE_BASE_BUF_H
#define SX_CORE_BASE_BUF_H
#include "core/base/base.h"

typedef struct {
    uint8_t *ptr;
    size_t len;
    size_t capacity;
    size_t limit; /* bytes */
    sx_code code; /* SX_OK, SX_LIMIT or SX_NOMEM */
} sx_buf;

void sx_buf_init(sx_buf *buf, size_t limit);
void sx_buf_fini(sx_buf *buf);
void sx_buf_clear(sx_buf *buf); /* keeps the memory, forgets content and failure */
void sx_buf_put(sx_buf *buf, const void *bytes, size_t len);
void sx_buf_put_span(sx_buf *buf, sx_span span);
void sx_buf_put_text(sx_buf *buf, const char *text);
void sx_buf_put_u8(sx_buf *buf, uint8_t value);
void sx_buf_put_u16(sx_buf *buf, uint16_t value); /* little endian, as all below */
void sx_buf_put_u32(sx_buf *buf, uint32_t value);
void sx_buf_put_number(sx_buf *buf, int64_t value); /* in decimal */
void sx_buf_print(sx_buf *buf, const char *format, ...) SX_PRINTF(2, 3);
uint8_t *sx_buf_room(
    sx_buf *buf,
    size_t len); /* `len` zero bytes to be filled in before the next append; NULL after a failure */
void sx_buf_pad(sx_buf *buf, size_t alignment); /* zero bytes up to a multiple of `alignment` */
sx_span sx_buf_span(const sx_buf *buf);
/* The sticky failure as a code, recorded in cx under the name `what`. */
sx_code sx_buf_check(sx_ctx *cx, const sx_buf *buf, const char *what);
#endif
