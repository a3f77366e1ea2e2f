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
typedef enum { SXD_LANE_OPEN = 1, SXD_LANE_DONE = 2, SXD_LANE_OUT = 3 } sxd_lane_fate;
typedef enum {
    SXD_LANE_READY,
    SXD_LANE_LOADING,
    SXD_LANE_LOADED, /* waits for a worker */
    SXD_LANE_ACTIVE,
    SXD_LANE_AWAY,
    SXD_LANE_STORING,
    SXD_LANE_ENDED,
    SXD_LANE_PHASE_COUNT
} sxd_lane_phase;

struct sxd_lane {
    sxd_search *search;
    sx_search_lane_record row; /* as stored */
    sxd_lane_phase phase;
    sxd_task task;                  /* LOADED and ACTIVE: the step */
    char stage[SXD_STAGE_TEXT_MAX]; /* ACTIVE: that its worker told last */
    sxd_op *storing;                /* STORING */
    char task_name[SXD_NAME_MAX];   /* AWAY; guest: what the step is called in the exchange */
    char who[SXD_NAME_MAX];         /* AWAY: the daemon that works on it; empty: nobody yet */
    uint64_t away_ms;               /* AWAY: loop time since which nobody does */
    bool guest;                     /* of daemon->guests: a step of another daemon */
    bool offering;                  /* LOADING for others */
    bool home;                      /* a step of it failed elsewhere: not offered any more */
};

struct sxd_search {
    sxd_search *prev, *next; /* daemon->searches, oldest first */
    sxd_service *service;
    sx_search_record row;    /* row.request is ours */
    sx_ctx cx;               /* request, decoded */
    sx_compile_args request; /* borrows from row.request */
    char objective[SXD_STAGE_TEXT_MAX];
    char target[SXD_STAGE_TEXT_MAX];
    sxd_lane *lane; /* [lane_count], at most SX_SEARCH_LANES_MAX */
    uint32_t lane_count;
    uint32_t active;  /* lanes LOADED to a worker: ACTIVE */
    uint32_t ops;     /* operations that point here */
    uint64_t mark_ns; /* active > 0: time is counted up to here */
    int64_t seq;
    sxd_waiters waiters; /* calls */
    bool preparing;      /* its lanes are read again: another build */
    bool removing;
};

/* One operation on the store: `run` on a pool thread, then `done` on the loop; in the order given. */
struct sxd_op {
    sxd_task task;       /* one at a time */
    sxd_op *prev, *next; /* service->op_retries */
    sxd_service *service;
    sxd_search *search; /* NULL: not made yet */
    sxd_lane *lane;
    sxd_call *call; /* answered by `done` */
    void (*run)(sxd_op *op, sx_search_db *db);
    void (*done)(sxd_op *op); /* op->code; frees nothing of op */
    sx_ctx cx;
    sx_code code;
    sx_search_record row;
    sx_search_lane_record lane_row;
    sx_compile_args request;
    uint64_t retry_ms; /* failed for want of room: loop time of the next try; 0: not waiting */
    uint32_t tries;
    bool put_state, put_best, drop_state;
    sx_blob *state, *best;
    sx_buf frame;
    sx_span *names;               /* [lane_count] */
    sx_search_lane_record *lanes; /* [lane_count] */
    bool front;                   /* the result is that of all lanes together */
    uint32_t lane_count;
    sxd_key key;
    uint32_t msgid;
};

/* ---- search_store.c ---- */
/* Opens search.db and takes over what is in it; without it (cx->error says why) searches are refused and all
 * else works. */
void sxd_search_open(sxd_service *service);
/* waits for the operation under way; the rest is dropped */
void sxd_search_close(sxd_service *service);
sxd_op *sxd_op_new(sxd_search *search, sxd_lane *lane); /* NULL: no memory */
void sxd_op_put(sxd_service *service, SX_TAKE sxd_op *op);
void sxd_op_retry(sxd_op *op);        /* from `done`: keep it, and try again after a pause */
void sxd_op_drop(SX_TAKE sxd_op *op); /* waits for its retry, or was not put */
bool sxd_op_waits(const sxd_op *op);
void sxd_op_sweep(sxd_service *service);

