/* search.c - the table of searches: which lane is next, and the end of a step. */
#include "daemon/service/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define RESTARTS_MAX 4 /* times that one lane begins again */

static const bool allowed[SXD_SEARCH_LANE_PHASE_COUNT][SXD_SEARCH_LANE_PHASE_COUNT] = {
    [SXD_SEARCH_LANE_READY] = {[SXD_SEARCH_LANE_LOADING] = true, [SXD_SEARCH_LANE_STORING] = true},
    [SXD_SEARCH_LANE_LOADING] = {[SXD_SEARCH_LANE_LOADED] = true,
                                 [SXD_SEARCH_LANE_AWAY] = true,
                                 [SXD_SEARCH_LANE_READY] = true,
                                 [SXD_SEARCH_LANE_STORING] = true},
    [SXD_SEARCH_LANE_LOADED] = {[SXD_SEARCH_LANE_ACTIVE] = true, [SXD_SEARCH_LANE_READY] = true},
    [SXD_SEARCH_LANE_ACTIVE] = {[SXD_SEARCH_LANE_STORING] = true, [SXD_SEARCH_LANE_READY] = true},
    [SXD_SEARCH_LANE_AWAY] = {[SXD_SEARCH_LANE_STORING] = true, [SXD_SEARCH_LANE_READY] = true},
    [SXD_SEARCH_LANE_STORING] = {[SXD_SEARCH_LANE_READY] = true, [SXD_SEARCH_LANE_ENDED] = true},
};

bool sxd_search_lane_taken(const sxd_search_lane *lane, sxd_search_lane_phase phase)
{
    return (phase == SXD_SEARCH_LANE_LOADING && !lane->offering) ||
           phase == SXD_SEARCH_LANE_LOADED || phase == SXD_SEARCH_LANE_ACTIVE;
}

static void check_lane(const sxd_search_lane *lane)
{
    SX_ASSERT((lane->phase == SXD_SEARCH_LANE_ACTIVE) == (lane->task.state == SXD_TASK_RUNNING));
    SX_ASSERT((lane->phase == SXD_SEARCH_LANE_LOADED) == (lane->task.state == SXD_TASK_QUEUED));
    SX_ASSERT((lane->phase == SXD_SEARCH_LANE_STORING) == (lane->storing != NULL));
    SX_ASSERT((lane->phase == SXD_SEARCH_LANE_ENDED) <= (lane->row.state != SXD_SEARCH_LANE_OPEN));
}

void sxd_search_lane_move(sxd_search_lane *lane, sxd_search_lane_phase to)
{
    sxd_service *service = lane->search->service;
    SX_ASSERT(allowed[lane->phase][to]);
    if (sxd_search_lane_taken(lane, lane->phase) && !sxd_search_lane_taken(lane, to)) {
        SX_ASSERT(service->step_count > 0);
        service->step_count--;
    } else if (!sxd_search_lane_taken(lane, lane->phase) && sxd_search_lane_taken(lane, to)) {
        service->step_count++;
    }
    lane->phase = to;
    lane->offering = lane->offering && to == SXD_SEARCH_LANE_LOADING;
    check_lane(lane);
}

/* ---- time: what counts is the time with at least one step under way ---- */
static void count_time(sxd_search *search)
{
    uint64_t now = uv_hrtime();
    if (search->active > 0) {
        search->row.used_us += (now - search->mark_ns) / 1000;
    }
    search->mark_ns = now;
}

void sxd_search_lane_lease(sxd_search_lane *lane, const char *who)
{
    sxd_search *search = lane->search;
    bool was = lane->who[0] != '\0';
    SX_ASSERT(lane->phase == SXD_SEARCH_LANE_AWAY);
    count_time(search);
    search->active += !was && who[0] != '\0' ? 1 : 0;
    search->active -= was && who[0] == '\0' ? 1 : 0;
    (void)snprintf(lane->who, sizeof(lane->who), "%s", who);
    lane->away_ms = sxd_base_now(search->service->base);
}

