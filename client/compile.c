#include "client/compile.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/connection.h"
#include "client/record.h"
#include "client/runtime/cpu.h"
#include "client/spawn.h"

#define WAIT_MS 2000  /* one long poll */
#define CALL_MS 30000 /* calls that the daemon answers at once */
#define OPTIMIZE_MS 600000
#define LEAVE_MS 1000
#define ONLY_MS 2000 /* to a daemon without which there is no answer */

const char *sxc_native_target(void)
{
    const sx_machine *here = sxr_cpu_machine();
    return here != NULL ? here->name : sx_machines_all()->row[0]->name;
}

sx_span sxc_target(sx_span name)
{
    return name.len == 0 || sx_span_is(name, "native") ? sx_span_of(sxc_native_target()) : name;
}

static uint64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* One request under way. */
typedef struct {
    sx_ctx *cx;
    const sx_core_request *request;
    const sxc_compile_options *options;
    sx_compile_args args; /* the same on the wire */
    sxc_connection *connection;
    sxc_compile_info *info;
    sx_buf *result;
} call;

/* ---- the request on the wire ---- */

/* The first value of each symbol goes into `dims`; each further one is a line NAME=N of `more`. */
static sx_code fill_dims(sx_ctx *cx, const sx_core_request *request, sx_pair *dims, uint32_t *count,
                         sx_span *more)
{
    sx_buf lines;
    sx_buf_init(&lines, (size_t)1 << 20);
    for (uint32_t i = 0; i < request->binding_count; i++) {
        const sx_binding *binding = &request->binding[i];
        bool again = false;
        for (uint32_t k = 0; k < *count; k++) {
            again = again || sx_span_equal(dims[k].name, binding->name);
        }
        if (!again) {
            dims[(*count)++] =
                (sx_pair){.name = binding->name, .kind = SX_VALUE_INT, .integer = binding->value};
            continue;
        }
        sx_buf_put_span(&lines, binding->name);
        sx_buf_print(&lines, "=%lld\n", (long long)binding->value);
    }
    sx_code code = sx_buf_check(cx, &lines, "values of dimensions");
    const char *copy = code == SX_OK ? sx_alloc_text(cx, sx_buf_span(&lines)) : NULL;
    *more = (sx_span){(const uint8_t *)copy, lines.len};
    sx_buf_fini(&lines);
    return copy != NULL ? SX_OK : cx->error.code;
}

/* A line NAME=LOW..HIGH for each interval. */
static sx_code fill_intervals(sx_ctx *cx, const sx_core_request *request, sx_span *text)
{
    sx_buf lines;
    sx_buf_init(&lines, (size_t)1 << 20);
    for (uint32_t i = 0; i < request->interval_count; i++) {
        const sx_interval *interval = &request->interval[i];
        sx_buf_put_span(&lines, interval->name);
        sx_buf_print(&lines, "=%lld..%lld\n", (long long)interval->low, (long long)interval->high);
    }
    sx_code code = sx_buf_check(cx, &lines, "intervals of dimensions");
    const char *copy = code == SX_OK ? sx_alloc_text(cx, sx_buf_span(&lines)) : NULL;
    *text = (sx_span){(const uint8_t *)copy, lines.len};
    sx_buf_fini(&lines);
    return copy != NULL ? SX_OK : cx->error.code;
}

/* A limit that is not the usual one. */
static void put_limit(sx_pair *options, uint32_t *count, const char *name, uint64_t limit)
{
    SX_ASSERT(limit <= SX_VERIFY_LIMIT_MAX);
    if (limit > 0) {
        options[(*count)++] =
            (sx_pair){.name = sx_span_of(name), .kind = SX_VALUE_INT, .integer = (int64_t)limit};
    }
}

