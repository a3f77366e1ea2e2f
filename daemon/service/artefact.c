/* artefact.c - the methods of artefacts: get, put, release; what each cache holds. */
#include "daemon/service/artefact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_CACHE "cache"
#define PART_NAME "name"

sx_code sxd_artefact_open(sx_ctx *cx, sxd_service *service)
{
    service->artefacts = calloc(1, sizeof(*service->artefacts));
    return service->artefacts != NULL ? SX_OK : SX_FAIL(cx, SX_NOMEM, "artefacts: no memory");
}

void sxd_artefact_close(sxd_service *service)
{
    SX_ASSERT(service->artefacts == NULL || service->artefacts->leases == NULL);
    free(service->artefacts);
    service->artefacts = NULL;
}

/* ---- names ---- */
static bool is_name(sx_span cache)
{
    for (size_t i = 0; i < cache.len; i++) {
        uint8_t c = cache.ptr[i];
        bool fine =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!fine) {
            return false;
        }
    }
    return cache.len >= 1 && cache.len <= SXD_ARTEFACT_CACHE_MAX;
}

sx_code sxd_artefact_kind_of(sx_ctx *cx, sx_span cache, uint32_t *kind)
{
    if (!is_name(cache)) {
        return SX_FAIL(cx, SX_INPUT, "cache '%.*s': not 1 to %d of a-z, 0-9, '.', '_' and '-'",
                       (int)(cache.len <= 64 ? cache.len : 64), (const char *)cache.ptr,
                       SXD_ARTEFACT_CACHE_MAX);
    }
    *kind = SXD_KIND_ARTEFACT | (uint32_t)(sx_hash64(cache, 0) & (SXD_KIND_ARTEFACT - 1));
    return SX_OK;
}

static const char *known_name(const sxd_artefacts *artefacts, uint32_t kind)
{
    for (uint32_t i = 0; i < artefacts->kind_count; i++) {
        if (artefacts->kind[i].kind == kind) {
            return artefacts->kind[i].name;
        }
    }
    return NULL;
}

/* Remembers the name of a kind; beyond the limit it is read from an entry whenever it is asked for. */
static const char *learn(sxd_artefacts *artefacts, uint32_t kind, sx_span name)
{
    const char *known = known_name(artefacts, kind);
    if (known == NULL && is_name(name) && artefacts->kind_count < SXD_ARTEFACT_CACHES_MAX) {
        sxd_artefact_kind *row = &artefacts->kind[artefacts->kind_count++];
        row->kind = kind;
        memcpy(row->name, name.ptr, name.len);
        row->name[name.len] = '\0';
        known = row->name;
    }
    return known;
}

const char *sxd_artefact_cache_of(sxd_service *service, uint32_t kind, uint32_t space,
                                  const sx_key *key)
{
    SX_ASSERT(kind >= SXD_KIND_ARTEFACT && (space & SXD_ARTEFACT_SPACE) != 0);
    const char *known = known_name(service->artefacts, kind);
    if (known != NULL) {
        return known;
    }
    sx_ctx cx;
    sx_cache_info info;
    sx_cache_part *part;
    uint32_t count = 0;
    sx_ctx_init(&cx, 1 << 20);
    if (sx_cache_show(&cx, service->cache, space, key, &info, &part, &count) == SX_OK) {
        for (uint32_t i = 0; i < count && known == NULL; i++) {
            if (sx_span_is(part[i].name, PART_CACHE)) {
                known = learn(service->artefacts, kind, part[i].value);
            }
        }
    }
    sx_ctx_fini(&cx);
    return known != NULL ? known : "artefact";
}

/* ---- what is asked for ---- */
typedef struct {
    uint32_t space, kind;
    sx_key key;
} place;

static sx_key key_of(sx_span cache, sx_span name)
{
    sx_span parts[] = {cache, name};
    return sx_key_of("symplex-artefact-1", parts, SX_COUNT(parts));
}

sx_blob *sxd_artefact_rows(sxd_service *service, uint32_t user)
{
    sx_blob *blob;
    sx_cache_info info;
    if (service->backend->machine == NULL) {
        return NULL;
    }
    sx_key key =
        key_of(SX_SPAN_LITERAL(SX_CORE_KEPT_CACHE), sx_span_of(service->backend->machine()));
    sx_code code = sx_cache_get(service->cache, user | SXD_ARTEFACT_SPACE, &key, &blob, &info);
    return code == SX_OK ? blob : NULL;
}

static sx_code find_place(sx_ctx *cx, const sxd_call *call, sx_span cache, sx_span name, place *at)
{
    SX_TRY(sxd_artefact_kind_of(cx, cache, &at->kind));
    if (name.len < 1 || name.len > SXD_ARTEFACT_NAME_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "artefact: a name of %zu bytes, allowed are 1 to %d", name.len,
                       SXD_ARTEFACT_NAME_MAX);
    }
    if ((call->principal.space & SXD_ARTEFACT_SPACE) != 0) {
        return SX_FAIL(cx, SX_LIMIT, "artefact: user %u, at most %u", call->principal.space,
                       SXD_ARTEFACT_SPACE - 1);
    }
    at->space = call->principal.space | SXD_ARTEFACT_SPACE;
    at->key = key_of(cache, name);
    (void)learn(sxd_service_of(call)->artefacts, at->kind, cache);
    return SX_OK;
}

