/* wait.h - calls, and whatever else, that wait until something changes, or their time is up, or they leave.
 */
#ifndef SX_DAEMON_WORK_WAIT_H
#define SX_DAEMON_WORK_WAIT_H
#include "daemon/base/alarm.h"

typedef struct sxd_waiter sxd_waiter;

/* What happens to one that waits. It does not wait any more when these are called.
 *
 *   late  Its time is up.
 *   left  It went away before. */
typedef struct {
    void (*late)(sxd_waiter *waiter);
    void (*left)(sxd_waiter *waiter);
} sxd_wait_class;

/* All that wait for the same, those that came first in front. */
typedef struct {
    sxd_base *base;
    const sxd_wait_class *class;
    sxd_waiter *first;
    uint32_t count;
} sxd_waiters;

/* A field of what waits. */
struct sxd_waiter {
    sxd_waiter *prev, *next;
    sxd_waiters *of; /* NULL: it waits for nothing */
    sxd_alarm alarm;
};

/* Waits until `until_ms`, loop time; UINT64_MAX: for ever. */
void sxd_wait_begin(sxd_waiters *of, sxd_waiter *waiter, uint64_t until_ms);
/* It is answered: it waits for nothing any more. */
void sxd_wait_end(sxd_waiter *waiter);
/* It goes away. Nothing happens if it waits for nothing. */
void sxd_wait_leave(sxd_waiter *waiter);
/* Asserts that the list and its waiters agree. */
void sxd_wait_check(const sxd_waiters *of);
#endif
