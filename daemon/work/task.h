/* task.h - everything that takes long: compilations and steps of searches in worker processes, keys and look-ups on
 * pool threads. One table has them all, so that what a stopping daemon waits for, who is next and what became of it
 * is decided in one place.
 *
 *   IDLE     not in the table
 *   QUEUED   it waits for a worker, for a task of its class that must not run beside it, or to be released
 *   RUNNING  a worker or a pool thread has it
 */
#ifndef SX_DAEMON_WORK_TASK_H
#define SX_DAEMON_WORK_TASK_H
#include "daemon/base/alarm.h"

typedef struct sxd_task sxd_task;
typedef struct sxd_work sxd_work;
typedef struct sxd_worker sxd_worker;

typedef enum {
    SXD_TASK_IDLE,
    SXD_TASK_QUEUED,
    SXD_TASK_RUNNING,
    SXD_TASK_STATE_COUNT
} sxd_task_state;

/* How a task ended. */
typedef enum {
    SXD_END_DONE,
    SXD_END_FAILED,  /* the worker answered with an error, and lives */
    SXD_END_LOST,    /* the worker died */
    SXD_END_EXPIRED, /* it ran for longer than its limit; its worker was killed */
} sxd_end_kind;
typedef struct {
    sxd_end_kind kind;
    const void *result; /* DONE in a worker: the result of the class's method */
    sx_span message;    /* DONE, FAILED in a worker: the answer as it came */
    sx_error error;     /* FAILED, LOST, EXPIRED */
    const char *how;    /* LOST: "by signal 9", for a sentence about a worker that ended */
    int32_t pid;        /* LOST: of the worker */
    /* LOST: the worker ended by itself, so that the task is to blame. It is not if the parent of all workers died. */
    bool strike;
    uint64_t worked_us; /* since it began to run */
} sxd_end;

/* One kind of task.
 *
 *   run    On a pool thread. NULL: the task runs in a worker, which gets task->frame.
 *   begin  A worker has got it; may be NULL.
 *   event  The worker reports progress; may be NULL.
 *   end    It is IDLE again, and may be put again or freed. */
typedef struct {
    const char *name;
    sx_method method; /* in a worker: of the request in the frame */
    uint32_t rank;    /* in a worker: a task waits as long as one with a lower rank is QUEUED */
    bool serial; /* on a thread: one of this class at a time, in the order in which they were put */
    void (*run)(sxd_task *task);
    void (*begin)(sxd_task *task);
    void (*event)(sxd_task *task, const sx_event_row *row);
    void (*end)(sxd_task *task, const sxd_end *end);
} sxd_task_class;

/* A field of what the task is for. */
struct sxd_task {
    sxd_task *prev, *next; /* of work->tasks */
    sxd_work *work;
    const sxd_task_class *class;
    sxd_task_state state;
    bool held;          /* QUEUED: it is not given to a worker before it is released */
    uint32_t ticket;    /* in a worker: the id of the request in the frame */
    uint64_t limit_ms;  /* in a worker: how long it may run; 0: for ever */
    sx_buf frame;       /* in a worker: what is sent to it; used up when it begins to run */
    sxd_worker *worker; /* RUNNING in a worker */
    uint64_t start_ns;  /* RUNNING */
    sxd_alarm alarm;    /* RUNNING, with a limit */
    uv_work_t thread;
};

/* It is IDLE; it has no frame. */
void sxd_task_init(sxd_task *task, sxd_work *work, const sxd_task_class *class);
/* It is QUEUED. On a thread it runs as soon as it may; for a worker it waits for the next sxd_work_run. */
void sxd_task_put(sxd_task *task);
/* Gives the task up without calling `end`: it is taken off the queue, or its worker is killed. A task on a thread
 * cannot be given up. Nothing happens if it is IDLE. The frame is freed. */
void sxd_task_drop(sxd_task *task);

/* Gives workers as many tasks as it can, then calls work->room. It is to be called when a task for a worker was put or
 * released, but not in the middle of a change of what the tasks are for. */
void sxd_work_run(sxd_work *work);
/* Does a task of this rank, or a lower one, wait for a worker? */
bool sxd_work_waits(const sxd_work *work, uint32_t rank);
/* Is the table empty? */
bool sxd_work_idle(const sxd_work *work);

/* ---- for pool.c ---- */
/* The task is in no worker any more. Its owner learns how it ended. */
void sxd_task_end(sxd_task *task, sxd_end *end);
#endif
