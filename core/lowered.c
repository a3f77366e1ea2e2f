/* lowered.c - the kernel of a subject at each point of an interval.
 *
 * Many points have one kernel: what a lowering reads of rows, for instance, is how many there are, so 4 x 6 and 8 x 3
 * are the same to it. So each point is analysed; what a lowering reads of the analysis is compared, word by word, with
 * that of the points before, and only what is new is lowered. Points go through this in batches: threads analyse all
 * of a batch, one thread compares, threads lower. Which points are lowered does not depend on the threads. */
#include "core/lowered.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"
#include "core/base/rewind.h"

#define TASK_POINTS 16u /* that one thread takes at a time */
#define BATCH_TASKS 16u
#define BATCH_POINTS (TASK_POINTS * BATCH_TASKS)

/* What a lowering reads at a point. */
typedef struct {
    uint64_t *word; /* NULL: nothing is said of it, it is lowered */
    uint32_t count;
    uint64_t hash;
} reading;

typedef struct {
    sx_pipe_subject there;
    reading reading;
    uint32_t own;  /* sx_analysis_own */
    uint32_t like; /* a point, or SX_LOWERED_ANEW */
    sx_kernel *kernel;
    sx_target_shape *shape; /* of each part, as in sx_lowered */
} job;

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
    /* Points that were lowered, by what was read. */
    sx_idmap map;
    struct {
        reading reading;
        uint32_t point;
    } * known;
    uint32_t known_count, known_capacity;
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

/* What is read at a point. Where the kernel packs an argument, all extents matter; where its code says what is alike,
 * nothing is said before it is there. */
static sx_code read_point(sx_ctx *cx, const lowering *all, job *j, uint32_t point)
{
    const sx_pipe_point value = sx_points_at(all->points, point);
    *j = (job){.own = SX_NO_DIM, .like = SX_LOWERED_ANEW};
    SX_TRY(sx_pipe_subject_at(cx, all->pipe, all->subject, &value, &j->there));
    if (all->subject->moves || all->pipe->target->shape != NULL) {
        return SX_OK;
    }
    const sx_analysis *a = j->there.analysis;
    uint64_t word[SX_ALIKE_WORDS];
    j->own = all->subject->packs ? SX_NO_DIM : sx_analysis_own(a);
    if (sx_analysis_alike(a, j->own, word, &j->reading.count)) {
        size_t bytes = j->reading.count * sizeof(*word);
        j->reading.word = SX_NEW_ARRAY(cx, uint64_t, j->reading.count);
        if (j->reading.word == NULL) {
            return cx->error.code;
        }
        memcpy(j->reading.word, word, bytes);
        j->reading.hash = sx_hash64((sx_span){(const uint8_t *)word, bytes}, 0);
    }
    return SX_OK;
}

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

static sx_code read_job(sx_ctx *cx, lowering *all, uint32_t index)
{
    return read_point(cx, all, &all->job[index], all->first + index);
}

static sx_code lower_job(sx_ctx *cx, lowering *all, uint32_t index)
{
    job *j = &all->job[index];
    const sx_target *target = all->pipe->target;
    if (j->like != SX_LOWERED_ANEW) {
        return SX_OK;
    }
    SX_TRY(lower(cx, all->pipe, all->subject, all->schedule, &j->there, &j->kernel));
    if (target->shape == NULL) {
        return SX_OK;
    }
    j->shape = SX_NEW_ARRAY(cx, sx_target_shape, (size_t)j->kernel->part_count + 1);
    for (uint32_t p = 0; j->shape != NULL && p < j->kernel->part_count; p++) {
        SX_TRY(target->shape(cx, target, j->kernel, p, &j->shape[p]));
    }
    return cx->error.code;
}

/* A program that an earlier point of the batch has, for another grid. */
static sx_code regrid_job(sx_ctx *cx, lowering *all, uint32_t index)
{
    job *j = &all->job[index];
    if (j->like == SX_LOWERED_ANEW || j->own == SX_NO_DIM) {
        return SX_OK;
    }
    return sx_loop_regrid(cx, all->job[j->like - all->first].kernel, j->there.analysis, &j->kernel);
}

static void read_task(void *self, uint32_t task)
{
    each_of_task(self, task, read_job);
}

