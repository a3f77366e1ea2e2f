/* The job table without processes: states, waiters, copies; forbidden moves end the process. */
#include "tests/lib/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/service.h"

static sxd_base *base;
static sxd_net net;
static sxd_work *table;
static const sxd_backend backend; /* of a kind of machine that has no measured rows */
static sxd_service *service;
static sxd_call *call;

static sxd_call *new_call(const char *ir, uint32_t uid)
{
    sxd_call *fresh = calloc(1, sizeof(*fresh));
    ck_assert_ptr_nonnull(fresh);
    sx_ctx_init(&fresh->cx, 1 << 16);
    sx_compile_args *args = SX_NEW(&fresh->cx, sx_compile_args);
    args->ir = sx_span_of(ir);
    SX_PUT(args, compile_args, target,
           SX_SPAN_LITERAL("a target with a name of more than 32 bytes"));
    sxd_ask *ask = SX_NEW(&fresh->cx, sxd_ask);
    ask->call = fresh;
    fresh->self = ask;
    fresh->net = &net;
    fresh->principal = (sxd_principal){.space = uid, .rights = SXD_MAY_USE};
    fresh->request.method = SX_METHOD_COMPILE;
    fresh->request.args = args;
    ask->key.key.byte[0] = (uint8_t)ir[0];
    ask->key.part[0] = (sx_cache_part){SX_SPAN_LITERAL("program"), SX_SPAN_LITERAL("digest")};
    ask->key.part_count = 1;
    return fresh;
}

static void free_call(sxd_call *old)
{
    sx_ctx_fini(&old->cx);
    free(old);
}

static void setup(void)
{
    service = calloc(1, sizeof(*service));
    ck_assert_ptr_nonnull(service);
    base = calloc(1, sizeof(*base));
    ck_assert_ptr_nonnull(base);
    ck_assert_int_eq(uv_loop_init(&base->loop), 0);
    net = (sxd_net){.base = base, .server = {.self = service}};
    service->base = base;
    service->net = &net;
    table = calloc(1, sizeof(*table));
    ck_assert_ptr_nonnull(table);
    table->base = base;
    service->work = table;
    service->backend = &backend;
    call = new_call("program", 7);
}

static void teardown(void)
{
    free_call(call);
    ck_assert_int_eq(uv_loop_close(&base->loop), 0);
    ck_assert(sxd_work_idle(table));
    free(table);
    free(base);
    free(service);
}

static sxd_job *new_job(void)
{
    sxd_job *job = sxd_job_new(service, call, &sxd_ask_of(call)->key.key, NULL);
    ck_assert_ptr_nonnull(job);
    return job;
}

static void cancel(sxd_job *job)
{
    job->error.code = SX_CANCELLED;
    sxd_job_move(job, SXD_JOB_CANCELLED);
    sxd_job_free(job);
}

START_TEST(find_by_key_and_user)
{
    sxd_job *job = new_job();
    ck_assert_ptr_eq(sxd_job_find_active(service, &job->slot, 7), job);
    ck_assert_ptr_null(sxd_job_find_active(service, &job->slot, 8)); /* never across users */
    sx_key other = {{0}};
    ck_assert_ptr_null(sxd_job_find_active(service, &other, 7));
    ck_assert_ptr_eq(sxd_job_find(service, job->id), job);
    ck_assert_ptr_null(sxd_job_find(service, job->id + 1));
    ck_assert_uint_eq(service->active_count, 1);
    job->error.code = SX_CANCELLED;
    sxd_job_move(job, SXD_JOB_CANCELLED);
    ck_assert_ptr_null(sxd_job_find_active(service, &job->slot, 7));
    ck_assert_ptr_eq(sxd_job_find(service, job->id), job);
    ck_assert_uint_eq(service->active_count, 0);
    sxd_job_free(job);
}
END_TEST

