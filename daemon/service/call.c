/* call.c - which function serves which method; the methods that only look. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/service/artefact.h"
#include "daemon/service/gang.h"
#include "daemon/service/search.h"

#define PROTO_VERSION 1
#define LIST_DEFAULT 1000
#define LIST_MAX 10000

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static sx_pair int_pair(const char *name, uint64_t value)
{
    return (sx_pair){
        .name = sx_span_of(name),
        .kind = SX_VALUE_INT,
        .integer = value > INT64_MAX ? INT64_MAX : (int64_t)value,
    };
}

static void fail(sxd_call *call)
{
    SX_ASSERT(call->cx.error.code != SX_OK);
    sxd_call_fail(call, &call->cx.error, 0);
}

/* ---- hello, ping, ready, shutdown ---- */
static void serve_hello(sxd_call *call)
{
    const sxd_service *service = sxd_service_of(call);
    const sxd_options *options = &service->base->config.options;
    const sx_hello_args *args = call->request.args;
    if (SX_HAS(args, hello_args, client)) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_DEBUG, "hello", "req=%llu uid=%u client=%s", (unsigned long long)call->id,
                call->principal.space, sxd_quote(quoted, args->client));
    }
    sx_pair methods[SX_METHOD_COUNT];
    uint32_t method_count = 0;
    for (uint32_t i = 0; i < SX_METHOD_COUNT; i++) {
        const sx_method_row *row = sx_method_get((sx_method)i);
        if (row->class != SX_CLASS_INNER) {
            methods[method_count++] = int_pair(row->name, (uint64_t)row->revision);
        }
    }
    sx_pair limits[] = {
        int_pair("request_bytes", SX_RPC_REQUEST_BYTES_MAX),
        int_pair("control_bytes", SX_RPC_CONTROL_BYTES_MAX),
        int_pair("depth", SX_SCAN_DEPTH_MAX),
        int_pair("nodes", SX_SCAN_NODES_MAX),
        int_pair("inflight", (uint64_t)options->inflight_max),
        int_pair("wait_ms", (uint64_t)options->wait_ms),
    };
    sx_span features[3];
    uint32_t feature_count = 0;
    features[feature_count++] = SX_SPAN_LITERAL("single-flight");
    if (sxd_sandbox_filters()) {
        features[feature_count++] = SX_SPAN_LITERAL("worker-seccomp");
    }
    if (sxd_sandbox_limits_memory()) {
        features[feature_count++] = SX_SPAN_LITERAL("worker-memory-limit");
    }
    sx_hello_result result = {
        .server = SX_SPAN_LITERAL("symplexd"),
        .version = SX_SPAN_LITERAL(SX_VERSION_TEXT),
        .build = sx_span_of(service->backend->build()),
        .proto_min = PROTO_VERSION,
        .proto_max = PROTO_VERSION,
        .boot_id = sx_span_of(service->base->boot_id),
        .pid = getpid(),
        .now_ms = now_ms(),
        .methods = {.items = methods, .count = method_count},
        .limits = {.items = limits, .count = SX_COUNT(limits)},
        .features = {.items = features, .count = feature_count},
    };
    SX_PUT(&result, hello_result, verify_key,
           ((sx_span){service->key.public_key, sizeof(service->key.public_key)}));
    sxd_call_result(call, &result, NULL);
}

static void serve_ping(sxd_call *call)
{
    const sx_ping_args *args = call->request.args;
    sx_ping_result result = {
        .boot_id = sx_span_of(sxd_service_of(call)->base->boot_id),
        .now_ms = now_ms(),
    };
    if (SX_HAS(args, ping_args, data)) {
        SX_PUT(&result, ping_result, data, args->data);
    }
    sxd_call_result(call, &result, NULL);
}

static void serve_ready(sxd_call *call)
{
    const sxd_service *service = sxd_service_of(call);
    const char *why = NULL;
    if (service->base->phase != SXD_UP) {
        why = "draining";
    } else if (!sxd_work_alive(service->work)) {
        why = "no worker runs";
    }
    sx_ready_result result = {.ready = why == NULL};
    if (why != NULL) {
        SX_PUT(&result, ready_result, why, sx_span_of(why));
    }
    sxd_call_result(call, &result, NULL);
}

