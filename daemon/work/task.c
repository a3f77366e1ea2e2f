#include "daemon/work/task.h"

#include <stdio.h>
#include <utlist.h>

#include "daemon/work/work.h"

static const bool allowed[SXD_TASK_STATE_COUNT][SXD_TASK_STATE_COUNT] = {
    [SXD_TASK_IDLE] = {[SXD_TASK_QUEUED] = true},
    [SXD_TASK_QUEUED] = {[SXD_TASK_RUNNING] = true, [SXD_TASK_IDLE] = true},
    [SXD_TASK_RUNNING] = {[SXD_TASK_IDLE] = true},
};

static void check_task(const sxd_task *task)
{
    bool in_worker = task->class->run == NULL;
    bool running = task->state == SXD_TASK_RUNNING;
    SX_ASSERT((running && in_worker) == (task->worker != NULL));
    SX_ASSERT(task->worker == NULL || task->worker->task == task);
    SX_ASSERT(in_worker || task->frame.len == 0);
    SX_ASSERT(running || !sxd_alarm_is_set(&task->alarm));
}

static void move(sxd_task *task, sxd_task_state to)
{
    SX_ASSERT(allowed[task->state][to]);
    if (to == SXD_TASK_IDLE) {
        DL_DELETE(task->work->tasks, task);
        task->held = false;
    }
    task->state = to;
    check_task(task);
}

void sxd_task_init(sxd_task *task, sxd_work *work, const sxd_task_class *class)
{
    SX_ASSERT(class->end != NULL && class->name != NULL);
    *task = (sxd_task){.work = work, .class = class};
    sx_buf_init(&task->frame, SIZE_MAX);
}

/* It leaves its worker, if it has one, which is the caller's to end or to keep. */
static void leave_worker(sxd_task *task)
{
    sxd_alarm_stop(task->work->base, &task->alarm);
    if (task->worker != NULL) {
        task->worker->task = NULL;
        task->worker = NULL;
    }
}

void sxd_task_drop(sxd_task *task)
{
    sxd_worker *worker = task->worker;
    SX_ASSERT(task->state != SXD_TASK_RUNNING || worker != NULL);
    sx_buf_fini(&task->frame);
    if (task->state == SXD_TASK_IDLE) {
        return;
    }
    leave_worker(task);
    move(task, SXD_TASK_IDLE);
    if (worker != NULL) {
        sxd_pool_kill(worker);
    }
}

void sxd_task_end(sxd_task *task, sxd_end *end)
{
    SX_ASSERT(task->state == SXD_TASK_RUNNING);
    SX_ASSERT((end->kind == SXD_END_DONE) == (end->error.code == SX_OK));
    end->worked_us = (uv_hrtime() - task->start_ns) / 1000;
    leave_worker(task);
    move(task, SXD_TASK_IDLE);
    task->class->end(task, end); /* may free it */
}

/* ---- may it run? ---- */
static bool first_of_class(const sxd_task *task)
{
    const sxd_task *other;
    DL_FOREACH(task->work->tasks, other)
    {
        if (other->class == task->class) {
            return other == task;
        }
    }
    SX_UNREACHABLE(); /* it is in the table itself */
}

bool sxd_work_waits(const sxd_work *work, uint32_t rank)
{
    const sxd_task *task;
    DL_FOREACH(work->tasks, task)
    {
        if (task->state == SXD_TASK_QUEUED && task->class->run == NULL &&
            task->class->rank <= rank) {
            return true;
        }
    }
    return false;
}

/* May it run now, if there is a worker? */
static bool may_run(const sxd_task *task)
{
    const sxd_work *work = task->work;
    const sxd_task_class *class = task->class;
    if (task->state != SXD_TASK_QUEUED || task->held) {
        return false;
    }
    if (class->run != NULL) {
        return work->base->phase != SXD_DOWN && (!class->serial || first_of_class(task));
    }
    return class->rank == 0 || !sxd_work_waits(work, class->rank - 1);
}

/* ---- on a pool thread ---- */
static void run_on_thread(uv_work_t *thread)
{
    sxd_task *task = thread->data;
    task->class->run(task);
}

static void on_thread_done(uv_work_t *thread, int status)
{
    sxd_task *task = thread->data;
    sxd_work *work = task->work;
    sxd_end end = {.kind = SXD_END_DONE};
    SX_ASSERT(status == 0); /* nobody cancels them */
    sxd_task_end(task, &end);
    sxd_work_run(work);
    sxd_base_wake(work->base); /* a drain may wait for this */
}

static void start_on_thread(sxd_task *task)
{
    task->start_ns = uv_hrtime();
    task->thread.data = task;
    move(task, SXD_TASK_RUNNING);
    int error =
        uv_queue_work(&task->work->base->loop, &task->thread, run_on_thread, on_thread_done);
    SX_ASSERT(error == 0);
}

/* ---- in a worker ---- */
static void on_expired(sxd_alarm *alarm)
{
    sxd_task *task = SXD_OWNER(sxd_task, alarm, alarm);
    sxd_worker *worker = task->worker;
    sxd_end end = {.kind = SXD_END_EXPIRED, .error = {.code = SX_TIMEOUT}};
    (void)snprintf(end.error.text, sizeof(end.error.text),
                   "stopped after %llu ms, the limit compile_ms",
                   (unsigned long long)task->limit_ms);
    worker->task = NULL;
    sxd_pool_kill(worker);
    sxd_task_end(task, &end);
}

static void start_in_worker(sxd_task *task, sxd_worker *worker)
{
    sx_buf frame = task->frame;
    sx_buf_init(&task->frame, SIZE_MAX);
    task->start_ns = uv_hrtime();
    task->worker = worker;
    worker->task = task;
    move(task, SXD_TASK_RUNNING);
    if (task->class->begin != NULL) {
        task->class->begin(task);
    }
    if (task->limit_ms > 0) {
        sxd_alarm_set(task->work->base, &task->alarm,
                      sxd_base_now(task->work->base) + task->limit_ms, on_expired);
    }
    sxd_pool_give(worker, &frame);
}

/* ---- the table ---- */
void sxd_task_put(sxd_task *task)
{
    sxd_work *work = task->work;
    SX_ASSERT(task->class->run != NULL || task->frame.len > 0);
    sxd_task *before = work->tasks != NULL ? work->tasks->prev : NULL;
    while (before != NULL && before->class->rank > task->class->rank) {
        before = before == work->tasks ? NULL : before->prev;
    }
    if (before == NULL) {
        DL_PREPEND(work->tasks, task);
    } else {
        DL_APPEND_ELEM(work->tasks, before, task);
    }
    move(task, SXD_TASK_QUEUED);
    if (task->class->run != NULL && may_run(task)) {
        start_on_thread(task);
    }
}

bool sxd_work_idle(const sxd_work *work)
{
    return work->tasks == NULL;
}

void sxd_work_run(sxd_work *work)
{
    SX_ASSERT(work->room != NULL);
    sxd_worker *worker = sxd_pool_idle(work);
    sxd_task *task;
    DL_FOREACH(work->tasks, task)
    {
        bool on_thread = task->class->run != NULL;
        if ((!on_thread && worker == NULL) || !may_run(task)) {
            continue;
        }
        if (on_thread) {
            start_on_thread(task);
        } else {
            start_in_worker(task, worker);
            worker = sxd_pool_idle(work);
        }
    }
    work->room(work->self);
}
