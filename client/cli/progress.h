/* progress.h - one line on the error stream that is written over while work goes on: on a terminal only, and
 * only after 300 ms. */
#ifndef SX_CLIENT_CLI_PROGRESS_H
#define SX_CLIENT_CLI_PROGRESS_H
#include "core/base/base.h"

#define SXC_PROGRESS_AFTER_MS 300 /* what is done by then says nothing */
#define SXC_PROGRESS_EVERY_MS 100

uint64_t sxc_now_us(void); /* monotonic */

typedef struct {
    /* The error stream is a terminal. Nothing is ever shown elsewhere. */
    bool terminal;
    /* A line stands there now. */
    bool shown;
    /* When the work began, and when the next line is due. */
    uint64_t start_us, next_us;
} sxc_progress;

void sxc_progress_begin(sxc_progress *progress);
/* Is it time for a line? Then the caller makes its text and shows it. */
bool sxc_progress_due(const sxc_progress *progress);
/* Shows the text, and how long it has taken so far. */
void sxc_progress_show(sxc_progress *progress, const char *format, ...) SX_PRINTF(2, 3);
void sxc_progress_end(sxc_progress *progress); /* takes the line away */
#endif
