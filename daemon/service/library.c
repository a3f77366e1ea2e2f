/* library.c - e-graphs of stored programs: candidates for a miss, and what workers leave.
 *
 * Programs, and parts of programs, that may be equal share a family (sx_core_places), and a family has
 * SXD_LIBRARY_WAYS entries in the cache of the user, entries like any other: quota, eviction, checksums and
 * restarts are the cache's business.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/service.h"

#define PLACES_ARENA_BYTES ((size_t)1 << 30)
#define TWIN_ARENA_BYTES ((size_t)1 << 26)
#define CANDIDATE_BYTES_MAX ((size_t)32 << 20) /* all of one job, with modules */

/* ---- candidates ---- */
static void log_damage(sxd_service *service, const sx_key *place, const char *why)
{
    char key[SX_KEY_TEXT_SIZE];
    char quoted[SXD_QUOTE_MAX];
    sx_key_print(place, key);
    service->base->metrics.egraphs_refused++;
    sxd_log(SXD_WARN, "egraph", "key=%.16s refused=%s", key, sxd_quote(quoted, sx_span_of(why)));
}

/* An entry of the user's; NULL: not there. *size: bytes left for candidates; *there: it is, even if it does not fit. */
static sx_blob *take(sxd_service *service, uint32_t uid, const sx_key *key, uint32_t kind,
                     size_t *size, bool *there)
{
    sx_blob *blob;
    sx_cache_info info;
    *there = false;
    if (sx_cache_get(service->cache, uid, key, &blob, &info) != SX_OK) {
        return NULL;
    }
    size_t bytes = sx_blob_span(blob).len;
    *there = true;
    if (info.kind != kind || bytes > *size) {
        sx_blob_free(blob);
        return NULL;
    }
    *size -= bytes;
    return blob;
}

/* ---- looking: places on a pool thread, entries here, names of the programs on a pool thread, modules here ---- */
typedef struct {
    sxd_task task;
    sxd_service *service;
    sxd_call *call; /* who asks, or NULL: */
    int64_t job;    /* a job that has waited for another */
    sx_buf work;    /* its request: args borrow from it */
    const sx_compile_args *args;
    sxd_reading *reading; /* of the call; NULL: it is not needed any more */
    uint32_t uid;
    sx_ctx cx; /* of the work under way */
    sx_code code;
    sxd_candidates found;
    size_t size_left;
    const char *why[SXD_LIBRARY_WAYS]; /* a candidate for the program is none; in cx */
} looking;

static void take_egraph(looking *l, uint32_t place, uint32_t way)
{
    sxd_service *service = l->service;
    sxd_library *library = &l->found.library;
    sx_key key = sx_core_entry(&library->place[place].family, way);
    sx_cache_stats before, after;
    bool there;
    sx_cache_stats_of(service->cache, &before);
    sx_blob *egraph = take(service, l->uid, &key, SXD_KIND_EGRAPH, &l->size_left, &there);
    sx_cache_stats_of(service->cache, &after);
    if (after.corrupt > before.corrupt) {
        log_damage(service, &key, "damaged in the store");
    }
    library->taken[place] |= (there ? 1u : 0u) << way;
    if (egraph != NULL) {
        l->found.egraph[library->candidate_count] = egraph;
        library->candidate[library->candidate_count++] = (sxd_candidate){place, way, key};
    }
}

/* Those of the program first, then one for each part, then another one for each. */
static void find_egraphs(looking *l)
{
    sxd_library *library = &l->found.library;
    l->size_left = CANDIDATE_BYTES_MAX;
    for (uint32_t way = 0; way < SXD_LIBRARY_WAYS; way++) {
        take_egraph(l, 0, way);
    }
    for (uint32_t way = 0; way < SXD_LIBRARY_WAYS; way++) {
        for (uint32_t place = 1; place < library->place_count; place++) {
            if (library->candidate_count < SX_CORE_CANDIDATES_MAX) {
                take_egraph(l, place, way);
            }
        }
    }
}

