/* lowered.c - the kernel of a subject at each point of an interval.
 *
 * Many points have one kernel: what a lowering reads of rows, for instance, is how many there are, so 4 x 6 and 8 x 3
 * are the same to it. And many kernels are others with numbers in between (core/lines.c). So each point is analysed,
 * and what a lowering reads of the analysis, its reading, is compared word by word with those of the points before.
 * Then the readings on each line are looked at, and points are lowered whose kernel follows from no others. All three
 * is done by threads, on many points at a time; what is lowered does not depend on them. */
#include "core/lowered.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"
#include "core/base/rewind.h"
#include "core/lines.h"

#define TASK_POINTS 16u /* that one thread takes at a time */
#define BATCH_TASKS 16u
#define BATCH_POINTS (TASK_POINTS * BATCH_TASKS)
#define NONE UINT32_MAX
#define PERIOD_MAX (1 << 16) /* of lines: a longer one has no line with enough readings */

/* What is known of a point. */
typedef struct {
    uint32_t reading;
    int64_t own; /* the extent of the dimension that sx_analysis_own gives; 0: it gives none */
} spot;

/* A point of a batch: what is read there, and later its kernel. */
typedef struct {
    uint64_t *word; /* NULL: nothing is said of it, it is lowered */
    uint32_t count, number_count;
    int64_t own, extent[SX_ROLE_COUNT];
    sx_kernel *kernel;
    sx_target_shape *shape; /* of each part, as in sx_lowered */
} job;

/* Points with the same reading whose own extent is the smallest, and the largest. */
typedef struct {
    uint32_t low, high;
} ends;

typedef struct {
    sx_ctx *cx;
    const sx_pipe *pipe;
    const sx_pipe_subject *subject;
    const sx_schedule *schedule;
    const sx_points *points;
    /* A context for each task of a batch, whose memory is used again for the next. */
    sx_ctx task[BATCH_TASKS];
    job job[BATCH_POINTS];
    uint32_t first, count; /* the points of the batch */
    spot *spot;            /* [points]; NULL: nothing is read, all are lowered */
    sx_reading *reading;   /* and of each of them: */
    ends *ends;
    sx_idmap map;
    uint32_t reading_count, reading_capacity, ends_capacity;
    int64_t low[SX_ROLE_COUNT], high[SX_ROLE_COUNT]; /* extents of all readings */
    sx_lines lines;
    sx_way *way; /* [readings] */
} lowering;

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- one point ---- */

static sx_code lower(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                     const sx_schedule *schedule, const sx_pipe_subject *there, sx_kernel **kernel)
{
    sx_lowering what = {.kind = s->packs   ? SX_LOWER_PACK
                                : s->moves ? SX_LOWER_MOVE
                                           : SX_LOWER_FUSED,
                        .name = s->name,
                        .schedule = schedule};
    if (s->moves) {
        what.op = sx_graph_node(pipe->graph, (sx_node_id){s->node})->op;
        what.attr = there->attr;
        what.input = there->type;
        what.input_count = s->count;
        what.result = there->result;
    } else {
        what.analysis = there->analysis;
        SX_TRY(sx_schedule_check(cx, schedule, there->analysis));
    }
    return sx_target_lower(cx, pipe->target, &what, kernel);
}

sx_code sx_lowered_at(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                      const sx_schedule *schedule, const sx_pipe_point *value,
                      sx_pipe_subject *there, sx_kernel **kernel)
{
    SX_TRY(sx_pipe_subject_at(cx, pipe, s, value, there));
    return lower(cx, pipe, s, schedule, there, kernel);
}

/* ---- tasks: some points of a batch each ---- */

/* The points of a task, until one fails. */
static void each_of_task(lowering *all, uint32_t task,
                         sx_code (*what)(sx_ctx *cx, lowering *all, uint32_t index))
{
    sx_ctx *cx = &all->task[task];
    uint32_t last = least(all->count, (task + 1) * TASK_POINTS);
    sx_code code = cx->error.code;
    for (uint32_t i = task * TASK_POINTS; i < last && code == SX_OK; i++) {
        code = what(cx, all, i);
    }
    SX_ASSERT(code == cx->error.code);
}

