/* search.h - searches: optimizations of minutes or hours in steps of seconds, one step of one lane at a time
 * in a worker.
 *
 *   search_table.c  the table
 *   search.c        which lane is next, and the end of a step
 *   search_call.c   the methods of the protocol
 *   search_wait.c   rows, and calls that wait
 *   search_store.c  operations on search.db, one at a time on pool threads
 *   spread.c        steps offered to other daemons and taken from them
 *   exchange.c      the thread that talks to Redis for it
 *
 * A lane of a search is one of several ways of searching that go on side by side (core/core.h). It goes
 * through these phases:
 *
 *   READY     its next step may begin
 *   LOADING   its state is read from search.db, and the request for the worker is encoded
 *   LOADED    it waits for a worker
 *   ACTIVE    a worker of this daemon does the step
 *   AWAY      instead of that, the step is offered to other daemons, and perhaps leased by one
 *   STORING   the result is written
 *
 * and is then READY again, or ENDED. Only what is stored counts: until the next row is committed, a lane is as
 * its row in search.db says.
 */
#ifndef SX_DAEMON_SERVICE_SEARCH_H
#define SX_DAEMON_SERVICE_SEARCH_H
#include "cache/search_db.h"
#include "daemon/service/exchange.h"
#include "daemon/service/service.h"

typedef struct sxd_op sxd_op;

/* The numbers are in the store. */
typedef enum {
    SXD_SEARCH_RUNNING = 1,
    SXD_SEARCH_DONE = 2,      /* every lane ended */
    SXD_SEARCH_SPENT = 3,     /* the budget is used up */
    SXD_SEARCH_CANCELLED = 4, /* by a call */
    SXD_SEARCH_FAILED = 5,    /* nothing can be found, or its row is damaged */
} sxd_search_state;
typedef enum {
    SXD_SEARCH_LANE_OPEN = 1,
    SXD_SEARCH_LANE_DONE = 2,
    SXD_SEARCH_LANE_OUT = 3
} sxd_search_lane_fate;
typedef enum {
    SXD_SEARCH_LANE_READY,
    SXD_SEARCH_LANE_LOADING,
    SXD_SEARCH_LANE_LOADED, /* waits for a worker */
    SXD_SEARCH_LANE_ACTIVE,
    SXD_SEARCH_LANE_AWAY,
    SXD_SEARCH_LANE_STORING,
    SXD_SEARCH_LANE_ENDED,
    SXD_SEARCH_LANE_PHASE_COUNT
} sxd_search_lane_phase;

struct sxd_search_lane {
    sxd_search *search;
    sx_search_lane_record row; /* as it is stored */
    sxd_search_lane_phase phase;
    sxd_task task;                  /* LOADED and ACTIVE: the step */
    char stage[SXD_STAGE_TEXT_MAX]; /* ACTIVE: the stage that its worker told last */
    sxd_op *storing;                /* STORING: the operation that writes the result */
    char task_name[SXD_NAME_MAX];   /* AWAY, or a guest: what the step is called in the exchange */
    char who[SXD_NAME_MAX];         /* AWAY: the daemon that works on it; empty: none yet */
    uint64_t away_ms;               /* AWAY: the loop time since which nobody works on it */
    bool guest;                     /* of service->guests: it holds a step of another daemon */
    bool offering;                  /* LOADING, to be offered to other daemons */
    bool home; /* a step of it failed elsewhere, so it is not offered any more */
};

