/* gang.c - sessions of jobs: their table, their ranks, and the module that each key is pinned to. */
#include "daemon/service/gang.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

/* ---- the table ---- */
int64_t sxd_gang_first_id(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static sxd_gang *find_job(sxd_service *service, uint32_t space, sx_span job)
{
    sxd_gang *gang;
    DL_FOREACH(service->gangs, gang)
    {
        if (gang->space == space && sx_span_is(job, gang->job)) {
            return gang;
        }
    }
    return NULL;
}

static void gang_free(sxd_gang *gang)
{
    sxd_service *service = gang->service;
    SX_ASSERT(gang->waiters.count == 0 && service->gang_count > 0);
    for (uint32_t i = 0; i < gang->pin_count; i++) {
        sx_blob_free(gang->pin[i].blob);
    }
    for (uint32_t i = 0; i < gang->world; i++) {
        free(gang->rank[i].entry);
    }
    SX_ASSERT(service->gang_bytes >= gang->pin_bytes);
    service->gang_bytes -= gang->pin_bytes;
    DL_DELETE(service->gangs, gang);
    service->gang_count--;
    free(gang->pin);
    free(gang->rank);
    free(gang);
}

static sxd_gang *gang_new(sxd_call *call, sx_span job, uint32_t world)
{
    sxd_service *service = sxd_service_of(call);
    sxd_gang *gang = calloc(1, sizeof(*gang));
    sxd_rank *rank = calloc(world, sizeof(*rank));
    if (gang == NULL || rank == NULL) {
        free(gang);
        free(rank);
        return NULL;
    }
    gang->service = service;
    gang->id = service->next_gang++;
    gang->space = call->principal.space;
    memcpy(gang->job, job.ptr, job.len);
    gang->rank = rank;
    gang->world = world;
    gang->waiters = (sxd_waiters){.base = service->base, .class = &sxd_gang_waited};
    for (uint32_t i = 0; i < world; i++) {
        rank[i].since_ms = sxd_base_now(service->base);
    }
    DL_APPEND(service->gangs, gang);
    service->gang_count++;
    service->base->metrics.sessions_of_jobs++;
    return gang;
}

sxd_gang *sxd_gang_of(sxd_call *call, int64_t id)
{
    sxd_gang *gang;
    DL_FOREACH(sxd_service_of(call)->gangs, gang)
    {
        if (gang->id == id && sxd_principal_sees(&call->principal, gang->space)) {
            return gang;
        }
    }
    sxd_call_refuse(call, SX_ABSENT, 0,
                    "session %lld: there is none (it ended, or the daemon was started again)",
                    (long long)id);
    return NULL;
}

sxd_gang *sxd_gang_of_rank(sxd_call *call, int64_t id, int64_t rank)
{
    sxd_gang *gang = sxd_gang_of(call, id);
    if (gang == NULL) {
        return NULL;
    }
    if (rank < 0 || rank >= gang->world) {
        sxd_call_refuse(call, SX_INPUT, 0, "session '%s': rank %lld, allowed are 0 to %u",
                        gang->job, (long long)rank, gang->world - 1);
        return NULL;
    }
    sxd_rank_state state = gang->rank[rank].state;
    if (state == SXD_RANK_NEW || state == SXD_RANK_CLOSED) {
        sxd_call_refuse(call, SX_INPUT, 0, "session '%s': rank %lld %s", gang->job, (long long)rank,
                        state == SXD_RANK_NEW ? "has not opened it" : "has closed it");
        return NULL;
    }
    gang->used_ms = sxd_base_now(gang->service->base);
    return gang;
}

/* ---- open, close ---- */
static void move_rank(sxd_gang *gang, uint32_t rank, sxd_rank_state state)
{
    static const bool allowed[4][4] = {
        [SXD_RANK_NEW] = {[SXD_RANK_OPEN] = true},
        [SXD_RANK_OPEN] =
            {[SXD_RANK_OPEN] = true, [SXD_RANK_GONE] = true, [SXD_RANK_CLOSED] = true},
        [SXD_RANK_GONE] = {[SXD_RANK_OPEN] = true, [SXD_RANK_CLOSED] = true},
        [SXD_RANK_CLOSED] = {[SXD_RANK_OPEN] = true},
    };
    SX_ASSERT(rank < gang->world && allowed[gang->rank[rank].state][state]);
    gang->rank[rank].state = state;
    gang->rank[rank].since_ms = sxd_base_now(gang->service->base);
}

/* The session of the job, made if there is none; NULL: the call is refused. */
static sxd_gang *find_or_make(sxd_call *call, const sx_session_open_args *args)
{
    sxd_service *service = sxd_service_of(call);
    int64_t most = service->base->config.options.session_max;
    if (args->job.len < 1 || args->job.len > SXD_GANG_JOB_MAX) {
        sxd_call_refuse(call, SX_INPUT, 0,
                        "session: a job's name of %zu bytes, allowed are 1 to %d", args->job.len,
                        SXD_GANG_JOB_MAX);
        return NULL;
    }
    if (args->world < 1 || args->world > SXD_GANG_WORLD_MAX || args->rank < 0 ||
        args->rank >= args->world) {
        sxd_call_refuse(call, SX_INPUT, 0, "session: rank %lld of %lld, at most %d ranks from 0",
                        (long long)args->rank, (long long)args->world, SXD_GANG_WORLD_MAX);
        return NULL;
    }
    sxd_gang *gang = find_job(service, call->principal.space, args->job);
    if (gang != NULL && gang->world != args->world) {
        sxd_call_refuse(call, SX_INPUT, 0, "session '%s': rank %lld says %lld ranks, others say %u",
                        gang->job, (long long)args->rank, (long long)args->world, gang->world);
        return NULL;
    }
    if (gang == NULL && service->gang_count >= most) {
        sxd_call_refuse(call, SX_BUSY, 1000, "session: %u of jobs are open, at most %lld",
                        service->gang_count, (long long)most);
        return NULL;
    }
    gang = gang != NULL ? gang : gang_new(call, args->job, (uint32_t)args->world);
    if (gang == NULL) {
        sxd_call_refuse(call, SX_NOMEM, 1000, "session: no memory");
    }
    return gang;
}

void sxd_gang_open(sxd_call *call)
{
    const sx_session_open_args *args = call->request.args;
    sxd_gang *gang = find_or_make(call, args);
    if (gang == NULL) {
        return;
    }
    uint32_t number = (uint32_t)args->rank;
    sxd_rank *rank = &gang->rank[number];
    bool own = rank->peer == call->peer || (rank->pid > 0 && rank->pid == call->principal.pid);
    if (rank->state == SXD_RANK_OPEN && !own) {
        sxd_call_refuse(call, SX_INPUT, 0, "session '%s': rank %u is process %d already", gang->job,
                        number, rank->pid);
        return;
    }
    move_rank(gang, number, SXD_RANK_OPEN);
    rank->peer = call->peer;
    rank->pid = call->principal.pid;
    gang->used_ms = sxd_base_now(gang->service->base);
    sx_session_open_result result = {
        .session = gang->id, .round = gang->round, .pins = gang->pin_count};
    sxd_call_result(call, &result, NULL);
}

static uint32_t count_ranks(const sxd_gang *gang, sxd_rank_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gang->world; i++) {
        count += gang->rank[i].state == state ? 1 : 0;
    }
    return count;
}

