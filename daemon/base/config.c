#include "daemon/base/config.h"

#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define LINE_BYTES_MAX 199 /* inih cuts longer lines in two */

enum { FIXED, LIVE };
typedef struct {
    const char *name;
    const char *default_text;
    const char *help;
    int64_t least;
    int64_t most;
    size_t offset;
    bool text;
    bool live;
} option_row;

static const option_row table[SXD_OPTION_COUNT] = {
#define SXD_TEXT(name_, default_, reload_, help_) \
    {.name = #name_,                              \
     .default_text = default_,                    \
     .help = help_,                               \
     .offset = offsetof(sxd_options, name_),      \
     .text = true,                                \
     .live = (reload_) == LIVE},
#define SXD_INT(name_, default_, least_, most_, reload_, help_) \
    {.name = #name_,                                            \
     .default_text = #default_,                                 \
     .help = help_,                                             \
     .least = least_,                                           \
     .most = most_,                                             \
     .offset = offsetof(sxd_options, name_),                    \
     .live = (reload_) == LIVE},
#include "daemon/base/options.def"
#undef SXD_TEXT
#undef SXD_INT
};

static char *text_at(sxd_options *options, const option_row *row)
{
    SX_ASSERT(row->text);
    return (char *)options + row->offset;
}

static int64_t *int_at(sxd_options *options, const option_row *row)
{
    SX_ASSERT(!row->text);
    return (int64_t *)(void *)((char *)options + row->offset);
}

/* Sets one option from text. `code` is what a bad value is called. */
static sx_code set_option(sx_ctx *cx, sxd_config *config, uint32_t index, const char *value,
                          sxd_origin origin, sx_code code)
{
    const option_row *row = &table[index];
    size_t len = strlen(value);
    if (row->text) {
        if (len >= SXD_TEXT_MAX) {
            return SX_FAIL(cx, code, "%s: %zu bytes, at most %d", row->name, len, SXD_TEXT_MAX - 1);
        }
        memcpy(text_at(&config->options, row), value, len + 1);
    } else {
        char *end = NULL;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (len == 0 || *end != '\0' || errno != 0) {
            return SX_FAIL(cx, code, "%s: '%.100s' is not a whole number", row->name, value);
        }
        if (number < row->least || number > row->most) {
            return SX_FAIL(cx, code, "%s: %lld, allowed %lld to %lld", row->name, number,
                           (long long)row->least, (long long)row->most);
        }
        *int_at(&config->options, row) = number;
    }
    config->origin[index] = origin;
    return SX_OK;
}

static bool find_option(const char *name, uint32_t *index)
{
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        if (strcmp(table[i].name, name) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* ---- configuration file ---- */
typedef struct {
    sx_ctx *cx;
    sxd_config *config;
} file_reader;

static int on_pair(void *self, const char *section, const char *name, const char *value)
{
    file_reader *reader = self;
    uint32_t index;
    if (reader->cx->error.code != SX_OK) {
        return 1; /* the first error counts */
    }
    if (section[0] != '\0' && strcmp(section, "symplexd") != 0) {
        (void)SX_FAIL(reader->cx, SX_INPUT, "section '%.100s' is not known", section);
        return 0;
    }
    if (!find_option(name, &index)) {
        (void)SX_FAIL(reader->cx, SX_INPUT, "key '%.100s' is not known", name);
        return 0;
    }
    return set_option(reader->cx, reader->config, index, value, SXD_FROM_FILE, SX_INPUT) == SX_OK;
}

static sx_code check_lines(sx_ctx *cx, const char *path, const char *text)
{
    int line = 1;
    for (const char *p = text; *p != '\0'; line++) {
        size_t len = strcspn(p, "\n");
        if (len > LINE_BYTES_MAX) {
            return SX_FAIL(cx, SX_INPUT, "%s:%d: line of %zu bytes, at most %d", path, line, len,
                           LINE_BYTES_MAX);
        }
        p += len + (p[len] == '\n' ? 1 : 0);
    }
    return SX_OK;
}

static sx_code parse_file(sx_ctx *cx, sxd_config *config, const char *path, const char *text)
{
    SX_TRY(check_lines(cx, path, text));
    sx_ctx own;
    sx_ctx_init(&own, 1 << 12);
    file_reader reader = {.cx = &own, .config = config};
    int line = ini_parse_string(text, on_pair, &reader);
    sx_code code = SX_OK;
    if (line != 0) {
        bool named = own.error.code != SX_OK;
        code = SX_FAIL(cx, SX_INPUT, "%s:%d: %.300s", path, line,
                       named ? own.error.text : "not a section, pair or comment");
    }
    sx_ctx_fini(&own);
    return code;
}

static sx_code read_file(sx_ctx *cx, sxd_config *config, const char *path, bool required)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return required || errno != ENOENT
                   ? SX_FAIL(cx, SX_SYSTEM, "%s: cannot be read: %s", path, strerror(errno))
                   : SX_OK;
    }
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t len = text != NULL ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    (void)fclose(file);
    sx_code code;
    if (text == NULL) {
        code = SX_FAIL(cx, SX_NOMEM, "%s: no memory", path);
    } else if (len > FILE_BYTES_MAX) {
        code = SX_FAIL(cx, SX_INPUT, "%s: more than %zu bytes", path, FILE_BYTES_MAX);
    } else {
        text[len] = '\0';
        code = parse_file(cx, config, path, text);
        (void)snprintf(config->file, sizeof(config->file), "%s", path);
    }
    free(text);
    return code;
}