static sx_code fill_args(sx_ctx *cx, const sx_core_request *request, sx_compile_args *args)
{
    sx_pair *dims = SX_NEW_ARRAY(cx, sx_pair, request->binding_count + 1);
    sx_pair *options = SX_NEW_ARRAY(cx, sx_pair, 13);
    if (dims == NULL || options == NULL) {
        return cx->error.code;
    }
    uint32_t dim_count = 0, option_count = 5;
    sx_span more, intervals;
    SX_TRY(fill_dims(cx, request, dims, &dim_count, &more));
    SX_TRY(fill_intervals(cx, request, &intervals));
    options[0] = (sx_pair){.name = SX_SPAN_LITERAL("no_reassociate"),
                           .kind = SX_VALUE_BOOL,
                           .flag = request->no_reassociate};
    options[1] = (sx_pair){.name = SX_SPAN_LITERAL("allow_approximate"),
                           .kind = SX_VALUE_BOOL,
                           .flag = request->allow_approximate};
    options[2] = (sx_pair){.name = SX_SPAN_LITERAL("disabled_rules"),
                           .kind = SX_VALUE_TEXT,
                           .text = request->disabled_rules};
    options[3] = (sx_pair){
        .name = SX_SPAN_LITERAL("objective"), .kind = SX_VALUE_TEXT, .text = request->objective};
    options[4] = (sx_pair){.name = SX_SPAN_LITERAL("range"),
                           .kind = SX_VALUE_TEXT,
                           .text = sx_span_of(request->range_any ? "any" : "keep")};
    if (request->unfused) {
        options[option_count++] =
            (sx_pair){.name = SX_SPAN_LITERAL("unfused"), .kind = SX_VALUE_BOOL, .flag = true};
    }
    if (more.len > 0) {
        options[option_count++] =
            (sx_pair){.name = SX_SPAN_LITERAL("more_dims"), .kind = SX_VALUE_TEXT, .text = more};
    }
    if (intervals.len > 0) {
        options[option_count++] = (sx_pair){
            .name = SX_SPAN_LITERAL("intervals"), .kind = SX_VALUE_TEXT, .text = intervals};
    }
    if (request->device.len > 0) {
        options[option_count++] = (sx_pair){
            .name = SX_SPAN_LITERAL("device"), .kind = SX_VALUE_TEXT, .text = request->device};
    }
    if (request->assembler.len > 0) {
        options[option_count++] = (sx_pair){.name = SX_SPAN_LITERAL("assembler"),
                                            .kind = SX_VALUE_TEXT,
                                            .text = request->assembler};
    }
    if (request->measured.len > 0) {
        options[option_count++] = (sx_pair){
            .name = SX_SPAN_LITERAL("measured"), .kind = SX_VALUE_TEXT, .text = request->measured};
    }
    put_limit(options, &option_count, "verify_flops", request->verify_flops);
    put_limit(options, &option_count, "verify_bytes", request->verify_bytes);
    args->ir = request->ir;
    SX_PUT(args, compile_args, target, request->target);
    SX_PUT(args, compile_args, dims, ((sx_pairs){dims, dim_count}));
    SX_PUT(args, compile_args, options, ((sx_pairs){options, option_count}));
    return SX_OK;
}

sx_code sxc_compile_args(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                         sx_compile_args *args)
{
    sx_core_request full = *request;
    full.ir = sx_buf_span(&source->text);
    full.target = sxc_target(request->target);
    *args = (sx_compile_args){0};
    return fill_args(cx, &full, args);
}

static sx_code take(call *c, sx_span bytes, sx_span tier, int64_t cost_us)
{
    (void)snprintf(c->info->tier, sizeof(c->info->tier), "%.*s",
                   (int)sx_min_i64((int64_t)tier.len, 15), (const char *)tier.ptr);
    c->info->cost_us = cost_us > 0 ? (uint64_t)cost_us : 0;
    sx_buf_put_span(c->result, bytes);
    return sx_buf_check(c->cx, c->result, "module");
}

/* ---- through the daemon ---- */

static void take_met(call *c, const sx_key *met, sx_span rules)
{
    c->info->met = true;
    c->info->met_key = *met;
    size_t size = sizeof(c->info->rules) - 1;
    size_t len = rules.len < size ? rules.len : size;
    (void)snprintf(c->info->rules, sizeof(c->info->rules), "%.*s", (int)len,
                   len > 0 ? (const char *)rules.ptr : "");
}

/* A small call with the key alone: a hit needs no program. SX_ABSENT on a miss. */
static sx_code probe(call *c)
{
    sx_get_args args = {.key = c->info->key};
    const void *reply;
    SX_TRY(sxc_call(c->cx, c->connection, SX_METHOD_GET, &args, CALL_MS, &reply));
    const sx_get_result *hit = reply;
    return take(c, hit->module, hit->tier, hit->cost_us);
}

