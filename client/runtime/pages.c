#include "client/runtime/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define PAGE ((uintptr_t)4096)
#define HUGE_PAGE ((uintptr_t)2 << 20)

void sxr_pages_free(void *memory, size_t size)
{
    if (memory != NULL) {
        SX_ASSERT(size > 0);
        (void)munmap(memory, size);
    }
}

void *sxr_pages(size_t size)
{
    SX_ASSERT(size > 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *sxr_pages_kept(size_t size)
{
    SX_ASSERT(size > 0);
    if (size < HUGE_PAGE || size > SIZE_MAX - HUGE_PAGE - PAGE) {
        return sxr_pages(size);
    }
    uintptr_t whole = ((uintptr_t)size + PAGE - 1) & ~(PAGE - 1);
    uint8_t *memory = sxr_pages(whole + HUGE_PAGE);
    if (memory !=
        NULL) { /* what stands before the first whole huge page goes, and so much behind */
        uintptr_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
        sxr_pages_free(before > 0 ? memory : NULL, before);
        memory += before;
        sxr_pages_free(memory + whole, HUGE_PAGE - before);
        (void)madvise(memory, whole, MADV_HUGEPAGE);
    }
    return memory;
}

void sxr_pages_touch(void *memory, size_t size)
{
    SX_ASSERT(memory != NULL || size == 0);
    uintptr_t from = ((uintptr_t)memory + PAGE - 1) & ~(PAGE - 1);
    uintptr_t to = ((uintptr_t)memory + size) & ~(PAGE - 1);
    if (from < to) { /* a kernel before 5.14 refuses, and pages come one by one */
        (void)madvise((uint8_t *)memory + (from - (uintptr_t)memory), to - from,
                      MADV_POPULATE_WRITE);
    }
}

size_t sxr_pages_huge(void *memory, size_t size)
{
    unsigned char last = 0; /* of the first huge page: is it there? */
    if (size < HUGE_PAGE) {
        return 0;
    }
    SX_ASSERT((uintptr_t)memory % HUGE_PAGE == 0);
    volatile uint8_t *first = memory;
    uint8_t byte = *first;
    *first = byte;
    bool came =
        mincore((uint8_t *)memory + (HUGE_PAGE - PAGE), PAGE, &last) == 0 && (last & 1) != 0;
    return came ? size / HUGE_PAGE * HUGE_PAGE : 0;
}
