/* queue.c - compilations under way: who runs, who waits, what each of them is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/service.h"

#define KEPT_MAX 1024 /* finished jobs that can still be asked for */

static bool active(const sxd_job *job)
{
    return job->state == SXD_JOB_QUEUED || job->state == SXD_JOB_RUNNING;
}

/* ---- answers ---- */
/* Events after `seen`, oldest first, as rows that borrow from the job. */
static uint32_t events_after(sxd_job *job, int64_t seen, sx_event_row rows[SXD_EVENT_MAX])
{
    uint32_t n = 0;
    int64_t first = sx_max_i64(sx_max_i64(seen, 0), job->seq - SXD_EVENT_MAX) + 1;
    for (int64_t seq = first; seq <= job->seq; seq++) {
        const sxd_event *event = &job->event[(seq - 1) % SXD_EVENT_MAX];
        SX_ASSERT(event->seq == seq);
        rows[n++] = (sx_event_row){
            .seq = seq,
            .at_ms = event->at_ms,
            .stage = sx_span_of(event->stage),
            .done = event->done,
            .total = event->total,
        };
    }
    return n;
}

static void answer_wait(sxd_job *job, sxd_call *call)
{
    sx_event_row rows[SXD_EVENT_MAX];
    sx_wait_result result = {
        .job = job->id,
        .key = job->key,
        .state = sx_span_of(sxd_job_state_name(job->state)),
        .seq = job->seq,
    };
    result.events.items = rows;
    result.events.count = events_after(job, sxd_ask_of(call)->seen_seq, rows);
    sx_blob *tail = NULL;
    if (job->state == SXD_JOB_DONE) {
        tail = sx_blob_share(job->result);
        SX_PUT(&result, wait_result, cost_us, job->cost_us);
        if (job->met) {
            SX_PUT(&result, wait_result, met, job->met_key);
            SX_PUT(&result, wait_result, rules, job->rules);
        }
        SX_PUT(&result, wait_result, module, sx_blob_span(tail));
    }
    sxd_call_result(call, &result, tail);
}

static void answer_compile(sxd_job *job, sxd_call *call)
{
    sx_compile_result result = {
        .key = job->key,
        .state = sx_span_of(sxd_job_state_name(job->state)),
        .tier = SX_SPAN_LITERAL("none"),
    };
    SX_PUT(&result, compile_result, coalesced, sxd_ask_of(call)->coalesced);
    SX_PUT(&result, compile_result, job, job->id);
    SX_PUT(&result, compile_result, seq, job->seq);
    sx_blob *tail = NULL;
    if (job->state == SXD_JOB_DONE) {
        tail = sx_blob_share(job->result);
        SX_PUT(&result, compile_result, cost_us, job->cost_us);
        if (job->met) {
            SX_PUT(&result, compile_result, met, job->met_key);
            SX_PUT(&result, compile_result, rules, job->rules);
        }
        SX_PUT(&result, compile_result, module, sx_blob_span(tail));
    }
    sxd_call_result(call, &result, tail);
}

/* Tells one caller how the job stands; the call is no waiter any more. */
static void answer(sxd_job *job, sxd_call *call)
{
    SX_ASSERT(sxd_ask_of(call)->waiter.of == NULL);
    if (job->state == SXD_JOB_FAILED || job->state == SXD_JOB_CANCELLED) {
        sxd_call_fail(call, &job->error, 0);
    } else if (call->request.method == SX_METHOD_WAIT) {
        answer_wait(job, call);
    } else if (call->request.method == SX_METHOD_COMPILE) {
        answer_compile(job, call);
    } else {
        SX_ASSERT(call->request.method == SX_METHOD_OPTIMIZE);
        if (job->state != SXD_JOB_DONE) {
            sxd_call_refuse(call, SX_BUSY, 1000, "job %lld: still %s", (long long)job->id,
                            sxd_job_state_name(job->state));
            return;
        }
        sx_optimize_result result = {
            .key = job->key,
            .tier = SX_SPAN_LITERAL("none"),
            .cost_us = job->cost_us,
            .module = sx_blob_span(job->result),
        };
        if (job->met) {
            SX_PUT(&result, optimize_result, met, job->met_key);
            SX_PUT(&result, optimize_result, rules, job->rules);
        }
        sxd_call_result(call, &result, NULL);
    }
}

/* ---- the end of a job ---- */
static void drop_oldest_kept(sxd_service *service)
{
    uint32_t kept = 0;
    sxd_job *job;
    sxd_job *oldest = NULL;
    DL_FOREACH(service->jobs, job)
    {
        if (!active(job) && job->waiters.first == NULL) {
            oldest = oldest == NULL ? job : oldest;
            kept++;
        }
    }
    if (kept > KEPT_MAX) {
        sxd_job_free(oldest);
    }
}