static void report_events(const call *c, const sx_wait_result *wait, int64_t *seq)
{
    for (uint32_t i = 0; i < wait->events.count; i++) {
        const sx_event_row *event = &wait->events.items[i];
        char stage[64];
        (void)snprintf(stage, sizeof(stage), "%.*s", (int)sx_min_i64((int64_t)event->stage.len, 63),
                       (const char *)event->stage.ptr);
        if (c->options->progress != NULL) {
            c->options->progress(c->options->progress_self, stage, (uint64_t)event->done,
                                 (uint64_t)event->total);
        }
    }
    *seq = wait->seq;
}

/* Nobody here waits any longer: without others who do, the daemon stops the job. It need not answer. */
static void leave(call *c, int64_t job)
{
    sx_cancel_args args = {.job = job};
    const void *reply;
    sx_ctx cx;
    SX_PUT(&args, cancel_args, leave, true);
    sx_ctx_init(&cx, SX_ARENA_DEFAULT);
    (void)sxc_call(&cx, c->connection, SX_METHOD_CANCEL, &args, LEAVE_MS, &reply);
    sx_ctx_fini(&cx);
}

/* Until the job ends; the daemon kills it at its deadline. */
static sx_code follow(call *c, int64_t job)
{
    const void *reply;
    for (int64_t seq = 0;;) {
        sx_wait_args args = {.job = job};
        SX_PUT(&args, wait_args, seq, seq);
        SX_PUT(&args, wait_args, wait_ms, WAIT_MS);
        SX_TRY(sxc_call(c->cx, c->connection, SX_METHOD_WAIT, &args, CALL_MS, &reply));
        const sx_wait_result *wait = reply;
        report_events(c, wait, &seq);
        if (SX_HAS(wait, wait_result, module)) {
            if (SX_HAS(wait, wait_result, met)) {
                take_met(c, &wait->met, wait->rules);
            }
            return take(c, wait->module, SX_SPAN_LITERAL("none"), wait->cost_us);
        }
    }
}

static sx_code submit(call *c)
{
    const void *reply;
    bool (*cancelled)(void *) = c->cx->cancelled;
    SX_PUT(&c->args, compile_args, mode, SX_SPAN_LITERAL("async"));
    c->cx->cancelled = NULL; /* without the number of the job it could not be left */
    sx_code code = sxc_call(c->cx, c->connection, SX_METHOD_COMPILE, &c->args, CALL_MS, &reply);
    c->cx->cancelled = cancelled;
    SX_TRY(code);
    const sx_compile_result *accepted = reply;
    c->info->key = accepted->key; /* a daemon of another build has other keys than we */
    if (SX_HAS(accepted, compile_result, module)) {
        return take(c, accepted->module, accepted->tier, accepted->cost_us);
    }
    int64_t job = accepted->job;
    code = follow(c, job);
    if (code == SX_CANCELLED && c->cx->cancelled != NULL) {
        leave(c, job);
    }
    return code;
}

static sx_code compile_remote(call *c)
{
    /* Which assembler the daemon has, and so the key, only the daemon knows. */
    bool known = !sx_span_is(c->request->assembler, SX_ASSEMBLER_ANY);
    sx_code code = c->options->refresh || !known ? SX_ABSENT : probe(c);
    if (code != SX_ABSENT) {
        return code;
    }
    sx_ctx_reset_error(c->cx);
    SX_TRY(fill_args(c->cx, c->request, &c->args));
    SX_PUT(&c->args, compile_args, refresh, c->options->refresh);
    return submit(c);
}

static sx_code optimize_remote(call *c)
{
    SX_TRY(fill_args(c->cx, c->request, &c->args));
    SX_PUT(&c->args, compile_args, refresh, c->options->refresh);
    const void *reply;
    SX_TRY(sxc_call(c->cx, c->connection, SX_METHOD_OPTIMIZE, &c->args, OPTIMIZE_MS, &reply));
    const sx_optimize_result *done = reply;
    if (SX_HAS(done, optimize_result, met)) {
        take_met(c, &done->met, done->rules);
    }
    return take(c, done->module, done->tier, done->cost_us);
}

/* ---- here ---- */

/* The key as whoever compiled knew it: with the name of the assembler. */
static sx_code read_key(call *c)
{
    sx_module_section section;
    sx_module_info module;
    size_t at = sizeof(sx_module_header) + SX_MODULE_INFO * sizeof(section);
    if (c->result->len >= at + sizeof(section)) {
        memcpy(&section, c->result->ptr + at, sizeof(section));
        if (section.size == sizeof(module) && section.offset <= c->result->len - sizeof(module)) {
            memcpy(&module, c->result->ptr + section.offset, sizeof(module));
            memcpy(c->info->key.byte, module.key, SX_KEY_BYTES);
            return SX_OK;
        }
    }
    return SX_FAIL(c->cx, SX_WORKER, "the compile process answered no module");
}

