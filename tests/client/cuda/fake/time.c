#include "tests/client/cuda/fake/time.h"

#include <stdlib.h>
#include <string.h>

static struct {
    uint64_t state;
    uint32_t busy; /* launches that are ten times as slow from now on */
} noise;

static uint32_t next(void)
{
    noise.state = noise.state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(noise.state >> 33);
}

float fake_time(const char *settings, uint32_t blocks)
{
    const char *jitter = settings != NULL ? strstr(settings, "jitter=") : NULL;
    if (jitter == NULL) {
        return 0.002F;
    }
    if (noise.state == 0) {
        noise.state = strtoull(jitter + strlen("jitter="), NULL, 10) * 2 + 1;
    }
    noise.busy = noise.busy > 0 ? noise.busy - 1 : next() % 16 == 0 ? next() % 8 : 0;
    float work = 0.002F * (float)(strstr(settings, "alike=1") != NULL ? 1 : blocks);
    float share = (float)(next() % 1000) / 1000;
    return work * (1 + share) * (noise.busy > 0 ? 10 : 1);
}