/* How many are for the program: they come first. */
static uint32_t count_twins(const sxd_library *library)
{
    uint32_t count = 0;
    while (count < library->candidate_count && library->candidate[count].place == 0) {
        count++;
    }
    return count;
}

static void find_modules(looking *l)
{
    sxd_candidates *found = &l->found;
    sxd_library *library = &found->library;
    uint32_t twins = count_twins(library), kept = 0;
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        bool there;
        sx_blob *module = NULL;
        if (i < twins && l->why[i] != NULL) {
            sx_key place = sx_core_entry(&library->place[0].family, library->candidate[i].way);
            log_damage(l->service, &place, l->why[i]);
            library->taken[0] &= ~(1u << library->candidate[i].way);
            sx_blob_free(found->egraph[i]);
            continue;
        }
        if (i < twins) {
            module = take(l->service, l->uid, &library->candidate[i].key, SXD_KIND_MODULE,
                          &l->size_left, &there);
        }
        library->candidate[kept] = library->candidate[i];
        found->egraph[kept] = found->egraph[i];
        found->module[kept++] = module;
    }
    library->candidate_count = kept;
}

static void begin_work(looking *l, const sxd_task_class *class, size_t arena_bytes)
{
    sx_ctx_init(&l->cx, arena_bytes);
    if (l->call != NULL) {
        sxd_call_pin(l->call);
    }
    sxd_task_init(&l->task, l->service->work, class);
    sxd_task_put(&l->task);
}

static looking *looking_of(sxd_task *task)
{
    return SXD_OWNER(looking, task, task);
}

static void free_looking(looking *l)
{
    for (uint32_t i = 0; i < l->found.library.candidate_count; i++) {
        sx_blob_free(l->found.egraph[i]);
        sx_blob_free(l->found.module[i]);
    }
    sx_ctx_fini(&l->cx);
    sxd_reading_free(l->reading);
    sx_buf_fini(&l->work);
    free(l);
}

/* Back on the loop; false: nobody asks any more, and all is freed. */
static bool end_work(looking *l)
{
    sxd_call *call = l->call;
    if (call == NULL) {
        return true;
    }
    bool up = l->service->base->phase == SXD_UP;
    bool there = sxd_call_unpin(call);
    if (there && up) {
        return true;
    }
    free_looking(l);
    if (there) {
        sxd_call_refuse(call, SX_BUSY, 1000, "compile: the daemon is stopping");
    }
    return false;
}

/* A job that has waited goes on with what was found. */
static void resume(looking *l)
{
    sxd_job *job = sxd_job_find(l->service, l->job);
    if (job == NULL || job->state != SXD_JOB_QUEUED || !job->looking) {
        return; /* cancelled meanwhile */
    }
    job->looking = false;
    if (l->args != NULL) {
        job->library = l->found.library;
        sxd_job_encode(job, l->args, &l->found);
    }
    if (job->task.frame.code != SX_OK) {
        const sx_error error = {.code = SX_NOMEM, .text = "queue: no memory for a compilation"};
        sxd_job_fail(job, &error);
        return;
    }
    sxd_job_ready(job);
}

static void finish(looking *l)
{
    sxd_work *work = l->service->work;
    if (l->call != NULL) {
        sxd_compile_start(l->call, l->found.library.wanted ? &l->found : NULL);
    } else {
        resume(l);
    }
    free_looking(l);
    sxd_work_run(work);
}

static void run_twins(sxd_task *task)
{
    looking *l = looking_of(task);
    sxd_library *library = &l->found.library;
    uint32_t twins = count_twins(library);
    if (l->call == NULL) { /* the request that was encoded for the worker */
        sx_rpc_request request;
        sx_span message = sx_buf_span(&l->work);
        sx_code code = sx_rpc_decode_request(&l->cx, message, &request);
        const sx_work_args *sent = request.args;
        l->args = code == SX_OK && sent->request.count == 1 ? &sent->request.items[0] : NULL;
    }
    for (uint32_t i = 0; i < twins; i++) {
        if (l->args == NULL) {
            l->why[i] = "no memory";
            continue;
        }
        sx_code code = l->service->backend->twin(&l->cx, l->args, sx_blob_span(l->found.egraph[i]),
                                                 &library->candidate[i].key);
        l->why[i] = NULL;
        if (code != SX_OK) {
            const char *why = sx_alloc_text(&l->cx, sx_span_of(l->cx.error.text));
            l->why[i] = why != NULL ? why : "no memory";
            sx_ctx_reset_error(&l->cx);
        }
    }
}