static void run(lowering *all, void (*task)(void *self, uint32_t index), uint32_t count)
{
    const sx_team *team = all->cx->team;
    if (team != NULL && team->threads > 1) {
        team->run(team->self, task, all, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        task(all, i);
    }
}

/* Runs tasks in empty contexts. What they spent is spent; the error is that of the first one that has any. */
static sx_code run_tasks(lowering *all, void (*task)(void *self, uint32_t index), uint32_t count)
{
    sx_ctx *cx = all->cx;
    uint64_t spent = 0, fuel = cx->fuel;
    for (uint32_t i = 0; i < count; i++) {
        sx_arena_rewind(&all->task[i].arena);
        all->task[i].fuel = fuel;
    }
    run(all, task, count);
    for (uint32_t i = 0; i < count; i++) {
        const sx_error *e = &all->task[i].error;
        spent += fuel - all->task[i].fuel;
        if (e->code != SX_OK && cx->error.code == SX_OK) {
            (void)sx_fail(cx, e->code, e->file, e->line, "%s", e->text);
        }
    }
    SX_TRY(cx->error.code);
    return sx_spend(cx, spent);
}

static sx_code run_batch(lowering *all, void (*task)(void *self, uint32_t index))
{
    return run_tasks(all, task, (all->count + TASK_POINTS - 1) / TASK_POINTS);
}

/* ---- what is read ---- */

/* Where the kernel packs an argument, all extents matter. */
static sx_code read_job(sx_ctx *cx, lowering *all, uint32_t index)
{
    const sx_pipe_point value = sx_points_at(all->points, all->first + index);
    sx_pipe_subject there;
    uint64_t word[SX_ALIKE_WORDS];
    job *j = &all->job[index];
    *j = (job){.word = NULL};
    SX_TRY(sx_pipe_subject_at(cx, all->pipe, all->subject, &value, &there));
    const sx_analysis *a = there.analysis;
    uint32_t own = all->subject->packs ? SX_NO_DIM : sx_analysis_own(a);
    if (sx_analysis_alike(a, own, word, &j->count, &j->number_count)) {
        j->own = own != SX_NO_DIM ? a->view.extent[own] : 0;
        memcpy(j->extent, a->extent, sizeof(j->extent));
        j->extent[SX_ROLE_BATCH] = own != SX_NO_DIM ? 1 : j->extent[SX_ROLE_BATCH];
        j->word = SX_NEW_ARRAY(cx, uint64_t, j->count);
        if (j->word == NULL) {
            return cx->error.code;
        }
        memcpy(j->word, word, j->count * sizeof(*word));
    }
    return SX_OK;
}

static void read_task(void *self, uint32_t task)
{
    each_of_task(self, task, read_job);
}

static bool same_reading(const void *self, uint32_t id, const void *probe)
{
    const lowering *all = self;
    const sx_reading *a = &all->reading[id];
    const job *b = probe;
    return a->count == b->count && memcmp(a->word, b->word, a->count * sizeof(*a->word)) == 0;
}

static sx_code add_reading(lowering *all, const job *j, uint64_t hash, uint32_t point)
{
    sx_ctx *cx = all->cx;
    void *reading = all->reading, *its = all->ends;
    uint32_t count = all->reading_count;
    SX_TRY(sx_grow(cx, &reading, &all->reading_capacity, count + 1, sizeof(*all->reading)));
    SX_TRY(sx_grow(cx, &its, &all->ends_capacity, count + 1, sizeof(*all->ends)));
    all->reading = reading;
    all->ends = its;
    uint64_t *word = SX_NEW_ARRAY(cx, uint64_t, j->count);
    if (word == NULL) {
        return cx->error.code;
    }
    memcpy(word, j->word, j->count * sizeof(*word));
    all->reading[count] = (sx_reading){word, j->count, j->number_count, point};
    all->ends[count] = (ends){point, point};
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        int64_t extent = j->extent[r];
        all->low[r] = count == 0 ? extent : sx_min_i64(all->low[r], extent);
        all->high[r] = count == 0 ? extent : sx_max_i64(all->high[r], extent);
    }
    return sx_idmap_put(cx, &all->map, hash, all->reading_count++);
}

/* Which points of a batch have a reading that an earlier one has. */
static sx_code compare(lowering *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const job *j = &all->job[i];
        uint32_t point = all->first + i;
        spot *here = &all->spot[point];
        *here = (spot){NONE, j->own};
        if (j->word == NULL) {
            continue;
        }
        uint64_t hash =
            sx_hash64((sx_span){(const uint8_t *)j->word, j->count * sizeof(*j->word)}, 0);
        uint32_t found = sx_idmap_find(&all->map, hash, same_reading, all, j);
        if (found == SX_IDMAP_NONE) {
            found = all->reading_count;
            SX_TRY(add_reading(all, j, hash, point));
        }
        here->reading = found;
        ends *its = &all->ends[found];
        its->low = j->own < all->spot[its->low].own ? point : its->low;
        its->high = j->own > all->spot[its->high].own ? point : its->high;
    }
    return SX_OK;
}

static sx_code read_all(lowering *all)
{
    all->spot = SX_NEW_ARRAY(all->cx, spot, all->points->count);
    if (all->spot == NULL) {
        return all->cx->error.code;
    }
    for (all->first = 0; all->first < all->points->count; all->first += all->count) {
        all->count = least(BATCH_POINTS, all->points->count - all->first);
        SX_TRY(run_batch(all, read_task));
        SX_TRY(compare(all));
    }
    return SX_OK;
}

/* ---- which points are lowered ---- */

/* A multiple of all steps along the extents that vary; 0: it is too long. */
static int64_t period_of(const lowering *all)
{
    int64_t period = 1;
    for (uint32_t i = 0; i < all->schedule->level_count; i++) {
        const sx_level *level = &all->schedule->level[i];
        bool varies = all->low[level->axis] != all->high[level->axis];
        int64_t times = 1;
        while (varies && period > 0 && period * times % level->step != 0) {
            times++;
            period = period * times > PERIOD_MAX ? 0 : period;
        }
        period *= times;
    }
    return period;
}

