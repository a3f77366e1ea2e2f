/* compile.c - compile, optimize and get: the key of a request, the hit, or the job that makes it. */
#include <stdlib.h>
#include <string.h>

#include "daemon/service/service.h"

#define KEY_ARENA_BYTES ((size_t)1 << 30)
#define RETRY_MS 1000
#define MEMO_PROGRAM_BYTES_MAX \
    ((size_t)1                 \
     << 20) /* a longer program is not hashed on the loop: its key is computed each time */

typedef enum { MODE_WAIT, MODE_ASYNC, MODE_HIT_ONLY } compile_mode;

static bool read_mode(const sx_compile_args *args, compile_mode *mode)
{
    *mode = MODE_WAIT;
    if (!SX_HAS(args, compile_args, mode) || sx_span_is(args->mode, "wait")) {
        return true;
    }
    if (sx_span_is(args->mode, "async")) {
        *mode = MODE_ASYNC;
        return true;
    }
    *mode = MODE_HIT_ONLY;
    return sx_span_is(args->mode, "hit_only");
}

static bool wants_refresh(const sx_compile_args *args)
{
    return SX_HAS(args, compile_args, refresh) && args->refresh;
}

/* Where the answer of a call lies in the cache. */
static sx_key slot_of(sx_method method, const sx_key *key)
{
    sx_span part = {key->byte, SX_KEY_BYTES};
    return method == SX_METHOD_OPTIMIZE ? sx_key_of("optimize", &part, 1) : *key;
}

/* ---- requests seen before ---- */
/* Digest of all that the key depends on, without reading the program. */
static sx_code digest_of(sx_ctx *cx, const sx_compile_args *args, sx_key *digest)
{
    sx_compile_args rest = *args;
    rest.ir = (sx_span){0};
    rest.has &= ~(SX_BIT(compile_args, mode) | SX_BIT(compile_args, refresh) |
                  SX_BIT(compile_args, wait_ms));
    sx_buf text;
    sx_buf_init(&text, SX_RPC_REQUEST_BYTES_MAX);
    sx_message_encode(&text, &sx_message_compile_args, &rest, NULL);
    sx_code code = sx_buf_check(cx, &text, "request");
    if (code == SX_OK) {
        sx_span parts[2] = {args->ir, sx_buf_span(&text)};
        *digest = sx_key_of("request", parts, 2);
    }
    sx_buf_fini(&text);
    return code;
}

static sxd_memo *memo_set(sxd_service *service, const sx_key *request)
{
    uint32_t index = ((uint32_t)request->byte[0] | (uint32_t)request->byte[1] << 8) % SXD_MEMO_SETS;
    return &service->memo[index * SXD_MEMO_WAYS];
}

static bool memo_find(sxd_service *service, const sx_key *request, sx_key *key)
{
    sxd_memo *set = memo_set(service, request);
    for (uint32_t i = 0; i < SXD_MEMO_WAYS; i++) {
        if (set[i].used != 0 && sx_key_equal(&set[i].request, request)) {
            set[i].used = ++service->memo_clock;
            *key = set[i].key;
            return true;
        }
    }
    return false;
}

static void memo_put(sxd_service *service, const sx_key *request, const sx_key *key)
{
    sxd_memo *set = memo_set(service, request);
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < SXD_MEMO_WAYS; i++) {
        if (sx_key_equal(&set[i].request, request)) {
            oldest = i;
            break;
        }
        oldest = set[i].used < set[oldest].used ? i : oldest;
    }
    set[oldest] = (sxd_memo){.request = *request, .key = *key, .used = ++service->memo_clock};
}

/* ---- answers from the cache ---- */
static const char *tier_name(sx_cache_tier tier)
{
    return tier == SX_TIER_RAM ? "ram" : "disk";
}

