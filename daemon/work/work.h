/* work.h - what takes long, and the processes and threads that do it.
 *
 *   task.h     the table of tasks              wait.h     those that wait for something
 *   pool.c     workers as the daemon sees them   zygote.c   their parent process
 *   worker.c   their inside                    sandbox.c  what they may do
 *   backend.h  the compiler that runs in them
 */
#ifndef SX_DAEMON_WORK_WORK_H
#define SX_DAEMON_WORK_WORK_H
#include "daemon/work/backend.h"
#include "daemon/work/task.h"
#include "daemon/work/wait.h"
#include "protocol/protocol.h"

#define SXD_WORKER_MAX 64
typedef enum {
    SXD_WORKER_NONE,
    SXD_WORKER_STARTING,
    SXD_WORKER_IDLE,
    SXD_WORKER_BUSY,
    SXD_WORKER_DYING, /* killed, retired or found dead; its pipe and its exit status are waited for */
    SXD_WORKER_STATE_COUNT
} sxd_worker_state;

/* One worker process. */
struct sxd_worker {
    sxd_work *work;
    sxd_worker_state state;
    uint32_t slot;
    int32_t pid;
    uv_pipe_t pipe;
    bool pipe_open;
    bool exited; /* reaped, or its parent is gone */
    bool status_known;
    int status;        /* as from waitpid */
    uint64_t end_ms;   /* when it was reaped */
    uint64_t since_ms; /* of this state */
    bool expected;     /* we asked for its end: no strike */
    sx_sp_reader reader;
    sxd_task *task;    /* BUSY; DYING by itself: what it had */
    uint64_t busy_ms;  /* of its life */
    bool worn;         /* a process that it needs has died: it leaves */
    uint64_t jobs;     /* tasks of its life */
    uint64_t retry_ms; /* NONE: loop time before which no new start is tried */
    uint32_t failures; /* starts in a row that gave no answer to a task */
};

struct sxd_work {
    sxd_base *base;
    /* Called when all tasks that can run do: there may be room for more. */
    void (*room)(void *self);
    void *self;
    sxd_task *tasks; /* QUEUED and RUNNING, by rank, then in the order in which they were put */
    sxd_worker worker[SXD_WORKER_MAX];
    uint32_t worker_count;
    uv_poll_t zygote_poll;
    int zygote_fd;
    int32_t zygote_pid;
    uint64_t zygote_retry_ms;
};

/* Starts the zygote and the workers. `base` and `room` are set.
 *   errors   SX_SYSTEM */
sx_code sxd_work_open(sx_ctx *cx, sxd_work *work);
/* After the phase SXD_DOWN. No task is in a worker. */
void sxd_work_close(sxd_work *work);
/* Starts workers that are missing, and repeats orders that were not heard. */
void sxd_work_sweep(sxd_work *work);
/* Is at least one worker there, idle or busy? */
bool sxd_work_alive(const sxd_work *work);
const char *sxd_worker_state_name(sxd_worker_state state);

/* ---- pool.c, for task.c ---- */
sxd_worker *sxd_pool_idle(sxd_work *work); /* NULL: none */
/* Sends the frame of worker->task to it. */
void sxd_pool_give(sxd_worker *worker, SX_TAKE sx_buf *frame);
void sxd_pool_kill(sxd_worker *worker);

/* ---- zygote.c, sandbox.c ---- */
/* The process that is the parent of all workers. Returns its exit status. */
int sxd_zygote_main(const sxd_backend *backend, int64_t parent_pid);
bool sxd_sandbox_filters(void); /* do this build and this host filter system calls? */
bool sxd_sandbox_limits_memory(void);
#endif