static sx_code lower_reading(void *self, sx_ctx *cx, const sx_reading *reading, sx_kernel **kernel)
{
    const lowering *all = self;
    const sx_pipe_point value = sx_points_at(all->points, reading->point);
    sx_pipe_subject there;
    return sx_lowered_at(cx, all->pipe, all->subject, all->schedule, &value, &there, kernel);
}

/* Every so many lines each. */
static void walk_task(void *self, uint32_t task)
{
    lowering *all = self;
    const sx_line_lowering how = {all, lower_reading};
    sx_ctx *cx = &all->task[task];
    sx_code code = cx->error.code;
    for (uint32_t k = task; k < all->lines.line_count && code == SX_OK; k += BATCH_TASKS) {
        code = sx_line_walk(cx, &all->lines, k, &how, all->way);
    }
    SX_ASSERT(code == cx->error.code);
}

static sx_code find_ways(lowering *all)
{
    int64_t period = period_of(all);
    all->way = SX_NEW_ARRAY(all->cx, sx_way, (size_t)all->reading_count + 1);
    if (all->way == NULL || period == 0) {
        return all->cx->error.code;
    }
    SX_TRY(sx_lines_make(all->cx, all->reading, all->reading_count, period, &all->lines));
    return run_tasks(all, walk_task, BATCH_TASKS);
}

/* Which earlier points have the kernel of a point. The ends of an own extent are lowered, where buffers are the
 * smallest and the largest. */
static sx_lowered origin_of(const lowering *all, uint32_t point)
{
    sx_lowered l = {.point = point, .like = SX_LOWERED_ANEW};
    const spot *here = all->spot != NULL ? &all->spot[point] : NULL;
    if (here == NULL || here->reading == NONE) {
        return l;
    }
    const sx_reading *reading = &all->reading[here->reading];
    const ends *its = &all->ends[here->reading];
    const sx_way *way = &all->way[here->reading];
    bool own = here->own > 0 && (point == its->low || point == its->high);
    if (own || (point == reading->point && way->of == 0)) {
        return l;
    }
    l.own = here->own;
    l.like = l.other = reading->point;
    if (point == reading->point) {
        l.like = way->from;
        l.other = way->to;
        l.at = way->at;
        l.of = way->of;
    }
    return l;
}

/* ---- lowering ---- */

static sx_code lower_job(sx_ctx *cx, lowering *all, uint32_t index)
{
    job *j = &all->job[index];
    const sx_target *target = all->pipe->target;
    const sx_pipe_point value = sx_points_at(all->points, all->first + index);
    sx_pipe_subject there;
    *j = (job){.word = NULL};
    if (origin_of(all, all->first + index).like != SX_LOWERED_ANEW) {
        return SX_OK;
    }
    SX_TRY(sx_lowered_at(cx, all->pipe, all->subject, all->schedule, &value, &there, &j->kernel));
    if (target->shape == NULL) {
        return SX_OK;
    }
    j->shape = SX_NEW_ARRAY(cx, sx_target_shape, (size_t)j->kernel->part_count + 1);
    for (uint32_t p = 0; j->shape != NULL && p < j->kernel->part_count; p++) {
        SX_TRY(target->shape(cx, target, j->kernel, p, &j->shape[p]));
    }
    return cx->error.code;
}

static void lower_task(void *self, uint32_t task)
{
    each_of_task(self, task, lower_job);
}

static sx_code lower_all(lowering *all, sx_code (*take)(void *self, const sx_lowered *lowered),
                         void *self)
{
    for (all->first = 0; all->first < all->points->count; all->first += all->count) {
        all->count = least(BATCH_POINTS, all->points->count - all->first);
        SX_TRY(run_batch(all, lower_task));
        for (uint32_t i = 0; i < all->count; i++) {
            sx_lowered l = origin_of(all, all->first + i);
            l.kernel = all->job[i].kernel;
            l.shape = all->job[i].shape;
            SX_TRY(take(self, &l));
        }
    }
    return SX_OK;
}

sx_code sx_lowered_each(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                        const sx_schedule *schedule, const sx_points *points,
                        sx_code (*take)(void *self, const sx_lowered *lowered), void *self)
{
    lowering *all = SX_NEW(cx, lowering);
    sx_code code = all == NULL ? cx->error.code : SX_OK;
    if (code != SX_OK) {
        return code;
    }
    *all = (lowering){.cx = cx, .pipe = pipe, .subject = s, .schedule = schedule, .points = points};
    for (uint32_t i = 0; i < BATCH_TASKS; i++) {
        sx_ctx_init_task(&all->task[i], cx);
    }
    if (!s->moves && pipe->target->shape == NULL) {
        code = read_all(all);
        code = code == SX_OK ? find_ways(all) : code;
    }
    code = code == SX_OK ? lower_all(all, take, self) : code;
    for (uint32_t i = 0; i < BATCH_TASKS; i++) {
        sx_ctx_fini(&all->task[i]);
    }
    return code;
}
