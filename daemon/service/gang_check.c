/* gang_check.c - sessions of jobs: have all ranks used the same modules? */
#include <stdlib.h>
#include <string.h>

#include "daemon/service/gang.h"

static void answer_verdict(sxd_gang *gang, sxd_call *call)
{
    sx_session_check_result result = {
        .state = sx_span_of(gang->difference_count == 0 ? "equal" : "different")};
    result.differences.items = gang->difference;
    result.differences.count = gang->difference_count;
    sxd_call_result(call, &result, NULL);
}

/* Which ranks have not come. */
static void answer_waiting(const sxd_gang *gang, sxd_call *call)
{
    sx_session_rank_row rows[SXD_GANG_ROWS_MAX];
    sx_session_check_result result = {.state = SX_SPAN_LITERAL("waiting")};
    result.missing.items = rows;
    for (uint32_t i = 0; i < gang->world && result.missing.count < SXD_GANG_ROWS_MAX; i++) {
        if (!gang->rank[i].arrived) {
            rows[result.missing.count++] = sxd_gang_rank_row(gang, i);
        }
    }
    sxd_call_result(call, &result, NULL);
}

static void on_late(sxd_waiter *waiter)
{
    sxd_call *call = sxd_call_of(waiter);
    answer_waiting(sxd_ask_of(call)->gang, call);
}

/* What it told stays: a rank that comes back need not wait with the others to be counted. */
static void on_left(sxd_waiter *waiter)
{
    SX_ASSERT(sxd_ask_of(sxd_call_of(waiter))->gang != NULL);
}

const sxd_wait_class sxd_gang_waited = {.late = on_late, .left = on_left};

static sxd_call *take_first(sxd_gang *gang)
{
    sxd_waiter *waiter = gang->waiters.first;
    if (waiter == NULL) {
        return NULL;
    }
    sxd_wait_end(waiter);
    return sxd_call_of(waiter);
}

void sxd_gang_tell_waiting(sxd_gang *gang)
{
    for (sxd_call *call = take_first(gang); call != NULL; call = take_first(gang)) {
        answer_waiting(gang, call);
    }
}

/* ---- comparing ---- */
static int by_key(const void *left, const void *right)
{
    const sx_session_entry *a = left;
    const sx_session_entry *b = right;
    int order = memcmp(a->key.byte, b->key.byte, SX_KEY_BYTES);
    return order != 0 ? order : memcmp(a->digest.byte, b->digest.byte, SX_KEY_BYTES);
}

static void note(sxd_gang *gang, uint32_t rank, const sx_session_entry *its, uint32_t other,
                 const sx_session_entry *others)
{
    if (gang->difference_count == SXD_GANG_ROWS_MAX) {
        return;
    }
    sx_session_difference *row = &gang->difference[gang->difference_count++];
    *row = (sx_session_difference){
        .rank = rank, .key = its != NULL ? its->key : others->key, .other_rank = other};
    if (its != NULL) {
        SX_PUT(row, session_difference, digest, its->digest);
    }
    if (others != NULL) {
        SX_PUT(row, session_difference, other_digest, others->digest);
    }
}

/* Both lists ascend by key. */
static void compare(sxd_gang *gang, uint32_t rank, uint32_t other)
{
    const sxd_rank *a = &gang->rank[rank];
    const sxd_rank *b = &gang->rank[other];
    uint32_t i = 0;
    uint32_t j = 0;
    while (i < a->count || j < b->count) {
        int order = i == a->count ? 1
                    : j == b->count
                        ? -1
                        : memcmp(a->entry[i].key.byte, b->entry[j].key.byte, SX_KEY_BYTES);
        if (order == 0 && !sx_key_equal(&a->entry[i].digest, &b->entry[j].digest)) {
            note(gang, rank, &a->entry[i], other, &b->entry[j]);
        } else if (order != 0) {
            note(gang, rank, order < 0 ? &a->entry[i] : NULL, other,
                 order > 0 ? &b->entry[j] : NULL);
        }
        i += order <= 0 ? 1 : 0;
        j += order >= 0 ? 1 : 0;
    }
}

