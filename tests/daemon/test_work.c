/* The task table with real workers and real threads, and nothing of the service: this program is its own zygote, with a
 * compiler that does what the program text says. */
#include "tests/lib/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/work/work.h"

#define PATIENCE_NS UINT64_C(60000000000)

/* ---- the compiler ---- */
static sx_code fake_compile(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                            sx_buf *module)
{
    (void)library;
    if (sx_span_is(args->ir, "die")) {
        (void)raise(SIGKILL);
    }
    while (sx_span_is(args->ir, "hang")) {
        (void)sleep(1);
    }
    if (sx_span_is(args->ir, "fail")) {
        return SX_FAIL(cx, SX_INPUT, "told to fail");
    }
    sx_buf_put_span(module, args->ir);
    return SX_OK;
}

static const char *fake_build(void)
{
    return "fake";
}

static const sxd_backend backend = {.build = fake_build, .compile = fake_compile};

/* ---- tasks ---- */
typedef struct {
    sxd_task task;
    uint32_t number, began, ended;
    sxd_end end;
    char text[64]; /* the result, or how it was lost */
} thing;

static sxd_base *base;
static sxd_work *work;
static uv_timer_t sweep;
static thing a, b, c;
static uint32_t order[16], order_count, rooms;

static thing *thing_of(sxd_task *task)
{
    return SXD_OWNER(thing, task, task);
}

static void on_begin(sxd_task *task)
{
    thing_of(task)->began++;
    order[order_count++] = thing_of(task)->number;
}

static void on_end(sxd_task *task, const sxd_end *end)
{
    thing *t = thing_of(task);
    ck_assert_int_eq(task->state, SXD_TASK_IDLE);
    t->ended++;
    t->end = *end;
    if (end->kind == SXD_END_DONE) {
        const sx_work_result *result = end->result;
        ck_assert_uint_lt(result->bytes.len, sizeof(t->text));
        memcpy(t->text, result->bytes.ptr, result->bytes.len);
    } else if (end->kind == SXD_END_LOST) {
        (void)snprintf(t->text, sizeof(t->text), "%s", end->how);
    }
}

static const sxd_task_class first_class = {
    .name = "first", .method = SX_METHOD_WORK, .begin = on_begin, .end = on_end};
static const sxd_task_class second_class = {
    .name = "second", .method = SX_METHOD_WORK, .rank = 1, .begin = on_begin, .end = on_end};

static void prepare(thing *t, uint32_t number, const sxd_task_class *class, const char *text)
{
    *t = (thing){.number = number};
    sxd_task_init(&t->task, work, class);
    t->task.ticket = number;
    sx_compile_args request = {.ir = sx_span_of(text)};
    sx_work_args args = {0};
    args.request.items = &request;
    args.request.count = 1;
    static const uint8_t room[SX_SP_HEAD_BYTES] = {0};
    sx_buf_put(&t->task.frame, room, sizeof(room));
    sx_rpc_encode_request(&t->task.frame, number, SX_METHOD_WORK, &args, NULL);
    ck_assert_int_eq(t->task.frame.code, SX_OK);
    sx_sp_head(t->task.frame.len - SX_SP_HEAD_BYTES, t->task.frame.ptr);
}

static void put(thing *t)
{
    sxd_task_put(&t->task);
    sxd_work_run(work);
}

/* ---- the loop ---- */
static void on_room(void *self)
{
    (void)self;
    rooms++;
}

static void on_sweep(uv_timer_t *timer)
{
    (void)timer;
    sxd_work_sweep(work);
}

static void on_soon(void *self)
{
    (void)self;
}

static void setup(void)
{
    base = calloc(1, sizeof(*base));
    work = calloc(1, sizeof(*work));
    ck_assert(base != NULL && work != NULL);
    order_count = rooms = 0;
    ck_assert_int_eq(uv_loop_init(&base->loop), 0);
    ck_assert(sxd_base_open(base, on_soon, NULL));
    ck_assert_int_eq(uv_timer_init(&base->loop, &sweep), 0);
    (void)uv_timer_start(&sweep, on_sweep, 20, 20);
    base->config.options.workers = 1;
    base->config.options.worker_memory_mb = 1024;
    base->config.options.worker_cpu_s = 100;
    base->config.options.worker_jobs = 100;
    sxd_log_set(SXD_ERROR);
    *work = (sxd_work){.base = base, .room = on_room};
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    ck_sx_ok(&cx, sxd_work_open(&cx, work));
    sx_ctx_fini(&cx);
}