/* Answers the call from the cache; false when there is nothing. */
static bool answer_hit(sxd_call *call, const sx_key *key, const sx_key *slot)
{
    sxd_service *service = sxd_service_of(call);
    sx_blob *blob;
    sx_cache_info info;
    if (sx_cache_get(service->cache, call->principal.space, slot, &blob, &info) != SX_OK) {
        return false;
    }
    *(info.tier == SX_TIER_RAM ? &service->base->metrics.hits_ram
                               : &service->base->metrics.hits_disk) += 1;
    sxd_service_touch_cache(service);
    if (call->request.method == SX_METHOD_OPTIMIZE) {
        sx_optimize_result result = {
            .key = *key,
            .tier = sx_span_of(tier_name(info.tier)),
            .cost_us = (int64_t)info.cost_us,
            .module = sx_blob_span(blob),
        };
        sxd_call_result(call, &result, NULL);
        sx_blob_free(blob);
        return true;
    }
    sx_compile_result result = {
        .key = *key,
        .state = SX_SPAN_LITERAL("done"),
        .tier = sx_span_of(tier_name(info.tier)),
    };
    SX_PUT(&result, compile_result, cost_us, (int64_t)info.cost_us);
    SX_PUT(&result, compile_result, module, sx_blob_span(blob));
    sxd_call_result(call, &result, blob);
    return true;
}

void sxd_get(sxd_call *call)
{
    SX_ASSERT(call->request.method == SX_METHOD_GET);
    const sx_get_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    sx_blob *blob;
    sx_cache_info info;
    if (sx_cache_get(service->cache, call->principal.space, &args->key, &blob, &info) != SX_OK) {
        char text[SX_KEY_TEXT_SIZE];
        sx_key_print(&args->key, text);
        service->base->metrics.absent++;
        sxd_call_refuse(call, SX_ABSENT, 0, "get: no entry %s", text);
        return;
    }
    *(info.tier == SX_TIER_RAM ? &service->base->metrics.hits_ram
                               : &service->base->metrics.hits_disk) += 1;
    sxd_service_touch_cache(service);
    sx_get_result result = {
        .key = args->key,
        .tier = sx_span_of(tier_name(info.tier)),
        .cost_us = (int64_t)info.cost_us,
        .module = sx_blob_span(blob),
    };
    sxd_call_result(call, &result, blob);
}

/* ---- misses ---- */
static void accept_async(sxd_job *job, sxd_call *call, bool coalesced)
{
    sxd_job_keep(job);
    sx_compile_result result = {
        .key = job->key,
        .state = sx_span_of(sxd_job_state_name(job->state)),
        .tier = SX_SPAN_LITERAL("none"),
    };
    SX_PUT(&result, compile_result, coalesced, coalesced);
    SX_PUT(&result, compile_result, job, job->id);
    SX_PUT(&result, compile_result, seq, job->seq);
    sxd_call_result(call, &result, NULL);
}

/* Refuses what may not start a compilation; true when the call was answered. */
static bool refuse_miss(sxd_call *call, const sx_key *slot, compile_mode mode, bool refresh)
{
    sxd_service *service = sxd_service_of(call);
    char text[SX_KEY_TEXT_SIZE];
    sx_cache_strikes strikes;
    sx_key_print(&sxd_ask_of(call)->key.key, text);
    if (mode == MODE_HIT_ONLY) {
        sxd_call_refuse(call, SX_ABSENT, 0, "compile: no entry %s", text);
        return true;
    }
    if (refresh) {
        (void)sx_cache_pardon(service->cache, slot); /* an explicit wish to try again */
    } else if (sx_cache_is_quarantined(service->cache, slot, &strikes)) {
        service->base->metrics.quarantined++;
        sxd_call_refuse(call, SX_QUARANTINED, 0, "compile: key %.16s killed %u workers: %s", text,
                        strikes.count, strikes.signature);
        return true;
    }
    if (service->base->phase != SXD_UP) {
        service->base->metrics.refused_busy++;
        sxd_call_refuse(call, SX_BUSY, RETRY_MS, "compile: the daemon is stopping");
        return true;
    }
    return false;
}