/* ---- environment ---- */
static sx_code read_environment(sx_ctx *cx, sxd_config *config)
{
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        char name[64] = "SYMPLEX_";
        size_t n = strlen(name);
        for (const char *p = table[i].name; *p != '\0'; p++) {
            name[n++] = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
        }
        name[n] = '\0';
        const char *value = getenv(name);
        if (value != NULL) {
            SX_TRY(set_option(cx, config, i, value, SXD_FROM_ENVIRONMENT, SX_USAGE));
        }
    }
    return SX_OK;
}

/* ---- command line ---- */
enum { ARG_CONFIG = SXD_OPTION_COUNT, ARG_HELP, ARG_VERSION, ARG_CHECK, ARG_PRINT, ARG_COUNT };

/* Long options: the table with dashes, then the five above. The names live in `names`. */
static void make_long_options(struct option options[ARG_COUNT + 1], char names[][32])
{
    for (int i = 0; i < SXD_OPTION_COUNT; i++) {
        size_t n = 0;
        for (const char *p = table[i].name; *p != '\0'; p++) {
            names[i][n++] = *p == '_' ? '-' : *p;
        }
        names[i][n] = '\0';
        options[i] = (struct option){names[i], required_argument, NULL, 256 + i};
    }
    options[ARG_CONFIG] = (struct option){"config", required_argument, NULL, 256 + ARG_CONFIG};
    options[ARG_HELP] = (struct option){"help", no_argument, NULL, 256 + ARG_HELP};
    options[ARG_VERSION] = (struct option){"version", no_argument, NULL, 256 + ARG_VERSION};
    options[ARG_CHECK] = (struct option){"check-config", no_argument, NULL, 256 + ARG_CHECK};
    options[ARG_PRINT] = (struct option){"print-config", no_argument, NULL, 256 + ARG_PRINT};
    options[ARG_COUNT] = (struct option){0};
}

/* One pass over the arguments: `apply` false looks for --config and the actions only. */
static sx_code read_arguments(sx_ctx *cx, int argc, char *const *argv, sxd_config *config,
                              bool apply, const char **file)
{
    struct option options[ARG_COUNT + 1];
    char names[SXD_OPTION_COUNT][32];
    make_long_options(options, names);
    optind = 0; /* start again: glibc's way to forget an earlier pass */
    opterr = 0;
    int got;
    while ((got = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (got == '?') {
            return SX_FAIL(cx, SX_USAGE, "argument '%.100s' is not known or lacks its value",
                           argv[optind - 1]);
        }
        int index = got - 256;
        if (index == ARG_CONFIG) {
            *file = optarg;
        } else if (index > ARG_CONFIG) {
            config->action = (sxd_action)(index - ARG_HELP + SXD_HELP);
        } else if (apply) {
            SX_TRY(set_option(cx, config, (uint32_t)index, optarg, SXD_FROM_ARGUMENT, SX_USAGE));
        }
    }
    if (optind < argc) {
        return SX_FAIL(cx, SX_USAGE, "argument '%.100s' is not wanted", argv[optind]);
    }
    return SX_OK;
}

/* Defaults of the two paths. */
static sx_code fill_paths(sx_ctx *cx, sxd_options *options)
{
    const char *home = getenv("HOME");
    const char *state = getenv("XDG_STATE_HOME");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n = 0;
    if (options->state[0] == '\0') {
        if (state != NULL && state[0] == '/') {
            n = snprintf(options->state, SXD_TEXT_MAX, "%s/symplex", state);
        } else if (home != NULL && home[0] == '/') {
            n = snprintf(options->state, SXD_TEXT_MAX, "%s/.local/state/symplex", home);
        } else {
            return SX_FAIL(cx, SX_USAGE, "state: neither XDG_STATE_HOME nor HOME is a path");
        }
    }
    if (n >= SXD_TEXT_MAX) {
        return SX_FAIL(cx, SX_USAGE, "state: path of %d bytes, at most %d", n, SXD_TEXT_MAX - 1);
    }
    if (options->socket[0] == '\0') {
        n = runtime != NULL && runtime[0] == '/'
                ? snprintf(options->socket, SXD_TEXT_MAX, "%s/symplex/d.sock", runtime)
                : snprintf(options->socket, SXD_TEXT_MAX, "/tmp/symplex-%u/d.sock",
                           (unsigned)getuid());
    }
    return n < SXD_TEXT_MAX
               ? SX_OK
               : SX_FAIL(cx, SX_USAGE, "socket: path of %d bytes, at most %d", n, SXD_TEXT_MAX - 1);
}

sx_code sxd_config_load(sx_ctx *cx, int argc, char *const *argv, sxd_config *config)
{
    SX_ASSERT(argc >= 1 && argv != NULL && config != NULL);
    memset(config, 0, sizeof(*config));
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        SX_TRY(set_option(cx, config, i, table[i].default_text, SXD_FROM_DEFAULT, SX_INTERNAL));
    }
    const char *named = NULL;
    SX_TRY(read_arguments(cx, argc, argv, config, false, &named));
    char path[SXD_TEXT_MAX] = "";
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (base != NULL && base[0] == '/') {
        (void)snprintf(path, sizeof(path), "%s/symplex/symplexd.conf", base);
    } else if (home != NULL && home[0] == '/') {
        (void)snprintf(path, sizeof(path), "%s/.config/symplex/symplexd.conf", home);
    }
    if (named != NULL) {
        SX_TRY(read_file(cx, config, named, true));
    } else if (path[0] != '\0') {
        SX_TRY(read_file(cx, config, path, false));
    }
    SX_TRY(read_environment(cx, config));
    SX_TRY(read_arguments(cx, argc, argv, config, true, &named));
    return fill_paths(cx, &config->options);
}

