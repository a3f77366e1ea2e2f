/* service.h - the methods of the protocol: what the daemon does for those who ask.
 *
 *   service.c  from a call to its method; opening and closing; the clock of the cache
 *   call.c     methods that only look
 *   compile.c  from a request to its key, a hit or a job
 *   library.c  stored e-graphs of programs that may equal the one asked for
 *   queue.c    compilations under way and who waits for them      jobs.c   their table
 *   artefact.h bytes that are kept for caches of others, and who makes them
 *   gang.h     sessions: the ranks of a job use the same modules
 *   search.h   optimisations of minutes or hours, in steps
 */
#ifndef SX_DAEMON_SERVICE_SERVICE_H
#define SX_DAEMON_SERVICE_SERVICE_H
#include "daemon/net/net.h"
#include "daemon/work/work.h"

/* Of tasks in workers: compilations come first. */
enum { SXD_RANK_COMPILE = 0, SXD_RANK_STEP = 1 };

typedef struct sxd_service sxd_service;
typedef struct sxd_job sxd_job;
typedef struct sxd_search sxd_search; /* search.h */
typedef struct sxd_search_lane sxd_search_lane;
typedef struct sxd_artefacts sxd_artefacts; /* artefact.h */
typedef struct sxd_gang sxd_gang;           /* gang.h */

/* What a pool thread made of a request: the key, and the program as it was read, which lies in `cx`. */
typedef struct {
    sx_ctx cx;
    sxd_key key;
} sxd_reading;
/* NULL is allowed. */
void sxd_reading_free(SX_TAKE sxd_reading *reading);

/* What the service keeps of a call until it is answered; call->self. */
typedef struct {
    sxd_call *call;
    sxd_waiter waiter; /* it waits for `job` or `search` */
    sxd_job *job;
    sxd_search *search;
    uint64_t hold_ms; /* loop time at which "still running" is answered; UINT64_MAX: never */
    sxd_key key;
    int64_t seen_seq;        /* the newest event that the client has */
    struct sxd_lease *lease; /* for which it waits; artefact.h */
    sxd_gang *gang;          /* for whose ranks it waits; gang.h */
    int64_t claim_ms;        /* it would take the lease over for so long; 0: it would not */
    uint64_t since_ms;       /* loop time at which it began to wait for it */
    bool coalesced;
} sxd_ask;

/* Kinds of cache entries. Those of modules have the version of the module format in them, so that entries of
 * older versions are known and removed; the first two versions had the kinds 1 and 2. */
#define SXD_KINDS_OF_VERSION 10u
enum {
    SXD_KIND_EGRAPH = 3,
    SXD_KIND_ARTEFACT = 1 << 30, /* and above: artefacts, a kind for each cache; artefact.h */
    SXD_KIND_MODULE = 1 + SXD_KINDS_OF_VERSION * SX_MODULE_VERSION,
    SXD_KIND_TEXT = 2 + SXD_KINDS_OF_VERSION * SX_MODULE_VERSION /* answers to optimize */
};

/* The namespace of the artefacts of a user is the uid with this bit; so they have a quota of their own. */
#define SXD_ARTEFACT_SPACE UINT32_C(0x80000000)

/* ---- stored e-graphs of programs, or of parts, that may equal what is asked for ---- */
#define SXD_LIBRARY_WAYS SX_CORE_WAYS
/* A stored e-graph that goes with the job. The worker finds out whether its program really is equal. */
typedef struct {
    uint32_t place; /* for which of sxd_library.place it is */
    uint32_t way;   /* which entry of that family it is */
    sx_key key;     /* its name in reports: the key of its module, or, for a part, of its entry */
} sxd_candidate;
/* Where the e-graphs of one program and of its parts lie, and what was found there. */
typedef struct {
    bool wanted; /* e-graphs are kept, and the places are known */
    sx_core_place place[SX_CORE_PLACES_MAX];
    uint32_t place_count;
    /* For each place the set of 1 << way of the entries that exist, also of those that were too large to go along. */
    uint32_t taken[SX_CORE_PLACES_MAX];
    sxd_candidate candidate[SX_CORE_CANDIDATES_MAX];
    uint32_t candidate_count;
} sxd_library;
/* The same with the bytes, which are needed until the request for the worker is encoded. */
typedef struct {
    sxd_library library;
    sx_blob *egraph[SX_CORE_CANDIDATES_MAX];
    sx_blob *module[SX_CORE_CANDIDATES_MAX]; /* NULL: it is not in the cache, or of a part */
} sxd_candidates;