/* ---- search.c ---- */
const char *sxd_search_state_name(uint32_t state);
/* NULL: no memory. A request that cannot be read makes a search that has failed. */
sxd_search *sxd_search_new(sxd_service *service, const sx_search_record *row,
                           const sx_search_lane_record *lane, uint32_t lane_count);
void sxd_search_free(SX_TAKE sxd_search *search);
sxd_search *sxd_search_find(sxd_service *service, int64_t id);
uint64_t sxd_search_bytes(const sxd_search *search);
uint64_t sxd_search_used_us(const sxd_search *search);
const sxd_lane *sxd_search_best(const sxd_search *search); /* NULL: nothing found yet */
void sxd_search_settle(sxd_search *search); /* ended? spent? then says so, and stores it */
void sxd_search_stop(sxd_search *search, sxd_search_state state, const char *why);
/* RUNNING from now on; reads the lanes again if it is of another build */
void sxd_search_begin(sxd_search *search);
/* Loads steps for workers that have nothing better to do. */
void sxd_search_fill(sxd_service *service);
void sxd_search_sweep(sxd_service *service);
void sxd_search_stop_steps(
    sxd_service *service);                       /* the daemon ends: steps under way are given up */
void sxd_search_drain(sxd_service *service);     /* no more steps */
sxd_lane *sxd_search_next(sxd_service *service); /* the lane whose turn it is; NULL: none */
uint32_t sxd_search_room(const sxd_service *service); /* workers that could have a step now */
void sxd_search_offer(sxd_lane *lane);                /* load it, then sxd_spread_put */
/* Would it have, or be about to have, a worker of ours in that phase? */
bool sxd_lane_taken(const sxd_lane *lane, sxd_lane_phase phase);
void sxd_lane_move(sxd_lane *lane, sxd_lane_phase to);
void sxd_lane_let_go(sxd_lane *lane);                 /* gives up its step, wherever it is */
void sxd_lane_lease(sxd_lane *lane, const char *who); /* AWAY: who works on it; empty: nobody */
void sxd_step_returned(sxd_lane *lane, const sx_step_result *result, uint64_t worked_us);
uint32_t sxd_search_running(const sxd_service *service);
extern const sxd_task_class sxd_step_class;

/* ---- spread.c ---- */
void sxd_spread_open(sxd_service *service);
void sxd_spread_close(sxd_service *service);
void sxd_spread_run(sxd_service *service); /* offer what may go, say what could come */
void sxd_spread_put(sxd_lane *lane, SX_TAKE sx_buf *frame); /* LOADING for others: it is loaded */
void sxd_spread_withdraw(sxd_lane *lane);                   /* AWAY: it is not wanted any more */
void sxd_spread_drop(sxd_lane *lane);                       /* a guest is given up */
void sxd_spread_answer(sxd_lane *lane, sx_span response, uint64_t worked_us); /* a guest is done */
void sxd_spread_fail(sxd_lane *lane, const sx_error *error, uint64_t worked_us);

/* ---- search_wait.c ---- */
void sxd_search_changed(sxd_search *search); /* tells the waiters */
extern const sxd_wait_class sxd_search_waited;
void sxd_search_list(SX_TAKE sxd_call *call);
void sxd_search_show(SX_TAKE sxd_call *call);
void sxd_search_wait(SX_TAKE sxd_call *call);
sxd_search *sxd_search_for(sxd_call *call, int64_t id); /* NULL: the call is answered */

/* ---- search_call.c ---- */
void sxd_search_start(SX_TAKE sxd_call *call);
void sxd_search_result(SX_TAKE sxd_call *call);
void sxd_search_cancel(SX_TAKE sxd_call *call);
void sxd_search_extend(SX_TAKE sxd_call *call);
void sxd_search_remove(SX_TAKE sxd_call *call);
#endif
