/* jobs.c - the table of compilations: states, waiters, the invariant that ties them together. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/artefact.h"

static const bool allowed[SXD_JOB_STATE_COUNT][SXD_JOB_STATE_COUNT] = {
    [SXD_JOB_QUEUED] =
        {[SXD_JOB_RUNNING] = true, [SXD_JOB_CANCELLED] = true, [SXD_JOB_FAILED] = true},
    [SXD_JOB_RUNNING] =
        {[SXD_JOB_DONE] = true, [SXD_JOB_FAILED] = true, [SXD_JOB_CANCELLED] = true},
};

const char *sxd_job_state_name(sxd_job_state state)
{
    static const char *const names[SXD_JOB_STATE_COUNT] = {
        [SXD_JOB_QUEUED] = "queued", [SXD_JOB_RUNNING] = "running",     [SXD_JOB_DONE] = "done",
        [SXD_JOB_FAILED] = "failed", [SXD_JOB_CANCELLED] = "cancelled",
    };
    SX_ASSERT(state < SXD_JOB_STATE_COUNT);
    return names[state];
}

static bool active(const sxd_job *job)
{
    return job->state == SXD_JOB_QUEUED || job->state == SXD_JOB_RUNNING;
}

void sxd_job_check(const sxd_job *job)
{
    sxd_wait_check(&job->waiters);
    SX_ASSERT((job->state == SXD_JOB_QUEUED) == (job->task.state == SXD_TASK_QUEUED));
    SX_ASSERT((job->state == SXD_JOB_RUNNING) == (job->task.state == SXD_TASK_RUNNING));
    SX_ASSERT((job->state == SXD_JOB_DONE) == (job->result != NULL));
    SX_ASSERT((job->state == SXD_JOB_FAILED || job->state == SXD_JOB_CANCELLED) ==
              (job->error.code != SX_OK));
    SX_ASSERT(job->state == SXD_JOB_QUEUED || (job->after == 0 && !job->looking));
}

void sxd_job_move(sxd_job *job, sxd_job_state to)
{
    SX_ASSERT(allowed[job->state][to]);
    bool was = active(job);
    job->state = to;
    job->after = 0;
    job->looking = false;
    if (was && !active(job)) {
        sxd_task_drop(&job->task);
        SX_ASSERT(job->service->active_count > 0);
        job->service->active_count--;
        job->end_ms = sxd_base_now(job->service->base);
    }
    sxd_job_check(job);
}

sxd_job *sxd_job_find(sxd_service *service, int64_t id)
{
    sxd_job *job;
    DL_FOREACH(service->jobs, job)
    {
        if (job->id == id) {
            return job;
        }
    }
    return NULL;
}

sxd_job *sxd_job_find_active(sxd_service *service, const sx_key *slot, uint32_t uid)
{
    sxd_job *job;
    DL_FOREACH(service->jobs, job)
    {
        if (active(job) && job->uid == uid && sx_key_equal(&job->slot, slot)) {
            return job;
        }
    }
    return NULL;
}

/* Copies the parts of the key into the job's own arena. */
static sx_code copy_parts(sxd_job *job, const sxd_key *key)
{
    job->made_of = *key;
    for (uint32_t i = 0; i < key->part_count; i++) {
        const sx_cache_part *part = &key->part[i];
        const char *name = sx_alloc_text(&job->cx, part->name);
        const char *value = sx_alloc_text(&job->cx, part->value);
        if (name == NULL || value == NULL) {
            return job->cx.error.code;
        }
        job->made_of.part[i].name.ptr = (const uint8_t *)name;
        job->made_of.part[i].value.ptr = (const uint8_t *)value;
    }
    return SX_OK;
}

/* A compilation whose request brings no measured rows gets those that are kept here, as one more option in
 * request->options. Returns what has to live until the request is encoded, NULL: nothing. */
static sx_blob *add_rows(sxd_job *job, sx_compile_args *request)
{
    for (uint32_t i = 0; i < request->options.count; i++) {
        if (sx_span_is(request->options.items[i].name, "measured")) {
            return NULL;
        }
    }
    sx_blob *rows =
        job->method == SX_METHOD_COMPILE ? sxd_artefact_rows(job->service, job->uid) : NULL;
    sx_pair *options =
        rows != NULL ? SX_NEW_ARRAY(&job->cx, sx_pair, (size_t)request->options.count + 1) : NULL;
    if (options == NULL) {
        sx_ctx_reset_error(&job->cx);
        sx_blob_free(rows);
        return NULL;
    }
    uint32_t n = request->options.count;
    if (n > 0) {
        memcpy(options, request->options.items, n * sizeof(*options));
    }
    options[n] = (sx_pair){.name = SX_SPAN_LITERAL(SX_CORE_KEPT_OPTION),
                           .kind = SX_VALUE_TEXT,
                           .text = sx_blob_span(rows)};
    SX_PUT(request, compile_args, options, ((sx_pairs){options, n + 1}));
    return rows;
}