/* ---- one compilation, with everybody who asked for it ---- */
#define SXD_EVENT_MAX 64 /* events that a job remembers */
#define SXD_STAGE_TEXT_MAX 32
/* A worker told how far it is. */
typedef struct {
    int64_t seq;         /* 1, 2, ... within the job */
    int64_t at_ms;       /* since the job was made */
    int64_t done, total; /* as the stage counts */
    char stage[SXD_STAGE_TEXT_MAX];
} sxd_event;

typedef enum {
    SXD_JOB_QUEUED,  /* it waits for a worker, or for a job of a program like its own */
    SXD_JOB_RUNNING, /* a worker has it */
    SXD_JOB_DONE,
    SXD_JOB_FAILED,
    SXD_JOB_CANCELLED, /* by a call, by a deadline, because nobody waits, or because the daemon stops */
    SXD_JOB_STATE_COUNT
} sxd_job_state;

struct sxd_job {
    sxd_job *prev, *next; /* service->jobs, oldest first */
    sxd_service *service;
    sxd_waiters waiters; /* calls */
    sxd_task task;       /* QUEUED and RUNNING; its frame is the request for the worker */
    int64_t id;
    sxd_job_state state;
    sx_method method; /* COMPILE or OPTIMIZE */
    sx_key key;       /* of the compilation */
    sx_key slot;      /* where the result is stored: the key, or one derived for OPTIMIZE */
    uint32_t uid;     /* the space of the first caller, and of the entry in the cache */
    char target[SXD_STAGE_TEXT_MAX];
    sx_ctx cx;          /* owns the bytes of `made_of` and `rules` */
    sxd_key made_of;    /* the parts of the key, stored beside the entry */
    uint32_t coalesced; /* calls that found it under way */
    bool detached;      /* somebody knows its number and may come back: it lives without waiters */
    uint32_t askers;    /* that were told its number instead of a result, and have not left since */
    uint64_t born_ms;   /* loop time */
    uint64_t end_ms;    /* loop time at which its state became final */
    int64_t cost_us;    /* DONE: how long the worker took */
    sxd_library library;
    /* QUEUED: it waits for the end of the job of this number, whose program is like its own, because what that job
     * leaves may serve it. 0: it waits for nothing but a worker. */
    int64_t after;
    bool looking;    /* QUEUED: a pool thread looks at what that job left */
    bool met;        /* DONE: its program equals a stored one */
    sx_key met_key;  /* met: the key of the stored one */
    sx_span rules;   /* met: the rules by which they are equal */
    sx_blob *result; /* DONE */
    sx_error error;  /* FAILED, CANCELLED */
    /* A ring of the newest events: number k lies at (k - 1) % SXD_EVENT_MAX. */
    sxd_event event[SXD_EVENT_MAX];
    int64_t seq; /* of the newest event; 0: there is none */
};

/* ---- keys of requests that were seen before: a 4-way set-associative table, least recently used out ---- */
#define SXD_MEMO_SETS 1024
#define SXD_MEMO_WAYS 4
typedef struct {
    sx_key request; /* a digest of the request as it came */
    sx_key key;
    uint64_t used; /* memo_clock when it was used last; 0: the place is free */
} sxd_memo;

