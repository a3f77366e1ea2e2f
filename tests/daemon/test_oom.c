/* Every allocation of the daemon's half of a request fails once: the frame that becomes a call, the job that is made of
 * it, the settings, a step handed to other daemons. The daemon goes on, and nothing is left behind. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/exchange.h"
#include "daemon/service/search.h"
#include "tests/lib/oom.h"

/* ---- a transport in memory: everything is sent at once ---- */
typedef struct {
    sxd_stream stream; /* first */
    bool closed;
    sxd_write *pending;
    uint32_t write_count;
} pipe_;

static bool pipe_start(sxd_stream *stream)
{
    return stream->user != NULL;
}

static void pipe_stop(sxd_stream *stream)
{
    (void)stream;
}

static bool pipe_write(sxd_stream *stream, sxd_write *write)
{
    pipe_ *p = (pipe_ *)stream;
    if (p->pending != NULL) {
        return false;
    }
    p->pending = write;
    p->write_count++;
    return true;
}

static size_t pipe_waiting(const sxd_stream *stream)
{
    return ((const pipe_ *)stream)->pending != NULL ? 1 : 0;
}

static bool pipe_gone(sxd_stream *stream)
{
    (void)stream;
    return false;
}

static void pipe_close(sxd_stream *stream)
{
    ((pipe_ *)stream)->closed = true;
}

static const sxd_stream_class pipe_class = {.start = pipe_start,
                                            .stop = pipe_stop,
                                            .write = pipe_write,
                                            .waiting = pipe_waiting,
                                            .gone = pipe_gone,
                                            .close = pipe_close};

static void pipe_flush(pipe_ *p)
{
    sxd_write *write = p->pending;
    p->pending = NULL;
    if (write != NULL) {
        write->done(write, NULL);
    }
}

/* ---- a service that makes a job of a request and gives it up again ---- */
static sxd_base *base;
static sxd_net net;
static sxd_work *table;
static const sxd_backend backend; /* of a kind of machine that has no measured rows */
static sxd_service *service;
static uint32_t made, refused;

static void on_soon(void *self)
{
    sxd_net_wake(self);
}

static void serve(void *self, sxd_call *call)
{
    (void)self;
    sxd_ask *ask = SX_NEW(&call->cx, sxd_ask);
    sxd_job *job = NULL;
    if (ask != NULL) {
        ask->call = call;
        ask->key.part[0] = (sx_cache_part){SX_SPAN_LITERAL("program"), SX_SPAN_LITERAL("abc")};
        ask->key.part_count = 1;
        call->self = ask;
        job = sxd_job_new(service, call, &ask->key.key, NULL);
    }
    if (job == NULL) {
        refused++;
        sxd_call_refuse(call, SX_NOMEM, 5, "no memory");
        return;
    }
    made++;
    sxd_job_check(job);
    job->error.code = SX_CANCELLED;
    sxd_job_move(job, SXD_JOB_CANCELLED);
    sxd_job_free(job);
    sxd_call_refuse(call, SX_CANCELLED, 0, "enough");
}

static void closed(void *self, uint64_t number)
{
    (void)self;
    (void)number;
}

static void leave(void *self, sxd_call *call)
{
    (void)self;
    SX_ASSERT(call->self == NULL);
}

static uint8_t input[4096];
static size_t input_len;

