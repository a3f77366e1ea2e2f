/* device_text.c - descriptions of devices as text: one value in a line, its words, a number and a unit.
 *
 *   device my-server
 *   text two sockets of ...
 *   target x86-64-v4
 *   cores 32
 *   memory bandwidth 180 GB/s
 *   rate bf16 amx 60 TFLOP/s
 *
 * '#' begins a comment. The order of lines is free but for the first. */
#include "core/cost/device.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 400
#define LINE_BYTES_MAX 400

/* ---- units ---- */
typedef enum {
    KIND_COUNT,
    KIND_CYCLES,
    KIND_FREQUENCY,
    KIND_BYTES,
    KIND_BANDWIDTH,
    KIND_TIME,
    KIND_ENERGY,
    KIND_RATE
} kind;
/* A unit as it is written, and what one of it is in the base unit; of one kind the smallest first. The first of
 * those that are equal is printed. */
static const struct {
    kind kind;
    const char *name;
    double factor;
} units[] = {
    {KIND_COUNT, "", 1},
    {KIND_CYCLES, "cycles", 1},
    {KIND_FREQUENCY, "MHz", 1e-3},
    {KIND_FREQUENCY, "GHz", 1},
    {KIND_BYTES, "B", 1},
    {KIND_BYTES, "kB", 1e3},
    {KIND_BYTES, "KiB", 1024},
    {KIND_BYTES, "MB", 1e6},
    {KIND_BYTES, "MiB", 1 << 20},
    {KIND_BYTES, "GB", 1e9},
    {KIND_BYTES, "GiB", 1 << 30},
    {KIND_BYTES, "TB", 1e12},
    {KIND_BANDWIDTH, "MB/s", 1e-3},
    {KIND_BANDWIDTH, "GB/s", 1},
    {KIND_BANDWIDTH, "TB/s", 1e3},
    {KIND_TIME, "ns", 1},
    {KIND_TIME, "us", 1e3},
    {KIND_TIME, "ms", 1e6},
    {KIND_ENERGY, "pJ", 1},
    {KIND_ENERGY, "nJ", 1e3},
    {KIND_RATE, "GFLOP/s", 1},
    {KIND_RATE, "TFLOP/s", 1e3},
    {KIND_RATE, "PFLOP/s", 1e6},
    {KIND_RATE, "GOP/s", 1},
    {KIND_RATE, "TOP/s", 1e3},
    {KIND_RATE, "POP/s", 1e6},
};
#define RATE_LEAST 1e-3
#define RATE_MOST 1e9

