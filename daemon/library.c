/* library.c - e-graphs of stored programs: candidates for a miss, and what workers leave.
 *
 * Programs that may be equal share a family (sx_core_family), and a family has SXD_LIBRARY_WAYS places in the cache of the user, entries
 * like any other: quota, eviction, checksums and restarts are the cache's business.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/state.h"

#define FAMILY_ARENA_BYTES ((size_t)1 << 30)
#define TWIN_ARENA_BYTES ((size_t)1 << 24)
#define CANDIDATE_BYTES_MAX ((size_t)32 << 20) /* all of one job, with their modules */

static sx_key place_of(const sx_key *family, uint32_t way)
{
    uint8_t number = (uint8_t)way;
    const sx_span part[] = {{family->byte, SX_KEY_BYTES}, {&number, 1}};
    return sx_key_of("e-graph place", part, SX_COUNT(part));
}

/* ---- candidates ---- */
static void log_damage(sxd_daemon *daemon, const sx_key *place, const char *why)
{
    char key[SX_KEY_TEXT_SIZE];
    char quoted[SXD_QUOTE_MAX];
    sx_key_print(place, key);
    daemon->metrics.egraphs_refused++;
    sxd_log(SXD_WARN, "egraph", "key=%.16s refused=%s", key, sxd_quote(quoted, sx_span_of(why)));
}

/* An entry of the caller's; NULL: not there. `size`: bytes left for candidates. */
static sx_blob *take(sxd_call *call, const sx_key *key, uint32_t kind, size_t *size)
{
    sx_blob *blob;
    sx_cache_info info;
    if (sx_cache_get(call->daemon->cache, call->uid, key, &blob, &info) != SX_OK) {
        return NULL;
    }
    size_t bytes = sx_blob_span(blob).len;
    if (info.kind != kind || bytes > *size) {
        sx_blob_free(blob);
        return NULL;
    }
    *size -= bytes;
    return blob;
}

static void find_candidates(sxd_call *call, sxd_candidates *found)
{
    sxd_daemon *daemon = call->daemon;
    sxd_library *library = &found->library;
    size_t size = CANDIDATE_BYTES_MAX;
    for (uint32_t way = 0; way < SXD_LIBRARY_WAYS; way++) {
        sx_key place = place_of(&library->family, way);
        sx_cache_stats before, after;
        sx_cache_stats_of(daemon->cache, &before);
        sx_blob *egraph = take(call, &place, SXD_KIND_EGRAPH, &size);
        sx_cache_stats_of(daemon->cache, &after);
        if (after.corrupt > before.corrupt) {
            log_damage(daemon, &place, "damaged in the store");
        }
        if (egraph == NULL) {
            continue;
        }
        sx_ctx cx;
        uint32_t i = library->candidate_count;
        sx_ctx_init(&cx, TWIN_ARENA_BYTES);
        if (daemon->backend->twin(&cx, call->request.args, sx_blob_span(egraph),
                                  &library->key[i]) == SX_OK) {
            found->egraph[i] = egraph;
            found->module[i] = take(call, &library->key[i], SXD_KIND_MODULE, &size);
            library->way[i] = way;
            library->candidate_count++;
        } else {
            log_damage(daemon, &place, cx.error.text);
            sx_blob_free(egraph);
        }
        sx_ctx_fini(&cx);
    }
}

/* ---- families, on a pool thread ---- */
typedef struct {
    uv_work_t work;
    sxd_call *call;
    const sxd_backend *backend;
    sx_ctx cx;
    sx_key family;
    sx_code code;
} looking;

static void run_family(uv_work_t *work)
{
    looking *l = work->data;
    l->code = l->backend->family(&l->cx, l->call->request.args, &l->family);
}

static void on_family(uv_work_t *work, int status)
{
    looking *l = work->data;
    sxd_call *call = l->call;
    sxd_daemon *daemon = call->daemon;
    sxd_candidates found = {
        .library = {.wanted = status == 0 && l->code == SX_OK, .family = l->family}};
    sx_ctx_fini(&l->cx);
    free(l);
    call->keying = false;
    SX_ASSERT(daemon->keying_count > 0);
    daemon->keying_count--;
    if (call->session == NULL) {
        sxd_call_drop(call); /* the client left meanwhile */
        return;
    }
    if (daemon->phase != SXD_UP) {
        sxd_call_refuse(call, SX_BUSY, 1000, "compile: the daemon is stopping");
        return;
    }
    if (found.library.wanted) {
        find_candidates(call, &found);
    }
    sxd_compile_start(call, found.library.wanted ? &found : NULL);
    for (uint32_t i = 0; i < found.library.candidate_count; i++) {
        sx_blob_free(found.egraph[i]);
        sx_blob_free(found.module[i]);
    }
}

