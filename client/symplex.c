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
#include "client/job.h"
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

/* How a call ended, without words. */
static symplex_code tell(symplex_error *error, sx_code code)
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
    (void)tell(error, code);
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

static void copy_span(char *to, size_t size, sx_span from)
{
    (void)snprintf(to, size, "%.*s", (int)sx_min_i64((int64_t)from.len, (int64_t)size - 1),
                   (const char *)from.ptr);
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
        copy_span(server->version, sizeof(server->version), hello->version);
        copy_span(server->build, sizeof(server->build), hello->build);
        copy_span(server->boot_id, sizeof(server->boot_id), hello->boot_id);
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

/* ---- modules ---- */

void symplex_module_close(symplex_module *module)
{
    if (module == NULL) {
        return;
    }
    for (size_t i = 0; module->name != NULL && i < module->count; i++) {
        free(module->name[i]);
    }
    for (size_t i = 0; i < module->symbol_count; i++) {
        free(module->symbol_name[i]);
    }
    sxr_close(module->program);
    free(module->symbol_name);
    free(module->symbol);
    free(module->range);
    free(module->name);
    free(module->tensor);
    free(module->weight);
    free(module);
}

/* Numbers and names of the tensors of the interface. */
static sx_code list_tensors(sx_ctx *cx, symplex_module *module)
{
    const sx_module *tables = sxr_module(module->program);
    size_t most = (size_t)tables->tensor_count + 1;
    module->tensor = calloc(most, sizeof(*module->tensor));
    module->name = calloc(most, sizeof(*module->name));
    module->weight = calloc(most, sizeof(*module->weight));
    if (module->tensor == NULL || module->name == NULL || module->weight == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %zu tensors", most);
    }
    for (uint32_t i = 0; i < tables->tensor_count; i++) {
        const sx_module_tensor *tensor = &tables->tensor[i];
        if (!sxc_is_interface(tensor) && tensor->place != SX_TENSOR_STATE) {
            continue;
        }
        sx_span name = sx_module_string(tables, tensor->name);
        module->name[module->count] = strndup((const char *)name.ptr, name.len);
        module->tensor[module->count] = i;
        if (module->name[module->count] == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "no memory for the name of tensor %u", i);
        }
        module->count++;
    }
    return SX_OK;
}

/* Names of the symbols, and the values that they may have. */
static sx_code list_symbols(sx_ctx *cx, symplex_module *module)
{
    const sx_module *tables = sxr_module(module->program);
    module->symbol = calloc((size_t)tables->symbol_count + 1, sizeof(*module->symbol));
    module->range = calloc((size_t)tables->range_count + 1, sizeof(*module->range));
    module->symbol_name = calloc((size_t)tables->symbol_count + 1, sizeof(*module->symbol_name));
    if (module->symbol == NULL || module->range == NULL || module->symbol_name == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for %llu symbols",
                       (unsigned long long)tables->symbol_count);
    }
    for (uint64_t i = 0; i < tables->range_count; i++) {
        const sx_module_range *from = &tables->range[i];
        module->range[i] = (symplex_range){from->low, from->high, from->step};
    }
    for (uint64_t i = 0; i < tables->symbol_count; i++) {
        const sx_module_symbol *from = &tables->symbol[i];
        sx_span name = sx_module_string(tables, from->name);
        module->symbol_name[i] = strndup((const char *)name.ptr, name.len);
        module->symbol[i] = (symplex_symbol){.name = module->symbol_name[i],
                                             .range = module->range + from->range_first,
                                             .range_count = from->range_count};
        module->symbol_count++;
        if (module->symbol_name[i] == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "no memory for the name of symbol %llu",
                           (unsigned long long)i);
        }
    }
    return SX_OK;
}

sx_code sxc_module_make(sx_ctx *cx, sxr_program *program, symplex_module **module)
{
    symplex_module *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        sxr_close(program);
        return SX_FAIL(cx, SX_NOMEM, "no memory for a module");
    }
    made->program = program;
    sx_code code = list_tensors(cx, made);
    code = code == SX_OK ? list_symbols(cx, made) : code;
    if (code == SX_OK) {
        *module = made;
    } else {
        symplex_module_close(made);
    }
    return code;
}

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

