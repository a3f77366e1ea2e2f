/* Every allocation of everything that reads or writes messages fails once: the answer is SX_NOMEM, nothing is lost or
 * left behind, and the next try gives what the first would have given. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/json.h"
#include "protocol/protocol.h"
#include "tests/lib/oom.h"

#define BYTES_MAX 65536
#define LIMIT_MAX ((size_t)1 << 20)

/* Check allocates in its own assertions: what is wrong while allocations are counted is only noted. */
static bool wrong;

/* One thing to do. It puts what it found into `out`, and returns how it went. */
typedef sx_code (*deed)(size_t limit, sx_buf *out);

static uint8_t request_[BYTES_MAX], response_[BYTES_MAX], frame_[BYTES_MAX];
static sx_span request, response, frame;

static void keep(const sx_buf *buf, uint8_t *to, sx_span *span)
{
    ck_assert_int_eq(buf->code, SX_OK);
    ck_assert_uint_le(buf->len, BYTES_MAX);
    memcpy(to, buf->ptr, buf->len);
    *span = (sx_span){to, buf->len};
}

/* A compile request with everything in it, an answer with rows in rows, and the request as a frame. */
static void setup(void)
{
    sx_pair dims[2] = {
        {.name = SX_SPAN_LITERAL("batch"), .kind = SX_VALUE_INT, .integer = 8},
        {.name = SX_SPAN_LITERAL("heads"), .kind = SX_VALUE_INT, .integer = 4},
    };
    sx_pair options[2] = {
        {.name = SX_SPAN_LITERAL("unfused"), .kind = SX_VALUE_BOOL, .flag = true},
        {.name = SX_SPAN_LITERAL("objective"), .kind = SX_VALUE_TEXT, .text = SX_SPAN_LITERAL("t")},
    };
    sx_compile_args args = {.ir = SX_SPAN_LITERAL("sx 1\ngraph \"p\" {\n}\n")};
    args.dims.items = dims;
    args.dims.count = 2;
    args.has |= SX_BIT(compile_args, dims);
    SX_PUT(&args, compile_args, target, SX_SPAN_LITERAL("x86-64-v3"));
    args.options.items = options;
    args.options.count = 2;
    args.has |= SX_BIT(compile_args, options);
    sx_call_meta meta = {0};
    SX_PUT(&meta, call_meta, tr, SX_SPAN_LITERAL("00-trace"));
    sx_buf buf;
    sx_buf_init(&buf, BYTES_MAX);
    sx_rpc_encode_request(&buf, 7, SX_METHOD_COMPILE, &args, &meta);
    keep(&buf, request_, &request);
    sx_buf_clear(&buf);
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(request.len, head);
    sx_buf_put(&buf, head, sizeof(head));
    sx_buf_put_span(&buf, request);
    keep(&buf, frame_, &frame);
    sx_buf_clear(&buf);
    sx_event_row rows[3];
    for (uint32_t i = 0; i < 3; i++) {
        rows[i] = (sx_event_row){.seq = i, .stage = SX_SPAN_LITERAL("saturate")};
    }
    sx_wait_result result = {.job = 3, .state = SX_SPAN_LITERAL("running"), .seq = 2};
    result.events.items = rows;
    result.events.count = 3;
    sx_rpc_encode_result(&buf, 9, SX_METHOD_WAIT, &result, NULL);
    keep(&buf, response_, &response);
    sx_buf_fini(&buf);
}

/* ---- deeds ---- */
static sx_code read_request(size_t limit, sx_buf *out)
{
    sx_ctx cx;
    sx_rpc_request found;
    sx_ctx_init(&cx, limit);
    sx_code code = sx_rpc_decode_request(&cx, request, &found);
    wrong = wrong || code != cx.error.code;
    if (code == SX_OK) {
        sx_rpc_encode_request(out, found.msgid, found.method, found.args, &found.meta);
        code = out->code;
    } else {
        wrong = wrong || (found.addressed && found.msgid != 7); /* the error can be answered */
    }
    sx_ctx_fini(&cx);
    return code;
}

static sx_code read_response(size_t limit, sx_buf *out)
{
    sx_ctx cx;
    sx_rpc_response found;
    sx_ctx_init(&cx, limit);
    sx_code code = sx_rpc_decode_response(&cx, response, SX_METHOD_WAIT, &found);
    wrong = wrong || code != cx.error.code;
    if (code == SX_OK) {
        sx_rpc_encode_result(out, found.msgid, SX_METHOD_WAIT, found.result, NULL);
        code = out->code;
    }
    sx_ctx_fini(&cx);
    return code;
}

