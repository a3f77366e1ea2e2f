#include "client/cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

uint64_t sxc_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void sxc_progress_begin(sxc_progress *progress)
{
    uint64_t now = sxc_now_us();
    *progress = (sxc_progress){.terminal = isatty(STDERR_FILENO) != 0,
                               .start_us = now,
                               .next_us = now + SXC_PROGRESS_AFTER_MS * UINT64_C(1000)};
}

bool sxc_progress_due(const sxc_progress *progress)
{
    return progress->terminal && sxc_now_us() >= progress->next_us;
}

void sxc_progress_show(sxc_progress *progress, const char *format, ...)
{
    if (!sxc_progress_due(progress)) {
        return;
    }
    uint64_t now = sxc_now_us();
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "\r\033[K%s, %.1f s", text, (double)(now - progress->start_us) / 1e6);
    progress->shown = true;
    progress->next_us = now + SXC_PROGRESS_EVERY_MS * UINT64_C(1000);
}

void sxc_progress_end(sxc_progress *progress)
{
    if (progress->shown) {
        (void)fputs("\r\033[K", stderr);
    }
    progress->shown = false;
}