/* The step of an ACTIVE lane is over. */
static void end_step(sxd_search_lane *lane)
{
    sxd_search *search = lane->search;
    SX_ASSERT(lane->phase == SXD_SEARCH_LANE_ACTIVE && search->active > 0);
    SX_ASSERT(lane->task.state == SXD_TASK_IDLE);
    count_time(search);
    search->active--;
}

/* ---- storing ---- */
static void on_row_put(sxd_op *op)
{
    if (op->code != SX_OK) {
        sxd_op_retry(op);
    }
}

static void run_row_put(sxd_op *op, sx_search_db *db)
{
    op->code = sx_search_db_put(&op->cx, db, &op->row);
}

static void put_row(sxd_search *search)
{
    sxd_op *op = sxd_op_new(search, NULL);
    if (op != NULL) {
        op->run = run_row_put;
        op->done = on_row_put;
        sxd_op_put(search->service, op);
    }
}

static void run_lane_put(sxd_op *op, sx_search_db *db)
{
    sx_span empty = {0};
    sx_span state = op->put_state ? sx_blob_span(op->state) : empty;
    sx_span best = op->put_best ? sx_blob_span(op->best) : empty;
    op->code = sx_search_db_put_lane(&op->cx, db, &op->row, &op->lane_row,
                                     op->put_state || op->drop_state ? &state : NULL,
                                     op->put_best ? &best : NULL);
}

/* The lane is as `op` says from now on. */
static void on_lane_put(sxd_op *op)
{
    sxd_search_lane *lane = op->lane;
    sxd_search *search = op->search;
    sxd_service *service = search->service;
    if (op->code != SX_OK) {
        if (!service->store_failing) {
            char quoted[SXD_QUOTE_MAX];
            sxd_log(SXD_ERROR, "search-store", "search=%lld lane=%u error=%s",
                    (long long)search->row.id, lane->row.lane,
                    sxd_quote(quoted, sx_span_of(op->cx.error.text)));
        }
        service->store_failing = true;
        service->base->metrics.search_stores_failed++;
        if (search->row.state !=
            SXD_SEARCH_RUNNING) { /* it has stopped meanwhile: the step is done again */
            lane->storing = NULL;
            sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
            return;
        }
        (void)snprintf(search->row.why, sizeof(search->row.why), "%.200s", op->cx.error.text);
        sxd_op_retry(op);
        sxd_search_changed(search);
        return;
    }
    if (service->store_failing || op->tries > 0) {
        service->store_failing = false;
        sxd_log(SXD_INFO, "search-store", "search=%lld recovered", (long long)search->row.id);
        search->row.why[0] = '\0';
    }
    bool stepped = op->lane_row.step > lane->row.step;
    lane->row = op->lane_row;
    lane->storing = NULL;
    if (stepped) {
        service->base->metrics.search_steps++;
        sxd_log(SXD_DEBUG, "step", "search=%lld lane=%u step=%u objective=%g done=%d",
                (long long)search->row.id, lane->row.lane, lane->row.step, lane->row.objective,
                lane->row.state == SXD_SEARCH_LANE_DONE);
    }
    sxd_search_lane_move(lane, lane->row.state == SXD_SEARCH_LANE_OPEN ? SXD_SEARCH_LANE_READY
                                                                       : SXD_SEARCH_LANE_ENDED);
    sxd_search_changed(search);
    sxd_search_settle(search);
    sxd_work_run(service->work);
}

static void store_lane(sxd_search_lane *lane, SX_TAKE sxd_op *op)
{
    lane->storing = op;
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_STORING);
    op->run = run_lane_put;
    op->done = on_lane_put;
    sxd_op_put(lane->search->service, op);
}

static sxd_op *lane_op(sxd_search_lane *lane)
{
    sxd_op *op = sxd_op_new(lane->search, lane);
    if (op == NULL) {
        sxd_log(SXD_ERROR, "search", "search=%lld lane=%u error=\"no memory\"",
                (long long)lane->search->row.id, lane->row.lane);
        if (lane->phase != SXD_SEARCH_LANE_READY) {
            sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY); /* the step is done again */
        }
    }
    return op;
}