static sx_code print_json(size_t limit, sx_buf *out)
{
    sx_ctx cx;
    sx_ctx_init(&cx, limit);
    sx_code code = sx_json_msgpack(&cx, request, out);
    sx_ctx_fini(&cx);
    return code;
}

/* The frame comes byte by byte. */
static sx_code read_frame(size_t limit, sx_buf *out)
{
    sx_ctx cx;
    sx_sp_reader reader;
    sx_sp_event event = SX_SP_MORE;
    sx_code code = SX_OK;
    sx_ctx_init(&cx, limit);
    sx_sp_reader_init(&reader, 0, BYTES_MAX);
    for (size_t i = 0; i < frame.len && code == SX_OK; i++) {
        sx_span byte = {frame.ptr + i, 1};
        code = sx_sp_reader_feed(&cx, &reader, &byte, &event);
    }
    if (code == SX_OK) {
        wrong = wrong || event != SX_SP_FRAME;
        sx_buf_put_span(out, sx_buf_span(&reader.body));
        code = out->code;
    }
    sx_sp_reader_fini(&reader);
    sx_ctx_fini(&cx);
    return code;
}

static sx_code write_error(size_t limit, sx_buf *out)
{
    static const sx_error error = {.code = SX_BUSY, .text = "later", .hint = "Wait."};
    (void)limit;
    sx_rpc_encode_error(out, 5, &error, 1000);
    return out->code;
}

static const struct {
    const char *name;
    deed run;
    bool uses_arena;
} deeds[] = {{"request", read_request, true},
             {"response", read_response, true},
             {"json", print_json, false},
             {"frame", read_frame, false},
             {"error", write_error, false}};

static sx_code run(deed act, size_t limit, sx_buf *out)
{
    sx_buf_init(out, BYTES_MAX);
    return act(limit, out);
}

/* Each call of malloc and its like. */
START_TEST(system_memory)
{
    deed act = deeds[_i].run;
    sx_buf right, out;
    sx_oom_arm(0);
    sx_code code = run(act, LIMIT_MAX, &right);
    uint64_t count = sx_oom_disarm();
    ck_assert_int_eq(code, SX_OK);
    ck_assert_uint_gt(count, 0);
    for (uint64_t at = 1; at <= count + 1; at++) {
        int64_t live = sx_oom_live();
        sx_oom_arm(at);
        code = run(act, LIMIT_MAX, &out);
        (void)sx_oom_disarm();
        bool same = sx_span_equal(sx_buf_span(&out), sx_buf_span(&right));
        sx_buf_fini(&out);
        live = sx_oom_live() - live;
        ck_assert_msg(code == (at <= count ? SX_NOMEM : SX_OK), "%s, allocation %llu of %llu: %s",
                      deeds[_i].name, (unsigned long long)at, (unsigned long long)count,
                      sx_code_name(code));
        ck_assert(code != SX_OK || same);
        ck_assert_int_eq(live, 0);
    }
    ck_assert(!wrong);
    sx_buf_fini(&right);
}
END_TEST

/* Each allocation in the arena, whose blocks hold many: the limit of the request ends before it. */
START_TEST(memory_of_the_request)
{
    if (!deeds[_i].uses_arena) {
        return;
    }
    deed act = deeds[_i].run;
    sx_buf out;
    uint32_t failed = 0;
    size_t limit = 0;
    for (; limit < LIMIT_MAX; limit += 16) {
        sx_code code = run(act, limit, &out);
        sx_buf_fini(&out);
        if (code == SX_OK) {
            break;
        }
        ck_assert_int_eq(code, SX_NOMEM);
        failed++;
    }
    ck_assert_uint_gt(failed, 3);
    ck_assert_uint_lt(limit, LIMIT_MAX);
}
END_TEST

/* The walk before any decoder allocates nothing at all. */
START_TEST(scan_allocates_nothing)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 0);
    sx_oom_arm(1);
    sx_code code = sx_scan(&cx, request, NULL);
    ck_assert_uint_eq(sx_oom_disarm(), 0);
    ck_assert_int_eq(code, SX_OK);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oom");
    TCase *cases = tcase_create("oom");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_loop_test(cases, system_memory, 0, (int)SX_COUNT(deeds));
    tcase_add_loop_test(cases, memory_of_the_request, 0, (int)SX_COUNT(deeds));
    tcase_add_test(cases, scan_allocates_nothing);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
