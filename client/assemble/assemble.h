/* assemble.h - PTX text to the machine code of one architecture, by an assembler of the CUDA toolkit.
 *
 * The toolkit is looked for when it is needed; nothing of it is linked. There are two assemblers in it:
 * nvJitLink, a library that is loaded into this process, and ptxas, a program. They give the same code, but that
 * nvJitLink drops `setmaxnreg`, because it compiles each text as if others were to be linked to it: where PTX
 * uses that, ptxas is taken.
 *
 * nvJitLink may crash on text that is not well formed, and on some that is. So whoever calls this is a process
 * that may die: `symplex-client worker`, or a worker of the daemon.
 */
#ifndef SX_CLIENT_ASSEMBLE_ASSEMBLE_H
#define SX_CLIENT_ASSEMBLE_ASSEMBLE_H
#include "client/assemble/result.h"

typedef struct {
    /* SXA_ANY: nvJitLink, but ptxas where the text uses setmaxnreg or there is no nvJitLink. */
    sxa_tool with;
    /* Folder of the toolkit; NULL: where sxa_find looks. */
    const char *toolkit;
    /* How long ptxas may take; 0: SXA_TIMEOUT_MS. nvJitLink cannot be stopped but with its process. */
    uint32_t timeout_ms;
} sxa_options;
#define SXA_TIMEOUT_MS 60000

/* Assembles `ptx` for `target`, such as "sm_90a". Several threads may do so at once.
 *   memory   result in cx's arena
 *   errors   SX_COMPILE what the assembler says, with each line of the text that it names; SX_ABSENT there is no
 *            assembler, with what to do; SX_INPUT no name of a target, no text; SX_TIMEOUT, SX_WORKER, SX_SYSTEM of
 *            ptxas */
sx_code sxa_assemble(sx_ctx *cx, sx_span ptx, const char *target, const sxa_options *options,
                     sxa_result *result);

/* Is "sm_90a" a name of a target: sm_, a number, perhaps 'a' or 'f'? Its number, or 0. */
uint32_t sxa_target_number(sx_span name);

/* A result as bytes, for another process; what follows from cubin and log is made again when it is read. */
void sxa_result_encode(const sxa_result *result, sx_buf *bytes);
sx_code sxa_result_decode(sx_ctx *cx, SX_KEEP sx_span bytes, sxa_result *result);
#endif
