#include "client/runtime/cpu.h"

#include <stdlib.h>
#include <string.h>

static uint32_t level_of_processor(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return 4;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 3 : 0;
#else
    return 0;
#endif
}

uint32_t sxr_cpu_isa(void)
{
    const char *limit = getenv("SYMPLEX_ISA_MAX");
    uint32_t most = limit == NULL || strcmp(limit, "x86-64-v4") == 0 ? 4
                    : strcmp(limit, "x86-64-v3") == 0                ? 3
                                                                     : 0;
    uint32_t level = level_of_processor();
    return level < most ? level : most;
}