/* The state has just become final: tell everybody, then forget or keep it. */
static void end_job(sxd_job *job)
{
    sxd_service *service = job->service;
    SX_ASSERT(!active(job));
    sxd_log(SXD_INFO, "job", "job=%lld state=%s code=%s cost_us=%lld waiters=%u coalesced=%u",
            (long long)job->id, sxd_job_state_name(job->state), sx_code_name(job->error.code),
            (long long)job->cost_us, job->waiters.count, job->coalesced);
    sxd_library_release(job);
    while (job->waiters.first != NULL) {
        sxd_waiter *waiter = job->waiters.first;
        sxd_wait_end(waiter);
        answer(job, sxd_call_of(waiter));
    }
    if (!job->detached) {
        sxd_job_free(job);
    } else {
        drop_oldest_kept(service);
    }
}

/* Ends a job before its time; its worker, if it has one, dies. */
static void cancel_job(sxd_job *job, sx_code code, const char *text)
{
    job->error = (sx_error){.code = code};
    (void)snprintf(job->error.text, sizeof(job->error.text), "job %lld: %s", (long long)job->id,
                   text);
    sxd_job_move(job, SXD_JOB_CANCELLED);
    job->service->base->metrics.cancelled++;
    end_job(job);
}

static void cancel_orphan(sxd_job *job)
{
    if (active(job) && job->waiters.first == NULL && !job->detached) {
        cancel_job(job, SX_CANCELLED, "nobody waits for it");
    }
}

/* What a worker sent, checked, and signed where it is a module: the blob that is stored and handed out. */
static sx_code make_result(sx_ctx *cx, const sxd_job *job, sx_span bytes, sx_blob **result)
{
    const sxd_backend *backend = job->service->backend;
    bool module = job->method == SX_METHOD_COMPILE;
    bool sealed = module && backend->seal != NULL;
    sx_module_seal seal;
    sx_blob *blob = sx_blob_new(bytes.len + (sealed ? sizeof(seal) : 0));
    if (blob == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "job: no memory for a result of %zu bytes", bytes.len);
    }
    if (bytes.len > 0) {
        memcpy(sx_blob_bytes(blob), bytes.ptr, bytes.len);
    }
    sx_span copy = {sx_blob_bytes(blob), bytes.len}; /* aligned, as the wire is not */
    sx_code code = module ? backend->check(cx, copy) : SX_OK;
    if (code == SX_OK && sealed) {
        code = backend->seal(cx, &job->service->key, copy, &seal);
        memcpy(sx_blob_bytes(blob) + bytes.len, &seal, code == SX_OK ? sizeof(seal) : 0);
    }
    if (code != SX_OK) {
        sx_blob_free(blob);
        return code;
    }
    *result = blob;
    return SX_OK;
}

static void finish_job(sxd_job *job, const sx_work_result *result, uint64_t worked_us)
{
    sxd_service *service = job->service;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)256 << 20);
    job->cost_us = (int64_t)worked_us;
    bool module = job->method == SX_METHOD_COMPILE;
    sx_blob *blob = NULL;
    if (make_result(&cx, job, result->bytes, &blob) != SX_OK) {
        sx_error error = cx.error;
        sx_ctx_fini(&cx);
        sxd_job_fail(job, &error);
        return;
    }
    sx_cache_item item = {
        .key = job->slot,
        .ns = job->uid,
        .kind = module ? SXD_KIND_MODULE : SXD_KIND_TEXT,
        .cost_us = (uint64_t)job->cost_us,
        .bytes = sx_blob_span(blob),
        .part = job->made_of.part,
        .part_count = job->made_of.part_count,
    };
    if (sx_cache_put(&cx, service->cache, &item) != SX_OK) {
        service->base->metrics.store_failed++;
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_WARN, "store", "job=%lld error=%s", (long long)job->id,
                sxd_quote(quoted, sx_span_of(cx.error.text)));
    }
    sx_ctx_fini(&cx);
    sxd_library_keep(job, result);
    job->result = blob;
    service->base->metrics.compiled++;
    sxd_job_move(job, SXD_JOB_DONE);
    sxd_service_tick_cache(service);
    end_job(job);
}

void sxd_job_fail(sxd_job *job, const sx_error *error)
{
    SX_ASSERT(error->code != SX_OK);
    job->error = *error;
    job->service->base->metrics.failed++;
    sxd_job_move(job, SXD_JOB_FAILED);
    end_job(job);
}

