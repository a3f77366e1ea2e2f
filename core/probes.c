/* probes.c - a kernel that serves an interval of a symbol: it is chosen by its price at several values, the probes, and
 * proven at each. */
#include "core/kernels.h"

#include <math.h>
#include <string.h>

#include "core/kernel/apart.h"

/* The rows of a contraction whose number is a multiple of the symbol, in groups as many as its value. */
static sx_code group_rows(sx_ctx *cx, const sx_pipe *pipe, sx_pipe_subject *s,
                          sx_pipe_subject *probe)
{
    const sx_analysis *single = s->single;
    bool rows = (single->kind == SX_KERNEL_DOT || single->kind == SX_KERNEL_ONLINE) &&
                single->row != SX_NO_DIM;
    int64_t of_each = rows ? single->view.extent[single->row] / pipe->steady->high[0] : 0;
    rows = of_each > 1; /* single ones would make a batch of vectors */
    for (uint32_t k = 0; k <= pipe->steady->count && rows; k++) {
        bool last = k == pipe->steady->count;
        const sx_analysis *its = last ? single : probe[k].single;
        int64_t value = last ? pipe->steady->high[0] : pipe->steady->value[k].value[0];
        sx_analysis *grouped = SX_NEW(cx, sx_analysis);
        if (grouped == NULL) {
            return cx->error.code;
        }
        *grouped = *its;
        rows = its->row != SX_NO_DIM && its->view.extent[its->row] == of_each * value &&
               sx_analysis_rows_in_groups(grouped, value);
        if (last) {
            s->analysis = grouped;
        } else {
            probe[k].analysis = grouped;
        }
    }
    for (uint32_t k = 0; k < pipe->steady->count && !rows; k++) {
        probe[k].analysis = probe[k].single;
    }
    s->analysis = rows ? s->analysis : single;
    return SX_OK;
}

/* The subject as node `id` of a graph that is bound to another value. */
static sx_code subject_in(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                          const sx_graph *graph, sx_node_id id, sx_pipe_subject *there)
{
    const sx_node *node = sx_graph_node(graph, id);
    sx_type *type = SX_NEW_ARRAY(cx, sx_type, node->input_count + 1);
    sx_attr *fused = SX_NEW(cx, sx_attr);
    sx_analysis *a = SX_NEW(cx, sx_analysis);
    if (type == NULL || fused == NULL || a == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        type[i] = sx_graph_node(graph, sx_graph_input(graph, node, i))->type;
    }
    sx_pipe of_value = *pipe;
    of_value.graph = graph;
    *there = *s;
    there->type = type;
    if (s->moves) {
        there->attr = sx_graph_attr(graph, node);
        there->result = &node->type;
        return SX_OK;
    }
    there->analysis = there->single = a;
    SX_TRY(sx_pipe_lift(cx, &of_value, there, node, fused));
    SX_TRY(sx_analysis_make(cx, fused, type, s->count, a));
    a->steady = pipe->steady->cases && pipe->target->shape == NULL;
    return SX_OK;
}

sx_code sx_pipe_subject_at(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_pipe_point *value, sx_pipe_subject *there)
{
    const sx_pipe_steady *steady = pipe->steady;
    uint32_t count = pipe->variants->symbol_count;
    sx_binding *binding = SX_NEW_ARRAY(cx, sx_binding, count + 1);
    sx_graph *graph;
    if (binding == NULL) {
        return cx->error.code;
    }
    memcpy(binding, pipe->binding, count * sizeof(*binding));
    for (uint32_t k = 0; k < steady->symbol_count; k++) {
        SX_ASSERT(steady->low[k] <= value->value[k] && value->value[k] <= steady->high[k]);
        binding[steady->symbol[k]].value = value->value[k];
    }
    sx_node_id id;
    SX_TRY(
        sx_graph_bind_node(cx, pipe->better, binding, count, (sx_node_id){s->node}, &graph, &id));
    SX_TRY(subject_in(cx, pipe, s, graph, id, there));
    return s->moves || there->analysis->kind == s->analysis->kind
               ? SX_OK
               : SX_FAIL(cx, SX_UNIMPLEMENTED, "it is of another kind for other values");
}

