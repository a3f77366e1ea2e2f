/* cli.c - numbers, files, JSON and figures for the commands. */
#include "client/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sx_code sxc_parse_i64(sx_ctx *cx, const char *what, sx_span text, int64_t low, int64_t high,
                      int64_t *value)
{
    char copy[32];
    if (text.len > 0 && text.len < sizeof(copy)) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
        char *end;
        errno = 0;
        long long number = strtoll(copy, &end, 10);
        if (*end == '\0' && errno == 0 && number >= low && number <= high) {
            *value = number;
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_USAGE, "%s: '%.*s' is not a whole number from %lld to %lld", what,
                   (int)sx_min_i64((int64_t)text.len, 40), (const char *)text.ptr, (long long)low,
                   (long long)high);
}

sx_code sxc_number(const sxc_cli *cli, sxc_option option, int64_t low, int64_t high,
                   int64_t fallback, int64_t *value)
{
    *value = fallback;
    if (!sxc_given(cli, option)) {
        return SX_OK;
    }
    char what[64];
    (void)snprintf(what, sizeof(what), "--%s", sxc_options[option].name);
    return sxc_parse_i64(cli->cx, what, sx_span_of(sxc_value(cli, option)), low, high, value);
}

sx_code sxc_put(sxc_cli *cli, sx_buf *text)
{
    if (text->len == 0 || text->ptr[text->len - 1] != '\n') {
        sx_buf_put_u8(text, '\n');
    }
    SX_TRY(sx_buf_check(cli->cx, text, "output"));
    cli->printed = true;
    return sxc_write_stream(cli->cx, "standard output", stdout, sx_buf_span(text));
}

/* ---- figures for people ---- */

void sxc_human_bytes(double bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    uint32_t u = 0;
    for (; bytes >= 1024 && u + 1 < SX_COUNT(unit); u++) {
        bytes /= 1024;
    }
    (void)snprintf(text, 32, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
}

void sxc_human_ns(double ns, char text[32])
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    uint32_t u = 0;
    for (; ns >= 1000 && u + 1 < SX_COUNT(unit); u++) {
        ns /= 1000;
    }
    (void)snprintf(text, 32, "%.3g %s", ns, unit[u]);
}