static void on_twins(sxd_task *task, const sxd_end *end)
{
    looking *l = looking_of(task);
    SX_ASSERT(end->kind == SXD_END_DONE);
    if (!end_work(l)) {
        return;
    }
    find_modules(l);
    finish(l);
}

static const sxd_task_class twins_class = {.name = "twins", .run = run_twins, .end = on_twins};

static void run_places(sxd_task *task)
{
    looking *l = looking_of(task);
    sxd_library *library = &l->found.library;
    l->code = l->service->backend->places(&l->cx, l->args, l->reading->key.program, library->place,
                                          &library->place_count);
}

static void on_places(sxd_task *task, const sxd_end *end)
{
    looking *l = looking_of(task);
    SX_ASSERT(end->kind == SXD_END_DONE);
    if (!end_work(l)) {
        return;
    }
    sxd_reading_free(l->reading);
    l->reading = NULL;
    l->found.library.wanted = l->code == SX_OK;
    if (l->found.library.wanted) {
        find_egraphs(l);
    }
    if (count_twins(&l->found.library) > 0) {
        sx_ctx_fini(&l->cx);
        begin_work(l, &twins_class, TWIN_ARENA_BYTES);
    } else {
        finish(l);
    }
}

static const sxd_task_class places_class = {.name = "places", .run = run_places, .end = on_places};

void sxd_library_look(sxd_call *call, sxd_reading *reading)
{
    SX_ASSERT(reading != NULL && !call->pinned);
    sxd_service *service = sxd_service_of(call);
    looking *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        sxd_reading_free(reading);
        sxd_compile_start(call, NULL);
        return;
    }
    l->service = service;
    l->call = call;
    l->args = call->request.args;
    l->reading = reading;
    l->uid = call->principal.space;
    begin_work(l, &places_class, PLACES_ARENA_BYTES);
}

/* ---- programs alike, one after the other ---- */
static void look_again(sxd_job *job)
{
    looking *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        sxd_job_ready(job); /* it is compiled as it is */
        return;
    }
    sx_span message = sx_buf_span(&job->task.frame);
    SX_ASSERT(job->state == SXD_JOB_QUEUED && message.len >= SX_SP_HEAD_BYTES);
    sx_buf_init(&l->work, message.len);
    sx_buf_put(&l->work, message.ptr + SX_SP_HEAD_BYTES, message.len - SX_SP_HEAD_BYTES);
    l->service = job->service;
    l->job = job->id;
    l->uid = job->uid;
    l->found.library = job->library;
    l->found.library.candidate_count = 0;
    memset(l->found.library.taken, 0, sizeof(l->found.library.taken));
    find_egraphs(l);
    job->looking = true;
    begin_work(l, &twins_class, TWIN_ARENA_BYTES);
}

void sxd_library_release(sxd_job *job)
{
    sxd_job *other;
    int64_t first = 0;
    DL_FOREACH(job->service->jobs, other)
    {
        if (other->state != SXD_JOB_QUEUED || other->after != job->id) {
            continue;
        }
        other->after = first;
        if (first == 0) {
            look_again(other);
        }
        if (first == 0 && job->state != SXD_JOB_DONE) {
            first = other->id;
        }
    }
}

/* ---- what a worker leaves ---- */

