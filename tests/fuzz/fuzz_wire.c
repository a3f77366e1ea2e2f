/* fuzz_wire.c - any bytes as what a peer sends: SP frames cut in two places, requests, responses of every method, JSON.
 * What is accepted as a request encodes to bytes that decode to the same bytes again. */
#include <stdint.h>
#include <stdlib.h>

#include "protocol/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAME_BYTES_MAX ((size_t)1 << 20)
#define ARENA_BYTES ((size_t)64 << 20)

static void round_trip(sx_ctx *cx, const sx_rpc_request *request)
{
    sx_buf first;
    sx_buf second;
    sx_rpc_request again;
    sx_buf_init(&first, (size_t)8 << 20);
    sx_buf_init(&second, (size_t)8 << 20);
    sx_rpc_encode_request(&first, request->msgid, request->method, request->args, &request->meta);
    if (first.code == SX_OK && first.len <= SX_RPC_CONTROL_BYTES_MAX) {
        sx_code code = sx_rpc_decode_request(cx, sx_buf_span(&first), &again);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM);
        if (code == SX_OK) {
            sx_rpc_encode_request(&second, again.msgid, again.method, again.args, &again.meta);
            SX_ASSERT(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
        }
    }
    sx_buf_fini(&first);
    sx_buf_fini(&second);
}

static void read_message(sx_span message)
{
    sx_ctx cx;
    sx_ctx_init(&cx, ARENA_BYTES);
    sx_rpc_request request;
    if (sx_rpc_decode_request(&cx, message, &request) == SX_OK) {
        round_trip(&cx, &request);
    }
    for (uint32_t i = 0; i < SX_METHOD_COUNT; i++) {
        sx_rpc_response response;
        sx_ctx_reset_error(&cx);
        if (sx_rpc_decode_response(&cx, message, (sx_method)i, &response) == SX_OK &&
            response.failed) {
            (void)sx_rpc_raise(&cx, &response.error);
        }
    }
    sx_buf json;
    sx_buf_init(&json, (size_t)16 << 20);
    sx_ctx_reset_error(&cx);
    (void)sx_json_msgpack(&cx, message, &json);
    sx_buf_fini(&json);
    sx_ctx_fini(&cx);
}

static void read_frames(sx_span bytes, size_t cut)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_sp_reader reader;
    sx_sp_reader_init(&reader, 0, FRAME_BYTES_MAX);
    sx_span pieces[2] = {{bytes.ptr, cut}, {bytes.ptr + cut, bytes.len - cut}};
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < 2 && code == SX_OK; i++) {
        sx_sp_event event = SX_SP_READY;
        while (code == SX_OK && event != SX_SP_MORE) {
            code = sx_sp_reader_feed(&cx, &reader, &pieces[i], &event);
            sx_span stack;
            sx_span payload;
            if (code == SX_OK && event == SX_SP_FRAME &&
                sx_sp_split(&cx, sx_buf_span(&reader.body), &stack, &payload) == SX_OK) {
                read_message(payload);
            }
        }
    }
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    sx_span rest = {data + 1, size - 1};
    if ((data[0] & 1) != 0) {
        read_frames(rest, rest.len > 0 ? (size_t)(data[0] >> 1) % rest.len : 0);
    } else {
        read_message(rest);
    }
    return 0;
}
