/* schedule.c - schedules as values: what is one, what fits a kernel, and how a lowering asks for its steps. */
#include <string.h>

#include "core/base/hash.h"
#include "core/kernel/kernel.h"

static const char letters[SX_ROLE_COUNT] = {[SX_ROLE_BATCH] = 'b',
                                            [SX_ROLE_ROW] = 'm',
                                            [SX_ROLE_COLUMN] = 'n',
                                            [SX_ROLE_SUM] = 'k',
                                            [SX_ROLE_INNER] = 'd'};

char sx_role_letter(sx_role role)
{
    SX_ASSERT(role < SX_ROLE_COUNT);
    return letters[role];
}

int64_t sx_schedule_step(const sx_schedule *s, sx_role axis, sx_bind bind, uint32_t nth)
{
    for (uint32_t i = 0; i < s->level_count; i++) {
        const sx_level *level = &s->level[i];
        if (level->axis == axis && level->bind == bind && nth-- == 0) {
            return level->step;
        }
    }
    return 0;
}

uint32_t sx_schedule_lanes(const sx_schedule *s)
{
    int64_t width = sx_schedule_width(s);
    uint32_t at = s->level_count - (width > 1 ? 2 : 1); /* the level of the lanes */
    if (s->level_count == 0 || s->level[at].bind != SX_BIND_LANE) {
        return 0;
    }
    sx_role axis = s->level[at].axis;
    int64_t lanes = 0;
    for (uint32_t i = 0; i < at; i++) {
        lanes = s->level[i].axis == axis ? s->level[i].step / width : lanes;
    }
    return lanes > 0 && lanes <= UINT32_MAX ? (uint32_t)lanes : 0;
}

uint32_t sx_schedule_width(const sx_schedule *s)
{
    if (s->level_count < 2) {
        return 1;
    }
    const sx_level *lane = &s->level[s->level_count - 2], *own = lane + 1;
    bool wide = lane->bind == SX_BIND_LANE && own->bind == SX_BIND_REGISTER &&
                lane->axis == own->axis && lane->step <= SX_LANE_WIDTH_MAX;
    return wide ? (uint32_t)lane->step : 1;
}

const sx_stage_place *sx_schedule_stage(const sx_schedule *s, uint32_t argument)
{
    for (uint32_t i = 0; i < s->stage_count; i++) {
        if (s->stage[i].argument == argument) {
            return &s->stage[i];
        }
    }
    return NULL;
}

/* The axes that kernels of a kind have, as a set of 1 << role. */
static uint32_t axes_of(sx_kernel_kind kind)
{
    uint32_t rows = 1u << SX_ROLE_ROW | 1u << SX_ROLE_COLUMN;
    switch (kind) {
    case SX_KERNEL_MAP: return rows;
    case SX_KERNEL_ROW: return rows | 1u << SX_ROLE_SUM;
    case SX_KERNEL_DOT: return rows | 1u << SX_ROLE_SUM | 1u << SX_ROLE_BATCH;
    case SX_KERNEL_ONLINE:
    case SX_KERNEL_NESTED: break;
    }
    return (1u << SX_ROLE_COUNT) - 1;
}

static sx_code check_levels(sx_ctx *cx, const sx_schedule *s)
{
    int64_t last[SX_ROLE_COUNT] = {0};
    for (uint32_t i = 0; i < s->level_count; i++) {
        const sx_level *level = &s->level[i];
        if ((uint32_t)level->axis >= SX_ROLE_COUNT || (uint32_t)level->bind >= SX_BIND_COUNT) {
            return SX_FAIL(cx, SX_INPUT, "schedule: level %u has no axis or binding", i);
        }
        char axis = letters[level->axis];
        if (level->step < 1 || level->step > SX_EXTENT_MAX) {
            return SX_FAIL(cx, SX_INPUT, "schedule: %c/%lld: a step is 1 to %lld", axis,
                           (long long)level->step, (long long)SX_EXTENT_MAX);
        }
        int64_t before = last[level->axis];
        if (before != 0 && level->step > before) {
            return SX_FAIL(cx, SX_INPUT, "schedule: %c/%lld stands inside %c/%lld: steps fall",
                           axis, (long long)level->step, axis, (long long)before);
        }
        last[level->axis] = level->bind == SX_BIND_MATRIX ? 1 : level->step;
    }
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        if (last[r] > 1) {
            return SX_FAIL(cx, SX_INPUT,
                           "schedule: nothing walks the pieces %c/%lld: the last "
                           "step of an axis is 1",
                           letters[r], (long long)last[r]);
        }
    }
    return SX_OK;
}

/* Blocks that walk over the grid. */
static sx_code check_blocks(sx_ctx *cx, const sx_schedule *s)
{
    if (s->blocks > SX_SCHEDULE_BLOCKS_MAX) {
        return SX_FAIL(cx, SX_INPUT, "schedule: %u blocks, at most %d", s->blocks,
                       SX_SCHEDULE_BLOCKS_MAX);
    }
    return SX_OK;
}

static sx_code check_stages(sx_ctx *cx, const sx_schedule *s, const sx_analysis *a)
{
    for (uint32_t i = 0; i < s->stage_count; i++) {
        const sx_stage_place *stage = &s->stage[i];
        if ((uint32_t)stage->space >= SX_SPACE_COUNT || stage->depth < 1 || stage->depth > 16) {
            return SX_FAIL(cx, SX_INPUT, "schedule: stage %u is %u deep, 1 to 16 allowed", i,
                           stage->depth);
        }
        if (a != NULL && stage->argument != SX_STAGE_RESULT && stage->argument >= a->input_count) {
            return SX_FAIL(cx, SX_INPUT, "schedule: stages argument %u of a kernel with %u",
                           stage->argument, a->input_count);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (s->stage[k].argument == stage->argument) {
                return SX_FAIL(cx, SX_INPUT, "schedule: stages %u and %u are of the same tensor", k,
                               i);
            }
        }
    }
    return SX_OK;
}

