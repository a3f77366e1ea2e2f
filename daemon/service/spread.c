/* spread.c - the loop's half of sharing steps with other daemons: what is offered, what is taken, what comes back.
 *
 * A daemon offers lanes that wait while its own workers for searches are busy, no more than others have free
 * places; and it takes steps of others while none of its own lanes waits. Its own store stays the truth: what
 * does not come back in time is done here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/search.h"

static void order(sxd_service *service, int kind, const char *task, SX_TAKE sx_buf *body,
                  uint64_t worked_us)
{
    sxd_parcel *parcel = service->exchange != NULL ? sxd_parcel_new(kind, task) : NULL;
    if (parcel == NULL) { /* the lease lapses, the offer is taken back in time */
        if (body != NULL) {
            sx_buf_fini(body);
        }
        return;
    }
    if (body != NULL) {
        parcel->body = *body;
        sx_buf_init(body, 0);
    }
    parcel->worked_us = worked_us;
    sxd_exchange_order(service->exchange, parcel);
}

/* ---- our lanes ---- */
void sxd_spread_put(sxd_search_lane *lane, sx_buf *frame)
{
    sxd_service *service = lane->search->service;
    if (!service->exchange_up || frame->len <= SX_SP_HEAD_BYTES) {
        sx_buf_fini(frame);
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
        return;
    }
    (void)snprintf(lane->task_name, sizeof(lane->task_name), "%s/%llx/%x/%x",
                   service->base->boot_id, (unsigned long long)lane->search->row.id, lane->row.lane,
                   lane->row.step + 1);
    frame->len -= SX_SP_HEAD_BYTES; /* the message alone */
    memmove(frame->ptr, frame->ptr + SX_SP_HEAD_BYTES, frame->len);
    lane->who[0] = '\0';
    lane->away_ms = sxd_base_now(service->base);
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_AWAY);
    order(service, SXD_ORDER_OFFER, lane->task_name, frame, 0);
}

void sxd_spread_withdraw(sxd_search_lane *lane)
{
    order(lane->search->service, SXD_ORDER_WITHDRAW, lane->task_name, NULL, 0);
}

/* The lane that is away under this name; NULL: none. */
static sxd_search_lane *find_away(sxd_service *service, const char *task)
{
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        for (uint32_t i = 0; i < search->lane_count; i++) {
            sxd_search_lane *lane = &search->lane[i];
            if (lane->phase == SXD_SEARCH_LANE_AWAY && strcmp(lane->task_name, task) == 0) {
                return lane;
            }
        }
    }
    return NULL;
}

static void take_result(sxd_service *service, const sxd_parcel *event)
{
    sxd_search_lane *lane = find_away(service, event->name);
    if (lane == NULL) {
        return; /* done elsewhere meanwhile, or withdrawn */
    }
    sx_ctx cx;
    sx_rpc_response response;
    sx_ctx_init(&cx, 1 << 20);
    bool fine = event->body.len > 0 &&
                sx_rpc_decode_response(&cx, sx_buf_span(&event->body), SX_METHOD_STEP, &response) ==
                    SX_OK &&
                !response.failed;
    sxd_log(SXD_DEBUG, "search-spread", "task=%s back=1 from=%s fine=%d", event->name,
            lane->who[0] != '\0' ? lane->who : "unknown", fine);
    sxd_step_returned(lane, fine ? response.result : NULL, event->worked_us);
    sx_ctx_fini(&cx);
}

/* What nobody holds for too long is done here; counts what waits for a taker. */
static uint32_t look_after(sxd_service *service)
{
    uint64_t now = sxd_base_now(service->base);
    uint64_t patience = (uint64_t)service->base->config.options.search_lease_ms * 2;
    uint32_t waiting = 0;
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        for (uint32_t i = 0; i < search->lane_count; i++) {
            sxd_search_lane *lane = &search->lane[i];
            bool lonely = lane->phase == SXD_SEARCH_LANE_AWAY && lane->who[0] == '\0';
            if (lonely && now - lane->away_ms > patience) {
                sxd_search_lane_let_go(lane);
            } else {
                waiting +=
                    lonely || (lane->phase == SXD_SEARCH_LANE_LOADING && lane->offering) ? 1 : 0;
            }
        }
    }
    for (uint32_t i = 0; i < service->guests->lane_count; i++) {
        sxd_search_lane *lane = &service->guests->lane[i];
        if (lane->phase == SXD_SEARCH_LANE_LOADED && now - lane->away_ms > patience) {
            sxd_search_lane_let_go(lane); /* compilations have all workers: others may be faster */
            sxd_spread_drop(lane);
        }
    }
    return waiting;
}