static void setup(void)
{
    base = calloc(1, sizeof(*base));
    table = calloc(1, sizeof(*table));
    service = calloc(1, sizeof(*service));
    ck_assert(base != NULL && table != NULL && service != NULL);
    ck_assert_int_eq(uv_loop_init(&base->loop), 0);
    ck_assert(sxd_base_open(base, on_soon, &net));
    base->config.options.inflight_max = 4;
    base->config.options.clients_max = 4;
    base->config.options.output_mb = 1;
    base->config.options.stall_ms = 1000;
    net = (sxd_net){.base = base,
                    .server = {.serve = serve, .leave = leave, .closed = closed, .self = service}};
    table->base = base;
    service->base = base;
    service->net = &net;
    service->work = table;
    service->backend = &backend;
    sxd_log_set(SXD_ERROR);
    static const uint8_t hello[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    static const uint8_t stack[4] = {0x80, 0, 0, 1};
    sx_compile_args args = {.ir = SX_SPAN_LITERAL("the text of a program")};
    SX_PUT(&args, compile_args, target, SX_SPAN_LITERAL("x86-64-v3"));
    sx_buf message;
    sx_buf_init(&message, sizeof(input));
    sx_rpc_encode_request(&message, 3, SX_METHOD_COMPILE, &args, NULL);
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(message.len + sizeof(stack), head);
    memcpy(input, hello, 8);
    memcpy(input + 8, head, sizeof(head));
    memcpy(input + 8 + sizeof(head), stack, sizeof(stack));
    memcpy(input + 12 + sizeof(head), message.ptr, message.len);
    input_len = 12 + sizeof(head) + message.len;
    sx_buf_fini(&message);
}

static void teardown(void)
{
    base->phase = SXD_DOWN;
    sxd_base_close(base);
    (void)uv_run(&base->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&base->loop), 0);
    free(service);
    free(table);
    free(base);
}

/* One connection with one request, from its beginning to its end. */
static void talk(pipe_ *p)
{
    static const sxd_principal me = {.space = 7, .rights = SXD_MAY_USE, .pid = 1};
    *p = (pipe_){.stream = {.class = &pipe_class}};
    sxd_session_open(&net, &p->stream, &me);
    for (size_t i = 0; i < input_len && !p->closed; i++) {
        pipe_flush(p);
        p->stream.user->bytes(p->stream.self, (sx_span){input + i, 1});
    }
    if (!p->closed) {
        pipe_flush(p);
        sxd_net_wake(&net);
    }
    sxd_net_close(&net, "the end");
    if (p->pending != NULL) {
        sxd_write *write = p->pending;
        p->pending = NULL;
        write->done(write, "closed");
    }
    if (p->stream.user != NULL) {
        p->stream.user->closed(p->stream.self);
    }
}

START_TEST(connection)
{
    pipe_ p;
    talk(&p); /* what is made once is made now */
    sx_oom_arm(0);
    talk(&p);
    uint64_t count = sx_oom_disarm();
    ck_assert_uint_eq(made, 2);
    ck_assert_uint_eq(p.write_count, 2); /* hello, answer */
    ck_assert_uint_gt(count, 8);
    uint32_t answered = 0;
    for (uint64_t at = 1; at <= count; at++) {
        made = refused = 0;
        int64_t live = sx_oom_live();
        sx_oom_arm(at);
        talk(&p);
        (void)sx_oom_disarm();
        live = sx_oom_live() - live;
        ck_assert_int_eq(live, 0);
        ck_assert_ptr_null(net.sessions);
        ck_assert_ptr_null(service->jobs);
        ck_assert(sxd_work_idle(table));
        ck_assert_uint_eq(service->active_count, 0);
        /* a hello at most, or the answer that there is no memory, or that the job was made */
        ck_assert_uint_le(p.write_count, 2);
        ck_assert_uint_le(made + refused, 1);
        answered += p.write_count == 2 ? 1 : 0;
    }
    ck_assert_uint_gt(answered, 2); /* most failures are answers, not closed connections */
    made = 0;
    talk(&p);
    ck_assert_uint_eq(made, 1);
}
END_TEST

