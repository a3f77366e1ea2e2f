/* Requests and responses: round trips through the table, refusals, mutation of valid messages, JSON. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "protocol/protocol.h"

static sx_ctx cx;
static sx_buf wire;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_buf_init(&wire, (size_t)80 << 20);
}

static void teardown(void)
{
    sx_buf_fini(&wire);
    sx_ctx_fini(&cx);
}

static const sx_pair dims[] = {
    {.name = {(const uint8_t *)"batch", 5}, .kind = SX_VALUE_INT, .integer = 8}};
static const sx_pair options[] = {
    {.name = {(const uint8_t *)"level", 5}, .kind = SX_VALUE_INT, .integer = -2},
    {.name = {(const uint8_t *)"fast", 4}, .kind = SX_VALUE_BOOL, .flag = true},
    {.name = {(const uint8_t *)"bound", 5}, .kind = SX_VALUE_REAL, .real = 0.5},
    {.name = {(const uint8_t *)"isa", 3},
     .kind = SX_VALUE_TEXT,
     .text = {(const uint8_t *)"avx2", 4}},
};

static sx_compile_args sample(void)
{
    sx_pair *dim_copy = SX_NEW_ARRAY(&cx, sx_pair, SX_COUNT(dims));
    sx_pair *option_copy = SX_NEW_ARRAY(&cx, sx_pair, SX_COUNT(options));
    memcpy(dim_copy, dims, sizeof(dims));
    memcpy(option_copy, options, sizeof(options));
    sx_compile_args args = {.ir = SX_SPAN_LITERAL("program")};
    SX_PUT(&args, compile_args, target, SX_SPAN_LITERAL("native"));
    SX_PUT(&args, compile_args, dims, ((sx_pairs){dim_copy, SX_COUNT(dims)}));
    SX_PUT(&args, compile_args, options, ((sx_pairs){option_copy, SX_COUNT(options)}));
    SX_PUT(&args, compile_args, refresh, true);
    return args;
}

START_TEST(request_round_trip)
{
    sx_compile_args args = sample();
    sx_call_meta meta = {0};
    SX_PUT(&meta, call_meta, dl, INT64_C(1500));
    sx_rpc_encode_request(&wire, 77, SX_METHOD_COMPILE, &args, &meta);
    sx_rpc_request request;
    ck_sx_ok(&cx, sx_rpc_decode_request(&cx, sx_buf_span(&wire), &request));
    ck_assert_uint_eq(request.msgid, 77);
    ck_assert(request.addressed && !request.notice && request.method == SX_METHOD_COMPILE);
    ck_assert_int_eq(request.meta.dl, 1500);
    ck_assert(!SX_HAS(&request.meta, call_meta, tr));
    const sx_compile_args *got = request.args;
    ck_assert(sx_span_is(got->ir, "program") && sx_span_is(got->target, "native"));
    ck_assert(SX_HAS(got, compile_args, refresh) && got->refresh);
    ck_assert(!SX_HAS(got, compile_args, mode) && !SX_HAS(got, compile_args, wait_ms));
    ck_assert_uint_eq(got->dims.count, 1);
    ck_assert_int_eq(got->dims.items[0].integer, 8);
    ck_assert_uint_eq(got->options.count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(got->options.items[i].kind, options[i].kind);
        ck_assert(sx_span_equal(got->options.items[i].name, options[i].name));
    }
    ck_assert_int_eq(got->options.items[0].integer, -2);
    ck_assert(got->options.items[1].flag);
    ck_assert_double_eq(got->options.items[2].real, 0.5);
    ck_assert(sx_span_is(got->options.items[3].text, "avx2"));
    sx_buf json;
    sx_buf_init(&json, 4096);
    sx_message_json(&json, &sx_message_compile_args, got);
    const char *text =
        "{\"schema\":\"compile_args/"
        "1\",\"ir\":\"program\",\"target\":\"native\",\"dims\":{\"batch\":8},"
        "\"options\":{\"level\":-2,\"fast\":true,\"bound\":0.5,\"isa\":\"avx2\"},\"refresh\":true}";
    ck_assert_str_eq(sx_alloc_text(&cx, sx_buf_span(&json)), text);
    sx_buf_fini(&json);
}
END_TEST

START_TEST(response_round_trip)
{
    sx_event_row events[2] = {
        {.seq = 1, .at_ms = 2, .stage = SX_SPAN_LITERAL("lower")},
        {.seq = 3, .at_ms = 9, .stage = SX_SPAN_LITERAL("emit"), .done = 4, .total = 5}};
    sx_wait_result result = {.job = 5, .state = SX_SPAN_LITERAL("done"), .seq = 3};
    memset(result.key.byte, 0xab, SX_KEY_BYTES);
    result.events.items = events;
    result.events.count = 2;
    SX_PUT(&result, wait_result, module, SX_SPAN_LITERAL("\0\1\2"));
    sx_span tail;
    sx_rpc_encode_result(&wire, 9, SX_METHOD_WAIT, &result, &tail);
    ck_assert_uint_eq(tail.len, 3); /* the module is sent from where it lies */
    ck_assert_ptr_eq(tail.ptr, result.module.ptr);
    sx_buf_put_span(&wire, tail);
    sx_rpc_response response;
    ck_sx_ok(&cx, sx_rpc_decode_response(&cx, sx_buf_span(&wire), SX_METHOD_WAIT, &response));
    ck_assert(!response.failed && response.msgid == 9);
    const sx_wait_result *got = response.result;
    ck_assert(sx_key_equal(&got->key, &result.key));
    ck_assert_uint_eq(got->events.count, 2);
    ck_assert_int_eq(got->events.items[1].seq, 3);
    ck_assert_int_eq(got->events.items[1].total, 5);
    ck_assert(sx_span_is(got->events.items[0].stage, "lower"));
    ck_assert(sx_span_equal(got->module, result.module));
    sx_buf copy;
    sx_buf_init(&copy, 4096);
    sx_rpc_encode_result(&copy, 9, SX_METHOD_WAIT, got, NULL);
    ck_assert(
        sx_span_equal(sx_buf_span(&copy), sx_buf_span(&wire))); /* same bytes without a tail */
    sx_buf_fini(&copy);
}
END_TEST

