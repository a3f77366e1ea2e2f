/* search_call.c - methods that change searches, and the result. Each is answered once the store has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/service/search.h"

#define BUDGET_MS_MAX (INT64_C(30) * 86400 * 1000)
#define RETRY_MS 1000

static void refuse_memory(sxd_call *call)
{
    sxd_call_refuse(call, SX_NOMEM, RETRY_MS, "search: no memory");
}

/* The end of an operation that failed: the call has its answer. */
static bool failed(sxd_op *op)
{
    if (op->code == SX_OK) {
        return false;
    }
    if (op->call != NULL) {
        sx_error error = op->cx.error;
        error.code = op->code;
        sxd_call_fail(op->call, &error, 0);
        op->call = NULL;
    }
    return true;
}

static void answer_changed(sxd_op *op, int64_t id, const char *state)
{
    if (op->call != NULL) {
        sx_search_changed_result result = {.search = id, .state = sx_span_of(state)};
        sxd_call_result(op->call, &result, NULL);
    }
}

static bool check_budget(sxd_call *call, int64_t budget_ms)
{
    if (budget_ms >= 1 && budget_ms <= BUDGET_MS_MAX) {
        return true;
    }
    sxd_call_refuse(call, SX_INPUT, 0, "search: budget_ms %lld, allowed 1 to %lld",
                    (long long)budget_ms, (long long)BUDGET_MS_MAX);
    return false;
}

/* ---- start ---- */
/* "native" means this machine: the request is stored under the name that it had here. */
static void name_target(sxd_op *op)
{
    for (uint32_t i = 0; i < op->key.part_count; i++) {
        if (sx_span_is(op->key.part[i].name, "target") && op->key.part[i].value.len > 0) {
            SX_PUT(&op->request, compile_args, target, op->key.part[i].value);
        }
    }
}

/* The lanes and the key of the request, and its row; on a pool thread. */
static void run_start(sxd_op *op, sx_search_db *db)
{
    const sxd_backend *backend = op->service->backend;
    sx_code code = backend->key(&op->cx, &op->request, &op->key);
    code =
        code == SX_OK ? backend->lanes(&op->cx, &op->request, &op->names, &op->lane_count) : code;
    if (code == SX_OK && (op->lane_count < 1 || op->lane_count > SX_SEARCH_LANES_MAX)) {
        code = SX_FAIL(&op->cx, SX_LIMIT, "search: %u lanes, at most %d", op->lane_count,
                       SX_SEARCH_LANES_MAX);
    }
    if (code == SX_OK) {
        name_target(op);
        sx_rpc_encode_request(&op->frame, 0, SX_METHOD_COMPILE, &op->request, NULL);
        code = sx_buf_check(&op->cx, &op->frame, "search");
    }
    if (code == SX_OK && op->frame.len > SX_RPC_REQUEST_BYTES_MAX) {
        code = SX_FAIL(&op->cx, SX_LIMIT, "search: request of %zu bytes, at most %zu",
                       op->frame.len, SX_RPC_REQUEST_BYTES_MAX);
    }
    sx_search_lane_record *lane =
        code == SX_OK ? SX_NEW_ARRAY(&op->cx, sx_search_lane_record, SX_SEARCH_LANES_MAX) : NULL;
    if (code == SX_OK && lane == NULL) {
        code = op->cx.error.code;
    }
    for (uint32_t i = 0; code == SX_OK && i < op->lane_count; i++) {
        lane[i] = (sx_search_lane_record){.lane = i, .state = SXD_SEARCH_LANE_OPEN};
        (void)snprintf(lane[i].name, sizeof(lane[i].name), "%.*s",
                       (int)sx_min_i64((int64_t)op->names[i].len, SX_SEARCH_NAME_MAX - 1),
                       (const char *)op->names[i].ptr);
    }
    op->lanes = lane;
    op->row.key = op->key.key;
    op->row.request = sx_buf_span(&op->frame);
    op->code = code == SX_OK ? sx_search_db_add(&op->cx, db, &op->row, lane, op->lane_count) : code;
}

