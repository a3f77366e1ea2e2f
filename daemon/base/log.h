/* log.h - one line of logfmt per event on stderr: ts, level, ev, then what the caller prints. */
#ifndef SX_DAEMON_BASE_LOG_H
#define SX_DAEMON_BASE_LOG_H
#include "core/base/base.h"

typedef enum { SXD_ERROR, SXD_WARN, SXD_INFO, SXD_DEBUG } sxd_level;

/* Nothing above this level is printed from now on. */
void sxd_log_set(sxd_level level);
/* Prints one line. `format` prints key=value pairs; values that others chose go through sxd_quote. */
void sxd_log(sxd_level level, const char *event, const char *format, ...) SX_PRINTF(3, 4);

#define SXD_QUOTE_MAX 512
/* Writes `text` as a quoted logfmt value, cut to fit, and returns `out`. */
const char *sxd_quote(char out[SXD_QUOTE_MAX], sx_span text);
#endif