/* The lane is given up; what it found stays. */
static void give_up(sxd_search_lane *lane, const char *why)
{
    sxd_op *op = lane_op(lane);
    if (op == NULL) {
        return;
    }
    lane->search->service->base->metrics.search_lanes_out++;
    sxd_log(SXD_WARN, "search-lane", "search=%lld lane=%u out=1 why=\"%.200s\"",
            (long long)lane->search->row.id, lane->row.lane, why);
    op->lane_row.state = SXD_SEARCH_LANE_OUT;
    op->drop_state = true;
    (void)snprintf(op->lane_row.why, sizeof(op->lane_row.why), "%.200s", why);
    store_lane(lane, op);
}

/* The lane begins again; what it found stays. */
static void restart(sxd_search_lane *lane, const char *why)
{
    if (lane->row.restarts >= RESTARTS_MAX) {
        give_up(lane, why);
        return;
    }
    sxd_op *op = lane_op(lane);
    if (op == NULL) {
        return;
    }
    lane->search->service->base->metrics.search_restarts++;
    sxd_log(SXD_WARN, "search-lane", "search=%lld lane=%u restart=1 why=\"%.200s\"",
            (long long)lane->search->row.id, lane->row.lane, why);
    op->lane_row.step = 0;
    op->lane_row.restarts++;
    op->drop_state = true;
    (void)snprintf(op->lane_row.why, sizeof(op->lane_row.why), "began again: %.200s", why);
    store_lane(lane, op);
}

/* ---- the end of a step ---- */
static sx_blob *copy(sx_span bytes)
{
    sx_blob *blob = sx_blob_new(bytes.len);
    if (blob != NULL && bytes.len > 0) {
        memcpy(sx_blob_bytes(blob), bytes.ptr, bytes.len);
    }
    return blob;
}

static uint64_t all_bytes(const sxd_service *service)
{
    uint64_t bytes = 0;
    const sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        bytes += sxd_search_bytes(search);
    }
    return bytes;
}

/* Is there room for what a step leaves? */
static bool fits(const sxd_search_lane *lane, const sx_step_result *result, char *why, size_t size)
{
    const sxd_service *service = lane->search->service;
    uint64_t limit = (uint64_t)service->base->config.options.search_mb << 20;
    uint64_t others = all_bytes(service) - lane->row.state_bytes;
    uint64_t wanted = result->state.len + result->module.len;
    if (others <= limit && wanted <= limit - others) {
        return true;
    }
    (void)snprintf(why, size, "its state has %llu bytes, the other searches %llu, at most %llu",
                   (unsigned long long)wanted, (unsigned long long)others,
                   (unsigned long long)limit);
    return false;
}

/* What a worker may not say; NULL: nothing wrong. */
static const char *objection(const sxd_search_lane *lane, const sx_step_result *result)
{
    if (result->step != (int64_t)lane->row.step + 1) {
        return "answered with another step";
    }
    if (result->state.len > SX_SEARCH_STATE_MAX || (result->state.len == 0 && !result->done)) {
        return "left no state";
    }
    if (result->peak_bytes < 0 || result->nodes < 0 || result->fuel < 0) {
        return "answered with a negative count";
    }
    if (isnan(result->objective) || isnan(result->bound) || isnan(result->time_ns)) {
        return "answered with no number";
    }
    if (result->module.len > 0 && !isfinite(result->objective)) {
        return "found a program without an objective";
    }
    return NULL;
}

static void note_result(sxd_op *op, const sx_step_result *result, bool better)
{
    sx_search_lane_record *row = &op->lane_row;
    row->step = (uint32_t)result->step;
    row->bound = result->bound;
    row->nodes = (uint64_t)result->nodes;
    row->fuel = (uint64_t)result->fuel;
    (void)snprintf(row->stop, sizeof(row->stop), "%.*s",
                   (int)sx_min_i64((int64_t)result->stop.len, SX_SEARCH_NAME_MAX - 1),
                   (const char *)result->stop.ptr);
    if (better) {
        row->objective = result->objective;
        row->time_ns = result->time_ns;
        row->peak_bytes = (uint64_t)result->peak_bytes;
    }
    if (result->done) {
        row->state = SXD_SEARCH_LANE_DONE;
    }
}