void sxd_library_look(sxd_call *call)
{
    sxd_daemon *daemon = call->daemon;
    looking *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        sxd_compile_start(call, NULL);
        return;
    }
    l->call = call;
    l->backend = daemon->backend;
    l->work.data = l;
    sx_ctx_init(&l->cx, FAMILY_ARENA_BYTES);
    call->keying = true;
    daemon->keying_count++;
    int error = uv_queue_work(&daemon->loop, &l->work, run_family, on_family);
    SX_ASSERT(error == 0);
}

/* ---- what a worker leaves ---- */

/* A place for a new e-graph: that of a refused one, an empty one, else one by the program's key. */
static uint32_t choose_way(const sxd_job *job, uint32_t refused)
{
    const sxd_library *library = &job->library;
    bool taken[SXD_LIBRARY_WAYS] = {false};
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        if ((refused >> i & 1) != 0) {
            return library->way[i];
        }
        taken[library->way[i]] = true;
    }
    for (uint32_t way = 0; way < SXD_LIBRARY_WAYS; way++) {
        if (!taken[way]) {
            return way;
        }
    }
    return job->key.byte[0] % SXD_LIBRARY_WAYS;
}

static void put_egraph(sxd_job *job, sx_span egraph, uint32_t refused)
{
    sxd_daemon *daemon = job->daemon;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_cache_item item = {
        .key = place_of(&job->library.family, choose_way(job, refused)),
        .ns = job->uid,
        .kind = SXD_KIND_EGRAPH,
        .cost_us = (uint64_t)job->cost_us,
        .bytes = egraph,
        .part = job->made_of.part,
        .part_count = job->made_of.part_count,
    };
    if (sx_cache_put(&cx, daemon->cache, &item) == SX_OK) {
        daemon->metrics.egraphs_stored++;
    } else {
        char quoted[SXD_QUOTE_MAX];
        daemon->metrics.store_failed++;
        sxd_log(SXD_WARN, "store", "job=%lld error=%s", (long long)job->id,
                sxd_quote(quoted, sx_span_of(cx.error.text)));
    }
    sx_ctx_fini(&cx);
}

void sxd_library_keep(sxd_job *job, const sx_work_result *result)
{
    sxd_daemon *daemon = job->daemon;
    const sxd_library *library = &job->library;
    uint32_t refused = 0;
    if (!library->wanted) {
        return;
    }
    if (SX_HAS(result, work_result, refused)) {
        refused = (uint32_t)result->refused & ((1u << library->candidate_count) - 1);
        for (uint32_t i = 0; i < library->candidate_count; i++) {
            if ((refused >> i & 1) != 0) {
                char why[SX_ERROR_TEXT_MAX];
                size_t len = result->why.len < sizeof(why) - 1 ? result->why.len : sizeof(why) - 1;
                memcpy(why, result->why.ptr, len);
                why[len] = '\0';
                sx_key place = place_of(&library->family, library->way[i]);
                log_damage(daemon, &place, why);
            }
        }
    }
    if (SX_HAS(result, work_result, met) && result->met >= 0 &&
        result->met < library->candidate_count) {
        char *rules = sx_alloc_text(&job->cx, result->rules);
        job->met = rules != NULL;
        job->met_key = library->key[result->met];
        job->rules = (sx_span){(const uint8_t *)rules, rules != NULL ? result->rules.len : 0};
        daemon->metrics.semantic_hits++;
        daemon->metrics.semantic_reused += result->reused ? 1 : 0;
        char key[SX_KEY_TEXT_SIZE];
        sx_key_print(&job->met_key, key);
        sxd_log(SXD_INFO, "semantic-hit", "job=%lld met=%.16s reused=%d", (long long)job->id, key,
                result->reused ? 1 : 0);
    } else if (library->candidate_count > 0) {
        daemon->metrics.semantic_misses++;
    }
    if (SX_HAS(result, work_result, egraph)) {
        put_egraph(job, result->egraph, refused);
    }
}