/* A way for a new e-graph: that of a refused one, an empty one, else one by the program's key. */
static uint32_t choose_way(const sxd_job *job, uint32_t place, uint64_t refused)
{
    const sxd_library *library = &job->library;
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        if ((refused >> i & 1) != 0 && library->candidate[i].place == place) {
            return library->candidate[i].way;
        }
    }
    for (uint32_t way = 0; way < SXD_LIBRARY_WAYS; way++) {
        if ((library->taken[place] >> way & 1) == 0) {
            return way;
        }
    }
    return job->key.byte[0] % SXD_LIBRARY_WAYS;
}

static void put_egraph(sxd_job *job, const sx_work_egraph *row, uint64_t refused)
{
    sxd_service *service = job->service;
    const sxd_library *library = &job->library;
    uint32_t place = 0;
    while (place < library->place_count && !sx_key_equal(&library->place[place].part, &row->part)) {
        place++;
    }
    if (place == library->place_count) {
        return; /* of no part that was asked for */
    }
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_cache_item item = {
        .key = sx_core_entry(&library->place[place].family, choose_way(job, place, refused)),
        .ns = job->uid,
        .kind = SXD_KIND_EGRAPH,
        .cost_us = (uint64_t)job->cost_us,
        .bytes = row->egraph,
        .part = job->made_of.part,
        .part_count = job->made_of.part_count,
    };
    if (sx_cache_put(&cx, service->cache, &item) == SX_OK) {
        service->base->metrics.egraphs_stored++;
    } else {
        char quoted[SXD_QUOTE_MAX];
        service->base->metrics.store_failed++;
        sxd_log(SXD_WARN, "store", "job=%lld error=%s", (long long)job->id,
                sxd_quote(quoted, sx_span_of(cx.error.text)));
    }
    sx_ctx_fini(&cx);
}

static uint64_t log_refused(sxd_job *job, const sx_work_result *result)
{
    const sxd_library *library = &job->library;
    if (!SX_HAS(result, work_result, refused)) {
        return 0;
    }
    uint64_t refused = (uint64_t)result->refused & ((UINT64_C(1) << library->candidate_count) - 1);
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        if ((refused >> i & 1) != 0) {
            char why[SX_ERROR_TEXT_MAX];
            size_t len = result->why.len < sizeof(why) - 1 ? result->why.len : sizeof(why) - 1;
            memcpy(why, result->why.ptr, len);
            why[len] = '\0';
            const sxd_candidate *candidate = &library->candidate[i];
            sx_key key = sx_core_entry(&library->place[candidate->place].family, candidate->way);
            log_damage(job->service, &key, why);
        }
    }
    return refused;
}

static void note_meeting(sxd_job *job, const sx_work_result *result)
{
    sxd_service *service = job->service;
    const sxd_library *library = &job->library;
    if (SX_HAS(result, work_result, parts_met) && result->parts_met > 0) {
        service->base->metrics.parts_met += (uint64_t)result->parts_met;
    }
    if (!SX_HAS(result, work_result, met) || result->met < 0 ||
        result->met >= library->candidate_count || library->candidate[result->met].place != 0) {
        service->base->metrics.semantic_misses += count_twins(library) > 0 ? 1 : 0;
        return;
    }
    char *rules = sx_alloc_text(&job->cx, result->rules);
    job->met = rules != NULL;
    job->met_key = library->candidate[result->met].key;
    job->rules = (sx_span){(const uint8_t *)rules, rules != NULL ? result->rules.len : 0};
    service->base->metrics.semantic_hits++;
    service->base->metrics.semantic_reused += result->reused ? 1 : 0;
    char key[SX_KEY_TEXT_SIZE];
    sx_key_print(&job->met_key, key);
    sxd_log(SXD_INFO, "semantic-hit", "job=%lld met=%.16s reused=%d", (long long)job->id, key,
            result->reused ? 1 : 0);
}

void sxd_library_keep(sxd_job *job, const sx_work_result *result)
{
    if (!job->library.wanted) {
        return;
    }
    uint64_t refused = log_refused(job, result);
    note_meeting(job, result);
    for (uint32_t i = 0; i < result->egraphs.count; i++) {
        put_egraph(job, &result->egraphs.items[i], refused);
    }
}
