/* interrupt.h - a signal that ends a program (Ctrl-C, TERM, a terminal that closes) ends what is under way first: a job
 * of the daemon that nobody else waits for, or a process of ours. */
#ifndef SX_CLIENT_CLI_INTERRUPT_H
#define SX_CLIENT_CLI_INTERRUPT_H
#include <signal.h>

#include "core/base/base.h"

#define SXC_INTERRUPTS 3u
typedef struct {
    struct sigaction before[SXC_INTERRUPTS];
} sxc_interrupt;

/* From here on a signal makes calls with cx fail with SX_CANCELLED. Signals that are ignored stay ignored. */
void sxc_interrupt_begin(sx_ctx *cx, sxc_interrupt *interrupt);
/* From here on it ends the program again. */
void sxc_interrupt_end(sx_ctx *cx, const sxc_interrupt *interrupt);
/* Did a signal come since the last begin? */
bool sxc_interrupted(void);
#endif