START_TEST(error_round_trip)
{
    sx_ctx server;
    sx_ctx_init(&server, 1 << 12);
    (void)SX_FAIL(&server, SX_BUSY, "queue: 64 jobs, at most 64 (from \"\xff\")");
    sx_hint(&server, "Come back.");
    sx_rpc_encode_error(&wire, 3, &server.error, 250);
    sx_rpc_response response;
    ck_sx_ok(&cx, sx_rpc_decode_response(&cx, sx_buf_span(&wire), SX_METHOD_PING, &response));
    ck_assert(response.failed && response.error.retry);
    ck_assert_int_eq(response.error.code, 14);
    ck_assert_int_eq(response.error.after_ms, 250);
    ck_assert(sx_span_is(response.error.name, "BUSY"));
    ck_assert(SX_HAS(&response.error, error_body, where));
    ck_sx_fails(&cx, sx_rpc_raise(&cx, &response.error), SX_BUSY,
                "queue: 64 jobs, at most 64 (from \"");
    sx_ctx_fini(&server);
}
END_TEST

static void refuse(sx_span bytes, sx_code code, const char *text, bool addressed)
{
    sx_rpc_request request;
    ck_sx_fails(&cx, sx_rpc_decode_request(&cx, bytes, &request), code, text);
    ck_assert_msg(request.addressed == addressed, "addressed for '%s'", text);
    ck_assert(!addressed || request.msgid == 7);
}

