#include "protocol/rpc.h"

#include <stdio.h>
#include <string.h>

#include "protocol/json.h"
#include "protocol/object.h"

enum { REQUEST = 0, RESPONSE = 1, NOTICE = 2 };

static bool is_id(const msgpack_object *object)
{
    return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= UINT32_MAX;
}

/* Array of `count` elements beginning with `type`? */
static bool is_envelope(const msgpack_object *root, uint64_t type, uint32_t count)
{
    return root->type == MSGPACK_OBJECT_ARRAY && root->via.array.size == count &&
           root->via.array.ptr[0].type == MSGPACK_OBJECT_POSITIVE_INTEGER &&
           root->via.array.ptr[0].via.u64 == type;
}

static sx_code decode_params(sx_ctx *cx, const msgpack_object *params, sx_rpc_request *request)
{
    const sx_message *message = sx_method_get(request->method)->arguments;
    if (params->type != MSGPACK_OBJECT_ARRAY || params->via.array.size < 1 ||
        params->via.array.size > 2) {
        return SX_FAIL(cx, SX_INPUT, "request: params of '%s' are not [arguments, meta]",
                       sx_method_get(request->method)->name);
    }
    void *args = sx_alloc(cx, message->size);
    if (args == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_object_decode(cx, message, &params->via.array.ptr[0], args));
    if (params->via.array.size == 2) {
        SX_TRY(
            sx_object_decode(cx, &sx_message_call_meta, &params->via.array.ptr[1], &request->meta));
    }
    request->args = args;
    return SX_OK;
}

static sx_code decode_envelope(sx_ctx *cx, const msgpack_object *root, size_t message_bytes,
                               sx_rpc_request *request)
{
    request->notice = is_envelope(root, NOTICE, 3);
    if (!request->notice && !is_envelope(root, REQUEST, 4)) {
        return SX_FAIL(cx, SX_INPUT, "request: not [0, msgid, method, params]");
    }
    const msgpack_object *element = root->via.array.ptr;
    if (!request->notice) {
        if (!is_id(&element[1])) {
            return SX_FAIL(cx, SX_INPUT, "request: msgid is not an integer of 32 bits");
        }
        request->msgid = (uint32_t)element[1].via.u64;
        request->addressed = true;
        element++;
    }
    if (element[1].type != MSGPACK_OBJECT_STR) {
        return SX_FAIL(cx, SX_INPUT, "request: method is not text");
    }
    sx_span name = {(const uint8_t *)element[1].via.str.ptr, element[1].via.str.size};
    if (!sx_method_find(name, &request->method)) {
        bool readable = name.len <= SX_NAME_MAX && sx_utf8_prefix(name) == name.len;
        int shown = readable ? (int)name.len : 0;
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "request: no method '%.*s' of %zu bytes", shown,
                       (const char *)name.ptr, name.len);
    }
    if (sx_method_get(request->method)->class == SX_CLASS_CONTROL &&
        message_bytes > SX_RPC_CONTROL_BYTES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "request: %zu bytes for '%s', at most %zu", message_bytes,
                       sx_method_get(request->method)->name, SX_RPC_CONTROL_BYTES_MAX);
    }
    return decode_params(cx, &element[2], request);
}

sx_code sx_rpc_decode_request(sx_ctx *cx, sx_span message, sx_rpc_request *request)
{
    *request = (sx_rpc_request){0};
    msgpack_unpacked unpacked;
    sx_code code = sx_object_unpack(cx, message, &unpacked);
    if (code == SX_OK) {
        code = decode_envelope(cx, &unpacked.data, message.len, request);
    }
    msgpack_unpacked_destroy(&unpacked);
    return code;
}

static sx_code decode_outcome(sx_ctx *cx, const msgpack_object *root, sx_method method,
                              sx_rpc_response *response)
{
    if (!is_envelope(root, RESPONSE, 4) || !is_id(&root->via.array.ptr[1])) {
        return SX_FAIL(cx, SX_INPUT, "response: not [1, msgid, error, result]");
    }
    const msgpack_object *element = root->via.array.ptr;
    response->msgid = (uint32_t)element[1].via.u64;
    response->failed = element[2].type != MSGPACK_OBJECT_NIL;
    if (response->failed) {
        return sx_object_decode(cx, &sx_message_error_body, &element[2], &response->error);
    }
    const sx_message *message = sx_method_get(method)->result;
    void *result = sx_alloc(cx, message->size);
    if (result == NULL) {
        return cx->error.code;
    }
    response->result = result;
    return sx_object_decode(cx, message, &element[3], result);
}