/* ---- a search, as it is found in the store ---- */
/* It is there as it was, or it is not there: no memory is no reason to call it failed. */
START_TEST(search_of_the_store)
{
    sx_compile_args args = {.ir = SX_SPAN_LITERAL("the text of a program")};
    sx_pair option = {.name = SX_SPAN_LITERAL("objective"), .kind = SX_VALUE_TEXT};
    option.text = SX_SPAN_LITERAL("pareto");
    args.options.items = &option;
    args.options.count = 1;
    args.has |= SX_BIT(compile_args, options);
    sx_buf request;
    sx_buf_init(&request, 4096);
    sx_rpc_encode_request(&request, 0, SX_METHOD_COMPILE, &args, NULL);
    sx_search_record row = {.id = 1, .state = SXD_SEARCH_RUNNING, .request = sx_buf_span(&request)};
    sx_search_lane_record lane = {.state = SXD_SEARCH_LANE_OPEN};
    uint32_t there = 0, absent = 0;
    for (uint64_t at = 1; there == 0; at++) {
        char objective[SXD_STAGE_TEXT_MAX] = "";
        uint32_t state = 0;
        int64_t live = sx_oom_live();
        sx_oom_arm(at);
        sxd_search *search = sxd_search_new(service, &row, &lane, 1);
        (void)sx_oom_disarm();
        if (search != NULL) {
            state = search->row.state;
            memcpy(objective, search->objective, sizeof(objective));
            sxd_search_free(search);
        }
        live = sx_oom_live() - live;
        ck_assert_int_eq(live, 0);
        ck_assert_uint_eq(service->search_count, 0);
        if (search != NULL) {
            ck_assert_uint_eq(state, SXD_SEARCH_RUNNING);
            ck_assert_str_eq(objective, "pareto");
        }
        there += search != NULL ? 1 : 0;
        absent += search == NULL ? 1 : 0;
    }
    ck_assert_uint_ge(absent, 4); /* the search, its request, its lanes, the decoded request */
    sx_buf_fini(&request);
}
END_TEST

/* ---- settings ---- */
static void read_settings(sx_ctx *cx, sxd_config *config, const char *file, sx_code *code)
{
    char program[] = "symplexd", name[] = "--config", path[300], flag[] = "--workers",
         three[] = "3";
    (void)snprintf(path, sizeof(path), "%s", file);
    char *arguments[] = {program, name, path, flag, three, NULL};
    sx_ctx_init(cx, 1 << 16);
    *code = sxd_config_load(cx, 5, arguments, config);
    sx_ctx_fini(cx);
}

START_TEST(settings)
{
    static sxd_config config;
    char folder[256], file[300];
    sx_ctx cx;
    sx_code code;
    sx_test_mkdtemp(folder);
    (void)snprintf(file, sizeof(file), "%s/f.conf", folder);
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    (void)fputs("queue_max = 9\nsearch_redis = unix:///r\n", out);
    (void)fclose(out);
    (void)setenv("HOME", folder, 1);
    sx_oom_arm(0);
    read_settings(&cx, &config, file, &code);
    uint64_t count = sx_oom_disarm();
    ck_assert_int_eq(code, SX_OK);
    for (uint64_t at = 1; at <= count; at++) {
        int64_t live = sx_oom_live();
        sx_oom_arm(at);
        read_settings(&cx, &config, file, &code);
        (void)sx_oom_disarm();
        live = sx_oom_live() - live;
        ck_assert_int_eq(code, SX_NOMEM);
        ck_assert_int_eq(live, 0);
    }
    read_settings(&cx, &config, file, &code);
    ck_assert_int_eq(code, SX_OK);
    ck_assert_int_eq(config.options.queue_max, 9);
    sx_test_rmtree(folder);
}
END_TEST

/* ---- what is handed to other daemons ---- */
START_TEST(parcels)
{
    sx_oom_arm(1);
    sxd_parcel *none = sxd_parcel_new(SXD_ORDER_OFFER, "a/1/2/3");
    (void)sx_oom_disarm();
    ck_assert_ptr_null(none);
    sxd_parcel *parcel = sxd_parcel_new(SXD_ORDER_OFFER, "a/1/2/3");
    ck_assert_ptr_nonnull(parcel);
    ck_assert_str_eq(parcel->name, "a/1/2/3");
    sxd_parcel_free(parcel);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oom");
    TCase *cases = tcase_create("connection");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, connection);
    tcase_add_test(cases, search_of_the_store);
    suite_add_tcase(suite, cases);
    TCase *others = tcase_create("others");
    tcase_add_test(others, settings);
    tcase_add_test(others, parcels);
    suite_add_tcase(suite, others);
    return sx_test_main(suite);
}