#define PING "\x94\x00\x07\xa4ping"
START_TEST(refusals)
{
    refuse(SX_SPAN_LITERAL("\xdd\x10\x00\x00\x00"), SX_INPUT, "claims", false);
    refuse(SX_SPAN_LITERAL("\xc0"), SX_INPUT, "not [0, msgid, method, params]", false);
    refuse(SX_SPAN_LITERAL("\x94\x01\x07\xa4ping\x91\x80"), SX_INPUT, "not [0, msgid", false);
    refuse(SX_SPAN_LITERAL("\x94\x00\xff\xa4ping\x91\x80"), SX_INPUT, "msgid", false);
    refuse(SX_SPAN_LITERAL("\x94\x00\xcf\0\0\0\1\0\0\0\0\xa4ping\x91\x80"), SX_INPUT, "msgid",
           false);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xc0\x91\x80"), SX_INPUT, "method is not text", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa4pong\x91\x80"), SX_UNIMPLEMENTED, "no method 'pong'",
           true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa2\xff\xfe\x91\x80"), SX_UNIMPLEMENTED, "no method ''",
           true);
    refuse(SX_SPAN_LITERAL(PING "\x80"), SX_INPUT, "params of 'ping'", true);
    refuse(SX_SPAN_LITERAL(PING "\x90"), SX_INPUT, "params of 'ping'", true);
    refuse(SX_SPAN_LITERAL(PING "\x91\xc0"), SX_INPUT, "ping_args: not a map", true);
    refuse(SX_SPAN_LITERAL(PING "\x91\x81\xa4"
                                "data\x01"),
           SX_INPUT, "key 'data' is not bytes", true);
    refuse(SX_SPAN_LITERAL(PING "\x91\x82\xa4"
                                "data\xc4\x00\xa4"
                                "data\xc4\x00"),
           SX_INPUT, "key 'data' stands twice", true);
    refuse(SX_SPAN_LITERAL(PING "\x91\x81\x01\x01"), SX_INPUT, "key 0 is not text", true);
    refuse(SX_SPAN_LITERAL(PING "\x92\x80\x81\xa2"
                                "dl\xa1x"),
           SX_INPUT, "call_meta: key 'dl' is not an integer", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa3get\x91\x80"), SX_INPUT,
           "get_args: key 'key' is missing", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa3get\x91\x81\xa3key\xc4\x02xx"), SX_INPUT,
           "a key of 32 bytes", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa7"
                           "compile\x91\x81\xa2ir\xa1\xff"),
           SX_INPUT, "key 'ir' is not text", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa7"
                           "compile\x91\x82\xa2ir\xa1x\xa4"
                           "dims\x81\xa1n\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
           SX_INPUT, "key 'dims' is not a map of text to integers", true);
    refuse(SX_SPAN_LITERAL("\x94\x00\x07\xa7"
                           "compile\x91\x82\xa2ir\xa1x\xa4"
                           "dims\x82\xa1n\x01\xa1n\x02"),
           SX_INPUT, "'n' stands twice in 'dims'", true);
}
END_TEST

START_TEST(unknown_keys_are_ignored)
{
    sx_rpc_request request;
    ck_sx_ok(&cx, sx_rpc_decode_request(&cx,
                                        SX_SPAN_LITERAL(PING "\x92\x82\xa6"
                                                             "future\x93\x01\x02\x03\xa4"
                                                             "data\xc4\x01y\x81\xa3new\xc0"),
                                        &request));
    const sx_ping_args *args = request.args;
    ck_assert(sx_span_is(args->data, "y"));
    ck_sx_ok(&cx,
             sx_rpc_decode_request(&cx, SX_SPAN_LITERAL("\x93\x02\xa4ping\x91\x80"), &request));
    ck_assert(request.notice && !request.addressed);
}
END_TEST

START_TEST(control_requests_are_small)
{
    static uint8_t data[(1 << 20) + 1];
    sx_ping_args args = {0};
    SX_PUT(&args, ping_args, data, ((sx_span){data, sizeof(data)}));
    sx_rpc_encode_request(&wire, 7, SX_METHOD_PING, &args, NULL);
    refuse(sx_buf_span(&wire), SX_LIMIT, "for 'ping', at most 1048576", true);
}
END_TEST

/* Flip, cut and splice a valid request: never a crash, and what is accepted encodes to a message with the same
 * meaning. */