struct sxd_search {
    sxd_search *prev, *next; /* service->searches, oldest first */
    sxd_service *service;
    sx_search_record row;    /* as it is stored; row.request belongs to the search */
    sx_ctx cx;               /* owns the decoded request */
    sx_compile_args request; /* borrows from row.request */
    char objective[SXD_STAGE_TEXT_MAX];
    char target[SXD_STAGE_TEXT_MAX];
    sxd_search_lane *lane; /* [lane_count], at most SX_SEARCH_LANES_MAX */
    uint32_t lane_count;
    uint32_t active;     /* lanes that somebody works on: ACTIVE, or AWAY with a holder */
    uint32_t ops;        /* operations on search.db that point here */
    uint64_t mark_ns;    /* active > 0: the time used is counted up to here */
    int64_t seq;         /* grows with each change that callers are told of */
    sxd_waiters waiters; /* calls */
    bool preparing;      /* its lanes are made anew, because it is of another build */
    bool removing;       /* its row is being deleted, and it is not shown any more */
};

/* One operation on search.db: `run` on a pool thread, then `done` on the loop. Operations are carried out one at a
 * time, in the order in which they were put. `done` finds the outcome in op->code and frees nothing. */
struct sxd_op {
    sxd_task task;
    sxd_op *prev, *next; /* service->op_retries */
    sxd_service *service;
    sxd_search *search;    /* NULL: it is not made yet */
    sxd_search_lane *lane; /* NULL: it is about the search alone */
    sxd_call *call;        /* the call that `done` answers, or NULL */
    void (*run)(sxd_op *op, sx_search_db *db);
    void (*done)(sxd_op *op);
    sx_ctx cx;
    sx_code code;
    sx_search_record row; /* of the search and of the lane, when the operation was made */
    sx_search_lane_record lane_row;
    sx_compile_args request;
    /* It failed for want of room: the loop time of the next try; 0: it does not wait for one. */
    uint64_t retry_ms;
    uint32_t tries;
    /* What of a lane is written beside its row. */
    bool put_state, put_best, drop_state;
    sx_blob *state, *best;
    sx_buf frame;   /* the request for a worker, or the encoded request of a new search */
    sx_span *names; /* [lane_count] */
    sx_search_lane_record *lanes; /* [lane_count] */
    bool front;                   /* the result is that of all lanes together */
    uint32_t lane_count;
    sxd_key key;
    uint32_t msgid; /* of the request in the frame */
};

/* ---- search_store.c ---- */
/* Opens search.db and takes over the searches that are in it. If it cannot, searches are refused with the reason, and
 * everything else works. */
void sxd_search_open(sxd_service *service);
/* Waits for the operation under way; the rest is dropped. */
void sxd_search_close(sxd_service *service);
/* Makes an operation with copies of the rows of `search` and `lane`, which may be NULL. NULL: no memory. */
sxd_op *sxd_op_new(sxd_search *search, sxd_search_lane *lane);
void sxd_op_put(sxd_service *service, SX_TAKE sxd_op *op);
/* Called by `done`: the operation is kept, and tried again after a pause. */
void sxd_op_retry(sxd_op *op);
/* Frees an operation that was not put, or that waits for its next try. */
void sxd_op_drop(SX_TAKE sxd_op *op);
/* Does it wait for its next try? */
bool sxd_op_waits(const sxd_op *op);
/* Puts the operations again whose pause is over. */
void sxd_op_sweep(sxd_service *service);

/* ---- search_table.c ---- */
const char *sxd_search_state_name(uint32_t state);
/* Makes a search of what is stored. NULL: no memory. A request that cannot be read makes a search that has failed. */
sxd_search *sxd_search_new(sxd_service *service, const sx_search_record *row,
                           const sx_search_lane_record *lane, uint32_t lane_count);
void sxd_search_free(SX_TAKE sxd_search *search);
/* NULL: there is none. */
sxd_search *sxd_search_find(sxd_service *service, int64_t id);
/* How many bytes of the store it takes. */
uint64_t sxd_search_bytes(const sxd_search *search);
/* How much of its budget is used. */
uint64_t sxd_search_used_us(const sxd_search *search);
/* The lane that has found the best program; NULL: none has found any. */
const sxd_search_lane *sxd_search_best(const sxd_search *search);

