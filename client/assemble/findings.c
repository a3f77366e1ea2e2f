#include <stdio.h>
#include <string.h>

#include "client/assemble/tools.h"

/* ---- lines ---- */

/* Takes the next line of `rest`, without its end. */
static bool next_line(sx_span *rest, sx_span *line)
{
    if (rest->len == 0) {
        return false;
    }
    const uint8_t *end = memchr(rest->ptr, '\n', rest->len);
    size_t length = end != NULL ? (size_t)(end - rest->ptr) : rest->len;
    size_t taken = end != NULL ? length + 1 : length;
    *line = (sx_span){rest->ptr, length};
    *rest = (sx_span){rest->ptr + taken, rest->len - taken};
    return true;
}

/* Where `mark` ends in the text, or 0. */
static size_t behind(sx_span text, const char *mark)
{
    size_t length = strlen(mark);
    const uint8_t *at = text.len > 0 ? memmem(text.ptr, text.len, mark, length) : NULL;
    return at != NULL ? (size_t)(at - text.ptr) + length : 0;
}

static sx_span from(sx_span text, size_t at)
{
    while (at < text.len && text.ptr[at] == ' ') {
        at++;
    }
    return (sx_span){text.ptr + at, text.len - at};
}

static uint32_t number_at(sx_span text, size_t at)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < 9 && at < text.len && text.ptr[at] >= '0' && text.ptr[at] <= '9';
         i++) {
        value = 10 * value + (uint32_t)(text.ptr[at++] - '0');
    }
    return value;
}

/* ---- what is said of code that was made ---- */

static const struct {
    uint32_t number;
    sxa_severity severity;
} advisory[] = {
#define SXA_ADVISORY(number, severity, meaning) {number, SXA_##severity},
#include "client/assemble/advisories.def"
#undef SXA_ADVISORY
};

/* Lines that are findings: "ptxas info    : (C7504) Potential Performance Loss: ...". */
static bool read_advisory(sx_span line, sxa_finding *finding)
{
    size_t at = behind(line, "(C");
    uint32_t number = number_at(line, at);
    size_t text = behind(line, ") ");
    if (at == 0 || number == 0 || text < at) {
        return false;
    }
    *finding = (sxa_finding){.severity = SXA_NOTE, .text = from(line, text)};
    (void)snprintf(finding->name, sizeof(finding->name), "C%u", number);
    if (behind(finding->text, "Potential Performance Loss") > 0) {
        finding->severity = SXA_FAILURE;
    }
    for (uint32_t i = 0; i < SX_COUNT(advisory); i++) {
        if (advisory[i].number == number) {
            finding->severity = advisory[i].severity;
        }
    }
    return true;
}

#define FINDING_BYTES 512

static sx_code put_text(sx_ctx *cx, sxa_finding *finding, sxa_severity severity, const char *name,
                        const char *text)
{
    char *copy = sx_alloc_text(cx, sx_span_of(text));
    if (copy == NULL) {
        return cx->error.code;
    }
    *finding = (sxa_finding){.severity = severity, .text = sx_span_of(copy)};
    (void)snprintf(finding->name, sizeof(finding->name), "%s", name);
    return SX_OK;
}

/* What the record of a kernel says: at most two findings. */
static sx_code read_kernel(sx_ctx *cx, const sx_cubin_kernel *kernel, sxa_finding *finding,
                           uint32_t *count)
{
    char text[FINDING_BYTES];
    int name = (int)(kernel->name.len < 200 ? kernel->name.len : 200);
    if (kernel->spill_count > 0) {
        (void)snprintf(text, sizeof(text),
                       "kernel %.*s: %u instructions move registers to local memory or back, with "
                       "%u registers and a frame of %u bytes",
                       name, (const char *)kernel->name.ptr, kernel->spill_count, kernel->registers,
                       kernel->frame_bytes);
        SX_TRY(put_text(cx, &finding[(*count)++], SXA_FAILURE, "spill", text));
    } else if (kernel->stack_bytes > 0) {
        (void)snprintf(text, sizeof(text),
                       "kernel %.*s: %u bytes of local memory in each thread, none of them spilled",
                       name, (const char *)kernel->name.ptr, kernel->stack_bytes);
        SX_TRY(put_text(cx, &finding[(*count)++], SXA_NOTE, "local", text));
    }
    if (kernel->barriers >= 16) {
        (void)snprintf(text, sizeof(text),
                       "kernel %.*s: all 16 barriers; a barrier that a register names takes them",
                       name, (const char *)kernel->name.ptr);
        SX_TRY(put_text(cx, &finding[(*count)++], SXA_NOTE, "barriers", text));
    }
    return SX_OK;
}

static uint32_t count_lines(sx_span text)
{
    uint32_t count = 1;
    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n';
    }
    return count;
}

