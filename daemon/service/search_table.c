/* search_table.c - searches as they are kept: made from a stored row, found, freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/search.h"

const char *sxd_search_state_name(uint32_t state)
{
    switch (state) {
    case SXD_SEARCH_RUNNING: return "running";
    case SXD_SEARCH_DONE: return "done";
    case SXD_SEARCH_SPENT: return "spent";
    case SXD_SEARCH_CANCELLED: return "cancelled";
    default: return "failed";
    }
}

/* Takes request and names out of the stored row; false: it cannot be read. */
static bool read_request(sxd_search *search)
{
    sx_rpc_request request;
    if (sx_rpc_decode_request(&search->cx, search->row.request, &request) != SX_OK ||
        request.method != SX_METHOD_COMPILE) {
        return false;
    }
    search->request = *(const sx_compile_args *)request.args;
    (void)snprintf(search->objective, sizeof(search->objective), "time");
    for (uint32_t i = 0; i < search->request.options.count; i++) {
        const sx_pair *pair = &search->request.options.items[i];
        if (sx_span_is(pair->name, "objective") && pair->kind == SX_VALUE_TEXT &&
            pair->text.len > 0) {
            (void)snprintf(search->objective, sizeof(search->objective), "%.*s",
                           (int)sx_min_i64((int64_t)pair->text.len, SXD_STAGE_TEXT_MAX - 1),
                           (const char *)pair->text.ptr);
        }
    }
    sx_span target = SX_HAS(&search->request, compile_args, target) ? search->request.target
                                                                    : SX_SPAN_LITERAL("native");
    (void)snprintf(search->target, sizeof(search->target), "%.*s",
                   (int)sx_min_i64((int64_t)target.len, SXD_STAGE_TEXT_MAX - 1),
                   (const char *)target.ptr);
    search->target[sx_utf8_prefix(sx_span_of(search->target))] = '\0';
    search->objective[sx_utf8_prefix(sx_span_of(search->objective))] = '\0';
    return true;
}

sxd_search *sxd_search_new(sxd_service *service, const sx_search_record *row,
                           const sx_search_lane_record *lane, uint32_t lane_count)
{
    sxd_search *search = calloc(1, sizeof(*search));
    uint8_t *request = malloc(row->request.len + 1);
    sxd_search_lane *lanes = calloc(SX_SEARCH_LANES_MAX, sizeof(*lanes));
    if (search == NULL || request == NULL || lanes == NULL) {
        free(search);
        free(request);
        free(lanes);
        return NULL;
    }
    if (row->request.len > 0) {
        memcpy(request, row->request.ptr, row->request.len);
    }
    search->service = service;
    search->waiters = (sxd_waiters){.base = service->base, .class = &sxd_search_waited};
    search->row = *row;
    search->row.request.ptr = request;
    search->lane = lanes;
    search->lane_count = lane_count;
    search->seq = 1;
    sx_ctx_init(&search->cx, (size_t)1 << 26);
    for (uint32_t i = 0; i < lane_count; i++) {
        lanes[i] = (sxd_search_lane){.search = search, .row = lane[i]};
        lanes[i].phase =
            lane[i].state == SXD_SEARCH_LANE_OPEN ? SXD_SEARCH_LANE_READY : SXD_SEARCH_LANE_ENDED;
        sxd_task_init(&lanes[i].task, service->work, &sxd_step_class);
    }
    bool readable = read_request(search);
    if (!readable && search->cx.error.code == SX_NOMEM) { /* that says nothing about the search */
        sx_ctx_fini(&search->cx);
        free(search);
        free(request);
        free(lanes);
        return NULL;
    }
    if (!readable && search->row.state == SXD_SEARCH_RUNNING) {
        search->row.state = SXD_SEARCH_FAILED;
        (void)snprintf(search->row.why, sizeof(search->row.why), "its request cannot be read");
    }
    DL_APPEND(service->searches, search);
    service->search_count++;
    return search;
}

void sxd_search_free(sxd_search *search)
{
    sxd_service *service = search->service;
    SX_ASSERT(search->waiters.first == NULL && search->active == 0);
    sxd_op *op;
    sxd_op *next;
    DL_FOREACH_SAFE(service->op_retries, op, next)
    {
        if (op->search == search) {
            sxd_op_drop(op);
        }
    }
    for (uint32_t i = 0; i < search->lane_count; i++) {
        sxd_search_lane *lane = &search->lane[i];
        SX_ASSERT(lane->task.state != SXD_TASK_RUNNING);
        service->step_count -= sxd_search_lane_taken(lane, lane->phase) ? 1 : 0;
        sxd_task_drop(&lane->task);
    }
    DL_DELETE(service->searches, search);
    service->search_count--;
    sx_ctx_fini(&search->cx);
    free(search->lane);
    free((void *)(uintptr_t)search->row.request.ptr);
    free(search);
}

sxd_search *sxd_search_find(sxd_service *service, int64_t id)
{
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        if (search->row.id == id) {
            return search;
        }
    }
    return NULL;
}

uint64_t sxd_search_bytes(const sxd_search *search)
{
    uint64_t bytes = search->row.request.len;
    for (uint32_t i = 0; i < search->lane_count; i++) {
        bytes += search->lane[i].row.state_bytes + search->lane[i].row.best_bytes;
    }
    return bytes;
}

uint64_t sxd_search_used_us(const sxd_search *search)
{
    uint64_t running = search->active > 0 ? (uv_hrtime() - search->mark_ns) / 1000 : 0;
    return search->row.used_us + running;
}

const sxd_search_lane *sxd_search_best(const sxd_search *search)
{
    const sxd_search_lane *best = NULL;
    for (uint32_t i = 0; i < search->lane_count; i++) {
        const sxd_search_lane *lane = &search->lane[i];
        if (lane->row.best_bytes > 0 &&
            (best == NULL || lane->row.objective < best->row.objective)) {
            best = lane;
        }
    }
    return best;
}
