/* merge.c - the better of two modules of one request, or the front of both (core.h). */
#include <string.h>

#include "core/long/long.h"
#include "core/pareto.h"

typedef struct {
    const sx_device *device;
    sx_objective objective;
    sx_key key;
} merger;

static sx_code open_module(sx_ctx *cx, const merger *m, sx_span bytes, sx_module *module)
{
    SX_TRY(sx_module_decode(cx, bytes, true, module));
    if (memcmp(module->info->key, m->key.byte, sizeof(m->key.byte)) != 0) {
        return SX_FAIL(cx, SX_ABSENT, "module of another request or build");
    }
    return SX_OK;
}

/* What its program costs by the objective, from the program itself. */
static sx_code goal_of(sx_ctx *cx, const merger *m, const sx_module *module, double *goal)
{
    sx_graph *graph;
    sx_span text = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    SX_TRY(sx_graph_parse(cx, text, &graph));
    SX_TRY(sx_graph_check(cx, graph));
    return sx_optimize_cost(cx, graph, m->device, &m->objective, goal);
}

/* The points of both over the strings of `base`. */
static sx_code join_points(sx_ctx *cx, const sx_module *base, const sx_module *other,
                           sx_buf *strings, sx_module_point **point, uint64_t *count)
{
    uint64_t all = base->point_count + other->point_count;
    *point = SX_NEW_ARRAY(cx, sx_module_point, (size_t)all + 1);
    if (*point == NULL) {
        return cx->error.code;
    }
    if (all > UINT32_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "front of %llu points", (unsigned long long)all);
    }
    for (uint64_t i = 0; i < all; i++) {
        bool own = i < base->point_count;
        const sx_module_point *from = own ? &base->point[i] : &other->point[i - base->point_count];
        (*point)[i] = *from;
        if (!own) {
            sx_span text = sx_module_string(other, from->program);
            (*point)[i].program = sx_module_put_text(strings, text);
        }
    }
    SX_TRY(sx_buf_check(cx, strings, "module strings"));
    *count = sx_pareto_keep(*point, (uint32_t)all);
    return SX_OK;
}

#define STRINGS_MAX ((size_t)256 << 20)

static sx_code merge_fronts(sx_ctx *cx, const sx_module *base, const sx_module *other, sx_buf *out)
{
    sx_module merged = *base;
    sx_module_point *point;
    sx_buf strings;
    sx_buf_init(&strings, STRINGS_MAX);
    sx_buf_put(&strings, base->strings, (size_t)base->strings_count);
    sx_code code = join_points(cx, base, other, &strings, &point, &merged.point_count);
    if (code == SX_OK) {
        merged.strings = (const char *)strings.ptr;
        merged.strings_count = strings.len;
        merged.point = point;
        code = sx_module_encode(cx, &merged, out);
    }
    sx_buf_fini(&strings);
    return code;
}

static sx_code copy(sx_ctx *cx, sx_span bytes, sx_buf *out)
{
    sx_buf_put_span(out, bytes);
    return sx_buf_check(cx, out, "module");
}

sx_code sx_core_long_merge(sx_ctx *cx, const sx_core_request *request, sx_span a, sx_span b,
                           sx_buf *out)
{
    merger m = {.objective = {.time = 1}};
    bool front = sx_span_is(request->objective, "pareto");
    sx_span part[SX_PART_COUNT];
    sx_module first, second;
    double goal[2];
    const sx_target *target;
    SX_TRY(sx_core_device(cx, request, &m.device, &target));
    if (request->objective.len > 0 && !front) {
        SX_TRY(sx_objective_find(cx, request->objective, &m.objective));
    }
    SX_TRY(sx_core_key(cx, request, &m.key, part));
    SX_TRY(a.len > 0 ? open_module(cx, &m, a, &first) : SX_OK);
    SX_TRY(b.len > 0 ? open_module(cx, &m, b, &second) : SX_OK);
    if (a.len == 0 || b.len == 0) {
        return copy(cx, a.len == 0 ? b : a, out);
    }
    SX_TRY(goal_of(cx, &m, &first, &goal[0]));
    SX_TRY(goal_of(cx, &m, &second, &goal[1]));
    bool later = goal[1] < goal[0];
    if (!front) {
        return copy(cx, later ? b : a, out);
    }
    return merge_fronts(cx, later ? &second : &first, later ? &first : &second, out);
}
