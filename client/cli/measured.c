#include "client/cli/measured.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/file.h"
#include "client/record.h"

#define TEXT_MAX ((size_t)1 << 20)

sx_code sxc_measured_path(const sxc_cli *cli, char path[SXC_MEASURED_PATH_MAX])
{
    const char *given = sxc_value(cli, SXC_TIMES);
    char folder[SXC_FOLDER_MAX];
    int length = 0;
    if (given != NULL) {
        length = snprintf(path, SXC_MEASURED_PATH_MAX, "%s", given);
    } else if (sxc_state_folder(folder)) {
        length = snprintf(path, SXC_MEASURED_PATH_MAX, "%s/measured", folder);
    }
    if (length <= 0 || length >= SXC_MEASURED_PATH_MAX) {
        sx_hint(cli->cx, "Name a file with --times.");
        return SX_FAIL(cli->cx, SX_USAGE, "no place for what is measured: no home is known");
    }
    return SX_OK;
}

static sx_code read_file(sx_ctx *cx, const char *path, sx_buf *text)
{
    FILE *file;
    SX_TRY(sxc_open_input(cx, path, &file));
    uint8_t piece[4096];
    size_t got;
    while ((got = fread(piece, 1, sizeof(piece), file)) > 0) {
        sx_buf_put(text, piece, got);
    }
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    return failed ? SX_FAIL(cx, SX_INPUT, "%s: cannot be read", path)
                  : sx_buf_check(cx, text, "measured rows");
}

static bool is_there(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

sx_code sxc_measured_read(const sxc_cli *cli, sx_span *text)
{
    char path[SXC_MEASURED_PATH_MAX];
    sx_measured rows;
    *text = (sx_span){NULL, 0};
    bool given = sxc_given(cli, SXC_TIMES);
    if (sxc_measured_path(cli, path) != SX_OK || (!given && !is_there(path))) {
        sx_ctx_reset_error(cli->cx);
        return SX_OK;
    }
    sx_buf bytes;
    sx_buf_init(&bytes, TEXT_MAX);
    sx_code code = read_file(cli->cx, path, &bytes);
    code = code == SX_OK ? sx_measured_parse(cli->cx, sx_buf_span(&bytes), &rows) : code;
    const char *copy = code == SX_OK ? sx_alloc_text(cli->cx, sx_buf_span(&bytes)) : NULL;
    *text = (sx_span){(const uint8_t *)copy, copy != NULL ? bytes.len : 0};
    sx_buf_fini(&bytes);
    if (code == SX_INPUT && !given) {
        sx_hint(cli->cx, "Remove %s, or name another file with --times.", path);
    }
    return code != SX_OK ? code : copy != NULL ? SX_OK : cli->cx->error.code;
}

sx_code sxc_measured_add(sx_ctx *cx, const char *path, const sx_measured *rows)
{
    sx_buf text;
    sx_measured all = {.count = 0};
    sx_buf_init(&text, TEXT_MAX);
    sx_code code = is_there(path) ? read_file(cx, path, &text) : SX_OK;
    code = code == SX_OK ? sx_measured_parse(cx, sx_buf_span(&text), &all) : code;
    for (uint32_t i = 0; i < rows->count && code == SX_OK; i++) {
        code = sx_measured_put(cx, &all, &rows->row[i]);
    }
    sx_buf_clear(&text);
    sx_measured_print(&all, &text);
    code = code == SX_OK ? sx_buf_check(cx, &text, "measured rows") : code;
    code = code == SX_OK ? sxc_write_file(cx, path, sx_buf_span(&text)) : code;
    sx_buf_fini(&text);
    return code;
}
