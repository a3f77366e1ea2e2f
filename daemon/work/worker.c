/* worker.c - inside a worker process: read a request, compile, write the answer, again. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/search_db.h"
#include "daemon/work/zygote.h"
#include "protocol/protocol.h"

#define BYTES_ALIGNMENT ((size_t)64)        /* of e-graphs, modules and states */
#define EGRAPH_BYTES_MAX ((size_t)64 << 20) /* all that one job leaves */
#define EVENT_GAP_NS UINT64_C(100000000)    /* at most ten events a second within one stage */

typedef struct {
    const char *stage;
    uint64_t last_ns;
} reporter;

static uint64_t now_ns(void *self)
{
    (void)self;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void write_all(const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(SXD_WORK_FD, bytes, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            _exit(EXIT_FAILURE); /* the daemon is gone */
        }
        bytes += n;
        len -= (size_t)n;
    }
}

static void send_message(const sx_buf *message, sx_span tail)
{
    uint8_t head[SX_SP_HEAD_BYTES];
    if (message->code != SX_OK) {
        _exit(EXIT_FAILURE);
    }
    sx_sp_head(message->len + tail.len, head);
    write_all(head, sizeof(head));
    write_all(message->ptr, message->len);
    write_all(tail.ptr, tail.len);
}

static void on_progress(void *self, const char *stage, uint64_t done, uint64_t total)
{
    reporter *r = self;
    uint64_t now = now_ns(NULL);
    if (r->stage == stage && now - r->last_ns < EVENT_GAP_NS) {
        return;
    }
    r->stage = stage;
    r->last_ns = now;
    sx_event_row row = {
        .stage = sx_span_of(stage),
        .done = done > INT64_MAX ? INT64_MAX : (int64_t)done,
        .total = total > INT64_MAX ? INT64_MAX : (int64_t)total,
    };
    sx_buf message;
    sx_buf_init(&message, 4096);
    sx_rpc_encode_notice(&message, SX_METHOD_PROGRESS, &row);
    send_message(&message, (sx_span){0});
    sx_buf_fini(&message);
}

/* Bytes of the message where the compiler wants them: aligned. */
static sx_code align(sx_ctx *cx, sx_span *bytes)
{
    uint8_t *copy = sx_alloc(cx, bytes->len + BYTES_ALIGNMENT);
    if (copy == NULL) {
        return cx->error.code;
    }
    copy += (BYTES_ALIGNMENT - (uintptr_t)copy % BYTES_ALIGNMENT) % BYTES_ALIGNMENT;
    if (bytes->len > 0) {
        memcpy(copy, bytes->ptr, bytes->len);
    }
    bytes->ptr = copy;
    return SX_OK;
}