START_TEST(mutations)
{
    sx_rng rng = {sx_test_seed()};
    sx_compile_args args = sample();
    sx_rpc_encode_request(&wire, 7, SX_METHOD_COMPILE, &args, NULL);
    uint32_t accepted = 0;
    for (uint32_t round = 0; round < 30000; round++) {
        sx_ctx own;
        sx_ctx_init(&own, 1 << 20);
        uint8_t *bytes = malloc(wire.len); /* exact size, so that asan sees an overrun */
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, wire.ptr, wire.len);
        for (uint64_t flips = sx_rng_below(&rng, 4); flips > 0; flips--) {
            bytes[sx_rng_below(&rng, wire.len)] = (uint8_t)sx_rng_next(&rng);
        }
        size_t len = sx_rng_below(&rng, 8) == 0 ? sx_rng_below(&rng, wire.len) : wire.len;
        sx_rpc_request request;
        if (sx_rpc_decode_request(&own, (sx_span){bytes, len}, &request) == SX_OK &&
            request.method == SX_METHOD_COMPILE) {
            accepted++;
            sx_buf first;
            sx_buf_init(&first, 1 << 16);
            sx_rpc_encode_request(&first, 1, request.method, request.args, NULL);
            sx_rpc_request again;
            ck_sx_ok(&own, sx_rpc_decode_request(&own, sx_buf_span(&first), &again));
            sx_buf second;
            sx_buf_init(&second, 1 << 16);
            sx_rpc_encode_request(&second, 1, again.method, again.args, NULL);
            ck_assert(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
            sx_buf_fini(&second);
            sx_buf_fini(&first);
        }
        free(bytes);
        sx_ctx_fini(&own);
    }
    ck_assert_uint_gt(accepted, 5000);
}
END_TEST

START_TEST(json_of_any_value)
{
    sx_buf json;
    sx_buf_init(&json, 4096);
    ck_sx_ok(&cx,
             sx_json_msgpack(&cx,
                             SX_SPAN_LITERAL("\x86\xa1"
                                             "a\x92\xff\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa1"
                                             "b\xa7q\"\\\n\x01\xc3\xa9\xa1"
                                             "c\xc4\x02\x00\xff\xa1"
                                             "d\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a\x05\xc2\xa1"
                                             "e\xcb\x7f\xf0\0\0\0\0\0\0"),
                             &json));
    ck_assert_str_eq(
        sx_alloc_text(&cx, sx_buf_span(&json)),
        "{\"a\":[-1,18446744073709551615],\"b\":\"q\\\"\\\\\\n\\u0001\xc3\xa9\",\"c\":\"00ff\","
        "\"d\":0.1,\"5\":false,\"e\":null}");
    sx_buf_clear(&json);
    sx_json_text(&json, SX_SPAN_LITERAL("a\xff\xed\xa0\x80\xc0\x80z"));
    sx_buf_put_u8(&json, 0);
    ck_assert_str_eq(
        (const char *)json.ptr,
        "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    sx_buf_fini(&json);
    sx_buf tiny;
    sx_buf_init(&tiny, 3);
    ck_sx_fails(&cx, sx_json_msgpack(&cx, SX_SPAN_LITERAL("\x93\x01\x02\x03"), &tiny), SX_LIMIT,
                "json");
    sx_buf_fini(&tiny);
    sx_buf_init(&tiny, 100);
    sx_empty nothing = {0};
    sx_message_json(&tiny, &sx_message_empty, &nothing);
    sx_ping_args no_data = {0};
    sx_message_json(&tiny, &sx_message_ping_args, &no_data);
    ck_assert(
        sx_span_is(sx_buf_span(&tiny), "{\"schema\":\"empty/1\"}{\"schema\":\"ping_args/1\"}"));
    sx_buf_fini(&tiny);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc");
    TCase *cases = tcase_create("rpc");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, request_round_trip);
    tcase_add_test(cases, response_round_trip);
    tcase_add_test(cases, error_round_trip);
    tcase_add_test(cases, refusals);
    tcase_add_test(cases, unknown_keys_are_ignored);
    tcase_add_test(cases, control_requests_are_small);
    tcase_add_test(cases, mutations);
    tcase_add_test(cases, json_of_any_value);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
