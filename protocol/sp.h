/* sp.h - the SP/ipc wire of nng as a pure codec: bytes in, frames out. No sockets here.
 *
 * Both sides send 8 bytes first: 00 'S' 'P' 00, protocol number (u16 big endian), two zero bytes. Then frames:
 * 01, size (u64 big endian), body. The body of REQ and REP begins with a stack of u32 ids (big endian); the
 * one with the top bit set ends it (hops through devices push ids in front). A reply carries the stack of its
 * request unchanged. Reference: nng sources src/sp/transport/ipc, RFC draft sp-request-reply-01.
 */
#ifndef SX_PROTOCOL_SP_H
#define SX_PROTOCOL_SP_H
#include "core/base/base.h"
#include "core/base/buf.h"

#define SX_SP_REQ 0x30
#define SX_SP_REP 0x31
#define SX_SP_HELLO_BYTES 8
#define SX_SP_HEAD_BYTES 9
#define SX_SP_STACK_MAX \
    16 /* ids in front of a payload: the longest chain of hops nng allows, and the request id */

void sx_sp_hello(uint16_t protocol, uint8_t hello[SX_SP_HELLO_BYTES]);
void sx_sp_head(uint64_t body_bytes, uint8_t head[SX_SP_HEAD_BYTES]);

typedef enum {
    SX_SP_MORE,  /* all input used up, nothing complete */
    SX_SP_READY, /* the peer's hello is complete and right */
    SX_SP_FRAME, /* `body` of the reader holds one frame, until the next call */
} sx_sp_event;

/* Incremental reader of one connection. Memory follows the bytes that really arrived, not the size a header claims. */
typedef struct {
    /* protocol number the peer has to announce; 0: no hello expected (pipes between our own
     * processes) */
    uint16_t peer;
    size_t limit_bytes; /* of one frame body */
    sx_buf body;
    uint64_t body_bytes; /* claimed by the current header */
    uint8_t head[SX_SP_HEAD_BYTES];
    uint32_t head_len;
    uint8_t state; /* of the reader: hello, head, body, done, broken */
} sx_sp_reader;

void sx_sp_reader_init(sx_sp_reader *reader, uint16_t peer, size_t limit_bytes);
void sx_sp_reader_fini(sx_sp_reader *reader);

/* Take bytes from the front of `input` up to the next event; call again while input is left.
 *   errors   SX_INPUT not the SP wire, or another protocol; SX_LIMIT frame above the limit (checked before
 *            memory is taken); SX_NOMEM. After an error the connection is of no use: every later call fails
 *            with SX_INPUT. */
sx_code sx_sp_reader_feed(sx_ctx *cx, sx_sp_reader *reader, sx_span *input, sx_sp_event *event);

/* Is the reader in the middle of a hello or a frame? (a peer may be silent between frames for ever, within one not) */
bool sx_sp_reader_partial(const sx_sp_reader *reader);

/* Split a frame body into the id stack (kept for the reply) and the payload; both point into `body`.
 *   errors   SX_INPUT no end mark, SX_LIMIT more than SX_SP_STACK_MAX ids */
sx_code sx_sp_split(sx_ctx *cx, sx_span body, sx_span *stack, sx_span *payload);
#endif
