/* lease.c - who makes an artefact, and who waits for it. */
#include <stdlib.h>
#include <utlist.h>

#include "daemon/service/artefact.h"

static void on_late(sxd_waiter *waiter)
{
    sxd_call *call = sxd_call_of(waiter);
    sxd_service_of(call)->artefacts->waiting--;
    sxd_artefact_answer(call, "held", 0);
}

static void on_left(sxd_waiter *waiter)
{
    sxd_service_of(sxd_call_of(waiter))->artefacts->waiting--;
}

static const sxd_wait_class waited = {.late = on_late, .left = on_left};

/* Takes the first call off the waiters. */
static sxd_call *take(sxd_lease *lease, sxd_waiter *waiter)
{
    sxd_wait_end(waiter);
    lease->service->artefacts->waiting--;
    return sxd_call_of(waiter);
}

static void lease_free(sxd_lease *lease)
{
    sxd_artefacts *artefacts = lease->service->artefacts;
    SX_ASSERT(lease->waiters.count == 0 && artefacts->lease_count > 0);
    sxd_alarm_stop(lease->service->base, &lease->alarm);
    DL_DELETE(artefacts->leases, lease);
    artefacts->lease_count--;
    free(lease);
}

static void on_deadline(sxd_alarm *alarm)
{
    sxd_lease *lease = SXD_OWNER(sxd_lease, alarm, alarm);
    lease->service->base->metrics.artefact_leases_lost++;
    sxd_log(SXD_WARN, "lease-deadline", "lease=%lld pid=%d waiting=%u", (long long)lease->id,
            lease->pid, lease->waiters.count);
    sxd_lease_pass(lease);
}

/* From now on it is the caller's. */
static void give(sxd_lease *lease, const sxd_call *call)
{
    sxd_service *service = lease->service;
    SX_ASSERT(sxd_ask_of(call)->claim_ms > 0 && !sxd_alarm_is_set(&lease->alarm));
    lease->id = ++service->artefacts->next_lease;
    lease->peer = call->peer;
    lease->pid = call->principal.pid;
    service->base->metrics.artefact_claims++;
    sxd_alarm_set(service->base, &lease->alarm,
                  sxd_base_now(service->base) + (uint64_t)sxd_ask_of(call)->claim_ms, on_deadline);
}

sxd_lease *sxd_lease_find(sxd_service *service, uint32_t space, const sx_key *key)
{
    sxd_lease *lease;
    DL_FOREACH(service->artefacts->leases, lease)
    {
        if (lease->space == space && sx_key_equal(&lease->key, key)) {
            return lease;
        }
    }
    return NULL;
}

sxd_lease *sxd_lease_get(sxd_service *service, uint32_t space, int64_t id)
{
    sxd_lease *lease;
    DL_FOREACH(service->artefacts->leases, lease)
    {
        if (lease->space == space && lease->id == id) {
            return lease;
        }
    }
    return NULL;
}

sxd_lease *sxd_lease_new(sxd_call *call, uint32_t space, const sx_key *key)
{
    sxd_service *service = sxd_service_of(call);
    sxd_artefacts *artefacts = service->artefacts;
    SX_ASSERT(sxd_lease_find(service, space, key) == NULL);
    sxd_lease *lease = artefacts->lease_count < SXD_LEASES_MAX ? calloc(1, sizeof(*lease)) : NULL;
    if (lease == NULL) {
        return NULL;
    }
    lease->service = service;
    lease->space = space;
    lease->key = *key;
    lease->waiters = (sxd_waiters){.base = service->base, .class = &waited};
    DL_APPEND(artefacts->leases, lease);
    artefacts->lease_count++;
    give(lease, call);
    return lease;
}

/* ---- circles ---- */
static bool same_process(uint64_t peer, int32_t pid, const sxd_call *call)
{
    return pid > 0 ? pid == call->principal.pid : peer == call->peer;
}

/* Does the process that has the lease wait, by way of others, for the process of the call? Each lease is looked at
 * once. */
static bool leads_to(sxd_artefacts *artefacts, sxd_lease *lease, const sxd_call *call)
{
    sxd_lease *stack[SXD_LEASES_MAX];
    uint32_t depth = 0;
    sxd_lease *each;
    DL_FOREACH(artefacts->leases, each)
    {
        each->seen = false;
    }
    lease->seen = true;
    stack[depth++] = lease;
    while (depth > 0) {
        const sxd_lease *top = stack[--depth];
        if (same_process(top->peer, top->pid, call)) {
            return true;
        }
        DL_FOREACH(artefacts->leases, each)
        {
            sxd_waiter *waiter;
            for (waiter = each->seen ? NULL : each->waiters.first; waiter != NULL && !each->seen;
                 waiter = waiter->next) {
                if (same_process(top->peer, top->pid, sxd_call_of(waiter))) {
                    each->seen = true;
                    stack[depth++] = each; /* at most once for each lease */
                }
            }
        }
    }
    return false;
}

bool sxd_lease_is_circle(sxd_lease *lease, const sxd_call *call)
{
    return leads_to(lease->service->artefacts, lease, call);
}

/* ---- waiting, and the end ---- */
void sxd_lease_wait(sxd_lease *lease, sxd_call *call)
{
    sxd_ask *ask = sxd_ask_of(call);
    SX_ASSERT(!sxd_lease_is_circle(lease, call));
    ask->lease = lease;
    lease->service->artefacts->waiting++;
    uint64_t until = ask->hold_ms < call->deadline_ms ? ask->hold_ms : call->deadline_ms;
    sxd_wait_begin(&lease->waiters, &ask->waiter, until);
}

uint32_t sxd_lease_end(sxd_lease *lease, sx_blob *blob, const sx_cache_info *info)
{
    SX_ASSERT(blob != NULL);
    uint32_t served = 0;
    while (lease->waiters.first != NULL) {
        sxd_call *call = take(lease, lease->waiters.first);
        lease->service->base->metrics.artefact_shared++;
        sxd_artefact_answer_found(call, sx_blob_share(blob), info);
        served++;
    }
    lease_free(lease);
    return served;
}

void sxd_lease_pass(sxd_lease *lease)
{
    SX_ASSERT(lease->service->artefacts->lease_count > 0);
    sxd_alarm_stop(lease->service->base, &lease->alarm);
    sxd_waiter *waiter = lease->waiters.first;
    while (waiter != NULL && sxd_ask_of(sxd_call_of(waiter))->claim_ms == 0) {
        waiter = waiter->next;
    }
    if (waiter != NULL && lease->service->base->phase == SXD_UP) {
        sxd_call *call = take(lease, waiter);
        give(lease, call);
        sxd_artefact_answer(call, "claimed", lease->id);
        return;
    }
    while (lease->waiters.first != NULL) {
        sxd_artefact_answer(take(lease, lease->waiters.first), "absent", 0);
    }
    lease_free(lease);
}

void sxd_lease_forget(sxd_service *service, uint64_t peer)
{
    sxd_lease *lease;
    sxd_lease *next;
    DL_FOREACH_SAFE(service->artefacts->leases, lease, next)
    {
        if (lease->peer == peer) {
            service->base->metrics.artefact_leases_lost++;
            sxd_lease_pass(lease);
        }
    }
}

void sxd_lease_drain(sxd_service *service)
{
    SX_ASSERT(service->base->phase != SXD_UP);
    while (service->artefacts->leases != NULL) {
        sxd_lease_pass(service->artefacts->leases);
    }
    SX_ASSERT(service->artefacts->waiting == 0);
}
