/* base.h - what all parts of the daemon share: the loop, the settings, the counters, and whether it is stopping.
 *
 * One thread, the loop thread, owns everything that is reached from here, unless a comment says otherwise. There
 * are no locks for it.
 */
#ifndef SX_DAEMON_BASE_BASE_H
#define SX_DAEMON_BASE_BASE_H
#include <uv.h>

#include "daemon/base/config.h"
#include "daemon/base/log.h"
#include "protocol/protocol.h"

/* The struct of `type` of which `pointer` is the field `field`. */
#define SXD_OWNER(type, field, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, field)))

/* The counters of metrics.def, and one for each method of the protocol. */
typedef struct {
#define SXD_METRIC(name, help) uint64_t name;
#include "daemon/base/metrics.def"
#undef SXD_METRIC
    uint64_t by_method[SX_METHOD_COUNT];
} sxd_metrics;

/* The daemon serves, or finishes what it has begun, or has closed everything and waits for the last callbacks. */
typedef enum { SXD_UP, SXD_DRAINING, SXD_DOWN } sxd_phase;

typedef struct sxd_alarm sxd_alarm; /* alarm.h */

typedef struct {
    uv_loop_t loop;
    sxd_config config;
    sxd_metrics metrics;
    sxd_phase phase;
    char boot_id[17]; /* another one after each start */
    /* Calls `soon` once, after the callbacks of this turn of the loop. Sessions are closed and requests taken
     * there, never in the middle of an answer. */
    uv_idle_t idle;
    void (*soon)(void *self);
    void *self;
    uv_timer_t clock;
    sxd_alarm *alarms;    /* those that are set, by time */
    uint8_t chunk[65536]; /* bytes that were just read; they are used up before the next read */
} sxd_base;

/* Opens the handles. The loop exists already. */
bool sxd_base_open(sxd_base *base, void (*soon)(void *self), void *self);
/* Closes them; nothing is set any more. */
void sxd_base_close(sxd_base *base);
/* Asks for one call of `soon`. It may be asked for several times. */
void sxd_base_wake(sxd_base *base);
/* The time in milliseconds at which this turn of the loop began. */
uint64_t sxd_base_now(const sxd_base *base);
#endif
