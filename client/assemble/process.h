/* process.h - an assembler in a process of its own, which may die without whoever asks it.
 *
 * nvJitLink crashes on some texts, and what it needs of memory and time is its own. So a worker starts a process
 * before it gives up the right to start any, and gives it texts over a socket, one after the other. When that
 * process is dead, all that is asked of it fails, by name; the worker goes on.
 */
#ifndef SX_CLIENT_ASSEMBLE_PROCESS_H
#define SX_CLIENT_ASSEMBLE_PROCESS_H
#include "client/assemble/assemble.h"

/* The library becomes part of this process, which may then use it where files can no longer be opened. Nothing is done
 * for a program.
 *   errors   SX_SYSTEM it cannot be loaded, with the loader's words */
sx_code sxa_preload(sx_ctx *cx, const sxa_identity *identity);

typedef struct {
    sxa_identity identity;
    int fd; /* -1: it is not there, or has died */
} sxa_process;

/* Starts it. The new process calls `confine`, if there is one, with the descriptor that it serves, and ends with
 * this process.
 *   errors   SX_SYSTEM */
sx_code sxa_process_start(sx_ctx *cx, const sxa_identity *identity,
                          void (*confine)(const void *self, int *fd), const void *self,
                          sxa_process *process);
/* Closes the connection, by which the process ends. */
void sxa_process_end(sxa_process *process);

/* As sxa_assemble, by that process.
 *   errors   SX_WORKER it has died of this text, or of one before; SX_TIMEOUT it does not answer, and is given up;
 *            SX_LIMIT the code has failures (sxa_refuse): it is right, but should not be run; SX_COMPILE the
 *            assembler refuses the text */
sx_code sxa_process_assemble(sx_ctx *cx, sxa_process *process, sx_span ptx, const char *target,
                             sxa_result *result);
#endif