void sxd_job_encode(sxd_job *job, const sx_compile_args *args, const sxd_candidates *candidates)
{
    SX_ASSERT(!job->library.wanted || candidates != NULL);
    sx_compile_args request = *args;
    sx_blob *rows = add_rows(job, &request);
    sx_work_args work = {.optimize = job->method == SX_METHOD_OPTIMIZE};
    sx_work_candidate row[SX_CORE_CANDIDATES_MAX] = {{0}};
    sx_work_place place[SX_CORE_PLACES_MAX] = {{0}};
    work.request.items = &request;
    work.request.count = 1;
    if (job->library.wanted) {
        SX_PUT(&work, work_args, egraph_bytes, job->service->base->config.options.egraph_kb * 1024);
        for (uint32_t i = 0; i < job->library.candidate_count; i++) {
            row[i].part = job->library.place[job->library.candidate[i].place].part;
            row[i].key = job->library.candidate[i].key;
            row[i].egraph = sx_blob_span(candidates->egraph[i]);
            if (candidates->module[i] != NULL) {
                SX_PUT(&row[i], work_candidate, module, sx_blob_span(candidates->module[i]));
            }
        }
        for (uint32_t i = 0; i < job->library.place_count; i++) {
            place[i].part = job->library.place[i].part;
            place[i].family = job->library.place[i].family;
        }
        work.places.items = place;
        work.places.count = job->library.place_count;
        work.has |= SX_BIT(work_args, places);
        work.candidates.items = row;
        work.candidates.count = job->library.candidate_count;
        work.has |= SX_BIT(work_args, candidates);
    }
    sx_buf message;
    sx_buf_init(&message, SX_RPC_REQUEST_BYTES_MAX + 4096);
    sx_rpc_encode_request(&message, (uint32_t)job->id, SX_METHOD_WORK, &work, NULL);
    sx_blob_free(rows);
    uint8_t head[SX_SP_HEAD_BYTES];
    sx_sp_head(message.len, head);
    sx_buf *frame = &job->task.frame;
    sx_buf_fini(frame);
    sx_buf_init(frame, SX_RPC_REQUEST_BYTES_MAX + 8192);
    sx_buf_put(frame, head, sizeof(head));
    sx_buf_put_span(frame, sx_buf_span(&message));
    if (message.code != SX_OK) {
        frame->code = message.code;
    }
    sx_buf_fini(&message);
}

/* The job under way of a program like that of `job`, if nothing is stored of either yet: what it leaves will
 * be met; 0: none. */
static int64_t find_leader(const sxd_job *job)
{
    const sxd_library *own = &job->library;
    const sxd_job *other;
    if (!own->wanted || (own->candidate_count > 0 && own->candidate[0].place == 0)) {
        return 0;
    }
    DL_FOREACH(job->service->jobs, other)
    {
        if (active(other) && other->after == 0 && !other->looking && other->uid == job->uid &&
            other->library.wanted &&
            sx_key_equal(&other->library.place[0].likes, &own->place[0].likes)) {
            return other->id;
        }
    }
    return 0;
}

sxd_job *sxd_job_new(sxd_service *service, sxd_call *call, const sx_key *slot,
                     const sxd_candidates *candidates)
{
    const sx_compile_args *args = call->request.args;
    sxd_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return NULL;
    }
    job->service = service;
    job->id = ++service->next_job & UINT32_MAX;
    job->method = call->request.method;
    job->key = sxd_ask_of(call)->key.key;
    job->slot = *slot;
    job->uid = call->principal.space;
    job->born_ms = sxd_base_now(service->base);
    sx_span target = SX_HAS(args, compile_args, target) ? args->target : SX_SPAN_LITERAL("native");
    size_t shown = target.len < sizeof(job->target) - 1 ? target.len : sizeof(job->target) - 1;
    memcpy(job->target, target.ptr, shown);
    job->target[sx_utf8_prefix((sx_span){target.ptr, shown})] = '\0';
    sx_ctx_init(&job->cx, 1 << 20);
    if (candidates != NULL) {
        job->library = candidates->library;
    }
    job->waiters = (sxd_waiters){.base = service->base, .class = &sxd_job_waited};
    sxd_task_init(&job->task, service->work, &sxd_job_class);
    job->task.ticket = (uint32_t)job->id;
    sxd_job_encode(job, args, candidates);
    if (job->task.frame.code != SX_OK || copy_parts(job, &sxd_ask_of(call)->key) != SX_OK) {
        sx_buf_fini(&job->task.frame);
        sx_ctx_fini(&job->cx);
        free(job);
        return NULL;
    }
    job->after = find_leader(job);
    service->base->metrics.awaited += job->after != 0 ? 1 : 0;
    DL_APPEND(service->jobs, job);
    service->active_count++;
    sxd_task_put(&job->task);
    sxd_job_ready(job);
    sxd_job_check(job);
    return job;
}

void sxd_job_ready(sxd_job *job)
{
    SX_ASSERT(job->state == SXD_JOB_QUEUED);
    job->task.held = job->after != 0 || job->looking;
}

void sxd_job_free(sxd_job *job)
{
    SX_ASSERT(!active(job) && job->waiters.first == NULL);
    DL_DELETE(job->service->jobs, job);
    sx_blob_free(job->result);
    sx_ctx_fini(&job->cx);
    free(job);
}