static sx_code compile_local(call *c, bool optimize)
{
    uint64_t start = now_us();
    (void)snprintf(c->info->tier, sizeof(c->info->tier), "process");
    sxc_worker worker = {.program = c->options->program,
                         .progress = c->options->progress,
                         .self = c->options->progress_self};
    SX_TRY(sxc_compile_here(c->cx, c->request, &worker, optimize, c->result));
    if (!optimize) {
        sxc_record_sign(c->cx, c->result);
    }
    c->info->cost_us = now_us() - start;
    return read_key(c);
}

/* Nobody answers, or whoever did went away: is that no failure? */
static bool may_go_on(const call *c, sx_code code)
{
    return code == SX_NODAEMON && c->options->daemon == SXC_MODE_AUTO;
}

/* Forgets the daemon, and says so. */
static void go_on_alone(call *c)
{
    char text[SX_ERROR_TEXT_MAX + 32];
    (void)snprintf(text, sizeof(text), "%s; compiling in process", c->cx->error.text);
    sx_ctx_reset_error(c->cx);
    sxc_disconnect(c->connection);
    c->connection = NULL;
    sx_buf_clear(c->result);
    if (c->options->message != NULL) {
        c->options->message(c->options->self, text);
    }
}

/* Connects as the options say; SX_OK with c->connection NULL means: compile here. */
static sx_code reach(call *c)
{
    if (c->options->daemon == SXC_MODE_NEVER) {
        return SX_OK;
    }
    char path[SXC_PATH_MAX];
    if (c->options->socket != NULL) {
        if (snprintf(path, sizeof(path), "%s", c->options->socket) >= SXC_PATH_MAX) {
            return SX_FAIL(c->cx, SX_USAGE, "socket path of %zu bytes, at most %d",
                           strlen(c->options->socket), SXC_PATH_MAX - 1);
        }
    } else {
        SX_TRY(sxc_default_socket(c->cx, path));
    }
    int decide_ms = c->options->daemon == SXC_MODE_ONLY ? ONLY_MS : SXC_DECIDE_MS;
    sx_code code = sxc_connect(c->cx, path, decide_ms, &c->connection);
    bool stranger = code == SX_DENIED && c->options->daemon == SXC_MODE_AUTO;
    if (may_go_on(c, code) || stranger) {
        go_on_alone(c);
        return SX_OK;
    }
    return code;
}

static sx_code perform(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                       const sxc_compile_options *options, bool optimize, sx_buf *result,
                       sxc_compile_info *info)
{
    uint64_t start = now_us();
    sx_core_request full = *request;
    full.ir = sx_buf_span(&source->text);
    full.target = sxc_target(request->target);
    *info = (sxc_compile_info){.tier = "none"};
    sx_span part[SX_PART_COUNT];
    SX_TRY(sx_core_key_of_graph(cx, source->graph, &full, &info->key, part));
    call c = {.cx = cx, .request = &full, .options = options, .info = info, .result = result};
    bool pins = options->find != NULL && !optimize;
    sx_code pinned = pins ? options->find(cx, options->pins, &info->key, result) : SX_ABSENT;
    if (pinned != SX_ABSENT) {
        (void)snprintf(info->tier, sizeof(info->tier), "session");
        info->total_us = now_us() - start;
        return pinned;
    }
    sx_ctx_reset_error(cx);
    SX_TRY(reach(&c));
    sx_code code = SX_OK;
    if (c.connection != NULL) {
        code = optimize ? optimize_remote(&c) : compile_remote(&c);
        if (may_go_on(&c, code)) {
            go_on_alone(&c);
            code = SX_OK;
        }
    }
    if (c.connection == NULL) {
        full.measured = full.measured.len > 0 ? full.measured : options->measured;
        code = compile_local(&c, optimize);
    }
    sxc_disconnect(c.connection);
    if (code == SX_OK && pins) {
        code = options->commit(cx, options->pins, &info->key, result);
    }
    info->total_us = now_us() - start;
    return code;
}

sx_code sxc_compile(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                    const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info)
{
    return perform(cx, source, request, options, false, module, info);
}

sx_code sxc_optimize(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                     const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info)
{
    return perform(cx, source, request, options, true, module, info);
}
