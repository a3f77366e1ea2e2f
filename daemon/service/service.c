/* service.c - the service as a whole: opened, asked, swept, stopped, closed. */
#include "daemon/service/service.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/service/artefact.h"
#include "daemon/service/gang.h"
#include "daemon/service/search.h"
#include "trust/trust.h"

#define TOUCH_MS 1000

/* ---- the cache's clock ---- */
static void on_cache_timer(uv_timer_t *timer)
{
    sxd_service_tick_cache(timer->data);
}

static void on_cache_wake(uv_async_t *async)
{
    sxd_service_tick_cache(async->data);
}

/* Called on the cache's writer thread. */
static void wake_loop(void *self)
{
    sxd_service *service = self;
    (void)uv_async_send(&service->cache_wake);
}

uint32_t sxd_service_strike(sxd_service *service, const sx_key *key, const char *signature)
{
    SX_ASSERT(service->cache != NULL && signature[0] != '\0');
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_cache_strikes strikes = {0};
    sx_code code = sx_cache_strike(&cx, service->cache, key, sx_span_of(signature), &strikes);
    sx_ctx_fini(&cx);
    sxd_service_tick_cache(service);
    return code == SX_OK ? strikes.count : 0;
}

/* The log tells every change: a store that fails costs nobody an answer, and would be noticed by nobody. */
static void log_store(sxd_service *service)
{
    const char *error;
    sx_cache_store_state state = sx_cache_store_of(service->cache, &error);
    if (state == service->cache_logged) {
        return;
    }
    bool fine = state == SX_STORE_OK || state == SX_STORE_NONE;
    char quoted[SXD_QUOTE_MAX];
    sxd_log(fine ? SXD_INFO : SXD_ERROR, "cache-store", "state=%s error=%s",
            sx_cache_store_name(state), fine ? "none" : sxd_quote(quoted, sx_span_of(error)));
    service->cache_logged = state;
}

void sxd_service_tick_cache(sxd_service *service)
{
    if (service->base->phase == SXD_DOWN) {
        return;
    }
    uint64_t next_us = sx_cache_tick(service->cache);
    log_store(service);
    if (next_us == UINT64_MAX) {
        (void)uv_timer_stop(&service->cache_timer);
    } else {
        (void)uv_timer_start(&service->cache_timer, on_cache_timer, next_us / 1000 + 1, 0);
    }
}

void sxd_service_touch_cache(sxd_service *service)
{
    if (service->base->phase != SXD_DOWN &&
        uv_is_active((uv_handle_t *)&service->cache_timer) == 0) {
        (void)uv_timer_start(&service->cache_timer, on_cache_timer, TOUCH_MS, 0);
    }
}

/* ---- calls ---- */
static void serve(void *self, sxd_call *call)
{
    sxd_service *service = self;
    sxd_ask *ask = SX_NEW(&call->cx, sxd_ask);
    if (ask == NULL) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    *ask = (sxd_ask){.call = call, .hold_ms = UINT64_MAX};
    call->self = ask;
    if (SX_HAS(&call->request.meta, call_meta, dl)) {
        int64_t left = sx_max_i64(call->request.meta.dl, 0);
        call->deadline_ms = sxd_base_now(service->base) + (uint64_t)sx_min_i64(left, INT32_MAX);
    }
    sxd_call_dispatch(call);
}

static void leave(void *self, sxd_call *call)
{
    sxd_ask *ask = call->self;
    SX_ASSERT(self != NULL && !call->pinned);
    if (ask != NULL) { /* else it was never served */
        sxd_wait_leave(&ask->waiter);
    }
}

static void closed(void *self, uint64_t peer)
{
    sxd_lease_forget(self, peer);
    sxd_gang_forget(self, peer);
}

void sxd_call_pin(sxd_call *call)
{
    SX_ASSERT(!call->pinned && sxd_ask_of(call)->waiter.of == NULL);
    call->pinned = true;
}

bool sxd_call_unpin(sxd_call *call)
{
    SX_ASSERT(call->pinned);
    call->pinned = false;
    if (call->session != NULL) {
        return true;
    }
    sxd_call_drop(call);
    return false;
}

sxd_server sxd_service_server(sxd_service *service)
{
    return (sxd_server){.serve = serve, .leave = leave, .closed = closed, .self = service};
}

void sxd_service_room(void *self)
{
    sxd_search_fill(self);
}

/* ---- open ---- */