static void lower_task(void *self, uint32_t task)
{
    each_of_task(self, task, lower_job);
}

static void regrid_task(void *self, uint32_t task)
{
    each_of_task(self, task, regrid_job);
}

/* ---- a batch ---- */

static bool same_reading(const void *self, uint32_t id, const void *probe)
{
    const lowering *all = self;
    const reading *a = &all->known[id].reading, *b = probe;
    return a->count == b->count && memcmp(a->word, b->word, a->count * sizeof(*a->word)) == 0;
}

static sx_code remember(lowering *all, const reading *r, uint32_t point)
{
    sx_ctx *cx = all->cx;
    void *known = all->known;
    SX_TRY(sx_grow(cx, &known, &all->known_capacity, all->known_count + 1, sizeof(*all->known)));
    all->known = known;
    uint64_t *word = SX_NEW_ARRAY(cx, uint64_t, r->count);
    if (word == NULL) {
        return cx->error.code;
    }
    memcpy(word, r->word, r->count * sizeof(*word));
    all->known[all->known_count].reading = (reading){word, r->count, r->hash};
    all->known[all->known_count].point = point;
    return sx_idmap_put(cx, &all->map, r->hash, all->known_count++);
}

/* Which points are like an earlier one. A program for another grid is made from that of a point of this batch, as what
 * was lowered before is gone. */
static sx_code compare(lowering *all, bool *regrids)
{
    *regrids = false;
    for (uint32_t i = 0; i < all->count; i++) {
        job *j = &all->job[i];
        if (j->reading.word == NULL) {
            continue;
        }
        uint32_t found = sx_idmap_find(&all->map, j->reading.hash, same_reading, all, &j->reading);
        if (found == SX_IDMAP_NONE) {
            SX_TRY(remember(all, &j->reading, all->first + i));
        } else if (j->own != SX_NO_DIM && all->known[found].point < all->first) {
            all->known[found].point = all->first + i;
        } else {
            j->like = all->known[found].point;
            *regrids = *regrids || j->own != SX_NO_DIM;
        }
    }
    return SX_OK;
}

static void run(lowering *all, void (*task)(void *self, uint32_t index))
{
    const sx_team *team = all->cx->team;
    uint32_t count = (all->count + TASK_POINTS - 1) / TASK_POINTS;
    if (team != NULL && team->threads > 1) {
        team->run(team->self, task, all, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        task(all, i);
    }
}

/* What the tasks spent, and the error of the first point that has one. */
static sx_code settle(lowering *all, uint64_t fuel)
{
    sx_ctx *cx = all->cx;
    uint64_t spent = 0;
    for (uint32_t i = 0; i < BATCH_TASKS; i++) {
        const sx_error *e = &all->task[i].error;
        spent += fuel - all->task[i].fuel;
        all->task[i].fuel = fuel;
        if (e->code != SX_OK && cx->error.code == SX_OK) {
            (void)sx_fail(cx, e->code, e->file, e->line, "%s", e->text);
        }
    }
    SX_TRY(cx->error.code);
    return sx_spend(cx, spent);
}

static sx_code run_batch(lowering *all)
{
    bool regrids;
    uint64_t fuel = all->cx->fuel;
    for (uint32_t i = 0; i < BATCH_TASKS; i++) {
        sx_arena_rewind(&all->task[i].arena);
        all->task[i].fuel = fuel;
    }
    run(all, read_task);
    SX_TRY(settle(all, fuel));
    SX_TRY(compare(all, &regrids));
    run(all, lower_task);
    SX_TRY(settle(all, fuel));
    if (regrids) {
        run(all, regrid_task);
        SX_TRY(settle(all, fuel));
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
    while (all->first < points->count && code == SX_OK) {
        all->count = least(BATCH_POINTS, points->count - all->first);
        code = run_batch(all);
        for (uint32_t i = 0; i < all->count && code == SX_OK; i++) {
            const job *j = &all->job[i];
            code = take(self, &(sx_lowered){all->first + i, j->like, j->kernel, j->shape});
        }
        all->first += all->count;
    }
    for (uint32_t i = 0; i < BATCH_TASKS; i++) {
        sx_ctx_fini(&all->task[i]);
    }
    return code;
}
