/* tools.h - the two assemblers behind one signature (nvjitlink.c, ptxas.c), and what their logs say (findings.c). */
#ifndef SX_CLIENT_ASSEMBLE_TOOLS_H
#define SX_CLIENT_ASSEMBLE_TOOLS_H
#include "client/assemble/result.h"

/* What an assembler answered, in cx's arena. Refused: there is no cubin, the log says why. */
typedef struct {
    bool refused;
    sx_span cubin, log;
} sxa_output;

/* `ptx` ends with a NUL that is not counted. */
sx_code sxa_run_nvjitlink(sx_ctx *cx, const char *path, sx_span ptx, const char *target,
                          sxa_output *output);
sx_code sxa_run_ptxas(sx_ctx *cx, const char *path, sx_span ptx, const char *target,
                      uint32_t timeout_ms, sxa_output *output);

/* Fills in the findings of a result from its log and its record. */
sx_code sxa_find_advisories(sx_ctx *cx, sxa_result *result);
/* Fails with the errors of a log; shows the lines of the text that they name. */
sx_code sxa_fail_with_log(sx_ctx *cx, const char *tool, sx_span log, sx_span ptx);
#endif
