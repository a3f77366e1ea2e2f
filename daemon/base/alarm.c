#include "daemon/base/alarm.h"

#include <utlist.h>

static void on_clock(uv_timer_t *clock);

/* The timer follows the first alarm. */
static void wind(sxd_base *base)
{
    if (base->alarms == NULL) {
        (void)uv_timer_stop(&base->clock);
        return;
    }
    uint64_t now = sxd_base_now(base);
    uint64_t at = base->alarms->at_ms;
    (void)uv_timer_start(&base->clock, on_clock, at > now ? at - now : 0, 0);
}

static void on_clock(uv_timer_t *clock)
{
    sxd_base *base = clock->data;
    uint64_t now = sxd_base_now(base);
    while (base->alarms != NULL && base->alarms->at_ms <= now) {
        sxd_alarm *alarm = base->alarms;
        void (*ring)(sxd_alarm *) = alarm->ring;
        DL_DELETE(base->alarms, alarm);
        alarm->ring = NULL;
        ring(alarm);
    }
    wind(base);
}

void sxd_alarm_set(sxd_base *base, sxd_alarm *alarm, uint64_t at_ms, void (*ring)(sxd_alarm *))
{
    SX_ASSERT(alarm->ring == NULL && ring != NULL);
    if (at_ms == UINT64_MAX) {
        return;
    }
    alarm->at_ms = at_ms;
    alarm->ring = ring;
    /* Most alarms are later than those that are set: the search begins at the end. */
    sxd_alarm *before = base->alarms != NULL ? base->alarms->prev : NULL;
    while (before != NULL && before->at_ms > at_ms) {
        before = before == base->alarms ? NULL : before->prev;
    }
    if (before == NULL) {
        DL_PREPEND(base->alarms, alarm);
        wind(base);
    } else {
        DL_APPEND_ELEM(base->alarms, before, alarm);
    }
}

void sxd_alarm_stop(sxd_base *base, sxd_alarm *alarm)
{
    if (alarm->ring == NULL) {
        return;
    }
    bool first = base->alarms == alarm;
    SX_ASSERT(base->alarms != NULL);
    DL_DELETE(base->alarms, alarm);
    alarm->ring = NULL;
    if (first) {
        wind(base);
    }
}

bool sxd_alarm_is_set(const sxd_alarm *alarm)
{
    return alarm->ring != NULL;
}