static sx_code read_library(sx_ctx *cx, const sx_work_args *args, sx_core_library *library)
{
    uint32_t count = args->candidates.count;
    sx_core_candidate *candidate = SX_NEW_ARRAY(cx, sx_core_candidate, count + 1);
    if (candidate == NULL) {
        return cx->error.code;
    }
    if (SX_NEVER(count > SX_CORE_CANDIDATES_MAX)) {
        return SX_FAIL(cx, SX_INTERNAL, "worker: %u candidates, at most %d", count,
                       SX_CORE_CANDIDATES_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        const sx_work_candidate *row = &args->candidates.items[i];
        candidate[i] = (sx_core_candidate){
            .part = row->part, .key = row->key, .egraph = row->egraph, .module = row->module};
        SX_TRY(align(cx, &candidate[i].egraph));
        SX_TRY(align(cx, &candidate[i].module));
    }
    library->candidate = candidate;
    library->candidate_count = count;
    return SX_OK;
}

static sx_code read_places(sx_ctx *cx, const sx_work_args *args, sx_core_library *library)
{
    uint32_t count = args->places.count;
    sx_core_place *place = SX_NEW_ARRAY(cx, sx_core_place, count + 1);
    if (place == NULL) {
        return cx->error.code;
    }
    if (SX_NEVER(count > SX_CORE_PLACES_MAX)) {
        return SX_FAIL(cx, SX_INTERNAL, "worker: %u places, at most %d", count, SX_CORE_PLACES_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        place[i].part = args->places.items[i].part;
        place[i].family = args->places.items[i].family;
    }
    library->place = place;
    library->place_count = count;
    library->egraph->limit = EGRAPH_BYTES_MAX;
    library->egraph_bytes = (size_t)args->egraph_bytes;
    return SX_OK;
}

/* Runs the compiler on one request. */
static sx_code work_on(sx_ctx *cx, const sxd_backend *backend, const sx_rpc_request *request,
                       sx_core_library *library, sx_buf *bytes)
{
    if (SX_NEVER(request->method != SX_METHOD_WORK)) {
        return SX_FAIL(cx, SX_INTERNAL, "worker: method '%s'",
                       sx_method_get(request->method)->name);
    }
    const sx_work_args *args = request->args;
    if (SX_NEVER(args->request.count != 1)) {
        return SX_FAIL(cx, SX_INTERNAL, "worker: %u requests in one", args->request.count);
    }
    SX_TRY(read_library(cx, args, library));
    if (SX_HAS(args, work_args, egraph_bytes) && args->egraph_bytes > 0) {
        SX_TRY(read_places(cx, args, library));
    } else {
        library->egraph = NULL;
    }
    const sx_compile_args *compile = &args->request.items[0];
    sx_code code = args->optimize ? backend->optimize(cx, compile, library, bytes)
                                  : backend->compile(cx, compile, library, bytes);
    if (code != SX_OK) {
        return cx->error.code != SX_OK ? code : SX_FAIL(cx, code, "%s", sx_code_text(code));
    }
    return sx_buf_check(cx, bytes, "module");
}

/* What became of the library, for the daemon; `row` [SX_CORE_PLACES_MAX] is borrowed by the result. */
static void put_library(const sx_core_library *library, sx_work_egraph *row, sx_work_result *result)
{
    if (library->met) {
        SX_PUT(result, work_result, met, library->which);
        SX_PUT(result, work_result, reused, library->reused);
        SX_PUT(result, work_result, rules, library->rules);
    }
    if (library->refused != 0) {
        SX_PUT(result, work_result, refused, (int64_t)library->refused);
        SX_PUT(result, work_result, why, library->why);
    }
    SX_PUT(result, work_result, parts_met, library->parts_met);
    for (uint32_t i = 0; i < library->kept_count; i++) {
        const sx_core_kept *kept = &library->kept[i];
        row[i] = (sx_work_egraph){.part = kept->part,
                                  .egraph = {library->egraph->ptr + kept->offset, kept->size}};
    }
    result->egraphs.items = row;
    result->egraphs.count = library->kept_count;
    result->has |= SX_BIT(work_result, egraphs);
}

/* ---- a compilation ---- */
static void serve_work(sx_ctx *cx, const sxd_backend *backend, const sx_rpc_request *request)
{
    sx_buf bytes, egraph;
    sx_core_library library = {.egraph = &egraph};
    sx_buf_init(&egraph, 0);
    sx_buf_init(&bytes, SX_CACHE_BLOB_MAX);
    sx_code code = work_on(cx, backend, request, &library, &bytes);
    sx_buf answer;
    sx_buf_init(&answer, ((size_t)1 << 20) + egraph.len);
    sx_span tail = {0};
    if (code == SX_OK) {
        sx_work_egraph row[SX_CORE_PLACES_MAX];
        sx_work_result result = {.bytes = sx_buf_span(&bytes)};
        put_library(&library, row, &result);
        sx_rpc_encode_result(&answer, request->msgid, SX_METHOD_WORK, &result, &tail);
    } else {
        sx_rpc_encode_error(&answer, request->msgid, &cx->error, 0);
    }
    send_message(&answer, tail);
    sx_buf_fini(&answer);
    sx_buf_fini(&egraph);
    sx_buf_fini(&bytes);
}

/* ---- a step of a search ---- */
static sx_code step_on(sx_ctx *cx, const sxd_backend *backend, const sx_step_args *args,
                       sx_core_step_result *result)
{
    if (SX_NEVER(args->request.count != 1 || args->lane < 0 || args->lane >= SX_SEARCH_LANES_MAX ||
                 args->fuel < 1)) {
        return SX_FAIL(cx, SX_INTERNAL, "worker: a step of %u requests, lane %lld",
                       args->request.count, (long long)args->lane);
    }
    sxd_step step = {
        .lane = (uint32_t)args->lane, .fuel = (uint64_t)args->fuel, .state = args->state};
    if (step.state.len > 0) {
        SX_TRY(align(cx, &step.state));
    }
    sx_code code = backend->step(cx, &args->request.items[0], &step, result);
    if (code == SX_LIMIT && result->step > 0) { /* what it found is kept, and that was all */
        sx_buf_clear(result->state);
        result->done = true;
        result->stop = "state";
        code = SX_OK;
    }
    if (code != SX_OK) {
        return cx->error.code != SX_OK ? code : SX_FAIL(cx, code, "%s", sx_code_text(code));
    }
    SX_TRY(sx_buf_check(cx, result->state, "state"));
    return sx_buf_check(cx, result->module, "module");
}

static int64_t to_i64(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static void serve_step(sx_ctx *cx, const sxd_backend *backend, const sx_rpc_request *request)
{
    sx_buf state, module, answer;
    sx_buf_init(&state, SX_SEARCH_STATE_MAX);
    sx_buf_init(&module, SX_CACHE_BLOB_MAX - SX_SEARCH_STATE_MAX);
    sx_core_step_result step = {.state = &state, .module = &module, .stop = ""};
    sx_code code = step_on(cx, backend, request->args, &step);
    sx_buf_init(&answer, ((size_t)1 << 20) + module.len);
    sx_span tail = {0};
    if (code == SX_OK) {
        sx_step_result result = {
            .step = step.step,
            .objective = step.objective,
            .bound = step.bound,
            .time_ns = step.time_ns,
            .peak_bytes = to_i64(step.peak_bytes),
            .nodes = to_i64(step.nodes),
            .fuel = to_i64(step.fuel),
            .done = step.done,
            .stop = sx_span_of(step.stop),
            .module = sx_buf_span(&module),
            .state = sx_buf_span(&state),
        };
        sx_rpc_encode_result(&answer, request->msgid, SX_METHOD_STEP, &result, &tail);
    } else {
        sx_rpc_encode_error(&answer, request->msgid, &cx->error, 0);
    }
    send_message(&answer, tail);
    sx_buf_fini(&answer);
    sx_buf_fini(&module);
    sx_buf_fini(&state);
}

static void serve(const sxd_backend *backend, const sxd_zygote_message *limits, sx_span message)
{
    reporter r = {.stage = NULL};
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)(limits->memory_bytes - limits->memory_bytes / 8));
    cx.now_ns = now_ns;
    cx.progress = on_progress;
    cx.progress_self = &r;
    sx_rpc_request request;
    sx_code code = sx_rpc_decode_request(&cx, message, &request);
    if (code == SX_OK && request.method == SX_METHOD_STEP && backend->step != NULL) {
        cx.now_ns = NULL; /* the same bytes from every worker: no times in them */
        serve_step(&cx, backend, &request);
    } else if (code == SX_OK) {
        serve_work(&cx, backend, &request);
    } else {
        sx_buf answer;
        sx_buf_init(&answer, 1 << 20);
        sx_rpc_encode_error(&answer, request.msgid, &cx.error, 0);
        send_message(&answer, (sx_span){0});
        sx_buf_fini(&answer);
    }
    sx_ctx_fini(&cx);
}

void sxd_work_main(const sxd_backend *backend, const sxd_zygote_message *limits)
{
    (void)mallopt(
        M_ARENA_MAX,
        2); /* one reserve of address space per thread would use up RLIMIT_AS on large hosts */
    sxd_sandbox_enter(limits, backend->start != NULL ? backend->start(limits) : SXD_WORK_FD);
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    sx_sp_reader reader;
    sx_sp_reader_init(&reader, 0, SX_SEARCH_STATE_MAX + SX_RPC_REQUEST_BYTES_MAX + 65536);
    static uint8_t chunk[65536];
    for (;;) { /* until the daemon closes the pipe */
        ssize_t got = read(SXD_WORK_FD, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            _exit(got == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
        }
        sx_span input = {chunk, (size_t)got};
        sx_sp_event event = SX_SP_READY;
        while (event != SX_SP_MORE) {
            if (sx_sp_reader_feed(&cx, &reader, &input, &event) != SX_OK) {
                _exit(EXIT_FAILURE);
            }
            if (event == SX_SP_FRAME) {
                serve(backend, limits, sx_buf_span(&reader.body));
            }
        }
    }
}
