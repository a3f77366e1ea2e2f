/* result.h - what comes of assembling: the code, its record, what the assembler said and what is wrong with it. */
#ifndef SX_CLIENT_ASSEMBLE_RESULT_H
#define SX_CLIENT_ASSEMBLE_RESULT_H
#include "client/assemble/toolkit.h"
#include "core/ptx/cubin.h"

#define SXA_PTX_BYTES_MAX ((size_t)64 << 20)
#define SXA_LOG_BYTES_MAX ((size_t)1 << 20)

/* What an assembler says of code that it made (advisories.def), and what the record says that must not be. */
typedef enum { SXA_NOTE, SXA_FAILURE } sxa_severity;
typedef struct {
    sxa_severity severity;
    char name[16]; /* "C7504", or "spill", "local", "barriers": those are read from the record */
    sx_span text;  /* one line, in cx's arena or in the log */
} sxa_finding;

typedef struct {
    sxa_tool tool;
    sx_span cubin, log;
    const sx_cubin *record;
    const sxa_finding *finding; /* failures first */
    uint32_t finding_count, failure_count;
} sxa_result;

/* SX_COMPILE where the result has failures, with all of them: such code is right and slow, and better refused than
 * found out later. */
sx_code sxa_refuse(sx_ctx *cx, const sxa_result *result);
#endif