static void start_or_join(sxd_call *call, const sx_key *slot, compile_mode mode,
                          const sxd_candidates *candidates)
{
    sxd_service *service = sxd_service_of(call);
    int64_t queue_max = service->base->config.options.queue_max;
    sxd_job *job = sxd_job_find_active(service, slot, call->principal.space);
    bool coalesced = job != NULL;
    if (coalesced) {
        job->coalesced++;
        service->base->metrics.coalesced++;
    } else if (service->active_count >= queue_max) {
        service->base->metrics.refused_busy++;
        sxd_call_refuse(call, SX_BUSY, RETRY_MS, "queue: %u compilations, at most %lld",
                        service->active_count, (long long)queue_max);
        return;
    } else {
        job = sxd_job_new(service, call, slot, candidates);
        if (job == NULL) {
            sxd_call_refuse(call, SX_NOMEM, RETRY_MS, "queue: no memory for a compilation");
            return;
        }
        char key[SX_KEY_TEXT_SIZE];
        sx_key_print(&job->key, key);
        sxd_log(SXD_INFO, "job",
                "req=%llu job=%lld state=queued method=%s key=%.16s uid=%u trace=%s",
                (unsigned long long)call->id, (long long)job->id, sx_method_get(job->method)->name,
                key, job->uid, call->trace[0] != '\0' ? call->trace : "none");
    }
    if (mode == MODE_ASYNC && call->request.method == SX_METHOD_COMPILE) {
        accept_async(job, call, coalesced);
    } else {
        sxd_ask_of(call)->coalesced = coalesced;
        sxd_queue_hold(job, call);
    }
    sxd_work_run(service->work);
}

/* The key is known, with its parts. The program may be known in other words: then sxd_library_look gets `reading`. */
static void decide(sxd_call *call, sxd_reading **reading)
{
    const sx_compile_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    compile_mode mode;
    bool known = read_mode(args, &mode);
    SX_ASSERT(known);
    sx_key slot = slot_of(call->request.method, &sxd_ask_of(call)->key.key);
    bool refresh = wants_refresh(args);
    if (!refresh && answer_hit(call, &sxd_ask_of(call)->key.key, &slot)) {
        return;
    }
    if (mode == MODE_HIT_ONLY) {
        service->base->metrics.absent++;
    } else {
        service->base->metrics.misses++;
    }
    if (refuse_miss(call, &slot, mode, refresh)) {
        return;
    }
    if (call->deadline_ms <= sxd_base_now(service->base)) {
        service->base->metrics.expired++;
        sxd_call_refuse(call, SX_TIMEOUT, 0, "compile: the deadline of the call passed");
        return;
    }
    if (SX_HAS(args, compile_args, wait_ms)) {
        int64_t wait =
            sx_min_i64(sx_max_i64(args->wait_ms, 0), service->base->config.options.wait_ms);
        sxd_ask_of(call)->hold_ms = sxd_base_now(service->base) + (uint64_t)wait;
    }
    /* a job under way is joined at once; a new one may find that its program is known in other words */
    bool keeps = service->backend->places != NULL && service->base->config.options.egraph_kb > 0;
    if (keeps && !refresh && sxd_job_find_active(service, &slot, call->principal.space) == NULL) {
        sxd_library_look(call, *reading);
        *reading = NULL;
        return;
    }
    start_or_join(call, &slot, mode, NULL);
}

void sxd_compile_start(sxd_call *call, const sxd_candidates *candidates)
{
    compile_mode mode;
    bool known = read_mode(call->request.args, &mode);
    sx_key slot = slot_of(call->request.method, &sxd_ask_of(call)->key.key);
    SX_ASSERT(known && mode != MODE_HIT_ONLY);
    /* while candidates were looked for, the same request of somebody else may have come to its end */
    if (!wants_refresh(call->request.args) && answer_hit(call, &sxd_ask_of(call)->key.key, &slot)) {
        return;
    }
    start_or_join(call, &slot, mode, candidates);
}

/* ---- keys, on a pool thread ---- */
void sxd_reading_free(sxd_reading *reading)
{
    if (reading != NULL) {
        sx_ctx_fini(&reading->cx);
        free(reading);
    }
}

typedef struct {
    sxd_task task;
    sxd_call *call;
    const sxd_backend *backend;
    sxd_reading *reading; /* freed before the call waits for a job */
    sx_key request;       /* for the memo, when `remember` */
    bool remember;
    sx_code code;
} keying;

