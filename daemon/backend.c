/* backend.c - the compiler of core/, as the daemon wants it. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/assemble/process.h"
#include "client/runtime/cpu.h"
#include "client/verify/team.h"
#include "client/verify/verify.h"
#include "core/core.h"
#include "daemon/base/base.h"
#include "daemon/daemon.h"
#include "daemon/work/zygote.h"

/* ---- the assembler ---- */

#define ASSEMBLER_FD (SXD_WORK_FD + 1) /* the worker's end of the socket to it */

/* The assembler of this machine. The daemon, and the parent of the workers, look for it once, so that keys name the
 * one that is there until the daemon ends; workers have it from their parent, and each the process that it started. */
static struct {
    pthread_once_t once;
    sxa_identity identity;
    sxa_process process;
} assembler = {.once = PTHREAD_ONCE_INIT, .process = {.fd = -1}};

static void identify(void)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sxa_identify(&cx, false, &assembler.identity);
    sx_ctx_fini(&cx);
}

static const char *assembler_name(void)
{
    (void)pthread_once(&assembler.once, identify);
    return assembler.identity.name;
}

/* ---- the kind of machine ---- */
static struct {
    pthread_once_t once;
    char word[SXR_IDENTITY_MAX];
} machine = {.once = PTHREAD_ONCE_INIT};

static void identify_machine(void)
{
    sxr_identity(machine.word);
}

static const char *core_machine(void)
{
    (void)pthread_once(&machine.once, identify_machine);
    return machine.word;
}

/* In the parent of the workers, so that each of them knows both. */
static void core_prepare(void)
{
    (void)assembler_name();
    (void)core_machine();
}

/* The assembler's process lives under the limits of its worker. It alone has the library, whose size would count
 * against the memory of the workers. */
static void confine(const void *limits, int *fd)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 16);
    if (sxa_preload(&cx, &assembler.identity) != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        sxd_log(SXD_ERROR, "assembler", "error=%s", sxd_quote(quoted, sx_span_of(cx.error.text)));
        _exit(EXIT_FAILURE); /* kernels that are to be assembled fail */
    }
    sx_ctx_fini(&cx);
    if (dup2(*fd, SXD_WORK_FD) != SXD_WORK_FD) {
        _exit(EXIT_FAILURE);
    }
    *fd = SXD_WORK_FD;
    sxd_sandbox_enter(limits, SXD_WORK_FD);
}

static int core_start(const sxd_zygote_message *limits)
{
    sx_ctx cx;
    int kept = SXD_WORK_FD;
    sxv_keep_memory();
    sx_ctx_init(&cx, 1 << 16);
    if (assembler_name()[0] != '\0' &&
        sxa_process_start(&cx, &assembler.identity, confine, limits, &assembler.process) == SX_OK) {
        kept = dup2(assembler.process.fd, ASSEMBLER_FD);
        assembler.process.fd = kept; /* the other one is closed with everything above */
    }
    sx_ctx_fini(&cx);
    return kept < SXD_WORK_FD ? SXD_WORK_FD : kept;
}

static sx_code assemble(void *self, sx_ctx *cx, sx_span text, const char *target, sx_span *code)
{
    sxa_result result;
    SX_TRY(sxa_process_assemble(cx, self, text, target, &result));
    *code = result.cubin;
    return SX_OK;
}

/* ---- requests ---- */

/* "native" is the best target of this processor; every other name is core's to know. */
static sx_code read_target(sx_ctx *cx, const sx_compile_args *args, sx_span *target)
{
    *target = SX_HAS(args, compile_args, target) ? args->target : SX_SPAN_LITERAL("native");
    if (!sx_span_is(*target, "native")) {
        return SX_OK;
    }
    const sx_machine *here = sxr_cpu_machine();
    if (here == NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "target native: this processor executes no target");
    }
    *target = sx_span_of(here->name);
    return SX_OK;
}

static sx_code read_flag(sx_ctx *cx, const sx_pair *pair, bool *flag)
{
    if (pair->kind != SX_VALUE_BOOL) {
        return SX_FAIL(cx, SX_INPUT, "option '%.*s' is not a boolean", (int)pair->name.len,
                       (const char *)pair->name.ptr);
    }
    *flag = pair->flag;
    return SX_OK;
}