sx_code sx_pipe_analyse_probes(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s)
{
    const sx_pipe_steady *steady = pipe->steady;
    sx_pipe_subject *probe = SX_NEW_ARRAY(cx, sx_pipe_subject, steady->count);
    sx_code code = probe == NULL ? cx->error.code : SX_OK;
    for (uint32_t k = 0; k < steady->count && code == SX_OK; k++) {
        code = subject_in(cx, pipe, s, steady->graph[k], (sx_node_id){s->node}, &probe[k]);
        if (code == SX_OK && probe[k].analysis->kind != s->analysis->kind) {
            return sx_pipe_unsteady(cx, pipe, s->name, "it is of another kind for other values");
        }
    }
    s->probe = probe;
    s->single = s->analysis;
    return code == SX_OK && !steady->cases ? group_rows(cx, pipe, s, probe) : code;
}

static bool is_steady_failure(sx_code code)
{
    return code == SX_UNIMPLEMENTED || code == SX_LIMIT || code == SX_INPUT || code == SX_COMPILE ||
           code == SX_INTERNAL;
}

/* The kernel under this schedule for one value; NULL: there is none. */
static sx_code lower_at(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, sx_kernel **kernel)
{
    const sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = s->name, .schedule = schedule, .analysis = s->analysis};
    *kernel = NULL;
    sx_code code = sx_schedule_check(cx, schedule, s->analysis);
    code = code == SX_OK ? sx_target_lower(cx, pipe->target, &what, kernel) : code;
    if (code != SX_OK && is_steady_failure(code)) {
        *kernel = NULL;
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    return code;
}

sx_code sx_pipe_judge_probes(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, sx_pipe_choice *c,
                             bool *serves)
{
    const sx_schedule *schedule = &c->candidate->schedule;
    const sx_pipe_steady *steady = pipe->steady;
    sx_kernel *there, *kernel;
    SX_TRY(lower_at(cx, pipe, &s->probe[0], schedule, &there));
    *serves = there != NULL && (c->rhs_constant || !sx_pipe_packs(schedule)) &&
              sx_pipe_follow(steady, c->kernel, there, c->follows);
    for (uint32_t k = 0; k < steady->count && *serves; k++) {
        sx_verdict verdict = {.proven = false};
        SX_TRY(lower_at(cx, pipe, &s->probe[k], schedule, &there));
        if (there == NULL) {
            *serves = false;
            break;
        }
        sx_code code = sx_pipe_regrid(cx, steady, k, c->kernel, there, c->follows, &kernel);
        code = code == SX_OK ? sx_pipe_judge(cx, pipe, &s->probe[k], schedule, kernel, &verdict)
                             : code;
        if (code != SX_OK && !is_steady_failure(code)) {
            return code;
        }
        sx_ctx_reset_error(cx);
        *serves = code == SX_OK && verdict.proven;
    }
    return SX_OK;
}

/* Rows of a point of the grid, of a contraction and of others, where they follow the product of two symbols. */
#define DOT_ROWS_MAX 48
#define ROWS_MAX 2

/* What the best kernels for single values cost, and candidates that are good at all of them. */
#define POOL_MAX (4 * (SX_PIPE_PROBES_MAX + 1) * SX_SEARCH_KEEP)
#define TEXT_KEEP 3u /* of the pool, where code is text: each of them is lowered at every probe */
typedef struct {
    sx_search_candidate candidate[POOL_MAX];
    double cost_ns[POOL_MAX][SX_PIPE_PROBES_MAX + 1];
    double loss[POOL_MAX];
    double best_ns[SX_PIPE_PROBES_MAX + 1];
    uint32_t count;
} steady_pool;

static const sx_pipe_subject *subject_at(const sx_pipe *pipe, const sx_pipe_subject *s, uint32_t k)
{
    return k < pipe->steady->count ? &s->probe[k] : s;
}

static void pool_put(steady_pool *pool, const sx_schedule *schedule)
{
    bool there = false;
    for (uint32_t k = 0; k < pool->count && !there; k++) {
        there = sx_schedule_equal(&pool->candidate[k].schedule, schedule);
    }
    if (!there) {
        SX_ASSERT(pool->count < POOL_MAX);
        pool->candidate[pool->count++].schedule = *schedule;
    }
}