/* ---- fields ---- */
typedef enum { NEED_REQUIRED, NEED_OPTIONAL, NEED_BLOCK } need;
typedef struct {
    const char *words, *help;
    size_t offset, size; /* in sx_device */
    kind kind;
    double least, most;
    need need;
} field;
static const field fields[] = {
#define SX_DEVICE_FIELD(member, type, words_, unit, least_, most_, need_, help_) \
    {.words = words_,                                                            \
     .help = help_,                                                              \
     .offset = offsetof(sx_device, member),                                      \
     .size = sizeof(type),                                                       \
     .kind = KIND_##unit,                                                        \
     .least = least_,                                                            \
     .most = most_,                                                              \
     .need = NEED_##need_},
#include "core/cost/device_fields.def"
};

static double get(const sx_device *device, const field *f)
{
    const uint8_t *at = (const uint8_t *)device + f->offset;
    uint32_t count;
    double value;
    if (f->size == sizeof(count)) {
        memcpy(&count, at, sizeof(count));
        return count;
    }
    memcpy(&value, at, sizeof(value));
    return value;
}

static void set(sx_device *device, const field *f, double value)
{
    uint8_t *at = (uint8_t *)device + f->offset;
    if (f->size == sizeof(uint32_t)) {
        SX_ASSERT(value >= 0 && value <= UINT32_MAX);
        uint32_t count = (uint32_t)value;
        memcpy(at, &count, sizeof(count));
        return;
    }
    memcpy(at, &value, sizeof(value));
}

/* ---- numbers ---- */

/* The number in the largest unit that says it exactly and is not above it. */
static void put_number(sx_buf *text, kind k, bool is_float, double value)
{
    for (uint32_t i = (uint32_t)SX_COUNT(units); i-- > 0;) {
        bool other = k == KIND_RATE && (strchr(units[i].name, 'F') != NULL) != is_float;
        if (units[i].kind != k || other || value < units[i].factor) {
            continue;
        }
        char number[40];
        (void)snprintf(number, sizeof(number), "%.9g", value / units[i].factor);
        double back = strtod(number, NULL) * units[i].factor;
        if (!(back < value) && !(back > value)) {
            sx_buf_print(text, "%s%s%s", number, units[i].name[0] != '\0' ? " " : "",
                         units[i].name);
            return;
        }
    }
    for (uint32_t i = 0; i < SX_COUNT(units); i++) {
        double factor = units[i].factor;
        if (units[i].kind == k && !(factor < 1) && !(factor > 1)) {
            sx_buf_print(text, "%.17g%s%s", value, units[i].name[0] != '\0' ? " " : "",
                         units[i].name);
            return;
        }
    }
    SX_UNREACHABLE();
}

typedef struct {
    char text[96];
} range_text;
static range_text range_of(kind k, double least, double most)
{
    range_text range;
    sx_buf text;
    sx_buf_init(&text, sizeof(range.text));
    put_number(&text, k, true, least);
    sx_buf_put_text(&text, " to ");
    put_number(&text, k, true, most);
    (void)snprintf(range.text, sizeof(range.text), "%.*s", (int)text.len, (const char *)text.ptr);
    sx_buf_fini(&text);
    return range;
}

/* ---- what the values say of each other ---- */

static sx_code check_field(sx_ctx *cx, const sx_device *device, const field *f)
{
    double value = get(device, f);
    bool absent = !(value > 0) && !(value < 0);
    bool wanted = f->need == NEED_REQUIRED || (f->need == NEED_BLOCK && device->block_threads > 0);
    if (absent && !wanted) {
        return SX_OK;
    }
    if (absent) {
        return SX_FAIL(cx, SX_INPUT, "device %s: %s is missing: %s wanted", device->name, f->words,
                       range_of(f->kind, f->least, f->most).text);
    }
    if (!(value >= f->least && value <= f->most)) {
        return SX_FAIL(cx, SX_INPUT, "device %s: %s %g: %s wanted", device->name, f->words, value,
                       range_of(f->kind, f->least, f->most).text);
    }
    return SX_OK;
}

static sx_code check_blocks(sx_ctx *cx, const sx_device *device)
{
    if (device->block_threads == 0) {
        for (uint32_t i = 0; i < SX_COUNT(fields); i++) {
            if (fields[i].need == NEED_BLOCK && get(device, &fields[i]) > 0) {
                return SX_FAIL(cx, SX_INPUT,
                               "device %s: %s without threads per block: the laws of blocks are "
                               "given all or not at all",
                               device->name, fields[i].words);
            }
        }
        return SX_OK;
    }
    if (device->block_threads % device->lanes != 0) {
        return SX_FAIL(cx, SX_INPUT,
                       "device %s: threads per block %u: a multiple of its %u lanes wanted",
                       device->name, device->block_threads, device->lanes);
    }
    if ((device->register_step & (device->register_step - 1)) != 0) {
        return SX_FAIL(cx, SX_INPUT, "device %s: register step %u: a power of two wanted",
                       device->name, device->register_step);
    }
    if (device->shared_block_bytes > device->shared_bytes ||
        device->shared_bytes > device->l1_bytes) {
        return SX_FAIL(cx, SX_INPUT,
                       "device %s: shared per block %.0f B, shared capacity %.0f B, l1 capacity "
                       "%.0f B: each at most the next",
                       device->name, device->shared_block_bytes, device->shared_bytes,
                       device->l1_bytes);
    }
    if (device->shared_latency > device->l2_latency ||
        device->l2_latency > device->memory_latency) {
        return SX_FAIL(
            cx, SX_INPUT,
            "device %s: shared latency %u cycles, l2 latency %u, memory latency %u: each "
            "at most the next",
            device->name, device->shared_latency, device->l2_latency, device->memory_latency);
    }
    if (device->block_threads > device->core_threads ||
        device->block_threads > device->register_file) {
        return SX_FAIL(
            cx, SX_INPUT, "device %s: threads per block %u, of %u per core and %u registers",
            device->name, device->block_threads, device->core_threads, device->register_file);
    }
    return SX_OK;
}

sx_code sx_device_check(sx_ctx *cx, const sx_device *device)
{
    SX_ASSERT(device->name != NULL && device->rate_count <= SX_RATES_MAX);
    for (uint32_t i = 0; i < SX_COUNT(fields); i++) {
        SX_TRY(check_field(cx, device, &fields[i]));
    }
    if ((device->lanes & (device->lanes - 1)) != 0) {
        return SX_FAIL(cx, SX_INPUT, "device %s: lanes %u: a power of two wanted", device->name,
                       device->lanes);
    }
    for (uint32_t i = 0; i < device->rate_count; i++) {
        const sx_rate *rate = &device->rate[i];
        if (!(rate->flops_per_ns >= RATE_LEAST && rate->flops_per_ns <= RATE_MOST)) {
            return SX_FAIL(cx, SX_INPUT, "device %s: rate %s %s %g GFLOP/s: %s wanted",
                           device->name, sx_dtype_name(rate->dtype), sx_unit_name(rate->unit),
                           rate->flops_per_ns, range_of(KIND_RATE, RATE_LEAST, RATE_MOST).text);
        }
    }
    return check_blocks(cx, device);
}

/* ---- print ---- */

void sx_device_print(const sx_device *device, sx_buf *text)
{
    SX_ASSERT(device->name != NULL);
    sx_buf_print(text, "device %s\n", device->name);
    if (device->text != NULL && device->text[0] != '\0') {
        sx_buf_print(text, "text %s\n", device->text);
    }
    sx_buf_print(text, "target %s\n", device->target != NULL ? device->target : "none");
    for (uint32_t i = 0; i < SX_COUNT(fields); i++) {
        double value = get(device, &fields[i]);
        if (value > 0) {
            sx_buf_print(text, "%s ", fields[i].words);
            put_number(text, fields[i].kind, true, value);
            sx_buf_put_u8(text, '\n');
        }
    }
    sx_buf_print(text, "# rate f32 vector follows: %.9g GFLOP/s\n",
                 sx_device_rate(device, SX_F32, false));
    for (uint32_t i = 0; i < device->rate_count; i++) {
        const sx_rate *rate = &device->rate[i];
        sx_buf_print(text, "rate %s %s ", sx_dtype_name(rate->dtype), sx_unit_name(rate->unit));
        put_number(text, KIND_RATE, sx_dtype_class_of(rate->dtype) == SX_CLASS_FLOAT,
                   rate->flops_per_ns);
        sx_buf_put_u8(text, '\n');
    }
}

/* ---- one value ---- */

static const struct {
    const char *which;
    size_t offset;
    const char *text;
} sources[] = {
#define SX_DEVICE_SOURCE(which_, member, text_) \
    {.which = which_, .offset = offsetof(sx_device, member), .text = text_},
#include "core/cost/device_sources.def"
};

static const char *find_source(const char *which, size_t offset)
{
    for (uint32_t i = 0; i < SX_COUNT(sources); i++) {
        if (sources[i].offset == offset && strcmp(sources[i].which, which) == 0) {
            return sources[i].text;
        }
    }
    return NULL;
}

static const char *source_of(const sx_device *device, const field *f)
{
    const sx_device *row = sx_device_row(sx_span_of(device->name));
    if (row == NULL) {
        return "its description";
    }
    const char *own = find_source(row->name, f->offset);
    own = own != NULL ? own : find_source(row->program_class, f->offset);
    return own != NULL ? own : "not told";
}

bool sx_device_value_of(const sx_device *device, uint32_t index, sx_device_value *value)
{
    SX_ASSERT(device->name != NULL);
    if (index >= SX_COUNT(fields)) {
        return false;
    }
    const field *f = &fields[index];
    sx_buf text;
    *value = (sx_device_value){.words = f->words,
                               .help = f->help,
                               .source = source_of(device, f),
                               .number = get(device, f)};
    sx_buf_init(&text, sizeof(value->value));
    put_number(&text, f->kind, true, value->number);
    (void)snprintf(value->value, sizeof(value->value), "%.*s", (int)text.len,
                   (const char *)text.ptr);
    sx_buf_fini(&text);
    (void)snprintf(value->range, sizeof(value->range), "%s",
                   range_of(f->kind, f->least, f->most).text);
    return true;
}

/* ---- parse ---- */

typedef struct {
    sx_ctx *cx;
    sx_device *device;
    uint32_t line;
    sx_span rest; /* of the line */
    bool given[SX_COUNT(fields)];
    bool has_text, has_target;
    double f32_rate; /* given; 0: not */
} reader;

static sx_code refuse(const reader *r, const char *what, sx_span at)
{
    return SX_FAIL(r->cx, SX_INPUT, "device, line %u: %s: \"%.*s\"", r->line, what,
                   (int)sx_min_i64((int64_t)at.len, 60), (const char *)at.ptr);
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of the line; empty at its end. */
static sx_span word(reader *r)
{
    while (r->rest.len > 0 && is_space(r->rest.ptr[0])) {
        r->rest.ptr++;
        r->rest.len--;
    }
    sx_span found = {r->rest.ptr, 0};
    while (r->rest.len > 0 && !is_space(r->rest.ptr[0])) {
        r->rest.ptr++;
        r->rest.len--;
        found.len++;
    }
    return found;
}

/* Takes these words, separated by single spaces in `words`, if the line goes on with them. */
static bool take(reader *r, const char *words)
{
    sx_span before = r->rest;
    while (*words != '\0') {
        sx_span next = word(r);
        size_t length = strcspn(words, " ");
        if (next.len != length || memcmp(next.ptr, words, length) != 0) {
            r->rest = before;
            return false;
        }
        words += length + (words[length] == ' ');
    }
    return true;
}

/* A decimal number and a unit of this kind, up to the end of the line. */
static sx_code read_number(reader *r, kind k, double *value)
{
    sx_span number = word(r), unit = word(r), more = word(r);
    char copy[32];
    if (number.len == 0 || number.len >= sizeof(copy) || more.len > 0) {
        return refuse(r, "a number and a unit wanted", number.len > 0 ? more : number);
    }
    memcpy(copy, number.ptr, number.len);
    copy[number.len] = '\0';
    char *end = copy;
    bool plain = copy[0] >= '0' && copy[0] <= '9' && strspn(copy, "0123456789.eE+-") == number.len;
    *value = plain ? strtod(copy, &end) : 0;
    if (!plain || *end != '\0' || !isfinite(*value)) {
        return refuse(r, "not a decimal number", number);
    }
    for (uint32_t i = 0; i < SX_COUNT(units); i++) {
        if (units[i].kind == k && unit.len == strlen(units[i].name) &&
            memcmp(unit.ptr, units[i].name, unit.len) == 0) {
            *value *= units[i].factor;
            return SX_OK;
        }
    }
    char known[120] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < SX_COUNT(units); i++) {
        if (units[i].kind == k) {
            used += (size_t)snprintf(known + used, sizeof(known) - used, " %s", units[i].name);
            SX_ASSERT(used < sizeof(known));
        }
    }
    return SX_FAIL(r->cx, SX_INPUT, "device, line %u: unit \"%.*s\": %s%s wanted", r->line,
                   (int)sx_min_i64((int64_t)unit.len, 20), (const char *)unit.ptr,
                   k == KIND_COUNT ? "none" : "one of", known);
}

static sx_code read_field(reader *r, uint32_t index)
{
    const field *f = &fields[index];
    double value;
    SX_TRY(read_number(r, f->kind, &value));
    if (r->given[index]) {
        return SX_FAIL(r->cx, SX_INPUT, "device, line %u: %s stands twice", r->line, f->words);
    }
    bool whole = f->size == sizeof(double) || !(value > floor(value));
    if (!(value >= f->least && value <= f->most) || !whole) {
        return SX_FAIL(r->cx, SX_INPUT, "device, line %u: %s %g: %s%s wanted", r->line, f->words,
                       value, whole ? "" : "a whole number from ",
                       range_of(f->kind, f->least, f->most).text);
    }
    r->given[index] = true;
    set(r->device, f, value);
    return SX_OK;
}

static sx_code read_rate(reader *r)
{
    sx_device *device = r->device;
    sx_rate rate = {.unit = SX_UNIT_COUNT};
    sx_span type = word(r), unit = word(r);
    if (!sx_dtype_parse(type, &rate.dtype)) {
        return refuse(r, "rate: an element type wanted", type);
    }
    for (uint32_t k = 0; k < SX_UNIT_COUNT; k++) {
        rate.unit = sx_span_is(unit, sx_unit_name((sx_unit)k)) ? (sx_unit)k : rate.unit;
    }
    if (rate.unit == SX_UNIT_COUNT) {
        return refuse(r, "rate: vector, tensor or amx wanted", unit);
    }
    SX_TRY(read_number(r, KIND_RATE, &rate.flops_per_ns));
    if (!(rate.flops_per_ns >= RATE_LEAST && rate.flops_per_ns <= RATE_MOST)) {
        return SX_FAIL(r->cx, SX_INPUT, "device, line %u: rate %g GFLOP/s: %s wanted", r->line,
                       rate.flops_per_ns, range_of(KIND_RATE, RATE_LEAST, RATE_MOST).text);
    }
    bool twice = false;
    for (uint32_t i = 0; i < device->rate_count; i++) {
        twice = twice || (device->rate[i].dtype == rate.dtype && device->rate[i].unit == rate.unit);
    }
    bool derived = rate.dtype == SX_F32 && rate.unit == SX_UNIT_VECTOR;
    if (twice || (derived && r->f32_rate > 0)) {
        return refuse(r, "a rate that stands twice", type);
    }
    if (derived) {
        r->f32_rate = rate.flops_per_ns;
        return SX_OK;
    }
    if (device->rate_count == SX_RATES_MAX) {
        return SX_FAIL(r->cx, SX_INPUT, "device, line %u: more than %d rates", r->line,
                       SX_RATES_MAX);
    }
    device->rate[device->rate_count++] = rate;
    return SX_OK;
}

/* What is a name: letters that are safe in file names and in the target's place of a module. */
static bool is_name(sx_span name)
{
    bool ok = name.len > 0 && name.len <= SX_DEVICE_NAME_MAX;
    for (size_t i = 0; ok && i < name.len; i++) {
        uint8_t c = name.ptr[i];
        ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    }
    return ok;
}

static sx_code read_name(reader *r, const char **to)
{
    sx_span name = word(r);
    if (!is_name(name) || word(r).len > 0) {
        return refuse(r, "a name of 1 to 31 small letters, digits, '-', '_' and '.' wanted", name);
    }
    *to = sx_alloc_text(r->cx, name);
    return *to != NULL ? SX_OK : r->cx->error.code;
}

static sx_code read_text(reader *r)
{
    while (r->rest.len > 0 && is_space(r->rest.ptr[0])) {
        r->rest.ptr++;
        r->rest.len--;
    }
    bool plain = r->rest.len <= SX_DEVICE_TEXT_MAX && !r->has_text;
    for (size_t i = 0; plain && i < r->rest.len; i++) {
        plain = r->rest.ptr[i] >= ' ' && r->rest.ptr[i] < 127;
    }
    if (!plain) {
        return refuse(r, "one text of at most 200 printable ASCII characters wanted", r->rest);
    }
    r->has_text = true;
    r->device->text = sx_alloc_text(r->cx, r->rest);
    return r->device->text != NULL ? SX_OK : r->cx->error.code;
}

static sx_code read_line(reader *r)
{
    sx_device *device = r->device;
    if (device->name == NULL) {
        return take(r, "device") ? read_name(r, &device->name)
                                 : refuse(r, "\"device NAME\" wanted first", r->rest);
    }
    if (take(r, "text")) {
        return read_text(r);
    }
    if (take(r, "rate")) {
        return read_rate(r);
    }
    if (take(r, "target")) {
        if (r->has_target) {
            return refuse(r, "target stands twice", r->rest);
        }
        r->has_target = true;
        SX_TRY(read_name(r, &device->target));
        device->target = strcmp(device->target, "none") == 0 ? NULL : device->target;
        return SX_OK;
    }
    for (uint32_t i = 0; i < SX_COUNT(fields); i++) {
        sx_span before = r->rest;
        if (take(r, fields[i].words)) {
            return read_field(r, i);
        }
        r->rest = before;
    }
    return refuse(r, "no value of a device", r->rest);
}

/* The line without comment and without spaces around it. */
static sx_span trimmed(sx_span line, bool is_text)
{
    const uint8_t *comment = is_text || line.len == 0 ? NULL : memchr(line.ptr, '#', line.len);
    line.len = comment != NULL ? (size_t)(comment - line.ptr) : line.len;
    while (line.len > 0 && is_space(line.ptr[0])) {
        line.ptr++;
        line.len--;
    }
    while (line.len > 0 && is_space(line.ptr[line.len - 1])) {
        line.len--;
    }
    return line;
}

static sx_code read_lines(reader *r, sx_span text)
{
    while (text.len > 0) {
        const uint8_t *end = memchr(text.ptr, '\n', text.len);
        size_t length = end != NULL ? (size_t)(end - text.ptr) : text.len;
        sx_span line = {text.ptr, length};
        text.ptr += length + (end != NULL);
        text.len -= length + (end != NULL);
        if (++r->line > LINES_MAX || length > LINE_BYTES_MAX) {
            return SX_FAIL(r->cx, SX_INPUT, "device: line %u of %zu bytes: at most %d of %d",
                           r->line, length, LINES_MAX, LINE_BYTES_MAX);
        }
        bool is_text = length > 5 && memcmp(line.ptr, "text ", 5) == 0;
        r->rest = trimmed(line, is_text);
        if (r->rest.len > 0) {
            SX_TRY(read_line(r));
        }
    }
    return SX_OK;
}

sx_code sx_device_parse(sx_ctx *cx, sx_span text, const sx_device **device)
{
    reader *r = SX_NEW(cx, reader);
    sx_device *made = SX_NEW(cx, sx_device);
    if (r == NULL || made == NULL) {
        return cx->error.code;
    }
    *r = (reader){.cx = cx, .device = made};
    made->text = "";
    SX_TRY(read_lines(r, text));
    if (made->name == NULL) {
        return SX_FAIL(cx, SX_INPUT, "device: \"device NAME\" is missing");
    }
    if (!r->has_target) {
        return SX_FAIL(cx, SX_INPUT,
                       "device %s: target is missing: a target that generates code, or none",
                       made->name);
    }
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        if (strcmp(sx_device_at(i)->name, made->name) == 0) {
            return SX_FAIL(cx, SX_INPUT, "device %s: a device of this name is known already",
                           made->name);
        }
    }
    SX_TRY(sx_device_check(cx, made));
    double peak = sx_device_rate(made, SX_F32, false);
    if (r->f32_rate > 0 && !(r->f32_rate > 0.98 * peak && r->f32_rate < 1.02 * peak)) {
        return SX_FAIL(cx, SX_INPUT,
                       "device %s: rate f32 vector %g GFLOP/s: %u cores of %u lanes with %u "
                       "multiply-adds a cycle at %g GHz make %g",
                       made->name, r->f32_rate, made->cores, made->lanes, made->fma_per_cycle,
                       made->ghz, peak);
    }
    *device = made;
    return SX_OK;
}