static sx_code read_range(sx_ctx *cx, const sx_pair *pair, bool *any)
{
    bool is_text = pair->kind == SX_VALUE_TEXT;
    *any = is_text && sx_span_is(pair->text, "any");
    if (!*any && !(is_text && sx_span_is(pair->text, "keep"))) {
        return SX_FAIL(cx, SX_INPUT, "option 'range' is neither \"keep\" nor \"any\"");
    }
    return SX_OK;
}

static sx_code read_limit(sx_ctx *cx, const sx_pair *pair, uint64_t *limit)
{
    if (pair->kind != SX_VALUE_INT || pair->integer < 1 ||
        (uint64_t)pair->integer > SX_VERIFY_LIMIT_MAX) {
        return SX_FAIL(cx, SX_INPUT, "option '%.*s' is not a number from 1 to 2^60",
                       (int)pair->name.len, (const char *)pair->name.ptr);
    }
    *limit = (uint64_t)pair->integer;
    return SX_OK;
}

static uint32_t count_lines(sx_span text)
{
    uint32_t lines = 0;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n' ? 1 : 0;
    }
    return lines;
}

/* Lines NAME=N: further values of symbols, for modules with several variants. */
static sx_code read_more_dims(sx_ctx *cx, const sx_pair *pair, sx_core_request *request)
{
    sx_span rest = pair->kind == SX_VALUE_TEXT ? pair->text : (sx_span){NULL, 0};
    uint32_t lines = count_lines(rest);
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, request->binding_count + lines + 1);
    if (binding == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < request->binding_count; i++) {
        binding[i] = request->binding[i];
    }
    while (rest.len > 0) {
        size_t end = 0, equals = 0;
        for (; end < rest.len && rest.ptr[end] != '\n'; end++) {
            equals = rest.ptr[end] == '=' ? end : equals;
        }
        sx_binding *next = &binding[request->binding_count];
        *next = (sx_binding){.name = {rest.ptr, equals}};
        bool fits = end < rest.len && equals > 0 && end > equals + 1 && end < equals + 15;
        for (size_t i = equals + 1; i < end && fits; i++) {
            fits = rest.ptr[i] >= '0' && rest.ptr[i] <= '9';
            next->value = next->value * 10 + (rest.ptr[i] - '0');
        }
        if (!fits) {
            return SX_FAIL(cx, SX_INPUT, "option 'more_dims' has a line that is not NAME=N");
        }
        request->binding_count++;
        rest = (sx_span){rest.ptr + end + 1, rest.len - end - 1};
    }
    request->binding = binding;
    return SX_OK;
}

/* The digits that a text begins with, at most 14; *rest is what follows them. */
static bool read_digits(sx_span text, int64_t *value, sx_span *rest)
{
    size_t i = 0;
    *value = 0;
    while (i < text.len && i < 14 && text.ptr[i] >= '0' && text.ptr[i] <= '9') {
        *value = *value * 10 + (text.ptr[i++] - '0');
    }
    *rest = (sx_span){text.ptr + i, text.len - i};
    return i > 0;
}

/* Lines NAME=LOW..HIGH. A name may hold an equals sign, numbers do not. */
static sx_code read_intervals(sx_ctx *cx, const sx_pair *pair, sx_core_request *request)
{
    sx_span rest = pair->kind == SX_VALUE_TEXT ? pair->text : (sx_span){NULL, 0};
    sx_interval *interval = SX_NEW_ARRAY(cx, sx_interval, count_lines(rest) + 1);
    if (interval == NULL) {
        return cx->error.code;
    }
    while (rest.len > 0) {
        size_t end = 0, equals = 0;
        for (; end < rest.len && rest.ptr[end] != '\n'; end++) {
            equals = rest.ptr[end] == '=' ? end : equals;
        }
        sx_interval *next = &interval[request->interval_count];
        sx_span line = {rest.ptr, end};
        next->name = (sx_span){rest.ptr, equals};
        bool fits = end < rest.len && equals > 0;
        line = fits ? (sx_span){line.ptr + equals + 1, line.len - equals - 1} : line;
        fits = fits && read_digits(line, &next->low, &line) && line.len > 2 && line.ptr[0] == '.' &&
               line.ptr[1] == '.';
        line = fits ? (sx_span){line.ptr + 2, line.len - 2} : line;
        if (!fits || !read_digits(line, &next->high, &line) || line.len > 0) {
            return SX_FAIL(cx, SX_INPUT,
                           "option 'intervals' has a line that is not NAME=LOW..HIGH");
        }
        request->interval_count++;
        rest = (sx_span){rest.ptr + end + 1, rest.len - end - 1};
    }
    request->interval = interval;
    return SX_OK;
}