sx_code sx_rpc_decode_response(sx_ctx *cx, sx_span message, sx_method method,
                               sx_rpc_response *response)
{
    SX_ASSERT(method < SX_METHOD_COUNT);
    *response = (sx_rpc_response){0};
    msgpack_unpacked unpacked;
    sx_code code = sx_object_unpack(cx, message, &unpacked);
    if (code == SX_OK) {
        code = decode_outcome(cx, &unpacked.data, method, response);
    }
    msgpack_unpacked_destroy(&unpacked);
    return code;
}

sx_code sx_rpc_raise(sx_ctx *cx, const sx_error_body *error)
{
    sx_code code = sx_code_from_wire(error->code);
    if (code == SX_OK) {
        code = SX_INTERNAL;
    }
    if (cx->error.code == SX_OK && error->hint.len > 0) {
        sx_hint(cx, "%.*s", (int)sx_min_i64((int64_t)error->hint.len, SX_ERROR_TEXT_MAX),
                (const char *)error->hint.ptr);
    }
    return SX_FAIL(cx, code, "%.*s", (int)sx_min_i64((int64_t)error->msg.len, SX_ERROR_TEXT_MAX),
                   (const char *)error->msg.ptr);
}

void sx_rpc_encode_request(sx_buf *buf, uint32_t msgid, sx_method method, const void *args,
                           const sx_call_meta *meta)
{
    SX_ASSERT(method < SX_METHOD_COUNT && args != NULL);
    const sx_method_row *row = sx_method_get(method);
    msgpack_packer packer;
    sx_object_packer(&packer, buf);
    (void)msgpack_pack_array(&packer, 4);
    (void)msgpack_pack_uint8(&packer, REQUEST);
    (void)msgpack_pack_uint32(&packer, msgid);
    sx_object_pack_text(&packer, sx_span_of(row->name));
    (void)msgpack_pack_array(&packer, meta != NULL ? 2 : 1);
    sx_object_encode(&packer, row->arguments, args, NULL);
    if (meta != NULL) {
        sx_object_encode(&packer, &sx_message_call_meta, meta, NULL);
    }
}

void sx_rpc_encode_notice(sx_buf *buf, sx_method method, const void *args)
{
    SX_ASSERT(method < SX_METHOD_COUNT && args != NULL);
    const sx_method_row *row = sx_method_get(method);
    msgpack_packer packer;
    sx_object_packer(&packer, buf);
    (void)msgpack_pack_array(&packer, 3);
    (void)msgpack_pack_uint8(&packer, NOTICE);
    sx_object_pack_text(&packer, sx_span_of(row->name));
    (void)msgpack_pack_array(&packer, 1);
    sx_object_encode(&packer, row->arguments, args, NULL);
}

void sx_rpc_encode_result(sx_buf *buf, uint32_t msgid, sx_method method, const void *result,
                          sx_span *tail)
{
    SX_ASSERT(method < SX_METHOD_COUNT && result != NULL);
    msgpack_packer packer;
    sx_object_packer(&packer, buf);
    (void)msgpack_pack_array(&packer, 4);
    (void)msgpack_pack_uint8(&packer, RESPONSE);
    (void)msgpack_pack_uint32(&packer, msgid);
    (void)msgpack_pack_nil(&packer);
    sx_object_encode(&packer, sx_method_get(method)->result, result, tail);
}

/* Error texts quote what clients sent; cut them where they stop being UTF-8. */
static sx_span clean(const char *text)
{
    sx_span span = sx_span_of(text);
    span.len = sx_utf8_prefix(span);
    return span;
}

void sx_rpc_encode_error(sx_buf *buf, uint32_t msgid, const sx_error *error, int64_t after_ms)
{
    SX_ASSERT(error->code != SX_OK);
    SX_ASSERT(error->code != SX_OK);
    char where[128] = "";
    sx_error_body body = {
        .code = sx_code_wire(error->code),
        .name = sx_span_of(sx_code_name(error->code)),
        .msg = clean(error->text),
        .retry = sx_code_retry(error->code),
    };
    if (error->hint[0] != '\0') {
        SX_PUT(&body, error_body, hint, clean(error->hint));
    }
    if (after_ms > 0) {
        SX_PUT(&body, error_body, after_ms, after_ms);
    }
    if (error->file != NULL) {
        const char *base = strrchr(error->file, '/');
        (void)snprintf(where, sizeof(where), "%s:%d", base != NULL ? base + 1 : error->file,
                       error->line);
        SX_PUT(&body, error_body, where, sx_span_of(where));
    }
    msgpack_packer packer;
    sx_object_packer(&packer, buf);
    (void)msgpack_pack_array(&packer, 4);
    (void)msgpack_pack_uint8(&packer, RESPONSE);
    (void)msgpack_pack_uint32(&packer, msgid);
    sx_object_encode(&packer, &sx_message_error_body, &body, NULL);
    (void)msgpack_pack_nil(&packer);
}
