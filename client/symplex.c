/* symplex.c - the public library: handles around the client's insides. Each call has a context of its own, so
 * nothing is left behind by a call that failed. */
#include "client/symplex_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/compile.h"
#include "client/connection.h"
#include "client/file.h"
#include "client/kept.h"
#include "client/module_file.h"
#include "client/runtime/pool.h"
#include "client/symplex_session.h"

#define ARENA_BYTES_MAX ((size_t)16 << 30)
#define MODULE_BYTES_MAX ((size_t)2 << 30)
#define FILE_BYTES_MAX ((size_t)32 << 30)
#define PING_MS 1000
#define DIMS_MAX 4096
#define STOP_MS 10 /* at least between two questions whether to stop */

/* The public numbers are those of the wire, the public element types those of the IR. */
#define SX_CODE(name, wire, exit_status, retry, text) \
    _Static_assert((int)SYMPLEX_##name == (wire), "symplex.h: number of " #name);
#include "core/base/codes.def"
#undef SX_CODE
#define SX_DTYPE(name, enumerator, number, bytes, class) \
    _Static_assert((int)SYMPLEX_##enumerator == (number), "symplex.h: number of " #name);
#include "core/ir/dtypes.def"
#undef SX_DTYPE
_Static_assert(SYMPLEX_VERSION_MAJOR == SX_VERSION_MAJOR &&
                   SYMPLEX_VERSION_MINOR == SX_VERSION_MINOR &&
                   SYMPLEX_VERSION_PATCH == SX_VERSION_PATCH,
               "symplex.h: version");
_Static_assert(SYMPLEX_RANK_MAX == SX_MODULE_RANK_MAX, "symplex.h: rank");

struct symplex_client {
    char socket[SXC_PATH_MAX];
    symplex_options options;  /* options.socket is not used */
    symplex_session *session; /* of its compilations; NULL: none */
    char *failure;            /* the whole text of the last call, if it failed; from malloc */
};

/* ---- calls ---- */

void sxc_call_begin(sx_ctx *cx)
{
    sx_ctx_init(cx, ARENA_BYTES_MAX);
    cx->fuel = UINT64_MAX;
}

void sxc_copy_text(char *to, size_t size, sx_span from)
{
    SX_ASSERT(size > 3);
    bool cut = from.len >= size;
    size_t length = cut ? size - 4 : from.len;
    if (length > 0) {
        memcpy(to, from.ptr, length);
    }
    memcpy(to + length, cut ? "..." : "", cut ? 4 : 1);
}

/* Asks the caller whether to stop, but not more often than clocks are worth. */
typedef struct {
    const symplex_options *options;
    uint64_t asked_ms;
    bool stopped;
} stopper;

static bool asks_to_stop(void *self)
{
    stopper *s = self;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (!s->stopped && now_ms >= s->asked_ms + STOP_MS) {
        s->asked_ms = now_ms;
        s->stopped = s->options->stop(s->options->self) != 0;
    }
    return s->stopped;
}

/* The same for a call with a client that may be stopped. `s` lives as long as the call. */
static void begin_for(const symplex_client *client, sx_ctx *cx, stopper *s)
{
    sxc_call_begin(cx);
    *s = (stopper){.options = &client->options};
    if (client->options.stop != NULL) {
        cx->cancelled = asks_to_stop;
        cx->cancelled_self = s;
    }
}

symplex_code sxc_call_tell(symplex_error *error, sx_code code)
{
    if (error != NULL) {
        error->code = (symplex_code)sx_code_wire(code);
        error->name = sx_code_name(code);
        error->text[0] = error->hint[0] = '\0';
    }
    return (symplex_code)sx_code_wire(code);
}

symplex_code sxc_call_finish(sx_ctx *cx, sx_code code, symplex_error *error)
{
    (void)sxc_call_tell(error, code);
    if (error != NULL && code != SX_OK) {
        const char *text = cx->error.text[0] != '\0' ? cx->error.text : sx_code_text(code);
        sxc_copy_text(error->text, sizeof(error->text), sx_span_of(text));
        sxc_copy_text(error->hint, sizeof(error->hint), sx_span_of(cx->error.hint));
    }
    sx_ctx_fini(cx);
    return (symplex_code)sx_code_wire(code);
}

/* The same for a call with a client, which keeps the whole text. */
static symplex_code finish_for(symplex_client *client, sx_ctx *cx, sx_code code,
                               symplex_error *error)
{
    SX_ASSERT(client != NULL);
    const char *text = cx->error.text[0] != '\0' ? cx->error.text : sx_code_text(code);
    free(client->failure);
    client->failure = code == SX_OK ? NULL : strdup(text);
    return sxc_call_finish(cx, code, error);
}

symplex_code sxc_call_misuse(symplex_error *error, const char *text)
{
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, SX_FAIL(&cx, SX_USAGE, "%s", text), error);
}

const char *symplex_version(void)
{
    return SX_VERSION_TEXT;
}

void symplex_free(void *bytes)
{
    free(bytes);
}

/* ---- client ---- */

void symplex_close(symplex_client *client)
{
    if (client != NULL) {
        free(client->failure);
        free(client);
    }
}

symplex_code symplex_client_join(symplex_client *client, symplex_session *session,
                                 symplex_error *error)
{
    if (client == NULL) {
        return sxc_call_misuse(error, "symplex_client_join: no client");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    client->session = session;
    return sxc_call_finish(&cx, SX_OK, error);
}

const char *symplex_client_error(const symplex_client *client)
{
    return client != NULL && client->failure != NULL ? client->failure : "";
}

static sx_code open_client(sx_ctx *cx, const symplex_options *options, symplex_client *client)
{
    client->options = *options;
    client->options.socket = NULL;
    if ((unsigned)options->daemon > SYMPLEX_DAEMON_NEVER) {
        return SX_FAIL(cx, SX_USAGE, "daemon mode %d, known are 0 to %d", (int)options->daemon,
                       SYMPLEX_DAEMON_NEVER);
    }
    SX_TRY(sxc_socket_of(cx, options->socket, client->socket));
    if (options->daemon != SYMPLEX_DAEMON_ONLY) {
        return SX_OK;
    }
    sxc_connection *connection = NULL;
    sx_code code = sxc_connect(cx, client->socket, PING_MS, &connection);
    sxc_disconnect(connection);
    return code;
}

symplex_code symplex_open(const symplex_options *options, symplex_client **client,
                          symplex_error *error)
{
    static const symplex_options defaults = {.daemon = SYMPLEX_DAEMON_AUTO};
    if (client == NULL) {
        return sxc_call_misuse(error, "symplex_open: no place for the client");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    *client = NULL;
    symplex_client *made = calloc(1, sizeof(*made));
    sx_code code = made == NULL ? SX_FAIL(&cx, SX_NOMEM, "no memory for a client")
                                : open_client(&cx, options != NULL ? options : &defaults, made);
    if (code == SX_OK) {
        *client = made;
    } else {
        free(made);
    }
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_ping(symplex_client *client, symplex_server *server, symplex_error *error)
{
    if (client == NULL) {
        return sxc_call_misuse(error, "symplex_ping: no client");
    }
    sx_ctx cx;
    stopper stop;
    begin_for(client, &cx, &stop);
    sxc_connection *connection = NULL;
    sx_hello_args args = {0};
    const void *reply = NULL;
    SX_PUT(&args, hello_args, client, SX_SPAN_LITERAL("symplex " SX_VERSION_TEXT));
    sx_code code = sxc_connect(&cx, client->socket, PING_MS, &connection);
    code =
        code == SX_OK ? sxc_call(&cx, connection, SX_METHOD_HELLO, &args, PING_MS, &reply) : code;
    if (code == SX_OK && server != NULL) {
        const sx_hello_result *hello = reply;
        *server = (symplex_server){.pid = hello->pid};
        sxc_copy_text(server->version, sizeof(server->version), hello->version);
        sxc_copy_text(server->build, sizeof(server->build), hello->build);
        sxc_copy_text(server->boot_id, sizeof(server->boot_id), hello->boot_id);
    }
    sxc_disconnect(connection);
    return finish_for(client, &cx, code, error);
}

/* ---- compiling ---- */

static sx_code read_dims(sx_ctx *cx, const symplex_program *program, sx_core_request *request)
{
    if (program->dim_count > DIMS_MAX || (program->dim_count > 0 && program->dims == NULL)) {
        return SX_FAIL(cx, SX_USAGE, "%zu dimensions given, at most %d", program->dim_count,
                       program->dims == NULL ? 0 : DIMS_MAX);
    }
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, program->dim_count + 1);
    if (binding == NULL) {
        return cx->error.code;
    }
    for (size_t i = 0; i < program->dim_count; i++) {
        const symplex_dim *dim = &program->dims[i];
        if (dim->name == NULL || dim->value < 1 || dim->value > SX_EXTENT_MAX) {
            return SX_FAIL(cx, SX_USAGE, "dimension %s: %lld, allowed are 1 to %lld",
                           dim->name != NULL ? dim->name : "without a name", (long long)dim->value,
                           (long long)SX_EXTENT_MAX);
        }
        binding[i] = (sx_binding){.name = sx_span_of(dim->name), .value = dim->value};
    }
    request->binding = binding;
    request->binding_count = (uint32_t)program->dim_count;
    return SX_OK;
}

static sx_code read_intervals(sx_ctx *cx, const symplex_program *program, sx_core_request *request)
{
    if (program->interval_count > SX_SYMBOLS_MAX ||
        (program->interval_count > 0 && program->intervals == NULL)) {
        return SX_FAIL(cx, SX_USAGE, "%zu intervals given, at most %u", program->interval_count,
                       program->intervals == NULL ? 0 : SX_SYMBOLS_MAX);
    }
    sx_interval *interval = SX_NEW_ARRAY(cx, sx_interval, program->interval_count + 1);
    if (interval == NULL) {
        return cx->error.code;
    }
    for (size_t i = 0; i < program->interval_count; i++) {
        const symplex_interval *its = &program->intervals[i];
        if (its->name == NULL || its->low < 1 || its->high < its->low ||
            its->high > SX_EXTENT_MAX) {
            return SX_FAIL(
                cx, SX_USAGE,
                "dimension %s: the interval %lld..%lld, allowed are 1 to %lld, ascending",
                its->name != NULL ? its->name : "without a name", (long long)its->low,
                (long long)its->high, (long long)SX_EXTENT_MAX);
        }
        interval[i] = (sx_interval){sx_span_of(its->name), its->low, its->high};
    }
    request->interval = interval;
    request->interval_count = (uint32_t)program->interval_count;
    return SX_OK;
}

static sx_code read_program(sx_ctx *cx, const symplex_program *program, sx_core_request *request)
{
    const uint32_t known = SYMPLEX_EXACT | SYMPLEX_APPROXIMATE | SYMPLEX_REFRESH |
                           SYMPLEX_NO_WEIGHTS | SYMPLEX_RANGE_ANY | SYMPLEX_BATCH_INVARIANT;
    if ((program->flags & ~known) != 0) {
        return SX_FAIL(cx, SX_USAGE, "flags 0x%x, known are 0x%x", program->flags, known);
    }
    if (program->path == NULL && program->bytes == NULL) {
        return SX_FAIL(cx, SX_USAGE, "a program has neither path nor bytes");
    }
    *request = (sx_core_request){
        .target = sx_span_of(program->target != NULL ? program->target : "native"),
        .no_reassociate = (program->flags & SYMPLEX_EXACT) != 0,
        .allow_approximate = (program->flags & SYMPLEX_APPROXIMATE) != 0,
        .range_any = (program->flags & SYMPLEX_RANGE_ANY) != 0,
        .disabled_rules = sx_span_of(program->disabled_rules),
        .objective = sx_span_of(program->objective)};
    SX_TRY(read_dims(cx, program, request));
    return read_intervals(cx, program, request);
}

static sx_code find_pinned(sx_ctx *cx, void *pins, const sx_key *key, sx_buf *module)
{
    return sxc_session_find(cx, pins, key, module);
}

static sx_code commit_pinned(sx_ctx *cx, void *pins, const sx_key *key, sx_buf *module)
{
    return sxc_session_commit(cx, pins, key, module);
}

static sxc_compile_options options_of(const symplex_client *client, const symplex_program *program)
{
    static const sxc_daemon_mode mode[] = {[SYMPLEX_DAEMON_AUTO] = SXC_MODE_AUTO,
                                           [SYMPLEX_DAEMON_ONLY] = SXC_MODE_ONLY,
                                           [SYMPLEX_DAEMON_NEVER] = SXC_MODE_NEVER};
    bool pins = client->session != NULL;
    return (sxc_compile_options){.find = pins ? find_pinned : NULL,
                                 .commit = pins ? commit_pinned : NULL,
                                 .pins = client->session,
                                 .socket = client->socket,
                                 .daemon = mode[client->options.daemon],
                                 .refresh = (program->flags & SYMPLEX_REFRESH) != 0,
                                 .message = client->options.message,
                                 .progress = client->options.progress,
                                 .progress_self = client->options.self,
                                 .self = client->options.self};
}

static void describe(const sxc_compile_info *from, symplex_compiled *info)
{
    if (info != NULL) {
        *info = (symplex_compiled){.cost_us = from->cost_us, .total_us = from->total_us};
        sx_key_print(&from->key, info->key);
        (void)snprintf(info->tier, sizeof(info->tier), "%s", from->tier);
        info->hit = strcmp(from->tier, "ram") == 0 || strcmp(from->tier, "disk") == 0 ||
                    strcmp(from->tier, "session") == 0;
    }
}

/* The program for any number of rows; the caller is told where it stays as it is. */
static sx_code generalise(sx_ctx *cx, const symplex_client *client, sxc_source *source,
                          sx_core_request *request)
{
    const char *why;
    char text[256];
    SX_TRY(sxc_source_generalise(cx, source, request, &why));
    if (why != NULL && client->options.message != NULL) {
        (void)snprintf(text, sizeof(text),
                       "only rewrites that keep every bit: the batch is no symbol, as %s", why);
        client->options.message(client->options.self, text);
    }
    return SX_OK;
}

/* The source, whose memory ends with sxc_source_fini also on failure, and what is asked for it. */
static sx_code prepare(sx_ctx *cx, const symplex_client *client, const symplex_program *program,
                       sx_core_request *request, sxc_source *source)
{
    *source = (sxc_source){0};
    sx_buf_init(&source->text, SX_TEXT_BYTES_MAX);
    SX_TRY(read_program(cx, program, request));
    SX_TRY(program->path != NULL
               ? sxc_source_load(cx, program->path, source)
               : sxc_source_bytes(cx, (sx_span){program->bytes, program->size}, source));
    bool general = (program->flags & SYMPLEX_BATCH_INVARIANT) != 0;
    return general ? generalise(cx, client, source, request) : SX_OK;
}

static bool find_weight(const void *self, sx_span name, sx_span *bytes)
{
    const sx_weight *weight = sx_weights_find(self, name);
    *bytes = weight != NULL ? weight->bytes : (sx_span){NULL, 0};
    return weight != NULL;
}

/* A program of a module and of the weights of its source, whose file it may keep. */
static sx_code open_made(sx_ctx *cx, sx_span module, sxc_source *source, bool weights,
                         sxr_options *options, sxr_program **opened)
{
    sxr_source kept;
    options->weight = weights ? find_weight : NULL;
    options->weight_self = source->weights;
    options->source = weights && sxc_kept_make(source, &kept) ? &kept : NULL;
    sx_code code = sxr_open_bytes(cx, module, options, opened);
    if (code != SX_OK && options->source != NULL) {
        kept.close(kept.self);
    }
    return code;
}

/* The module file into `out`, which the caller finishes; with `open` a program of it, and its weights go to that. */
static sx_code compile(sx_ctx *cx, const symplex_client *client, const symplex_program *program,
                       sx_buf *out, sxr_options *open, sxr_program **opened, symplex_compiled *info)
{
    sx_core_request request;
    sxc_source source;
    sxc_compile_info made;
    sxc_compile_options options = options_of(client, program);
    sx_buf module;
    sx_buf_init(&module, MODULE_BYTES_MAX);
    sx_code code = prepare(cx, client, program, &request, &source);
    bool weights = source.weights != NULL && (program->flags & SYMPLEX_NO_WEIGHTS) == 0;
    sx_buf *first = weights && open == NULL ? &module : out;
    code = code == SX_OK ? sxc_compile(cx, &source, &request, &options, first, &made) : code;
    if (code == SX_OK && open != NULL) {
        code = open_made(cx, sx_buf_span(out), &source, weights, open, opened);
    } else if (code == SX_OK && weights) {
        code = sxc_attach_weights(cx, sx_buf_span(&module), source.weights, out);
    }
    if (code == SX_OK) {
        describe(&made, info);
    }
    sx_buf_fini(&module);
    sxc_source_fini(&source);
    return code;
}

symplex_code symplex_compile(symplex_client *client, const symplex_program *program, void **bytes,
                             size_t *size, symplex_compiled *info, symplex_error *error)
{
    if (client == NULL || program == NULL || bytes == NULL || size == NULL) {
        return sxc_call_misuse(error,
                               "symplex_compile: client, program, bytes and size are needed");
    }
    sx_ctx cx;
    stopper stop;
    sx_buf out;
    begin_for(client, &cx, &stop);
    sx_buf_init(&out, FILE_BYTES_MAX);
    *bytes = NULL;
    *size = 0;
    sx_code code = compile(&cx, client, program, &out, NULL, NULL, info);
    if (code == SX_OK) {
        *bytes = out.ptr; /* from malloc; the caller's now */
        *size = out.len;
    } else {
        sx_buf_fini(&out);
    }
    return finish_for(client, &cx, code, error);
}

symplex_code symplex_compile_file(symplex_client *client, const symplex_program *program,
                                  const char *path, symplex_compiled *info, symplex_error *error)
{
    if (client == NULL || program == NULL || path == NULL) {
        return sxc_call_misuse(error, "symplex_compile_file: client, program and path are needed");
    }
    sx_ctx cx;
    stopper stop;
    sx_buf out;
    begin_for(client, &cx, &stop);
    sx_buf_init(&out, FILE_BYTES_MAX);
    sx_code code = compile(&cx, client, program, &out, NULL, NULL, info);
    code = code == SX_OK ? sxc_write_file(&cx, path, sx_buf_span(&out)) : code;
    sx_buf_fini(&out);
    return finish_for(client, &cx, code, error);
}

/* The extracted program out of the module without kernels, NUL-terminated. */
symplex_code symplex_compile_open(symplex_client *client, const symplex_program *program,
                                  uint32_t threads, symplex_module **module, symplex_compiled *info,
                                  symplex_error *error)
{
    if (client == NULL || program == NULL || module == NULL) {
        return sxc_call_misuse(
            error, "symplex_compile_open: client, program and a place for the module are needed");
    }
    *module = NULL;
    if (threads > SXR_THREADS_MAX) {
        return sxc_call_misuse(error, "symplex_compile_open: more than 256 threads");
    }
    sx_ctx cx;
    stopper stop;
    sx_buf bytes;
    sxr_options open = {.threads = threads};
    sxr_program *opened = NULL;
    begin_for(client, &cx, &stop);
    sx_buf_init(&bytes, MODULE_BYTES_MAX);
    sx_code code = compile(&cx, client, program, &bytes, &open, &opened, info);
    code = code == SX_OK ? sxc_module_make(&cx, opened, module) : code;
    sx_buf_fini(&bytes);
    return finish_for(client, &cx, code, error);
}

static sx_code take_program(sx_ctx *cx, sx_span bytes, char **text, size_t *size)
{
    sxc_module_file file;
    SX_TRY(sxc_module_file_of(cx, bytes, &file));
    sx_buf out;
    sx_buf_init(&out, SX_TEXT_BYTES_MAX + 1);
    sx_buf_put(&out, file.module.optimized, (size_t)file.module.optimized_count);
    sxc_module_file_close(&file);
    size_t length = out.len;
    sx_buf_put_u8(&out, 0);
    sx_code code = sx_buf_check(cx, &out, "program text");
    if (code == SX_OK) {
        *text = (char *)out.ptr;
        *size = length;
    } else {
        sx_buf_fini(&out);
    }
    return code;
}

symplex_code symplex_optimize(symplex_client *client, const symplex_program *program, char **text,
                              size_t *size, symplex_error *error)
{
    if (client == NULL || program == NULL || text == NULL || size == NULL) {
        return sxc_call_misuse(error,
                               "symplex_optimize: client, program, text and size are needed");
    }
    sx_ctx cx;
    stopper stop;
    sx_core_request request;
    sxc_source source;
    sxc_compile_info made;
    sxc_compile_options options = options_of(client, program);
    sx_buf module;
    begin_for(client, &cx, &stop);
    sx_buf_init(&module, FILE_BYTES_MAX);
    *text = NULL;
    *size = 0;
    sx_code code = prepare(&cx, client, program, &request, &source);
    code = code == SX_OK ? sxc_optimize(&cx, &source, &request, &options, &module, &made) : code;
    code = code == SX_OK ? take_program(&cx, sx_buf_span(&module), text, size) : code;
    sx_buf_fini(&module);
    sxc_source_fini(&source);
    return finish_for(client, &cx, code, error);
}
