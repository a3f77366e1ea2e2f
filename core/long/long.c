/* long.c - searches of minutes and hours, in steps that can be stopped, stored and moved (core.h).
 *
 * A step takes up the e-graphs the one before left (core/store/memory.h), goes on with the rounds, and
 * extracts, fuses and certifies anew. What a level allows doubles with each level: nodes, matches of a rule in
 * a round, fuel of extraction; a step that ends for lack of its own fuel leaves the level to the next. Rounds
 * are bound by fuel alone after the first step, which is the search of sx_core_optimize.
 *
 * The state is input like any other: sealed by a digest, of this build, request and lane; what lies in it is
 * checked as it is followed. It could still tell of equalities that are none. So a program found with its help
 * counts only with a certificate.
 */
#include "core/long/long.h"

#include <string.h>

#include "core/store/memory.h"
#include "core/pareto.h"

/* ---- lanes ---- */

typedef struct {
    const char *name;
    bool whole;       /* the program is not cut into parts */
    bool eager;       /* no rule is put back for its many matches */
    bool open;        /* rules also open what others read */
    uint32_t samples; /* programs fused beside the usual ones */
} lane_kind;

static const lane_kind kinds[] = {
    {.name = "steady"},
    {.name = "varied", .samples = 16},
    {.name = "open", .open = true},
    {.name = "open-varied", .open = true, .samples = 16},
    {.name = "eager", .eager = true},
    {.name = "whole", .whole = true},
    {.name = "whole-varied", .whole = true, .samples = 16},
    {.name = "whole-open", .whole = true, .open = true},
    {.name = "whole-open-varied", .whole = true, .open = true, .samples = 16},
};
static const char *const price_names[SX_PARETO_PRICES] = {
    "price-0", "price-1", "price-2", "price-3", "price-4",  "price-5",
    "price-6", "price-7", "price-8", "price-9", "price-10", "price-11"};

typedef struct {
    const lane_kind *kind;
    const char *name;
    uint32_t price;
    bool front;
} lane;

static bool wants_front(const sx_core_request *request)
{
    return sx_span_is(request->objective, "pareto");
}

static lane lane_of(const sx_core_request *request, uint32_t number)
{
    bool front = wants_front(request);
    SX_ASSERT(number < (front ? SX_COUNT(price_names) : SX_COUNT(kinds)));
    return (lane){.kind = &kinds[front ? 0 : number],
                  .name = front ? price_names[number] : kinds[number].name,
                  .price = front ? number : 0,
                  .front = front};
}

sx_code sx_core_long_lanes(sx_ctx *cx, const sx_core_request *request, uint32_t *count)
{
    sx_objective objective;
    _Static_assert(SX_COUNT(kinds) <= SX_CORE_LANES_MAX, "too many lanes");
    *count = wants_front(request) ? SX_COUNT(price_names) : SX_COUNT(kinds);
    return request->objective.len == 0 || wants_front(request)
               ? SX_OK
               : sx_objective_find(cx, request->objective, &objective);
}

const char *sx_core_long_lane_name(const sx_core_request *request, uint32_t number)
{
    return lane_of(request, number).name;
}

/* ---- levels ---- */

#define ROUNDS_MAX 4096u
#define LEVEL_BYTES ((size_t)SX_ARENA_DEFAULT / 5 * 2) /* what is left must do for extraction */
#define EXTRACT_STEPS 2u                               /* log2 of the growth of its fuel */
/* Of the fuel of a step: rounds, and fusion as much again; the extractions take up to 75/32 of theirs. */
#define ROUNDS_SHARE(fuel) ((fuel) / 8 * 3)
#define EXTRACT_SHARE(fuel) ((fuel) / 10)

static sx_code options_of(sx_ctx *cx, const sx_core_request *request, const lane *l,
                          const sx_long_state *s, uint64_t fuel, sx_optimize_options *options)
{
    const sx_device *device;
    const sx_target *target;
    SX_TRY(sx_core_device(cx, request, &device, &target));
    SX_TRY(sx_semantic_options(cx, request, options));
    sx_eg_limits *limits = &options->limits;
    bool usual = s->level == 0 && 2 * limits->fuel <= ROUNDS_SHARE(fuel) &&
                 options->extract_fuel <= EXTRACT_SHARE(fuel);
    uint64_t extract_fuel = options->extract_fuel << EXTRACT_STEPS * s->level;
    options->extract_fuel = extract_fuel < EXTRACT_SHARE(fuel) ? extract_fuel : EXTRACT_SHARE(fuel);
    options->fair = !usual;
    if (!usual) {
        limits->fuel = ROUNDS_SHARE(fuel);
    }
    if (s->level > 0) {
        limits->rounds = ROUNDS_MAX;
        limits->nodes <<= s->level;
        limits->matches <<= s->level;
        limits->bytes = LEVEL_BYTES;
    }
    bool apart = s->level > 0; /* from here on the lanes differ */
    options->whole = (apart && l->kind->whole) || (s->flags & SX_LONG_WHOLE) != 0;
    limits->matches = apart && l->kind->eager ? UINT32_MAX : limits->matches;
    limits->open = apart && l->kind->open;
    options->afresh = limits->open && (s->flags & SX_LONG_OPENED) == 0;
    options->samples = apart ? l->kind->samples : 0;
    options->sample_seed = (uint64_t)s->step << 32;
    options->with_certificate = true;
    options->snapshot = NULL;
    if (l->front) {
        options->objective = (sx_objective){.time = 1, .memory = sx_pareto_price(device, l->price)};
    }
    return SX_OK;
}

