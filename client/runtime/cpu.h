/* cpu.h - the processor at hand: whose code it executes, and its floating point control register. This is the
 * one place that asks the processor. x86-64 only; elsewhere nothing is executed. */
#ifndef SX_CLIENT_RUNTIME_CPU_H
#define SX_CLIENT_RUNTIME_CPU_H
#include "core/target/machine.h"

#define SXR_MXCSR_DEFAULT 0x1F80u /* round to nearest even, no flush to zero, exceptions masked */

/* The machine of core/target with the most instructions among those whose code this processor executes; NULL: it
 * executes none.
 * The environment variable SYMPLEX_ISA_MAX hides the machines above the one that it names; a name that no machine
 * has hides all. Client, daemon and tests ask here alone, so that they behave as on a processor without these
 * instructions. */
const sx_machine *sxr_cpu_machine(void);
/* Does this processor execute code that was made for this machine? */
bool sxr_cpu_executes(const sx_machine *machine);
/* A word without spaces for the kind of this machine: vendor, family, model and stepping of the processor, how many
 * there are, and a number of the models of its NVIDIA cards, if it has some. What was measured on machines with another
 * word says nothing of this one. */
#define SXR_IDENTITY_MAX 64
void sxr_identity(char word[SXR_IDENTITY_MAX]);
/* Does this whole machine execute it? Code for a GPU is executed where there is one with a driver (device.c). */
bool sxr_machine_executes(const sx_machine *machine);
/* Code of a function without arguments that returns 42, to see whether memory can be made executable; empty
 * where no code is known. */
sx_span sxr_cpu_answer(void);

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
