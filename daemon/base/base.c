#include "daemon/base/base.h"

static void on_idle(uv_idle_t *idle)
{
    sxd_base *base = idle->data;
    (void)uv_idle_stop(idle);
    base->soon(base->self);
}

bool sxd_base_open(sxd_base *base, void (*soon)(void *self), void *self)
{
    SX_ASSERT(soon != NULL && base->soon == NULL);
    base->soon = soon;
    base->self = self;
    bool fine = uv_idle_init(&base->loop, &base->idle) == 0 &&
                uv_timer_init(&base->loop, &base->clock) == 0;
    base->idle.data = base->clock.data = base;
    return fine;
}

void sxd_base_close(sxd_base *base)
{
    SX_ASSERT(base->phase == SXD_DOWN && base->alarms == NULL);
    uv_close((uv_handle_t *)&base->idle, NULL);
    uv_close((uv_handle_t *)&base->clock, NULL);
}

void sxd_base_wake(sxd_base *base)
{
    SX_ASSERT(base->soon != NULL);
    if (base->phase != SXD_DOWN) {
        (void)uv_idle_start(&base->idle, on_idle);
    }
}

uint64_t sxd_base_now(const sxd_base *base)
{
    return uv_now(&base->loop);
}