void sxd_gang_leave(sxd_call *call)
{
    const sx_session_args *args = call->request.args;
    if (!SX_HAS(args, session_args, rank)) {
        sxd_call_refuse(call, SX_INPUT, 0, "session.close: 'rank' is missing");
        return;
    }
    sxd_gang *gang = sxd_gang_of_rank(call, args->session, args->rank);
    if (gang == NULL) {
        return;
    }
    move_rank(gang, (uint32_t)args->rank, SXD_RANK_CLOSED);
    sx_session_close_result result = {.left = count_ranks(gang, SXD_RANK_OPEN)};
    sxd_gang_tell_waiting(gang);
    if (count_ranks(gang, SXD_RANK_CLOSED) == gang->world) {
        gang_free(gang);
    }
    sxd_call_result(call, &result, NULL);
}

void sxd_gang_forget(sxd_service *service, uint64_t peer)
{
    sxd_gang *gang;
    DL_FOREACH(service->gangs, gang)
    {
        bool any = false;
        for (uint32_t i = 0; i < gang->world; i++) {
            if (gang->rank[i].state == SXD_RANK_OPEN && gang->rank[i].peer == peer) {
                move_rank(gang, i, SXD_RANK_GONE);
                any = true;
            }
        }
        if (any) {
            sxd_gang_tell_waiting(gang);
        }
    }
}

