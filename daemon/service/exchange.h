/* exchange.h - steps of searches handed over between daemons through a Redis or Valkey server, by a thread of its own.
 *
 * The thread alone talks to the server (hiredis, blocking, with timeouts); the loop gives orders and takes
 * events, and never waits. Keys begin with symplex:1:<digest of the build>:, so that daemons of different
 * builds do not meet.
 *
 *   offers          a list of names; a daemon that takes a step pops one
 *   idle            a sorted set: the free places of daemons, by the time when they lapse
 *   task:<name>     the step, as long as its owner lives
 *   lease:<name>    the daemon that works on it (SET NX PX), renewed as long as it does
 *   result:<name>   the result
 *   done:<daemon>   a list of the names for which this daemon finds a result
 *
 * A name is <daemon>/<search>/<lane>/<step>. A name that nobody holds is pushed again. The lease only saves
 * work: a step done twice has the same bytes, and its owner takes the first result whose digest names the very
 * task that it offered. What comes from the server is hostile until checked: names by form, bytes by size and
 * digest, messages by the decoder.
 */
#ifndef SX_DAEMON_SERVICE_EXCHANGE_H
#define SX_DAEMON_SERVICE_EXCHANGE_H
#include "core/base/buf.h"
#include "core/base/hash.h"

#define SXD_NAME_MAX 96           /* of a task, NUL included */
#define SXD_EXCHANGE_HELD_MAX 64u /* offers, and steps of others, of one daemon */
#define SXD_EXCHANGE_BYTES_MAX ((size_t)300 << 20)

typedef struct sxd_exchange sxd_exchange;
typedef struct {
    const char *uri; /* unix:///path or tcp://host:port */
    const char *id;  /* the name of this daemon; it has another one after each start */
    const char *build;
    int64_t lease_ms;
    void (*wake)(void *self); /* called on the thread when there is an event */
    void *self;
} sxd_exchange_config;

/* What the loop asks of the thread. Each order carries the name of the step. */
typedef enum {
    SXD_ORDER_OFFER,    /* offer a step of ours; `body` is a message of method STEP */
    SXD_ORDER_WITHDRAW, /* take an offer back */
    SXD_ORDER_ANSWER,   /* hand in the result of a step of another daemon: `body`, `worked_us` */
    SXD_ORDER_DROP,     /* give up a step of another daemon */
} sxd_order_kind;
/* What the thread tells the loop. */
typedef enum {
    SXD_EVENT_UP,     /* the server answers */
    SXD_EVENT_DOWN,   /* it does not; offers and leases are forgotten */
    SXD_EVENT_WANTED, /* other daemons have `count` free places */
    SXD_EVENT_TAKEN, /* we have a step of another daemon: `name`, `ticket`, and the frame for a worker in `body` */
    SXD_EVENT_LEASED, /* the daemon `who` works on our step `name`; nobody does if `who` is empty */
    SXD_EVENT_RESULT, /* our step `name` has a result: `body`, `worked_us` */
    SXD_EVENT_GONE, /* the step `name` of another daemon is not wanted any more, or somebody else has it */
} sxd_exchange_kind;

/* An order or an event. The comments above say which fields are used. */
typedef struct sxd_parcel {
    struct sxd_parcel *prev, *next;
    int kind;
    char name[SXD_NAME_MAX];
    char who[SXD_NAME_MAX]; /* for SXD_EVENT_DOWN: why */
    uint32_t count;
    uint32_t ticket;
    uint64_t worked_us;
    sx_buf body;
} sxd_parcel;
void sxd_parcel_free(SX_TAKE sxd_parcel *parcel);
/* Returns NULL if there is no memory. `name` may be NULL. */
SX_GIVE(sxd_parcel_free) sxd_parcel *sxd_parcel_new(int kind, const char *name);

/* Carries out what was ordered, then ends the thread. NULL is allowed. */
void sxd_exchange_close(SX_TAKE sxd_exchange *exchange);
/* Starts the thread. It is not an error if the server does not answer; the thread tries again.
 *   errors   SX_INPUT an address of another form; SX_NOMEM; SX_SYSTEM */
sx_code sxd_exchange_open(sx_ctx *cx, const sxd_exchange_config *config, sxd_exchange **exchange);
void sxd_exchange_order(sxd_exchange *exchange, SX_TAKE sxd_parcel *order);
/* Takes the oldest event, which then belongs to the caller. NULL: there is none. */
sxd_parcel *sxd_exchange_event(sxd_exchange *exchange);
/* Says how many steps of other daemons this one would take now. */
void sxd_exchange_want(sxd_exchange *exchange, uint32_t count);
#endif