/* Steps without a better program after which a lane that draws programs ends. */
#define IDLE_MAX 6u

/* Where the next step begins, and whether there is one. */
static void climb(const lane *l, const sx_optimize_options *options,
                  const sx_optimize_report *report, uint64_t fuel, sx_long_state *s)
{
    uint64_t applied = 0;
    for (uint32_t r = 0; r < SX_RULE_ROUNDS_COUNT; r++) {
        applied += report->match_count[r];
    }
    const lane_kind *kind = l->kind;
    bool saturated = report->stop == SX_STOP_SATURATED;
    bool starved = report->stop == SX_STOP_FUEL && options->fair;
    bool last = s->level + 1 >= SX_LONG_LEVELS || report->stop == SX_STOP_BYTES;
    bool spent = saturated && (report->proven || options->extract_fuel >= EXTRACT_SHARE(fuel));
    bool done = starved ? applied == 0 : last || spent;
    if (s->level == 0 && !starved) {
        bool same =
            kind->whole && report->part_count == 1; /* as the lane of the same kind in parts */
        done = same || (done && !kind->whole && !kind->open && kind->samples == 0);
    } else if (kind->samples > 0 && report->stop != SX_STOP_BYTES) {
        done = done && s->idle >= IDLE_MAX;
    }
    s->level += starved || last ? 0 : 1;
    s->flags |= done ? SX_LONG_DONE : 0;
    s->flags |= options->limits.open ? SX_LONG_OPENED : 0;
    if (report->part_count == 1) {
        s->flags |= SX_LONG_WHOLE;
    }
}

/* ---- a step ---- */

typedef struct {
    const sx_core_step *step;
    sx_core_step_result *result;
    lane lane;
    uint64_t fuel;
    sx_long_state state;
    sx_optimize_options options;
    sx_memory memory;
    sx_pipe_found found;
} stepper;

/* The step's program takes the place of the lane's best. */
static sx_code take(sx_ctx *cx, stepper *p, sx_image *image)
{
    const sx_core_request *request = p->step->request;
    sx_long_state *s = &p->state;
    const sx_optimize_report *report = &p->found.report;
    sx_module_point point = {.time_ns = report->cost_after_ns};
    sx_code code = sx_pareto_measure(cx, request, p->found.device, p->found.better, &point);
    if (code == SX_INPUT && !p->lane.front) {
        sx_ctx_reset_error(cx); /* no values for its symbols: the peak is not known */
        point.peak_bytes = 0;
        code = SX_OK;
    }
    SX_TRY(code);
    s->flags |= SX_LONG_FOUND;
    s->goal = report->objective_after;
    s->objective = p->lane.front ? point.time_ns : report->objective_after;
    s->time_ns = p->lane.front ? point.time_ns : report->cost_after_ns;
    s->peak_bytes = point.peak_bytes;
    if (p->lane.front) {
        point.program = sx_module_put_text(&image->strings, sx_buf_span(&image->optimized));
        sx_buf_put(&image->point, &point, sizeof(point));
    }
    return sx_image_encode(cx, image, p->result->module);
}

static sx_code search(sx_ctx *cx, stepper *p, sx_image *image)
{
    const sx_core_request *request = p->step->request;
    sx_long_state *s = &p->state;
    const sx_optimize_report *report = &p->found.report;
    SX_TRY(options_of(cx, request, &p->lane, s, p->fuel, &p->options));
    SX_TRY(sx_memory_open(cx, sx_long_state_rest(p->step->state), &s->key, p->result->state,
                          &p->memory));
    p->options.memory = &p->memory;
    SX_TRY(sx_pipe_search(cx, request, &p->options, &p->found, image));
    bool first = (s->flags & SX_LONG_FOUND) == 0;
    bool sound = report->unproved == NULL || p->memory.part_count == 0;
    s->idle++;
    if (sound && (first || report->objective_after < s->goal)) {
        SX_TRY(take(cx, p, image));
        s->idle = 0;
    }
    s->step++;
    s->fuel += report->fuel + report->extract_fuel;
    s->nodes = report->nodes;
    bool timed = sx_objective_is_time(&p->options.objective);
    double bound = timed ? report->bound_ns : report->proven ? report->objective_after : 0;
    bound = bound < s->goal ? bound : s->goal;
    s->bound = p->lane.front && p->lane.price > 0 ? 0 : bound;
    climb(&p->lane, &p->options, report, p->fuel, s);
    p->result->stop = report->stop == SX_STOP_SATURATED && report->proven
                          ? "proven"
                          : sx_eg_stop_name(report->stop);
    return SX_OK;
}

