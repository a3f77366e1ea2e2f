/* measured.c - a schedule that was measured to be the fastest comes before those of the model. */
#include "core/kernels.h"

#include <math.h>
#include <string.h>

#include "core/core.h"
#include "core/cost/cost.h"

sx_code sx_core_measured_here(sx_ctx *cx, sx_span text, const char *machine, sx_span *here)
{
    const char *ignored;
    return sx_measured_here(cx, text, machine, here, &ignored);
}

static sx_code lower(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                     const sx_schedule *schedule, bool *there, uint64_t *numerics)
{
    sx_kernel *kernel;
    const sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = s->name, .schedule = schedule, .analysis = s->analysis};
    sx_code code = sx_target_lower(cx, pipe->target, &what, &kernel);
    *there = code == SX_OK;
    if (code == SX_LIMIT || code == SX_UNIMPLEMENTED || code == SX_INPUT) {
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    SX_TRY(code);
    *numerics = kernel->numerics;
    return SX_OK;
}

/* A row of another build or of other laws may be no schedule any more, or have other bits: then it is passed over. */
static sx_code is_alike(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_search_result *search, const sx_schedule *schedule, bool *alike)
{
    uint64_t numerics = 0, own = 0;
    bool there = false;
    *alike = false;
    SX_TRY(lower(cx, pipe, s, schedule, &there, &own));
    if (!there) {
        return SX_OK;
    }
    there = false;
    for (uint32_t i = 0; i < search->best_count && !there; i++) {
        SX_TRY(lower(cx, pipe, s, &search->best[i].schedule, &there, &numerics));
    }
    *alike = there && numerics == own;
    return SX_OK;
}

/* What was learned of other kernels: the candidate whose corrected price is the lowest becomes the first. */
static sx_code prefer_corrected(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                                sx_pipe_choice *c)
{
    const sx_correction *correction = &pipe->correction;
    sx_search_result *search = &c->search;
    uint32_t best = 0;
    double lowest = (double)INFINITY;
    if (correction->kernels == 0 || strcmp(correction->device, pipe->device->name) != 0) {
        return SX_OK;
    }
    for (uint32_t i = 0; i < search->best_count; i++) {
        double ns =
            search->best[i].cost_ns * sx_correction_factor(correction, &search->best[i].schedule);
        best = ns < lowest ? i : best;
        lowest = ns < lowest ? ns : lowest;
    }
    const sx_search_candidate first = search->best[best];
    bool alike = false;
    SX_TRY(best > 0 ? is_alike(cx, pipe, s, search, &first.schedule, &alike) : SX_OK);
    if (alike) {
        memmove(&search->best[1], &search->best[0], best * sizeof(first));
        search->best[0] = first;
        c->corrected = true;
    }
    return SX_OK;
}

sx_code sx_pipe_prefer_measured(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                                sx_pipe_choice *c)
{
    sx_search_result *search = &c->search;
    uint64_t kernel = sx_measured_kernel(s->analysis, c->rhs_constant);
    const sx_measured_row *row = sx_measured_find(&pipe->measured, pipe->device->name, kernel);
    bool alike;
    if (s->probe != NULL) {
        return SX_OK;
    }
    if (row == NULL) {
        return prefer_corrected(cx, pipe, s, c);
    }
    SX_TRY(is_alike(cx, pipe, s, search, &row->schedule, &alike));
    if (!alike) {
        return SX_OK;
    }
    uint32_t at = 0;
    while (at < search->best_count &&
           !sx_schedule_equal(&search->best[at].schedule, &row->schedule)) {
        at++;
    }
    double ns = sx_cost_schedule(pipe->device, s->analysis, &row->schedule, c->rhs_constant);
    sx_search_candidate first = {row->schedule, fmax(ns, search->floor_ns)};
    if (at < search->best_count) {
        first = search->best[at];
    } else if (search->best_count < search->keep) {
        search->best_count++;
        search->matrix_count += search->matrix_count > 0 ? 1 : 0;
        search->more = search->more && search->best_count < search->keep;
    } else {
        at--; /* the dearest one makes room */
    }
    memmove(&search->best[1], &search->best[0], at * sizeof(search->best[0]));
    search->best[0] = first;
    c->measured = row;
    return SX_OK;
}