static void teardown(void)
{
    ck_assert(sxd_work_idle(work));
    base->phase = SXD_DOWN;
    sxd_work_close(work);
    sxd_base_close(base);
    uv_close((uv_handle_t *)&sweep, NULL);
    (void)uv_run(&base->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&base->loop), 0);
    free(work);
    free(base);
}

static void wait_for(const uint32_t *count, uint32_t value)
{
    uint64_t limit = uv_hrtime() + PATIENCE_NS;
    while (*count < value) {
        ck_assert_uint_lt(uv_hrtime(), limit);
        (void)uv_run(&base->loop, UV_RUN_ONCE);
    }
}

START_TEST(done_and_failed)
{
    prepare(&a, 1, &first_class, "text");
    prepare(&b, 2, &first_class, "fail");
    put(&a);
    put(&b);
    wait_for(&b.ended, 1);
    ck_assert_int_eq(a.end.kind, SXD_END_DONE);
    ck_assert_str_eq(a.text, "text");
    ck_assert_int_eq(b.end.kind, SXD_END_FAILED);
    ck_assert_int_eq(b.end.error.code, SX_INPUT);
    ck_assert_str_eq(b.end.error.text, "told to fail");
    ck_assert(!b.end.strike);
    ck_assert_uint_eq(base->metrics.worker_died, 0);
    ck_assert_uint_gt(rooms, 0);
}
END_TEST

/* A worker that dies by itself is the fault of its task, one whose parent is killed is not. */
START_TEST(lost)
{
    prepare(&a, 1, &first_class, "die");
    put(&a);
    wait_for(&a.ended, 1);
    ck_assert_int_eq(a.end.kind, SXD_END_LOST);
    ck_assert_int_eq(a.end.error.code, SX_WORKER);
    ck_assert(a.end.strike);
    ck_assert_str_eq(a.text, "by signal 9");
    prepare(&b, 2, &first_class, "hang");
    put(&b);
    wait_for(&b.began, 1);
    ck_assert_int_eq(kill(work->zygote_pid, SIGKILL), 0);
    wait_for(&b.ended, 1);
    ck_assert_int_eq(b.end.kind, SXD_END_LOST);
    ck_assert(!b.end.strike);
    prepare(&c, 3, &first_class, "after it all");
    put(&c);
    wait_for(&c.ended, 1);
    ck_assert_str_eq(c.text, "after it all");
}
END_TEST

START_TEST(expired_and_dropped)
{
    prepare(&a, 1, &first_class, "hang");
    a.task.limit_ms = 30;
    put(&a);
    wait_for(&a.ended, 1);
    ck_assert_int_eq(a.end.kind, SXD_END_EXPIRED);
    ck_assert_int_eq(a.end.error.code, SX_TIMEOUT);
    ck_assert_uint_ge(a.end.worked_us, 29000);
    prepare(&b, 2, &first_class, "hang");
    put(&b);
    wait_for(&b.began, 1);
    sxd_task_drop(&b.task);
    ck_assert(sxd_work_idle(work));
    prepare(&c, 3, &first_class, "c");
    put(&c);
    wait_for(&c.ended, 1);
    ck_assert_str_eq(c.text, "c");
    ck_assert_uint_eq(b.ended, 0); /* who drops a task knows */
    ck_assert_uint_eq(base->metrics.worker_died, 0);
    ck_assert_uint_eq(base->metrics.worker_killed, 2);
}
END_TEST