/* With a worker free here, a lane that nobody else holds yet comes back. True: one did. */
static bool take_back(sxd_service *service)
{
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        for (uint32_t i = 0; i < search->lane_count; i++) {
            sxd_search_lane *lane = &search->lane[i];
            if (lane->phase == SXD_SEARCH_LANE_AWAY && lane->who[0] == '\0') {
                sxd_search_lane_let_go(lane);
                return true;
            }
        }
    }
    return false;
}

void sxd_spread_run(sxd_service *service)
{
    if (service->exchange == NULL) {
        return;
    }
    if (sxd_search_room(service) > 0 && sxd_search_next(service) == NULL && take_back(service)) {
        sxd_work_run(service->work); /* and here again, with one lane less away */
        return;
    }
    uint32_t waiting = look_after(service);
    sxd_search_lane *lane = sxd_search_next(service);
    /* its own lanes come first: while one waits nothing is taken */
    sxd_exchange_want(service->exchange, lane == NULL ? sxd_search_room(service) : 0);
    while (service->exchange_up && waiting < service->places_wanted && lane != NULL &&
           !lane->home) {
        sxd_search_offer(lane);
        if (lane->phase != SXD_SEARCH_LANE_LOADING) {
            return;
        }
        waiting++;
        lane = sxd_search_next(service);
    }
}

/* ---- steps of others ---- */
static sxd_search_lane *find_guest(sxd_service *service, const char *task)
{
    for (uint32_t i = 0; i < service->guests->lane_count; i++) {
        sxd_search_lane *lane = &service->guests->lane[i];
        if (lane->phase != SXD_SEARCH_LANE_READY && strcmp(lane->task_name, task) == 0) {
            return lane;
        }
    }
    return NULL;
}

static void take_guest(sxd_service *service, sxd_parcel *event)
{
    sxd_search_lane *lane = NULL;
    for (uint32_t i = 0; i < service->guests->lane_count && lane == NULL; i++) {
        sxd_search_lane *place = &service->guests->lane[i];
        lane = place->phase == SXD_SEARCH_LANE_READY ? place : NULL;
    }
    if (lane == NULL || service->base->phase != SXD_UP) {
        order(service, SXD_ORDER_DROP, event->name, NULL, 0);
        return;
    }
    (void)snprintf(lane->task_name, sizeof(lane->task_name), "%s", event->name);
    lane->task.ticket = event->ticket;
    lane->away_ms = sxd_base_now(service->base);
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_LOADING);
    lane->task.frame = event->body;
    sx_buf_init(&event->body, 0);
    sxd_task_put(&lane->task);
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_LOADED);
    sxd_log(SXD_DEBUG, "search-spread", "task=%s taken=1", lane->task_name);
    sxd_work_run(service->work);
}

void sxd_spread_drop(sxd_search_lane *lane)
{
    order(lane->search->service, SXD_ORDER_DROP, lane->task_name, NULL, 0);
}

void sxd_spread_answer(sxd_search_lane *lane, sx_span response, uint64_t worked_us)
{
    sxd_service *service = lane->search->service;
    sx_buf body;
    sx_buf_init(&body, SXD_EXCHANGE_BYTES_MAX);
    sx_buf_put_span(&body, response);
    if (body.code == SX_OK) {
        service->base->metrics.search_steps_taken++;
        order(service, SXD_ORDER_ANSWER, lane->task_name, &body, worked_us);
    } else {
        sx_buf_fini(&body);
        sxd_spread_drop(lane);
    }
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
}

void sxd_spread_fail(sxd_search_lane *lane, const sx_error *error, uint64_t worked_us)
{
    sx_buf body;
    sx_buf_init(&body, 1 << 16);
    sx_rpc_encode_error(&body, lane->task.ticket, error, 0);
    order(lane->search->service, SXD_ORDER_ANSWER, lane->task_name, &body, worked_us);
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
}

