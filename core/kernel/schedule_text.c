/* schedule_text.c - schedules as text that reads back:
 *
 *   schedule = { binding "(" level { "," level } ")" } [ "stage" "(" place { "," place } ")" ]
 *              [ "blocks" "(" number ")" ]
 *   level    = axis [ "/" step ]          a step of 1 is not written
 *   place    = ( "arg" number | "result" ) ":" space [ "x" depth ]     a depth of 1 is not written
 */
#include <stdio.h>
#include <string.h>

#include "core/kernel/kernel.h"

static const char *const bind_name[] = {
#define SX_BIND(name, enumerator, help) name,
#include "core/kernel/bindings.def"
#undef SX_BIND
};
static const char *const space_name[SX_SPACE_COUNT] = {
    [SX_SPACE_MEMORY] = "memory", [SX_SPACE_SHARED] = "shared"};

const char *sx_bind_name(sx_bind bind)
{
    SX_ASSERT(bind < SX_BIND_COUNT);
    return bind_name[bind];
}

const char *sx_space_name(sx_space space)
{
    SX_ASSERT(space < SX_SPACE_COUNT);
    return space_name[space];
}

void sx_schedule_print(const sx_schedule *s, sx_buf *text)
{
    for (uint32_t i = 0; i < s->level_count; i++) {
        const sx_level *level = &s->level[i];
        bool opens = i == 0 || level->bind != s->level[i - 1].bind;
        if (opens) {
            sx_buf_print(text, "%s%s(", i == 0 ? "" : ") ", bind_name[level->bind]);
        }
        sx_buf_print(text, "%s%c", opens ? "" : ", ", sx_role_letter(level->axis));
        if (level->step != 1) {
            sx_buf_print(text, "/%lld", (long long)level->step);
        }
    }
    sx_buf_put_text(text, s->level_count > 0 ? ")" : "");
    for (uint32_t i = 0; i < s->stage_count; i++) {
        const sx_stage_place *stage = &s->stage[i];
        const char *before = i > 0 ? ", " : s->level_count > 0 ? " stage(" : "stage(";
        if (stage->argument == SX_STAGE_RESULT) {
            sx_buf_print(text, "%sresult: %s", before, space_name[stage->space]);
        } else {
            sx_buf_print(text, "%sarg%u: %s", before, stage->argument, space_name[stage->space]);
        }
        if (stage->depth != 1) {
            sx_buf_print(text, " x%u", stage->depth);
        }
    }
    sx_buf_put_text(text, s->stage_count > 0 ? ")" : "");
    if (s->blocks > 0) {
        sx_buf_print(text, " blocks(%u)", s->blocks);
    }
}

typedef struct {
    sx_ctx *cx;
    sx_span text;
    size_t at;
} reader;

static void skip_blanks(reader *r)
{
    while (r->at < r->text.len && (r->text.ptr[r->at] == ' ' || r->text.ptr[r->at] == '\n')) {
        r->at++;
    }
}

static sx_code expected(const reader *r, const char *what)
{
    return SX_FAIL(r->cx, SX_INPUT, "schedule: column %zu: expected %s", r->at + 1, what);
}

/* Takes `mark` if it stands there. */
static bool accept(reader *r, char mark)
{
    skip_blanks(r);
    bool here = r->at < r->text.len && r->text.ptr[r->at] == (uint8_t)mark;
    r->at += here ? 1 : 0;
    return here;
}

static sx_code take(reader *r, char mark)
{
    char what[4] = {'\'', mark, '\'', '\0'};
    return accept(r, mark) ? SX_OK : expected(r, what);
}

/* A word of small letters; the empty span where none stands. */
static sx_span take_word(reader *r)
{
    skip_blanks(r);
    size_t start = r->at;
    while (r->at < r->text.len && r->text.ptr[r->at] >= 'a' && r->text.ptr[r->at] <= 'z') {
        r->at++;
    }
    return (sx_span){r->text.ptr + start, r->at - start};
}

static sx_code take_number(reader *r, int64_t *value)
{
    size_t start = r->at;
    *value = 0;
    while (r->at < r->text.len && r->text.ptr[r->at] >= '0' && r->text.ptr[r->at] <= '9') {
        if (*value > SX_EXTENT_MAX) {
            return SX_FAIL(r->cx, SX_INPUT, "schedule: column %zu: a number beyond %lld", start + 1,
                           (long long)SX_EXTENT_MAX);
        }
        *value = *value * 10 + (r->text.ptr[r->at++] - '0');
    }
    return r->at > start ? SX_OK : expected(r, "a number");
}

