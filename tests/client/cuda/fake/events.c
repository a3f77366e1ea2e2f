/* events.c - events of the driver of the tests, and fakeWaits, which asks what waits for what. */
#include "tests/client/cuda/fake/events.h"

#include <stdbool.h>
#include <stddef.h>

#include "tests/client/cuda/fake/driver.h"

#define EVENTS_MAX 64
#define WAITS_MAX 256

typedef struct {
    bool used, recorded;
    void *stream; /* that it was recorded on */
} fake_event;

static fake_event events[EVENTS_MAX];
static struct {
    void *stream, *on;
} waits[WAITS_MAX]; /* since fakeWaits forgot */
static size_t wait_count;

uint32_t fake_events(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        count += events[i].used ? 1 : 0;
    }
    return count;
}

API cuEventCreate(void **event, unsigned flags);
API cuEventCreate(void **event, unsigned flags)
{
    NOT_CAPTURED();
    size_t i = 0;
    ENTER(true);
    while (i < EVENTS_MAX && events[i].used) {
        i++;
    }
    if (i == EVENTS_MAX || (flags & ~2U) != 0) {
        fake_die("too many events, or flags of one");
    }
    events[i] = (fake_event){.used = true};
    *event = &events[i];
    return 0;
}

API cuEventDestroy_v2(void *event);
API cuEventDestroy_v2(void *event)
{
    NOT_CAPTURED();
    ((fake_event *)event)->used = false;
    return 0;
}

API cuEventRecord(void *event, void *stream);
API cuEventRecord(void *event, void *stream)
{
    NOT_CAPTURED();
    fake_event *e = event;
    ENTER(true);
    e->recorded = true;
    e->stream = stream;
    return 0;
}

/* Work is done at once, so nothing waits; who would is kept. */
API cuStreamWaitEvent(void *stream, void *event, unsigned flags);
API cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    NOT_CAPTURED();
    const fake_event *e = event;
    ENTER(true);
    if (flags != 0 || !e->used || !e->recorded) {
        fake_die("a wait for an event that was not recorded, or flags of one");
    }
    if (wait_count == WAITS_MAX) {
        fake_die("more waits than are kept: fakeWaits is to forget some");
    }
    waits[wait_count].stream = stream;
    waits[wait_count++].on = e->stream;
    return 0;
}

/* No function of CUDA: how often `stream` was told to wait for what is on `on`. With `forget` 1 all waits are forgotten
 * then. */
API fakeWaits(void *stream, void *on, int forget);
API fakeWaits(void *stream, void *on, int forget)
{
    int count = 0;
    for (size_t i = 0; i < wait_count; i++) {
        count += waits[i].stream == stream && waits[i].on == on ? 1 : 0;
    }
    wait_count = forget != 0 ? 0 : wait_count;
    return count;
}
