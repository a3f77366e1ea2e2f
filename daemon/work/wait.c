#include "daemon/work/wait.h"

#include <utlist.h>

static void on_late(sxd_alarm *alarm)
{
    sxd_waiter *waiter = SXD_OWNER(sxd_waiter, alarm, alarm);
    const sxd_wait_class *class = waiter->of->class;
    sxd_wait_end(waiter);
    class->late(waiter);
}

void sxd_wait_begin(sxd_waiters *of, sxd_waiter *waiter, uint64_t until_ms)
{
    SX_ASSERT(waiter->of == NULL && of->class != NULL);
    waiter->of = of;
    DL_APPEND(of->first, waiter);
    of->count++;
    sxd_alarm_set(of->base, &waiter->alarm, until_ms, on_late);
}

void sxd_wait_end(sxd_waiter *waiter)
{
    sxd_waiters *of = waiter->of;
    SX_ASSERT(of != NULL && of->count > 0);
    sxd_alarm_stop(of->base, &waiter->alarm);
    DL_DELETE(of->first, waiter);
    of->count--;
    waiter->of = NULL;
}

void sxd_wait_leave(sxd_waiter *waiter)
{
    if (waiter->of != NULL) {
        const sxd_wait_class *class = waiter->of->class;
        sxd_wait_end(waiter);
        class->left(waiter);
    }
}

void sxd_wait_check(const sxd_waiters *of)
{
    uint32_t count = 0;
    const sxd_waiter *waiter;
    DL_FOREACH(of->first, waiter)
    {
        SX_ASSERT(waiter->of == of);
        count++;
    }
    SX_ASSERT(count == of->count);
}
