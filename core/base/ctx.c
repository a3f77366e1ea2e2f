#include "core/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    const char *text;
    int wire;
    int exit_status;
    bool retry;
} code_row;

static const code_row code_table[SX_CODE_COUNT] = {
#define SX_CODE(name_, wire_, exit_, retry_, text_) \
    [SX_##name_] = {                                \
        .name = #name_, .text = text_, .wire = wire_, .exit_status = exit_, .retry = retry_},
#include "core/base/codes.def"
#undef SX_CODE
};

const char *sx_code_name(sx_code code)
{
    SX_ASSERT(code < SX_CODE_COUNT);
    return code_table[code].name;
}

const char *sx_code_text(sx_code code)
{
    SX_ASSERT(code < SX_CODE_COUNT);
    return code_table[code].text;
}

int sx_code_wire(sx_code code)
{
    SX_ASSERT(code < SX_CODE_COUNT);
    return code_table[code].wire;
}

int sx_code_exit(sx_code code)
{
    SX_ASSERT(code < SX_CODE_COUNT);
    return code_table[code].exit_status;
}

bool sx_code_retry(sx_code code)
{
    SX_ASSERT(code < SX_CODE_COUNT);
    return code_table[code].retry;
}

sx_code sx_code_from_wire(int64_t wire)
{
    for (uint32_t i = 0; i < SX_CODE_COUNT; i++) {
        if (code_table[i].wire == wire) {
            return (sx_code)i;
        }
    }
    return SX_INTERNAL;
}

void sx_panic(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "level=error ev=panic file=%s line=%d what=\"%s\"\n", file, line, what);
    (void)fflush(stderr);
    abort();
}

void sx_ctx_init(sx_ctx *cx, size_t limit_bytes)
{
    memset(
        cx, 0,
        offsetof(sx_ctx, error)); /* what follows has rooms of kilobytes, and ends where it says */
    cx->stage_count = 0;
    sx_ctx_reset_error(cx);
    sx_arena_init(&cx->arena, limit_bytes);
    cx->fuel = SX_FUEL_DEFAULT;
}

void sx_ctx_fini(sx_ctx *cx)
{
    sx_arena_fini(&cx->arena);
}

void sx_ctx_init_task(sx_ctx *task, const sx_ctx *cx)
{
    SX_ASSERT(cx->arena.used_bytes <= cx->arena.limit_bytes);
    sx_ctx_init(task, cx->arena.limit_bytes - cx->arena.used_bytes);
    task->fuel = cx->fuel;
    task->seed = cx->seed;
    task->cancelled = cx->cancelled;
    task->cancelled_self = cx->cancelled_self;
}

void sx_ctx_reset_error(sx_ctx *cx)
{
    cx->error.code = SX_OK;
    cx->error.file = NULL;
    cx->error.line = 0;
    cx->error.text[0] = cx->error.hint[0] = '\0';
}

sx_code sx_fail(sx_ctx *cx, sx_code code, const char *file, int line, const char *format, ...)
{
    SX_ASSERT(code != SX_OK);
    if (cx->error.code != SX_OK) {
        return cx->error.code;
    }
    cx->error.code = code;
    cx->error.file = file;
    cx->error.line = line;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(cx->error.text, sizeof(cx->error.text), format, arguments);
    va_end(arguments);
    return code;
}

sx_code sx_fail_in(sx_ctx *cx, const char *format, ...)
{
    SX_ASSERT(cx->error.code != SX_OK);
    char outer[SX_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(outer, sizeof(outer) - 2, format, arguments);
    va_end(arguments);
    size_t added = strlen(outer);
    outer[added++] = ':';
    outer[added++] = ' ';
    size_t kept = sizeof(outer) - 1 - added;
    memmove(cx->error.text + added, cx->error.text, kept);
    memcpy(cx->error.text, outer, added);
    cx->error.text[sizeof(outer) - 1] = '\0';
    return cx->error.code;
}

void sx_hint(sx_ctx *cx, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(cx->error.hint, sizeof(cx->error.hint), format, arguments);
    va_end(arguments);
}

sx_code sx_spend(sx_ctx *cx, uint64_t amount)
{
    if (cx->cancelled != NULL && cx->cancelled(cx->cancelled_self)) {
        return SX_FAIL(cx, SX_CANCELLED, "the request was cancelled");
    }
    if (cx->fuel < amount) {
        cx->fuel = 0;
        return SX_FAIL(cx, SX_QUOTA, "out of fuel");
    }
    cx->fuel -= amount;
    return SX_OK;
}

uint32_t sx_stage_begin(sx_ctx *cx, const char *name)
{
    SX_ASSERT(cx->stage_count < SX_STAGE_MAX);
    uint32_t index = cx->stage_count++;
    cx->stage[index] = (sx_stage){.name = name, .stop = "open", .fuel = cx->fuel};
    cx->stage[index].elapsed_ns = cx->now_ns != NULL ? cx->now_ns(cx->now_self) : 0;
    if (cx->progress != NULL) {
        cx->progress(cx->progress_self, name, 0, 0);
    }
    return index;
}

void sx_stage_end(sx_ctx *cx, uint32_t index, const char *stop, uint64_t items)
{
    SX_ASSERT(index < cx->stage_count);
    sx_stage *stage = &cx->stage[index];
    stage->stop = stop;
    stage->items = items;
    stage->fuel -= cx->fuel;
    if (cx->now_ns != NULL) {
        stage->elapsed_ns = cx->now_ns(cx->now_self) - stage->elapsed_ns;
    }
}

sx_span sx_span_of(const char *text)
{
    return (sx_span){(const uint8_t *)text, text != NULL ? strlen(text) : 0};
}

bool sx_span_equal(sx_span a, sx_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool sx_span_is(sx_span a, const char *text)
{
    return sx_span_equal(a, sx_span_of(text));
}

int sx_span_compare(sx_span a, sx_span b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter > 0 ? memcmp(a.ptr, b.ptr, shorter) : 0;
    if (order != 0) {
        return order;
    }
    return a.len < b.len ? -1 : (a.len > b.len ? 1 : 0);
}