/* Rows that the daemon kept. Those of another machine, and a text that is none, are no reason to refuse a request that
 * did not ask for them: nothing is used of them. */
static sx_code read_kept(sx_ctx *cx, const sx_pair *pair, sx_core_request *request)
{
    if (pair->kind != SX_VALUE_TEXT ||
        sx_core_measured_here(cx, pair->text, core_machine(), &request->measured) != SX_OK) {
        sx_ctx_reset_error(cx);
        request->measured = (sx_span){NULL, 0};
    }
    return SX_OK;
}

static sx_code read_option(sx_ctx *cx, const sx_pair *pair, sx_core_request *request)
{
    if (sx_span_is(pair->name, "no_reassociate")) {
        return read_flag(cx, pair, &request->no_reassociate);
    }
    if (sx_span_is(pair->name, "allow_approximate")) {
        return read_flag(cx, pair, &request->allow_approximate);
    }
    if (sx_span_is(pair->name, "range")) {
        return read_range(cx, pair, &request->range_any);
    }
    if (sx_span_is(pair->name, "verify_flops")) {
        return read_limit(cx, pair, &request->verify_flops);
    }
    if (sx_span_is(pair->name, "verify_bytes")) {
        return read_limit(cx, pair, &request->verify_bytes);
    }
    if (sx_span_is(pair->name, "more_dims")) {
        return read_more_dims(cx, pair, request);
    }
    if (sx_span_is(pair->name, "intervals")) {
        return read_intervals(cx, pair, request);
    }
    if (sx_span_is(pair->name, "unfused")) {
        return read_flag(cx, pair, &request->unfused);
    }
    if (sx_span_is(pair->name, "disabled_rules")) {
        if (pair->kind != SX_VALUE_TEXT) {
            return SX_FAIL(cx, SX_INPUT, "option 'disabled_rules' is not text");
        }
        request->disabled_rules = pair->text;
        return SX_OK;
    }
    if (sx_span_is(pair->name, "device")) {
        if (pair->kind != SX_VALUE_TEXT) {
            return SX_FAIL(cx, SX_INPUT, "option 'device' is not text");
        }
        request->device = pair->text;
        return SX_OK;
    }
    if (sx_span_is(pair->name, "assembler")) {
        if (pair->kind != SX_VALUE_TEXT) {
            return SX_FAIL(cx, SX_INPUT, "option 'assembler' is not text");
        }
        request->assembler = pair->text;
        return SX_OK;
    }
    if (sx_span_is(pair->name, "measured")) {
        if (pair->kind != SX_VALUE_TEXT) {
            return SX_FAIL(cx, SX_INPUT, "option 'measured' is not text");
        }
        request->measured = pair->text;
        return SX_OK;
    }
    if (sx_span_is(pair->name, SX_CORE_KEPT_OPTION)) {
        return read_kept(cx, pair, request);
    }
    if (sx_span_is(pair->name, "objective")) {
        if (pair->kind != SX_VALUE_TEXT) {
            return SX_FAIL(cx, SX_INPUT, "option 'objective' is not text");
        }
        request->objective = pair->text;
        return SX_OK;
    }
    return SX_FAIL(cx, SX_INPUT, "option '%.*s' is not known",
                   (int)sx_min_i64((int64_t)pair->name.len, SX_NAME_MAX),
                   (const char *)pair->name.ptr);
}

/* In place of "any" the assembler that there is. Targets whose code is no text have none, whatever was asked. */
static void name_assembler(sx_core_request *request)
{
    if (request->assembler.len > 0 && !sx_core_assembles(request)) {
        request->assembler = (sx_span){NULL, 0};
    }
    if (sx_span_is(request->assembler, SX_ASSEMBLER_ANY)) {
        request->assembler = sx_span_of(assembler_name());
    }
}

static sx_code read_request(sx_ctx *cx, const sx_compile_args *args, sx_core_request *request)
{
    sx_binding *bindings = SX_NEW_ARRAY(cx, sx_binding, args->dims.count);
    if (bindings == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < args->dims.count; i++) {
        bindings[i] = (sx_binding){
            .name = args->dims.items[i].name,
            .value = args->dims.items[i].integer,
        };
    }
    *request = (sx_core_request){
        .ir = args->ir,
        .binding = bindings,
        .binding_count = args->dims.count,
    };
    SX_TRY(read_target(cx, args, &request->target));
    for (uint32_t i = 0; i < args->options.count; i++) {
        SX_TRY(read_option(cx, &args->options.items[i], request));
    }
    name_assembler(request);
    return SX_OK;
}

