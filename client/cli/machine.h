/* machine.h - what this machine offers, found by trying: processor, memory, executable memory files, CUDA libraries. */
#ifndef SX_CLIENT_CLI_MACHINE_H
#define SX_CLIENT_CLI_MACHINE_H
#include "core/base/base.h"

#define SXC_FINDINGS_MAX 32
typedef struct {
    /* What was looked for; static storage. */
    const char *name;
    bool found;
    /* Nothing runs where it is missing. */
    bool needed;
    char detail[256];
} sxc_finding;
typedef struct {
    sxc_finding row[SXC_FINDINGS_MAX];
    uint32_t count;
} sxc_findings;

/* The next row; asserts that there is room. */
void sxc_finding_put(sxc_findings *findings, const char *name, bool found, bool needed,
                     const char *format, ...) SX_PRINTF(5, 6);

uint32_t sxc_cores(void);                        /* that this process may use */
void sxc_find_processor(sxc_findings *findings); /* model, target, cores */
void sxc_find_memory(sxc_findings *findings); /* bytes; executable memory files, by running one */
void sxc_find_libraries(sxc_findings *findings); /* versions of what this program is linked with */
/* Driver, devices, nvJitLink, NVRTC, NCCL by dlopen; where ptxas lies. No program is run. */
void sxc_find_cuda(sx_ctx *cx, sxc_findings *findings);
#endif