sx_code sx_schedule_check(sx_ctx *cx, const sx_schedule *s, const sx_analysis *a)
{
    if (s->level_count > SX_SCHEDULE_LEVELS_MAX || s->stage_count > SX_SCHEDULE_STAGES_MAX) {
        return SX_FAIL(cx, SX_INPUT, "schedule: %u levels and %u stages, at most %d and %d",
                       s->level_count, s->stage_count, SX_SCHEDULE_LEVELS_MAX,
                       SX_SCHEDULE_STAGES_MAX);
    }
    SX_TRY(check_levels(cx, s));
    SX_TRY(check_blocks(cx, s));
    SX_TRY(check_stages(cx, s, a));
    if (a == NULL) {
        return SX_OK;
    }
    uint32_t walked = 0;
    for (uint32_t i = 0; i < s->level_count; i++) {
        walked |= 1u << s->level[i].axis;
    }
    uint32_t axes = axes_of(a->kind);
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        if ((walked & ~axes) >> r & 1) {
            return SX_FAIL(cx, SX_INPUT, "schedule: the kernel has no axis %c", letters[r]);
        }
        if ((walked >> r & 1) == 0 && a->extent[r] > 1) {
            return SX_FAIL(cx, SX_INPUT, "schedule: nothing walks axis %c of %lld elements",
                           letters[r], (long long)a->extent[r]);
        }
    }
    return SX_OK;
}

static void print_form(char *text, size_t size, const sx_level_form *form, uint32_t count)
{
    static const char *const names[] = {
#define SX_BIND(name, enumerator, help) name,
#include "core/kernel/bindings.def"
#undef SX_BIND
    };
    sx_buf line;
    sx_buf_init(&line, SX_SCHEDULE_TEXT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        bool same = i > 0 && form[i].bind == form[i - 1].bind;
        sx_buf_print(&line,
                     same     ? ", %.0s%c"
                     : i == 0 ? "%s(%c"
                              : ") %s(%c",
                     names[form[i].bind], letters[form[i].axis]);
    }
    sx_buf_put_text(&line, count > 0 ? ")" : "none");
    size_t len = line.len < size - 1 ? line.len : size - 1;
    memcpy(text, line.ptr, len);
    text[len] = '\0';
    sx_buf_fini(&line);
}

sx_code sx_schedule_match(sx_ctx *cx, const sx_schedule *s, const sx_level_form *form,
                          uint32_t form_count, const char *kernel)
{
    SX_ASSERT(form_count <= SX_SCHEDULE_LEVELS_MAX);
    SX_TRY(sx_schedule_check(cx, s, NULL));
    bool same = s->level_count == form_count;
    if (s->blocks > 0) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: no blocks that walk over its points",
                       kernel);
    }
    sx_level_form own[SX_SCHEDULE_LEVELS_MAX];
    for (uint32_t i = 0; i < s->level_count; i++) {
        own[i] = (sx_level_form){s->level[i].axis, s->level[i].bind};
        same = same && own[i].axis == form[i].axis && own[i].bind == form[i].bind;
    }
    if (same) {
        return SX_OK;
    }
    char want[160], got[160];
    print_form(want, sizeof(want), form, form_count);
    print_form(got, sizeof(got), own, s->level_count);
    return SX_FAIL(cx, SX_UNIMPLEMENTED, "kernel %s: a schedule of the form %s, only %s is lowered",
                   kernel, got, want);
}

bool sx_schedule_equal(const sx_schedule *a, const sx_schedule *b)
{
    bool equal = a->level_count == b->level_count && a->stage_count == b->stage_count &&
                 a->blocks == b->blocks;
    for (uint32_t i = 0; equal && i < a->level_count; i++) {
        equal = a->level[i].axis == b->level[i].axis && a->level[i].bind == b->level[i].bind &&
                a->level[i].step == b->level[i].step;
    }
    for (uint32_t i = 0; equal && i < a->stage_count; i++) {
        equal = a->stage[i].argument == b->stage[i].argument &&
                a->stage[i].space == b->stage[i].space && a->stage[i].depth == b->stage[i].depth;
    }
    return equal;
}

uint64_t sx_schedule_hash(const sx_schedule *s)
{
    uint64_t word[1 + 2 * SX_SCHEDULE_LEVELS_MAX + SX_SCHEDULE_STAGES_MAX];
    uint32_t n = 0;
    word[n++] = (uint64_t)s->blocks << 32 | s->level_count;
    for (uint32_t i = 0; i < s->level_count; i++) {
        word[n++] = (uint64_t)s->level[i].axis << 8 | (uint64_t)s->level[i].bind;
        word[n++] = (uint64_t)s->level[i].step;
    }
    for (uint32_t i = 0; i < s->stage_count; i++) {
        const sx_stage_place *stage = &s->stage[i];
        word[n++] = (uint64_t)stage->argument << 32 | (uint64_t)stage->space << 16 | stage->depth;
    }
    return sx_hash64((sx_span){(const uint8_t *)word, n * sizeof(word[0])}, s->stage_count);
}