/* The same in memory of its own, so that what a step takes is given back. */
static sx_code search_apart(sx_ctx *cx, stepper *p)
{
    sx_ctx scratch;
    sx_image image;
    size_t room = cx->arena.limit_bytes - cx->arena.used_bytes;
    sx_ctx_init(&scratch, room);
    sx_image_init(&image);
    scratch.fuel = p->fuel + 4 * SX_FUEL_DEFAULT; /* certificates are checked out of it too */
    scratch.seed = cx->seed;
    scratch.cancelled = cx->cancelled;
    scratch.cancelled_self = cx->cancelled_self;
    scratch.progress = cx->progress;
    scratch.progress_self = cx->progress_self;
    sx_code code = search(&scratch, p, &image);
    if (code != SX_OK) {
        sx_hint(cx, "%s", scratch.error.hint);
        code = SX_FAIL(cx, code, "%s", scratch.error.text);
    }
    sx_image_fini(&image);
    sx_ctx_fini(&scratch);
    return code;
}

static void fill_result(const sx_long_state *s, sx_core_step_result *result)
{
    result->objective = s->objective;
    result->bound = s->bound;
    result->time_ns = s->time_ns;
    result->peak_bytes = s->peak_bytes;
    result->nodes = s->nodes;
    result->fuel = s->fuel;
    result->step = s->step;
    result->done = (s->flags & SX_LONG_DONE) != 0;
}

/* A later step that memory or a limit of its proof ends: the lane ends with what it has. */
static bool ends_lane(sx_code code, const sx_long_state *s)
{
    return s->step > 0 && (code == SX_NOMEM || code == SX_LIMIT || code == SX_QUOTA);
}

static sx_code do_step(sx_ctx *cx, stepper *p)
{
    sx_core_step_result *result = p->result;
    const sx_long_state before = p->state;
    SX_TRY(sx_long_state_begin(cx, result->state));
    sx_code code = search_apart(cx, p);
    if (ends_lane(code, &before)) {
        sx_ctx_reset_error(cx);
        sx_buf_clear(result->module);
        sx_buf_clear(result->state);
        SX_TRY(sx_long_state_begin(cx, result->state));
        p->state = before;
        p->state.step++;
        p->state.flags |= SX_LONG_DONE;
        result->stop = sx_eg_stop_name(SX_STOP_BYTES);
        code = SX_OK;
    }
    if (code != SX_OK) {
        sx_buf_clear(result->module);
        sx_buf_clear(result->state);
        return code;
    }
    fill_result(&p->state, result);
    if (p->memory.full) {
        sx_buf_clear(result->state);
        return SX_FAIL(cx, SX_LIMIT, "state of lane %s: more than %zu bytes", p->lane.name,
                       result->state->limit);
    }
    return sx_long_state_end(cx, &p->state, result->state);
}

sx_code sx_core_long_step(sx_ctx *cx, const sx_core_step *step, sx_core_step_result *result)
{
    SX_ASSERT(step->request != NULL && result->state != NULL);
    uint32_t count;
    sx_core_request request = *step->request;
    sx_core_step own = *step;
    request.library = NULL;
    own.request = &request;
    SX_TRY(sx_core_long_lanes(cx, &request, &count));
    if (step->lane >= count) {
        return SX_FAIL(cx, SX_INPUT, "lane %u, there are %u", step->lane, count);
    }
    stepper *p = SX_NEW(cx, stepper);
    if (p == NULL) {
        return cx->error.code;
    }
    p->step = &own;
    p->result = result;
    p->lane = lane_of(&request, step->lane);
    p->fuel = step->fuel > SX_CORE_STEP_FUEL_MIN ? step->fuel : SX_CORE_STEP_FUEL_MIN;
    SX_TRY(sx_long_state_read(cx, &own, &p->state));
    if ((p->state.flags & SX_LONG_DONE) != 0) {
        fill_result(&p->state, result);
        result->stop = "proven";
        sx_buf_put_span(result->state, step->state);
        return sx_buf_check(cx, result->state, "state");
    }
    return do_step(cx, p);
}