/* ---- get ---- */
static int64_t waited_ms(const sxd_call *call)
{
    const sxd_ask *ask = sxd_ask_of(call);
    return ask->since_ms == 0 ? 0
                              : (int64_t)(sxd_base_now(sxd_service_of(call)->base) - ask->since_ms);
}

void sxd_artefact_answer_found(sxd_call *call, sx_blob *blob, const sx_cache_info *info)
{
    sxd_service *service = sxd_service_of(call);
    SX_ASSERT(blob != NULL && sxd_ask_of(call)->waiter.of == NULL);
    sx_artefact_get_result result = {.state = SX_SPAN_LITERAL("found"),
                                     .waited_ms = waited_ms(call)};
    SX_PUT(&result, artefact_get_result, tier,
           sx_span_of(info->tier == SX_TIER_RAM ? "ram" : "disk"));
    SX_PUT(&result, artefact_get_result, cost_us, (int64_t)info->cost_us);
    SX_PUT(&result, artefact_get_result, value, sx_blob_span(blob));
    service->base->metrics.artefact_hits++;
    sxd_service_touch_cache(service);
    sxd_call_result(call, &result, blob);
}

void sxd_artefact_answer(sxd_call *call, const char *state, int64_t lease)
{
    SX_ASSERT(sxd_ask_of(call)->waiter.of == NULL);
    sx_artefact_get_result result = {.state = sx_span_of(state), .waited_ms = waited_ms(call)};
    if (lease != 0) {
        SX_PUT(&result, artefact_get_result, lease, lease);
    }
    sxd_call_result(call, &result, NULL);
}

/* claim_ms and wait_ms into the ask. */
static sx_code read_times(sxd_call *call, const sx_artefact_get_args *args)
{
    sxd_service *service = sxd_service_of(call);
    sxd_ask *ask = sxd_ask_of(call);
    ask->claim_ms = SX_HAS(args, artefact_get_args, claim_ms) ? args->claim_ms : 0;
    int64_t wait = SX_HAS(args, artefact_get_args, wait_ms) ? args->wait_ms : 0;
    if (ask->claim_ms < 0 || ask->claim_ms > SXD_LEASE_MS_MAX || wait < 0) {
        return SX_FAIL(
            &call->cx, SX_INPUT,
            "artefact.get: claim_ms %lld and wait_ms %lld, allowed are 0 to %d, and 0 or more",
            (long long)ask->claim_ms, (long long)wait, SXD_LEASE_MS_MAX);
    }
    wait = sx_min_i64(wait, service->base->config.options.wait_ms);
    uint64_t now = sxd_base_now(service->base);
    ask->since_ms = now;
    ask->hold_ms = now + (uint64_t)wait;
    return SX_OK;
}

/* Nothing is there. */
static void decide(sxd_call *call, const place *at)
{
    sxd_service *service = sxd_service_of(call);
    const sxd_ask *ask = sxd_ask_of(call);
    if (service->base->phase != SXD_UP) {
        sxd_artefact_answer(call, "absent", 0);
        return;
    }
    sxd_lease *lease = sxd_lease_find(service, at->space, &at->key);
    if (lease == NULL) {
        lease = ask->claim_ms > 0 ? sxd_lease_new(call, at->space, &at->key) : NULL;
        sxd_artefact_answer(call, lease != NULL ? "claimed" : "absent",
                            lease != NULL ? lease->id : 0);
    } else if (sxd_lease_is_circle(lease, call)) {
        sxd_artefact_answer(call, "absent", 0);
    } else if (ask->hold_ms <= sxd_base_now(service->base)) {
        sxd_artefact_answer(call, "held", 0);
    } else {
        sxd_lease_wait(lease, call);
    }
}

void sxd_artefact_get(sxd_call *call)
{
    const sx_artefact_get_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    place at;
    if (find_place(&call->cx, call, args->cache, args->name, &at) != SX_OK ||
        read_times(call, args) != SX_OK) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    sx_blob *blob;
    sx_cache_info info;
    if (sx_cache_get(service->cache, at.space, &at.key, &blob, &info) == SX_OK) {
        sxd_artefact_answer_found(call, blob, &info);
        return;
    }
    service->base->metrics.artefact_misses++;
    decide(call, &at);
}

/* ---- put, release ---- */

/* Those that wait get a copy of what was put: the cache may have no room for it. */
static uint32_t serve_waiting(sxd_service *service, const place *at,
                              const sx_artefact_put_args *args)
{
    sxd_lease *lease = sxd_lease_find(service, at->space, &at->key);
    if (lease == NULL) {
        return 0;
    }
    sx_blob *blob = sx_blob_new(args->value.len);
    if (blob == NULL) {
        sxd_lease_pass(lease);
        return 0;
    }
    if (args->value.len > 0) {
        memcpy(sx_blob_bytes(blob), args->value.ptr, args->value.len);
    }
    sx_cache_info info = {.tier = SX_TIER_RAM};
    info.cost_us = SX_HAS(args, artefact_put_args, cost_us) ? (uint64_t)args->cost_us : 0;
    uint32_t served = sxd_lease_end(lease, blob, &info);
    sx_blob_free(blob);
    return served;
}