/* Blobs of the operation; false: no memory, or the module is none. */
static bool take_bytes(sxd_op *op, const sx_step_result *result, bool better)
{
    sxd_service *service = op->search->service;
    op->put_state = true;
    op->put_best = better;
    op->state = copy(result->state);
    op->best = better ? copy(result->module) : NULL;
    if (op->state == NULL || (better && op->best == NULL)) {
        (void)SX_FAIL(&op->cx, SX_NOMEM, "no memory for a state of %zu bytes", result->state.len);
        return false;
    }
    return !better || service->backend->check(&op->cx, sx_blob_span(op->best)) == SX_OK;
}

/* A lane that began again finds once more what it had; the best stays. Lanes of a front make different things
 * small: theirs stays only where it is as good in both. */
static bool improves(const sxd_search_lane *lane, const sx_step_result *result)
{
    const sx_search_lane_record *row = &lane->row;
    if (row->best_bytes == 0 || row->restarts == 0) {
        return true;
    }
    return result->objective < row->objective || (strcmp(lane->search->objective, "pareto") == 0 &&
                                                  (uint64_t)result->peak_bytes < row->peak_bytes);
}

/* A step that was done elsewhere is done again here: only then a failure counts. */
static void refuse(sxd_search_lane *lane, bool away, const char *why)
{
    if (!away) {
        give_up(lane, why);
        return;
    }
    sxd_log(SXD_WARN, "search-spread", "search=%lld lane=%u refused=\"%.200s\"",
            (long long)lane->search->row.id, lane->row.lane, why);
    lane->home = true;
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
}

/* A step of a lane came to its end, here or elsewhere; the lane has no worker any more. */
static void take_result(sxd_search_lane *lane, const sx_step_result *result, uint64_t worked_us)
{
    char why[SX_SEARCH_TEXT_MAX];
    bool away = lane->phase == SXD_SEARCH_LANE_AWAY;
    const char *wrong = objection(lane, result);
    if (wrong != NULL) {
        refuse(lane, away, wrong);
        return;
    }
    if (!fits(lane, result, why, sizeof(why))) {
        give_up(lane, why);
        return;
    }
    sxd_op *op = lane_op(lane);
    if (op == NULL) {
        return;
    }
    bool better = result->module.len > 0 && improves(lane, result);
    if (!take_bytes(op, result, better)) {
        (void)snprintf(why, sizeof(why), "%.200s", op->cx.error.text);
        sxd_op_drop(op);
        refuse(lane, away, why);
        return;
    }
    note_result(op, result, better);
    op->lane_row.worked_us += worked_us;
    store_lane(lane, op);
}

void sxd_step_returned(sxd_search_lane *lane, const sx_step_result *result, uint64_t worked_us)
{
    SX_ASSERT(lane->phase == SXD_SEARCH_LANE_AWAY && !lane->guest);
    sxd_service *service = lane->search->service;
    sxd_search_lane_lease(lane, "");
    if (result == NULL) {
        refuse(lane, true, "it failed there");
    } else {
        take_result(lane, result, worked_us);
        service->base->metrics.search_steps_given += lane->phase == SXD_SEARCH_LANE_STORING ? 1 : 0;
    }
    sxd_work_run(service->work);
}

static void fail_step(sxd_search_lane *lane, const sx_error *error)
{
    lane->search->service->base->metrics.search_steps_failed++;
    bool state = error->code == SX_ABSENT || error->code == SX_CORRUPT;
    if (state && lane->row.state_bytes > 0) {
        restart(lane, error->text);
    } else {
        give_up(lane, error->text);
    }
}

/* What the strikes of a step are counted under, as those of a compilation are under its key. */
static sx_key step_key(const sxd_search_lane *lane)
{
    const sx_search_record *search = &lane->search->row;
    const uint64_t which[] = {(uint64_t)search->id, lane->row.lane, lane->row.restarts,
                              lane->row.step};
    const sx_span part[] = {{search->key.byte, SX_KEY_BYTES},
                            {(const uint8_t *)which, sizeof(which)},
                            sx_span_of(search->build)};
    return sx_key_of("search step", part, SX_COUNT(part));
}