static void on_start(sxd_op *op)
{
    sxd_service *service = op->service;
    if (failed(op)) {
        return;
    }
    sxd_search *search = sxd_search_new(service, &op->row, op->lanes, op->lane_count);
    if (search == NULL) { /* it is stored, and runs from the next start of the daemon on */
        if (op->call != NULL) {
            refuse_memory(op->call);
        }
        return;
    }
    service->base->metrics.searches++;
    sxd_log(SXD_INFO, "search", "search=%lld state=running lanes=%u budget_ms=%llu uid=%u",
            (long long)search->row.id, search->lane_count,
            (unsigned long long)(search->row.budget_us / 1000), search->row.uid);
    if (op->call != NULL) {
        sx_search_start_result result = {
            .search = search->row.id, .key = search->row.key, .lanes = search->lane_count};
        sxd_call_result(op->call, &result, NULL);
    }
    sxd_work_run(service->work);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* May another search be kept? */
static bool admit(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    int64_t most = service->base->config.options.search_max;
    if (service->search_db == NULL) {
        sxd_call_refuse(call, service->backend->lanes == NULL ? SX_UNIMPLEMENTED : SX_SYSTEM, 0,
                        "searches: %s", service->search_error);
        return false;
    }
    if (service->base->phase != SXD_UP) {
        sxd_call_refuse(call, SX_BUSY, RETRY_MS, "search: the daemon is stopping");
        return false;
    }
    if (service->search_count + service->search_starting >= (uint64_t)most) {
        sxd_call_refuse(call, SX_LIMIT, 0, "searches: %u kept, at most %lld (search_max)",
                        service->search_count + service->search_starting, (long long)most);
        return false;
    }
    return true;
}

static void on_start_counted(sxd_op *op)
{
    SX_ASSERT(op->service->search_starting > 0);
    op->service->search_starting--;
    on_start(op);
}

void sxd_search_start(sxd_call *call)
{
    const sx_search_start_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    if (!check_budget(call, args->budget_ms) || !admit(call)) {
        return;
    }
    sxd_op *op = sxd_op_new(NULL, NULL);
    if (op == NULL) {
        refuse_memory(call);
        return;
    }
    op->request = (sx_compile_args){.ir = args->ir};
    if (SX_HAS(args, search_start_args, target)) {
        SX_PUT(&op->request, compile_args, target, args->target);
    }
    if (SX_HAS(args, search_start_args, dims)) {
        SX_PUT(&op->request, compile_args, dims, args->dims);
    }
    if (SX_HAS(args, search_start_args, options)) {
        SX_PUT(&op->request, compile_args, options, args->options);
    }
    op->row = (sx_search_record){
        .uid = call->principal.space,
        .state = SXD_SEARCH_RUNNING,
        .created_ms = now_ms(),
        .budget_us = (uint64_t)args->budget_ms * 1000,
        .fuel = (uint64_t)service->base->config.options.search_fuel,
    };
    (void)snprintf(op->row.build, sizeof(op->row.build), "%s", service->backend->build());
    op->call = call;
    op->run = run_start;
    op->done = on_start_counted;
    service->search_starting++;
    sxd_op_put(service, op);
}

/* ---- cancel, extend, remove ---- */
static void run_put(sxd_op *op, sx_search_db *db)
{
    op->code = sx_search_db_put(&op->cx, db, &op->row);
}

static void on_put(sxd_op *op)
{
    if (!failed(op)) {
        answer_changed(op, op->row.id, sxd_search_state_name(op->row.state));
    }
}

/* Answers the call once the search is stored as it is now. */
static void store_then_answer(sxd_search *search, sxd_call *call)
{
    sxd_op *op = sxd_op_new(search, NULL);
    if (op == NULL) {
        refuse_memory(call);
        return;
    }
    op->call = call;
    op->run = run_put;
    op->done = on_put;
    sxd_op_put(search->service, op);
}

void sxd_search_cancel(sxd_call *call)
{
    const sx_search_args *args = call->request.args;
    sxd_search *search = sxd_search_for(call, args->search);
    if (search == NULL) {
        return;
    }
    if (search->row.state == SXD_SEARCH_RUNNING) {
        sxd_search_stop(search, SXD_SEARCH_CANCELLED, "");
    }
    store_then_answer(search, call);
}

void sxd_search_extend(sxd_call *call)
{
    const sx_search_extend_args *args = call->request.args;
    sxd_search *search =
        check_budget(call, args->budget_ms) ? sxd_search_for(call, args->search) : NULL;
    if (search == NULL) {
        return;
    }
    uint32_t state = search->row.state;
    uint64_t added = (uint64_t)args->budget_ms * 1000;
    uint64_t most = (uint64_t)BUDGET_MS_MAX * 1000;
    if (sxd_service_of(call)->base->phase != SXD_UP) {
        sxd_call_refuse(call, SX_BUSY, RETRY_MS, "search: the daemon is stopping");
        return;
    }
    if (state == SXD_SEARCH_DONE || state == SXD_SEARCH_FAILED) {
        sxd_call_refuse(call, SX_INPUT, 0, "search %lld: it is %s: there is nothing left to do",
                        (long long)search->row.id, sxd_search_state_name(state));
        return;
    }
    if (added > most || search->row.budget_us > most - added) {
        sxd_call_refuse(call, SX_INPUT, 0, "search %lld: budget of more than %lld ms",
                        (long long)search->row.id, (long long)BUDGET_MS_MAX);
        return;
    }
    search->row.budget_us += added;
    if (state != SXD_SEARCH_RUNNING) {
        sxd_search_begin(search);
    }
    store_then_answer(search, call);
    sxd_search_changed(search);
    sxd_work_run(search->service->work);
}

static void run_remove(sxd_op *op, sx_search_db *db)
{
    op->code = sx_search_db_remove(&op->cx, db, op->row.id);
}

static void on_remove(sxd_op *op)
{
    sxd_search *search = op->search;
    if (failed(op)) {
        search->removing = false;
        return;
    }
    SX_ASSERT(search->ops == 0); /* nothing was put for it since `removing` */
    sxd_log(SXD_INFO, "search", "search=%lld state=removed", (long long)op->row.id);
    answer_changed(op, op->row.id, "removed");
    sxd_search_free(search);
}

void sxd_search_remove(sxd_call *call)
{
    const sx_search_args *args = call->request.args;
    sxd_search *search = sxd_search_for(call, args->search);
    if (search == NULL) {
        return;
    }
    if (search->row.state == SXD_SEARCH_RUNNING) {
        sxd_call_refuse(call, SX_INPUT, 0, "search %lld: it is running: cancel it first",
                        (long long)search->row.id);
        return;
    }
    sxd_op *op = sxd_op_new(search, NULL);
    if (op == NULL) {
        refuse_memory(call);
        return;
    }
    search->removing = true;
    op->call = call;
    op->run = run_remove;
    op->done = on_remove;
    sxd_op_put(search->service, op);
}

/* ---- result ---- */
/* The front of what all lanes found. A module that cannot be merged, of another build say, is left out, unless
 * it is the best. */
static sx_code merge_all(sxd_op *op, sx_search_db *db)
{
    for (uint32_t i = 0; i < op->lane_count; i++) {
        sx_blob *blob = NULL;
        if (op->lanes[i].best_bytes == 0 || i == op->lane_row.lane) {
            continue;
        }
        sx_ctx cx;
        sx_buf out;
        sx_ctx_init(&cx, (size_t)1 << 30);
        sx_buf_init(&out, SX_CACHE_BLOB_MAX);
        sx_code code = sx_search_db_load(&cx, db, op->row.id, &op->lanes[i], SX_SEARCH_BEST, &blob);
        if (code == SX_OK && blob != NULL) {
            code = op->service->backend->merge(&cx, &op->request, sx_blob_span(op->best),
                                               sx_blob_span(blob), &out);
        }
        sx_blob *merged =
            code == SX_OK && out.code == SX_OK && out.len > 0 ? sx_blob_new(out.len) : NULL;
        if (merged != NULL) {
            memcpy(sx_blob_bytes(merged), out.ptr, out.len);
            sx_blob_free(op->best);
            op->best = merged;
        }
        sx_buf_fini(&out);
        sx_ctx_fini(&cx);
        sx_blob_free(blob);
    }
    return SX_OK;
}

static void run_result(sxd_op *op, sx_search_db *db)
{
    op->code = sx_search_db_lanes(&op->cx, db, op->row.id, &op->lanes, &op->lane_count);
    if (op->code != SX_OK) {
        return;
    }
    const sx_search_lane_record *best = NULL;
    for (uint32_t i = 0; i < op->lane_count; i++) {
        const sx_search_lane_record *lane = &op->lanes[i];
        best = lane->best_bytes > 0 && (best == NULL || lane->objective < best->objective) ? lane
                                                                                           : best;
    }
    if (best == NULL) {
        op->code =
            SX_FAIL(&op->cx, SX_ABSENT, "search %lld: no program found", (long long)op->row.id);
        return;
    }
    op->lane_row = *best;
    op->code = sx_search_db_load(&op->cx, db, op->row.id, best, SX_SEARCH_BEST, &op->best);
    if (op->code == SX_OK && op->front && op->service->backend->merge != NULL) {
        op->code = merge_all(op, db);
    }
}

static void on_result(sxd_op *op)
{
    if (failed(op) || op->call == NULL) {
        return;
    }
    sx_search_result_result result = {
        .search = op->row.id,
        .state = sx_span_of(sxd_search_state_name(op->row.state)),
        .lane = op->lane_row.lane,
        .objective = op->lane_row.objective,
        .key = op->row.key,
        .module = sx_blob_span(op->best),
    };
    sxd_call_result(op->call, &result, sx_blob_share(op->best));
}

void sxd_search_result(sxd_call *call)
{
    const sx_search_args *args = call->request.args;
    sxd_search *search = sxd_search_for(call, args->search);
    if (search == NULL) {
        return;
    }
    if (sxd_search_best(search) == NULL) {
        sxd_call_refuse(call, SX_ABSENT, 0, "search %lld: %s, no program found %s%s",
                        (long long)search->row.id, sxd_search_state_name(search->row.state),
                        search->row.state == SXD_SEARCH_RUNNING ? "yet" : ": ", search->row.why);
        return;
    }
    sxd_op *op = sxd_op_new(search, NULL);
    if (op == NULL) {
        refuse_memory(call);
        return;
    }
    op->front = strcmp(search->objective, "pareto") == 0;
    op->call = call;
    op->run = run_result;
    op->done = on_result;
    sxd_op_put(search->service, op);
}