static sx_code read_level(reader *r, sx_bind bind, sx_schedule *s)
{
    sx_span word = take_word(r);
    sx_level level = {.axis = SX_ROLE_COUNT, .bind = bind, .step = 1};
    for (uint32_t role = 0; role < SX_ROLE_COUNT; role++) {
        if (word.len == 1 && word.ptr[0] == (uint8_t)sx_role_letter((sx_role)role)) {
            level.axis = (sx_role)role;
        }
    }
    if (level.axis == SX_ROLE_COUNT) {
        r->at -= word.len;
        return expected(r, "an axis: b, m, n, k or d");
    }
    if (accept(r, '/')) {
        SX_TRY(take_number(r, &level.step));
    }
    if (s->level_count == SX_SCHEDULE_LEVELS_MAX) {
        return SX_FAIL(r->cx, SX_INPUT, "schedule: more than %d levels", SX_SCHEDULE_LEVELS_MAX);
    }
    s->level[s->level_count++] = level;
    return SX_OK;
}

static sx_code read_stage(reader *r, sx_schedule *s)
{
    int64_t argument = 0, depth = 1;
    sx_span word = take_word(r);
    bool result = sx_span_is(word, "result");
    if (!result && !sx_span_is(word, "arg")) {
        r->at -= word.len;
        return expected(r, "arg and its number, or result");
    }
    if (!result) {
        SX_TRY(take_number(r, &argument));
    }
    SX_TRY(take(r, ':'));
    word = take_word(r);
    sx_stage_place stage = {.space = SX_SPACE_COUNT};
    for (uint32_t k = 0; k < SX_SPACE_COUNT; k++) {
        stage.space = sx_span_is(word, space_name[k]) ? (sx_space)k : stage.space;
    }
    if (stage.space == SX_SPACE_COUNT) {
        r->at -= word.len;
        return expected(r, "memory or shared");
    }
    if (accept(r, 'x')) {
        SX_TRY(take_number(r, &depth));
    }
    if (s->stage_count == SX_SCHEDULE_STAGES_MAX || argument >= SX_FUSED_ARGS_MAX || depth > 16) {
        return SX_FAIL(r->cx, SX_INPUT,
                       "schedule: column %zu: argument %lld staged %lld deep, at most %d arguments "
                       "below %d, 16 deep",
                       r->at + 1, (long long)argument, (long long)depth, SX_SCHEDULE_STAGES_MAX,
                       SX_FUSED_ARGS_MAX);
    }
    stage.argument = result ? SX_STAGE_RESULT : (uint32_t)argument;
    stage.depth = (uint32_t)depth;
    s->stage[s->stage_count++] = stage;
    return SX_OK;
}

static sx_code read_blocks(reader *r, sx_schedule *s)
{
    int64_t blocks;
    SX_TRY(take(r, '('));
    SX_TRY(take_number(r, &blocks));
    if (blocks < 1 || blocks > SX_SCHEDULE_BLOCKS_MAX || s->blocks > 0) {
        return SX_FAIL(r->cx, SX_INPUT, "schedule: column %zu: %lld blocks, once 1 to %d allowed",
                       r->at + 1, (long long)blocks, SX_SCHEDULE_BLOCKS_MAX);
    }
    s->blocks = (uint32_t)blocks;
    return take(r, ')');
}

static sx_code read_group(reader *r, sx_schedule *s)
{
    sx_span word = take_word(r);
    if (sx_span_is(word, "blocks")) {
        return read_blocks(r, s);
    }
    sx_bind bind = SX_BIND_COUNT;
    bool stages = sx_span_is(word, "stage");
    for (uint32_t k = 0; k < SX_BIND_COUNT; k++) {
        bind = sx_span_is(word, bind_name[k]) ? (sx_bind)k : bind;
    }
    if (bind == SX_BIND_COUNT && !stages) {
        r->at -= word.len;
        return expected(r, "grid, cluster, warp, loop, register, lane, matrix, stage or blocks");
    }
    SX_TRY(take(r, '('));
    do {
        SX_TRY(stages ? read_stage(r, s) : read_level(r, bind, s));
    } while (accept(r, ','));
    return take(r, ')');
}

sx_code sx_schedule_parse(sx_ctx *cx, sx_span text, sx_schedule *s)
{
    reader r = {cx, text, 0};
    *s = (sx_schedule){.level_count = 0};
    if (text.len > SX_SCHEDULE_TEXT_MAX) {
        return SX_FAIL(cx, SX_INPUT, "schedule: %zu bytes, at most %d", text.len,
                       SX_SCHEDULE_TEXT_MAX);
    }
    for (skip_blanks(&r); r.at < text.len; skip_blanks(&r)) {
        SX_TRY(read_group(&r, s));
    }
    return sx_schedule_check(cx, s, NULL);
}
