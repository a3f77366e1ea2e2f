/* cpu.h - what this processor can run, and its floating point control register. x86-64 only; elsewhere nothing
 * is supported. */
#ifndef SX_CLIENT_RUNTIME_CPU_H
#define SX_CLIENT_RUNTIME_CPU_H
#include <stdint.h>

#define SXR_MXCSR_DEFAULT 0x1F80u /* round to nearest even, no flush to zero, exceptions masked */

/* Highest ISA level of modules that run here: 4 AVX-512 (F, BW, DQ, VL), 3 AVX2 and FMA, 0 neither.
 * The environment variable SYMPLEX_ISA_MAX hides what is above the level that it names: "x86-64-v4",
 * "x86-64-v3", or anything else for none. Client, daemon and tests ask here alone, so that they behave as on a
 * processor without these instructions. */
uint32_t sxr_cpu_isa(void);

#if defined(__x86_64__)
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