/* Its worker died, and it may be to blame. */
static void lose_job(sxd_job *job, const sxd_end *end)
{
    sxd_service *service = job->service;
    char signature[128];
    (void)snprintf(signature, sizeof(signature), "%s in stage %s", end->how,
                   job->seq > 0 ? job->event[(job->seq - 1) % SXD_EVENT_MAX].stage : "none");
    sx_error error = {.code = SX_WORKER, .file = __FILE__, .line = __LINE__};
    (void)snprintf(error.text, sizeof(error.text), "worker %d ended %s during job %lld", end->pid,
                   end->how, (long long)job->id);
    if (end->strike) {
        (void)snprintf(error.hint, sizeof(error.hint),
                       "This was strike %u for the key; a quarantined key is refused.",
                       sxd_service_strike(service, &job->slot, signature));
    }
    sxd_job_fail(job, &error);
    sxd_service_tick_cache(service);
}

/* ---- what the task table tells ---- */
static sxd_job *job_of(sxd_task *task)
{
    return SXD_OWNER(sxd_job, task, task);
}

static void on_begin(sxd_task *task)
{
    sxd_job *job = job_of(task);
    sxd_base *base = job->service->base;
    task->limit_ms = (uint64_t)base->config.options.compile_ms;
    base->metrics.compiles++;
    sxd_job_move(job, SXD_JOB_RUNNING);
}

static void on_event(sxd_task *task, const sx_event_row *row)
{
    sxd_job *job = job_of(task);
    sxd_event *event = &job->event[job->seq % SXD_EVENT_MAX];
    *event = (sxd_event){
        .seq = ++job->seq,
        .at_ms = (int64_t)(sxd_base_now(job->service->base) - job->born_ms),
        .done = row->done,
        .total = row->total,
    };
    size_t n = row->stage.len < SXD_STAGE_TEXT_MAX - 1 ? row->stage.len : SXD_STAGE_TEXT_MAX - 1;
    memcpy(event->stage, row->stage.ptr, n);
    event->stage[sx_utf8_prefix((sx_span){row->stage.ptr, n})] = '\0';
    sxd_waiter *waiter;
    sxd_waiter *next;
    DL_FOREACH_SAFE(job->waiters.first, waiter, next)
    {
        sxd_call *call = sxd_call_of(waiter);
        if (call->request.method == SX_METHOD_WAIT) {
            job->detached = true; /* who polls comes back */
            sxd_wait_end(waiter);
            answer(job, call);
        }
    }
}

static void on_end(sxd_task *task, const sxd_end *end)
{
    sxd_job *job = job_of(task);
    switch (end->kind) {
    case SXD_END_DONE: finish_job(job, end->result, end->worked_us); return;
    case SXD_END_FAILED: sxd_job_fail(job, &end->error); return;
    case SXD_END_LOST: lose_job(job, end); return;
    case SXD_END_EXPIRED:
        job->service->base->metrics.timeouts++;
        cancel_job(job, SX_TIMEOUT, end->error.text);
        return;
    }
}

const sxd_task_class sxd_job_class = {.name = "compile",
                                      .method = SX_METHOD_WORK,
                                      .rank = SXD_RANK_COMPILE,
                                      .begin = on_begin,
                                      .event = on_event,
                                      .end = on_end};

/* ---- waiting ---- */
void sxd_job_keep(sxd_job *job)
{
    SX_ASSERT(active(job));
    job->detached = true;
    job->askers++;
}

static void on_late(sxd_waiter *waiter)
{
    sxd_call *call = sxd_call_of(waiter);
    sxd_job *job = sxd_ask_of(call)->job;
    long long id = job->id;
    if (call->deadline_ms <= sxd_base_now(job->service->base)) {
        job->service->base->metrics.expired++;
        cancel_orphan(job); /* may free it */
        sxd_call_refuse(call, SX_TIMEOUT, 0, "job %lld: the deadline of the call passed", id);
    } else {
        if (call->request.method == SX_METHOD_WAIT) {
            job->detached = true; /* who polls comes back */
        } else {
            sxd_job_keep(job);
        }
        answer(job, call);
    }
}

/* The client is gone: the job dies with its last waiter. */
static void on_left(sxd_waiter *waiter)
{
    cancel_orphan(sxd_ask_of(sxd_call_of(waiter))->job);
}

const sxd_wait_class sxd_job_waited = {.late = on_late, .left = on_left};

void sxd_queue_hold(sxd_job *job, sxd_call *call)
{
    sxd_ask *ask = sxd_ask_of(call);
    uint64_t until = call->deadline_ms < ask->hold_ms ? call->deadline_ms : ask->hold_ms;
    SX_ASSERT(active(job));
    sx_buf_fini(&call->body); /* the job has its own copy of what it needs */
    ask->job = job;
    sxd_wait_begin(&job->waiters, &ask->waiter, until);
}