static void run_key(sxd_task *task)
{
    keying *k = SXD_OWNER(keying, task, task);
    k->code = k->backend->key(&k->reading->cx, k->call->request.args, &k->reading->key);
}

/* The key and copies of its parts, into the call. */
static sx_code take_key(sxd_call *call, const sxd_key *key)
{
    SX_ASSERT(key->part_count <= SX_CACHE_PART_MAX);
    sxd_ask_of(call)->key.key = key->key;
    sxd_ask_of(call)->key.part_count = key->part_count;
    for (uint32_t i = 0; i < key->part_count; i++) {
        const char *name = sx_alloc_text(&call->cx, key->part[i].name);
        const char *value = sx_alloc_text(&call->cx, key->part[i].value);
        if (name == NULL || value == NULL) {
            return call->cx.error.code;
        }
        sxd_ask_of(call)->key.part[i] = (sx_cache_part){
            .name = {(const uint8_t *)name, key->part[i].name.len},
            .value = {(const uint8_t *)value, key->part[i].value.len},
        };
    }
    return SX_OK;
}

static void on_key(sxd_task *task, const sxd_end *end)
{
    keying *k = SXD_OWNER(keying, task, task);
    sxd_call *call = k->call;
    sxd_service *service = sxd_service_of(call);
    sxd_reading *reading = k->reading;
    sx_error error = reading->cx.error;
    sx_key request = k->request;
    bool remember = k->remember;
    sx_code code = k->code;
    SX_ASSERT(end->kind == SXD_END_DONE);
    if (code == SX_OK) {
        code = take_key(call, &reading->key);
        error = call->cx.error;
    }
    free(k);
    service->base->metrics.keyed++;
    bool there = sxd_call_unpin(call);
    if (there && code == SX_OK) {
        if (remember) {
            memo_put(service, &request, &sxd_ask_of(call)->key.key);
        }
        decide(call, &reading);
    } else if (there) {
        SX_ASSERT(error.code != SX_OK);
        sxd_call_fail(call, &error, 0);
    } /* else the client left meanwhile */
    sxd_reading_free(reading);
}

static const sxd_task_class key_class = {.name = "key", .run = run_key, .end = on_key};

/* `request`: digest for the memo; NULL: not to be remembered. */
static void begin_keying(sxd_call *call, const sx_key *request)
{
    sxd_service *service = sxd_service_of(call);
    keying *k = calloc(1, sizeof(*k));
    sxd_reading *reading = calloc(1, sizeof(*reading));
    if (k == NULL || reading == NULL) {
        free(k);
        free(reading);
        sxd_call_refuse(call, SX_NOMEM, RETRY_MS, "compile: no memory");
        return;
    }
    k->call = call;
    k->backend = service->backend;
    k->remember = request != NULL;
    if (request != NULL) {
        k->request = *request;
    }
    sx_ctx_init(&reading->cx, KEY_ARENA_BYTES);
    k->reading = reading;
    sxd_call_pin(call);
    sxd_task_init(&k->task, service->work, &key_class);
    sxd_task_put(&k->task);
}

void sxd_compile(sxd_call *call)
{
    SX_ASSERT(call->request.method == SX_METHOD_COMPILE ||
              call->request.method == SX_METHOD_OPTIMIZE);
    const sx_compile_args *args = call->request.args;
    sxd_service *service = sxd_service_of(call);
    compile_mode mode;
    sx_key request;
    sx_key key;
    if (!read_mode(args, &mode)) {
        sxd_call_refuse(call, SX_INPUT, 0, "compile: mode is not wait, async or hit_only");
        return;
    }
    if (args->ir.len > MEMO_PROGRAM_BYTES_MAX) {
        begin_keying(call, NULL);
        return;
    }
    if (digest_of(&call->cx, args, &request) != SX_OK) {
        sxd_call_fail(call, &call->cx.error, 0);
        return;
    }
    if (memo_find(service, &request, &key)) {
        service->base->metrics.memo_hits++;
        sx_key slot = slot_of(call->request.method, &key);
        if (!wants_refresh(args) && answer_hit(call, &key, &slot)) {
            return;
        }
    }
    begin_keying(call, &request);
}
