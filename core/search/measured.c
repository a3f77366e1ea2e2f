#include "core/search/measured.h"

#include <string.h>

uint64_t sx_measured_kernel(const sx_analysis *a, bool rhs_constant)
{
    uint64_t word[4 + SX_RANK_MAX + SX_FUSED_ARGS_MAX] = {
        sx_body_hash(a->body), a->fused->type.rank, a->result_count, rhs_constant};
    uint32_t count = 4;
    for (uint32_t d = 0; d < a->fused->type.rank; d++) {
        word[count++] = (uint64_t)a->fused->type.dim[d].scale;
    }
    for (uint32_t k = 0; k < a->input_count; k++) {
        word[count++] = (uint64_t)a->input[k].dtype;
    }
    uint64_t seed = a->result.dtype;
    for (uint32_t r = 0; r < a->result_count; r++) {
        seed = seed * SX_DTYPE_COUNT + a->root_dtype[r];
    }
    return sx_hash64((sx_span){(const uint8_t *)word, count * sizeof(word[0])}, seed);
}

/* ---- text ---- */
#define CORRECTION "symplex correction " /* of any version */
#define CORRECTION_LEN (sizeof(CORRECTION) - 1)
typedef struct {
    sx_ctx *cx;
    sx_span rest;
    uint32_t line;
} reader;

static sx_span until(sx_span *text, char end)
{
    const uint8_t *found = text->len > 0 ? memchr(text->ptr, end, text->len) : NULL;
    sx_span word = {text->ptr, found != NULL ? (size_t)(found - text->ptr) : text->len};
    size_t used = word.len + (found != NULL ? 1 : 0);
    *text = (sx_span){text->ptr + used, text->len - used};
    return word;
}

static sx_code expected(const reader *r, const char *what)
{
    return SX_FAIL(r->cx, SX_INPUT, "measured: line %u: %s", r->line, what);
}

/* Digits of `base` alone; false: none, others, or a number of more than 64 bits. */
static bool read_number(sx_span word, uint64_t base, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < word.len; i++) {
        uint8_t c = word.ptr[i];
        uint64_t digit = c >= '0' && c <= '9'   ? (uint64_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a' + 10)
                                                : base;
        if (digit >= base || *number > (UINT64_MAX - digit) / base) {
            return false;
        }
        *number = *number * base + digit;
    }
    return word.len > 0;
}

static sx_code read_row(const reader *r, sx_span line, sx_measured_row *row)
{
    uint64_t ns, predicted_ns, runs;
    sx_span machine = until(&line, ' '), device = until(&line, ' '), kernel = until(&line, ' '),
            time = until(&line, ' ');
    sx_span predicted = until(&line, ' '), count = until(&line, ' '), date = until(&line, ' '),
            verdict = until(&line, ' ');
    *row = (sx_measured_row){.runs = 0};
    if (machine.len == 0 || machine.len >= sizeof(row->machine)) {
        return expected(r, "a machine of 1 to 63 characters wanted");
    }
    if (device.len == 0 || device.len >= sizeof(row->device)) {
        return expected(r, "a device of 1 to 47 characters wanted");
    }
    if (kernel.len != 16 || !read_number(kernel, 16, &row->kernel)) {
        return expected(r, "a kernel of 16 hexadecimal digits wanted");
    }
    if (!read_number(time, 10, &ns) || ns == 0 || ns > UINT64_C(1) << 50) {
        return expected(r, "nanoseconds from 1 to 2^50 wanted");
    }
    if (!read_number(predicted, 10, &predicted_ns) || predicted_ns == 0 ||
        predicted_ns > UINT64_C(1) << 50) {
        return expected(r, "nanoseconds of the model from 1 to 2^50 wanted");
    }
    if (!read_number(count, 10, &runs) || runs == 0 || runs > UINT32_MAX) {
        return expected(r, "a number of runs wanted");
    }
    if (date.len != SX_MEASURED_DATE) {
        return expected(r, "a date of 10 characters wanted");
    }
    row->best = sx_span_is(verdict, "best");
    if (!row->best && !sx_span_is(verdict, "tried")) {
        return expected(r, "'best' or 'tried' wanted");
    }
    if (line.len == 0) {
        return expected(r, "a schedule wanted");
    }
    memcpy(row->machine, machine.ptr, machine.len);
    memcpy(row->device, device.ptr, device.len);
    memcpy(row->date, date.ptr, date.len);
    row->ns = (double)ns;
    row->predicted_ns = (double)predicted_ns;
    row->runs = (uint32_t)runs;
    return sx_schedule_parse(r->cx, line, &row->schedule);
}