static sxd_job *find_for(sxd_call *call, int64_t id)
{
    sxd_job *job = sxd_job_find(sxd_service_of(call), id);
    if (job == NULL || !sxd_principal_sees(&call->principal, job->uid)) {
        sxd_call_refuse(call, SX_ABSENT, 0, "job %lld: not known since the start %s", (long long)id,
                        sxd_service_of(call)->base->boot_id);
        return NULL;
    }
    return job;
}

void sxd_wait(sxd_call *call)
{
    SX_ASSERT(call->request.method == SX_METHOD_WAIT);
    const sx_wait_args *args = call->request.args;
    const sxd_options *options = &sxd_service_of(call)->base->config.options;
    sxd_job *job = find_for(call, args->job);
    if (job == NULL) {
        return;
    }
    int64_t wait = SX_HAS(args, wait_args, wait_ms) ? args->wait_ms : options->wait_ms;
    wait = sx_min_i64(sx_max_i64(wait, 0), options->wait_ms);
    sxd_ask_of(call)->seen_seq = SX_HAS(args, wait_args, seq) ? args->seq : 0;
    if (!active(job) || job->seq > sxd_ask_of(call)->seen_seq || wait == 0) {
        answer(job, call);
        return;
    }
    sxd_ask_of(call)->hold_ms = sxd_base_now(sxd_service_of(call)->base) + (uint64_t)wait;
    sxd_queue_hold(job, call);
}

void sxd_cancel(sxd_call *call)
{
    SX_ASSERT(call->request.method == SX_METHOD_CANCEL);
    const sx_cancel_args *args = call->request.args;
    sxd_job *job = find_for(call, args->job);
    if (job == NULL) {
        return;
    }
    sx_cancel_result result = {
        .job = job->id,
        .state = sx_span_of(sxd_job_state_name(job->state)),
    };
    if (active(job) && SX_HAS(args, cancel_args, leave) && args->leave) {
        job->askers -= job->askers > 0 ? 1 : 0;
        job->detached = job->askers > 0;
        cancel_orphan(job); /* may free the job */
    } else if (active(job)) {
        cancel_job(job, SX_CANCELLED, "cancelled by a call"); /* may free the job */
    }
    sxd_call_result(call, &result, NULL);
}

void sxd_jobs(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    sxd_job *job;
    uint32_t count = 0;
    DL_COUNT(service->jobs, job, count);
    sx_job_row *rows = SX_NEW_ARRAY(&call->cx, sx_job_row, count);
    if (rows == NULL) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    uint32_t n = 0;
    DL_FOREACH(service->jobs, job)
    {
        if (!sxd_principal_sees(&call->principal, job->uid)) {
            continue;
        }
        const char *stage = job->seq > 0 ? job->event[(job->seq - 1) % SXD_EVENT_MAX].stage : "";
        rows[n++] = (sx_job_row){
            .job = job->id,
            .key = job->key,
            .method = sx_span_of(sx_method_get(job->method)->name),
            .target = sx_span_of(job->target),
            .state = sx_span_of(sxd_job_state_name(job->state)),
            .waiters = job->waiters.count,
            .coalesced = job->coalesced,
            .detached = job->detached,
            .age_ms = (int64_t)(sxd_base_now(service->base) - job->born_ms),
            .uid = job->uid,
            .worker = job->task.worker != NULL ? job->task.worker->pid : 0,
            .stage = sx_span_of(stage),
        };
    }
    sx_jobs_result result = {0};
    result.jobs.items = rows;
    result.jobs.count = n;
    sxd_call_result(call, &result, NULL);
}

void sxd_queue_sweep(sxd_service *service)
{
    uint64_t now = sxd_base_now(service->base);
    uint64_t keep_ms = (uint64_t)service->base->config.options.job_keep_s * 1000;
    sxd_job *job;
    sxd_job *next;
    DL_FOREACH_SAFE(service->jobs, job, next)
    {
        if (!active(job) && now - job->end_ms >= keep_ms) {
            SX_ASSERT(job->waiters.first == NULL);
            sxd_job_free(job);
        }
    }
}

void sxd_queue_stop(sxd_service *service, const char *why)
{
    sxd_job *job = service->jobs;
    while (job !=
           NULL) { /* a cancelled job leaves the table or stays final: start over each time */
        sxd_job *found = NULL;
        DL_FOREACH(service->jobs, job)
        {
            if (active(job)) {
                found = job;
                break;
            }
        }
        job = found;
        if (found != NULL) {
            cancel_job(found, SX_BUSY, why);
        }
    }
}
