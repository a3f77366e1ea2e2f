/* alarm.h - deadlines on the loop. One timer serves all of them, so that an alarm is a plain field of what it is
 * for: it needs no memory of its own and can be stopped at once.
 */
#ifndef SX_DAEMON_BASE_ALARM_H
#define SX_DAEMON_BASE_ALARM_H
#include "daemon/base/base.h"

struct sxd_alarm {
    sxd_alarm *prev, *next; /* of base->alarms, by time */
    uint64_t at_ms;         /* loop time */
    /* Called on the loop, once; the alarm is not set any more and may be freed or set again. NULL: it is not set. */
    void (*ring)(sxd_alarm *alarm);
};

/* Sets an alarm that is not set. Alarms of the same time ring in the order in which they were set. UINT64_MAX is
 * never: nothing is set. */
void sxd_alarm_set(sxd_base *base, sxd_alarm *alarm, uint64_t at_ms, void (*ring)(sxd_alarm *));
/* Does nothing if it is not set. */
void sxd_alarm_stop(sxd_base *base, sxd_alarm *alarm);
bool sxd_alarm_is_set(const sxd_alarm *alarm);
#endif