/* A step that is quarantined, because it killed as many workers as a compilation may, is not tried again. */
static void lose_step(sxd_search_lane *lane, const sxd_end *end)
{
    char why[128];
    sxd_service *service = lane->search->service;
    service->base->metrics.search_steps_failed++;
    (void)snprintf(why, sizeof(why), "worker %d ended %s in step %u", end->pid, end->how,
                   lane->row.step + 1);
    sx_key key = step_key(lane);
    if (end->strike) {
        (void)sxd_service_strike(service, &key, why);
    }
    if (sx_cache_is_quarantined(service->cache, &key, NULL)) {
        give_up(lane, why);
        return;
    }
    sxd_op *op = lane_op(lane);
    if (op != NULL) {
        (void)snprintf(op->lane_row.why, sizeof(op->lane_row.why), "%s", why);
        store_lane(lane, op);
    }
}

static void expire_step(sxd_search_lane *lane)
{
    char why[96];
    lane->search->service->base->metrics.search_steps_failed++;
    (void)snprintf(why, sizeof(why), "a step took more than %llu ms, the limit compile_ms",
                   (unsigned long long)lane->task.limit_ms);
    give_up(lane, why);
}

/* ---- what the task table tells ---- */
static sxd_search_lane *lane_of(sxd_task *task)
{
    return SXD_OWNER(sxd_search_lane, task, task);
}

static void on_begin(sxd_task *task)
{
    sxd_search_lane *lane = lane_of(task);
    sxd_search *search = lane->search;
    task->limit_ms = (uint64_t)search->service->base->config.options.compile_ms;
    count_time(search);
    search->active++;
    lane->stage[0] = '\0';
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_ACTIVE);
}

static void on_event(sxd_task *task, const sx_event_row *row)
{
    sxd_search_lane *lane = lane_of(task);
    (void)snprintf(lane->stage, sizeof(lane->stage), "%.*s",
                   (int)sx_min_i64((int64_t)row->stage.len, SXD_STAGE_TEXT_MAX - 1),
                   (const char *)row->stage.ptr);
    lane->stage[sx_utf8_prefix(sx_span_of(lane->stage))] = '\0';
}

/* A step of another daemon: its owner hears what became of it. */
static void end_guest(sxd_search_lane *lane, const sxd_end *end)
{
    if (end->kind == SXD_END_DONE || end->kind == SXD_END_FAILED) {
        sxd_spread_answer(lane, end->message, end->worked_us);
    } else {
        lane->search->service->base->metrics.search_steps_failed++;
        sxd_spread_fail(lane, &end->error, end->worked_us);
    }
}

static void on_end(sxd_task *task, const sxd_end *end)
{
    sxd_search_lane *lane = lane_of(task);
    end_step(lane);
    if (lane->guest) {
        end_guest(lane, end);
        return;
    }
    switch (end->kind) {
    case SXD_END_DONE: take_result(lane, end->result, end->worked_us); return;
    case SXD_END_FAILED: fail_step(lane, &end->error); return;
    case SXD_END_LOST: lose_step(lane, end); return;
    case SXD_END_EXPIRED: expire_step(lane); return;
    }
}

const sxd_task_class sxd_step_class = {.name = "step",
                                       .method = SX_METHOD_STEP,
                                       .rank = SXD_RANK_STEP,
                                       .begin = on_begin,
                                       .event = on_event,
                                       .end = on_end};

/* ---- states of a search ---- */
static void end_search(sxd_search *search, sxd_search_state state, const char *why)
{
    search->row.state = state;
    (void)snprintf(search->row.why, sizeof(search->row.why), "%.200s", why);
    sxd_log(SXD_INFO, "search", "search=%lld state=%s used_ms=%llu why=\"%.200s\"",
            (long long)search->row.id, sxd_search_state_name(state),
            (unsigned long long)(search->row.used_us / 1000), why);
    put_row(search);
    sxd_search_changed(search);
}