void sxd_gang_drain(sxd_service *service)
{
    SX_ASSERT(service->base->phase != SXD_UP);
    sxd_gang *gang;
    DL_FOREACH(service->gangs, gang)
    {
        sxd_gang_tell_waiting(gang);
    }
}

void sxd_gang_sweep(sxd_service *service)
{
    uint64_t idle_ms = (uint64_t)service->base->config.options.session_idle_s * 1000;
    uint64_t now = sxd_base_now(service->base);
    sxd_gang *gang;
    sxd_gang *next;
    DL_FOREACH_SAFE(service->gangs, gang, next)
    {
        if (now - gang->used_ms >= idle_ms && gang->waiters.count == 0 &&
            count_ranks(gang, SXD_RANK_OPEN) == 0) {
            char quoted[SXD_QUOTE_MAX];
            sxd_log(SXD_INFO, "session-idle", "session=%lld job=%s", (long long)gang->id,
                    sxd_quote(quoted, sx_span_of(gang->job)));
            gang_free(gang);
        }
    }
}

void sxd_gang_fini(sxd_service *service)
{
    while (service->gangs != NULL) {
        gang_free(service->gangs);
    }
    SX_ASSERT(service->gang_count == 0 && service->gang_bytes == 0);
}

/* ---- pins ---- */
/* Where the key is, or belongs. */
static uint32_t place_of(const sxd_gang *gang, const sx_key *key)
{
    uint32_t low = 0;
    uint32_t high = gang->pin_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memcmp(gang->pin[middle].key.byte, key->byte, SX_KEY_BYTES) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static sxd_pin *find_pin(sxd_gang *gang, const sx_key *key)
{
    uint32_t place = place_of(gang, key);
    bool found = place < gang->pin_count && sx_key_equal(&gang->pin[place].key, key);
    return found ? &gang->pin[place] : NULL;
}

/* Keeps the bytes of a pin, if there is room. */
static void keep_bytes(sxd_gang *gang, sxd_pin *pin, sx_span module)
{
    sxd_service *service = gang->service;
    uint64_t most = (uint64_t)service->base->config.options.session_mb << 20;
    if (module.len > most || service->gang_bytes > most - module.len) {
        return;
    }
    pin->blob = sx_blob_new(module.len);
    if (pin->blob != NULL) {
        if (module.len > 0) {
            memcpy(sx_blob_bytes(pin->blob), module.ptr, module.len);
        }
        gang->pin_bytes += module.len;
        service->gang_bytes += module.len;
    }
}

static bool add_pin(sxd_gang *gang, const sx_session_pin_args *args)
{
    if (gang->pin_count == gang->pin_capacity) {
        uint32_t capacity = gang->pin_capacity > 0 ? 2 * gang->pin_capacity : 64;
        sxd_pin *grown = realloc(gang->pin, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        gang->pin = grown;
        gang->pin_capacity = capacity;
    }
    uint32_t place = place_of(gang, &args->key);
    memmove(&gang->pin[place + 1], &gang->pin[place],
            (gang->pin_count - place) * sizeof(*gang->pin));
    gang->pin_count++;
    gang->pin[place] =
        (sxd_pin){.key = args->key, .digest = args->digest, .rank = (uint32_t)args->rank};
    keep_bytes(gang, &gang->pin[place], args->module);
    gang->service->base->metrics.session_pins++;
    return true;
}

static void answer_pin(sxd_call *call, const char *state, const sxd_pin *pin, bool with_bytes)
{
    sx_session_pin_result result = {.state = sx_span_of(state)};
    sx_blob *tail = NULL;
    if (pin != NULL) {
        SX_PUT(&result, session_pin_result, rank, pin->rank);
        if (with_bytes) {
            tail = sx_blob_share(pin->blob);
            SX_PUT(&result, session_pin_result, module, sx_blob_span(tail));
        }
    }
    sxd_call_result(call, &result, tail);
}

/* The digest is of the module: nobody pins something else under it. */
static bool digest_is_right(const sx_session_pin_args *args)
{
    sx_key digest = sx_key_of("symplex-module-1", &args->module, 1);
    return sx_key_equal(&digest, &args->digest);
}

void sxd_gang_pin(sxd_call *call)
{
    const sx_session_pin_args *args = call->request.args;
    sxd_gang *gang = sxd_gang_of_rank(call, args->session, args->rank);
    if (gang == NULL) {
        return;
    }
    bool brings = SX_HAS(args, session_pin_args, digest);
    bool module = SX_HAS(args, session_pin_args, module);
    if (module && (!brings || !digest_is_right(args))) {
        sxd_call_refuse(call, SX_INPUT, 0, "session.pin: the digest is not that of the module");
        return;
    }
    sxd_pin *pin = find_pin(gang, &args->key);
    if (pin != NULL && brings && sx_key_equal(&pin->digest, &args->digest)) {
        if (pin->blob == NULL && module) {
            keep_bytes(gang, pin, args->module);
        }
        answer_pin(call, "same", pin, false);
    } else if (pin != NULL) {
        gang->service->base->metrics.session_replaced += brings ? 1 : 0;
        answer_pin(call, pin->blob != NULL ? "other" : "lost", pin, pin->blob != NULL);
    } else if (!module) {
        answer_pin(call, "absent", NULL, false);
    } else if (gang->pin_count >= SXD_GANG_PINS_MAX) {
        sxd_call_refuse(call, SX_LIMIT, 0, "session '%s': %u modules are pinned, at most %d",
                        gang->job, gang->pin_count, SXD_GANG_PINS_MAX);
    } else if (!add_pin(gang, args)) {
        sxd_call_refuse(call, SX_NOMEM, 1000, "session '%s': no memory", gang->job);
    } else {
        answer_pin(call, "pinned", find_pin(gang, &args->key), false);
    }
}

/* ---- list, show ---- */
sx_session_rank_row sxd_gang_rank_row(const sxd_gang *gang, uint32_t rank)
{
    static const char *const name[] = {[SXD_RANK_NEW] = "new",
                                       [SXD_RANK_OPEN] = "open",
                                       [SXD_RANK_GONE] = "gone",
                                       [SXD_RANK_CLOSED] = "closed"};
    SX_ASSERT(rank < gang->world);
    const sxd_rank *its = &gang->rank[rank];
    return (sx_session_rank_row){
        .rank = rank,
        .state = sx_span_of(name[its->state]),
        .since_ms = (int64_t)(sxd_base_now(gang->service->base) - its->since_ms),
        .pid = its->pid,
    };
}

static sx_session_row row_of(const sxd_gang *gang)
{
    return (sx_session_row){
        .session = gang->id,
        .job = sx_span_of(gang->job),
        .world = gang->world,
        .open = count_ranks(gang, SXD_RANK_OPEN),
        .gone = count_ranks(gang, SXD_RANK_GONE),
        .waiting = gang->arrived,
        .round = gang->round,
        .pins = gang->pin_count,
        .bytes = (int64_t)gang->pin_bytes,
        .idle_ms = (int64_t)(sxd_base_now(gang->service->base) - gang->used_ms),
        .uid = gang->space,
    };
}

void sxd_gang_list(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    sx_session_row *rows = SX_NEW_ARRAY(&call->cx, sx_session_row, service->gang_count + 1);
    if (rows == NULL) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    sx_session_list_result result = {0};
    result.sessions.items = rows;
    const sxd_gang *gang;
    DL_FOREACH(service->gangs, gang)
    {
        if (sxd_principal_sees(&call->principal, gang->space)) {
            rows[result.sessions.count++] = row_of(gang);
        }
    }
    sxd_call_result(call, &result, NULL);
}

void sxd_gang_show(sxd_call *call)
{
    const sx_session_args *args = call->request.args;
    const sxd_gang *gang = sxd_gang_of(call, args->session);
    if (gang == NULL) {
        return;
    }
    sx_session_rank_row *rows = SX_NEW_ARRAY(&call->cx, sx_session_rank_row, gang->world);
    if (rows == NULL) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    for (uint32_t i = 0; i < gang->world; i++) {
        rows[i] = sxd_gang_rank_row(gang, i);
    }
    sx_session_row row = row_of(gang);
    sx_session_show_result result = {0};
    result.session.items = &row;
    result.session.count = 1;
    result.ranks.items = rows;
    result.ranks.count = gang->world;
    sxd_call_result(call, &result, NULL);
}
