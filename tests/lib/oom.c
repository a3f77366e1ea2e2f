#include "tests/lib/oom.h"

#include <errno.h>
#include <stddef.h>

/* One thread alone allocates in the programs that use this. */
static uint64_t counted, failing;
static bool armed;
static int64_t live;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

void sx_oom_arm(uint64_t at)
{
    counted = 0;
    failing = at;
    armed = true;
}

uint64_t sx_oom_disarm(void)
{
    armed = false;
    return counted;
}

int64_t sx_oom_live(void)
{
    return live;
}

static bool fails(void)
{
    bool now = armed && ++counted == failing;
    if (now) {
        errno = ENOMEM;
    }
    return now;
}

static void *taken(void *memory)
{
    live += memory != NULL ? 1 : 0;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : taken(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : taken(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (fails()) {
        return NULL;
    }
    void *moved = __real_realloc(memory, size);
    return memory == NULL ? taken(moved) : moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : taken(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *memory)
{
    live -= memory != NULL ? 1 : 0;
    __real_free(memory);
}