void sxd_search_settle(sxd_search *search)
{
    if (search->row.state != SXD_SEARCH_RUNNING || search->preparing) {
        return;
    }
    uint32_t ended = 0, still = 0;
    const char *why = "";
    bool used = search->row.used_us >= search->row.budget_us;
    for (uint32_t i = 0; i < search->lane_count; i++) {
        sxd_search_lane *lane = &search->lane[i];
        if (used && lane->phase == SXD_SEARCH_LANE_AWAY && lane->who[0] == '\0') {
            sxd_search_lane_let_go(lane);
        }
        ended += lane->phase == SXD_SEARCH_LANE_ENDED ? 1 : 0;
        still +=
            lane->phase == SXD_SEARCH_LANE_READY || lane->phase == SXD_SEARCH_LANE_ENDED ? 1 : 0;
        if (why[0] == '\0' && lane->row.state == SXD_SEARCH_LANE_OUT) {
            why = lane->row.why;
        }
    }
    if (ended == search->lane_count) {
        bool found = sxd_search_best(search) != NULL;
        end_search(search, found ? SXD_SEARCH_DONE : SXD_SEARCH_FAILED, found ? "" : why);
    } else if (still == search->lane_count && used) {
        end_search(search, SXD_SEARCH_SPENT, "");
    }
}

void sxd_search_lane_let_go(sxd_search_lane *lane)
{
    if (lane->phase == SXD_SEARCH_LANE_AWAY) {
        sxd_search_lane_lease(lane, "");
        sxd_spread_withdraw(lane);
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
    } else if (lane->phase == SXD_SEARCH_LANE_LOADED) {
        sxd_task_drop(&lane->task);
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
    } else if (lane->phase == SXD_SEARCH_LANE_ACTIVE) {
        sxd_task_drop(&lane->task);
        end_step(lane);
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
    } else if (lane->phase == SXD_SEARCH_LANE_STORING && sxd_op_waits(lane->storing)) {
        sxd_op_drop(lane->storing);
        lane->storing = NULL;
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
    }
}

void sxd_search_stop(sxd_search *search, sxd_search_state state, const char *why)
{
    SX_ASSERT(state != SXD_SEARCH_RUNNING);
    for (uint32_t i = 0; i < search->lane_count; i++) {
        sxd_search_lane_let_go(&search->lane[i]);
    }
    end_search(search, state, why);
}

/* Calls `each` for every lane, also those of other daemons. */
static void for_each_lane(sxd_service *service, void (*each)(sxd_search_lane *lane))
{
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        for (uint32_t i = 0; i < search->lane_count; i++) {
            each(&search->lane[i]);
        }
    }
    for (uint32_t i = 0; service->guests != NULL && i < service->guests->lane_count; i++) {
        each(&service->guests->lane[i]);
    }
}

/* A guest is given up, and its owner knows. */
static void leave(sxd_search_lane *lane)
{
    bool holds = lane->guest && lane->phase != SXD_SEARCH_LANE_READY;
    sxd_search_lane_let_go(lane);
    if (holds) {
        sxd_spread_drop(lane);
    }
}

static void drain_lane(sxd_search_lane *lane)
{
    if (lane->phase == SXD_SEARCH_LANE_LOADED || lane->phase == SXD_SEARCH_LANE_AWAY) {
        leave(lane);
    }
}

void sxd_search_drain(sxd_service *service)
{
    for_each_lane(service, drain_lane);
}

void sxd_search_stop_steps(sxd_service *service)
{
    for_each_lane(service, leave);
}

/* ---- lanes of another build ---- */
static void run_prepare(sxd_op *op, sx_search_db *db)
{
    (void)db;
    op->code = op->service->backend->lanes(&op->cx, &op->request, &op->names, &op->lane_count);
    if (op->code == SX_OK && (op->lane_count < 1 || op->lane_count > SX_SEARCH_LANES_MAX)) {
        op->code =
            SX_FAIL(&op->cx, SX_LIMIT, "%u lanes, at most %d", op->lane_count, SX_SEARCH_LANES_MAX);
    }
}

