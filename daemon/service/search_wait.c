/* search_wait.c - what searches tell: rows of list and show, and calls that are held until a search gets on. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/search.h"

/* ---- rows ---- */
static int64_t to_i64(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static void put_best(const sxd_search *search, sx_search_row *row)
{
    const sxd_search_lane *best = sxd_search_best(search);
    if (best == NULL) {
        return;
    }
    SX_PUT(row, search_row, best, best->row.objective);
    SX_PUT(row, search_row, best_lane, best->row.lane);
    if (isfinite(best->row.bound)) {
        SX_PUT(row, search_row, bound, best->row.bound);
    }
    if (isfinite(best->row.time_ns)) {
        SX_PUT(row, search_row, time_ns, best->row.time_ns);
    }
    SX_PUT(row, search_row, peak_bytes, to_i64(best->row.peak_bytes));
}

static sx_search_row row_of(const sxd_search *search)
{
    sx_search_row row = {
        .search = search->row.id,
        .state = sx_span_of(sxd_search_state_name(search->row.state)),
        .objective = sx_span_of(search->objective),
        .target = sx_span_of(search->target),
        .key = search->row.key,
        .budget_ms = to_i64(search->row.budget_us / 1000),
        .used_ms = to_i64(sxd_search_used_us(search) / 1000),
        .lanes = search->lane_count,
        .bytes = to_i64(sxd_search_bytes(search)),
        .uid = search->row.uid,
        .created_ms = to_i64(search->row.created_ms),
    };
    uint64_t worked_us = 0;
    for (uint32_t i = 0; i < search->lane_count; i++) {
        const sxd_search_lane *lane = &search->lane[i];
        worked_us += lane->row.worked_us;
        row.lanes_ended += lane->phase == SXD_SEARCH_LANE_ENDED ? 1 : 0;
        row.lanes_active += lane->task.worker != NULL || lane->who[0] != '\0' ? 1 : 0;
        row.steps += lane->row.step;
    }
    row.worked_ms = to_i64(worked_us / 1000);
    put_best(search, &row);
    if (search->row.why[0] != '\0') {
        SX_PUT(&row, search_row, why, sx_span_of(search->row.why));
    }
    return row;
}

static const char *lane_state(const sxd_search_lane *lane)
{
    switch (lane->phase) {
    case SXD_SEARCH_LANE_ACTIVE: return "active";
    case SXD_SEARCH_LANE_AWAY: return lane->who[0] != '\0' ? "active" : "offered";
    case SXD_SEARCH_LANE_STORING: return "storing";
    case SXD_SEARCH_LANE_ENDED: return lane->row.state == SXD_SEARCH_LANE_DONE ? "done" : "out";
    case SXD_SEARCH_LANE_READY:
    case SXD_SEARCH_LANE_LOADING:
    case SXD_SEARCH_LANE_LOADED:
    case SXD_SEARCH_LANE_PHASE_COUNT: break;
    }
    return "ready";
}

static sx_lane_row lane_row_of(const sxd_search_lane *lane)
{
    const sx_search_lane_record *from = &lane->row;
    sx_lane_row row = {
        .lane = from->lane,
        .name = sx_span_of(from->name),
        .state = sx_span_of(lane_state(lane)),
        .steps = from->step,
        .restarts = from->restarts,
        .nodes = to_i64(from->nodes),
        .fuel = to_i64(from->fuel),
        .worked_ms = to_i64(from->worked_us / 1000),
        .bytes = to_i64(from->state_bytes + from->best_bytes),
        .worker = lane->task.worker != NULL ? lane->task.worker->pid : 0,
    };
    if (from->best_bytes > 0) {
        SX_PUT(&row, lane_row, objective, from->objective);
        SX_PUT(&row, lane_row, time_ns, from->time_ns);
        SX_PUT(&row, lane_row, peak_bytes, to_i64(from->peak_bytes));
    }
    if (from->step > 0 && isfinite(from->bound)) {
        SX_PUT(&row, lane_row, bound, from->bound);
    }
    if (lane->phase == SXD_SEARCH_LANE_ACTIVE && lane->stage[0] != '\0') {
        SX_PUT(&row, lane_row, stage, sx_span_of(lane->stage));
    }
    if (lane->who[0] != '\0') {
        SX_PUT(&row, lane_row, where, sx_span_of(lane->who));
    }
    const char *why = from->state == SXD_SEARCH_LANE_DONE ? from->stop : from->why;
    if (why[0] != '\0') {
        SX_PUT(&row, lane_row, why, sx_span_of(why));
    }
    return row;
}

static bool may_see(const sxd_call *call, const sxd_search *search)
{
    return sxd_principal_sees(&call->principal, search->row.uid) && !search->removing;
}

sxd_search *sxd_search_for(sxd_call *call, int64_t id)
{
    sxd_service *service = sxd_service_of(call);
    if (service->search_db == NULL) {
        sxd_call_refuse(call, service->backend->lanes == NULL ? SX_UNIMPLEMENTED : SX_SYSTEM, 0,
                        "searches: %s", service->search_error);
        return NULL;
    }
    sxd_search *search = sxd_search_find(service, id);
    if (search == NULL || !may_see(call, search)) {
        sxd_call_refuse(call, SX_ABSENT, 0, "search %lld: not known", (long long)id);
        return NULL;
    }
    return search;
}

void sxd_search_list(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    sx_search_row *rows = SX_NEW_ARRAY(&call->cx, sx_search_row, service->search_count + 1);
    if (rows == NULL) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    sx_search_list_result result = {0};
    result.searches.items = rows;
    const sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        if (may_see(call, search)) {
            rows[result.searches.count++] = row_of(search);
        }
    }
    sxd_call_result(call, &result, NULL);
}

