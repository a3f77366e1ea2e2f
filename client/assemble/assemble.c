#include "client/assemble/assemble.h"

#include <string.h>

#include "client/assemble/tools.h"

/* ---- what is asked ---- */

uint32_t sxa_target_number(sx_span name)
{
    uint32_t number = 0;
    size_t at = 3;
    if (name.len < 5 || name.len > 7 || memcmp(name.ptr, "sm_", 3) != 0) {
        return 0;
    }
    for (; at < name.len && name.ptr[at] >= '0' && name.ptr[at] <= '9'; at++) {
        number = 10 * number + (uint32_t)(name.ptr[at] - '0');
    }
    bool letter = at + 1 == name.len && (name.ptr[at] == 'a' || name.ptr[at] == 'f');
    return (at == name.len || letter) && name.ptr[3] != '0' && number >= 10 && number < 1000
               ? number
               : 0;
}

/* Past a comment, if one begins there. */
static size_t skip_comment(sx_span text, size_t at)
{
    if (at + 1 >= text.len || text.ptr[at] != '/') {
        return at;
    }
    bool block = text.ptr[at + 1] == '*';
    const char *mark = block ? "*/" : "\n";
    if (!block && text.ptr[at + 1] != '/') {
        return at;
    }
    const uint8_t *end = memmem(text.ptr + at + 2, text.len - at - 2, mark, strlen(mark));
    return end != NULL ? (size_t)(end - text.ptr) + strlen(mark) : text.len;
}

static bool is_word(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%';
}

/* Does the text have an instruction of that name, outside of comments? */
static bool has_instruction(sx_span text, const char *name)
{
    size_t length = strlen(name), at = 0;
    while (at < text.len) {
        size_t past = skip_comment(text, at), end;
        if (past > at) {
            at = past;
            continue;
        }
        for (end = at; end < text.len && is_word(text.ptr[end]); end++) {
        }
        if (end - at == length && memcmp(text.ptr + at, name, length) == 0) {
            return true;
        }
        at = end > at ? end : at + 1;
    }
    return false;
}

static sx_code choose(sx_ctx *cx, sx_span ptx, const sxa_options *options, sxa_tool *tool,
                      sxa_found *found)
{
    bool dropped = has_instruction(ptx, "setmaxnreg");
    *tool = options->with;
    if (*tool == SXA_ANY) {
        *tool = dropped ? SXA_PTXAS : SXA_NVJITLINK;
    }
    sxa_find(cx, *tool, options->toolkit, found);
    if (found->found) {
        return SX_OK;
    }
    if (options->with != SXA_ANY) {
        return sxa_absent(cx, options->toolkit, *tool == SXA_PTXAS ? "no ptxas" : "no nvJitLink",
                          found->refused);
    }
    if (dropped) {
        return sxa_absent(cx, options->toolkit,
                          "no ptxas, which setmaxnreg needs (nvJitLink drops it),", found->refused);
    }
    *tool = SXA_PTXAS;
    sxa_find(cx, *tool, options->toolkit, found);
    return found->found
               ? SX_OK
               : sxa_absent(cx, options->toolkit, "neither nvJitLink nor ptxas", found->refused);
}

/* ---- what is made of the answer ---- */

static sx_code make_result(sx_ctx *cx, sxa_tool tool, sx_span cubin, sx_span log,
                           sxa_result *result)
{
    sx_cubin *record;
    *result = (sxa_result){.tool = tool, .cubin = cubin, .log = log};
    SX_TRY(sx_cubin_read(cx, cubin, &record));
    result->record = record;
    return sxa_find_advisories(cx, result);
}

sx_code sxa_assemble(sx_ctx *cx, sx_span ptx, const char *target, const sxa_options *options,
                     sxa_result *result)
{
    SX_ASSERT(options->with < SXA_TOOL_COUNT && result != NULL);
    sxa_tool tool;
    sxa_output output = {.refused = false};
    uint32_t number = sxa_target_number(sx_span_of(target));
    uint32_t timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : SXA_TIMEOUT_MS;
    if (number == 0) {
        return SX_FAIL(cx, SX_INPUT, "%.40s is no target of an assembler, as sm_90a is", target);
    }
    if (ptx.len == 0 || ptx.len > SXA_PTX_BYTES_MAX || memchr(ptx.ptr, 0, ptx.len) != NULL) {
        return SX_FAIL(cx, SX_INPUT, "%zu bytes are no PTX text: 1 to %zu, none of them 0", ptx.len,
                       SXA_PTX_BYTES_MAX);
    }
    const char *text = sx_alloc_text(cx, ptx);
    sxa_found *found = SX_NEW(cx, sxa_found);
    if (text == NULL || found == NULL) {
        return cx->error.code;
    }
    sx_span ended = {(const uint8_t *)text, ptx.len};
    SX_TRY(choose(cx, ended, options, &tool, found));
    SX_TRY(tool == SXA_NVJITLINK
               ? sxa_run_nvjitlink(cx, found->path, ended, target, &output)
               : sxa_run_ptxas(cx, found->path, ended, target, timeout_ms, &output));
    if (output.refused) {
        return sxa_fail_with_log(cx, sxa_tool_name(tool), output.log, ptx);
    }
    SX_TRY(make_result(cx, tool, output.cubin, output.log, result));
    if (result->record->arch != number) {
        return SX_FAIL(cx, SX_COMPILE, "%s made code for sm_%u, asked for %s", sxa_tool_name(tool),
                       result->record->arch, target);
    }
    return SX_OK;
}

/* ---- as bytes ---- */

void sxa_result_encode(const sxa_result *result, sx_buf *bytes)
{
    SX_ASSERT(result->cubin.len > 0);
    sx_buf_put_u32(bytes, (uint32_t)result->tool);
    sx_buf_put_u32(bytes, (uint32_t)result->log.len);
    sx_buf_put_span(bytes, result->log);
    sx_buf_put_span(bytes, result->cubin);
}

sx_code sxa_result_decode(sx_ctx *cx, sx_span bytes, sxa_result *result)
{
    uint32_t head[2] = {SXA_TOOL_COUNT, 0};
    if (bytes.len >= sizeof(head)) {
        memcpy(head, bytes.ptr, sizeof(head)); /* of this process's own worker */
    }
    if ((head[0] != SXA_NVJITLINK && head[0] != SXA_PTXAS) || head[1] > bytes.len - sizeof(head)) {
        return SX_FAIL(cx, SX_CORRUPT, "%zu bytes are no result of an assembler", bytes.len);
    }
    sx_span log = {bytes.ptr + sizeof(head), head[1]};
    sx_span cubin = {log.ptr + log.len, bytes.len - sizeof(head) - log.len};
    return make_result(cx, (sxa_tool)head[0], cubin, log, result);
}