sx_code sxa_find_advisories(sx_ctx *cx, sxa_result *result)
{
    SX_ASSERT(result->record != NULL);
    uint32_t most = count_lines(result->log) + 2 * result->record->kernel_count, count = 0;
    sxa_finding *all = SX_NEW_ARRAY(cx, sxa_finding, most);
    sxa_finding *sorted = SX_NEW_ARRAY(cx, sxa_finding, most);
    sx_span rest = result->log, line;
    if (all == NULL || sorted == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < result->record->kernel_count; i++) {
        SX_TRY(read_kernel(cx, &result->record->kernel[i], all, &count));
    }
    while (next_line(&rest, &line)) {
        count += read_advisory(line, &all[count]);
    }
    SX_ASSERT(count <= most);
    uint32_t put = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].severity == SXA_FAILURE) {
            sorted[put++] = all[i];
        }
    }
    result->failure_count = put;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].severity != SXA_FAILURE) {
            sorted[put++] = all[i];
        }
    }
    result->finding = sorted;
    result->finding_count = count;
    return SX_OK;
}

#define SHOWN_MAX 4

sx_code sxa_refuse(sx_ctx *cx, const sxa_result *result)
{
    char text[SX_ERROR_TEXT_MAX] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < result->failure_count && i < SHOWN_MAX; i++) {
        const sxa_finding *f = &result->finding[i];
        length += (size_t)snprintf(
            text + length, sizeof(text) - length, "%s%s: %.*s", i > 0 ? "; " : "", f->name,
            (int)(f->text.len < 380 ? f->text.len : 380), (const char *)f->text.ptr);
    }
    if (result->failure_count == 0) {
        return SX_OK;
    }
    uint32_t more = result->failure_count > SHOWN_MAX ? result->failure_count - SHOWN_MAX : 0;
    return more > 0 ? SX_FAIL(cx, SX_COMPILE, "%.1800s; and %u more", text, more)
                    : SX_FAIL(cx, SX_COMPILE, "%s", text);
}

/* ---- errors ---- */

/* The line of a text, without blanks at its ends. */
static sx_span line_of(sx_span text, uint32_t number)
{
    sx_span line = {NULL, 0};
    while (number > 0 && next_line(&text, &line)) {
        number--;
    }
    if (number > 0) {
        return (sx_span){NULL, 0};
    }
    line = from(line, 0);
    while (line.len > 0 && (line.ptr[0] == '\t' || line.ptr[0] == ' ')) {
        line = (sx_span){line.ptr + 1, line.len - 1};
    }
    while (line.len > 0 && line.ptr[line.len - 1] <= ' ') {
        line.len--;
    }
    return line;
}

/* Bytes that could move a cursor become '?', ends of lines blanks. */
static size_t put_plain(char *text, size_t size, size_t length, sx_span part, size_t most)
{
    for (size_t i = 0; i < part.len && i < most && length + 1 < size; i++) {
        bool plain = part.ptr[i] >= ' ' && part.ptr[i] != 127;
        text[length++] = part.ptr[i] == '\n' ? ' ' : plain ? (char)part.ptr[i] : '?';
    }
    text[length] = '\0';
    return length;
}

/* "ptxas FILE, line 7; error   : Arguments mismatch" and "ptxas fatal   : text"; the last line of the program says
 * only that there were errors. */
static bool read_error(sx_span line, uint32_t *number, sx_span *text)
{
    size_t at = behind(line, "error   : ");
    at = at > 0 ? at : behind(line, "fatal   : ");
    if (at == 0 || behind(line, "Ptx assembly aborted due to errors") > 0) {
        return false;
    }
    size_t where = behind(line, ", line ");
    *number = where > 0 && where < at ? number_at(line, where) : 0;
    *text = from(line, at);
    if (*number == 0) { /* the text may say it itself: "instruction at line 40" */
        *number = number_at(*text, behind(*text, " at line "));
    }
    return true;
}

sx_code sxa_fail_with_log(sx_ctx *cx, const char *tool, sx_span log, sx_span ptx)
{
    SX_ASSERT(tool != NULL);
    char text[1600] = "";
    size_t length = 0;
    uint32_t errors = 0, number = 0;
    sx_span rest = log, line, what;
    while (next_line(&rest, &line)) {
        if (!read_error(line, &number, &what) || errors++ >= SHOWN_MAX) {
            continue;
        }
        sx_span shown = number > 0 ? line_of(ptx, number) : (sx_span){NULL, 0};
        length = put_plain(text, sizeof(text), length, sx_span_of(errors > 1 ? "; " : ""), 2);
        if (number > 0) {
            length += (size_t)snprintf(text + length, sizeof(text) - length, "line %u: ", number);
        }
        length = put_plain(text, sizeof(text), length, what, 200);
        if (shown.len > 0) {
            length = put_plain(text, sizeof(text), length, sx_span_of(": `"), 3);
            length = put_plain(text, sizeof(text), length, shown, 120);
            length = put_plain(text, sizeof(text), length, sx_span_of("`"), 1);
        }
    }
    if (errors == 0) { /* in words of its own */
        while (log.len > 0 && log.ptr[log.len - 1] <= ' ') {
            log.len--;
        }
        (void)put_plain(text, sizeof(text), 0, log, 400);
    }
    if (errors > SHOWN_MAX) {
        return SX_FAIL(cx, SX_COMPILE, "%s: %s; and %u more", tool, text, errors - SHOWN_MAX);
    }
    return SX_FAIL(cx, SX_COMPILE, "%s refuses the text%s%s", tool, text[0] != '\0' ? ": " : "",
                   text);
}