/* A part too long for the cache's table is stored as its digest. */
static sx_code short_part(sx_ctx *cx, sx_span *part)
{
    if (part->len <= SX_CACHE_PART_VALUE_MAX) {
        return SX_OK;
    }
    sx_key *digest = SX_NEW(cx, sx_key);
    if (digest == NULL) {
        return cx->error.code;
    }
    *digest = sx_key_of("part", part, 1);
    *part = (sx_span){digest->byte, SX_KEY_BYTES};
    return SX_OK;
}

static sx_code core_key(sx_ctx *cx, const sx_compile_args *args, sxd_key *key)
{
    sx_core_request request;
    sx_span part[SX_PART_COUNT];
    _Static_assert(SX_PART_COUNT <= SX_CACHE_PART_MAX, "a key fits the part table");
    SX_TRY(read_request(cx, args, &request));
    sx_core_program *program = SX_NEW(cx, sx_core_program);
    if (program == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_core_read(cx, &request, program));
    SX_TRY(sx_core_key_of_program(cx, &program->digest, &request, &key->key, part));
    key->program = program;
    key->part_count = SX_PART_COUNT;
    for (uint32_t i = 0; i < SX_PART_COUNT; i++) {
        SX_TRY(short_part(cx, &part[i]));
        key->part[i] = (sx_cache_part){
            .name = sx_span_of(sx_core_part_name((sx_core_part)i)),
            .value = part[i],
        };
    }
    return SX_OK;
}

static sx_code core_compile(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                            sx_buf *module)
{
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    request.library = library;
    const sx_assembler own = {.self = &assembler.process, .assemble = assemble};
    if (assembler.process.fd >= 0 && sx_span_is(request.assembler, assembler_name())) {
        request.assemble = &own;
    }
    return sxr_compile_verified(cx, &request, &verify, module);
}

static sx_code core_optimize(sx_ctx *cx, const sx_compile_args *args, sx_core_library *library,
                             sx_buf *module)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    request.library = library;
    return sx_core_optimize_module(cx, &request, module);
}

static sx_code core_places(sx_ctx *cx, const sx_compile_args *args, const void *program,
                           sx_core_place *place, uint32_t *count)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    return sx_core_places(cx, &request, program, place, count);
}

static sx_code core_twin(sx_ctx *cx, const sx_compile_args *args, sx_span egraph, sx_key *key)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    return sx_core_twin(cx, &request, egraph, key);
}

static sx_code core_lanes(sx_ctx *cx, const sx_compile_args *args, sx_span **names, uint32_t *count)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    SX_TRY(sx_core_long_lanes(cx, &request, count));
    *names = SX_NEW_ARRAY(cx, sx_span, *count);
    if (*names == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < *count; i++) {
        (*names)[i] = sx_span_of(sx_core_long_lane_name(&request, i));
    }
    return SX_OK;
}

static sx_code core_step(sx_ctx *cx, const sx_compile_args *args, const sxd_step *step,
                         sx_core_step_result *result)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    sx_core_step core = {
        .request = &request, .lane = step->lane, .fuel = step->fuel, .state = step->state};
    return sx_core_long_step(cx, &core, result);
}

static sx_code core_merge(sx_ctx *cx, const sx_compile_args *args, sx_span a, sx_span b,
                          sx_buf *out)
{
    sx_core_request request;
    SX_TRY(read_request(cx, args, &request));
    return sx_core_long_merge(cx, &request, a, b, out);
}

static sx_code core_check(sx_ctx *cx, sx_span bytes)
{
    sx_module module;
    return sx_module_decode(cx, bytes, true, &module);
}

const sxd_backend sxd_backend_core = {
    .build = sx_core_toolchain,
    .key = core_key,
    .compile = core_compile,
    .optimize = core_optimize,
    .places = core_places,
    .twin = core_twin,
    .lanes = core_lanes,
    .step = core_step,
    .merge = core_merge,
    .prepare = core_prepare,
    .start = core_start,
    .machine = core_machine,
    .check = core_check,
    .seal = sx_trust_seal,
};
