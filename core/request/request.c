#include "core/request/request.h"

#include "core/ir/check.h"
#include "protocol/module.h"
#include "core/rules/key.h"
#include "core_digest.h"

const char *sx_core_toolchain(void)
{
    return "symplexd " SX_VERSION_TEXT " " SX_CORE_DIGEST;
}

const char *sx_core_part_name(sx_core_part part)
{
    static const char *const name[SX_PART_COUNT] = {
        [SX_PART_PROGRAM] = "program",     [SX_PART_TARGET] = "target",
        [SX_PART_EXTENTS] = "extents",     [SX_PART_OPTIONS] = "options",
        [SX_PART_TOOLCHAIN] = "toolchain", [SX_PART_RULES] = "rules"};
    SX_ASSERT(part < SX_PART_COUNT);
    return name[part];
}

/* The values of one symbol: a single one where `low` is `high`. */
static sx_interval given(const sx_core_request *request, uint32_t index)
{
    SX_ASSERT(index < request->binding_count + request->interval_count);
    if (index >= request->binding_count) {
        return request->interval[index - request->binding_count];
    }
    const sx_binding *binding = &request->binding[index];
    return (sx_interval){binding->name, binding->value, binding->value};
}

static int compare_given(const sx_interval *a, const sx_interval *b)
{
    int names = sx_span_compare(a->name, b->name);
    return names != 0 ? names : (a->low > b->low) - (a->low < b->low);
}

sx_code sx_core_check_extents(sx_ctx *cx, const sx_core_request *request)
{
    for (uint32_t i = 0; i < request->interval_count; i++) {
        const sx_interval *interval = &request->interval[i];
        sx_short name = sx_short_name(interval->name);
        if (interval->low < 1 || interval->high < interval->low || interval->high > SX_EXTENT_MAX) {
            return SX_FAIL(
                cx, SX_INPUT,
                "symbol \"%s\" has the interval %lld..%lld, allowed are 1 to %lld, ascending",
                name.text, (long long)interval->low, (long long)interval->high,
                (long long)SX_EXTENT_MAX);
        }
        for (uint32_t k = 0; k < request->binding_count + i; k++) {
            if (sx_span_equal(given(request, k).name, interval->name)) {
                return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" has the interval %lld..%lld and %s",
                               name.text, (long long)interval->low, (long long)interval->high,
                               k < request->binding_count ? "a value" : "another one");
            }
        }
    }
    return SX_OK;
}

/* "batch=8 seq=1..512": in order of name and value, so that the order of the request does not matter. */
static sx_code print_extents(sx_ctx *cx, const sx_core_request *request, sx_buf *text)
{
    SX_TRY(sx_core_check_extents(cx, request));
    uint32_t count = request->binding_count + request->interval_count;
    sx_interval last = {.low = 0};
    for (uint32_t n = 0; n < count; n++) {
        sx_interval next = {.low = 0};
        bool found = false;
        for (uint32_t i = 0; i < count; i++) {
            sx_interval one = given(request, i);
            bool later = n == 0 || compare_given(&one, &last) > 0;
            if (later && (!found || compare_given(&one, &next) < 0)) {
                next = one;
                found = true;
            }
        }
        if (!found) {
            return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" is bound twice",
                           sx_short_name(last.name).text);
        }
        sx_buf_print(text, "%s%.*s=%lld", n > 0 ? " " : "", (int)next.name.len,
                     (const char *)next.name.ptr, (long long)next.low);
        if (next.high > next.low) {
            sx_buf_print(text, "..%lld", (long long)next.high);
        }
        last = next;
    }
    return SX_OK;
}

static sx_code copy_part(sx_ctx *cx, sx_buf *text, sx_span *part)
{
    SX_TRY(sx_buf_check(cx, text, "key part"));
    char *copy = sx_alloc_text(cx, sx_buf_span(text));
    if (copy == NULL) {
        return cx->error.code;
    }
    *part = (sx_span){(const uint8_t *)copy, text->len};
    sx_buf_clear(text);
    return SX_OK;
}

void sx_core_key_options(const sx_core_request *request, sx_buf *text)
{
    sx_span objective = request->objective.len > 0 ? request->objective : sx_span_of("time");
    sx_buf_print(text,
                 "reassociate=%d approximate=%d range=%s disabled=%.*s objective=%.*s numerics=%u "
                 "module=%u",
                 !request->no_reassociate, request->allow_approximate,
                 request->range_any ? "any" : "keep", (int)request->disabled_rules.len,
                 (const char *)request->disabled_rules.ptr, (int)objective.len,
                 (const char *)objective.ptr, SX_NUMERICS_VERSION, SX_MODULE_VERSION);
    if (request->unfused) {
        sx_buf_put_text(text, " unfused=1");
    }
    if (request->assembler.len > 0) {
        sx_buf_print(text, " assembler=%.*s", (int)request->assembler.len,
                     (const char *)request->assembler.ptr);
    }
    if (request->verify_flops > 0 || request->verify_bytes > 0) {
        sx_buf_print(text, " verify=%llu/%llu", (unsigned long long)request->verify_flops,
                     (unsigned long long)request->verify_bytes);
    }
}

#define TARGETS_MAX 16u

