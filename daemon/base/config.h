/* config.h - settings: defaults, then configuration file, then environment, then command line; options.def
 * lists them. */
#ifndef SX_DAEMON_BASE_CONFIG_H
#define SX_DAEMON_BASE_CONFIG_H
#include "core/base/base.h"
#include "core/base/buf.h"

#define SXD_TEXT_MAX 1024

typedef struct {
#define SXD_TEXT(name, default_, reload, help) char name[SXD_TEXT_MAX];
#define SXD_INT(name, default_, least, most, reload, help) int64_t name;
#include "daemon/base/options.def"
#undef SXD_TEXT
#undef SXD_INT
} sxd_options;

enum {
#define SXD_TEXT(name, default_, reload, help) SXD_OPTION_##name,
#define SXD_INT(name, default_, least, most, reload, help) SXD_OPTION_##name,
#include "daemon/base/options.def"
#undef SXD_TEXT
#undef SXD_INT
    SXD_OPTION_COUNT
};

typedef enum {
    SXD_FROM_DEFAULT,
    SXD_FROM_FILE,
    SXD_FROM_ENVIRONMENT,
    SXD_FROM_ARGUMENT
} sxd_origin;
typedef enum { SXD_RUN, SXD_HELP, SXD_VERSION, SXD_CHECK_CONFIG, SXD_PRINT_CONFIG } sxd_action;

typedef struct {
    sxd_options options;
    sxd_origin origin[SXD_OPTION_COUNT];
    char file[SXD_TEXT_MAX]; /* the configuration file that was read; empty: none */
    sxd_action action;
} sxd_config;

/* Reads all sources. `argv` is left as it is, so that a reload reads the same arguments again.
 *   errors   SX_USAGE wrong argument or environment value; SX_INPUT configuration file (text names file, line,
 *            key, value and limits); SX_SYSTEM file named on the command line cannot be read */
sx_code sxd_config_load(sx_ctx *cx, int argc, char *const *argv, sxd_config *config);

/* Takes over from `fresh` what may change while the daemon runs. Every difference is reported to `report`, which may be
 * NULL. */
void sxd_config_apply(sxd_config *config, const sxd_config *fresh,
                      void (*report)(void *self, const char *name, bool applied), void *self);

/* Prints the usage. */
void sxd_config_help(sx_buf *buf);
/* Prints "name = value" lines with the origin of each as a comment. They can be read back as a configuration file. */
void sxd_config_print(const sxd_config *config, sx_buf *buf);
#endif