void sxd_artefact_put(sxd_call *call)
{
    const sx_artefact_put_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    place at;
    int64_t cost_us = SX_HAS(args, artefact_put_args, cost_us) ? args->cost_us : 0;
    sx_code code = find_place(&call->cx, call, args->cache, args->name, &at);
    if (code == SX_OK && cost_us < 0) {
        code = SX_FAIL(&call->cx, SX_INPUT, "artefact.put: cost_us %lld, allowed is 0 or more",
                       (long long)cost_us);
    }
    if (code != SX_OK) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    sx_span name = args->name;
    name.len = name.len < SX_CACHE_PART_VALUE_MAX ? name.len : SX_CACHE_PART_VALUE_MAX;
    sx_cache_part part[] = {{SX_SPAN_LITERAL(PART_CACHE), args->cache},
                            {SX_SPAN_LITERAL(PART_NAME), name}};
    sx_cache_item item = {.key = at.key,
                          .ns = at.space,
                          .kind = at.kind,
                          .cost_us = (uint64_t)cost_us,
                          .bytes = args->value,
                          .part = part,
                          .part_count = SX_COUNT(part)};
    code = sx_cache_put(&call->cx, service->cache, &item);
    service->base->metrics.artefact_puts++;
    if (code != SX_OK) { /* it is in memory alone, if at all */
        service->base->metrics.store_failed++;
    }
    sx_artefact_put_result result = {.key = at.key, .stored = code == SX_OK};
    result.served = serve_waiting(service, &at, args);
    sxd_service_tick_cache(service);
    sxd_call_result(call, &result, NULL);
}

void sxd_artefact_release(sxd_call *call)
{
    const sx_artefact_release_args *args = call->request.args;
    sxd_lease *lease = sxd_lease_get(sxd_service_of(call),
                                     call->principal.space | SXD_ARTEFACT_SPACE, args->lease);
    sx_artefact_release_result result = {.released = lease != NULL};
    if (lease != NULL) {
        sxd_lease_pass(lease);
    }
    sxd_call_result(call, &result, NULL);
}

/* ---- what each cache holds ---- */
typedef struct {
    sx_artefact_cache_row row[SXD_ARTEFACT_CACHES_MAX];
    uint32_t kind[SXD_ARTEFACT_CACHES_MAX];
    sx_key key[SXD_ARTEFACT_CACHES_MAX]; /* of one of its entries */
    uint32_t count;
} usage;

static bool add_entry(void *self, const sx_cache_info *info)
{
    usage *all = self;
    int64_t uid = info->ns & ~SXD_ARTEFACT_SPACE;
    if (info->kind < SXD_KIND_ARTEFACT) {
        return true;
    }
    uint32_t i = 0;
    while (i < all->count && (all->kind[i] != info->kind || all->row[i].uid != uid)) {
        i++;
    }
    if (i == all->count && i == SXD_ARTEFACT_CACHES_MAX) {
        return true;
    }
    if (i == all->count) {
        all->kind[i] = info->kind;
        all->key[i] = info->key;
        all->row[i] = (sx_artefact_cache_row){.uid = uid};
        all->count++;
    }
    all->row[i].entries++;
    all->row[i].size += (int64_t)info->size;
    all->row[i].stored += (int64_t)info->stored_size;
    all->row[i].hits += (int64_t)info->hits;
    all->row[i].cost_us += (int64_t)info->cost_us;
    return true;
}

static int by_cache(const void *left, const void *right)
{
    const sx_artefact_cache_row *a = left;
    const sx_artefact_cache_row *b = right;
    size_t common = a->cache.len < b->cache.len ? a->cache.len : b->cache.len;
    int order = memcmp(a->cache.ptr, b->cache.ptr, common);
    order = order != 0 ? order : (a->cache.len > b->cache.len) - (a->cache.len < b->cache.len);
    return order != 0 ? order : (a->uid > b->uid) - (a->uid < b->uid);
}

void sxd_artefact_caches(sxd_call *call)
{
    sxd_service *service = sxd_service_of(call);
    usage *all = SX_NEW(&call->cx, usage);
    if (all == NULL ||
        sx_cache_list(&call->cx, service->cache, UINT32_MAX, add_entry, all) != SX_OK) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t space = (uint32_t)all->row[i].uid | SXD_ARTEFACT_SPACE;
        all->row[i].cache =
            sx_span_of(sxd_artefact_cache_of(service, all->kind[i], space, &all->key[i]));
    }
    qsort(all->row, all->count, sizeof(all->row[0]), by_cache);
    sx_artefact_caches_result result = {
        .leases = service->artefacts->lease_count,
        .waiting = service->artefacts->waiting,
        .quota = service->base->config.options.artefact_mb << 20,
    };
    result.caches.items = all->row;
    result.caches.count = all->count;
    sxd_call_result(call, &result, NULL);
}