struct sxd_service {
    sxd_base *base;
    sxd_net *net;
    sxd_work *work;
    const sxd_backend *backend;
    void (*drain)(void *self, bool fast); /* begins to stop the daemon; may be called again */
    void *self;
    sx_cache *cache;
    sxd_artefacts *artefacts;
    sxd_gang *gangs; /* sessions of jobs, oldest first */
    uint32_t gang_count;
    int64_t next_gang;
    uint64_t gang_bytes; /* of all pinned modules */
    sx_trust_key key;    /* of the state directory: signs what workers verified */
    uv_timer_t cache_timer;
    uv_async_t cache_wake;
    uint64_t start_ms;
    sxd_job *jobs;         /* those under way and those that can still be asked for, oldest first */
    uint32_t active_count; /* jobs QUEUED and RUNNING */
    sxd_search *searches;  /* oldest first */
    uint32_t search_count;
    uint32_t search_starting;      /* calls that are about to make a search */
    uint32_t step_count;           /* lanes LOADING, LOADED and ACTIVE */
    int64_t search_turn;           /* the number of the search that got the last step */
    struct sxd_exchange *exchange; /* NULL: this daemon shares no steps */
    uv_async_t exchange_wake;
    bool exchange_up;       /* the server answers */
    uint32_t places_wanted; /* how many steps other daemons would take */
    sxd_search *guests;     /* its lanes hold steps of other daemons; NULL: none can come */
    /* Operations on search.db that failed for want of room, and are tried again. */
    struct sxd_op *op_retries;
    bool store_failing;                /* the last operation found no room, and the log says so */
    sx_cache_store_state cache_logged; /* the state of the cache's store that the log told last */
    /* Guards search_db: a pool thread holds it while an operation runs, and the loop to close the store. */
    uv_mutex_t search_lock;
    struct sx_search_db *search_db;       /* NULL: there is none */
    char search_error[SX_ERROR_TEXT_MAX]; /* why there is none */
    sxd_memo *memo;                       /* [SXD_MEMO_SETS * SXD_MEMO_WAYS] */
    uint64_t memo_clock;
    int64_t next_job;
};

static inline sxd_service *sxd_service_of(const sxd_call *call)
{
    return call->net->server.self;
}

static inline sxd_ask *sxd_ask_of(const sxd_call *call)
{
    return call->self;
}

/* The call whose ask waits there. */
static inline sxd_call *sxd_call_of(sxd_waiter *waiter)
{
    return SXD_OWNER(sxd_ask, waiter, waiter)->call;
}

/* ---- service.c ---- */
/* A task on a pool thread works with the call from now on: the call stays, even if its client goes. */
void sxd_call_pin(sxd_call *call);
/* That is over. False: the client is gone, and the call is freed. */
bool sxd_call_unpin(sxd_call *call);
/* Opens the cache, whose lock says that the state directory is ours, then everything that lies there. `base`, `net`,
 * `backend` and `drain` are set. What fails is not taken back: the process ends. */
sx_code sxd_service_open(sx_ctx *cx, sxd_service *service);
/* Takes calls from the net. */
sxd_server sxd_service_server(sxd_service *service);
/* There is room for more work: work->room. */
void sxd_service_room(void *self);
void sxd_service_sweep(sxd_service *service);
/* Is nothing under way that a stopping daemon waits for? */
bool sxd_service_quiet(const sxd_service *service);
/* Is nobody served, so that a daemon without clients may end? */
bool sxd_service_idle(const sxd_service *service);
/* The daemon drains: no step of a search begins any more. `fast`: what is under way is given up. */
void sxd_service_drain(sxd_service *service, bool fast);
/* Gives up everything that is under way; the callers are told `why`. */
void sxd_service_halt(sxd_service *service, const char *why);
/* After sxd_service_halt and the phase SXD_DOWN. Commits what is staged and gives the lock back. */
void sxd_service_close(sxd_service *service);
/* After the last callback of the loop: pool threads may have worked until then. */
void sxd_service_fini(sxd_service *service);
/* Notes that work under `key`, a compilation or a step of a search, killed a worker; `signature` says how. This is
 * the one place where strikes are counted. Returns how many the key has now; 0: there was no memory to note it. */