static void serve_shutdown(sxd_call *call)
{
    const sx_shutdown_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    bool fast = SX_HAS(args, shutdown_args, fast) && args->fast;
    sx_shutdown_result result = {.state = SX_SPAN_LITERAL("draining")};
    sxd_call_result(call, &result, NULL);
    service->drain(service->self, fast);
}

/* ---- status ---- */
#define COUNTER_MAX 128

static uint32_t own_counters(const sxd_service *service, sx_pair *out)
{
    uint32_t n = 0;
#define SXD_METRIC(name_, help) out[n++] = int_pair(#name_, service->base->metrics.name_);
#include "daemon/base/metrics.def"
#undef SXD_METRIC
    out[n++] = int_pair("hits", service->base->metrics.hits_ram + service->base->metrics.hits_disk);
    out[n++] = int_pair("open_sessions", service->net->session_count);
    out[n++] = int_pair("active_jobs", service->active_count);
    out[n++] = int_pair("searches_kept", service->search_count);
    out[n++] = int_pair("searches_running", sxd_search_running(service));
    out[n++] = int_pair("search_steps_active", service->step_count);
    return n;
}

static uint32_t cache_counters(const sx_cache_stats *stats, sx_pair *out)
{
    uint32_t n = 0;
    out[n++] = int_pair("cache_entries", stats->entries);
    out[n++] = int_pair("cache_bytes", stats->bytes);
    out[n++] = int_pair("cache_ram_entries", stats->ram_entries);
    out[n++] = int_pair("cache_ram_bytes", stats->ram_bytes);
    out[n++] = int_pair("cache_puts", stats->puts);
    out[n++] = int_pair("cache_put_dropped", stats->put_dropped);
    out[n++] = int_pair("cache_evicted_size", stats->evicted_size);
    out[n++] = int_pair("cache_corrupt", stats->corrupt);
    out[n++] = int_pair("cache_errors", stats->errors);
    out[n++] = int_pair("cache_commits", stats->commits);
    out[n++] = int_pair("cache_queue_rows", stats->queue_rows);
    out[n++] = int_pair("cache_file_bytes", stats->file_bytes);
    out[n++] = int_pair("cache_wal_bytes", stats->wal_bytes);
    out[n++] = int_pair("cache_quarantined", stats->quarantined);
    out[n++] = int_pair("cache_struck_keys", stats->struck);
    out[n++] = int_pair("saved_us", stats->saved_us);
    return n;
}

static void put_lane(const sxd_search_lane *lane, sx_worker_row *row)
{
    row->search = lane->search->row.id;
    if (lane->guest) {
        SX_PUT(row, worker_row, task, sx_span_of(lane->task_name));
    }
    if (lane->stage[0] != '\0') {
        SX_PUT(row, worker_row, stage, sx_span_of(lane->stage));
    }
}

static uint32_t worker_rows(const sxd_service *service, sx_worker_row *rows)
{
    const sxd_work *work = service->work;
    uint32_t n = 0;
    for (uint32_t i = 0; i < work->worker_count; i++) {
        const sxd_worker *worker = &work->worker[i];
        sxd_task *task = worker->task;
        if (worker->state == SXD_WORKER_NONE) {
            continue;
        }
        sx_worker_row *row = &rows[n++];
        *row = (sx_worker_row){
            .pid = worker->pid,
            .state = sx_span_of(sxd_worker_state_name(worker->state)),
            .jobs = (int64_t)worker->jobs,
        };
        if (task != NULL && task->class == &sxd_job_class) {
            row->job = SXD_OWNER(sxd_job, task, task)->id;
        } else if (task != NULL && task->class == &sxd_step_class) {
            put_lane(SXD_OWNER(sxd_search_lane, task, task), row);
        }
    }
    return n;
}

