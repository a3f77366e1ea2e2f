#include "client/runtime/cpu.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Conversions of f16; clang's builtin does not know the name. */
static bool has_f16c(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_instructions(const sx_machine *machine)
{
    if (!has_f16c()) {
        return false;
    }
    if (machine == &sx_machine_x86_64_v4) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    return machine == &sx_machine_x86_64_v3 && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}
static const uint8_t answer[] = {0xb8, 0x2a, 0x00, 0x00, 0x00, 0xc3}; /* mov eax, 42; ret */
#else
static bool has_instructions(const sx_machine *machine)
{
    (void)machine;
    return false;
}
static const uint8_t answer[] = {0};
#endif

const sx_machine *sxr_cpu_machine(void)
{
    const char *limit = getenv("SYMPLEX_ISA_MAX");
    const sx_machine *most = limit != NULL ? sx_machine_find(NULL, limit) : NULL;
    const sx_machines *all = sx_machines_all();
    const sx_machine *best = NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const sx_machine *row = all->row[i];
        bool hidden = limit != NULL && (most == NULL || !sx_machine_executes(most, row));
        bool better = best == NULL || row->level > best->level;
        best = !hidden && better && has_instructions(row) ? row : best;
    }
    return best;
}

bool sxr_cpu_executes(const sx_machine *machine)
{
    const sx_machine *here = sxr_cpu_machine();
    return here != NULL && sx_machine_executes(here, machine);
}

sx_span sxr_cpu_answer(void)
{
    return (sx_span){answer, sizeof(answer) > 1 ? sizeof(answer) : 0};
}