/* The job lives on when the call it came from is gone: its work decodes to the same request, its parts are copies. */
START_TEST(copies)
{
    sxd_call *first = new_call("echo copies", 7);
    sxd_job *job = sxd_job_new(service, first, &sxd_ask_of(first)->key.key, NULL);
    memset(&sxd_ask_of(first)->key.part[0], 0xee, sizeof(sxd_ask_of(first)->key.part[0]));
    free_call(first);
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_span frame = sx_buf_span(&job->task.frame);
    sx_rpc_request request;
    sx_span message = {frame.ptr + SX_SP_HEAD_BYTES, frame.len - SX_SP_HEAD_BYTES};
    ck_sx_ok(&cx, sx_rpc_decode_request(&cx, message, &request));
    ck_assert_int_eq(request.method, SX_METHOD_WORK);
    ck_assert_uint_eq(request.msgid, (uint32_t)job->id);
    const sx_work_args *work = request.args;
    ck_assert(!work->optimize && work->request.count == 1);
    ck_assert(sx_span_is(work->request.items[0].ir, "echo copies"));
    ck_assert(sx_span_is(job->made_of.part[0].name, "program"));
    ck_assert(sx_span_is(job->made_of.part[0].value, "digest"));
    ck_assert_uint_eq(strlen(job->target), SXD_STAGE_TEXT_MAX - 1);
    sx_ctx_fini(&cx);
    cancel(job);
}
END_TEST

static void hold(sxd_job *job, sxd_call *waiting)
{
    sxd_ask_of(waiting)->job = job;
    sxd_wait_begin(&job->waiters, &sxd_ask_of(waiting)->waiter, UINT64_MAX);
}

START_TEST(waiters)
{
    sxd_job *job = new_job();
    sxd_call *second = new_call("other", 7);
    hold(job, call);
    hold(job, second);
    job->detached = true;
    sxd_job_check(job);
    ck_assert_uint_eq(job->waiters.count, 2);
    sxd_wait_leave(&sxd_ask_of(call)->waiter);
    ck_assert_ptr_null(sxd_ask_of(call)->waiter.of);
    ck_assert_ptr_eq(sxd_call_of(job->waiters.first), second);
    sxd_wait_end(&sxd_ask_of(second)->waiter);
    sxd_job_check(job);
    free_call(second);
    cancel(job);
}
END_TEST

/* A job that waits for another is in the table, holds back steps of searches, and is given to no worker. */
START_TEST(held_in_the_table)
{
    sxd_job *job = new_job();
    ck_assert(!job->task.held && sxd_work_waits(table, SXD_RANK_COMPILE));
    job->after = 1;
    sxd_job_ready(job);
    ck_assert(job->task.held && sxd_work_waits(table, SXD_RANK_COMPILE));
    job->after = 0;
    job->looking = true;
    sxd_job_ready(job);
    ck_assert(job->task.held);
    job->looking = false;
    sxd_job_ready(job);
    ck_assert(!job->task.held);
    cancel(job);
    ck_assert(!sxd_work_waits(table, SXD_RANK_STEP));
}
END_TEST

START_TEST(done_without_running)
{
    sxd_job_move(new_job(), SXD_JOB_DONE);
}
END_TEST

START_TEST(running_without_worker)
{
    sxd_job_move(new_job(), SXD_JOB_RUNNING);
}
END_TEST

START_TEST(failed_without_reason)
{
    sxd_job_move(new_job(), SXD_JOB_FAILED);
}
END_TEST

START_TEST(moved_after_the_end)
{
    sxd_job *job = new_job();
    job->error.code = SX_CANCELLED;
    sxd_job_move(job, SXD_JOB_CANCELLED);
    sxd_job_move(job, SXD_JOB_QUEUED);
}
END_TEST

START_TEST(freed_with_a_waiter)
{
    sxd_job *job = new_job();
    hold(job, call);
    job->error.code = SX_CANCELLED;
    sxd_job_move(job, SXD_JOB_CANCELLED);
    sxd_job_free(job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jobs");
    TCase *cases = tcase_create("jobs");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, find_by_key_and_user);
    tcase_add_test(cases, copies);
    tcase_add_test(cases, waiters);
    tcase_add_test(cases, held_in_the_table);
    tcase_add_test_raise_signal(cases, done_without_running, SIGABRT);
    tcase_add_test_raise_signal(cases, running_without_worker, SIGABRT);
    tcase_add_test_raise_signal(cases, failed_without_reason, SIGABRT);
    tcase_add_test_raise_signal(cases, moved_after_the_end, SIGABRT);
    tcase_add_test_raise_signal(cases, freed_with_a_waiter, SIGABRT);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
