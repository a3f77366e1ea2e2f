#include "daemon/base/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static sxd_level highest = SXD_INFO; /* set by the loop thread only */

void sxd_log_set(sxd_level level)
{
    SX_ASSERT(level <= SXD_DEBUG);
    highest = level;
}

const char *sxd_quote(char out[SXD_QUOTE_MAX], sx_span text)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    out[n++] = '"';
    for (size_t i = 0; i < text.len && n + 6 < SXD_QUOTE_MAX; i++) {
        uint8_t byte = text.ptr[i];
        if (byte == '"' || byte == '\\') {
            out[n++] = '\\';
            out[n++] = (char)byte;
        } else if (byte < 0x20 || byte >= 0x7f) {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = digits[byte >> 4];
            out[n++] = digits[byte & 15];
        } else {
            out[n++] = (char)byte;
        }
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

void sxd_log(sxd_level level, const char *event, const char *format, ...)
{
    SX_ASSERT(level <= SXD_DEBUG && event != NULL);
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > highest) {
        return;
    }
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    char line[2048];
    size_t n = strftime(line, sizeof(line), "ts=%Y-%m-%dT%H:%M:%S", &utc);
    int more = snprintf(line + n, sizeof(line) - n, ".%03ldZ level=%s ev=%s ",
                        now.tv_nsec / 1000000, names[level], event);
    n += more > 0 ? (size_t)more : 0;
    va_list arguments;
    va_start(arguments, format);
    more = vsnprintf(line + n, sizeof(line) - n - 1, format, arguments);
    va_end(arguments);
    n += more > 0 ? (size_t)more : 0;
    if (n > sizeof(line) - 2) {
        n = sizeof(line) - 2;
    }
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, n); /* one call, so that lines stay whole */
    (void)written;
}
