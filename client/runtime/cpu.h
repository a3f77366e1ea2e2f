/* cpu.h - what this processor can run, and its floating point control register. x86-64 only; elsewhere nothing is supported. */
#ifndef SX_CLIENT_RUNTIME_CPU_H
#define SX_CLIENT_RUNTIME_CPU_H
#include <stdint.h>

#define SXR_MXCSR_DEFAULT 0x1F80u /* round to nearest even, no flush to zero, exceptions masked */

#if defined(__x86_64__)
/* Highest ISA level of modules: 4 AVX-512 (F, BW, DQ, VL), 3 AVX2 and FMA, 0 neither. */
static inline uint32_t sxr_cpu_isa(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return 4;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 3 : 0;
}
static inline uint32_t sxr_mxcsr_get(void)
{
    return __builtin_ia32_stmxcsr();
}
static inline void sxr_mxcsr_set(uint32_t value)
{
    __builtin_ia32_ldmxcsr(value);
}
static inline void sxr_pause(void)
{
    __builtin_ia32_pause();
}
#else
static inline uint32_t sxr_cpu_isa(void)
{
    return 0;
}
static inline uint32_t sxr_mxcsr_get(void)
{
    return SXR_MXCSR_DEFAULT;
}
static inline void sxr_mxcsr_set(uint32_t value)
{
    (void)value;
}
static inline void sxr_pause(void)
{
}
#endif
#endif
