/* toolkit.h - where the assemblers of the CUDA toolkit lie on this machine.
 *
 * They are code that this user is about to run, so they are taken from where somebody said, and from places that
 * only the superuser writes to: a folder that was named, $CUDA_HOME, $CUDA_PATH, for the library what the system's
 * loader finds, and /usr/local/cuda. PATH is not looked at. A file counts only where nobody but this user and the
 * superuser can exchange it (trust/trust.h).
 */
#ifndef SX_CLIENT_ASSEMBLE_TOOLKIT_H
#define SX_CLIENT_ASSEMBLE_TOOLKIT_H
#include "core/base/buf.h"

typedef enum { SXA_ANY, SXA_NVJITLINK, SXA_PTXAS, SXA_TOOL_COUNT } sxa_tool;
const char *sxa_tool_name(sxa_tool tool);
/* SX_INPUT: no such name, with those that there are. */
sx_code sxa_tool_parse(sx_ctx *cx, sx_span name, sxa_tool *tool);

#define SXA_PATH_MAX 4096
typedef struct {
    bool found;
    /* A file; of the library perhaps only its name, for the system's loader. */
    char path[SXA_PATH_MAX];
    /* "13.0.88", of the library "13.0"; "" where it is not written down. Nothing is run to learn it. */
    char version[32];
    /* Where it was not found: places that were refused, and why; "" if there is none anywhere. */
    char refused[512];
} sxa_found;

/* Looks for nvJitLink or ptxas: below `folder` alone where one is named. */
void sxa_find(sx_ctx *cx, sxa_tool tool, const char *folder, sxa_found *found);
/* Which assembler is the one of this machine, known without loading or running anything. */
#define SXA_NAME_MAX 48
typedef struct {
    sxa_tool tool;
    char name[SXA_NAME_MAX]; /* "nvJitLink 13.0.88", "ptxas 13.0.88"; "": there is none */
    char path[SXA_PATH_MAX];
} sxa_identity;
/* nvJitLink as a file: $CUDA_HOME, $CUDA_PATH, /usr, /usr/local/cuda; else, with `programs`, ptxas. */
void sxa_identify(sx_ctx *cx, bool programs, sxa_identity *identity);

/* SX_ABSENT: `what` ("no ptxas"), where it was looked for, what was refused, and what to install. */
sx_code sxa_absent(sx_ctx *cx, const char *folder, const char *what, const char *refused);
#endif
