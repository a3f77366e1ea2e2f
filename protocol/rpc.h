/* rpc.h - MessagePack-RPC: request [0, msgid, method, params], response [1, msgid, error, result], notice [2,
 * method, params]; params = [arguments map, meta map], the second one optional.
 *
 * Decoding runs sx_scan first. Spans in the results borrow from `message`.
 * Reference: github.com/msgpack-rpc/msgpack-rpc, spec.md.
 */
#ifndef SX_PROTOCOL_RPC_H
#define SX_PROTOCOL_RPC_H
#include "protocol/message.h"

#define SX_RPC_REQUEST_BYTES_MAX ((size_t)64 << 20)
#define SX_RPC_CONTROL_BYTES_MAX ((size_t)1 << 20)
#define SX_RPC_VERSION 1

typedef struct {
    uint32_t msgid;
    bool addressed; /* msgid is known, so an error can be answered; may be set on failure too */
    bool notice;    /* type 2: no answer is wanted, msgid is 0 */
    sx_method method;
    const void *args; /* struct sx_<arguments of the method>, in cx's arena */
    sx_call_meta meta;
} sx_rpc_request;

/* errors   SX_INPUT, SX_LIMIT of scan and decode; SX_UNIMPLEMENTED unknown method; SX_LIMIT control request
 * above 1 MiB */
sx_code sx_rpc_decode_request(sx_ctx *cx, sx_span message, sx_rpc_request *request);

typedef struct {
    uint32_t msgid;
    bool failed;
    sx_error_body error; /* when failed */
    const void *result;  /* else struct sx_<result of the method>, in cx's arena */
} sx_rpc_response;

/* Decode the response to a call of `method`.
 *   errors   SX_INPUT, SX_LIMIT. An error reply is no failure of this function. */
sx_code sx_rpc_decode_response(sx_ctx *cx, sx_span message, sx_method method,
                               sx_rpc_response *response);

/* Fail with the code, text and hint of an error reply. */
sx_code sx_rpc_raise(sx_ctx *cx, const sx_error_body *error);

/* Append messages; failure sticks in `buf`. `meta` may be NULL; `tail` as in sx_message_encode. */
void sx_rpc_encode_request(sx_buf *buf, uint32_t msgid, sx_method method, const void *args,
                           const sx_call_meta *meta);
void sx_rpc_encode_notice(sx_buf *buf, sx_method method, const void *args);
void sx_rpc_encode_result(sx_buf *buf, uint32_t msgid, sx_method method, const void *result,
                          sx_span *tail);
void sx_rpc_encode_error(sx_buf *buf, uint32_t msgid, const sx_error *error, int64_t after_ms);
#endif
