#include "protocol/sp.h"

#include <string.h>

enum { IN_HELLO, IN_HEAD, IN_BODY, FRAME_DONE, BROKEN };

#define FRAME_TYPE 0x01

void sx_sp_hello(uint16_t protocol, uint8_t hello[SX_SP_HELLO_BYTES])
{
    const uint8_t bytes[SX_SP_HELLO_BYTES] = {
        0, 'S', 'P', 0, (uint8_t)(protocol >> 8), (uint8_t)protocol, 0, 0,
    };
    memcpy(hello, bytes, sizeof(bytes));
}

void sx_sp_head(uint64_t body_bytes, uint8_t head[SX_SP_HEAD_BYTES])
{
    head[0] = FRAME_TYPE;
    for (uint32_t i = 0; i < 8; i++) {
        head[1 + i] = (uint8_t)(body_bytes >> (56 - 8 * i));
    }
}

void sx_sp_reader_init(sx_sp_reader *reader, uint16_t peer, size_t limit_bytes)
{
    SX_ASSERT(limit_bytes > 0);
    *reader = (sx_sp_reader){
        .peer = peer,
        .limit_bytes = limit_bytes,
        .state = peer != 0 ? IN_HELLO : IN_HEAD,
    };
    sx_buf_init(&reader->body, limit_bytes);
}

void sx_sp_reader_fini(sx_sp_reader *reader)
{
    sx_buf_fini(&reader->body);
    reader->state = BROKEN;
}

bool sx_sp_reader_partial(const sx_sp_reader *reader)
{
    return reader->state == IN_HELLO || reader->state == IN_BODY || reader->head_len > 0;
}

/* Moves input into `head` until it holds `want` bytes; true when it does. */
static bool fill_head(sx_sp_reader *reader, sx_span *input, uint32_t want)
{
    SX_ASSERT(want <= SX_SP_HEAD_BYTES && reader->head_len < want);
    size_t n = want - reader->head_len;
    if (n > input->len) {
        n = input->len;
    }
    if (n > 0) {
        memcpy(reader->head + reader->head_len, input->ptr, n);
    }
    reader->head_len += (uint32_t)n;
    input->ptr += n;
    input->len -= n;
    return reader->head_len == want;
}

static sx_code check_hello(sx_ctx *cx, const sx_sp_reader *reader)
{
    uint8_t wanted[SX_SP_HELLO_BYTES];
    sx_sp_hello(reader->peer, wanted);
    const uint8_t *h = reader->head;
    if (memcmp(h, wanted, 4) != 0 || h[6] != 0 || h[7] != 0) {
        return SX_FAIL(cx, SX_INPUT, "hello: bytes %02x%02x%02x%02x are not the SP wire", h[0],
                       h[1], h[2], h[3]);
    }
    if (memcmp(h, wanted, sizeof(wanted)) != 0) {
        return SX_FAIL(cx, SX_INPUT, "hello: peer speaks protocol 0x%02x%02x, expected 0x%04x",
                       h[4], h[5], reader->peer);
    }
    return SX_OK;
}

static sx_code check_head(sx_ctx *cx, sx_sp_reader *reader)
{
    if (reader->head[0] != FRAME_TYPE) {
        return SX_FAIL(cx, SX_INPUT, "frame: type 0x%02x, expected 0x%02x", reader->head[0],
                       FRAME_TYPE);
    }
    uint64_t size = 0;
    for (uint32_t i = 0; i < 8; i++) {
        size = size << 8 | reader->head[1 + i];
    }
    if (size > reader->limit_bytes) {
        return SX_FAIL(cx, SX_LIMIT, "frame: %llu bytes, at most %zu", (unsigned long long)size,
                       reader->limit_bytes);
    }
    reader->body_bytes = size;
    return SX_OK;
}

/* One step of the state machine; `*event` stays SX_SP_MORE when the next step may go on. */
static sx_code step(sx_ctx *cx, sx_sp_reader *reader, sx_span *input, sx_sp_event *event)
{
    switch (reader->state) {
    case IN_HELLO:
        if (fill_head(reader, input, SX_SP_HELLO_BYTES)) {
            SX_TRY(check_hello(cx, reader));
            reader->head_len = 0;
            reader->state = IN_HEAD;
            *event = SX_SP_READY;
        }
        return SX_OK;
    case IN_HEAD:
        if (fill_head(reader, input, SX_SP_HEAD_BYTES)) {
            SX_TRY(check_head(cx, reader));
            reader->head_len = 0;
            reader->state = IN_BODY;
        }
        return SX_OK;
    case IN_BODY: {
        size_t n = (size_t)reader->body_bytes - reader->body.len;
        if (n > input->len) {
            n = input->len;
        }
        sx_buf_put(&reader->body, input->ptr, n);
        SX_TRY(sx_buf_check(cx, &reader->body, "frame"));
        input->ptr += n;
        input->len -= n;
        if (reader->body.len == reader->body_bytes) {
            reader->state = FRAME_DONE;
            *event = SX_SP_FRAME;
        }
        return SX_OK;
    }
    case FRAME_DONE:
        sx_buf_clear(&reader->body);
        reader->state = IN_HEAD;
        return SX_OK;
    default: return SX_FAIL(cx, SX_INPUT, "connection: bytes behind a broken frame");
    }
}

sx_code sx_sp_reader_feed(sx_ctx *cx, sx_sp_reader *reader, sx_span *input, sx_sp_event *event)
{
    *event = SX_SP_MORE;
    /* Each turn uses input, reports an event, or leaves FRAME_DONE; an empty body is complete without input. */
    while (*event == SX_SP_MORE &&
           (input->len > 0 || (reader->state == IN_BODY && reader->body_bytes == 0))) {
        sx_code code = step(cx, reader, input, event);
        if (code != SX_OK) {
            reader->state = BROKEN;
            return code;
        }
    }
    return SX_OK;
}

sx_code sx_sp_split(sx_ctx *cx, sx_span body, sx_span *stack, sx_span *payload)
{
    for (uint32_t count = 1; count <= SX_SP_STACK_MAX; count++) {
        size_t end = (size_t)count * 4;
        if (end > body.len) {
            return SX_FAIL(cx, SX_INPUT, "frame: %zu bytes without a request id", body.len);
        }
        if ((body.ptr[end - 4] & 0x80) != 0) {
            *stack = (sx_span){body.ptr, end};
            *payload = (sx_span){body.ptr + end, body.len - end};
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_LIMIT, "frame: more than %d ids before the payload", SX_SP_STACK_MAX);
}