static void on_prepare(sxd_op *op)
{
    sxd_search *search = op->search;
    sxd_service *service = search->service;
    search->preparing = false;
    if (search->row.state != SXD_SEARCH_RUNNING) {
        return;
    }
    if (op->code != SX_OK) {
        sxd_search_stop(search, SXD_SEARCH_FAILED, op->cx.error.text);
        return;
    }
    (void)snprintf(search->row.build, sizeof(search->row.build), "%s", service->backend->build());
    for (uint32_t i = 0; i < op->lane_count; i++) {
        sxd_search_lane *lane = &search->lane[i];
        if (i >= search->lane_count) {
            *lane = (sxd_search_lane){.search = search,
                                      .row = {.lane = i, .state = SXD_SEARCH_LANE_OPEN}};
            sxd_task_init(&lane->task, service->work, &sxd_step_class);
            search->lane_count = i + 1;
        }
        (void)snprintf(lane->row.name, sizeof(lane->row.name), "%.*s", (int)op->names[i].len,
                       (const char *)op->names[i].ptr);
    }
    for (uint32_t i = 0; i < search->lane_count; i++) {
        sxd_search_lane *lane = &search->lane[i];
        if (lane->phase != SXD_SEARCH_LANE_READY) {
            continue;
        }
        lane->row.restarts = 0;
        if (i >= op->lane_count) {
            give_up(lane, "this build has fewer lanes");
        } else {
            restart(lane, "another build of the compiler");
        }
    }
}

void sxd_search_begin(sxd_search *search)
{
    sxd_service *service = search->service;
    search->row.state = SXD_SEARCH_RUNNING;
    search->row.why[0] = '\0';
    if (strcmp(search->row.build, service->backend->build()) == 0) {
        return;
    }
    sxd_op *op = sxd_op_new(search, NULL);
    if (op == NULL) {
        sxd_search_stop(search, SXD_SEARCH_CANCELLED, "no memory");
        return;
    }
    search->preparing = true;
    op->run = run_prepare;
    op->done = on_prepare;
    sxd_op_put(service, op);
}

/* ---- which lane is next ---- */
/* Its state is read and the request for the worker written, on a pool thread. */
static void run_load(sxd_op *op, sx_search_db *db)
{
    op->code =
        sx_search_db_load(&op->cx, db, op->row.id, &op->lane_row, SX_SEARCH_STATE, &op->state);
    if (op->code != SX_OK) {
        return;
    }
    sx_step_args args = {
        .lane = op->lane_row.lane,
        .fuel = (int64_t)op->row.fuel,
        .state = op->state != NULL ? sx_blob_span(op->state) : (sx_span){0},
    };
    args.request.items = &op->request;
    args.request.count = 1;
    static const uint8_t room[SX_SP_HEAD_BYTES] = {0};
    sx_buf_put(&op->frame, room, sizeof(room));
    sx_rpc_encode_request(&op->frame, op->msgid, SX_METHOD_STEP, &args, NULL);
    op->code = sx_buf_check(&op->cx, &op->frame, "step");
    if (op->code == SX_OK) {
        sx_sp_head(op->frame.len - SX_SP_HEAD_BYTES, op->frame.ptr);
    }
}

static void on_load(sxd_op *op)
{
    sxd_search_lane *lane = op->lane;
    sxd_search *search = op->search;
    if (search->row.state != SXD_SEARCH_RUNNING || search->service->base->phase != SXD_UP) {
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
    } else if (op->code == SX_CORRUPT) {
        restart(lane, op->cx.error.text);
    } else if (op->code == SX_LIMIT) {
        give_up(lane, op->cx.error.text);
    } else if (op->code != SX_OK) { /* memory or disk: another time */
        (void)snprintf(search->row.why, sizeof(search->row.why), "%.200s", op->cx.error.text);
        sxd_search_lane_move(lane, SXD_SEARCH_LANE_READY);
        return; /* the sweep tries again */
    } else {
        sx_buf frame = op->frame;
        sx_buf_init(&op->frame, 0);
        if (lane->offering) {
            sxd_spread_put(lane, &frame);
        } else {
            lane->task.frame = frame;
            sxd_task_put(&lane->task);
            sxd_search_lane_move(lane, SXD_SEARCH_LANE_LOADED);
        }
    }
    sxd_work_run(search->service->work);
}