static void serve_status(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    sx_pair *counters = SX_NEW_ARRAY(&call->cx, sx_pair, COUNTER_MAX);
    char(*names)[40] = sx_alloc_array(&call->cx, SX_METHOD_COUNT, 40);
    sx_worker_row *rows = SX_NEW_ARRAY(&call->cx, sx_worker_row, SXD_WORKER_MAX);
    if (counters == NULL || names == NULL || rows == NULL) {
        fail(call);
        return;
    }
    sx_cache_stats stats;
    sx_cache_stats_of(service->cache, &stats);
    uint32_t n = own_counters(service, counters);
    n += cache_counters(&stats, counters + n);
    for (uint32_t i = 0; i < SX_METHOD_COUNT; i++) {
        const sx_method_row *row = sx_method_get((sx_method)i);
        if (row->class != SX_CLASS_INNER) {
            (void)snprintf(names[i], 40, "call_%s", row->name);
            counters[n++] = int_pair(names[i], service->base->metrics.by_method[i]);
        }
    }
    SX_ASSERT(n <= COUNTER_MAX);
    sx_status_result result = {
        .server = SX_SPAN_LITERAL("symplexd"),
        .version = SX_SPAN_LITERAL(SX_VERSION_TEXT),
        .build = sx_span_of(service->backend->build()),
        .boot_id = sx_span_of(service->base->boot_id),
        .pid = getpid(),
        .state = sx_span_of(service->base->phase == SXD_UP ? "ready" : "draining"),
        .uptime_ms = (int64_t)(sxd_base_now(service->base) - service->start_ms),
        .socket = sx_span_of(service->base->config.options.socket),
        .directory = sx_span_of(service->base->config.options.state),
        .store = sx_span_of(sx_cache_store_name(stats.store)),
        .store_error = sx_span_of(stats.error_text),
        .counters = {.items = counters, .count = n},
    };
    result.workers.items = rows;
    result.workers.count = worker_rows(service, rows);
    sxd_call_result(call, &result, NULL);
}

/* ---- cache ---- */
static bool is_artefact(const sx_cache_info *info)
{
    return info->kind >= SXD_KIND_ARTEFACT;
}

/* NULL: of an artefact, which says itself to which cache it belongs. */
static const char *kind_name(uint32_t kind)
{
    if (kind >= SXD_KIND_ARTEFACT) {
        return NULL;
    }
    return kind == SXD_KIND_MODULE ? "module" : kind == SXD_KIND_EGRAPH ? "egraph" : "text";
}

static sx_entry_row entry_row(const sx_cache_info *info)
{
    return (sx_entry_row){
        .key = info->key,
        .size = (int64_t)info->size,
        .stored = (int64_t)info->stored_size,
        .cost_us = (int64_t)info->cost_us,
        .created_ms = (int64_t)(info->created_us / 1000),
        .used_ms = (int64_t)(info->last_used_us / 1000),
        .hits = (int64_t)info->hits,
        .kind = sx_span_of(kind_name(info->kind)),
        .tier = sx_span_of(info->tier == SX_TIER_RAM ? "ram" : "disk"),
        .uid = is_artefact(info) ? info->ns & ~SXD_ARTEFACT_SPACE : info->ns,
        .pinned = info->pinned,
    };
}

typedef struct {
    sx_entry_row *rows;
    uint32_t *kinds;
    uint32_t count;
} row_list;

static bool on_entry(void *self, const sx_cache_info *info)
{
    row_list *list = self;
    list->kinds[list->count] = info->kind;
    list->rows[list->count++] = entry_row(info);
    return true;
}

static void name_kind(sxd_service *service, uint32_t kind, sx_entry_row *row)
{
    if (kind >= SXD_KIND_ARTEFACT) {
        uint32_t space = (uint32_t)row->uid | SXD_ARTEFACT_SPACE;
        row->kind = sx_span_of(sxd_artefact_cache_of(service, kind, space, &row->key));
    }
}