void sxd_config_apply(sxd_config *config, const sxd_config *fresh,
                      void (*report)(void *self, const char *name, bool applied), void *self)
{
    sxd_config source = *fresh;
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        const option_row *row = &table[i];
        bool same = row->text
                        ? strcmp(text_at(&config->options, row), text_at(&source.options, row)) == 0
                        : *int_at(&config->options, row) == *int_at(&source.options, row);
        if (same) {
            continue;
        }
        if (row->live) {
            SX_ASSERT(!row->text); /* texts are paths, and paths are fixed */
            *int_at(&config->options, row) = *int_at(&source.options, row);
            config->origin[i] = source.origin[i];
        }
        if (report != NULL) {
            report(self, row->name, row->live);
        }
    }
}

void sxd_config_help(sx_buf *buf)
{
    sx_buf_put_text(
        buf, "usage: symplexd [--option value]...\n\n"
             "The tensor compilation service. Stays in the foreground; logs to stderr.\n\n"
             "  --config FILE          read FILE instead of ~/.config/symplex/symplexd.conf\n"
             "  --check-config         read the configuration, report errors, exit\n"
             "  --print-config         print every setting with its origin, exit\n"
             "  --version              print the version, exit\n"
             "  --help                 print this, exit\n\n"
             "Settings (file: name = value, environment: SYMPLEX_NAME):\n");
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        char name[32];
        size_t n = 0;
        for (const char *p = table[i].name; *p != '\0'; p++) {
            name[n++] = *p == '_' ? '-' : *p;
        }
        name[n] = '\0';
        sx_buf_print(buf, "  --%-20s %s", name, table[i].help);
        if (!table[i].text) {
            sx_buf_print(buf, " (default %s, %lld to %lld)", table[i].default_text,
                         (long long)table[i].least, (long long)table[i].most);
        }
        sx_buf_put_text(buf, table[i].live ? "; live\n" : "\n");
    }
    sx_buf_put_text(buf,
                    "\nSignals: TERM finish and exit, TERM again or INT exit now, HUP read the "
                    "live settings again.\n");
}

void sxd_config_print(const sxd_config *config, sx_buf *buf)
{
    static const char *const origins[] = {"default", "file", "environment", "argument"};
    sxd_config copy = *config;
    for (uint32_t i = 0; i < SXD_OPTION_COUNT; i++) {
        const option_row *row = &table[i];
        if (row->text) {
            sx_buf_print(buf, "%s = %s", row->name, text_at(&copy.options, row));
        } else {
            sx_buf_print(buf, "%s = %lld", row->name, (long long)*int_at(&copy.options, row));
        }
        bool file = copy.origin[i] == SXD_FROM_FILE;
        sx_buf_print(buf, "    ; %s%s%s\n", origins[copy.origin[i]], file ? " " : "",
                     file ? copy.file : "");
    }
}