/* ---- events ---- */
/* The server is gone: all goes on here. */
static void go_alone(sxd_service *service, const char *why)
{
    char quoted[SXD_QUOTE_MAX];
    sxd_log(SXD_WARN, "search-redis", "state=down error=%s", sxd_quote(quoted, sx_span_of(why)));
    service->exchange_up = false;
    service->places_wanted = 0;
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        for (uint32_t i = 0; i < search->lane_count; i++) {
            if (search->lane[i].phase == SXD_SEARCH_LANE_AWAY) {
                sxd_search_lane_let_go(&search->lane[i]);
            }
        }
    }
    for (uint32_t i = 0; i < service->guests->lane_count; i++) {
        sxd_search_lane_let_go(&service->guests->lane[i]);
    }
}

static void take_event(sxd_service *service, sxd_parcel *event)
{
    sxd_search_lane *lane;
    switch ((sxd_exchange_kind)event->kind) {
    case SXD_EVENT_UP:
        sxd_log(SXD_INFO, "search-redis", "state=up id=%s", service->base->boot_id);
        service->exchange_up = true;
        break;
    case SXD_EVENT_DOWN: go_alone(service, event->who); break;
    case SXD_EVENT_WANTED: service->places_wanted = event->count; break;
    case SXD_EVENT_TAKEN: take_guest(service, event); break;
    case SXD_EVENT_LEASED:
        lane = find_away(service, event->name);
        if (lane != NULL) {
            sxd_log(SXD_DEBUG, "search-spread", "task=%s leased=%s", lane->task_name,
                    event->who[0] != '\0' ? event->who : "nobody");
            sxd_search_lane_lease(lane, event->who);
        }
        break;
    case SXD_EVENT_RESULT: take_result(service, event); break;
    case SXD_EVENT_GONE:
        lane = find_guest(service, event->name);
        if (lane != NULL) {
            sxd_search_lane_let_go(lane);
        }
        break;
    }
}

static void on_wake(uv_async_t *async)
{
    sxd_service *service = async->data;
    sxd_parcel *event;
    while (service->exchange != NULL && (event = sxd_exchange_event(service->exchange)) != NULL) {
        take_event(service, event);
        sxd_parcel_free(event);
    }
    sxd_work_run(service->work);
}

/* Called on the exchange's thread. */
static void wake(void *self)
{
    sxd_service *service = self;
    (void)uv_async_send(&service->exchange_wake);
}

/* ---- open and close ---- */
static bool make_guests(sxd_service *service)
{
    sxd_search *guests = calloc(1, sizeof(*guests));
    sxd_search_lane *lanes = calloc(SXD_EXCHANGE_HELD_MAX, sizeof(*lanes));
    if (guests == NULL || lanes == NULL) {
        free(guests);
        free(lanes);
        return false;
    }
    guests->service = service;
    guests->lane = lanes;
    guests->lane_count = SXD_EXCHANGE_HELD_MAX;
    for (uint32_t i = 0; i < guests->lane_count; i++) {
        lanes[i] = (sxd_search_lane){
            .search = guests, .guest = true, .row = {.state = SXD_SEARCH_LANE_OPEN}};
        sxd_task_init(&lanes[i].task, service->work, &sxd_step_class);
    }
    service->guests = guests;
    return true;
}

void sxd_spread_open(sxd_service *service)
{
    const sxd_options *options = &service->base->config.options;
    int error = uv_async_init(&service->base->loop, &service->exchange_wake, on_wake);
    SX_ASSERT(error == 0);
    service->exchange_wake.data = service;
    if (options->search_redis[0] == '\0' || service->search_db == NULL || !make_guests(service)) {
        return;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sxd_exchange_config config = {
        .uri = options->search_redis,
        .id = service->base->boot_id,
        .build = service->backend->build(),
        .lease_ms = options->search_lease_ms,
        .wake = wake,
        .self = service,
    };
    if (sxd_exchange_open(&cx, &config, &service->exchange) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "search-redis", "error=%s",
                sxd_quote(quoted, sx_span_of(cx.error.text)));
    }
    sx_ctx_fini(&cx);
}

void sxd_spread_close(sxd_service *service)
{
    sxd_exchange_close(service->exchange);
    service->exchange = NULL;
    sxd_search *guests = service->guests;
    service->guests = NULL;
    if (guests != NULL) {
        for (uint32_t i = 0; i < guests->lane_count; i++) {
            SX_ASSERT(guests->lane[i].phase == SXD_SEARCH_LANE_READY);
        }
        free(guests->lane);
        free(guests);
    }
}