static bool same_kernel(const sx_measured_row *a, const sx_measured_row *b)
{
    return a->kernel == b->kernel && strcmp(a->device, b->device) == 0 &&
           strcmp(a->machine, b->machine) == 0;
}

sx_code sx_measured_put(sx_ctx *cx, sx_measured *m, const sx_measured_row *row)
{
    if (m->row == NULL) {
        m->row = SX_NEW_ARRAY(cx, sx_measured_row, SX_MEASURED_ROWS_MAX);
        if (m->row == NULL) {
            return cx->error.code;
        }
    }
    uint32_t at = 0;
    while (at < m->count && !(same_kernel(&m->row[at], row) &&
                              sx_schedule_equal(&m->row[at].schedule, &row->schedule))) {
        at++;
    }
    if (at == SX_MEASURED_ROWS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "measured: more than %u rows", SX_MEASURED_ROWS_MAX);
    }
    for (uint32_t i = 0; i < m->count && row->best; i++) {
        m->row[i].best = m->row[i].best && !same_kernel(&m->row[i], row);
    }
    m->row[at] = *row;
    m->count += at == m->count ? 1 : 0;
    return SX_OK;
}

sx_code sx_measured_merge(sx_ctx *cx, sx_measured *m, const sx_measured *rows)
{
    for (uint32_t i = 0; i < m->count; i++) {
        for (uint32_t k = 0; k < rows->count; k++) {
            m->row[i].best = m->row[i].best && !same_kernel(&m->row[i], &rows->row[k]);
        }
    }
    for (uint32_t k = 0; k < rows->count; k++) {
        SX_TRY(sx_measured_put(cx, m, &rows->row[k]));
    }
    return SX_OK;
}

sx_code sx_measured_parse(sx_ctx *cx, sx_span text, sx_measured *m)
{
    reader r = {cx, text, 1};
    *m = (sx_measured){.count = 0};
    if (text.len == 0) {
        return SX_OK;
    }
    if (!sx_span_is(until(&r.rest, '\n'), SX_MEASURED_HEAD)) {
        return expected(&r, "'" SX_MEASURED_HEAD "' wanted");
    }
    while (r.rest.len > 0) {
        sx_measured_row row;
        if (r.rest.len >= CORRECTION_LEN && memcmp(r.rest.ptr, CORRECTION, CORRECTION_LEN) == 0) {
            m->correction = r.rest;
            return SX_OK;
        }
        sx_span line = until(&r.rest, '\n');
        r.line++;
        SX_TRY(read_row(&r, line, &row));
        SX_TRY(sx_measured_put(cx, m, &row));
    }
    return SX_OK;
}

void sx_measured_print(const sx_measured *m, sx_buf *text)
{
    sx_buf_put_text(text, SX_MEASURED_HEAD "\n");
    for (uint32_t i = 0; i < m->count; i++) {
        const sx_measured_row *row = &m->row[i];
        sx_buf_print(text, "%s %s %016llx %.0f %.0f %u %s %s ", row->machine, row->device,
                     (unsigned long long)row->kernel, row->ns, row->predicted_ns, row->runs,
                     row->date, row->best ? "best" : "tried");
        sx_schedule_print(&row->schedule, text);
        sx_buf_put_text(text, "\n");
    }
    sx_buf_put_span(text, m->correction);
}

const sx_measured_row *sx_measured_find(const sx_measured *m, const char *device, uint64_t kernel)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const sx_measured_row *row = &m->row[i];
        if (row->best && row->kernel == kernel && strcmp(row->device, device) == 0) {
            return row;
        }
    }
    return NULL;
}