/* How many elements of an axis there are for each unit of the symbol; 0: it does not follow it. */
static int64_t elements_of_each(const sx_pipe *pipe, const sx_pipe_subject *s, sx_role axis)
{
    int64_t high = s->analysis->extent[axis], near = s->probe[0].analysis->extent[axis];
    bool one = pipe->steady->symbol_count == 1;
    bool follows = one && high - near > 0 && (high - near) * pipe->steady->high[0] == high;
    return follows ? high - near : 0;
}

/* Where rows follow the product of two symbols a point of the grid has few of them: what is left over repeats after as
 * many, and each remainder has cases of its own. */
static void take_few_rows(sx_kernel_kind kind, sx_schedule *schedule)
{
    bool dot = kind == SX_KERNEL_DOT;
    int64_t block = dot ? sx_schedule_step(schedule, SX_ROLE_ROW, SX_BIND_LOOP, 0) : 1;
    int64_t most = dot ? DOT_ROWS_MAX : ROWS_MAX;
    for (uint32_t i = 0; i < schedule->level_count && kind != SX_KERNEL_ONLINE; i++) {
        sx_level *level = &schedule->level[i];
        bool rows = level->axis == SX_ROLE_ROW && level->bind == SX_BIND_GRID;
        if (rows && block > 0 && level->step > most) {
            level->step = sx_max_i64(most / block, 1) * block;
        }
    }
}

/* A schedule, and the one whose pieces of the grid end where the elements of each unit do, as far as they were larger
 * than a divisor of these. */
static void pool_add(const sx_pipe *pipe, const sx_pipe_subject *s, const sx_schedule *schedule,
                     steady_pool *pool)
{
    sx_schedule even = *schedule;
    for (uint32_t i = 0; i < even.level_count; i++) {
        int64_t of_each = elements_of_each(pipe, s, even.level[i].axis), step = even.level[i].step;
        if (even.level[i].bind != SX_BIND_GRID || of_each == 0 || step < 2) {
            continue;
        }
        step = sx_min_i64(step, of_each);
        for (; of_each % step != 0 && step > even.level[i].step / 2; step--) {
        }
        even.level[i].step = of_each % step == 0 ? step : even.level[i].step;
    }
    if (pipe->target->shape != NULL) { /* what is left over is no matter of its own */
        pool_put(pool, schedule);
        return;
    }
    if (pipe->steady->symbol_count > 1) {
        take_few_rows(s->analysis->kind, &even);
        pool_put(pool, &even);
        return;
    }
    pool_put(pool, schedule);
    pool_put(pool, &even);
}

/* By how much each candidate is dearer, summed over the values; infinite where it is no schedule for one of them. */
static void pool_price(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s, bool rhs_constant,
                       steady_pool *pool)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        pool->loss[i] = 0;
        for (uint32_t k = 0; k <= pipe->steady->count; k++) {
            const sx_analysis *a = subject_at(pipe, s, k)->analysis;
            const sx_schedule *schedule = &pool->candidate[i].schedule;
            bool fits = sx_schedule_check(cx, schedule, a) == SX_OK;
            sx_ctx_reset_error(cx);
            pool->cost_ns[i][k] =
                fits ? sx_cost_schedule(pipe->device, a, schedule, rhs_constant) : (double)INFINITY;
            pool->loss[i] += pool->cost_ns[i][k] / pool->best_ns[k];
        }
        pool->candidate[i].cost_ns = pool->cost_ns[i][pipe->steady->count];
    }
}

static void pool_add_all(const sx_pipe *pipe, const sx_pipe_subject *s,
                         const sx_search_result *found, steady_pool *pool)
{
    for (uint32_t i = 0; i < found->best_count; i++) {
        pool_add(pipe, s, &found->best[i].schedule, pool);
    }
}

/* Schedules that are for several extents: blocks in an order of their own, or in clusters, are for extents that they
 * divide. */
static sx_code search_for_all(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *there,
                              bool rhs_constant, sx_search_result *found)
{
    sx_analysis *open = pipe->target->shape != NULL ? SX_NEW(cx, sx_analysis) : NULL;
    SX_TRY(cx->error.code);
    const sx_analysis *a = there->analysis;
    if (open != NULL) {
        *open = *a;
        open->steady = true;
        a = open;
    }
    SX_TRY(sx_search_first(cx, a, pipe->device, rhs_constant, SX_SEARCH_KEEP, found));
    return found->dearer ? sx_search_rest(cx, a, pipe->device, rhs_constant, found) : SX_OK;
}