static void load(sxd_search_lane *lane, bool offering)
{
    sxd_service *service = lane->search->service;
    sxd_op *op = sxd_op_new(lane->search, lane);
    if (op == NULL) {
        return; /* the sweep tries again */
    }
    lane->offering = offering;
    lane->task.ticket = (uint32_t)(++service->next_job & UINT32_MAX);
    op->msgid = lane->task.ticket;
    op->run = run_load;
    op->done = on_load;
    sxd_search_lane_move(lane, SXD_SEARCH_LANE_LOADING);
    service->search_turn = lane->search->row.id;
    sxd_op_put(service, op);
}

void sxd_search_offer(sxd_search_lane *lane)
{
    SX_ASSERT(lane->phase == SXD_SEARCH_LANE_READY && !lane->guest);
    load(lane, true);
}

static bool has_budget(const sxd_search *search)
{
    return search->row.state == SXD_SEARCH_RUNNING && !search->preparing && !search->removing &&
           sxd_search_used_us(search) < search->row.budget_us;
}

/* Of the lanes that wait, the one with the fewest steps. */
static sxd_search_lane *next_of(sxd_search *search)
{
    sxd_search_lane *next = NULL;
    for (uint32_t i = 0; has_budget(search) && i < search->lane_count; i++) {
        sxd_search_lane *lane = &search->lane[i];
        if (lane->phase == SXD_SEARCH_LANE_READY &&
            (next == NULL || lane->row.step < next->row.step)) {
            next = lane;
        }
    }
    return next;
}

/* The searches take turns. */
sxd_search_lane *sxd_search_next(sxd_service *service)
{
    sxd_search_lane *first = NULL;
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        sxd_search_lane *lane = next_of(search);
        if (lane != NULL && search->row.id > service->search_turn) {
            return lane;
        }
        first = first == NULL ? lane : first;
    }
    return first;
}

/* Workers for searches: as many as allowed, else all but one, so that a compilation finds one at once. */
static uint32_t steps_max(const sxd_service *service)
{
    int64_t given = service->base->config.options.search_workers;
    if (given > 0) {
        return given < service->work->worker_count ? (uint32_t)given : service->work->worker_count;
    }
    return service->work->worker_count > 1 ? service->work->worker_count - 1 : 1;
}

uint32_t sxd_search_room(const sxd_service *service)
{
    uint32_t most = steps_max(service);
    bool full = service->base->phase != SXD_UP || sxd_work_waits(service->work, SXD_RANK_COMPILE) ||
                service->step_count >= most;
    return full ? 0 : most - service->step_count;
}

void sxd_search_fill(sxd_service *service)
{
    bool any = service->searches != NULL || service->guests != NULL;
    if (service->base->phase != SXD_UP || !any || sxd_work_waits(service->work, SXD_RANK_COMPILE)) {
        return;
    }
    while (service->step_count < steps_max(service)) {
        sxd_search_lane *lane = sxd_search_next(service);
        if (lane == NULL) {
            break;
        }
        load(lane, false);
        if (lane->phase != SXD_SEARCH_LANE_LOADING) {
            return;
        }
    }
    sxd_spread_run(service);
}

/* ---- now and then ---- */
void sxd_search_sweep(sxd_service *service)
{
    sxd_op_sweep(service);
    sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        sxd_search_settle(search);
    }
    sxd_work_run(service->work);
}

uint32_t sxd_search_running(const sxd_service *service)
{
    uint32_t n = 0;
    const sxd_search *search;
    DL_FOREACH(service->searches, search)
    {
        n += search->row.state == SXD_SEARCH_RUNNING ? 1 : 0;
    }
    return n;
}
