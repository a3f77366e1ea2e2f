#include "client/runtime/pages.h"

#include <sys/mman.h>

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
