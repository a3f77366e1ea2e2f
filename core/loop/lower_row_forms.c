/* lower_row_forms.c - the schedules that row kernels follow. */
#include <string.h>

#include "core/loop/lower_row.h"

/* Forms may have a level of warps, behind the loops over rows and columns. */
#define WARPS_AT_ALONG 2
#define WARPS_AT_ACROSS 4
static const sx_level_form form_along[] = {
    {SX_ROLE_ROW, SX_BIND_GRID},     {SX_ROLE_ROW, SX_BIND_LOOP}, {SX_ROLE_SUM, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_REGISTER}, {SX_ROLE_SUM, SX_BIND_LANE},
};
static const sx_level_form form_across[] = {
    {SX_ROLE_ROW, SX_BIND_GRID},    {SX_ROLE_COLUMN, SX_BIND_GRID},
    {SX_ROLE_ROW, SX_BIND_LOOP},    {SX_ROLE_COLUMN, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_LOOP},    {SX_ROLE_COLUMN, SX_BIND_REGISTER},
    {SX_ROLE_COLUMN, SX_BIND_LANE},
};
static const sx_level_form form_lines[] = {
    {SX_ROLE_ROW, SX_BIND_GRID},        {SX_ROLE_COLUMN, SX_BIND_GRID},
    {SX_ROLE_ROW, SX_BIND_LOOP},        {SX_ROLE_COLUMN, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_LOOP},        {SX_ROLE_SUM, SX_BIND_REGISTER},
    {SX_ROLE_COLUMN, SX_BIND_REGISTER}, {SX_ROLE_COLUMN, SX_BIND_LANE},
};

static const sx_level_form form_wide[] = {
    {SX_ROLE_ROW, SX_BIND_GRID},     {SX_ROLE_ROW, SX_BIND_LOOP}, {SX_ROLE_SUM, SX_BIND_LOOP},
    {SX_ROLE_SUM, SX_BIND_REGISTER}, {SX_ROLE_SUM, SX_BIND_LANE}, {SX_ROLE_SUM, SX_BIND_REGISTER},
};

/* The form, with or without warps that walk the pieces of the plan. */
static sx_code match_form(sx_lower *l, sx_lower_rows *r, const sx_level_form *form, uint32_t count)
{
    const char *name = l->kernel->name;
    const uint32_t warps_at = r->along ? WARPS_AT_ALONG : WARPS_AT_ACROSS;
    sx_level_form with[9];
    int64_t step = sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_WARP, 0);
    if (step == 0) {
        return sx_schedule_match(l->cx, l->schedule, form, count, name);
    }
    SX_ASSERT(count < SX_COUNT(with));
    memcpy(with, form, warps_at * sizeof(with[0]));
    with[warps_at] = (sx_level_form){SX_ROLE_SUM, SX_BIND_WARP};
    memcpy(with + warps_at + 1, form + warps_at, (count - warps_at) * sizeof(with[0]));
    SX_TRY(sx_schedule_match(l->cx, l->schedule, with, count + 1, name));
    int64_t each = step / r->cut.length;
    bool fits = r->cut.count > 1 && step % r->cut.length == 0 && r->cut.count % each == 0 &&
                l->unit->threads;
    if (!fits) {
        return SX_FAIL(l->cx, SX_INPUT,
                       "kernel %s: warps of %lld elements: the numerics plan has %lld pieces of "
                       "%lld",
                       name, (long long)step, (long long)r->cut.count, (long long)r->cut.length);
    }
    r->warps = (uint32_t)(r->cut.count / each);
    return SX_OK;
}

/* Lanes with several elements: a step of the virtual shape is a chunk, a line is some of them. */
static sx_code check_wide(sx_lower *l, sx_lower_rows *r)
{
    const char *name = l->kernel->name;
    SX_TRY(match_form(l, r, form_wide, SX_COUNT(form_wide)));
    int64_t chunk = sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_REGISTER, 0);
    r->line = sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    bool fits = r->along && r->width == 2 && chunk == SX_ROW_CHUNK(l->kernel->lane_bytes) &&
                r->line % chunk == 0 && r->line / chunk * r->width <= LINE_VECTORS_MAX;
    if (!fits) {
        return SX_FAIL(l->cx, SX_INPUT,
                       "kernel %s: lanes with %u elements, chunks of %lld and lines of %lld: the "
                       "numerics plan has 2 of k/%d in lines of at most %d",
                       name, r->width, (long long)chunk, (long long)r->line,
                       SX_ROW_CHUNK((int)l->kernel->lane_bytes), LINE_VECTORS_MAX * 32);
    }
    r->held = sx_alloc(l->cx, LINE_VECTORS_MAX * sizeof(r->held[0]));
    r->holds = r->axis_count == 1 && r->cut.count == 1 && r->line >= l->view.extent[r->axis[0]];
    return r->held == NULL ? l->cx->error.code : SX_OK;
}

/* Lines of the chain across the rows. */
static sx_code check_lines(sx_lower *l, sx_lower_rows *r)
{
    const char *name = l->kernel->name;
    SX_TRY(match_form(l, r, form_lines, SX_COUNT(form_lines)));
    r->line = sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    if (r->line > SX_ROW_LINE_MAX || l->kernel->lane_bytes != 4) {
        return SX_FAIL(l->cx, SX_INPUT,
                       "kernel %s: %lld steps in straight line in lanes of %u bytes: at most %d, "
                       "in lanes of 4",
                       name, (long long)r->line, l->kernel->lane_bytes, SX_ROW_LINE_MAX);
    }
    r->held = sx_alloc(l->cx, LINE_VECTORS_MAX * sizeof(r->held[0]));
    return r->held == NULL ? l->cx->error.code : SX_OK;
}

sx_code sx_lower_row_match(sx_lower *l, sx_lower_rows *r)
{
    const char *name = l->kernel->name;
    r->width = sx_schedule_width(l->schedule);
    if (r->width > 1) {
        return check_wide(l, r);
    }
    if (!r->along && sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0) > 1) {
        return check_lines(l, r);
    }
    if (!r->along) {
        return match_form(l, r, form_across, SX_COUNT(form_across));
    }
    SX_TRY(match_form(l, r, form_along, SX_COUNT(form_along)));
    int64_t chunk = sx_schedule_step(l->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    if (chunk != SX_ROW_CHUNK(l->kernel->lane_bytes)) {
        return SX_FAIL(l->cx, SX_INPUT, "kernel %s: loop(k/%lld): the numerics plan has k/%d", name,
                       (long long)chunk, SX_ROW_CHUNK((int)l->kernel->lane_bytes));
    }
    return SX_OK;
}