void sxd_search_show(sxd_call *call)
{
    const sx_search_args *args = call->request.args;
    const sxd_search *search = sxd_search_for(call, args->search);
    if (search == NULL) {
        return;
    }
    sx_search_row row = row_of(search);
    sx_lane_row lanes[SX_SEARCH_LANES_MAX];
    for (uint32_t i = 0; i < search->lane_count; i++) {
        lanes[i] = lane_row_of(&search->lane[i]);
    }
    sx_search_show_result result = {0};
    result.search.items = &row;
    result.search.count = 1;
    result.lanes.items = lanes;
    result.lanes.count = search->lane_count;
    sxd_call_result(call, &result, NULL);
}

/* ---- held calls ---- */
static void answer(const sxd_search *search, sxd_call *call)
{
    sx_search_row row = row_of(search);
    sx_search_wait_result result = {.seq = search->seq};
    result.search.items = &row;
    result.search.count = 1;
    sxd_call_result(call, &result, NULL);
}

void sxd_search_changed(sxd_search *search)
{
    search->seq++;
    while (search->waiters.first != NULL) {
        sxd_waiter *waiter = search->waiters.first;
        sxd_wait_end(waiter);
        answer(search, sxd_call_of(waiter));
    }
}

static void on_late(sxd_waiter *waiter)
{
    sxd_call *call = sxd_call_of(waiter);
    answer(sxd_ask_of(call)->search, call);
}

/* A search goes on without anybody who waits for it. */
static void on_left(sxd_waiter *waiter)
{
    SX_ASSERT(waiter->of == NULL);
}

const sxd_wait_class sxd_search_waited = {.late = on_late, .left = on_left};

void sxd_search_wait(sxd_call *call)
{
    const sx_search_wait_args *args = call->request.args;
    sxd_search *search = sxd_search_for(call, args->search);
    if (search == NULL) {
        return;
    }
    sxd_service *service = sxd_service_of(call);
    int64_t most = service->base->config.options.wait_ms;
    int64_t wait = SX_HAS(args, search_wait_args, wait_ms) ? args->wait_ms : most;
    wait = sx_min_i64(sx_max_i64(wait, 0), most);
    bool seen = SX_HAS(args, search_wait_args, seq) && args->seq == search->seq;
    if (!seen || wait == 0 || search->row.state != SXD_SEARCH_RUNNING) {
        answer(search, call);
        return;
    }
    uint64_t until = sxd_base_now(service->base) + (uint64_t)wait;
    until = call->deadline_ms < until ? call->deadline_ms : until;
    sxd_ask *ask = sxd_ask_of(call);
    ask->search = search;
    sxd_wait_begin(&search->waiters, &ask->waiter, until);
}