/* Puts a name into its place. */
static sx_code put_name(sx_ctx *cx, sx_span *name, uint32_t *count, sx_span one)
{
    uint32_t at = *count;
    while (at > 0 && sx_span_compare(name[at - 1], one) > 0) {
        at--;
    }
    if (one.len == 0 || (at > 0 && sx_span_equal(name[at - 1], one))) {
        return SX_FAIL(cx, SX_INPUT, "targets: %s",
                       one.len == 0 ? "a name between commas is empty"
                                    : "one name stands there twice");
    }
    for (uint32_t i = *count; i > at; i--) {
        name[i] = name[i - 1];
    }
    name[at] = one;
    (*count)++;
    return SX_OK;
}

sx_code sx_core_target_names(sx_ctx *cx, const sx_core_request *request, sx_span **name,
                             uint32_t *count)
{
    sx_span text = request->target;
    uint32_t most = 1;
    for (size_t i = 0; i < text.len; i++) {
        most += text.ptr[i] == ',' ? 1 : 0;
    }
    *count = 0;
    if (most > TARGETS_MAX && request->device.len == 0) {
        return SX_FAIL(cx, SX_LIMIT, "%u targets, at most %u", most, TARGETS_MAX);
    }
    *name = SX_NEW_ARRAY(cx, sx_span, most);
    if (*name == NULL) {
        return cx->error.code;
    }
    if (request->device.len > 0 || most == 1) {
        (*name)[(*count)++] = text;
        return SX_OK;
    }
    for (size_t begin = 0, end = 0; begin <= text.len; begin = end + 1) {
        for (end = begin; end < text.len && text.ptr[end] != ',';) {
            end++;
        }
        SX_TRY(put_name(cx, *name, count, (sx_span){text.ptr + begin, end - begin}));
    }
    SX_ASSERT(*count == most);
    return SX_OK;
}

/* The names with commas between them. */
static sx_code join_names(sx_ctx *cx, const sx_core_request *request, sx_span *text)
{
    sx_span *name;
    uint32_t count;
    SX_TRY(sx_core_target_names(cx, request, &name, &count));
    if (count == 1) {
        *text = *name;
        return SX_OK;
    }
    sx_buf line;
    sx_buf_init(&line, (size_t)1 << 20);
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_text(&line, i > 0 ? "," : "");
        sx_buf_put_span(&line, name[i]);
    }
    sx_code code = copy_part(cx, &line, text);
    sx_buf_fini(&line);
    return code;
}

sx_code sx_core_key_device(sx_ctx *cx, const sx_core_request *request, sx_span *text)
{
    SX_ASSERT(text != NULL);
    *text = request->target;
    if (request->device.len == 0) {
        return join_names(cx, request, text);
    }
    char digest[SX_KEY_TEXT_SIZE];
    sx_key key = sx_key_of("device", &request->device, 1);
    sx_buf line;
    sx_buf_init(&line, 4096);
    sx_key_print(&key, digest);
    sx_buf_put_span(&line, request->target);
    sx_buf_print(&line, " %s", digest);
    sx_code code = copy_part(cx, &line, text);
    sx_buf_fini(&line);
    return code;
}

static sx_code collect(sx_ctx *cx, const sx_key *program, const sx_core_request *request,
                       sx_buf *text, sx_span part[SX_PART_COUNT])
{
    sx_buf_put(text, program->byte, sizeof(program->byte));
    SX_TRY(copy_part(cx, text, &part[SX_PART_PROGRAM]));
    SX_TRY(sx_core_key_device(cx, request, &part[SX_PART_TARGET]));
    SX_TRY(print_extents(cx, request, text));
    SX_TRY(copy_part(cx, text, &part[SX_PART_EXTENTS]));
    sx_core_key_options(request, text);
    SX_TRY(copy_part(cx, text, &part[SX_PART_OPTIONS]));
    part[SX_PART_TOOLCHAIN] = sx_span_of(sx_core_toolchain());
    sx_key rules = sx_rules_key();
    sx_buf_put(text, rules.byte, sizeof(rules.byte));
    return copy_part(cx, text, &part[SX_PART_RULES]);
}

sx_code sx_core_key_of_graph(sx_ctx *cx, const sx_graph *graph, const sx_core_request *request,
                             sx_key *key, sx_span part[SX_PART_COUNT])
{
    sx_key program;
    SX_TRY(sx_graph_key(cx, graph, &program));
    return sx_core_key_of_program(cx, &program, request, key, part);
}

sx_code sx_core_key_of_program(sx_ctx *cx, const sx_key *program, const sx_core_request *request,
                               sx_key *key, sx_span part[SX_PART_COUNT])
{
    sx_buf text;
    SX_ASSERT(program != NULL && key != NULL);
    sx_buf_init(&text, (size_t)1 << 20);
    sx_code code = collect(cx, program, request, &text, part);
    sx_buf_fini(&text);
    if (code == SX_OK) {
        *key = sx_key_of("compile", part, SX_PART_COUNT);
    }
    return code;
}

sx_code sx_core_key(sx_ctx *cx, const sx_core_request *request, sx_key *key,
                    sx_span part[SX_PART_COUNT])
{
    sx_core_program program;
    SX_TRY(sx_core_read(cx, request, &program));
    return sx_core_key_of_program(cx, &program.digest, request, key, part);
}

sx_code sx_core_read(sx_ctx *cx, const sx_core_request *request, sx_core_program *program)
{
    sx_graph *graph, *canonical;
    SX_ASSERT(program != NULL);
    SX_TRY(sx_graph_parse(cx, request->ir, &graph));
    SX_TRY(sx_graph_canon(cx, graph, &canonical));
    SX_ASSERT(canonical->name.len == 0); /* names of people are no part of a key */
    program->canonical = canonical;
    return sx_graph_key_canonical(cx, canonical, &program->digest);
}