uint32_t sxd_service_strike(sxd_service *service, const sx_key *key, const char *signature);
/* Lets the cache hand its batch to the writer, if it is time; to be called after puts. */
void sxd_service_tick_cache(sxd_service *service);
/* The same before long; to be called after hits, whose times of use are written, too. */
void sxd_service_touch_cache(sxd_service *service);

/* ---- call.c ---- */
/* Calls the function that serves the method, if the principal may call it. */
void sxd_call_dispatch(SX_TAKE sxd_call *call);

/* ---- compile.c: from a request to its key, a hit or a job ---- */
/* The methods compile and optimize, and get. */
void sxd_compile(SX_TAKE sxd_call *call);
void sxd_get(SX_TAKE sxd_call *call);
/* The end of a miss: joins a job or starts one. `candidates` as in sxd_job_new. */
void sxd_compile_start(SX_TAKE sxd_call *call, const sxd_candidates *candidates);

/* ---- library.c: e-graphs of stored programs ---- */
/* Finds where such programs are kept (on a pool thread) and goes on with sxd_compile_start. */
void sxd_library_look(SX_TAKE sxd_call *call, SX_TAKE sxd_reading *reading);
/* `job` has ended. If it is DONE, those that wait for it look for what it left; else one of them goes first and the
 * others wait for that one. */
void sxd_library_release(sxd_job *job);
/* Takes over what a worker said and left: counts and logs it, and puts e-graphs into the cache. */
void sxd_library_keep(sxd_job *job, const sx_work_result *result);

/* ---- queue.c: jobs under way and who waits for them ---- */
/* The methods wait, cancel and jobs. */
void sxd_wait(SX_TAKE sxd_call *call);
void sxd_cancel(SX_TAKE sxd_call *call);
void sxd_jobs(SX_TAKE sxd_call *call);
/* Holds the call until the job ends, or hold_ms of the ask or the deadline of the call is reached. */
void sxd_queue_hold(sxd_job *job, SX_TAKE sxd_call *call);
/* Somebody is told the number of the job in place of its result: it lives until it ends or all of them left. */
void sxd_job_keep(sxd_job *job);
/* Forgets jobs that ended long ago. */
void sxd_queue_sweep(sxd_service *service);
/* Cancels all jobs under way. */
void sxd_queue_stop(sxd_service *service, const char *why);
/* The job failed, and everybody who waits for it hears why. It may be freed. */
void sxd_job_fail(sxd_job *job, const sx_error *error);
extern const sxd_task_class sxd_job_class;
extern const sxd_wait_class sxd_job_waited;

/* ---- jobs.c: the table ---- */
const char *sxd_job_state_name(sxd_job_state state);
/* Makes a job of a call, and its task, which is put into the table. Its request for the worker, and the parts of the
 * key, are copies. `candidates` NULL: there are none, and no e-graph is wanted. Returns NULL if there is no memory. */
sxd_job *sxd_job_new(sxd_service *service, sxd_call *call, const sx_key *slot,
                     const sxd_candidates *candidates);
/* Writes the request for the worker anew, with other candidates. A failure stays in job->task.frame. */
void sxd_job_encode(sxd_job *job, const sx_compile_args *args, const sxd_candidates *candidates);
/* It may be given to a worker, unless it waits for another job. */
void sxd_job_ready(sxd_job *job);
void sxd_job_free(SX_TAKE sxd_job *job);
void sxd_job_move(sxd_job *job, sxd_job_state to);
/* Asserts that state, task, waiters and result agree. */
void sxd_job_check(const sxd_job *job);
/* NULL: there is none. The second one finds the job under way that makes this entry. */
sxd_job *sxd_job_find(sxd_service *service, int64_t id);
sxd_job *sxd_job_find_active(sxd_service *service, const sx_key *slot, uint32_t uid);
#endif
