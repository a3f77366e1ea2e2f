/* gang.h - sessions of jobs: the ranks of a job use the same modules.
 *
 * A gang is what the daemon knows of a job's session: who its ranks are (a connection each, which may end and come
 * back), the module that each key is pinned to (the first one that a rank brought), and the check under way. A check
 * has a number, its round; when all ranks have come to it with what they used, the lists are compared, and each rank
 * hears the same. The last verdict is kept, so that a rank whose connection ended meanwhile hears it, too.
 *
 * The word "session" is net's for a connection; on the wire and for users it means this.
 */
#ifndef SX_DAEMON_SERVICE_GANG_H
#define SX_DAEMON_SERVICE_GANG_H
#include "daemon/service/service.h"

#define SXD_GANG_JOB_MAX 256      /* bytes of the name of a job */
#define SXD_GANG_WORLD_MAX 4096   /* ranks */
#define SXD_GANG_PINS_MAX 65536   /* of one session */
#define SXD_GANG_ENTRIES_MAX 8192 /* modules that a rank tells in a check */
#define SXD_GANG_ROWS_MAX 64      /* differences, and missing ranks, that a check tells */

typedef enum {
    SXD_RANK_NEW,    /* it never came */
    SXD_RANK_OPEN,   /* it has a connection */
    SXD_RANK_GONE,   /* its connection ended */
    SXD_RANK_CLOSED, /* it left */
} sxd_rank_state;

typedef struct {
    sxd_rank_state state;
    uint64_t since_ms; /* loop time */
    uint64_t peer;     /* OPEN: its connection */
    int32_t pid;
    /* What it told for the round under way; NULL while it has not come. [count], by key. */
    sx_session_entry *entry;
    uint32_t count;
    bool arrived;
} sxd_rank;

typedef struct {
    sx_key key, digest;
    uint32_t rank; /* that brought it */
    sx_blob *blob; /* NULL: its bytes are not kept */
} sxd_pin;

struct sxd_gang {
    sxd_gang *prev, *next; /* service->gangs */
    sxd_service *service;
    int64_t id;
    uint32_t space;
    char job[SXD_GANG_JOB_MAX + 1];
    sxd_rank *rank; /* [world] */
    uint32_t world;
    sxd_pin *pin; /* by key */
    uint32_t pin_count, pin_capacity;
    uint64_t pin_bytes;
    int64_t round;       /* checks that have ended */
    uint32_t arrived;    /* ranks that have come to the next one */
    sxd_waiters waiters; /* their calls */
    uint64_t used_ms;    /* loop time of the last call */
    /* The verdict of the last check. */
    sx_session_difference difference[SXD_GANG_ROWS_MAX];
    uint32_t difference_count;
};

/* ---- gang.c: the table, ranks and pins ---- */
/* Sessions are numbered from here: from the time of day, so that numbers of an earlier start mean nothing. */
int64_t sxd_gang_first_id(void);
/* The methods. */
void sxd_gang_open(SX_TAKE sxd_call *call);
void sxd_gang_pin(SX_TAKE sxd_call *call);
void sxd_gang_leave(SX_TAKE sxd_call *call);
void sxd_gang_list(SX_TAKE sxd_call *call);
void sxd_gang_show(SX_TAKE sxd_call *call);
/* The session that a call names, of its user; NULL: the call is refused. */
sxd_gang *sxd_gang_of(sxd_call *call, int64_t id);
/* The same, and the rank is one of its, which has come and not left. */
sxd_gang *sxd_gang_of_rank(sxd_call *call, int64_t id, int64_t rank);
/* A connection is closed: its ranks are gone, and those that wait for them hear it. */
void sxd_gang_forget(sxd_service *service, uint64_t peer);
/* The daemon drains: nobody waits any more. */
void sxd_gang_drain(sxd_service *service);
/* Forgets sessions without open ranks that nobody came back to. */
void sxd_gang_sweep(sxd_service *service);
void sxd_gang_fini(sxd_service *service);
sx_session_rank_row sxd_gang_rank_row(const sxd_gang *gang, uint32_t rank);

/* ---- gang_check.c: have all used the same? ---- */
void sxd_gang_check(SX_TAKE sxd_call *call);
/* Those that wait hear which ranks are missing. */
void sxd_gang_tell_waiting(sxd_gang *gang);
extern const sxd_wait_class sxd_gang_waited;
#endif