/* The second rank waits for the first, also for one that is held. */
START_TEST(ranks)
{
    prepare(&a, 1, &second_class, "a");
    prepare(&b, 2, &first_class, "b");
    prepare(&c, 3, &second_class, "c");
    sxd_task_put(&a.task);
    sxd_task_put(&c.task);
    sxd_task_put(&b.task); /* before both */
    b.task.held = true;
    sxd_work_run(work);
    uint64_t then = base->metrics.worker_started;
    while (base->metrics.worker_started == then) { /* the worker is there and gets nothing */
        (void)uv_run(&base->loop, UV_RUN_ONCE);
    }
    ck_assert_uint_eq(order_count, 0);
    b.task.held = false;
    sxd_work_run(work);
    wait_for(&c.ended, 1);
    ck_assert_uint_eq(order_count, 3);
    ck_assert_uint_eq(order[0], 2);
    ck_assert_uint_eq(order[1], 1);
    ck_assert_uint_eq(order[2], 3);
}
END_TEST

/* ---- threads ---- */
#define THREADS 6
static thing on_thread[THREADS];
static uint32_t thread_ended;
static int running; /* of a serial class: at most one */

static void run_thing(sxd_task *task)
{
    int before = __atomic_fetch_add(&running, 1, __ATOMIC_SEQ_CST);
    thing_of(task)->began = before == 0 ? 1 : 2;
    (void)__atomic_fetch_sub(&running, 1, __ATOMIC_SEQ_CST);
}

/* The first one to end puts the last one: behind those that wait already. */
static void end_thing(sxd_task *task, const sxd_end *end)
{
    ck_assert_int_eq(end->kind, SXD_END_DONE);
    order[order_count++] = thing_of(task)->number;
    if (thread_ended++ == 0) {
        sxd_task_put(&on_thread[THREADS - 1].task);
        ck_assert_int_eq(on_thread[THREADS - 1].task.state, SXD_TASK_QUEUED);
    }
}

static const sxd_task_class serial_class = {
    .name = "serial", .serial = true, .run = run_thing, .end = end_thing};

START_TEST(serial)
{
    thread_ended = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        on_thread[i] = (thing){.number = i};
        sxd_task_init(&on_thread[i].task, work, &serial_class);
        if (i + 1 < THREADS) {
            sxd_task_put(&on_thread[i].task);
        }
    }
    for (uint32_t i = 0; i + 1 < THREADS; i++) {
        ck_assert_int_eq(on_thread[i].task.state, i == 0 ? SXD_TASK_RUNNING : SXD_TASK_QUEUED);
    }
    wait_for(&thread_ended, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        ck_assert_uint_eq(order[i], i);
        ck_assert_uint_eq(on_thread[i].began, 1);
    }
}
END_TEST

/* ---- waiting ---- */
static uint32_t late_count, left_count;

static void on_late(sxd_waiter *waiter)
{
    ck_assert_ptr_null(waiter->of);
    late_count++;
}

static void on_left(sxd_waiter *waiter)
{
    ck_assert_ptr_null(waiter->of);
    left_count++;
}

START_TEST(waiting)
{
    static const sxd_wait_class class = {.late = on_late, .left = on_left};
    sxd_waiters list = {.base = base, .class = &class};
    sxd_waiter waiter[4] = {{0}};
    late_count = left_count = 0;
    sxd_wait_begin(&list, &waiter[0], UINT64_MAX);
    sxd_wait_begin(&list, &waiter[1], sxd_base_now(base) + 1);
    sxd_wait_begin(&list, &waiter[2], UINT64_MAX);
    sxd_wait_check(&list);
    ck_assert_ptr_eq(list.first, &waiter[0]);
    sxd_wait_leave(&waiter[0]);
    sxd_wait_leave(&waiter[3]); /* waits for nothing */
    wait_for(&late_count, 1);
    ck_assert_uint_eq(left_count, 1);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_ptr_eq(list.first, &waiter[2]);
    sxd_wait_end(&waiter[2]);
    ck_assert_uint_eq(left_count, 1);
    sxd_wait_check(&list);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--zygote") == 0) {
        return sxd_zygote_main(&backend, strtol(argv[2], NULL, 10));
    }
    Suite *suite = suite_create("work");
    TCase *cases = tcase_create("work");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, done_and_failed);
    tcase_add_test(cases, lost);
    tcase_add_test(cases, expired_and_dropped);
    tcase_add_test(cases, ranks);
    tcase_add_test(cases, serial);
    tcase_add_test(cases, waiting);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