static void serve_cache_list(sxd_call *call)
{
    const sx_cache_list_args *args = call->request.args;
    int64_t limit = SX_HAS(args, cache_list_args, limit) ? args->limit : LIST_DEFAULT;
    if (limit < 1 || limit > LIST_MAX) {
        sxd_call_refuse(call, SX_INPUT, 0, "cache.list: limit %lld, allowed 1 to %d",
                        (long long)limit, LIST_MAX);
        return;
    }
    row_list list = {.rows = SX_NEW_ARRAY(&call->cx, sx_entry_row, (size_t)limit + 1),
                     .kinds = SX_NEW_ARRAY(&call->cx, uint32_t, (size_t)limit + 1)};
    if (list.rows == NULL || list.kinds == NULL ||
        sx_cache_list(&call->cx, sxd_service_of(call)->cache, (uint32_t)limit + 1, on_entry,
                      &list) != SX_OK) {
        fail(call);
        return;
    }
    for (uint32_t i = 0; i < list.count; i++) {
        name_kind(sxd_service_of(call), list.kinds[i], &list.rows[i]);
    }
    sx_cache_list_result result = {.more = list.count > limit};
    result.entries.items = list.rows;
    result.entries.count = result.more ? (uint32_t)limit : list.count;
    sxd_call_result(call, &result, NULL);
}

static void serve_cache_show(sxd_call *call)
{
    const sx_get_args *args = call->request.args;
    sx_cache_info info;
    sx_cache_part *parts;
    uint32_t part_count;
    sx_cache *cache = sxd_service_of(call)->cache;
    uint32_t space = call->principal.space;
    sx_code code = sx_cache_show(&call->cx, cache, space, &args->key, &info, &parts, &part_count);
    if (code == SX_ABSENT) {
        space |= SXD_ARTEFACT_SPACE;
        sx_ctx_reset_error(&call->cx);
        code = sx_cache_show(&call->cx, cache, space, &args->key, &info, &parts, &part_count);
    }
    if (code == SX_ABSENT) {
        char text[SX_KEY_TEXT_SIZE];
        sx_key_print(&args->key, text);
        sxd_call_refuse(call, SX_ABSENT, 0, "cache entry %s: none of user %u", text,
                        call->principal.space);
        return;
    }
    if (code != SX_OK) {
        fail(call);
        return;
    }
    sx_part_row rows[SX_CACHE_PART_MAX];
    SX_ASSERT(part_count <= SX_CACHE_PART_MAX);
    for (uint32_t i = 0; i < part_count; i++) {
        rows[i] = (sx_part_row){.name = parts[i].name, .value = parts[i].value};
    }
    sx_entry_row row = entry_row(&info);
    name_kind(sxd_service_of(call), info.kind, &row);
    sx_cache_show_result result = {0};
    result.entry.items = &row;
    result.entry.count = 1;
    result.parts.items = rows;
    result.parts.count = part_count;
    sxd_call_result(call, &result, NULL);
}

static void serve_cache_verify(sxd_call *call)
{
    sx_cache_verification state = {.deep = true};
    while (!state.finished) {
        if (sx_cache_verify(&call->cx, sxd_service_of(call)->cache, 0, &state) != SX_OK) {
            fail(call);
            return;
        }
    }
    sx_cache_verify_result result = {
        .checked = (int64_t)(state.ok + state.corrupt),
        .bad = (int64_t)state.corrupt,
        .orphans = (int64_t)state.orphans,
        .pages_bad = state.damaged_pages,
    };
    sxd_call_result(call, &result, NULL);
}

static void serve_cache_evict(sxd_call *call)
{
    const sx_cache_evict_args *args = call->request.args;
    sx_cache *cache = sxd_service_of(call)->cache;
    bool one = SX_HAS(args, cache_evict_args, key);
    bool all = SX_HAS(args, cache_evict_args, all) && args->all;
    bool kind = SX_HAS(args, cache_evict_args, cache);
    if (one + all + kind != 1) {
        sxd_call_refuse(call, SX_INPUT, 0, "cache.evict: either key, or cache, or all");
        return;
    }
    sx_cache_filter filter = {.by_ns = true, .by_key = one, .by_kind = kind, .pinned_too = one};
    uint64_t modules = 0;
    uint64_t artefacts = 0;
    sx_code code = kind ? sxd_artefact_kind_of(&call->cx, args->cache, &filter.kind) : SX_OK;
    if (one) {
        filter.key = args->key;
    }
    filter.ns = call->principal.space;
    if (code == SX_OK && !kind) {
        code = sx_cache_evict(&call->cx, cache, &filter, &modules);
    }
    filter.ns |= SXD_ARTEFACT_SPACE;
    code = code == SX_OK ? sx_cache_evict(&call->cx, cache, &filter, &artefacts) : code;
    if (code != SX_OK) {
        fail(call);
        return;
    }
    sx_cache_evict_result result = {.entries = (int64_t)(modules + artefacts)};
    sxd_call_result(call, &result, NULL);
}