/* ---- search.c ---- */
/* If all its lanes have ended, or its budget is used up, it is stored as done, failed or spent. */
void sxd_search_settle(sxd_search *search);
/* Ends a search before its time. */
void sxd_search_stop(sxd_search *search, sxd_search_state state, const char *why);
/* It is RUNNING from now on. If it is of another build, its lanes are made anew. */
void sxd_search_begin(sxd_search *search);
/* Loads steps for workers that have nothing better to do. */
void sxd_search_fill(sxd_service *service);
void sxd_search_sweep(sxd_service *service);
/* The daemon ends: steps under way are given up. */
void sxd_search_stop_steps(sxd_service *service);
/* The daemon drains: steps that no worker has yet are given up. */
void sxd_search_drain(sxd_service *service);
/* The lane whose turn it is; NULL: none waits. */
sxd_search_lane *sxd_search_next(sxd_service *service);
/* How many workers could have a step now. */
uint32_t sxd_search_room(const sxd_service *service);
/* Loads the step of a lane and offers it to other daemons (sxd_spread_put). */
void sxd_search_offer(sxd_search_lane *lane);
/* Would the lane have, or be about to have, a worker of this daemon in that phase? */
bool sxd_search_lane_taken(const sxd_search_lane *lane, sxd_search_lane_phase phase);
/* Moves along the table of allowed phases, and asserts what has to hold in the new one. */
void sxd_search_lane_move(sxd_search_lane *lane, sxd_search_lane_phase to);
/* The lane gives up its step, wherever that is. */
void sxd_search_lane_let_go(sxd_search_lane *lane);
/* AWAY: `who` works on the step now; empty: nobody does. */
void sxd_search_lane_lease(sxd_search_lane *lane, const char *who);
/* AWAY: the step has come back. `result` NULL: it failed there. */
void sxd_step_returned(sxd_search_lane *lane, const sx_step_result *result, uint64_t worked_us);
/* How many searches are running. */
uint32_t sxd_search_running(const sxd_service *service);
extern const sxd_task_class sxd_step_class;

/* ---- spread.c ---- */
void sxd_spread_open(sxd_service *service);
void sxd_spread_close(sxd_service *service);
/* Offers what may go to other daemons, and tells them how much of theirs could come. */
void sxd_spread_run(sxd_service *service);
/* Offers the step of a LOADING lane, whose request for a worker is `frame`. */
void sxd_spread_put(sxd_search_lane *lane, SX_TAKE sx_buf *frame);
/* AWAY: the step is not wanted any more. */
void sxd_spread_withdraw(sxd_search_lane *lane);
/* A step of another daemon is given up. */
void sxd_spread_drop(sxd_search_lane *lane);
/* A step of another daemon is done: its owner gets the answer of the worker. */
void sxd_spread_answer(sxd_search_lane *lane, sx_span response, uint64_t worked_us);
/* A step of another daemon failed. */
void sxd_spread_fail(sxd_search_lane *lane, const sx_error *error, uint64_t worked_us);

/* ---- search_wait.c ---- */
/* Something changed: everybody who waits for the search is told. */
void sxd_search_changed(sxd_search *search);
extern const sxd_wait_class sxd_search_waited;
/* The methods search.list, search.show and search.wait. */
void sxd_search_list(SX_TAKE sxd_call *call);
void sxd_search_show(SX_TAKE sxd_call *call);
void sxd_search_wait(SX_TAKE sxd_call *call);
/* The search of this number, if the caller may see it. NULL: the call is answered. */
sxd_search *sxd_search_for(sxd_call *call, int64_t id);

/* ---- search_call.c ---- */
/* The methods that change searches, and the result. */
void sxd_search_start(SX_TAKE sxd_call *call);
void sxd_search_result(SX_TAKE sxd_call *call);
void sxd_search_cancel(SX_TAKE sxd_call *call);
void sxd_search_extend(SX_TAKE sxd_call *call);
void sxd_search_remove(SX_TAKE sxd_call *call);
#endif