/* Where code is text: is there a kernel for each probe? */
static sx_code lowers_at_all(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                             const sx_schedule *schedule, bool *lowers)
{
    *lowers = true;
    for (uint32_t k = 1; k < pipe->steady->count && *lowers; k++) {
        sx_kernel *kernel;
        SX_TRY(lower_at(cx, pipe, &s->probe[k], schedule, &kernel));
        *lowers = kernel != NULL;
    }
    return SX_OK;
}

/* Has the kernel the bits that one for this value alone has: those of the first candidate for it that there is code
 * for? */
static sx_code has_bits(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *there,
                        const sx_search_result *alone, const sx_kernel *kernel, bool *same)
{
    sx_kernel *first = NULL;
    for (uint32_t i = 0; i < alone->best_count && first == NULL; i++) {
        SX_TRY(lower_at(cx, pipe, there, &alone->best[i].schedule, &first));
    }
    *same = first != NULL && first->numerics == kernel->numerics;
    return SX_OK;
}

sx_code sx_pipe_choose_steady(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                              sx_pipe_choice *c)
{
    sx_search_result *found = SX_NEW(cx, sx_search_result);
    steady_pool *pool = SX_NEW(cx, steady_pool);
    uint32_t probes = pipe->steady->count;
    bool text = pipe->target->shape != NULL;
    const sx_search_result alone = c->search; /* for the highest values */
    if (found == NULL || pool == NULL) {
        return cx->error.code;
    }
    for (uint32_t k = 0; k <= probes; k++) {
        const sx_pipe_subject *there = subject_at(pipe, s, k);
        SX_TRY(sx_search_first(cx, there->single, pipe->device, c->rhs_constant,
                               text ? SX_SEARCH_KEEP : 1, found));
        SX_ASSERT(found->best_count > 0 && (text || found->matrix_count == 0));
        pool->best_ns[k] = found->best[0].cost_ns;
        if (text) {
            SX_TRY(found->dearer
                       ? sx_search_rest(cx, there->single, pipe->device, c->rhs_constant, found)
                       : SX_OK);
            pool_add_all(pipe, s, found, pool);
        }
        SX_TRY(search_for_all(cx, pipe, there, c->rhs_constant, found));
        pool_add_all(pipe, s, found, pool);
    }
    pool_price(cx, pipe, s, c->rhs_constant, pool);
    c->search.best_count = c->search.matrix_count = 0;
    c->search.more = !text && c->search.more && !c->search.dearer;
    double loss[SX_PIPE_PROBES_MAX + 1] = {0};
    while (c->search.best_count < (text ? TEXT_KEEP : SX_SEARCH_KEEP)) {
        uint32_t next = 0;
        sx_kernel *high = NULL, *near = NULL;
        for (uint32_t i = 1; i < pool->count; i++) {
            next = pool->loss[i] < pool->loss[next] ? i : next;
        }
        if (!isfinite(pool->loss[next])) {
            break;
        }
        const sx_schedule *schedule = &pool->candidate[next].schedule;
        pool->loss[next] = (double)INFINITY;
        SX_TRY(lower_at(cx, pipe, s, schedule, &high));
        SX_TRY(high == NULL ? SX_OK : lower_at(cx, pipe, &s->probe[0], schedule, &near));
        bool same = true;
        SX_TRY(near != NULL && text ? has_bits(cx, pipe, s, &alone, high, &same) : SX_OK);
        SX_TRY(same && text ? lowers_at_all(cx, pipe, s, schedule, &same) : SX_OK);
        if (near != NULL && same &&
            (pipe->steady->cases || sx_pipe_follow(pipe->steady, high, near, c->follows))) {
            if (c->search.best_count == 0) {
                memcpy(loss, pool->cost_ns[next], sizeof(loss));
            }
            c->search.best[c->search.best_count++] = pool->candidate[next];
        }
    }
    for (uint32_t k = 0; k <= probes; k++) { /* the first one will do, but for rare cases */
        pipe->steady->cost_ns[k] += loss[k];
        pipe->steady->best_ns[k] += pool->best_ns[k];
    }
    return c->search.best_count > 0
               ? SX_OK
               : sx_pipe_unsteady(cx, pipe, s->name, "no schedule has grids that follow it");
}