static symplex_code open_module(const char *path, sx_span bytes, uint32_t threads,
                                symplex_module **module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_open: no place for the module");
    }
    *module = NULL;
    if (threads > SXR_THREADS_MAX) {
        return sxc_call_misuse(error, "symplex_module_open: more than 256 threads");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sxr_options options = {.threads = threads};
    sxr_program *program = NULL;
    sx_code code = path != NULL ? sxr_open_file(&cx, path, &options, &program)
                                : sxr_open_bytes(&cx, bytes, &options, &program);
    code = code == SX_OK ? sxc_module_make(&cx, program, module) : code;
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_open(const void *bytes, size_t size, uint32_t threads,
                                 symplex_module **module, symplex_error *error)
{
    if (bytes == NULL) {
        return sxc_call_misuse(error, "symplex_module_open: no bytes");
    }
    return open_module(NULL, (sx_span){bytes, size}, threads, module, error);
}

symplex_code symplex_module_open_file(const char *path, uint32_t threads, symplex_module **module,
                                      symplex_error *error)
{
    if (path == NULL) {
        return sxc_call_misuse(error, "symplex_module_open_file: no path");
    }
    return open_module(path, (sx_span){NULL, 0}, threads, module, error);
}

void symplex_module_describe(const symplex_module *module, symplex_module_info *info)
{
    const sx_module *tables = sxr_module(module->program);
    *info = (symplex_module_info){.threads = sxr_threads(module->program),
                                  .flops = tables->info->flops,
                                  .estimate_ns = tables->info->cost_ns,
                                  .floor_ns = tables->info->floor_ns,
                                  .variant_count = (uint32_t)tables->variant_count,
                                  .gpu = sxr_gpu_ordinal(module->program)};
    if (info->gpu >= 0) {
        copy_span(info->gpu_name, sizeof(info->gpu_name), sx_span_of(sxr_gpu(module->program)));
    }
    uint32_t chosen = sxr_variant(module->program);
    if (chosen != SX_MODULE_NONE) {
        const sx_module_variant *variant = &tables->variant[chosen];
        info->flops = variant->flops;
        info->estimate_ns = variant->cost_ns;
        info->floor_ns = variant->floor_ns;
        copy_span(info->variant, sizeof(info->variant), sx_module_string(tables, variant->name));
    }
    sx_key key;
    memcpy(key.byte, tables->info->key, sizeof(key.byte));
    sx_key_print(&key, info->key);
    copy_span(info->target, sizeof(info->target), sx_module_string(tables, tables->info->target));
}

size_t symplex_module_tensor_count(const symplex_module *module)
{
    return module->count;
}

static symplex_role role_of(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT    ? SYMPLEX_INPUT_TENSOR
           : tensor->place == SX_TENSOR_OUTPUT ? SYMPLEX_OUTPUT_TENSOR
           : tensor->place == SX_TENSOR_STATE  ? SYMPLEX_STATE_TENSOR
                                               : SYMPLEX_WEIGHT_TENSOR;
}

/* The number in the interface of tensor `index` of the module. */
static size_t number_of(const symplex_module *module, uint32_t index)
{
    size_t number = 0;
    while (number < module->count && module->tensor[number] != index) {
        number++;
    }
    return number < module->count ? number : SYMPLEX_NO_TENSOR;
}

symplex_code symplex_module_tensor(const symplex_module *module, size_t index,
                                   symplex_tensor *tensor, symplex_error *error)
{
    if (module == NULL || tensor == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_tensor: no tensor of that number");
    }
    uint32_t inside = module->tensor[index];
    const sx_module_tensor *from = &sxr_module(module->program)->tensor[inside];
    *tensor = (symplex_tensor){.name = module->name[index],
                               .role = role_of(from),
                               .dtype = (symplex_dtype)from->dtype,
                               .dtype_name = sx_dtype_name((sx_dtype)from->dtype),
                               .rank = from->rank,
                               .size = (size_t)sxr_size(module->program, inside),
                               .bound = sxr_bound(module->program, inside),
                               .alias = number_of(module, sxr_alias(module->program, inside))};
    for (uint32_t d = 0; d < from->rank; d++) {
        tensor->shape[d] = sxr_shape(module->program, inside)[d];
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, SX_OK, error);
}

size_t symplex_module_find(const symplex_module *module, symplex_role role, const char *name)
{
    const sx_module *tables = sxr_module(module->program);
    for (size_t i = 0; i < module->count; i++) {
        if (role_of(&tables->tensor[module->tensor[i]]) == role &&
            strcmp(module->name[i], name) == 0) {
            return i;
        }
    }
    return SYMPLEX_NO_TENSOR;
}

/* ---- symbols ---- */

size_t symplex_module_symbol_count(const symplex_module *module)
{
    return module->symbol_count;
}

symplex_code symplex_module_symbol(const symplex_module *module, size_t index,
                                   symplex_symbol *symbol, symplex_error *error)
{
    if (module == NULL || symbol == NULL || index >= module->symbol_count) {
        return sxc_call_misuse(error, "symplex_module_symbol: no symbol of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    *symbol = module->symbol[index];
    symbol->value = sxr_extent(module->program, (uint32_t)index);
    return sxc_call_finish(&cx, SX_OK, error);
}

symplex_code symplex_module_axis(const symplex_module *module, size_t index, uint32_t axis,
                                 symplex_axis *result, symplex_error *error)
{
    if (module == NULL || result == NULL || index >= module->count) {
        return sxc_call_misuse(error, "symplex_module_axis: no tensor of that number");
    }
    const sx_module *tables = sxr_module(module->program);
    uint32_t inside = module->tensor[index];
    if (axis >= tables->tensor[inside].rank) {
        return sxc_call_misuse(error, "symplex_module_axis: no dimension of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    *result = (symplex_axis){.symbol = SYMPLEX_NO_TENSOR, .other = SYMPLEX_NO_TENSOR};
    if (symplex_module_terms(module, index, axis, result, 1) > 1) {
        result->scale = 0;
        result->other = SYMPLEX_NO_TENSOR;
    }
    return sxc_call_finish(&cx, SX_OK, error);
}

static size_t symbol_number(uint32_t symbol)
{
    return symbol == SX_MODULE_NONE ? SYMPLEX_NO_TENSOR : symbol;
}

size_t symplex_module_terms(const symplex_module *module, size_t index, uint32_t axis,
                            symplex_axis *terms, size_t count)
{
    size_t found = 0;
    uint32_t rows = 0;
    const sx_module_extent *row = NULL;
    if (module != NULL && index < module->count) {
        row = sx_module_extents_of(sxr_module(module->program), SX_EXTENT_TENSOR,
                                   module->tensor[index], &rows);
    }
    for (uint32_t i = 0; i < rows; i++) {
        if (row[i].dimension != axis) {
            continue;
        }
        if (found < count) {
            terms[found] = (symplex_axis){.symbol = symbol_number(row[i].symbol),
                                          .scale = row[i].scale,
                                          .other = symbol_number(row[i].other)};
        }
        found++;
    }
    return found;
}

/* Nothing is set before everything may be. */
static sx_code check_choice(sx_ctx *cx, const symplex_module *module, const symplex_dim *dims,
                            size_t dim_count)
{
    for (size_t i = 0; i < dim_count; i++) {
        if (dims[i].name == NULL) {
            return SX_FAIL(cx, SX_USAGE, "dimension without a name: %lld",
                           (long long)dims[i].value);
        }
        SX_TRY(sxr_extent_allowed(cx, module->program, sx_span_of(dims[i].name), dims[i].value));
        for (size_t k = 0; k < i; k++) {
            if (strcmp(dims[k].name, dims[i].name) == 0) {
                return SX_FAIL(cx, SX_USAGE, "dimension %.200s: given twice, %lld and %lld",
                               dims[i].name, (long long)dims[k].value, (long long)dims[i].value);
            }
        }
    }
    return SX_OK;
}

static sx_code choose(sx_ctx *cx, const symplex_module *module, const symplex_dim *dims,
                      size_t dim_count)
{
    SX_TRY(check_choice(cx, module, dims, dim_count));
    for (size_t i = 0; i < dim_count; i++) {
        SX_TRY(sxr_set_extent(cx, module->program, sx_span_of(dims[i].name), dims[i].value));
    }
    return SX_OK;
}

symplex_code symplex_module_choose(symplex_module *module, const symplex_dim *dims,
                                   size_t dim_count, symplex_error *error)
{
    if (module == NULL || (dims == NULL && dim_count > 0)) {
        return sxc_call_misuse(error, "symplex_module_choose: module and dimensions are needed");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, choose(&cx, module, dims, dim_count), error);
}

/* ---- memory ---- */

static sx_code check_bindable(sx_ctx *cx, const symplex_module *module, const char *call,
                              size_t index)
{
    if (index >= module->count) {
        return SX_FAIL(cx, SX_USAGE, "%s: no tensor of that number", call);
    }
    if (sxr_module(module->program)->tensor[module->tensor[index]].place == SX_TENSOR_STATE) {
        return SX_FAIL(cx, SX_USAGE,
                       "%s: state lies in the module; it is read and written by "
                       "symplex_module_state_read and _write",
                       call);
    }
    return SX_OK;
}

static sx_code bind(sx_ctx *cx, symplex_module *module, const char *call, size_t index,
                    void *memory, size_t size)
{
    SX_TRY(check_bindable(cx, module, call, index));
    module->weight[index].known = false;
    return sxr_bind(cx, module->program, module->tensor[index], memory, size);
}

symplex_code symplex_module_bind(symplex_module *module, size_t index, void *memory, size_t size,
                                 symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_bind: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, bind(&cx, module, "symplex_module_bind", index, memory, size),
                           error);
}

symplex_code symplex_module_bind_device(symplex_module *module, size_t index, uint64_t address,
                                        size_t size, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_bind_device: no tensor of that number");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    sx_code code = check_bindable(&cx, module, "symplex_module_bind_device", index);
    if (code == SX_OK) {
        module->weight[index].known = false;
    }
    code = code == SX_OK
               ? sxr_bind_device(&cx, module->program, module->tensor[index], address, size)
               : code;
    return sxc_call_finish(&cx, code, error);
}

symplex_code symplex_module_prepare(symplex_module *module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_prepare: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_prepare(&cx, module->program), error);
}

symplex_code symplex_module_enqueue(symplex_module *module, void *stream, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_enqueue: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_enqueue(&cx, module->program, stream), error);
}

symplex_code symplex_module_run(symplex_module *module, symplex_error *error)
{
    if (module == NULL) {
        return sxc_call_misuse(error, "symplex_module_run: no module");
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, sxr_run(&cx, module->program, NULL), error);
}

static sx_code call(sx_ctx *cx, symplex_module *module, const symplex_dim *dims, size_t dim_count,
                    const symplex_memory *memory, size_t memory_count)
{
    SX_TRY(dim_count > 0 ? choose(cx, module, dims, dim_count) : SX_OK);
    for (size_t i = 0; i < memory_count; i++) {
        const symplex_memory *m = &memory[i];
        SX_TRY(bind(cx, module, "symplex_module_call", m->index, m->memory, m->size));
    }
    return sxr_run(cx, module->program, NULL);
}

/* A call as nearly all are, without a context. False: the long way goes on from the beginning. */
static bool call_usual(const symplex_module *module, const symplex_memory *memory, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const symplex_memory *m = &memory[i];
        if (m->index >= module->count ||
            !sxr_bind_usual(module->program, module->tensor[m->index], m->memory, m->size)) {
            return false;
        }
    }
    return sxr_run_usual(module->program);
}

symplex_code symplex_module_call(symplex_module *module, const symplex_dim *dims, size_t dim_count,
                                 const symplex_memory *memory, size_t memory_count,
                                 symplex_error *error)
{
    if (module == NULL || (dims == NULL && dim_count > 0) || (memory == NULL && memory_count > 0)) {
        return sxc_call_misuse(error,
                               "symplex_module_call: module, dimensions and memory are needed");
    }
    if (dim_count == 0 && call_usual(module, memory, memory_count)) {
        return tell(error, SX_OK);
    }
    sx_ctx cx;
    sxc_call_begin(&cx);
    return sxc_call_finish(&cx, call(&cx, module, dims, dim_count, memory, memory_count), error);
}