/* What a principal has to be allowed to call this method. */
static uint32_t rights_for(sx_method method)
{
    bool manages = method == SX_METHOD_SHUTDOWN || method == SX_METHOD_CACHE_VERIFY ||
                   method == SX_METHOD_CACHE_EVICT;
    return manages ? SXD_MAY_USE | SXD_MAY_MANAGE : SXD_MAY_USE;
}

void sxd_call_dispatch(sxd_call *call)
{
    SX_ASSERT(call->self != NULL && call->request.args != NULL);
    if (!sxd_principal_may(&call->principal, rights_for(call->request.method))) {
        sxd_call_refuse(call, SX_DENIED, 0, "%s: user %u may not do this",
                        sx_method_get(call->request.method)->name, call->principal.space);
        return;
    }
    switch (call->request.method) {
    case SX_METHOD_HELLO: serve_hello(call); return;
    case SX_METHOD_PING: serve_ping(call); return;
    case SX_METHOD_READY: serve_ready(call); return;
    case SX_METHOD_COMPILE:
    case SX_METHOD_OPTIMIZE: sxd_compile(call); return;
    case SX_METHOD_GET: sxd_get(call); return;
    case SX_METHOD_WAIT: sxd_wait(call); return;
    case SX_METHOD_CANCEL: sxd_cancel(call); return;
    case SX_METHOD_JOBS: sxd_jobs(call); return;
    case SX_METHOD_SEARCH_START: sxd_search_start(call); return;
    case SX_METHOD_SEARCH_LIST: sxd_search_list(call); return;
    case SX_METHOD_SEARCH_SHOW: sxd_search_show(call); return;
    case SX_METHOD_SEARCH_WAIT: sxd_search_wait(call); return;
    case SX_METHOD_SEARCH_RESULT: sxd_search_result(call); return;
    case SX_METHOD_SEARCH_CANCEL: sxd_search_cancel(call); return;
    case SX_METHOD_SEARCH_EXTEND: sxd_search_extend(call); return;
    case SX_METHOD_SEARCH_REMOVE: sxd_search_remove(call); return;
    case SX_METHOD_CACHE_LIST: serve_cache_list(call); return;
    case SX_METHOD_CACHE_SHOW: serve_cache_show(call); return;
    case SX_METHOD_CACHE_VERIFY: serve_cache_verify(call); return;
    case SX_METHOD_CACHE_EVICT: serve_cache_evict(call); return;
    case SX_METHOD_ARTEFACT_GET: sxd_artefact_get(call); return;
    case SX_METHOD_ARTEFACT_PUT: sxd_artefact_put(call); return;
    case SX_METHOD_ARTEFACT_RELEASE: sxd_artefact_release(call); return;
    case SX_METHOD_ARTEFACT_CACHES: sxd_artefact_caches(call); return;
    case SX_METHOD_SESSION_OPEN: sxd_gang_open(call); return;
    case SX_METHOD_SESSION_PIN: sxd_gang_pin(call); return;
    case SX_METHOD_SESSION_CHECK: sxd_gang_check(call); return;
    case SX_METHOD_SESSION_CLOSE: sxd_gang_leave(call); return;
    case SX_METHOD_SESSION_LIST: sxd_gang_list(call); return;
    case SX_METHOD_SESSION_SHOW: sxd_gang_show(call); return;
    case SX_METHOD_STATUS: serve_status(call); return;
    case SX_METHOD_SHUTDOWN: serve_shutdown(call); return;
    case SX_METHOD_WORK:
    case SX_METHOD_STEP:
    case SX_METHOD_PROGRESS:
    case SX_METHOD_COUNT: break;
    }
    sxd_call_refuse(call, SX_UNIMPLEMENTED, 0, "request: method '%s' is not for clients",
                    sx_method_get(call->request.method)->name);
}