/* Modules of other versions of the format are never asked for again: their keys have the version in them. */
static void remove_old_modules(sx_ctx *cx, sxd_service *service)
{
    uint64_t removed = 0;
    for (uint32_t version = 0; version < SX_MODULE_VERSION; version++) {
        for (uint32_t kind = 1; kind <= 2; kind++) {
            sx_cache_filter filter = {
                .by_kind = true, .kind = kind + SXD_KINDS_OF_VERSION * version, .pinned_too = true};
            uint64_t count = 0;
            if (sx_cache_evict(cx, service->cache, &filter, &count) != SX_OK) {
                char quoted[SXD_QUOTE_MAX];
                sxd_log(SXD_WARN, "old-modules", "error=%s",
                        sxd_quote(quoted, sx_span_of(cx->error.text)));
                sx_ctx_reset_error(cx);
                return;
            }
            removed += count;
        }
    }
    if (removed > 0) {
        sxd_log(SXD_INFO, "old-modules", "removed=%llu format=%u", (unsigned long long)removed,
                SX_MODULE_VERSION);
    }
}

static sx_code open_cache(sx_ctx *cx, sxd_service *service)
{
    const sxd_options *options = &service->base->config.options;
    uint64_t quota = (uint64_t)options->artefact_mb << 20;
    sx_cache_quota quotas[] = {{SXD_ARTEFACT_SPACE | getuid(), quota}, {SXD_ARTEFACT_SPACE, quota}};
    sx_cache_options cache = {
        .quota = quotas,
        .quota_count = getuid() == 0 ? 1 : 2,
        .dir = options->state,
        .size_limit = (uint64_t)options->cache_mb << 20,
        .ram_limit = (uint64_t)options->cache_ram_mb << 20,
        .wake = wake_loop,
        .wake_self = service,
    };
    bool fine = uv_timer_init(&service->base->loop, &service->cache_timer) == 0 &&
                uv_async_init(&service->base->loop, &service->cache_wake, on_cache_wake) == 0;
    service->cache_timer.data = service->cache_wake.data = service;
    if (!fine) {
        return SX_FAIL(cx, SX_SYSTEM, "loop: handles cannot be opened");
    }
    SX_TRY(sx_cache_open(cx, &cache, &service->cache));
    service->cache_logged = SX_STORE_OK;
    log_store(service);
    remove_old_modules(cx, service);
    return SX_OK;
}

sx_code sxd_service_open(sx_ctx *cx, sxd_service *service)
{
    const char *state = service->base->config.options.state;
    SX_ASSERT(service->net != NULL && service->backend != NULL && service->drain != NULL);
    SX_TRY(sx_trust_make_folder(cx, "state", state));
    service->memo = calloc((size_t)SXD_MEMO_SETS * SXD_MEMO_WAYS, sizeof(*service->memo));
    if (service->memo == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "memo: no memory");
    }
    SX_TRY(sxd_artefact_open(cx, service));
    SX_TRY(open_cache(cx, service)); /* takes the lock of the state directory */
    SX_TRY(sx_trust_key_open(cx, state, true, &service->key));
    sxd_search_open(service);
    sxd_spread_open(service);
    service->start_ms = sxd_base_now(service->base);
    service->next_gang = sxd_gang_first_id();
    return SX_OK;
}

/* ---- now and then, and the end ---- */
void sxd_service_sweep(sxd_service *service)
{
    sxd_queue_sweep(service);
    sxd_search_sweep(service);
    sxd_gang_sweep(service);
}

bool sxd_service_quiet(const sxd_service *service)
{
    return service->active_count == 0 && service->step_count == 0 && sxd_work_idle(service->work);
}

bool sxd_service_idle(const sxd_service *service)
{
    return service->active_count == 0 && service->step_count == 0 &&
           sxd_search_running(service) == 0;
}

void sxd_service_drain(sxd_service *service, bool fast)
{
    SX_ASSERT(service->base->phase == SXD_DRAINING);
    sxd_search_drain(service);
    sxd_lease_drain(service);
    sxd_gang_drain(service);
    if (fast) {
        sxd_service_halt(service, "the daemon is stopping");
    }
}

void sxd_service_halt(sxd_service *service, const char *why)
{
    sxd_queue_stop(service, why);
    sxd_search_stop_steps(service);
}

void sxd_service_close(sxd_service *service)
{
    SX_ASSERT(service->base->phase == SXD_DOWN);
    sxd_spread_close(service);
    sxd_search_close(service);
    while (service->jobs != NULL) {
        sxd_job_free(service->jobs);
    }
    sx_cache_close(service->cache); /* its thread calls wake_loop until here */
    service->cache = NULL;
    uv_close((uv_handle_t *)&service->cache_timer, NULL);
    uv_close((uv_handle_t *)&service->cache_wake, NULL);
    uv_close((uv_handle_t *)&service->exchange_wake, NULL);
}

void sxd_service_fini(sxd_service *service)
{
    SX_ASSERT(sxd_work_idle(service->work) && service->cache == NULL);
    uv_mutex_destroy(&service->search_lock);
    sx_trust_key_close(&service->key);
    sxd_artefact_close(service);
    sxd_gang_fini(service);
    free(service->memo);
    service->memo = NULL;
}