static bool same_list(const sxd_rank *a, const sxd_rank *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        if (by_key(&a->entry[i], &b->entry[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* The rank whose list most ranks have; of several the lowest. */
static uint32_t most_common(const sxd_gang *gang)
{
    uint32_t best = 0;
    uint32_t best_count = 0;
    for (uint32_t i = 0; i < gang->world && best_count <= gang->world / 2; i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < gang->world; j++) {
            count += same_list(&gang->rank[i], &gang->rank[j]) ? 1 : 0;
        }
        if (count > best_count) {
            best = i;
            best_count = count;
        }
    }
    return best;
}

/* All have come: the verdict, which each rank that waits is told. */
static void finish_round(sxd_gang *gang)
{
    uint32_t other = most_common(gang);
    gang->difference_count = 0;
    for (uint32_t i = 0; i < gang->world; i++) {
        if (!same_list(&gang->rank[i], &gang->rank[other])) {
            compare(gang, i, other);
        }
    }
    gang->round++;
    gang->arrived = 0;
    for (uint32_t i = 0; i < gang->world; i++) {
        free(gang->rank[i].entry);
        gang->rank[i].entry = NULL;
        gang->rank[i].count = 0;
        gang->rank[i].arrived = false;
    }
    *(gang->difference_count == 0 ? &gang->service->base->metrics.session_checks
                                  : &gang->service->base->metrics.session_differences) += 1;
    for (sxd_call *call = take_first(gang); call != NULL; call = take_first(gang)) {
        answer_verdict(gang, call);
    }
}

/* ---- the method ---- */
static sx_code take_entries(sx_ctx *cx, const sx_session_check_args *args, sxd_rank *rank)
{
    uint32_t count = args->entries.count;
    if (count > SXD_GANG_ENTRIES_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "session.check: %u modules, at most %d", count,
                       SXD_GANG_ENTRIES_MAX);
    }
    sx_session_entry *entry = calloc(count + 1, sizeof(*entry));
    if (entry == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "session.check: no memory for %u modules", count);
    }
    if (count > 0) {
        memcpy(entry, args->entries.items, count * sizeof(*entry));
        qsort(entry, count, sizeof(*entry), by_key);
    }
    for (uint32_t i = 1; i < count; i++) {
        if (sx_key_equal(&entry[i - 1].key, &entry[i].key)) {
            free(entry);
            return SX_FAIL(cx, SX_INPUT, "session.check: a key stands there twice");
        }
    }
    free(rank->entry);
    rank->entry = entry;
    rank->count = count;
    return SX_OK;
}

void sxd_gang_check(sxd_call *call)
{
    const sx_session_check_args *args = call->request.args;
    sxd_gang *gang = sxd_gang_of_rank(call, args->session, args->rank);
    if (gang == NULL) {
        return;
    }
    if (args->round == gang->round && gang->round > 0) { /* it did not hear the verdict */
        answer_verdict(gang, call);
        return;
    }
    if (args->round != gang->round + 1) {
        sxd_call_refuse(call, SX_INPUT, 0,
                        "session '%s': rank %lld is at check %lld, the job at %lld", gang->job,
                        (long long)args->rank, (long long)args->round, (long long)gang->round + 1);
        return;
    }
    SX_ASSERT(gang->arrived < gang->world);
    sxd_rank *rank = &gang->rank[args->rank];
    if (take_entries(&call->cx, args, rank) != SX_OK) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    gang->arrived += rank->arrived ? 0 : 1;
    rank->arrived = true;
    if (gang->arrived == gang->world) {
        finish_round(gang);
        answer_verdict(gang, call);
        return;
    }
    sxd_service *service = gang->service;
    int64_t wait = SX_HAS(args, session_check_args, wait_ms) ? args->wait_ms : 0;
    wait = sx_min_i64(sx_max_i64(wait, 0), service->base->config.options.wait_ms);
    if (wait == 0 || service->base->phase != SXD_UP) {
        answer_waiting(gang, call);
        return;
    }
    sxd_ask_of(call)->gang = gang;
    uint64_t until = sxd_base_now(service->base) + (uint64_t)wait;
    sxd_wait_begin(&gang->waiters, &sxd_ask_of(call)->waiter,
                   until < call->deadline_ms ? until : call->deadline_ms);
}
